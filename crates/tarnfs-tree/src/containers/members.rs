//! Where the documents and layers of images are read from: an archive, or a folder.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, open as open_folder, openat, statat};
use rustix::io::Errno;
use tarnfs_format::containers::Members;
use tarnfs_source::Cancel;

use super::{into_io, spellings};
use crate::{Attributes, Error, Kind, Tree, path};

/// Documents in a tree.
pub(super) struct InTree<'t> {
    pub(super) tree: &'t dyn Tree,
    /// As how many names a layer is looked for.
    pub(super) spellings: usize,
    /// Components of paths that may still be walked.
    pub(super) left: Cell<u64>,
    pub(super) cancel: &'t Cancel,
}

impl InTree<'_> {
    /// What is at `path`. The outer error ends the search for all.
    pub(super) fn find(&self, path: &[u8]) -> io::Result<Result<Attributes, Error>> {
        self.cancel.check()?;
        let mut left = self.left.get();
        let found = path::find_within(self.tree, path, &mut left);
        self.left.set(left);
        found.ok_or_else(|| io::Error::other("too many links lead to their files"))
    }
}

impl Members for InTree<'_> {
    fn read(&self, path: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        let found = match self.find(path.as_bytes())? {
            Ok(found) => found,
            Err(Error::Io(error)) => return Err(error),
            Err(_) => return Ok(None),
        };
        if found.kind != Kind::File || found.size > most {
            return Ok(None);
        }
        let source = self.tree.open(found.node).map_err(into_io)?;
        let mut bytes = vec![0; usize::try_from(found.size).unwrap_or(usize::MAX)];
        source.read_exact_at(&mut bytes, 0)?;
        Ok(Some(bytes))
    }

    fn has(&self, path: &str) -> io::Result<bool> {
        for path in spellings(path.as_bytes(), self.spellings) {
            if self.find(path)?.is_ok() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Documents in a folder: files that lie below it. Symbolic links could lead anywhere, and what is no file could wait,
/// or do something, when it is opened.
pub(super) struct InFolder<'f> {
    pub(super) folder: &'f Path,
    pub(super) root: OwnedFd,
    /// Those that were read.
    pub(super) read: RefCell<BTreeSet<String>>,
}

/// What is no file below the folder is as if it were not there.
fn or_none<T>(result: Result<T, Errno>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::INVAL | Errno::NAMETOOLONG | Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl<'f> InFolder<'f> {
    pub(super) fn new(folder: &'f Path) -> io::Result<Self> {
        let root = open_folder(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { folder, root, read: RefCell::default() })
    }

    /// The folder of the file at `path`, which has no `..`, and the name of the file in it.
    fn folder_of<'p>(&self, path: &'p str) -> io::Result<Option<(OwnedFd, &'p str)>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut folder = self.root.try_clone()?;
        let mut rest = path;
        while let Some((component, behind)) = rest.split_once('/') {
            let Some(next) = or_none(openat(&folder, component, flags, Mode::empty()))? else { return Ok(None) };
            (folder, rest) = (next, behind);
        }
        Ok(Some((folder, rest)))
    }

    /// The file at `path`, if there is one.
    pub(super) fn open(&self, path: &str) -> io::Result<Option<File>> {
        let Some((folder, name)) = self.folder_of(path)? else { return Ok(None) };
        let is_file = |mode| FileType::from_raw_mode(mode) == FileType::RegularFile;
        let found = or_none(statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW))?;
        if !found.is_some_and(|found| is_file(found.st_mode)) {
            return Ok(None);
        }
        // Somebody may have put something else there by now.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let Some(file) = or_none(openat(&folder, name, flags, Mode::empty()))? else { return Ok(None) };
        Ok(if is_file(fstat(&file)?.st_mode) { Some(File::from(file)) } else { None })
    }
}

impl Members for InFolder<'_> {
    fn read(&self, path: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = self.open(path)?.filter(|file| file.metadata().is_ok_and(|facts| facts.len() <= most)) else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        if file.take(most.saturating_add(1)).read_to_end(&mut bytes)? as u64 > most {
            return Ok(None);
        }
        self.read.borrow_mut().insert(path.to_owned());
        Ok(Some(bytes))
    }

    fn has(&self, path: &str) -> io::Result<bool> {
        Ok(self.open(path).is_ok_and(|file| file.is_some()))
    }
}
