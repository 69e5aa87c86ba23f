//! Where what is written in a mount goes (`--write-overlay`).

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Metadata};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, CWD, FlockOperation, Mode, OFlags, fadvise, flock, fstat, openat, rmdir, statfs};
use rustix::io::Errno;
use rustix::process::geteuid;
use tarnfs_fuse::MountedTree;
use tarnfs_source::FileSource;
use tarnfs_tree::{Error, FolderTree, MountedOver, OverlayError, OverlayTree, Tree};

use crate::args::shown;
use crate::exit::{Code, Failure};
use crate::made::Temporary;
use crate::mountpoint::resolved;
use crate::watcher::Watcher;

/// What folders that go with their mount are called, and 16 hexadecimal digits behind it.
const NAME: &str = "tarnfs-overlay-";

/// Lies in them. It is made while the lock is held, so who finds it and the lock free knows that the mount has ended.
const MARK: &str = ".tarnfs-overlay.temporary";

/// Held by the mount that uses an overlay.
const LOCK: &str = ".tarnfs-overlay.lock";

/// How old an empty folder is that is not just being made.
const UNUSED: Duration = Duration::from_secs(3600);

/// How long a mount that has just ended is waited for, and how often is looked.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);

/// Locked from the mount on until what was written is in the archive. Then it is removed. It says where the mount is.
const COMMITS: &str = ".tarnfs-overlay.commits";

/// No path of a mount point is longer (`PATH_MAX`).
const LONGEST_PATH: u64 = 4096;

/// Names of the files of an overlay that is empty begin so.
const OWN: &[u8] = b".tarnfs-overlay";

/// Where files are in memory.
const MEMORY: &str = "/dev/shm";

/// `f_type` of a tmpfs (`linux/magic.h`).
const TMPFS: u64 = 0x0102_1994;

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A folder that stays.
    Folder(PathBuf),
    /// `:temp:`
    Temporary,
    /// `:memory:`
    Memory,
}

impl Place {
    /// What `--write-overlay` says; relative names are from the folder that this process is in now.
    pub(crate) fn of(given: &OsStr) -> Result<Self, Failure> {
        Ok(match given.to_str() {
            Some(":temp:") => Self::Temporary,
            Some(":memory:") => Self::Memory,
            _ => Self::Folder(std::path::absolute(given).map_err(|error| cannot(Path::new(given), &error))?),
        })
    }
}

fn cannot(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Code::CannotOpen, format!("--write-overlay {}: {error}", shown(path.as_os_str())))
}

/// A tree that can be written to.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) tree: Arc<OverlayTree>,
    /// Removed when it is dropped.
    temporary: Option<Temporary>,
    /// The one archive that it is over, as it was opened.
    over: Option<MountedOver>,
}

