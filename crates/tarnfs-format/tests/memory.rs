//! What hostile archives cost in memory. One test, alone in its process, so that what it measures is its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use common::{Block, END, file, member, try_read_source};
use tarnfs_format::stream::Part;
use tarnfs_format::{Event, Options, SourceStream, Stream, by_name, name};
use tarnfs_source::{Cancel, FileSource, Limits};

/// The most memory that this process has had resident, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// How many tars lie in each other: each is read while what has read the one around it waits.
fn levels(stream: &mut dyn Stream) -> usize {
    let (mut count, options) = (0, Options::default());
    let reader = by_name("tar").unwrap().forwards().unwrap();
    let result = reader.read(stream, &options, &mut |event, stream| {
        if let Event::Entry(entry) = event {
            let end = entry.body.offset + entry.body.size;
            count += 1 + if entry.body.size > 0 { levels(&mut Part::new(stream, end)) } else { 0 };
        }
        Ok(())
    });
    result.unwrap();
    count
}

#[test]
fn hostile_archives_are_read_in_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    let base = peak();
    let run = |what: &str, head: &[u8], length: u64, tail: &[u8], expected: usize| {
        let archive = fs::File::create(&path).unwrap();
        archive.set_len(length).unwrap();
        archive.write_all_at(head, 0).unwrap();
        archive.write_all_at(tail, length).unwrap();
        let told = try_read_source(Arc::new(FileSource::open(&path).unwrap()), &Options::default()).unwrap();
        assert_eq!(told.entries.len(), expected, "{what}: {:?}", told.damage);
        let used = peak() - base;
        assert!(used < 100 << 20, "{what}: {used} bytes");
    };
    let four_gigabytes = |typeflag| {
        let mut block = Block::new("header", typeflag);
        block.gnu().size(4 << 30).done()
    };
    let tail = [file("after", b"1"), END.to_vec()].concat();
    for typeflag in *b"xgLKX" {
        // 8 KiB that say 4 GiB, and 4 GiB that are there (in a sparse file).
        run("a header that is cut", &four_gigabytes(typeflag), 8192, &[], 0);
        let expected = usize::from(!matches!(typeflag, b'x' | b'X'));
        run("a header that is there", &four_gigabytes(typeflag), (4 << 30) + 512, &tail, expected);
    }
    // Each value far more than what is left of the archive.
    let mut sparse = Block::new("sparse", b'S');
    sparse.gnu().size(8 << 30).octal(483, 12, 8 << 30);
    sparse.0[482] = 1;
    run("a map that is cut", &sparse.done(), 512, &[1; 512 * 3], 0);
    let major: [(&str, &[u8]); 2] = [("GNU.sparse.major", b"1"), ("GNU.sparse.minor", b"0")];
    let lines = [b"99999999999\n".to_vec(), b"1\n1\n".repeat(300_000)].concat();
    let archive = [common::pax(b'x', &major), member(Block::new("lines", b'0').ustar(), &lines), tail.clone()].concat();
    run("a map that says it is long", &archive, archive.len() as u64, &[], 1);

    // Tars in each other, of which each has three long headers: none of them is kept while what is in it is read.
    let text = vec![b'x'; 4 << 20];
    let records = common::pax(b'x', &[("path", b"a.tar"), ("linkpath", &text)]);
    let names = [b'L', b'K'].map(|kind| member(Block::new("long", kind).gnu(), &text));
    let head = [names.concat(), records].concat();
    let mut length = 0;
    let blocks: Vec<_> = (0..12)
        .map(|_| {
            let mut block = Block::new("a", b'0');
            let block = block.ustar().size(length).done();
            length += (head.len() + block.len()) as u64;
            block
        })
        .collect();
    let archive = fs::File::create(&path).unwrap();
    for (number, block) in blocks.iter().rev().enumerate() {
        let at = (number * (head.len() + block.len())) as u64;
        archive.write_all_at(&head, at).unwrap();
        archive.write_all_at(block, at + head.len() as u64).unwrap();
    }
    let source = Arc::new(FileSource::open(&path).unwrap());
    let mut stream = SourceStream::new(source, Cancel::default());
    assert_eq!(levels(&mut stream), 12);
    let used = peak() - base;
    assert!(used < 100 << 20, "tars in each other: {used} bytes");

    // A path of 500 000 components, 1 MB, and what becomes of it.
    let deep = "d/".repeat(500_000) + "file";
    let long = |path: &str| member(Block::new("long", b'L').gnu(), format!("{path}\0").as_bytes());
    let archive = [long(&deep), file("short", b"1"), tail].concat();
    run("a deep path", &archive, archive.len() as u64, &[], 2);
    let limits = Limits { path: usize::MAX, ..Limits::default() };
    assert_eq!(name::components(deep.as_bytes(), &limits).iter().count(), 2);
    assert!(peak() - base < 100 << 20);
}
