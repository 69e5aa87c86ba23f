//! Methods whose codes are the same for all files: ARJ's fastest one, and those of LArc.

use std::io;

use super::bits::Bits;
use super::{Outcome, Symbol};

/// ARJ's method 4: numbers behind as many ones as they have more digits.
pub(super) struct Fastest;

impl Fastest {
    pub(super) fn next(bits: &mut Bits) -> io::Result<Outcome<Symbol>> {
        let length = Self::number(bits, 0, 7)?;
        if length == 0 {
            return bits.byte().map(|byte| Ok(Symbol::Literal(byte)));
        }
        let distance = Self::number(bits, 9, 13)?;
        Ok(Ok(Symbol::Match { length: length + 2, distance: distance + 1 }))
    }

    /// A number with at least `width` digits, and at most `most`.
    fn number(bits: &mut Bits, mut width: u32, most: u32) -> io::Result<usize> {
        let mut before = 0;
        while width < most && bits.take(1)? == 1 {
            before += 1 << width;
            width += 1;
        }
        Ok(before + bits.take(width)?)
    }
}

/// LArc's lz5: a byte says of each of eight symbols whether it is a literal. Matches have places in the window of 4096
/// bytes.
#[derive(Default)]
pub(super) struct Lz5 {
    flags: u8,
    left: u32,
}

/// Where in the window the first byte goes.
pub(super) const LZ5_FIRST: usize = 4096 - 18;

impl Lz5 {
    pub(super) fn next(&mut self, bits: &mut Bits, at: usize) -> io::Result<Outcome<Symbol>> {
        if self.left == 0 {
            (self.flags, self.left) = (bits.byte()?, 8);
        }
        let is_literal = self.flags & 1 == 1;
        (self.flags, self.left) = (self.flags >> 1, self.left - 1);
        let first = bits.byte()?;
        if is_literal {
            return Ok(Ok(Symbol::Literal(first)));
        }
        let second = usize::from(bits.byte()?);
        let place = usize::from(first) | (second & 0xf0) << 4;
        Ok(Ok(Symbol::Match { length: (second & 15) + 3, distance: distance(place, at + LZ5_FIRST, 4096) }))
    }
}

/// LArc's lzs: a bit says whether it is a literal. Matches have places in the window of 2048 bytes.
pub(super) struct Lzs;

impl Lzs {
    const FIRST: usize = 2048 - 17;

    pub(super) fn next(bits: &mut Bits, at: usize) -> io::Result<Outcome<Symbol>> {
        if bits.take(1)? == 1 {
            return bits.byte().map(|byte| Ok(Symbol::Literal(byte)));
        }
        let place = bits.take(11)?;
        let length = bits.take(4)? + 2;
        Ok(Ok(Symbol::Match { length, distance: distance(place, at + Self::FIRST, 2048) }))
    }
}

/// How far before the byte that goes to `at` the `place` is, in a window of so many bytes.
fn distance(place: usize, at: usize, window: usize) -> usize {
    let distance = (at + window - place) % window;
    if distance == 0 { window } else { distance }
}
