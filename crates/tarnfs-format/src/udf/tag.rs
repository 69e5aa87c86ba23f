//! What each descriptor begins with (ECMA-167, 3/7.2 and 4/7.2): its kind, its place, and two checksums.

use std::io;

use super::bytes::{crc, damaged, u16_at, u32_at};

/// Bytes of a tag.
pub(super) const LENGTH: usize = 16;

pub(super) const PRIMARY: u16 = 1;
pub(super) const ANCHOR: u16 = 2;
pub(super) const POINTER: u16 = 3;
pub(super) const PARTITION: u16 = 5;
pub(super) const LOGICAL: u16 = 6;
pub(super) const TERMINATOR: u16 = 8;
pub(super) const FILE_SET: u16 = 256;
pub(super) const NAME: u16 = 257;
pub(super) const ALLOCATION: u16 = 258;
pub(super) const INDIRECT: u16 = 259;
pub(super) const FILE: u16 = 261;
pub(super) const ATTRIBUTES: u16 = 262;
pub(super) const EXTENDED_FILE: u16 = 266;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) kind: u16,
    /// Bytes that the second checksum covers, and those of the tag.
    pub(super) length: usize,
    /// The block, as the descriptor itself has it.
    pub(super) location: u32,
}

/// What speaks against a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrong {
    /// Zeros: nothing was written there.
    Nothing,
    Tag,
    Content,
    /// The descriptor goes on behind the bytes that there are.
    Cut,
}

impl Wrong {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Nothing => "nothing was written there",
            Self::Tag => "the checksum of its tag is wrong",
            Self::Content => "its checksum is wrong",
            Self::Cut => "it is cut",
        }
    }
}

/// The tag that `bytes` begin with, if both checksums are right.
pub(super) fn read(bytes: &[u8]) -> Result<Tag, Wrong> {
    let tag: &[u8; LENGTH] = bytes.first_chunk().ok_or(Wrong::Cut)?;
    if *tag == [0; LENGTH] {
        return Err(Wrong::Nothing);
    }
    let &[_, _, _, _, sum, ..] = tag;
    // All bytes but the sum itself.
    let found = tag.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)).wrapping_sub(sum);
    if found != sum {
        return Err(Wrong::Tag);
    }
    let numbers = (|| Some((u16_at(tag, 0)?, u16_at(tag, 8)?, u16_at(tag, 10)?, u32_at(tag, 12)?)))();
    let (kind, told, covered, location) = numbers.ok_or(Wrong::Cut)?;
    let length = LENGTH.saturating_add(covered.into());
    let content = bytes.get(LENGTH..length).ok_or(Wrong::Cut)?;
    if crc(content) != told {
        return Err(Wrong::Content);
    }
    Ok(Tag { kind, length, location })
}

/// Bytes of `bytes` that were looked at to read what was `read` of them: the second checksum may cover all of them.
pub(super) fn looked_at(read: Result<Tag, Wrong>, bytes: &[u8]) -> u64 {
    match read {
        Err(Wrong::Content) => bytes.len() as u64,
        Ok(tag) => tag.length as u64,
        Err(_) => LENGTH as u64,
    }
}

/// What was `read`, if it is the tag of a descriptor of one of these `kinds`, in block `location`; what is wrong with
/// it otherwise.
pub(super) fn expect(read: Result<Tag, Wrong>, kinds: &[u16], location: u32) -> io::Result<Tag> {
    let tag = read.map_err(|wrong| damaged(wrong.words()))?;
    if !kinds.contains(&tag.kind) {
        return Err(damaged(format!("it is a descriptor of kind {}, not {}", tag.kind, kinds.first().unwrap_or(&0))));
    }
    if tag.location != location {
        return Err(damaged(format!("it says that it is in block {}, but it is in block {location}", tag.location)));
    }
    Ok(tag)
}
