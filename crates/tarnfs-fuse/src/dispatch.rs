//! Operation in, tree called, reply out.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use tarnfs_source::{SharedSource, Source};
use tarnfs_tree::{Error, Node, Totals, Tree};

use crate::attributes;
use crate::deadline::{Deadlines, Refuse, Ticket};
use crate::guard;
use crate::listing::{self, Listing, Terms};
use crate::opened::Opened;
use crate::options::Overrides;
use crate::statistics::Operation;
use crate::workers::Workers;

/// How long the kernel keeps what never changes: 136 years. (Larger numbers overflow its clock on some machines.)
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

/// How long it keeps what may change.
const FOR_NOW: Duration = Duration::from_secs(1);

/// The largest request: 256 pages, the most that the kernel allows unless told otherwise.
const MOST_BYTES: u32 = 1 << 20;

/// Reads ahead that the kernel may have waiting. Its default of 12 is too few to keep all cores decoding.
const MOST_AHEAD: u16 = 64;

/// The one unit of `statfs`, so that programs that confuse fragment and block size are right too.
const STATFS_UNIT: u32 = 512;

/// The longest target of a symbolic link that the kernel takes: a page less its end.
const MOST_LINK: usize = 4095;

/// The longest name of an extended attribute; an empty one makes the kernel refuse the whole list (`XATTR_NAME_MAX`).
const MOST_XATTR_NAME: usize = 255;

/// `whence` of `lseek(2)`, as the kernel sends it.
const SEEK_DATA: i32 = 3;
/// See [`SEEK_DATA`].
const SEEK_HOLE: i32 = 4;

/// A tree as the kernel sees it.
pub(crate) struct Dispatcher {
    tree: Arc<dyn Tree>,
    totals: Totals,
    terms: Terms,
    /// True if the kernel checks permissions itself.
    default_permissions: bool,
    /// True if the kernel need not open files, folders.
    no_open: bool,
    no_opendir: bool,
    opened: Opened,
    workers: Workers,
    deadlines: Arc<Deadlines>,
}

/// An answer, or the error number that goes in its place.
type Answer<T> = Result<T, Errno>;

/// The kernel's number for a tree's error.
fn errno(error: &Error) -> Errno {
    Errno::from_i32(error.errno().raw_os_error())
}

impl Dispatcher {
    pub(crate) fn new(
        tree: Arc<dyn Tree>,
        default_permissions: bool,
        overrides: Overrides,
        workers: Workers,
        deadlines: Arc<Deadlines>,
    ) -> Self {
        let totals = tree.totals();
        let keep = if totals.is_immutable { FOR_EVER } else { FOR_NOW };
        Self {
            tree,
            totals,
            terms: Terms { keep, overrides },
            default_permissions,
            no_open: false,
            no_opendir: false,
            opened: Opened::new((!totals.is_immutable).then_some(FOR_NOW)),
            workers,
            deadlines,
        }
    }

    /// The whole way of most requests: `work` asks the tree, `send` answers.
    fn serve<R: Refuse, T>(
        &self,
        operation: Operation,
        node: INodeNo,
        reply: R,
        work: impl FnOnce() -> Answer<T>,
        send: impl FnOnce(R, T),
    ) {
        let ticket = self.deadlines.begin(operation, node.0, reply);
        match self.attempt(operation, node, work) {
            Ok(value) => ticket.answer(|reply| send(reply, value)),
            Err(errno) => ticket.refuse(errno),
        }
    }

    /// Does `work`; a panic is EIO.
    fn attempt<T>(&self, operation: Operation, node: INodeNo, work: impl FnOnce() -> Answer<T>) -> Answer<T> {
        guard::catch(work).unwrap_or_else(|told| {
            self.deadlines.panicked(operation, node.0, &told);
            Err(Errno::EIO)
        })
    }

    /// Refuses what would change something. The mount is read-only, so this takes a remount by root.
    fn refuse_write(&self, reply: impl FnOnce(Errno)) {
        self.deadlines.counters.count(Operation::Write);
        reply(Errno::EROFS);
    }

    /// Refuses what the kernel then does itself, and for good.
    fn refuse_once(&self, operation: Operation, reply: impl FnOnce(Errno)) {
        self.deadlines.counters.count(operation);
        reply(Errno::ENOSYS);
    }

