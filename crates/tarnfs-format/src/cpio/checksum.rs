//! The sum of all bytes of a file, which the crc dialect has in its headers.

use std::io;
use std::ops::Range;

use crate::Stream;

/// Bytes that are added up at once.
const STEP: usize = 64 << 10;

/// A stream that adds up the bytes of a file as they go by.
pub(super) struct Summed<'s> {
    stream: &'s mut dyn Stream,
    /// Byte of the stream at which the file ends.
    end: u64,
    sum: u32,
}

impl<'s> Summed<'s> {
    /// From where `stream` stands up to byte `end`.
    pub(super) fn new(stream: &'s mut dyn Stream, end: u64) -> Self {
        Self { stream, end, sum: 0 }
    }

    /// The sum of all bytes of the file, also of those that nobody has read.
    pub(super) fn finish(mut self) -> io::Result<u32> {
        let left = self.end.saturating_sub(self.stream.position());
        self.skip(left)?;
        Ok(self.sum)
    }
}

impl Stream for Summed<'_> {
    fn position(&self) -> u64 {
        self.stream.position()
    }

    fn peek(&mut self, length: usize) -> io::Result<&[u8]> {
        self.stream.peek(length)
    }

    fn skip(&mut self, length: u64) -> io::Result<u64> {
        let mut skipped = 0_u64;
        while skipped < length {
            let in_file = self.end.saturating_sub(self.stream.position());
            let left = length.saturating_sub(skipped);
            if in_file == 0 {
                return Ok(skipped.saturating_add(self.stream.skip(left)?));
            }
            let step = left.min(in_file).min(STEP as u64) as usize;
            let bytes = self.stream.peek(step)?;
            self.sum = bytes.iter().fold(self.sum, |sum, &byte| sum.wrapping_add(byte.into()));
            let step = bytes.len() as u64;
            if step == 0 {
                break;
            }
            self.stream.skip(step)?;
            skipped = skipped.saturating_add(step);
        }
        Ok(skipped)
    }

    fn may_have_shifted(&self, end: u64) -> bool {
        self.stream.may_have_shifted(end)
    }

    fn is_filled(&self, range: Range<u64>) -> bool {
        self.stream.is_filled(range)
    }
}
