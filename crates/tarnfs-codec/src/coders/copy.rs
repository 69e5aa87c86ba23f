//! Bytes as they are: method 0 of zip, method 00 of 7z.

use std::io;
use std::sync::Arc;

use tarnfs_source::{SharedSource, Slice};

use super::straight::Straight;
use crate::faults;
use crate::{Codec, CoderContext, ContainerCodec, DecodeContext, Decoder, FirstPass, Options, Pace, SeekPoint};

/// The codec.
#[derive(Debug)]
pub(super) struct Copy;

impl Codec for Copy {
    fn name(&self) -> &'static str {
        "copy"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 5_000_000, in_whole_chunks: false }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(Straight::first_pass(bytes(source, &options.coder)?, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(Straight::resume(bytes(source, &context.coder)?, point, context)?))
    }

    fn container_codec(&self) -> Option<&dyn ContainerCodec> {
        Some(self)
    }
}

impl ContainerCodec for Copy {
    fn decoded_length(&self, stored: u64, _coder: &CoderContext) -> Option<u64> {
        Some(stored)
    }

    fn random_access(&self, source: &SharedSource, coder: &CoderContext) -> io::Result<Option<SharedSource>> {
        bytes(SharedSource::clone(source), coder).map(Some)
    }
}

/// As many of them as the container says there are.
fn bytes(source: SharedSource, coder: &CoderContext) -> io::Result<SharedSource> {
    match coder.decoded_length {
        None => Ok(source),
        Some(length) if length == source.len() => Ok(source),
        Some(length) if length > source.len() => Err(faults::cut(source.len(), "stored data")),
        Some(length) => Ok(Arc::new(Slice::new(source, 0, length))),
    }
}
