//! Pages of a database, and the b-tree of a table: its rows in their order.

use std::io;

use tarnfs_source::Cancel;

use super::row::varint;
use crate::big::{u16_at, u32_at};
use crate::image::damaged;

/// What a database begins with.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Bytes of the header, in the first page.
const HEADER: usize = 100;

/// Levels of a tree: each has at least two pages below it, of at most 2^32.
const DEEPEST: usize = 32;

/// How text is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Text {
    Utf8,
    Utf16 { is_big: bool },
}

/// What the header says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Database {
    /// Bytes of a page, and of these in use.
    pub(super) page: u32,
    pub(super) used: u32,
    pub(super) text: Text,
    /// Changes may lie in a write-ahead log.
    pub(super) has_log: bool,
    /// It says whose it is, or has a number that belongs to whoever uses it.
    pub(super) is_of_program: bool,
    /// Bytes of the file.
    length: u64,
}

impl Database {
    /// Of a file that begins with `head`, and has so many bytes, if that is known; `None` if it is no database.
    pub(super) fn read(head: &[u8], length: Option<u64>) -> Option<Self> {
        let page = match u16_at(head, 16)? {
            1 => 1 << 16,
            page => u32::from(page),
        };
        let used = page.checked_sub(u32::from(*head.get(20)?))?;
        // Shares of a page that cells may have: they have never been others.
        let is_one = head.starts_with(MAGIC)
            && head.get(21..24)? == [64, 32, 32]
            && page >= 512
            && page.is_power_of_two()
            && used >= 480;
        let text = match u32_at(head, 56)? {
            0 | 1 => Text::Utf8,
            2 => Text::Utf16 { is_big: false },
            3 => Text::Utf16 { is_big: true },
            _ => return None,
        };
        let has_log = *head.get(19)? == 2;
        let is_of_program = u32_at(head, 60)? != 0 || u32_at(head, 68)? != 0;
        is_one.then_some(Self { page, used, text, has_log, is_of_program, length: length.unwrap_or(u64::MAX) })
    }

    /// Bytes that it has, where the header of the file tells: with these two numbers the same, it was SQLite that wrote
    /// how many pages there are.
    pub(super) fn end(&self, head: &[u8]) -> Option<u64> {
        let pages = u32_at(head, 28).filter(|pages| *pages > 0 && u32_at(head, 24) == u32_at(head, 92))?;
        u64::from(pages).checked_mul(self.page.into())
    }
}

/// Where a row lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    /// Byte of the file at which its header begins.
    pub(super) header: u64,
    /// Where it begins, and how many bytes of it are there.
    pub(super) at: u64,
    pub(super) local: u32,
    /// Bytes of it in all.
    pub(super) length: u64,
    /// The page at which the list of others begins, if there is one.
    pub(super) next: Option<u32>,
}

type Show<'s> = dyn FnMut(u64, usize) -> io::Result<Vec<u8>> + 's;

/// Takes a row, with the page that it lies in and where that begins.
type Take<'t, E> = dyn FnMut(Cell, &[u8], u64) -> Result<(), E> + 't;

/// Shows pages.
pub(super) struct Pages<'s> {
    pub(super) database: Database,
    show: &'s mut Show<'s>,
    /// Pages that may still be looked at.
    left: u64,
}

impl<'s> Pages<'s> {
    pub(super) fn new(database: Database, show: &'s mut Show<'s>, most: u64) -> Self {
        Self { database, show, left: most }
    }

    fn page(&mut self, number: u32) -> io::Result<(Vec<u8>, u64)> {
        let size = u64::from(self.database.page);
        let at = u64::from(number).checked_sub(1).and_then(|before| before.checked_mul(size));
        let at = at.filter(|at| *at < self.database.length);
        let at = at.ok_or_else(|| damaged(format!("page {number} lies behind the end of the file")))?;
        self.left = self.left.checked_sub(1).ok_or_else(|| damaged("its tables have more pages than the file"))?;
        let mut bytes = (self.show)(at, size as usize)?;
        if (bytes.len() as u64) < size {
            return Err(damaged(format!("page {number} is cut")));
        }
        bytes.truncate(self.database.used as usize);
        Ok((bytes, at))
    }

    /// What is in a list of pages that begins at page `first`: so many bytes.
    pub(super) fn listed(&mut self, first: u32, length: usize) -> io::Result<Vec<u8>> {
        let (mut bytes, mut next) = (Vec::new(), first);
        while bytes.len() < length {
            let (page, at) = self.page(next)?;
            next = u32_at(&page, 0).filter(|_| at > 0).ok_or_else(|| damaged("a row goes on nowhere"))?;
            let rest = page.get(4..).unwrap_or_default();
            bytes.extend_from_slice(rest.get(..length.saturating_sub(bytes.len())).unwrap_or(rest));
        }
        Ok(bytes)
    }

