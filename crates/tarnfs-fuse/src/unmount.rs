//! Taking mounts away.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, statx};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, WaitOptions, getuid, kill_process, waitpid};

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
    /// Since when, where the kernel shows its connection to the file system (`fusectl`), or [`find_since`] has found
    /// it.
    ///
    /// [`find_since`]: crate::find_since
    pub since: Option<SystemTime>,
    /// Who has mounted it.
    pub user: Option<u32>,
    /// What is written there is taken.
    pub is_writable: bool,
    /// The file system's `st_dev`.
    pub(crate) device: Option<(u32, u32)>,
}

/// All mounts of tarnfs that this process can see, in the order in which they were made.
pub fn mounts() -> Result<Vec<MountedTree>, Error> {
    let entries = mountinfo::of_kind(MOUNT_TYPE)?;
    let mounted = |entry: mountinfo::MountEntry| {
        let (since, device) = (entry.since(), entry.numbers());
        let (user, is_writable) = (entry.user, entry.is_writable);
        MountedTree { source: entry.source, mount_point: entry.mount_point, since, user, is_writable, device }
    };
    Ok(entries.into_iter().map(mounted).collect())
}

/// Unmounts the tree at `mount_point`, also one whose program has died.
///
/// One that is in use is left as it is. `lazily` it is detached: it goes away for everybody who comes, and ends when
/// the last who uses it is done. So is one whose program has died. Other file systems are left alone, unless they are
/// FUSE mounts that this user has made, or whose program has died.
pub fn unmount(mount_point: &Path, lazily: bool) -> Result<(), Error> {
    let entry = find(mount_point)?;
    let (path, user) = (&entry.mount_point, entry.user);
    let mut done = take_away(&entry, false);
    // A program that has just ended, such as another mount that lay on this one, may still be closing its files.
    let start = Instant::now();
    while !lazily && is_busy(&done) && start.elapsed() < PATIENCE {
        std::thread::sleep(PATIENCE / 50);
        done = take_away(&entry, false);
    }
    // The helper says of other people's mounts only that it does not find them.
    if let (Err(Error::Fusermount(_) | Error::NoFusermount), Some(user)) = (&done, user)
        && user != getuid().as_raw()
    {
        let reason = match user {
            0 => "was mounted by root: only root can unmount it".to_owned(),
            _ => format!("was mounted by another user (number {user}): only they and root can unmount it"),
        };
        return Err(Error::mount_point(mount_point, reason));
    }
    if !is_busy(&done) {
        return done;
    }
    if lazily {
        return take_away(&entry, true);
    }
    let reason = match answers(path, ANSWER) {
        Some(false) => return take_away(&entry, true),
        Some(true) => {
            "is in use: close what uses it, or detach it with `tarnfs unmount -l`, so that it ends when nobody uses it"
        }
        None => "is in use, and what serves it does not answer: detach it with `tarnfs -l -u`, and end that process",
    };
    Err(Error::mount_point(mount_point, reason))
}

/// How long a mount may take to say that it is alive.
const ANSWER: Duration = Duration::from_secs(5);

/// False if the program that serves the mount at `path` has died; `None` if that is not known at the `limit`. Who waits
/// for a program that hangs may be held until that one ends, so another process asks.
fn answers(path: &Path, limit: Duration) -> Option<bool> {
    let name = CString::new(path.as_os_str().as_bytes()).ok()?;
    #[expect(unsafe_code, reason = "fork(2), for a process that asks one question")]
    // SAFETY: the child calls what a signal handler may call, and ends.
    let child = match unsafe { libc::fork() } {
        0 => {
            // Others wait for the end of what this program writes to, and of what its caller has open.
            // SAFETY: this process uses none of them.
            unsafe { crate::ask::close_from(0) };
            let mut found = std::mem::MaybeUninit::uninit();
            // SAFETY: the name ends with a zero, and there is room for the answer.
            let asked = unsafe { libc::stat(name.as_ptr(), found.as_mut_ptr()) };
            // SAFETY: the number of the error is this thread's own.
            let error = unsafe { *libc::__errno_location() };
            let is_dead = asked != 0 && matches!(error, libc::ENOTCONN | libc::ECONNABORTED);
            // SAFETY: ends this process; nothing of the parent's is cleaned up.
            unsafe { libc::_exit(i32::from(is_dead)) }
        }
        child => started(child)?,
    };
    let start = Instant::now();
    loop {
        match waitpid(Some(child), WaitOptions::NOHANG) {
            Ok(None) if start.elapsed() < limit => std::thread::sleep(limit / 500),
            Ok(None) => {
                let _ = kill_process(child, Signal::KILL);
                // Not waited for: it may not end before the mount does.
                return None;
            }
            Ok(Some((_, status))) => return Some(status.exit_status() != Some(1)),
            Err(_) => return None,
        }
    }
}

