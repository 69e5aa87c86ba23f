//! A folder that this program has made, to be removed at the end.
//!
//! It is known by the folder that it lies in, which stays open: that one may get another name meanwhile, and its old
//! name may lead to folders of somebody else.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;

/// See the module.
#[derive(Debug)]
pub(crate) struct Made {
    parent: OwnedFd,
    name: OsString,
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
        Ok(Self { parent, name: name.to_owned() })
    }

    /// The folder at `path`, made by another process, which knows it by this [`identity`](Self::identity).
    pub(crate) fn find(path: &Path, identity: &str) -> io::Result<Self> {
        let (parent, name) = split(path)?;
        let made = Self { parent, name: name.to_owned() };
        if made.identity()? == identity {
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
