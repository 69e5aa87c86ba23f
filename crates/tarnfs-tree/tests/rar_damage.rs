//! RAR archives of which something is wrong: what is whole in them is read, and what was compared is told.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::io;
use std::sync::Arc;

use tarnfs_index::{Recursion, Shape};
use tarnfs_tree::open::{DecodingOptions, OpenArchive, Options, Passwords};
use tarnfs_tree::{Error, Kind, Node, Tree};

use common::{content, member, memory, open, options};

const PACKED: &[u8] = include_bytes!("../../../tests/archives/rar/m5_max.rar");
const ENCRYPTED: &[u8] = include_bytes!("../../../tests/archives/rar/header_encrypted.rar");

const MARK: &[u8] = b"Rar!\x1a\x07\x01\0";

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

fn take(bytes: &mut &[u8]) -> u64 {
    let end = bytes.iter().position(|byte| *byte < 0x80).unwrap();
    let (number, rest) = bytes.split_at(end + 1);
    *bytes = rest;
    number.iter().rev().fold(0, |sum, byte| sum << 7 | u64::from(byte & 0x7f))
}

/// A header with its checksum, and its data.
fn block(kind: u64, body: &[u8], extra: &[u8], data: &[u8]) -> Vec<u8> {
    let flags = u64::from(!extra.is_empty()) | 2;
    let mut header = [number(kind), number(flags)].concat();
    if !extra.is_empty() {
        header.extend(number(extra.len() as u64));
    }
    header.extend([&number(data.len() as u64), body, extra].concat());
    let header = [number(header.len() as u64), header].concat();
    [&crc32fast::hash(&header).to_le_bytes(), &header[..], data].concat()
}

/// Of a file: what its header says, and its data.
#[derive(Clone, Default)]
struct File {
    name: &'static str,
    size: u64,
    compression: u64,
    crc: Option<u32>,
    hash: Option<[u8; 32]>,
    is_encrypted: bool,
    data: Vec<u8>,
}

impl File {
    const SOLID: u64 = 0x40;

    fn named(&self, name: &'static str) -> Self {
        Self { name, ..self.clone() }
    }

    /// It goes on with what is known from those before it.
    fn solid(&self, name: &'static str) -> Self {
        Self { compression: self.compression | Self::SOLID, ..self.named(name) }
    }

    /// With that BLAKE2sp, which is wrong, in place of a CRC-32.
    fn hashed(&self) -> Self {
        Self { crc: None, hash: Some([1; 32]), ..self.clone() }
    }

    fn block(&self) -> Vec<u8> {
        let mut body = [u64::from(self.crc.is_some()) << 2, self.size, 0o100_644].map(number).concat();
        body.extend(self.crc.iter().flat_map(|crc| crc.to_le_bytes()));
        body.extend([self.compression, 1, self.name.len() as u64].map(number).concat());
        body.extend(self.name.as_bytes());
        let mut extra = Vec::new();
        if let Some(hash) = self.hash {
            extra.extend([&[34, 2, 0][..], &hash].concat());
        }
        if self.is_encrypted {
            extra.extend([&[36, 1, 0, 0, 5][..], &[7; 32]].concat());
        }
        block(2, &body, &extra, &self.data)
    }
}

/// A solid archive.
fn archive(files: &[File]) -> Vec<u8> {
    let files: Vec<u8> = files.iter().flat_map(File::block).collect();
    [MARK, &block(1, &number(4), &[], &[]), &files, &block(5, &number(0), &[], &[])].concat()
}

/// The file of a real archive, with a CRC-32.
fn packed() -> File {
    let mut at = MARK.len();
    loop {
        let mut fields = &PACKED[at + 4..];
        let length = take(&mut fields) as usize;
        let data = PACKED.len() - fields.len() + length;
        let (kind, flags) = (take(&mut fields), take(&mut fields));
        if flags & 1 != 0 {
            take(&mut fields);
        }
        let stored = if flags & 2 != 0 { take(&mut fields) as usize } else { 0 };
        if kind != 2 {
            at = data + stored;
            continue;
        }
        let (flags, size) = (take(&mut fields), take(&mut fields));
        take(&mut fields);
        fields = &fields[if flags & 2 != 0 { 4 } else { 0 }..];
        fields = &fields[if flags & 4 != 0 { 4 } else { 0 }..];
        let (compression, _host, length) = (take(&mut fields), take(&mut fields), take(&mut fields));
        let name = std::str::from_utf8(&fields[..length as usize]).unwrap();
        let crc = Some(crc32fast::hash(&read(&opened(PACKED, false), name).unwrap()));
        let data = PACKED[data..data + stored].to_vec();
        return File { name: "a", size, compression, crc, data, ..File::default() };
    }
}

