//! Walks the folders of an image from its root on, and tells what is in them.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::ops::Bound;
use std::sync::Arc;

use tarnfs_source::{SharedSource, Source};

use super::NAME;
use super::attributes::Attributes;
use super::content::{Contents, coder};
use super::inode::{Content, Inode, Names};
use super::listing::{Listing, Named};
use super::metadata::{Metadata, Place};
use super::start::{self, Found, Refusal, Superblock};
use crate::image::{Quota, Teller, damaged, data_of, shown};
use crate::name::excerpt;
use crate::{Body, Entry, Error, Kind, Options, Piece, ReceiveRandom, Time};

/// Bytes of a name, and of the slash before it.
const LONGEST_NAME: usize = 257;

/// Bytes behind the fixed part of an inode from which on it may not overlap another one.
const LARGE: u64 = 256;

/// Large inodes of which it is kept where they lie, in some 60 bytes each. What has more of them pays for each of these
/// with its bytes, as those may be read again and again.
const MOST_LARGE: Quota = Quota { most: 1 << 19, least: 4096, of_small: 1 };

/// Bytes of memory that may be taken for folders and for what has several names. An image may have them in a few bits
/// each; of a real one, a folder with a name takes some ten bytes.
const MEMORY: Quota = Quota { most: 256 << 20, least: 1 << 20, of_small: 64 };

/// Bytes of it for a folder, and for an inode that may be met again, beside their names.
const PER_FOLDER: usize = 128;
const PER_INODE: usize = 96;

/// Bytes of the path of a hard link's target (PATH_MAX). What lies deeper is told as a file of its own under each name:
/// the paths of thousands of names in very deep folders would take long.
const LONGEST_TARGET: usize = 4096;

/// Bytes that the paths of all names may take, and each name beside its path: as many of an image as small as one, and
/// so many more for each byte of it, which is packed. Any number of blocks of a disk may be one of its image, so that
/// listings lie apart from each other which are the same.
const NAMES: Quota = Quota { most: 256 << 20, least: 1 << 20, of_small: 128 };
const NAMES_FOR_EACH_BYTE: u64 = 256;
const OF_NAME: u64 = 64;

/// One pass over one image.
pub(super) struct Reader<'run> {
    metadata: Metadata<'run>,
    superblock: Superblock,
    /// Where in the source the image begins.
    base: u64,
    options: &'run Options,
    teller: Teller<'run>,
    contents: Contents,
    attributes: Attributes,
    /// Owners and groups that were looked up.
    ids: HashMap<u16, u64>,
    /// What names may still take.
    of_names: u64,
    /// Where listings lie that were told.
    listings: Ranges,
    /// Where inodes lie that are large, and how many of them may be kept.
    inodes: Ranges,
    most_large: u64,
    /// Inodes that may be met again, and the folder and name under which they were met first.
    known: HashMap<u64, (usize, Box<[u8]>)>,
    /// References to the inodes of folders that were told.
    known_folders: HashSet<u64>,
    /// All folders. The root is the first.
    folders: Vec<Folder>,
    /// Bytes of memory that all of these may still take, and whether there was no more.
    memory: u64,
    is_full: bool,
}

/// Ranges that may not overlap: where each begins, and where it ends, or how far it has been read.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<Place, Place>);

impl Ranges {
    /// False if `place` lies in one of them.
    fn is_free(&self, place: Place) -> bool {
        self.0.range(..=place).next_back().is_none_or(|(start, end)| *start < place && *end <= place)
    }

    /// Where the next one begins behind the one that begins at `start`.
    fn limit(&self, start: Place) -> Option<Place> {
        self.0.range((Bound::Excluded(start), Bound::Unbounded)).next().map(|(start, _)| *start)
    }

    /// Notes how far the one that begins at `start` goes.
    fn set(&mut self, start: Place, end: Place) {
        self.0.insert(start, end);
    }
}

/// A folder that was told.
struct Folder {
    /// The one that it is in.
    parent: usize,
    name: Box<[u8]>,
    /// Bytes of its path.
    path: usize,
}

