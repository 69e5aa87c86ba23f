//! The superblock: where all else is, and what a reader has to know (Linux: fs/ext4/ext4.h, `struct ext4_super_block`).

use super::sums::Seed;
use crate::little::{u16_at, u32_at};

/// Byte at which the first one stands, and how many bytes one has.
pub(super) const START: u64 = 1024;
pub(super) const LENGTH: usize = 1024;

const MAGIC: u16 = 0xEF53;

/// Features without which nothing can be read right (`s_feature_incompat`).
pub(super) mod incompatible {
    pub(crate) const COMPRESSION: u32 = 0x1;
    pub(crate) const RECOVER: u32 = 0x4;
    pub(crate) const JOURNAL: u32 = 0x8;
    pub(crate) const META_GROUPS: u32 = 0x10;
    pub(crate) const WIDE: u32 = 0x80;
    pub(crate) const SEED: u32 = 0x2000;
    /// Those with which all is read as without them, or that a reader here knows: file types in names, extents, wide
    /// numbers of blocks, protection against two mounts, flexible groups, attributes in inodes, data in names (Lustre),
    /// large folders, data in inodes, encryption, folders without regard to case.
    pub(crate) const KNOWN: u32 = 0x2
        | RECOVER
        | META_GROUPS
        | 0x40
        | WIDE
        | 0x100
        | 0x200
        | 0x400
        | 0x1000
        | SEED
        | 0x4000
        | 0x8000
        | 0x1_0000
        | 0x2_0000;
}

/// Features without which nothing can be written right (`s_feature_ro_compat`).
mod for_writers {
    pub(super) const SPARSE: u32 = 0x1;
    pub(super) const SUMS_OF_GROUPS: u32 = 0x10;
    pub(super) const CLUSTERS: u32 = 0x200;
    pub(super) const SUMS: u32 = 0x400;
}

/// Two groups with copies of the superblock (`s_feature_compat`).
const SPARSE_TWICE: u32 = 0x200;

/// What a superblock says.
#[derive(Debug, Clone)]
pub(super) struct Superblock {
    pub(super) inodes: u32,
    pub(super) blocks: u64,
    pub(super) block: u64,
    /// Block of the first group's start: 1 where a block has 1024 bytes.
    pub(super) first: u64,
    pub(super) blocks_of_group: u32,
    pub(super) inodes_of_group: u32,
    pub(super) inode: u16,
    pub(super) first_inode: u32,
    /// The group that this copy is in.
    pub(super) group: u16,
    pub(super) incompatible: u32,
    pub(super) for_writers: u32,
    pub(super) label: Vec<u8>,
    /// Bytes of a descriptor of a group.
    pub(super) descriptor: u16,
    pub(super) first_meta_group: u32,
    pub(super) copies: Copies,
    pub(super) uuid: [u8; 16],
    /// What all checksums begin with.
    pub(super) seed: Seed,
}

/// Which groups have a copy of the superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Copies {
    All,
    /// 0, 1, and powers of 3, 5 and 7.
    Sparse,
    These([u32; 2]),
}

