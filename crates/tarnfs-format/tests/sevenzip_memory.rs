//! What hostile 7z archives cost in memory. One test, alone in its process, so that what it measures is its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::sync::Arc;

use tarnfs_format::sevenzip::SevenZip;
use tarnfs_format::{Event, Options, ReadRandom};
use tarnfs_source::{MemorySource, SharedSource};

/// The most memory that this process has had resident, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

fn number(value: usize) -> Vec<u8> {
    [&[0xff_u8][..], &(value as u64).to_le_bytes()].concat()
}

/// An archive without content, of this header.
fn archive(header: &[u8]) -> SharedSource {
    let crc = crc32fast::hash(header).to_le_bytes();
    let fields = [&[0; 8][..], &(header.len() as u64).to_le_bytes(), &crc].concat();
    let start = [&b"7z\xbc\xaf\x27\x1c\0\x04"[..], &crc32fast::hash(&fields).to_le_bytes(), &fields].concat();
    Arc::new(MemorySource::new([&start, header].concat(), "archive"))
}

/// Of `count` folders, each with `folder` of its number, and one empty file in each.
fn folders(count: usize, folder: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    let definitions: Vec<u8> = (0..count).flat_map(folder).collect();
    let names = vec![0; 2 * count];
    [
        &[1, 4, 6, 0][..],
        &number(count),
        &[9],
        &vec![0; count],
        &[0, 7, 11],
        &number(count),
        &[0],
        &definitions,
        &[12],
        &vec![0; count],
        &[0, 0, 5],
        &number(count),
        &[17],
        &number(names.len() + 1),
        &[0],
        &names,
        &[0, 0],
    ]
    .concat()
}

#[test]
fn hostile_headers_are_read_in_little_memory() {
    let run = |what: &str, header: &[u8], expected: Option<usize>| {
        let source = archive(header);
        let (base, mut entries, mut notes) = (peak(), 0, 0);
        let result = SevenZip.read(&source, &Options::default(), &mut |event| {
            match event {
                Event::Entry(_) => entries += 1,
                _ => notes += 1,
            }
            Ok(())
        });
        assert_eq!(expected.is_none(), result.is_err(), "{what}: {result:?}");
        assert_eq!(entries, expected.unwrap_or_default(), "{what}");
        assert!(notes <= 16, "{what}: {notes} notes");
        let used = peak() - base;
        assert!(used < (header.len() + (16 << 20)) as u64, "{what}: {used} bytes for a header of {}", header.len());
    };
    run("many folders", &folders(2 << 20, |_| vec![1, 1, 0x21]), Some(2 << 20));
    let properties = |number: usize| [&[1, 0x21, 0x21, 4][..], &(number as u32).to_le_bytes()].concat();
    run("each with a coder of its own", &folders(1 << 20, properties), Some(1 << 20));
    let unknown = |number: usize| [&[1, 4][..], &(number as u32).to_le_bytes()].concat();
    run("each of a method that is not known", &folders(1 << 20, unknown), Some(1 << 20));
    // Many large properties, which are in the header anyway.
    let large = |_| [&[1, 0x21, 0x21][..], &number(1 << 20), &vec![7; 1 << 20]].concat();
    run("large properties", &folders(20, large), Some(20));
    let bits = [&[1, 5][..], &number(1 << 20), &[14], &number(1 << 17), &vec![0xff; 1 << 17], &[0], &vec![0; 1 << 20]];
    // Files without names: only as many as there are bytes.
    run("nameless files", &bits.concat(), Some(1 << 20));
    run("more files than bytes", &[&[1, 5][..], &number(1 << 40), &[0]].concat(), None);
    run("more folders than bytes", &[&[1, 4, 7, 11][..], &number(1 << 40), &[0]].concat(), None);
    let sizes = [&[1, 4, 7, 11, 1, 0, 1, 1, 0, 12, 9, 0, 8, 13][..], &number(1 << 60), &[10, 1, 0, 0, 0]];
    run("more files in a folder than bytes", &sizes.concat(), None);
    let large = [&[0x17, 6, 0, 1, 9, 10, 0, 7, 11, 1, 0, 1, 1, 0x21, 12][..], &number(1 << 30), &[0, 0]];
    run("a header of a gigabyte", &large.concat(), None);
}
