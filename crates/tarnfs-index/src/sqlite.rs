//! How SQLite is set up, for files that may be broken or planted and for those that are being written.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::config::DbConfig;
use rusqlite::ffi::ErrorCode;
use rusqlite::limits::Limit;
use rusqlite::{Connection, PrepFlags};
use tarnfs_format::name;

use crate::Error;
use crate::vfs::{Opened, read_error};

/// The longest string or blob that is read from an index, in bytes. What can be longer is read through [`with_longer`].
const LONGEST_VALUE: i32 = 1 << 20;

/// The longest there is: the map of a sparse file with as many extents as [`tarnfs_source::Limits`] allows.
const LONGEST_OF_ALL: i32 = 96 << 20;

/// Bytes that SQLite may hold in this process, all connections together: a few of the longest values, and many small
/// caches. From half of it on, caches do not grow.
const MOST_MEMORY: u64 = 512 << 20;

/// Instructions of SQLite's machine between two looks at the [`Patience`].
const TICK: i32 = 10_000;
/// Looks until a query is ended. Each of ours takes a few hundred instructions to its next row; this many take a tenth
/// of a second.
const MOST_TICKS: u32 = 100;

/// What a query may be at most: ours are short, and an index has none of its own.
const LIMITS: [(Limit, i32); 12] = [
    (Limit::SQLITE_LIMIT_LENGTH, LONGEST_VALUE),
    (Limit::SQLITE_LIMIT_SQL_LENGTH, 16 << 10),
    (Limit::SQLITE_LIMIT_COLUMN, 64),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 32),
    (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 4),
    (Limit::SQLITE_LIMIT_VDBE_OP, 25_000),
    (Limit::SQLITE_LIMIT_FUNCTION_ARG, 16),
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
    (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100),
    (Limit::SQLITE_LIMIT_VARIABLE_NUMBER, 32),
    (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 1),
    (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
];

/// How long a query may go on without a row.
#[derive(Debug, Clone, Default)]
pub(crate) struct Patience(Arc<AtomicU32>);

impl Patience {
    /// Begins anew: at each query, and at each row of a long one.
    pub(crate) fn renew(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) >= MOST_TICKS
    }
}

/// A connection to a file that may hold anything: nothing in it is run, nothing beside it is read, and no query goes on
/// for ever.
pub(crate) fn open_untrusted(file: &Opened, cache_kib: u32) -> Result<(Connection, Patience), Error> {
    let mut connection = file.connect().map_err(broken)?;
    for (setting, value) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_DQS_DDL, false),
        (DbConfig::SQLITE_DBCONFIG_DQS_DML, false),
        // Else SQLite makes a plan for the values that are bound, and prepares most of our queries anew at each use.
        (DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true),
    ] {
        connection.set_db_config(setting, value).map_err(broken)?;
    }
    for (limit, value) in LIMITS {
        connection.set_limit(limit, value).map_err(broken)?;
    }
    let patience = Patience::default();
    let asked = patience.clone();
    connection.progress_handler(TICK, Some(move || asked.is_over())).map_err(broken)?;
    connection
        .execute_batch(&format!(
            "PRAGMA mmap_size = 0; PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON; PRAGMA query_only = ON; \
             PRAGMA cache_size = -{cache_kib}; PRAGMA hard_heap_limit = {MOST_MEMORY}; \
             PRAGMA soft_heap_limit = {}",
            MOST_MEMORY / 2
        ))
        .map_err(broken)?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok((connection, patience))
}

/// Does `work` where values may be as long as the longest that an index has.
pub(crate) fn with_longer<T>(connection: &Connection, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST_OF_ALL).map_err(broken)?;
    let done = work();
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST_VALUE).map_err(broken)?;
    done
}

/// A connection for writing a new, empty file that nobody else sees before it is finished: no journal, no syncs. What
/// is written to the file without it, between its transactions, it sees if the head of the file says that there is
/// something new.
pub(crate) fn open_for_writing(file: &Opened, page_size: u32) -> Result<Connection, Error> {
    let connection = file.connect().map_err(failed)?;
    connection
        .execute_batch(&format!(
            "PRAGMA page_size = {page_size}; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; \
             PRAGMA temp_store = MEMORY; PRAGMA cache_size = -4096"
        ))
        .map_err(failed)?;
    Ok(connection)
}

/// Prepares a statement that is used many times.
pub(crate) fn prepare<'c>(connection: &'c Connection, sql: &str) -> Result<rusqlite::Statement<'c>, Error> {
    connection.prepare_with_flags(sql, PrepFlags::SQLITE_PREPARE_PERSISTENT).map_err(failed)
}

