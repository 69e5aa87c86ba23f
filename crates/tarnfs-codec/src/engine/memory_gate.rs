use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::answered::Answers;
use super::lock;
use crate::sync::thread::{self, ThreadId};
use crate::sync::{Condvar, Mutex};

/// How much memory the decoders of all streams may hold together while they work.
///
/// A window may be 128 MiB, a dictionary 1.5 GiB, and there may be as many readers as threads. If the memory does not
/// suffice for another decoder, its reader waits at the gate until one is done. Readers enter in the order in which
/// they came, or one that needs much would wait for ever. One may always work, else nothing could be read at all.
///
/// A decoder may read through another one (a compressed file in a compressed archive). It holds its pass while the
/// other one asks for a pass. Therefore one may always work *at each depth*, whatever those at other depths hold. So a
/// reader waits only for decoders of its own depth, and these wait only for what is less deep (`Source::depth`).
/// Nothing waits in a circle.
///
/// A decoder whose source does not answer any more is not one that works: it may never be done, and those of other
/// archives must not wait for it.
#[derive(Debug)]
pub(super) struct MemoryGate {
    limit: usize,
    held: Mutex<Held>,
    /// Somebody has entered or left, or needs less than was expected.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    /// By depth.
    lanes: Vec<Lane>,
    /// Whose decoders they are, and how deep.
    threads: Vec<(ThreadId, usize)>,
    /// How many passes there were.
    passes: u64,
}

/// The decoders of one depth.
#[derive(Debug, Default)]
struct Lane {
    decoders: Vec<AtWork>,
    /// How many have come to wait, and how many of them have entered.
    came: u64,
    entered: u64,
}

/// A decoder that has a pass.
#[derive(Debug)]
struct AtWork {
    number: u64,
    /// Of its source.
    answers: Arc<Answers>,
    /// Bytes that it was given and has not said anything of.
    untold: usize,
}

/// The most that the last decoders of a stream held. It falls slowly: some need more than others (frames, blocks).
/// Before the first one is there it may be anything. So that one takes all there is, until its first piece is there.
#[derive(Debug)]
pub(super) struct Expected {
    /// At the first piece, and at most.
    first: AtomicUsize,
    most: AtomicUsize,
    /// Of the stream's source.
    answers: Arc<Answers>,
}

/// Bytes of memory of a decoder. Some fill a dictionary as they go on: with as many bytes as they decode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// At its first piece.
    pub(super) first: usize,
    /// At the last one that is wanted of it now.
    pub(super) last: usize,
    /// If it went on for ever.
    pub(super) most: usize,
}

impl From<usize> for Memory {
    fn from(bytes: usize) -> Self {
        Self { first: bytes, last: bytes, most: bytes }
    }
}

/// In place of bytes where nothing was decoded yet.
const UNKNOWN: usize = usize::MAX;

/// Who waits looks so often whether those who work still get answers: nobody tells.
const LOOK: Duration = Duration::from_secs(1);

/// The memory that one decoder may hold. Given back when dropped.
#[derive(Debug)]
pub(super) struct GatePass<'a> {
    gate: &'a MemoryGate,
    expected: &'a Expected,
    /// Among all that there were.
    number: u64,
    bytes: usize,
    /// What the decoder has said of itself, at most.
    said: Option<(usize, usize)>,
    thread: ThreadId,
    depth: usize,
}

impl Expected {
    /// Of a stream of which nothing has been decoded, and whose source gives these answers.
    pub(super) fn of(answers: &Arc<Answers>) -> Self {
        let unknown = || AtomicUsize::new(UNKNOWN);
        Self { first: unknown(), most: unknown(), answers: Arc::clone(answers) }
    }

    /// Of a decoder that decodes `length` bytes; `None` if nobody knows.
    fn bytes(&self, length: u64) -> Option<usize> {
        let [first, most] = [&self.first, &self.most].map(|bytes| bytes.load(Ordering::Relaxed));
        let filled = first.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
        (first != UNKNOWN && most != UNKNOWN).then(|| most.min(filled))
    }

