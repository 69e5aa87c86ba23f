//! One block: from its magic to the bytes before the first run-length coding.

use std::io;

use super::bit_reader::BitReader;
use super::crc::Crc;
use super::groups::{CODES, GROUP, Groups, SHORT_RUN};
use super::huffman::{Code, LONGEST, SYMBOLS};
use super::inverse_bwt::{Inverter, ROWS, Rows};
use super::move_to_front::{MoveToFront, Portable};
use super::partial::{Mark, Partial, SPACING};
use super::randomised;
use super::run_length::Expander;

/// The 48 bits at the start of a block: digits of pi.
pub(super) const BLOCK_MAGIC: u64 = 0x3141_5926_5359;

/// The 48 bits at the end of a stream: digits of the square root of pi.
pub(super) const END_MAGIC: u64 = 0x1772_4538_5090;

/// Bits of both.
pub(super) const MAGIC_BITS: usize = 48;

/// The largest level: assumed where nothing says which one it is.
pub(super) const TOP_LEVEL: u8 = 9;

/// Bytes of a block, before its second run-length coding, for each level.
pub(super) const LEVEL_SIZE: usize = 100_000;

/// Groups of a full block, and one in which it ends. Some programs write more selectors, which mean nothing.
const GROUPS: usize = 9 * LEVEL_SIZE / GROUP + 2;

/// The memory to decode blocks with.
#[derive(Debug)]
pub(super) struct Workbench {
    rows: Rows,
    inverter: Inverter,
    codes: Vec<Code>,
    selectors: Vec<u8>,
}

/// A decoded block.
#[derive(Debug, Default)]
pub(super) struct Block {
    text: Vec<u8>,
    expander: Expander,
    /// Decoded bytes that have not been read yet.
    remaining: u64,
    /// Where a reader can begin that wants a part of it; none for a block that was not checked.
    marks: Vec<Mark>,
}

/// What comes before the text of a block.
struct Start {
    stated: u32,
    is_randomised: bool,
    origin: usize,
    length: usize,
    counts: [u32; 256],
}

/// What a block says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Checked {
    /// Length in decoded bytes.
    pub(super) length: u64,
    /// The CRC that the block states.
    pub(super) stated: u32,
    /// The CRC of its decoded bytes.
    pub(super) computed: u32,
}

impl Workbench {
    pub(super) fn new() -> Self {
        Self {
            rows: Rows::new(),
            inverter: Inverter::default(),
            codes: vec![Code::EMPTY; CODES],
            selectors: Vec::with_capacity(GROUPS),
        }
    }

    /// Decodes the block behind the magic at which `reader` stands. It may have at most `most` bytes before the first
    /// run-length coding is undone (which makes up to 52 times as many). Whatever `block` holds, its memory is used.
    pub(super) fn decode(&mut self, reader: &mut BitReader, most: usize, block: &mut Block) -> io::Result<Checked> {
        block.text.clear();
        block.marks.clear();
        (block.expander, block.remaining) = (Expander::default(), 0);
        let Start { stated, is_randomised, origin, length, counts } = self.read_rows(reader, most)?;
        self.inverter.invert(&mut self.rows, length, origin, &counts, &mut block.text);
        if is_randomised {
            randomised::undo(&mut block.text);
        } else {
            block.set_marks(&self.inverter);
        }
        let Some((length, computed)) = block.check() else {
            return Err(reader.damaged("the last run of a block has no count"));
        };
        block.remaining = length;
        Ok(Checked { length, stated, computed })
    }

    /// Begins with the block behind the magic at which `reader` stands, to be read from its decoded byte `from` on,
    /// where a first pass has found `marks` in it. Nothing is checked but that it has the length that they say.
    pub(super) fn begin(
        &mut self,
        reader: &mut BitReader,
        most: usize,
        marks: Vec<Mark>,
        from: u64,
    ) -> io::Result<Partial> {
        let Start { is_randomised, length, counts, .. } = self.read_rows(reader, most)?;
        if is_randomised || marks.last().is_none_or(|last| last.text != length) {
            return Err(reader.damaged("a block is not the one that was there when the archive was indexed"));
        }
        Ok(Partial::new(marks, &counts, from))
    }

    /// The rows of the block that was begun with.
    pub(super) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Reads all but the text.
    fn read_rows(&mut self, reader: &mut BitReader, most: usize) -> io::Result<Start> {
        let stated = reader.take(32)? as u32;
        let is_randomised = reader.take(1)? == 1;
        let origin = reader.take(24)? as usize;
        let used = self.read_header(reader)?;
        let most = most.min(ROWS - 2 * SHORT_RUN);
        let groups = Groups { codes: &self.codes, selectors: &self.selectors, used: &used, most };
        let (length, counts) = groups.read(reader, self.rows.entries())?;
        if origin >= length {
            return Err(reader.damaged(&format!("the origin of a block is row {origin} of {length}")));
        }
        Ok(Start { stated, is_randomised, origin, length, counts })
    }

    /// Bytes of memory in use.
    pub(super) fn memory(&self) -> usize {
        ROWS * size_of::<u32>() + size_of::<Code>() * CODES + self.selectors.capacity() + self.inverter.memory()
    }

