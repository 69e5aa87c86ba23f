mod ciphers;
mod filters;
mod packed;

use std::fs;
use std::io;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tarnfs_source::SharedSource;

use super::{CODERS, CoderContext, all, coder_by_name};
use crate::testing::{decode_with, for_each_mutation, sample, source, to_the_end};
use crate::{Codec, DecodeContext, Options, PIECE, SeekPoint};

#[test]
fn coders_have_names_of_their_own_and_never_bid() {
    let mut names: Vec<_> = all().map(Codec::name).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
    for coder in CODERS {
        assert!(coder.file_codec().is_none());
        assert_eq!(coder_by_name(coder.name()).unwrap().name(), coder.name());
    }
    assert!(coder_by_name("gzip").is_some() && coder_by_name("").is_none());
}

#[test]
fn a_password_is_not_shown() {
    let options = Options { coder: coder(&[], Some("seldom")), ..Options::default() };
    assert!(format!("{options:?}").contains("has_password: true"));
    assert!(!format!("{options:?} {:?}", options.coder.clone()).contains("115"), "the bytes of it");
}

/// What a container would say.
fn coder(properties: &[u8], password: Option<&str>) -> CoderContext {
    let password = password.map(|password| Arc::from(password.as_bytes()));
    CoderContext { properties: properties.into(), password, ..CoderContext::default() }
}

fn context(coder: &CoderContext) -> DecodeContext {
    DecodeContext { coder: coder.clone(), ..DecodeContext::default() }
}

/// Seek points as close together as they can be.
fn options(coder: &CoderContext) -> Options {
    Options { coder: coder.clone(), seek_point_spacing: PIECE as u64, ..Options::default() }
}

/// Decodes from `point` to the end, or to an error.
fn resume(name: &str, coder: &CoderContext, stream: &[u8], point: &SeekPoint, step: usize) -> io::Result<Vec<u8>> {
    let codec = coder_by_name(name).unwrap();
    to_the_end(&mut *codec.resume(source(stream), point, &context(coder))?, step)
}

/// `stream` decodes to `data`: in steps of any length, from every seek point, and anywhere if it can be read so.
/// Returns how many seek points there are.
#[track_caller]
fn assert_decodes(name: &str, coder: &CoderContext, stream: &[u8], data: &[u8]) -> usize {
    let codec = coder_by_name(name).unwrap();
    let pass = decode_with(codec, stream, 50_000, &options(coder));
    let points = pass.points.clone();
    assert!(pass.whole() == data, "{name}: other bytes");
    for step in [1009, 1 << 20] {
        let pass = decode_with(codec, stream, step, &options(coder));
        assert!(pass.points == points, "{name}: other points");
        assert!(pass.whole() == data, "{name}: other bytes");
    }
    for point in &points {
        let resumed = resume(name, coder, stream, point, 10_007).unwrap();
        assert!(resumed == data[point.decoded as usize..], "{name}, from {}", point.decoded);
    }
    if let Some(all) = codec.random_access(&source(stream), coder).unwrap() {
        assert_is_read_anywhere(&all, data);
    }
    points.len()
}

#[track_caller]
fn assert_is_read_anywhere(all: &SharedSource, data: &[u8]) {
    assert_eq!(all.len(), data.len() as u64);
    let numbers = sample(400, 60);
    for bytes in numbers.chunks_exact(4) {
        let number = u32::from_le_bytes(bytes.try_into().unwrap()) as usize;
        let offset = number % (data.len() + 3);
        let mut buffer = vec![0; number / 7 % 100 + number % 2 * 5000];
        let read = all.read_at(&mut buffer, offset as u64).unwrap();
        let expected = &data[offset.min(data.len())..];
        let expected = &expected[..expected.len().min(buffer.len())];
        assert!(buffer[..read] == *expected, "{} bytes at {offset}", buffer.len());
    }
}

