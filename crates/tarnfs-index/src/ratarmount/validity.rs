//! Does a sidecar belong to the archive, and is it one that is read here?

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;
use tarnfs_format::name;
use tarnfs_source::Setting;

use super::header::entry_at;
use super::reader::{Expected, RatarmountIndex};
use super::rows::{
    ALL_OF_NAME, BLOCK, By, EARLIER_OF_NAME, HAS_XATTRS, LAST_OF_NAME, OF_FOLDER, OF_NUMBER, Stored, XATTRS, columns,
    split_target,
};
use crate::sqlite::broken;
use crate::{Error, Index, Shape};

/// How many rows are compared with the archive when a sidecar is opened.
const SAMPLES: i128 = 16;

/// The columns of `files` since 0.2, in the order of the schema.
const COLUMNS: [&str; 13] = [
    "path",
    "name",
    "offsetheader",
    "offset",
    "size",
    "mtime",
    "mode",
    "type",
    "linkname",
    "uid",
    "gid",
    "istar",
    "issparse",
];

/// The tables of a finished sidecar: those that it has in any case, of extended attributes, of its decoders.
const TABLES: [&str; 10] = [
    "files",
    "metadata",
    "versions",
    "xattrkeys",
    "xattrsdata",
    "bzip2blocks",
    "gzipindex",
    "gzipindexes",
    "gztoolindex",
    "zstdblocks",
];

/// Checks that there is nothing but what ratarmount makes, and that columns hold what they give. Reading a generated
/// one computes an expression of the file: a search in a long text takes seconds, and nothing can end it meanwhile.
/// Returns the names of the tables.
fn check_definitions(connection: &Connection) -> Result<Vec<String>, Error> {
    let mut query = connection.prepare("SELECT type, name, sql IS NULL FROM sqlite_schema").map_err(broken)?;
    let mut rows = query.query([]).map_err(broken)?;
    let mut tables = Vec::new();
    while let Some(row) = rows.next().map_err(broken)? {
        let (kind, name) = (row.get::<_, String>(0).map_err(broken)?, row.get::<_, String>(1).map_err(broken)?);
        let is_known = match kind.as_str() {
            "table" => TABLES.contains(&name.as_str()),
            // Those that a key needs have no definition, so no expression either.
            "index" => row.get(2).map_err(broken)?,
            "view" => name == "xattrs",
            "trigger" => name == "xattrs_insert",
            _ => false,
        };
        if !is_known {
            let (kind, name) = (name::excerpt(kind.as_bytes()), name::excerpt(name.as_bytes()));
            return Err(Error::Broken(format!("it has the {kind} {name}, which ratarmount does not make")));
        }
        if kind == "table" {
            tables.push(name);
        }
    }
    for table in &tables {
        let generated = "SELECT count(*) FROM pragma_table_xinfo(?1) WHERE hidden <> 0";
        if connection.query_row(generated, [table], |row| row.get::<_, i64>(0)).map_err(broken)? > 0 {
            return Err(Error::Broken(format!("the table {table} has generated columns")));
        }
    }
    Ok(tables)
}

/// Checks that each look-up finds what it looks for by a key. Where a table has not the keys that ratarmount gives it,
/// or has a column that is called `rowid`, each would read the whole table, and there are as many as there are files.
/// What SQLite will do it tells itself, so nothing of a definition is taken for a key that is none.
fn check_keys(connection: &Connection, tables: &[String], has_generated: bool) -> Result<(), Error> {
    let has = |name: &str| tables.iter().any(|table| table == name);
    let columns = columns(has_generated);
    let of_files = [LAST_OF_NAME, EARLIER_OF_NAME, ALL_OF_NAME, OF_FOLDER, OF_NUMBER];
    let mut queries: Vec<_> =
        of_files.iter().map(|rest| ("files", format!("SELECT {columns} FROM files {rest}"))).collect();
    if has("xattrsdata") && has("xattrkeys") {
        queries.extend([HAS_XATTRS, XATTRS].map(|query| ("xattrsdata", query.to_owned())));
    }
    for table in ["bzip2blocks", "zstdblocks"].into_iter().filter(|table| has(table)) {
        for rest in [">= ?1 ORDER BY blockoffset", "<= ?1 ORDER BY blockoffset DESC"] {
            let query = format!("SELECT blockoffset, dataoffset FROM {table} WHERE blockoffset {rest} LIMIT 1");
            queries.push((table, query));
        }
    }
    for (table, query) in queries {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {query}")).map_err(broken)?;
        let mut steps = statement.raw_query();
        while let Some(step) = steps.next().map_err(broken)? {
            let step: String = step.get("detail").map_err(broken)?;
            if step.starts_with("SCAN") || step.contains("TEMP B-TREE") || step.contains("AUTOMATIC") {
                let what = format!("a look-up in {table} would read all of a table: it has not ratarmount's keys");
                return Err(Error::Broken(what));
            }
        }
    }
    Ok(())
}

