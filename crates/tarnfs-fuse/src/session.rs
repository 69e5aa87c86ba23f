//! A mount from its beginning to its end.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, openat};
use tarnfs_tree::{Node, Served, Tree};

use crate::deadline::{Deadlines, lock};
use crate::dispatch::Dispatcher;
use crate::mountinfo::MountEntry;
use crate::options::Parsed;
use crate::protocol::{self, Session};
use crate::workers::Workers;
use crate::{Error, MountOptions, MountedDevice, Statistics, Unmounter, device, guard, mountinfo, unmount};

/// How long requests in flight, and programs that have files open, get to end after a stop.
const GRACE: Duration = Duration::from_secs(4);

/// How long [`Mount::wait`] lasts at most after a stop.
const LONGEST_STOP: Duration = Duration::from_secs(5);

/// Stack of a thread that only waits.
const SMALL_STACK: usize = 128 << 10;

/// A mounted tree. Dropped, it is unmounted.
pub struct Mount {
    tree: Arc<dyn Tree>,
    shared: Arc<Shared>,
    session: Option<JoinHandle<()>>,
    watchdog: Option<Watchdog>,
    workers: Workers,
    _served: Option<Served>,
}

impl std::fmt::Debug for Mount {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Mount").field("shared", &self.shared).finish_non_exhaustive()
    }
}

/// The thread that watches over deadlines.
#[derive(Debug)]
struct Watchdog {
    thread: JoinHandle<()>,
    /// Ends with the thread.
    ended: Mutex<Receiver<()>>,
}

impl Watchdog {
    /// Waits until it ends; not for ever, as it answers requests and logs, and either may be stuck.
    fn finish(self) {
        if lock(&self.ended).recv_timeout(LONGEST_STOP) == Err(RecvTimeoutError::Disconnected) {
            let _ = self.thread.join();
        }
    }
}

