//! A file that gets its name when it is complete.
//!
//! Its first name says whose it is: `.<name>.<random>.tmp` in the same folder. Whoever writes it holds a lock on it, so that what a
//! killed process has left can be told from what a living one is writing, also in another container; the next writer removes it.

use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, fstat, open, statat, unlink};
use rustix::process::geteuid;

/// A file under a temporary name; removed when dropped, unless it was renamed.
#[derive(Debug)]
pub(super) struct Temporary {
    /// Locked as long as it is open.
    file: File,
    path: PathBuf,
    destination: PathBuf,
    is_renamed: bool,
}

const SUFFIX: &[u8] = b".tmp";
/// Hexadecimal digits of the random part.
const DIGITS: usize = 16;

impl Temporary {
    /// A new file that will be `destination`, with these permission bits (and the umask). Makes its folder if there is none.
    pub(super) fn create(destination: &Path, mode: u32) -> io::Result<Self> {
        let folder = folder_of(destination);
        if !folder.exists() {
            // As the XDG base directory specification asks for folders of its kind.
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        remove_left_overs(destination);
        let mut last = None;
        for _ in 0..16 {
            let random = RandomState::new().hash_one(std::process::id());
            let path = folder.join(temporary_name(destination, random)?);
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match open(&path, flags, Mode::from_raw_mode(mode)) {
                Ok(file) => {
                    let file = File::from(file);
                    // Where there are no locks, nobody takes it for left over, either.
                    let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
                    let this = Self { file, path, destination: destination.to_path_buf(), is_renamed: false };
                    // Between creating and locking it, somebody else may have taken it for left over.
                    if fstat(&this.file)?.st_nlink == 1 {
                        return Ok(this);
                    }
                }
                Err(error) => {
                    last = Some(error);
                    if error != rustix::io::Errno::EXIST {
                        break;
                    }
                }
            }
        }
        let error = last.unwrap_or(rustix::io::Errno::EXIST);
        Err(io::Error::new(io::Error::from(error).kind(), format!("a new file in {}: {error}", folder.display())))
    }

    /// The file for writing.
    pub(super) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// The same file for reading only. Not by its name: that may be another one's by now.
    pub(super) fn reopen(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let again = File::from(open(&self.path, flags, Mode::empty())?);
        let (this, other) = (fstat(&self.file)?, fstat(&again)?);
        if (this.st_dev, this.st_ino) == (other.st_dev, other.st_ino) {
            Ok(again)
        } else {
            Err(io::Error::other(format!("{} was replaced while it was written", self.path.display())))
        }
    }

    /// Makes its content durable, then gives it its name, then makes the name durable.
    pub(super) fn rename(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        std::fs::rename(&self.path, &self.destination)?;
        self.is_renamed = true;
        // The file is complete and has its name. A folder that cannot be synced costs at most a new index after a power cut.
        if let Err(error) = File::open(folder_of(&self.destination)).and_then(|folder| folder.sync_all()) {
            log::debug!("{}: its folder could not be synced: {error}", self.destination.display());
        }
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_renamed {
            let _ = unlink(&self.path);
        }
    }
}

fn folder_of(destination: &Path) -> &Path {
    match destination.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn temporary_name(destination: &Path, random: u64) -> io::Result<OsString> {
    let name = destination.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut bytes = prefix(name.as_bytes());
    bytes.extend_from_slice(format!("{random:0DIGITS$x}").as_bytes());
    bytes.extend_from_slice(SUFFIX);
    Ok(OsString::from_vec(bytes))
}

fn prefix(name: &[u8]) -> Vec<u8> {
    [b".", name, b"."].concat()
}

/// True for a temporary name of the index `name`.
fn is_temporary(candidate: &[u8], name: &[u8]) -> bool {
    candidate
        .strip_prefix(prefix(name).as_slice())
        .and_then(|rest| rest.strip_suffix(SUFFIX))
        .is_some_and(|random| random.len() == DIGITS && random.iter().all(u8::is_ascii_hexdigit))
}

/// Removes what killed processes of this user have left of the same index. Failing at it is no failure.
fn remove_left_overs(destination: &Path) {
    let Some(name) = destination.file_name() else { return };
    let Ok(folder) = std::fs::read_dir(folder_of(destination)) else { return };
    for entry in folder.flatten().filter(|entry| is_temporary(entry.file_name().as_bytes(), name.as_bytes())) {
        let path = entry.path();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = open(&path, flags, Mode::empty()) else { continue };
        let (Ok(opened), Ok(named)) = (fstat(&file), statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW)) else { continue };
        let is_same = (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino);
        let is_mine = opened.st_uid == geteuid().as_raw();
        if is_same && is_mine && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            log::debug!("{} was left by a process that is gone: removed", path.display());
            let _ = unlink(&path);
        }
    }
}
