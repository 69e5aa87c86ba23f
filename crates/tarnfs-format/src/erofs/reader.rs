//! Walks the folders of a file system from its root on, and tells what is in them.

use std::cell::Cell;
use std::io;

use tarnfs_source::Source;

use super::NAME;
use super::attributes::Attributes;
use super::content;
use super::inode::Inode;
use super::listing::{self, Named};
use super::superblock::{self, incompatible};
use super::volume::Volume;
use crate::content::Content;
use crate::image::{Budget, OfAttributes, Teller, damaged, data_of, is_damage, shown};
use crate::inodes::{Inodes, LONGEST_TARGET};
use crate::name::excerpt;
use crate::{Body, Entry, Error, Event, Kind, Options, Piece, ReceiveRandom};

/// One pass over one image.
pub(super) struct Reader<'run> {
    volume: Volume<'run>,
    options: &'run Options,
    teller: Teller<'run>,
    attributes: Attributes,
    inodes: Inodes,
    budget: Budget,
}

/// A folder whose listing is being read.
struct Open {
    content: Content,
    /// Byte of the content at which the next block begins.
    next: u64,
    /// What is left of a block.
    names: std::vec::IntoIter<Named>,
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
        let Some(superblock) = superblock::find(&show) else {
            return Err(match failed.take() {
                Some((offset, error)) => Error::Read { offset, error },
                None => Error::NotThisFormat { format: NAME, reason: "there is no superblock".to_owned() },
            });
        };
        let unknown = superblock.incompatible & !incompatible::ALL;
        if unknown != 0 {
            let reason = format!("it has features that are not known: {unknown:#x}");
            return Err(Error::Unsupported { format: NAME, reason });
        }
        let of_all = (data_of(source), options.shares);
        let mut teller = Teller::new(receive).with_attributes(OfAttributes::new(of_all.0, of_all.1));
        if !superblock.is_right {
            teller.damage(superblock::START, "the checksum of the superblock is wrong".to_owned())?;
        }
        if superblock.length() > source.len() {
            let (length, there) = (superblock.length(), source.len());
            let what = format!("the file system has {length} bytes, only {there} are there: it was cut");
            teller.damage(source.len(), what)?;
        }
        Ok(Self {
            volume: Volume::new(source, superblock, (&options.decode, &options.cancel), of_all),
            options,
            teller,
            attributes: Attributes::default(),
            inodes: Inodes::of_image(of_all.0),
            budget: Budget::of_image(of_all.0, of_all.1),
        })
    }

    /// Tells all that is in the image.
    pub(super) fn run(mut self) -> Result<(), Error> {
        let label = self.volume.superblock.label.clone();
        if !label.is_empty() {
            self.teller.event(Event::Label(label))?;
        }
        let number = self.volume.superblock.root;
        let root = self.volume.inode(number).and_then(|root| match root.kind() {
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
        let _ = self.inodes.enter(number);
        self.tell_entry(&root, b".", Kind::Folder)?;
        open.extend(self.folder(&root, &path, 0)?);
        while let Some(folder) = open.last_mut() {
            let Some(named) = self.next(folder, &path)? else {
                path.truncate(folder.path);
                self.inodes.give_back(folder.memory);
                open.pop();
                continue;
            };
            self.options.cancel.check().map_err(|error| Error::Read { offset: folder.at, error })?;
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
        Ok(())
    }

    /// Begins the listing of a folder.
    fn folder(&mut self, inode: &Inode, path: &[u8], depth: usize) -> Result<Option<Open>, Error> {
        let limits = &self.options.limits;
        if depth >= limits.path_components || path.len().saturating_add(limits.name) >= limits.path {
            self.teller.damage(inode.at, format!("{}: what is in it is left out: it is too deep", shown(path)))?;
            return Ok(None);
        }
        let content = content::content(&mut self.volume, inode, &mut self.budget, false)
            .map_err(|error| Error::Read { offset: inode.at, error })?;
        if let Some(why) = &content.missing {
            self.teller.damage(inode.at, format!("{}: some of its names are lost: {why}", shown(path)))?;
        }
        let parts = content.pieces.len().saturating_mul(size_of::<Piece>().saturating_add(8));
        // A name takes more than it does in its block. A short listing lies with its inode, and not in a block.
        let block = self.listing_block().min(content.size);
        let memory = parts.saturating_add(block.saturating_mul(4) as usize);
        if !self.inodes.take(memory) {
            self.teller.damage(inode.at, format!("{}: what is in it is left out: it is too much", shown(path)))?;
            return Ok(None);
        }
        Ok(Some(Open { content, next: 0, names: Vec::new().into_iter(), at: inode.at, path: 0, memory }))
    }

    /// Bytes of a block of a listing.
    fn listing_block(&self) -> u64 {
        self.volume.superblock.block() << self.volume.superblock.listing_bits
    }

    /// The next name in a folder.
    fn next(&mut self, folder: &mut Open, path: &[u8]) -> Result<Option<Named>, Error> {
        let block = self.listing_block();
        let mut bytes = Vec::new();
        loop {
            if let Some(named) = folder.names.next() {
                return Ok(Some(named));
            }
            if folder.next >= folder.content.size {
                return Ok(None);
            }
            // What is missing was told, and nothing is listed in a hole.
            let passed = match folder.content.at(folder.next) {
                Err(hole) => hole,
                Ok((Piece { coder: Some(_), stored: 0, length, .. }, inside)) => length.saturating_sub(inside),
                Ok(_) => 0,
            };
            if passed > 0 {
                let passed = passed.checked_next_multiple_of(block).unwrap_or(u64::MAX);
                folder.next = folder.next.saturating_add(passed);
                continue;
            }
            let read = self.budget.take_bytes(block);
            if read.is_err() {
                folder.next = u64::MAX;
            }
            let read = read.and_then(|()| self.volume.read(&folder.content, folder.next, block, &mut bytes));
            folder.next = folder.next.saturating_add(block);
            let wrong = match read {
                Ok(()) => {
                    let (names, wrong) = listing::names(&bytes);
                    folder.names = names.into_iter();
                    wrong.map(str::to_owned)
                }
                Err(error) if is_damage(&error) || error.kind() == io::ErrorKind::Unsupported => {
                    Some(error.to_string())
                }
                Err(error) => return Err(Error::Read { offset: folder.at, error }),
            };
            if let Some(wrong) = wrong {
                self.teller.damage(folder.at, format!("{}: a block of its listing: {wrong}", shown(path)))?;
            }
        }
    }

    /// Tells what has a name at `path`. Returns the inode of a folder.
    fn named(&mut self, named: &Named, path: &[u8]) -> Result<Option<Inode>, Error> {
        let number = named.inode;
        let is_name = !named.name.is_empty() && !named.name.contains(&b'/');
        // What is none costs no less: blocks of listings may be one and the same.
        let paid = self.budget.take_bytes(path.len().saturating_add(size_of::<Entry>()) as u64);
        let read = paid.and_then(|()| {
            if !is_name {
                Err(damaged("that cannot be a name"))
            } else if path.len() > self.options.limits.path {
                Err(damaged("its path is too long"))
            } else {
                self.volume.inode(number)
            }
        });
        let read = read.and_then(|inode| match inode.kind() {
            Some(kind) => Ok((inode, kind)),
            None => Err(damaged(format!("inode {number} is none of a file"))),
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
            if let Err(why) = self.inodes.enter(number) {
                self.teller.damage(inode.at, format!("{} is left out: {why}", excerpt(path)))?;
                return Ok(None);
            }
            self.tell_entry(&inode, path, kind)?;
            return Ok(Some(inode));
        }
        if let Some(first) = self.inodes.path(number) {
            let link = first.to_vec();
            if let Err(error) = self.budget.take_link(path, &link) {
                self.teller.damage(inode.at, format!("{} is left out: {error}", excerpt(path)))?;
                return Ok(None);
            }
            self.teller.entry(Entry {
                path: path.to_vec(),
                kind: Kind::HardLink,
                link,
                // Behind what it is a link to.
                header: inode.at.saturating_add(1),
                mode: u32::from(inode.mode) & 0o7777,
                mtime: inode.mtime,
                ..Entry::default()
            })?;
            return Ok(None);
        }
        self.tell_entry(&inode, path, kind)?;
        if inode.links > 1 {
            self.inodes.name(number, path);
        }
        Ok(None)
    }

    /// Tells what all inodes say, and what those of this kind do.
    fn tell_entry(&mut self, inode: &Inode, path: &[u8], kind: Kind) -> Result<(), Error> {
        let with = (&mut self.budget, &self.options.limits);
        let xattrs = match self.attributes.list(&mut self.volume, inode, with) {
            Ok(xattrs) => xattrs,
            Err(error) if is_damage(&error) => {
                let what = format!("{}: its extended attributes are left out: {error}", shown(path));
                self.teller.damage(inode.at, what)?;
                Vec::new()
            }
            Err(error) => return Err(Error::Read { offset: inode.at, error }),
        };
        let mut told = Entry {
            path: path.to_vec(),
            kind,
            mode: u32::from(inode.mode) & 0o7777,
            uid: inode.uid.into(),
            gid: inode.gid.into(),
            mtime: inode.mtime,
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
                if i64::try_from(inode.size).is_err() {
                    let what = format!("{} is left out: it would have {} bytes", excerpt(path), inode.size);
                    return self.teller.damage(inode.at, what);
                }
                let content = content::content(&mut self.volume, inode, &mut self.budget, false)
                    .map_err(|error| Error::Read { offset: inode.at, error })?;
                if let Some(why) = content.missing {
                    self.teller.damage(inode.at, format!("{} cannot be read whole: {why}", excerpt(path)))?;
                }
                (told.body.size, told.body.pieces) = (content.size, Some(content.pieces));
            }
            _ => {}
        }
        self.teller.entry(told)
    }

    /// The target of a symbolic link.
    fn target(&mut self, inode: &Inode) -> io::Result<Vec<u8>> {
        if inode.size >= LONGEST_TARGET as u64 {
            return Err(damaged("it is too long"));
        }
        self.budget.take_bytes(inode.size)?;
        let content = content::content(&mut self.volume, inode, &mut self.budget, false)?;
        let mut target = Vec::new();
        self.volume.read(&content, 0, inode.size, &mut target)?;
        Ok(target)
    }
}
