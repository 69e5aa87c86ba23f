//! What the tests of codecs share.

use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use tarnfs_source::{Cancel, Limits, MemorySource, SharedSource, Source};

use crate::{Codec, Damage, DecodeContext, Decoder, FirstPass, Options, PIECE, SeekPoint};

/// All that a first pass finds.
pub(crate) struct Pass {
    pub(crate) data: Vec<u8>,
    pub(crate) points: Vec<SeekPoint>,
    pub(crate) damage: Vec<Damage>,
    pub(crate) shifts: Vec<u64>,
    pub(crate) error: Option<io::Error>,
}

/// More than any test decodes: a decoder that delivers more runs wild.
const MOST: usize = 64 << 20;

pub(crate) fn source(bytes: &[u8]) -> SharedSource {
    Arc::new(MemorySource::new(bytes, "test"))
}

/// Asks the pass to end when it reads behind byte `.1`.
#[derive(Debug)]
pub(crate) struct CancelledBehind(pub(crate) SharedSource, pub(crate) u64, pub(crate) Cancel);

impl Source for CancelledBehind {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if offset >= self.1 {
            self.2.cancel();
        }
        self.0.read_at(buffer, offset)
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

/// Decodes all of `bytes`, `step` bytes at a time: on one thread and on several, which must not differ.
pub(crate) fn decode_in_steps(codec: &dyn Codec, bytes: &[u8], step: usize, limits: Limits) -> Pass {
    decode_with(codec, bytes, step, &Options { limits, ..Options::default() })
}

/// The same with seek points `spacing` apart.
pub(crate) fn decode_spaced(codec: &dyn Codec, bytes: &[u8], spacing: u64) -> Pass {
    decode_with(codec, bytes, PIECE, &Options { seek_point_spacing: spacing, ..Options::default() })
}

pub(crate) fn decode_with(codec: &dyn Codec, bytes: &[u8], step: usize, options: &Options) -> Pass {
    let pass = decode_on(codec, bytes, step, options);
    let parallel = decode_on(codec, bytes, step, &Options { threads: 3, ..options.clone() });
    assert!(parallel.data == pass.data && parallel.points == pass.points);
    assert_eq!(parallel.damage, pass.damage);
    assert_eq!(parallel.shifts, pass.shifts);
    let text = |pass: &Pass| pass.error.as_ref().map(|error| (error.kind(), error.to_string()));
    assert_eq!(text(&parallel), text(&pass));
    pass
}

fn decode_on(codec: &dyn Codec, bytes: &[u8], step: usize, options: &Options) -> Pass {
    let mut decoder = codec.first_pass(source(bytes), options).unwrap();
    let mut pass = Pass { data: Vec::new(), points: Vec::new(), damage: Vec::new(), shifts: Vec::new(), error: None };
    let mut buffer = vec![0xAA; step];
    loop {
        let before = pass.data.len() as u64;
        match decoder.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => pass.data.extend(&buffer[..read]),
            Err(error) => {
                pass.error = Some(error);
                break;
            }
        }
        let known = pass.points.len();
        decoder.take_points(&mut pass.points);
        assert!(pass.points[known..].iter().all(|point| point.decoded <= pass.data.len() as u64));
        assert!(known == 0 || pass.points[known..].iter().all(|point| point.decoded >= before));
        assert!(pass.data.len() <= MOST, "more than {MOST} bytes decoded");
    }
    assert_eq!(decoder.read(&mut buffer).unwrap(), 0, "nothing comes after the end");
    decoder.take_points(&mut pass.points);
    decoder.take_damage(&mut pass.damage);
    decoder.take_shifts(&mut pass.shifts);
    assert_eq!(pass.points[0].decoded, 0);
    // A gap has a point of its own.
    let is_far = |two: &[SeekPoint]| two[0].decoded + PIECE as u64 <= two[1].decoded;
    assert!(!pass.damage.is_empty() || pass.points.windows(2).all(is_far));
    pass
}

pub(crate) fn decode(codec: &dyn Codec, bytes: &[u8]) -> Pass {
    decode_in_steps(codec, bytes, PIECE, Limits::default())
}

impl Pass {
    /// The data, of a stream that must be whole.
    #[track_caller]
    pub(crate) fn whole(self) -> Vec<u8> {
        assert!(self.error.is_none(), "{:?}", self.error);
        assert_eq!(self.damage, []);
        self.data
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.error.is_none() && self.damage.is_empty()
    }

    #[track_caller]
    pub(crate) fn error_kind(&self) -> io::ErrorKind {
        self.error.as_ref().expect("an error").kind()
    }

    fn is_damaged(&self, at: u64) -> bool {
        self.damage.iter().any(|damage| damage.decoded.contains(&at))
    }

