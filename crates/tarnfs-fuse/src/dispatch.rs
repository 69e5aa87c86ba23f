//! Operation in, tree called, reply out.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tarnfs_source::{SharedSource, Source};
use tarnfs_tree::{Error, Node, Totals, Tree};

use crate::attributes;
use crate::buffers::{self, Buffer, MOST_BYTES};
use crate::deadline::{Deadlines, Refuse, Ticket, lock};
use crate::guard;
use crate::handles::Handles;
use crate::listing::{self, Terms};
use crate::opened::Opened;
use crate::options::Parsed;
use crate::protocol::{
    Attributes, Filesystem, How, Kernel, Reply, ReplyAttributes, ReplyData, ReplyEntry, ReplyFlush, ReplyNames,
    ReplyOpen, ReplySeek, ReplyStatfs, ReplyWrite, ReplyXattr, Totals as KernelTotals, capability, open,
};
use crate::statistics::{ATTRIBUTE, Operation};
use crate::unproven::Unproven;
use crate::workers::{self, Workers};

/// How long the kernel keeps what never changes: 136 years. (Larger numbers overflow its clock on some machines.)
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

/// How long it keeps what may change.
const FOR_NOW: Duration = Duration::from_secs(1);

/// How long a file is waited for that takes more memory than others have left.
const PATIENCE: Duration = Duration::from_secs(50);

/// How often is looked whether they have given it back.
const LOOK: Duration = Duration::from_millis(5);

/// The one unit of `statfs`, so that programs that confuse fragment and block size are right too.
const STATFS_UNIT: u32 = 512;

/// The longest target of a symbolic link that the kernel takes: a page less its end.
const MOST_LINK: usize = 4095;

/// The longest name of an extended attribute; an empty one makes the kernel refuse the whole list (`XATTR_NAME_MAX`).
const MOST_XATTR_NAME: usize = 255;

/// `whence` of `lseek(2)`, as the kernel sends it.
const SEEK_DATA: u32 = 3;
/// See [`SEEK_DATA`].
const SEEK_HOLE: u32 = 4;

/// How long who waits for a command does so before it looks whether somebody still wants to know.
const NAP: Duration = Duration::from_millis(100);

/// A tree as the kernel sees it.
#[allow(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub(crate) struct Dispatcher {
    asks: Questions,
    totals: Totals,
    /// True if the kernel checks permissions itself.
    default_permissions: bool,
    /// True if the kernel is to ask for extended attributes.
    has_xattrs: bool,
    /// True if the kernel need not open files, folders.
    no_open: bool,
    no_opendir: bool,
    /// Threads that answer the kernel wait for something: whoever does so now must ask the tree nothing that may have
    /// to be waited for as well, not even whether it has.
    all_are_stuck: AtomicBool,
    workers: Workers,
    deadlines: Arc<Deadlines>,
}

/// What the tree is asked, by whichever thread.
#[derive(Clone)]
struct Questions {
    tree: Arc<dyn Tree>,
    terms: Terms,
    handles: Arc<Handles>,
    opened: Arc<Opened>,
    unproven: Arc<Unproven>,
    deadlines: Arc<Deadlines>,
}

/// What is known of a node, and how long the kernel may keep it.
type KnownAttributes = (Duration, Attributes);

/// An answer, or the error number that goes in its place.
type Answer<T> = Result<T, Errno>;

/// The kernel's number for a tree's error.
fn errno(error: &Error) -> Errno {
    error.errno()
}

impl Dispatcher {
    pub(crate) fn new(tree: Arc<dyn Tree>, options: &Parsed, workers: Workers, deadlines: Arc<Deadlines>) -> Self {
        let totals = tree.totals();
        let keep = if totals.is_immutable { FOR_EVER } else { FOR_NOW };
        let asks = Questions {
            tree,
            terms: Terms { keep, overrides: options.overrides },
            handles: Arc::new(Handles::new()),
            opened: Arc::new(Opened::new((!totals.is_immutable).then_some(FOR_NOW))),
            unproven: Arc::default(),
            deadlines: Arc::clone(&deadlines),
        };
        Self {
            asks,
            totals,
            default_permissions: options.default_permissions,
            has_xattrs: totals.has_xattrs || options.statistics,
            no_open: false,
            no_opendir: false,
            all_are_stuck: AtomicBool::new(false),
            workers,
            deadlines,
        }
    }