impl Written {
    /// Lets `lower` be written to, of which `sources` are shown at `mountpoint`. The watcher removes what goes with
    /// the mount also where this process is killed. `over` says what `lower` is, if it is no archive as it is; the
    /// function fails if it is not what its name leads to.
    pub(crate) fn open(
        place: &Place,
        lower: &Arc<dyn Tree>,
        (sources, folders, mountpoint): (&[PathBuf], &[Arc<FolderTree>], &Path),
        (over, is_still): (Option<&str>, &dyn Fn() -> Result<(), Failure>),
        watcher: Option<&Watcher>,
    ) -> Result<Self, Failure> {
        let temporary = match place {
            Place::Folder(folder) => {
                not_mixed(folder, sources, mountpoint)?;
                not_shown(folder, folders)?;
                None
            }
            Place::Temporary => Some(temporary(&std::env::temp_dir(), watcher)?),
            Place::Memory => {
                let memory = Path::new(MEMORY);
                if !statfs(memory).is_ok_and(|found| found.f_type as u64 == TMPFS) {
                    let what = format!("{MEMORY} is not in memory here; give a folder, or :temp:");
                    return Err(cannot(Path::new(":memory:"), &what));
                }
                Some(temporary(memory, watcher)?)
            }
        };
        let folder = match (place, &temporary) {
            (Place::Folder(folder), _) => folder,
            (_, Some(temporary)) => temporary.path(),
            (_, None) => return Err(cannot(Path::new(":temp:"), &"no folder")),
        };
        let user = format!("process {}, {}", std::process::id(), mounted_at(&resolved(mountpoint)));
        let failed = |error: OverlayError| Failure::new(Code::CannotOpen, format!("--write-overlay {error}"));
        let mut tree = open(lower, folder, &user).map_err(failed)?;
        // It is the one that was opened, if it is so still.
        let mounted = match sources {
            [archive] if temporary.is_none() && over.is_none() => MountedOver::of(archive).ok(),
            _ => None,
        };
        if temporary.is_none()
            && let Err(failure) = is_still()
        {
            tree.forget_root().map_err(failed)?;
            return Err(failure);
        }
        if let [archive] = sources
            && is_committed(&tree, archive).map_err(failed)?
        {
            // What it knows of what is below is of no use any more.
            drop(tree);
            tree = open(lower, folder, &user).map_err(failed)?;
        }
        let file = if let [archive] = sources { archive.metadata().ok() } else { None };
        tree.distrust_notes(file.map(|file| (file.dev(), file.ino()))).map_err(failed)?;
        tree.note_over(over).map_err(failed)?;
        if temporary.is_some() {
            File::create_new(folder.join(MARK)).map_err(|error| cannot(&folder.join(MARK), &error))?;
        }
        Ok(Self { tree: Arc::new(tree), temporary, over: mounted })
    }

    /// It is mounted now, over these `sources`: who looks sees what was written together with them. A commit does not
    /// ask any more whether it was written over them. Of a mount that has failed nobody has seen anything.
    pub(crate) fn mounted(&self, sources: &[PathBuf]) {
        match self.tree.note_mounted_over(self.over.as_ref()) {
            Ok(true) => {
                let archives: Vec<_> = sources.iter().map(|source| shown(source.as_os_str())).collect();
                let (folder, archive) = (shown(self.tree.folder().as_os_str()), archives.join(", "));
                log::warn!(
                    "{folder}: has what was written over {archive} when that was another one: where both say \
                     something, what was written shows"
                );
            }
            Ok(false) => {}
            // The next commit says that the archive is another one then.
            Err(error) => log::warn!("--write-overlay {error}"),
        }
    }

    /// Fails if it lies in a folder of others, beside the `archive` that it goes into: see [`are_own_changes`]. It may
    /// have been put there while the archive was read.
    pub(crate) fn is_own(&self, archive: &Path) -> Result<(), Failure> {
        let folder = self.tree.folder();
        let owner = fstat(self.tree.as_fd()).map_err(|error| cannot(folder, &error))?.st_uid;
        of_trusted(owner, archive, folder)
    }

    /// What was written is brought to the disk, where it stays.
    pub(crate) fn finish(&self) {
        if self.temporary.is_none() {
            self.tree.finish();
        }
    }
}

/// True if `archive` is the one that the overlay went into when a commit was ended before it had emptied it. That is
/// done now.
fn is_committed(tree: &OverlayTree, archive: &Path) -> Result<bool, OverlayError> {
    if !FileSource::open(archive).map_or(Ok(false), |file| tree.is_in(&file))? || !is_on_disk(tree, archive)? {
        return Ok(false);
    }
    tree.empty(true)?;
    let (folder, archive) = (shown(tree.folder().as_os_str()), shown(archive.as_os_str()));
    log::warn!("{folder}: what was in it is in {archive} since a commit that was ended; it was emptied");
    Ok(true)
}

