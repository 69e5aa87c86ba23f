//! What is the same for every codec: the first pass with its checksums, and reading at any offset through the seek
//! points.
//!
//! - [`Indexing`] drives a first pass and cuts what it decodes into [`Chunk`](crate::Chunk)s with a checksum per piece.
//! - [`DecodedSource`] serves reads at any offset from a [`ChunkTable`](crate::ChunkTable). It decodes only as far as a
//!   read needs, then pauses the decoder where it stands.
//! - [`Blocks`] decodes blocks that stand for themselves (of squashfs), each once for all who want it.
//! - [`PieceCache`] holds the decoded pieces and the paused decoders of all streams, bounded in bytes.
//! - [`DecodedFile`] holds decoded pieces on disk, where decoding them again takes long. [`SpillWriter`] adds to it
//!   during the first pass, and [`Fill`] while the machine is idle.
//! - [`Proving`] verifies a stream of which another program has made the table, which has no checksums.
//! - [`Table`] is a table of chunks in memory.
//! - [`UnindexedSource`] is a stream whose table is made while it is read.
//! - [`Workers`] are the threads on which sequential readers are decoded ahead of.

mod ahead;
mod answered;
mod blocks;
mod cache;
mod chunks;
mod copied;
mod decoded;
mod decoded_file;
mod fill;
mod in_flight;
mod indexing;
mod keeper;
mod memory_gate;
mod missed;
mod paused;
mod pool;
mod priority;
mod proof;
mod sequence;
mod spill;
mod table;
mod unindexed;
mod workers;

#[cfg(all(test, shuttle))]
mod schedules;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod toy;

use std::sync::PoisonError;

use xxhash_rust::xxh3::xxh3_64;

use crate::sync::{Mutex, MutexGuard};

pub use blocks::{BlockPlace, Blocks, FileReads};
pub use cache::{CacheMemory, PieceCache};
pub use decoded::{DecodedSource, Statistics};
pub use decoded_file::{DecodedFile, DecodedFileWriter, Extended, PieceSpace};
pub use fill::{Fill, Filled, SLOW_MILLISECONDS};
pub use indexing::Indexing;
pub use priority::{low_priority, lowest_priority};
pub use proof::{Proven, Prover, Proving};
pub use spill::{OpenSpill, SpillWriter};
pub use table::Table;
pub use unindexed::{KeptTable, Unindexed, UnindexedSource};
pub use workers::Workers;

/// Locks a mutex also after a panic: what the engine's mutexes guard is whole between any two statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is kept of a piece in [`Chunk::checksums`](crate::Chunk::checksums).
fn checksum(piece: &[u8], start: u64) -> u32 {
    placed(xxh3_64(piece), start)
}

/// The checksum of a piece that starts at `start`, from the hash of its bytes: the right bytes in a wrong place are
/// wrong.
fn placed(hash: u64, start: u64) -> u32 {
    (hash ^ xxh3_64(&start.to_le_bytes())) as u32
}
