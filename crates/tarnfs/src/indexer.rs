//! A process that makes our own index of archives that are mounted with a sidecar of ratarmount, which says less. The
//! next mount uses it.
//!
//! The daemon gives up the right to write files. So this process is forked before, while there is a single thread, and
//! waits to be told which archives. It works at the lowest priority, in memory of its own, and ends with the daemon.

#![allow(unsafe_code, reason = "fork(2), for a process without a program of its own")]

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tarnfs_index::{location, ratarmount};
use tarnfs_source::Cancel;
use tarnfs_tree::filling;
use tarnfs_tree::open::{self, IndexPlace, OpenArchive, Options, Recreate};

use crate::args::{Keys, Mount, shown};
use crate::commands::difference::difference_of_sidecar;
use crate::{daemon, inside, signals};

/// How long what was begun may take to end once the daemon is gone. A temporary file that is left is removed by the
/// next one that makes an index there.
const PATIENCE: Duration = Duration::from_secs(10);

/// The daemon's end.
#[derive(Debug)]
pub(crate) struct Indexer(UnixStream);

impl Indexer {
    /// Starts it if one of `archives` may be mounted with a sidecar. Must be called while the process has a single
    /// thread, and signals are held.
    pub(crate) fn start(archives: &[PathBuf], arguments: &Mount, keys: &Keys) -> Option<Self> {
        if !may_be_needed(archives, arguments) {
            return None;
        }
        Self::fork(archives, arguments, keys)
            .inspect_err(|error| log::debug!("no process to make indexes: {error}"))
            .ok()
    }

    fn fork(archives: &[PathBuf], arguments: &Mount, keys: &Keys) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let null = File::options().read(true).write(true).open("/dev/null")?;
        // Now, before something is mounted over them: the other process may begin late.
        let archives: Vec<_> = archives.iter().map(|path| Found::now(path, &folders(arguments))).collect();
        // SAFETY: there are no other threads, so no lock is held that the child could wait for.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(ours);
                // SAFETY: as above. The daemon waits for the process in between alone, and so never has a dead child.
                if unsafe { libc::fork() } == 0 {
                    // A panic has nobody to tell.
                    let _ = std::panic::catch_unwind(|| work(theirs, &null, &archives, arguments, keys));
                }
                // SAFETY: ends this process at once; nothing that the daemon wants to clean up is cleaned up twice.
                unsafe { libc::_exit(0) }
            }
            child => {
                // SAFETY: the child is ours, and nobody else waits for it. It ends at once.
                unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
                Ok(Self(ours))
            }
        }
    }

    /// Has the archives of these numbers indexed. A thread says in the log what came of it.
    pub(crate) fn begin(mut self, archives: &[usize]) -> io::Result<()> {
        for &number in archives {
            self.0.write_all(&(number as u64).to_le_bytes())?;
        }
        self.0.write_all(&END.to_le_bytes())?;
        std::thread::Builder::new().name("tarnfs-index".into()).spawn(move || {
            let mut said = Vec::new();
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = self.0.read(&mut buffer) {
                said.extend_from_slice(&buffer[..read]);
                while let Some(end) = said.iter().position(|&byte| byte == 0) {
                    let line: Vec<u8> = said.drain(..=end).collect();
                    let (level, said) = match line[..end].strip_prefix(&[WARNING]) {
                        Some(said) => (log::Level::Warn, said),
                        None => (log::Level::Info, &line[..end]),
                    };
                    log::log!(level, "{}", String::from_utf8_lossy(said));
                }
            }
        })?;
        Ok(())
    }
}

/// Before a line: it is said without `-d 2`, too.
const WARNING: u8 = b'!';

/// In place of a number: there are no more.
const END: u64 = u64::MAX;

/// True if one of the archives has a file where ratarmount puts its sidecars, and an index can be written. Not where
/// descriptors are among the arguments: what these lead to may be there only once.
fn may_be_needed(archives: &[PathBuf], arguments: &Mount) -> bool {
    let open = &arguments.open;
    let may_be_made = !open.recreate_index && !open.no_recreate_index && open.index_file().is_none();
    if !may_be_made || !daemon::from_arguments().is_empty() {
        return false;
    }
    let folders = folders(arguments);
    archives.iter().any(|archive| {
        let has_sidecar = ratarmount::candidates(archive, &folders).iter().any(|path| path.exists());
        has_sidecar && location::candidates(archive, None, &folders).iter().any(|path| may_be_written(path))
    })
}

/// Where indexes and sidecars are looked for.
fn folders(arguments: &Mount) -> Vec<PathBuf> {
    match &arguments.open.index_folders {
        None => location::default_folders(),
        // A value that is wrong is told by whoever opens the archives.
        Some(folders) => location::parse_folders(folders).unwrap_or_default(),
    }
}

/// An archive and its sidecar, as they were before the mount.
struct Found<'a> {
    archive: &'a Path,
    identity: Option<Identity>,
    sidecar: Option<(PathBuf, Identity)>,
}

