//! What FAT and exFAT have in common: content in chains of clusters, and a tree of folders without owners.

use std::char::{REPLACEMENT_CHARACTER, decode_utf16};
use std::collections::HashSet;
use std::io;

use tarnfs_source::{Cancel, Source};

use crate::boot::{FILE_MODE, FOLDER_MODE};
use crate::content::Content;
use crate::image::{Budget, Quota, Teller, damaged, data_of, is_damage, shown};
use crate::little::{u16_at, u32_at};
use crate::name::excerpt;
use crate::pages::{OF_PAGE, Pages};
use crate::window::Window;
use crate::{Body, Entry, Error, Event, Kind, Options, ReceiveRandom, Time, Unlisted};

/// Permission bits of a file that may not be written to.
const READ_ONLY_MODE: u32 = 0o444;

/// Bytes of a record in a folder.
pub(crate) const RECORD: usize = 32;

/// The first cluster that there is.
const FIRST: u32 = 2;

/// Parts of one file: 100 MiB of memory.
const MOST_PARTS: usize = 1 << 20;

/// What following one link of a chain counts for, in bytes.
const OF_LINK: u64 = 8;

const RING: &str = "its chain of clusters has no end";
const TOO_LONG: &str = "the chains of the image are too long";

/// Bytes of memory for folders. A record of 32 bytes takes some 150 while its folder is open. Several small images may
/// be read beside each other, and chains may share what they have: one of 3 MB had 260 MB of names.
const MEMORY: Quota = Quota { most: 256 << 20, least: 1 << 20, of_small: 5 };
/// Of it, for each beside the names in it.
const PER_FOLDER: usize = 16;

/// Bytes of the budget that a name counts for beside its path. Chains of any number of folders may lead into one
/// listing: one of 2 MB had 9 million names. On a damaged disk some do, and what is there had better be shown.
const OF_NAME: usize = 512;

/// How many bits the number of a cluster has in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    Twelve,
    Sixteen,
    /// Of which four say something else.
    TwentyEight,
    ThirtyTwo,
}

/// Where clusters lie, and the table that chains them.
#[derive(Debug, Clone)]
pub(crate) struct Clusters {
    pub(crate) width: Width,
    /// Byte at which the table begins.
    pub(crate) table: u64,
    /// Byte at which the first cluster begins, bytes of a cluster, and how many there are.
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) count: u32,
}

/// What the table says of what follows a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Cluster(u32),
    End,
    /// Free, bad, or a number that there is not.
    Nothing,
}

impl Clusters {
    /// True if there is a cluster of that number.
    pub(crate) fn has(&self, cluster: u32) -> bool {
        cluster.checked_sub(FIRST).is_some_and(|index| index < self.count)
    }

    /// The byte at which a cluster begins.
    pub(crate) fn byte(&self, cluster: u32) -> u64 {
        let index = u64::from(cluster.saturating_sub(FIRST));
        self.start.saturating_add(index.saturating_mul(self.length))
    }

    fn next(&self, table: &mut Pages<'_>, cluster: u32, budget: &mut Budget) -> io::Result<Next> {
        let number = u64::from(cluster);
        let (at, length) = match self.width {
            Width::Twelve => (number.saturating_add(number / 2), 2),
            Width::Sixteen => (number.saturating_mul(2), 2),
            Width::TwentyEight | Width::ThirtyTwo => (number.saturating_mul(4), 4),
        };
        let bytes = table.bytes(self.table.saturating_add(at), length, budget)?;
        let stored = if length == 2 { u16_at(bytes, 0).map(u32::from) } else { u32_at(bytes, 0) };
        let stored = stored.ok_or(io::ErrorKind::UnexpectedEof)?;
        let (next, last) = match self.width {
            Width::Twelve => (if number % 2 == 0 { stored & 0xfff } else { stored >> 4 }, 0xff8),
            Width::Sixteen => (stored, 0xfff8),
            Width::TwentyEight => (stored & 0x0fff_ffff, 0x0fff_fff8),
            Width::ThirtyTwo => (stored, 0xffff_fff8),
        };
        Ok(if next >= last {
            Next::End
        } else if self.has(next) {
            Next::Cluster(next)
        } else {
            Next::Nothing
        })
    }

