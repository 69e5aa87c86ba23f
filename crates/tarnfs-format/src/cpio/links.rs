//! Which names are one file: those whose headers have the same device and inode.
//!
//! In newc and crc only the last name of a file has its content. So names without content wait for the one that has it;
//! if none comes up to the end of the archive, the file is empty. In the other dialects each name has the content, and
//! the first one counts.

use std::collections::HashMap;
use std::mem::{replace, size_of, take};
use std::rc::Rc;

use super::header::Header;
use crate::{Body, Device, Entry, HEAVY, Kind};

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
    /// Bytes that these have beside their places in the list.
    strings: usize,
    /// Names that came, but for those that were told.
    seen: u32,
    /// Bytes that are charged for all this: what is returned when it goes.
    charged: usize,
}

impl Known {
    fn wait(&mut self, mut entry: Entry) {
        // Its header may have said that it is longer than it is.
        entry.path.shrink_to_fit();
        if self.waiting.len() == self.waiting.capacity() {
            // Most files have two or three names, and a list that doubles may take twice what is in it.
            self.waiting.reserve_exact((self.waiting.len() / 8).saturating_add(1));
        }
        self.strings = self.strings.saturating_add(entry.weight().saturating_sub(size_of::<Entry>()));
        self.waiting.push(entry);
    }

    /// Takes all that waits.
    fn take_waiting(&mut self) -> Vec<Entry> {
        self.strings = 0;
        take(&mut self.waiting)
    }

    /// Bytes that all this takes.
    fn weight(&self) -> usize {
        let first = self.first.as_ref().map_or(0, |first| size_of::<First>().saturating_add(first.path.len()));
        let list = self.waiting.capacity().saturating_mul(size_of::<Entry>());
        OF_ONE.saturating_add(first).saturating_add(list).saturating_add(self.strings)
    }

    /// Charges to `bytes` what it takes now, in place of what it took.
    fn charge(&mut self, bytes: &mut usize) {
        let weight = self.weight();
        let before = replace(&mut self.charged, weight);
        *bytes = bytes.saturating_sub(before).saturating_add(weight);
    }
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
    /// Bytes that they take: the sum of what is charged for each.
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
    /// `most` is how many bytes of memory all of them may take.
    pub(super) fn new(most: usize) -> Self {
        Self { files: HashMap::new(), bytes: 0, most, is_short: false }
    }

    /// True once they take much memory.
    pub(super) fn are_heavy(&self) -> bool {
        self.bytes as u64 >= HEAVY
    }

    /// Takes the next entry, whose header is `header`. What was found of others is told with [`Links::behind`], once
    /// its content was passed.
    pub(super) fn take(&mut self, header: &Header, entry: Box<Entry>) -> Told {
        if header.names < 2 || matches!(entry.kind, Kind::Folder | Kind::Symlink) {
            return Told::Entry(entry);
        }
        let key = Key { on: header.on, inode: header.inode };
        let known = self.files.entry(key).or_default();
        known.seen = known.seen.saturating_add(1);
        let told = Self::add(known, header, entry);
        known.charge(&mut self.bytes);
        told
    }

