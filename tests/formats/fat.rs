//! Images of FAT and exFAT, mounted with tarnfs, beside the tree that was written.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::support::{Mounted, Scratch, assert_serves_what_is_whole, can_mount, have, is_root, run};

/// How file systems of FAT are made, and how large.
const WAYS: &[(&str, &str, &str)] = &[
    ("fat12", "-F 12", "4M"),
    ("one-table", "-F 12 -f 1 -r 512", "3M"),
    ("fat16", "-F 16", "40M"),
    ("fat32", "-F 32 -s 1", "64M"),
    ("large-sectors", "-F 32 -S 4096", "400M"),
    ("default", "", "16M"),
];

/// Time is that of UTC, in steps that FAT has.
fn make_tree(scratch: &Scratch) {
    scratch.shell(
        r"mkdir -p tree/folder/deep tree/many tree/void; cd tree; seq 1 > one; : > empty; seq 100000 > numbers; head -c 524288 /dev/urandom > noise
         seq 7 > folder/deep/seven; printf text > 'a name with spaces and ü'; echo x > lower.txt; echo X > UPPER.TXT; echo m > Mixed.Tx
         echo long > $(printf 'n%.0s' $(seq 200)).text; for i in $(seq 300); do echo $i > many/file-number-$i.text; done
         echo 木 > 木と林; find . -exec env TZ=UTC touch -d '2021-03-04 05:06:08' {} +; TZ=UTC touch -d '2099-12-31 23:59:58' one",
    );
}

/// What of a tree FAT keeps: kind, length, time and content of each path.
fn seen(root: &Path, with_times: bool) -> BTreeMap<PathBuf, (bool, u64, i64, Vec<u8>)> {
    let (mut found, mut open) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let stat = fs::metadata(&path).unwrap();
            let content = if stat.is_dir() { Vec::new() } else { fs::read(&path).unwrap() };
            let size = if stat.is_dir() { 0 } else { stat.len() };
            let time = if with_times { stat.mtime() } else { 0 };
            found.insert(path.strip_prefix(root).unwrap().to_owned(), (stat.is_dir(), size, time, content));
            if stat.is_dir() {
                open.push(path);
            }
        }
    }
    found
}

#[track_caller]
fn assert_same<T: PartialEq>(found: &BTreeMap<PathBuf, T>, tree: &BTreeMap<PathBuf, T>, what: &str) {
    for (path, seen) in tree {
        assert!(found.get(path) == Some(seen), "{what}: {}", path.display());
    }
    let more: Vec<_> = found.keys().filter(|path| !tree.contains_key(*path)).collect();
    assert!(more.is_empty(), "{what}: {more:?}");
}

