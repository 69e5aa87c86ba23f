//! Operation in, tree called, reply out: each operation in at most ten lines.
//!
//! What is the same for all of them is here, in `request` (who answers, in which thread, and what becomes of an error),
//! in `questions` (what the tree is asked) and in `terms` (what is agreed with the kernel). `folders` has names and
//! what is known of a node, `reading` files, `bytes` what is read of them, `writing` whatever would change something.

mod bytes;
mod folders;
mod questions;
mod reading;
mod request;
mod terms;
#[cfg(test)]
mod tests;
mod writing;

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use tarnfs_tree::{Error, Node, Totals, Tree};

use crate::ask::TELL;
use crate::deadline::{Deadlines, Refuse, Ticket};
use crate::options::Parsed;
use crate::protocol::{
    Attributes, Filesystem, Keep, Kernel, Reply, ReplyAttributes, ReplyEntry, ReplyIoctl, ReplyStatfs,
};
use crate::statistics::Operation;
use crate::workers::{self, Workers};
use questions::{Given, Questions};
use terms::Terms;

/// A tree as the kernel sees it.
pub(crate) struct Dispatcher {
    asks: Questions,
    /// What is mounted, whatever it is called in the table of mounts.
    source: OsString,
    totals: Totals,
    /// True if the kernel checks permissions itself.
    default_permissions: bool,
    /// True if the kernel is to ask for extended attributes.
    has_xattrs: bool,
    terms: Terms,
    /// Threads that answer the kernel wait for something: whoever does so now must ask the tree nothing that may have
    /// to be waited for as well, not even whether it has.
    all_are_stuck: AtomicBool,
    workers: Workers,
}

/// What is known of a node, and how long the kernel may keep it.
type KnownAttributes = (Duration, Attributes);

/// The same of a name.
type KnownName = (Keep, Attributes);

/// A name, and its node until the kernel knows it.
type GivenName = (KnownName, Given);

/// An answer, or the error number that goes in its place.
type Answer<T> = Result<T, Errno>;

/// What the tree has answered.
fn told<T>(answer: Result<T, impl Into<Error>>) -> Answer<T> {
    answer.map_err(|error| error.into().errno())
}

/// Answers with a name.
fn send_name(_: &Questions, reply: ReplyEntry, ((keep, found), given): GivenName) {
    given.sent(reply.entry(keep, &found));
}

/// Answers with what a node is.
fn send_attributes(_: &Questions, reply: ReplyAttributes, (keep, found): KnownAttributes) {
    reply.attributes(keep, &found);
}

impl Dispatcher {
    pub(crate) fn new(tree: Arc<dyn Tree>, options: &Parsed, workers: Workers, deadlines: Arc<Deadlines>) -> Self {
        let totals = tree.totals();
        let (source, default_permissions) = (options.mounted.clone(), options.default_permissions);
        let has_xattrs = totals.has_xattrs || options.statistics;
        let asks = Questions::new(tree, &totals, options.overrides, deadlines);
        let (terms, all_are_stuck) = (Terms::default(), AtomicBool::new(false));
        Self { asks, source, totals, default_permissions, has_xattrs, terms, all_are_stuck, workers }
    }

    /// Counts a request about `node` and sets its deadline.
    fn begin<R: Refuse>(&self, operation: Operation, node: u64, reply: R) -> Ticket<R> {
        self.asks.deadlines.begin(operation, node, reply)
    }

    /// True if a question about `node` is answered at once. To know that may take a look at an index.
    fn is_ready(&self, node: u64) -> bool {
        !self.must_not_wait() && self.asks.tree.is_ready(Node(node))
    }

    fn must_not_wait(&self) -> bool {
        self.all_are_stuck.load(Ordering::Relaxed)
    }

    /// Does `work`, which nobody waits for.
    fn unasked(&self, node: u64, work: impl FnOnce()) {
        let _ = self.asks.deadlines.catch(Operation::Other, node, work);
    }

    /// Counts a request that is answered without asking the tree.
    fn count(&self, operation: Operation) {
        self.asks.deadlines.counters.count(operation);
    }

    /// Refuses what the kernel then does itself, and for good.
    fn refuse_once(&self, operation: Operation, reply: impl Into<Reply>) {
        self.count(operation);
        reply.into().error(Errno::NOSYS);
    }
}

impl Filesystem for Dispatcher {
    fn init(&mut self, kernel: &mut Kernel) {
        terms::agree_to_all(kernel, self.totals.has_acls && self.default_permissions);
        self.terms = if self.totals.is_immutable {
            Terms::for_ever(kernel, &self.totals)
        } else {
            Terms::for_now(kernel, Arc::get_mut(&mut self.asks.handles))
        };
        if self.is_writable() {
            terms::agree_to_writes(kernel);
        }
    }

    fn statfs(&self, reply: ReplyStatfs) {
        if self.totals.is_immutable && !self.must_not_wait() {
            return self.serve(Operation::Statfs, 0, reply, || self.asks.totals(), ReplyStatfs::totals);
        }
        let (asks, ticket) = (self.asks.clone(), self.begin(Operation::Statfs, 0, reply));
        // All trees are asked, and one of them may wait for a server: in a lane that is nobody's.
        self.workers.submit(workers::NOBODYS_LANE, 0, move || {
            let totals = ticket.attempt(|| asks.totals());
            ticket.settle(totals, ReplyStatfs::totals);
        });
    }

    fn ioctl(&self, node: u64, command: u32, room: u32, reply: ReplyIoctl) {
        if node != Node::ROOT.0 || command != TELL {
            self.count(Operation::Other);
            return Reply::from(reply).error(Errno::NOTTY);
        }
        self.serve(Operation::Other, node, reply, || Ok(self.told()), |reply, told| reply.bytes(&told, room));
    }

    fn other(&self, reply: Reply) {
        self.refuse_once(Operation::Other, reply);
    }

    fn interrupt(&self, unique: u64) -> bool {
        self.asks.deadlines.interrupt(unique)
    }

    fn panicked(&self, told: &str) {
        self.asks.deadlines.panicked(Operation::Other, 0, told);
    }

    fn is_busy(&self) -> bool {
        self.workers.is_busy()
    }

    fn all_are_stuck(&self, are_stuck: bool) {
        self.all_are_stuck.store(are_stuck, Ordering::Relaxed);
    }
}
