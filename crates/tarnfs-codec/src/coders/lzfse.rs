//! LZFSE and LZVN, as macOS compresses files and disk images with them, a block at a time.
//!
//! LZFSE is a row of blocks: bytes as they are, LZVN, or matches and literals in finite state entropy (FSE) codes,
//! which are read from their end. Matches reach into the blocks before. LZVN is bytes only, and for short blocks.
//!
//! The format: Apple's reference implementation (`lzfse_internal.h`, `lzvn_decode_base.h`).

use std::io;

use super::block::{BlockCoder, damaged};
use crate::Pace;

/// LZFSE.
#[derive(Debug)]
pub(super) struct LzfseBlock;

/// LZVN without a header around it.
#[derive(Debug)]
pub(super) struct LzvnBlock;

impl BlockCoder for LzfseBlock {
    fn name(&self) -> &'static str {
        "lzfse-block"
    }

    fn decode(&self, stored: &[u8], decoded: &mut [u8]) -> io::Result<usize> {
        let mut output = Output::new(decoded);
        lzfse(stored, &mut output).map_err(|what| damaged(&format!("its LZFSE data: {what}")))?;
        Ok(output.end)
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 300_000, in_whole_chunks: true }
    }

    fn memory(&self, _: usize) -> usize {
        64 << 10
    }
}

impl BlockCoder for LzvnBlock {
    fn name(&self) -> &'static str {
        "lzvn-block"
    }

    fn decode(&self, stored: &[u8], decoded: &mut [u8]) -> io::Result<usize> {
        let mut output = Output::new(decoded);
        lzvn(stored, &mut output).map_err(|what| damaged(&format!("its LZVN data: {what}")))?;
        Ok(output.end)
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 500_000, in_whole_chunks: true }
    }

    fn memory(&self, _: usize) -> usize {
        0
    }
}

/// What is wrong.
type Fault = &'static str;

const CUT: Fault = "they are cut";
const TOO_LONG: Fault = "more comes of them than there is room for";
const WRONG: Fault = "they say what cannot be";

/// What was decoded.
pub(super) struct Output<'o> {
    bytes: &'o mut [u8],
    pub(super) end: usize,
}

impl<'o> Output<'o> {
    pub(super) fn new(bytes: &'o mut [u8]) -> Self {
        Self { bytes, end: 0 }
    }

    pub(super) fn literals(&mut self, literals: &[u8]) -> Result<(), Fault> {
        let room = self.bytes.get_mut(self.end..self.end.saturating_add(literals.len())).ok_or(TOO_LONG)?;
        room.copy_from_slice(literals);
        self.end += literals.len();
        Ok(())
    }

    /// `length` bytes that were `distance` bytes ago.
    pub(super) fn copy(&mut self, distance: usize, length: usize) -> Result<(), Fault> {
        let from = self.end.checked_sub(distance).filter(|_| distance > 0).ok_or(WRONG)?;
        let end = self.end.checked_add(length).filter(|end| *end <= self.bytes.len()).ok_or(TOO_LONG)?;
        if distance >= length {
            self.bytes.copy_within(from..from + length, self.end);
        } else if distance == 1 {
            let byte = self.bytes[from];
            self.bytes[self.end..end].fill(byte);
        } else {
            for at in self.end..end {
                self.bytes[at] = self.bytes[at - distance];
            }
        }
        self.end = end;
        Ok(())
    }
}

fn word(bytes: &[u8], at: usize) -> Result<u32, Fault> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|word| u32::from_le_bytes(*word)).ok_or(CUT)
}

fn long(bytes: &[u8], at: usize) -> Result<u64, Fault> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|long| u64::from_le_bytes(*long)).ok_or(CUT)
}

/// `length` bytes from `at` on, where that is in `bytes`.
fn part(bytes: &[u8], at: usize, length: usize) -> Result<&[u8], Fault> {
    bytes.get(at..at.saturating_add(length)).ok_or(CUT)
}

