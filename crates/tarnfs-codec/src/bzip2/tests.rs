//! Against `bzip2`, `lbzip2` and `pbzip2` and the `bzip2` crate, and against blocks made by hand ([`encoder`]).

mod damaged;
mod encoder;
mod handmade;

use std::io::{Read, Write};
use std::ops::Range;
use std::process::{Command, Stdio};
use std::sync::Arc;

use proptest::prelude::*;
use tarnfs_source::MemorySource;

use super::*;
use crate::Damage;
use crate::testing::{CancelledBehind, source, tool};

/// What came of a first pass, or of a resumption (without points and damage).
#[derive(Debug, Default)]
struct Outcome {
    bytes: Vec<u8>,
    points: Vec<SeekPoint>,
    damage: Vec<Damage>,
    error: Option<io::ErrorKind>,
    message: String,
}

impl Outcome {
    fn is_whole(&self) -> bool {
        self.error.is_none() && self.damage.is_empty()
    }
}

fn memory(bytes: &[u8]) -> SharedSource {
    Arc::new(MemorySource::new(bytes, "a test"))
}

/// On one thread and on several, which must not differ.
fn first_pass(compressed: &[u8]) -> Outcome {
    let outcome = first_pass_on(1, compressed);
    for threads in [2, 4] {
        let parallel = first_pass_on(threads, compressed);
        assert!(parallel.bytes == outcome.bytes, "{threads} threads: other bytes");
        assert_eq!(parallel.points, outcome.points, "{threads} threads");
        assert_eq!(parallel.damage, outcome.damage, "{threads} threads");
        assert_eq!((parallel.error, parallel.message), (outcome.error, outcome.message.clone()), "{threads} threads");
    }
    outcome
}

fn first_pass_on(threads: usize, compressed: &[u8]) -> Outcome {
    let mut outcome = Outcome::default();
    let options = Options { threads, ..Options::default() };
    let mut pass = Bzip2.first_pass(memory(compressed), &options).unwrap();
    let mut buffer = vec![0; 100_000];
    loop {
        let result = pass.read(&mut buffer);
        // Only points at or before what has been returned may be known.
        let known = outcome.points.len();
        pass.take_points(&mut outcome.points);
        let returned = outcome.bytes.len() as u64;
        assert!(outcome.points[known..].iter().all(|point| point.decoded <= returned));
        pass.take_damage(&mut outcome.damage);
        assert!(pass.compressed_position() <= compressed.len() as u64);
        match result {
            Ok(0) => break,
            Ok(count) => outcome.bytes.extend_from_slice(&buffer[..count]),
            Err(error) => {
                (outcome.error, outcome.message) = (Some(error.kind()), error.to_string());
                assert!(pass.read(&mut buffer).is_err(), "a decoder that failed goes on");
                break;
            }
        }
    }
    assert!(outcome.points.is_sorted_by(|a, b| a.compressed_bit < b.compressed_bit && a.decoded < b.decoded));
    outcome
}

/// Reads at most `most` bytes from `point` on.
fn resume(compressed: &[u8], point: &SeekPoint, most: usize) -> Outcome {
    let mut outcome = Outcome::default();
    let mut decoder = match Bzip2.resume(memory(compressed), point, &DecodeContext::default()) {
        Ok(decoder) => decoder,
        Err(error) => return Outcome { error: Some(error.kind()), ..outcome },
    };
    outcome.error =
        decoder.by_ref_reader().take(most as u64).read_to_end(&mut outcome.bytes).err().map(|error| error.kind());
    outcome
}

/// `std::io::Read` for a decoder.
struct AsRead<'a>(&'a mut dyn Decoder);

impl Read for AsRead<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

trait ByRefReader {
    fn by_ref_reader(&mut self) -> AsRead<'_>;
}

impl ByRefReader for Box<dyn Decoder> {
    fn by_ref_reader(&mut self) -> AsRead<'_> {
        AsRead(self.as_mut())
    }
}

/// Runs a program with `input` and returns its output.
fn pipe(program: &str, arguments: &[&str], input: &[u8]) -> (bool, Vec<u8>) {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join();
    (output.status.success(), output.stdout)
}

fn compress(program: &str, arguments: &[&str], plain: &[u8]) -> Vec<u8> {
    let (worked, compressed) = pipe(program, arguments, plain);
    assert!(worked, "{program} {arguments:?}");
    compressed
}

/// Bytes that look random and are the same each time.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect()
}

/// What [`prose`] is cut from.
const WORDS: &[u8] = b"the quick brown fox jumps over a lazy dog, while Seward sorts all of its rotations and writes \
    what comes last; 4711 + 42 = 4753. Zwanzig Boxkaempfer jagen Eva quer ueber den grossen Sylter Deich";

