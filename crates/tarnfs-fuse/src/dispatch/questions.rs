//! What the tree is asked, by whichever thread, and what it has given out for an answer.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tarnfs_source::SharedSource;
use tarnfs_tree::{Attributes, Edit, Error, Node, Totals, Tree};

use super::{Answer, KnownAttributes, KnownName, told};
use crate::deadline::{Deadlines, Refuse, Ticket};
use crate::handles::Handles;
use crate::lifetimes::FOR_NOW;
use crate::opened::Opened;
use crate::options::Overrides;
use crate::protocol::Totals as KernelTotals;
use crate::statistics::{Operation, Statistics};
use crate::unproven::Unproven;
use crate::workers::Workers;
use crate::{attributes, guard, lifetimes};

/// How long a file is waited for that takes more memory than others have left.
const PATIENCE: Duration = Duration::from_secs(50);

/// How often is looked whether they have given it back.
const LOOK: Duration = Duration::from_millis(5);

/// What the tree is asked, by whichever thread.
#[derive(Clone)]
pub(super) struct Questions {
    pub(super) tree: Arc<dyn Tree>,
    pub(super) overrides: Overrides,
    pub(super) handles: Arc<Handles>,
    pub(super) opened: Arc<Opened>,
    pub(super) unproven: Arc<Unproven>,
    pub(super) deadlines: Arc<Deadlines>,
}

impl Questions {
    /// About `tree`, which has these `totals`.
    pub(super) fn new(tree: Arc<dyn Tree>, totals: &Totals, overrides: Overrides, deadlines: Arc<Deadlines>) -> Self {
        let opened = Arc::new(Opened::new((!totals.is_immutable).then_some(FOR_NOW)));
        Self { tree, overrides, handles: Arc::new(Handles::new()), opened, unproven: Arc::default(), deadlines }
    }

    pub(super) fn found(&self, attributes: &Attributes) -> KnownAttributes {
        let keep = lifetimes::of_node(&*self.tree, &self.handles, attributes.node);
        (keep, attributes::shown(&*self.tree, attributes, self.overrides))
    }

    /// The same of a child of `folder`.
    pub(super) fn named(&self, folder: Node, attributes: &Attributes) -> KnownName {
        let keep = lifetimes::of_child(&*self.tree, &self.handles, self.tree.lifetime(folder), attributes.node);
        (keep, attributes::shown(&*self.tree, attributes, self.overrides))
    }

    pub(super) fn attributes(&self, node: Node) -> Answer<KnownAttributes> {
        Ok(self.found(&told(self.tree.attributes(node))?))
    }

    /// Where something can be made, there is as much room as on its disk. Else all is full.
    pub(super) fn totals(&self) -> Answer<KernelTotals> {
        match self.tree.edit().and_then(Edit::space) {
            Some(space) => told(space).map(attributes::room),
            None => Ok(attributes::full(&self.tree.totals())),
        }
    }

    pub(super) fn statistics(&self) -> Statistics {
        self.deadlines.statistics(self.tree.work())
    }

    /// What `node` holds, of which `handle` may be open.
    pub(super) fn source(&self, node: u64, handle: u64) -> Answer<SharedSource> {
        match self.handles.get(handle) {
            Some(source) => Ok(source),
            None => self.opened.get(&*self.tree, Node(node)).map_err(|error| self.cannot_open(node, &error)),
        }
    }

    pub(super) fn cannot_open(&self, node: u64, error: &Error) -> Errno {
        let errno = error.errno();
        if let Error::Io(error) = error
            // It is tried again.
            && errno != Errno::NOMEM
        {
            self.deadlines.failed(&*self.tree, node, 0, error);
        }
        errno
    }

    /// Does `work`, which opens the file that the request behind `ticket` is about: again and again while others have
    /// the memory that it takes, and somebody wants its answer. Not on a thread that answers the kernel.
    pub(super) fn with_memory<R: Refuse, T>(&self, ticket: &Ticket<R>, work: &dyn Fn(&Self) -> Answer<T>) -> Answer<T> {
        let begin = Instant::now();
        loop {
            match work(self) {
                Err(Errno::NOMEM) if !ticket.is_wanted() => return Err(Errno::INTR),
                Err(Errno::NOMEM) if begin.elapsed() < PATIENCE => thread::sleep(LOOK),
                done => return done.inspect_err(|&errno| self.tell_of_lack(ticket.node(), errno)),
            }
        }
    }

    /// There was no memory to open `node`, if that is the error.
    fn tell_of_lack(&self, node: u64, errno: Errno) {
        if errno == Errno::NOMEM {
            self.deadlines.failed(&*self.tree, node, 0, &errno.into());
        }
    }

    /// Has `work`, which is about `node`, done by a thread that may wait.
    pub(super) fn hand_on(self, workers: &Workers, node: u64, work: impl FnOnce(&Self) + Send + 'static) {
        workers.submit(self.tree.lane(Node(node)), node, move || {
            // Of what lies around the question, such as the way to the answer.
            self.catch(node, || work(&self));
        });
    }

    /// Does `work`; a panic is counted.
    pub(super) fn catch(&self, node: u64, work: impl FnOnce()) {
        if let Err(told) = guard::catch(work) {
            self.deadlines.panicked(Operation::Other, node, &told);
        }
    }
}

/// What was given out for an answer: nodes of the tree, and the handle of an open file. Unless the kernel takes the
/// answer nobody knows them: they are forgotten, and the file is closed.
pub(super) struct Given {
    tree: Arc<dyn Tree>,
    pub(super) nodes: Vec<Node>,
    handle: Option<(Arc<Handles>, u64)>,
}

impl Given {
    pub(super) fn new(asks: &Questions, nodes: Vec<Node>) -> Self {
        Self { tree: Arc::clone(&asks.tree), nodes, handle: None }
    }

    /// With the handle of a file that was opened.
    pub(super) fn with_handle(mut self, asks: &Questions, handle: u64) -> Self {
        self.handle = Some((Arc::clone(&asks.handles), handle));
        self
    }

    /// The answer has been sent. The kernel has taken it, or it has not.
    pub(super) fn sent(mut self, is_taken: bool) {
        if is_taken {
            self.nodes.clear();
            self.handle = None;
        }
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        drop(self.handle.take().map(|(handles, handle)| handles.close(handle)));
        self.nodes.drain(..).for_each(|node| self.tree.forget(node, 1));
    }
}
