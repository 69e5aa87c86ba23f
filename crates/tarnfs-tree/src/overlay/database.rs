//! The SQLite file of an overlay: who asks, who changes, and when it is on the disk.
//!
//! Two connections in WAL mode: one that changes, one transaction for each system call, and one that only asks, so that
//! nobody who looks up a name waits for who changes one. A transaction goes to the log without a sync: it is found
//! after this process was killed. [`Database::sync`] makes all that was done so far survive a loss of power.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::ffi::{ErrorCode, SQLITE_IOERR_SHMSIZE};
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};
use rustix::io::Errno;

use crate::Error;

/// The file in the folder of an overlay.
pub(super) const NAME: &str = ".tarnfs-overlay.sqlite";

/// `tfs` and the kind of file, as `PRAGMA application_id`.
const APPLICATION: i64 = 0x7466_736f;

/// The version of [`SCHEMA`]. Later ones are refused.
const VERSION: i64 = 1;

const SCHEMA: &str = include_str!("schema.sql");

/// Pages of the log from which on it is brought back into the file: 8 MiB.
const MOST_LOG: u32 = 2000;

/// How long is waited for another program that looks into the file (`tarnfs overlay status`).
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest value of one that is not believed to be longer: of an extended attribute, with room to spare.
const LONGEST_VALUE: i32 = 1 << 20;

/// What the names and attributes of an overlay are in.
#[derive(Debug)]
pub(super) struct Database {
    path: PathBuf,
    writer: Mutex<Connection>,
    reader: Mutex<Connection>,
    /// The log itself, to bring it to the disk.
    log: File,
    /// Transactions so far.
    committed: AtomicU64,
    synced: Mutex<Synced>,
}

/// What is on the disk.
#[derive(Debug, Default)]
struct Synced {
    /// So many transactions are.
    transactions: u64,
    /// The disk has refused some of the log. The kernel takes what it could not write for written.
    has_failed: bool,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What SQLite says, as the tree says it.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn failed(error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Errno::NOSPC.into(),
        // What its connections share cannot have the length that it needs.
        _ if error.sqlite_error().is_some_and(|error| error.extended_code == SQLITE_IOERR_SHMSIZE) => {
            Errno::NOSPC.into()
        }
        Some(ErrorCode::OutOfMemory) => Errno::NOMEM.into(),
        Some(ErrorCode::ReadOnly) => Error::ReadOnly,
        _ => {
            let told = tarnfs_format::name::excerpt(error.to_string().as_bytes()).to_string();
            io::Error::other(format!("the overlay's database: {told}")).into()
        }
    }
}

/// True if there is no room for something, on the disk or for this user.
pub(super) fn is_full(error: &Error) -> bool {
    matches!(error.errno(), Errno::NOSPC | Errno::DQUOT)
}