impl<'a> Found<'a> {
    fn now(archive: &'a Path, folders: &[PathBuf]) -> Self {
        let mut candidates = ratarmount::candidates(archive, folders).into_iter();
        let sidecar = candidates.find_map(|path| identity(&path).map(|identity| (path, identity)));
        Self { archive, identity: identity(archive), sidecar }
    }

    /// The sidecar, for whoever locks it. Not if something else is there by now, as a mount would be.
    fn open_sidecar(&self) -> Option<File> {
        let (path, before) = self.sidecar.as_ref()?;
        if identity(path) != Some(*before) {
            return None;
        }
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        File::options().read(true).custom_flags(flags).open(path).ok()
    }

    /// The sidecar, and how it differs from the index that was just made, if it does.
    fn difference(&self, opened: &OpenArchive, options: &Options) -> Option<(&Path, String)> {
        let (path, _) = self.sidecar.as_ref()?;
        let mut options = options.clone();
        options.index.place = IndexPlace::File(path.clone());
        options.index.use_sidecars = true;
        options.index.recreate = Recreate::Never;
        // One that does not belong any more is not used by anybody.
        let sidecar = open::open(self.archive, &options).ok().filter(|found| found.is_sidecar)?;
        let compared = difference_of_sidecar(&sidecar.index, &opened.index, &options.cancel);
        compared.ok().flatten().map(|what| (path.as_path(), what))
    }
}

/// How often who waits for another mount's process looks whether that has ended.
const LOOK: Duration = Duration::from_millis(500);

/// How long it is waited for. Whoever may read a sidecar can lock it, and need not make an index.
const LONGEST: Duration = Duration::from_secs(3600);

