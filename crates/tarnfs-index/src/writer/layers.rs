//! Chunks and damage of the layers of compression, until they are written.

use std::io;

use rusqlite::Connection;
use tarnfs_codec::{Chunk, Damage};

use crate::Error;
use crate::sqlite::{failed, prepare};

use super::record::{read_number, write_number};
use super::spool::Spool;

/// Bytes of chunks kept in memory for each layer: a seek point of gzip has a window of up to 32 KiB.
const ROOM: usize = 4 << 20;

/// Damaged ranges told apart for each layer. In a stream with more, what follows the last one counts as one range.
const MOST_DAMAGE: usize = 10_000;

/// What was found in one layer.
#[derive(Debug)]
struct Layer {
    chunks: Spool,
    damage: Vec<Damage>,
}

/// What was found in all layers, outermost first.
#[derive(Debug, Default)]
pub(super) struct Layers(Vec<Layer>);

impl Layers {
    fn layer(&mut self, layer: usize, most: usize) -> Result<&mut Layer, Error> {
        if layer >= most {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{most} layers of compression are the most"),
            )
            .into());
        }
        while self.0.len() <= layer {
            self.0.push(Layer { chunks: Spool::in_memory(ROOM), damage: Vec::new() });
        }
        self.0.get_mut(layer).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput).into())
    }

    pub(super) fn add_chunk(&mut self, layer: usize, chunk: &Chunk, most: usize) -> Result<(), Error> {
        let chunks = &mut self.layer(layer, most)?.chunks;
        let mut bytes = vec![0; 4];
        for number in [chunk.point.decoded, chunk.length, chunk.point.compressed_bit, chunk.checksums.len() as u64] {
            write_number(&mut bytes, number);
        }
        bytes.extend(chunk.checksums.iter().flat_map(|checksum| checksum.to_le_bytes()));
        bytes.extend_from_slice(&chunk.point.state);
        let length = bytes.len() as u32;
        if let Some(head) = bytes.first_chunk_mut() {
            *head = length.to_le_bytes();
        }
        Ok(chunks.write(&bytes)?)
    }

    pub(super) fn add_damage(&mut self, layer: usize, damage: &Damage, most: usize) -> Result<(), Error> {
        let all = &mut self.layer(layer, most)?.damage;
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
        for (number, layer) in self.0.iter().enumerate() {
            let number = number as i64;
            let mut chunks = layer.chunks.reader();
            while chunks.record(&mut item)? {
                let mut rest = item.get(4..).unwrap_or_default();
                let mut next = || read_number(&mut rest);
                let (decoded, length, compressed_bit, checksums) = (next(), next(), next(), next() as usize);
                let checksums = rest.split_off(..checksums.saturating_mul(4)).unwrap_or_default();
                let mut id = 0;
                if !rest.is_empty() {
                    states = states.saturating_add(1);
                    id = states;
                    state.execute((id, rest)).map_err(failed)?;
                }
                let row = (number, decoded as i64, length as i64, compressed_bit as i64, id, checksums);
                chunk.execute(row).map_err(failed)?;
            }
            let mut damage = layer.damage.clone();
            damage.sort_by_key(|damage| (damage.decoded.start, damage.decoded.end));
            let mut end = 0;
            for damage in damage {
                let first = damage.decoded.start.max(end);
                if first < damage.decoded.end {
                    end = damage.decoded.end;
                    let range = (number, first as i64, i64::try_from(end).unwrap_or(i64::MAX));
                    row.execute((range.0, range.1, range.2, damage.compressed as i64, damage.what)).map_err(failed)?;
                }
            }
        }
        Ok(())
    }
}
