//! What many entries share, in rows of their own (the table `classes`).
//!
//! While entries are added, classes are numbered as they come. At the end they get their places: the more frequent a
//! class, the smaller its number, since the number is in each row. Whether hard links may be names of an entry is only
//! known then, so each class has a second place for those; it is written if an entry needs it.

use std::cmp::Reverse;

use rusqlite::Connection;
use tarnfs_format::{Entry, Kind};

use crate::own::schema;
use crate::sqlite::{failed, prepare};
use crate::{Error, OVERFLOWN_OWNER};

use super::interner::Interner;
use super::record::{more, read_number, write_number};
use super::spool::Overflow;

/// The class of folders that no entry names.
pub(super) const IMPLIED_CLASS: u32 = 0;

/// Numbers from 1 on for what stands in `order`: of each, by where it stood before.
pub(super) fn places(order: impl ExactSizeIterator<Item = u32>) -> Vec<u32> {
    let mut places = vec![0; order.len()];
    for (place, at) in (1..).zip(order) {
        if let Some(slot) = places.get_mut(at as usize) {
            *slot = place;
        }
    }
    places
}

/// All classes.
#[derive(Debug)]
pub(super) struct Classes {
    values: Interner,
    /// How often each of the numbers that the interner remembers was used; the first one is number 1.
    uses: Vec<u32>,
    /// Of each of these its place. Others keep their numbers.
    places: Vec<u32>,
    /// One bit for each number: whether its second place is used.
    shared: Vec<u64>,
    /// Used again for each entry.
    key: Vec<u8>,
}

impl Classes {
    /// None yet. What is too much for its memory goes to `overflow`.
    pub(super) fn new(overflow: &Overflow) -> Self {
        let values = Interner::new(overflow);
        Self { values, uses: Vec::new(), places: Vec::new(), shared: Vec::new(), key: Vec::new() }
    }

    /// Bytes of all classes.
    pub(super) fn bytes(&self) -> u64 {
        self.values.bytes()
    }

    /// The number of the entry's class; `bits` are those of `more`, its content lies in `stream`.
    pub(super) fn number(&mut self, entry: &Entry, bits: u16, stream: u32) -> Result<u32, Error> {
        let key = &mut self.key;
        key.clear();
        let number = |number: u64| u32::try_from(number).unwrap_or(OVERFLOWN_OWNER);
        write_number(key, u64::from(schema::type_of(entry.kind)));
        write_number(key, u64::from(entry.mode & 0o7777));
        write_number(key, u64::from(number(entry.uid)));
        write_number(key, u64::from(number(entry.gid)));
        // Pieces say themselves where they are.
        let body = if entry.body.pieces.is_some() { 0 } else { entry.body.offset.saturating_sub(entry.header) };
        write_number(key, body);
        write_number(key, u64::from(bits));
        write_number(key, u64::from(stream));
        write_number(key, entry.user.len() as u64);
        key.extend_from_slice(&entry.user);
        key.extend_from_slice(&entry.group);
        let number = self.values.number(key)?;
        let at = (number as usize).wrapping_sub(1);
        if self.values.remembers(number) {
            if at >= self.uses.len() {
                self.uses.resize(at.saturating_add(1), 0);
            }
            if let Some(uses) = self.uses.get_mut(at) {
                *uses = uses.saturating_add(1);
            }
        }
        Ok(number)
    }

    /// Finds the places. Of equally frequent classes the bytes decide, not how they came: an archive that grew has the
    /// same places as one that was read anew.
    pub(super) fn arrange(&mut self) {
        let known = self.values.known();
        let value = |at: u32| known.get(at as usize).copied().unwrap_or_default();
        let mut order: Vec<(Reverse<u32>, u32)> =
            self.uses.iter().zip(0..).map(|(&uses, at)| (Reverse(uses), at)).collect();
        order.sort_unstable_by_key(|&(uses, at)| (uses, value(at), at));
        self.places = places(order.into_iter().map(|(_, at)| at));
        self.shared.clear();
    }

    fn first_place(&self, number: u32) -> u32 {
        let at = (number as usize).wrapping_sub(1);
        self.places.get(at).copied().unwrap_or(number)
    }

    /// Second places are behind all first ones.
    fn second_place(&self, number: u32) -> u32 {
        self.first_place(number).saturating_add(self.values.count())
    }

    /// What is written for an entry of class `number`, also if hard links may be names of it (`may_be_shared`).
    pub(super) fn place(&mut self, number: u32, may_be_shared: bool) -> u32 {
        if !may_be_shared {
            return self.first_place(number);
        }
        let word = number as usize / 64;
        if word >= self.shared.len() {
            self.shared.resize(word.saturating_add(1), 0);
        }
        if let Some(word) = self.shared.get_mut(word) {
            *word |= 1 << (number % 64);
        }
        self.second_place(number)
    }

    fn is_shared(&self, number: u32) -> bool {
        self.shared.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 != 0)
    }

    /// Writes the table.
    pub(super) fn write(&self, connection: &Connection) -> Result<(), Error> {
        let mut insert = prepare(connection, "INSERT INTO classes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
        let folder = schema::type_of(Kind::Folder);
        let nobody: &[u8] = b"";
        insert.execute((IMPLIED_CLASS, folder, 0o755, 0, 0, nobody, nobody, 0, 0, 0)).map_err(failed)?;
        let mut write = |place: u32, value: &[u8], added: u16| {
            let mut rest = value;
            let mut next = || i64::try_from(read_number(&mut rest)).unwrap_or(i64::MAX);
            let (kind, mode, uid, gid, body, bits) = (next(), next(), next(), next(), next(), next());
            let (stream, user) = (next(), next());
            let user = rest.split_off(..user as usize).unwrap_or_default();
            let bits = bits | i64::from(added);
            insert.execute((place, kind, mode, uid, gid, user, rest, body, bits, stream)).map_err(failed)
        };
        self.values
            .each_in_order(&self.places, &mut |number, value| write(self.first_place(number), value, 0).map(drop))?;
        self.values.each_in_order(&self.places, &mut |number, value| {
            if self.is_shared(number) {
                write(self.second_place(number), value, more::LINK_COUNT)?;
            }
            Ok(())
        })?;
        Ok(())
    }
}
