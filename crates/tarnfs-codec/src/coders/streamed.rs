//! Decoders of what can only be decoded from its start on. Their only seek point is that.

use std::io::{self, Read};

use tarnfs_source::Cancel;

use crate::faults;
use crate::input::Input;
use crate::stepwise::{self, Stepwise};
use crate::{Damage, Decoder, Findings, FirstPass, Options, SeekPoint};

/// Decoded bytes at once, whatever is asked for: how many come before damage depends on it.
const STEP: usize = 16 << 10;

/// Somebody else's decoder.
pub(super) trait Unpack: Send {
    /// Decodes the next bytes; none only at the end. Bytes before what is wrong come first, where they can be told.
    /// Whoever may read on and on before something comes out looks at `cancel` meanwhile.
    fn unpack(&mut self, buffer: &mut [u8], cancel: &Cancel) -> io::Result<usize>;

    /// How many of the bytes that came last fail a check that goes over them, and which. It is asked for behind an
    /// error as well.
    fn take_flaw(&mut self) -> Option<(u64, String)> {
        None
    }

    /// Byte of the compressed stream up to which it has read.
    fn position(&self) -> u64;

    /// Bytes of memory that it takes, behind this many decoded ones.
    fn memory(&self, decoded: u64) -> usize;
}

/// Hands out what is unpacked.
pub(super) struct Streamed<U> {
    unpack: U,
    /// Bytes that the container says there are.
    length: Option<u64>,
    decoded: u64,
    block: Vec<u8>,
    served: usize,
    cancel: Cancel,
    findings: Option<Findings>,
    ended: bool,
    failure: Option<io::Error>,
}

impl<U: Unpack> Streamed<U> {
    pub(super) fn first_pass(unpack: U, options: &Options) -> Self {
        let mut decoder = Self::new(unpack, options.coder.decoded_length);
        decoder.findings = Some(Findings { points: vec![SeekPoint::default()], ..Findings::default() });
        decoder.cancel = options.cancel.clone();
        decoder
    }

    pub(super) fn resume(unpack: U, point: &SeekPoint, length: Option<u64>) -> io::Result<Self> {
        if *point != SeekPoint::default() {
            return Err(faults::invalid(point.compressed_bit / 8, "a seek point that is not the start"));
        }
        Ok(Self::new(unpack, length))
    }

    fn new(unpack: U, length: Option<u64>) -> Self {
        let (block, cancel) = (Vec::new(), Cancel::default());
        Self { unpack, length, decoded: 0, block, served: 0, cancel, findings: None, ended: false, failure: None }
    }

    fn next_block(&mut self) -> io::Result<()> {
        self.cancel.check()?;
        self.served = 0;
        let left = self.length.map_or(u64::MAX, |length| length.saturating_sub(self.decoded));
        self.block.resize(STEP.min(usize::try_from(left).unwrap_or(STEP)), 0);
        let unpacked = if left == 0 { Ok(0) } else { self.unpack.unpack(&mut self.block, &self.cancel) };
        self.block.truncate(*unpacked.as_ref().unwrap_or(&0));
        self.decoded += self.block.len() as u64;
        if let (Some((length, what)), Some(findings)) = (self.unpack.take_flaw(), &mut self.findings) {
            let (end, compressed) = (self.decoded, self.unpack.position());
            let decoded = end.saturating_sub(length)..end;
            findings.report(Damage { decoded, lost_from: end, compressed, compressed_from: compressed, what });
        }
        if unpacked? == 0 {
            self.ended = true;
            if self.length.is_some() && left > 0 {
                let what = format!("the data end {left} bytes before what the archive says");
                return Err(faults::invalid(self.unpack.position(), what));
            }
        }
        Ok(())
    }
}

impl<U: Unpack> Stepwise for Streamed<U> {
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

impl<U: Unpack> Decoder for Streamed<U> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        stepwise::read(self, buffer)
    }

    fn memory(&self) -> usize {
        self.memory_after(0)
    }

    fn memory_after(&self, bytes: u64) -> usize {
        let behind = self.decoded.saturating_add(bytes);
        size_of::<Self>() + self.block.capacity() + self.unpack.memory(behind)
    }
}

impl<U: Unpack> FirstPass for Streamed<U> {
    fn findings(&mut self) -> Option<&mut Findings> {
        self.findings.as_mut()
    }

    fn compressed_position(&self) -> u64 {
        self.unpack.position()
    }
}

/// The input, for a decoder that takes a reader. Such decoders take some errors for the end of the data, so they are
/// kept here.
pub(super) struct Reader {
    pub(super) input: Input,
    failure: Option<io::Error>,
}

impl Reader {
    pub(super) fn new(input: Input) -> Self {
        Self { input, failure: None }
    }

    /// What went wrong while reading. That there is no more is wrong, too: data end by themselves.
    pub(super) fn failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = match self.input.fill(1) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.failure = Some(error);
                return Err(io::ErrorKind::Other.into());
            }
        };
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        self.input.consume(count);
        if count == 0 && !buffer.is_empty() {
            self.failure = Some(faults::cut(self.input.position(), "the data"));
        }
        Ok(count)
    }
}
