//! Canonical codes of up to 15 bits, as all versions of RAR have them.

use std::io;

use super::bits::Bits;

/// Codes of up to so many bits are found in a table.
const QUICK: u32 = 10;
const LONGEST: usize = 15;

/// A code.
pub(super) struct Table {
    /// For the next [`QUICK`] bits, the symbol and in the lowest 4 bits the length of its code; 0 of a longer one.
    quick: Box<[u16; 1 << QUICK]>,
    /// The first code that is longer than so many bits, with its highest bit as the 16th.
    ends: [u32; LONGEST + 1],
    /// Where in `symbols` those with codes of so many bits begin.
    starts: [u16; LONGEST + 1],
    symbols: Vec<u16>,
}

impl Table {
    /// A code without symbols.
    pub(super) fn new() -> Self {
        Self { quick: Box::new([0; 1 << QUICK]), ends: [0; LONGEST + 1], starts: [0; LONGEST + 1], symbols: Vec::new() }
    }

    /// The code whose symbols have codes of these lengths, 0 of those that have none. False if there is none such.
    pub(super) fn set(&mut self, lengths: &[u8]) -> bool {
        let mut counts = [0_u32; LONGEST + 1];
        for &length in lengths {
            counts[usize::from(length).min(LONGEST)] += 1;
        }
        counts[0] = 0;
        let (mut end, mut start) = (0_u32, 0_u16);
        for (length, &count) in counts.iter().enumerate().skip(1) {
            self.starts[length] = start;
            start += count as u16;
            end += count << (16 - length);
            self.ends[length] = end;
        }
        self.ends[0] = 0;
        if end > 1 << 16 {
            return false;
        }
        self.symbols.clear();
        self.symbols.resize(usize::from(start), 0);
        let mut next = self.starts;
        for (symbol, &length) in lengths.iter().enumerate().filter(|(_, length)| **length > 0) {
            let at = &mut next[usize::from(length).min(LONGEST)];
            self.symbols[usize::from(*at)] = symbol as u16;
            *at += 1;
        }
        self.quick.fill(0);
        for (length, &count) in counts.iter().enumerate().take(QUICK as usize + 1).skip(1) {
            let first = self.ends[length - 1] >> (16 - QUICK);
            for number in 0..count {
                let symbol = self.symbols[usize::from(self.starts[length]) + number as usize];
                let width = 1 << (QUICK as usize - length);
                let from = first as usize + number as usize * width;
                self.quick[from..from + width].fill(symbol << 4 | length as u16);
            }
        }
        true
    }

    /// The next symbol, of 15 bits that are known.
    #[inline]
    pub(super) fn decode(&self, bits: &mut Bits) -> io::Result<usize> {
        let code = bits.peek_code();
        let quick = self.quick[(code >> (16 - QUICK)) as usize];
        if quick != 0 {
            bits.consume(u32::from(quick & 15));
            return Ok(usize::from(quick >> 4));
        }
        self.decode_long(code, bits)
    }

    fn decode_long(&self, code: u32, bits: &mut Bits) -> io::Result<usize> {
        for length in QUICK as usize + 1..=LONGEST {
            if code < self.ends[length] {
                let number = (code - self.ends[length - 1]) >> (16 - length);
                let symbol = self.symbols.get(usize::from(self.starts[length]) + number as usize);
                bits.consume(length as u32);
                return symbol
                    .map(|&symbol| symbol.into())
                    .ok_or_else(|| bits.invalid("a code that stands for nothing"));
            }
        }
        Err(bits.invalid("a code that stands for nothing"))
    }

    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.quick) + self.symbols.capacity() * 2
    }
}

/// Reads the lengths of codes of RAR 2.9 and later, which have a code of their own: each is added to the one that was
/// there, or comes in a run.
pub(super) fn read_lengths(bits: &mut Bits, lengths: &mut [u8]) -> io::Result<()> {
    /// Symbols of that code, and the one before which lengths and not runs stand.
    const LEVELS: usize = 20;
    const RUNS: usize = 16;
    let mut levels = [0; LEVELS];
    let mut at = 0;
    while at < LEVELS {
        let length = bits.take(4)? as u8;
        if length == 15 {
            let zeros = bits.take(4)? as usize;
            if zeros > 0 {
                at += zeros + 2;
                continue;
            }
        }
        levels[at] = length;
        at += 1;
    }
    let mut level = Table::new();
    if !level.set(&levels) {
        return Err(bits.invalid("codes that are not valid"));
    }
    let mut at = 0;
    while at < lengths.len() {
        bits.fill()?;
        let symbol = level.decode(bits)?;
        if symbol < RUNS {
            lengths[at] = (lengths[at] + symbol as u8) & 15;
            at += 1;
            continue;
        }
        let times = if symbol % 2 == 0 { 3 + bits.take(3)? } else { 11 + bits.take(7)? } as usize;
        let repeated = match symbol {
            16 | 17 if at == 0 => return Err(bits.invalid("codes that are not valid")),
            16 | 17 => lengths[at - 1],
            _ => 0,
        };
        let end = (at + times).min(lengths.len());
        lengths[at..end].fill(repeated);
        at = end;
    }
    Ok(())
}

/// What a symbol for lengths adds to the shortest match.
#[inline]
pub(super) fn length(slot: usize, bits: &mut Bits) -> io::Result<usize> {
    if slot < 8 {
        return Ok(slot);
    }
    let count = (slot / 4 - 1) as u32;
    Ok(((4 | slot & 3) << count) + bits.take(count)? as usize)
}
