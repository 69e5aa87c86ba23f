//! Lines that a thread of their own writes: whoever says something while a mount is served waits for nobody who reads
//! it. (A pipe that nobody empties stops who writes to it, and a program that waits for a mount cannot be killed.)

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What waits to be written, in bytes. More is lost, and counted.
pub(super) const MOST: usize = 256 << 10;

/// A line takes this much, however short it is.
const LINE: usize = 64;

/// Lines on their way to whoever writes them.
#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    /// A line has come or was written, or the queue has ended.
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    is_on: bool,
    lines: VecDeque<(T, String)>,
    bytes: usize,
    /// One was taken out and is not written yet.
    is_writing: bool,
    /// Lines that did not fit, since this was told last.
    lost: u64,
}

impl<T> Queue<T> {
    /// A queue that takes no lines yet.
    pub(super) fn new() -> Self {
        let state = State { is_on: false, lines: VecDeque::new(), bytes: 0, is_writing: false, lost: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on lines are taken.
    pub(super) fn begin(&self) {
        self.state().is_on = true;
    }

    /// Takes no more lines.
    pub(super) fn end(&self) {
        self.state().is_on = false;
        self.changed.notify_all();
    }

    /// Takes a line; gives it back where nobody will write it.
    pub(super) fn push(&self, to: T, line: String) -> Option<(T, String)> {
        let mut state = self.state();
        if !state.is_on {
            return Some((to, line));
        }
        let bytes = LINE + line.len();
        // What was lost is told where it was: nothing more is taken until then.
        if state.lost > 0 || state.bytes + bytes > MOST {
            state.lost += 1;
            return None;
        }
        state.bytes += bytes;
        state.lines.push_back((to, line));
        drop(state);
        self.changed.notify_all();
        None
    }

    /// Writes lines, and how many were lost, until the queue has ended and is empty.
    pub(super) fn write(&self, mut write: impl FnMut(T, String), mut lost: impl FnMut(u64)) {
        let mut state = self.state();
        loop {
            let Some((to, line)) = state.lines.pop_front() else {
                let count = std::mem::take(&mut state.lost);
                if count > 0 {
                    state.is_writing = true;
                    drop(state);
                    lost(count);
                    state = self.state();
                    state.is_writing = false;
                    self.changed.notify_all();
                } else if state.is_on {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                } else {
                    return;
                }
                continue;
            };
            state.bytes -= LINE + line.len();
            state.is_writing = true;
            drop(state);
            write(to, line);
            state = self.state();
            state.is_writing = false;
            self.changed.notify_all();
        }
    }

    /// Waits until all is written, so long at most. False if it is not.
    pub(super) fn flush(&self, patience: Duration) -> bool {
        let begin = Instant::now();
        let mut state = self.state();
        while !state.lines.is_empty() || state.is_writing || state.lost > 0 {
            let Some(left) = patience.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()) else { return false };
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::sync::mpsc;

    #[test]
    fn nobody_waits_for_who_writes_and_what_is_lost_is_counted() {
        const FOR_EVER: Duration = Duration::from_secs(3600);
        let queue = Queue::new();
        assert_eq!(queue.push(1, "nobody writes it".to_owned()), Some((1, "nobody writes it".to_owned())));
        queue.begin();
        let line = || "x".repeat(LINE);
        let fitting = MOST / (2 * LINE);
        for _ in 0..fitting + 3 {
            assert_eq!(queue.push(2, line()), None);
        }
        // Nobody writes yet.
        assert!(!queue.flush(Duration::ZERO));
        let (written, told) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let lines = RefCell::new(Vec::new());
                let write = |to, line: String| lines.borrow_mut().push(format!("{to}{line}"));
                queue.write(write, |count| lines.borrow_mut().push(format!("lost {count}")));
                written.send(lines.into_inner()).unwrap();
            });
            assert!(queue.flush(FOR_EVER));
            assert_eq!(queue.push(3, "after".to_owned()), None);
            assert!(queue.flush(FOR_EVER));
            queue.end();
            let lines = told.recv().unwrap();
            assert_eq!(lines.len(), fitting + 2);
            assert_eq!(lines[fitting - 1..], [format!("2{}", line()), "lost 3".to_owned(), "3after".to_owned()]);
        });
        assert!(queue.push(4, String::new()).is_some());
    }
}
