use std::sync::Arc;

use sha1::{Digest, Sha1};
use tarnfs_source::{Limits, MemorySource, SharedSource};

use super::super::read;
use crate::wim::dentry::{FOLDER, READS, REPARSE};
use crate::{Decode, Entry, Event, Options};

const NONE: [u8; 20] = [0; 20];
const FILE: u32 = 0x20;
const LINUX: u32 = 0xa000_001d;

fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// What tells a file: attributes, where what is in it begins, its own stream, and others with their names.
fn dentry(name: &str, (attributes, below): (u32, u64), hash: [u8; 20], streams: &[(String, [u8; 20])]) -> Vec<u8> {
    let name = utf16(name);
    let mut own = vec![0; 102];
    own[..8].copy_from_slice(&(102 + name.len() as u64 + 2).to_le_bytes());
    own[8..12].copy_from_slice(&attributes.to_le_bytes());
    own[12..16].fill(0xff);
    own[16..24].copy_from_slice(&below.to_le_bytes());
    own[64..84].copy_from_slice(&hash);
    own[88..92].copy_from_slice(&(if attributes & REPARSE == 0 { 0 } else { LINUX }).to_le_bytes());
    own[96] = streams.len() as u8;
    own[100..102].copy_from_slice(&(name.len() as u16).to_le_bytes());
    let streams = streams.iter().flat_map(|(name, hash)| {
        let name = utf16(name);
        let lengths = [38 + name.len() as u64 + 2, 0].map(u64::to_le_bytes).concat();
        padded([&lengths[..], hash, &(name.len() as u16).to_le_bytes(), &name, &[0; 2]].concat())
    });
    padded([own, name, vec![0; 2]].concat()).into_iter().chain(streams).collect()
}

/// Where in a tree that begins which is in the root.
const IN_ROOT: u64 = 8 + 104 + 8;

/// What is told of an archive with one solid resource, in which contents of these hashes lie at these places, and with
/// `listings` behind the root of its tree. Entries, and what is damaged.
fn told(
    solid: &[u8],
    contents: &[(usize, usize, [u8; 20])],
    listings: &[u8],
    limits: Limits,
) -> (Vec<Entry>, Vec<String>) {
    const SOLID: u64 = 16 << 56;
    const CHUNK: usize = 4096;
    let (mut archive, mut table) = (vec![0; 208], Vec::new());
    let mut list = |packed: u64, offset: usize, length: u64, hash: &[u8]| {
        table.extend([packed, offset as u64, length].map(u64::to_le_bytes).concat());
        table.extend([1, 0, 1, 0, 0, 0]);
        table.extend(hash);
    };
    let lengths = solid.chunks(CHUNK).flat_map(|part| (part.len() as u32).to_le_bytes());
    let header = [&(solid.len() as u64).to_le_bytes()[..], &(CHUNK as u32).to_le_bytes(), &[0; 4]].concat();
    let stored = [&header[..], &lengths.collect::<Vec<u8>>(), solid].concat();
    list(stored.len() as u64 | SOLID, archive.len(), 1 << 32, &NONE);
    archive.extend(stored);
    for (at, length, hash) in contents {
        list(*length as u64 | SOLID, *at, *length as u64, hash);
    }
    let root = dentry("", (FOLDER, IN_ROOT), NONE, &[]);
    let tree = [&[8, 0, 0, 0, 0, 0, 0, 0], &root[..], &[0; 8], listings].concat();
    list(tree.len() as u64 | 2 << 56, archive.len(), tree.len() as u64, &[77; 20]);
    archive.extend(tree);
    let (at, length) = (archive.len() as u64, table.len() as u64);
    archive[..8].copy_from_slice(b"MSWIM\0\0\0");
    archive[8..24].copy_from_slice(&[208, 0x1_0d00, 0, 0].map(u32::to_le_bytes).concat());
    archive[40..48].copy_from_slice(&[1, 0, 1, 0, 1, 0, 0, 0]);
    archive[48..72].copy_from_slice(&[length, at, length].map(u64::to_le_bytes).concat());
    archive.extend(table);
    let whole = |stored: &SharedSource, length: u64| {
        let mut bytes = vec![0; length as usize];
        stored.read_exact_at(&mut bytes, 0).map(|()| bytes)
    };
    let decode = Decode::new(move |_, stored: SharedSource, length, _| whole(&stored, length))
        .with_each(move |_, stored, _, take| take(&whole(&stored, stored.len())?));
    let source: SharedSource = Arc::new(MemorySource::new(archive, "archive"));
    let (mut entries, mut damage) = (Vec::new(), Vec::new());
    read(&source, &Options { limits, decode, ..Options::default() }, &mut |event| {
        match event {
            Event::Entry(entry) => entries.push(*entry),
            Event::Damage(found) => damage.push(found.what),
            _ => {}
        }
        Ok(())
    })
    .unwrap();
    (entries, damage)
}

