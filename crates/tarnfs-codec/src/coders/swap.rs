//! Words whose bytes are turned around: methods 02 03 02 (of two bytes) and 02 03 04 (of four) of 7z. Bytes behind the
//! last whole word stay as they are.

use std::io;

use tarnfs_source::SharedSource;

use super::filtered::{Filter, Filtered};
use super::invalid_properties;
use crate::{Codec, CoderContext, ContainerCodec, DecodeContext, Decoder, FirstPass, Options, Pace, SeekPoint};

/// The codec of words of this many bytes.
#[derive(Debug)]
pub(super) struct Swap<const BYTES: usize>;

pub(super) const TWO: Swap<2> = Swap;
pub(super) const FOUR: Swap<4> = Swap;

struct Words<const BYTES: usize>;

impl<const BYTES: usize> Words<BYTES> {
    fn new(coder: &CoderContext) -> io::Result<Self> {
        if coder.properties.is_empty() { Ok(Self) } else { Err(invalid_properties("swap")) }
    }
}

impl<const BYTES: usize> Filter for Words<BYTES> {
    fn undo(&mut self, data: &mut [u8], _position: u64) -> usize {
        let (words, rest) = data.as_chunks_mut::<BYTES>();
        for word in words {
            word.reverse();
        }
        let left = rest.len();
        data.len() - left
    }

    fn save(&self, _position: u64) -> Vec<u8> {
        Vec::new()
    }

    fn load(&mut self, state: &[u8], position: u64) -> bool {
        state.is_empty() && position.is_multiple_of(BYTES as u64)
    }
}

impl<const BYTES: usize> Codec for Swap<BYTES> {
    fn name(&self) -> &'static str {
        if BYTES == 2 { "swap2" } else { "swap4" }
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 2_000_000, in_whole_chunks: false }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(Filtered::first_pass(source, 0, Words::<BYTES>::new(&options.coder)?, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(Filtered::resume(source, 0, Words::<BYTES>::new(&context.coder)?, point, context)?))
    }

    fn container_codec(&self) -> Option<&dyn ContainerCodec> {
        Some(self)
    }
}

impl<const BYTES: usize> ContainerCodec for Swap<BYTES> {
    fn decoded_length(&self, stored: u64, _coder: &CoderContext) -> Option<u64> {
        Some(stored)
    }
}
