//! Extended attributes (Linux: fs/ext4/xattr.h): in the inode, in a block of their own, which several inodes may
//! share, or each in an inode of its own.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use tarnfs_source::Limits;

use super::inode::{Inode, flag};
use super::map;
use super::volume::Volume;
use crate::Xattrs;
use crate::image::{Budget, OfAttributes, TOO_MANY_ATTRIBUTES, damaged};
use crate::little::{u16_at, u32_at};
use crate::window::Window;

pub(super) const MAGIC: u32 = 0xEA02_0000;

/// Bytes of a block before its entries, and of an entry before its name.
const HEAD: usize = 32;
const ENTRY: usize = 16;

/// Kinds of names.
const ACCESS_LIST: u8 = 2;
const DEFAULT_LIST: u8 = 3;
const OF_SYSTEM: u8 = 7;
/// What is in an inode that is too long for its blocks.
const CONTENT: &[u8] = b"data";

/// Bytes that those of one file may take: each value may have an inode of its own.
const MOST_OF_ONE: usize = 32 << 20;

/// Blocks that are remembered, and bytes of what is in them.
const MOST_KNOWN: usize = 256;
const MOST_KNOWN_BYTES: usize = 16 << 20;

/// What an entry says.
struct Found<'b> {
    kind: u8,
    name: &'b [u8],
    /// Where its value lies, or in which inode.
    value: (usize, usize),
    inode: u32,
}

/// The entries in `bytes` from byte `at` on; their values are counted from byte `base`.
fn entries(bytes: &[u8], mut at: usize, base: usize) -> impl Iterator<Item = io::Result<Found<'_>>> {
    std::iter::from_fn(move || {
        let rest = bytes.get(at..)?;
        // Four zeros end them, or the block.
        if u32_at(rest, 0).is_none_or(|number| number == 0) {
            return None;
        }
        let cut = || damaged("one does not fit where it is");
        let found = || -> io::Result<(Found<'_>, usize)> {
            let (Some(value), Some(inode), Some(length)) = (u16_at(rest, 2), u32_at(rest, 4), u32_at(rest, 8)) else {
                return Err(cut());
            };
            let [name, kind, ..] = *rest else { return Err(cut()) };
            let end = ENTRY.saturating_add(name.into());
            let name = rest.get(ENTRY..end).ok_or_else(cut)?;
            let value = (base.saturating_add(value.into()), length as usize);
            if inode == 0 && value.0.saturating_add(value.1) > bytes.len() {
                return Err(cut());
            }
            Ok((Found { kind, name, value, inode }, end.next_multiple_of(4)))
        }();
        match found {
            Ok((found, length)) => {
                at = at.saturating_add(length);
                Some(Ok(found))
            }
            Err(error) => {
                at = bytes.len();
                Some(Err(error))
            }
        }
    })
}

/// Where in an inode lies what its blocks have no room for, and how long that is.
pub(super) fn content_inside(inode: &Inode) -> io::Result<Option<(usize, usize)>> {
    let Some(at) = inode.attributes_inside() else { return Ok(None) };
    for found in entries(&inode.bytes, at, at) {
        let found = found?;
        if found.kind == OF_SYSTEM && found.name == CONTENT && found.inode == 0 {
            return Ok(Some(found.value));
        }
    }
    Ok(None)
}

/// The attributes of a file system.
#[derive(Default)]
pub(super) struct Attributes {
    known: HashMap<u64, Result<Rc<Xattrs>, String>>,
    known_bytes: usize,
    /// What may still be told: any number of inodes may share a block.
    told: OfAttributes,
    is_full: bool,
}

impl Attributes {
    /// Those of a file system with `data` bytes that are no holes, one of so many `shares`.
    pub(super) fn new(data: u64, shares: u64) -> Self {
        Self { told: OfAttributes::new(data, shares), ..Self::default() }
    }

    /// Those of an inode.
    pub(super) fn list(
        &mut self,
        volume: &mut Volume<'_>,
        window: &mut Window<'_>,
        inode: &Inode,
        (budget, limits): (&mut Budget, &Limits),
    ) -> io::Result<Xattrs> {
        let (inside, block) = (inode.attributes_inside(), inode.attributes());
        if self.is_full || (inside.is_none() && block == 0) {
            return Ok(Vec::new());
        }
        let mut list = Vec::new();
        if let Some(at) = inside {
            list = values(volume, window, (&inode.bytes, at, at), (budget, limits))?;
        }
        if block != 0 {
            let of_block = match self.known.get(&block) {
                Some(Ok(list)) => Rc::clone(list),
                Some(Err(what)) => return Err(damaged(what.as_str())),
                None => self.new_block(volume, window, block, (budget, limits))?,
            };
            list.extend(of_block.iter().cloned());
        }
        if !self.told.take(&list) {
            self.is_full = true;
            return Err(damaged(format!("{TOO_MANY_ATTRIBUTES}; others are left out")));
        }
        list.truncate(limits.xattrs);
        Ok(list)
    }

