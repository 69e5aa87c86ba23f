use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use tarnfs_source::{Budget, Cancel, Limits, MemorySource, SharedSource, Source};

use super::toy::{Toy, index, sample};
use super::*;
use crate::{Chunk, Damage, Options, PIECE};

pub(super) const MIB: usize = 1 << 20;

/// A stream with all that is needed to read it.
pub(super) struct Bench {
    pub(super) toy: &'static Toy,
    pub(super) decoded: Vec<u8>,
    pub(super) table: Table,
    cache: Arc<PieceCache>,
    pub(super) budget: Budget,
    pub(super) source: Arc<DecodedSource>,
}

pub(super) fn bench(length: usize, spacing: u64, budget: usize, threads: usize) -> Bench {
    bench_with(length, spacing, budget, threads, |_| {})
}

fn bench_with(length: usize, spacing: u64, budget: usize, threads: usize, change: impl FnOnce(&mut Table)) -> Bench {
    let toy = Toy::new();
    let (decoded, compressed) = sample(length, 1);
    let mut table = index(toy, &compressed, &decoded, spacing, 100_000);
    change(&mut table);
    let budget = Budget::new(budget);
    let cache = PieceCache::new(budget.clone());
    let source = DecodedSource::new(
        toy,
        compressed,
        Arc::new(table.clone()),
        Arc::clone(&cache),
        Workers::new(threads),
        Limits::default(),
    );
    Bench { toy, decoded, table, cache, budget, source }
}

impl Bench {
    fn read(&self, offset: usize, length: usize) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; length];
        let read = self.source.read_at(&mut buffer, offset as u64)?;
        buffer.truncate(read);
        Ok(buffer)
    }

    #[track_caller]
    fn check(&self, offset: usize, length: usize) {
        let start = offset.min(self.decoded.len());
        let end = offset.saturating_add(length).min(self.decoded.len());
        assert!(self.read(offset, length).unwrap() == self.decoded[start..end], "{length} bytes at {offset} are wrong");
    }

    #[track_caller]
    fn fails(&self, offset: usize, length: usize, text: &str) {
        let error = self.read(offset, length).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        assert!(error.to_string().contains(text), "{error}");
        assert!(error.to_string().contains("sample.toy"), "{error}");
    }
}

#[test]
fn chunks_do_not_depend_on_the_size_of_reads() {
    let toy = Toy::new();
    let (decoded, compressed) = sample(2 * MIB + 12_345, 3);
    let tables: Vec<_> =
        [1000, 4096, 99_999, 3 * MIB].map(|step| index(toy, &compressed, &decoded, 300_000, step).chunks).into();
    assert!(tables[0].len() > 4);
    let mut next = 0;
    for chunk in &tables[0] {
        assert_eq!(chunk.point.decoded, next);
        next += chunk.length;
        let bytes = &decoded[chunk.point.decoded as usize..next as usize];
        let starts = (chunk.point.decoded..).step_by(PIECE);
        let expected: Vec<_> = bytes.chunks(PIECE).zip(starts).map(|(piece, start)| checksum(piece, start)).collect();
        assert_eq!(chunk.checksums, expected);
    }
    assert_eq!(next, decoded.len() as u64);
    assert!(tables.iter().all(|table| *table == tables[0]));
}

#[test]
fn a_first_pass_ends_with_what_was_whole() {
    let (decoded, whole) = sample(500_000, 3);
    let mut bytes = vec![0; whole.len() as usize - 3];
    whole.read_exact_at(&mut bytes, 0).unwrap();
    let cut: SharedSource = Arc::new(MemorySource::new(bytes, "cut.toy"));
    let mut indexing = Indexing::new(Toy::new(), cut, &Options::default()).unwrap();
    let (mut buffer, mut chunks) = (vec![0; 1000], Vec::new());
    let error = loop {
        match indexing.read(&mut buffer) {
            Ok(read) => assert!(read > 0),
            Err(error) => break error,
        }
        indexing.take_chunks(&mut chunks);
        assert!(chunks.is_empty());
    };
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    indexing.take_chunks(&mut chunks);
    assert_eq!(chunks.len(), 1);
    assert_eq!(chunks[0].length, indexing.decoded_position());
    assert!(chunks[0].length < decoded.len() as u64 && chunks[0].length > 490_000);
    assert_eq!(indexing.read(&mut buffer).unwrap(), 0);
}

