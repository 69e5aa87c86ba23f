//! Tables of SQLite that are filled in the order of their keys, page by page.
//!
//! SQLite takes about half a microsecond for a row, most of it to find out where the row goes. Here that is known:
//! behind the one before. So rows are put into pages as the format of the file demands, without SQLite, which opens the
//! file afterwards as any other.
//!
//! Source: <https://www.sqlite.org/fileformat2.html>, sections 1.3 (header), 1.5 and 1.6 (b-trees and overflow pages)
//! and 2.1 (records).

use std::io;

use crate::store::Store;

/// A value of a row.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    /// NULL; also what stands for the key in a table that has it in a column.
    Null,
    Integer(i64),
    Blob(&'a [u8]),
}

/// Values of one row that fit into a record's head of one byte.
const MOST_COLUMNS: usize = 8;

/// Where SQLite locks files: the page with this byte is never used.
const LOCKED: u64 = 1 << 30;

/// Pages that are written at once, in bytes.
const RUN: usize = 64 << 10;

/// Pages that are appended to a file that SQLite has made, and that nobody else writes to meanwhile.
#[derive(Debug)]
pub(super) struct Pages<'s> {
    store: &'s Store,
    /// Bytes of a page.
    size: usize,
    /// Number of the next page; the first one of a file is 1.
    next: u32,
    /// Pages that are not written yet, which follow each other, and the number of the first.
    run: Vec<u8>,
    first: u32,
}

impl<'s> Pages<'s> {
    /// Behind all pages of `store`, each of which has `size` bytes.
    pub(super) fn behind(store: &'s Store, size: u32) -> io::Result<Self> {
        let pages = store.len()?.checked_div(u64::from(size)).unwrap_or_default();
        let next = u32::try_from(pages.saturating_add(1)).map_err(io::Error::other)?;
        Ok(Self { store, size: size as usize, next, run: Vec::new(), first: next })
    }

    /// Bytes of a page.
    pub(super) fn page_size(&self) -> usize {
        self.size
    }

    fn offset(&self, number: u32) -> u64 {
        u64::from(number).saturating_sub(1).saturating_mul(self.size as u64)
    }

    /// The first page from that number on that may be used.
    fn usable(&self, number: u32) -> u32 {
        if self.offset(number) == LOCKED { number.saturating_add(1) } else { number }
    }

    /// Appends a page and returns its number.
    fn append(&mut self, page: &[u8]) -> io::Result<u32> {
        let number = self.usable(self.next);
        if number != self.next {
            self.write()?;
            self.first = number;
        }
        self.run.extend_from_slice(page);
        self.next = number.checked_add(1).ok_or(io::ErrorKind::FileTooLarge)?;
        if self.run.len() >= RUN {
            self.write()?;
        }
        Ok(number)
    }

    /// Writes what waits.
    fn write(&mut self) -> io::Result<()> {
        self.store.write_all_at(&self.run, self.offset(self.first))?;
        self.run.clear();
        self.first = self.next;
        Ok(())
    }

    /// Writes what waits, and how many pages there are now, so that SQLite sees that the file has changed.
    pub(super) fn finish(mut self) -> io::Result<()> {
        const CHANGES: usize = 24;
        const PAGES: usize = 28;
        const CHANGES_AGAIN: usize = 92;
        self.write()?;
        let mut head = [0; 100];
        self.store.read_exact_at(&mut head, 0)?;
        let changes = read_number(&head, CHANGES).wrapping_add(1).to_be_bytes();
        let pages = self.next.saturating_sub(1).to_be_bytes();
        for (at, number) in [(CHANGES, changes), (PAGES, pages), (CHANGES_AGAIN, changes)] {
            put(&mut head, at, &number);
        }
        self.store.write_all_at(&head, 0)
    }
}

fn read_number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Puts `what` at byte `at`. What does not fit is left out: there is always room.
#[inline]
fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    if let Some(to) = bytes.get_mut(at..at.saturating_add(what.len())) {
        to.copy_from_slice(what);
    }
}