/// A folder whose names are being told.
struct Open {
    number: usize,
    listing: Listing,
    /// Where its listing begins, and where another one does behind it.
    start: Place,
    limit: Option<Place>,
    /// Bytes of the path of the folder that it is in.
    path: usize,
}

/// Where in `source` an image begins, and its superblock, as [`start::find`] says. An error has the offset at which it
/// was met.
pub(super) fn find(source: &dyn Source) -> Result<Option<Found>, (u64, io::Error)> {
    let failed = Cell::new(None);
    let show = |offset: u64, length: usize| {
        let there = usize::try_from(source.len().saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length.min(there)];
        let read = source.read_at(&mut bytes, offset).unwrap_or_else(|error| {
            failed.set(Some((offset, error)));
            0
        });
        bytes.truncate(read);
        bytes
    };
    // Whoever reads it as this format has made sure that it is no other.
    let found = start::find(&show, Some(source.len()), true);
    // Where there is one, no matter what else could not be read while it was searched for.
    match failed.take() {
        Some(failed) if found.is_none() => Err(failed),
        _ => Ok(found),
    }
}

impl<'run> Reader<'run> {
    pub(super) fn open(
        source: &'run SharedSource,
        options: &'run Options,
        receive: &'run mut ReceiveRandom<'run>,
    ) -> Result<Self, Error> {
        let unknown = |reason: String| Error::Unsupported { format: NAME, reason };
        let found = find(source.as_ref()).map_err(|(offset, error)| Error::Read { offset, error })?;
        let (base, superblock) =
            found.ok_or_else(|| Error::NotThisFormat { format: NAME, reason: "there is no superblock".to_owned() })?;
        let superblock = superblock.map_err(|refusal| match refusal {
            Refusal::Damaged(reason) => Error::Unreadable { format: NAME, reason },
            Refusal::Unknown(reason) => unknown(reason),
        })?;
        let coder = Arc::new(coder(superblock.compression).map_err(unknown)?);
        let there = superblock.length.min(source.len().saturating_sub(base));
        let read_with = (&options.decode, &options.cancel);
        let data = data_of(&**source).min(there);
        let of_all = (data, options.shares);
        let metadata = Metadata::new(source, (base, there), Arc::clone(&coder), of_all, read_with);
        let read_at = |at: u64| {
            let mut bytes = [0; 16];
            source.read_exact_at(&mut bytes, base.saturating_add(at)).map(|()| bytes)
        };
        let mut told = Vec::new();
        if there < superblock.length {
            told.push(format!("the image has {} bytes, only {there} are there: it was cut", superblock.length));
        }
        let attributes = Attributes::new(superblock.xattr_table, of_all, read_at).or_else(|error| {
            told.push(format!("extended attributes are left out: {error}"));
            Attributes::new(start::NO_TABLE, of_all, read_at)
        });
        let mut reader = Self {
            metadata,
            superblock,
            base,
            options,
            teller: Teller::new(receive),
            contents: Contents::new((base, there), superblock, coder, of_all),
            attributes: attributes.map_err(|error| Error::Read { offset: base, error })?,
            ids: HashMap::new(),
            of_names: NAMES.of(data, options.shares).saturating_add(data.saturating_mul(NAMES_FOR_EACH_BYTE)),
            listings: Ranges::default(),
            inodes: Ranges::default(),
            most_large: MOST_LARGE.of(data, options.shares),
            known: HashMap::new(),
            known_folders: HashSet::new(),
            folders: Vec::new(),
            memory: MEMORY.of(data, 1),
            is_full: false,
        };
        for what in told {
            reader.teller.damage(base, what)?;
        }
        Ok(reader)
    }

