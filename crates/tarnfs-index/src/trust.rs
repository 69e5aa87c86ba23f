//! Whose file is this? An index that somebody else could have planted is not believed.
//!
//! The rule: whoever could write the index could have written the archive as well. So an index is believed only if it
//! is a regular file with one name, reached through no symbolic link, that belongs to this user, to root, or to the
//! owner of the archive, and that nobody may write who may not write the archive, too.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, open as open_file};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::Error;

/// Who may write an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// User who owns it.
    pub user: u32,
    /// Group that owns it.
    pub group: u32,
    /// Its permission bits (0o7777).
    pub mode: u32,
}

/// Bits of the mode that let the group or others write.
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

impl Owner {
    /// The owner of an open file.
    pub fn of(file: &impl AsFd) -> io::Result<Self> {
        let stat = fstat(file)?;
        Ok(Self { user: stat.st_uid, group: stat.st_gid, mode: stat.st_mode & 0o7777 })
    }
}

/// Opens the index at `path` for reading, if it may be believed.
///
/// `archive` is who may write the archive that it stands for; `None` where the archive is no local file. With
/// `trust_any` (`--trust-index`) only what cannot be an index at all is refused. [`Error::Missing`] if there is no
/// file. Never waits: a fifo of that name is refused.
pub fn open(path: &Path, archive: Option<&Owner>, trust_any: bool) -> Result<File, Error> {
    open_for(path, OFlags::RDONLY, archive, trust_any)
}

/// Opens a file of this user at `path` for reading and writing, which is made if there is none. Refused is what
/// [`open`] refuses.
pub fn open_to_write(path: &Path) -> Result<File, Error> {
    open_for(path, OFlags::RDWR | OFlags::CREATE, None, false)
}

fn open_for(path: &Path, access: OFlags, archive: Option<&Owner>, trust_any: bool) -> Result<File, Error> {
    let links = if trust_any { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | links;
    let file = match open_file(path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => File::from(file),
        // A name that is too long is that of no file.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => return Err(Error::Missing),
        Err(Errno::LOOP) => return Err(refused(path, "it is a symbolic link")),
        Err(Errno::NXIO | Errno::ISDIR) => {
            return Err(Error::NotTrusted(format!("{} is not a file", path.display())));
        }
        Err(error) => return Err(io::Error::from(error).into()),
    };
    let stat = fstat(&file).map_err(io::Error::from)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Error::NotTrusted(format!("{} is not a file", path.display())));
    }
    if trust_any {
        return Ok(file);
    }
    // None any more if another one has taken its place since it was opened.
    if stat.st_nlink > 1 {
        return Err(refused(path, "it has several names"));
    }
    let me = geteuid().as_raw();
    if ![me, 0].contains(&stat.st_uid) && archive.is_none_or(|archive| archive.user != stat.st_uid) {
        return Err(refused(path, &format!("it belongs to user {}", stat.st_uid)));
    }
    let group_may = archive.is_some_and(|archive| archive.mode & GROUP_WRITES != 0 && archive.group == stat.st_gid);
    if stat.st_mode & GROUP_WRITES != 0 && !group_may {
        return Err(refused(path, &format!("group {} may write it", stat.st_gid)));
    }
    let others_may = archive.is_some_and(|archive| archive.mode & OTHERS_WRITE != 0);
    if stat.st_mode & OTHERS_WRITE != 0 && !others_may {
        return Err(refused(path, "everybody may write it"));
    }
    Ok(file)
}

fn refused(path: &Path, reason: &str) -> Error {
    Error::NotTrusted(format!("{}: {reason} (--trust-index uses it nevertheless)", path.display()))
}
