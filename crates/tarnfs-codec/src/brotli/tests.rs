use std::io::ErrorKind;

use tarnfs_source::Limits;

use super::Brotli;
use crate::testing::{
    assert_outlives_mutations, assert_read_anywhere, decode, decode_in_steps, noise, resume, sample, source, tool,
};
use crate::{Codec, DecodeContext, Decoder, Options, PIECE, SeekPoint};

fn brotli(options: &str, data: &[u8]) -> Vec<u8> {
    tool(&format!("brotli -c {options}"), data)
}

#[test]
fn reads_what_brotli_writes_at_every_quality() {
    for data in [&b""[..], b"a", &vec![0; 1 << 20], &noise(200_000), &sample(700_000, 1)] {
        for quality in 0..=11 {
            let packed = brotli(&format!("-q {quality}"), data);
            let pass = decode(&Brotli, &packed);
            assert_eq!(pass.points, [SeekPoint::default()]);
            assert!(pass.whole() == data, "quality {quality}, {} bytes", data.len());
        }
    }
}

#[test]
fn reads_windows_of_all_sizes_within_the_limit() {
    let data = sample(1 << 20, 2);
    for window in 10..=24 {
        assert!(decode(&Brotli, &brotli(&format!("-q 2 -w {window}"), &data)).whole() == data, "{window}");
    }
    for window in [25, 27] {
        let packed = brotli(&format!("-q 5 --large_window={window}"), &data);
        assert!(decode(&Brotli, &packed).whole() == data, "{window}");
        let limits = Limits { decoder_window: (1 << window) - 1, ..Limits::default() };
        let pass = decode_in_steps(&Brotli, &packed, PIECE, limits);
        assert_eq!(pass.error_kind(), ErrorKind::Unsupported);
        assert!(pass.error.unwrap().to_string().contains(&format!("2^{window}")));
    }
    let pass = decode(&Brotli, &brotli("-q 5 --large_window=28", &data));
    assert!(pass.error.unwrap().to_string().contains("the limit is 134217728"));
}

#[test]
fn is_read_anywhere_and_in_steps_of_any_length() {
    let data = sample(1 << 20, 3);
    let packed = brotli("-q 5", &data);
    for step in [1, 1009, 65_536] {
        let data = &data[..if step == 1 { 20_000 } else { data.len() }];
        let packed = if step == 1 { &brotli("-q 5", data) } else { &packed };
        assert!(decode_in_steps(&Brotli, packed, step, Limits::default()).whole() == data);
    }
    assert_read_anywhere(&Brotli, &packed, &[SeekPoint::default()], &data, 3);
    for point in [
        SeekPoint { compressed_bit: 8, ..SeekPoint::default() },
        SeekPoint { decoded: 8, ..SeekPoint::default() },
        SeekPoint { state: vec![1], ..SeekPoint::default() },
    ] {
        assert!(resume(&Brotli, &packed, &point, PIECE).is_err());
    }
}

#[test]
fn a_file_cut_at_any_byte_gives_what_is_whole_and_an_error() {
    let data = sample(3000, 4);
    let packed = brotli("-q 9", &data);
    for length in 0..packed.len() {
        let pass = decode(&Brotli, &packed[..length]);
        assert!(data.starts_with(&pass.data));
        assert_eq!(pass.error_kind(), ErrorKind::UnexpectedEof, "cut at {length}");
    }
    let behind = [&packed[..], b"something"].concat();
    let pass = decode(&Brotli, &behind);
    assert!(pass.error.is_none() && pass.data == data);
    assert_eq!((pass.damage[0].decoded.clone(), pass.damage[0].compressed), (3000..3000, packed.len() as u64));
}

#[test]
fn what_comes_before_damage_is_the_same_however_it_is_read() {
    let all_before = |decoder: &mut dyn Decoder, step| {
        let (mut data, mut buffer) = (Vec::<u8>::new(), vec![0; step]);
        loop {
            match decoder.read(&mut buffer) {
                Ok(0) => return (data, None),
                Ok(read) => data.extend(&buffer[..read]),
                Err(error) => return (data, Some(error.to_string())),
            }
        }
    };
    let data = sample(900_000, 9);
    // Other bytes come of most damage, as there is no checksum.
    let mut failed = 0;
    for options in ["-q 1", "-q 5", "-q 9 -w 16"] {
        let packed = brotli(options, &data);
        for number in 0..40 {
            let mut wrong = packed.clone();
            let at = packed.len() / 2 + number * packed.len() / 81;
            wrong[at] ^= 1 << (number % 8);
            let mut pass = Brotli.first_pass(source(&wrong), &Options::default()).unwrap();
            let (seen, error) = all_before(&mut *pass, 64 << 10);
            failed += usize::from(error.is_some());
            for step in [1009, 300_000, 512 << 10] {
                let mut decoder =
                    Brotli.resume(source(&wrong), &SeekPoint::default(), &DecodeContext::default()).unwrap();
                let (read, again) = all_before(&mut *decoder, step);
                assert!(read == seen, "{options}: {} of {} bytes, damaged at {at}", read.len(), seen.len());
                assert_eq!(again, error, "{options}: damaged at {at}");
            }
        }
    }
    assert!(failed > 5, "{failed} failed");
}