/// Kinds of pages, and bytes of the head of each.
const LEAF: u8 = 0x0d;
const LEAF_HEAD: usize = 8;
const INTERIOR: u8 = 0x05;
const INTERIOR_HEAD: usize = 12;
/// Bytes of a cell in an interior page at most, its place in the list included: a page's number and a key below 2³⁵.
const INTERIOR_CELL: usize = 11;

/// One table.
#[derive(Debug)]
pub(super) struct Table {
    /// The page that SQLite begins with.
    root: u32,
    /// The leaf that is being filled: cells from its end on, and their places from its start on.
    leaf: Vec<u8>,
    cells: u16,
    /// The cell that was put in last begins here.
    start: usize,
    /// Key of the last row; 0 before the first.
    last: u32,
    /// Of each level above the leaves, the pages below that are in no page yet: its number, and its last key.
    levels: Vec<Vec<(u32, u32)>>,
}

impl Table {
    /// An empty one whose root is that page of a file with pages of `size` bytes.
    pub(super) fn new(root: u32, size: usize) -> Self {
        Self { root, leaf: vec![0; size], cells: 0, start: size, last: 0, levels: Vec::new() }
    }

    /// Appends a row. Its `key` is greater than that of the row before it.
    pub(super) fn push(&mut self, pages: &mut Pages<'_>, key: u32, values: &[Value<'_>]) -> io::Result<()> {
        if key <= self.last || values.len() > MOST_COLUMNS {
            return Err(io::Error::other(format!("rows of an index come out of order: {key} behind {}", self.last)));
        }
        let (head, length) = lengths_of(values);
        let inside = bytes_inside(length, pages.size);
        let overflow = if inside < length { 4 } else { 0 };
        let before = length_of_varint(length as u64).saturating_add(length_of_varint(key.into()));
        let cell = before.saturating_add(inside).saturating_add(overflow);
        if self.room() < cell.saturating_add(2) {
            self.end_leaf(pages)?;
        }
        self.last = key;
        self.start = self.start.saturating_sub(cell);
        let place = LEAF_HEAD.saturating_add(usize::from(self.cells).saturating_mul(2));
        put(&mut self.leaf, place, &(self.start as u16).to_be_bytes());
        self.cells = self.cells.saturating_add(1);
        let mut to = Cursor { bytes: &mut self.leaf, at: self.start };
        to.varint(length as u64);
        to.varint(key.into());
        if overflow == 0 {
            to.record(head, values);
            return Ok(());
        }
        let mut record = vec![0; length];
        Cursor { bytes: &mut record, at: 0 }.record(head, values);
        let (local, rest) = record.split_at_checked(inside).unwrap_or_default();
        let first = write_overflow(pages, rest)?;
        to.put(local);
        to.put(&first.to_be_bytes());
        Ok(())
    }

    /// Bytes of the leaf between the places of the cells and the cells.
    fn room(&self) -> usize {
        let places = usize::from(self.cells).saturating_mul(2);
        self.start.saturating_sub(LEAF_HEAD).saturating_sub(places)
    }

    /// Completes the leaf; what was there before in the room that is left is no part of it.
    fn close_leaf(&mut self) {
        let places = LEAF_HEAD.saturating_add(usize::from(self.cells).saturating_mul(2));
        if let Some(room) = self.leaf.get_mut(places..self.start) {
            room.fill(0);
        }
        put(&mut self.leaf, 0, &page_head(LEAF, self.cells, self.start));
    }

    fn end_leaf(&mut self, pages: &mut Pages<'_>) -> io::Result<()> {
        self.close_leaf();
        let number = pages.append(&self.leaf)?;
        (self.cells, self.start) = (0, self.leaf.len());
        self.add_child(pages, 0, (number, self.last))
    }

    /// There is one page more below `level`.
    fn add_child(&mut self, pages: &mut Pages<'_>, level: usize, child: (u32, u32)) -> io::Result<()> {
        if level == self.levels.len() {
            self.levels.push(Vec::new());
        }
        let most = most_children(pages.size);
        let Some(children) = self.levels.get_mut(level) else { return Ok(()) };
        children.push(child);
        if children.len() < most.saturating_mul(2) {
            return Ok(());
        }
        // As many are left: no page has one child alone.
        let full: Vec<_> = children.drain(..most).collect();
        let last = full.last().map_or(0, |&(_, key)| key);
        let number = pages.append(&interior(&full, pages.size))?;
        self.add_child(pages, level.saturating_add(1), (number, last))
    }

    /// Writes what waits. The root is written last, at its place.
    pub(super) fn finish(mut self, pages: &mut Pages<'_>) -> io::Result<()> {
        if self.last == 0 {
            return Ok(());
        }
        let at = pages.offset(self.root);
        if self.levels.is_empty() {
            self.close_leaf();
            return pages.store.write_all_at(&self.leaf, at);
        }
        self.end_leaf(pages)?;
        let most = most_children(pages.size);
        let mut level = 0;
        while let Some(children) = self.levels.get_mut(level).map(std::mem::take) {
            let above = level.saturating_add(1);
            if children.len() <= most && above == self.levels.len() {
                return pages.store.write_all_at(&interior(&children, pages.size), at);
            }
            let parts = children.len().div_ceil(most);
            for part in children.chunks(children.len().div_ceil(parts)) {
                let number = pages.append(&interior(part, pages.size))?;
                let last = part.last().map_or(0, |&(_, key)| key);
                self.add_child(pages, above, (number, last))?;
            }
            level = above;
        }
        Ok(())
    }
}

