//! "brotli-7z": brotli as 7z has it (method 04 f7 11 02). Either one stream, which py7zr flushes but does not end; or
//! frames, one behind the other, as the branch of 7-Zip with zstd writes them: a header, and a whole stream.
//!
//! The archive says how many bytes come out, and has a CRC-32 of them. So what follows the last of them, if anything
//! does, is not looked at.

use std::io;

use brotli_decompressor::BrotliResult;
use tarnfs_source::{Cancel, Limits, SharedSource};

use super::streamed::{Streamed, Unpack};
use crate::brotli::{Brotli, Stream, WANTED};
use crate::faults;
use crate::input::Input;
use crate::{Codec, DecodeContext, Decoder, FirstPass, Options, Pace, SeekPoint};

/// The codec.
#[derive(Debug)]
pub(super) struct Brotli7z;

/// Bytes of a frame's header: the number of a skippable frame of zstd, the length of the rest (8), the length of the
/// stream, "BR", and a hint at how much comes of it.
const HEADER: usize = 16;

/// The length of the stream that follows, if `header` is that of a frame.
fn frame(header: &[u8]) -> Option<u32> {
    let (start, [a, b, c, d, b'B', b'R', _, _]) = header.split_first_chunk::<8>()? else { return None };
    (*start == [0x50, 0x2a, 0x4d, 0x18, 8, 0, 0, 0]).then(|| u32::from_le_bytes([*a, *b, *c, *d]))
}

struct Unpacker {
    input: Input,
    limits: Limits,
    /// That which is being decoded.
    stream: Option<Stream>,
    /// Where the frame ends that is being decoded, or the last one; `None` if there are no frames.
    frame_end: Option<u64>,
    has_begun: bool,
}

impl Unpacker {
    fn new(source: SharedSource, limits: Limits) -> Self {
        Self { input: Input::new(source, 0), limits, stream: None, frame_end: None, has_begun: false }
    }

    /// Begins the next stream; false where there is none.
    fn begin(&mut self) -> io::Result<bool> {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        if !is_first && (self.frame_end.is_none() || self.input.remaining() == 0) {
            return Ok(false);
        }
        let at = self.input.position();
        if let Some(length) = frame(self.input.peek(HEADER)?) {
            self.input.consume(HEADER);
            if u64::from(length) > self.input.remaining() {
                return Err(faults::cut(self.input.source().len(), "a frame of brotli"));
            }
            self.frame_end = Some(self.input.position() + u64::from(length));
        } else if !is_first {
            return Err(faults::invalid(at, "no frame of brotli, where one should begin"));
        }
        self.stream = Some(Stream::start(&mut self.input, &self.limits)?);
        Ok(true)
    }
}

impl Unpack for Unpacker {
    fn unpack(&mut self, buffer: &mut [u8], cancel: &Cancel) -> io::Result<usize> {
        loop {
            // There may be any number of blocks, and of streams, that hold nothing.
            cancel.check()?;
            if self.stream.is_none() && !self.begin()? {
                return Ok(0);
            }
            let Some(stream) = &mut self.stream else { return Ok(0) };
            let position = self.input.position();
            let left = self.frame_end.map_or(u64::MAX, |end| end.saturating_sub(position));
            let input = self.input.fill(WANTED)?;
            let input = &input[..input.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
            let (result, read, written) = stream.decode(input, buffer);
            self.input.consume(read);
            match result {
                BrotliResult::ResultSuccess => {
                    self.stream = None;
                    if let Some(end) = self.frame_end {
                        self.input.seek(end);
                    }
                }
                // What came before is right. It fails again.
                BrotliResult::ResultFailure if written == 0 => {
                    return Err(faults::invalid(self.input.position(), "the brotli stream cannot be decoded"));
                }
                BrotliResult::NeedsMoreInput if read == 0 && written == 0 => {
                    return Err(faults::cut(self.input.position(), "the brotli stream"));
                }
                BrotliResult::ResultFailure | BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {}
            }
            if written > 0 {
                return Ok(written);
            }
        }
    }

    fn position(&self) -> u64 {
        self.input.position()
    }

    fn memory(&self, decoded: u64) -> usize {
        let stream = self.stream.as_ref();
        self.input.memory() + stream.map_or(0, |stream| stream.memory_after(decoded.saturating_sub(stream.decoded())))
    }
}

impl Codec for Brotli7z {
    fn name(&self) -> &'static str {
        "brotli-7z"
    }

    fn pace(&self) -> Pace {
        Brotli.pace()
    }

    fn has_seek_points(&self) -> bool {
        false
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(Streamed::first_pass(Unpacker::new(source, options.limits), options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        let unpacker = Unpacker::new(source, context.limits);
        Ok(Box::new(Streamed::resume(unpacker, point, context.coder.decoded_length)?))
    }
}
