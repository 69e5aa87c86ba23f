use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use tarnfs_source::{Budget, Grant};

use super::chunks::RecentChunks;
use super::lock;
use super::memory_gate::MemoryGate;
use super::missed::Waiting;
use super::paused::PausedDecoders;
use super::pool::{Piece, Pool};
use crate::PIECE;
use crate::sync::Mutex;

/// The decoded pieces of all streams of a process, and their decoders, paused or at work.
///
/// Pieces use at most half of the budget, decoders a quarter. Eviction is S3-FIFO (Yang et al., SOSP'23) without its
/// ghost queue: a piece comes into a probation queue and moves to the main queue only if it was used again, so a
/// pass over a large stream goes through the probation queue and leaves the main one alone. What a sequential reader
/// leaves behind goes at once: memory is spent on what is wanted again, and stays warm.
#[derive(Debug)]
pub struct PieceCache {
    budget: Budget,
    /// Bytes that pieces may use together.
    share: usize,
    pieces: Mutex<Pieces>,
    next_stream: AtomicU64,
    pub(super) paused: PausedDecoders,
    pub(super) chunks: Arc<RecentChunks>,
    pub(super) pool: Arc<Pool>,
    /// For decoders at work: they take no grants, since they could not do with less.
    pub(super) gate: MemoryGate,
    /// What random reads have decoded, and is to be kept.
    pub(super) missed: Waiting,
    idle: Mutex<Vec<Weak<dyn Idle>>>,
}

/// A stream, and where in it the piece starts.
type Key = (u64, u64);

#[derive(Debug, Default)]
struct Pieces {
    /// Each entry is in one of the two queues.
    by_start: BTreeMap<Key, Entry>,
    /// With the number of the entry: what was dropped out of turn leaves its place in the queue behind.
    probation: VecDeque<(Key, u64)>,
    main: VecDeque<(Key, u64)>,
    next_number: u64,
    probation_bytes: usize,
    main_bytes: usize,
    /// How often somebody has asked for a piece, or brought one.
    uses: u64,
}

/// Bytes of memory by who holds them at this moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheMemory {
    /// Decoded pieces.
    pub pieces: usize,
    /// Memory for pieces that holds none.
    pub free_pieces: usize,
    /// Decoders that stand where somebody may read on.
    pub paused_decoders: usize,
    /// Seek points, with the checksums behind them.
    pub seek_points: usize,
    /// Decoders at work. The budget does not count them: they could not do with less.
    pub working_decoders: usize,
}

#[derive(Debug)]
struct Entry {
    piece: Arc<Piece>,
    grant: Grant,
    number: u64,
    /// Uses since it came in, or since the main queue last passed it by; at most [`MOST_USES`].
    uses: u8,
    main: bool,
}

const MOST_USES: u8 = 3;

/// Uses after which a piece leaves probation for the main queue. One more read of the same small file is no proof.
const PROVEN_USES: u8 = 2;

/// Bytes charged for a piece beside its data: the map's and the queue's entries, the allocation's head.
const OVERHEAD: usize = 192;

/// What holds memory of the budget that it can do without for some time.
pub(super) trait Idle: Send + Sync {
    /// Gives its memory back, unless it was used a moment ago. True if it did.
    fn drop_idle(&self) -> bool;
}

impl PieceCache {
    /// A cache that draws on `budget`.
    pub fn new(budget: Budget) -> Arc<Self> {
        let share = budget.limit() / 2;
        let paused = PausedDecoders::new(budget.clone());
        let pool = Pool::new(&budget);
        let chunks = RecentChunks::new(budget.clone());
        let gate = MemoryGate::new(share / 2);
        let (pieces, next_stream) = (Mutex::default(), AtomicU64::new(0));
        let missed = Waiting::default();
        let idle = Mutex::default();
        Arc::new(Self { budget, share, pieces, next_stream, paused, chunks, pool, gate, missed, idle })
    }

    /// `idle` is asked when somebody waits for memory ([`PieceCache::drop_idle`]).
    pub(super) fn may_drop(&self, idle: Weak<dyn Idle>) {
        let mut all = lock(&self.idle);
        // Each time their number has doubled those that are gone are taken out.
        if all.len() == all.capacity() {
            all.retain(|idle| idle.strong_count() > 0);
        }
        all.push(idle);
    }

