//! A file system whose superblock is known: its groups, and the inodes in them.

use std::collections::HashMap;
use std::io;

use tarnfs_source::{Cancel, Source};

use super::inode::Inode;
use super::sums::crc16;
use super::superblock::{Superblock, incompatible};
use crate::image::{damaged, is_damage};
use crate::little::{u16_at, u32_at};

/// Bytes of inodes that are read at once, and how many such pieces are kept: those of a folder lie close together, but
/// its names come in any order.
const AT_ONCE: u64 = 32 << 10;
const KEPT: usize = 128;

/// Groups that are known at the same time.
const MOST_GROUPS: usize = 1 << 14;

/// Copies of the descriptors of groups that are tried.
const MOST_COPIES: u64 = 4096;

/// The same for all groups. If the first one of each were lost, that is as many as 32 TiB have groups.
const MOST_TRIED: u64 = 1 << 18;

/// Where the tables of all groups begin.
pub(super) struct Volume<'s> {
    source: &'s dyn Source,
    cancel: &'s Cancel,
    pub(super) superblock: Superblock,
    /// By the group: where its table of inodes begins, in bytes, or why that is not known.
    tables: HashMap<u64, Result<u64, String>>,
    /// Copies that may still be tried.
    tries: u64,
    /// Pieces of these tables by their number, each in a place that follows from that.
    /// One without bytes is damaged, and each inode of it is read alone.
    pieces: Vec<(u64, Vec<u8>)>,
    alone: Vec<u8>,
    /// What is damaged and does not stand in the way, and where.
    pub(super) told: Vec<(u64, String)>,
}

impl<'s> Volume<'s> {
    pub(super) fn new(source: &'s dyn Source, cancel: &'s Cancel, superblock: Superblock) -> Self {
        let (tables, pieces) = (HashMap::new(), vec![(u64::MAX, Vec::new()); KEPT]);
        Self { source, cancel, superblock, tables, tries: MOST_TRIED, pieces, alone: Vec::new(), told: Vec::new() }
    }

    pub(super) fn length(&self) -> u64 {
        self.source.len()
    }

    /// The byte at which a block begins, if there is such a block.
    pub(super) fn byte(&self, block: u64) -> io::Result<u64> {
        let Superblock { first, blocks, block: length, .. } = self.superblock;
        if block < first || block >= blocks || block == 0 {
            return Err(damaged(format!("block {block} of {blocks}")));
        }
        Ok(block.saturating_mul(length))
    }

    /// All of a block.
    pub(super) fn block(&self, block: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        self.cancel.check()?;
        let at = self.byte(block)?;
        buffer.resize(self.superblock.block as usize, 0);
        self.exact(buffer, at)
    }

    /// Fills `buffer` from byte `at` on.
    pub(super) fn exact(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        if at.saturating_add(buffer.len() as u64) > self.source.len() {
            return Err(damaged("it lies behind the end of the image, which is cut"));
        }
        self.source.read_exact_at(buffer, at)
    }

    /// An inode, whatever is in it.
    pub(super) fn inode(&mut self, number: u32) -> io::Result<Inode> {
        let Superblock { inodes, inodes_of_group, inode: length, .. } = self.superblock;
        let index = number.checked_sub(1).filter(|_| number <= inodes);
        let index = index.ok_or_else(|| damaged(format!("inode {number} of {inodes}")))?;
        let group = u64::from(index.checked_div(inodes_of_group).unwrap_or_default());
        let inside = u64::from(index.checked_rem(inodes_of_group).unwrap_or_default());
        let at = self.table(group)?.saturating_add(inside.saturating_mul(length.into()));
        let bytes = self.in_table(at, length.into())?;
        let inode = Inode::parse(number, at, bytes).ok_or_else(|| damaged(format!("inode {number} is cut")))?;
        if self.superblock.has_sums() && !inode.is_right(&self.superblock) {
            return Err(damaged(format!("the checksum of its inode {number} is wrong")));
        }
        Ok(inode)
    }

    /// Bytes of a table of inodes, which do not cross a boundary of so many bytes as they are.
    fn in_table(&mut self, at: u64, length: u64) -> io::Result<&[u8]> {
        let whole = AT_ONCE.max(self.superblock.block);
        let number = at.checked_div(whole).unwrap_or_default();
        let start = number.saturating_mul(whole);
        let place = number.checked_rem(KEPT as u64).unwrap_or_default() as usize;
        let there = self.source.len().saturating_sub(start).min(whole);
        let inside = at.saturating_sub(start);
        if inside.saturating_add(length) > there {
            return Err(damaged("its inode lies behind the end of the image, which is cut"));
        }
        let slot = self.pieces.get_mut(place).ok_or_else(|| damaged("no place"))?;
        if slot.0 != number {
            self.cancel.check()?;
            slot.0 = u64::MAX;
            slot.1.resize(there as usize, 0);
            match self.source.read_exact_at(&mut slot.1, start) {
                // What is only read ahead may be damaged.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => slot.1.clear(),
                read => read?,
            }
            slot.0 = number;
        }
        if slot.1.is_empty() {
            self.cancel.check()?;
            self.alone.resize(length as usize, 0);
            self.source.read_exact_at(&mut self.alone, at)?;
            return Ok(&self.alone);
        }
        let inside = inside as usize;
        Ok(slot.1.get(inside..inside.saturating_add(length as usize)).unwrap_or_default())
    }

