use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

use super::lock;
use super::pool::Piece;
use crate::sync::{Condvar, Mutex};

/// Who decodes what of one stream at this moment, so that nobody decodes it a second time beside them.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    state: Mutex<RunsInFlight>,
    /// A run has moved on or ended, and somebody waits.
    moved: Condvar,
}

#[derive(Debug, Default)]
struct RunsInFlight {
    runs: Vec<Run>,
    next_run: u64,
    /// Pieces that somebody waits for, by where their chunk and they themselves start: chunks that overlap, as a lying
    /// index may have them, have different ones at one place.
    awaited: HashMap<(u64, u64), Awaited>,
    /// What is to be decoded ahead and no worker has begun with, by start of chunk.
    queued: HashMap<u64, Queued>,
}

/// One decoder at work.
#[derive(Debug)]
struct Run {
    number: u64,
    /// Start of the chunk that it is in.
    chunk: u64,
    /// Start of the piece that it decodes now.
    next: u64,
    /// It stops when it has decoded up to here.
    end: u64,
    /// Decodes ahead: its end may be moved on.
    ahead: bool,
}

/// What is to be decoded ahead in a chunk.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) range: Range<u64>,
    /// Somebody asked for it in so many words: it is not only what a reader may come to.
    pub(super) hint: bool,
}

#[derive(Debug, Default)]
struct Awaited {
    piece: Option<Arc<Piece>>,
    /// Of each who waits, the last piece that they want: they need not be woken before a run comes behind it.
    lasts: Vec<u64>,
}

/// A run, ended when dropped, also by a panic.
#[derive(Debug)]
pub(super) struct RunGuard<'a> {
    in_flight: &'a InFlight,
    number: u64,
    chunk: u64,
}

/// What a run is to decode: from a piece's start, in the chunk that starts at `chunk`, up to `end`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    pub(super) chunk: u64,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Task {
    fn key(&self) -> (u64, u64) {
        (self.chunk, self.start)
    }
}

/// The answer to one who has a pass and would decode a piece.
#[derive(Debug)]
pub(super) enum Turn<'a, T> {
    /// Somebody has decoded it meanwhile.
    Ready(Arc<Piece>),
    /// Somebody is on the way to it by now: who has a pass gives it back, and waits.
    OnItsWay,
    /// The caller has to, with what `begin` returned.
    Decode(RunGuard<'a>, (u64, T)),
}

impl InFlight {
    /// Waits while a run of the chunk is on its way to the piece at `task.start`, and while it is on its way to the one
    /// at `last`, which the caller wants next: one waking is enough for both. `cached` looks for the first in the
    /// cache. `None`: nobody is on the way.
    ///
    /// The caller holds no lock, and no pass but of deeper streams: the run may need it.
    pub(super) fn wait(&self, task: Task, last: u64, cached: impl Fn() -> Option<Arc<Piece>>) -> Option<Arc<Piece>> {
        let mut state = lock(&self.state);
        loop {
            // Under the lock: whoever decoded the piece put it there before saying that the run moved on.
            if let Some(piece) = cached() {
                return Some(piece);
            }
            let number = state.run_towards(task).map(|run| run.number)?;
            state.awaited.entry(task.key()).or_default().lasts.push(last);
            let piece = loop {
                state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
                let run = state.runs.iter().find(|run| run.number == number);
                if run.is_none_or(|run| run.next > last) {
                    break state.awaited.get(&task.key()).and_then(|awaited| awaited.piece.clone());
                }
            };
            if let Some(awaited) = state.awaited.get_mut(&task.key()) {
                if let Some(place) = awaited.lasts.iter().position(|&other| other == last) {
                    awaited.lasts.swap_remove(place);
                }
                if awaited.lasts.is_empty() {
                    state.awaited.remove(&task.key());
                }
            }
            if piece.is_some() {
                return piece;
            }
        }
    }

    /// Begins a run, for one who has a pass for its decoder. Never waits. `begin` picks the decoder and says where it
    /// stands.
    pub(super) fn begin<T>(
        &self,
        task: Task,
        cached: impl Fn() -> Option<Arc<Piece>>,
        begin: impl FnOnce() -> (u64, T),
    ) -> Turn<'_, T> {
        let mut state = lock(&self.state);
        if let Some(piece) = cached() {
            return Turn::Ready(piece);
        }
        if state.run_towards(task).is_some() {
            return Turn::OnItsWay;
        }
        let (next, begun) = begin();
        Turn::Decode(self.register(&mut state, task, next, false), (next, begun))
    }

    /// Begins a run that decodes ahead, unless another is on its way there: then that one goes on to `task.end`.
    /// `begin` may find that it is not worth it.
    pub(super) fn ahead<T>(
        &self,
        task: Task,
        begin: impl FnOnce() -> Option<(u64, T)>,
    ) -> Option<(RunGuard<'_>, (u64, T))> {
        let mut state = lock(&self.state);
        if let Some(run) = state.run_towards(task) {
            if run.ahead {
                run.end = run.end.max(task.end);
            }
            return None;
        }
        let (next, begun) = begin()?;
        Some((self.register(&mut state, task, next, true), (next, begun)))
    }

    fn register(&self, state: &mut RunsInFlight, task: Task, next: u64, ahead: bool) -> RunGuard<'_> {
        let number = state.next_run;
        state.next_run += 1;
        state.runs.push(Run { number, chunk: task.chunk, next, end: task.end, ahead });
        RunGuard { in_flight: self, number, chunk: task.chunk }
    }

    /// True if a run is in the chunk that starts at `chunk`.
    pub(super) fn is_in(&self, chunk: u64) -> bool {
        lock(&self.state).runs.iter().any(|run| run.chunk == chunk)
    }

    /// Notes what is to be decoded ahead in a chunk; true if that needs a new job.
    pub(super) fn queue(&self, chunk: u64, range: Range<u64>, hint: bool) -> bool {
        match lock(&self.state).queued.entry(chunk) {
            Entry::Occupied(mut queued) => {
                let queued = queued.get_mut();
                queued.range = queued.range.start.min(range.start)..queued.range.end.max(range.end);
                queued.hint |= hint;
                false
            }
            Entry::Vacant(place) => {
                place.insert(Queued { range, hint });
                true
            }
        }
    }

    /// Takes what was queued for a chunk.
    pub(super) fn dequeue(&self, chunk: u64) -> Option<Queued> {
        lock(&self.state).queued.remove(&chunk)
    }
}

