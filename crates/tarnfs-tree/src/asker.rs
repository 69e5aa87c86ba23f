//! Who has asked for a change, as whoever makes it sees it.
//!
//! A request that takes long may be answered while it is worked on: with an error at its deadline, or because whoever
//! waits has got a signal. What was answered so must not be done afterwards: nobody would know, and the kernel would go
//! on to show what was before. So a change says when it begins ([`begins`]), and is told whether it may. From then on
//! it is answered with what comes of it, however long that takes.
//!
//! This goes by the thread: a change is made by the one that was asked for it. Where nobody has said who asks
//! ([`asked_by`]), as in a program that uses a tree itself, whatever is to begin may begin.

use std::cell::RefCell;
use std::sync::Arc;

use rustix::io::Errno;

/// See the module.
pub trait Asker {
    /// From now on nothing is waited for but a disk, as with any file system: no signal is an answer to that. Nothing
    /// has been done yet, so a deadline is.
    fn waits_for_disk(&self);

    /// The change begins. False if there was an answer already: then nothing may be done.
    fn begins(&self) -> bool;

    /// What is done takes its time, and needs nothing of what others wait for who ask about the same; or no more.
    fn takes_long(&self, does: bool);
}

thread_local! {
    static ASKER: RefCell<Option<Arc<dyn Asker>>> = const { RefCell::new(None) };
}

/// Puts the one back that was there before, also after a panic.
struct Restored(Option<Arc<dyn Asker>>);

impl Restored {
    fn set(asker: Option<Arc<dyn Asker>>) -> Self {
        Self(ASKER.replace(asker))
    }
}

impl Drop for Restored {
    fn drop(&mut self) {
        drop(ASKER.replace(self.0.take()));
    }
}

/// Says that it takes long until this is dropped.
struct Long(Option<Arc<dyn Asker>>);

impl Drop for Long {
    fn drop(&mut self) {
        if let Some(asker) = &self.0 {
            asker.takes_long(false);
        }
    }
}

fn current() -> Option<Arc<dyn Asker>> {
    ASKER.with_borrow(Option::clone)
}

/// Does `work`, for which `asker` has asked.
pub fn asked_by<T>(asker: Arc<dyn Asker>, work: impl FnOnce() -> T) -> T {
    let _restored = Restored::set(Some(asker));
    work()
}

/// See [`Asker::waits_for_disk`].
pub(crate) fn waits_for_disk() {
    if let Some(asker) = current() {
        asker.waits_for_disk();
    }
}

/// The change begins that this thread was asked for. Fails if nobody waits for it any more.
pub fn begins() -> Result<(), Errno> {
    if current().is_none_or(|asker| asker.begins()) { Ok(()) } else { Err(Errno::INTR) }
}

/// Does `work`, which is not what was asked for: it may be done whatever was answered.
pub(crate) fn unasked<T>(work: impl FnOnce() -> T) -> T {
    let _restored = Restored::set(None);
    work()
}

/// Does `work`, which takes its time ([`Asker::takes_long`]).
pub(crate) fn taking_long<T>(work: impl FnOnce() -> T) -> T {
    let asker = current();
    if let Some(asker) = &asker {
        asker.takes_long(true);
    }
    let _long = Long(asker);
    work()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

    #[derive(Default)]
    struct Told {
        is_answered: AtomicBool,
        long: AtomicI32,
    }

    impl Asker for Told {
        fn waits_for_disk(&self) {}

        fn begins(&self) -> bool {
            !self.is_answered.load(Ordering::SeqCst)
        }

        fn takes_long(&self, does: bool) {
            self.long.fetch_add(if does { 1 } else { -1 }, Ordering::SeqCst);
        }
    }

    #[test]
    fn what_was_answered_does_not_begin() {
        assert_eq!(begins(), Ok(()), "nobody has asked");
        let told = Arc::new(Told::default());
        let asker = || Arc::clone(&told) as Arc<dyn Asker>;
        asked_by(asker(), || {
            assert_eq!(begins(), Ok(()));
            told.is_answered.store(true, Ordering::SeqCst);
            assert_eq!(begins(), Err(Errno::INTR));
            taking_long(|| assert_eq!((begins(), told.long.load(Ordering::SeqCst)), (Err(Errno::INTR), 1)));
            assert_eq!((unasked(begins), told.long.load(Ordering::SeqCst)), (Ok(()), 0));
            assert_eq!(begins(), Err(Errno::INTR));
        });
        let panicked = std::panic::AssertUnwindSafe(|| asked_by(asker(), || taking_long(|| panic!("as tested"))));
        assert!(std::panic::catch_unwind(panicked).is_err());
        assert_eq!((begins(), told.long.load(Ordering::SeqCst)), (Ok(()), 0));
    }
}