/// Decodes LZVN up to its mark at the end, or where `stored` ends.
fn lzvn(stored: &[u8], output: &mut Output<'_>) -> Result<(), Fault> {
    let (mut at, mut distance) = (0, 0);
    while at < stored.len() {
        let byte = |ahead: usize| stored.get(at + ahead).copied().map(usize::from).ok_or(CUT);
        let code = byte(0)?;
        // Bytes of the code, literals behind it, and what is matched behind these.
        let (code_length, literals, matched) = match code {
            0x06 => return part(stored, at, 8).map(|_| ()),
            0x0e | 0x16 => (1, 0, 0),
            0xe0 => (2, byte(1)? + 16, 0),
            0xe1..=0xef => (1, code & 15, 0),
            0xf0 => (2, 0, byte(1)? + 16),
            0xf1..=0xff => (1, 0, code & 15),
            0x70..=0x7f | 0xd0..=0xdf => return Err(WRONG),
            0xa0..=0xbf => {
                let more = byte(1)? | byte(2)? << 8;
                distance = more >> 2;
                (3, code >> 3 & 3, ((code & 7) << 2 | more & 3) + 3)
            }
            _ => {
                let (literals, matched) = (code >> 6, (code >> 3 & 7) + 3);
                match code & 7 {
                    7 => {
                        distance = byte(1)? | byte(2)? << 8;
                        (3, literals, matched)
                    }
                    6 if literals == 0 => return Err(WRONG),
                    6 => (1, literals, matched),
                    high => {
                        distance = high << 8 | byte(1)?;
                        (2, literals, matched)
                    }
                }
            }
        };
        at += code_length;
        output.literals(part(stored, at, literals)?)?;
        at += literals;
        if matched > 0 {
            output.copy(distance, matched)?;
        }
    }
    Ok(())
}

/// Symbols of each table of an FSE block, in the order of their frequencies, and the states of their codes.
const SYMBOLS: [usize; 4] = [20, 20, 64, 256];
const STATES: [usize; 4] = [64, 64, 256, 1024];

/// Literals and matches of one block, as in Apple's decoder.
const MOST_LITERALS: usize = 40_000;
const MOST_MATCHES: usize = 10_000;

/// Bits behind the code of a length of literals or of a match, or of a distance.
fn extra_bits(table: usize, symbol: usize) -> u8 {
    const OF_LITERALS: [u8; 4] = [2, 3, 5, 8];
    const OF_MATCHES: [u8; 4] = [3, 5, 8, 11];
    match (table, symbol.checked_sub(16)) {
        (0, Some(long)) => OF_LITERALS[long],
        (1, Some(long)) => OF_MATCHES[long],
        (2, _) => (symbol / 4) as u8,
        _ => 0,
    }
}

/// A state of a code: what it stands for, and how the next one comes of the bits that follow.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// The least that the symbol may mean, or the literal.
    base: u32,
    extra_bits: u8,
    bits: u8,
    next: u16,
}

/// The states of a code whose symbols have these frequencies.
fn states(table: usize, frequencies: &[u16]) -> Result<Vec<State>, Fault> {
    let count = STATES[table];
    let mut states = Vec::with_capacity(count);
    let mut base = 0_u32;
    for (symbol, &frequency) in frequencies.iter().enumerate() {
        let extra_bits = extra_bits(table, symbol);
        let frequency = usize::from(frequency);
        if states.len() + frequency > count {
            return Err(WRONG);
        }
        if frequency > 0 {
            let bits = (frequency.leading_zeros() - count.leading_zeros()) as u8;
            // Of the first ones, all bits are read; of the others, one fewer.
            let first = ((2 * count) >> bits) - frequency;
            let base = if table == 3 { symbol as u32 } else { base };
            for number in 0..frequency {
                let (bits, next) = if number < first {
                    (bits, ((frequency + number) << bits) - count)
                } else {
                    // With no bits, there is none but the first ones.
                    (bits.checked_sub(1).ok_or(WRONG)?, (number - first) << (bits - 1))
                };
                states.push(State { base, extra_bits, bits, next: next as u16 });
            }
        }
        base += 1 << extra_bits;
    }
    // What leads elsewhere is met by nobody who encodes.
    states.resize(count, State { bits: u8::MAX, ..State::default() });
    Ok(states)
}

