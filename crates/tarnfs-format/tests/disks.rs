//! Images of file systems and disks that no program writes: what is wrong in them is told, and costs no more than what
//! is right.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use tarnfs_format::{Entry, Event, FORMATS, Format, Options, Probe, Reader, detect};
use tarnfs_source::{MemorySource, SharedSource, Source};

/// Longer than any pass over such an image takes, even on a busy machine.
const LONGEST: Duration = Duration::from_secs(20);

/// What is told of an image: entries, and what is damaged.
fn told(format: &dyn Format, image: &[u8]) -> (Vec<Entry>, Vec<String>) {
    let source: SharedSource = Arc::new(MemorySource::new(image, "image"));
    told_of(format, &source)
}

fn told_of(format: &dyn Format, source: &SharedSource) -> (Vec<Entry>, Vec<String>) {
    let Reader::Random(reader) = format.reader() else { panic!("{} is read forwards", format.name()) };
    let (mut entries, mut damage) = (Vec::new(), Vec::new());
    let read = reader.read(source, &Options::default(), &mut |event| {
        match event {
            Event::Entry(entry) => entries.push(*entry),
            Event::Damage(told) => damage.push(told.what),
            _ => {}
        }
        Ok(())
    });
    damage.extend(read.err().map(|error| error.to_string()));
    (entries, damage)
}

fn named(name: &str) -> &'static dyn Format {
    FORMATS.iter().copied().find(|format| format.name() == name).unwrap()
}

fn paths(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned()).collect()
}

/// What was decoded, of which some is damaged.
#[derive(Debug)]
struct Damaged {
    bytes: Vec<u8>,
    range: Range<u64>,
    depth: usize,
}

impl Source for Damaged {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = self.bytes.get(offset as usize..).unwrap_or_default();
        let read = rest.len().min(buffer.len());
        if offset < self.range.end && self.range.start < offset + read as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is damaged"));
        }
        buffer[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn describe(&self) -> String {
        "damaged".to_owned()
    }

    fn depth(&self) -> usize {
        self.depth
    }
}

fn found(image: &[u8]) -> Option<&'static str> {
    let source = MemorySource::new(image, "image");
    detect(&Probe::new(&image[..image.len().min(64 << 10)], &source)).map(Format::name)
}

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

/// A file system of ext2 in blocks of 1024 bytes, one group of 4096 of them and 1024 inodes of 128 bytes.
fn ext() -> Vec<u8> {
    let mut image = vec![0; 4 << 20];
    for (at, number) in
        [(0, 1024_u32), (4, 4096), (20, 1), (32, 8192), (36, 8192), (40, 1024), (76, 1), (84, 11), (96, 2)]
    {
        put(&mut image, 1024 + at, &number.to_le_bytes());
    }
    put(&mut image, 1024 + 56, &[0x53, 0xef]);
    put(&mut image, 1024 + 88, &128_u16.to_le_bytes());
    // The table of inodes begins in block 10.
    put(&mut image, 2048 + 8, &10_u32.to_le_bytes());
    image
}

/// Puts an inode there: mode, size, links, and the numbers of its blocks.
fn inode(image: &mut [u8], number: usize, (mode, size, links): (u16, u32, u16), blocks: &[u32]) {
    let at = 10 * 1024 + (number - 1) * 128;
    put(image, at, &mode.to_le_bytes());
    put(image, at + 4, &size.to_le_bytes());
    put(image, at + 26, &links.to_le_bytes());
    for (index, block) in blocks.iter().enumerate() {
        put(image, at + 40 + index * 4, &block.to_le_bytes());
    }
}

/// Puts a listing into a block, of so many bytes.
fn list(image: &mut [u8], block: usize, names: &[(u32, &str)]) {
    let mut at = block * 1024;
    for (index, (number, name)) in names.iter().enumerate() {
        let is_last = index + 1 == names.len();
        let length = if is_last { (block + 1) * 1024 - at } else { (8 + name.len()).next_multiple_of(4) };
        put(image, at, &number.to_le_bytes());
        put(image, at + 4, &(length as u16).to_le_bytes());
        put(image, at + 6, &[name.len() as u8, 0]);
        put(image, at + 8, name.as_bytes());
        at += length;
    }
}

