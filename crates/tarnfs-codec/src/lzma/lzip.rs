//! `.lz` (lzip): members, each with a header of 6 bytes, LZMA data that a marker ends, CRC-32 and the sizes of the data
//! and, since version 1, of the member.

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use super::members::{Container, Header, MemberDecoder, VERSION};
use super::model::Properties;
use crate::outline::{MOST_PARTS, check_at};
use crate::{
    Checks, Codec, DecodeContext, Decoder, FileCodec, FirstPass, Options, Outline, Pace, SeekPoint, StreamChecks,
};

/// The codec for `.lz`.
#[derive(Debug)]
pub(crate) struct Lzip;

/// The format.
pub(super) struct Members;

const MAGIC: &[u8] = b"LZIP";

impl Container for Members {
    const NAME: &'static str = "lzip";
    const HEADER: usize = 6;
    const MANY: bool = true;
    const MAGIC: &'static [u8] = MAGIC;

    fn header(bytes: &[u8]) -> Result<Header, &'static str> {
        let Some(&[version, size]) = bytes.strip_prefix(MAGIC) else { return Err("no lzip member") };
        let trailer = match version {
            0 => 12,
            1 => 20,
            _ => return Err("a version of lzip that is not known here"),
        };
        // 2^n less some sixteenths of it.
        let (bits, sixteenths) = (u32::from(size & 0x1F), u64::from(size >> 5));
        if !(12..=29).contains(&bits) {
            return Err("a dictionary of a size that is not possible");
        }
        let dictionary = (1 << bits) - ((1 << bits) / 16) * sixteenths;
        let properties = Properties { literal_context: 3, literal_position: 0, position: 2 };
        Ok(Header { properties, dictionary, length: None, trailer })
    }

    fn ends_whole(source: &dyn Source) -> io::Result<bool> {
        let mut size = [0; 8];
        let Some(last) = source.len().checked_sub(size.len() as u64) else { return Ok(false) };
        source.read_exact_at(&mut size, last)?;
        let mut header = [0; Self::HEADER];
        let start = source.len().checked_sub(u64::from_le_bytes(size));
        let Some(start) = start.filter(|&start| start <= last) else { return Ok(false) };
        Ok(source.read_at(&mut header, start)? == header.len() && Self::header(&header).is_ok())
    }

    fn sizes(trailer: &[u8]) -> Option<(u64, u64)> {
        let (member, rest) = trailer.split_last_chunk::<8>().map(|(rest, member)| (member, rest))?;
        let decoded = rest.last_chunk::<8>()?;
        Some((u64::from_le_bytes(*decoded), u64::from_le_bytes(*member)))
    }

    fn check(trailer: &[u8], crc: u32, decoded: u64, member: u64) -> Result<(), &'static str> {
        let (crc_stored, sizes) = trailer.split_at(4);
        let (decoded_stored, member_stored) = sizes.split_at(8);
        if crc_stored != crc.to_le_bytes() {
            return Err("the CRC-32 of an lzip member does not match its data");
        }
        if decoded_stored != decoded.to_le_bytes() || !member_stored.is_empty() && member_stored != member.to_le_bytes()
        {
            return Err("the sizes of an lzip member do not match its data");
        }
        Ok(())
    }
}

/// What the members of `source` say, from the last one back to the first; `None` where one of them does not say how
/// long it is.
fn outline(source: &SharedSource, cancel: &Cancel) -> io::Result<Option<Outline>> {
    let (mut end, mut members, mut longest) = (source.len(), 0, 0);
    let (mut history, mut dictionary) = (0, 0);
    while end > 0 {
        check_at(members, cancel)?;
        // CRC-32, bytes of the data, bytes of the member.
        let mut trailer = [0; 20];
        let at = end.checked_sub(trailer.len() as u64).filter(|_| members < MOST_PARTS);
        let Some(at) = at else { return Ok(None) };
        source.read_exact_at(&mut trailer, at)?;
        let Some((decoded, length)) = Members::sizes(&trailer) else { return Ok(None) };
        let Some(start) = end.checked_sub(length).filter(|start| *start < at) else { return Ok(None) };
        let mut header = [0; Members::HEADER];
        source.read_exact_at(&mut header, start)?;
        let Ok(header) = Members::header(&header) else { return Ok(None) };
        if header.trailer != trailer.len() {
            return Ok(None);
        }
        members += 1;
        longest = decoded.max(longest);
        history = header.dictionary.min(decoded).max(history);
        dictionary = header.dictionary.max(dictionary);
        end = start;
    }
    let outline = Outline {
        part: "member",
        parts: Some(members),
        longest: Some(longest),
        history: Some(history),
        dictionary: Some(dictionary),
        check: Some("CRC-32"),
    };
    Ok((members > 0).then_some(outline))
}

impl Codec for Lzip {
    fn name(&self) -> &'static str {
        "lzip"
    }

    fn outline(&self, source: &SharedSource, cancel: &Cancel) -> io::Result<Option<Outline>> {
        outline(source, cancel)
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 100_000, in_whole_chunks: false }
    }

    fn decodes_ahead(&self) -> bool {
        true
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(MemberDecoder::<Members>::first_pass(source, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(MemberDecoder::<Members>::resume(source, point, context.limits)?))
    }

    fn file_codec(&self) -> Option<&dyn FileCodec> {
        Some(self)
    }

    fn stream_checks(&self) -> Option<&dyn StreamChecks> {
        Some(self)
    }
}

impl FileCodec for Lzip {
    fn about(&self) -> &'static str {
        "seeks everywhere, also in one large member"
    }

    fn suffixes(&self) -> &'static [(&'static str, &'static str)] {
        &[(".tlz", ".tar"), (".tlzip", ".tar"), (".lz", ""), (".lzip", "")]
    }

    fn bid(&self, head: &[u8]) -> u32 {
        // Magic, version, and of the dictionary's size the half that is not possible.
        if head.get(..Members::HEADER).is_some_and(|header| Members::header(header).is_ok()) { 32 + 8 + 1 } else { 0 }
    }
}

impl StreamChecks for Lzip {
    fn checks(&self, point: &SeekPoint) -> Checks {
        Checks::of_frames(point)
    }

    fn settles(&self, point: &SeekPoint) -> Checks {
        // Where a member begins, those before it were compared.
        if matches!(point.state[..], [] | [VERSION]) { Checks::Chunk } else { Checks::Whole }
    }

    fn compares_members(&self) -> bool {
        true
    }

    fn verified(
        &self,
        source: SharedSource,
        point: &SeekPoint,
        _end: Option<u64>,
        options: &Options,
    ) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(MemberDecoder::<Members>::verified(source, point, options)?))
    }
}
