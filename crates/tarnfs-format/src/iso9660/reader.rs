//! Walks the folders of an image from its root on, and tells what is in them.

use std::collections::{HashMap, HashSet};
use std::io;

use tarnfs_source::{Cancel, Source};

use super::NAME;
use super::descriptor::{self, SECTOR, Tree, Volume};
use super::names::Names;
use super::record::Record;
use super::rock_ridge::{self, Area, Fields, Posix};
use crate::boot::{self, FILE_MODE, FOLDER_MODE};
use crate::image::{BYTES, PARTS, Quota, Teller, damaged, data_of, shown};
use crate::inodes::{LONGEST_TARGET, Memory};
use crate::name::excerpt;
use crate::window::Window;
use crate::{Body, Device, Entry, Error, Event, Kind, Options, Piece, ReceiveRandom, Time};

/// Bytes that are read at once: listings stand close together.
const AT_ONCE: usize = 64 << 10;

/// Bits of a mode that tell the kind, and those of a symbolic link.
const TYPE: u32 = 0o170_000;
const SYMLINK: u32 = 0o120_000;

/// Bytes of the smallest block.
const SMALLEST_BLOCK: u64 = 512;

/// Bytes of a name: 103 characters of Joliet may be more than Linux takes.
const LONGEST_NAME: usize = 1024;

/// Bytes of the path of a folder: each record in it has that once more, and may itself have 34 bytes.
const LONGEST_PATH: usize = 16 << 10;

/// Bytes of memory for a folder that was told, and for a file that may be met again, beside its path.
const PER_FOLDER: usize = 32;
const PER_FILE: usize = 128;

/// Extents of one file: 64 MiB of memory. Of an interleaved file each unit is one.
const MOST_EXTENTS: u64 = 1 << 20;

/// Parts of all files, and one more for so many bytes of the image: any number of records may share a table of them.
/// Holes do not count as bytes of the image: it may have any length for those.
const PARTS_OF_ALL: Quota = Quota { most: 1 << 20, ..PARTS };
const BYTES_FOR_EACH_PART: u64 = 16;

/// Bytes that fields of all records may have outside of the listings, and so many more for each byte of the image. Any
/// number of records may share them.
const OUTSIDE: Quota = Quota { most: 256 << 20, ..BYTES };
const OUTSIDE_FOR_EACH_BYTE: u64 = 4;

/// Bytes of the attributes of all files beside as many as the image has: records that share areas may each begin these
/// otherwise, and all of it goes into an index.
const OF_ATTRIBUTES: u64 = 1 << 20;

/// One pass over one image.
pub(super) struct Reader<'run> {
    source: &'run dyn Source,
    options: &'run Options,
    teller: Teller<'run>,
    volume: Volume,
    tree: Tree,
    names: Names,
    /// Bytes of each record that are not of Rock Ridge; `None` where there is none.
    skipped: Option<usize>,
    window: Window<'run>,
    /// For fields that stand outside of the listings, which so are not read again and again.
    areas: Window<'run>,
    /// Where the listings of folders begin that were told.
    folders: HashSet<u64>,
    /// Files that have several names, and the first path and header of each.
    known: HashMap<File, (Box<[u8]>, u64)>,
    memory: Memory,
    /// Bytes of listings that may still be read, and of fields outside of them.
    of_listings: u64,
    outside: u64,
    /// Bytes that attributes of all files may still have.
    of_attributes: u64,
    /// Parts that files may still lie in.
    parts: u64,
    left_out: LeftOut,
    /// Where the content of files begins that may be booted, and how long they are.
    boot: HashMap<u64, u64>,
    /// Names that the folder of these cannot have.
    like_boot: boot::Taken,
}

/// What is in an image and is not told.
#[derive(Debug, Clone, Copy, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is left out or not, whatever the others are")]
pub(super) struct LeftOut {
    /// That files are hidden.
    pub(super) hidden: bool,
    pub(super) access_lists: bool,
    /// Files of another system that go with a file of the same name.
    pub(super) associated: bool,
    /// Attributes that have no place in a file system, or are too long.
    pub(super) attributes: bool,
}

