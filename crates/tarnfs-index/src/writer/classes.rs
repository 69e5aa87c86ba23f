//! What many entries share, in rows of their own (the table `classes`).
//!
//! While entries are added, classes are numbered as they come. At the end they get their places: the more frequent a class, the smaller its
//! number, since the number is in each row. Whether hard links may be names of an entry is only known then, so each class has
//! a second place for those; it is written if an entry needs it.

use std::cmp::Reverse;

use rusqlite::Connection;
use tarnfs_format::{Entry, Kind};

use crate::Error;
use crate::own::schema;
use crate::sqlite::{failed, prepare};

use super::interner::{Interner, MOST_KNOWN};
use super::record::{bits_of, more, read_number, write_number};

/// The class of folders that no entry names.
pub(super) const IMPLIED_CLASS: u32 = 0;

/// What Linux shows for an owner whose number does not fit in 32 bits.
const OVERFLOWN: u32 = 65_534;

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
    pub(super) fn new() -> Self {
        Self { values: Interner::new(), uses: Vec::new(), places: Vec::new(), shared: Vec::new(), key: Vec::new() }
    }

    /// The number of the entry's class.
    pub(super) fn number(&mut self, entry: &Entry) -> Result<u32, Error> {
        let key = &mut self.key;
        key.clear();
        let number = |number: u64| u32::try_from(number).unwrap_or(OVERFLOWN);
        write_number(key, u64::from(schema::type_of(entry.kind)));
        write_number(key, u64::from(entry.mode & 0o7777));
        write_number(key, u64::from(number(entry.uid)));
        write_number(key, u64::from(number(entry.gid)));
        write_number(key, entry.body.offset.saturating_sub(entry.header));
        write_number(key, u64::from(bits_of(entry)));
        write_number(key, entry.user.len() as u64);
        key.extend_from_slice(&entry.user);
        key.extend_from_slice(&entry.group);
        let number = self.values.number(key)?;
        let at = (number as usize).wrapping_sub(1);
        if at < MOST_KNOWN {
            if at >= self.uses.len() {
                self.uses.resize(at.saturating_add(1), 0);
            }
            if let Some(uses) = self.uses.get_mut(at) {
                *uses = uses.saturating_add(1);
            }
        }
        Ok(number)
    }

    /// Finds the places. Equally frequent classes go as they came, so the same archive always has the same places.
    pub(super) fn arrange(&mut self) {
        let mut order: Vec<(Reverse<u32>, u32)> =
            self.uses.iter().zip(0..).map(|(&uses, at)| (Reverse(uses), at)).collect();
        order.sort_unstable();
        self.places = vec![0; order.len()];
        for (place, (_, at)) in (1..).zip(order) {
            if let Some(slot) = self.places.get_mut(at as usize) {
                *slot = place;
            }
        }
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
        let mut insert = prepare(connection, "INSERT INTO classes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
        let folder = schema::type_of(Kind::Folder);
        let nobody: &[u8] = b"";
        insert.execute((IMPLIED_CLASS, folder, 0o755, 0, 0, nobody, nobody, 0, 0)).map_err(failed)?;
        let mut values = self.values.values();
        let mut value = Vec::new();
        let mut number = 0_u32;
        while values.record(&mut value)? {
            number = number.saturating_add(1);
            let mut rest = value.get(4..).unwrap_or_default();
            let mut next = || i64::try_from(read_number(&mut rest)).unwrap_or(i64::MAX);
            let (kind, mode, uid, gid, body, bits, user) = (next(), next(), next(), next(), next(), next(), next());
            let user = rest.split_off(..user as usize).unwrap_or_default();
            let mut write = |place: u32, bits: i64| {
                insert.execute((place, kind, mode, uid, gid, user, rest, body, bits)).map_err(failed)
            };
            write(self.first_place(number), bits)?;
            if self.is_shared(number) {
                write(self.second_place(number), bits | i64::from(more::LINK_COUNT))?;
            }
        }
        Ok(())
    }
}
