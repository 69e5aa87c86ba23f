//! Rows into SQLite, each table's in the order of its key, so that every row is appended.

use rusqlite::{Connection, Statement, ToSql};
use tarnfs_format::Time;

use crate::Error;
use crate::own::made::Made;
use crate::sqlite::{failed, prepare};

use super::classes::{Classes, IMPLIED_CLASS};
use super::record::{Attributes, Record, in_nanoseconds, more, separate_nanoseconds};
use super::spool::Spool;

/// The tables that are filled while the sorted records go by.
#[derive(Debug)]
pub(super) struct Output<'c> {
    entries: Statement<'c>,
    replaced: Statement<'c>,
    links: Statement<'c>,
    devices: Statement<'c>,
    times: Statement<'c>,
    extents: Statement<'c>,
    xattrs: Statement<'c>,
    classes: &'c mut Classes,
    /// Of each name of an attribute, by the number that records have: the number that it gets.
    xattr_names: &'c [u32],
    /// What is too large for records.
    large: &'c Spool,
    /// Bytes that the column `header` counts in.
    unit: u64,
    /// What the entries' statement is bound to: most columns are the same from row to row.
    bound: Option<Bound>,
    /// The rows of entries, as long as they are kept.
    made: Option<Made>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bound {
    class: u32,
    size: u64,
    mtime: Time,
}

impl Bound {
    /// The columns size and mtime.
    fn columns(&self) -> (i64, i64) {
        (signed(self.size), in_nanoseconds(self.mtime).unwrap_or(self.mtime.seconds))
    }
}

fn bind(statement: &mut Statement<'_>, column: usize, value: impl ToSql) -> Result<(), Error> {
    statement.raw_bind_parameter(column, value).map_err(failed)
}

fn run(statement: &mut Statement<'_>) -> Result<(), Error> {
    statement.raw_execute().map(drop).map_err(failed)
}

