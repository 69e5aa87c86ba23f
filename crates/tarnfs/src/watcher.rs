//! A second, very small process that takes the mount away when the one that serves it may not (its sandbox forbids it)
//! or cannot any more (it was killed).
//!
//! It is forked before there are threads, keeps nothing but one end of a socket, and waits. Over the socket it is told
//! what to do; the end of the stream means that the daemon is gone: then the mount goes as well, if it is still this
//! one, and so does a mount point that was made for it. Signals do not reach it: it ends with the daemon.

#![allow(unsafe_code, reason = "fork(2), for a process without a program of its own")]

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tarnfs_fuse::MountedDevice;

use crate::daemon::detach;
use crate::made::{Made, Temporary};

/// How long an answer may take: unmounting waits for nobody, but a helper has to be started where we are not root.
const PATIENCE: Duration = Duration::from_secs(4);

/// Stack of a thread that only waits, and logs.
const SMALL_STACK: usize = 256 << 10;

/// The longest message: a path, and the number of a device.
const LONGEST: usize = 64 << 10;

/// What it can be told. Each is answered with an empty message, or with what went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Order {
    /// This folder was made, and is to be removed at the end: its numbers and path, a zero between them.
    Made = b'f',
    /// This folder was made for what is written, and is to be removed at the end with all that is in it.
    Temporary = b't',
    /// Something is about to be mounted there: whoever is killed in between leaves a mount without a program.
    Mounting = b'p',
    /// What is mounted there from now on: device and path, a zero between them.
    Mounted = b'm',
    /// Take the mount away.
    Unmount = b'u',
    /// End the connection under those who still use it.
    Abort = b'a',
    /// The connection has ended. If there is a mount still, take it away, and remove the folder.
    Gone = b'g',
    /// The daemon ends at once: remove the folder. What is about to be mounted may be there when it has ended.
    Ending = b'e',
}

/// The daemon's end.
#[derive(Debug, Clone)]
pub(crate) struct Watcher(Arc<Mutex<Line>>);

/// What orders go over.
#[derive(Debug)]
struct Line {
    socket: UnixStream,
    /// An answer did not come in time: one that comes later would be taken for that to another order.
    is_broken: bool,
}

