//! `.lzma` and `.lz` files.

use std::io::ErrorKind;

use proptest::prelude::*;
use tarnfs_source::Limits;

use crate::lzma::{Lzip, Lzma};
use crate::testing::{
    assert_points_lead_to, assert_read_anywhere, assert_survives_mutations, corpus, decode, decode_in_steps, noise,
    resume, sample, tool, tool_status,
};
use crate::{Codec, FileCodec as _, PIECE, SeekPoint};

fn lzma(options: &str, data: &[u8]) -> Vec<u8> {
    tool(&format!("xz -q -c --format=lzma {options}"), data)
}

fn lzip(options: &str, data: &[u8]) -> Vec<u8> {
    tool(&format!("lzip -q -c {options}"), data)
}

/// The same data with their length in the header, and without a marker at their end where `xz` has written none.
fn with_length(mut stream: Vec<u8>, length: usize) -> Vec<u8> {
    stream[5..13].copy_from_slice(&(length as u64).to_le_bytes());
    stream
}

#[test]
fn what_the_tools_write_at_any_setting() {
    for length in [0, 1, 5, 70_000, PIECE, 1_000_000] {
        let data = sample(length, 40 + length as u64);
        for options in
            ["-0", "-6", "-9e", "--lzma1=preset=1,lc=0,lp=4,pb=0", "--lzma1=preset=4,lc=4,lp=0,pb=4,dict=4KiB"]
        {
            let stream = lzma(options, &data);
            for stream in [with_length(stream.clone(), length), stream] {
                let pass = decode(&Lzma, &stream);
                assert_points_lead_to(&Lzma, &stream, &pass.points, &data);
                assert!(pass.whole() == data, "{options}, {length} bytes");
            }
        }
        for options in ["-0", "-6", "-9", "-6 -s 4KiB", "-0 -b 100KiB", "-3 -s 300KiB"] {
            let stream = lzip(options, &data);
            let pass = decode(&Lzip, &stream);
            assert_points_lead_to(&Lzip, &stream, &pass.points, &data);
            assert!(pass.whole() == data, "{options}, {length} bytes");
        }
    }
}

#[test]
fn seek_points_lie_inside_the_data() {
    let data = sample(4_000_000, 41);
    for (codec, stream) in [
        (&Lzma as &dyn Codec, lzma("--lzma1=preset=1,dict=64KiB", &data)),
        (&Lzma, lzma("-6", &data)),
        (&Lzip, lzip("-6 -s 64KiB", &data)),
        (&Lzip, lzip("-6 -b 1MiB", &data)),
    ] {
        let pass = decode(codec, &stream);
        assert!(pass.points.len() >= 2, "{} points", pass.points.len());
        assert_points_lead_to(codec, &stream, &pass.points, &data);
        for step in [1000, 99_999] {
            assert!(decode_in_steps(codec, &stream, step, Limits::default()).whole() == data);
        }
        assert_read_anywhere(codec, &stream, &pass.points, &data, 45);
    }
}

#[test]
fn members_follow_one_another() {
    let data = sample(700_000, 42);
    let stream = [&lzip("-0", &data[..200_000])[..], &lzip("-9", b""), &lzip("-3", &data[200_000..])].concat();
    let pass = decode(&Lzip, &stream);
    assert!(pass.points.len() >= 2);
    assert_points_lead_to(&Lzip, &stream, &pass.points, &data);
    assert!(pass.whole() == data);
    assert!(decode(&Lzip, &[&stream[..], &[0; 5000]].concat()).whole() == data);
    let garbage = [&stream[..], b"garbage"].concat();
    let pass = decode(&Lzip, &garbage);
    assert!(pass.data == data && pass.error.is_none());
    assert!(pass.damage.len() == 1 && pass.damage[0].decoded.is_empty());
}

