//! Rows that cannot be appended to their tables as they come, since they are in another order than the keys, or since
//! the table has no numbers for keys. They wait until the others are written, and go to SQLite.

use std::io;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Statement};
use tarnfs_source::Cancel;

use crate::Error;
use crate::sqlite::{failed, prepare};

use super::pages::Value;
use super::record::{read_number, write_number};
use super::spool::{Overflow, Spool};

/// A table with such rows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Table {
    Replaced,
    Links,
    Devices,
    Times,
    Extents,
    Xattrs,
}

/// Of each of these how a row goes into it.
const STATEMENTS: [&str; 6] = [
    "INSERT INTO replaced VALUES (?, ?, ?, ?, ?, ?, ?)",
    "INSERT INTO links VALUES (?, ?)",
    "INSERT INTO devices VALUES (?, ?, ?)",
    "INSERT INTO times VALUES (?, ?, ?, ?, ?, ?)",
    "INSERT INTO extents VALUES (?, ?)",
    "INSERT OR REPLACE INTO xattrs VALUES (?, ?, ?)",
];

/// Bytes of rows that wait in memory.
const ROOM: usize = 1 << 20;

/// The rows that wait.
#[derive(Debug)]
pub(super) struct Later {
    rows: Spool,
    /// Used again for each row.
    row: Vec<u8>,
}

impl Later {
    /// None yet. What is too much for its memory goes to `overflow`.
    pub(super) fn new(overflow: &Overflow) -> Self {
        Self { rows: Spool::new(ROOM, overflow), row: Vec::new() }
    }

    /// Takes a row with its key and its other values.
    pub(super) fn add(&mut self, table: Table, key: u32, values: &[Value<'_>]) -> io::Result<()> {
        let row = &mut self.row;
        row.clear();
        row.extend_from_slice(&[0; 4]);
        row.push(table as u8);
        write_number(row, u64::from(key));
        for value in values {
            match value {
                Value::Null => row.push(0),
                Value::Integer(number) => {
                    row.push(1);
                    row.extend_from_slice(&number.to_le_bytes());
                }
                Value::Blob(bytes) => {
                    row.push(2);
                    write_number(row, bytes.len() as u64);
                    row.extend_from_slice(bytes);
                }
            }
        }
        let length = row.len() as u32;
        if let Some(head) = row.first_chunk_mut() {
            *head = length.to_le_bytes();
        }
        self.rows.write(row)
    }

    /// Inserts all of them, in the order in which they came. Ends soon after `cancel` was asked for.
    pub(super) fn insert(&self, connection: &Connection, cancel: &Cancel) -> Result<(), Error> {
        if self.rows.len() == 0 {
            return Ok(());
        }
        let mut statements = Vec::new();
        for sql in STATEMENTS {
            statements.push(prepare(connection, sql)?);
        }
        let (mut rows, mut row, mut count) = (self.rows.reader(), Vec::new(), 0_u32);
        while rows.record(&mut row)? {
            count = count.wrapping_add(1);
            if count.is_multiple_of(1024) {
                cancel.check()?;
            }
            let mut rest = row.get(4..).unwrap_or_default();
            let table = rest.split_off_first().copied().unwrap_or_default();
            if let Some(statement) = statements.get_mut(usize::from(table)) {
                insert(statement, rest)?;
            }
        }
        Ok(())
    }
}

/// Inserts a row: its key, and the values behind it.
fn insert(statement: &mut Statement<'_>, mut row: &[u8]) -> Result<(), Error> {
    let key = read_number(&mut row);
    bind(statement, 1, ValueRef::Integer(key as i64))?;
    let mut column = 1_usize;
    while let Some(kind) = row.split_off_first() {
        column = column.saturating_add(1);
        let value = match kind {
            0 => ValueRef::Null,
            1 => {
                let bytes = row.split_off(..8).and_then(<[u8]>::first_chunk);
                ValueRef::Integer(bytes.map_or(0, |bytes| i64::from_le_bytes(*bytes)))
            }
            _ => {
                let length = read_number(&mut row) as usize;
                ValueRef::Blob(row.split_off(..length).unwrap_or_default())
            }
        };
        bind(statement, column, value)?;
    }
    statement.raw_execute().map(drop).map_err(failed)
}

fn bind(statement: &mut Statement<'_>, column: usize, value: ValueRef<'_>) -> Result<(), Error> {
    statement.raw_bind_parameter(column, rusqlite::types::ToSqlOutput::Borrowed(value)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own::schema;
    use tarnfs_source::Budget;

    fn later(rows: u32) -> Later {
        let mut later = Later::new(&Overflow::on_disk(&Budget::new(0)));
        for key in 1..=rows {
            later.add(Table::Links, key, &[Value::Blob(b"target")]).unwrap();
            later
                .add(Table::Times, key, &[Value::Integer(-7), Value::Null, Value::Null, Value::Null, Value::Null])
                .unwrap();
        }
        later
    }

    #[test]
    fn rows_are_inserted_as_they_came_until_somebody_wants_it_to_end() {
        let connection = Connection::open_in_memory().unwrap();
        schema::create(&connection).unwrap();
        later(3).insert(&connection, &Cancel::default()).unwrap();
        let links = "SELECT count(*), sum(node), min(target) FROM links";
        let found = connection.query_row(links, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        assert_eq!(found.unwrap(), (3, 6, b"target".to_vec()));
        let times = "SELECT sum(atime), count(ctime) FROM times";
        assert_eq!(connection.query_row(times, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap(), (-21, 0));
        let cancel = Cancel::default();
        cancel.cancel();
        let connection = Connection::open_in_memory().unwrap();
        schema::create(&connection).unwrap();
        assert!(matches!(later(2000).insert(&connection, &cancel), Err(Error::Io(_))));
    }
}
