//! Which names are one file: those whose headers have the same device and inode.
//!
//! In newc and crc only the last name of a file has its content. So names without content wait for the one that has it;
//! if none comes up to the end of the archive, the file is empty. In the other dialects each name has the content, and
//! the first one counts.

use std::collections::HashMap;
use std::mem::{size_of, take};
use std::rc::Rc;

use super::header::Header;
use crate::{Body, Device, Entry, Kind};

/// Bytes of memory for all of them: a million files with other names in the archive, or outside of it.
const MOST: usize = 128 << 20;

/// Bytes of a path that others are links to: no file has a longer one (PATH_MAX), and each link has it as its target.
const LONGEST: usize = 4096;

/// Bytes of one without its path.
const OF_ONE: usize = size_of::<(Key, Known)>();

/// What is one file in one archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    on: Device,
    inode: u32,
}

/// What is known of a file so far.
#[derive(Debug, Default)]
struct Known {
    /// The name that has the content.
    first: Option<Rc<First>>,
    /// Names that wait for it.
    waiting: Vec<Entry>,
    /// Names that came, but for those that were told.
    seen: u32,
}

#[derive(Debug)]
struct First {
    path: Box<[u8]>,
    at: u64,
    /// The header; where it comes again, it is the same file.
    facts: Header,
}

impl First {
    fn new(entry: &Entry, facts: Header) -> Option<Rc<Self>> {
        let path = entry.path.clone().into_boxed_slice();
        (path.len() <= LONGEST).then(|| Rc::new(Self { path, at: entry.header, facts }))
    }
}

/// All files of one archive that have several names, until all of them have come.
#[derive(Debug)]
pub(super) struct Links {
    files: HashMap<Key, Known>,
    /// Bytes that they take, roughly.
    bytes: usize,
    most: usize,
    /// Some were forgotten.
    is_short: bool,
}

/// What is to be told of a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// This, at once.
    Entry(Box<Entry>),
    /// Nothing yet.
    Waits,
}

/// Names that waited: those of one file each, in the order in which they are told.
#[derive(Debug, Default)]
pub(super) struct Waited(Vec<Settled>);

/// Names of one file.
#[derive(Debug)]
struct Settled {
    first: Option<Rc<First>>,
    /// Where nothing has the content, the first name is an empty file.
    is_certain: bool,
    names: Vec<Entry>,
}

impl Waited {
    /// What is told of each name; an error has one whose content is not known. Links are made one by one: their targets
    /// take more memory than what waits.
    pub(super) fn each(self) -> impl Iterator<Item = Result<Box<Entry>, Box<Entry>>> {
        self.0.into_iter().flat_map(|Settled { mut first, is_certain, names }| {
            names.into_iter().map(move |entry| match &first {
                Some(first) => Ok(Box::new(link(entry, first))),
                None if is_certain => {
                    first = First::new(&entry, EMPTY);
                    Ok(Box::new(entry))
                }
                None => Err(Box::new(entry)),
            })
        })
    }
}

impl Links {
    pub(super) fn new() -> Self {
        Self { files: HashMap::new(), bytes: 0, most: MOST, is_short: false }
    }

    /// Takes the next entry, whose header is `header`. What was found of others is told with [`Links::behind`], once
    /// its content was passed.
    pub(super) fn take(&mut self, header: &Header, mut entry: Box<Entry>) -> Told {
        if header.names < 2 || matches!(entry.kind, Kind::Folder | Kind::Symlink) {
            return Told::Entry(entry);
        }
        let key = Key { on: header.on, inode: header.inode };
        let known = self.files.entry(key).or_default();
        known.seen = known.seen.saturating_add(1);
        if header.dialect.stores_links_once() && entry.kind == Kind::File && header.size == 0 {
            let added = if known.seen == 1 { OF_ONE } else { 0 };
            self.bytes = self.bytes.saturating_add(added).saturating_add(entry.weight());
            known.waiting.push(*entry);
            return Told::Waits;
        }
        let is_same = |first: &Rc<First>| {
            let stored = header.dialect.stores_links_once() && entry.kind == Kind::File;
            let facts = Header { name_length: first.facts.name_length, ..*header };
            !stored && first.facts == facts
        };
        if let Some(first) = known.first.as_ref().filter(|first| is_same(first)) {
            *entry = link(*entry, first);
        } else {
            let added = if known.first.is_none() { OF_ONE } else { 0 };
            self.bytes = self.bytes.saturating_add(added).saturating_add(entry.path.len());
            known.first = First::new(&entry, *header);
        }
        Told::Entry(entry)
    }

    /// What waited for the entry with that header, which was taken last.
    pub(super) fn behind(&mut self, header: &Header) -> Waited {
        let mut waited = Waited::default();
        let key = Key { on: header.on, inode: header.inode };
        if let Some(known) = self.files.get_mut(&key) {
            let is_last = known.seen >= header.names;
            if is_last || known.first.is_some() && header.size > 0 {
                for entry in &known.waiting {
                    self.bytes = self.bytes.saturating_sub(entry.weight());
                }
                waited.0.extend(settle(known, header.size == 0));
            }
            if is_last {
                let path = known.first.as_ref().map_or(0, |first| first.path.len().saturating_add(OF_ONE));
                self.bytes = self.bytes.saturating_sub(path);
                self.files.remove(&key);
            }
        }
        if self.bytes > self.most {
            waited.0.extend(self.end(false).0);
            self.is_short = true;
        }
        waited
    }

    /// All that still waits, at the end of an archive. `is_whole` if nothing of it was lost: then what has no content
    /// is empty.
    pub(super) fn end(&mut self, is_whole: bool) -> Waited {
        let is_whole = is_whole && !take(&mut self.is_short);
        self.bytes = 0;
        let mut files: Vec<Known> = take(&mut self.files).into_values().collect();
        files.retain(|known| !known.waiting.is_empty());
        files.sort_unstable_by_key(|known| known.waiting.first().map(|entry| entry.header));
        Waited(files.iter_mut().filter_map(|known| settle(known, is_whole)).collect())
    }
}

/// Takes all that waits. If nothing has the content, the first one is an empty file, where that is certain.
fn settle(known: &mut Known, is_certain: bool) -> Option<Settled> {
    let names = take(&mut known.waiting);
    let first = known.first.clone();
    if let Some(empty) = names.first().filter(|_| is_certain && first.is_none()) {
        // Nothing is compared with it: what is empty and comes later waits as well.
        known.first = First::new(empty, EMPTY);
    }
    (!names.is_empty()).then_some(Settled { first, is_certain, names })
}

/// What no header says.
const EMPTY: Header = Header {
    dialect: super::header::Dialect::Newc,
    mode: 0,
    uid: 0,
    gid: 0,
    names: 0,
    on: Device { major: 0, minor: 0 },
    inode: 0,
    mtime: 0,
    device: Device { major: 0, minor: 0 },
    name_length: 0,
    size: 0,
    checksum: 0,
};

/// `entry` as another name of `first`. A link means what its target shows before it, so it comes behind that.
fn link(entry: Entry, first: &First) -> Entry {
    let header = entry.header.max(first.at.saturating_add(1));
    let body = Body { size: 0, ..entry.body };
    Entry { kind: Kind::HardLink, link: first.path.to_vec(), header, body, ..entry }
}
