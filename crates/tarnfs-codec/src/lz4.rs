//! LZ4 frames ("LZ4 Frame Format Description", version 1.6.4), legacy frames and skippable frames among them.
//!
//! The blocks are decoded by `lz4_flex`; walking the frames is done here. A seek point is at the start of a frame or
//! of a block; within a frame its state holds the frame's flags and, where blocks are linked, the history.

mod decoder;
mod frame;

#[cfg(test)]
mod tests;

use std::io;

use tarnfs_source::{Cancel, SharedSource};

use crate::outline::read;
use crate::{
    Checks, Codec, DecodeContext, Decoder, FileCodec, FirstPass, Options, Outline, Pace, SeekPoint, StreamChecks,
    skippable,
};

use decoder::FrameDecoder;
use frame::{LONGEST_HEADER, Start};

/// The codec.
#[derive(Debug)]
pub(crate) struct Lz4;

impl Codec for Lz4 {
    fn name(&self) -> &'static str {
        "lz4"
    }

    /// Of the first frame: what follows is nearly always of the same kind.
    fn outline(&self, source: &SharedSource, _: &Cancel) -> io::Result<Option<Outline>> {
        let mut head = vec![0; LONGEST_HEADER.min(usize::try_from(source.len()).unwrap_or(LONGEST_HEADER))];
        if !read(source, &mut head, 0)? {
            return Ok(None);
        }
        let (part, longest, check) = match Start::parse(&head) {
            Ok(Start::Frame { descriptor, .. }) => {
                let check = match (descriptor.content_checksum(), descriptor.block_checksums()) {
                    (false, false) => "none",
                    _ => "XXH32",
                };
                let part = if descriptor.independent_blocks() { "block" } else { "linked block" };
                (part, descriptor.largest_block(), check)
            }
            Ok(Start::Legacy) => ("block", frame::LEGACY_BLOCK, "none"),
            _ => return Ok(None),
        };
        Ok(Some(Outline { part, longest: Some(longest as u64), check: Some(check), ..Outline::default() }))
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 2_000_000, in_whole_chunks: false }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(FrameDecoder::first_pass(source, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(FrameDecoder::resume(&source, point, context.limits)?))
    }

    fn file_codec(&self) -> Option<&dyn FileCodec> {
        Some(self)
    }

    fn stream_checks(&self) -> Option<&dyn StreamChecks> {
        Some(self)
    }
}

impl FileCodec for Lz4 {
    fn about(&self) -> &'static str {
        "seeks to each block; linked blocks, legacy frames"
    }

    fn suffixes(&self) -> &'static [(&'static str, &'static str)] {
        &[(".tlz4", ".tar"), (".lz4", "")]
    }

    /// zstd has the same skippable frames: only the frame behind them tells.
    fn bid(&self, head: &[u8]) -> u32 {
        let Some(rest) = skippable::behind(head) else { return 0 };
        match Start::parse(rest) {
            // Magic, version, two reserved fields and the header's checksum.
            Ok(Start::Frame { .. } | Start::NeedsDictionary) => 32 + 2 + 6 + 8,
            // A damaged header is still one of ours: the error says more than that no format was found.
            Ok(Start::Legacy) | Err(_) => 32,
            Ok(Start::Cut) if rest.starts_with(&frame::MAGIC.to_le_bytes()) => 32,
            Ok(Start::Skippable { .. } | Start::Cut | Start::Other) => 0,
        }
    }

    fn may_be_named(&self, head: &[u8]) -> bool {
        skippable::is_all(head)
    }
}

impl StreamChecks for Lz4 {
    fn checks(&self, point: &SeekPoint) -> Checks {
        Checks::of_frames(point)
    }

    fn verified(
        &self,
        source: SharedSource,
        point: &SeekPoint,
        _end: Option<u64>,
        options: &Options,
    ) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(FrameDecoder::verified(&source, point, options)?))
    }
}
