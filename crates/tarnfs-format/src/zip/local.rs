//! The header before the content of each member.

use std::io;

use tarnfs_source::Source;

use super::bytes::{u16_at, u32_at};
use super::coders;
use super::extra::Extra;
use super::member::{self, FLAG_DESCRIPTOR, FLAG_MASKED, Header, METHOD_AES};
use crate::Piece;
use crate::window::Window;

/// Its length without name and extra fields (APPNOTE 4.3.7).
pub(super) const HEADER: usize = 30;

pub(super) const SIGNATURE: [u8; 4] = *b"PK\x03\x04";

/// A header as it stands before the content.
#[derive(Debug, Clone, Copy)]
pub(super) struct Local<'b> {
    pub(super) version: u16,
    pub(super) flags: u16,
    pub(super) method: u16,
    pub(super) time: u16,
    pub(super) date: u16,
    pub(super) crc: u32,
    pub(super) stored: u32,
    pub(super) size: u32,
    pub(super) name: &'b [u8],
    pub(super) extra: &'b [u8],
    /// Byte at which the content begins.
    pub(super) content: u64,
}

impl<'b> Local<'b> {
    /// The header at byte `at`, if there is one that ends before `to`.
    pub(super) fn read(window: &'b mut Window<'_>, at: u64, to: u64) -> io::Result<Option<Self>> {
        let fixed = window.bytes(at, to, HEADER)?;
        let Some(length) = length(fixed) else { return Ok(None) };
        let bytes = window.bytes(at, to, length)?;
        if bytes.len() < length {
            return Ok(None);
        }
        Ok(bytes.split_at_checked(HEADER).map(|(fixed, rest)| {
            let (name, extra) = rest.split_at_checked(u16_at(fixed, 26).into()).unwrap_or_default();
            Self {
                version: u16_at(fixed, 4),
                flags: u16_at(fixed, 6),
                method: u16_at(fixed, 8),
                time: u16_at(fixed, 10),
                date: u16_at(fixed, 12),
                crc: u32_at(fixed, 14),
                stored: u32_at(fixed, 18),
                size: u32_at(fixed, 22),
                name,
                extra,
                content: at.saturating_add(length as u64),
            }
        }))
    }
}

/// Whether `head` begins with a member.
pub(super) fn begins(head: &[u8]) -> bool {
    let fixed = head.get(..HEADER).unwrap_or_default();
    length(fixed).is_some() && is_plausible(u16_at(fixed, 4), u16_at(fixed, 8)) && u16_at(fixed, 26) > 0
}

/// False of what only looks like a header: the signature stands in programs that unpack themselves.
pub(super) fn is_plausible(version: u16, method: u16) -> bool {
    // The newest version of the format is 6.3.
    version.to_le_bytes()[0] <= 63 && coders::is_method(method)
}

fn length(fixed: &[u8]) -> Option<usize> {
    let variable = || usize::from(u16_at(fixed, 26)).saturating_add(u16_at(fixed, 28).into());
    (fixed.len() == HEADER && fixed.starts_with(&SIGNATURE)).then(|| variable().saturating_add(HEADER))
}

/// Where the content of the member begins whose header is at byte `header`. It is an error if that header says
/// something else than the directory: programs that read only local headers would see another member there.
pub(super) fn find_content(source: &dyn Source, header: u64, expected: Option<&Piece>) -> io::Result<u64> {
    let invalid = |what: &str| {
        let what = format!("{}: {what} at byte {header}", source.describe());
        io::Error::new(io::ErrorKind::InvalidData, what)
    };
    let mut fixed = [0; HEADER];
    source.read_exact_at(&mut fixed, header)?;
    let length = length(&fixed).ok_or_else(|| invalid("no local header of a zip member"))?;
    let content = header.saturating_add(length as u64);
    if content > source.len() {
        return Err(invalid("a local header that goes on behind the end"));
    }
    let Some(expected) = expected else { return Ok(content) };
    let (flags, method, crc) = (u16_at(&fixed, 6), u16_at(&fixed, 8), u32_at(&fixed, 14));
    let (stored, size) = (u32_at(&fixed, 18), u32_at(&fixed, 22));
    if flags & FLAG_MASKED != 0 {
        return Ok(content);
    }
    let mut extra = Vec::new();
    if method == METHOD_AES || stored == u32::MAX || size == u32::MAX {
        extra.resize(u16_at(&fixed, 28).into(), 0);
        let start = content.saturating_sub(extra.len() as u64);
        source.read_exact_at(&mut extra, start)?;
    }
    let extra = Extra::read(&extra, &[], 0);
    let (time, date) = (u16_at(&fixed, 10), u16_at(&fixed, 12));
    let told = Header { host: u8::MAX, flags, method, time, date, crc, external: 0, name: &[] };
    let steps = coders::steps(member::recipe(&told, &extra).0);
    let codecs = expected.coder.iter().flat_map(|coder| &coder.steps).map(|step| &step.codec);
    if !steps.iter().map(|step| &step.codec).eq(codecs) {
        return Err(invalid("a local header that says another method than the directory, of the member"));
    }
    // Where it was not known when the header was written, there are zeros.
    if flags & FLAG_DESCRIPTOR != 0 || (crc, stored, size) == (0, 0, 0) {
        return Ok(content);
    }
    let is_same = extra.numbers(size, stored, 0).is_some_and(|numbers| {
        // Of a member that is cut, as much is told as there is.
        let is_cut = content.saturating_add(expected.stored) == source.len() && numbers.stored > expected.stored;
        numbers.size == expected.decoded && (numbers.stored == expected.stored || is_cut)
    });
    if !is_same || expected.crc.is_some_and(|expected| expected != crc) {
        return Err(invalid("a local header that says another size or checksum than the directory, of the member"));
    }
    Ok(content)
}
