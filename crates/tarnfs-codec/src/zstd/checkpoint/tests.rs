use std::io;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::testing::{Broken, decode, length_before_damage, resume, sample, source, tool};
use crate::zstd::Zstd;
use crate::zstd::decoder::FrameDecoder;
use crate::{Codec, DecodeContext, Decoder, FirstPass, Options, SeekPoint};

/// The points before all blocks of `stream`, which decodes to `data`.
fn all_points(stream: &[u8], data: &[u8]) -> Vec<SeekPoint> {
    let mut pass = FrameDecoder::first_pass_with_all_points(source(stream), &Options::default());
    let (mut points, mut decoded, mut buffer) = (Vec::new(), Vec::<u8>::new(), vec![0; 50_000]);
    loop {
        let read = pass.read(&mut buffer).unwrap();
        pass.take_points(&mut points);
        if read == 0 {
            break;
        }
        decoded.extend(&buffer[..read]);
    }
    let mut damage = Vec::new();
    pass.take_damage(&mut damage);
    assert!(decoded == data && damage.is_empty());
    points
}

#[test]
fn what_points_look_at_further_on_ends_no_pass_before_it_is_there() {
    let stream = tool("zstd -q -c -3", &sample(2_000_000, 33));
    let broken = || Arc::new(Broken(source(&stream), stream.len() as u64 / 4 * 3));
    let options = Options::default();
    let without = length_before_damage(&mut FrameDecoder::first_pass(broken(), &options));
    let with = length_before_damage(&mut FrameDecoder::first_pass_with_all_points(broken(), &options));
    assert_eq!(with, without);
}

fn from_point(stream: &[u8], point: &SeekPoint, skip: usize, length: usize) -> Vec<u8> {
    let mut decoder = Zstd.resume(source(stream), point, &DecodeContext::default()).unwrap();
    let mut buffer = vec![0; skip + length];
    let read = decoder.read(&mut buffer).unwrap();
    buffer[skip.min(read)..read].to_vec()
}

/// Bytes of different kinds: text, zeros, noise, base64, and a little of all.
fn kinds(length: usize) -> Vec<(&'static str, Vec<u8>)> {
    let mixed = sample(length, 31);
    let mut random = 7_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as u8
    })
    .take(length)
    .collect();
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let base64 = noise.iter().map(|&byte| alphabet[usize::from(byte % 64)]).collect();
    let words = ["archive", "block", "window", " ", " of ", "the ", "seek\n", "point", ", "];
    let mut text = Vec::new();
    for &byte in &noise {
        if text.len() >= length {
            break;
        }
        text.extend(words[usize::from(byte) % words.len()].bytes());
    }
    vec![("mixed", mixed), ("noise", noise), ("zeros", vec![0; length]), ("base64", base64), ("text", text)]
}

#[test]
fn every_block_of_what_the_tool_writes_can_be_a_seek_point() {
    for (kind, data) in kinds(700_000) {
        for command in [
            "zstd -q -c -1",
            "zstd -q -c -3",
            "zstd -q -c -6",
            "zstd -q -c -13",
            "zstd -q -c -19",
            "zstd -q -c --ultra -22",
            "zstd -q -c --fast=3",
            "zstd -q -c --long=27",
            "zstd -q -c --no-check",
            "zstd -q -c --stream-size=700000",
            "zstd -q -c -T2 -B300KiB",
            "zstd -q -c -3 --zstd=wlog=14",
            "pzstd -q -c",
        ] {
            let data = if command.contains("stream-size") { &data[..700_000] } else { &data };
            let stream = tool(command, data);
            let points = all_points(&stream, data);
            assert!(points.len() >= 3, "{command}, {kind}: {} points", points.len());
            for point in &points {
                let rest = resume(&Zstd, &stream, point, 33_333).unwrap();
                assert!(rest == data[point.decoded as usize..], "{command}, {kind}: at {}", point.decoded);
            }
        }
    }
}

/// A small window wraps many times; states have but few bytes.
#[test]
fn states_hold_what_is_referred_to() {
    let data = sample(300_000, 3);
    let stream = tool("zstd -q -c -5 --zstd=wlog=10", &data);
    let points = all_points(&stream, &data);
    assert!(points.len() > 250, "{}", points.len());
    for point in points.iter().step_by(7) {
        assert!(resume(&Zstd, &stream, point, 900).unwrap() == data[point.decoded as usize..], "{}", point.decoded);
    }
    // Noise refers to nothing: all of a window of 2 MiB is left out.
    let (_, noise) = kinds(3_000_000).swap_remove(1);
    let points = all_points(&tool("zstd -q -c -3", &noise), &noise);
    let longest = points.iter().map(|point| point.state.len()).max();
    assert!(points.len() > 20 && longest < Some(200), "{longest:?}");
}

