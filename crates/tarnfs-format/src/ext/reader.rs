//! Walks the folders of a file system from its root on, and tells what is in them.

use std::cell::Cell;
use std::io;

use tarnfs_source::Source;

use super::NAME;
use super::attributes::Attributes;
use super::inode::{Inode, flag};
use super::listing::{self, Named};
use super::map;
use super::sums::Seed;
use super::superblock::{self, incompatible};
use super::volume::Volume;
use crate::content::Content;
use crate::image::{Budget, Teller, damaged, data_of, is_damage, shown};
use crate::inodes::{Inodes, LONGEST_TARGET};
use crate::name::excerpt;
use crate::window::Window;
use crate::{Body, Entry, Error, Event, Kind, Options, Piece, ReceiveRandom};

/// The inode of the root.
const ROOT: u32 = 2;

/// Targets that are shorter stand in the inode.
const SHORT_TARGET: u64 = 60;

/// Bytes that a name counts for beside its path, if its inode has fewer: blocks of listings may be one and the same.
const OF_NAME: u64 = 512;

/// One pass over one image.
pub(super) struct Reader<'run> {
    volume: Volume<'run>,
    options: &'run Options,
    teller: Teller<'run>,
    /// For what is read of files: values of attributes and targets of links.
    window: Window<'run>,
    attributes: Attributes,
    inodes: Inodes,
    budget: Budget,
}

/// A folder whose listing is being read.
struct Open {
    content: Content,
    /// Byte of the content at which the next block begins.
    next: u64,
    /// A block, and the byte of it at which the next name is.
    block: Vec<u8>,
    inside: usize,
    /// What is in the inode itself, if that is where the names are, from the last part to the first.
    parts: Vec<Vec<u8>>,
    sums: Seed,
    is_indexed: bool,
    /// Byte of the image at which the inode is.
    at: u64,
    /// Bytes of the path of the folder that it is in.
    path: usize,
    memory: usize,
}

impl<'run> Reader<'run> {
    pub(super) fn open(
        source: &'run dyn Source,
        options: &'run Options,
        receive: &'run mut ReceiveRandom<'run>,
    ) -> Result<Self, Error> {
        let failed = Cell::new(None);
        let show = |offset: u64, length: usize| {
            let there = usize::try_from(source.len().saturating_sub(offset)).unwrap_or(usize::MAX);
            let mut bytes = vec![0; length.min(there)];
            if let Err(error) = source.read_exact_at(&mut bytes, offset) {
                failed.set(Some((offset, error)));
                bytes.clear();
            }
            bytes
        };
        let Some((superblock, is_copy)) = superblock::find(show) else {
            return Err(match failed.take() {
                Some((offset, error)) => Error::Read { offset, error },
                None => Error::NotThisFormat { format: NAME, reason: "there is no superblock".to_owned() },
            });
        };
        if let Some(reason) = superblock.unknown() {
            return Err(Error::Unsupported { format: NAME, reason });
        }
        let mut told = Vec::new();
        if is_copy {
            let group = superblock.group;
            told.push((superblock::START, format!("the superblock is damaged; its copy in group {group} is read")));
        }
        if superblock.incompatible & incompatible::RECOVER != 0 {
            let what = "the file system was not unmounted, and its journal is not replayed: what was written last may be missing or wrong";
            told.push((superblock::START, what.to_owned()));
        }
        let length = superblock.blocks.saturating_mul(superblock.block);
        if length > source.len() {
            let what = format!("the file system has {length} bytes, only {} are there: it was cut", source.len());
            told.push((source.len(), what));
        }
        let mut volume = Volume::new(source, &options.cancel, superblock);
        let data = data_of(source);
        volume.told = told;
        Ok(Self {
            volume,
            options,
            teller: Teller::new(receive),
            window: Window::growing(source).until(&options.cancel),
            attributes: Attributes::new(data, options.shares),
            inodes: Inodes::of_image(data),
            budget: Budget::of_image(data, options.shares),
        })
    }

