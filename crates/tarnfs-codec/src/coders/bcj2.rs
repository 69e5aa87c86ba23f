//! BCJ2 (method 03 03 01 1B of 7z): as BCJ for x86, with the targets of calls and of jumps in streams of their own, and
//! with a range coder that says of each opcode whether its target was taken out. Source: what 7-Zip writes, and the
//! public description of its method.
//!
//! Its four streams (main, calls, jumps, range coder) lie here one behind the other in one source. Properties: how long
//! each of them is, 8 bytes each, little-endian. The decoded length must be known.

use std::io;

use tarnfs_source::{Cancel, SharedSource, Slice};

use super::invalid_properties;
use crate::faults;
use crate::input::Input;
use crate::stepwise::{self, Stepwise};
use crate::{Codec, CoderContext, DecodeContext, Decoder, Findings, FirstPass, Options, PIECE, Pace, SeekPoint};

/// The codec.
#[derive(Debug)]
pub(super) struct Bcj2;

/// Decoded bytes at once: where seek points are depends on it.
const STEP: usize = 64 << 10;

/// Probabilities: of the opcode E8 behind each byte, of E9, of 0F 80 to 0F 8F. Of 2048.
const PROBABILITIES: usize = 256 + 2;
const PROBABILITY_BITS: u32 = 11;
/// A probability moves by this part of its distance to what has come: 2^-5. So all stay in this range.
const MOVE_BITS: u32 = 5;
const POSSIBLE: std::ops::RangeInclusive<u16> = 31..=2017;
/// Below this another byte is drawn into the range.
const SMALLEST_RANGE: u32 = 1 << 24;
/// Bytes at the start of the data of a range coder.
const START: usize = 5;

/// Bytes of the state of a seek point: what is behind each of the other streams, the range coder, the last byte, the
/// probabilities.
const STATE: usize = 3 * 8 + 2 * 4 + 1 + 2 * PROBABILITIES;

struct StreamDecoder {
    main: Input,
    calls: Input,
    jumps: Input,
    coder: Input,
    range: u32,
    code: u32,
    probabilities: [u16; PROBABILITIES],
    last: u8,
    block: Vec<u8>,
    served: usize,
    /// What is wrong behind the block.
    behind: Option<io::Error>,
    /// Byte of the decoded stream behind the block.
    position: u64,
    length: u64,
    spacing: u64,
    last_point: u64,
    cancel: Cancel,
    findings: Option<Findings>,
    ended: bool,
    failure: Option<io::Error>,
}

impl StreamDecoder {
    fn new(source: &SharedSource, context: &CoderContext) -> io::Result<Self> {
        let (lengths, rest) = context.properties.as_chunks::<8>();
        let (&[main, calls, jumps, coder], []) = (lengths, rest) else { return Err(invalid_properties("BCJ2")) };
        let mut start = 0_u64;
        let mut next = |length: [u8; 8]| {
            let length = u64::from_le_bytes(length);
            let slice = Slice::new(SharedSource::clone(source), start, length);
            start = start.checked_add(length).filter(|&end| end <= source.len())?;
            Some(Input::new(std::sync::Arc::new(slice), 0))
        };
        let inputs = (next(main), next(calls), next(jumps), next(coder));
        let ((Some(main), Some(calls), Some(jumps), Some(coder)), Some(length)) = (inputs, context.decoded_length)
        else {
            return Err(invalid_properties("BCJ2"));
        };
        Ok(Self {
            main,
            calls,
            jumps,
            coder,
            range: 0,
            code: 0,
            probabilities: [1 << (PROBABILITY_BITS - 1); PROBABILITIES],
            last: 0,
            block: Vec::new(),
            served: 0,
            behind: None,
            position: 0,
            length,
            spacing: u64::MAX,
            last_point: 0,
            cancel: Cancel::default(),
            findings: None,
            ended: false,
            failure: None,
        })
    }

    fn start(&mut self) -> io::Result<()> {
        let Some(&[first, a, b, c, d]) = self.coder.fill(START)?.first_chunk::<START>() else {
            return Err(self.cut("the range coder of BCJ2"));
        };
        (self.range, self.code) = (u32::MAX, u32::from_be_bytes([a, b, c, d]));
        if first != 0 || self.code == u32::MAX {
            return Err(self.invalid("the range coder of BCJ2 does not begin as such data do"));
        }
        self.coder.consume(START);
        Ok(())
    }

