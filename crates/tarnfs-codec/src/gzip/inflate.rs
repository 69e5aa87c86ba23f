//! Raw inflate (RFC 1951) that starts at any bit, stops at block boundaries, and gives and takes its history.
//!
//! Between two steps it keeps up to 7 bits of input and the last 32 KiB of output. Where input or output come to an
//! end in the middle of a symbol, the symbol is left in the input; a match that is longer than the output is kept.

use super::bits::BitReader;
use super::codes::{Codes, DISTANCE_BITS, END, HeaderError, LITERAL, LITERAL_BITS, SPECIAL, SUBTABLE, value};
use super::fast::{self, Stopped, copy_from_history};

/// The history that deflate data may refer to, in bytes (RFC 1951 §2).
pub(super) const WINDOW: usize = 32 << 10;

/// A step that gets this many bytes of input makes progress: the longest header of a block has 14 bits, 19 lengths of
/// 3, and 316 lengths of 14 bits.
pub(super) const LEAST_INPUT: usize = 1 << 10;

/// Bytes that the history may grow to, before the last [`WINDOW`] of it are moved to its front.
const HISTORY: usize = 3 * WINDOW;

/// What an [`Inflate`] allocates: the history and the tables of codes.
pub(super) const MEMORY: usize = HISTORY + size_of::<Codes>() + (28 << 10);

/// An inflate without a wrapper around its data.
pub(super) struct Inflate {
    codes: Codes,
    block: Block,
    /// The block is the final one.
    last: bool,
    /// Bits of input that are taken, but not used: lowest first, at most 7, and how many.
    spare: (u8, u8),
    /// What is left of a match: its length and distance.
    pending: (usize, usize),
    /// What was written before: as much as is known of the last [`WINDOW`] bytes, or more.
    history: Vec<u8>,
}

/// What comes next in the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    /// The header of a block, or the end if the last one was final.
    Header,
    /// So many stored bytes.
    Stored(usize),
    /// Symbols in the codes.
    Compressed,
    /// Nothing.
    End,
}

/// Where to stop before input or room for output runs out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Nowhere.
    Never,
    /// Behind each block.
    AtBlock,
}

/// What one [`Inflate::step`] did.
#[derive(Debug)]
pub(super) struct Step {
    /// Bytes taken from the input.
    pub(super) read: usize,
    /// Bytes written to the output.
    pub(super) written: usize,
    /// Where it stands now.
    pub(super) place: Place,
}

/// Where an inflate stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In a block; it needs more input than it got, or room for output.
    Inside,
    /// Between two blocks: `spare_bits` (0 to 7) of the last byte taken are not used yet.
    Boundary {
        /// How many of the last byte's upper bits belong to the next block.
        spare_bits: u8,
    },
    /// Behind the final block, at a whole byte.
    End,
    /// The data is not deflate data.
    Invalid(&'static str),
}

impl Inflate {
    /// An inflate at the start of deflate data.
    pub(super) fn new() -> Self {
        Self {
            codes: Codes::new(),
            block: Block::Header,
            last: false,
            spare: (0, 0),
            pending: (0, 0),
            history: Vec::with_capacity(HISTORY),
        }
    }

    /// Goes back to the start of deflate data, without history.
    pub(super) fn reset(&mut self) {
        (self.block, self.last, self.spare, self.pending) = (Block::Header, false, (0, 0), (0, 0));
        self.history.clear();
    }

    /// Goes to a block boundary inside a byte: `value` holds the `bits` (0 to 7) that the next block begins with,
    /// first bit lowest.
    pub(super) fn prime(&mut self, bits: u8, value: u8) {
        self.spare = (value, bits);
    }

    /// Takes the last [`WINDOW`] bytes of `window` as the history.
    pub(super) fn set_window(&mut self, window: &[u8]) {
        self.history.clear();
        self.history.extend(&window[window.len().saturating_sub(WINDOW)..]);
    }

    /// The history: the last bytes written, at most [`WINDOW`].
    pub(super) fn window(&self) -> &[u8] {
        &self.history[self.history.len().saturating_sub(WINDOW)..]
    }

    /// Decodes from `input` to `output` until one is used up, the data ends, or `stop` says so.
    ///
    /// A few bytes of input may be left: the next step has to get them again, with what follows them. Bytes of the
    /// output behind those written may be changed.
    pub(super) fn step(&mut self, input: &[u8], output: &mut [u8], stop: Stop) -> Step {
        let (bits, count) = self.spare;
        let mut reader = BitReader::new(bits, count, input);
        let mut written = 0;
        let mut place = self.run(&mut reader, output, &mut written, stop);
        self.spare = reader.put_back();
        if let Place::Boundary { spare_bits } = &mut place {
            *spare_bits = self.spare.1;
        }
        self.remember(&output[..written]);
        Step { read: reader.next, written, place }
    }