    /// Tells all that is in the image.
    pub(super) fn run(mut self) -> Result<(), Error> {
        let label = self.volume.superblock.label.clone();
        if !label.is_empty() {
            self.teller.event(Event::Label(label))?;
        }
        let root = self.volume.inode(ROOT).and_then(|root| match root.kind() {
            Some(Kind::Folder) => Ok(root),
            _ => Err(damaged("it is no folder")),
        });
        let root = root.map_err(|error| {
            if is_damage(&error) {
                Error::Unreadable { format: NAME, reason: format!("its root cannot be read: {error}") }
            } else {
                Error::Read { offset: 0, error }
            }
        })?;
        let (mut path, mut open) = (Vec::new(), Vec::<Open>::new());
        // There is room for the first one.
        let _ = self.inodes.enter(ROOT.into());
        self.tell_entry(&root, b".", Kind::Folder)?;
        open.extend(self.folder(&root, &path, 0)?);
        while let Some(folder) = open.last_mut() {
            self.options.cancel.check().map_err(|error| Error::Read { offset: folder.at, error })?;
            self.tell_told()?;
            let Some(named) = self.next(folder, &path)? else {
                path.truncate(folder.path);
                self.inodes.give_back(folder.memory);
                open.pop();
                continue;
            };
            let before = path.len();
            if before > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(&named.name);
            if let Some(inode) = self.named(&named, &path)?
                && let Some(below) = self.folder(&inode, &path, open.len())?
            {
                open.push(Open { path: before, ..below });
                continue;
            }
            path.truncate(before);
        }
        self.tell_told()
    }

    /// Tells what the volume has found to be damaged on the way.
    fn tell_told(&mut self) -> Result<(), Error> {
        for (offset, what) in std::mem::take(&mut self.volume.told) {
            self.teller.damage(offset, what)?;
        }
        Ok(())
    }

    /// Begins the listing of a folder.
    fn folder(&mut self, inode: &Inode, path: &[u8], depth: usize) -> Result<Option<Open>, Error> {
        let limits = &self.options.limits;
        let is_deep = depth >= limits.path_components || path.len().saturating_add(limits.name) >= limits.path;
        let wrong = if is_deep {
            Some("it is too deep")
        } else if inode.has(flag::ENCRYPTED) {
            Some("it is encrypted")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            self.teller.damage(inode.at, format!("{}: what is in it is left out: {wrong}", shown(path)))?;
            return Ok(None);
        }
        let is_inside = inode.has(flag::INSIDE);
        let mut folder = Open {
            content: Content::default(),
            next: 0,
            block: Vec::new(),
            inside: 0,
            parts: Vec::new(),
            sums: map::of_inode(&self.volume, inode),
            is_indexed: inode.has(flag::INDEXED),
            at: inode.at,
            path: 0,
            memory: 0,
        };
        if i64::try_from(inode.size).is_err() {
            let what = format!("{}: its listing would have {} bytes: what is there is read", shown(path), inode.size);
            self.teller.damage(inode.at, what)?;
        }
        if is_inside {
            match map::parts_inside(inode) {
                Ok([(first, length), more]) => {
                    // Before the names, the number of the folder above.
                    let first = (first.saturating_add(4), length.saturating_sub(4));
                    let part = |(at, length): (usize, usize)| {
                        inode.bytes.get(at..at.saturating_add(length)).unwrap_or_default().to_vec()
                    };
                    folder.parts = vec![part(more), part(first)];
                }
                Err(error) => {
                    self.teller.damage(inode.at, format!("{}: some of its names are lost: {error}", shown(path)))?;
                }
            }
        } else {
            folder.content = map::content(&mut self.volume, inode, &mut self.budget)
                .map_err(|error| Error::Read { offset: inode.at, error })?;
            if let Some(why) = &folder.content.missing {
                self.teller.damage(inode.at, format!("{}: some of its names are lost: {why}", shown(path)))?;
            }
        }
        let block = self.volume.superblock.block as usize;
        folder.memory = folder.content.pieces.len().saturating_mul(size_of::<Piece>().saturating_add(8));
        folder.memory = folder.memory.saturating_add(if is_inside { inode.bytes.len() } else { block });
        if !self.inodes.take(folder.memory) {
            self.teller.damage(inode.at, format!("{}: its listing lies in too many parts", shown(path)))?;
            return Ok(None);
        }
        Ok(Some(folder))
    }

