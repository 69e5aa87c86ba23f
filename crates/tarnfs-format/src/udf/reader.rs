//! Walks the folders of an image from its root on, and tells what is in them.

use std::collections::{HashMap, HashSet};
use std::io;

use tarnfs_source::{Cancel, Source};

use super::NAME;
use super::attributes::Attributes;
use super::bytes::{Place, damaged, is_damage};
use super::disc::Disc;
use super::file::{FileEntry, kind};
use super::listing::{Listing, Name, Next};
use super::names;
use super::recognition::{anchors, recognise};
use super::volume::missing;
use crate::boot;
use crate::content::Content;
use crate::image::{Budget, OfAttributes, Teller, data_of, shown};
use crate::inodes::{LONGEST_TARGET, Memory};
use crate::name::excerpt;
use crate::{Body, Device, Entry, Error, Event, Kind, Options, Piece, ReceiveRandom, Xattrs};

/// Bytes of memory for a folder, and for a file that may be met again, beside its path.
const PER_FOLDER: usize = 32;
const PER_FILE: usize = 64;

/// Bytes of the target of a symbolic link, as its components are stored.
const LONGEST_LINK: u64 = 64 << 10;

/// Bytes of extended attributes that lie apart from their file, and streams beside the content of one.
const LONGEST_ATTRIBUTES: u64 = 64 << 10;
const MOST_STREAMS: usize = 1000;

/// The name of the blocks of a disc that no file may have (UDF 2.3.13): hidden, and in the root.
const NOT_FOR_FILES: &[u8] = b"Non-Allocatable Space";

/// How often listings may be read: what is damaged in them is read once more.
const READ_LISTINGS: u64 = 4;

/// One pass over one image.
pub(super) struct Reader<'run> {
    disc: Disc<'run>,
    options: &'run Options,
    teller: Teller<'run>,
    /// Where the entries of folders lie that were told.
    folders: HashSet<u64>,
    /// Where the entries of files lie that have several names, and the first path of each.
    known: HashMap<u64, Box<[u8]>>,
    /// For these, and for the listings of open folders.
    memory: Memory,
    /// Bytes of listings that may still be read.
    of_listings: u64,
    budget: Budget,
    left_out: LeftOut,
    /// What a computer boots from, as ISO 9660 has it, and the lengths of the files that begin there.
    images: Vec<boot::Image>,
    boot: HashMap<u64, u64>,
    /// Names that the folder of these cannot have.
    like_boot: boot::Taken,
}

/// What is in an image and is not told.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LeftOut {
    /// Streams and attributes that are too long for an extended attribute, or too many, or have no name for one.
    pub(super) streams: bool,
    /// That files are hidden.
    pub(super) hidden: bool,
}

/// A folder whose listing is being read.
struct Open {
    listing: Listing,
    /// Bytes of the path of the folder that it is in.
    path: usize,
    memory: usize,
}

/// Opens the volume in `source`, and finds the catalogue of what a computer boots from. What is damaged and does not
/// stand in the way is `told`.
fn open<'s>(
    (source, cancel): (&'s dyn Source, &'s Cancel),
    budget: &mut Budget,
    told: &mut Vec<(u64, String)>,
) -> Result<(Disc<'s>, Option<u64>), Error> {
    let failed = std::cell::Cell::new(None);
    let show = |offset: u64, length: usize| show(source, offset, length, &failed);
    let reason = "there is no mark of it behind the first 32768 bytes".to_owned();
    let recognised = recognise(&show);
    let anchors = anchors(&show, source.len());
    if let Some((offset, error)) = failed.take()
        && anchors.is_empty()
    {
        return Err(Error::Read { offset, error });
    }
    let recognised = recognised.ok_or(Error::NotThisFormat { format: NAME, reason })?;
    let mut first = None;
    // Several lead to one place, where the same would be found.
    let mut tried = HashSet::new();
    for anchor in anchors {
        if !tried.insert((anchor.sector, anchor.main, anchor.reserve)) {
            continue;
        }
        let mut of_this = Vec::new();
        let disc = Disc::open((source, cancel), anchor, budget, &mut of_this).and_then(|mut disc| {
            // Where it cannot be read, another anchor may lead to one, and ISO 9660 may have one.
            root(&mut disc, budget).map(|_| disc)
        });
        match disc {
            Ok(disc) => {
                told.append(&mut of_this);
                return Ok((disc, recognised.boot));
            }
            Err(error) if is_damage(&error) || error.kind() == io::ErrorKind::Unsupported => {
                first.get_or_insert(error);
            }
            Err(error) => return Err(Error::Read { offset: anchor.main.0.saturating_mul(anchor.sector), error }),
        }
    }
    let first = first.unwrap_or_else(|| missing("anchor: the image may be cut"));
    let (reason, is_unknown) = (first.to_string(), first.kind() == io::ErrorKind::Unsupported);
    Err(if is_unknown {
        Error::Unsupported { format: NAME, reason }
    } else {
        Error::Unreadable { format: NAME, reason }
    })
}

