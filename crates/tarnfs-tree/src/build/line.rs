//! What threads find that read beside each other, in the order of what they read: each item of a list is read by one
//! thread, and one thread writes what was found in the first item, then in the second, ...
//!
//! Who waits for whom:
//!
//! - The thread that writes waits ([`Line::take`]) for the one that reads the head: the first item of which not all was
//!   written. Items are given out in their order ([`Line::next`]), so somebody reads it.
//! - Who reads the head waits ([`LinePlace::push`]) for the thread that writes, and for nobody else.
//! - Who reads an item behind the head waits until what waits behind the head leaves room for more, or until its item
//!   is the head. It must hold nothing meanwhile that who reads the head may ask for: no lock, no room for decoders.
//! - The same who wants to have what only one may have at a time ([`LinePlace::wait`]), until its item is the head, or
//!   until somebody whose item has ended left room for it elsewhere.
//! - The thread that writes may read an item itself that was put off: by then nobody else reads it, and it waits for
//!   nobody.
//!
//! So the head always goes on, and what waits is bounded.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes that may wait of all items behind the head together, and of the head.
const MOST_BEHIND: usize = 8 << 20;
const MOST_OF_HEAD: usize = 512 << 10;

/// Nobody writes any more: the pass has failed elsewhere.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Closed;

#[derive(Debug)]
pub(super) struct Line<T> {
    state: Mutex<LineState<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct LineState<T> {
    items: Vec<Item<T>>,
    /// The item that is given out next, and the one whose results are written.
    next: usize,
    head: usize,
    /// Bytes that wait of the items behind the head.
    behind: usize,
    closed: bool,
}

#[derive(Debug)]
struct Item<T> {
    waiting: VecDeque<(T, usize)>,
    /// Bytes of what waits.
    weight: usize,
    /// No more will come.
    ended: bool,
}

/// The place of one item: its results go here. Dropped when all have been told.
#[derive(Debug)]
pub(super) struct LinePlace<'l, T> {
    line: &'l Line<T>,
    number: usize,
}

/// Closes the line when dropped.
pub(super) struct CloseAtEnd<'l, T>(&'l Line<T>);

