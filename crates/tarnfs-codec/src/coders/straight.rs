//! Decoders of what can be read anywhere: stored bytes, and ciphers in which each block stands for itself.

use std::io;

use tarnfs_source::{Cancel, SharedSource};

use crate::faults;
use crate::{Damage, DecodeContext, Decoder, Findings, FirstPass, Options, PIECE, SeekPoint};

/// Bytes that can be read anywhere.
pub(super) trait Anywhere: Send {
    /// Where the first of them lies in the compressed stream.
    fn start(&self) -> u64 {
        0
    }

    /// How many there are.
    fn length(&self) -> u64;

    /// About where in the compressed stream a byte comes from.
    fn place(&self, decoded: u64) -> u64 {
        self.start().saturating_add(decoded)
    }

    /// Bytes of memory that it takes beside itself.
    fn memory(&self) -> usize {
        0
    }

    /// Reads at `offset`; fewer than fit into `buffer` only at the end.
    fn fetch(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Compares all, which were read in order, with the format's own check. The error says what is wrong.
    fn check_all(&mut self) -> io::Result<Result<(), &'static str>> {
        Ok(Ok(()))
    }
}

impl Anywhere for SharedSource {
    fn length(&self) -> u64 {
        self.len()
    }

    fn fetch(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buffer, offset)
    }
}

/// Reads them in order, with a seek point wherever one is wanted.
pub(super) struct Straight<A> {
    bytes: A,
    length: u64,
    position: u64,
    /// Decoded bytes between two points.
    spacing: u64,
    /// All are read from the first one on, and are to be verified.
    verify: bool,
    cancel: Cancel,
    findings: Option<Findings>,
}

impl<A: Anywhere> Straight<A> {
    pub(super) fn first_pass(bytes: A, options: &Options) -> Self {
        let findings = Findings { points: vec![SeekPoint::default()], ..Findings::default() };
        let mut decoder = Self::at(bytes, 0);
        (decoder.findings, decoder.verify) = (Some(findings), true);
        decoder.spacing = options.seek_point_spacing.max(PIECE as u64);
        decoder.cancel = options.cancel.clone();
        decoder
    }

    pub(super) fn resume(bytes: A, point: &SeekPoint, context: &DecodeContext) -> io::Result<Self> {
        let mut decoder = Self::at(bytes, point.decoded);
        if *point != SeekPoint::default() && *point != decoder.point(point.decoded) || point.decoded > decoder.length {
            return Err(faults::invalid(point.compressed_bit / 8, "a seek point that no such stream can have"));
        }
        decoder.verify = point.decoded == 0 && !context.unverified;
        Ok(decoder)
    }

    fn at(bytes: A, position: u64) -> Self {
        let length = bytes.length();
        Self { bytes, length, position, spacing: 0, verify: false, cancel: Cancel::default(), findings: None }
    }

    fn point(&self, decoded: u64) -> SeekPoint {
        let compressed_bit = self.bytes.place(decoded).saturating_mul(8);
        SeekPoint { compressed_bit, decoded, state: Vec::new() }
    }

    fn end(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.verify) {
            return Ok(());
        }
        let Err(what) = self.bytes.check_all()? else { return Ok(()) };
        let compressed_from = self.bytes.start();
        let compressed = self.bytes.place(self.length);
        let Some(findings) = &mut self.findings else { return Err(faults::invalid(compressed, what)) };
        let (decoded, what) = (0..self.length, what.to_owned());
        findings.report(Damage { decoded, lost_from: self.length, compressed, compressed_from, what });
        Ok(())
    }
}

impl<A: Anywhere> Decoder for Straight<A> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.cancel.check()?;
        let left = usize::try_from(self.length.saturating_sub(self.position)).unwrap_or(usize::MAX);
        // Points are where they are whatever is asked for at once.
        let is_point = self.spacing > 0 && self.position.is_multiple_of(self.spacing) && self.position > 0;
        let behind = self.position.checked_rem(self.spacing).map_or(u64::MAX, |before| self.spacing - before);
        let wanted = left.min(buffer.len()).min(usize::try_from(behind).unwrap_or(usize::MAX));
        if wanted == 0 {
            if left == 0 && !buffer.is_empty() {
                self.end()?;
            }
            return Ok(0);
        }
        let read = self.bytes.fetch(&mut buffer[..wanted], self.position)?;
        if read == 0 {
            self.length = self.position;
            self.verify = false;
            return Err(faults::cut(self.bytes.place(self.position), "the data"));
        }
        let point = self.point(self.position);
        if let Some(findings) = self.findings.as_mut().filter(|_| is_point) {
            findings.points.push(point);
        }
        self.position += read as u64;
        Ok(read)
    }

    fn skip(&mut self, bytes: u64) -> io::Result<bool> {
        let is_possible = bytes <= self.length.saturating_sub(self.position);
        if is_possible {
            self.position += bytes;
            self.verify = false;
        }
        Ok(is_possible)
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.bytes.memory()
    }
}

impl<A: Anywhere> FirstPass for Straight<A> {
    fn findings(&mut self) -> Option<&mut Findings> {
        self.findings.as_mut()
    }

    fn compressed_position(&self) -> u64 {
        self.bytes.place(self.position)
    }
}
