//! Blocks of up to 65535 symbols, each behind the codes of its literals and lengths, and of its distances: lh4 to lh7,
//! and ARJ's methods 1 to 3 (Haruyasu Yoshizaki's LHA, from Haruhiko Okumura's ar002).

use std::io;

use super::bits::Bits;
use super::{Outcome, Symbol};
use crate::coders::prefix::Prefix;

/// Symbols: literals, and matches of 3 to 256 bytes.
const SYMBOLS: usize = 510;
const LITERALS: usize = 256;
const SHORTEST: usize = 3;

/// Lengths of codes, as they are coded themselves. Behind the third one zeros may be left out.
const LENGTHS: usize = 19;
const BEHIND_ZEROS: usize = 3;
const WIDTH: u32 = 5;

pub(super) struct Blocks {
    symbols: Prefix,
    lengths: Prefix,
    distances: Prefix,
    /// Slots of distances, and the bits that their number has.
    slots: usize,
    width: u32,
    /// Symbols that are left in the block.
    left: usize,
}

impl Blocks {
    pub(super) fn new(slots: usize, width: u32) -> Self {
        let [symbols, lengths, distances] = std::array::from_fn(|_| Prefix::new());
        Self { symbols, lengths, distances, slots, width, left: 0 }
    }

    pub(super) fn next(&mut self, bits: &mut Bits) -> io::Result<Outcome<Symbol>> {
        if self.left == 0 {
            self.left = bits.take(16)?;
            if self.left == 0 {
                return Ok(Err("a block of nothing"));
            }
            if let Err(what) = self.begin(bits)? {
                return Ok(Err(what));
            }
        }
        self.left -= 1;
        let symbol = match decode(&self.symbols, bits)? {
            Ok(symbol) => symbol,
            Err(what) => return Ok(Err(what)),
        };
        if symbol < LITERALS {
            return Ok(Ok(Symbol::Literal(symbol as u8)));
        }
        let length = symbol - LITERALS + SHORTEST;
        let slot = match decode(&self.distances, bits)? {
            Ok(slot) => slot,
            Err(what) => return Ok(Err(what)),
        };
        let distance = match slot.checked_sub(1) {
            None => 0,
            Some(extra) => (1 << extra) + bits.take(extra as u32)?,
        };
        Ok(Ok(Symbol::Match { length, distance: distance + 1 }))
    }

    /// Reads the codes of a block.
    fn begin(&mut self, bits: &mut Bits) -> io::Result<Outcome<()>> {
        if let Err(what) = read_lengths(&mut self.lengths, bits, LENGTHS, WIDTH, Some(BEHIND_ZEROS))? {
            return Ok(Err(what));
        }
        if let Err(what) = self.read_symbols(bits)? {
            return Ok(Err(what));
        }
        read_lengths(&mut self.distances, bits, self.slots, self.width, None)
    }

    fn read_symbols(&mut self, bits: &mut Bits) -> io::Result<Outcome<()>> {
        let count = bits.take(9)?;
        if count == 0 {
            let only = bits.take(9)?;
            self.symbols.set_only(only.min(SYMBOLS - 1) as u16);
            return Ok(if only < SYMBOLS { Ok(()) } else { Err("a code of a symbol that is none") });
        }
        let mut lengths = [0; SYMBOLS];
        let mut at = 0;
        while at < count.min(SYMBOLS) {
            let symbol = match decode(&self.lengths, bits)? {
                Ok(symbol) => symbol,
                Err(what) => return Ok(Err(what)),
            };
            at += match symbol {
                0 => 1,
                1 => bits.take(4)? + 3,
                2 => bits.take(9)? + 20,
                length => {
                    lengths[at] = (length - 2) as u8;
                    1
                }
            };
        }
        let is_code = count <= SYMBOLS && self.symbols.set(&lengths);
        Ok(if is_code { Ok(()) } else { Err("lengths of codes that are none") })
    }

    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.symbols.memory() + self.lengths.memory() + self.distances.memory()
    }
}

fn decode(code: &Prefix, bits: &mut Bits) -> io::Result<Outcome<usize>> {
    let Some((symbol, length)) = code.find(bits.peek()?) else {
        return Ok(Err("a code that stands for nothing"));
    };
    bits.consume(length)?;
    Ok(Ok(usize::from(symbol)))
}

/// Reads a code of up to `most` symbols, whose number has `width` bits.
fn read_lengths(
    code: &mut Prefix,
    bits: &mut Bits,
    most: usize,
    width: u32,
    behind_zeros: Option<usize>,
) -> io::Result<Outcome<()>> {
    let count = bits.take(width)?;
    if count == 0 {
        code.set_only(bits.take(width)? as u16);
        return Ok(Ok(()));
    }
    if count > most {
        return Ok(Err("more codes than there are symbols"));
    }
    let mut lengths = [0_u8; 32];
    let mut at = 0;
    while at < count {
        let mut length = bits.take(3)?;
        if length == 7 {
            while bits.take(1)? == 1 {
                length += 1;
                if length > 16 {
                    return Ok(Err("a code that is longer than any can be"));
                }
            }
        }
        lengths[at] = length as u8;
        at += 1;
        if Some(at) == behind_zeros {
            at += bits.take(2)?;
        }
    }
    Ok(if code.set(&lengths[..most]) { Ok(()) } else { Err("lengths of codes that are none") })
}