    fn run(&mut self, reader: &mut BitReader, output: &mut [u8], written: &mut usize, stop: Stop) -> Place {
        loop {
            match self.block {
                Block::Header if self.last => {
                    reader.align();
                    self.block = Block::End;
                }
                Block::Header => {
                    let start = (reader.next, reader.buffer, reader.count);
                    match self.header(reader) {
                        Ok(()) => {}
                        Err(HeaderError::Short) => {
                            (reader.next, reader.buffer, reader.count) = start;
                            self.last = false;
                            return Place::Inside;
                        }
                        Err(HeaderError::Invalid(what)) => return Place::Invalid(what),
                    }
                }
                Block::Stored(rest) => {
                    let input = &reader.input[reader.next..];
                    let length = rest.min(input.len()).min(output.len() - *written);
                    output[*written..][..length].copy_from_slice(&input[..length]);
                    *written += length;
                    reader.next += length;
                    self.block = Block::Stored(rest - length);
                    if rest > length {
                        return Place::Inside;
                    }
                    self.block = Block::Header;
                    if stop == Stop::AtBlock && !self.last {
                        return Place::Boundary { spare_bits: 0 };
                    }
                }
                Block::Compressed => match self.symbols(reader, output, written) {
                    Stopped::Margin => return Place::Inside,
                    Stopped::Invalid(what) => return Place::Invalid(what),
                    Stopped::BlockEnd => {
                        self.block = Block::Header;
                        if stop == Stop::AtBlock && !self.last {
                            return Place::Boundary { spare_bits: 0 };
                        }
                    }
                },
                Block::End => return Place::End,
            }
        }
    }

    /// Reads the header of a block (RFC 1951 §3.2.3).
    fn header(&mut self, reader: &mut BitReader) -> Result<(), HeaderError> {
        let mut bits = |count| reader.bits(count).ok_or(HeaderError::Short);
        self.last = bits(1)? == 1;
        match bits(2)? {
            0 => {
                reader.align();
                let lengths = reader.bits(32).ok_or(HeaderError::Short)?;
                let (length, complement) = (lengths as u16, (lengths >> 16) as u16);
                if length != !complement {
                    return Err(HeaderError::Invalid("invalid stored block lengths"));
                }
                reader.align();
                self.block = Block::Stored(usize::from(length));
            }
            1 => {
                self.codes.set_fixed();
                self.block = Block::Compressed;
            }
            2 => {
                self.codes.read_dynamic(reader)?;
                self.block = Block::Compressed;
            }
            _ => return Err(HeaderError::Invalid("invalid block type")),
        }
        Ok(())
    }

    /// Decodes symbols until the block, the input or the room for output ends.
    fn symbols(&mut self, reader: &mut BitReader, output: &mut [u8], written: &mut usize) -> Stopped {
        loop {
            let (length, distance) = self.pending;
            let part = length.min(output.len() - *written);
            if part > 0 {
                copy_match(output, *written, &self.history, part, distance);
                *written += part;
                self.pending.0 -= part;
            }
            if *written == output.len() {
                return Stopped::Margin;
            }
            match fast::decode(&self.codes, reader, output, written, &self.history) {
                Stopped::Margin => {}
                stopped => return stopped,
            }
            match self.symbol(reader, output, written) {
                Ok(true) => {}
                Ok(false) => return Stopped::Margin,
                Err(stopped) => return stopped,
            }
        }
    }

    /// Decodes one symbol, at the ends of input or output; false if the input ends in it. A match becomes pending.
    fn symbol(&mut self, reader: &mut BitReader, output: &mut [u8], written: &mut usize) -> Result<bool, Stopped> {
        reader.refill();
        let Some((literals, distances)) = self.codes.tables() else { return Err(Stopped::Invalid("no codes")) };
        let (mut bits, mut used) = (reader.buffer, 0);
        let mut take = |count| {
            bits >>= count;
            used += count;
            bits
        };
        let mut entry = literals.entry(reader.buffer);
        let mut code = reader.buffer;
        if entry & SUBTABLE != 0 {
            entry = literals.in_subtable(entry, code);
            code = take(LITERAL_BITS);
        }
        let length = value(entry, code);
        code = take(entry & 0xff);
        if entry & (LITERAL | SPECIAL) == 0 {
            let mut entry = distances.entry(code);
            if entry & SUBTABLE != 0 {
                entry = distances.in_subtable(entry, code);
                code = take(DISTANCE_BITS);
            }
            let distance = value(entry, code);
            take(entry & 0xff);
            if used > reader.count {
                return Ok(false);
            }
            if entry & SPECIAL != 0 {
                return Err(Stopped::Invalid("invalid distance code"));
            }
            if distance > *written + self.history.len() {
                return Err(Stopped::Invalid("invalid distance too far back"));
            }
            self.pending = (length, distance);
        } else if used > reader.count {
            return Ok(false);
        } else if entry & LITERAL != 0 {
            output[*written] = (entry >> 16) as u8;
            *written += 1;
        } else if entry & END == 0 {
            return Err(Stopped::Invalid("invalid literal/length code"));
        }
        reader.consume(used);
        if entry & (SPECIAL | END) == SPECIAL | END { Err(Stopped::BlockEnd) } else { Ok(true) }
    }

    /// Adds what was written to the history.
    fn remember(&mut self, written: &[u8]) {
        if written.len() >= WINDOW {
            self.set_window(written);
            return;
        }
        if self.history.len() + written.len() > HISTORY {
            self.history.drain(..self.history.len() - WINDOW);
        }
        self.history.extend(written);
    }
}

/// Copies `length` bytes from `distance` before `at`, which may be before `output`.
fn copy_match(output: &mut [u8], at: usize, history: &[u8], length: usize, distance: usize) {
    if distance > at {
        copy_from_history(output, at, history, length, distance);
    } else {
        for position in at..at + length {
            output[position] = output[position - distance];
        }
    }
}