    fn resume(mut self, point: &SeekPoint) -> io::Result<Self> {
        if *point == SeekPoint::default() {
            self.start()?;
            return Ok(self);
        }
        let wrong = || faults::invalid(point.compressed_bit / 8, "a seek point that no such stream can have");
        self.load(point).ok_or_else(wrong)?;
        Ok(self)
    }

    fn save(&self) -> Vec<u8> {
        let mut state = Vec::with_capacity(STATE);
        for input in [&self.calls, &self.jumps, &self.coder] {
            state.extend(input.position().to_le_bytes());
        }
        state.extend(self.range.to_le_bytes());
        state.extend(self.code.to_le_bytes());
        state.push(self.last);
        state.extend(self.probabilities.iter().flat_map(|probability| probability.to_le_bytes()));
        state
    }

    /// Goes on at a point, which comes from an index and may be anything.
    fn load(&mut self, point: &SeekPoint) -> Option<()> {
        let mut rest = &point.state[..];
        if rest.len() != STATE || !point.compressed_bit.is_multiple_of(8) || point.decoded > self.length {
            return None;
        }
        let seek = |input: &mut Input, position: u64| {
            let is_possible = position <= input.source().len();
            is_possible.then(|| input.seek(position))
        };
        seek(&mut self.main, point.compressed_bit / 8)?;
        for input in [&mut self.calls, &mut self.jumps, &mut self.coder] {
            let (position, behind) = rest.split_first_chunk()?;
            rest = behind;
            seek(input, u64::from_le_bytes(*position))?;
        }
        let (range, behind) = rest.split_first_chunk()?;
        let (code, behind) = behind.split_first_chunk()?;
        (self.range, self.code) = (u32::from_le_bytes(*range), u32::from_le_bytes(*code));
        let (&last, behind) = behind.split_first()?;
        self.last = last;
        for (probability, bytes) in self.probabilities.iter_mut().zip(behind.as_chunks().0) {
            *probability = u16::from_le_bytes(*bytes);
        }
        self.position = point.decoded;
        let is_possible = self.code < self.range && self.probabilities.iter().all(|of| POSSIBLE.contains(of));
        is_possible.then_some(())
    }

    /// True if the target behind the opcode `byte` was taken out.
    fn is_taken_out(&mut self, byte: u8) -> io::Result<bool> {
        if self.range < SMALLEST_RANGE {
            let Some(&drawn) = self.coder.fill(1)?.first() else { return Err(self.cut("the range coder of BCJ2")) };
            self.coder.consume(1);
            (self.range, self.code) = (self.range << 8, self.code << 8 | u32::from(drawn));
        }
        let number = match byte {
            0xE8 => usize::from(self.last),
            0xE9 => 256,
            _ => 257,
        };
        let probability = &mut self.probabilities[number];
        let bound = (self.range >> PROBABILITY_BITS).wrapping_mul(u32::from(*probability));
        let is_taken_out = self.code >= bound;
        if is_taken_out {
            (self.range, self.code) = (self.range.wrapping_sub(bound), self.code.wrapping_sub(bound));
            *probability -= *probability >> MOVE_BITS;
        } else {
            self.range = bound;
            *probability += ((1 << PROBABILITY_BITS) - *probability) >> MOVE_BITS;
        }
        Ok(is_taken_out)
    }

