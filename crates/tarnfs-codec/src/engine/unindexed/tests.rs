mod copies;

use super::*;
use crate::coder_by_name;
use tarnfs_source::testing::CountedSource;
use tarnfs_source::{Budget, MemorySource};
use zlib_rs::{DeflateConfig, compress_slice};

/// Bytes that compress to about half.
fn content(length: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state & 15) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Raw deflate, and the CRC-32 of what comes out.
fn deflated(bytes: &[u8]) -> (Vec<u8>, u32) {
    deflated_at(1, bytes)
}

/// The same at that level. At the first one all is one block, in which no seek point lies.
fn deflated_at(level: i32, bytes: &[u8]) -> (Vec<u8>, u32) {
    let mut packed = vec![0; 2 * bytes.len() + 1024];
    let config = DeflateConfig { window_bits: -15, ..DeflateConfig::new(level) };
    let (packed, _) = compress_slice(&mut packed, bytes, config);
    (packed.to_vec(), crc32fast::hash(bytes))
}

/// That stream.
fn of(codec: &'static dyn Codec, source: SharedSource, length: u64, crc: Option<u32>) -> Unindexed {
    Unindexed { codec, source, length, crc }
}

fn opened(packed: Vec<u8>, length: u64, crc: Option<u32>) -> UnindexedSource {
    let source = Arc::new(MemorySource::new(packed, "a member"));
    let (cache, workers) = (PieceCache::new(Budget::new(64 << 20)), Workers::new(0));
    let codec = coder_by_name("deflate").unwrap();
    let options = Options::default();
    UnindexedSource::new(of(codec, source, length, crc), options, DecodeContext::default(), cache, workers)
}

/// A table that is kept in memory.
#[derive(Default)]
struct Kept(std::sync::Mutex<Option<Table>>);

impl KeptTable for Kept {
    fn load(&self) -> Option<Table> {
        self.0.lock().unwrap().clone()
    }

    fn store(&self, table: &Table) {
        *self.0.lock().unwrap() = Some(table.clone());
    }
}

const LENGTHS: [usize; 6] = [1, 1000, SHORT as usize, SHORT as usize + 1, VERIFIED_FIRST as usize + 1, 40 << 20];

#[test]
fn any_byte_is_read_in_any_order() {
    for length in LENGTHS {
        let bytes = content(length);
        let (packed, crc) = deflated(&bytes);
        // Forwards; from the end; here and there, beginning at different places.
        let step = (length / 37).max(1);
        let forwards: Vec<usize> = (0..length).step_by(step).collect();
        let orders: [Vec<usize>; 3] = [
            forwards.clone(),
            forwards.iter().rev().copied().collect(),
            forwards.iter().map(|at| at * 7 % length).collect(),
        ];
        for order in orders {
            let source = opened(packed.clone(), length as u64, Some(crc));
            assert!(!source.is_ready(0, 1) && source.len() == length as u64);
            for at in order {
                let mut buffer = vec![0; 70_000];
                let read = source.read_at(&mut buffer, at as u64).unwrap();
                assert_eq!(read, (length - at).min(70_000), "at {at} of {length}");
                assert!(buffer[..read] == bytes[at..at + read], "at {at} of {length}");
            }
            let mut last = [0];
            assert_eq!(source.read_at(&mut last, length as u64 - 1).unwrap(), 1);
            assert_eq!(source.is_indexed(), length as u64 > SHORT);
            assert!(source.is_ready(length as u64 - 1, 1) && source.memory() <= length.max(4 << 20));
            assert_eq!(source.read_at(&mut last, length as u64).unwrap(), 0);
        }
    }
}