    /// Hands each row of the table whose tree begins at page `root` to `take`, with the page that it lies in; pages
    /// that cannot be read go to `lost`.
    pub(super) fn rows<E: From<io::Error>>(
        &mut self,
        root: u32,
        cancel: &Cancel,
        take: &mut Take<'_, E>,
        lost: &mut dyn FnMut(u64, io::Error) -> Result<(), E>,
    ) -> Result<(), E> {
        // Pages that are still to be read, the next one last, each with its level.
        let mut open = vec![(root, 0_usize)];
        while let Some((number, level)) = open.pop() {
            cancel.check()?;
            let place = u64::from(number.saturating_sub(1)).saturating_mul(self.database.page.into());
            let (page, at) = match self.page(number) {
                Ok(page) => page,
                Err(error) if !crate::image::is_damage(&error) => return Err(error.into()),
                // What is left would be read in vain.
                Err(error) if self.left == 0 => return lost(place.min(self.database.length), error),
                Err(error) => {
                    lost(place.min(self.database.length), error)?;
                    continue;
                }
            };
            let start = if number == 1 { HEADER } else { 0 };
            let count = u16_at(&page, start.saturating_add(3)).unwrap_or_default();
            let (is_leaf, cells) = match page.get(start) {
                Some(13) => (true, start.saturating_add(8)),
                Some(5) => (false, start.saturating_add(12)),
                Some(2 | 10) if level == 0 => {
                    return lost(at, damaged("its table has no numbers of rows (WITHOUT ROWID)"));
                }
                _ => {
                    lost(at, damaged(format!("page {number} is none of a table")))?;
                    continue;
                }
            };
            let places = (0..usize::from(count))
                .map(|cell| u16_at(&page, cells.saturating_add(cell.saturating_mul(2))).map(usize::from));
            if is_leaf {
                let mut known = 0_usize;
                for place in places {
                    let cell = place.and_then(|place| self.cell(&page, place, at));
                    // Any number of rows could share the same bytes: each has its own, with the page it goes on in.
                    known = known.saturating_add(cell.map_or(4, |cell| {
                        let head = cell.at.saturating_sub(cell.header) as usize;
                        head.saturating_add(cell.local as usize).saturating_add(cell.next.map_or(0, |_| 4))
                    }));
                    match cell {
                        Some(_) if known > page.len() => {
                            lost(at, damaged(format!("rows of page {number} overlap")))?;
                            break;
                        }
                        Some(cell) => take(cell, &page, at)?,
                        None => lost(at, damaged(format!("a row of page {number} lies behind its end")))?,
                    }
                }
                continue;
            }
            if level >= DEEPEST {
                return lost(at, damaged("its tree has too many levels"));
            }
            let below = places.map(|place| u32_at(&page, place?));
            let last = u32_at(&page, start.saturating_add(8));
            let mut below: Vec<Option<u32>> = below.chain([last]).collect();
            below.reverse();
            open.extend(below.into_iter().flatten().map(|page| (page, level.saturating_add(1))));
            // Each of them is one more that has to be there.
            if open.len() as u64 > self.left {
                return lost(at, damaged("its tables have more pages than the file"));
            }
        }
        Ok(())
    }

    /// The row that begins at `place` of a leaf.
    fn cell(&self, page: &[u8], place: usize, at: u64) -> Option<Cell> {
        let bytes = page.get(place..)?;
        let (length, first) = varint(bytes)?;
        let (_, second) = varint(bytes.get(first..)?)?;
        let head = first.saturating_add(second);
        let start = place.saturating_add(head);
        // <https://www.sqlite.org/fileformat2.html#b_tree_pages>: how much of a row stays in its page.
        let used = u64::from(self.database.used);
        let most = used.saturating_sub(35);
        let least = used.saturating_sub(12).saturating_mul(32).checked_div(255)?.saturating_sub(23);
        let local = if length <= most {
            length
        } else {
            let rest = length.saturating_sub(least).checked_rem(used.saturating_sub(4))?;
            Some(least.saturating_add(rest)).filter(|local| *local <= most).unwrap_or(least)
        };
        let end = start.checked_add(usize::try_from(local).ok()?)?;
        page.get(start..end)?;
        let next = if local < length { Some(u32_at(page, end).filter(|page| *page > 0)?) } else { None };
        let of_file = |place: usize| at.saturating_add(place as u64);
        Some(Cell { header: of_file(place), at: of_file(start), local: local as u32, length, next })
    }
}
