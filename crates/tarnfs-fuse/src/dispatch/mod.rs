//! Operation in, tree called, reply out.
//!
//! What is the same for all of them is here: who answers, in which thread, and what becomes of an error. `folders` has
//! names and what is known of a node, `reading` files, `writing` whatever would change something.

mod folders;
mod reading;
#[cfg(test)]
mod tests;
mod writing;

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use tarnfs_tree::edit::Space;
use tarnfs_tree::{Edit, Error, Node, Totals, Tree};

use crate::ask::TELL;
use crate::buffers::MOST_BYTES;
use crate::deadline::{Deadlines, Refuse, Ticket};
use crate::guard;
use crate::handles::Handles;
use crate::lifetimes::FOR_NOW;
use crate::opened::Opened;
use crate::options::{Overrides, Parsed};
use crate::protocol::{
    Attributes, Filesystem, Keep, Kernel, Reply, ReplyIoctl, ReplyStatfs, Totals as KernelTotals, capability,
};
use crate::statistics::Operation;
use crate::unproven::Unproven;
use crate::workers::{self, Workers};

/// The one unit of `statfs`, so that programs that confuse fragment and block size are right too.
const STATFS_UNIT: u32 = 512;

/// `NAME_MAX`.
const LONGEST_NAME: u32 = 255;

/// A tree as the kernel sees it.
#[allow(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub(crate) struct Dispatcher {
    asks: Questions,
    /// What is mounted, whatever it is called in the table of mounts.
    source: OsString,
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
    overrides: Overrides,
    handles: Arc<Handles>,
    opened: Arc<Opened>,
    unproven: Arc<Unproven>,
    deadlines: Arc<Deadlines>,
}

/// What is known of a node, and how long the kernel may keep it.
type KnownAttributes = (Duration, Attributes);

/// The same of a name.
type KnownName = (Keep, Attributes);

/// An answer, or the error number that goes in its place.
type Answer<T> = Result<T, Errno>;

/// The kernel's number for a tree's error.
fn errno(error: &Error) -> Errno {
    error.errno()
}

/// What the tree has answered.
fn told<T>(answer: Result<T, Error>) -> Answer<T> {
    answer.map_err(|error| errno(&error))
}

impl Dispatcher {
    pub(crate) fn new(tree: Arc<dyn Tree>, options: &Parsed, workers: Workers, deadlines: Arc<Deadlines>) -> Self {
        let totals = tree.totals();
        let asks = Questions {
            tree,
            overrides: options.overrides,
            handles: Arc::new(Handles::new()),
            opened: Arc::new(Opened::new((!totals.is_immutable).then_some(FOR_NOW))),
            unproven: Arc::default(),
            deadlines: Arc::clone(&deadlines),
        };
        Self {
            asks,
            source: options.mounted.clone(),
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
            match attempt(&self.deadlines, operation, asked, || ticket.asks_for(|| work(&self.asks))) {
                // It may have to be waited for.
                Err(Errno::NOMEM) if operation.opens() => {}
                done => return answer(&self.asks, ticket, done),
            }
        }
        let answer = move |asks: &Questions| {
            if ticket.is_wanted() {
                let done = attempt(&asks.deadlines, operation, asked, || {
                    if operation.opens() {
                        asks.with_memory(asked, &ticket, &work)
                    } else {
                        ticket.asks_for(|| work(asks))
                    }
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
}

impl Questions {
    /// Where something can be made, there is as much room as on its disk. Else all is full.
    fn totals(&self) -> Answer<KernelTotals> {
        if let Some(space) = self.tree.edit().and_then(Edit::space) {
            let Space { unit, blocks, free, available, nodes, free_nodes } = told(space)?;
            return Ok(KernelTotals { blocks, free, available, nodes, free_nodes, unit, longest_name: LONGEST_NAME });
        }
        let totals = self.tree.totals();
        Ok(KernelTotals {
            blocks: totals.bytes.div_ceil(u64::from(STATFS_UNIT)),
            free: 0,
            available: 0,
            nodes: totals.nodes,
            free_nodes: 0,
            unit: STATFS_UNIT,
            longest_name: LONGEST_NAME,
        })
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
        if self.is_writable() {
            kernel.take_writes_of(MOST_BYTES as u32);
            // A folder may have a list of who may access what is made in it: that stands for the umask there.
            kernel.take(capability::DONT_MASK);
        }
        if self.totals.has_acls && self.default_permissions {
            kernel.take(capability::POSIX_ACL);
        }
    }

    fn statfs(&self, reply: ReplyStatfs) {
        let send = |reply: ReplyStatfs, totals: KernelTotals| reply.totals(totals);
        if self.totals.is_immutable && !self.must_not_wait() {
            return self.serve(Operation::Statfs, 0, reply, || self.asks.totals(), send);
        }
        // All trees are asked, and one of them may wait for a server: in a lane that is nobody's.
        let ticket = self.deadlines.begin(Operation::Statfs, 0, reply);
        let asks = self.asks.clone();
        self.workers.submit(workers::NOBODYS_LANE, 0, move || {
            match attempt(&asks.deadlines, Operation::Statfs, 0, || asks.totals()) {
                Ok(totals) => ticket.answer(|reply| send(reply, totals)),
                Err(errno) => ticket.refuse(errno),
            }
        });
    }

    fn ioctl(&self, node: u64, command: u32, room: u32, reply: ReplyIoctl) {
        if node != Node::ROOT.0 || command != TELL {
            self.deadlines.counters.count(Operation::Other);
            return Reply::from(reply).error(Errno::NOTTY);
        }
        self.serve(Operation::Other, node, reply, || Ok(self.told()), |reply, told| reply.bytes(&told, room));
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
