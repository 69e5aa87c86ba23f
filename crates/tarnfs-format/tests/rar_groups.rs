//! Which files of a RAR archive are decoded together, and what stands for those that cannot be: archives of RAR 5 that
//! are made by hand.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use tarnfs_format::rar::Rar;
use tarnfs_format::{Decode, Entry, Event, Kind, Options, Piece, ReadRandom};
use tarnfs_source::{MemorySource, SharedSource};

/// Seven bits in each byte, the lowest first.
fn number(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A header with its checksum, and its data.
fn block(kind: u64, flags: u64, body: &[u8], extra: &[u8], data: &[u8]) -> Vec<u8> {
    let flags = flags | u64::from(!extra.is_empty()) | u64::from(!data.is_empty()) << 1;
    let mut header = [number(kind), number(flags)].concat();
    if !extra.is_empty() {
        header.extend(number(extra.len() as u64));
    }
    if !data.is_empty() {
        header.extend(number(data.len() as u64));
    }
    header.extend([body, extra].concat());
    let header = [number(header.len() as u64), header].concat();
    [&crc32fast::hash(&header).to_le_bytes(), &header[..], data].concat()
}

/// What a header of a file says, as far as it matters here.
#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
struct File<'f> {
    name: &'f str,
    size: u64,
    data: &'f [u8],
    is_packed: bool,
    is_solid: bool,
    /// It began before this block, and goes on behind it.
    is_continued: bool,
    goes_on: bool,
    copy_of: Option<&'f str>,
    is_encrypted: bool,
}

impl File<'_> {
    fn block(&self) -> Vec<u8> {
        let compression = u64::from(self.is_solid) << 6 | u64::from(self.is_packed) << 7;
        let numbers = [4, self.size, 0o100_644].map(number).concat();
        let name = [number(self.name.len() as u64), self.name.as_bytes().to_vec()].concat();
        let body = [numbers, vec![0; 4], number(compression), number(1), name].concat();
        let mut extra = Vec::new();
        if let Some(original) = self.copy_of {
            let record = [&[5, 5, 0, original.len() as u8], original.as_bytes()].concat();
            extra.extend([number(record.len() as u64), record].concat());
        }
        if self.is_encrypted {
            let record = [&[1, 0, 0, 5][..], &[7; 32]].concat();
            extra.extend([number(record.len() as u64), record].concat());
        }
        let flags = u64::from(self.is_continued) << 3 | u64::from(self.goes_on) << 4;
        block(2, flags, &body, &extra, self.data)
    }
}

fn archive(files: &[File<'_>]) -> Vec<u8> {
    let mut bytes = [&b"Rar!\x1a\x07\x01\0"[..], &block(1, 0, &number(4), &[], &[])].concat();
    bytes.extend(files.iter().flat_map(File::block));
    bytes.extend(block(5, 0, &number(0), &[], &[]));
    bytes
}

fn read(archive: &[u8]) -> (Vec<Entry>, Vec<String>) {
    read_with(archive, &Options::default())
}

fn read_with(archive: &[u8], options: &Options) -> (Vec<Entry>, Vec<String>) {
    let source: SharedSource = Arc::new(MemorySource::new(archive, "archive"));
    let (mut entries, mut damage) = (Vec::new(), Vec::new());
    Rar.read(&source, options, &mut |event| {
        match event {
            Event::Entry(entry) => entries.push(*entry),
            Event::Damage(what) => damage.push(what.what),
            other => panic!("{other:?}"),
        }
        Ok(())
    })
    .unwrap();
    (entries, damage)
}

fn pieces(entry: &Entry) -> &[Piece] {
    entry.body.pieces.as_deref().unwrap_or_default()
}

fn piece(entry: &Entry) -> &Piece {
    let [piece] = pieces(entry) else { panic!("{:?}", entry.body) };
    piece
}

fn codec(entry: &Entry) -> &str {
    &piece(entry).coder.as_ref().unwrap().steps[0].codec
}

/// True of a file of a group: its decoder begins before it, or goes on behind it.
fn is_in_run(entry: &Entry) -> bool {
    piece(entry).coder.as_ref().unwrap().steps[0].properties.first() == Some(&1)
}

const LOST: &str = "places or sizes that cannot be";

fn packed(name: &str, is_solid: bool) -> File<'_> {
    File { name, size: 1000, data: &[1; 9], is_packed: true, is_solid, ..File::default() }
}

