//! Streams of blocks, from the start of a file or from a seek point.

use std::cmp::Ordering;
use std::io;

use tarnfs_source::{Cancel, SharedSource};

use super::ahead::{Ahead, Decoded};
use super::bit_reader::BitReader;
use super::block::{BLOCK_MAGIC, Block, Checked, END_MAGIC, LEVEL_SIZE, MAGIC_BITS, TOP_LEVEL, Workbench};
use super::crc;
use super::finder::Finder;
use super::partial::{self, Mark, Partial};
use crate::faults::again;
use crate::{Damage, Decoder, FILLER, Findings, FirstPass, Options, SeekPoint};

/// Version of a seek point's state: one byte, followed by the level of the stream (1 to 9).
const STATE_VERSION: u8 = 1;

/// The same, and then marks in the block ([`partial`]).
const STATE_WITH_MARKS: u8 = 2;

/// Bits of the start of a stream: "BZh" and the digit of the level.
const HEADER_BITS: usize = 32;

/// Bytes that stand for a block that cannot be decoded: some, so that no decoder that stands before it is used behind
/// it.
const GAP: usize = 512;

/// What the next bits should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// The first stream: anything else is an error.
    FirstStream,
    /// A seek point: a block, the end of a stream, or the start of one.
    Anything,
    /// A block or the end of the stream.
    Block,
    /// Another stream, or the end of the file.
    AnotherStream,
    /// Nothing: all was read.
    Nothing,
}

/// Decodes blocks one after the other.
pub(super) struct BlockDecoder {
    source: SharedSource,
    reader: BitReader,
    bench: Workbench,
    block: Block,
    /// Marks in the block at which it was resumed, and that block once a part of it is read.
    marks: Option<Vec<Mark>>,
    part: Option<Partial>,
    /// Decodes blocks on other threads.
    ahead: Option<Ahead>,
    expected: Expected,
    level: u8,
    /// Decoded bytes before the block at hand.
    decoded: u64,
    length: u64,
    /// Bytes still to be handed out for a block that could not be decoded.
    gap: usize,
    /// Finds the block behind one that cannot be decoded.
    finder: Option<Finder>,
    /// Bytes that were looked through a second time.
    reread: u64,
    /// A resumed decoder returns blocks that fail their check.
    unverified: bool,
    /// The bit at which the last block ends that is wanted, or what follows it.
    end: Option<u64>,
    /// The error that ended it.
    failed: Option<io::Error>,
    /// What only a first pass collects.
    first_pass: Option<Survey>,
}

#[derive(Debug, Default)]
struct Survey {
    findings: Findings,
    cancel: Cancel,
    /// The CRC of the blocks of this stream so far.
    stream: u32,
}

impl BlockDecoder {
    /// From the start of `source`, collecting seek points.
    pub(super) fn first_pass(source: SharedSource, options: &Options) -> Self {
        let survey = Survey { cancel: options.cancel.clone(), ..Survey::default() };
        let ahead = Ahead::new(SharedSource::clone(&source), options);
        Self { first_pass: Some(survey), ahead, ..Self::new(source, 0, Expected::FirstStream) }
    }

