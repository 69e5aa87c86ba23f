//! Members whose decoders need much memory, while others are read beside them.
//!
//! What a decoder takes is looked at before each read, whatever the codec is and whatever its headers say. Who needs
//! much waits: for a share, of which there are few, or for its turn.

use std::sync::atomic::{AtomicUsize, Ordering};

use tarnfs_index::Error;

use crate::build::receiver::Receiver;

/// Bytes that a decoder has beside its dictionary or window, at most: tables, and what is read together.
const BESIDE: usize = 2 << 20;

/// Bytes that any number of decoders may take: those of `xz -6` and `zstd -19`. Eight members of 1 KB each, with
/// dictionaries of 64 MiB, took 550 MB.
const MOST_TOGETHER: usize = (8 << 20) + BESIDE;

/// Bytes that one with a share may take: that of `xz -9`.
const MOST_OF_SHARE: usize = (64 << 20) + BESIDE;

/// One of so many threads may have a share; at least one of all.
const OF_EACH: usize = 4;

/// Counts shares.
#[derive(Debug)]
pub(super) struct Large {
    count: AtomicUsize,
    most: usize,
}

/// A share. It counts until it is dropped.
#[derive(Debug)]
pub(super) struct Share<'a>(&'a AtomicUsize);

impl Large {
    /// For so many threads.
    pub(super) fn new(threads: usize) -> Self {
        Self { count: AtomicUsize::new(0), most: (threads / OF_EACH).max(1) }
    }

    /// One more; `None` if there are enough.
    pub(super) fn share(&self) -> Option<Share<'_>> {
        let more = |count: usize| (count < self.most).then_some(count + 1);
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Share(&self.count))
    }

    /// For one decoder.
    pub(super) fn room(&self) -> Room<'_> {
        Room { large: self, allowed: Allowed::Little }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What one decoder may take.
#[derive(Debug)]
pub(in crate::build) struct Room<'a> {
    large: &'a Large,
    allowed: Allowed<'a>,
}

#[derive(Debug)]
enum Allowed<'a> {
    Little,
    /// As long as it is there.
    Share(#[allow(dead_code, reason = "it counts")] Share<'a>),
    /// It is its turn.
    All,
}

impl Room<'_> {
    /// Waits until it may take so many bytes. `receiver` gets what is found in it.
    pub(in crate::build) fn ask(&mut self, bytes: usize, receiver: &dyn Receiver) -> Result<(), Error> {
        let most = match self.allowed {
            Allowed::Little => MOST_TOGETHER,
            Allowed::Share(_) => MOST_OF_SHARE,
            Allowed::All => return Ok(()),
        };
        if bytes <= most {
            return Ok(());
        }
        let (large, mut share) = (self.large, None);
        receiver.wait(&mut || {
            share = Some(large).filter(|_| bytes <= MOST_OF_SHARE).and_then(Large::share);
            share.is_some()
        })?;
        // Others may have a share that it had.
        self.allowed = share.map_or(Allowed::All, Allowed::Share);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_threads_may_need_much() {
        for (threads, most) in [(1, 1), (2, 1), (7, 1), (8, 2), (16, 4)] {
            let large = Large::new(threads);
            let mut taken: Vec<_> = std::iter::from_fn(|| large.share()).take(100).collect();
            assert_eq!(taken.len(), most, "{threads}");
            taken.pop();
            assert!(large.share().is_some() && taken.len() + 1 == most);
        }
    }
}
