//! Reads an archive: the table of resources, and the tree of each image.

mod solid;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use tarnfs_source::{SharedSource, Slice};

use super::NAME;
use super::dentry::{self, Dentry, Descriptors, FOLDER, NORMAL, READ_ONLY, Wrong};
use super::header::{HEADER, Header, LISTED, Listed, Place};
use crate::clusters::name_of;
use crate::image::{Budget, OfAttributes, Teller, data_of, shown};
use crate::little::{u32_at, u64_at};
use crate::name::{bounded_path, excerpt};
use crate::reparse;
use crate::window::Window;
use crate::{Body, Coder, Device, Entry, Error, Kind, Options, Piece, ReceiveRandom, Step, Xattrs};
use solid::{MOST_SHORT, OF_SHORT_ONE, SOLID_HEADER};

/// Bytes of the tree of an image: those of Windows have some 50 MB, of which a tenth is stored. What is small gives no
/// large one: a tree is held in memory, and an archive may hold any number of archives.
const MOST_TREE: u64 = 256 << 20;
const OF_SMALL_ONE: u64 = 32 << 20;
const FOR_EACH_STORED: u64 = 64;

/// Bytes of the name of an attribute that Linux has.
const LONGEST_NAME: usize = 255;

/// Resources: each takes some 100 bytes of memory. Those that hold others take more, for what decodes them; there is
/// one in each archive that was joined.
const MOST_RESOURCES: u64 = 1 << 20;
const OF_RESOURCE: u64 = 100;
const MOST_SOLID: usize = 1 << 16;

/// What decoding a tree or something short costs at least, as bytes that are read: a decoder is made for it, however
/// few bytes come of it, and any number of names may lead there.
const OF_TREE: u64 = 16 << 10;
const OF_SHORT: u64 = 1 << 10;

/// Bytes of short contents that are kept, as many names lead to the same.
const MOST_KEPT: usize = 64 << 10;

/// Bytes of what Windows keeps for a link.
const LONGEST_LINK: u64 = 16 << 10;

type Hash = [u8; 20];

/// Bytes of a resource.
#[derive(Debug, Clone, Copy)]
struct Blob {
    place: Place,
    part: u16,
    /// The solid resource that it lies in.
    solid: Option<u32>,
}

/// A resource that holds others.
#[derive(Debug)]
struct Solid {
    offset: u64,
    stored: u64,
    /// Bytes that come of it.
    length: u64,
    /// Bytes of a chunk, and how each is compressed, as the codec counts it.
    chunk: u32,
    compression: u32,
    coder: Arc<Coder>,
}

pub(super) fn read(source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
    let mut head = [0; HEADER];
    let read = source.read_at(&mut head, 0).map_err(|error| Error::Read { offset: 0, error })?;
    let header = Header::read(head.get(..read).unwrap_or_default()).filter(|_| read == HEADER);
    let none = || Error::NotThisFormat { format: NAME, reason: "it does not begin as one does".to_owned() };
    let header = header.ok_or_else(none)?;
    let unreadable = |reason: String| Error::Unreadable { format: NAME, reason };
    let needs = |reason: String| Error::Unsupported { format: NAME, reason };
    if !header.is_known() {
        return Err(needs(format!("version {:#x} of the format is not known", header.version)));
    }
    if header.part > 1 {
        let (part, parts) = (header.part, header.parts);
        return Err(needs(format!("it is part {part} of {parts}; the first one says what is in it: open that")));
    }
    let compression = header.compression().ok_or_else(|| needs("its compression is not known".to_owned()))?;
    let data = data_of(&**source);
    let mut reader = Reader {
        source,
        options,
        header,
        compression,
        blobs: HashMap::new(),
        solids: Vec::new(),
        budget: Budget::new(data, options.shares),
        links: HashMap::new(),
        of_links: 0,
        chunks: Budget::new(data, options.shares),
        shorts: HashMap::new(),
        of_shorts: 0,
        ahead: 0,
        kept: HashMap::new(),
        of_kept: 0,
        count: 0,
    };
    let mut tell = Teller::new(receive).with_attributes(OfAttributes::new(data, options.shares));
    if header.is_being_written() {
        tell.damage(0, "it was not written to its end".to_owned())?;
    }
    let images = reader.table(&mut tell)?;
    if images.len() as u64 != u64::from(header.images) {
        let what = format!("it says that it has {} images; the trees of {} are there", header.images, images.len());
        tell.damage(header.table.offset.min(source.len()), what)?;
    }
    reader.may_hold(&images)?;
    let is_one = images.len() == 1;
    let mut first_error = None::<Error>;
    let mut has_told = false;
    for (number, image) in images.iter().enumerate() {
        let number = number.saturating_add(1);
        let prefix = if is_one { String::new() } else { number.to_string() };
        match reader.tree(image) {
            Ok(tree) => {
                has_told = true;
                reader.walk(&tree, prefix.as_bytes(), image.place.offset, &mut tell)?;
            }
            Err(error) if crate::image::is_damage(&error) || error.kind() == io::ErrorKind::Unsupported => {
                let what = format!("the tree of image {number} cannot be read: {error}");
                tell.damage(image.place.offset.min(source.len()), what.clone())?;
                let is_unknown = error.kind() == io::ErrorKind::Unsupported;
                first_error.get_or_insert_with(|| if is_unknown { needs(what) } else { unreadable(what) });
            }
            Err(error) => return Err(Error::Read { offset: image.place.offset, error }),
        }
    }
    match first_error {
        Some(error) if !has_told => Err(error),
        _ => Ok(()),
    }
}