/// Brings an `archive` in which all of an overlay was found, and its name, to the disk: a commit that was ended may
/// have left both to the kernel. False if the disk does not have what was appended.
pub(crate) fn is_on_disk(tree: &OverlayTree, archive: &Path) -> Result<bool, OverlayError> {
    let sync = || {
        let real = archive.canonicalize()?;
        let file = File::open(&real)?;
        file.sync_all()?;
        File::open(real.parent().unwrap_or(&real))?.sync_all()?;
        // What the disk has refused, and somebody was told of, the kernel takes for written. So it is read again.
        if let Err(error) = fadvise(&file, 0, None, Advice::DontNeed) {
            log::debug!("{}: it is in memory, too: {error}", real.display());
        }
        FileSource::from_file(file, real)
    };
    let failed = |error: io::Error| OverlayError { path: archive.to_owned(), error: Error::Io(error) };
    tree.has_head(&sync().map_err(failed)?)
}

/// Fails if the name of one of `archives` does not lead to what it was before it was opened. A commit that was waited
/// for may have replaced one, and emptied the overlay: what is written over the old one would undo that.
pub(crate) fn not_replaced(archives: &[(PathBuf, Option<Metadata>)]) -> Result<(), Failure> {
    let facts = |of: &Metadata| (of.dev(), of.ino(), of.len(), (of.ctime(), of.ctime_nsec()));
    let now = |archive: &Path| archive.metadata().ok().filter(Metadata::is_file);
    let is_other =
        |archive: &Path, known: &Option<Metadata>| now(archive).as_ref().map(facts) != known.as_ref().map(facts);
    match archives.iter().find(|(archive, known)| is_other(archive, known)) {
        None => Ok(()),
        Some((archive, _)) => {
            let what =
                "was changed, or another file took its place, while it was opened to be written to: mount it again";
            Err(Failure::new(Code::CannotOpen, format!("{}: {what}", shown(archive.as_os_str()))))
        }
    }
}

/// Those of `sources` that are files, as they are now.
pub(crate) fn known(sources: &[PathBuf]) -> Vec<(PathBuf, Option<Metadata>)> {
    let file = |source: &PathBuf| source.metadata().ok().filter(Metadata::is_file);
    sources.iter().map(|source| (source.clone(), file(source))).collect()
}

/// Opens the overlay in `folder` for `user`. Whoever has just unmounted it is waited for, who still brings it to the
/// disk.
pub(crate) fn open(lower: &Arc<dyn Tree>, folder: &Path, user: &str) -> Result<OverlayTree, OverlayError> {
    when_ended(&|| OverlayTree::open(Arc::clone(lower), folder, user))
}

/// The same to look at it: nothing in it is changed.
pub(crate) fn look(lower: &Arc<dyn Tree>, folder: &Path) -> Result<OverlayTree, OverlayError> {
    when_ended(&|| OverlayTree::look(Arc::clone(lower), folder))
}

fn when_ended(open: &dyn Fn() -> Result<OverlayTree, OverlayError>) -> Result<OverlayTree, OverlayError> {
    let begun = Instant::now();
    loop {
        match open() {
            Err(error) if is_ending(&error) && begun.elapsed() < PATIENCE => thread::sleep(LOOK),
            opened => return opened,
        }
    }
}

/// How a mount calls itself for others who want the same folder.
fn mounted_at(mountpoint: &Path) -> String {
    format!("mounted at {}", shown(mountpoint.as_os_str()))
}

/// True if the folder is in use by a mount that is not there any more.
fn is_ending(error: &OverlayError) -> bool {
    let is_in_use = matches!(&error.error, Error::Io(error) if error.kind() == io::ErrorKind::ResourceBusy);
    let said = error.to_string();
    let is_it = |mount: &MountedTree| said.contains(&format!("{};", mounted_at(&mount.mount_point)));
    is_in_use && !tarnfs_fuse::mounts().unwrap_or_default().iter().any(is_it)
}

/// Fails if what is written would be hidden by the mount, or be written to what is shown.
fn not_mixed(folder: &Path, sources: &[PathBuf], mountpoint: &Path) -> Result<(), Failure> {
    let real = resolved(folder);
    if real.starts_with(resolved(mountpoint)) {
        return Err(cannot(folder, &"the mount would hide it: name a folder outside of the mount point"));
    }
    match sources.iter().find(|source| resolved(source).starts_with(&real)) {
        Some(source) => {
            let source = shown(source.as_os_str());
            Err(cannot(folder, &format!("{source} lies in it, and stays as it is: name another folder")))
        }
        None => Ok(()),
    }
}