    /// What begins in cluster `first` and has `length` bytes; at most so many where its chain ends it. What lies in one
    /// run needs no chain.
    fn content(
        &self,
        table: &mut Pages<'_>,
        there: u64,
        (first, length, ends, is_run): (u32, u64, Ends, bool),
        budget: &mut Budget,
    ) -> io::Result<Content> {
        let mut content = Content::new(length);
        if length == 0 {
            return Ok(content);
        }
        if !self.has(first) {
            content.add_missing(self.start.min(there), length, format!("its first cluster would be {first}"));
            return Ok(content);
        }
        if is_run {
            let left = u64::from(self.count.saturating_sub(first.saturating_sub(FIRST))).saturating_mul(self.length);
            content.add(self.byte(first), length.min(left), there);
            content.add_missing(self.start.min(there), content.left(), "it ends behind the last cluster");
            return Ok(content);
        }
        // A chain that comes to where it was has no end. Where it was is noted after twice as many steps each time: a
        // ring of two clusters would have as many parts as the boot sector says that there are clusters.
        let (mut cluster, mut passed, mut noted) = (first, 0_u32, first);
        let why = loop {
            content.add(self.byte(cluster), self.length, there);
            passed = passed.saturating_add(1);
            if content.left() == 0 {
                break None;
            }
            if content.pieces.len() > MOST_PARTS || passed > self.count {
                break Some(RING);
            }
            // It will be refused: any number of files may have this chain.
            if content.pieces.len() as u64 > budget.parts {
                break Some("the files of the image lie in too many parts");
            }
            if budget.take_bytes(OF_LINK).is_err() {
                break Some(TOO_LONG);
            }
            match self.next(table, cluster, budget) {
                Ok(Next::Cluster(next)) if next == noted => break Some(RING),
                Ok(Next::Cluster(next)) => {
                    cluster = next;
                    if passed.is_power_of_two() {
                        noted = next;
                    }
                }
                Ok(Next::End) if ends == Ends::WithChain => {
                    content.size = content.end();
                    break None;
                }
                Ok(Next::End) => break Some("its chain of clusters is too short"),
                Ok(Next::Nothing) => break Some("its chain of clusters is broken"),
                Err(error) if is_damage(&error) && budget.bytes < OF_PAGE => break Some(TOO_LONG),
                Err(error) if is_damage(&error) => break Some("its chain of clusters is lost"),
                Err(error) => return Err(error),
            }
        };
        if let Some(why) = why {
            if content.pieces.len() > MOST_PARTS {
                content = Content::new(length);
            }
            if ends == Ends::WithChain {
                content.size = content.end();
                content.missing = Some(why.to_owned());
            } else {
                content.add_missing(self.start.min(there), content.left(), why);
            }
        }
        match budget.take_parts(content.pieces.len() as u64) {
            Ok(()) => Ok(content),
            Err(error) => {
                let mut content = Content::new(length);
                content.add_missing(self.start.min(there), length, error.to_string());
                Ok(content)
            }
        }
    }
}

/// What says how long something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    WithLength,
    WithChain,
}

/// Some of a listing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'p> {
    pub(crate) bytes: &'p [u8],
    /// The place of these in the listing.
    pub(crate) at: usize,
    pub(crate) is_last: bool,
}

/// What a folder has under one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) name: Vec<u8>,
    /// Of its record, the place in the listing.
    pub(crate) at: usize,
    pub(crate) is_folder: bool,
    pub(crate) is_read_only: bool,
    pub(crate) mtime: Option<Time>,
    pub(crate) atime: Option<Time>,
    pub(crate) first: u32,
    pub(crate) size: u64,
    /// Bytes that were written; what is behind them reads as zeros.
    pub(crate) written: u64,
    /// True if its clusters follow each other, and no chain says so.
    pub(crate) is_run: bool,
}

/// What a listing has beside names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) found: Vec<Found>,
    /// The name of the whole.
    pub(crate) label: Option<Vec<u8>>,
    /// What is wrong, and the place in the listing.
    pub(crate) damage: Vec<(usize, String)>,
    /// Nothing behind it is read.
    pub(crate) is_done: bool,
    /// Bytes of all names.
    names: usize,
    /// Bytes of memory that there are for these and for what is found.
    room: usize,
}

impl Listed {
    pub(crate) fn with_room(room: usize) -> Self {
        Self { room, ..Self::default() }
    }

