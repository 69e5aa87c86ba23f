//! Images of NTFS, mounted with tarnfs, beside what ntfs-3g has written and shows.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::support::{Mounted, Scratch, assert_serves_what_is_whole, can_mount, have, is_root, run};

/// Makes an image of `clusters` bytes each, and runs `script` in it while ntfs-3g has it mounted at `w`, and then
/// `behind` beside that. False if it does not mount here.
fn make(
    scratch: &Scratch,
    image: &str,
    (size, clusters): (&str, u32),
    options: &str,
    script: &str,
    behind: &str,
) -> bool {
    scratch.shell(&format!(
        "truncate -s {size} {image}; mkntfs -Q -F -L Läbel -c {clusters} {image} > made 2>&1; mkdir -p w; rm -rf kept mounted
         ntfs-3g -o streams_interface={options} {image} w 2>> made || true; mountpoint -q w || exit 0; trap 'umount w' EXIT; : > mounted
         cd w; {script}
         cd ..; sync; {behind}"
    ));
    scratch.path("mounted").exists()
}

/// The same, of what ntfs-3g shows: a copy of that is kept in `kept`.
fn write(scratch: &Scratch, image: &str, size: (&str, u32), options: &str, script: &str) -> bool {
    make(scratch, image, size, options, script, "cp -a w kept")
}

fn cannot_write() -> bool {
    let cannot = !can_mount() || !is_root() || !have("mkntfs") || !have("ntfs-3g");
    if cannot {
        println!("left out: no mounts here, or no ntfs-3g");
    }
    cannot
}

/// Kind and target, size, time in ns and content of each path, and how many names it has.
type Seen = (u32, PathBuf, u64, (i64, i64), Vec<u8>, u64);

fn seen(root: &Path) -> BTreeMap<PathBuf, Seen> {
    let (mut found, mut open) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let stat = fs::symlink_metadata(&path).unwrap();
            let content = if stat.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            let target = if stat.is_symlink() { fs::read_link(&path).unwrap() } else { PathBuf::new() };
            let (size, names) = if stat.is_file() { (stat.len(), stat.nlink()) } else { (0, 0) };
            // Each link has a time of its own in a copy.
            let time = if stat.is_symlink() { (0, 0) } else { (stat.mtime(), stat.mtime_nsec() / 100) };
            let kind = stat.mode() & 0o170_000;
            found.insert(path.strip_prefix(root).unwrap().to_owned(), (kind, target, size, time, content, names));
            if stat.is_dir() {
                open.push(path);
            }
        }
    }
    found
}

#[track_caller]
fn assert_same(found: &Path, expected: &Path, what: &str) {
    let (found, expected) = (seen(found), seen(expected));
    for (path, seen) in &expected {
        let short = |seen: &Seen| (seen.0, seen.1.clone(), seen.2, seen.3, seen.5);
        let other = found.get(path);
        assert!(other == Some(seen), "{what}: {}: {:?}, not {:?}", path.display(), other.map(short), short(seen));
    }
    let more: Vec<_> = found.keys().filter(|path| !expected.contains_key(*path)).collect();
    assert!(more.is_empty(), "{what}: {more:?}");
}

