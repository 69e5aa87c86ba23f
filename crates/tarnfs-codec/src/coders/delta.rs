//! Delta (The .xz File Format 1.2, §5.3.3; method 03 of 7z): each byte is stored as its difference to the one some
//! bytes before it. One property: that distance, less 1.

use std::io;

use tarnfs_source::SharedSource;

use super::filtered::{Filter, Filtered};
use super::invalid_properties;
use crate::{Codec, CoderContext, ContainerCodec, DecodeContext, Decoder, FirstPass, Options, Pace, SeekPoint};

/// The codec.
#[derive(Debug)]
pub(super) struct Delta;

/// The last decoded bytes, as many as the distance, the oldest first.
struct Differences(Vec<u8>);

impl Differences {
    fn new(coder: &CoderContext) -> io::Result<Self> {
        match coder.properties[..] {
            [distance] => Ok(Self(vec![0; usize::from(distance) + 1])),
            _ => Err(invalid_properties("delta")),
        }
    }
}

impl Filter for Differences {
    fn undo(&mut self, data: &mut [u8], _position: u64) -> usize {
        let distance = self.0.len();
        for (byte, before) in data.iter_mut().zip(&self.0) {
            *byte = byte.wrapping_add(*before);
        }
        for at in distance..data.len() {
            data[at] = data[at].wrapping_add(data[at - distance]);
        }
        let known = distance.min(data.len());
        self.0.drain(..known);
        self.0.extend_from_slice(&data[data.len() - known..]);
        data.len()
    }

    fn save(&self, _position: u64) -> Vec<u8> {
        self.0.clone()
    }

    fn load(&mut self, state: &[u8], _position: u64) -> bool {
        let is_possible = state.len() == self.0.len();
        if is_possible {
            self.0.copy_from_slice(state);
        }
        is_possible
    }
}

impl Codec for Delta {
    fn name(&self) -> &'static str {
        "delta"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 1_000_000, in_whole_chunks: false }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(Filtered::first_pass(source, 0, Differences::new(&options.coder)?, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(Filtered::resume(source, 0, Differences::new(&context.coder)?, point, context)?))
    }

    fn container_codec(&self) -> Option<&dyn ContainerCodec> {
        Some(self)
    }
}

impl ContainerCodec for Delta {
    fn decoded_length(&self, stored: u64, _coder: &CoderContext) -> Option<u64> {
        Some(stored)
    }
}
