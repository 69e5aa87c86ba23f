mod talkative;

use std::io::ErrorKind;
use std::sync::atomic::AtomicUsize;
use std::thread;

use tarnfs_source::testing::{Fault, FaultySource, When};
use tarnfs_source::{Budget, Limits, MemorySource};

use super::*;
use crate::engine::{PieceCache, Table, Workers};
use crate::testing::{noise, tool};
use crate::{Decoder, Findings, SeekPoint, by_name};

/// A stream of frames, blocks or members as another program lists them: without checksums.
struct Foreign {
    codec: &'static dyn Codec,
    decoded: Vec<u8>,
    stream: Vec<u8>,
    table: Table,
}

const LENGTH: usize = 1_000_000;
const PART: usize = 300_000;

impl Foreign {
    /// Of parts that are compressed one by one.
    fn of_parts(codec: &str, command: &str) -> Self {
        let decoded = noise(LENGTH);
        let (mut stream, mut chunks) = (Vec::new(), Vec::new());
        for (number, part) in decoded.chunks(PART).enumerate() {
            let point = SeekPoint {
                compressed_bit: 8 * stream.len() as u64,
                decoded: (number * PART) as u64,
                state: Vec::new(),
            };
            chunks.push(Chunk { point, length: part.len() as u64, checksums: Vec::new() });
            stream.extend(tool(command, part));
        }
        Self { codec: by_name(codec).unwrap(), decoded, stream, table: Table { chunks, damage: Vec::new() } }
    }

    /// Of the blocks of one xz stream.
    fn of_xz(options: &str) -> Self {
        let decoded = noise(LENGTH);
        let stream = tool(&format!("xz -q -c -0 --block-size={PART} {options}"), &decoded);
        let codec = by_name("xz").unwrap();
        // Only where blocks begin.
        let options = Options { seek_point_spacing: u64::MAX, ..Options::default() };
        let mut table = Table::of(codec, crate::testing::source(&stream), &options).unwrap();
        table.chunks.iter_mut().for_each(|chunk| chunk.checksums.clear());
        assert_eq!(table.chunks.len(), LENGTH.div_ceil(PART));
        Self { codec, decoded, stream, table }
    }

    /// Of the blocks of bzip2, most of which begin inside of a byte. One of its streams holds nothing.
    fn of_bzip2() -> Self {
        let decoded = noise(LENGTH);
        let parts = [&decoded[..PART], &[], &decoded[PART..]];
        let stream = parts.map(|part| tool("bzip2 -c -1", part)).concat();
        let codec = by_name("bzip2").unwrap();
        let mut table = Table::of(codec, crate::testing::source(&stream), &Options::default()).unwrap();
        for chunk in &mut table.chunks {
            chunk.checksums.clear();
            chunk.point.state.clear();
        }
        assert!(table.chunks.len() > 8, "{}", table.chunks.len());
        assert!(table.chunks.iter().any(|chunk| !chunk.point.compressed_bit.is_multiple_of(8)));
        Self { codec, decoded, stream, table }
    }

    fn of_gzip() -> Self {
        Self::of_gzip_with(noise(LENGTH))
    }

    fn of_gzip_with(decoded: Vec<u8>) -> Self {
        let stream = tool("gzip -c -1", &decoded);
        let codec = by_name("gzip").unwrap();
        let options = Options { seek_point_spacing: PART as u64, ..Options::default() };
        let mut table = Table::of(codec, crate::testing::source(&stream), &options).unwrap();
        table.chunks.iter_mut().for_each(|chunk| chunk.checksums.clear());
        assert!(table.chunks.len() > 2);
        Self { codec, decoded, stream, table }
    }

    fn all() -> Vec<Self> {
        vec![
            Self::of_xz("--check=crc32"),
            Self::of_xz("--check=crc64"),
            Self::of_xz("--check=sha256"),
            Self::of_parts("zstd", "zstd -q -c --check"),
            Self::of_parts("lz4", "lz4 -q -c"),
            Self::of_parts("lz4", "lz4 -q -c -BX -BD --no-frame-crc"),
            Self::of_parts("lzip", "lzip -c"),
            Self::of_xz("--check=none"),
        ]
    }

