//! Finds where decoding may begin in the middle of deflate data: the header of a gzip member, or of a block with codes
//! of its own.
//!
//! A block may begin at any bit and has no magic, but there is little in its header (RFC 1951 §3.2.7) that is not
//! checked. A first sieve leaves one position in some thousands, at about a nanosecond each, and reading the codes one
//! in many millions. Stored blocks and those with the fixed codes are not looked for: the one is copied faster than
//! found, the other cannot be told from anything.

use super::bits::BitReader;
use tarnfs_source::Cancel;

use super::codes::{Codes, HeaderError};
use super::guess;
use super::member::{DEFLATE, MAGIC};

/// BFINAL and BTYPE.
const BLOCK_BITS: u32 = 3;

/// Bytes that must follow a position for it to be judged: a header of 17 bits, 19 lengths of 3, and what words read
/// beyond.
pub(super) const HEADER: usize = 24;

/// What may begin at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Candidate {
    /// A block, at this bit.
    Block(usize),
    /// A gzip member, at this byte.
    Member(usize),
}

/// The first candidate in `data` from bit `from` on, which begins before byte `end`; `data` should go on
/// [`guess::MEMBER`] bytes behind that. `codes` are overwritten. `None` also once `abandon` is cancelled.
pub(super) fn next(data: &[u8], from: usize, end: usize, codes: &mut Codes, abandon: &Cancel) -> Option<Candidate> {
    let (mut from, mut untried) = (from, from.div_ceil(8));
    loop {
        // Tried out only where no block comes before it: there may be thousands that only begin like a member.
        let magic = next_magic(data, untried, end);
        while let Some(bit) = next_block(data, from, magic.unwrap_or(end)) {
            if has_codes(data, bit, codes) {
                return Some(Candidate::Block(bit));
            }
            from = bit + 1;
        }
        let at = magic.filter(|_| !abandon.is_cancelled())?;
        if guess::is_gzip_member(&data[at..]) {
            return Some(Candidate::Member(at));
        }
        (from, untried) = (from.max(at * 8), at + 1);
    }
}

/// Are there codes in the header of the block at `bit`, or as much of them as there is data?
fn has_codes(data: &[u8], bit: usize, codes: &mut Codes) -> bool {
    let Some(rest) = data.get(bit / 8..) else { return false };
    let mut reader = BitReader::new(0, 0, rest);
    let before = reader.bits((bit % 8) as u32 + BLOCK_BITS);
    before.is_some() && !matches!(codes.read_dynamic(&mut reader), Err(HeaderError::Invalid(_)))
}

fn next_magic(data: &[u8], from: usize, end: usize) -> Option<usize> {
    (from..end.min(data.len())).find(|&at| data[at..].starts_with(&[MAGIC[0], MAGIC[1], DEFLATE]))
}

fn next_block(data: &[u8], from: usize, end: usize) -> Option<usize> {
    let end = end.min(data.len().saturating_sub(HEADER));
    for byte in from / 8..end {
        let word = word_at(data, byte);
        // BFINAL 0 and BTYPE 10, lowest bit first, at each of eight bits.
        let mut starts = !word & !(word >> 1) & (word >> 2) & 0xff;
        if byte == from / 8 {
            starts &= 0xff << (from % 8);
        }
        while starts != 0 {
            let bit = starts.trailing_zeros() as usize;
            starts &= starts - 1;
            if is_likely(data, byte, word >> bit, bit) {
                return Some(byte * 8 + bit);
            }
        }
    }
    None
}

/// Are the numbers of codes possible, and the lengths of the code lengths' code those of a complete one? `header` is
/// the first bits of it.
#[inline]
fn is_likely(data: &[u8], byte: usize, header: u64, bit: usize) -> bool {
    const MOST: u64 = 30;
    if header >> 3 & 31 >= MOST || header >> 8 & 31 >= MOST {
        return false;
    }
    let lengths = 3 * ((header >> 13 & 15) as u32 + 4);
    let at = bit + 17;
    let word = word_at(data, byte + at / 8) >> (at % 8) & ((1 << lengths) - 1);
    let sum: u32 = (0..5).map(|part| u32::from(KRAFT[(word >> (12 * part)) as usize & 0xfff])).sum();
    sum == 1 << LONGEST
}

fn word_at(data: &[u8], byte: usize) -> u64 {
    data.get(byte..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}

/// The longest code of a code length, in bits.
const LONGEST: u32 = 7;

/// Of four lengths of 3 bits: what their codes take together of all codes of [`LONGEST`] bits.
static KRAFT: [u16; 1 << 12] = {
    let mut table = [0; 1 << 12];
    let mut lengths = 0;
    while lengths < table.len() {
        let mut part = 0;
        while part < 4 {
            let length = lengths >> (3 * part) & 7;
            if length > 0 {
                table[lengths] += 1 << (LONGEST as usize - length);
            }
            part += 1;
        }
        lengths += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gzip::tests::filter;

    #[test]
    fn the_first_candidate_is_found_and_none_once_nobody_wants_it() {
        let member = filter("gzip", &["-nc"], b"a member").unwrap();
        let look_alike = [MAGIC[0], MAGIC[1], DEFLATE, 0, 0, 0, 0, 0, 0, 3, 0xff, 0xff, 0xff, 0xff];
        let data = [look_alike.repeat(100), member.clone(), vec![0; 100]].concat();
        let (mut codes, abandon) = (Codes::new(), Cancel::default());
        let mut next = |from, abandon: &Cancel| super::next(&data, from, data.len(), &mut codes, abandon);
        let found = Some(Candidate::Member(1400));
        assert_eq!(next(0, &abandon), found);
        assert_eq!(next(1400 * 8, &abandon), found);
        assert_eq!(next(1400 * 8 + 1, &abandon), None);
        abandon.cancel();
        assert_eq!(next(0, &abandon), None);
    }
}