const FOLDER: u16 = 0o40755;
const FILE: u16 = 0o100_644;

#[test]
fn a_file_system_made_by_hand_is_one() {
    let mut image = ext();
    inode(&mut image, 2, (FOLDER, 1024, 2), &[200]);
    inode(&mut image, 11, (FILE, 3000, 1), &[300, 0, 301]);
    inode(&mut image, 12, (FILE, 0, 0), &[]);
    list(
        &mut image,
        200,
        &[(2, "."), (2, ".."), (11, "file"), (12, "deleted"), (8, "journal"), (5000, "none"), (0, "gone")],
    );
    assert_eq!(found(&image), Some("ext"));
    let (entries, damage) = told(named("ext"), &image);
    let paths: Vec<_> = entries.iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned()).collect();
    assert_eq!(paths, [".", "file"]);
    let pieces = entries[1].body.pieces.as_ref().unwrap();
    let places: Vec<_> = pieces.iter().map(|piece| (piece.hole, piece.length, piece.offset / 1024)).collect();
    assert_eq!(places, [(0, 1024, 300), (1024, 952, 301)]);
    assert_eq!(damage.len(), 3, "{damage:?}");
    assert!(
        damage[0].contains("its inode 12 was deleted") && damage[1].contains("inode 8 is none of a file"),
        "{damage:?}"
    );
}

/// The size of a folder may be any number. Behind its last block is a hole, which has to come to an end.
#[test]
fn a_folder_of_the_largest_size_comes_to_an_end() {
    for (high, expected) in [(u32::MAX, 1), (0x8000_0000, 1), (0x7fff_ffff, 0)] {
        let mut image = ext();
        inode(&mut image, 2, (FOLDER, u32::MAX, 2), &[200, 0, 201]);
        put(&mut image, 10 * 1024 + 128 + 108, &high.to_le_bytes());
        inode(&mut image, 11, (FILE, 0, 1), &[]);
        inode(&mut image, 12, (FILE, 0, 1), &[]);
        list(&mut image, 200, &[(2, "."), (2, ".."), (11, "file")]);
        list(&mut image, 201, &[(12, "other")]);
        let (entries, damage) = told(named("ext"), &image);
        assert_eq!(paths(&entries), [".", "file", "other"], "{high:#x}: {damage:?}");
        assert_eq!(damage.len(), expected, "{high:#x}: {damage:?}");
        assert!(damage.iter().all(|what| what.contains("its listing would have")), "{damage:?}");
    }
}

/// Folders that share a listing, in which they all are, are told once each, and a folder in itself not again.
#[test]
fn folders_that_share_a_listing_do_not_multiply() {
    let mut image = ext();
    let names: Vec<_> = (11..75).map(|number| (number, format!("{number}"))).collect();
    let names: Vec<_> = names.iter().map(|(number, name)| (*number, name.as_str())).collect();
    list(&mut image, 200, &names);
    for number in [2].into_iter().chain(11..75) {
        inode(&mut image, number, (FOLDER, 1024, 2), &[200]);
    }
    let started = Instant::now();
    let (entries, damage) = told(named("ext"), &image);
    assert_eq!(entries.len(), 65);
    assert!(damage.iter().any(|what| what.contains("it is another folder, too")), "{damage:?}");
    assert!(started.elapsed() < LONGEST);
}

/// A folder that says that it has all bytes there can be, and has none.
#[test]
fn a_folder_without_an_end_ends() {
    let mut image = ext();
    put(&mut image, 1024 + 96, &0x42_u32.to_le_bytes());
    inode(&mut image, 2, (FOLDER, 1024, 3), &[200]);
    list(&mut image, 200, &[(2, "."), (2, ".."), (11, "sub"), (12, "file")]);
    inode(&mut image, 11, (FOLDER, u32::MAX, 2), &[0x0000_f30a, 4]);
    let at = 10 * 1024 + 10 * 128;
    put(&mut image, at + 32, &0x8_0000_u32.to_le_bytes());
    put(&mut image, at + 108, &[0xff; 4]);
    inode(&mut image, 12, (FILE, 0, 1), &[]);
    let (entries, _) = told(named("ext"), &image);
    assert!(entries.iter().any(|entry| entry.path == b"file"), "{entries:?}");
}

