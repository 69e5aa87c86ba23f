//! Where an archive is written to. A file gets its name when all of it is on the disk: until then it has none, or a
//! hidden one where the file system needs that.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid, XattrFlags, fchmod, fchown, fgetxattr_query,
    fremovexattr, fsetxattr, fstat, fsync, lgetxattr, linkat, openat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

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
    /// The access list of that; empty if it has one that cannot be read.
    list: Option<Vec<u8>>,
    /// What its mode is limited to.
    most: u32,
    /// Nobody but its owner may open it until that is known.
    is_private: bool,
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
    let opened = fstat(&file)?;
    // Somebody may have put another one there meanwhile.
    if FileType::from_raw_mode(opened.st_mode) == FileType::RegularFile {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    // Asked of what is open: what lies there may be another thing at each look.
    if is_planted(path, &opened) {
        let what = "another user has put a pipe or a link there, and would get what is written: remove it";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(file.into())
}

/// The folder that `path` lies in.
fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// True if all may make things in `folder`, and what belongs to `uid` was put there by somebody else: neither by this
/// user nor by the one whose folder it is. The kernel has this rule for links and pipes (`protected_symlinks`,
/// `protected_fifos`), but may be told not to, and asks it of pipes only where a file would be made.
fn is_strange(folder: &Stat, uid: u32) -> bool {
    let is_shared = folder.st_mode & 0o1000 != 0 && folder.st_mode & 0o022 != 0;
    is_shared && uid != geteuid().as_raw() && uid != folder.st_uid
}

/// True if somebody else has led this user to what was `opened` at `path`.
fn is_planted(path: &Path, opened: &Stat) -> bool {
    let folder_of = |path: &Path| statat(CWD, parent_of(path), AtFlags::empty()).ok();
    let is_there = match (folder_of(path), statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)) {
        (Some(folder), Ok(there)) => is_strange(&folder, there.st_uid),
        // It was there, and somebody has taken it away.
        (Some(folder), Err(_)) => is_strange(&folder, opened.st_uid),
        (None, _) => false,
    };
    // An own link may lead to a shared folder. (What has no path, as a pipe of the shell, lies in no folder.)
    let real = path.canonicalize().ok().and_then(|real| folder_of(&real));
    is_there || real.is_some_and(|folder| is_strange(&folder, opened.st_uid))
}

