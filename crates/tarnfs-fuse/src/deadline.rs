//! Every request gets its answer in time, if need be an error.
//!
//! A program that waits for a FUSE request cannot be killed while the request is with us, so a request without an
//! answer is a process that nobody gets rid of. The reply to each request therefore lies in a [`Ticket`] which the
//! watchdog can take away from whoever works on it.
//!
//! What was answered with an error must not be done afterwards: so whoever changes something says when that begins
//! ([`Asker`]). A change that has begun is answered with what comes of it, as on a disk.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tarnfs_tree::asker::{Asker, asked_by};
use tarnfs_tree::{Node, Tree, Work, escape};

use crate::statistics::{Counters, Operation, Statistics};
use crate::{buffers, guard, protocol, workers};

/// The longest that the watchdog sleeps: an error comes at most this much after the deadline.
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// How long requests go on that have got a signal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) reads: Duration,
    pub(crate) others: Duration,
}

impl Patience {
    /// The kernel does not say which signal it was: most of them end nobody, and programs do not expect that `stat(2)`
    /// or `readdir(3)` fail because of a timer. Nor does `read(2)` of a file on a disk, so programs take that for the
    /// end of the file or for a broken disk; nearly all bytes are there after half a second. Who is killed waits as
    /// long, and is to be gone after a second.
    const USUAL: Self = Self { reads: Duration::from_millis(500), others: Duration::from_secs(5) };

    /// For none.
    #[cfg(test)]
    pub(crate) const NONE: Self = Self { reads: Duration::ZERO, others: Duration::ZERO };
}

/// A reply that can be an error: all of them.
pub(crate) trait Refuse: Send + 'static {
    fn refuse(self, errno: Errno);
    /// The kernel's number for the request.
    fn unique(&self) -> u64;
}

macro_rules! refuse {
    ($($reply:ident)*) => {
        $(impl Refuse for protocol::$reply {
            fn refuse(self, errno: Errno) {
                protocol::Reply::from(self).error(errno);
            }

            fn unique(&self) -> u64 {
                self.as_ref().unique()
            }
        })*
    };
}

refuse! {
    ReplyAttributes ReplyCreated ReplyData ReplyDone ReplyEntry ReplyIoctl ReplyNames ReplyOpen ReplySeek ReplyStatfs ReplyWrite
    ReplyXattr
}

/// A lock that a panic elsewhere does not spoil: what these locks hold is changed in one step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All requests that have no answer yet, and how long they may go on.
#[derive(Debug)]
pub(crate) struct Deadlines {
    limit: Duration,
    patience: Patience,
    requests: Mutex<Requests>,
    next: AtomicU64,
    watch: Mutex<Watch>,
    /// Something in `watch` was changed.
    told: Condvar,
    failures: Mutex<Failures>,
    pub(crate) counters: Counters,
}

/// What the watchdog is told.
#[derive(Debug, Default)]
struct Watch {
    has_ended: bool,
    /// When somebody is to be let go, sooner than it would look.
    due: Option<Instant>,
}

#[derive(Debug, Default)]
struct Requests {
    /// By number, so the first is the oldest. A request stays here until nobody works on it any more.
    waiting: BTreeMap<u64, Arc<dyn Overdue>>,
    /// Of each of these, by the kernel's number: of many that wait, many can get a signal.
    by_unique: HashMap<u64, u64>,
    /// Of these, reads that were given up: number, node, and bytes.
    stuck: Vec<(u64, u64, Range<u64>)>,
    /// The kernel's numbers of requests whose signal was read before them, by another thread. They come, unless they
    /// have been answered.
    early: VecDeque<u64>,
}

/// What has been told of files that cannot be read. An archive can have a million of those, and for the path of each
/// the table of folders is searched.
#[derive(Debug, Default)]
struct Failures {
    /// Those of the latest [`Failures::MOST_NODES`] files.
    nodes: VecDeque<u64>,
    /// Since when is counted.
    since: Option<Instant>,
    /// Lines.
    told: u32,
    /// Failures that were not told.
    left_out: u64,
    /// For paths.
    looked: Duration,
}

/// Whether a failure is told.
#[derive(Debug, PartialEq, Eq)]
enum Telling {
    Not,
    Now {
        /// There is time to look for the path.
        by_path: bool,
        /// How many were not told before.
        left_out: u64,
    },
}

impl Failures {
    const MOST_NODES: usize = 64;
    /// Lines in each [`Failures::WINDOW`].
    const MOST_TOLD: u32 = 200;
    const WINDOW: Duration = Duration::from_secs(60);
    /// Of each of these, what may be spent with looking for paths.
    const MOST_LOOKED: Duration = Duration::from_secs(1);

