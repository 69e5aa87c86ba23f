//! Images of disks that no program writes: what is wrong in them is told, and costs no more than what is right.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use tarnfs_format::disk_image::DiskImage;
use tarnfs_format::{Decode, Entry, Event, Format, Input, Options, Probe, ReadRandom, detect};
use tarnfs_source::{MemorySource, SharedSource};

/// Longer than any pass over such an image takes, even on a busy machine.
const LONGEST: Duration = Duration::from_secs(20);

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
    let read = DiskImage.read(&source, &options, &mut |event| {
        match event {
            Event::Entry(entry) => {
                for piece in entry.body.pieces.iter().flatten() {
                    let end = piece.offset + piece.stored;
                    assert!(end <= image.len() as u64, "{piece:?}");
                    let steps = piece.coder.iter().flat_map(|coder| &coder.steps);
                    for input in steps.flat_map(|step| &step.inputs) {
                        assert!(!matches!(input, Input::Stored { offset, length } if offset + length > piece.stored));
                    }
                }
                entries.push(*entry);
            }
            Event::Damage(told) => damage.push(told.what),
            _ => {}
        }
        Ok(())
    });
    damage.extend(read.err().map(|error| error.to_string()));
    let _ = DiskImage.unlisted(&*source, &tarnfs_source::Cancel::default());
    let _ = DiskImage.fidelity().tells_of_unix(&*source);
    (entries, damage)
}

fn found(image: &[u8]) -> Option<&'static str> {
    let source = MemorySource::new(image, "image");
    detect(&Probe::new(&image[..image.len().min(64 << 10)], &source)).map(Format::name)
}

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

/// A qcow2 of version 3 in clusters of 4 KiB: tables of the first level at 8192, one of the second at 12288.
fn qcow(length: u64, first_entries: u32) -> Vec<u8> {
    let mut image = vec![0; 64 << 10];
    put(&mut image, 0, b"QFI\xfb\0\0\0\x03");
    put(&mut image, 20, &12_u32.to_be_bytes());
    put(&mut image, 24, &length.to_be_bytes());
    put(&mut image, 36, &first_entries.to_be_bytes());
    put(&mut image, 40, &8192_u64.to_be_bytes());
    put(&mut image, 100, &104_u32.to_be_bytes());
    image
}

/// Entries of a table of eight bytes each.
fn table(image: &mut [u8], at: usize, entries: &[u64]) {
    for (index, entry) in entries.iter().enumerate() {
        put(image, at + index * 8, &entry.to_be_bytes());
    }
}

#[test]
fn a_disk_made_by_hand_is_one() {
    let mut image = qcow(5 * 4096 + 100, 1);
    table(&mut image, 8192, &[12288]);
    table(&mut image, 12288, &[16384, 20480, 0, 1, 4 << 58 | 1 << 62 | 0x7000, 28672]);
    assert_eq!(found(&image), Some("disk-image"));
    let (entries, damage) = told(&image);
    assert!(damage.is_empty(), "{damage:?}");
    assert_eq!(
        (&entries[0].path[..], &entries[1].path[..], entries[1].body.size),
        (&b"."[..], &b"disk.img"[..], 20580)
    );
    let pieces = entries[1].body.pieces.as_ref().unwrap();
    let pieces: Vec<_> =
        pieces.iter().map(|one| (one.hole, one.length, one.offset, one.stored, one.coder.is_some())).collect();
    assert_eq!(pieces, [(0, 8192, 16384, 8192, false), (8192, 4096, 0x7000, 2560, true), (0, 100, 28672, 100, false)]);
}

/// Damage leaves the rest of the disk there.
#[test]
fn what_lies_where_it_cannot_is_told() {
    let mut image = qcow(4 * 4096, 1);
    table(&mut image, 8192, &[12288]);
    table(&mut image, 12288, &[16384, 1 << 40, 20480, 0x7200]);
    let (entries, damage) = told(&image);
    assert!(damage.len() == 1 && damage[0].contains("behind the end of the image"), "{damage:?}");
    let pieces = entries[1].body.pieces.as_ref().unwrap();
    let lengths: Vec<_> = pieces.iter().map(|one| (one.length, one.offset, one.stored)).collect();
    assert_eq!(lengths, [(4096, 16384, 4096), (4096, 0, 0), (4096, 20480, 4096), (4096, 0, 0)]);
    // A first table that is too short, or behind the end.
    for (length, at) in [(1 << 40, 8192_u64), (1 << 20, 1 << 30)] {
        let mut image = qcow(length, 1);
        put(&mut image, 40, &at.to_be_bytes());
        let (entries, damage) = told(&image);
        assert!(entries.len() == 2 && !damage.is_empty(), "{damage:?}");
    }
}

