//! lh1: a code of literals and lengths that changes with each symbol, and a fixed one of distances (Haruyasu
//! Yoshizaki's LZHUF).

use std::io;

use super::bits::Bits;
use super::{Outcome, Symbol};
use crate::coders::prefix::Prefix;

/// Symbols: literals, and matches of 3 to 60 bytes.
const SYMBOLS: usize = 314;
const LITERALS: usize = 256;
const SHORTEST: usize = 3;

/// Nodes of the tree; the last one is its root.
const NODES: usize = SYMBOLS * 2 - 1;
const ROOT: usize = NODES - 1;

/// How often the root was passed when all counts are halved.
const MOST: u16 = 0x8000;

/// Slots of distances, each of 64; and how many of them have codes of 3, 4, ..., 8 bits.
const SLOTS: [u8; 6] = [1, 3, 8, 12, 24, 16];
const LOW_BITS: u32 = 6;

pub(super) struct Learning {
    /// How often each node was passed, in ascending order.
    counts: [u16; NODES + 1],
    /// The first one of the two nodes below each, or [`NODES`] and the symbol of a leaf.
    below: [u16; NODES],
    /// The node above each, and above the leaf of each symbol (from [`NODES`] on).
    above: [u16; NODES + SYMBOLS],
    distances: Prefix,
}

impl Learning {
    pub(super) fn new() -> Self {
        let mut distances = Prefix::new();
        let lengths: Vec<u8> =
            SLOTS.iter().zip(3..).flat_map(|(&count, length)| vec![length; usize::from(count)]).collect();
        distances.set(&lengths);
        let mut learning = Self { counts: [0; NODES + 1], below: [0; NODES], above: [0; NODES + SYMBOLS], distances };
        for symbol in 0..SYMBOLS {
            learning.counts[symbol] = 1;
            learning.below[symbol] = (symbol + NODES) as u16;
            learning.above[symbol + NODES] = symbol as u16;
        }
        for (node, first) in (SYMBOLS..NODES).zip((0..).step_by(2)) {
            learning.counts[node] = learning.counts[first] + learning.counts[first + 1];
            learning.join(node, first);
        }
        // No count is larger.
        learning.counts[NODES] = u16::MAX;
        learning.above[ROOT] = 0;
        learning
    }

    /// Puts `node` above what begins at `first`.
    fn join(&mut self, node: usize, first: usize) {
        self.below[node] = first as u16;
        self.above[first] = node as u16;
        if first < NODES {
            self.above[first + 1] = node as u16;
        }
    }

    pub(super) fn next(&mut self, bits: &mut Bits) -> io::Result<Outcome<Symbol>> {
        let mut node = usize::from(self.below[ROOT]);
        while node < NODES {
            let next = node + bits.take(1)?;
            node = usize::from(self.below[next]);
        }
        let symbol = node - NODES;
        self.count(symbol);
        if symbol < LITERALS {
            return Ok(Ok(Symbol::Literal(symbol as u8)));
        }
        let Some((slot, length)) = self.distances.find(bits.peek()?) else {
            return Ok(Err("a distance that is none"));
        };
        bits.consume(length)?;
        let distance = (usize::from(slot) << LOW_BITS | bits.take(LOW_BITS)?) + 1;
        Ok(Ok(Symbol::Match { length: symbol - LITERALS + SHORTEST, distance }))
    }

    /// Counts a symbol, and moves it to where it belongs.
    fn count(&mut self, symbol: usize) {
        if self.counts[ROOT] == MOST {
            self.halve();
        }
        let mut node = usize::from(self.above[symbol + NODES]);
        loop {
            self.counts[node] += 1;
            let count = self.counts[node];
            if count > self.counts[node + 1] {
                // It changes places with the last one that counts less.
                let mut other = node + 1;
                while count > self.counts[other + 1] {
                    other += 1;
                }
                self.counts.swap(node, other);
                let (own, others) = (usize::from(self.below[node]), usize::from(self.below[other]));
                self.join(other, own);
                self.join(node, others);
                node = other;
            }
            node = usize::from(self.above[node]);
            if node == 0 {
                return;
            }
        }
    }

    /// Halves all counts, and makes the tree again.
    fn halve(&mut self) {
        let mut leaves = 0;
        for node in 0..NODES {
            if usize::from(self.below[node]) >= NODES {
                self.counts[leaves] = self.counts[node].div_ceil(2);
                self.below[leaves] = self.below[node];
                leaves += 1;
            }
        }
        for (node, first) in (SYMBOLS..NODES).zip((0..).step_by(2)) {
            let count = self.counts[first] + self.counts[first + 1];
            // Behind all that count as much.
            let place = self.counts[..node].iter().rposition(|other| *other <= count).map_or(0, |place| place + 1);
            self.counts.copy_within(place..node, place + 1);
            self.below.copy_within(place..node, place + 1);
            self.counts[place] = count;
            self.below[place] = first as u16;
        }
        for node in 0..NODES {
            self.join(node, usize::from(self.below[node]));
        }
        self.above[ROOT] = 0;
    }

    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.distances.memory()
    }
}