    /// Adds what was found; if it is too much, that is told, and nothing behind it is read.
    pub(crate) fn add(&mut self, found: Found) {
        let (at, length) = (found.at, found.name.capacity());
        if self.found.len() == self.found.capacity() {
            // Not twice as many: what is not used counts, too.
            self.found.reserve_exact((self.found.len() / 4).max(4));
        }
        self.found.push(found);
        self.names = self.names.saturating_add(length);
        if self.memory() > self.room {
            self.found.pop();
            self.names = self.names.saturating_sub(length);
            self.end(at, "it has too many names: the rest is left out");
        }
    }

    /// Tells why nothing is read from a place on.
    pub(crate) fn end(&mut self, at: usize, why: &str) {
        self.damage.push((at, why.to_owned()));
        self.is_done = true;
    }

    fn memory(&self) -> usize {
        self.found.capacity().saturating_mul(size_of::<Found>()).saturating_add(self.names)
    }
}

/// Where the listing of the root lies.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Root {
    /// At a byte, so many bytes.
    At(u64, u64),
    Cluster(u32),
}

/// How one of these file systems stores what a folder has.
pub(crate) trait Listings {
    /// Its name as a format.
    const NAME: &'static str;
    /// Bytes that a listing has at most.
    const LONGEST: u64;
    /// What says where the listing of a folder ends.
    const ENDS: Ends;

    fn clusters(&self) -> &Clusters;

    fn root(&self) -> Root;

    /// Bytes of a listing that are read at once.
    const AT_ONCE: u64;

    /// Adds what is in some of a listing. Returns how many bytes of these that was: others come again, with what is
    /// behind them.
    fn list(&self, part: Part<'_>, listed: &mut Listed, budget: &mut Budget) -> usize;
}

/// A folder whose names are being told.
struct Open {
    found: std::vec::IntoIter<Found>,
    content: Content,
    /// Bytes of the path of the folder that it is in.
    path: usize,
    memory: usize,
}

/// One pass over one image.
pub(crate) struct Reader<'run, L> {
    layout: L,
    there: u64,
    options: &'run Options,
    teller: Teller<'run>,
    table: Pages<'run>,
    listings: Window<'run>,
    /// The first clusters of folders that were told.
    folders: HashSet<u32>,
    /// Bytes that open folders take, and may.
    memory: usize,
    most_memory: usize,
    budget: Budget,
}

impl<'run, L: Listings> Reader<'run, L> {
    pub(crate) fn new(
        source: &'run dyn Source,
        layout: L,
        options: &'run Options,
        receive: &'run mut ReceiveRandom<'run>,
    ) -> Self {
        let data = data_of(source);
        Self {
            layout,
            there: source.len(),
            options,
            teller: Teller::new(receive),
            table: Pages::new(source).until(&options.cancel),
            listings: Window::growing(source),
            folders: HashSet::new(),
            memory: 0,
            // Images on one disk are read one after the other.
            most_memory: usize::try_from(MEMORY.of(data, 1)).unwrap_or(usize::MAX),
            budget: Budget::in_clusters(data, options.shares),
        }
    }

    /// Tells all that is in the image.
    pub(crate) fn run(mut self) -> Result<(), Error> {
        let (content, header) = match self.layout.root() {
            Root::At(at, length) => {
                let mut content = Content::new(length);
                content.add(at, length, self.there);
                (content, at)
            }
            Root::Cluster(first) => {
                self.folders.insert(first);
                let content = self.content((first, L::LONGEST, Ends::WithChain, false))?;
                (content, self.layout.clusters().byte(first))
            }
        };
        if content.size > 0 && content.pieces.first().is_none_or(|piece| piece.coder.is_some()) {
            let reason = "its root cannot be read: it lies behind the end of the image".to_owned();
            return Err(Error::Unreadable { format: L::NAME, reason });
        }
        self.teller.entry(entry(b".", Kind::Folder, FOLDER_MODE, header.min(self.there)))?;
        let mut path = Vec::new();
        let mut open: Vec<Open> = self.folder(content, &path)?.into_iter().collect();
        while let Some(folder) = open.last_mut() {
            let Some(found) = folder.found.next() else {
                path.truncate(folder.path);
                self.memory = self.memory.saturating_sub(folder.memory);
                open.pop();
                continue;
            };
            self.options.cancel.check().map_err(|error| Error::Read { offset: 0, error })?;
            let header =
                folder.content.at(found.at as u64).map_or(0, |(piece, inside)| piece.offset.saturating_add(inside));
            let before = path.len();
            if before > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(&found.name);
            let below = self.named(&found, header, &path, open.len())?;
            match below {
                Some(below) => open.push(Open { path: before, ..below }),
                None => path.truncate(before),
            }
        }
        Ok(())
    }

