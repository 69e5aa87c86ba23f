//! Readers, workers and decoders under many schedules: `RUSTFLAGS="--cfg shuttle" cargo test -p tarnfs-codec schedules`. A
//! deadlock, a panic or wrong bytes in any of them ends the test with the schedule that led to it.

use std::sync::Arc;

use shuttle::thread;
use tarnfs_source::{Budget, Cancel, Limits, SharedSource, Source};

use super::room::Room;
use super::toy::{Toy, index, sample};
use super::{DecodedSource, PieceCache, Table, Workers};
use crate::PIECE;
use crate::crew::{Crew, Trade};

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
        let room = Arc::new(Room::new(100));
        let decoders: Vec<_> = [30, 100, 60, 10]
            .into_iter()
            .map(|bytes| {
                let room = Arc::clone(&room);
                thread::spawn(move || {
                    let expected = room.expected();
                    for _ in 0..2 {
                        let mut taken = room.enter(&expected);
                        taken.holds(bytes);
                        thread::yield_now();
                    }
                })
            })
            .collect();
        decoders.into_iter().for_each(|decoder| decoder.join().unwrap());
    });
}

/// Makes a number of its place, but nothing at each third one.
struct Numbers;

impl Trade for Numbers {
    type Task = ();
    type Product = u64;
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
        let mut crew = Crew::new(Numbers, "numbers", 2);
        for place in 1..=6 {
            crew.add(place, ());
        }
        for place in [1, 2, 4, 5] {
            crew.drop_before(place);
            let product = crew.take(place, &mut (), &Cancel::default()).unwrap();
            assert!(product.is_none_or(|product| product == place * 2));
        }
        // With something still to do.
        drop(crew);
    });
}
