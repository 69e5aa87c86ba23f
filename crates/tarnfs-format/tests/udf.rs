//! Images of UDF that no program writes: what is wrong in them is told, and costs no more than what is right.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tarnfs_format::{Entry, Event, FORMATS, Kind, Options, Reader};
use tarnfs_source::{SharedSource, Source};

const SECTOR: usize = 2048;
/// The sector in which the volume is described, and that in which the partition begins.
const VOLUME: usize = 32;
const PARTITION: usize = 512;

/// Kinds of descriptors.
const FILE_SET: u16 = 256;
const NAME: u16 = 257;
const ALLOCATION: u16 = 258;
const INDIRECT: u16 = 259;
const ENTRY: u16 = 261;

/// Kinds of files.
const FOLDER: u8 = 4;
const FILE: u8 = 5;

/// What an image begins with; behind that are zeros. Counts how often it is read.
#[derive(Debug)]
struct Image {
    bytes: Vec<u8>,
    /// Bytes of a block.
    block: usize,
    length: u64,
    /// Bytes of it that are different ones.
    data: u64,
    reads: AtomicU64,
}

impl Source for Image {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let there = self.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let bytes = self.bytes.get(offset as usize..).unwrap_or_default();
        let stored = bytes.len().min(there);
        buffer[..stored].copy_from_slice(&bytes[..stored]);
        buffer[stored..there].fill(0);
        Ok(there)
    }

    fn len(&self) -> u64 {
        self.length
    }

    fn most_data(&self) -> u64 {
        self.data
    }

    fn describe(&self) -> String {
        "image".to_owned()
    }
}

/// A descriptor whose second checksum covers nothing.
fn descriptor(kind: u16, at: usize, fields: &[(usize, &[u8])]) -> Vec<u8> {
    let end = fields.iter().map(|(at, bytes)| at + bytes.len()).max().unwrap_or(16);
    let mut bytes = vec![0; end];
    bytes[..4].copy_from_slice(&[kind.to_le_bytes(), [2, 0]].concat());
    bytes[12..16].copy_from_slice(&(at as u32).to_le_bytes());
    bytes[4] = bytes[..16].iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
    for (at, field) in fields {
        bytes[*at..at + field.len()].copy_from_slice(field);
    }
    bytes
}