/// The process that fork(2) says that it has started; `None` if there is none. As numbers of processes, -1 and 0 mean
/// many: a signal to them must never be sent.
fn started(forked: libc::pid_t) -> Option<Pid> {
    if forked > 0 { Pid::from_raw(forked) } else { None }
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

/// What the table of mounts has at `mount_point`, if it is ours to take away.
fn find(mount_point: &Path) -> Result<MountEntry, Error> {
    for path in candidates(mount_point)? {
        let Some(entry) = mountinfo::find(&path)? else { continue };
        // Others of this user's are what is left of ratarmount, or of a program like it, and named by who made them.
        let is_own = || entry.user == Some(getuid().as_raw());
        let is_fuse = entry.kind.starts_with("fuse");
        if entry.kind == MOUNT_TYPE || is_fuse && (is_own() || answers(&path, ANSWER) == Some(false)) {
            return Ok(entry);
        }
        return Err(Error::mount_point(
            mount_point,
            format!("is a mount of type {}, not of tarnfs: left as it is; umount(8) takes it away", entry.kind),
        ));
    }
    Err(Error::mount_point(mount_point, "nothing is mounted here"))
}

/// The absolute paths that `mount_point` can mean. The first asks nothing of the mount itself, which may have died.
fn candidates(mount_point: &Path) -> Result<impl Iterator<Item = PathBuf>, Error> {
    let absolute = std::path::absolute(mount_point)
        .map_err(|error| Error::io(format!("find {}", mount_point.display()), error))?;
    let mut paths = Vec::new();
    if let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) {
        paths.extend(parent.canonicalize().map(|parent| parent.join(name)));
    }
    paths.push(absolute.clone());
    // This may ask.
    Ok(paths.into_iter().chain(std::iter::once_with(move || absolute.canonicalize()).flatten()))
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

/// A file system of ours that is mounted, known again wherever it is by then: a folder above it may have got another
/// name.
///
/// When it is gone, another one can get its number. So the mounts of it are remembered, too, by numbers that the kernel
/// gives only once where it has them (Linux 6.8), else by number and source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountedDevice {
    /// "major:minor".
    device: String,
    mounts: Vec<Known>,
}

/// A mount, as far as it is told from others.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    id: u64,
    unique: Option<u64>,
    source: OsString,
}

impl Known {
    fn of(entry: &MountEntry) -> Self {
        Self { id: entry.id, unique: unique(entry), source: entry.source.clone() }
    }
}

/// The number of a mount that no other one ever gets. `None` where the kernel has none, or the mount is covered by
/// another one.
fn unique(entry: &MountEntry) -> Option<u64> {
    /// `STATX_MNT_ID_UNIQUE` of `linux/stat.h`.
    const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
    let (_, place) = place(entry).ok()??;
    // What the kernel knows: whoever serves the mount is not asked, as it may hang.
    let told = statx(&place, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, UNIQUE).ok()?;
    (told.stx_mask & UNIQUE.bits() != 0).then_some(told.stx_mnt_id)
}

impl MountedDevice {
    /// The file system `device` ("major:minor"); `None` if none of ours with that number is mounted.
    pub fn find(device: &str) -> Result<Option<Self>, Error> {
        let mounts: Vec<_> = mountinfo::of_device(device, MOUNT_TYPE)?.iter().map(Known::of).collect();
        Ok((!mounts.is_empty()).then(|| Self { device: device.to_owned(), mounts }))
    }

    /// Takes it away wherever it is mounted by now, also under those who use it. No error if it is mounted nowhere.
    /// Called as long as its program is alive.
    pub fn unmount(&self) -> Result<(), Error> {
        take_away_all(|| {
            let entries = mountinfo::of_device(&self.device, MOUNT_TYPE)?;
            if self.is_among(&entries) {
                return Ok(entries);
            }
            // What is left are mounts that were copied later, or somebody else's.
            let is_same = |entry: &MountEntry| self.mounts.iter().any(|known| known.source == entry.source);
            Ok(entries.into_iter().filter(is_same).collect())
        })
    }

