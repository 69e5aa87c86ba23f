//! Images of disks, as `qemu-img` and `img2simg` make them, mounted with tarnfs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::os::unix::fs::FileExt;

use crate::support::{Mounted, Scratch, can_mount, have, run};

const TOOLS: [&str; 7] = ["qemu-img", "img2simg", "sfdisk", "mkfs.vfat", "mcopy", "mkfs.ext4", "mksquashfs"];

/// A name, and how it is made of the file `raw`.
const KINDS: &[(&str, &str)] = &[
    ("three.qcow2", "qemu-img convert -O qcow2"),
    ("two.qcow2", "qemu-img convert -O qcow2 -o compat=0.10"),
    ("small.qcow2", "qemu-img convert -O qcow2 -o cluster_size=512"),
    ("large.qcow2", "qemu-img convert -O qcow2 -o cluster_size=2M"),
    ("zlib.qcow2", "qemu-img convert -c -O qcow2"),
    ("zlib-small.qcow2", "qemu-img convert -c -O qcow2 -o cluster_size=4k"),
    ("zstd.qcow2", "qemu-img convert -c -O qcow2 -o compression_type=zstd"),
    ("long.qcow2", "qemu-img convert -O qcow2 -o extended_l2=on,cluster_size=128k"),
    ("full.qcow2", "qemu-img convert -S 0 -O qcow2 -o preallocation=metadata"),
    ("sparse.vmdk", "qemu-img convert -O vmdk -o subformat=monolithicSparse"),
    ("stream.vmdk", "qemu-img convert -O vmdk -o subformat=streamOptimized"),
    ("dynamic.vhd", "qemu-img convert -O vpc -o force_size=on"),
    ("fixed.vhd", "qemu-img convert -O vpc -o subformat=fixed,force_size=on"),
    ("dynamic.vhdx", "qemu-img convert -O vhdx -o block_size=1M"),
    ("fixed.vhdx", "qemu-img convert -O vhdx -o subformat=fixed"),
    ("android.simg", "img2simg"),
];