    fn kernel_attributes(&self, node: Node) -> Answer<FileAttr> {
        let attributes = self.tree.attributes(node).map_err(|error| errno(&error))?;
        Ok(attributes::to_kernel(&attributes, self.terms.overrides))
    }

    /// The child `name`; node number 0, which the kernel keeps too, if there is none. `.` and `..` come from file handles of an NFS server.
    fn child(&self, folder: Node, name: &OsStr) -> Answer<FileAttr> {
        match name.as_bytes() {
            b"." => self.kernel_attributes(folder),
            b".." => self.kernel_attributes(self.tree.parent(folder).map_err(|error| errno(&error))?),
            name => match self.tree.lookup(folder, name) {
                Ok(attributes) => Ok(attributes::to_kernel(&attributes, self.terms.overrides)),
                Err(Error::NotFound) => Ok(attributes::bare_folder(0)),
                Err(error) => Err(errno(&error)),
            },
        }
    }

    fn list<R: Listing>(&self, folder: INodeNo, offset: u64, reply: R) {
        let ticket = self.deadlines.begin(Operation::ReadDir, folder.0, reply);
        let filled = self.attempt(Operation::ReadDir, folder, || {
            listing::fill(&*self.tree, Node(folder.0), offset, self.terms, &ticket).map_err(|error| errno(&error))
        });
        match filled {
            Ok(()) => ticket.answer(Listing::done),
            Err(errno) => ticket.refuse(errno),
        }
    }

    /// A value for a caller with `size` bytes of room; with none it asks for the length.
    fn send_sized(reply: ReplyXattr, value: &[u8], size: u32) {
        match u32::try_from(value.len()) {
            Ok(length) if size == 0 => reply.size(length),
            Ok(length) if length <= size => reply.data(value),
            Ok(_) => reply.error(Errno::ERANGE),
            Err(_) => reply.error(Errno::E2BIG),
        }
    }

    fn open_source(&self, node: INodeNo) -> Answer<SharedSource> {
        self.opened.get(&*self.tree, Node(node.0)).map_err(|error| errno(&error))
    }

    fn seek(&self, node: INodeNo, offset: i64, whence: i32) -> Answer<i64> {
        let source = self.open_source(node)?;
        let offset = u64::try_from(offset).ok().filter(|&offset| offset < source.len()).ok_or(Errno::ENXIO)?;
        let found = match whence {
            SEEK_DATA => source.next_data(offset).ok_or(Errno::ENXIO)?,
            SEEK_HOLE => source.next_hole(offset),
            _ => return Err(Errno::EINVAL),
        };
        i64::try_from(found).map_err(|_| Errno::EOVERFLOW)
    }
}

/// Reads `size` bytes at `offset`, fewer only at the end of `source`, and answers with them.
fn answer_read(
    deadlines: &Deadlines,
    node: INodeNo,
    source: &dyn Source,
    offset: u64,
    size: u32,
    ticket: Ticket<ReplyData>,
) {
    thread_local! {
        /// Kept, because clearing a fresh one costs as much as reading into it.
        static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    BUFFER.with_borrow_mut(|buffer| {
        let size = size.min(MOST_BYTES) as usize;
        if buffer.len() < size {
            buffer.resize(size, 0);
        }
        let buffer = &mut buffer[..size];
        match guard::catch(|| read_fully(source, buffer, offset)) {
            Ok(Ok(read)) => {
                deadlines.counters.bytes_read.add(read as u64);
                ticket.answer(|reply| reply.data(&buffer[..read]));
            }
            Ok(Err(error)) => {
                deadlines.failed(node.0, offset, &error);
                ticket.refuse(errno(&Error::Io(error)));
            }
            Err(told) => {
                deadlines.panicked(Operation::Read, node.0, &told);
                ticket.refuse(Errno::EIO);
            }
        }
    });
}

/// Fills `buffer`, or what of it lies before the end of `source`. The kernel takes fewer bytes for the end of the file, so what was read
/// before an error must not be handed on.
fn read_fully(source: &dyn Source, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let wanted = source.len().saturating_sub(offset).min(buffer.len() as u64) as usize;
    let mut done = 0;
    while done < wanted {
        match source.read_at(&mut buffer[done..wanted], offset + done as u64)? {
            0 => {
                let ends = format!("{}: ends at byte {}", source.describe(), offset + done as u64);
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, ends));
            }
            read => done += read,
        }
    }
    Ok(done)
}

