//! Against the real compressors, and against damage at every byte and bit.

mod damaged;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use proptest::prelude::*;
use tarnfs_source::{FileSource, MemorySource, SharedSource, Source};
use zlib_rs::{DeflateConfig, InflateError, InflateFlush, Status, Strategy, compress_slice};

use super::inflate::{Inflate, InflateState, LEAST_INPUT, Stop, WINDOW};
use super::{Deflate, Gzip, Zlib, window};
use crate::{Codec, Damage, DecodeContext, Decoder, FileCodec as _, Options, SeekPoint, Windows as _};

/// What a first pass gives.
struct Pass {
    decoded: Vec<u8>,
    points: Vec<SeekPoint>,
    damage: Vec<Damage>,
    error: Option<io::Error>,
}

fn memory(bytes: &[u8]) -> SharedSource {
    Arc::new(MemorySource::new(bytes, "test"))
}

/// On one thread and on several, which must not differ.
fn first_pass(codec: &dyn Codec, source: &SharedSource, spacing: u64, read_size: usize) -> Pass {
    let pass = first_pass_on(1, codec, Arc::clone(source), spacing, read_size);
    for threads in [2, 4] {
        let parallel = first_pass_on(threads, codec, Arc::clone(source), spacing, read_size);
        assert!(parallel.decoded == pass.decoded && parallel.points == pass.points, "{threads} threads");
        assert_eq!(parallel.damage, pass.damage);
        let text = |pass: &Pass| pass.error.as_ref().map(|error| (error.kind(), error.to_string()));
        assert_eq!(text(&parallel), text(&pass));
    }
    pass
}

fn first_pass_on(threads: usize, codec: &dyn Codec, source: SharedSource, spacing: u64, read_size: usize) -> Pass {
    let options = Options { seek_point_spacing: spacing, threads, ..Options::default() };
    let mut decoder = codec.first_pass(source, &options).unwrap();
    let mut pass = Pass { decoded: Vec::new(), points: Vec::new(), damage: Vec::new(), error: None };
    let mut buffer = vec![0; read_size];
    loop {
        let read = decoder.read(&mut buffer);
        decoder.take_points(&mut pass.points);
        decoder.take_damage(&mut pass.damage);
        match read {
            Ok(0) => break,
            Ok(read) => pass.decoded.extend(&buffer[..read]),
            Err(error) => {
                pass.error = Some(error);
                // It stays finished.
                assert!(decoder.read(&mut buffer).is_err());
                break;
            }
        }
        let known = pass.decoded.len() as u64;
        assert!(pass.points.iter().all(|point| point.decoded <= known));
    }
    assert!(decoder.memory() < threads * (2 << 20));
    pass
}

fn read_all(decoder: &mut dyn Decoder, read_size: usize) -> (Vec<u8>, Option<io::Error>) {
    let (mut decoded, mut buffer) = (Vec::new(), vec![0; read_size]);
    loop {
        match decoder.read(&mut buffer) {
            Ok(0) => return (decoded, None),
            Ok(read) => decoded.extend(&buffer[..read]),
            Err(error) => return (decoded, Some(error)),
        }
    }
}

/// Decodes whole and from each point, and compares with `expected`.
fn check(codec: &dyn Codec, compressed: &[u8], expected: &[u8], spacing: u64) -> Vec<SeekPoint> {
    let source = memory(compressed);
    let pass = first_pass(codec, &source, spacing, 100_000);
    assert!(pass.error.is_none(), "{:?}", pass.error);
    assert_eq!(pass.damage, []);
    assert!(pass.decoded == expected, "{} decoded bytes, {} expected", pass.decoded.len(), expected.len());
    assert_eq!(pass.points[0], SeekPoint::default());
    assert!(pass.points.is_sorted_by(|a, b| a.decoded < b.decoded && a.compressed_bit < b.compressed_bit));
    assert!(pass.points.len() == 1 || pass.points[pass.points.len() - 1].decoded < expected.len() as u64);
    for point in &pass.points {
        let mut decoder = codec.resume(Arc::clone(&source), point, &DecodeContext::default()).unwrap();
        assert!(decoder.memory() < 1 << 20);
        let (decoded, error) = read_all(&mut *decoder, 70_000);
        assert!(error.is_none(), "{error:?} from bit {}", point.compressed_bit);
        assert!(decoded == expected[point.decoded as usize..], "from bit {}", point.compressed_bit);
    }
    pass.points
}