/// The first eight bytes of a page with `cells` cells, the first of which in the page begins at byte `start`.
fn page_head(kind: u8, cells: u16, start: usize) -> [u8; 8] {
    let ([cells_high, cells_low], [start_high, start_low]) = (cells.to_be_bytes(), (start as u16).to_be_bytes());
    [kind, 0, 0, cells_high, cells_low, start_high, start_low, 0]
}

/// Children of an interior page.
fn most_children(size: usize) -> usize {
    size.saturating_sub(INTERIOR_HEAD).checked_div(INTERIOR_CELL).unwrap_or_default()
}

/// An interior page: of each child its number and its last key, but for the last one, whose key nobody needs.
fn interior(children: &[(u32, u32)], size: usize) -> Vec<u8> {
    let mut page = vec![0; size];
    let (mut start, mut place) = (size, INTERIOR_HEAD);
    let Some((&(rightmost, _), others)) = children.split_last() else { return page };
    for &(number, key) in others {
        start = start.saturating_sub(length_of_varint(key.into()).saturating_add(4));
        let mut cell = Cursor { bytes: &mut page, at: start };
        cell.put(&number.to_be_bytes());
        cell.varint(key.into());
        put(&mut page, place, &(start as u16).to_be_bytes());
        place = place.saturating_add(2);
    }
    put(&mut page, 0, &page_head(INTERIOR, others.len() as u16, start));
    put(&mut page, LEAF_HEAD, &rightmost.to_be_bytes());
    page
}

/// Bytes of a record of that length that are kept in its leaf.
fn bytes_inside(length: usize, size: usize) -> usize {
    let most = size.saturating_sub(35);
    if length <= most {
        return length;
    }
    let least = (size.saturating_sub(12).saturating_mul(32) / 255).saturating_sub(23);
    let rest = length.saturating_sub(least).checked_rem(size.saturating_sub(4)).unwrap_or_default();
    let inside = least.saturating_add(rest);
    if inside <= most { inside } else { least }
}

/// Writes what does not fit in a leaf, and returns the number of its first page.
fn write_overflow(pages: &mut Pages<'_>, rest: &[u8]) -> io::Result<u32> {
    let parts = rest.chunks(pages.size.saturating_sub(4));
    let mut left = parts.len();
    let mut first = None;
    let mut page = vec![0; pages.size];
    for part in parts {
        left = left.saturating_sub(1);
        // Pages follow each other, but for the one that is never used.
        let next = pages.usable(pages.usable(pages.next).saturating_add(1));
        page.fill(0);
        put(&mut page, 0, &if left == 0 { 0 } else { next }.to_be_bytes());
        put(&mut page, 4, part);
        let number = pages.append(&page)?;
        first.get_or_insert(number);
    }
    Ok(first.unwrap_or_default())
}

