//! Walks the catalogue: once for the folders, and once to tell what is in them.

use std::collections::HashMap;
use std::io;

use tarnfs_source::Source;

use super::NAME;
use super::compressed;
use super::records::{self, File};
use super::tree::{Node, Tree, Walk};
use super::volume::{self, Fork, Volume};
use crate::big::u32_at;
use crate::boot::{FILE_MODE, FOLDER_MODE};
use crate::content::Content;
use crate::image::{Budget, OfAttributes, Teller, damaged, data_of, is_damage, shown};
use crate::inodes::{Inodes, LONGEST_TARGET};
use crate::name::excerpt;
use crate::window::Window;
use crate::{Body, Device, Entry, Error, Event, Kind, Options, ReceiveRandom, Time, Xattrs};

/// Numbers of what has no name: what the root is in, the root, and the files that the volume header tells.
const ABOVE_ROOT: u32 = 1;
const ROOT: u32 = 2;
const OVERFLOW: u32 = 3;
const CATALOGUE: u32 = 4;
const ATTRIBUTES: u32 = 8;

/// Kinds of forks.
const DATA: Option<u8> = Some(0);
const RESOURCE: Option<u8> = Some(0xff);

/// The folder in the root that holds files which have several names, and how those are called there.
const OF_LINKED: &str = "\u{2400}\u{2400}\u{2400}\u{2400}HFS+ Private Data";
const LINKED: &str = "iNode";
/// The same of folders.
const OF_FOLDERS: &[u8] = b".HFS+ Private Directory Data\r";
const LINKED_FOLDER: &str = "dir_";

/// What macOS keeps in the root for a journal, and does not show.
const JOURNAL: [&[u8]; 2] = [b".journal", b".journal_info_block"];

/// Where what has no folder any more is shown.
const LOST: &str = "lost+found";

/// Bytes of memory for a folder, and for a file with several names, beside its name.
const OF_FOLDER: usize = 96;
const OF_FILE: usize = 512;

/// Bytes of the budget that it takes to look up one of the folders above a name.
const OF_STEP: u64 = 32;

const TOO_OFTEN: &str = "where folders are is looked up too often";

/// Records of eight extents each that one file may have.
const MOST_RECORDS: usize = 1 << 17;

/// Bytes of memory for an extended attribute, beside its name and value.
const OF_ATTRIBUTE: u64 = 48;

/// Bytes of all extended attributes of one file.
const MOST_OF_ATTRIBUTES: u64 = 4 << 20;

/// Names in the index of files that were told: another number than any file has.
fn linked(number: u32) -> u64 {
    u64::from(number) | 1 << 32
}

/// A folder: where it is, and its name there.
struct Folder {
    parent: u32,
    name: Box<[u8]>,
}

/// One pass over one image.
pub(super) struct Reader<'run> {
    options: &'run Options,
    length: u64,
    teller: Teller<'run>,
    window: Window<'run>,
    budget: Budget,
    inodes: Inodes,
    volume: Volume,
    overflow: Option<Tree>,
    attributes: Option<Tree>,
    folders: HashMap<u32, Folder>,
    /// Files that have several names, by the number that these have, and the bytes at which they are told.
    linked: HashMap<u32, Box<(File, u64)>>,
    /// The folder of these.
    of_linked: Option<u32>,
    /// The folder that was told of last, and its path, or why it has none.
    last: Option<(u32, Result<Vec<u8>, &'static str>)>,
}

fn at_start(error: io::Error) -> Error {
    Error::Read { offset: 0, error }
}

/// What the image `source` says of its volume, and whether only the copy at its end says so.
pub(super) fn find(source: &dyn Source) -> io::Result<Option<(Volume, bool)>> {
    let failed = std::cell::Cell::new(None);
    let show = |offset: u64, length: usize| {
        let there = usize::try_from(source.len().saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length.min(there)];
        if let Err(error) = source.read_exact_at(&mut bytes, offset) {
            failed.set(Some(error));
            bytes.clear();
        }
        bytes
    };
    let own = Volume::find(&show).map(|volume| (volume, false));
    let found = own.or_else(|| Volume::find_copy(&show, source.len()).map(|volume| (volume, true)));
    match failed.take() {
        Some(error) if found.is_none() => Err(error),
        _ => Ok(found),
    }
}