#[test]
fn a_wrong_checksum_is_an_error_from_then_on() {
    for length in LENGTHS {
        let bytes = content(length);
        let (packed, crc) = deflated(&bytes);
        let source = opened(packed, length as u64, Some(!crc));
        let mut buffer = vec![0; 1 << 20];
        let (mut at, mut failed) = (0, None);
        while at < length as u64 && failed.is_none() {
            match source.read_at(&mut buffer, at) {
                Ok(read) => at += read as u64,
                Err(error) => failed = Some(error),
            }
        }
        let error = failed.expect("somebody who reads all is told");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains("its CRC-32 is"), "{error}");
        assert!(length as u64 > VERIFIED_FIRST || at == 0, "nothing is served of what is wrong");
        assert!(source.read_at(&mut buffer, 0).is_err(), "nor is it later");
    }
}

#[test]
fn what_is_cut_damaged_or_of_another_length_is_an_error() {
    let bytes = content(3 << 20);
    let (packed, crc) = deflated(&bytes);
    let length = bytes.len() as u64;
    let mut damaged = packed.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 64].fill(0xff);
    let mut buffer = [0; 100];
    for (packed, length) in [
        (packed[..packed.len() / 2].to_vec(), length),
        (damaged, length),
        (packed.clone(), length - 1),
        (packed.clone(), length + 1),
        (Vec::new(), length),
    ] {
        for crc in [Some(crc), None] {
            let source = opened(packed.clone(), length, crc);
            for _ in 0..2 {
                let error = source.read_at(&mut buffer, 5).unwrap_err();
                assert!(matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof), "{error}");
                assert!(error.to_string().contains("a member"), "{error}");
            }
        }
    }
    // Without a checksum, what decodes is right.
    assert_eq!(opened(packed, length, None).read_at(&mut buffer, 5).unwrap(), 100);
}

#[test]
fn many_readers_see_the_same() {
    let bytes = content(24 << 20);
    let (packed, crc) = deflated(&bytes);
    let source = opened(packed, bytes.len() as u64, Some(crc));
    std::thread::scope(|scope| {
        for reader in 0..4_usize {
            let (source, bytes) = (&source, &bytes);
            scope.spawn(move || {
                let mut buffer = vec![0; 200_000];
                for turn in 0..40 {
                    let at = (turn * 7 + reader * 11) % 40 * (bytes.len() / 40);
                    let read = source.read_at(&mut buffer, at as u64).unwrap();
                    assert!(buffer[..read] == bytes[at..at + read]);
                }
            });
        }
    });
}

#[test]
fn what_is_verified_first_is_decoded_once_where_there_is_memory() {
    let bytes = content(12 << 20);
    let (packed, crc) = deflated(&bytes);
    for (budget, most) in [(128 << 20, 1), (4 << 20, 2)] {
        let source = Arc::new(CountedSource::new(Arc::new(MemorySource::new(packed.clone(), "a member"))));
        let (cache, workers) = (PieceCache::new(Budget::new(budget)), Workers::new(0));
        let (codec, options) = (coder_by_name("deflate").unwrap(), Options::default());
        let (length, context) = (bytes.len() as u64, DecodeContext::default());
        let shared = SharedSource::clone(&(Arc::clone(&source) as SharedSource));
        let member = UnindexedSource::new(of(codec, shared, length, Some(crc)), options, context, cache, workers);
        let mut buffer = vec![0; 100_000];
        for at in (0..bytes.len()).step_by(buffer.len()) {
            let read = member.read_at(&mut buffer, at as u64).unwrap();
            assert!(buffer[..read] == bytes[at..at + read], "at {at}");
        }
        let read = source.bytes() as usize;
        assert!(read <= most * packed.len() + packed.len() / 2, "{read} bytes of {}", packed.len());
    }
}

