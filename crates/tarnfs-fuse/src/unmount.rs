//! Taking mounts away.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::getuid;

use crate::device::MOUNT_TYPE;
use crate::mountinfo::MountEntry;
use crate::{Error, fusermount, mountinfo};

/// A mount of tarnfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountedTree {
    /// What is mounted: the path of the archive, if there is one.
    pub source: OsString,
    /// Where it is mounted.
    pub mount_point: PathBuf,
}

/// All mounts of tarnfs that this process can see, in the order in which they were made.
pub fn mounts() -> Result<Vec<MountedTree>, Error> {
    let entries = mountinfo::of_kind(MOUNT_TYPE)?;
    Ok(entries.into_iter().map(|entry| MountedTree { source: entry.source, mount_point: entry.mount_point }).collect())
}

/// Unmounts the tree at `mount_point`, also one whose program has died.
///
/// One that is in use is left as it is. `lazily` it is detached: it goes away for everybody who comes, and ends when
/// the last who uses it is done. So is one whose program has died. Other file systems are left alone, unless they are
/// FUSE mounts whose program has died.
pub fn unmount(mount_point: &Path, lazily: bool) -> Result<(), Error> {
    let (path, user) = find(mount_point)?;
    let mut done = take_away(&path, false);
    // A program that has just ended, such as another mount that lay on this one, may still be closing its files.
    let start = Instant::now();
    while !lazily && is_busy(&done) && start.elapsed() < PATIENCE {
        std::thread::sleep(PATIENCE / 50);
        done = take_away(&path, false);
    }
    // The helper says of other people's mounts only that it does not find them.
    if let (Err(Error::Fusermount(_) | Error::NoFusermount), Some(user)) = (&done, user)
        && user != getuid().as_raw()
    {
        let whose = if user == 0 { "root".to_owned() } else { format!("another user (number {user})") };
        let reason = format!("was mounted by {whose}: only they and root can unmount it");
        return Err(Error::mount_point(mount_point, reason));
    }
    if !is_busy(&done) {
        return done;
    }
    if lazily || is_dead(&path) {
        return take_away(&path, true);
    }
    let reason =
        "is in use: close what uses it, or detach it with `tarnfs unmount -l`, so that it ends when nobody uses it";
    Err(Error::mount_point(mount_point, reason))
}

/// How long a mount that is in use is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

fn is_busy(done: &Result<(), Error>) -> bool {
    match done {
        Err(Error::Io { source, .. }) => source.raw_os_error() == Some(Errno::BUSY.raw_os_error()),
        Err(Error::Fusermount(said)) => said.contains("busy"),
        _ => false,
    }
}

/// The path under which the table of mounts has `mount_point`, if it is ours to take away, and who mounted it.
fn find(mount_point: &Path) -> Result<(PathBuf, Option<u32>), Error> {
    for path in candidates(mount_point)? {
        let Some(entry) = mountinfo::find(&path)? else { continue };
        if entry.kind == MOUNT_TYPE || entry.kind.starts_with("fuse") && is_dead(&path) {
            return Ok((path, entry.user));
        }
        return Err(Error::mount_point(
            mount_point,
            format!("is a mount of type {}, not of tarnfs: left as it is", entry.kind),
        ));
    }
    Err(Error::mount_point(mount_point, "nothing is mounted here"))
}

/// The absolute paths that `mount_point` can mean. The first asks nothing of the mount itself, which may have died.
fn candidates(mount_point: &Path) -> Result<Vec<PathBuf>, Error> {
    let absolute = std::path::absolute(mount_point)
        .map_err(|error| Error::io(format!("find {}", mount_point.display()), error))?;
    let mut paths = Vec::new();
    if let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) {
        paths.extend(parent.canonicalize().map(|parent| parent.join(name)));
    }
    paths.push(absolute.clone());
    paths.extend(absolute.canonicalize());
    Ok(paths)
}

/// Takes a mount away in the place of the process that serves it.
pub trait Unmounter: Send + Sync + std::fmt::Debug {
    /// The mount is there; nobody has been answered yet, and no thread been started that will. `device` is its
    /// "major:minor".
    ///
    /// What this thread gives up here, none of those threads has got. Upon an error the mount does without this
    /// unmounter.
    fn mounted(&self, mount_point: &Path, device: &str) -> io::Result<()>;

    /// Takes it away, also under those who use it. No error if it is gone.
    fn unmount(&self) -> io::Result<()>;