#[test]
fn points_and_bytes_are_the_same_for_any_number_of_threads() {
    let data = [sample(3_000_000, 48), noise(400_000), vec![0; 2_000_000], sample(1_500_000, 49)].concat();
    for options in ["-0 -b 1MiB", "-1 -b 700KiB -s 64KiB", "-6 -b 2MiB -s 1MiB", "-6 -b 300KiB", "-9 -b 100KiB"] {
        // `decode` compares one thread with three.
        let stream = lzip(options, &data);
        let pass = decode(&Lzip, &stream);
        assert!(pass.points.len() > 5, "{options}: {} points", pass.points.len());
        assert_points_lead_to(&Lzip, &stream, &pass.points, &data);
        assert!(pass.whole() == data, "{options}");
        for step in [1000, 1 << 20] {
            assert!(decode_in_steps(&Lzip, &stream, step, Limits::default()).whole() == data);
        }
    }
    // Many small ones, some of nothing, and zeros between them.
    let parts: Vec<_> = data.chunks(3000).take(300).collect();
    let mut stream = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        stream.extend(lzip("-3", part));
        stream.extend(if number % 7 == 0 { lzip("-3", b"") } else { vec![0; usize::from(number % 50 == 1) * 5] });
    }
    let pass = decode(&Lzip, &stream);
    assert_points_lead_to(&Lzip, &stream, &pass.points, &parts.concat());
    assert!(pass.whole() == parts.concat());
    let nothing = lzip("", b"").repeat(3000);
    assert!(decode(&Lzip, &nothing).whole().is_empty());
}

#[test]
fn members_that_lie_about_their_sizes_are_damaged_and_no_others() {
    let data = sample(600_000, 50);
    let members: Vec<_> = data.chunks(100_000).map(|part| lzip("-3", part)).collect();
    let start = members[..2].concat().len();
    let end = start + members[2].len();
    // The size of the member, that of the data, and the checksum: to less, to more, to that of two.
    let both = (members[2].len() + members[3].len()) as u64;
    for (at, value) in [(8, 1_u64), (8, both), (8, u64::MAX), (16, 1), (16, 99_999), (16, 50 << 20), (16, u64::MAX)] {
        let mut stream = members.concat();
        stream[end - at..][..8].copy_from_slice(&value.to_le_bytes());
        let pass = decode(&Lzip, &stream);
        assert!(pass.data == data && pass.error.is_none());
        assert_eq!(pass.damage.len(), 1);
        assert_eq!(pass.damage[0].decoded, 200_000..300_000);
        assert!(pass.damage[0].what.contains("sizes"), "{:?}", pass.damage);
    }
    let mut stream = members.concat();
    stream[end - 20] ^= 1;
    let pass = decode(&Lzip, &stream);
    assert!(pass.data == data && pass.damage[0].what.contains("CRC-32"), "{:?}", pass.damage);
    // In the data: the trailer says where it ends.
    let mut stream = members.concat();
    stream[start + 500..start + 540].fill(0xFF);
    let pass = decode(&Lzip, &stream);
    assert!(pass.error.is_none() && pass.data.len() == data.len() && pass.shifts.is_empty());
    assert!(pass.data[..200_000] == data[..200_000] && pass.data[300_000..] == data[300_000..]);
    assert_eq!(pass.damage[0].decoded, 200_000..300_000);
    assert_points_lead_to(&Lzip, &stream, &pass.points, &pass.data);
    // And in the trailer as well: the next one says so of itself.
    stream[end - 8] ^= 1;
    let pass = decode(&Lzip, &stream);
    assert!(pass.error.is_none() && pass.data.ends_with(&data[300_000..]) && pass.shifts.len() == 1);
    assert_eq!(pass.damage[0].decoded, 200_000..pass.shifts[0]);
    assert_points_lead_to(&Lzip, &stream, &pass.points, &pass.data);
    // Cut in one of them: those before it are whole.
    let pass = decode(&Lzip, &members.concat()[..end - 30]);
    assert!(pass.error_kind() == ErrorKind::UnexpectedEof && data.starts_with(&pass.data) && pass.damage.is_empty());
    // More dictionary than there may be is refused by all, also where the data need less.
    let limits = Limits { lzma_dictionary: 1 << 16, ..Limits::default() };
    let pass = decode_in_steps(&Lzip, &[lzip("-0", &data[..100]), members.concat()].concat(), PIECE, limits);
    assert_eq!((pass.error_kind(), pass.data.len()), (ErrorKind::Unsupported, 100));
}

#[test]
fn every_cut_is_an_error_behind_the_right_bytes() {
    let data = sample(3000, 43);
    let (alone, members) = (lzma("-6", &data), lzip("-6", &data));
    for (codec, stream) in
        [(&Lzma as &dyn Codec, &alone), (&Lzma, &with_length(alone.clone(), 3000)), (&Lzip, &members)]
    {
        let mut most = 0;
        for cut in 0..stream.len() {
            let pass = decode(codec, &stream[..cut]);
            assert!(data.starts_with(&pass.data), "cut at {cut}");
            most = most.max(pass.data.len());
            // The marker's last bytes may be missing where the length is known.
            let whole = pass.is_clean() && pass.data.len() == data.len() && cut + 8 > stream.len();
            assert!(whole || pass.error_kind() == ErrorKind::UnexpectedEof, "cut at {cut}: {:?}", pass.error);
        }
        assert!(most > 2000, "{most}");
    }
}

