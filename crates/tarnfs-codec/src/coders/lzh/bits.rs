//! Bits of a file, the highest of each byte first.

use std::io;

use tarnfs_source::SharedSource;

use crate::faults;
use crate::input::Input;

/// Zeros behind the end that may be looked at: more than one symbol has.
const MOST_MISSING: u32 = 64;

pub(super) struct Bits {
    input: Input,
    /// The next bits, from the highest on; below the first `count` there are zeros.
    word: u64,
    count: u32,
    /// Of these, so many stand behind the end.
    missing: u32,
}

impl Bits {
    pub(super) fn new(source: SharedSource) -> Self {
        Self { input: Input::new(source, 0), word: 0, count: 0, missing: 0 }
    }

    fn fill(&mut self) -> io::Result<()> {
        while self.count <= 56 {
            let next = self.input.fill(1)?.first().copied();
            match next {
                Some(byte) => {
                    self.word |= u64::from(byte) << (56 - self.count);
                    self.input.consume(1);
                }
                None if self.missing > MOST_MISSING => return Err(faults::cut(self.position(), "the data of a file")),
                None => self.missing += 8,
            }
            self.count += 8;
        }
        Ok(())
    }

    /// The next 16 bits.
    pub(super) fn peek(&mut self) -> io::Result<u16> {
        if self.count < 32 {
            self.fill()?;
        }
        Ok((self.word >> 48) as u16)
    }

    /// Moves on by so many bits, of those that were shown.
    pub(super) fn consume(&mut self, count: u32) -> io::Result<()> {
        self.word <<= count;
        self.count -= count;
        if self.count < self.missing {
            return Err(faults::cut(self.position(), "the data of a file"));
        }
        Ok(())
    }

    /// The next bits, of at most 24.
    pub(super) fn take(&mut self, count: u32) -> io::Result<usize> {
        if count == 0 {
            return Ok(0);
        }
        if self.count < 32 {
            self.fill()?;
        }
        let bits = (self.word >> (64 - count)) as usize;
        self.consume(count)?;
        Ok(bits)
    }

    pub(super) fn byte(&mut self) -> io::Result<u8> {
        Ok(self.take(8)? as u8)
    }

    /// Bytes as they are, of a file of which no bits were taken.
    pub(super) fn copy(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.input.fill(1)?;
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        self.input.consume(count);
        Ok(count)
    }

    pub(super) fn position(&self) -> u64 {
        self.input.position()
    }

    pub(super) fn invalid(&self, what: &str) -> io::Error {
        faults::invalid(self.position(), what)
    }

    pub(super) fn memory(&self) -> usize {
        self.input.memory()
    }
}