    /// A read of `node` has failed.
    fn met(&mut self, node: u64, now: Instant) -> Telling {
        if self.nodes.contains(&node) {
            return Telling::Not;
        }
        self.nodes.truncate(Self::MOST_NODES - 1);
        self.nodes.push_front(node);
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= Self::WINDOW) {
            (self.since, self.told, self.looked) = (Some(now), 0, Duration::ZERO);
        }
        if self.told >= Self::MOST_TOLD {
            self.left_out += 1;
            return Telling::Not;
        }
        self.told += 1;
        Telling::Now { by_path: self.looked < Self::MOST_LOOKED, left_out: std::mem::take(&mut self.left_out) }
    }
}

/// So many signals are kept for requests that are still to come: there is a thread or two about to begin with theirs.
const MOST_EARLY: usize = 64;

/// A request of whatever kind, as the watchdog sees it.
trait Overdue: Send + Sync + std::fmt::Debug {
    fn since(&self) -> Instant;
    /// The kernel's number for the request, until it is answered.
    fn unique(&self) -> Option<u64>;
    /// Whoever waits has got a signal.
    fn signalled(&self);
    /// If they have, how long they wait all the same.
    fn due(&self, patience: Patience) -> Option<Instant>;
    /// Answers that whoever waits has got a signal, if there is no answer yet and nothing has begun. `before` that, it
    /// says so.
    fn interrupt(&self, before: &dyn Fn());
    /// Node, and the bytes of it that are read.
    fn range(&self) -> (u64, Range<u64>);
    /// Answers with an error and logs it, if there is no answer yet.
    fn give_up(&self, age: Duration) -> bool;
    /// It waits for what has come so far. How long it has been no further.
    fn wait_at(&self, steps: u64) -> Duration;
}

struct Waiting<R> {
    operation: Operation,
    node: AtomicU64,
    /// Of a read; empty for all else.
    bytes: Range<u64>,
    since: Instant,
    /// When whoever waits got a signal.
    signalled: Mutex<Option<Instant>>,
    /// How far that was which it waits for when somebody looked, and since when.
    seen: Mutex<Option<(u64, Instant)>>,
    due: Mutex<Due<R>>,
}

/// What is to be answered, and who may.
struct Due<R> {
    reply: Option<R>,
    stage: Stage,
}

/// How far a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// A signal ends it, and the deadline.
    Asked,
    /// It waits for a disk alone: the deadline ends it.
    OnDisk,
    /// Something is changed: only what comes of it does.
    Begun,
    /// The same, and that it takes long was told.
    Told,
}

impl<R> std::fmt::Debug for Waiting<R> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} of node {}", self.operation.name(), self.node.load(Ordering::Relaxed))
    }
}

impl<R: Refuse> Overdue for Waiting<R> {
    fn since(&self) -> Instant {
        self.since
    }

    fn unique(&self) -> Option<u64> {
        lock(&self.due).reply.as_ref().map(Refuse::unique)
    }

    fn signalled(&self) {
        lock(&self.signalled).get_or_insert_with(Instant::now);
    }

    fn due(&self, patience: Patience) -> Option<Instant> {
        let patience = if self.operation == Operation::Read { patience.reads } else { patience.others };
        if lock(&self.due).stage > Stage::Asked {
            return None;
        }
        lock(&self.signalled).and_then(|at| at.checked_add(patience))
    }

    fn interrupt(&self, before: &dyn Fn()) {
        let mut due = lock(&self.due);
        let reply = if due.stage == Stage::Asked { due.reply.take() } else { None };
        drop(due);
        if let Some(reply) = reply {
            before();
            reply.refuse(Errno::INTR);
        }
    }

    fn range(&self) -> (u64, Range<u64>) {
        (self.node.load(Ordering::Relaxed), self.bytes.clone())
    }

    fn wait_at(&self, steps: u64) -> Duration {
        let mut seen = lock(&self.seen);
        match *seen {
            Some((before, since)) if before == steps => since.elapsed(),
            _ => {
                *seen = Some((steps, Instant::now()));
                Duration::ZERO
            }
        }
    }

    fn give_up(&self, age: Duration) -> bool {
        let (what, node) = (self.operation.name(), self.node.load(Ordering::Relaxed));
        let mut due = lock(&self.due);
        if due.stage >= Stage::Begun {
            if due.reply.is_some() && due.stage == Stage::Begun {
                due.stage = Stage::Told;
                drop(due);
                log::warn!("{what} of node {node}: the disk has not done it after {:.1} s", age.as_secs_f64());
            }
            return false;
        }
        let Some(reply) = due.reply.take() else { return false };
        drop(due);
        reply.refuse(Errno::IO);
        log::warn!("{what} of node {node}: no answer after {:.1} s; an error was answered instead", age.as_secs_f64());
        true
    }
}