impl<'run> Reader<'run> {
    pub(super) fn open(
        source: &'run dyn Source,
        options: &'run Options,
        receive: &'run mut ReceiveRandom<'run>,
    ) -> Result<Self, Error> {
        let reason = || "there is no volume header".to_owned();
        let found = find(source).map_err(at_start)?;
        let (volume, is_copy) = found.ok_or_else(|| Error::NotThisFormat { format: NAME, reason: reason() })?;
        let data = data_of(source);
        let mut teller = Teller::new(receive).with_attributes(OfAttributes::new(data, options.shares));
        if is_copy {
            let what = "the volume header is damaged; its copy at the end is read".to_owned();
            teller.damage(volume::START, what)?;
        }
        if volume.is_dirty && volume.has_journal {
            let what = "the volume was not unmounted, and its journal is not replayed: what was written last may be missing or wrong";
            teller.damage(volume.base.saturating_add(volume::START), what.to_owned())?;
        }
        let (length, end) = (source.len(), volume.range().end);
        if end > length {
            teller.damage(length, format!("the volume ends at byte {end}, only {length} are there: it was cut"))?;
        }
        Ok(Self {
            options,
            length,
            teller,
            window: Window::growing(source).until(&options.cancel),
            budget: Budget::of_image(data, options.shares),
            inodes: Inodes::of_image(data),
            volume,
            overflow: None,
            attributes: None,
            folders: HashMap::new(),
            linked: HashMap::new(),
            of_linked: None,
            last: None,
        })
    }

    /// Tells all that is on the volume.
    pub(super) fn run(mut self) -> Result<(), Error> {
        let overflow = self.volume.overflow.clone();
        self.overflow = self.tree(OVERFLOW, &overflow, "which files lie in many parts")?;
        let attributes = self.volume.attributes.clone();
        self.attributes = self.tree(ATTRIBUTES, &attributes, "extended attributes")?;
        let catalogue = self.volume.catalogue.clone();
        let content = self.content(CATALOGUE, DATA, &catalogue).map_err(at_start)?;
        let mut catalogue = Tree::open(content, &mut self.window, self.length).map_err(|error| {
            if is_damage(&error) {
                Error::Unreadable { format: NAME, reason: format!("its catalogue cannot be read: {error}") }
            } else {
                at_start(error)
            }
        })?;
        let at = catalogue.place(0).0;
        let mut told = Vec::new();
        for is_first in [true, false] {
            let mut walk = catalogue.walk();
            while let Some(leaf) = catalogue.next(&mut walk, &mut self.window, &mut self.budget).map_err(at_start)? {
                self.leaf(&catalogue, &leaf, is_first, &mut walk)?;
            }
            // It is told once. The second time less may be read than the first time: names are missing then.
            let found = walk.into_damage();
            for what in found.iter().filter(|what| !told.contains(*what)) {
                self.teller.damage(at, format!("the catalogue: {what}"))?;
            }
            told = found;
        }
        Ok(())
    }

    /// Opens one of the trees that a volume may be read without.
    fn tree(&mut self, id: u32, fork: &Fork, of: &str) -> Result<Option<Tree>, Error> {
        if fork.length == 0 {
            return Ok(None);
        }
        let opened = self.content(id, DATA, fork);
        let opened = opened.and_then(|content| Tree::open(content, &mut self.window, self.length));
        match opened {
            Ok(tree) => Ok(Some(tree)),
            Err(error) if is_damage(&error) => {
                let at = self.volume.base.saturating_add(volume::START);
                self.teller.damage(at, format!("{of}: what tells them cannot be read: {error}"))?;
                Ok(None)
            }
            Err(error) => Err(at_start(error)),
        }
    }