    fn new_block(
        &mut self,
        volume: &mut Volume<'_>,
        window: &mut Window<'_>,
        block: u64,
        (budget, limits): (&mut Budget, &Limits),
    ) -> io::Result<Rc<Xattrs>> {
        let list = of_block(volume, window, block, (budget, limits)).map(Rc::new);
        let known = match &list {
            Ok(list) => Ok(Rc::clone(list)),
            // It may be right the next time.
            Err(error) if error.kind() != io::ErrorKind::InvalidData => return list,
            Err(error) => Err(error.to_string()),
        };
        let bytes = list.as_ref().map_or(0, |list| bytes_of(list));
        self.known_bytes = self.known_bytes.saturating_add(bytes);
        if self.known.len() >= MOST_KNOWN || self.known_bytes > MOST_KNOWN_BYTES {
            self.known.clear();
            self.known_bytes = bytes;
        }
        self.known.insert(block, known);
        list
    }
}

fn bytes_of(list: &Xattrs) -> usize {
    list.iter().map(|(name, value)| name.len().saturating_add(value.len())).sum()
}

/// Those in a block.
fn of_block(
    volume: &mut Volume<'_>,
    window: &mut Window<'_>,
    block: u64,
    (budget, limits): (&mut Budget, &Limits),
) -> io::Result<Xattrs> {
    let mut bytes = Vec::new();
    budget.take_bytes(volume.superblock.block)?;
    volume.block(block, &mut bytes)?;
    if u32_at(&bytes, 0) != Some(MAGIC) {
        return Err(damaged("their block is none"));
    }
    if volume.superblock.has_sums() {
        let part = |from: usize, to: usize| bytes.get(from..to).unwrap_or_default();
        let start = volume.superblock.seed.add(&block.to_le_bytes());
        let sum = start.add(part(0, 16)).add(&[0; 4]).add(part(20, bytes.len()));
        if u32_at(&bytes, 16) != Some(sum.0) {
            return Err(damaged("the checksum of their block is wrong"));
        }
    }
    values(volume, window, (&bytes, HEAD, 0), (budget, limits))
}

/// Those in `bytes` from byte `at` on, whose values are counted from byte `base`.
fn values(
    volume: &mut Volume<'_>,
    window: &mut Window<'_>,
    (bytes, at, base): (&[u8], usize, usize),
    (budget, limits): (&mut Budget, &Limits),
) -> io::Result<Xattrs> {
    let (mut list, mut sum) = (Vec::new(), 0_usize);
    for found in entries(bytes, at, base) {
        let found = found?;
        let Some(name) = name_of(&found) else { continue };
        if list.len() >= limits.xattrs {
            return Err(damaged(format!("more than {} of them", limits.xattrs)));
        }
        let (from, length) = found.value;
        if length > limits.xattr_value {
            return Err(damaged(format!("one of {length} bytes, more than {}", limits.xattr_value)));
        }
        let value = if found.inode == 0 {
            // Each may be the same bytes, nearly all of the block.
            budget.take_bytes(length as u64)?;
            bytes.get(from..from.saturating_add(length)).unwrap_or_default().to_vec()
        } else {
            value_in(volume, window, (found.inode, length), budget)?
        };
        let value = match found.kind {
            ACCESS_LIST | DEFAULT_LIST => access_list(&value)?,
            _ => value,
        };
        if name.len() > limits.name || name.contains(&0) || name.ends_with(b".") {
            return Err(damaged("one with a name that it cannot have"));
        }
        sum = sum.saturating_add(name.len()).saturating_add(value.len());
        if sum > MOST_OF_ONE {
            return Err(damaged("those of one file take more than 32 MiB"));
        }
        list.push((name, value));
    }
    Ok(list)
}

/// The name of an attribute with what stands before it; `None` of one that no program sees.
fn name_of(found: &Found<'_>) -> Option<Vec<u8>> {
    let start: &[u8] = match found.kind {
        1 => b"user.",
        ACCESS_LIST => b"system.posix_acl_access",
        DEFAULT_LIST => b"system.posix_acl_default",
        4 => b"trusted.",
        6 => b"security.",
        OF_SYSTEM if found.name != CONTENT => b"system.",
        8 => b"system.richacl",
        _ => return None,
    };
    Some([start, found.name].concat())
}

/// A value that has an inode of its own.
fn value_in(
    volume: &mut Volume<'_>,
    window: &mut Window<'_>,
    (number, length): (u32, usize),
    budget: &mut Budget,
) -> io::Result<Vec<u8>> {
    budget.take_bytes((length as u64).saturating_add(volume.superblock.inode.into()))?;
    let inode = volume.inode(number)?;
    if !inode.has(flag::ATTRIBUTE) || inode.size != length as u64 {
        return Err(damaged(format!("inode {number} is not that of the value of one")));
    }
    let content = map::content(volume, &inode, budget)?;
    let mut value = Vec::new();
    content.read(window, 0, length as u64, &mut value)?;
    Ok(value)
}

