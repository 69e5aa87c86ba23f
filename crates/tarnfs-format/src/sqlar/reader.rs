//! Reads an archive: the table, and an entry for each row.

use std::sync::Arc;

use tarnfs_source::SharedSource;

use super::NAME;
use super::pages::{Cell, Database, Pages};
use super::row::{self, Value, ValueKind};
use super::table::{self, Table};
use crate::image::{Budget, Teller, data_of, is_damage};
use crate::name::{bounded_path, excerpt};
use crate::window::Window;
use crate::{Body, Coder, Entry, Error, Kind, Options, Piece, ReceiveRandom, Step, Time};

/// Bytes of the header of a row that are looked at: those of a table of five columns are some ten.
const LONGEST_HEADER: u64 = 1 << 10;

/// Bytes of memory that a row takes beside its name, and what one page of the list of a row counts as at least: to go
/// on to the next one costs more than its bytes.
const OF_ROW: u64 = 64;
const OF_PAGE: u32 = 1024;

/// What links have in place of a length.
const IS_LINK: i64 = -1;

pub(super) fn read(source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
    let mut head = [0; 100];
    let read = source.read_at(&mut head, 0).map_err(|error| Error::Read { offset: 0, error })?;
    let none = |reason: &str| Error::NotThisFormat { format: NAME, reason: reason.to_owned() };
    let database = Database::read(head.get(..read).unwrap_or_default(), Some(source.len()));
    let database = database.ok_or_else(|| none("it does not begin as a database of SQLite does"))?;
    let mut window = Window::growing(&**source).until(&options.cancel);
    let mut show = |at: u64, length: usize| window.bytes(at, u64::MAX, length).map(<[u8]>::to_vec);
    // What lies in holes is no page of a table.
    let data = data_of(&**source);
    let most = data.checked_div(database.page.into()).unwrap_or_default().saturating_add(2);
    let mut pages = Pages::new(database, &mut show, most.saturating_mul(2));
    let table = table::find(&mut pages, &options.cancel).map_err(|error| {
        if is_damage(&error) {
            Error::Unreadable { format: NAME, reason: format!("its list of tables is damaged: {error}") }
        } else {
            Error::Read { offset: 0, error }
        }
    })?;
    let table = table.ok_or_else(|| none("it has no table sqlar with a name, mode, mtime, sz and data"))?;
    let tell = std::cell::RefCell::new(Teller::new(receive));
    let budget = Budget::new(data, options.shares);
    let mut rows = Rows { source, options, database, table, budget };
    let mut has_told = false;
    let mut first_damage = None;
    let walked = pages.rows::<Failure>(
        table.root,
        &options.cancel,
        &mut |cell, page, at| {
            has_told = true;
            rows.row(cell, page, at, &mut tell.borrow_mut())
        },
        &mut |at, error| {
            first_damage.get_or_insert_with(|| error.to_string());
            let what = format!("some files are lost: {error}");
            tell.borrow_mut().damage(at, what).map_err(Failure::Of)
        },
    );
    if let Err(Failure::Of(error)) = walked {
        return Err(error);
    }
    match first_damage {
        Some(reason) if !has_told => Err(Error::Unreadable { format: NAME, reason }),
        _ => Ok(()),
    }
}

/// Why walking the table ended.
enum Failure {
    Of(Error),
    /// The budget is spent, and that was told.
    Spent,
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Of(Error::Read { offset: 0, error })
    }
}

/// Why a row is no file.
enum Lost {
    /// What is wrong with it.
    Row(String),
    /// The budget is spent, for all that follow, too.
    Rest,
}

impl From<String> for Lost {
    fn from(what: String) -> Self {
        Self::Row(what)
    }
}

impl From<&str> for Lost {
    fn from(what: &str) -> Self {
        Self::Row(what.to_owned())
    }
}

struct Rows<'o> {
    source: &'o SharedSource,
    options: &'o Options,
    database: Database,
    table: Table,
    /// Any number of rows may go on in the same pages.
    budget: Budget,
}