impl<R: Refuse> Asker for Waiting<R> {
    fn waits_for_disk(&self) {
        let mut due = lock(&self.due);
        if due.stage == Stage::Asked {
            due.stage = Stage::OnDisk;
        }
    }

    fn begins(&self) -> bool {
        let mut due = lock(&self.due);
        if due.reply.is_some() && due.stage < Stage::Begun {
            due.stage = Stage::Begun;
        }
        due.reply.is_some()
    }

    fn takes_long(&self, does: bool) {
        workers::takes_long(does);
    }
}

/// The right to answer one request, once. Dropped without an answer it answers EIO.
pub(crate) struct Ticket<R: Refuse> {
    waiting: Arc<Waiting<R>>,
    number: u64,
    /// The kernel's number.
    unique: u64,
    deadlines: Arc<Deadlines>,
}

impl<R: Refuse> Ticket<R> {
    /// Answers, unless it is too late.
    pub(crate) fn answer(self, send: impl FnOnce(R)) {
        let reply = lock(&self.waiting.due).reply.take();
        if let Some(reply) = reply {
            send(reply);
        }
    }

    /// Answers with an error, unless it is too late.
    pub(crate) fn refuse(self, errno: Errno) {
        self.answer(|reply| reply.refuse(errno));
    }

    /// Adds to a reply that is made step by step; `None` if it is too late.
    pub(crate) fn with<T>(&self, add: impl FnOnce(&mut R) -> T) -> Option<T> {
        lock(&self.waiting.due).reply.as_mut().map(add)
    }

    /// Does `work` for the answer; a panic is EIO, counted and logged.
    pub(crate) fn catch<T>(&self, work: impl FnOnce() -> T) -> Result<T, Errno> {
        self.deadlines.catch(self.operation(), self.node(), work)
    }

    /// The same of what may fail.
    pub(crate) fn attempt<T>(&self, work: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        self.catch(work).and_then(|done| done)
    }

    /// Has `send` answer with what was `done`, or refuses, unless it is too late.
    pub(crate) fn settle<T>(self, done: Result<T, Errno>, send: impl FnOnce(R, T)) {
        match done {
            Ok(value) => self.answer(|reply| send(reply, value)),
            Err(errno) => self.refuse(errno),
        }
    }

    /// What is asked.
    pub(crate) fn operation(&self) -> Operation {
        self.waiting.operation
    }

    /// Of which node.
    pub(crate) fn node(&self) -> u64 {
        self.waiting.node.load(Ordering::Relaxed)
    }

    /// How long a request may take.
    pub(crate) fn limit(&self) -> Duration {
        self.deadlines.limit
    }

    /// It is `node` that is asked, as has turned out.
    pub(crate) fn asks(&self, node: u64) {
        self.waiting.node.store(node, Ordering::Relaxed);
    }

    /// False once the watchdog has answered.
    pub(crate) fn is_wanted(&self) -> bool {
        lock(&self.waiting.due).reply.is_some()
    }

    /// Does `work`, which may change something, for whoever waits.
    pub(crate) fn asks_for<T>(&self, work: impl FnOnce() -> T) -> T {
        asked_by(Arc::clone(&self.waiting) as Arc<dyn Asker>, work)
    }
}

impl<R: Refuse> Drop for Ticket<R> {
    fn drop(&mut self) {
        let reply = lock(&self.waiting.due).reply.take();
        if let Some(reply) = reply {
            reply.refuse(Errno::IO);
        }
        let mut requests = lock(&self.deadlines.requests);
        let _done = requests.waiting.remove(&self.number);
        // The kernel may use it again as soon as there is an answer.
        if requests.by_unique.get(&self.unique) == Some(&self.number) {
            requests.by_unique.remove(&self.unique);
        }
        requests.stuck.retain(|(number, _, _)| *number != self.number);
    }
}

impl Deadlines {
    pub(crate) fn new(limit: Duration) -> Arc<Self> {
        Self::with(limit, Patience::USUAL)
    }

    pub(crate) fn with(limit: Duration, patience: Patience) -> Arc<Self> {
        Arc::new(Self {
            limit,
            patience,
            requests: Mutex::default(),
            next: AtomicU64::new(0),
            watch: Mutex::default(),
            told: Condvar::new(),
            failures: Mutex::default(),
            counters: Counters::default(),
        })
    }

