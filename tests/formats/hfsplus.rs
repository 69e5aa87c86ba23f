//! Volumes of macOS: HFS+ as `xorriso` and a script of the tests write it, and disk images (DMG) with such volumes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::support::{Mounted, Scratch, can_mount, have, is_root, run};
use crate::trees::{attributes, sums, told};

const VOLUME: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/support/hfsplus.py");
const HOSTILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/support/hfsplus_hostile.py");
const IMAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/support/dmg.py");

/// A tree with what such a volume may have.
fn make_tree(scratch: &Scratch) {
    scratch.shell(
        r#"mkdir -p tree/sub/deep tree/many; cd tree; seq 100000 > numbers; echo x > sub/x; ln sub/x sub/hard; ln sub/x deep; ln -s ../numbers sub/link; : > empty
        head -c 300000 /dev/urandom > noise.scattered; for kind in 1 3 7 11; do seq 300 > few.cmp$kind; done; head -c 900 noise.scattered > random.cmp3
        for kind in 4 8 12; do seq 60000 > long.cmp$kind; head -c 200000 noise.scattered > random.cmp$kind; done; mkfifo fifo; chmod 4711 numbers; chmod 700 sub
        seq 50 > resource:numbers; head -c 100000 noise.scattered > resource:empty; touch a:b "Grün 文字" $(printf 'n%.0s' $(seq 250)); touch -d '1999-01-02 03:04:05' numbers sub/x
        for i in $(seq 3000); do echo $i > many/file-$i; done; setfattr -n user.com.apple.metadata -v hello numbers; setfattr -n user.long -v $(printf 'v%.0s' $(seq 2500)) sub/x
        setfattr -n user.com.apple.FinderInfo -v TEXTttxt$(printf '.%.0s' $(seq 24)) empty; setfattr -n user.folder -v yes sub
        if [ $(id -u) = 0 ]; then chown 501:20 numbers; mknod device c 5 1; mknod block b 8 70000; fi; touch -d '2020-02-02 02:02:02' sub many ."#,
    );
}

/// Without what stands for resource forks.
fn without_forks(text: &str) -> String {
    text.lines().filter(|line| !line.contains("resource:")).fold(String::new(), |all, line| all + line + "\n")
}

fn compare(scratch: &Scratch, seen: &Path, tree: &Path, what: &str) {
    assert_eq!(sums(scratch, seen), without_forks(&sums(scratch, tree)), "{what}");
    assert_eq!(attributes(scratch, seen), without_forks(&attributes(scratch, tree)), "{what}");
}

