//! Decoders of filters that make as many bytes as they take, in order: BCJ, delta, a stream cipher.

use std::io;

use tarnfs_source::{Cancel, SharedSource};

use crate::faults;
use crate::input::Input;
use crate::stepwise::{self, Stepwise};
use crate::{DecodeContext, Decoder, Findings, FirstPass, Options, PIECE, SeekPoint};

/// Bytes that are undone at once. Where seek points are depends on it.
const STEP: usize = 64 << 10;

/// A filter.
pub(super) trait Filter: Send {
    /// Undoes as much of `data` as can be undone without what follows, and returns how much: all but a few bytes. The
    /// first of them is byte `position` of the decoded stream. At its end the rest stays as it is.
    fn undo(&mut self, data: &mut [u8], position: u64) -> usize;

    /// What it takes to go on at byte `position`, beside that.
    fn save(&self, position: u64) -> Vec<u8>;

    /// Goes on from what was saved; false if that cannot be. It comes from an index, so it may be anything.
    fn load(&mut self, state: &[u8], position: u64) -> bool;
}

/// Undoes a filter.
pub(super) struct Filtered<F> {
    input: Input,
    filter: F,
    /// Where the data begin in the compressed stream.
    start: u64,
    /// What was undone last, of which this much was handed out.
    block: Vec<u8>,
    served: usize,
    /// Byte of the decoded stream behind it.
    position: u64,
    /// Bytes that the container says there are.
    length: Option<u64>,
    spacing: u64,
    last_point: u64,
    cancel: Cancel,
    findings: Option<Findings>,
    ended: bool,
    failure: Option<io::Error>,
}

impl<F: Filter> Filtered<F> {
    /// The data begin at byte `start` of `source`.
    pub(super) fn first_pass(source: SharedSource, start: u64, filter: F, options: &Options) -> Self {
        let mut decoder = Self::new(source, start, filter, options.coder.decoded_length);
        decoder.findings = Some(Findings { points: vec![SeekPoint::default()], ..Findings::default() });
        decoder.spacing = options.seek_point_spacing.max(PIECE as u64);
        decoder.cancel = options.cancel.clone();
        decoder
    }

    pub(super) fn resume(
        source: SharedSource,
        start: u64,
        filter: F,
        point: &SeekPoint,
        context: &DecodeContext,
    ) -> io::Result<Self> {
        let mut decoder = Self::new(source, start, filter, context.coder.decoded_length);
        if *point == SeekPoint::default() {
            return Ok(decoder);
        }
        let wrong = || faults::invalid(point.compressed_bit / 8, "a seek point that no such stream can have");
        let position =
            start.checked_add(point.decoded).filter(|&position| position <= decoder.input.remaining() + start);
        if position.and_then(|position| position.checked_mul(8)) != Some(point.compressed_bit)
            || !decoder.filter.load(&point.state, point.decoded)
        {
            return Err(wrong());
        }
        decoder.input.seek(point.compressed_bit / 8);
        decoder.position = point.decoded;
        Ok(decoder)
    }

    fn new(source: SharedSource, start: u64, filter: F, length: Option<u64>) -> Self {
        Self {
            input: Input::new(source, start),
            filter,
            start,
            block: Vec::new(),
            served: 0,
            position: 0,
            length,
            spacing: u64::MAX,
            last_point: 0,
            cancel: Cancel::default(),
            findings: None,
            ended: false,
            failure: None,
        }
    }

    fn next_block(&mut self) -> io::Result<()> {
        self.cancel.check()?;
        self.block.clear();
        self.served = 0;
        let left = self.length.map_or(u64::MAX, |length| length.saturating_sub(self.position));
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(STEP);
        let bytes = self.input.peek(wanted)?;
        self.block.extend_from_slice(bytes);
        if self.block.is_empty() {
            self.ended = true;
            let is_cut = wanted > 0 && self.length.is_some();
            return if is_cut { Err(faults::cut(self.input.position(), "the data")) } else { Ok(()) };
        }
        if self.position - self.last_point >= self.spacing {
            self.last_point = self.position;
            let compressed_bit = self.start.saturating_add(self.position).saturating_mul(8);
            let point = SeekPoint { compressed_bit, decoded: self.position, state: self.filter.save(self.position) };
            self.findings.iter_mut().for_each(|findings| findings.points.push(point.clone()));
        }
        let undone = self.filter.undo(&mut self.block, self.position);
        let is_last = self.block.len() < STEP || left == STEP as u64 || self.input.remaining() == STEP as u64;
        if !is_last {
            self.block.truncate(undone);
        }
        self.input.consume(self.block.len());
        self.position += self.block.len() as u64;
        Ok(())
    }
}

impl<F: Filter> Stepwise for Filtered<F> {
    fn step(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.served == self.block.len() {
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

impl<F: Filter> Decoder for Filtered<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        stepwise::read(self, buffer)
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.input.memory() + self.block.capacity()
    }
}

impl<F: Filter> FirstPass for Filtered<F> {
    fn findings(&mut self) -> Option<&mut Findings> {
        self.findings.as_mut()
    }

    fn compressed_position(&self) -> u64 {
        self.input.position()
    }
}
