//! Cabinets of which something is wrong, or not there: what is whole in them is read.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::io;
use std::path::Path;

use tarnfs_tree::open::{DecodingOptions, OpenArchive, Options};
use tarnfs_tree::{Error, Node, Tree};

use common::{content, memory, open, options};

/// Bytes that come of a block.
const BLOCK: usize = 32 << 10;

/// Where a file is that begins in the cabinet before, and one that goes on in the next one.
const FROM_PREVIOUS: u16 = 0xfffd;
const TO_NEXT: u16 = 0xfffe;

/// What a cabinet says of itself: its set, its place there, and the names of those before and behind it.
#[derive(Clone, Copy, Default)]
struct Place<'p> {
    set: u16,
    number: u16,
    previous: Option<&'p str>,
    next: Option<&'p str>,
}

/// All words of four bytes by XOR; bytes that are left over the other way round.
fn sum(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<4>();
    let sum = words.iter().fold(0, |sum, word| sum ^ u32::from_le_bytes(*word));
    sum ^ rest.iter().fold(0, |word, &byte| word << 8 | u32::from(byte))
}

/// Blocks of `content`, stored or in MSZIP, and their number.
fn blocks(content: &[u8], is_stored: bool, has_checksums: bool) -> (Vec<u8>, u16) {
    let mut folder = Vec::new();
    for content in content.chunks(BLOCK) {
        let length = content.len() as u16;
        // Deflate, which stores it.
        let head = [b"CK\x01", &length.to_le_bytes()[..], &(!length).to_le_bytes()].concat();
        let data = if is_stored { content.to_vec() } else { [&head, content].concat() };
        let lengths = [(data.len() as u16).to_le_bytes(), length.to_le_bytes()].concat();
        let checksum = if has_checksums { sum(&data) ^ sum(&lengths) } else { 0 };
        folder.extend([&checksum.to_le_bytes(), &lengths[..], &data].concat());
    }
    (folder, content.len().div_ceil(BLOCK) as u16)
}

/// A cabinet of folders, each of a method, its blocks and their number, and of files, each with its name, its length,
/// what is before it in its folder, and which that is.
fn cabinet(place: Place<'_>, folders: &[(u16, Vec<u8>, u16)], files: &[(&str, usize, usize, u16)]) -> Vec<u8> {
    let names: Vec<u8> = [place.previous, place.next]
        .into_iter()
        .flatten()
        .flat_map(|name| [name.as_bytes(), b"\0disk\0"].concat())
        .collect();
    let flags = u16::from(place.previous.is_some()) | u16::from(place.next.is_some()) << 1;
    let mut table = Vec::new();
    for (name, length, skip, folder) in files {
        table.extend([(*length as u32).to_le_bytes(), (*skip as u32).to_le_bytes()].concat());
        table.extend([&folder.to_le_bytes()[..], &[0x21, 0x50, 0, 0, 0x20, 0], name.as_bytes(), b"\0"].concat());
    }
    let files_at = 36 + names.len() + 8 * folders.len();
    let mut at = files_at + table.len();
    let (mut index, mut data) = (Vec::new(), Vec::new());
    for (method, blocks, count) in folders {
        index.extend([&(at as u32).to_le_bytes()[..], &count.to_le_bytes(), &method.to_le_bytes()].concat());
        at += blocks.len();
        data.extend(blocks);
    }
    let numbers = [folders.len() as u16, files.len() as u16, flags, place.set, place.number];
    let mut head = [&b"MSCF\0\0\0\0"[..], &(at as u32).to_le_bytes(), &[0; 4]].concat();
    head.extend([&(files_at as u32).to_le_bytes()[..], &[0; 4], &[3, 1]].concat());
    head.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    [head, names, index, table, data].concat()
}