/// The entry of the root folder.
fn root(disc: &mut Disc<'_>, budget: &mut Budget) -> io::Result<FileEntry> {
    let told = |error: io::Error| io::Error::new(error.kind(), format!("its root cannot be read: {error}"));
    let entry = disc.entry(disc.root, budget).map_err(told)?;
    if entry.kind == kind::FOLDER { Ok(entry) } else { Err(told(damaged("it is no folder"))) }
}

/// Up to `length` bytes from byte `offset` on. The first error is kept.
fn show(
    source: &dyn Source,
    offset: u64,
    length: usize,
    failed: &std::cell::Cell<Option<(u64, io::Error)>>,
) -> Vec<u8> {
    let there = usize::try_from(source.len().saturating_sub(offset)).unwrap_or(usize::MAX);
    let mut bytes = vec![0; length.min(there)];
    if let Err(error) = source.read_exact_at(&mut bytes, offset) {
        let before = failed.take();
        failed.set(before.or(Some((offset, error))));
        bytes.clear();
    }
    bytes
}

impl<'run> Reader<'run> {
    pub(super) fn open(
        source: &'run dyn Source,
        options: &'run Options,
        receive: &'run mut ReceiveRandom<'run>,
    ) -> Result<Self, Error> {
        let data = data_of(source);
        let (mut budget, mut told) = (Budget::of_image(data, options.shares), Vec::new());
        let (disc, boot) = open((source, &options.cancel), &mut budget, &mut told)?;
        let images = match boot.map(|sector| (sector.saturating_mul(boot::SECTOR), boot::images(source, sector))) {
            Some((_, Ok(images))) => images,
            Some((offset, Err(error))) if is_damage(&error) => {
                told.push((offset, format!("what a computer boots from is left out: {error}")));
                Vec::new()
            }
            Some((offset, Err(error))) => return Err(Error::Read { offset, error }),
            None => Vec::new(),
        };
        let mut reader = Self {
            disc,
            options,
            teller: Teller::new(receive).with_attributes(OfAttributes::new(data, options.shares)),
            folders: HashSet::new(),
            known: HashMap::new(),
            memory: Memory::of_image(data),
            of_listings: data.saturating_mul(READ_LISTINGS),
            budget,
            left_out: LeftOut::default(),
            boot: images.iter().map(|image| (image.offset, 0)).collect(),
            images,
            like_boot: boot::Taken::default(),
        };
        for (offset, what) in told {
            reader.teller.damage(offset, what)?;
        }
        Ok(reader)
    }

    /// Byte at which the volume ends, as far as its descriptors say.
    pub(super) fn end(&self) -> u64 {
        self.disc.end
    }

    /// False if the root has no owner: who writes such a volume keeps nothing of what Unix has.
    pub(super) fn has_owners(&mut self) -> io::Result<bool> {
        root(&mut self.disc, &mut self.budget).map(|root| root.has_owner())
    }