    fn content(&mut self, place: (u32, u64, Ends, bool)) -> Result<Content, Error> {
        let clusters = self.layout.clusters();
        let content = clusters.content(&mut self.table, self.there, place, &mut self.budget);
        content.map_err(|error| Error::Read { offset: clusters.table, error })
    }

    /// Reads the listing of a folder.
    fn folder(&mut self, content: Content, path: &[u8]) -> Result<Option<Open>, Error> {
        let at = content.pieces.first().map_or(0, |piece| piece.offset);
        if let Some(why) = &content.missing {
            self.teller.damage(at, format!("{}: some of its names are lost: {why}", shown(path)))?;
        }
        let length = content.pieces.iter().take_while(|piece| piece.coder.is_none() && piece.hole == 0);
        let length = length.map(|piece| piece.length).sum::<u64>();
        let parts = content.pieces.len().saturating_mul(size_of::<crate::Piece>().saturating_add(8));
        let used = self.memory.saturating_add(parts);
        if used > self.most_memory {
            self.teller.damage(at, format!("{}: what is in it is left out: it is too much", shown(path)))?;
            return Ok(None);
        }
        let mut listed = Listed::with_room(self.most_memory.saturating_sub(used));
        let (mut bytes, mut next) = (Vec::new(), 0_u64);
        while next < length && !listed.is_done {
            self.options.cancel.check().map_err(|error| Error::Read { offset: at, error })?;
            let left = length.saturating_sub(next);
            let part = left.min(L::AT_ONCE);
            bytes.clear();
            let read =
                self.budget.take_bytes(part).and_then(|()| content.read(&mut self.listings, next, part, &mut bytes));
            let is_last = part == left || read.is_err();
            match read {
                Err(error) if is_damage(&error) => {
                    self.teller.damage(at, format!("{}: some of its names are lost: {error}", shown(path)))?;
                }
                read => read.map_err(|error| Error::Read { offset: at, error })?,
            }
            let part = Part { bytes: &bytes, at: usize::try_from(next).unwrap_or(usize::MAX), is_last };
            let taken = self.layout.list(part, &mut listed, &mut self.budget);
            next = next.saturating_add(taken as u64);
            if is_last || taken == 0 {
                break;
            }
        }
        drop(bytes);
        let memory = listed.memory().saturating_add(parts);
        for (place, what) in listed.damage {
            let at = content.at(place as u64).map_or(at, |(piece, inside)| piece.offset.saturating_add(inside));
            self.teller.damage(at, format!("{}: {what}", shown(path)))?;
        }
        if let Some(label) = listed.label.filter(|label| path.is_empty() && !label.is_empty()) {
            self.teller.event(Event::Label(label))?;
        }
        self.memory = self.memory.saturating_add(memory);
        Ok(Some(Open { found: listed.found.into_iter(), content, path: 0, memory }))
    }

