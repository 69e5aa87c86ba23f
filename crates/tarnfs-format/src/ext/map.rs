//! Where the content of a file lies: extents (Linux: fs/ext4/ext4_extents.h), the older maps of blocks, or the inode
//! itself.

use std::io;

use super::inode::{BLOCKS, BLOCKS_LENGTH, Inode, flag};
use super::volume::Volume;
use super::{attributes, sums::Seed};
use crate::content::Content;
use crate::image::{Budget, damaged, is_damage};
use crate::little::{u16_at, u32_at};

/// Parts of one file: 100 MiB of memory.
const MOST_PARTS: usize = 1 << 20;

/// Bytes of a node of the tree of extents before its entries, and of each of these.
const HEAD: usize = 12;
const ENTRY: usize = 12;
const MAGIC: u16 = 0xF30A;
/// Levels of such a tree: 5 in one that is as large as can be.
const MOST_LEVELS: u16 = 5;

/// Blocks that an extent has at most; as many more of them are told for one in which nothing is written yet.
const MOST_BLOCKS: u16 = 1 << 15;

/// Blocks that the inode names itself, and levels of blocks that name others.
const DIRECT: usize = 12;
const LEVELS: u32 = 3;

/// The content of `inode`, which is a file, a folder or a long link.
pub(super) fn content(volume: &mut Volume<'_>, inode: &Inode, budget: &mut Budget) -> io::Result<Content> {
    let mut content = Content::new(inode.size);
    if inode.has(flag::INSIDE) {
        inside(volume, inode, &mut content);
        return Ok(content);
    }
    let mut map = Map { volume, inode, content, budget };
    let read = if inode.has(flag::EXTENTS) { map.extents() } else { map.blocks() };
    map.finish(read)?;
    Ok(map.content)
}

/// True if a tree of extents begins in `inode`.
pub(super) fn has_root(inode: &Inode) -> bool {
    u16_at(inode.blocks(), 0) == Some(MAGIC)
}

/// Where the parts of what is in an inode lie in it: behind each other they are its content.
pub(super) fn parts_inside(inode: &Inode) -> io::Result<[(usize, usize); 2]> {
    let more = attributes::content_inside(inode)?;
    Ok([(BLOCKS, BLOCKS_LENGTH), more.unwrap_or((BLOCKS, 0))])
}

fn inside(volume: &Volume<'_>, inode: &Inode, content: &mut Content) {
    match parts_inside(inode) {
        Ok(parts) => {
            for (at, length) in parts {
                content.add(inode.at.saturating_add(at as u64), length as u64, volume.length());
            }
            // What is behind that reads as zeros, as by Linux: mke2fs stores files so that are one hole.
        }
        Err(error) => content.add_missing(inode.at, content.left(), error.to_string()),
    }
}

struct Map<'m, 's> {
    volume: &'m mut Volume<'s>,
    inode: &'m Inode,
    content: Content,
    budget: &'m mut Budget,
}

/// A node of a tree of extents that is being read.
struct Node {
    bytes: Vec<u8>,
    level: u16,
    entries: usize,
    next: usize,
    /// Byte of the file at which ends what it tells of.
    end: u64,
}

impl Node {
    /// The node in `bytes`, which is one of that level, if that is known.
    fn parse(bytes: Vec<u8>, level: Option<u16>, end: u64) -> io::Result<Self> {
        let fields = |at: usize| u16_at(&bytes, at).ok_or_else(|| damaged("a node of its tree of extents is cut"));
        let (magic, entries, most, depth) = (fields(0)?, fields(2)?, fields(4)?, fields(6)?);
        let there = bytes.len().saturating_sub(HEAD) / ENTRY;
        let is_level = level.map_or(depth <= MOST_LEVELS, |level| depth == level);
        if magic != MAGIC || entries > most || usize::from(most) > there || !is_level {
            return Err(damaged("a node of its tree of extents is none"));
        }
        Ok(Self { bytes, level: depth, entries: entries.into(), next: 0, end })
    }

