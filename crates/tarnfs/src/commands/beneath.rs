//! Ways below a folder, relative to its descriptor. No symbolic link is ever followed on them: neither one that was
//! there, nor one that somebody puts there meanwhile.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// Bytes of a path that are given to one system call: PATH_MAX is 4096.
const LONGEST: usize = 3000;

/// How a folder is opened that others are found in.
pub(super) const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An open folder.
#[derive(Debug)]
pub(super) struct Beneath {
    root: OwnedFd,
    /// `openat2` is there.
    has_openat2: AtomicBool,
}

impl Beneath {
    /// Ways below `root`.
    pub(super) fn new(root: OwnedFd) -> Self {
        Self { root, has_openat2: AtomicBool::new(true) }
    }

    /// The folder itself.
    pub(super) fn fd(&self) -> &OwnedFd {
        &self.root
    }

    #[cfg(test)]
    pub(super) fn use_openat2(&self, is_there: bool) {
        self.has_openat2.store(is_there, Ordering::Relaxed);
    }

    /// The folder at the path of these names.
    pub(super) fn folder<N: AsRef<[u8]>>(&self, names: &[N]) -> io::Result<OwnedFd> {
        self.folder_as(names, FOLDER)
    }

    /// The same, opened with `flags`, which are such that no symbolic link is followed.
    pub(super) fn folder_as<N: AsRef<[u8]>>(&self, names: &[N], flags: OFlags) -> io::Result<OwnedFd> {
        let mut at: Option<OwnedFd> = None;
        let mut names = names.iter().map(AsRef::as_ref).peekable();
        while names.peek().is_some() {
            let mut path = Vec::new();
            while let Some(name) = names.next_if(|name| path.len() + name.len() < LONGEST) {
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(name);
            }
            let flags = if names.peek().is_some() { FOLDER } else { flags };
            at = Some(self.below(at.as_ref().unwrap_or(&self.root).as_fd(), &path, flags)?);
        }
        match at {
            Some(at) => Ok(at),
            None => Ok(openat(&self.root, ".", flags, Mode::empty())?),
        }
    }

    /// What is called `path` below `folder`, without a symbolic link anywhere in it.
    pub(super) fn below(&self, folder: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        /// How often the way is walked again where somebody moves folders about.
        const TRIES: usize = 64;
        if self.has_openat2.load(Ordering::Relaxed) {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            for _ in 0..TRIES {
                match openat2(folder, path, flags, Mode::empty(), resolve) {
                    Err(Errno::AGAIN) => {}
                    Err(Errno::NOSYS | Errno::PERM) => break,
                    found => return Ok(found?),
                }
            }
        }
        // The same, name by name.
        let mut at: Option<OwnedFd> = None;
        let mut names = path.split(|&byte| byte == b'/').peekable();
        while let Some(name) = names.next() {
            let from = at.as_ref().map_or(folder, AsFd::as_fd);
            let flags = if names.peek().is_some() { FOLDER } else { flags };
            at = Some(openat(from, name, flags | OFlags::NOFOLLOW, Mode::empty())?);
        }
        let found = at.ok_or(io::ErrorKind::NotFound)?;
        // From now on the same way, if that has worked where `openat2` has not.
        self.has_openat2.store(false, Ordering::Relaxed);
        Ok(found)
    }
}

impl AsFd for Beneath {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}