    /// Where the content of a file lies. Without a kind, nothing tells of more extents than the first ones.
    fn content(&mut self, id: u32, kind: Option<u8>, fork: &Fork) -> io::Result<Content> {
        let mut content = Content::new(fork.length);
        let mut blocks = 0;
        self.add(&mut content, &fork.extents, &mut blocks);
        if content.left() == 0 {
            return Ok(content);
        }
        let mut more = Vec::new();
        if let Some(kind) = kind
            && let Some(tree) = &mut self.overflow
        {
            let found = tree.of_file(id, &mut self.window, &mut self.budget, &mut |record| {
                let of_kind = record.key.get(2) == Some(&kind);
                let told = u32_at(record.key, 8).zip(volume::extents(record.data, 0)).filter(|_| of_kind);
                more.extend(told);
                if more.len() > MOST_RECORDS { Err(damaged("there are too many")) } else { Ok(()) }
            });
            match found {
                Err(error) if is_damage(&error) => {
                    content.missing.get_or_insert_with(|| format!("where its parts lie: {error}"));
                }
                found => found?,
            }
        }
        more.sort_by_key(|(first, _)| *first);
        for (first, extents) in more {
            if content.left() == 0 {
                break;
            }
            // What is told must go on where the rest ended.
            if u64::from(first) == blocks {
                self.add(&mut content, &extents, &mut blocks);
            }
        }
        let left = content.left();
        content.add_missing(self.volume.base, left, "nothing tells where some of its parts lie");
        Ok(content)
    }

    /// Adds some extents to a file that has so many blocks before them.
    fn add(&mut self, content: &mut Content, extents: &[(u32, u32)], blocks: &mut u64) {
        for &(first, count) in extents {
            let at = u64::from(first).saturating_mul(self.volume.block).saturating_add(self.volume.base);
            let length = u64::from(count).saturating_mul(self.volume.block);
            let is_inside = first.checked_add(count).is_some_and(|end| end <= self.volume.blocks);
            if let Err(error) = self.budget.take_parts(1) {
                // Nothing behind it can be told, either: there may be thousands of records of it.
                let left = content.left();
                return content.add_missing(self.volume.base, left, error.to_string());
            }
            if is_inside {
                content.add(at, length, self.length);
            } else {
                content.add_missing(self.volume.base, length, "it lies where it cannot");
            }
            *blocks = blocks.saturating_add(count.into());
        }
    }

    /// Takes note of the folders in a leaf, or tells what is in it.
    fn leaf(&mut self, tree: &Tree, leaf: &Node, is_first: bool, walk: &mut Walk) -> Result<(), Error> {
        for record in tree.records(leaf, walk) {
            self.options.cancel.check().map_err(at_start)?;
            let Some(file) = File::read(record.data) else { continue };
            let Some((parent, units)) = records::key(record.key) else {
                walk.note("a key is damaged");
                continue;
            };
            let (name, at) = (records::name(&units), tree.place(record.at).0);
            if is_first {
                self.take_note(parent, name, file, at, walk);
            } else {
                self.tell(parent, &name, &file, at)?;
            }
        }
        Ok(())
    }

    fn take_note(&mut self, parent: u32, name: Vec<u8>, file: File, at: u64, walk: &mut Walk) {
        let number = |prefix: &str| {
            let digits = std::str::from_utf8(&name).ok()?.strip_prefix(prefix)?;
            digits.parse::<u32>().ok().filter(|number| number.to_string() == digits)
        };
        if file.is_folder {
            if parent == ROOT && name == OF_LINKED.as_bytes() {
                self.of_linked = Some(file.id);
            }
            if !self.inodes.take(OF_FOLDER.saturating_add(name.len())) {
                walk.note("there are too many folders");
                return;
            }
            self.folders.insert(file.id, Folder { parent, name: name.into() });
        } else if let Some(number) = number(LINKED).filter(|_| Some(parent) == self.of_linked) {
            if self.inodes.take(OF_FILE) {
                self.linked.insert(number, Box::new((file, at)));
            } else {
                walk.note("too many files have several names");
            }
        }
    }

