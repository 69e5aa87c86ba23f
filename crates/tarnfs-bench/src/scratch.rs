//! Where scratch files lie.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;
use rustix::mount::{UnmountFlags, unmount};

use crate::Error;
use crate::machine::{free_memory, is_in_memory};

/// A new folder of this process. It is removed with all that is in it when this is dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A new folder in `parent`, or on a disk, with room for so many bytes.
    pub fn new(parent: Option<&Path>, bytes: u64) -> Result<Self, Error> {
        let given = parent.map(Path::to_owned);
        let temporary = std::env::temp_dir();
        // What is in memory is faster than what people have their files on.
        let usual = if is_in_memory(&temporary) { PathBuf::from("/var/tmp") } else { temporary };
        Self::within(&given.unwrap_or(usual), bytes)
    }

    /// The same in memory; `None` if there is none for files, or too little of it.
    pub fn in_memory(bytes: u64) -> Option<Self> {
        let shared = Path::new("/dev/shm");
        // It may be larger than the memory there is.
        if !is_in_memory(shared) || free_memory().is_some_and(|free| free < bytes) {
            return None;
        }
        Self::within(shared, bytes).ok()
    }

    fn within(parent: &Path, bytes: u64) -> Result<Self, Error> {
        let parent = parent.canonicalize().map_err(Error::at(parent))?;
        check_owner(&parent)?;
        check_room(&parent, bytes)?;
        for number in 0..u32::MAX {
            let path = parent.join(format!("tarnfs-bench.{}.{number}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::at(&path)(error)),
            }
        }
        Err(Error::Other(format!("{}: full of scratch folders", parent.display())))
    }

    /// True if so many bytes are free.
    pub fn has_room(&self, bytes: u64) -> bool {
        statvfs(&self.path).is_ok_and(|found| found.f_bavail.saturating_mul(found.f_frsize) >= bytes)
    }

    /// An error that says so if they are not.
    pub fn check_room(&self, bytes: u64) -> Result<(), Error> {
        check_room(&self.path, bytes)
    }

    /// The folder. Its path has no links in it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Something in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// A new folder in it, or one that is emptied.
    pub fn folder(&self, name: impl AsRef<Path>) -> Result<PathBuf, Error> {
        let path = self.join(name);
        self.remove(&path)?;
        fs::create_dir(&path).map_err(Error::at(&path))?;
        Ok(path)
    }

    /// Removes what is at a path in it, if there is something. Never goes into a mount: behind it are the files of
    /// somebody else.
    pub fn remove(&self, path: &Path) -> Result<(), Error> {
        if !path.starts_with(&self.path) {
            return Err(Error::Other(format!("{}: is not in the scratch folder", path.display())));
        }
        // Who cannot know removes nothing.
        if let Some(at) = find_mounts_below(path).map_err(Error::at(path))?.into_iter().next() {
            let what = "still mounted, so it is left there";
            return Err(Error::Other(format!("{}: {what}", at.display())));
        }
        let removed = match fs::symlink_metadata(path) {
            Ok(found) if found.is_dir() => remove_folder(path),
            Ok(_) => fs::remove_file(path),
            Err(error) => Err(error),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::at(path)(error)),
            _ => Ok(()),
        }
    }
}

/// An error if anybody may put something else in the place of what is made in this folder.
fn check_owner(folder: &Path) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt;
    const OTHERS_WRITE: u32 = 0o002;
    const STICKY: u32 = 0o1000;
    let mode = fs::metadata(folder).map_err(Error::at(folder))?.permissions().mode();
    if mode & (OTHERS_WRITE | STICKY) == OTHERS_WRITE {
        let what = "everybody may rename what is in it; --folder names another place";
        return Err(Error::Other(format!("{}: {what}", folder.display())));
    }
    Ok(())
}

