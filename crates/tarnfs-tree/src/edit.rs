//! Trees that can be changed.
//!
//! [`Edit`] changes names and what is known of nodes, [`WritableFile`] the content of a file that somebody has open. A
//! tree that can be changed is not immutable ([`crate::Totals::is_immutable`]), and shows a change at once: to who asks
//! again, and to who has opened the file before ([`crate::Tree::open`]).

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rustix::io::Errno;
use tarnfs_source::Source;

use crate::{Attributes, Error, Kind, Node, Time};

/// What is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct New {
    /// What it is, with the number of a device.
    pub kind: Kind,
    /// Permission bits as they were asked for.
    pub mode: u32,
    /// Those that are not set, unless the folder has a list of who may access what is made in it.
    pub umask: u32,
    /// Who makes it. In a folder that hands on its group (setgid), that is the group of the new one, too.
    pub uid: u32,
    /// See `uid`.
    pub gid: u32,
    /// Of a symbolic link; else empty.
    pub target: Vec<u8>,
}

/// What of a node is to become something else; the rest stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// Permission bits with setuid, setgid and sticky.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length of a file: it is cut, or filled up with zeros.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<Time>,
    /// Last change of the content.
    pub mtime: Option<Time>,
}

/// What a disk has room for, as `statvfs` says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes of a block; never 0.
    pub unit: u32,
    /// Blocks in all, those that are free, and those that users get.
    pub blocks: u64,
    /// See `blocks`.
    pub free: u64,
    /// See `blocks`.
    pub available: u64,
    /// Files that there can be, and how many more.
    pub nodes: u64,
    /// See `nodes`.
    pub free_nodes: u64,
}

/// What becomes of something that has the new name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renaming {
    /// It goes, as with `rename(2)`.
    Replaces,
    /// It stays, and nothing is renamed (EEXIST).
    Spares,
    /// It gets the old name; there must be something.
    Exchanges,
}

/// Whether there is an extended attribute of that name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// It does not matter.
    Any,
    /// There must be none (EEXIST).
    Adds,
    /// There must be one (ENODATA).
    Replaces,
}

/// What becomes of a range of a file ([`WritableFile::allocate`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocation {
    /// There is room for it: what is written there later does not fail for want of it.
    Reserves,
    /// It is a hole.
    Punches,
    /// It is zeros.
    Zeroes,
}

/// Changes the tree of which it is ([`crate::Tree::edit`]). Each method is one system call, with its errors, and what
/// has no body of its own is refused: the tree is for reading only there.
///
/// Who is given the [`Attributes`] of something new knows its node, as by a look-up ([`crate::Tree::forget`]). Whether
/// somebody may do what he asks for is not asked here. What only asks (`may_change`, `is_own`, `changes_at_once`) never
/// waits.
///
/// A change says when it begins ([`crate::asker`]): who has asked for it may have got an error meanwhile.
pub trait Edit: Send + Sync {
    /// False if nothing of `node` can be changed, nor anything in it. The root can if the tree as a whole is to be
    /// written to.
    fn may_change(&self, node: Node) -> bool;

    /// True for nodes that belong to the control of the mount: their owner and mode are who may control it, whatever
    /// else the mount shows of others.
    fn is_own(&self, node: Node) -> bool {
        let _ = node;
        false
    }

    /// True if to change `node`, or what is in it, waits for nothing, not even for a disk. Else it is done by a thread
    /// that may wait.
    fn changes_at_once(&self, node: Node) -> bool {
        let _ = node;
        false
    }

    /// What there is room for. `None` where nothing can be made.
    fn space(&self) -> Option<Result<Space, Error>> {
        None
    }

    /// Makes `name` in `folder`, where there is nothing of that name yet.
    fn make(&self, folder: Node, name: &[u8], new: &New) -> Result<Attributes, Error> {
        let _ = (folder, name, new);
        Err(Error::ReadOnly)
    }

    /// Makes a file without a name, near those in `folder`: `link` may give it one, else it goes when nobody knows it
    /// any more. (`O_TMPFILE`)
    fn make_unnamed(&self, folder: Node, new: &New) -> Result<Attributes, Error> {
        let _ = (folder, new);
        Err(Error::ReadOnly)
    }