/// A copy of a superblock stands in for the first one, but not where something else is by now, or nothing.
#[test]
fn what_was_there_before_is_no_file_system() {
    let mut image = ext();
    image.resize(10 << 20, 0);
    put(&mut image, 1024, &2048_u32.to_le_bytes());
    put(&mut image, 1024 + 4, &10_000_u32.to_le_bytes());
    put(&mut image, 1024 + 90, &1_u16.to_le_bytes());
    put(&mut image, 1024 + 104, b"a name of 16 byt");
    let copy = image[1024..2048].to_vec();
    put(&mut image, 8193 << 10, &copy);
    put(&mut image, (8194 << 10) + 8, &10_u32.to_le_bytes());
    // Its magic is left, its name, most of it, or only the descriptors of groups behind it.
    let mut damaged = image.clone();
    damaged[1024..2048].fill(0);
    for what in [1080..1082, 1128..1144, 1129..1150, 1024..1024] {
        let mut left = damaged.clone();
        left[what.clone()].copy_from_slice(&image[what.clone()]);
        assert_eq!(found(&left), Some("ext"), "{what:?}");
        put(&mut left, 4086, b"SWAPSPACE2");
        assert_eq!(found(&left), None, "{what:?}");
    }
    // All is wiped.
    let mut wiped = damaged.clone();
    wiped[2048..4096].fill(0);
    assert_ne!(found(&wiped), Some("ext"));
    // EROFS; a swap file that a computer sleeps in, whose pages may have any size; HFS+; NILFS2.
    let swap = [&1_u32.to_le_bytes()[..], &9_u32.to_le_bytes(), &[0; 4], b"another name 16b"].concat();
    for (at, mark) in
        [(1024, &[0xe2, 0xe1, 0xf5, 0xe0, 7, 7, 7, 7][..]), (1024, &swap[..]), (1024, b"H+\0\x04"), (1030, b"44")]
    {
        let mut other = damaged.clone();
        put(&mut other, at, mark);
        assert_eq!(found(&other), None, "{mark:?}");
    }
}

/// A short target lies in the inode, whatever flags that has; old kernels of ext4 have set that of extents.
#[test]
fn a_short_link_may_say_that_it_has_extents() {
    let mut image = ext();
    put(&mut image, 1024 + 96, &0x42_u32.to_le_bytes());
    inode(&mut image, 2, (FOLDER, 1024, 2), &[200]);
    list(&mut image, 200, &[(2, "."), (2, ".."), (11, "link")]);
    inode(&mut image, 11, (0o120_777, 6, 1), &[]);
    let at = 10 * 1024 + 10 * 128;
    put(&mut image, at + 32, &0x8_0000_u32.to_le_bytes());
    put(&mut image, at + 40, b"target");
    let (entries, damage) = told(named("ext"), &image);
    assert_eq!((entries[1].link.clone(), damage), (b"target".to_vec(), Vec::<String>::new()));
}

/// A file system with one file, whose inode is in the same 32 KiB as all others.
fn small() -> Vec<u8> {
    let mut image = ext();
    inode(&mut image, 2, (FOLDER, 1024, 2), &[200]);
    inode(&mut image, 11, (FILE, 0, 1), &[]);
    inode(&mut image, 90, (FILE, 0, 1), &[]);
    list(&mut image, 200, &[(2, "."), (2, ".."), (11, "file"), (90, "other")]);
    image
}

/// A disk whose partitions have these contents of 4 MiB each, from sector 2048 on.
fn disk(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut disk = vec![0; 1 << 20];
    put(&mut disk, 510, &[0x55, 0xaa]);
    for (index, part) in parts.iter().enumerate() {
        let start = (disk.len() / 512) as u32;
        let record = [&[0, 0, 0, 0, 0x83, 0, 0, 0][..], &start.to_le_bytes(), &8192_u32.to_le_bytes()].concat();
        put(&mut disk, 446 + 16 * index, &record);
        disk.extend_from_slice(part);
        disk.resize((5 << 20) + (index << 22), 0);
    }
    disk
}