#[test]
fn it_is_verified_without_a_reader() {
    let bytes = content(20 << 20);
    let (packed, crc) = deflated(&bytes);
    let mut buffer = [0; 1000];
    let source = opened(packed.clone(), bytes.len() as u64, Some(crc));
    source.read_at(&mut buffer, 7).unwrap();
    assert!(!source.is_verified() && source.position() >= 1007);
    let mut last = source.position();
    while source.advance().unwrap() {
        assert!(source.position() > last, "it gets on");
        last = source.position();
    }
    assert!(source.is_verified() && !source.advance().unwrap() && source.position() == bytes.len() as u64);
    source.read_at(&mut buffer, 9 << 20).unwrap();
    assert!(buffer == bytes[9 << 20..(9 << 20) + 1000]);
    let source = opened(packed, bytes.len() as u64, Some(!crc));
    source.read_at(&mut buffer, 7).unwrap();
    let error = std::iter::repeat_with(|| source.advance()).find_map(Result::err).unwrap();
    assert!(error.kind() == io::ErrorKind::InvalidData && !source.is_verified(), "{error}");
    assert!(source.read_at(&mut buffer, 7).is_err() && source.advance().is_err());
}

#[test]
fn the_seek_points_of_a_long_stream_are_bounded() {
    let bytes = content(40 << 20);
    let (packed, crc) = deflated(&bytes);
    let (cache, workers) = (PieceCache::new(Budget::new(1 << 20)), Workers::new(0));
    let options = Options { seek_point_spacing: 128 << 10, ..Options::default() };
    let shared = Arc::new(MemorySource::new(packed, "a member"));
    let (codec, context) = (coder_by_name("deflate").unwrap(), DecodeContext::default());
    let source =
        UnindexedSource::new(of(codec, shared, bytes.len() as u64, Some(crc)), options, context, cache, workers);
    while source.advance().unwrap() {}
    // A quarter of the budget, as much at the start, and what the last point took.
    assert!(source.memory() <= (512 + 64) << 10, "{} bytes", source.memory());
    let mut buffer = vec![0; 1000];
    for at in (0..bytes.len() - 1000).step_by(3 << 20) {
        source.read_at(&mut buffer, at as u64).unwrap();
        assert!(buffer == bytes[at..at + 1000], "at {at}");
    }
}

#[test]
fn who_reads_on_finds_what_follows_decoded() {
    let bytes = content(20 << 20);
    let (packed, crc) = deflated(&bytes);
    let (cache, workers) = (PieceCache::new(Budget::new(64 << 20)), Workers::new(1));
    let (codec, options) = (coder_by_name("deflate").unwrap(), Options::default());
    let (shared, context) = (Arc::new(MemorySource::new(packed, "a member")), DecodeContext::default());
    let length = bytes.len() as u64;
    let source = Arc::new(UnindexedSource::new(of(codec, shared, length, Some(crc)), options, context, cache, workers));
    let mut buffer = vec![0; 128 << 10];
    let mut at = 0;
    while at < length {
        let read = source.read_at(&mut buffer, at).unwrap();
        assert!(buffer[..read] == bytes[at as usize..at as usize + read], "at {at}");
        at += read as u64;
        // It comes, however busy the machine is, and stays so far behind that nothing is decoded twice.
        while source.position() < (at + AHEAD).min(length) {
            source.read_ahead(at);
            std::thread::yield_now();
        }
        assert!(source.position() <= (at + AHEAD + PIECE as u64).min(length));
    }
    assert!(source.is_verified());
}

#[test]
fn a_pass_that_nobody_reads_gives_its_memory_to_one_that_waits() {
    let bytes = content(20 << 20);
    let (packed, crc) = deflated(&bytes);
    // Too little for a single pass: one at a time has the right to do without.
    let cache = PieceCache::new(Budget::new(1 << 20));
    let open = || {
        let source = Arc::new(MemorySource::new(packed.clone(), "a member"));
        let (codec, cache, workers) = (coder_by_name("deflate").unwrap(), Arc::clone(&cache), Workers::new(0));
        let (options, context) = (Options::default(), DecodeContext::default());
        UnindexedSource::new(of(codec, source, bytes.len() as u64, Some(crc)), options, context, cache, workers)
    };
    let members = [open(), open(), open()];
    let has_pass = |member: &UnindexedSource| lock(&member.pass.pass).is_some();
    let mut buffer = vec![0; 100_000];
    for (number, member) in members.iter().enumerate() {
        member.read_exact_at(&mut buffer, 1 << 20).unwrap();
        assert!(buffer == bytes[1 << 20..][..100_000], "{number}");
        let passes: Vec<_> = members.iter().map(has_pass).collect();
        let expected: Vec<_> = (0..members.len()).map(|other| other == number).collect();
        assert_eq!(passes, expected);
    }
    // Who only verifies does not wait.
    assert_eq!(members[0].advance().unwrap_err().kind(), io::ErrorKind::OutOfMemory);
    // All at once, each to its end.
    std::thread::scope(|scope| {
        for member in &members {
            scope.spawn(|| {
                let mut all = vec![0; bytes.len()];
                member.read_exact_at(&mut all, 0).unwrap();
                assert!(all == bytes);
            });
        }
    });
    assert!(members.iter().all(|member| !has_pass(member)));
}