/// Waits until no other process makes an index in place of the same sidecar, and keeps further ones from it as long as
/// the file is open. `wait` is called once if there is one. False once `cancel` was asked for. After the `longest` time
/// it goes on as if there were none.
///
/// ratarmount locks it in another way (SQLite's), and never waits for this. Where the file system has no such locks,
/// several indexes are made, of which one stays.
fn lock(sidecar: &File, cancel: &Cancel, longest: Duration, wait: impl FnOnce() -> io::Result<()>) -> io::Result<bool> {
    let (mut wait, begin) = (Some(wait), Instant::now());
    while flock(sidecar, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
        && (wait.is_some() || begin.elapsed() < longest)
    {
        if let Some(wait) = wait.take() {
            wait()?;
        }
        if cancel.is_cancelled() {
            return Ok(false);
        }
        std::thread::sleep(LOOK);
    }
    Ok(true)
}

/// True if this user may write where `path` is, or make the folders that it is in.
fn may_be_written(path: &Path) -> bool {
    if path.parent().is_some_and(|folder| !folder.exists() && location::missing_above(folder).is_some()) {
        return false;
    }
    let folder = path.ancestors().skip(1).find(|folder| folder.exists());
    folder.is_some_and(|folder| rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok())
}

/// All that this process does.
fn work(socket: UnixStream, null: &File, archives: &[Found<'_>], arguments: &Mount, keys: &Keys) -> io::Result<()> {
    // Its file is closed with all others. The daemon is told instead.
    log::set_max_level(log::LevelFilter::Off);
    let cancel = Cancel::default();
    // Before the folder is left from which relative paths go.
    let options = options(arguments, keys, &cancel)?;
    let mut socket = daemon::detach(socket, null, c"tarnfs-index")?;
    // They were held for the daemon's sake. From now on one ends this process, as any other.
    signals::release();
    let numbers = numbers(&mut socket, archives.len())?;
    let mut watched = socket.try_clone()?;
    let ended = cancel.clone();
    std::thread::Builder::new().spawn(move || {
        // Nothing more is said: this is the end of the daemon.
        let _ = watched.read(&mut [0]);
        cancel.cancel();
        std::thread::sleep(PATIENCE);
        // SAFETY: ends this process at once.
        unsafe { libc::_exit(1) }
    })?;
    filling::step_back(None);
    for found in numbers.into_iter().filter_map(|number| archives.get(number)) {
        let (archive, name) = (found.archive, shown(found.archive.as_os_str()));
        // Its lock ends with it.
        let sidecar = found.open_sidecar();
        if let Some(sidecar) = &sidecar {
            let waits = format!("{name}: the process of another mount makes its index, and is waited for\0");
            if !lock(sidecar, &ended, LONGEST, || socket.write_all(waits.as_bytes()))? {
                break;
            }
        }
        // What is open below the mount would keep that from being unmounted.
        let said = match why_not(found.identity.as_ref(), identity(archive).as_ref()) {
            None => index(found, &options),
            Some(why) => format!("{name}: no index is made meanwhile: {why}"),
        };
        socket.write_all(&[said.as_bytes(), b"\0"].concat())?;
    }
    // The daemon sees that there is nothing more.
    socket.shutdown(Shutdown::Both)
}

/// Which of so many archives are named. Each once, whatever the daemon says.
fn numbers(socket: &mut impl Read, archives: usize) -> io::Result<BTreeSet<usize>> {
    let mut numbers = BTreeSet::new();
    loop {
        let mut number = [0; 8];
        socket.read_exact(&mut number)?;
        match u64::from_le_bytes(number) {
            END => return Ok(numbers),
            number => numbers.extend(usize::try_from(number).ok().filter(|&number| number < archives)),
        }
    }
}

/// Which file lies there: device and number.
type Identity = (u64, u64);

fn identity(path: &Path) -> Option<Identity> {
    path.metadata().ok().map(|found| (found.dev(), found.ino()))
}

/// Why the file that lies there `now` is not indexed, if it is not the one that lay there `before` the mount.
fn why_not(before: Option<&Identity>, now: Option<&Identity>) -> Option<&'static str> {
    match (before, now) {
        (_, None) => Some("it is not there any more"),
        (Some(before), Some(now)) if before == now => None,
        (Some((device, _)), Some((now, _))) if device != now => Some("the mount lies over it"),
        _ => Some("another file has taken its place"),
    }
}

fn options(arguments: &Mount, keys: &Keys, cancel: &Cancel) -> io::Result<Options> {
    let mut options =
        inside::options(&arguments.open, keys, cancel).map_err(|failure| io::Error::other(failure.to_string()))?;
    if arguments.lazy {
        options.shape.recursion = None;
    }
    // One thread, as for all that is done while somebody else may want the machine. Decoded pieces are kept by the
    // daemon. There is a sidecar beside a small archive, too, so it gets an index.
    options.index.use_sidecars = false;
    options.index.minimum_file_count = 0;
    options.decoding.threads = 1;
    options.decoding.threads_of = Vec::new();
    options.decoding.decoded_cache = None;
    Ok(options)
}

/// Makes the index, and says what came of it.
fn index(found: &Found<'_>, options: &Options) -> String {
    let name = shown(found.archive.as_os_str());
    let warning = char::from(WARNING);
    let options = Options { progress: Arc::default(), ..options.clone() };
    let opened = match open::open(found.archive, &options) {
        Ok(opened) => opened,
        Err(problem) => return format!("{warning}{name}: an index of tarnfs could not be made: {problem}"),
    };
    let Some(path) = &opened.index_path else {
        return format!("{warning}{name}: an index could not be written anywhere; see --index-folders");
    };
    let next = format!("the next mount uses the index {}", shown(path.as_os_str()));
    if let Some((sidecar, what)) = found.difference(&opened, &options) {
        let sidecar = shown(sidecar.as_os_str());
        return format!("{warning}{name}: ratarmount's index {sidecar} is not right: {what}; mount again: {next}");
    }
    match opened.index.summary().notes.len() {
        0 => format!("{name}: {next}"),
        1 => format!("{warning}{name}: damaged in one place, which ratarmount's index does not say; {next}"),
        more => format!("{warning}{name}: damaged in {more} places, which ratarmount's index does not say; {next}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_lies_names_no_more_archives_than_there_are() {
        let bytes = |numbers: &[u64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
        let said = [&[2, 0, 3, u64::MAX - 1][..], &[0; 1000], &[END, 1]].concat();
        assert_eq!(numbers(&mut bytes(&said).as_slice(), 3).unwrap(), BTreeSet::from([0, 2]));
        assert!(numbers(&mut bytes(&[1]).as_slice(), 3).is_err(), "the daemon is gone");
    }

    #[test]
    fn a_sidecar_that_somebody_keeps_locked_is_not_waited_for_without_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (ours, theirs) = (file.reopen().unwrap(), file.reopen().unwrap());
        let never = Cancel::default();
        flock(&theirs, FlockOperation::LockExclusive).unwrap();
        let mut waits = 0;
        let mut count = || {
            waits += 1;
            Ok(())
        };
        assert!(lock(&ours, &never, Duration::ZERO, &mut count).unwrap());
        let ended = Cancel::default();
        ended.cancel();
        assert!(!lock(&ours, &ended, Duration::MAX, &mut count).unwrap());
        // Closing it is not enough: a process that another test begins may have it for a moment.
        flock(&theirs, FlockOperation::Unlock).unwrap();
        assert!(lock(&ours, &never, Duration::MAX, &mut count).unwrap());
        assert_eq!(waits, 2);
    }

    #[test]
    fn the_log_says_what_became_of_an_archive() {
        let before = Some(&(1, 10));
        assert_eq!(why_not(before, before), None);
        assert_eq!(why_not(before, None), Some("it is not there any more"));
        assert_eq!(why_not(before, Some(&(1, 11))), Some("another file has taken its place"));
        assert_eq!(why_not(before, Some(&(2, 10))), Some("the mount lies over it"));
        assert_eq!(why_not(None, before), Some("another file has taken its place"));
    }
}
