//! Streams in which random reads are slow are kept decoded while the machine is idle: by one thread for all archives of
//! this process, which gets the processor when nobody else wants it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{Pid, gettid};
use tarnfs_codec::engine::{Fill, Filled, lowest_priority};

/// What is to be kept, for all archives of this process.
static QUEUE: Mutex<Queue> = Mutex::new(Queue { waiting: Vec::new(), added: 0, has_begun: false, is_working: false });

/// There is one more.
static ADDED: Condvar = Condvar::new();

struct Queue {
    waiting: Vec<Waiting>,
    /// How many were ever added.
    added: u64,
    /// See [`begin`].
    has_begun: bool,
    /// There is a thread.
    is_working: bool,
}

/// One that is gone on with later.
struct Waiting {
    /// The first ones come first, until all of what they keep is kept.
    number: u64,
    /// Not before this time.
    at: Instant,
    fill: Fill,
}

/// From now on what is slow to decode is kept. To be called before system calls are given up that change priorities,
/// and after those rights are given up that decoders should not have.
pub fn begin() {
    let mut queue = queue();
    queue.has_begun = true;
    let (sender, thread) = sync_channel(1);
    start(&mut queue, Some(sender));
    drop(queue);
    // The thread gets its priority from here: on a busy machine one that has it may not run for long. An error means
    // that there is no thread.
    if let Ok(thread) = thread.recv() {
        step_back(Some(thread));
    }
}

/// Keeps one more, as soon as [`begin`] has been called.
pub(crate) fn add(fill: Fill) {
    let mut queue = queue();
    queue.added += 1;
    let number = queue.added;
    queue.waiting.push(Waiting { number, at: Instant::now(), fill });
    ADDED.notify_one();
    // Nobody waits: the thread changes its own priority.
    start(&mut queue, None);
}

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread if there is work for one and none yet. `started` gets its number; else it steps back itself.
fn start(queue: &mut Queue, started: Option<SyncSender<Pid>>) {
    if !queue.has_begun || queue.is_working || queue.waiting.is_empty() {
        return;
    }
    match thread::Builder::new().name("tarnfs-fill".to_owned()).spawn(move || work(started)) {
        Ok(_) => queue.is_working = true,
        Err(error) => log::info!("nothing is kept decoded: cannot start a thread: {error}"),
    }
}

/// Set by tests, which have to end however busy the machine is: then the thread keeps its priority.
const FOR_TESTS: &str = "TARNFS_TEST_FILL_AT_ONCE";

/// Gives `thread`, or else the one that calls, the processor and the disk only while nobody else wants them.
pub fn step_back(thread: Option<Pid>) {
    if std::env::var_os(FOR_TESTS).is_none() {
        lowest_priority(thread);
    }
}

fn work(started: Option<SyncSender<Pid>>) {
    match started {
        // Fails only where nobody waits for it any more.
        Some(started) => drop(started.send(gettid())),
        None => step_back(None),
    }
    while let Some(Waiting { number, mut fill, .. }) = next() {
        let pause = match catch_unwind(AssertUnwindSafe(|| fill.step())) {
            Ok(Filled::Some) => Duration::ZERO,
            Ok(Filled::NotNow(pause)) => pause,
            Ok(Filled::All) => continue,
            Err(_) => {
                log::error!("a decoder panicked; this is an error in tarnfs, please report it");
                continue;
            }
        };
        // Only the first one keeps what it needs: many would leave no memory for those who read.
        if !pause.is_zero() && queue().waiting.iter().any(|other| other.number < number) {
            fill.rest();
        }
        queue().waiting.push(Waiting { number, at: Instant::now() + pause, fill });
    }
}

/// Waits until one may be gone on with; `None` once there is none at all.
fn next() -> Option<Waiting> {
    let mut queue = queue();
    loop {
        let now = Instant::now();
        // Those that may not go on yet are behind all that may.
        let order = |one: &Waiting| (one.at.saturating_duration_since(now), one.number);
        let first = queue.waiting.iter().enumerate().min_by_key(|(_, one)| order(one));
        let Some((position, first)) = first else {
            queue.is_working = false;
            return None;
        };
        let pause = first.at.saturating_duration_since(now);
        if pause.is_zero() {
            return Some(queue.waiting.swap_remove(position));
        }
        queue = ADDED.wait_timeout(queue, pause).unwrap_or_else(PoisonError::into_inner).0;
    }
}
