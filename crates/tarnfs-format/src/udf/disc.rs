//! An image with its partitions: the entries of files, and where their content is.

use std::collections::{BTreeMap, HashSet};
use std::io;

use tarnfs_source::{Cancel, Source};

use super::bytes::{Place, damaged, identifier, is_damage, long_place, u16_at, u32_at};
use super::content::{Allocation, extents};
use super::file::{FileEntry, Form, kind};
use super::image::{Image, LARGEST_BLOCK};
use super::recognition::Anchor;
use super::space::{Part, Run, Space};
use super::tag::{self, Tag};
use super::volume::{Logical, Map, Volume, missing};
use crate::content::Content;
use crate::image::Budget;

/// Extents of one file: 64 MiB of memory.
const MOST_EXTENTS: usize = 1 << 20;

/// What a block of further descriptors counts for beside those in it: no file has two of the smallest for one of them.
const PER_BLOCK: u64 = 32;

/// Entries that replace each other (strategy 4096), of one file.
const MOST_REPLACED: u32 = 1024;

/// Bytes of a table of packets that lie elsewhere: it has up to 65535 entries.
const LONGEST_SPARING_TABLE: u32 = 56 + 65_535 * 8;

/// Bytes of a table of blocks: one of all blocks of a CD has 1.3 MB.
const LONGEST_TABLE: u64 = 16 << 20;
/// Bytes before the end of an image in which a table of blocks is looked for: it is the last that was written, but what
/// has read the disc may have added some.
const MOST_BEHIND: u64 = 32 << 20;

/// What a block in which nothing was written counts for, where a table of blocks is looked for.
const OF_NOTHING: u64 = 16;

/// What stands behind a table of UDF 1.50: its name, and where the one before it was.
const OLD_TABLE: &[u8] = b"*UDF Virtual Alloc Tbl";
const OLD_TABLE_END: u64 = 36;

/// Extents of a list of file sets.
const MOST_FILE_SETS: u32 = 64;

/// A file set: a tree of folders.
#[derive(Debug, Clone, Copy)]
struct FileSet {
    number: u32,
    root: Option<Place>,
}

/// An image whose volume is known.
#[derive(Debug)]
pub(super) struct Disc<'s> {
    pub(super) image: Image<'s>,
    pub(super) space: Space,
    pub(super) name: String,
    /// Byte at which the last partition ends.
    pub(super) end: u64,
    /// Where the entry of the root lies.
    pub(super) root: Place,
}