#[test]
fn large_frames_have_points_that_take_a_small_share() {
    // Lines that seldom repeat.
    let (_, base64) = kinds(24 << 20).swap_remove(3);
    let mixed = sample(3 << 20, 9);
    let data: Vec<u8> = base64.chunks(1 << 18).zip(mixed.chunks(1 << 15)).flat_map(|(a, b)| [a, b].concat()).collect();
    for command in ["zstd -q -c -1", "zstd -q -c -3 --long=21"] {
        let stream = tool(command, &data);
        let pass = decode(&Zstd, &stream);
        assert!(pass.points.len() >= 2, "{command}: {} points", pass.points.len());
        let states: usize = pass.points.iter().map(|point| point.state.len()).sum();
        assert!(states * 100 < stream.len() * 3, "{command}: {states} of {}", stream.len());
        assert!(pass.points.windows(2).all(|two| two[1].decoded - two[0].decoded >= 1 << 20));
        for point in &pass.points {
            assert!(resume(&Zstd, &stream, point, 1 << 20).unwrap() == data[point.decoded as usize..], "{command}");
        }
        assert!(pass.whole() == data);
    }
}

#[test]
fn damage_inside_a_frame_is_the_same_from_its_points() {
    let data = sample(600_000, 21);
    let mut stream = tool("zstd -q -c -3 --stream-size=600000", &data);
    let end = stream.len();
    // What is behind: a frame that is whole.
    stream.extend(tool("zstd -q -c", &data[..1000]));
    stream[end - 3000..end - 2000].fill(0xFF);
    let mut pass = FrameDecoder::first_pass_with_all_points(source(&stream), &Options::default());
    let (mut points, mut damage, mut decoded) = (Vec::new(), Vec::new(), vec![0; 700_000]);
    let read = pass.read(&mut decoded).unwrap();
    decoded.truncate(read);
    pass.take_points(&mut points);
    pass.take_damage(&mut damage);
    assert_eq!(decoded.len(), 601_000);
    assert_eq!(damage[0].decoded, 0..600_000);
    assert!(points.len() >= 5, "{}", points.len());
    for point in &points {
        assert!(resume(&Zstd, &stream, point, 5000).unwrap() == decoded[point.decoded as usize..], "{}", point.decoded);
    }
}

/// Tries to read from a point with another state, which must not do more than fail or give other bytes.
fn try_state(stream: &[u8], point: &SeekPoint, state: Vec<u8>) -> io::Result<usize> {
    resume(&Zstd, stream, &SeekPoint { state, ..point.clone() }, 100_000).map(|data| data.len())
}

#[test]
fn a_window_that_is_not_as_long_as_it_says_is_refused() {
    let pack = |runs: &[u32], bytes: usize, count: u64| {
        let runs = runs.iter().flat_map(|run| run.to_le_bytes()).collect();
        let kept: Vec<u8> = [count.to_le_bytes().to_vec(), runs, vec![7; bytes]].concat();
        let mut packed = vec![0; zstd_safe::compress_bound(kept.len())];
        let length = zstd_safe::compress(&mut packed[..], &kept, 1).unwrap();
        packed.truncate(length);
        packed
    };
    let unpacks = |packed: &[u8]| {
        let mut history = [0; 100];
        unpack(packed, &mut history).map(|()| history)
    };
    assert_eq!(unpacks(&pack(&[0, 100], 100, 2)), Ok([7; 100]));
    assert_eq!(unpacks(&pack(&[60, 30, 10], 30, 3)).map(|history| history[60..90] == [7; 30]), Ok(true));
    for (runs, bytes, count) in [
        (&[0, 100][..], 99, 2),
        (&[0, 100], 101, 2),
        (&[0, 99], 99, 2),
        (&[0, 101], 101, 2),
        (&[100], 1, 1),
        (&[50], 0, 1),
        (&[0, 100], 100, 1 << 62),
        (&[0, 100], 100, 40),
        (&[], 0, 0),
    ] {
        assert!(unpacks(&pack(runs, bytes, count)).is_err(), "{runs:?}, {bytes} bytes, {count} runs");
    }
    // The frame around it says another length than it has: one byte behind the magic and the descriptor.
    let packed = pack(&[0, 100], 100, 2);
    assert_eq!(usize::from(packed[5]), 8 + 8 + 100);
    for change in [-1, 1, 100] {
        let mut lying = packed.clone();
        lying[5] = lying[5].wrapping_add_signed(change);
        assert!(unpacks(&lying).is_err(), "{change}");
    }
    assert!(unpacks(&packed[..packed.len() - 1]).is_err() && unpacks(&[]).is_err());
}

