use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use tarnfs_source::{Budget, Grant, SharedSource};

use super::lock;
use crate::sync::Mutex;
use crate::{Chunk, ChunkTable, PIECE};

/// The chunks of a stream: checked when they come from the table.
#[derive(Debug)]
pub(super) struct Chunks {
    table: Arc<dyn ChunkTable>,
    compressed_length: u64,
    /// Our number in `recent`.
    stream: u64,
    recent: Arc<RecentChunks>,
}

/// The chunks of all streams of a process that were used last.
#[derive(Debug)]
pub(super) struct RecentChunks {
    budget: Budget,
    /// Bytes that they may take together; a single one may take more.
    most: usize,
    recent: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    /// By stream, and start in it.
    by_start: BTreeMap<Key, Kept>,
    by_use: BTreeMap<u64, Key>,
    uses: u64,
    bytes: usize,
}

type Key = (u64, u64);

#[derive(Debug)]
struct Kept {
    chunk: Arc<Chunk>,
    last_use: u64,
    grant: Grant,
}

/// Where a piece lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct PiecePlace {
    /// Its number in its chunk.
    pub(super) index: usize,
    /// Its first byte in the decoded stream.
    pub(super) start: u64,
    /// Bytes in it.
    pub(super) length: usize,
}

/// Chunks kept, and bytes of them: those that a few dozen readers and their workers are in. Many streams must not take
/// the memory that decoded pieces need.
const MOST: usize = 4096;
const MOST_BYTES: usize = 8 << 20;

/// They may take so much of the budget: one part of this many.
const PART_OF_BUDGET: usize = 8;

impl PiecePlace {
    /// The piece of `chunk` that holds byte `offset`, which lies in the chunk.
    pub(super) fn of(chunk: &Chunk, offset: u64) -> Self {
        let inside = offset.saturating_sub(chunk.point.decoded);
        let index = inside / PIECE as u64;
        let skip = index * PIECE as u64;
        Self {
            index: index as usize,
            start: chunk.point.decoded + skip,
            length: chunk.length.saturating_sub(skip).min(PIECE as u64) as usize,
        }
    }

    /// Behind its last byte.
    pub(super) fn end(&self) -> u64 {
        self.start + self.length as u64
    }
}

impl Chunks {
    /// Those of `table`. `stream` is a number that no other stream has that shares `recent`.
    pub(super) fn new(
        table: Arc<dyn ChunkTable>,
        source: &SharedSource,
        stream: u64,
        recent: &Arc<RecentChunks>,
    ) -> Self {
        Self { table, compressed_length: source.len(), stream, recent: Arc::clone(recent) }
    }

    pub(super) fn table(&self) -> &dyn ChunkTable {
        &*self.table
    }

    pub(super) fn shared_table(&self) -> Arc<dyn ChunkTable> {
        Arc::clone(&self.table)
    }

    /// Has this one from now on in place of that in the table, until others push it out.
    pub(super) fn keep(&self, chunk: &Arc<Chunk>) {
        self.recent.keep(self.stream, chunk);
    }

    /// Takes all of them from the table again.
    pub(super) fn forget(&self) {
        self.recent.forget(self.stream);
    }

    /// The chunk that holds byte `offset` of the decoded stream; `None` behind the end.
    pub(super) fn at(&self, offset: u64) -> io::Result<Option<Arc<Chunk>>> {
        if let Some(chunk) = self.recent.get(self.stream, offset) {
            return Ok(Some(chunk));
        }
        let Some(chunk) = self.look(offset)? else { return Ok(None) };
        self.recent.keep(self.stream, &chunk);
        Ok(Some(chunk))
    }