    /// Tells all that is in the image. Returns what it has beside that.
    pub(super) fn run(mut self) -> Result<LeftOut, Error> {
        if !self.disc.name.is_empty() {
            self.teller.event(Event::Label(self.disc.name.clone().into_bytes()))?;
        }
        let root = root(&mut self.disc, &mut self.budget).map_err(|error| {
            let offset = self.disc.space.find(self.disc.root, 0).map_or(0, |(at, _)| at);
            if is_damage(&error) {
                Error::Unreadable { format: NAME, reason: error.to_string() }
            } else {
                Error::Read { offset, error }
            }
        })?;
        let (mut path, mut open) = (Vec::new(), Vec::<Open>::new());
        self.tell_entry(&root, b".", Kind::Folder)?;
        open.extend(self.folder(&root, &path, 0)?);
        while let Some(folder) = open.last_mut() {
            self.options.cancel.check().map_err(|error| Error::Read { offset: 0, error })?;
            let next = folder.listing.next(&mut self.disc.image, &mut self.of_listings);
            let next = next.map_err(|error| Error::Read { offset: 0, error })?;
            let before = path.len();
            let name = match next {
                Next::Name(name) => name,
                Next::Damage(skipped, why) => {
                    self.teller.damage(0, format!("{}: {skipped} bytes of the listing: {why}", shown(&path)))?;
                    continue;
                }
                Next::TooMuch | Next::End => {
                    if next == Next::TooMuch {
                        let what = format!("{}: listings overlap; the rest is left out", shown(&path));
                        self.teller.damage(0, what)?;
                    }
                    path.truncate(folder.path);
                    self.memory.give_back(folder.memory);
                    open.pop();
                    continue;
                }
            };
            if let Some(entry) = self.named(&name, &mut path)?
                && let Some(below) = self.folder(&entry, &path, open.len())?
            {
                open.push(Open { path: before, ..below });
                continue;
            }
            path.truncate(before);
        }
        for entry in boot::entries(&self.images, &self.boot, &self.like_boot, self.disc.image.length) {
            self.teller.entry(entry)?;
        }
        Ok(self.left_out)
    }

    /// Begins the listing of a folder.
    fn folder(&mut self, entry: &FileEntry, path: &[u8], depth: usize) -> Result<Option<Open>, Error> {
        let limits = &self.options.limits;
        let is_deep = depth >= limits.path_components || path.len().saturating_add(limits.name) >= limits.path;
        if is_deep {
            self.teller.damage(entry.at, format!("{}: what is in it is left out: it is too deep", shown(path)))?;
            return Ok(None);
        }
        let content = self.disc.content(entry, &mut self.budget).map_err(|error| failed(entry, error))?;
        let listing = Listing::new(content);
        let memory = listing.parts().saturating_mul(size_of::<Piece>().saturating_add(8));
        if !self.memory.take(memory) {
            self.teller.damage(entry.at, format!("{}: its listing lies in too many parts", shown(path)))?;
            return Ok(None);
        }
        Ok(Some(Open { listing, path: 0, memory }))
    }

    /// Tells what has a name in the folder `path`, and adds the name to that. Returns the entry of a folder.
    fn named(&mut self, found: &Name, path: &mut Vec<u8>) -> Result<Option<FileEntry>, Error> {
        let Some(name) = names::name(&found.stored) else {
            let what = format!("{}: a name in it is in no encoding that UDF has", shown(path));
            self.teller.damage(0, what)?;
            return Ok(None);
        };
        if path.is_empty() && found.is_hidden && name == NOT_FOR_FILES {
            return Ok(None);
        }
        self.left_out.hidden |= found.is_hidden;
        if path.is_empty() {
            self.like_boot.note(&name);
        } else {
            path.push(b'/');
        }
        path.extend_from_slice(&name);
        if path.len() > self.options.limits.path {
            self.teller.damage(0, format!("{} is left out: its path is too long", excerpt(path)))?;
            return Ok(None);
        }
        // Listings may be the same blocks, and one that lies deep has a long path for each of its names.
        let paid = self.budget.take_bytes(path.len() as u64);
        let place = paid.and_then(|()| found.entry.ok_or_else(|| damaged("nothing says where it is")));
        let read = place.and_then(|place| self.known_or_entry(place));
        let entry = match read {
            Ok(Ok(entry)) => entry,
            Ok(Err(at)) => return self.tell_link(at, path).map(|()| None),
            Err(error) if is_damage(&error) => {
                self.teller.damage(0, format!("{} is left out: {error}", excerpt(path)))?;
                return Ok(None);
            }
            Err(error) => return Err(Error::Read { offset: 0, error }),
        };
        if entry.kind == kind::FOLDER {
            let wrong = if self.folders.contains(&entry.at) {
                "it is another folder, too"
            } else if self.memory.take(PER_FOLDER) {
                self.folders.insert(entry.at);
                self.tell_entry(&entry, path, Kind::Folder)?;
                return Ok(Some(entry));
            } else {
                "there are too many folders"
            };
            self.teller.damage(entry.at, format!("{} is left out: {wrong}", excerpt(path)))?;
            return Ok(None);
        }
        self.tell_file(&entry, path)?;
        Ok(None)
    }

