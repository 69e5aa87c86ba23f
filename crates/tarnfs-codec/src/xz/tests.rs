use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use proptest::prelude::*;
use tarnfs_source::testing::{Fault, FaultySource, When};
use tarnfs_source::{Limits, SharedSource};

use super::{Xz, xz_block_state};
use crate::testing::{
    Pass, assert_points_lead_to, assert_read_anywhere, assert_survives_mutations, corpus, decode, decode_in_steps,
    noise, resume, sample, source, to_the_end, tool, tool_status,
};
use crate::{Codec, DecodeContext, FileCodec as _, Options, PIECE, SeekPoint};

fn xz(options: &str, data: &[u8]) -> Vec<u8> {
    tool(&format!("xz -q -c {options}"), data)
}

#[test]
fn what_the_tool_writes_at_any_setting() {
    for length in [0, 1, 5, 70_000, PIECE, 600_000] {
        let data = sample(length, 1 + length as u64);
        for options in [
            "-0",
            "-3",
            "-9e",
            "--block-size=50000 -1",
            "--block-size=200000 -T2 -1",
            "--block-list=1000,1,150000,0 -1",
            "-T2 -6",
            "-1 --check=none",
            "-1 --check=crc32",
            "-1 --check=crc64",
            "-1 --check=sha256",
            "--x86 --lzma2=preset=1",
            "--arm --lzma2=preset=1",
            "--armthumb --lzma2=preset=1",
            "--arm64 --lzma2=preset=1",
            "--powerpc --lzma2=preset=1",
            "--ia64 --lzma2=preset=1",
            "--sparc --lzma2=preset=1",
            "--delta=dist=4 --lzma2=preset=1",
            "--x86 --delta --delta=dist=3 --lzma2=dict=4096,lc=0,lp=4,pb=1",
        ] {
            let stream = xz(options, &data);
            let pass = decode(&Xz, &stream);
            assert_points_lead_to(&Xz, &stream, &pass.points, &data);
            assert!(pass.whole() == data, "{options}, {length} bytes");
        }
    }
}

#[test]
fn any_size_of_reads_gives_the_same() {
    let data = sample(200_000, 2);
    for options in ["--block-size=70000 -1", "--block-size=70000 -T2 -1 --x86 --lzma2=preset=1", "-1 --check=none"] {
        let stream = xz(options, &data);
        for step in [1, 7, 1000, 69_999, 70_000, 70_001, 1 << 20] {
            assert!(decode_in_steps(&Xz, &stream, step, Limits::default()).whole() == data, "{step}");
        }
    }
}

#[test]
fn seek_points_lie_inside_a_block() {
    let data = sample(4_000_000, 20);
    for options in [
        "-0",
        "-6",
        "-9e",
        "--lzma2=preset=1,dict=4KiB",
        "--lzma2=preset=1,dict=300KiB,lc=0,lp=4,pb=0",
        "--lzma2=preset=3,lc=4,lp=0,pb=4",
        "--lzma2=preset=3,lc=1,lp=3,pb=1",
    ] {
        let stream = xz(options, &data);
        let pass = decode(&Xz, &stream);
        assert!(pass.points.len() >= 2, "{options}: {} points", pass.points.len());
        assert!(pass.points.windows(2).all(|two| two[0].compressed_bit < two[1].compressed_bit));
        assert_points_lead_to(&Xz, &stream, &pass.points, &data);
        assert_read_anywhere(&Xz, &stream, &pass.points, &data, 21);
        assert!(pass.whole() == data, "{options}");
    }
    // Other filters have a state of their own.
    for options in ["--x86 --lzma2=preset=1", "--delta=dist=4 --lzma2=preset=1"] {
        assert_eq!(decode(&Xz, &xz(options, &data)).points.len(), 1);
    }
}

