//! xz (The .xz File Format 1.2): streams one after another, each of blocks and an index of their sizes.
//!
//! The container is ours, so that decoding can go on behind a damaged block. What is in a block is decoded by
//! [`crate::lzma`], or by liblzma where other filters come before LZMA2. A seek point is a block's header (or the start
//! of the file); its state tells which check follows the block. In a block of LZMA2 alone there are others, between two
//! of its chunks, with the state of the decoder.
//!
//! - `container`: headers, footers, numbers, without I/O
//! - `index`: the index at a stream's end, read in passing or searched for the sizes of a damaged block
//! - `block`: one block: filters, dictionary, check
//! - `decoder`: the walk over all of it
//! - `ahead`: decodes blocks for that walk on other threads

mod ahead;
mod block;
mod container;
mod decoder;
mod index;
mod parts;
#[cfg(test)]
mod tests;
mod version;

use std::io;

use tarnfs_source::{Cancel, SharedSource};

use crate::{
    Checks, Codec, DecodeContext, Decoder, FileCodec, FirstPass, Options, Outline, Pace, SeekPoint, StreamChecks,
};
pub(crate) use block::dictionary_size as lzma2_dictionary;
use container::{Fault, STREAM_HEADER};
use decoder::XzDecoder;
pub(crate) use version::liblzma_version;

/// The codec for `.xz`.
#[derive(Debug)]
pub(crate) struct Xz;

/// The state of a seek point at the header of a block, for tables of other programs. `stream` is the header of the
/// stream that it lies in, which tells the check behind the block; `None` if that is none.
pub fn xz_block_state(stream: &[u8; STREAM_HEADER]) -> Option<Vec<u8>> {
    container::stream_header(stream).ok().map(decoder::block_state)
}

impl Codec for Xz {
    fn name(&self) -> &'static str {
        "xz"
    }

    fn outline(&self, source: &SharedSource, cancel: &Cancel) -> io::Result<Option<Outline>> {
        index::outline(source, cancel)
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 100_000, in_whole_chunks: false }
    }

    fn decodes_ahead(&self) -> bool {
        true
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(XzDecoder::first_pass(source, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(XzDecoder::resume(source, point, context.limits)?))
    }

    fn file_codec(&self) -> Option<&dyn FileCodec> {
        Some(self)
    }

    fn stream_checks(&self) -> Option<&dyn StreamChecks> {
        Some(self)
    }
}

impl FileCodec for Xz {
    fn about(&self) -> &'static str {
        "seeks everywhere, also in one large block of LZMA2; all filters and checks"
    }

    fn suffixes(&self) -> &'static [(&'static str, &'static str)] {
        &[(".txz", ".tar"), (".xz", "")]
    }

    fn bid(&self, head: &[u8]) -> u32 {
        let Some(header) = head.first_chunk::<STREAM_HEADER>() else { return 0 };
        match container::stream_header(header) {
            // Magic, CRC-32 and the reserved bits of the flags.
            Ok(_) => 48 + 32 + 12,
            // Ours, and the error says why it cannot be read.
            Err(Fault::Unsupported(_)) => 48 + 32,
            Err(Fault::Damaged(_)) => 0,
        }
    }
}

impl StreamChecks for Xz {
    fn checks(&self, point: &SeekPoint) -> Checks {
        if decoder::is_inside(point) { Checks::Whole } else { Checks::Chunk }
    }

    fn verified(
        &self,
        source: SharedSource,
        point: &SeekPoint,
        _end: Option<u64>,
        options: &Options,
    ) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(XzDecoder::verified(source, point, options)?))
    }
}
