//! Images of EROFS that no program writes: what is wrong in them is told, and costs no more than what is right.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use tarnfs_format::erofs::Erofs;
use tarnfs_format::{Decode, Entry, Event, Format, Options, Probe, ReadRandom, detect};
use tarnfs_source::{MemorySource, SharedSource};

/// Longer than any pass over such an image takes, even on a busy machine.
const LONGEST: Duration = Duration::from_secs(20);

const BLOCK: usize = 4096;

/// What is told of an image: entries, and what is damaged.
fn told(image: &[u8]) -> (Vec<Entry>, Vec<String>) {
    let source: SharedSource = Arc::new(MemorySource::new(image, "image"));
    let (mut entries, mut damage) = (Vec::new(), Vec::new());
    // What is packed is of no interest here.
    let decode = Decode::default().with_blocks(|_, _, decoded| {
        decoded.fill(9);
        Ok(decoded.len())
    });
    let options = Options { decode, ..Options::default() };
    let read = Erofs.read(&source, &options, &mut |event| {
        match event {
            Event::Entry(entry) => {
                let pieces = entry.body.pieces.iter().flatten();
                assert!(pieces.clone().all(|piece| piece.offset + piece.stored <= image.len() as u64));
                assert!(pieces.map(|piece| piece.hole + piece.length).sum::<u64>() <= entry.body.size);
                entries.push(*entry);
            }
            Event::Damage(told) => damage.push(told.what),
            _ => {}
        }
        Ok(())
    });
    damage.extend(read.err().map(|error| error.to_string()));
    (entries, damage)
}

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

/// An image of so many blocks, whose inodes begin in the second one, and whose root is inode 0.
fn image(blocks: usize, features: u32) -> Vec<u8> {
    let mut image = vec![0; blocks * BLOCK];
    for (at, number) in [(0, 0xe0f5_e1e2_u32), (36, blocks as u32), (40, 1), (80, features)] {
        put(&mut image, 1024 + at, &number.to_le_bytes());
    }
    image[1024 + 12] = 12;
    image
}

/// Puts a short inode there: mode, size, links, layout, and where its content is.
fn inode(image: &mut [u8], number: usize, (mode, size, links): (u16, u32, u16), (layout, place): (u16, u32)) -> usize {
    let at = BLOCK + number * 32;
    put(image, at, &(layout << 1).to_le_bytes());
    put(image, at + 4, &mode.to_le_bytes());
    put(image, at + 6, &links.to_le_bytes());
    put(image, at + 8, &size.to_le_bytes());
    put(image, at + 16, &place.to_le_bytes());
    at + 32
}

/// A block of a listing.
fn list(names: &[(u64, &str)]) -> Vec<u8> {
    let (mut records, mut strings) = (Vec::new(), Vec::new());
    for (number, name) in names {
        records.extend(number.to_le_bytes());
        records.extend(((names.len() * 12 + strings.len()) as u16).to_le_bytes());
        records.extend([1, 0]);
        strings.extend(name.as_bytes());
    }
    [records, strings].concat()
}

const FOLDER: u16 = 0o40755;
const FILE: u16 = 0o100_644;
const PLAIN: u16 = 0;
const PACKED: u16 = 1;
const INSIDE: u16 = 2;
const SHORT: u16 = 3;
const CHUNKS: u16 = 4;

/// A root that lists these, in block 10.
fn root(image: &mut [u8], names: &[(u64, &str)]) {
    let listing = list(names);
    put(image, 10 * BLOCK, &listing);
    inode(image, 0, (FOLDER, listing.len() as u32, 2), (PLAIN, 10));
}

#[test]
fn an_image_made_by_hand_is_one() {
    let mut image = image(16, 0x4);
    root(&mut image, &[(2, "file"), (4, "inside"), (8, "chunks"), (2, "hard"), (900, "none"), (16, "other")]);
    inode(&mut image, 2, (FILE, 5000, 2), (PLAIN, 12));
    let at = inode(&mut image, 4, (FILE, 4100, 1), (INSIDE, 14));
    put(&mut image, at, b"tail");
    let at = inode(&mut image, 8, (FILE, 3 * 4096 + 5, 1), (CHUNKS, 0));
    put(&mut image, at, &[12_u32, 13, u32::MAX, 15].iter().flat_map(|one| one.to_le_bytes()).collect::<Vec<_>>());
    let at = inode(&mut image, 16, (FILE, 4096, 1), (CHUNKS, 0x20));
    put(&mut image, at, &[0, 0, 1, 0, 5, 0, 0, 0]);
    let source = MemorySource::new(&image[..], "image");
    assert_eq!(detect(&Probe::new(&image[..4096], &source)).map(Format::name), Some("erofs"));
    let (entries, damage) = told(&image);
    let paths: Vec<_> = entries.iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned()).collect();
    assert_eq!(paths, [".", "file", "inside", "chunks", "hard", "other"]);
    let pieces = |number: usize| -> Vec<(u64, u64, u64)> {
        let pieces = entries[number].body.pieces.iter().flatten();
        pieces.map(|piece| (piece.hole, piece.length, piece.offset)).collect()
    };
    assert_eq!(pieces(1), [(0, 5000, 12 * 4096)]);
    assert_eq!(pieces(2), [(0, 4096, 14 * 4096), (0, 4, 4096 + 5 * 32)]);
    assert_eq!(pieces(3), [(0, 8192, 12 * 4096), (4096, 5, 15 * 4096)]);
    assert_eq!(entries[4].link, b"file");
    assert!(damage.len() == 1 && damage[0].contains("inode 900 is none"), "{damage:?}");
    // With a list of devices, a chunk may be on another one.
    put(&mut image, 1024 + 80, &0xc_u32.to_le_bytes());
    put(&mut image, 1024 + 86, &[1, 0, 60, 0]);
    put(&mut image, 60 * 128, b"blob");
    let (_, damage) = told(&image);
    assert!(damage.iter().any(|what| what.contains("another device: blob")), "{damage:?}");
}

