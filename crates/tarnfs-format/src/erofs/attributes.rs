//! Extended attributes (`struct erofs_xattr_ibody_header`): behind the inode, or in a place that several inodes name.

use std::io;

use tarnfs_source::Limits;

use super::inode::Inode;
use super::volume::Volume;
use crate::Xattrs;
use crate::image::{Budget, damaged};
use crate::little::u16_at;

/// Bytes of the head, and where in it the number of those is that others have, too.
const HEAD: usize = 12;
const SHARED_AT: usize = 4;

/// Bytes of an entry before its name.
const ENTRY: usize = 4;

/// What names begin with, by their kind; of access lists it is all of the name.
const STARTS: [&[u8]; 7] =
    [b"", b"user.", b"system.posix_acl_access", b"system.posix_acl_default", b"trusted.", b"lustre.", b"security."];
/// The start is one of those that the image has told.
const IS_TOLD: u8 = 0x80;

/// Bytes that the attributes of all inodes may take: any number of inodes may name the same.
const MOST_BYTES: u64 = 512 << 20;

/// Bytes of a start that the image tells.
const LONGEST_START: usize = 256;

/// Bytes of memory that each takes beside its name and its value, which may be empty.
const OF_ONE: u64 = size_of::<(Vec<u8>, Vec<u8>)>() as u64;

/// Those of an inode.
#[derive(Debug, Default)]
struct Found {
    all: Xattrs,
    /// Bytes of their names and values.
    bytes: usize,
}

/// Reads them.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    /// The starts of names that the image tells; `None` before they were read.
    starts: Option<Vec<Vec<u8>>>,
    bytes: u64,
}

impl Attributes {
    pub(super) fn list(
        &mut self,
        volume: &mut Volume<'_>,
        inode: &Inode,
        (budget, limits): (&mut Budget, &Limits),
    ) -> io::Result<Xattrs> {
        let mut found = Found::default();
        if inode.attributes < HEAD as u64 {
            return Ok(found.all);
        }
        budget.take_bytes(inode.attributes)?;
        let all = volume.behind(inode.attributes_at(), inode.attributes as usize)?.to_vec();
        let shared = usize::from(all.get(SHARED_AT).copied().unwrap_or_default());
        let mut at = HEAD.saturating_add(shared.saturating_mul(4));
        let numbers = all.get(HEAD..at).ok_or_else(|| damaged("their list is cut"))?;
        for number in numbers.as_chunks::<4>().0 {
            let place = volume.superblock.attribute(u32::from_le_bytes(*number));
            let length = length(volume.behind(place, ENTRY)?);
            budget.take_bytes(length as u64)?;
            let entry = volume.behind(place, length)?.to_vec();
            self.add(volume, &entry, &mut found, (&mut *budget, limits))?;
        }
        while let Some(entry) = all.get(at..).filter(|rest| rest.len() >= ENTRY) {
            let length = length(entry);
            let entry = entry.get(..length).ok_or_else(|| damaged("one does not fit where it is"))?;
            self.add(volume, entry, &mut found, (&mut *budget, limits))?;
            at = at.saturating_add(length).checked_next_multiple_of(4).unwrap_or(usize::MAX);
        }
        Ok(found.all)
    }

    /// Adds what is in an entry.
    fn add(
        &mut self,
        volume: &mut Volume<'_>,
        entry: &[u8],
        found: &mut Found,
        (budget, limits): (&mut Budget, &Limits),
    ) -> io::Result<()> {
        let [name_length, kind, ..] = *entry else { return Ok(()) };
        let behind = ENTRY.saturating_add(name_length.into());
        let (name, value) =
            entry.get(ENTRY..).and_then(|rest| rest.split_at_checked(name_length.into())).unwrap_or_default();
        let start = if kind & IS_TOLD == 0 {
            STARTS.get(usize::from(kind)).map(|start| start.to_vec())
        } else {
            self.starts(volume, budget)?.get(usize::from(kind & !IS_TOLD)).cloned()
        };
        // What an image that is whole has as padding.
        if kind == 0 && behind == ENTRY && value.is_empty() {
            return Ok(());
        }
        let start = start.ok_or_else(|| damaged(format!("one has a name of a kind that is not known ({kind})")))?;
        let name = [&start, name].concat();
        let bytes = name.len().saturating_add(value.len());
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if self.bytes > MOST_BYTES {
            return Err(damaged("those of all files are too many"));
        }
        found.bytes = found.bytes.saturating_add(bytes);
        if value.len() > limits.xattr_value
            || found.all.len() >= limits.xattrs
            || found.bytes > limits.xattr_value.saturating_mul(16)
        {
            return Err(damaged("they are too many, or one is too long"));
        }
        // Any number of names may lead to one inode.
        budget.take_bytes(OF_ONE)?;
        found.all.push((name, value.to_vec()));
        Ok(())
    }

    /// The starts of names that the image tells.
    fn starts(&mut self, volume: &mut Volume<'_>, budget: &mut Budget) -> io::Result<&[Vec<u8>]> {
        if self.starts.is_none() {
            self.starts = Some(Vec::new());
            let count = volume.superblock.prefixes;
            let in_fragments = volume.superblock.fragments > 0 && !volume.superblock.are_prefixes_plain;
            let content = if in_fragments { Some(volume.fragments(budget)?) } else { None };
            let mut at = volume.superblock.prefixes_at;
            let (mut starts, mut bytes) = (Vec::new(), Vec::new());
            for _ in 0..count {
                let mut read = |volume: &mut Volume<'_>, at: u64, length: usize| -> io::Result<Vec<u8>> {
                    match &content {
                        Some(content) => volume.read(content, at, length as u64, &mut bytes)?,
                        None => bytes = volume.behind(at, length)?.to_vec(),
                    }
                    Ok(bytes.clone())
                };
                let length = u16_at(&read(volume, at, 2)?, 0).map_or(0, usize::from);
                if !(1..=LONGEST_START).contains(&length) {
                    return Err(damaged("the starts of names that the image tells are damaged"));
                }
                let start = read(volume, at.saturating_add(2), length)?;
                let (kind, rest) = start.split_first().unwrap_or((&0, &[]));
                let first = STARTS.get(usize::from(*kind)).copied().unwrap_or_default();
                starts.push([first, rest].concat());
                at = at.saturating_add(2).saturating_add(length as u64).checked_next_multiple_of(4).unwrap_or(u64::MAX);
            }
            self.starts = Some(starts);
        }
        Ok(self.starts.as_deref().unwrap_or_default())
    }
}

/// Bytes of the entry that begins so.
fn length(entry: &[u8]) -> usize {
    let name = entry.first().copied().unwrap_or_default();
    let value = u16_at(entry, 2).unwrap_or_default();
    ENTRY.saturating_add(name.into()).saturating_add(value.into())
}