    /// The same after the end of its program.
    pub fn unmount_left(&self) -> Result<(), Error> {
        let left = take_away_all(|| {
            let entries = mountinfo::of_device(&self.device, MOUNT_TYPE)?;
            Ok(if self.is_among(&entries) { entries } else { Vec::new() })
        });
        left.and(self.unmount_dead())
    }

    /// Takes it away if its program has died, wherever it is mounted: a connection can end while the mount stays, when
    /// somebody aborts it.
    pub fn unmount_dead(&self) -> Result<(), Error> {
        let mut failed = Ok(());
        for entry in mountinfo::of_device(&self.device, MOUNT_TYPE)? {
            if is_dead(&entry.mount_point) {
                failed = failed.and(take_away_entry(&entry));
            }
        }
        failed
    }

    /// Ends its connection ([`abort`]).
    pub fn abort(&self) -> io::Result<()> {
        abort(&self.device)
    }

    /// True if one of its mounts is among these, which have its number: then it is the same file system still.
    fn is_among(&self, entries: &[MountEntry]) -> bool {
        entries.iter().any(|entry| {
            let known = self.mounts.iter().filter(|known| known.id == entry.id && known.source == entry.source);
            let mut known = known.peekable();
            known.peek().is_some() && {
                let now = unique(entry);
                known.any(|known| known.unique == now)
            }
        })
    }
}

/// Takes the file system `device` ("major:minor") away wherever it is mounted, also under those who use it, if it is
/// one of ours. For one that has just been mounted.
pub(crate) fn unmount_device(device: &str) -> Result<(), Error> {
    take_away_all(|| mountinfo::of_device(device, MOUNT_TYPE))
}

