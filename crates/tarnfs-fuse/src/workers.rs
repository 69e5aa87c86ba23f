//! Threads for what has to wait.
//!
//! They are started when there is work and nobody idle, and end after a while without. Each job has a lane
//! ([`tarnfs_tree::Waiting::lane`]): what is in one lane may all have to wait for the same, a server that is gone for
//! instance. A lane has so many threads that one archive can be read as quickly as it goes, and there are more of them
//! than one lane can have, so that the others are served. One file can have half of a lane's, so that a file whose
//! bytes never come does not keep the others from being read. A thread that has been stuck beyond the deadline no
//! longer counts, up to a limit of such threads; nor does one whose job says that it takes long ([`takes_long`]), as
//! to copy a file does.

mod queue;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::deadline::lock;
use crate::{buffers, guard};
use queue::{Job, Queue};

/// Threads that work for one lane. The kernel keeps at most a few dozen reads waiting at once.
const MOST_PER_LANE: usize = 16;

/// What is in a lane of this kind waits for one and the same thing: one thread waits for all of it.
const WAITING: u64 = 1 << 63;

/// No tree has this lane.
pub(crate) const NOBODYS_LANE: u64 = WAITING - 1;

/// The lane of jobs that wait for what has this number.
pub(crate) fn waiting_lane(number: u64) -> u64 {
    WAITING | number
}

/// Of these, how many may read the same file.
const MOST_PER_NODE: usize = MOST_PER_LANE / 2;

/// Threads of all lanes. Where there are so many, a lane that has none gets one all the same.
const MOST: usize = 4 * MOST_PER_LANE;

/// Threads, whatever they do. Beyond this even a lane that has none waits.
const MOST_OF_ALL: usize = 5 * MOST;

/// Threads that wait for what others wait for, too. They may do so for hours, and are not replaced; all that has work
/// is to get on meanwhile.
const MOST_WAITING: usize = MOST;

/// Threads that are stuck beyond the deadline, and have been replaced.
const MOST_STUCK: usize = 64;

/// The same of those that take long. They leave the places of those that are stuck: files are copied for hours, and a
/// disk that hangs meanwhile is not to stop what else lies in its lane.
const MOST_LONG: usize = 64;

/// How long an idle thread stays.
const IDLE: Duration = Duration::from_secs(10);

/// Decoders keep their tables on the heap; what is left is a few frames for each stream in a stream. Only what is used
/// of it takes memory.
const STACK: usize = 2 << 20;

/// A pool of threads.
#[derive(Clone, Debug)]
pub(crate) struct Workers {
    pool: Arc<Pool>,
}

struct Pool {
    /// How long a job may take before its thread counts as stuck.
    deadline: Duration,
    state: Mutex<WorkersState>,
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
struct WorkersState {
    queue: Queue,
    threads: usize,
    /// Of these, those that have not looked for work yet.
    starting: usize,
    idle: usize,
    /// By number: the job that a thread is at.
    running: HashMap<u64, Running>,
    next: u64,
    closed: bool,
}

struct Running {
    lane: u64,
    node: u64,
    since: Instant,
    /// It has said so.
    takes_long: bool,
}

thread_local! {
    /// The job that this thread is at.
    static JOB: RefCell<Option<(Workers, u64)>> = const { RefCell::new(None) };
}

/// The job of this thread, if it has one, takes long: others of its lane do not wait for it, as for one that is stuck.
/// Or it does so no more.
pub(crate) fn takes_long(does: bool) {
    if let Some((workers, number)) = JOB.with_borrow(Option::clone) {
        workers.takes_long(number, does);
    }
}

/// How many jobs run, by lane and by node.
#[derive(Default)]
struct Shares {
    all: usize,
    /// Of these, in lanes that wait.
    waiting: usize,
    lanes: HashMap<u64, usize>,
    nodes: HashMap<(u64, u64), usize>,
}

impl Shares {
    fn of(running: &HashMap<u64, Running>) -> Self {
        let mut shares = Self::default();
        for job in running.values() {
            shares.add(job.lane, job.node);
        }
        shares
    }

