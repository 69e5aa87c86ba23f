//! Chunks and damage of the layers of compression and of nested streams, until they are written.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use rusqlite::Connection;
use tarnfs_codec::{Chunk, Damage};

use crate::sqlite::{failed, prepare};
use crate::{Error, FIRST_NESTED, Nested};

use super::record::{read_number, write_number};
use super::spool::{Overflow, Spool};

/// Bytes of chunks kept in memory: a seek point of gzip has a window of up to 32 KiB.
const ROOM: usize = 4 << 20;

/// Damaged ranges told apart for each layer. In a stream with more, what follows the last one counts as one range.
const MOST_DAMAGE: usize = 10_000;

/// Damaged ranges told apart in all streams. Behind so many, each stream has one. An archive of 38 KB whose 600 streams
/// have 10 000 of them each took 895 MB.
const MOST_IN_ALL: u64 = 100_000;

/// Nested streams of one archive.
const MOST_NESTED: u32 = 1 << 24;

/// What was found in all layers around the archive and in nested streams.
#[derive(Debug)]
pub(super) struct Layers {
    chunks: Spool,
    /// Of each layer around the archive in which there is any.
    damage: BTreeMap<u32, Vec<Damage>>,
    /// Of the last nested stream that has any.
    nested_damage: (u32, Vec<Damage>),
    /// Rows of those before it: there may be very many streams.
    damage_rows: Spool,
    damage_count: u64,
    /// Rows of nested streams, in the order of their numbers.
    nested: Spool,
    nested_count: u32,
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
    /// None yet. What is too much for its memory goes to `overflow`.
    pub(super) fn new(overflow: &Overflow) -> Self {
        let spool = || Spool::new(ROOM, overflow);
        Self {
            chunks: spool(),
            damage: BTreeMap::new(),
            nested_damage: (0, Vec::new()),
            damage_rows: spool(),
            damage_count: 0,
            nested: spool(),
            nested_count: 0,
        }
    }

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

    /// Bytes of all chunks and nested streams, and of most damage.
    pub(super) fn bytes(&self) -> u64 {
        self.chunks.len().saturating_add(self.nested.len()).saturating_add(self.damage_rows.len())
    }

    /// `pieces` are those of one that is stored so, as they are kept; else there are none.
    pub(super) fn add_nested(&mut self, nested: &Nested, pieces: &[u8]) -> Result<u32, Error> {
        if self.nested_count >= MOST_NESTED {
            return Err(io::Error::other("an index of more than 16 million nested streams cannot be made").into());
        }
        let mut row = vec![0; 4];
        let numbers = [nested.decoded_length, u64::from(nested.input), nested.start, nested.length];
        for number in numbers.into_iter().chain([pieces.len() as u64]) {
            write_number(&mut row, number);
        }
        row.extend_from_slice(pieces);
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

    /// Damage of nested streams comes in the order of their numbers.
    pub(super) fn add_damage(&mut self, layer: usize, damage: &Damage, most: usize) -> Result<(), Error> {
        let layer = self.checked(layer, most)?;
        let all = if layer < FIRST_NESTED {
            self.damage.entry(layer).or_default()
        } else {
            match self.nested_damage.0 {
                last if layer < last => {
                    let what = format!("damage of stream {layer} comes behind that of stream {last}");
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, what).into());
                }
                last if layer > last => self.end_damage(layer)?,
                _ => {}
            }
            &mut self.nested_damage.1
        };
        let most = if self.damage_count < MOST_IN_ALL { MOST_DAMAGE } else { 1 };
        if all.len() < most {
            all.push(damage.clone());
            self.damage_count = self.damage_count.saturating_add(1);
        } else if let Some(last) = all.last_mut() {
            last.decoded = last.decoded.start.min(damage.decoded.start)..last.decoded.end.max(damage.decoded.end);
            last.lost_from = last.decoded.start;
        }
        Ok(())
    }

    /// What comes is damage of nested stream `next`.
    fn end_damage(&mut self, next: u32) -> io::Result<()> {
        let (layer, damage) = std::mem::replace(&mut self.nested_damage, (next, Vec::new()));
        for part in parts(&damage) {
            let mut row = vec![0; 4];
            for number in [u64::from(layer), part.range.start, part.range.end, part.damage.compressed] {
                write_number(&mut row, number);
            }
            row.push(u8::from(part.is_lost));
            row.extend_from_slice(part.damage.what.as_bytes());
            self.damage_rows.write(&with_length(row))?;
        }
        Ok(())
    }

    pub(super) fn write(&self, connection: &Connection) -> Result<(), Error> {
        let mut chunk = prepare(connection, "INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?)")?;
        let mut state = prepare(connection, "INSERT INTO states VALUES (?, ?)")?;
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
        self.write_damage(connection)?;
        let mut insert = prepare(connection, "INSERT INTO layers VALUES (?, ?, ?, ?, ?, ?)")?;
        let mut insert_pieces = prepare(connection, "INSERT INTO nested_pieces VALUES (?, ?)")?;
        let mut nested = self.nested.reader();
        let mut number = FIRST_NESTED;
        while nested.record(&mut item)? {
            let mut rest = item.get(4..).unwrap_or_default();
            let mut next = || i64::try_from(read_number(&mut rest)).unwrap_or(i64::MAX);
            let (decoded_length, input, start, length, pieces) = (next(), next(), next(), next(), next() as usize);
            let pieces = rest.split_off(..pieces).unwrap_or_default();
            if !pieces.is_empty() {
                insert_pieces.execute((number, pieces)).map_err(failed)?;
            }
            let codec = String::from_utf8_lossy(rest);
            insert.execute((number, codec, decoded_length, input, start, length)).map_err(failed)?;
            number = number.saturating_add(1);
        }
        Ok(())
    }

    fn write_damage(&self, connection: &Connection) -> Result<(), Error> {
        let mut row = prepare(connection, "INSERT INTO damage VALUES (?, ?, ?, ?, ?)")?;
        let mut insert = |layer: u32, range: Range<u64>, is_lost: bool, compressed: u64, what: &str| {
            let compressed = i64::try_from(compressed).unwrap_or(i64::MAX);
            let compressed = if is_lost { compressed } else { !compressed };
            let end = i64::try_from(range.end).unwrap_or(i64::MAX);
            row.execute((layer, range.start as i64, end, compressed, what)).map(drop).map_err(failed)
        };
        for (layer, damage) in &self.damage {
            for part in parts(damage) {
                insert(*layer, part.range, part.is_lost, part.damage.compressed, &part.damage.what)?;
            }
        }
        let mut rows = self.damage_rows.reader();
        let mut item = Vec::new();
        while rows.record(&mut item)? {
            let mut rest = item.get(4..).unwrap_or_default();
            let mut next = || read_number(&mut rest);
            let (layer, start, end, compressed) = (next() as u32, next(), next(), next());
            let (is_lost, what) = rest.split_first().unwrap_or((&0, &[]));
            insert(layer, start..end, *is_lost != 0, compressed, &String::from_utf8_lossy(what))?;
        }
        let (layer, damage) = &self.nested_damage;
        for part in parts(damage) {
            insert(*layer, part.range, part.is_lost, part.damage.compressed, &part.damage.what)?;
        }
        Ok(())
    }
}