/// Unmounts lazily what `left` finds. No error if that is nothing.
fn take_away_all(left: impl Fn() -> Result<Vec<MountEntry>, Error>) -> Result<(), Error> {
    /// A folder may get another name while this looks.
    const ROUNDS: usize = 4;
    let mut failed = Ok(());
    for _ in 0..ROUNDS {
        let entries = left()?;
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

/// Takes away what is mounted on `mount_point`, if it is one of ours and its program has died. No error if it is not.
pub fn unmount_dead(mount_point: &Path) -> Result<(), Error> {
    match mountinfo::find(mount_point)? {
        Some(entry) if entry.kind == MOUNT_TYPE && is_dead(mount_point) => take_away_entry(&entry),
        _ => Ok(()),
    }
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

/// Unmounts lazily this mount and no other.
fn take_away_entry(entry: &MountEntry) -> Result<(), Error> {
    take_away(entry, true)
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
    /// What has died says so at once.
    const AT_ONCE: Duration = Duration::from_secs(2);
    answers(path, AT_ONCE) == Some(false)
}

/// The folder that the mount lies in, and the mount, which both stay the same whatever becomes of its path. `None` if
/// something else is there by now. (Of the root there is no such folder.)
fn place(entry: &MountEntry) -> Result<Option<(OwnedFd, OwnedFd)>, Errno> {
    let path = &entry.mount_point;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let (folder, name) = (path.parent().unwrap_or(path), path.file_name().unwrap_or(OsStr::new(".")));
    let folder = openat(CWD, folder, flags | OFlags::DIRECTORY, Mode::empty())?;
    // It asks nothing of the mount, whose program may have died.
    let place = openat(&folder, name, flags, Mode::empty())?;
    let is_it = mountinfo::id_of(&place) == Some(entry.id);
    Ok(is_it.then_some((folder, place)))
}

/// Unmounts this mount and no other, by ourselves where we may: by the time that it is used, a path may lead elsewhere.
/// `lazily` also what is in use.
fn take_away(entry: &MountEntry, lazily: bool) -> Result<(), Error> {
    let path = &entry.mount_point;
    let failed = |error: Errno| Error::io(format!("unmount {}", path.display()), io::Error::from(error));
    let Some((folder, place)) = place(entry).map_err(failed)? else {
        let reason = "is covered by another mount, which is to be unmounted first, or was moved: run `tarnfs mounts`, \
                      and unmount it where it is now";
        return Err(Error::mount_point(path, reason));
    };
    // A descriptor of the mount itself would keep it in use.
    drop(place);
    // Nobody can give a name on which something is mounted to anything else.
    let flags = UnmountFlags::NOFOLLOW | if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    let name = path.file_name().unwrap_or(OsStr::new("."));
    let target = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
    match rustix::mount::unmount(&target, flags) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => {
            drop(folder);
            fusermount::unmount(path, lazily)
        }
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mount::{MountFlags, mount};

    /// The file systems that a test has mounted.
    struct Mounted(Vec<PathBuf>);

    impl Drop for Mounted {
        fn drop(&mut self) {
            for path in &self.0 {
                let _ = rustix::mount::unmount(path, UnmountFlags::DETACH);
            }
        }
    }

    #[test]
    fn where_no_process_was_started_there_is_none_to_be_killed() {
        assert!([-1, 0, -7, libc::pid_t::MIN].into_iter().all(|forked| started(forked).is_none()));
        assert_eq!(started(7).map(|process| process.as_raw_nonzero().get()), Some(7));
    }

    /// Whoever may write the folder in which it is mounted can move that, and put a link in its place.
    #[test]
    fn what_a_path_leads_to_by_now_is_not_unmounted_in_its_place() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let [d, moved, other] = ["d", "moved", "other"].map(|name| root.join(name));
        let paths = [d.join("at"), other.join("at"), moved.join("at")];
        for path in &paths[..2] {
            std::fs::create_dir_all(path).unwrap();
        }
        let guard = Mounted(paths.to_vec());
        for path in &paths[..2] {
            if mount("none", path, "tmpfs", MountFlags::empty(), None::<&std::ffi::CStr>).is_err() {
                println!("left out: needs the right to mount");
                return;
            }
        }
        let entry = mountinfo::find(&paths[0]).unwrap().unwrap();
        std::fs::rename(&d, &moved).unwrap();
        std::os::unix::fs::symlink(&other, &d).unwrap();
        for lazily in [false, true] {
            assert!(take_away(&entry, lazily).is_err());
        }
        assert!(mountinfo::find(&paths[1]).unwrap().is_some() && mountinfo::find(&paths[2]).unwrap().is_some());
        // What is in use stays, unless it is to go lazily.
        std::fs::remove_file(&d).unwrap();
        std::fs::rename(&moved, &d).unwrap();
        let open = std::fs::File::open(&paths[0]).unwrap();
        assert!(is_busy(&take_away(&entry, false)));
        drop(open);
        take_away(&entry, false).unwrap();
        assert!(mountinfo::find(&paths[0]).unwrap().is_none());
        drop(guard);
    }

    /// What ratarmount has left is unmounted by its name, too. Who wants to take away what is no FUSE mount is told
    /// how.
    #[test]
    fn other_fuse_mounts_of_the_same_user_are_unmounted() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let [own, others, no_fuse] = ["own", "others", "no_fuse"].map(|name| root.join(name));
        let guard = Mounted(vec![own.clone(), others.clone(), no_fuse.clone()]);
        for path in &guard.0 {
            std::fs::create_dir(path).unwrap();
        }
        let mut devices = Vec::new();
        for (path, user) in [(&own, getuid().as_raw()), (&others, 54321)] {
            let device = std::fs::File::options().read(true).write(true).open(crate::device::DEVICE);
            let Ok(device) = device else {
                println!("left out: needs /dev/fuse");
                return;
            };
            let data = format!("fd={},rootmode=40000,user_id={user},group_id=0", device.as_raw_fd());
            let data = CString::new(data).unwrap();
            if mount("other", path, "fuse.other", MountFlags::empty(), Some(data.as_c_str())).is_err() {
                println!("left out: needs the right to mount");
                return;
            }
            devices.push(device);
        }
        mount("none", &no_fuse, "tmpfs", MountFlags::empty(), None::<&std::ffi::CStr>).unwrap();
        unmount(&own, false).unwrap();
        assert!(mountinfo::find(&own).unwrap().is_none());
        let refused = unmount(&no_fuse, false).unwrap_err().to_string();
        assert!(refused.contains("umount(8)") && mountinfo::find(&no_fuse).unwrap().is_some(), "{refused}");
        // Nobody answers there, and nobody has died.
        let refused = std::thread::spawn({
            let others = others.clone();
            move || unmount(&others, false).unwrap_err().to_string()
        });
        let refused = refused.join().unwrap();
        assert!(refused.contains("fuse.other") && mountinfo::find(&others).unwrap().is_some(), "{refused}");
        drop((devices, guard));
    }
}
