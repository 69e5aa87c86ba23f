//! Work that several threads do at once and whose results are taken in order, with a bound on how much is on its way.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Takes results in the order of the jobs.
pub trait Sink<D>: Send {
    /// Takes the next one.
    fn take(&mut self, done: D) -> io::Result<()>;
}

/// What a worker makes of a job; each thread has its own.
pub type Work<J, D> = Box<dyn FnMut(J) -> io::Result<D> + Send>;

/// See the module. `J` is a job, `D` what comes of it, `S` who takes that.
pub struct Pipeline<J, D, S> {
    shared: Arc<Shared<J, D>>,
    /// Where there are no other threads for it, the caller's does the work.
    own: Option<Work<J, D>>,
    workers: Vec<JoinHandle<()>>,
    sink: Option<JoinHandle<S>>,
    sent: u64,
    most: usize,
}

struct Shared<J, D> {
    state: Mutex<State<J, D>>,
    /// There are jobs, or there will be no more.
    jobs: Condvar,
    /// There are results, or there will be no more.
    results: Condvar,
    /// There is room.
    room: Condvar,
}

struct State<J, D> {
    jobs: VecDeque<(u64, J)>,
    done: BTreeMap<u64, D>,
    /// Jobs that were sent and whose results were not taken yet.
    in_flight: usize,
    /// How many jobs there are in all, once that is known.
    total: Option<u64>,
    failure: Option<io::Error>,
    has_failed: bool,
}

impl<J, D> Shared<J, D> {
    fn state(&self) -> MutexGuard<'_, State<J, D>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, error: io::Error) {
        let mut state = self.state();
        if !std::mem::replace(&mut state.has_failed, true) {
            state.failure = Some(error);
        }
        state.jobs.clear();
        drop(state);
        self.jobs.notify_all();
        self.results.notify_all();
        self.room.notify_all();
    }

    fn work(&self, work: &mut Work<J, D>) {
        loop {
            let mut state = self.state();
            let (number, job) = loop {
                if state.has_failed {
                    return;
                }
                if let Some(job) = state.jobs.pop_front() {
                    break job;
                }
                if state.total.is_some() {
                    return;
                }
                state = self.jobs.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            drop(state);
            match work(job) {
                Ok(done) => self.done(number, done),
                Err(error) => return self.fail(error),
            }
        }
    }

    fn done(&self, number: u64, done: D) {
        self.state().done.insert(number, done);
        self.results.notify_one();
    }

    fn take(&self, sink: &mut dyn Sink<D>) {
        let mut next = 0;
        loop {
            let mut state = self.state();
            let done = loop {
                if state.has_failed || state.total == Some(next) {
                    return;
                }
                if let Some(done) = state.done.remove(&next) {
                    break done;
                }
                state = self.results.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            drop(state);
            if let Err(error) = sink.take(done) {
                return self.fail(error);
            }
            next += 1;
            self.state().in_flight -= 1;
            self.room.notify_one();
        }
    }
}

/// Lets nobody wait for a thread that has panicked.
struct Alarm<'a, J, D>(&'a Shared<J, D>);

impl<J, D> Drop for Alarm<'_, J, D> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(io::Error::other(
                "a thread has ended unexpectedly; this is an error in tarnfs, please report it",
            ));
        }
    }
}

