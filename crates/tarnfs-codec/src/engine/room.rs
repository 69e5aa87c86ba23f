use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::lock;
use crate::sync::thread::{self, ThreadId};
use crate::sync::{Condvar, Mutex};

/// How much memory the decoders of all streams may hold together while they work.
///
/// A window may be 128 MiB, a dictionary 1.5 GiB, and as many readers may come as there are threads: where there is no room for another decoder, its reader
/// waits until one is done. Who comes first enters first, or one that needs much would wait for ever. One may always work, else nothing
/// could be read at all. A decoder that reads through another one, a compressed file in a compressed archive, holds room while that one asks for some: whoever
/// has room already does not wait.
#[derive(Debug)]
pub(super) struct Room {
    limit: usize,
    held: Mutex<Held>,
    /// Somebody has entered or left, or needs less than was expected.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Held {
    decoders: usize,
    bytes: usize,
    /// Whose decoders they are.
    threads: Vec<ThreadId>,
    /// How many have come to wait, and how many of them have entered.
    came: u64,
    entered: u64,
}

/// What the last decoder of a stream held. Before the first one is there it may be anything, so that one works alone.
#[derive(Debug)]
pub(super) struct Expected(AtomicUsize);

/// The room that one decoder has; given back when dropped.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    room: &'a Room,
    expected: &'a Expected,
    bytes: usize,
    thread: ThreadId,
}

impl Expected {
    fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Room {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, held: Mutex::default(), changed: Condvar::new() }
    }

    /// Of a stream of which nothing has been decoded.
    pub(super) fn expected(&self) -> Expected {
        Expected(AtomicUsize::new(self.limit))
    }

    /// Room for one more decoder, as soon as there is.
    pub(super) fn enter<'a>(&'a self, expected: &'a Expected) -> Taken<'a> {
        let mut held = lock(&self.held);
        if held.threads.contains(&thread::current().id()) {
            return self.take(&mut held, expected);
        }
        let turn = held.came;
        held.came += 1;
        let waits = |held: &mut Held| held.entered != turn || !self.has_room(held, expected);
        let mut held = self.changed.wait_while(held, waits).unwrap_or_else(PoisonError::into_inner);
        held.entered += 1;
        let taken = self.take(&mut held, expected);
        drop(held);
        self.changed.notify_all();
        taken
    }

    /// The same, if there is room now and nobody waits for it.
    pub(super) fn try_enter<'a>(&'a self, expected: &'a Expected) -> Option<Taken<'a>> {
        let mut held = lock(&self.held);
        (held.came == held.entered && self.has_room(&held, expected)).then(|| self.take(&mut held, expected))
    }

    fn has_room(&self, held: &Held, expected: &Expected) -> bool {
        held.decoders == 0 || held.bytes.saturating_add(expected.bytes()) <= self.limit
    }

    fn take<'a>(&'a self, held: &mut Held, expected: &'a Expected) -> Taken<'a> {
        let bytes = expected.bytes();
        held.decoders += 1;
        held.bytes = held.bytes.saturating_add(bytes);
        let thread = thread::current().id();
        held.threads.push(thread);
        Taken { room: self, expected, bytes, thread }
    }
}

impl Taken<'_> {
    /// Says what the decoder really holds.
    pub(super) fn holds(&mut self, bytes: usize) {
        if bytes == self.bytes {
            return;
        }
        self.expected.0.store(bytes, Ordering::Relaxed);
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
        if let Some(place) = held.threads.iter().rposition(|&thread| thread == self.thread) {
            held.threads.swap_remove(place);
        }
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
        let expected = room.expected();
        let mut first = room.enter(&expected);
        assert!(room.try_enter(&expected).is_none(), "nobody knows yet what one needs");
        first.holds(40);
        let second = room.try_enter(&expected).unwrap();
        assert!(room.try_enter(&expected).is_none());
        first.holds(1000);
        drop(second);
        assert!(room.try_enter(&expected).is_none());
        drop(first);
        // More than there is room for, but alone.
        let alone = room.enter(&expected);
        assert!(room.try_enter(&expected).is_none());
        std::thread::scope(|scope| {
            scope.spawn(|| room.enter(&expected).holds(10));
            drop(alone);
        });
        let many: Vec<_> = std::iter::from_fn(|| room.try_enter(&expected)).collect();
        assert_eq!(many.len(), 10);
        drop(many);
        let held = lock(&room.held);
        assert_eq!((held.decoders, held.bytes), (0, 0));
    }

    #[test]
    fn who_has_room_does_not_wait_for_more() {
        let room = Room::new(100);
        let (outer, inner) = (room.expected(), room.expected());
        let holds = room.enter(&outer);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(room.enter(&inner)));
            let nobody_waits = || {
                let held = lock(&room.held);
                held.came == held.entered
            };
            while nobody_waits() {
                std::thread::yield_now();
            }
            drop(room.enter(&inner));
            drop(holds);
            waiting.join().unwrap();
        });
        assert!(lock(&room.held).threads.is_empty());
    }

    #[test]
    fn nobody_is_passed_by_those_who_need_less() {
        let room = Room::new(100);
        let (large, small) = (room.expected(), room.expected());
        room.enter(&small).holds(10);
        let first = room.enter(&small);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(room.enter(&large)));
            let nobody_waits = || {
                let held = lock(&room.held);
                held.came == held.entered
            };
            while nobody_waits() {
                std::thread::yield_now();
            }
            assert!(room.try_enter(&small).is_none(), "one that was there before waits");
            let behind = scope.spawn(|| drop(room.enter(&small)));
            drop(first);
            waiting.join().unwrap();
            behind.join().unwrap();
        });
        assert!(room.try_enter(&small).is_some());
    }
}