    /// No byte differs from `original` without being reported. Where the length of what is damaged is itself damaged,
    /// bytes behind it may have moved, which is reported as well.
    #[track_caller]
    pub(crate) fn assert_honest(&self, original: &[u8], what: &str) {
        let moved = original.len().wrapping_sub(self.data.len());
        for (at, byte) in self.data.iter().enumerate() {
            let behind_damage =
                self.damage.iter().any(|damage| !damage.decoded.is_empty() && damage.decoded.end <= at as u64);
            let may_have_moved = behind_damage && self.shifts.iter().any(|&shift| shift <= at as u64);
            let right =
                original.get(at) == Some(byte) || may_have_moved && original.get(at.wrapping_add(moved)) == Some(byte);
            assert!(
                right || self.is_damaged(at as u64),
                "{what}: byte {at} is wrong, {:?} {:?} {:?}",
                self.damage,
                self.shifts,
                self.error
            );
        }
        let complete = self.data.len() == original.len();
        assert!(complete || !self.is_clean(), "{what}: {} bytes of {} in silence", self.data.len(), original.len());
    }
}

impl Pass {
    /// Each seek point of what may be damaged leads to the same bytes, or to an error.
    #[track_caller]
    fn assert_resumes_alike(&self, codec: &dyn Codec, bytes: &[u8], what: &str) {
        for point in &self.points {
            let resumed = resume(codec, bytes, point, 5000);
            assert!(resumed.is_err() || resumed.unwrap() == self.data[point.decoded as usize..], "{what}");
        }
    }
}

/// Decodes from `point` to the end (or an error).
pub(crate) fn resume(codec: &dyn Codec, bytes: &[u8], point: &SeekPoint, step: usize) -> io::Result<Vec<u8>> {
    to_the_end(&mut *codec.resume(source(bytes), point, &DecodeContext::default())?, step)
}

/// All that `decoder` has.
pub(crate) fn to_the_end(decoder: &mut dyn Decoder, step: usize) -> io::Result<Vec<u8>> {
    let (mut data, mut buffer) = (Vec::new(), vec![0; step]);
    loop {
        match decoder.read(&mut buffer)? {
            0 => return Ok(data),
            read => data.extend(&buffer[..read]),
        }
        assert!(data.len() <= MOST);
    }
}

/// Every seek point leads to the same bytes as the first pass.
#[track_caller]
pub(crate) fn assert_points_lead_to(codec: &dyn Codec, bytes: &[u8], points: &[SeekPoint], original: &[u8]) {
    for point in points {
        let data = resume(codec, bytes, point, 50_000).unwrap();
        let SeekPoint { compressed_bit, decoded, state } = point;
        assert!(data == original[*decoded as usize..], "from bit {compressed_bit}, {decoded}, {} bytes", state.len());
    }
}

/// Reads at any offset, from the seek point before it, are what was written there.
pub(crate) fn assert_read_anywhere(codec: &dyn Codec, stream: &[u8], points: &[SeekPoint], data: &[u8], seed: u64) {
    let offsets = sample(64, seed);
    for offset in offsets.chunks(4).map(|four| u32::from_le_bytes(four.try_into().unwrap()) as usize % data.len()) {
        let point = &points[points.partition_point(|point| point.decoded <= offset as u64) - 1];
        let mut decoder = codec.resume(source(stream), point, &DecodeContext::default()).unwrap();
        let start = offset - point.decoded as usize;
        let mut buffer = vec![0; start + data[offset..].len().min(3000)];
        let mut filled = 0;
        while filled < buffer.len() {
            let read = decoder.read(&mut buffer[filled..]).unwrap();
            assert!(read > 0, "ends before {offset}");
            filled += read;
        }
        assert!(buffer[start..] == data[offset..][..buffer.len() - start], "at {offset}");
    }
}

/// The output of a tool that reads `input` from a pipe.
#[track_caller]
pub(crate) fn tool(command: &str, input: &[u8]) -> Vec<u8> {
    let (data, good) = tool_status(command, input);
    assert!(good, "{command} failed");
    data
}

/// The output of a tool, and whether it was content.
pub(crate) fn tool_status(command: &str, input: &[u8]) -> (Vec<u8>, bool) {
    let mut words = command.split_whitespace();
    let mut program = words.next().unwrap();
    // On Debian plzip may stand under that name: it takes the same options, and makes other members.
    if program == "lzip" && Path::new("/usr/bin/lzip.lzip").exists() {
        program = "lzip.lzip";
    }
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        // A tool that refuses its input does not read it all.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().unwrap()
    });
    (output.stdout, output.status.success())
}

/// A generator of numbers that are the same for the same seed: each call returns one of the range.
fn numbers(seed: u64) -> impl FnMut(Range<usize>) -> usize {
    let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move |range: Range<usize>| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        range.start + (random >> 20) as usize % (range.end - range.start)
    }
}

