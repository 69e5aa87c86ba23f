//! The answers that each request can have, and the errors.

use std::fs::File;
use std::io::{self, IoSlice, Write as _};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use super::abi::{OUT_HEADER, Out};

/// The right to answer one request. Dropped without an answer, as by a panic on the way to it, it answers EIO: nobody
/// else could, and whoever waits could not even be killed.
#[derive(Debug)]
pub(crate) struct Reply {
    device: Arc<File>,
    /// The kernel's number for the request.
    unique: u64,
    /// There is no answer yet, and there is to be one.
    is_due: bool,
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.is_due {
            self.write(-Errno::IO.raw_os_error(), &[]);
        }
    }
}

/// How long the kernel may keep a name, and what its node is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Keep {
    pub(crate) name: Duration,
    pub(crate) attributes: Duration,
}

impl Keep {
    pub(crate) fn both(time: Duration) -> Self {
        Self { name: time, attributes: time }
    }
}

/// `struct fuse_attr`: what `stat(2)` shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) node: u64,
    /// In bytes.
    pub(crate) size: u64,
    /// In units of 512 bytes.
    pub(crate) blocks: u64,
    /// Seconds and nanoseconds.
    pub(crate) atime: (i64, u32),
    /// See `atime`.
    pub(crate) mtime: (i64, u32),
    /// See `atime`.
    pub(crate) ctime: (i64, u32),
    /// Kind and permissions.
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) device: u32,
}

/// `struct fuse_kstatfs`: totals of the file system.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Totals {
    /// Blocks of `unit` bytes, those that are free, and those that users get.
    pub(crate) blocks: u64,
    pub(crate) free: u64,
    pub(crate) available: u64,
    pub(crate) nodes: u64,
    pub(crate) free_nodes: u64,
    pub(crate) unit: u32,
    pub(crate) longest_name: u32,
}

impl Reply {
    pub(super) fn new(device: &Arc<File>, unique: u64) -> Self {
        Self { device: Arc::clone(device), unique, is_due: true }
    }

    /// That the kernel waits for no answer.
    pub(super) fn not_due(mut self) {
        self.is_due = false;
    }

    /// The kernel's number for the request.
    pub(crate) fn unique(&self) -> u64 {
        self.unique
    }

    pub(crate) fn error(mut self, error: Errno) {
        self.write(-error.raw_os_error(), &[]);
    }

    /// False if the kernel has not taken the answer.
    pub(super) fn send(mut self, body: &[u8]) -> bool {
        self.write(0, body)
    }

    /// That it is done.
    pub(crate) fn done(mut self) {
        self.write(0, &[]);
    }

    fn write(&mut self, error: i32, body: &[u8]) -> bool {
        self.is_due = false;
        let mut header = [0; OUT_HEADER];
        let length = (OUT_HEADER + body.len()) as u32;
        header[..4].copy_from_slice(&length.to_ne_bytes());
        header[4..8].copy_from_slice(&error.to_ne_bytes());
        header[8..].copy_from_slice(&self.unique.to_ne_bytes());
        // One call, as each call is one answer.
        let sent = with_memory(|| (&*self.device).write_vectored(&[IoSlice::new(&header), IoSlice::new(body)]));
        let Err(problem) = sent else { return true };
        // ENOENT: the request was interrupted, so nobody waits; ENODEV: unmounted; ECONNABORTED: aborted.
        let level = match problem.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => log::Level::Debug,
            _ => log::Level::Warn,
        };
        log::log!(level, "answering the kernel's request {}: {problem}", self.unique);
        // What the kernel does not take it still waits for.
        if error == 0 && matches!(problem.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::OutOfMemory) {
            self.write(-Errno::IO.raw_os_error(), &[]);
        }
        false
    }
}

/// Does `write`, again and again for a while as long as the kernel has no memory for that.
fn with_memory(mut write: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    /// How often, and how long between.
    const TRIES: u32 = 100;
    /// See [`TRIES`].
    const PAUSE: Duration = Duration::from_millis(10);
    for _ in 1..TRIES {
        match write() {
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => thread::sleep(PAUSE),
            done => return done,
        }
    }
    write()
}