    fn add(&mut self, lane: u64, node: u64) {
        self.all += 1;
        self.waiting += usize::from(lane & WAITING != 0);
        *self.lanes.entry(lane).or_default() += 1;
        *self.nodes.entry((lane, node)).or_default() += 1;
    }

    /// True if one more job of this lane may run.
    fn lane_has_room(&self, lane: u64, stuck: &Stuck) -> bool {
        let of_lane = self.lanes.get(&lane).copied().unwrap_or(0);
        let working = of_lane - stuck.lanes.get(&lane).copied().unwrap_or(0);
        if self.all >= MOST_OF_ALL {
            return false;
        }
        if lane & WAITING != 0 {
            return working < 1 && self.waiting < MOST_WAITING;
        }
        working < MOST_PER_LANE && (self.all - self.waiting - stuck.all < MOST || of_lane == 0)
    }

    /// The same of this lane and node.
    fn has_room(&self, lane: u64, node: u64, stuck: &Stuck) -> bool {
        let of_node = self.nodes.get(&(lane, node)).copied().unwrap_or(0);
        of_node < MOST_PER_NODE && self.lane_has_room(lane, stuck)
    }
}

/// Jobs that have been given up, or take long.
#[derive(Default)]
struct Stuck {
    all: usize,
    lanes: HashMap<u64, usize>,
}

impl WorkersState {
    /// How many jobs could be taken at this moment by further threads; it counts up to `most`. Woken threads have not
    /// taken theirs yet.
    ///
    /// What has no room lies in lanes and nodes that have as many jobs at work as they may, so these are few.
    fn runnable(&self, deadline: Duration, most: usize) -> usize {
        let stuck = self.stuck(deadline);
        let mut shares = Shares::of(&self.running);
        let mut count = 0;
        for (lane, nodes) in self.queue.lanes() {
            for (node, waiting) in nodes {
                if count >= most || !shares.lane_has_room(lane, &stuck) {
                    break;
                }
                for _ in 0..waiting.min(most - count) {
                    if !shares.has_room(lane, node, &stuck) {
                        break;
                    }
                    shares.add(lane, node);
                    count += 1;
                }
            }
            if count >= most || shares.all >= MOST_OF_ALL {
                break;
            }
        }
        count
    }

    /// The first job whose lane and file do not have their share of threads yet.
    fn take(&mut self, deadline: Duration) -> Option<(u64, Job)> {
        if self.queue.is_empty() {
            return None;
        }
        let stuck = self.stuck(deadline);
        let shares = Shares::of(&self.running);
        if shares.all >= MOST_OF_ALL {
            return None;
        }
        let found =
            self.queue.lanes().filter(|(lane, _)| shares.lane_has_room(*lane, &stuck)).find_map(|(lane, mut nodes)| {
                let (node, _) = nodes.find(|&(node, _)| shares.has_room(lane, node, &stuck))?;
                Some((lane, node))
            });
        let (lane, node) = found?;
        let job = self.queue.take(lane, node)?;
        self.next += 1;
        self.running
            .insert(self.next, Running { lane: job.lane, node: job.node, since: Instant::now(), takes_long: false });
        Some((self.next, job))
    }

