//! A folder as a tree, as it is at each moment.
//!
//! The folder is opened once. All else is found from there, one name after the other, by the kernel's own rules for
//! staying below (`openat2(2)`): symbolic links are shown and never followed, and nobody who moves things about
//! meanwhile can make us look at something else. Mounts below are shown, but not those of this process ([`Served`]):
//! whoever answers must not ask itself.
//!
//! A node is a file or folder of the file system below, found again by the name under which it was seen last. If
//! something else is there now, the kernel is told (ESTALE) and looks again. Nothing stays open of what is not being
//! read or listed.

mod hidden;
mod listing;
mod numbers;
mod served;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags, StatxTimestamp, fstatvfs, getxattr,
    listxattr, openat, openat2, readlinkat, statx,
};
use rustix::io::Errno;
use tarnfs_source::{FollowedFile, SharedSource, Source};

use crate::lanes::new_lane;
use crate::{Attributes, Child, Device, Error, Kind, Lifetime, Node, Time, Totals, Tree, UNKNOWN, Waiting, Xattrs};
use listing::{Listing, Listings};
use numbers::{Identity, Numbers, stale};
use waits::Waits;

pub(crate) use hidden::HiddenFolder;
pub use served::Served;

/// The longest path that the kernel takes at once, with its end (`PATH_MAX`).
const LONGEST_PATH: usize = 4096;

/// The most bytes that a value of an extended attribute, or the list of their names, can have (`XATTR_SIZE_MAX`).
const MOST_XATTR: usize = 64 << 10;

/// The files and folders below a folder.
#[derive(Debug)]
pub struct FolderTree {
    root: OwnedFd,
    /// For messages.
    path: PathBuf,
    numbers: Mutex<Numbers>,
    listings: Listings,
    opened: Mutex<HashMap<u32, Weak<FollowedFile>>>,
    waits: Waits,
    lane: u64,
}

/// An open folder: the root, or another one.
enum Folder<'a> {
    Root(BorrowedFd<'a>),
    Other(OwnedFd),
}

impl AsFd for Folder<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Root(folder) => *folder,
            Self::Other(folder) => folder.as_fd(),
        }
    }
}

/// A node, as it was just found.
struct FoundNode<'a> {
    folder: Folder<'a>,
    /// Empty for the root: the folder itself.
    name: Box<[u8]>,
    identity: Identity,
    stat: Statx,
}