/// Inodes are read many at once. What is damaged of these costs no other.
#[test]
fn a_damaged_inode_costs_no_other() {
    let at = 10 * 1024 + 10 * 128;
    for (range, expected) in [
        (at..at + 1, &[".", "other"][..]),
        (at - 200..at, &[".", "file", "other"]),
        (at + 2048..at + 3000, &[".", "file", "other"]),
    ] {
        let source: SharedSource = Arc::new(Damaged { bytes: small(), range: range.clone(), depth: 1 });
        let (entries, damage) = told_of(named("ext"), &source);
        assert_eq!(paths(&entries), expected, "{range:?}");
        assert_eq!(damage.len(), 3 - expected.len(), "{damage:?}");
    }
}

/// What is damaged at the head of a partition costs none of those behind it.
#[test]
fn a_damaged_partition_costs_no_other() {
    let disk = disk(&[small(), small(), small()]);
    let start = 5 << 20;
    for (range, second) in [
        (start..start + 2048, &["2.img"][..]),
        (start + 1500..start + 1501, &["2.img"]),
        (start + 30_000..start + 30_010, &["2", "2/file", "2/other"]),
        (start + 10_300..start + 10_400, &["2.img"]),
        (start + 200 * 1024..start + 201 * 1024, &["2"]),
    ] {
        let source: SharedSource = Arc::new(Damaged { bytes: disk.clone(), range: range.clone(), depth: 1 });
        let (entries, damage) = told_of(named("partitions"), &source);
        let whole = |number: u32| ["", "/file", "/other"].map(|name| format!("{number}{name}"));
        let expected: Vec<_> = [".".to_owned()]
            .into_iter()
            .chain(whole(1))
            .chain(second.iter().map(|name| (*name).to_owned()))
            .chain(whole(3))
            .collect();
        assert_eq!(paths(&entries), expected, "{range:?}");
        assert_eq!(damage.is_empty(), second.len() == 3, "{range:?}: {damage:?}");
        assert!(damage.iter().all(|what| what.starts_with("partition 2: ")), "{damage:?}");
    }
}

/// A file system with a feature that is not known may well be whole: it is a file, and no damage.
#[test]
fn a_partition_that_is_not_known_is_a_file_and_not_damaged() {
    let mut other = small();
    put(&mut other, 1024 + 96, &0x8000_0002_u32.to_le_bytes());
    let (entries, damage) = told(named("ext"), &other);
    assert!(entries.is_empty() && damage.iter().all(|what| what.contains("not known (0x80000000)")), "{damage:?}");
    let disk = disk(&[small(), other]);
    let (entries, damage) = told(named("partitions"), &disk);
    assert_eq!(
        (paths(&entries), damage),
        ([".", "1", "1/file", "1/other", "2.img"].map(str::to_owned).to_vec(), vec![])
    );
}

/// Each partition keeps of its files what its file system does.
#[test]
fn each_partition_has_a_format() {
    let disk = disk(&[small(), vec![1; 1 << 20]]);
    let parts = named("partitions").fidelity().parts(&MemorySource::new(disk, "disk")).unwrap().unwrap();
    assert_eq!(parts.len(), 1);
    assert_eq!((parts[0].format.name(), parts[0].tells_of_unix), ("ext", true));
    assert_eq!(parts[0].range, 1 << 20..5 << 20);
    assert!(named("ext").fidelity().parts(&MemorySource::new(small(), "image")).unwrap().is_none());
}