fn numbers(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Where something lies: a block of the first partition.
fn place(block: u32) -> Vec<u8> {
    numbers(&[2048, block, 0, 0])
}

impl Image {
    /// One whose partition has blocks of so many bytes, with these maps behind that of the partition. Its file set
    /// would be in block `file_set`.
    fn new(block: usize, length: u64, maps: &[u8], file_set: u32) -> Self {
        let bytes = vec![0; (PARTITION + 600) * SECTOR];
        let mut image = Self { bytes, block, length, data: length, reads: AtomicU64::new(0) };
        for (number, mark) in [b"\0BEA01\x01", b"\0NSR02\x01", b"\0TEA01\x01"].into_iter().enumerate() {
            image.put((16 + number) * SECTOR, mark);
        }
        let at = |number: usize| (VOLUME + number) * SECTOR;
        let (start, count) = (PARTITION as u32, (length / SECTOR as u64) as u32);
        let partition = numbers(&[start, count]);
        image.put(at(0), &descriptor(1, VOLUME, &[(16, &numbers(&[1]))]));
        image.put(at(1), &descriptor(5, VOLUME + 1, &[(16, &numbers(&[1])), (188, &partition)]));
        let maps = [&[1, 6, 1, 0, 0, 0][..], maps].concat();
        let count = 1 + (maps.len() as u32 - 6) / 64;
        let fields = [
            (16, numbers(&[1])),
            (212, numbers(&[block as u32])),
            (248, place(file_set)),
            (264, numbers(&[maps.len() as u32, count])),
            (440, maps),
        ];
        let fields: Vec<_> = fields.iter().map(|(at, field)| (*at, field.as_slice())).collect();
        image.put(at(2), &descriptor(6, VOLUME + 2, &fields));
        image.put(at(3), &descriptor(8, VOLUME + 3, &[]));
        image.anchor(256);
        image
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Puts an anchor into a sector. It leads to the volume.
    fn anchor(&mut self, sector: usize) {
        let volume = numbers(&[16 * SECTOR as u32, VOLUME as u32, 16 * SECTOR as u32, VOLUME as u32]);
        // All of its sector is looked at.
        self.put(sector * SECTOR, &descriptor(2, sector, &[(16, &volume), (511, &[0])]));
    }

    /// Puts something into a block of the partition.
    fn block(&mut self, number: u32, bytes: &[u8]) {
        self.put(PARTITION * SECTOR + number as usize * self.block, bytes);
    }

    /// An entry of a file whose content is so many bytes from block `content` on.
    fn entry(&mut self, number: u32, kind: u8, strategy: u8, (length, content): (u32, u32)) {
        let allocation = if length > 0 { numbers(&[length, content]) } else { Vec::new() };
        self.entry_of(number, kind, strategy, length, &allocation);
    }

    /// The same, with these descriptors of its parts.
    fn entry_of(&mut self, number: u32, kind: u8, strategy: u8, length: u32, allocation: &[u8]) {
        let fields: [(usize, &[u8]); 7] = [
            (20, &[strategy_low(strategy), strategy_high(strategy)]),
            (27, &[kind]),
            (36, &numbers(&[0, 0, 0x7fff])),
            (48, &[1]),
            (56, &numbers(&[length, 0])),
            (168, &numbers(&[0, allocation.len() as u32])),
            (176, allocation),
        ];
        let entry = descriptor(ENTRY, number as usize, &fields);
        self.block(number, &entry);
    }

    /// What says that the entry in a block was replaced by the one in block `other`.
    fn replaced(&mut self, number: u32, other: u32) {
        let entry = descriptor(INDIRECT, number as usize, &[(36, &place(other))]);
        self.block(number, &entry);
    }

    /// A file set in block 0, and a root in block 1 with these names, whose listing begins in block 300.
    fn root(&mut self, names: &[(String, u32)]) {
        self.block(0, &descriptor(FILE_SET, 0, &[(400, &place(1))]));
        self.folder((1, 300), names);
    }

    /// A folder whose entry and listing are in these blocks.
    fn folder(&mut self, (number, content): (u32, u32), names: &[(String, u32)]) {
        let mut listing = Vec::new();
        for (name, block) in names {
            let name = [&b"\x08"[..], name.as_bytes()].concat();
            let fields: [(usize, &[u8]); 3] =
                [(16, &[1, 0, 0, name.len() as u8]), (20, &place(*block)), (38, name.as_slice())];
            listing.extend(descriptor(NAME, 0, &fields));
            listing.resize(listing.len().next_multiple_of(4), 0);
        }
        self.block(content, &listing);
        self.entry(number, FOLDER, PLAIN, (listing.len() as u32, content));
    }

    /// What is told, and how often the image was read for that.
    fn read(self) -> (Vec<Entry>, Vec<String>, u64) {
        let format = FORMATS.iter().find(|format| format.name() == "udf").unwrap();
        let Reader::Random(reader) = format.reader() else { panic!("it is read forwards") };
        let image = Arc::new(self);
        let source: SharedSource = Arc::<Self>::clone(&image);
        let (mut entries, mut damage) = (Vec::new(), Vec::new());
        let read = reader.read(&source, &Options::default(), &mut |event| {
            match event {
                Event::Entry(entry) => entries.push(*entry),
                Event::Damage(found) => damage.push(found.what),
                _ => {}
            }
            Ok(())
        });
        damage.extend(read.err().map(|error| error.to_string()));
        (entries, damage, image.reads.load(Ordering::Relaxed))
    }
}

/// Strategies with which an entry is replaced: none, and one that leads to another.
const PLAIN: u8 = 0;
const REPLACED: u8 = 1;

fn strategy_low(strategy: u8) -> u8 {
    if strategy == PLAIN { 4 } else { 0 }
}

fn strategy_high(strategy: u8) -> u8 {
    if strategy == PLAIN { 0 } else { 16 }
}

fn paths(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned()).collect()
}

#[test]
fn an_entry_that_was_replaced_is_the_newer_one() {
    let mut image = Image::new(2048, 4 << 20, &[], 0);
    image.root(&[("old".to_owned(), 10), ("plain".to_owned(), 40)]);
    image.entry(10, FILE, REPLACED, (100, 200));
    image.replaced(11, 20);
    image.replaced(20, 30);
    image.entry(30, FILE, REPLACED, (200, 210));
    image.entry(40, FILE, PLAIN, (300, 220));
    let (entries, damage, _) = image.read();
    assert_eq!((paths(&entries), damage), ([".", "old", "plain"].map(str::to_owned).to_vec(), vec![]));
    assert_eq!([entries[1].body.size, entries[2].body.size], [200, 300]);
}

/// Any number of names may lead to entries that replace each other.
#[test]
fn entries_that_replace_each_other_are_read_once_for_a_name() {
    const NAMES: usize = 300;
    let mut image = Image::new(2048, 4 << 20, &[], 0);
    let names: Vec<_> = (0..NAMES).map(|number| (format!("{number}"), 10)).collect();
    image.root(&names);
    // So far from each other that they are read one by one.
    image.replaced(10, 200);
    image.replaced(200, 10);
    let (entries, damage, reads) = image.read();
    assert_eq!((paths(&entries), damage.len()), (vec![".".to_owned()], NAMES), "{:?}", damage.first());
    assert!(damage.iter().all(|what| what.ends_with("its entry was replaced by itself")), "{:?}", damage.first());
    assert!(reads < 5 * NAMES as u64, "{reads}");
}

/// The parts of a listing are held as long as its folder is open, and may be the same block again and again.
#[test]
fn a_listing_lies_in_no_more_parts_than_the_image_pays_for() {
    const IN_BLOCK: u32 = 250;
    const FIRST: u32 = 400;
    let next = |block: u32| numbers(&[3 << 30 | 2048, block]);
    for (blocks, is_listed) in [(60, true), (80, false)] {
        let mut image = Image { data: 64 << 10, ..Image::new(2048, 4 << 20, &[], 0) };
        image.root(&[("file".to_owned(), 10)]);
        image.entry(10, FILE, PLAIN, (0, 0));
        image.entry_of(1, FOLDER, PLAIN, blocks * IN_BLOCK * 2048, &next(FIRST));
        for block in FIRST..FIRST + blocks {
            let mut parts = numbers(&[2048, 300]).repeat(IN_BLOCK as usize);
            if block + 1 < FIRST + blocks {
                parts.extend(next(block + 1));
            }
            let fields = [(20, numbers(&[parts.len() as u32])), (24, parts)];
            let fields: Vec<_> = fields.iter().map(|(at, field)| (*at, field.as_slice())).collect();
            image.block(block, &descriptor(ALLOCATION, block as usize, &fields));
        }
        let (entries, damage, _) = image.read();
        assert_eq!(entries.iter().any(|entry| entry.path == b"file"), is_listed, "{damage:?}");
        let is_told = damage.iter().any(|what| what == "the root: its listing lies in too many parts");
        assert_eq!(is_told, !is_listed, "{damage:?}");
    }
}

/// Each name in a folder that lies deep has all of its path.
#[test]
fn names_cost_what_their_paths_take() {
    const NAMES: usize = 1000;
    const LAST: u32 = 30;
    let mut image = Image { data: 64 << 10, ..Image::new(2048, 4 << 20, &[], 0) };
    let long = "d".repeat(250);
    image.root(&[(long.clone(), 11)]);
    for number in 11..LAST {
        image.folder((number, 100 + number), &[(long.clone(), number + 1)]);
    }
    let names: Vec<_> = (0..NAMES).map(|number| (format!("{number}"), 60)).collect();
    image.folder((LAST, 200), &names);
    image.entry(60, FILE, PLAIN, (0, 0));
    let (entries, damage, _) = image.read();
    let told = entries.iter().filter(|entry| entry.kind == Kind::File).count();
    // Of 3.3 MB, 5 KB each.
    assert!((550..680).contains(&told), "{told}: {:?}", damage.first());
    assert_eq!(damage.len(), NAMES - told);
    assert!(damage.iter().all(|what| what.ends_with("the entries of the image are read too often")), "{damage:?}");
}

/// The table of a virtual partition is searched for in the last 32 MiB: once, however many of them and anchors there
/// are, and in large parts.
#[test]
fn a_table_of_blocks_is_searched_for_once() {
    let name = [&b"\0*UDF Virtual Partition"[..], &[0; 9]].concat();
    let map = [&[2, 64, 0, 0][..], &name, &[1, 0, 0, 0], &[0; 24]].concat();
    assert_eq!(map.len(), 64);
    for (file_set, expected) in [(0, ["."].as_slice()), (5, &[])] {
        let mut image = Image::new(512, 40 << 20, &map.repeat(20), file_set);
        if file_set == 0 {
            image.root(&[]);
        } else {
            image.anchor(512);
        }
        let (entries, damage, reads) = image.read();
        assert_eq!(paths(&entries), expected, "{damage:?}");
        assert_eq!(damage.is_empty(), file_set == 0, "{damage:?}");
        assert!((1000..2000).contains(&reads), "{reads}");
    }
}

/// Any number of partitions may have the same tables of half a megabyte.
#[test]
fn tables_of_packets_that_lie_elsewhere_are_read_for_one_partition() {
    let name = [&b"\0*UDF Sparable Partition"[..], &[0; 8]].concat();
    let tables = numbers(&[56 + 65_535 * 8, 4000, 5000, 6000, 7000]);
    let map = [&[2, 64, 0, 0][..], &name, &[1, 0, 0, 0], &[32, 0, 4, 0], &tables].concat();
    assert_eq!(map.len(), 64);
    let mut image = Image::new(2048, 40 << 20, &map.repeat(20), 0);
    image.root(&[]);
    let (entries, damage, _) = image.read();
    assert_eq!(paths(&entries), ["."]);
    // Each of these tables is none, which is told when it was read.
    let read = damage.iter().filter(|what| what.contains("a table of packets that lie elsewhere")).count();
    assert_eq!(read, 4, "{damage:?}");
}