    /// The entry at `place`, or where that is if it was told under another name.
    fn known_or_entry(&mut self, place: Place) -> io::Result<Result<FileEntry, u64>> {
        let (at, _) = self.disc.space.find(place, 0)?;
        if self.known.contains_key(&at) {
            return Ok(Err(at));
        }
        let entry = self.disc.entry(place, &mut self.budget)?;
        // One that has replaced another.
        Ok(if self.known.contains_key(&entry.at) { Err(entry.at) } else { Ok(entry) })
    }

    /// Tells a further name of the file whose entry is at byte `at`.
    fn tell_link(&mut self, at: u64, path: &[u8]) -> Result<(), Error> {
        let link = self.known.get(&at).map(|first| first.to_vec()).unwrap_or_default();
        if let Err(error) = self.budget.take_link(path, &link) {
            return self.teller.damage(at, format!("{} is left out: {error}", excerpt(path)));
        }
        self.teller.entry(Entry {
            path: path.to_vec(),
            kind: Kind::HardLink,
            link,
            // Behind what it is a link to.
            header: at.saturating_add(1),
            ..Entry::default()
        })
    }

    /// Tells what is no folder.
    fn tell_file(&mut self, entry: &FileEntry, path: &[u8]) -> Result<(), Error> {
        let kind = match entry.kind {
            kind::UNSPECIFIED | kind::FILE | kind::REAL_TIME | kind::TABLE => Kind::File,
            kind::BLOCK_DEVICE => Kind::BlockDevice(Device::default()),
            kind::CHARACTER_DEVICE => Kind::CharacterDevice(Device::default()),
            kind::FIFO => Kind::Fifo,
            kind::SOCKET => Kind::Socket,
            kind::LINK => Kind::Symlink,
            other => {
                let what = format!("{} is left out: it is a file of kind {other}", excerpt(path));
                return self.teller.damage(entry.at, what);
            }
        };
        self.tell_entry(entry, path, kind)?;
        let memory = path.len().saturating_add(PER_FILE);
        if entry.links > 1 && path.len() <= LONGEST_TARGET && self.memory.take(memory) {
            self.known.insert(entry.at, path.into());
        }
        Ok(())
    }

    /// Tells what all entries say, and what those of this kind do.
    fn tell_entry(&mut self, entry: &FileEntry, path: &[u8], kind: Kind) -> Result<(), Error> {
        let attributes = match self.attributes(entry) {
            Ok(attributes) => attributes,
            Err(error) if is_damage(&error) => {
                self.teller.damage(entry.at, format!("{}: attributes are left out: {error}", shown(path)))?;
                Attributes::default()
            }
            Err(error) => return Err(failed(entry, error)),
        };
        let (major, minor) = attributes.device.unwrap_or_default();
        let device = Device { major, minor };
        let (uid, gid) = entry.owner();
        let mut told = Entry {
            path: path.to_vec(),
            kind: match kind {
                Kind::BlockDevice(_) => Kind::BlockDevice(device),
                Kind::CharacterDevice(_) => Kind::CharacterDevice(device),
                kind => kind,
            },
            mode: if kind == Kind::Symlink { 0o777 } else { entry.mode() },
            uid,
            gid,
            mtime: entry.mtime.unwrap_or_default(),
            atime: entry.atime,
            ctime: entry.ctime,
            header: entry.at,
            body: Body { offset: entry.at, ..Body::default() },
            xattrs: attributes.xattrs,
            ..Entry::default()
        };
        let content = match kind {
            Kind::File | Kind::Symlink => self.disc.content(entry, &mut self.budget),
            _ => Ok(Content::default()),
        };
        let content = content.map_err(|error| failed(entry, error))?;
        if kind == Kind::Symlink {
            match self.link(&content) {
                Ok(target) => told.link = target,
                Err(error) if is_damage(&error) => {
                    let what = format!("{} is left out: its target: {error}", excerpt(path));
                    return self.teller.damage(entry.at, what);
                }
                Err(error) => return Err(failed(entry, error)),
            }
        }
        if kind == Kind::File
            && let [Piece { offset, coder: None, .. }] = content.pieces[..]
            && let Some(known) = self.boot.get_mut(&offset)
        {
            *known = content.size.max(*known);
        }
        if kind == Kind::File && content.size > 0 {
            let mut missing = content.missing;
            if i64::try_from(content.size).is_ok() {
                (told.body.size, told.body.pieces) = (content.size, Some(content.pieces));
            } else {
                missing = Some(format!("it would have {} bytes", content.size));
            }
            if let Some(why) = missing {
                self.teller.damage(entry.at, format!("{} cannot be read whole: {why}", excerpt(path)))?;
            }
        }
        self.teller.entry(told)
    }

