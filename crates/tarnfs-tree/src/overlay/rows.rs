//! What is in the tables.

use std::collections::HashSet;
use std::io;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::database::failed;
use crate::{Device, Error, Kind, Time, Xattrs};

/// What of a node is not as it is below, or was made so.
pub(super) mod changed {
    /// Mode, owner, times or access control lists.
    pub(crate) const ATTRIBUTES: i64 = 1;
    /// Content.
    pub(crate) const CONTENT: i64 = 2;
    /// Times that somebody has set: those below do not count any more.
    pub(crate) const TIMES: i64 = 4;
}

/// The number of the root.
pub(super) const ROOT: u64 = 1;

/// A node of the overlay: what was made, or what is below and was changed.
#[derive(Debug, Clone)]
pub(super) struct NodeRow {
    pub(super) id: u64,
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// 0 if it has no name: it goes when nobody knows it any more.
    pub(super) links: u32,
    /// Of a file without a place, as of what is below. Else the file at its place says so.
    pub(super) size: u64,
    pub(super) blocks: u64,
    pub(super) atime: Time,
    pub(super) mtime: Time,
    pub(super) ctime: Time,
    /// Of a symbolic link.
    pub(super) target: Vec<u8>,
    /// Of a file: where its content lies, in the folder of the overlay; `None` where it is that of the file below. Of a
    /// folder: where contents of files in it go.
    pub(super) place: Option<Vec<u8>>,
    /// The path in what is below; `None` of what was made here.
    pub(super) lower: Option<Vec<u8>>,
    /// It has several names below.
    pub(super) is_shared: bool,
    /// See [`changed`].
    pub(super) changed: i64,
}

/// A name in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NameRow {
    pub(super) seq: u64,
    pub(super) name: Vec<u8>,
    /// `None`: there is nothing of this name, whatever is below.
    pub(super) node: Option<u64>,
}

/// Names of extended attributes and values of one node, at most: bytes. No archive has more of them for a file.
const MOST_XATTRS: usize = 64 << 20;

/// A statement with the columns of a node between `$before` and `$after`.
macro_rules! with_columns {
    ($before:literal, $after:literal) => {
        concat!(
            $before,
            "id, kind, mode, uid, gid, links, major, minor, size, blocks, atime, atime_ns, mtime, mtime_ns, ctime, ",
            "ctime_ns, target, place, lower, is_shared, changed",
            $after
        )
    };
}

const GET_NODE: &str = with_columns!("SELECT ", " FROM nodes WHERE id = ?");
const NODES_BEHIND: &str = with_columns!("SELECT ", " FROM nodes WHERE id > ? ORDER BY id LIMIT ?");
const PUT_NODE: &str = with_columns!(
    "INSERT OR REPLACE INTO nodes (",
    ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
);

/// Kinds as `st_mode` has them, without their permissions.
pub(super) fn number_of(kind: Kind) -> (i64, Device) {
    let none = Device::default();
    match kind {
        Kind::File | Kind::HardLink => (0o10, none),
        Kind::Folder => (0o04, none),
        Kind::Symlink => (0o12, none),
        Kind::CharacterDevice(device) => (0o02, device),
        Kind::BlockDevice(device) => (0o06, device),
        Kind::Fifo => (0o01, none),
        Kind::Socket => (0o14, none),
    }
}

fn kind_of(number: i64, device: Device) -> Option<Kind> {
    Some(match number {
        0o10 => Kind::File,
        0o04 => Kind::Folder,
        0o12 => Kind::Symlink,
        0o02 => Kind::CharacterDevice(device),
        0o06 => Kind::BlockDevice(device),
        0o01 => Kind::Fifo,
        0o14 => Kind::Socket,
        _ => return None,
    })
}

fn node_row(row: &Row<'_>) -> rusqlite::Result<NodeRow> {
    let number = |column: usize| row.get::<_, i64>(column);
    let small = |column: usize| number(column).map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    let time = |column: usize| {
        let nanoseconds = small(column + 1)?.min(999_999_999);
        Ok::<_, rusqlite::Error>(Time { seconds: number(column)?, nanoseconds })
    };
    let device = Device { major: small(6)?, minor: small(7)? };
    let kind = kind_of(number(1)?, device).ok_or(rusqlite::Error::IntegralValueOutOfRange(1, number(1)?))?;
    let id = number(0)?;
    // Behind them are numbers of others.
    if !(1..super::OWN as i64).contains(&id) {
        return Err(rusqlite::Error::IntegralValueOutOfRange(0, id));
    }
    Ok(NodeRow {
        id: id as u64,
        kind,
        mode: small(2)? & 0o7777,
        uid: small(3)?,
        gid: small(4)?,
        links: small(5)?,
        size: number(8)? as u64,
        blocks: number(9)? as u64,
        atime: time(10)?,
        mtime: time(12)?,
        ctime: time(14)?,
        target: row.get::<_, Option<Vec<u8>>>(16)?.unwrap_or_default(),
        place: row.get(17)?,
        lower: row.get(18)?,
        is_shared: row.get(19)?,
        changed: number(20)?,
    })
}