/// Whatever is changed, decoding comes to an end, and so does what begins at a seek point, with the same bytes.
fn assert_outlives_mutations(name: &str, coder: &CoderContext, stream: &[u8]) {
    let codec = coder_by_name(name).unwrap();
    let read = |bytes: &[u8]| -> Option<()> {
        // Refused from the start, as a wrong password is.
        let mut pass = codec.first_pass(source(bytes), &options(coder)).ok()?;
        let (mut points, mut data, mut buffer) = (Vec::new(), Vec::new(), vec![0; 5000]);
        while let Ok(read @ 1..) = pass.read(&mut buffer) {
            data.extend_from_slice(&buffer[..read]);
            assert!(data.len() < 64 << 20);
        }
        pass.take_points(&mut points);
        for point in &points {
            let resumed = resume(name, coder, bytes, point, 3001);
            assert!(resumed.is_err() || resumed.unwrap() == data[point.decoded as usize..], "{name}");
        }
        Some(())
    };
    for_each_mutation(stream, |bytes, _, _| {
        read(bytes);
    });
    for length in (0..stream.len().min(100)).chain((100..stream.len()).step_by(1 + stream.len() / 50)) {
        read(&stream[..length]);
    }
}

/// The program of 7-Zip; `None`, with a line that says so, where there is none.
fn seven_zip() -> Option<&'static str> {
    let is_there = |program: &&str| Command::new(program).stdout(Stdio::null()).status().is_ok();
    let found = ["7zz", "7z"].into_iter().find(is_there);
    if found.is_none() {
        println!("left out: no 7zz");
    }
    found
}

/// The archive that `program` makes of a file "data" with these arguments: `@` stands for the archive.
#[track_caller]
fn archive(program: &str, arguments: &str, data: &[u8]) -> Vec<u8> {
    try_archive(program, arguments, data).unwrap_or_else(|what| panic!("{program} {arguments}: {what}"))
}

/// The same, or what the program says instead.
fn try_archive(program: &str, arguments: &str, data: &[u8]) -> Result<Vec<u8>, String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("data"), data).unwrap();
    let arguments = arguments.split_whitespace().map(|word| if word == "@" { "archive" } else { word });
    let made = Command::new(program).args(arguments).current_dir(&folder).output().unwrap();
    if !made.status.success() {
        return Err(String::from_utf8_lossy(&[made.stdout, made.stderr].concat()).into_owned());
    }
    let made = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    Ok(fs::read(made.into_iter().find(|path| !path.ends_with("data")).unwrap()).unwrap())
}

