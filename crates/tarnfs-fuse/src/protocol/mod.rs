//! The kernel's side of a mount: requests read from `/dev/fuse`, sorted by what they ask for, and the answers to them.
//!
//! Version 7 of the protocol, as `linux/fuse.h` describes it.

mod abi;
mod backing;
mod changes;
mod probe;
mod reply;
mod session;
mod spin;
mod turns;

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use rustix::fs::OFlags;

pub(crate) use abi::{capability, open};
pub use backing::REQUESTS_FOR_BACKING_FILES;
pub(crate) use backing::{Backing, Backings};
pub(crate) use changes::{Change, New, Stamp, Synced};
pub use probe::{Offer, offer};
pub(crate) use reply::{
    Attributes, Keep, Reply, ReplyAttributes, ReplyCreated, ReplyData, ReplyDone, ReplyEntry, ReplyIoctl, ReplyNames,
    ReplyOpen, ReplySeek, ReplyStatfs, ReplyWrite, ReplyXattr, Totals,
};
pub(crate) use session::{STACK, Session};

/// What the kernel offers when the mount begins.
#[derive(Debug)]
pub(crate) struct Kernel {
    offered: u64,
    taken: u64,
    /// The most bytes of a write, where that is more than the kernel insists on.
    most_written: Option<u32>,
    device: Arc<File>,
}

impl Kernel {
    /// Takes one of the [`capability`]s; false if this kernel lacks it.
    pub(crate) fn take(&mut self, capability: u64) -> bool {
        let has = self.offered & capability != 0;
        self.taken |= self.offered & capability;
        has
    }

    /// Takes writes of so many bytes at once, where this kernel has them.
    pub(crate) fn take_writes_of(&mut self, bytes: u32) {
        self.most_written = self.take(capability::BIG_WRITES).then_some(bytes);
    }

    /// Takes reading from open files of ours without asking us, where this kernel has it.
    pub(crate) fn take_passthrough(&mut self) -> Option<Backings> {
        self.take(capability::PASSTHROUGH).then(|| Backings::new(Arc::clone(&self.device)))
    }
}

/// How a file is opened, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct How {
    /// Also, or only, to write to it.
    pub(crate) to_write: bool,
    /// Whatever is written goes to its end.
    pub(crate) appends: bool,
    /// Where it is made, there must not be one yet.
    pub(crate) is_exclusive: bool,
    /// The user who opens it, as this process sees users.
    pub(crate) user: u32,
}

impl How {
    /// With the `flags` of `open(2)`.
    fn new(flags: u32, user: u32) -> Self {
        let flags = OFlags::from_bits_retain(flags);
        Self {
            to_write: flags.intersects(OFlags::ACCMODE | OFlags::TRUNC),
            appends: flags.contains(OFlags::APPEND),
            is_exclusive: flags.contains(OFlags::EXCL),
            user,
        }
    }
}

/// Who answers. Each request comes with the right to answer it once, from any thread; dropped unanswered it would wait
/// for ever.
///
/// Nodes are the numbers that the file system itself has given to the kernel.
pub(crate) trait Filesystem: Folders + Reading + Writing + Send + Sync + 'static {
    /// Before all others.
    fn init(&mut self, kernel: &mut Kernel);
    fn statfs(&self, reply: ReplyStatfs);
    /// Device control: `command` is to give as many bytes as there is `room` for, or fewer.
    fn ioctl(&self, node: u64, command: u32, room: u32, reply: ReplyIoctl);
    /// Anything else; told once that it is not there the kernel does without.
    fn other(&self, reply: Reply);
    /// Whoever waits for the answer to the request of this number has got a signal. False if it is not being worked on.
    fn interrupt(&self, unique: u64) -> bool;
    /// Answering a request has panicked; `told` says where.
    fn panicked(&self, told: &str);
    /// True while requests wait for something else than these threads: then the processors are needed there.
    fn is_busy(&self) -> bool;
    /// From now on (no more) whoever calls must not wait for what the others may be waiting for.
    fn all_are_stuck(&self, are_stuck: bool);
}

/// Names in folders, and what is known of a node.
pub(crate) trait Folders {
    fn lookup(&self, folder: u64, name: &[u8], reply: ReplyEntry);
    fn getattr(&self, node: u64, reply: ReplyAttributes);
    fn readlink(&self, node: u64, reply: ReplyData);
    /// The kernel needs `node` no more, as often as `times` answers have named it.
    fn forget(&self, node: u64, times: u64);
    fn opendir(&self, node: u64, reply: ReplyOpen);
    fn releasedir(&self, node: u64, reply: Reply);
    /// `READDIR` and `READDIRPLUS`, from the position `offset` on.
    fn readdir(&self, folder: u64, offset: u64, reply: ReplyNames);
    /// A value, for a caller with `room` bytes; with 0 it asks for the length.
    fn getxattr(&self, node: u64, name: &[u8], room: u32, reply: ReplyXattr);
    /// As [`Folders::getxattr`]: the names, each with a zero byte behind it.
    fn listxattr(&self, node: u64, room: u32, reply: ReplyXattr);
}

/// Files, and what is in them.
pub(crate) trait Reading {
    fn open(&self, node: u64, how: How, reply: ReplyOpen);
    /// Somebody closes one of the descriptors of `handle`, and waits for the answer.
    fn flush(&self, node: u64, handle: u64, reply: ReplyDone);
    fn release(&self, handle: u64, reply: Reply);
    fn read(&self, node: u64, handle: u64, offset: u64, size: u32, reply: ReplyData);
    fn lseek(&self, node: u64, handle: u64, offset: u64, whence: u32, reply: ReplySeek);
}

/// What would change something.
pub(crate) trait Writing {
    /// Makes anything but a file that is opened at once.
    fn make(&self, folder: u64, name: &[u8], new: New<'_>, reply: ReplyEntry);
    /// Makes a file, without a name if there is none, and opens it.
    fn create(&self, folder: u64, name: Option<&[u8]>, new: New<'_>, how: How, reply: ReplyCreated);
    fn link(&self, node: u64, folder: u64, name: &[u8], reply: ReplyEntry);
    /// Removes the name of a folder, or that of something else.
    fn remove(&self, folder: u64, name: &[u8], is_folder: bool, reply: ReplyDone);
    /// With the `flags` of `renameat2(2)`.
    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), flags: u32, reply: ReplyDone);
    /// Of a node that may be open under `handle`.
    fn set_attributes(&self, node: u64, handle: Option<u64>, change: Change, reply: ReplyAttributes);
    /// Bytes for a file that is open under `handle`.
    fn write(&self, node: u64, handle: u64, offset: u64, bytes: &[u8], reply: ReplyWrite);
    fn sync(&self, node: u64, what: Synced, data_only: bool, reply: ReplyDone);
    /// With the `mode` of `fallocate(2)`.
    fn allocate(&self, node: u64, handle: u64, range: Range<u64>, mode: u32, reply: ReplyDone);
    /// With the `flags` of `setxattr(2)`.
    fn set_xattr(&self, node: u64, name: &[u8], value: &[u8], flags: u32, reply: ReplyDone);
    fn remove_xattr(&self, node: u64, name: &[u8], reply: ReplyDone);
    /// Bytes are to be copied from file to file without being read.
    fn copy(&self, reply: Reply);
    /// Asked before something is done: whether `node` can be written to.
    fn access(&self, node: u64, to_write: bool, reply: Reply);
}
