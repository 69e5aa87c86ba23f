//! Files: opened, read and closed.

use std::sync::Arc;

use rustix::io::Errno;
use tarnfs_source::SharedSource;
use tarnfs_tree::{Node, WritableFile};

use super::bytes::{Left, Wanted};
use super::{Answer, Dispatcher, Given, Questions, told};
use crate::closing;
use crate::handles::Opening;
use crate::protocol::{How, Reading, Reply, ReplyData, ReplyDone, ReplyOpen, ReplySeek, open};
use crate::statistics::Operation;

/// `whence` of `lseek(2)`, as the kernel sends it.
pub(super) const SEEK_DATA: u32 = 3;
/// See [`SEEK_DATA`].
const SEEK_HOLE: u32 = 4;

/// A file that was opened.
pub(super) enum OpenFile {
    /// To read it; and whether it is not verified yet.
    Read(SharedSource, bool),
    /// To write to it.
    Written(Arc<dyn WritableFile>),
}

impl Questions {
    /// Opens `node`.
    pub(super) fn open(&self, node: u64, how: How) -> Answer<OpenFile> {
        if how.to_write {
            return told(self.edit()?.open_to_write(Node(node), how.appends)).map(OpenFile::Written);
        }
        let source = self.opened.open(&*self.tree, Node(node)).map_err(|error| self.cannot_open(node, &error))?;
        let is_unproven = source.is_unproven();
        Ok(OpenFile::Read(source, is_unproven))
    }

    /// A handle for what was opened.
    pub(super) fn hold(&self, node: u64, file: OpenFile) -> Opening {
        let lifetime = self.tree.lifetime(Node(node));
        match file {
            OpenFile::Read(source, is_unproven) => {
                let takes_writes = self.tree.edit().is_some_and(|edit| edit.may_change(Node(node)));
                let opening = self.handles.open(node, source, lifetime, takes_writes);
                Opening { flags: self.unproven.flags(node, is_unproven, opening.flags) | open::NOFLUSH, ..opening }
            }
            OpenFile::Written(file) => self.handles.open_to_write(node, file, lifetime),
        }
    }

    fn seek(&self, node: u64, handle: u64, offset: u64, whence: u32) -> Answer<u64> {
        let source = self.source(node, handle)?;
        match whence {
            // Behind the end there are none. A file whose length cannot be asked for may say that it has none left.
            SEEK_DATA => source.next_data(offset).ok_or(Errno::NXIO),
            _ if offset >= source.len() => Err(Errno::NXIO),
            SEEK_HOLE => Ok(source.next_hole(offset)),
            _ => Err(Errno::INVAL),
        }
    }
}

impl Dispatcher {
    /// Of a tree that never changes, and of which all is verified: the kernel keeps what it has of it.
    fn open_for_ever(&self, reply: ReplyOpen) {
        self.count(Operation::Open);
        reply.opened(0, open::KEEP_CACHE | open::NOFLUSH, 0);
    }

    /// Of one that never changes, where the kernel must not keep what is not verified yet.
    fn open_if_proven(&self, node: u64, reply: ReplyOpen) {
        let is_unproven = move |asks: &Questions| Ok(asks.source(node, 0)?.is_unproven());
        self.ask(Operation::Open, node, reply, is_unproven, move |asks, reply, is_unproven| {
            let flags = asks.unproven.flags(node, is_unproven, open::KEEP_CACHE);
            reply.opened(0, flags | open::NOFLUSH, 0);
        });
    }

    /// Of one that may change: what is opened stays as it is, under a handle of its own.
    fn open_under_handle(&self, node: u64, how: How, reply: ReplyOpen) {
        let may_open = self.may_open(node, how);
        let is_ready = if how.to_write { self.changes_at_once(node) } else { self.is_ready(node) };
        let ticket = self.begin(Operation::Open, node, reply);
        let open = move |asks: &Questions| may_open.and_then(|()| asks.open(node, how));
        self.ask_with(is_ready, ticket, open, move |asks, reply, file| send_open(asks, reply, (node, how, file)));
    }
}

/// Answers with a handle for a file that was opened.
fn send_open(asks: &Questions, reply: ReplyOpen, (node, how, file): (u64, How, OpenFile)) {
    let opening = asks.hold(node, file);
    let given = Given::new(asks, Vec::new()).with_handle(asks, opening.handle);
    if how.to_write {
        asks.handles.forget_attributes(node);
    }
    given.sent(reply.opened(opening.handle, opening.flags, opening.backing));
}

impl Reading for Dispatcher {
    fn open(&self, node: u64, how: How, reply: ReplyOpen) {
        if self.terms.no_open {
            return self.refuse_once(Operation::Open, reply);
        }
        match (self.totals.is_immutable, self.totals.is_unproven) {
            (true, false) => self.open_for_ever(reply),
            (true, true) => self.open_if_proven(node, reply),
            (false, _) => self.open_under_handle(node, how, reply),
        }
    }

    fn flush(&self, node: u64, handle: u64, reply: ReplyDone) {
        if self.asks.tree.edit().is_none() {
            return self.refuse_once(Operation::Other, reply);
        }
        let ticket = self.begin(Operation::Other, node, reply);
        match self.asks.handles.writable(handle) {
            None => ticket.answer(ReplyDone::done),
            Some(file) if file.writes_at_once() => closing::flush(&*file, ticket),
            Some(file) => self.later(node, move |_| closing::flush(&*file, ticket)),
        }
    }

    fn release(&self, handle: u64, reply: Reply) {
        if let Some(closed) = self.asks.handles.close(handle) {
            // To close a file of a server may take as long as to open it.
            if closed.is_ready().unwrap_or_else(|| self.is_ready(closed.node())) {
                drop(closed);
            } else {
                self.later(closed.node(), move |_| drop(closed));
            }
        }
        reply.done();
    }

    fn read(&self, node: u64, handle: u64, offset: u64, size: u32, reply: ReplyData) {
        let bytes = offset..offset.saturating_add(size.into());
        let Some(ticket) = self.asks.deadlines.begin_read(node, bytes, reply) else { return };
        let wanted = Wanted { node, handle, offset, size, ticket };
        // To find it an archive may have to be opened.
        let waits = self.must_not_wait() || self.asks.handles.get(handle).is_none() && !self.is_ready(node);
        let left = if waits { Some(Left::All(wanted)) } else { wanted.answer_at_once(&self.asks) };
        if let Some(left) = left {
            self.later(node, move |asks| left.answer(asks));
        }
    }

    fn lseek(&self, node: u64, handle: u64, offset: u64, whence: u32, reply: ReplySeek) {
        let seek = move |asks: &Questions| asks.seek(node, handle, offset, whence);
        self.ask(Operation::Seek, node, reply, seek, |_, reply, offset| reply.offset(offset));
    }
}