    /// Reads the bytes in use, the selectors and the codes. Returns the first and sets the others.
    fn read_header(&mut self, reader: &mut BitReader) -> io::Result<Vec<u8>> {
        let ranges = reader.take(16)?;
        let mut used = Vec::with_capacity(256);
        for range in (0..16_u8).filter(|range| ranges >> (15 - range) & 1 == 1) {
            let bytes = reader.take(16)?;
            used.extend((0..16_u8).filter(|byte| bytes >> (15 - byte) & 1 == 1).map(|byte| range << 4 | byte));
        }
        if used.is_empty() {
            return Err(reader.damaged("a block uses no bytes"));
        }
        let alphabet = used.len() + 2;

        let codes = reader.take(3)? as usize;
        if !(2..=CODES).contains(&codes) {
            return Err(reader.damaged(&format!("a block has {codes} Huffman codes")));
        }
        let selectors = reader.take(15)?;
        if selectors == 0 {
            return Err(reader.damaged("a block has no selectors"));
        }
        self.selectors.clear();
        let mut recent = Portable::new(&[0, 1, 2, 3, 4, 5]);
        for _ in 0..selectors {
            // As many ones as the position, then a zero.
            let bits = reader.peek(CODES)?.ok_or_else(|| reader.cut())?;
            let position = (bits << (64 - CODES)).leading_ones() as usize;
            if position >= codes {
                return Err(reader.damaged("a selector chooses a Huffman code that the block does not have"));
            }
            reader.take(position + 1)?;
            let code = recent.take(position);
            if self.selectors.len() < GROUPS {
                self.selectors.push(code);
            }
        }

        for code in &mut self.codes[..codes] {
            let mut lengths = [0; SYMBOLS];
            let mut length = reader.take(5)? as usize;
            for symbol in &mut lengths[..alphabet] {
                loop {
                    if !(1..=LONGEST).contains(&length) {
                        return Err(reader.damaged(&format!("the length of a Huffman code is {length}")));
                    }
                    if reader.take(1)? == 0 {
                        break;
                    }
                    length = if reader.take(1)? == 0 { length + 1 } else { length - 1 };
                }
                *symbol = length as u8;
            }
            if !code.set(&lengths[..alphabet]) {
                return Err(reader.damaged("a Huffman code has more symbols than its lengths allow"));
            }
        }
        Ok(used)
    }
}

impl Block {
    /// Marks about [`SPACING`] bytes apart, not where a run may go on; how many decoded bytes are before each is not
    /// yet known.
    fn set_marks(&mut self, inverter: &Inverter) {
        let mut last = usize::MAX;
        for (at, row) in inverter.walks(self.text.len()) {
            let is_in_run = at < self.text.len() && self.text[at] == self.text[at - 1];
            if last - at >= SPACING && !is_in_run {
                self.marks.push(Mark { text: at, decoded: 0, row });
                last = at;
            }
        }
        self.marks.reverse();
    }

    /// Length and CRC of the decoded bytes; `None` if the last run is not whole. They can be 46 MB, so they are not
    /// kept but made again when read. Completes the marks.
    fn check(&mut self) -> Option<(u64, u32)> {
        let mut buffer = [0; 16 << 10];
        let (mut expander, mut crc, mut length) = (Expander::default(), Crc::default(), 0_u64);
        let mut up_to = |text: &[u8], expander: &mut Expander, crc: &mut Crc, length: &mut u64| {
            loop {
                let count = expander.expand(text, &mut buffer);
                crc.update(&mut buffer[..count]);
                *length += count as u64;
                if count < buffer.len() {
                    return;
                }
            }
        };
        let text = &self.text;
        self.marks.retain_mut(|mark| {
            if mark.text == text.len() {
                return true;
            }
            let before = (expander, crc.clone(), length);
            up_to(&text[..mark.text], &mut expander, &mut crc, &mut length);
            let is_free = expander.is_between_runs(mark.text);
            if is_free {
                mark.decoded = length;
            } else {
                // What was read there is the count of a run.
                (expander, crc, length) = before;
            }
            is_free
        });
        up_to(text, &mut expander, &mut crc, &mut length);
        if let Some(last) = self.marks.last_mut().filter(|last| last.text == text.len()) {
            last.decoded = length;
        }
        (!expander.lacks_count(text)).then(|| (length, crc.finish()))
    }

    /// Where a reader can begin; the last one is at the end. None if it can only begin at the start.
    pub(super) fn marks(&self) -> &[Mark] {
        if self.marks.len() > 1 { &self.marks } else { &[] }
    }

    /// Moves decoded bytes into `buffer` and returns how many; 0 if all have been read.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> usize {
        let count = self.expander.expand(&self.text, buffer);
        self.remaining = self.remaining.saturating_sub(count as u64);
        count
    }

    /// True if all decoded bytes have been read.
    pub(super) fn is_empty(&self) -> bool {
        self.remaining == 0
    }

    /// Bytes before the first run-length coding was undone.
    pub(super) fn size(&self) -> usize {
        self.text.len()
    }

    /// Bytes of memory in use.
    pub(super) fn memory(&self) -> usize {
        self.text.capacity() + self.marks.capacity() * size_of::<Mark>()
    }
}