/// Attributes that have neither a name nor a value take memory as well, again for each name of their inode.
#[test]
fn empty_attributes_are_no_more_than_the_image_may_have() {
    const COUNT: u16 = 16_000;
    let names: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
    let names: Vec<_> = names.iter().map(|name| (2, name.as_str())).collect();
    let mut image = image(40, 0);
    let listing = list(&names);
    put(&mut image, 30 * BLOCK, &listing);
    inode(&mut image, 0, (FOLDER, listing.len() as u32, 2), (PLAIN, 30));
    let at = inode(&mut image, 2, (FILE, 0, 1), (PLAIN, 0));
    put(&mut image, at - 32 + 2, &(COUNT + 1).to_le_bytes());
    // Behind the head of twelve bytes.
    for number in 0..usize::from(COUNT) {
        put(&mut image, at + 12 + 4 * number, &[0, 1, 0, 0]);
    }
    let (mut kept, mut damage) = (0, Vec::new());
    let source: SharedSource = Arc::new(MemorySource::new(&image[..], "image"));
    let options = Options { shares: 256, ..Options::default() };
    Erofs
        .read(&source, &options, &mut |event| {
            match event {
                Event::Entry(entry) => kept += entry.xattrs.len(),
                Event::Damage(told) => damage.push(told.what),
                _ => {}
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(kept, 2 * usize::from(COUNT), "{:?}", damage.first());
    assert!(damage.len() == 98 && damage.iter().all(|what| what.contains("too often")), "{:?}", damage.first());
}

/// The parts of a listing are held as long as its folder is open, and may be the same block again and again.
#[test]
fn a_listing_lies_in_no_more_parts_than_the_image_pays_for() {
    for (parts, is_listed) in [(20_000, true), (30_000, false)] {
        let mut image = image(64, 0x4);
        put(&mut image, 40 * BLOCK, &list(&[(4000, "file")]));
        let at = inode(&mut image, 0, (FOLDER, parts * BLOCK as u32, 2), (CHUNKS, 0));
        put(&mut image, at, &40_u32.to_le_bytes().repeat(parts as usize));
        inode(&mut image, 4000, (FILE, 0, 1), (PLAIN, 0));
        let (entries, damage) = told(&image);
        assert_eq!(entries.iter().any(|entry| entry.path == b"file"), is_listed, "{damage:?}");
        let is_told = damage.iter().any(|what| what.ends_with("what is in it is left out: it is too much"));
        assert_eq!(is_told, !is_listed, "{damage:?}");
    }
}

/// Thousands of folders may be in each other, each with a short listing behind its inode.
#[test]
fn short_listings_in_each_other_take_little() {
    const DEEP: usize = 120;
    let mut image = image(16, 0);
    for depth in 0..=DEEP {
        let listing = if depth < DEEP { list(&[(2 * depth as u64 + 2, "n")]) } else { Vec::new() };
        let at = inode(&mut image, 2 * depth, (FOLDER, listing.len() as u32, 2), (INSIDE, 0));
        put(&mut image, at, &listing);
    }
    let (entries, damage) = told(&image);
    assert_eq!((entries.len(), damage), (DEEP + 1, vec![]));
}

/// Short entries of an index, as two and as sixteen in a pack, are where the kernel has them.
#[test]
fn an_index_is_read() {
    let mut image = image(64, 0x1);
    root(&mut image, &[(2, "two")]);
    let at = inode(&mut image, 2, (FILE, 4096 * 5, 1), (SHORT, 0));
    // Clusters of one block; the numbers of blocks count from 19 on.
    let pack = |first: u32, second: u32, block: u32| -> Vec<u8> {
        [(first | second << 16).to_le_bytes(), block.to_le_bytes()].concat()
    };
    put(&mut image, at, &[0; 8]);
    let (head, goes_on) = (1 << 12, 2 << 12);
    put(&mut image, at + 8, &[pack(head, goes_on | 1, 19), pack(head | 5, head, 20), pack(0, 0, 22)].concat());
    let (entries, damage) = told(&image);
    let pieces: Vec<_> = entries[1].body.pieces.iter().flatten().collect();
    let places: Vec<_> = pieces.iter().map(|piece| (piece.length, piece.offset / 4096, piece.stored)).collect();
    assert_eq!(places, [(8197, 20, 4096), (4091, 21, 4096), (4096, 22, 4096), (4096, 23, 4096)]);
    assert!(damage.is_empty() && pieces[3].coder.is_none() && pieces[0].coder.is_some(), "{damage:?}");
}

/// A block that lies behind the end, from which more would come than it has, is missing at the end.
#[test]
fn a_packed_block_behind_the_end_is_missing_there() {
    let mut image = image(16, 0x1);
    root(&mut image, &[(2, "far"), (4, "strange")]);
    for (number, kind, method) in [(2, 0, 0), (4, 1, 9)] {
        let at = inode(&mut image, number, (FILE, 4096 * 2, 1), (SHORT, 0));
        put(&mut image, at, &[0, 0, 0, 0, 0, 0, method, 0]);
        put(&mut image, at + 8, &[(kind << 12 | 2_u32 << 28 | 1 << 16).to_le_bytes(), 9000_u32.to_le_bytes()].concat());
    }
    let (entries, damage) = told(&image);
    let ends: Vec<_> = entries[1..].iter().flat_map(|entry| entry.body.pieces.iter().flatten()).collect();
    assert!(ends.len() == 2 && ends.iter().all(|end| end.offset == image.len() as u64 && end.stored == 0), "{ends:?}");
    assert!(
        damage.len() == 2 && damage[0].contains("more would come") && damage[1].contains("not known"),
        "{damage:?}"
    );
}

/// Folders that share a listing, in which they all are, are told once each.
#[test]
fn folders_that_share_a_listing_do_not_multiply() {
    let mut image = image(16, 0);
    let names: Vec<_> = (1..65).map(|number| (number, format!("{number}"))).collect();
    let names: Vec<_> = names.iter().map(|(number, name)| (*number, name.as_str())).collect();
    root(&mut image, &names);
    let size = list(&names).len() as u32;
    for number in 1..65 {
        inode(&mut image, number, (FOLDER, size, 2), (PLAIN, 10));
    }
    let started = Instant::now();
    let (entries, damage) = told(&image);
    assert!(entries.len() == 65 && started.elapsed() < LONGEST);
    assert!(damage.iter().any(|what| what.contains("it is another folder, too")), "{damage:?}");
}

/// Thousands of files whose indexes are all of the image, or whose lists of chunks are, and names that all lead to one.
#[test]
fn lists_that_overlap_cost_no_more_than_the_image() {
    for (layout, place) in [(PACKED, 0), (SHORT, 0), (CHUNKS, 0), (CHUNKS, 0x20)] {
        let blocks = 4096;
        let mut image = image(blocks, 0x4);
        image[BLOCK..].fill(0x11);
        let numbers: Vec<_> = (0..4000).map(|number| (2 + 2 * (number % 2000), format!("{number:x}"))).collect();
        let names: Vec<_> = numbers.iter().map(|(number, name)| (*number, name.as_str())).collect();
        let listing: Vec<u8> = names
            .chunks(200)
            .flat_map(|names| {
                let mut block = list(names);
                block.resize(BLOCK, 0);
                block
            })
            .collect();
        put(&mut image, 100 * BLOCK, &listing);
        image[BLOCK..BLOCK + 64].fill(0);
        inode(&mut image, 0, (FOLDER, listing.len() as u32, 2), (PLAIN, 100));
        for number in (2..4002).step_by(2) {
            image[BLOCK + number * 32..BLOCK + number * 32 + 32].fill(0);
            let at = inode(&mut image, number, (FILE, 1_900_000_000, 1), (layout, place));
            put(&mut image, at, &[0, 0, 0, 0, 0, 0, 0, 0]);
        }
        let started = Instant::now();
        let (entries, damage) = told(&image);
        assert!(entries.len() > 1 && !damage.is_empty() && started.elapsed() < LONGEST, "{:?}", started.elapsed());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Any bytes behind a superblock are read to an end.
    #[test]
    fn any_bytes_come_to_an_end(
        noise in prop::collection::vec(any::<u8>(), 0..8192),
        places in prop::collection::vec((1024_usize..16_384, any::<u8>()), 0..40),
        layout in 0_u16..5,
        features in 0_u32..0x80,
    ) {
        let mut image = image(16, features);
        put(&mut image, 1024 + 96, &7_u64.to_le_bytes());
        root(&mut image, &[(2, "a"), (4, "b"), (6, "c"), (7, "d")]);
        for number in [2, 4, 6, 7] {
            inode(&mut image, number, (FILE, 60_000, 2), (layout, 12));
        }
        put(&mut image, BLOCK + 96, &noise[..noise.len().min(32)]);
        put(&mut image, BLOCK + 256, &noise[..noise.len().min(2048)]);
        for (place, byte) in places {
            image[place] = byte;
        }
        told(&image);
        told(&[&image[..1200], &noise].concat());
    }
}