fn stored(name: &'static str, bytes: &[u8]) -> File {
    let crc = Some(crc32fast::hash(bytes));
    File { name, size: bytes.len() as u64, crc, data: bytes.to_vec(), ..File::default() }
}

fn opened(bytes: &[u8], force: bool) -> OpenArchive {
    let options = options();
    let options = Options { decoding: DecodingOptions { force, ..options.decoding }, ..options };
    open(memory("a.rar", bytes), &options).unwrap()
}

fn read(opened: &OpenArchive, name: &str) -> Result<Vec<u8>, Error> {
    let node = opened.tree.lookup(Node::ROOT, name.as_bytes()).unwrap().node;
    content(&*opened.tree, node)
}

#[track_caller]
fn kind(read: Result<Vec<u8>, Error>) -> io::ErrorKind {
    match read {
        Err(Error::Io(error)) => error.kind(),
        other => panic!("{other:?}"),
    }
}

/// How many files are damaged, and how many were compared with nothing.
fn counted(opened: &OpenArchive) -> (u64, u64) {
    let counted = opened.tree.damaged(9, &tarnfs_source::Cancel::default()).unwrap();
    (counted.damaged, counted.unchecked)
}

/// > Without `--force`, bytes whose checksum does not match are never served. Reading that range is an error, and the
/// > rest of the file is read.
///
/// > With `--force`, what can be decoded but fails its checksum is served, too, and marked. What is lost is an error.
#[test]
fn a_wrong_hash_takes_nothing_from_others_and_is_served_if_asked_for() {
    let whole = packed();
    let bytes = read(&opened(&archive(std::slice::from_ref(&whole)), false), "a").unwrap();
    assert_eq!(Some(crc32fast::hash(&bytes)), whole.crc);
    let alone = archive(&[whole.hashed()]);
    let solid = archive(&[whole.named("b"), whole.hashed().solid("a"), whole.solid("c"), whole.solid("d")]);
    for (archive, others) in [(alone, &[][..]), (solid, &["b", "c", "d"])] {
        let strict = opened(&archive, false);
        for name in others {
            assert!(read(&strict, name).unwrap() == bytes, "{name}");
        }
        assert_eq!(kind(read(&strict, "a")), io::ErrorKind::InvalidData);
        // Once more, now that it is known.
        assert_eq!(kind(read(&strict, "a")), io::ErrorKind::InvalidData);
        for name in others {
            assert!(read(&strict, name).unwrap() == bytes, "{name}");
        }
        assert_eq!(counted(&opened(&archive, false)), (1, 0));
        let lenient = opened(&archive, true);
        assert!(read(&lenient, "a").unwrap() == bytes);
        let mark = |name: &str| {
            let node = lenient.tree.lookup(Node::ROOT, name.as_bytes()).unwrap().node;
            lenient.tree.xattr(node, b"user.tarnfs.damaged").unwrap()
        };
        assert!(mark("a").is_some());
        for name in others {
            assert!(read(&lenient, name).unwrap() == bytes && mark(name).is_none(), "{name}");
        }
        assert_eq!(counted(&lenient), (1, 0));
    }
}

/// > What is whole in a damaged or cut archive is served, and the rest is an error.
#[test]
fn what_comes_before_one_that_cannot_be_decoded_is_read() {
    let whole = packed();
    let bytes = read(&opened(&archive(std::slice::from_ref(&whole)), false), "a").unwrap();
    // By a version of RAR that there is not yet.
    let unknown = File { compression: whole.compression | File::SOLID | 2, ..whole.named("b") };
    let unknown = opened(&archive(&[whole.clone(), unknown, whole.solid("c")]), false);
    assert!(read(&unknown, "a").unwrap() == bytes);
    assert_eq!(kind(read(&unknown, "b")), io::ErrorKind::InvalidData);
    assert_eq!(kind(read(&unknown, "c")), io::ErrorKind::InvalidData);
    assert!(read(&unknown, "a").unwrap() == bytes);
    // It has a password, which nobody gives.
    let locked = File { is_encrypted: true, ..whole.solid("b") };
    let locked = opened(&archive(&[whole.clone(), locked]), false);
    assert!(read(&locked, "a").unwrap() == bytes);
    assert_eq!(kind(read(&locked, "b")), io::ErrorKind::PermissionDenied);
}

/// > With `--force`, what can be decoded but fails its checksum is served, too, and marked. What is lost is an error.
#[test]
fn bytes_before_damage_come_first() {
    let whole = packed();
    let bytes = read(&opened(&archive(std::slice::from_ref(&whole)), false), "a").unwrap();
    let half = whole.data.len() / 2;
    for at in (half..whole.data.len()).step_by(131) {
        let mut damaged = whole.clone();
        damaged.data[at] ^= 0x55;
        let archive = archive(&[damaged]);
        assert_eq!(kind(read(&opened(&archive, false), "a")), io::ErrorKind::InvalidData, "{at}");
        let lenient = opened(&archive, true);
        let source = lenient.tree.open(lenient.tree.lookup(Node::ROOT, b"a").unwrap().node).unwrap();
        let mut first = vec![0; 512];
        source.read_exact_at(&mut first, 0).unwrap_or_else(|error| panic!("{at}: {error}"));
        assert!(first == bytes[..512], "{at}");
    }
}

