//! RAR 2.0 to 2.8: LZ with codes for lengths and distances, or samples that are predicted from those before them.
//! Source: public descriptions of the format.

use std::io;
use std::iter;

use super::bits::Bits;
use super::huffman::{Table, length};
use super::window::{AT_ONCE, Window};

/// Bytes of the largest dictionary.
pub(super) const DICTIONARY: u64 = 1 << 20;

/// Symbols of each code: literals, matches and what else there is; distances; lengths; samples of one channel.
const MAIN: usize = 298;
const DISTANCES: usize = 48;
const LENGTHS: usize = 28;
const SAMPLES: usize = 257;
const CHANNELS: usize = 4;
/// Those of the code of their lengths.
const LEVELS: usize = 19;

/// Symbols of the main code that are no literals.
const AGAIN: usize = 256;
const FIRST_OLD: usize = 257;
const FIRST_SHORT: usize = 261;
const END: usize = 269;
const FIRST_MATCH: usize = 270;

/// In samples, what ends the block.
const END_OF_SAMPLES: usize = 256;

/// Matches of two bytes: the first distance, and how many bits more, for each symbol.
const SHORT: [(u64, u32); END - FIRST_SHORT] = [(0, 2), (4, 2), (8, 3), (16, 4), (32, 5), (64, 6), (128, 6), (192, 6)];

/// What is known of one channel.
#[derive(Clone, Copy, Default)]
struct Channel {
    weights: [i32; 5],
    deltas: [i32; 4],
    last_delta: i32,
    last: i32,
    errors: [u32; 11],
    count: u32,
}

pub(super) struct Two {
    main: Table,
    distances: Table,
    lengths: Table,
    samples: [Table; CHANNELS],
    /// The lengths of their codes, from which the next ones may be told.
    levels: Box<[u8; SAMPLES * CHANNELS]>,
    has_tables: bool,
    is_sampled: bool,
    count: usize,
    /// The channel whose sample comes next, and by how much the last sample of any differed.
    current: usize,
    delta: i32,
    channels: [Channel; CHANNELS],
    /// The last one is the first.
    old: [u64; 4],
    last_distance: u64,
    last_length: usize,
}

impl Two {
    pub(super) fn new() -> Self {
        Self {
            main: Table::new(),
            distances: Table::new(),
            lengths: Table::new(),
            samples: [Table::new(), Table::new(), Table::new(), Table::new()],
            levels: Box::new([0; SAMPLES * CHANNELS]),
            has_tables: false,
            is_sampled: false,
            count: 1,
            current: 0,
            delta: 0,
            channels: [Channel::default(); CHANNELS],
            old: [0; 4],
            last_distance: 0,
            last_length: 0,
        }
    }

    /// Begins a member, which may go on with the codes of the one before.
    pub(super) fn begin(&mut self, bits: &mut Bits) -> io::Result<()> {
        if self.has_tables { Ok(()) } else { self.read_tables(bits) }
    }

    /// Decodes as much as is wanted at once.
    pub(super) fn decode(&mut self, bits: &mut Bits, window: &mut Window) -> io::Result<bool> {
        for _ in 0..AT_ONCE {
            if window.is_due() || !window.has_room() {
                break;
            }
            bits.fill()?;
            if self.is_sampled {
                match self.samples[self.current].decode(bits)? {
                    END_OF_SAMPLES => self.read_tables(bits)?,
                    difference => window.push(self.sample(difference as u8)),
                }
                continue;
            }
            match self.main.decode(bits)? {
                literal @ 0..AGAIN => window.push(literal as u8),
                AGAIN => self.copy(self.last_distance, self.last_length, window),
                old @ FIRST_OLD..FIRST_SHORT => {
                    let distance = self.old[old - FIRST_OLD];
                    let slot = self.lengths.decode(bits)?;
                    let length = length(slot, bits)? + 2;
                    let more = [0x101, 0x2000, 0x4_0000].iter().filter(|&&far| distance >= far).count();
                    self.copy(distance, length + more, window);
                }
                short @ FIRST_SHORT..END => {
                    let (first, count) = SHORT[short - FIRST_SHORT];
                    let distance = first + bits.take(count)? + 1;
                    self.copy(distance, 2, window);
                }
                END => self.read_tables(bits)?,
                slot => {
                    let length = length(slot - FIRST_MATCH, bits)? + 3;
                    bits.fill()?;
                    let distance = distance(self.distances.decode(bits)?, bits)?;
                    let more = usize::from(distance >= 0x2000) + usize::from(distance >= 0x4_0000);
                    self.copy(distance, length + more, window);
                }
            }
        }
        Ok(true)
    }

    /// Reads on to the end of a member that is decoded: codes may come that the next one begins with.
    pub(super) fn finish(&mut self, bits: &mut Bits) -> io::Result<()> {
        /// Bits that codes take at the least.
        const LEAST: u64 = 40;
        if bits.position() + LEAST > bits.length() {
            return Ok(());
        }
        bits.fill()?;
        let ends = if self.is_sampled {
            self.samples[self.current].decode(bits).is_ok_and(|symbol| symbol == END_OF_SAMPLES)
        } else {
            self.main.decode(bits).is_ok_and(|symbol| symbol == END)
        };
        if ends { self.read_tables(bits) } else { Ok(()) }
    }