    /// The path of a folder; empty of the root. `Err` says why it has none.
    fn path_of(&mut self, folder: u32) -> Result<&[u8], &'static str> {
        let known = self.last.take().filter(|(last, _)| *last == folder);
        let found = known.unwrap_or_else(|| (folder, self.found_path(folder)));
        let (_, path) = self.last.insert(found);
        path.as_deref().map_err(|why| *why)
    }

    /// The same, from the folders above it. Each of these is paid for: records in two deep folders may come in turn.
    fn found_path(&mut self, folder: u32) -> Result<Vec<u8>, &'static str> {
        let mut names: Vec<&[u8]> = Vec::new();
        let (mut at, mut length) = (folder, 0_usize);
        let lost;
        while at != ROOT {
            self.budget.take_bytes(OF_STEP).map_err(|_| TOO_OFTEN)?;
            let Some(above) = self.folders.get(&at) else {
                lost = format!("{LOST}/{at}");
                names.push(lost.as_bytes());
                break;
            };
            self.budget.take_bytes((above.name.len() as u64).saturating_sub(OF_STEP)).map_err(|_| TOO_OFTEN)?;
            length = length.saturating_add(above.name.len()).saturating_add(1);
            // One that is in itself ends here, too.
            if names.len() >= self.options.limits.path_components || length >= self.options.limits.path {
                return Err("the folder that it is in is too deep, or in itself");
            }
            names.push(&above.name);
            at = above.parent;
        }
        names.reverse();
        Ok(names.join(&b'/'))
    }

    /// The path of a name in a folder. It is paid for: any number of names may be in a folder that is deep.
    fn path(&mut self, parent: u32, name: &[u8]) -> Result<Vec<u8>, &'static str> {
        let length = match self.path_of(parent)?.len() {
            0 => name.len(),
            above => above.saturating_add(1).saturating_add(name.len()),
        };
        if name.is_empty() || length > self.options.limits.path {
            return Err("that cannot be a name");
        }
        self.budget.take_bytes(length as u64).map_err(|_| "the entries of the image are read too often")?;
        let folder = self.path_of(parent)?;
        Ok(if folder.is_empty() { name.to_vec() } else { [folder, &b"/"[..], name].concat() })
    }

    /// Tells of a name in a folder.
    fn tell(&mut self, parent: u32, name: &[u8], file: &File, at: u64) -> Result<(), Error> {
        if parent == ABOVE_ROOT && file.id == ROOT {
            self.teller.event(Event::Label(name.to_vec()))?;
            return self.tell_file(b".".to_vec(), file, at);
        }
        let is_hidden = Some(parent) == self.of_linked
            || parent == ROOT && Some(file.id) == self.of_linked
            || parent == ROOT && self.volume.has_journal && JOURNAL.contains(&name);
        if is_hidden {
            return Ok(());
        }
        let path = match self.path(parent, name) {
            Ok(path) => path,
            Err(why) => return self.teller.damage(at, format!("{} is left out: {why}", excerpt(name))),
        };
        if file.is_folder_link() {
            return self.tell_folder_link(path, file, at);
        }
        if !file.is_link() {
            return self.tell_file(path, file, at);
        }
        let number = file.special;
        if let Some(first) = self.inodes.path(linked(number)).map(<[u8]>::to_vec) {
            if let Err(error) = self.budget.take_link(&[], &first) {
                return self.teller.damage(at, format!("{} is left out: {error}", excerpt(&path)));
            }
            let target = self.linked.get(&number).map(|known| &**known);
            let (mtime, header) = target.map_or((file.mtime, at), |(target, at)| (target.mtime, *at));
            let mode = target.map_or(FILE_MODE, |(target, _)| u32::from(target.mode) & 0o7777);
            // Behind what it is a link to.
            let header = header.saturating_add(1);
            let link = Entry { path, kind: Kind::HardLink, link: first, header, mode, mtime, ..Entry::default() };
            return self.teller.entry(link);
        }
        let Some((target, at)) = self.linked.get(&number).map(|known| (**known).clone()) else {
            let what = format!("{} is left out: the file that it is a name of is not there", excerpt(&path));
            return self.teller.damage(at, what);
        };
        self.inodes.name(linked(number), &path);
        self.tell_file(path, &target, at)
    }

    /// A further name of a folder, whose path is paid for, is a link to the folder where all of these lie.
    fn tell_folder_link(&mut self, path: Vec<u8>, file: &File, at: u64) -> Result<(), Error> {
        let up = "../".repeat(path.split(|byte| *byte == b'/').skip(1).count());
        let to = format!("/{LINKED_FOLDER}{}", file.special);
        let link = [up.as_bytes(), OF_FOLDERS, to.as_bytes()].concat();
        if let Err(error) = self.budget.take_link(&[], &link) {
            return self.teller.damage(at, format!("{} is left out: {error}", excerpt(&path)));
        }
        let kind = Kind::Symlink;
        self.teller.entry(Entry { path, kind, mode: 0o777, link, mtime: file.mtime, header: at, ..Entry::default() })
    }

    /// Tells of a file or folder, whose record begins at byte `at`, and whose path is paid for.
    fn tell_file(&mut self, path: Vec<u8>, file: &File, at: u64) -> Result<(), Error> {
        if let Err(error) = self.budget.take_bytes(OF_FILE as u64) {
            return self.teller.damage(at, format!("{} is left out: {error}", shown(&path)));
        }
        let device = Device { major: file.special >> 24, minor: file.special & 0xff_ffff };
        let kind = match file.mode & 0o170_000 {
            _ if file.is_folder => Kind::Folder,
            0o120_000 => Kind::Symlink,
            0o020_000 => Kind::CharacterDevice(device),
            0o060_000 => Kind::BlockDevice(device),
            0o010_000 => Kind::Fifo,
            0o140_000 => Kind::Socket,
            _ => Kind::File,
        };
        // What did not come from a Unix has no mode.
        let mode = match file.mode {
            0 if file.is_folder => FOLDER_MODE,
            0 => FILE_MODE,
            mode => u32::from(mode) & 0o7777,
        };
        let has_time = |time: Option<Time>| time.filter(|time| *time != Time::default());
        let mut entry = Entry {
            path,
            kind,
            mode,
            uid: file.uid.into(),
            gid: file.gid.into(),
            mtime: file.mtime,
            atime: has_time(file.atime),
            ctime: has_time(file.ctime),
            header: at,
            body: Body { offset: at, ..Body::default() },
            ..Entry::default()
        };
        let compression = self.attributes_of(file, &mut entry)?;
        match kind {
            Kind::Symlink => match self.target(file) {
                Ok(target) => entry.link = target,
                Err(error) if is_damage(&error) => {
                    let what = format!("{} is left out: its target: {error}", excerpt(&entry.path));
                    return self.teller.damage(at, what);
                }
                Err(error) => return Err(Error::Read { offset: at, error }),
            },
            Kind::File => self.body(file, compression, &mut entry)?,
            _ => {}
        }
        self.teller.entry(entry)
    }

    /// The content of a regular file. `compression` is what says how macOS has compressed it, and where that lies.
    fn body(&mut self, file: &File, compression: Option<(Vec<u8>, u64)>, entry: &mut Entry) -> Result<(), Error> {
        let at = entry.header;
        let content = match compression {
            None if file.is_compressed && file.data.length == 0 => {
                // Nobody knows how long it is. It must not count as empty.
                let mut content = Content::new(1);
                content.add_missing(at, 1, "what says how macOS has compressed it is not there");
                Ok(content)
            }
            None => self.content(file.id, DATA, &file.data),
            Some((attribute, place)) => {
                let resource = self.content(file.id, RESOURCE, &file.resource);
                resource.and_then(|resource| {
                    let read = compressed::content(&attribute, place, &resource, &mut self.window, &mut self.budget);
                    read.or_else(|error| {
                        let Some(size) = compressed::length(&attribute).filter(|_| is_damage(&error)) else {
                            return Err(error);
                        };
                        let mut content = Content::new(size);
                        content.add_missing(at, size, error.to_string());
                        Ok(content)
                    })
                })
            }
        };
        let content = content.map_err(|error| Error::Read { offset: at, error })?;
        if i64::try_from(content.size).is_err() {
            return self.teller.damage(at, format!("{} would have {} bytes", excerpt(&entry.path), content.size));
        }
        if let Some(why) = content.missing {
            self.teller.damage(at, format!("{} cannot be read whole: {why}", excerpt(&entry.path)))?;
        }
        if content.size > 0 {
            (entry.body.size, entry.body.pieces) = (content.size, Some(content.pieces));
        }
        Ok(())
    }

    fn target(&mut self, file: &File) -> io::Result<Vec<u8>> {
        let length = file.data.length;
        if length >= LONGEST_TARGET as u64 {
            return Err(damaged("it is too long"));
        }
        self.budget.take_bytes(length)?;
        let content = self.content(file.id, DATA, &file.data)?;
        let mut target = Vec::new();
        content.read(&mut self.window, 0, length, &mut target)?;
        Ok(target)
    }

    /// Adds the extended attributes of a file. Returns the one that says how macOS has compressed it, with its place.
    fn attributes_of(&mut self, file: &File, entry: &mut Entry) -> Result<Option<(Vec<u8>, u64)>, Error> {
        let (at, limits) = (entry.header, self.options.limits);
        let mut xattrs = Xattrs::new();
        let (mut compression, mut forks) = (None, Vec::new());
        let mut wrong = None;
        if let Some(tree) = self.attributes.take_if(|_| file.has_attributes() || file.is_compressed) {
            let mut tree = tree;
            let (mut inline, mut count, mut taken, mut paid) = (Vec::new(), 0_usize, 0_u64, 0_u64);
            let found = tree.of_file(file.id, &mut self.window, &mut self.budget, &mut |record| {
                // Behind the file, the first block of what is told, and the length of the name.
                let name = records::units(record.key, 12).map(|units| records::name(&units));
                let (Some(kind), Some(name)) = (u32_at(record.data, 0), name) else {
                    return Err(damaged("a record of them is damaged"));
                };
                let weight = OF_ATTRIBUTE.saturating_add(name.len() as u64);
                let mut take = |length: u64, weight: u64| {
                    count = count.saturating_add(1);
                    taken = taken.saturating_add(length);
                    if count > limits.xattrs || taken > MOST_OF_ATTRIBUTES {
                        return Err(damaged("there are too many"));
                    }
                    paid = paid.saturating_add(weight);
                    Ok(())
                };
                match kind {
                    0x10 => {
                        let length = u32_at(record.data, 12).map_or(usize::MAX, |length| length as usize);
                        let value = record.data.get(16..16_usize.saturating_add(length));
                        let value = value.ok_or_else(|| damaged("a record of them is damaged"))?;
                        let length = value.len() as u64;
                        take(length, weight.saturating_add(length))?;
                        inline.push((name, value.to_vec(), record.at.saturating_add(16)));
                    }
                    0x20 => {
                        let fork = Fork::read(record.data, 8);
                        let fork = fork.ok_or_else(|| damaged("a record of them is damaged"))?;
                        if fork.length > limits.xattr_value as u64 {
                            // macOS allows for it, and others of the file lie behind it.
                            let (of, length) = (&entry.path, fork.length);
                            log::info!("{}: {} of {length} bytes is not shown", shown(of), excerpt(&name));
                            return take(0, weight);
                        }
                        take(fork.length, weight)?;
                        forks.push((name, fork));
                    }
                    _ => {}
                }
                Ok(())
            });
            for (name, value, place) in inline {
                if file.is_compressed && name == compressed::ATTRIBUTE {
                    let (place, run) = tree.place(place);
                    // It is read from there.
                    let place = if run >= value.len() as u64 { place } else { u64::MAX };
                    compression = Some((value, place));
                } else {
                    xattrs.push((name, value));
                }
            }
            self.attributes = Some(tree);
            // Any number of names may lead to one file. What was found before damage is paid for, and stays.
            let is_paid = self.budget.take_bytes(paid);
            if is_paid.is_err() {
                xattrs.clear();
                forks.clear();
            }
            wrong = found.and(is_paid).err();
        }
        for (name, fork) in forks {
            match self.value(file.id, None, &fork) {
                Ok(value) => xattrs.push((name, value)),
                Err(error) => wrong = wrong.or(Some(error)),
            }
        }
        let is_linked = file.is_link() || file.is_folder_link();
        if entry.kind != Kind::Symlink && !is_linked && file.finder.iter().any(|byte| *byte != 0) {
            xattrs.push((b"com.apple.FinderInfo".to_vec(), file.finder.clone()));
        }
        if file.resource.length > 0 && compression.is_none() && entry.kind == Kind::File {
            if file.resource.length > limits.xattr_value as u64 {
                let (name, length) = (shown(&entry.path), file.resource.length);
                log::info!("{name}: its resource fork of {length} bytes is not shown");
            } else {
                let name = b"com.apple.ResourceFork".to_vec();
                match self.value(file.id, RESOURCE, &file.resource) {
                    Ok(value) => xattrs.push((name, value)),
                    Err(error) => wrong = wrong.or(Some(error)),
                }
            }
        }
        // Links and devices have none that belong to users.
        if matches!(entry.kind, Kind::File | Kind::Folder) {
            let fits = |(name, value): &(Vec<u8>, Vec<u8>)| {
                name.len() <= limits.name.saturating_sub(USER.len()) && value.len() <= limits.xattr_value
            };
            let named = xattrs.into_iter().filter(fits).map(|(name, value)| ([USER, &name].concat(), value));
            entry.xattrs = named.collect();
        }
        match wrong {
            Some(error) if is_damage(&error) => {
                let what = format!("{}: some of its extended attributes are left out: {error}", shown(&entry.path));
                self.teller.damage(at, what)?;
            }
            Some(error) => return Err(Error::Read { offset: at, error }),
            None => {}
        }
        Ok(compression)
    }

    /// All bytes of a fork that is an extended attribute.
    fn value(&mut self, id: u32, kind: Option<u8>, fork: &Fork) -> io::Result<Vec<u8>> {
        self.budget.take_bytes(fork.length)?;
        let content = self.content(id, kind, fork)?;
        let mut value = Vec::new();
        content.read(&mut self.window, 0, fork.length, &mut value)?;
        Ok(value)
    }
}

