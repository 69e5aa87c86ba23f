//! Packed content: an index says where in the file each packed block begins, and where it lies.

use std::io;

use super::content::{MOST_PARTS, add_fragment};
use super::inode::{Inode, Layout};
use super::superblock::incompatible;
use super::volume::{LONGEST_BLOCK, Volume};
use crate::Piece;
use crate::content::Content;
use crate::image::{Budget, damaged};
use crate::little::{u16_at, u32_at, u64_at};

/// Bytes of the head of an index (`struct z_erofs_map_header`), and what follows it where entries are long.
const HEAD: u64 = 8;
const GAP: u64 = 8;
const ENTRY: u64 = 8;

/// All of the file is a fragment; the bit that stands for that in the number of its first byte.
const IS_FRAGMENT: u8 = 0x80;
const FRAGMENT_MARK: u64 = 1 << 63;

/// What the head says.
mod advice {
    pub(super) const HALF_ENTRIES: u16 = 1;
    pub(super) const LONG_FIRST: u16 = 2;
    pub(super) const LONG_SECOND: u16 = 4;
    pub(super) const END_INSIDE: u16 = 8;
    pub(super) const ROTATED: u16 = 0x10;
    pub(super) const END_IN_FRAGMENT: u16 = 0x20;
    pub(super) const ALL: u16 = 0x3f;
}

/// Kinds of entries.
const PLAIN: u8 = 0;
const SECOND: u8 = 3;
const GOES_ON: u8 = 2;

/// Bit of an entry that goes on: it says how many blocks the packed one has.
const IS_COUNT: u32 = 1 << 11;
const LEAST_BITS: u32 = 12;

/// Bits of the number of bytes of a cluster that short entries may have, and half ones.
const MOST_BITS: u32 = 14;
const MOST_BITS_HALF: u32 = 12;

/// Entries of a pack, and bytes of one, of short entries and half ones.
const SHORT: Pack = Pack { entries: 2, bytes: 8 };
const HALF: Pack = Pack { entries: 16, bytes: 32 };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pack {
    entries: u64,
    bytes: u64,
}

/// What an entry says of a cluster of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// A packed block begins at a byte of it, and lies in the image from that block on.
    Begins { kind: u8, inside: u64, block: u64 },
    /// It goes on; the packed block has so many blocks, where that is told.
    GoesOn { blocks: Option<u64> },
}

/// An index.
#[derive(Debug, Clone, Copy)]
struct Index {
    /// Where its first entry is, and how many there are.
    at: u64,
    count: u64,
    is_short: bool,
    /// Of short ones, how many come before those of half the length, and how many of these there are.
    before: u64,
    half: u64,
    cluster_bits: u32,
    /// Packed blocks may be longer than a cluster.
    is_long: bool,
}

impl Index {
    /// Where entry `number` is, in which kind of pack.
    fn place(&self, number: u64) -> (u64, Pack) {
        if number < self.before {
            return (self.at.saturating_add(number.saturating_mul(4)), SHORT);
        }
        let start = self.at.saturating_add(self.before.saturating_mul(4));
        let number = number.saturating_sub(self.before);
        if number < self.half {
            return (start.saturating_add(number.saturating_mul(2)), HALF);
        }
        let start = start.saturating_add(self.half.saturating_mul(2));
        (start.saturating_add(number.saturating_sub(self.half).saturating_mul(4)), SHORT)
    }

    /// The byte behind the entry of that number, and all of its pack.
    fn end(&self, number: u64) -> u64 {
        if self.is_short {
            let (at, pack) = self.place(number);
            (at & !pack.bytes.saturating_sub(1)).saturating_add(pack.bytes)
        } else {
            self.at.saturating_add(number.saturating_add(1).saturating_mul(ENTRY))
        }
    }

    fn entry(&self, volume: &mut Volume<'_>, number: u64) -> io::Result<Entry> {
        if self.is_short {
            let (at, pack) = self.place(number);
            let start = at & !pack.bytes.saturating_sub(1);
            let each = pack.bytes.checked_div(pack.entries).unwrap_or(1);
            let inside = at.saturating_sub(start).checked_div(each).unwrap_or_default();
            let bytes = volume.behind(start, pack.bytes as usize)?;
            return short(bytes, pack, inside, (self.cluster_bits, self.is_long));
        }
        let at = self.at.saturating_add(number.saturating_mul(ENTRY));
        let bytes = volume.behind(at, ENTRY as usize)?;
        let (advice, inside, place) = (u16_at(bytes, 0), u16_at(bytes, 2), u32_at(bytes, 4));
        let kind = (advice.unwrap_or_default() & 3) as u8;
        let place = place.unwrap_or_default();
        if kind == GOES_ON {
            let first = place & 0xffff;
            let blocks = (first & IS_COUNT != 0).then_some(u64::from(first & !IS_COUNT));
            return Ok(Entry::GoesOn { blocks });
        }
        Ok(Entry::Begins { kind, inside: inside.unwrap_or_default().into(), block: place.into() })
    }
}

