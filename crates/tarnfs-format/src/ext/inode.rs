//! An inode (Linux: fs/ext4/ext4.h, `struct ext4_inode`).

use super::superblock::Superblock;
use crate::little::{u16_at, u32_at};
use crate::{Device, Kind, Time};

/// Bytes of one as all have them; what is behind these grows with the file system.
pub(super) const SHORT: usize = 128;

/// Where its content is told, and how many bytes that takes.
pub(super) const BLOCKS: usize = 40;
pub(super) const BLOCKS_LENGTH: usize = 60;

pub(super) mod flag {
    pub(crate) const ENCRYPTED: u32 = 0x800;
    pub(crate) const INDEXED: u32 = 0x1000;
    pub(crate) const EXTENTS: u32 = 0x8_0000;
    pub(crate) const ATTRIBUTE: u32 = 0x20_0000;
    pub(crate) const INSIDE: u32 = 0x1000_0000;
}

/// An inode.
#[derive(Debug, Clone)]
pub(super) struct Inode {
    pub(super) number: u32,
    /// Byte of the image at which it stands.
    pub(super) at: u64,
    pub(super) mode: u16,
    pub(super) size: u64,
    pub(super) flags: u32,
    pub(super) links: u16,
    pub(super) generation: u32,
    /// All of its bytes.
    pub(super) bytes: Vec<u8>,
    /// How many of those behind the short one are fields.
    extra: usize,
}

impl Inode {
    /// The inode in `bytes`, which has that number; `None` if they are too few.
    pub(super) fn parse(number: u32, at: u64, bytes: &[u8]) -> Option<Self> {
        let mode = u16_at(bytes, 0)?;
        let has_high = matches!(mode >> 12, 4 | 8);
        let high = if has_high { u32_at(bytes, 108)? } else { 0 };
        let longest = bytes.len().saturating_sub(SHORT);
        Some(Self {
            number,
            at,
            mode,
            size: u64::from(u32_at(bytes, 4)?) | u64::from(high) << 32,
            flags: u32_at(bytes, 32)?,
            links: u16_at(bytes, 26)?,
            generation: u32_at(bytes, 100)?,
            extra: u16_at(bytes, SHORT).map(usize::from).filter(|extra| *extra <= longest).unwrap_or(0),
            bytes: bytes.to_vec(),
        })
    }

    /// True if its checksum is right.
    pub(super) fn is_right(&self, superblock: &Superblock) -> bool {
        let bytes = &self.bytes[..];
        let start = superblock.seed.add_number(self.number).add_number(self.generation);
        let part = |from: usize, to: usize| bytes.get(from..to).unwrap_or_default();
        let has_high = self.extra >= 4;
        let mut sum = start.add(part(0, 124)).add(&[0; 2]).add(part(126, SHORT));
        if bytes.len() > SHORT {
            sum = sum.add(part(SHORT, 130));
            sum = if has_high { sum.add(&[0; 2]).add(part(132, bytes.len())) } else { sum.add(part(130, bytes.len())) };
        }
        let low = u16_at(bytes, 124).map_or(0, u32::from);
        if has_high { sum.0 == low | u16_at(bytes, 130).map_or(0, u32::from) << 16 } else { sum.0 & 0xffff == low }
    }

    pub(super) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// What it is; `None` if that is nothing.
    pub(super) fn kind(&self) -> Option<Kind> {
        Some(match self.mode >> 12 {
            1 => Kind::Fifo,
            2 => Kind::CharacterDevice(self.device()),
            4 => Kind::Folder,
            6 => Kind::BlockDevice(self.device()),
            8 => Kind::File,
            10 => Kind::Symlink,
            12 => Kind::Socket,
            _ => return None,
        })
    }

    fn device(&self) -> Device {
        let word = |at: usize| u32_at(&self.bytes, BLOCKS.saturating_add(at)).unwrap_or_default();
        match word(0) {
            0 => {
                let new = word(4);
                Device { major: new >> 8 & 0xfff, minor: new & 0xff | new >> 12 & 0xf_ff00 }
            }
            old => Device { major: old >> 8 & 0xff, minor: old & 0xff },
        }
    }

    /// Owner and group.
    pub(super) fn owner(&self) -> (u64, u64) {
        let id = |low: usize, high: usize| {
            let half = |at: usize| u16_at(&self.bytes, at).map_or(0, u64::from);
            half(low) | half(high) << 16
        };
        (id(2, 120), id(24, 122))
    }

    /// A time whose seconds stand at byte `at`, and what it has beside these at byte `more`.
    fn time(&self, at: usize, more: usize) -> Time {
        let low = i64::from(u32_at(&self.bytes, at).unwrap_or_default().cast_signed());
        let has_more = SHORT.saturating_add(self.extra) >= more.saturating_add(4);
        let more = u32_at(&self.bytes, more).filter(|_| has_more).unwrap_or_default();
        // Two bits continue the seconds.
        let nanoseconds = more >> 2;
        let nanoseconds = if nanoseconds < 1_000_000_000 { nanoseconds } else { 0 };
        Time { seconds: low.saturating_add(i64::from(more & 3) << 32), nanoseconds }
    }

    pub(super) fn atime(&self) -> Time {
        self.time(8, 140)
    }

    pub(super) fn ctime(&self) -> Time {
        self.time(12, 132)
    }

    pub(super) fn mtime(&self) -> Time {
        self.time(16, 136)
    }

    /// Where its content is told.
    pub(super) fn blocks(&self) -> &[u8] {
        self.bytes.get(BLOCKS..BLOCKS.saturating_add(BLOCKS_LENGTH)).unwrap_or_default()
    }

    /// The block of its extended attributes, 0 if there is none.
    pub(super) fn attributes(&self) -> u64 {
        let high = u16_at(&self.bytes, 118).map_or(0, u64::from);
        u32_at(&self.bytes, 104).map_or(0, u64::from) | high << 32
    }

    /// Byte of the inode at which those begin that are in it, if there are any.
    pub(super) fn attributes_inside(&self) -> Option<usize> {
        let at = SHORT.saturating_add(self.extra);
        (self.extra > 0 && u32_at(&self.bytes, at)? == super::attributes::MAGIC).then(|| at.saturating_add(4))
    }
}
