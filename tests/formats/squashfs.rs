//! Images of squashfs, mounted through the kernel, beside the tree that was packed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::support::{self, Compare, Mounted, Scratch, Seen, can_mount, have, run, survey};

/// How mksquashfs packs. A small block makes many of them.
const WAYS: &[(&str, &str)] = &[
    ("gzip", "-comp gzip"),
    ("lzma", "-comp lzma"),
    ("lzo", "-comp lzo"),
    ("lz4", "-comp lz4"),
    ("lz4hc", "-comp lz4 -Xhc"),
    ("xz", "-comp xz"),
    ("xz-bcj", "-comp xz -Xbcj x86,arm -Xdict-size 50%"),
    ("zstd", "-comp zstd"),
    ("4k", "-comp zstd -b 4096"),
    ("4k-gzip", "-comp gzip -b 4096 -no-fragments"),
    ("1m", "-comp gzip -b 1M"),
    ("no-fragments", "-no-fragments"),
    ("tails", "-tailends"),
    ("stored", "-noI -noD -noF -noX"),
    ("stored-inodes", "-noI -noId -noX -comp xz"),
    ("stored-data", "-noD -b 8192"),
    ("stored-fragments", "-noF -tailends"),
    ("no-duplicates", "-no-duplicates -no-exports -no-tailends"),
];

fn make_tree(scratch: &Scratch) {
    scratch.shell(
        r"mkdir -p tree/folder/deep tree/void tree/many; cd tree; seq 1 > one; : > empty; seq 300000 > numbers
         cp numbers twin; head -c 1048576 /dev/urandom > noise; head -c 3000000 /dev/zero > zeros; seq 7 > folder/deep/seven
         head -c 1048576 numbers > exact; head -c 131072 numbers > block; head -c 131073 numbers > more; cp /bin/ls program
         printf start > sparse; seq 9000 | dd of=sparse bs=128k seek=3 conv=notrunc status=none; truncate -s 5M sparse
         truncate -s 3M hole; ln -s folder/deep/seven link; ln -s $(printf 'x%.0s' $(seq 1000)) long
         ln numbers folder/hard; ln numbers folder/deep/harder; chmod 4755 one; chmod 600 noise; chmod 1777 void
         mkfifo fifo; mknod character c 300 70000; mknod block-device b 7 3; chown 12345:54321 more
         python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(b'\''socket'\'')'
         printf text > 'a name with spaces and ü'; printf latin > $(printf 'latin-\344'); touch -d '2021-03-04 05:06:08' numbers
         touch -d '2030-01-01' folder; touch -h -d '1999-01-01' link
         for i in $(seq 10000); do : > many/file-$i; done; for i in $(seq 300); do echo $i > folder/small-$i; done
         setfattr -n user.short -v value one; setfattr -n user.long -v $(printf 'v%.0s' $(seq 3000)) one twin folder
         setfattr -n trusted.secret -v x noise; setfattr -n security.thing -v y -h link 2>/dev/null || true",
    );
}

/// What is in a tree, in whole seconds: an image has no others.
fn seen(root: &Path) -> BTreeMap<PathBuf, Seen> {
    survey(root, Compare { whole_seconds: true, ..Compare::default() })
}

#[track_caller]
fn assert_same(found: &BTreeMap<PathBuf, Seen>, tree: &BTreeMap<PathBuf, Seen>, what: &str) {
    for (path, seen) in tree {
        assert_eq!(found.get(path), Some(seen), "{what}: {}", path.display());
    }
    assert_eq!(found.len(), tree.len(), "{what}");
}

fn pack(scratch: &Scratch, options: &str, image: &str) {
    scratch.shell(&format!("mksquashfs tree {image} -quiet -no-progress {options}"));
}

