//! The header before the content of each member.

use std::io;

use tarnfs_source::Source;

use super::window::{Window, u16_at, u32_at};

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

fn length(fixed: &[u8]) -> Option<usize> {
    let variable = || usize::from(u16_at(fixed, 26)).saturating_add(u16_at(fixed, 28).into());
    (fixed.len() == HEADER && fixed.starts_with(&SIGNATURE)).then(|| variable().saturating_add(HEADER))
}

/// Where the content of the member begins whose header is at byte `header`.
pub(super) fn find_content(source: &dyn Source, header: u64) -> io::Result<u64> {
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
    Ok(content)
}