/// Where what replaces the file at `path` goes: what a symbolic link leads to is replaced, not the link. `None` if that
/// is `path` itself, also where another user has put a link into a shared folder.
fn behind_link(path: &Path) -> Option<PathBuf> {
    /// As many as the kernel follows.
    const MOST: usize = 40;
    let mut at = path.to_owned();
    for followed in 0..MOST {
        let found = statat(CWD, &at, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let folder = statat(CWD, parent_of(&at), AtFlags::empty()).ok()?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Symlink || is_strange(&folder, found.st_uid) {
            return (followed > 0).then_some(at);
        }
        at = parent_of(&at).join(std::fs::read_link(&at).ok()?);
    }
    None
}

const ACCESS_LIST: &str = "system.posix_acl_access";

/// The access list of the file called `name` in `folder`.
fn list_of(folder: &OwnedFd, name: &OsStr) -> Option<Vec<u8>> {
    // By way of /proc, as a descriptor that is only a path has no attributes.
    let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
    let mut list = vec![0; 1 << 16];
    match lgetxattr(&path, ACCESS_LIST, list.as_mut_slice()) {
        Ok(length) => {
            list.truncate(length);
            Some(list)
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => None,
        // Nobody knows.
        Err(_) => Some(Vec::new()),
    }
}

impl Output {
    /// Standard output, or whatever else takes bytes as they come.
    pub fn stream(file: File) -> Self {
        Self { file, place: None }
    }

    /// A file that will lie at `path`. Unless it `replaces` what lies there, that is `AlreadyExists`, now or in the
    /// end. If it `is_private`, nobody but its owner may open it before [`Output::limit_mode`]: who has it open then
    /// reads all that is written.
    pub fn create(path: &Path, replaces: bool, is_private: bool) -> io::Result<Self> {
        if is_written_as_it_is(path) {
            return Ok(Self::stream(as_it_is(path)?));
        }
        let target = if replaces { behind_link(path) } else { None };
        let target = target.as_deref().unwrap_or(path);
        let name = target.file_name().ok_or(Errno::ISDIR)?.to_owned();
        let folder = openat(CWD, parent_of(target), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let mut old = None;
        match statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => return Err(Errno::ISDIR.into()),
            Ok(_) if !replaces => return Err(io::ErrorKind::AlreadyExists.into()),
            // Nobody gets the new one by having put a file there.
            Ok(stat) if is_strange(&fstat(&folder)?, stat.st_uid) => {}
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => old = Some(stat),
            _ => {}
        }
        let list = old.as_ref().and_then(|_| list_of(&folder, &name));
        let mut place =
            Place { path: path.to_owned(), folder, name, hidden: None, replaces, old, list, most: 0o777, is_private };
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
        let old =
            self.place.as_ref().and_then(|place| statat(&place.folder, &place.name, AtFlags::SYMLINK_NOFOLLOW).ok());
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
        let keeps_group = place.old.as_ref().map_or(own.st_gid, |old| old.st_gid) == group;
        place.most = 0o700 | if keeps_group { mode & 0o077 } else { for_another_group(mode, true) };
        // A list that comes from the folder names others who may read it.
        let has_list = !all_may_read(place.most) && fgetxattr_query(&self.file, ACCESS_LIST).is_ok();
        let mut most = place.most;
        if has_list {
            fremovexattr(&self.file, ACCESS_LIST)?;
            // The bits of the group said what its entries may at most.
            most &= 0o700;
        }
        // What replaces a file gets its mode in the end.
        let mode =
            if place.is_private && place.old.is_none() { 0o666 & !umask() & most } else { own.st_mode & 0o777 & most };
        if place.old.is_none() && own.st_mode & 0o777 != mode {
            fchmod(&self.file, Mode::from_raw_mode(mode))?;
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
            as_old(&self.file, old, place.list.as_deref(), place.most)?;
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

/// What new files do not get of their mode.
fn umask() -> u32 {
    let umask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::umask(umask);
    umask.as_raw_mode()
}

/// The mode of a file that takes the place of one of that `mode`, but belongs to another group, and to another user if
/// it does not have the `same_owner`. Nobody may do more than before: those of its group were others, and those of the
/// old group, or its owner, are others now.
pub fn for_another_group(mode: u32, same_owner: bool) -> u32 {
    let owner = if same_owner { 0o7 } else { mode >> 6 };
    let all = owner & mode >> 3 & mode & 0o7;
    mode & 0o700 | all << 3 | all
}

/// True if a limit of [`Output::limit_mode`] is none for those who read.
fn all_may_read(most: u32) -> bool {
    most & 0o044 == 0o044
}

/// What replaces a file may be read by those who could read that, as far as `most` lets them, and belongs to the same
/// user, if that is possible. `list`: its access list.
fn as_old(file: &File, old: &Stat, list: Option<&[u8]>, most: u32) -> io::Result<()> {
    let own = fstat(file)?;
    let is_given = (own.st_uid, own.st_gid) == (old.st_uid, old.st_gid)
        || fchown(file, Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid))).is_ok();
    // One that comes from the folder. Mostly there is none.
    let _ = fremovexattr(file, ACCESS_LIST);
    let mut mode =
        if is_given { old.st_mode & 0o777 } else { for_another_group(old.st_mode, own.st_uid == old.st_uid) };
    if let Some(list) = list {
        if is_given && all_may_read(most) && fsetxattr(file, ACCESS_LIST, list, XattrFlags::empty()).is_ok() {
            return Ok(());
        }
        // Where there was a list, the other bits do not say who could read it.
        mode &= 0o700;
    }
    Ok(fchmod(file, Mode::from_raw_mode(mode & most))?)
}

impl Place {
    /// Opens a file without a name, or one of a hidden name.
    fn open(&mut self) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        // What replaces a file gets its mode in the end.
        let mode = Mode::from_raw_mode(if self.old.is_some() || self.is_private { 0o600 } else { 0o666 });
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
            let mut output = Output::create(&path, false, false).unwrap();
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
        let mut output = Output::create(&path, false, false).unwrap();
        output.write_all(b"new").unwrap();
        // Somebody else was faster.
        fs::write(&path, "old").unwrap();
        assert_eq!(output.commit().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(Output::create(&path, false, false).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!((fs::read(&path).unwrap(), names()), (b"old".to_vec(), 1));
        let mut output = Output::create(&path, true, false).unwrap();
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
        Output::create(&link, false, false).unwrap().write_all(b"new").unwrap();
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        // As if it had been swapped behind the first look.
        assert_eq!(as_it_is(&link).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&target).unwrap(), b"old");
    }

    #[test]
    fn in_another_group_nobody_may_do_more_than_before() {
        for (mode, same_owner, other_owner) in [
            (0o644, 0o644, 0o644),
            (0o664, 0o644, 0o644),
            (0o640, 0o600, 0o600),
            (0o604, 0o600, 0o600),
            (0o066, 0o066, 0),
        ] {
            assert_eq!((for_another_group(mode, true), for_another_group(mode, false)), (same_owner, other_owner));
        }
    }

    #[test]
    fn a_link_stays_and_what_it_leads_to_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let mut output = Output::create(&link, true, false).unwrap();
        output.write_all(b"new").unwrap();
        output.commit().unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(&target).unwrap(), b"new");
    }
}
