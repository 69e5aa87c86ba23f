//! Decodes formats whose blocks need nothing of each other, each of which says how long it is. A format of such
//! [`Blocks`] reads one part after the other; seek points, damage and handing out are the same for all.

use std::io;

use tarnfs_source::{Cancel, Limits, SharedSource};

use crate::faults;
use crate::input::Input;
use crate::starts::{Effort, GAP};
use crate::{Damage, Decoder, FILLER, Findings, FirstPass, Options, SeekPoint, stepwise};

/// A format of blocks, and where in it decoding is.
pub(crate) trait Blocks: Send + Sized {
    /// At the start of a file.
    fn new(limits: Limits) -> Self;

    /// Reads what comes next: its position is at the part's end then. What it decodes goes to the start of `block`,
    /// which it makes long enough. Where nothing is wanted to be verified, checksums need not be compared.
    fn next(&mut self, input: &mut Input, block: &mut Vec<u8>, verify: bool) -> Result<Part, Stop>;

    /// The state of a seek point at the next block: all that is needed beside its place; not empty.
    fn state(&self) -> Vec<u8>;

    /// Goes on at a seek point with this state; false if that is none.
    fn restore(&mut self, state: &[u8]) -> bool;

    /// Where something begins behind byte `at`, at which nothing could be read, that proves itself to be what can be
    /// read there; it goes on with that. `None` if there is nothing. All searches share an `effort`.
    fn find_next(
        &mut self,
        source: &SharedSource,
        at: u64,
        cancel: &Cancel,
        effort: &mut Effort,
    ) -> io::Result<Option<u64>> {
        let _ = (source, at, cancel, effort);
        Ok(None)
    }

    /// What is at byte `at`, where nothing could be read, if a checksum proves that only its head is damaged: its bytes
    /// go to the start of `block`. It shares the `effort` of searches.
    fn mend(
        &mut self,
        source: &SharedSource,
        at: u64,
        block: &mut Vec<u8>,
        effort: &mut Effort,
    ) -> io::Result<Option<Mended>> {
        let _ = (source, at, block, effort);
        Ok(None)
    }
}

/// What was read although its head is damaged.
pub(crate) struct Mended {
    /// Decoded bytes.
    pub(crate) length: usize,
    /// Byte of the source at which it ends.
    pub(crate) end: u64,
    /// What is damaged.
    pub(crate) what: &'static str,
}

/// What was read.
pub(crate) enum Part {
    /// Nothing that is decoded: a header, something to be skipped.
    Other,
    /// A block of that many decoded bytes, if they are right.
    Block { length: usize, fault: Option<Fault> },
    /// The end, behind which there may be something that is no part of the format.
    End,
}

/// Why a block must not be served.
pub(crate) struct Fault {
    pub(crate) what: &'static str,
    /// The block was decoded, to bytes that nobody should trust.
    pub(crate) is_decoded: bool,
    /// Its length is what it should be.
    pub(crate) is_exact: bool,
}

