//! What hostile zip archives cost in memory. One test, alone in its process, so that what it measures is its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use common::zip::{Made, locals, zip};
use tarnfs_format::zip::Zip;
use tarnfs_format::{Event, Options, ReadRandom};
use tarnfs_source::{FileSource, SharedSource};

/// The most memory that this process has had resident, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn hostile_archives_are_read_in_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.zip");
    let base = peak();
    let run = |what: &str, parts: &[(u64, &[u8])], expected: usize| {
        let file = fs::File::create(&path).unwrap();
        for (at, bytes) in parts {
            file.write_all_at(bytes, *at).unwrap();
        }
        let source: SharedSource = Arc::new(FileSource::open(&path).unwrap());
        let mut members = 0;
        let result = Zip.read(&source, &Options::default(), &mut |event| {
            members += usize::from(matches!(event, Event::Entry(_)));
            Ok(())
        });
        assert_eq!(members, expected, "{what}: {result:?}");
        let used = peak() - base;
        assert!(used < 64 << 20, "{what}: {used} bytes");
    };
    let number = |number: u64| number.to_le_bytes();
    let small = |number: usize| (number as u32).to_le_bytes();

    // 2^62 members in a directory of 2^62 bytes, where there is none.
    let record =
        [&b"PK\x06\x06"[..], &number(44), &[45, 0, 45, 0], &[0; 8], &number(1 << 62), &number(1 << 62)].concat();
    let record = [&record[..], &number(1 << 62), &number(8)].concat();
    let locator = [&b"PK\x06\x07\0\0\0\0"[..], &number(64 << 20), &[1, 0, 0, 0]].concat();
    let end = [&b"PK\x05\x06\0\0\0\0"[..], &[0xff; 12], &[0, 0]].concat();
    run("a large directory", &[(64 << 20, &[&record[..], &locator, &end].concat())], 0);

    // A directory of 32 MiB with the longest names, all of one member.
    let long = Made { extra: vec![0; 65_000], ..Made::new(&"n".repeat(65_000), b"") };
    let local = locals(std::slice::from_ref(&long));
    let archive = zip(&[long]);
    let header = &archive[local.len()..archive.len() - 22];
    let directory = header.repeat(250);
    let end = [&b"PK\x05\x06\0\0\0\0\xfa\0\xfa\0"[..], &small(directory.len()), &small(local.len()), &[0, 0]].concat();
    run(
        "long names",
        &[(0, &local), (local.len() as u64, &directory), ((local.len() + directory.len()) as u64, &end)],
        250,
    );

    // More members than are sorted at once, the last one first.
    let many = (1 << 20) + 1000;
    let archive = zip(&[Made::new("a", b"")]);
    let (local, header) = (&archive[..31], &archive[31..31 + 47]);
    let (locals, mut directory) = (local.repeat(many), header.repeat(many));
    for (place, header) in directory.chunks_mut(47).enumerate() {
        header[42..46].copy_from_slice(&small((many - 1 - place) * 31));
    }
    let end =
        [&b"PK\x05\x06\0\0\0\0\xe8\x03\xe8\x03"[..], &small(directory.len()), &small(locals.len()), &[0, 0]].concat();
    let base = peak();
    let parts: [(u64, &[u8]); 3] =
        [(0, &locals), (locals.len() as u64, &directory), ((locals.len() + directory.len()) as u64, &end)];
    let file = fs::File::create(folder.path().join("b.zip")).unwrap();
    for (at, bytes) in parts {
        file.write_all_at(bytes, at).unwrap();
    }
    let source: SharedSource = Arc::new(FileSource::open(folder.path().join("b.zip")).unwrap());
    let (mut last, mut members) = (None, 0);
    Zip.read(&source, &Options::default(), &mut |event| {
        if let Event::Entry(entry) = event {
            assert!(last.is_none_or(|last| last < entry.header));
            last = Some(entry.header);
            members += 1;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(members, many);
    assert!(peak() - base < 64 << 20, "{} bytes", peak() - base);
}
