//! The chunks of one layer of compression.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use rusqlite::OptionalExtension;
use tarnfs_codec::{Chunk, ChunkTable, Damage, PIECE, SeekPoint};

use crate::sqlite::{broken, with_longer};
use crate::{Error, FIRST_NESTED, StreamTables as _};

use super::Own;
use super::session::Session;

/// The chunks of one layer, fetched when asked for.
#[derive(Debug)]
pub(super) struct Chunks {
    index: Arc<Own>,
    layer: usize,
    /// Length of what goes into the layer and of what comes out, in bytes.
    compressed: u64,
    decoded: u64,
}

impl Chunks {
    pub(super) fn new(index: Arc<Own>, layer: usize) -> Result<Self, Error> {
        let nested = u32::try_from(layer).ok().filter(|&layer| layer >= FIRST_NESTED);
        if let Some(number) = nested {
            let nested = index.nested(number)?;
            return Ok(Self { index, layer, compressed: nested.length, decoded: nested.decoded_length });
        }
        let summary = &index.summary;
        let decoded = summary.layers.get(layer).map(|layer| layer.decoded_length);
        let decoded = decoded.ok_or_else(|| Error::Broken(format!("there is no layer {layer} of compression")))?;
        let outer = layer.checked_sub(1).and_then(|outer| summary.layers.get(outer));
        let compressed = outer.map_or(summary.archive.length, |outer| outer.decoded_length);
        Ok(Self { index, layer, compressed, decoded })
    }

    fn read(&self, decoded: u64) -> Result<Option<Chunk>, Error> {
        if decoded >= self.decoded {
            return Ok(None);
        }
        // Checksums of a long chunk, and states of some codecs, are longer than all else.
        self.index.pool.with(|session| with_longer(&session.connection, || self.read_from(session, decoded)))
    }

    fn read_from(&self, session: &Session, decoded: u64) -> Result<Option<Chunk>, Error> {
        let mut query = session
            .connection
            .prepare_cached(
                "SELECT decoded, length, compressed_bit, state, checksums FROM chunks \
                     WHERE layer = ? AND decoded <= ? ORDER BY decoded DESC LIMIT 1",
            )
            .map_err(broken)?;
        let mut rows = query.query([self.layer as i64, decoded as i64]).map_err(broken)?;
        let wrong =
            |what: &str| Error::Broken(format!("the seek point before byte {decoded} of layer {}: {what}", self.layer));
        let Some(row) = rows.next().map_err(broken)? else { return Err(wrong("missing")) };
        let number = |column: usize| -> Result<u64, Error> {
            u64::try_from(row.get::<_, i64>(column).map_err(broken)?).map_err(|_| wrong("a number is negative"))
        };
        let (start, length, compressed_bit, state) = (number(0)?, number(1)?, number(2)?, number(3)?);
        let end = start.checked_add(length).filter(|&end| end <= self.decoded);
        if end.is_none_or(|end| decoded >= end) {
            return Err(wrong("it ends before, or behind the end of the layer"));
        }
        if compressed_bit / 8 > self.compressed {
            return Err(wrong("it lies behind the end of the compressed data"));
        }
        let checksums = row.get_ref(4).map_err(broken)?.as_blob().map_err(|_| wrong("no checksums"))?;
        let (checksums, rest) = checksums.as_chunks::<4>();
        let pieces = length.div_ceil(PIECE as u64);
        if !rest.is_empty() || !checksums.is_empty() && checksums.len() as u64 != pieces {
            return Err(wrong("it has checksums of another length"));
        }
        let checksums = checksums.iter().map(|four| u32::from_le_bytes(*four)).collect();
        let state = match state {
            0 => Vec::new(),
            id => session
                .connection
                .prepare_cached("SELECT bytes FROM states WHERE id = ?")
                .map_err(broken)?
                .query_row([id as i64], |row| row.get(0))
                .optional()
                .map_err(broken)?
                .ok_or_else(|| wrong("its state is missing"))?,
        };
        Ok(Some(Chunk { point: SeekPoint { compressed_bit, decoded: start, state }, length, checksums }))
    }
}

fn as_io(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        other => io::Error::new(io::ErrorKind::InvalidData, format!("the index is {other}")),
    }
}

impl ChunkTable for Chunks {
    fn chunk_at(&self, decoded: u64) -> io::Result<Option<Chunk>> {
        self.read(decoded).map_err(as_io)
    }

    fn decoded_length(&self) -> u64 {
        self.decoded
    }

    fn damage_in(&self, decoded: Range<u64>) -> io::Result<Option<Damage>> {
        self.index.damage_of(self.layer, decoded, false).map_err(as_io)
    }

    fn lost_in(&self, decoded: Range<u64>) -> io::Result<Option<Damage>> {
        self.index.damage_of(self.layer, decoded, true).map_err(as_io)
    }

    fn has_checksums(&self) -> bool {
        true
    }
}