#[test]
fn a_first_pass_can_be_cancelled() {
    let (_, compressed) = sample(500_000, 3);
    let options = Options { cancel: Cancel::default(), ..Options::default() };
    let mut indexing = Indexing::new(Toy::new(), compressed, &options).unwrap();
    indexing.read(&mut [0; 1000]).unwrap();
    options.cancel.cancel();
    assert_eq!(indexing.read(&mut [0; 1000]).unwrap_err().kind(), ErrorKind::Interrupted);
}

#[test]
fn an_empty_stream_has_no_bytes() {
    let bench = bench(0, 1000, MIB, 1);
    assert!(bench.table.chunks.is_empty());
    assert_eq!(bench.read(0, 10).unwrap(), b"");
    assert!(bench.source.is_ready(0, 10));
}

#[test]
fn decodes_only_as_far_as_the_read_needs() {
    let bench = bench(8 * MIB, 4 * MIB as u64, 64 * MIB, 0);
    bench.check(4 * PIECE + 10, 100);
    assert_eq!(bench.toy.decoded.load(Relaxed), 5 * PIECE as u64);
    // Goes on from where it stands.
    bench.check(6 * PIECE + 10, 100);
    assert_eq!(bench.toy.decoded.load(Relaxed), 7 * PIECE as u64);
    // What was passed over is there.
    assert!(bench.source.is_ready(0, 7 * PIECE) && !bench.source.is_ready(0, 7 * PIECE + 1));
    bench.check(0, 7 * PIECE);
    assert_eq!(bench.toy.decoded.load(Relaxed), 7 * PIECE as u64);
    // Another chunk begins at its own seek point.
    let second = bench.table.chunks[1].point.decoded as usize;
    bench.check(second, 1);
    assert_eq!(bench.toy.decoded.load(Relaxed), 8 * PIECE as u64);
    let statistics = bench.source.statistics();
    assert_eq!((statistics.hits, statistics.misses, statistics.resumes, statistics.prefetched), (7, 3, 2, 0));
    assert_eq!(statistics.decoded_bytes, 8 * PIECE as u64);
}

#[test]
fn a_sequential_reader_resumes_once_and_leaves_nothing_behind() {
    let bench = bench(24 * MIB, 700_000, 64 * MIB, 0);
    bench.check(1000, 10);
    bench.check(5 * MIB, 10);
    bench.check(5 * MIB, 10);
    let before = bench.toy.decoded.load(Relaxed);
    for offset in (0..=24 * MIB).step_by(50_000) {
        bench.check(offset, 50_000);
        // What is kept behind the reader, and the memory for what comes next.
        assert!(bench.budget.used() < 8 * MIB);
    }
    assert!(bench.toy.decoded.load(Relaxed) <= before + 24 * MIB as u64);
    assert!(bench.source.statistics().resumes <= 3);
    // What others have used remains.
    assert!(bench.source.is_ready(5 * MIB as u64, 10) && !bench.source.is_ready(6 * MIB as u64, 10));
}