    /// Jobs that have been at work beyond the deadline, or take long, by lane: those that do not count, of which there
    /// are [`MOST_STUCK`] and [`MOST_LONG`] at most.
    fn stuck(&self, deadline: Duration) -> Stuck {
        let mut stuck = Stuck::default();
        // Who waits for what takes long is not stuck: another thread would do no more.
        let is_stuck = |job: &&Running| job.lane & WAITING == 0 && (job.takes_long || job.since.elapsed() >= deadline);
        let (mut left, mut left_for_long) = (MOST_STUCK, MOST_LONG);
        for job in self.running.values().filter(is_stuck) {
            let left = if job.takes_long { &mut left_for_long } else { &mut left };
            if *left > 0 {
                *left -= 1;
                stuck.all += 1;
                *stuck.lanes.entry(job.lane).or_default() += 1;
            }
        }
        stuck
    }
}

impl Workers {
    pub(crate) fn new(deadline: Duration) -> Self {
        Self {
            pool: Arc::new(Pool { deadline, state: Mutex::default(), busy: AtomicUsize::new(0), wake: Condvar::new() }),
        }
    }

    /// Has `work`, which is about `node` and waits with what is in its lane, done by some thread.
    pub(crate) fn submit(&self, lane: u64, node: u64, work: impl FnOnce() + Send + 'static) {
        let mut state = lock(&self.pool.state);
        if state.closed {
            return;
        }
        state.queue.push(Job { lane, node, work: Box::new(work) });
        self.provide(&mut state);
    }

    /// One more job may be able to run.
    fn provide(&self, state: &mut WorkersState) {
        if state.idle > 0 {
            self.pool.wake.notify_one();
        }
        // A thread that has been woken counts as idle until it runs, so each job that can run needs one of its own.
        let coming = state.idle + state.starting;
        if coming < state.runnable(self.pool.deadline, coming + 1) {
            self.start_thread(state);
        }
    }

    /// True while a thread has work.
    pub(crate) fn is_busy(&self) -> bool {
        self.pool.busy.load(Ordering::Relaxed) > 0
    }

    /// Starts threads in the place of those that are stuck, if there is work for them.
    pub(crate) fn replace_stuck(&self) {
        let mut state = lock(&self.pool.state);
        for _ in state.starting..state.runnable(self.pool.deadline, MOST_OF_ALL) {
            self.start_thread(&mut state);
        }
    }

