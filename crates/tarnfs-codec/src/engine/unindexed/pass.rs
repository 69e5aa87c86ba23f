//! The first pass over a stream, and the memory that it takes.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, TryLockError};
use std::time::{Duration, Instant};

use tarnfs_source::{Alone, Grant, Setting};

use super::super::cache::{Idle, PieceCache};
use super::super::copied::Copied;
use super::super::{DecodedSource, Indexing, Table, lock};
use crate::sync::{Mutex, MutexGuard, thread_local};

/// Of the memory for the seek points of one stream, so many bytes may be taken at its start already.
const FIRST_POINTS: usize = 1 << 20;

thread_local! {
    /// Passes that this thread decodes with at the moment, one for the other, and how many of them have the right to do
    /// without memory of the budget.
    #[allow(clippy::missing_const_for_thread_local, reason = "Shuttle has no such form")]
    static HELD: Cell<(usize, usize)> = Cell::new((0, 0));
}

/// A pass that this thread decodes with, or begins. As long as there is one, the thread waits for no memory: others may
/// wait for what it has. The stream that it began with gives all up, and waits then.
pub(super) struct Held {
    is_alone: bool,
}

impl Held {
    /// One that has this memory.
    pub(super) fn new(room: Option<&Room>) -> Self {
        let is_alone = Room::does_without(room);
        HELD.with(|held| held.set((held.get().0 + 1, held.get().1 + usize::from(is_alone))));
        Self { is_alone }
    }

    /// How many there are.
    pub(super) fn any() -> usize {
        HELD.with(|held| held.get().0)
    }

    /// True if one of them has the right to do without: it covers what is decoded for it.
    fn is_covered() -> bool {
        HELD.with(|held| held.get().1 > 0)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.with(|held| held.set((held.get().0 - 1, held.get().1 - usize::from(self.is_alone))));
    }
}

/// The first pass, if one has begun.
#[derive(Default)]
pub(super) struct PassSlot {
    pub(super) pass: Mutex<Option<Box<Pass>>>,
    /// Those of the streams that this one is decoded from, which are of no use without it.
    pub(super) inputs: Vec<Arc<PassSlot>>,
    /// It is itself one of these: it never waits for memory, and is given up with the stream that is decoded from it.
    /// Else it would wait for others while the passes around it hold what these wait for.
    pub(super) is_input: AtomicBool,
    /// Who reads what is decoded from it keeps a copy of that.
    pub(super) needs_no_points: AtomicBool,
    /// Bytes of memory that a pass had which was given up for want of more.
    pub(super) wanted: AtomicUsize,
    /// The last bytes of an input whose pass has ended.
    pub(super) tail: Mutex<Option<Tail>>,
    /// Memory for the next pass of an input: all steps of a stream get theirs at once, or nothing.
    pub(super) reserved: Mutex<Option<(Room, usize)>>,
}

/// The last bytes of a stream: where they begin in it, and the memory that they were given.
pub(super) struct Tail {
    pub(super) from: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) _room: Option<Room>,
}

impl PassSlot {
    /// Gives up the passes of the inputs.
    pub(super) fn drop_inputs(&self) {
        for input in &self.inputs {
            // Whoever has one locked decodes with it now, for somebody who holds no pass of ours.
            input.take_if(|_| true);
            *lock(&input.reserved) = None;
            *lock(&input.tail) = None;
        }
    }

    /// The same of those that nobody has used for a while. Of a stream that has no pass itself: it is read from seek
    /// points. True if there were any.
    fn drop_idle_inputs(&self) -> bool {
        let drop_idle = |input: &Arc<Self>| {
            let is_reserved = lock(&input.reserved).take().is_some() || lock(&input.tail).take().is_some();
            input.take_if(|pass| pass.used.elapsed() >= IDLE) || is_reserved
        };
        self.inputs.iter().filter(|input| drop_idle(input)).count() > 0
    }

    /// Drops the pass, if it is such a one and nobody decodes with it now.
    fn take_if(&self, is_such: impl FnOnce(&mut Box<Pass>) -> bool) -> bool {
        let dropped = free(&self.pass).and_then(|mut held| held.take_if(is_such));
        if let Some(pass) = &dropped {
            self.wanted.fetch_max(pass.wanted(), Ordering::Relaxed);
        }
        dropped.is_some()
    }

    /// Takes as much memory for this and for each input as they have wanted; `None` if there is not so much for all
    /// now. An error if there never is.
    pub(super) fn reserve(&self, cache: &PieceCache) -> io::Result<Option<(Option<Room>, usize)>> {
        let wanted = |slot: &Self| slot.wanted.load(Ordering::Relaxed);
        let (own, limit) = (wanted(self), cache.budget().limit());
        let all = self.inputs.iter().map(|input| wanted(input)).chain([own]);
        let (total, largest) = all.fold((0_usize, 0), |(total, largest), one| (total + one, one.max(largest)));
        if total == 0 {
            return Ok(Some((None, 0)));
        }
        if total - largest > limit {
            let what = format!("its steps take {total} bytes of memory together (more {} helps)", Setting::CacheMemory);
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, what));
        }
        let inputs = || self.inputs.iter().filter(|input| wanted(input) > 0);
        let mut grants = Vec::new();
        if total <= limit {
            grants.extend(inputs().map_while(|input| cache.take(wanted(input))));
            grants.extend(cache.take(own));
        }
        if grants.len() == inputs().count() + 1 {
            let room = grants.pop().map(|grant| Room::Granted { _grants: vec![grant] });
            for (input, grant) in inputs().zip(grants) {
                *lock(&input.reserved) = Some((Room::Granted { _grants: vec![grant] }, wanted(input)));
            }
            return Ok(Some((room.filter(|_| own > 0), own)));
        }
        // What is there is not enough.
        drop(grants);
        let Some(room) = Room::without_memory(cache) else { return Ok(None) };
        for input in inputs() {
            *lock(&input.reserved) = Some((Room::Covered, 0));
        }
        Ok(Some((Some(room), 0)))
    }
}

