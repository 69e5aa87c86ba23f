//! Raw inflate (RFC 1951) that starts at any bit, stops at block boundaries, and gives and takes its history.
//!
//! Between two steps it keeps up to 7 bits of input and the last 32 KiB of output. Where input or output come to an
//! end in the middle of a symbol, the symbol is left in the input; a match that is longer than the output is kept.

use super::bits::BitReader;
use super::codes::{self, Codes, DISTANCE_BITS, END, HeaderError, LITERAL_BITS, SPECIAL, SUBTABLE};
use super::fast::{self, Stopped, copy_from_history};

/// The history that deflate data may refer to, in bytes (RFC 1951 §2).
pub(super) const WINDOW: usize = 32 << 10;

/// A step that gets this many bytes of input makes progress: the longest header of a block has 14 bits, 19 lengths of
/// 3, and 316 lengths of 14 bits.
pub(super) const LEAST_INPUT: usize = 1 << 10;

/// Bytes that the history may grow to, before the last [`WINDOW`] of it are moved to its front.
const HISTORY: usize = 3 * WINDOW;

/// What an [`Inflate`] over one history allocates: that history and the tables of codes.
pub(super) const MEMORY: usize = HISTORY + size_of::<Codes>() + (32 << 10);

/// An inflate without a wrapper around its data, over `N` histories at once: the symbols are the same, what they refer
/// to is not.
pub(super) struct Inflate<const N: usize = 1> {
    codes: Codes,
    block: Block,
    /// The block is the final one.
    last: bool,
    /// Bits of input that are taken, but not used: lowest first, at most 7, and how many.
    spare: (u8, u8),
    /// What is left of a match: its length and distance.
    pending: (usize, usize),
    /// What was written before, over each history: as much as is known of the last [`WINDOW`] bytes, or more.
    histories: [Vec<u8>; N],
    /// How many bytes of the histories are not in the outputs of this step.
    before: usize,
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
    /// Nowhere but behind a stored block that leaves no room: nobody can tell later that it ended there.
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
    pub(super) place: InflateState,
}

/// Where an inflate stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InflateState {
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

impl<const N: usize> Inflate<N> {
    /// An inflate at the start of deflate data.
    pub(super) fn new() -> Self {
        Self {
            codes: Codes::new(),
            block: Block::Header,
            last: false,
            spare: (0, 0),
            pending: (0, 0),
            histories: std::array::from_fn(|_| Vec::with_capacity(HISTORY)),
            before: 0,
        }
    }

    /// Goes back to the start of deflate data, without history.
    pub(super) fn reset(&mut self) {
        (self.block, self.last, self.spare, self.pending) = (Block::Header, false, (0, 0), (0, 0));
        self.histories.iter_mut().for_each(Vec::clear);
    }

    /// Goes to a block boundary inside a byte: `value` holds the `bits` (0 to 7) that the next block begins with,
    /// first bit lowest.
    pub(super) fn prime(&mut self, bits: u8, value: u8) {
        self.spare = (value, bits);
    }

    /// Takes the last [`WINDOW`] bytes of each of `windows` as its history.
    pub(super) fn set_windows(&mut self, windows: [&[u8]; N]) {
        for (history, window) in self.histories.iter_mut().zip(windows) {
            history.clear();
            history.extend(&window[window.len().saturating_sub(WINDOW)..]);
        }
    }