impl FolderTree {
    /// The tree below the folder at `path`; symbolic links are followed here, and only here. If it is to be seen
    /// through a mount on top of it, this must be called before that is mounted.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let root = openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self {
            waits: Waits::of(root.as_fd()),
            lane: new_lane(),
            root,
            path: path.to_owned(),
            numbers: Mutex::new(Numbers::new()),
            listings: Listings::default(),
            opened: Mutex::default(),
        })
    }

    /// True if `folder` is the root, or lies below it, as far as whoever asks may look.
    pub fn holds(&self, folder: BorrowedFd<'_>) -> Result<bool, Error> {
        let number = |folder: BorrowedFd<'_>| -> Result<hidden::Number, Error> {
            let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
            Ok(hidden::number(&statx(folder, "", flags, StatxFlags::BASIC_STATS)?))
        };
        let own = number(self.root.as_fd())?;
        let mut at = folder.try_clone_to_owned()?;
        let mut last = number(at.as_fd())?;
        while last != own {
            at = openat(&at, "..", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            let next = number(at.as_fd())?;
            if next == last {
                return Ok(false);
            }
            last = next;
        }
        Ok(true)
    }

    /// The path that was given at opening.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where a file or folder below the root was seen last, from the root.
    pub fn path_below(&self, node: Node) -> Option<PathBuf> {
        let numbers = self.numbers();
        let place = numbers.place(number(node).ok()?).ok()?;
        let folder = numbers.path(place.folder).ok()?;
        Some(Path::new(OsStr::from_bytes(&folder)).join(OsStr::from_bytes(&place.name)))
    }

    /// The folder that a file below the root lies in.
    pub(crate) fn folder_of(&self, file: Node) -> Result<OwnedFd, Error> {
        Ok(self.find(file)?.folder.as_fd().try_clone_to_owned()?)
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the folder at `path` below the root.
    fn walk(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Error> {
        let flags = flags | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = if path.is_empty() { b"." } else { path };
        if path.len() < LONGEST_PATH {
            let beneath =
                ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
            match openat2(&self.root, path, flags, Mode::empty(), beneath) {
                // A mount on the way, an older kernel, a sandbox that does not know the call, somebody who renames.
                Err(Errno::XDEV | Errno::NOSYS | Errno::PERM | Errno::AGAIN) => {}
                result => return result.map_err(|error| moved(error).into()),
            }
        }
        let (folders, last) = match path.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => (Some(&path[..slash]), &path[slash + 1..]),
            None => (None, path),
        };
        let mut at = Folder::Root(self.root.as_fd());
        for name in folders.into_iter().flat_map(|folders| folders.split(|&byte| byte == b'/')) {
            at = Folder::Other(enter(at.as_fd(), name, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW)?);
        }
        enter(at.as_fd(), last, flags)
    }

    /// Opens a folder, which must still be the one that has this number.
    fn folder(&self, node: u32, flags: OFlags) -> Result<Folder<'_>, Error> {
        if Node(node.into()) == Node::ROOT {
            return Ok(if flags.contains(OFlags::PATH) {
                Folder::Root(self.root.as_fd())
            } else {
                Folder::Other(self.walk(b"", flags)?)
            });
        }
        let (path, identity) = {
            let numbers = self.numbers();
            (numbers.path(node)?, numbers.place(node)?.identity)
        };
        let folder = self.walk(&path, flags)?;
        if Identity::of(&ask(folder.as_fd(), b"", AtFlags::STATX_DONT_SYNC)?) != identity {
            return Err(stale());
        }
        Ok(Folder::Other(folder))
    }

    fn find(&self, node: Node) -> Result<FoundNode<'_>, Error> {
        let node = number(node)?;
        if Node(node.into()) == Node::ROOT {
            let stat = ask(self.root.as_fd(), b"", AtFlags::empty())?;
            let folder = Folder::Root(self.root.as_fd());
            return Ok(FoundNode { folder, name: Box::default(), identity: Identity::of(&stat), stat });
        }
        let (path, name, identity) = {
            let numbers = self.numbers();
            let place = numbers.place(node)?;
            (numbers.path(place.folder)?, place.name.clone(), place.identity)
        };
        // That it is the same file is found out below, so it does not matter whether it is the same folder.
        let folder = if path.is_empty() {
            Folder::Root(self.root.as_fd())
        } else {
            Folder::Other(self.walk(&path, OFlags::PATH)?)
        };
        let stat = look(folder.as_fd(), &name).map_err(|error| match error {
            Error::NotFound | Error::NotAFolder => stale(),
            error => error,
        })?;
        if Identity::of(&stat) != identity {
            return Err(stale());
        }
        Ok(FoundNode { folder, name, identity, stat })
    }

    /// What is open of `node`.
    fn opened(&self, node: Node) -> Option<Arc<FollowedFile>> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.get(&number(node).ok()?)?.upgrade()
    }

    fn shown(&self, file: Arc<FollowedFile>) -> SharedSource {
        if self.waits.any() { Arc::new(WaitedFor(file)) } else { file }
    }

    /// Numbers a file seen as `name` in `folder`, and says what it is.
    fn hold(&self, folder: u32, name: &[u8], stat: &Statx) -> Result<Attributes, Error> {
        let node = self.numbers().hold(Identity::of(stat), folder, name)?;
        Ok(attributes(Node(node.into()), stat))
    }
}

/// A file that may have to be waited for, however little of it is asked for.
#[derive(Debug)]
struct WaitedFor(Arc<FollowedFile>);

impl Source for WaitedFor {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        self.0.next_data(offset)
    }

    fn next_hole(&self, offset: u64) -> u64 {
        self.0.next_hole(offset)
    }

    fn most_data(&self) -> u64 {
        self.0.most_data()
    }

    fn is_ready(&self, _: u64, _: usize) -> bool {
        false
    }

    fn pinned(&self) -> Option<u64> {
        self.0.pinned()
    }

    fn backing_file(&self) -> Option<BorrowedFd<'_>> {
        self.0.backing_file()
    }
}

impl AsFd for FolderTree {
    /// The folder itself; not open for reading.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

/// Numbers that were given out are small.
fn number(node: Node) -> Result<u32, Error> {
    u32::try_from(node.0).map_err(|_| Error::NotFound)
}

/// What was a folder and is none any more, or not there, has moved.
fn moved(error: Errno) -> Errno {
    if matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP) { Errno::STALE } else { error }
}

