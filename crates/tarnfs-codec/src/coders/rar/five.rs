//! RAR 5: LZ with codes for lengths and distances, in blocks that say how long they are. RAR 7 has farther distances.
//! Source: public descriptions of the format.

use std::io;

use super::bits::Bits;
use super::filters::Filter;
use super::huffman::{Table, length, read_lengths};
use super::window::{AT_ONCE, Window};

/// Symbols of each code: literals, matches and what else there is; distances; the lowest bits of far ones; lengths of
/// matches at a distance that was used before.
const MAIN: usize = 306;
const DISTANCES: usize = 64;
const FAR_DISTANCES: usize = 80;
const LOW: usize = 16;
const LENGTHS: usize = 44;

/// Symbols of the main code that are no literals.
const FILTER: usize = 256;
const AGAIN: usize = 257;
const FIRST_OLD: usize = 258;
const FIRST_MATCH: usize = 262;

pub(super) struct Five {
    main: Table,
    distances: Table,
    low: Table,
    lengths: Table,
    has_tables: bool,
    is_far: bool,
    old: [u64; 4],
    last_length: usize,
    /// The bit of the member at which the block ends, and whether it is the last one.
    end: u64,
    is_last: bool,
}

impl Five {
    pub(super) fn new() -> Self {
        Self {
            main: Table::new(),
            distances: Table::new(),
            low: Table::new(),
            lengths: Table::new(),
            has_tables: false,
            is_far: false,
            old: [0; 4],
            last_length: 0,
            end: 0,
            is_last: false,
        }
    }

    /// Begins another member.
    pub(super) fn begin(&mut self, is_far: bool) {
        if is_far != self.is_far {
            self.has_tables = false;
        }
        (self.is_far, self.end, self.is_last) = (is_far, 0, false);
    }

    /// Decodes as much as is wanted at once. False behind the last block.
    pub(super) fn decode(&mut self, bits: &mut Bits, window: &mut Window) -> io::Result<bool> {
        for _ in 0..AT_ONCE {
            if window.is_due() || !window.has_room() {
                break;
            }
            if bits.position() >= self.end {
                if self.is_last {
                    return Ok(false);
                }
                self.begin_block(bits)?;
                continue;
            }
            bits.fill()?;
            match self.main.decode(bits)? {
                literal @ 0..FILTER => window.push(literal as u8),
                FILTER => read_filter(bits, window)?,
                AGAIN => {
                    // None before the first match.
                    window.copy(self.old[0], self.last_length);
                }
                old @ FIRST_OLD..FIRST_MATCH => {
                    let number = old - FIRST_OLD;
                    self.old[..=number].rotate_right(1);
                    let slot = self.lengths.decode(bits)?;
                    self.last_length = 2 + length(slot, bits)?;
                    window.copy(self.old[0], self.last_length);
                }
                slot => {
                    let length = 2 + length(slot - FIRST_MATCH, bits)?;
                    let distance = self.distance(bits)?;
                    let more = [0x100, 0x2000, 0x4_0000].iter().filter(|&&far| distance > far).count();
                    self.old.rotate_right(1);
                    (self.old[0], self.last_length) = (distance, length + more);
                    window.copy(distance, self.last_length);
                }
            }
        }
        Ok(true)
    }

    /// Reads on to the end of a member that is decoded: codes may come that the next one begins with.
    pub(super) fn finish(&mut self, bits: &mut Bits) -> io::Result<()> {
        while !self.is_last && bits.position() >= self.end {
            self.begin_block(bits)?;
        }
        Ok(())
    }

    #[inline]
    fn distance(&self, bits: &mut Bits) -> io::Result<u64> {
        let slot = self.distances.decode(bits)? as u64;
        if slot < 4 {
            return Ok(1 + slot);
        }
        let count = (slot / 2 - 1) as u32;
        let base = 1 + ((2 | slot & 1) << count);
        if count < 4 {
            return Ok(base + bits.take(count)?);
        }
        let high = bits.take(count - 4)? << 4;
        bits.fill()?;
        Ok(base + high + self.low.decode(bits)? as u64)
    }

    fn begin_block(&mut self, bits: &mut Bits) -> io::Result<()> {
        bits.align();
        let flags = bits.byte()?;
        let mut sum = bits.byte()? ^ flags ^ 0x5A;
        let mut length = 0_u64;
        let count = u32::from(flags >> 3 & 3);
        if count == 3 {
            return Err(bits.invalid("a block whose header is wrong"));
        }
        for number in 0..=count {
            let byte = bits.byte()?;
            sum ^= byte;
            length |= u64::from(byte) << (8 * number);
        }
        if sum != 0 {
            return Err(bits.invalid("a block whose header is wrong"));
        }
        // Bits of the last byte that count.
        let last = u64::from(flags & 7) + 1;
        self.end = bits.position() + (length * 8 + last).saturating_sub(8);
        self.is_last = flags & 0x40 != 0;
        if self.end > bits.length() {
            return Err(bits.cut());
        }
        if flags & 0x80 != 0 {
            self.read_tables(bits)?;
        }
        if !self.has_tables && self.end > bits.position() {
            return Err(bits.invalid("a block without the codes that it needs"));
        }
        Ok(())
    }

    fn read_tables(&mut self, bits: &mut Bits) -> io::Result<()> {
        let distances = if self.is_far { FAR_DISTANCES } else { DISTANCES };
        let mut all = [0_u8; MAIN + FAR_DISTANCES + LOW + LENGTHS];
        let count = MAIN + distances + LOW + LENGTHS;
        read_lengths(bits, &mut all[..count])?;
        let (main, rest) = all[..count].split_at(MAIN);
        let (of_distances, rest) = rest.split_at(distances);
        let (low, lengths) = rest.split_at(LOW);
        let are_valid =
            self.main.set(main) && self.distances.set(of_distances) && self.low.set(low) && self.lengths.set(lengths);
        self.has_tables = are_valid;
        if are_valid { Ok(()) } else { Err(bits.invalid("codes that are not valid")) }
    }

    pub(super) fn memory(&self) -> usize {
        [&self.main, &self.distances, &self.low, &self.lengths].iter().map(|table| table.memory()).sum()
    }
}

fn read_filter(bits: &mut Bits, window: &mut Window) -> io::Result<()> {
    let mut number = || {
        let count = bits.take(2)? as u32 + 1;
        let bytes = bits.take(8 * count)? as u32;
        // The lowest byte comes first.
        Ok::<_, io::Error>(u64::from((bytes << (32 - 8 * count)).swap_bytes()))
    };
    let (ahead, length) = (number()?, number()?);
    let filter = match bits.take(3)? {
        0 => Filter::Delta { channels: bits.take(5)? as usize + 1 },
        1 => Filter::X86 { jumps: false, wraps: true },
        2 => Filter::X86 { jumps: true, wraps: true },
        3 => Filter::Arm,
        _ => return Err(bits.invalid("a filter that is not known")),
    };
    window.add_filter(ahead, length, filter, bits)
}