impl Database {
    /// Opens the file at `path`; an empty one gets its tables.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let writer = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
        let mode: String = writer.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(failed)?;
        if !mode.eq_ignore_ascii_case("wal") {
            let what = "this file system cannot hold an overlay: it shares no memory between programs";
            return Err(io::Error::new(io::ErrorKind::Unsupported, what).into());
        }
        writer
            .execute_batch(&format!("PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = {MOST_LOG}"))
            .map_err(failed)?;
        // By one transaction, so that the log is there.
        begin_or_check(&writer)?;
        let reader = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        reader.query_row("SELECT count(*) FROM overlay", [], |row| row.get::<_, i64>(0)).map_err(failed)?;
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let log = File::options().read(true).write(true).create(true).truncate(false).open(log)?;
        Ok(Self {
            path: path.to_owned(),
            writer: Mutex::new(writer),
            reader: Mutex::new(reader),
            log,
            committed: AtomicU64::new(1),
            synced: Mutex::default(),
        })
    }

    /// Opens the file at `path`, which another process may have in use, to look into it. Nothing is changed: neither is
    /// the log brought back into it, nor removed.
    pub(super) fn look(path: &Path) -> Result<Connection, Error> {
        let reader = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        reader.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed)?;
        check(&reader)?;
        Ok(reader)
    }

    /// Opens the file at `path`, which nobody has in use, to look into it as a mount would: nothing can be changed.
    pub(super) fn open_to_look(path: &Path) -> Result<Self, Error> {
        Ok(Self {
            path: path.to_owned(),
            writer: Mutex::new(Self::look(path)?),
            reader: Mutex::new(Self::look(path)?),
            log: File::open(path)?,
            committed: AtomicU64::new(0),
            synced: Mutex::default(),
        })
    }

    /// Asks, beside whoever changes something.
    pub(super) fn ask<T>(&self, ask: impl FnOnce(&Connection) -> Result<T, Error>) -> Result<T, Error> {
        ask(&lock(&self.reader))
    }

    /// Changes something: all that `edit` does, or nothing. `done` is called before anybody else changes something, or
    /// `undone` where it came to nothing: numbers that were taken back are given out again at once.
    pub(super) fn edit<T>(
        &self,
        edit: impl FnOnce(&Connection) -> Result<T, Error>,
        done: impl FnOnce(&T),
        undone: impl FnOnce(),
    ) -> Result<T, Error> {
        let writer = lock(&self.writer);
        let run = |sql: &str| writer.prepare_cached(sql).and_then(|mut sql| sql.execute([])).map_err(failed);
        run("BEGIN IMMEDIATE")?;
        // Behind the lock, so that it goes before that is given back.
        let mut begun = Begun { writer: &writer, undone: Some(undone) };
        let edited = edit(&writer)?;
        run("COMMIT")?;
        begun.undone = None;
        self.committed.fetch_add(1, Ordering::SeqCst);
        done(&edited);
        Ok(edited)
    }

    /// Waits until all that was done so far survives a loss of power. Where the disk has once refused it, that is the
    /// answer for ever: who asks again would be told that all is well.
    pub(super) fn sync(&self) -> io::Result<()> {
        let so_far = self.committed.load(Ordering::SeqCst);
        let mut synced = lock(&self.synced);
        if synced.has_failed {
            let what = "the disk has refused what was written before: copy what is needed, and mount again";
            return Err(io::Error::other(format!("{}: {what}", self.path.display())));
        }
        if synced.transactions < so_far {
            if let Err(error) = self.log.sync_data() {
                synced.has_failed = true;
                log::error!("{}: bringing what was done to the disk: {error}", self.path.display());
                return Err(error);
            }
            synced.transactions = so_far;
        }
        Ok(())
    }

    /// Brings the log back into the file, so that it begins anew and does not grow where there is no room.
    pub(super) fn shorten(&self) {
        let writer = lock(&self.writer);
        let done = writer.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| row.get::<_, i64>(0));
        if let Err(error) = done {
            log::debug!("{}: {}", self.path.display(), failed(error));
        }
    }

    /// Brings the log back into the file, as nobody will change anything any more.
    pub(super) fn finish(&self) {
        let writer = lock(&self.writer);
        let done = writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        if let Err(error) = done {
            log::warn!("{}: {}; nothing is lost, it is in the log beside it", self.path.display(), failed(error));
        }
    }
}

/// A transaction, which is taken back unless it came to its end: also where a mistake of ours (a panic) ends it.
struct Begun<'a, F: FnOnce()> {
    writer: &'a Connection,
    undone: Option<F>,
}

impl<F: FnOnce()> Drop for Begun<'_, F> {
    fn drop(&mut self) {
        let Some(undone) = self.undone.take() else { return };
        // It may have been ended by what failed.
        if !self.writer.is_autocommit()
            && let Err(error) = self.writer.execute_batch("ROLLBACK")
        {
            log::error!("a change to the overlay could not be taken back: {}", failed(error));
            return;
        }
        undone();
    }
}

/// A connection that runs nothing of what is in the file.
pub(super) fn connect(path: &Path, how: OpenFlags) -> Result<Connection, Error> {
    let flags =
        OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW | OpenFlags::SQLITE_OPEN_PRIVATE_CACHE | how;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    // Somebody may have made it for us: nothing in it is run.
    for (setting, value) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true),
    ] {
        connection.set_db_config(setting, value).map_err(failed)?;
    }
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST_VALUE).map_err(failed)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0).map_err(failed)?;
    connection.busy_timeout(PATIENCE).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(64);
    let set =
        "PRAGMA mmap_size = 0; PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON; PRAGMA cache_size = -8192";
    connection.execute_batch(set).map_err(failed)?;
    Ok(connection)
}

fn number(connection: &Connection, pragma: &str) -> Result<i64, Error> {
    connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get(0)).map_err(failed)
}

/// Fails unless it is a file of this version, with its tables and no others: what is in them may be anything, but none
/// of it is computed.
fn check(connection: &Connection) -> Result<(), Error> {
    let (application, version) = (number(connection, "application_id")?, number(connection, "user_version")?);
    let what = match (application, version) {
        (APPLICATION, VERSION) => {
            let own = Connection::open_in_memory().map_err(failed)?;
            own.execute_batch(SCHEMA).map_err(failed)?;
            let expected = tables(&own, i64::MAX)?;
            // One more, if it has more: there may be any number.
            if tables(connection, expected.len() as i64 + 1)? == expected {
                return Ok(());
            }
            "has other tables than tarnfs makes"
        }
        (APPLICATION, later) if later > VERSION => "was made by a later tarnfs",
        _ => "is no overlay of tarnfs",
    };
    Err(io::Error::new(io::ErrorKind::InvalidData, format!("{NAME} {what}")).into())
}