/// Text with a vocabulary, so that it has repetitions near and far.
fn prose(length: usize) -> Vec<u8> {
    let numbers = noise(length, 5);
    let mut text = Vec::with_capacity(length + 100);
    for pair in numbers.chunks(2) {
        let word = usize::from(pair[0]) % 60 * 3;
        text.extend_from_slice(&WORDS[word..word + 5]);
        if pair[0] > 250 {
            text.push(b'\n');
        }
        if text.len() >= length {
            break;
        }
    }
    text.truncate(length);
    text
}

/// Plain data of every kind that takes its own way through the decoder.
fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let runs: Vec<u8> = (0..2000_usize).flat_map(|n| vec![(n * 7) as u8; n % 300]).collect();
    let binary = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    vec![
        ("nothing", Vec::new()),
        ("one byte", b"x".to_vec()),
        ("a word", b"hello".to_vec()),
        ("prose", prose(2_500_000)),
        ("a binary", binary[..binary.len().min(3_000_000)].to_vec()),
        ("zeros", vec![0; 50_000_000]),
        ("noise", noise(1_300_000, 99)),
        ("two symbols in turn", b"ab".repeat(700_000)),
        ("a period of 1000", noise(1000, 3).repeat(1500)),
        ("runs of every length", runs),
        ("exactly a block", noise(99_981, 7)),
    ]
}

/// First pass and resumption of a stream that must be whole.
fn check_whole(what: &str, compressed: &[u8], plain: &[u8]) -> Vec<SeekPoint> {
    let outcome = first_pass(compressed);
    assert_eq!((outcome.error, &outcome.damage), (None, &Vec::new()), "{what}");
    assert!(outcome.bytes == plain, "{what}: other bytes");
    assert_eq!(outcome.points.is_empty(), plain.is_empty(), "{what}");
    assert!(outcome.points.first().is_none_or(|point| point.decoded == 0), "{what}");
    let ends = outcome.points.iter().skip(1).map(|point| point.decoded).chain([plain.len() as u64]);
    for (point, end) in outcome.points.iter().zip(ends) {
        // To the middle of the next block, and once without knowing the level.
        let slice = &plain[point.decoded as usize..plain.len().min(end as usize + 1000)];
        let resumed = resume(compressed, point, slice.len());
        assert!(resumed.error.is_none() && resumed.bytes == slice, "{what}: resumed at {point:?}: {:?}", resumed.error);
        let bare = SeekPoint { state: Vec::new(), ..point.clone() };
        let slice = &plain[point.decoded as usize..end as usize];
        assert!(resume(compressed, &bare, slice.len()).bytes == slice, "{what}: {bare:?}");
        // From somewhere in it.
        let offset = (end - point.decoded) * (point.compressed_bit % 7) / 7;
        let plain = &plain[point.decoded as usize..plain.len().min(end as usize + 1000)];
        let most = plain.len() - offset as usize;
        let (skipped, bytes) = part_of(compressed, point, offset, most).unwrap();
        let right = if skipped { &plain[offset as usize..] } else { plain };
        assert!(bytes.starts_with(&right[..most]), "{what}: {offset} bytes behind {point:?}");
    }
    outcome.points
}

/// What a decoder returns that is resumed at `point` and skips `offset` bytes, if it can: at most `most` bytes.
fn part_of(compressed: &[u8], point: &SeekPoint, offset: u64, most: usize) -> io::Result<(bool, Vec<u8>)> {
    let mut decoder = Bzip2.resume(memory(compressed), point, &DecodeContext::default())?;
    let skipped = decoder.skip(offset)?;
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 10_007];
    while bytes.len() < most {
        match decoder.read(&mut buffer)? {
            0 => break,
            read => bytes.extend_from_slice(&buffer[..read]),
        }
    }
    Ok((skipped, bytes))
}

#[test]
fn a_part_of_a_block_is_read_without_the_rest() {
    // Runs of all lengths among the rest.
    let mut plain = prose(3_000_000);
    for (number, at) in (1000..plain.len() - 1000).step_by(3001).enumerate() {
        plain[at..at + number % 600].fill(b'r');
    }
    let stream = compress("bzip2", &["-9"], &plain);
    let points = check_whole("prose with runs", &stream, &plain);
    assert!(points.iter().all(|point| point.state[0] == 2 && point.state.len() < 1200), "{points:?}");
    for offset in (0..800_000).step_by(7919) {
        let (skipped, bytes) = part_of(&stream, &points[1], offset, 10_000).unwrap();
        assert!(skipped);
        assert!(
            bytes.len() >= 10_000 && plain[(points[1].decoded + offset) as usize..].starts_with(&bytes),
            "{offset}"
        );
    }
    // Behind its end, nothing is skipped.
    assert!(!part_of(&stream, &points[1], 3_000_000, 1).unwrap().0);
}