    /// The whole way of most requests: `work` asks the tree, `send` answers.
    fn serve<R: Refuse, T>(
        &self,
        operation: Operation,
        node: u64,
        reply: R,
        work: impl FnOnce() -> Answer<T>,
        send: impl FnOnce(R, T),
    ) {
        let ticket = self.deadlines.begin(operation, node, reply);
        match self.attempt(operation, node, work) {
            Ok(value) => ticket.answer(|reply| send(reply, value)),
            Err(errno) => ticket.refuse(errno),
        }
    }

    /// As [`Dispatcher::serve`], by a thread that may wait if the tree has to decode for `asked`, to open an archive,
    /// or to wait for a server.
    fn ask<R: Refuse + Send + 'static, T>(
        &self,
        operation: Operation,
        asked: u64,
        reply: R,
        work: impl Fn(&Questions) -> Answer<T> + Send + 'static,
        send: impl FnOnce(&Questions, R, T) + Send + 'static,
    ) {
        let ticket = self.deadlines.begin(operation, asked, reply);
        self.ask_with(operation, asked, self.is_ready(asked), ticket, work, send);
    }

    /// The same of a request that has its ticket, about what is known to be ready or not.
    fn ask_with<R: Refuse + Send + 'static, T>(
        &self,
        operation: Operation,
        asked: u64,
        is_ready: bool,
        ticket: Ticket<R>,
        work: impl Fn(&Questions) -> Answer<T> + Send + 'static,
        send: impl FnOnce(&Questions, R, T) + Send + 'static,
    ) {
        let answer = move |asks: &Questions, ticket: Ticket<R>, done: Answer<T>| match done {
            Ok(value) => ticket.answer(|reply| send(asks, reply, value)),
            Err(errno) => ticket.refuse(errno),
        };
        if is_ready {
            if !ticket.is_wanted() {
                return;
            }
            match attempt(&self.deadlines, operation, asked, || work(&self.asks)) {
                // It may have to be waited for.
                Err(Errno::NOMEM) if operation.opens() => {}
                done => return answer(&self.asks, ticket, done),
            }
        }
        let answer = move |asks: &Questions| {
            if ticket.is_wanted() {
                let done = attempt(&asks.deadlines, operation, asked, || {
                    if operation.opens() { asks.with_memory(asked, &ticket, &work) } else { work(asks) }
                });
                answer(asks, ticket, done);
            }
        };
        // What an archive is for itself is known before anybody can look into it.
        if operation == Operation::Lookup && !is_ready {
            self.later_if_held_up(asked, answer);
        } else {
            self.later(asked, answer);
        }
    }

    /// Has `work`, which is about `node`, done by a thread that may wait.
    fn later(&self, node: u64, work: impl FnOnce(&Questions) + Send + 'static) {
        self.deadlines.counters.handed_on.add(1);
        hand_on(&self.workers, self.asks.clone(), node, work);
    }

    /// The same of what looks into `node`. Where that is held up, one thread waits until it is so no more, however many
    /// questions wait for the same.
    fn later_if_held_up(&self, node: u64, work: impl FnOnce(&Questions) + Send + 'static) {
        let Some(held_up) = self.asks.tree.held_up(Node(node)) else { return self.later(node, work) };
        self.deadlines.counters.handed_on.add(1);
        let (asks, workers) = (self.asks.clone(), self.workers.clone());
        self.workers.submit(workers::waiting_lane(held_up.by), node, move || {
            if let Err(told) = guard::catch(|| asks.tree.wait_out(Node(node))) {
                asks.deadlines.panicked(Operation::Other, node, &told);
            }
            hand_on(&workers, asks, node, work);
        });
    }

    /// True if a question about `node` is answered at once. To know that may take a look at an index.
    fn is_ready(&self, node: u64) -> bool {
        !self.must_not_wait() && self.asks.tree.is_ready(Node(node))
    }

    fn must_not_wait(&self) -> bool {
        self.all_are_stuck.load(Ordering::Relaxed)
    }

    fn attempt<T>(&self, operation: Operation, node: u64, work: impl FnOnce() -> Answer<T>) -> Answer<T> {
        attempt(&self.deadlines, operation, node, work)
    }

    /// Refuses what the kernel then does itself, and for good.
    fn refuse_once(&self, operation: Operation, reply: impl Into<Reply>) {
        self.deadlines.counters.count(operation);
        reply.into().error(Errno::NOSYS);
    }

    /// True for what is there to control the mount.
    fn is_own(&self, node: u64) -> bool {
        self.asks.tree.control().is_some_and(|control| control.is_own(Node(node)))
    }

    fn takes_writes(&self, node: u64) -> bool {
        self.asks.tree.control().is_some_and(|control| control.takes_writes(Node(node)))
    }

    /// Whoever serves a mount is controlled by that user and by root alone, also where the kernel does not look at
    /// modes.
    fn may_open(&self, node: u64, how: How) -> Answer<()> {
        if how.to_write && !self.takes_writes(node) {
            return Err(Errno::ROFS);
        }
        if self.is_own(node) && how.user != 0 && how.user != rustix::process::geteuid().as_raw() {
            return Err(Errno::ACCESS);
        }
        Ok(())
    }

    /// What the kernel gets for [`ATTRIBUTE`]: filled up with spaces, as it may grow between the question for its
    /// length and the one for it.
    fn statistics(&self) -> Vec<u8> {
        const GRAIN: usize = 512;
        let mut json = self.deadlines.statistics(self.asks.tree.work()).to_json().into_bytes();
        json.resize(json.len().next_multiple_of(GRAIN), b' ');
        json
    }
}