/// Bytes of the head of a record with these values, which says its own length and the type of each; bytes of the whole
/// record.
fn lengths_of(values: &[Value<'_>]) -> (usize, usize) {
    let (mut head, mut length) = (1_usize, 0_usize);
    for value in values {
        let (of_type, of_value) = match value {
            Value::Null => (1, 0),
            Value::Integer(number) => (1, kind_of(*number).1),
            Value::Blob(blob) => (length_of_varint(type_of_blob(blob)), blob.len()),
        };
        (head, length) = (head.saturating_add(of_type), length.saturating_add(of_value));
    }
    (head, length.saturating_add(head))
}

/// The type that a record has for a number, and how many bytes it takes.
fn kind_of(number: i64) -> (u8, usize) {
    // All but the sign.
    match 64_u32.saturating_sub((number ^ (number >> 63)).leading_zeros()) {
        _ if number == 0 => (8, 0),
        _ if number == 1 => (9, 0),
        0..=7 => (1, 1),
        8..=15 => (2, 2),
        16..=23 => (3, 3),
        24..=31 => (4, 4),
        32..=47 => (5, 6),
        _ => (6, 8),
    }
}

/// The same for bytes.
fn type_of_blob(blob: &[u8]) -> u64 {
    (blob.len() as u64).saturating_mul(2).saturating_add(12)
}

/// Bytes of a number below 2⁵⁶, seven bits to a byte.
fn length_of_varint(number: u64) -> usize {
    64_u32.saturating_sub((number | 1).leading_zeros()).div_ceil(7) as usize
}

/// Where in a page, or in a record, is written next. Bytes go to where they stay: what is gathered elsewhere and copied
/// from there makes the processor wait, as a row has many short values.
struct Cursor<'b> {
    bytes: &'b mut [u8],
    at: usize,
}

