//! Where objects are: tables and streams of references, from the last one on, or what is found by looking for it.

use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::document::Document;
use super::object::{Dict, Object, Parser};
use super::places::Place;
use crate::image::{damaged, is_damage};

/// Bytes at the end in which the last table is named.
const TAIL: u64 = 2048;

/// Tables, one for each change of a document.
const MOST_TABLES: usize = 4096;

/// Bytes of a table that are looked at together, and of its longest line.
const TOGETHER: usize = 64 << 10;
const LONGEST_LINE: usize = 64;

/// Bytes that are searched together for objects, and as many in which what an object begins with is looked at.
const SEARCHED: usize = 256 << 10;
const LOOKED_AT: usize = 512;

/// Bytes before the word "obj" in which its number is looked for, and one more before that.
const BEFORE: usize = 32;

/// Streams with objects that are opened where there is no table.
const MOST_STREAMS: usize = 1 << 16;

impl Document<'_> {
    /// Reads all tables, or looks for objects where they lead nowhere.
    pub(super) fn find_objects(&mut self) -> io::Result<()> {
        match self.tables().and_then(|()| self.has_root()) {
            Ok(true) => Ok(()),
            Ok(false) => self.rebuild(),
            Err(error) if is_damage(&error) => self.rebuild(),
            Err(error) => Err(error),
        }
    }

    fn has_root(&mut self) -> io::Result<bool> {
        // The root may lie in a stream that is encrypted. What says how it is never does: it is found, or the tables
        // are wrong.
        let said = self.trailer.get("Encrypt").cloned().unwrap_or(Object::Null);
        if said != Object::Null && self.resolve(&said)?.dict().is_none() {
            return Ok(false);
        }
        self.set_encryption()?;
        let root = self.trailer.get("Root").cloned().unwrap_or(Object::Null);
        let root = self.resolve(&root)?;
        Ok(root.dict().is_some_and(|root| root.get("Pages").is_some()))
    }

    fn tables(&mut self) -> io::Result<()> {
        let end = self.length();
        let from = end.saturating_sub(TAIL);
        let tail = self.bytes(from, TAIL as usize)?;
        let place = memchr::memmem::rfind(&tail, b"startxref").ok_or_else(|| damaged("it names no table"))?;
        let mut parser = Parser::new(tail.get(place.saturating_add(9)..).unwrap_or_default());
        let first = parser.object().and_then(|object| object.unsigned());
        let mut next = Some(first.ok_or_else(|| damaged("it names no table"))?);
        let mut seen = HashSet::new();
        while let Some(at) = next {
            if !seen.insert(at) || seen.len() > MOST_TABLES {
                return Err(damaged("its tables lead to each other"));
            }
            self.table = self.table.saturating_add(1);
            let dict = self.read_table(self.start.saturating_add(at))?;
            // What is hidden from old programs.
            if let Some(at) = dict.get("XRefStm").and_then(Object::unsigned)
                && seen.insert(at)
            {
                self.read_table(self.start.saturating_add(at))?;
            }
            next = dict.get("Prev").and_then(Object::unsigned);
            if self.trailer.0.is_empty() {
                self.trailer = dict;
            }
        }
        Ok(())
    }

    /// Takes the table at that byte; returns what stands behind it.
    fn read_table(&mut self, at: u64) -> io::Result<Dict> {
        let head = self.bytes(at, LONGEST_LINE)?;
        let blanks = head.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let is_plain = head.get(blanks..).is_some_and(|head| head.starts_with(b"xref"));
        if is_plain {
            self.plain_table(at.saturating_add(blanks as u64).saturating_add(4))
        } else {
            self.coded_table(at)
        }
    }

    fn plain_table(&mut self, mut at: u64) -> io::Result<Dict> {
        // The number of the next object, and how many of them follow.
        let (mut number, mut left) = (0_u64, 0_u64);
        loop {
            self.cancel()?;
            let bytes = self.bytes(at, TOGETHER)?;
            let is_end = bytes.len() < TOGETHER;
            let mut parser = Parser::of_content(&bytes);
            loop {
                let before = parser.at();
                if !is_end && bytes.len().saturating_sub(before) < LONGEST_LINE {
                    break;
                }
                let wrong = || damaged("its table of objects is damaged");
                let first = parser.object().ok_or_else(wrong)?;
                if first.is_word(b"trailer") {
                    let behind = at.saturating_add(parser.at() as u64);
                    let object = self.object_behind(behind)?;
                    return object
                        .dict()
                        .cloned()
                        .ok_or_else(|| damaged("no dictionary is behind its table of objects"));
                }
                let (first, second) = (first.unsigned(), parser.object().and_then(|object| object.unsigned()));
                let (first, second) = first.zip(second).ok_or_else(wrong)?;
                if left == 0 {
                    (number, left) = (first, second);
                    continue;
                }
                match parser.object().ok_or_else(wrong)? {
                    Object::Word(word) if word == b"n" => {
                        self.place(number, Place::At(self.start.saturating_add(first)))?;
                    }
                    Object::Word(word) if word == b"f" => self.place(number, Place::Free(self.table))?,
                    _ => return Err(wrong()),
                }
                (number, left) = (number.saturating_add(1), left.saturating_sub(1));
            }
            let passed = parser.at() as u64;
            if passed == 0 {
                return Err(damaged("its table of objects is damaged"));
            }
            at = at.saturating_add(passed);
        }
    }

    fn coded_table(&mut self, at: u64) -> io::Result<Dict> {
        let wrong = || damaged("its stream of references is damaged");
        let found = self.object_at(at)?.ok_or_else(wrong)?;
        let dict = found.object.dict().cloned().ok_or_else(wrong)?;
        if dict.get("Type").and_then(Object::name) != Some(b"XRef") {
            return Err(wrong());
        }
        let stream = self.stream_of(&found)?.ok_or_else(wrong)?;
        let widths: Vec<usize> = dict
            .get("W")
            .and_then(Object::array)
            .into_iter()
            .flatten()
            .filter_map(|width| usize::try_from(width.integer()?).ok())
            .collect();
        let [kinds, firsts, seconds] = widths.try_into().map_err(|_| wrong())?;
        let row = kinds.saturating_add(firsts).saturating_add(seconds);
        // Rows of no bytes would never end.
        if row == 0 || [kinds, firsts, seconds].iter().any(|width| *width > 8) {
            return Err(wrong());
        }
        let whole = [0, dict.get("Size").and_then(Object::unsigned).unwrap_or(0)];
        let told = dict
            .get("Index")
            .and_then(Object::array)
            .map(|index| index.iter().map(|number| number.unsigned().unwrap_or(0)).collect::<Vec<_>>());
        let index = told.unwrap_or_else(|| whole.to_vec());
        let mut rows = Rows {
            widths: [kinds, firsts, seconds],
            length: row,
            ranges: index.as_chunks::<2>().0.iter(),
            number: 0,
            left: 0,
            row: Vec::new(),
        };
        self.each_plainly(&stream, &mut |document, part| rows.take(document, part))?;
        Ok(dict)
    }

    /// Looks for all objects, from the start to the end: the last one of each number counts.
    fn rebuild(&mut self) -> io::Result<()> {
        self.forget();
        let (mut at, end) = (self.start, self.length());
        let (mut streams, mut tables, mut catalog) = (HashMap::new(), Vec::new(), None);
        while at < end {
            self.cancel()?;
            // A number may stand before the border that its word is behind.
            let from = at.saturating_sub(BEFORE as u64).max(self.start);
            let bytes = self.bytes(from, SEARCHED)?;
            let first = usize::try_from(at.saturating_sub(from)).unwrap_or(0);
            // What lies at the end of it is looked at with what follows.
            let is_last = bytes.len() < SEARCHED;
            let most = if is_last { bytes.len() } else { bytes.len().saturating_sub(LOOKED_AT) };
            for place in places_of(b"obj", &bytes, first..most) {
                let before = bytes.get(place.saturating_sub(BEFORE)..place).unwrap_or_default();
                let Some((number, length)) = number_before(before) else { continue };
                let start = from.saturating_add(place.saturating_sub(length) as u64);
                self.replace(number, Place::At(start))?;
                let head = bytes.get(place..).unwrap_or_default();
                let head = head.get(..LOOKED_AT.min(head.len())).unwrap_or_default();
                let head = memchr::memmem::find(head, b"endobj").and_then(|end| head.get(..end)).unwrap_or(head);
                // The last one of that number is meant, and opened once.
                if memchr::memmem::find(head, b"/ObjStm").is_some()
                    && (streams.len() < MOST_STREAMS || streams.contains_key(&number))
                {
                    streams.insert(number, start);
                }
                if memchr::memmem::find(head, b"/XRef").is_some() && tables.len() < MOST_TABLES {
                    tables.push(start);
                }
                if memchr::memmem::find(head, b"/Catalog").is_some() {
                    catalog = Some(number);
                }
            }
            for place in places_of(b"trailer", &bytes, first..most) {
                let behind = from.saturating_add(place as u64).saturating_add(7);
                if tables.len() < MOST_TABLES {
                    tables.push(behind);
                }
            }
            at = from.saturating_add(most.max(first.saturating_add(1)) as u64);
        }
        for at in tables {
            let found = match self.object_at(at)? {
                Some(found) => found.object,
                None => self.object_behind(at)?,
            };
            if let Some(dict) = found.dict().filter(|dict| dict.get("Root").is_some()) {
                self.trailer = dict.clone();
            }
        }
        if self.trailer.0.is_empty()
            && let Some(number) = catalog
        {
            self.trailer = Dict(Arc::new(vec![(b"Root".to_vec(), Object::Reference(number, 0))]));
        }
        self.set_encryption()?;
        // The last one of each number counts here, too.
        let mut streams: Vec<(u32, u64)> = streams.into_iter().collect();
        streams.sort_unstable_by_key(|(_, at)| std::cmp::Reverse(*at));
        for (number, at) in streams {
            let numbers = match self.numbers_in(number) {
                Ok(numbers) => numbers,
                Err(error) if is_damage(&error) => continue,
                Err(error) => return Err(error),
            };
            for (index, inner) in numbers.into_iter().enumerate() {
                // One that stands by itself may be older, and this one what an update has made of it.
                let is_newer = match self.places.get(inner) {
                    None | Some(Place::Free(_)) => true,
                    Some(Place::At(other)) => other < at,
                    Some(Place::In(..)) => false,
                };
                if is_newer {
                    self.replace(inner, Place::In(number, u32::try_from(index).unwrap_or(u32::MAX)))?;
                }
            }
        }
        Ok(())
    }
}