impl<T> Line<T> {
    /// Of so many items.
    pub(super) fn new(count: usize) -> Self {
        let item = || Item { waiting: VecDeque::new(), weight: 0, ended: false };
        let items = std::iter::repeat_with(item).take(count).collect();
        let state = LineState { items, next: 0, head: 0, behind: 0, closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, LineState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next item that nobody reads, and its place; `None` if there are no more, or nobody writes.
    pub(super) fn next(&self) -> Option<(usize, LinePlace<'_, T>)> {
        let mut state = self.lock();
        let number = state.next;
        if state.closed || number >= state.items.len() {
            return None;
        }
        state.next += 1;
        Some((number, LinePlace { line: self, number }))
    }

    /// The next thing that was found in the head. `None` at its end, and the item behind it is the head; also once the
    /// line was closed.
    pub(super) fn take(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            let head = state.head;
            if state.closed {
                return None;
            }
            let item = state.items.get_mut(head)?;
            if let Some((found, weight)) = item.waiting.pop_front() {
                item.weight -= weight;
                self.changed.notify_all();
                return Some(found);
            }
            if item.ended {
                state.head += 1;
                let of_new_head = state.items.get(head + 1).map_or(0, |item| item.weight);
                state.behind -= of_new_head;
                self.changed.notify_all();
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// From now on nobody waits, and nothing more is taken.
    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    pub(super) fn close_at_end(&self) -> CloseAtEnd<'_, T> {
        CloseAtEnd(self)
    }
}

impl<T> Drop for CloseAtEnd<'_, T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<T> LinePlace<'_, T> {
    /// Tells what was found, which takes about `weight` bytes, as soon as there is room for it.
    pub(super) fn push(&self, found: T, weight: usize) -> Result<(), Closed> {
        let mut state = self.line.lock();
        loop {
            if state.closed {
                return Err(Closed);
            }
            let is_head = state.head == self.number;
            // What is larger than the room has it alone.
            let Some(item) = state.items.get_mut(self.number) else { return Err(Closed) };
            let (waiting, most) = if is_head { (item.weight, MOST_OF_HEAD) } else { (state.behind, MOST_BEHIND) };
            if waiting == 0 || waiting.saturating_add(weight) <= most {
                break;
            }
            state = self.line.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.head != self.number {
            state.behind += weight;
        }
        if let Some(item) = state.items.get_mut(self.number) {
            item.weight += weight;
            item.waiting.push_back((found, weight));
        }
        self.line.changed.notify_all();
        Ok(())
    }
}

impl<T> LinePlace<'_, T> {
    /// Waits until its item is the head: what only one may have at a time, this one may have then, up to its end. Or
    /// until `has_room`, which waits for nobody and is asked again each time that an item ends.
    pub(super) fn wait(&self, has_room: &mut dyn FnMut() -> bool) -> Result<(), Closed> {
        let mut state = self.line.lock();
        while !state.closed && state.head != self.number && !has_room() {
            state = self.line.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed { Err(Closed) } else { Ok(()) }
    }
}

impl<T> Drop for LinePlace<'_, T> {
    fn drop(&mut self) {
        // What a thread that panics has found is not all there was.
        if std::thread::panicking() {
            self.line.close();
        }
        let mut state = self.line.lock();
        if let Some(item) = state.items.get_mut(self.number) {
            item.ended = true;
        }
        drop(state);
        self.line.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads read items of many results each, of any weight, and the results come in the order of the items.
    #[test]
    fn what_is_found_comes_in_the_order_of_the_items() {
        for threads in [1, 2, 5] {
            let line = Line::new(20);
            let mut all = Vec::new();
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        while let Some((number, place)) = line.next() {
                            for result in 0..50 {
                                place.push((number, result), (number * result * 9973) % (3 << 20)).unwrap();
                            }
                        }
                    });
                }
                for _ in 0..20 {
                    all.extend(std::iter::from_fn(|| line.take()));
                }
            });
            let expected: Vec<_> = (0..20).flat_map(|number| (0..50).map(move |result| (number, result))).collect();
            assert_eq!(all, expected, "{threads} threads");
            let state = line.lock();
            assert_eq!((state.behind, state.items.iter().map(|item| item.weight).sum::<usize>()), (0, 0));
        }
    }

    /// The head goes on while those behind it wait, and these wait only while there is no room.
    #[test]
    fn who_is_behind_waits_and_the_head_does_not() {
        let line = Line::new(3);
        let (first, second, third) = (line.next().unwrap().1, line.next().unwrap().1, line.next().unwrap().1);
        second.push(20, MOST_BEHIND - 1).unwrap();
        third.push(30, 1).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                third.push(31, 1).unwrap();
                drop(third);
            });
            first.push(10, 5 * MOST_BEHIND).unwrap();
            assert_eq!(line.take(), Some(10));
            first.push(11, 1).unwrap();
            // Nothing was taken of what fills the room.
            assert!(line.lock().items[2].waiting.len() == 1);
            drop(first);
            assert_eq!((line.take(), line.take()), (Some(11), None));
            waits.join().unwrap();
            drop(second);
            assert_eq!(
                [line.take(), line.take(), line.take(), line.take(), line.take()],
                [Some(20), None, Some(30), Some(31), None]
            );
        });
    }

    /// What takes much memory is read one after the other.
    #[test]
    fn who_waits_is_the_head_then() {
        const ITEMS: usize = 8;
        let line = Line::new(ITEMS);
        let there = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..ITEMS {
                scope.spawn(|| {
                    let (number, place) = line.next().unwrap();
                    place.push(number, 1).unwrap();
                    place.wait(&mut || false).unwrap();
                    assert_eq!(there.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    std::thread::yield_now();
                    there.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    place.push(number, 1).unwrap();
                });
            }
            for number in 0..ITEMS {
                assert_eq!((line.take(), line.take(), line.take()), (Some(number), Some(number), None));
            }
        });
    }

    /// What one that has ended has left, the next may have.
    #[test]
    fn who_waits_goes_on_where_there_is_room() {
        let line = Line::<u8>::new(3);
        let has_room = std::sync::atomic::AtomicBool::new(false);
        let (_first, second, third) = (line.next().unwrap().1, line.next().unwrap().1, line.next().unwrap().1);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| third.wait(&mut || has_room.load(std::sync::atomic::Ordering::SeqCst)));
            has_room.store(true, std::sync::atomic::Ordering::SeqCst);
            drop(second);
            assert_eq!(waits.join().unwrap(), Ok(()));
        });
        assert_eq!(line.lock().head, 0);
    }

    #[test]
    fn nobody_waits_once_it_is_closed() {
        let line = Line::new(2);
        let (first, second) = (line.next().unwrap().1, line.next().unwrap().1);
        second.push(1, MOST_BEHIND).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| (second.push(2, 1), second.wait(&mut || false)));
            drop(line.close_at_end());
            assert_eq!(waits.join().unwrap(), (Err(Closed), Err(Closed)));
        });
        assert_eq!(first.push(1, 1), Err(Closed));
        assert_eq!((line.take(), line.next().is_none()), (None, true));
        // A thread that panics takes nobody with it.
        let line = Line::<u8>::new(1);
        let panicked = std::thread::scope(|scope| {
            let reads = scope.spawn(|| {
                let _place = line.next();
                panic!("on purpose");
            });
            assert_eq!(line.take(), None);
            reads.join().is_err()
        });
        assert!(panicked && line.lock().closed);
    }
}
