//! `.lrz`, as `lrzip` writes it (versions 0.4 to 0.6 of its format).
//!
//! What is far apart and alike was found first: a chunk is a list of what to do ("copy so many bytes that follow",
//! "copy so many from so far back") and the bytes that follow, two streams whose blocks are packed with LZMA, gzip,
//! bzip2, LZO or not at all. Blocks of ZPAQ and encrypted files are refused. A match reaches back to the start of its
//! chunk at most, which may be gigabytes: [`history`] says where they are kept. So a seek point is at a chunk, and
//! needs no state.
//!
//! Sub-modules: [`header`] (what stands before files, chunks and blocks), [`stream`] (the blocks of a stream), [`lzo`]
//! (LZO in parts), [`history`] (the decoded bytes of a chunk), [`decoder`] (chunk after chunk).

mod decoder;
mod header;
mod history;
mod lzo;
mod stream;

#[cfg(test)]
mod tests;

use std::io;

use tarnfs_source::SharedSource;

use crate::{Codec, DecodeContext, Decoder, FileCodec, FirstPass, Options, Pace, SeekPoint};

use decoder::ChunkDecoder;
use header::Header;

/// The codec.
#[derive(Debug)]
pub(crate) struct Lrzip;

impl Codec for Lrzip {
    fn name(&self) -> &'static str {
        "lrzip"
    }

    fn tells_memory(&self) -> bool {
        false
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 100_000, in_whole_chunks: false }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(ChunkDecoder::first_pass(source, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(ChunkDecoder::resume(source, point, context.limits, &context.scratch)?))
    }

    fn file_codec(&self) -> Option<&dyn FileCodec> {
        Some(self)
    }
}

impl FileCodec for Lrzip {
    fn about(&self) -> &'static str {
        "seeks to each chunk; LZMA, gzip, bzip2, LZO; neither ZPAQ nor encrypted"
    }

    fn suffixes(&self) -> &'static [(&'static str, &'static str)] {
        &[(".tlrz", ".tar"), (".lrz", "")]
    }

    fn bid(&self, head: &[u8]) -> u32 {
        Header::bid(head)
    }
}