/// Resuming does what the pass did: to its end, or where something is damaged to the next point, as behind a gap there
/// is one.
fn assert_resumes(codec: &dyn Codec, source: &SharedSource, pass: &Pass, read_size: usize, case: &str) {
    for (number, point) in pass.points.iter().enumerate() {
        let from = point.decoded as usize;
        if pass.damage.is_empty() {
            let mut decoder = codec.resume(Arc::clone(source), point, &DecodeContext::default()).unwrap();
            let (decoded, error) = read_all(&mut *decoder, read_size);
            assert!(decoded == pass.decoded[from..], "{case}");
            let kind = |error: &Option<io::Error>| error.as_ref().map(io::Error::kind);
            assert_eq!(kind(&error), kind(&pass.error), "{case}");
            continue;
        }
        let end = pass.points.get(number + 1).map_or(pass.decoded.len(), |next| next.decoded as usize);
        let is_lost = |offset: u64| pass.damage.iter().any(|damage| damage.decoded.contains(&offset));
        if !(from as u64..end as u64).all(is_lost) {
            let mut decoder = codec.resume(Arc::clone(source), point, &DecodeContext::default()).unwrap();
            assert!(read_all(&mut *decoder, read_size).0.starts_with(&pass.decoded[from..end]), "{case}");
        }
    }
}

/// Runs a program as a filter; `None` where it is not installed.
pub(super) fn filter(program: &str, arguments: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let spawned = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = spawned else {
        println!("{program} is not installed: skipped");
        return None;
    };
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}");
    Some(output.stdout)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    filter("gzip", &["-nc"], bytes).expect("gzip is needed for these tests")
}

/// Bytes of Python's zlib: `script` sees `data` and `zlib` and writes to `out`.
fn python(script: &str, data: &[u8]) -> Option<Vec<u8>> {
    let script = format!("import sys, zlib\ndata = sys.stdin.buffer.read()\nout = sys.stdout.buffer\n{script}");
    filter("python3", &["-c", &script], data)
}

