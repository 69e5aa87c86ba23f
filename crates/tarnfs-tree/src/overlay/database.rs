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
use rusqlite::ffi::ErrorCode;
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
    /// Transactions so far, and how many of them are on the disk.
    committed: AtomicU64,
    synced: Mutex<u64>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What SQLite says, as the tree says it.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn failed(error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Errno::NOSPC.into(),
        Some(ErrorCode::OutOfMemory) => Errno::NOMEM.into(),
        Some(ErrorCode::ReadOnly) => Error::ReadOnly,
        _ => {
            let told = tarnfs_format::name::excerpt(error.to_string().as_bytes()).to_string();
            io::Error::other(format!("the overlay's database: {told}")).into()
        }
    }
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
            synced: Mutex::new(0),
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

    /// Asks, beside whoever changes something.
    pub(super) fn ask<T>(&self, ask: impl FnOnce(&Connection) -> Result<T, Error>) -> Result<T, Error> {
        ask(&lock(&self.reader))
    }

    /// Changes something: all that `edit` does, or nothing. `done` is called before anybody else changes something.
    pub(super) fn edit<T>(
        &self,
        edit: impl FnOnce(&Connection) -> Result<T, Error>,
        done: impl FnOnce(&T),
    ) -> Result<T, Error> {
        let writer = lock(&self.writer);
        let run = |sql: &str| writer.prepare_cached(sql).and_then(|mut sql| sql.execute([])).map_err(failed);
        run("BEGIN IMMEDIATE")?;
        let edited = edit(&writer).and_then(|edited| run("COMMIT").map(|_| edited));
        match edited {
            Ok(edited) => {
                self.committed.fetch_add(1, Ordering::SeqCst);
                done(&edited);
                Ok(edited)
            }
            Err(error) => {
                // It may have been ended by what failed.
                if !writer.is_autocommit() {
                    run("ROLLBACK")?;
                }
                Err(error)
            }
        }
    }

    /// Waits until all that was done so far survives a loss of power.
    pub(super) fn sync(&self) -> io::Result<()> {
        let so_far = self.committed.load(Ordering::SeqCst);
        let mut synced = lock(&self.synced);
        if *synced < so_far {
            self.log.sync_data()?;
            *synced = so_far;
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

/// Fails unless it is a file of this version.
fn check(connection: &Connection) -> Result<(), Error> {
    let (application, version) = (number(connection, "application_id")?, number(connection, "user_version")?);
    let what = match (application, version) {
        (APPLICATION, VERSION) => return Ok(()),
        (APPLICATION, later) if later > VERSION => "was made by a later tarnfs",
        _ => "is no overlay of tarnfs",
    };
    Err(io::Error::new(io::ErrorKind::InvalidData, format!("{NAME} {what}")).into())
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
    connection.execute_batch(touch).map_err(failed)
}