    /// Has one of those that do nothing with their memory give it back. False if there is none.
    pub(super) fn drop_idle(&self) -> bool {
        let all: Vec<_> = lock(&self.idle).iter().filter_map(Weak::upgrade).collect();
        all.into_iter().any(|idle| idle.drop_idle())
    }

    /// The budget that it draws on.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Takes `bytes` of the budget for what stays in memory as long as the grant is held. Pieces and paused decoders
    /// are dropped for it, if that helps.
    pub fn take(&self, bytes: usize) -> Option<Grant> {
        let grant = self.budget.take(bytes);
        let held = self.memory();
        let unused = self.budget.limit().saturating_sub(self.budget.used());
        if grant.is_some() || unused.saturating_add(held.pieces).saturating_add(held.paused_decoders) < bytes {
            return grant;
        }
        let evict = || lock(&self.pieces).evict(self.share);
        loop {
            match self.budget.take(bytes) {
                None if evict() || self.paused.drop_oldest() => {}
                grant => return grant,
            }
        }
    }

    /// Bytes that pieces may use.
    pub(super) fn share(&self) -> usize {
        self.share
    }

    /// What it holds.
    pub fn memory(&self) -> CacheMemory {
        let pieces = lock(&self.pieces);
        let of_pieces = pieces.probation_bytes + pieces.main_bytes;
        drop(pieces);
        CacheMemory {
            pieces: of_pieces,
            free_pieces: self.pool.memory(),
            paused_decoders: self.paused.memory(),
            seek_points: self.chunks.memory(),
            working_decoders: self.gate.memory(),
        }
    }

    /// A number that grows with each use. If it is the same after a while, nobody reads.
    pub fn uses(&self) -> u64 {
        lock(&self.pieces).uses
    }

    /// Gives up all that it keeps for later: pieces, paused decoders, and memory for both.
    pub fn give_back(&self) {
        let mut pieces = lock(&self.pieces);
        let (next_number, uses) = (pieces.next_number, pieces.uses);
        let dropped = std::mem::replace(&mut *pieces, Pieces { next_number, uses, ..Pieces::default() });
        drop(pieces);
        drop(dropped);
        self.paused.clear();
        self.chunks.clear();
        self.pool.clear();
        crate::zstd::give_back();
    }

    /// A number for a stream that has none yet.
    pub(super) fn new_stream(&self) -> u64 {
        self.next_stream.fetch_add(1, Ordering::Relaxed)
    }

    /// The piece that holds byte `offset` of the stream, with where it starts. `counts`: as a use.
    pub(super) fn get(&self, stream: u64, offset: u64, counts: bool) -> Option<(u64, Arc<Piece>)> {
        let mut pieces = lock(&self.pieces);
        pieces.uses += 1;
        let (&(_, start), entry) = pieces.by_start.range_mut((stream, 0)..=(stream, offset)).next_back()?;
        if offset - start >= entry.piece.len() as u64 {
            return None;
        }
        entry.uses = (entry.uses + u8::from(counts)).min(MOST_USES);
        Some((start, Arc::clone(&entry.piece)))
    }

    /// The end of the piece that holds byte `offset` of the stream, if it is here. Does not count as a use.
    pub(super) fn end_of_piece_at(&self, stream: u64, offset: u64) -> Option<u64> {
        let pieces = lock(&self.pieces);
        let (&(_, start), entry) = pieces.by_start.range((stream, 0)..=(stream, offset)).next_back()?;
        Some(start + entry.piece.len() as u64).filter(|&end| end > offset)
    }

    /// Keeps a piece if there is room or room can be made; it may be refused.
    pub(super) fn insert(&self, stream: u64, start: u64, piece: &Arc<Piece>) {
        let bytes = piece.len() + OVERHEAD;
        let mut pieces = lock(&self.pieces);
        pieces.uses += 1;
        if bytes > self.share || pieces.by_start.contains_key(&(stream, start)) {
            return;
        }
        while pieces.probation_bytes + pieces.main_bytes + bytes > self.share {
            if !pieces.evict(self.share) {
                break;
            }
        }
        let grant = loop {
            match self.budget.take(bytes) {
                Some(grant) => break grant,
                None if pieces.evict(self.share) => {}
                None => return,
            }
        };
        let number = pieces.next_number;
        pieces.next_number += 1;
        let entry = Entry { piece: Arc::clone(piece), grant, number, uses: 0, main: false };
        pieces.by_start.insert((stream, start), entry);
        pieces.probation.push_back(((stream, start), number));
        pieces.probation_bytes += bytes;
    }

