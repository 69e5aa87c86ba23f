//! The folder that is extracted to. All is done relative to descriptors of folders below it, and no symbolic link is
//! ever followed: neither one of the archive, nor one that somebody puts there meanwhile.
//!
//! What is made gets its name when it is whole. A file has no name before (`O_TMPFILE`). What cannot be without one
//! (links, devices, files on file systems without `O_TMPFILE`) is made in a hidden folder, and renamed. That folder is
//! locked as long as it is used: one that is not was left behind by somebody who was killed, and is removed.

use std::ffi::OsStr;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Gid, Mode, OFlags, RenameFlags, Stat, StatxFlags, flock, fstat, linkat,
    mkdirat, open, openat, renameat, renameat_with, statat, statx, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

use super::folding::Listed;
use crate::commands::beneath::{Beneath, FOLDER};

/// What the hidden folder is called, with numbers behind it.
const STAGE: &str = ".tarnfs-extract-";

/// The folder that is extracted to.
#[derive(Debug)]
pub(super) struct Destination {
    root: Beneath,
    /// There was nothing in it.
    is_fresh: bool,
    /// It was not there.
    is_made: bool,
    hidden: Arc<Hidden>,
    /// Files can be made without a name.
    has_nameless: AtomicBool,
    /// A file without a name gets one by its descriptor alone, not only by way of `/proc`.
    links_by_descriptor: AtomicBool,
    /// Of names in the hidden folder.
    following: AtomicU64,
    pub(super) listed: Listed,
}

/// The hidden folder, as long as there is one.
#[derive(Debug, Default)]
struct Hidden(Mutex<HiddenState>);

#[derive(Debug, Default)]
struct HiddenState {
    stage: Option<Arc<Stage>>,
    /// The process ends: none is made any more.
    has_ended: bool,
}

impl Hidden {
    fn lock(&self) -> std::sync::MutexGuard<'_, HiddenState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, root: &OwnedFd) -> io::Result<Arc<Stage>> {
        let mut state = self.lock();
        if let Some(stage) = state.stage.as_ref().filter(|stage| stage.stays().is_some()) {
            return Ok(Arc::clone(stage));
        }
        if state.has_ended {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let made = Arc::new(Stage::new(root)?);
        state.stage = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Comes back when it is gone, whoever removes it: it may hold very many files.
    fn remove(&self) {
        // It stays known meanwhile. Others may still hold it.
        let Some(stage) = self.lock().stage.clone() else { return };
        stage.remove();
        self.lock().stage.take_if(|known| Arc::ptr_eq(known, &stage));
    }

    fn end(&self) {
        self.lock().has_ended = true;
        self.remove();
    }
}

/// What became of a folder that was to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MadeFolder {
    Made,
    /// There is one already.
    Existed,
}

