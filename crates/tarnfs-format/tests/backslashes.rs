//! Names in encodings of East Asia, where half of a character looks like what separates names: of each format with
//! backslashes, archives that are made by hand.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use tarnfs_format::encoding::Encoding;
use tarnfs_format::{Entry, Event, Kind, Options, Reader, by_name};
use tarnfs_source::{MemorySource, SharedSource};

/// ソフト in Shift-JIS, and 表 as a folder.
const NAME: &[u8] = b"\x83\x5c\x83\x74\x83\x67.txt";
const INSIDE: &[u8] = b"\x95\x5c\\\x83\x5c\x83\x74\x83\x67.txt";
const SHOWN: &[u8] = b"\x95\x5c/\x83\x5c\x83\x74\x83\x67.txt";

fn le(number: usize) -> [u8; 4] {
    (number as u32).to_le_bytes()
}

/// A header of LHA of level 0, of Unix with that mode.
fn lha_0(name: &[u8], mode: u16) -> Vec<u8> {
    let start = [b"-lh0-", &[0; 8][..], &[0, 0, 0x21, 0, 0x20, 0, name.len() as u8], name, &[0, 0]].concat();
    let fields = [&start[..], &[b'U', 0, 0, 0, 0, 0], &mode.to_le_bytes(), &[0; 4]].concat();
    let sum = fields.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    [&[fields.len() as u8, sum], &fields[..]].concat()
}

/// One of level 2, with the folder in an extension of its own.
fn lha_2(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let extensions = [(1_u8, name), (2, folder)].map(|(kind, text)| [&[kind], text].concat());
    let [first, second] = [&extensions[0], &extensions[1]].map(|content| (content.len() as u16 + 2).to_le_bytes());
    let rest = [&first[..], &extensions[0], &second, &extensions[1], &[0, 0]].concat();
    let fields = [b"-lh0-", &[0; 8][..], &[0, 0, 0, 0, 0x20, 2, 0, 0, b'M'], &rest].concat();
    [&(fields.len() as u16 + 2).to_le_bytes(), &fields[..]].concat()
}

/// A cabinet of empty files.
fn cab(names: &[&[u8]]) -> Vec<u8> {
    let file = |name: &&[u8]| [&[0; 10][..], &[0x21, 0x4a, 0, 0, 0x20, 0], *name, &[0]].concat();
    let files: Vec<u8> = names.iter().flat_map(file).collect();
    let length = 36 + 8 + files.len();
    let counts = [3, 1, 1, 0, names.len() as u8, 0, 0, 0, 0, 0, 0, 0];
    let header = [b"MSCF", &[0; 4][..], &le(length), &[0; 4], &le(36 + 8), &[0; 4], &counts].concat();
    [&header[..], &le(length), &[0; 4], &files].concat()
}

/// A block of RAR 4.
fn rar_block(kind: u8, flags: u16, fields: &[u8]) -> Vec<u8> {
    let length = (fields.len() + 7) as u16;
    let rest = [&[kind], &flags.to_le_bytes()[..], &length.to_le_bytes(), fields].concat();
    [&(crc32fast::hash(&rest) as u16).to_le_bytes(), &rest[..]].concat()
}

fn rar(names: &[&[u8]]) -> Vec<u8> {
    let file = |name: &&[u8]| {
        let fields = [&[0; 8][..], &[2], &[0; 8], &[20, 0x30, name.len() as u8, 0, 0x20, 0, 0, 0], *name].concat();
        rar_block(0x74, 0x8000, &fields)
    };
    let files: Vec<u8> = names.iter().flat_map(file).collect();
    [b"Rar!\x1a\x07\0".to_vec(), rar_block(0x73, 0, &[0; 6]), files, rar_block(0x7b, 0x4000, &[])].concat()
}

/// A header of ARJ, with its checksum, and no extended one.
fn arj_header(kind: u8, name: &[u8]) -> Vec<u8> {
    let fields = [&[30, 11, 1, 0, 0, 0, kind, 0][..], &[0, 0, 0x21, 0x4a], &[0; 18], name, &[0, 0]].concat();
    let length = (fields.len() as u16).to_le_bytes();
    [&[0x60, 0xea][..], &length, &fields, &crc32fast::hash(&fields).to_le_bytes(), &[0, 0]].concat()
}