    /// Counts a request and sets its deadline.
    pub(crate) fn begin<R: Refuse>(self: &Arc<Self>, operation: Operation, node: u64, reply: R) -> Ticket<R> {
        self.enter(operation, node, 0..0, reply)
    }

    /// As [`Deadlines::begin`] for a read of `bytes`. `None`, and an error to the kernel, while somebody still works on
    /// a read of some of them that was given up: after a failed read ahead the kernel asks again for single pages,
    /// and each of them would wait for a deadline of its own.
    pub(crate) fn begin_read<R: Refuse>(self: &Arc<Self>, node: u64, bytes: Range<u64>, reply: R) -> Option<Ticket<R>> {
        let is_same = |(_, other, stuck): &(u64, u64, Range<u64>)| {
            *other == node && stuck.start < bytes.end && bytes.start < stuck.end
        };
        if lock(&self.requests).stuck.iter().any(is_same) {
            self.counters.count(Operation::Read);
            reply.refuse(Errno::IO);
            return None;
        }
        Some(self.enter(Operation::Read, node, bytes, reply))
    }

    fn enter<R: Refuse>(self: &Arc<Self>, operation: Operation, node: u64, bytes: Range<u64>, reply: R) -> Ticket<R> {
        self.counters.count(operation);
        let unique = reply.unique();
        let (since, due) = (Instant::now(), Mutex::new(Due { reply: Some(reply), stage: Stage::Asked }));
        let (signalled, seen, node) = (Mutex::default(), Mutex::default(), AtomicU64::new(node));
        let waiting = Arc::new(Waiting { operation, node, bytes, since, signalled, seen, due });
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let is_signalled = {
            let mut requests = lock(&self.requests);
            requests.waiting.insert(number, Arc::clone(&waiting) as Arc<dyn Overdue>);
            requests.by_unique.insert(unique, number);
            let place = requests.early.iter().position(|&early| early == unique);
            place.and_then(|place| requests.early.remove(place)).is_some()
        };
        if is_signalled {
            self.signalled(&*waiting);
        }
        Ticket { waiting, number, unique, deadlines: Arc::clone(self) }
    }

    /// Whoever waits for the answer to a request has got a signal, and is let go after a while. False if there is no
    /// such request. Should it come later, the signal is known: where each thread has a queue of its own, the kernel
    /// does not find the request to which it should say it again.
    pub(crate) fn interrupt(&self, unique: u64) -> bool {
        let found = {
            let mut requests = lock(&self.requests);
            let found = requests.by_unique.get(&unique).and_then(|number| requests.waiting.get(number));
            let found = found.filter(|request| request.unique() == Some(unique)).map(Arc::clone);
            if found.is_none() && !requests.early.contains(&unique) {
                if requests.early.len() == MOST_EARLY {
                    requests.early.pop_front();
                }
                requests.early.push_back(unique);
            }
            found
        };
        let Some(request) = found else { return false };
        self.signalled(&*request);
        true
    }

    fn signalled(&self, request: &dyn Overdue) {
        request.signalled();
        match request.due(self.patience) {
            Some(due) if due <= Instant::now() => self.let_go(request),
            Some(due) => self.wake_at(due),
            None => {}
        }
    }

    /// The watchdog looks no later than then.
    fn wake_at(&self, due: Instant) {
        let mut watch = lock(&self.watch);
        if watch.due.is_none_or(|known| due < known) {
            watch.due = Some(due);
            self.told.notify_all();
        }
    }

    fn let_go(&self, request: &dyn Overdue) {
        // Before the answer: who has it may look at the numbers.
        request.interrupt(&|| self.counters.interrupted.add(1));
    }

    /// Lets those go who got a signal some time ago and wait still. When the next one is to go.
    fn let_signalled_go(&self) -> Option<Instant> {
        let (now, mut next, mut over) = (Instant::now(), None, Vec::new());
        for request in lock(&self.requests).waiting.values() {
            match request.due(self.patience) {
                Some(due) if due <= now => over.push(Arc::clone(request)),
                Some(due) => next = Some(next.map_or(due, |next: Instant| next.min(due))),
                None => {}
            }
        }
        for request in &over {
            self.let_go(&**request);
        }
        next
    }

    /// Does `work`; a panic is EIO, counted and logged.
    pub(crate) fn catch<T>(&self, operation: Operation, node: u64, work: impl FnOnce() -> T) -> Result<T, Errno> {
        guard::catch(work).map_err(|told| {
            self.panicked(operation, node, &told);
            Errno::IO
        })
    }