    /// The byte at which the table of inodes of a group begins.
    fn table(&mut self, group: u64) -> io::Result<u64> {
        if let Some(known) = self.tables.get(&group) {
            return known.clone().map_err(damaged);
        }
        let found = self.find_table(group);
        let known = match &found {
            Ok(at) => Ok(*at),
            Err(error) if is_damage(error) => Err(error.to_string()),
            Err(_) => return found,
        };
        if self.tables.len() >= MOST_GROUPS {
            self.tables.clear();
        }
        self.tables.insert(group, known);
        found
    }

    fn find_table(&mut self, group: u64) -> io::Result<u64> {
        let first = match self.table_in(self.descriptor(group, None), group) {
            Err(error) if is_damage(&error) => error,
            found => return found,
        };
        let told_at = self.descriptor(group, None).min(self.source.len());
        for copy in (1..self.superblock.groups().min(MOST_COPIES)).filter(|copy| self.superblock.has_copy(*copy)) {
            self.cancel.check()?;
            let at = self.descriptor(group, Some(copy));
            let Some(left) = self.tries.checked_sub(1).filter(|_| at < self.source.len()) else { break };
            self.tries = left;
            match self.table_in(at, group) {
                Err(error) if is_damage(&error) => {}
                Err(error) => return Err(error),
                Ok(found) => {
                    let what = format!("the descriptor of group {group}: {first}; its copy in group {copy} is read");
                    self.told.push((told_at, what));
                    return Ok(found);
                }
            }
        }
        Err(damaged(format!("the descriptor of group {group}: {first}")))
    }

    /// The byte at which the descriptor of a group stands, or the copy of it in another one.
    fn descriptor(&self, group: u64, copy: Option<u64>) -> u64 {
        let Superblock { block, descriptor, first, first_meta_group, incompatible, .. } = self.superblock;
        let in_block = block.checked_div(descriptor.into()).unwrap_or(1).max(1);
        let number = group.checked_div(in_block).unwrap_or_default();
        let inside = group.checked_rem(in_block).unwrap_or_default().saturating_mul(descriptor.into());
        let is_meta = incompatible & incompatible::META_GROUPS != 0 && number >= first_meta_group.into();
        let at = if is_meta {
            // Such blocks lie in the first, second and last of the groups that they describe.
            let of_these = number.saturating_mul(in_block);
            let in_group = of_these.saturating_add(u64::from(copy.is_some()));
            let mut behind = u64::from(self.superblock.has_copy(in_group));
            if block == 1024 && in_group == 0 && first == 0 {
                behind = behind.saturating_add(1);
            }
            self.superblock.start_of(in_group).saturating_add(behind)
        } else {
            // The superblock is in block 1 where a block has 1024 bytes, whatever the first one is.
            let start = match copy {
                Some(copy) => self.superblock.start_of(copy),
                None => u64::from(block == 1024),
            };
            start.saturating_add(1).saturating_add(number)
        };
        at.saturating_mul(block).saturating_add(inside)
    }

    /// What the descriptor at byte `at` says of where the table of `group` begins.
    fn table_in(&self, at: u64, group: u64) -> io::Result<u64> {
        let Superblock { descriptor: length, ref uuid, seed, inode, inodes_of_group, block, .. } = self.superblock;
        let mut bytes = vec![0; usize::from(length)];
        self.exact(&mut bytes, at)?;
        let cut = || damaged("it is cut");
        let stored = u16_at(&bytes, 30).ok_or_else(cut)?;
        let (before, behind) = (bytes.get(..30).unwrap_or_default(), bytes.get(32..).unwrap_or_default());
        let number = group as u32;
        let sum = if self.superblock.has_sums() {
            Some(seed.add_number(number).add(before).add(&[0; 2]).add(behind).0 as u16)
        } else if self.superblock.has_sums_of_groups() {
            let start = crc16(crc16(u16::MAX, uuid), &number.to_le_bytes());
            Some(crc16(crc16(start, before), behind))
        } else {
            None
        };
        if sum.is_some_and(|sum| sum != stored) {
            return Err(damaged("its checksum is wrong"));
        }
        let low = u32_at(&bytes, 8).ok_or_else(cut)?;
        let high = u32_at(&bytes, 40).unwrap_or_default();
        let start = self.byte(u64::from(low) | u64::from(high) << 32)?;
        let of_all = u64::from(inodes_of_group).saturating_mul(inode.into());
        self.byte((start.saturating_add(of_all.saturating_sub(1))).checked_div(block).unwrap_or_default())?;
        Ok(start)
    }
}
