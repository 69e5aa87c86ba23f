//! Where decoding can start, from the tables that ratarmount keeps for each codec.

use std::collections::HashMap;
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension};
use tarnfs_codec::{Chunk, ChunkTable, Codec, Damage, SeekPoint};
use tarnfs_source::{Cancel, SharedSource};

use super::connections::Connections;
use super::points::{Point, Values};
use super::xz_blocks::XzBlocks;
use super::{gzidx, gztool, unsigned};
use crate::Error;
use crate::sqlite::broken;

/// How many blocks are compared with the archive when a sidecar is opened.
const SAMPLES: u64 = 16;

/// Windows are kept in memory up to this many bytes together; finding one in a large value means to follow a long
/// chain of pages.
const WINDOWS_IN_MEMORY: u64 = 8 << 20;

/// Bytes that each takes beside its own: there may be millions of a few bytes.
const BESIDE_WINDOW: u64 = 64;

/// What a sidecar holds for the codec of its archive.
#[derive(Debug, Clone)]
pub(super) enum Tables {
    /// `bzip2blocks` and `zstdblocks`: offsets of blocks, the last row is the end.
    Blocks {
        table: &'static str,
        /// Bits in one unit of `blockoffset`.
        unit: u64,
        decoded_length: u64,
    },
    /// `gztoolindex`.
    Gztool { values: Values, decoded_length: u64 },
    /// `gzipindexes` and `gzipindex`.
    Gzidx { values: Values, decoded_length: u64 },
    /// The stream lists its own blocks.
    InStream(Arc<XzBlocks>),
}

impl Tables {
    /// Finds the table of `codec`, and how long the stream is.
    pub(super) fn find(
        connection: &Connection,
        codec: &'static dyn Codec,
        source: &SharedSource,
        cancel: &Cancel,
    ) -> Result<Self, Error> {
        let blocks = |table: &'static str, unit: u64| {
            if !has_table(connection, table)? {
                return Err(Error::Broken(format!("there is no table {table}")));
            }
            let sql = format!("SELECT blockoffset, dataoffset FROM {table} ORDER BY blockoffset DESC LIMIT 1");
            let (_, decoded_length) =
                block(connection, &sql, &[])?.ok_or_else(|| Error::Broken(format!("the table {table} is empty")))?;
            Ok(Self::Blocks { table, unit, decoded_length })
        };
        match codec.name() {
            "bzip2" => blocks("bzip2blocks", 1),
            "zstd" => blocks("zstdblocks", 8),
            "xz" => Ok(Self::InStream(Arc::new(XzBlocks::read(&**source, cancel)?))),
            "gzip" | "zlib" | "deflate" => {
                if has_table(connection, "gztoolindex")? {
                    let values = Values::find(connection, "gztoolindex")?;
                    let decoded_length = gztool::decoded_length(&values.reader(connection))?;
                    return Ok(Self::Gztool { values, decoded_length });
                }
                for table in ["gzipindexes", "gzipindex"] {
                    if has_table(connection, table)? {
                        let values = Values::find(connection, table)?;
                        let decoded_length = gzidx::Header::read(&values.reader(connection))?.decoded_length;
                        return Ok(Self::Gzidx { values, decoded_length });
                    }
                }
                Err(Error::Broken("there is no table of seek points".into()))
            }
            other => Err(Error::Unknown(format!("ratarmount keeps nothing for {other}"))),
        }
    }

    /// Length of the decoded stream in bytes.
    pub(super) fn decoded_length(&self) -> u64 {
        match self {
            Self::Blocks { decoded_length, .. }
            | Self::Gztool { decoded_length, .. }
            | Self::Gzidx { decoded_length, .. } => *decoded_length,
            Self::InStream(blocks) => blocks.decoded_length(),
        }
    }

    /// The chunks. Reads all seek points of a gzip stream, at some 32 bytes each.
    pub(super) fn open(
        &self,
        connections: &Arc<Connections>,
        codec: &'static dyn Codec,
        source: &SharedSource,
    ) -> Result<Arc<dyn ChunkTable>, Error> {
        let connection = connections.get()?;
        let (values, points) = match self {
            Self::Blocks { table, unit, decoded_length } => {
                return Ok(Arc::new(Blocks {
                    connections: Arc::clone(connections),
                    table,
                    unit: *unit,
                    decoded_length: *decoded_length,
                    stream_length: source.len(),
                    last: Mutex::default(),
                }));
            }
            Self::InStream(blocks) => return Ok(Arc::clone(blocks) as Arc<dyn ChunkTable>),
            Self::Gztool { values, .. } => (values, gztool::points(&values.reader(&connection))?),
            Self::Gzidx { values, .. } => (values, gzidx::points(&values.reader(&connection))?),
        };
        let is_packed = matches!(self, Self::Gztool { .. });
        let decoded_length = self.decoded_length();
        check_points(&points, source.len(), decoded_length)?;
        let windows = {
            let reader = values.reader(&connection);
            windows_in_memory(&points, &mut |point| reader.read(point.window.0, point.window.1 as usize))?
        };
        drop(connection);
        Ok(Arc::new(Points {
            connections: Arc::clone(connections),
            codec,
            source: Arc::clone(source),
            values: values.clone(),
            is_packed,
            all: points,
            windows,
            decoded_length,
        }))
    }

    /// [`Error::Stale`] if blocks of the archive do not begin where the sidecar says.
    pub(super) fn check_samples(&self, connections: &Connections, source: &SharedSource) -> Result<(), Error> {
        let Self::Blocks { table, unit, .. } = self else { return Ok(()) };
        let connection = connections.get()?;
        let end = block(
            &connection,
            &format!("SELECT blockoffset, dataoffset FROM {table} ORDER BY blockoffset DESC LIMIT 1"),
            &[],
        )?;
        let end = end.map_or(0, |(offset, _)| offset);
        let sql =
            format!("SELECT blockoffset, dataoffset FROM {table} WHERE blockoffset >= ?1 ORDER BY blockoffset LIMIT 1");
        for sample in 0..SAMPLES {
            let from = (end / SAMPLES).saturating_mul(sample) as i64;
            let Some((offset, _)) = block(&connection, &sql, &[&from])? else { break };
            // The end of a zstd stream is no block. That of a bzip2 stream has a number of its own.
            if offset != end && !begins_block(source, offset, *unit)? {
                return Err(Error::Stale(format!("no block begins at {offset}, where {table} says")));
            }
        }
        Ok(())
    }
}