/// Several streams that are decoded in two steps, and so little memory that some have it for one step only: each waited
/// for what the others held.
#[test]
fn steps_of_several_streams_do_not_wait_for_each_other() {
    let bytes = content(18 << 20);
    let (packed, crc) = deflated(&bytes);
    let (twice, _) = deflated(&packed);
    for limit in [8 << 20, 16 << 20, 40 << 20] {
        let cache = PieceCache::new(Budget::new(limit));
        let undone = |source: SharedSource, length: usize, crc| {
            let (codec, cache, workers) = (coder_by_name("deflate").unwrap(), Arc::clone(&cache), Workers::new(0));
            let (options, context) = (Options::default(), DecodeContext::default());
            UnindexedSource::new(of(codec, source, length as u64, crc), options, context, cache, workers)
        };
        let open = || {
            let stored = Arc::new(MemorySource::new(twice.clone(), "a member"));
            let inner = Arc::new(undone(stored, packed.len(), None));
            undone(Arc::clone(&inner) as SharedSource, bytes.len(), Some(crc)).decoded_from(&[inner])
        };
        let streams: Vec<_> = (0..6).map(|_| open()).collect();
        std::thread::scope(|scope| {
            for stream in &streams {
                scope.spawn(|| {
                    let mut part = vec![0; 128 << 10];
                    for at in (0..bytes.len()).step_by(part.len()) {
                        stream.read_exact_at(&mut part, at as u64).unwrap();
                        assert!(part == bytes[at..at + part.len()], "{limit}: at {at}");
                    }
                });
            }
        });
        assert!(streams.iter().all(|stream| stream.is_verified() && lock(&stream.pass.pass).is_none()));
    }
}

/// Streams whose seek points are kept have no pass of their own, but what they are decoded from has one.
#[test]
fn what_a_stream_with_seek_points_is_decoded_from_gives_its_memory_back() {
    let bytes = content(40 << 20);
    let (packed, crc) = deflated(&bytes);
    let (twice, _) = deflated(&packed);
    let kept = Arc::new(Kept::default());
    let cache = PieceCache::new(Budget::new(8 << 20));
    let undone = |source: SharedSource, length: usize, crc| {
        let (codec, cache, workers) = (coder_by_name("deflate").unwrap(), Arc::clone(&cache), Workers::new(0));
        let (options, context) = (Options::default(), DecodeContext::default());
        UnindexedSource::new(of(codec, source, length as u64, crc), options, context, cache, workers)
    };
    let open = || {
        let stored = Arc::new(MemorySource::new(twice.clone(), "a member"));
        let inner = Arc::new(undone(stored, packed.len(), None));
        let outer =
            undone(Arc::clone(&inner) as SharedSource, bytes.len(), Some(crc)).decoded_from(&[Arc::clone(&inner)]);
        (outer.keeping(Some(Arc::clone(&kept) as Arc<dyn KeptTable>)), inner)
    };
    let mut all = vec![0; bytes.len()];
    open().0.read_exact_at(&mut all, 0).unwrap();
    assert!(kept.load().is_some());
    let has_pass = |stream: &UnindexedSource| lock(&stream.pass.pass).is_some();
    let streams: Vec<_> = (0..12).map(|_| open()).collect();
    let mut part = vec![0; 4096];
    for (number, (outer, inner)) in streams.iter().enumerate() {
        outer.read_exact_at(&mut part, 9 << 20).unwrap();
        assert!(part == bytes[9 << 20..][..4096], "{number}");
        assert!(!has_pass(outer) && has_pass(inner), "{number}");
    }
    // There is no memory for all of them.
    assert!(streams.iter().filter(|(_, inner)| has_pass(inner)).count() < streams.len());
}

