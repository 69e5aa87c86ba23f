//! Compressions: a block goes in, and comes out as what can stand beside others in a stream, and be decoded without
//! them.

mod bzip2;
mod gzip;
mod lz4;
mod plain;
mod xz;
mod zstd;

use std::io;
use std::ops::RangeInclusive;

/// One way to compress.
pub trait Compression: Send + Sync {
    /// The name of the codec that undoes it ([`tarnfs_codec::by_name`]); "none" if there is nothing to undo.
    fn name(&self) -> &'static str;

    /// What names of files compressed so end in: `.gz`. A tar has `.tar` before it, or one of [`Compression::short`].
    fn suffix(&self) -> &'static str;

    /// Suffixes that stand for that of the tar as well: `.tgz`.
    fn short(&self) -> &'static [&'static str];

    /// Levels that there are.
    fn levels(&self) -> RangeInclusive<i32>;

    /// The one that is taken if none is named.
    fn usual_level(&self) -> i32;

    /// Bytes that are compressed at once.
    fn block(&self, level: i32) -> usize;

    /// Bytes from one place in a block to the next where decoding can start.
    fn part(&self, level: i32) -> usize {
        self.block(level)
    }

    /// Bytes of memory that a [`Compressor`] takes beside the block and what comes of it, roughly.
    fn memory(&self, level: i32) -> u64;

    /// Decoded bytes between two seek points of an index at least: what a first pass would leave between them.
    fn spacing(&self) -> u64;

    /// What compresses blocks, for one thread.
    fn compressor(&self, level: i32) -> io::Result<Box<dyn Compressor>>;

    /// What stands around the blocks.
    fn frame(&self, level: i32) -> Box<dyn Frame>;

    /// True if blocks go to the file as they are.
    fn is_plain(&self) -> bool {
        false
    }
}

/// Compresses one block after the other.
pub trait Compressor: Send {
    /// Appends what `data` becomes to the empty `block`.
    fn compress(&mut self, data: &[u8], block: &mut Block) -> io::Result<()>;
}

/// A block when it is compressed.
#[derive(Debug, Default)]
pub struct Block {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Places in it where decoding can start, in order.
    pub points: Vec<Point>,
    /// What the frame has to know of it.
    pub note: u64,
}

impl Block {
    /// Nothing, with the memory kept.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.points.clear();
        self.note = 0;
    }
}

/// A place in a block where decoding can start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    /// Bits from the block's first byte on.
    pub bit: u64,
    /// Bytes that are decoded before it, from the block's first one on.
    pub decoded: u64,
    /// As [`tarnfs_codec::SeekPoint::state`].
    pub state: Vec<u8>,
}

impl Point {
    fn at_start(state: &[u8]) -> Self {
        Self { bit: 0, decoded: 0, state: state.to_vec() }
    }
}

/// What stands around the blocks of a stream; it sees them in order.
pub trait Frame: Send {
    /// What stands before the first block.
    fn start(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes note of a block that `data` became.
    fn add(&mut self, data: &[u8], block: &Block) {
        let _ = (data, block);
    }

    /// What stands behind the last one.
    fn end(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// The [`tarnfs_codec::SeekPoint::state`] of the start of the stream.
    fn first_state(&self) -> Vec<u8> {
        Vec::new()
    }
}

/// Nothing around the blocks.
struct Bare;

impl Frame for Bare {}

/// Decoded bytes between two places where decoding can start, in the index of an archive that is written so, if the
/// compression itself has one at every `part` bytes.
pub fn apart(compression: &dyn Compression, part: u64) -> u64 {
    let spacing = compression.spacing().max(part);
    spacing.checked_next_multiple_of(part.max(1)).unwrap_or(spacing)
}

/// All of them.
pub static COMPRESSIONS: &[&dyn Compression] =
    &[&plain::Plain, &bzip2::Bzip2, &gzip::Gzip, &lz4::Lz4, &xz::Xz, &zstd::Zstd];

/// The one of that name: "gzip", or what its files are called, "gz".
pub fn by_name(name: &str) -> Option<&'static dyn Compression> {
    let is_it = |one: &&dyn Compression| one.name() == name || one.suffix().strip_prefix('.') == Some(name);
    COMPRESSIONS.iter().copied().find(is_it)
}

/// Of `threads`, those for which there is `memory` in bytes: each takes two blocks and what comes of them. One always
/// works.
pub fn threads(compression: &dyn Compression, level: i32, threads: usize, memory: u64) -> usize {
    let one = compression.memory(level) + 4 * compression.block(level) as u64;
    let room = usize::try_from(memory / one).unwrap_or(usize::MAX);
    threads.min(room).max(1)
}

/// The one that the name of an archive stands for, in small letters: `x.tar.gz`, `x.tgz`, `x.tar`.
pub(crate) fn of_archive(suffix: &str, name: &[u8]) -> Option<&'static dyn Compression> {
    let ends = |end: &str| name.len() > end.len() && name.ends_with(end.as_bytes());
    COMPRESSIONS
        .iter()
        .copied()
        .find(|one| ends(&format!("{suffix}{}", one.suffix())) || one.short().iter().any(|suffix| ends(suffix)))
}

/// What comes of an error in one of the libraries.
fn failed(what: &str, error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("compressing with {what} failed: {error}"))
}

#[cfg(test)]
mod tests;