/// Also where only some bytes of another member are left: they are no padding, and nothing else begins so.
#[test]
fn every_cut_in_the_header_of_another_member_is_an_error() {
    let data = sample(300_000, 44);
    let (first, second) = (lzip("-6", &data), lzip("-6", &data[..1000]));
    for left in 1..second.len() {
        let stream = [&first[..], &second[..left]].concat();
        let pass = decode(&Lzip, &stream);
        assert!(pass.data.starts_with(&data), "{left}");
        assert_eq!(pass.error_kind(), ErrorKind::UnexpectedEof, "{left}");
    }
    // Other bytes are no member.
    for other in [&b"LZI_"[..], b"ZIP", b"lzip", b"x"] {
        let pass = decode(&Lzip, &[&first, other].concat());
        assert!(pass.error.is_none() && pass.data == data && !pass.is_clean(), "{other:?}");
    }
}

#[test]
fn a_flipped_bit_is_an_error_or_harmless() {
    let data = sample(700, 44);
    let (alone, members) = (lzma("-6", &data), lzip("-6", &data));
    let mut unnoticed = 0;
    for (codec, stream) in [(&Lzma as &dyn Codec, &alone), (&Lzip, &members)] {
        for bit in 0..stream.len() * 8 {
            let mut flipped = stream.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let pass = decode(codec, &flipped);
            if codec.name() == "lzma" {
                // Without a checksum some cannot be noticed: a literal became another one.
                unnoticed += usize::from(pass.is_clean() && pass.data != data);
            } else {
                pass.assert_honest(&data, &format!("bit {bit}"));
            }
            let _ = resume(codec, &flipped, &SeekPoint { state: vec![1], ..SeekPoint::default() }, 333);
        }
    }
    assert!(unnoticed < 20, "{unnoticed}");
}

#[test]
fn mutations_are_survived() {
    let data = sample(6000, 45);
    assert_survives_mutations(&Lzip, &lzip("-6", &data), &data);
    assert_survives_mutations(&Lzip, &[lzip("-6", &data), lzip("-0", &data)].concat(), &data.repeat(2));
    let members = data.chunks(600).flat_map(|part| lzip("-1", part)).collect::<Vec<_>>();
    assert_survives_mutations(&Lzip, &members, &data);
}

#[test]
fn points_that_lie_are_refused() {
    let data = sample(2_000_000, 46);
    for (codec, stream) in
        [(&Lzma as &dyn Codec, lzma("--lzma1=preset=1,dict=64KiB", &data)), (&Lzip, lzip("-6 -s 64KiB", &data))]
    {
        let points = decode(codec, &stream).points;
        let point = &points[2];
        let with = |change: &dyn Fn(&mut SeekPoint)| {
            let mut lying = point.clone();
            change(&mut lying);
            resume(codec, &stream, &lying, 10_000)
        };
        assert!(with(&|_| {}).unwrap() == data[point.decoded as usize..]);
        for bad in [
            with(&|point| point.compressed_bit += 1),
            with(&|point| point.compressed_bit = u64::MAX - 7),
            with(&|point| point.decoded = u64::MAX),
            with(&|point| point.decoded = 0),
            with(&|point| point.state[0] = 3),
            with(&|point| point.state[1] ^= 0xFF),
            with(&|point| point.state[9..17].fill(0xFF)),
            with(&|point| point.state.truncate(16)),
            with(&|point| point.state.truncate(500)),
        ] {
            assert!(bad.is_err());
        }
        // A state of nothing: for what cannot be decoded so, a gap may stand, as the trailer tells its length.
        let of_nothing = with(&|point| point.state.truncate(17));
        assert!(of_nothing.is_err() || codec.name() == "lzip" && of_nothing.unwrap() != data[point.decoded as usize..]);
        for at in 17..60 {
            // What a state holds is looked at in the tests of states.
            let _ = with(&|point| point.state[at] ^= 0x55);
        }
    }
}

