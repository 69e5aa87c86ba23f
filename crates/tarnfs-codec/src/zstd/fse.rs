//! Tables of finite state entropy coding (RFC 8878 §4.1).

use super::bits::Forward;
use super::block::Invalid;

/// Symbols that any table has at most: those of match lengths.
pub(super) const MOST_SYMBOLS: usize = 53;
/// States of the largest table.
pub(super) const MOST_STATES: usize = 1 << 9;
/// What is wrong with a table that has symbols which there are not.
pub(super) const TOO_MANY_SYMBOLS: Invalid = "a table of too many symbols";
/// As many states of one symbol are written at once.
const AT_ONCE: usize = 16;
/// The least accuracy (RFC 8878 §4.1.1).
const LEAST_LOG: u8 = 5;

/// How often each symbol stands in a table: what a table is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    /// The table has 1 << `log` states.
    pub(super) log: u8,
    /// Behind the last symbol there are zeros; -1 is "less than one".
    pub(super) of: [i16; MOST_SYMBOLS],
}

/// One state of a table before symbols get a meaning.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FseState {
    pub(super) symbol: u8,
    /// Bits that lead to the next state.
    pub(super) bits: u8,
    /// What is added to them.
    pub(super) next: u16,
}

impl Counts {
    /// Reads the description of a table, and returns how many bytes it takes.
    pub(super) fn read(bytes: &[u8], most_symbols: usize, most_log: u8) -> Result<(Self, usize), Invalid> {
        let mut bits = Forward::new(bytes);
        let log = bits.take(4) as u8 + LEAST_LOG;
        if log > most_log {
            return Err("a table of more states than its kind may have");
        }
        let mut counts = Self { log, of: [0; MOST_SYMBOLS] };
        let mut left = 1_i32 << log;
        let mut symbol = 0;
        while left > 0 {
            if bits.is_past_end() {
                return Err("a table's description is cut");
            }
            // A value from 0 to left + 1; the lower ones take a bit less.
            let width = (left + 1).ilog2() + 1;
            let short_ones = (1 << width) - 1 - (left + 1);
            let short = bits.peek(width - 1) as i32;
            let value = if short < short_ones {
                bits.skip(width - 1);
                short
            } else {
                let long = bits.take(width) as i32;
                if long < 1 << (width - 1) { long } else { long - short_ones }
            };
            let count = value - 1;
            left -= count.abs();
            *counts.of.get_mut(..most_symbols).and_then(|of| of.get_mut(symbol)).ok_or(TOO_MANY_SYMBOLS)? =
                count as i16;
            symbol += 1;
            if count == 0 {
                loop {
                    let zeros = bits.take(2) as usize;
                    symbol += zeros;
                    if zeros < 3 {
                        break;
                    }
                    if bits.is_past_end() {
                        return Err("a table's description is cut");
                    }
                }
            }
        }
        if bits.is_past_end() || left < 0 {
            return Err("a table's description does not add up");
        }
        Ok((counts, bits.bytes_read()))
    }

    /// The same from what was kept of it; `None` if no table has such counts.
    pub(super) fn checked(log: u8, of: &[i16], most_symbols: usize, most_log: u8) -> Option<Self> {
        let sum: i64 = of.iter().map(|&count| i64::from(count).abs()).sum();
        let fits = (LEAST_LOG..=most_log).contains(&log) && of.len() <= most_symbols && sum == 1 << log;
        if !fits || of.iter().any(|&count| count < -1) {
            return None;
        }
        Some(Self::new(log, of))
    }

    /// Counts that are known to be right.
    pub(super) fn new(log: u8, of: &[i16]) -> Self {
        let mut counts = Self { log, of: [0; MOST_SYMBOLS] };
        for (to, from) in counts.of.iter_mut().zip(of) {
            *to = *from;
        }
        counts
    }

    /// The states of the table.
    pub(super) fn states<'a>(&self, states: &'a mut [FseState; MOST_STATES]) -> &'a [FseState] {
        self.each_state(|at, state| states[at] = state);
        &states[..1 << self.log]
    }

    /// Hands out each state of the table with its number.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "what is done with a state belongs into the loop")]
    pub(super) fn each_state(&self, mut each: impl FnMut(usize, FseState)) {
        let size = 1_usize << self.log;
        let mask = size - 1;
        let mut next = [0_u16; MOST_SYMBOLS];
        let mut symbols = [0_u8; MOST_STATES];
        // Symbols of less than one state are at the end.
        let mut end = size;
        // All others in order, each as often as it has states. So many are written at once, as most have few.
        let mut in_order = [0_u8; MOST_STATES + AT_ONCE];
        let mut filled = 0;
        for (symbol, (&count, next)) in self.of.iter().zip(&mut next).enumerate() {
            *next = count.unsigned_abs();
            if count == -1 {
                end -= 1;
                symbols[end] = symbol as u8;
                continue;
            }
            let count = usize::from(*next);
            in_order[filled..filled + AT_ONCE].fill(symbol as u8);
            if count > AT_ONCE {
                in_order[filled..filled + count].fill(symbol as u8);
            }
            filled += count;
        }
        let step = (size >> 1) + (size >> 3) + 3;
        let mut at = 0;
        for &symbol in &in_order[..filled] {
            symbols[at & mask] = symbol;
            at = at.wrapping_add(step) & mask;
            while at >= end {
                at = at.wrapping_add(step) & mask;
            }
        }
        for (at, &symbol) in symbols[..size].iter().enumerate() {
            let next = &mut next[usize::from(symbol)];
            let bits = self.log.wrapping_sub((*next | 1).ilog2() as u8);
            let least = (u32::from(*next) << (bits & 31)).wrapping_sub(size as u32) as u16;
            *next += 1;
            each(at, FseState { symbol, bits, next: least });
        }
    }
}
