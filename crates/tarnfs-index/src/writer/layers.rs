//! Chunks and damage of the layers of compression and of nested streams, until they are written.

use std::collections::BTreeMap;
use std::io;

use rusqlite::Connection;
use tarnfs_codec::{Chunk, Damage};

use crate::sqlite::{failed, prepare};
use crate::{Error, FIRST_NESTED, Nested};

use super::record::{read_number, write_number};
use super::spool::Spool;

/// Bytes of chunks kept in memory: a seek point of gzip has a window of up to 32 KiB.
const ROOM: usize = 4 << 20;

/// Damaged ranges told apart for each layer. In a stream with more, what follows the last one counts as one range.
const MOST_DAMAGE: usize = 10_000;

/// Nested streams of one archive.
const MOST_NESTED: u32 = 1 << 24;

/// What was found in all layers around the archive and in nested streams.
#[derive(Debug)]
pub(super) struct Layers {
    chunks: Spool,
    /// Of each layer in which there is any.
    damage: BTreeMap<u32, Vec<Damage>>,
    /// Rows of nested streams, in the order of their numbers.
    nested: Spool,
    nested_count: u32,
}

impl Default for Layers {
    fn default() -> Self {
        let (chunks, nested) = (Spool::in_memory(ROOM), Spool::in_memory(ROOM));
        Self { chunks, damage: BTreeMap::new(), nested, nested_count: 0 }
    }
}

/// Puts the length of a record, itself included, into its first four bytes.
fn with_length(mut record: Vec<u8>) -> Vec<u8> {
    let length = record.len() as u32;
    if let Some(head) = record.first_chunk_mut() {
        *head = length.to_le_bytes();
    }
    record
}

impl Layers {
    /// `layer` is one around the archive, a nested stream, or the one that is added next: its chunks come before all is
    /// known of it.
    fn checked(&self, layer: usize, most: usize) -> Result<u32, Error> {
        let number = u32::try_from(layer).unwrap_or(u32::MAX);
        if layer < most || number.checked_sub(FIRST_NESTED).is_some_and(|nested| nested <= self.nested_count) {
            return Ok(number);
        }
        let what = format!("{most} layers of compression are the most");
        Err(io::Error::new(io::ErrorKind::InvalidInput, what).into())
    }

    /// Nested streams so far.
    pub(super) fn nested(&self) -> u32 {
        self.nested_count
    }

    /// Bytes of all chunks and nested streams.
    pub(super) fn bytes(&self) -> u64 {
        self.chunks.len().saturating_add(self.nested.len())
    }

    pub(super) fn add_nested(&mut self, nested: &Nested) -> Result<u32, Error> {
        if self.nested_count >= MOST_NESTED {
            return Err(io::Error::other("an index of more than 16 million nested streams cannot be made").into());
        }
        let mut row = vec![0; 4];
        for number in [nested.decoded_length, u64::from(nested.input), nested.start, nested.length] {
            write_number(&mut row, number);
        }
        row.extend_from_slice(nested.codec.as_bytes());
        self.nested.write(&with_length(row))?;
        let number = FIRST_NESTED.saturating_add(self.nested_count);
        self.nested_count = self.nested_count.saturating_add(1);
        Ok(number)
    }

    pub(super) fn add_chunk(&mut self, layer: usize, chunk: &Chunk, most: usize) -> Result<(), Error> {
        let layer = self.checked(layer, most)?;
        let mut bytes = vec![0; 4];
        let point = &chunk.point;
        for number in
            [u64::from(layer), point.decoded, chunk.length, point.compressed_bit, chunk.checksums.len() as u64]
        {
            write_number(&mut bytes, number);
        }
        bytes.extend(chunk.checksums.iter().flat_map(|checksum| checksum.to_le_bytes()));
        bytes.extend_from_slice(&chunk.point.state);
        Ok(self.chunks.write(&with_length(bytes))?)
    }

    pub(super) fn add_damage(&mut self, layer: usize, damage: &Damage, most: usize) -> Result<(), Error> {
        let layer = self.checked(layer, most)?;
        let all = self.damage.entry(layer).or_default();
        if all.len() < MOST_DAMAGE {
            all.push(damage.clone());
        } else if let Some(last) = all.last_mut() {
            last.decoded = last.decoded.start.min(damage.decoded.start)..last.decoded.end.max(damage.decoded.end);
        }
        Ok(())
    }

    pub(super) fn write(&self, connection: &Connection) -> Result<(), Error> {
        let mut chunk = prepare(connection, "INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?)")?;
        let mut state = prepare(connection, "INSERT INTO states VALUES (?, ?)")?;
        let mut row = prepare(connection, "INSERT INTO damage VALUES (?, ?, ?, ?, ?)")?;
        let mut states = 0_i64;
        let mut item = Vec::new();
        let mut chunks = self.chunks.reader();
        while chunks.record(&mut item)? {
            let mut rest = item.get(4..).unwrap_or_default();
            let mut next = || read_number(&mut rest);
            let (layer, decoded, length, compressed_bit, checksums) = (next(), next(), next(), next(), next() as usize);
            let checksums = rest.split_off(..checksums.saturating_mul(4)).unwrap_or_default();
            let mut id = 0;
            if !rest.is_empty() {
                states = states.saturating_add(1);
                id = states;
                state.execute((id, rest)).map_err(failed)?;
            }
            let row = (layer as i64, decoded as i64, length as i64, compressed_bit as i64, id, checksums);
            chunk.execute(row).map_err(failed)?;
        }
        for (layer, damage) in &self.damage {
            let mut damage = damage.clone();
            damage.sort_by_key(|damage| (damage.decoded.start, damage.decoded.end));
            let mut end = 0;
            for damage in damage {
                let first = damage.decoded.start.max(end);
                if first < damage.decoded.end {
                    end = damage.decoded.end;
                    let range = (layer, first as i64, i64::try_from(end).unwrap_or(i64::MAX));
                    row.execute((range.0, range.1, range.2, damage.compressed as i64, damage.what)).map_err(failed)?;
                }
            }
        }
        let mut insert = prepare(connection, "INSERT INTO layers VALUES (?, ?, ?, ?, ?, ?)")?;
        let mut nested = self.nested.reader();
        let mut number = FIRST_NESTED;
        while nested.record(&mut item)? {
            let mut rest = item.get(4..).unwrap_or_default();
            let mut next = || i64::try_from(read_number(&mut rest)).unwrap_or(i64::MAX);
            let (decoded_length, input, start, length) = (next(), next(), next(), next());
            let codec = String::from_utf8_lossy(rest);
            insert.execute((number, codec, decoded_length, input, start, length)).map_err(failed)?;
            number = number.saturating_add(1);
        }
        Ok(())
    }
}