#[test]
fn chunks_that_are_not_compressed_have_seek_points_between_them() {
    let mut random = 1_u64;
    let noise = std::iter::repeat_with(|| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 56) as u8
    });
    let noise: Vec<u8> = noise.take(700_000).collect();
    // It comes back: what lies before a point is referred to over its whole length, and over noise only.
    let data = [&noise[..], &sample(300_000, 22), &noise, &noise[1000..], &sample(300_000, 22)].concat();
    let stream = xz("-1", &data);
    let pass = decode(&Xz, &stream);
    assert!(pass.points.len() >= 3, "{} points", pass.points.len());
    assert_points_lead_to(&Xz, &stream, &pass.points, &data);
    assert!(pass.whole() == data);
}

/// Streams with different checks, with padding between them.
fn several_streams(data: &[u8]) -> Vec<u8> {
    let checks = ["crc32", "sha256", "none", "crc64"];
    let mut stream = Vec::new();
    for (number, part) in data.chunks(data.len().div_ceil(8)).enumerate() {
        stream.extend(xz(&format!("-1 --check={} --block-size=60000", checks[number % 4]), part));
        stream.extend(vec![0; number * 4]);
    }
    stream
}

#[test]
fn streams_follow_one_another() {
    let data = sample(1_200_000, 3);
    let stream = several_streams(&data);
    let pass = decode(&Xz, &stream);
    assert_eq!(pass.points.len(), 8);
    assert_points_lead_to(&Xz, &stream, &pass.points, &data);
    assert!(pass.whole() == data);
    for nothing in [vec![xz("", b""); 3].concat(), [xz("", b""), vec![0; 40_000], xz("", b""), vec![0; 8]].concat()] {
        assert_eq!(decode(&Xz, &nothing).whole(), b"");
    }
}

#[test]
fn thousands_of_tiny_blocks_have_few_seek_points() {
    let data = sample(300_000, 4);
    let stream = xz("-0 --block-size=100", &data);
    let pass = decode(&Xz, &stream);
    assert_eq!(pass.points.len(), 3);
    assert_points_lead_to(&Xz, &stream, &pass.points, &data);
    assert!(pass.whole() == data);
}

#[test]
fn a_footer_belongs_to_its_header_and_its_index() {
    let data = sample(1000, 5);
    let stream = xz("-1 --check=crc32", &data);
    let with = |change: &dyn Fn(&mut [u8])| {
        let mut stream = stream.clone();
        let at = stream.len() - 12;
        let footer = &mut stream[at..];
        change(footer);
        let crc = crc32fast::hash(&footer[4..10]);
        footer[..4].copy_from_slice(&crc.to_le_bytes());
        decode(&Xz, &stream)
    };
    assert!(with(&|_| {}).whole() == data);
    // The size of the index, and the check.
    for change in [(&|footer: &mut [u8]| footer[4] += 1) as &dyn Fn(&mut [u8]), &|footer| footer[9] = 4] {
        let pass = with(change);
        assert_eq!((pass.data == data, pass.error_kind()), (true, ErrorKind::InvalidData));
    }
}

/// The sizes of a damaged block are searched for from the end of the file, but not for each of very many.
#[test]
fn very_many_damaged_blocks_cost_little_more_than_others() {
    let data = noise(600_000);
    let stream = xz("-0 --block-size=100", &data);
    let bounds = block_bounds(&stream);
    let mut damaged = stream.clone();
    // The number of a filter; not that of the last ones, so that there is a block behind each.
    for block in bounds[1..bounds.len() - 2].iter().step_by(2) {
        damaged[block + 2] = 0xFF;
    }
    let reads = |stream: &[u8]| {
        let counted = Arc::new(FaultySource::new(source(stream), Fault::Nothing, When::From(u64::MAX)));
        let options = Options { threads: 1, ..Options::default() };
        let mut pass = Xz.first_pass(Arc::clone(&counted) as SharedSource, &options).unwrap();
        let whole = to_the_end(&mut *pass, PIECE).is_ok_and(|decoded| decoded == data);
        (whole, counted.reads())
    };
    let ((is_whole, few), (_, more)) = (reads(&stream), reads(&damaged));
    assert!(is_whole && more < 5 * few, "{few} and {more} reads");
}

