//! A header: an index of tags, each with a type, a place and a count, and the store that the places lie in.

use crate::big;

/// What a header begins with.
pub(super) const MAGIC: &[u8] = b"\x8e\xad\xe8\x01\0\0\0\0";

/// Bytes before the index, and of one entry of it.
pub(super) const INTRODUCTION: usize = 16;
const ENTRY: usize = 16;

/// The tag with which the index of signatures begins (`RPMTAG_HEADERSIGNATURES`).
const SIGNATURES: u32 = 62;

/// Bytes of a string, at most: a path is the longest. Any number of files may lie in one folder, whose name is looked
/// at for each.
pub(super) const LONGEST: usize = 64 << 10;

/// A header in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header<'h> {
    index: &'h [[u8; ENTRY]],
    store: &'h [u8],
}

/// Numbers of 1, 2, 4 or 8 bytes, one behind the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers<'h> {
    bytes: &'h [u8],
    width: usize,
}

impl Numbers<'_> {
    pub(super) fn len(&self) -> usize {
        self.bytes.len().checked_div(self.width).unwrap_or_default()
    }

    pub(super) fn get(&self, place: usize) -> Option<u64> {
        let at = place.checked_mul(self.width)?;
        let bytes = self.bytes.get(at..at.checked_add(self.width)?)?;
        Some(bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }
}

/// True if `head` begins with the header of a package's signatures.
pub(super) fn begins_package(head: &[u8]) -> bool {
    // Old ones have no entry for the signatures together.
    let first = big::u32_at(head, INTRODUCTION);
    head.starts_with(MAGIC) && first.is_some_and(|tag| tag == SIGNATURES || (256..=1100).contains(&tag))
}

/// Bytes of the header that begins with `bytes`; `None` if none does.
pub(super) fn length(bytes: &[u8]) -> Option<u64> {
    let entries = u64::from(big::u32_at(bytes, 8)?).checked_mul(ENTRY as u64)?;
    let length = entries.checked_add(big::u32_at(bytes, 12)?.into())?.checked_add(INTRODUCTION as u64)?;
    bytes.starts_with(MAGIC).then_some(length)
}

impl<'h> Header<'h> {
    /// `bytes` are all of it, and no more.
    pub(super) fn read(bytes: &'h [u8]) -> Option<Self> {
        let entries = usize::try_from(big::u32_at(bytes, 8)?).ok()?;
        let (index, store) = bytes.get(INTRODUCTION..)?.split_at_checked(entries.checked_mul(ENTRY)?)?;
        Some(Self { index: index.as_chunks().0, store })
    }

    /// Type, count, and the store from the place of the value on.
    fn find(&self, wanted: u32) -> Option<(u32, usize, &'h [u8])> {
        let entry = self.index.iter().find(|entry| big::u32_at(&entry[..], 0) == Some(wanted))?;
        let field = |at: usize| big::u32_at(&entry[..], at);
        let store = self.store.get(usize::try_from(field(8)?).ok()?..)?;
        Some((field(4)?, usize::try_from(field(12)?).ok()?, store))
    }

    pub(super) fn numbers(&self, tag: u32) -> Option<Numbers<'h>> {
        let (kind, count, store) = self.find(tag)?;
        let width = match kind {
            1 | 2 => 1,
            3 => 2,
            4 => 4,
            5 => 8,
            _ => return None,
        };
        Some(Numbers { bytes: store.get(..count.checked_mul(width)?)?, width })
    }

    /// A string, or the first one of several.
    pub(super) fn string(&self, tag: u32) -> Option<&'h [u8]> {
        let (kind, _, store) = self.find(tag)?;
        matches!(kind, 6 | 8 | 9).then(|| store.split(|&byte| byte == 0).next().unwrap_or_default())
    }

    /// Where in the store each of `count` strings begins; `None` if there are fewer.
    pub(super) fn strings(&self, tag: u32, count: usize) -> Option<Strings<'h>> {
        let (kind, there, store) = self.find(tag)?;
        if kind != 8 || there < count || store.len() < count {
            return None;
        }
        let mut starts = Vec::with_capacity(count);
        let mut at = 0_usize;
        for _ in 0..count {
            starts.push(u32::try_from(at).ok()?);
            let length = store.get(at..)?.iter().position(|&byte| byte == 0)?;
            at = at.checked_add(length)?.checked_add(1)?;
        }
        Some(Strings { store, starts })
    }
}

/// Strings that each end with a NUL.
#[derive(Debug, Clone, Default)]
pub(super) struct Strings<'h> {
    store: &'h [u8],
    starts: Vec<u32>,
}

impl<'h> Strings<'h> {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.starts.len()
    }

    /// One that is longer than any is a byte too long.
    pub(super) fn get(&self, place: usize) -> Option<&'h [u8]> {
        let start = usize::try_from(*self.starts.get(place)?).ok()?;
        let rest = self.store.get(start..)?;
        let rest = rest.get(..LONGEST.saturating_add(1)).unwrap_or(rest);
        rest.split(|&byte| byte == 0).next()
    }
}
