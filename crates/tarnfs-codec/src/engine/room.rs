use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use super::lock;

/// How much memory the decoders of one stream may hold together while they work.
///
/// A window may be 128 MiB, a dictionary 1.5 GiB, and as many readers may come as there are threads: where there is no room for another decoder, its reader
/// waits until one is done. One may always work, else nothing could be read at all.
#[derive(Debug)]
pub(super) struct Room {
    limit: usize,
    held: Mutex<Held>,
    /// Somebody has left, or needs less than was expected.
    changed: Condvar,
    /// What the last decoder held. Before the first one is there it may be anything, so that the second one waits for it.
    expected: AtomicUsize,
}

#[derive(Debug, Default)]
struct Held {
    decoders: usize,
    bytes: usize,
}

/// The room that one decoder has; given back when dropped.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    room: &'a Room,
    bytes: usize,
}

impl Room {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, held: Mutex::default(), changed: Condvar::new(), expected: AtomicUsize::new(limit) }
    }

    /// Room for one more decoder, as soon as there is.
    pub(super) fn enter(&self) -> Taken<'_> {
        let held = lock(&self.held);
        let mut held =
            self.changed.wait_while(held, |held| !self.has_room(held)).unwrap_or_else(PoisonError::into_inner);
        self.take(&mut held)
    }

    /// The same, if there is room now.
    pub(super) fn try_enter(&self) -> Option<Taken<'_>> {
        let mut held = lock(&self.held);
        self.has_room(&held).then(|| self.take(&mut held))
    }

    fn has_room(&self, held: &Held) -> bool {
        held.decoders == 0 || held.bytes.saturating_add(self.expected.load(Ordering::Relaxed)) <= self.limit
    }

    fn take(&self, held: &mut Held) -> Taken<'_> {
        let bytes = self.expected.load(Ordering::Relaxed);
        held.decoders += 1;
        held.bytes = held.bytes.saturating_add(bytes);
        Taken { room: self, bytes }
    }
}

impl Taken<'_> {
    /// Says what the decoder really holds.
    pub(super) fn holds(&mut self, bytes: usize) {
        if bytes == self.bytes {
            return;
        }
        self.room.expected.store(bytes, Ordering::Relaxed);
        let mut held = lock(&self.room.held);
        held.bytes = held.bytes.saturating_sub(self.bytes).saturating_add(bytes);
        self.bytes = bytes;
        drop(held);
        self.room.changed.notify_all();
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut held = lock(&self.room.held);
        held.decoders -= 1;
        held.bytes = held.bytes.saturating_sub(self.bytes);
        drop(held);
        self.room.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_work_as_there_is_room_for_and_one_always() {
        let room = Room::new(100);
        let mut first = room.enter();
        assert!(room.try_enter().is_none(), "nobody knows yet what one needs");
        first.holds(40);
        let second = room.try_enter().unwrap();
        assert!(room.try_enter().is_none());
        first.holds(1000);
        drop(second);
        assert!(room.try_enter().is_none());
        drop(first);
        // More than there is room for, but alone.
        let alone = room.enter();
        assert!(room.try_enter().is_none());
        std::thread::scope(|scope| {
            scope.spawn(|| room.enter().holds(10));
            drop(alone);
        });
        let many: Vec<_> = std::iter::from_fn(|| room.try_enter()).collect();
        assert_eq!(many.len(), 10);
        drop(many);
        let held = lock(&room.held);
        assert_eq!((held.decoders, held.bytes), (0, 0));
    }
}
