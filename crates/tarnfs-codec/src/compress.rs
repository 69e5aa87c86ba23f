//! `.Z`, as `compress` writes it: LZW with codes of 9 to 16 bits.
//!
//! A code stands for a string of bytes, and each but the first makes one more of them: the string before it and the
//! first byte of its own. Once all codes are in use the dictionary stays as it is, until a code (in block mode) empties
//! it. So a seek point needs no dictionary in its state, only where that began: reading the codes from there, 128 KiB
//! of them at most, makes it again.
//!
//! The format has no checksum and no length. Damage is only noticed where a code is none yet.

mod decoder;
mod dictionary;

#[cfg(test)]
mod tests;

use std::io;

use tarnfs_source::SharedSource;

use crate::{Codec, DecodeContext, Decoder, FileCodec, FirstPass, Options, Pace, SeekPoint};

use decoder::CodeDecoder;
use dictionary::Header;

/// The codec.
#[derive(Debug)]
pub(crate) struct Compress;

impl Codec for Compress {
    fn name(&self) -> &'static str {
        "compress"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 200_000, in_whole_chunks: false }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(CodeDecoder::first_pass(source, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        let _ = context;
        Ok(Box::new(CodeDecoder::resume(source, point)?))
    }

    fn file_codec(&self) -> Option<&dyn FileCodec> {
        Some(self)
    }
}

impl FileCodec for Compress {
    fn about(&self) -> &'static str {
        "seeks everywhere"
    }

    fn suffixes(&self) -> &'static [(&'static str, &'static str)] {
        &[(".tz", ".tar"), (".z", "")]
    }

    fn bid(&self, head: &[u8]) -> u32 {
        // The magic, two reserved flags, and 8 widths of 32; the top bit of the first code, which is a byte.
        match (Header::parse(head), head) {
            (Ok(_), [_, _, _]) => 16 + 2 + 2,
            (Ok(_), [_, _, _, _, second, ..]) if second & 1 == 0 => 16 + 2 + 2 + 1,
            _ => 0,
        }
    }
}
