//! A file that gets its name when it is complete.
//!
//! Its first name says whose it is: `.<name>.<random>.tmp` in the same folder. Whoever writes it holds a lock on it, so
//! that what a killed process has left can be told from what a living one is writing, also in another container; the
//! next writer removes it.

use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Gid, Mode, OFlags, fchmod, fchown, flock, fstat, open, statat, unlink,
};
use rustix::process::geteuid;

use crate::location::{self, SUFFIX};
use crate::own::schema::APPLICATION;
use crate::trust::Owner;

/// A file under a temporary name; removed when dropped, unless it was renamed.
#[derive(Debug)]
pub(crate) struct Temporary {
    /// Locked as long as it is open.
    file: File,
    path: PathBuf,
    destination: PathBuf,
    is_renamed: bool,
}

/// Permission bits of an index that nobody may read who may not read the archive. `has_group`: its group is the
/// archive's.
fn readable_as(archive: &Owner, has_group: bool) -> u32 {
    let (group, others) = (archive.mode & 0o040, archive.mode & 0o004);
    match has_group {
        true => 0o600 | group | others,
        // Whoever is in the archive's group is one of the others here; and if those may read, so may any group.
        false if group != 0 && others != 0 => 0o644,
        false => 0o600,
    }
}

/// What new files of this process do not get. Nobody but the owner gets anything where it is not known.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    umask.and_then(|umask| u32::from_str_radix(umask.trim(), 8).ok()).unwrap_or(0o077)
}

/// Gives an empty file, which only its owner can have opened yet, to those who may read the archive.
fn share(file: &File, archive: Option<&Owner>) -> io::Result<()> {
    let mode = match archive {
        None => 0o644,
        Some(archive) => {
            let has_group =
                fstat(file)?.st_gid == archive.group || fchown(file, None, Some(Gid::from_raw(archive.group))).is_ok();
            readable_as(archive, has_group)
        }
    };
    let mode = mode & !umask();
    // A file system that knows no permissions keeps what it has.
    if mode != 0o600
        && let Err(error) = fchmod(file, Mode::from_raw_mode(mode))
    {
        log::debug!("an index cannot be given to others than its owner: {error}");
    }
    Ok(())
}

const TEMPORARY_SUFFIX: &[u8] = b".tmp";
/// Hexadecimal digits of the random part.
const DIGITS: usize = 16;

