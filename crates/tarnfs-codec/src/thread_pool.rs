//! Threads that work ahead of one who walks a stream in order.
//!
//! The walk tells them what may come, each with its place in the stream, and takes what was made when it arrives at
//! that place. Places where it never arrives cost only time: what was made there is dropped. While another thread is at
//! what the walk needs, the walk's thread does not wait: it works at the next thing that nobody is at.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

use tarnfs_source::Cancel;

use crate::sync::thread::{Builder, JoinHandle};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// What the threads do.
pub(crate) trait Job: Send + Sync + 'static {
    /// What there is to do at one place.
    type Input: Send;
    /// What is made of it.
    type Output: Send;
    /// What a thread keeps from one task to the next.
    type Tools;

    /// For one thread.
    fn tools(&self) -> Self::Tools;

    /// Does what there is to do at `place`; nothing comes of it where there is anything that the walk has to see.
    fn work(&self, tools: &mut Self::Tools, place: u64, task: Self::Input) -> Option<Self::Output>;
}

/// The threads, and the places that the walk has told them.
pub(crate) struct ThreadPool<T: Job> {
    shared: Arc<Shared<T>>,
    name: &'static str,
    /// Threads that there may be, and those that there are.
    most: usize,
    threads: Vec<JoinHandle<()>>,
}

struct Shared<T: Job> {
    job: T,
    queue: Mutex<Queue<T>>,
    /// There is something to do, or the end has come.
    work: Condvar,
    /// Something was done.
    done: Condvar,
}

struct Queue<T: Job> {
    /// In the order of the stream.
    places: VecDeque<Slot<T>>,
    ended: bool,
}

struct Slot<T: Job> {
    at: u64,
    state: SlotState<T>,
}

enum SlotState<T: Job> {
    Waiting(T::Input),
    InWork,
    Done(Option<T::Output>),
}

impl<T: Job> ThreadPool<T> {
    /// At most `most` threads beside that of the walk. They start with what there is to do, and end when this is
    /// dropped.
    pub(crate) fn new(job: T, name: &'static str, most: usize) -> Self {
        let queue = Mutex::new(Queue { places: VecDeque::new(), ended: false });
        let shared = Arc::new(Shared { job, queue, work: Condvar::new(), done: Condvar::new() });
        Self { shared, name, most, threads: Vec::new() }
    }

    /// Adds something to do at `place`, which is behind all others.
    pub(crate) fn add(&mut self, place: u64, task: T::Input) {
        self.shared.lock().places.push_back(Slot { at: place, state: SlotState::Waiting(task) });
        self.shared.work.notify_one();
        if self.threads.len() < self.most {
            let shared = Arc::clone(&self.shared);
            // Where no thread is to be had, the others and the walk do it.
            self.threads.extend(Builder::new().name(self.name.to_owned()).spawn(move || shared.work()));
        }
    }

    /// Places that the walk has not taken.
    pub(crate) fn len(&self) -> usize {
        self.shared.lock().places.len()
    }

    /// Threads at work.
    pub(crate) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Drops what is before `place`.
    pub(crate) fn drop_before(&mut self, place: u64) {
        let mut queue = self.shared.lock();
        let dropped = queue.places.partition_point(|other| other.at < place);
        let dropped: Vec<_> = queue.places.drain(..dropped).collect();
        drop(queue);
        drop(dropped);
    }

