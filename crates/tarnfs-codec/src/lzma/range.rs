//! The range decoder: turns bytes into decisions, each of which it is told the probability of.

#![allow(clippy::inline_always, reason = "each is a few instructions of the loop over the symbols")]

use std::hint::select_unpredictable;

/// Bits of a probability. It stands for "the next bit is 0".
pub(super) const PROBABILITY_BITS: u32 = 11;
/// One half, where every probability starts.
pub(super) const HALF: u16 = 1 << (PROBABILITY_BITS - 1);
/// A probability moves by this part of its distance to what has come: 2^-5.
const MOVE_BITS: u32 = 5;
/// The range within which all probabilities stay that started at [`HALF`].
pub(super) const POSSIBLE: std::ops::RangeInclusive<u16> = 31..=2017;

/// Below this another byte is drawn into the range.
const SMALLEST_RANGE: u32 = 1 << 24;

/// Bytes at the start of the data of a range coder.
pub(super) const START: usize = 5;

/// A range decoder over `input`. Behind the input's end it reads zeros, and `at` goes on: whoever drives it sees that.
pub(super) struct RangeDecoder<'a> {
    pub(super) range: u32,
    pub(super) code: u32,
    pub(super) input: &'a [u8],
    /// Bytes of the input that were drawn.
    pub(super) at: usize,
}

/// What the first five bytes say: the code. `None` if no encoder writes them.
pub(super) fn start(bytes: [u8; START]) -> Option<u32> {
    let [first, code @ ..] = bytes;
    let code = u32::from_be_bytes(code);
    (first == 0 && code != u32::MAX).then_some(code)
}

impl RangeDecoder<'_> {
    #[inline(always)]
    pub(super) fn normalise(&mut self) {
        if self.range < SMALLEST_RANGE {
            let byte = self.input.get(self.at).copied().unwrap_or(0);
            self.at = self.at.wrapping_add(1);
            self.range <<= 8;
            self.code = self.code << 8 | u32::from(byte);
        }
    }

    /// A bit on which the control flow depends.
    #[inline(always)]
    pub(super) fn bit(&mut self, probability: &mut u16) -> bool {
        self.normalise();
        let expected = u32::from(*probability);
        let bound = (self.range >> PROBABILITY_BITS).wrapping_mul(expected);
        if self.code < bound {
            self.range = bound;
            *probability =
                expected.wrapping_add((1_u32 << PROBABILITY_BITS).wrapping_sub(expected) >> MOVE_BITS) as u16;
            false
        } else {
            self.range = self.range.wrapping_sub(bound);
            self.code = self.code.wrapping_sub(bound);
            *probability = expected.wrapping_sub(expected >> MOVE_BITS) as u16;
            true
        }
    }

    /// A bit of a number, 0 or 1, and its probability from now on. No branch depends on the bit, because nobody could
    /// foretell it.
    #[inline(always)]
    pub(super) fn digit(&mut self, probability: u16) -> (usize, u16) {
        self.normalise();
        let expected = u32::from(probability);
        let bound = (self.range >> PROBABILITY_BITS).wrapping_mul(expected);
        let is_zero = self.code < bound;
        self.range = select_unpredictable(is_zero, bound, self.range.wrapping_sub(bound));
        self.code = select_unpredictable(is_zero, self.code, self.code.wrapping_sub(bound));
        // expected - (expected >> 5), or expected + (2048 - expected >> 5), which is expected - ((expected - 2048 + 31)
        // >> 5).
        let shifted = expected as i32 - if is_zero { (1 << PROBABILITY_BITS) - (1 << MOVE_BITS) + 1 } else { 0 };
        let next = (expected as i32).wrapping_sub(shifted >> MOVE_BITS) as u16;
        (usize::from(!is_zero), next)
    }

    /// A number of `LEVELS` bits, the highest first. `tree` has a probability for each number on the way, with a
    /// leading 1.
    #[inline(always)]
    pub(super) fn tree<const LEVELS: u32, const SIZE: usize>(&mut self, tree: &mut [u16; SIZE]) -> usize {
        const { assert!(SIZE == 1 << LEVELS) }
        let (mut node, mut probability) = (1, tree[1]);
        for _ in 0..LEVELS {
            // Both that may come next: what is loaded does not wait for the bit.
            let next = [tree[node << 1 & (SIZE - 1)], tree[(node << 1 | 1) & (SIZE - 1)]];
            let (digit, updated) = self.digit(probability);
            tree[node & (SIZE - 1)] = updated;
            node = node << 1 | digit;
            probability = select_unpredictable(digit == 0, next[0], next[1]);
        }
        node - SIZE
    }

    /// A number of `levels` bits, the lowest first, with the probabilities that lie behind `first` in `tree`.
    #[inline(always)]
    pub(super) fn reverse_tree<const SIZE: usize>(&mut self, tree: &mut [u16; SIZE], first: usize, levels: u32) -> u32 {
        const { assert!(SIZE.is_power_of_two()) }
        let (mut node, mut number) = (1, 0);
        for level in 0..levels {
            let probability = &mut tree[first.wrapping_add(node) & (SIZE - 1)];
            let (digit, updated) = self.digit(*probability);
            *probability = updated;
            node = node << 1 | digit;
            number |= (digit as u32) << level;
        }
        number
    }

    /// A number of `count` bits, each of which is 0 as often as 1.
    #[inline(always)]
    pub(super) fn direct(&mut self, count: u32) -> u32 {
        let mut number = 0_u32;
        for _ in 0..count {
            self.normalise();
            self.range >>= 1;
            self.code = self.code.wrapping_sub(self.range);
            let is_zero = 0_u32.wrapping_sub(self.code >> 31);
            self.code = self.code.wrapping_add(self.range & is_zero);
            number = (number << 1_u32).wrapping_add(is_zero.wrapping_add(1));
        }
        number
    }
}
