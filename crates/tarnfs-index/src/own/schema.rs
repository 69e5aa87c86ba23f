//! The tables of an index (`schema.sql`), and the summary in them.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, types::Value};
use tarnfs_format::Kind;
use tarnfs_source::Fingerprint;

use crate::sqlite::{broken, failed, prepare};
use crate::{Archive, Error, Layer, Recursion, Renamed, Shape, Summary};

const SCHEMA: &str = include_str!("../schema.sql");

/// "tarn" in ASCII.
pub(crate) const APPLICATION: u32 = 0x7461_726e;
/// The number of the schema. An index of another number is made anew.
pub const VERSION: u32 = 1;

/// Notes that are read: the writer bounds them as well, and whoever reads a million of them learns no more.
const MOST_NOTES: i64 = 10_000;
/// Bytes of one note that are kept: it is a sentence for people. All of them together are not read if they are more.
const LONGEST_NOTE: usize = 4096;
const MOST_NOTE_BYTES: usize = 8 << 20;
/// Bytes that are kept of the name that an archive gives itself.
const LONGEST_LABEL: usize = 4096;
/// Bytes of the name of a codec; all that there are have fewer.
const LONGEST_CODEC_NAME: usize = 64;

/// Bytes of the name of a file (NAME_MAX).
const LONGEST_NAME: usize = 255;

/// Nodes have smaller numbers: the writer takes fewer records. Who steps through numbers would find no end otherwise.
pub(super) const MOST_NODES: i64 = 1 << 31;

/// Layers that are read; more than any [`tarnfs_source::Limits`] allows.
const MOST_LAYERS: i64 = 1000;

/// The statements of the schema without comments, as SQLite keeps them.
fn statements() -> impl Iterator<Item = String> {
    let code: Vec<&str> = SCHEMA.lines().filter(|line| !line.starts_with("--")).collect();
    let code = code.join("\n");
    let statements: Vec<String> = code
        .split(';')
        .map(|statement| statement.trim().to_owned())
        .filter(|statement| !statement.is_empty())
        .collect();
    statements.into_iter()
}

/// Makes the tables.
pub(crate) fn create(connection: &Connection) -> Result<(), Error> {
    for statement in statements() {
        connection.execute_batch(&statement).map_err(failed)?;
    }
    connection
        .execute_batch(&format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}"))
        .map_err(failed)
}

