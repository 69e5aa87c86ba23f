//! A folder that this program has made, to be removed at the end.
//!
//! It is known by the folder that it lies in, which stays open: that one may get another name meanwhile, and its old
//! name may lead to folders of somebody else. The process that removes it holds a lock on it until then, so that who
//! unmounts can wait for that.

#![allow(unsafe_code, reason = "F_GETLK, which asks for a lock without taking it")]

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, StatxAttributes, StatxFlags, fcntl_lock, fstat, mkdirat, openat,
    statat, statx, unlinkat,
};
use rustix::io::Errno;

/// See the module.
#[derive(Debug)]
pub(crate) struct Made {
    parent: OwnedFd,
    name: OsString,
    /// Locked, in the process that removes it.
    locked: Option<OwnedFd>,
}

/// A folder of this program's own that goes with all that is in it.
#[derive(Debug)]
pub(crate) struct Temporary {
    path: PathBuf,
    /// It must still be this one.
    device: u64,
    inode: u64,
    owner: u32,
}

impl Temporary {
    /// The folder at `path`, which is no symbolic link.
    pub(crate) fn find(path: &Path) -> io::Result<Self> {
        let found = path.symlink_metadata()?;
        if !found.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self { path: path.to_owned(), device: found.dev(), inode: found.ino(), owner: found.uid() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// True if it belongs to who runs this.
    pub(crate) fn is_own(&self) -> bool {
        self.owner == rustix::process::geteuid().as_raw()
    }

    /// True if `folder` is it.
    pub(crate) fn is(&self, folder: &OwnedFd) -> io::Result<bool> {
        let stat = fstat(folder)?;
        Ok((stat.st_dev, stat.st_ino) == (self.device, self.inode))
    }

    /// Removes it with all that is in it, if it is still the same.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let now = Self::find(&self.path)?;
        if (now.device, now.inode) != (self.device, self.inode) {
            return Err(io::ErrorKind::NotFound.into());
        }
        std::fs::remove_dir_all(&self.path)
    }
}

/// Waits until the folder at `path`, from which a mount was taken away, is removed by who has made it, if it is to be.
/// Not for long: the same mount may be there for others.
pub(crate) fn wait_until_removed(path: &Path) {
    const LIMIT: Duration = Duration::from_secs(2);
    const BETWEEN: Duration = Duration::from_millis(1);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(place) = openat(CWD, path, flags, Mode::empty()) else { return };
    // What else is mounted there is not asked: it may hang.
    let found = statx(&place, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::empty());
    if found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)) {
        return;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(folder) = openat(&place, ".", flags, Mode::empty()) else { return };
    let start = Instant::now();
    while is_locked(&folder) && start.elapsed() < LIMIT {
        std::thread::sleep(BETWEEN);
    }
}

/// True if another process has the lock of [`Made::find`].
fn is_locked(folder: &OwnedFd) -> bool {
    // SAFETY: numbers, of which zero is a value.
    let mut asked: libc::flock = unsafe { std::mem::zeroed() };
    asked.l_type = libc::F_WRLCK as libc::c_short;
    asked.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is open, and what is asked lives longer than the call.
    let answered = unsafe { libc::fcntl(folder.as_raw_fd(), libc::F_GETLK, &raw mut asked) };
    answered == 0 && asked.l_type != libc::F_UNLCK as libc::c_short
}

/// The folder that holds `path`, and the name of `path` in it.
pub(crate) fn split(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    // Without a name it is the root, or a folder above one that is there.
    let name = path.file_name().ok_or(io::ErrorKind::AlreadyExists)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok((openat(CWD, parent, flags, Mode::empty())?, name))
}

impl Made {
    /// Makes the folder `path`.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        let (parent, name) = split(path)?;
        Self::within(parent, name)
    }

    /// Makes the folder `name` in `parent`.
    pub(crate) fn within(parent: OwnedFd, name: &OsStr) -> io::Result<Self> {
        mkdirat(&parent, name, Mode::RWXU | Mode::RWXG | Mode::RWXO)?;
        Ok(Self { parent, name: name.to_owned(), locked: None })
    }

    /// The folder at `path`, made by another process, which knows it by this [`identity`](Self::identity). This process
    /// is the one that removes it, and has a lock on it as long as it has this.
    pub(crate) fn find(path: &Path, identity: &str) -> io::Result<Self> {
        let (parent, name) = split(path)?;
        let mut made = Self { parent, name: name.to_owned(), locked: None };
        if made.identity()? == identity {
            // Where there are no locks, nobody can wait for the end.
            let locked = |folder: &OwnedFd| fcntl_lock(folder, FlockOperation::NonBlockingLockShared).is_ok();
            made.locked = made.open().ok().filter(locked);
            return Ok(made);
        }
        Err(io::Error::new(io::ErrorKind::NotFound, format!("{}: another folder lies there by now", path.display())))
    }

    /// Numbers that no other folder has, while nothing is mounted on it.
    pub(crate) fn identity(&self) -> io::Result<String> {
        let found = statat(&self.parent, &self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(format!("{}:{}", found.st_dev, found.st_ino))
    }

    /// Opens it, through no link.
    pub(crate) fn open(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.parent, &self.name, flags, Mode::empty())
    }

    /// Removes it, if it is empty.
    pub(crate) fn remove(&self) -> io::Result<()> {
        Ok(unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn it_is_removed_where_it_lies_and_not_where_its_path_leads() {
        let folder = tempfile::tempdir().unwrap();
        let (parent, moved, other) =
            (folder.path().join("parent"), folder.path().join("moved"), folder.path().join("other"));
        fs::create_dir(&parent).unwrap();
        fs::create_dir_all(other.join("at")).unwrap();
        let path = parent.join("at");
        let made = Made::new(&path).unwrap();
        let identity = made.identity().unwrap();
        let found = Made::find(&path, &identity).unwrap();
        assert_eq!(Made::new(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(Made::new(Path::new("/")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        fs::rename(&parent, &moved).unwrap();
        symlink(&other, &parent).unwrap();
        assert!(path.is_dir() && Made::find(&path, &identity).is_err());
        found.remove().unwrap();
        assert!(!moved.join("at").exists() && other.join("at").exists());
        assert_eq!(made.remove().unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(other.join("at").exists());
    }
}