#[test]
fn several_threads_decode_nothing_twice() {
    let bench = bench(4 * MIB, 900_000, 64 * MIB, 2);
    bench.toy.slow.store(true, Relaxed);
    let barrier = Barrier::new(8);
    thread::scope(|scope| {
        for reader in 0..8 {
            let (bench, barrier) = (&bench, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for step in 0..64 {
                    // Forwards and backwards, meeting in the middle.
                    let number = if reader % 2 == 0 { step } else { 63 - step };
                    bench.check(number * 65_536, 65_536);
                }
            });
        }
    });
    let statistics = bench.source.statistics();
    assert_eq!(bench.toy.decoded.load(Relaxed), 4 * MIB as u64, "{statistics:?}");
    assert!(statistics.resumes <= bench.table.chunks.len() as u64, "{statistics:?}");
}

#[test]
fn readers_of_one_piece_wait_for_one_decoder() {
    for budget in [64 * MIB, 1000] {
        let bench = bench(MIB, 4 * MIB as u64, budget, 0);
        bench.toy.slow.store(true, Relaxed);
        let barrier = Barrier::new(8);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    barrier.wait();
                    bench.check(5 * PIECE, 1000);
                });
            }
        });
        // Without room in the cache, who comes later decodes again; with room, never.
        if budget > 1000 {
            assert_eq!(bench.toy.decoded.load(Relaxed), 6 * PIECE as u64);
            assert_eq!(bench.source.statistics().resumes, 1);
        }
    }
}

#[test]
fn readers_of_all_kinds_get_the_right_bytes_at_once() {
    for budget in [0, MIB / 2, 3 * MIB, 64 * MIB] {
        let bench = bench(6 * MIB, 400_000, budget, 2);
        thread::scope(|scope| {
            for reader in 0..8 {
                let bench = &bench;
                scope.spawn(move || {
                    let mut offset: usize = reader * 77_777;
                    for step in 0..120 {
                        offset = match reader % 4 {
                            0 => offset + 60_000,
                            1 => offset + 6 * MIB - 60_000,
                            2 => offset * 31 + 7919,
                            _ if step % 20 == 0 => offset * 17 + 5,
                            _ => offset + 130_000,
                        } % (6 * MIB);
                        bench.check(offset, 60_000);
                        bench.source.is_ready(offset as u64, 1_000_000);
                    }
                });
            }
        });
        assert!(bench.budget.used() <= budget);
    }
}

#[test]
fn decodes_ahead_of_sequential_readers_only() {
    let bench = bench(16 * MIB, MIB as u64, 256 * MIB, 2);
    for offset in [9 * MIB, 3 * MIB, 6 * MIB, MIB, 12 * MIB] {
        bench.check(offset, 1000);
    }
    assert_eq!(bench.source.statistics().prefetched, 0);
    bench.toy.slow.store(true, Relaxed);
    for offset in (0..16 * MIB).step_by(PIECE) {
        bench.check(offset, PIECE);
    }
    let statistics = bench.source.statistics();
    assert!(statistics.prefetched > 32, "{statistics:?}");
    assert!(statistics.decoded_bytes <= 18 * MIB as u64, "{statistics:?}");
}

#[test]
fn a_hint_is_decoded_by_the_workers() {
    let bench = bench(4 * MIB, MIB as u64, 256 * MIB, 1);
    bench.source.prefetch(MIB as u64, 2 * MIB as u64);
    while !bench.source.is_ready(MIB as u64, 2 * MIB) {
        thread::yield_now();
    }
    bench.check(MIB, 2 * MIB);
    assert_eq!(bench.source.statistics().misses, 0);
}

#[test]
fn a_wrong_checksum_spoils_its_piece_alone() {
    let bench = bench(4 * MIB, 2 * MIB as u64, 64 * MIB, 1);
    bench.toy.spoils.store(3 * PIECE as u64 + 77, Relaxed);
    for _ in 0..2 {
        bench.fails(3 * PIECE + 100_000, 1, "differs from its index");
        bench.check(4 * PIECE, 2 * PIECE);
        bench.check(0, 3 * PIECE);
        bench.fails(2 * PIECE, 2 * PIECE, &format!("byte {}", 3 * PIECE));
    }
}