    fn open_from(&self, source: SharedSource, budget: usize, workers: usize) -> Arc<DecodedSource> {
        let cache = PieceCache::new(Budget::new(budget));
        let table = Arc::new(self.table.clone());
        DecodedSource::new(self.codec, source, table, cache, Workers::new(workers), Limits::default())
    }

    fn source(&self, change: impl FnOnce(&mut Vec<u8>)) -> SharedSource {
        let mut stream = self.stream.clone();
        change(&mut stream);
        Arc::new(MemorySource::new(stream, "foreign"))
    }

    fn open(&self, change: impl FnOnce(&mut Vec<u8>)) -> Arc<DecodedSource> {
        self.open_from(self.source(change), 64 << 20, 0)
    }

    /// True if these bytes can be read. Wrong ones cannot.
    #[track_caller]
    fn reads(&self, source: &DecodedSource, offset: usize, length: usize) -> bool {
        let mut buffer = vec![0; length];
        match source.read_exact_at(&mut buffer, offset as u64) {
            Ok(()) => {
                let name = self.codec.name();
                assert!(buffer == self.decoded[offset..offset + length], "{name}: wrong bytes at {offset}");
                true
            }
            Err(error) => {
                assert!(is_damage(&error), "{error}");
                false
            }
        }
    }
}

#[test]
fn whole_chunks_are_read_and_verified_once() {
    for foreign in Foreign::all() {
        for (budget, workers) in [(64 << 20, 0), (64 << 20, 2), (0, 0)] {
            let source = foreign.open_from(foreign.source(|_| {}), budget, workers);
            for offset in [PART + 1000, 10, LENGTH - 5, 2 * PART + 200_000, PART - 3] {
                assert!(foreign.reads(&source, offset, 5), "{}: byte {offset}", foreign.codec.name());
            }
            for offset in (0..LENGTH).step_by(50_000) {
                assert!(foreign.reads(&source, offset, 50_000), "{}: byte {offset}", foreign.codec.name());
            }
            if budget > 0 {
                // With room in the cache nothing is decoded a second time.
                assert_eq!(source.statistics().decoded_bytes, LENGTH as u64, "{}", foreign.codec.name());
            }
        }
    }
}

#[test]
fn no_byte_of_a_chunk_is_read_before_its_check() {
    for foreign in Foreign::all() {
        if foreign.codec.name() == "xz" && foreign.stream[7] == 0 {
            // Nothing in it could tell.
            continue;
        }
        let second = (foreign.table.chunks[1].point.compressed_bit / 8) as usize;
        let third = (foreign.table.chunks[2].point.compressed_bit / 8) as usize;
        // In the data, and (but for the alignment of xz) in the check at the end.
        for at in [second + PART / 2, third - 200, third - 2] {
            let source = foreign.open(|stream| stream[at] ^= 4);
            let what = format!("{}: byte {at} of {second}..{third}", foreign.codec.name());
            for _ in 0..2 {
                for offset in [PART, PART + 1000, 2 * PART - 10] {
                    assert!(!foreign.reads(&source, offset, 10), "{what}");
                }
                assert!(foreign.reads(&source, 5, PART - 5), "{what}");
                assert!(foreign.reads(&source, 2 * PART, 2 * PIECE), "{what}");
            }
        }
    }
}