/// The namespace of extended attributes that any program may have.
const USER: &[u8] = b"user.";

#[cfg(test)]
mod tests {
    use super::*;
    use tarnfs_source::MemorySource;

    /// Any number of records may be in folders that are in themselves: each cost as many look-ups as a path may have.
    #[test]
    fn look_ups_of_folders_in_themselves_are_paid_for() {
        let mut image = vec![0; 8192];
        image[1024..1028].copy_from_slice(b"H+\0\x04");
        image[1064..1072].copy_from_slice(&[0, 0, 0x10, 0, 0, 0, 0, 2]);
        let (source, options) = (MemorySource::new(image, "image"), Options::default());
        let mut ignore = |_| Ok(());
        let mut reader = Reader::open(&source, &options, &mut ignore).unwrap();
        for (id, parent) in [(100, 101), (101, 100), (30, 20), (20, ROOT)] {
            reader.folders.insert(id, Folder { parent, name: id.to_string().into_bytes().into() });
        }
        let most = options.limits.path_components as u64;
        let mut paid = |folder: u32| {
            let before = reader.budget.bytes;
            (reader.path_of(folder).map(<[u8]>::to_vec), (before - reader.budget.bytes) / OF_STEP)
        };
        assert_eq!(paid(30), (Ok(b"20/30".to_vec()), 2));
        assert_eq!(paid(30), (Ok(b"20/30".to_vec()), 0));
        for folder in [100, 101] {
            let (path, steps) = paid(folder);
            assert!(path.is_err_and(|why| why.contains("in itself")) && steps > most, "{steps}");
            let (path, steps) = paid(folder);
            assert!(path.is_err() && steps == 0, "{steps}");
        }
        reader.budget.bytes = 5 * OF_STEP;
        assert!(reader.path_of(100).is_err_and(|why| why.contains("too often")));
    }