#[test]
fn a_chunk_of_another_length_is_an_error() {
    let short = bench_with(MIB, 400_000, 64 * MIB, 0, |table| {
        let last = table.chunks.last_mut().unwrap();
        last.length += 5;
        last.checksums.clear();
    });
    short.fails(MIB - 10, 15, "the stream ends there");
    let long = bench_with(MIB, 400_000, 64 * MIB, 0, |table| {
        let last = table.chunks.last_mut().unwrap();
        last.length -= 5;
        last.checksums.clear();
    });
    long.fails(MIB - 10, 5, "goes on");
    let long = bench_with(MIB, 400_000, 64 * MIB, 0, |table| table.chunks.last_mut().unwrap().length -= 5);
    long.fails(MIB - 10, 5, "differs from its index");
}

#[test]
fn a_table_that_lies_is_an_error() {
    type Change = fn(&mut Chunk);
    let changes: [(Change, &str); 6] = [
        (|chunk| chunk.checksums.push(1), "checksums for"),
        (|chunk| chunk.length = u64::MAX, "more than the stream has left"),
        (|chunk| chunk.length = 400_000_000, "more than the stream has left"),
        (|chunk| chunk.point.compressed_bit = u64::MAX, "is at bit"),
        (|chunk| chunk.length = 5, "no seek point"),
        (|chunk| chunk.point.compressed_bit += 40, "differs from its index"),
    ];
    for (change, text) in changes {
        let bench = bench_with(MIB, 400_000, 64 * MIB, 0, |table| change(&mut table.chunks[1]));
        let second = bench.table.chunks[0].length as usize;
        bench.fails(second + 10, 10, text);
        bench.check(0, second);
    }
}

#[test]
fn a_decoder_that_stops_fails_or_panics_is_an_error_every_time() {
    let bench = bench(2 * MIB, 900_000, 64 * MIB, 1);
    let at = 5 * PIECE as u64 + 50;
    bench.toy.ends_at.store(at, Relaxed);
    for _ in 0..3 {
        bench.fails(5 * PIECE + 1, 10, "ends there");
    }
    bench.toy.ends_at.store(0, Relaxed);
    bench.toy.fails_at.store(at, Relaxed);
    for _ in 0..3 {
        bench.fails(5 * PIECE + 1, 10, "a bad record");
    }
    bench.toy.fails_at.store(0, Relaxed);
    bench.toy.panics_at.store(at, Relaxed);
    for _ in 0..3 {
        assert!(catch_unwind(AssertUnwindSafe(|| bench.read(5 * PIECE + 1, 10))).is_err());
    }
    bench.toy.panics_at.store(0, Relaxed);
    bench.check(0, 2 * MIB);
}

#[test]
fn errors_while_decoding_ahead_are_silent_and_harmless() {
    let bench = bench(4 * MIB, MIB as u64, 64 * MIB, 2);
    let at = (3 * MIB + 2 * PIECE) as u64;
    bench.toy.fails_at.store(at, Relaxed);
    for offset in (0..3 * MIB).step_by(PIECE) {
        bench.check(offset, PIECE);
    }
    bench.fails(3 * MIB + 2 * PIECE, 1, "a bad record");
    bench.toy.fails_at.store(0, Relaxed);
    bench.toy.panics_at.store(at, Relaxed);
    bench.source.prefetch(3 * MIB as u64 - 10, MIB as u64);
    bench.check(0, 3 * MIB);
    bench.toy.panics_at.store(0, Relaxed);
    bench.check(0, 4 * MIB);
}