/// Times before or behind what a signed number holds do not come from a [`Time`]; offsets and sizes above it are cut
/// there.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl<'c> Output<'c> {
    /// `unit` is what all headers are multiples of. The rows of entries go to `made`, too.
    pub(super) fn new(
        connection: &'c Connection,
        classes: &'c mut Classes,
        xattr_names: &'c [u32],
        large: &'c Spool,
        unit: u64,
        made: Option<Made>,
    ) -> Result<Self, Error> {
        let insert = |sql| prepare(connection, sql);
        Ok(Self {
            entries: insert("INSERT INTO entries (rowid, name, class, header, size, mtime) VALUES (?, ?, ?, ?, ?, ?)")?,
            replaced: insert("INSERT INTO replaced VALUES (?, ?, ?, ?, ?, ?, ?)")?,
            links: insert("INSERT INTO links VALUES (?, ?)")?,
            devices: insert("INSERT INTO devices VALUES (?, ?, ?)")?,
            times: insert("INSERT INTO times VALUES (?, ?, ?, ?, ?, ?)")?,
            extents: insert("INSERT INTO extents VALUES (?, ?)")?,
            xattrs: insert("INSERT OR REPLACE INTO xattrs VALUES (?, ?, ?)")?,
            classes,
            xattr_names,
            large,
            unit,
            bound: None,
            made,
        })
    }

    /// The rows that were kept. `None` if these are not all.
    pub(super) fn take_made(&mut self) -> Option<Made> {
        self.made.take()
    }

    fn keep(&mut self, node: u32, name: &[u8], bound: Bound, header: i64) {
        let (size, mtime) = bound.columns();
        if self.made.as_mut().is_some_and(|made| !made.push(node, name, bound.class, [header, size, mtime])) {
            self.made = None;
        }
    }

    /// The column `header` of a record.
    fn header(&self, record: &Record<'_>) -> i64 {
        signed(record.rank.checked_div(self.unit).unwrap_or(record.rank))
    }

    /// An entry that shows; `may_be_shared` if hard links ask for it.
    pub(super) fn entry(
        &mut self,
        node: u32,
        record: &Record<'_>,
        attributes: Attributes<'_>,
        may_be_shared: bool,
    ) -> Result<(), Error> {
        let Attributes { class, size, mtime, .. } = attributes;
        let bound = Bound { class: self.classes.place(class, may_be_shared), size, mtime };
        let header = self.header(record);
        let statement = &mut self.entries;
        if self.bound != Some(bound) {
            self.bound = None;
            bind_common(statement, 3, bound)?;
            self.bound = Some(bound);
        }
        bind(statement, 1, node)?;
        bind(statement, 2, record.name)?;
        bind(statement, 4, header)?;
        run(statement)?;
        self.keep(node, record.name, bound, header);
        if attributes.more == 0 { Ok(()) } else { self.side(node, attributes) }
    }

    /// A folder that no entry names.
    pub(super) fn implied_folder(&mut self, node: u32, name: &[u8]) -> Result<(), Error> {
        let bound = Bound { class: IMPLIED_CLASS, size: 0, mtime: Time::default() };
        bind_common(&mut self.entries, 3, bound)?;
        self.bound = Some(bound);
        bind(&mut self.entries, 1, node)?;
        bind(&mut self.entries, 2, name)?;
        bind(&mut self.entries, 4, -1)?;
        run(&mut self.entries)?;
        self.keep(node, name, bound, -1);
        Ok(())
    }

    /// An entry that does not show.
    pub(super) fn replaced(
        &mut self,
        node: u32,
        folder: u32,
        record: &Record<'_>,
        attributes: Attributes<'_>,
        may_be_shared: bool,
    ) -> Result<(), Error> {
        let Attributes { class, size, mtime, .. } = attributes;
        let bound = Bound { class: self.classes.place(class, may_be_shared), size, mtime };
        let header = self.header(record);
        let statement = &mut self.replaced;
        bind_common(statement, 4, bound)?;
        bind(statement, 1, node)?;
        bind(statement, 2, folder)?;
        bind(statement, 3, record.name)?;
        bind(statement, 5, header)?;
        run(statement)?;
        self.side(node, attributes)
    }

    /// A folder that no entry names, and that does not show any more.
    pub(super) fn replaced_folder(&mut self, node: u32, folder: u32, name: &[u8]) -> Result<(), Error> {
        let statement = &mut self.replaced;
        bind_common(statement, 4, Bound { class: IMPLIED_CLASS, size: 0, mtime: Time::default() })?;
        bind(statement, 1, node)?;
        bind(statement, 2, folder)?;
        bind(statement, 3, name)?;
        bind(statement, 5, -1)?;
        run(statement)
    }

    fn side(&mut self, node: u32, attributes: Attributes<'_>) -> Result<(), Error> {
        let mut large = Vec::new();
        let side = attributes.side(self.large, &mut large)?;
        let has = |bit: u16| attributes.more & bit != 0;
        if attributes.has_target() {
            self.links.execute((node, side.link)).map_err(failed)?;
        }
        if has(more::DEVICE) {
            self.devices.execute((node, side.device.major, side.device.minor)).map_err(failed)?;
        }
        if has(more::TIMES) {
            let seconds = |time: Option<Time>| time.map(|time| time.seconds);
            let nanoseconds = |time: Option<Time>| time.map(|time| time.nanoseconds);
            let (atime, ctime) = (side.atime, side.ctime);
            let (atime, atime_ns, ctime, ctime_ns) =
                (seconds(atime), nanoseconds(atime), seconds(ctime), nanoseconds(ctime));
            let mtime_ns = separate_nanoseconds(attributes.mtime);
            self.times.execute((node, atime, atime_ns, ctime, ctime_ns, mtime_ns)).map_err(failed)?;
        }
        if has(more::EXTENTS) {
            self.extents.execute((node, side.extents)).map_err(failed)?;
        }
        for (name, value) in side.xattrs {
            let name = place_of(self.xattr_names, name);
            self.xattrs.execute((node, name, value)).map_err(failed)?;
        }
        Ok(())
    }
}

/// The number that the name of an attribute gets which has `number` in records. Of very many names the last ones keep
/// theirs.
pub(super) fn place_of(xattr_names: &[u32], number: u32) -> u32 {
    xattr_names.get((number as usize).wrapping_sub(1)).copied().unwrap_or(number)
}

/// Binds the columns from `class` on, but for `header`.
fn bind_common(statement: &mut Statement<'_>, class: usize, bound: Bound) -> Result<(), Error> {
    let column = |behind: usize| class.saturating_add(behind);
    bind(statement, class, bound.class)?;
    let (size, mtime) = bound.columns();
    bind(statement, column(2), size)?;
    bind(statement, column(3), mtime)
}
