//! One read: where its bytes come from, and who fetches them.

use std::io;

use rustix::io::Errno;
use tarnfs_source::{SharedSource, Source};
use tarnfs_tree::Error;

use super::{Answer, Questions};
use crate::buffers::{self, Buffer};
use crate::deadline::Ticket;
use crate::protocol::ReplyData;

/// Bytes of `node`, which may be open under `handle`, that the kernel waits for.
pub(super) struct Wanted {
    pub(super) node: u64,
    pub(super) handle: u64,
    pub(super) offset: u64,
    pub(super) size: u32,
    pub(super) ticket: Ticket<ReplyData>,
}

/// What is left to do for a read by a thread that may wait.
pub(super) enum Left {
    /// All: to find the file, something has to be opened, or memory to be waited for.
    All(Wanted),
    /// The bytes of what was found have to be fetched.
    Bytes(Wanted, SharedSource),
}

impl Left {
    /// Does it.
    pub(super) fn answer(self, asks: &Questions) {
        match self {
            Self::All(wanted) => wanted.answer(asks),
            Self::Bytes(wanted, source) => wanted.wait_for(asks, &*source),
        }
    }
}

impl Wanted {
    /// By a thread that must not wait: what is left if something has to be waited for.
    pub(super) fn answer_at_once(self, asks: &Questions) -> Option<Left> {
        match self.ticket.attempt(|| self.find(asks)) {
            Ok((source, true)) => self.fetch(asks, &*source, buffers::take_at_once()),
            Ok((source, false)) => return Some(Left::Bytes(self, source)),
            Err(Errno::NOMEM) => return Some(Left::All(self)),
            Err(errno) => self.ticket.refuse(errno),
        }
        None
    }

    /// Where they are, and whether they can be had at once.
    fn find(&self, asks: &Questions) -> Answer<(SharedSource, bool)> {
        let source = asks.source(self.node, self.handle)?;
        let is_ready = source.is_ready(self.offset, self.size as usize);
        Ok((source, is_ready))
    }

    /// By a thread that may wait.
    fn answer(self, asks: &Questions) {
        let source = || asks.with_memory(&self.ticket, &|asks| asks.source(self.node, self.handle));
        match self.ticket.attempt(source) {
            Ok(source) => self.wait_for(asks, &*source),
            Err(errno) => self.ticket.refuse(errno),
        }
    }

    /// Waits for a buffer and for the bytes, as long as somebody wants them.
    fn wait_for(self, asks: &Questions, source: &dyn Source) {
        if !self.ticket.is_wanted() {
            return;
        }
        let buffer = buffers::take();
        if self.ticket.is_wanted() {
            self.fetch(asks, source, buffer);
        }
    }

    /// Answers with the bytes.
    fn fetch(self, asks: &Questions, source: &dyn Source, mut buffer: Buffer) {
        match self.ticket.catch(|| buffer.fill(source, self.offset, self.size)) {
            Ok(Ok(bytes)) => {
                asks.deadlines.counters.bytes_read.add(bytes.len() as u64);
                self.ticket.answer(|reply| reply.data(bytes));
            }
            Ok(Err(error)) => self.refuse(asks, error),
            Err(errno) => self.ticket.refuse(errno),
        }
    }

    /// Answers that they cannot be had, and logs why.
    fn refuse(self, asks: &Questions, error: io::Error) {
        let error = Error::Io(error);
        // The answer first: who writes the log may be slow.
        self.ticket.refuse(error.errno());
        if let Error::Io(error) = error {
            asks.deadlines.failed(&*asks.tree, self.node, self.offset, &error);
        }
    }
}
