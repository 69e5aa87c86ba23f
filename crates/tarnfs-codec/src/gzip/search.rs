//! Finds where decoding may begin in the middle of deflate data: the header of a gzip member, or of a block with codes
//! of its own.
//!
//! A block may begin at any bit and has no magic, but there is little in its header (RFC 1951 §3.2.7) that is not
//! checked. A first sieve leaves one position in some thousands, at about a nanosecond each, and reading the codes one
//! in many millions. Stored blocks and those with the fixed codes are not looked for: the one is copied faster than
//! found, the other cannot be told from anything.

use super::bits::BitReader;
use super::codes::{Codes, HeaderError};
use super::guess;
use super::member::{DEFLATE, MAGIC};

/// BFINAL and BTYPE.
const BLOCK_BITS: u32 = 3;

/// Bytes that must follow a position for it to be judged: a header of 17 bits, 19 lengths of 3, and what words read
/// beyond.
pub(super) const HEADER: usize = 24;

/// Bytes behind the start of a gzip member that are tried out.
pub(super) const MEMBER: usize = 8 << 10;

/// What may begin at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Candidate {
    /// A block, at this bit.
    Block(usize),
    /// A gzip member, at this byte.
    Member(usize),
}

/// The first candidate in `data` from bit `from` on, which begins before byte `end`; `data` should go on [`MEMBER`]
/// bytes behind that. `codes` are overwritten.
pub(super) fn next(data: &[u8], from: usize, end: usize, codes: &mut Codes) -> Option<Candidate> {
    let member = next_member(data, from.div_ceil(8), end);
    let end = member.unwrap_or(end);
    let mut from = from;
    while let Some(bit) = next_block(data, from, end) {
        if has_codes(data, bit, codes) {
            return Some(Candidate::Block(bit));
        }
        from = bit + 1;
    }
    member.map(Candidate::Member)
}

/// Are there codes in the header of the block at `bit`, or as much of them as there is data?
fn has_codes(data: &[u8], bit: usize, codes: &mut Codes) -> bool {
    let Some(rest) = data.get(bit / 8..) else { return false };
    let mut reader = BitReader::new(0, 0, rest);
    let before = reader.bits((bit % 8) as u32 + BLOCK_BITS);
    before.is_some() && !matches!(codes.read_dynamic(&mut reader), Err(HeaderError::Invalid(_)))
}

fn next_member(data: &[u8], from: usize, end: usize) -> Option<usize> {
    let magic = |at: &usize| data[*at..].starts_with(&[MAGIC[0], MAGIC[1], DEFLATE]);
    (from..end.min(data.len())).filter(magic).find(|&at| guess::is_gzip_member(&data[at..data.len().min(at + MEMBER)]))
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