/// An access list as the kernel shows it (`linux/posix_acl_xattr.h`), from how it is stored (fs/ext4/acl.h): there
/// only users and groups with a name have a number.
fn access_list(stored: &[u8]) -> io::Result<Vec<u8>> {
    let wrong = || damaged("an access list that is none");
    let mut rest = stored;
    if u32_at(rest, 0) != Some(1) {
        return Err(wrong());
    }
    rest = rest.get(4..).unwrap_or_default();
    let mut list = 2_u32.to_le_bytes().to_vec();
    while !rest.is_empty() {
        let has_number = matches!(u16_at(rest, 0).ok_or_else(wrong)?, 2 | 8);
        let length = if has_number { 8 } else { 4 };
        let (entry, behind) = rest.split_at_checked(length).ok_or_else(wrong)?;
        list.extend_from_slice(entry);
        if !has_number {
            list.extend_from_slice(&[0xff; 4]);
        }
        rest = behind;
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_lists_get_a_number_in_each_entry() {
        let stored =
            [&1_u32.to_le_bytes()[..], &[1, 0, 6, 0], &[2, 0, 6, 0, 12, 0, 0, 0], &[4, 0, 4, 0], &[32, 0, 0, 0]]
                .concat();
        let none = [0xff; 4];
        let list = [
            &2_u32.to_le_bytes()[..],
            &[1, 0, 6, 0],
            &none,
            &[2, 0, 6, 0, 12, 0, 0, 0],
            &[4, 0, 4, 0],
            &none,
            &[32, 0, 0, 0],
            &none,
        ]
        .concat();
        assert_eq!(access_list(&stored).unwrap(), list);
        for length in [0, 3, 5, 7, 13] {
            assert!(access_list(&stored[..length]).is_err(), "{length}");
        }
    }

    /// Values may overlap: each of the entries in an inode may have nearly all of it.
    #[test]
    fn values_are_paid_for() {
        const VALUE: u32 = 30_000;
        let mut image = vec![0; 1024];
        for (at, number) in [(0, 16), (4, 100), (20, 1), (32, 8192), (40, 16), (56, 0xef53)] {
            image[at..at + 4].copy_from_slice(&u32::to_le_bytes(number));
        }
        let superblock = super::super::superblock::Superblock::parse(&image).unwrap();
        let (source, cancel) = (tarnfs_source::MemorySource::new(image, "image"), tarnfs_source::Cancel::default());
        let (mut volume, mut window) = (Volume::new(&source, &cancel, superblock), Window::growing(&source));
        let entry = [&[1, 1, 0, 0][..], &[0; 4], &VALUE.to_le_bytes(), &[0; 4], b"a\0\0\0"].concat();
        let mut inode = entry.repeat(100);
        inode.resize(32 << 10, 0);
        let mut read = |bytes: u64| {
            let mut budget = Budget::new(0, 1);
            budget.bytes = bytes;
            let list = values(&mut volume, &mut window, (&inode, 0, 0), (&mut budget, &Limits::default()));
            (list.map(|list| list.len()).map_err(|error| error.to_string()), budget.bytes)
        };
        assert_eq!(read(101 * u64::from(VALUE)), (Ok(100), VALUE.into()));
        let (found, left) = read(10 * u64::from(VALUE) + 7);
        assert!(found.unwrap_err().contains("too often"));
        assert_eq!(left, 7);
    }

    #[test]
    fn entries_end_at_zeros_or_where_they_are_cut() {
        let entry = |name: &[u8], value: u16, length: u32| {
            let mut entry = vec![name.len() as u8, 1];
            entry.extend(value.to_le_bytes());
            entry.extend([0; 4]);
            entry.extend(length.to_le_bytes());
            entry.extend([0; 4]);
            entry.extend(name);
            entry.resize(entry.len().next_multiple_of(4), 0);
            entry
        };
        let mut bytes = [entry(b"one", 60, 4), entry(b"three", 56, 2)].concat();
        bytes.resize(64, 0);
        let found: Vec<_> = entries(&bytes, 0, 0)
            .map(|found| found.map(|found| (found.name.to_vec(), found.value)))
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(found, [(b"one".to_vec(), (60, 4)), (b"three".to_vec(), (56, 2))]);
        assert!(entries(&bytes[..20], 0, 0).any(|found| found.is_err()));
        assert!(entries(&bytes, 0, 10).any(|found| found.is_err()));
        assert_eq!(entries(&bytes[..10], 0, 0).count(), 1);
    }
}
