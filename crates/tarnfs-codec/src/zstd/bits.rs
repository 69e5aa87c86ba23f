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

    /// Moves on by `count` bits, at most [`Reverse::READY`], which come in the lowest places, under bits that mean
    /// nothing. `None`, and nothing else, where fewer than 64 are left, or more are wanted.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it is compiled for several processors")]
    pub(super) fn lowest(&mut self, count: usize) -> Option<u64> {
        if self.left < 64 || count > Self::READY {
            return None;
        }
        let end = self.left.wrapping_add(7) / 8;
        // SAFETY: `left` never grows, and was at most the bits in `bytes`: so `end` is at most its length, and it is at
        // least 8.
        let word = unsafe { self.bytes.as_ptr().add(end.wrapping_sub(8)).cast::<u64>().read_unaligned() };
        self.left = self.left.wrapping_sub(count);
        Some(u64::from_le(word).wrapping_shr(self.left.wrapping_sub(end.wrapping_mul(8)) as u32))
    }

    /// The same bits for a loop that does not look whether there are enough; `None` where fewer than 64 are left.
    pub(super) fn far(&self) -> Option<Far<'a>> {
        let end = self.left.div_ceil(8);
        let from = self.bytes.get(end.checked_sub(8)?..end)?;
        let word = u64::from_le_bytes(*from.first_chunk()?) | 1;
        Some(Far { word: word << (self.left.wrapping_neg() & 7), from: from.as_ptr(), bytes: self.bytes })
    }

    /// Goes on where that loop has ended.
    pub(super) fn go_on(&mut self, far: &Far<'a>) {
        self.left = far.before() * 8 + 64 - far.word.trailing_zeros() as usize;
    }

    /// The next `count` bits (at most 32); `None`, and to the end, if there are fewer.
    pub(super) fn take(&mut self, count: u8) -> Option<u32> {
        let bits = top(self.word(), count) as u32;
        self.skip(usize::from(count)).then_some(bits)
    }
}

/// Bits that are far from the start of their stream.
#[derive(Clone, Copy)]
pub(super) struct Far<'a> {
    /// The next bits, the first of them in the highest place. Behind those of the stream, of which there are 56 at
    /// least after each [`Far::refill`], comes a 1, and then zeros: they count how many bits were shifted out.
    pub(super) word: u64,
    /// Where in `bytes` the word came from.
    from: *const u8,
    bytes: &'a [u8],
}

impl Far<'_> {
    /// How often [`Far::refill`] may be called after 56 bits at most were taken.
    pub(super) fn rounds(&self) -> usize {
        // Up to 7 bits of the word before it are among those that were taken.
        self.before() / 7
    }

    /// Bytes before the word.
    fn before(&self) -> usize {
        self.from as usize - self.bytes.as_ptr() as usize
    }

    /// Makes more bits ready.
    ///
    /// # Safety
    /// [`Far::rounds`] has allowed it.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it is compiled for several processors")]
    pub(super) unsafe fn refill(&mut self) {
        let taken = self.word.trailing_zeros();
        // SAFETY: not before the start of `bytes`: the caller has seen to that.
        unsafe {
            self.from = self.from.sub((taken >> 3) as usize);
            self.word = u64::from_le(self.from.cast::<u64>().read_unaligned()) | 1;
        }
        self.word <<= taken & 7;
    }
}

/// The highest `count` bits of `word`; at most 63.
#[inline(always)]
#[allow(clippy::inline_always, reason = "it is compiled for several processors")]
pub(super) fn top(word: u64, count: u8) -> u64 {
    (word >> 1).wrapping_shr(!u32::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_that_are_taken_without_a_look_are_those_that_are_taken_with_one() {
        let bytes: Vec<u8> = (0..300_u32).map(|at| (at * at * 31 + at) as u8 | 1).collect();
        for (length, step) in [(8, 55), (9, 1), (64, 11), (300, 55), (299, 7), (7, 1)] {
            let mut slow = Reverse::new(&bytes[..length]).unwrap();
            let mut quick = slow;
            while let Some(mut far) = quick.far() {
                let rounds = far.rounds();
                for _ in 0..rounds {
                    assert_eq!(far.word >> (64 - step), slow.word() >> (64 - step), "{length} {step}");
                    far.word <<= step;
                    assert!(slow.skip(step));
                    // SAFETY: no more rounds than were allowed, each of at most 55 bits.
                    unsafe { far.refill() };
                }
                quick.go_on(&far);
                assert_eq!(quick.left(), slow.left());
                if rounds == 0 {
                    break;
                }
            }
            // Less than one more round is left.
            assert!(quick.left() < 64 + 56, "{length} {step}");
        }
    }
}