/// Without a check at the end of the block nothing else would tell.
#[test]
fn chunks_that_lack_what_they_need_are_refused() {
    // A chunk that is stored starts the dictionary, and another one has the first properties.
    let data = [noise(70_000), sample(30_000, 6)].concat();
    let stream = xz("-1 --check=none", &data);
    let first = 12 + (usize::from(stream[12]) + 1) * 4;
    let mut at = first;
    while stream[at] < 0x80 {
        at += 3 + 1 + usize::from(u16::from_be_bytes([stream[at + 1], stream[at + 2]]));
    }
    assert!(stream[first] == 1 && stream[at] >= 0xC0);
    for (at, byte, message) in [
        (first, 2, "does not start a dictionary"),
        (first, 0x7F, "a control byte that is not valid"),
        (at, stream[at] & 0x1F | 0x80, "lacks its properties"),
        (at, stream[at] & 0x1F | 0xA0, "lacks its properties"),
        // Four bits each of the position and of the last byte.
        (at + 5, 4 * 9 + 4, "the properties of an LZMA2 chunk are not valid"),
        (at + 5, 225, "the properties of an LZMA2 chunk are not valid"),
    ] {
        let mut stream = stream.clone();
        stream[at] = byte;
        let pass = decode(&Xz, &stream);
        let said =
            pass.damage.iter().map(|damage| damage.what.clone()).chain(pass.error.map(|error| error.to_string()));
        let said: Vec<_> = said.collect();
        assert!(said.iter().any(|what| what.contains(message)), "{message}: {said:?}");
    }
}

/// Where the blocks of a file of one stream start, and where the last ends.
fn block_bounds(stream: &[u8]) -> Vec<usize> {
    let file = tempfile::NamedTempFile::with_suffix(".xz").unwrap();
    std::fs::write(file.path(), stream).unwrap();
    let list = tool(&format!("xz --robot --list -v {}", file.path().display()), b"");
    let mut bounds = vec![12];
    for line in String::from_utf8(list).unwrap().lines().filter(|line| line.starts_with("block\t")) {
        let fields: Vec<_> = line.split('\t').collect();
        assert_eq!(fields[4].parse::<usize>().unwrap(), bounds[bounds.len() - 1]);
        bounds.push(bounds[bounds.len() - 1] + fields[6].parse::<usize>().unwrap());
    }
    bounds
}

#[test]
fn damage_stays_in_its_block() {
    let data = sample(600_000, 5);
    // With several threads the tool writes the sizes into the headers.
    for options in ["-1 --block-size=200000", "-1 --block-size=200000 -T2", "-1 --block-size=200000 --check=sha256"] {
        let good = xz(options, &data);
        let bounds = block_bounds(&good);
        assert_eq!(bounds.len(), 4);
        let (start, end) = (bounds[1], bounds[2]);
        let length = end - start;
        let damaged = |at: usize, count: usize| {
            let mut stream = good.clone();
            stream[at..at + count].iter_mut().for_each(|byte| *byte ^= 0x55);
            stream
        };
        for (place, stream) in [
            ("check", damaged(end - 3, 1)),
            ("header", damaged(start + 3, 1)),
            ("size of header", damaged(start, 1)),
            ("data", damaged(start + length / 2, 10)),
            ("end of data", damaged(end - 50, 30)),
            ("all", damaged(start, length)),
        ] {
            let pass = decode(&Xz, &stream);
            assert!(pass.error.is_none(), "{place}: {:?}", pass.error);
            assert_eq!(pass.damage.len(), 1, "{place}: {:?}", pass.damage);
            assert_eq!(pass.damage[0].decoded, 200_000..400_000, "{place}");
            assert_eq!(pass.data.len(), data.len());
            pass.assert_honest(&data, place);
            assert_points_lead_to(&Xz, &stream, &pass.points, &pass.data);
        }
        // Without an index, and without sizes in the header, only the chunks tell how long the block is.
        let pass = decode(&Xz, &damaged(start + length / 2, 10)[..=bounds[3]]);
        assert_eq!(pass.error_kind(), ErrorKind::UnexpectedEof);
        assert_eq!(pass.damage.len(), 1);
        assert_eq!(pass.data.len(), data.len());
        pass.assert_honest(&data, "no index");
    }
}

