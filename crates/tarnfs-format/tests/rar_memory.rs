//! What hostile RAR archives cost in memory. One test, alone in its process, so that what it measures is its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::{fs, io};

use tarnfs_format::rar::Rar;
use tarnfs_format::{Entry, Event, Options, ReadRandom};
use tarnfs_source::{SharedSource, Source};

/// The most memory that this process has had resident, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// A header of RAR 5 with its checksum. Numbers below 128 are their own byte.
fn block(fields: &[u8]) -> Vec<u8> {
    let header = [&[fields.len() as u8], fields].concat();
    [&crc32fast::hash(&header).to_le_bytes(), &header[..]].concat()
}

/// The header of a file "a" of `size` bytes with one byte behind it. `compression` has bits of seven in each byte.
fn file(flags: u8, size: u8, compression: &[u8]) -> Vec<u8> {
    let fields = [&[2, 2 | flags, 1, 4, size, 0, 0, 0, 0, 0][..], compression, &[1, 1, b'a']].concat();
    [block(&fields), vec![b'x']].concat()
}

/// An archive that takes no memory: `repeated` stands in it so many times.
#[derive(Debug)]
struct Archive {
    start: Vec<u8>,
    repeated: Vec<u8>,
    times: u64,
    end: Vec<u8>,
}

impl Archive {
    fn new(is_solid: bool, start: &[u8], repeated: Vec<u8>, times: u64, end: &[u8]) -> Arc<Self> {
        let main = block(&[1, 0, if is_solid { 4 } else { 0 }]);
        let start = [&b"Rar!\x1a\x07\x01\0"[..], &main, start].concat();
        Arc::new(Self { start, repeated, times, end: [end, &block(&[5, 0, 0])].concat() })
    }
}

impl Source for Archive {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let (mut at, mut read) = (offset, 0);
        let (start, length) = (self.start.len() as u64, self.repeated.len() as u64);
        let behind = start + length * self.times;
        while read < buffer.len() {
            let bytes = match at {
                _ if at < start => &self.start[at as usize..],
                _ if at < behind => &self.repeated[((at - start) % length) as usize..],
                _ => self.end.get((at - behind) as usize..).unwrap_or_default(),
            };
            if bytes.is_empty() {
                break;
            }
            let count = bytes.len().min(buffer.len() - read);
            buffer[read..read + count].copy_from_slice(&bytes[..count]);
            (at, read) = (at + count as u64, read + count);
        }
        Ok(read)
    }

    fn len(&self) -> u64 {
        self.start.len() as u64 + self.repeated.len() as u64 * self.times + self.end.len() as u64
    }

    fn describe(&self) -> String {
        "archive".to_owned()
    }
}

/// The last two entries, the last one first, and how many damages are told.
fn run(what: &str, archive: Arc<Archive>, most: u64) -> (Vec<Entry>, usize) {
    let source: SharedSource = archive;
    let (base, mut entries, mut damage) = (peak(), Vec::new(), 0);
    Rar.read(&source, &Options::default(), &mut |event| {
        match event {
            Event::Entry(entry) => {
                entries.truncate(1);
                entries.insert(0, *entry);
            }
            _ => damage += 1,
        }
        Ok(())
    })
    .unwrap();
    let used = peak() - base;
    assert!(used < most, "{what}: {used} bytes");
    (entries, damage)
}

#[test]
fn hostile_archives_are_read_in_little_memory() {
    // Two files that are decoded together: packed, and packed behind another one.
    let group = [file(0, 1, &[0x80, 1]), file(0, 1, &[0xc0, 1])].concat();
    let (entries, damage) = run("groups", Archive::new(true, &[], group, 100_000, &[]), 3 << 20);
    let skipped: Vec<_> = entries.iter().map(|entry| entry.body.pieces.as_deref().unwrap()[0].skip).collect();
    assert_eq!((skipped, damage), (vec![1, 0], 0));
    // Parts of a file that is stored as it is.
    let (continued, goes_on) = (1 << 3, 1 << 4);
    let [first, next, last] = [goes_on, goes_on | continued, continued].map(|flags| file(flags, 9, &[0]));
    let (entries, damage) = run("parts", Archive::new(false, &first, next, 400_000, &last), 16 << 20);
    let pieces = entries[0].body.pieces.as_deref().unwrap();
    assert_eq!((entries.len(), damage, pieces.len(), pieces[0].length), (1, 1, 1, 9));
    assert!(pieces[0].coder.as_ref().unwrap().steps[0].codec.contains("cannot be"));
}
