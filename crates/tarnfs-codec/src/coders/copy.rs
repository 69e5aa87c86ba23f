//! Bytes as they are: method 0 of zip, method 00 of 7z.

use std::io;

use tarnfs_source::SharedSource;

use super::straight::Straight;
use crate::{Codec, CoderContext, DecodeContext, Decoder, FirstPass, Options, Pace, SeekPoint};

/// The codec.
#[derive(Debug)]
pub(super) struct Copy;

impl Codec for Copy {
    fn name(&self) -> &'static str {
        "copy"
    }

    fn suffixes(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    fn bid(&self, _head: &[u8]) -> u32 {
        0
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 5_000_000, in_whole_chunks: false }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(Straight::first_pass(source, options.coder.decoded_length, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(Straight::resume(source, point, context)?))
    }

    fn random_access(&self, source: &SharedSource, _coder: &CoderContext) -> io::Result<Option<SharedSource>> {
        Ok(Some(SharedSource::clone(source)))
    }
}