    /// The job of this number takes long, or no more.
    fn takes_long(&self, number: u64, does: bool) {
        let mut state = lock(&self.pool.state);
        if let Some(job) = state.running.get_mut(&number) {
            job.takes_long = does;
        }
        if does {
            self.provide(&mut state);
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

    fn start_thread(&self, state: &mut WorkersState) {
        if state.closed || state.threads >= MOST_OF_ALL {
            return;
        }
        let pool = Arc::clone(&self.pool);
        let started =
            thread::Builder::new().name("tarnfs-worker".to_owned()).stack_size(STACK).spawn(move || pool.work());
        match started {
            Ok(_) => {
                state.threads += 1;
                state.starting += 1;
            }
            // The job waits for another thread, or for its deadline.
            Err(error) => log::error!("cannot start a thread: {error}"),
        }
    }
}

impl Pool {
    fn work(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        state.starting -= 1;
        loop {
            if let Some((number, job)) = state.take(self.deadline) {
                drop(state);
                self.busy.fetch_add(1, Ordering::Relaxed);
                JOB.set(Some((Workers { pool: Arc::clone(self) }, number)));
                // The thread stays, and is counted as what it is.
                if let Err(told) = guard::catch(job.work) {
                    log::error!("work on node {}: {told}", job.node);
                }
                JOB.set(None);
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
        for _ in 0..3 * MOST_PER_LANE {
            let held = Arc::clone(&held);
            workers.submit(0, 1, move || {
                let _ = lock(&held).recv();
            });
        }
        // Now its share is taken and the rest is queued.
        while lock(&workers.pool.state).running.len() < MOST_PER_NODE {
            thread::yield_now();
        }
        let (done, finished) = channel();
        workers.submit(0, 2, move || done.send(()).unwrap());
        finished.recv().unwrap();
        drop(release);
        workers.finish();
    }

    /// Lanes that get no answer leave threads to the others, however many they are.
    #[test]
    fn one_lane_cannot_have_all_threads() {
        let workers = Workers::new(Duration::from_secs(3600));
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for lane in 0..8 {
            for node in 0..100 {
                let held = Arc::clone(&held);
                workers.submit(lane, node, move || {
                    let _ = lock(&held).recv();
                });
            }
        }
        while lock(&workers.pool.state).running.len() < MOST + 4 {
            thread::yield_now();
        }
        for lane in 100..200 {
            let (done, finished) = channel();
            workers.submit(lane, 1, move || done.send(()).unwrap());
            finished.recv().unwrap();
        }
        let state = lock(&workers.pool.state);
        let of_first = state.running.values().filter(|job| job.lane == 0).count();
        assert_eq!((of_first, state.threads < MOST_OF_ALL), (MOST_PER_LANE, true));
        drop(state);
        drop(release);
        workers.finish();
    }

    /// Neither as stuck threads that are replaced: nobody could do more than wait for the same.
    #[test]
    fn one_thread_waits_for_what_many_wait_for() {
        let workers = Workers::new(Duration::ZERO);
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let (done, finished) = channel();
        for number in 0..100_u64 {
            let (held, done) = (Arc::clone(&held), done.clone());
            workers.submit(waiting_lane(7), number, move || {
                let _ = lock(&held).recv();
                done.send(number).unwrap();
            });
        }
        workers.replace_stuck();
        let (other, answered) = channel();
        workers.submit(7, 1, move || other.send(()).unwrap());
        answered.recv().unwrap();
        while lock(&workers.pool.state).running.is_empty() {
            thread::yield_now();
        }
        assert_eq!(lock(&workers.pool.state).running.values().filter(|job| job.lane == waiting_lane(7)).count(), 1);
        drop((release, done));
        assert_eq!(finished.iter().count(), 100);
        workers.finish();
    }

    /// However many streams are waited for, and however long, all else has its threads.
    #[test]
    fn who_waits_leaves_threads_to_those_that_work() {
        let workers = Workers::new(Duration::from_secs(3600));
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let submit = |lane: u64, node: u64| {
            let held = Arc::clone(&held);
            workers.submit(lane, node, move || {
                let _ = lock(&held).recv();
            });
        };
        for stream in 0..2 * MOST_OF_ALL as u64 {
            submit(waiting_lane(stream), stream);
        }
        for node in 0..MOST_PER_LANE as u64 {
            submit(7, node);
        }
        // All of one lane, and others.
        while lock(&workers.pool.state).running.values().filter(|job| job.lane == 7).count() < MOST_PER_LANE {
            thread::yield_now();
        }
        let (done, finished) = channel();
        workers.submit(8, 1, move || done.send(()).unwrap());
        finished.recv().unwrap();
        let waiting = lock(&workers.pool.state).running.values().filter(|job| job.lane & WAITING != 0).count();
        assert!(waiting <= MOST_WAITING, "{waiting}");
        drop(release);
        workers.finish();
    }

    #[test]
    fn stuck_threads_are_replaced() {
        let workers = Workers::new(Duration::from_millis(1));
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for node in 0..MOST_PER_LANE as u64 {
            let held = Arc::clone(&held);
            workers.submit(0, node, move || {
                let _ = lock(&held).recv();
            });
        }
        while lock(&workers.pool.state).running.len() < MOST_PER_LANE {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(2));
        let (done, finished) = channel();
        workers.submit(0, 99, move || done.send(()).unwrap());
        workers.replace_stuck();
        finished.recv().unwrap();
        drop(release);
        workers.finish();
    }

    #[test]
    fn who_takes_long_leaves_the_places_of_those_that_are_stuck() {
        let mut state = WorkersState::default();
        let kinds = [(7, MOST_LONG + 100, true), (8, MOST_STUCK, false)];
        for (lane, takes_long) in kinds.into_iter().flat_map(|(lane, count, long)| vec![(lane, long); count]) {
            state.next += 1;
            state.running.insert(state.next, Running { lane, node: state.next, since: Instant::now(), takes_long });
        }
        let stuck = state.stuck(Duration::ZERO);
        assert_eq!((stuck.all, stuck.lanes[&7], stuck.lanes[&8]), (MOST_LONG + MOST_STUCK, MOST_LONG, MOST_STUCK));
    }

    /// As many files as a lane has threads are copied: others of that lane go on meanwhile, whether they come before or
    /// behind that.
    #[test]
    fn who_takes_long_leaves_threads_to_others_of_the_lane() {
        let workers = Workers::new(Duration::from_secs(3600));
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let (begun, at_work) = channel();
        let (say, may_say) = channel::<()>();
        let may_say = Arc::new(Mutex::new(may_say));
        for node in 0..MOST_PER_LANE as u64 {
            let (held, begun, may_say) = (Arc::clone(&held), begun.clone(), Arc::clone(&may_say));
            workers.submit(7, node, move || {
                begun.send(()).unwrap();
                let _ = lock(&may_say).recv();
                takes_long(true);
                let _ = lock(&held).recv();
                takes_long(false);
            });
        }
        assert_eq!(at_work.iter().take(MOST_PER_LANE).count(), MOST_PER_LANE);
        let (done, finished) = channel();
        let another = |node| {
            let done = done.clone();
            workers.submit(7, node, move || done.send(node).unwrap());
        };
        another(100);
        assert!(finished.try_recv().is_err(), "there is no thread for it");
        drop(say);
        another(101);
        let mut seen: Vec<u64> = finished.iter().take(2).collect();
        seen.sort_unstable();
        assert_eq!(seen, [100, 101]);
        // That they do is over when they are.
        drop(release);
        while !lock(&workers.pool.state).running.is_empty() {
            thread::yield_now();
        }
        takes_long(true);
        workers.finish();
    }

    #[test]
    fn a_job_that_panics_costs_no_thread() {
        guard::install();
        let workers = Workers::new(Duration::from_secs(3600));
        for number in 0..2 * MOST_OF_ALL as u64 {
            workers.submit(number, number, || panic!("as tested"));
        }
        let (done, finished) = channel();
        workers.submit(0, 1, move || done.send(()).unwrap());
        finished.recv().unwrap();
        while !lock(&workers.pool.state).running.is_empty() {
            thread::yield_now();
        }
        assert!(!workers.is_busy());
        workers.finish();
    }

    /// A server that is gone may have any number of jobs waiting for it, such as closing what is open there. That so
    /// many come takes no longer for each of them: it would take hours.
    #[test]
    fn any_number_of_jobs_can_wait() {
        let workers = Workers::new(Duration::from_secs(3600));
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let (done, finished) = channel();
        for number in 0..1_000_000_u64 {
            let (held, done) = (Arc::clone(&held), done.clone());
            workers.submit(7, number % 500_000, move || {
                let _ = lock(&held).recv();
                done.send(number).unwrap();
            });
        }
        assert!(lock(&workers.pool.state).queue.len() >= 1_000_000 - MOST_PER_LANE);
        // Others go on.
        let (other, answered) = channel();
        for number in 0..100 {
            let other = other.clone();
            workers.submit(8, number, move || other.send(number).unwrap());
        }
        let mut seen: Vec<u64> = answered.iter().take(100).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
        drop((release, done));
        assert_eq!(finished.iter().count(), 1_000_000);
        workers.finish();
    }

    #[test]
    fn every_job_is_done_once() {
        let workers = Workers::new(Duration::from_secs(60));
        let (done, finished) = channel();
        for number in 0..1000_u64 {
            let done = done.clone();
            workers.submit(number % 3, number % 7, move || done.send(number).unwrap());
        }
        drop(done);
        let mut seen: Vec<_> = finished.iter().collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..1000).collect::<Vec<_>>());
        workers.finish();
    }
}
