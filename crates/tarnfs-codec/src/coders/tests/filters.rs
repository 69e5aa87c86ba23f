//! Compared with liblzma, and with what 7-Zip makes.

use liblzma::stream::{Action, Filters, LzmaOptions, Stream};

use super::{
    CoderContext, archive, assert_decodes, assert_outlives_mutations, assert_unpacks, coder, folder, program, resume,
    seven_zip, try_archive,
};
use crate::SeekPoint;
use crate::testing::{noise, sample};

#[test]
fn words_are_turned_around() {
    for (name, bytes) in [("swap2", 2), ("swap4", 4)] {
        let context = coder(&[], None);
        for length in (0..10).chain([65_535, 65_536, 65_537, 300_003]) {
            let data = noise(length);
            // Bytes behind the last whole word stay.
            let mut turned = data.clone();
            turned.chunks_exact_mut(bytes).for_each(<[u8]>::reverse);
            assert_decodes(name, &context, &turned, &data);
        }
        assert_outlives_mutations(name, &context, &noise(200_000));
        assert!(resume(name, &coder(&[1], None), &[1, 2], &SeekPoint::default(), 10).is_err());
    }
}

const NAMES: [&str; 9] =
    ["delta", "bcj-x86", "bcj-arm", "bcj-armt", "bcj-arm64", "bcj-ppc", "bcj-ia64", "bcj-sparc", "bcj-riscv"];

fn run(mut stream: Stream, input: &[u8]) -> Vec<u8> {
    let mut output = vec![0; 4 << 20];
    stream.process(input, &mut output, Action::Finish).unwrap();
    assert_eq!(stream.total_in(), input.len() as u64);
    output.truncate(stream.total_out() as usize);
    output
}

/// The filter `name` and LZMA2, or that alone.
fn filters(name: &str, properties: &[u8]) -> Filters {
    let mut filters = Filters::new();
    let added = match name {
        "" => Ok(&mut filters),
        "delta" => filters.delta_properties(properties),
        "bcj-x86" => filters.x86_properties(properties),
        "bcj-arm" => filters.arm_properties(properties),
        "bcj-armt" => filters.arm_thumb_properties(properties),
        "bcj-arm64" => filters.arm64_properties(properties),
        "bcj-ppc" => filters.powerpc_properties(properties),
        "bcj-ia64" => filters.ia64_properties(properties),
        "bcj-sparc" => filters.sparc_properties(properties),
        _ => filters.riscv_properties(properties),
    };
    added.unwrap();
    filters.lzma2(&LzmaOptions::new_preset(0).unwrap());
    filters
}

/// `data` as the filter leaves them, and as liblzma undoes it on them.
fn done_and_undone(name: &str, properties: &[u8], data: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (plain, filtered) = (filters("", &[]), filters(name, properties));
    let packed = run(Stream::new_raw_encoder(&filtered).unwrap(), data);
    let done = run(Stream::new_raw_decoder(&plain).unwrap(), &packed);
    let packed = run(Stream::new_raw_encoder(&plain).unwrap(), data);
    (done, run(Stream::new_raw_decoder(&filtered).unwrap(), &packed))
}

/// Bytes that look like branches, whatever the processor.
fn branches(length: usize, seed: u64) -> Vec<u8> {
    const LIKELY: [u8; 32] = [
        0xE8, 0xE9, 0, 0xFF, 0xE8, 0xEB, 0xF0, 0xF8, 0x48, 0x01, 0x40, 0x7F, 0x17, 0x97, 0xEF, 0x94, 0x90, 0x10, 0x1D,
        0x50, 0xA0, 0x31, 0x02, 0x80, 0xE0, 0x67, 0xE7, 0x11, 0x16, 0xB0, 0xD0, 0xFF,
    ];
    let numbers = sample(length, seed);
    let noise = noise(length + seed as usize);
    let both = noise[seed as usize..].iter().zip(numbers);
    both.map(|(noise, number)| if noise % 3 > 0 { LIKELY[usize::from(noise / 3 % 32)] } else { number ^ noise })
        .collect()
}

#[test]
fn filters_undo_what_liblzma_does_and_as_it_does() {
    let texts = [program(500_000), branches(300_000, 70)];
    for name in NAMES {
        let all: &[&[u8]] = match name {
            "delta" => &[&[0], &[2], &[255]],
            "bcj-x86" => &[&[], &[0xF7, 0xFF, 0xFF, 0xFF]],
            _ => &[&[], &[0xF0, 0xFF, 0xFF, 0xFF]],
        };
        for (properties, data) in all.iter().flat_map(|properties| texts.iter().map(move |data| (properties, data))) {
            let (done, undone) = done_and_undone(name, properties, data);
            let context = coder(properties, None);
            let points = assert_decodes(name, &context, &done, data);
            assert!(points > 1, "{name}");
            assert_decodes(name, &context, data, &undone);
        }
    }
}

#[test]
fn filters_are_right_at_every_length() {
    for name in NAMES {
        let properties: &[u8] = if name == "delta" { &[6] } else { &[] };
        let context = coder(properties, None);
        for length in (0..70).chain(65_530..65_545) {
            let data = branches(length, 72 + length as u64);
            let (_, undone) = done_and_undone(name, properties, &data);
            let decoded = resume(name, &context, &data, &SeekPoint::default(), 1000).unwrap();
            assert!(decoded == undone, "{name}, {length} bytes");
            if length > 70 {
                assert_decodes(name, &context, &data, &undone);
            }
        }
    }
}