/// A value that is no name is an empty one, which nothing can have.
fn name_row(row: &Row<'_>) -> rusqlite::Result<NameRow> {
    let name = match row.get_ref(1)? {
        ValueRef::Blob(name) if name.len() <= super::LONGEST_NAME => name.to_vec(),
        _ => Vec::new(),
    };
    let node = match row.get_ref(2)? {
        ValueRef::Integer(node) => Some(node as u64),
        _ => None,
    };
    Ok(NameRow { seq: row.get::<_, i64>(0)? as u64, name, node })
}

/// The node of this number. A row that cannot be one of a node is an error of its own: see [`is_wrong`].
pub(super) fn node(connection: &Connection, id: u64) -> Result<Option<NodeRow>, Error> {
    let mut query = connection.prepare_cached(GET_NODE).map_err(failed)?;
    query.query_row([id as i64], node_row).optional().map_err(|error| match error {
        rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::FromSqlConversionFailure(..) => {
            let what = format!("the overlay's database: what is said of number {id} cannot be: {error}");
            io::Error::new(io::ErrorKind::InvalidData, what).into()
        }
        error => failed(error),
    })
}

/// True of errors that say that a row is not one of ours: others are as they were.
pub(super) fn is_wrong(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.kind() == io::ErrorKind::InvalidData)
}

/// So many nodes at most whose numbers are behind `last`, in their order.
pub(super) fn nodes_behind(connection: &Connection, last: u64, most: usize) -> Result<Vec<NodeRow>, Error> {
    let mut query = connection.prepare_cached(NODES_BEHIND).map_err(failed)?;
    let rows = query.query_map([last as i64, most as i64], node_row).map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

/// Adds a node, or replaces the one that has its number; with number 0 it gets a new one, which is returned.
pub(super) fn put_node(connection: &Connection, row: &NodeRow) -> Result<u64, Error> {
    let (kind, device) = number_of(row.kind);
    let id = (row.id > 0).then_some(row.id as i64);
    let seconds = |time: Time| (time.seconds, i64::from(time.nanoseconds));
    let ((atime, atime_ns), (mtime, mtime_ns), (ctime, ctime_ns)) =
        (seconds(row.atime), seconds(row.mtime), seconds(row.ctime));
    let target = (row.kind == Kind::Symlink).then_some(&row.target);
    let mut insert = connection.prepare_cached(PUT_NODE).map_err(failed)?;
    insert
        .execute(params![
            id,
            kind,
            row.mode,
            row.uid,
            row.gid,
            row.links,
            device.major,
            device.minor,
            row.size as i64,
            row.blocks as i64,
            atime,
            atime_ns,
            mtime,
            mtime_ns,
            ctime,
            ctime_ns,
            target,
            row.place,
            row.lower,
            row.is_shared,
            row.changed
        ])
        .map_err(failed)?;
    Ok(if row.id > 0 { row.id } else { connection.last_insert_rowid() as u64 })
}

/// A folder has got a name, or lost one; and so many folders in it. One link means that nobody has counted.
pub(super) fn touch_folder(connection: &Connection, id: u64, now: Time, folders: i64) -> Result<(), Error> {
    let sql = "UPDATE nodes SET mtime = ?2, mtime_ns = ?3, ctime = ?2, ctime_ns = ?3,
               links = CASE links WHEN 1 THEN 1 ELSE min(max(links + ?4, 0), 4294967295) END WHERE id = ?1";
    let mut update = connection.prepare_cached(sql).map_err(failed)?;
    let changed = update.execute(params![id as i64, now.seconds, now.nanoseconds, folders]).map_err(failed)?;
    if changed == 0 { Err(super::stale()) } else { Ok(()) }
}

/// What the overlay says of a name in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// Nothing: what is below shows, if there is something.
    Nothing,
    /// There is nothing of this name, whatever is below.
    Gone,
    /// This node has it.
    Node(u64),
}

/// What is said of `name` in a folder.
pub(super) fn name(connection: &Connection, folder: u64, name: &[u8]) -> Result<Said, Error> {
    let mut query =
        connection.prepare_cached("SELECT node FROM names WHERE folder = ? AND name = ?").map_err(failed)?;
    let found = query.query_row(params![folder as i64, name], |row| row.get::<_, Option<i64>>(0));
    Ok(match found.optional().map_err(failed)? {
        None => Said::Nothing,
        Some(None) => Said::Gone,
        Some(Some(node)) => Said::Node(node as u64),
    })
}