    fn copy(&mut self, distance: u64, length: usize, window: &mut Window) {
        self.old.rotate_right(1);
        (self.old[0], self.last_distance, self.last_length) = (distance, distance, length);
        window.copy(distance, length);
    }

    fn read_tables(&mut self, bits: &mut Bits) -> io::Result<()> {
        let invalid = |bits: &Bits| bits.invalid("codes that are not valid");
        self.has_tables = false;
        self.is_sampled = bits.take(1)? != 0;
        let keeps = bits.take(1)? != 0;
        if !keeps {
            self.levels.fill(0);
        }
        let mut all = MAIN + DISTANCES + LENGTHS;
        if self.is_sampled {
            self.count = bits.take(2)? as usize + 1;
            all = SAMPLES * self.count;
            if self.current >= self.count {
                self.current = 0;
            }
        }
        let mut levels = [0; LEVELS];
        for level in &mut levels {
            *level = bits.take(4)? as u8;
        }
        let mut level = Table::new();
        if !level.set(&levels) {
            return Err(invalid(bits));
        }
        let mut at = 0;
        while at < all {
            bits.fill()?;
            let (times, repeated) = match level.decode(bits)? {
                symbol @ 0..16 => (1, (self.levels[at] + symbol as u8) & 15),
                16 if at == 0 => return Err(invalid(bits)),
                16 => (3 + bits.take(2)?, self.levels[at - 1]),
                17 => (3 + bits.take(3)?, 0),
                _ => (11 + bits.take(7)?, 0),
            };
            let end = (at + times as usize).min(all);
            self.levels[at..end].fill(repeated);
            at = end;
        }
        let are_valid = if self.is_sampled {
            iter::zip(&mut self.samples, self.levels.chunks_exact(SAMPLES))
                .take(self.count)
                .all(|(table, levels)| table.set(levels))
        } else {
            let (main, rest) = self.levels.split_at(MAIN);
            let (distances, rest) = rest.split_at(DISTANCES);
            self.main.set(main) && self.distances.set(distances) && self.lengths.set(&rest[..LENGTHS])
        };
        self.has_tables = are_valid;
        if are_valid { Ok(()) } else { Err(invalid(bits)) }
    }

    /// The sample that differs so from what was predicted.
    fn sample(&mut self, difference: u8) -> u8 {
        let delta = self.delta;
        let channel = &mut self.channels[self.current];
        self.current = (self.current + 1) % self.count;
        channel.count = channel.count.wrapping_add(1);
        let [first, second, third, _] = channel.deltas;
        channel.deltas = [channel.last_delta, channel.last_delta - first, second, third];
        let [first, second, third, fourth] = channel.deltas;
        let known = [first, second, third, fourth, delta];
        let sum: i32 = iter::zip(channel.weights, known).map(|(weight, value)| weight * value).sum();
        let predicted = (8 * channel.last + sum) >> 3 & 0xFF;
        let sample = predicted.wrapping_sub(difference.into()) as u8;
        let error = i32::from(difference as i8) << 3;
        let shifted = iter::once(0).chain(known.into_iter().flat_map(|value| [-value, value]));
        for (sum, shift) in iter::zip(&mut channel.errors, shifted) {
            *sum = sum.wrapping_add((error + shift).unsigned_abs());
        }
        self.delta = i32::from(sample.wrapping_sub(channel.last as u8) as i8);
        (channel.last_delta, channel.last) = (self.delta, sample.into());
        if channel.count.is_multiple_of(32) {
            let (best, _) = channel.errors.iter().enumerate().min_by_key(|(_, error)| **error).unwrap_or((0, &0));
            channel.errors = [0; 11];
            if let Some(weight) = best.checked_sub(1).and_then(|best| channel.weights.get_mut(best / 2)) {
                if best % 2 == 1 {
                    *weight -= i32::from(*weight >= -16);
                } else {
                    *weight += i32::from(*weight < 16);
                }
            }
        }
        sample
    }

    pub(super) fn memory(&self) -> usize {
        let tables = [&self.main, &self.distances, &self.lengths].into_iter().chain(&self.samples);
        tables.map(Table::memory).sum::<usize>() + self.levels.len()
    }
}

fn distance(slot: usize, bits: &mut Bits) -> io::Result<u64> {
    /// From this symbol on, each has the same number of bits more.
    const FAR: usize = 36;
    const FAR_BITS: u32 = 16;
    let (first, count) = match slot {
        0..4 => (slot as u64, 0),
        4..FAR => ((2 | (slot as u64) & 1) << (slot / 2 - 1), (slot / 2 - 1) as u32),
        _ => (((slot - FAR + 4) as u64) << FAR_BITS, FAR_BITS),
    };
    Ok(1 + first + bits.take(count)?)
}
