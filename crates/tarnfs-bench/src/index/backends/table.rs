//! Tables of SQLite that are asked with plain statements: one whose key is the whole path, and that of ratarmount.

use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row, params};

use super::{Found, Known, Opened, failed, full_mode, kind_of};
use crate::Error;
use crate::index::entries::{Reader, split, text};

/// As tarnfs writes the sidecars of ratarmount: nothing is undone if it stops halfway.
const QUICK: &str = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; \
                     PRAGMA temp_store = FILE;";

/// What both have of an entry.
const COLUMNS: &str = "offsetheader, offset, size, mtime, mode, linkname, uid, gid";

/// Rows are gathered first and sorted once, as ratarmount does it, too: a tree that grows anywhere is far slower.
pub(super) fn make(entries: &mut Reader, path: &Path) -> Result<(), Error> {
    let connection = Connection::open(path).map_err(failed)?;
    let create = |table: &str, key: &str, end: &str| {
        format!(
            "CREATE {table} (path BLOB NOT NULL{key}, offsetheader INTEGER, offset INTEGER, size INTEGER, \
             mtime INTEGER, mode INTEGER, linkname BLOB, uid INTEGER, gid INTEGER){end};"
        )
    };
    let tables = create("TABLE files", " PRIMARY KEY", " WITHOUT ROWID") + &create("TEMP TABLE gathered", "", "");
    connection.execute_batch(&format!("{QUICK} BEGIN; {tables}")).map_err(failed)?;
    let mut insert = connection.prepare("INSERT INTO gathered VALUES (?,?,?,?,?,?,?,?,?)").map_err(failed)?;
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let row = params![
            entry.path,
            entry.header as i64,
            entry.body.offset as i64,
            entry.body.size as i64,
            entry.mtime.seconds,
            full_mode(&entry),
            (!entry.link.is_empty()).then_some(&entry.link),
            entry.uid as i64,
            entry.gid as i64
        ];
        insert.execute(row).map_err(failed)?;
    }
    drop(insert);
    connection.execute_batch("INSERT INTO files SELECT * FROM gathered ORDER BY path; COMMIT;").map_err(failed)?;
    connection.close().map_err(|(_, error)| failed(error))
}

struct Table {
    connection: Connection,
    is_split: bool,
}

/// Opens the one of paths, or that of ratarmount, whose paths are split into folder and name.
pub(super) fn open(path: &Path, is_split: bool) -> Result<Box<dyn Opened>, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    Ok(Box::new(Table { connection, is_split }))
}

/// What stands in a row behind its path or name.
fn found(row: &Row<'_>) -> rusqlite::Result<Found> {
    let mode: u32 = row.get(5)?;
    // What a file system needs is fetched, also where nobody looks at it here.
    let (_header, _offset): (i64, i64) = (row.get(1)?, row.get(2)?);
    let seconds = match row.get_ref(4)? {
        ValueRef::Real(seconds) => seconds as i64,
        other => other.as_i64()?,
    };
    let size: i64 = row.get(3)?;
    Ok(Found {
        kind: kind_of(mode),
        size: size.cast_unsigned(),
        mode: mode & 0o7777,
        owner: (row.get(7)?, row.get(8)?),
        seconds,
        node: 0,
    })
}

/// How ratarmount calls a folder: "/a/b", and nothing for the root.
fn folder_of_ratarmount(path: &[u8]) -> String {
    if path.is_empty() { String::new() } else { format!("/{}", text(path)) }
}

impl Table {
    fn one(&self, rest: &str, first: &str, values: impl rusqlite::Params) -> Result<Option<Found>, Error> {
        let mut statement =
            self.connection.prepare_cached(&format!("SELECT {first}, {COLUMNS} FROM files {rest}")).map_err(failed)?;
        let mut rows = statement.query(values).map_err(failed)?;
        rows.next().and_then(|row| row.map(found).transpose()).map_err(failed)
    }

    /// All rows of a folder, which have its path.
    fn list_split(&self, folder: &Known, receive: &mut dyn FnMut(&[u8], &Found)) -> Result<(), Error> {
        let sql = format!("SELECT name, {COLUMNS} FROM files WHERE path = ?1");
        let mut statement = self.connection.prepare_cached(&sql).map_err(failed)?;
        let mut rows = statement.query([folder_of_ratarmount(&folder.path)]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let found = found(row).map_err(failed)?;
            receive(row.get_ref(0).and_then(|name| Ok(name.as_bytes()?)).map_err(failed)?, &found);
        }
        Ok(())
    }

    /// The rows whose paths begin with that of the folder, without those that lie deeper: these are stepped over, a
    /// folder at a time.
    fn list_paths(&self, folder: &Known, receive: &mut dyn FnMut(&[u8], &Found)) -> Result<(), Error> {
        /// What follows `/`.
        const BEHIND: u8 = b'/' + 1;
        let start = if folder.path.is_empty() { Vec::new() } else { [folder.path.as_slice(), b"/"].concat() };
        // Where something was stepped over, what has the next path itself counts.
        let sql = format!("SELECT path, {COLUMNS} FROM files WHERE path >= ?1 ORDER BY path");
        let mut statement = self.connection.prepare_cached(&sql).map_err(failed)?;
        let mut from = start.clone();
        'seek: loop {
            let mut rows = statement.query([&from]).map_err(failed)?;
            while let Some(row) = rows.next().map_err(failed)? {
                let path = row.get_ref(0).and_then(|path| Ok(path.as_bytes()?)).map_err(failed)?;
                let Some(name) = path.strip_prefix(start.as_slice()) else { return Ok(()) };
                if let Some(slash) = name.iter().position(|&byte| byte == b'/') {
                    let mut next = path[..start.len() + slash].to_vec();
                    next.push(BEHIND);
                    drop(rows);
                    from = next;
                    continue 'seek;
                }
                receive(name, &found(row).map_err(failed)?);
            }
            return Ok(());
        }
    }
}

impl Opened for Table {
    fn known(&self, path: &[u8]) -> Result<Known, Error> {
        Ok(Known { path: path.to_owned(), node: 0 })
    }

    fn lookup(&self, folder: &Known, name: &[u8]) -> Result<Option<Found>, Error> {
        if self.is_split {
            let rest = "WHERE path = ?1 AND name = ?2 ORDER BY offsetheader DESC LIMIT 1";
            return self.one(rest, "name", [folder_of_ratarmount(&folder.path), text(name)]);
        }
        let path = if folder.path.is_empty() { name.to_vec() } else { [folder.path.as_slice(), b"/", name].concat() };
        self.one("WHERE path = ?1", "path", [path])
    }

    fn find(&self, path: &[u8]) -> Result<Option<Found>, Error> {
        let (folder, name) = split(path);
        self.lookup(&Known { path: folder.to_owned(), node: 0 }, name)
    }

    fn list(&self, folder: &Known, receive: &mut dyn FnMut(&[u8], &Found)) -> Result<(), Error> {
        if self.is_split { self.list_split(folder, receive) } else { self.list_paths(folder, receive) }
    }
}