/// True if something is said of names in this folder.
pub(super) fn has_names(connection: &Connection, folder: u64) -> Result<bool, Error> {
    let mut query = connection.prepare_cached("SELECT 1 FROM names WHERE folder = ? LIMIT 1").map_err(failed)?;
    query.exists([folder as i64]).map_err(failed)
}

/// True if something in this folder has a name here.
pub(super) fn has_nodes(connection: &Connection, folder: u64) -> Result<bool, Error> {
    let sql = "SELECT 1 FROM names WHERE folder = ? AND node IS NOT NULL LIMIT 1";
    connection.prepare_cached(sql).and_then(|mut query| query.exists([folder as i64])).map_err(failed)
}

/// Says what `name` in a folder is. `is_over`: there is something of that name below.
pub(super) fn put_name(
    connection: &Connection,
    folder: u64,
    name: &[u8],
    node: Option<u64>,
    is_over: bool,
) -> Result<(), Error> {
    let sql = "INSERT INTO names (folder, name, node, is_over) VALUES (?, ?, ?, ?)
               ON CONFLICT (folder, name) DO UPDATE SET node = excluded.node, is_over = excluded.is_over";
    let mut insert = connection.prepare_cached(sql).map_err(failed)?;
    let node = node.map(|node| node as i64);
    insert.execute(params![folder as i64, name, node, is_over]).map_err(failed)?;
    Ok(())
}

/// Says whether there is something below of a name of which something is said.
pub(super) fn set_over(connection: &Connection, folder: u64, name: &[u8], is_over: bool) -> Result<(), Error> {
    let sql = "UPDATE names SET is_over = ? WHERE folder = ? AND name = ?";
    let mut update = connection.prepare_cached(sql).map_err(failed)?;
    update.execute(params![is_over, folder as i64, name]).map(drop).map_err(failed)
}

/// Takes out what is said of a name.
pub(super) fn remove_name(connection: &Connection, folder: u64, name: &[u8]) -> Result<(), Error> {
    let mut delete = connection.prepare_cached("DELETE FROM names WHERE folder = ? AND name = ?").map_err(failed)?;
    delete.execute(params![folder as i64, name]).map_err(failed)?;
    Ok(())
}

/// Names in a folder that stand for something, behind `seq`, so many at most; those that are over something below, or
/// the others.
pub(super) fn names(
    connection: &Connection,
    folder: u64,
    is_over: bool,
    seq: u64,
    most: usize,
) -> Result<Vec<NameRow>, Error> {
    let sql = "SELECT seq, name, node FROM names WHERE folder = ? AND is_over = ? AND seq > ? ORDER BY seq LIMIT ?";
    let mut query = connection.prepare_cached(sql).map_err(failed)?;
    let rows = query.query_map(params![folder as i64, is_over, seq as i64, most as i64], name_row).map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

/// A folder in which a node has a name, and that name.
pub(super) fn name_of(connection: &Connection, node: u64) -> Result<Option<(u64, Vec<u8>)>, Error> {
    let sql = "SELECT folder, name FROM names WHERE node = ? ORDER BY seq LIMIT 1";
    let mut query = connection.prepare_cached(sql).map_err(failed)?;
    let found = query.query_row([node as i64], |row| Ok((row.get::<_, i64>(0)? as u64, row.get(1)?)));
    found.optional().map_err(failed)
}

/// The extended attributes of a node.
pub(super) fn xattrs(connection: &Connection, node: u64) -> Result<Xattrs, Error> {
    let mut query =
        connection.prepare_cached("SELECT name, value FROM xattrs WHERE node = ? ORDER BY name").map_err(failed)?;
    let rows = query.query_map([node as i64], |row| Ok((row.get(0)?, row.get(1)?))).map_err(failed)?;
    let (mut all, mut bytes) = (Xattrs::new(), 0);
    for row in rows {
        let (name, value): (Vec<u8>, Vec<u8>) = row.map_err(failed)?;
        bytes += name.len() + value.len();
        if bytes > MOST_XATTRS {
            let what = format!("the overlay's database: more extended attributes of number {node} than any file has");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what).into());
        }
        all.push((name, value));
    }
    Ok(all)
}

/// One of them.
pub(super) fn xattr(connection: &Connection, node: u64, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let mut query =
        connection.prepare_cached("SELECT value FROM xattrs WHERE node = ? AND name = ?").map_err(failed)?;
    query.query_row(params![node as i64, name], |row| row.get(0)).optional().map_err(failed)
}

