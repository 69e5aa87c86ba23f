//! Values that many entries share, numbered: each is kept once, as long as there are not too many of them.

use std::collections::HashMap;
use std::io;

use super::spool::{Reader, Spool};

/// Distinct values that are remembered: the first ones, so their numbers go up to this. Real archives have a few hundred; in one made to have more, later ones are merely stored twice.
pub(super) const MOST_KNOWN: usize = 100_000;
/// Bytes of values kept in memory before they go to a temporary file.
const ROOM: usize = 1 << 20;

/// Numbers values from 1 on, in the order in which they were first met.
#[derive(Debug)]
pub(super) struct Interner {
    known: HashMap<Box<[u8]>, u32>,
    last: (Vec<u8>, u32),
    values: Spool,
    count: u32,
}

impl Interner {
    pub(super) fn new() -> Self {
        Self { known: HashMap::new(), last: (Vec::new(), 0), values: Spool::in_memory(ROOM), count: 0 }
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
        if self.known.len() < MOST_KNOWN {
            self.known.insert(value.into(), self.count);
        }
        Ok(self.count)
    }

    /// How many values there are, also the last one's number.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// All values in the order of their numbers, each behind four bytes.
    pub(super) fn values(&self) -> Reader<'_> {
        self.values.reader()
    }
}