/// Checks that the tables are those of a finished sidecar of a schema that is read here. True if `files` says which
/// rows were generated (since 0.6).
pub(super) fn check_schema(connection: &Connection) -> Result<bool, Error> {
    let kind = |name: &str| {
        connection
            .query_row("SELECT type FROM sqlite_schema WHERE name = ?1", [name], |row| row.get::<_, String>(0))
            .optional()
            .map_err(broken)
    };
    // A table without pages is a virtual one: reading it runs code of a module, not a search in a tree.
    let others = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND (rootpage IS NULL OR rootpage <= 0) \
                  OR sql LIKE 'create%virtual%'";
    if connection.query_row(others, [], |row| row.get::<_, i64>(0)).map_err(broken)? > 0 {
        return Err(Error::Broken("it has a virtual table".into()));
    }
    for table in ["files", "metadata", "versions"] {
        match kind(table)?.as_deref() {
            Some("table") => {}
            Some(other) => return Err(Error::Broken(format!("{table} is a {}", name::excerpt(other.as_bytes())))),
            None => return Err(Error::Unknown(format!("there is no table {table}"))),
        }
    }
    for unfinished in ["filestmp", "parentfolders"] {
        if kind(unfinished)?.is_some() {
            return Err(Error::Broken(format!("it was not finished: there still is {unfinished}")));
        }
    }
    let tables = check_definitions(connection)?;
    let (major, minor) = connection
        .query_row("SELECT major, minor FROM versions WHERE name = 'index'", [], |row| {
            // ratarmount writes the digits as text into columns of numbers.
            Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?))
        })
        .optional()
        .map_err(broken)?
        .ok_or_else(|| Error::Unknown("it does not say which schema it has".into()))?;
    let version = (major.unwrap_or(-1), minor.unwrap_or(-1));
    if !matches!(version, (0, 5..=7)) {
        return Err(Error::Unknown(format!("schema {}.{} of ratarmount", version.0, version.1)));
    }
    let mut statement = connection.prepare("SELECT name FROM pragma_table_info('files')").map_err(broken)?;
    let columns: Vec<String> = statement.query_map([], |row| row.get(0)).and_then(Iterator::collect).map_err(broken)?;
    if let Some(missing) = COLUMNS.iter().find(|name| !columns.iter().any(|column| column == *name)) {
        return Err(Error::Broken(format!("files has no column {missing}")));
    }
    // Without it every look-up would read the whole table.
    let keyed: Vec<String> = connection
        .prepare("SELECT name FROM pragma_index_info('sqlite_autoindex_files_1') ORDER BY seqno")
        .and_then(|mut statement| statement.query_map([], |row| row.get(0))?.collect())
        .map_err(broken)?;
    if keyed != ["path", "name", "offsetheader"] {
        return Err(Error::Broken("files has no key of path, name and offsetheader".into()));
    }
    let has_generated = columns.iter().any(|column| column == "isgenerated");
    check_keys(connection, &tables, has_generated)?;
    Ok(has_generated)
}

