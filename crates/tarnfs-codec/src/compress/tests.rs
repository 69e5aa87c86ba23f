use std::collections::HashMap;
use std::io::ErrorKind;

use tarnfs_source::Limits;

use super::Compress;
use super::dictionary::HEADER;
use crate::testing::{
    assert_outlives_mutations, assert_points_lead_to, assert_read_anywhere, corpus, decode, decode_in_steps,
    decode_spaced, noise, resume, sample, source, tool, tool_status,
};
use crate::{Codec, DecodeContext, FileCodec as _, Options, PIECE, SeekPoint};

/// The least that keeps points a piece apart: at the start of a dictionary they may be four times as close.
const SPACING: u64 = 4 * PIECE as u64;

/// What `compress` makes of `data`: it minds where that is more, but writes it.
fn compress(width: u32, data: &[u8]) -> Vec<u8> {
    tool_status(&format!("compress -c -b {width}"), data).0
}

/// Text and noise by turns: after each, the dictionary begins anew.
fn changing(length: usize) -> Vec<u8> {
    let noise = noise(length);
    let (mut data, mut seed) = (Vec::new(), 1);
    while data.len() < length {
        data.extend(sample(150_000, seed));
        data.extend_from_slice(&noise[data.len() % 1000..][..50_000]);
        seed += 1;
    }
    data.truncate(length);
    data
}

/// What compressors wrote before there was block mode, or none of them any more.
fn without_blocks(widest: usize, data: &[u8]) -> Vec<u8> {
    struct Output {
        bits: Vec<bool>,
        width: usize,
        since: usize,
    }
    let mut out = Output { bits: Vec::new(), width: 9, since: 0 };
    let mut strings = HashMap::<(usize, u8), usize>::new();
    let (mut next, mut old) = (256_usize, None);
    let mut put = |code: usize, next: usize| {
        if next > 1 << out.width && out.width < widest {
            let group = out.width * 8;
            out.bits.resize(out.since + (out.bits.len() - out.since).next_multiple_of(group), false);
            (out.since, out.width) = (out.bits.len(), out.width + 1);
        }
        let width = out.width;
        out.bits.extend((0..width).map(|bit| code >> bit & 1 == 1));
    };
    for &byte in data {
        let known = old.map_or(Some(usize::from(byte)), |old| strings.get(&(old, byte)).copied());
        old = known.or_else(|| {
            let before = old.unwrap();
            put(before, next);
            if next < 1 << widest {
                strings.insert((before, byte), next);
                next += 1;
            }
            Some(usize::from(byte))
        });
    }
    if let Some(last) = old {
        put(last, next);
    }
    let bytes = out.bits.chunks(8).map(|eight| eight.iter().rev().fold(0, |byte, &bit| byte << 1 | u8::from(bit)));
    [0x1F, 0x9D, widest as u8].into_iter().chain(bytes).collect()
}

#[test]
fn reads_what_compress_writes_with_every_width() {
    let datas = [vec![], b"a".to_vec(), b"aaaaaaaa".to_vec(), vec![0; 3 << 20], noise(400_000), sample(2 << 20, 1)];
    for width in 10..=16 {
        for data in &datas {
            let packed = compress(width, data);
            let pass = decode_spaced(&Compress, &packed, SPACING);
            assert_points_lead_to(&Compress, &packed, &pass.points, data);
            assert!(pass.points.len() as u64 > data.len() as u64 / (2 * SPACING), "{} points", pass.points.len());
            assert!(pass.whole() == *data, "{width} bits, {} bytes", data.len());
        }
    }
}

#[test]
fn reads_what_was_written_without_blocks() {
    for widest in [9, 10, 13, 16] {
        for data in [&b""[..], b"a", &vec![0; 1 << 20], &noise(100_000), &sample(1 << 20, 2)] {
            let packed = without_blocks(widest, data);
            // With 9 bits, gzip goes on to 10.
            if widest > 9 && !data.is_empty() {
                assert!(tool("gzip -dc", &packed) == data, "the test's own writer is wrong");
            }
            let pass = decode_spaced(&Compress, &packed, SPACING);
            assert_points_lead_to(&Compress, &packed, &pass.points, data);
            assert!(pass.whole() == data, "{widest} bits, {} bytes", data.len());
        }
    }
}

