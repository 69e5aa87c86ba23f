//! One header block: 512 bytes, the same fields at the same places in all dialects, and what each dialect adds.

use super::numbers::number;
use crate::{Device, Time};

/// Everything in a tar is a whole number of blocks.
pub(super) const BLOCK: usize = 512;

/// A block of the archive.
pub(super) type Block = [u8; BLOCK];

/// What a block at the place of a header is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Check {
    /// The checksum is right.
    Header,
    /// All zero: the end of the archive, where there are two.
    Zero,
    /// Neither.
    Other,
}

/// Whose rules the fields behind the first 257 bytes follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Before POSIX: no names of owners, no prefix.
    V7,
    /// POSIX 1988 and pax.
    Ustar,
    /// GNU, old and new: times and the sparse map are where ustar has its prefix.
    Gnu,
    /// star: a shorter prefix and two times behind it.
    Star,
}

/// Where the checksum is, and what it counts as while it is computed: blanks.
const CHECKSUM: std::ops::Range<usize> = 148..156;

/// Eight of them.
const BLANKS: u32 = 0x20 * 8;

/// Says what `block` is by its checksum. Some old tars summed signed bytes; both are right.
pub(super) fn check(block: &Block) -> Check {
    let sum = sum(block);
    if sum == 0 {
        return Check::Zero;
    }
    let field = &block[CHECKSUM];
    let digits: u32 = field.iter().map(|&byte| u32::from(byte)).sum();
    let computed = i64::from(sum.wrapping_sub(digits).wrapping_add(BLANKS));
    let Some(stored) = number(field) else { return Check::Other };
    if stored == computed {
        return Check::Header;
    }
    let negative = |bytes: &[u8]| bytes.iter().map(|byte| i64::from(byte >> 7)).sum::<i64>();
    let signed = computed.wrapping_sub(negative(block).wrapping_sub(negative(field)).wrapping_mul(256));
    if stored == signed { Check::Header } else { Check::Other }
}

/// The sum of all bytes: four 16-bit lanes in one word, none of which can overflow in 64 words (64 × 2 × 255).
fn sum(block: &Block) -> u32 {
    const LANES: u64 = 0x00ff_00ff_00ff_00ff;
    let (words, _) = block.as_chunks::<8>();
    let lanes = words.iter().fold(0_u64, |lanes, word| {
        let word = u64::from_ne_bytes(*word);
        lanes.wrapping_add(word & LANES).wrapping_add((word >> 8) & LANES)
    });
    ((lanes & 0xffff).wrapping_add(lanes >> 16 & 0xffff).wrapping_add(lanes >> 32 & 0xffff).wrapping_add(lanes >> 48))
        as u32
}