/// Opens the folder `name` in `folder`, across a mount if there is one, but not into one of ours.
fn enter(folder: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> Result<OwnedFd, Error> {
    ask(folder, name, AtFlags::STATX_DONT_SYNC).map_err(|error| match error {
        Error::NotFound | Error::NotAFolder => stale(),
        error => error,
    })?;
    Ok(openat(folder, name, flags | OFlags::CLOEXEC, Mode::empty()).map_err(moved)?)
}

/// What the system says of `name` in `folder`, or of `folder` itself if there is no name. A mount of ours is
/// [`Error::TooManyLinks`].
fn ask(folder: BorrowedFd<'_>, name: &[u8], how: AtFlags) -> Result<Statx, Error> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH | how;
    let stat = statx(folder, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID)?;
    if served::is_served(stat.stx_dev_major, stat.stx_dev_minor) {
        return Err(Error::TooManyLinks);
    }
    if hidden::is_hidden(&stat) {
        return Err(Error::NotFound);
    }
    Ok(stat)
}

/// As [`ask`], where the answer must be true at this moment.
fn look(folder: BorrowedFd<'_>, name: &[u8]) -> Result<Statx, Error> {
    // From what the kernel has in memory: that asks no file system behind it, which might be ours.
    let stat = ask(folder, name, AtFlags::STATX_DONT_SYNC)?;
    // What lies on a disk is always true; of a server, which has no disk's number, it may be old.
    if stat.stx_dev_major != 0 { Ok(stat) } else { ask(folder, name, AtFlags::empty()) }
}

fn attributes(node: Node, stat: &Statx) -> Attributes {
    let time = |time: StatxTimestamp| Time { seconds: time.tv_sec, nanoseconds: time.tv_nsec };
    let device = Device { major: stat.stx_rdev_major, minor: stat.stx_rdev_minor };
    Attributes {
        node,
        kind: kind(FileType::from_raw_mode(stat.stx_mode.into()), device),
        mode: u32::from(stat.stx_mode) & 0o7777,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        links: stat.stx_nlink,
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        mtime: time(stat.stx_mtime),
        atime: time(stat.stx_atime),
        ctime: time(stat.stx_ctime),
    }
}

pub(crate) fn kind(found: FileType, device: Device) -> Kind {
    match found {
        FileType::Directory => Kind::Folder,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice => Kind::CharacterDevice(device),
        FileType::BlockDevice => Kind::BlockDevice(device),
        FileType::RegularFile | FileType::Unknown => Kind::File,
    }
}

/// What is listed of a name about which nothing can be learned: a mount of ours, what a server does not tell, or
/// anything in a folder in which this user may not look. Only its kind is true.
fn hidden(found: FileType) -> Attributes {
    // Not that of a whiteout, which hides other files in a union.
    let kind = kind(found, Device { major: u32::MAX, minor: u32::MAX });
    let never = Time { seconds: 0, nanoseconds: 0 };
    Attributes {
        node: UNKNOWN,
        kind,
        mode: 0,
        uid: 0,
        gid: 0,
        links: 1,
        size: 0,
        blocks: 0,
        mtime: never,
        atime: never,
        ctime: never,
    }
}

impl Tree for FolderTree {
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        if matches!(name, b"" | b"." | b"..") || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
            return Err(Error::NotFound);
        }
        let folder = number(folder)?;
        let open = self.folder(folder, OFlags::PATH)?;
        let stat = look(open.as_fd(), name)?;
        self.hold(folder, name, &stat)
    }

    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        let folder = number(folder)?;
        if listing::is_end(from) {
            return Ok(());
        }
        let mut listing = match self.listings.take(folder, from) {
            Some(listing) => listing,
            None => match self.folder(folder, OFlags::RDONLY)? {
                Folder::Other(open) => Listing::new(folder, open, from)?,
                Folder::Root(_) => return Err(stale()),
            },
        };
        while let Some((entry, next)) = listing.next()? {
            let name = entry.file_name().to_bytes();
            let attributes = match look(listing.folder()?, name) {
                Ok(stat) => self.hold(folder, name, &stat)?,
                // Gone in between.
                Err(Error::NotFound) => {
                    listing.taken(next);
                    continue;
                }
                // Who asks for it is told why.
                Err(_) => hidden(entry.file_type()),
            };
            let node = attributes.node;
            if !receive(Child { name, attributes, next }) {
                self.forget(node, 1);
                listing.put_back(entry);
                self.listings.keep(listing);
                return Ok(());
            }
            listing.taken(next);
        }
        Ok(())
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        match self.find(node) {
            Ok(found) => Ok(attributes(node, &found.stat)),
            // Its name is gone, and somebody still has it open.
            Err(error) => match self.opened(node) {
                Some(file) => Ok(attributes(node, &ask(file.as_fd(), b"", AtFlags::empty())?)),
                None => Err(error),
            },
        }
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        if folder == Node::ROOT {
            return Ok(folder);
        }
        Ok(Node(self.numbers().place(number(folder)?)?.folder.into()))
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>, Error> {
        let held = held(&self.find(node)?)?;
        match readlinkat(held.as_fd(), c"", Vec::new()) {
            Ok(target) => Ok(target.into_bytes()),
            Err(Errno::INVAL | Errno::NOENT) => Err(Error::WrongKind),
            Err(error) => Err(error.into()),
        }
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        let held = held(&self.find(node)?)?;
        // The calls that take a descriptor need one that is open for reading, which a device must not be. Its link
        // leads to just that file, a symbolic link included.
        let path = format!("/proc/self/fd/{}", held.as_raw_fd());
        let names = match filled(|buffer| listxattr(&*path, buffer)) {
            Ok(names) => names,
            // None are kept there.
            Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut xattrs = Vec::new();
        for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            let value = filled(|buffer| getxattr(&*path, name, buffer));
            xattrs.extend(value_of(name, value)?.map(|value| (name.to_vec(), value)));
        }
        Ok(xattrs)
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        // The same bytes, whatever has become of its name.
        if let Some(file) = self.opened(node) {
            return Ok(self.shown(file));
        }
        let found = self.find(node)?;
        match FileType::from_raw_mode(found.stat.stx_mode.into()) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Error::IsAFolder),
            _ => return Err(Error::WrongKind),
        }
        // NONBLOCK: should it have become a fifo, nobody waits for its writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = openat(found.folder.as_fd(), &*found.name, flags, Mode::empty()).map_err(moved)?;
        if Identity::of(&ask(file.as_fd(), b"", AtFlags::STATX_DONT_SYNC)?) != found.identity {
            return Err(stale());
        }
        let file = Arc::new(FollowedFile::new(File::from(file), self.path.join(OsStr::from_bytes(&found.name)))?);
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if opened.len() == opened.capacity() {
            opened.retain(|_, file| file.strong_count() > 0);
        }
        opened.insert(number(node)?, Arc::downgrade(&file));
        drop(opened);
        Ok(self.shown(file))
    }

    fn owner_names(&self, _: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        Ok((Vec::new(), Vec::new()))
    }

    fn node_limit(&self) -> u64 {
        1 << 32
    }

    fn forget(&self, node: Node, times: u64) {
        if let Ok(node) = number(node) {
            self.numbers().forget(node, times);
        }
    }

    fn close_folder(&self, folder: Node) {
        if let Ok(folder) = number(folder) {
            self.listings.close(folder);
        }
    }

    fn lifetime(&self, _: Node) -> Lifetime {
        Lifetime::Short
    }

    /// Of the file system that the folder lies on: what is used of it.
    fn totals(&self) -> Totals {
        let any = Totals { has_xattrs: true, has_acls: true, ..Totals::default() };
        let Ok(found) = fstatvfs(&self.root) else { return any };
        Totals {
            nodes: found.f_files.saturating_sub(found.f_ffree),
            bytes: found.f_blocks.saturating_sub(found.f_bfree).saturating_mul(found.f_frsize),
            ..any
        }
    }

    fn waiting(&self) -> Option<&dyn Waiting> {
        Some(self)
    }
}

