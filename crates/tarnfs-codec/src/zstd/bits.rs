//! Bits of a block: forwards in the descriptions of tables, backwards in all else (RFC 8878 §4.1, §4.2.2).

use super::block::Invalid;

/// Reads bits from the lowest of the first byte on. Behind the end there are zeros, which is noticed in the end.
pub(super) struct Forward<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Forward<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// The next `count` bits (at most 16), which stay unread.
    pub(super) fn peek(&self, count: u32) -> u32 {
        let mut word = [0; 4];
        for (to, from) in word.iter_mut().zip(self.bytes.get(self.position / 8..).unwrap_or_default()) {
            *to = *from;
        }
        u32::from_le_bytes(word) >> (self.position % 8) & ((1 << count) - 1)
    }

    pub(super) fn skip(&mut self, count: u32) {
        self.position += count as usize;
    }

    pub(super) fn take(&mut self, count: u32) -> u32 {
        let bits = self.peek(count);
        self.skip(count);
        bits
    }

    /// True behind the end.
    pub(super) fn is_past_end(&self) -> bool {
        self.bytes_read() > self.bytes.len()
    }

    /// Bytes of which at least one bit was read.
    pub(super) fn bytes_read(&self) -> usize {
        self.position.div_ceil(8)
    }
}

/// Reads bits from below the highest one that is set in the last byte down to the first byte.
#[derive(Clone, Copy)]
pub(super) struct Reverse<'a> {
    bytes: &'a [u8],
    /// Bits that are still to be read.
    left: usize,
}

impl<'a> Reverse<'a> {
    /// Bits that [`Reverse::word`] has at least (zeros before the start among them).
    pub(super) const READY: usize = 57;

    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, Invalid> {
        match bytes.last() {
            None => Err("a bit stream is empty"),
            Some(0) => Err("a bit stream has no end mark"),
            Some(last) => Ok(Self { bytes, left: bytes.len() * 8 - 1 - last.leading_zeros() as usize }),
        }
    }

    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// The bits that are next, the first of them in the highest place.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it is compiled for several processors")]
    pub(super) fn word(&self) -> u64 {
        let end = self.left.wrapping_add(7) / 8;
        if end < 8 {
            return self.first_word();
        }
        // SAFETY: `left` never grows, and was at most the bits in `bytes`: so `end` is at most its length.
        let word = unsafe { self.bytes.as_ptr().add(end.wrapping_sub(8)).cast::<u64>().read_unaligned() };
        u64::from_le(word) << (self.left.wrapping_neg() & 7)
    }

    /// The same where fewer than 8 bytes are left.
    #[cold]
    #[inline(never)]
    fn first_word(&self) -> u64 {
        let bytes = self.bytes.get(..self.left.div_ceil(8)).unwrap_or_default();
        let word = bytes.iter().fold(0, |word, &byte| word >> 8 | u64::from(byte) << 56);
        word << (self.left.wrapping_neg() & 7)
    }

    /// Moves on by `count` bits; false, and to the end, if there are fewer.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it is compiled for several processors")]
    pub(super) fn skip(&mut self, count: usize) -> bool {
        let (left, too_few) = self.left.overflowing_sub(count);
        self.left = if too_few { 0 } else { left };
        !too_few
    }

    /// The next `count` bits (at most 32); `None`, and to the end, if there are fewer.
    pub(super) fn take(&mut self, count: u8) -> Option<u32> {
        let bits = top(self.word(), count) as u32;
        self.skip(usize::from(count)).then_some(bits)
    }
}

/// The highest `count` bits of `word`; at most 63.
#[inline(always)]
#[allow(clippy::inline_always, reason = "it is compiled for several processors")]
pub(super) fn top(word: u64, count: u8) -> u64 {
    (word >> 1).wrapping_shr(!u32::from(count))
}
