use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A flag that long work looks at, so that Ctrl-C ends it within a second. Clones share the flag.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    flag: Arc<AtomicBool>,
    limit: Option<Arc<TimeLimit>>,
}

impl From<Arc<AtomicBool>> for Cancel {
    /// A flag that something else sets, such as a handler of signals.
    fn from(flag: Arc<AtomicBool>) -> Self {
        Self { flag, limit: None }
    }
}

impl Cancel {
    /// The same flag, which also stops work that has taken longer than `limit`.
    #[must_use]
    pub fn within(&self, limit: &Arc<TimeLimit>) -> Self {
        Self { flag: Arc::clone(&self.flag), limit: Some(Arc::clone(limit)) }
    }

    /// Asks everybody who holds a clone to stop.
    pub fn cancel(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    /// True once [`Cancel::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// `Err(Interrupted)` once cancelled, or if it takes too long: for `?` in loops.
    pub fn check(&self) -> io::Result<()> {
        if self.is_cancelled() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
        }
        self.limit.as_ref().map_or(Ok(()), |limit| limit.check())
    }
}

/// How often the processor time is asked for, in milliseconds.
const LOOK: u64 = 20;

/// What takes so long is looked at by itself ([`TimeLimit::without`]).
const LONG: Duration = Duration::from_millis(50);

/// Bounds the processor time of one thread, where what is read chooses how much work it makes. What other programs do
/// on the machine does not count.
#[derive(Debug)]
pub struct TimeLimit {
    thread: ThreadId,
    start: Duration,
    /// Nanoseconds since then.
    allowed: AtomicU64,
    /// When it was asked for last, in milliseconds of the monotonic clock, and what it was, in nanoseconds.
    looked: AtomicU64,
    last: AtomicU64,
    is_over: AtomicBool,
}

impl TimeLimit {
    /// Counts the time of the calling thread from now on.
    pub fn of_this_thread(allowed: Duration) -> Self {
        let start = time_of(ClockId::ThreadCPUTime);
        Self {
            thread: thread::current().id(),
            start,
            last: nanoseconds(start).into(),
            allowed: nanoseconds(allowed).into(),
            looked: 0.into(),
            is_over: false.into(),
        }
    }

    /// Allows `more` time.
    pub fn allow(&self, more: Duration) {
        self.allowed.fetch_add(nanoseconds(more), Ordering::Relaxed);
    }

    /// Does `other`, whose processor time does not count where it takes long.
    pub fn without<T>(&self, other: impl FnOnce() -> T) -> T {
        let before = time_of(ClockId::MonotonicCoarse);
        let result = other();
        let passed = time_of(ClockId::MonotonicCoarse).saturating_sub(before);
        // To ask for the processor time each time would take longer than most of what is done.
        if passed >= LONG && thread::current().id() == self.thread {
            let taken = nanoseconds(time_of(ClockId::ThreadCPUTime));
            let since = taken.saturating_sub(self.last.swap(taken, Ordering::Relaxed));
            self.allow(passed.min(Duration::from_nanos(since)));
        }
        result
    }

    /// What is allowed now.
    pub fn allowed(&self) -> Duration {
        Duration::from_nanos(self.allowed.load(Ordering::Relaxed))
    }

    /// True once [`TimeLimit::check`] has failed.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// `Err(Interrupted)` if the thread has taken more time than it may, from then on for every thread.
    pub fn check(&self) -> io::Result<()> {
        let now = u64::try_from(time_of(ClockId::MonotonicCoarse).as_millis()).unwrap_or(u64::MAX);
        if now.saturating_sub(self.looked.load(Ordering::Relaxed)) >= LOOK && thread::current().id() == self.thread {
            self.looked.store(now, Ordering::Relaxed);
            let time = time_of(ClockId::ThreadCPUTime);
            self.last.store(nanoseconds(time), Ordering::Relaxed);
            let taken = time.saturating_sub(self.start);
            if nanoseconds(taken) > self.allowed.load(Ordering::Relaxed) {
                self.is_over.store(true, Ordering::Relaxed);
            }
        }
        if self.is_over() { Err(io::Error::new(io::ErrorKind::Interrupted, "it takes too long")) } else { Ok(()) }
    }
}

fn time_of(clock: ClockId) -> Duration {
    clock_gettime(clock).try_into().unwrap_or_default()
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_one_thread_ends_with_its_time_and_more_may_be_allowed() {
        let cancel = Cancel::default();
        let limit = Arc::new(TimeLimit::of_this_thread(Duration::from_millis(50)));
        let limited = cancel.within(&limit);
        // Who waits takes none.
        thread::sleep(Duration::from_millis(100));
        limited.check().unwrap();
        while limited.check().is_ok() {}
        assert!(limit.is_over());
        assert!(time_of(ClockId::ThreadCPUTime).saturating_sub(limit.start) >= Duration::from_millis(50));
        cancel.check().unwrap();

        let work = |least: Duration| {
            let start = time_of(ClockId::ThreadCPUTime);
            while time_of(ClockId::ThreadCPUTime).saturating_sub(start) < least {}
        };
        let limit = TimeLimit::of_this_thread(Duration::from_millis(100));
        limit.without(|| work(Duration::from_millis(300)));
        limit.check().unwrap();
        work(Duration::from_millis(300));
        thread::sleep(Duration::from_millis(LOOK));
        limit.check().unwrap_err();

        let limit = Arc::new(TimeLimit::of_this_thread(Duration::ZERO));
        limit.allow(Duration::from_secs(3600));
        limit.check().unwrap();
        // Another thread has a time of its own, which is not that one's.
        let other = thread::scope(|scope| scope.spawn(|| TimeLimit::of_this_thread(Duration::ZERO)).join().unwrap());
        for _ in 0..5 {
            thread::sleep(Duration::from_millis(LOOK));
            other.check().unwrap();
        }
    }

    #[test]
    fn all_clones_are_cancelled() {
        let cancel = Cancel::default();
        let limited = cancel.within(&Arc::new(TimeLimit::of_this_thread(Duration::from_secs(3600))));
        limited.check().unwrap();
        cancel.cancel();
        assert!(limited.is_cancelled());
        assert_eq!(limited.check().unwrap_err().kind(), io::ErrorKind::Interrupted);
    }
}