    /// Tells all that is in the image.
    pub(super) fn run(mut self) -> Result<(), Error> {
        let table = self.superblock.inode_table;
        let wrong = |error: io::Error, base: u64| match error.kind() {
            io::ErrorKind::InvalidData => {
                Error::Unreadable { format: NAME, reason: format!("its root cannot be read: {error}") }
            }
            io::ErrorKind::Unsupported => {
                Error::Unsupported { format: NAME, reason: format!("its root cannot be read: {error}") }
            }
            _ => Error::Read { offset: base, error },
        };
        let root = Place::new(table, self.superblock.root).map_err(|error| wrong(error, self.base))?;
        let inode = Inode::read(&mut self.metadata, root).map_err(|error| wrong(error, self.base))?;
        let Content::Folder(names) = inode.content else {
            return Err(wrong(damaged("it is no folder"), self.base));
        };
        self.folders.push(Folder { parent: 0, name: Box::default(), path: 0 });
        let mut entry = self.entry(&inode, root, b".")?;
        entry.kind = Kind::Folder;
        self.teller.entry(entry)?;
        let mut path = Vec::new();
        let mut open: Vec<Open> = self.folder(0, names, &path, 0)?.into_iter().collect();
        while let Some(folder) = open.last_mut() {
            let named = folder.listing.next(&mut self.metadata);
            let place = folder.listing.place();
            let is_over = folder.limit.is_some_and(|limit| place > limit);
            let named = if is_over { Err(damaged("it overlaps that of another folder")) } else { named };
            match named {
                Ok(Some(named)) => {
                    let (number, start, before) = (folder.number, folder.start, path.len());
                    if before > 0 {
                        path.push(b'/');
                    }
                    path.extend_from_slice(&named.name);
                    let of_name = OF_NAME.saturating_add(path.len().min(LONGEST_TARGET) as u64);
                    let Some(left) = self.of_names.checked_sub(of_name) else {
                        let what =
                            format!("{} and all behind it are left out: there are too many names", excerpt(&path));
                        return self.teller.damage(self.base.saturating_add(place.block), what);
                    };
                    self.of_names = left;
                    if let Some((listing, below)) = self.named(number, named, &path)? {
                        self.listings.set(start, place);
                        if let Some(below) = self.folder(below, listing, &path, open.len())? {
                            open.push(Open { path: before, ..below });
                            continue;
                        }
                    }
                    path.truncate(before);
                }
                ended => {
                    self.listings.set(folder.start, place);
                    let before = folder.path;
                    if let Err(error) = ended {
                        let what = format!("{}: the listing of the folder: {}", shown(&path), self.left_out(error)?);
                        self.teller.damage(self.base.saturating_add(place.block), what)?;
                    }
                    open.pop();
                    path.truncate(before);
                    // There are new ones by now.
                    if let Some(folder) = open.last_mut() {
                        folder.limit = self.listings.limit(folder.start);
                    }
                }
            }
        }
        Ok(())
    }

    /// Begins the listing of a folder that was told, if it has one.
    fn folder(&mut self, number: usize, names: Names, path: &[u8], depth: usize) -> Result<Option<Open>, Error> {
        let listing = |start| Listing::new(start, names.length);
        let longest = self.options.limits.path.saturating_sub(LONGEST_NAME);
        let start = Place::new(self.superblock.listing_table, names.reference);
        let wrong = match start {
            Ok(start) if listing(start).is_empty() => return Ok(None),
            Ok(_) if depth >= self.options.limits.path_components || path.len() > longest => {
                "it is left out: it is too deep".to_owned()
            }
            Ok(start) if self.listings.is_free(start) => {
                self.listings.set(start, start);
                let limit = self.listings.limit(start);
                return Ok(Some(Open { number, listing: listing(start), start, limit, path: 0 }));
            }
            Ok(_) => "it overlaps that of another folder".to_owned(),
            Err(error) => error.to_string(),
        };
        self.teller.damage(self.base, format!("{}: the listing of the folder: {wrong}", shown(path)))?;
        Ok(None)
    }