/// A disk of many terabytes, all of whose tables are one, and all of whose clusters are one or two.
#[test]
fn tables_that_are_told_again_cost_no_more_than_the_image() {
    for entries in [vec![16384; 512], (0..512).map(|one| 16384 + one % 2 * 8192).collect(), vec![0; 512]] {
        let mut image = qcow(1 << 50, u32::MAX);
        image.resize(16 << 20, 0);
        put(&mut image, 40, &65_536_u64.to_be_bytes());
        table(&mut image, 65_536, &vec![12288; ((16 << 20) - 65_536) / 8]);
        table(&mut image, 12288, &entries);
        put(&mut image, 16384, &[7; 4096]);
        let started = Instant::now();
        let (entries, damage) = told(&image);
        assert!(!damage.is_empty() && entries.len() == 2, "{damage:?}");
        let pieces = entries[1].body.pieces.as_ref().unwrap().len();
        assert!(pieces <= (1 << 20) + 1 && started.elapsed() < LONGEST, "{pieces} {:?}", started.elapsed());
    }
}

/// A file system whose listing is one block of the image, again and again: its bounds grow with what is stored.
#[test]
fn a_listing_that_is_stored_once_costs_no_more_than_the_image() {
    const NAMES: usize = 290;
    const BLOCKS: u64 = 200_000;
    let mut image = qcow((BLOCKS + 2) * 4096, 500);
    image.resize(1 << 20, 0);
    // Tables of 512 clusters each; those behind the first one are one.
    table(&mut image, 8192, &[vec![12288], vec![16384; 500]].concat());
    table(&mut image, 12288, &[vec![20480, 24576], vec![28672; 510]].concat());
    table(&mut image, 16384, &[28672; 512]);
    put(&mut image, 20480 + 1024, &0xe0f5_e1e2_u32.to_le_bytes());
    image[20480 + 1024 + 12] = 12;
    put(&mut image, 20480 + 1024 + 36, &(BLOCKS as u32 + 2).to_le_bytes());
    put(&mut image, 20480 + 1024 + 40, &1_u32.to_le_bytes());
    // Long inodes of a folder and a file.
    for (at, mode, size, place) in [(24576, 0o40755_u16, BLOCKS * 4096, 2_u32), (24576 + 64, 0o100_644, 0, 0)] {
        put(&mut image, at, &1_u16.to_le_bytes());
        put(&mut image, at + 4, &mode.to_le_bytes());
        put(&mut image, at + 8, &size.to_le_bytes());
        put(&mut image, at + 16, &place.to_le_bytes());
        put(&mut image, at + 44, &1_u32.to_le_bytes());
    }
    for name in 0..NAMES {
        let (record, text) = (28672 + 12 * name, 12 * NAMES + 2 * name);
        put(&mut image, record, &2_u64.to_le_bytes());
        put(&mut image, record + 8, &(text as u16).to_le_bytes());
        put(&mut image, record + 10, &[1, 0]);
        put(&mut image, 28672 + text, &[b'a' + (name / 26) as u8, b'a' + (name % 26) as u8]);
    }
    let (entries, damage) = told(&image);
    assert!((NAMES..300_000).contains(&entries.len()), "{} {:?}", entries.len(), damage.first());
    assert!(damage.iter().any(|what| what.contains("too often")), "{damage:?}");
}

