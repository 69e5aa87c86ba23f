//! Goes through folders on all threads, and gives what is found in the order of one thread.
//!
//! The content of a folder is a task. What comes of it is a list of parts: bytes to be printed, and the tasks of
//! the folders in it, at their places. The thread that prints goes through these parts in order. It does a task itself
//! that nobody has begun, and waits for one that somebody is at. The others do what may come next, as long as not too
//! much waits to be printed.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tarnfs_tree::{Attributes, Error, Kind, Node};

use super::{Looker, Search, Visit, last_of};
use crate::inside::{self, Trouble};
use crate::terminal::Output;

/// Threads beyond these gain nothing: the one that prints has to keep up.
const MOST_THREADS: usize = 8;

/// Below so many entries nobody notices how long it takes.
const WORTH_THREADS: u64 = 20_000;

/// Bytes that wait to be printed; others then do no more.
const MOST_WAITING: usize = 16 << 20;

/// Tasks of which the other threads know.
const MOST_KNOWN: usize = 4096;

/// One task lists no more than so many folders: the rest of the folder is another one.
const MOST_FOLDERS: usize = 1024;

/// Nor does what comes of it take more memory than this. The thread that prints keeps what came of each folder that it
/// is in, so the deeper one lies, the less: together at most 25 MiB in 1024 folders in each other.
fn most_bytes(depth: usize) -> usize {
    ((1 << 20) / depth.max(1)).max(16 << 10)
}

/// A folder on the way to others. Each has but its own name: a path for each folder that is open would take memory with
/// the square of how deep they lie.
struct Above {
    folder: Option<Arc<Self>>,
    name: Vec<u8>,
}

impl Above {
    /// The path of it, with a slash.
    fn path(&self) -> Vec<u8> {
        let folders = std::iter::successors(Some(self), |inner| inner.folder.as_deref());
        let names: Vec<_> = folders.map(|folder| folder.name.as_slice()).collect();
        let mut path = Vec::with_capacity(names.iter().map(|name| name.len() + 1).sum());
        for name in names.into_iter().rev() {
            path.extend_from_slice(name);
            // One that was typed may have it.
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
        }
        path
    }
}

impl Drop for Above {
    /// Without recursion, however deep it lies.
    fn drop(&mut self) {
        let mut next = self.folder.take();
        while let Some(mut folder) = next.and_then(Arc::into_inner) {
            next = folder.folder.take();
        }
    }
}

/// What is in a folder, from a position on.
struct Task {
    folder: Node,
    /// The folder that it is in, and its name: those that wait share the former.
    above: Option<Arc<Above>>,
    name: Vec<u8>,
    /// Bytes of the path that were typed.
    start: usize,
    /// Levels below what was typed of what is in it.
    depth: usize,
    from: u64,
}

/// A part of what comes of a task.
enum Part {
    Bytes(Vec<u8>),
    Inner(Arc<Slot>),
    Unreadable(Vec<u8>, Error),
    /// Nothing more is to be printed.
    End,
}

/// What comes of a task.
#[derive(Default)]
struct Made {
    parts: Vec<Part>,
    /// Bytes that it takes, with the tasks in it.
    memory: usize,
}

impl Made {
    fn add(&mut self, part: Part, memory: usize) {
        self.memory += size_of::<Part>() + memory;
        self.parts.push(part);
    }

    /// What is in a folder.
    fn inner(&mut self, task: Task) {
        let memory = size_of::<Slot>() + task.name.len();
        self.add(Part::Inner(Slot::new(task)), memory);
    }
}

/// A task, or what came of it.
struct Slot(Mutex<State>);

enum State {
    Waiting(Task),
    InWork,
    Done(Made),
}

impl Slot {
    fn new(task: Task) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Waiting(task))))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task, if nobody is at it: from now on somebody is.
    fn claim(&self) -> Option<Task> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::InWork) {
            State::Waiting(task) => Some(task),
            other => {
                *state = other;
                None
            }
        }
    }
}

/// What all threads know.
#[derive(Default)]
struct Queue {
    shared: Mutex<Shared>,
    changed: Condvar,
}