fn number<const LENGTH: usize>(bytes: &[u8], at: usize) -> usize {
    bytes[at..at + LENGTH].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// A member of a zip.
struct Member {
    method: usize,
    crc: usize,
    flags: usize,
    time: usize,
    /// What is stored.
    stream: Vec<u8>,
    length: usize,
    /// Of AES: the version, the strength, and the method below it.
    aes: Option<(usize, u8, usize)>,
}

impl Member {
    /// The first member, as the directory describes it.
    fn first(zip: &[u8]) -> Self {
        let end = zip.windows(4).rposition(|four| four == b"PK\x05\x06").unwrap();
        let entry = &zip[number::<4>(zip, end + 16)..];
        assert!(entry.starts_with(b"PK\x01\x02"));
        let local = &zip[number::<4>(entry, 42)..];
        let start = 30 + number::<2>(local, 26) + number::<2>(local, 28);
        let mut extra = &entry[46 + number::<2>(entry, 28)..][..number::<2>(entry, 30)];
        let mut aes = None;
        while extra.len() >= 4 {
            if number::<2>(extra, 0) == 0x9901 {
                aes = Some((number::<2>(extra, 4), extra[8], number::<2>(extra, 9)));
            }
            extra = &extra[4 + number::<2>(extra, 2)..];
        }
        Self {
            method: number::<2>(entry, 10),
            crc: number::<4>(entry, 16),
            flags: number::<2>(entry, 8),
            time: number::<2>(entry, 12),
            stream: local[start..start + number::<4>(entry, 20)].to_vec(),
            length: number::<4>(entry, 24),
            aes,
        }
    }
}

/// One step of a folder of 7z: the name of its codec, and what the container says.
type Step = (&'static str, CoderContext);

/// The steps of the only folder of a 7z, in the order in which they are undone, and what is packed. Of archives whose
/// header is not packed, and chains without branches.
fn folder(archive: &[u8], password: Option<&str>) -> (Vec<Step>, Vec<u8>) {
    let mut header = &archive[32 + number::<8>(archive, 12)..];
    let mut take = |length: usize| {
        let (taken, rest) = header.split_at(length);
        header = rest;
        taken.to_vec()
    };
    assert_eq!(take(3), [1, 4, 6]);
    let take_number = |take: &mut dyn FnMut(usize) -> Vec<u8>| {
        let first = take(1)[0];
        let more = first.leading_ones() as usize;
        let low = take(more).iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte));
        let high = if more < 7 { usize::from(first) & (0x7F >> more) } else { 0 };
        high << (8 * more) | low
    };
    let start = 32 + take_number(&mut take);
    assert_eq!(take_number(&mut take), 1);
    assert_eq!(take(1), [9]);
    let stream = archive[start..start + take_number(&mut take)].to_vec();
    assert_eq!(take(5), [0, 7, 0x0B, 1, 0]);
    let count = take_number(&mut take);
    let mut coders = Vec::new();
    for _ in 0..count {
        let flags = take(1)[0];
        let name = match &take(usize::from(flags & 0xF))[..] {
            [0] => "copy",
            [3] => "delta",
            [4] | [3, 3, 1, 3] => "bcj-x86",
            [5] | [3, 3, 2, 5] => "bcj-ppc",
            [6] | [3, 3, 4, 1] => "bcj-ia64",
            [7] | [3, 3, 5, 1] => "bcj-arm",
            [8] | [3, 3, 7, 1] => "bcj-armt",
            [9] | [3, 3, 8, 5] => "bcj-sparc",
            [10] => "bcj-arm64",
            [11] => "bcj-riscv",
            [0x21] => "lzma2",
            [3, 1, 1] => "lzma-raw",
            [3, 4, 1] => "ppmd7",
            [4, 1, 9] => "deflate64",
            [6, 0xF1, 7, 1] => "aes-7z",
            other => panic!("method {other:x?}"),
        };
        let properties = if flags & 0x20 > 0 { take_number(&mut take) } else { 0 };
        coders.push((name, coder(&take(properties), password)));
    }
    let bound: Vec<_> = (1..count).map(|_| (take_number(&mut take), take_number(&mut take))).collect();
    assert_eq!(take(1), [0x0C]);
    for coder in &mut coders {
        coder.1.decoded_length = Some(take_number(&mut take) as u64);
    }
    let mut at = (0..count).find(|at| bound.iter().all(|(input, _)| input != at));
    let mut steps = Vec::new();
    while let Some(number) = at {
        steps.push(coders[number].clone());
        at = bound.iter().find(|(_, output)| *output == number).map(|(input, _)| *input);
    }
    assert_eq!(steps.len(), count);
    (steps, stream)
}

/// Undoes all steps, with every check of each.
#[track_caller]
fn assert_unpacks((steps, stream): &(Vec<Step>, Vec<u8>), data: &[u8]) {
    let mut stream = stream.clone();
    for (name, coder) in steps {
        let decoded = resume(name, coder, &stream, &SeekPoint::default(), 1 << 16).unwrap();
        assert_eq!(Some(decoded.len() as u64), coder.decoded_length, "{name}");
        assert_decodes(name, coder, &stream, &decoded);
        stream = decoded;
    }
    assert!(stream == data);
}

/// A program, which has branches: this one.
fn program(length: usize) -> Vec<u8> {
    let mut program = fs::read(std::env::current_exe().unwrap()).unwrap();
    let start = program.len() / 3;
    program.drain(..start);
    program.truncate(length);
    program
}
