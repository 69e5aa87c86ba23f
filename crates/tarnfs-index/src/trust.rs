//! Whose file is this? An index that somebody else could have planted is not believed.
//!
//! The rule: whoever could write the index could have written the archive as well. So an index is believed only if it
//! is a regular file with one name, reached through no symbolic link, that belongs to this user, to root, or to the
//! owner of the archive, and that nobody may write who may not write the archive, too. In a user namespace, users
//! without a number there all have one number: that is nobody's.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, fgetxattr, fstat, open as open_file, statat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use tarnfs_source::Setting;

use crate::{Error, OVERFLOWN_OWNER};

/// Who may write an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// User who owns it.
    pub user: u32,
    /// Group that owns it.
    pub group: u32,
    /// Its permission bits (0o7777). Where it has an access control list, only those of the owner: those of the group
    /// are the list's mask then, and it may deny what the others have.
    pub mode: u32,
}

/// Bits of the mode that let the group or others write.
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

impl Owner {
    /// The owner of an open file.
    pub fn of(file: &impl AsFd) -> io::Result<Self> {
        let stat = fstat(file)?;
        let list = fgetxattr(file, "system.posix_acl_access", &mut [0; 0][..]);
        let has_list = !matches!(list, Err(Errno::NODATA | Errno::NOTSUP | Errno::NOSYS));
        let shown = if has_list { 0o7700 } else { 0o7777 };
        Ok(Self { user: stat.st_uid, group: stat.st_gid, mode: stat.st_mode & shown })
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

/// Opens the file at `path` whoever may have written it, for a look at what it is. With `follow`, it may be a symbolic
/// link: one of somebody else would lead to a device that does something when it is opened.
pub(crate) fn open_any(path: &Path, follow: bool) -> Result<File, Error> {
    open_for(path, if follow { OFlags::RDONLY } else { OFlags::RDONLY | OFlags::NOFOLLOW }, None, true)
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
    if stands_for_all(stat.st_uid, "uid") && !(stat.st_uid == me && is_own(&file)) {
        return Err(refused(path, "it belongs to a user that is not known in this container"));
    }
    let others_may = archive.is_some_and(|archive| archive.mode & OTHERS_WRITE != 0);
    if stat.st_mode & OTHERS_WRITE != 0 && !others_may {
        return Err(refused(path, "everybody may write it"));
    }
    let group_may = archive.is_some_and(|archive| archive.mode & GROUP_WRITES != 0 && archive.group == stat.st_gid)
        && !stands_for_all(stat.st_gid, "gid");
    if stat.st_mode & GROUP_WRITES != 0 && !group_may {
        return Err(refused(path, &format!("group {} may write it", stat.st_gid)));
    }
    // The bits of the group are those of the mask then, and anybody may be named behind it.
    if stat.st_mode & GROUP_WRITES != 0 && fgetxattr(&file, "system.posix_acl_access", &mut [0; 0][..]).is_ok() {
        return Err(refused(path, "it has an access control list that may let others write it"));
    }
    Ok(file)
}

/// True if there is a file at `path` that belongs to somebody else than this user.
pub fn is_of_another(path: &Path) -> bool {
    statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| stat.st_uid != geteuid().as_raw() || stands_for_all(stat.st_uid, "uid"))
}

/// True of the number that stands for every user (`kind` is "uid") or group ("gid") without one in this user namespace:
/// two files that have it may belong to anybody.
fn stands_for_all(number: u32, kind: &str) -> bool {
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let overflow = read(format!("/proc/sys/kernel/overflow{kind}")).trim().parse().unwrap_or(OVERFLOWN_OWNER);
    if number != overflow {
        return false;
    }
    // Where all have a number, it is that of one.
    let map = read(format!("/proc/self/{kind}_map"));
    let lengths = map.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    lengths.fold(0, u64::saturating_add) < u64::from(u32::MAX)
}

/// True of a file that is certainly this user's, or whose owner has a number here and so is the one that it says: the
/// kernel lets nobody else read it without a trace.
fn is_own(file: &File) -> bool {
    let Ok(flags) = fcntl_getfl(file) else { return false };
    let is_own = fcntl_setfl(file, flags | OFlags::NOATIME).is_ok();
    // Only asked.
    let _ = fcntl_setfl(file, flags);
    is_own
}

fn refused(path: &Path, reason: &str) -> Error {
    Error::NotTrusted(format!("{}: {reason} ({} uses it nevertheless)", path.display(), Setting::TrustIndex))
}