/// The windows of points that have one, by the numbers of these, which `read` gives; `None` if that is too much.
fn windows_in_memory(
    points: &[Point],
    read: &mut dyn FnMut(&Point) -> Result<Vec<u8>, Error>,
) -> Result<Option<HashMap<usize, Vec<u8>>>, Error> {
    let with_window = || points.iter().enumerate().filter(|(_, point)| point.window.1 > 0);
    let bytes = with_window().map(|(_, point)| u64::from(point.window.1).saturating_add(BESIDE_WINDOW));
    if bytes.fold(0, u64::saturating_add) > WINDOWS_IN_MEMORY {
        return Ok(None);
    }
    let mut windows = HashMap::new();
    for (index, point) in with_window() {
        windows.insert(index, read(point)?);
    }
    Ok(Some(windows))
}

/// The magic numbers of blocks, skippable frames among them.
fn begins_block(source: &SharedSource, offset: u64, unit: u64) -> Result<bool, Error> {
    let byte = if unit == 1 { offset / 8 } else { offset };
    let mut bytes = [0; 8];
    let read = source.read_at(&mut bytes, byte)?;
    let bits = u64::from_be_bytes(bytes);
    Ok(if unit == 1 {
        // 48 bits: the decimals of pi in front of a block, those of its square root at the end of a stream.
        let magic = bits >> 8_u64.saturating_sub(offset % 8).saturating_add(8);
        read == 8 && [0x3141_5926_5359, 0x1772_4538_5090].contains(&(magic & 0xffff_ffff_ffff))
    } else {
        let magic = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        read >= 4 && (magic == 0xfd2f_b528 || magic & 0xffff_fff0 == 0x184d_2a50)
    })
}

fn has_table(connection: &Connection, name: &str) -> Result<bool, Error> {
    connection
        .query_row("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1", [name], |row| row.get(0))
        .map_err(broken)
}

/// One row of a table of blocks.
fn block(connection: &Connection, sql: &str, parameters: &[&dyn rusqlite::ToSql]) -> Result<Option<(u64, u64)>, Error> {
    connection
        .prepare_cached(sql)
        .and_then(|mut statement| {
            statement.query_row(parameters, |row| Ok((unsigned(row, 0)?, unsigned(row, 1)?))).optional()
        })
        .map_err(broken)
}

/// A table of blocks, of which rows are fetched when needed.
#[derive(Debug)]
struct Blocks {
    connections: Arc<Connections>,
    table: &'static str,
    unit: u64,
    decoded_length: u64,
    stream_length: u64,
    /// What was found last: mostly asked for again, or its successor is.
    last: Mutex<Option<(Row, Row)>>,
}

/// `blockoffset` and `dataoffset`.
type Row = (u64, u64);

impl Blocks {
    fn query(&self, connection: &Connection, rest: &str, offset: u64) -> io::Result<Option<Row>> {
        let offset = i64::try_from(offset).unwrap_or(i64::MAX);
        let sql = format!("SELECT blockoffset, dataoffset FROM {} WHERE blockoffset {rest} LIMIT 1", self.table);
        block(connection, &sql, &[&offset])
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
    }