/// > Of an HFS+ volume, a mount shows what was stored, and files that macOS has compressed as it shows them.
#[test]
fn what_was_stored_is_shown() {
    if !can_mount() || !["python3", "setfattr"].into_iter().all(have) {
        return println!("left out: no mounts or no Python here");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    for node in [512, 4096, 32768] {
        // Short nodes have no room for long names.
        let without = if node == 512 { "rm -f tree/nnn*;" } else { "" };
        scratch.shell(&format!("cp -a tree kept; {without} python3 {VOLUME} tree v.hfs {node}"));
        let checked = told(&scratch, "check", "v.hfs", &[]);
        assert_eq!(checked.code, 0, "{node}: {}{}", checked.text(), checked.err);
        let mounted = Mounted::new(&scratch, scratch.path("v.hfs"), &[]);
        compare(&scratch, &mounted.at, &scratch.path("tree"), "all of it");
        let of =
            |path: &str| scratch.shell(&format!("cd '{}'; getfattr -d -m - {path} 2>/dev/null", mounted.at.display()));
        assert!(of("numbers").contains("user.com.apple.metadata=\"hello\""), "{}", of("numbers"));
        assert!(of("numbers").contains("user.com.apple.ResourceFork="), "{}", of("numbers"));
        assert!(of("sub").contains("user.folder=\"yes\"") && of("sub/x").matches('v').count() >= 2500);
        assert!(of("empty").contains("FinderInfo=\"TEXTttxt"), "{}", of("empty"));
        assert!(!of("long.cmp4").contains("ResourceFork") && !of("few.cmp3").contains("decmpfs"));
        if is_root() {
            let owner = scratch.shell(&format!("stat -c '%u %g %Y' {}", mounted.path("numbers").display()));
            assert_eq!(owner, scratch.shell("stat -c '%u %g %Y' tree/numbers"));
        }
        // From the middle of what is packed.
        let (mut own, mut theirs) = ([0; 5000], [0; 5000]);
        for (name, at) in
            [("long.cmp4", 70_000), ("long.cmp8", 130_000), ("long.cmp12", 200_000), ("random.cmp8", 66_000)]
        {
            fs::File::open(mounted.path(name)).unwrap().read_exact_at(&mut own, at).unwrap();
            fs::File::open(scratch.path("tree").join(name)).unwrap().read_exact_at(&mut theirs, at).unwrap();
            assert!(own == theirs, "{name}");
        }
        mounted.unmount();
        scratch.shell("rm -rf tree; mv kept tree");
    }
    assert!(!scratch.shell("ls").contains("sqlite"), "a volume needs no index");
}

/// Another program's volume, in a disk with Apple's map of partitions, and in archives.
#[test]
fn what_xorriso_has_written_is_read() {
    if !can_mount() || !["xorriso", "zip"].into_iter().all(have) {
        return println!("left out: no mounts, no xorriso or no zip here");
    }
    let scratch = Scratch::new();
    scratch.shell(
        r"mkdir -p tree/sub; cd tree; seq 100000 > numbers; echo x > sub/x; ln -s ../numbers sub/link; : > empty; chmod 640 sub/x
        for i in $(seq 500); do echo $i > sub/file-$i; done; touch -d '2011-01-02 03:04:05' sub/x; cd ..
        xorriso -as mkisofs -quiet -hfsplus -o hybrid.iso tree > said 2>&1
        # The volume is the third one of the map. Without the descriptors of the CD, all is a disk of Apple.
        start=$(od -An -tu4 --endian=big -j $((1536 + 8)) -N 4 hybrid.iso); count=$(od -An -tu4 --endian=big -j $((1536 + 12)) -N 4 hybrid.iso)
        dd if=hybrid.iso of=v.hfs bs=512 skip=$((start)) count=$((count)) status=none; cp hybrid.iso disk.img
        dd if=/dev/zero of=disk.img bs=1k seek=32 count=30 conv=notrunc status=none; tar cf outer.tar v.hfs; gzip -k outer.tar; zip -q outer.zip v.hfs",
    );
    for (archive, options, below) in [
        ("v.hfs", &[][..], ""),
        ("disk.img", &[], "3"),
        ("outer.tar", &["-r"], "v.hfs"),
        ("outer.tar.gz", &["-r"], "v.hfs"),
        ("outer.zip", &["-r"], "v.hfs"),
    ] {
        let mounted = Mounted::new(&scratch, scratch.path(archive), options);
        compare(&scratch, &mounted.path(below), &scratch.path("tree"), archive);
        mounted.unmount();
    }
    // What says that it is a CD wins.
    let listed = run(&scratch, ["ls".as_ref(), scratch.path("hybrid.iso").as_os_str()]).ok().text();
    assert_eq!(listed, "empty\nnumbers\nsub\n");
}

/// > Of a disk image of macOS (DMG), a mount shows what is on the disk, however its blocks are packed.
#[test]
fn disk_images_show_what_is_on_the_disk() {
    if !can_mount() || !["python3", "sfdisk", "mkfs.vfat", "mcopy", "setfattr"].into_iter().all(have) {
        return println!("left out: no mounts here, or nothing that makes disks");
    }
    let scratch = Scratch::new();
    scratch.shell(&format!(
        r"mkdir -p tree/sub; cd tree; seq 100000 > numbers; head -c 300000 /dev/urandom > sub/noise; head -c 400000 /dev/zero > zeros; seq 60000 > long.cmp4; cd ..
        python3 {VOLUME} tree v.hfs; truncate -s 4M v.hfs; truncate -s 2M fat; mkfs.vfat fat > made; mcopy -s -i fat tree/* ::/
        truncate -s 10M disk; printf 'label: gpt\nstart=2048,size=8192\nstart=10240,size=4096\n' | sfdisk -q disk
        dd if=v.hfs of=disk bs=512 seek=2048 conv=notrunc status=none; dd if=fat of=disk bs=512 seek=10240 conv=notrunc status=none"
    ));
    for (method, sectors) in
        [("raw", 512), ("zlib", 512), ("zlib", 2048), ("bzip2", 512), ("lzma", 2048), ("lzfse", 512), ("adc", 128)]
    {
        scratch
            .shell(&format!("python3 {IMAGE} disk x.dmg {method} {sectors}; python3 {IMAGE} v.hfs one.dmg {method}"));
        for name in ["x.dmg", "one.dmg"] {
            let checked = told(&scratch, "check", name, &[]);
            assert_eq!(checked.code, 0, "{method}: {}{}", checked.text(), checked.err);
        }
        let mounted = Mounted::new(&scratch, scratch.path("x.dmg"), &[]);
        for part in ["1", "2"] {
            assert_eq!(sums(&scratch, &mounted.path(part)), sums(&scratch, &scratch.path("tree")), "{method}, {part}");
        }
        mounted.unmount();
        let mounted = Mounted::new(&scratch, scratch.path("one.dmg"), &[]);
        assert_eq!(sums(&scratch, &mounted.at), sums(&scratch, &scratch.path("tree")), "{method}");
        mounted.unmount();
        scratch.shell("rm -f outer.tar; tar cf outer.tar one.dmg");
        let mounted = Mounted::new(&scratch, scratch.path("outer.tar"), &["-r"]);
        assert_eq!(sums(&scratch, &mounted.path("one.dmg")), sums(&scratch, &scratch.path("tree")), "{method}");
        mounted.unmount();
    }
}

/// One wrong byte in what is packed, in a stored block, or in the trailer: `check` tells, and the rest is read.
#[test]
fn a_damaged_disk_image_is_told() {
    if !have("python3") {
        return println!("left out: no Python here");
    }
    let scratch = Scratch::new();
    scratch.shell(&format!(
        "mkdir tree; seq 100000 > tree/numbers; head -c 300000 /dev/urandom > tree/noise; echo x > tree/x; python3 {VOLUME} tree v.hfs
        for method in zlib raw; do python3 {IMAGE} v.hfs $method.dmg $method 64; done"
    ));
    for method in ["zlib", "raw"] {
        let path = scratch.path(format!("{method}.dmg"));
        let whole = fs::read(&path).unwrap();
        let mut wrong = whole.clone();
        wrong[100_000] ^= 1;
        fs::write(&path, &wrong).unwrap();
        let checked = told(&scratch, "check", &format!("{method}.dmg"), &[]);
        assert!(checked.code != 0, "{method}: {}{}", checked.text(), checked.err);
        let read = run(&scratch, ["cat".as_ref(), path.as_os_str(), "x".as_ref()]);
        assert_eq!(read.ok().text(), "x\n", "{method}");
        // Cut behind the trailer nothing says what it is.
        fs::write(&path, &whole[..whole.len() - 600]).unwrap();
        let listed = run(&scratch, ["ls".as_ref(), path.as_os_str()]);
        assert!(method == "raw" || listed.code != 0, "{method}: {}", listed.text());
    }
}

/// A file that macOS has compressed is not empty where what says so is lost.
#[test]
fn a_compressed_file_without_its_attribute_is_damaged() {
    if !have("python3") {
        return println!("left out: no Python here");
    }
    let scratch = Scratch::new();
    scratch.shell(&format!(
        "mkdir tree; seq 300 > tree/few.cmp3; seq 60000 > tree/long.cmp4; echo x > tree/x; python3 {VOLUME} tree v.hfs; sed -i s/d.e.c.m.p.f.s/d.e.c.m.p.f.t/g v.hfs"
    ));
    let path = scratch.path("v.hfs");
    assert_eq!(run(&scratch, ["cat".as_ref(), path.as_os_str(), "x".as_ref()]).text(), "x\n");
    for name in ["few.cmp3", "long.cmp4"] {
        let read = run(&scratch, ["cat".as_ref(), path.as_os_str(), name.as_ref()]);
        assert!(read.code == 5 && read.out.is_empty(), "{name}: {}{}", read.text(), read.err);
    }
    let checked = told(&scratch, "check", "v.hfs", &[]);
    assert!(checked.code == 5 && checked.text().contains("2 of 3 files"), "{}", checked.text());
}

/// macOS may store longer attributes than Linux has. One is left out, and costs neither what lies behind it nor what
/// was found before. A record that is damaged costs only what lies behind it.
#[test]
fn a_long_attribute_costs_only_itself() {
    if !["python3", "setfattr"].into_iter().all(have) {
        return println!("left out: no Python here, or nothing that sets attributes");
    }
    let scratch = Scratch::new();
    scratch.shell(&format!(
        "mkdir tree; echo x > tree/x; for name in a b long.x35000 behind-what-is-long; do setfattr -n user.$name -v it tree/x; done
        seq 60000 > tree/long.cmp4; setfattr -n user.a.x35000 -v it tree/long.cmp4; python3 {VOLUME} tree v.hfs"
    ));
    let path = scratch.path("v.hfs");
    let found = |out: &str| {
        let to = scratch.path(out);
        run(&scratch, ["extract".as_ref(), path.as_os_str(), "-C".as_ref(), to.as_os_str()]);
        assert_eq!(scratch.shell(&format!("cat {out}/x {out}/long.cmp4")), scratch.shell("cat tree/x tree/long.cmp4"));
        scratch.shell(&format!("cd {out}; getfattr -d -m ^user x long.cmp4 | grep = | LC_ALL=C sort || true"))
    };
    assert_eq!(found("all"), "user.a=\"it\"\nuser.b=\"it\"\nuser.behind-what-is-long=\"it\"\n");
    let checked = told(&scratch, "check", "v.hfs", &[]);
    assert_eq!(checked.code, 0, "{}{}", checked.text(), checked.err);
    // The last one says that it is longer than the node that it lies in.
    let mut bytes = fs::read(&path).unwrap();
    let name: Vec<u8> = "behind-what-is-long".encode_utf16().flat_map(u16::to_be_bytes).collect();
    let behind = bytes.windows(name.len()).position(|seen| seen == name).unwrap() + name.len();
    assert_eq!(bytes[behind..behind + 16], [[0_u8, 0, 0, 16], [0; 4], [0; 4], [0, 0, 0, 2]].concat());
    bytes[behind + 12] = 0x70;
    fs::write(&path, bytes).unwrap();
    assert_eq!(found("less"), "user.a=\"it\"\nuser.b=\"it\"\n");
    let checked = told(&scratch, "check", "v.hfs", &[]);
    assert!(checked.code != 0 && checked.text().contains("some of its extended attributes"), "{}", checked.text());
}

/// Each volume of its bytes that are there is read in a moment, whatever it says; and an archive of images is one.
#[test]
fn volumes_and_images_that_lie_end() {
    if !["python3", "ar"].into_iter().all(have) {
        return println!("left out: no Python or no ar here");
    }
    let scratch = Scratch::new();
    scratch.shell(&format!(
        r"mkdir tree; for i in $(seq 900); do : > tree/file-$i; setfattr -n user.name-$i -v value tree/file-$i; done; python3 {VOLUME} tree v.hfs
        python3 {IMAGE} v.hfs x.dmg zlib 64; echo first > first.txt; ar rc x.a first.txt x.dmg"
    ));
    let listed = run(&scratch, ["ls".as_ref(), scratch.path("x.a").as_os_str()]).ok().text();
    assert_eq!(
        listed,
        "first.txt
x.dmg
"
    );
    // The attributes' leaves are a ring.
    let mut volume = fs::read(scratch.path("v.hfs")).unwrap();
    let number = |at: usize| u32::from_be_bytes(volume[at..at + 4].try_into().unwrap());
    let attributes = number(1024 + 352 + 16) as usize * 4096;
    let second = attributes + 2 * 8192;
    volume[second..second + 4].copy_from_slice(&1_u32.to_be_bytes());
    let first = attributes + 8192;
    volume[first..first + 4].copy_from_slice(&2_u32.to_be_bytes());
    fs::write(scratch.path("ring.hfs"), volume).unwrap();
    let listed = run(&scratch, ["find".as_ref(), scratch.path("ring.hfs").as_os_str(), "-type".as_ref(), "f".as_ref()]);
    assert_eq!(listed.text().lines().count(), 900, "{}", listed.err);
}

/// What the first block of a disk image is packed with is no stream around the image.
#[test]
fn disk_images_in_compressed_archives_are_found_by_their_end() {
    if !["python3", "zip", "mkfs.vfat", "mcopy"].into_iter().all(have) {
        return println!("left out: no Python, zip or tools of DOS here");
    }
    let scratch = Scratch::new();
    // Blocks of zeros are not stored.
    scratch.shell(
        "mkdir tree; seq 20000 > tree/a; head -c 300000 /dev/zero > tree/b; seq 30000 > tree/c
         truncate -s 4M disk; mkfs.vfat disk > made; mcopy -s -i disk tree/* ::/",
    );
    for method in ["zlib", "bzip2", "lzma"] {
        scratch.shell(&format!(
            "rm -rf x.* out; python3 {IMAGE} disk x.dmg {method} 64; tar -czf x.tar.gz x.dmg; zip -q x.zip x.dmg; gzip -k x.dmg
             head -c -700 x.dmg > cut.dmg; tar -czf cut.tar.gz cut.dmg"
        ));
        for (name, inside) in [("x.tar.gz", "out/x.dmg"), ("x.zip", "out/x.dmg"), ("x.dmg.gz", "out")] {
            let path = scratch.path(name);
            let out = scratch.path("out");
            let extracted =
                run(&scratch, ["extract".as_ref(), "-r".as_ref(), path.as_os_str(), "-C".as_ref(), out.as_os_str()]);
            assert_eq!(extracted.code, 0, "{method}: {name}: {}", extracted.err);
            scratch.shell(&format!("diff -r tree {inside}; rm -r out"));
        }
        // Without its end it is nothing that is known.
        let cut = told(&scratch, "ls", "cut.dmg", &[]);
        assert!(cut.code != 0 && cut.text().is_empty(), "{method}: {}{}", cut.text(), cut.err);
        let cut = told(&scratch, "ls", "cut.tar.gz", &["-r"]);
        assert_eq!((cut.code, cut.text().as_str()), (0, "cut.dmg\n"), "{method}: {}", cut.err);
    }
}

/// Each of its blocks lies in a block of the image, and both are packed.
#[test]
fn a_long_file_that_is_packed_twice_is_read() {
    if !can_mount() || !have("python3") {
        return println!("left out: no mounts or no Python here");
    }
    let scratch = Scratch::new();
    scratch.shell(&format!(
        "mkdir tree; python3 -c 'import sys; [sys.stdout.buffer.write(bytes([65 + i % 3]) * 65536) for i in range(1200)]' > tree/long.cmp8
        python3 {VOLUME} tree v.hfs; python3 {IMAGE} v.hfs x.dmg zlib 64"
    ));
    let mounted = Mounted::new(&scratch, scratch.path("x.dmg"), &[]);
    assert_eq!(mounted.ran.err, "");
    assert!(fs::read(mounted.path("long.cmp8")).unwrap() == fs::read(scratch.path("tree/long.cmp8")).unwrap());
    mounted.unmount();
}

/// Whoever has blocks of a disk decoded pays for it, and each name pays for its attributes.
#[test]
fn what_is_read_again_and_again_has_an_end() {
    if !have("python3") {
        return println!("left out: no Python here");
    }
    let scratch = Scratch::new();
    scratch.shell(&format!(
        "python3 {HOSTILE} nodes n.hfs; python3 {IMAGE} n.hfs n.dmg zlib 32768; python3 {HOSTILE} attributes a.hfs"
    ));
    for (image, says) in [("n.dmg", "decoded too often"), ("a.hfs", "extended attributes")] {
        let checked = told(&scratch, "check", image, &[]);
        assert!(checked.code != 0 && checked.text().contains(says), "{image}: {}", checked.text());
    }
    let index = scratch.path("a.index");
    run(&scratch, ["index".as_ref(), "--index-file".as_ref(), index.as_os_str(), scratch.path("a.hfs").as_os_str()]);
    let length = fs::metadata(index).unwrap().len();
    assert!(length < 200 << 20, "{length}: with those of each name it would be a gigabyte");
}

/// Where a node of the catalogue is lost, what the others tell is shown.
#[test]
fn a_damaged_catalogue_costs_what_it_told() {
    if !have("python3") {
        return println!("left out: no Python here");
    }
    let scratch = Scratch::new();
    scratch.shell(&format!(
        "mkdir -p tree/many tree/other; for i in $(seq 2000); do echo $i > tree/many/file-$i; done; seq 1000 > tree/other/numbers; python3 {VOLUME} tree v.hfs 4096"
    ));
    let path = scratch.path("v.hfs");
    let whole = fs::read(&path).unwrap();
    let block = |at: usize| u32::from_be_bytes(whole[at..at + 4].try_into().unwrap()) as usize * 4096;
    // The first extent of the catalogue, as the volume header says. Behind its header come the leaves.
    let catalogue = block(1024 + 272 + 16);
    let list = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let listed = run(&scratch, ["find".as_ref(), path.as_os_str(), "-type".as_ref(), "f".as_ref()]);
        (listed.text().lines().count(), listed.text().contains("numbers"), listed.err.clone())
    };
    assert_eq!(list(&whole), (2001, true, String::new()));
    let mut wrong = whole.clone();
    // The kind of the fourth leaf, and where its first record begins.
    for at in [catalogue + 4 * 4096 + 8, catalogue + 5 * 4096 - 1] {
        wrong[at] ^= 0x55;
        let (count, has_numbers, err) = list(&wrong);
        assert!((1900..2001).contains(&count) && has_numbers, "{count} {has_numbers} {err}");
        wrong[at] ^= 0x55;
    }
    // The volume header: there is a copy.
    wrong[1024] = 0;
    assert_eq!(list(&wrong).0, 2001);
    let checked = told(&scratch, "check", "v.hfs", &[]);
    assert!(checked.code != 0 && checked.text().contains("its copy at the end is read"), "{}", checked.text());
    // A chain of leaves that leads back.
    let mut ring = whole.clone();
    ring[catalogue + 8 * 4096..catalogue + 8 * 4096 + 4].copy_from_slice(&1_u32.to_be_bytes());
    let (count, _, err) = list(&ring);
    assert_eq!(count, 2001, "{err}");
}
