//! An inode (`struct erofs_inode_compact`, `struct erofs_inode_extended`).

use super::superblock::Superblock;
use crate::little::{u16_at, u32_at, u64_at};
use crate::{Device, Kind, Time};

/// Bytes of one, short or long.
pub(super) const SHORT: usize = 32;
pub(super) const LONG: usize = 64;

/// Bytes of the head of its attributes; each further unit is as long as a number.
const ATTRIBUTES_HEAD: u64 = 12;

/// How its content is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    Plain,
    /// Packed, with an index of eight bytes for each cluster.
    Packed,
    /// As `Plain`, but the end follows the inode.
    Inside,
    /// Packed, with a short index.
    PackedShort,
    Chunks,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Inode {
    /// Byte of the image at which it stands.
    pub(super) at: u64,
    pub(super) layout: Layout,
    pub(super) mode: u16,
    pub(super) size: u64,
    pub(super) links: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mtime: Time,
    /// A block, a device or what chunks are like.
    pub(super) place: u32,
    /// Bytes of it, and of the attributes behind it.
    length: u64,
    pub(super) attributes: u64,
}

impl Inode {
    /// The inode in `bytes`; `None` if they are none, or too few.
    pub(super) fn parse(at: u64, bytes: &[u8], superblock: &Superblock) -> Option<Self> {
        let format = u16_at(bytes, 0)?;
        let layout = match format >> 1 & 7 {
            0 => Layout::Plain,
            1 => Layout::Packed,
            2 => Layout::Inside,
            3 => Layout::PackedShort,
            4 => Layout::Chunks,
            _ => return None,
        };
        let units = u64::from(u16_at(bytes, 2)?);
        let attributes = match units.checked_sub(1) {
            None => 0,
            Some(more) => more.saturating_mul(4).saturating_add(ATTRIBUTES_HEAD),
        };
        let (mode, place) = (u16_at(bytes, 4)?, u32_at(bytes, 16)?);
        let is_long = format & 1 != 0;
        Some(if is_long {
            let mtime =
                Time { seconds: u64_at(bytes, 32)?.cast_signed(), nanoseconds: u32_at(bytes, 40)?.min(999_999_999) };
            let (size, links) = (u64_at(bytes, 8)?, u32_at(bytes, 44)?);
            let (uid, gid) = (u32_at(bytes, 24)?, u32_at(bytes, 28)?);
            Self { at, layout, mode, size, links, uid, gid, mtime, place, length: LONG as u64, attributes }
        } else {
            let (seconds, nanoseconds) = superblock.time;
            let mtime = Time { seconds, nanoseconds };
            let (size, links) = (u32_at(bytes, 8)?.into(), u16_at(bytes, 6)?.into());
            let (uid, gid) = (u16_at(bytes, 24)?.into(), u16_at(bytes, 26)?.into());
            Self { at, layout, mode, size, links, uid, gid, mtime, place, length: SHORT as u64, attributes }
        })
    }

    /// Bytes of it that are there in any case.
    pub(super) fn length_of(first: u8) -> usize {
        if first & 1 == 0 { SHORT } else { LONG }
    }

    pub(super) fn attributes_at(&self) -> u64 {
        self.at.saturating_add(self.length)
    }

    /// The byte behind it and its attributes.
    pub(super) fn end(&self) -> u64 {
        self.attributes_at().saturating_add(self.attributes)
    }

    pub(super) fn kind(&self) -> Option<Kind> {
        // As Linux packs a device number in 32 bits.
        let device =
            || Device { major: self.place >> 8 & 0xfff, minor: self.place & 0xff | self.place >> 12 & 0xf_ff00 };
        Some(match self.mode >> 12 {
            1 => Kind::Fifo,
            2 => Kind::CharacterDevice(device()),
            4 => Kind::Folder,
            6 => Kind::BlockDevice(device()),
            8 => Kind::File,
            10 => Kind::Symlink,
            12 => Kind::Socket,
            _ => return None,
        })
    }
}