fn random_bytes(length: usize, mut seed: u64) -> Vec<u8> {
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Words in the frequencies of words, of the length asked for.
pub(super) fn text(length: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(length + 16);
    for pair in random_bytes(length, 7).chunks_exact(2) {
        if text.len() >= length {
            break;
        }
        let word = usize::from(pair[0].min(pair[1])) * 7919 + usize::from(pair[0] & 3);
        text.extend(format!("{word:x}{}", if pair[1] < 20 { "\n" } else { " " }).bytes());
    }
    text.truncate(length);
    text
}

/// Text, noise and zeros.
pub(super) fn mixture(length: usize) -> Vec<u8> {
    let mut bytes = text(length / 2);
    bytes.extend(random_bytes(length / 4, 3));
    bytes.resize(length, 0);
    bytes
}

#[test]
fn every_level_of_gzip_and_every_point() {
    let data = mixture(1_500_000);
    for level in 1..=9 {
        for extra in [&["-n"][..], &["--rsyncable"]] {
            let level = format!("-{level}");
            let arguments: Vec<_> = [&level, "-c"].into_iter().chain(extra.iter().copied()).collect();
            let compressed = filter("gzip", &arguments, &data).unwrap();
            let points = check(&Gzip, &compressed, &data, 50_000);
            assert!(points.len() > 8, "{arguments:?}: {} points", points.len());
        }
    }
}

#[test]
fn pigz_and_its_ways() {
    let data = mixture(2_000_000);
    for arguments in [&["-p", "4"][..], &["-i"], &["-p", "1"], &["-11"], &["-0"], &["-H"], &["-U"], &["-R"]] {
        let data = if arguments == ["-11"] { &data[..200_000] } else { &data[..] };
        let Some(compressed) = filter("pigz", arguments, data) else { return };
        assert!(check(&Gzip, &compressed, data, 60_000).len() > 1, "{arguments:?}");
    }
    let compressed = filter("pigz", &["-z"], &data).unwrap();
    check(&Zlib, &compressed, &data, 60_000);
}

#[test]
fn points_of_bgzf_are_at_its_members() {
    let data = mixture(3_000_000);
    let Some(compressed) = filter("bgzip", &["-c"], &data) else { return };
    let points = check(&Gzip, &compressed, &data, 256 << 10);
    assert!((9..16).contains(&points.len()), "{}", points.len());
    assert!(points.iter().all(|point| point.state.is_empty()));
    // Of narrow damage only a member is lost.
    let mut damaged = compressed.clone();
    let second = usize::from(u16::from_le_bytes([compressed[16], compressed[17]])) + 1;
    let third = second + usize::from(u16::from_le_bytes([compressed[second + 16], compressed[second + 17]])) + 1;
    damaged[third - 8] ^= 1;
    let pass = first_pass(&Gzip, &memory(&damaged), 256 << 10, 1 << 20);
    assert!(pass.error.is_none() && pass.decoded == data);
    assert_eq!(pass.damage.len(), 1);
    assert_eq!(pass.damage[0].decoded, 65280..2 * 65280);
    assert_eq!(pass.damage[0].compressed, third as u64);
    assert!(pass.damage[0].what.contains("CRC-32"));
}

#[test]
fn zopfli_where_it_is_there() {
    let data = text(60_000);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text");
    std::fs::write(&path, &data).unwrap();
    let path = path.to_str().unwrap();
    let Some(compressed) = filter("zopfli", &["-c", "--i1", path], b"") else { return };
    check(&Gzip, &compressed, &data, 10_000);
}

#[test]
fn sizes_from_nothing() {
    for size in [0, 1, 2, 3, 257, 258, 259, 32_767, 32_768, 32_769, 65_535, 65_536, 65_537] {
        for data in [text(size), random_bytes(size, 1), vec![0; size]] {
            let compressed = gzip(&data);
            for spacing in [0, 1, 1000, 1 << 20] {
                check(&Gzip, &compressed, &data, spacing);
            }
        }
    }
}

#[test]
fn strategies_and_flushes_of_zlib() {
    let data = mixture(400_000);
    for (wbits, codec) in [(31, &Gzip as &dyn Codec), (15, &Zlib), (9, &Zlib), (-15, &Deflate), (-9, &Deflate)] {
        let script = format!(
            "for strategy in (0, 1, 2, 3, 4):
  for level in (0, 1, 6, 9):
    for flush in (zlib.Z_NO_FLUSH, zlib.Z_PARTIAL_FLUSH, zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH, zlib.Z_BLOCK):
      c = zlib.compressobj(level, 8, {wbits}, 9, strategy)
      parts = b''.join(c.compress(data[i:i+7001]) + (c.flush(flush) if flush else b'') for i in range(0, len(data), 7001))
      parts += c.flush()
      out.write(len(parts).to_bytes(8, 'little') + parts)"
        );
        let Some(all) = python(&script, &data) else { return };
        let mut rest = &all[..];
        let mut streams = 0;
        while let Some((length, parts)) = rest.split_first_chunk() {
            let (stream, behind) = parts.split_at(u64::from_le_bytes(*length) as usize);
            check(codec, stream, &data, 30_000);
            rest = behind;
            streams += 1;
        }
        assert_eq!(streams, 100);
    }
}

#[test]
fn members_empty_ones_and_padding() {
    let parts = [text(100_000), Vec::new(), random_bytes(70_000, 5), Vec::new(), vec![0; 200_000], text(3)];
    let mut compressed: Vec<u8> = parts.iter().flat_map(|part| gzip(part)).collect();
    let mut data = parts.concat();
    assert!(check(&Gzip, &compressed, &data, 40_000).len() > 2);
    compressed.resize(compressed.len() + 300_000, 0);
    check(&Gzip, &compressed, &data, 40_000);
    // A member behind padding is one.
    compressed.extend(gzip(b"more"));
    data.extend(b"more");
    check(&Gzip, &compressed, &data, 40_000);
    for garbage in [&b"garbage"[..], b"\0\0garbage", b"\x1fgarbage", &vec![0; 1 << 17]] {
        let joined = [&compressed, garbage].concat();
        let pass = first_pass(&Gzip, &memory(&joined), 40_000, 1000);
        assert!(pass.error.is_none() && pass.decoded == data);
        let end = data.len() as u64;
        match &pass.damage[..] {
            [] => assert!(garbage.iter().all(|&byte| byte == 0)),
            [damage] => assert!(damage.decoded == (end..end) && damage.what.contains("something else"), "{damage:?}"),
            more => panic!("{more:?}"),
        }
    }
}

/// A gzip member with these flags, header fields and data.
fn member(flags: u8, fields: &[u8], data: &[u8]) -> Vec<u8> {
    let plain = gzip(data);
    [&[0x1f, 0x8b, 8, flags], &plain[4..10], fields, &plain[10..]].concat()
}

#[test]
fn header_fields() {
    let data = text(1000);
    let long_name = [vec![b'n'; 400_000], vec![0]].concat();
    let extra = [&40_000_u16.to_le_bytes()[..], &random_bytes(40_000, 9)].concat();
    let all = [&extra[..], b"name\0", b"comment\0"].concat();
    for (flags, fields) in
        [(8, &b"\0"[..]), (8, &long_name), (16, b"comment\0"), (4, &[0, 0]), (4, &extra), (28, &all), (1, b"")]
    {
        check(&Gzip, &member(flags, fields, &data), &data, 100);
        // With the header's CRC, right and wrong.
        let plain = member(flags | 2, fields, &data);
        let (header, rest) = plain.split_at(10 + fields.len());
        let crc = crc32fast::hash(header) as u16;
        check(&Gzip, &[header, &crc.to_le_bytes(), rest].concat(), &data, 100);
        let pass = first_pass(&Gzip, &memory(&[header, &(crc ^ 1).to_le_bytes(), rest].concat()), 100, 1000);
        assert!(pass.error.is_none() && pass.decoded == data);
        assert!(pass.damage.len() == 1 && pass.damage[0].what.contains("CRC-16"));
    }
    for (flags, method) in [(0x20, 8), (0x80, 8), (0, 7), (0, 0)] {
        let mut broken = member(flags, b"", &data);
        broken[2] = method;
        assert_eq!(first_pass(&Gzip, &memory(&broken), 100, 10).error.unwrap().kind(), io::ErrorKind::InvalidData);
        assert_eq!(Gzip.bid(&broken), 0);
    }
    // A name without an end is not read for ever.
    let endless = member(8, &vec![b'n'; 20 << 20], b"");
    assert_eq!(first_pass(&Gzip, &memory(&endless), 100, 10).error.unwrap().kind(), io::ErrorKind::InvalidData);
}

#[test]
fn states_from_a_stranger_are_checked() {
    let compressed = gzip(&text(200_000));
    let source = memory(&compressed);
    let bomb = python("out.write(b'\\1' + zlib.compress(bytes(1 << 24)))", b"").unwrap_or_default();
    let almost = python("out.write(b'\\1' + zlib.compress(bytes(32769)))", b"").unwrap_or_default();
    let mut long = [2; 100];
    let length = zstd_safe::compress(&mut long[1..], &vec![0; WINDOW + 1], 1).unwrap();
    let long = &long[..=length];
    let states = [&b"\x03"[..], b"\x02", b"\x02x", long, b"\x01x", b"\x01\x78\x9c", &bomb, &almost, &[1; 1000], b"\0"];
    for state in states.into_iter().filter(|state| !state.is_empty()) {
        let point = SeekPoint { compressed_bit: 800, decoded: 0, state: state.to_vec() };
        let error = Gzip.resume(Arc::clone(&source), &point, &DecodeContext::default()).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{state:?}");
    }
    for (bit, state) in
        [(u64::MAX, &b"\x01"[..]), (u64::MAX, b""), (3, b""), (compressed.len() as u64 * 8 + 1, b"\x01")]
    {
        let point = SeekPoint { compressed_bit: bit, decoded: 0, state: state.to_vec() };
        let decoder = Gzip.resume(Arc::clone(&source), &point, &DecodeContext::default());
        assert!(decoder.is_err() || read_all(&mut *decoder.unwrap(), 10).1.is_some());
    }
    let point = SeekPoint { compressed_bit: 0, decoded: u64::MAX, state: Vec::new() };
    assert!(Gzip.resume(Arc::clone(&source), &point, &DecodeContext::default()).is_err());
    // Any bit with any window gives bytes or an error.
    for bit in 0..2000 {
        let point = SeekPoint { compressed_bit: bit, decoded: u64::MAX / 2, state: vec![1] };
        let mut decoder = Gzip.resume(Arc::clone(&source), &point, &DecodeContext::default()).unwrap();
        read_all(&mut *decoder, 5000);
    }
}

#[test]
fn bytes_that_nothing_refers_to_are_not_kept() {
    let noise = filter("gzip", &["-1c"], &random_bytes(500_000, 4)).unwrap();
    let words = gzip(&text(2_000_000));
    for (compressed, most) in [(noise, 40), (words, 16_000)] {
        let pass = first_pass(&Gzip, &memory(&compressed), 100_000, 1 << 20);
        assert!(pass.points.len() > 3);
        for point in &pass.points[1..] {
            assert!(point.state.len() < most, "{} bytes of state", point.state.len());
            assert!(window::unpack(&point.state).unwrap().unwrap().len() <= WINDOW);
        }
    }
}

#[test]
fn states_of_earlier_versions_are_read() {
    let data = text(2_000_000);
    let source = memory(&gzip(&data));
    let pass = first_pass(&Gzip, &source, 100_000, 1 << 20);
    assert!(pass.points.iter().filter(|point| point.state.first() == Some(&2)).count() > 3);
    for point in &pass.points[1..] {
        let start = point.decoded as usize;
        // With all of the history, as a zlib stream.
        let state = Gzip.state_from_window(&data[start - WINDOW..start]).unwrap();
        assert_eq!(state[0], 1);
        let point = SeekPoint { state, ..point.clone() };
        let mut decoder = Gzip.resume(Arc::clone(&source), &point, &DecodeContext::default()).unwrap();
        assert!(read_all(&mut *decoder, 99_999).0 == data[start..]);
        // Other programs get as much as they expect.
        let window = Gzip.window_from_state(&pass.points.last().unwrap().state).unwrap();
        assert_eq!(window.len(), WINDOW);
    }
}

#[test]
fn closer_points_are_the_same_on_any_number_of_threads() {
    // Empty blocks between the others, as flushes write them, many in a row: of blocks that begin at one byte only the
    // first counts, though there would be more bytes to spend behind the last.
    let script = "c = zlib.compressobj(6, 8, 31)\nfor at in range(0, len(data), 30000):\n \
                  out.write(c.compress(data[at:at+30000]) + c.flush(zlib.Z_SYNC_FLUSH) + b'\\0\\0\\0\\xff\\xff' * 3000)\n\
                  out.write(c.flush())";
    let data = mixture(12 << 20);
    let Some(flushed) = python(script, &data) else { return };
    // Files begin in the first half of each 4 MiB.
    let mut files = data.clone();
    for block in files.chunks_mut(4096).enumerate().filter(|(number, _)| number % 1024 < 512).map(|(_, block)| block) {
        block[257..262].copy_from_slice(b"ustar");
    }
    let file_starts = Some(crate::FileStarts { block: 512, at: 257, magic: b"ustar" });
    let joined = [gzip(&data[..7 << 20]), gzip(&data[7 << 20..])].concat();
    for (compressed, data) in [(flushed, &data), (gzip(&data), &data), (joined, &data), (gzip(&files), &files)] {
        let source = memory(&compressed);
        let points = |threads| {
            let options = Options { closer_seek_points: true, file_starts, threads, ..Options::default() };
            let mut pass = Gzip.first_pass(Arc::clone(&source), &options).unwrap();
            let mut points = Vec::new();
            assert!(read_all(&mut *pass, 100_000).0 == *data);
            pass.take_points(&mut points);
            points
        };
        let expected = points(1);
        let states: usize = expected.iter().map(|point| point.state.len()).sum();
        assert!(expected.len() > 8 && states <= compressed.len() / 45, "{} {states}", expected.len());
        for threads in [2, 3, 8] {
            assert!(points(threads) == expected, "{threads} threads");
        }
    }
}

#[test]
fn stored_blocks_that_end_where_a_point_is_due_get_it() {
    const BLOCK: usize = 32 << 10;
    let data = random_bytes(100 * BLOCK, 5);
    let mut compressed = gzip(b"")[..10].to_vec();
    for (number, block) in data.chunks(BLOCK).enumerate() {
        let length = BLOCK as u16;
        compressed.push(u8::from(number == 99));
        compressed.extend([length.to_le_bytes(), (!length).to_le_bytes()].concat());
        compressed.extend(block);
    }
    compressed.extend([crc32fast::hash(&data).to_le_bytes(), (data.len() as u32).to_le_bytes()].concat());
    let points = check(&Gzip, &compressed, &data, 8 * BLOCK as u64);
    let places: Vec<_> = points.iter().map(|point| point.decoded).collect();
    assert_eq!(places, (0..data.len() as u64).step_by(8 * BLOCK).collect::<Vec<_>>());
}

#[test]
fn a_block_without_end_only_makes_a_longer_chunk() {
    let zeros = vec![0; 40 << 20];
    let Some(compressed) =
        python("c = zlib.compressobj(9, 8, 31, 9, 4)\nout.write(c.compress(data) + c.flush())", &zeros)
    else {
        return;
    };
    check(&Gzip, &compressed, &zeros, 1 << 20);
}

#[test]
fn cancelling_ends_the_pass() {
    let options = Options::default();
    let mut pass = Gzip.first_pass(memory(&gzip(&random_bytes(1 << 20, 1))), &options).unwrap();
    let mut buffer = [0; 1000];
    pass.read(&mut buffer).unwrap();
    options.cancel.cancel();
    assert_eq!(read_all(&mut *pass, 1000).1.unwrap().kind(), io::ErrorKind::Interrupted);
}

#[test]
fn bids() {
    let data = mixture(100_000);
    assert!(Gzip.bid(&gzip(b"")) > 20);
    for level in 0..=9 {
        for size in [0, 1, 100, 5000, 100_000] {
            let data = &data[..size];
            let Some(zlib) = python(&format!("out.write(zlib.compress(data, {level}))"), data) else { return };
            let head = &zlib[..zlib.len().min(1024)];
            assert!(Zlib.bid(head) > 0, "level {level}, {size} bytes");
            assert!(Zlib.bid(head) < Gzip.bid(&gzip(b"")));
            assert_eq!(Gzip.bid(head), 0);
            // Of a stored block alone nobody knows whether it is one.
            if size >= 5000 && level > 0 {
                assert!(Deflate.bid(&head[2..]) > 0, "level {level}, {size} bytes");
                assert!(Deflate.bid(&head[2..]) < Zlib.bid(head));
            }
        }
    }
    for random in 0..10_000 {
        let mut head = random_bytes(1024 + random as usize % 3, random);
        assert_eq!((Gzip.bid(&head), Zlib.bid(&head), Deflate.bid(&head)), (0, 0, 0));
        head[..2].copy_from_slice(&[0x78, 0x9c]);
        assert_eq!(Zlib.bid(&head), 0);
        for length in 0..70 {
            assert_eq!(Deflate.bid(&head[..length]), 0);
        }
    }
}

#[test]
fn nothing_else_is_claimed() {
    let not_claimed = |head: &[u8]| Zlib.bid(head) == 0 && Deflate.bid(head) == 0;
    for byte in 0..=255 {
        assert!(not_claimed(&[byte; 1024]));
    }
    for head in [&text(1024)[..], &b"x^2 + y^2 = z^2\n".repeat(80), b"", b"x\x9c", b"\x1f\x8b"] {
        assert!(not_claimed(head));
    }
    for (program, arguments) in [("xz", &["-c"][..]), ("bzip2", &["-c"]), ("zstd", &["-c"]), ("lz4", &["-c"])] {
        let Some(compressed) = filter(program, arguments, &text(100_000)) else { continue };
        assert!(not_claimed(&compressed[..1024]), "{program}");
    }
    let (mut heads, mut gzips) = (0, 0);
    for folder in ["/usr/bin", "/usr/lib", "/usr/share", "/etc"].into_iter().map(PathBuf::from).chain(corpus()) {
        for path in files(&folder, 3000) {
            let Ok(file) = FileSource::open(&path) else { continue };
            let mut head = vec![0; 1024];
            let Ok(read) = file.read_at(&mut head, 0) else { continue };
            head.truncate(read);
            heads += 1;
            gzips += u32::from(Gzip.bid(&head) > 0);
            // What is claimed all the same has to be it, to its end.
            for codec in [&Zlib as &dyn Codec, &Deflate] {
                if codec.bid(&head) > 0 {
                    let source: SharedSource = Arc::new(FileSource::open(&path).unwrap());
                    let pass = first_pass(codec, &source, 1 << 20, 1 << 16);
                    assert!(pass.error.is_none() && pass.damage.is_empty(), "{} as {}", path.display(), codec.name());
                }
            }
        }
    }
    println!("{heads} heads, {gzips} of them gzip");
}

fn corpus() -> Option<PathBuf> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/corpus");
    let folder = std::env::var_os("TARNFS_CORPUS").map_or_else(|| PathBuf::from(default), PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    println!("no corpus at {}: skipped", folder.display());
    None
}

/// At most `most` files in `folder` and below it.
fn files(folder: &std::path::Path, most: usize) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
            if found.len() >= most {
                return found;
            }
        }
    }
    found
}