/// Where `word` begins in that range of `bytes`; it may end behind it.
fn places_of(word: &'static [u8], bytes: &[u8], Range { start, end }: Range<usize>) -> impl Iterator<Item = usize> {
    let end = end.saturating_add(word.len().saturating_sub(1)).min(bytes.len());
    let found = memchr::memmem::find_iter(bytes.get(start..end).unwrap_or_default(), word);
    found.map(move |place| place.saturating_add(start))
}

/// The rows of a stream of references, as they come out of it: it may be far longer than what is worth keeping.
struct Rows<'i> {
    /// Bytes of each field of a row, and of the row.
    widths: [usize; 3],
    length: usize,
    /// The first number and the number of rows of what is still to come.
    ranges: std::slice::Iter<'i, [u64; 2]>,
    /// The number of the next row, and how many rows follow with those behind it.
    number: u64,
    left: u64,
    /// What has come of a row.
    row: Vec<u8>,
}

impl Rows<'_> {
    /// Takes what comes next. Some streams are shorter than they say, and some end within a row.
    fn take(&mut self, document: &mut Document<'_>, mut part: &[u8]) -> io::Result<()> {
        let count = part.len().checked_div(self.length).unwrap_or(0);
        document.spend(count.saturating_add(1) as u64)?;
        while let Some((bytes, behind)) = part.split_at_checked(self.length.saturating_sub(self.row.len())) {
            self.row.extend_from_slice(bytes);
            part = behind;
            self.place(document)?;
            self.row.clear();
        }
        self.row.extend_from_slice(part);
        Ok(())
    }

    /// Takes the row that has come.
    fn place(&mut self, document: &mut Document<'_>) -> io::Result<()> {
        while self.left == 0 {
            let Some([first, count]) = self.ranges.next() else { return Ok(()) };
            document.spend(1)?;
            (self.number, self.left) = (*first, *count);
        }
        let number = self.number;
        self.number = number.saturating_add(1);
        self.left = self.left.saturating_sub(1);
        let mut rest = self.row.as_slice();
        let [kind, first, second] = self.widths.map(|width| {
            let (bytes, behind) = rest.split_at_checked(width).unwrap_or_default();
            rest = behind;
            bytes.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
        });
        let kind = if self.widths.first() == Some(&0) { 1 } else { kind };
        let place = match kind {
            0 => Place::Free(document.table),
            1 => Place::At(document.start.saturating_add(first)),
            2 => match (u32::try_from(first), u32::try_from(second)) {
                (Ok(stream), Ok(index)) => Place::In(stream, index),
                _ => return Ok(()),
            },
            _ => return Ok(()),
        };
        document.place(number, place)
    }
}

/// The number of the object that begins with "12 0 " at the end of `bytes`, and how long that is. What the first of
/// `bytes` belongs to is not known: it may be a digit of a longer number.
fn number_before(bytes: &[u8]) -> Option<(u32, usize)> {
    let trimmed = bytes.trim_ascii_end();
    let digits = |bytes: &[u8]| bytes.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let generation = digits(trimmed);
    let rest = trimmed.get(..trimmed.len().checked_sub(generation)?)?;
    let before = rest.trim_ascii_end();
    let number = digits(before);
    if generation == 0 || number == 0 || before.len() == rest.len() {
        return None;
    }
    let start = before.len().checked_sub(number).filter(|start| *start > 0)?;
    let number = std::str::from_utf8(before.get(start..)?).ok()?.parse().ok()?;
    Some((number, bytes.len().saturating_sub(start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_before_objects() {
        assert_eq!(number_before(b"endobj\n12 0 "), Some((12, 5)));
        assert_eq!(number_before(b">7  1"), Some((7, 4)));
        for bytes in [&b"end"[..], b"7  1", b"0 ", b"12", b"x 0 ", b"99999999999 0 "] {
            assert_eq!(number_before(bytes), None, "{bytes:?}");
        }
    }
}