/// Nobody would ever decode them ahead again.
#[test]
fn what_stands_behind_a_chunk_that_panics_is_queued_no_more() {
    let bench = bench(MIB, 100_000, 64 * MIB, 1);
    bench.toy.panics_at.store(50, Relaxed);
    bench.source.prefetch(0, MIB as u64);
    // The only worker comes to this when it has done with all that.
    let is_done = Arc::new(AtomicBool::new(false));
    let done = Arc::clone(&is_done);
    let inner = &bench.source.inner;
    assert!(inner.workers.submit(move || done.store(true, Relaxed)));
    while !is_done.load(Relaxed) {
        std::thread::yield_now();
    }
    for chunk in &bench.table.chunks {
        let start = chunk.point.decoded;
        assert!(inner.in_flight.queue(start, start..start + 1, true), "{start} is still queued");
        inner.in_flight.dequeue(start);
    }
}

#[test]
fn a_decoder_that_gave_something_wrong_is_not_kept() {
    let bench = bench(2 * MIB, 2 * MIB as u64, 64 * MIB, 1);
    for spoilt in [3 * PIECE as u64 + 5, 0] {
        bench.toy.spoils.store(spoilt, Relaxed);
        let before = bench.source.statistics();
        bench.source.prefetch(if spoilt > 0 { 0 } else { 8 * PIECE as u64 }, 4 * PIECE as u64);
        while bench.source.statistics().prefetched < before.prefetched + 4 || bench.source.inner.in_flight.is_in(0) {
            std::thread::yield_now();
        }
        assert_eq!(bench.cache.memory().paused_decoders == 0, spoilt > 0, "{spoilt}");
    }
    bench.check(0, 2 * MIB);
}

#[test]
fn damaged_ranges_are_refused_and_others_served() {
    let bench = bench_with(2 * MIB, 500_000, 64 * MIB, 0, |table| {
        let damage = |decoded: std::ops::Range<u64>, lost_from, compressed, what: &str| Damage {
            decoded,
            lost_from,
            compressed,
            compressed_from: compressed,
            what: what.into(),
        };
        table.damage.push(damage(1000..2000, 2000, 77, "its checksum does not match"));
        table.damage.push(damage(9000..9001, 9000, 0, "something is missing"));
    });
    bench.check(0, 1000);
    bench.check(2000, 7000);
    bench.check(9001, MIB);
    for offset in [999, 1000, 1999] {
        bench.fails(offset, 2, "its checksum does not match, found at byte 77 of the compressed file");
    }
    // Where that was found nobody knows.
    let error = bench.source.read_at(&mut [0; 2], 9000).unwrap_err().to_string();
    assert!(
        error.ends_with(" are damaged: something is missing") && error.starts_with("bytes 9000 to 9001 of the decoded"),
        "{error}"
    );
}

#[test]
fn memory_stays_in_the_budget_while_a_huge_chunk_is_scanned() {
    let budget = 8 * MIB;
    let bench = bench(48 * MIB, u64::MAX, budget, 2);
    assert_eq!(bench.table.chunks.len(), 1);
    bench.toy.memory.store(MIB as u64, Relaxed);
    // Used often: stays while everything else passes through.
    for _ in 0..4 {
        bench.check(0, 10);
    }
    for offset in (0..48 * MIB).step_by(PIECE) {
        bench.check(offset, PIECE);
        assert!(bench.budget.used() <= budget);
    }
    assert!(bench.source.is_ready(0, 10));
    // Again from the start, to a byte far on: passed over without filling the cache.
    bench.check(40 * MIB, 10);
    bench.check(20 * MIB, 10);
    assert!(bench.source.is_ready(0, 10));
    assert!(bench.budget.used() <= budget);
    let Bench { source, cache, budget, .. } = bench;
    drop(source);
    // A worker may hold the stream for a moment.
    while budget.used() > 0 {
        thread::yield_now();
    }
    drop(cache);
}

#[test]
fn serves_without_any_memory_and_goes_on_from_where_it_stands() {
    let bench = bench(4 * MIB, u64::MAX, 0, 1);
    for offset in (0..4 * MIB).step_by(PIECE) {
        bench.check(offset, PIECE);
    }
    assert_eq!(bench.toy.decoded.load(Relaxed), 4 * MIB as u64);
    bench.check(MIB, 2 * MIB);
    assert_eq!(bench.budget.used(), 0);
}

