//! Where the content of a file lies.

use std::io;

use super::clusters;
use super::inode::{Inode, Layout};
use super::volume::Volume;
use crate::Piece;
use crate::content::Content;
use crate::entry::MOST_OF_CODERS;
use crate::image::{Budget, CODERS, damaged, is_damage, too_many_coders};
use crate::little::{u16_at, u32_at};

/// Parts of one file: 100 MiB of memory.
pub(super) const MOST_PARTS: usize = 1 << 20;

/// Bytes of the budget that a part of the fragments takes, beside that for parts.
const OF_PART: u64 = 64;

/// What chunks are like: bits of their length beside those of a block; they have records, not numbers of blocks.
const CHUNK_BITS: u32 = 0x1f;
const HAS_RECORDS: u32 = 0x20;
const CHUNKS_KNOWN: u32 = CHUNK_BITS | HAS_RECORDS;

/// The block of a chunk that is a hole.
const HOLE: u32 = u32::MAX;

/// The content of `inode`. That of the inode of fragments has none itself.
pub(super) fn content(
    volume: &mut Volume<'_>,
    inode: &Inode,
    budget: &mut Budget,
    is_fragments: bool,
) -> io::Result<Content> {
    let mut content = Content::new(inode.size);
    let told = match inode.layout {
        Layout::Plain | Layout::Inside => plain(volume, inode, &mut content),
        Layout::Chunks => chunks(volume, inode, &mut content, budget),
        Layout::Packed | Layout::PackedShort => clusters::add(volume, inode, &mut content, budget, is_fragments),
    };
    match told {
        Err(error) if is_damage(&error) => content.add_missing(inode.at, u64::MAX, error.to_string()),
        told => told?,
    }
    let count = content.pieces.len();
    let taken = budget.take_parts(count as u64);
    let has_many_coders = too_many_coders(&content.pieces, MOST_OF_CODERS).is_some();
    if count > MOST_PARTS || taken.is_err() || has_many_coders {
        content = Content::new(inode.size);
        let many =
            || if has_many_coders { CODERS.to_owned() } else { format!("it lies in more than {MOST_PARTS} parts") };
        content.add_missing(inode.at, u64::MAX, taken.err().map_or_else(many, |error| error.to_string()));
    }
    Ok(content)
}

fn plain(volume: &Volume<'_>, inode: &Inode, content: &mut Content) -> io::Result<()> {
    let (block, there) = (volume.superblock.block(), volume.there());
    let start = volume.superblock.byte(inode.place.into());
    if inode.layout == Layout::Plain {
        content.add(start, inode.size, there);
        return Ok(());
    }
    // The last block, or the begun one, follows the inode.
    let before = inode.size.saturating_sub(1) & !block.saturating_sub(1);
    let inside = inode.size.saturating_sub(before);
    if (inode.end() & block.saturating_sub(1)).saturating_add(inside) > block {
        return Err(damaged("its end would lie across blocks"));
    }
    content.add(start, before, there);
    content.add(inode.end(), inside, there);
    Ok(())
}

fn chunks(volume: &mut Volume<'_>, inode: &Inode, content: &mut Content, budget: &mut Budget) -> io::Result<()> {
    let format = inode.place;
    if format & 0xffff & !CHUNKS_KNOWN != 0 {
        return Err(damaged(format!("its chunks are of a kind that is not known ({format:#x})")));
    }
    let bits = u32::from(volume.superblock.block_bits).saturating_add(format & CHUNK_BITS);
    let chunk = 1_u64.checked_shl(bits).ok_or_else(|| damaged("its chunks are too long"))?;
    let has_records = format & HAS_RECORDS != 0;
    let unit = if has_records { 8 } else { 4 };
    let mut at = inode.end().checked_next_multiple_of(unit).unwrap_or(u64::MAX);
    let count = inode.size.div_ceil(chunk);
    if at.saturating_add(count.saturating_mul(unit)) > volume.there() {
        return Err(damaged("the list of its chunks lies behind the end of the image"));
    }
    budget.take_bytes(count.saturating_mul(unit))?;
    let mask = volume.superblock.devices.saturating_add(1).checked_next_power_of_two().unwrap_or(0).wrapping_sub(1);
    while content.left() > 0 && content.pieces.len() <= MOST_PARTS {
        let record = volume.behind(at, unit as usize)?;
        let (device, block) = if has_records {
            (u16_at(record, 2).unwrap_or_default() & mask, u32_at(record, 4))
        } else {
            (0, u32_at(record, 0))
        };
        let block = block.unwrap_or(HOLE);
        at = at.saturating_add(unit);
        if block == HOLE {
            content.add_hole(chunk);
        } else if device > 0 {
            let source = volume.source;
            let show = |offset: u64, length: usize| {
                let mut bytes = vec![0; length];
                let read = source.read_at(&mut bytes, offset).unwrap_or_default();
                bytes.truncate(read);
                bytes
            };
            let why = match &content.missing {
                Some(why) => why.clone(),
                None => format!("it lies on another device: {}", volume.superblock.device(device, &show)),
            };
            content.add_missing(inode.at, chunk, why);
        } else {
            content.add(volume.superblock.byte(block.into()), chunk, volume.there());
        }
    }
    Ok(())
}

/// Bytes of the inode of fragments.
pub(super) fn add_fragment(
    volume: &mut Volume<'_>,
    content: &mut Content,
    (mut from, length): (u64, u64),
    budget: &mut Budget,
) -> io::Result<()> {
    let fragments = volume.fragments(budget)?;
    let mut left = length;
    while left > 0 && content.pieces.len() <= MOST_PARTS {
        // Any number of files may have all of them.
        budget.take_bytes(OF_PART)?;
        if from >= fragments.size {
            return Err(damaged("its end would lie behind all fragments"));
        }
        let (there, piece) = match fragments.at(from) {
            Err(hole) => (hole, None),
            Ok((piece, inside)) => (piece.length.saturating_sub(inside), Some((piece, inside))),
        };
        let there = there.min(left);
        match piece {
            None => content.add_hole(there),
            Some((piece, inside)) if piece.coder.is_none() => {
                content.add(piece.offset.saturating_add(inside), there, volume.there());
            }
            Some((piece, _)) if piece.stored == 0 => {
                let why = fragments.missing.clone().unwrap_or_default();
                content.add_missing(piece.offset, there, why);
            }
            Some((piece, inside)) => {
                let skip = piece.skip.saturating_add(inside);
                content.add_packed(Piece { hole: 0, length: there, skip, ..piece.clone() });
            }
        }
        from = from.saturating_add(there);
        left = left.saturating_sub(there);
    }
    Ok(())
}
