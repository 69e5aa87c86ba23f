use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

use super::lock;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Condvar, Mutex};

type Job = Box<dyn FnOnce() + Send>;

/// A few threads that decode ahead of sequential readers.
///
/// The threads start with the first job, so that a program may fork after it has made this. They end when
/// it is dropped; jobs that have not begun by then are dropped unrun.
pub struct Workers {
    threads: usize,
    queue: Arc<Queue>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<WorkersState>,
    /// A job was added, or the end has come.
    changed: Condvar,
}

#[derive(Default)]
struct WorkersState {
    jobs: VecDeque<Job>,
    ended: bool,
}

impl Workers {
    /// At most `threads` threads; with 0 nothing is ever decoded ahead.
    pub fn new(threads: usize) -> Arc<Self> {
        Arc::new(Self { threads, queue: Arc::default(), handles: Mutex::default() })
    }

    /// How many threads there may be.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `job` on one of the threads, some time. False where there are none.
    pub(super) fn submit(&self, job: impl FnOnce() + Send + 'static) -> bool {
        if self.threads == 0 || !self.started() {
            return false;
        }
        lock(&self.queue.state).jobs.push_back(Box::new(job));
        self.queue.changed.notify_one();
        true
    }

    /// Starts the threads, once; true if there is at least one.
    fn started(&self) -> bool {
        let mut handles = lock(&self.handles);
        if handles.is_empty() {
            for number in 0..self.threads {
                let queue = Arc::clone(&self.queue);
                match thread::Builder::new().name(format!("decode-{number}")).spawn(move || queue.work()) {
                    Ok(handle) => handles.push(handle),
                    Err(error) => {
                        log::warn!("cannot start a thread for decoding ahead: {error}");
                        break;
                    }
                }
            }
        }
        !handles.is_empty()
    }
}

impl Queue {
    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            if state.ended {
                return;
            }
            let Some(job) = state.jobs.pop_front() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            // A decoder that panics must not take the thread with it: the reader of that range panics, too, and reports
            // it.
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                log::error!("decoding ahead panicked");
            }
            state = lock(&self.state);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let unrun = {
            let mut state = lock(&self.queue.state);
            state.ended = true;
            std::mem::take(&mut state.jobs)
        };
        drop(unrun);
        self.queue.changed.notify_all();
        let handles = std::mem::take(self.handles.get_mut().unwrap_or_else(PoisonError::into_inner));
        for handle in handles {
            // The last owner may be a job on one of these threads, which cannot wait for itself.
            if handle.thread().id() != thread::current().id() {
                let _ = handle.join();
            }
        }
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Workers").field("threads", &self.threads).finish_non_exhaustive()
    }
}