fn fill(scratch: &Scratch, image: &str, options: &str, size: &str) {
    scratch.shell(&format!(
        "truncate -s {size} {image}; mkfs.vfat {options} -n LABEL {image} > made; export TZ=UTC LC_ALL=C.UTF-8
         mcopy -s -m -Q -i {image} tree/* ::/"
    ));
}

/// > Of a FAT or exFAT file system, a mount shows the names, contents and times that were written.
#[test]
fn whatever_its_size_the_tree_is_the_same() {
    if !can_mount() || !have("mkfs.vfat") || !have("mcopy") {
        return println!("left out: no mounts here, or no mtools");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    let tree = seen(&scratch.path("tree"), true);
    for (name, options, size) in WAYS {
        let image = format!("{name}.img");
        fill(&scratch, &image, options, size);
        // What is removed is not there any more, and a file in parts is whole.
        scratch.shell(&format!(
            "export TZ=UTC; for i in $(seq 20); do mcopy -i {image} tree/one ::/gap-$i; done; mdel -i {image} ::/gap-*[13579]
             mcopy -m -i {image} tree/numbers ::/parts; mdel -i {image} ::/gap-*"
        ));
        let mounted = Mounted::new(&scratch, scratch.path(&image), &[]);
        assert_eq!(mounted.ran.err, "", "{name}");
        let mut found = seen(&mounted.path(""), true);
        let parts = found.remove(Path::new("parts")).unwrap();
        assert!(parts == tree[Path::new("numbers")], "{name}");
        assert_same(&found, &tree, name);
        assert_eq!(fs::metadata(mounted.path("one")).unwrap().mode() & 0o7777, 0o644, "{name}");
        assert_eq!(fs::metadata(mounted.path("folder")).unwrap().mode() & 0o7777, 0o755, "{name}");
        mounted.unmount();
        scratch.shell(&format!("rm {image}"));
    }
    assert!(!scratch.shell("ls").contains("sqlite"), "an image needs no index");
}

/// Attributes that have a place in a mode are there, and comparing tells no others.
#[test]
fn what_is_read_only_may_not_be_written_to() {
    if !have("mkfs.vfat") || !have("mcopy") {
        return println!("left out: no mtools");
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; echo one > tree/one; echo two > tree/two; TZ=UTC touch -d '2021-03-04 05:06:08' tree/*");
    fill(&scratch, "a.img", "", "1M");
    scratch.shell("mattrib -i a.img +r +h ::/two");
    let image = scratch.path("a.img");
    let listed = run(&scratch, ["ls", "-l", image.to_str().unwrap()]).ok().text();
    let mode = |name: &str| listed.lines().find(|line| line.ends_with(name)).unwrap_or_default()[..10].to_owned();
    assert_eq!((mode("one"), mode("two")), ("-rw-r--r--".to_owned(), "-r--r--r--".to_owned()), "{listed}");
    scratch.shell("chmod 700 tree/one");
    let compared = run(&scratch, ["compare", image.to_str().unwrap(), scratch.path("tree").to_str().unwrap()]);
    assert!(compared.code == 0 && compared.out.is_empty(), "{}{}", compared.text(), compared.err);
}

/// A program that writes exFAT has written what is shown: `exfat-fuse`, over a loop device.
#[test]
fn exfat_shows_what_was_written() {
    if !can_mount() || !have("mkfs.exfat") || !have("mount.exfat-fuse") || !have("losetup") {
        return println!("left out: no mounts here, or nothing that writes exFAT");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell("truncate -s 64M a.img; mkfs.exfat -L LABEL a.img > made; mkdir written");
    let device = scratch.shell("losetup -f --show a.img 2>/dev/null || true");
    let device = device.trim();
    if device.is_empty() || !is_root() {
        return println!("left out: there are no loop devices here");
    }
    let script = format!(
        r"export TZ=UTC; trap 'umount written 2>/dev/null; losetup -d {device}' EXIT; mount.exfat-fuse {device} written > made 2>&1
         mountpoint -q written || exit 0; cp -r --preserve=timestamps tree/. written; rm written/many/file-number-*7.text
         for i in 1 2 3 4 5 6 7 8; do head -c 30000 tree/numbers >> written/one-of-two; head -c 20000 tree/numbers >> written/two-of-two; done
         sync; cp -r --preserve=timestamps written kept"
    );
    scratch.shell(&script);
    if !scratch.path("kept").exists() {
        return println!("left out: exfat-fuse does not mount here");
    }
    let mounted = Mounted::new(&scratch, scratch.path("a.img"), &[]);
    assert_eq!(mounted.ran.err, "");
    assert_same(&seen(&mounted.path(""), false), &seen(&scratch.path("kept"), false), "exfat");
    let time = fs::metadata(mounted.path("numbers")).unwrap().mtime();
    assert_eq!(time, 1_614_834_368);
    mounted.unmount();
}

/// A folder of an exFAT file system that no program writes: a file without a chain of which some was not written, and
/// one with a chain that is broken.
#[test]
fn exfat_has_files_without_chains_and_parts_that_were_not_written() {
    if !have("mkfs.exfat") {
        return println!("left out: no mkfs.exfat");
    }
    let scratch = Scratch::new();
    scratch.shell("truncate -s 8M a.img; mkfs.exfat -c 4096 a.img > made");
    let path = scratch.path("a.img");
    let image = fs::read(&path).unwrap();
    let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap()) as usize;
    let (table, heap, root) = (word(80) * 512, word(88) * 512, word(96));
    let cluster = |number: usize| heap + (number - 2) * 4096;
    let used = (0..4096).step_by(32).find(|at| image[cluster(root) + at] == 0).unwrap();
    let set = |name: &str, flags: u8, first: u32, written: u64, length: u64| {
        let mut set = vec![0; 96];
        (set[0], set[1], set[32], set[33], set[35], set[64]) = (0x85, 2, 0xc0, flags, name.len() as u8, 0xc1);
        set[40..48].copy_from_slice(&written.to_le_bytes());
        set[52..56].copy_from_slice(&first.to_le_bytes());
        set[56..64].copy_from_slice(&length.to_le_bytes());
        for (at, letter) in name.bytes().enumerate() {
            set[66 + at * 2] = letter;
        }
        let bytes = set.iter().enumerate().filter(|(at, _)| !matches!(at, 2 | 3));
        let sum = bytes.fold(0, |sum: u16, (_, byte)| sum.rotate_right(1).wrapping_add((*byte).into()));
        set[2..4].copy_from_slice(&sum.to_le_bytes());
        set
    };
    let mut wrong = set("wrong", 3, 100, 10, 10);
    wrong[56] = 11;
    let sets =
        [set("run", 3, 100, 5000, 9000), set("chain", 1, 110, 9000, 9000), set("broken", 1, 120, 9000, 9000), wrong];
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&sets.concat(), (cluster(root) + used) as u64).unwrap();
    file.write_all_at(&[b'a'; 12288], cluster(100) as u64).unwrap();
    for (number, letter) in [(110, b'b'), (130, b'c'), (111, b'd'), (120, b'e')] {
        file.write_all_at(&[letter; 4096], cluster(number) as u64).unwrap();
    }
    for (number, next) in [(110, 130_u32), (130, 111), (111, u32::MAX), (120, 0)] {
        file.write_all_at(&next.to_le_bytes(), (table + number * 4) as u64).unwrap();
    }
    let read = |name: &str| run(&scratch, ["cat", path.to_str().unwrap(), name]);
    assert!(read("run").out == [&[b'a'; 5000][..], &[0; 4000]].concat());
    assert!(read("chain").out == [&[b'b'; 4096][..], &[b'c'; 4096], &[b'd'; 808]].concat());
    let broken = read("broken");
    assert!(broken.code != 0 && broken.out.len() <= 4096, "{}", broken.err);
    let listed = run(&scratch, ["ls", path.to_str().unwrap()]);
    assert!(listed.err.contains("its chain of clusters is broken"), "{}", listed.err);
    assert!(
        listed.err.contains("a file is left out: its checksum is wrong") && !listed.text().contains("wrong"),
        "{}",
        listed.err
    );
}

#[test]
fn an_image_lies_in_other_archives_and_others_in_it() {
    if !have("mkfs.vfat") || !have("mcopy") || !have("zip") {
        return println!("left out: no mtools, or no zip");
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir -p in tree; seq 70000 > in/numbers; tar -C in -czf tree/in.tar.gz numbers; seq 9 > tree/nine");
    fill(&scratch, "a.img", "", "2M");
    scratch.shell("cp -r tree kept; cp a.img tree/inner.fat");
    fill(&scratch, "b.img", "", "8M");
    scratch.shell("gzip -k a.img; tar -cf t.tar a.img a.img.gz; zip -q z.zip a.img");
    let numbers = fs::read(scratch.path("in/numbers")).unwrap();
    for (archive, before) in [
        ("a.img", ""),
        ("a.img.gz", ""),
        ("t.tar", "a.img/"),
        ("t.tar", "a.img.gz/"),
        ("z.zip", "a.img/"),
        ("b.img", "inner.fat/"),
    ] {
        let path = scratch.path(archive);
        let read = |name: &str| run(&scratch, ["cat", "-r", path.to_str().unwrap(), &format!("{before}{name}")]).ok();
        assert_eq!(read("nine").text(), "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "{archive}");
        assert!(read("in.tar.gz/numbers").out == numbers, "{archive}");
    }
}

/// A cut image, and one whose table is lost, serve what is whole.
#[test]
fn a_damaged_image_serves_what_is_whole() {
    if !have("mkfs.vfat") || !have("mcopy") {
        return println!("left out: no mtools");
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; seq 90000 > tree/a; seq 90000 > tree/b; echo last > tree/z");
    fill(&scratch, "a.img", "-F 16", "16M");
    assert_serves_what_is_whole(&scratch, "a.img", ("a", "tree/a"));
    let (image, whole) = (fs::read(scratch.path("a.img")).unwrap(), fs::read(scratch.path("tree/a")).unwrap());
    let reserved = usize::from(image[14]) * 512;
    let mut lost = image.clone();
    lost[reserved + 4..reserved + 400].fill(0);
    fs::write(scratch.path("lost.img"), &lost).unwrap();
    let ran = run(&scratch, ["cat", scratch.path("lost.img").to_str().unwrap(), "a"]);
    assert!(ran.code != 0 && whole.starts_with(&ran.out), "{}", ran.err);
    let ran = run(&scratch, ["ls", scratch.path("lost.img").to_str().unwrap()]);
    assert!(
        ran.err.contains("its chain of clusters is broken") && ran.text().contains('z'),
        "{}{}",
        ran.text(),
        ran.err
    );
}
