//! What hostile archives cost in memory. One test, alone in its process, so that what it measures is its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use common::{Block, END, file, member, try_read_source};
use tarnfs_format::{Options, name};
use tarnfs_source::{FileSource, Limits};

/// The most memory that this process has had resident, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
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

    // A path of 500 000 components, 1 MB, and what becomes of it.
    let deep = "d/".repeat(500_000) + "file";
    let long = |path: &str| member(Block::new("long", b'L').gnu(), format!("{path}\0").as_bytes());
    let archive = [long(&deep), file("short", b"1"), tail].concat();
    run("a deep path", &archive, archive.len() as u64, &[], 2);
    let limits = Limits { path: usize::MAX, ..Limits::default() };
    assert_eq!(name::components(deep.as_bytes(), &limits).iter().count(), 2);
    assert!(peak() - base < 100 << 20);
}