/// Only the index says how long a block is, and it decodes to more before anything is wrong.
#[test]
fn behind_a_block_of_too_many_bytes_all_may_be_out_of_step() {
    let part = [noise(3000), vec![b'A'; 62_536]].concat();
    let data = part.repeat(8);
    let mut stream = xz("-T1 --block-size=64KiB", &data);
    let bounds = block_bounds(&stream);
    let start = bounds[1];
    let header = (usize::from(stream[start]) + 1) * 4;
    // The upper bits of the length of the first LZMA2 chunk.
    assert_eq!(stream[start + header], 0xE0);
    stream[start + header] |= 1;
    let pass = decode(&Xz, &stream);
    assert!(pass.error.is_none() && pass.damage.len() == 1, "{:?} {:?}", pass.error, pass.damage);
    let Range { start, end } = pass.damage[0].decoded.clone();
    assert!(start == 65_536 && end > 2 * 65_536, "{start}..{end}");
    assert_eq!(pass.shifts, [end]);
    pass.assert_honest(&data, "a longer chunk");
}

#[test]
fn an_index_may_not_claim_exabytes() {
    let data = sample(5000, 6);
    let good = xz("-1 --block-size=2500", &data);
    let bounds = block_bounds(&good);
    let mut index = vec![0, 2];
    for (at, claim) in [(0, 1u64 << 60), (1, 2500)] {
        for mut value in [(bounds[at + 1] - bounds[at]) as u64, claim] {
            while value > 0x7F {
                index.push(value as u8 | 0x80);
                value >>= 7;
            }
            index.push(value as u8);
        }
    }
    index.resize(index.len().next_multiple_of(4), 0);
    let crc = |bytes: &[u8]| crc32fast::hash(bytes).to_le_bytes();
    index.extend(crc(&index));
    let fields = [&((index.len() / 4 - 1) as u32).to_le_bytes()[..], &[0, 4]].concat();
    let mut stream = [&good[..bounds[2]], &index, &crc(&fields), &fields, b"YZ"].concat();
    // It is a lie, but nothing is lost.
    let pass = decode(&Xz, &stream);
    assert!(pass.data == data && pass.error.is_none());
    assert_eq!(pass.damage.len(), 1);
    assert!(pass.damage[0].decoded.is_empty());
    // Nothing but the index knows the length of the first block.
    stream[bounds[0] + 3] ^= 1;
    let pass = decode(&Xz, &stream);
    assert_eq!(pass.error_kind(), ErrorKind::InvalidData);
    assert_eq!(pass.data, b"");
}

#[test]
fn what_cannot_be_read_says_why() {
    let data = sample(300_000, 7);
    let limits = Limits { lzma_dictionary: 4 << 20, ..Limits::default() };
    let stream = xz("-9", &[&data[..], &vec![0; 6 << 20]].concat());
    let pass = decode_in_steps(&Xz, &stream, PIECE, limits);
    assert_eq!(pass.error_kind(), ErrorKind::Unsupported);
    let what = pass.error.unwrap().to_string();
    assert!(what.contains("dictionary of 67108864 bytes, the limit is 4194304"), "{what}");
    // Sizes in the header say that less will do.
    let stream = xz("-9 -T2 --block-size=4000000", &[&data[..], &vec![0; 6 << 20]].concat());
    assert_eq!(decode_in_steps(&Xz, &stream, PIECE, limits).whole().len(), data.len() + (6 << 20));
}

