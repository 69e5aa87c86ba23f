//! `.br`: one brotli stream (RFC 7932), also with the larger windows that `brotli --large_window` writes.
//!
//! It has no magic and no checksum: only the name of a file says that it is one. The only seek point is its start.

#[cfg(test)]
mod tests;

use std::io;

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, SliceWrapper, StandardAlloc};
use tarnfs_source::{Cancel, Limits, SharedSource};

use crate::faults;
use crate::input::Input;
use crate::stepwise::{self, Stepwise};
use crate::{Codec, Damage, DecodeContext, Decoder, FileCodec, Findings, FirstPass, Options, Pace, SeekPoint};

/// The codec.
#[derive(Debug)]
pub(crate) struct Brotli;

impl Codec for Brotli {
    fn name(&self) -> &'static str {
        "brotli"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 300_000, in_whole_chunks: false }
    }

    fn has_seek_points(&self) -> bool {
        false
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(StreamDecoder::new(source, options.limits, Some(options))))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        let decoder = StreamDecoder::new(source, context.limits, None);
        if *point != SeekPoint::default() {
            return Err(decoder.invalid("a seek point of brotli that is not its start"));
        }
        Ok(Box::new(decoder))
    }

    fn file_codec(&self) -> Option<&dyn FileCodec> {
        Some(self)
    }
}

impl FileCodec for Brotli {
    fn about(&self) -> &'static str {
        "also large windows; decoded from its start"
    }

    fn suffixes(&self) -> &'static [(&'static str, &'static str)] {
        &[(".tbr", ".tar"), (".br", "")]
    }

    fn bid(&self, _head: &[u8]) -> u32 {
        0
    }

    fn may_be_named(&self, _: &[u8]) -> bool {
        true
    }
}

/// Bytes of input asked for at once.
pub(crate) const WANTED: usize = 16 << 10;

/// Decoded bytes at once at most, whatever is asked for: how many come before damage depends on it.
const STEP: usize = 64 << 10;

/// Windows have at least 2^10 bytes.
const NARROWEST: u32 = 10;

/// RFC 7932, 9.1: what the first byte is of a stream with a larger window, whose size the next one has.
const LARGE_WINDOW: u8 = 0x11;

type State = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

/// The state of a stream whose window may be as large as it is.
pub(crate) struct Stream {
    state: Box<State>,
    decoded: usize,
}

impl Stream {
    /// Looks how much memory the stream asks for that begins here, before it gets any.
    pub(crate) fn start(input: &mut Input, limits: &Limits) -> io::Result<Self> {
        let large = match *input.peek(2)? {
            [LARGE_WINDOW, bits] => Some(u32::from(bits & 0x3F)),
            _ => None,
        };
        // Others have at most 16 MiB, which is below any limit in use.
        let most = limits.decoder_window;
        if let Some(bits) = large.filter(|&bits| bits < NARROWEST || 1_u64 << bits.min(63) > most) {
            let what = format!("the stream needs a window of 2^{bits} bytes, the limit is {most}");
            return Err(faults::unsupported(input.position(), what));
        }
        let allocate = StandardAlloc::default;
        Ok(Self { state: Box::new(BrotliState::new(allocate(), allocate(), allocate())), decoded: 0 })
    }

    /// Decodes; returns how many bytes of `input` that took, and how many of `output` came of them.
    pub(crate) fn decode(&mut self, input: &[u8], output: &mut [u8]) -> (BrotliResult, usize, usize) {
        let (mut unread, mut read, mut room, mut written) = (input.len(), 0, output.len(), 0);
        let result = BrotliDecompressStream(
            &mut unread,
            &mut read,
            input,
            &mut room,
            &mut written,
            output,
            &mut self.decoded,
            &mut self.state,
        );
        (result, read, written)
    }

    /// Bytes that it has decoded.
    pub(crate) fn decoded(&self) -> u64 {
        self.decoded as u64
    }

    /// Bytes of memory once so many bytes more were decoded.
    pub(crate) fn memory_after(&self, bytes: u64) -> usize {
        let state = &self.state;
        let window = 1_usize.checked_shl(state.window_bits).unwrap_or(usize::MAX);
        // It grows while it fills, and each time there is twice as much of it.
        let behind = usize::try_from(bytes).unwrap_or(usize::MAX).saturating_add(self.decoded);
        let ring = if bytes > 0 { behind.saturating_mul(2).min(window) } else { 0 };
        let codes = [&state.literal_hgroup, &state.insert_copy_hgroup].map(|group| size_of_val(group.codes.slice()));
        size_of::<State>()
            + state.ringbuffer.slice().len().max(ring)
            + codes.iter().sum::<usize>()
            + size_of_val(state.distance_hgroup.codes.slice())
    }
}

