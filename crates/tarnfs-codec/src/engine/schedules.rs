//! Readers, workers and decoders under many schedules: `RUSTFLAGS="--cfg shuttle" cargo test -p tarnfs-codec
//! schedules`. A deadlock, a panic or wrong bytes in any of them ends the test with the schedule that led to it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use shuttle::thread;
use tarnfs_source::{Budget, Cancel, Limits, MemorySource, SharedSource, Slice, Source};

use super::memory_gate::{Expected, MemoryGate};
use super::toy::{Toy, encode, index, sample};
use super::{DecodedSource, PieceCache, Table, Workers};
use crate::PIECE;
use crate::thread_pool::{Job, ThreadPool};

const SCHEDULES: usize = 10_000;

/// Of the steps in one schedule; more is a loop without end.
fn try_all(scenario: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(scenario, SCHEDULES);
}

/// A stream of some pieces, made once for all schedules.
struct Stream {
    decoded: Vec<u8>,
    compressed: SharedSource,
    table: Arc<Table>,
}

impl Stream {
    fn new() -> Arc<Self> {
        let (decoded, compressed) = sample(6 * PIECE, 1);
        // The first pass meets nobody, but takes locks.
        let made = Arc::new(std::sync::Mutex::new(None));
        let (into, of, right) = (Arc::clone(&made), Arc::clone(&compressed), decoded.clone());
        shuttle::check_random(
            move || *into.lock().unwrap() = Some(index(Toy::new(), &of, &right, 2 * PIECE as u64, PIECE)),
            1,
        );
        let table = Arc::new(made.lock().unwrap().take().unwrap());
        Arc::new(Self { decoded, compressed, table })
    }

    fn open(&self, budget: &Budget, threads: usize) -> Arc<DecodedSource> {
        let cache = PieceCache::new(budget.clone());
        let (source, table) = (Arc::clone(&self.compressed), Arc::clone(&self.table));
        DecodedSource::new(Toy::new(), source, table, cache, Workers::new(threads), Limits::default())
    }

    fn check(&self, source: &DecodedSource, offset: usize, length: usize) {
        let mut buffer = vec![0; length];
        source.read_exact_at(&mut buffer, offset as u64).unwrap();
        assert!(buffer == self.decoded[offset..offset + length], "wrong bytes at {offset}");
    }
}

#[test]
fn readers_of_the_same_pieces() {
    let stream = Stream::new();
    try_all(move || {
        let budget = Budget::new(2 << 20);
        let source = stream.open(&budget, 0);
        let readers: Vec<_> = [(0, 2 * PIECE), (PIECE / 2, PIECE), (3 * PIECE, PIECE), (10, 10)]
            .into_iter()
            .map(|(offset, length)| {
                let (stream, source) = (Arc::clone(&stream), Arc::clone(&source));
                thread::spawn(move || stream.check(&source, offset, length))
            })
            .collect();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        drop(source);
        assert_eq!(budget.used(), 0);
    });
}

#[test]
fn readers_and_workers_ahead_of_them() {
    let stream = Stream::new();
    try_all(move || {
        let budget = Budget::new(4 << 20);
        let source = stream.open(&budget, 2);
        let other = {
            let (stream, source) = (Arc::clone(&stream), Arc::clone(&source));
            thread::spawn(move || stream.check(&source, 4 * PIECE + 5, PIECE))
        };
        for step in 0..3 {
            stream.check(&source, step * PIECE, PIECE);
        }
        source.prefetch(0, 6 * PIECE as u64);
        stream.check(&source, 5 * PIECE, 100);
        other.join().unwrap();
        // In the middle of what is decoded ahead.
        drop(source);
    });
}

#[test]
fn decoders_that_have_no_room_beside_each_other() {
    try_all(|| {
        let gate = Arc::new(MemoryGate::new(100));
        let decoders: Vec<_> = [30, 100, 60, 10]
            .into_iter()
            .map(|bytes| {
                let gate = Arc::clone(&gate);
                thread::spawn(move || {
                    let expected = Expected::of(&Arc::default());
                    for _ in 0..2 {
                        let mut taken = gate.enter(0, &expected, 0);
                        taken.holds(bytes);
                        thread::yield_now();
                    }
                })
            })
            .collect();
        decoders.into_iter().for_each(|decoder| decoder.join().unwrap());
    });
}

/// Streams in streams: each but the innermost has a piece of bytes that somebody may read, and behind it, in the same
/// chunk, the compressed bytes of the next one.
struct Nested {
    /// From the outermost to the innermost: what it decodes to, its table, and where in the one around it its
    /// compressed bytes lie.
    streams: Vec<(Vec<u8>, Arc<Table>, Range<u64>)>,
    outermost: SharedSource,
}