impl Questions {
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
    fn with_memory<R: Refuse, T>(&self, node: u64, ticket: &Ticket<R>, work: &dyn Fn(&Self) -> Answer<T>) -> Answer<T> {
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

    fn found(&self, attributes: &tarnfs_tree::Attributes) -> KnownAttributes {
        let terms = self.terms.of(&*self.tree, attributes.node);
        (terms.keep, attributes::to_kernel(attributes, terms.overrides))
    }

    fn attributes(&self, node: Node) -> Answer<KnownAttributes> {
        Ok(self.found(&self.tree.attributes(node).map_err(|error| errno(&error))?))
    }

    /// The child `name`; node number 0, which the kernel keeps too, if there is none. `.` and `..` come from file
    /// handles of an NFS server.
    fn child(&self, folder: Node, name: &[u8]) -> Answer<KnownAttributes> {
        match name {
            b"." => self.attributes(folder),
            b".." => self.attributes(self.tree.parent(folder).map_err(|error| errno(&error))?),
            name => match self.tree.lookup(folder, name) {
                Ok(attributes) => Ok(self.found(&attributes)),
                Err(Error::NotFound) => Ok((self.terms.keep_nothing(&*self.tree), attributes::bare_folder(0))),
                Err(error) => Err(errno(&error)),
            },
        }
    }
}

/// Nodes that a tree has given out for an answer. Unless the kernel takes it, nobody knows them: they are forgotten.
struct Given {
    tree: Arc<dyn Tree>,
    nodes: Vec<Node>,
}

impl Given {
    fn new(asks: &Questions, nodes: Vec<Node>) -> Self {
        Self { tree: Arc::clone(&asks.tree), nodes }
    }