/// Entry `inside` of a pack of short ones.
fn short(bytes: &[u8], pack: Pack, inside: u64, (cluster_bits, is_long): (u32, bool)) -> io::Result<Entry> {
    // Behind all of them, the pack has the number of a block.
    let bits = pack.bytes.saturating_sub(4).saturating_mul(8).checked_div(pack.entries).unwrap_or_default();
    let low_bits = cluster_bits.max(LEAST_BITS);
    let field = |number: u64| {
        let bit = number.saturating_mul(bits);
        let value = u32_at(bytes, (bit / 8) as usize).unwrap_or_default() >> (bit % 8);
        (value & (1_u32 << low_bits).saturating_sub(1), (value >> low_bits & 3) as u8)
    };
    let (low, kind) = field(inside);
    if kind == GOES_ON {
        let is_count = low & IS_COUNT != 0;
        if is_count && !is_long {
            return Err(damaged("its index has a length where none can be"));
        }
        return Ok(Entry::GoesOn { blocks: is_count.then_some(u64::from(low & !IS_COUNT)) });
    }
    // The number is that of the block before the first one that begins in the pack.
    let (mut at, mut before) = (inside.cast_signed(), 0_u64);
    if is_long {
        while at > 0 {
            at = at.saturating_sub(1);
            let (low, kind) = field(at.cast_unsigned());
            if kind != GOES_ON {
                before = before.saturating_add(1);
            } else if low & IS_COUNT != 0 {
                at = at.saturating_sub(1);
                before = before.saturating_add((low & !IS_COUNT).into());
            } else if low <= 1 {
                return Err(damaged("its index goes on from nowhere"));
            } else {
                at = at.saturating_sub(i64::from(low).saturating_sub(2));
            }
        }
    } else {
        before = 1;
        while at > 0 {
            at = at.saturating_sub(1);
            let (low, kind) = field(at.cast_unsigned());
            if kind == GOES_ON {
                at = at.saturating_sub(i64::from(low));
            }
            before = before.saturating_add(u64::from(at >= 0));
        }
    }
    let base = u32_at(bytes, bytes.len().saturating_sub(4)).unwrap_or_default();
    // It may count from before the first block.
    let block = u64::from(base.wrapping_add(before as u32));
    Ok(Entry::Begins { kind, inside: low.into(), block })
}

/// A packed block: where it begins in the file, its kind and place, and how many blocks it has.
#[derive(Debug, Clone, Copy)]
struct Packed {
    cluster: u64,
    start: u64,
    kind: u8,
    block: u64,
    blocks: Option<u64>,
}

/// What the head of the index says.
struct Head {
    advice: u16,
    /// Bytes of an end that is in the inode, or the byte of one that is a fragment.
    end: u32,
    methods: u8,
    cluster_bits: u32,
}

/// Adds what `inode`, which is packed, has.
pub(super) fn add(
    volume: &mut Volume<'_>,
    inode: &Inode,
    content: &mut Content,
    budget: &mut Budget,
    is_fragments: bool,
) -> io::Result<()> {
    if content.size == 0 {
        return Ok(());
    }
    let at = inode.end().checked_next_multiple_of(HEAD).unwrap_or(u64::MAX);
    let bytes = volume.behind(at, HEAD as usize)?;
    let (all, end, advice) = (u64_at(bytes, 0), u32_at(bytes, 0), u16_at(bytes, 4));
    let (methods, bits) = (bytes.get(6).copied().unwrap_or_default(), bytes.get(7).copied().unwrap_or_default());
    let (end, advice) = (end.unwrap_or_default(), advice.unwrap_or_default());
    let has_fragments = volume.superblock.incompatible & incompatible::FRAGMENTS != 0 && !is_fragments;
    if bits & IS_FRAGMENT != 0 {
        if !has_fragments {
            return Err(damaged("it would be a fragment, and the image has none"));
        }
        let from = all.unwrap_or_default() ^ FRAGMENT_MARK;
        return add_fragment(volume, content, (from, inode.size), budget);
    }
    let is_short = inode.layout == Layout::PackedShort;
    let cluster_bits = u32::from(volume.superblock.block_bits).saturating_add(u32::from(bits & 0x0f));
    let is_half = is_short && advice & advice::HALF_ENTRIES != 0;
    let most = if is_half {
        MOST_BITS_HALF
    } else if is_short {
        MOST_BITS
    } else {
        24
    };
    if advice & !advice::ALL != 0 || cluster_bits > most || !is_short && advice & advice::HALF_ENTRIES != 0 {
        return Err(damaged(format!(
            "it is packed in a way that is not known ({advice:#x}, clusters of 2^{cluster_bits} bytes)"
        )));
    }
    let count = inode.size.div_ceil(1 << cluster_bits);
    let start = at.saturating_add(HEAD).saturating_add(if is_short { 0 } else { GAP });
    // Half entries are in packs that begin at a multiple of their length.
    let before = (HALF.bytes.saturating_sub(start % HALF.bytes) / 4) % 8;
    let (before, half) = match count.checked_sub(before) {
        Some(behind) if is_half && behind > 0 => (before, behind & !HALF.entries.saturating_sub(1)),
        _ => (count, 0),
    };
    let is_long = advice & (advice::LONG_FIRST | advice::LONG_SECOND) != 0;
    let index = Index { at: start, count, is_short, before, half, cluster_bits, is_long };
    let length = index.end(count.saturating_sub(1)).saturating_sub(start);
    if start.saturating_add(length) > volume.there() {
        return Err(damaged("the index of its clusters lies behind the end of the image"));
    }
    budget.take_bytes(length)?;
    if advice & advice::END_IN_FRAGMENT != 0 && !has_fragments {
        return Err(damaged("its end would be a fragment, and the image has none"));
    }
    blocks(volume, content, (&index, inode.layout), &Head { advice, end, methods, cluster_bits }, budget)
}