/// A stream whose input cannot be read does not keep what its input has.
#[test]
fn an_error_gives_back_what_the_inputs_have() {
    let bytes = content(18 << 20);
    let (packed, _) = deflated(&bytes);
    let (mut twice, _) = deflated(&packed);
    let end = twice.len() / 2;
    twice[end..end + 4096].fill(0xff);
    let cache = PieceCache::new(Budget::new(64 << 20));
    let undone = |source: SharedSource, length: usize| {
        let (codec, cache, workers) = (coder_by_name("deflate").unwrap(), Arc::clone(&cache), Workers::new(0));
        let (options, context) = (Options::default(), DecodeContext::default());
        UnindexedSource::new(of(codec, source, length as u64, None), options, context, cache, workers)
    };
    let inner = Arc::new(undone(Arc::new(MemorySource::new(twice, "a member")), packed.len()));
    let outer = undone(Arc::clone(&inner) as SharedSource, bytes.len()).decoded_from(&[Arc::clone(&inner)]);
    let mut all = vec![0; bytes.len()];
    assert_eq!(outer.read_exact_at(&mut all, 0).unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert!(lock(&inner.pass.pass).is_none() && lock(&inner.pass.reserved).is_none());
}

/// Streams in others that are no steps of theirs, as those of archives in archives: nobody waits for memory while what
/// it has is what others wait for.
#[test]
fn streams_in_streams_of_others_do_not_wait_for_each_other() {
    let bytes = content(18 << 20);
    let (packed, crc) = deflated(&bytes);
    let (twice, crc_of_packed) = deflated(&packed);
    for limit in [8 << 20, 12 << 20, 16 << 20] {
        let cache = PieceCache::new(Budget::new(limit));
        let undone = |source: SharedSource, length: usize, crc| {
            let (codec, cache, workers) = (coder_by_name("deflate").unwrap(), Arc::clone(&cache), Workers::new(0));
            let (options, context) = (Options::default(), DecodeContext::default());
            UnindexedSource::new(of(codec, source, length as u64, Some(crc)), options, context, cache, workers)
        };
        let open = || {
            let stored = Arc::new(MemorySource::new(twice.clone(), "an archive"));
            let outer = undone(stored, packed.len(), crc_of_packed);
            undone(Arc::new(outer), bytes.len(), crc)
        };
        let streams: Vec<_> = (0..4).map(|_| open()).collect();
        std::thread::scope(|scope| {
            for stream in &streams {
                scope.spawn(|| {
                    let mut part = vec![0; 128 << 10];
                    for at in (0..bytes.len()).step_by(part.len()) {
                        stream.read_exact_at(&mut part, at as u64).unwrap();
                        assert!(part == bytes[at..at + part.len()], "{limit}: at {at}");
                    }
                });
            }
        });
    }
}

/// A stream that can only be decoded from its start, read backwards.
#[test]
fn what_has_no_seek_points_is_decoded_once() {
    let bytes = content(20 << 20);
    let (packed, crc) = deflated(&bytes);
    let codec: &'static dyn Codec =
        Box::leak(Box::new(WithoutPoints(coder_by_name("deflate").unwrap(), AtomicUsize::new(0))));
    let source = Arc::new(MemorySource::new(packed, "a member"));
    let (cache, workers) = (PieceCache::new(Budget::new(8 << 20)), Workers::new(0));
    let (options, context) = (Options::default(), DecodeContext::default());
    let stream =
        UnindexedSource::new(of(codec, source, bytes.len() as u64, Some(crc)), options, context, cache, workers);
    let mut part = vec![0; 100_000];
    for round in 0..2 {
        for at in (0..bytes.len() - part.len()).step_by(1_000_003).rev() {
            stream.read_exact_at(&mut part, at as u64).unwrap();
            assert!(part == bytes[at..at + part.len()], "{round}: at {at}");
        }
    }
    stream.read_exact_at(&mut part[..1], bytes.len() as u64 - 1).unwrap();
    assert!(stream.is_verified() && stream.memory() == 0);
}

/// Whoever lets go of the pass and wants it again comes behind all who wait.
#[test]
fn the_pass_is_had_in_the_order_in_which_it_was_wanted() {
    const OTHERS: usize = 6;
    let bytes = content(1000);
    let (packed, crc) = deflated(&bytes);
    let source = opened(packed, bytes.len() as u64, Some(crc));
    let order = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let held = source.next_turn();
        for number in 0..OTHERS {
            let (source, order) = (&source, &order);
            scope.spawn(move || {
                let _held = source.next_turn();
                order.lock().unwrap().push(number);
            });
            while source.turns.waiting() <= number as u64 {
                std::thread::yield_now();
            }
        }
        drop(held);
        let _held = source.next_turn();
        order.lock().unwrap().push(OTHERS);
    });
    assert_eq!(order.into_inner().unwrap(), (0..=OTHERS).collect::<Vec<_>>());
}