/// What stands in an index may be anything, and the archive may have changed.
#[test]
fn wrong_marks_are_an_error_or_lead_to_other_bytes() {
    let plain = prose(200_000);
    let stream = compress("bzip2", &["-9"], &plain);
    let points = first_pass(&stream).points;
    let point = &points[0];
    for at in 0..point.state.len() {
        for bit in [0, 7] {
            let mut state = point.state.clone();
            state[at] ^= 1 << bit;
            let changed = SeekPoint { state, ..point.clone() };
            let _ = part_of(&stream, &changed, 100_000, 300_000);
            let _ = part_of(&stream, &SeekPoint { state: point.state[..at].to_vec(), ..point.clone() }, 7, 10_000);
        }
    }
    for at in (4..stream.len()).step_by(97) {
        let mut changed = stream.clone();
        changed[at] ^= 0x10;
        let _ = part_of(&changed, point, 100_000, 300_000);
    }
    let shorter = compress("bzip2", &["-9"], &plain[..190_000]);
    assert!(part_of(&shorter, point, 100_000, 10).is_err(), "it is another block");
}

#[test]
fn decodes_what_bzip2_writes_at_every_level() {
    for (what, plain) in samples() {
        for level in ["-1", "-4", "-9"] {
            check_whole(&format!("{what}, {level}"), &compress("bzip2", &[level, "-c"], &plain), &plain);
        }
    }
    let plain = prose(700_000);
    for level in ["-2", "-3", "-5", "-6", "-7", "-8"] {
        let points = check_whole(level, &compress("bzip2", &[level, "-c"], &plain), &plain);
        // bzip2 leaves 19 bytes of a block unused.
        let size = level[1..].parse::<usize>().unwrap() * 100_000 - 19;
        assert_eq!(points.len(), plain.len().div_ceil(size), "{level}");
    }
}

#[test]
fn decodes_what_parallel_programs_write() {
    for (what, plain) in samples() {
        check_whole(&format!("{what}, lbzip2"), &compress("lbzip2", &["-n2", "-c"], &plain), &plain);
        check_whole(&format!("{what}, pbzip2"), &compress("pbzip2", &["-p2", "-c"], &plain), &plain);
    }
}

#[test]
fn decodes_streams_behind_each_other() {
    let text = prose(150_000);
    let parts: [(&str, &[u8]); 6] =
        [("-9", b""), ("-1", &text), ("-1", b""), ("-9", &text[..70_000]), ("-5", b"end"), ("-1", b"")];
    let mut compressed = Vec::new();
    let mut plain = Vec::new();
    let mut starts = Vec::new();
    for (level, part) in parts {
        starts.push((compressed.len() as u64 * 8, plain.len()));
        compressed.extend(compress("bzip2", &[level, "-c"], part));
        plain.extend_from_slice(part);
    }
    let points = check_whole("streams", &compressed, &plain);
    assert_eq!(points.iter().map(|point| point.state[1]).collect::<Vec<_>>(), [1, 1, 9, 5]);

    // Tables of other programs also point at the start and the end of a stream.
    for (compressed_bit, decoded) in starts {
        let point = SeekPoint { compressed_bit, decoded: decoded as u64, state: Vec::new() };
        assert!(resume(&compressed, &point, usize::MAX).bytes == plain[decoded..]);
    }
    let small = compress("bzip2", &[], b"small");
    let magic = END_MAGIC.to_be_bytes();
    let ends: Vec<u64> = (0..small.len() as u64 * 8 - 48)
        .filter(|&bit| (0..48).all(|n| bit_of(&small, bit + n) == bit_of(&magic, 16 + n)))
        .collect();
    assert_eq!(ends.len(), 1);
    for compressed_bit in [ends[0], small.len() as u64 * 8] {
        let point = SeekPoint { compressed_bit, decoded: 5, state: Vec::new() };
        let outcome = resume(&small, &point, usize::MAX);
        assert_eq!((outcome.bytes, outcome.error), (Vec::new(), None));
    }
}

#[test]
fn a_pass_ends_when_it_is_cancelled_or_dropped() {
    let compressed = compress("bzip2", &["-1", "-c"], &prose(3_000_000));
    for threads in [1, 2, 4] {
        for blocks in 0..5 {
            let options = Options { threads, ..Options::default() };
            let mut pass = Bzip2.first_pass(memory(&compressed), &options).unwrap();
            let mut buffer = vec![0; 100_000];
            for _ in 0..blocks {
                assert!(pass.read(&mut buffer).unwrap() > 0);
            }
            if blocks % 2 == 1 {
                options.cancel.cancel();
                let result = (0..3).try_for_each(|_| pass.read(&mut buffer).map(drop));
                assert_eq!(result.unwrap_err().kind(), io::ErrorKind::Interrupted, "{threads} threads");
            }
        }
    }
}