impl Waiting for FolderTree {
    /// All that is in it may have to wait for a server, and a thread that answers the kernel must not.
    fn is_ready(&self, _: Node) -> bool {
        !self.waits.any()
    }

    fn lane(&self, _: Node) -> u64 {
        self.lane
    }
}

/// What was found, open to be asked about, but not to be read: the same file, whoever renames it meanwhile.
fn held(found: &FoundNode<'_>) -> Result<OwnedFd, Error> {
    // Without a name, the dot is the folder.
    let name = if found.name.is_empty() { b"." } else { &*found.name };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = openat(found.folder.as_fd(), name, flags, Mode::empty()).map_err(moved)?;
    if Identity::of(&ask(held.as_fd(), b"", AtFlags::STATX_DONT_SYNC)?) != found.identity {
        return Err(stale());
    }
    Ok(held)
}

/// The value of the attribute `name`, if it has one. An access list that cannot be read is an error: who is told that
/// there is none lets everybody in whom it denies.
fn value_of(name: &[u8], read: Result<Vec<u8>, Errno>) -> Result<Option<Vec<u8>>, Error> {
    match read {
        Ok(value) => Ok(Some(value)),
        // It is gone, or its kind is not kept there.
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
        // It is not for this user.
        Err(Errno::ACCESS | Errno::PERM) if !name.starts_with(b"system.posix_acl_") => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What `read` puts into a buffer: a small one, or if that is too small the largest that it can need.
fn filled(mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut small = [0; 512];
    match read(&mut small) {
        Ok(length) => Ok(small[..length].to_vec()),
        Err(Errno::RANGE) => {
            let mut large = vec![0; MOST_XATTR];
            let length = read(&mut large)?;
            large.truncate(length);
            Ok(large)
        }
        Err(error) => Err(error),
    }
}