/// A row of `damage`.
struct Part<'a> {
    range: Range<u64>,
    is_lost: bool,
    damage: &'a Damage,
}

/// What is lost of the damaged ranges, and what only fails a check, in order and without overlaps. What is lost to one
/// of them is lost.
fn parts(damage: &[Damage]) -> Vec<Part<'_>> {
    let mut lost: Vec<Part<'_>> = Vec::new();
    for (range, damage) in sorted(damage, |damage| damage.lost_from..damage.decoded.end) {
        let start = lost.last().map_or(0, |last| last.range.end).max(range.start);
        if start < range.end {
            lost.push(Part { range: start..range.end, is_lost: true, damage });
        }
    }
    let (mut unverified, mut at) = (Vec::new(), 0);
    let mut behind = lost.as_slice();
    for (range, damage) in sorted(damage, |damage| damage.decoded.start..damage.lost_from) {
        at = range.start.max(at);
        while at < range.end {
            match behind.first().map(|part| part.range.clone()) {
                Some(gap) if gap.end <= at => behind = behind.get(1..).unwrap_or_default(),
                Some(gap) if gap.start <= at => at = gap.end,
                gap => {
                    let end = gap.map_or(range.end, |gap| gap.start.min(range.end));
                    unverified.push(Part { range: at..end, is_lost: false, damage });
                    at = end;
                }
            }
        }
    }
    lost.append(&mut unverified);
    lost.sort_by_key(|part| part.range.start);
    lost
}

/// A part of each range, by where it starts.
fn sorted(damage: &[Damage], part: impl Fn(&Damage) -> Range<u64>) -> Vec<(Range<u64>, &Damage)> {
    let mut sorted: Vec<_> = damage.iter().map(|damage| (part(damage), damage)).collect();
    sorted.sort_by_key(|(range, _)| (range.start, range.end));
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_to_one_is_lost() {
        let damage = |decoded, lost_from, compressed| Damage {
            decoded,
            lost_from,
            compressed,
            compressed_from: 0,
            what: String::new(),
        };
        let all = [
            damage(100..200, 200, 1),
            // Files that are out of step, in what was decoded and behind it.
            damage(120..130, 120, 2),
            damage(180..250, 180, 3),
            damage(190..260, 240, 4),
            damage(300..300, 300, 5),
        ];
        let found: Vec<_> = parts(&all)
            .iter()
            .map(|Part { range, is_lost, damage }| (range.start, range.end, *is_lost, damage.compressed))
            .collect();
        let expected =
            [(100, 120, false, 1), (120, 130, true, 2), (130, 180, false, 1), (180, 250, true, 3), (250, 260, true, 4)];
        assert_eq!(found, expected);
    }
}