/// Fails if what is written would be part of what is shown, by whatever way that is reached.
fn not_shown(folder: &Path, shown_folders: &[Arc<FolderTree>]) -> Result<(), Failure> {
    let real = resolved(folder);
    // It may be made only now.
    let Some(there) = real.ancestors().find(|path| path.is_dir()) else { return Ok(()) };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = openat(CWD, there, flags, Mode::empty()).map_err(|error| cannot(folder, &error))?;
    for tree in shown_folders {
        match tree.holds(open.as_fd()) {
            Ok(false) => {}
            Ok(true) => {
                let source = shown(tree.path().as_os_str());
                let what = format!("it lies in {source}, which is shown: name a folder outside of it");
                return Err(cannot(folder, &what));
            }
            // It is hidden there all the same.
            Err(error) => log::debug!("{}: what it lies in: {error}", real.display()),
        }
    }
    Ok(())
}

/// A new folder in `parent` that goes with the mount.
fn temporary(parent: &Path, watcher: Option<&Watcher>) -> Result<Temporary, Failure> {
    remove_left(parent);
    let number = random();
    let path = parent.join(format!("{NAME}{number:016x}"));
    let made = DirBuilder::new().mode(0o700).create(&path).and_then(|()| Temporary::find(&path));
    let made = made.map_err(|error| cannot(&path, &error))?;
    if let Some(watcher) = watcher {
        watcher.temporary(&path, &made).map_err(|error| cannot(&path, &error))?;
    }
    Ok(made)
}

/// Another number each time.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _, RandomState};
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}

/// Removes folders that mounts have left which were killed together with their watchers.
fn remove_left(parent: &Path) {
    let Ok(entries) = parent.read_dir() else { return };
    for entry in entries.flatten() {
        if is_temporary(&entry.file_name())
            && let Err(error) = remove_if_left(&entry.path())
        {
            log::debug!("{}: stays: {error}", entry.path().display());
        }
    }
}

/// True for names that [`temporary`] gives.
fn is_temporary(name: &OsStr) -> bool {
    let number = name.to_str().and_then(|name| name.strip_prefix(NAME));
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    number.is_some_and(|number| number.len() == 16 && number.bytes().all(is_digit))
}

/// Removes the folder at `path`, if a mount has made it to go with it, and that has ended. A name says nothing: people
/// may give their own folders any.
fn remove_if_left(path: &Path) -> io::Result<()> {
    let found = Temporary::find(path)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(CWD, path, flags | OFlags::DIRECTORY, Mode::empty())?;
    if !found.is_own() || !found.is(&folder)? {
        return Ok(());
    }
    // One that is just being made has no mark yet, and one of somebody's own never has.
    let lock =
        match openat(&folder, MARK, flags, Mode::empty()).and_then(|_| openat(&folder, LOCK, flags, Mode::empty())) {
            // Nothing is lost with an empty one, and nobody takes so long to put something into it.
            Err(Errno::NOENT) if is_old(&folder)? => return Ok(rmdir(path)?),
            Err(Errno::NOENT) => return Ok(()),
            lock => lock?,
        };
    // Held until it is gone.
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(()) => found.remove(),
    }
}

/// True if nothing was put into a folder for a long time.
fn is_old(folder: &OwnedFd) -> io::Result<bool> {
    let changed = File::from(folder.try_clone()?).metadata()?.modified()?;
    Ok(changed.elapsed().is_ok_and(|age| age > UNUSED))
}

/// Where what is written goes until it is in the archive (`--write`).
pub(crate) fn changes_of(archive: &Path) -> PathBuf {
    let mut path = archive.as_os_str().to_owned();
    path.push(".changes");
    path.into()
}