#[test]
fn a_paused_decoder_holds_what_it_has_decoded() {
    let data = sample(8_000_000, 8);
    let stream = xz("-9 -T1", &data);
    let mut decoder = Xz.resume(source(&stream), &SeekPoint::default(), &DecodeContext::default()).unwrap();
    decoder.read(&mut vec![0; 100_000]).unwrap();
    assert!((150_000..400_000).contains(&decoder.memory()), "{}", decoder.memory());
    // The rest of it is told before it is taken: the block ends before the dictionary is full.
    let told = [decoder.memory_after(5_000_000), decoder.memory_after(u64::MAX)];
    assert!((5_100_000..6_000_000).contains(&told[0]) && (67_000_000..69_000_000).contains(&told[1]), "{told:?}");
    let mut buffer = vec![0; 5_000_000];
    decoder.read(&mut buffer).unwrap();
    assert!(buffer == data[100_000..5_100_000]);
    assert!((5_100_000..6_000_000).contains(&decoder.memory()), "{}", decoder.memory());
}

#[test]
fn cut_anywhere_all_whole_data_are_served() {
    let data = sample(3000, 9);
    let (first, second) = (xz("-1 --block-size=1500", &data[..2000]), xz("-1", &data[2000..]));
    let stream = [&first[..], &[0; 8], &second].concat();
    for cut in 1..stream.len() {
        let pass = decode(&Xz, &stream[..cut]);
        assert!(data.starts_with(&pass.data), "cut at {cut}");
        assert!(pass.data.len() >= if cut >= first.len() { 2000 } else { 0 }, "cut at {cut}");
        let in_padding = (first.len()..=first.len() + 8).contains(&cut);
        if in_padding {
            assert!(pass.error.is_none(), "cut at {cut}");
            assert_eq!(pass.damage.is_empty(), (cut - first.len()).is_multiple_of(4), "cut at {cut}");
        } else {
            assert_eq!(pass.error_kind(), ErrorKind::UnexpectedEof, "cut at {cut}: {:?}", pass.error);
            assert!(pass.damage.is_empty(), "cut at {cut}");
        }
    }
    let data = sample(300_000, 10);
    let stream = xz("-1", &data);
    let pass = decode(&Xz, &stream[..stream.len() / 2]);
    assert_eq!(pass.error_kind(), ErrorKind::UnexpectedEof);
    assert!(pass.data.len() > 100_000 && data.starts_with(&pass.data));
}

#[test]
fn a_flipped_bit_is_noticed() {
    let data = sample(900, 11);
    for options in ["-1 --block-size=400", "-1 --block-size=400 -T2 --check=crc32"] {
        let stream = xz(options, &data);
        for bit in 0..stream.len() * 8 {
            let mut flipped = stream.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let pass = decode(&Xz, &flipped);
            assert!(!pass.is_clean(), "bit {bit}");
            pass.assert_honest(&data, &format!("bit {bit}"));
            // One bit costs one block at most, except where the stream says how to read it.
            let lost = pass.data.len() < data.len();
            assert!(!lost || bit < 12 * 8 || pass.error.is_some(), "bit {bit}");
            let _ = resume(&Xz, &flipped, &SeekPoint { state: vec![1], ..SeekPoint::default() }, 333);
        }
    }
}

#[test]
fn mutations_are_survived() {
    let data = sample(6000, 13);
    for options in ["-1 --block-size=2000", "-1 --block-size=1500 -T2 --check=sha256", "--x86 --delta --lzma2"] {
        assert_survives_mutations(&Xz, &xz(options, &data), &data);
    }
    let data = sample(300_000, 14);
    assert_survives_mutations(&Xz, &xz("-1 --block-size=140000", &data), &data);
}