impl<J: Send + 'static, D: Send + 'static, S: Sink<D> + 'static> Pipeline<J, D, S> {
    /// One with a thread for each of `works`, and at most `most` jobs on their way. Without any but `own`, the thread
    /// that sends does the work.
    pub fn new(own: Option<Work<J, D>>, works: Vec<Work<J, D>>, most: usize, mut sink: S) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                done: BTreeMap::new(),
                in_flight: 0,
                total: None,
                failure: None,
                has_failed: false,
            }),
            jobs: Condvar::new(),
            results: Condvar::new(),
            room: Condvar::new(),
        });
        let mut this =
            Self { shared: Arc::clone(&shared), own, workers: Vec::new(), sink: None, sent: 0, most: most.max(1) };
        let taking = Arc::clone(&shared);
        this.sink = Some(std::thread::Builder::new().name("writing".into()).spawn(move || {
            let alarm = Alarm(&taking);
            taking.take(&mut sink);
            drop(alarm);
            sink
        })?);
        for mut work in works {
            let shared = Arc::clone(&shared);
            let worker = std::thread::Builder::new().name("compressing".into()).spawn(move || {
                let alarm = Alarm(&shared);
                shared.work(&mut work);
                drop(alarm);
            });
            match worker {
                Ok(worker) => this.workers.push(worker),
                // With fewer threads it takes longer.
                Err(_) if !this.workers.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(this)
    }

    /// Sends a job; waits while there are too many on their way. Once something has failed, that is an error here.
    pub fn send(&mut self, job: J) -> io::Result<()> {
        let mut state = self.shared.state();
        while state.in_flight >= self.most && !state.has_failed {
            state = self.shared.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.has_failed {
            return Err(state.failure.take().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into()));
        }
        state.in_flight += 1;
        let number = self.sent;
        self.sent += 1;
        if let Some(work) = &mut self.own {
            drop(state);
            let done = work(job)?;
            self.shared.done(number, done);
        } else {
            state.jobs.push_back((number, job));
            drop(state);
            self.shared.jobs.notify_one();
        }
        Ok(())
    }

    /// Waits until all results were taken, and gives back who took them.
    pub fn finish(mut self) -> io::Result<S> {
        self.shared.state().total = Some(self.sent);
        self.shared.jobs.notify_all();
        self.shared.results.notify_all();
        for worker in self.workers.drain(..) {
            // Its panic was told through its alarm.
            let _ = worker.join();
        }
        let sink = self.sink.take().map(JoinHandle::join);
        if let Some(error) = self.shared.state().failure.take() {
            return Err(error);
        }
        match sink {
            Some(Ok(sink)) if !self.shared.state().has_failed => Ok(sink),
            _ => Err(io::Error::other("what was written is not whole")),
        }
    }
}

impl<J, D, S> Drop for Pipeline<J, D, S> {
    /// One that is given up: its threads end with what they have in hand.
    fn drop(&mut self) {
        if self.sink.is_none() {
            return;
        }
        self.shared.fail(io::ErrorKind::Interrupted.into());
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
        if let Some(sink) = self.sink.take() {
            let _ = sink.join();
        }
    }
}

impl<J, D, S> fmt::Debug for Pipeline<J, D, S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Pipeline").field("sent", &self.sent).field("most", &self.most).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Kept(Vec<u64>, Option<u64>);

    impl Sink<u64> for Kept {
        fn take(&mut self, done: u64) -> io::Result<()> {
            if self.1 == Some(done) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0.push(done);
            Ok(())
        }
    }

    fn slow(number: u64) -> u64 {
        // Later jobs are often ready first.
        if number.is_multiple_of(3) {
            std::thread::yield_now();
        }
        number * 2
    }

    fn works(threads: usize) -> Vec<Work<u64, u64>> {
        (0..threads).map(|_| Box::new(|number| Ok(slow(number))) as Work<u64, u64>).collect()
    }

    #[test]
    fn results_come_in_order_whoever_works() {
        for (threads, most) in [(0, 1), (1, 1), (3, 2), (4, 16)] {
            let own = (threads == 0).then(|| Box::new(|number| Ok(slow(number))) as Work<u64, u64>);
            let mut pipeline = Pipeline::new(own, works(threads), most, Kept(Vec::new(), None)).unwrap();
            for number in 0..1000 {
                pipeline.send(number).unwrap();
            }
            let expected: Vec<_> = (0..1000).map(|number| number * 2).collect();
            assert_eq!(pipeline.finish().unwrap().0, expected, "{threads} threads, {most} on their way");
        }
    }

    #[test]
    fn a_failure_anywhere_ends_it() {
        let sinks = || Kept(Vec::new(), Some(20));
        let mut pipeline = Pipeline::new(None, works(2), 4, sinks()).unwrap();
        let failed = (0..1000).find_map(|number| pipeline.send(number).err());
        assert_eq!(failed.unwrap().kind(), io::ErrorKind::StorageFull);
        assert!(pipeline.finish().is_err());
        let broken: Work<u64, u64> = Box::new(|number| if number == 5 { panic!("on purpose") } else { Ok(number) });
        let mut pipeline = Pipeline::new(None, vec![broken], 4, Kept(Vec::new(), None)).unwrap();
        assert!((0..1000).find_map(|number| pipeline.send(number).err()).is_some());
        // Given up in the middle.
        let mut pipeline = Pipeline::new(None, works(2), 4, sinks()).unwrap();
        pipeline.send(1).unwrap();
        drop(pipeline);
    }
}