    /// Takes another name of a file.
    fn add(known: &mut Known, header: &Header, mut entry: Box<Entry>) -> Told {
        if header.dialect.stores_links_once() && entry.kind == Kind::File && header.size == 0 {
            known.wait(*entry);
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
                waited.0.extend(settle(known, header.size == 0));
                known.charge(&mut self.bytes);
            }
            if is_last {
                self.bytes = self.bytes.saturating_sub(known.charged);
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
    let names = known.take_waiting();
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

#[cfg(test)]
mod tests {
    use super::super::header::Dialect;
    use super::*;

    /// A name of file `inode`, which has `names` of them.
    fn name(dialect: Dialect, inode: u32, names: u32, size: u64, path: &[u8]) -> (Header, Box<Entry>) {
        let mode = 0o100_644;
        let header = Header { dialect, mode, names, inode, size, name_length: path.len() as u64 + 1, ..EMPTY };
        (header, Box::new(Entry { path: path.to_vec(), ..Entry::default() }))
    }

    impl Links {
        fn pass(&mut self, (header, entry): (Header, Box<Entry>)) -> Vec<Result<Box<Entry>, Box<Entry>>> {
            self.take(&header, entry);
            self.behind(&header).each().collect()
        }

        /// Bytes that stand in memory, at least.
        fn there(&self) -> usize {
            let of_one = |known: &Known| {
                let waiting = known.waiting.iter().map(|entry| entry.path.capacity()).sum::<usize>();
                let first = known.first.as_ref().map_or(0, |first| first.path.len());
                known.waiting.capacity() * size_of::<Entry>() + waiting + first
            };
            self.files.values().map(of_one).sum()
        }
    }

    #[test]
    fn what_was_charged_for_a_file_is_returned_with_it() {
        let (long, short) = (vec![b'l'; 3800], b"short".to_vec());
        let too_long = vec![b't'; LONGEST + 1];
        let sizes: [&[u64]; 6] = [&[0, 0], &[0, 7], &[7, 0], &[7, 7], &[0, 0, 7, 0, 7], &[0, 7, 0, 0, 0]];
        for dialect in [Dialect::Newc, Dialect::Odc] {
            for sizes in sizes {
                for paths in [[&long, &short], [&short, &long], [&too_long, &short], [&short, &too_long]] {
                    let mut links = Links::new(usize::MAX);
                    // Something else that waits for ever.
                    links.pass(name(dialect, 1, 9, 0, &long));
                    let before = (links.files.len(), links.bytes);
                    for round in 0..3 {
                        for (at, size) in sizes.iter().enumerate() {
                            assert!(links.bytes >= links.there(), "{} < {}", links.bytes, links.there());
                            links.pass(name(dialect, 2, sizes.len() as u32, *size, paths[at % 2]));
                        }
                        let what = format!("{dialect:?} {sizes:?}, round {round}");
                        assert_eq!((links.files.len(), links.bytes), before, "{what}");
                    }
                    links.end(true);
                    assert_eq!(links.bytes, 0);
                }
            }
        }
    }

    /// Files that are complete do not pay for others.
    #[test]
    fn names_that_wait_for_ever_are_bounded() {
        const LIMIT: usize = 1 << 20;
        let mut links = Links::new(LIMIT);
        let path = [b'p'; 3800];
        let mut left_out = 0;
        for file in 0..2000 {
            for (file, path) in [(file, &path[..]), (1 << 20, &path[..]), (1 << 20, b"c")] {
                let told = links.pass(name(Dialect::Newc, file, 2, 0, path));
                left_out += told.iter().filter(|told| told.is_err()).count();
            }
            assert!(links.there() <= LIMIT, "{} bytes wait", links.there());
        }
        assert!(left_out > 1000, "{left_out}");
        // All names of one file.
        let mut links = Links::new(LIMIT);
        for _ in 0..10_000 {
            links.pass(name(Dialect::Newc, 1, u32::MAX, 0, b"short"));
            assert!(links.there() <= LIMIT, "{} bytes wait", links.there());
        }
        // A buffer that is longer than its path.
        let mut links = Links::new(LIMIT);
        for file in 0..1000 {
            let (header, mut entry) = name(Dialect::Newc, file, 2, 0, b"short");
            entry.path.reserve(LIMIT / 4);
            links.pass((header, entry));
            assert!(links.there() <= LIMIT, "{} bytes wait", links.there());
        }
    }

    #[test]
    fn any_number_of_files_that_are_complete_loses_none() {
        let mut links = Links::new(10_000);
        for file in 0..5000 {
            links.pass(name(Dialect::Newc, file, 2, 0, b"first"));
            let told = links.pass(name(Dialect::Newc, file, 2, 7, b"second"));
            assert!(told.len() == 1 && told[0].is_ok(), "file {file}");
        }
        // There is none that waits, and nothing was lost.
        assert!(!links.is_short && links.files.is_empty());
    }
}
