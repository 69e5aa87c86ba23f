//! RPM: a lead, the header of the signatures, that of the package, and the payload.
//!
//! The head is both headers as they are. The lead before them says nothing that they do not.
//!
//! The format: `docs/manual/format_v4.md` of RPM.

use std::io;
use std::sync::Arc;

use tarnfs_source::{Cancel, Limits, SharedSource, Slice, Source};

use super::Layout;
use crate::faults;

/// What a lead begins with, and its length.
const LEAD_MAGIC: &[u8] = b"\xed\xab\xee\xdb";
const LEAD: u64 = 96;

/// What a header begins with: a magic, a version, four bytes of zeros.
const HEADER_MAGIC: &[u8] = b"\x8e\xad\xe8\x01\0\0\0\0";
const INTRODUCTION: usize = 16;

/// Bytes of one entry of a header's index.
const ENTRY: u64 = 16;

pub(super) fn bid(head: &[u8]) -> u32 {
    let header = head.get(LEAD as usize..).unwrap_or_default();
    if head.starts_with(LEAD_MAGIC) && header.starts_with(HEADER_MAGIC) { 96 } else { 0 }
}

pub(super) fn layout(source: &SharedSource, _: &Limits, _: &Cancel) -> io::Result<Layout> {
    let mut lead = [0; LEAD_MAGIC.len()];
    source.read_exact_at(&mut lead, 0)?;
    if lead != LEAD_MAGIC {
        return Err(faults::invalid(0, "this is no RPM package"));
    }
    // The header of the signatures is filled up to a multiple of 8 bytes.
    let header = header_end(&**source, LEAD)?;
    let header = header.checked_next_multiple_of(8).unwrap_or(header);
    let payload = header_end(&**source, header)?;
    let head = Slice::new(Arc::clone(source), LEAD, payload - LEAD);
    Layout::new(source, Arc::new(head), payload, source.len() - payload)
}

/// Where the header ends that begins at byte `at`.
fn header_end(source: &dyn Source, at: u64) -> io::Result<u64> {
    let mut introduction = [0; INTRODUCTION];
    let read = source.read_at(&mut introduction, at)?;
    if read < introduction.len() {
        return Err(faults::cut(source.len(), "a header of a package"));
    }
    let number = |from: usize| {
        let bytes = introduction.get(from..).and_then(<[u8]>::first_chunk);
        u64::from(bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes)))
    };
    if !introduction.starts_with(HEADER_MAGIC) {
        return Err(faults::invalid(at, "a header of a package that is none"));
    }
    let end = at + INTRODUCTION as u64 + number(8) * ENTRY + number(12);
    if end > source.len() {
        return Err(faults::cut(source.len(), "a header of a package"));
    }
    Ok(end)
}