/// > Of a squashfs image, whatever packed it and wherever it begins in its file, a mount shows what the kernel's own
/// > would.
#[test]
fn whatever_way_it_was_packed_the_tree_is_the_same() {
    if !can_mount() || !have("mksquashfs") {
        return println!("left out: no mounts here, or no mksquashfs");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    let tree = seen(&scratch.path("tree"));
    assert!(tree.len() > 10_000);
    for (name, options) in WAYS {
        let image = format!("{name}.squashfs");
        pack(&scratch, options, &image);
        let mounted = Mounted::new(&scratch, scratch.path(&image), &[]);
        assert_same(&seen(&mounted.path("")), &tree, name);
        let hard = fs::metadata(mounted.path("numbers")).unwrap();
        assert_eq!(hard.ino(), fs::metadata(mounted.path("folder/deep/harder")).unwrap().ino(), "{name}");
        let root = fs::metadata(mounted.path("")).unwrap();
        assert_eq!(root.mode(), fs::metadata(scratch.path("tree")).unwrap().mode(), "{name}");
        mounted.unmount();
    }
    assert!(!scratch.shell("ls").contains("sqlite"), "an image needs no index");
}

/// The kernel's own mount shows the same, where it can be had.
#[test]
fn the_kernel_shows_the_same() {
    if !can_mount() || !have("mksquashfs") {
        return println!("left out: no mounts here, or no mksquashfs");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    pack(&scratch, "-comp gzip", "a.squashfs");
    let at = scratch.folder("kernel");
    let (image, place) = (scratch.path("a.squashfs"), at.display());
    let mount = format!("mount -t squashfs -o loop,ro {} {place} 2>/dev/null && echo yes || true", image.display());
    if scratch.shell(&mount).trim() != "yes" {
        return println!("left out: the kernel mounts no squashfs here");
    }
    let theirs = seen(&at);
    scratch.unmount(&place.to_string());
    let mounted = Mounted::new(&scratch, &image, &[]);
    assert_same(&seen(&mounted.path("")), &theirs, "kernel");
    mounted.unmount();
}

#[test]
fn an_image_begins_anywhere_and_lies_in_other_archives() {
    if !can_mount() || !have("mksquashfs") || !have("zip") {
        return println!("left out: no mounts here, no mksquashfs, or no zip");
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir -p tree/d; seq 100000 > tree/numbers; seq 9 > tree/d/few; cp /bin/ls tree/d; ln tree/numbers tree/d/hard");
    let tree = seen(&scratch.path("tree"));
    pack(&scratch, "-comp zstd", "a.squashfs");
    // As an AppImage has it: right behind the program. A container has it at a multiple of 4096.
    scratch.shell(
        r"cat /bin/ls a.squashfs > a.AppImage; (cat /bin/ls; head -c 8192 /dev/zero) | head -c $(( ($(stat -Lc %s /bin/ls) + 8191) / 4096 * 4096 )) > padded
         cat a.squashfs >> padded; (printf '#!/bin/run\n'; head -c 40949 /dev/zero; cat a.squashfs) > script.run
         (printf 'firmware'; head -c 5001 /dev/zero; cat a.squashfs) > behind-something
         cp a.squashfs a.snap; cp a.squashfs nameless; tar cf outer.tar a.squashfs a.AppImage; zip -q -0 stored.zip a.squashfs
         zip -q -6 packed.zip a.squashfs; gzip -k a.squashfs; mkdir around; cp outer.tar around; mksquashfs around outer.squashfs -quiet -no-progress -noD -no-fragments",
    );
    for name in
        ["a.squashfs", "a.AppImage", "padded", "script.run", "behind-something", "a.snap", "nameless", "a.squashfs.gz"]
    {
        let mounted = Mounted::new(&scratch, scratch.path(name), &[]);
        assert_same(&seen(&mounted.path("")), &tree, name);
        mounted.unmount();
    }
    for (archive, folder) in [
        ("outer.tar", "a.squashfs"),
        ("outer.tar", "a.AppImage"),
        ("stored.zip", "a.squashfs"),
        ("packed.zip", "a.squashfs"),
        ("outer.squashfs", "outer.tar/a.squashfs"),
    ] {
        let mounted =
            Mounted::new(&scratch, scratch.path(archive), &["-r", "--recursive-extensions", "/archive/,/binary/"]);
        assert_same(&seen(&mounted.path(folder)), &tree, archive);
        mounted.unmount();
    }
    let plain = run(&scratch, ["ls".as_ref(), Path::new("/bin/ls").as_os_str()]);
    assert!(plain.code != 0, "a program without an image is none: {}", plain.text());
}

#[test]
fn a_large_file_is_read_at_any_offset_by_many_and_its_holes_are_holes() {
    if !can_mount() || !have("mksquashfs") {
        return println!("left out: no mounts here, or no mksquashfs");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; seq 6000000 > tree/large; truncate -s 200M tree/sparse; seq 50000 | dd of=tree/sparse bs=1M seek=90 conv=notrunc status=none
         mksquashfs tree a.squashfs -comp gzip -quiet -no-progress",
    );
    let mounted = Mounted::new(&scratch, scratch.path("a.squashfs"), &[]);
    let twin = fs::read(scratch.path("tree/large")).unwrap();
    std::thread::scope(|scope| {
        for reader in 0..4 {
            let (mounted, twin) = (&mounted, &twin);
            scope.spawn(move || {
                let file = fs::File::open(mounted.path("large")).unwrap();
                let mut buffer = vec![0; 200_000];
                for step in 0..60 {
                    let place = (step * 7_654_321 + reader * 1_234_567) % (twin.len() - buffer.len());
                    file.read_exact_at(&mut buffer, place as u64).unwrap();
                    assert!(buffer == twin[place..place + buffer.len()], "at {place}");
                }
            });
        }
    });
    assert!(fs::read(mounted.path("large")).unwrap() == twin);
    let extents = support::data_extents(&mounted.path("sparse"));
    let [(start, end)] = extents[..] else { panic!("{extents:?}") };
    assert!(start == 90 << 20 && (start..100 << 20).contains(&end), "{extents:?}");
    assert!(fs::read(mounted.path("sparse")).unwrap() == fs::read(scratch.path("tree/sparse")).unwrap());
    mounted.unmount();
}

#[test]
fn what_is_damaged_is_an_error_never_a_crash() {
    if !can_mount() || !have("mksquashfs") {
        return println!("left out: no mounts here, or no mksquashfs");
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; cd tree; for i in $(seq 9); do seq $i 60000 > $i; ln $i $i.link; done; seq 5 > few");
    for compression in ["gzip", "xz"] {
        let image = format!("{compression}.squashfs");
        pack(&scratch, &format!("-no-fragments -comp {compression}"), &image);
        let whole = fs::read(scratch.path(&image)).unwrap();
        // In a block of a file: both have a checksum.
        let mut bytes = whole.clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        fs::write(scratch.path("flipped.squashfs"), &bytes).unwrap();
        let mounted = Mounted::new(&scratch, scratch.path("flipped.squashfs"), &[]);
        let mut wrong = 0;
        for number in 1..=9 {
            match fs::read(mounted.path(number.to_string())) {
                Ok(bytes) => assert!(bytes == fs::read(scratch.path(format!("tree/{number}"))).unwrap(), "{number}"),
                Err(_) => wrong += 1,
            }
        }
        assert_eq!(wrong, 1, "{compression}");
        mounted.unmount();
        let checked = run(&scratch, ["check".as_ref(), scratch.path("flipped.squashfs").as_os_str()]);
        assert!(checked.code == 5 && checked.text().contains("2 of 19 files are damaged"), "{}", checked.text());
        assert_eq!(checked.text().matches("damaged: ").count(), 2, "each name is told: {}", checked.text());
        // Cut, and changed in its tables: an error or what is whole.
        for length in [0, 4, 95, 96, 100, middle, whole.len() - 4200, whole.len() - 1] {
            fs::write(scratch.path("cut.squashfs"), &whole[..length.min(whole.len())]).unwrap();
            let ran = run(&scratch, ["ls".as_ref(), "-R".as_ref(), scratch.path("cut.squashfs").as_os_str()]);
            assert!(matches!(ran.code, 0..=5), "{length}: {}", ran.text());
        }
    }
    let whole = fs::read(scratch.path("gzip.squashfs")).unwrap();
    let with = |place: usize, bytes: &[u8]| {
        let mut image = whole.clone();
        image[place..place + bytes.len()].copy_from_slice(bytes);
        fs::write(scratch.path("other.squashfs"), image).unwrap();
        let ran = run(&scratch, ["ls".as_ref(), scratch.path("other.squashfs").as_os_str()]);
        assert!(ran.code != 0, "{}", ran.text());
        ran.err
    };
    assert!(with(28, &[3, 0]).contains("squashfs version 3 cannot be read"));
    assert!(with(20, &[77, 0]).contains("compression has the number 77"));
    assert!(with(32, &[0xff; 6]).contains("root cannot be read"));
}

/// Folders that hold themselves or each other, and listings that overlap, are told once.
#[test]
fn a_folder_is_in_one_place_only() {
    if !can_mount() || !have("mksquashfs") {
        return println!("left out: no mounts here, or no mksquashfs");
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir -p tree/aaaa/bbbb/cccc tree/dddd; seq 9 > tree/aaaa/bbbb/cccc/file; mksquashfs tree a.squashfs -noI -noD -noF -quiet -no-progress");
    let whole = fs::read(scratch.path("a.squashfs")).unwrap();
    let number = |at: usize| u64::from_le_bytes(whole[at..at + 8].try_into().unwrap()) as usize;
    // In each listing a folder's entry is: byte of its inode, number, kind, length, name.
    let entry = |name: &[u8]| {
        let from = number(72);
        from + whole[from..].windows(name.len()).position(|found| found == name).unwrap() - 8
    };
    let inode_of = |name: &[u8]| whole[entry(name)..entry(name) + 2].to_vec();
    for (name, other) in [(b"cccc", b"aaaa"), (b"bbbb", b"dddd"), (b"cccc", b"bbbb")] {
        let mut image = whole.clone();
        image[entry(name)..entry(name) + 2].copy_from_slice(&inode_of(other));
        fs::write(scratch.path("loop.squashfs"), image).unwrap();
        let mounted = Mounted::any(&scratch, scratch.path("loop.squashfs"), &[]);
        assert!(mounted.ran.err.contains("already"), "{}", mounted.ran.err);
        assert!(
            scratch
                .shell(&format!("find '{}' | head -n 1000 | wc -l", mounted.at.display()))
                .trim()
                .parse::<u32>()
                .unwrap()
                < 8
        );
        mounted.unmount();
    }
    // Two folders with one listing.
    let listing = |name: &[u8]| {
        let inode = number(64) + 2 + usize::from(u16::from_le_bytes(inode_of(name).try_into().unwrap()));
        inode + 16..inode + 28
    };
    let mut image = whole.clone();
    image[listing(b"dddd")].copy_from_slice(&whole[listing(b"aaaa")]);
    fs::write(scratch.path("twice.squashfs"), image).unwrap();
    let mounted = Mounted::any(&scratch, scratch.path("twice.squashfs"), &[]);
    assert!(mounted.ran.err.contains("overlaps") || mounted.ran.err.contains("already"), "{}", mounted.ran.err);
    mounted.unmount();
}