fn noise(length: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Bytes of the file that goes on.
const SPLIT: usize = 2 * BLOCK;

const LENGTH: usize = 40_000;
const NAMES: [&str; 3] = ["a", "b", "c"];

/// Three files in one folder, and what they hold.
fn three(is_stored: bool, has_checksums: bool) -> (Vec<u8>, Vec<u8>) {
    let all = noise(NAMES.len() * LENGTH);
    let (folder, count) = blocks(&all, is_stored, has_checksums);
    let files: Vec<_> = NAMES.iter().enumerate().map(|(at, name)| (*name, LENGTH, at * LENGTH, 0)).collect();
    (cabinet(Place::default(), &[(u16::from(!is_stored), folder, count)], &files), all)
}

fn opened(bytes: &[u8], force: bool) -> OpenArchive {
    let options = options();
    let options = Options { decoding: DecodingOptions { force, ..options.decoding }, ..options };
    open(memory("a.cab", bytes), &options).unwrap()
}

fn read(opened: &OpenArchive, name: &str) -> Result<Vec<u8>, Error> {
    let node = opened.tree.lookup(Node::ROOT, name.as_bytes()).unwrap().node;
    content(&*opened.tree, node)
}

fn is_marked(opened: &OpenArchive, name: &str) -> bool {
    let node = opened.tree.lookup(Node::ROOT, name.as_bytes()).unwrap().node;
    opened.tree.xattr(node, b"user.tarnfs.damaged").unwrap().is_some()
}

#[track_caller]
fn assert_damaged(opened: &OpenArchive, name: &str) {
    match read(opened, name) {
        Err(Error::Io(error)) => {
            assert!(matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

/// > What is whole in a damaged or cut archive is served, and the rest is an error.
#[test]
fn files_before_damage_in_their_folder_are_read() {
    for is_stored in [false, true] {
        let (whole, all) = three(is_stored, true);
        let last = whole.len() - (all.len() - 3 * BLOCK);
        let cut = whole[..last + 100].to_vec();
        let mut changed = whole.clone();
        changed[last + 100] ^= 1;
        // Not only the checksum tells of it.
        let mut senseless = whole.clone();
        senseless[last - 7] ^= 1;
        for damaged in [cut, changed, senseless] {
            for order in [[0, 1, 2], [2, 1, 0]] {
                let opened = opened(&damaged, false);
                for at in order {
                    let expected = &all[at * LENGTH..][..LENGTH];
                    if at == 2 {
                        assert_damaged(&opened, NAMES[at]);
                    } else {
                        assert!(read(&opened, NAMES[at]).unwrap() == expected, "{}", NAMES[at]);
                    }
                }
            }
            let damaged = opened(&damaged, false).tree.damaged(9, &tarnfs_source::Cancel::default()).unwrap();
            assert_eq!(damaged.damaged, 1);
        }
        let opened = opened(&whole, false);
        assert!(
            NAMES.iter().enumerate().all(|(at, name)| read(&opened, name).unwrap() == all[at * LENGTH..][..LENGTH])
        );
    }
    // Without checksums nothing tells where it began to be wrong.
    let (mut senseless, all) = three(false, false);
    let last = senseless.len() - (all.len() - 3 * BLOCK);
    senseless[last - 7] ^= 1;
    let opened = opened(&senseless, false);
    for name in NAMES {
        assert_damaged(&opened, name);
    }
}

/// > Without `--force`, bytes whose checksum does not match are never served. Reading that range is an error, and the
/// > rest of the file is read.
///
/// > With `--force`, what can be decoded but fails its checksum is served, too, and marked. What is lost is an error.
#[test]
fn a_block_with_a_wrong_checksum_takes_nothing_from_others() {
    for is_stored in [false, true] {
        let (mut damaged, mut all) = three(is_stored, true);
        let start = damaged.len() - all.len() - if is_stored { 3 * 8 } else { 3 * 15 };
        damaged[start + 100] ^= 1;
        let strict = opened(&damaged, false);
        assert_damaged(&strict, "a");
        // What is compressed refers to what came before.
        for (at, name) in [(1, "b"), (2, "c")] {
            if is_stored {
                assert!(read(&strict, name).unwrap() == all[at * LENGTH..][..LENGTH], "{name}");
            } else {
                assert_damaged(&strict, name);
            }
        }
        all[100] ^= 1;
        let lenient = opened(&damaged, true);
        for (at, name) in NAMES.iter().enumerate() {
            assert!(read(&lenient, name).unwrap() == all[at * LENGTH..][..LENGTH], "{name}");
            assert_eq!(is_marked(&lenient, name), at == 0 || !is_stored, "{name}");
        }
    }
}

/// Three cabinets, each with a file of its own, `a`, `b` or `c`; `s` goes on from the first one to the second.
fn write_set(folder: &Path, sets: [u16; 3]) -> Vec<u8> {
    let split = noise(SPLIT);
    let names = ["disk1.cab", "disk2.cab", "disk3.cab"];
    let part = |at: usize| blocks(&split[at * BLOCK..][..BLOCK], true, true);
    for (number, name) in names.iter().enumerate() {
        let previous = number.checked_sub(1).map(|number| names[number]);
        let place = Place { set: sets[number], number: number as u16, previous, next: names.get(number + 1).copied() };
        let own = blocks(NAMES[number].as_bytes(), true, true);
        let own = (0, own.0, own.1);
        let split = |at: usize| (0, part(at).0, part(at).1);
        let bytes = match number {
            0 => cabinet(place, &[own, split(0)], &[("a", 1, 0, 0), ("s", SPLIT, 0, TO_NEXT)]),
            1 => cabinet(place, &[split(1), own], &[("s", SPLIT, 0, FROM_PREVIOUS), ("b", 1, 0, 1)]),
            _ => cabinet(place, &[own], &[("c", 1, 0, 0)]),
        };
        std::fs::write(folder.join(name), bytes).unwrap();
    }
    split
}

fn names(opened: &OpenArchive) -> Vec<String> {
    let mut names = Vec::new();
    let mut take = |child: &[u8]| names.push(String::from_utf8_lossy(child).into_owned());
    let listed = opened.tree.read_dir(Node::ROOT, 0, &mut |child| {
        take(child.name);
        true
    });
    listed.unwrap();
    names.sort();
    names
}

/// > What is whole in a damaged or cut archive is served, and the rest is an error.
#[test]
fn where_a_cabinet_is_missing_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let split = write_set(folder.path(), [7; 3]);
    let open = |name: &str| tarnfs_tree::open::open(&path(name), &options()).unwrap();
    for name in ["disk1.cab", "disk2.cab", "disk3.cab"] {
        let opened = open(name);
        assert!(opened.index.summary().notes.is_empty() && names(&opened) == ["a", "b", "c", "s"], "{name}");
        assert!(read(&opened, "s").unwrap() == split);
    }
    std::fs::rename(path("disk2.cab"), path("away")).unwrap();
    for (name, found) in [("disk1.cab", "a"), ("disk3.cab", "c")] {
        let opened = open(name);
        assert_eq!(read(&opened, found).unwrap(), found.as_bytes());
        let notes = &opened.index.summary().notes;
        assert!(notes.iter().any(|(_, what)| what.contains("disk2.cab")), "{notes:?}");
    }
    assert!(read(&open("disk1.cab"), "s").is_err());
    // One alone.
    std::fs::rename(path("away"), path("disk2.cab")).unwrap();
    std::fs::remove_file(path("disk1.cab")).unwrap();
    std::fs::remove_file(path("disk3.cab")).unwrap();
    assert_eq!(read(&open("disk2.cab"), "b").unwrap(), b"b");
}

/// All sets use the same names.
#[test]
fn a_cabinet_of_another_set_is_not_joined() {
    let folder = tempfile::tempdir().unwrap();
    write_set(folder.path(), [1, 9, 9]);
    let open = |name: &str| tarnfs_tree::open::open(&folder.path().join(name), &options()).unwrap();
    let first = open("disk1.cab");
    assert_eq!(names(&first), ["a", "s"]);
    assert_eq!(read(&first, "a").unwrap(), b"a");
    assert!(read(&first, "s").is_err());
    assert_eq!(names(&open("disk2.cab")), ["b"]);
}

#[test]
fn cabinets_that_name_each_other_come_to_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, next: &str| {
        let own = blocks(b"whole", true, true);
        let place = Place { next: Some(next), ..Place::default() };
        let bytes = cabinet(place, &[(0, own.0.clone(), own.1), (0, own.0, own.1)], &[("a", 5, 0, 0)]);
        std::fs::write(folder.path().join(name), bytes).unwrap();
    };
    write("x1.cab", "x1.cab");
    write("y1.cab", "y2.cab");
    write("y2.cab", "y1.cab");
    for name in ["x1.cab", "y1.cab", "y2.cab"] {
        let opened = tarnfs_tree::open::open(&folder.path().join(name), &options()).unwrap();
        assert_eq!(read(&opened, "a").unwrap(), b"whole", "{name}");
        assert!(!opened.index.summary().notes.is_empty(), "{name}");
    }
}
