mod files;
mod states;

use super::checkpoint::{Checkpoint, MOST};
use super::decoder::Outcome;
use super::lzma2::Lzma2;
use super::survey::LzmaPoint;
use crate::testing::{sample, tool};

/// Decodes LZMA2 data, `step` bytes at a time, from the start or from a point.
fn decode(
    stream: &[u8],
    dictionary: usize,
    step: usize,
    point: Option<&LzmaPoint>,
) -> Result<(Vec<u8>, Vec<LzmaPoint>), String> {
    let mut decoder = Lzma2::new(dictionary).unwrap();
    let mut at = 0;
    match point {
        Some(point) => {
            decoder.resume(&point.state, point.decoded)?;
            at = point.compressed as usize;
        }
        None => decoder.survey(0),
    }
    let (mut data, mut points, mut buffer, mut idle) = (vec![], vec![], vec![0; step], 0);
    loop {
        let input = &stream[at..];
        let step = decoder.step(&input[..input.len().min(Lzma2::WANTED)], &mut buffer);
        points.extend(decoder.take_points());
        at += step.taken;
        data.extend(&buffer[..step.written]);
        assert!(data.len() < 64 << 20);
        idle = if step.taken + step.written == 0 { idle + 1 } else { 0 };
        match step.outcome {
            Outcome::End => return Ok((data, points)),
            Outcome::Damaged(what) => return Err(what.to_owned()),
            Outcome::More if idle > 1 => return Err("cut".to_owned()),
            Outcome::More => {}
        }
    }
}

fn compress(options: &str, data: &[u8]) -> Vec<u8> {
    tool(&format!("xz -q -c --format=raw --lzma2={options}"), data)
}

#[test]
fn states_that_lie_lead_nowhere_bad() {
    let data = sample(700_000, 30);
    let stream = compress("preset=1,dict=64KiB", &data);
    let (whole, points) = decode(&stream, 64 << 10, 5000, None).unwrap();
    assert!(whole == data);
    let point = &points[1];
    let length = u32::from_le_bytes(*point.state.first_chunk().unwrap()) as usize;
    let mut plain = vec![0; length];
    zstd_safe::decompress(&mut plain[..], &point.state[4..]).unwrap();
    let with = |plain: &[u8]| {
        let mut packed = vec![0; zstd_safe::compress_bound(plain.len())];
        let length = zstd_safe::compress(&mut packed[..], plain, 1).unwrap();
        let state = [&(plain.len() as u32).to_le_bytes(), &packed[..length]].concat();
        LzmaPoint { state, ..*point }
    };
    let good = &data[point.decoded as usize..];
    assert!(decode(&stream, 64 << 10, 5000, Some(&with(&plain))).unwrap().0 == good);
    let mut refused = 0;
    for at in (0..300).chain((300..plain.len()).step_by(997)) {
        for value in [0, 1, 7, 0x7F, 0x80, 0xFF] {
            let mut lying = plain.clone();
            lying[at] = value;
            // Whatever it leads to, it comes to an end.
            refused += usize::from(decode(&stream, 64 << 10, 5000, Some(&with(&lying))).is_err());
        }
    }
    assert!(refused > 1000, "{refused}");
    for cut in (0..plain.len()).step_by(1009) {
        assert!(Checkpoint::load(&with(&plain[..cut]).state, 64 << 10).is_err(), "{cut}");
    }
    assert!(Checkpoint::load(&with(&[&plain[..], b"x"].concat()).state, 64 << 10).is_err());
    assert!(Checkpoint::load(&point.state, 32 << 10).is_err(), "a history longer than the dictionary");
    for cut in 0..40 {
        assert!(Checkpoint::load(&point.state[..cut], 64 << 10).is_err());
    }
    let bomb = [&((MOST * 3) as u32).to_le_bytes(), &point.state[4..]].concat();
    assert!(Checkpoint::load(&bomb, 64 << 10).is_err());
}

#[test]
fn every_cut_keeps_what_is_whole() {
    let data = sample(4000, 31);
    let stream = compress("preset=6", &data);
    for cut in 0..stream.len() {
        assert_eq!(decode(&stream[..cut], 1 << 20, 100, None).map(|_| ()).unwrap_err(), "cut", "{cut}");
    }
    let mut decoder = Lzma2::new(1 << 20).unwrap();
    let mut buffer = vec![0; 4000];
    let half = &stream[..stream.len() / 2];
    let header = decoder.step(half, &mut buffer).taken;
    let step = decoder.step(&half[header..], &mut buffer);
    assert!(step.written > 1000 && buffer[..step.written] == data[..step.written], "{}", step.written);
}

#[test]
fn every_flipped_bit_gives_an_error_or_bytes() {
    let data = sample(1500, 32);
    for options in ["preset=0", "preset=6,lc=0,lp=2,pb=0"] {
        let stream = compress(options, &data);
        for bit in 0..stream.len() * 8 {
            let mut flipped = stream.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // Without a check of the block, other bytes may come; the xz decoder's tests see that they are noticed.
            let _ = decode(&flipped, 1 << 20, 1000, None);
        }
    }
}

#[test]
fn a_point_keeps_no_more_than_what_is_referred_to() {
    // Noise that never comes again, and a text that does.
    let mut random = 5_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 56) as u8
    })
    .take(400_000)
    .collect();
    let text = sample(20_000, 33);
    let data = [&text[..], &noise, &text, &text].concat();
    let stream = compress("preset=1,dict=1MiB", &data);
    let (whole, points) = decode(&stream, 1 << 20, 1 << 20, None).unwrap();
    assert!(whole == data);
    let point = points.last().expect("there is a point");
    assert!(point.decoded > 100_000 && point.state.len() < 30_000, "{} bytes", point.state.len());
    assert!(decode(&stream, 1 << 20, 1 << 20, Some(point)).unwrap().0 == data[point.decoded as usize..]);
}
