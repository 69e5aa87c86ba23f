use std::io;

use tarnfs_source::SharedSource;

/// A source, read in order through a buffer.
#[derive(Debug)]
pub(super) struct Input {
    source: SharedSource,
    buffer: Vec<u8>,
    /// Of `buffer`, the part that is not consumed.
    start: usize,
    end: usize,
    /// Offset in the source of `buffer[start]`.
    position: u64,
    read_ahead: usize,
}

impl Input {
    /// The first read; each next one is twice as long, because most decoders are needed for a block or two.
    const FIRST_READ: usize = 32 << 10;
    const LONGEST_READ: usize = 256 << 10;

    pub(super) fn new(source: SharedSource, position: u64) -> Self {
        Self { source, buffer: Vec::new(), start: 0, end: 0, position, read_ahead: Self::FIRST_READ }
    }

    /// Offset in the source of what comes next.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Bytes from here to the end of the source.
    pub(super) fn remaining(&self) -> u64 {
        self.source.len().saturating_sub(self.position)
    }

    /// The next `length` bytes; fewer only where the source ends before. Memory grows to `length`, never beyond the source's end.
    pub(super) fn peek(&mut self, length: usize) -> io::Result<&[u8]> {
        let length = self.remaining().min(length as u64) as usize;
        if self.end - self.start < length {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let goal = self.remaining().min(length.max(self.read_ahead) as u64) as usize;
            self.read_ahead = (self.read_ahead * 2).min(Self::LONGEST_READ);
            if self.buffer.len() < goal {
                self.buffer.resize(goal, 0);
            }
            self.source.read_exact_at(&mut self.buffer[self.end..goal], self.position + self.end as u64)?;
            self.end = goal;
        }
        Ok(&self.buffer[self.start..self.start + length])
    }

    /// Goes on by `length` bytes, which need not have been read.
    pub(super) fn consume(&mut self, length: u64) {
        self.position = self.position.saturating_add(length);
        match usize::try_from(length) {
            Ok(length) if length <= self.end - self.start => self.start += length,
            _ => (self.start, self.end) = (0, 0),
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.buffer.capacity()
    }

    pub(super) fn describe(&self) -> String {
        self.source.describe()
    }
}
