//! The folder to mount on: made where it does not exist, and removed again at the end.
//!
//! One that a person has named may be whatever they like, a symbolic link among others. One that is named after the
//! archive nobody has looked at: in the folder of somebody else, it could be a link of theirs that leads anywhere. Such
//! a one, and one that this program has just made, must be a folder, empty, and belong to whoever runs this or to root;
//! it is opened once, and what was looked at is what is mounted on.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, openat, statat};
use rustix::io::Errno;

use crate::args::shown;
use crate::exit::{Code, Failure};
use crate::made::{Made, split};
use crate::signals::Ending;
use crate::watcher::Watcher;

/// Makes the mount point where it does not exist, and removes it again when dropped.
#[derive(Debug)]
pub(crate) struct Mountpoint<'a> {
    path: &'a Path,
    made: Option<Arc<Made>>,
    ending: &'a Ending,
    watcher: Option<&'a Watcher>,
}

fn failed(path: &Path, what: &str) -> Failure {
    let path = shown(path.as_os_str());
    Failure::new(Code::CannotMount, format!("the mount point {path} {what}; name another: tarnfs ARCHIVE MOUNTPOINT"))
}

/// That the folder cannot be made: what is missing is said by name. `made_up`: nobody has named it.
fn cannot_make(path: &Path, made_up: bool, error: &io::Error) -> Failure {
    let missing = path.ancestors().skip(1).take_while(|parent| !parent.exists()).last();
    let why = match missing {
        Some(missing) if error.kind() == io::ErrorKind::NotFound => {
            format!("{} does not exist", shown(missing.as_os_str()))
        }
        _ => error.to_string(),
    };
    let another = if made_up { "; name another: tarnfs ARCHIVE MOUNTPOINT" } else { "" };
    Failure::new(Code::CannotMount, format!("cannot make mount point {}: {why}{another}", shown(path.as_os_str())))
}

/// What would keep `path` from being a mount point, asked before the archive is read: that may take long. `made_up`:
/// nobody has named it.
pub(crate) fn check(path: &Path, made_up: bool) -> Result<(), Failure> {
    not_root(path)?;
    let metadata = if made_up { path.symlink_metadata() } else { path.metadata() };
    match metadata {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = path.parent().unwrap_or(path);
            let access = rustix::fs::access(parent, rustix::fs::Access::WRITE_OK);
            access.map_err(|error| cannot_make(path, made_up, &error.into()))
        }
        Ok(_) if made_up => open(path).map(drop),
        Ok(metadata) if !metadata.is_dir() && !tarnfs_fuse::is_mounted_device(path) => {
            Err(failed(path, "is not a folder"))
        }
        // Anything else is found out, and said better, when it is mounted on.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Fails for the root of all: who starts from now on would find nothing but the archive, and nobody could unmount it by
/// that path, which leads to what lies below.
fn not_root(path: &Path) -> Result<(), Failure> {
    if resolved(path) == Path::new("/") {
        return Err(failed(path, "is the root of the file system, and everything else would be hidden"));
    }
    Ok(())
}

/// The folder in which a mount point lies that nobody has named, and the source that it is named after. It is opened
/// before the source is: reading that may take long, and whoever may write the folders above can put a link in its
/// place meanwhile.
#[derive(Debug)]
pub(crate) struct Place {
    folder: OwnedFd,
    source: PathBuf,
    /// What the source was in this folder.
    identity: Option<Identity>,
}

/// Device and number of a file.
pub(crate) type Identity = (u64, u64);

impl Place {
    /// The place of `path`, which lies beside `source`.
    pub(crate) fn new(path: &Path, source: &Path) -> Result<Self, Failure> {
        let (folder, _) = split(path).map_err(|error| cannot_make(path, true, &error))?;
        let found = source.file_name().and_then(|name| statat(&folder, name, AtFlags::empty()).ok());
        Ok(Self { folder, source: source.to_owned(), identity: found.map(|found| (found.st_dev, found.st_ino)) })
    }

    /// Fails unless the source that was `opened` lies in this folder.
    pub(crate) fn check(&self, opened: Option<Identity>) -> Result<(), Failure> {
        if opened.is_some() && opened == self.identity {
            return Ok(());
        }
        let source = shown(self.source.as_os_str());
        let what = "was moved or replaced while it was opened, and the mount point would lie beside it; try again, or name a mount point";
        Err(Failure::new(Code::CannotMount, format!("{source} {what}")))
    }
}

/// Opens a folder that nobody has named, if it can be nothing but a mount point.
fn open(path: &Path) -> Result<OwnedFd, Failure> {
    only_mount_point(path, openat(CWD, path, FOLDER, Mode::empty()))
}

/// How the folder is opened: through no link.
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What was opened at `path` through no link, if it can be nothing but a mount point.
fn only_mount_point(path: &Path, opened: Result<OwnedFd, Errno>) -> Result<OwnedFd, Failure> {
    let folder = opened.map_err(|error| match error {
        Errno::LOOP | Errno::NOTDIR if path.is_symlink() => failed(path, "is a symbolic link, which is not followed"),
        Errno::NOTDIR => failed(path, "is not a folder"),
        error => failed(path, &format!("cannot be opened: {}", io::Error::from(error))),
    })?;
    let cannot = |error: io::Error| failed(path, &format!("cannot be looked at: {error}"));
    let folder = File::from(folder);
    let owner = folder.metadata().map_err(cannot)?.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(failed(path, &format!("belongs to another user (number {owner})")));
    }
    for entry in Dir::read_from(&folder).map_err(|error| cannot(error.into()))? {
        let entry = entry.map_err(|error| cannot(error.into()))?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            return Err(failed(path, "is there and is not empty"));
        }
    }
    Ok(folder.into())
}