impl Destination {
    /// Opens `folder`, which is made if it is not there.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let opened = || open(folder, flags, Mode::empty());
        let mut root = opened();
        let is_made = matches!(root, Err(Errno::NOENT));
        if is_made {
            std::fs::create_dir(folder)?;
            root = opened();
        }
        let root = root?;
        let is_fresh = is_empty(&root)?;
        // By way of /proc files get names where the kernel does not give them by the descriptor alone.
        let has_nameless = geteuid().is_root() || Path::new("/proc/self/fd").exists();
        let opened = Self {
            root: Beneath::new(root),
            is_fresh,
            is_made,
            hidden: Arc::default(),
            has_nameless: AtomicBool::new(has_nameless),
            links_by_descriptor: AtomicBool::new(true),
            following: AtomicU64::new(0),
            listed: Listed::default(),
        };
        // Before anything is extracted, which may have such a name itself.
        if !is_fresh {
            opened.remove_what_was_left();
        }
        Ok(opened)
    }

    /// True if nothing was there at the start.
    pub(super) fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    /// True if this call has made it.
    pub(super) fn is_made(&self) -> bool {
        self.is_made
    }

    /// The folder itself.
    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// The folder at the path of these names.
    pub(super) fn folder<N: AsRef<[u8]>>(&self, names: &[N]) -> io::Result<OwnedFd> {
        self.root.folder(names)
    }

    /// The folder `name` in `folder`, to look into it and to change what it is.
    pub(super) fn inner(&self, folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
        self.root.below(folder, name, FOLDER)
    }

    /// The folder at the path of these names, open for its attributes.
    pub(super) fn folder_to_finish<N: AsRef<[u8]>>(&self, names: &[N]) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(self.root.folder_as(names, flags)?.into())
    }

    /// A file in `folder` that has no name there yet. `is_apart`: nothing can come there from the hidden folder.
    /// `nameless` is its mode if it has no name anywhere, and `mode` if it has one.
    pub(super) fn new_file(
        &self,
        folder: BorrowedFd<'_>,
        nameless: u32,
        mode: u32,
        is_apart: bool,
    ) -> io::Result<NewFile> {
        if self.has_nameless.load(Ordering::Relaxed) {
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            match openat(folder, ".", flags, Mode::from_raw_mode(nameless)) {
                Ok(file) => return Ok(NewFile { file: file.into(), made: None }),
                // Of a file system that has no such files; of an old kernel.
                Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let made = if is_apart { self.name_beside(folder)? } else { self.new_name(folder)? };
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(made.folder(), made.name(), flags, Mode::from_raw_mode(mode))?;
        Ok(NewFile { file: file.into(), made: Some(made) })
    }

    /// A name for what is made before it gets its own in `folder`: in the hidden folder, or, if that is in another
    /// mount or cannot be, in one in `folder`.
    pub(super) fn new_name(&self, folder: BorrowedFd<'_>) -> io::Result<NewName> {
        match self.stage() {
            Ok(stage) if stage.is_beside(folder)? => Ok(self.name_in(stage)),
            Ok(_) => self.name_beside(folder),
            Err(error) if cannot_be_here(&error) || has_no_room(&error) => self.name_beside(folder),
            Err(error) => Err(error),
        }
    }

    /// One in a hidden folder in `folder`: not in `folder` itself, where others may write, and put something else in
    /// its place.
    pub(super) fn name_beside(&self, folder: BorrowedFd<'_>) -> io::Result<NewName> {
        Ok(self.name_in(Arc::new(Stage::new(&openat(folder, ".", FOLDER, Mode::empty())?)?)))
    }

    fn name_in(&self, stage: Arc<Stage>) -> NewName {
        let name = format!("new-{}", self.following.fetch_add(1, Ordering::Relaxed));
        NewName { stage, name, is_kept: false }
    }

    /// True if other file systems lie somewhere below, or nobody knows.
    pub(super) fn has_mounts(&self) -> bool {
        let Ok(own) = std::fs::read_link(format!("/proc/self/fd/{}", self.root().as_raw_fd())) else { return true };
        let Ok(mounts) = std::fs::read("/proc/self/mountinfo") else { return true };
        has_mounts_below(&mounts, own.as_os_str().as_bytes())
    }

    /// The hidden folder, which is made when it is first needed.
    pub(super) fn stage(&self) -> io::Result<Arc<Stage>> {
        self.hidden.get(self.root.fd())
    }

    /// Removes the hidden folder, if nobody uses it any more.
    pub(super) fn remove_stage(&self) {
        self.hidden.remove();
    }

    /// What is to be done before a process ends in the middle of its work: it removes the hidden folder, and `folder`,
    /// which is this one, if it was made and nothing is in it.
    pub(super) fn remover(&self, folder: &Path) -> impl Fn() + Send + Sync + use<> {
        let (hidden, made) = (Arc::clone(&self.hidden), self.is_made.then(|| folder.to_owned()));
        move || {
            hidden.end();
            if let Some(folder) = &made {
                let _ = std::fs::remove_dir(folder);
            }
        }
    }

    /// Removes hidden folders of calls that were killed. What cannot be removed harms nobody.
    fn remove_what_was_left(&self) {
        let Ok(entries) = Dir::read_from(self.root.fd()) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name().to_bytes();
            let Some(numbers) = name.strip_prefix(STAGE.as_bytes()) else { continue };
            if numbers.len() != 16 || !numbers.iter().all(u8::is_ascii_hexdigit) {
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(folder) = openat(self.root.fd(), name, flags, Mode::empty()) else { continue };
            if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_err() || !is_own(&folder) {
                continue;
            }
            empty(&folder);
            // It stays if there is something else in it.
            if unlinkat(self.root.fd(), name, AtFlags::REMOVEDIR).is_ok() {
                log::info!("{}: left by a call that was killed: removed", String::from_utf8_lossy(name));
            }
        }
    }

    /// Gives `new` its name in `folder`. What is there already is `AlreadyExists`, or is replaced by it at once.
    pub(super) fn publish_file(
        &self,
        new: &mut NewFile,
        folder: BorrowedFd<'_>,
        name: &[u8],
        replaces: bool,
    ) -> io::Result<()> {
        match &mut new.made {
            Some(made) => made.publish(folder, name, replaces),
            None => self.link(new.file.as_fd(), folder, name, replaces),
        }
    }

    /// Makes `name` in `folder` a name of `file`.
    pub(super) fn link(
        &self,
        file: BorrowedFd<'_>,
        folder: BorrowedFd<'_>,
        name: &[u8],
        replaces: bool,
    ) -> io::Result<()> {
        if !replaces {
            return self.link_to(file, folder, name);
        }
        let mut made = self.new_name(folder)?;
        match self.link_to(file, made.folder(), made.name().as_bytes()) {
            Err(error) if is_apart(&error) => {
                made = self.name_beside(folder)?;
                self.link_to(file, made.folder(), made.name().as_bytes())?;
            }
            linked => linked?,
        }
        made.publish(folder, name, true)
    }

    pub(super) fn link_to(&self, file: BorrowedFd<'_>, folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
        if self.links_by_descriptor.load(Ordering::Relaxed) {
            match linkat(file, "", folder, name, AtFlags::EMPTY_PATH) {
                // Not permitted to this user; of an old kernel.
                Err(Errno::NOENT | Errno::PERM | Errno::INVAL) => {}
                linked => return Ok(linked?),
            }
        }
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        linkat(rustix::fs::CWD, path, folder, name, AtFlags::SYMLINK_FOLLOW)?;
        self.links_by_descriptor.store(false, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        self.remove_stage();
    }
}

/// True if something cannot be made in one folder, and perhaps in another one.
pub(super) fn cannot_be_here(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::ACCESS | Errno::PERM | Errno::ROFS))
}