/// Adds each packed block that the index tells of.
fn blocks(
    volume: &mut Volume<'_>,
    content: &mut Content,
    (index, layout): (&Index, Layout),
    head: &Head,
    budget: &mut Budget,
) -> io::Result<()> {
    let mut last: Option<Packed> = None;
    for number in 0..index.count {
        match index.entry(volume, number)? {
            Entry::GoesOn { blocks } => {
                let Some(packed) = &mut last else { return Err(damaged("its index goes on from nowhere")) };
                if packed.cluster.saturating_add(1) == number && blocks.is_some() {
                    packed.blocks = blocks;
                }
            }
            Entry::Begins { kind, inside, block } => {
                let start = (number << head.cluster_bits).saturating_add(inside);
                if inside >> head.cluster_bits != 0 || last.is_none() && start > 0 {
                    return Err(damaged("its index has a place that cannot be"));
                }
                // The last one may say where the file ends.
                if start >= content.size {
                    continue;
                }
                if let Some(packed) = last {
                    block_of(volume, content, packed, start.saturating_sub(packed.start), head);
                }
                // More will be refused.
                if content.pieces.len() > MOST_PARTS || content.pieces.len() as u64 > budget.parts {
                    return Ok(());
                }
                last = Some(Packed { cluster: number, start, kind, block, blocks: None });
            }
        }
    }
    let Some(packed) = last else { return Ok(()) };
    let length = content.left();
    if head.advice & advice::END_IN_FRAGMENT != 0 {
        let high = if layout == Layout::Packed { packed.block << 32 } else { 0 };
        return add_fragment(volume, content, (u64::from(head.end) | high, length), budget);
    }
    if head.advice & advice::END_INSIDE != 0 {
        let (at, stored) = (index.end(index.count.saturating_sub(1)), u64::from(head.end >> 16));
        stored_at(volume, content, (at, stored), (packed, length), head);
        return Ok(());
    }
    block_of(volume, content, packed, length, head);
    Ok(())
}

/// Adds a packed block from which `length` bytes come.
fn block_of(volume: &mut Volume<'_>, content: &mut Content, packed: Packed, length: u64, head: &Head) {
    let superblock = &volume.superblock;
    let is_long = if packed.kind == SECOND { advice::LONG_SECOND } else { advice::LONG_FIRST };
    let whole = 1_u64 << head.cluster_bits;
    let told = packed.blocks.filter(|_| head.advice & is_long != 0);
    let stored = told.map_or(whole, |blocks| superblock.byte(blocks));
    let at = superblock.byte(packed.block);
    stored_at(volume, content, (at, stored), (packed, length), head);
}

/// Adds one that lies at byte `at` of the image, in `stored` bytes.
fn stored_at(
    volume: &mut Volume<'_>,
    content: &mut Content,
    (at, stored): (u64, u64),
    (packed, length): (Packed, u64),
    head: &Head,
) {
    let there = volume.there();
    if packed.kind == PLAIN {
        let block = volume.superblock.block();
        let is_inside = at & block.saturating_sub(1) != 0;
        // Bytes lie where they would in a block of the file, or all from the first one on.
        let turned = block.saturating_sub(packed.start & block.saturating_sub(1));
        if length > stored {
            content.add_missing(at.min(there), length, "more would come of a block than it has");
        } else if head.advice & advice::ROTATED != 0 && !is_inside && turned <= stored {
            let first = turned.min(length);
            content.add(at.saturating_add(stored).saturating_sub(turned), first, there);
            content.add(at, length.saturating_sub(first), there);
        } else {
            content.add(at, length, there);
        }
        return;
    }
    let number = if packed.kind == SECOND { head.methods >> 4 } else { head.methods & 0x0f };
    let Some(coder) = volume.coder(number) else {
        content.add_missing(at.min(there), length, format!("it is packed in a way that is not known ({number})"));
        return;
    };
    if stored == 0 || stored.max(length) > LONGEST_BLOCK || at.checked_add(stored).is_none_or(|end| end > there) {
        content.add_missing(
            at.min(there),
            length,
            "a packed block of it would lie behind the end of the image, or is too long",
        );
        return;
    }
    content.add_packed(Piece { length, offset: at, stored, coder: Some(coder), decoded: length, ..Piece::default() });
}