    /// The connection has ended. Nearly always that is because the mount is gone, whoever took it away, and from now on
    /// another file system may have its number. Where the connection was aborted, a dead mount is to be taken away.
    fn gone(&self) -> io::Result<()> {
        Ok(())
    }

    /// Ends the connection under those who still use it ([`abort`]).
    fn abort(&self) -> io::Result<()>;
}

/// Takes the file system `device` ("major:minor") away wherever it is mounted by now, also under those who use it, if
/// it is one of ours: a folder above it may have got another name. No error if it is mounted nowhere.
pub fn unmount_device(device: &str) -> Result<(), Error> {
    /// A folder may get another name while this looks.
    const ROUNDS: usize = 4;
    let mut failed = Ok(());
    for _ in 0..ROUNDS {
        let entries = mountinfo::of_device(device, MOUNT_TYPE)?;
        if entries.is_empty() {
            return Ok(());
        }
        failed = Ok(());
        for entry in &entries {
            failed = failed.and(take_away_entry(entry));
        }
        if failed.is_ok() {
            return Ok(());
        }
    }
    failed
}

/// True if the file system `device` ("major:minor") is one of ours and is what is mounted on `mount_point`.
pub fn is_mounted_on(mount_point: &Path, device: &str) -> Result<bool, Error> {
    let found = mountinfo::find(mount_point)?;
    Ok(found.is_some_and(|entry| entry.device == device && entry.kind == MOUNT_TYPE))
}

/// Takes away what is mounted on `mount_point`, if it is one of ours and its program has died. No error if it is not.
pub fn unmount_dead(mount_point: &Path) -> Result<(), Error> {
    match mountinfo::find(mount_point)? {
        Some(entry) if entry.kind == MOUNT_TYPE && is_dead(mount_point) => take_away_entry(&entry),
        _ => Ok(()),
    }
}

/// The same of the file system `device` ("major:minor"), wherever it is mounted: a connection can end while the mount
/// stays, when somebody aborts it.
pub fn unmount_dead_device(device: &str) -> Result<(), Error> {
    let mut failed = Ok(());
    for entry in mountinfo::of_device(device, MOUNT_TYPE)? {
        if is_dead(&entry.mount_point) {
            failed = failed.and(take_away_entry(&entry));
        }
    }
    failed
}

/// Takes away what has just been mounted on `mount_point`, after something else has failed.
pub(crate) fn undo(mount_point: &Path) {
    if let Ok(Some(entry)) = mountinfo::find(mount_point)
        && entry.kind == MOUNT_TYPE
    {
        // What failed is told.
        let _ = take_away_entry(&entry);
    }
}

/// Unmounts lazily this mount and no other: by the time that it is used, a path may lead elsewhere.
fn take_away_entry(entry: &MountEntry) -> Result<(), Error> {
    let path = &entry.mount_point;
    let failed = |error: Errno| Error::io(format!("unmount {}", path.display()), io::Error::from(error));
    // It asks nothing of the mount, whose program may have died.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let place = openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
    if mountinfo::id_of(&place) != Some(entry.id) {
        let reason = "is covered by another mount: unmount that first, and then this one (tarnfs unmount)";
        return Err(Error::mount_point(path, reason));
    }
    match rustix::mount::unmount(format!("/proc/self/fd/{}", place.as_raw_fd()), UnmountFlags::DETACH) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => {
            drop(place);
            fusermount::unmount(path, true)
        }
        Err(error) => Err(failed(error)),
    }
}

/// Ends the connection of the file system `device` ("major:minor"): who waits for an answer gets an error. Only where
/// the kernel's control files are mounted.
pub fn abort(device: &str) -> io::Result<()> {
    // A number, and nothing else that leads from one file to another.
    let number = device.split_once(':').and_then(|(_, minor)| minor.parse::<u32>().ok());
    let number = number.ok_or(io::ErrorKind::InvalidInput)?;
    std::fs::write(format!("/sys/fs/fuse/connections/{number}/abort"), "1")
}

fn is_dead(path: &Path) -> bool {
    let code = path.metadata().err().and_then(|error| error.raw_os_error()).map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::NOTCONN | Errno::CONNABORTED))
}

/// Unmounts `path`, by ourselves where we may; `lazily` also what is in use.
fn take_away(path: &Path, lazily: bool) -> Result<(), Error> {
    let flags = UnmountFlags::NOFOLLOW | if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(path, flags) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => fusermount::unmount(path, lazily),
        Err(error) => Err(Error::io(format!("unmount {}", path.display()), io::Error::from(error))),
    }
}
