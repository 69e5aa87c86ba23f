//! bzip2: blocks of at most 900 kB, each of which can be decoded by itself.
//!
//! A stream is "BZh", a digit for the size of its blocks, blocks, and a CRC. Blocks begin at any bit. There is no
//! specification but the program; "bzip2 format specification" by Joe Tsai (2016) describes what it does.
//!
//! A block is undone in four steps: the Huffman codes and the move to front ([`block`]), the Burrows-Wheeler
//! transform ([`inverse_bwt`]), and the first run-length coding ([`run_length`]). Its CRC is compared before a byte
//! of it is served, unless only a part of it is wanted ([`partial`]). In a first pass, the blocks that follow are
//! decoded on other threads ([`ahead`]).

mod ahead;
mod bit_reader;
mod block;
mod crc;
mod decoder;
mod finder;
mod groups;
mod huffman;
mod inverse_bwt;
mod move_to_front;
mod partial;
mod randomised;
mod run_length;
#[cfg(test)]
mod tests;

use std::io;

use tarnfs_source::{Cancel, SharedSource};

use crate::{
    Checks, Codec, DecodeContext, Decoder, FileCodec, FirstPass, Options, Outline, Pace, SeekPoint, StreamChecks,
};
use block::{BLOCK_MAGIC, END_MAGIC};
use decoder::BlockDecoder;

/// bzip2, with a seek point at each block.
#[derive(Debug)]
pub(crate) struct Bzip2;

impl Codec for Bzip2 {
    fn name(&self) -> &'static str {
        "bzip2"
    }

    fn outline(&self, _: &SharedSource, _: &Cancel) -> io::Result<Option<Outline>> {
        Ok(Some(Outline { part: "block", check: Some("CRC-32"), ..Outline::default() }))
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 40_000, in_whole_chunks: true }
    }

    fn decodes_ahead(&self) -> bool {
        true
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(BlockDecoder::first_pass(source, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(BlockDecoder::resume(source, point)?.with_unverified(context.unverified)))
    }

    fn file_codec(&self) -> Option<&dyn FileCodec> {
        Some(self)
    }

    fn stream_checks(&self) -> Option<&dyn StreamChecks> {
        Some(self)
    }
}

impl FileCodec for Bzip2 {
    fn about(&self) -> &'static str {
        "seeks to each block"
    }

    fn suffixes(&self) -> &'static [(&'static str, &'static str)] {
        &[
            (".tbz2", ".tar"),
            (".tbz", ".tar"),
            (".tb2", ".tar"),
            (".tz2", ".tar"),
            (".bz2", ""),
            (".bzip2", ""),
            (".bz", ""),
        ]
    }

    fn bid(&self, head: &[u8]) -> u32 {
        let Some([b'B', b'Z', b'h', b'1'..=b'9', magic @ ..]) = head.first_chunk::<10>() else { return 0 };
        let mut word = [0; 8];
        word[2..].copy_from_slice(magic);
        match u64::from_be_bytes(word) {
            // Three letters, one digit of nine, 48 bits.
            BLOCK_MAGIC | END_MAGIC => 24 + 4 + 48,
            _ => 0,
        }
    }
}

impl StreamChecks for Bzip2 {
    /// Its blocks are compared with their CRCs, and it has to end where the next chunk begins: no block says how many
    /// bytes come before it.
    fn checks(&self, _point: &SeekPoint) -> Checks {
        Checks::Chunk
    }

    /// The CRC of a block is compared before a byte of it is returned.
    fn settles(&self, _point: &SeekPoint) -> Checks {
        Checks::Itself
    }

    fn verified(
        &self,
        source: SharedSource,
        point: &SeekPoint,
        end: Option<u64>,
        _options: &Options,
    ) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(BlockDecoder::resume(source, point)?.ending_at(end)))
    }
}