impl<'s> Disc<'s> {
    /// Opens the volume that an anchor leads to. What is damaged, and does not stand in the way, is `told`.
    pub(super) fn open(
        (source, cancel): (&'s dyn Source, &'s Cancel),
        anchor: Anchor,
        budget: &mut Budget,
        told: &mut Vec<(u64, String)>,
    ) -> io::Result<Self> {
        let mut image = Image::new(source, cancel);
        let volume = Volume::read(&mut image, anchor, budget, told)?;
        let (logical, name) = volume.logical().ok_or_else(|| missing("logical volume"))?;
        let byte = |sector: u64| sector.saturating_mul(anchor.sector);
        let ends = volume.partitions.values().map(|(_, start, length)| byte(start.saturating_add(*length)));
        let mut disc = Self {
            image,
            space: Space { block: logical.block, parts: Vec::new() },
            name: name.to_owned(),
            end: ends.max().unwrap_or_default(),
            root: Place::default(),
        };
        let mut has_sparable = false;
        // Those that stand on others come behind all that stand by themselves.
        for map in &logical.maps {
            let start = map.partition().map(|number| volume.partitions.get(&number).ok_or(number));
            let part = match (start, map) {
                (_, Map::Other(why)) => Part::Unreadable(why.clone()),
                (Some(Err(number)), _) => Part::Unreadable(format!("there is no descriptor of partition {number}")),
                // Each has long tables, and there is one.
                (_, Map::Sparable { .. }) if std::mem::replace(&mut has_sparable, true) => {
                    Part::Unreadable("there is more than one partition whose packets may lie elsewhere".to_owned())
                }
                (Some(Ok((_, start, _))), Map::Sparable { packet, tables, length, .. }) => {
                    disc.sparable((byte(*start), *packet), (tables, *length), anchor.sector, (budget, told))?
                }
                (Some(Ok((_, start, _))), Map::Plain { .. }) => Part::Plain { start: byte(*start) },
                _ => Part::Unreadable("it could not be read".to_owned()),
            };
            disc.space.parts.push(part);
        }
        let (mut has_metadata, mut has_virtual) = (false, false);
        for (number, map) in logical.maps.iter().enumerate() {
            let part = match map {
                // Each may have long lists, and there is one.
                Map::Metadata { .. } if std::mem::replace(&mut has_metadata, true) => {
                    Err(damaged("there is more than one partition of metadata"))
                }
                // Each is searched for.
                Map::Virtual { .. } if std::mem::replace(&mut has_virtual, true) => {
                    Err(damaged("there is more than one partition whose blocks a table places"))
                }
                Map::Virtual { .. } => disc.virtual_part(logical, map, budget),
                Map::Metadata { file, mirror, .. } => disc.metadata(logical, map, [*file, *mirror], budget, told),
                _ => continue,
            };
            let part = part.or_else(|error| {
                let is_damage = is_damage(&error);
                if is_damage { Ok(Part::Unreadable(error.to_string())) } else { Err(error) }
            })?;
            if let Some(place) = disc.space.parts.get_mut(number) {
                *place = part;
            }
        }
        if let Some(Map::Other(why)) = logical.maps.get(usize::from(logical.file_set.partition)) {
            let what = format!("the partition of its root: {why}");
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        disc.root = disc.file_set(logical.file_set, budget)?;
        Ok(disc)
    }

    /// A partition of which some packets lie elsewhere (UDF 2.2.9 and 2.2.11).
    fn sparable(
        &mut self,
        (start, packet): (u64, u32),
        (tables, length): (&[u32], u32),
        sector: u64,
        (budget, told): (&mut Budget, &mut Vec<(u64, String)>),
    ) -> io::Result<Part> {
        if packet == 0 {
            return Ok(Part::Unreadable("its packets have no length".to_owned()));
        }
        let mut found: Option<(u32, BTreeMap<u32, u64>)> = None;
        for &at in tables {
            let byte = u64::from(at).saturating_mul(sector);
            let length = length.min(LONGEST_SPARING_TABLE);
            // Each anchor may lead to it again.
            if let Err(error) = budget.take_bytes(length.into()) {
                return Ok(Part::Unreadable(error.to_string()));
            }
            let mut bytes = Vec::new();
            while (bytes.len() as u64) < u64::from(length) {
                let read = bytes.len() as u64;
                let part = u64::from(length).saturating_sub(read).min(LARGEST_BLOCK);
                match self.image.show(byte.saturating_add(read), part) {
                    Ok([]) => break,
                    Ok(part) => bytes.extend_from_slice(part),
                    Err(error) if is_damage(&error) => break,
                    Err(error) => return Err(error),
                }
            }
            let is_one = tag::read(&bytes).is_ok_and(|tag| tag.kind == 0 && tag.location == at)
                && identifier(&bytes, 16) == b"*UDF Sparing Table";
            let numbers = (|| Some((u16_at(&bytes, 48)?, u32_at(&bytes, 52)?)))();
            let Some((count, sequence)) = numbers.filter(|_| is_one) else {
                told.push((byte, "a table of packets that lie elsewhere: it is damaged".to_owned()));
                continue;
            };
            if found.as_ref().is_some_and(|(newest, _)| *newest >= sequence) {
                continue;
            }
            let (pairs, _) = bytes.get(56..).unwrap_or_default().as_chunks::<8>();
            let pairs = pairs.iter().take(count.into()).filter_map(|pair| Some((u32_at(pair, 0)?, u32_at(pair, 4)?)));
            // The last numbers are of packets that are free, or broken themselves.
            let used = pairs.filter(|(original, _)| *original < 0xffff_fff0);
            let spared = used.map(|(original, at)| (original, u64::from(at).saturating_mul(sector))).collect();
            found = Some((sequence, spared));
        }
        Ok(match found {
            Some((_, spared)) => Part::Sparable { start, packet, spared },
            None => Part::Unreadable("none of its tables of packets that lie elsewhere can be read".to_owned()),
        })
    }

    /// A partition whose blocks a table places (UDF 2.2.8 and 2.2.11, 2.2.10 of 1.50): the last file on the disc.
    fn virtual_part(&mut self, logical: &Logical, map: &Map, budget: &mut Budget) -> io::Result<Part> {
        let below = below(logical, map)?;
        let Some(Part::Plain { start }) = self.space.parts.get(below) else {
            return Err(damaged("it stands on a partition of another kind"));
        };
        let (start, block) = (*start, self.space.block);
        let partition = u16::try_from(below).map_err(|_| damaged("there are too many partitions"))?;
        let last = if block == 0 { 0 } else { self.image.length.saturating_sub(start).div_ceil(block) };
        let first = last.saturating_sub(MOST_BEHIND.checked_div(block).unwrap_or_default());
        let mut number = last;
        while number > first {
            number = number.saturating_sub(1);
            let at = start.saturating_add(number.saturating_mul(block));
            let Ok(location) = u32::try_from(number) else { continue };
            // Whoever has padded the image had better not pay for that.
            let is_nothing = self.image.block_before((at, block))?.iter().take(tag::LENGTH).all(|byte| *byte == 0);
            if is_nothing {
                budget.take_bytes(OF_NOTHING)?;
                continue;
            }
            let kinds = [tag::FILE, tag::EXTENDED_FILE];
            let before = budget.bytes;
            let found = self.image.descriptor((at, block), &kinds, location, budget);
            // It was read whole.
            budget.take_bytes(block.saturating_sub(before.saturating_sub(budget.bytes)))?;
            let (found, bytes) = match found {
                Ok(found) => found,
                Err(error) if is_damage(&error) => continue,
                Err(error) => return Err(error),
            };
            let place = Place { partition, block: location };
            let Some(entry) = FileEntry::parse(&bytes, found.kind, (place, at)) else { continue };
            if let Some(table) = self.table(&entry, budget)? {
                return Ok(Part::Virtual { below, table });
            }
        }
        Err(damaged("the table of its blocks is not at the end of the image, which may be cut"))
    }

    /// The table in a file, if it is one.
    fn table(&mut self, entry: &FileEntry, budget: &mut Budget) -> io::Result<Option<Vec<u32>>> {
        if !matches!(entry.kind, kind::TABLE | kind::UNSPECIFIED) || entry.length > LONGEST_TABLE {
            return Ok(None);
        }
        let content = match self.content(entry, budget) {
            Ok(content) => content,
            Err(error) if is_damage(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        // A hole takes no room in an image.
        if content.missing.is_some() || content.size > self.image.length {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        if entry.kind == kind::UNSPECIFIED {
            // Any file may be one, so this is looked at first.
            let Some(end) = content.size.checked_sub(OLD_TABLE_END) else { return Ok(None) };
            budget.take_bytes(OLD_TABLE_END)?;
            content.read(self.image.content(), end, OLD_TABLE_END, &mut bytes)?;
            if identifier(&bytes, 0) != OLD_TABLE {
                return Ok(None);
            }
            bytes.clear();
        }
        budget.take_bytes(content.size)?;
        content.read(self.image.content(), 0, content.size, &mut bytes)?;
        let numbers = if entry.kind == kind::TABLE {
            u16_at(&bytes, 0).and_then(|head| bytes.get(head.into()..))
        } else {
            let end = bytes.len().checked_sub(OLD_TABLE_END as usize);
            end.and_then(|end| bytes.get(..end))
        };
        let chunks = numbers.map(|numbers| numbers.as_chunks().0);
        Ok(chunks.map(|chunks| chunks.iter().map(|chunk| u32::from_le_bytes(*chunk)).collect()))
    }

    /// A partition that is the content of a file (UDF 2.2.10 and 2.2.13), of which there may be a copy.
    fn metadata(
        &mut self,
        logical: &Logical,
        map: &Map,
        files: [u32; 2],
        budget: &mut Budget,
        told: &mut Vec<(u64, String)>,
    ) -> io::Result<Part> {
        let below = below(logical, map)?;
        let partition = u16::try_from(below).map_err(|_| damaged("there are too many partitions"))?;
        let mut copies = Vec::new();
        for block in files {
            let place = Place { partition, block };
            let runs = self.entry(place, budget).and_then(|entry| self.runs(&entry, budget));
            match runs {
                Ok(runs) => copies.push(runs),
                Err(error) if is_damage(&error) => {
                    let at = self.space.find(place, 0).map_or(0, |(at, _)| at.min(self.image.length));
                    told.push((at, format!("the metadata of partition {partition}: {error}")));
                }
                Err(error) => return Err(error),
            }
        }
        if copies.is_empty() {
            return Err(damaged("neither its file of metadata nor the copy of that can be read"));
        }
        copies.dedup();
        Ok(Part::Metadata { below, copies })
    }

    /// Blocks of a file of metadata.
    fn runs(&mut self, entry: &FileEntry, budget: &mut Budget) -> io::Result<Vec<Run>> {
        let (mut runs, mut first, block) = (Vec::new(), 0_u64, self.space.block);
        self.extents(entry, budget, |kind, length, place| {
            if place.partition != entry.place.partition {
                return Err(damaged("it lies in another partition"));
            }
            let count = length.div_ceil(block);
            runs.push(Run { first, count, at: (kind == Allocation::Recorded).then_some(place.block) });
            first = first.saturating_add(count);
            Ok(())
        })?;
        Ok(runs)
    }

    /// The root of the newest file set (ECMA-167, 4/8.3.1 and 4/14.1).
    fn file_set(&mut self, place: Place, budget: &mut Budget) -> io::Result<Place> {
        let (mut found, mut next, mut first) = (None::<FileSet>, Some(place), None);
        for _ in 0..MOST_FILE_SETS {
            let Some(place) = next.take() else { break };
            let (_, bytes) = match self.descriptor(place, &[tag::FILE_SET, tag::TERMINATOR], budget) {
                Ok((_, Tag { kind: tag::TERMINATOR, .. }, _)) => break,
                Ok((_, tag, bytes)) => (tag, bytes),
                // Behind the first one there may be nothing.
                Err(error) if is_damage(&error) => {
                    first.get_or_insert(error);
                    break;
                }
                Err(error) => return Err(error),
            };
            let lies = |at: usize| long_place(&bytes, at).filter(|(length, _)| length << 2 != 0);
            let set =
                FileSet { number: u32_at(&bytes, 44).unwrap_or_default(), root: lies(400).map(|(_, place)| place) };
            if found.is_none_or(|known| set.number > known.number) {
                found = Some(set);
            }
            let behind = place.block.checked_add(1).map(|block| Place { block, ..place });
            next = lies(448).map(|(_, place)| place).or(behind);
        }
        match (found, first) {
            (Some(set), _) => set.root.ok_or_else(|| missing("root in its file set")),
            (None, Some(error)) => Err(damaged(format!("the file set: {error}"))),
            (None, None) => Err(missing("file set")),
        }
    }

    /// The descriptor in a block, and where that lies; of a copy if the first one is damaged.
    fn descriptor(&mut self, place: Place, kinds: &[u16], budget: &mut Budget) -> io::Result<(u64, Tag, Vec<u8>)> {
        let mut first = None;
        for copy in 0..self.space.copies(place.partition) {
            let found = self.space.find(place, copy).and_then(|(at, _)| {
                let (tag, bytes) = self.image.descriptor((at, self.space.block), kinds, place.block, budget)?;
                Ok((at, tag, bytes))
            });
            match found {
                Err(error) if is_damage(&error) => {
                    first.get_or_insert(error);
                }
                found => return found,
            }
        }
        Err(first.unwrap_or_else(|| missing("block")))
    }

    /// The entry at `place`, or the one that has replaced it (ECMA-167, 4/8.10; UDF 6.6).
    pub(super) fn entry(&mut self, mut place: Place, budget: &mut Budget) -> io::Result<FileEntry> {
        // Entries that lead to each other; where nothing was replaced, that takes no memory.
        let mut passed = HashSet::new();
        for _ in 0..MOST_REPLACED {
            let kinds = [tag::FILE, tag::EXTENDED_FILE, tag::INDIRECT];
            let (at, tag, bytes) = self.descriptor(place, &kinds, budget)?;
            let newer = if tag.kind == tag::INDIRECT {
                other(&bytes).ok_or_else(|| damaged("its entry leads nowhere"))?
            } else {
                let entry = FileEntry::parse(&bytes, tag.kind, (place, at));
                let entry = entry.ok_or_else(|| damaged("its entry has lengths that cannot be"))?;
                match entry.strategy {
                    4096 => {}
                    // Without a strategy it is not replaced.
                    0 | 4 => return Ok(entry),
                    other => return Err(damaged(format!("its entry is replaced in a way that UDF has not ({other})"))),
                }
                let behind = place.block.checked_add(1).map(|block| Place { block, ..place });
                let newer = match behind.map(|behind| self.descriptor(behind, &[tag::INDIRECT], budget)) {
                    Some(Ok((_, _, bytes))) => other(&bytes),
                    Some(Err(error)) if !is_damage(&error) => return Err(error),
                    // It was not replaced.
                    _ => None,
                };
                let Some(newer) = newer else { return Ok(entry) };
                newer
            };
            // Each step may read a block elsewhere, and any number of names may begin with the same ones.
            budget.take_bytes(self.space.block)?;
            if !passed.insert(at) {
                return Err(damaged("its entry was replaced by itself"));
            }
            place = newer;
        }
        Err(damaged(format!("its entry was replaced more than {MOST_REPLACED} times")))
    }

    /// The bytes `range` of the block of an entry.
    pub(super) fn inside(&mut self, entry: &FileEntry, range: std::ops::Range<usize>) -> io::Result<Vec<u8>> {
        let bytes = self.image.show(entry.at, self.space.block)?;
        bytes.get(range).map(<[u8]>::to_vec).ok_or_else(|| damaged("its entry is cut"))
    }

    /// Hands all extents of a file to `take`.
    fn extents(
        &mut self,
        entry: &FileEntry,
        budget: &mut Budget,
        mut take: impl FnMut(Allocation, u64, Place) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut bytes = self.inside(entry, entry.allocation.clone())?;
        let (mut passed, mut count) = (HashSet::new(), 0_usize);
        loop {
            let mut next = None;
            for extent in extents(&bytes, entry.form, entry.place.partition) {
                let extent = extent?;
                budget.take_parts(1)?;
                count = count.saturating_add(1);
                if count > MOST_EXTENTS {
                    return Err(damaged(format!("it lies in more than {MOST_EXTENTS} parts")));
                }
                if extent.kind == Allocation::Next {
                    next = Some(extent.place);
                    break;
                }
                take(extent.kind, extent.length, extent.place)?;
            }
            let Some(place) = next else { return Ok(()) };
            budget.take_parts(PER_BLOCK)?;
            let (at, _, found) = self.descriptor(place, &[tag::ALLOCATION], budget)?;
            if !passed.insert(at) {
                return Err(damaged("the list of its parts has no end"));
            }
            let length = u32_at(&found, 20).unwrap_or_default() as usize;
            bytes = found.get(24..).and_then(|rest| rest.get(..length)).map(<[u8]>::to_vec).unwrap_or_default();
        }
    }

    /// The content of a file.
    pub(super) fn content(&mut self, entry: &FileEntry, budget: &mut Budget) -> io::Result<Content> {
        let there = self.image.length;
        let mut content = Content::new(entry.length);
        if entry.form == Form::Inside {
            let start = entry.at.saturating_add(entry.allocation.start as u64);
            content.add(start, entry.allocation.len() as u64, there);
        } else {
            let mut found = Vec::new();
            let read = self.extents(entry, budget, |kind, length, place| {
                found.push((kind, length, place));
                Ok(())
            });
            for (kind, length, place) in found {
                if kind == Allocation::Recorded {
                    self.add_extent(&mut content, length, place, budget);
                } else {
                    content.add_hole(length);
                }
            }
            match read {
                Ok(()) => {}
                Err(error) if is_damage(&error) => content.add_missing(entry.at, content.left(), error.to_string()),
                Err(error) => return Err(error),
            }
        }
        content.add_missing(entry.at, content.left(), "it is longer than its parts");
        Ok(content)
    }

    fn add_extent(&self, content: &mut Content, length: u64, mut place: Place, budget: &mut Budget) {
        let (block, mut left) = (self.space.block, length.min(content.left()));
        while left > 0 {
            // In some partitions each block may lie elsewhere.
            let is_full = content.pieces.len() >= MOST_EXTENTS;
            let found = budget.take_parts(1).and_then(|()| self.space.find(place, 0)).and_then(|found| {
                if is_full { Err(damaged(format!("it lies in more than {MOST_EXTENTS} parts"))) } else { Ok(found) }
            });
            let (at, count) = match found {
                Ok(found) => found,
                Err(error) => return content.add_missing(0, left, error.to_string()),
            };
            let part = left.min(count.max(1).saturating_mul(block));
            content.add(at, part, self.image.length);
            left = left.saturating_sub(part);
            let passed = u32::try_from(part.div_ceil(block)).unwrap_or(u32::MAX);
            match place.block.checked_add(passed) {
                Some(block) => place.block = block,
                None => return content.add_missing(0, left, "it lies where nothing can"),
            }
        }
    }
}

/// Where an indirect entry leads (ECMA-167, 4/14.7).
fn other(bytes: &[u8]) -> Option<Place> {
    long_place(bytes, 36).filter(|(length, _)| length << 2 != 0).map(|(_, place)| place)
}

/// The number of the map of the same partition that stands by itself.
fn below(logical: &Logical, map: &Map) -> io::Result<usize> {
    let stands = |map: &Map| matches!(map, Map::Plain { .. } | Map::Sparable { .. });
    let is_same = |other: &Map| stands(other) && other.partition() == map.partition();
    logical.maps.iter().position(is_same).ok_or_else(|| damaged("it stands on a partition that is not there"))
}