    /// Tells of what has a name in a folder. Of a folder, returns where its listing is, and its number.
    fn named(
        &mut self,
        folder: usize,
        Named { name, inode: reference }: Named,
        path: &[u8],
    ) -> Result<Option<(Names, usize)>, Error> {
        let is_name = !matches!(name.as_slice(), b"." | b"..") && !name.iter().any(|byte| matches!(byte, 0 | b'/'));
        if !is_name {
            self.teller.damage(self.base, format!("{} is left out: that cannot be a name", excerpt(path)))?;
            return Ok(None);
        }
        let read = Place::new(self.superblock.inode_table, reference)
            .and_then(|place| Ok((place, Inode::read(&mut self.metadata, place)?)));
        let (place, inode) = match read {
            Ok(found) => found,
            Err(error) => {
                let what = self.left_out(error)?;
                self.teller.damage(self.base, format!("{} is left out: {what}", excerpt(path)))?;
                return Ok(None);
            }
        };
        let header = self.base.saturating_add(place.block);
        if let Content::Folder(names) = inode.content {
            if !self.has_memory(PER_FOLDER, &name) {
                let what = format!("{} is left out: there are too many folders and hard links", excerpt(path));
                self.teller.damage(header, what)?;
                return Ok(None);
            }
            if !self.known_folders.insert(reference) {
                let what =
                    format!("{} is left out: the folder is in the image at another place already", excerpt(path));
                self.teller.damage(header, what)?;
                return Ok(None);
            }
            let number = self.folders.len();
            self.folders.push(Folder { parent: folder, name: name.into(), path: path.len() });
            let entry = self.entry(&inode, place, path)?;
            self.teller.entry(entry)?;
            return Ok(Some((names, number)));
        }
        let first =
            self.known.get(&reference).map(|(folder, first)| (*folder, first, self.path_length(*folder, first)));
        if let Some((folder, first, 0..=LONGEST_TARGET)) = first {
            let link = self.path_of(folder, first);
            let entry = Entry {
                path: path.to_vec(),
                kind: Kind::HardLink,
                link,
                // Behind what it is a link to.
                header: header.saturating_add(1),
                body: Body { offset: header, ..Body::default() },
                mtime: Time { seconds: inode.time.into(), nanoseconds: 0 },
                mode: (inode.mode & 0o7777).into(),
                ..Entry::default()
            };
            self.metadata.told_one();
            self.teller.entry(entry)?;
            return Ok(None);
        }
        if !self.inodes.is_free(place) {
            let why = match first {
                // With all its blocks under each name it would be told again and again.
                Some(_) => "it is a hard link to what lies too deep",
                None if self.is_full => "there are too many folders and hard links",
                None => "its inode overlaps another one",
            };
            let what = format!("{} is left out: {why}", excerpt(path));
            self.teller.damage(header, what)?;
            return Ok(None);
        }
        let behind = match &inode.content {
            Content::File { size, fragment, .. } => self.contents.list(*size, fragment.is_some()),
            Content::Link(target) => target.len() as u64,
            _ => 0,
        };
        let is_kept = (self.inodes.0.len() as u64) < self.most_large;
        if !is_kept
            && behind > LARGE
            && let Err(error) = self.contents.take_bytes(behind)
        {
            self.teller.damage(header, format!("{} is left out: {error}", excerpt(path)))?;
            return Ok(None);
        }
        let (links, mut end) = (inode.links, inode.end);
        let mut entry = self.entry(&inode, place, path)?;
        if let Content::File { start, size, fragment, mut blocks } = inode.content
            && size > 0
        {
            let within = (&mut blocks, self.inodes.limit(place));
            let mut pieces = self.contents.pieces(&mut self.metadata, (start, size), within, fragment);
            end = blocks;
            entry.body.size = size;
            if i64::try_from(size).is_err() {
                entry.body.size = 0;
                pieces = Err(damaged(format!("it would have {size} bytes")));
            }
            entry.body.pieces = match pieces {
                Ok(pieces) => Some(pieces),
                Err(error) => {
                    let what = self.left_out(error)?;
                    self.teller.damage(header, format!("{} cannot be read: {what}", excerpt(path)))?;
                    (entry.body.size > 0).then(|| vec![Piece::unreadable(header, size)])
                }
            };
        }
        let is_large = end.block != place.block || u64::from(end.byte) > u64::from(place.byte).saturating_add(LARGE);
        if is_large && is_kept {
            self.inodes.set(place, end);
        }
        // One that is large would be told again and again with all its blocks.
        let is_first = !self.known.contains_key(&reference);
        if (links > 1 || is_large) && is_first && self.has_memory(PER_INODE, &name) {
            self.known.insert(reference, (folder, name.into()));
        }
        self.metadata.told_one();
        self.teller.entry(entry)?;
        Ok(None)
    }