    /// Bytes of the budget for what is kept beside pieces, in place of pieces if need be.
    pub(super) fn make_room(&self, bytes: usize) -> Option<Grant> {
        let mut pieces = lock(&self.pieces);
        loop {
            match self.budget.take(bytes) {
                None if bytes <= self.share && pieces.evict(self.share) => {}
                taken => return taken,
            }
        }
    }

    /// Drops the pieces that end inside `range` of the stream and that nobody has used but sequential readers.
    pub(super) fn leave(&self, stream: u64, range: Range<u64>) {
        let mut pieces = lock(&self.pieces);
        let pieces = &mut *pieces;
        let unused: Vec<Key> = pieces
            .by_start
            .range((stream, range.start.saturating_sub(PIECE as u64))..(stream, range.end))
            .filter(|((_, start), entry)| {
                entry.uses == 0 && !entry.main && start + entry.piece.len() as u64 <= range.end
            })
            .map(|(&key, _)| key)
            .collect();
        for key in unused {
            if let Some(entry) = pieces.by_start.remove(&key) {
                pieces.probation_bytes -= entry.grant.bytes();
            }
        }
        if pieces.probation.len() > 2 * pieces.by_start.len() + 64 {
            let by_start = &pieces.by_start;
            pieces.probation.retain(|(key, number)| by_start.get(key).is_some_and(|entry| entry.number == *number));
        }
    }

    /// Drops the pieces at these places of the stream that nobody has used but sequential readers.
    pub(super) fn leave_each(&self, stream: u64, starts: impl Iterator<Item = u64>) {
        let mut pieces = lock(&self.pieces);
        let pieces = &mut *pieces;
        for start in starts {
            let key = (stream, start);
            if pieces.by_start.get(&key).is_some_and(|entry| entry.uses == 0 && !entry.main)
                && let Some(entry) = pieces.by_start.remove(&key)
            {
                pieces.probation_bytes -= entry.grant.bytes();
            }
        }
        if pieces.probation.len() > 2 * pieces.by_start.len() + 64 {
            let by_start = &pieces.by_start;
            pieces.probation.retain(|(key, number)| by_start.get(key).is_some_and(|entry| entry.number == *number));
        }
    }

    /// Drops everything of a stream that is no longer read. The lock is held for a moment where there is nothing.
    pub(super) fn forget(&self, stream: u64) {
        self.paused.forget(stream);
        let forgotten = {
            let mut pieces = lock(&self.pieces);
            let pieces = &mut *pieces;
            let mut forgotten = pieces.by_start.split_off(&(stream, 0));
            if let Some(next) = stream.checked_add(1) {
                pieces.by_start.append(&mut forgotten.split_off(&(next, 0)));
            }
            if !forgotten.is_empty() {
                pieces.probation.retain(|((of, _), _)| *of != stream);
                pieces.main.retain(|((of, _), _)| *of != stream);
            }
            for entry in forgotten.values() {
                let queue = if entry.main { &mut pieces.main_bytes } else { &mut pieces.probation_bytes };
                *queue -= entry.grant.bytes();
            }
            forgotten
        };
        drop(forgotten);
        if lock(&self.pieces).by_start.is_empty() {
            self.pool.clear();
        }
    }
}

impl Pieces {
    /// Drops one piece; false if there is none.
    fn evict(&mut self, share: usize) -> bool {
        loop {
            let from_main = self.probation_bytes <= share / 2 && !self.main.is_empty() || self.probation.is_empty();
            let queue = if from_main { &mut self.main } else { &mut self.probation };
            let Some((key, number)) = queue.pop_front() else { return false };
            let Some(entry) = self.by_start.get_mut(&key).filter(|entry| entry.number == number) else { continue };
            let bytes = entry.grant.bytes();
            if from_main && entry.uses > 0 {
                entry.uses -= 1;
                self.main.push_back((key, number));
                continue;
            }
            if !from_main && entry.uses >= PROVEN_USES {
                entry.main = true;
                entry.uses = 0;
                self.main.push_back((key, number));
                self.probation_bytes -= bytes;
                self.main_bytes += bytes;
                continue;
            }
            *(if from_main { &mut self.main_bytes } else { &mut self.probation_bytes }) -= bytes;
            self.by_start.remove(&key);
            return true;
        }
    }
}