impl Nested {
    fn new(depth: usize) -> Arc<Self> {
        let plain = |seed: u8| [vec![seed; PIECE / 2], vec![seed + 1; PIECE / 2]].concat();
        let mut decoded = [plain(200), plain(202)].concat();
        let mut streams = Vec::new();
        loop {
            let compressed = encode(&decoded);
            let length = compressed.len() as u64;
            let source: SharedSource = Arc::new(MemorySource::new(compressed.clone(), "nested.toy"));
            let start = if streams.len() + 1 == depth { 0 } else { PIECE as u64 };
            let made = Arc::new(std::sync::Mutex::new(None));
            let (into, of, right) = (Arc::clone(&made), Arc::clone(&source), decoded.clone());
            shuttle::check_random(
                move || *into.lock().unwrap() = Some(index(Toy::new(), &of, &right, u64::MAX, PIECE)),
                1,
            );
            let table = Arc::new(made.lock().unwrap().take().unwrap());
            assert_eq!(table.chunks.len(), 1);
            streams.push((decoded, table, start..start + length));
            if streams.len() == depth {
                streams.reverse();
                return Arc::new(Self { streams, outermost: source });
            }
            decoded = [plain(10 * streams.len() as u8), compressed].concat();
        }
    }

    /// All of them, where there is room for one decoder.
    fn open(&self, budget: &Budget, workers: usize) -> Vec<Arc<DecodedSource>> {
        let (cache, workers) = (PieceCache::new(budget.clone()), Workers::new(workers));
        let toy = Toy::new();
        toy.memory.store(budget.limit() as u64, Relaxed);
        let mut source = SharedSource::clone(&self.outermost);
        let mut opened = Vec::new();
        for (_, table, place) in &self.streams {
            let part: SharedSource = Arc::new(Slice::new(source, place.start, place.end - place.start));
            assert_eq!(part.depth(), opened.len());
            let (table, cache, workers) = (Arc::clone(table), Arc::clone(&cache), Arc::clone(&workers));
            let decoded = DecodedSource::new(toy, part, table, cache, workers, Limits::default());
            opened.push(Arc::clone(&decoded));
            source = decoded;
        }
        opened
    }

    fn check(&self, opened: &[Arc<DecodedSource>], number: usize, offset: usize) {
        let (decoded, ..) = &self.streams[number];
        let mut buffer = vec![0; 100];
        opened[number].read_exact_at(&mut buffer, offset as u64).unwrap();
        assert!(buffer == decoded[offset..offset + buffer.len()], "wrong bytes at {offset} of stream {number}");
    }
}

/// Each reads 100 bytes of that stream at that offset, while nothing stays in the cache.
fn read_nested(depth: usize, workers: usize, reads: &'static [(usize, usize)]) {
    let nested = Nested::new(depth);
    try_all(move || {
        let budget = Budget::new(1000);
        let opened = nested.open(&budget, workers);
        let readers: Vec<_> = reads
            .iter()
            .map(|&(number, offset)| {
                let (nested, opened) = (Arc::clone(&nested), opened.clone());
                thread::spawn(move || nested.check(&opened, number, offset))
            })
            .collect();
        if workers > 0 {
            opened[depth - 1].prefetch(0, 2 * PIECE as u64);
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        drop(opened);
    });
}

#[test]
fn a_stream_in_a_stream_with_room_for_one_decoder() {
    read_nested(2, 0, &[(0, 10), (1, PIECE + 10), (0, PIECE / 2), (1, 5)]);
}

#[test]
fn streams_in_streams_with_room_for_one_decoder() {
    read_nested(3, 0, &[(2, 10), (0, 10), (1, 10), (2, PIECE + 1), (0, PIECE - 200)]);
}

#[test]
fn streams_in_streams_and_workers_ahead() {
    read_nested(3, 2, &[(2, PIECE + 10), (0, 10), (1, PIECE / 2)]);
}

/// Makes a number of its place, but nothing at each third one.
struct Numbers;

impl Job for Numbers {
    type Input = ();
    type Output = u64;
    type Tools = ();

    fn tools(&self) {}

    fn work(&self, (): &mut (), place: u64, (): ()) -> Option<u64> {
        thread::yield_now();
        (!place.is_multiple_of(3)).then_some(place * 2)
    }
}

#[test]
fn a_walk_and_its_crew() {
    try_all(|| {
        let mut pool = ThreadPool::new(Numbers, "numbers", 2);
        for place in 1..=6 {
            pool.add(place, ());
        }
        for place in [1, 2, 4, 5] {
            pool.drop_before(place);
            let output = pool.take(place, &mut (), &Cancel::default()).unwrap();
            assert!(output.is_none_or(|output| output == place * 2));
        }
        // With something still to do.
        drop(pool);
    });
}