    /// Counts and logs a panic.
    pub(crate) fn panicked(&self, operation: Operation, node: u64, told: &str) {
        self.counters.panics.add(1);
        log::error!("{} of node {node}: {told}", operation.name());
    }

    /// Logs why bytes of a file in `tree` could not be read: of one file once, as the kernel asks for one page after
    /// the other, and of many files only so often as [`Failures`] says.
    pub(crate) fn failed(&self, tree: &dyn Tree, node: u64, offset: u64, error: &io::Error) {
        let told = lock(&self.failures).met(node, Instant::now());
        let Telling::Now { by_path, left_out } = told else {
            return log::debug!("read of node {node} at byte {offset}: {error}");
        };
        if left_out > 0 {
            log::warn!("{left_out} more reads failed meanwhile, of other files");
        }
        if !log::log_enabled!(log::Level::Warn) {
            return;
        }
        let begin = Instant::now();
        let path = if by_path { tree.path_of(Node(node)) } else { None };
        lock(&self.failures).looked += begin.elapsed();
        match path {
            Some(path) => log::warn!("read of {} at byte {offset}: {error}", escape(&path)),
            None => log::warn!("read of node {node} at byte {offset}: {error}"),
        }
    }

    /// What has been counted; `work` is what the tree says of itself.
    pub(crate) fn statistics(&self, mut work: Work) -> Statistics {
        work.memory.push(("reply_buffers", buffers::memory() as u64));
        let (in_flight, oldest) = {
            let waiting = &lock(&self.requests).waiting;
            (waiting.len(), waiting.first_key_value().map(|(_, oldest)| oldest.since().elapsed()))
        };
        self.counters.snapshot(in_flight, oldest, work)
    }

    /// The watchdog: gives up what is overdue, and calls `after` while anybody is at work on such a thing, until
    /// [`Deadlines::finish`]. What takes very long can be waited for as long as it gets on, and as long as whoever
    /// waits gets no signal: `held_up` says how far that is which a question about a node waits for.
    pub(crate) fn watch(&self, held_up: impl Fn(u64) -> Option<u64>, after: impl Fn()) {
        let nap = LONGEST_NAP.min(self.limit / 4).max(Duration::from_millis(5));
        while self.sleep(nap) {
            if let Some(next) = self.let_signalled_go() {
                self.wake_at(next);
            }
            if self.give_up_overdue(&held_up) {
                after();
            }
        }
    }

    /// Sleeps for `nap`, or less where somebody is to be let go. False if the watch has ended.
    fn sleep(&self, nap: Duration) -> bool {
        let begin = Instant::now();
        let mut watch = lock(&self.watch);
        while !watch.has_ended {
            let now = Instant::now();
            let until_due = watch.due.map_or(nap, |due| due.saturating_duration_since(now));
            let left = nap.saturating_sub(now.saturating_duration_since(begin)).min(until_due);
            if left.is_zero() {
                watch.due = None;
                return true;
            }
            watch = self.told.wait_timeout(watch, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    /// Ends [`Deadlines::watch`].
    pub(crate) fn finish(&self) {
        lock(&self.watch).has_ended = true;
        self.told.notify_all();
    }

    /// True while somebody works on what is overdue, also where it has its answer: threads may have to be replaced.
    fn give_up_overdue(&self, held_up: &dyn Fn(u64) -> Option<u64>) -> bool {
        let now = Instant::now();
        let age = |request: &Arc<dyn Overdue>| now.saturating_duration_since(request.since());
        // Answered outside the lock: the kernel may let somebody else ask at once.
        let overdue: Vec<_> = lock(&self.requests)
            .waiting
            .iter()
            .take_while(|(_, request)| age(request) >= self.limit)
            .map(|(&number, request)| (number, Arc::clone(request)))
            .collect();
        let (mut is_stuck, mut given_up) = (false, 0);
        for (number, request) in overdue {
            let gets_on = |steps| request.wait_at(steps) < self.limit;
            if request.unique().is_some() && held_up(request.range().0).is_some_and(gets_on) {
                continue;
            }
            is_stuck = true;
            // Noted before the kernel gets its error, upon which it asks again.
            let mut requests = lock(&self.requests);
            let (node, bytes) = request.range();
            let is_new = !requests.stuck.iter().any(|(other, _, _)| *other == number);
            if is_new && !bytes.is_empty() && requests.waiting.contains_key(&number) {
                requests.stuck.push((number, node, bytes));
            }
            drop(requests);
            given_up += u64::from(request.give_up(age(&request)));
        }
        self.counters.deadlines_missed.add(given_up);
        is_stuck
    }
}

#[cfg(test)]
mod tests;