/// Checks the table `metadata` against the archive and the wanted shape. Returns the last change of the archive's
/// content when the sidecar was made, ns since 1970.
pub(super) fn check_metadata(connection: &Connection, expected: &Expected) -> Result<i64, Error> {
    let value = |key: &str| {
        connection
            .query_row("SELECT value FROM metadata WHERE key = ?1", [key], |row| row.get::<_, String>(0))
            .optional()
            .map_err(broken)
    };
    let json = |key: &str| {
        value(key)?
            .map(|text| {
                serde_json::from_str::<Value>(&text).map_err(|error| Error::Broken(format!("metadata {key}: {error}")))
            })
            .transpose()
    };
    match value("backendName")?.as_deref() {
        Some("SQLiteIndexedTar") => {}
        Some(other) => {
            let other = name::excerpt(other.as_bytes());
            return Err(Error::Foreign(format!(
                "made by ratarmount's backend {other}, whose indexes tarnfs does not read"
            )));
        }
        None => return Err(Error::Unknown("it does not say by which backend of ratarmount it was made".into())),
    }
    let stats = json("tarstats")?.ok_or_else(|| Error::Stale("it does not say of which archive it is".into()))?;
    let length = expected.source.len();
    if stats.get("st_size").and_then(Value::as_u64) != Some(length) {
        let stored = stats.get("st_size").map_or("unknown".into(), Value::to_string);
        let stored = name::excerpt(stored.as_bytes());
        return Err(Error::Stale(format!("the archive's length was {stored} and is {length}")));
    }
    if expected.verify_mtime && !is_same_time(&stats, expected.modified) {
        return Err(Error::Stale("the archive was changed since".into()));
    }
    let arguments = json("arguments")?.unwrap_or(Value::Null);
    let shape = &expected.shape;
    let encoding = arguments.get("encoding").and_then(Value::as_str).unwrap_or("utf-8");
    if normalised(encoding) != normalised(shape.encoding.as_deref().unwrap_or("utf-8")) {
        let encoding = name::excerpt(encoding.as_bytes());
        return Err(Error::OtherOptions(format!("names were converted from {encoding}")));
    }
    if arguments.get("ignoreZeros").and_then(Value::as_bool).unwrap_or(false) != shape.ignore_zeros {
        return Err(Error::OtherOptions(format!("it was made with another value of {}", Setting::IgnoreZeros)));
    }
    if arguments.get("transformPattern").is_some_and(|pattern| !pattern.is_null()) {
        return Err(Error::OtherOptions(format!("paths were rewritten with {}", Setting::Transform)));
    }
    if shape.transform.is_some() {
        return Err(Error::OtherOptions(format!("it was made without {}", Setting::Transform)));
    }
    if !shape.hashes.is_empty() {
        return Err(Error::OtherOptions("it has no hashes that are known to be right".into()));
    }
    if !shape.backends.is_empty() {
        return Err(Error::OtherOptions(format!("it was made without {}", Setting::UseBackend)));
    }
    if shape.recursion.is_some() {
        // It holds nothing of what lies compressed in the archive: ratarmount makes an index of each such file, in
        // memory, at every mount.
        return Err(Error::OtherOptions("it does not say what archives in the archive hold".into()));
    }
    let may_be_recursive = arguments.get("mountRecursively").and_then(Value::as_bool).unwrap_or(true);
    if may_be_recursive && shows_archives_as_folders(connection)? {
        return Err(Error::OtherOptions(format!("it was made with {}", Setting::Recursive)));
    }
    let incremental =
        value("isGnuIncremental")?.is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("true"));
    if shape.gnu_incremental.is_some_and(|wanted| wanted != incremental) {
        return Err(Error::OtherOptions(format!("it was made with another value of {}", Setting::GnuIncremental)));
    }
    Ok(if is_same_time(&stats, expected.modified) { expected.modified } else { time_of(&stats) })
}

/// What a sidecar says of the archive that it was made of: its length, the last change of its content in ns since 1970,
/// and what shaped the tree. Of what it does not say, the least is taken: the archive is not there to compare it with.
pub(super) fn stated(connection: &Connection) -> Result<(u64, i64, Shape), Error> {
    let value = |key: &str| {
        connection
            .query_row("SELECT value FROM metadata WHERE key = ?1", [key], |row| row.get::<_, String>(0))
            .optional()
            .map_err(broken)
    };
    let json = |key: &str| Ok::<_, Error>(value(key)?.and_then(|text| serde_json::from_str::<Value>(&text).ok()));
    let stats = json("tarstats")?.unwrap_or(Value::Null);
    let length = stats.get("st_size").and_then(Value::as_u64).unwrap_or(0);
    let incremental =
        value("isGnuIncremental")?.is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("true"));
    Ok((length, time_of(&stats), Shape { gnu_incremental: Some(incremental), ..Shape::default() }))
}