    fn entry(&self, number: usize) -> Option<&[u8]> {
        let at = number.checked_mul(ENTRY)?.checked_add(HEAD)?;
        (number < self.entries).then(|| self.bytes.get(at..at.checked_add(ENTRY)?)).flatten()
    }
}

impl Map<'_, '_> {
    /// Adds what lies from `block` on, so many blocks of them.
    fn add(&mut self, block: u64, count: u64) -> io::Result<()> {
        let length = count.saturating_mul(self.volume.superblock.block);
        let last = block.saturating_add(count.saturating_sub(1));
        let place = self.volume.byte(block).and_then(|at| self.volume.byte(last).map(|_| at));
        match place {
            Ok(at) => self.content.add(at, length, self.volume.length()),
            Err(error) => self.content.add_missing(self.inode.at, length, error.to_string()),
        }
        if self.content.pieces.len() > MOST_PARTS {
            return Err(damaged(format!("it lies in more than {MOST_PARTS} parts")));
        }
        // It will be refused: any number of files may have this map.
        if self.content.pieces.len() as u64 > self.budget.parts {
            return Err(damaged("the files of the image lie in too many parts"));
        }
        Ok(())
    }

    /// What cannot be read, up to byte `end` of the file.
    fn miss(&mut self, end: u64, why: &io::Error) {
        let length = end.saturating_sub(self.content.end());
        self.content.add_missing(self.inode.at, length, why.to_string());
    }

    /// Takes what was found from the budget.
    fn finish(&mut self, read: io::Result<()>) -> io::Result<()> {
        let count = self.content.pieces.len();
        let taken = if count > MOST_PARTS { Ok(()) } else { self.budget.take_parts(count as u64) };
        if count > MOST_PARTS || taken.is_err() {
            self.content = Content::new(self.inode.size);
        }
        match read.and(taken) {
            Err(error) if is_damage(&error) => {
                self.miss(u64::MAX, &error);
                Ok(())
            }
            read => read,
        }
    }

