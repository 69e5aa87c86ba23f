use std::io;
use std::ops::Range;

use tarnfs_source::SharedSource;

use super::Indexing;
use crate::{Chunk, ChunkTable, Codec, Damage, Options, PIECE};

/// The chunks of a stream in memory: some dozens of bytes for each [`PIECE`] of it, and the states of its seek points.
///
/// Both fields may be kept anywhere and put together again: reading checks them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// In order, without gaps.
    pub chunks: Vec<Chunk>,
    /// What must not be served.
    pub damage: Vec<Damage>,
}

impl Table {
    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        self.chunks.iter().map(Self::memory_of).sum()
    }

    /// Bytes of memory that `chunk` takes in a table.
    pub(super) fn memory_of(chunk: &Chunk) -> usize {
        size_of::<Chunk>() + chunk.point.state.len() + chunk.checksums.len() * size_of::<u32>()
    }

    /// Decodes `source` once, from its start to its end.
    ///
    /// `UnexpectedEof` or `InvalidData` for a stream that is cut or cannot be decoded: [`Indexing`] itself has the
    /// chunks of what comes before.
    pub fn of(codec: &'static dyn Codec, source: SharedSource, options: &Options) -> io::Result<Self> {
        let mut indexing = Indexing::new(codec, source, options)?;
        let (mut table, mut buffer) = (Self::default(), vec![0; PIECE]);
        loop {
            let read = indexing.read(&mut buffer)?;
            indexing.take_chunks(&mut table.chunks);
            indexing.take_damage(&mut table.damage);
            if read == 0 {
                return Ok(table);
            }
        }
    }
}

impl ChunkTable for Table {
    fn chunk_at(&self, decoded: u64) -> io::Result<Option<Chunk>> {
        let index = self.chunks.partition_point(|chunk| chunk.point.decoded <= decoded);
        let chunk = index.checked_sub(1).and_then(|index| self.chunks.get(index));
        Ok(chunk.filter(|chunk| decoded - chunk.point.decoded < chunk.length).cloned())
    }

    fn decoded_length(&self) -> u64 {
        self.chunks.last().map_or(0, |chunk| chunk.point.decoded.saturating_add(chunk.length))
    }

    fn damage_in(&self, decoded: Range<u64>) -> io::Result<Option<Damage>> {
        let overlaps = |damage: &&Damage| damage.decoded.start < decoded.end && decoded.start < damage.decoded.end;
        Ok(self.damage.iter().find(overlaps).cloned())
    }

    fn lost_in(&self, decoded: Range<u64>) -> io::Result<Option<Damage>> {
        let overlaps = |damage: &&Damage| {
            damage.lost_from < decoded.end.min(damage.decoded.end) && decoded.start < damage.decoded.end
        };
        Ok(self.damage.iter().find(overlaps).cloned())
    }

    fn has_checksums(&self) -> bool {
        // Those of a first pass have some, or none of them has.
        self.chunks.first().is_some_and(|chunk| !chunk.checksums.is_empty())
    }
}