/// `path` without symbolic links; its last component need not exist.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    let parent = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
    path.canonicalize().ok().or_else(parent).unwrap_or_else(|| path.to_owned())
}

impl<'a> Mountpoint<'a> {
    /// The folder is open where it is the one to mount on whatever its path leads to by then. `place` is where it lies
    /// if nobody has named it.
    pub(crate) fn new(
        path: &'a Path,
        place: Option<&Place>,
        ending: &'a Ending,
        watcher: Option<&'a Watcher>,
    ) -> Result<(Self, Option<OwnedFd>), Failure> {
        let name = path.file_name().unwrap_or_default();
        let made = match place {
            Some(place) => place.folder.try_clone().and_then(|folder| Made::within(folder, name)),
            None => Made::new(path),
        };
        let made = match made {
            Ok(made) => Some(Arc::new(made)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            Err(error) => {
                return Err(cannot_make(path, place.is_some(), &error));
            }
        };
        ending.made_folder(made.clone());
        if let Some((watcher, made)) = watcher.zip(made.as_ref())
            && let Err(error) = watcher.made(path, made)
        {
            log::debug!("{}: only this process removes it: {error}", path.display());
        }
        let mountpoint = Self { path, made, ending, watcher };
        // What was made is opened where it was made: its path may lead elsewhere by now.
        let folder = match (&mountpoint.made, place) {
            (Some(made), _) => Some(only_mount_point(path, made.open())?),
            (None, Some(place)) => Some(only_mount_point(path, openat(&place.folder, name, FOLDER, Mode::empty()))?),
            (None, None) => None,
        };
        if let Some(Err(error)) = watcher.map(|watcher| watcher.mounting(&resolved(path))) {
            log::debug!("{}: nobody sees to it before it is mounted: {error}", path.display());
        }
        Ok((mountpoint, folder))
    }
}

impl Drop for Mountpoint<'_> {
    fn drop(&mut self) {
        // Told also where there is nothing to remove: it must not unmount what others may mount here from now on.
        let gone = self.watcher.map(Watcher::gone);
        if let Some(made) = &self.made {
            // A watcher that has died leaves it to this process.
            let removed = if let Some(Ok(())) = gone { Ok(()) } else { made.remove() };
            if let Err(error) = removed {
                log::warn!("the folder {} stays: {error}", self.path.display());
            }
            self.ending.made_folder(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Where somebody else can write, a folder that was made may be another thing a moment later.
    #[test]
    fn what_was_made_is_mounted_on_and_nothing_that_took_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let (at, elsewhere) = (folder.path().join("parent/at"), folder.path().join("elsewhere"));
        std::fs::create_dir(folder.path().join("parent")).unwrap();
        std::fs::create_dir_all(elsewhere.join("at")).unwrap();
        let ending = Ending::default();
        let (mountpoint, opened) = Mountpoint::new(&at, None, &ending, None).unwrap();
        let identity = |file: &File| file.metadata().map(|found| (found.dev(), found.ino())).unwrap();
        let opened = File::from(opened.expect("it is open"));
        assert_eq!(identity(&opened), identity(&File::open(&at).unwrap()));
        drop(mountpoint);
        assert!(!at.exists());
        // One that is there already is the one that was named, a link among others.
        symlink(&elsewhere, &at).unwrap();
        let (_, opened) = Mountpoint::new(&at, None, &ending, None).unwrap();
        assert!(opened.is_none());
        std::fs::remove_file(&at).unwrap();
        let made = Made::new(&at).unwrap();
        std::fs::remove_dir(&at).unwrap();
        symlink(&elsewhere, &at).unwrap();
        assert!(only_mount_point(&at, made.open()).unwrap_err().message.contains("symbolic link"));
        std::fs::remove_file(&at).unwrap();
        std::fs::rename(folder.path().join("parent"), folder.path().join("moved")).unwrap();
        std::fs::create_dir(folder.path().join("moved/at")).unwrap();
        symlink(&elsewhere, folder.path().join("parent")).unwrap();
        let moved = File::from(only_mount_point(&at, made.open()).unwrap());
        assert_eq!(identity(&moved), identity(&File::open(folder.path().join("moved/at")).unwrap()));
    }

    /// Reading the archive may take hours, in which the folder can be moved and a link put in its place.
    #[test]
    fn what_nobody_has_named_lies_beside_the_archive_that_was_opened() {
        let scratch = tempfile::tempdir().unwrap();
        let [d, moved, elsewhere] = ["d", "moved", "elsewhere"].map(|name| scratch.path().join(name));
        let (at, archive) = (d.join("a"), d.join("a.tar"));
        let ending = Ending::default();
        let identity = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino())).ok();
        std::fs::create_dir(&d).unwrap();
        std::fs::write(&archive, "").unwrap();
        for is_there in [false, true] {
            std::fs::create_dir_all(elsewhere.join("a")).unwrap();
            let place = Place::new(&at, &archive).unwrap();
            let opened = identity(&archive);
            std::fs::rename(&d, &moved).unwrap();
            symlink(&elsewhere, &d).unwrap();
            place.check(opened).unwrap();
            assert!(place.check(None).is_err() && place.check(identity(&elsewhere)).is_err());
            if is_there {
                std::fs::create_dir(moved.join("a")).unwrap();
            }
            let (mountpoint, folder) = Mountpoint::new(&at, Some(&place), &ending, None).unwrap();
            let folder = File::from(folder.unwrap()).metadata().unwrap();
            assert_eq!(Some((folder.dev(), folder.ino())), identity(&moved.join("a")));
            drop(mountpoint);
            assert_eq!(moved.join("a").exists(), is_there, "only what was made is removed");
            assert!(elsewhere.join("a").exists());
            // Now the link is there first, and the archive elsewhere.
            let place = Place::new(&at, &archive).unwrap();
            assert!(place.check(opened).unwrap_err().message.contains("was moved"));
            std::fs::remove_file(&d).unwrap();
            std::fs::rename(&moved, &d).unwrap();
        }
    }

