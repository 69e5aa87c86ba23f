//! Images of ext2, ext3 and ext4, mounted with tarnfs, beside the tree that was written and what the kernel shows.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::support::{Compare, Mounted, Scratch, Seen, assert_serves_what_is_whole, can_mount, have, run, survey};

/// How file systems are made, and how large.
const WAYS: &[(&str, &str, &str)] = &[
    ("ext2", "-t ext2 -b 1024", "32M"),
    ("ext3", "-t ext3 -b 2048", "64M"),
    ("ext4", "-t ext4 -b 4096", "64M"),
    ("inline", "-t ext4 -O inline_data -I 512", "64M"),
    ("no-sums", "-t ext4 -O ^metadata_csum,^64bit", "64M"),
    ("older-sums", "-t ext4 -O ^metadata_csum,uninit_bg", "64M"),
    ("meta-groups", "-t ext4 -b 1024 -O meta_bg,^resize_inode", "64M"),
    ("clusters", "-t ext4 -O bigalloc -C 16384", "128M"),
    ("64k", "-t ext4 -b 65536", "300M"),
    ("seed", "-t ext4 -O metadata_csum_seed,large_dir,ea_inode", "64M"),
    ("no-extents", "-t ext4 -O ^extents,^64bit", "64M"),
    ("sparse-twice", "-t ext4 -O sparse_super2 -b 1024 -g 1024", "64M"),
    ("small-inodes", "-t ext4 -I 128", "64M"),
];

fn make_tree(scratch: &Scratch) {
    scratch.shell(
        r"mkdir -p tree/folder/deep tree/void tree/many; cd tree; seq 1 > one; : > empty; seq 300000 > numbers
         head -c 1048576 /dev/urandom > noise; seq 7 > folder/deep/seven; printf start > sparse
         seq 9000 | dd of=sparse bs=128k seek=3 conv=notrunc status=none; truncate -s 3M hole
         ln -s folder/deep/seven link; ln -s $(printf 'x%.0s' $(seq 1000)) long; ln -s $(printf 'y%.0s' $(seq 59)) y; ln -s $(printf 'z%.0s' $(seq 60)) z
         ln numbers folder/hard; ln numbers folder/deep/harder; mkfifo fifo; mknod character c 300 70000; mknod block-device b 7 3
         chown 12345:543210 one; chmod 4755 one; chmod 600 noise; chmod 1777 void; printf text > 'a name with spaces and ü'
         printf latin > $(printf 'latin-\344'); for i in $(seq 2000); do echo $i > many/file-$i; done
         touch -d '2021-03-04 05:06:08' numbers; touch -d '2030-01-01' folder; touch -h -d '1950-01-01' link
         setfattr -n user.short -v value one; setfattr -n user.long -v $(printf 'v%.0s' $(seq 600)) one folder
         setfattr -n trusted.secret -v x noise; setfattr -n security.thing -v y -h link 2>/dev/null || true
         setfacl -m u:12:rw noise; setfacl -d -m g:7:rx folder",
    );
}

fn seen(root: &Path, whole_seconds: bool) -> BTreeMap<PathBuf, Seen> {
    survey(root, Compare { whole_seconds, ..Compare::default() })
}

/// What was written is there, and nothing else but a folder that each file system has.
#[track_caller]
fn assert_same(found: &BTreeMap<PathBuf, Seen>, tree: &BTreeMap<PathBuf, Seen>, what: &str) {
    for (path, seen) in tree {
        assert_eq!(found.get(path), Some(seen), "{what}: {}", path.display());
    }
    let more: Vec<_> = found.keys().filter(|path| !tree.contains_key(*path)).collect();
    assert!(more.iter().all(|path| path.starts_with("lost+found")), "{what}: {more:?}");
}