/// Ends a mount from another thread.
#[derive(Debug, Clone)]
pub struct Stopper {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// `None` if somebody else has mounted.
    mount_point: Option<PathBuf>,
    /// By which the mount is known again, where the table of mounts could be read.
    device: Option<MountedDevice>,
    unmounter: Option<Arc<dyn Unmounter>>,
    deadlines: Arc<Deadlines>,
    state: Mutex<SessionState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SessionState {
    /// When it was first asked to stop.
    stopped: Option<Instant>,
    /// How often it was asked to stop.
    stops: u32,
    /// It has been taken away, by whomever: another one may have its place and its number.
    is_gone: bool,
    /// How the session ended, once it has.
    ended: Option<Result<(), String>>,
}

/// Mounts `tree` on the folder `mountpoint`; returns when the kernel can use it.
///
/// A `mountpoint` of the form `/dev/fd/N` is a connection that whoever started this program has opened and mounted: it
/// is served, and they unmount it.
///
/// As root, or with the right to mount in a user namespace, it needs nothing; as another user it needs fusermount3.
/// Read-only unless the tree can be changed ([`Tree::edit`]), always without set-user-id and without devices.
pub fn mount(tree: Arc<dyn Tree>, mountpoint: &Path, options: &MountOptions) -> Result<Mount, Error> {
    let mut parsed = Parsed::new(options)?;
    if tree.edit().is_some() {
        parsed.let_writes_in();
    }
    guard::install();
    let connection = device::connect(mountpoint, options.folder.as_ref().map(|folder| folder.as_fd()), &parsed)?;
    let deadlines = Deadlines::new(options.deadline);
    let workers = Workers::new(options.deadline);
    let dispatcher = Dispatcher::new(Arc::clone(&tree), &parsed, workers.clone(), Arc::clone(&deadlines));
    let of_connection = mountinfo::of_connection(&connection.device);
    let undo = |error| {
        match (of_connection, &connection.mount_point) {
            (Some((major, minor)), Some(_)) => drop(unmount::unmount_device(&format!("{major}:{minor}"))),
            (None, Some(path)) => unmount::undo(path),
            (_, None) => {}
        }
        Error::io(format!("begin serving {}", mountpoint.display()), error)
    };
    let own_queues = connection.can_open_device && options.threads > 1;
    let device = File::from(connection.device);
    let session = Session::begin(dispatcher, device, options.threads, own_queues).map_err(undo)?;
    let entry = match &connection.mount_point {
        Some(path) => found(path, of_connection, options.folder.as_deref()).map_err(undo)?,
        None => None,
    };
    if let (true, Some(folder), Some(path), Some(entry)) =
        (connection.is_by_path, &options.folder, &connection.mount_point, &entry)
        && !is_on(folder, path, entry)
    {
        // Whoever may write a folder above has put another one in its place.
        return Err(undo(io::Error::new(io::ErrorKind::NotFound, "it was moved, and another folder took its place")));
    }
    // Where it is by now.
    let mount_point = entry.as_ref().map(|entry| entry.mount_point.clone()).or_else(|| connection.mount_point.clone());
    if let Some(entry) = &entry {
        device::raise_read_ahead(&entry.device);
    }
    // Before anything is answered.
    let served = entry.as_ref().and_then(MountEntry::numbers).or(of_connection);
    let served = served.map(|(major, minor)| Served::begin(major, minor));
    let device = entry.map(|entry| entry.device);
    let mut unmounter = None;
    // Before rights are given up.
    let known = device.as_deref().and_then(|device| MountedDevice::find(device).ok().flatten());
    if let (Some(other), Some(path), Some(device)) = (&options.unmounter, &mount_point, &device) {
        match other.mounted(path, device) {
            Ok(()) => unmounter = Some(Arc::clone(other)),
            Err(error) => log::debug!("{}: unmounted by its own process: {error}", path.display()),
        }
    }
    let shared = Arc::new(Shared {
        mount_point,
        device: known,
        unmounter,
        deadlines: Arc::clone(&deadlines),
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    let start = |name: &str, stack: usize, work: Box<dyn FnOnce() + Send>| {
        thread::Builder::new().name(name.to_owned()).stack_size(stack).spawn(work).map_err(undo)
    };
    let (replace, asked) = (workers.clone(), Arc::clone(&tree));
    // The watchdog must outlive whatever panics.
    let held_up = move |node| guard::catch(|| asked.held_up(Node(node))).ok().flatten().map(|held_up| held_up.steps);
    let (held, ended) = channel();
    let watch = move || {
        let _held: Sender<()> = held;
        deadlines.watch(held_up, || replace.replace_stuck());
    };
    let watchdog =
        Watchdog { thread: start("tarnfs-watchdog", SMALL_STACK, Box::new(watch))?, ended: Mutex::new(ended) };
    let of_session = Arc::clone(&shared);
    let session = start(
        "tarnfs-session",
        protocol::STACK,
        Box::new(move || of_session.serve(|| session.run(&|| of_session.gone()))),
    )?;
    Ok(Mount { tree, shared, session: Some(session), watchdog: Some(watchdog), workers, _served: served })
}

/// The line that the table of mounts has of what was mounted on `path`; `None` where the table cannot be read.
///
/// A folder above it may have got another name meanwhile, so it is known by the file system's numbers where the
/// connection tells them, else by what lies on the `folder` that was mounted on, if that is open. A mount that nobody
/// finds again could not be taken away.
fn found(path: &Path, of_connection: Option<(u32, u32)>, folder: Option<&OwnedFd>) -> io::Result<Option<MountEntry>> {
    let found = match (of_connection, folder) {
        (Some((major, minor)), _) => {
            let all = mountinfo::of_device(&format!("{major}:{minor}"), device::MOUNT_TYPE);
            // Of several, which other mounts have copied, the one that was meant.
            all.map(|all| all.iter().find(|entry| entry.mount_point == path).or(all.first()).cloned())
        }
        (None, Some(folder)) => match mount_on(folder, path) {
            Some(id) => mountinfo::of_id(id),
            None => Ok(None),
        },
        (None, None) => mountinfo::find(path),
    };
    let found = found.map(|found| found.filter(|entry| entry.kind == device::MOUNT_TYPE));
    match found {
        Ok(None) => Err(io::Error::new(io::ErrorKind::NotFound, "it was moved, or unmounted at once")),
        Ok(found) => Ok(found),
        Err(_) => Ok(None),
    }
}

/// The number of the mount that lies on `folder`, whose path was `path`.
fn mount_on(folder: &OwnedFd, path: &Path) -> Option<u64> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // From the folder itself nothing leads to what covers it.
    let parent = openat(folder, "..", flags, Mode::empty()).ok()?;
    mountinfo::id_of(&openat(&parent, path.file_name()?, flags, Mode::empty()).ok()?)
}

/// True if the mount of `entry`, which was found at `path`, is on `folder`.
fn is_on(folder: &OwnedFd, path: &Path, entry: &MountEntry) -> bool {
    match mount_on(folder, path) {
        Some(id) => id == entry.id,
        // Where the kernel does not say, the path of what is open does.
        None => {
            std::fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd())).is_ok_and(|at| at == entry.mount_point)
        }
    }
}

