//! The folder of an overlay: contents of files as plain files, each at its path in the mount as it was when it was made
//! or first written to.
//!
//! Where a path cannot be had (another file has it, it is too long, the name is one of ours), the file lies in
//! [`NUMBERED`], under its number. What says where a file lies may have been made by anybody: everything is found below
//! the folder, and no link is followed on the way (`openat2(2)`).

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{
    AtFlags, CWD, Dir, FallocateFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags, Stat,
    StatVfs, Timestamps, chmodat, fallocate, fchmod, flock, fstat, fstatvfs, fsync, futimens, mkdirat, openat, openat2,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use crate::Time;

/// Names in the folder that begin so are ours.
const OURS: &[u8] = b".tarnfs-overlay";

/// So do those of ratarmount.
const THEIRS: &[u8] = b".ratarmount.overlay.sqlite";

/// Files that do not lie at their path.
const NUMBERED: &str = ".tarnfs-overlay.files";

/// Held by the mount that uses the overlay; says which one that is.
const LOCK: &str = ".tarnfs-overlay.lock";

/// Takes some room, so that something can be removed where the disk is full: that is noted, too.
const RESERVE: &str = ".tarnfs-overlay.reserve";
const RESERVED: u64 = 512 << 10;

/// Less than that would not do for removing a file.
const LEAST_RESERVED: u64 = 64 << 10;

/// So often a folder is opened that is removed meanwhile.
const MOST_TRIES: u32 = 20;

/// The end of names in [`NUMBERED`] of files that are being copied.
const PART: &str = ".part";

/// Longer paths are not tried: the kernel takes 4096 bytes.
pub(super) const LONGEST_PATH: usize = 3500;

/// Nobody else needs to look into it.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);
const PRIVATE_FOLDER: Mode = Mode::RWXU;

/// The folder.
#[derive(Debug)]
pub(super) struct Files {
    root: OwnedFd,
    numbered: OwnedFd,
    path: PathBuf,
    lock: File,
    /// `None` of one that is only looked at.
    reserve: Option<File>,
    /// Places that nothing gets: see [`Files::avoid`].
    avoided: Mutex<HashSet<Vec<u8>>>,
    /// Folders in it whose names are not known to be on the disk.
    unsynced: Mutex<HashSet<Vec<u8>>>,
    /// Held while they are brought there: who finds none left must not go before those of others are.
    syncing: Mutex<()>,
}

fn beneath() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS
}

fn open_beneath(root: BorrowedFd<'_>, place: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let place = if place.is_empty() { b"." } else { place };
    loop {
        match openat2(root, place, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode_for(flags), beneath()) {
            // Somebody has renamed something meanwhile.
            Err(Errno::AGAIN) => {}
            result => return result,
        }
    }
}

/// The mode of what is made, which must be none where nothing is.
fn mode_for(flags: OFlags) -> Mode {
    if flags.contains(OFlags::CREATE) { PRIVATE } else { Mode::empty() }
}

/// The folder that a place is in, and its name there.
pub(super) fn split(place: &[u8]) -> (&[u8], &[u8]) {
    match place.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&place[..slash], &place[slash + 1..]),
        None => (b"", place),
    }
}

/// The place of `name` in the folder at `folder`.
pub(super) fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, name].join(&b'/') }
}

/// True if a file may lie there.
fn may_have(place: &[u8]) -> bool {
    let is_name = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && !name.contains(&0);
    place.len() <= LONGEST_PATH && place.split(|&byte| byte == b'/').all(is_name) && !is_ours(place)
}

/// Fails for what no content lies at: somebody else may have written what says so.
fn is_place(place: &[u8]) -> Result<(), Errno> {
    let number = place.strip_prefix(NUMBERED.as_bytes()).and_then(|rest| rest.strip_prefix(b"/"));
    let is_numbered = number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit));
    if is_numbered || may_have(place) { Ok(()) } else { Err(Errno::BADMSG) }
}

