use std::io;

use tarnfs_source::{Cancel, SharedSource};

use crate::faults;

/// Bytes read at a time. A block of 900 kB of text takes about twice as many.
const BUFFER: usize = 128 << 10;

/// Bytes that [`BitReader::ensure`] makes readable: more than one group of Huffman symbols takes (50 of at most 20
/// bits). Behind the end of the source they are zeros.
const MARGIN: usize = 256;

/// The bits of a source, from the highest of each byte to the lowest, with a cursor.
#[derive(Debug)]
pub(super) struct BitReader {
    source: SharedSource,
    /// `filled` bytes of the source, then at least [`MARGIN`] zeros once `at_end`.
    buffer: Box<[u8]>,
    filled: usize,
    at_end: bool,
    /// Byte of the source at which the buffer starts.
    start: u64,
    /// The cursor, in bits from the start of the buffer.
    bit: usize,
}

impl BitReader {
    /// Reads `source` from bit `position` on.
    pub(super) fn new(source: SharedSource, position: u64) -> Self {
        let buffer = vec![0; BUFFER + MARGIN].into_boxed_slice();
        Self { source, buffer, filled: 0, at_end: false, start: position / 8, bit: (position % 8) as usize }
    }

    /// Goes on at bit `position` of the source.
    pub(super) fn go_to(&mut self, position: u64) {
        let bit = (position % 8) as usize;
        match (position / 8).checked_sub(self.start) {
            Some(forward) if forward < self.filled as u64 => self.bit = forward as usize * 8 + bit,
            _ => (self.start, self.bit, self.filled, self.at_end) = (position / 8, bit, 0, false),
        }
    }

    /// Makes the next [`MARGIN`] bytes readable, as zeros where the source has ended.
    pub(super) fn ensure(&mut self) -> io::Result<()> {
        if self.at_end || self.bit / 8 + MARGIN <= self.filled {
            return Ok(());
        }
        let done = (self.bit / 8).min(self.filled);
        self.buffer.copy_within(done..self.filled, 0);
        self.start += done as u64;
        self.filled -= done;
        self.bit -= done * 8;
        while self.filled < BUFFER {
            let offset = self.start.saturating_add(self.filled as u64);
            let read = self.source.read_at(&mut self.buffer[self.filled..BUFFER], offset)?;
            if read == 0 {
                self.at_end = true;
                self.buffer[self.filled..].fill(0);
                break;
            }
            self.filled += read;
        }
        Ok(())
    }

    /// The bytes in memory and the cursor in bits from their start, for loops that keep their own cursor. After
    /// [`ensure`](Self::ensure) there are [`MARGIN`] bytes from the cursor on.
    pub(super) fn window(&self) -> (&[u8], usize) {
        (&self.buffer, self.bit)
    }

    /// Moves the cursor to `bit` of the window.
    pub(super) fn move_to(&mut self, bit: usize) {
        self.bit = bit;
    }

    /// True if the cursor is behind the end of the source: what was read there were no bits of it.
    pub(super) fn is_past_end(&self) -> bool {
        self.at_end && (self.bit > self.filled * 8 || self.start > self.source.len())
    }

    /// The next `count` bits (at most 56) as a number, without moving; `None` if fewer remain.
    pub(super) fn peek(&mut self, count: usize) -> io::Result<Option<u64>> {
        self.ensure()?;
        if self.at_end && self.bit + count > self.filled * 8 {
            return Ok(None);
        }
        let word = self.buffer[self.bit / 8..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        Ok(Some((word << (self.bit % 8)).checked_shr(64 - count as u32).unwrap_or(0)))
    }

    /// The next `count` bits (at most 56) as a number; `UnexpectedEof` if fewer remain.
    pub(super) fn take(&mut self, count: usize) -> io::Result<u64> {
        let Some(bits) = self.peek(count)? else { return Err(self.cut()) };
        self.bit += count;
        Ok(bits)
    }

    /// True if no bit is left.
    pub(super) fn is_at_end(&mut self) -> io::Result<bool> {
        Ok(self.peek(1)?.is_none())
    }

    /// True if `text` begins with what is left in memory from the cursor on.
    pub(super) fn rest_begins(&self, text: &[u8]) -> bool {
        self.buffer.get(self.bit / 8..self.filled).is_some_and(|rest| text.starts_with(rest))
    }

    /// The byte of the source, from that of the cursor on, that is not zero; `None` if all are. The cursor moves on.
    pub(super) fn find_nonzero(&mut self, cancel: &Cancel) -> io::Result<Option<u64>> {
        while !self.is_at_end()? {
            let from = self.bit / 8;
            if let Some(zeros) = self.buffer[from..self.filled].iter().position(|&byte| byte != 0) {
                return Ok(Some(self.start + (from + zeros) as u64));
            }
            let read = self.start.saturating_add(self.filled as u64);
            match self.source.next_data(read).unwrap_or_else(|| self.source.len()) {
                // A hole is not read.
                data if data > read => (self.start, self.filled, self.bit, self.at_end) = (data, 0, 0, false),
                _ => self.bit = self.filled * 8,
            }
            cancel.check()?;
        }
        Ok(None)
    }

    /// Moves to the start of the next byte, unless at one.
    pub(super) fn align(&mut self) {
        self.bit = self.bit.next_multiple_of(8);
    }

    /// The cursor, in bits from the start of the source.
    pub(super) fn position(&self) -> u64 {
        self.start.saturating_mul(8).saturating_add(self.bit as u64)
    }

    /// Bytes of the source that have been read, for progress.
    pub(super) fn consumed(&self) -> u64 {
        self.position().div_ceil(8).min(self.start.saturating_add(self.filled as u64))
    }

    /// Bytes of memory in use.
    pub(super) fn memory(&self) -> usize {
        self.buffer.len()
    }

    /// The error for a stream that ends too early.
    pub(super) fn cut(&self) -> io::Error {
        faults::cut(self.source.len(), "a bzip2 stream")
    }

    /// The error for bits that are not valid, found just before the cursor.
    pub(super) fn damaged(&self, what: &str) -> io::Error {
        faults::invalid(self.position() / 8, what)
    }
}