#[test]
fn any_damage_comes_to_an_end() {
    let data = sample(2000, 5);
    for packed in [brotli("-q 9", &data), brotli("-q 0", &data)] {
        for bit in 0..packed.len() * 8 {
            let mut wrong = packed.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            // Without a checksum, other bytes may come.
            let pass = decode(&Brotli, &wrong);
            assert!(pass.error.is_none_or(|error| error.to_string().ends_with("of the compressed file")));
        }
    }
    assert_outlives_mutations(&Brotli, &brotli("-q 5", &sample(200_000, 6)), PIECE as u64);
}

#[test]
fn a_bomb_takes_the_memory_of_its_window() {
    let packed = brotli("-q 9 -w 24", &vec![0; 60 << 20]);
    assert!(packed.len() < 1000);
    let mut pass = Brotli.first_pass(source(&packed), &Options::default()).unwrap();
    let (mut buffer, mut length) = (vec![0; PIECE], 0);
    loop {
        match pass.read(&mut buffer).unwrap() {
            0 => break,
            read => length += read,
        }
        assert!(pass.memory() < 18 << 20, "{}", pass.memory());
    }
    assert_eq!(length, 60 << 20);
}

#[test]
fn is_known_by_its_name_and_what_its_first_bytes_become() {
    let named = |name: &[u8], head: &[u8]| crate::detect_named(name, head).map(Codec::name);
    let packed = brotli("", &sample(100_000, 7));
    let head = &packed[..4096];
    assert_eq!(named(b"a.tar.br", head), Some("brotli"));
    assert_eq!(named(b"A.TBR", head), Some("brotli"));
    assert_eq!(named(b"short.br", &brotli("", b"hello")), Some("brotli"));
    for name in [&b"a.tar.gz"[..], b"a", b".br", b"br"] {
        assert_eq!(named(name, head), None);
    }
    assert_eq!(named(b"text.br", b"This is a text, whatever its name says. It has some words in it."), None);
    assert_eq!(named(b"empty.br", b""), None);
    let text = "There is no end of such lines, and no stream of brotli begins like them.\n".repeat(60);
    assert_eq!(named(b"text.br", &text.as_bytes()[..4096]), None);
    let wrong = noise(4096 * 200).chunks(4096).filter(|head| named(b"noise.br", head).is_some()).count();
    // Stored blocks and metadata may hold anything.
    assert!(wrong <= 20, "{wrong} of 200 look like brotli");
    assert_eq!(named(b"short.br", b"\x06 is an empty stream, and something behind it"), None);
    assert_eq!(
        named(b"large.br", &brotli("-q 5 --large_window=28", &sample(100_000, 8))[..4096]),
        Some("brotli"),
        "an error says why"
    );
    assert_eq!(named(b"bomb.br", &brotli("-q 5", &vec![0; 50 << 20])), Some("brotli"));
    assert_eq!(crate::detect(head).map(Codec::name), None);
}

/// What begins with a length of ones and zeros behind it looks like a stored block of deflate: quick compressors write
/// that often.
#[test]
fn what_looks_like_deflate_is_what_its_name_says() {
    let text: Vec<u8> = (0..400_000_u32).flat_map(|number| format!("{} ", number * 7919).into_bytes()).collect();
    let mut alike = 0;
    for length in [65_536, 98_304, 131_056, 131_072, 196_608, 1_100_000, 1_600_000, 2_000_000] {
        for quality in ["-q 1", "-q 2", "-q 3"] {
            let packed = brotli(quality, &text[..length]);
            let head = &packed[..4096];
            alike += usize::from(packed[1] == !packed[3] && packed[2] == !packed[4]);
            assert_eq!(crate::detect_named(b"a.br", head).map(Codec::name), Some("brotli"), "{quality}, {length}");
            assert_eq!(crate::detect(head).map(Codec::name), None, "{quality}, {length}");
        }
    }
    assert!(alike > 0);
}
