//! Files: opened, read and closed.

use std::io;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tarnfs_source::{SharedSource, Source};
use tarnfs_tree::edit::Pending;
use tarnfs_tree::{Error, Node, WritableFile};

use super::{Answer, Dispatcher, Questions, attempt, errno, told};
use crate::buffers::{self, Buffer, MOST_BYTES};
use crate::deadline::{Refuse, Ticket, lock};
use crate::guard;
use crate::handles::Opening;
use crate::protocol::{How, Reading, Reply, ReplyData, ReplyDone, ReplyOpen, ReplySeek, open};
use crate::statistics::Operation;

/// How long a file is waited for that takes more memory than others have left.
const PATIENCE: Duration = Duration::from_secs(50);

/// How often is looked whether they have given it back.
const LOOK: Duration = Duration::from_millis(5);

/// `whence` of `lseek(2)`, as the kernel sends it.
pub(super) const SEEK_DATA: u32 = 3;
/// See [`SEEK_DATA`].
const SEEK_HOLE: u32 = 4;

/// How long who waits for what a file still does, does so before it looks whether somebody still wants to know.
const NAP: Duration = Duration::from_millis(100);

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

    /// What `node` holds, of which `handle` may be open.
    fn source(&self, node: u64, handle: u64) -> Answer<SharedSource> {
        match self.handles.get(handle) {
            Some(source) => Ok(source),
            None => self.opened.get(&*self.tree, Node(node)).map_err(|error| self.cannot_open(node, &error)),
        }
    }

    fn cannot_open(&self, node: u64, error: &Error) -> Errno {
        let errno = errno(error);
        if let Error::Io(error) = error
            // It is tried again.
            && errno != Errno::NOMEM
        {
            self.deadlines.failed(&*self.tree, node, 0, error);
        }
        errno
    }

    /// Does `work`, which opens `node`: again and again while others have the memory that it takes, and somebody wants
    /// its answer. Not on a thread that answers the kernel.
    pub(super) fn with_memory<R: Refuse, T>(
        &self,
        node: u64,
        ticket: &Ticket<R>,
        work: &dyn Fn(&Self) -> Answer<T>,
    ) -> Answer<T> {
        let begin = Instant::now();
        loop {
            match work(self) {
                Err(Errno::NOMEM) if !ticket.is_wanted() => return Err(Errno::INTR),
                Err(Errno::NOMEM) if begin.elapsed() < PATIENCE => thread::sleep(LOOK),
                Err(Errno::NOMEM) => {
                    self.deadlines.failed(&*self.tree, node, 0, &Errno::NOMEM.into());
                    return Err(Errno::NOMEM);
                }
                done => return done,
            }
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

/// Somebody closes `file`, and goes on when what it still does is done.
fn answer_flush(asks: &Questions, node: u64, file: &dyn WritableFile, ticket: Ticket<ReplyDone>) {
    let flush = || file.flush().map_err(|error| errno(&error.into()));
    match attempt(&asks.deadlines, Operation::Other, node, flush) {
        Ok(pending) if pending.is_empty() => ticket.answer(ReplyDone::done),
        Ok(pending) => answer_after(pending, asks.deadlines.limit().mul_f64(0.8), ticket),
        Err(errno) => ticket.refuse(errno),
    }
}

/// Answers when all that is `pending` is done, or after `limit`, which is before the deadline. A thread of its own
/// waits.
fn answer_after(pending: Vec<Pending>, limit: Duration, ticket: Ticket<ReplyDone>) {
    let ticket = Arc::new(Mutex::new(Some(ticket)));
    let answer = |ticket: &Mutex<Option<Ticket<ReplyDone>>>| {
        if let Some(ticket) = lock(ticket).take() {
            ticket.answer(ReplyDone::done);
        }
    };
    let waiting = Arc::clone(&ticket);
    let wait = move || {
        let begun = Instant::now();
        let is_wanted = || lock(&waiting).as_ref().is_some_and(Ticket::is_wanted);
        for one in pending {
            while begun.elapsed() < limit && is_wanted() && !one.is_done(NAP) {}
        }
        answer(&waiting);
    };
    let builder = thread::Builder::new().name("tarnfs-closing".to_owned()).stack_size(256 << 10);
    if builder.spawn(wait).is_err() {
        answer(&ticket);
    }
}

/// Reads `size` bytes at `offset`, fewer only at the end of `source`, and answers with them.
fn answer_read(
    asks: &Questions,
    node: u64,
    source: &dyn Source,
    offset: u64,
    size: u32,
    mut buffer: Buffer,
    ticket: Ticket<ReplyData>,
) {
    let deadlines = &*asks.deadlines;
    let buffer = &mut buffer[..MOST_BYTES.min(size as usize)];
    match guard::catch(|| read_fully(source, buffer, offset)) {
        Ok(Ok(read)) => {
            deadlines.counters.bytes_read.add(read as u64);
            ticket.answer(|reply| reply.data(&buffer[..read]));
        }
        Ok(Err(error)) => {
            // The answer first: who writes the log may be slow.
            let error = Error::Io(error);
            ticket.refuse(errno(&error));
            if let Error::Io(error) = error {
                deadlines.failed(&*asks.tree, node, offset, &error);
            }
        }
        Err(told) => {
            deadlines.panicked(Operation::Read, node, &told);
            ticket.refuse(Errno::IO);
        }
    }
}

/// Fills `buffer`, or what of it lies before the end of `source`. The kernel takes fewer bytes for the end of the file,
/// so what was read before an error must not be handed on.
fn read_fully(source: &dyn Source, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let wanted = source.len().saturating_sub(offset).min(buffer.len() as u64) as usize;
    let mut done = 0;
    while done < wanted {
        match source.read_at(&mut buffer[done..wanted], offset + done as u64)? {
            // It was cut short meanwhile, which only what may change can be.
            0 if source.len() <= offset + done as u64 => break,
            0 => {
                let ends = format!("{}: ends at byte {}", source.describe(), offset + done as u64);
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, ends));
            }
            read if read > wanted - done => {
                let what = format!("{}: returned more than was asked for", source.describe());
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            read => done += read,
        }
    }
    Ok(done)
}

impl Reading for Dispatcher {
    fn open(&self, node: u64, how: How, reply: ReplyOpen) {
        if self.no_open {
            return self.refuse_once(Operation::Open, reply);
        }
        if self.totals.is_immutable && !self.totals.is_unproven {
            self.deadlines.counters.count(Operation::Open);
            reply.opened(0, open::KEEP_CACHE | open::NOFLUSH, 0);
            return;
        }
        if self.totals.is_immutable {
            let is_unproven = move |asks: &Questions| Ok(asks.source(node, 0)?.is_unproven());
            return self.ask(Operation::Open, node, reply, is_unproven, move |asks, reply, is_unproven| {
                let flags = asks.unproven.flags(node, is_unproven, open::KEEP_CACHE);
                reply.opened(0, flags | open::NOFLUSH, 0);
            });
        }
        let may_open = self.may_open(node, how);
        let is_ready = if how.to_write { self.changes_at_once(node) } else { self.is_ready(node) };
        let ticket = self.deadlines.begin(Operation::Open, node, reply);
        let open = move |asks: &Questions| may_open.and_then(|()| asks.open(node, how));
        self.ask_with(Operation::Open, node, is_ready, ticket, open, move |asks, reply, file| {
            let opening = asks.hold(node, file);
            if how.to_write {
                asks.handles.forget_attributes(node);
            }
            if !reply.opened(opening.handle, opening.flags, opening.backing) {
                drop(asks.handles.close(opening.handle));
            }
        });
    }

    fn flush(&self, node: u64, handle: u64, reply: ReplyDone) {
        if self.asks.tree.edit().is_none() {
            // The kernel asks no more.
            return self.refuse_once(Operation::Other, reply);
        }
        let ticket = self.deadlines.begin(Operation::Other, node, reply);
        match self.asks.handles.writable(handle) {
            None => ticket.answer(ReplyDone::done),
            Some(file) if file.writes_at_once() => answer_flush(&self.asks, node, &*file, ticket),
            Some(file) => self.later(node, move |asks| answer_flush(asks, node, &*file, ticket)),
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
        let Some(ticket) = self.deadlines.begin_read(node, bytes, reply) else { return };
        let answer = move |asks: &Questions, source: &dyn Source, ticket: Ticket<ReplyData>| {
            if !ticket.is_wanted() {
                return;
            }
            let buffer = buffers::take();
            if ticket.is_wanted() {
                answer_read(asks, node, source, offset, size, buffer, ticket);
            }
        };
        let open = move |asks: &Questions, ticket: Ticket<ReplyData>| {
            let source = || asks.with_memory(node, &ticket, &|asks| asks.source(node, handle));
            match attempt(&asks.deadlines, Operation::Read, node, source) {
                Ok(source) => answer(asks, &*source, ticket),
                Err(errno) => ticket.refuse(errno),
            }
        };
        // To find it an archive may have to be opened.
        if self.must_not_wait() || self.asks.handles.get(handle).is_none() && !self.is_ready(node) {
            return self.later(node, move |asks| open(asks, ticket));
        }
        let opened = self.attempt(Operation::Read, node, || {
            let source = self.asks.source(node, handle)?;
            let ready = source.is_ready(offset, size as usize);
            Ok((source, ready))
        });
        match opened {
            Ok((source, true)) => {
                answer_read(&self.asks, node, &*source, offset, size, buffers::take_at_once(), ticket);
            }
            Ok((source, false)) => self.later(node, move |asks| answer(asks, &*source, ticket)),
            // It may have to be waited for.
            Err(Errno::NOMEM) => self.later(node, move |asks| open(asks, ticket)),
            Err(errno) => ticket.refuse(errno),
        }
    }

    fn lseek(&self, node: u64, handle: u64, offset: u64, whence: u32, reply: ReplySeek) {
        let seek = move |asks: &Questions| asks.seek(node, handle, offset, whence);
        self.ask(Operation::Seek, node, reply, seek, |_, reply, offset| reply.offset(offset));
    }
}