#[test]
fn copies_of_a_file_in_many_parts_do_not_multiply_it() {
    const PARTS: usize = 1 << 16;
    let part = |number: usize| {
        let (is_continued, goes_on) = (number > 0, number + 1 < PARTS);
        File { name: "a", size: PARTS as u64, data: b"x", is_continued, goes_on, ..File::default() }
    };
    let names: Vec<String> = (0..9).map(|number| format!("copy {number}")).collect();
    let copies = names.iter().map(|name| File { name, size: PARTS as u64, copy_of: Some("a"), ..File::default() });
    let few = File { name: "few", size: 1, data: b"y", ..File::default() };
    let last = File { name: "last", size: 1, copy_of: Some("few"), ..File::default() };
    let files: Vec<_> = (0..PARTS).map(part).chain(copies).chain([few, last]).collect();
    let (entries, damage) = read(&archive(&files));
    assert_eq!((entries.len(), damage), (12, vec![]));
    let handed_on: usize = entries[1..10].iter().map(|entry| pieces(entry).len()).sum();
    assert!(handed_on <= 5 * PARTS, "{handed_on}");
    for entry in &entries[1..10] {
        let is_link = entry.kind == Kind::HardLink && entry.link == b"a";
        assert!(is_link || pieces(entry).len() == PARTS, "{:?}", entry.kind);
    }
    assert_eq!(entries[9].kind, Kind::HardLink);
    // What lies in one piece is a file of its own all the same.
    assert_eq!((entries[11].kind, pieces(&entries[11]).len()), (Kind::File, 1));
}

#[test]
fn what_leaves_nothing_behind_is_not_missed() {
    let before =
        [File { name: "stored", size: 3, data: b"abc", ..File::default() }, File { name: "empty", ..File::default() }];
    for first in before {
        let (entries, damage) = read(&archive(&[first, packed("big", true)]));
        assert_eq!(damage, Vec::<String>::new());
        assert!(codec(&entries[1]) == "rar" && piece(&entries[1]).skip == 0, "{:?}", entries[1]);
    }
}

#[test]
fn what_is_behind_a_lost_one_waits_for_one_that_needs_nothing() {
    let lost = || File { is_continued: true, ..packed("lost", true) };
    let files = [
        packed("a", false),
        packed("b", true),
        lost(),
        packed("c", true),
        packed("d", true),
        packed("e", false),
        packed("f", true),
    ];
    let (entries, damage) = read(&archive(&files));
    let codecs: Vec<_> = entries.iter().map(codec).collect();
    assert_eq!(codecs, ["rar", "rar", LOST, LOST, "rar", "rar"]);
    assert!(is_in_run(&entries[0]) && piece(&entries[1]).skip == 1000 && piece(&entries[5]).skip == 1000);
    assert_eq!(damage.len(), 3, "{damage:?}");
    assert!(damage[0].contains("begins in a volume that is not there"), "{damage:?}");
    // Right behind it.
    let (entries, _) = read(&archive(&[packed("a", false), packed("b", true), lost(), packed("g", false)]));
    assert_eq!(entries.iter().map(codec).collect::<Vec<_>>(), ["rar", "rar", "rar"]);
}

#[test]
fn a_link_with_the_method_of_another_file_is_none_of_its_group() {
    let link = File { data: b"", copy_of: Some("a"), ..packed("b", true) };
    let (entries, damage) = read(&archive(&[packed("a", false), link, packed("c", true)]));
    assert_eq!(damage, Vec::<String>::new());
    let (a, c) = (piece(&entries[0]), piece(&entries[2]));
    assert_eq!((a.decoded, c.decoded, c.skip), (2000, 2000, 1000));
}

#[test]
fn a_copy_is_of_what_was_there_last() {
    let first = File { name: "a", size: 6, data: b"123456", ..File::default() };
    let copy = File { name: "b", size: 6, copy_of: Some("a"), ..File::default() };
    let (entries, _) = read(&archive(&[first, File { name: "a", ..File::default() }, copy]));
    assert_eq!((entries[2].kind, &entries[2].link[..]), (Kind::HardLink, &b"a"[..]));
}

