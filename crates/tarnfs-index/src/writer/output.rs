//! Rows into the tables of the index, each table's in the order of its key, so that every row is appended.

use std::collections::HashMap;
use std::io;

use tarnfs_format::Time;

use crate::Error;
use crate::own::made::Made;

use super::classes::{Classes, IMPLIED_CLASS};
use super::later::{self, Later};
use super::pages::{Pages, Table, Value};
use super::record::{Attributes, Record, in_nanoseconds, more, separate_nanoseconds};
use super::spool::Spool;

/// The tables that are filled while the sorted records go by.
#[derive(Debug)]
pub(super) struct Output<'w, 's> {
    pages: &'w mut Pages<'s>,
    later: &'w mut Later,
    entries: Table,
    links: Table,
    devices: Table,
    times: Table,
    extents: Table,
    classes: &'w mut Classes,
    /// Of each name of an attribute, by the number that records have: the number that it gets.
    xattr_names: &'w [u32],
    /// What is too large for records.
    large: &'w Spool,
    /// Bytes that the column `header` counts in.
    unit: u64,
    /// The rows of entries, as long as they are kept.
    made: Option<Made>,
}

/// What shapes the rows.
#[derive(Debug)]
pub(super) struct Shape<'w> {
    pub(super) classes: &'w mut Classes,
    /// See [`Output::xattr_names`].
    pub(super) xattr_names: &'w [u32],
    pub(super) large: &'w Spool,
    /// What all headers are multiples of.
    pub(super) unit: u64,
}

/// What does not come from where a row stands.
#[derive(Debug, Clone, Copy)]
struct Common {
    class: u32,
    size: u64,
    mtime: Time,
}

impl Common {
    /// Of a folder that no entry names.
    fn implied() -> Self {
        Self { class: IMPLIED_CLASS, size: 0, mtime: Time::default() }
    }

    /// The columns name, class, header, size and mtime.
    fn columns(self, name: &[u8], header: i64) -> [Value<'_>; 5] {
        let [size, mtime] = self.numbers();
        let number = Value::Integer;
        [Value::Blob(name), number(self.class.into()), number(header), number(size), number(mtime)]
    }

    /// The columns size and mtime.
    fn numbers(self) -> [i64; 2] {
        [signed(self.size), in_nanoseconds(self.mtime).unwrap_or(self.mtime.seconds)]
    }
}