/// The bytes of a field before its first NUL.
pub(super) fn text(field: &[u8]) -> &[u8] {
    field.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// A header whose checksum is right.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header<'a>(pub(super) &'a Block);

impl<'a> Header<'a> {
    pub(super) fn dialect(self) -> Dialect {
        match &self.0[257..265] {
            b"ustar  \0" => Dialect::Gnu,
            // Some writers forget the NUL or the version.
            [b'u', b's', b't', b'a', b'r', ..] if self.is_star() => Dialect::Star,
            [b'u', b's', b't', b'a', b'r', ..] => Dialect::Ustar,
            _ => Dialect::V7,
        }
    }

    /// star says so at the end, or (as GNU tar finds out) by two octal times where a prefix would end.
    fn is_star(self) -> bool {
        let time = |at: &[u8]| matches!(at, [b'0'..=b'7', .., b' ']);
        self.0[475] == 0 && (&self.0[508..512] == b"tar\0" || (time(&self.0[476..488]) && time(&self.0[488..500])))
    }

    /// The path, put together from name and prefix.
    pub(super) fn path(self, dialect: Dialect) -> Vec<u8> {
        let name = text(&self.0[0..100]);
        let prefix = match dialect {
            Dialect::Ustar => text(&self.0[345..500]),
            Dialect::Star => text(&self.0[345..476]),
            Dialect::V7 | Dialect::Gnu => &[],
        };
        if prefix.is_empty() { name.to_vec() } else { [prefix, name].join(&b'/') }
    }

    pub(super) fn mode(self) -> Option<u32> {
        number(&self.0[100..108]).map(|mode| (mode & 0o7777) as u32)
    }

    pub(super) fn uid(self) -> Option<u64> {
        number(&self.0[108..116]).map(id)
    }

    pub(super) fn gid(self) -> Option<u64> {
        number(&self.0[116..124]).map(id)
    }

    /// Bytes of content behind the header; `None` also if it is negative.
    pub(super) fn size(self) -> Option<u64> {
        number(&self.0[124..136]).and_then(|size| u64::try_from(size).ok())
    }

    pub(super) fn mtime(self) -> Option<Time> {
        number(&self.0[136..148]).map(|seconds| Time { seconds, nanoseconds: 0 })
    }

    pub(super) fn typeflag(self) -> u8 {
        self.0[156]
    }

    pub(super) fn link(self) -> &'a [u8] {
        text(&self.0[157..257])
    }

    /// Name of the owner; empty in dialects that have none.
    pub(super) fn user(self, dialect: Dialect) -> &'a [u8] {
        if dialect == Dialect::V7 { &[] } else { text(&self.0[265..297]) }
    }

    /// Name of the group; empty in dialects that have none.
    pub(super) fn group(self, dialect: Dialect) -> &'a [u8] {
        if dialect == Dialect::V7 { &[] } else { text(&self.0[297..329]) }
    }

    pub(super) fn device(self) -> Option<Device> {
        let part = |field| number(field).and_then(|part| u32::try_from(part).ok());
        Some(Device { major: part(&self.0[329..337])?, minor: part(&self.0[337..345])? })
    }

    /// Times of the last access and the last change of the inode, which GNU writes in incremental dumps and star
    /// always.
    pub(super) fn other_times(self, dialect: Dialect) -> (Option<Time>, Option<Time>) {
        let time = |field: &[u8]| match field {
            [0 | b' ', ..] => None,
            _ => number(field).map(|seconds| Time { seconds, nanoseconds: 0 }),
        };
        match dialect {
            Dialect::Gnu => (time(&self.0[345..357]), time(&self.0[357..369])),
            Dialect::Star => (time(&self.0[476..488]), time(&self.0[488..500])),
            Dialect::V7 | Dialect::Ustar => (None, None),
        }
    }

    /// Byte of the file at which this continuation of it begins (multi-volume archives, GNU and star).
    pub(super) fn continued_at(self, dialect: Dialect) -> Option<u64> {
        let field = if dialect == Dialect::Star { &self.0[464..476] } else { &self.0[369..381] };
        number(field).and_then(|offset| u64::try_from(offset).ok())
    }

    /// The map of a sparse file as far as it is in the header: four pairs of offset and length, whether blocks with
    /// more of them follow, and the length of the file.
    pub(super) fn sparse(self, dialect: Dialect) -> (&'a [u8], bool, Option<u64>) {
        let length = |field| number(field).and_then(|length| u64::try_from(length).ok());
        if dialect == Dialect::Star {
            (&self.0[356..452], self.0[355] != 0, length(&self.0[452..464]))
        } else {
            (&self.0[386..482], self.0[482] != 0, length(&self.0[483..495]))
        }
    }

    /// True if every field could have been written by a tar: for telling a header from bytes that look like one.
    pub(super) fn is_plausible(self) -> bool {
        let known = matches!(self.typeflag(), 0 | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z');
        known
            && self.size().is_some()
            && self.mode().is_some()
            && self.uid().is_some()
            && self.gid().is_some()
            && self.mtime().is_some()
    }
}

/// An owner's number. Negative ones were written by programs whose numbers are signed: -2 is 4294967294 to Linux.
fn id(number: i64) -> u64 {
    if number < 0 { u64::from(number as u32) } else { number.cast_unsigned() }
}