/// Number of the first page of each table.
pub(crate) fn roots(connection: &Connection) -> Result<HashMap<String, u32>, Error> {
    let mut query = connection.prepare("SELECT name, rootpage FROM sqlite_schema").map_err(failed)?;
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

/// [`Error::Broken`] unless the file has exactly the tables of the schema: no views, triggers, indexes or columns more.
pub(crate) fn check(connection: &Connection) -> Result<(), Error> {
    let mut query = connection.prepare("SELECT type, sql FROM sqlite_schema").map_err(broken)?;
    let mut rows = query.query([]).map_err(broken)?;
    for expected in statements() {
        let row = rows.next().map_err(broken)?.ok_or_else(|| Error::Broken("tables are missing".to_owned()))?;
        let kind: String = row.get(0).map_err(broken)?;
        let sql: Option<String> = row.get(1).map_err(broken)?;
        if kind != "table" || sql.as_deref() != Some(expected.as_str()) {
            return Err(Error::Broken("its tables are not those of an index".to_owned()));
        }
    }
    match rows.next().map_err(broken)? {
        None => Ok(()),
        Some(_) => Err(Error::Broken("it has more tables than an index".to_owned())),
    }
}

/// The `S_IFMT` bits of `st_mode`; 0 for a hard link.
pub(crate) fn type_of(kind: Kind) -> u32 {
    match kind {
        Kind::HardLink => 0,
        Kind::Fifo => 0o010_000,
        Kind::CharacterDevice(_) => 0o020_000,
        Kind::Folder => 0o040_000,
        Kind::BlockDevice(_) => 0o060_000,
        Kind::File => 0o100_000,
        Kind::Symlink => 0o120_000,
        Kind::Socket => 0o140_000,
    }
}

/// The inverse of [`type_of`]; devices without their numbers.
pub(crate) fn kind_of(kind: i64) -> Option<Kind> {
    Some(match kind {
        0 => Kind::HardLink,
        0o010_000 => Kind::Fifo,
        0o020_000 => Kind::CharacterDevice(tarnfs_format::Device::default()),
        0o040_000 => Kind::Folder,
        0o060_000 => Kind::BlockDevice(tarnfs_format::Device::default()),
        0o100_000 => Kind::File,
        0o120_000 => Kind::Symlink,
        0o140_000 => Kind::Socket,
        _ => return None,
    })
}

/// What stands between the parts of what is stored as one text: no option can have it.
const BETWEEN: char = '\0';

fn joined(list: &[String]) -> Value {
    Value::Text(list.iter().flat_map(|item| item.chars().chain([BETWEEN])).collect())
}

fn list(value: Value) -> Option<Vec<String>> {
    let Value::Text(text) = value else { return None };
    Some(text.split_terminator(BETWEEN).map(str::to_owned).collect())
}

fn both(pair: Option<&(String, String)>) -> Value {
    pair.map_or(Value::Null, |(first, second)| Value::Text(format!("{first}{BETWEEN}{second}")))
}

#[allow(clippy::option_option, reason = "there may be none, and it may make no sense")]
fn pair(value: Value) -> Option<Option<(String, String)>> {
    match value {
        Value::Null => Some(None),
        Value::Text(text) => {
            text.split_once(BETWEEN).map(|(first, second)| Some((first.to_owned(), second.to_owned())))
        }
        _ => None,
    }
}

/// `unit`: bytes that the column `header` counts in. `is_cut`: content goes past the end of its stream.
pub(crate) fn write_summary(connection: &Connection, summary: &Summary, unit: u64, is_cut: bool) -> Result<(), Error> {
    let mut insert = prepare(connection, "INSERT INTO summary VALUES (?, ?)")?;
    let number = |number: u64| Value::Integer(number as i64);
    let truth = |truth: bool| Value::Integer(i64::from(truth));
    let gnu_incremental = summary.shape.gnu_incremental.map_or(Value::Null, truth);
    let recursion = summary.shape.recursion.as_ref();
    let recursion_depth = recursion.map_or(Value::Null, |recursion| {
        // -1 for as many as there are, as it is given.
        Value::Integer(recursion.depth.map_or(-1, i64::from))
    });
    let rows = [
        ("archive_fingerprint", number(summary.archive.fingerprint.0)),
        ("archive_length", number(summary.archive.length)),
        ("archive_modified", Value::Integer(summary.archive.modified)),
        (
            "archive_name",
            summary
                .name
                .as_ref()
                .map_or(Value::Null, |name| Value::Blob(name.iter().copied().take(LONGEST_NAME).collect())),
        ),
        // A sum that a few files of 8 EiB make larger than a number of SQLite; "too much" is all that it says then.
        ("bytes", number(summary.bytes.min(i64::MAX as u64))),
        ("encoding", summary.shape.encoding.clone().map_or(Value::Null, Value::Text)),
        ("end", number(summary.end)),
        ("files", number(summary.files)),
        ("folders", number(summary.folders)),
        ("format", Value::Text(summary.format.clone())),
        ("gnu_incremental", gnu_incremental),
        ("grown_from", summary.grown_from.map_or(Value::Null, |fingerprint| number(fingerprint.0))),
        ("hashes", joined(&summary.shape.hashes)),
        ("has_acls", truth(summary.has_acls)),
        ("has_xattrs", truth(summary.has_xattrs)),
        ("header_unit", number(unit)),
        ("ignore_zeros", truth(summary.shape.ignore_zeros)),
        ("is_cut", truth(is_cut)),
        ("label", summary.label.as_ref().map_or(Value::Null, |label| Value::Blob(cut(label).to_vec()))),
        ("recursion_depth", recursion_depth),
        ("recursive_extensions", joined(recursion.map_or(&[], |recursion| &recursion.extensions))),
        ("strip_recursive_extension", truth(recursion.is_some_and(|recursion| recursion.strip_extension))),
        ("transform", both(summary.shape.transform.as_ref())),
        ("transform_mount_point", both(recursion.and_then(|recursion| recursion.transform.as_ref()))),
    ];
    for row in rows {
        insert.execute(row).map_err(failed)?;
    }
    // Only where there is one: indexes without it are those that they were.
    if summary.has_locked {
        insert.execute(("has_locked", truth(true))).map_err(failed)?;
    }
    if !summary.unlisted.is_empty() {
        insert.execute(("unlisted", joined(&summary.unlisted))).map_err(failed)?;
    }
    if summary.renamed.count > 0 {
        let first = summary.renamed.first.get(..Renamed::LONGEST).unwrap_or(&summary.renamed.first);
        insert.execute(("renamed", number(summary.renamed.count.min(i64::MAX as u64)))).map_err(failed)?;
        insert.execute(("renamed_first", Value::Blob(first.to_vec()))).map_err(failed)?;
    }
    if !summary.shape.backends.is_empty() {
        insert.execute(("backends", joined(&summary.shape.backends))).map_err(failed)?;
    }
    let mut insert = prepare(connection, "INSERT INTO layers VALUES (?, ?, ?, NULL, NULL, NULL)")?;
    for (number, layer) in summary.layers.iter().enumerate() {
        insert.execute((number as i64, &layer.codec, layer.decoded_length as i64)).map_err(failed)?;
    }
    let mut insert = prepare(connection, "INSERT INTO notes VALUES (NULL, ?, ?)")?;
    let mut left = MOST_NOTE_BYTES;
    for (at, what) in summary.notes.iter().take(MOST_NOTES as usize) {
        let end = (0..=what.len().min(LONGEST_NOTE)).rev().find(|&end| what.is_char_boundary(end));
        let what = what.get(..end.unwrap_or(0)).unwrap_or_default();
        match left.checked_sub(what.len()) {
            Some(rest) => left = rest,
            None => break,
        }
        insert.execute((*at as i64, what)).map_err(failed)?;
    }
    Ok(())
}

fn cut(label: &[u8]) -> &[u8] {
    label.get(..LONGEST_LABEL).unwrap_or(label)
}

/// The name of a codec in column `column`.
pub(super) fn codec_name(row: &rusqlite::Row<'_>, column: usize) -> Result<String, Error> {
    let name: String = row.get(column).map_err(broken)?;
    if name.len() > LONGEST_CODEC_NAME {
        return Err(Error::Broken("the name of a codec is too long".to_owned()));
    }
    Ok(name)
}

pub(crate) fn read_summary(connection: &Connection) -> Result<Summary, Error> {
    let mut query = connection.prepare("SELECT value FROM summary WHERE key = ?").map_err(broken)?;
    let mut value = |key: &str| -> Result<Value, Error> {
        let value = query.query_row([key], |row| row.get::<_, Value>(0)).optional().map_err(broken)?;
        value.ok_or_else(|| Error::Broken(format!("its summary has no {key}")))
    };
    let wrong = |key: &str| Error::Broken(format!("{key} of its summary makes no sense"));
    let mut signed = |key: &str| match value(key)? {
        Value::Integer(number) => Ok(Some(number)),
        Value::Null => Ok(None),
        _ => Err(wrong(key)),
    };
    let mut number = |key: &str| signed(key)?.ok_or_else(|| wrong(key));
    let fingerprint = Fingerprint(number("archive_fingerprint")? as u64);
    let modified = number("archive_modified")?;
    let mut length = |key: &str| u64::try_from(number(key)?).map_err(|_| wrong(key));
    let archive = Archive { length: length("archive_length")?, fingerprint, modified };
    let (bytes, end, files, folders) = (length("bytes")?, length("end")?, length("files")?, length("folders")?);
    let mut truth = |key: &str| match signed(key)? {
        Some(0) => Ok(Some(false)),
        Some(1) => Ok(Some(true)),
        None => Ok(None),
        Some(_) => Err(wrong(key)),
    };
    let gnu_incremental = truth("gnu_incremental")?;
    let mut certain = |key: &str| truth(key)?.ok_or_else(|| wrong(key));
    let (has_acls, has_xattrs, ignore_zeros) = (certain("has_acls")?, certain("has_xattrs")?, certain("ignore_zeros")?);
    let grown_from = signed("grown_from")?.map(|number| Fingerprint(number as u64));
    let encoding = match value("encoding")? {
        Value::Text(text) => Some(text),
        Value::Null => None,
        _ => return Err(wrong("encoding")),
    };
    let recursion = match value("recursion_depth")? {
        Value::Null => None,
        Value::Integer(depth) => Some(Recursion {
            depth: u32::try_from(depth).ok(),
            extensions: list(value("recursive_extensions")?).ok_or_else(|| wrong("recursive_extensions"))?,
            strip_extension: value("strip_recursive_extension")? != Value::Integer(0),
            transform: pair(value("transform_mount_point")?).ok_or_else(|| wrong("transform_mount_point"))?,
        }),
        _ => return Err(wrong("recursion_depth")),
    };
    let transform = pair(value("transform")?).ok_or_else(|| wrong("transform"))?;
    let hashes = list(value("hashes")?).ok_or_else(|| wrong("hashes"))?;
    let label = match value("label")? {
        Value::Blob(label) if label.len() <= LONGEST_LABEL => Some(label),
        Value::Null => None,
        _ => return Err(wrong("label")),
    };
    let Value::Text(format) = value("format")? else { return Err(wrong("format")) };
    let name = match self::value(connection, "archive_name")? {
        Some(Value::Blob(name)) if name.len() <= LONGEST_NAME => Some(name),
        Some(Value::Null) | None => None,
        Some(_) => return Err(wrong("archive_name")),
    };
    // Others do not say it.
    let has_locked = self::value(connection, "has_locked")? == Some(Value::Integer(1));
    let backends = match self::value(connection, "backends")? {
        Some(backends) => list(backends).ok_or_else(|| wrong("backends"))?,
        None => Vec::new(),
    };
    let unlisted = match self::value(connection, "unlisted")? {
        Some(unlisted) => list(unlisted).ok_or_else(|| wrong("unlisted"))?,
        None => Vec::new(),
    };
    let renamed = match (self::value(connection, "renamed")?, self::value(connection, "renamed_first")?) {
        (None, None) => Renamed::default(),
        (Some(Value::Integer(count)), Some(Value::Blob(first))) if first.len() <= Renamed::LONGEST => {
            Renamed { count: u64::try_from(count).map_err(|_| wrong("renamed"))?, first }
        }
        _ => return Err(wrong("renamed")),
    };
    Ok(Summary {
        archive,
        name,
        shape: Shape { encoding, ignore_zeros, gnu_incremental, transform, recursion, hashes, backends },
        layers: read_layers(connection)?,
        format,
        end,
        grown_from,
        files,
        folders,
        bytes,
        has_xattrs,
        has_acls,
        label,
        unlisted,
        has_locked,
        has_directories: false,
        renamed,
        notes: read_notes(connection)?,
    })
}

fn value(connection: &Connection, key: &str) -> Result<Option<Value>, Error> {
    connection.query_row("SELECT value FROM summary WHERE key = ?", [key], |row| row.get(0)).optional().map_err(broken)
}

/// True if content may go past the end of its stream; `None` of an index that does not say it.
pub(crate) fn read_is_cut(connection: &Connection) -> Result<Option<bool>, Error> {
    match value(connection, "is_cut")? {
        Some(Value::Integer(0)) => Ok(Some(false)),
        Some(Value::Integer(1)) => Ok(Some(true)),
        None => Ok(None),
        Some(_) => Err(Error::Broken("is_cut of its summary makes no sense".to_owned())),
    }
}

/// Bytes that the column `header` counts in.
pub(crate) fn read_header_unit(connection: &Connection) -> Result<u64, Error> {
    match value(connection, "header_unit")? {
        Some(Value::Integer(1)) => Ok(1),
        Some(Value::Integer(512)) => Ok(512),
        _ => Err(Error::Broken("header_unit of its summary is neither 1 nor 512".to_owned())),
    }
}

fn read_layers(connection: &Connection) -> Result<Vec<Layer>, Error> {
    let mut query = connection
        .prepare("SELECT layer, codec, decoded_length FROM layers WHERE layer < 1024 ORDER BY layer LIMIT ?")
        .map_err(broken)?;
    let mut rows = query.query([MOST_LAYERS]).map_err(broken)?;
    let mut layers = Vec::new();
    while let Some(row) = rows.next().map_err(broken)? {
        let decoded_length = u64::try_from(row.get::<_, i64>(2).map_err(broken)?);
        let (true, Ok(decoded_length)) = (row.get::<_, i64>(0).map_err(broken)? == layers.len() as i64, decoded_length)
        else {
            return Err(Error::Broken("its layers make no sense".to_owned()));
        };
        layers.push(Layer { codec: codec_name(row, 1)?, decoded_length });
    }
    Ok(layers)
}

fn read_notes(connection: &Connection) -> Result<Vec<(u64, String)>, Error> {
    let mut query = connection.prepare("SELECT at, what FROM notes ORDER BY id LIMIT ?").map_err(broken)?;
    let mut rows = query.query([MOST_NOTES]).map_err(broken)?;
    let mut notes = Vec::new();
    let mut left = MOST_NOTE_BYTES;
    while let Some(row) = rows.next().map_err(broken)? {
        let what: String = row.get(1).map_err(broken)?;
        left = left.checked_sub(what.len()).ok_or_else(|| Error::Broken("its notes are too long".to_owned()))?;
        notes.push((row.get::<_, i64>(0).map_err(broken)? as u64, what));
    }
    Ok(notes)
}