/// True if a file was replaced by a folder of what it holds. For a compressed archive the arguments do not tell:
/// ratarmount counts its compression as an archive, too. Looks at so many rows only: opening must not take longer with
/// more.
fn shows_archives_as_folders(connection: &Connection) -> Result<bool, Error> {
    let found = connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM (SELECT istar FROM files LIMIT 100000) WHERE istar)",
        [],
        |row| row.get(0),
    );
    found.map_err(broken)
}

/// Python writes the seconds as a double, and since 3.3 the nanoseconds beside them.
fn is_same_time(stats: &Value, modified: i64) -> bool {
    if let Some(stored) = stats.get("st_mtime_ns").and_then(Value::as_i64) {
        return stored == modified;
    }
    let seconds = modified as f64 / 1e9;
    stats.get("st_mtime").and_then(Value::as_f64).is_some_and(|stored| (stored - seconds).abs() < 1e-6)
}

/// The last change of the archive that a sidecar says, ns since 1970.
fn time_of(stats: &Value) -> i64 {
    let exact = stats.get("st_mtime_ns").and_then(Value::as_i64);
    let rounded = || stats.get("st_mtime").and_then(Value::as_f64).map(|seconds| (seconds * 1e9) as i64);
    exact.or_else(rounded).unwrap_or(0)
}