/// A codec that reads from its source when it begins waits for the memory of that like any other.
#[test]
fn who_begins_with_a_header_of_what_has_no_memory_waits_for_it() {
    let bytes = content(300_000);
    let packed = crate::testing::tool("xz -q -c --format=lzma --lzma1=preset=0", &bytes);
    let packed = [&[9, 20, 5, 0], &packed[..5], &packed[13..]].concat();
    let (twice, _) = deflated(&packed);
    let budget = Budget::new(32 << 20);
    let cache = PieceCache::new(budget.clone());
    let undone = |codec: &str, source: SharedSource, length: usize| {
        let (codec, cache, workers) = (coder_by_name(codec).unwrap(), Arc::clone(&cache), Workers::new(0));
        let coder = crate::CoderContext { decoded_length: Some(length as u64), ..Default::default() };
        let options = Options { coder: coder.clone(), ..Options::default() };
        let context = DecodeContext { coder, ..DecodeContext::default() };
        UnindexedSource::new(of(codec, source, length as u64, None), options, context, cache, workers)
    };
    let input = Arc::new(undone("deflate", Arc::new(MemorySource::new(twice, "a member")), packed.len()));
    let outer = undone("lzma-zip", Arc::clone(&input) as SharedSource, bytes.len()).decoded_from(&[Arc::clone(&input)]);
    // Others have all there is.
    let taken = (budget.take(budget.limit()).unwrap(), budget.alone().unwrap());
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut all = vec![0; bytes.len()];
            outer.read_exact_at(&mut all, 0).map(|()| all)
        });
        // It has begun, and given up what it had.
        while input.pass.wanted.load(Ordering::Relaxed) == 0 && !reader.is_finished() {
            std::thread::yield_now();
        }
        drop(taken);
        assert!(reader.join().unwrap().unwrap() == bytes);
    });
    assert!(lock(&input.pass.pass).is_none() && lock(&input.pass.reserved).is_none());
}