    /// What was made at `place`, if that is the first one and somebody was at it. The walk uses its `tools` where there
    /// is time for another.
    pub(crate) fn take(&mut self, place: u64, tools: &mut T::Tools, cancel: &Cancel) -> io::Result<Option<T::Output>> {
        let mut queue = self.shared.lock();
        loop {
            match queue.places.front() {
                Some(Slot { at, state: SlotState::InWork }) if *at == place => {}
                Some(Slot { at, .. }) if *at == place => break,
                _ => return Ok(None),
            }
            cancel.check()?;
            queue = match queue.claim() {
                Some((other, task)) => {
                    drop(queue);
                    self.shared.make(tools, other, task)
                }
                None => self.shared.done.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
        match queue.places.pop_front() {
            Some(Slot { state: SlotState::Done(output), .. }) => Ok(output),
            _ => Ok(None),
        }
    }
}

impl<T: Job> Drop for ThreadPool<T> {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl<T: Job> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        // What it guards is whole between any two statements.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what there is to do, until the end.
    fn work(&self) {
        let mut tools = self.job.tools();
        let mut queue = self.lock();
        while !queue.ended {
            queue = match queue.claim() {
                Some((place, task)) => {
                    drop(queue);
                    self.make(&mut tools, place, task)
                }
                None => self.work.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Puts what comes of `task` in its place, if the walk has not passed that.
    fn make(&self, tools: &mut T::Tools, place: u64, task: T::Input) -> MutexGuard<'_, Queue<T>> {
        // A panic in there loses nothing: the walk does it again.
        let output = catch_unwind(AssertUnwindSafe(|| self.job.work(tools, place, task))).ok().flatten();
        let mut queue = self.lock();
        if let Ok(index) = queue.places.binary_search_by_key(&place, |place| place.at) {
            queue.places[index].state = SlotState::Done(output);
            self.done.notify_one();
        }
        queue
    }
}

impl<T: Job> Queue<T> {
    /// The first task that nobody is at.
    fn claim(&mut self) -> Option<(u64, T::Input)> {
        let place = self.places.iter_mut().find(|place| matches!(place.state, SlotState::Waiting(_)))?;
        match std::mem::replace(&mut place.state, SlotState::InWork) {
            SlotState::Waiting(task) => Some((place.at, task)),
            _ => None,
        }
    }
}

#[cfg(test)]
impl<T: Job> ThreadPool<T> {
    /// Waits until nothing is left to do.
    pub(crate) fn settle(&self) {
        while !self.shared.lock().places.iter().all(|place| matches!(place.state, SlotState::Done(_))) {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Doubles numbers, but no odd ones; panics at 13.
    struct Doubler;

    impl Job for Doubler {
        type Input = Box<dyn FnOnce() -> u64 + Send>;
        type Output = u64;
        type Tools = ();

        fn tools(&self) {}

        fn work(&self, (): &mut (), place: u64, task: Self::Input) -> Option<u64> {
            assert_ne!(place, 13, "a test");
            let number = task();
            number.is_multiple_of(2).then_some(number * 2)
        }
    }

    fn take(pool: &mut ThreadPool<Doubler>, place: u64) -> Option<u64> {
        pool.take(place, &mut (), &Cancel::default()).unwrap()
    }

    #[test]
    fn products_are_taken_in_order_and_passed_ones_dropped() {
        for most in [1, 2, 7] {
            let mut pool = ThreadPool::new(Doubler, "test", most);
            for place in 0..20 {
                pool.add(place, Box::new(move || place));
            }
            pool.settle();
            assert_eq!(pool.threads(), most);
            assert_eq!(take(&mut pool, 1), None, "not the first");
            assert_eq!([0, 1, 2].map(|place| take(&mut pool, place)), [Some(0), None, Some(4)]);
            pool.drop_before(12);
            assert_eq!(pool.len(), 8);
            assert_eq!([12, 13, 14].map(|place| take(&mut pool, place)), [Some(24), None, Some(28)]);
            pool.drop_before(u64::MAX);
            assert_eq!((pool.len(), take(&mut pool, 16)), (0, None));
        }
    }

    /// A task that waits until something comes.
    fn slow() -> (Sender<u64>, Box<dyn FnOnce() -> u64 + Send>) {
        let (sender, receiver): (_, Receiver<u64>) = channel();
        (sender, Box::new(move || receiver.recv().unwrap()))
    }

    #[test]
    fn the_walk_works_while_it_waits() {
        let mut pool = ThreadPool::new(Doubler, "test", 1);
        let (sender, task) = slow();
        pool.add(5, task);
        while matches!(pool.shared.lock().places[0].state, SlotState::Waiting(_)) {
            std::thread::yield_now();
        }
        // Only the walk can do what frees the one thread.
        pool.add(
            6,
            Box::new(move || {
                sender.send(50).unwrap();
                60
            }),
        );
        assert_eq!([5, 6].map(|place| take(&mut pool, place)), [Some(100), Some(120)]);
    }

    #[test]
    fn what_nobody_is_at_is_left_to_the_walk_and_cancelling_ends_the_wait() {
        let mut pool = ThreadPool::new(Doubler, "test", 1);
        let (sender, task) = slow();
        pool.add(1, task);
        while matches!(pool.shared.lock().places[0].state, SlotState::Waiting(_)) {
            std::thread::yield_now();
        }
        pool.add(2, Box::new(|| 2));
        let cancel = Cancel::default();
        cancel.cancel();
        assert_eq!(pool.take(1, &mut (), &cancel).unwrap_err().kind(), io::ErrorKind::Interrupted);
        pool.drop_before(2);
        assert_eq!((take(&mut pool, 2), pool.len()), (None, 0));
        // The one who was at it finds that its place is gone.
        sender.send(10).unwrap();
    }
}