    /// Decodes from `input` to `outputs`, one for each history and all of one length, until one is used up, the data
    /// ends, or `stop` says so. The first `start` bytes of the outputs are what was decoded last.
    ///
    /// A few bytes of input may be left: the next step has to get them again, with what follows them. Bytes of the
    /// outputs behind those written may be changed.
    pub(super) fn step(&mut self, input: &[u8], mut outputs: [&mut [u8]; N], start: usize, stop: Stop) -> Step {
        let (bits, count) = self.spare;
        let mut reader = BitReader::new(bits, count, input);
        let known = self.histories.iter().map(Vec::len).min().unwrap_or(0);
        let both = start.min(known);
        self.before = known - both;
        for output in &mut outputs {
            *output = &mut std::mem::take(output)[start - both..];
        }
        let mut written = both;
        let mut place = self.run(&mut reader, &mut outputs, &mut written, stop);
        self.spare = reader.put_back();
        if let InflateState::Boundary { spare_bits } = &mut place {
            *spare_bits = self.spare.1;
        }
        for (history, output) in self.histories.iter_mut().zip(outputs) {
            remember(history, &output[both..written]);
        }
        Step { read: reader.next, written: written - both, place }
    }

    fn run(
        &mut self,
        reader: &mut BitReader,
        outputs: &mut [&mut [u8]; N],
        written: &mut usize,
        stop: Stop,
    ) -> InflateState {
        let room = fast::room_in(outputs);
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
                            return InflateState::Inside;
                        }
                        Err(HeaderError::Invalid(what)) => return InflateState::Invalid(what),
                    }
                }
                Block::Stored(rest) => {
                    let input = &reader.input[reader.next..];
                    let length = rest.min(input.len()).min(room - *written);
                    for output in outputs.iter_mut() {
                        output[*written..][..length].copy_from_slice(&input[..length]);
                    }
                    *written += length;
                    reader.next += length;
                    self.block = Block::Stored(rest - length);
                    if rest > length {
                        return InflateState::Inside;
                    }
                    self.block = Block::Header;
                    if (stop == Stop::AtBlock || *written == room) && !self.last {
                        return InflateState::Boundary { spare_bits: 0 };
                    }
                }
                Block::Compressed => match self.symbols(reader, outputs, room, written) {
                    Stopped::Margin => return InflateState::Inside,
                    Stopped::Invalid(what) => return InflateState::Invalid(what),
                    Stopped::BlockEnd => {
                        self.block = Block::Header;
                        if stop == Stop::AtBlock && !self.last {
                            return InflateState::Boundary { spare_bits: 0 };
                        }
                    }
                },
                Block::End => return InflateState::End,
            }
        }
    }

    fn header(&mut self, reader: &mut BitReader) -> Result<(), HeaderError> {
        let (is_last, kind) = block_header(reader, &mut self.codes)?;
        self.last = is_last;
        self.block = match kind {
            BlockKind::Stored(length) => Block::Stored(length),
            BlockKind::Compressed => Block::Compressed,
        };
        Ok(())
    }

    /// Decodes symbols until the block, the input or the room for output ends.
    fn symbols(
        &mut self,
        reader: &mut BitReader,
        outputs: &mut [&mut [u8]; N],
        room: usize,
        written: &mut usize,
    ) -> Stopped {
        loop {
            let (length, distance) = self.pending;
            let part = length.min(room - *written);
            if part > 0 {
                for (output, history) in outputs.iter_mut().zip(&self.histories) {
                    copy_match(output, *written, &history[..self.before], part, distance);
                }
                *written += part;
                self.pending.0 -= part;
            }
            if *written == room {
                return Stopped::Margin;
            }
            let histories = self.histories.each_ref().map(|history| &history[..self.before]);
            match fast::decode(&self.codes, reader, outputs, written, &histories) {
                Stopped::Margin => {}
                stopped => return stopped,
            }
            match self.symbol(reader, outputs, written) {
                Ok(true) => {}
                Ok(false) => return Stopped::Margin,
                Err(stopped) => return stopped,
            }
        }
    }

    /// Decodes one symbol, at the ends of input or output; false if the input ends in it. A match becomes pending.
    fn symbol(
        &mut self,
        reader: &mut BitReader,
        outputs: &mut [&mut [u8]; N],
        written: &mut usize,
    ) -> Result<bool, Stopped> {
        reader.refill();
        let Some((literals, distances)) = self.codes.tables() else { return Err(Stopped::Invalid("no codes")) };
        let mut code = reader.buffer;
        let mut used = 0;
        let mut take = |code: &mut u64, count| {
            *code >>= count;
            used += count;
            used
        };
        let mut entry = literals.entry(code);
        if entry & SUBTABLE != 0 {
            entry = literals.in_subtable(entry, code);
            take(&mut code, LITERAL_BITS);
        }
        if codes::literals(entry) > 0 {
            // What else the entry stands for may be beyond the ends.
            let [literal, _] = codes::bytes(entry);
            let used = self.codes.bits_of(literal);
            if used > reader.count {
                return Ok(false);
            }
            for output in outputs {
                output[*written] = literal;
            }
            *written += 1;
            reader.consume(used);
            return Ok(true);
        }
        let length = codes::length(entry, code);
        let used = take(&mut code, codes::takes(entry));
        if entry & SPECIAL != 0 {
            if used > reader.count {
                return Ok(false);
            }
            reader.consume(used);
            return Err(if entry & END == 0 {
                Stopped::Invalid("invalid literal/length code")
            } else {
                Stopped::BlockEnd
            });
        }
        let mut entry = distances.entry(code);
        if entry & SUBTABLE != 0 {
            entry = distances.in_subtable(entry, code);
            take(&mut code, DISTANCE_BITS);
        }
        let distance = codes::distance(entry, code);
        let used = take(&mut code, codes::takes(entry));
        if used > reader.count {
            return Ok(false);
        }
        if entry & SPECIAL != 0 {
            return Err(Stopped::Invalid("invalid distance code"));
        }
        if distance > *written + self.before {
            return Err(Stopped::Invalid("invalid distance too far back"));
        }
        self.pending = (length, distance);
        reader.consume(used);
        Ok(true)
    }
}