impl Superblock {
    /// What stands in `bytes`, if they are one: all numbers are possible together, and its checksum is right if it has
    /// one.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..LENGTH)?;
        let (half, word) = (|at| u16_at(bytes, at), |at| u32_at(bytes, at));
        if half(56)? != MAGIC {
            return None;
        }
        let revision = word(76)?;
        let is_old = revision == 0;
        let of_old = |at: usize| if is_old { Some(0) } else { word(at) };
        let (compatible, incompatible, for_writers) = (of_old(92)?, of_old(96)?, of_old(100)?);
        let is_wide = incompatible & incompatible::WIDE != 0;
        let high = if is_wide { word(336)? } else { 0 };
        let uuid = *bytes.get(104..)?.first_chunk::<16>()?;
        let label = bytes.get(120..136)?.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        let has_sums = for_writers & for_writers::SUMS != 0;
        let seed = if incompatible & incompatible::SEED != 0 { Seed(word(0x270)?) } else { Seed::START.add(&uuid) };
        let found = Self {
            inodes: word(0)?,
            blocks: u64::from(word(4)?) | u64::from(high) << 32,
            block: 1024_u64.checked_shl(word(24)?).filter(|_| word(24).is_some_and(|log| log <= 6))?,
            first: word(20)?.into(),
            blocks_of_group: word(32)?,
            inodes_of_group: word(40)?,
            inode: if is_old { 128 } else { half(88)? },
            first_inode: if is_old { 11 } else { word(84)? },
            group: if is_old { 0 } else { half(90)? },
            incompatible,
            for_writers,
            label,
            descriptor: if is_wide { half(254)? } else { 32 },
            first_meta_group: of_old(260)?,
            copies: if compatible & SPARSE_TWICE != 0 {
                Copies::These([word(0x24C)?, word(0x250)?])
            } else if for_writers & for_writers::SPARSE != 0 {
                Copies::Sparse
            } else {
                Copies::All
            },
            uuid,
            seed,
        };
        let is_right = !has_sums || Seed::START.add(bytes.get(..1020)?).0 == word(1020)?;
        (revision <= 1 && found.is_possible(word(28)?) && is_right).then_some(found)
    }

    /// `cluster` is the size of a cluster as it is stored.
    fn is_possible(&self, cluster: u32) -> bool {
        let is_of_inodes = self.inode.is_power_of_two() && self.inode >= 128 && u64::from(self.inode) <= self.block;
        let is_of_descriptors =
            self.descriptor.is_power_of_two() && self.descriptor >= 32 && u64::from(self.descriptor) <= self.block;
        // A bitmap of one block has a bit for each block, or each cluster of them.
        let bits = self.block.saturating_mul(8);
        let has_clusters = self.for_writers & for_writers::CLUSTERS != 0;
        let log = self.block.trailing_zeros().saturating_sub(10);
        let of_cluster = if has_clusters { cluster.checked_sub(log) } else { Some(0) };
        let Some(of_cluster @ 0..=20) = of_cluster else { return false };
        let blocks = u64::from(self.blocks_of_group);
        let inodes = u64::from(self.inodes_of_group);
        let first = if self.block == START { 0..=1 } else { 0..=0 };
        let groups = self.groups();
        is_of_inodes
            && is_of_descriptors
            && first.contains(&self.first)
            && (1..=bits << of_cluster).contains(&blocks)
            && (1..=bits).contains(&inodes)
            && self.blocks > self.first
            && self.inodes >= 11
            // No group has less than its share.
            && u64::from(self.inodes) == groups.saturating_mul(inodes)
    }

    pub(super) fn groups(&self) -> u64 {
        self.blocks.saturating_sub(self.first).div_ceil(u64::from(self.blocks_of_group).max(1))
    }

    /// True if inodes, listings and the like have checksums.
    pub(super) fn has_sums(&self) -> bool {
        self.for_writers & for_writers::SUMS != 0
    }

    /// True if descriptors of groups have them, of the older kind.
    pub(super) fn has_sums_of_groups(&self) -> bool {
        self.for_writers & for_writers::SUMS_OF_GROUPS != 0
    }

    /// What of it cannot be read, in words.
    pub(super) fn unknown(&self) -> Option<String> {
        let unknown = self.incompatible & !incompatible::KNOWN;
        let why = if unknown & incompatible::JOURNAL != 0 {
            "it is the journal of another file system, and has no files".to_owned()
        } else if unknown & incompatible::COMPRESSION != 0 {
            "it is compressed".to_owned()
        } else {
            format!("it has features that are not known ({unknown:#x})")
        };
        (unknown != 0).then_some(why)
    }

    /// True if that group begins with a copy of the superblock.
    pub(super) fn has_copy(&self, group: u64) -> bool {
        match self.copies {
            Copies::All => true,
            Copies::These(groups) => group == 0 || groups.iter().any(|copy| u64::from(*copy) == group),
            Copies::Sparse => group <= 1 || [3, 5, 7].into_iter().any(|base| is_power(group, base)),
        }
    }

    /// The block at which a group begins.
    pub(super) fn start_of(&self, group: u64) -> u64 {
        group.saturating_mul(self.blocks_of_group.into()).saturating_add(self.first)
    }
}