/// A partition of a disk that lies in an image keeps what it does on a disk: its files lie where their headers do.
#[test]
fn each_partition_in_an_image_of_a_disk_has_a_format() {
    let mut bytes = disk(&[small(), vec![1; 1 << 20]]);
    bytes.resize(bytes.len().next_multiple_of(4096), 0);
    let blocks = bytes.len() as u32 / 4096;
    // A sparse image of Android: one chunk that is stored, but for the second half of the first partition.
    let (before, behind) = (3 << 20, 4 << 20);
    let halves = u16::to_le_bytes;
    let chunk = |kind: u16, blocks: u32, content: &[u8]| {
        let head = [&halves(kind)[..], &[0; 2], &blocks.to_le_bytes(), &(12 + content.len() as u32).to_le_bytes()];
        [&head.concat()[..], content].concat()
    };
    let image = [
        [0xed26_ff3a_u32, 1].map(u32::to_le_bytes).concat(),
        [halves(28), halves(12)].concat(),
        [4096, blocks, 3, 0].map(u32::to_le_bytes).concat(),
        chunk(0xcac1, before / 4096, &bytes[..before as usize]),
        chunk(0xcac3, (behind - before) / 4096, &[]),
        chunk(0xcac1, blocks - behind / 4096, &bytes[behind as usize..]),
    ]
    .concat();
    let image = MemorySource::new(image, "image");
    let parts = named("disk-image").fidelity().parts(&image).unwrap().unwrap();
    let ranges: Vec<_> = parts.iter().map(|part| part.range.clone()).collect();
    assert_eq!(ranges, [40 + (1 << 20)..40 + (3 << 20), 64 + (3 << 20)..64 + (4 << 20)]);
    assert!(parts.iter().all(|part| part.format.name() == "ext" && part.tells_of_unix));
    assert!(named("disk-image").fidelity().tells_of_unix(&image).unwrap());
    assert!(named("disk-image").fidelity().parts(&MemorySource::new(small(), "image")).unwrap().is_none());
}

/// A sparse image of Android: one chunk that is stored.
fn sparse(disk: &[u8]) -> Vec<u8> {
    let blocks = disk.len() as u32 / 4096;
    [
        &[0xed26_ff3a_u32, 1].map(u32::to_le_bytes).concat(),
        &[28_u16, 12].map(u16::to_le_bytes).concat(),
        &[4096, blocks, 1, 0].map(u32::to_le_bytes).concat(),
        &[0xcac1_u16, 0].map(u16::to_le_bytes).concat(),
        &[blocks, 12 + disk.len() as u32].map(u32::to_le_bytes).concat(),
        disk,
    ]
    .concat()
}

/// Where the file system of a disk cannot be read for damage, its bytes are there.
#[test]
fn a_disk_whose_file_system_is_damaged_is_a_file() {
    let mut disc = vec![0; 1 << 20];
    put(&mut disc, 32 << 10, b"\x01CD001\x01");
    put(&mut disc, 34 << 10, b"\x02CD001\x01");
    let image = sparse(&disc);
    // Neither of these has a root, and nobody knows what the third one is.
    let third = (image.len() - disc.len() + (36 << 10) + 100) as u64;
    let range = third..third + 1;
    let source: SharedSource = Arc::new(Damaged { bytes: image, range, depth: 0 });
    let (entries, damage) = told_of(named("disk-image"), &source);
    assert_eq!(paths(&entries), [".", "disk.img"]);
    assert_eq!(entries[1].body.size, 1 << 20);
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert!(damage[0].starts_with("on the disk: ") && damage[0].contains("it is damaged"), "{damage:?}");
    // What is not known there is no damage.
    let mut other = small();
    put(&mut other, 1024 + 96, &0x8000_0002_u32.to_le_bytes());
    let (entries, damage) = told(named("disk-image"), &sparse(&other));
    assert_eq!((paths(&entries), damage), ([".", "disk.img"].map(str::to_owned).to_vec(), vec![]));
}

/// A GUID table with one partition of more bytes than a file can have.
#[test]
fn a_partition_without_an_end_is_left_out() {
    let mut image = disk(&[vec![0; 512]]);
    image[450] = 0xee;
    let mut record = vec![1; 32];
    record.extend(2048_u64.to_le_bytes().into_iter().chain((1_u64 << 63).to_le_bytes()));
    record.resize(128, 0);
    put(&mut image, 1024, &record);
    let mut header = b"EFI PART\0\0\x01\0\x5c\0\0\0\0\0\0\0\0\0\0\0\x01".to_vec();
    header.resize(92, 0);
    put(&mut header, 72, &2_u64.to_le_bytes());
    put(&mut header, 80, &[1, 0, 0, 0, 128]);
    put(&mut header, 88, &crc32fast::hash(&record).to_le_bytes());
    let sum = crc32fast::hash(&header);
    put(&mut header, 16, &sum.to_le_bytes());
    put(&mut image, 512, &header);
    assert_eq!(found(&image), Some("partitions"));
    let (entries, damage) = told(named("partitions"), &image);
    assert_eq!(paths(&entries), ["."]);
    assert!(damage.len() == 1 && damage[0].contains("partition 1 is left out"), "{damage:?}");
}

