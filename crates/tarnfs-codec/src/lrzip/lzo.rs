//! Blocks of LZO1X of any length, decoded a part at a time.

use std::io;

use crate::Decoder;
use crate::input::Input;
use crate::lzop::lzo1x::{self, Bytes, FARTHEST, Instruction, Invalid};
use crate::stepwise::hand_out;

/// Decoded bytes kept: what a match can reach, and room for as much again several times, so that it is seldom moved.
const WINDOW: usize = 256 << 10;

/// Bytes copied at once.
const STEP: usize = 64 << 10;

/// Decodes one block.
pub(super) struct LzoDecoder {
    bytes: Input,
    /// The last decoded bytes, and how many of them were handed out.
    window: Vec<u8>,
    served: usize,
    /// Literals before the next instruction, as it needs to know.
    literals: usize,
    pending: Pending,
    begun: bool,
    ended: bool,
}

/// What of the last instruction is still to be copied: a match, then literals.
#[derive(Default)]
struct Pending {
    length: usize,
    distance: usize,
    literals: usize,
}

impl LzoDecoder {
    pub(super) fn new(bytes: Input) -> Self {
        let window = Vec::with_capacity(WINDOW);
        Self { bytes, window, served: 0, literals: 0, pending: Pending::default(), begun: false, ended: false }
    }

    /// Goes on by an instruction, or by a part of one.
    fn advance(&mut self) -> io::Result<()> {
        if self.window.len() > WINDOW - STEP {
            // All of it was handed out.
            self.window.drain(..self.window.len() - FARTHEST);
            self.served = self.window.len();
        }
        match self.pending {
            Pending { length: length @ 1.., distance, .. } => {
                let from = self.window.len().checked_sub(distance).ok_or(Invalid)?;
                let end = self.window.len() + length.min(STEP);
                // What is there is repeated: each time there is twice as much of it.
                while self.window.len() < end {
                    let count = (self.window.len() - from).min(end - self.window.len());
                    self.window.extend_from_within(from..from + count);
                }
                self.pending.length -= length.min(STEP);
            }
            Pending { literals: length @ 1.., .. } => {
                let bytes = self.bytes.fill(1)?;
                let count = length.min(bytes.len()).min(STEP);
                self.window.extend_from_slice(bytes.get(..count).filter(|bytes| !bytes.is_empty()).ok_or(Invalid)?);
                self.bytes.consume(count);
                self.pending.literals -= count;
            }
            _ if !self.begun => {
                self.begun = true;
                let first = *self.bytes.peek(1)?.first().ok_or(Invalid)?;
                if let Some(length) = lzo1x::first_literals(first) {
                    self.bytes.consume(1);
                    self.pending.literals = length;
                    self.literals = length.min(4);
                }
            }
            _ => match lzo1x::instruction(&mut self.bytes, self.literals)? {
                Instruction::Literals(length) => {
                    self.pending.literals = length;
                    self.literals = 4;
                }
                Instruction::Match { distance, length, literals } => {
                    self.pending = Pending { length, distance, literals };
                    self.literals = literals;
                }
                Instruction::End if self.bytes.remaining() > 0 => return Err(Invalid.into()),
                Instruction::End => self.ended = true,
            },
        }
        Ok(())
    }
}

impl Decoder for LzoDecoder {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.served == self.window.len() && !self.ended && !buffer.is_empty() {
            // As long as there is nothing to be handed out.
            self.advance().inspect_err(|_| self.ended = true)?;
        }
        // A few instructions more: each makes few bytes.
        while !self.ended && self.window.len() - self.served < buffer.len() && self.window.len() <= WINDOW - STEP {
            self.advance().inspect_err(|_| self.ended = true)?;
        }
        Ok(hand_out(&self.window, &mut self.served, buffer))
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.window.capacity() + self.bytes.memory()
    }
}

impl From<Invalid> for io::Error {
    fn from(_: Invalid) -> Self {
        Self::new(io::ErrorKind::InvalidData, "the LZO data are not valid")
    }
}

impl Bytes for Input {
    type Error = io::Error;

    #[inline]
    fn byte(&mut self) -> io::Result<u8> {
        let &byte = self.fill(1)?.first().ok_or(Invalid)?;
        self.consume(1);
        Ok(byte)
    }

    #[inline]
    fn word(&mut self) -> io::Result<usize> {
        let &word = self.fill(2)?.first_chunk().ok_or(Invalid)?;
        self.consume(2);
        Ok(usize::from(u16::from_le_bytes(word)))
    }
}