    /// Tells what has a name. Returns the listing of a folder.
    fn named(&mut self, found: &Found, header: u64, path: &[u8], depth: usize) -> Result<Option<Open>, Error> {
        let limits = &self.options.limits;
        let paid = self.budget.take_bytes(path.len().saturating_add(OF_NAME) as u64);
        let is_short = || if path.len() > limits.path { Err(damaged("its path is too long")) } else { Ok(()) };
        if let Err(why) = paid.and_then(|()| is_short()) {
            self.teller.damage(header, format!("{} is left out: {why}", excerpt(path)))?;
            return Ok(None);
        }
        let mut told = entry(path, Kind::File, if found.is_read_only { READ_ONLY_MODE } else { FILE_MODE }, header);
        (told.mtime, told.atime) = (found.mtime.unwrap_or_default(), found.atime);
        if !found.is_folder {
            let content = self.content((found.first, found.written.min(found.size), Ends::WithLength, found.is_run))?;
            if let Some(why) = content.missing {
                self.teller.damage(header, format!("{} cannot be read whole: {why}", excerpt(path)))?;
            }
            if i64::try_from(found.size).is_ok() {
                told.body.size = found.size;
                told.body.pieces = (found.size > 0).then_some(content.pieces);
            } else {
                self.teller.damage(header, format!("{} would have {} bytes", excerpt(path), found.size))?;
            }
            self.teller.entry(told)?;
            return Ok(None);
        }
        let is_empty = found.first == 0;
        let wrong = if depth >= limits.path_components || path.len().saturating_add(limits.name) >= limits.path {
            Some("what is in it is left out: it is too deep")
        } else if !is_empty && !self.folders.insert(found.first) {
            Some("it is left out: it is another folder, too")
        } else if self.memory.saturating_add(PER_FOLDER) > self.most_memory {
            Some("it is left out: there are too many folders")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            self.teller.damage(header, format!("{}: {wrong}", excerpt(path)))?;
            return Ok(None);
        }
        (told.kind, told.mode) = (Kind::Folder, FOLDER_MODE);
        self.teller.entry(told)?;
        if is_empty {
            return Ok(None);
        }
        self.memory = self.memory.saturating_add(PER_FOLDER);
        let length = if L::ENDS == Ends::WithChain { L::LONGEST } else { found.size.min(L::LONGEST) };
        let content = self.content((found.first, length, L::ENDS, found.is_run))?;
        self.folder(content, path)
    }
}

/// An entry that has no more than that.
fn entry(path: &[u8], kind: Kind, mode: u32, header: u64) -> Entry {
    let body = Body { offset: header, ..Body::default() };
    Entry { path: path.to_vec(), kind, mode, header, body, ..Entry::default() }
}

/// A name as Linux can have it, of one in UTF-16; `None` if it is none.
pub(crate) fn name_of(units: impl Iterator<Item = u16>) -> Option<Vec<u8>> {
    let is_none = |one: char| matches!(one, '/' | '\0');
    let characters = decode_utf16(units).map(|one| one.unwrap_or(REPLACEMENT_CHARACTER));
    let name: String = characters.map(|one| if is_none(one) { '_' } else { one }).collect();
    (!matches!(&name[..], "" | "." | "..")).then(|| name.into_bytes())
}

/// The error of a boot sector that is none.
pub(crate) fn no_boot_sector(format: &'static str) -> Error {
    Error::NotThisFormat { format, reason: "there is no boot sector".to_owned() }
}

/// What no entry of an image shows that takes `length` bytes of `source`; `None` if its boot sector is none.
pub(crate) fn unlisted(source: &dyn Source, length: Option<u64>, cancel: &Cancel) -> io::Result<Unlisted> {
    let Some(length) = length else { return Ok(Unlisted::unknown()) };
    let mut others = vec!["its boot sector, and which files are hidden or of the system".to_owned()];
    others.extend(crate::around(source, 0..length, cancel)?);
    Ok(Unlisted::of(others))
}