#[test]
fn filters_stop_where_the_container_says() {
    let data = branches(200_000, 73);
    for name in NAMES {
        let mut context = coder(if name == "delta" { &[6] } else { &[] }, None);
        for length in [0, 1, 65_536, 65_537, 150_001] {
            let whole = resume(name, &context, &data[..length], &SeekPoint::default(), 1000).unwrap();
            context.decoded_length = Some(length as u64);
            assert!(resume(name, &context, &data, &SeekPoint::default(), 1000).unwrap() == whole, "{name} {length}");
            context.decoded_length = None;
        }
        context.decoded_length = Some(200_001);
        let error = resume(name, &context, &data, &SeekPoint::default(), 1000).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{name}");
    }
}

#[test]
fn filters_survive_anything() {
    let data = branches(300_000, 74);
    for name in NAMES {
        let context = coder(if name == "delta" { &[6] } else { &[] }, None);
        assert_outlives_mutations(name, &context, &data);
        for properties in [&[1, 2][..], &[1, 2, 3, 4, 5]] {
            let wrong = coder(properties, None);
            assert!(resume(name, &wrong, &data, &SeekPoint::default(), 1000).is_err());
        }
        let point = |decoded, state: &[u8]| SeekPoint { compressed_bit: decoded * 8, decoded, state: state.to_vec() };
        for point in [point(1000, &[9; 7][..5]), point(u64::MAX / 8, &[]), point(300_001, &[]), point(8, &[0xFF; 2])] {
            assert!(resume(name, &context, &data, &point, 1000).is_err(), "{name}: {point:?}");
        }
    }
}

#[test]
fn what_7_zip_filters() {
    let Some(program_7z) = super::seven_zip() else { return };
    let data = program(600_000);
    for filter in ["Delta:4", "BCJ", "ARM", "ARMT", "ARM64", "PPC", "IA64", "SPARC", "RISCV", "Copy"] {
        let Ok(made) = try_archive(program_7z, &format!("a -mhc=off -m0={filter} -m1=Copy @ data"), &data) else {
            println!("left out: {program_7z} has no {filter}");
            continue;
        };
        let folder = folder(&made, None);
        assert!(!folder.0.is_empty());
        assert_unpacks(&folder, &data);
    }
}

/// A program as 7-Zip takes it apart: the four streams of BCJ2, and what the container says.
fn bcj2(data: &[u8]) -> Option<(CoderContext, Vec<u8>)> {
    let arguments = "a -mhc=off @ data -m0=BCJ2 -m1=Copy -m2=Copy -m3=Copy -mb0:1 -mb0s1:2 -mb0s2:3";
    let archive = archive(seven_zip()?, arguments, data);
    let mut header = &archive[32 + u64::from_le_bytes(archive[12..20].try_into().unwrap()) as usize..];
    let mut take = |length: usize| {
        let (taken, rest) = header.split_at(length);
        header = rest;
        taken
    };
    // Four streams from the start on.
    assert_eq!(take(6), [1, 4, 6, 0, 4, 9]);
    let mut start = 32;
    let mut packed = [(); 4].map(|()| {
        let first = take(1)[0];
        let more = first.leading_ones() as usize;
        let low = take(more).iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte));
        let length = (usize::from(first) & (0x7F >> more)) << (8 * more) | low;
        start += length;
        archive[start - length..start].to_vec()
    });
    // Three copies and a filter, of which the first stream goes into the main one, the second is the range coder.
    assert!(take(60).windows(14).any(|of| of == [3, 3, 1, 0x1B, 4, 1, 5, 0, 4, 1, 3, 2, 2, 6]));
    packed[1..].rotate_left(1);
    let lengths: Vec<u8> = packed.iter().flat_map(|stream| (stream.len() as u64).to_le_bytes()).collect();
    let context = CoderContext { decoded_length: Some(data.len() as u64), ..coder(&lengths, None) };
    Some((context, packed.concat()))
}

#[test]
fn four_streams_of_bcj2_become_one() {
    for length in [900_000, 65_536, 1000, 100] {
        let data = program(length);
        let Some((context, stream)) = bcj2(&data) else { return };
        let points = assert_decodes("bcj2", &context, &stream, &data);
        assert!(points > length / 300_000);
        if length < 900_000 {
            assert_outlives_mutations("bcj2", &context, &stream);
        }
        for (shorter, properties) in [(0, &context.properties[..]), (length as u64 - 3, &context.properties)] {
            let context = CoderContext { decoded_length: Some(shorter), ..coder(properties, None) };
            let decoded = resume("bcj2", &context, &stream, &SeekPoint::default(), 999).unwrap();
            assert!(decoded == data[..shorter as usize]);
        }
        let longer = CoderContext { decoded_length: Some(length as u64 + 1), ..context.clone() };
        assert!(resume("bcj2", &longer, &stream, &SeekPoint::default(), 999).is_err());
        let unknown = CoderContext { decoded_length: None, ..context.clone() };
        assert!(resume("bcj2", &unknown, &stream, &SeekPoint::default(), 999).is_err());
        assert!(resume("bcj2", &context, &stream[1..], &SeekPoint::default(), 999).is_err());
        for state in [vec![], vec![0; 549], vec![0xFF; 549], vec![1; 550]] {
            let point = SeekPoint { compressed_bit: 8, decoded: 1, state };
            assert!(resume("bcj2", &context, &stream, &point, 999).is_err());
        }
    }
}