impl Watcher {
    /// Starts it. Must be called while the process has a single thread, and signals are held.
    pub(crate) fn start() -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let null = File::options().read(true).write(true).open("/dev/null")?;
        // SAFETY: there are no other threads, so no lock is held that the child could wait for.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(ours);
                let code = match detach(theirs, &null, c"tarnfs-unmount") {
                    Ok(socket) => i32::from(watch(socket).is_err()),
                    Err(_) => 1,
                };
                // SAFETY: ends this process at once; nothing that the daemon wants to clean up is cleaned up twice.
                unsafe { libc::_exit(code) }
            }
            _ => {
                ours.set_read_timeout(Some(PATIENCE))?;
                Ok(Self::over(ours))
            }
        }
    }

    fn over(socket: UnixStream) -> Self {
        Self(Arc::new(Mutex::new(Line { socket, is_broken: false })))
    }

    /// The folder at `path` was made, and is to be removed at the end.
    pub(crate) fn made(&self, path: &Path, made: &Made) -> io::Result<()> {
        self.order(Order::Made, &[made.identity()?.as_bytes(), path.as_os_str().as_bytes()].join(&0))
    }

    /// The folder at `path` was made for what is written, and is to be removed at the end with all that is in it.
    pub(crate) fn temporary(&self, path: &Path, made: &Temporary) -> io::Result<()> {
        debug_assert_eq!(path, made.path());
        self.order(Order::Temporary, path.as_os_str().as_bytes())
    }

    /// Something is about to be mounted on `mount_point`, a path without symbolic links.
    pub(crate) fn mounting(&self, mount_point: &Path) -> io::Result<()> {
        self.order(Order::Mounting, mount_point.as_os_str().as_bytes())
    }

    /// The mount is gone: removes the folder that was made.
    pub(crate) fn gone(&self) -> io::Result<()> {
        self.order(Order::Gone, b"")
    }

    /// This process ends at once: removes the folder that was made, if nothing is mounted on it.
    pub(crate) fn ending(&self) -> io::Result<()> {
        self.order(Order::Ending, b"")
    }

    /// Has `tell` called, by a thread of its own, if the process ends while this one is there.
    pub(crate) fn when_it_ends(&self, tell: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let socket = self.0.lock().unwrap_or_else(PoisonError::into_inner).socket.try_clone()?;
        let wait = move || {
            // Nothing is read here: answers are for who gives orders.
            let mut end = [PollFd::new(&socket, PollFlags::empty())];
            while let Err(Errno::INTR) | Ok(0) = poll(&mut end, None) {}
            tell();
        };
        thread::Builder::new().name("tarnfs-watched".to_owned()).stack_size(SMALL_STACK).spawn(wait).map(drop)
    }

    fn order(&self, order: Order, what: &[u8]) -> io::Result<()> {
        let mut line = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if line.is_broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let answer = send(&mut line.socket, order as u8, what).and_then(|()| receive(&mut line.socket));
        line.is_broken = !matches!(answer, Ok(Some(_)));
        match answer? {
            Some((_, problem)) if problem.is_empty() => Ok(()),
            Some((_, problem)) => Err(io::Error::other(String::from_utf8_lossy(&problem).into_owned())),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl tarnfs_fuse::Unmounter for Watcher {
    fn mounted(&self, mount_point: &Path, device: &str) -> io::Result<()> {
        self.order(Order::Mounted, &[device.as_bytes(), mount_point.as_os_str().as_bytes()].join(&0))
    }

    fn unmount(&self) -> io::Result<()> {
        self.order(Order::Unmount, b"")
    }

    fn abort(&self) -> io::Result<()> {
        self.order(Order::Abort, b"")
    }
}

/// What the daemon has said so far. It says each thing once, while it trusts itself: what comes later may be said by an
/// archive that has taken it over, and counts for nothing but its own mount.
#[derive(Debug, Default)]
struct Known {
    made: Option<Made>,
    temporary: Option<Temporary>,
    mounting: Option<PathBuf>,
    mounted: Option<MountedDevice>,
    /// Those that have been said.
    said: Vec<u8>,
}

/// Follows orders until the daemon is gone.
fn watch(mut socket: UnixStream) -> io::Result<()> {
    let mut known = Known::default();
    while let Ok(Some((order, what))) = receive(&mut socket) {
        let result = known.follow(order, &what);
        let problem = result.err().map(|error| error.to_string()).unwrap_or_default();
        let mut length = problem.len().min(LONGEST);
        while !problem.is_char_boundary(length) {
            length -= 1;
        }
        if send(&mut socket, 0, &problem.as_bytes()[..length]).is_err() {
            break;
        }
    }
    // Nobody is left who could be told that it failed.
    let unmounted = known.mounted.take().map_or(Ok(()), |mounted| mounted.unmount_left().map_err(io::Error::other));
    let dead = known.mounting.take().map_or(Ok(()), |path| tarnfs_fuse::unmount_dead(&path).map_err(io::Error::other));
    let removed = known.remove();
    unmounted.and(dead).and(removed)
}

impl Known {
    fn follow(&mut self, order: u8, what: &[u8]) -> io::Result<()> {
        let once = [Order::Temporary, Order::Made, Order::Mounting, Order::Mounted].map(|order| order as u8);
        if once.contains(&order) {
            if self.said.contains(&order) {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, "this was said before"));
            }
            // What was to be mounted and on what is settled once it is mounted, and whether that folder was made before
            // something is mounted on it: from then on archives are served.
            let settled = match order {
                order if order == Order::Temporary as u8 || order == Order::Made as u8 => &once[2..],
                _ => &once[3..],
            };
            if settled.iter().any(|later| self.said.contains(later)) {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is too late to say this"));
            }
            self.said.push(order);
        }
        match order {
            order if order == Order::Mounting as u8 => self.mounting = Some(PathBuf::from(OsStr::from_bytes(what))),
            order if order == Order::Temporary as u8 => {
                let temporary = Temporary::find(Path::new(OsStr::from_bytes(what)))?;
                if !temporary.is_own() {
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
                self.temporary = Some(temporary);
            }
            order if order == Order::Made as u8 => {
                let (identity, path) = number_and_path(what)?;
                self.made = Some(Made::find(&path, identity)?);
            }
            order if order == Order::Mounted as u8 => {
                let (device, _) = number_and_path(what)?;
                // Seen, not believed. Not where, as a folder above it can get another name at any time.
                let mounted = MountedDevice::find(device).map_err(io::Error::other)?;
                let none = || io::Error::new(io::ErrorKind::NotFound, "there is no such mount");
                self.mounted = Some(mounted.ok_or_else(none)?);
                self.mounting = None;
            }
            order if order == Order::Unmount as u8 => {
                return self.mounted.as_ref().map_or(Ok(()), MountedDevice::unmount).map_err(io::Error::other);
            }
            order if order == Order::Abort as u8 => {
                if let Some(mounted) = &self.mounted {
                    mounted.abort()?;
                }
            }
            order if order == Order::Gone as u8 => {
                let dead = self.mounted.take().map(|mounted| mounted.unmount_dead());
                self.mounting = None;
                return dead.unwrap_or(Ok(())).map_err(io::Error::other).and(self.remove());
            }
            order if order == Order::Ending as u8 => return self.remove(),
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
        Ok(())
    }

    fn remove(&mut self) -> io::Result<()> {
        if let Some(Err(error)) = self.made.as_ref().map(Made::remove)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        self.made = None;
        if let Some(Err(error)) = self.temporary.as_ref().map(Temporary::remove)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        self.temporary = None;
        Ok(())
    }
}

/// A number, a zero byte, and a path.
fn number_and_path(what: &[u8]) -> io::Result<(&str, PathBuf)> {
    let mut parts = what.splitn(2, |&byte| byte == 0);
    let number = parts.next().and_then(|number| std::str::from_utf8(number).ok());
    let (Some(number), Some(path)) = (number, parts.next()) else { return Err(io::ErrorKind::InvalidInput.into()) };
    Ok((number, PathBuf::from(OsStr::from_bytes(path))))
}

/// A message: what it is, its length, its text.
fn send(socket: &mut UnixStream, order: u8, what: &[u8]) -> io::Result<()> {
    let length = u32::try_from(what.len()).map_err(io::Error::other)?;
    socket.write_all(&[&[order][..], &length.to_le_bytes(), what].concat())
}

/// The next message; `None` at the end of the stream.
fn receive(socket: &mut UnixStream) -> io::Result<Option<(u8, Vec<u8>)>> {
    let mut head = [0; 5];
    match socket.read_exact(&mut head) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let [order, length @ ..] = head;
    let length = u32::from_le_bytes(length) as usize;
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut what = vec![0; length];
    socket.read_exact(&mut what)?;
    Ok(Some((order, what)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_removes_what_was_made_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (made, other) = (folder.path().join("made\nhere"), folder.path().join("other"));
        let was_made = Made::new(&made).unwrap();
        std::fs::create_dir(&other).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let watching = std::thread::spawn(|| watch(theirs));
        let watcher = Watcher::over(ours);
        watcher.made(&made, &was_made).unwrap();
        assert!(watcher.made(&made, &was_made).is_err(), "once");
        watcher.mounting(&other).unwrap();
        // Nothing is mounted at this path, so there is nothing to take away.
        assert!(tarnfs_fuse::Unmounter::mounted(&watcher, &other, "0:1").is_err());
        tarnfs_fuse::Unmounter::unmount(&watcher).unwrap();
        tarnfs_fuse::Unmounter::abort(&watcher).unwrap();
        assert!(made.exists());
        drop(watcher);
        watching.join().unwrap().unwrap();
        assert!(!made.exists() && other.exists());
    }

    /// Once the mount is there, archives that may have been made by anybody are served.
    #[test]
    fn what_is_to_be_removed_is_said_before_anything_is_mounted() {
        let folder = tempfile::tempdir().unwrap();
        let innocent = folder.path().join("innocent");
        let planted = Made::new(&innocent).unwrap();
        let said = [planted.identity().unwrap().as_bytes(), innocent.as_os_str().as_bytes()].join(&0);
        for before in [Order::Mounting, Order::Mounted] {
            let mut known = Known::default();
            // That there is no such mount changes nothing.
            let _ = known.follow(before as u8, b"0:1\0/nowhere");
            assert!(known.follow(Order::Made as u8, &said).is_err(), "{before:?}");
            known.remove().unwrap();
            assert!(innocent.exists());
        }
        let mut known = Known::default();
        let _ = known.follow(Order::Mounted as u8, b"0:1\0/nowhere");
        assert!(known.follow(Order::Mounting as u8, b"/elsewhere").is_err());
        let mut known = Known::default();
        known.follow(Order::Made as u8, &said).unwrap();
        known.follow(Order::Mounting as u8, b"/nowhere").unwrap();
        known.remove().unwrap();
        assert!(!innocent.exists());
    }

    /// It may be mounted between the last word and the end.
    #[test]
    fn what_is_about_to_be_mounted_is_seen_to_after_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("made");
        let made = Made::new(&at).unwrap();
        let said = [made.identity().unwrap().as_bytes(), at.as_os_str().as_bytes()].join(&0);
        let mut known = Known::default();
        known.follow(Order::Made as u8, &said).unwrap();
        known.follow(Order::Mounting as u8, folder.path().as_os_str().as_bytes()).unwrap();
        known.follow(Order::Ending as u8, b"").unwrap();
        assert!(!at.exists());
        assert_eq!(known.mounting.as_deref(), Some(folder.path()));
        known.follow(Order::Gone as u8, b"").unwrap();
        assert_eq!(known.mounting, None);
    }

    #[test]
    fn an_answer_that_comes_too_late_is_not_that_to_the_next_order() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let watcher = Watcher::over(ours);
        assert!(watcher.gone().is_err());
        send(&mut theirs, 0, b"").unwrap();
        assert_eq!(tarnfs_fuse::Unmounter::unmount(&watcher).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn it_aborts_the_mount_that_it_sees_and_no_other() {
        let connections = Path::new("/sys/fs/fuse/connections");
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() || !connections.exists() {
            println!("left out: needs root, /dev/fuse and {}", connections.display());
            return;
        }
        let (folder, at) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let tree = std::sync::Arc::new(tarnfs_tree::FolderTree::open(folder.path()).unwrap());
        let mount = tarnfs_fuse::mount(tree, at.path(), &tarnfs_fuse::MountOptions::default()).unwrap();
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = table.lines().find(|line| line.split(' ').nth(4) == at.path().to_str()).unwrap();
        let device = line.split(' ').nth(2).unwrap().to_owned();
        let minor = device.split_once(':').unwrap().1;
        for planted in [format!("0:../connections/{minor}"), format!("0:./{minor}"), format!("0:{minor}/"), "0:".into()]
        {
            let mut known = Known::default();
            assert!(
                known
                    .follow(Order::Mounted as u8, &[planted.as_bytes(), at.path().as_os_str().as_bytes()].join(&0))
                    .is_err()
            );
            assert!(known.mounted.is_none() && tarnfs_fuse::abort(&planted).is_err());
        }
        let mut known = Known::default();
        known.follow(Order::Mounted as u8, &[device.as_bytes(), at.path().as_os_str().as_bytes()].join(&0)).unwrap();
        assert!(at.path().join("none").symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound));
        // The kernel's control files are seen by this thread alone, and go away with it.
        let aborted = std::thread::spawn(move || {
            // SAFETY: what this thread no longer shares with the others are mounts and the working folder.
            if unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.is_err() {
                return false;
            }
            let flags = rustix::mount::MountPropagationFlags::REC | rustix::mount::MountPropagationFlags::PRIVATE;
            rustix::mount::mount_change("/", flags).unwrap();
            let none = None::<&std::ffi::CStr>;
            let shown = rustix::mount::mount("none", connections, "fusectl", rustix::mount::MountFlags::empty(), none);
            // They may be there already.
            let is_there = shown.is_ok() || connections.read_dir().is_ok_and(|mut names| names.next().is_some());
            if is_there {
                known.follow(Order::Abort as u8, b"").unwrap();
            }
            is_there
        });
        let is_mounted = || {
            let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
            table.lines().any(|line| line.split(' ').nth(4) == at.path().to_str())
        };
        if aborted.join().unwrap() {
            // Whoever serves it sees that the connection has ended, and takes what is left of the mount away.
            let begin = std::time::Instant::now();
            while is_mounted() {
                assert!(begin.elapsed() < Duration::from_secs(120));
                std::thread::sleep(Duration::from_millis(5));
            }
            // That somebody has ended it is no failure.
            mount.wait().unwrap();
        } else {
            println!("left out: the kernel's control files cannot be mounted");
            drop(mount);
        }
        assert!(!is_mounted());
    }
}