impl Files {
    /// Opens the folder at `path`, which is made if it is not there, for one mount alone. `what` says who that is.
    pub(super) fn open(path: &Path, what: &str) -> io::Result<Self> {
        let mut tries = 0;
        loop {
            tries += 1;
            // Who has had it may have removed it while it was waited for.
            match Self::open_once(path, what) {
                Ok(files) if files.is_in_place() => return Ok(files),
                Ok(_) if tries >= MOST_TRIES => {
                    let what = "is removed again and again by somebody else";
                    return Err(io::Error::new(io::ErrorKind::NotFound, what));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries < MOST_TRIES => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// True if its path leads to it, and to what it has locked.
    fn is_in_place(&self) -> bool {
        let facts = |of: &Stat| (of.st_dev, of.st_ino);
        let lock = statat(&self.root, LOCK, AtFlags::SYMLINK_NOFOLLOW);
        let folder = statat(CWD, &self.path, AtFlags::empty());
        let same = |path: Result<Stat, Errno>, opened: Result<Stat, Errno>| matches!((path, opened), (Ok(path), Ok(opened)) if facts(&path) == facts(&opened));
        same(folder, fstat(&self.root)) && same(lock, fstat(&self.lock))
    }

    fn open_once(path: &Path, what: &str) -> io::Result<Self> {
        let is_new = !path.exists();
        if is_new {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        }
        let path = path.canonicalize()?;
        if let (true, Some(parent)) = (is_new, path.parent()) {
            File::open(parent)?.sync_all()?;
        }
        let root = open_root(&path)?;
        let lock = lock(root.as_fd(), what)?;
        match mkdirat(&root, NUMBERED, PRIVATE_FOLDER) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let numbered = open_numbered(root.as_fd())?;
        // What is made here first, the database among them, is noted by nobody.
        let unsynced = Mutex::new(HashSet::from([Vec::new()]));
        let reserve = open_beneath(root.as_fd(), RESERVE.as_bytes(), OFlags::RDWR | OFlags::CREATE)?;
        let reserve = Some(File::from(reserve));
        let (avoided, syncing) = (Mutex::default(), Mutex::default());
        let files = Self { root, numbered, path, lock, reserve, avoided, unsynced, syncing };
        files.take_reserve();
        Ok(files)
    }

    /// Opens the folder at `path`, in which there is an overlay, to look at it. Nothing in it is changed, and nobody
    /// uses it meanwhile.
    pub(super) fn look(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let root = open_root(&path)?;
        let lock = match open_beneath(root.as_fd(), LOCK.as_bytes(), OFlags::RDONLY) {
            // Nobody has used it but by copying it.
            Err(Errno::NOENT) => root.try_clone()?,
            lock => lock?,
        };
        let lock = File::from(lock);
        hold(&lock, FlockOperation::NonBlockingLockShared)?;
        let numbered = match open_numbered(root.as_fd()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => root.try_clone()?,
            numbered => numbered?,
        };
        let (avoided, unsynced, syncing) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ok(Self { root, numbered, path, lock, reserve: None, avoided, unsynced, syncing })
    }

    /// Others may use it from now on.
    pub(super) fn release(&self) -> io::Result<()> {
        Ok(flock(&self.lock, FlockOperation::Unlock)?)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn space(&self) -> io::Result<StatVfs> {
        Ok(fstatvfs(&self.root)?)
    }

    /// Takes the room that was given back, if there is some again.
    pub(super) fn take_reserve(&self) {
        let Some(reserve) = &self.reserve else { return };
        if let Err(error) = take_room(reserve) {
            log::debug!("{}: no room is kept for removing files on a full disk: {error}", self.path.display());
        }
    }

    /// Gives it back. False if there is none.
    pub(super) fn give_reserve(&self) -> bool {
        let Some(reserve) = &self.reserve else { return false };
        reserve.metadata().is_ok_and(|found| found.len() > 0) && reserve.set_len(0).is_ok()
    }

    /// The root, for a walk.
    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Makes `name`, unless it is there, so that nobody else can read it.
    pub(super) fn prepare(&self, name: &str) -> io::Result<PathBuf> {
        drop(open_beneath(self.root.as_fd(), name.as_bytes(), OFlags::RDWR | OFlags::CREATE)?);
        Ok(self.path.join(name))
    }

    /// Fails if a file of the database has another name: by that it could be read, and its locks would go.
    pub(super) fn check_names(&self, database: &str) -> io::Result<()> {
        for name in ["", "-wal", "-shm"].map(|end| format!("{database}{end}")) {
            match statat(&self.root, &*name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if stat.st_nlink == 1 && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {}
                Ok(_) => {
                    let what = format!("{name} has other names, or is no file: copy the folder, and use the copy");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Opens the content at a place, to read and write it.
    pub(super) fn open_content(&self, place: &[u8]) -> io::Result<File> {
        is_place(place)?;
        let file = File::from(open_beneath(self.root.as_fd(), place, OFlags::RDWR)?);
        if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "is no file any more"));
        }
        Ok(file)
    }

    /// What the system says of the content at a place.
    pub(super) fn stat(&self, place: &[u8]) -> Result<Stat, Errno> {
        is_place(place)?;
        fstat(open_beneath(self.root.as_fd(), place, OFlags::PATH)?)
    }

    /// Lets us read and write what lies at a place: ratarmount has given it the mode that is shown.
    pub(super) fn make_usable(&self, place: &[u8]) -> io::Result<()> {
        let (folder, name) = split(place);
        let folder = open_beneath(self.root.as_fd(), folder, OFlags::PATH | OFlags::DIRECTORY)?;
        let stat = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let mode = Mode::from_raw_mode(stat.st_mode);
        let needed = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => PRIVATE,
            FileType::Directory => PRIVATE_FOLDER,
            _ => return Ok(()),
        };
        if mode.contains(needed) { Ok(()) } else { Ok(chmodat(&folder, name, mode | needed, AtFlags::empty())?) }
    }

    /// Gives the folder at a place a mode.
    pub(super) fn set_mode(&self, place: &[u8], mode: Mode) -> io::Result<()> {
        let folder = open_beneath(self.root.as_fd(), place, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(fchmod(folder, mode)?)
    }

    /// Nothing is put at a place from now on, though nothing may lie there: what did is not forgotten yet.
    pub(super) fn avoid(&self, place: Vec<u8>) {
        self.avoided.lock().unwrap_or_else(PoisonError::into_inner).insert(place);
    }

    fn is_free(&self, place: &[u8]) -> bool {
        may_have(place) && !self.avoided.lock().unwrap_or_else(PoisonError::into_inner).contains(place)
    }

    fn numbered_place(id: u64) -> Vec<u8> {
        format!("{NUMBERED}/{id}").into_bytes()
    }

    /// Makes an empty file for the node `id`, at `place` if that can be had, and says where it lies.
    pub(super) fn make(&self, place: &[u8], id: u64) -> io::Result<(Vec<u8>, File)> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        if self.is_free(place) {
            let made = match open_beneath(self.root.as_fd(), place, flags) {
                Err(Errno::NOENT) if self.make_folders(split(place).0) => open_beneath(self.root.as_fd(), place, flags),
                made => made,
            };
            if let Ok(made) = made {
                self.note(place);
                return Ok((place.to_vec(), File::from(made)));
            }
        }
        let place = Self::numbered_place(id);
        let made = match open_beneath(self.root.as_fd(), &place, flags) {
            Err(Errno::EXIST) => {
                // Of a transaction that did not come to its end.
                unlinkat(&self.root, &*place, AtFlags::empty())?;
                open_beneath(self.root.as_fd(), &place, flags)?
            }
            made => made?,
        };
        self.note(&place);
        Ok((place, File::from(made)))
    }

    /// Makes the folders that lead to a place. False if that cannot be.
    fn make_folders(&self, place: &[u8]) -> bool {
        let mut at = Vec::new();
        for name in place.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            let Ok(folder) = open_beneath(self.root.as_fd(), &at, OFlags::PATH | OFlags::DIRECTORY) else {
                return false;
            };
            match mkdirat(&folder, name, PRIVATE_FOLDER) {
                Ok(()) => self.note(&join(&at, name)),
                Err(Errno::EXIST) => {}
                Err(_) => return false,
            }
            at = join(&at, name);
        }
        true
    }

    /// A new file that has no place yet, and its name.
    pub(super) fn part(&self) -> io::Result<(String, File)> {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let name = format!("{}{PART}", NEXT.fetch_add(1, Ordering::Relaxed));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
        Ok((name.clone(), File::from(open_beneath(self.numbered.as_fd(), name.as_bytes(), flags)?)))
    }

    /// Gives a [`Files::part`] its place.
    pub(super) fn settle(&self, part: &str, place: &[u8], id: u64) -> io::Result<Vec<u8>> {
        if self.is_free(place) {
            let (folder, name) = split(place);
            let move_there = || {
                let folder = open_beneath(self.root.as_fd(), folder, OFlags::PATH | OFlags::DIRECTORY)?;
                renameat_with(&self.numbered, part, folder, name, RenameFlags::NOREPLACE)
            };
            let moved = match move_there() {
                Err(Errno::NOENT) if self.make_folders(folder) => move_there(),
                moved => moved,
            };
            if moved.is_ok() {
                self.note(place);
                return Ok(place.to_vec());
            }
        }
        let place = Self::numbered_place(id);
        renameat_with(&self.numbered, part, &self.root, &*place, RenameFlags::NOREPLACE)?;
        self.note(&place);
        Ok(place)
    }

    /// A part is not needed.
    pub(super) fn drop_part(&self, part: &str) {
        let _ = unlinkat(&self.numbered, part, AtFlags::empty());
    }

    /// Removes the content at a place. That it is gone already is no error.
    pub(super) fn remove(&self, place: &[u8]) -> io::Result<()> {
        is_place(place)?;
        let (folder, name) = split(place);
        let folder = match open_beneath(self.root.as_fd(), folder, OFlags::PATH | OFlags::DIRECTORY) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            folder => folder?,
        };
        match unlinkat(&folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The same for a content that nothing names.
    pub(super) fn remove_unused(&self, place: &[u8]) {
        if let Err(error) = self.remove(place) {
            let place = self.path.join(OsStr::from_bytes(place));
            log::warn!("{}: is not used, and stays: {error}", place.display());
        }
    }

    /// Removes a folder in which contents were, if there are none any more.
    pub(super) fn remove_folder(&self, place: &[u8]) {
        let (folder, name) = split(place);
        if name.is_empty() || !may_have(place) {
            return;
        }
        if let Ok(folder) = open_beneath(self.root.as_fd(), folder, OFlags::PATH | OFlags::DIRECTORY) {
            let _ = unlinkat(&folder, name, AtFlags::REMOVEDIR);
        }
    }

    /// Removes all folders in which there is nothing, or only such folders: a file that was renamed stays in the folder
    /// that it was made in, so that one is left when it is removed.
    pub(super) fn remove_empty_folders(&self) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // What somebody has mounted there is his.
        let resolve = beneath() | ResolveFlags::NO_XDEV;
        // A folder comes before those in it.
        let (mut found, mut looked_at) = (vec![Vec::new()], 0);
        while let Some(place) = found.get(looked_at).cloned() {
            looked_at += 1;
            let at = if place.is_empty() { b".".as_slice() } else { &place };
            let opened = openat2(&self.root, at, flags, Mode::empty(), resolve);
            // One that cannot be read may be empty all the same.
            let Ok(entries) = opened.and_then(Dir::new) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name().to_bytes();
                let may_be_one = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
                let inner = join(&place, name);
                if may_be_one && may_have(&inner) {
                    found.push(inner);
                }
            }
        }
        for place in found.iter().rev() {
            self.remove_folder(place);
        }
    }

    /// Removes what was being copied when a mount was killed, and files under numbers that `is_known` does not know.
    pub(super) fn sweep(&self, is_known: &dyn Fn(&[u8]) -> io::Result<bool>) -> io::Result<()> {
        for entry in Dir::read_from(&self.numbered)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if name.ends_with(PART.as_bytes()) || !is_known(&join(NUMBERED.as_bytes(), name))? {
                unlinkat(&self.numbered, name, AtFlags::empty())?;
            }
        }
        Ok(())
    }

    fn note(&self, place: &[u8]) {
        let mut unsynced = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = split(place).0;
        if !unsynced.contains(folder) {
            unsynced.insert(folder.to_vec());
        }
    }

    /// Waits until the names of all files made so far survive a loss of power.
    pub(super) fn sync_names(&self) -> io::Result<()> {
        self.sync_each(&|place| self.sync_folder(place))
    }

    /// Waits until the names in the folder at a place survive a loss of power.
    pub(super) fn sync_folder(&self, place: &[u8]) -> io::Result<()> {
        match open_beneath(self.root.as_fd(), place, OFlags::RDONLY | OFlags::DIRECTORY) {
            // It is gone, and so are the files in it.
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            folder => Ok(fsync(folder?)?),
        }
    }

    fn sync_each(&self, sync: &dyn Fn(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let _turn = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let unsynced = std::mem::take(&mut *self.unsynced.lock().unwrap_or_else(PoisonError::into_inner));
        let mut left = unsynced.into_iter();
        while let Some(place) = left.next() {
            if let Err(error) = sync(&place) {
                let mut unsynced = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
                unsynced.insert(place);
                unsynced.extend(left);
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Times of access, content and inode.
pub(super) fn times(stat: &Stat) -> [Time; 3] {
    [
        (stat.st_atime, u32::try_from(stat.st_atime_nsec)),
        (stat.st_mtime, u32::try_from(stat.st_mtime_nsec)),
        (stat.st_ctime, u32::try_from(stat.st_ctime_nsec)),
    ]
    .map(|(seconds, part)| Time { seconds, nanoseconds: part.unwrap_or(0).min(999_999_999) })
}

/// Sets the times of a content.
pub(super) fn set_times(file: BorrowedFd<'_>, times: &Timestamps) -> io::Result<()> {
    Ok(futimens(file, times)?)
}

/// Where others may write they could make us write elsewhere.
fn not_of_others(stat: &Stat) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    if stat.st_uid != own && own != 0 {
        let what = "belongs to another user: name a folder of your own for what is written";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    if stat.st_mode & 0o002 != 0 {
        let what = "everybody may write to it: name a folder of your own for what is written";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(())
}

/// Opens the folder of an overlay.
fn open_root(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, path, flags, Mode::empty())?;
    not_of_others(&fstat(&root)?)?;
    Ok(root)
}

fn open_numbered(root: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    open_beneath(root, NUMBERED.as_bytes(), OFlags::RDONLY | OFlags::DIRECTORY).map_err(|error| match error {
        Errno::NOSYS => io::Error::new(io::ErrorKind::Unsupported, "an overlay needs Linux 5.6 or later"),
        error => error.into(),
    })
}

/// Locks the folder by its lock, which is open.
fn hold(lock: &File, how: FlockOperation) -> io::Result<()> {
    match flock(lock, how) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => {
            let mut who = Vec::new();
            let _ = lock.take(4096).read_to_end(&mut who);
            let who = tarnfs_format::name::escape(who.trim_ascii()).to_string();
            let what = format!("is in use by {who}; an overlay is for one mount at a time");
            Err(io::Error::new(io::ErrorKind::ResourceBusy, what))
        }
        Err(error) => Err(error.into()),
    }
}

/// Makes a file as long as [`RESERVED`], or as there is room for. What it has it keeps.
fn take_room(reserve: &File) -> io::Result<()> {
    let had = reserve.metadata()?.len();
    let mut wanted = RESERVED;
    while had < wanted {
        match fallocate(reserve, FallocateFlags::empty(), 0, wanted) {
            Ok(()) => break,
            Err(error) => {
                // Some file systems leave what they had room for.
                let _ = reserve.set_len(had);
                wanted /= 2;
                if wanted < LEAST_RESERVED {
                    return Err(error.into());
                }
            }
        }
    }
    Ok(())
}

/// Locks the folder for `what`.
fn lock(root: BorrowedFd<'_>, what: &str) -> io::Result<File> {
    let mut lock = File::from(open_beneath(root, LOCK.as_bytes(), OFlags::RDWR | OFlags::CREATE)?);
    hold(&lock, FlockOperation::NonBlockingLockExclusive)?;
    lock.set_len(0)?;
    lock.rewind()?;
    match lock.write_all(what.as_bytes()) {
        // It is there for who is refused, and says nothing then.
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOSPC | Errno::DQUOT)) => {
            log::debug!("there is no room for noting who uses the overlay: {error}");
        }
        written => written?,
    }
    Ok(lock)
}

/// What the system says of the content at a place in the folder `root`, which nobody has opened: it is a plain file.
pub(super) fn plain_file(root: BorrowedFd<'_>, place: &[u8]) -> io::Result<Stat> {
    is_place(place).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "no content can lie there"))?;
    is_plain(&open_beneath(root, place, OFlags::PATH)?)
}

/// Opens it, to read it. Nothing is waited for: a pipe may lie there by now.
pub(super) fn open_to_read(root: BorrowedFd<'_>, place: &[u8]) -> io::Result<File> {
    plain_file(root, place)?;
    let file = open_beneath(root, place, OFlags::RDONLY | OFlags::NONBLOCK)?;
    is_plain(&file)?;
    Ok(File::from(file))
}

fn is_plain(file: &OwnedFd) -> io::Result<Stat> {
    let stat = fstat(file)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
        return Ok(stat);
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "is no file"))
}

