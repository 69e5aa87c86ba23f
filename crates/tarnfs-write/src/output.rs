//! Where an archive is written to. A file gets its name when all of it is on the disk: until then it has none, or a
//! hidden one where the file system needs that.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid, fchmod, fchown, fstat, fsync, linkat, openat,
    renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

/// See the module.
#[derive(Debug)]
pub struct Output {
    file: File,
    place: Option<Place>,
}

/// Where a file will lie.
#[derive(Debug)]
struct Place {
    /// The path that was given.
    path: PathBuf,
    folder: OwnedFd,
    name: OsString,
    /// The name that it has until then.
    hidden: Option<OsString>,
    replaces: bool,
    /// What is replaced.
    old: Option<Stat>,
    /// What its mode is limited to.
    most: u32,
}

/// Tries to find a name that is not taken.
const TRIES: u32 = 100;

/// True of what is written to as it is: a device, a pipe.
fn is_written_as_it_is(path: &Path) -> bool {
    statat(CWD, path, AtFlags::empty())
        .is_ok_and(|stat| !matches!(FileType::from_raw_mode(stat.st_mode), FileType::RegularFile | FileType::Directory))
}

/// Opens it.
fn as_it_is(path: &Path) -> io::Result<File> {
    let file = openat(CWD, path, OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())?;
    // Somebody may have put another one there meanwhile.
    if FileType::from_raw_mode(fstat(&file)?.st_mode) == FileType::RegularFile {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    Ok(file.into())
}

impl Output {
    /// Standard output, or whatever else takes bytes as they come.
    pub fn stream(file: File) -> Self {
        Self { file, place: None }
    }

    /// A file that will lie at `path`. Unless it `replaces` what lies there, that is `AlreadyExists`, now or in the
    /// end.
    pub fn create(path: &Path, replaces: bool) -> io::Result<Self> {
        if is_written_as_it_is(path) {
            return Ok(Self::stream(as_it_is(path)?));
        }
        // What a symbolic link leads to is replaced, not the link.
        let target = if replaces { path.canonicalize().ok() } else { None };
        let target = target.as_deref().unwrap_or(path);
        let name = target.file_name().ok_or(Errno::ISDIR)?.to_owned();
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = openat(CWD, parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let mut old = None;
        match statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => return Err(Errno::ISDIR.into()),
            Ok(_) if !replaces => return Err(io::ErrorKind::AlreadyExists.into()),
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => old = Some(stat),
            _ => {}
        }
        let mut place = Place { path: path.to_owned(), folder, name, hidden: None, replaces, old, most: 0o777 };
        let file = place.open()?;
        Ok(Self { file, place: Some(place) })
    }

    /// The path that the file will have; `None` of a stream.
    pub fn path(&self) -> Option<&Path> {
        self.place.as_ref().map(|place| place.path.as_path())
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Device and number of files that are not to go into the archive: itself, and what it will replace.
    pub fn identities(&self) -> Vec<(u64, u64)> {
        let identity = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        let own = fstat(&self.file).ok().filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        let old = self.place.as_ref().and_then(|place| statat(&place.folder, &place.name, AtFlags::empty()).ok());
        own.into_iter().chain(old).map(identity).collect()
    }

    /// The file keeps the owner and the mode that it has; else it gets those of the one that it replaces.
    pub fn keep_mode(&mut self) {
        if let Some(place) = &mut self.place {
            place.old = None;
        }
    }

    /// Lets nobody but its owner read it who may not read a file of this mode and group.
    pub fn limit_mode(&mut self, mode: u32, group: u32) -> io::Result<()> {
        let Some(place) = &mut self.place else { return Ok(()) };
        let own = fstat(&self.file)?;
        let of_group = |gid: u32| if gid == group { mode & 0o070 } else { mode << 3 & 0o070 };
        place.most = 0o700 | of_group(place.old.as_ref().map_or(own.st_gid, |old| old.st_gid)) | mode & 0o007;
        // What replaces a file gets its mode in the end.
        if place.old.is_none() && own.st_mode & 0o777 & !place.most != 0 {
            fchmod(&self.file, Mode::from_raw_mode(own.st_mode & place.most))?;
        }
        Ok(())
    }

    /// What removes the hidden name that the file has until then, for a process that ends without dropping this.
    /// `None` if it has none, as where files need no name.
    pub fn remover(&self) -> Option<impl Fn() + Send + Sync + use<>> {
        let place = self.place.as_ref()?;
        let (hidden, folder) = (place.hidden.clone()?, place.folder.try_clone().ok()?);
        Some(move || {
            // If it cannot be removed, or has its own name by now, there is nothing else to do.
            let _ = unlinkat(&folder, &hidden, AtFlags::empty());
        })
    }

    /// Appends `bytes`.
    pub fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Gives the file its name: all or nothing. Returns what is known of it then.
    pub fn commit(mut self) -> io::Result<Metadata> {
        self.file.flush()?;
        let Some(place) = &mut self.place else { return self.file.metadata() };
        if let Some(old) = &place.old {
            as_old(&self.file, old, place.most)?;
        }
        self.file.sync_all()?;
        let written = self.file.metadata()?;
        place.name(&self.file)?;
        // The name is durable, too. Not all file systems know how, and not everybody may read the folder.
        let folder = openat(&place.folder, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        match folder.and_then(|folder| fsync(&folder)) {
            Ok(()) => {}
            Err(error @ (Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::ACCESS | Errno::ROFS)) => {
                log::debug!("{}: syncing its folder: {error}", place.path.display());
            }
            Err(error) => return Err(error.into()),
        }
        Ok(written)
    }
}

/// What replaces a file may be read by those who could read that, as far as `most` lets them, and belongs to the same
/// user, if that is possible.
fn as_old(file: &File, old: &Stat, most: u32) -> io::Result<()> {
    let own = fstat(file)?;
    let is_given = (own.st_uid, own.st_gid) == (old.st_uid, old.st_gid)
        || fchown(file, Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid))).is_ok();
    // Another group has nothing to do with it.
    let mode = if is_given { old.st_mode & 0o777 } else { old.st_mode & 0o700 };
    Ok(fchmod(file, Mode::from_raw_mode(mode & most))?)
}

impl Place {
    /// Opens a file without a name, or one of a hidden name.
    fn open(&mut self) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        // What replaces a file gets its mode in the end.
        let mode = Mode::from_raw_mode(if self.old.is_some() { 0o600 } else { 0o666 });
        match openat(&self.folder, ".", flags | OFlags::TMPFILE, mode) {
            // Where there is no /proc, it could not get a name.
            Ok(file) if Path::new("/proc/self/fd").exists() => return Ok(file.into()),
            Ok(_) | Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
        let (hidden, file) = self.hidden_name(|name| {
            openat(&self.folder, name, flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW, mode)
        })?;
        self.hidden = Some(hidden);
        Ok(file.into())
    }

    /// Calls `make` with hidden names until one is not taken.
    fn hidden_name<T>(&self, mut make: impl FnMut(&OsStr) -> rustix::io::Result<T>) -> io::Result<(OsString, T)> {
        /// Bytes of the name that are kept, so that all of it stays below NAME_MAX.
        const KEPT: usize = 200;
        for number in 0..TRIES {
            let own = &self.name.as_bytes()[..self.name.len().min(KEPT)];
            let end = format!(".{}-{number}.part", std::process::id());
            let name = OsStr::from_bytes(&[b".", own, end.as_bytes()].concat()).to_owned();
            match make(&name) {
                Ok(made) => return Ok((name, made)),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn name(&mut self, file: &File) -> io::Result<()> {
        if self.hidden.is_none() {
            let own = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
            let link = |name: &OsStr| linkat(CWD, &own, &self.folder, name, AtFlags::SYMLINK_FOLLOW);
            if !self.replaces {
                return Ok(link(&self.name)?);
            }
            self.hidden = Some(self.hidden_name(link)?.0);
        }
        let Some(hidden) = &self.hidden else { return Ok(()) };
        if self.replaces {
            renameat(&self.folder, hidden, &self.folder, &self.name)?;
        } else {
            match renameat_with(&self.folder, hidden, &self.folder, &self.name, RenameFlags::NOREPLACE) {
                // A file system without it. Between the look and the rename somebody may make a file of that name.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    if statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
                        return Err(io::ErrorKind::AlreadyExists.into());
                    }
                    renameat(&self.folder, hidden, &self.folder, &self.name)?;
                }
                named => named?,
            }
        }
        self.hidden = None;
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            // If it cannot be removed, there is nothing else to try.
            let _ = unlinkat(&self.folder, hidden, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_has_its_name_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.tar");
        let names = || fs::read_dir(folder.path()).unwrap().count();
        for hides in [false, true] {
            let mut output = Output::create(&path, false).unwrap();
            if hides {
                // As on a file system without files that have no name.
                let place = output.place.as_mut().unwrap();
                let (hidden, file) = place
                    .hidden_name(|name| openat(&place.folder, name, OFlags::RDWR | OFlags::CREATE, Mode::RUSR))
                    .unwrap();
                place.hidden = Some(hidden);
                output.file = file.into();
            }
            output.write_all(b"half").unwrap();
            assert!(!path.exists());
            // As a process does that is ended.
            let remover = output.remover();
            assert_eq!(remover.is_some(), hides);
            if let Some(remove) = remover {
                remove();
                assert_eq!(names(), 0);
            }
            drop(output);
            assert_eq!(names(), 0);
        }
        let mut output = Output::create(&path, false).unwrap();
        output.write_all(b"new").unwrap();
        // Somebody else was faster.
        fs::write(&path, "old").unwrap();
        assert_eq!(output.commit().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(Output::create(&path, false).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!((fs::read(&path).unwrap(), names()), (b"old".to_vec(), 1));
        let mut output = Output::create(&path, true).unwrap();
        output.write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        output.commit().unwrap();
        assert_eq!((fs::read(&path).unwrap(), names()), (b"new".to_vec(), 1));
    }

    #[test]
    fn a_file_that_took_the_place_of_a_device_is_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("x.tar"));
        fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        assert!(is_written_as_it_is(&link));
        Output::create(&link, false).unwrap().write_all(b"new").unwrap();
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        // As if it had been swapped behind the first look.
        assert_eq!(as_it_is(&link).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&target).unwrap(), b"old");
    }

    #[test]
    fn a_link_stays_and_what_it_leads_to_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let mut output = Output::create(&link, true).unwrap();
        output.write_all(b"new").unwrap();
        output.commit().unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(&target).unwrap(), b"new");
    }
}