impl Mount {
    /// Waits until somebody unmounts it or a [`Stopper`] ends it.
    pub fn wait(mut self) -> Result<(), Error> {
        let ended = self.finish();
        // Where it did not end in time, there is nothing more to be done for it.
        self.session = None;
        ended
    }

    /// What ends it from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper { shared: Arc::clone(&self.shared) }
    }

    /// What it has done so far.
    pub fn statistics(&self) -> Statistics {
        self.shared.deadlines.statistics(self.tree.work())
    }

    fn finish(&mut self) -> Result<(), Error> {
        let ended = self.shared.wait();
        self.workers.finish();
        self.shared.deadlines.finish();
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.finish();
        }
        log::info!("{}: {}", self.shared.shown(), self.statistics().to_json());
        if let Some(result) = ended {
            // It has said how it ended, so it is about to.
            if let Some(session) = self.session.take() {
                let _ = session.join();
            }
            return result.map_err(|error| {
                let _ = self.shared.detach();
                Error::io(format!("serve {}", self.shared.shown()), io::Error::other(error))
            });
        }
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.session.is_some() {
            self.stopper().stop();
            if let Err(error) = self.finish() {
                log::warn!("{error}");
            }
        }
    }
}

impl Stopper {
    /// Takes the mount away, at once for everybody who comes. [`Mount::wait`] returns when those who use it are done,
    /// after 5 seconds at the latest, and at once when this is called a second time: a program that then exits
    /// leaves nothing behind.
    pub fn stop(&self) {
        let first = {
            let mut state = lock(&self.shared.state);
            state.stops += 1;
            state.stopped.get_or_insert_with(Instant::now);
            state.stops == 1 && state.ended.is_none()
        };
        self.shared.changed.notify_all();
        if first && let Err(error) = self.shared.detach() {
            log::warn!("{error}");
        }
    }
}