/// Bits that are read from the end of some bytes.
struct Backwards<'b> {
    bytes: &'b [u8],
    bits: u64,
    count: u32,
}

impl<'b> Backwards<'b> {
    /// Of `bytes`, the last one has so many bits that are not used, at its top.
    fn new(bytes: &'b [u8], unused: u32) -> Result<Self, Fault> {
        let mut new = Self { bytes, bits: 0, count: 0 };
        new.fill();
        new.count = new.count.checked_sub(unused).ok_or(CUT)?;
        if new.count < u64::BITS && new.bits >> new.count != 0 { Err(WRONG) } else { Ok(new) }
    }

    fn fill(&mut self) {
        while self.count <= u64::BITS - 8
            && let Some((last, before)) = self.bytes.split_last()
        {
            (self.bits, self.bytes) = (self.bits << 8 | u64::from(*last), before);
            self.count += 8;
        }
    }

    /// At most 32.
    fn take(&mut self, bits: u32) -> Result<u32, Fault> {
        // Many codes have none where a symbol is frequent.
        if bits == 0 {
            return Ok(0);
        }
        if self.count < bits {
            self.fill();
        }
        self.count = self.count.checked_sub(bits).ok_or(CUT)?;
        let taken = self.bits >> self.count;
        self.bits &= (1_u64 << self.count) - 1;
        Ok(taken as u32)
    }

    /// What `state` stands for, which the next one takes the place of.
    fn value(&mut self, states: &[State], state: &mut u16) -> Result<u32, Fault> {
        let found = states.get(usize::from(*state)).filter(|found| found.bits != u8::MAX).ok_or(WRONG)?;
        *state = found.next.wrapping_add(self.take(found.bits.into())? as u16);
        Ok(found.base + self.take(found.extra_bits.into())?)
    }
}

/// The frequencies of all symbols, as the header of a block has them packed.
fn frequencies(packed: &[u8]) -> Result<Vec<u16>, Fault> {
    let all = SYMBOLS.iter().sum();
    let mut frequencies = Vec::with_capacity(all);
    let (mut bits, mut count, mut rest) = (0_u32, 0_u32, packed.iter());
    while frequencies.len() < all {
        while count <= 24
            && let Some(byte) = rest.next()
        {
            bits |= u32::from(*byte) << count;
            count += 8;
        }
        let (length, frequency) = match bits & 15 {
            0 | 4 | 8 | 12 => (2, 0),
            2 | 6 | 10 | 14 => (2, 1),
            1 | 9 => (3, 2),
            5 | 13 => (3, 3),
            3 | 11 => (5, 4 + (bits >> 3 & 3)),
            7 => (8, 8 + (bits >> 4 & 15)),
            _ => (14, 24 + (bits >> 4 & 0x3ff)),
        };
        count = count.checked_sub(length).ok_or(CUT)?;
        bits >>= length;
        frequencies.push(frequency as u16);
    }
    // Less than a byte is left.
    if count >= 8 || bits != 0 || rest.next().is_some() { Err(WRONG) } else { Ok(frequencies) }
}