#[test]
fn ends_in_each_code_and_at_each_change_of_width() {
    let data = noise(70_000);
    // Nearly each byte of noise has a code.
    let lengths = (1..40).chain(240..270).chain(500..530).chain(750..800).chain(1780..1830).chain(65_240..65_290);
    for length in lengths {
        let packed = compress(16, &data[..length]);
        assert!(decode(&Compress, &packed).whole() == data[..length], "{length} bytes");
    }
    // The 257th code is the last one of nine bits. If no others follow, nor does what would fill its eight.
    for length in 250..270 {
        let packed = without_blocks(16, &data[..length]);
        assert!(decode(&Compress, &packed).whole() == data[..length], "{length} bytes without blocks");
    }
}

#[test]
fn is_read_anywhere_and_in_steps_of_any_length() {
    for (width, data) in [(16, changing(3 << 20)), (12, changing(3 << 20)), (16, sample(3 << 20, 7))] {
        let packed = compress(width, &data);
        let pass = decode_spaced(&Compress, &packed, SPACING);
        assert!(pass.points.len() > 3);
        assert!(pass.points.iter().all(|point| point.state.len() < 10));
        assert_read_anywhere(&Compress, &packed, &pass.points, &data, u64::from(width));
        for step in [1009, 65_536, 1 << 20] {
            assert!(decode_in_steps(&Compress, &packed, step, Limits::default()).whole() == data);
        }
    }
}

#[test]
fn a_file_cut_at_any_byte_gives_what_is_whole() {
    let data = sample(4000, 3);
    for packed in [compress(10, &data), compress(16, &data), without_blocks(16, &data)] {
        let mut noticed = 0;
        for length in 0..packed.len() {
            let pass = decode(&Compress, &packed[..length]);
            assert!(data.starts_with(&pass.data), "cut at {length}");
            assert!(pass.error.is_some() || length >= HEADER);
            noticed += usize::from(pass.error.is_some());
            if pass.error.is_some() {
                assert_eq!(pass.error_kind(), ErrorKind::UnexpectedEof);
            }
        }
        // Where a cut lies between two codes, nothing tells.
        assert!(noticed * 2 > packed.len(), "{noticed} of {}", packed.len());
    }
}

#[test]
fn a_flipped_bit_gives_bytes_or_an_error() {
    let data = sample(1500, 4);
    for packed in [compress(10, &data), without_blocks(16, &data)] {
        for bit in 0..packed.len() * 8 {
            let mut wrong = packed.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            let pass = decode(&Compress, &wrong);
            // The two bits of the header that say how the rest is to be read are guarded by nothing.
            let is_guarded = bit < 16 || (21..23).contains(&bit);
            assert!(!is_guarded || pass.error_kind() == ErrorKind::InvalidData, "bit {bit}");
        }
    }
}

#[test]
fn any_damage_comes_to_an_end() {
    assert_outlives_mutations(&Compress, &compress(12, &changing(700_000)), SPACING);
    assert_outlives_mutations(&Compress, &without_blocks(16, &sample(300_000, 5)), SPACING);
}

#[test]
fn decoding_goes_on_where_the_dictionary_begins_anew() {
    let data = changing(2 << 20);
    let packed = compress(12, &data);
    let whole = decode_spaced(&Compress, &packed, SPACING);
    assert!(whole.is_clean());
    let mut wrong = packed.clone();
    // So early the dictionary has few strings, so these are codes of none.
    wrong[1000..1010].fill(0xFF);
    let pass = decode_spaced(&Compress, &wrong, SPACING);
    assert!(pass.error.is_none(), "{:?}", pass.error);
    let [damage] = &pass.damage[..] else { panic!("{:?}", pass.damage) };
    assert!(damage.decoded.start == 0 && (998..1010).contains(&damage.compressed), "{damage:?}");
    let behind = &pass.data[damage.decoded.end as usize..];
    assert!(behind.len() > 1 << 20 && data.ends_with(behind), "{} of {} bytes", behind.len(), data.len());
    assert!(pass.data[..1000] == data[..1000]);
    let points: Vec<_> = pass.points.iter().filter(|point| point.decoded >= damage.decoded.end).cloned().collect();
    assert_eq!(points[0].decoded, damage.decoded.end, "there is a point right behind the gap");
    assert_points_lead_to(&Compress, &wrong, &points, &pass.data);
    // What is damaged begins with the dictionary.
    let begins = |point: &&SeekPoint| point.decoded > 0 && point.state[1..] == [0; 8];
    let start = whole.points.iter().skip(1).find(begins).expect("a point at the start of a dictionary");
    let mut later = packed.clone();
    later[start.compressed_bit as usize / 8 + 200..][..10].fill(0xFF);
    let pass = decode_spaced(&Compress, &later, SPACING);
    assert_eq!(pass.damage[0].decoded.start, start.decoded);
    assert!(pass.data[..start.decoded as usize] == data[..start.decoded as usize]);
    let mut first_pass = Compress.first_pass(source(&wrong), &Options::default()).unwrap();
    let (mut shifts, mut buffer) = (Vec::new(), vec![0; PIECE]);
    while first_pass.read(&mut buffer).unwrap() > 0 {}
    first_pass.take_shifts(&mut shifts);
    assert_eq!(shifts, [damage.decoded.end]);
    // Whoever is not in a first pass is not to go on.
    let error = resume(&Compress, &wrong, &SeekPoint::default(), 1000).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(
        error.to_string().ends_with("of the compressed file") && error.to_string().contains("stands for nothing"),
        "{error}"
    );
}