impl Shared {
    /// How the mount is called in messages.
    fn shown(&self) -> std::path::Display<'_> {
        self.mount_point.as_deref().unwrap_or(Path::new("the mount")).display()
    }

    /// Runs the session to its end, however it ends: else [`Mount::wait`] would wait for ever.
    fn serve(&self, session: impl FnOnce() -> io::Result<()>) {
        let ended = guard::catch(session);
        self.end(ended.and_then(|ended| ended.map_err(|error| error.to_string())));
    }

    /// Called by the session when the mount is gone, before it waits for its threads.
    fn gone(&self) {
        lock(&self.state).is_gone = true;
        if let Some(Err(error)) = self.unmounter.as_ref().map(|unmounter| unmounter.gone()) {
            log::debug!("{}: {error}", self.shown());
        } else if let (None, Some(Err(error))) =
            (&self.unmounter, self.device.as_ref().map(MountedDevice::unmount_dead))
        {
            log::debug!("{}: {error}", self.shown());
        }
    }

    /// Called by the session when it is over.
    fn end(&self, result: Result<(), String>) {
        lock(&self.state).ended = Some(result);
        self.changed.notify_all();
    }

    /// Waits for the end; `None` if it did not come in time after a stop.
    fn wait(&self) -> Option<Result<(), String>> {
        let mut state = lock(&self.state);
        let mut aborted = false;
        loop {
            if let Some(result) = &state.ended {
                return Some(result.clone());
            }
            let Some(since) = state.stopped.map(|stopped| stopped.elapsed()) else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            if state.stops > 1 || since >= LONGEST_STOP {
                return None;
            }
            if since >= GRACE && !aborted {
                aborted = true;
                self.abort();
            }
            let until = if aborted { LONGEST_STOP } else { GRACE };
            let left = until.saturating_sub(since);
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Unmounts lazily, if it is still our mount that is there.
    fn detach(&self) -> Result<(), Error> {
        let Some(mount_point) = &self.mount_point else {
            // Nobody else can end it from here. Without this, those who are inside keep it, and us, alive.
            lock(&self.state).stops += 1;
            self.changed.notify_all();
            return Ok(());
        };
        if lock(&self.state).is_gone {
            return Ok(());
        }
        let mut told = None;
        if let Some(unmounter) = &self.unmounter {
            match unmounter.unmount() {
                Ok(()) => return Ok(()),
                // It may have been killed, and we may still be allowed to.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => log::debug!("{}: {error}", self.shown()),
                Err(error) => told = Some(error),
            }
        }
        let done = match &self.device {
            Some(device) => device.unmount(),
            // The table of mounts could not be read, so this can only be tried.
            None => unmount::unmount(mount_point, true),
        };
        // What the other process says is why; this one may not even look.
        done.map_err(|error| told.map_or(error, |told| Error::io(format!("unmount {}", mount_point.display()), told)))
    }

    /// Ends the connection under those who still use it: they get an error. Only where the kernel's control files are
    /// mounted; else it ends with the process.
    fn abort(&self) {
        // Where it is not possible, it ends with this process.
        let _ = match (&self.unmounter, &self.device) {
            (Some(unmounter), _) => unmounter.abort(),
            (None, Some(device)) => device.abort(),
            (None, None) => Ok(()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(mount_point: Option<PathBuf>, unmounter: Option<Arc<dyn Unmounter>>) -> Arc<Shared> {
        Arc::new(Shared {
            mount_point,
            device: None,
            unmounter,
            deadlines: Deadlines::new(Duration::from_secs(3600)),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Writes down what it is told.
    #[derive(Debug, Default)]
    struct Told(Mutex<Vec<&'static str>>);

    impl Unmounter for Told {
        fn mounted(&self, _: &Path, _: &str) -> io::Result<()> {
            Ok(())
        }

        fn unmount(&self) -> io::Result<()> {
            lock(&self.0).push("unmount");
            Ok(())
        }

        fn gone(&self) -> io::Result<()> {
            lock(&self.0).push("gone");
            Ok(())
        }

        fn abort(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Another one may have its number.
    #[test]
    fn a_mount_that_is_gone_is_not_unmounted() {
        for (is_gone, expected) in [(false, &["unmount"]), (true, &["gone"])] {
            let told = Arc::new(Told::default());
            let shared = shared(Some("/nowhere".into()), Some(Arc::clone(&told) as Arc<dyn Unmounter>));
            if is_gone {
                shared.gone();
            }
            Stopper { shared }.stop();
            assert_eq!(*lock(&told.0), expected);
        }
    }

    /// A second stop ends the wait for those inside. What lies on the same folder by then is not ours.
    #[test]
    fn a_mount_is_taken_away_once_and_not_at_all_when_it_has_ended() {
        for has_ended in [false, true] {
            let told = Arc::new(Told::default());
            let shared = shared(Some("/nowhere".into()), Some(Arc::clone(&told) as Arc<dyn Unmounter>));
            if has_ended {
                shared.end(Ok(()));
            }
            let stopper = Stopper { shared };
            stopper.stop();
            stopper.stop();
            assert_eq!(*lock(&told.0), if has_ended { &[][..] } else { &["unmount"] });
        }
    }

    /// Whoever may write a folder above can move it while it is mounted on.
    #[test]
    fn what_was_mounted_is_found_wherever_it_is_by_now() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let (d, moved) = (root.join("d"), root.join("moved"));
        std::fs::create_dir_all(d.join("at")).unwrap();
        let options = Parsed::new(&MountOptions::default()).unwrap();
        let folder = OwnedFd::from(File::open(d.join("at")).unwrap());
        let Ok(connection) = device::connect(&d.join("at"), Some(folder.as_fd()), &options) else {
            println!("left out: needs the right to mount");
            return;
        };
        let numbers = mountinfo::of_connection(&connection.device);
        let device = mountinfo::find(&d.join("at")).unwrap().unwrap().device;
        std::fs::rename(&d, &moved).unwrap();
        let path = connection.mount_point.as_deref().unwrap();
        let [by_number, by_folder, by_path] = [(numbers, None), (None, Some(&folder)), (None, None)]
            .map(|(numbers, folder)| found(path, numbers, folder));
        unmount::unmount_device(&device).unwrap();
        // Older kernels do not tell the number of a connection.
        if numbers.is_some() {
            assert_eq!(by_number.unwrap().unwrap().mount_point, moved.join("at"));
        }
        assert_eq!(by_folder.unwrap().unwrap().mount_point, moved.join("at"));
        assert!(by_path.is_err() && found(path, None, Some(&folder)).is_err());
    }

    #[test]
    fn a_session_that_panics_has_ended() {
        guard::install();
        let shared = shared(None, None);
        thread::scope(|scope| {
            // Caught by the thread that waits for it, where nothing else catches it.
            let served = scope.spawn(|| shared.serve(|| panic!("as tested")));
            served.join().unwrap();
        });
        assert!(shared.wait().unwrap().unwrap_err().contains("as tested"));
    }
}