    /// The last row whose data begins at or before `decoded`, and the next one.
    fn find(&self, decoded: u64) -> io::Result<Option<(Row, Row)>> {
        let connection = self.connections.get().map_err(|error| io::Error::other(error.to_string()))?;
        let lies = |what: String| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", self.table));
        let known = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let first = match known {
            Some((_, next)) if next.1 <= decoded => Some(next),
            _ => self.query(&connection, ">= ?1 ORDER BY blockoffset", 0)?,
        };
        let Some(mut low) = first else { return Ok(None) };
        let Some(mut high) = self.query(&connection, "<= ?1 ORDER BY blockoffset DESC", u64::MAX)? else {
            return Ok(None);
        };
        if low.1 > decoded
            || high.1 != self.decoded_length
            || high.0 > self.stream_length.saturating_mul(8).checked_div(self.unit).unwrap_or(0)
        {
            return Err(lies(format!(
                "its blocks lead to decoded bytes {} to {}, and the stream has {}",
                low.1, high.1, self.decoded_length
            )));
        }
        // low.1 <= decoded < high.1: halves what lies between, where the data would be if all blocks were alike
        // first, so that a few steps do.
        for step in 0_u32.. {
            let Some(next) = self.query(&connection, "> ?1 ORDER BY blockoffset", low.0)? else { break };
            if next.1 < low.1 || next.1 > high.1 {
                return Err(lies(format!("the data of block {} does not lie behind that of block {}", next.0, low.0)));
            }
            if next.1 > decoded {
                return Ok(Some((low, next)));
            }
            low = next;
            let span = high.0.saturating_sub(low.0);
            let share = if step.is_multiple_of(2) {
                let numerator = u128::from(span).saturating_mul(u128::from(decoded.saturating_sub(low.1)));
                numerator.checked_div(u128::from(high.1.saturating_sub(low.1))).unwrap_or(0) as u64
            } else {
                span / 2
            };
            let middle = low.0.saturating_add(share.min(span));
            let Some(found) = self.query(&connection, "<= ?1 ORDER BY blockoffset DESC", middle)? else { break };
            if found.1 < low.1 || found.1 > high.1 {
                return Err(lies(format!("the data of block {} does not lie between those of others", found.0)));
            }
            if found.1 <= decoded {
                low = found.max(low);
            } else {
                high = found;
            }
        }
        Err(lies(format!("no block holds byte {decoded}")))
    }
}

impl ChunkTable for Blocks {
    fn chunk_at(&self, decoded: u64) -> io::Result<Option<Chunk>> {
        if decoded >= self.decoded_length {
            return Ok(None);
        }
        let known = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match known {
            Some((row, next)) if (row.1..next.1).contains(&decoded) => Some((row, next)),
            _ => self.find(decoded)?,
        };
        let Some((row, next)) = found else { return Ok(None) };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((row, next));
        // The first block is decoded from the header of the stream.
        let compressed_bit = if row.1 == 0 { 0 } else { row.0.saturating_mul(self.unit) };
        Ok(Some(Chunk {
            point: SeekPoint { compressed_bit, decoded: row.1, state: Vec::new() },
            length: next.1.saturating_sub(row.1),
            checksums: Vec::new(),
        }))
    }

    fn decoded_length(&self) -> u64 {
        self.decoded_length
    }

    /// One row after the other, so that no memory is taken for them.
    fn longest(&self) -> io::Result<Option<u64>> {
        let longest = || -> Result<u64, Error> {
            let connection = self.connections.get()?;
            let sql = format!("SELECT dataoffset, blockoffset FROM {} ORDER BY blockoffset", self.table);
            let mut statement = connection.prepare_cached(&sql).map_err(broken)?;
            let mut rows = statement.query([]).map_err(broken)?;
            let (mut longest, mut before, mut last) = (0, 0_u64, None);
            while let Some(row) = rows.next().map_err(broken)? {
                connection.renew();
                let start = unsigned(row, 0).map_err(broken)?;
                // Such rows come from a broken tree of pages, and may have no end.
                let block = Some(unsigned(row, 1).map_err(broken)?);
                if block <= std::mem::replace(&mut last, block) {
                    return Err(Error::Broken(format!("the blocks of {} are out of order", self.table)));
                }
                longest = start.saturating_sub(before).max(longest);
                before = start;
            }
            Ok(longest)
        };
        longest().map(Some).map_err(into_io)
    }

    fn damage_in(&self, _decoded: Range<u64>) -> io::Result<Option<Damage>> {
        Ok(None)
    }
}