/// Times before or behind what a signed number holds do not come from a [`Time`]; offsets and sizes above it are cut
/// there.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl<'w, 's> Output<'w, 's> {
    /// Tables with these `roots` in `pages`; what cannot be appended goes to `later`. The rows of entries go to `made`,
    /// too.
    pub(super) fn new(
        (pages, roots): (&'w mut Pages<'s>, &Roots),
        later: &'w mut Later,
        Shape { classes, xattr_names, large, unit }: Shape<'w>,
        made: Option<Made>,
    ) -> Result<Self, Error> {
        Ok(Self {
            entries: roots.table("entries", pages)?,
            links: roots.table("links", pages)?,
            devices: roots.table("devices", pages)?,
            times: roots.table("times", pages)?,
            extents: roots.table("extents", pages)?,
            pages,
            later,
            classes,
            xattr_names,
            large,
            unit,
            made,
        })
    }

    /// Completes the tables. The rows that were kept; `None` if these are not all.
    pub(super) fn finish(self) -> io::Result<Option<Made>> {
        for table in [self.entries, self.links, self.devices, self.times, self.extents] {
            table.finish(self.pages)?;
        }
        Ok(self.made)
    }

    /// The column `header` of a record.
    fn header(&self, record: &Record<'_>) -> i64 {
        signed(record.rank.checked_div(self.unit).unwrap_or(record.rank))
    }

    /// The columns that an entry has; `may_be_shared` if hard links ask for it.
    fn common(&mut self, attributes: &Attributes<'_>, may_be_shared: bool) -> Common {
        let &Attributes { class, size, mtime, .. } = attributes;
        Common { class: self.classes.place(class, may_be_shared), size, mtime }
    }

    /// An entry that shows; `may_be_shared` if hard links ask for it.
    pub(super) fn entry(
        &mut self,
        node: u32,
        record: &Record<'_>,
        attributes: Attributes<'_>,
        may_be_shared: bool,
    ) -> Result<(), Error> {
        let common = self.common(&attributes, may_be_shared);
        self.row(node, record.name, common, self.header(record))?;
        if attributes.more == 0 { Ok(()) } else { self.side(node, attributes, false) }
    }

    /// A folder that no entry names.
    pub(super) fn implied_folder(&mut self, node: u32, name: &[u8]) -> Result<(), Error> {
        self.row(node, name, Common::implied(), -1)
    }

    /// A row of entries.
    fn row(&mut self, node: u32, name: &[u8], common: Common, header: i64) -> Result<(), Error> {
        self.entries.push(self.pages, node, &common.columns(name, header))?;
        if let Some(made) = &mut self.made {
            let [size, mtime] = common.numbers();
            if !made.push(node, name, common.class, [header, size, mtime]) {
                self.made = None;
            }
        }
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
        let common = self.common(&attributes, may_be_shared);
        self.replaced_row(node, folder, record.name, common, self.header(record))?;
        self.side(node, attributes, true)
    }

    /// A folder that no entry names, and that does not show any more.
    pub(super) fn replaced_folder(&mut self, node: u32, folder: u32, name: &[u8]) -> Result<(), Error> {
        self.replaced_row(node, folder, name, Common::implied(), -1)
    }

    fn replaced_row(&mut self, node: u32, folder: u32, name: &[u8], common: Common, header: i64) -> Result<(), Error> {
        let [name, class, header, size, mtime] = common.columns(name, header);
        let values = [Value::Integer(folder.into()), name, class, header, size, mtime];
        Ok(self.later.add(later::Table::Replaced, node, &values)?)
    }

    /// What an entry has in other tables. Nodes of entries that were replaced come between the others, and are behind
    /// all of them.
    fn side(&mut self, node: u32, attributes: Attributes<'_>, is_replaced: bool) -> Result<(), Error> {
        let mut large = Vec::new();
        let side = attributes.side(self.large, &mut large)?;
        let has = |bit: u16| attributes.more & bit != 0;
        let number = Value::Integer;
        let (pages, later) = (&mut *self.pages, &mut *self.later);
        let mut add = |table: &mut Table, kind: later::Table, values: &[Value<'_>]| -> io::Result<()> {
            match values {
                [_, others @ ..] if is_replaced => later.add(kind, node, others),
                // The first value is the key, which a record does not have.
                values => table.push(pages, node, values),
            }
        };
        if attributes.has_target() {
            add(&mut self.links, later::Table::Links, &[Value::Null, Value::Blob(side.link)])?;
        }
        if has(more::DEVICE) {
            let (major, minor) = (side.device.major.into(), side.device.minor.into());
            add(&mut self.devices, later::Table::Devices, &[Value::Null, number(major), number(minor)])?;
        }
        if has(more::TIMES) {
            let seconds = |time: Option<Time>| time.map_or(Value::Null, |time| number(time.seconds));
            let part = |time: Option<Time>| time.map_or(Value::Null, |time| number(time.nanoseconds.into()));
            let (atime, ctime) = (side.atime, side.ctime);
            let mtime_ns = separate_nanoseconds(attributes.mtime).map_or(Value::Null, |part| number(part.into()));
            let values = [Value::Null, seconds(atime), part(atime), seconds(ctime), part(ctime), mtime_ns];
            add(&mut self.times, later::Table::Times, &values)?;
        }
        if has(more::EXTENTS) {
            add(&mut self.extents, later::Table::Extents, &[Value::Null, Value::Blob(side.extents)])?;
        }
        for (name, value) in side.xattrs {
            let name = place_of(self.xattr_names, name);
            self.later.add(later::Table::Xattrs, node, &[number(name.into()), Value::Blob(value)])?;
        }
        Ok(())
    }
}

/// Where the tables begin that SQLite has made.
#[derive(Debug)]
pub(super) struct Roots(pub(super) HashMap<String, u32>);

impl Roots {
    /// A table that is empty so far.
    pub(super) fn table(&self, name: &str, pages: &Pages<'_>) -> Result<Table, Error> {
        let root = self.0.get(name).ok_or_else(|| io::Error::other(format!("there is no table {name}")))?;
        Ok(Table::new(*root, pages.page_size()))
    }
}

/// The number that the name of an attribute gets which has `number` in records. Of very many names the last ones keep
/// theirs.
pub(super) fn place_of(xattr_names: &[u32], number: u32) -> u32 {
    xattr_names.get((number as usize).wrapping_sub(1)).copied().unwrap_or(number)
}
