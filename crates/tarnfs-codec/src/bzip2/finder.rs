//! Where blocks begin: at any bit, so their magic is looked for at all eight places in a byte.

use std::io;

use tarnfs_source::{Cancel, SharedSource};

use super::block::{BLOCK_MAGIC, MAGIC_BITS};

/// Bytes looked through at a time.
const BUFFER: usize = 128 << 10;

/// Bytes of the pairs that are looked at: one of every [`STRIDE`] bytes and the one behind it.
const STRIDE: usize = 4;

/// The last bytes of a window, in which a magic may begin that goes on behind it.
const OVERLAP: usize = 6;

/// A bit for each pair of bytes: whether a magic has it.
///
/// At whatever bit of a byte the magic begins, the five bytes behind that are all of it. They make four pairs, of which
/// one is looked at: there are 32 pairs to know, and one in 2000 of any others is among them.
static PAIRS: [u64; 1 << 10] = {
    let mut pairs = [0; 1 << 10];
    let mut shift = 0;
    while shift < 8 {
        // From the highest bit of a byte, `shift` bits of which come before it.
        let bytes = (BLOCK_MAGIC << (64 - MAGIC_BITS) >> shift).to_be_bytes();
        let mut first = 1;
        while first <= STRIDE {
            let pair = u16::from_le_bytes([bytes[first], bytes[first + 1]]) as usize;
            pairs[pair / 64] |= 1 << (pair % 64);
            first += 1;
        }
        shift += 1;
    }
    pairs
};

/// The bit, from bit `from` on, at which the first magic begins that is in `bytes`.
fn find(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = (from / 8 + 1).next_multiple_of(STRIDE);
    loop {
        let hops = bytes.get(at..)?.chunks_exact(STRIDE);
        let pairs = hops.map(|hop| usize::from(u16::from_le_bytes([hop[0], hop[1]])));
        let mut of_a_magic = pairs.map(|pair| PAIRS[pair / 64] >> (pair % 64) & 1 == 1);
        let Some(hop) = of_a_magic.position(|known| known) else { break };
        at += hop * STRIDE + STRIDE;
        if let Some(bit) = find_slowly(bytes, from.max((at - 2 * STRIDE) * 8), (at - STRIDE) * 8) {
            return Some(bit);
        }
    }
    // Where less than a stride is left behind the last pair.
    find_slowly(bytes, from.max(bytes.len().saturating_sub(4 * STRIDE) * 8), bytes.len() * 8)
}

/// The bit in `from..end` at which the first magic begins. (It ends with a one, so zeros behind the end make none of
/// one that is cut.)
fn find_slowly(bytes: &[u8], from: usize, end: usize) -> Option<usize> {
    (from..end).find(|bit| {
        let rest = bytes.get(bit / 8..).unwrap_or_default();
        let mut word = [0; 8];
        let length = rest.len().min(word.len());
        word[..length].copy_from_slice(&rest[..length]);
        u64::from_be_bytes(word) << (bit % 8) >> (64 - MAGIC_BITS) == BLOCK_MAGIC
    })
}

/// Finds blocks, one after the other.
#[derive(Debug)]
pub(super) struct Finder {
    source: SharedSource,
    buffer: Vec<u8>,
    /// How many bytes of the buffer are of the source, and at which byte of that they start.
    filled: usize,
    start: u64,
    /// The bit of the buffer from which on nothing was found yet.
    bit: usize,
}

impl Finder {
    /// Looks from bit `from` of `source` on.
    pub(super) fn new(source: SharedSource, from: u64) -> Self {
        Self { source, buffer: vec![0; BUFFER], filled: 0, start: from / 8, bit: (from % 8) as usize }
    }

    /// Looks from bit `from` on.
    pub(super) fn go_to(&mut self, from: u64) {
        let (byte, bit) = (from / 8, (from % 8) as usize);
        let in_memory = byte.checked_sub(self.start).filter(|&forward| forward < self.filled as u64);
        if in_memory.is_none() {
            (self.start, self.filled) = (byte, 0);
        }
        self.bit = in_memory.unwrap_or(0) as usize * 8 + bit;
    }

