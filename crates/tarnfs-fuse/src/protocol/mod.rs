//! The kernel's side of a mount: requests read from `/dev/fuse`, sorted by what they ask for, and the answers to them.
//!
//! Version 7 of the protocol, as `linux/fuse.h` describes it, for file systems that are read only but for files that
//! take what is written to them: what would change anything else is one operation, [`Filesystem::change`].

mod abi;
mod backing;
mod probe;
mod reply;
mod session;
mod spin;
mod turns;

use std::fs::File;
use std::sync::Arc;

pub(crate) use abi::{capability, open};
pub use backing::REQUESTS_FOR_BACKING_FILES;
pub(crate) use backing::{Backing, Backings};
pub use probe::{Offer, offer};
pub(crate) use reply::{
    Attributes, Keep, Reply, ReplyAttributes, ReplyData, ReplyEntry, ReplyFlush, ReplyNames, ReplyOpen, ReplySeek,
    ReplyStatfs, ReplyWrite, ReplyXattr, Totals,
};
pub(crate) use session::{STACK, Session};

/// What the kernel offers when the mount begins.
#[derive(Debug)]
pub(crate) struct Kernel {
    offered: u64,
    taken: u64,
    device: Arc<File>,
}

impl Kernel {
    /// Takes one of the [`capability`]s; false if this kernel lacks it.
    pub(crate) fn take(&mut self, capability: u64) -> bool {
        let has = self.offered & capability != 0;
        self.taken |= self.offered & capability;
        has
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
    /// The user who opens it, as this process sees users.
    pub(crate) user: u32,
}

/// Who answers. Each request comes with the right to answer it once, from any thread; dropped unanswered it would wait
/// for ever.
///
/// Nodes are the numbers that the file system itself has given to the kernel.
pub(crate) trait Filesystem: Folders + Reading + Writing + Send + Sync + 'static {
    /// Before all others.
    fn init(&mut self, kernel: &mut Kernel);
    fn statfs(&self, reply: ReplyStatfs);
    /// Device control, which files have none of.
    fn ioctl(&self, reply: Reply);
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
    fn flush(&self, node: u64, handle: u64, reply: ReplyFlush);
    fn release(&self, handle: u64, reply: Reply);
    fn read(&self, node: u64, handle: u64, offset: u64, size: u32, reply: ReplyData);
    fn lseek(&self, node: u64, handle: u64, offset: u64, whence: u32, reply: ReplySeek);
}

/// What would change something.
pub(crate) trait Writing {
    /// Bytes for a file that is open under `handle`. At which offset does not matter: what takes them is no store.
    fn write(&self, node: u64, handle: u64, bytes: &[u8], reply: ReplyWrite);
    /// A file that takes writes is to be emptied, as whoever opens one with `>` asks.
    fn truncate(&self, node: u64, reply: ReplyAttributes);
    /// Asked before something is done: whether `node` can be written to.
    fn access(&self, node: u64, to_write: bool, reply: Reply);
    /// Anything else that would change something.
    fn change(&self, reply: Reply);
}