#[derive(Default)]
struct Shared {
    /// What comes next is last. Some may be done already.
    known: VecDeque<Arc<Slot>>,
    /// Bytes of what is done and not printed.
    waiting: usize,
    has_ended: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the others of tasks, and of what is to be printed or no longer.
    fn tell(&self, made: &Made, is_printed: bool) {
        let mut shared = self.lock();
        for part in made.parts.iter().rev() {
            if let Part::Inner(slot) = part {
                shared.known.push_back(Arc::clone(slot));
            }
        }
        let too_many = shared.known.len().saturating_sub(MOST_KNOWN);
        shared.known.drain(..too_many);
        if !is_printed {
            shared.waiting += made.memory;
        }
        drop(shared);
        self.changed.notify_all();
    }

    /// Does tasks until there are no more.
    fn work(&self, search: &Search<'_>) {
        let mut shared = self.lock();
        while !shared.has_ended {
            let next = if shared.waiting < MOST_WAITING { shared.known.pop_back() } else { None };
            let Some(slot) = next else {
                shared = self.changed.wait(shared).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(shared);
            if let Some(task) = slot.claim() {
                let done = Finish { queue: self, slot: &slot };
                let made = list(search, task);
                self.tell(&made, false);
                *slot.lock() = State::Done(made);
                drop(done);
            }
            shared = self.lock();
        }
    }

    /// What came of the task of `slot`, which is done here if nobody is at it.
    fn result(&self, search: &Search<'_>, slot: &Slot) -> Vec<Part> {
        if let Some(task) = slot.claim() {
            let made = list(search, task);
            self.tell(&made, true);
            return made.parts;
        }
        let mut shared = self.lock();
        loop {
            let state = std::mem::replace(&mut *slot.lock(), State::InWork);
            if let State::Done(made) = state {
                shared.waiting = shared.waiting.saturating_sub(made.memory);
                drop(shared);
                self.changed.notify_all();
                return made.parts;
            }
            shared = self.changed.wait(shared).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn end(&self) {
        self.lock().has_ended = true;
        self.changed.notify_all();
    }
}

/// Wakes who waits for a task, whatever became of it.
struct Finish<'a> {
    queue: &'a Queue,
    slot: &'a Slot,
}

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        let mut state = self.slot.lock();
        if matches!(*state, State::InWork) && std::thread::panicking() {
            // The panic is told of when the threads are joined.
            *state = State::Done(Made { parts: vec![Part::End], memory: 0 });
        }
        drop(state);
        // Who waits has looked before, or looks after this.
        drop(self.queue.lock());
        self.queue.changed.notify_all();
    }
}

/// Prints what is found of each of `starts` and below it. `unreadable` is told of what cannot be read.
pub(super) fn below(
    search: &Search<'_>,
    starts: &mut dyn Iterator<Item = (Vec<u8>, Attributes)>,
    out: &mut Output,
    unreadable: &mut dyn FnMut(Vec<u8>, Error),
) -> Result<(), Trouble> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    let others = if search.tree.totals().nodes < WORTH_THREADS { 0 } else { threads - 1 };
    let queue = Queue::default();
    std::thread::scope(|scope| {
        for _ in 0..others {
            // Without it the others do more.
            let _ = std::thread::Builder::new().name("find".into()).spawn_scoped(scope, || queue.work(search));
        }
        let printed = print(search, &queue, starts, out, unreadable);
        queue.end();
        printed
    })
}

fn print(
    search: &Search<'_>,
    queue: &Queue,
    starts: &mut dyn Iterator<Item = (Vec<u8>, Attributes)>,
    out: &mut Output,
    unreadable: &mut dyn FnMut(Vec<u8>, Error),
) -> Result<(), Trouble> {
    for (path, found) in starts {
        // Parts of folders in each other that are still to be printed: as many as the tree is deep.
        let mut open = vec![first(search, &path, &found).into_iter()];
        while let Some(parts) = open.last_mut() {
            match parts.next() {
                None => {
                    open.pop();
                }
                Some(Part::Bytes(bytes)) => out.write_all(&bytes)?,
                Some(Part::Inner(slot)) => {
                    // So a long folder is no pile of what is left of it.
                    if parts.as_slice().is_empty() {
                        open.pop();
                    }
                    open.push(queue.result(search, &slot).into_iter());
                }
                Some(Part::Unreadable(_, error)) if inside::is_interrupted(&error) => return Err(error.into()),
                Some(Part::Unreadable(path, error)) => unreadable(path, error),
                Some(Part::End) => return Ok(()),
            }
        }
    }
    Ok(())
}