impl Filesystem for Dispatcher {
    fn init(&mut self, _: &Request, kernel: &mut KernelConfig) -> io::Result<()> {
        // What this kernel lacks is left out, one by one.
        let mut grant = |capability| kernel.add_capabilities(capability).is_ok();
        // Without its automatic mode, which falls back to asking for one name after the other.
        grant(InitFlags::FUSE_DO_READDIRPLUS);
        grant(InitFlags::FUSE_PARALLEL_DIROPS);
        grant(InitFlags::FUSE_EXPORT_SUPPORT);
        grant(InitFlags::FUSE_ASYNC_DIO);
        if self.totals.is_immutable {
            grant(InitFlags::FUSE_CACHE_SYMLINKS);
            self.no_open = grant(InitFlags::FUSE_NO_OPEN_SUPPORT);
            self.no_opendir = grant(InitFlags::FUSE_NO_OPENDIR_SUPPORT);
        }
        if self.totals.has_acls && self.default_permissions {
            grant(InitFlags::FUSE_POSIX_ACL);
        }
        // Also bounds the buffers into which requests are read; a read may be as large.
        let _ = kernel.set_max_write(MOST_BYTES);
        let _ = kernel.set_max_background(MOST_AHEAD);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let child = || self.child(Node(parent.0), name);
        self.serve(Operation::Lookup, parent, reply, child, |reply, child| {
            reply.entry(&self.terms.keep, &child, Generation(0));
        });
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let attributes = || self.kernel_attributes(Node(node.0));
        self.serve(Operation::Attributes, node, reply, attributes, |reply, found| reply.attr(&self.terms.keep, &found));
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        let target = || match self.tree.read_link(Node(node.0)) {
            Ok(target) if target.len() > MOST_LINK => Err(Errno::ENAMETOOLONG),
            target => target.map_err(|error| errno(&error)),
        };
        self.serve(Operation::ReadLink, node, reply, target, |reply, target| reply.data(&target));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.no_open {
            return self.refuse_once(Operation::Open, |errno| reply.error(errno));
        }
        self.deadlines.counters.count(Operation::Open);
        let keep = if self.totals.is_immutable { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() };
        reply.opened(FileHandle(0), keep | FopenFlags::FOPEN_NOFLUSH);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.no_opendir {
            return self.refuse_once(Operation::Open, |errno| reply.error(errno));
        }
        self.deadlines.counters.count(Operation::Open);
        let keep = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR;
        reply.opened(FileHandle(0), if self.totals.is_immutable { keep } else { FopenFlags::empty() });
    }

    fn readdir(&self, _: &Request, node: INodeNo, _: FileHandle, offset: u64, reply: ReplyDirectory) {
        self.list(node, offset, reply);
    }

    fn readdirplus(&self, _: &Request, node: INodeNo, _: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        self.list(node, offset, reply);
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let ticket = self.deadlines.begin(Operation::Read, node.0, reply);
        let opened = self.attempt(Operation::Read, node, || {
            let source = self.open_source(node)?;
            let ready = source.is_ready(offset, size as usize);
            Ok((source, ready))
        });
        match opened {
            Ok((source, true)) => answer_read(&self.deadlines, node, &*source, offset, size, ticket),
            Ok((source, false)) => {
                self.deadlines.counters.handed_on.add(1);
                let deadlines = Arc::clone(&self.deadlines);
                self.workers.submit(node.0, move || {
                    if ticket.is_wanted() {
                        answer_read(&deadlines, node, &*source, offset, size, ticket);
                    }
                });
            }
            Err(errno) => ticket.refuse(errno),
        }
    }

    fn lseek(&self, _: &Request, node: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        self.serve(Operation::Seek, node, reply, || self.seek(node, offset, whence), ReplyLseek::offset);
    }