/// Sets one of them, or takes it out.
pub(super) fn put_xattr(connection: &Connection, node: u64, name: &[u8], value: Option<&[u8]>) -> Result<(), Error> {
    let done = match value {
        Some(value) => connection
            .prepare_cached("INSERT OR REPLACE INTO xattrs VALUES (?, ?, ?)")
            .and_then(|mut sql| sql.execute(params![node as i64, name, value])),
        None => connection
            .prepare_cached("DELETE FROM xattrs WHERE node = ? AND name = ?")
            .and_then(|mut sql| sql.execute(params![node as i64, name])),
    };
    done.map(drop).map_err(failed)
}

/// Takes out a node that has no name, with all that is said of it.
pub(super) fn remove_node(connection: &Connection, node: u64) -> Result<(), Error> {
    for sql in
        ["DELETE FROM xattrs WHERE node = ?", "DELETE FROM names WHERE folder = ?", "DELETE FROM nodes WHERE id = ?"]
    {
        connection.prepare_cached(sql).and_then(|mut sql| sql.execute([node as i64])).map_err(failed)?;
    }
    Ok(())
}

/// Numbers of nodes without a name, those of a folder behind what lies in it.
pub(super) fn without_names(connection: &Connection) -> Result<Vec<u64>, Error> {
    numbers(connection, "SELECT id FROM nodes WHERE links = 0 ORDER BY length(place) DESC")
}

/// Numbers of files that have several names below.
pub(super) fn shared(connection: &Connection) -> Result<Vec<u64>, Error> {
    numbers(connection, "SELECT id FROM nodes WHERE is_shared")
}

fn numbers(connection: &Connection, sql: &str) -> Result<Vec<u64>, Error> {
    let mut query = connection.prepare(sql).map_err(failed)?;
    let rows = query.query_map([], |row| Ok(row.get::<_, i64>(0)? as u64)).map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

/// True if the content of some node lies at a place that has its number.
pub(super) fn has_place(connection: &Connection, place: &[u8]) -> Result<bool, Error> {
    let number = place.rsplit(|&byte| byte == b'/').next().and_then(|number| std::str::from_utf8(number).ok());
    let Some(id) = number.and_then(|number| number.parse::<u64>().ok()) else { return Ok(true) };
    Ok(node(connection, id)?.is_some_and(|node| node.place.as_deref() == Some(place)))
}

/// True of a name of a written file that has several names below, where something has that name below.
pub(super) fn is_written_name(row: &NodeRow, is_over: bool) -> bool {
    is_over && row.is_shared && row.changed & changed::CONTENT != 0
}

/// True if what is below at this path has another name now, that is no [`is_written_name`].
pub(super) fn has_moved(connection: &Connection, lower: &[u8]) -> Result<bool, Error> {
    let sql = "SELECT 1 FROM nodes JOIN names ON names.node = nodes.id
               WHERE lower = ? AND NOT (is_over AND is_shared AND changed & 2) LIMIT 1";
    connection.prepare_cached(sql).and_then(|mut query| query.exists([lower])).map_err(failed)
}

/// True if what is below at this path has a name here, whichever that is.
pub(super) fn has_name(connection: &Connection, lower: &[u8]) -> Result<bool, Error> {
    let sql = "SELECT 1 FROM nodes JOIN names ON names.node = nodes.id WHERE lower = ? LIMIT 1";
    connection.prepare_cached(sql).and_then(|mut query| query.exists([lower])).map_err(failed)
}

/// How many names in a folder have a node.
pub(super) fn count_of_names(connection: &Connection, folder: u64) -> Result<u64, Error> {
    let sql = "SELECT count(*) FROM names WHERE folder = ? AND node IS NOT NULL";
    let count =
        |query: &mut rusqlite::CachedStatement<'_>| query.query_row([folder as i64], |row| row.get::<_, i64>(0));
    connection.prepare_cached(sql).and_then(|mut query| count(&mut query)).map(|count| count as u64).map_err(failed)
}

/// A name with a node that is in none of these folders.
pub(super) fn name_elsewhere(connection: &Connection, folders: &HashSet<u64>) -> Result<Option<Vec<u8>>, Error> {
    let mut query = connection.prepare("SELECT folder, name FROM names WHERE node IS NOT NULL").map_err(failed)?;
    let mut rows = query.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let folder = row.get::<_, i64>(0).map_err(failed)?;
        if !folders.contains(&(folder as u64)) {
            return row.get(1).map(Some).map_err(failed);
        }
    }
    Ok(None)
}

/// All that is said of names in a folder, by name; and whether something is below of it.
pub(super) fn all_names(connection: &Connection, folder: u64) -> Result<Vec<(NameRow, bool)>, Error> {
    let sql = "SELECT seq, name, node, is_over FROM names WHERE folder = ? ORDER BY name";
    let mut query = connection.prepare_cached(sql).map_err(failed)?;
    let rows = query.query_map([folder as i64], |row| Ok((name_row(row)?, row.get(3)?))).map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}
