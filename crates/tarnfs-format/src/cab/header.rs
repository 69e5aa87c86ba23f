//! What a cabinet begins with, and its tables of folders and files.

use crate::little::{u16_at, u32_at};

/// Bytes of the fixed part of a header.
pub(super) const HEADER: usize = 36;

/// Bytes of a header with all that may follow: what is reserved, and four names of up to 255 bytes.
pub(super) const LONGEST: usize = HEADER + 4 + 60_000 + 4 * 256;

/// Bytes of a folder (CFFOLDER) and of a file (CFFILE) without what follows.
pub(super) const FOLDER: usize = 8;
pub(super) const FILE: usize = 16;

/// Bytes of the name of a file.
pub(super) const LONGEST_NAME: usize = 256;

/// Flags of a header: a cabinet before it, one behind it, and bytes that are reserved.
const HAS_PREVIOUS: u16 = 1;
const HAS_NEXT: u16 = 2;
const HAS_RESERVE: u16 = 4;

/// A header.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Header {
    pub(super) major: u8,
    /// Bytes of the cabinet.
    pub(super) length: u64,
    /// Where the files are told of, from the start of the cabinet.
    pub(super) files_at: u64,
    pub(super) folders: u16,
    pub(super) files: u16,
    /// The number of the set that it belongs to, and its place there.
    pub(super) set: u16,
    pub(super) place: u16,
    /// Bytes that are reserved in it, behind each folder, and in each block.
    pub(super) reserved: u16,
    pub(super) of_folder: u8,
    pub(super) of_block: u8,
    /// The names of the cabinets before and behind it.
    pub(super) previous: Option<Vec<u8>>,
    pub(super) next: Option<Vec<u8>>,
    /// Bytes of the header: the folders follow.
    pub(super) end: u64,
}

impl Header {
    /// The header at the start of `bytes`, which may hold more; `None` if these are too few, or it is none.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        if !bytes.starts_with(super::MAGIC) {
            return None;
        }
        let flags = u16_at(bytes, 30)?;
        let mut header = Self {
            major: *bytes.get(25)?,
            length: u32_at(bytes, 8)?.into(),
            files_at: u32_at(bytes, 16)?.into(),
            folders: u16_at(bytes, 26)?,
            files: u16_at(bytes, 28)?,
            set: u16_at(bytes, 32)?,
            place: u16_at(bytes, 34)?,
            ..Self::default()
        };
        let mut at = HEADER;
        if flags & HAS_RESERVE != 0 {
            header.reserved = u16_at(bytes, at)?;
            (header.of_folder, header.of_block) = (*bytes.get(38)?, *bytes.get(39)?);
            at = at.checked_add(4)?.checked_add(header.reserved.into())?;
        }
        let mut name = || {
            let rest = bytes.get(at..)?;
            let length = rest.iter().position(|&byte| byte == 0)?;
            at = at.checked_add(length)?.checked_add(1)?;
            rest.get(..length).map(<[u8]>::to_vec)
        };
        // Each with the name of its disk.
        if flags & HAS_PREVIOUS != 0 {
            header.previous = Some(name()?);
            name()?;
        }
        if flags & HAS_NEXT != 0 {
            header.next = Some(name()?);
            name()?;
        }
        header.end = at as u64;
        Some(header)
    }
}

/// A folder: files that are compressed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Folder {
    /// Where its first block begins, from the start of the cabinet.
    pub(super) at: u64,
    pub(super) blocks: u16,
    /// The compression, and what belongs to it.
    pub(super) method: u8,
    pub(super) window: u8,
}

impl Folder {
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let kind = u16_at(bytes, 6)?;
        Some(Self {
            at: u32_at(bytes, 0)?.into(),
            blocks: u16_at(bytes, 4)?,
            method: (kind & 15) as u8,
            window: (kind >> 8 & 31) as u8,
        })
    }
}

/// Which folder a file is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Folder(u16),
    /// It begins in the cabinet before, and perhaps goes on in the next one, too.
    FromPrevious,
    /// It goes on in the next one.
    ToNext,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    pub(super) size: u64,
    /// Bytes of its folder before it.
    pub(super) skip: u64,
    pub(super) place: Place,
    pub(super) date: u16,
    pub(super) time: u16,
    pub(super) attributes: u16,
    pub(super) name: Vec<u8>,
}

impl File {
    /// Of bytes that may hold more; `None` if these are too few.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.get(FILE..)?;
        let length = rest.iter().take(LONGEST_NAME).position(|&byte| byte == 0)?;
        let place = match u16_at(bytes, 8)? {
            0xfffd | 0xffff => Place::FromPrevious,
            0xfffe => Place::ToNext,
            folder => Place::Folder(folder),
        };
        Some(Self {
            size: u32_at(bytes, 0)?.into(),
            skip: u32_at(bytes, 4)?.into(),
            place,
            date: u16_at(bytes, 10)?,
            time: u16_at(bytes, 12)?,
            attributes: u16_at(bytes, 14)?,
            name: rest.get(..length)?.to_vec(),
        })
    }

    /// Bytes that it takes in the table.
    pub(super) fn length(&self) -> u64 {
        (FILE as u64).saturating_add(self.name.len() as u64).saturating_add(1)
    }

    /// Hidden, or of the system.
    pub(super) fn is_hidden(&self) -> bool {
        self.attributes & 6 != 0
    }

    /// Permission bits: of DOS there is one, and another one of the format says that it is a program.
    pub(super) fn mode(&self) -> u32 {
        const READ_ONLY: u16 = 1;
        const EXECUTABLE: u16 = 0x40;
        let write = if self.attributes & READ_ONLY == 0 { 0o200 } else { 0 };
        let execute = if self.attributes & EXECUTABLE == 0 { 0 } else { 0o111 };
        0o444 | write | execute
    }
}