/// Fails if `changes`, where that goes, lie elsewhere or are not of this user, of root, or of who owns the archive.
/// Nobody has named this folder: what others have put there must not get into the archive.
pub(crate) fn are_own_changes(archive: &Path, changes: &Path) -> Result<(), Failure> {
    let Ok(found) = changes.symlink_metadata() else { return Ok(()) };
    if found.is_symlink() {
        let what = "is a symbolic link, and what is written goes to no other place unasked: remove it, or name a \
                    folder with --write-overlay DIR, which `tarnfs commit` puts into the archive";
        return Err(Failure::new(Code::CannotOpen, format!("{}: {what}", shown(changes.as_os_str()))));
    }
    of_trusted(found.uid(), archive, changes)
}

/// The same of a folder of which the owner is known.
fn of_trusted(owner: u32, archive: &Path, folder: &Path) -> Result<(), Failure> {
    let own = geteuid();
    // Who owns the archive may put into it what they like. And there are disks on which all has one owner.
    if owner == own.as_raw() || owner == 0 || archive.metadata().is_ok_and(|archive| archive.uid() == owner) {
        return Ok(());
    }
    let (archive, folder) = (shown(archive.as_os_str()), shown(folder.as_os_str()));
    let as_it_is = if own.is_root() {
        format!("; `tarnfs commit {archive} --overlay {folder}` takes it all the same")
    } else {
        String::new()
    };
    let what = format!(
        "{folder}: belongs to user {owner}, and what is in it would go into {archive}: move it away, or name a folder \
         of your own with --write-overlay DIR, which `tarnfs commit` puts into the archive{as_it_is}"
    );
    Err(Failure::new(Code::CannotOpen, what))
}

/// A mount that puts what was written into its archive in the end.
#[derive(Debug)]
pub(crate) struct Commits {
    folder: PathBuf,
    _lock: File,
}

impl Commits {
    /// Begins with what is written to `folder` in the mount at `mountpoint`.
    pub(crate) fn begin(folder: &Path, mountpoint: &Path) -> Result<Self, Failure> {
        let path = folder.join(COMMITS);
        let open = || {
            let options = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = openat(CWD, &path, options, Mode::RUSR | Mode::WUSR)?;
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            Ok(File::from(file))
        };
        let lock = open().map_err(|error: Errno| match error {
            Errno::WOULDBLOCK => {
                let what = "is in use: what was written in another mount still goes into the archive; mount it again \
                            when that is done";
                cannot(folder, &what)
            }
            error => cannot(&path, &io::Error::from(error)),
        })?;
        let noted = lock.set_len(0).and_then(|()| lock.write_all_at(resolved(mountpoint).as_os_str().as_bytes(), 0));
        if let Err(error) = noted {
            // Of one that says nothing, all think that it is theirs.
            log::debug!("{}: {error}", path.display());
            let _ = lock.set_len(0);
        }
        Ok(Self { folder: folder.to_owned(), _lock: lock })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What is there as long as not all of it is in the archive.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(COMMITS)
    }

    /// All of it is in the archive: the folder goes, unless somebody has put something else into it. The lock of the
    /// overlay has to be held: who waits for that would be given the folder otherwise, and lose what is written there.
    pub(crate) fn finish(&self) {
        // Who unmounts looks whether it is there: the folder may stay.
        if let Err(error) = std::fs::remove_file(self.path()) {
            log::warn!("{}: {COMMITS}: {error}", shown(self.folder.as_os_str()));
        }
        let others = |name: &OsStr| !name.as_bytes().starts_with(OWN);
        let removed = self.folder.read_dir().and_then(|entries| {
            let names: Vec<_> = entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<Result<_, _>>()?;
            if names.iter().any(|name| others(name)) {
                return Err(io::Error::other("there is something else in it"));
            }
            // At once, so that who opens it meanwhile makes another one, and nothing of that is removed.
            // Its own name may be as long as a name can be.
            let hidden = self.folder.with_file_name(format!(".tarnfs-{:016x}.removed", random()));
            std::fs::rename(&self.folder, &hidden)?;
            std::fs::remove_dir_all(&hidden)
        });
        if let Err(error) = removed {
            log::warn!("{}: stays: {error}", shown(self.folder.as_os_str()));
        }
    }
}

