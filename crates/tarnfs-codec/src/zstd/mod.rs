//! Zstandard (RFC 8878): frames one after another, each of blocks, some of them to be skipped.
//!
//! [`decoder`] walks over frames and blocks, so that decoding can go on behind a damaged frame; [`block`] decodes a
//! block: its [`literals`] (in [`huffman`] codes) and its [`sequences`] (in codes of [`fse`]), which the [`window`]
//! puts together. Before it may lie a [`dictionary`]. The sequences of two blocks are decoded side by side: each step
//! needs the one before it, and a processor has time for another meanwhile.
//!
//! A seek point is a frame's start, which needs no state, or, in a large frame, the place between two blocks
//! ([`checkpoint`]), where a state takes little in comparison ([`survey`]). (The table of the seekable format says the
//! same as the frames themselves and is only skipped: it may lie, and finding frame ends costs three bytes in 128 KiB.)

mod ahead;
mod bits;
mod block;
mod checkpoint;
mod decoder;
mod dictionary;
mod entropy;
mod frame;
mod fse;
mod huffman;
mod idle;
mod literals;
mod outline;
mod sequences;
mod survey;
#[cfg(test)]
mod tests;
mod window;

use std::io;

use tarnfs_source::{Cancel, SharedSource};

use crate::{
    Checks, Codec, DecodeContext, Decoder, FileCodec, FirstPass, Options, Outline, Pace, SeekPoint, StreamChecks,
    skippable,
};
use decoder::FrameDecoder;
pub use dictionary::Dictionaries;
use frame::Start;
pub(crate) use idle::give_back;

/// The codec for `.zst`.
#[derive(Debug)]
pub(crate) struct Zstd;

impl Codec for Zstd {
    fn name(&self) -> &'static str {
        "zstd"
    }

    fn outline(&self, source: &SharedSource, cancel: &Cancel) -> io::Result<Option<Outline>> {
        outline::outline(source, cancel)
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 1_000_000, in_whole_chunks: false }
    }

    fn decodes_ahead(&self) -> bool {
        true
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(FrameDecoder::first_pass(source, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(FrameDecoder::resume(source, point, context.limits, &context.dictionaries)?))
    }

    fn file_codec(&self) -> Option<&dyn FileCodec> {
        Some(self)
    }

    fn stream_checks(&self) -> Option<&dyn StreamChecks> {
        Some(self)
    }
}

impl FileCodec for Zstd {
    fn about(&self) -> &'static str {
        "seeks everywhere, also in one large frame; dictionaries, long windows, the seekable format"
    }

    fn suffixes(&self) -> &'static [(&'static str, &'static str)] {
        &[(".tzst", ".tar"), (".tzs", ".tar"), (".tzstd", ".tar"), (".zst", ""), (".zstd", "")]
    }

    /// lz4 has the same skippable frames: only the frame behind them tells.
    fn bid(&self, head: &[u8]) -> u32 {
        let Some(rest) = skippable::behind(head) else { return 0 };
        match Start::parse(rest) {
            // The magic and the reserved bit.
            Start::Frame(_) => 33,
            Start::Cut if rest.starts_with(&frame::MAGIC.to_le_bytes()) => 32,
            _ => 0,
        }
    }

    fn may_be_named(&self, head: &[u8]) -> bool {
        skippable::is_all(head)
    }
}

impl StreamChecks for Zstd {
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
        Ok(Box::new(FrameDecoder::verified(source, point, options)?))
    }
}
