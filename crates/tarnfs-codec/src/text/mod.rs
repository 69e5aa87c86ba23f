//! Bytes as text: base64 and quoted-printable, as mail has them, and what carries whole files (`base64`, `uuencode`).
//!
//! - `base64`, `quoted`: the encodings
//! - `heads`: what stands before the text of a file
//! - `url`: contents of addresses in pages
//! - `uu`: what `uuencode` writes
//! - `regular`: base64 in lines that are all equally long, of which each byte can be read without those before it

pub(crate) mod base64;
mod heads;
pub(crate) mod quoted;
mod regular;
pub(crate) mod url;
pub(crate) mod uu;

#[cfg(test)]
mod tests;

use std::io;

use tarnfs_source::{Cancel, SharedSource};

use crate::faults;
use crate::input::Input;
use crate::stepwise::{self, Stepwise};
use crate::{Damage, DecodeContext, Decoder, Findings, FirstPass, Options, PIECE, SeekPoint};

/// Bytes of text that are decoded at once. Where seek points are depends on it.
const STEP: usize = 64 << 10;

/// A kind of text.
trait Letters: Send {
    /// Appends to `bytes` what the next letters say; `is_last` if no more follow. The error is the place of what is
    /// wrong in them, and what that is.
    fn decode(&mut self, text: &[u8], is_last: bool, bytes: &mut Vec<u8>) -> Result<(), (usize, &'static str)>;

    /// True where decoding may start without what came before.
    fn is_between(&self) -> bool;

    /// What follows is no part of it.
    fn has_ended(&self) -> bool;

    /// How many of the letters that came last are before the end; `None` if it does not matter what is behind it.
    fn ends_at(&self) -> Option<usize> {
        None
    }
}

/// Decodes text.
struct Text<L> {
    input: Input,
    letters: L,
    /// Where the first letter is.
    start: u64,
    /// What was decoded last, of which this much was handed out.
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

impl<L: Letters> Text<L> {
    /// The text begins at byte `start` of `source`.
    fn first_pass(source: SharedSource, start: u64, letters: L, options: &Options) -> Self {
        let mut text = Self::new(source, start, letters, options.coder.decoded_length);
        text.findings = Some(Findings { points: vec![SeekPoint::default()], ..Findings::default() });
        text.spacing = options.seek_point_spacing.max(PIECE as u64);
        text.cancel = options.cancel.clone();
        text
    }

    fn resume(
        source: SharedSource,
        start: u64,
        letters: L,
        point: &SeekPoint,
        context: &DecodeContext,
    ) -> io::Result<Self> {
        let length = source.len();
        let mut text = Self::new(source, start, letters, context.coder.decoded_length);
        if *point == SeekPoint::default() {
            return Ok(text);
        }
        let at = point.compressed_bit / 8;
        if !point.state.is_empty() || !point.compressed_bit.is_multiple_of(8) || !(start..=length).contains(&at) {
            return Err(faults::invalid(at, "a seek point that no such stream can have"));
        }
        text.input.seek(at);
        text.position = point.decoded;
        Ok(text)
    }

    fn new(source: SharedSource, start: u64, letters: L, length: Option<u64>) -> Self {
        Self {
            input: Input::new(source, start),
            letters,
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
        let at = self.input.position();
        // In steps from the start, so that it does not matter where decoding began.
        let step = STEP - usize::try_from((at - self.start.min(at)) % STEP as u64).unwrap_or_default();
        if self.position - self.last_point >= self.spacing && self.letters.is_between() {
            self.last_point = self.position;
            let point = SeekPoint { compressed_bit: at.saturating_mul(8), decoded: self.position, state: Vec::new() };
            self.findings.iter_mut().for_each(|findings| findings.points.push(point.clone()));
        }
        let is_last = self.input.remaining() <= step as u64;
        let text = self.input.peek(step)?;
        let length = text.len();
        let decoded = self.letters.decode(text, is_last, &mut self.block);
        let end = self.letters.ends_at().filter(|_| self.letters.has_ended());
        let behind = end.and_then(|end| text.get(end..)).unwrap_or_default();
        // The line behind the last one of base64 goes on.
        let blanks = behind.iter().take_while(|letter| letter.is_ascii_whitespace() || **letter == b'=').count();
        let mut ignored = (behind.len() - blanks) as u64;
        self.input.consume(length);
        if end.is_some() {
            ignored += self.input.remaining();
        }
        self.position += self.block.len() as u64;
        let wrong = decoded.err().map(|(place, what)| {
            let place = at.saturating_add(place as u64);
            let is_cut = is_last && place >= at.saturating_add(length as u64);
            if is_cut { faults::cut(place, what) } else { faults::invalid(place, what) }
        });
        if let Some(most) = self.length {
            // What comes behind these is nobody's.
            let more = usize::try_from(self.position.saturating_sub(most)).unwrap_or(usize::MAX);
            self.block.truncate(self.block.len().saturating_sub(more));
            self.position = self.position.min(most);
        }
        if ignored > 0
            && wrong.is_none()
            && self.length.is_none()
            && let Some(findings) = &mut self.findings
        {
            let what = format!("{ignored} bytes behind the end of the text belong to nothing and are ignored");
            let (end, compressed) = (self.position, self.input.position());
            findings.report(Damage {
                decoded: end..end,
                lost_from: end,
                compressed,
                compressed_from: compressed,
                what,
            });
        }
        self.ended = wrong.is_some() || is_last || self.letters.has_ended() || self.length == Some(self.position);
        if let Some(wrong) = wrong {
            self.failure = Some(wrong);
        } else if self.ended
            && let Some(most) = self.length
            && self.position < most
        {
            let what = format!("the data end {} bytes before what the archive says", most - self.position);
            self.failure = Some(faults::invalid(self.input.position(), what));
        }
        Ok(())
    }
}

impl<L: Letters> Stepwise for Text<L> {
    fn step(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.served == self.block.len() {
            self.next_block()?;
        }
        Ok(stepwise::hand_out(&self.block, &mut self.served, buffer))
    }

    fn has_ended(&self) -> bool {
        self.ended && self.served == self.block.len()
    }

    fn end(&mut self) {
        self.ended = true;
        self.served = self.block.len();
    }

    fn waiting(&mut self) -> &mut Option<io::Error> {
        // What was decoded before it comes first.
        &mut self.failure
    }
}

impl<L: Letters> Decoder for Text<L> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // What was decoded before something wrong comes first.
        let failure = self.failure.take();
        let read = stepwise::read(self, buffer);
        match (read, failure.or_else(|| self.failure.take())) {
            (Ok(0), Some(failure)) if !buffer.is_empty() => Err(failure),
            (read, failure) => {
                self.failure = failure;
                read
            }
        }
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.input.memory() + self.block.capacity()
    }
}

impl<L: Letters> FirstPass for Text<L> {
    fn findings(&mut self) -> Option<&mut Findings> {
        self.findings.as_mut()
    }

    fn compressed_position(&self) -> u64 {
        self.input.position()
    }
}
