//! Bits of a member, the highest of each byte first.

use std::io;

use super::data::Data;
use crate::faults;

/// Bytes that are read at once.
const STEP: usize = 64 << 10;

/// Zeros behind the end: as many as one symbol can ask for, and more.
const PADDING: usize = 64;

/// Reads what one member is stored as.
pub(super) struct Bits {
    data: Data,
    /// The unread bytes are `buffer[at..end]`, but for those in `word`.
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    /// Byte of the member that `buffer` begins with.
    base: u64,
    /// The next bits, from the highest on. What is below the first `count` may be there already.
    word: u64,
    count: u32,
    is_padded: bool,
}

impl Bits {
    pub(super) fn new(data: Data) -> Self {
        Self { data, buffer: Vec::new(), at: 0, end: 0, base: 0, word: 0, count: 0, is_padded: false }
    }

    /// Makes at least the next 56 bits known.
    #[inline]
    pub(super) fn fill(&mut self) -> io::Result<()> {
        if self.count >= 56 {
            return Ok(());
        }
        if self.end - self.at < 8 {
            self.read()?;
        }
        if let Some(bytes) = self.buffer.get(self.at..).and_then(|rest| rest.first_chunk::<8>()) {
            self.word |= u64::from_be_bytes(*bytes) >> self.count;
            let added = (63 - self.count) >> 3;
            self.at += added as usize;
            self.count += added * 8;
        }
        Ok(())
    }

    #[cold]
    fn read(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.at..self.end, 0);
        self.base += self.at as u64;
        self.end -= self.at;
        self.at = 0;
        while self.end < 8 {
            if self.buffer.len() < STEP {
                let wanted = usize::try_from(self.data.length()).unwrap_or(STEP).clamp(PADDING, STEP);
                self.buffer.resize(wanted.max(self.end + PADDING), 0);
            }
            match self.data.read(&mut self.buffer[self.end..])? {
                0 if self.is_padded => return Err(self.data.cut()),
                0 => {
                    self.is_padded = true;
                    self.buffer.resize(self.end, 0);
                    self.buffer.resize(self.end + PADDING, 0);
                    self.end += PADDING;
                }
                read => self.end += read,
            }
        }
        Ok(())
    }

    /// The next `count` bits, of 1 to 56 that are known.
    #[inline]
    pub(super) fn peek(&self, count: u32) -> u64 {
        self.word >> (64 - count)
    }

    /// The next 15 bits, and a zero.
    #[inline]
    pub(super) fn peek_code(&self) -> u32 {
        (self.word >> 48) as u32 & 0xFFFE
    }

    /// Moves on by that many bits that are known.
    #[inline]
    pub(super) fn consume(&mut self, count: u32) {
        self.word <<= count;
        self.count -= count;
    }

    /// The next `count` bits, of at most 48.
    #[inline]
    pub(super) fn take(&mut self, count: u32) -> io::Result<u64> {
        if count == 0 {
            return Ok(0);
        }
        self.fill()?;
        let bits = self.peek(count);
        self.consume(count);
        Ok(bits)
    }

    /// The next byte.
    #[inline]
    pub(super) fn byte(&mut self) -> io::Result<u8> {
        Ok(self.take(8)? as u8)
    }

    /// Moves on to the start of a byte.
    pub(super) fn align(&mut self) {
        self.consume(self.count % 8);
    }

    /// Bits before the next one.
    #[inline]
    pub(super) fn position(&self) -> u64 {
        (self.base + self.at as u64) * 8 - u64::from(self.count)
    }

    /// Bits that there are in all.
    pub(super) fn length(&self) -> u64 {
        self.data.length().saturating_mul(8)
    }

    /// Bytes as they are, from the start of a byte on; none only at the end.
    pub(super) fn copy(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.data.read(buffer)
    }

    /// Where in the archive it stands, roughly.
    pub(super) fn place(&self) -> u64 {
        self.data.place()
    }

    /// An error that says so.
    pub(super) fn invalid(&self, what: &str) -> io::Error {
        faults::invalid(self.data.place(), what)
    }

    /// An error that says that it ends.
    pub(super) fn cut(&self) -> io::Error {
        self.data.cut()
    }

    pub(super) fn memory(&self) -> usize {
        self.buffer.capacity()
    }
}