#[test]
fn a_dictionary_has_a_limit() {
    let stream = lzma("-9", &sample(300_000, 47));
    let limits = Limits { lzma_dictionary: 4 << 20, ..Limits::default() };
    let pass = decode_in_steps(&Lzma, &stream, PIECE, limits);
    assert_eq!(pass.error_kind(), ErrorKind::Unsupported);
    assert!(decode_in_steps(&Lzma, &with_length(stream, 300_000), PIECE, limits).is_clean());
}

#[test]
fn a_dictionary_has_a_size_that_lzip_knows() {
    let data = sample(300, 51);
    let stream = lzip("-0", &data);
    for (bits, error) in
        [(12, None), (29, None), (11, Some(ErrorKind::InvalidData)), (30, Some(ErrorKind::InvalidData))]
    {
        let stream = [&stream[..5], &[bits], &stream[6..]].concat();
        assert_eq!(decode(&Lzip, &stream).error.map(|error| error.kind()), error, "2^{bits} bytes");
        assert_eq!(Lzip.bid(&stream) > 0, error.is_none());
    }
}

#[test]
fn a_file_that_holds_more_than_its_header_says_is_damaged() {
    let data = [&b"one"[..], &b"ab".repeat(40), &sample(200, 52)].concat();
    let stream = lzma("-6", &data);
    for length in 0..data.len() {
        let pass = decode(&Lzma, &with_length(stream.clone(), length));
        assert!(data[..length].starts_with(&pass.data), "{length} bytes");
        assert_eq!(pass.error_kind(), ErrorKind::InvalidData, "{length} bytes");
    }
}

#[test]
fn they_bid_for_their_own() {
    let data = sample(10_000, 48);
    let (alone, members) = (lzma("", &data), lzip("", &data));
    assert_eq!((Lzma.bid(&alone), Lzip.bid(&alone)), (98, 0));
    assert_eq!((Lzma.bid(&members), Lzip.bid(&members)), (0, 41));
    assert!(Lzma.bid(&with_length(alone, 10_000)) > 0);
    for preset in 0..10 {
        assert!(Lzma.bid(&lzma(&format!("-{preset}"), b"")) > 0);
    }
    for other in [&[0; 1024][..], &data, &tool("gzip -c", &data), &tool("xz -c", &data), &[0x5D; 100]] {
        assert_eq!((Lzma.bid(other), Lzip.bid(other)), (0, 0));
    }
}

#[test]
fn the_corpus_is_read_as_the_tool_reads_it() {
    let Some(folder) = corpus("xz") else { return };
    let mut files = 0;
    for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        let codec: &dyn Codec = match file.extension().and_then(|suffix| suffix.to_str()) {
            Some("lzma") => &Lzma,
            Some("lz") => &Lzip,
            _ => continue,
        };
        files += 1;
        let stream = std::fs::read(&file).unwrap();
        let (data, _) = tool_status("xz -q -dc", &stream);
        let pass = decode(codec, &stream);
        if name.starts_with("good") {
            let nothing_lost = pass.damage.iter().all(|damage| damage.decoded.is_empty());
            assert!(pass.error.is_none() && nothing_lost, "{name}: {:?} {:?}", pass.error, pass.damage);
            assert!(pass.data == data && !data.is_empty(), "{name}");
        } else {
            assert!(!pass.is_clean(), "{name}");
        }
    }
    assert!(files > 20, "{files}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_was_written_is_read(
        part in proptest::collection::vec(0u8..4, 0..3000),
        level in 0..7,
        (lc, lp) in (0..5).prop_flat_map(|lc| (Just(lc), 0..5 - lc)),
        pb in 0..5,
    ) {
        let stream = lzma(&format!("--lzma1=preset={level},lc={lc},lp={lp},pb={pb}"), &part);
        prop_assert!(decode(&Lzma, &stream).whole() == part);
        let stream = lzip(&format!("-{level}"), &part);
        prop_assert!(decode(&Lzip, &stream).whole() == part);
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300), decoded in any::<u64>()) {
        for (codec, header) in [(&Lzma as &dyn Codec, &lzma("", b"")[..13]), (&Lzip, b"LZIP\x01\x0c")] {
            decode(codec, &[header, &bytes].concat());
            decode(codec, &bytes);
            let point = SeekPoint { compressed_bit: 0, decoded, state: vec![1] };
            let _ = resume(codec, &bytes, &point, 100);
        }
    }
}
