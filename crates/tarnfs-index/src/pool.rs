//! The connections of all indexes of this process.
//!
//! SQLite's limit on memory holds for the whole process, and a connection keeps pages, statements and the schema as
//! long as it is open. A mount may have thousands of indexes. So few connections wait for the next query, whatever
//! index they belong to; an index that has none opens one when it is asked.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Error;
use crate::sqlite::Patience;
use crate::vfs::Opened;

/// Connections of one index that wait for the next query. More threads than this get one made for the purpose.
const MOST_OF_ONE: usize = 8;
/// Those of all indexes together; the one that was not used for the longest time is closed first.
const MOST_OF_ALL: usize = 32;

/// Pages that waiting connections keep, in KiB: all together, and each at least and at most.
const CACHES: u32 = 32 << 10;
const LEAST_CACHE: u32 = 128;
const MOST_CACHE: u32 = 1024;

/// A connection and what belongs to it.
pub(crate) trait Pooled: Send + Sized + 'static {
    /// A new one, which keeps up to `cache` KiB of pages.
    fn open(file: &Opened, cache: u32) -> Result<Self, Error>;

    /// Of its queries.
    fn patience(&self) -> &Patience;
}

/// What waits for the next query.
struct Idle {
    /// With the number of its index; the one that was used last comes last.
    waiting: VecDeque<(u64, Box<dyn Any + Send>)>,
    /// Indexes that are open, and the number of the next one.
    pools: u32,
    next: u64,
}

static IDLE: Mutex<Idle> = Mutex::new(Idle { waiting: VecDeque::new(), pools: 0, next: 0 });

fn idle() -> MutexGuard<'static, Idle> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The connections to one file. Each is used by one thread at a time, so threads do not wait for each other.
pub(crate) struct Pool<S> {
    number: u64,
    file: Opened,
    sessions: PhantomData<fn() -> S>,
}

/// A session that waits for the next query when dropped.
pub(crate) struct Borrowed<S: Pooled> {
    number: u64,
    /// `None` only while it is dropped.
    session: Option<Box<S>>,
}

impl<S: Pooled> Pool<S> {
    pub(crate) fn new(file: Opened) -> Self {
        let mut idle = idle();
        let number = idle.next;
        idle.next = number.wrapping_add(1);
        idle.pools = idle.pools.saturating_add(1);
        Self { number, file, sessions: PhantomData }
    }

    /// A connection for one query, or for several of a few rows.
    pub(crate) fn get(&self) -> Result<Borrowed<S>, Error> {
        let (found, pools) = {
            let mut idle = idle();
            let at = idle.waiting.iter().rposition(|(number, _)| *number == self.number);
            (at.and_then(|at| idle.waiting.remove(at)), idle.pools)
        };
        let session = if let Some(session) = found.and_then(|(_, session)| session.downcast::<S>().ok()) {
            session
        } else {
            let cache = CACHES.checked_div(pools).unwrap_or(MOST_CACHE).clamp(LEAST_CACHE, MOST_CACHE);
            Box::new(once_more(|| S::open(&self.file, cache))?)
        };
        session.patience().renew();
        Ok(Borrowed { number: self.number, session: Some(session) })
    }

    /// Does `work` with a connection, once: for work that hands on at once what it finds.
    pub(crate) fn with_once<T>(&self, work: impl FnOnce(&mut S) -> Result<T, Error>) -> Result<T, Error> {
        work(&mut *self.get()?)
    }

    /// Does `work` with a connection. Where SQLite has no memory, it does it twice: what it has begun then comes again.
    pub(crate) fn with<T>(&self, mut work: impl FnMut(&mut S) -> Result<T, Error>) -> Result<T, Error> {
        once_more(|| work(&mut *self.get()?))
    }
}

/// Does `work`, and once more after all waiting connections are closed, if there was no memory for it.
fn once_more<T>(mut work: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    match work() {
        Err(Error::Io(error)) if error.kind() == io::ErrorKind::OutOfMemory => {
            // Closed without the lock: that takes a while.
            let (waiting, pools) = {
                let mut idle = idle();
                (std::mem::take(&mut idle.waiting), idle.pools)
            };
            let count = waiting.len();
            drop(waiting);
            log::warn!("{error}; {count} connections to {pools} indexes were closed, and it is tried once more");
            work()
        }
        done => done,
    }
}

impl<S> Drop for Pool<S> {
    fn drop(&mut self) {
        // Dropped behind the lock.
        let _closed: VecDeque<_> = {
            let mut idle = idle();
            idle.pools = idle.pools.saturating_sub(1);
            let is_own = |(number, _): &(u64, _)| *number == self.number;
            let (own, others) = std::mem::take(&mut idle.waiting).into_iter().partition(is_own);
            idle.waiting = others;
            own
        };
    }
}

impl<S: Pooled> Drop for Borrowed<S> {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        // Dropped behind the lock.
        let _closed = {
            let mut idle = idle();
            idle.waiting.push_back((self.number, session));
            let mut own = idle.waiting.iter().enumerate().filter(|(_, (number, _))| *number == self.number);
            let oldest = own.next().map(|(at, _)| at);
            let is_too_many = own.count() >= MOST_OF_ONE;
            if is_too_many {
                oldest.and_then(|at| idle.waiting.remove(at))
            } else if idle.waiting.len() > MOST_OF_ALL {
                idle.waiting.pop_front()
            } else {
                None
            }
        };
    }
}

impl<S: Pooled> Deref for Borrowed<S> {
    type Target = S;

    #[allow(clippy::expect_used, reason = "it is taken out only when this is dropped")]
    fn deref(&self) -> &S {
        self.session.as_ref().expect("a session until dropped")
    }
}

impl<S: Pooled> DerefMut for Borrowed<S> {
    #[allow(clippy::expect_used, reason = "it is taken out only when this is dropped")]
    fn deref_mut(&mut self) -> &mut S {
        self.session.as_mut().expect("a session until dropped")
    }
}

impl<S> fmt::Debug for Pool<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Pool").field("file", &self.file).finish_non_exhaustive()
    }
}

impl<S: Pooled> fmt::Debug for Borrowed<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Borrowed").field("number", &self.number).finish_non_exhaustive()
    }
}