    #[test]
    fn what_nobody_has_named_is_an_empty_folder_of_ours() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("at");
        let says = |what: &str| {
            let message = check(&at, true).unwrap_err().message;
            assert!(message.contains(what), "{message}");
            assert_eq!(open(&at).unwrap_err().message, message);
        };
        check(&at, true).unwrap();
        std::fs::create_dir(&at).unwrap();
        check(&at, true).unwrap();
        std::fs::write(at.join("file"), "").unwrap();
        says("not empty");
        check(&at, false).unwrap();
        let empty = folder.path().join("empty");
        std::fs::rename(&at, folder.path().join("full")).unwrap();
        std::fs::create_dir(&empty).unwrap();
        symlink(&empty, &at).unwrap();
        says("symbolic link");
        check(&at, false).unwrap();
        std::fs::remove_file(&at).unwrap();
        symlink(folder.path().join("nowhere"), &at).unwrap();
        says("symbolic link");
        std::fs::remove_file(&at).unwrap();
        std::fs::write(&at, "").unwrap();
        says("not a folder");
        if rustix::process::geteuid().is_root() {
            std::fs::remove_file(&at).unwrap();
            std::fs::create_dir(&at).unwrap();
            std::os::unix::fs::chown(&at, Some(65534), None).unwrap();
            says("another user (number 65534)");
        }
    }
}
