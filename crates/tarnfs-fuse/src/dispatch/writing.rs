//! What changes something. Where the tree is for reading only, that takes a remount by root, and is refused.

use std::ops::Range;

use rustix::fs::{FallocateFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use tarnfs_tree::edit::{Allocation, Change, New, Renaming, Setting};
use tarnfs_tree::{Attributes, Edit, Node, WritableFile};

use super::reading::OpenFile;
use super::{Answer, Dispatcher, Given, GivenName, Questions, send_attributes, send_name, told};
use crate::attributes;
use crate::deadline::{Refuse, Ticket};
use crate::protocol::{
    self, Filesystem as _, How, Reply, ReplyAttributes, ReplyCreated, ReplyDone, ReplyEntry, ReplyWrite, Synced,
    Writing,
};
use crate::statistics::Operation;

impl Questions {
    /// What changes the tree.
    pub(super) fn edit(&self) -> Answer<&dyn Edit> {
        self.tree.edit().ok_or(Errno::ROFS)
    }

    fn made(&self, folder: u64, attributes: &Attributes) -> GivenName {
        (self.named(Node(folder), attributes), Given::new(self, vec![attributes.node]))
    }
}

impl Dispatcher {
    /// True if the tree as a whole can be changed, and not only what is there to control the mount.
    pub(super) fn is_writable(&self) -> bool {
        self.may_change(Node::ROOT.0)
    }

    fn may_change(&self, node: u64) -> bool {
        self.asks.tree.edit().is_some_and(|edit| edit.may_change(Node(node)))
    }

    /// True if to change `node` is done, or refused, at once.
    pub(super) fn changes_at_once(&self, node: u64) -> bool {
        self.asks.tree.edit().is_none_or(|edit| edit.changes_at_once(Node(node)))
    }

    /// Whoever serves a mount is controlled by that user and by root alone, also where the kernel does not look at
    /// modes.
    pub(super) fn may_open(&self, node: u64, how: How) -> Answer<()> {
        let is_own = self.asks.tree.edit().is_some_and(|edit| edit.is_own(Node(node)));
        if is_own && how.user != 0 && how.user != rustix::process::geteuid().as_raw() {
            return Err(Errno::ACCESS);
        }
        Ok(())
    }

    /// Has `work` change `node`, or what is in it, by a thread that may wait if that takes one.
    fn change<R: Refuse, T>(
        &self,
        node: u64,
        reply: R,
        work: impl Fn(&Questions, &dyn Edit) -> Answer<T> + Send + 'static,
        send: impl FnOnce(&Questions, R, T) + Send + 'static,
    ) {
        let is_ready = self.changes_at_once(node);
        let ticket = self.begin(Operation::Write, node, reply);
        let work = move |asks: &Questions| work(asks, asks.edit()?);
        self.ask_with(is_ready, ticket, work, send);
    }

    /// Nothing can be changed.
    fn refuse(&self, reply: Reply) {
        self.count(Operation::Write);
        reply.error(Errno::ROFS);
    }

    /// Has `work` do something with the file that is open under `handle`.
    fn with_file(
        &self,
        node: u64,
        handle: u64,
        reply: ReplyDone,
        work: impl Fn(&dyn WritableFile) -> Answer<()> + Send + 'static,
    ) {
        let ticket = self.begin(Operation::Write, node, reply);
        let Some(file) = self.asks.handles.writable(handle) else { return ticket.refuse(Errno::BADF) };
        let is_ready = file.writes_at_once();
        let work = move |_: &Questions| work(&*file);
        self.ask_with(is_ready, ticket, work, send_done);
    }
}

/// Answers that something was done.
fn send_done(_: &Questions, reply: ReplyDone, (): ()) {
    reply.done();
}

/// A file that is to be made, and opened.
struct NewFile {
    folder: Node,
    /// Without one it is not in the folder.
    name: Option<Vec<u8>>,
    /// `None` if there is nothing of its kind.
    new: Option<New>,
    how: How,
}

/// A file that was made and opened, and its node until the kernel knows it.
struct Created {
    made: Attributes,
    file: OpenFile,
    given: Given,
}

impl NewFile {
    /// Makes it.
    fn create(&self, asks: &Questions, edit: &dyn Edit) -> Answer<Created> {
        let made = self.make(edit)?;
        let given = Given::new(asks, vec![made.node]);
        // Whoever is told that it failed, and the kernel, take it that nothing was made.
        let file = asks.open(made.node.0, self.how).inspect_err(|_| self.unmake(edit))?;
        Ok(Created { made, file, given })
    }

    fn make(&self, edit: &dyn Edit) -> Answer<Attributes> {
        let new = self.new.as_ref().ok_or(Errno::INVAL)?;
        let made = match &self.name {
            Some(name) => told(edit.make(self.folder, name, new)),
            None => told(edit.make_unnamed(self.folder, new)),
        };
        // Somebody was quicker. Told so, the kernel looks again, and opens what is there.
        let is_late = |errno| errno == Errno::EXIST && !self.how.is_exclusive;
        made.map_err(|errno| if is_late(errno) { Errno::STALE } else { errno })
    }

    fn unmake(&self, edit: &dyn Edit) {
        drop(self.name.as_ref().map(|name| edit.remove(self.folder, name, false)));
    }
}

impl Created {
    /// Answers with the file, which is in `folder`.
    fn send(self, asks: &Questions, reply: ReplyCreated, folder: Node) {
        let Self { made, file, given } = self;
        // First: how long the kernel keeps what it is told goes by who may write to it.
        let opening = asks.hold(made.node.0, file);
        let given = given.with_handle(asks, opening.handle);
        let (keep, found) = asks.named(folder, &made);
        given.sent(reply.created(keep, &found, opening.handle, opening.flags, opening.backing));
    }
}

/// Bytes for an open file.
struct Write<B> {
    offset: u64,
    bytes: B,
    ticket: Ticket<ReplyWrite>,
}

impl<B: AsRef<[u8]>> Write<B> {
    /// Writes them to `file`, and answers how many it has taken.
    fn to(self, file: &dyn WritableFile) {
        let Self { offset, bytes, ticket } = self;
        if !ticket.is_wanted() {
            return;
        }
        let taken = ticket.attempt(|| told(ticket.asks_for(|| file.write_at(bytes.as_ref(), offset))));
        ticket.settle(taken, |reply, taken| reply.taken(taken.min(bytes.as_ref().len()) as u32));
    }
}

/// Gives an open `file` the length that is in `change`, and takes that out: what is open can be cut also where it has
/// no name any more. True if that was all.
fn cut(file: &dyn WritableFile, change: &mut Change) -> Answer<bool> {
    let Some(size) = change.size.take() else { return Ok(false) };
    told(file.set_len(size))?;
    Ok(*change == Change::default())
}

/// What becomes of a name, by the `flags` of `renameat2(2)`. To leave a whiteout is a thing of layers of file systems.
fn renaming(flags: u32) -> Answer<Renaming> {
    match RenameFlags::from_bits_retain(flags) {
        RenameFlags::NOREPLACE => Ok(Renaming::Spares),
        RenameFlags::EXCHANGE => Ok(Renaming::Exchanges),
        flags if flags.is_empty() => Ok(Renaming::Replaces),
        _ => Err(Errno::INVAL),
    }
}

/// By the `flags` of `setxattr(2)`.
fn setting(flags: u32) -> Answer<Setting> {
    match XattrFlags::from_bits_retain(flags) {
        XattrFlags::CREATE => Ok(Setting::Adds),
        XattrFlags::REPLACE => Ok(Setting::Replaces),
        flags if flags.is_empty() => Ok(Setting::Any),
        _ => Err(Errno::INVAL),
    }
}

/// What becomes of a range, and whether the file keeps its length, by the `mode` of `fallocate(2)`.
fn allocation(mode: u32) -> Answer<(Allocation, bool)> {
    let flags = FallocateFlags::from_bits_retain(mode);
    let what = match flags.difference(FallocateFlags::KEEP_SIZE) {
        FallocateFlags::PUNCH_HOLE => Allocation::Punches,
        FallocateFlags::ZERO_RANGE => Allocation::Zeroes,
        flags if flags.is_empty() => Allocation::Reserves,
        _ => return Err(Errno::OPNOTSUPP),
    };
    Ok((what, flags.contains(FallocateFlags::KEEP_SIZE)))
}

impl Writing for Dispatcher {
    fn make(&self, folder: u64, name: &[u8], new: protocol::New<'_>, reply: ReplyEntry) {
        let (name, new) = (name.to_vec(), attributes::new(new));
        let make = move |asks: &Questions, edit: &dyn Edit| {
            let new = new.as_ref().ok_or(Errno::INVAL)?;
            Ok(asks.made(folder, &told(edit.make(Node(folder), &name, new))?))
        };
        self.change(folder, reply, make, send_name);
    }

    fn create(&self, folder: u64, name: Option<&[u8]>, new: protocol::New<'_>, how: How, reply: ReplyCreated) {
        let (name, new) = (name.map(<[u8]>::to_vec), attributes::new(new));
        let file = NewFile { folder: Node(folder), name, new, how };
        let create = move |asks: &Questions, edit: &dyn Edit| file.create(asks, edit);
        self.change(folder, reply, create, move |asks, reply, created| created.send(asks, reply, Node(folder)));
    }

    fn link(&self, node: u64, folder: u64, name: &[u8], reply: ReplyEntry) {
        let name = name.to_vec();
        let link = move |asks: &Questions, edit: &dyn Edit| {
            Ok(asks.made(folder, &told(edit.link(Node(node), Node(folder), &name))?))
        };
        self.change(folder, reply, link, send_name);
    }

    fn remove(&self, folder: u64, name: &[u8], is_folder: bool, reply: ReplyDone) {
        let name = name.to_vec();
        let remove = move |_: &Questions, edit: &dyn Edit| told(edit.remove(Node(folder), &name, is_folder));
        self.change(folder, reply, remove, send_done);
    }

    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), flags: u32, reply: ReplyDone) {
        let [(folder, name), (into, new)] = [from, to].map(|(folder, name)| (Node(folder), name.to_vec()));
        let rename =
            move |_: &Questions, edit: &dyn Edit| told(edit.rename((folder, &name), (into, &new), renaming(flags)?));
        self.change(folder.0, reply, rename, send_done);
    }

    fn set_attributes(&self, node: u64, handle: Option<u64>, change: protocol::Change, reply: ReplyAttributes) {
        let change = attributes::change(change);
        let file = handle.and_then(|handle| self.asks.handles.writable(handle));
        let set = move |asks: &Questions, edit: &dyn Edit| {
            let mut left = change;
            let was_all = file.as_deref().map_or(Ok(false), |file| cut(file, &mut left))?;
            let changed = if was_all { asks.tree.attributes(Node(node)) } else { edit.change(Node(node), &left) };
            told(changed)
        };
        self.change(node, reply, set, |asks, reply, found| send_attributes(asks, reply, asks.found(&found)));
    }

    fn write(&self, node: u64, handle: u64, offset: u64, bytes: &[u8], reply: ReplyWrite) {
        let ticket = self.begin(Operation::Write, node, reply);
        match self.asks.handles.writable(handle) {
            None => ticket.refuse(Errno::ROFS),
            Some(file) if file.writes_at_once() => Write { offset, bytes, ticket }.to(&*file),
            Some(file) => {
                // This thread takes the next request into the same memory.
                let write = Write { offset, bytes: bytes.to_vec(), ticket };
                self.later(node, move |_| write.to(&*file));
            }
        }
    }

    fn sync(&self, node: u64, what: Synced, data_only: bool, reply: ReplyDone) {
        let sync = move |_: &Questions, edit: &dyn Edit| told(edit.sync(Node(node), data_only));
        match what {
            _ if self.asks.tree.edit().is_none() => self.other(reply.into()),
            Synced::File(handle) if self.asks.handles.writable(handle).is_some() => {
                self.with_file(node, handle, reply, move |file| told(file.sync(data_only)));
            }
            // A folder, or a file that is open to read it: others may have written to it.
            Synced::File(_) | Synced::Folder => self.change(node, reply, sync, send_done),
        }
    }

    fn allocate(&self, node: u64, handle: u64, range: Range<u64>, mode: u32, reply: ReplyDone) {
        if self.asks.tree.edit().is_none() {
            return self.refuse(reply.into());
        }
        self.with_file(node, handle, reply, move |file| {
            let (what, keeps_length) = allocation(mode)?;
            told(file.allocate(what, range.clone(), keeps_length))
        });
    }

    fn set_xattr(&self, node: u64, name: &[u8], value: &[u8], flags: u32, reply: ReplyDone) {
        let (name, value) = (name.to_vec(), value.to_vec());
        let set =
            move |_: &Questions, edit: &dyn Edit| told(edit.set_xattr(Node(node), &name, &value, setting(flags)?));
        self.change(node, reply, set, send_done);
    }

    fn remove_xattr(&self, node: u64, name: &[u8], reply: ReplyDone) {
        let name = name.to_vec();
        let remove = move |_: &Questions, edit: &dyn Edit| told(edit.remove_xattr(Node(node), &name));
        self.change(node, reply, remove, send_done);
    }

    fn copy(&self, reply: Reply) {
        // The kernel then reads and writes.
        if self.is_writable() { self.other(reply) } else { self.refuse(reply) }
    }

    fn access(&self, node: u64, to_write: bool, reply: Reply) {
        if self.asks.tree.edit().is_none() {
            return self.other(reply);
        }
        self.count(Operation::Other);
        if to_write && !self.may_change(node) {
            return reply.error(Errno::ROFS);
        }
        reply.done();
    }
}