#[test]
fn another_holder_of_the_budget_is_respected() {
    let bench = bench(4 * MIB, MIB as u64, 4 * MIB, 0);
    bench.check(0, 4 * MIB);
    let used = bench.budget.used();
    let taken = bench.budget.take(4 * MIB - used).unwrap();
    bench.check(0, 4 * MIB);
    assert!(bench.budget.used() <= 4 * MIB);
    drop(taken);
    bench.check(0, 4 * MIB);
}

#[test]
fn all_is_given_back_when_nobody_reads() {
    let bench = bench(2 * MIB, 500_000, 64 * MIB, 0);
    bench.check(0, MIB);
    bench.check(MIB + 1000, 1000);
    let (held, uses) = (bench.cache.memory(), bench.cache.uses());
    assert!(held.pieces > MIB && held.paused_decoders > 0, "{held:?}");
    assert_eq!(bench.cache.uses(), uses);
    bench.cache.give_back();
    assert_eq!(bench.cache.memory(), super::CacheMemory::default());
    // What is left are the chunks that were looked up.
    assert!(bench.budget.used() < 100_000);
    for offset in (0..2 * MIB).step_by(300_000) {
        bench.check(offset, 100_000);
    }
    assert!(bench.cache.uses() > uses && bench.cache.memory().pieces > 0);
}

#[test]
fn short_chunks_that_follow_each_other_are_decoded_by_one_decoder() {
    // One worker: before it is known what a decoder needs, a second one gets no pass, and its chunk is not decoded
    // ahead.
    let bench = bench(4 * MIB, 100_000, 64 * MIB, 1);
    bench.source.prefetch(0, 4 * MIB as u64);
    while !bench.source.is_ready(0, 4 * MIB) {
        thread::yield_now();
    }
    // There are two jobs, and some 40 chunks.
    assert!(bench.source.statistics().resumes <= 3, "{:?}", bench.source.statistics());
    bench.check(0, 4 * MIB);
}

#[test]
fn streams_share_a_cache_and_leave_it_clean() {
    let toy = Toy::new();
    let budget = Budget::new(64 * MIB);
    let cache = PieceCache::new(budget.clone());
    let workers = Workers::new(1);
    let streams: Vec<_> = (0..5)
        .map(|seed| {
            let (decoded, compressed) = sample(MIB, seed);
            let table = Arc::new(index(toy, &compressed, &decoded, 200_000, 4096));
            let source =
                DecodedSource::new(toy, compressed, table, Arc::clone(&cache), Arc::clone(&workers), Limits::default());
            (decoded, source)
        })
        .collect();
    for offset in (0..MIB).step_by(10_000) {
        for (decoded, source) in &streams {
            let mut buffer = vec![0; 10_000];
            let read = source.read_at(&mut buffer, offset as u64).unwrap();
            assert!(buffer[..read] == decoded[offset..offset + read]);
        }
    }
    assert!(budget.used() > 5 * MIB);
    drop(streams);
    // A worker may hold a stream for a moment.
    while budget.used() > 0 {
        thread::yield_now();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_reads_return_the_right_bytes(
        length in 1..MIB, spacing in 1000..600_000_u64, budget in 0..2 * MIB, threads in 0..3_usize,
        reads in prop::collection::vec((0..MIB + 10, 0..300_000_usize), 1..40),
    ) {
        let bench = bench(length, spacing, budget, threads);
        for (offset, length) in reads {
            bench.check(offset, length);
        }
        prop_assert!(bench.budget.used() <= budget);
    }
}

#[test]
fn decoders_for_which_there_is_no_room_wait() {
    const READERS: usize = 8;
    // Room for decoders is a quarter of the budget: 16 MiB.
    for (memory, most) in [(20 * MIB, 1), (5 * MIB, 3), (1000, READERS)] {
        let bench = bench(16 * MIB, MIB as u64, 64 * MIB, 2);
        bench.toy.memory.store(memory as u64, Relaxed);
        // Now it is known what one needs.
        bench.check(0, 10);
        bench.toy.most_busy.store(0, Relaxed);
        bench.toy.slow.store(true, Relaxed);
        let barrier = Barrier::new(READERS);
        thread::scope(|scope| {
            for reader in 0..READERS {
                let (bench, barrier) = (&bench, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for chunk in 0..2 {
                        bench.check((2 * reader + chunk) * MIB + 500_000, 100_000);
                    }
                });
            }
        });
        let busy = bench.toy.most_busy.load(Relaxed) as usize;
        assert!(busy <= most + usize::from(most == READERS) * 2, "{busy} at the same time, {memory} bytes each");
        assert!(most == 1 || busy > 1, "only one at a time, {memory} bytes each");
    }
}