#[test]
fn a_chunk_that_is_not_what_the_table_says_is_an_error() {
    for mut foreign in Foreign::all() {
        // One block is not listed: its bytes are taken for part of the one before.
        let left_out = foreign.table.chunks.remove(1);
        foreign.table.chunks[0].length += left_out.length;
        assert!(foreign.reads(&foreign.open(|_| {}), 10, 2 * PART - 10), "{}", foreign.codec.name());
        // Its bytes are nowhere.
        foreign.table.chunks[0].length -= left_out.length;
        let source = foreign.open(|_| {});
        assert!(!foreign.reads(&source, 10, 10) && !foreign.reads(&source, PART + 10, 10), "{}", foreign.codec.name());
        assert!(foreign.reads(&source, 2 * PART + 10, 10), "{}", foreign.codec.name());
        for change in [-1, 1] {
            let chunk = &mut foreign.table.chunks[2];
            (chunk.point.decoded, chunk.length) =
                (chunk.point.decoded.wrapping_add_signed(change), chunk.length.wrapping_add_signed(-change));
            let chunk = &mut foreign.table.chunks[1];
            chunk.length = chunk.length.wrapping_add_signed(change);
            let source = foreign.open(|_| {});
            assert!(!foreign.reads(&source, 2 * PART + 10, 10), "{}", foreign.codec.name());
            foreign.table.chunks[1].length = PART as u64;
            foreign.table.chunks[2].length = (LENGTH - 3 * PART) as u64;
            foreign.table.chunks[2].point.decoded = 3 * PART as u64;
        }
    }
}