impl Inflate {
    /// The history: the last bytes written, at most [`WINDOW`].
    pub(super) fn window(&self) -> &[u8] {
        let [history] = &self.histories;
        &history[history.len().saturating_sub(WINDOW)..]
    }
}

impl Inflate<2> {
    /// Goes on over the first history alone.
    pub(super) fn into_first(self) -> Inflate {
        let Self { codes, block, last, spare, pending, histories: [first, _], before } = self;
        Inflate { codes, block, last, spare, pending, histories: [first], before }
    }
}

/// What a block holds.
pub(super) enum BlockKind {
    /// So many bytes as they are.
    Stored(usize),
    /// Symbols.
    Compressed,
}

/// Reads the header of a block (RFC 1951 §3.2.3), with the codes of its symbols: true if it is the final one, and what
/// it holds.
pub(super) fn block_header(reader: &mut BitReader, codes: &mut Codes) -> Result<(bool, BlockKind), HeaderError> {
    let mut bits = |count| reader.bits(count).ok_or(HeaderError::Short);
    let is_last = bits(1)? == 1;
    let kind = match bits(2)? {
        0 => {
            reader.align();
            let lengths = reader.bits(32).ok_or(HeaderError::Short)?;
            let (length, complement) = (lengths as u16, (lengths >> 16) as u16);
            if length != !complement {
                return Err(HeaderError::Invalid("invalid stored block lengths"));
            }
            reader.align();
            BlockKind::Stored(usize::from(length))
        }
        1 => {
            codes.set_fixed();
            BlockKind::Compressed
        }
        2 => {
            codes.read_dynamic(reader)?;
            BlockKind::Compressed
        }
        _ => return Err(HeaderError::Invalid("invalid block type")),
    };
    Ok((is_last, kind))
}

/// Adds what was written to a history.
fn remember(history: &mut Vec<u8>, written: &[u8]) {
    if let Some(window) = written.last_chunk::<WINDOW>() {
        history.clear();
        history.extend(window);
        return;
    }
    if history.len() + written.len() > HISTORY {
        history.drain(..history.len() - WINDOW);
    }
    history.extend(written);
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