/// True for names in the root of the folder that are not of the mount.
pub(super) fn is_ours(name: &[u8]) -> bool {
    name.starts_with(OURS) || name.starts_with(THEIRS)
}

/// Whether there is something of that name in the folder.
pub(super) fn has(root: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
    match statat(root, OsStr::from_bytes(name.as_bytes()), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// > `fsync` of any file brings the names of all to the disk: also those that another `fsync` has taken on.
    #[test]
    fn who_finds_no_name_left_waits_for_those_that_are_on_their_way() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::open(folder.path(), "a test").unwrap();
        let is_on_disk = AtomicBool::new(false);
        thread::scope(|scope| {
            files
                .sync_each(&|_| {
                    // It has begun, and takes its time.
                    let second = scope.spawn(|| {
                        files.sync_names().unwrap();
                        assert!(is_on_disk.load(Ordering::SeqCst));
                    });
                    thread::sleep(Duration::from_millis(200));
                    is_on_disk.store(true, Ordering::SeqCst);
                    drop(second);
                    Ok(())
                })
                .unwrap();
        });
    }

    /// > Names that could not be brought to the disk are tried again.
    #[test]
    fn names_that_fail_are_not_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::open(folder.path(), "a test").unwrap();
        files.make(b"d/file", 1).unwrap();
        files.sync_each(&|_| Err(Errno::IO.into())).unwrap_err();
        let synced = Mutex::new(Vec::new());
        let note = |place: &[u8]| {
            synced.lock().unwrap().push(place.to_vec());
            Ok(())
        };
        files.sync_each(&note).unwrap();
        files.sync_each(&note).unwrap();
        let mut synced = synced.into_inner().unwrap();
        synced.sort();
        assert_eq!(synced, [b"".to_vec(), b"d".to_vec()]);
    }
}
