//! The superblock (`struct erofs_super_block`).

use tarnfs_source::crc32c;

use crate::little::{u16_at, u32_at, u64_at};

/// Where it stands, and how many bytes it has.
pub(super) const START: u64 = 1024;
const LENGTH: usize = 128;

const MAGIC: u32 = 0xe0f5_e1e2;

/// Bits of the number of bytes of a block.
const BLOCK_BITS: std::ops::RangeInclusive<u8> = 9..=16;

/// Bytes of the record of a device, the first of which are its name.
const DEVICE: u64 = 128;
const DEVICE_NAME: usize = 64;

/// Features that a reader may know.
const HAS_SUM: u32 = 1;
/// Names of attributes that are told once are not in the inode of fragments.
const PLAIN_PREFIXES: u32 = 0x10;

/// Features that a reader has to know.
pub(super) mod incompatible {
    /// Packed data stand at the end of their place, behind zeros.
    pub(crate) const ZEROS_IN_FRONT: u32 = 1;
    /// Packed data have more than one block, or say how they were packed.
    pub(crate) const PACKED: u32 = 2;
    pub(crate) const CHUNKS: u32 = 4;
    /// There are other devices, or a second way of packing in one file.
    pub(crate) const DEVICES: u32 = 8;
    pub(crate) const TAILS: u32 = 0x10;
    /// Ends of files are in an inode of their own, or data are there once for several files.
    pub(crate) const FRAGMENTS: u32 = 0x20;
    pub(crate) const PREFIXES: u32 = 0x40;
    pub(crate) const ALL: u32 = ZEROS_IN_FRONT | PACKED | CHUNKS | DEVICES | TAILS | FRAGMENTS | PREFIXES;
}

/// Shows bytes of an image: at an offset, up to so many.
pub(super) type Show<'s> = dyn Fn(u64, usize) -> Vec<u8> + 's;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Superblock {
    pub(super) block_bits: u8,
    pub(super) has_sum: bool,
    pub(super) is_right: bool,
    pub(super) incompatible: u32,
    pub(super) root: u64,
    blocks: u64,
    /// Block at which inodes begin, and attributes that several of them have.
    inodes: u32,
    attributes: u32,
    pub(super) time: (i64, u32),
    pub(super) label: Vec<u8>,
    pub(super) devices: u16,
    devices_at: u16,
    /// How many more bits a block of a listing has.
    pub(super) listing_bits: u8,
    pub(super) prefixes: u8,
    /// Byte at which they begin, in the inode of fragments or in the image.
    pub(super) prefixes_at: u64,
    pub(super) are_prefixes_plain: bool,
    /// The inode of fragments; 0 if there is none.
    pub(super) fragments: u64,
}

/// The superblock that `show` shows.
pub(super) fn find(show: &Show<'_>) -> Option<Superblock> {
    let bytes = show(START, LENGTH);
    if u32_at(&bytes, 0)? != MAGIC {
        return None;
    }
    let block_bits = bytes.get(12).copied().filter(|bits| BLOCK_BITS.contains(bits))?;
    let (compatible, incompatible) = (u32_at(&bytes, 8)?, u32_at(&bytes, 80)?);
    let listing_bits = bytes.get(90).copied().filter(|bits| *bits <= 8)?;
    let has_sum = compatible & HAS_SUM != 0;
    let label = bytes.get(64..80)?;
    Some(Superblock {
        block_bits,
        has_sum,
        is_right: !has_sum || is_right(show, block_bits, u32_at(&bytes, 4)?),
        incompatible,
        root: u16_at(&bytes, 14)?.into(),
        blocks: u32_at(&bytes, 36)?.into(),
        inodes: u32_at(&bytes, 40)?,
        attributes: u32_at(&bytes, 44)?,
        time: (u64_at(&bytes, 24)?.cast_signed(), u32_at(&bytes, 32)?.min(999_999_999)),
        label: label.iter().copied().take_while(|byte| *byte != 0).collect(),
        devices: if incompatible & incompatible::DEVICES == 0 { 0 } else { u16_at(&bytes, 86)? },
        devices_at: u16_at(&bytes, 88)?,
        listing_bits,
        prefixes: if incompatible & incompatible::PREFIXES == 0 { 0 } else { bytes.get(91).copied()? },
        prefixes_at: u64::from(u32_at(&bytes, 92)?).saturating_mul(4),
        are_prefixes_plain: compatible & PLAIN_PREFIXES != 0,
        fragments: if incompatible & incompatible::FRAGMENTS == 0 { 0 } else { u64_at(&bytes, 96)? },
    })
}

/// True if the sum of the block that the superblock is in, from there on, is right.
fn is_right(show: &Show<'_>, block_bits: u8, stored: u32) -> bool {
    let block = 1_u64 << block_bits;
    let length = if block > START { block.saturating_sub(START) } else { block };
    let mut bytes = show(START, length as usize);
    if let Some(place) = bytes.get_mut(4..8) {
        place.fill(0);
    }
    bytes.len() as u64 == length && !crc32c(0, &bytes) == stored
}

impl Superblock {
    pub(super) fn block(&self) -> u64 {
        1 << self.block_bits
    }

    /// Bytes of the image.
    pub(super) fn length(&self) -> u64 {
        self.blocks.saturating_mul(self.block())
    }

    /// The byte at which block `number` begins.
    pub(super) fn byte(&self, number: u64) -> u64 {
        number.saturating_mul(self.block())
    }

    /// The byte at which inode `number` stands; `None` if there cannot be one.
    pub(super) fn inode(&self, number: u64) -> Option<u64> {
        /// Bytes in which inodes are counted.
        const SLOT: u64 = 32;
        number.checked_mul(SLOT)?.checked_add(self.byte(self.inodes.into()))
    }

    /// The byte at which attribute `number` stands, of those that several inodes have.
    pub(super) fn attribute(&self, number: u32) -> u64 {
        self.byte(self.attributes.into()).saturating_add(u64::from(number).saturating_mul(4))
    }

    /// What device `number` is called, from 1 on.
    pub(super) fn device(&self, number: u16, show: &Show<'_>) -> String {
        let number = u64::from(number.saturating_sub(1));
        let at = u64::from(self.devices_at).saturating_add(number).saturating_mul(DEVICE);
        let name: Vec<u8> = show(at, DEVICE_NAME).into_iter().take_while(|byte| *byte != 0).collect();
        if name.is_empty() {
            format!("number {}", number.saturating_add(1))
        } else {
            crate::name::excerpt(&name).to_string()
        }
    }
}