    /// The target of a symbolic link.
    fn link(&mut self, content: &Content) -> io::Result<Vec<u8>> {
        if content.size > LONGEST_LINK {
            return Err(damaged("it is too long"));
        }
        let components = self.bytes(content)?;
        let target = names::target(&components).ok_or_else(|| damaged("it is no path"))?;
        if target.len() < LONGEST_TARGET { Ok(target) } else { Err(damaged("it is too long")) }
    }

    /// All bytes of something short.
    fn bytes(&mut self, content: &Content) -> io::Result<Vec<u8>> {
        self.budget.take_bytes(content.size)?;
        let mut bytes = Vec::new();
        content.read(self.disc.image.content(), 0, content.size, &mut bytes)?;
        Ok(bytes)
    }

    /// The attributes of a file: its own, those that lie elsewhere, and its streams.
    fn attributes(&mut self, entry: &FileEntry) -> io::Result<Attributes> {
        let mut found = Attributes::default();
        if !entry.attributes.is_empty() {
            found.add(&self.disc.inside(entry, entry.attributes.clone())?, &mut self.budget)?;
        }
        if let Some(place) = entry.attributes_at {
            let elsewhere = self.disc.entry(place, &mut self.budget)?;
            let content = self.disc.content(&elsewhere, &mut self.budget)?;
            if content.size > LONGEST_ATTRIBUTES {
                return Err(damaged("they are too long"));
            }
            found.add(&self.bytes(&content)?, &mut self.budget)?;
        }
        if let Some(place) = entry.streams_at {
            let streams = self.streams(place)?;
            found.xattrs.extend(streams);
        }
        let limits = &self.options.limits;
        let prefix = b"user.".len();
        let all = found.xattrs.len();
        let mut names = HashSet::new();
        found.xattrs.retain(|(name, value)| {
            let is_name = name.len() > prefix && name.len() <= limits.name && !name.contains(&0);
            is_name && value.len() <= limits.xattr_value && names.insert(name.clone())
        });
        found.xattrs.truncate(limits.xattrs);
        self.left_out.streams |= found.xattrs.len() < all;
        Ok(found)
    }

    /// The streams of a file (UDF 3.3.5): each is an attribute, if it is short.
    fn streams(&mut self, place: Place) -> io::Result<Xattrs> {
        let folder = self.disc.entry(place, &mut self.budget)?;
        if folder.kind != kind::STREAMS {
            return Err(damaged("its streams are none"));
        }
        let content = self.disc.content(&folder, &mut self.budget)?;
        let (mut listing, mut streams) = (Listing::new(content), Vec::new());
        while streams.len() < MOST_STREAMS {
            let found = match listing.next(&mut self.disc.image, &mut self.of_listings)? {
                Next::Name(found) => found,
                Next::Damage(_, why) => return Err(damaged(why)),
                Next::End => break,
                Next::TooMuch => {
                    self.left_out.streams = true;
                    break;
                }
            };
            let Some((place, name)) = found.entry.zip(names::name(&found.stored)) else {
                self.left_out.streams = true;
                continue;
            };
            let stream = self.disc.entry(place, &mut self.budget)?;
            let content = self.disc.content(&stream, &mut self.budget)?;
            if content.size > self.options.limits.xattr_value as u64 {
                self.left_out.streams = true;
                continue;
            }
            streams.push(([b"user.", &name[..]].concat(), self.bytes(&content)?));
        }
        self.left_out.streams |= streams.len() >= MOST_STREAMS;
        Ok(streams)
    }
}

/// A reading error at an entry.
fn failed(entry: &FileEntry, error: io::Error) -> Error {
    Error::Read { offset: entry.at, error }
}