/// Why nothing was read.
pub(crate) enum Stop {
    Io(io::Error),
    /// The file ends inside of this.
    Cut(&'static str),
    /// The file is not as it should be, at or behind the last position.
    Invalid(String),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The decoder.
pub(crate) struct BlockDecoder<F> {
    format: F,
    input: Input,
    block: Vec<u8>,
    /// Bytes of the decoded block, and how many of them have been handed out.
    filled: usize,
    served: usize,
    /// Decoded bytes up to the end of those in `block`.
    decoded: u64,
    ended: bool,
    /// What it has cost to find out what lies behind damage.
    effort: Effort,
    pass: Option<Pass>,
}

/// What only a first pass needs.
struct Pass {
    spacing: u64,
    cancel: Cancel,
    last_point: u64,
    findings: Findings,
}

impl<F: Blocks> BlockDecoder<F> {
    pub(crate) fn first_pass(source: SharedSource, options: &Options) -> Self {
        let findings = Findings { points: vec![SeekPoint::default()], ..Findings::default() };
        let pass = Pass {
            spacing: options.seek_point_spacing.max(1),
            cancel: options.cancel.clone(),
            last_point: 0,
            findings,
        };
        Self::new(source, 0, options.limits, Some(pass))
    }

    pub(crate) fn resume(source: SharedSource, point: &SeekPoint, limits: Limits) -> io::Result<Self> {
        let at = point.compressed_bit / 8;
        let mut decoder = Self::new(source, at, limits, None);
        decoder.decoded = point.decoded;
        let is_known = point.state.is_empty() || decoder.format.restore(&point.state);
        if !is_known || !point.compressed_bit.is_multiple_of(8) || at > decoder.input.source().len() {
            return Err(faults::invalid(at, "a seek point that this file cannot have"));
        }
        Ok(decoder)
    }

    fn new(source: SharedSource, position: u64, limits: Limits, pass: Option<Pass>) -> Self {
        Self {
            format: F::new(limits),
            input: Input::new(source, position),
            block: Vec::new(),
            filled: 0,
            served: 0,
            decoded: 0,
            ended: false,
            effort: Effort::default(),
            pass,
        }
    }

    /// Goes on to the next block that has bytes, or to the end of the stream.
    fn advance(&mut self) -> io::Result<()> {
        while self.served == self.filled && !self.ended {
            (self.served, self.filled) = (0, 0);
            if let Some(pass) = &self.pass {
                pass.cancel.check()?;
            }
            let at = self.input.position();
            let due = self.pass.as_ref().is_some_and(|pass| self.decoded - pass.last_point >= pass.spacing);
            let state = due.then(|| self.format.state());
            match self.format.next(&mut self.input, &mut self.block, self.pass.is_some()) {
                Ok(Part::Other) => {}
                Ok(Part::Block { length, fault }) => {
                    self.add(at, length, fault.as_ref())?;
                    if let (Some(pass), Some(state)) = (&mut self.pass, state) {
                        pass.last_point = self.decoded - length as u64;
                        let compressed_bit = at.saturating_mul(8);
                        pass.findings.points.push(SeekPoint { compressed_bit, decoded: pass.last_point, state });
                    }
                }
                Ok(Part::End) if self.input.remaining() > 0 && self.leave_gap(at)? => {}
                Ok(Part::End) => self.end(),
                Err(Stop::Io(error)) => return Err(error),
                // Where the file seems to be cut, the length of a block may be damaged.
                Err(Stop::Invalid(_) | Stop::Cut(_)) if at > 0 && (self.mend(at)? || self.leave_gap(at)?) => {}
                Err(Stop::Invalid(what)) => return Err(faults::invalid(at, what)),
                Err(Stop::Cut(place)) => return Err(faults::cut(self.input.source().len(), place)),
            }
        }
        Ok(())
    }

    /// Takes in the block that began at byte `at`.
    fn add(&mut self, at: u64, length: usize, fault: Option<&Fault>) -> io::Result<()> {
        let start = self.decoded;
        let Some(end) = start.checked_add(length as u64) else {
            return Err(faults::invalid(at, "the stream is longer than 2^64 bytes"));
        };
        (self.filled, self.decoded) = (length, end);
        let Some(&Fault { what, is_decoded, is_exact }) = fault else { return Ok(()) };
        if !is_decoded {
            self.block.resize(self.block.len().max(length), 0);
            self.block[..length].fill(FILLER);
        }
        // What is damaged is known since the first pass, and no reason to serve nothing behind it.
        let Some(pass) = &mut self.pass else { return Ok(()) };
        pass.findings.report(Damage {
            decoded: start..end,
            lost_from: if is_decoded { end } else { start },
            compressed: self.input.position().max(at),
            compressed_from: at,
            what: what.to_owned(),
        });
        if !is_exact {
            pass.findings.shift(end);
        }
        Ok(())
    }

    /// What begins at byte `at` is right, if only its head is damaged.
    fn mend(&mut self, at: u64) -> io::Result<bool> {
        let mended = self.format.mend(self.input.shared_source(), at, &mut self.block, &mut self.effort)?;
        let Some(Mended { length, end, what }) = mended else { return Ok(false) };
        let start = self.decoded;
        self.add(at, length, None)?;
        self.input.seek(end);
        if let Some(pass) = &mut self.pass {
            pass.findings.report(Damage {
                decoded: start..start,
                lost_from: start,
                compressed: at,
                compressed_from: at,
                what: what.to_owned(),
            });
        }
        Ok(true)
    }

    /// A gap stands for what begins at byte `at` and cannot be read, if there is something behind it that can: nobody
    /// knows how long that was.
    fn leave_gap(&mut self, at: u64) -> io::Result<bool> {
        let cancel = self.pass.as_ref().map(|pass| pass.cancel.clone()).unwrap_or_default();
        let next = self.format.find_next(self.input.shared_source(), at, &cancel, &mut self.effort)?;
        let Some(next) = next else { return Ok(false) };
        let what = "bytes that cannot be read between two parts of the file";
        self.add(at, GAP, Some(&Fault { what, is_decoded: false, is_exact: false }))?;
        self.input.seek(next);
        Ok(true)
    }

    fn end(&mut self) {
        self.ended = true;
        let (compressed, rest) = (self.input.position(), self.input.remaining());
        if let Some(pass) = self.pass.as_mut().filter(|_| rest > 0) {
            let what = format!("{rest} bytes behind the end are of another format and are ignored");
            pass.findings.report(Damage {
                decoded: self.decoded..self.decoded,
                lost_from: self.decoded,
                compressed,
                compressed_from: compressed,
                what,
            });
        }
    }
}

impl<F: Blocks> Decoder for BlockDecoder<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.advance().inspect_err(|_| self.ended = true)?;
        Ok(stepwise::hand_out(&self.block[..self.filled], &mut self.served, buffer))
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.block.capacity() + self.input.memory()
    }
}

impl<F: Blocks> FirstPass for BlockDecoder<F> {
    fn findings(&mut self) -> Option<&mut Findings> {
        self.pass.as_mut().map(|pass| &mut pass.findings)
    }

    fn compressed_position(&self) -> u64 {
        self.input.position()
    }
}