    /// Before the path of a name is put together, it is paid for: millions of names may be in a folder that is deep.
    #[test]
    fn paths_are_paid_for() {
        let mut image = vec![0; 8192];
        image[1024..1028].copy_from_slice(b"H+\0\x04");
        image[1064..1072].copy_from_slice(&[0, 0, 0x10, 0, 0, 0, 0, 2]);
        let (source, options) = (MemorySource::new(image, "image"), Options::default());
        let mut ignore = |_| Ok(());
        let mut reader = Reader::open(&source, &options, &mut ignore).unwrap();
        for id in 100..200 {
            let parent = if id == 100 { ROOT } else { id - 1 };
            reader.folders.insert(id, Folder { parent, name: [b'f'; 250].into() });
        }
        let mut paid = |parent: u32, name: &[u8]| {
            let before = reader.budget.bytes;
            let path = reader.path(parent, name);
            (path.map(|path| path.len()), before - reader.budget.bytes)
        };
        assert_eq!(paid(180, b"one"), (Ok(81 * 251 + 3), 81 * 250 + 81 * 251 + 3));
        assert_eq!(paid(180, b"two"), (Ok(81 * 251 + 3), 81 * 251 + 3));
        assert_eq!(paid(180, &vec![b'n'; 1 << 16]), (Err("that cannot be a name"), 0));
        assert_eq!(paid(ROOT, b"one"), (Ok(3), 3));
        reader.budget.bytes = 1000;
        assert!(reader.path(ROOT, b"two").is_ok());
        assert_eq!(reader.budget.bytes, 997);
        assert!(reader.path(180, b"one").is_err_and(|why| why.contains("too often")));
    }