    /// A decoder holds so much. (It is a guess: of two that say so at once, either may win.)
    fn rise(&self, (first, most): (usize, usize)) {
        for (known, bytes) in [(&self.first, first), (&self.most, most)] {
            let before = known.load(Ordering::Relaxed);
            if before == UNKNOWN || before < bytes {
                known.store(bytes, Ordering::Relaxed);
            }
        }
    }

    /// A decoder that is done held so much at most.
    fn fall(&self, (first, most): (usize, usize)) {
        for (known, bytes) in [(&self.first, first), (&self.most, most)] {
            let before = known.load(Ordering::Relaxed);
            // One that was paused says nothing of what others begin with.
            if before != UNKNOWN
                && bytes > 0
                && let Some(above) = before.checked_sub(bytes)
            {
                known.store(before - above.div_ceil(4), Ordering::Relaxed);
            }
        }
    }
}

impl MemoryGate {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, held: Mutex::default(), changed: Condvar::new() }
    }

    /// Bytes that decoders at work hold, or are expected to.
    pub(super) fn memory(&self) -> usize {
        lock(&self.held).bytes
    }

    /// Lets one more decoder of a stream at `depth` in, as soon as there is memory for it. It decodes `length` bytes.
    ///
    /// The caller holds no lock, and nothing that a decoder at this depth or a lesser one may wait for: no run, and no
    /// pass but of deeper streams.
    pub(super) fn enter<'a>(&'a self, depth: usize, expected: &'a Expected, length: u64) -> GatePass<'a> {
        let mut held = lock(&self.held);
        let me = thread::current().id();
        if held.threads.iter().any(|&(thread, other)| thread == me && other <= depth) {
            // A source that lies about its depth: too much memory is better than a thread that waits for itself.
            debug_assert!(false, "a decoder at depth {depth} reads through one that is as deep");
            return self.take(&mut held, depth, expected, length);
        }
        let lane = held.lane(depth);
        let turn = lane.came;
        lane.came += 1;
        let waits = |held: &mut Held| held.lane(depth).entered != turn || !self.has_room(held, depth, expected, length);
        while waits(&mut held) {
            held = self.changed.wait_timeout(held, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        held.lane(depth).entered += 1;
        let taken = self.take(&mut held, depth, expected, length);
        drop(held);
        self.changed.notify_all();
        taken
    }

    /// The same, if there is memory now and nobody at this depth waits for it.
    pub(super) fn try_enter<'a>(&'a self, depth: usize, expected: &'a Expected, length: u64) -> Option<GatePass<'a>> {
        let mut held = lock(&self.held);
        let lane = held.lane(depth);
        let nobody_waits = lane.came == lane.entered;
        let may_enter = nobody_waits && self.has_room(&mut held, depth, expected, length);
        may_enter.then(|| self.take(&mut held, depth, expected, length))
    }

    /// The same for one who decodes ahead and can wait a little. He has no turn: those who wait in `enter` come first.
    ///
    /// The caller holds no lock, no run and no pass.
    pub(super) fn enter_ahead<'a>(&'a self, depth: usize, expected: &'a Expected, length: u64) -> Option<GatePass<'a>> {
        /// A few times what one job takes. What waits is often what a reader needs next.
        const PATIENCE: Duration = Duration::from_millis(500);
        let mut held = lock(&self.held);
        let end = Instant::now() + PATIENCE;
        loop {
            let lane = held.lane(depth);
            let nobody_waits = lane.came == lane.entered;
            if nobody_waits && self.has_room(&mut held, depth, expected, length) {
                return Some(self.take(&mut held, depth, expected, length));
            }
            let left = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            held = self.changed.wait_timeout(held, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn has_room(&self, held: &mut Held, depth: usize, expected: &Expected, length: u64) -> bool {
        if held.nobody_works(depth) {
            return true;
        }
        let taken = held.bytes.saturating_sub(held.without_answers());
        match expected.bytes(length) {
            Some(bytes) => taken.saturating_add(bytes) <= self.limit,
            // Else the first read of a stream would wait until nobody else decodes. One such is in at a time, as it
            // takes all there is.
            None => taken <= self.limit / 4 * 3,
        }
    }

    fn take<'a>(&'a self, held: &mut Held, depth: usize, expected: &'a Expected, length: u64) -> GatePass<'a> {
        let bytes = expected.bytes(length).unwrap_or(self.limit);
        held.passes += 1;
        let number = held.passes;
        held.lane(depth).decoders.push(AtWork { number, answers: Arc::clone(&expected.answers), untold: bytes });
        held.bytes = held.bytes.saturating_add(bytes);
        let thread = thread::current().id();
        held.threads.push((thread, depth));
        GatePass { gate: self, expected, number, bytes, said: None, thread, depth }
    }
}

impl Held {
    fn lane(&mut self, depth: usize) -> &mut Lane {
        if self.lanes.len() <= depth {
            self.lanes.resize_with(depth + 1, Lane::default);
        }
        &mut self.lanes[depth]
    }

    /// True if nothing is to be expected of the decoders at this depth.
    fn nobody_works(&mut self, depth: usize) -> bool {
        if !self.lane(depth).decoders.iter().all(|one| one.answers.are_missing()) {
            return false;
        }
        // One that is deeper may have no answer because others come first where it reads.
        depth == 0
            || self.lane(depth).decoders.is_empty()
            || self.lane(0).decoders.iter().any(|one| one.answers.are_missing())
    }

    /// Bytes of decoders that have read nothing yet, and whose source does not answer: they take nothing before that.
    fn without_answers(&self) -> usize {
        let file_hangs =
            self.lanes.first().is_some_and(|lane| lane.decoders.iter().any(|one| one.answers.are_missing()));
        // One that is deeper may have no answer because others come first where it reads.
        let lanes = self.lanes.iter().take(if file_hangs { usize::MAX } else { 1 });
        lanes
            .flat_map(|lane| &lane.decoders)
            .filter(|one| one.untold > 0 && one.answers.are_missing())
            .map(|one| one.untold)
            .sum()
    }
}

impl GatePass<'_> {
    /// Says what the decoder holds, once its first bytes are there: before that it may not even know.
    pub(super) fn holds(&mut self, memory: impl Into<Memory>) {
        let Memory { first, last: bytes, most } = memory.into();
        let (is_first, before) = (self.said.is_none(), self.said.unwrap_or_default());
        if is_first || first > before.0 || most > before.1 {
            let said = (first.max(before.0), most.max(before.1));
            self.said = Some(said);
            self.expected.rise(said);
        }
        if bytes == self.bytes && !is_first {
            return;
        }
        let mut held = lock(&self.gate.held);
        if let Some(one) = held.lane(self.depth).decoders.iter_mut().find(|one| one.number == self.number) {
            one.untold = 0;
        }
        held.bytes = held.bytes.saturating_sub(self.bytes).saturating_add(bytes);
        self.bytes = bytes;
        drop(held);
        self.gate.changed.notify_all();
    }
}

impl Drop for GatePass<'_> {
    fn drop(&mut self) {
        if let Some(said) = self.said {
            self.expected.fall(said);
        }
        let mut held = lock(&self.gate.held);
        let decoders = &mut held.lane(self.depth).decoders;
        if let Some(place) = decoders.iter().position(|one| one.number == self.number) {
            decoders.swap_remove(place);
        }
        held.bytes = held.bytes.saturating_sub(self.bytes);
        if let Some(place) = held.threads.iter().rposition(|&holder| holder == (self.thread, self.depth)) {
            held.threads.swap_remove(place);
        }
        drop(held);
        self.gate.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected() -> Expected {
        Expected::of(&Arc::default())
    }

    #[test]
    fn as_many_work_as_there_is_room_for_and_one_always() {
        let gate = MemoryGate::new(100);
        let expected = expected();
        let mut first = gate.enter(0, &expected, 0);
        assert!(gate.try_enter(0, &expected, 0).is_none(), "nobody knows yet what one needs");
        first.holds(40);
        let second = gate.try_enter(0, &expected, 0).unwrap();
        assert!(gate.try_enter(0, &expected, 0).is_none());
        first.holds(1000);
        drop(second);
        assert!(gate.try_enter(0, &expected, 0).is_none());
        drop(first);
        // More than there is room for, but alone.
        let alone = gate.enter(0, &expected, 0);
        assert!(gate.try_enter(0, &expected, 0).is_none());
        std::thread::scope(|scope| {
            // One after the other, as one that needed so much may come again.
            scope.spawn(|| (0..40).for_each(|_| gate.enter(0, &expected, 0).holds(10)));
            drop(alone);
        });
        let many: Vec<_> = std::iter::from_fn(|| gate.try_enter(0, &expected, 0)).collect();
        assert_eq!(many.len(), 10);
        drop(many);
        let mut held = lock(&gate.held);
        assert_eq!((held.lane(0).decoders.len(), held.bytes), (0, 0));
        assert!(held.threads.is_empty());
    }

    #[test]
    fn a_stream_of_which_nothing_is_known_waits_for_no_small_ones() {
        let gate = MemoryGate::new(100);
        let (small, unknown, other) = (expected(), expected(), expected());
        let mut works = gate.enter(0, &small, 0);
        assert!(gate.try_enter(0, &unknown, 0).is_none(), "it may need all");
        works.holds(75);
        let mut first = gate.try_enter(0, &unknown, 0).unwrap();
        assert!(gate.try_enter(0, &other, 0).is_none() && gate.try_enter(0, &small, 0).is_none(), "one at a time");
        first.holds(25);
        assert!(gate.try_enter(0, &other, 0).is_none(), "there is no memory left");
        drop(works);
        assert!(gate.try_enter(0, &other, 0).is_some());
    }

    #[test]
    fn what_large_frames_need_is_not_forgotten_for_a_small_one() {
        let gate = MemoryGate::new(100);
        let expected = expected();
        gate.enter(0, &expected, 0).holds(80);
        gate.enter(0, &expected, 0).holds(1);
        let first = gate.enter(0, &expected, 0);
        assert!(gate.try_enter(0, &expected, 0).is_none());
        drop(first);
    }

    #[test]
    fn one_that_fills_a_dictionary_takes_what_it_decodes() {
        let gate = MemoryGate::new(100);
        let expected = expected();
        let of = |first, last| Memory { first, last, most: 60 };
        gate.enter(0, &expected, 10).holds(of(5, 15));
        // Short reads leave the dictionary empty, long ones do not.
        let short: Vec<_> = std::iter::from_fn(|| gate.try_enter(0, &expected, 15)).collect();
        assert_eq!(short.len(), 5);
        drop(short);
        let mut long = gate.try_enter(0, &expected, 1000).unwrap();
        assert!(gate.try_enter(0, &expected, 1000).is_none());
        // Less than was expected is wanted of it.
        long.holds(of(5, 41));
        assert!(gate.try_enter(0, &expected, 56).is_none());
        assert!(gate.try_enter(0, &expected, 54).is_some());
    }

    fn nobody_waits(gate: &MemoryGate, depth: usize) -> bool {
        let mut held = lock(&gate.held);
        let lane = held.lane(depth);
        lane.came == lane.entered
    }

    #[test]
    fn one_works_at_each_depth_whatever_others_hold() {
        let gate = MemoryGate::new(100);
        let (outer, inner) = (expected(), expected());
        let holds = gate.enter(1, &inner, 0);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(gate.enter(1, &inner, 0)));
            while nobody_waits(&gate, 1) {
                std::thread::yield_now();
            }
            // What the inner one reads through, though another waits; a second one has to wait for this.
            let through = gate.enter(0, &outer, 0);
            assert!(gate.try_enter(0, &outer, 0).is_none());
            drop((through, holds));
            waiting.join().unwrap();
        });
        assert_eq!(lock(&gate.held).bytes, 0);
    }

    #[test]
    fn one_that_decodes_ahead_waits_a_little_and_has_no_turn() {
        let gate = MemoryGate::new(100);
        let expected = expected();
        let mut holds = gate.enter(0, &expected, 0);
        holds.holds(60);
        std::thread::scope(|scope| {
            // On a busy machine a little may be over before the other one has left.
            let ahead = scope.spawn(|| (0..100).find_map(|_| gate.enter_ahead(0, &expected, 0)).is_some());
            drop(holds);
            assert!(ahead.join().unwrap());
        });
        let holds = gate.enter(0, &expected, 0);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| gate.enter(0, &expected, 0).bytes);
            while nobody_waits(&gate, 0) {
                std::thread::yield_now();
            }
            assert!(gate.enter_ahead(0, &expected, 0).is_none(), "a reader came before");
            drop(holds);
            assert_eq!(reader.join().unwrap(), 60);
        });
        assert_eq!(lock(&gate.held).bytes, 0);
    }

    #[test]
    fn those_of_all_depths_share_what_there_is() {
        let gate = MemoryGate::new(100);
        let (outer, inner) = (expected(), expected());
        gate.enter(0, &outer, 0).holds(40);
        let mut first = gate.enter(1, &inner, 0);
        first.holds(30);
        let second = gate.enter(0, &outer, 0);
        assert!(gate.try_enter(0, &outer, 0).is_none(), "70 of 100 are taken");
        first.holds(20);
        assert!(gate.try_enter(0, &outer, 0).is_some());
        drop(second);
    }

    #[test]
    fn nobody_is_passed_by_those_who_need_less() {
        let gate = MemoryGate::new(100);
        let (large, small) = (expected(), expected());
        let mut first = gate.enter(0, &small, 0);
        first.holds(80);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(gate.enter(0, &large, 0)));
            while nobody_waits(&gate, 0) {
                std::thread::yield_now();
            }
            assert!(gate.try_enter(0, &small, 0).is_none(), "one that was there before waits");
            let behind = scope.spawn(|| drop(gate.enter(0, &small, 0)));
            drop(first);
            waiting.join().unwrap();
            behind.join().unwrap();
        });
        assert!(gate.try_enter(0, &small, 0).is_some());
    }

    #[test]
    fn nobody_waits_for_one_whose_source_does_not_answer() {
        let gate = MemoryGate::new(100);
        let (gone, other) = (Expected::of(&Answers::missing()), expected());
        let never_done = gate.enter(0, &gone, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut first = gate.enter(0, &other, 0);
                assert!(gate.try_enter(0, &other, 0).is_none(), "but for one who works");
                // It has read nothing, so it holds nothing.
                first.holds(40);
                let second = gate.try_enter(0, &other, 0).unwrap();
                assert!(gate.try_enter(0, &other, 0).is_none());
                drop((first, second));
            });
        });
        // At another depth only what reads there.
        let deeper = Expected::of(&Answers::missing());
        let reads_there = gate.try_enter(1, &deeper, 0).unwrap();
        drop(gate.try_enter(1, &other, 0).unwrap());
        drop(never_done);
        assert!(gate.try_enter(1, &other, 0).is_none(), "it may be that others come first");
        drop(reads_there);
        let mut held = lock(&gate.held);
        assert_eq!((held.lane(0).decoders.len(), held.bytes), (0, 0));
    }
}