/// Any number of checksums may be wrong in what is served all the same.
#[test]
fn damage_that_is_served_takes_no_memory() {
    const STREAMS: usize = 20_000;
    let mut one = crate::testing::tool("bzip2 -c", b"x");
    // The CRC-32 of its block.
    one[10] ^= 1;
    let source = Arc::new(MemorySource::new(one.repeat(STREAMS), "a member"));
    let (cache, workers) = (PieceCache::new(Budget::new(64 << 20)), Workers::new(0));
    let (codec, options) = (coder_by_name("bzip2").unwrap(), Options::default());
    let context = DecodeContext { unverified: true, ..DecodeContext::default() };
    let member = UnindexedSource::new(of(codec, source, STREAMS as u64, None), options, context, cache, workers);
    while member.position() < STREAMS as u64 / 2 {
        assert!(member.advance().unwrap());
    }
    assert!(lock(&member.pass.pass).as_ref().unwrap().table.damage.is_empty());
    assert!(member.complaint().is_some_and(|what| what.contains("CRC")), "{:?}", member.complaint());
    let mut all = vec![0; STREAMS];
    member.read_exact_at(&mut all, 0).unwrap();
    assert!(all.iter().all(|&byte| byte == b'x') && !member.is_verified());
    all.fill(0);
    member.read_exact_at(&mut all, 0).unwrap();
    assert!(all.iter().all(|&byte| byte == b'x'));
}

/// A block of bzip2 does not say how long it should be: whatever lies behind one that is damaged may be out of step.
#[test]
fn what_may_be_out_of_step_in_a_block_is_not_served() {
    let (first, second) = (content(300_000), content(310_000));
    let third = vec![7; VERIFIED_FIRST as usize];
    let [good, mut wrong, rest] = [&first, &second, &third].map(|bytes| crate::testing::tool("bzip2 -c", bytes));
    // The CRC-32 of its block.
    wrong[10] ^= 1;
    let (packed, all) = ([good, wrong, rest].concat(), [first, second, third].concat());
    for unverified in [false, true] {
        let stored = Arc::new(MemorySource::new(packed.clone(), "a block"));
        let (cache, workers) = (PieceCache::new(Budget::new(64 << 20)), Workers::new(0));
        let (codec, options) = (coder_by_name("bzip2").unwrap(), Options::default());
        let context = DecodeContext { unverified, ..DecodeContext::default() };
        let length = all.len() as u64;
        let new = UnindexedSource::new(of(codec, stored, length, None), options, context, cache, workers);
        let source = new.of_block(true);
        let mut part = vec![0; 1000];
        // While it is decoded, and when it is known.
        for _ in 0..2 {
            for (at, is_right) in [(0, true), (299_000, true), (305_000, false), (610_000, false), (9 << 20, false)] {
                let read = source.read_exact_at(&mut part, at);
                assert_eq!(read.is_ok(), is_right || unverified, "byte {at}: {read:?}");
                assert!(read.is_err() || part == all[at as usize..][..1000], "byte {at}");
                // There is none.
                assert!(!read.is_err_and(|error| error.to_string().contains("index")), "byte {at}");
                let has_flaw = source.flaw_in(at..at + 1000).is_some();
                assert!(has_flaw || is_right || source.out_of_step(at + 1000).is_some(), "byte {at}");
                assert!(!is_right || !has_flaw && source.out_of_step(at + 1000).is_none(), "byte {at}");
            }
            while let Ok(true) = source.advance() {}
        }
        assert!(source.memory() > 0);
    }
}

/// Somebody may read ahead into the damage, or look at a file behind it.
#[test]
fn what_lies_before_damage_in_a_block_is_served_whoever_has_met_it() {
    let bytes = content(20 << 20);
    let (mut packed, _) = deflated(&bytes);
    let place = packed.len() * 3 / 4;
    packed[place..place + 64].fill(0xff);
    for (is_slow, length) in [(true, bytes.len()), (false, bytes.len()), (false, 12 << 20)] {
        let (packed, _) = if length < bytes.len() { deflated(&bytes[..length]) } else { (packed.clone(), 0) };
        // A shorter one is cut.
        let packed = packed[..packed.len() * 9 / 10].to_vec();
        let deflate = coder_by_name("deflate").unwrap();
        let codec: &'static dyn Codec =
            if is_slow { Box::leak(Box::new(Slow(deflate, AtomicUsize::new(0)))) } else { deflate };
        let (cache, workers) = (PieceCache::new(Budget::new(64 << 20)), Workers::new(1));
        let (options, context) = (Options::default(), DecodeContext::default());
        let source = Arc::new(MemorySource::new(packed, "a block"));
        let new = UnindexedSource::new(of(codec, source, length as u64, None), options, context, cache, workers);
        let source = Arc::new(new.of_block(true));
        let mut part = vec![0; 100_000];
        source.read_exact_at(&mut part, 0).unwrap();
        while let Ok(true) = source.advance() {}
        assert!(source.advance().is_err() && source.complaint().is_some() && !source.is_verified());
        for at in [5 << 20, 0, 8 << 20] {
            source.read_exact_at(&mut part, at).unwrap();
            assert!(part == bytes[at as usize..][..part.len()], "{is_slow}, {length}: at {at}");
        }
        for _ in 0..2 {
            let error = source.read_exact_at(&mut part, length as u64 - 100_000).unwrap_err();
            assert!(matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof), "{error}");
        }
        source.read_exact_at(&mut part, 1 << 20).unwrap();
        let is_copy = matches!(source.done.get(), Some(Done::Part(Part::Copied(..), ..)));
        assert_eq!(is_copy, is_slow, "what was copied stays");
    }
}