    /// Decodes up to an opcode, with its target, or as much as fits into the block.
    fn decode(&mut self) -> io::Result<()> {
        let left = self.length - self.position - self.block.len() as u64;
        let room = usize::try_from(left).unwrap_or(usize::MAX).min(STEP - self.block.len());
        // Never more than there is: what is short is read again each time.
        let there = usize::try_from(self.main.remaining()).unwrap_or(usize::MAX);
        let bytes = self.main.peek(room.min(there).max(1))?;
        if bytes.is_empty() {
            return Err(self.cut("the main stream of BCJ2"));
        }
        let mut last = self.last;
        let found = bytes.iter().position(|&byte| {
            let is_opcode = byte & 0xFE == 0xE8 || last == 0x0F && byte & 0xF0 == 0x80;
            if !is_opcode {
                last = byte;
            }
            is_opcode
        });
        let taken = found.map_or(bytes.len(), |at| at + 1);
        self.block.extend_from_slice(&bytes[..taken]);
        self.main.consume(taken);
        self.last = last;
        if found.is_none() || taken as u64 == left {
            return Ok(());
        }
        let byte = self.block.last().copied().unwrap_or_default();
        if !self.is_taken_out(byte)? {
            self.last = byte;
            return Ok(());
        }
        let (targets, what) = match byte {
            0xE8 => (&mut self.calls, "the calls of BCJ2"),
            _ => (&mut self.jumps, "the jumps of BCJ2"),
        };
        let Some(&target) = targets.fill(4)?.first_chunk() else { return Err(self.cut(what)) };
        targets.consume(4);
        let next = (self.position + self.block.len() as u64) as u32;
        let target = u32::from_be_bytes(target).wrapping_sub(next.wrapping_add(4)).to_le_bytes();
        let left = usize::try_from(left - taken as u64).unwrap_or(usize::MAX);
        self.block.extend_from_slice(&target[..left.min(4)]);
        self.last = target[3];
        Ok(())
    }

    fn next_block(&mut self) -> io::Result<()> {
        self.cancel.check()?;
        self.block.clear();
        self.served = 0;
        if self.position == self.length {
            self.ended = true;
            return Ok(());
        }
        if self.position - self.last_point >= self.spacing {
            self.last_point = self.position;
            let compressed_bit = self.main.position().saturating_mul(8);
            let point = SeekPoint { compressed_bit, decoded: self.position, state: self.save() };
            self.findings.iter_mut().for_each(|findings| findings.points.push(point.clone()));
        }
        while self.block.len() < STEP && self.position + (self.block.len() as u64) < self.length {
            match self.decode() {
                Ok(()) => {}
                // What came before is right. It fails again.
                Err(error) if !self.block.is_empty() => {
                    self.position += self.block.len() as u64;
                    self.behind = Some(error);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        self.position += self.block.len() as u64;
        Ok(())
    }

    fn cut(&self, place: &str) -> io::Error {
        faults::cut(self.main.position(), place)
    }

    fn invalid(&self, what: &str) -> io::Error {
        faults::invalid(self.main.position(), what)
    }
}

impl Stepwise for StreamDecoder {
    fn step(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.served == self.block.len() {
            if let Some(error) = self.behind.take() {
                return Err(error);
            }
            self.next_block()?;
        }
        Ok(stepwise::hand_out(&self.block, &mut self.served, buffer))
    }

    fn has_ended(&self) -> bool {
        self.ended
    }

    fn end(&mut self) {
        self.ended = true;
    }

    fn waiting(&mut self) -> &mut Option<io::Error> {
        &mut self.failure
    }
}

impl Decoder for StreamDecoder {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        stepwise::read(self, buffer)
    }

    fn memory(&self) -> usize {
        let inputs = [&self.main, &self.calls, &self.jumps, &self.coder];
        size_of::<Self>() + self.block.capacity() + inputs.map(Input::memory).iter().sum::<usize>()
    }
}

impl FirstPass for StreamDecoder {
    fn findings(&mut self) -> Option<&mut Findings> {
        self.findings.as_mut()
    }

    fn compressed_position(&self) -> u64 {
        [&self.main, &self.calls, &self.jumps, &self.coder].map(Input::position).iter().sum()
    }
}

impl Codec for Bcj2 {
    fn name(&self) -> &'static str {
        "bcj2"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 200_000, in_whole_chunks: false }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        let mut decoder = StreamDecoder::new(&source, &options.coder)?;
        decoder.start()?;
        decoder.findings = Some(Findings { points: vec![SeekPoint::default()], ..Findings::default() });
        decoder.spacing = options.seek_point_spacing.max(PIECE as u64);
        decoder.cancel = options.cancel.clone();
        Ok(Box::new(decoder))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(StreamDecoder::new(&source, &context.coder)?.resume(point)?))
    }
}
