//! `.lzma`: a header of 13 bytes (properties, dictionary, length or -1) and LZMA data. It has no magic and no checksum.

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use super::members::{Container, Header, MemberDecoder};
use super::model::Properties;
use crate::outline::read;
use crate::{Codec, DecodeContext, Decoder, FileCodec, FirstPass, Options, Outline, Pace, SeekPoint};

/// The codec for `.lzma`.
#[derive(Debug)]
pub(crate) struct Lzma;

/// The format.
struct Alone;

/// The length where a marker ends the data.
const UNKNOWN: u64 = u64::MAX;

/// Lengths that the tool takes as plausible end here.
const LARGEST: u64 = 1 << 38;

impl Container for Alone {
    const NAME: &'static str = "lzma";
    const HEADER: usize = 13;
    const MANY: bool = false;
    const MAGIC: &'static [u8] = b"";

    fn header(bytes: &[u8]) -> Result<Header, &'static str> {
        let &[properties, d0, d1, d2, d3, ref length @ ..] = bytes else { return Err("the header is cut") };
        let properties = Properties::new(properties).ok_or("properties that are not valid: no LZMA data")?;
        let length = length.first_chunk().map(|length| u64::from_le_bytes(*length)).ok_or("the header is cut")?;
        let dictionary = u64::from(u32::from_le_bytes([d0, d1, d2, d3]));
        Ok(Header { properties, dictionary, length: Some(length).filter(|&length| length != UNKNOWN), trailer: 0 })
    }

    fn ends_whole(_source: &dyn Source) -> io::Result<bool> {
        Ok(false)
    }

    fn sizes(_trailer: &[u8]) -> Option<(u64, u64)> {
        None
    }

    fn check(_trailer: &[u8], _crc: u32, _decoded: u64, _member: u64) -> Result<(), &'static str> {
        Ok(())
    }
}

impl Codec for Lzma {
    fn name(&self) -> &'static str {
        "lzma"
    }

    fn outline(&self, source: &SharedSource, _: &Cancel) -> io::Result<Option<Outline>> {
        let mut header = [0; Alone::HEADER];
        if !read(source, &mut header, 0)? {
            return Ok(None);
        }
        let one = |header: Header| Outline {
            part: "stream",
            parts: Some(1),
            longest: header.length,
            history: Some(header.dictionary.min(header.length.unwrap_or(u64::MAX))),
            dictionary: Some(header.dictionary),
            check: Some("none"),
        };
        Ok(Alone::header(&header).ok().map(one))
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 100_000, in_whole_chunks: false }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(MemberDecoder::<Alone>::first_pass(source, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(MemberDecoder::<Alone>::resume(source, point, context.limits)?))
    }

    fn file_codec(&self) -> Option<&dyn FileCodec> {
        Some(self)
    }
}

impl FileCodec for Lzma {
    fn about(&self) -> &'static str {
        "seeks everywhere"
    }

    fn suffixes(&self) -> &'static [(&'static str, &'static str)] {
        &[(".tlz", ".tar"), (".lzma", "")]
    }

    fn bid(&self, head: &[u8]) -> u32 {
        // Encoders write these sizes only: 2^n and 2^n + 2^(n-1).
        let is_usual = |size: u64| {
            size >= 4096 && (size.is_power_of_two() || (size / 3).is_power_of_two() && size.is_multiple_of(3))
        };
        let Some((header, data)) = head.split_at_checked(Alone::HEADER) else { return 0 };
        let Ok(Header { dictionary, length, .. }) = Alone::header(header) else { return 0 };
        // The first symbol cannot refer to anything: it is a literal, or the marker.
        let starts = match *data {
            [0, first, ..] => first < 0x80 || length.is_none_or(|length| length == 0),
            _ => false,
        };
        if !starts
            || !(is_usual(dictionary) || dictionary == u64::from(u32::MAX))
            || length.is_some_and(|length| length >= LARGEST)
        {
            return 0;
        }
        // Of the dictionary 26 bits, of the length those that are 0 or 1, of the data 8.
        26 + if length.is_some() { 26 } else { 64 } + 8
    }
}