/// Behind a part of another length than it had, all bytes are in other places, and each fails no check.
#[test]
fn what_lies_behind_a_part_of_another_length_is_not_served() {
    let bytes = content((VERIFIED_FIRST + (1 << 20)) as usize);
    let packed = crate::testing::tool("bzip2 -1 -c", &bytes);
    let mut failed = 0;
    for (place, bit) in [(9000, 3), (9000, 6), (20_000, 0), (30_000, 5)] {
        let mut packed = packed.clone();
        packed[place] ^= 1 << bit;
        let (cache, workers) = (PieceCache::new(Budget::new(64 << 20)), Workers::new(0));
        let (options, context) = (Options::default(), DecodeContext::default());
        let source = Arc::new(MemorySource::new(packed, "a block"));
        let bzip2 = coder_by_name("bzip2").unwrap();
        let new = UnindexedSource::new(of(bzip2, source, bytes.len() as u64, None), options, context, cache, workers);
        let source = new.of_block(true);
        let mut part = vec![0; 64 << 10];
        for at in [1 << 20, 8 << 20, bytes.len() - part.len()] {
            let is_whole = source.read_exact_at(&mut part, at as u64).is_ok()
                && source.flaw_in(at as u64..(at + part.len()) as u64).is_none()
                && source.out_of_step((at + part.len()) as u64).is_none();
            assert!(!is_whole || part == bytes[at..at + part.len()], "bit {bit} of {place}: other bytes at {at}");
            failed += usize::from(!is_whole);
        }
    }
    assert!(failed > 0, "no change has moved anything");
}

/// A codec that says that it is slow, and may begin once.
struct Slow(&'static dyn Codec, AtomicUsize);

impl Codec for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn pace(&self) -> crate::Pace {
        crate::Pace { bytes_per_millisecond: 10_000, in_whole_chunks: false }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn crate::FirstPass>> {
        assert_eq!(self.1.fetch_add(1, Ordering::Relaxed), 0, "it is decoded once");
        assert_eq!(options.seek_point_spacing, u64::MAX);
        self.0.first_pass(source, options)
    }

    fn resume(&self, _: SharedSource, _: &crate::SeekPoint, _: &DecodeContext) -> io::Result<Box<dyn crate::Decoder>> {
        panic!("it is decoded once")
    }
}

/// A codec that makes no seek points, and counts how often it begins.
struct WithoutPoints(&'static dyn Codec, AtomicUsize);

impl Codec for WithoutPoints {
    fn name(&self) -> &'static str {
        "without points"
    }

    fn has_seek_points(&self) -> bool {
        false
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn crate::FirstPass>> {
        assert_eq!(self.1.fetch_add(1, Ordering::Relaxed), 0, "it is decoded once");
        self.0.first_pass(source, options)
    }

    fn resume(&self, _: SharedSource, _: &crate::SeekPoint, _: &DecodeContext) -> io::Result<Box<dyn crate::Decoder>> {
        panic!("it is decoded once")
    }
}