fn arj(names: &[&[u8]]) -> Vec<u8> {
    let files: Vec<u8> = names.iter().flat_map(|name| arj_header(0, name)).collect();
    [arj_header(2, b"x.arj"), files, vec![0x60, 0xea, 0, 0]].concat()
}

fn zip(names: &[&[u8]]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::<u8>::new(), Vec::<u8>::new());
    for &name in names {
        let at = bytes.len();
        let common = [&[20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0][..], &[0; 12], &[name.len() as u8, 0, 0, 0]].concat();
        bytes.extend([b"PK\x03\x04", &common[..], name].concat());
        directory.extend([b"PK\x01\x02\x14\0", &common[..], &[0; 10], &le(at), name].concat());
    }
    let count = names.len() as u8;
    let end = [b"PK\x05\x06", &[0, 0, 0, 0, count, 0, count, 0][..], &le(directory.len()), &le(bytes.len()), &[0, 0]];
    let end = end.concat();
    [bytes, directory, end].concat()
}

/// The entries of an archive, with names in the encoding that is told.
fn entries(format: &str, archive: Vec<u8>, told: Option<&str>) -> Vec<Entry> {
    let source: SharedSource = Arc::new(MemorySource::new(archive, "archive"));
    let encoding = told.map(|told| Encoding::for_name(told).unwrap());
    let options = Options { guess_encoding: encoding.is_none(), encoding, ..Options::default() };
    let mut entries = Vec::new();
    let Reader::Random(reader) = by_name(format).unwrap().reader() else { panic!("it has a directory") };
    reader
        .read(&source, &options, &mut |event| {
            match event {
                Event::Entry(entry) => entries.push(*entry),
                other => panic!("{format}: {other:?}"),
            }
            Ok(())
        })
        .unwrap();
    entries
}

fn paths(entries: &[Entry]) -> Vec<&[u8]> {
    entries.iter().map(|entry| &entry.path[..]).collect()
}

#[test]
fn halves_of_characters_separate_nothing() {
    let names = [NAME, INSIDE, b"d\\e"];
    let lha = [names.map(|name| lha_0(name, 0o100_644)).concat(), vec![0]].concat();
    for told in [Some("cp932"), None] {
        for (format, archive) in
            [("lha", lha.clone()), ("cab", cab(&names)), ("rar", rar(&names)), ("arj", arj(&names))]
        {
            assert_eq!(paths(&entries(format, archive, told)), [NAME, SHOWN, b"d/e"], "{format} {told:?}");
        }
    }
    // Where they are no halves.
    for (format, archive) in [("lha", lha), ("cab", cab(&names)), ("rar", rar(&names)), ("arj", arj(&names))] {
        let found = entries(format, archive, Some("cp437"));
        assert_eq!(paths(&found)[0], b"\x83/\x83\x74\x83\x67.txt", "{format}");
    }
}

#[test]
fn later_levels_have_a_separator_of_their_own() {
    let archive = [lha_2(b"\x95\x5c\xff", NAME), lha_2(b"a\xffb\xff", b"c"), vec![0]].concat();
    for told in [Some("cp932"), None] {
        assert_eq!(paths(&entries("lha", archive.clone(), told)), [SHOWN, b"a/b/c"], "{told:?}");
    }
}

/// ポ ends in the byte that stands before the target of a link.
#[test]
fn halves_of_characters_begin_no_target() {
    let archive = [lha_0(b"\x83\x7c|\x95\x5c", 0o120_777), vec![0]].concat();
    let found = entries("lha", archive, Some("cp932"));
    assert_eq!(
        (found[0].kind, paths(&found)[0], &found[0].link[..]),
        (Kind::Symlink, &b"\x83\x7c"[..], &b"\x95\x5c"[..])
    );
}

/// Whoever told the encoding gets the folders that are there where it was guessed.
#[test]
fn names_of_a_zip_are_separated_in_the_encoding_that_is_told() {
    for told in [Some("cp932"), None] {
        let found = entries("zip", zip(&[INSIDE, b"d\\\x83\x65\x83\x58\x83\x67.txt"]), told);
        let expected = ["表/ソフト.txt", "d/テスト.txt"].map(str::as_bytes);
        assert_eq!(paths(&found), expected, "{told:?}");
    }
}