#[test]
fn decoders_whose_dictionaries_fill_wait_for_room() {
    const READERS: usize = 8;
    // Room for decoders is a quarter of the budget: 16 MiB. Two dictionaries are full at a time.
    let bench = bench(64 * MIB, 8 * MIB as u64, 64 * MIB, 2);
    bench.toy.dictionary.store(7 * MIB as u64, Relaxed);
    // A short read needs little: that says nothing of those that come.
    bench.check(0, 10);
    bench.toy.most_busy.store(0, Relaxed);
    bench.toy.slow.store(true, Relaxed);
    let barrier = Barrier::new(READERS);
    thread::scope(|scope| {
        for reader in 0..READERS {
            let (bench, barrier) = (&bench, &barrier);
            scope.spawn(move || {
                barrier.wait();
                bench.check((reader + 1) * 8 * MIB - 100_000, 50_000);
            });
        }
    });
    let busy = bench.toy.most_busy.load(Relaxed);
    assert!(busy <= 2, "{busy} at the same time");
}

/// A file of some of the stream's pieces, each changed by `change`.
fn file_of_pieces(bench: &Bench, change: impl Fn(usize, &mut Vec<u8>)) -> Arc<DecodedFile> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = super::decoded_file::tests::writer_of(&file);
    assert!(writer.lock().unwrap());
    let places = bench.table.chunks.iter().flat_map(|chunk| {
        (chunk.point.decoded..chunk.point.decoded + chunk.length)
            .step_by(PIECE)
            .map(|start| (start, (chunk.point.decoded + chunk.length - start).min(PIECE as u64)))
    });
    for (number, (start, length)) in places.enumerate().filter(|(number, _)| number % 4 != 3) {
        let mut piece = bench.decoded[start as usize..(start + length) as usize].to_vec();
        let right = super::checksum(&piece, start);
        change(number, &mut piece);
        writer.add(0, start, &piece, right, Some(1)).unwrap();
    }
    drop(writer);
    super::decoded_file::tests::reader_of(&file)
}

#[test]
fn kept_pieces_are_not_decoded_again() {
    for threads in [0, 2] {
        let bench = bench(4 * MIB, 300_000, 1 << 20, threads);
        bench.source.read_from(file_of_pieces(&bench, |_, _| ()));
        // The first three pieces of every four are kept; chunks are of three pieces.
        let before = bench.toy.decoded.load(Relaxed);
        bench.check(10, 100_000);
        if threads == 0 {
            assert_eq!(bench.toy.decoded.load(Relaxed), before);
        }
        for step in 0..50 {
            bench.check(step * 80_001, 130_000);
        }
        bench.check(0, 4 * MIB);
        let done = bench.source.statistics();
        assert!(done.kept > 20, "{done:?}");
        assert!(done.decoded_bytes > 0, "what was not kept is decoded: {done:?}");
    }
}