/// A mount that puts what was written into its archive, as other processes see it.
#[derive(Debug)]
pub(crate) struct Committing {
    folder: PathBuf,
    lock: File,
}

impl Committing {
    /// The one of `archive` that `user` has mounted at `mount_point`, which has no symbolic links, if it is there. One
    /// that is elsewhere has an end of its own, which may be far away.
    pub(crate) fn find(archive: &Path, mount_point: &Path, user: Option<u32>) -> Option<Self> {
        let folder = changes_of(archive);
        // Others may be able to make names there. Nobody waits for what they lock, or for who writes to their pipe.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let committing = Self { lock: openat(CWD, folder.join(COMMITS), flags, Mode::empty()).ok()?.into(), folder };
        let found = committing.lock.metadata().ok()?;
        let is_of_mount = found.uid() == geteuid().as_raw() || Some(found.uid()) == user;
        if !found.is_file() || !is_of_mount {
            return None;
        }
        let mut place = Vec::new();
        (&committing.lock).take(LONGEST_PATH).read_to_end(&mut place).ok()?;
        let is_it = place.is_empty() || place == mount_point.as_os_str().as_bytes();
        (is_it && committing.is_locked()).then_some(committing)
    }

    fn is_locked(&self) -> bool {
        let locked = flock(&self.lock, FlockOperation::NonBlockingLockShared);
        if locked.is_ok() {
            // The next mount takes it.
            let _ = flock(&self.lock, FlockOperation::Unlock);
        }
        locked == Err(Errno::WOULDBLOCK)
    }