/// What is said, and what a table says then.
type Lie = (&'static str, fn(&mut [Chunk]));

/// The CRC of a block says nothing of where it lies.
#[test]
fn a_block_that_is_right_is_not_believed_to_lie_where_the_table_says() {
    let mut foreign = Foreign::of_bzip2();
    let source = foreign.open(|_| {});
    for offset in (0..LENGTH - 10).rev().step_by(50_001) {
        assert!(foreign.reads(&source, offset, 10), "byte {offset}");
    }
    assert!(foreign.reads(&source, 0, LENGTH));
    assert_eq!(source.statistics().decoded_bytes, LENGTH as u64);

    let right = foreign.table.clone();
    let inside = |number: usize| right.chunks[number].point.decoded as usize + 600;
    let lies: [Lie; 4] = [
        ("a later byte", |chunks| {
            (chunks[5].point.decoded, chunks[5].length) = (chunks[5].point.decoded + 512, chunks[5].length - 512);
            chunks[4].length += 512;
        }),
        ("an earlier byte", |chunks| {
            (chunks[5].point.decoded, chunks[5].length) = (chunks[5].point.decoded - 512, chunks[5].length + 512);
            chunks[4].length -= 512;
        }),
        ("a later bit", |chunks| chunks[5].point.compressed_bit += 1),
        ("the block before", |chunks| chunks[5].point.compressed_bit = chunks[4].point.compressed_bit),
    ];
    for (what, lie) in lies {
        lie(&mut foreign.table.chunks);
        // Each by a reader that has read nothing before: one that goes on needs no seek point.
        for number in [5, 4] {
            let is_read = foreign.reads(&foreign.open(|_| {}), inside(number), 10);
            assert!(!is_read, "{what}: {number}");
        }
        // What lies beside them is as the table says. The third is what was left for the end of its stream: short.
        for number in [6, 3, 2] {
            let beside = right.chunks[number].point.decoded as usize + 10;
            assert!(foreign.reads(&foreign.open(|_| {}), beside, 10), "{what}: {number}");
        }
        foreign.table = right.clone();
    }
    // Nor is a block whose CRC is wrong.
    let at = right.chunks[5].point.compressed_bit as usize / 8 + 5000;
    for number in [6, 5, 4] {
        let source = foreign.open(|stream| stream[at] ^= 4);
        assert_eq!(foreign.reads(&source, inside(number), 10), number != 5, "{number}");
    }
}

#[test]
fn what_cannot_be_read_now_is_not_damaged_for_ever() {
    for foreign in Foreign::all() {
        for fault in [Fault::Error(5), Fault::Nothing, Fault::Half] {
            for number in 1.. {
                let source = Arc::new(FaultySource::new(foreign.source(|_| {}), fault, When::At(number)));
                let opened = foreign.open_from(Arc::clone(&source) as SharedSource, 64 << 20, 0);
                let mut buffer = [0; 10];
                let _ = opened.read_exact_at(&mut buffer, PART as u64 + 10);
                assert!(foreign.reads(&opened, PART + 10, 10), "{}, {fault:?} {number}", foreign.codec.name());
                if !source.has_struck() {
                    break;
                }
            }
        }
    }
}

#[test]
fn readers_wait_for_one_who_verifies() {
    let foreign = Foreign::of_xz("");
    for budget in [64 << 20, 1000] {
        let source = foreign.open_from(foreign.source(|_| {}), budget, 1);
        thread::scope(|scope| {
            for reader in 0..8 {
                let (foreign, source) = (&foreign, &source);
                scope.spawn(move || {
                    for step in 0..20 {
                        assert!(foreign.reads(source, (reader * 77_777 + step * 131_071) % (LENGTH - 10), 10));
                    }
                });
            }
        });
    }
}

/// How often the whole was asked to be verified.
struct Asked(AtomicUsize);

impl Prover for Asked {
    fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn wait(&self, _: &dyn Fn() -> bool) -> io::Result<()> {
        self.begin();
        Err(ErrorKind::TimedOut.into())
    }
}

fn asked(source: &DecodedSource) -> Arc<Asked> {
    let asked = Arc::new(Asked(AtomicUsize::new(0)));
    source.proven_by(Arc::<Asked>::clone(&asked));
    asked
}

#[test]
fn the_whole_is_verified_where_no_part_can_be() {
    let foreign = Foreign::of_gzip();
    let source = foreign.open(|_| {});
    let times = asked(&source);
    assert!(foreign.reads(&source, 10, 10));
    assert_eq!(times.0.load(Ordering::Relaxed), 1);
    assert_eq!(source.verify(&|| false).unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(source.proving().run(&|| ()).unwrap(), Proven::Right);
    assert!(!source.is_ready(10, 10), "what nobody had verified is gone");
    assert!(foreign.reads(&source, 0, LENGTH));
    source.verify(&|| false).unwrap();
    assert_eq!(times.0.load(Ordering::Relaxed), 2, "nothing more is asked for");
    // What can be verified in parts never asks.
    let foreign = Foreign::of_xz("");
    let source = foreign.open(|_| {});
    let times = asked(&source);
    assert!(foreign.reads(&source, 0, LENGTH));
    assert_eq!(times.0.load(Ordering::Relaxed), 0);
}

/// A gzip stream that readers wait for.
fn short() -> Foreign {
    let foreign = Foreign::of_gzip_with(noise(LONGEST_WAIT as usize));
    assert_eq!(foreign.table.decoded_length(), LONGEST_WAIT);
    foreign
}

#[test]
fn a_short_stream_is_verified_before_its_first_byte_is_read() {
    let foreign = short();
    let length = foreign.decoded.len();
    for workers in [0, 2] {
        let source = foreign.open_from(foreign.source(|_| {}), 64 << 20, workers);
        let times = asked(&source);
        thread::scope(|scope| {
            for reader in 0..4 {
                let (foreign, source) = (&foreign, &source);
                scope.spawn(move || {
                    for step in 0..20 {
                        assert!(foreign.reads(source, (reader * 77_777 + step * 131_071) % (length - 10), 10));
                    }
                });
            }
        });
        assert!(source.inner.proofs.is_whole());
        assert_eq!(times.0.load(Ordering::Relaxed), 0, "nobody else is asked for it");
        let source = foreign.open_from(foreign.source(|_| {}), 64 << 20, workers);
        for offset in (0..length).step_by(50_000) {
            assert!(foreign.reads(&source, offset, 50_000));
        }
        // Once to verify it, once to read it.
        assert!(workers > 0 || source.statistics().decoded_bytes == length as u64);
    }
}

#[test]
fn a_short_stream_that_is_damaged_is_never_read() {
    let foreign = short();
    let (length, last) = (foreign.decoded.len(), foreign.stream.len());
    // In stored or literal bytes, in the CRC, in the length.
    for at in [last / 2, last - 7, last - 2] {
        for workers in [0, 2] {
            let source = foreign.open_from(foreign.source(|stream| stream[at] ^= 4), 64 << 20, workers);
            source.prefetch(0, length as u64);
            for offset in (0..length).step_by(50_000) {
                assert!(!foreign.reads(&source, offset, 50_000), "byte {at}: {offset}");
            }
        }
    }
    // A cut says of nothing before it that it is wrong.
    let source = foreign.open(|stream| stream.truncate(last / 2));
    assert!(!foreign.reads(&source, length - 10, 10) && foreign.reads(&source, 10, 10));
}

#[test]
fn a_short_stream_that_cannot_be_read_now_is_verified_later() {
    let foreign = short();
    for fault in [Fault::Error(5), Fault::Nothing, Fault::Half] {
        let faulty = Arc::new(FaultySource::new(foreign.source(|_| {}), fault, When::At(2)));
        let source = foreign.open_from(Arc::clone(&faulty) as SharedSource, 64 << 20, 0);
        assert!(source.read_at(&mut [0; 10], 10).is_err() && faulty.has_struck());
        assert!(!source.inner.proofs.is_whole());
        assert!(foreign.reads(&source, 10, 10));
    }
}

#[test]
fn a_stream_says_whether_it_is_unproven() {
    let (long, short) = (Foreign::of_gzip(), short());
    let source = long.open(|_| {});
    assert!(source.is_unproven());
    assert_eq!(source.proving().run(&|| ()).unwrap(), Proven::Right);
    assert!(!source.is_unproven());
    for foreign in [short, Foreign::of_xz("")] {
        assert!(!foreign.open(|_| {}).is_unproven());
    }
    let mut own = Foreign::of_gzip();
    own.table
        .chunks
        .iter_mut()
        .for_each(|chunk| chunk.checksums = vec![0; chunk.length.div_ceil(PIECE as u64) as usize]);
    assert!(!own.open(|_| {}).is_unproven());
}

/// A short frame, and behind it one that is too long to wait for.
fn short_and_long() -> Foreign {
    let mut foreign = Foreign::of_parts("zstd", "zstd -q -c --check");
    foreign.table.chunks.truncate(1);
    foreign.stream.truncate(0);
    foreign.decoded.truncate(PART);
    foreign.stream.extend(tool("zstd -q -c --check", &foreign.decoded));
    let (length, long) = (LONGEST_WAIT + 1, noise(LONGEST_WAIT as usize + 1));
    let point =
        SeekPoint { compressed_bit: 8 * foreign.stream.len() as u64, decoded: PART as u64, ..SeekPoint::default() };
    foreign.table.chunks.push(Chunk { point, length, checksums: Vec::new() });
    foreign.stream.extend(tool("zstd -q -c --check", &long));
    foreign.decoded.extend(long);
    foreign
}

#[test]
fn one_chunk_that_is_too_long_makes_a_stream_unproven() {
    let foreign = short_and_long();
    let source = foreign.open(|_| {});
    assert!(source.is_unproven() && foreign.reads(&source, 10, 10));
    assert!(source.is_unproven() && foreign.reads(&source, PART + 10, 10));
    assert_eq!(source.proving().run(&|| ()).unwrap(), Proven::Right);
    assert!(!source.is_unproven());
}

#[test]
fn a_table_that_cannot_be_read_or_is_too_long_is_unproven() {
    let mut foreign = Foreign::of_xz("");
    assert!(!foreign.open(|_| {}).is_unproven());
    // A seek point behind the end of the stream.
    foreign.table.chunks[1].point.compressed_bit = u64::MAX;
    assert!(foreign.open(|_| {}).is_unproven());
    let chunk = |start: u64| Chunk {
        point: SeekPoint { decoded: start, ..SeekPoint::default() },
        length: 800,
        checksums: Vec::new(),
    };
    let mut foreign = Foreign::of_parts("zstd", "zstd -q -c --check");
    foreign.table.chunks = (0..MOST_LOOKED_AT as u64).map(|number| chunk(800 * number)).collect();
    assert!(!foreign.open(|_| {}).is_unproven());
    foreign.table.chunks.push(chunk(800 * MOST_LOOKED_AT as u64));
    assert!(foreign.open(|_| {}).is_unproven());
}

#[test]
fn checksums_of_the_whole_are_taken_from_the_budget() {
    let mut foreign = Foreign::of_gzip();
    // Where the chunks begin in the stream does not matter to a pass over all of it.
    let chunk = |start: u64| Chunk {
        point: SeekPoint { decoded: start, ..SeekPoint::default() },
        length: 1000,
        checksums: Vec::new(),
    };
    foreign.table.chunks = (0..LENGTH as u64).step_by(1000).map(chunk).collect();
    let needed = foreign.table.chunks.len() * (size_of::<u32>() + OVERHEAD);
    assert!(needed > 2 * GRANTED_TOGETHER);
    // A piece in the cache goes.
    let source = foreign.open_from(foreign.source(|_| {}), 4 * needed, 0);
    let budget = source.inner.cache.budget().clone();
    let piece = Arc::new(source.inner.cache.pool.piece(PIECE));
    source.inner.cache.insert(source.inner.stream(), 0, &piece);
    let others = budget.take(budget.limit() - budget.used()).unwrap();
    let error = source.proving().run(&|| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    drop((others, piece));
    assert_eq!(source.proving().run(&|| ()).unwrap(), Proven::Right);
    assert!(budget.used() >= needed, "{} of {needed}", budget.used());
    drop(source);
    assert_eq!(budget.used(), 0);
}

#[test]
fn what_the_whole_shows_to_be_wrong_is_an_error_from_then_on() {
    let foreign = Foreign::of_gzip();
    let last = foreign.stream.len();
    // In stored or literal bytes, in the CRC, in the length, and behind a cut.
    for at in [last / 2, last - 7, last - 2] {
        let source = foreign.open(|stream| stream[at] ^= 4);
        let Proven::Damaged(damage) = source.proving().run(&|| ()).unwrap() else { panic!("byte {at} is believed") };
        assert!(!damage.decoded.is_empty(), "{damage:?}");
        let mut buffer = [0; 10];
        let error = source.read_at(&mut buffer, LENGTH as u64 / 2 + 100_000).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
    let source = foreign.open(|stream| stream.truncate(last / 2));
    assert!(matches!(source.proving().run(&|| ()).unwrap(), Proven::Damaged(_)));
    assert!(foreign.reads(&source, 10, 10) && !foreign.reads(&source, LENGTH - 10, 10));
}

#[test]
fn behind_a_gap_in_the_table_nothing_is_believed() {
    let mut foreign = Foreign::of_gzip();
    let left_out = foreign.table.chunks.remove(1).point.decoded;
    let source = foreign.open(|_| {});
    let Proven::Damaged(damage) = source.proving().run(&|| ()).unwrap() else { panic!("a gap is believed") };
    assert_eq!(damage.decoded, left_out..LENGTH as u64);
    assert!(foreign.reads(&source, 0, left_out as usize) && !foreign.reads(&source, LENGTH - 10, 10));
}

#[test]
fn a_window_that_lies_is_found_once_the_whole_was_verified() {
    let mut foreign = Foreign::of_gzip();
    // The chunk begins where another one does.
    let other = foreign.table.chunks[2].point.clone();
    let point = &mut foreign.table.chunks[1].point;
    (point.compressed_bit, point.state) = (other.compressed_bit, other.state);
    let at = point.decoded as usize;
    let source = foreign.open(|_| {});
    assert_eq!(source.proving().run(&|| ()).unwrap(), Proven::Right);
    assert!(!foreign.reads(&source, at, 10) && foreign.reads(&source, 0, 10));
}

#[test]
fn a_pass_over_the_whole_that_cannot_read_says_nothing_of_it() {
    let foreign = Foreign::of_gzip();
    for fault in [Fault::Error(5), Fault::Nothing, Fault::Half] {
        for number in 1.. {
            let faulty = Arc::new(FaultySource::new(foreign.source(|_| {}), fault, When::At(number)));
            let source = foreign.open_from(Arc::clone(&faulty) as SharedSource, 64 << 20, 0);
            let ended = source.proving().run(&|| ());
            if !faulty.has_struck() {
                break;
            }
            assert!(ended.is_err(), "{fault:?} {number}: {ended:?}");
            assert_eq!(source.proving().run(&|| ()).unwrap(), Proven::Right);
            assert!(foreign.reads(&source, LENGTH - 10, 10));
        }
    }
}

#[test]
fn nobody_goes_on_for_a_stream_that_is_closed() {
    let foreign = Foreign::of_gzip();
    let source = foreign.open(|_| {});
    let proving = source.proving();
    drop(source);
    assert_eq!(proving.run(&|| ()).unwrap(), Proven::Abandoned);
}

#[test]
fn what_was_decoded_before_an_invalid_block_is_not_believed() {
    // Blocks with Huffman codes, not stored ones: what is damaged decodes to something else.
    let decoded = (0_u32..).flat_map(|number| format!("{}\n", number.wrapping_mul(2_654_435_761)).into_bytes());
    let foreign = Foreign::of_gzip_with(decoded.take(LENGTH).collect());
    let length = foreign.stream.len();
    let invalid = foreign.table.chunks[2].point.compressed_bit as usize;
    let mut garbage = 0;
    for at in (length / 20..length / 4).step_by(length / 50) {
        let damage = |stream: &mut Vec<u8>| {
            stream[at] ^= 4;
            // There is no block of type 3.
            for bit in [invalid + 1, invalid + 2] {
                stream[bit / 8] |= 1 << (bit % 8);
            }
        };
        let mut pass = foreign.codec.first_pass(foreign.source(damage), &Options::default()).unwrap();
        let (mut piece, mut before) = (vec![0; 1000], Vec::<u8>::new());
        let error = loop {
            match pass.read(&mut piece) {
                Ok(0) => panic!("byte {at}: the stream goes on to its end"),
                Ok(read) => before.extend(&piece[..read]),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        let wrong = before.iter().zip(&foreign.decoded).position(|(one, other)| one != other).unwrap();
        garbage += usize::from(before.len() - wrong > 2 * PIECE);
        let source = foreign.open(damage);
        let Proven::Damaged(damage) = source.proving().run(&|| ()).unwrap() else { panic!("byte {at} is believed") };
        for offset in (0..LENGTH).step_by(50_000) {
            assert!(!foreign.reads(&source, offset, 50_000), "byte {at}: {offset}");
        }
        assert_eq!(damage.decoded.start, 0, "the member from its start: {damage:?}");
    }
    assert!(garbage > 0, "garbage came before the invalid block");
}

#[test]
fn what_was_decoded_of_the_chunk_in_which_the_stream_is_cut_has_checksums() {
    let mut foreign = Foreign::of_gzip();
    // The chunk leads to the start of the stream.
    let point = &mut foreign.table.chunks[1].point;
    (point.compressed_bit, point.state) = (0, Vec::new());
    let at = point.decoded as usize;
    // Noise is about as long when compressed: the cut is behind the first piece of the chunk.
    let source = foreign.open(|stream| stream.truncate(at + PIECE * 3 / 2));
    let Proven::Damaged(damage) = source.proving().run(&|| ()).unwrap() else { panic!("a cut is believed") };
    assert_eq!(damage.decoded, (at + PIECE) as u64..LENGTH as u64);
    // In this order: a decoder that comes from the chunk before would go on there.
    assert!(!foreign.reads(&source, at, 10) && foreign.reads(&source, 0, at));
}

#[test]
fn what_has_no_checksum_once_the_whole_was_verified_is_an_error() {
    for foreign in [Foreign::of_gzip(), Foreign::of_xz("")] {
        let source = foreign.open(|_| {});
        let first = foreign.table.chunks[0].clone();
        let chunk = Arc::new(foreign.table.chunks[1].clone());
        source.inner.install(Found::default());
        assert!(!foreign.reads(&source, 10, 10) && !foreign.reads(&source, PART + PIECE, 10));
        // One of its pieces has one.
        let bytes = &foreign.decoded[..PIECE];
        let checksums = vec![(first.point.decoded, [checksum(bytes, 0)].into())];
        source.inner.install(Found { checksums, ..Found::default() });
        assert!(foreign.reads(&source, 10, 10) && !foreign.reads(&source, PIECE + 10, 10));
        assert!(source.inner.proven(chunk, PART as u64 + 10).is_err());
    }
}

#[test]
fn a_table_that_ends_before_the_check_is_not_believed() {
    let mut foreign = Foreign::of_gzip();
    foreign.table.chunks.pop();
    let length = foreign.table.decoded_length();
    for damage in [0, 4] {
        let source = foreign.open(|stream| stream[PART / 2] ^= damage);
        let Proven::Damaged(damage) = source.proving().run(&|| ()).unwrap() else { panic!("the end is believed") };
        assert_eq!(damage.decoded, 0..length);
        assert!(!foreign.reads(&source, PART / 2 - 1000, 2000));
    }
}

#[test]
fn a_member_whose_check_is_cut_is_not_believed() {
    for (foreign, start) in [(Foreign::of_gzip(), 0), (Foreign::of_parts("gzip", "gzip -c -1"), LENGTH / PART * PART)] {
        let length = foreign.stream.len();
        for cut in [1, 4, 5, 8] {
            let source = foreign.open(|stream| {
                stream[length - 1000] ^= 4;
                stream.truncate(length - cut);
            });
            let Proven::Damaged(damage) = source.proving().run(&|| ()).unwrap() else {
                panic!("{cut} bytes are not missed")
            };
            assert_eq!(damage.decoded, start as u64..LENGTH as u64, "{damage:?}");
            assert!(!foreign.reads(&source, start, 10) && !foreign.reads(&source, LENGTH - 2000, 2000));
            assert!(start == 0 || foreign.reads(&source, 0, start));
        }
    }
}

#[test]
fn nothing_is_pushed_out_of_what_the_whole_has_shown() {
    let foreign = Foreign::of_gzip();
    for was_installed in [false, true] {
        let source = foreign.open_from(foreign.source(|_| {}), 0, 0);
        let (inner, proofs) = (&source.inner, &source.inner.proofs);
        let checksums = |start: u64| (start, Box::from([7, 8]));
        if was_installed {
            inner.install(Found { checksums: (0..10).map(checksums).collect(), ..Found::default() });
        } else {
            lock(&proofs.state).checksums.extend((0..10).map(|start| (start, (Box::from([7, 8]), None))));
        }
        // Who verified this chunk for itself ends after the whole was decoded.
        proofs.add(10, &[9], inner);
        let left = (0..10).filter(|&start| proofs.checksum(start, 1) == Some(8)).count();
        assert_eq!(left == 10, was_installed, "{left} are left");
    }
}

/// A first pass that has only found damage.
struct OnlyDamage(crate::Findings);

impl crate::Decoder for OnlyDamage {
    fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
        Ok(0)
    }

    fn memory(&self) -> usize {
        0
    }
}

impl FirstPass for OnlyDamage {
    fn findings(&mut self) -> Option<&mut crate::Findings> {
        Some(&mut self.0)
    }

    fn compressed_position(&self) -> u64 {
        0
    }
}

#[test]
fn damage_in_very_many_places_takes_bounded_memory_and_all_of_it_counts() {
    let mut pass = OnlyDamage(crate::Findings::default());
    let mut found = Found::default();
    let places = 3 * MOST_DAMAGE as u64;
    for at in 0..places {
        let decoded = at * 10..at * 10 + 1;
        let (lost_from, what) = (decoded.end, "a test".to_owned());
        pass.0.damage.push(Damage { decoded, lost_from, compressed: 0, compressed_from: 0, what });
        found.take_damage(&mut pass);
    }
    assert_eq!(found.damage.len(), MOST_DAMAGE);
    let is_damaged = |at: u64| found.damage.iter().any(|damage| damage.decoded.contains(&at));
    assert!((0..places).step_by(997).all(|place| is_damaged(place * 10)));
    assert!(is_damaged((places - 1) * 10) && !is_damaged(5));
}
