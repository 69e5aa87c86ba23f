//! gzip (RFC 1952, any number of members, BGZF among them), zlib (RFC 1950) and raw deflate (RFC 1951).
//!
//! One decoder walks through all three from the start to the end, with an inflate of our own: no library's goes to any
//! bit, stops at any block and takes its history back at this speed. A first pass keeps a seek point at the first
//! deflate block at or behind each multiple of the spacing, with the 32 KiB before it ([`window`]); where a gzip member
//! starts near there, the point is at its header and needs none. BGZF has a member each 64 KiB, so all its points are
//! such. On several threads, blocks further on are decoded meanwhile, from where one seems to begin and without the
//! history before it ([`ahead`]); the points are the same.
//!
//! Sub-modules, from below: [`bits`], [`codes`] (the tables of a block), [`fast`] (the inner loop), [`inflate`] (a
//! resumable inflate), [`input`] (compressed bytes in order), [`member`] (headers and checksums), [`unknown`] (decoding
//! without the history), [`references`] (what of the history is needed), [`window`] (what a seek point keeps),
//! [`segment`] (blocks decoded before their turn), [`search`] (where they begin), [`ahead`] (the threads that do so),
//! [`decoder`] (the walk), [`guess`] (the bids), [`proof`] (what is taken for a member behind damage).

mod ahead;
mod bits;
mod codes;
mod decoder;
mod fast;
mod guess;
mod inflate;
mod input;
mod member;
mod proof;
mod references;
mod search;
mod segment;
mod unknown;
mod window;

#[cfg(test)]
mod tests;

use std::io;

use tarnfs_source::{Cancel, SharedSource};

use crate::outline::read;
use crate::{
    Checks, Codec, DecodeContext, Decoder, FileCodec, FirstPass, Options, Outline, SeekPoint, StreamChecks, Windows,
};
use decoder::{DeflateDecoder, Wrapper};
pub(crate) use guess::DEFLATE_BID;

/// gzip: members one behind the other.
#[derive(Debug)]
pub(crate) struct Gzip;

/// One zlib stream.
#[derive(Debug)]
pub(crate) struct Zlib;

/// Deflate data without anything around it.
#[derive(Debug)]
pub(crate) struct Deflate;

impl Codec for Gzip {
    fn name(&self) -> &'static str {
        "gzip"
    }

    /// Only of BGZF the headers say how long a member is, and that is never more than 64 KiB.
    fn outline(&self, source: &SharedSource, _: &Cancel) -> io::Result<Option<Outline>> {
        // SAM/BAM format specification, section 4.1: an extra field of 6 bytes, "BC", of 2 bytes.
        const LONGEST: u64 = 64 << 10;
        let mut head = [0; 16];
        let is_bgzf = read(source, &mut head, 0)? && head[3] & 4 != 0 && head[10..] == *b"\x06\0BC\x02\0";
        let check = Some("CRC-32");
        let outline = Outline { part: "member", check, ..Outline::default() };
        let of_bgzf = Outline { part: "BGZF block", longest: Some(LONGEST), ..outline };
        Ok(Some(if is_bgzf { of_bgzf } else { outline }))
    }

    fn decodes_ahead(&self) -> bool {
        true
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(DeflateDecoder::first_pass(source, Wrapper::Gzip, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(DeflateDecoder::resume(source, Wrapper::Gzip, point, &context.limits)?))
    }

    fn file_codec(&self) -> Option<&dyn FileCodec> {
        Some(self)
    }

    fn stream_checks(&self) -> Option<&dyn StreamChecks> {
        Some(self)
    }

    fn windows(&self) -> Option<&dyn Windows> {
        Some(self)
    }
}

