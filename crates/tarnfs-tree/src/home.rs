//! The folder in which an archive lies. It is opened once: whoever may write one of the folders above it can have its
//! path lead elsewhere at any time, and what is written there by then is not to land in folders of somebody else.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, openat, statat};

/// See the module.
#[derive(Debug)]
pub(crate) struct Home {
    folder: OwnedFd,
    /// Where it was when it was opened, without symbolic links.
    path: PathBuf,
    /// How the system calls what `folder` has open.
    link: PathBuf,
}

impl Home {
    pub(crate) fn new(folder: OwnedFd, path: PathBuf) -> Self {
        let link = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        Self { folder, path, link }
    }

    /// The folder that has `file` in it, and the file's path there. `None` if it has been moved or removed, or lies in
    /// none.
    pub(crate) fn of(file: &impl AsFd) -> io::Result<Option<(Self, PathBuf)>> {
        /// It may be moved while this looks.
        const ROUNDS: usize = 4;
        let known = fstat(file)?;
        for _ in 0..ROUNDS {
            let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))?;
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let Ok(folder) = openat(CWD, parent, flags, Mode::empty()) else { continue };
            // Whatever the path has led to: it is the folder if the file is in it.
            let found = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW);
            if found.is_ok_and(|found| (found.st_dev, found.st_ino) == (known.st_dev, known.st_ino)) {
                return Ok(Some((Self::new(folder, parent.to_owned()), path)));
            }
        }
        Ok(None)
    }

    /// What leads to the file at `path` whatever becomes of the folder, if the file lies in it.
    pub(crate) fn at(&self, path: &Path) -> PathBuf {
        Self::moved(path, &self.path, &self.link)
    }

    /// The inverse of [`Home::at`], for people.
    pub(crate) fn shown(&self, path: &Path) -> PathBuf {
        Self::moved(path, &self.link, &self.path)
    }

    /// The same for what was said of such a file.
    pub(crate) fn named(&self, message: &str) -> String {
        let (link, path) = (self.link.display().to_string(), self.path.display().to_string());
        let behind = |text: &str| format!("{}/", text.trim_end_matches('/'));
        message.replace(&behind(&link), &behind(&path)).replace(&format!("{link}: "), &format!("{path}: "))
    }

    fn moved(path: &Path, from: &Path, to: &Path) -> PathBuf {
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) if parent == from => to.join(name),
            _ => path.to_owned(),
        }
    }
}

impl AsFd for Home {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn it_is_the_folder_of_the_file_and_stays_it() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let (folder, moved, other) = (root.join("d"), root.join("moved"), root.join("other"));
        fs::create_dir(&folder).unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(folder.join("a.tar"), "a").unwrap();
        std::os::unix::fs::symlink("d/a.tar", root.join("link")).unwrap();
        let file = File::open(root.join("link")).unwrap();
        let (home, path) = Home::of(&file).unwrap().unwrap();
        assert_eq!(path, folder.join("a.tar"));
        fs::rename(&folder, &moved).unwrap();
        std::os::unix::fs::symlink(&other, &folder).unwrap();
        let index = folder.join("index");
        fs::write(home.at(&index), "").unwrap();
        assert!(moved.join("index").exists() && !other.join("index").exists());
        assert_eq!(home.shown(&home.at(&index)), index);
        assert_eq!(home.at(&other), other);
        assert_eq!(home.named(&format!("{}: bad", home.at(&index).display())), format!("{}: bad", index.display()));
        assert_eq!(Home::of(&file).unwrap().unwrap().1, moved.join("a.tar"));
        // Another file of that name is another file.
        fs::remove_file(moved.join("a.tar")).unwrap();
        fs::write(moved.join("a.tar"), "a").unwrap();
        assert!(Home::of(&file).unwrap().is_none());
    }
}