fn is_power(mut number: u64, base: u64) -> bool {
    while number > 1 && number.checked_rem(base) == Some(0) {
        number = number.checked_div(base).unwrap_or_default();
    }
    number == 1
}

/// Where the first copy of a superblock stands, as groups are made where nobody asks for others: a block for the map
/// of each. By the bytes of a block.
pub(super) const COPIES: [(u64, u64); 4] =
    [(1024, 8193 << 10), (2048, 16_384 << 11), (4096, 32_768 << 12), (65_536, 524_288 << 16)];

/// Where others have their marks that leave the first bytes to a boot sector: swap, F2FS, btrfs, and members of a RAID.
/// A copy of a superblock is of what was there before. So it is of any other, where too little of the first one is left
/// ([`is_left`]); these are sure.
const OTHERS: [(u64, &[u8]); 5] = [
    (4086, b"SWAPSPACE2"),
    (1024, &[0x10, 0x20, 0xf5, 0xf2]),
    (65_600, b"_BHRfS_M"),
    (4096, &[0xfc, 0x4e, 0x2b, 0xa9]),
    (0, &[0xfc, 0x4e, 0x2b, 0xa9]),
];

/// True if the file system of a `copy`, which is `found` at byte `at`, is still there, as what is left of its `first`
/// superblock says: its magic, its name, or half of what is in it. Where nothing but zeros has taken its place, the
/// descriptors of groups behind it are to be those of the copy. Else something has been put there since, or all of it
/// was wiped.
fn is_left(first: &[u8], copy: &[u8], (found, at): (&Superblock, u64), show: impl Fn(u64, usize) -> Vec<u8>) -> bool {
    let has_name = found.uuid != [0; 16] && first.get(104..120) == Some(&found.uuid[..]);
    // What cannot be read is damaged.
    if u16_at(first, 56) == Some(MAGIC) || has_name || first.len() < LENGTH {
        return true;
    }
    if first.iter().any(|byte| *byte != 0) {
        let stored = || copy.iter().zip(first).filter(|(byte, _)| **byte != 0);
        return stored().filter(|(byte, other)| byte == other).count().saturating_mul(2) >= stored().count();
    }
    let block = found.block;
    // The first superblock is in block 0, or in block 1 where that has 1024 bytes.
    let [here, there] = [block.max(START.saturating_add(LENGTH as u64)), at.saturating_add(block)];
    let [here, there] = [here, there].map(|at| show(at, block as usize));
    // Where the two maps and the table of inodes of a group are.
    let places = |bytes: &[u8]| bytes.get(..12).is_some_and(|places| places.iter().any(|byte| *byte != 0));
    let length = usize::from(found.descriptor);
    here.chunks(length).zip(there.chunks(length)).any(|(one, other)| places(one) && one.get(..12) == other.get(..12))
}

/// The first superblock, or a copy of it where that is damaged, in what `show` shows. True if it is a copy.
pub(super) fn find(show: impl Fn(u64, usize) -> Vec<u8>) -> Option<(Superblock, bool)> {
    let first = show(START, LENGTH);
    if let Some(found) = Superblock::parse(&first) {
        return Some((found, false));
    }
    // Little else begins so that has anything in it.
    let before = show(0, START as usize);
    let is_other = || OTHERS.iter().any(|(at, mark)| show(*at, mark.len()) == *mark);
    if before.len() < START as usize || before.iter().any(|byte| *byte != 0) || is_other() {
        return None;
    }
    COPIES.iter().find_map(|&(block, at)| {
        let copy = show(at, LENGTH);
        let found = Superblock::parse(&copy)?;
        let is_there = found.start_of(found.group.into()).checked_mul(found.block) == Some(at);
        let is_one = found.block == block && found.group > 0 && is_there;
        (is_one && is_left(&first, &copy, (&found, at), &show)).then_some((found, true))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_in_groups_that_are_powers() {
        let with: Vec<_> = (0..400).filter(|group| [3, 5, 7].into_iter().any(|base| is_power(*group, base))).collect();
        assert_eq!(with, [1, 3, 5, 7, 9, 25, 27, 49, 81, 125, 243, 343]);
    }
}