/// A tree, and a disk `raw` with it in an ext4, a FAT and a squashfs: a partition each.
fn make_disk(scratch: &Scratch) {
    scratch.shell(
        r"mkdir -p tree/folder; seq 100000 > tree/numbers; echo x > tree/folder/x; head -c 3000000 /dev/urandom > tree/folder/noise
        truncate -s 1M tree/holes; printf end >> tree/holes; : > tree/empty
        truncate -s 8M fat; mkfs.vfat fat > made; mcopy -s -i fat tree/* ::/
        mkfs.ext4 -q -F -d tree ext 16M; mksquashfs tree squash -quiet -no-progress -b 32k
        truncate -s 40M raw; printf 'label: gpt\nstart=2048,size=16384\nstart=18432,size=32768\nstart=51200,size=16384\n' | sfdisk -q raw
        dd if=fat of=raw bs=512 seek=2048 conv=notrunc,sparse status=none
        dd if=ext of=raw bs=512 seek=18432 conv=notrunc,sparse status=none; dd if=squash of=raw bs=512 seek=51200 conv=notrunc status=none",
    );
}

/// > Of an image of a disk (qcow2, VMDK, VHD, VHDX, Android's sparse images), a mount shows what is on the disk.
#[test]
fn what_is_on_the_disk_is_shown() {
    if !can_mount() || !TOOLS.into_iter().all(have) {
        return println!("left out: no mounts here, or nothing that makes disks");
    }
    let scratch = Scratch::new();
    make_disk(&scratch);
    for (name, make) in KINDS {
        scratch.shell(&format!("{make} raw {name}"));
        let mounted = Mounted::new(&scratch, scratch.path(name), &[]);
        assert_eq!(mounted.ran.err, "", "{name}");
        let mount = mounted.path("");
        scratch.shell(&format!("for part in 1 2 3; do diff -r -x lost+found {}/$part tree; done", mount.display()));
        mounted.unmount();
        scratch.shell(&format!("rm {name}"));
    }
    assert!(!scratch.shell("ls").contains("sqlite"), "an image needs no index");
}

/// A disk on which nothing is known is a file, with its holes; one with a file system on all of it shows that.
#[test]
fn a_disk_without_a_file_system_is_a_file() {
    if !can_mount() || !TOOLS.into_iter().all(have) {
        return println!("left out: no mounts here, or nothing that makes disks");
    }
    let scratch = Scratch::new();
    make_disk(&scratch);
    scratch.shell(
        "mv raw disk; seq 300000 > raw; truncate -s 6M raw; cat tree/folder/noise tree/folder/noise >> raw
        head -c 500000 /dev/zero | tr '\\0' 'ab' >> raw; truncate -s 16M raw",
    );
    for (name, make) in KINDS {
        scratch.shell(&format!("{make} raw {name}"));
        let mounted = Mounted::new(&scratch, scratch.path(name), &[]);
        assert_eq!(mounted.ran.err, "", "{name}");
        scratch.shell(&format!("cmp raw {}", mounted.path("disk.img").display()));
        mounted.unmount();
        scratch.shell(&format!("rm {name}; {make} ext {name}"));
        let read = run(&scratch, ["cat".as_ref(), scratch.path(name).as_os_str(), "folder/x".as_ref()]);
        assert_eq!(read.ok().text(), "x\n", "{name}");
    }
}

/// What needs other files, or a key, is refused with a word that says so.
#[test]
fn what_needs_something_else_is_refused() {
    if !TOOLS.into_iter().all(have) {
        return println!("left out: nothing that makes disks");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "seq 300000 > raw; truncate -s 8M raw; qemu-img convert -O qcow2 raw base.qcow2
        qemu-img create -q -f qcow2 -b base.qcow2 -F qcow2 over.qcow2
        for n in 1 2 3 4 5; do # It measures the processor, which fails on a busy machine.
            qemu-img create -q -f qcow2 --object secret,id=s,data=word -o encrypt.format=luks,encrypt.key-secret=s locked.qcow2 4M && break
        done
        qemu-img create -q -f qcow2 -o data_file=other.raw outside.qcow2 4M
        qemu-img convert -O vmdk -o subformat=monolithicFlat raw flat.vmdk
        qemu-img convert -O vmdk -o subformat=twoGbMaxExtentSparse raw parts.vmdk
        qemu-img convert -O vmdk raw base.vmdk; qemu-img create -q -f vmdk -b base.vmdk -F vmdk child.vmdk
        qemu-img convert -O vhdx raw open.vhdx; qemu-img convert -O qcow2 raw shot.qcow2; qemu-img snapshot -c one shot.qcow2",
    );
    for (name, why) in [
        ("over.qcow2", "base.qcow2, its backing file"),
        ("locked.qcow2", "is encrypted"),
        ("outside.qcow2", "its data lie in another file"),
        ("flat.vmdk", "flat-flat.vmdk"),
        ("parts.vmdk", "parts-s001.vmdk"),
        ("child.vmdk", "base.vmdk, its parent"),
    ] {
        let listed = run(&scratch, ["ls".as_ref(), scratch.path(name).as_os_str()]);
        assert!(listed.code != 0 && listed.err.contains(why), "{name}: {}", listed.err);
    }
    // In another archive each stays a file. That is no damage.
    scratch.shell("tar cf all.tar over.qcow2 locked.qcow2 outside.qcow2 flat.vmdk parts.vmdk child.vmdk");
    let all = scratch.path("all.tar");
    let checked = run(&scratch, ["check", "-r", all.to_str().unwrap()]);
    assert_eq!(checked.code, 0, "{}", checked.err);
    let files = run(&scratch, ["find", "-r", all.to_str().unwrap(), "-type", "f"]).ok();
    assert_eq!(files.text().lines().count(), 6, "{}", files.text());
    let shot = scratch.path("shot.qcow2");
    let listed = run(&scratch, ["ls", shot.to_str().unwrap()]).ok();
    assert_eq!(listed.text(), "disk.img\n");
    let converted = run(&scratch, ["convert", shot.to_str().unwrap(), scratch.path("shot.tar").to_str().unwrap()]);
    assert!(converted.err.contains("1 snapshot"), "{}", converted.err);
}

/// A cut or damaged image shows what is there, and says what is not.
#[test]
fn what_is_cut_is_told() {
    if !TOOLS.into_iter().all(have) {
        return println!("left out: nothing that makes disks");
    }
    let scratch = Scratch::new();
    make_disk(&scratch);
    for (name, make) in KINDS {
        scratch.shell(&format!("{make} raw {name}"));
        let path = scratch.path(name);
        let length = fs::metadata(&path).unwrap().len();
        let file = fs::File::options().write(true).open(&path).unwrap();
        for cut in [length - 600, length * 3 / 4, length / 2, length / 3, length / 10, 100_000, 500] {
            file.set_len(cut.min(length)).unwrap();
            for words in [&["ls", "-R"][..], &["cat"]] {
                let mut words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
                words.push(path.to_str().unwrap().to_owned());
                words.extend((words[0] == "cat").then(|| "2/folder/x".to_owned()));
                let ran = run(&scratch, words);
                assert!(!ran.err.contains("panicked"), "{name}: {cut}: {}", ran.err);
                assert!(ran.code != 0 || !ran.out.is_empty(), "{name}: {cut}");
            }
        }
        fs::remove_file(&path).unwrap();
    }
    // The checksum of a footer that is wrong; its copy at the start is right.
    scratch.shell("qemu-img convert -O vpc raw a.vhd");
    let path = scratch.path("a.vhd");
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[9; 8], fs::metadata(&path).unwrap().len() - 100).unwrap();
    let listed = run(&scratch, ["ls", path.to_str().unwrap()]);
    assert!(listed.text().contains('2') && listed.err.contains("its copy is read"), "{}", listed.err);
}

/// With -r, disk images lie in archives and in each other.
#[test]
fn disk_images_lie_in_archives_and_in_themselves() {
    if !TOOLS.into_iter().chain(["zip"]).all(have) {
        return println!("left out: nothing that makes disks");
    }
    let scratch = Scratch::new();
    make_disk(&scratch);
    scratch.shell(
        "qemu-img convert -c -O qcow2 raw a.qcow2; qemu-img convert -O vmdk -o subformat=streamOptimized raw a.vmdk
        qemu-img convert -O vhdx raw a.vhdx; img2simg raw a.simg; qemu-img convert -O vpc raw a.vhd
        tar -cf t.tar a.qcow2 a.vmdk a.vhdx a.simg a.vhd; zip -q t.zip a.qcow2 a.vhd; gzip -k a.simg
        mkdir in; cp a.qcow2 a.simg in; mkfs.ext4 -q -F -d in outer 64M; qemu-img convert -O qcow2 outer outer.qcow2",
    );
    let numbers = fs::read(scratch.path("tree/numbers")).unwrap();
    for (archive, name) in [
        ("t.tar", "a.qcow2/2/numbers"),
        ("t.tar", "a.vmdk/3/numbers"),
        ("t.tar", "a.vhdx/1/numbers"),
        ("t.tar", "a.simg/2/numbers"),
        ("t.tar", "a.vhd/3/numbers"),
        ("t.zip", "a.qcow2/3/numbers"),
        ("t.zip", "a.vhd/2/numbers"),
        ("a.simg.gz", "2/numbers"),
        ("outer.qcow2", "a.qcow2/2/numbers"),
        ("outer.qcow2", "a.simg/3/numbers"),
    ] {
        let path = scratch.path(archive);
        let read = run(&scratch, ["cat", "-r", path.to_str().unwrap(), name]);
        assert!(read.out == numbers, "{archive}: {name}: {}", read.err);
    }
}