/// What comes of one that was typed.
fn first(search: &Search<'_>, path: &[u8], found: &Attributes) -> Vec<Part> {
    let mut looker = Looker::new(search);
    let mut made = Made::default();
    let name = last_of(path).to_vec();
    let visit = Visit { path, start: path.len(), name: &name, depth: 0, attributes: found };
    let task = || {
        let (start, folder) = (path.len(), found.node);
        Task { folder, above: None, name: path.to_vec(), start, depth: 1, from: 0 }
    };
    child(&mut looker, &mut made, &visit, task);
    finish(looker, &mut made);
    made.parts
}

/// Lists a folder. What is in the folders in it is done later.
fn list(search: &Search<'_>, task: Task) -> Made {
    let mut looker = Looker::new(search);
    let above = Arc::new(Above { folder: task.above.clone(), name: task.name.clone() });
    let mut path = above.path();
    let length = path.len();
    // All tasks in it hold that.
    let memory = size_of::<Above>() + task.name.len();
    let mut made = Made { parts: Vec::new(), memory };
    let most = memory + most_bytes(task.depth);
    let (mut next, mut folders, mut was_left) = (None, 0, false);
    let listed = search.tree.read_dir(task.folder, task.from, &mut |entry| {
        path.truncate(length);
        path.extend_from_slice(entry.name);
        let attributes = &entry.attributes;
        let visit = Visit { path: &path, start: task.start, name: entry.name, depth: task.depth, attributes };
        let inner = || {
            let (start, depth, folder) = (task.start, task.depth + 1, attributes.node);
            Task { folder, above: Some(Arc::clone(&above)), name: entry.name.to_vec(), start, depth, from: 0 }
        };
        folders += usize::from(child(&mut looker, &mut made, &visit, inner));
        next = Some(entry.next);
        was_left = folders >= MOST_FOLDERS || made.memory + looker.memory() >= most;
        !looker.quits && !was_left
    });
    was_left &= !looker.quits;
    if let Err(error) = listed {
        looker.cannot_be_read(&path[..length - 1], error);
        next = None;
    }
    finish(looker, &mut made);
    // The last one was looked at, so the rest begins behind it.
    if let (true, Some(from)) = (was_left, next) {
        made.inner(Task { from, ..task });
    }
    made
}

/// Looks at one entry, and adds the task of what is in it. True if there is one.
fn child(looker: &mut Looker<'_>, made: &mut Made, visit: &Visit<'_>, task: impl Fn() -> Task) -> bool {
    let search = looker.search;
    let (least, most) = search.depths;
    let goes_in = visit.attributes.kind == Kind::Folder && visit.depth < most;
    looker.prunes = false;
    if goes_in && search.depth_first {
        bytes(looker, made);
        made.inner(task());
    }
    if visit.depth >= least
        && let Err(trouble) = looker.look_at(visit)
    {
        match trouble {
            Trouble::Tree(error) => looker.cannot_be_read(visit.path, error),
            Trouble::Output(error) => looker.cannot_be_read(visit.path, error.into()),
        }
    }
    if goes_in && !search.depth_first && !looker.prunes && !looker.quits {
        bytes(looker, made);
        made.inner(task());
        return true;
    }
    goes_in && search.depth_first
}

/// What was printed so far becomes a part.
fn bytes(looker: &mut Looker<'_>, made: &mut Made) {
    let bytes = looker.out.take();
    if !bytes.is_empty() {
        let memory = bytes.capacity();
        made.add(Part::Bytes(bytes), memory);
    }
}

fn finish(mut looker: Looker<'_>, made: &mut Made) {
    bytes(&mut looker, made);
    for (path, error) in looker.unreadable {
        let memory = path.len();
        made.add(Part::Unreadable(path, error), memory);
    }
    if looker.quits {
        made.add(Part::End, 0);
    }
}
