//! Members whose decoders need much memory, while others are read beside them.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a dictionary or window that any number of threads may need. Eight members of 1 KB each, with dictionaries
/// of 64 MiB, took 550 MB.
pub(super) const MOST_TOGETHER: u64 = 8 << 20;

/// One of so many threads may need more; at least one of all.
const OF_EACH: usize = 4;

/// How many of them are being read.
#[derive(Debug)]
pub(super) struct Large {
    count: AtomicUsize,
    most: usize,
}

/// One of them. It counts until it is dropped.
#[derive(Debug)]
pub(super) struct OneLarge<'a>(&'a AtomicUsize);

impl Large {
    /// For so many threads.
    pub(super) fn new(threads: usize) -> Self {
        Self { count: AtomicUsize::new(0), most: (threads / OF_EACH).max(1) }
    }

    /// Takes note of one more; `None` if there are enough. Nobody waits here: those before may wait for this thread.
    pub(super) fn one_more(&self) -> Option<OneLarge<'_>> {
        let more = |count: usize| (count < self.most).then_some(count + 1);
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| OneLarge(&self.count))
    }
}

impl Drop for OneLarge<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_threads_may_need_much() {
        for (threads, most) in [(1, 1), (2, 1), (7, 1), (8, 2), (16, 4)] {
            let large = Large::new(threads);
            let mut taken: Vec<_> = std::iter::from_fn(|| large.one_more()).take(100).collect();
            assert_eq!(taken.len(), most, "{threads}");
            taken.pop();
            assert!(large.one_more().is_some() && taken.len() + 1 == most);
        }
    }
}
