//! Values that many entries share, numbered: each is kept once, as long as there are not too many of them.

use std::collections::HashMap;
use std::io;

use crate::Error;

use super::spool::Spool;

/// Distinct values that are remembered: the first ones, so their numbers go up to this. Real archives have a few hundred; in one made to have more, later ones are merely stored twice.
pub(super) const MOST_KNOWN: usize = 100_000;
/// Bytes of values kept in memory before they go to a temporary file.
const ROOM: usize = 1 << 20;

/// Takes a value and its number.
type Receive<'r> = dyn FnMut(u32, &[u8]) -> Result<(), Error> + 'r;

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

    /// Hands each value and its number to `receive`: first those that are remembered, in the order of their `places`, then the others as they came.
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

    /// How many values there are, also the last one's number.
    pub(super) fn count(&self) -> u32 {
        self.count
    }
}
