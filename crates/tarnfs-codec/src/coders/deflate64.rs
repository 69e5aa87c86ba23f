//! Deflate64 (APPNOTE 6.3.10, method 9): deflate with a window of 64 KiB and longer matches.

use std::io;

use deflate64::InflaterManaged;
use tarnfs_source::{Cancel, SharedSource};

use super::streamed::{Streamed, Unpack};
use crate::faults;
use crate::input::Input;
use crate::{Codec, DecodeContext, Decoder, FirstPass, Options, Pace, SeekPoint};

/// The codec.
#[derive(Debug)]
pub(super) struct Deflate64;

struct Inflater {
    input: Input,
    inflater: Box<InflaterManaged>,
}

impl Inflater {
    fn new(source: SharedSource) -> Self {
        Self { input: Input::new(source, 0), inflater: Box::new(InflaterManaged::new()) }
    }
}

impl Unpack for Inflater {
    fn unpack(&mut self, buffer: &mut [u8], cancel: &Cancel) -> io::Result<usize> {
        loop {
            // There may be any number of blocks that hold nothing.
            cancel.check()?;
            let input = self.input.fill(1)?;
            let at_end = input.is_empty();
            let done = self.inflater.inflate(input, buffer);
            self.input.consume(done.bytes_consumed);
            if done.bytes_written > 0 || self.inflater.finished() {
                return Ok(done.bytes_written);
            }
            let position = self.input.position();
            if done.data_error {
                return Err(faults::invalid(position, "the deflate64 data are not valid"));
            }
            if at_end || done.bytes_consumed == 0 {
                return Err(faults::cut(position, "the deflate64 data"));
            }
        }
    }

    fn position(&self) -> u64 {
        self.input.position()
    }

    fn memory(&self, _decoded: u64) -> usize {
        /// Its window and tables.
        const INFLATER: usize = 300 << 10;
        self.input.memory() + size_of::<InflaterManaged>() + INFLATER
    }
}

impl Codec for Deflate64 {
    fn name(&self) -> &'static str {
        "deflate64"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 200_000, in_whole_chunks: false }
    }

    fn has_seek_points(&self) -> bool {
        false
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(Streamed::first_pass(Inflater::new(source), options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(Streamed::resume(Inflater::new(source), point, context.coder.decoded_length)?))
    }
}