macro_rules! replies {
    ($($(#[$doc:meta])* $name:ident)*) => {
        $($(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name(pub(super) Reply);

        impl From<$name> for Reply {
            fn from(reply: $name) -> Self {
                reply.0
            }
        }

        impl AsRef<Reply> for $name {
            fn as_ref(&self) -> &Reply {
                &self.0
            }
        })*
    };
}

replies! {
    /// An answer to `LOOKUP`, and to whatever makes a name.
    ReplyEntry
    /// An answer to `GETATTR` and `SETATTR`.
    ReplyAttributes
    /// Bytes.
    ReplyData
    /// An answer to `OPEN` and `OPENDIR`.
    ReplyOpen
    /// An answer to `GETXATTR` and `LISTXATTR`.
    ReplyXattr
    /// An answer to `STATFS`.
    ReplyStatfs
    /// An answer to `IOCTL`.
    ReplyIoctl
    /// An answer to `LSEEK`.
    ReplySeek
    /// An answer to `WRITE`.
    ReplyWrite
    /// An answer to `CREATE` and `TMPFILE`.
    ReplyCreated
    /// That it is done; there is nothing else to say.
    ReplyDone
}

impl ReplyEntry {
    /// A node that the kernel may `keep` for so long, or with node number 0 that there is none.
    /// False if the kernel has not taken it.
    pub(crate) fn entry(self, keep: Keep, attributes: &Attributes) -> bool {
        let mut out = Out::with_capacity(128);
        put_entry(&mut out, keep, attributes);
        self.0.send(&out.0)
    }
}

impl ReplyAttributes {
    pub(crate) fn attributes(self, keep: Duration, attributes: &Attributes) {
        let mut out = Out::with_capacity(104);
        out.u64(keep.as_secs()).u32(keep.subsec_nanos()).u32(0);
        put_attributes(&mut out, attributes);
        self.0.send(&out.0);
    }
}

impl ReplyData {
    pub(crate) fn data(self, data: &[u8]) {
        self.0.send(data);
    }
}

impl ReplyOpen {
    /// Opened under `handle`, with the [`flags`](super::open); with [`open::PASSTHROUGH`](super::open::PASSTHROUGH),
    /// `backing` is the number of the file that the kernel reads itself, else 0. False if nobody has opened it
    /// after all, so that nobody will release it.
    pub(crate) fn opened(self, handle: u64, flags: u32, backing: i32) -> bool {
        let mut out = Out::default();
        out.u64(handle).u32(flags).u32(backing as u32);
        self.0.send(&out.0)
    }
}

#[cfg(test)]
impl ReplyOpen {
    /// An answer to nobody: what it is written to is `device`.
    pub(crate) fn to(device: &Arc<File>) -> Self {
        Self(Reply::new(device, 7))
    }
}

#[cfg(test)]
impl ReplyData {
    /// As [`ReplyOpen::to`].
    pub(crate) fn to(device: &Arc<File>) -> Self {
        Self(Reply::new(device, 7))
    }
}

#[cfg(test)]
impl ReplySeek {
    /// As [`ReplyOpen::to`].
    pub(crate) fn to(device: &Arc<File>) -> Self {
        Self(Reply::new(device, 7))
    }
}

#[cfg(test)]
impl ReplyDone {
    /// As [`ReplyOpen::to`].
    pub(crate) fn to(device: &Arc<File>) -> Self {
        Self(Reply::new(device, 7))
    }
}

#[cfg(test)]
impl ReplyXattr {
    /// As [`ReplyOpen::to`].
    pub(crate) fn to(device: &Arc<File>) -> Self {
        Self(Reply::new(device, 7))
    }
}

impl ReplyXattr {
    /// A value for a caller with `room` bytes; with none it asks for the length.
    pub(crate) fn value(self, value: &[u8], room: u32) {
        match u32::try_from(value.len()) {
            Ok(length) if room == 0 => {
                let mut out = Out::default();
                out.u32(length).u32(0);
                self.0.send(&out.0);
            }
            Ok(length) if length <= room => {
                self.0.send(value);
            }
            Ok(_) => self.0.error(Errno::RANGE),
            Err(_) => self.0.error(Errno::TOOBIG),
        }
    }
}

impl ReplyIoctl {
    /// Bytes for a caller with `room` for them, who also gets their number.
    pub(crate) fn bytes(self, bytes: &[u8], room: u32) {
        match i32::try_from(bytes.len()) {
            Ok(length) if bytes.len() <= room as usize => {
                let mut out = Out::with_capacity(16 + bytes.len());
                out.u32(length as u32).zeros(12);
                out.0.extend_from_slice(bytes);
                self.0.send(&out.0);
            }
            _ => self.0.error(Errno::RANGE),
        }
    }
}

impl ReplyStatfs {
    pub(crate) fn totals(self, totals: Totals) {
        let mut out = Out::with_capacity(80);
        out.u64(totals.blocks).u64(totals.free).u64(totals.available).u64(totals.nodes).u64(totals.free_nodes);
        out.u32(totals.unit).u32(totals.longest_name).u32(totals.unit).zeros(28);
        self.0.send(&out.0);
    }
}

impl ReplyCreated {
    /// As [`ReplyEntry::entry`] and [`ReplyOpen::opened`] together. False if the kernel has taken neither.
    pub(crate) fn created(self, keep: Keep, attributes: &Attributes, handle: u64, flags: u32, backing: i32) -> bool {
        let mut out = Out::with_capacity(144);
        put_entry(&mut out, keep, attributes);
        out.u64(handle).u32(flags).u32(backing as u32);
        self.0.send(&out.0)
    }
}

impl ReplyDone {
    pub(crate) fn done(self) {
        self.0.done();
    }
}

impl ReplyWrite {
    /// So many bytes were taken.
    pub(crate) fn taken(self, bytes: u32) {
        let mut out = Out::default();
        out.u32(bytes).u32(0);
        self.0.send(&out.0);
    }
}

impl ReplySeek {
    pub(crate) fn offset(self, offset: u64) {
        self.0.send(&offset.to_ne_bytes());
    }
}

/// An answer to `READDIR` and `READDIRPLUS`: names are added until it is full.
#[derive(Debug)]
pub(crate) struct ReplyNames {
    reply: Reply,
    out: Out,
    room: usize,
    /// With attributes (`READDIRPLUS`).
    plus: bool,
}

impl ReplyNames {
    pub(super) fn new(reply: Reply, room: u32, plus: bool) -> Self {
        /// The kernel asks for at most this much.
        const MOST: usize = 1 << 20;
        let room = (room as usize).min(MOST);
        Self { reply, out: Out::with_capacity(room), room, plus }
    }

    /// False if the name does not fit any more. `next`: the position behind it; `attributes`: of which only the number
    /// and the kind are sent where the kernel did not ask for more. With node number 0 the kernel takes no more than
    /// the name and the kind, and looks for the rest when somebody asks.
    pub(crate) fn add(&mut self, name: &[u8], next: u64, keep: Keep, attributes: &Attributes) -> bool {
        const DIRENT: usize = 24;
        const ENTRY: usize = 128;
        /// The inode's number where it is not known, as libfuse has it. Programs take 0 for a name that is gone.
        const UNKNOWN_INODE: u64 = 0xffff_ffff;
        let length = (DIRENT + name.len()).next_multiple_of(8);
        let needed = if self.plus { ENTRY + length } else { length };
        if self.room - self.out.0.len() < needed {
            return false;
        }
        if self.plus {
            put_entry(&mut self.out, keep, attributes);
        }
        let kind = (attributes.mode & 0o170_000) >> 12;
        let inode = if attributes.node == 0 { UNKNOWN_INODE } else { attributes.node };
        self.out.u64(inode).u64(next).u32(name.len() as u32).u32(kind);
        self.out.0.extend_from_slice(name);
        self.out.zeros(length - DIRENT - name.len());
        true
    }

    /// Sends the names; none mean the end of the folder. False if the kernel will not forget what it was given here.
    pub(crate) fn done(self) -> bool {
        self.reply.send(&self.out.0) && self.plus
    }
}

impl From<ReplyNames> for Reply {
    fn from(names: ReplyNames) -> Self {
        names.reply
    }
}

impl AsRef<Reply> for ReplyNames {
    fn as_ref(&self) -> &Reply {
        &self.reply
    }
}

/// `struct fuse_entry_out`. All are of generation 0: a number is used again only once the kernel has forgotten it.
fn put_entry(out: &mut Out, keep: Keep, attributes: &Attributes) {
    let Keep { name, attributes: own } = keep;
    out.u64(attributes.node).u64(0);
    out.u64(name.as_secs()).u64(own.as_secs()).u32(name.subsec_nanos()).u32(own.subsec_nanos());
    put_attributes(out, attributes);
}

/// `struct fuse_attr`.
fn put_attributes(out: &mut Out, attributes: &Attributes) {
    /// What programs are told to read at once. They have the page cache before them: larger buffers only cost memory.
    const BLOCK_SIZE: u32 = 4096;
    let Attributes { node, size, blocks, atime, mtime, ctime, mode, links, uid, gid, device } = *attributes;
    out.u64(node).u64(size).u64(blocks);
    out.u64(atime.0 as u64).u64(mtime.0 as u64).u64(ctime.0 as u64);
    out.u32(atime.1).u32(mtime.1).u32(ctime.1);
    out.u32(mode).u32(links).u32(uid).u32(gid).u32(device).u32(BLOCK_SIZE).u32(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_has_no_memory_for_is_sent_again() {
        let mut left = 3;
        let sent = with_memory(|| {
            left -= 1;
            if left > 0 { Err(Errno::NOMEM.into()) } else { Ok(7) }
        });
        assert_eq!((sent.unwrap(), left), (7, 0));
        let mut calls = 0;
        let refused = with_memory(|| {
            calls += 1;
            Err(Errno::INVAL.into())
        });
        assert_eq!((refused.unwrap_err().raw_os_error(), calls), (Some(Errno::INVAL.raw_os_error()), 1));
    }
}