fn check_room(folder: &Path, bytes: u64) -> Result<(), Error> {
    let found = statvfs(folder).map_err(|error| Error::at(folder)(error.into()))?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    if free >= bytes {
        return Ok(());
    }
    let megabytes = |bytes: u64| bytes.div_ceil(1 << 20);
    let (needs, has) = (megabytes(bytes), megabytes(free));
    let shown = folder.display();
    Err(Error::Other(format!("{shown}: needs {needs} MiB, and {has} MiB are free; --folder names another place")))
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for at in mounts_below(&self.path).iter().rev() {
            // Who may not do so has done it with a helper before, or leaves the folder where it is.
            let _ = unmount(at, UnmountFlags::DETACH);
        }
        let path = self.path.clone();
        // Nobody is left who could be told.
        let _ = self.remove(&path);
    }
}

/// Removes a folder, also with folders in it that nobody may write to, as archives have them.
fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let mut folders = vec![path.to_owned()];
            while let Some(folder) = folders.pop() {
                use std::os::unix::fs::PermissionsExt;
                fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
                for entry in folder.read_dir()? {
                    let entry = entry?;
                    if entry.file_type()?.is_dir() {
                        folders.push(entry.path());
                    }
                }
            }
            fs::remove_dir_all(path)
        }
        other => other,
    }
}

/// Where something is mounted at or below `path`, outer ones first.
pub(crate) fn mounts_below(path: &Path) -> Vec<PathBuf> {
    find_mounts_below(path).unwrap_or_default()
}

fn find_mounts_below(path: &Path) -> io::Result<Vec<PathBuf>> {
    use std::os::unix::ffi::OsStrExt;
    let mounts = fs::read("/proc/self/mountinfo")?;
    let at = |line: &[u8]| line.split(|&byte| byte == b' ').nth(4).map(<[u8]>::to_vec);
    let mut found: Vec<PathBuf> = mounts
        .split(|&byte| byte == b'\n')
        .filter_map(at)
        // Blanks and line ends are written in octal there.
        .map(|at| PathBuf::from(std::ffi::OsStr::from_bytes(&without_octal(&at))))
        .filter(|at| at.starts_with(path))
        .collect();
    found.sort();
    Ok(found)
}

fn without_octal(escaped: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(escaped.len());
    let mut at = 0;
    while at < escaped.len() {
        let digits = escaped.get(at + 1..at + 4).filter(|_| escaped[at] == b'\\');
        let number = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(number.unwrap_or(escaped[at]));
        at += if number.is_some() { 4 } else { 1 };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_folder_is_removed_with_all_that_is_in_it() {
        use std::os::unix::fs::PermissionsExt;
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(Some(parent.path()), 1).unwrap();
        let path = scratch.path().to_owned();
        let locked = scratch.folder("tree").unwrap().join("locked");
        fs::create_dir_all(locked.join("below")).unwrap();
        fs::write(locked.join("file"), "x").unwrap();
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)).unwrap();
        assert!(Scratch::new(Some(parent.path()), 0).unwrap().path() != path);
        assert_eq!(scratch.folder("tree").unwrap().read_dir().unwrap().count(), 0);
        drop(scratch);
        assert!(!path.exists());
        let needs = Scratch::new(Some(parent.path()), u64::MAX).unwrap_err().to_string();
        assert!(needs.contains("are free"), "{needs}");
        assert!(Scratch::new(Some(&parent.path().join("none")), 0).is_err());
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let others = Scratch::new(Some(parent.path()), 0).unwrap_err().to_string();
        assert!(others.contains("everybody may rename"), "{others}");
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        Scratch::new(Some(parent.path()), 0).unwrap();
    }

    /// What is mounted there belongs to somebody else.
    #[test]
    fn files_behind_a_mount_stay() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(Some(parent.path()), 0).unwrap();
        let own = parent.path().join("own files");
        fs::create_dir(&own).unwrap();
        fs::write(own.join("file"), "x").unwrap();
        let at = scratch.folder("at here").unwrap();
        if rustix::mount::mount_bind(&own, &at).is_err() {
            return;
        }
        assert!(scratch.remove(&at).unwrap_err().to_string().contains("still mounted"));
        drop(scratch);
        assert_eq!(fs::read(own.join("file")).unwrap(), b"x");
        assert_eq!(parent.path().read_dir().unwrap().count(), 1);
    }
}
