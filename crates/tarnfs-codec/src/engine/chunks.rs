use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use tarnfs_source::{Budget, Grant, SharedSource};

use super::lock;
use crate::sync::Mutex;
use crate::{Chunk, ChunkTable, PIECE};

/// The chunks of a stream: checked when they come from the table, and those used last kept.
#[derive(Debug)]
pub(super) struct Chunks {
    table: Arc<dyn ChunkTable>,
    compressed_length: u64,
    budget: Budget,
    recent: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    by_start: BTreeMap<u64, Kept>,
    uses: u64,
    bytes: usize,
}

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

/// Chunks kept: those that a few sequential readers and their workers are in.
const MOST: usize = 256;

/// Bytes of chunks kept, more only if a single one is larger.
const MOST_BYTES: usize = 4 << 20;

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
    pub(super) fn new(table: Arc<dyn ChunkTable>, source: &SharedSource, budget: Budget) -> Self {
        Self { table, compressed_length: source.len(), budget, recent: Mutex::default() }
    }

    pub(super) fn table(&self) -> &dyn ChunkTable {
        &*self.table
    }

    pub(super) fn shared_table(&self) -> Arc<dyn ChunkTable> {
        Arc::clone(&self.table)
    }

    /// Has this one from now on in place of that in the table, until others push it out.
    pub(super) fn keep(&self, chunk: &Arc<Chunk>) {
        lock(&self.recent).keep(chunk, &self.budget);
    }

    /// Takes all of them from the table again.
    pub(super) fn forget(&self) {
        *lock(&self.recent) = Recent::default();
    }

    /// The chunk that holds byte `offset` of the decoded stream; `None` behind the end.
    pub(super) fn at(&self, offset: u64) -> io::Result<Option<Arc<Chunk>>> {
        if let Some(chunk) = lock(&self.recent).get(offset) {
            return Ok(Some(chunk));
        }
        let Some(chunk) = self.look(offset)? else { return Ok(None) };
        lock(&self.recent).keep(&chunk, &self.budget);
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

impl Recent {
    fn get(&mut self, offset: u64) -> Option<Arc<Chunk>> {
        let (&start, kept) = self.by_start.range_mut(..=offset).next_back()?;
        if offset - start >= kept.chunk.length {
            return None;
        }
        self.uses += 1;
        kept.last_use = self.uses;
        Some(Arc::clone(&kept.chunk))
    }

    fn keep(&mut self, chunk: &Arc<Chunk>, budget: &Budget) {
        let bytes = chunk.point.state.len() + 4 * chunk.checksums.len() + size_of::<Chunk>() + size_of::<Kept>();
        while !self.by_start.is_empty()
            && (self.by_start.len() >= MOST || self.bytes.saturating_add(bytes) > MOST_BYTES)
        {
            self.drop_oldest();
        }
        let Some(grant) = budget.take(bytes) else { return };
        self.uses += 1;
        self.bytes += bytes;
        let kept = Kept { chunk: Arc::clone(chunk), last_use: self.uses, grant };
        if let Some(before) = self.by_start.insert(chunk.point.decoded, kept) {
            self.bytes -= before.grant.bytes();
        }
    }

    fn drop_oldest(&mut self) {
        let oldest = self.by_start.iter().min_by_key(|(_, kept)| kept.last_use).map(|(&start, _)| start);
        if let Some(kept) = oldest.and_then(|start| self.by_start.remove(&start)) {
            self.bytes -= kept.grant.bytes();
        }
    }
}
