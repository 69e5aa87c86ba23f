//! Blocks that stand for themselves: no seek points, no order. Each is decoded at once, by one thread for all who wait
//! for it, and kept in the cache of pieces as one piece.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

use tarnfs_source::SharedSource;
use xxhash_rust::xxh3::xxh3_64;

use super::answered::Answered;
use super::cache::PieceCache;
use super::fill::note_read;
use super::lock;
use super::memory_gate::{Expected, GatePass};
use super::pool::Piece;
use super::sequence::Sequences;
use super::workers::Workers;
use crate::sync::{Condvar, Mutex};
use crate::{BlockCoder, PIECE};

/// Where a block is stored, and what comes of it.
#[derive(Debug, Clone, Copy)]
pub struct BlockPlace {
    /// Byte of the source at which it begins.
    pub offset: u64,
    /// Bytes that it takes there.
    pub stored: usize,
    /// The most bytes that may come of it.
    pub most: usize,
    /// What decodes it.
    pub coder: &'static dyn BlockCoder,
}

impl BlockPlace {
    /// What it is known by in the cache. Two different ones at one offset, as a lying archive may have them, are two.
    fn key(&self) -> u64 {
        let mut bytes = [0; 24];
        let numbers = [self.offset, self.stored as u64, self.most as u64];
        for (part, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            part.copy_from_slice(&number.to_le_bytes());
        }
        // A block may be as long as half of all numbers, and nobody looks behind the last one.
        (xxh3_64(&bytes) ^ xxh3_64(self.coder.name().as_bytes())) >> 1
    }
}

/// The blocks of one source.
pub struct Blocks {
    inner: Arc<Inner>,
}

struct Inner {
    source: SharedSource,
    cache: Arc<PieceCache>,
    workers: Arc<Workers>,
    /// Our number in the cache.
    stream: u64,
    /// How many decoders a read of the source goes through.
    depth: usize,
    expected: Expected,
    at_work: Mutex<AtWork>,
    /// A block is decoded, or could not be.
    decoded: Condvar,
    /// Those that could not be decoded last, and why.
    failed: Mutex<VecDeque<(u64, String)>>,
    closed: AtomicBool,
}

/// So many of these are known: who looks for what can be read of a file asks for each many times.
const MOST_FAILED: usize = 16;

#[derive(Debug, Default)]
struct AtWork {
    /// Those that a thread decodes now.
    in_flight: HashMap<u64, Arc<Slot>>,
    /// Those that are to be decoded ahead and no worker has begun with.
    queued: HashSet<u64>,
}

/// What becomes of a block, for those who wait: the cache need not keep it. `None` if it could not be decoded.
type Slot = OnceLock<Option<Arc<Piece>>>;

/// A block that this thread decodes, until it is dropped, also by a panic.
struct Turn<'a> {
    inner: &'a Inner,
    key: u64,
    piece: Option<Arc<Piece>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut at_work = lock(&self.inner.at_work);
        if let Some(slot) = at_work.in_flight.remove(&self.key) {
            slot.get_or_init(|| self.piece.take());
        }
        self.inner.decoded.notify_all();
    }
}

/// Who reads a file that is cut into blocks, and goes forward in it.
#[derive(Debug, Default)]
pub struct FileReads(Mutex<Sequences>);

impl FileReads {
    /// Takes note of a read in a file of `length` bytes. Says what of the file to decode ahead, at most `most_ahead`
    /// bytes, and what its reader has left behind.
    pub fn note(&self, read: &Range<u64>, length: u64, most_ahead: u64) -> (Range<u64>, Range<u64>) {
        let advice = lock(&self.0).note(read, length, most_ahead);
        (advice.ahead, advice.behind)
    }
}

