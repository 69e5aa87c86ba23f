//! Disks with partitions, as `sfdisk` makes them, mounted with tarnfs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::os::unix::fs::FileExt;

use crate::support::{Mounted, Scratch, can_mount, have, run};

/// Bytes of a sector.
const SECTOR: u64 = 512;

/// Images of file systems, and a disk whose partitions they are: where each begins, in sectors.
fn make_disk(scratch: &Scratch, table: &str, parts: &[(&str, u64)]) {
    scratch.shell(
        r"if [ ! -e fat ]; then
            mkdir -p tree/folder; seq 1000 > tree/numbers; echo x > tree/folder/x; ln tree/numbers tree/hard
            truncate -s 4M fat; mkfs.vfat fat > made; mcopy -s -i fat tree/* ::/
            mkfs.ext4 -q -F -d tree ext 16M; mkfs.ext4 -q -F -O ^has_journal -d tree small 2M; truncate -s 8M exfat; mkfs.exfat exfat > made
            mksquashfs tree squash -quiet -no-progress; seq 50000 > text
        fi",
    );
    fs::write(scratch.path("table"), table).unwrap();
    scratch.shell("rm -f disk.img; truncate -s 64M disk.img; sfdisk -q disk.img < table");
    for (file, at) in parts {
        scratch.shell(&format!("dd if={file} of=disk.img bs=512 seek={at} conv=notrunc status=none"));
    }
}

const DOS: &str = "label: dos\nstart=2048,size=8192,type=c\nstart=10240,size=32768,type=83\nstart=43008,size=2048,type=82\n\
    start=47104,size=40960,type=5\nstart=49152,size=16384,type=7\nstart=67584,size=4096,type=83\nstart=73728,size=4096,type=83\n";
const GPT: &str = "label: gpt\ndisk.img1 : start=2048,size=8192,type=U\ndisk.img2 : start=10240,size=32768,type=L\ndisk.img7 : start=43008,size=2048,type=S\n\
    disk.img8 : start=49152,size=16384\ndisk.img9 : start=67584,size=4096\ndisk.img12 : start=73728,size=4096\n";
const PARTS: &[(&str, u64)] =
    &[("fat", 2048), ("ext", 10240), ("text", 43008), ("exfat", 49152), ("small", 67584), ("squash", 73728)];

/// > Of a disk with partitions, a mount shows a folder for each, with what its file system shows, or a file if that is
/// > not known.
#[test]
fn each_partition_is_a_folder() {
    let tools = ["sfdisk", "mkfs.vfat", "mcopy", "mkfs.ext4", "mkfs.exfat", "mksquashfs"];
    if !can_mount() || !tools.into_iter().all(have) {
        return println!("left out: no mounts here, or nothing that makes disks");
    }
    let scratch = Scratch::new();
    for (table, numbers) in [(DOS, [1, 2, 3, 5, 6, 7]), (GPT, [1, 2, 7, 8, 9, 12])] {
        make_disk(&scratch, table, PARTS);
        let mounted = Mounted::new(&scratch, scratch.path("disk.img"), &[]);
        assert_eq!(mounted.ran.err, "", "{table}");
        let mut names: Vec<_> = fs::read_dir(mounted.path(""))
            .unwrap()
            .map(|one| one.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_by_key(|name| name.trim_end_matches(".img").parse::<u32>().unwrap());
        let unknown = format!("{}.img", numbers[2]);
        let expected: Vec<_> = numbers.iter().map(ToString::to_string).collect();
        assert_eq!(names.iter().map(|name| name.trim_end_matches(".img")).collect::<Vec<_>>(), expected);
        assert!(names.contains(&unknown), "{names:?}");
        let content = fs::read(scratch.path("tree/numbers")).unwrap();
        for (place, name) in numbers.iter().enumerate().filter(|(place, _)| !matches!(place, 2 | 3)) {
            assert!(fs::read(mounted.path(format!("{name}/numbers"))).unwrap() == content, "{place}");
            assert_eq!(fs::read_to_string(mounted.path(format!("{name}/folder/x"))).unwrap(), "x\n");
            assert!(fs::read(mounted.path(format!("{name}/hard"))).unwrap() == content, "{place}");
        }
        assert_eq!(fs::read_dir(mounted.path(numbers[3].to_string())).unwrap().count(), 0);
        let text = fs::read(mounted.path(&unknown)).unwrap();
        assert_eq!(text.len(), 2048 * 512);
        assert!(text.starts_with(&fs::read(scratch.path("text")).unwrap()), "{table}");
        mounted.unmount();
        // A FAT keeps neither modes, owners nor hard links, and times in twos of seconds.
        if table == DOS {
            let (disk, to) = (scratch.path("disk.img"), scratch.path("to"));
            run(&scratch, ["extract", "-C", to.to_str().unwrap(), disk.to_str().unwrap()]).ok();
            scratch.shell("chmod 600 to/1/numbers; touch -d '+1 second' -r to/1/numbers to/1/numbers");
            let ran = run(&scratch, ["compare", disk.to_str().unwrap(), to.to_str().unwrap()]);
            assert!(!ran.text().contains("1/"), "{}", ran.text());
            // What another partition keeps is told.
            scratch.shell(
                "chmod 4711 to/2/numbers; chown 12 to/6/folder; touch -d '+1 second' -r to/2/folder/x to/2/folder/x",
            );
            let ran = run(&scratch, ["compare", disk.to_str().unwrap(), to.to_str().unwrap()]);
            // The link that is met first stands for both.
            for name in ["Mode differs: 0644 -> 4711", "2/folder/x", "6/folder"] {
                assert!(ran.text().contains(name), "{name}: {}", ran.text());
            }
            assert!(!ran.text().contains("1/"), "{}", ran.text());
        }
    }
    assert!(!scratch.shell("ls").contains("sqlite"), "an image needs no index");
}

/// Of a damaged GUID table its copy is read; what is damaged in a partition is told with its number.
#[test]
fn a_copy_of_the_table_is_read() {
    let tools = ["sfdisk", "mkfs.vfat", "mcopy", "mkfs.ext4", "mkfs.exfat", "mksquashfs"];
    if !tools.into_iter().all(have) {
        return println!("left out: nothing that makes disks");
    }
    let scratch = Scratch::new();
    make_disk(&scratch, GPT, PARTS);
    let path = scratch.path("disk.img");
    let disk = fs::File::options().write(true).open(&path).unwrap();
    disk.write_all_at(&[0; 512], SECTOR).unwrap();
    let listed = run(&scratch, ["ls", path.to_str().unwrap()]);
    assert!(
        listed.err.contains("its copy at the end of the disk is read") && listed.text().contains("12"),
        "{}",
        listed.err
    );
    // The superblock of the second one.
    disk.write_all_at(&[0xff; 300], 10240 * SECTOR + 1024 + 96).unwrap();
    let listed = run(&scratch, ["ls", path.to_str().unwrap()]);
    assert!(listed.err.contains("partition 2: the superblock is damaged; its copy"), "{}", listed.err);
}

/// A cut disk shows what is there, and an image of a CD that can be copied to a stick stays one of a CD.
#[test]
fn what_is_cut_is_told_and_a_cd_is_none() {
    let tools = ["sfdisk", "mkfs.vfat", "mcopy", "mkfs.ext4", "mkfs.exfat", "mksquashfs", "xorriso"];
    if !tools.into_iter().all(have) {
        return println!("left out: nothing that makes disks");
    }
    let scratch = Scratch::new();
    make_disk(&scratch, DOS, PARTS);
    scratch
        .shell("truncate -s 24M disk.img; xorriso -as mkisofs -quiet -partition_offset 16 -o cd.iso tree 2>/dev/null");
    let path = scratch.path("disk.img");
    let listed = run(&scratch, ["ls", path.to_str().unwrap()]);
    assert!(!listed.err.contains("panicked") && listed.text().contains('2'), "{}", listed.err);
    let read = run(&scratch, ["cat", path.to_str().unwrap(), "1/folder/x"]);
    assert_eq!(read.text(), "x\n", "{}", read.err);
    let cd = scratch.path("cd.iso");
    assert_eq!(run(&scratch, ["cat", cd.to_str().unwrap(), "folder/x"]).ok().text(), "x\n");
}

/// With -r, disks lie in archives, and archives in their partitions.
#[test]
fn disks_lie_in_archives_and_archives_in_disks() {
    let tools = ["sfdisk", "mkfs.vfat", "mcopy", "mkfs.ext4", "mkfs.exfat", "mksquashfs"];
    if !tools.into_iter().all(have) {
        return println!("left out: nothing that makes disks");
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir -p tree/folder; seq 1000 > tree/numbers; tar -C tree -czf a.tar.gz numbers; mv a.tar.gz tree");
    make_disk(&scratch, DOS, PARTS);
    scratch.shell("gzip -k disk.img; tar -cf t.tar disk.img");
    let numbers = fs::read(scratch.path("tree/numbers")).unwrap();
    for (archive, name) in [
        ("disk.img", "2/a.tar.gz/numbers"),
        ("disk.img.gz", "1/numbers"),
        ("t.tar", "disk.img/2/numbers"),
        ("t.tar", "disk.img/6/a.tar.gz/numbers"),
    ] {
        let path = scratch.path(archive);
        let read = run(&scratch, ["cat", "-r", path.to_str().unwrap(), name]);
        assert!(read.out == numbers, "{archive}: {name}: {}", read.err);
    }
}