/// > Of an ext2, ext3 or ext4 file system, whatever features it has, a mount shows what the kernel's own would.
#[test]
fn whatever_features_it_has_the_tree_is_the_same() {
    if !can_mount() || !have("mkfs.ext4") || !have("setfacl") {
        return println!("left out: no mounts here, or no mkfs.ext4");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    let tree = seen(&scratch.path("tree"), true);
    assert!(tree.len() > 2000);
    for (name, options, size) in WAYS {
        scratch.shell(&format!(
            "mkfs.ext4 -q -F {options} -d tree {name}.img {size} >made 2>&1 || {{ cat made; exit 1; }}"
        ));
        let mounted = Mounted::new(&scratch, scratch.path(format!("{name}.img")), &[]);
        assert_eq!(mounted.ran.err, "", "{name}");
        assert_same(&seen(&mounted.path(""), true), &tree, name);
        let hard = fs::metadata(mounted.path("numbers")).unwrap();
        assert_eq!(hard.ino(), fs::metadata(mounted.path("folder/deep/harder")).unwrap().ino(), "{name}");
        mounted.unmount();
        scratch.shell(&format!("rm {name}.img"));
    }
    assert!(!scratch.shell("ls").contains("sqlite"), "an image needs no index");
}

/// Makes a file system, has the kernel write to it, and mounts it to read. False if the kernel does not do that here.
fn written_by_the_kernel(scratch: &Scratch, options: &str, script: &str) -> bool {
    scratch.shell("rm -f k.img; mkdir -p kernel");
    scratch.shell(&format!("mkfs.ext4 -q -F {options} k.img 100M >made 2>&1 || {{ cat made; exit 1; }}"));
    let mount = "mount -o loop k.img kernel 2>/dev/null && echo yes || true";
    if scratch.shell(mount).trim() != "yes" {
        println!("left out: the kernel mounts no such images here");
        return false;
    }
    scratch.shell(&format!("cd kernel; {script}"));
    scratch.unmount("kernel");
    true
}

/// The kernel's own mount shows the same: what it has written, overwritten and removed, times to the nanosecond.
#[test]
fn the_kernel_shows_the_same() {
    if !can_mount() || !have("mkfs.ext4") || !have("setfattr") {
        return println!("left out: no mounts here, or no mkfs.ext4");
    }
    let scratch = Scratch::new();
    let script = r"seq 200000 > numbers; ln numbers hard; mkdir many void; for i in $(seq 6000); do echo $i > many/a-file-with-a-rather-long-name-$i; done
        rm many/*7; mkdir -p gone/deep; echo x > gone/deep/x; rm -r gone; echo x > removed; rm removed; fallocate -l 1M unwritten 2>/dev/null || : > unwritten
        fallocate -l 2M partly 2>/dev/null || true; seq 9000 | dd of=partly bs=64k seek=9 conv=notrunc status=none; fallocate -n -l 1M -o 1M hard 2>/dev/null || true
        for i in $(seq 0 400); do printf part | dd of=parts bs=1 seek=$((i * 20000)) conv=notrunc status=none; done; truncate -s 20M parts
        touch -d '2100-01-01 01:02:03.123456789' later; touch -d '1905-02-03 04:05:06.5' before; touch -d '2400-01-01 00:00:00.999999999' last
        for i in $(seq 12); do setfattr -n user.name-$i -v $(printf 'v%.0s' $(seq 20)) later; done; setfattr -n user.x -v y many
        ln -s $(printf 'l%.0s' $(seq 900)) link; ln -s short short; printf in > inside; mkdir in; : > in/a; : > in/b; head -c 150 /dev/urandom > in/c
        mkdir -p indexed/more; for i in $(seq 500); do : > indexed/$i; : > indexed/more/a-longer-name-$i; done
        mkdir -p a/b/c/d/e/f; echo deep > a/b/c/d/e/f/g; touch -h -d '2001-02-03 04:05:06.789' short";
    for options in [
        "-t ext4",
        "-t ext4 -O inline_data,ea_inode -I 1024",
        "-t ext3 -I 256",
        "-t ext2 -b 1024",
        "-t ext4 -b 1024 -O ^extents,^64bit",
    ] {
        if !written_by_the_kernel(&scratch, options, script) {
            return;
        }
        if options.contains("ea_inode") {
            let large =
                "mount -o loop k.img kernel; setfattr -n user.large -v $(printf 'w%.0s' $(seq 9000)) kernel/later";
            scratch.shell(large);
            scratch.unmount("kernel");
        }
        scratch.shell("mount -o loop,ro k.img kernel");
        let theirs = seen(&scratch.path("kernel"), false);
        scratch.unmount("kernel");
        assert!(theirs.len() > 5000);
        let mounted = Mounted::new(&scratch, scratch.path("k.img"), &[]);
        assert_eq!(mounted.ran.err, "", "{options}");
        assert_same(&seen(&mounted.path(""), false), &theirs, options);
        assert_eq!(fs::metadata(mounted.path("hard")).unwrap().nlink(), 2);
        mounted.unmount();
    }
}

#[test]
fn an_image_lies_in_other_archives_and_others_in_it() {
    if !have("mkfs.ext4") || !have("zip") {
        return println!("left out: no mkfs.ext4, or no zip");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p in tree; seq 70000 > in/numbers; tar -C in -czf tree/in.tar.gz numbers; seq 9 > tree/nine
         mkfs.ext4 -q -F -O ^has_journal -d tree inner.ext4 2M; mkdir outer; cp inner.ext4 outer; cp inner.ext4 a.img
         mkfs.ext4 -q -F -O ^has_journal -d outer b.img 4M
         gzip -k a.img; xz -k a.img; tar -cf t.tar a.img a.img.gz; zip -q z.zip a.img",
    );
    let numbers = fs::read(scratch.path("in/numbers")).unwrap();
    for (archive, before) in [
        ("a.img", ""),
        ("a.img.gz", ""),
        ("a.img.xz", ""),
        ("t.tar", "a.img/"),
        ("t.tar", "a.img.gz/"),
        ("z.zip", "a.img/"),
        ("b.img", "inner.ext4/"),
    ] {
        let path = scratch.path(archive);
        let read = |name: &str| run(&scratch, ["cat", "-r", path.to_str().unwrap(), &format!("{before}{name}")]).ok();
        assert_eq!(read("nine").text(), "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "{archive}");
        assert!(read("in.tar.gz/numbers").out == numbers, "{archive}");
    }
}

/// Writes bytes into a file.
fn put(path: &Path, at: u64, bytes: &[u8]) {
    fs::File::options().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

/// What `debugfs` says of a file.
fn ask(scratch: &Scratch, request: &str) -> String {
    scratch.shell(&format!("debugfs -R '{request}' a.img 2>/dev/null"))
}

/// Where the inode of a file stands, in bytes.
fn inode_of(scratch: &Scratch, name: &str) -> u64 {
    // "Inode 12 is part of block group 0\n\tlocated at block 35, offset 0x0b00"
    let told = ask(scratch, &format!("imap {name}"));
    let words: Vec<_> = told.split([' ', ',', '\n']).filter(|word| !word.is_empty()).collect();
    let behind = |what: &str| words[words.iter().rposition(|word| *word == what).unwrap() + 1];
    let block: u64 = behind("block").parse().unwrap();
    block * 4096 + u64::from_str_radix(behind("offset").trim_start_matches("0x"), 16).unwrap()
}

fn damaged(scratch: &Scratch) {
    scratch.shell(
        "mkdir -p tree/folder; seq 1000 > tree/one; seq 90000 > tree/two; echo x > tree/folder/x; for i in $(seq 100); do echo $i > tree/folder/$i; done
         mkfs.ext4 -q -F -b 4096 -d tree a.img 160M",
    );
}

/// Of a damaged superblock or descriptor of a group, a copy is read, and that is told.
#[test]
fn copies_stand_in_for_what_is_damaged() {
    if !have("mkfs.ext4") {
        return println!("left out: no mkfs.ext4");
    }
    let scratch = Scratch::new();
    damaged(&scratch);
    let path = scratch.path("a.img");
    let two = fs::read(scratch.path("tree/two")).unwrap();
    let told = |what: &str| {
        let ran = run(&scratch, ["ls", path.to_str().unwrap()]);
        assert!(ran.err.contains(what), "{}", ran.err);
        let read = run(&scratch, ["cat", path.to_str().unwrap(), "two"]);
        assert!(read.out == two, "{}", read.err);
    };
    put(&path, 1024 + 100, &[9]);
    told("the superblock is damaged; its copy in group 1 is read");
    put(&path, 1024, &[0; 1024]);
    told("the superblock is damaged; its copy in group 1 is read");
    put(&path, 4096, &[0; 64]);
    told("its copy in group 1 is read");
}

/// What a checksum finds is left out and told, and the rest is there.
#[test]
fn what_checksums_find_is_left_out() {
    if !have("mkfs.ext4") || !have("debugfs") {
        return println!("left out: no mkfs.ext4");
    }
    let scratch = Scratch::new();
    damaged(&scratch);
    let path = scratch.path("a.img");
    let whole = fs::read(&path).unwrap();
    let names = |what: &str| {
        let ran = run(&scratch, ["find", path.to_str().unwrap()]);
        assert!(ran.err.contains(what), "{what}: {}", ran.err);
        fs::write(&path, &whole).unwrap();
        ran.text()
    };
    put(&path, inode_of(&scratch, "one") + 4, &[7]);
    let left = names("the checksum of its inode");
    assert!(!left.contains("one") && left.contains("two") && left.contains("folder/x"), "{left}");
    let block: u64 = ask(&scratch, "blocks folder").split_whitespace().next().unwrap().parse().unwrap();
    put(&path, block * 4096 + 100, b"!");
    let left = names("a block of its listing: its checksum is wrong");
    assert!(left.contains("two") && left.contains("folder") && !left.contains("folder/x"), "{left}");
    // Whose data is damaged is not known: it has no checksum.
    let check = run(&scratch, ["check", path.to_str().unwrap()]);
    assert!(!check.err.contains("panicked"), "{}", check.err);
}

/// What cannot be read is refused or told, and says why.
#[test]
fn journals_and_foreign_features_are_told() {
    if !have("mkfs.ext4") || !have("debugfs") {
        return println!("left out: no mkfs.ext4");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; seq 9 > tree/nine; mkfs.ext4 -q -F -O ^metadata_csum -d tree a.img 16M; cp a.img b.img
         debugfs -w -R 'feature needs_recovery' a.img 2>/dev/null; mkfs.ext4 -q -F -O journal_dev journal.img 16M",
    );
    let ran = run(&scratch, ["cat", scratch.path("a.img").to_str().unwrap(), "nine"]);
    assert_eq!(ran.text(), "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    let ran = run(&scratch, ["ls", scratch.path("a.img").to_str().unwrap()]);
    assert!(ran.err.contains("its journal is not replayed"), "{}", ran.err);
    let ran = run(&scratch, ["ls", scratch.path("journal.img").to_str().unwrap()]);
    assert!(ran.code != 0, "{}{}", ran.text(), ran.err);
    put(&scratch.path("b.img"), 1024 + 99, &[0x40]);
    let ran = run(&scratch, ["ls", scratch.path("b.img").to_str().unwrap()]);
    assert!(ran.code != 0 && ran.err.contains("features that are not known (0x40000000)"), "{}", ran.err);
}

/// What is encrypted is told, and the rest is there.
#[test]
fn what_is_encrypted_is_left_out() {
    if !have("mkfs.ext4") || !have("debugfs") {
        return println!("left out: no mkfs.ext4");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/secret; seq 9 > tree/nine; seq 9 > tree/locked; seq 9 > tree/secret/x
         mkfs.ext4 -q -F -O encrypt -d tree a.img 16M
         for name in secret locked; do debugfs -w -R \"sif $name flags 0x80800\" a.img 2>/dev/null; done",
    );
    let ran = run(&scratch, ["find", scratch.path("a.img").to_str().unwrap()]);
    assert!(ran.err.contains("secret: what is in it is left out: it is encrypted"), "{}", ran.err);
    let names = ran.text();
    assert!(names.contains("nine") && names.contains("locked") && names.contains("secret") && !names.contains("/x"));
    let image = scratch.path("a.img");
    assert_ne!(run(&scratch, ["cat", image.to_str().unwrap(), "locked"]).code, 0);
    let nine = run(&scratch, ["cat", image.to_str().unwrap(), "nine"]);
    assert_eq!(nine.text(), "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
}

/// An image that was cut anywhere shows what is whole, and says of the rest that it is not there.
#[test]
fn a_cut_image_serves_what_is_whole() {
    if !have("mkfs.ext4") {
        return println!("left out: no mkfs.ext4");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; seq 100000 > tree/a; seq 200000 > tree/b; echo last > tree/z; mkfs.ext4 -q -F -O ^has_journal -d tree a.img 8M",
    );
    assert_serves_what_is_whole(&scratch, "a.img", ("a", "tree/a"));
}