/// Decodes, and resumes in, many variants of `stream`: bytes changed, runs overwritten, and (after which nothing but
/// survival can be asked for) parts cut out, moved and repeated. `original` is what it decodes to, all of it under
/// checksums.
pub(crate) fn assert_survives_mutations(codec: &dyn Codec, stream: &[u8], original: &[u8]) {
    for_each_mutation(stream, |bytes, in_place, what| {
        let pass = decode(codec, bytes);
        if in_place {
            pass.assert_honest(original, what);
        }
        pass.assert_resumes_alike(codec, bytes, what);
    });
}

/// The same for a format without checksums, which cannot be honest: it comes to an end, and so does what begins at its
/// seek points, `spacing` apart, with the same bytes.
pub(crate) fn assert_outlives_mutations(codec: &dyn Codec, stream: &[u8], spacing: u64) {
    for_each_mutation(stream, |bytes, _, what| {
        decode_spaced(codec, bytes, spacing).assert_resumes_alike(codec, bytes, what);
    });
}

/// Hands out changed streams, whether they are as long as the stream, and what to call them.
pub(crate) fn for_each_mutation(stream: &[u8], mut check: impl FnMut(&[u8], bool, &str)) {
    let count = std::env::var("TARNFS_MUTATIONS").map_or(200, |count| count.parse().unwrap());
    for seed in 1..=count {
        let mut next = numbers(seed);
        let mut bytes = stream.to_vec();
        let in_place = next(0..3) > 0;
        for _ in 0..next(1..5) {
            let (from, to) = (next(0..bytes.len()), next(0..bytes.len()));
            let length = next(1..20).min(bytes.len() - from.max(to));
            match next(0..4) {
                0 => bytes[from] = next(0..256) as u8,
                1 => bytes[from] ^= 1 << next(0..8),
                2 => bytes[from..from + length].fill(next(0..256) as u8),
                _ if in_place => bytes.copy_within(from..from + length, to),
                _ => drop(bytes.splice(from..from, stream.iter().skip(to).take(length * 30).copied())),
            }
        }
        if !in_place {
            bytes.drain(..next(0..bytes.len().min(40)));
            bytes.truncate(next(1..bytes.len() + 1));
        }
        check(&bytes, in_place, &format!("mutation {seed}"));
    }
}

/// Bytes that cannot be compressed.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut random = 5_u64;
    let next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 56) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Bytes with repetitions near and far, and with stretches of noise: the same for the same seed.
pub(crate) fn sample(length: usize, seed: u64) -> Vec<u8> {
    let mut next = numbers(seed);
    let mut data = Vec::with_capacity(length + 1000);
    while data.len() < length {
        match next(0..4) {
            0 => (0..next(1..300)).for_each(|_| data.push(next(0..256) as u8)),
            1 => data.extend(format!("line {} of {}\n", next(0..1000), next(0..10)).bytes()),
            2 => data.extend(std::iter::repeat_n(next(0..3) as u8, next(1..700))),
            _ if data.is_empty() => {}
            _ => {
                let start = next(0..data.len());
                let end = data.len().min(start + next(1..500));
                data.extend_from_within(start..end);
            }
        }
    }
    data.truncate(length);
    data
}

/// The corpus folder `name`; `None`, with a line that says so, where there is none.
pub(crate) fn corpus(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("TARNFS_CORPUS")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/corpus")), PathBuf::from);
    let folder = root.join(name);
    if !folder.is_dir() {
        println!("left out: no {} (set TARNFS_CORPUS)", folder.display());
        return None;
    }
    Some(folder)
}

/// Decoded bytes of a stream, which must never take `most` bytes of memory or more.
pub(crate) fn length_in_little_memory(pass: &mut dyn FirstPass, most: usize) -> usize {
    let (mut buffer, mut length) = (vec![0; PIECE], 0);
    loop {
        match pass.read(&mut buffer).unwrap() {
            0 => return length,
            read => length += read,
        }
        assert!(pass.memory() < most);
    }
}

/// Cannot be read from byte `.1` on, as a damaged stream inside another one.
#[derive(Debug)]
pub(crate) struct Broken(pub(crate) SharedSource, pub(crate) u64);

impl Source for Broken {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if offset.saturating_add(buffer.len() as u64) > self.1 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a test: it is damaged there"));
        }
        self.0.read_at(buffer, offset)
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

/// Bytes that come before the error of a stream that is damaged.
pub(crate) fn length_before_damage(pass: &mut dyn FirstPass) -> usize {
    let (mut buffer, mut length) = (vec![0; PIECE], 0);
    loop {
        match pass.read(&mut buffer) {
            Ok(read) => {
                assert!(read > 0, "ends");
                length += read;
            }
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::InvalidData);
                return length;
            }
        }
    }
}