#[test]
fn the_corpus_of_other_projects() {
    let Some(folder) = corpus() else { return };
    let mut seen = 0;
    for path in files(&folder, usize::MAX) {
        let bytes = std::fs::read(&path).unwrap();
        for codec in [&Gzip as &dyn Codec, &Zlib, &Deflate] {
            let pass = first_pass(codec, &memory(&bytes), 1000, 5000);
            assert_resumes(codec, &memory(&bytes), &pass, 5000, &path.display().to_string());
            if codec.bid(&bytes[..bytes.len().min(1024)]) > 0 {
                let mut expected = Command::new("gzip").arg("-dc").arg(&path).output().unwrap();
                expected.stdout.truncate(pass.decoded.len());
                assert!(pass.decoded.starts_with(&expected.stdout), "{}", path.display());
                println!("{}: {} bytes, {:?}, {:?}", path.display(), pass.decoded.len(), pass.damage, pass.error);
                seen += 1;
            }
        }
    }
    assert!(seen >= 3);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_data_any_spacing(
        parts in prop::collection::vec((0_usize..60_000, 0_u8..4, any::<u64>()), 0..5),
        spacing in 0_u64..100_000,
        level in 1..=9,
    ) {
        let mut compressed = Vec::new();
        let mut data = Vec::new();
        for (length, kind, seed) in parts {
            let part = match kind {
                0 => random_bytes(length, seed),
                1 => text(length),
                2 => random_bytes(length, seed).into_iter().map(|byte| byte & 3).collect(),
                _ => vec![seed as u8; length],
            };
            compressed.extend(filter("gzip", &["-c", &format!("-{level}")], &part).unwrap());
            data.extend(part);
        }
        if !compressed.is_empty() {
            check(&Gzip, &compressed, &data, spacing);
        }
    }

    #[test]
    fn any_bytes_are_an_error_or_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..3000), start in any::<bool>()) {
        if start && bytes.len() > 10 {
            bytes[..4].copy_from_slice(&[0x1f, 0x8b, 8, 0]);
        }
        for codec in [&Gzip as &dyn Codec, &Zlib, &Deflate] {
            let pass = first_pass(codec, &memory(&bytes), 100, 1000);
            assert_resumes(codec, &memory(&bytes), &pass, 999, codec.name());
        }
    }
}