impl Temporary {
    /// A new file that will be `destination`, for those who may read `archive`, as far as the umask lets them; without
    /// it for everybody. Makes its folder if there is none, but not what that lies in ([`location::missing_above`]).
    ///
    /// `AlreadyExists` if what is there now is no index.
    pub(crate) fn create(destination: &Path, archive: Option<&Owner>) -> io::Result<Self> {
        check_replaceable(destination)?;
        let folder = folder_of(destination);
        if !folder.exists() {
            if let Some(why) = location::why_no_folder(folder) {
                return Err(io::Error::new(io::ErrorKind::NotFound, why));
            }
            // As the XDG base directory specification asks for folders of its kind.
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        remove_left_overs(destination);
        let mut last = None;
        for _ in 0..16 {
            let random = RandomState::new().hash_one(std::process::id());
            let path = folder.join(temporary_name(destination, random)?);
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match open(&path, flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => {
                    let file = File::from(file);
                    // Where there are no locks, nobody takes it for left over, either.
                    let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
                    let this = Self { file, path, destination: destination.to_path_buf(), is_renamed: false };
                    // Between creating and locking it, somebody else may have taken it for left over: then it is gone,
                    // or about to be.
                    if locked != Err(rustix::io::Errno::WOULDBLOCK) && fstat(&this.file)?.st_nlink == 1 {
                        share(&this.file, archive)?;
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
    pub(crate) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// The same file for reading only. Not by its name: that may be another one's by now.
    pub(crate) fn reopen(&self) -> io::Result<File> {
        // NONBLOCK, as it may be a fifo by now; it means nothing for files.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let again = File::from(open(&self.path, flags, Mode::empty())?);
        let (this, other) = (fstat(&self.file)?, fstat(&again)?);
        if (this.st_dev, this.st_ino) == (other.st_dev, other.st_ino) {
            Ok(again)
        } else {
            Err(io::Error::other(format!("{} was replaced while it was written", self.path.display())))
        }
    }

    /// Makes its content durable, then gives it its name, then makes the name durable.
    pub(crate) fn rename(self) -> io::Result<()> {
        self.rename_to(&mut |destination| Some(destination.to_path_buf()))
    }

    /// The same; the name is the one that `choose` makes of the one that was meant, in the same folder. Other processes
    /// that do so wait meanwhile, so `choose` sees what they have made. `AlreadyExists` if it gives none.
    pub(crate) fn rename_to(mut self, choose: &mut dyn FnMut(&Path) -> Option<PathBuf>) -> io::Result<()> {
        self.file.sync_all()?;
        let lock = lock(folder_of(&self.destination));
        let Some(chosen) = choose(&self.destination) else {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "another one was made there meanwhile"));
        };
        // Once more: making it may have taken hours.
        check_replaceable(&chosen)?;
        std::fs::rename(&self.path, &chosen)?;
        self.is_renamed = true;
        drop(lock);
        self.destination = chosen;
        // The file is complete and has its name. A folder that cannot be synced costs at most a new index after a power
        // cut.
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

/// Keeps an index from taking the place of something else: a person may name any file for it, by mistake the archive
/// itself.
fn check_replaceable(destination: &Path) -> io::Result<()> {
    let name = destination.file_name().unwrap_or_default().as_bytes();
    // The end of the names that indexes get: under such a name everything is an index or what is left of one. Names of
    // sidecars may be other programs', too.
    if name.ends_with(SUFFIX.as_bytes()) {
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let is_index = match open(destination, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => true,
        // Nobody can say what is there, if it is.
        Err(error @ rustix::io::Errno::ACCESS) => return Err(error.into()),
        Err(_) => false,
        Ok(file) => {
            let stat = fstat(&file)?;
            let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            is_file && (stat.st_size == 0 || is_database(&file.into()))
        }
    };
    if is_index {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        format!("{} is there and is no index: it is left as it is; name another file", destination.display()),
    ))
}

/// True for an index of this program, and for a sidecar of ratarmount, which does not say whose it is: a database with
/// its tables.
fn is_database(file: &File) -> bool {
    /// The definitions of all tables of a sidecar are at its start.
    const START: u64 = 64 << 10;
    let mut start = Vec::new();
    let read = file.take(START).read_to_end(&mut start);
    let application = start.get(68..).and_then(|rest| rest.first_chunk()).map(|four| u32::from_be_bytes(*four));
    let has = |text: &[u8]| start.windows(text.len()).any(|part| part == text);
    read.is_ok()
        && start.starts_with(b"SQLite format 3\0")
        && match application {
            Some(APPLICATION) => true,
            // One that was not finished has no metadata yet.
            Some(0) => has(b"offsetheader") && has(b"files"),
            _ => false,
        }
}

/// A lock on `folder`, held until it is dropped. `None` where there are no locks, and where somebody holds it for long:
/// anybody who may read the folder can.
fn lock(folder: &Path) -> Option<File> {
    const STEP: Duration = Duration::from_millis(20);
    const STEPS: u32 = 250;
    let folder = File::open(folder).ok()?;
    for _ in 0..STEPS {
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(folder),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => std::thread::sleep(STEP),
            Err(_) => return None,
        }
    }
    None
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
    bytes.extend_from_slice(TEMPORARY_SUFFIX);
    Ok(OsString::from_vec(bytes))
}

fn prefix(name: &[u8]) -> Vec<u8> {
    [b".", name, b"."].concat()
}

/// True for a temporary name of the index `name`.
fn is_temporary(candidate: &[u8], name: &[u8]) -> bool {
    candidate
        .strip_prefix(prefix(name).as_slice())
        .and_then(|rest| rest.strip_suffix(TEMPORARY_SUFFIX))
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use rustix::fs::mknodat;

    use super::*;

    #[test]
    fn nobody_gets_more_than_of_the_archive() {
        for (archive, of_same_group, of_another) in [
            (0o644, 0o644, 0o644),
            (0o640, 0o640, 0o600),
            (0o600, 0o600, 0o600),
            (0o604, 0o604, 0o600),
            (0o777, 0o644, 0o644),
            (0o4750, 0o640, 0o600),
            (0o000, 0o600, 0o600),
        ] {
            let owner = Owner { user: 0, group: 0, mode: archive };
            let modes = (readable_as(&owner, true), readable_as(&owner, false));
            assert_eq!(modes, (of_same_group, of_another), "{archive:o}");
        }
    }

    #[test]
    fn a_new_file_has_the_group_of_the_archive_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("x");
        let made = |archive: Option<&Owner>| {
            let stat = Temporary::create(&place, archive).unwrap().file.metadata().unwrap();
            (stat.gid(), stat.mode() & 0o777)
        };
        let own = made(None).0;
        assert_eq!(made(None).1, 0o644 & !umask());
        assert_eq!(made(Some(&Owner { user: 0, group: own, mode: 0o640 })), (own, 0o640 & !umask()));
        let (group, mode) = made(Some(&Owner { user: 0, group: 54_321, mode: 0o640 }));
        let expected = if geteuid().is_root() { (54_321, 0o640 & !umask()) } else { (own, 0o600) };
        assert_eq!((group, mode), expected);
    }

    #[test]
    fn the_umask_is_the_one_that_programs_started_here_have() {
        let asked = std::process::Command::new("sh").args(["-c", "umask"]).output().unwrap();
        let asked = String::from_utf8(asked.stdout).unwrap();
        assert_eq!(umask(), u32::from_str_radix(asked.trim(), 8).unwrap());
    }

    /// A fifo without a writer is opened at once, and is not the file.
    #[test]
    fn what_took_the_place_of_the_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let temporary = Temporary::create(&folder.path().join("x"), None).unwrap();
        temporary.reopen().unwrap();
        unlink(&temporary.path).unwrap();
        mknodat(CWD, &temporary.path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        temporary.reopen().unwrap_err();
    }

    #[test]
    fn what_comes_while_an_index_is_made_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("x");
        let temporary = Temporary::create(&place, None).unwrap();
        std::fs::write(&place, "precious").unwrap();
        assert_eq!(temporary.rename().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&place).unwrap(), b"precious");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        // Another index may have come.
        let temporary = Temporary::create(&folder.path().join("y"), None).unwrap();
        std::fs::write(folder.path().join("y"), b"").unwrap();
        temporary.rename().unwrap();
    }

    #[test]
    fn only_what_is_an_index_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            check_replaceable(&path).map_err(|error| error.kind())
        };
        let database = |application: u32| [b"SQLite format 3\0", &[0; 52][..], &application.to_be_bytes()].concat();
        let sidecar =
            |application| [&database(application)[..], b"CREATE TABLE files (offsetheader) ... metadata"].concat();
        assert_eq!(place("empty", b""), Ok(()));
        assert_eq!(place("ours", &database(APPLICATION)), Ok(()));
        assert_eq!(place("of ratarmount", &sidecar(0)), Ok(()));
        assert_eq!(place("of whoever", &database(0)), Err(io::ErrorKind::AlreadyExists));
        assert_eq!(place("of another", &sidecar(7)), Err(io::ErrorKind::AlreadyExists));
        assert_eq!(place("cut", b"SQLite format 3\0"), Err(io::ErrorKind::AlreadyExists));
        assert_eq!(place("broken.tarnfs.sqlite", b"anything"), Ok(()));
        assert_eq!(place("a.tar.index.sqlite", &sidecar(0)), Ok(()));
        assert_eq!(place("b.tar.index.sqlite", &database(0)), Err(io::ErrorKind::AlreadyExists));
        assert_eq!(place("c.tar.index.sqlite", b"anything"), Err(io::ErrorKind::AlreadyExists));
        assert_eq!(place("of another program", &database(7)), Err(io::ErrorKind::AlreadyExists));
        assert_eq!(place("a.tar", &[7; 10_240]), Err(io::ErrorKind::AlreadyExists));
        assert!(check_replaceable(&folder.path().join("new")).is_ok());
        assert!(check_replaceable(folder.path()).is_err());
        std::os::unix::fs::symlink(folder.path().join("empty"), folder.path().join("link")).unwrap();
        assert!(check_replaceable(&folder.path().join("link")).is_err());
    }
}