/// Points in ascending order, inside both streams.
fn check_points(points: &[Point], stream_length: u64, decoded_length: u64) -> Result<(), Error> {
    let in_order = points.is_sorted_by(|a, b| a.compressed_bit < b.compressed_bit && a.decoded <= b.decoded);
    let inside = points
        .last()
        .is_none_or(|last| last.compressed_bit <= stream_length.saturating_mul(8) && last.decoded <= decoded_length);
    if in_order && inside {
        Ok(())
    } else {
        Err(Error::Broken("seek points are out of order or lie behind the end".into()))
    }
}

/// Seek points of a gzip stream.
struct Points {
    connections: Arc<Connections>,
    codec: &'static dyn Codec,
    source: SharedSource,
    values: Values,
    /// The windows are zlib streams.
    is_packed: bool,
    all: Vec<Point>,
    /// By the number of the point, those that are in memory.
    windows: Option<HashMap<usize, Vec<u8>>>,
    decoded_length: u64,
}

impl Debug for Points {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Points")
            .field("source", &self.source)
            .field("count", &self.all.len())
            .finish_non_exhaustive()
    }
}

impl Points {
    fn state(&self, index: usize, point: &Point) -> Result<Vec<u8>, Error> {
        if point.window.1 == 0 {
            // At the header of a member nothing is needed; inside, that nothing is needed must be said.
            let mut magic = [0; 3];
            if point.compressed_bit.is_multiple_of(8) {
                let _ = self.source.read_at(&mut magic, point.compressed_bit / 8)?;
            }
            return if magic == [0x1f, 0x8b, 8] { Ok(Vec::new()) } else { self.state_of(&[]) };
        }
        let packed = if let Some(window) = self.windows.as_ref().and_then(|windows| windows.get(&index)) {
            window.clone()
        } else {
            let connection = self.connections.get()?;
            self.values.reader(&connection).read(point.window.0, point.window.1 as usize)?
        };
        let window = if self.is_packed { gztool::unpack(&packed)? } else { packed };
        self.state_of(&window)
    }

    fn state_of(&self, window: &[u8]) -> Result<Vec<u8>, Error> {
        let windows = self.codec.windows().ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
        Ok(windows.state_from_window(window)?)
    }
}

impl ChunkTable for Points {
    fn chunk_at(&self, decoded: u64) -> io::Result<Option<Chunk>> {
        if decoded >= self.decoded_length {
            return Ok(None);
        }
        let behind = self.all.partition_point(|point| point.decoded <= decoded);
        let end = self.all.get(behind).map_or(self.decoded_length, |next| next.decoded);
        let index = behind.checked_sub(1);
        let point = match index.and_then(|index| Some((index, self.all.get(index)?))) {
            Some((index, point)) if point.decoded > 0 => SeekPoint {
                compressed_bit: point.compressed_bit,
                decoded: point.decoded,
                state: self.state(index, point).map_err(into_io)?,
            },
            // From the start nothing is needed, whatever the table says of it.
            _ => SeekPoint::default(),
        };
        let length = end.saturating_sub(point.decoded);
        Ok(Some(Chunk { point, length, checksums: Vec::new() }))
    }

    fn decoded_length(&self) -> u64 {
        self.decoded_length
    }

    fn damage_in(&self, _decoded: Range<u64>) -> io::Result<Option<Damage>> {
        Ok(None)
    }
}

fn into_io(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        other => io::Error::new(io::ErrorKind::InvalidData, other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a point without a window nothing is read or kept, and small ones count with what they take beside.
    #[test]
    fn only_windows_that_are_there_are_kept() {
        let points = |count: u64, length: &dyn Fn(u64) -> u32| -> Vec<Point> {
            let point = |number| Point { compressed_bit: number, decoded: number, window: (number, length(number)) };
            (0..count).map(point).collect()
        };
        let kept = |points: &[Point]| {
            let mut reads = 0_u64;
            let windows = windows_in_memory(points, &mut |point| {
                reads += 1;
                Ok(vec![point.window.0 as u8; point.window.1 as usize])
            });
            (windows.unwrap(), reads)
        };
        let (windows, reads) = kept(&points(100_000, &|number| if number.is_multiple_of(1000) { 3 } else { 0 }));
        let windows = windows.unwrap();
        assert_eq!((windows.len(), reads), (100, 100));
        assert_eq!(windows.get(&7000), Some(&vec![7000_u64 as u8; 3]));
        assert!(!windows.contains_key(&7001));
        // Of 32 KiB each, as they are where they are not compressed.
        assert_eq!(kept(&points(255, &|_| 32 << 10)).1, 255);
        assert_eq!(kept(&points(257, &|_| 32 << 10)), (None, 0));
        // A byte each is not what they take.
        assert_eq!(kept(&points(200_000, &|_| 1)), (None, 0));
    }
}