#[test]
fn one_behind_what_leaves_nothing_is_whole() {
    let whole = packed();
    let bytes = read(&opened(&archive(std::slice::from_ref(&whole)), false), "a").unwrap();
    for first in [stored("first", b"stored\n"), stored("first", b"")] {
        let opened = opened(&archive(&[first, whole.solid("a")]), false);
        assert!(read(&opened, "a").unwrap() == bytes);
        assert_eq!(counted(&opened), (0, 0));
    }
}

/// > `check` of a zip, 7z or RAR archive says how many of its files were compared with nothing.
#[test]
fn files_that_nothing_can_be_compared_with_are_counted() {
    let whole = packed();
    let bytes = read(&opened(&archive(std::slice::from_ref(&whole)), false), "a").unwrap();
    let bare = |file: File| File { crc: None, ..file };
    let files = [
        stored("plain", b"1"),
        whole.named("packed"),
        bare(stored("bare", b"2")),
        bare(whole.named("bare and packed")),
        bare(stored("empty", b"")),
        // Longer than what is decoded before it is served.
        File { hash: Some([1; 32]), ..bare(stored("long", &vec![3; (16 << 20) + 1])) },
    ];
    let opened_all = opened(&archive(&files), false);
    assert_eq!(counted(&opened_all), (0, 3));
    assert!(read(&opened_all, "bare and packed").unwrap() == bytes);
    // A shorter one is compared.
    let short = File { hash: Some([1; 32]), ..bare(stored("short", &vec![4; 1 << 20])) };
    assert_eq!(counted(&opened(&archive(&[short]), false)), (1, 0));
}

/// > A file that goes on in another volume is a file, whatever its first part looks like.
#[test]
fn volumes_in_an_archive_stay_files() {
    let first: &[u8] = include_bytes!("../../../tests/archives/rar/solid_multivol.part01.rar");
    let last: &[u8] = include_bytes!("../../../tests/archives/rar/solid_multivol.part06.rar");
    let old: &[u8] = include_bytes!("../../../tests/archives/rar/compressed_multivol_prng_rar300.rar");
    let members = [("first.rar", first), ("last.rar", last), ("old.rar", old), ("whole.rar", PACKED)];
    let tar = members.map(|(name, bytes)| member(b'0', name, bytes)).concat();
    let extensions = [".rar".to_owned()].into();
    let shape = Shape { recursion: Some(Recursion { extensions, ..Recursion::default() }), ..Shape::default() };
    let opened = open(memory("a.tar", &[tar, vec![0; 1024]].concat()), &Options { shape, ..options() }).unwrap();
    for (name, bytes) in members {
        let found = opened.tree.lookup(Node::ROOT, name.as_bytes()).unwrap();
        if name == "whole.rar" {
            assert_eq!(found.kind, Kind::Folder);
        } else {
            assert!(read(&opened, name).unwrap() == bytes, "{name}");
        }
    }
}

/// > What is whole in a damaged or cut archive is served, and the rest is an error.
#[test]
fn where_names_are_encrypted_a_damaged_header_hides_only_what_is_behind_it() {
    let with = |bytes: &[u8], password: &str| {
        let (options, passwords) = (options(), Passwords::new(vec![Arc::from(password.as_bytes())]));
        let options = Options { decoding: DecodingOptions { passwords, ..options.decoding }, ..options };
        open(memory("a.rar", bytes), &options)
    };
    let whole = with(ENCRYPTED, "password").unwrap();
    assert_eq!(whole.index.summary().notes, []);
    let expected = read(&whole, "hello.txt").unwrap();
    let cut = |bytes: usize| ENCRYPTED[..ENCRYPTED.len() - bytes].to_vec();
    let mut flipped = ENCRYPTED.to_vec();
    flipped[ENCRYPTED.len() - 5] ^= 1;
    for (number, damaged) in [cut(1), cut(10), cut(20), cut(31), flipped].iter().enumerate() {
        let opened = with(damaged, "password").unwrap();
        assert!(read(&opened, "hello.txt").unwrap() == expected, "{number}");
        let notes = &opened.index.summary().notes;
        assert!(notes.len() == 1 && notes[0].1.contains("header"), "{number}: {notes:?}");
        assert!(with(damaged, "wrong").is_err(), "{number}");
    }
}
