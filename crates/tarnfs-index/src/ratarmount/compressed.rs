//! Writes the seek points of a compressed archive into the tables of ratarmount's decoders.

use std::io;
use std::sync::Arc;

use rusqlite::{Connection, params};
use tarnfs_codec::{Chunk, ChunkTable, Codec};
use tarnfs_source::{Setting, Source};

use super::{gzidx, gztool};
use crate::sqlite::failed;
use crate::{Error, Index};

/// Compressed length from which ratarmount uses rapidgzip, which reads gztool's index: four of its spacings. Below it
/// is indexed_gzip, which only reads its own.
const RAPIDGZIP_FROM: u64 = 64 << 20;

/// Bytes of a row: windows of a large archive do not wait in memory.
const VALUE: usize = 16 << 20;

/// Bytes of what is one row, and so waits in memory: with windows for 4 GiB of compressed data.
const MOST_OF_ONE: usize = 512 << 20;

/// Writes the table that ratarmount reads for the codec of the archive `source`; none for a plain one and for xz.
pub(super) fn write(index: &Arc<dyn Index>, source: &dyn Source, connection: &Connection) -> Result<(), Error> {
    let [layer] = &index.summary().layers[..] else {
        return match index.summary().layers.len() {
            0 => Ok(()),
            layers => Err(Error::Unknown(format!("ratarmount keeps one layer of compression, here are {layers}"))),
        };
    };
    let codec = tarnfs_codec::by_name(&layer.codec)
        .ok_or_else(|| Error::Unknown(format!("there is no decoder for {}", layer.codec)))?;
    let table = Arc::clone(index).chunks(0)?;
    match codec.name() {
        "xz" => Ok(()),
        "bzip2" => bzip2(&*table, source, connection),
        "zstd" => zstd(&*table, source, connection),
        "gzip" | "zlib" => gzip(codec, &*table, source, connection),
        other => Err(Error::Unknown(format!("ratarmount keeps no index for {other}"))),
    }
}

fn each(table: &dyn ChunkTable, receive: &mut dyn FnMut(Chunk) -> Result<(), Error>) -> Result<(), Error> {
    let mut decoded = 0;
    while let Some(chunk) = table.chunk_at(decoded)? {
        let next = chunk.point.decoded.saturating_add(chunk.length);
        if next <= decoded {
            return Err(Error::Broken(format!("the chunk at decoded byte {decoded} is empty")));
        }
        receive(chunk)?;
        decoded = next;
    }
    Ok(())
}

fn insert(connection: &Connection, table: &str, offset: u64, decoded: u64) -> Result<(), Error> {
    connection
        .prepare_cached(&format!("INSERT OR REPLACE INTO {table} VALUES (?1, ?2)"))
        .and_then(|mut statement| statement.execute(params![offset as i64, decoded as i64]))
        .map(drop)
        .map_err(failed)
}

fn zstd(table: &dyn ChunkTable, source: &dyn Source, connection: &Connection) -> Result<(), Error> {
    connection
        .execute_batch("CREATE TABLE zstdblocks (blockoffset INTEGER PRIMARY KEY, dataoffset INTEGER)")
        .map_err(failed)?;
    each(table, &mut |chunk| {
        // Points inside a frame are not for ratarmount: it starts at frames.
        if !chunk.point.state.is_empty() {
            return Ok(());
        }
        insert(connection, "zstdblocks", chunk.point.compressed_bit / 8, chunk.point.decoded)
    })?;
    insert(connection, "zstdblocks", source.len(), table.decoded_length())
}

fn bzip2(table: &dyn ChunkTable, source: &dyn Source, connection: &Connection) -> Result<(), Error> {
    connection
        .execute_batch("CREATE TABLE bzip2blocks (blockoffset INTEGER PRIMARY KEY, dataoffset INTEGER)")
        .map_err(failed)?;
    each(table, &mut |chunk| {
        let mut offset = chunk.point.compressed_bit;
        let mut header = [0; 3];
        if offset.is_multiple_of(8) && source.read_at(&mut header, offset / 8)? == 3 && header == *b"BZh" {
            // ratarmount's decoder wants the block itself, four bytes behind the start of its stream.
            offset = offset.saturating_add(32);
        }
        insert(connection, "bzip2blocks", offset, chunk.point.decoded)
    })?;
    if let Some(end) = end_of_stream(source)? {
        insert(connection, "bzip2blocks", end, table.decoded_length())?;
    }
    insert(connection, "bzip2blocks", source.len().saturating_mul(8), table.decoded_length())
}

/// The bit at which the end mark of the last stream begins: 48 bits, before a CRC of 32 and up to 7 bits that fill the
/// byte.
fn end_of_stream(source: &dyn Source) -> io::Result<Option<u64>> {
    const MARK: u64 = 0x1772_4538_5090;
    // Bytes that may follow: what other programs add behind a stream.
    const SEARCHED: u64 = 4096;
    let start = source.len().saturating_sub(SEARCHED);
    let mut bytes = vec![0; source.len().saturating_sub(start) as usize];
    source.read_exact_at(&mut bytes, start)?;
    let found = (0..bytes.len()).rev().find_map(|at| {
        let word = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()).map(|word| u64::from_be_bytes(*word))?;
        (0..8_u64)
            .find(|shift| word >> 16_u64.saturating_sub(*shift) & 0xffff_ffff_ffff == MARK)
            .map(|shift| (at, shift))
    });
    Ok(found.map(|(at, shift)| start.saturating_add(at as u64).saturating_mul(8).saturating_add(shift)))
}