/// Decodes a block of matches and literals whose header begins at `at`. Returns where it ends.
fn entropy_coded(stored: &[u8], at: usize, output: &mut Output<'_>) -> Result<usize, Fault> {
    let raw = word(stored, at + 4)? as usize;
    let [first, second, third] = [long(stored, at + 8)?, long(stored, at + 16)?, long(stored, at + 24)?];
    let field = |long: u64, at: u32, bits: u32| (long >> at) as usize & ((1 << bits) - 1);
    let (literals, literal_bytes, matches) = (field(first, 0, 20), field(first, 20, 20), field(first, 40, 20));
    // How many bits are not used is stored as minus that, and 7.
    let unused = |long: u64| 7_u32.checked_sub(field(long, 60, 3) as u32).ok_or(WRONG);
    let (literal_unused, match_unused, match_bytes) = (unused(first)?, unused(second)?, field(second, 40, 20));
    let header = field(third, 0, 32).checked_sub(32).ok_or(WRONG)?;
    let packed = part(stored, at + 32, header)?;
    // A code may take no bits. Literals are filled up to a multiple of four.
    if literals > raw.saturating_add(3) {
        return Err(WRONG);
    }
    if literals > MOST_LITERALS || !literals.is_multiple_of(4) || matches > MOST_MATCHES || raw == 0 {
        return Err(WRONG);
    }
    let frequencies = frequencies(packed)?;
    let mut rest = &frequencies[..];
    let mut tables = Vec::with_capacity(SYMBOLS.len());
    for (table, symbols) in SYMBOLS.into_iter().enumerate() {
        let (own, behind) = rest.split_at(symbols);
        tables.push(states(table, own)?);
        rest = behind;
    }
    let [of_literals, of_matches, of_distances, of_bytes] = &tables[..] else { return Err(WRONG) };
    let from = at + 32 + header;
    let mut reader = Backwards::new(part(stored, from, literal_bytes)?, literal_unused)?;
    let mut turns = [0, 10, 20, 30].map(|at| field(second, at, 10) as u16);
    let mut bytes = Vec::with_capacity(literals);
    while bytes.len() < literals {
        for state in &mut turns {
            bytes.push(reader.value(of_bytes, state)? as u8);
        }
    }
    let from = from + literal_bytes;
    let mut reader = Backwards::new(part(stored, from, match_bytes)?, match_unused)?;
    let [mut literal_state, mut match_state, mut distance_state] = [32, 42, 52].map(|at| field(third, at, 10) as u16);
    let (mut distance, mut passed, start) = (0, 0, output.end);
    for _ in 0..matches {
        let literals = reader.value(of_literals, &mut literal_state)? as usize;
        let matched = reader.value(of_matches, &mut match_state)? as usize;
        let new = reader.value(of_distances, &mut distance_state)? as usize;
        // Zero is the one before.
        distance = if new == 0 { distance } else { new };
        if literals == 0 && matched == 0 {
            // It may take no bits. Each of those that programs write gives some byte.
            return Err(WRONG);
        }
        output.literals(part(&bytes, passed, literals)?)?;
        passed += literals;
        if matched > 0 {
            output.copy(distance, matched)?;
        }
    }
    if output.end - start == raw { Ok(from + match_bytes) } else { Err("they have another length than they say") }
}

