//! Threads for what has to wait.
//!
//! They are started when there is work and nobody idle, and end after a while without. One file can have half of them, so
//! that a file whose bytes never come does not keep the others from being read. A thread that has been stuck beyond
//! the deadline no longer counts, up to a limit of such threads.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::buffers;
use crate::deadline::lock;

/// Threads that work. The kernel keeps at most a few dozen reads waiting at once.
const MOST: usize = 16;

/// Of these, how many may read the same file.
const MOST_PER_NODE: usize = MOST / 2;

/// Threads that are stuck beyond the deadline and have been replaced.
const MOST_STUCK: usize = 64;

/// How long an idle thread stays.
const IDLE: Duration = Duration::from_secs(10);

/// Decoders keep their tables on the heap; what is left is a few frames.
const STACK: usize = 512 << 10;

/// A pool of threads.
#[derive(Clone, Debug)]
pub(crate) struct Workers {
    pool: Arc<Pool>,
}

struct Pool {
    /// How long a job may take before its thread counts as stuck.
    deadline: Duration,
    state: Mutex<State>,
    /// Threads that have work, to be looked at without the lock.
    busy: AtomicUsize,
    wake: Condvar,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = lock(&self.state);
        write!(formatter, "{} threads, {} jobs", state.threads, state.queue.len())
    }
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
    /// By number: the node that a thread reads, and since when.
    running: HashMap<u64, (u64, Instant)>,
    next: u64,
    closed: bool,
}

struct Job {
    node: u64,
    work: Box<dyn FnOnce() + Send>,
}

impl State {
    /// How many jobs can run at this moment, were there threads.
    fn runnable(&self) -> usize {
        let mut shares: HashMap<u64, usize> = HashMap::new();
        for (node, _) in self.running.values() {
            *shares.entry(*node).or_default() += 1;
        }
        let has_share = |job: &&Job| {
            let share = shares.entry(job.node).or_default();
            *share += 1;
            *share <= MOST_PER_NODE
        };
        self.queue.iter().filter(has_share).count()
    }

    /// The first job whose file does not have its share of threads yet.
    fn take(&mut self) -> Option<(u64, Job)> {
        let State { queue, running, .. } = self;
        let busy = |node| running.values().filter(|(other, _)| *other == node).count();
        let position = queue.iter().position(|job| busy(job.node) < MOST_PER_NODE)?;
        let job = queue.remove(position)?;
        self.next += 1;
        self.running.insert(self.next, (job.node, Instant::now()));
        Some((self.next, job))
    }
}

impl Workers {
    pub(crate) fn new(deadline: Duration) -> Self {
        Self {
            pool: Arc::new(Pool { deadline, state: Mutex::default(), busy: AtomicUsize::new(0), wake: Condvar::new() }),
        }
    }

    /// Has `work`, a read of `node`, done by some thread. It must not panic.
    pub(crate) fn submit(&self, node: u64, work: impl FnOnce() + Send + 'static) {
        let mut state = lock(&self.pool.state);
        state.queue.push_back(Job { node, work: Box::new(work) });
        if state.idle > 0 {
            self.pool.wake.notify_one();
        }
        // A thread that has been woken counts as idle until it runs, so each job that can run needs one of its own.
        if state.idle < state.runnable() {
            self.start_thread(&mut state);
        }
    }

    /// True while a thread has work.
    pub(crate) fn is_busy(&self) -> bool {
        self.pool.busy.load(Ordering::Relaxed) > 0
    }

    /// Starts threads in the place of those that are stuck, if there is work for them.
    pub(crate) fn replace_stuck(&self) {
        let mut state = lock(&self.pool.state);
        for _ in 0..state.runnable() {
            self.start_thread(&mut state);
        }
    }

    /// Lets idle threads end, busy ones after their job; what is queued is dropped.
    pub(crate) fn finish(&self) {
        let dropped = {
            let mut state = lock(&self.pool.state);
            state.closed = true;
            std::mem::take(&mut state.queue)
        };
        drop(dropped);
        self.pool.wake.notify_all();
    }

    fn start_thread(&self, state: &mut State) {
        let stuck = state.running.values().filter(|(_, since)| since.elapsed() >= self.pool.deadline).count();
        if state.closed || state.threads - stuck.min(MOST_STUCK).min(state.threads) >= MOST {
            return;
        }
        let pool = Arc::clone(&self.pool);
        let started =
            thread::Builder::new().name("tarnfs-worker".to_owned()).stack_size(STACK).spawn(move || pool.work());
        match started {
            Ok(_) => state.threads += 1,
            // The job waits for another thread, or for its deadline.
            Err(error) => log::error!("cannot start a thread: {error}"),
        }
    }
}

impl Pool {
    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some((number, job)) = state.take() {
                drop(state);
                self.busy.fetch_add(1, Ordering::Relaxed);
                (job.work)();
                self.busy.fetch_sub(1, Ordering::Relaxed);
                state = lock(&self.state);
                state.running.remove(&number);
                continue;
            }
            if state.closed {
                break;
            }
            state.idle += 1;
            let (woken, timeout) = self.wake.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if timeout.timed_out() && state.queue.is_empty() {
                buffers::trim();
                break;
            }
        }
        state.threads -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn one_file_cannot_have_all_threads() {
        let workers = Workers::new(Duration::from_secs(60));
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for _ in 0..3 * MOST {
            let held = Arc::clone(&held);
            workers.submit(1, move || {
                let _ = lock(&held).recv();
            });
        }
        // Now its share is taken and the rest is queued.
        while lock(&workers.pool.state).running.len() < MOST_PER_NODE {
            thread::yield_now();
        }
        let (done, finished) = channel();
        workers.submit(2, move || done.send(()).unwrap());
        finished.recv().unwrap();
        drop(release);
        workers.finish();
    }

    #[test]
    fn stuck_threads_are_replaced() {
        let workers = Workers::new(Duration::from_millis(1));
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for node in 0..MOST as u64 {
            let held = Arc::clone(&held);
            workers.submit(node, move || {
                let _ = lock(&held).recv();
            });
        }
        while lock(&workers.pool.state).running.len() < MOST {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(2));
        let (done, finished) = channel();
        workers.submit(99, move || done.send(()).unwrap());
        workers.replace_stuck();
        finished.recv().unwrap();
        drop(release);
        workers.finish();
    }

    #[test]
    fn every_job_is_done_once() {
        let workers = Workers::new(Duration::from_secs(60));
        let (done, finished) = channel();
        for number in 0..1000_u64 {
            let done = done.clone();
            workers.submit(number % 7, move || done.send(number).unwrap());
        }
        drop(done);
        let mut seen: Vec<_> = finished.iter().collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..1000).collect::<Vec<_>>());
        workers.finish();
    }
}
