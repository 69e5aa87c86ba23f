//! The volume header, and forks: what a file has, in up to eight extents that are told at once.

use crate::big::{u16_at, u32_at, u64_at};

/// Where the header lies in the volume, and its bytes. A copy lies as far before the end.
pub(super) const START: u64 = 1024;
pub(super) const HEADER: usize = 512;

/// Bytes of what tells a fork.
pub(super) const FORK: usize = 80;

/// Extents that are told at once.
const EXTENTS: usize = 8;

/// The volume was unmounted; it has a journal.
const UNMOUNTED: u32 = 1 << 8;
const JOURNALED: u32 = 1 << 13;

/// What the header says.
#[derive(Debug, Clone)]
pub(super) struct Volume {
    /// Byte of the image at which the volume begins: there may be an HFS volume around it.
    pub(super) base: u64,
    /// Bytes of a block.
    pub(super) block: u64,
    pub(super) blocks: u32,
    pub(super) is_dirty: bool,
    pub(super) has_journal: bool,
    pub(super) overflow: Fork,
    pub(super) catalogue: Fork,
    pub(super) attributes: Fork,
}

/// A fork: its length, and where its first blocks lie.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fork {
    pub(super) length: u64,
    pub(super) blocks: u32,
    /// The first block of each, and how many there are.
    pub(super) extents: Vec<(u32, u32)>,
}

impl Fork {
    pub(super) fn read(bytes: &[u8], at: usize) -> Option<Self> {
        let extents = extents(bytes, at.checked_add(16)?)?;
        Some(Self { length: u64_at(bytes, at)?, blocks: u32_at(bytes, at.checked_add(12)?)?, extents })
    }
}

/// Eight extents, without those that have no blocks.
pub(super) fn extents(bytes: &[u8], at: usize) -> Option<Vec<(u32, u32)>> {
    let mut found = Vec::new();
    for number in 0..EXTENTS {
        let at = number.checked_mul(8)?.checked_add(at)?;
        let (start, count) = (u32_at(bytes, at)?, u32_at(bytes, at.checked_add(4)?)?);
        if count == 0 {
            break;
        }
        found.push((start, count));
    }
    Some(found)
}

/// Where the volume begins in an HFS volume that is only there to say so, of the bytes at [`START`] (Inside Macintosh:
/// Files, "Master Directory Blocks").
fn embedded(header: &[u8]) -> Option<u64> {
    if !header.starts_with(b"BD") || header.get(124..126)? != b"H+" {
        return None;
    }
    let (block, first, start) = (u32_at(header, 20)?, u16_at(header, 28)?, u16_at(header, 126)?);
    u64::from(block).checked_mul(start.into())?.checked_add(u64::from(first).checked_mul(512)?)
}

impl Volume {
    /// Of the bytes of the header; `None` if they are none.
    fn read(header: &[u8], base: u64) -> Option<Self> {
        let is_known = matches!((header.get(..2)?, u16_at(header, 2)?), (b"H+", 4) | (b"HX", 5));
        let (block, blocks, free) = (u32_at(header, 40)?, u32_at(header, 44)?, u32_at(header, 48)?);
        if !is_known || !block.is_power_of_two() || block < 512 || blocks == 0 || free > blocks {
            return None;
        }
        let flags = u32_at(header, 4)?;
        Some(Self {
            base,
            block: block.into(),
            blocks,
            is_dirty: flags & UNMOUNTED == 0,
            has_journal: flags & JOURNALED != 0,
            overflow: Fork::read(header, 192)?,
            catalogue: Fork::read(header, 272)?,
            attributes: Fork::read(header, 352)?,
        })
    }

    /// The volume in an image that `show` shows bytes of.
    pub(super) fn find(show: &dyn Fn(u64, usize) -> Vec<u8>) -> Option<Self> {
        let header = show(START, HEADER);
        let base = embedded(&header).unwrap_or(0);
        let own = if base == 0 { header } else { show(base.checked_add(START)?, HEADER) };
        Self::read(&own, base)
    }

    /// The same by the copy of the header at the end of an image of so many bytes.
    pub(super) fn find_copy(show: &dyn Fn(u64, usize) -> Vec<u8>, length: u64) -> Option<Self> {
        let found = Self::read(&show(length.checked_sub(START)?, HEADER), 0)?;
        // What lies in front of another volume has a copy there, too.
        (found.block.checked_mul(found.blocks.into())?.abs_diff(length) < found.block).then_some(found)
    }

    /// Bytes from its start to its end, in the image.
    pub(super) fn range(&self) -> std::ops::Range<u64> {
        self.base..self.base.saturating_add(self.block.saturating_mul(self.blocks.into()))
    }
}