    /// The same for one who takes nothing from those who read.
    pub(super) fn look(&self, offset: u64) -> io::Result<Option<Arc<Chunk>>> {
        let Some(chunk) = self.table.chunk_at(offset)? else { return Ok(None) };
        self.check(&chunk, offset).map_err(|what| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "the index is wrong: its seek point at decoded byte {} {what}: build the index again",
                    chunk.point.decoded
                ),
            )
        })?;
        Ok(Some(Arc::new(chunk)))
    }

    fn check(&self, chunk: &Chunk, offset: u64) -> Result<(), String> {
        let start = chunk.point.decoded;
        let end = start.checked_add(chunk.length).filter(|&end| end <= self.table.decoded_length());
        let end = end.ok_or_else(|| format!("has {} bytes, more than the stream has left", chunk.length))?;
        if !(start..end).contains(&offset) {
            return Err(format!("and the {} bytes behind it do not hold byte {offset}", chunk.length));
        }
        let pieces = chunk.length.div_ceil(PIECE as u64);
        if !chunk.checksums.is_empty() && chunk.checksums.len() as u64 != pieces {
            return Err(format!("has {} checksums for {pieces} pieces", chunk.checksums.len()));
        }
        if chunk.point.compressed_bit.div_ceil(8) > self.compressed_length {
            return Err(format!(
                "is at bit {} of a stream of {} bytes",
                chunk.point.compressed_bit, self.compressed_length
            ));
        }
        Ok(())
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        self.forget();
    }
}

impl RecentChunks {
    /// None yet. They draw on `budget`.
    pub(super) fn new(budget: Budget) -> Arc<Self> {
        let most = MOST_BYTES.min(budget.limit() / PART_OF_BUDGET);
        Arc::new(Self { budget, most, recent: Mutex::default() })
    }

    /// Bytes that they take.
    pub(super) fn memory(&self) -> usize {
        lock(&self.recent).bytes
    }

    /// Drops all of them.
    pub(super) fn clear(&self) {
        let uses = lock(&self.recent).uses;
        let dropped = std::mem::replace(&mut *lock(&self.recent), Recent { uses, ..Recent::default() });
        drop(dropped);
    }

    fn get(&self, stream: u64, offset: u64) -> Option<Arc<Chunk>> {
        let recent = &mut *lock(&self.recent);
        let (&key, kept) = recent.by_start.range_mut((stream, 0)..=(stream, offset)).next_back()?;
        if offset - key.1 >= kept.chunk.length {
            return None;
        }
        recent.uses += 1;
        recent.by_use.remove(&kept.last_use);
        recent.by_use.insert(recent.uses, key);
        kept.last_use = recent.uses;
        Some(Arc::clone(&kept.chunk))
    }

    fn keep(&self, stream: u64, chunk: &Arc<Chunk>) {
        let bytes = chunk.point.state.len() + 4 * chunk.checksums.len() + size_of::<Chunk>() + 2 * size_of::<Kept>();
        let key = (stream, chunk.point.decoded);
        let recent = &mut *lock(&self.recent);
        recent.remove(key);
        while !recent.by_start.is_empty()
            && (recent.by_start.len() >= MOST || recent.bytes.saturating_add(bytes) > self.most)
        {
            recent.drop_oldest();
        }
        let Some(grant) = self.budget.take(bytes) else { return };
        recent.uses += 1;
        recent.bytes += bytes;
        recent.by_use.insert(recent.uses, key);
        recent.by_start.insert(key, Kept { chunk: Arc::clone(chunk), last_use: recent.uses, grant });
    }

    fn forget(&self, stream: u64) {
        let recent = &mut *lock(&self.recent);
        let keys: Vec<Key> = recent.by_start.range((stream, 0)..=(stream, u64::MAX)).map(|(&key, _)| key).collect();
        for key in keys {
            recent.remove(key);
        }
    }
}

impl Recent {
    fn remove(&mut self, key: Key) {
        if let Some(kept) = self.by_start.remove(&key) {
            self.by_use.remove(&kept.last_use);
            self.bytes -= kept.grant.bytes();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((_, key)) = self.by_use.pop_first() {
            self.remove(key);
        }
    }
}