impl FileCodec for Gzip {
    fn about(&self) -> &'static str {
        "seeks everywhere; several members, BGZF"
    }

    fn suffixes(&self) -> &'static [(&'static str, &'static str)] {
        &[(".tgz", ".tar"), (".taz", ".tar"), (".gz", ""), (".bgz", ""), (".gzip", "")]
    }

    fn bid(&self, head: &[u8]) -> u32 {
        guess::gzip(head)
    }

    fn stored_name<'h>(&self, head: &'h [u8]) -> Option<&'h [u8]> {
        // RFC 1952, section 2.3.
        const FLAGS: usize = 3;
        const FIXED: usize = 10;
        const HAS_EXTRA: u8 = 4;
        const HAS_NAME: u8 = 8;
        let flags = *head.get(FLAGS).filter(|flags| self.bid(head) > 0 && **flags & HAS_NAME != 0)?;
        let mut rest = head.get(FIXED..)?;
        if flags & HAS_EXTRA != 0 {
            let (length, behind) = rest.split_first_chunk()?;
            rest = behind.get(usize::from(u16::from_le_bytes(*length))..)?;
        }
        rest.get(..rest.iter().position(|&byte| byte == 0)?)
    }
}

impl StreamChecks for Gzip {
    fn settles(&self, point: &SeekPoint) -> Checks {
        Checks::of_frames(point)
    }

    fn compares_members(&self) -> bool {
        true
    }
}

impl Windows for Gzip {
    fn state_from_window(&self, window: &[u8]) -> io::Result<Vec<u8>> {
        window::from_window(window)
    }

    fn window_from_state(&self, state: &[u8]) -> io::Result<Vec<u8>> {
        window::whole(state)
    }
}

impl Codec for Zlib {
    fn name(&self) -> &'static str {
        "zlib"
    }

    fn decodes_ahead(&self) -> bool {
        true
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(DeflateDecoder::first_pass(source, Wrapper::Zlib, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(DeflateDecoder::resume(source, Wrapper::Zlib, point, &context.limits)?))
    }

    fn file_codec(&self) -> Option<&dyn FileCodec> {
        Some(self)
    }

    fn windows(&self) -> Option<&dyn Windows> {
        Some(self)
    }
}

impl FileCodec for Zlib {
    fn about(&self) -> &'static str {
        "seeks everywhere"
    }

    fn suffixes(&self) -> &'static [(&'static str, &'static str)] {
        &[(".zz", ""), (".zlib", "")]
    }

    fn bid(&self, head: &[u8]) -> u32 {
        guess::zlib(head)
    }

    /// Of a stream of fixed codes alone nothing is checked but its header.
    fn may_be_named(&self, head: &[u8]) -> bool {
        guess::has_zlib_header(head)
    }
}

impl Windows for Zlib {
    fn state_from_window(&self, window: &[u8]) -> io::Result<Vec<u8>> {
        window::from_window(window)
    }

    fn window_from_state(&self, state: &[u8]) -> io::Result<Vec<u8>> {
        window::whole(state)
    }
}

impl Codec for Deflate {
    fn name(&self) -> &'static str {
        "deflate"
    }

    fn decodes_ahead(&self) -> bool {
        true
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(DeflateDecoder::first_pass(source, Wrapper::None, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(DeflateDecoder::resume(source, Wrapper::None, point, &context.limits)?))
    }

    fn file_codec(&self) -> Option<&dyn FileCodec> {
        Some(self)
    }

    fn windows(&self) -> Option<&dyn Windows> {
        Some(self)
    }
}

impl FileCodec for Deflate {
    fn about(&self) -> &'static str {
        "seeks everywhere; known by its name only"
    }

    fn suffixes(&self) -> &'static [(&'static str, &'static str)] {
        &[(".deflate", "")]
    }

    fn bid(&self, head: &[u8]) -> u32 {
        guess::deflate(head)
    }

    fn may_be_named(&self, _: &[u8]) -> bool {
        true
    }
}

impl Windows for Deflate {
    fn state_from_window(&self, window: &[u8]) -> io::Result<Vec<u8>> {
        window::from_window(window)
    }

    fn window_from_state(&self, state: &[u8]) -> io::Result<Vec<u8>> {
        window::whole(state)
    }
}