impl Blocks {
    /// Blocks that are stored in `source`.
    pub fn new(source: SharedSource, cache: Arc<PieceCache>, workers: Arc<Workers>) -> Self {
        let (source, answers) = Answered::around(source);
        let inner = Inner {
            stream: cache.new_stream(),
            depth: source.depth(),
            expected: Expected::of(&answers),
            source,
            cache,
            workers,
            at_work: Mutex::default(),
            decoded: Condvar::new(),
            failed: Mutex::default(),
            closed: AtomicBool::new(false),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Fills `buffer` from byte `skip` of the block on. `InvalidData` where the block is damaged, or shorter than that.
    pub fn read(&self, place: &BlockPlace, skip: u64, buffer: &mut [u8]) -> io::Result<()> {
        note_read();
        let piece = self.inner.piece(place)?;
        let from = usize::try_from(skip).ok().and_then(|skip| piece.get(skip..)?.get(..buffer.len()));
        let Some(from) = from else {
            let end = skip.saturating_add(buffer.len() as u64);
            let what = format!("only {} bytes come of it, its file needs {end}: it is damaged", piece.len());
            return Err(self.inner.error(place, io::ErrorKind::InvalidData, &what));
        };
        buffer.copy_from_slice(from);
        Ok(())
    }

    /// True if the block is decoded already.
    pub fn is_ready(&self, place: &BlockPlace) -> bool {
        self.inner.is_cached(place.key())
    }

    /// Has the workers decode `places`, each as a job of its own. Never waits.
    pub fn ahead(&self, places: impl Iterator<Item = BlockPlace>) {
        for place in places {
            let key = place.key();
            if self.inner.is_cached(key) || self.inner.why_failed(key).is_some() {
                continue;
            }
            {
                let mut at_work = lock(&self.inner.at_work);
                if at_work.in_flight.contains_key(&key) || !at_work.queued.insert(key) {
                    continue;
                }
            }
            let inner = Arc::downgrade(&self.inner);
            let accepted = self.inner.workers.submit(move || {
                let Some(inner) = inner.upgrade() else { return };
                let was_wanted = lock(&inner.at_work).queued.remove(&key);
                if was_wanted
                    && !inner.closed.load(Ordering::Relaxed)
                    && !inner.is_cached(key)
                    && let Some(pass) = inner.cache.gate.enter_ahead(inner.depth, &inner.expected, u64::MAX)
                    && !inner.is_cached(key)
                {
                    // What is wrong with it is told to whoever reads it.
                    let _ = inner.piece_unless_in_flight(&place, pass);
                }
            });
            if !accepted {
                lock(&self.inner.at_work).queued.remove(&key);
                return;
            }
        }
    }

    /// Bytes that may be decoded ahead: enough for all workers, and little enough that the cache still has them when
    /// their reader comes.
    pub fn most_ahead(&self) -> u64 {
        const PER_WORKER: u64 = 4 << 20;
        let busy = (self.inner.workers.threads() as u64).saturating_mul(PER_WORKER);
        busy.min((self.inner.cache.share() / 2) as u64)
    }

    /// Says that a reader who goes forward is behind these.
    pub fn leave(&self, places: impl Iterator<Item = BlockPlace>) {
        self.inner.cache.leave_each(self.inner.stream, places.map(|place| place.key()));
    }
}

impl Inner {
    fn is_cached(&self, key: u64) -> bool {
        self.cached(key, false).is_some()
    }

    fn cached(&self, key: u64, counts: bool) -> Option<Arc<Piece>> {
        self.cache.get(self.stream, key, counts).filter(|(start, _)| *start == key).map(|(_, piece)| piece)
    }

    /// The block, decoded by this thread or another.
    fn piece(&self, place: &BlockPlace) -> io::Result<Arc<Piece>> {
        let key = place.key();
        loop {
            if let Some(piece) = self.cached(key, true).or_else(|| self.wait(key)) {
                return Ok(piece);
            }
            if let Some(what) = self.why_failed(key) {
                return Err(self.error(place, io::ErrorKind::InvalidData, &what));
            }
            // Before others can wait for this thread: who holds a pass of a deeper source may be among them.
            let pass = self.cache.gate.enter(self.depth, &self.expected, u64::MAX);
            if let Some(piece) = self.piece_unless_in_flight(place, pass)? {
                return Ok(piece);
            }
        }
    }

    /// Why the block of that key cannot be decoded, if that is known.
    fn why_failed(&self, key: u64) -> Option<String> {
        lock(&self.failed).iter().find(|(failed, _)| *failed == key).map(|(_, what)| what.clone())
    }

    /// Keeps that the block cannot be decoded, if that is so of its bytes whoever asks.
    fn keep_failed(&self, place: &BlockPlace, error: &io::Error) {
        if error.kind() == io::ErrorKind::InvalidData {
            let mut failed = lock(&self.failed);
            failed.truncate(MOST_FAILED - 1);
            failed.push_front((place.key(), error.to_string()));
        }
    }

    /// Waits while another thread decodes the block. `None` if none does, or it failed: then the caller finds out why.
    ///
    /// The caller holds no lock, and no pass but of deeper sources.
    fn wait(&self, key: u64) -> Option<Arc<Piece>> {
        let mut at_work = lock(&self.at_work);
        // Nobody has to wait for what a worker would do later.
        at_work.queued.remove(&key);
        let slot = Arc::clone(at_work.in_flight.get(&key)?);
        loop {
            if let Some(piece) = slot.get() {
                return piece.clone();
            }
            at_work = self.decoded.wait(at_work).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Decodes the block; `None` if another thread does.
    fn piece_unless_in_flight(&self, place: &BlockPlace, mut pass: GatePass<'_>) -> io::Result<Option<Arc<Piece>>> {
        let key = place.key();
        let mut turn = {
            let mut at_work = lock(&self.at_work);
            if at_work.in_flight.contains_key(&key) {
                return Ok(None);
            }
            // Under the lock: whoever decoded it put it there before.
            if let Some(piece) = self.cached(key, true) {
                return Ok(Some(piece));
            }
            at_work.in_flight.insert(key, Arc::default());
            Turn { inner: self, key, piece: None }
        };
        pass.holds(place.stored + place.most + place.coder.memory(place.most));
        let piece = Arc::new(self.decode(place)?);
        self.cache.insert(self.stream, key, &piece);
        turn.piece = Some(Arc::clone(&piece));
        Ok(Some(piece))
    }

    fn decode(&self, place: &BlockPlace) -> io::Result<Piece> {
        let wrong = |error: io::Error| self.error(place, error.kind(), &error.to_string());
        // Nearly all are shorter than a piece, whose memory is at hand.
        let mut stored = self.cache.pool.piece(place.stored.max(PIECE));
        let stored = stored.get_mut(..place.stored).unwrap_or_default();
        self.source.read_exact_at(stored, place.offset).map_err(wrong)?;
        let mut decoded = self.cache.pool.piece(place.most);
        let length = place.coder.decode(stored, &mut decoded);
        let length = length.inspect_err(|error| self.keep_failed(place, error)).map_err(wrong)?;
        if length == decoded.len() {
            return Ok(decoded);
        }
        let mut exact = self.cache.pool.piece(length);
        exact.copy_from_slice(decoded.get(..length).unwrap_or_default());
        Ok(exact)
    }

    fn error(&self, place: &BlockPlace, kind: io::ErrorKind, what: &str) -> io::Error {
        let (offset, stored) = (place.offset, place.stored);
        io::Error::new(
            kind,
            format!("the block of {stored} bytes at byte {offset} of {}: {what}", self.source.describe()),
        )
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        self.inner.closed.store(true, Ordering::Relaxed);
        self.inner.cache.forget(self.inner.stream);
    }
}

impl fmt::Debug for Blocks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Blocks").field("source", &self.inner.source).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use tarnfs_source::{Budget, MemorySource};

    use super::*;

    /// Each byte becomes two; a 9 cannot be decoded. Says how often it was asked.
    #[derive(Debug)]
    struct Doubling(AtomicUsize);

    impl BlockCoder for Doubling {
        fn name(&self) -> &'static str {
            "doubling"
        }

        fn decode(&self, stored: &[u8], decoded: &mut [u8]) -> io::Result<usize> {
            self.0.fetch_add(1, Ordering::Relaxed);
            thread::yield_now();
            if stored.contains(&9) || stored.len() * 2 > decoded.len() {
                return Err(io::ErrorKind::InvalidData.into());
            }
            for (to, from) in decoded.chunks_exact_mut(2).zip(stored) {
                to.fill(*from);
            }
            Ok(stored.len() * 2)
        }

        fn memory(&self, _: usize) -> usize {
            0
        }
    }

    fn blocks(budget: usize, workers: usize) -> (Blocks, &'static Doubling) {
        let source = Arc::new(MemorySource::new(vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10], "numbers"));
        let cache = PieceCache::new(Budget::new(budget));
        let coder: &'static Doubling = Box::leak(Box::new(Doubling(AtomicUsize::new(0))));
        (Blocks::new(source, cache, Workers::new(workers)), coder)
    }

    #[test]
    fn each_block_is_decoded_once_for_all_who_read_it() {
        let (blocks, coder) = blocks(1 << 20, 2);
        let place = |offset, stored| BlockPlace { offset, stored, most: 8, coder };
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut found = [0; 3];
                    blocks.read(&place(0, 4), 1, &mut found).unwrap();
                    assert_eq!(found, [1, 2, 2]);
                });
            }
        });
        assert_eq!(coder.0.load(Ordering::Relaxed), 1);
        assert!(blocks.is_ready(&place(0, 4)) && !blocks.is_ready(&place(0, 3)) && !blocks.is_ready(&place(1, 4)));
        // Who waited for it while it was decoded may not count as a use.
        for _ in 0..2 {
            blocks.read(&place(0, 4), 1, &mut [0; 3]).unwrap();
        }
        blocks.leave([place(0, 4)].into_iter());
        assert!(blocks.is_ready(&place(0, 4)), "who has used it may do so again");
    }

    #[test]
    fn without_memory_for_a_cache_everyone_is_served_all_the_same() {
        let (blocks, coder) = blocks(0, 0);
        thread::scope(|scope| {
            for offset in [0, 0, 0, 4, 4, 4] {
                let blocks = &blocks;
                scope.spawn(move || {
                    let mut found = [0; 2];
                    blocks.read(&BlockPlace { offset, stored: 4, most: 8, coder }, 6, &mut found).unwrap();
                    assert_eq!(found, [offset as u8 + 4; 2]);
                });
            }
        });
        let at_work = lock(&blocks.inner.at_work);
        assert!(at_work.in_flight.is_empty());
    }

    #[test]
    fn a_block_that_is_damaged_or_too_short_is_an_error_that_says_where() {
        let (blocks, coder) = blocks(1 << 20, 0);
        let place = |offset, stored, most| BlockPlace { offset, stored, most, coder };
        let error = |place: BlockPlace, skip| blocks.read(&place, skip, &mut [0; 2]).unwrap_err().to_string();
        assert!(error(place(7, 3, 8), 0).contains("of 3 bytes at byte 7 of numbers"));
        assert!(error(place(0, 4, 10), 7).contains("only 8 bytes come of it"));
        assert!(error(place(8, 4, 8), 0).contains("at byte 8"), "behind the end");
        assert!(error(place(0, 4, 8), u64::MAX).contains("only 8 bytes"));
        // What cannot be decoded is tried once, as long as not too many others are.
        let tried = coder.0.load(Ordering::Relaxed);
        for _ in 0..3 {
            assert!(error(place(7, 3, 8), 0).contains("of 3 bytes at byte 7 of numbers"));
        }
        assert_eq!(coder.0.load(Ordering::Relaxed), tried);
        for most in 0..100 {
            error(place(6, 3, 8 + most), 0);
            assert!(lock(&blocks.inner.failed).len() <= MOST_FAILED);
        }
        error(place(7, 3, 8), 0);
        assert_eq!(coder.0.load(Ordering::Relaxed), tried + 101);
    }

    #[test]
    fn what_is_decoded_ahead_is_there_when_its_reader_comes() {
        let (blocks, coder) = blocks(1 << 20, 2);
        // How much memory one takes is known once there was one.
        blocks.read(&BlockPlace { offset: 6, stored: 2, most: 4, coder }, 0, &mut [0]).unwrap();
        let places = [0, 2, 4].map(|offset| BlockPlace { offset, stored: 2, most: 4, coder });
        blocks.ahead(places.into_iter());
        while !places.iter().all(|place| blocks.is_ready(place)) {
            thread::yield_now();
        }
        assert_eq!(coder.0.load(Ordering::Relaxed), 4);
        blocks.leave(places.into_iter());
        assert!(!places.iter().any(|place| blocks.is_ready(place)), "nobody has read them");
    }
}