    /// Gives `node`, which is no folder, one more name.
    fn link(&self, node: Node, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        let _ = (node, folder, name);
        Err(Error::ReadOnly)
    }

    /// Removes a name; with `is_folder` that of an empty folder, else that of anything else. What somebody has open can
    /// be read and written to its end.
    fn remove(&self, folder: Node, name: &[u8], is_folder: bool) -> Result<(), Error> {
        let _ = (folder, name, is_folder);
        Err(Error::ReadOnly)
    }

    /// Gives what has the name `from` the name `to`, each a name in a folder. The node stays the same.
    fn rename(&self, from: (Node, &[u8]), to: (Node, &[u8]), how: Renaming) -> Result<(), Error> {
        let _ = (from, to, how);
        Err(Error::ReadOnly)
    }

    /// Changes what is known of `node`; all of it, or nothing.
    fn change(&self, node: Node, change: &Change) -> Result<Attributes, Error> {
        let _ = (node, change);
        Err(Error::ReadOnly)
    }

    /// Sets an extended attribute.
    fn set_xattr(&self, node: Node, name: &[u8], value: &[u8], how: Setting) -> Result<(), Error> {
        let _ = (node, name, value, how);
        Err(Error::ReadOnly)
    }

    /// Removes one that must be there (ENODATA).
    fn remove_xattr(&self, node: Node, name: &[u8]) -> Result<(), Error> {
        let _ = (node, name);
        Err(Error::ReadOnly)
    }

    /// The content of a regular file, for somebody who writes to it, perhaps always at its end (`appends`). Dropped, it
    /// is closed.
    fn open_to_write(&self, node: Node, appends: bool) -> Result<Arc<dyn WritableFile>, Error> {
        let _ = (node, appends);
        Err(Error::ReadOnly)
    }

    /// Waits until the names in a folder would survive a loss of power, or the content of a file that is open to read.
    fn sync(&self, node: Node, data_only: bool) -> Result<(), Error> {
        let _ = (node, data_only);
        Ok(())
    }
}

/// A file that somebody has open to write to it, and perhaps to read. Its bytes change as they are written.
pub trait WritableFile: Source {
    /// Writes `bytes` at `offset`, of which there may lie nothing before, and returns how many were taken: fewer only
    /// where there is no room for the others.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Cuts it, or fills it up with zeros.
    fn set_len(&self, length: u64) -> io::Result<()>;

    /// Waits until what was written would survive a loss of power; with `data_only` perhaps not its times.
    fn sync(&self, data_only: bool) -> io::Result<()>;

    /// Makes something of the bytes in `range`. Unless it `keeps_length` the file is as long as the range reaches, at
    /// least.
    fn allocate(&self, what: Allocation, range: Range<u64>, keeps_length: bool) -> io::Result<()> {
        let _ = (what, range, keeps_length);
        Err(Errno::OPNOTSUPP.into())
    }

    /// True if who closes a descriptor of it waits for something ([`flush`](Self::flush)).
    fn is_waited_for(&self) -> bool {
        false
    }

    /// Somebody closes one of the descriptors that he has of it, and waits for what this returns. It is asked once for
    /// each.
    fn flush(&self) -> io::Result<Vec<Pending>> {
        Ok(Vec::new())
    }

    /// True if to write to it waits for nothing. Else it is done by a thread that may wait.
    fn writes_at_once(&self) -> bool {
        false
    }
}

/// Something that goes on after it was asked for.
#[derive(Debug)]
pub struct Pending(Receiver<()>);

/// Kept by who does it, for as long as it takes.
#[derive(Debug)]
pub struct Token(#[allow(dead_code, reason = "its end is what counts")] Sender<()>);

impl Pending {
    /// Something that ends with the token.
    pub fn new() -> (Token, Self) {
        let (token, pending) = channel();
        (Token(token), Self(pending))
    }

    /// True if it is done, for which it waits so long.
    pub fn is_done(&self, patience: Duration) -> bool {
        !matches!(self.0.recv_timeout(patience), Err(RecvTimeoutError::Timeout))
    }
}