    /// The next name in a folder.
    fn next(&mut self, folder: &mut Open, path: &[u8]) -> Result<Option<Named>, Error> {
        loop {
            match listing::next(&folder.block, &mut folder.inside) {
                Some(Ok(named)) => return Ok(Some(named)),
                Some(Err(why)) => {
                    let what = format!("{}: a block of its listing: {why}", shown(path));
                    self.teller.damage(folder.at, what)?;
                    continue;
                }
                None => {}
            }
            match self.next_block(folder) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) if is_damage(&error) => {
                    self.teller.damage(folder.at, format!("{}: a block of its listing: {error}", shown(path)))?;
                }
                Err(error) => return Err(Error::Read { offset: folder.at, error }),
            }
        }
    }

    /// Reads the next block of a listing; false if there is none.
    fn next_block(&mut self, folder: &mut Open) -> io::Result<bool> {
        folder.block.clear();
        folder.inside = 0;
        if let Some(part) = folder.parts.pop() {
            folder.block = part;
            return Ok(true);
        }
        let block = self.volume.superblock.block;
        // As a difference: a sum could stop at the largest number, and so stand still there.
        while folder.content.size.checked_sub(folder.next).is_some_and(|left| left >= block) {
            let passed = match folder.content.at(folder.next) {
                // Nothing is listed in a hole, and what is missing was told.
                Err(hole) => hole,
                Ok((Piece { coder: Some(_), length, .. }, inside)) => length.saturating_sub(inside),
                Ok((piece, inside)) => {
                    let (at, is_first) = (piece.offset.saturating_add(inside), folder.next == 0);
                    folder.next = folder.next.saturating_add(block);
                    if self.budget.take_bytes(block).is_err() {
                        folder.next = u64::MAX;
                        return Err(damaged("listings overlap; the rest is left out"));
                    }
                    self.options.cancel.check()?;
                    folder.block.resize(block as usize, 0);
                    if let Err(error) = self.volume.exact(&mut folder.block, at) {
                        folder.block.clear();
                        return Err(error);
                    }
                    if self.volume.superblock.has_sums() && !is_right(folder, is_first) {
                        folder.block.clear();
                        return Err(damaged("its checksum is wrong"));
                    }
                    return Ok(true);
                }
            };
            let passed = passed.max(1).checked_next_multiple_of(block);
            let Some(next) = passed.and_then(|passed| folder.next.checked_add(passed)) else { return Ok(false) };
            folder.next = next;
            self.options.cancel.check()?;
        }
        Ok(false)
    }

    /// Tells what has a name at `path`. Returns the inode of a folder.
    fn named(&mut self, named: &Named, path: &[u8]) -> Result<Option<Inode>, Error> {
        let number = named.inode;
        let is_name = !named.name.is_empty() && !named.name.iter().any(|byte| matches!(byte, 0 | b'/'));
        let is_long = path.len() > self.options.limits.path;
        if is_name && !is_long && self.inodes.path(number.into()).is_some() {
            return self.tell_link(number, path).map(|()| None);
        }
        let weight = OF_NAME.max(self.volume.superblock.inode.into()).saturating_add(path.len() as u64);
        let read = self.budget.take_bytes(weight).and_then(|()| {
            if !is_name {
                Err(damaged("that cannot be a name"))
            } else if is_long {
                Err(damaged("its path is too long"))
            } else if number < self.volume.superblock.first_inode {
                Err(damaged(format!("inode {number} is none of a file")))
            } else {
                self.volume.inode(number)
            }
        });
        let read = read.and_then(|inode| match inode.kind() {
            _ if inode.links == 0 => Err(damaged(format!("its inode {number} was deleted"))),
            Some(kind) if !inode.has(flag::ATTRIBUTE) => Ok((inode, kind)),
            _ => Err(damaged(format!("inode {number} is none of a file"))),
        });
        let (inode, kind) = match read {
            Ok(found) => found,
            Err(error) if is_damage(&error) => {
                self.teller.damage(0, format!("{} is left out: {error}", excerpt(path)))?;
                return Ok(None);
            }
            Err(error) => return Err(Error::Read { offset: 0, error }),
        };
        if kind == Kind::Folder {
            if let Err(why) = self.inodes.enter(number.into()) {
                self.teller.damage(inode.at, format!("{} is left out: {why}", excerpt(path)))?;
                return Ok(None);
            }
            self.tell_entry(&inode, path, kind)?;
            return Ok(Some(inode));
        }
        self.tell_entry(&inode, path, kind)?;
        if inode.links > 1 {
            self.inodes.name(number.into(), path);
        }
        Ok(None)
    }

    /// Tells a further name of a file that was told.
    fn tell_link(&mut self, number: u32, path: &[u8]) -> Result<(), Error> {
        let link = self.inodes.path(number.into()).map(<[u8]>::to_vec).unwrap_or_default();
        if let Err(error) = self.budget.take_link(path, &link) {
            return self.teller.damage(0, format!("{} is left out: {error}", excerpt(path)));
        }
        let inode = self.volume.inode(number).map_err(|error| Error::Read { offset: 0, error })?;
        self.teller.entry(Entry {
            path: path.to_vec(),
            kind: Kind::HardLink,
            link,
            // Behind what it is a link to.
            header: inode.at.saturating_add(1),
            mode: u32::from(inode.mode) & 0o7777,
            mtime: inode.mtime(),
            ..Entry::default()
        })
    }

    /// Tells what all inodes say, and what those of this kind do.
    fn tell_entry(&mut self, inode: &Inode, path: &[u8], kind: Kind) -> Result<(), Error> {
        let limits = &self.options.limits;
        let with = (&mut self.budget, limits);
        let xattrs = match self.attributes.list(&mut self.volume, &mut self.window, inode, with) {
            Ok(xattrs) => xattrs,
            Err(error) if is_damage(&error) => {
                let what = format!("{}: its extended attributes are left out: {error}", shown(path));
                self.teller.damage(inode.at, what)?;
                Vec::new()
            }
            Err(error) => return Err(Error::Read { offset: inode.at, error }),
        };
        let (uid, gid) = inode.owner();
        let mut told = Entry {
            path: path.to_vec(),
            kind,
            mode: u32::from(inode.mode) & 0o7777,
            uid,
            gid,
            mtime: inode.mtime(),
            atime: Some(inode.atime()),
            ctime: Some(inode.ctime()),
            header: inode.at,
            body: Body { offset: inode.at, ..Body::default() },
            xattrs,
            ..Entry::default()
        };
        match kind {
            Kind::Symlink => match self.target(inode) {
                Ok(target) => told.link = target,
                Err(error) if is_damage(&error) => {
                    let what = format!("{} is left out: its target: {error}", excerpt(path));
                    return self.teller.damage(inode.at, what);
                }
                Err(error) => return Err(Error::Read { offset: inode.at, error }),
            },
            Kind::File if inode.size > 0 => {
                let content = self.content(inode).map_err(|error| Error::Read { offset: inode.at, error })?;
                if let Some(why) = content.missing {
                    self.teller.damage(inode.at, format!("{} cannot be read whole: {why}", excerpt(path)))?;
                }
                if i64::try_from(content.size).is_ok() {
                    (told.body.size, told.body.pieces) = (content.size, Some(content.pieces));
                }
            }
            _ => {}
        }
        self.teller.entry(told)
    }

    /// The content of a file.
    fn content(&mut self, inode: &Inode) -> io::Result<Content> {
        let missing = if inode.has(flag::ENCRYPTED) {
            Some("it is encrypted".to_owned())
        } else if i64::try_from(inode.size).is_err() {
            Some(format!("it would have {} bytes", inode.size))
        } else {
            None
        };
        let Some(why) = missing else { return map::content(&mut self.volume, inode, &mut self.budget) };
        let mut content = Content::new(inode.size);
        content.add_missing(inode.at, inode.size, why);
        Ok(content)
    }

    /// The target of a symbolic link.
    fn target(&mut self, inode: &Inode) -> io::Result<Vec<u8>> {
        if inode.has(flag::ENCRYPTED) {
            return Err(damaged("it is encrypted"));
        }
        if inode.size >= LONGEST_TARGET as u64 {
            return Err(damaged("it is too long"));
        }
        let length = inode.size as usize;
        // Early kernels of ext4 have set the flag of extents where there are none.
        let has_extents = inode.has(flag::EXTENTS) && map::has_root(inode);
        if inode.size < SHORT_TARGET && !has_extents && !inode.has(flag::INSIDE) {
            return Ok(inode.blocks().get(..length).unwrap_or_default().to_vec());
        }
        self.budget.take_bytes(inode.size)?;
        let content = map::content(&mut self.volume, inode, &mut self.budget)?;
        let mut target = Vec::new();
        content.read(&mut self.window, 0, inode.size, &mut target)?;
        Ok(target)
    }
}

/// True if the checksum of the block of a listing that was read is right. Those of an index, which has no names, are
/// not looked at: it may end like a block of names, as Linux makes its root of one and wipes only the names.
fn is_right(folder: &Open, is_first: bool) -> bool {
    let is_index = || listing::is_index(&folder.block) || is_first && listing::is_root(&folder.block);
    if folder.is_indexed && is_index() {
        return true;
    }
    match listing::sum(&folder.block) {
        Some((stored, length)) => folder.block.get(..length).is_some_and(|bytes| folder.sums.add(bytes).0 == stored),
        None => folder.is_indexed && is_first,
    }
}