/// True if the tree that is shown has modes, owners and links.
pub(super) fn has_rock_ridge(source: &dyn Source) -> io::Result<bool> {
    let Some(tree) = descriptor::find(source, 1, &Cancel::default())?.and_then(|volume| volume.primary) else {
        return Ok(false);
    };
    let mut bytes = vec![0; SECTOR as usize];
    let read = source.read_at(&mut bytes, tree.root.0.saturating_mul(tree.block))?;
    Ok(of_rock_ridge(bytes.get(..read).unwrap_or_default()).is_some())
}

/// Of a root that has Rock Ridge, how many bytes in each record are not of it.
fn of_rock_ridge(root: &[u8]) -> Option<usize> {
    Record::parse(root).and_then(|record| rock_ridge::skipped(record.system_use))
}

/// What a file is known by, whatever its name.
#[derive(Debug, PartialEq, Eq, Hash)]
struct File {
    start: u64,
    length: u64,
    /// Of what is behind the first extent.
    extents: usize,
    last: u64,
    /// Its length if it is compressed, and the units and gaps of the first extent.
    stored_as: (Option<u64>, u64, u64),
    inode: Option<u32>,
    mode: u32,
    owner: (u32, u32),
}

/// A folder whose listing is being read.
struct Open {
    at: u64,
    end: u64,
    /// Bytes of the path of the folder that it is in.
    path: usize,
}

/// A record, and the further extents of its file.
struct Found {
    /// Byte at which the record stands.
    header: u64,
    name: Vec<u8>,
    is_folder: bool,
    time: Option<Time>,
    fields: Fields,
    extents: Vec<Extent>,
    /// Another extent of it would follow, and does not.
    is_cut: bool,
}

/// A run of a file, or one of several with the same gaps between them.
#[derive(Debug, Clone, Copy)]
struct Extent {
    start: u64,
    length: u64,
    /// Bytes that lie together, and bytes between them; 0 where all do.
    unit: u64,
    gap: u64,
}

impl<'run> Reader<'run> {
    pub(super) fn open(
        source: &'run dyn Source,
        options: &'run Options,
        receive: &'run mut ReceiveRandom<'run>,
    ) -> Result<Self, Error> {
        let first = descriptor::FIRST.saturating_mul(SECTOR);
        let failed = |error: io::Error| Error::Read { offset: first, error };
        let reason = "there is no volume descriptor".to_owned();
        let volume = descriptor::find(source, options.shares, &options.cancel).map_err(failed)?;
        let volume = volume.ok_or(Error::NotThisFormat { format: NAME, reason })?;
        let mut window = Window::new(source, &options.cancel).with(AT_ONCE);
        let mut skipped = None;
        if let Some(tree) = volume.primary {
            let at = tree.root.0.saturating_mul(tree.block);
            let record = readable(window.bytes(at, u64::MAX, SECTOR as usize)).map_err(failed)?;
            skipped = record.and_then(of_rock_ridge);
        }
        let primary = volume.primary.map(|tree| (tree, Names::Bytes));
        let trees = [
            primary.filter(|_| skipped.is_some()),
            volume.joliet.map(|tree| (tree, Names::Joliet)),
            volume.enhanced.map(|tree| (tree, Names::Bytes)),
            primary,
        ];
        let reason = "none of its volume descriptors has a root".to_owned();
        let (tree, names) = trees.into_iter().flatten().next().ok_or(Error::Unreadable { format: NAME, reason })?;
        let data = data_of(source);
        Ok(Self {
            source,
            options,
            teller: Teller::new(receive),
            volume,
            tree,
            names,
            skipped,
            window,
            areas: Window::growing(source),
            folders: HashSet::new(),
            known: HashMap::new(),
            memory: Memory::of_image(data),
            of_listings: data,
            outside: OUTSIDE.of(data, options.shares).saturating_add(data.saturating_mul(OUTSIDE_FOR_EACH_BYTE)),
            of_attributes: data.saturating_add(OF_ATTRIBUTES.checked_div(options.shares).unwrap_or(OF_ATTRIBUTES)),
            parts: PARTS_OF_ALL.of(data, options.shares).saturating_add(data / BYTES_FOR_EACH_PART),
            left_out: LeftOut::default(),
            boot: HashMap::new(),
            like_boot: boot::Taken::default(),
        })
    }