fn gzip(
    codec: &'static dyn Codec,
    table: &dyn ChunkTable,
    source: &dyn Source,
    connection: &Connection,
) -> Result<(), Error> {
    let is_large = source.len() >= RAPIDGZIP_FROM || codec.name() != "gzip";
    let name = if is_large { "gztoolindex" } else { "gzipindex" };
    connection.execute_batch(&format!("CREATE TABLE {name} (data BLOB)")).map_err(failed)?;
    let insert = |value: &[u8]| {
        connection.execute(&format!("INSERT INTO {name} VALUES (?1)"), [value]).map(drop).map_err(failed)
    };
    let (mut gztool, mut gzidx) = (gztool::Builder::new(), gzidx::Builder::default());
    if is_large {
        // Its place: it says how many points follow.
        insert(&[])?;
    }
    each(table, &mut |chunk| {
        let point = &chunk.point;
        // Both programs start at deflate data, never at a header.
        let (bit, window) = if point.state.is_empty() {
            let header = header_length(codec, source, point.compressed_bit / 8)?;
            (point.compressed_bit.saturating_add(header.saturating_mul(8)), Vec::new())
        } else {
            let windows = codec.windows().ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
            (point.compressed_bit, windows.window_from_state(&point.state)?)
        };
        if is_large {
            gztool.add(bit, point.decoded, &window)?;
            if gztool.ready() >= VALUE {
                insert(&gztool.take())?;
            }
        } else {
            gzidx.add(bit, point.decoded, &window);
            if gzidx.bytes() > MOST_OF_ONE {
                let mib = MOST_OF_ONE >> 20;
                let spacing = Setting::GzipSeekPointSpacing;
                let what = format!(
                    "the seek points of this archive take more than {mib} MiB, the limit of ratarmount's table of them; more decoded bytes between two ({spacing}) take less"
                );
                return Err(io::Error::other(what).into());
            }
        }
        Ok(())
    })?;
    if is_large {
        let (head, rest) = gztool.finish(table.decoded_length());
        insert(&rest)?;
        let replace = format!("UPDATE {name} SET data = ?1 WHERE rowid = 1");
        connection.execute(&replace, [head]).map(drop).map_err(failed)
    } else {
        insert(&gzidx.finish(source.len(), table.decoded_length()))
    }
}

/// Length in bytes of the header at byte `at` of a gzip member (RFC 1952 §2.3) or zlib stream (RFC 1950 §2.2).
fn header_length(codec: &'static dyn Codec, source: &dyn Source, at: u64) -> Result<u64, Error> {
    /// Name and comment have no length: more than this is no header.
    const MOST: usize = 1 << 20;
    let mut bytes = vec![0; 4096];
    let damaged = || Error::Stale(format!("there is no header of deflate data at byte {at} of the archive"));
    loop {
        let read = source.read_at(&mut bytes, at)?;
        let header = bytes.get(..read).unwrap_or_default();
        let length = if codec.name() == "zlib" {
            // FDICT adds the number of a dictionary.
            header.get(1).map(|flags| if flags & 0x20 == 0 { 2 } else { 6 })
        } else {
            gzip_header(header)
        };
        match length {
            Some(length) => return Ok(length as u64),
            None if read < bytes.len() || read >= MOST => return Err(damaged()),
            None => bytes.resize(bytes.len().saturating_mul(4), 0),
        }
    }
}

/// `None` if it goes on behind these bytes, or is none.
fn gzip_header(bytes: &[u8]) -> Option<usize> {
    let [0x1f, 0x8b, 8, flags, ..] = *bytes else { return None };
    let mut length = 10_usize;
    if flags & 4 != 0 {
        let extra = bytes.get(length..)?.first_chunk::<2>()?;
        length = length.checked_add(2)?.checked_add(usize::from(u16::from_le_bytes(*extra)))?;
    }
    // A name and a comment, each with a zero at its end.
    for has_text in [flags & 8 != 0, flags & 16 != 0] {
        if has_text {
            let text = bytes.get(length..)?.iter().position(|&byte| byte == 0)?;
            length = length.checked_add(text)?.checked_add(1)?;
        }
    }
    if flags & 2 != 0 {
        length = length.checked_add(2)?;
    }
    (length <= bytes.len()).then_some(length)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test that overflows fails")]
mod tests {
    use super::*;

    /// RFC 1952 §2.3: bits 1 to 4 of the flags say what follows the ten bytes that all have.
    #[test]
    fn a_gzip_header_is_as_long_as_its_flags_say() {
        for flags in 0..32_u8 {
            let mut header = vec![0x1f, 0x8b, 8, flags, 0, 0, 0, 0, 0, 3];
            let parts: [(u8, &[u8]); 4] = [(4, b"\x03\0abc"), (8, b"name\0"), (16, b"a comment\0"), (2, b"\x12\x34")];
            for (flag, part) in parts {
                if flags & flag != 0 {
                    header.extend_from_slice(part);
                }
            }
            let length = header.len();
            assert_eq!(gzip_header(&header[..length]), Some(length), "{flags}");
            for cut in 0..length {
                assert_eq!(gzip_header(&header[..cut]), None, "{flags}, cut at {cut}");
            }
            header.extend_from_slice(b"content\0with a zero");
            assert_eq!(gzip_header(&header), Some(length), "{flags}");
        }
        for (at, value) in [(0, 0x1e), (1, 0x8c), (2, 7)] {
            let mut other = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
            if let Some(byte) = other.get_mut(at) {
                *byte = value;
            }
            assert_eq!(gzip_header(&other), None, "{at}");
        }
    }
}