impl Rows<'_> {
    fn row(&mut self, cell: Cell, page: &[u8], at: u64, tell: &mut Teller<'_>) -> Result<(), Failure> {
        let told = match self.entry(cell, page, at) {
            Ok((entry, damage)) => damage
                .map_or(Ok(()), |what| tell.damage(cell.header, format!("'{}' {what}", excerpt(&entry.path))))
                .and_then(|()| tell.entry(entry)),
            Err(Lost::Row(what)) => tell.damage(cell.header, format!("a file is lost: {what}")),
            Err(Lost::Rest) => {
                let what = "this file and all behind it are lost: rows lead to the same pages too often";
                tell.damage(cell.header, what.to_owned()).map_err(Failure::Of)?;
                return Err(Failure::Spent);
            }
        };
        told.map_err(Failure::Of)
    }

    fn take(&mut self, bytes: u64) -> Result<(), Lost> {
        self.budget.take_bytes(bytes).map_err(|_| Lost::Rest)
    }

    /// The entry of a row, and what is wrong with it.
    fn entry(&mut self, cell: Cell, page: &[u8], at: u64) -> Result<(Entry, Option<String>), Lost> {
        self.take(OF_ROW)?;
        let limits = self.options.limits;
        let start = usize::try_from(cell.at.saturating_sub(at)).unwrap_or(usize::MAX);
        let local = page.get(start..start.saturating_add(cell.local as usize)).unwrap_or_default();
        let header = row::header_length(local).filter(|length| *length <= LONGEST_HEADER.min(cell.length));
        let header = header.ok_or("its row has no header")?;
        let values = if header <= local.len() as u64 {
            row::values(local, cell.length)
        } else {
            row::values(&self.bytes(cell, local, (0, header))?, cell.length)
        };
        let values = values.ok_or("the values of its row do not fit into it")?;
        let [name, mode, mtime, size, data] = self
            .table
            .columns
            .map(|column| values.get(column).copied().unwrap_or(Value { kind: ValueKind::Null, at: 0, length: 0 }));
        if name.length > limits.path as u64 {
            return Err(format!("its name has {} bytes", name.length).into());
        }
        let short = |value: Value| Value { length: if value.length > 64 { 0 } else { value.length }, ..value };
        let wanted = [name, short(mode), short(mtime), short(size)];
        let [path, bits, time, length] = self.together(cell, local, wanted)?;
        let (bits, mtime, size) = (mode.number(&bits), mtime.number(&time), size.number(&length).unwrap_or_default());
        let path = row::decoded(self.database.text, path);
        let bits = bits.unwrap_or(0o100_644) as u32;
        let has_data = matches!(data.kind, ValueKind::Blob | ValueKind::Text);
        let stored = if has_data { data.length } else { 0 };
        let kind = match bits & 0o170_000 {
            0o040_000 => Kind::Folder,
            0o120_000 => Kind::Symlink,
            _ if size == IS_LINK => Kind::Symlink,
            _ => Kind::File,
        };
        let mut entry = Entry {
            path: bounded_path(path, limits.path),
            kind,
            mode: bits & 0o7777,
            mtime: Time { seconds: mtime.unwrap_or_default(), nanoseconds: 0 },
            header: cell.header,
            body: Body { offset: cell.header, ..Body::default() },
            ..Entry::default()
        };
        // As the function sqlar_uncompress has it.
        let is_plain = size <= 0 || size.cast_unsigned() == stored;
        let length = if is_plain { stored } else { size.cast_unsigned() };
        let mut damage = None;
        match kind {
            Kind::Symlink if stored > limits.path as u64 => {
                return Err(format!("its target has {stored} bytes").into());
            }
            Kind::Symlink => {
                let target = self.bytes(cell, local, (data.at, stored))?;
                entry.link = if is_plain { target } else { self.inflated(target, length.min(limits.path as u64))? };
                if data.kind == ValueKind::Text {
                    entry.link = row::decoded(self.database.text, entry.link);
                }
                entry.link = bounded_path(entry.link, limits.path);
            }
            Kind::File if length > 0 => {
                let piece = match self.piece(cell, (data.at, stored), length, is_plain) {
                    Ok(piece) => piece,
                    Err(what) => {
                        damage = Some(what);
                        Piece::unreadable(cell.header, length)
                    }
                };
                (entry.body.size, entry.body.pieces) = (length, Some(vec![piece]));
            }
            _ => {}
        }
        Ok((entry, damage))
    }

    /// The bytes of these values of a row. Those behind its first page are had by one walk over its list, unless much
    /// lies between them.
    fn together(&mut self, cell: Cell, local: &[u8], values: [Value; 4]) -> Result<[Vec<u8>; 4], Lost> {
        let is_far = |value: &&Value| value.length > 0 && value.at.saturating_add(value.length) > local.len() as u64;
        let far = values.iter().filter(is_far);
        let start = far.clone().map(|value| value.at).min().unwrap_or_default();
        let end = far.clone().map(|value| value.at.saturating_add(value.length)).max().unwrap_or_default();
        let sum = far.map(|value| value.length).fold(0, u64::saturating_add);
        let span = end.saturating_sub(start);
        let are_near = span <= sum.saturating_add(self.database.page.into());
        let walked = if span > 0 && are_near { self.bytes(cell, local, (start, span))? } else { Vec::new() };
        let mut found = [const { Vec::new() }; 4];
        for (found, value) in found.iter_mut().zip(&values) {
            let inside = usize::try_from(value.at.wrapping_sub(start)).unwrap_or(usize::MAX);
            let inside = inside..inside.saturating_add(value.length as usize);
            *found = match walked.get(inside) {
                Some(bytes) if is_far(&value) => bytes.to_vec(),
                _ => self.bytes(cell, local, (value.at, value.length))?,
            };
        }
        Ok(found)
    }

    /// What lies in `(at, length)` of a row, of which the first bytes are `local`.
    fn bytes(&mut self, cell: Cell, local: &[u8], (at, length): (u64, u64)) -> Result<Vec<u8>, Lost> {
        self.take(length)?;
        let end = at.saturating_add(length);
        if end <= local.len() as u64 || length == 0 {
            return Ok(local.get(at as usize..end as usize).unwrap_or_default().to_vec());
        }
        // All pages of its list before that are walked.
        let Database { page, used, .. } = self.database;
        let pages = end.saturating_sub(local.len() as u64).checked_div(used.saturating_sub(4).into());
        let pages = pages.unwrap_or_default().saturating_add(1);
        self.take(pages.saturating_mul(page.max(OF_PAGE).into()))?;
        let coder = Coder { steps: vec![self.overflow(cell, (at, length))?], is_behind_header: None };
        let all = self.options.decode.decode(&coder, SharedSource::clone(self.source), length, &|_| true);
        let all = all.map_err(|error| error.to_string())?;
        if all.len() as u64 == length { Ok(all) } else { Err("its row is cut".into()) }
    }

    fn inflated(&self, stored: Vec<u8>, length: u64) -> Result<Vec<u8>, String> {
        let coder = Coder { steps: vec![inflate()], is_behind_header: None };
        let stored: SharedSource = Arc::new(tarnfs_source::MemorySource::new(stored, "a target of a link"));
        self.options.decode.decode(&coder, stored, length, &|_| true).map_err(|error| error.to_string())
    }

    /// What finds `(at, length)` of a row that goes on in other pages.
    fn overflow(&self, cell: Cell, (at, length): (u64, u64)) -> Result<Step, String> {
        let Database { page, used, .. } = self.database;
        let next = cell.next.ok_or("its row ends too early")?;
        // Each page of the file belongs to one row.
        if at.saturating_add(length) > self.source.len() {
            return Err(format!("has more bytes than the file: {length}"));
        }
        let properties = [
            &page.to_le_bytes()[..],
            &used.to_le_bytes(),
            &cell.at.to_le_bytes(),
            &cell.local.to_le_bytes(),
            &next.to_le_bytes(),
            &at.to_le_bytes(),
            &length.to_le_bytes(),
        ]
        .concat();
        Ok(Step { codec: "overflow".to_owned(), properties, decoded_length: Some(length), ..Step::default() })
    }

    /// Where the content of a file lies, of which `(at, stored)` of its row is stored.
    fn piece(&self, cell: Cell, (at, stored): (u64, u64), length: u64, is_plain: bool) -> Result<Piece, String> {
        let inflate = (!is_plain).then(inflate);
        if at.saturating_add(stored) <= u64::from(cell.local) {
            let coder = inflate.map(|step| Arc::new(Coder { steps: vec![step], is_behind_header: None }));
            let offset = cell.at.saturating_add(at);
            return Ok(Piece { length, offset, stored, coder, decoded: length, ..Piece::default() });
        }
        let steps = [self.overflow(cell, (at, stored))?].into_iter().chain(inflate).collect();
        let coder = Some(Arc::new(Coder { steps, is_behind_header: None }));
        // The list may lead anywhere.
        Ok(Piece { length, offset: 0, stored: self.source.len(), coder, decoded: length, ..Piece::default() })
    }
}

fn inflate() -> Step {
    Step { codec: "zlib".to_owned(), ..Step::default() }
}