    fn extents(&mut self) -> io::Result<()> {
        let block = self.volume.superblock.block;
        let mut nodes = vec![Node::parse(self.inode.blocks().to_vec(), None, u64::MAX)?];
        while let Some(node) = nodes.last_mut() {
            if self.content.left() == 0 {
                break;
            }
            let Some(entry) = node.entry(node.next) else {
                nodes.pop();
                continue;
            };
            let number = |at: usize| u32_at(entry, at).map_or(0, u64::from);
            let half = |at: usize| u16_at(entry, at).unwrap_or_default();
            let start = number(0).saturating_mul(block);
            let from = self.content.end();
            let next = node.entry(node.next.saturating_add(1)).and_then(|entry| u32_at(entry, 0));
            let end = next.map_or(node.end, |next| u64::from(next).saturating_mul(block));
            let (level, is_overlapping) = (node.level, start < from);
            let (count, low, high) = (half(4), number(8), u64::from(half(6)));
            let (below, below_high) = (number(4), u64::from(half(8)));
            node.next = node.next.saturating_add(1);
            if is_overlapping {
                return Err(damaged("its extents are not in their order"));
            }
            self.content.add_hole(start.saturating_sub(from));
            if level == 0 {
                let is_written = count <= MOST_BLOCKS;
                let count = u64::from(if is_written { count } else { count.saturating_sub(MOST_BLOCKS) });
                if is_written {
                    self.add(low | high << 32, count)?;
                } else {
                    self.content.add_hole(count.saturating_mul(block));
                }
                continue;
            }
            match self.node(below | below_high << 32, level.saturating_sub(1), end) {
                Ok(node) => nodes.push(node),
                Err(error) if is_damage(&error) => self.miss(end, &error),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The node in a block.
    fn node(&mut self, block: u64, level: u16, end: u64) -> io::Result<Node> {
        let mut bytes = Vec::new();
        self.read(block, &mut bytes)?;
        if self.volume.superblock.has_sums() {
            let before = u16_at(&bytes, 4).map_or(0, usize::from).saturating_mul(ENTRY).saturating_add(HEAD);
            let stored = u32_at(&bytes, before);
            let sum = bytes.get(..before).map(|bytes| of_inode(self.volume, self.inode).add(bytes).0);
            if stored.is_none() || stored != sum {
                return Err(damaged("the checksum of a node of its tree of extents is wrong"));
            }
        }
        Node::parse(bytes, Some(level), end)
    }

    fn read(&mut self, block: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
        self.budget.take_bytes(self.volume.superblock.block)?;
        self.volume.block(block, bytes)
    }

    fn blocks(&mut self) -> io::Result<()> {
        let blocks = self.inode.blocks();
        self.named(blocks.get(..DIRECT.saturating_mul(4)).unwrap_or_default(), 0)?;
        for level in 1..=LEVELS {
            let at = DIRECT.saturating_add(level as usize).saturating_sub(1).saturating_mul(4);
            self.named(blocks.get(at..at.saturating_add(4)).unwrap_or_default(), level)?;
        }
        // Longer than can be told: a hole.
        Ok(())
    }

    /// Adds the blocks whose numbers are `numbers`, or those that are named in these, through so many levels.
    fn named(&mut self, numbers: &[u8], level: u32) -> io::Result<()> {
        let block = self.volume.superblock.block;
        let span = (0..level).fold(block, |span, _| span.saturating_mul(block / 4));
        let (numbers, _) = numbers.as_chunks::<4>();
        let mut bytes = Vec::new();
        for number in numbers {
            if self.content.left() == 0 {
                break;
            }
            let number = u64::from(u32::from_le_bytes(*number));
            let end = self.content.end().saturating_add(span);
            if number == 0 {
                self.content.add_hole(span);
            } else if level == 0 {
                self.add(number, 1)?;
            } else {
                match self.read(number, &mut bytes) {
                    // At most three levels deep.
                    Ok(()) => self.named(&bytes, level.saturating_sub(1))?,
                    Err(error) if is_damage(&error) => self.miss(end, &error),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

/// What checksums of what belongs to an inode begin with.
pub(super) fn of_inode(volume: &Volume<'_>, inode: &Inode) -> Seed {
    volume.superblock.seed.add_number(inode.number).add_number(inode.generation)
}

#[cfg(test)]
mod tests {
    use super::super::superblock::Superblock;
    use super::*;
    use tarnfs_source::{Cancel, MemorySource};

    /// A map may name each of its blocks any number of times: no more of it is read than there is room for.
    #[test]
    fn a_file_ends_where_the_parts_are_used_up() {
        let mut image = vec![0; 64 << 10];
        for (at, number) in [(0, 16), (4, 100), (20, 1), (32, 8192), (40, 16), (56, 0xef53)] {
            image[at..at + 4].copy_from_slice(&u32::to_le_bytes(number));
        }
        let superblock = Superblock::parse(&image[..1024]).unwrap();
        let numbers = [10_u32, 12].repeat(128).into_iter().flat_map(u32::to_le_bytes);
        image[20 << 10..21 << 10].copy_from_slice(&numbers.collect::<Vec<u8>>());
        let mut inode = vec![0; 128];
        inode[4..8].copy_from_slice(&(60_u32 << 10).to_le_bytes());
        for number in 0..13 {
            let block = if number == 12 { 20 } else { 10 + number % 2 * 2 };
            let at = BLOCKS + number as usize * 4;
            inode[at..at + 4].copy_from_slice(&u32::to_le_bytes(block));
        }
        let inode = Inode::parse(12, 0, &inode).unwrap();
        let (source, cancel) = (MemorySource::new(image, "image"), Cancel::default());
        let mut volume = Volume::new(&source, &cancel, superblock);
        let mut read = |parts: u64| {
            let mut budget = Budget::new(0, 1);
            budget.parts = parts;
            let before = budget.bytes;
            let content = content(&mut volume, &inode, &mut budget).unwrap();
            (content.pieces.len(), content.missing, before - budget.bytes)
        };
        assert_eq!(read(100), (60, None, 1024));
        let (pieces, missing, paid) = read(5);
        assert!(missing.is_some_and(|why| why.contains("too many parts")));
        assert_eq!((pieces, paid), (1, 0));
    }
}