/// A file system whose blocks lie apart in the image, where some of them are packed.
#[test]
fn a_packed_block_in_several_parts_is_joined() {
    let scratch = tempfile::tempdir().unwrap();
    let tree = scratch.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let text: String = (0..40_000_u32).map(|number| number.wrapping_mul(2_654_435_761).to_string()).collect();
    std::fs::write(tree.join("text"), text).unwrap();
    let squash = scratch.path().join("squash");
    let made = std::process::Command::new("mksquashfs")
        .args([&tree, &squash])
        .args(["-quiet", "-no-progress", "-noI", "-noId", "-noX"])
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        return;
    }
    let squash = std::fs::read(squash).unwrap();
    let clusters = squash.len().div_ceil(4096);
    assert!(clusters < 500);
    let mut image = qcow(squash.len() as u64, 1);
    image.resize((16 + 2 * clusters) * 4096, 0);
    table(&mut image, 8192, &[12288]);
    let places: Vec<_> = (0..clusters as u64).map(|one| (16 + 2 * one) * 4096).collect();
    table(&mut image, 12288, &places);
    for (part, at) in squash.chunks(4096).zip(&places) {
        put(&mut image, *at as usize, part);
    }
    let (entries, damage) = told(&image);
    assert!(damage.is_empty(), "{damage:?}");
    let pieces = entries.iter().find(|entry| entry.path == b"text").unwrap().body.pieces.as_ref().unwrap();
    let first = pieces[0].coder.as_ref().unwrap();
    let names: Vec<_> = first.steps.iter().map(|step| step.codec.as_str()).collect();
    assert_eq!(names, ["copy", "block"]);
    assert!(first.steps[0].inputs.len() > 10 && pieces[0].decoded == 128 << 10, "{:?}", pieces[0]);
}

#[test]
fn kinds_are_known_by_their_marks() {
    let mut fixed = vec![7_u8; 1 << 20];
    let at = fixed.len() - 512;
    put(&mut fixed, at, b"conectix");
    put(&mut fixed, at + 48, &(at as u64).to_be_bytes());
    put(&mut fixed, at + 60, &2_u32.to_be_bytes());
    assert_eq!(found(&fixed), None);
    put(&mut fixed, at + 64, &[0; 4]);
    let sum = !fixed[at..].iter().map(|byte| u32::from(*byte)).sum::<u32>();
    put(&mut fixed, at + 64, &sum.to_be_bytes());
    assert_eq!(found(&fixed), Some("disk-image"));
    let (entries, damage) = told(&fixed);
    assert!(damage.is_empty() && entries[1].body.size == at as u64, "{damage:?}");

    // Chunks of a sparse image: raw, a pattern, nothing, a sum.
    let mut sparse =
        vec![0x3a, 0xff, 0x26, 0xed, 1, 0, 0, 0, 28, 0, 12, 0, 0, 16, 0, 0, 6, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0];
    let mut chunk = |kind: u16, blocks: u32, body: &[u8]| {
        sparse.extend([kind.to_le_bytes(), [0; 2]].concat());
        sparse.extend([blocks.to_le_bytes(), (12 + body.len() as u32).to_le_bytes()].concat());
        sparse.extend(body);
    };
    chunk(0xcac1, 1, &[5; 4096]);
    chunk(0xcac2, 2, b"abcd");
    chunk(0xcac3, 2, b"");
    chunk(0xcac4, 0, b"sum.");
    assert_eq!(found(&sparse), Some("disk-image"));
    let (entries, damage) = told(&sparse);
    assert!(damage.len() == 1 && damage[0].contains("behind the last chunk"), "{damage:?}");
    let pieces = entries[1].body.pieces.as_ref().unwrap();
    let pieces: Vec<_> = pieces.iter().map(|one| (one.hole, one.length, one.offset, one.stored)).collect();
    assert_eq!(pieces, [(0, 4096, 40, 4096), (0, 8192, 4148, 4), (8192, 4096, 0, 0)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Any bytes behind the marks of each kind are read to an end.
    #[test]
    fn any_bytes_come_to_an_end(noise in prop::collection::vec(any::<u8>(), 0..8192), places in prop::collection::vec((0_usize..16_384, any::<u8>()), 0..40)) {
        let mut image = qcow(1 << 30, 16);
        table(&mut image, 8192, &[12288, 12288, 4096, 0]);
        table(&mut image, 12288, &[16384, 20480, 0, 1, 4 << 58 | 1 << 62 | 0x7000, 28672]);
        for (place, byte) in &places {
            image[*place] = *byte;
        }
        told(&image);
        for mark in [&b"QFI\xfb\0\0\0\x02"[..], b"QFI\xfb\0\0\0\x03", b"KDMV\x01\0\0\0", b"vhdxfile", b"conectix", b"\x3a\xff\x26\xed\x01\0\0\0\x1c\0\x0c\0\0\x02\0\0"] {
            told(&[mark, &noise].concat());
        }
    }
}