#[test]
fn a_state_behind_the_end_of_its_frame_is_refused() {
    let data = sample(600_000, 5);
    let stream = tool("zstd -q -c -1 --stream-size=600000", &data);
    let points = all_points(&stream, &data);
    let point = points.iter().find(|point| !point.state.is_empty()).unwrap();
    // Version, flags, then 8 bytes each: the frame, the window, the content, what of it lies before.
    assert_ne!(point.state[1] & CONTENT_IS_KNOWN, 0);
    let before = u64::from_le_bytes(*point.state[26..].first_chunk().unwrap());
    for (content, is_right) in
        [(600_000, true), (before, false), (before - 1, false), (599_999, false), (600_001, false)]
    {
        let mut state = point.state.clone();
        state[18..26].copy_from_slice(&u64::to_le_bytes(content));
        let point = SeekPoint { state, ..point.clone() };
        let resumed = resume(&Zstd, &stream, &point, 10_000);
        // A content that is wrong is a gap or an error, but nothing in silence.
        let is_same = resumed.as_ref().is_ok_and(|bytes| bytes[..] == data[point.decoded as usize..]);
        assert_eq!(is_same, is_right, "{content} bytes, {before} before");
        if content < before {
            assert!(resumed.unwrap_err().to_string().contains("behind the end of its frame"));
        }
    }
}

#[test]
fn states_that_lie_are_refused_or_harmless() {
    let data = sample(20_000, 5);
    let stream = tool("zstd -q -c -5 --zstd=wlog=12", &data);
    let points = all_points(&stream, &data);
    let point = &points[points.len() / 2];
    assert!(try_state(&stream, point, point.state.clone()).is_ok());
    for length in 1..point.state.len() {
        assert!(try_state(&stream, point, point.state[..length].to_vec()).is_err(), "cut to {length}");
    }
    let (mut refused, bits) = (0, point.state.len() * 8);
    for bit in 0..bits {
        let mut state = point.state.clone();
        state[bit / 8] ^= 1 << (bit % 8);
        refused += usize::from(try_state(&stream, point, state).is_err());
    }
    assert!(refused > bits / 10, "{refused} of {bits}");
    let field = |at: usize, bytes: &[u8]| {
        let mut state = point.state.clone();
        state[at..at + bytes.len()].copy_from_slice(bytes);
        try_state(&stream, point, state).unwrap_err()
    };
    let says = |error: io::Error, what: &str| {
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains(what), "{error}");
    };
    says(field(0, &[2]), "unknown version");
    says(field(10, &(1_u64 << 40).to_le_bytes()), "larger window than the limit");
    says(field(26, &u64::MAX.to_le_bytes()), "of another place");
    says(field(26, &7_u64.to_le_bytes()), "window that is not");
    says(field(34, &[0; 4]), "repeats an offset of 0");
    says(field(38, &[0; 4]), "repeats an offset of 0");
    // Another point's state is of another place.
    let other = points.last().unwrap();
    says(
        resume(&Zstd, &stream, &SeekPoint { decoded: 100, ..other.clone() }, 100).unwrap_err(),
        "state is of another place",
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_read_through_any_point_is_a_slice_of_the_whole(
        seed in any::<u64>(), level in 1..8, window in 10..18, from in any::<prop::sample::Index>(),
        skip in 0..20_000_usize, length in 0..30_000_usize,
    ) {
        let data = sample(150_000, seed | 1);
        let stream = tool(&format!("zstd -q -c -{level} --zstd=wlog={window}"), &data);
        let points = all_points(&stream, &data);
        let point = from.get(&points);
        let start = (point.decoded as usize + skip).min(data.len());
        let end = (start + length).min(data.len());
        prop_assert!(from_point(&stream, point, skip, length) == data[start..end]);
    }

    #[test]
    fn any_bytes_as_a_state_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400), flags in 0u8..16) {
        let data = sample(3000, 8);
        let stream = tool("zstd -q -c --zstd=wlog=10", &data);
        let state = [&[VERSION, flags], &[0; 8][..], &[0, 4, 0, 0, 0, 0, 0, 0], &bytes].concat();
        let point = SeekPoint { compressed_bit: 48, decoded: 1 << 20, state };
        let _ = resume(&Zstd, &stream, &point, 100);
    }
}