impl Cursor<'_> {
    fn put(&mut self, what: &[u8]) {
        put(self.bytes, self.at, what);
        self.at = self.at.saturating_add(what.len());
    }

    fn byte(&mut self, byte: u8) {
        self.put(&[byte]);
    }

    /// A number below 2⁵⁶, seven bits to a byte, the highest first.
    fn varint(&mut self, number: u64) {
        for group in (1..length_of_varint(number) as u32).rev() {
            self.byte((number >> group.saturating_mul(7)) as u8 | 0x80);
        }
        self.byte(number as u8 & 0x7f);
    }

    /// A number in as few bytes as it takes. Of each length by itself: that which is known where it is copied needs no
    /// call.
    fn integer(&mut self, number: i64) {
        let all = number.to_be_bytes();
        match kind_of(number).1 {
            0 => {}
            1 => self.put(&all[7..]),
            2 => self.put(&all[6..]),
            3 => self.put(&all[5..]),
            4 => self.put(&all[4..]),
            6 => self.put(&all[2..]),
            _ => self.put(&all),
        }
    }

    /// A record with these values, whose head has so many bytes.
    fn record(&mut self, head: usize, values: &[Value<'_>]) {
        self.byte(head as u8);
        for value in values {
            match value {
                Value::Null => self.byte(0),
                Value::Integer(number) => self.byte(kind_of(*number).0),
                Value::Blob(blob) => self.varint(type_of_blob(blob)),
            }
        }
        for value in values {
            match value {
                Value::Null => {}
                Value::Integer(number) => self.integer(*number),
                Value::Blob(blob) => self.put(blob),
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test that overflows fails")]
mod tests {
    use std::sync::Arc;

    use rusqlite::Connection;

    use super::*;
    use crate::sqlite::open_for_writing;
    use crate::vfs::Opened;

    /// A file with two tables, the first filled with `rows`, and with the second one as far as SQLite fills it.
    fn filled(size: u32, hole: u64, rows: &[(u32, i64, Vec<u8>)]) -> Connection {
        let file = Opened::new(Arc::new(Store::File(tempfile::tempfile().unwrap())), true);
        let connection = open_for_writing(&file, size).unwrap();
        connection
            .execute_batch("BEGIN; CREATE TABLE a (key INTEGER PRIMARY KEY, b, c); CREATE TABLE z (a); COMMIT")
            .unwrap();
        if hole > 0 {
            file.store().set_len(hole).unwrap();
        }
        let mut pages = Pages::behind(file.store(), size).unwrap();
        let mut table = Table::new(2, pages.page_size());
        for (key, number, bytes) in rows {
            table.push(&mut pages, *key, &[Value::Null, Value::Integer(*number), Value::Blob(bytes)]).unwrap();
        }
        table.finish(&mut pages).unwrap();
        pages.finish().unwrap();
        // The same connection sees it, and goes on.
        connection.execute_batch("BEGIN; INSERT INTO z SELECT key FROM a; COMMIT").unwrap();
        connection
    }

    fn check(connection: &Connection, rows: &[(u32, i64, Vec<u8>)]) {
        let mut query = connection.prepare("SELECT key, b, c FROM a").unwrap();
        let found = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
        let found: Vec<(u32, i64, Vec<u8>)> = found.collect::<Result<_, _>>().unwrap();
        assert!(found == rows);
        let mut one = connection.prepare("SELECT c FROM a WHERE key = ?").unwrap();
        for (key, _, bytes) in rows.iter().step_by(rows.len() / 50 + 1) {
            assert_eq!(&one.query_row([key], |row| row.get::<_, Vec<u8>>(0)).unwrap(), bytes);
        }
        let count: u32 = connection.query_row("SELECT count(*) FROM z", [], |row| row.get(0)).unwrap();
        assert_eq!(count as usize, rows.len());
    }

    fn integrity(connection: &Connection) -> String {
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap()
    }

    /// Rows of all lengths around those at which something changes, and as many as make two and three levels.
    #[test]
    fn sqlite_finds_nothing_wrong_and_every_row() {
        for size in [512, 4096] {
            for count in [0, 1, 2, 30, 400, 5000, 60_000] {
                let row = |number: u32| {
                    let length = if number.is_multiple_of(997) { number as usize % 9000 } else { number as usize % 23 };
                    (number * 3 + 1, i64::from(number) - 200, vec![number as u8; length])
                };
                let rows: Vec<_> = (0..count).map(row).collect();
                let connection = filled(size, 0, &rows);
                assert_eq!(integrity(&connection), "ok", "{size} {count}");
                check(&connection, &rows);
            }
        }
    }

    #[test]
    fn values_of_each_length_come_back() {
        for size in [512, 4096_u32] {
            let most = size as usize;
            let lengths = (0..140).chain(most - 60..most + 20).chain(3 * most - 60..3 * most + 20).chain([1 << 20]);
            let rows: Vec<_> =
                (1..).zip(lengths).map(|(key, length)| (key, length as i64, vec![key as u8; length])).collect();
            let connection = filled(size, 0, &rows);
            assert_eq!(integrity(&connection), "ok");
            check(&connection, &rows);
        }
    }

    #[test]
    fn numbers_of_each_length_come_back() {
        let powers =
            (0..64).flat_map(|bit| [1_i64 << bit, (1_i64 << bit).wrapping_sub(1), (1_i64 << bit).wrapping_neg()]);
        let rows: Vec<_> =
            (1..).zip(powers.chain([0, -1, i64::MIN, i64::MAX])).map(|(key, n)| (key, n, vec![])).collect();
        let connection = filled(4096, 0, &rows);
        assert_eq!(integrity(&connection), "ok");
        check(&connection, &rows);
    }

    /// The page at 1 GiB stays out of use, also by a value that goes on behind it.
    #[test]
    fn the_page_that_is_locked_is_passed_over() {
        for before in [1, 2, 3, 4] {
            let rows: Vec<_> = (1..400).map(|key| (key, 5, vec![key as u8; 3000 + 40 * key as usize])).collect();
            let connection = filled(4096, LOCKED - before * 4096, &rows);
            check(&connection, &rows);
            // What is wrong is that pages before it are in no table.
            assert!(!integrity(&connection).contains("malformed"));
        }
    }

    #[test]
    fn rows_out_of_order_are_refused() {
        let file = Store::File(tempfile::tempfile().unwrap());
        let mut pages = Pages::behind(&file, 512).unwrap();
        let mut table = Table::new(2, 512);
        table.push(&mut pages, 7, &[Value::Null]).unwrap();
        assert!(table.push(&mut pages, 7, &[Value::Null]).is_err());
        assert!(table.push(&mut pages, 0, &[Value::Null]).is_err());
    }
}