/// The first bytes of an image.
pub(crate) fn start_of(source: &dyn Source, length: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; length];
    let read = source.read_at(&mut bytes, 0).map_err(|error| Error::Read { offset: 0, error })?;
    bytes.truncate(read);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarnfs_source::MemorySource;

    fn next(width: Width, table: &[u8], cluster: u32) -> Next {
        let clusters = Clusters { width, table: 0, start: 0, length: 512, count: 100 };
        let source = MemorySource::new(table, "table");
        clusters.next(&mut Pages::new(&source), cluster, &mut Budget::new(0, 1)).unwrap()
    }

    #[test]
    fn numbers_of_clusters_have_twelve_to_thirty_two_bits() {
        // Clusters 2 and 3 are followed by 3 and the end, 4 by nothing.
        let twelve = [0xf8, 0xff, 0xff, 3, 0xf0, 0xff, 0, 0, 0];
        assert_eq!(
            (2..=4).map(|cluster| next(Width::Twelve, &twelve, cluster)).collect::<Vec<_>>(),
            [Next::Cluster(3), Next::End, Next::Nothing]
        );
        let sixteen: Vec<u8> =
            [0xfff8_u16, 0xffff, 3, 0xfff8, 0xfff7].iter().flat_map(|one| one.to_le_bytes()).collect();
        assert_eq!(
            (2..=4).map(|cluster| next(Width::Sixteen, &sixteen, cluster)).collect::<Vec<_>>(),
            [Next::Cluster(3), Next::End, Next::Nothing]
        );
        let wide: Vec<u8> =
            [0_u32, 0, 0xf000_0003, 0x0fff_fff8, 0x0fff_fff7].iter().flat_map(|one| one.to_le_bytes()).collect();
        assert_eq!(
            (2..=4).map(|cluster| next(Width::TwentyEight, &wide, cluster)).collect::<Vec<_>>(),
            [Next::Cluster(3), Next::End, Next::Nothing]
        );
        assert_eq!(next(Width::ThirtyTwo, &wide, 2), Next::Nothing);
    }

    #[test]
    fn a_chain_that_is_a_ring_comes_to_an_end() {
        let table: Vec<u8> = [0_u32, 0, 3, 2].iter().flat_map(|one| one.to_le_bytes()).collect();
        let clusters = Clusters { width: Width::ThirtyTwo, table: 0, start: 0, length: 512, count: 2 };
        let source = MemorySource::new(&table[..], "table");
        let mut budget = Budget::new(0, 1);
        let place = (2, 1 << 30, Ends::WithLength, false);
        let content = clusters.content(&mut Pages::new(&source), 1 << 20, place, &mut budget).unwrap();
        assert!(content.missing.unwrap().contains("no end") && content.pieces.len() < 8);
    }

    /// The boot sector may say that there are any number of clusters, and few bytes be there. Rings are found wherever
    /// they begin, and chains without one are followed to their end.
    #[test]
    fn a_ring_is_followed_a_few_times_only() {
        for (before, length) in [(1_u32, 1_u32), (1, 2), (2, 2), (5, 3), (9, 1), (3, 40)] {
            // The last cluster is followed by the first one of the ring.
            let last = FIRST + before + length - 2;
            let mut table: Vec<u32> = (1..=last).map(|number| if number < FIRST { 0 } else { number + 1 }).collect();
            table.insert(0, 0);
            table[last as usize] = FIRST + before - 1;
            let table: Vec<u8> = table.iter().flat_map(|one| one.to_le_bytes()).collect();
            let clusters = Clusters { width: Width::ThirtyTwo, table: 0, start: 0, length: 512, count: 1 << 20 };
            let source = MemorySource::new(&table[..], "table");
            let mut budget = Budget::new(0, 1);
            let left = budget.bytes;
            let place = (FIRST, 1 << 40, Ends::WithLength, false);
            let content = clusters.content(&mut Pages::new(&source), 1 << 40, place, &mut budget).unwrap();
            assert_eq!(content.missing.as_deref(), Some(RING), "{before} {length}");
            let links = (left - budget.bytes).saturating_sub(OF_PAGE) / OF_LINK;
            assert!(links <= 4 * u64::from(before + length), "{before} {length}: {links}");
        }
        // Back and forth, but nowhere twice.
        let order = [2_u32, 9, 3, 8, 4, 7, 5, 6];
        let mut table = [0_u32; 10];
        order.windows(2).for_each(|pair| table[pair[0] as usize] = pair[1]);
        table[6] = u32::MAX;
        let table: Vec<u8> = table.iter().flat_map(|one| one.to_le_bytes()).collect();
        let clusters = Clusters { width: Width::ThirtyTwo, table: 0, start: 0, length: 512, count: 8 };
        let source = MemorySource::new(&table[..], "table");
        let place = (2, 8 * 512, Ends::WithLength, false);
        let content = clusters.content(&mut Pages::new(&source), 1 << 20, place, &mut Budget::new(0, 1)).unwrap();
        assert_eq!((content.left(), content.pieces.len(), content.missing), (0, 7, None));
    }

    fn found(name: Vec<u8>, at: usize) -> Found {
        Found {
            name,
            at,
            is_folder: false,
            is_read_only: false,
            mtime: None,
            atime: None,
            first: 0,
            size: 0,
            written: 0,
            is_run: false,
        }
    }

    /// Whatever is in it, each record of its root has a name.
    struct Numbers(Clusters);

    impl Listings for Numbers {
        const NAME: &'static str = "numbers";
        const LONGEST: u64 = 1 << 20;
        const ENDS: Ends = Ends::WithLength;
        const AT_ONCE: u64 = 1 << 20;

        fn clusters(&self) -> &Clusters {
            &self.0
        }

        fn root(&self) -> Root {
            Root::At(0, self.0.start)
        }

        fn list(&self, part: Part<'_>, listed: &mut Listed, _: &mut Budget) -> usize {
            for at in (0..part.bytes.len()).step_by(RECORD) {
                listed.add(found(format!("{at:0100}").into_bytes(), at));
            }
            part.bytes.len()
        }
    }

    /// Chains of any number of folders may lead into one listing.
    #[test]
    fn names_cost_what_they_take() {
        const COUNT: u64 = 1000;
        const LISTING: u64 = COUNT * RECORD as u64;
        for (of_names, expected) in [(u64::MAX / 2, 1000..=1000), (70_000, 100..=140)] {
            let source = MemorySource::new(vec![0; LISTING as usize], "image");
            let clusters = Clusters { width: Width::ThirtyTwo, table: 0, start: LISTING, length: 512, count: 1 };
            let (options, mut names, mut damage) = (Options::default(), 0, Vec::new());
            let mut receive = |event| {
                match event {
                    Event::Entry(entry) => names += usize::from(entry.kind == Kind::File),
                    Event::Damage(told) => damage.push(told.what),
                    _ => {}
                }
                Ok(())
            };
            let mut reader = Reader::new(&source, Numbers(clusters), &options, &mut receive);
            reader.budget.bytes = LISTING + of_names;
            reader.run().unwrap();
            assert!(expected.contains(&names), "{names}");
            let lost = damage.iter().filter(|what| what.contains("is left out: ")).count();
            assert_eq!(lost, COUNT as usize - names, "{:?}", damage.first());
        }
    }

    /// A folder of 4 MiB, whose clusters are one: what is held of it follows from what is stored.
    #[test]
    fn names_take_no_more_memory_than_the_image_pays_for() {
        let told = |data: u64| {
            let mut listed = Listed::with_room(MEMORY.of(data, 1) as usize);
            let found = found(vec![b'x'; 12], 0);
            while !listed.is_done && listed.found.len() < 1 << 16 {
                listed.add(found.clone());
            }
            (listed.found.len(), listed.memory())
        };
        let (count, memory) = told(100 << 10);
        assert!((5000..20_000).contains(&count) && memory <= 3 << 20, "{count} {memory}");
        // As many as a listing can have, each of 32 bytes.
        assert_eq!(told(2 << 20).0, 1 << 16);
    }

    /// Any number of files may have one chain. Its links may jump, so that each cluster is a part.
    #[test]
    fn a_chain_is_followed_no_further_than_there_are_parts() {
        const HALF: u32 = 50_000;
        let mut table = vec![0_u32; 2 * HALF as usize + 2];
        for number in 2..HALF {
            table[number as usize] = HALF + number;
            table[(HALF + number) as usize] = number + 1;
        }
        let table: Vec<u8> = table.iter().flat_map(|one| one.to_le_bytes()).collect();
        let clusters = Clusters { width: Width::ThirtyTwo, table: 0, start: 0, length: 512, count: 2 * HALF };
        let source = MemorySource::new(&table[..], "table");
        let mut pages = Pages::new(&source);
        let mut budget = Budget::new(0, 1);
        budget.parts = 2500;
        let followed = |pages: &mut Pages<'_>, budget: &mut Budget| {
            let before = budget.bytes;
            let place = (2, 1000 * 512, Ends::WithLength, false);
            let content = clusters.content(pages, 1 << 30, place, budget).unwrap();
            (content.pieces.len(), (before - budget.bytes) / OF_LINK)
        };
        // The first one reads two pages.
        assert_eq!(followed(&mut pages, &mut budget), (1000, 999 + 2 * OF_PAGE / OF_LINK));
        assert_eq!(followed(&mut pages, &mut budget), (1000, 999));
        assert_eq!(followed(&mut pages, &mut budget), (1, 500));
        budget.parts = 0;
        assert_eq!(followed(&mut pages, &mut budget), (1, 0));
    }

    #[test]
    fn names_are_what_linux_can_have() {
        let name = |text: &str| name_of(text.encode_utf16()).map(|name| String::from_utf8(name).unwrap());
        assert_eq!(name("Grün 🌲"), Some("Grün 🌲".to_owned()));
        assert_eq!((name("a/b"), name(".."), name("")), (Some("a_b".to_owned()), None, None));
        assert_eq!(name_of([0xd800, 0x61].into_iter()), Some("\u{fffd}a".as_bytes().to_vec()));
    }
}
