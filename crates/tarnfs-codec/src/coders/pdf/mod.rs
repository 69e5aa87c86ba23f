//! Streams of PDF: what undoes the filters of one, and its encryption.
//!
//! Properties: the steps, one behind the other, each with a number ([`Stage::of`]): what was applied last comes first.
//! `cipher` decrypts, `lzw` and `letters` undo what is named so, `predictor` what an image was changed with before it
//! was compressed. `output` makes files of images.
//!
//! Source: ISO 32000-2, 7.4 (filters) and 7.6 (encryption).

mod cipher;
mod letters;
mod lzw;
mod output;
mod predictor;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tarnfs_source::{Cancel, SharedSource};
use zlib_rs::{Inflate, InflateFlush, Status};

use super::invalid_properties;
use super::streamed::{Streamed, Unpack};
use crate::faults;
use crate::input::Input;
use crate::{Codec, CoderContext, ContainerCodec, DecodeContext, Decoder, FirstPass, Options, Pace, SeekPoint};

/// The codec.
#[derive(Debug)]
pub(super) struct PdfStream;

impl Codec for PdfStream {
    fn name(&self) -> &'static str {
        "pdf-stream"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 150_000, in_whole_chunks: false }
    }

    fn has_seek_points(&self) -> bool {
        false
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(Streamed::first_pass(Chain::new(source, &options.coder)?, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        let length = context.coder.decoded_length;
        Ok(Box::new(Streamed::resume(Chain::new(source, &context.coder)?, point, length)?))
    }

    fn container_codec(&self) -> Option<&dyn ContainerCodec> {
        Some(self)
    }
}

impl ContainerCodec for PdfStream {
    /// None of it can be read so. A wrong password is told before anything is read.
    fn random_access(&self, source: &SharedSource, coder: &CoderContext) -> io::Result<Option<SharedSource>> {
        Chain::new(SharedSource::clone(source), coder).map(|_| None)
    }
}

/// Filters of one stream. Each that is nested makes what the next one takes.
const MOST_STAGES: usize = 8;

/// Bytes that one stage takes from the one before at once.
const TOGETHER: usize = 16 << 10;

/// Bytes that may go from stage to stage for each one that is stored or comes out, and before any does. What each stage
/// of a real stream takes is some bytes for each one that it gives; but blanks between digits, say, give nothing, and
/// filters in each other make any number of them of a few bytes.
const WITHIN: u64 = 8;
const WITHIN_AT_FIRST: u64 = 192 << 10;

/// What has gone through a chain.
#[derive(Default)]
struct Passed {
    /// Bytes from stage to stage.
    within: AtomicU64,
    /// Bytes that were read of what is stored, that have come out, and for which a stage has room.
    outside: AtomicU64,
}

impl Passed {
    fn allow(&self, count: usize) {
        self.outside.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// So many bytes more have come of a stage that others follow; false if that is too many.
    fn take(&self, count: usize) -> bool {
        let within = self.within.fetch_add(count as u64, Ordering::Relaxed).saturating_add(count as u64);
        within <= self.outside.load(Ordering::Relaxed).saturating_mul(WITHIN).saturating_add(WITHIN_AT_FIRST)
    }
}

/// Undoes one filter.
trait Undo: Send {
    /// Takes from `input` and gives to `output`; none only at the end.
    fn undo(&mut self, input: &mut Feed, output: &mut [u8]) -> io::Result<usize>;

    /// Bytes of memory that it takes.
    fn memory(&self) -> usize;
}

/// What goes into a stage.
struct Feed {
    from: From,
    buffer: Vec<u8>,
    start: usize,
    cancel: Cancel,
    passed: Arc<Passed>,
    /// What comes here comes out of the chain.
    is_last: bool,
    /// What was wrong. A stage has taken it from its own input by then, and what it had decoded before it is lost: what
    /// would come next does not belong there.
    failed: Option<(io::ErrorKind, String)>,
}

enum From {
    Stored(Input),
    Stage(Box<Stage>),
}

impl Feed {
    fn new(from: From, passed: &Arc<Passed>) -> Self {
        let (passed, cancel) = (Arc::clone(passed), Cancel::default());
        Self { from, buffer: Vec::new(), start: 0, cancel, passed, is_last: false, failed: None }
    }

    /// The next bytes; none only at the end.
    fn bytes(&mut self) -> io::Result<&[u8]> {
        if self.start >= self.buffer.len() {
            self.cancel.check()?;
            if let Some((kind, what)) = &self.failed {
                return Err(io::Error::new(*kind, what.clone()));
            }
            self.buffer.resize(TOGETHER, 0);
            self.start = 0;
            let read = match &mut self.from {
                From::Stored(input) => {
                    let peeked = input.peek(TOGETHER).map(|bytes| {
                        self.buffer[..bytes.len()].copy_from_slice(bytes);
                        bytes.len()
                    });
                    if let Ok(length) = peeked {
                        input.consume(length);
                    }
                    peeked
                }
                From::Stage(stage) => stage.undo.undo(&mut stage.feed, &mut self.buffer),
            };
            let read = read.and_then(|length| {
                if self.is_last || matches!(self.from, From::Stored(_)) {
                    self.passed.allow(length);
                } else if !self.passed.take(length) {
                    return Err(self.wrong("filters that give next to nothing of what they take"));
                }
                Ok(length)
            });
            self.buffer.truncate(*read.as_ref().unwrap_or(&0));
            if let Err(error) = read {
                self.failed = Some((error.kind(), error.to_string()));
                return Err(error);
            }
        }
        Ok(&self.buffer[self.start..])
    }

    fn consume(&mut self, count: usize) {
        self.start = self.buffer.len().min(self.start + count);
    }

    fn next(&mut self) -> io::Result<Option<u8>> {
        let byte = self.bytes()?.first().copied();
        self.consume(1);
        Ok(byte)
    }

    /// Byte of what is stored up to which it was read.
    fn position(&self) -> u64 {
        match &self.from {
            From::Stored(input) => input.position(),
            From::Stage(stage) => stage.feed.position(),
        }
    }

    /// The error of what is wrong there.
    fn wrong(&self, what: &str) -> io::Error {
        faults::invalid(self.position(), what)
    }

    fn memory(&self) -> usize {
        let inner = match &self.from {
            From::Stored(input) => input.memory(),
            From::Stage(stage) => stage.memory(),
        };
        inner + self.buffer.capacity()
    }

    fn set_cancel(&mut self, cancel: &Cancel) {
        self.cancel = cancel.clone();
        if let From::Stage(stage) = &mut self.from {
            stage.feed.set_cancel(cancel);
        }
    }
}

/// A filter, and what goes into it.
struct Stage {
    undo: Box<dyn Undo>,
    feed: Feed,
}

impl Stage {
    /// The filter at the start of `properties`, and what is behind it:
    ///
    /// - 1 Flate; 2 LZW and whether codes grow early; 3 ASCII85; 4 ASCIIHex; 5 RunLength
    /// - 6 a predictor: its number, colours and bits of each (1 byte each), columns (4 bytes, little-endian)
    /// - 7 encryption, as `cipher` has it
    /// - 8 what stands before a file that is made, with its length (2 bytes); 9 a PNG of pixels, as `output` has it
    fn of<'p>(properties: &'p [u8], coder: &CoderContext) -> io::Result<(Box<dyn Undo>, &'p [u8])> {
        let invalid = || invalid_properties("a stream of PDF");
        Ok(match *properties {
            [1, ref rest @ ..] => (Box::new(Flate::default()), rest),
            [2, early, ref rest @ ..] => (Box::new(lzw::Lzw::new(early != 0)), rest),
            [3, ref rest @ ..] => (Box::new(letters::Ascii85::default()), rest),
            [4, ref rest @ ..] => (Box::new(letters::AsciiHex::default()), rest),
            [5, ref rest @ ..] => (Box::new(letters::RunLength::default()), rest),
            [6, kind, colors, bits, a, b, c, d, ref rest @ ..] => {
                let columns = u32::from_le_bytes([a, b, c, d]);
                (Box::new(predictor::Predictor::new(kind, colors, bits, columns).ok_or_else(invalid)?), rest)
            }
            [8, low, high, ref rest @ ..] => {
                let length = u16::from_le_bytes([low, high]);
                let (prefix, rest) = rest.split_at_checked(length.into()).ok_or_else(invalid)?;
                (Box::new(output::Prefix::new(prefix)), rest)
            }
            [9, ref rest @ ..] => {
                let (png, rest) = output::Png::new(rest).ok_or_else(invalid)?;
                (Box::new(png), rest)
            }
            [7, ref rest @ ..] => cipher::of(rest, coder)?.ok_or_else(invalid)?,
            _ => return Err(invalid()),
        })
    }

    fn memory(&self) -> usize {
        self.undo.memory() + self.feed.memory()
    }
}

struct Chain {
    feed: Feed,
    /// What was wrong behind the bytes that were handed out last.
    failure: Option<io::Error>,
}

impl Chain {
    fn new(source: SharedSource, coder: &CoderContext) -> io::Result<Self> {
        let passed = Arc::new(Passed::default());
        let mut feed = Feed::new(From::Stored(Input::new(source, 0)), &passed);
        let mut rest = &*coder.properties;
        for _ in 0..MOST_STAGES {
            if rest.is_empty() {
                break;
            }
            let undo;
            (undo, rest) = Stage::of(rest, coder)?;
            feed = Feed::new(From::Stage(Box::new(Stage { undo, feed })), &passed);
        }
        feed.is_last = true;
        if rest.is_empty() { Ok(Self { feed, failure: None }) } else { Err(invalid_properties("a stream of PDF")) }
    }
}

impl Unpack for Chain {
    fn unpack(&mut self, buffer: &mut [u8], cancel: &Cancel) -> io::Result<usize> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        self.feed.set_cancel(cancel);
        let mut filled = 0;
        while filled < buffer.len() {
            let bytes = match self.feed.bytes() {
                Ok(bytes) => bytes,
                // What came before it comes first.
                Err(error) if filled > 0 => {
                    self.failure = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            };
            let length = bytes.len().min(buffer.len() - filled);
            if length == 0 {
                break;
            }
            buffer[filled..filled + length].copy_from_slice(&bytes[..length]);
            self.feed.consume(length);
            filled += length;
        }
        Ok(filled)
    }

    fn position(&self) -> u64 {
        self.feed.position()
    }

    fn memory(&self, _decoded: u64) -> usize {
        self.feed.memory()
    }
}

/// Deflate behind a header of zlib. Its checksum is compared by no program: many write none.
#[derive(Default)]
struct Flate {
    inflate: Option<Box<Inflate>>,
    has_ended: bool,
    failed: Option<&'static str>,
}

impl Undo for Flate {
    fn undo(&mut self, input: &mut Feed, output: &mut [u8]) -> io::Result<usize> {
        /// What zlib takes, beside the window.
        const HEADER: usize = 2;
        if self.has_ended {
            return Ok(0);
        }
        if self.inflate.is_none() {
            // Some programs store nothing of what is empty, but keep the filter.
            if input.bytes()?.is_empty() {
                self.has_ended = true;
                return Ok(0);
            }
            // Line ends may stand before it.
            while input.bytes()?.first().is_some_and(u8::is_ascii_whitespace) {
                input.consume(1);
            }
            for _ in 0..HEADER {
                input.next()?;
            }
        }
        let inflate = self.inflate.get_or_insert_with(|| Box::new(Inflate::new(false, 15)));
        if let Some(what) = self.failed {
            return Err(input.wrong(what));
        }
        let mut written = 0;
        while written == 0 && !self.has_ended {
            let bytes = input.bytes()?;
            let is_end = bytes.is_empty();
            let before = (inflate.total_in(), inflate.total_out());
            let status = inflate.decompress(bytes, output, InflateFlush::NoFlush);
            let taken = (inflate.total_in() - before.0) as usize;
            written = (inflate.total_out() - before.1) as usize;
            input.consume(taken);
            match status {
                Ok(Status::StreamEnd) => self.has_ended = true,
                Err(_) => self.failed = Some("deflated data are damaged"),
                Ok(_) if is_end && written == 0 => self.failed = Some("deflated data are cut short"),
                Ok(_) if taken == 0 && written == 0 && !is_end => self.failed = Some("deflated data are damaged"),
                Ok(_) => {}
            }
            if let Some(what) = self.failed.filter(|_| written == 0) {
                return Err(input.wrong(what));
            }
        }
        Ok(written)
    }

    fn memory(&self) -> usize {
        48 << 10
    }
}