/// Decodes one stream.
struct StreamDecoder {
    input: Input,
    limits: Limits,
    cancel: Cancel,
    /// `None` before the window's size is known to be allowed.
    stream: Option<Stream>,
    ended: bool,
    failure: Option<io::Error>,
    /// Bytes that came of it.
    decoded: u64,
    /// What was decoded last, of which this much was handed out.
    block: Vec<u8>,
    served: usize,
    findings: Option<Findings>,
}

impl StreamDecoder {
    /// With the options of a first pass.
    fn new(source: SharedSource, limits: Limits, first_pass: Option<&Options>) -> Self {
        let findings = first_pass.map(|_| Findings { points: vec![SeekPoint::default()], ..Findings::default() });
        Self {
            input: Input::new(source, 0),
            limits,
            cancel: first_pass.map(|options| options.cancel.clone()).unwrap_or_default(),
            stream: None,
            ended: false,
            failure: None,
            decoded: 0,
            block: Vec::new(),
            served: 0,
            findings,
        }
    }

    fn invalid(&self, what: &str) -> io::Error {
        faults::invalid(self.input.position(), what)
    }

    fn end_stream(&mut self) {
        self.ended = true;
        let (compressed, rest, decoded) = (self.input.position(), self.input.remaining(), self.decoded);
        if let Some(findings) = self.findings.as_mut().filter(|_| rest > 0) {
            let what = format!("{rest} bytes behind the end of the brotli stream belong to nothing and are ignored");
            findings.report(Damage {
                decoded: decoded..decoded,
                lost_from: decoded,
                compressed,
                compressed_from: compressed,
                what,
            });
        }
    }

    /// Decodes the next bytes. Before damage they are the same whatever is asked for, so that all that a first pass
    /// has seen can be read later.
    fn decode(&mut self) -> io::Result<()> {
        // There may be any number of blocks that hold nothing.
        self.cancel.check()?;
        self.block.resize(STEP, 0);
        self.served = 0;
        let written = self.decode_block().inspect_err(|_| self.block.clear())?;
        self.block.truncate(written);
        Ok(())
    }

    fn decode_block(&mut self) -> io::Result<usize> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => Stream::start(&mut self.input, &self.limits)?,
        };
        let input = self.input.fill(WANTED)?;
        let (result, read, written) = stream.decode(input, &mut self.block);
        self.decoded += written as u64;
        let at_end = input.len() as u64 == self.input.remaining();
        self.input.consume(read);
        match result {
            BrotliResult::ResultSuccess => self.end_stream(),
            BrotliResult::NeedsMoreOutput => {}
            BrotliResult::NeedsMoreInput if read > 0 || written > 0 => {}
            // What came before is right. It fails again.
            BrotliResult::ResultFailure if written > 0 => {}
            BrotliResult::NeedsMoreInput if at_end => {
                return Err(faults::cut(self.input.source().len(), "the brotli stream"));
            }
            BrotliResult::NeedsMoreInput | BrotliResult::ResultFailure => {
                return Err(self.invalid("the brotli stream cannot be decoded"));
            }
        }
        self.stream = Some(stream);
        Ok(written)
    }
}

impl Stepwise for StreamDecoder {
    fn step(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.served == self.block.len() {
            self.decode()?;
        }
        Ok(stepwise::hand_out(&self.block, &mut self.served, buffer))
    }

    fn has_ended(&self) -> bool {
        self.ended && self.served == self.block.len()
    }

    fn end(&mut self) {
        self.ended = true;
    }

    fn waiting(&mut self) -> &mut Option<io::Error> {
        &mut self.failure
    }
}

impl Decoder for StreamDecoder {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        stepwise::read(self, buffer)
    }

    fn memory(&self) -> usize {
        self.memory_after(0)
    }

    fn memory_after(&self, bytes: u64) -> usize {
        let stream = self.stream.as_ref().map_or(0, |stream| stream.memory_after(bytes));
        size_of::<Self>() + self.input.memory() + self.block.capacity() + stream
    }
}

impl FirstPass for StreamDecoder {
    fn findings(&mut self) -> Option<&mut Findings> {
        self.findings.as_mut()
    }

    fn compressed_position(&self) -> u64 {
        self.input.position()
    }
}
