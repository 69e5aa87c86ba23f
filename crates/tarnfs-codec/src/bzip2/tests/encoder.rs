//! A plain encoder for blocks that no program writes any more, or never did.

use super::super::block::{BLOCK_MAGIC, END_MAGIC};
use super::super::crc::Crc;
use super::super::randomised;
use super::super::run_length::Expander;

/// One block of a stream, to be changed before it is written.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "each is another thing that can be wrong with a block")]
pub(super) struct Recipe {
    /// The block after the first run-length coding.
    pub(super) block: Vec<u8>,
    /// A text whose rows are sorted among those of the block. The walk from the origin meets none of them: it goes
    /// around the block again, until there are as many bytes as rows.
    pub(super) beside: Vec<u8>,
    pub(super) is_randomised: bool,
    /// Bits of the code of each symbol; all equal if empty.
    pub(super) lengths: Vec<u8>,
    /// Added to the true row.
    pub(super) origin_off_by: usize,
    /// Written behind the needed selectors.
    pub(super) more_selectors: usize,
    /// Bits written as further selectors: no six ones in a row.
    pub(super) hidden: Vec<bool>,
    pub(super) codes: u64,
    pub(super) level: u8,
    /// Added to the length that is written for the last run.
    pub(super) run_off_by: usize,
    /// The bits of the end are all ones.
    pub(super) ends_in_ones: bool,
    /// No byte is said to occur: the symbols are those for runs, and the end.
    pub(super) uses_nothing: bool,
    /// As if there were no symbols.
    pub(super) has_no_selectors: bool,
}

impl Recipe {
    pub(super) fn new(block: &[u8]) -> Self {
        Self {
            block: block.to_vec(),
            beside: Vec::new(),
            is_randomised: false,
            lengths: Vec::new(),
            origin_off_by: 0,
            more_selectors: 0,
            hidden: Vec::new(),
            codes: 2,
            level: 9,
            run_off_by: 0,
            ends_in_ones: false,
            uses_nothing: false,
            has_no_selectors: false,
        }
    }

    /// The bytes that the block stands for.
    pub(super) fn plain(&self) -> Vec<u8> {
        let text = around(&self.block, self.block.len() + self.beside.len());
        let mut plain = vec![0; 300 * text.len() + 1];
        let length = Expander::default().expand(&text, &mut plain);
        plain.truncate(length);
        plain
    }

    /// How many symbols the block has: two for runs, all bytes but one, the end.
    pub(super) fn alphabet(&self) -> usize {
        self.used().len() + 2
    }

    fn used(&self) -> Vec<u8> {
        if self.uses_nothing {
            return Vec::new();
        }
        let mut used = [self.sorted_from(), self.beside.clone()].concat();
        used.sort_unstable();
        used.dedup();
        used
    }

    /// What is sorted: the block, randomised if asked for.
    fn sorted_from(&self) -> Vec<u8> {
        let mut block = self.block.clone();
        if self.is_randomised {
            randomised::undo(&mut block);
        }
        block
    }

    /// A stream of this one block.
    pub(super) fn stream(&self) -> Vec<u8> {
        let mut crc = Crc::default();
        crc.update(&mut self.plain());
        let crc = u64::from(crc.finish());
        let mut bits = BitWriter::default();
        bits.write(0x0042_5a68, 24);
        bits.write(u64::from(b'0' + self.level), 8);
        bits.write(BLOCK_MAGIC, 48);
        bits.write(crc, 32);
        bits.write(u64::from(self.is_randomised), 1);
        self.write_block(&mut bits);
        bits.write(END_MAGIC, 48);
        bits.write(crc, 32);
        bits.finish()
    }