struct Reader<'o> {
    source: &'o SharedSource,
    options: &'o Options,
    header: Header,
    compression: u8,
    blobs: HashMap<Hash, Blob>,
    solids: Vec<Arc<Solid>>,
    budget: Budget,
    /// Where files were told first that have other names, by their numbers and what is in them; bytes of these paths.
    links: HashMap<(u64, Hash), Vec<u8>>,
    of_links: usize,
    /// What may still be decoded of solid resources for short contents.
    chunks: Budget,
    /// Short contents of solid resources that were read ahead, or why they cannot be read; bytes of all of them.
    shorts: HashMap<Hash, Result<Vec<u8>, String>>,
    of_shorts: usize,
    /// Bytes of the tree that may still be looked at ahead of the walk.
    ahead: usize,
    /// Short contents that were decoded, and the bytes of all of them.
    kept: HashMap<Hash, Vec<u8>>,
    of_kept: usize,
    /// What was told.
    count: u64,
}

impl Reader<'_> {
    /// Reads the table of resources: those of images are returned.
    fn table(&mut self, tell: &mut Teller<'_>) -> Result<Vec<Listed>, Error> {
        let unreadable = |reason: String| Error::Unreadable { format: NAME, reason };
        let place = self.header.table;
        let count = place.length.checked_div(LISTED as u64).unwrap_or(0);
        if place.is_compressed() {
            let reason = "its table of resources is compressed".to_owned();
            return Err(Error::Unsupported { format: NAME, reason });
        }
        if count > MOST_RESOURCES {
            return Err(unreadable(format!("its table has {count} resources, more than {MOST_RESOURCES}")));
        }
        let end = place.offset.checked_add(place.length).filter(|end| *end <= self.source.len());
        let end = end.ok_or_else(|| {
            let what = format!("its table of {count} resources ends behind byte {}", self.source.len());
            Error::Read { offset: place.offset, error: io::Error::new(io::ErrorKind::UnexpectedEof, what) }
        })?;
        let mut window = Window::new(&**self.source, &self.options.cancel);
        let (mut at, mut images) = (place.offset, Vec::new());
        // Solid resources in a row, and where each begins among all that come of them.
        let (mut run, mut is_open): (Vec<(u64, u32)>, bool) = (Vec::new(), false);
        for _ in 0..count {
            let bytes = window.bytes(at, end, LISTED).map_err(|error| Error::Read { offset: at, error })?;
            let Some(listed) = Listed::read(bytes) else { break };
            at = at.saturating_add(LISTED as u64);
            let place = listed.place;
            if place.holds_others() {
                if !std::mem::replace(&mut is_open, true) {
                    run.clear();
                }
                let start = run
                    .last()
                    .and_then(|(start, last)| Some(start.saturating_add(self.solids.get(*last as usize)?.length)));
                run.push((start.unwrap_or(0), self.solids.len() as u32));
                if self.solids.len() >= MOST_SOLID {
                    return Err(unreadable(format!("more than {MOST_SOLID} of its resources hold others")));
                }
                let solid = self.solid(place).map_err(|error| Error::Read { offset: place.offset, error })?;
                if solid.length == 0 {
                    tell.damage(place.offset.min(self.source.len()), "a solid resource is not there".to_owned())?;
                }
                self.solids.push(Arc::new(solid));
                continue;
            }
            is_open = false;
            if place.is_metadata() {
                images.push(listed);
                continue;
            }
            let mut blob = Blob { place, part: listed.part, solid: None };
            if place.is_solid() {
                // What is told of it lies in what comes of all of these.
                let behind = run.partition_point(|(start, _)| *start <= place.offset);
                let found = behind.checked_sub(1).and_then(|number| run.get(number));
                blob.solid = Some(found.map_or(u32::MAX, |(_, solid)| *solid));
                blob.place.offset = place.offset.saturating_sub(found.map_or(0, |(start, _)| *start));
                blob.place.length = place.stored;
            } else {
                run.clear();
            }
            self.blobs.insert(listed.hash, blob);
        }
        Ok(images)
    }

    /// What a solid resource is, if it can be one.
    fn solid(&self, place: Place) -> io::Result<Solid> {
        let mut start = [0; SOLID_HEADER as usize];
        let is_there = place.offset.checked_add(place.stored).is_some_and(|end| end <= self.source.len());
        if is_there && place.stored > SOLID_HEADER {
            self.source.read_exact_at(&mut start, place.offset)?;
        }
        let length = u64_at(&start, 0).filter(|length| i64::try_from(*length).is_ok()).unwrap_or(0);
        let [chunk, compression] = [8, 12].map(|at| u32_at(&start, at).unwrap_or(0));
        let decoded_length = Some(length);
        let step = Step { codec: "chunked-solid".to_owned(), decoded_length, ..Step::default() };
        let coder = Arc::new(Coder { steps: vec![step], is_behind_header: None });
        Ok(Solid { offset: place.offset, stored: place.stored, length, chunk, compression, coder })
    }

    fn coder(&self, place: &Place, hash: &Hash) -> Coder {
        let compression = if place.is_compressed() { self.compression } else { 0 };
        let width = if u32::try_from(place.length).is_ok() { 4 } else { 8 };
        // What is not compressed has no chunks.
        let chunk = if compression == 0 { 0 } else { self.header.chunk };
        let properties = [&[compression, width][..], &chunk.to_le_bytes(), hash].concat();
        let step =
            Step { codec: "chunked".to_owned(), properties, decoded_length: Some(place.length), ..Step::default() };
        Coder { steps: vec![step], is_behind_header: None }
    }

    /// Refuses an archive that needs more memory than it may have now, before anything of it is told or decoded.
    fn may_hold(&self, images: &[Listed]) -> Result<(), Error> {
        // A tree, and a chunk, with what is stored of it, and what is kept of short contents.
        let tree = images.iter().map(|image| image.place.length.min(MOST_TREE)).max().unwrap_or_default();
        let chunk = self.solids.iter().map(|solid| solid.length.min(solid.chunk.into())).max().unwrap_or_default();
        let table = (self.blobs.len() as u64).saturating_mul(OF_RESOURCE);
        let is_short =
            |blob: &&Blob| blob.solid.is_some() && blob.place.length <= self.options.limits.xattr_value as u64;
        let shorts =
            self.blobs.values().filter(is_short).map(|blob| blob.place.length.saturating_add(OF_SHORT_ONE as u64));
        let shorts = shorts.fold(0, u64::saturating_add).min(MOST_SHORT as u64);
        let needed = tree.saturating_add(chunk.saturating_mul(5) / 4).saturating_add(table).saturating_add(shorts);
        if needed <= self.options.limits.held {
            return Ok(());
        }
        let what = format!("reading its directory takes {needed} bytes of memory");
        Err(Error::Read { offset: 0, error: io::Error::new(io::ErrorKind::OutOfMemory, what) })
    }

    /// The bytes of the tree of an image.
    fn tree(&mut self, image: &Listed) -> io::Result<Vec<u8>> {
        let place = image.place;
        let of_stored = place.stored.saturating_mul(FOR_EACH_STORED).saturating_add(OF_SMALL_ONE);
        let most = MOST_TREE.min(of_stored);
        if place.length > most {
            return Err(crate::image::damaged(format!("it has {} bytes, more than {most}", place.length)));
        }
        self.budget.take_bytes(place.length.max(OF_TREE))?;
        self.decoded(&self.coder(&place, &image.hash), (place.offset, place.stored), place.length)
    }

    fn decoded(&self, coder: &Coder, (offset, stored): (u64, u64), length: u64) -> io::Result<Vec<u8>> {
        if offset.checked_add(stored).is_none_or(|end| end > self.source.len()) {
            return Err(crate::image::damaged(format!("it lies behind byte {}", self.source.len())));
        }
        let slice: SharedSource = Arc::new(Slice::new(Arc::clone(self.source), offset, stored));
        let all = self.options.decode.decode(coder, slice, length, &|_| true)?;
        if all.len() as u64 == length { Ok(all) } else { Err(crate::image::damaged("it is cut")) }
    }

    /// The bytes of something short; the error says why they cannot be had.
    fn bytes(&mut self, hash: &Hash, most: u64) -> Result<Vec<u8>, String> {
        if *hash == [0; 20] {
            return Ok(Vec::new());
        }
        let blob = *self.blobs.get(hash).ok_or_else(|| self.absent())?;
        let place = blob.place;
        if place.length > most {
            return Err(format!("has {} bytes", place.length));
        }
        if blob.part != self.header.part {
            return Err(self.elsewhere(&blob));
        }
        if blob.solid.is_none() {
            if let Some(kept) = self.kept.get(hash) {
                self.budget.take_bytes(place.length).map_err(|error| error.to_string())?;
                return Ok(kept.clone());
            }
            self.budget.take_bytes(place.length.max(OF_SHORT)).map_err(|error| error.to_string())?;
            let coder = self.coder(&place, hash);
            let bytes = self.decoded(&coder, (place.offset, place.stored), place.length);
            let bytes = bytes.map_err(|error| error.to_string())?;
            if self.of_kept.saturating_add(bytes.len()) > MOST_KEPT {
                self.kept.clear();
                self.of_kept = 0;
            }
            // Of one without bytes, its hash takes some, too.
            self.of_kept = self.of_kept.saturating_add(bytes.len()).saturating_add(size_of::<Hash>());
            self.kept.insert(*hash, bytes.clone());
            return Ok(bytes);
        }
        self.budget.take_bytes(place.length).map_err(|error| error.to_string())?;
        self.short(hash)
    }

    /// Why something is not in the table: each part of an archive has its own.
    fn absent(&self) -> String {
        match self.header.parts {
            0 | 1 => "is not in the archive".to_owned(),
            parts => format!(
                "lies in another part of {parts} (a file with its number in the name, x2.swm), which is not read"
            ),
        }
    }

    fn elsewhere(&self, blob: &Blob) -> String {
        let (part, parts) = (blob.part, self.header.parts);
        format!("lies in part {part} of {parts}, a file with that number in its name (x{part}.swm), which is not read")
    }

    /// Tells all that is in the tree of an image, which lies at byte `at`.
    fn walk(&mut self, tree: &[u8], prefix: &[u8], at: u64, tell: &mut Teller<'_>) -> Result<(), Error> {
        let there = self.source.len();
        let Some((root, descriptors)) = dentry::start(tree) else {
            return tell.damage(at.min(there), "the tree of an image has no security descriptors that fit".to_owned());
        };
        self.links.clear();
        self.of_links = 0;
        let mut path = prefix.to_vec();
        // Each file takes so many bytes of the tree, so a ring comes to an end.
        let mut left = tree.len();
        // What goes ahead begins behind where it ended before: each file is looked at once, and few of them again.
        self.ahead = tree.len().saturating_mul(2);
        let mut open: Vec<(u64, usize)> = Vec::new();
        match dentry::read(tree, root, &mut left) {
            Ok(Some((dentry, _))) => {
                self.read_ahead(&dentry, tree, &[], prefix.len())?;
                let path = if path.is_empty() { b"." } else { path.as_slice() };
                self.named(&dentry, (tree, &descriptors), path, at, tell)?;
                if dentry.below != 0 {
                    open.push((dentry.below, prefix.len()));
                }
            }
            Ok(None) => return tell.damage(at.min(there), "the tree of an image has no root".to_owned()),
            Err(what) => return tell.damage(at.min(there), format!("the root of an image: {what}")),
        }
        while let Some((next, length)) = open.last_mut() {
            self.options.cancel.check().map_err(Error::Receiver)?;
            path.truncate(*length);
            let (dentry, behind) = match dentry::read(tree, *next, &mut left) {
                Ok(Some(found)) => found,
                Ok(None) => {
                    open.pop();
                    continue;
                }
                Err(what @ Wrong::TooMany) => return tell.damage(at.min(there), what.to_string()),
                Err(what) => {
                    tell.damage(at.min(there), format!("{}: some of its names are lost: {what}", shown(&path)))?;
                    open.pop();
                    continue;
                }
            };
            *next = behind;
            let Some(name) = name_of(dentry.name.iter().copied()) else {
                tell.damage(at.min(there), format!("{}: a file without a name was left out", shown(&path)))?;
                continue;
            };
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend(name);
            let limits = &self.options.limits;
            if path.len() > limits.path || open.len() >= limits.path_components {
                tell.damage(at.min(there), format!("{} is left out: its path is too long", excerpt(&path)))?;
                continue;
            }
            if let Err(error) = self.budget.take_bytes(path.len() as u64) {
                // Nor is there room for what comes behind it.
                return tell.damage(at.min(there), format!("from {} on, names are left out: {error}", excerpt(&path)));
            }
            self.read_ahead(&dentry, tree, &open, path.len())?;
            let is_folder = self.named(&dentry, (tree, &descriptors), &path, at, tell)?;
            if is_folder && dentry.below != 0 {
                open.push((dentry.below, path.len()));
            }
        }
        Ok(())
    }

    /// Tells what has a name; true of a folder.
    fn named(
        &mut self,
        dentry: &Dentry,
        (tree, descriptors): (&[u8], &Descriptors),
        path: &[u8],
        at: u64,
        tell: &mut Teller<'_>,
    ) -> Result<bool, Error> {
        let limits = self.options.limits;
        self.count = self.count.saturating_add(1);
        let header = at.saturating_add(self.count).min(self.source.len());
        let mut entry = Entry {
            path: bounded_path(path.to_vec(), limits.path),
            mtime: dentry.written.unwrap_or_default(),
            atime: dentry.accessed,
            header,
            body: Body { offset: header, ..Body::default() },
            ..Entry::default()
        };
        let (kept, hash) = dentry.unnamed();
        let is_folder = dentry.attributes & FOLDER != 0;
        let is_read_only = dentry.attributes & READ_ONLY != 0;
        (entry.kind, entry.mode) = match (is_folder, is_read_only) {
            (true, _) => (Kind::Folder, 0o755),
            (false, true) => (Kind::File, 0o444),
            (false, false) => (Kind::File, 0o644),
        };
        if let Some(unix) = dentry.unix {
            (entry.uid, entry.gid, entry.mode) = (unix.uid.into(), unix.gid.into(), unix.mode & 0o7777);
            let device =
                Device { major: unix.device >> 8 & 0xfff, minor: unix.device & 0xff | unix.device >> 12 & 0xf_ff00 };
            if !is_folder {
                entry.kind = match unix.mode & 0o170_000 {
                    0o010_000 => Kind::Fifo,
                    0o020_000 => Kind::CharacterDevice(device),
                    0o060_000 => Kind::BlockDevice(device),
                    0o140_000 => Kind::Socket,
                    _ => Kind::File,
                };
            }
        }
        let (mut reparse, mut is_lost) = (None, false);
        if dentry.has_kept() {
            let data = self.bytes(&kept, LONGEST_LINK);
            let data = data.map(|data| (reparse::target(dentry.reparse, &data), data));
            match data {
                Ok((Some(target), _)) => {
                    (entry.kind, entry.mode) = (Kind::Symlink, 0o777);
                    entry.link = bounded_path(target, limits.path);
                }
                Ok((None, data)) if !dentry.is_link() => reparse = Some(reparse::with_head(dentry.reparse, &data)),
                wrong => {
                    let why = wrong.err().unwrap_or_else(|| "is none".to_owned());
                    is_lost = dentry.is_link();
                    let what = if is_lost { "is a link whose target" } else { "is one for which what Windows keeps" };
                    tell.damage(header, format!("'{}' {what} {why}", excerpt(path)))?;
                }
            }
        }
        if dentry.group != 0 && entry.kind == Kind::File {
            if let Some(first) = self.links.get(&(dentry.group, hash)) {
                // A long path may have any number of short other names.
                if self.budget.take_bytes(first.len() as u64).is_err() {
                    tell.damage(header, format!("'{}' is left out: there are too many names", excerpt(path)))?;
                    return Ok(false);
                }
                (entry.kind, entry.link) = (Kind::HardLink, first.clone());
                tell.entry(entry)?;
                return Ok(false);
            }
            // Of more than that, each is a file of its own.
            self.of_links = self.of_links.saturating_add(path.len()).saturating_add(64);
            if self.of_links <= limits.waiting_names {
                self.links.insert((dentry.group, hash), path.to_vec());
            }
        }
        if entry.kind == Kind::File && (is_lost || hash != [0; 20]) {
            let found = if is_lost { Err((0, String::new())) } else { self.piece(&hash) };
            let found = found.and_then(|(size, piece)| {
                // What is stored has the keys, too.
                let why = "is encrypted by Windows (EFS), which alone decrypts it";
                if dentry.is_encrypted() { Err((size, why.to_owned())) } else { Ok((size, piece)) }
            });
            let (size, piece) = match found {
                Ok(found) => found,
                Err((size, why)) => {
                    // Of a link it was told above.
                    if !why.is_empty() {
                        tell.damage(header, format!("what is in '{}' {why}", excerpt(path)))?;
                    }
                    // One byte that cannot be read, where nothing tells how many there are.
                    let size = size.max(1);
                    (size, Piece::unreadable(header, size))
                }
            };
            if size > 0 {
                (entry.body.size, entry.body.pieces) = (size, Some(vec![piece]));
            }
        }
        let is_symlink = entry.kind == Kind::Symlink;
        entry.xattrs = self.xattrs(dentry, (tree, descriptors), is_symlink, path, header, tell)?;
        let reparse = reparse.filter(|value| value.len() <= limits.xattr_value && entry.xattrs.len() < limits.xattrs);
        entry.xattrs.extend(reparse.map(|value| (b"user.ntfs.reparse".to_vec(), value)));
        let is_folder = entry.kind == Kind::Folder;
        tell.entry(entry)?;
        Ok(is_folder)
    }

    /// Where what has that hash lies, and how long it is; the error says how long it would be, and why it is not there.
    fn piece(&self, hash: &Hash) -> Result<(u64, Piece), (u64, String)> {
        let blob = self.blobs.get(hash).ok_or_else(|| (0, self.absent()))?;
        let place = blob.place;
        let size = place.length;
        if i64::try_from(size).is_err() {
            return Err((0, format!("would have {size} bytes")));
        }
        if blob.part != self.header.part {
            return Err((size, self.elsewhere(blob)));
        }
        let Some(solid) = blob.solid else {
            if place.offset.checked_add(place.stored).is_none_or(|end| end > self.source.len()) {
                return Err((size, format!("lies behind the end of the archive at byte {}", self.source.len())));
            }
            let coder = Some(Arc::new(self.coder(&place, hash)));
            let (offset, stored) = (place.offset, place.stored);
            return Ok((size, Piece { length: size, offset, stored, coder, decoded: size, ..Piece::default() }));
        };
        let solid = self
            .solids
            .get(solid as usize)
            .filter(|solid| place.offset.checked_add(size).is_some_and(|end| end <= solid.length));
        let solid = solid.ok_or((size, "lies behind the end of its solid resource".to_owned()))?;
        // The resource has no check of its own, but each file in it.
        let hashed = Step {
            codec: "hashed".to_owned(),
            properties: hash.to_vec(),
            decoded_length: Some(size),
            ..Step::default()
        };
        let coder = Coder { steps: [&solid.coder.steps[..], &[hashed]].concat(), is_behind_header: None };
        let piece = Piece {
            length: size,
            offset: solid.offset,
            stored: solid.stored,
            coder: Some(Arc::new(coder)),
            decoded: solid.length,
            skip: place.offset,
            ..Piece::default()
        };
        Ok((size, piece))
    }

    fn xattrs(
        &mut self,
        dentry: &Dentry,
        (tree, descriptors): (&[u8], &Descriptors),
        is_symlink: bool,
        path: &[u8],
        header: u64,
        tell: &mut Teller<'_>,
    ) -> Result<Xattrs, Error> {
        let mut xattrs = Xattrs::new();
        let bytes = tree.get(dentry.xattrs.clone());
        let is_whole = bytes.is_some_and(|bytes| self.stored_xattrs(bytes, is_symlink, &mut xattrs));
        if !is_whole {
            tell.damage(header, format!("'{}': some of its extended attributes are left out", excerpt(path)))?;
        }
        // Linux has no such attributes of links.
        if is_symlink {
            return Ok(xattrs);
        }
        let mut add = |name: &str, value: Vec<u8>| xattrs.push((format!("user.{name}").into_bytes(), value));
        if dentry.attributes & !(FOLDER | NORMAL) != 0 {
            add("ntfs.attributes", format!("{:#010x}", dentry.attributes).into_bytes());
        }
        if dentry.created != 0 && dentry.unix.is_none() {
            add("ntfs.created", dentry.created.to_string().into_bytes());
        }
        let limits = self.options.limits;
        let short = name_of(dentry.short_name.iter().copied()).filter(|short| short.len() <= limits.xattr_value);
        let mut paid = Ok(());
        if let Some(short) = short {
            match self.budget.take_bytes(short.len() as u64) {
                Ok(()) => add("ntfs.short_name", short),
                wrong => paid = wrong,
            }
        }
        let descriptor = dentry.security.and_then(|number| descriptors.get(tree, number));
        let descriptor = descriptor.filter(|bytes| !bytes.is_empty() && bytes.len() <= limits.xattr_value);
        // Any number of files may share one.
        if let Some(bytes) = descriptor {
            match self.budget.take_bytes(bytes.len() as u64) {
                Ok(()) => add("ntfs.security", bytes.to_vec()),
                wrong => paid = wrong,
            }
        }
        if let Err(why) = paid {
            tell.damage(header, format!("'{}': attributes of Windows are left out: {why}", excerpt(path)))?;
        }
        let mut lost = usize::from(dentry.lost);
        let mut sum = xattrs.iter().map(|(name, value)| name.len().saturating_add(value.len())).sum::<usize>();
        for stream in dentry.streams.iter().filter(|stream| !stream.name.is_empty()) {
            let Some(name) = name_of(stream.name.iter().copied()) else {
                lost = lost.saturating_add(1);
                continue;
            };
            let full = [b"user.", name.as_slice()].concat();
            let room = limits.xattr_value.saturating_mul(16).saturating_sub(sum);
            let fits = full.len() <= LONGEST_NAME.min(room) && xattrs.len() < limits.xattrs;
            if !fits || self.budget.take_bytes(full.len() as u64).is_err() {
                lost = lost.saturating_add(1);
                continue;
            }
            match self.bytes(&stream.hash, limits.xattr_value.min(room.saturating_sub(full.len())) as u64) {
                Ok(value) => {
                    sum = sum.saturating_add(full.len()).saturating_add(value.len());
                    xattrs.push((full, value));
                }
                Err(why) => {
                    let what = format!("'{}': what is in its stream '{}' {why}", excerpt(path), excerpt(&name));
                    tell.damage(header, what)?;
                }
            }
        }
        if lost > 0 {
            let what =
                format!("'{}': {lost} of its streams are left out, for their names or as too many", excerpt(path));
            tell.damage(header, what)?;
        }
        Ok(xattrs)
    }

    /// Adds the extended attributes that are stored as such: under their names, where Linux has such, as wimlib stores
    /// those of Unix; those of Windows have others. False if some are left out.
    fn stored_xattrs(&mut self, bytes: &[u8], is_symlink: bool, xattrs: &mut Xattrs) -> bool {
        const SPACES: [&[u8]; 4] = [b"user.", b"security.", b"system.", b"trusted."];
        let limits = self.options.limits;
        let (mut rest, mut is_whole, mut sum) = (bytes, true, 0_usize);
        while let Some((name, value, behind)) = dentry::xattr(rest).filter(|(name, ..)| !name.is_empty()) {
            rest = behind;
            let is_of_linux = SPACES.iter().any(|space| name.starts_with(space));
            let name = if is_of_linux { name.to_vec() } else { [b"user.ntfs.ea.", name].concat() };
            // Linux has no such attributes of links.
            if is_symlink && name.starts_with(b"user.") {
                continue;
            }
            let taken = name.len().saturating_add(value.len());
            let all = sum.saturating_add(taken);
            let fits = name.len() <= LONGEST_NAME
                && !name.contains(&0)
                && value.len() <= limits.xattr_value
                && all <= limits.xattr_value.saturating_mul(16)
                && xattrs.len() < limits.xattrs;
            if fits && self.budget.take_bytes(taken as u64).is_ok() {
                sum = all;
                xattrs.push((name, value.to_vec()));
            } else {
                is_whole = false;
            }
        }
        is_whole && rest.iter().all(|byte| *byte == 0)
    }
}
