//! Values that many entries share, numbered: each is kept once, as long as there are not too many of them.

use std::collections::HashMap;
use std::io;

use crate::Error;

use super::spool::{Overflow, Spool};

/// Distinct values that are remembered, and bytes of them: the first ones, so their numbers go up to how many these
/// are. Real archives have a few hundred; in one made to have more, later ones are merely stored twice.
const MOST_KNOWN: usize = 100_000;
const MOST_BYTES: usize = 16 << 20;
/// Bytes of values kept in memory before they go to a temporary file.
const ROOM: usize = 1 << 20;

/// Takes a value and its number.
type Receive<'r> = dyn FnMut(u32, &[u8]) -> Result<(), Error> + 'r;

/// Numbers values from 1 on, in the order in which they were first met.
#[derive(Debug)]
pub(super) struct Interner {
    known: HashMap<Box<[u8]>, u32>,
    /// Bytes of values that may still be remembered; `None` once one was not, so that no later one is.
    room: Option<usize>,
    last: (Vec<u8>, u32),
    values: Spool,
    count: u32,
}

impl Interner {
    /// None yet. What is too much for its memory goes to `overflow`.
    pub(super) fn new(overflow: &Overflow) -> Self {
        Self {
            known: HashMap::new(),
            room: Some(MOST_BYTES),
            last: (Vec::new(), 0),
            values: Spool::new(ROOM, overflow),
            count: 0,
        }
    }

    /// The number of `value`.
    pub(super) fn number(&mut self, value: &[u8]) -> io::Result<u32> {
        if self.last.1 != 0 && self.last.0 == value {
            return Ok(self.last.1);
        }
        let number = match self.known.get(value) {
            Some(number) => *number,
            None => self.add(value)?,
        };
        self.last.0.clear();
        self.last.0.extend_from_slice(value);
        self.last.1 = number;
        Ok(number)
    }

    fn add(&mut self, value: &[u8]) -> io::Result<u32> {
        self.count = self.count.saturating_add(1);
        self.values.write(&(value.len() as u32).saturating_add(4).to_le_bytes())?;
        self.values.write(value)?;
        self.room = self.room.and_then(|room| room.checked_sub(value.len())).filter(|_| self.known.len() < MOST_KNOWN);
        if self.room.is_some() {
            self.known.insert(value.into(), self.count);
        }
        Ok(self.count)
    }

    /// True of the number of a value that is remembered.
    pub(super) fn remembers(&self, number: u32) -> bool {
        (number as usize) <= self.known.len()
    }

    /// The values that are remembered, number 1 first.
    pub(super) fn known(&self) -> Vec<&[u8]> {
        let mut known = vec![&b""[..]; self.known.len()];
        for (value, number) in &self.known {
            if let Some(place) = known.get_mut((*number as usize).wrapping_sub(1)) {
                *place = value;
            }
        }
        known
    }

    /// Hands each value and its number to `receive`: first those that are remembered, in the order of their `places`,
    /// then the others as they came.
    pub(super) fn each_in_order(&self, places: &[u32], receive: &mut Receive<'_>) -> Result<(), Error> {
        let known = self.known();
        let mut order: Vec<u32> = (0..known.len() as u32).collect();
        order.sort_unstable_by_key(|&at| places.get(at as usize).copied());
        for at in order {
            receive(at.saturating_add(1), known.get(at as usize).copied().unwrap_or_default())?;
        }
        let mut values = self.values.reader();
        let (mut value, mut number) = (Vec::new(), 0_usize);
        while self.count as usize > known.len() && values.record(&mut value)? {
            number = number.saturating_add(1);
            if number > known.len() {
                receive(number as u32, value.get(4..).unwrap_or_default())?;
            }
        }
        Ok(())
    }

    /// Bytes of all values.
    pub(super) fn bytes(&self) -> u64 {
        self.values.len()
    }

    /// How many values there are, also the last one's number.
    pub(super) fn count(&self) -> u32 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarnfs_source::Budget;

    /// Those that are remembered are the first ones, whatever comes later, and all are there in the end.
    #[test]
    fn what_is_remembered_is_bounded_in_bytes() {
        let mut interner = Interner::new(&Overflow::on_disk(&Budget::new(0)));
        let value = |number: u32| {
            let length = if number == 20 { MOST_BYTES } else { 1 << 20 };
            let mut value = vec![0; length];
            value[..4].copy_from_slice(&number.to_le_bytes());
            value
        };
        // The large one does not fit any more; the ones behind it would.
        let numbers: Vec<u32> = [1, 2, 3, 20, 4, 5, 1, 4].map(|number| interner.number(&value(number)).unwrap()).into();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 1, 7]);
        assert_eq!((interner.known().len(), interner.remembers(3), interner.remembers(4)), (3, true, false));
        let mut told = Vec::new();
        let mut tell = |number: u32, value: &[u8]| {
            told.push((number, value[0], value.len()));
            Ok(())
        };
        interner.each_in_order(&[3, 1, 2], &mut tell).unwrap();
        let (small, large) = (1 << 20, MOST_BYTES);
        let expected =
            [(2, 2, small), (3, 3, small), (1, 1, small), (4, 20, large), (5, 4, small), (6, 5, small), (7, 4, small)];
        assert_eq!(told, expected);
    }
}
