//! What is fuzzed: one function for each parser and codec. Each takes any bytes and must return: no panic, no endless loop, no
//! memory beyond the limits. `fuzz_targets/` hands them to libFuzzer; `tests/seeds.rs` runs them over the corpus on stable Rust.

#![allow(clippy::missing_panics_doc, missing_docs)]

use std::io;
use std::sync::Arc;

use tarnfs_codec::engine::{DecodedSource, Indexing, PieceCache, Workers};
use tarnfs_codec::{Chunk, ChunkTable, Damage};
use tarnfs_format::{Event, SourceStream};
use tarnfs_source::{Budget, Cancel, Limits, MemorySource, SharedSource, Source};

/// Decoded bytes after which a pass ends: a bomb would take all the time there is.
const MOST_DECODED: u64 = 16 << 20;

fn source(data: &[u8]) -> SharedSource {
    Arc::new(MemorySource::new(data, "fuzzed"))
}

/// Reads the members of a tar; every body must be readable or fail.
pub fn tar(data: &[u8]) {
    for (ignore_zeros, gnu_incremental) in [(false, Some(false)), (true, None)] {
        let options = tarnfs_format::Options { ignore_zeros, gnu_incremental, ..tarnfs_format::Options::default() };
        let mut stream = SourceStream::new(source(data), Cancel::default());
        let mut last = 0;
        let mut entries = 0_usize;
        let result = tarnfs_format::tar::Tar.read_all(&mut stream, &options, &mut |event| {
            if let Event::Entry(entry) = event {
                assert!(entry.header >= last, "headers go forward");
                last = entry.header;
                entries += 1;
                tarnfs_format::name::components(&entry.path, &options.limits);
            }
            Ok(())
        });
        drop(result);
        assert!(entries <= data.len() / 512 + 1, "an entry takes a block");
    }
}

trait ReadAll {
    fn read_all(
        &self,
        stream: &mut SourceStream,
        options: &tarnfs_format::Options,
        receive: &mut dyn FnMut(Event) -> io::Result<()>,
    ) -> Result<(), tarnfs_format::Error>;
}

impl<F: tarnfs_format::Format> ReadAll for F {
    fn read_all(
        &self,
        stream: &mut SourceStream,
        options: &tarnfs_format::Options,
        receive: &mut dyn FnMut(Event) -> io::Result<()>,
    ) -> Result<(), tarnfs_format::Error> {
        self.read(stream, options, receive)
    }
}

/// Components never leave the root and are names that Linux takes.
pub fn names(data: &[u8]) {
    let limits = Limits::default();
    for component in tarnfs_format::name::components(data, &limits).iter() {
        assert!(!component.is_empty() && component.len() <= limits.name);
        assert!(!component.contains(&b'/') && !component.contains(&0) && component != b"." && component != b"..");
    }
    let shown = tarnfs_format::name::escape(data).to_string();
    assert!(!shown.chars().any(char::is_control));
}

/// The chunks of a first pass, as an index would hold them.
#[derive(Debug, Default)]
struct Table {
    chunks: Vec<Chunk>,
    damage: Vec<Damage>,
    length: u64,
}

impl ChunkTable for Table {
    fn chunk_at(&self, decoded: u64) -> io::Result<Option<Chunk>> {
        let next = self.chunks.partition_point(|chunk| chunk.point.decoded <= decoded);
        let chunk = next.checked_sub(1).and_then(|last| self.chunks.get(last));
        Ok(chunk.filter(|chunk| decoded - chunk.point.decoded < chunk.length).cloned())
    }

    fn decoded_length(&self) -> u64 {
        self.length
    }

    fn damage_in(&self, range: std::ops::Range<u64>) -> io::Result<Option<Damage>> {
        Ok(self.damage.iter().find(|damage| damage.decoded.start < range.end && range.start < damage.decoded.end).cloned())
    }
}

/// Decodes a stream from its start, then again from every seek point in reverse: the same bytes must come out.
fn codec(name: &str, data: &[u8]) {
    let codec = tarnfs_codec::by_name(name).expect("it is in the table");
    codec.bid(&data[..data.len().min(4096)]);
    let limits = Limits { decoder_window: 8 << 20, lzma_dictionary: 16 << 20, ..Limits::default() };
    let options = tarnfs_codec::Options { seek_point_spacing: 4096, limits, ..tarnfs_codec::Options::default() };
    let Ok(mut indexing) = Indexing::new(codec, source(data), &options) else { return };
    let mut table = Table::default();
    let mut decoded = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    while (decoded.len() as u64) < MOST_DECODED {
        match indexing.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(read) => decoded.extend_from_slice(&buffer[..read]),
        }
    }
    indexing.take_chunks(&mut table.chunks);
    indexing.take_damage(&mut table.damage);
    table.length = decoded.len() as u64;
    assert_eq!(indexing.decoded_position(), table.length);
    let points: Vec<u64> = table.chunks.iter().rev().take(16).map(|chunk| chunk.point.decoded).collect();
    let again = DecodedSource::new(
        codec,
        source(data),
        Arc::new(table),
        PieceCache::new(Budget::new(8 << 20)),
        Workers::new(1),
        limits,
    );
    for point in points {
        let mut buffer = vec![0; 5000];
        if let Ok(read) = again.read_at(&mut buffer, point) {
            let start = point as usize;
            assert!(buffer[..read] == decoded[start..start + read], "{name}: other bytes at {point}");
        }
    }
}

pub fn gzip(data: &[u8]) {
    codec("gzip", data);
}

pub fn zlib(data: &[u8]) {
    codec("zlib", data);
}

pub fn deflate(data: &[u8]) {
    codec("deflate", data);
}

pub fn bzip2(data: &[u8]) {
    codec("bzip2", data);
}

pub fn xz(data: &[u8]) {
    codec("xz", data);
}

pub fn zstd(data: &[u8]) {
    codec("zstd", data);
}

pub fn lz4(data: &[u8]) {
    codec("lz4", data);
}
