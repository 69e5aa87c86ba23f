//! Who opens something while others want the same.

use std::collections::HashSet;
use std::hash::Hash;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Who waits for another one to open it waits so long at most: that one may wait for memory which is held here, and a
/// mount waits longer for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is being opened now.
#[derive(Debug)]
pub(super) struct Opening<K> {
    keys: Mutex<HashSet<K>>,
    /// Something was opened, or could not be.
    changed: Condvar,
}

impl<K> Default for Opening<K> {
    fn default() -> Self {
        Self { keys: Mutex::default(), changed: Condvar::new() }
    }
}

impl<K: Clone + Eq + Hash> Opening<K> {
    fn lock(&self) -> MutexGuard<'_, HashSet<K>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `found` gives, or else `open`: while one opens it, others wait until it is found. Where it cannot be
    /// opened, the next one tries.
    pub(super) fn found_or_opened<T>(
        &self,
        key: &K,
        found: impl Fn() -> Option<T>,
        open: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let since = Instant::now();
        let mut keys = self.lock();
        let turn = loop {
            if let Some(found) = found() {
                return Ok(found);
            }
            if keys.insert(key.clone()) {
                break Some(Turn { opening: self, key });
            }
            let left = PATIENCE.saturating_sub(since.elapsed());
            if left.is_zero() {
                break None;
            }
            keys = self.changed.wait_timeout(keys, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(keys);
        let opened = open();
        drop(turn);
        opened
    }
}

/// The right to open it, given back when it is dropped: also after a panic.
struct Turn<'o, K: Clone + Eq + Hash> {
    opening: &'o Opening<K>,
    key: &'o K,
}

impl<K: Clone + Eq + Hash> Drop for Turn<'_, K> {
    fn drop(&mut self) {
        self.opening.lock().remove(self.key);
        self.opening.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    /// Lets `threads` threads open one thing at the same time. `works` says of which attempt, counted from 0, it can be
    /// opened. Returns how often it was tried, and how many got it.
    fn tried(threads: usize, works: impl Fn(usize) -> bool + Sync) -> (usize, usize) {
        let (opening, opened) = (Opening::default(), Mutex::new(None));
        let (looked, tries, got) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let found = || {
                        looked.fetch_add(1, Ordering::Relaxed);
                        *opened.lock().unwrap()
                    };
                    let result = opening.found_or_opened(&7, found, || {
                        // All others have come, and found nothing.
                        while looked.load(Ordering::Relaxed) < threads {
                            thread::yield_now();
                        }
                        let number = tries.fetch_add(1, Ordering::Relaxed);
                        if !works(number) {
                            return Err(io::ErrorKind::PermissionDenied.into());
                        }
                        *opened.lock().unwrap() = Some(number);
                        Ok(number)
                    });
                    got.fetch_add(usize::from(result.is_ok()), Ordering::Relaxed);
                });
            }
        });
        assert!(opening.lock().is_empty());
        (tries.into_inner(), got.into_inner())
    }

    #[test]
    fn what_many_want_at_once_is_opened_once() {
        assert_eq!(tried(5, |_| true), (1, 5));
        assert_eq!(tried(5, |number| number >= 2), (3, 3), "what failed is tried by the next one");
        assert_eq!(tried(4, |_| false), (4, 0));
    }

    #[test]
    fn other_things_are_opened_meanwhile() {
        let opening = Opening::default();
        let inner = || opening.found_or_opened(&2, || None, || Ok("inner"));
        assert_eq!(opening.found_or_opened(&1, || None, inner).unwrap(), "inner");
        assert_eq!(opening.found_or_opened(&1, || Some("found"), || unreachable!()).unwrap(), "found");
    }
}