/// `UTF8`, `utf-8` and `utf_8` are one encoding.
fn normalised(encoding: &str) -> String {
    encoding.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

/// Compares some rows with the headers of a plain tar: an archive that was written anew at the same size has others
/// there.
pub(super) fn check_samples(index: &RatarmountIndex) -> Result<(), Error> {
    let summary = index.summary();
    if summary.format != "tar" {
        return Ok(());
    }
    let bounds: (Option<i64>, Option<i64>) = index
        .connections
        .get()?
        .query_row("SELECT (SELECT min(rowid) FROM files), (SELECT max(rowid) FROM files)", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .map_err(broken)?;
    let (Some(first), Some(last)) = bounds else { return Ok(()) };
    for sample in 0..SAMPLES {
        let span = i128::from(last).saturating_sub(i128::from(first));
        let step = span.saturating_mul(sample) / (SAMPLES - 1);
        let from = i128::from(first).saturating_add(step) as i64;
        index.select("WHERE rowid >= ?1 ORDER BY rowid LIMIT 1", By::Number, params![from], &mut |stored| {
            check_row(index, &stored).map(|()| true)
        })?;
    }
    Ok(())
}

/// Of so few rows all are looked at when a sidecar is opened; of more only if the archive has another time than its
/// sidecar says: opening must not take longer with more.
const FEW: u64 = 100_000;

/// Looks whether something was appended to a plain tar: that may fit into the zeros behind the last entry, so that the
/// length is the same. (ratarmount looks at these zeros, too.)
pub(super) fn check_end(index: &RatarmountIndex, is_as_old: bool) -> Result<(), Error> {
    let summary = index.summary();
    if summary.format != "tar" || is_as_old && summary.files > FEW {
        return Ok(());
    }
    let connection = index.connections.get()?;
    // A folder that no entry names has the header of the first entry in it.
    let mut statement = connection.prepare("SELECT rowid, offsetheader FROM files ORDER BY rowid").map_err(broken)?;
    let mut rows = statement.query([]).map_err(broken)?;
    let (mut last, mut before) = (None, i64::MIN);
    while let Some(row) = rows.next().map_err(broken)? {
        let number = row.get(0).map_err(broken)?;
        // Such rows come from a broken tree of pages, and may have no end.
        if number <= std::mem::replace(&mut before, number) {
            return Err(Error::Broken(format!("row {number} of files is out of order")));
        }
        last = last.max(row.get::<_, Option<i64>>(1).map_err(broken)?);
        connection.renew();
    }
    let Some(last) = last.and_then(|last| u64::try_from(last).ok()) else { return Ok(()) };
    let header = last.saturating_sub(u64::from(last % BLOCK == 1));
    let Some(entry) = entry_at(&index.source, header, &summary.shape, &index.limits())? else {
        return Err(Error::Stale(format!("there is no header at byte {header} of the archive")));
    };
    let end = entry.body.offset.saturating_add(entry.body.stored);
    let Some(end) = end.checked_next_multiple_of(BLOCK) else { return Ok(()) };
    let mut block = [0; BLOCK as usize];
    let read = index.source.read_at(&mut block, end)?;
    if block.iter().take(read).any(|&byte| byte != 0) {
        return Err(Error::Stale(format!("at byte {end} of the archive there is more than it says")));
    }
    Ok(())
}

fn check_row(index: &RatarmountIndex, stored: &Stored) -> Result<(), Error> {
    let Some(header) = stored.header() else { return Ok(()) };
    let (shape, limits) = (&index.summary().shape, &index.limits());
    let another = || {
        let path = stored.full_path();
        Error::Stale(format!(
            "byte {header} of the archive is no longer the header of {}",
            name::excerpt(path.as_bytes())
        ))
    };
    let entry = entry_at(&index.source, header, shape, limits)?.ok_or_else(another)?;
    // Names in other encodings stand converted or escaped in the row: for these it must do that there is a header.
    let is_plain = entry.path.is_ascii() && !entry.path.contains(&b'\\');
    let path = split_target(&entry.path).map(|(path, name)| format!("{path}/{name}")).unwrap_or_default();
    // Paths in an archive in the archive have the outer one's path before theirs.
    if is_plain && !stored.full_path().ends_with(&path) { Err(another()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_table_is_refused() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(include_str!("schema.sql")).unwrap();
        connection.execute_batch("INSERT INTO versions VALUES ('index', '0.7.0', 0, 7, 0)").unwrap();
        check_schema(&connection).unwrap();
        for planted in [
            "INSERT INTO sqlite_schema VALUES ('table', 'x', 'x', 0, 'CREATE VIRTUAL TABLE x USING dbstat')",
            "INSERT INTO sqlite_schema VALUES ('table', 'x', 'x', NULL, 'CREATE TABLE x (a)')",
            "INSERT INTO sqlite_schema VALUES ('table', 'x', 'x', 3, 'create/**/virtual table x using dbstat')",
        ] {
            connection.execute_batch(&format!("PRAGMA writable_schema = ON; {planted}")).unwrap();
            let refused = check_schema(&connection);
            assert!(matches!(&refused, Err(Error::Broken(what)) if what.contains("virtual")), "{planted}: {refused:?}");
            connection.execute_batch("DELETE FROM sqlite_schema WHERE name = 'x'").unwrap();
            check_schema(&connection).unwrap();
        }
    }

    /// Python's double keeps less than nanoseconds, and other seconds are not the same.
    #[test]
    fn a_time_is_the_same_as_well_as_python_writes_it() {
        let modified = 1_700_000_000_123_456_789_i64;
        for (stats, is_same) in [
            (r#"{"st_mtime_ns": 1700000000123456789, "st_mtime": 1.0}"#, true),
            (r#"{"st_mtime_ns": 1700000000123456788, "st_mtime": 1700000000.1234567}"#, false),
            (r#"{"st_mtime": 1700000000.1234567}"#, true),
            (r#"{"st_mtime": 1700000000.1235}"#, false),
            (r#"{"st_mtime": 1700000001.1234567}"#, false),
            (r#"{"st_mtime": 1699999999.1234567}"#, false),
            (r#"{"st_mtime": "1700000000.1234567"}"#, false),
            ("{}", false),
        ] {
            assert_eq!(is_same_time(&serde_json::from_str(stats).unwrap(), modified), is_same, "{stats}");
        }
    }

    /// A look-up for each file would read all of a table.
    #[test]
    fn tables_without_the_keys_of_ratarmount_are_refused() {
        let no_attributes = "DROP TRIGGER xattrs_insert; DROP VIEW xattrs; DROP TABLE xattrsdata;";
        let other_files = |path: &str, key: &str| {
            format!(
                "DROP TABLE files; CREATE TABLE files (path {path} NOT NULL, name, offsetheader INTEGER, offset, size, \
                 mtime, mode, type, linkname, uid, gid, istar, issparse, isgenerated, recursiondepth, \
                 PRIMARY KEY ({key}))"
            )
        };
        for (change, table) in [
            (other_files("TEXT", "path, name, offsetheader"), ""),
            ("ALTER TABLE files DROP COLUMN isgenerated; ALTER TABLE files DROP COLUMN recursiondepth".to_owned(), ""),
            (format!("{no_attributes} DROP TABLE xattrkeys"), ""),
            ("CREATE TABLE bzip2blocks (blockoffset INTEGER PRIMARY KEY, dataoffset INTEGER)".to_owned(), ""),
            (other_files("TEXT NOT NULL, rowid INTEGER", "path, name, offsetheader"), "files"),
            (other_files("TEXT COLLATE NOCASE", "path COLLATE BINARY, name, offsetheader"), "files"),
            (other_files("TEXT", "path, name COLLATE NOCASE, offsetheader"), "files"),
            (format!("{no_attributes} CREATE TABLE xattrsdata (offsetheader, keyid, value)"), "xattrsdata"),
            (
                format!(
                    "{no_attributes} CREATE TABLE xattrsdata (offsetheader, keyid, PRIMARY KEY (keyid, offsetheader))"
                ),
                "xattrsdata",
            ),
            ("DROP TABLE xattrkeys; CREATE TABLE xattrkeys (id INTEGER, name)".to_owned(), "xattrsdata"),
            ("CREATE TABLE bzip2blocks (blockoffset INTEGER, dataoffset INTEGER)".to_owned(), "bzip2blocks"),
            ("CREATE TABLE zstdblocks (blockoffset INTEGER, dataoffset INTEGER)".to_owned(), "zstdblocks"),
        ] {
            let connection = Connection::open_in_memory().unwrap();
            connection.execute_batch(include_str!("schema.sql")).unwrap();
            connection.execute_batch("INSERT INTO versions VALUES ('index', '0.7.0', 0, 7, 0)").unwrap();
            connection.execute_batch(&format!("PRAGMA foreign_keys = OFF; {change}")).unwrap();
            match check_schema(&connection) {
                Ok(_) => assert_eq!(table, "", "{change}"),
                Err(Error::Broken(what)) => {
                    assert!(!table.is_empty() && what.contains(&format!("look-up in {table} ")), "{change}: {what}");
                }
                Err(error) => panic!("{change}: {error}"),
            }
        }
    }

    /// Nothing that runs an expression of the file, and nothing that nobody knows.
    #[test]
    fn what_ratarmount_does_not_make_is_refused() {
        for (planted, why) in [
            ("ALTER TABLE files ADD COLUMN more AS (instr(name, 'a'))", "files has generated columns"),
            ("CREATE TABLE bzip2blocks (blockoffset INTEGER PRIMARY KEY, r, dataoffset AS (r) STORED)", "generated"),
            ("CREATE TABLE zstdblocks (blockoffset INTEGER PRIMARY KEY, dataoffset INTEGER AS (7))", "generated"),
            ("CREATE INDEX more ON files (instr(name, 'a'))", "the index more"),
            ("CREATE INDEX more ON files (name)", "the index more"),
            ("CREATE TABLE more (a)", "the table more"),
            ("CREATE VIEW more AS SELECT 1", "the view more"),
            ("CREATE TRIGGER more AFTER INSERT ON files BEGIN SELECT 1; END", "the trigger more"),
        ] {
            let connection = Connection::open_in_memory().unwrap();
            connection.execute_batch(include_str!("schema.sql")).unwrap();
            connection.execute_batch("INSERT INTO versions VALUES ('index', '0.7.0', 0, 7, 0)").unwrap();
            connection.execute_batch("CREATE TABLE gzipindexes (data BLOB)").unwrap();
            check_schema(&connection).unwrap();
            connection.execute_batch(planted).unwrap();
            let refused = check_schema(&connection);
            assert!(matches!(&refused, Err(Error::Broken(what)) if what.contains(why)), "{planted}: {refused:?}");
        }
    }
}