    /// From `point` of `source` on.
    pub(super) fn resume(source: SharedSource, point: &SeekPoint) -> io::Result<Self> {
        let with_marks = |level, marks| Some((level, Some(partial::load(marks)?)));
        let state = match &*point.state {
            [] => Some((TOP_LEVEL, None)),
            [STATE_VERSION, level @ 1..=TOP_LEVEL] => Some((*level, None)),
            [STATE_WITH_MARKS, level @ 1..=TOP_LEVEL, marks @ ..] => with_marks(*level, marks),
            _ => None,
        };
        let Some((level, marks)) = state else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "{}: the state of the seek point at bit {} is not one of a bzip2 stream",
                    source.describe(),
                    point.compressed_bit
                ),
            ));
        };
        Ok(Self { level, marks, decoded: point.decoded, ..Self::new(source, point.compressed_bit, Expected::Anything) })
    }

    /// From now on blocks are returned that fail their check, too.
    pub(super) fn with_unverified(self, unverified: bool) -> Self {
        Self { unverified, ..self }
    }

    /// From now on it ends at bit `end`, where a block begins, or what stands before one. Where nothing does, that is
    /// an error.
    pub(super) fn ending_at(self, end: Option<u64>) -> Self {
        Self { end, ..self }
    }

    /// True at the bit at which it is to end.
    fn is_at_end(&self) -> io::Result<bool> {
        let Some(end) = self.end else { return Ok(false) };
        match self.reader.position().cmp(&end) {
            Ordering::Equal => Ok(true),
            Ordering::Less if self.expected != Expected::Nothing => Ok(false),
            _ => Err(self.reader.damaged("no block ends where the next one begins, as the index has it")),
        }
    }

    fn new(source: SharedSource, bit: u64, expected: Expected) -> Self {
        Self {
            reader: BitReader::new(SharedSource::clone(&source), bit),
            source,
            bench: Workbench::new(),
            block: Block::default(),
            marks: None,
            part: None,
            ahead: None,
            expected,
            level: TOP_LEVEL,
            decoded: 0,
            length: 0,
            gap: 0,
            finder: None,
            reread: 0,
            unverified: false,
            end: None,
            failed: None,
            first_pass: None,
        }
    }

    /// Decodes the next block; false at the end.
    fn next_block(&mut self) -> io::Result<bool> {
        self.decoded = self.decoded.saturating_add(std::mem::take(&mut self.length));
        loop {
            if self.is_at_end()? {
                return Ok(false);
            }
            match self.expected {
                Expected::Nothing => return Ok(false),
                Expected::FirstStream => {
                    let header = self.reader.take(HEADER_BITS)?;
                    self.level =
                        level_of(header).ok_or_else(|| self.reader.damaged("no \"BZh1\" to \"BZh9\" at its start"))?;
                    self.expected = Expected::Block;
                }
                Expected::AnotherStream => self.expected = self.another_stream()?,
                Expected::Anything if self.reader.is_at_end()? => {
                    if self.reader.is_past_end() {
                        return Err(self.reader.cut());
                    }
                    self.expected = Expected::Nothing;
                }
                Expected::Anything => match self.reader.peek(HEADER_BITS)?.and_then(level_of) {
                    Some(level) if self.reader.position().is_multiple_of(8) => {
                        self.reader.take(HEADER_BITS)?;
                        self.level = level;
                        self.expected = Expected::Block;
                    }
                    _ => self.expected = Expected::Block,
                },
                Expected::Block => {
                    let at = self.reader.position();
                    match self.block_or_end(at) {
                        Ok(true) => return Ok(true),
                        Ok(false) => {}
                        Err(error) => return self.leave_block(at, error).map(|()| true),
                    }
                }
            }
        }
    }

    /// Decodes a block, or reads the end of the stream; true for a block.
    fn block_or_end(&mut self, at: u64) -> io::Result<bool> {
        match self.reader.take(MAGIC_BITS)? {
            BLOCK_MAGIC => self.decode_block(at).map(|()| true),
            END_MAGIC => self.end_stream().map(|()| false),
            _ => Err(self.reader.damaged("neither a block nor the end of the stream")),
        }
    }

    /// The block at bit `at` cannot be decoded. In a first pass, decoding goes on at the next block, and a gap stands
    /// for this one: how long it was is not known.
    fn leave_block(&mut self, at: u64, error: io::Error) -> io::Result<()> {
        let Some(survey) = &mut self.first_pass else { return Err(error) };
        if !matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) {
            return Err(error);
        }
        // Damage may have led past the next block, so that is looked for in what was read already; not without end.
        let failed = self.reader.position();
        let again = self.reread.saturating_add(failed.saturating_sub(at) / 8);
        let from = if again <= self.source.len() { at + 1 } else { failed.max(at + 1) };
        let finder = self.finder.get_or_insert_with(|| Finder::new(SharedSource::clone(&self.source), from));
        finder.go_to(from);
        let Some(next) = finder.next(&survey.cancel)? else { return Err(error) };
        self.reread = again;
        self.leave_gap(at, next, error.to_string());
        Ok(())
    }

    /// A gap stands for what begins at bit `at`. Decoding goes on at the block at bit `next`.
    fn leave_gap(&mut self, at: u64, next: u64, what: String) {
        let end = self.decoded.saturating_add(GAP as u64);
        if let Some(survey) = &mut self.first_pass {
            survey.findings.report(Damage {
                decoded: self.decoded..end,
                lost_from: self.decoded,
                compressed: at / 8,
                compressed_from: at / 8,
                what,
            });
            survey.findings.points.push(SeekPoint {
                compressed_bit: at,
                decoded: self.decoded,
                state: vec![STATE_VERSION, self.level],
            });
            survey.findings.shift(end);
        }
        // The next block may be one of another stream.
        self.level = TOP_LEVEL;
        self.reader.go_to(next);
        (self.gap, self.length) = (GAP, GAP as u64);
    }

    fn decode_block(&mut self, at: u64) -> io::Result<()> {
        if let Some(survey) = &self.first_pass {
            survey.cancel.check()?;
        }
        let checked = self.take_block(at)?;
        self.length = checked.length;
        let matches = checked.stated == checked.computed;
        let what = "the CRC-32 of this bzip2 block does not match its data";
        match &mut self.first_pass {
            None if !matches && !self.unverified => return Err(self.reader.damaged(what)),
            None => {}
            Some(survey) => {
                survey.stream = crc::combine(survey.stream, checked.stated);
                let marks = if matches { self.block.marks() } else { &[] };
                let mut state = vec![if marks.is_empty() { STATE_VERSION } else { STATE_WITH_MARKS }, self.level];
                partial::save(marks, &mut state);
                survey.findings.points.push(SeekPoint { compressed_bit: at, decoded: self.decoded, state });
                if !matches {
                    survey.findings.report(Damage {
                        decoded: self.decoded..self.decoded.saturating_add(checked.length),
                        lost_from: self.decoded.saturating_add(checked.length),
                        compressed: self.reader.position() / 8,
                        compressed_from: at / 8,
                        what: what.to_owned(),
                    });
                    // How many bytes a block should have is written nowhere.
                    survey.findings.shift(self.decoded.saturating_add(checked.length));
                }
            }
        }
        Ok(())
    }

    /// The block at bit `at`, behind whose magic the reader stands: decoded ahead, or now.
    fn take_block(&mut self, at: u64) -> io::Result<Checked> {
        let most = usize::from(self.level) * LEVEL_SIZE;
        let ahead = self.ahead.as_mut().map(|ahead| ahead.take(at, &mut self.bench));
        if let Some(Decoded { block, checked, end }) = ahead.transpose()?.flatten()
            && block.size() <= most
        {
            let read = std::mem::replace(&mut self.block, block);
            self.reader.go_to(end);
            if let Some(ahead) = &mut self.ahead {
                ahead.recycle(read);
            }
            return Ok(checked);
        }
        self.bench.decode(&mut self.reader, most, &mut self.block)
    }

    fn end_stream(&mut self) -> io::Result<()> {
        let stated = self.reader.take(32)? as u32;
        if let Some(survey) = &mut self.first_pass {
            // The CRC of a stream is that of its blocks' CRCs, which have all been compared: it can only say that a
            // block is missing or out of place. No byte that is there is wrong for that.
            if std::mem::take(&mut survey.stream) != stated {
                survey.findings.report(Damage {
                    decoded: self.decoded..self.decoded,
                    lost_from: self.decoded,
                    compressed: self.reader.position() / 8,
                    compressed_from: self.reader.position() / 8,
                    what: "the CRC-32 at the end of this bzip2 stream does not match its blocks: one may be missing"
                        .to_owned(),
                });
            }
        }
        self.reader.align();
        self.expected = Expected::AnotherStream;
        Ok(())
    }

    /// Passes the header of a stream that is damaged, if there is one: behind it is a block, or the end of the stream,
    /// and their magic is longer.
    fn has_damaged_header(&mut self) -> io::Result<bool> {
        let start = self.reader.position();
        let behind = start.saturating_add(HEADER_BITS as u64);
        self.reader.go_to(behind);
        if !matches!(self.reader.peek(MAGIC_BITS)?, Some(BLOCK_MAGIC | END_MAGIC)) {
            self.reader.go_to(start);
            return Ok(false);
        }
        self.level = TOP_LEVEL;
        if let Some(survey) = &mut self.first_pass {
            survey.findings.report(Damage {
                decoded: self.decoded..self.decoded,
                lost_from: self.decoded,
                compressed: start / 8,
                compressed_from: start / 8,
                what: "the header of a bzip2 stream is damaged".to_owned(),
            });
        }
        Ok(true)
    }

    /// Looks what follows a stream.
    fn another_stream(&mut self) -> io::Result<Expected> {
        // There may be any number of streams that hold nothing.
        if let Some(survey) = &self.first_pass {
            survey.cancel.check()?;
        }
        if let Some(bits) = self.reader.peek(HEADER_BITS)? {
            if let Some(level) = level_of(bits) {
                self.reader.take(HEADER_BITS)?;
                self.level = level;
                return Ok(Expected::Block);
            }
        } else if self.reader.is_at_end()? {
            return Ok(Expected::Nothing);
        } else if self.reader.rest_begins(b"BZh") {
            return Err(self.reader.cut());
        }
        if self.has_damaged_header()? {
            return Ok(Expected::Block);
        }
        let Some(survey) = &mut self.first_pass else { return Ok(Expected::Nothing) };
        if let Some(garbage) = self.reader.find_nonzero(&survey.cancel)? {
            survey.findings.report(Damage {
                decoded: self.decoded..self.decoded,
                lost_from: self.decoded,
                compressed: garbage,
                compressed_from: garbage,
                what: "behind the end of the bzip2 stream there is something else".to_owned(),
            });
        }
        Ok(Expected::Nothing)
    }
}