#[test]
fn kept_pieces_of_something_else_are_not_served() {
    let bench = bench(2 * MIB, 300_000, 1 << 20, 0);
    bench.source.read_from(file_of_pieces(&bench, |number, piece| {
        if number % 2 == 0 {
            piece[77] ^= 1;
        }
    }));
    bench.check(0, 2 * MIB);
    for step in 0..50 {
        bench.check(step * 40_001, 30_000);
    }
    assert!(bench.source.statistics().kept > 5, "those that are right are used");
}

#[test]
fn seek_points_of_many_streams_share_their_memory() {
    let bench = bench(2 * MIB, 5_000, 1 << 20, 0);
    let (_, compressed) = sample(2 * MIB, 1);
    let open = |_| {
        let (table, cache) = (Arc::new(bench.table.clone()), Arc::clone(&bench.cache));
        DecodedSource::new(
            bench.toy,
            SharedSource::clone(&compressed),
            table,
            cache,
            Workers::new(0),
            Limits::default(),
        )
    };
    let sources: Vec<_> = (0..20).map(open).collect();
    let read_all = || {
        for source in &sources {
            for chunk in &bench.table.chunks {
                let mut byte = [0];
                source.read_exact_at(&mut byte, chunk.point.decoded).unwrap();
                assert_eq!(byte[0], bench.decoded[chunk.point.decoded as usize]);
            }
        }
    };
    read_all();
    let held = bench.cache.memory();
    assert!(held.seek_points > 0 && held.seek_points <= (1 << 20) / 8, "{held:?}");
    assert!(held.pieces >= 1 << 18, "{held:?}");
    bench.cache.give_back();
    assert_eq!(bench.cache.memory().seek_points, 0);
    read_all();
    drop(sources);
    assert_eq!(bench.cache.memory().seek_points, 0, "none is left of a stream that is closed");
}

/// Gives no answer until it is let go.
#[derive(Debug)]
struct Silent {
    source: SharedSource,
    is_asked: AtomicBool,
    holds_back: AtomicBool,
}

impl Source for Silent {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.is_asked.store(true, Relaxed);
        while self.holds_back.load(Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        self.source.read_at(buffer, offset)
    }

    fn len(&self) -> u64 {
        self.source.len()
    }

    fn describe(&self) -> String {
        self.source.describe()
    }
}

#[test]
fn nobody_waits_for_a_decoder_of_another_archive_that_gets_no_answer() {
    let toy = Toy::new();
    let (decoded, compressed) = sample(MIB, 1);
    let table = Arc::new(index(toy, &compressed, &decoded, 300_000, 100_000));
    let cache = PieceCache::new(Budget::new(64 * MIB));
    let open = |source| {
        let (table, cache) = (Arc::<Table>::clone(&table), Arc::clone(&cache));
        DecodedSource::new(toy, source, table, cache, Workers::new(0), Limits::default())
    };
    let (is_asked, holds_back) = (AtomicBool::new(false), AtomicBool::new(true));
    let silent = Arc::new(Silent { source: SharedSource::clone(&compressed), is_asked, holds_back });
    let (gone, here) = (open(Arc::<Silent>::clone(&silent)), open(compressed));
    let read = |source: &DecodedSource| {
        let mut bytes = vec![0; MIB];
        source.read_exact_at(&mut bytes, 0).map(|()| bytes == decoded)
    };
    thread::scope(|scope| {
        let waiting = scope.spawn(|| read(&gone).unwrap());
        while !silent.is_asked.load(Relaxed) {
            thread::yield_now();
        }
        let (done, is_done) = channel();
        let (here, read) = (&here, &read);
        scope.spawn(move || done.send(read(here).unwrap()));
        let found = is_done.recv_timeout(Duration::from_secs(100));
        silent.holds_back.store(false, Relaxed);
        assert_eq!((found, waiting.join().unwrap()), (Ok(true), true));
    });
}