    /// The bit at which the next block begins; `None` if there is none.
    pub(super) fn next(&mut self, cancel: &Cancel) -> io::Result<Option<u64>> {
        self.next_before(u64::MAX, cancel)
    }

    /// The same, and also `None` if there is none up to about byte `end`.
    pub(super) fn next_before(&mut self, end: u64, cancel: &Cancel) -> io::Result<Option<u64>> {
        loop {
            if let Some(bit) = find(&self.buffer[..self.filled], self.bit) {
                self.bit = bit + 1;
                return Ok(Some(self.start * 8 + bit as u64));
            }
            cancel.check()?;
            if self.start.saturating_add(self.filled as u64) >= end {
                return Ok(None);
            }
            let kept = self.filled.saturating_sub((self.bit / 8).max(self.filled.saturating_sub(OVERLAP)));
            let passed = self.filled - kept;
            self.buffer.copy_within(passed..self.filled, 0);
            self.start += passed as u64;
            self.bit = self.bit.saturating_sub(passed * 8);
            let read = self.source.read_at(&mut self.buffer[kept..], self.start.saturating_add(kept as u64))?;
            self.filled = kept + read;
            if read == 0 {
                return Ok(None);
            }
        }
    }

    /// Bytes of memory in use.
    pub(super) fn memory(&self) -> usize {
        self.buffer.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{sample, source};

    /// Writes a magic over what is at bit `bit`.
    fn write(bytes: &mut [u8], bit: usize) {
        for number in 0..MAGIC_BITS {
            let (byte, mask) = ((bit + number) / 8, 0x80 >> ((bit + number) % 8));
            let is_one = BLOCK_MAGIC >> (MAGIC_BITS - 1 - number) & 1 == 1;
            bytes[byte] = if is_one { bytes[byte] | mask } else { bytes[byte] & !mask };
        }
    }

    #[test]
    fn finds_a_magic_at_every_bit_and_none_that_is_cut() {
        let noise = sample(40, 1);
        for length in [6, 7, 8, 9, 20, 21, 22, 23, 40] {
            for at in 0..=length * 8 - MAGIC_BITS {
                let mut bytes = noise[..length].to_vec();
                write(&mut bytes, at);
                for from in [0, at / 2, at.saturating_sub(8), at] {
                    assert_eq!(find(&bytes, from), Some(at), "in {length} bytes, from {from}");
                }
                assert_eq!(find(&bytes, at + 1), None);
                let end = (at + MAGIC_BITS).div_ceil(8);
                assert_eq!(find(&bytes[..end - 1], 0), None, "cut behind {} bytes", end - 1);
                write(&mut bytes, length * 8 - MAGIC_BITS);
                bytes[length - 1] ^= 1;
                assert_eq!(find(&bytes, at + 1), None, "one bit is another");
            }
        }
    }

    #[test]
    fn finds_them_in_order_over_the_ends_of_windows() {
        let mut bytes = sample(BUFFER * 3, 2);
        let mut places: Vec<usize> = [1, 3, 5].iter().map(|half| half * BUFFER * 4 - 20 * half - half % 3).collect();
        // Over the end of the first window, and over that of the next, which begins with what is kept of the first.
        for end in [BUFFER, 2 * BUFFER - OVERLAP] {
            places.extend((0..8).map(|step| (end - 4 - step * 7) * 8 + step));
        }
        places.sort_unstable();
        for &place in &places {
            write(&mut bytes, place);
        }
        for from in [0, 77, places[2], places[2] + 1, places[9] + 1] {
            let mut finder = Finder::new(source(&bytes), from as u64);
            let found = std::iter::from_fn(|| finder.next(&Cancel::default()).unwrap());
            let expected = places.iter().filter(|&&place| place >= from);
            assert!(found.eq(expected.map(|&place| place as u64)), "from {from}");
        }
    }
}