/// A stick that once was a CD was partitioned since, which does not wipe what says that it is one. An image of a CD
/// with a table in front is one of a CD.
#[test]
fn a_table_that_is_newer_than_a_cd_is_shown() {
    // The CD has 3 MiB.
    let mut image = vec![0; 16 << 20];
    put(&mut image, 510, &[0x55, 0xaa]);
    put(&mut image, 32 << 10, b"\x01CD001\x01");
    put(&mut image, (32 << 10) + 80, &1536_u32.to_le_bytes());
    put(&mut image, (32 << 10) + 128, &2048_u16.to_le_bytes());
    let mut udf = image.clone();
    put(&mut udf, 32 << 10, b"\0BEA01\x01");
    put(&mut udf, (32 << 10) + 2048, b"\0NSR02\x01");
    assert_eq!((found(&image), found(&udf)), (Some("iso9660"), Some("udf")));
    for (ranges, is_newer) in [
        (&[(2048_u32, 30_720_u32)][..], true),
        (&[(2048, 2048), (4096, 20_000)], true),
        // Only from sector 64 on, only within it, only behind it, padded.
        (&[(64, 6080)], false),
        (&[(64, 30_000)], false),
        (&[(2048, 2048)], false),
        (&[(6144, 20_000)], false),
        (&[(64, 1000), (2048, 4096), (6144, 512)], false),
        (&[(2048, 4200)], false),
    ] {
        let write = |image: &[u8]| {
            let mut image = image.to_vec();
            for (index, (start, count)) in ranges.iter().enumerate() {
                let record = [&[0, 0, 0, 0, 0xc, 0, 0, 0][..], &start.to_le_bytes(), &count.to_le_bytes()].concat();
                put(&mut image, 446 + 16 * index, &record);
            }
            image
        };
        assert_eq!(found(&write(&image)), Some(if is_newer { "partitions" } else { "iso9660" }), "{ranges:?}");
        let is_in_front = ranges.iter().all(|(start, _)| *start <= 64);
        assert_eq!(found(&write(&udf)), Some(if is_in_front { "udf" } else { "partitions" }), "{ranges:?}");
    }
}

/// Files whose maps lead to the same blocks of numbers, each of which leads to them again, cost what the image has.
#[test]
fn maps_that_lead_to_themselves_cost_no_more_than_the_image() {
    let mut image = ext();
    inode(&mut image, 2, (FOLDER, 11 * 1024, 2), &(200..211).collect::<Vec<u32>>());
    let ring: Vec<u8> = (0..256).flat_map(|index| if index % 2 == 0 { 400_u32 } else { 401 }.to_le_bytes()).collect();
    put(&mut image, 400 * 1024, &ring);
    put(&mut image, 401 * 1024, &ring);
    for block in 0..11 {
        let first = 11 + block * 60;
        let names: Vec<_> = (first..first + 60).map(|number| (number, format!("{number}"))).collect();
        let names: Vec<_> = names.iter().map(|(number, name)| (*number, name.as_str())).collect();
        list(&mut image, 200 + block as usize, &names);
        for number in first..first + 60 {
            inode(&mut image, number as usize, (FILE, u32::MAX, 1), &[400; 15]);
        }
    }
    let started = Instant::now();
    let (entries, damage) = told(named("ext"), &image);
    assert!((10..=661).contains(&entries.len()), "{}", entries.len());
    let pieces: usize = entries.iter().filter_map(|entry| entry.body.pieces.as_ref()).map(Vec::len).sum();
    assert!(pieces < 18 << 20, "{pieces}");
    assert!(!damage.is_empty() && started.elapsed() < LONGEST, "{:?}", started.elapsed());
}

