//! The header, and where resources lie.

use crate::little::{u16_at, u32_at, u64_at};

/// What an archive begins with.
const MAGIC: &[u8] = b"MSWIM\0\0\0";

/// Bytes of the header.
pub(super) const HEADER: usize = 208;

/// Bytes of what tells a resource in a table.
pub(super) const LISTED: usize = 50;

/// Versions: the usual one, and the one with solid resources.
const VERSIONS: [u32; 2] = [0x0001_0d00, 0x0000_0e00];

/// What the header says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) version: u32,
    flags: u32,
    /// Bytes of a chunk.
    pub(super) chunk: u32,
    /// Of an archive that is split: which part this is, and how many there are.
    pub(super) part: u16,
    pub(super) parts: u16,
    pub(super) images: u32,
    /// The table of resources.
    pub(super) table: Place,
    /// What is said of the images, in XML.
    pub(super) descriptions: Place,
    /// Sums of the whole archive.
    integrity: Place,
}

/// Where a resource lies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) stored: u64,
    pub(super) length: u64,
    flags: u8,
}

impl Place {
    fn read(bytes: &[u8], at: usize) -> Option<Self> {
        let packed = u64_at(bytes, at)?;
        let [offset, length] = [8, 16].map(|behind| u64_at(bytes, at.checked_add(behind)?));
        Some(Self { offset: offset?, length: length?, stored: packed & ((1 << 56) - 1), flags: (packed >> 56) as u8 })
    }

    pub(super) fn is_metadata(&self) -> bool {
        self.flags & 2 != 0
    }

    pub(super) fn is_compressed(&self) -> bool {
        self.flags & 4 != 0
    }

    /// In a solid resource, or one itself.
    pub(super) fn is_solid(&self) -> bool {
        self.flags & 16 != 0
    }

    /// It is a solid resource itself.
    pub(super) fn holds_others(&self) -> bool {
        self.is_solid() && self.length == 1 << 32
    }
}

/// A resource in the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listed {
    pub(super) place: Place,
    pub(super) part: u16,
    pub(super) hash: [u8; 20],
}

impl Listed {
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let hash = *bytes.get(30..)?.first_chunk()?;
        Some(Self { place: Place::read(bytes, 0)?, part: u16_at(bytes, 24)?, hash })
    }
}

impl Header {
    pub(super) fn read(head: &[u8]) -> Option<Self> {
        let is_one = head.starts_with(MAGIC) && u32_at(head, 8)? as usize == HEADER;
        let version = u32_at(head, 12).filter(|_| is_one)?;
        Some(Self {
            version,
            flags: u32_at(head, 16)?,
            chunk: u32_at(head, 20)?,
            part: u16_at(head, 40)?,
            parts: u16_at(head, 42)?,
            images: u32_at(head, 44)?,
            table: Place::read(head, 48)?,
            descriptions: Place::read(head, 72)?,
            integrity: Place::read(head, 124)?,
        })
    }

    /// Where the archive ends: these are written behind all else.
    pub(super) fn end(&self) -> u64 {
        let ends =
            [self.table, self.descriptions, self.integrity].map(|place| place.offset.saturating_add(place.stored));
        ends.into_iter().max().unwrap_or_default()
    }

    pub(super) fn is_known(&self) -> bool {
        VERSIONS.contains(&self.version)
    }

    /// It was not finished.
    pub(super) fn is_being_written(&self) -> bool {
        self.flags & 0x40 != 0
    }

    /// How resources are compressed, as the codec counts it; `None` if that is not known.
    pub(super) fn compression(&self) -> Option<u8> {
        const COMPRESSED: u32 = 2;
        match (self.flags & COMPRESSED, self.flags >> 16 & 0x3f) {
            (0, _) => Some(0),
            (_, 0x02 | 0x20) => Some(1),
            (_, 0x04) => Some(2),
            (_, 0x08) => Some(3),
            _ => None,
        }
    }
}
