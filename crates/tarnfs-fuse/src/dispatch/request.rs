//! The way of a request to its answer: by the thread that has read it, or by one that may wait.

use rustix::io::Errno;
use tarnfs_tree::Node;

use super::questions::Questions;
use super::{Answer, Dispatcher};
use crate::deadline::{Refuse, Ticket};
use crate::statistics::Operation;
use crate::workers;

/// What is asked of the tree for a request, and how it is answered.
struct Request<R: Refuse, W, S> {
    ticket: Ticket<R>,
    /// Asks the tree.
    work: W,
    /// Answers.
    send: S,
}

impl<R: Refuse, W, S, T> Request<R, W, S>
where
    W: Fn(&Questions) -> Answer<T>,
    S: FnOnce(&Questions, R, T),
{
    /// By a thread that must not wait. Given back if it may have to be waited for.
    fn answer_at_once(self, asks: &Questions) -> Option<Self> {
        if !self.ticket.is_wanted() {
            return None;
        }
        match self.ticket.attempt(|| self.ticket.asks_for(|| (self.work)(asks))) {
            Err(Errno::NOMEM) if self.ticket.operation().opens() => return Some(self),
            done => self.settle(asks, done),
        }
        None
    }

    /// By a thread that may wait.
    fn answer(self, asks: &Questions) {
        if !self.ticket.is_wanted() {
            return;
        }
        let ask = || self.ticket.asks_for(|| (self.work)(asks));
        let opens = self.ticket.operation().opens();
        let done = self.ticket.attempt(|| if opens { asks.with_memory(&self.ticket, &self.work) } else { ask() });
        self.settle(asks, done);
    }

    fn settle(self, asks: &Questions, done: Answer<T>) {
        let Self { ticket, send, .. } = self;
        ticket.settle(done, |reply, value| send(asks, reply, value));
    }
}

impl Dispatcher {
    /// The whole way of what is answered at once: `work` asks the tree, `send` answers.
    pub(super) fn serve<R: Refuse, T>(
        &self,
        operation: Operation,
        node: u64,
        reply: R,
        work: impl FnOnce() -> Answer<T>,
        send: impl FnOnce(R, T),
    ) {
        let ticket = self.begin(operation, node, reply);
        let done = ticket.attempt(work);
        ticket.settle(done, send);
    }

    /// As [`Dispatcher::serve`], by a thread that may wait if the tree has to decode for `asked`, to open an archive,
    /// or to wait for a server.
    pub(super) fn ask<R: Refuse, T>(
        &self,
        operation: Operation,
        asked: u64,
        reply: R,
        work: impl Fn(&Questions) -> Answer<T> + Send + 'static,
        send: impl FnOnce(&Questions, R, T) + Send + 'static,
    ) {
        let ticket = self.begin(operation, asked, reply);
        self.ask_with(self.is_ready(asked), ticket, work, send);
    }

    /// The same of a request that has its ticket, about what is known to be ready or not.
    pub(super) fn ask_with<R: Refuse, T>(
        &self,
        is_ready: bool,
        ticket: Ticket<R>,
        work: impl Fn(&Questions) -> Answer<T> + Send + 'static,
        send: impl FnOnce(&Questions, R, T) + Send + 'static,
    ) {
        let (operation, asked) = (ticket.operation(), ticket.node());
        let request = Request { ticket, work, send };
        let left = if is_ready { request.answer_at_once(&self.asks) } else { Some(request) };
        let Some(request) = left else { return };
        // What an archive is for itself is known before anybody can look into it.
        if operation == Operation::Lookup && !is_ready {
            self.later_if_held_up(asked, |asks| request.answer(asks));
        } else {
            self.later(asked, |asks| request.answer(asks));
        }
    }

    /// Has `work`, which is about `node`, done by a thread that may wait.
    pub(super) fn later(&self, node: u64, work: impl FnOnce(&Questions) + Send + 'static) {
        self.asks.deadlines.counters.handed_on.add(1);
        self.asks.clone().hand_on(&self.workers, node, work);
    }

    /// The same of what looks into `node`. Where that is held up, one thread waits until it is so no more, however many
    /// questions wait for the same.
    pub(super) fn later_if_held_up(&self, node: u64, work: impl FnOnce(&Questions) + Send + 'static) {
        let Some(held_up) = self.asks.tree.held_up(Node(node)) else { return self.later(node, work) };
        self.asks.deadlines.counters.handed_on.add(1);
        let (asks, workers) = (self.asks.clone(), self.workers.clone());
        self.workers.submit(workers::waiting_lane(held_up.by), node, move || {
            asks.catch(node, || asks.tree.wait_out(Node(node)));
            asks.hand_on(&workers, node, work);
        });
    }
}
