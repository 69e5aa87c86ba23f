//! A header: what it is, and the file that it is of.

use crate::Time;
use crate::little::{u16_at, u32_at};
use crate::time::dos_time;

/// What a header begins with.
pub(super) const MAGIC: [u8; 2] = [0x60, 0xea];

/// Bytes before what the length of a header counts, of its checksum, and of the longest one.
pub(super) const BEFORE: usize = 4;
pub(super) const CHECKSUM: usize = 4;
pub(super) const LONGEST: usize = 2600;

/// Bytes of the shortest one.
const SHORTEST: usize = 30;

/// What a header is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Archive,
    Folder,
    /// The label of a disk, or a chapter.
    Other,
    Unknown,
}

/// What a header says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each says something else")]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) method: u8,
    pub(super) is_encrypted: bool,
    /// It begins in the volume before this one, or goes on in the next one.
    pub(super) is_continued: bool,
    pub(super) goes_on: bool,
    pub(super) stored: u64,
    pub(super) size: u64,
    pub(super) crc: u32,
    pub(super) mode: u32,
    pub(super) mtime: Time,
    pub(super) path: Vec<u8>,
    /// A backslash separates the names of its path.
    pub(super) has_backslashes: bool,
    pub(super) comment: Vec<u8>,
}

/// The bytes of a header that its checksum is of, if `bytes` begin with one and the checksum is right.
pub(super) fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let length = usize::from(u16_at(bytes, 2)?);
    if !bytes.starts_with(&MAGIC) || !(SHORTEST..=LONGEST).contains(&length) {
        return None;
    }
    let header = bytes.get(BEFORE..)?.get(..length)?;
    let crc = u32_at(bytes, BEFORE.checked_add(length)?)?;
    (crc32fast::hash(header) == crc).then_some(header)
}

/// Bits that match where `head` begins with the header of an archive.
pub(super) fn bid(head: &[u8]) -> u32 {
    match checked(head).and_then(Header::read) {
        Some(header) if header.kind == Kind::Archive => 16 + 32 + 8,
        _ => 0,
    }
}

impl Header {
    /// Of the bytes that [`checked`] gives.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let names_at = usize::from(*bytes.first()?);
        let (host, flags) = (*bytes.get(3)?, *bytes.get(4)?);
        let kind = match bytes.get(6)? {
            0 | 1 => Kind::File,
            2 => Kind::Archive,
            3 => Kind::Folder,
            4 | 5 => Kind::Other,
            _ => Kind::Unknown,
        };
        let mut texts = bytes.get(names_at..)?.split(|&byte| byte == 0);
        let (name, comment) = (texts.next()?, texts.next().unwrap_or_default());
        let (stamp, access) = (u32_at(bytes, 8)?, u16_at(bytes, 26)?);
        let is_unix = matches!(host, UNIX | NEXT);
        let is_dos = matches!(host, DOS | WINDOWS_95 | WINDOWS);
        let mtime = if is_unix {
            Time { seconds: stamp.into(), nanoseconds: 0 }
        } else {
            dos_time((stamp >> 16) as u16, stamp as u16)
        };
        let default = if kind == Kind::Folder { 0o755 } else { 0o644 };
        let mode = match () {
            () if is_unix && access & 0o777 != 0 => u32::from(access) & 0o7777,
            () if is_dos && access & READ_ONLY != 0 => default & 0o555,
            () => default,
        };
        Some(Self {
            kind,
            method: *bytes.get(5)?,
            is_encrypted: flags & GARBLED != 0,
            is_continued: flags & IS_CONTINUED != 0,
            goes_on: flags & GOES_ON != 0,
            stored: u32_at(bytes, 12)?.into(),
            size: u32_at(bytes, 16)?.into(),
            crc: u32_at(bytes, 20)?,
            mode,
            mtime,
            path: name.to_vec(),
            has_backslashes: is_dos || flags & PATH_TRANSLATED == 0,
            comment: comment.to_vec(),
        })
    }
}

/// Systems on which a file was packed.
const DOS: u8 = 0;
const UNIX: u8 = 2;
const NEXT: u8 = 8;
const WINDOWS_95: u8 = 10;
const WINDOWS: u8 = 11;

/// Flags of a header.
const GARBLED: u8 = 1;
const GOES_ON: u8 = 4;
const IS_CONTINUED: u8 = 8;
const PATH_TRANSLATED: u8 = 16;

/// The attribute of DOS.
const READ_ONLY: u16 = 1;
