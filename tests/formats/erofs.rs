//! Images of EROFS, as `mkfs.erofs` makes them, mounted with tarnfs and by the kernel itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::os::unix::fs::FileExt;

use crate::support::{Compare, Mounted, Scratch, assert_serves_what_is_whole, can_mount, have, is_root, run, survey};

/// Options of `mkfs.erofs`.
const KINDS: &[&str] = &[
    "",
    "-T1700000000",
    "-Elegacy-compress -zlz4",
    "-zlz4",
    "-zlz4hc,12",
    "-zlz4hc -C65536",
    "-zlz4 -C1048576",
    "-zlz4hc -C16384 -Eztailpacking",
    "-Eztailpacking -zlz4",
    "-Eforce-inode-compact",
    "-Eforce-inode-extended -zlz4",
    "-Enoinline_data",
    "-Eforce-chunk-indexes --chunksize=65536",
    "-Eforce-inode-blockmap --chunksize=4096",
    "-zlz4 --max-extent-bytes=65536",
    "-x1",
];

/// A tree with what a file system may have.
fn make_tree(scratch: &Scratch) {
    scratch.shell(
        r"mkdir -p tree/folder/deep tree/many; cd tree; seq 100000 > numbers; head -c 1500000 /dev/urandom > noise; cp noise folder/mixed; seq 50000 >> folder/mixed
        cat noise >> folder/mixed; head -c 3000000 /dev/zero > zeros; truncate -s 5M holes; printf end >> holes; : > empty; printf x > x
        for n in 1 4095 4096 4097 8192 12000; do head -c $n numbers > of-$n; head -c $n noise > noise-$n; done
        for i in $(seq 700); do echo $i > many/a-file-with-a-name-$i; done; ln numbers hard; ln numbers folder/hard; ln -s ../numbers folder/link
        ln -s $(printf 'x%.0s' $(seq 300)) long; mkfifo fifo; chmod 4755 x; chmod 700 folder; touch -d '2001-02-03 04:05:06.789' noise folder
        setfattr -n user.name -v value x; setfattr -n user.name -v value empty; setfattr -n user.name -v value of-1; setfattr -n user.long -v $(printf 'y%.0s' $(seq 600)) folder
        if [ $(id -u) = 0 ]; then mknod device c 5 1; mknod block b 259 70000; chown 1234:70000 numbers; setfattr -n trusted.t -v 1 noise; fi
        setfacl -m u:12:rw numbers; setfacl -d -m g:13:rx folder",
    );
}

