//! What takes much memory is told before it is read: archives that are read beside each other take turns then.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::sync::Arc;

use common::{END, file, padded, pax};
use tarnfs_format::{Event, Options, SourceStream, by_name};
use tarnfs_source::{Cancel, MemorySource};

/// What is told of an archive, in its order, with the bytes of it that were passed by then.
fn told(format: &str, archive: &[u8]) -> Vec<(String, u64)> {
    let source = Arc::new(MemorySource::new(archive, "archive"));
    let mut told = Vec::new();
    let format = by_name(format).unwrap().forwards().unwrap();
    let read = format.read(&mut SourceStream::new(source, Cancel::default()), &Options::default(), &mut |event, at| {
        match event {
            Event::Heavy => told.push(("heavy".to_owned(), at.position())),
            Event::Entry(entry) => {
                let name = String::from_utf8_lossy(entry.path.get(..6).unwrap_or(&entry.path)).into_owned();
                told.push((name, 0));
            }
            _ => {}
        }
        Ok(())
    });
    read.unwrap();
    told
}

fn of(name: &str) -> (String, u64) {
    (name.to_owned(), 0)
}

fn heavy(at: u64) -> (String, u64) {
    ("heavy".to_owned(), at)
}

#[test]
fn long_headers_of_tar_are_told_before_they_are_read() {
    for kind in [b'x', b'g'] {
        for (length, expected) in [(1000, vec![of("a")]), (2 << 20, vec![heavy(512), of("a")])] {
            let archive = [pax(kind, &[("comment", &vec![b'n'; length])]), file("a", b"1"), END.to_vec()].concat();
            assert_eq!(told("tar", &archive), expected, "{} {length}", char::from(kind));
        }
    }
}

#[test]
fn long_maps_of_sparse_files_are_told_while_they_are_read() {
    for (extents, is_told) in [(100_usize, false), (60_000, true)] {
        let map = (0..extents).map(|number| format!("{}\n1\n", 2 * number)).collect::<Vec<_>>().concat();
        let content = [padded(format!("{extents}\n{map}").as_bytes()), vec![b'x'; extents]].concat();
        let size = (2 * extents).to_string();
        let records: [(&str, &[u8]); 3] =
            [("GNU.sparse.major", b"1"), ("GNU.sparse.minor", b"0"), ("GNU.sparse.realsize", size.as_bytes())];
        let archive = [pax(b'x', &records), file("sparse", &content), END.to_vec()].concat();
        let names: Vec<_> = told("tar", &archive).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, if is_told { vec!["heavy", "sparse"] } else { vec!["sparse"] });
    }
}

#[test]
fn long_names_of_other_formats_are_told_before_they_are_read() {
    let member = |name: &str, content: &[u8]| {
        let header = format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 644, content.len());
        [header.as_bytes(), content].concat()
    };
    let names = "long-name.txt/\n".repeat(100_000);
    let archive = [b"!<arch>\n".to_vec(), member("//", names.as_bytes()), member("/0", b"1\n")].concat();
    assert_eq!(told("ar", &archive), [heavy(68), of("long-n")]);
    let archive = [b"!<arch>\n".to_vec(), member("//", b"long-name.txt/\n\n"), member("/0", b"1\n")].concat();
    assert_eq!(told("ar", &archive), [of("long-n")]);
    let entry = |name: &str| cpio(name, 1, 1, 1);
    let archive = [entry(&"n".repeat(2 << 20)), entry("TRAILER!!!")].concat();
    assert_eq!(told("cpio", &archive), [heavy(110), of("nnnnnn")]);
    assert_eq!(told("cpio", &[entry("n"), entry("TRAILER!!!")].concat()), [of("n")]);
}

/// A file of cpio that is empty, and has so many names.
fn cpio(name: &str, inode: u32, kind: u32, names: u32) -> Vec<u8> {
    let numbers = [inode, kind << 15 | 0o644, 0, 0, names, 0, 0, 0, 0, 0, 0, name.len() as u32 + 1, 0];
    let numbers = numbers.map(|number: u32| format!("{number:08x}")).concat();
    let mut bytes = format!("070701{numbers}{name}\0").into_bytes();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[test]
fn names_that_wait_are_told_once_there_are_many() {
    for (files, expected) in [(100, 0), (2000, 1)] {
        let name = |number: u32| format!("{number:06}/{}", "n".repeat(2000));
        let mut archive: Vec<u8> = (0..files).flat_map(|number| cpio(&name(number), number, 1, 2)).collect();
        archive.extend(cpio("TRAILER!!!", 0, 0, 1));
        let told = told("cpio", &archive);
        let before = told.iter().take_while(|(name, _)| name != "heavy").count();
        assert_eq!(told.iter().filter(|(name, _)| name == "heavy").count(), expected);
        // Before the names are told, which is at the end.
        assert_eq!((told.len(), before), (files as usize + expected, if expected > 0 { 0 } else { 100 }));
    }
}

#[test]
fn long_headers_of_rpm_are_told_before_they_are_read() {
    // One tag, which is a string, and other bytes.
    let header = |bytes: usize| {
        let numbers = [1, bytes as u32, 1000, 6, 0, 1].map(u32::to_be_bytes).concat();
        [&b"\x8e\xad\xe8\x01\0\0\0\0"[..], &numbers, b"x", &vec![0; bytes - 1]].concat()
    };
    let payload = [cpio("./f", 1, 1, 1), cpio("TRAILER!!!", 0, 0, 1)].concat();
    for (bytes, is_told) in [(8, false), (2 << 20, true)] {
        let package = [header(8), header(bytes), payload.clone()].concat();
        let expected = if is_told { vec![heavy(40), of("./f")] } else { vec![of("./f")] };
        assert_eq!(told("rpm", &package), expected, "{bytes}");
    }
}