    fn statfs(&self, _: &Request, node: INodeNo, reply: ReplyStatfs) {
        self.serve(
            Operation::Statfs,
            node,
            reply,
            || Ok(self.tree.totals()),
            |reply, totals| {
                let blocks = totals.bytes.div_ceil(u64::from(STATFS_UNIT));
                reply.statfs(blocks, 0, 0, totals.nodes, 0, STATFS_UNIT, 255, STATFS_UNIT);
            },
        );
    }

    fn getxattr(&self, _: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if !self.totals.has_xattrs {
            return self.refuse_once(Operation::Xattr, |errno| reply.error(errno));
        }
        let value = || {
            let all = self.tree.xattrs(Node(node.0)).map_err(|error| errno(&error))?;
            all.into_iter().find(|(key, _)| key == name.as_bytes()).map(|(_, value)| value).ok_or(Errno::ENODATA)
        };
        self.serve(Operation::Xattr, node, reply, value, |reply, value| Self::send_sized(reply, &value, size));
    }

    fn listxattr(&self, _: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        if !self.totals.has_xattrs {
            return self.refuse_once(Operation::Xattr, |errno| reply.error(errno));
        }
        let names = || {
            let all = self.tree.xattrs(Node(node.0)).map_err(|error| errno(&error))?;
            let fits = |name: &Vec<u8>| (1..=MOST_XATTR_NAME).contains(&name.len()) && !name.contains(&0);
            let names = all.into_iter().map(|(name, _)| name).filter(fits);
            Ok(names.flat_map(|name| name.into_iter().chain([0])).collect::<Vec<u8>>())
        };
        self.serve(Operation::Xattr, node, reply, names, |reply, names| Self::send_sized(reply, &names, size));
    }

    // What the kernel does well without us: it stops asking.

    fn access(&self, _: &Request, _: INodeNo, _: fuser::AccessFlags, reply: ReplyEmpty) {
        self.refuse_once(Operation::Other, |errno| reply.error(errno));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.refuse_once(Operation::Other, |errno| reply.error(errno));
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.refuse_once(Operation::Other, |errno| reply.error(errno));
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.refuse_once(Operation::Other, |errno| reply.error(errno));
    }

    fn bmap(&self, _: &Request, _: INodeNo, _: u32, _: u64, reply: fuser::ReplyBmap) {
        self.refuse_once(Operation::Other, |errno| reply.error(errno));
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: fuser::IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: fuser::ReplyIoctl,
    ) {
        self.deadlines.counters.count(Operation::Other);
        reply.error(Errno::ENOTTY);
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: fuser::PollNotifier,
        _: fuser::PollEvents,
        _: fuser::PollFlags,
        reply: fuser::ReplyPoll,
    ) {
        self.refuse_once(Operation::Other, |errno| reply.error(errno));
    }

    // What would change something.

    fn setattr(
        &self,
        _: &Request,
        _: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.refuse_write(|errno| reply.error(errno));
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        self.refuse_write(|errno| reply.error(errno));
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        self.refuse_write(|errno| reply.error(errno));
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        self.refuse_write(|errno| reply.error(errno));
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        self.refuse_write(|errno| reply.error(errno));
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _: &Path, reply: ReplyEntry) {
        self.refuse_write(|errno| reply.error(errno));
    }

    fn rename(&self, _: &Request, _: INodeNo, _: &OsStr, _: INodeNo, _: &OsStr, _: RenameFlags, reply: ReplyEmpty) {
        self.refuse_write(|errno| reply.error(errno));
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        self.refuse_write(|errno| reply.error(errno));
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.refuse_write(|errno| reply.error(errno));
    }

    fn create(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        self.refuse_write(|errno| reply.error(errno));
    }

    fn setxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: &[u8], _: i32, _: u32, reply: ReplyEmpty) {
        self.refuse_write(|errno| reply.error(errno));
    }

    fn removexattr(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        self.refuse_write(|errno| reply.error(errno));
    }

    fn fallocate(&self, _: &Request, _: INodeNo, _: FileHandle, _: u64, _: u64, _: i32, reply: ReplyEmpty) {
        self.refuse_write(|errno| reply.error(errno));
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: fuser::CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        self.refuse_write(|errno| reply.error(errno));
    }
}