/// Decodes all blocks.
fn lzfse(stored: &[u8], output: &mut Output<'_>) -> Result<(), Fault> {
    let mut at = 0;
    loop {
        match part(stored, at, 4)? {
            b"bvx$" => return Ok(()),
            b"bvx-" => {
                let length = word(stored, at + 4)? as usize;
                output.literals(part(stored, at + 8, length)?)?;
                at += 8 + length;
            }
            b"bvxn" => {
                let (raw, length) = (word(stored, at + 4)? as usize, word(stored, at + 8)? as usize);
                let end = output.end.saturating_add(raw);
                lzvn(part(stored, at + 12, length)?, output)?;
                if output.end != end {
                    return Err("they have another length than they say");
                }
                at += 12 + length;
            }
            b"bvx2" => at = entropy_coded(stored, at, output)?,
            _ => return Err("a block of no known kind"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts() -> Vec<Vec<u8>> {
        let numbers: Vec<u8> = (0..60_000_u32).flat_map(|number| (number / 3).to_string().into_bytes()).collect();
        let mut seed = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        })
        .take(300_000)
        .collect();
        let mixed = [&numbers[..50_000], &noise[..10_000], &vec![0; 100_000], &numbers[..90_000]].concat();
        vec![
            b"hello".to_vec(),
            b"abcabcabcabcabcabc, and again: abcabcabc".repeat(30),
            numbers,
            noise,
            mixed,
            vec![7; 1 << 20],
        ]
    }

    /// Another implementation's encoder makes blocks of all kinds of these.
    #[test]
    fn what_another_program_has_made_is_decoded() {
        let mut kinds = std::collections::BTreeSet::new();
        for text in texts() {
            let mut stored = Vec::new();
            lzfse_rust::encode_bytes(&text, &mut stored).unwrap();
            kinds.insert(stored[..4].to_vec());
            let mut decoded = vec![0; text.len()];
            assert_eq!(LzfseBlock.decode(&stored, &mut decoded).unwrap(), text.len());
            assert!(decoded == text);
            let mut more = vec![0; text.len() + 9];
            assert_eq!(LzfseBlock.decode(&stored, &mut more).unwrap(), text.len());
            for room in [0, text.len() / 2, text.len() - 1] {
                let kind = LzfseBlock.decode(&stored, &mut vec![0; room]).unwrap_err().kind();
                assert_eq!(kind, io::ErrorKind::InvalidData);
            }
            for length in (0..stored.len()).step_by(stored.len() / 40 + 1) {
                assert!(LzfseBlock.decode(&stored[..length], &mut decoded).is_err(), "cut at {length}");
            }
            if stored.starts_with(b"bvxn") {
                let length = word(&stored, 8).unwrap() as usize;
                decoded.fill(0);
                assert_eq!(LzvnBlock.decode(&stored[12..12 + length], &mut decoded).unwrap(), text.len());
                assert!(decoded == text);
            }
        }
        assert_eq!(kinds.into_iter().collect::<Vec<_>>(), [b"bvx-", b"bvx2", b"bvxn"]);
    }

    /// Any bytes are an error or decode.
    #[test]
    fn what_is_damaged_leads_nowhere_bad() {
        for text in &texts()[1..3] {
            let mut stored = Vec::new();
            lzfse_rust::encode_bytes(text, &mut stored).unwrap();
            let mut decoded = vec![0; text.len()];
            let mut failed = 0;
            for place in (0..stored.len()).step_by(stored.len() / 600 + 1) {
                for bit in [1, 0x10, 0x80] {
                    let mut wrong = stored.clone();
                    wrong[place] ^= bit;
                    failed += u32::from(LzfseBlock.decode(&wrong, &mut decoded).is_err());
                    let _ = LzvnBlock.decode(&wrong[12..], &mut decoded);
                }
            }
            assert!(failed > 0);
        }
    }

    /// Codes of one symbol take no bits: a block may say that it has any number of matches.
    #[test]
    fn a_block_that_gives_nothing_is_refused() {
        let text: Vec<u8> = (0..9000_u32).flat_map(|number| number.to_string().into_bytes()).collect();
        let mut stored = Vec::new();
        lzfse_rust::encode_bytes(&text, &mut stored).unwrap();
        assert!(stored.starts_with(b"bvx2"));
        let mut decoded = vec![0; text.len()];
        // The number of matches, in bits 40 to 59 of the first field.
        let mut wrong = stored.clone();
        wrong[15] |= 0x0f;
        let error = LzfseBlock.decode(&wrong, &mut decoded).unwrap_err();
        assert!(error.to_string().contains(WRONG), "{error}");
        stored[4..8].fill(0);
        let error = LzfseBlock.decode(&stored, &mut decoded).unwrap_err();
        assert!(error.to_string().contains(WRONG), "{error}");
    }

    #[test]
    fn codes_of_lzvn_that_nobody_writes_are_errors() {
        let mut decoded = [0; 100];
        let end = [6, 0, 0, 0, 0, 0, 0, 0];
        let good = [&[0xe3][..], b"abc", &[0x0e, 0x16, 0xf2], &end].concat();
        // The distance of a match that says none is that of the one before, and there is none.
        assert!(LzvnBlock.decode(&good, &mut decoded).is_err());
        let good = [&[0xe3][..], b"abc", &[0x00, 3, 0xf2], &end].concat();
        assert_eq!(LzvnBlock.decode(&good, &mut decoded).unwrap(), 8);
        assert_eq!(&decoded[..8], b"abcabcab");
        for code in [0x70, 0x7e, 0xd0, 0xdf, 0x1e, 0x26, 0x2e, 0x36, 0x3e] {
            assert!(LzvnBlock.decode(&[&[code, 1, 1][..], &end].concat(), &mut decoded).is_err(), "{code:x}");
        }
        // A distance to before the start.
        assert!(LzvnBlock.decode(&[&[0xe3][..], b"abc", &[0x00, 4]].concat(), &mut decoded).is_err());
    }
}
