//! What the indexes of gztool and of indexed_gzip have in common: seek points, and the column of values that holds the
//! bytes of an index.

use std::sync::{Mutex, PoisonError};

use rusqlite::Connection;

use super::unsigned;
use crate::Error;
use crate::sqlite::broken;

/// A seek point inside deflate data, as gztool and indexed_gzip keep it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) compressed_bit: u64,
    pub(super) decoded: u64,
    /// Byte of the values at which its window begins, and the window's length there.
    pub(super) window: (u64, u32),
}

/// The most points that are read: some 100 MiB. At the closest spacing in use (1 MiB) these are 3 TiB.
pub(super) const MOST_POINTS: u64 = 3 << 20;

/// The first full byte of a point and the bits of the byte before that belong to it (zran.c), as a bit.
pub(super) fn zran_bit(byte: u64, bits: u64) -> Result<u64, Error> {
    (bits < 8)
        .then(|| byte.checked_mul(8).and_then(|bit| bit.checked_sub(bits)))
        .flatten()
        .ok_or_else(|| Error::Broken(format!("a seek point at byte {byte} and {bits} bits")))
}

/// The values of a column `data`, one behind the other.
#[derive(Debug, Clone)]
pub(super) struct Values {
    table: &'static str,
    /// Number of the row, and the byte at which its value ends.
    rows: Vec<(i64, u64)>,
}

/// More values than this are not ratarmount's: it cuts at 256 MiB.
const MOST_VALUES: usize = 1 << 16;

impl Values {
    /// Finds the rows of `table`.
    pub(super) fn find(connection: &Connection, table: &'static str) -> Result<Self, Error> {
        let mut statement = connection
            .prepare(&format!("SELECT rowid, length(data) FROM {table} WHERE typeof(data) = 'blob' ORDER BY rowid"))
            .map_err(broken)?;
        let lengths =
            statement.query_map([], |row| Ok((row.get(0)?, unsigned(row, 1)?))).map_err(broken)?.take(MOST_VALUES);
        let mut rows = Vec::new();
        let mut end = 0_u64;
        for row in lengths {
            let (rowid, length) = row.map_err(broken)?;
            end = end.saturating_add(length);
            rows.push((rowid, end));
        }
        Ok(Self { table, rows })
    }

    pub(super) fn reader<'a>(&'a self, connection: &'a Connection) -> ValuesReader<'a> {
        ValuesReader { values: self, connection, open: Mutex::default() }
    }
}

/// Reads values through one connection.
pub(super) struct ValuesReader<'a> {
    values: &'a Values,
    connection: &'a Connection,
    /// The value that was read last: opening one again means to follow its pages again.
    open: Mutex<Option<(usize, rusqlite::blob::Blob<'a>)>>,
}

impl ValuesReader<'_> {
    /// Bytes of all values together.
    pub(super) fn len(&self) -> u64 {
        self.values.rows.last().map_or(0, |(_, end)| *end)
    }

    /// `length` bytes at `offset`.
    pub(super) fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, Error> {
        let end = offset.checked_add(length as u64).filter(|&end| end <= self.len());
        let end = end.ok_or_else(|| {
            Error::Broken(format!(
                "{} ends at byte {}, {length} bytes are wanted at {offset}",
                self.values.table,
                self.len()
            ))
        })?;
        let mut bytes = Vec::with_capacity(length);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut index = self.values.rows.partition_point(|(_, row_end)| *row_end <= offset);
        while (bytes.len()) < length {
            let position = offset.saturating_add(bytes.len() as u64);
            let Some((rowid, row_end)) = self.values.rows.get(index) else { break };
            let start = index.checked_sub(1).and_then(|before| self.values.rows.get(before)).map_or(0, |(_, end)| *end);
            if open.as_ref().is_none_or(|(which, _)| *which != index) {
                let blob = self.connection.blob_open("main", self.values.table, "data", *rowid, true);
                *open = Some((index, blob.map_err(broken)?));
            }
            let wanted = usize::try_from(end.min(*row_end).saturating_sub(position)).unwrap_or(length);
            if let Some((_, blob)) = open.as_ref() {
                let from = bytes.len();
                bytes.resize(from.saturating_add(wanted), 0);
                let at = usize::try_from(position.saturating_sub(start)).unwrap_or(usize::MAX);
                blob.read_at_exact(&mut bytes[from..], at).map_err(broken)?;
            }
            index = index.saturating_add(1);
        }
        Ok(bytes)
    }

    /// A big-endian number.
    pub(super) fn number(&self, offset: u64, big_endian: bool, length: usize) -> Result<u64, Error> {
        let bytes = self.read(offset, length)?;
        let step = |number: u64, byte: &u8| number.checked_shl(8).unwrap_or(0) | u64::from(*byte);
        Ok(if big_endian { bytes.iter().fold(0, step) } else { bytes.iter().rev().fold(0, step) })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use rusqlite::limits::Limit;

    use super::*;
    use crate::sqlite::{open_for_writing, open_untrusted};
    use crate::vfs::Opened;

    /// Values are read in parts, so they may be longer than anything that a query may have.
    #[test]
    fn values_may_be_longer_than_what_a_query_reads() {
        let file = tempfile::tempfile().unwrap();
        let again = std::fs::File::from(file.as_fd().try_clone_to_owned().unwrap());
        let writing = open_for_writing(&Opened::file(file, true), 4096).unwrap();
        let sql = "CREATE TABLE t (data BLOB); INSERT INTO t VALUES (zeroblob(3000000)), (CAST('behind' AS BLOB))";
        writing.execute_batch(sql).unwrap();
        let (connection, _) = open_untrusted(&Opened::file(again, false), 128).unwrap();
        assert_eq!(connection.limit(Limit::SQLITE_LIMIT_LENGTH).unwrap(), 1 << 20);
        connection.query_row("SELECT data FROM t", [], |row| row.get::<_, Vec<u8>>(0)).unwrap_err();
        let values = Values::find(&connection, "t").unwrap();
        let reader = values.reader(&connection);
        assert_eq!(reader.len(), 3_000_006);
        assert_eq!(reader.read(2_999_998, 8).unwrap(), b"\0\0behind");
        assert_eq!(reader.read(0, 2_000_000).unwrap(), vec![0; 2_000_000]);
    }
}
