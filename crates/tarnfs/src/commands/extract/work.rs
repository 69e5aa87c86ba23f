//! The threads that make files, links and devices. Each takes some that follow each other in the archive, so that what
//! they share is decoded once.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, chownat, fchown, fstat, linkat, mknodat, openat, statat, symlinkat};
use tarnfs_source::Source;
use tarnfs_tree::{Error, Node, Time, Tree, Xattrs, with_memory};

use super::attributes::{Finished, Wanted, keep_time};
use super::content::{CopyError, copy, copy_what_can_be_read, is_damage};
use super::destination::{NewFile, NewName, is_apart, stat};
use super::existing::{Decision, Policy};
use super::folders::Folders;
use super::plan::{Item, Items, What, take};
use super::{Extraction, Stop};
use crate::commands::window::Window;
use crate::exit::{Code, Failure};
use crate::inside;

/// Extended attribute of what is served although it is damaged.
const DAMAGED: &[u8] = b"user.tarnfs.damaged";

/// Makes all of them, on so many threads.
pub(super) fn run(extraction: &Extraction<'_>, items: Items, threads: usize) -> Result<(), Stop> {
    let items = Mutex::new(items);
    let stopped = Mutex::new(None);
    let work = || {
        let (folders, window) = (Folders::new(extraction), Window::default());
        let mut worker =
            Worker { extraction, items: &items, folders, window, buffer: Vec::new(), first: None, apart: None };
        while extraction.goes_on() {
            match worker.some() {
                Ok(true) => {}
                Ok(false) => break,
                Err(stop) => {
                    extraction.stop();
                    stopped.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(stop);
                    break;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Where there can be no more threads, fewer do it all.
            if std::thread::Builder::new().name("extracting".into()).spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    stopped.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)?;
    extraction.check()
}

/// The first name of a file that has several.
enum First {
    File(Arc<OwnedFd>),
    Other(Arc<OwnedFd>, Vec<u8>),
}

struct Worker<'a> {
    extraction: &'a Extraction<'a>,
    items: &'a Mutex<Items>,
    folders: Folders<'a>,
    window: Window,
    buffer: Vec<u8>,
    /// What was made last, if it may have more names.
    first: Option<(Node, First)>,
    /// The folder that took nothing from the hidden folder, if that was the last one.
    apart: Option<Node>,
}

/// Why one of them was not made.
enum Trouble {
    Stop(Stop),
    /// It is told, and the others are made.
    This(Failure),
}

impl From<Stop> for Trouble {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

/// Why a file did not get its name.
enum NotNamed {
    /// What is made in the hidden folder cannot go where it is to be.
    Apart,
    Trouble(Trouble),
}

impl From<Trouble> for NotNamed {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl Worker<'_> {
    /// Makes those that come next. False if there are no more.
    fn some(&mut self) -> Result<bool, Stop> {
        let extraction = self.extraction;
        take(
            self.items,
            |error| extraction.cannot_note(&error),
            || (),
            |(), item| {
                extraction.check()?;
                self.one(item)
            },
        )
    }

    fn one(&mut self, item: &Item) -> Result<(), Stop> {
        if self.first.as_ref().is_some_and(|(node, _)| *node != item.node) {
            self.first = None;
        }
        match self.make(item) {
            Ok(()) => {}
            Err(Trouble::Stop(stop)) => return Err(stop),
            Err(Trouble::This(failure)) => {
                self.extraction.failed(item.folder, &item.name, failure.code, &failure.message);
            }
        }
        self.extraction.progress.entries.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// A failed system call at the destination.
    fn wrote(&self, error: &io::Error) -> Trouble {
        if self.extraction.ends_all(error) {
            return Trouble::Stop(self.extraction.cannot_write(error));
        }
        Trouble::This(Failure::new(Code::Failure, error.to_string()))
    }

    /// Something cannot be read of the archive.
    fn read(&self, error: &Error) -> Trouble {
        if inside::is_interrupted(error) {
            return Trouble::Stop(self.extraction.interrupted());
        }
        let failure = inside::failure(self.extraction.archive, b"", error);
        let what = inside::named_once(self.extraction.archive, &error.to_string());
        Trouble::This(Failure::new(failure.code, what))
    }

    fn make(&mut self, item: &Item) -> Result<(), Trouble> {
        let extraction = self.extraction;
        let folder = self.folders.get(item.folder).map_err(|error| self.wrote(&error))?;
        let target = match item.kind {
            What::Symlink => extraction.tree.read_link(item.node).map_err(|error| self.read(&error))?,
            _ => Vec::new(),
        };
        // Where there was nothing, nothing is there but what this call has made; that shows when it gets its name.
        let looks = !extraction.destination.is_fresh();
        let mut decision = Decision::Make;
        if looks {
            decision = self.decide(item, &folder, &target)?;
        }
        // What comes to be there meanwhile is looked at once more.
        for _ in 0..8 {
            let replaces = match decision {
                Decision::Make => false,
                Decision::Replace => true,
                Decision::Leave => return self.left(item, &folder),
                Decision::GiveTime => {
                    keep_time(folder.as_fd(), &item.name, item.mtime);
                    return self.left(item, &folder);
                }
                Decision::Refuse(why) => return Err(Trouble::This(Failure::new(Code::Failure, why))),
            };
            match self.try_once(item, &folder, &target, replaces) {
                Ok(true) => return Ok(extraction.done(item.folder, &item.name)?),
                Ok(false) => decision = self.decide(item, &folder, &target)?,
                Err(trouble) => return Err(trouble),
            }
        }
        Err(Trouble::This(Failure::new(Code::Failure, "somebody else makes and removes it all the time")))
    }

    fn decide(&self, item: &Item, folder: &OwnedFd, target: &[u8]) -> Result<Decision, Trouble> {
        let existing = self.extraction.existing;
        let destination = self.extraction.destination;
        let decision =
            existing.decide(folder.as_fd(), item, target, destination).map_err(|error| self.wrote(&error))?;
        // Of the names of one file, an earlier call has left none of another one.
        if decision == Decision::Leave
            && existing.resumes
            && let Some((_, First::File(first))) = &self.first
        {
            let there = stat(folder.as_fd(), &item.name).map_err(|error| self.wrote(&error))?;
            let of_first = rustix::fs::fstat(first).map_err(|error| self.wrote(&error.into()))?;
            if there.is_some_and(|there| (there.st_dev, there.st_ino) != (of_first.st_dev, of_first.st_ino)) {
                if self.cannot_have_another_name(first, folder) {
                    // An earlier call has made a file of its own of it.
                    self.extraction.no_links();
                    return Ok(decision);
                }
                if existing.policy == Policy::Overwrite {
                    return Ok(Decision::Replace);
                }
                let what = "is there, and is not the same file as the other names that it has in the archive";
                return Ok(Decision::Refuse(what.to_owned()));
            }
        }
        Ok(decision)
    }

    /// True if `file` cannot get another name in `folder`.
    fn cannot_have_another_name(&self, file: &OwnedFd, folder: &OwnedFd) -> bool {
        let destination = self.extraction.destination;
        // It is gone when it is dropped.
        let Ok(trial) = destination.name_beside(folder.as_fd()) else { return false };
        let linked = destination.link_to(file.as_fd(), trial.folder(), trial.name().as_bytes());
        linked.is_err_and(|error| cannot_link(&error))
    }

    /// What an earlier call has made stays, and may get more names.
    fn left(&mut self, item: &Item, folder: &Arc<OwnedFd>) -> Result<(), Trouble> {
        if item.kind == What::File {
            self.extraction.progress.bytes.fetch_add(item.size, Ordering::Relaxed);
        }
        if item.links < 2 || self.first.is_some() || !self.extraction.existing.resumes {
            return Ok(());
        }
        let first = if item.kind == What::File {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = openat(folder, item.name.as_slice(), flags, Mode::empty());
            First::File(Arc::new(file.map_err(|error| self.wrote(&error.into()))?))
        } else {
            First::Other(Arc::clone(folder), item.name.clone())
        };
        self.first = Some((item.node, first));
        Ok(())
    }

    /// False if something is there by now.
    fn try_once(&mut self, item: &Item, folder: &Arc<OwnedFd>, target: &[u8], replaces: bool) -> Result<bool, Trouble> {
        if item.links > 1 && self.first.is_some() {
            match self.link(item, folder, replaces) {
                Err(error) if cannot_link(&error) => self.extraction.no_links(),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
                Err(error) => return Err(self.wrote(&error)),
                Ok(()) => {
                    if item.kind == What::File {
                        self.extraction.progress.bytes.fetch_add(item.size, Ordering::Relaxed);
                    }
                    return Ok(true);
                }
            }
        }
        match item.kind {
            What::File => self.file(item, folder, replaces),
            _ => self.other(item, folder, target, replaces, false),
        }
    }

    fn link(&self, item: &Item, folder: &OwnedFd, replaces: bool) -> io::Result<()> {
        let destination = self.extraction.destination;
        match &self.first {
            Some((_, First::File(file))) => destination.link(file.as_fd(), folder.as_fd(), &item.name, replaces),
            Some((_, First::Other(from, name))) => {
                if replaces {
                    let mut made = destination.new_name(folder.as_fd())?;
                    let link =
                        |made: &NewName| linkat(from, name.as_slice(), made.folder(), made.name(), AtFlags::empty());
                    match link(&made).map_err(io::Error::from) {
                        Err(error) if is_apart(&error) => {
                            made = destination.name_beside(folder.as_fd())?;
                            link(&made)?;
                        }
                        linked => linked?,
                    }
                    return made.publish(folder.as_fd(), &item.name, true);
                }
                Ok(linkat(from, name.as_slice(), folder, item.name.as_slice(), AtFlags::empty())?)
            }
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Whose it is to be here.
    fn owner(&self, item: &Item) -> Result<(u32, u32), Trouble> {
        let extraction = self.extraction;
        if !extraction.keeping.owner {
            return Ok((item.uid, item.gid));
        }
        extraction.owner(item.node, item.uid, item.gid).map_err(|error| self.read(&error))
    }

    fn xattrs(&self, item: &Item) -> Result<Xattrs, Trouble> {
        if !item.stored.has_xattrs {
            return Ok(Xattrs::new());
        }
        self.extraction.tree.xattrs(item.node).map_err(|error| self.read(&error))
    }

    fn file(&mut self, item: &Item, folder: &Arc<OwnedFd>, replaces: bool) -> Result<bool, Trouble> {
        let extraction = self.extraction;
        if extraction.is_a_file && !extraction.force && self.is_damaged(item)? {
            let what = "is damaged; --force extracts what of it can be decoded".to_owned();
            return Err(Trouble::This(Failure::new(Code::Damaged, what)));
        }
        if let Some(new) = self.staged(item, folder)? {
            let has_name = new.hidden_in().is_some();
            match self.publish(item, folder, replaces, (new, false)) {
                // It is read again, and made where it is to be.
                Err(NotNamed::Apart) if has_name => {}
                Err(problem) => return Err(self.not_named(problem)),
                Ok(is_there) => {
                    extraction.progress.bytes.fetch_add(item.size, Ordering::Relaxed);
                    return Ok(is_there);
                }
            }
        }
        let copied = self.copied(item, folder, false)?;
        let published = match self.publish(item, folder, replaces, copied) {
            Err(NotNamed::Apart) if self.apart != Some(item.folder) => {
                self.apart = Some(item.folder);
                let copied = self.copied(item, folder, true)?;
                self.publish(item, folder, replaces, copied)
            }
            published => published,
        };
        published.map_err(|problem| self.not_named(problem))
    }

    fn not_named(&self, problem: NotNamed) -> Trouble {
        match problem {
            NotNamed::Apart => self.wrote(&rustix::io::Errno::XDEV.into()),
            NotNamed::Trouble(trouble) => trouble,
        }
    }

    /// Gives a file with its content its attributes and its name. False if something is there by now.
    fn publish(
        &mut self,
        item: &Item,
        folder: &Arc<OwnedFd>,
        replaces: bool,
        (mut new, is_damaged): (NewFile, bool),
    ) -> Result<bool, NotNamed> {
        let extraction = self.extraction;
        let xattrs = self.xattrs(item)?;
        let &Item { mode, mut mtime, atime, .. } = item;
        if is_damaged {
            // With its own time, a call that goes on would take it for whole.
            mtime = now();
        }
        let wanted = Wanted { mode, owner: self.owner(item)?, mtime, atime, xattrs: &xattrs };
        if extraction.inherits.load(Ordering::Relaxed) {
            extraction.keeping.without_inherited(new.file.as_fd(), false);
        }
        let kept = extraction.keeping.keep(&new.file, &wanted, Finished::File);
        match extraction.destination.publish_file(&mut new, folder.as_fd(), &item.name, replaces) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            Err(error) if is_apart(&error) => return Err(NotNamed::Apart),
            Err(error) => return Err(self.wrote(&error).into()),
            Ok(()) => {}
        }
        if item.links > 1 {
            self.first = Some((item.node, First::File(Arc::new(new.into_descriptor()))));
        }
        // It is there, if not as it should be.
        kept.map(|()| true).map_err(|failure| Trouble::This(failure).into())
    }

    /// True if something of it is known to be damaged or missing.
    fn is_damaged(&self, item: &Item) -> Result<bool, Trouble> {
        let tree = self.extraction.tree;
        let damage = || tree.damage(item.node).map_err(|error| self.read(&error));
        Ok(tree.may_be_damaged() && damage()?.is_some())
    }

    /// What was written of it while the archive was decoded, if that is all of it and right.
    fn staged(&self, item: &Item, folder: &OwnedFd) -> Result<Option<NewFile>, Trouble> {
        let extraction = self.extraction;
        let (Some(staging), 0, Some(header)) = (extraction.staging, item.stored.stream, item.stored.header) else {
            return Ok(None);
        };
        // It was made in another folder, and may have got an access list there that it would not have got here.
        if !extraction.keeping.permissions && extraction.inherits.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let new = staging.take(header).map_err(|error| self.wrote(&error))?;
        let Some(new) = new else { return Ok(None) };
        // Nothing can be renamed to another mount: it is read again.
        let is_beside = new.hidden_in().map_or(Ok(true), |stage| stage.is_beside(folder.as_fd()));
        if !is_beside.map_err(|error| self.wrote(&error))? || !self.give_group(&new, folder) {
            return Ok(None);
        }
        let is_right = !self.is_damaged(item)?;
        let length = new.file.metadata().map_err(|error| self.wrote(&error))?.len();
        Ok(Some(new).filter(|_| is_right && length == item.size))
    }

    /// Gives what was made in a hidden folder the group that it would have got in `folder`, if it keeps the one that
    /// it gets. False if that cannot be.
    fn give_group(&self, new: &NewFile, folder: &OwnedFd) -> bool {
        let Some(stage) = new.hidden_in().filter(|_| !self.extraction.keeping.owner) else { return true };
        let group =
            fstat(&new.file).map_err(io::Error::from).and_then(|own| stage.group_in(folder.as_fd(), own.st_gid));
        match group {
            Ok(None) => true,
            Ok(group) => fchown(&new.file, None, group).is_ok(),
            Err(_) => false,
        }
    }

    /// A new file with its content, and whether that is damaged (`--force`). `again`: it was copied before, and what is
    /// damaged was told.
    fn copied(&mut self, item: &Item, folder: &OwnedFd, again: bool) -> Result<(NewFile, bool), Trouble> {
        let extraction = self.extraction;
        let (keeping, is_apart) = (extraction.keeping, self.apart == Some(item.folder));
        let mode = keeping.first_mode(item.mode);
        let nameless = keeping.first_mode_without_name(item.mode, self.owner(item)?, item.stored.has_xattrs);
        let new = extraction.destination.new_file(folder.as_fd(), nameless, mode, is_apart);
        let new = new.map_err(|error| self.wrote(&error))?;
        // Where there are no files without a name, it is in the hidden folder, too, and may keep the group from there.
        self.give_group(&new, folder);
        if item.size == 0 {
            return Ok((new, false));
        }
        let is_damaged = self.copy_content(item, &new, again)?;
        if is_damaged || !extraction.force {
            return Ok((new, is_damaged));
        }
        let damaged = extraction.tree.xattr(item.node, DAMAGED).map_err(|error| self.read(&error))?;
        if let Some(what) = damaged.as_ref().filter(|_| !again) {
            let what = format!("is damaged, and was extracted as it is: {}", String::from_utf8_lossy(what));
            extraction.failed(item.folder, &item.name, Code::Damaged, &what);
        }
        Ok((new, damaged.is_some()))
    }

    /// Copies what is not empty. True if only a part of it can be read (`--force`).
    fn copy_content(&mut self, item: &Item, new: &NewFile, again: bool) -> Result<bool, Trouble> {
        let extraction = self.extraction;
        let small = extraction.stream.and_then(|stream| self.window.content(stream, &item.stored, item.size));
        if let Some(content) = small {
            let written = new.file.write_all_at(content, 0);
            extraction.progress.bytes.fetch_add(item.size, Ordering::Relaxed);
            return written.map(|()| false).map_err(|error| self.wrote(&error));
        }
        let open = || extraction.tree.open_stored(item.node, &item.stored, item.size);
        let source = with_memory(extraction.cancel, open);
        let source = source.map_err(|error| self.read(&error))?;
        match copy(&*source, &new.file, &mut self.buffer, extraction.cancel, extraction.progress) {
            Ok(()) => Ok(false),
            Err(CopyError::Write(error)) => Err(self.wrote(&error)),
            Err(CopyError::Read(error)) if extraction.force && is_damage(&error) => {
                self.copy_a_part(item, &*source, new, again)?;
                Ok(true)
            }
            Err(CopyError::Read(error)) => Err(self.read(&error.into())),
        }
    }

    /// `--force`: what comes before the first byte that is lost.
    fn copy_a_part(&self, item: &Item, source: &dyn Source, new: &NewFile, again: bool) -> Result<(), Trouble> {
        let extraction = self.extraction;
        match copy_what_can_be_read(source, &new.file, extraction.cancel) {
            Ok(_) if again => Ok(()),
            Ok(length) => {
                let what = format!("is damaged: only its first {length} bytes can be decoded");
                extraction.failed(item.folder, &item.name, Code::Damaged, &what);
                Ok(())
            }
            Err(CopyError::Write(error)) => Err(self.wrote(&error)),
            Err(CopyError::Read(error)) => Err(self.read(&error.into())),
        }
    }

    /// What is no file: a link, a device, ... If it gets a name before its own, that is in the hidden folder, or in one
    /// `beside` its place.
    fn other(
        &mut self,
        item: &Item,
        folder: &Arc<OwnedFd>,
        target: &[u8],
        replaces: bool,
        beside: bool,
    ) -> Result<bool, Trouble> {
        let extraction = self.extraction;
        let xattrs = self.xattrs(item)?;
        let &Item { mode, mtime, atime, .. } = item;
        let wanted = Wanted { mode, owner: self.owner(item)?, mtime, atime, xattrs: &xattrs };
        let is_link = item.kind == What::Symlink;
        let is_there = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
        let kept = if is_link && !extraction.keeping.owner && !replaces {
            match symlinkat(target, folder, item.name.as_slice()).map_err(io::Error::from) {
                Err(error) if is_there(&error) => return Ok(false),
                Err(error) => return Err(self.wrote(&error)),
                Ok(()) => {}
            }
            let name = Path::new(std::ffi::OsStr::from_bytes(&item.name));
            extraction.keeping.keep_at(folder.as_fd(), name, &wanted, FileType::Symlink)
        } else {
            let destination = extraction.destination;
            let made =
                if beside { destination.name_beside(folder.as_fd()) } else { destination.new_name(folder.as_fd()) };
            let mut made = made.map_err(|error| self.wrote(&error))?;
            let mode = Mode::from_raw_mode(0o600);
            let (at, name) = (made.folder(), made.name());
            let result = match item.kind {
                What::File | What::Symlink => symlinkat(target, at, name),
                What::Fifo => mknodat(at, name, FileType::Fifo, mode, 0),
                What::Socket => mknodat(at, name, FileType::Socket, mode, 0),
                What::Character(major, minor) => {
                    mknodat(at, name, FileType::CharacterDevice, mode, rustix::fs::makedev(major, minor))
                }
                What::Block(major, minor) => {
                    mknodat(at, name, FileType::BlockDevice, mode, rustix::fs::makedev(major, minor))
                }
            };
            match result.map_err(io::Error::from) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !is_link => {
                    let what = format!("{error}: only root may make devices");
                    return Err(Trouble::This(Failure::new(Code::Failure, what)));
                }
                Err(error) => return Err(self.wrote(&error)),
                Ok(()) => {}
            }
            let kind = match item.kind {
                What::File | What::Symlink => FileType::Symlink,
                What::Fifo => FileType::Fifo,
                What::Socket => FileType::Socket,
                What::Character(..) => FileType::CharacterDevice,
                What::Block(..) => FileType::BlockDevice,
            };
            if !extraction.keeping.owner {
                // As where it would have been made at once. If that cannot be, it has the group of this user.
                let own = statat(at, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from);
                let group = own.and_then(|own| made.stage().group_in(folder.as_fd(), own.st_gid));
                if let Ok(Some(group)) = group {
                    let _ = chownat(at, name, None, Some(group), AtFlags::SYMLINK_NOFOLLOW);
                }
            }
            let kept = extraction.keeping.keep_at(at, Path::new(name), &wanted, kind);
            match made.publish(folder.as_fd(), &item.name, replaces) {
                Err(error) if is_there(&error) => return Ok(false),
                Err(error) if is_apart(&error) && !beside => return self.other(item, folder, target, replaces, true),
                Err(error) => return Err(self.wrote(&error)),
                Ok(()) => {}
            }
            kept
        };
        if item.links > 1 {
            self.first = Some((item.node, First::Other(Arc::clone(folder), item.name.clone())));
        }
        kept.map(|()| true).map_err(Trouble::This)
    }
}

fn now() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    Time { seconds: now.tv_sec, nanoseconds: u32::try_from(now.tv_nsec).unwrap_or(0) }
}

/// True where a second name is not possible, of a file that can be made twice.
fn cannot_link(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        Errno::from_io_error(error),
        Some(Errno::XDEV | Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK | Errno::NOSYS)
    )
}