#[test]
fn memory_stays_bounded_however_many_threads() {
    let compressed = compress("bzip2", &["-9", "-c"], &noise(30_000_000, 3));
    let options = Options { threads: 1000, ..Options::default() };
    let mut pass = Bzip2.first_pass(memory(&compressed), &options).unwrap();
    let (mut buffer, mut most) = (vec![0; 500_000], 0);
    while pass.read(&mut buffer).unwrap() > 0 {
        most = most.max(pass.memory());
    }
    assert!((64 << 20..192 << 20).contains(&most), "{most}");
}

fn bit_of(bytes: &[u8], bit: u64) -> bool {
    bytes[(bit / 8) as usize] >> (7 - bit % 8) & 1 == 1
}

#[test]
fn bids_for_streams_with_and_without_blocks() {
    let full = compress("bzip2", &["-3"], b"text");
    let empty = compress("bzip2", &["-9"], b"");
    assert_eq!((Bzip2.bid(&full), Bzip2.bid(&empty)), (76, 76));
    for other in [b"BZh0".as_slice(), b"BZh91AY", b"", b"BZh91AY&SX..."] {
        assert_eq!(Bzip2.bid(other), 0);
    }
}

#[test]
fn the_corpus_decodes_as_bzip2_does() {
    let root = std::env::var_os("TARNFS_CORPUS").map_or_else(
        || std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus"),
        std::path::PathBuf::from,
    );
    let mut seen = 0;
    for file in std::fs::read_dir(root.join("libarchive")).into_iter().flatten().flatten() {
        let path = file.path();
        if !path.extension().is_some_and(|suffix| suffix == "bz2" || suffix == "tbz") {
            continue;
        }
        let compressed = std::fs::read(&path).unwrap();
        let (whole, expected) = pipe("bzip2", &["-dc"], &compressed);
        let outcome = first_pass(&compressed);
        assert!(outcome.bytes.starts_with(&expected) || expected.starts_with(&outcome.bytes), "{}", path.display());
        if whole {
            assert!(outcome.error.is_none() && outcome.bytes == expected, "{}: {:?}", path.display(), outcome.error);
            // bzip2 ignores what is behind the stream; here it is said.
            assert!(outcome.damage.iter().all(|damage| damage.decoded.is_empty()), "{}", path.display());
        } else {
            assert!(outcome.error.is_some() || !outcome.damage.is_empty(), "{}", path.display());
        }
        seen += 1;
    }
    if seen == 0 {
        println!("no corpus at {}: nothing compared", root.display());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn decodes_what_the_crate_encodes(
        pieces in prop::collection::vec((any::<u8>(), 1..2000_usize, 0..5_u8), 0..40),
        level in 1..=9_u32,
        step in 1..5000_usize,
    ) {
        let mut plain = Vec::new();
        for (byte, length, kind) in pieces {
            match kind {
                0 => plain.extend(std::iter::repeat_n(byte, length)),
                1 => plain.extend(noise(length, u64::from(byte))),
                2 => plain.extend(prose(length)),
                3 => plain.extend((0..length).map(|n| byte.wrapping_add((n / 5) as u8))),
                _ => plain.extend((0..length).map(|n| if n % 7 < 3 { byte } else { 0 })),
            }
        }
        let mut compressed = Vec::new();
        bzip2::read::BzEncoder::new(plain.as_slice(), bzip2::Compression::new(level)).read_to_end(&mut compressed).unwrap();
        let mut decoder = Bzip2.first_pass(memory(&compressed), &Options::default()).unwrap();
        let mut bytes = Vec::new();
        let mut buffer = vec![0; step];
        loop {
            let count = decoder.read(&mut buffer).unwrap();
            if count == 0 {
                break;
            }
            bytes.extend_from_slice(&buffer[..count]);
        }
        prop_assert!(bytes == plain);
    }
}

#[test]
fn streams_of_nothing_can_be_cancelled() {
    let file = tool("bzip2 -c", b"").repeat(200_000);
    let cancel = tarnfs_source::Cancel::default();
    let options = Options { cancel: cancel.clone(), ..Options::default() };
    let mut pass = Bzip2.first_pass(Arc::new(CancelledBehind(source(&file), 1 << 20, cancel)), &options).unwrap();
    assert_eq!(pass.read(&mut [0; 10]).unwrap_err().kind(), io::ErrorKind::Interrupted);
}