/// What is in a database, and how it was made, by name.
fn tables(connection: &Connection, most: i64) -> Result<Vec<[Option<String>; 4]>, Error> {
    let sql = "SELECT name, tbl_name, type, sql FROM sqlite_schema ORDER BY name LIMIT ?";
    let mut query = connection.prepare(sql).map_err(failed)?;
    let rows = query.query_map([most], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?]));
    rows.and_then(Iterator::collect).map_err(failed)
}

/// Makes the tables in an empty file; else it must be one of ours.
fn begin_or_check(connection: &Connection) -> Result<(), Error> {
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(failed)?;
    if tables == 0 {
        let all = format!(
            "BEGIN IMMEDIATE; {SCHEMA} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT"
        );
        return connection.execute_batch(&all).map_err(failed);
    }
    check(connection)?;
    // So that there is a log from the first moment on.
    let touch = "INSERT OR REPLACE INTO overlay VALUES ('opened', datetime('now'))";
    match connection.execute_batch(touch).map_err(failed) {
        // What was written can be read all the same, and the room that is kept is for what has to be noted.
        Err(error) if is_full(&error) => {
            log::warn!("{NAME}: when it was opened is not noted: {error}");
            Ok(())
        }
        touched => touched,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::TryLockError;

    use super::*;

    fn put(connection: &Connection) -> Result<(), Error> {
        connection.execute_batch("INSERT INTO overlay VALUES ('a', 'b')").map_err(failed)
    }

    #[test]
    fn what_came_to_nothing_is_undone_before_anybody_else_changes_something() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        let database = Database::open(&path).unwrap();
        let undone = Cell::new(0);
        let undo = || {
            // The lock of this process is held yet, that of the file is not: the transaction is taken back.
            assert!(matches!(database.writer.try_lock(), Err(TryLockError::WouldBlock)));
            let other = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
            other.busy_timeout(Duration::ZERO).unwrap();
            other.execute_batch("BEGIN IMMEDIATE; ROLLBACK").unwrap();
            undone.set(undone.get() + 1);
        };
        let failing = |connection: &Connection| put(connection).and(Err::<(), _>(Error::NotFound));
        assert!(database.edit(failing, |()| unreachable!(), undo).is_err());
        assert_eq!(undone.get(), 1);
        // A mistake of ours leaves no transaction that nobody ends.
        let wrong = |connection: &Connection| -> Result<(), Error> { put(connection).map(|()| unreachable!()) };
        assert!(catch_unwind(AssertUnwindSafe(|| database.edit(wrong, |()| (), undo))).is_err());
        assert_eq!(undone.get(), 2);
        database.edit(put, |()| (), || unreachable!()).unwrap();
    }

    /// > A database with other tables is refused: its values could be computed, and be of any length.
    #[test]
    fn tables_of_somebody_else_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        for (number, change) in [
            "DROP TABLE names; CREATE TABLE names (seq INTEGER PRIMARY KEY AUTOINCREMENT, folder INTEGER NOT NULL, \
             name BLOB AS (zeroblob(999000) || cast(seq AS BLOB)), node INTEGER, is_over INTEGER NOT NULL)",
            "CREATE TABLE other (a)",
            "CREATE VIEW other AS SELECT 1",
            "DROP INDEX names_of_nodes",
        ]
        .into_iter()
        .enumerate()
        {
            let path = folder.path().join(number.to_string());
            drop(Database::open(&path).unwrap());
            Database::look(&path).unwrap();
            Connection::open(&path).unwrap().execute_batch(change).unwrap();
            for refused in [Database::open(&path).map(drop), Database::look(&path).map(drop)] {
                let refused = refused.unwrap_err().to_string();
                assert!(refused.contains("has other tables"), "{change}: {refused}");
            }
        }
    }

    /// > Once the disk has refused something that was written, no `fsync` says that all is there.
    #[test]
    fn what_the_disk_has_refused_is_not_said_to_be_on_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut database = Database::open(&folder.path().join(NAME)).unwrap();
        // Nothing of a pipe can be brought to a disk.
        let (_, pipe) = std::io::pipe().unwrap();
        let log = std::mem::replace(&mut database.log, File::from(std::os::fd::OwnedFd::from(pipe)));
        database.edit(put, |()| (), || unreachable!()).unwrap();
        database.sync().unwrap_err();
        database.log = log;
        let refused = database.sync().unwrap_err().to_string();
        assert!(refused.contains("mount again"), "{refused}");
    }
}