    fn write_block(&self, bits: &mut BitWriter) {
        let words = [self.sorted_from(), self.beside.clone()];
        let lengths = words.each_ref().map(Vec::len);
        let length = lengths.iter().sum::<usize>();
        let repeated = words.each_ref().map(|word| around(word, word.len() + length));
        let mut rows: Vec<_> = (0..2).flat_map(|word| (0..lengths[word]).map(move |at| (word, at))).collect();
        rows.sort_by_key(|&(word, at)| &repeated[word][at..at + length]);
        let origin = rows.iter().position(|&row| row == (0, 0)).unwrap();
        bits.write((origin + self.origin_off_by) as u64, 24);

        let used = self.used();
        let ranges: Vec<u8> = (0..16).filter(|range| used.iter().any(|byte| byte >> 4 == *range)).collect();
        (0..16).for_each(|range| bits.write(u64::from(ranges.contains(&range)), 1));
        for range in ranges {
            (0..16).for_each(|byte| bits.write(u64::from(used.contains(&(range << 4 | byte))), 1));
        }

        let last = rows.iter().map(|&(word, at)| repeated[word][at + lengths[word] - 1]);
        let mut symbols = if self.uses_nothing { vec![0] } else { symbols(last, used, self.run_off_by) };
        symbols.push(self.alphabet() - 1);
        let groups = symbols.len().div_ceil(50) + self.more_selectors;
        bits.write(self.codes, 3);
        if self.has_no_selectors {
            bits.write(0, 15);
            return;
        }
        // A zero ends each of them.
        let hidden: Vec<bool> = self.hidden.iter().copied().chain([false]).collect();
        let more = hidden.iter().filter(|&&bit| !bit).count();
        bits.write((groups + more) as u64, 15);
        (0..groups).for_each(|_| bits.write(0, 1));
        for &bit in &hidden {
            bits.write(u64::from(bit), 1);
        }

        let alphabet = self.alphabet();
        let equal = alphabet.next_power_of_two().trailing_zeros() as u8;
        let lengths = if self.lengths.is_empty() { vec![equal; alphabet] } else { self.lengths.clone() };
        for _ in 0..self.codes {
            write_lengths(bits, &lengths);
        }
        let mut codes = canonical(&lengths);
        if self.ends_in_ones {
            codes[alphabet - 1] = (1 << lengths[alphabet - 1]) - 1;
        }
        for symbol in symbols {
            bits.write(codes[symbol], u32::from(lengths[symbol]));
        }
    }
}

/// `length` bytes of a word that is repeated.
fn around(word: &[u8], length: usize) -> Vec<u8> {
    word.iter().copied().cycle().take(length).collect()
}

/// The second run-length coding of the positions in the move-to-front list. `more` is added to the last run.
fn symbols(bytes: impl Iterator<Item = u8>, mut list: Vec<u8>, more: usize) -> Vec<usize> {
    let (mut symbols, mut run) = (Vec::new(), 0_usize);
    let digits = |run: &mut usize, symbols: &mut Vec<usize>| {
        while *run > 0 {
            let digit = if *run % 2 == 1 { 1 } else { 2 };
            symbols.push(digit - 1);
            *run = (*run - digit) / 2;
        }
    };
    for byte in bytes {
        let position = list.iter().position(|&other| other == byte).unwrap();
        if position == 0 {
            run += 1;
            continue;
        }
        digits(&mut run, &mut symbols);
        symbols.push(position + 1);
        list[..=position].rotate_right(1);
    }
    run += more;
    digits(&mut run, &mut symbols);
    symbols
}

fn write_lengths(bits: &mut BitWriter, lengths: &[u8]) {
    let mut current = lengths[0];
    bits.write(u64::from(current), 5);
    for &length in lengths {
        while current != length {
            bits.write(if length > current { 0b10 } else { 0b11 }, 2);
            current = if length > current { current + 1 } else { current - 1 };
        }
        bits.write(0, 1);
    }
}

/// The codes, in the order of their lengths; those that do not fit wrap around.
fn canonical(lengths: &[u8]) -> Vec<u64> {
    let mut codes = vec![0; lengths.len()];
    let mut next = 0_u64;
    for length in 1..=20 {
        for (symbol, _) in lengths.iter().enumerate().filter(|&(_, &other)| other == length) {
            codes[symbol] = next & ((1 << length) - 1);
            next += 1;
        }
        next <<= 1;
    }
    codes
}

#[derive(Debug, Default)]
struct BitWriter {
    bytes: Vec<u8>,
    bits: usize,
}

impl BitWriter {
    fn write(&mut self, value: u64, count: u32) {
        for bit in (0..count).rev() {
            if self.bits.is_multiple_of(8) {
                self.bytes.push(0);
            }
            *self.bytes.last_mut().unwrap() |= ((value >> bit & 1) as u8) << (7 - self.bits % 8);
            self.bits += 1;
        }
    }

    fn finish(self) -> Vec<u8> {
        self.bytes
    }
}