    /// Waits until the mount, which has ended, has put what was written into its archive. Returns the folder where that
    /// is if it could not be put there.
    pub(crate) fn wait(self) -> Option<PathBuf> {
        while self.is_locked() {
            thread::sleep(LOOK);
        }
        // The next mount has one of its own.
        let is_it = |found: Metadata| {
            self.lock.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (found.dev(), found.ino()))
        };
        let is_left = std::fs::symlink_metadata(self.folder.join(COMMITS)).is_ok_and(is_it);
        is_left.then_some(self.folder)
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        // Where the sandbox is on, the watcher does that.
        if let Some(Err(error)) = self.temporary.as_ref().map(Temporary::remove)
            && error.kind() != io::ErrorKind::NotFound
        {
            log::debug!("what was written goes with the watcher: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_mount_waits_for_a_commit() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().canonicalize().unwrap();
        let archive = folder.join("a.tar");
        let (changes, at, elsewhere) = (changes_of(&archive), folder.join("at"), folder.join("elsewhere"));
        std::fs::create_dir(&changes).unwrap();
        let find_at = |place: &Path| Committing::find(&archive, place, None);
        assert!(find_at(&at).is_none());
        // What another one has left, of a mount with a longer name.
        std::fs::write(changes.join(COMMITS), "/a/mount/that/was/killed".repeat(20)).unwrap();
        let commits = Commits::begin(&changes, &at).unwrap();
        assert!(find_at(&elsewhere).is_none());
        let find = || find_at(&at).unwrap();
        let kept = find();
        assert!(kept.is_locked());
        drop(commits);
        assert_eq!(kept.wait(), Some(changes.clone()), "nobody has put it into the archive");
        let commits = Commits::begin(&changes, &at).unwrap();
        let put = find();
        commits.finish();
        drop(commits);
        std::fs::create_dir(&changes).unwrap();
        let _next = Commits::begin(&changes, &at).unwrap();
        assert_eq!(put.wait(), None, "that of the next mount is another one");
        // One of an earlier version does not say where it is.
        std::fs::write(changes.join(COMMITS), "").unwrap();
        assert!(find_at(&elsewhere).is_some());
    }

    /// > Nobody waits in `tarnfs -u` for what another user has put beside the archive.
    #[test]
    fn nobody_waits_for_what_others_have_put_beside_the_archive() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().canonicalize().unwrap();
        let (archive, at) = (folder.join("a.tar"), folder.join("at"));
        let (changes, theirs) = (changes_of(&archive), folder.join("theirs"));
        std::fs::create_dir(&changes).unwrap();
        let path = changes.join(COMMITS);
        rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let (send, found) = std::sync::mpsc::channel();
        let find = {
            let (archive, at) = (archive.clone(), at.clone());
            move || Committing::find(&archive, &at, None).is_some()
        };
        // A thread of its own: who waits for a writer does so for ever.
        thread::spawn(move || send.send(find()));
        assert_eq!(found.recv_timeout(Duration::from_secs(10)), Ok(false));
        std::fs::remove_file(&path).unwrap();
        let other = File::create(&theirs).unwrap();
        flock(&other, FlockOperation::LockExclusive).unwrap();
        std::os::unix::fs::symlink(&theirs, &path).unwrap();
        assert!(Committing::find(&archive, &at, None).is_none(), "a link");
        std::fs::rename(&theirs, &path).unwrap();
        assert!(Committing::find(&archive, &at, None).is_some());
        // Only root can give a file away.
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
            assert!(Committing::find(&archive, &at, None).is_none());
            assert!(Committing::find(&archive, &at, Some(12345)).is_some());
        }
    }

    /// > What is written with `--write` goes into no folder beside the archive that another user has put there, nor
    /// > into one that a link leads to.
    #[test]
    fn a_folder_of_another_user_beside_the_archive_is_not_taken() {
        let scratch = tempfile::tempdir().unwrap();
        let archive = scratch.path().join("a.tar");
        std::fs::write(&archive, "").unwrap();
        let changes = changes_of(&archive);
        are_own_changes(&archive, &changes).unwrap();
        std::fs::create_dir(&changes).unwrap();
        are_own_changes(&archive, &changes).unwrap();
        let elsewhere = scratch.path().join("elsewhere");
        std::fs::rename(&changes, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &changes).unwrap();
        let refused = are_own_changes(&archive, &changes).unwrap_err().message;
        assert!(refused.contains("symbolic link") && refused.contains("--write-overlay"), "{refused}");
        if geteuid().is_root() {
            std::fs::remove_file(&changes).unwrap();
            std::fs::create_dir(&changes).unwrap();
            std::os::unix::fs::chown(&changes, Some(12345), None).unwrap();
            let refused = are_own_changes(&archive, &changes).unwrap_err().message;
            assert!(refused.contains("user 12345") && refused.contains("tarnfs commit"), "{refused}");
            // Who owns the archive may put into it what he likes.
            std::os::unix::fs::chown(&archive, Some(12345), None).unwrap();
            are_own_changes(&archive, &changes).unwrap();
        }
    }

    /// > An archive that was changed or replaced since it was mounted with the overlay is only committed into if
    /// > somebody says so.
    #[test]
    fn what_was_opened_and_not_mounted_is_not_noted() {
        let [lower, overlay, beside] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let tree: Arc<dyn Tree> = Arc::new(FolderTree::open(lower.path()).unwrap());
        let (place, sources) = (Place::Folder(overlay.path().join("overlay")), [beside.path().join("a.tar")]);
        let open = || {
            let of = (sources.as_slice(), [].as_slice(), Path::new("/nowhere/at"));
            Written::open(&place, &tree, of, (None, &|| Ok(())), None).unwrap()
        };
        let now = || Some(MountedOver::of(&sources[0]).unwrap());
        let noted = |written: &Written| written.tree.mounted_over().unwrap();
        std::fs::write(&sources[0], "one").unwrap();
        let written = open();
        assert_eq!(noted(&written), None);
        written.mounted(&sources);
        let first = noted(&written);
        assert_eq!(first, now());
        drop(written);
        std::fs::write(&sources[0], "another one").unwrap();
        drop(open());
        let written = open();
        assert_eq!(noted(&written), first);
        written.mounted(&sources);
        assert_eq!(noted(&written), now());
    }
}