#[test]
fn a_bomb_takes_no_memory_and_no_time_to_go_on() {
    let data = vec![0; 60 << 20];
    let packed = compress(16, &data);
    assert!(packed.len() < 30_000);
    let mut pass = Compress.first_pass(source(&packed), &Options::default()).unwrap();
    let (mut buffer, mut points, mut length) = (vec![0; PIECE], Vec::new(), 0);
    loop {
        match pass.read(&mut buffer).unwrap() {
            0 => break,
            read => length += read,
        }
        pass.take_points(&mut points);
        assert!(pass.memory() < 2 << 20);
    }
    assert_eq!(length, data.len());
    let last = points.last().unwrap();
    assert!(last.decoded > 50 << 20);
    assert_eq!(resume(&Compress, &packed, last, PIECE).unwrap().len() as u64, data.len() as u64 - last.decoded);
}

#[test]
fn a_state_that_lies_is_an_error_or_decodes() {
    // With points where the dictionary begins, and where it is full.
    let packed = [compress(16, &changing(2 << 20)), without_blocks(16, &sample(2 << 20, 9))];
    let points = packed.each_ref().map(|packed| decode_spaced(&Compress, packed, SPACING).points);
    assert!(points[1].len() > 2);
    for (packed, point) in
        packed.iter().zip(&points).flat_map(|(packed, points)| points[1..].iter().map(move |it| (packed, it)))
    {
        for index in 0..point.state.len() {
            for value in [0, 1, 8, 0x80, 0xFF] {
                let mut wrong = point.clone();
                wrong.state[index] = value;
                let _ = resume(&Compress, packed, &wrong, PIECE);
                wrong.state.truncate(index);
                assert!(resume(&Compress, packed, &wrong, PIECE).is_err());
            }
        }
        for compressed_bit in [0, 1, 23, packed.len() as u64 * 9, u64::MAX, u64::MAX - 7] {
            assert!(resume(&Compress, packed, &SeekPoint { compressed_bit, ..point.clone() }, PIECE).is_err());
        }
        assert!(resume(&Compress, &packed[..2], point, PIECE).is_err());
        // Between two codes, though the dictionary is where it should be.
        let before = u64::from_le_bytes(*point.state.last_chunk().unwrap());
        let state = [&point.state[..1], &(before + 1).to_le_bytes()].concat();
        let between = SeekPoint { compressed_bit: point.compressed_bit + 1, state, ..point.clone() };
        assert!(Compress.resume(source(packed), &between, &DecodeContext::default()).is_err());
    }
}

#[test]
fn bids_for_its_header() {
    let packed = compress(16, b"hello hello");
    assert_eq!(Compress.bid(&packed), 21);
    assert_eq!(Compress.bid(&compress(16, b"")), 20);
    for (at, bit) in [(0, 1), (1, 1), (2, 0x40), (2, 0x10), (4, 1)] {
        let mut other = packed.clone();
        other[at] ^= bit;
        assert_eq!(Compress.bid(&other), 0, "byte {at}");
    }
    assert_eq!(Compress.bid(b""), 0);
    assert_eq!(Compress.bid(b"\x1F\x9D"), 0);
}

#[test]
fn other_projects_archives_decode_as_gzip_does() {
    let Some(folder) = corpus("libarchive") else { return };
    let mut compared = 0;
    for path in std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
        if path.extension().is_some_and(|extension| extension == "Z") {
            let bytes = std::fs::read(&path).unwrap();
            assert!(Compress.bid(&bytes) > 0, "{}", path.display());
            assert!(decode(&Compress, &bytes).whole() == tool("gzip -dc", &bytes), "{}", path.display());
            compared += 1;
        }
    }
    assert!(compared >= 10, "{compared}");
}
