use std::io;
use std::sync::Arc;

use tarnfs_source::{Budget, Grant};

use super::decoded_file::{DecodedFile, DecodedFileWriter, WRITER_MEMORY};
use super::fill::is_quiet;
use super::missed::{Missed, MissedPiece};
use crate::sync::Mutex;

/// Writes pieces of a stream into the file that keeps it decoded.
///
/// Two do so: the thread of [`Fill`](super::Fill), and workers, where pieces of random reads wait and that thread does
/// not get the processor. It is locked while pieces are packed and written, never while something is decoded. Workers
/// do not wait for the lock: whoever holds it may get the processor very late.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) writer: DecodedFileWriter,
    /// For the writer.
    memory: Option<Grant>,
}

/// Level of zstd for what is kept, and while somebody reads.
const LEVEL: i32 = 1;
const FAST_LEVEL: i32 = -5;

/// While somebody reads, pieces are not packed before the file is so long: others wait for them.
const MOST_UNPACKED: u64 = 512 << 20;

impl Keeper {
    pub(super) fn new(writer: DecodedFileWriter) -> (Arc<Mutex<Self>>, Arc<DecodedFile>) {
        let file = Arc::clone(writer.file());
        (Arc::new(Mutex::new(Self { writer, memory: None })), file)
    }

    /// True if the writer has the memory that it needs, which is taken of `budget` once.
    pub(super) fn has_memory(&mut self, budget: &Budget) -> bool {
        if self.memory.is_none() {
            self.memory = budget.take(WRITER_MEMORY);
        }
        self.memory.is_some()
    }

    /// Gives back what it does not need until there is more to write.
    pub(super) fn rest(&mut self) {
        self.writer.rest();
        self.memory = None;
    }

    /// The level of zstd at which a piece is packed now.
    fn level(&self) -> Option<i32> {
        match () {
            () if is_quiet() => Some(LEVEL),
            () if self.writer.length() < MOST_UNPACKED => None,
            () => Some(FAST_LEVEL),
        }
    }

    /// Adds a piece of `stream` that has this checksum, unless it is there.
    pub(super) fn add(&mut self, stream: u64, start: u64, piece: &[u8], checksum: u32) -> io::Result<()> {
        if self.writer.file().has(stream, start, checksum, piece.len()) {
            return Ok(());
        }
        let level = self.level();
        self.writer.add(stream, start, piece, checksum, level)
    }

    /// Keeps pieces that random reads have decoded, from `first` on.
    pub(super) fn add_missed(&mut self, stream: u64, first: MissedPiece, missed: &Missed) -> io::Result<()> {
        let mut next = Some(first);
        while let Some(MissedPiece { start, checksum, piece, .. }) = next {
            self.add(stream, start, &piece, checksum)?;
            if self.writer.is_behind() {
                break;
            }
            next = missed.take_piece();
        }
        // Then it is known that they are there, and they are not decoded again with the rest of their chunk.
        self.writer.flush()
    }

    /// The same on a worker: not where pieces would have to be packed, which takes longer than to decode them again.
    pub(super) fn add_waiting(&mut self, stream: u64, missed: &Missed, budget: &Budget) -> io::Result<()> {
        if self.writer.is_full() || self.writer.length() >= MOST_UNPACKED || !self.has_memory(budget) {
            return Ok(());
        }
        if !self.writer.lock()? || self.writer.is_behind() {
            return Ok(());
        }
        match missed.take_piece() {
            Some(first) => self.add_missed(stream, first, missed),
            None => Ok(()),
        }
    }
}