#[test]
fn sizes_that_nothing_can_have_in_all_are_lost() {
    let huge = |name, is_solid| File { size: 1 << 62, ..packed(name, is_solid) };
    let (entries, damage) = read(&archive(&[huge("a", false), huge("b", true), huge("c", true), packed("d", true)]));
    assert_eq!(entries.iter().map(codec).collect::<Vec<_>>(), ["rar", LOST, LOST, LOST]);
    assert_eq!(damage.len(), 3, "{damage:?}");
}

/// An index counts bytes in 63 bits.
#[test]
fn a_file_longer_than_any_can_be_has_no_bytes() {
    let huge = File { size: u64::MAX, ..packed("a", false) };
    let (entries, damage) = read(&archive(&[huge, packed("b", false)]));
    assert_eq!(entries.iter().map(codec).collect::<Vec<_>>(), [LOST, "rar"]);
    assert_eq!((entries[0].body.size, piece(&entries[0]).length), (i64::MAX as u64, i64::MAX as u64));
    assert_eq!(damage, ["'a' would have 18446744073709551615 bytes"]);
}

#[test]
fn only_what_follows_an_encrypted_one_needs_its_password() {
    let encrypted = File { is_encrypted: true, ..packed("c", true) };
    let (entries, _) = read(&archive(&[packed("a", false), packed("b", true), encrypted, packed("d", true)]));
    assert_eq!(entries.iter().map(codec).collect::<Vec<_>>(), ["rar", "rar", "aes-rar", "aes-rar"]);
    let places: Vec<_> = entries.iter().map(piece).map(|piece| (piece.decoded, piece.skip)).collect();
    assert_eq!(places, [(2000, 0), (2000, 1000), (4000, 2000), (4000, 3000)]);
    assert!(piece(&entries[0]).stored < piece(&entries[2]).stored);
}

/// A stream of a file: its header, and its data.
fn stream(name: &str, size: u64, data: &[u8], is_packed: bool) -> Vec<u8> {
    let numbers = [0, size, 0].map(number).concat();
    let body = [numbers, number(u64::from(is_packed) << 7), number(1), number(3), b"STM".to_vec()].concat();
    let record = [&[7], name.as_bytes()].concat();
    block(3, 0, &body, &[number(record.len() as u64), record].concat(), data)
}

/// A few bytes make 64 KiB of a stream: 876 KB of an archive took 2 GB on the disk.
#[test]
fn streams_of_all_files_have_a_bound() {
    const SIZE: u64 = 64 << 10;
    let empty = File { name: "a", ..File::default() };
    let start = [&b"Rar!\x1a\x07\x01\0"[..], &block(1, 0, &number(4), &[], &[])].concat();
    let decode = Decode::new(|_, _, length, _| Ok(vec![7; length as usize]));
    let options = Options { decode, ..Options::default() };
    for (data, is_packed, is_bounded) in [(&[1; 24][..], true, true), (&vec![7; SIZE as usize], false, false)] {
        let mut archive = start.clone();
        for _ in 0..90 {
            archive.extend(empty.block());
            for number in 0..12 {
                archive.extend(stream(&format!(":s{number}"), SIZE, data, is_packed));
            }
        }
        archive.extend(block(5, 0, &number(0), &[], &[]));
        let (entries, damage) = read_with(&archive, &options);
        assert_eq!(entries.len(), 90);
        let count: usize = entries.iter().map(|entry| entry.xattrs.len()).sum();
        // What is stored as it is takes no more than the archive does.
        assert_eq!(count, if is_bounded { 1024 } else { 90 * 12 });
        assert_eq!(damage.len(), usize::from(is_bounded), "{damage:?}");
    }
}

#[test]
fn marks_before_an_archive_are_not_looked_at_without_end() {
    // Each with something behind it that is no header.
    let mark = [&b"Rar!\x1a\x07\x01\0"[..], &[0; 4], &[3, 0, 0, 0]].concat();
    let whole = archive(&[File { name: "a", size: 1, data: b"x", ..File::default() }]);
    for (marks, is_found) in [(99, true), (100, false)] {
        let bytes = [b"MZ", &mark.repeat(marks)[..], &whole].concat();
        let source: SharedSource = Arc::new(MemorySource::new(bytes.as_slice(), "archive"));
        let read = Rar.read(&source, &Options::default(), &mut |_| Ok(()));
        assert_eq!(read.is_ok(), is_found, "{marks}: {read:?}");
    }
}