    /// Tells all that is in the image. Returns what it has beside that.
    pub(super) fn run(mut self) -> Result<LeftOut, Error> {
        if !self.volume.label.is_empty() {
            self.teller.event(Event::Label(self.volume.label.clone()))?;
        }
        let images = match self.volume.boot {
            Some(sector) => match boot::images(self.source, sector) {
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    let offset = sector.saturating_mul(SECTOR);
                    self.teller.damage(offset, format!("what a computer boots from is left out: {error}"))?;
                    Vec::new()
                }
                images => images.map_err(|error| self.failed(error))?,
            },
            None => Vec::new(),
        };
        self.boot = images.iter().map(|image| (image.offset, 0)).collect();
        let (block, length) = self.tree.root;
        let at = self.byte(block);
        let root = Found {
            header: at.min(self.source.len()),
            name: b".".to_vec(),
            is_folder: true,
            time: None,
            fields: Fields::default(),
            extents: vec![Extent { start: at, length, unit: 0, gap: 0 }],
            is_cut: false,
        };
        let (_, root) = self.of_itself(root)?;
        let entry = self.entry(&root, b".");
        self.teller.entry(entry)?;
        let mut path = Vec::new();
        let mut open: Vec<Open> = self.folder((at, length), &path, 0)?.into_iter().collect();
        while let Some(folder) = open.last_mut() {
            let Some(found) = self.next(folder, &path)? else {
                path.truncate(folder.path);
                open.pop();
                continue;
            };
            let before = path.len();
            if before > 0 {
                path.push(b'/');
            } else {
                self.like_boot.note(&found.name);
            }
            path.extend_from_slice(&found.name);
            if let Some(listing) = self.told(found, &path)?
                && let Some(below) = self.folder(listing, &path, open.len())?
            {
                open.push(Open { path: before, ..below });
                continue;
            }
            path.truncate(before);
        }
        for entry in boot::entries(&images, &self.boot, &self.like_boot, self.source.len()) {
            self.teller.entry(entry)?;
        }
        Ok(self.left_out)
    }

    /// The byte at which a block begins.
    fn byte(&self, block: u64) -> u64 {
        block.saturating_mul(self.tree.block)
    }

    /// Begins the listing of a folder, which lies at a byte and has that many.
    fn folder(&mut self, (at, length): (u64, u64), path: &[u8], depth: usize) -> Result<Option<Open>, Error> {
        let options = self.options;
        let limits = &options.limits;
        let wrong = if length == 0 {
            return Ok(None);
        } else if depth >= limits.path_components
            || path.len().saturating_add(limits.name) >= limits.path.min(LONGEST_PATH)
        {
            "it is left out: it is too deep"
        } else if at >= self.source.len() {
            "it lies behind the end of the image"
        } else if self.bytes(at, 1)?.is_some_and(|bytes| bytes.starts_with(&[0])) {
            // A listing begins with a record of its folder.
            "it is not there"
        } else if self.folders.contains(&at) {
            "it is left out: it is that of another folder"
        } else if !self.memory.take(PER_FOLDER) {
            "it is left out: there are too many folders and hard links"
        } else {
            self.folders.insert(at);
            return Ok(Some(Open { at, end: at.saturating_add(length), path: 0 }));
        };
        self.teller
            .damage(at.min(self.source.len()), format!("{}: the listing of the folder: {wrong}", shown(path)))?;
        Ok(None)
    }

    /// Up to `length` bytes of a listing; `None` where they cannot be decoded.
    fn bytes(&mut self, at: u64, length: u64) -> Result<Option<&[u8]>, Error> {
        readable(self.window.bytes(at, u64::MAX, length as usize)).map_err(|error| Error::Read { offset: at, error })
    }

    /// The next file of a folder, with all its extents; `None` at the end of its listing.
    fn next(&mut self, folder: &mut Open, path: &[u8]) -> Result<Option<Found>, Error> {
        let mut found: Option<Found> = None;
        // The name of a file of which another extent follows, as it is stored.
        let mut goes_on = Vec::new();
        loop {
            if let Some(cut) = &mut found {
                // Until the next record of that name has been read.
                cut.is_cut = true;
            }
            let at = folder.at;
            let left = SECTOR.saturating_sub(at % SECTOR);
            let left = left.min(folder.end.saturating_sub(at)).min(self.source.len().saturating_sub(at));
            if left == 0 {
                if at < folder.end {
                    let what = format!("{}: the listing of the folder is cut", shown(path));
                    folder.end = at;
                    self.teller.damage(at, what)?;
                }
                return Ok(found);
            }
            if at.is_multiple_of(SMALLEST_BLOCK) {
                self.options.cancel.check().map_err(|error| self.failed(error))?;
            }
            let bytes = match self.window.bytes(at, u64::MAX, left as usize) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    folder.at = at.saturating_add(left);
                    self.teller.damage(at, format!("{}: {left} bytes of the listing: {error}", shown(path)))?;
                    continue;
                }
                Err(error) => return Err(Error::Read { offset: at, error }),
            };
            let length = u64::from(bytes.first().copied().unwrap_or_default());
            // A hole may have any length.
            let data = if length == 0 { self.source.next_data(at).unwrap_or(self.source.len()) } else { at };
            if data > at.saturating_add(left) {
                // In the same sector they may lie behind the listing, which has ended then.
                let start = (data / SECTOR).saturating_mul(SECTOR);
                folder.at = start.max(at.saturating_add(left)).min(folder.end);
                continue;
            }
            let counted = if length == 0 { left } else { length };
            let Some(rest) = self.of_listings.checked_sub(counted) else {
                folder.end = at;
                self.teller.damage(at, format!("{}: listings overlap; the rest is left out", shown(path)))?;
                return Ok(found);
            };
            self.of_listings = rest;
            if length == 0 {
                folder.at = at.saturating_add(left);
                continue;
            }
            let Some(record) = Record::parse(bytes) else {
                folder.at = at.saturating_add(left);
                self.teller.damage(at, format!("{}: no record of a file; {left} bytes were skipped", shown(path)))?;
                continue;
            };
            if found.is_some()
                && !record.is_associated()
                && (record.name != goes_on || record.is_folder() || record.is_self_or_parent())
            {
                // Another file begins.
                return Ok(found);
            }
            folder.at = at.saturating_add(length);
            self.left_out.associated |= record.is_associated();
            if record.is_self_or_parent() || record.is_associated() {
                continue;
            }
            self.left_out.hidden |= record.is_hidden();
            let block = self.tree.block;
            let extent = Extent {
                start: record.start().saturating_mul(block),
                length: record.length,
                unit: u64::from(record.unit).saturating_mul(block),
                gap: u64::from(record.gap).saturating_mul(block),
            };
            let is_whole = !record.goes_on() || record.is_folder();
            if let Some(found) = &mut found {
                // One more than there may be: then it cannot be read.
                if found.extents.len() as u64 <= MOST_EXTENTS {
                    found.extents.push(extent);
                }
                if is_whole {
                    found.is_cut = false;
                }
            } else {
                goes_on = record.name.to_vec();
                let name = self.names.read(record.name, record.is_folder());
                let (time, is_folder) = (record.time, record.is_folder());
                let system_use = record.system_use.to_vec();
                let fields = self.fields(&system_use, at, path)?;
                if fields.is_relocated {
                    continue;
                }
                let name = fields.name.clone().unwrap_or(name);
                let extents = vec![extent];
                found = Some(Found { header: at, name, is_folder, time, fields, extents, is_cut: false });
            }
            if is_whole {
                return Ok(found);
            }
        }
    }

    /// What stands behind a name.
    fn fields(&mut self, system_use: &[u8], at: u64, path: &[u8]) -> Result<Fields, Error> {
        let Some(skipped) = self.skipped.filter(|_| self.names == Names::Bytes) else { return Ok(Fields::default()) };
        let system_use = system_use.get(skipped..).unwrap_or_default();
        let (block, window, outside) = (self.tree.block, &mut self.areas, &mut self.outside);
        let (mut fields, read) = rock_ridge::read(system_use, |Area { block: number, offset, length }| {
            let left = outside.checked_sub(length.into());
            *outside = left.ok_or_else(|| damaged("too much of all files lies outside of the folders"))?;
            let at = u64::from(number).saturating_mul(block).saturating_add(offset.into());
            window.bytes(at, u64::MAX, length as usize).map(<[u8]>::to_vec)
        });
        match read {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                self.teller.damage(at, format!("{}: attributes of a file in it: {error}", shown(path)))?;
            }
            Err(error) => return Err(Error::Read { offset: at, error }),
        }
        let weight = fields.xattrs.iter().map(|(name, value)| name.len().saturating_add(value.len()) as u64);
        if let Some(left) = self.of_attributes.checked_sub(weight.sum()) {
            self.of_attributes = left;
        } else {
            fields.xattrs.clear();
            let what = format!("{}: attributes of a file in it: all files have too many", shown(path));
            self.teller.damage(at, what)?;
        }
        self.left_out.access_lists |= fields.has_access_list;
        self.left_out.attributes |= fields.has_lost_attributes
            || fields.xattrs.iter().any(|(_, value)| value.len() > self.options.limits.xattr_value);
        Ok(fields)
    }

    /// What a folder says of itself in the first record of its listing. Returns where that is, and `found` with these
    /// attributes.
    fn of_itself(&mut self, found: Found) -> Result<((u64, u64), Found), Error> {
        let (at, told) = found.extents.first().map_or((0, 0), |extent| (extent.start, extent.length));
        let is_it = |record: &Record<'_>| record.is_folder() && record.is_self_or_parent();
        let Some(record) = self.bytes(at, SECTOR)?.and_then(Record::parse).filter(is_it) else {
            return Ok(((at, told), found));
        };
        let (length, time, system_use) = (record.length, record.time, record.system_use.to_vec());
        // The root's first record begins with the field that says how much is skipped in the others.
        let all = system_use.iter().position(|byte| *byte == b'S').filter(|at| matches!(at, 0 | 14)).unwrap_or(0);
        let skipped = self.skipped.filter(|_| rock_ridge::skipped(&system_use).is_none()).unwrap_or(all);
        let shown =
            [vec![0; self.skipped.unwrap_or(0)], system_use.get(skipped..).unwrap_or_default().to_vec()].concat();
        let fields = self.fields(&shown, at, &found.name)?;
        let fields = Fields { name: None, child: None, is_relocated: false, ..fields };
        Ok(((at, length), Found { time, fields, ..found }))
    }

    /// Tells of what was found. Of a folder, returns where its listing is.
    fn told(&mut self, found: Found, path: &[u8]) -> Result<Option<(u64, u64)>, Error> {
        let is_name = !matches!(&found.name[..], b"" | b"." | b"..")
            && found.name.len() <= LONGEST_NAME
            && !found.name.iter().any(|byte| matches!(byte, 0 | b'/'));
        if !is_name || path.len() > self.options.limits.path {
            self.teller.damage(found.header, format!("{} is left out: that cannot be a name", excerpt(path)))?;
            return Ok(None);
        }
        if let Some(block) = found.fields.child {
            // What lies too deep for the standard is elsewhere, and has its attributes there.
            let at = self.byte(block);
            let extents = vec![Extent { start: at, length: SECTOR, unit: 0, gap: 0 }];
            let (listing, folder) = self.of_itself(Found { is_folder: true, extents, ..found })?;
            let entry = self.entry(&folder, path);
            self.teller.entry(entry)?;
            return Ok(Some(listing));
        }
        let mut entry = self.entry(&found, path);
        if entry.kind == Kind::File && found.fields.posix.is_some_and(|posix| posix.mode & TYPE == SYMLINK) {
            let what = format!("{}: a symbolic link without a target is shown as a file", excerpt(path));
            self.teller.damage(found.header, what)?;
        }
        if found.is_folder {
            self.teller.entry(entry)?;
            return Ok(found.extents.first().map(|extent| (extent.start, extent.length)));
        }
        if entry.kind == Kind::File {
            if let Some(link) = self.other_name(&found, path) {
                return self
                    .teller
                    .entry(Entry { body: Body { offset: found.header, ..Body::default() }, ..link })
                    .map(|()| None);
            }
            entry.body = self.body(&found, path)?;
        }
        self.teller.entry(entry)?;
        Ok(None)
    }

    /// The entry of a further name of a file that was told; else remembers it, if it has several.
    fn other_name(&mut self, found: &Found, path: &[u8]) -> Option<Entry> {
        let Posix { mode, links: 2.., user, group, inode } = found.fields.posix? else { return None };
        let first = found.extents.first()?;
        // Empty files have no place of their own: only a number tells them.
        if first.length == 0 && inode.is_none_or(|inode| inode == 0) {
            return None;
        }
        let file = File {
            start: first.start,
            length: first.length,
            extents: found.extents.len(),
            stored_as: (found.fields.packed.map(|packed| packed.size), first.unit, first.gap),
            last: found.extents.last()?.start,
            inode,
            mode,
            owner: (user, group),
        };
        if let Some((first, header)) = self.known.get(&file) {
            return Some(Entry {
                path: path.to_vec(),
                kind: Kind::HardLink,
                link: first.to_vec(),
                // Behind what it is a link to.
                header: found.header.max(header.saturating_add(1)),
                mode: mode & 0o7777,
                mtime: found.fields.mtime.or(found.time).unwrap_or_default(),
                ..Entry::default()
            });
        }
        if path.len() <= LONGEST_TARGET && self.memory.take(path.len().saturating_add(PER_FILE)) {
            self.known.insert(file, (path.into(), found.header));
        }
        None
    }

    /// What all records say.
    fn entry(&self, found: &Found, path: &[u8]) -> Entry {
        let Found { fields, is_folder, .. } = found;
        let mode = fields.posix.map_or(0, |posix| posix.mode);
        let device = || {
            let (major, minor) = fields.device.unwrap_or_default();
            Device { major, minor }
        };
        let kind = match mode & TYPE {
            _ if *is_folder => Kind::Folder,
            SYMLINK if !fields.target.is_empty() => Kind::Symlink,
            0o020_000 => Kind::CharacterDevice(device()),
            0o060_000 => Kind::BlockDevice(device()),
            0o010_000 => Kind::Fifo,
            0o140_000 => Kind::Socket,
            _ => Kind::File,
        };
        let usual = if *is_folder { FOLDER_MODE } else { FILE_MODE };
        Entry {
            path: path.to_vec(),
            kind,
            mode: fields.posix.map_or(usual, |posix| posix.mode & 0o7777),
            uid: fields.posix.map_or(0, |posix| posix.user.into()),
            gid: fields.posix.map_or(0, |posix| posix.group.into()),
            mtime: fields.mtime.or(found.time).unwrap_or_default(),
            atime: fields.atime,
            ctime: fields.ctime,
            header: found.header,
            body: Body { offset: found.header, ..Body::default() },
            link: if kind == Kind::Symlink { fields.target.clone() } else { Vec::new() },
            xattrs: {
                let limits = &self.options.limits;
                let short = fields.xattrs.iter().filter(|(_, value)| value.len() <= limits.xattr_value);
                short.take(limits.xattrs).cloned().collect()
            },
            ..Entry::default()
        }
    }

    /// Where the content of a file is.
    fn body(&mut self, found: &Found, path: &[u8]) -> Result<Body, Error> {
        let size = found.extents.iter().fold(0_u64, |sum, extent| sum.saturating_add(extent.length));
        let body = Body { offset: found.header, ..Body::default() };
        if let [Extent { start, length, unit: 0, .. }] = found.extents[..]
            && let Some(known) = self.boot.get_mut(&start)
        {
            *known = length.max(*known);
        }
        let of_extent = |extent: &Extent| extent.length.checked_div(extent.unit).unwrap_or(0).saturating_add(1);
        let parts = match found.fields.packed {
            Some(packed) => packed.blocks(),
            None => found.extents.iter().map(of_extent).fold(0, u64::saturating_add),
        };
        let left = self.parts.checked_sub(parts.min(MOST_EXTENTS));
        self.parts = left.unwrap_or(self.parts);
        let wrong = found.fields.unreadable.or(found.is_cut.then_some("an extent of it is missing"));
        let (size, pieces) = match (&found.extents[..], found.fields.packed) {
            _ if wrong.is_some() => (size, Err(damaged(wrong.unwrap_or_default()))),
            (_, packed) if left.is_none() => (
                packed.map_or(size, |packed| packed.size),
                Err(damaged("the files of the image lie in too many parts")),
            ),
            (&[Extent { start, length, unit: 0, .. }], Some(packed)) => {
                (packed.size, packed.pieces(self.source, start, length))
            }
            ([Extent { length: 0, .. }], _) => return Ok(body),
            (_, Some(packed)) => (packed.size, Err(damaged("it is compressed, and lies in several parts"))),
            (extents, None) => {
                let pieces = match self.pieces(extents) {
                    Ok((pieces, missing)) => {
                        if missing > 0 {
                            let what = format!(
                                "the last {missing} of {size} bytes of {} lie behind the end of the image, which is cut",
                                excerpt(path)
                            );
                            self.teller.damage(found.header, what)?;
                        }
                        Ok(pieces)
                    }
                    Err(error) => Err(error),
                };
                (size, pieces)
            }
        };
        let pieces = match pieces {
            Ok(pieces) => pieces,
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
                self.teller.damage(found.header, format!("{} cannot be read: {error}", excerpt(path)))?;
                vec![Piece::unreadable(found.header, size)]
            }
            Err(error) => return Err(Error::Read { offset: found.header, error }),
        };
        Ok(Body { size, pieces: (size > 0).then_some(pieces), ..body })
    }

    /// Pieces of a file that lies in several extents, or of which the end is not there; and how many bytes of it are
    /// not.
    fn pieces(&self, extents: &[Extent]) -> io::Result<(Vec<Piece>, u64)> {
        let (there, mut pieces, mut count, mut missing) = (self.source.len(), Vec::<Piece>::new(), 0_u64, 0_u64);
        let mut one_more = || {
            count = count.saturating_add(1);
            let is_too_many = || damaged(format!("it lies in more than {MOST_EXTENTS} parts"));
            (count <= MOST_EXTENTS).then_some(()).ok_or_else(is_too_many)
        };
        for extent in extents {
            let (mut at, mut left) = (extent.start, extent.length);
            while left > 0 {
                one_more()?;
                let length = if extent.unit == 0 { left } else { left.min(extent.unit) };
                let length = length.min(there.saturating_sub(at));
                if length == 0 {
                    missing = missing.saturating_add(left);
                    pieces.push(Piece::unreadable(there, left));
                    break;
                }
                match pieces.last_mut() {
                    Some(last) if last.coder.is_none() && last.offset.saturating_add(last.stored) == at => {
                        for sum in [&mut last.length, &mut last.stored, &mut last.decoded] {
                            *sum = sum.saturating_add(length);
                        }
                    }
                    _ => pieces.push(Piece { length, offset: at, stored: length, decoded: length, ..Piece::default() }),
                }
                left = left.saturating_sub(length);
                at = at.saturating_add(length).saturating_add(extent.gap);
            }
        }
        Ok((pieces, missing))
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::Read { offset: self.byte(self.tree.root.0), error }
    }
}

/// `None` for bytes that cannot be decoded: what they say is lost, and all else is not.
fn readable(read: io::Result<&[u8]>) -> io::Result<Option<&[u8]>> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
        read => read.map(Some),
    }
}