/// Further names of a file are told with the first one: blocks of a listing that are one cost what that takes.
#[test]
fn further_names_of_a_file_cost_what_they_take() {
    const LONG: usize = 200;
    let (links, damage) = told_of_one_block(LONG, 2);
    assert!((1000..(6 << 20) / (2 * LONG)).contains(&links), "{links}");
    assert!(damage.iter().any(|what| what.contains("left out")), "{damage:?}");
}

/// The same of names of files that have one.
#[test]
fn names_of_files_cost_what_they_take() {
    const LONG: usize = 200;
    let (names, damage) = told_of_one_block(LONG, 1);
    assert!((1000..(6 << 20) / (512 + LONG)).contains(&names), "{names}");
    assert!(damage.iter().any(|what| what.contains("left out")), "{damage:?}");
}

/// What is told of a folder whose blocks are one, with four names of so many bytes of a file that says that it has
/// `links` names: how many names, and what is damaged.
fn told_of_one_block(length: usize, links: u16) -> (usize, Vec<String>) {
    let mut image = ext();
    image.truncate(1 << 20);
    let long: Vec<_> = (0..4).map(|number| format!("{number}{}", "n".repeat(length - 1))).collect();
    list(&mut image, 200, &long.iter().map(|name| (11, name.as_str())).collect::<Vec<_>>());
    inode(&mut image, 11, (FILE, 0, links), &[]);
    for (block, below) in [(400, 200_u32), (401, 400)] {
        put(&mut image, block * 1024, &below.to_le_bytes().repeat(256));
    }
    let blocks = [vec![200; 12], vec![400, 401]].concat();
    inode(&mut image, 2, (FOLDER, 12_000 * 1024, 2), &blocks);
    let source: SharedSource = Arc::new(MemorySource::new(image, "image"));
    let options = Options { shares: 256, ..Options::default() };
    let (mut names, mut damage) = (0_usize, Vec::new());
    let Reader::Random(reader) = named("ext").reader() else { panic!("ext is read forwards") };
    reader
        .read(&source, &options, &mut |event| {
            match event {
                Event::Entry(_) => names += 1,
                Event::Damage(told) => damage.push(told.what),
                _ => {}
            }
            Ok(())
        })
        .unwrap();
    (names, damage)
}

/// The parts of a listing are held as long as its folder is open, and may be the same block again and again.
#[test]
fn listings_lie_in_no_more_parts_than_the_image_pays_for() {
    const PARTS: u32 = 30_000;
    let mut image = ext();
    image.truncate(1 << 20);
    inode(&mut image, 2, (FOLDER, 1024, 2), &[200]);
    list(&mut image, 200, &[(2, "."), (2, ".."), (11, "a")]);
    // Folders in each other; two such are open together, and three are too much.
    for (depth, name) in ["b", "c", "file"].into_iter().enumerate() {
        let (listing, numbers) = (201 + depth as u32, 400 + 2 * depth as u32);
        list(&mut image, listing as usize, &[(12 + depth as u32, name)]);
        put(&mut image, numbers as usize * 1024, &listing.to_le_bytes().repeat(256));
        put(&mut image, (numbers as usize + 1) * 1024, &numbers.to_le_bytes().repeat(256));
        let blocks = [vec![listing; 12], vec![numbers, numbers + 1]].concat();
        inode(&mut image, 11 + depth, (FOLDER, PARTS * 1024, 2), &blocks);
    }
    inode(&mut image, 14, (FILE, 0, 1), &[]);
    let (entries, damage) = told(named("ext"), &image);
    assert_eq!(paths(&entries), [".", "a", "a/b", "a/b/c"], "{damage:?}");
    assert!(damage.iter().any(|what| what == "a/b/c: its listing lies in too many parts"), "{damage:?}");
}

/// A file system of very many groups, of which only the first ones are there; counts how often it is read.
#[derive(Debug)]
struct Long(Vec<u8>, AtomicU64);