#[test]
fn points_that_lie_are_refused() {
    let data = sample(600_000, 12);
    let stream = xz("-1 --block-size=150000", &data);
    let second = decode(&Xz, &stream).points[1].clone();
    let at = |compressed_bit, state: &[u8]| {
        resume(&Xz, &stream, &SeekPoint { compressed_bit, decoded: u64::MAX, state: state.to_vec() }, 1000)
    };
    let bit = second.compressed_bit;
    for bad in [
        at(0, &[2]),
        at(0, &[1, 4]),
        at(bit, &[1]),
        at(bit, &[1, 16]),
        at(bit, &[1, 4, 0]),
        at(bit + 1, &[1, 4]),
        at(bit + 32, &[1, 4]),
        at(bit + 32, b""),
        at(u64::MAX, &[1]),
        at(u64::MAX - 7, b""),
    ] {
        assert_eq!(bad.unwrap_err().kind(), ErrorKind::InvalidData);
    }
    // The wrong check is found at the block's end.
    assert!(at(bit, &[1, 10]).is_err());
    // Points without a state come from other programs' tables: only at the header of a stream none is needed.
    assert_eq!(at(bit, b"").unwrap_err().kind(), ErrorKind::InvalidData);
    assert!(at(0, b"").unwrap() == data);
    let state = xz_block_state(stream.first_chunk().unwrap()).unwrap();
    assert!(state == second.state && at(bit, &state).unwrap() == data[150_000..]);
    assert_eq!(xz_block_state(&[0; 12]), None);
}

#[test]
fn bids_for_its_own() {
    let stream = xz("", b"something");
    assert_eq!(Xz.bid(&stream), 92);
    assert_eq!(Xz.bid(&stream[..11]), 0);
    let mut other = stream.clone();
    other[7] ^= 1;
    assert_eq!(Xz.bid(&other), 0);
    let newer = [&other[..6], &[0, 0x1F], &crc32fast::hash(&[0, 0x1F]).to_le_bytes()].concat();
    assert_eq!(Xz.bid(&newer), 80);
    assert_eq!(decode(&Xz, &newer).error_kind(), ErrorKind::Unsupported);
}

#[test]
fn the_corpus_is_read_as_the_tool_reads_it() {
    let Some(folder) = corpus("xz") else { return };
    let mut files = 0;
    for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        if file.extension().is_none_or(|suffix| suffix != "xz") {
            continue;
        }
        files += 1;
        let stream = std::fs::read(&file).unwrap();
        let (data, _) = tool_status("xz -q -dc", &stream);
        let pass = decode(&Xz, &stream);
        let Pass { error, damage, .. } = &pass;
        if name.starts_with("good") {
            assert!(pass.is_clean(), "{name}: {error:?} {damage:?}");
            assert!(pass.data == data, "{name}");
        } else if name == "unsupported-check.xz" {
            assert!(pass.is_clean() && pass.data == b"Hello\nWorld!\n", "{name}: {error:?} {damage:?}");
        } else if name.starts_with("unsupported") {
            assert_eq!(pass.error_kind(), ErrorKind::Unsupported, "{name}");
        } else if name == "bad-1-index-huge-uncomp.xz" {
            // Only `xz --list` stumbles over it: it is three streams, of which each is good for itself.
            assert!(!pass.is_clean(), "{name}");
        } else {
            assert!(!pass.is_clean(), "{name}");
            // Where the tool stops at damage that concerns one block, we go on.
            let whole = if data.len() < pass.data.len() { b"Hello\nWorld!\n".to_vec() } else { data };
            for (at, byte) in (0..).zip(&pass.data) {
                let served = !damage.iter().any(|one| one.decoded.contains(&at));
                assert!(!served || whole.get(at as usize) == Some(byte), "{name}: byte {at}");
            }
        }
    }
    assert!(files > 60);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_was_written_is_read(
        parts in proptest::collection::vec(proptest::collection::vec(0u8..4, 0..2000), 1..6),
        level in 0..7,
        block in 100..5000,
    ) {
        let stream: Vec<_> = parts.iter().flat_map(|part| xz(&format!("-{level} --block-size={block}"), part)).collect();
        prop_assert!(decode(&Xz, &stream).whole() == parts.concat());
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300), decoded in any::<u64>()) {
        let header = &xz("-1", b"")[..12];
        decode(&Xz, &[header, &bytes].concat());
        decode(&Xz, &bytes);
        let point = SeekPoint { compressed_bit: 0, decoded, state: vec![1, 4] };
        let _ = resume(&Xz, &bytes, &point, 100);
    }
}