/// True if others have room for it, perhaps.
pub(super) fn has_no_room(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT))
}

/// True if a name cannot go from one folder to another, although they are in one mount: to one with another key or
/// another quota.
pub(super) fn is_apart(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::XDEV)
}

/// True if `mounts`, which is as `/proc/self/mountinfo`, has some below `folder`.
fn has_mounts_below(mounts: &[u8], folder: &[u8]) -> bool {
    /// Which of the fields is the path.
    const PATH: usize = 4;
    let mut below = Vec::new();
    for &byte in folder.strip_suffix(b"/").unwrap_or(folder) {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => below.extend(format!("\\{byte:03o}").into_bytes()),
            _ => below.push(byte),
        }
    }
    below.push(b'/');
    let mut paths = mounts.split(|&byte| byte == b'\n').filter_map(|line| line.split(|&byte| byte == b' ').nth(PATH));
    paths.any(|path| path.len() > below.len() && path.starts_with(&below))
}

/// Makes the folder `name` in `folder`. What is there and is no folder is an error: `ENOTDIR`.
pub(super) fn make_folder(folder: BorrowedFd<'_>, name: &[u8], mode: u32) -> io::Result<MadeFolder> {
    match mkdirat(folder, name, Mode::from_raw_mode(mode)) {
        Ok(()) => Ok(MadeFolder::Made),
        Err(Errno::EXIST) => match file_type(folder, name)? {
            Some(FileType::Directory) => Ok(MadeFolder::Existed),
            _ => Err(Errno::NOTDIR.into()),
        },
        Err(error) => Err(error.into()),
    }
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// What `name` in `folder` is; `None` if there is nothing.
pub(super) fn stat(folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Stat>> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn file_type(folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<FileType>> {
    Ok(stat(folder, name)?.map(|stat| FileType::from_raw_mode(stat.st_mode)))
}

/// A file that has no name yet, or only one in a hidden folder. It is gone when it is dropped.
#[derive(Debug)]
pub(super) struct NewFile {
    pub(super) file: File,
    made: Option<NewName>,
}

impl NewFile {
    /// Its descriptor, when it has its name.
    pub(super) fn into_descriptor(self) -> OwnedFd {
        self.file.into()
    }

    /// The hidden folder that it has a name in, if it has one.
    pub(super) fn hidden_in(&self) -> Option<&Stage> {
        self.made.as_ref().map(|made| &*made.stage)
    }

    /// A file that lies in the hidden folder.
    pub(super) fn staged(stage: &Arc<Stage>, name: String) -> io::Result<Option<Self>> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&stage.folder, &name, flags, Mode::empty()) {
            Ok(file) => {
                let made = NewName { stage: Arc::clone(stage), name, is_kept: false };
                Ok(Some(Self { file: file.into(), made: Some(made) }))
            }
            // A folder stands for what cannot be told from something else.
            Err(Errno::NOENT | Errno::ISDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// A name for something that is made before it gets its own. What has it when this is dropped is removed.
#[derive(Debug)]
pub(super) struct NewName {
    stage: Arc<Stage>,
    name: String,
    /// It is not there under this name any more.
    is_kept: bool,
}

impl NewName {
    pub(super) fn folder(&self) -> BorrowedFd<'_> {
        self.stage.folder.as_fd()
    }

    pub(super) fn stage(&self) -> &Stage {
        &self.stage
    }

    pub(super) fn name(&self) -> &OsStr {
        OsStr::new(&self.name)
    }

    /// Gives what was made under it the name `name` in `folder`.
    pub(super) fn publish(&mut self, folder: BorrowedFd<'_>, name: &[u8], replaces: bool) -> io::Result<()> {
        if replaces {
            renameat(self.folder(), self.name(), folder, name)?;
            // Of two names of one file nothing is renamed: then it is still there, and removed when this is dropped.
            return Ok(());
        }
        match renameat_with(self.folder(), self.name(), folder, name, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            // Of a file system that cannot do that at once.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                match linkat(self.folder(), self.name(), folder, name, AtFlags::empty()) {
                    Ok(()) => return Ok(()),
                    // Some FUSE file systems answer EIO to all that they do not know.
                    Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::IO) => {
                        if stat(folder, name)?.is_some() {
                            return Err(Errno::EXIST.into());
                        }
                        renameat(self.folder(), self.name(), folder, name)?;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error.into()),
        }
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for NewName {
    fn drop(&mut self) {
        if !self.is_kept {
            // Mostly it is not there.
            let _ = unlinkat(self.folder(), self.name(), AtFlags::empty());
        }
    }
}

/// A hidden folder in the one that is extracted to, removed when it is dropped.
#[derive(Debug)]
pub(super) struct Stage {
    root: OwnedFd,
    pub(super) folder: OwnedFd,
    name: String,
    mount: (u64, u64),
    /// It is gone. Who makes something that is to be gone with it holds the lock, and so does who removes it.
    is_removed: RwLock<bool>,
}

impl Stage {
    fn new(root: &OwnedFd) -> io::Result<Self> {
        /// How often it is tried again where another user's folder is found.
        const TRIES: usize = 8;
        let root = root.try_clone()?;
        let mut tries = 0;
        loop {
            // Nobody can have such a name in an archive, and two calls have different ones.
            let name = format!("{STAGE}{:016x}", RandomState::new().build_hasher().finish());
            match mkdirat(&root, &name, Mode::RWXU) {
                Ok(()) => {}
                Err(Errno::EXIST) => continue,
                Err(error) => return Err(error.into()),
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let folder = match openat(&root, &name, flags, Mode::empty()) {
                Err(Errno::NOENT) => continue,
                folder => folder?,
            };
            // Another call may have taken it for one that was left, before it was locked.
            if flock(&folder, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
                continue;
            }
            let stat = fstat(&folder)?;
            if !statat(&root, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|there| there.st_ino == stat.st_ino) {
                continue;
            }
            // Whoever may write in `root` can have put another folder in its place before it was opened: one of his
            // own, one of this user, a mount.
            let mount = mount_of(folder.as_fd())?;
            if mount != mount_of(root.as_fd())? || !is_empty(&folder)? || !is_own(&folder) {
                // Only if nothing is in it.
                let _ = unlinkat(&root, &name, AtFlags::REMOVEDIR);
                tries += 1;
                if tries < TRIES {
                    continue;
                }
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, Replaced(name)));
            }
            return Ok(Self { root, mount, folder, name, is_removed: RwLock::default() });
        }
    }

    /// True if things can be renamed from here to `folder`.
    pub(super) fn is_beside(&self, folder: BorrowedFd<'_>) -> io::Result<bool> {
        Ok(self.mount == mount_of(folder)?)
    }

    /// The group that a file of this user gets in `folder`, where that is another one than it has `got` here; the
    /// error is that nobody knows.
    pub(super) fn group_in(&self, folder: BorrowedFd<'_>, got: u32) -> io::Result<Option<Gid>> {
        const SETGID: u32 = 0o2000;
        let (own, there) = (fstat(&self.folder)?, fstat(folder)?);
        let group = if there.st_mode & SETGID != 0 {
            there.st_gid
        } else if own.st_mode & SETGID != 0 {
            getegid().as_raw()
        } else if got == getegid().as_raw() || got == there.st_gid {
            got
        } else {
            // The file system is mounted so that all files get the group of their folder.
            return Err(io::ErrorKind::Unsupported.into());
        };
        Ok((group != got).then(|| Gid::from_raw(group)))
    }

    /// As long as somebody has this, it is not removed; `None` if it is.
    pub(super) fn stays(&self) -> Option<RwLockReadGuard<'_, bool>> {
        let is_removed = self.is_removed.read().unwrap_or_else(PoisonError::into_inner);
        (!*is_removed).then_some(is_removed)
    }

    /// Comes back when it is gone, also where another thread is at it.
    pub(super) fn remove(&self) {
        let mut is_removed = self.is_removed.write().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *is_removed, true) {
            empty(&self.folder);
            // What stays is removed by the next call.
            let _ = unlinkat(&self.root, &self.name, AtFlags::REMOVEDIR);
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The file system and the mount of `folder`; no number of the mount where the kernel does not say.
fn mount_of(folder: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let of_mount = statx(folder, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
    let of_mount =
        of_mount.ok().filter(|found| StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID));
    Ok((fstat(folder)?.st_dev, of_mount.map_or(0, |found| found.stx_mnt_id)))
}

/// True if nobody else has made `folder`, and nobody else may write in it. Some file systems give all files one owner
/// or one mode: then a file that is made in it has these, too.
fn is_own(folder: &OwnedFd) -> bool {
    /// A name that [`is_made_here`] knows. The numbers of others have no letters.
    const TRIAL: &str = "new-f";
    let Ok(stat) = fstat(folder) else { return false };
    let is_open = |stat: &Stat| stat.st_mode & 0o077 != 0;
    if stat.st_uid == geteuid().as_raw() && !is_open(&stat) {
        return true;
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = openat(folder, TRIAL, flags, Mode::RUSR | Mode::WUSR).and_then(|file| fstat(&file));
    if made.is_ok() {
        // If it cannot be removed, it is in a folder that is not used, or is removed with what is made there.
        let _ = unlinkat(folder, TRIAL, AtFlags::empty());
    }
    made.is_ok_and(|made| made.st_uid == stat.st_uid && (!is_open(&stat) || is_open(&made)))
}

fn is_empty(folder: &OwnedFd) -> io::Result<bool> {
    Ok(!Dir::read_from(folder)?.flatten().any(|entry| !is_dots(entry.file_name().to_bytes())))
}

/// Removes what this program makes in a hidden folder. Whoever may write where that lies may have renamed another one
/// to such a name: what else is in it is not touched.
fn empty(folder: &OwnedFd) {
    let Ok(entries) = Dir::read_from(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if is_made_here(name.to_bytes()) && unlinkat(folder, name, AtFlags::empty()) == Err(Errno::ISDIR) {
            let _ = unlinkat(folder, name, AtFlags::REMOVEDIR);
        }
    }
}

/// True of what things in a hidden folder are called: by [`Destination::new_name`], or after the byte of their header
/// (`stage.rs`).
fn is_made_here(name: &[u8]) -> bool {
    let number = name.strip_prefix(b"new-").or_else(|| name.strip_prefix(b"at-"));
    number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_hexdigit))
}

/// There is another folder in place of the hidden one that was made, however often one is made.
#[derive(Debug)]
pub(super) struct Replaced(String);

impl std::fmt::Display for Replaced {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "the hidden folder {} is of another user: somebody has replaced it", self.0)
    }
}

impl std::error::Error for Replaced {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn no_link_is_followed() {
        let scratch = tempfile::tempdir().unwrap();
        let (outside, inside) = (scratch.path().join("outside"), scratch.path().join("inside"));
        std::fs::create_dir_all(outside.join("sub")).unwrap();
        std::fs::create_dir_all(inside.join("real/sub")).unwrap();
        for (target, link) in [("../outside", "up"), ("real", "beside"), ("/proc/self/root", "magic")] {
            symlink(target, inside.join(link)).unwrap();
        }
        for has_openat2 in [true, false] {
            let destination = Destination::open(&inside).unwrap();
            destination.root.use_openat2(has_openat2);
            destination.folder(&["real", "sub"]).unwrap();
            for path in [&["up", "sub"][..], &["up"], &["beside", "sub"], &["beside"], &["magic", "tmp"], &[".."]] {
                // With `openat2` also what no name of an archive is.
                if has_openat2 || path != [".."] {
                    destination.folder(path).unwrap_err();
                }
            }
        }
    }

    #[test]
    fn paths_of_any_length_are_found() {
        let scratch = tempfile::tempdir().unwrap();
        let destination = Destination::open(scratch.path()).unwrap();
        let name = "n".repeat(200);
        let mut path = Vec::new();
        for _ in 0..60 {
            let folder = destination.folder(&path).unwrap();
            assert_eq!(make_folder(folder.as_fd(), name.as_bytes(), 0o700).unwrap(), MadeFolder::Made);
            path.push(&name);
        }
        destination.folder(&path).unwrap();
    }

    #[test]
    fn what_is_there_is_only_replaced_on_demand() {
        use std::io::Write as _;
        let scratch = tempfile::tempdir().unwrap();
        for has_nameless in [true, false] {
            let destination = Destination::open(scratch.path()).unwrap();
            destination.has_nameless.store(has_nameless, Ordering::Relaxed);
            let folder = destination.folder::<&str>(&[]).unwrap();
            let make = |content: &str, replaces| {
                let mut new = destination.new_file(folder.as_fd(), 0o600, 0o600, false).unwrap();
                new.file.write_all(content.as_bytes()).unwrap();
                destination.publish_file(&mut new, folder.as_fd(), b"file", replaces)
            };
            let content = || std::fs::read_to_string(scratch.path().join("file")).unwrap();
            make("first", false).unwrap();
            assert_eq!(make("second", false).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(content(), "first");
            make("third", true).unwrap();
            assert_eq!(content(), "third");
            drop(destination);
            assert_eq!(names(scratch.path()), ["file"]);
            std::fs::remove_file(scratch.path().join("file")).unwrap();
        }
    }

    /// Who ends the process waits for whoever removes the hidden folder, and nothing is made in one from then on.
    #[test]
    fn the_end_of_the_process_waits_for_the_hidden_folder() {
        let scratch = tempfile::tempdir().unwrap();
        let to = scratch.path().join("to");
        let destination = Destination::open(&to).unwrap();
        let stage = destination.stage().unwrap();
        std::fs::write(to.join(&stage.name).join("at-0"), "x").unwrap();
        let remover = destination.remover(&to);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Somebody makes something there.
            let stays = stage.stays().unwrap();
            for _ in 0..2 {
                scope.spawn(|| {
                    remover();
                    is_over.store(true, Ordering::Relaxed);
                });
            }
            std::fs::write(to.join(&stage.name).join("at-1"), "x").unwrap();
            assert!(!is_over.load(Ordering::Relaxed));
            drop(stays);
        });
        assert!(!to.exists() && stage.stays().is_none());
        assert_eq!(destination.stage().unwrap_err().kind(), io::ErrorKind::Interrupted);
    }

    /// Where one was removed because there is no room for it, links are made in another one.
    #[test]
    fn a_hidden_folder_that_is_gone_is_made_again() {
        let scratch = tempfile::tempdir().unwrap();
        let destination = Destination::open(scratch.path()).unwrap();
        let first = destination.stage().unwrap();
        first.remove();
        destination.remove_stage();
        let second = destination.stage().unwrap();
        assert!(first.stays().is_none() && second.stays().is_some());
        assert_eq!(names(scratch.path()), std::slice::from_ref(&second.name));
    }

    #[test]
    fn hidden_folders_of_the_dead_are_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let used = Destination::open(scratch.path()).unwrap();
        let of_used = used.stage().unwrap().name.clone();
        let left = scratch.path().join(".tarnfs-extract-0123456789abcdef");
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join("new-1"), "x").unwrap();
        std::fs::write(left.join("at-1f200"), "x").unwrap();
        std::fs::create_dir(left.join("at-0")).unwrap();
        std::fs::set_permissions(&left, PermissionsExt::from_mode(0o700)).unwrap();
        std::fs::create_dir(scratch.path().join(".tarnfs-extract-mine")).unwrap();
        // Somebody else has renamed a private folder so.
        let renamed = ".tarnfs-extract-fedcba9876543210";
        let private = scratch.path().join(renamed);
        std::fs::create_dir_all(private.join("inner")).unwrap();
        for name in ["thesis", "new-year", "at-", "new-1"] {
            std::fs::write(private.join(name), "x").unwrap();
        }
        std::fs::set_permissions(&private, PermissionsExt::from_mode(0o700)).unwrap();
        let other = Destination::open(scratch.path()).unwrap();
        let of_other = other.stage().unwrap().name.clone();
        let mut expected = vec![of_used, of_other, ".tarnfs-extract-mine".to_owned(), renamed.to_owned()];
        expected.sort();
        assert_eq!(names(scratch.path()), expected);
        assert_eq!(names(&private), ["at-", "inner", "new-year", "thesis"]);
        drop((used, other));
        assert_eq!(names(scratch.path()), [renamed, ".tarnfs-extract-mine"]);
    }

    #[test]
    fn a_folder_that_others_have_made_or_may_write_in_is_not_own() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        let is_own_with = |mode| {
            std::fs::set_permissions(&folder, PermissionsExt::from_mode(mode)).unwrap();
            let opened: OwnedFd = File::open(&folder).unwrap().into();
            let is = is_own(&opened);
            assert!(is_empty(&opened).unwrap());
            is
        };
        assert!(is_own_with(0o700) && is_own_with(0o2700));
        assert!(!is_own_with(0o755) && !is_own_with(0o777) && !is_own_with(0o770));
        if geteuid().is_root() {
            std::os::unix::fs::chown(&folder, Some(12), None).unwrap();
            assert!(!is_own_with(0o700) && !is_own_with(0o777));
        }
    }
}