/// Files of each kind, compressed ones, and one of more parts than one record tells.
const TREE: &str = r"mkdir -p folder/deep many void comp; seq 1 > one; : > empty; seq 100000 > numbers; head -c 524288 /dev/urandom > noise
    ln one hard; ln one folder/third; ln -s ../one folder/link; ln -s /absolute/ü far; mknod dev b 8 1; mknod dev2 c 1 3
    head -c 700 /dev/urandom > inside; truncate -s 3M sparse; printf x | dd of=sparse bs=1 seek=2000000 conv=notrunc status=none
    setfattr -h -v 0x00080000 -n system.ntfs_attrib comp; seq 300000 > comp/numbers; head -c 300000 /dev/zero > comp/zeros
    (seq 5000; head -c 100000 /dev/urandom; seq 5000) > comp/mixed; truncate -s 10M comp/hole; echo end >> comp/hole
    for i in $(seq 300); do echo $i > many/file-number-$i.text; done; rm many/*7.text; echo 木 > 木と林; echo x > $(printf 'n%.0s' $(seq 250))
    for i in $(seq 150); do head -c 8000 numbers >> one-of-two; head -c 8000 noise >> two-of-two; done
    for i in $(seq 150); do head -c 70000 numbers >> comp/one-of-two; head -c 50000 numbers >> comp/two-of-two; done
    touch -d '2021-03-04 05:06:08.1234567' numbers; touch -d '1969-12-31 23:59:58' one";

/// > Of an NTFS file system, a mount shows the names, contents, links and times that ntfs-3g shows.
#[test]
fn whatever_its_clusters_the_tree_is_the_same() {
    if cannot_write() {
        return;
    }
    for (clusters, size) in [(512, "60M"), (4096, "64M"), (65536, "90M")] {
        let scratch = Scratch::new();
        // Clusters of more than 4 KiB cannot be compressed.
        if !write(&scratch, "a.img", (size, clusters), "xattr", TREE) {
            return println!("left out: ntfs-3g does not mount here");
        }
        let mounted = Mounted::new(&scratch, scratch.path("a.img"), &[]);
        assert_eq!(mounted.ran.err, "", "{clusters}");
        assert_same(&mounted.path(""), &scratch.path("kept"), &clusters.to_string());
        assert_eq!(fs::metadata(mounted.path("one")).unwrap().mode() & 0o7777, 0o644);
        assert_eq!(fs::metadata(mounted.path("folder")).unwrap().mode() & 0o7777, 0o755);
        // At any place.
        let (file, twin) = (fs::File::open(mounted.path("comp/mixed")).unwrap(), scratch.path("kept/comp/mixed"));
        let twin = fs::read(twin).unwrap();
        for at in [100_000, 3, 65_530, 4096, 50_001] {
            let mut bytes = [0; 5000];
            file.read_exact_at(&mut bytes, at).unwrap();
            assert!(bytes == twin[at as usize..][..5000], "{clusters}, {at}");
        }
        drop(file);
        mounted.unmount();
        assert!(!scratch.shell("ls").contains("sqlite"), "an image needs no index");
    }
}

/// > Streams of NTFS with a name, attributes, short names and times of creation are extended attributes.
#[test]
fn streams_and_attributes_are_extended_attributes() {
    if cannot_write() || !have("setfattr") {
        return;
    }
    let scratch = Scratch::new();
    let script = r"seq 9 > one; mkdir d; setfattr -n user.stream -v value one; setfattr -n user.of-folder -v b d; setfattr -h -v 0x23000000 -n system.ntfs_attrib one
        head -c 40000 /dev/zero | tr '\0' x > ../long; setfattr -n user.long -v 0s$(base64 -w0 ../long) one; echo long > 'a long name'; setfattr -h -v ALONGN~1 -n system.ntfs_dos_name 'a long name'";
    if !write(&scratch, "a.img", ("8M", 4096), "xattr", script) {
        return println!("left out: ntfs-3g does not mount here");
    }
    let mounted = Mounted::new(&scratch, scratch.path("a.img"), &[]);
    assert_eq!(mounted.ran.err, "");
    let of = |name: &str| {
        let path = mounted.path(name);
        scratch.shell(&format!("getfattr --absolute-names -d '{}' | sed 1d", path.display()))
    };
    let one = of("one");
    assert!(one.contains("user.stream=\"value\"") && one.contains("user.ntfs.attributes=\"0x00000"), "{one}");
    assert!(one.contains("user.ntfs.created=\"1"), "{one}");
    assert!(one.contains(&format!("user.long=\"{}\"", "x".repeat(40000))), "{} bytes", one.len());
    assert!(of("d").contains("user.of-folder=\"b\""), "{}", of("d"));
    assert!(of("a long name").contains("user.ntfs.short_name=\"ALONGN~1\""), "{}", of("a long name"));
    assert_eq!(fs::metadata(mounted.path("one")).unwrap().mode() & 0o7777, 0o444);
    mounted.unmount();
}

/// What `compact /exe` of Windows 10 makes: ntfs-3g stores what wimlib has packed, which has the same form.
#[test]
fn what_windows_has_compressed_is_what_it_was() {
    if cannot_write() || !have("wimcapture") || !have("python3") {
        return;
    }
    let scratch = Scratch::new();
    let resource = r"import struct, sys
b = open(sys.argv[1], 'rb').read()
def header(at):
    word, offset, original = struct.unpack_from('<QQQ', b, at)
    return word & (1 << 56) - 1, offset, original
length, offset, original = header(48)
for at in range(offset, offset + length, 50):
    stored, where, size = header(at)
    if size == int(sys.argv[2]): open(sys.argv[3], 'wb').write(b[where:where + stored])
";
    fs::write(scratch.path("resource.py"), resource).unwrap();
    let script = r#"n=0; for spec in "XPRESS 4096" "LZX 32768" "XPRESS 8192" "XPRESS 16384"; do
            set -- $spec; rm -rf ../src; mkdir -p ../src ../plain; (seq $((30000 + n)); head -c 50000 /dev/urandom; seq 3000) > ../src/f; size=$(stat -c %s ../src/f)
            wimcapture ../src ../$n.wim --compress=$1 --chunk-size=$2 > ../captured 2>&1; python3 ../resource.py ../$n.wim $size ../packed; cp ../src/f ../plain/f$n
            truncate -s $size f$n; for i in $(seq 20); do head -c 7000 ../packed | cat > fill-$i; done; rm fill-*[13579]
            cp ../packed "f$n:WofCompressedData"; setfattr -h -n system.ntfs_reparse_data -v $(printf '0x1700008010000000010000000200000001000000%02x000000' $n) f$n; n=$((n + 1))
        done; rm fill-*"#;
    // ntfs-3g does not read them, so that nothing is kept.
    if !make(&scratch, "a.img", ("40M", 4096), "windows", script, "") {
        return println!("left out: ntfs-3g does not mount here");
    }
    let mounted = Mounted::new(&scratch, scratch.path("a.img"), &[]);
    assert_eq!(mounted.ran.err, "");
    for number in 0..4 {
        let name = format!("f{number}");
        let plain = fs::read(scratch.path("plain").join(&name)).unwrap();
        assert!(fs::read(mounted.path(&name)).unwrap() == plain, "{name}");
        let listed = scratch.shell(&format!("getfattr --absolute-names '{}'", mounted.path(&name).display()));
        assert!(!listed.contains("Wof") && !listed.contains("reparse"), "{listed}");
    }
    mounted.unmount();
    if have("qemu-img") {
        // On a disk in an image that packs all of it once more.
        scratch.shell("qemu-img convert -c -f raw -O qcow2 a.img a.qcow2");
        let image = scratch.path("a.qcow2");
        for number in 0..4 {
            let name = format!("f{number}");
            let found = run(&scratch, ["cat", image.to_str().unwrap(), &name]).ok();
            assert!(found.out == fs::read(scratch.path("plain").join(&name)).unwrap(), "{name} in qcow2");
        }
    }
}

/// What is compressed together may lie in several places of the volume, and each of these in several of an image.
#[test]
fn what_is_compressed_is_read_from_images_of_disks() {
    if cannot_write() || !have("qemu-img") || !have("setfattr") {
        return;
    }
    let scratch = Scratch::new();
    let script = r"mkdir comp; setfattr -h -v 0x00080000 -n system.ntfs_attrib comp; seq 9000 > numbers; seq 40000 > comp/numbers
        for i in $(seq 60); do head -c 5000 numbers >> comp/one; head -c 4000 numbers >> comp/two; done";
    if !write(&scratch, "a.img", ("16M", 4096), "xattr", script) {
        return println!("left out: ntfs-3g does not mount here");
    }
    for (name, format) in [
        ("packed.qcow2", "qcow2 -c"),
        ("small.qcow2", "qcow2 -c -o cluster_size=4k"),
        ("plain.qcow2", "qcow2"),
        ("stream.vmdk", "vmdk -o subformat=streamOptimized"),
    ] {
        scratch.shell(&format!("qemu-img convert -f raw -O {format} a.img {name}"));
        let mounted = Mounted::new(&scratch, scratch.path(name), &[]);
        assert_eq!(mounted.ran.err, "", "{name}");
        assert_same(&mounted.path(""), &scratch.path("kept"), name);
        mounted.unmount();
    }
}

/// A table of files in so many parts that its own first record does not tell them.
#[test]
fn a_table_in_many_parts_is_read_to_its_end() {
    if cannot_write() {
        return;
    }
    let scratch = Scratch::new();
    let script = r"python3 - <<'END'
import os
a, b = (os.open(name, os.O_CREAT | os.O_WRONLY) for name in 'AB')
try:
    while True:
        os.write(a, b'a' * 4096); os.write(b, b'b' * 4096)
except OSError: pass
os.close(a); os.close(b); os.unlink('A'); os.mkdir('d')
try:
    for i in range(6000): open('d/%05d' % i, 'w').write(str(i))
except OSError: pass
END
        rm B";
    if !have("python3") || !write(&scratch, "a.img", ("24M", 4096), "xattr", script) {
        return println!("left out: ntfs-3g does not mount here");
    }
    let mounted = Mounted::new(&scratch, scratch.path("a.img"), &[]);
    assert_eq!(mounted.ran.err, "");
    assert_same(&mounted.path(""), &scratch.path("kept"), "a table in parts");
    mounted.unmount();
}

/// What Windows keeps elsewhere (deduplicated, in a cloud) is a hole of the volume, and no zeros.
#[test]
fn content_that_is_elsewhere_is_an_error() {
    if cannot_write() || !have("setfattr") {
        return;
    }
    let scratch = Scratch::new();
    let kept = |name: &str, kind: &str| {
        format!(
            "truncate -s 300000 {name}; setfattr -h -n system.ntfs_reparse_data -v 0x{kind}080000000101010101010101 {name}"
        )
    };
    let script = [kept("deduplicated", "13000080"), kept("cloud", "1a000090"), kept("other", "78560080")].join("; ");
    // ntfs-3g does not show them either.
    if !make(&scratch, "a.img", ("4M", 4096), "xattr", &script, "") {
        return println!("left out: ntfs-3g does not mount here");
    }
    let image = scratch.path("a.img");
    let listed = run(&scratch, ["ls", image.to_str().unwrap()]);
    for name in ["deduplicated", "cloud", "other"] {
        assert!(
            listed.err.contains(&format!("'{name}': some of what is in it cannot be read: its content is not")),
            "{}",
            listed.err
        );
        let ran = run(&scratch, ["cat", image.to_str().unwrap(), name]);
        assert!(ran.code != 0 && ran.out.is_empty(), "{name}: {}", ran.err);
    }
}

/// What the driver keeps of such a file may be damaged: the file is an error then, and no zeros either.
#[test]
fn a_file_with_a_lost_driver_is_no_zeros() {
    if cannot_write() || !have("setfattr") {
        return;
    }
    let scratch = Scratch::new();
    let kept = "13000080080000000101010101010101";
    let script =
        format!("truncate -s 300000 a; setfattr -h -n system.ntfs_reparse_data -v 0x{kept} a; truncate -s 300000 hole");
    if !make(&scratch, "a.img", ("4M", 4096), "xattr", &script, "") {
        return println!("left out: ntfs-3g does not mount here");
    }
    let image = scratch.path("a.img");
    let mut bytes = fs::read(&image).unwrap();
    let value: Vec<u8> = (0..16).map(|at| u8::from_str_radix(&kept[2 * at..2 * at + 2], 16).unwrap()).collect();
    let places: Vec<_> = (0..bytes.len() - 16).filter(|at| bytes[*at..*at + 16] == value[..]).collect();
    // The attribute is called something else: 24 bytes before its value is its kind.
    for at in places {
        assert_eq!(bytes[at - 24], 0xc0);
        bytes[at - 24] = 0xd0;
    }
    fs::write(&image, bytes).unwrap();
    let ran = run(&scratch, ["cat", image.to_str().unwrap(), "a"]);
    assert!(ran.code != 0 && ran.out.is_empty(), "{} bytes: {}", ran.out.len(), ran.err);
    assert!(run(&scratch, ["cat", image.to_str().unwrap(), "hole"]).out == vec![0; 300_000]);
}

#[test]
fn an_image_lies_in_other_archives_and_others_in_it() {
    if cannot_write() || !have("zip") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir in; seq 70000 > in/numbers; tar -C in -czf in.tar.gz numbers");
    if !write(&scratch, "inner.img", ("2M", 512), "xattr", "cp ../in.tar.gz .; seq 9 > nine")
        || !write(&scratch, "outer.img", ("8M", 4096), "xattr", "cp ../inner.img ../in.tar.gz .; seq 9 > nine")
    {
        return println!("left out: ntfs-3g does not mount here");
    }
    scratch.shell("gzip -k outer.img; tar -cf t.tar outer.img outer.img.gz; zip -q z.zip outer.img");
    let numbers = fs::read(scratch.path("in/numbers")).unwrap();
    for (archive, before) in [
        ("outer.img", ""),
        ("outer.img.gz", ""),
        ("t.tar", "outer.img/"),
        ("t.tar", "outer.img.gz/"),
        ("z.zip", "outer.img/"),
        ("outer.img", "inner.img/"),
        ("z.zip", "outer.img/inner.img/"),
    ] {
        let path = scratch.path(archive);
        let read = |name: &str| run(&scratch, ["cat", "-r", path.to_str().unwrap(), &format!("{before}{name}")]).ok();
        assert_eq!(read("nine").text(), "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "{archive}");
        assert!(read("in.tar.gz/numbers").out == numbers, "{archive}");
    }
}

/// A cut image, one whose boot sector is lost, and one with a torn record serve what is whole.
#[test]
fn a_damaged_image_serves_what_is_whole() {
    if !have("mkntfs") || !have("ntfscp") {
        return println!("left out: no ntfs-3g");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "truncate -s 8M a.img; mkntfs -Q -F -c 4096 a.img > made 2>&1; seq 90000 > a; seq 90000 > b; echo last > z
         for file in a b z; do ntfscp a.img $file $file > made 2>&1; done",
    );
    assert_serves_what_is_whole(&scratch, "a.img", ("a", "a"));
    let image = fs::read(scratch.path("a.img")).unwrap();
    let mut lost = image.clone();
    lost[..512].fill(0);
    fs::write(scratch.path("lost.img"), &lost).unwrap();
    let ran = run(&scratch, ["ls", scratch.path("lost.img").to_str().unwrap()]);
    assert!(ran.err.contains("boot sector is damaged") && ran.text() == "a\nb\nz\n", "{}{}", ran.text(), ran.err);
    // The first record of the table, of which there is a copy.
    let table = u64::from_le_bytes(image[48..56].try_into().unwrap()) as usize * 4096;
    let mut lost = image.clone();
    lost[table..table + 1024].fill(0xff);
    fs::write(scratch.path("lost.img"), &lost).unwrap();
    let ran = run(&scratch, ["ls", scratch.path("lost.img").to_str().unwrap()]);
    assert!(ran.err.contains("its copy is read") && ran.text() == "a\nb\nz\n", "{}{}", ran.text(), ran.err);
    // Of the record of the last file, one sector is older than the other.
    let name: Vec<u8> = b"z".iter().flat_map(|byte| [*byte, 0]).collect();
    let record = (0..200).map(|number| table + number * 1024).rfind(|at| {
        image[*at..].starts_with(b"FILE") && image[*at..at + 1024].windows(4).any(|four| four == [1, 3, name[0], 0])
            || image[*at..].starts_with(b"FILE") && image[*at..at + 1024].windows(4).any(|four| four == [1, 0, b'z', 0])
    });
    let mut torn = image;
    torn[record.unwrap() + 1022] ^= 1;
    fs::write(scratch.path("torn.img"), &torn).unwrap();
    let ran = run(&scratch, ["ls", scratch.path("torn.img").to_str().unwrap()]);
    assert!(ran.err.contains("a record is torn") && ran.text() == "a\nb\n", "{}{}", ran.text(), ran.err);
}