/// Streams of a file that are its attributes.
fn streams_of(entry: &Entry) -> usize {
    entry.xattrs.iter().filter(|(name, _)| name.starts_with(b"user.s")).count()
}

/// Before each file there is a folder which the walk does not open, as it has no name or is a link. All of them lead to
/// one long list: that was gone through again for each file.
#[test]
fn what_goes_ahead_goes_where_the_walk_does() {
    const FILES: usize = 200;
    const LONG: usize = 400;
    let target = b"\x02\0\0\0target";
    let hash_of_target = Sha1::digest(target).into();
    let hashes: Vec<[u8; 20]> = (0..FILES).map(|number| [number as u8 + 1; 20]).collect();
    let solid = [&target[..], &[b'x'; 500]].concat();
    let contents = hashes.iter().map(|hash| (100, 1, *hash)).chain([(0, target.len(), hash_of_target)]);
    let contents: Vec<_> = contents.collect();
    for (name, attributes, hash) in [("", FOLDER, NONE), ("l", FOLDER | REPARSE, hash_of_target)] {
        let file =
            |number: usize| dentry(&format!("{number:03}"), (FILE, 0), NONE, &[("s".to_owned(), hashes[number])]);
        let of_one = file(0).len() + dentry(name, (attributes, 0), hash, &[]).len();
        let long = IN_ROOT + (FILES * of_one) as u64 + 8;
        let folder = dentry(name, (attributes, long), hash, &[]);
        let own: Vec<u8> = (0..FILES).flat_map(|number| [file(number), folder.clone()].concat()).collect();
        let list = dentry("", (FILE, 0), NONE, &[]).repeat(LONG);
        let listings = [&own[..], &[0; 8], &list, &[0; 8]].concat();
        READS.set(0);
        let (entries, _) = told(&solid, &contents, &listings, Limits::default());
        let reads = READS.get();
        assert_eq!(entries.len(), 1 + FILES * if name.is_empty() { 1 } else { 2 });
        assert!(reads < 4 * (2 * FILES + LONG), "{reads} reads for {name:?}");
    }
}

/// Where no more is kept, that may be in the midst of what a file has.
#[test]
fn all_streams_of_a_file_are_kept_until_it_is_told() {
    const FILES: usize = 200;
    const OF_EACH: usize = 5;
    let content = |file: usize, number: usize| format!("{file:03} {number} {}", "q".repeat(94)).into_bytes();
    let (mut solid, mut contents, mut own) = (Vec::new(), Vec::new(), Vec::new());
    for file in 0..FILES {
        let streams: Vec<_> = (0..OF_EACH)
            .map(|number| {
                let bytes = content(file, number);
                let hash = Sha1::digest(&bytes).into();
                contents.push((solid.len(), bytes.len(), hash));
                solid.extend(bytes);
                (format!("s{number}"), hash)
            })
            .collect();
        own.extend(dentry(&format!("{file:03}"), (FILE, 0), NONE, &streams));
    }
    own.extend([0; 8]);
    let (entries, damage) = told(&solid, &contents, &own, Limits::default());
    assert_eq!((entries.len(), damage), (1 + FILES, Vec::new()));
    assert!(entries[1..].iter().all(|entry| streams_of(entry) == OF_EACH));
}

/// What a file has is read ahead as far as there may be room for it; a short one behind it may fit all the same.
#[test]
fn what_was_not_read_ahead_is_read_by_itself() {
    let mut lengths = vec![100; 20];
    lengths.push(30);
    let (mut solid, mut contents, mut streams) = (Vec::new(), Vec::new(), Vec::new());
    for (number, length) in lengths.into_iter().enumerate() {
        let bytes = vec![number as u8; length];
        let hash = Sha1::digest(&bytes).into();
        contents.push((solid.len(), length, hash));
        solid.extend(bytes);
        streams.push((format!("s{number:02}"), hash));
    }
    let own = [dentry("a", (FILE, 0), NONE, &streams), vec![0; 8]].concat();
    let (entries, damage) = told(&solid, &contents, &own, Limits { xattr_value: 100, ..Limits::default() });
    // 1600 bytes with their names; other attributes take some of these.
    assert!(entries[1].xattrs.last().is_some_and(|(name, value)| name == b"user.s20" && value == &[20; 30]));
    assert_eq!(streams_of(&entries[1]) + damage.len(), 21, "{damage:?}");
    assert!(damage.iter().all(|what| what.ends_with("has 100 bytes")), "{damage:?}");
}