impl Source for Long {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.1.fetch_add(1, Ordering::Relaxed);
        let wanted = self.len().saturating_sub(offset).min(buffer.len() as u64) as usize;
        let there = self.0.get(offset as usize..).unwrap_or_default();
        let count = there.len().min(wanted);
        buffer[..count].copy_from_slice(&there[..count]);
        buffer[count..wanted].fill(0);
        Ok(wanted)
    }

    fn len(&self) -> u64 {
        4 << 30
    }

    fn describe(&self) -> String {
        "image".to_owned()
    }
}

/// Where the descriptors of all groups are damaged, no copy of any is right, and there are thousands for each.
#[test]
fn copies_of_descriptors_are_not_tried_without_end() {
    let mut image = ext();
    for (at, number) in [(0, 16 << 14), (4, 256 << 14), (32, 256), (36, 256), (40, 16)] {
        put(&mut image, 1024 + at, &(number as u32).to_le_bytes());
    }
    let groups: Vec<_> = (100..300).map(|group| (group * 16 + 1, format!("{group}"))).collect();
    let groups: Vec<_> = groups.iter().map(|(number, name)| (*number, name.as_str())).collect();
    let blocks: Vec<_> = (200..204).collect();
    for (names, block) in groups.chunks(50).zip(&blocks) {
        list(&mut image, *block as usize, names);
    }
    inode(&mut image, 2, (FOLDER, 4096, 2), &blocks);
    let source = Arc::new(Long(image, AtomicU64::new(0)));
    let (entries, damage) = told_of(named("ext"), &(Arc::<Long>::clone(&source) as SharedSource));
    assert_eq!((entries.len(), damage.len()), (1, 200), "{:?}", damage.first());
    let reads = source.1.load(Ordering::Relaxed);
    assert!((100_000..300_000).contains(&reads), "{reads}");
}

/// What only ends like a boot sector is none, whatever is in it.
#[test]
fn what_ends_like_a_boot_sector_is_no_disk() {
    let mut files = vec![b"text\n".repeat(400), vec![0; 4096], (0..=255).cycle().take(4096).collect::<Vec<u8>>()];
    files.push([b"\x1f\x8b\x08\0\0\0\0\0\0\x03".to_vec(), vec![0xa5; 4000]].concat());
    files.push([b"\xeb\x3c\x90MSDOS5.0".to_vec(), vec![0; 4000]].concat());
    files.push([b"\xeb\x52\x90NTFS    ".to_vec(), vec![0; 4000]].concat());
    // A kernel of Linux has its own numbers where a disk has its last partition: kind, first sector and count.
    let last = [&[0, 0, 0, 0, 1, 0, 0, 0][..], &9_u32.to_le_bytes(), &0xffff_u32.to_le_bytes()].concat();
    let mut kernel = vec![0; 1 << 20];
    kernel[494..510].copy_from_slice(&last);
    let mut disk = kernel.clone();
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    assert_eq!(found(&disk), Some("partitions"));
    kernel[0x202..0x206].copy_from_slice(b"HdrS");
    files.push(kernel.clone());
    kernel[0x202..0x206].fill(0);
    kernel[..2].copy_from_slice(b"MZ");
    files.push(kernel);
    for mut file in files {
        file[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert!(!matches!(found(&file), Some("fat" | "exfat" | "partitions" | "ext")), "{:?}", &file[..16]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Any bytes behind the marks of each format are read to an end.
    #[test]
    fn any_bytes_come_to_an_end(noise in prop::collection::vec(any::<u8>(), 0..8192), places in prop::collection::vec((0_usize..65_536, any::<u8>()), 0..40)) {
        let mut image = ext();
        inode(&mut image, 2, (FOLDER, 1024, 2), &[200]);
        list(&mut image, 200, &[(2, "."), (2, ".."), (11, "a"), (12, "b"), (13, "c")]);
        let at = 10 * 1024 + 10 * 128;
        put(&mut image, at, &noise[..noise.len().min(2048)]);
        for (place, byte) in places {
            image[1024 + place] = byte;
        }
        for format in FORMATS.iter().filter(|format| ["ext", "fat", "exfat", "partitions"].contains(&format.name())) {
            told(*format, &image);
            told(*format, &noise);
        }
    }
}
