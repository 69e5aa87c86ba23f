//! What seek points inside of LZMA data cost, with the distances and shares that hold outside of unit tests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tarnfs_codec::{DecodeContext, Options, SeekPoint, by_name};
use tarnfs_source::{MemorySource, SharedSource};

/// Lines that are alike, near and far.
fn text(length: usize) -> Vec<u8> {
    let (mut random, mut text) = (1_u64, String::new());
    while text.len() < length {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (kind, number) = (random >> 60, random >> 33 & 0xFFFF);
        match kind {
            0..8 => {
                writeln!(text, "{number} is the number of line {}", text.len()).unwrap();
            }
            8..15 => {
                writeln!(text, "    if value_{} == 0x{number:04x} {{ return other_{}; }}", number % 300, number % 70)
                    .unwrap();
            }
            _ if text.is_empty() => {}
            _ => {
                let start = text.len().saturating_sub(1 + number as usize * 60);
                let again = text[start..text.len().min(start + 3000)].to_owned();
                text.push_str(&again);
            }
        }
    }
    text.into_bytes()
}

fn tool(command: &str, input: &[u8]) -> Vec<u8> {
    let mut words = command.split_whitespace();
    let mut child =
        Command::new(words.next().unwrap()).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input).unwrap());
        child.wait_with_output().unwrap().stdout
    })
}

#[test]
fn states_take_a_twentieth_at_most_and_points_are_a_mebibyte_apart() {
    let data = text(24 << 20);
    for (codec, command) in [
        ("xz", "xz -0 -T1 -c"),
        ("xz", "xz -T1 -c --lzma2=preset=0,dict=64KiB"),
        ("lzma", "xz -c --format=lzma -0"),
        ("lzip", "lzip -0 -c"),
    ] {
        let stream = tool(command, &data);
        let source: SharedSource = Arc::new(MemorySource::new(&stream[..], "text"));
        let codec = by_name(codec).unwrap();
        let mut pass = codec.first_pass(Arc::clone(&source), &Options::default()).unwrap();
        let (mut points, mut decoded, mut buffer): (Vec<SeekPoint>, _, _) = (vec![], vec![], vec![0; 128 << 10]);
        loop {
            let read = pass.read(&mut buffer).unwrap();
            pass.take_points(&mut points);
            decoded.extend_from_slice(&buffer[..read]);
            if read == 0 {
                break;
            }
        }
        assert!(decoded == data, "{command}");
        let states: usize = points.iter().map(|point| point.state.len()).sum();
        assert!(states * 20 <= stream.len(), "{command}: {states} of {}", stream.len());
        assert!(points.len() > 3, "{command}: {} points", points.len());
        assert!(points.windows(2).all(|two| two[1].decoded - two[0].decoded >= 1 << 20), "{command}");
        for (point, next) in points.iter().zip(points.iter().skip(1)) {
            // A little further than the next point: a decoder goes on there.
            let end = data.len().min(next.decoded as usize + 1000);
            let mut again = vec![0; end - point.decoded as usize];
            let mut decoder = codec.resume(Arc::clone(&source), point, &DecodeContext::default()).unwrap();
            let mut filled = 0;
            while filled < again.len() {
                let read = decoder.read(&mut again[filled..]).unwrap();
                assert!(read > 0, "{command}: ends {filled} bytes behind {}, {end} of {}", point.decoded, data.len());
                filled += read;
            }
            let start = point.decoded as usize;
            assert!(again == data[start..start + again.len()], "{command}: from {start}");
        }
    }
}