proptest! {
    #[test]
    fn damaged_data_is_decoded_as_zlib_rs_does(
        length in 1_usize..100_000,
        level in 1..=9,
        strategy in 0_usize..4,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        cut in any::<prop::sample::Index>(),
        step in 1_usize..5000,
    ) {
        let strategy = [Strategy::Default, Strategy::Filtered, Strategy::HuffmanOnly, Strategy::Fixed][strategy];
        let data = mixture(length);
        let mut compressed = vec![0; length * 2 + 1000];
        let config = DeflateConfig { level, window_bits: -15, strategy, ..DeflateConfig::default() };
        let (compressed, _) = compress_slice(&mut compressed, &data, config);
        let whole = damage.is_empty();
        for (place, value) in damage {
            let place = place.index(compressed.len());
            compressed[place] = value;
        }
        let compressed = if whole { &compressed[..=cut.index(compressed.len())] } else { &compressed[..] };

        let mut theirs = vec![0; 4 << 20];
        let mut reference = zlib_rs::Inflate::new(false, 15);
        let result = reference.decompress(compressed, &mut theirs, InflateFlush::NoFlush);
        theirs.truncate(reference.total_out() as usize);

        let (mut inflate, mut ours, mut next) = (Inflate::new(), Vec::<u8>::new(), 0);
        let mut output = vec![0; step];
        let place = loop {
            let input = &compressed[next..];
            let input = &input[..input.len().min(LEAST_INPUT + step)];
            let stop = if ours.len().is_multiple_of(2) { Stop::AtBlock } else { Stop::Never };
            let done = inflate.step(input, [&mut output], 0, stop);
            next += done.read;
            ours.extend(&output[..done.written]);
            match done.place {
                InflateState::Boundary { .. } => {}
                InflateState::Inside if done.read + done.written > 0 => {}
                place => break place,
            }
        };
        prop_assert!(ours == theirs, "{} bytes, {} expected: {place:?}, {result:?}", ours.len(), theirs.len());
        match place {
            InflateState::End => {
                prop_assert_eq!(result, Ok(Status::StreamEnd));
                prop_assert_eq!(next as u64, reference.total_in());
            }
            InflateState::Invalid(_) => prop_assert_eq!(result, Err(InflateError::DataError)),
            _ => prop_assert!(matches!(result, Ok(Status::Ok | Status::BufError)), "{:?}", result),
        }
    }
}