impl Decoder for BlockDecoder {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(error) = &self.failed {
            return Err(again(error));
        }
        if buffer.is_empty() {
            return Ok(0);
        }
        if let Some(part) = &mut self.part {
            let read = part.read(self.bench.rows(), buffer);
            if read > 0 {
                return Ok(read);
            }
            self.part = None;
        }
        while self.block.is_empty() && self.gap == 0 {
            match self.next_block() {
                Ok(true) => {}
                Ok(false) => {
                    self.ahead = None;
                    return Ok(0);
                }
                Err(error) => {
                    self.ahead = None;
                    self.failed = Some(again(&error));
                    return Err(error);
                }
            }
        }
        if self.gap > 0 {
            let count = self.gap.min(buffer.len());
            buffer[..count].fill(FILLER);
            self.gap -= count;
            return Ok(count);
        }
        Ok(self.block.read(buffer))
    }

    fn skip(&mut self, bytes: u64) -> io::Result<bool> {
        let is_inside = |marks: &Vec<Mark>| marks.last().is_some_and(|last| last.decoded > bytes);
        let Some(marks) = self.marks.take_if(|marks| is_inside(marks)) else { return Ok(false) };
        if self.expected != Expected::Anything || self.failed.is_some() {
            return Ok(false);
        }
        if self.reader.take(MAGIC_BITS)? != BLOCK_MAGIC {
            return Err(self.reader.damaged("no block where one was when the archive was indexed"));
        }
        self.length = marks.last().map_or(0, |last| last.decoded);
        let most = usize::from(self.level) * LEVEL_SIZE;
        self.part = Some(self.bench.begin(&mut self.reader, most, marks, bytes)?);
        self.expected = Expected::Block;
        Ok(true)
    }

    fn memory(&self) -> usize {
        let ahead = self.ahead.as_ref().map_or(0, Ahead::memory);
        let part = self.part.as_ref().map_or(0, Partial::memory);
        let finder = self.finder.as_ref().map_or(0, Finder::memory);
        self.reader.memory() + self.bench.memory() + self.block.memory() + part + ahead + finder
    }
}

impl FirstPass for BlockDecoder {
    fn findings(&mut self) -> Option<&mut Findings> {
        self.first_pass.as_mut().map(|survey| &mut survey.findings)
    }

    fn compressed_position(&self) -> u64 {
        self.reader.consumed()
    }
}

/// The level that the first bits of a stream state; `None` if they are not those of a stream.
fn level_of(header: u64) -> Option<u8> {
    match (header as u32).to_be_bytes() {
        [b'B', b'Z', b'h', digit @ b'1'..=b'9'] => Some(digit - b'0'),
        _ => None,
    }
}
