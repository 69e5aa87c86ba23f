//! What random reads had to decode, for the thread that keeps streams decoded.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, TryLockError, Weak};

use tarnfs_source::{Budget, Grant};

use super::keeper::Keeper;
use super::lock;
use super::pool::Piece;
use super::workers::Workers;
use crate::PIECE;
use crate::sync::Mutex;

/// What random reads of a stream did not find and had to decode: so it need not be decoded a second time to be kept,
/// and the rest of its chunks comes next.
///
/// Readers never wait here: the other side is a thread that may hold the lock and not run. What they cannot put here at
/// once is not kept.
#[derive(Debug)]
pub(super) struct Missed {
    budget: Budget,
    waiting: Waiting,
    /// Somebody keeps it.
    is_wanted: AtomicBool,
    keeper: Mutex<Weak<Mutex<Keeper>>>,
    /// A worker will write what waits.
    has_job: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Where the chunks start; the one read last is last.
    chunks: VecDeque<u64>,
    pieces: VecDeque<MissedPiece>,
}

/// A piece that has its checksum in the table.
#[derive(Debug)]
pub(super) struct MissedPiece {
    pub(super) start: u64,
    pub(super) checksum: u32,
    pub(super) piece: Arc<Piece>,
    _memory: Grant,
    _share: Share,
}

/// Bytes of pieces that wait to be kept, of all streams of one cache.
#[derive(Debug, Clone, Default)]
pub(super) struct Waiting(Arc<AtomicUsize>);

/// Of these, those of one piece; they are taken off when dropped.
#[derive(Debug)]
struct Share(Waiting, usize);

impl Drop for Share {
    fn drop(&mut self) {
        self.0.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Waiting {
    /// `None` where that would be more than `most` together.
    fn add(&self, bytes: usize, most: usize) -> Option<Share> {
        let add = |waiting: usize| waiting.checked_add(bytes).filter(|&sum| sum <= most);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Share(self.clone(), bytes))
    }
}

/// More are forgotten.
const MOST_CHUNKS: usize = 64;
const MOST_PIECES: usize = (8 << 20) / PIECE;

/// Of the budget, what may wait of all streams together: who keeps it needs memory, too, and so do readers.
const SHARE: usize = 16;

impl Missed {
    pub(super) fn new(budget: Budget, waiting: Waiting) -> Self {
        Self {
            budget,
            waiting,
            is_wanted: AtomicBool::new(false),
            keeper: Mutex::new(Weak::new()),
            has_job: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Somebody will take what is put here and write it with this keeper, or no longer does.
    pub(super) fn set_wanted(&self, keeper: Option<&Arc<Mutex<Keeper>>>) {
        *lock(&self.keeper) = keeper.map_or_else(Weak::new, Arc::downgrade);
        self.is_wanted.store(keeper.is_some(), Ordering::Relaxed);
        if keeper.is_none() {
            self.clear();
        }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// A random read needs the chunk that starts here.
    pub(super) fn put_chunk(&self, start: u64) {
        let Ok(mut state) = self.state.try_lock() else { return };
        state.chunks.retain(|&one| one != start);
        if state.chunks.len() >= MOST_CHUNKS {
            state.chunks.pop_front();
        }
        state.chunks.push_back(start);
    }

    /// A random read has decoded this piece. True if so much waits that somebody should write it.
    pub(super) fn put_piece(&self, start: u64, checksum: u32, piece: &Arc<Piece>) -> bool {
        let Ok(mut state) = self.state.try_lock() else { return false };
        if state.pieces.len() < MOST_PIECES
            && let Some(share) = self.waiting.add(piece.len(), self.budget.limit() / SHARE)
            && let Some(memory) = self.budget.take(piece.len())
        {
            let piece = Arc::clone(piece);
            state.pieces.push_back(MissedPiece { start, checksum, piece, _memory: memory, _share: share });
            return state.pieces.len() >= MOST_PIECES / 2;
        }
        !state.pieces.is_empty()
    }

    /// Has a worker write what waits. On a busy machine the thread that keeps `stream` does not come to it, and what
    /// does not fit here would be decoded again by the next reader.
    pub(super) fn keep_soon(self: &Arc<Self>, workers: &Workers, stream: u64) {
        if self.has_job.swap(true, Ordering::Relaxed) {
            return;
        }
        let missed = Arc::clone(self);
        if !workers.submit(move || missed.keep(stream)) {
            self.has_job.store(false, Ordering::Relaxed);
        }
    }

    /// Writes what waits, unless somebody is at it.
    fn keep(&self, stream: u64) {
        // What comes from now on may need another one.
        self.has_job.store(false, Ordering::Relaxed);
        let keeper = lock(&self.keeper).upgrade();
        let Some(keeper) = keeper else { return };
        let mut keeper = match keeper.try_lock() {
            Ok(keeper) => keeper,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if let Err(error) = keeper.add_waiting(stream, self, &self.budget) {
            log::debug!("what random reads have decoded is not kept: {error}");
        }
    }

    /// The start of the chunk that should come next, and whether its readers have gone on to another one.
    pub(super) fn take_chunk(&self) -> Option<(u64, bool)> {
        let chunks = &mut lock(&self.state).chunks;
        let last = chunks.pop_back()?;
        let Some(before) = chunks.pop_back() else { return Some((last, false)) };
        chunks.push_back(last);
        Some((before, true))
    }

    pub(super) fn take_piece(&self) -> Option<MissedPiece> {
        lock(&self.state).pieces.pop_front()
    }

    /// Forgets all of it.
    pub(super) fn clear(&self) {
        let dropped = std::mem::take(&mut *lock(&self.state));
        drop(dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::pool::Pool;

    #[test]
    fn pieces_of_all_streams_together_leave_memory_to_others() {
        let budget = Budget::new(SHARE * 10 * PIECE);
        let (pool, waiting) = (Pool::new(&budget), Waiting::default());
        let streams: Vec<_> = (0..5).map(|_| Missed::new(budget.clone(), waiting.clone())).collect();
        let piece = Arc::new(pool.piece(PIECE));
        let before = budget.used();
        for start in 0..4 {
            for stream in &streams {
                stream.put_piece(start, 0, &piece);
            }
        }
        assert_eq!(budget.used() - before, 10 * PIECE);
        streams.iter().for_each(Missed::clear);
        assert_eq!(budget.used(), before);
        streams[0].put_piece(0, 0, &piece);
        assert!(streams[0].take_piece().is_some());
    }
}