impl RunsInFlight {
    /// The run nearest to the task's first piece among those that will come to it or stop before it, in its chunk.
    fn run_towards(&mut self, task: Task) -> Option<&mut Run> {
        self.runs.iter_mut().filter(|run| run.chunk == task.chunk && run.next <= task.start).max_by_key(|run| run.next)
    }
}

impl RunGuard<'_> {
    /// Where the run ends at this moment.
    pub(super) fn end(&self) -> u64 {
        lock(&self.in_flight.state).runs.iter().find(|run| run.number == self.number).map_or(0, |run| run.end)
    }

    /// True if somebody waits for the piece at `start`, or for one before it and wants it next.
    pub(super) fn is_awaited(&self, start: u64) -> bool {
        let wants = |(&(chunk, first), awaited): (&(u64, u64), &Awaited)| {
            chunk == self.chunk && first <= start && awaited.lasts.iter().any(|&last| start <= last)
        };
        lock(&self.in_flight.state).awaited.iter().any(wants)
    }

    /// Says that the piece at `start` is decoded, handing it to those who wait, and that the one at `next` follows.
    /// Returns where the run ends.
    pub(super) fn advance(&self, start: u64, piece: Option<&Arc<Piece>>, next: u64) -> u64 {
        let mut state = lock(&self.in_flight.state);
        if let (Some(awaited), Some(piece)) = (state.awaited.get_mut(&(self.chunk, start)), piece) {
            awaited.piece = Some(Arc::clone(piece));
        }
        let in_chunk = state.awaited.iter().filter(|((chunk, _), _)| *chunk == self.chunk);
        if in_chunk.flat_map(|(_, awaited)| &awaited.lasts).any(|last| (start..next).contains(last)) {
            self.in_flight.moved.notify_all();
        }
        let Some(run) = state.runs.iter_mut().find(|run| run.number == self.number) else { return 0 };
        run.next = next;
        run.end
    }
}

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.in_flight.state);
        state.runs.retain(|run| run.number != self.number);
        if !state.awaited.is_empty() {
            self.in_flight.moved.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread::{scope, yield_now};
    use std::time::Duration;

    use tarnfs_source::Budget;

    use super::super::pool::Pool;
    use super::*;

    #[test]
    fn nobody_gets_a_piece_of_another_chunk_that_starts_at_the_same_byte() {
        let in_flight = InFlight::default();
        let task = |chunk| Task { chunk, start: 10, end: 100 };
        let (first, _) = in_flight.ahead(task(0), || Some((10, ()))).unwrap();
        let (second, _) = in_flight.ahead(task(10), || Some((10, ()))).unwrap();
        let pool = Pool::new(&Budget::new(0));
        let pieces = [1, 2].map(|length| Arc::new(pool.piece(length)));
        scope(|scope| {
            let waiter = scope.spawn(|| in_flight.wait(task(0), 10, || None));
            while lock(&in_flight.state).awaited.is_empty() {
                yield_now();
            }
            assert!(first.is_awaited(10) && !second.is_awaited(10));
            second.advance(10, Some(&pieces[1]), 20);
            drop(second);
            first.advance(10, Some(&pieces[0]), 20);
            assert_eq!(waiter.join().unwrap().map(|piece| piece.len()), Some(1));
        });
        drop(first);
    }

    #[test]
    fn each_of_several_is_woken_behind_the_last_piece_that_they_want() {
        let in_flight = InFlight::default();
        let task = Task { chunk: 0, start: 0, end: 100 };
        let (run, (_, ())) = in_flight.ahead(task, || Some((0, ()))).unwrap();
        let piece = Arc::new(Pool::new(&Budget::new(0)).piece(1));
        let (woken, wakings) = channel();
        scope(|scope| {
            for last in [20, 5, 10] {
                let (in_flight, woken) = (&in_flight, woken.clone());
                scope.spawn(move || {
                    assert!(matches!(in_flight.begin(task, || None, || unreachable!()), Turn::<()>::OnItsWay));
                    assert!(in_flight.wait(task, last, || None).is_some());
                    woken.send(last)
                });
            }
            while lock(&in_flight.state).awaited.get(&(0, 0)).is_none_or(|awaited| awaited.lasts.len() < 3) {
                yield_now();
            }
            let mut at = 0;
            for last in [5, 10, 20] {
                while at <= last {
                    assert!(run.is_awaited(at));
                    run.advance(at, Some(&piece), at + 1);
                    at += 1;
                }
                // The run goes on: only it could wake them later.
                let found = wakings.recv_timeout(Duration::from_secs(300));
                assert_eq!(found, Ok(last));
            }
            assert!(!run.is_awaited(at));
            drop(run);
        });
    }
}