    /// What all inodes say.
    fn entry(&mut self, inode: &Inode, place: Place, path: &[u8]) -> Result<Entry, Error> {
        let header = self.base.saturating_add(place.block);
        let [uid, gid] = [self.id(inode.owner, path)?, self.id(inode.group, path)?];
        let limits = &self.options.limits;
        let xattrs = match self.attributes.list(&mut self.metadata, inode.xattrs, limits) {
            Ok(xattrs) => xattrs,
            Err(error) => {
                let what = self.left_out(error)?;
                self.teller
                    .damage(header, format!("{}: its extended attributes are left out: {what}", excerpt(path)))?;
                Vec::new()
            }
        };
        let (kind, link) = match &inode.content {
            Content::Folder(_) => (Kind::Folder, Vec::new()),
            Content::File { .. } => (Kind::File, Vec::new()),
            Content::Link(target) => (Kind::Symlink, target.clone()),
            Content::Other(kind) => (*kind, Vec::new()),
        };
        Ok(Entry {
            path: path.to_vec(),
            kind,
            link,
            xattrs,
            uid,
            gid,
            mode: (inode.mode & 0o7777).into(),
            mtime: Time { seconds: inode.time.into(), nanoseconds: 0 },
            header,
            body: Body { offset: header, ..Body::default() },
            ..Entry::default()
        })
    }

    /// A user or group, by its number in the table; 0 where that cannot be read.
    fn id(&mut self, number: u16, path: &[u8]) -> Result<u64, Error> {
        if let Some(id) = self.ids.get(&number) {
            return Ok(*id);
        }
        let found = if number < self.superblock.ids {
            self.metadata.entry::<4>(self.superblock.id_table, number.into())
        } else {
            Err(damaged(format!("number {number} of {}", self.superblock.ids)))
        };
        let id = match found {
            Ok(id) => u32::from_le_bytes(id).into(),
            Err(error) => {
                let what = self.left_out(error)?;
                let what = format!("{} and others: the owner or group is not known: {what}", shown(path));
                self.teller.damage(self.base, what)?;
                0
            }
        };
        self.ids.insert(number, id);
        Ok(id)
    }

    /// The path of what is called `name` in a folder.
    fn path_of(&self, mut folder: usize, name: &[u8]) -> Vec<u8> {
        let mut names = vec![name];
        // A folder has a larger number than the one that it is in.
        while folder > 0
            && let Some(Folder { parent, name, .. }) = self.folders.get(folder)
        {
            names.push(name);
            folder = *parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    /// How many bytes that path has.
    fn path_length(&self, folder: usize, name: &[u8]) -> usize {
        self.folders.get(folder).map_or(0, |folder| folder.path).saturating_add(name.len()).saturating_add(1)
    }

    /// True if there is memory for one more of what is called `name`. Else a folder is left out, and other names of a
    /// file are files of their own if they have few blocks.
    fn has_memory(&mut self, bytes: usize, name: &[u8]) -> bool {
        let left = self.memory.checked_sub(bytes.saturating_add(name.len()) as u64);
        self.memory = left.unwrap_or(self.memory);
        self.is_full |= left.is_none();
        left.is_some()
    }

    /// What is wrong, of an error that leaves the rest of the image readable.
    fn left_out(&self, error: io::Error) -> Result<String, Error> {
        match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::Unsupported => {
                Ok(error.to_string())
            }
            _ => Err(Error::Read { offset: self.base, error }),
        }
    }
}