impl Idle for PassSlot {
    fn drop_idle(&self) -> bool {
        if self.is_input.load(Ordering::Relaxed) {
            return false;
        }
        let Some(mut held) = free(&self.pass) else { return false };
        if held.is_none() {
            return self.drop_idle_inputs();
        }
        let dropped = held.take_if(|pass| pass.used.elapsed() >= IDLE);
        if dropped.is_some() {
            self.drop_inputs();
        }
        drop(held);
        dropped.is_some()
    }
}

/// The pass, if nobody has it locked. One that panicked meanwhile has left none.
fn free(pass: &Mutex<Option<Box<Pass>>>) -> Option<MutexGuard<'_, Option<Box<Pass>>>> {
    match pass.try_lock() {
        Ok(held) => Some(held),
        Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A first pass that nobody has read from for so long is given up for one that waits for memory.
const IDLE: Duration = Duration::from_secs(2);

/// A first pass that has come to some place.
pub(super) struct Pass {
    pub(super) indexing: Indexing,
    pub(super) table: Table,
    /// Bytes of memory that the table takes.
    pub(super) table_memory: usize,
    pub(super) crc: crc32fast::Hasher,
    /// All that was decoded, where there are no seek points.
    pub(super) copied: Option<Copied>,
    /// The last bytes that were decoded.
    pub(super) recent: Vec<u8>,
    /// What lies before them, up to some seek point.
    pub(super) before: Option<Arc<DecodedSource>>,
    /// The memory that it was given, in bytes, and that it has asked for.
    pub(super) memory: usize,
    pub(super) asked: usize,
    pub(super) room: Option<Room>,
    /// Nobody can pay for more seek points.
    pub(super) is_poor: bool,
    /// The copy could not be written to its end.
    pub(super) lost_copy: bool,
    /// When the last bytes were decoded or read.
    pub(super) used: Instant,
}

/// Memory of the budget, or the right to do without.
pub(super) enum Room {
    Granted {
        _grants: Vec<Grant>,
    },
    Alone {
        _alone: Alone,
    },
    /// Who is decoded from it has that right, for all its steps.
    Covered,
}

impl Room {
    pub(super) fn granted(grant: Grant) -> Self {
        Self::Granted { _grants: vec![grant] }
    }

    /// The right to do without memory of the budget, if nobody else has it but who is decoded with this.
    fn without_memory(cache: &PieceCache) -> Option<Self> {
        if Held::is_covered() {
            return Some(Self::Covered);
        }
        cache.budget().alone().map(|alone| Self::Alone { _alone: alone })
    }

    /// True if a pass with this has the right to do without memory of the budget now, or is decoded for one that has.
    fn does_without(room: Option<&Self>) -> bool {
        match room {
            Some(Self::Alone { .. }) => true,
            Some(Self::Covered) => Held::is_covered(),
            Some(Self::Granted { .. }) | None => false,
        }
    }
}

impl Pass {
    /// Bytes of memory that it takes now.
    fn weight(&self) -> usize {
        let before = self.before.as_ref().map_or(0, |_| self.table_memory);
        self.recent.capacity() + self.indexing.memory() + self.table_memory + before
    }

    /// Bytes that another pass is to have from the start.
    pub(super) fn wanted(&self) -> usize {
        self.weight().max(self.asked)
    }

    /// Moves the chunks that are finished into the table, which takes `most` bytes of memory at the end of `length`
    /// decoded ones. Where it takes more than its part already, seek points are left out.
    pub(super) fn take_chunks(&mut self, length: u64, most: usize) {
        let known = self.table.chunks.len();
        self.indexing.take_chunks(&mut self.table.chunks);
        self.table_memory += self.table.chunks[known..].iter().map(Table::memory_of).sum::<usize>();
        let part = most as u128 * u128::from(self.indexing.decoded_position()) / u128::from(length.max(1));
        self.indexing.leave_out_points(self.table_memory as u128 > part + FIRST_POINTS.min(most) as u128);
    }

    /// Charges what it takes, beside `more` that it is about to. False if there is not so much: then it has what it
    /// had.
    pub(super) fn is_paid_for(&mut self, more: usize, cache: &PieceCache) -> bool {
        let weight = self.weight() + more;
        if self.room.is_some() && weight <= self.memory || Room::does_without(self.room.as_ref()) {
            return true;
        }
        // A little more than now, so that it is not charged again at once.
        let wanted = weight + weight / 4;
        self.asked = wanted;
        let Some(grant) = cache.take(wanted - self.memory) else {
            let Some(room) = Room::without_memory(cache) else { return false };
            self.room = Some(room);
            return true;
        };
        self.memory = wanted;
        match &mut self.room {
            Some(Room::Granted { _grants: grants }) => grants.push(grant),
            room => *room = Some(Room::Granted { _grants: vec![grant] }),
        }
        true
    }

    /// The same, if it keeps `recent` bytes; false if not even its decoder is paid for. Without more, it does without
    /// further seek points.
    pub(super) fn may_go_on(&mut self, recent: usize, cache: &PieceCache) -> bool {
        let more = recent.saturating_sub(self.recent.capacity());
        self.is_poor = !self.is_paid_for(more, cache);
        !self.is_poor || self.room.is_some() && self.indexing.memory() + self.recent.capacity() <= self.memory
    }
}