    fn taken(mut self) {
        self.nodes.clear();
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        self.nodes.drain(..).for_each(|node| self.tree.forget(node, 1));
    }
}

/// Has `work`, which is about `node`, done by a thread that may wait.
fn hand_on(workers: &Workers, asks: Questions, node: u64, work: impl FnOnce(&Questions) + Send + 'static) {
    workers.submit(asks.tree.lane(Node(node)), node, move || {
        // Of what lies around the question, such as the way to the answer.
        if let Err(told) = guard::catch(|| work(&asks)) {
            asks.deadlines.panicked(Operation::Other, node, &told);
        }
    });
}

/// Does `work`; a panic is EIO.
fn attempt<T>(deadlines: &Deadlines, operation: Operation, node: u64, work: impl FnOnce() -> Answer<T>) -> Answer<T> {
    guard::catch(work).unwrap_or_else(|told| {
        deadlines.panicked(operation, node, &told);
        Err(Errno::IO)
    })
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

impl Filesystem for Dispatcher {
    fn init(&mut self, kernel: &mut Kernel) {
        // Without its automatic mode, which falls back to asking for one name after the other.
        kernel.take(capability::DO_READDIRPLUS);
        kernel.take(capability::PARALLEL_DIROPS);
        kernel.take(capability::DIRECT_IO_ALLOW_MMAP);
        // Not ASYNC_DIO: whoever reads past the page cache with it cannot be interrupted.
        if self.totals.is_immutable {
            // An NFS server asks for numbers that the kernel has forgotten, so they must mean something for ever.
            kernel.take(capability::EXPORT_SUPPORT);
            kernel.take(capability::CACHE_SYMLINKS);
            // Of a file that it never opens it keeps what it has read.
            self.no_open = !self.totals.is_unproven && kernel.take(capability::NO_OPEN_SUPPORT);
            self.no_opendir = kernel.take(capability::NO_OPENDIR_SUPPORT);
        } else {
            // What it has of a file it gives up when the file has changed.
            kernel.take(capability::AUTO_INVAL_DATA);
            if let (Some(backings), Some(handles)) = (kernel.take_passthrough(), Arc::get_mut(&mut self.asks.handles)) {
                handles.pass_through(backings);
            }
        }
        if self.totals.has_acls && self.default_permissions {
            kernel.take(capability::POSIX_ACL);
        }
    }

    fn lookup(&self, folder: u64, name: &[u8], reply: ReplyEntry) {
        // Before the tree is asked anything: whatever that waits for, there is an answer at the deadline.
        let ticket = self.deadlines.begin(Operation::Lookup, folder, reply);
        let asked = if self.must_not_wait() { folder } else { self.asks.tree.asked_for(Node(folder), name).0 };
        ticket.asks(asked);
        let is_ready = self.is_ready(asked);
        let name = name.to_vec();
        let child = move |asks: &Questions| {
            let found = asks.child(Node(folder), &name)?;
            // Where nobody takes the answer, it is dropped with what it holds.
            let node = Some(Node(found.1.node)).filter(|node| node.0 != 0 && !matches!(&*name, b"." | b".."));
            Ok((found, Given::new(asks, node.into_iter().collect())))
        };
        self.ask_with(
            Operation::Lookup,
            asked,
            is_ready,
            ticket,
            child,
            |_, reply, ((keep, child), given): (KnownAttributes, Given)| {
                if reply.entry(keep, &child) {
                    given.taken();
                }
            },
        );
    }

    fn getattr(&self, node: u64, reply: ReplyAttributes) {
        let ticket = self.deadlines.begin(Operation::Attributes, node, reply);
        let is_ready = self.is_ready(node);
        if !is_ready && let Some(known) = self.asks.tree.attributes_at_once(Node(node)) {
            let (keep, found) = self.asks.found(&known);
            return ticket.answer(|reply| reply.attributes(keep, &found));
        }
        self.ask_with(
            Operation::Attributes,
            node,
            is_ready,
            ticket,
            move |asks| asks.attributes(Node(node)),
            |_, reply, (keep, found)| reply.attributes(keep, &found),
        );
    }

    fn readlink(&self, node: u64, reply: ReplyData) {
        let target = move |asks: &Questions| match asks.tree.read_link(Node(node)) {
            Ok(target) if target.len() > MOST_LINK => Err(Errno::NAMETOOLONG),
            target => target.map_err(|error| errno(&error)),
        };
        self.ask(Operation::ReadLink, node, reply, target, |_, reply, target| reply.data(&target));
    }

    fn forget(&self, node: u64, times: u64) {
        // Also where nothing can change: folders that a tree makes up (of versions, or of several sources) are known as
        // long as the kernel knows them. Nobody waits for an answer.
        let _ = self.attempt(Operation::Other, node, || {
            self.asks.tree.forget(Node(node), times);
            Ok(())
        });
    }

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
        let source = move |asks: &Questions| {
            may_open?;
            let source = asks.opened.open(&*asks.tree, Node(node)).map_err(|error| asks.cannot_open(node, &error))?;
            let is_unproven = source.is_unproven();
            Ok((source, is_unproven))
        };
        let takes_writes = self.takes_writes(node);
        let direct = if self.is_own(node) { open::DIRECT_IO } else { 0 };
        self.ask(Operation::Open, node, reply, source, move |asks, reply, (source, is_unproven)| {
            let opening = asks.handles.open(node, source);
            // What is never the same for long is not kept, nor are bytes put together before they are handed on.
            let flags = if direct == 0 { asks.unproven.flags(node, is_unproven, opening.flags) } else { direct };
            let flags = if takes_writes { flags } else { flags | open::NOFLUSH };
            if !reply.opened(opening.handle, flags, opening.backing) {
                drop(asks.handles.close(opening.handle));
            }
        });
    }

    /// Who closes the file for commands goes on when what it has written is done, so that the next line of a script
    /// finds it done; or soon before the deadline. A thread of its own waits.
    fn flush(&self, node: u64, handle: u64, reply: ReplyFlush) {
        if self.asks.tree.control().is_none() {
            // The kernel asks no more.
            return self.refuse_once(Operation::Other, reply);
        }
        let control = self.asks.tree.control().filter(|control| control.takes_writes(Node(node)));
        let pending = control.map(|control| control.pending(handle)).unwrap_or_default();
        let ticket = self.deadlines.begin(Operation::Other, node, reply);
        if pending.is_empty() {
            return ticket.answer(ReplyFlush::done);
        }
        let limit = self.deadlines.limit().mul_f64(0.8);
        let ticket = Arc::new(Mutex::new(Some(ticket)));
        let answer = |ticket: &Mutex<Option<Ticket<ReplyFlush>>>| {
            if let Some(ticket) = lock(ticket).take() {
                ticket.answer(ReplyFlush::done);
            }
        };
        let waiting = Arc::clone(&ticket);
        let wait = move || {
            let begun = Instant::now();
            let is_wanted = || lock(&waiting).as_ref().is_some_and(Ticket::is_wanted);
            for line in pending {
                while begun.elapsed() < limit && is_wanted() && !line.is_done(NAP) {}
            }
            answer(&waiting);
        };
        let builder = std::thread::Builder::new().name("tarnfs-closing".to_owned()).stack_size(256 << 10);
        if builder.spawn(wait).is_err() {
            answer(&ticket);
        }
    }

    fn release(&self, handle: u64, reply: Reply) {
        // To close a file of a server may take as long as to open it.
        if let Some(closed) = self.asks.handles.close(handle)
            && !self.is_ready(closed.node())
        {
            self.later(closed.node(), move |_| drop(closed));
        }
        if let Some(control) = self.asks.tree.control() {
            control.close(handle);
        }
        reply.done();
    }

    fn opendir(&self, _: u64, reply: ReplyOpen) {
        if self.no_opendir {
            return self.refuse_once(Operation::Open, reply);
        }
        self.deadlines.counters.count(Operation::Open);
        reply.opened(0, if self.totals.is_immutable { open::KEEP_CACHE | open::CACHE_DIR } else { 0 }, 0);
    }

    fn releasedir(&self, node: u64, reply: Reply) {
        // What that closes nobody waits for.
        if self.must_not_wait() {
            self.later(node, move |asks| asks.tree.close_folder(Node(node)));
        } else {
            let _ = self.attempt(Operation::Other, node, || {
                self.asks.tree.close_folder(Node(node));
                Ok(())
            });
        }
        reply.done();
    }

    fn readdir(&self, folder: u64, offset: u64, reply: ReplyNames) {
        let ticket = self.deadlines.begin(Operation::ReadDir, folder, reply);
        let fill = move |asks: &Questions| {
            if !ticket.is_wanted() {
                return;
            }
            let mut given = Given::new(asks, Vec::new());
            let filled = attempt(&asks.deadlines, Operation::ReadDir, folder, || {
                listing::fill(&*asks.tree, Node(folder), offset, asks.terms, &ticket, &mut given.nodes)
                    .map_err(|error| errno(&error))
            });
            match filled {
                Ok(()) => ticket.answer(|reply| {
                    if reply.done() {
                        given.taken();
                    }
                }),
                Err(errno) => ticket.refuse(errno),
            }
        };
        if !self.must_not_wait() && self.asks.tree.lists_at_once(Node(folder), offset) {
            return fill(&self.asks);
        }
        self.later_if_held_up(folder, fill);
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

    fn statfs(&self, reply: ReplyStatfs) {
        let send = |reply: ReplyStatfs, totals: Totals| {
            let blocks = totals.bytes.div_ceil(u64::from(STATFS_UNIT));
            reply.totals(KernelTotals { blocks, nodes: totals.nodes, unit: STATFS_UNIT, longest_name: 255 });
        };
        if self.totals.is_immutable && !self.must_not_wait() {
            return self.serve(Operation::Statfs, 0, reply, || Ok(self.asks.tree.totals()), send);
        }
        // All trees are asked, and one of them may wait for a server: in a lane that is nobody's.
        let ticket = self.deadlines.begin(Operation::Statfs, 0, reply);
        let asks = self.asks.clone();
        self.workers.submit(workers::NOBODYS_LANE, 0, move || {
            match attempt(&asks.deadlines, Operation::Statfs, 0, || Ok(asks.tree.totals())) {
                Ok(totals) => ticket.answer(|reply| send(reply, totals)),
                Err(errno) => ticket.refuse(errno),
            }
        });
    }

    fn getxattr(&self, node: u64, name: &[u8], room: u32, reply: ReplyXattr) {
        if !self.has_xattrs {
            return self.refuse_once(Operation::Xattr, reply);
        }
        if node == Node::ROOT.0 && name == ATTRIBUTE.as_bytes() {
            let statistics = || Ok(self.statistics());
            return self.serve(Operation::Xattr, node, reply, statistics, |reply, value| reply.value(&value, room));
        }
        let name = name.to_vec();
        let value = move |asks: &Questions| {
            let value = asks.tree.xattr(Node(node), &name).map_err(|error| errno(&error))?.ok_or(Errno::NODATA)?;
            Ok(attributes::masked(&name, value, asks.terms.overrides.umask))
        };
        self.ask(Operation::Xattr, node, reply, value, move |_, reply, value| reply.value(&value, room));
    }

    fn listxattr(&self, node: u64, room: u32, reply: ReplyXattr) {
        if !self.has_xattrs {
            return self.refuse_once(Operation::Xattr, reply);
        }
        let names = move |asks: &Questions| {
            let all = asks.tree.xattrs(Node(node)).map_err(|error| errno(&error))?;
            let fits = |name: &Vec<u8>| (1..=MOST_XATTR_NAME).contains(&name.len()) && !name.contains(&0);
            let names = all.into_iter().map(|(name, _)| name).filter(fits);
            Ok(names.flat_map(|name| name.into_iter().chain([0])).collect::<Vec<u8>>())
        };
        self.ask(Operation::Xattr, node, reply, names, move |_, reply, names| reply.value(&names, room));
    }

    fn write(&self, node: u64, handle: u64, bytes: &[u8], reply: ReplyWrite) {
        let write = || {
            let control = self.asks.tree.control().filter(|control| control.takes_writes(Node(node)));
            control.ok_or(Errno::ROFS)?.write(handle, bytes);
            Ok(bytes.len() as u32)
        };
        self.serve(Operation::Write, node, reply, write, ReplyWrite::taken);
    }

    fn truncate(&self, node: u64, reply: ReplyAttributes) {
        let attributes = || if self.takes_writes(node) { self.asks.attributes(Node(node)) } else { Err(Errno::ROFS) };
        self.serve(Operation::Write, node, reply, attributes, |reply, (keep, found)| reply.attributes(keep, &found));
    }

    fn access(&self, node: u64, to_write: bool, reply: Reply) {
        if self.asks.tree.control().is_none() {
            return self.other(reply);
        }
        self.deadlines.counters.count(Operation::Other);
        if to_write && !self.takes_writes(node) {
            return reply.error(Errno::ROFS);
        }
        reply.done();
    }

    /// Where the mount is read-only, this takes a remount by root.
    fn change(&self, reply: Reply) {
        self.deadlines.counters.count(Operation::Write);
        reply.error(Errno::ROFS);
    }

    fn ioctl(&self, reply: Reply) {
        self.deadlines.counters.count(Operation::Other);
        reply.error(Errno::NOTTY);
    }

    fn other(&self, reply: Reply) {
        self.refuse_once(Operation::Other, reply);
    }

    fn interrupt(&self, unique: u64) -> bool {
        self.deadlines.interrupt(unique)
    }

    fn panicked(&self, told: &str) {
        self.deadlines.panicked(Operation::Other, 0, told);
    }

    fn is_busy(&self) -> bool {
        self.workers.is_busy()
    }

    fn all_are_stuck(&self, are_stuck: bool) {
        self.all_are_stuck.store(are_stuck, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MountOptions;
    use std::fs::File;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use tarnfs_source::MemorySource;
    use tarnfs_tree::{Child, FolderTree, Xattrs};

    /// Nothing in it can change, and it counts what is forgotten.
    #[derive(Default)]
    struct Counting {
        forgotten: Mutex<Vec<(Node, u64)>>,
        is_busy: bool,
        /// There is memory to open files.
        has_memory: AtomicBool,
        /// How often somebody has asked for one.
        asked: AtomicUsize,
    }

    impl Tree for Counting {
        fn lookup(&self, _: Node, _: &[u8]) -> Result<tarnfs_tree::Attributes, Error> {
            Err(Error::NotFound)
        }

        fn read_dir(&self, _: Node, _: u64, _: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
            Ok(())
        }

        fn attributes(&self, _: Node) -> Result<tarnfs_tree::Attributes, Error> {
            Err(Error::NotFound)
        }

        fn parent(&self, _: Node) -> Result<Node, Error> {
            Ok(Node::ROOT)
        }

        fn read_link(&self, _: Node) -> Result<Vec<u8>, Error> {
            Err(Error::WrongKind)
        }

        fn xattrs(&self, _: Node) -> Result<Xattrs, Error> {
            panic!("all are read though one was asked for");
        }

        fn xattr(&self, _: Node, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
            Ok((name == b"user.a").then(|| b"value".to_vec()))
        }

        fn node_limit(&self) -> u64 {
            10
        }

        fn forget(&self, node: Node, times: u64) {
            self.forgotten.lock().unwrap().push((node, times));
        }

        fn is_ready(&self, _: Node) -> bool {
            !self.is_busy
        }

        fn open(&self, _: Node) -> Result<SharedSource, Error> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            if self.has_memory.load(Ordering::Relaxed) {
                Ok(Arc::new(MemorySource::new(*b"content", "file")))
            } else {
                Err(Errno::NOMEM.into())
            }
        }

        fn owner_names(&self, _: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
            Ok((Vec::new(), Vec::new()))
        }

        fn totals(&self) -> Totals {
            Totals { is_immutable: true, ..Totals::default() }
        }
    }

    /// Folders that a tree makes up, of versions for instance, are known as long as the kernel knows them.
    #[test]
    fn a_tree_that_never_changes_is_told_what_is_forgotten() {
        let tree = Arc::new(Counting::default());
        let (forever, options) = (Duration::from_secs(100_000), Parsed::new(&MountOptions::default()).unwrap());
        let asked = Arc::clone(&tree) as Arc<dyn Tree>;
        let dispatcher = Dispatcher::new(asked, &options, Workers::new(forever), Deadlines::new(forever));
        dispatcher.forget(7, 3);
        drop(Given::new(&dispatcher.asks, vec![Node(8), Node(9)]));
        Given::new(&dispatcher.asks, vec![Node(5)]).taken();
        assert_eq!(*tree.forgotten.lock().unwrap(), [(Node(7), 3), (Node(8), 1), (Node(9), 1)]);
    }

    /// What the kernel is sent of an answer that is an error.
    fn error_in(mut sent: impl std::io::Read) -> i32 {
        let mut header = [0; 16];
        sent.read_exact(&mut header).unwrap();
        i32::from_ne_bytes(header[4..8].try_into().unwrap())
    }

    #[test]
    fn a_panic_on_the_way_to_the_kernel_is_an_answer() {
        guard::install();
        for is_busy in [false, true] {
            let tree = Counting { is_busy, ..Counting::default() };
            let (forever, options) = (Duration::from_secs(100_000), Parsed::new(&MountOptions::default()).unwrap());
            let deadlines = Deadlines::new(forever);
            let dispatcher = Dispatcher::new(Arc::new(tree), &options, Workers::new(forever), deadlines);
            let (sent, device) = rustix::pipe::pipe().unwrap();
            let reply = ReplyOpen::to(&Arc::new(File::from(device)));
            let ask = || {
                dispatcher.ask(Operation::Open, 7, reply, |_| Ok(()), |_, _reply, ()| panic!("as tested"));
            };
            assert_eq!(guard::catch(ask).is_ok(), is_busy, "a worker keeps it to itself");
            assert_eq!(error_in(File::from(sent)), -Errno::IO.raw_os_error());
        }
    }

    /// A file may have thousands, of many MB together.
    #[test]
    fn who_asks_for_one_attribute_does_not_make_all_be_read() {
        let (forever, options) = (Duration::from_secs(100_000), Parsed::new(&MountOptions::default()).unwrap());
        let tree = Arc::new(Counting::default());
        let mut dispatcher = Dispatcher::new(tree, &options, Workers::new(forever), Deadlines::new(forever));
        dispatcher.has_xattrs = true;
        for (name, error) in [("user.a", 0), ("user.b", -Errno::NODATA.raw_os_error())] {
            let (sent, device) = rustix::pipe::pipe().unwrap();
            dispatcher.getxattr(5, name.as_bytes(), 100, ReplyXattr::to(&Arc::new(File::from(device))));
            assert_eq!(error_in(File::from(sent)), error);
        }
        assert_eq!(dispatcher.deadlines.statistics(tarnfs_tree::Work::default()).panics, 0);
    }

    /// Others can give it back only as long as somebody answers the kernel.
    #[test]
    fn who_answers_the_kernel_does_not_wait_for_memory() {
        let forever = Duration::from_secs(100_000);
        for (operation, comes) in [(Operation::Read, true), (Operation::Seek, true), (Operation::Read, false)] {
            let tree = Arc::new(Counting::default());
            let options = Parsed::new(&MountOptions::default()).unwrap();
            let asked = Arc::clone(&tree) as Arc<dyn Tree>;
            let deadlines = Deadlines::new(forever);
            let dispatcher = Dispatcher::new(asked, &options, Workers::new(forever), deadlines);
            let (sent, device) = rustix::pipe::pipe().unwrap();
            let device = Arc::new(File::from(device));
            if operation == Operation::Read {
                dispatcher.read(5, 0, 0, 100, ReplyData::to(&device));
            } else {
                dispatcher.lseek(5, 0, 0, SEEK_DATA, ReplySeek::to(&device));
            }
            // Not before the thread is free again.
            if comes {
                tree.has_memory.store(true, Ordering::Relaxed);
                assert_eq!(error_in(File::from(sent)), 0, "{operation:?}");
            } else {
                // A worker tries again and again.
                let asked = tree.asked.load(Ordering::SeqCst);
                while tree.asked.load(Ordering::SeqCst) < asked + 10 {
                    std::thread::yield_now();
                }
                // Nobody waits any more: nor does the worker.
                assert!(dispatcher.deadlines.interrupt(7));
                assert_eq!(error_in(File::from(sent)), -Errno::INTR.raw_os_error());
            }
            while dispatcher.is_busy() {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn a_file_that_nobody_has_opened_after_all_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "content").unwrap();
        let tree: Arc<dyn Tree> = Arc::new(FolderTree::open(folder.path()).unwrap());
        let node = tree.lookup(Node::ROOT, b"file").unwrap().node.0;
        let (forever, options) = (Duration::from_secs(100_000), Parsed::new(&MountOptions::default()).unwrap());
        let dispatcher = Dispatcher::new(tree, &options, Workers::new(forever), Deadlines::new(forever));
        let open = |device: File| {
            let how = How { to_write: false, user: 0 };
            dispatcher.open(node, how, ReplyOpen::to(&Arc::new(device)));
            dispatcher.asks.handles.count()
        };
        // Opened to read, it takes no answer, as the kernel does where whoever opened the file is gone: nobody will
        // release it.
        assert_eq!(open(File::open("/dev/null").unwrap()), 0);
        assert_eq!(open(File::options().write(true).open("/dev/null").unwrap()), 1);
        dispatcher.asks.handles.close(1);
        dispatcher.asks.handles.close(2);
        assert_eq!(dispatcher.asks.handles.count(), 0);
    }
}