    /// Thousands of records may tell of extents behind those for which there is room.
    #[test]
    fn a_file_ends_where_the_parts_are_used_up() {
        let mut image = vec![0; 8192];
        image[1024..1028].copy_from_slice(b"H+\0\x04");
        image[1064..1072].copy_from_slice(&[0, 0, 0x10, 0, 0, 0, 0, 2]);
        let (source, options) = (MemorySource::new(image, "image"), Options::default());
        let mut ignore = |_| Ok(());
        let mut reader = Reader::open(&source, &options, &mut ignore).unwrap();
        reader.budget.parts = 2;
        let (mut content, mut blocks) = (Content::new(100 * 4096), 0);
        reader.add(&mut content, &[(0, 1), (1, 1), (0, 1), (1, 1), (0, 1)], &mut blocks);
        assert_eq!((content.left(), blocks, content.pieces.len()), (0, 2, 2), "{:?}", content.pieces);
        assert!(content.missing.is_some_and(|why| why.contains("too many parts")));
    }

    /// Several small images may be read beside each other.
    #[test]
    fn of_a_small_image_little_is_held() {
        let mut image = vec![0; 8192];
        image[1024..1028].copy_from_slice(b"H+\0\x04");
        image[1064..1072].copy_from_slice(&[0, 0, 0x10, 0, 0, 0, 0, 2]);
        let (source, options) = (MemorySource::new(image, "image"), Options::default());
        let mut ignore = |_| Ok(());
        let mut reader = Reader::open(&source, &options, &mut ignore).unwrap();
        assert!(reader.inodes.take(1 << 20) && !reader.inodes.take(1 << 20));
    }
}