/// What went wrong while reading an index.
pub(crate) fn broken(error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::SystemIoFailure) if let Some(error) = read_error() => Error::Io(error),
        Some(ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory | ErrorCode::CannotOpen | ErrorCode::DiskFull) => {
            failed(error)
        }
        Some(ErrorCode::OperationInterrupted) => Error::Broken("a query found no end".to_owned()),
        // It names what is in the file.
        _ => Error::Broken(name::excerpt(error.to_string().as_bytes()).to_string()),
    }
}

/// What went wrong while writing an index.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn failed(error: rusqlite::Error) -> Error {
    let kind = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => io::ErrorKind::StorageFull,
        Some(ErrorCode::OutOfMemory) => io::ErrorKind::OutOfMemory,
        Some(ErrorCode::ReadOnly) => io::ErrorKind::ReadOnlyFilesystem,
        _ => io::ErrorKind::Other,
    };
    let limit = match kind {
        io::ErrorKind::OutOfMemory => format!(" (all indexes together may take {} MiB)", MOST_MEMORY >> 20),
        _ => String::new(),
    };
    Error::Io(io::Error::new(kind, format!("SQLite: {error}{limit}")))
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    fn opened() -> Opened {
        let file = tempfile::tempfile().unwrap();
        let writable = Opened::file(file.try_clone().unwrap(), true);
        let connection = open_for_writing(&writable, 4096).unwrap();
        connection.execute_batch("CREATE TABLE a (b); INSERT INTO a VALUES (1)").unwrap();
        Opened::file(file, false)
    }

    #[test]
    fn names_in_a_file_steer_no_terminal() {
        let connection = Connection::open_in_memory().unwrap();
        let error = connection.execute_batch("SELECT * FROM \"a\u{1b}[31m\nb\"").unwrap_err();
        let told = broken(error).to_string();
        assert!(told.contains('a') && !told.contains(['\u{1b}', '\n']), "{told:?}");
    }

    #[test]
    fn an_untrusted_file_is_opened_with_everything_off() {
        let file = opened();
        let (connection, _) = open_untrusted(&file, 100).unwrap();
        for (setting, expected) in [
            (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
            (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
            (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
            (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
            (DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, false),
            (DbConfig::SQLITE_DBCONFIG_DQS_DDL, false),
            (DbConfig::SQLITE_DBCONFIG_DQS_DML, false),
            (DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true),
        ] {
            assert_eq!(connection.db_config(setting).unwrap(), expected, "{setting:?}");
        }
        let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        for (name, expected) in [
            ("cell_size_check", 1),
            ("query_only", 1),
            ("temp_store", 2),
            ("trusted_schema", 0),
            ("cache_size", -100),
            ("hard_heap_limit", MOST_MEMORY as i64),
            ("soft_heap_limit", MOST_MEMORY as i64 / 2),
        ] {
            assert_eq!(pragma(name).unwrap(), expected, "{name}");
        }
        // Where a file layer cannot map, there is nothing to ask.
        assert!(pragma("mmap_size").unwrap_or(0) == 0);
        for (limit, value) in LIMITS {
            assert_eq!(connection.limit(limit).unwrap(), value, "{limit:?}");
        }
        for forbidden in [
            "INSERT INTO a VALUES (2)",
            "ATTACH 'x' AS y",
            "CREATE TEMP VIEW v AS SELECT 1; SELECT * FROM v",
            "SELECT load_extension('x')",
        ] {
            connection.execute_batch(forbidden).expect_err(forbidden);
        }
    }

    #[test]
    fn a_query_that_is_used_again_is_not_prepared_again() {
        let file = tempfile::tempfile().unwrap();
        let connection = open_for_writing(&Opened::file(file.try_clone().unwrap(), true), 4096).unwrap();
        connection.execute_batch("CREATE TABLE a (b, c, PRIMARY KEY (b, c)) WITHOUT ROWID").unwrap();
        drop(connection);
        let (connection, _) = open_untrusted(&Opened::file(file, false), 100).unwrap();
        let sql = "SELECT c FROM a WHERE b = ? AND c <= ? ORDER BY c DESC LIMIT 1";
        for round in 0..3_i64 {
            let mut query = connection.prepare_cached(sql).unwrap();
            assert!(query.query([round, 7 * round]).unwrap().next().unwrap().is_none());
            assert_eq!(query.get_status(StatementStatus::RePrepare), 0, "in round {round}");
        }
    }

    #[test]
    fn a_query_without_end_is_ended() {
        let file = opened();
        let (connection, patience) = open_untrusted(&file, 100).unwrap();
        let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";
        let error = connection.query_row(endless, [], |row| row.get::<_, i64>(0)).unwrap_err();
        assert!(matches!(broken(error), Error::Broken(_)));
        patience.renew();
        assert_eq!(connection.query_row("SELECT b FROM a", [], |row| row.get::<_, i64>(0)).unwrap(), 1);
    }
}