/// > Of an EROFS image, whatever packed it, a mount shows what the kernel's own would.
#[test]
fn an_image_is_what_the_kernel_makes_of_it() {
    if !can_mount() || !is_root() || !["mkfs.erofs", "setfattr", "setfacl"].into_iter().all(have) {
        return println!("left out: no mounts here, or nothing that makes EROFS");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    let mut read = 0;
    for options in KINDS {
        let image = scratch.path("image.erofs");
        let made = scratch.shell(&format!(
            "rm -f image.erofs; mkfs.erofs {options} image.erofs tree > made 2>&1 && echo made || tail -1 made"
        ));
        if !made.contains("made") {
            println!("left out: mkfs.erofs {options}: {made}");
            continue;
        }
        let mounted = Mounted::new(&scratch, &image, &[]);
        assert_eq!(mounted.ran.err, "", "{options}");
        let kernel = scratch.folder("kernel");
        let by_kernel = scratch.shell("mount -t erofs -o ro,loop image.erofs kernel 2> why && echo mounted || cat why");
        let twin = if by_kernel.contains("mounted") { kernel } else { scratch.path("tree") };
        let seen = [&twin, &mounted.path("")].map(|root| survey(root, Compare::default()));
        let names = scratch.shell(&format!(
            "for root in {} {}; do (cd $root; getfattr -R -h -d -m - . | sort | md5sum; getfacl -R . 2> /dev/null | md5sum); done | sort -u | wc -l",
            twin.display(),
            mounted.path("").display()
        ));
        if by_kernel.contains("mounted") {
            scratch.unmount("kernel");
            assert_eq!(names.trim(), "2", "{options}: attributes");
            for (path, one) in &seen[0] {
                assert_eq!(seen[1].get(path), Some(one), "{options}: {}", path.display());
            }
            assert_eq!(seen[0].len(), seen[1].len(), "{options}");
        } else {
            println!("the kernel does not mount it ({options}): {by_kernel}");
            scratch.shell(&format!(
                "diff -r --no-dereference -x fifo -x device -x block tree {}",
                mounted.path("").display()
            ));
        }
        read += 1;
        mounted.unmount();
    }
    assert!(read > 8, "{read}");
    assert!(!scratch.shell("ls").contains("sqlite"), "an image needs no index");
}

/// Of an image that is cut, what is there is served, and what is damaged is told.
#[test]
fn what_is_whole_is_served() {
    if !["mkfs.erofs", "setfattr", "setfacl"].into_iter().all(have) {
        return println!("left out: nothing that makes EROFS");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell("mkfs.erofs -zlz4 a.erofs tree > made 2>&1; rm -r tree/noise* tree/folder/mixed tree/zeros; mkfs.erofs b.erofs tree > made 2>&1");
    assert_serves_what_is_whole(&scratch, "a.erofs", ("numbers", "tree/numbers"));
    assert_serves_what_is_whole(&scratch, "b.erofs", ("numbers", "tree/numbers"));
    let path = scratch.path("a.erofs");
    fs::File::options().write(true).open(&path).unwrap().write_all_at(b"another uuid", 1024 + 48).unwrap();
    let listed = run(&scratch, ["ls", path.to_str().unwrap()]);
    assert!(
        listed.text().contains("numbers") && listed.err.contains("the checksum of the superblock is wrong"),
        "{}",
        listed.err
    );
}

/// What lies on another device is told with its name.
#[test]
fn another_device_is_told_by_name() {
    if !have("mkfs.erofs") {
        return println!("left out: nothing that makes EROFS");
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; seq 50000 > tree/numbers; : > tree/empty");
    let made = scratch
        .shell("mkfs.erofs --blobdev=blob.bin --chunksize=4096 a.erofs tree > made 2>&1 && echo made || tail -1 made");
    if !made.contains("made") {
        return println!("left out: {made}");
    }
    let path = scratch.path("a.erofs");
    let listed = run(&scratch, ["ls", path.to_str().unwrap()]);
    assert!(listed.text().contains("numbers") && listed.err.contains("another device"), "{}", listed.err);
    assert_ne!(run(&scratch, ["cat", path.to_str().unwrap(), "numbers"]).code, 0);
}

/// With -r, images lie in archives, disks and themselves.
#[test]
fn images_lie_in_archives_and_in_themselves() {
    if !["mkfs.erofs", "zip", "img2simg", "qemu-img", "sfdisk"].into_iter().all(have) {
        return println!("left out: nothing that makes EROFS, or disks");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree in; seq 100000 > tree/numbers; mkfs.erofs -zlz4 a.erofs tree > made 2>&1; cp a.erofs in; tar -C tree -czf in/t.tar.gz numbers
        mkfs.erofs -zlz4hc outer.erofs in > made 2>&1; tar -cf t.tar a.erofs; zip -q t.zip a.erofs; gzip -k a.erofs; img2simg a.erofs a.simg
        truncate -s 16M disk; printf 'start=2048,size=16384,type=83\n' | sfdisk -q disk; dd if=outer.erofs of=disk bs=512 seek=2048 conv=notrunc status=none
        qemu-img convert -c -O qcow2 -o cluster_size=4k disk a.qcow2",
    );
    let numbers = fs::read(scratch.path("tree/numbers")).unwrap();
    for (archive, name) in [
        ("t.tar", "a.erofs/numbers"),
        ("t.zip", "a.erofs/numbers"),
        ("a.erofs.gz", "numbers"),
        ("a.simg", "numbers"),
        ("outer.erofs", "a.erofs/numbers"),
        ("outer.erofs", "t.tar.gz/numbers"),
        ("disk", "1/a.erofs/numbers"),
        ("a.qcow2", "1/a.erofs/numbers"),
        ("a.qcow2", "1/t.tar.gz/numbers"),
    ] {
        let path = scratch.path(archive);
        let read = run(&scratch, ["cat", "-r", path.to_str().unwrap(), name]);
        assert!(read.out == numbers, "{archive}: {name}: {}", read.err);
    }
}

/// MicroLZMA, deflate, zstd, fragments, shared data, rotated blocks and long starts of names, as the kernel reads them.
#[test]
fn what_newer_tools_write_is_read() {
    if !can_mount() || !is_root() || !["python3", "zstd", "getfattr"].into_iter().all(have) {
        return println!("left out: no mounts here, or nothing that makes the image");
    }
    let scratch = Scratch::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/support/erofs.py");
    scratch.shell(&format!("python3 {script} image.erofs files"));
    let mounted = Mounted::new(&scratch, scratch.path("image.erofs"), &[]);
    assert_eq!(mounted.ran.err, "");
    let mount = mounted.path("").display().to_string();
    scratch.shell(&format!("diff -r files {mount}; tail -c 3000 {mount}/zstd | cmp - <(tail -c 3000 files/zstd)"));
    scratch.folder("kernel");
    let by_kernel = scratch.shell("mount -t erofs -o ro,loop image.erofs kernel 2> why && echo mounted || cat why");
    if by_kernel.contains("mounted") {
        let names = format!(
            "for root in kernel {mount}; do (cd $root; diff -r ../files . >&2; getfattr -d -m - named; stat -c '%n %a %u %g %Y %h' *); done"
        );
        let names = scratch.shell(&names);
        scratch.unmount("kernel");
        let lines: Vec<_> = names.lines().collect();
        let (kernel, own) = lines.split_at(lines.len() / 2);
        assert_eq!(kernel, own);
        assert!(names.contains("user.a.long.start.name=\"value\""), "{names}");
    } else {
        println!("the kernel does not mount it: {by_kernel}");
    }
    mounted.unmount();
}
