use std::io::ErrorKind;
use std::sync::Arc;

use proptest::prelude::*;
use tarnfs_source::Limits;
use tarnfs_source::testing::CountedSource;

use super::Zstd;
use super::frame::{BLOCK_HEADER, BlockHeader, Start};
use crate::engine::Indexing;
use crate::testing::{
    Pass, assert_points_lead_to, assert_survives_mutations, corpus, decode, decode_in_steps, noise, resume, sample,
    source, tool, tool_status,
};
use crate::{Codec, DecodeContext, FILLER, FileCodec as _, Options, PIECE, SeekPoint};

/// A skippable frame.
fn skippable(nibble: u8, content: &[u8]) -> Vec<u8> {
    let size = (content.len() as u32).to_le_bytes();
    [&[0x50 | nibble, 0x2A, 0x4D, 0x18], &size[..], content].concat()
}

/// Frames of the parts of `data`, with a checksum and their length.
fn frames(data: &[u8], part: usize) -> Vec<Vec<u8>> {
    data.chunks(part).map(|part| in_one_frame("zstd -q -c", part)).collect()
}

/// From a file, so that the tool knows the length and writes it.
fn in_one_frame(command: &str, data: &[u8]) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), data).unwrap();
    tool(&format!("{command} {}", file.path().display()), b"")
}

#[test]
fn what_the_tool_writes_at_any_setting() {
    for length in [0, 1, 2, 255, 256, 100_000, PIECE, 1_500_000] {
        let data = sample(length, 1 + length as u64);
        for command in [
            "zstd -q -c -1",
            "zstd -q -c -3",
            "zstd -q -c -9",
            "zstd -q -c --fast=5",
            "zstd -q -c -3 --long=27",
            "zstd -q -c --no-check",
            "zstd -q -c --no-content-size",
            "zstd -q -c -T2 -B1MiB",
            "pzstd -q -c -p 2",
        ] {
            for stream in [tool(command, &data), in_one_frame(command, &data)] {
                let pass = decode(&Zstd, &stream);
                assert_points_lead_to(&Zstd, &stream, &pass.points, &data);
                assert!(pass.whole() == data, "{command}, {length} bytes");
            }
        }
    }
    let data = sample(300_000, 7);
    for command in ["zstd -q -c -19", "zstd -q -c --ultra -22", "zstd -q -c -15 --long=24 -T2"] {
        assert!(decode(&Zstd, &tool(command, &data)).whole() == data, "{command}");
    }
}

#[test]
fn any_size_of_reads_gives_the_same() {
    let data = sample(400_000, 2);
    let stream = frames(&data, 150_000).concat();
    for step in [1, 7, 1000, 131_071, 131_072, 131_073, 1 << 20] {
        let stream = if step == 1 { &frames(&data[..30_000], 9_000).concat() } else { &stream };
        let length = if step == 1 { 30_000 } else { data.len() };
        assert!(decode_in_steps(&Zstd, stream, step, Limits::default()).whole() == data[..length], "{step}");
    }
}

#[test]
fn frames_of_many_sizes_have_seek_points() {
    let data = sample(3_000_000, 3);
    let mut stream = Vec::new();
    let mut rest = &data[..];
    for part in [1, 100, 200_000, 0, 5, 131_072, 131_071, 1_000_000, 1, 800_000, 10_000, 300_000, usize::MAX] {
        let (now, later) = rest.split_at(part.min(rest.len()));
        stream.extend(skippable(stream.len() as u8 & 15, &now[..now.len().min(20)]));
        stream.extend(in_one_frame("zstd -q -c", now));
        rest = later;
    }
    let pass = decode(&Zstd, &stream);
    let at: Vec<_> = pass.points.iter().map(|point| point.decoded).collect();
    assert_eq!(at, [0, 200_101, 331_178, 1_462_249, 2_262_250, 2_572_250]);
    assert_points_lead_to(&Zstd, &stream, &pass.points, &data);
    assert!(pass.whole() == data);
}

/// Two blocks are decoded side by side, but not for who wants some bytes of one.
#[test]
fn a_random_read_reads_no_block_behind_the_one_that_it_wants() {
    // Blocks of some 100 KB, more than is read at once.
    let data: Vec<u8> = noise(400_000).iter().map(|byte| b'0' + byte % 64).collect();
    let stream = in_one_frame("zstd -q -c -1", &data);
    let Start::Frame(header) = Start::parse(&stream) else { panic!("it begins otherwise") };
    let block = BlockHeader::parse(*stream[header.length..].first_chunk().unwrap(), &header).unwrap();
    let end = header.length + BLOCK_HEADER + block.length;
    assert!((60_000..stream.len() / 2).contains(&end), "{end} of {}", stream.len());
    let counted = Arc::new(CountedSource::new(source(&stream)));
    let mut decoder = Zstd.resume(counted.clone(), &SeekPoint::default(), &DecodeContext::default()).unwrap();
    let mut bytes = [0; 10];
    assert_eq!(decoder.read(&mut bytes).unwrap(), 10);
    assert!(bytes == data[..10] && counted.bytes() <= end as u64, "{} of {end}", counted.bytes());
    let mut rest = vec![0; 300_000];
    let mut filled = 0;
    while filled < rest.len() {
        let read = decoder.read(&mut rest[filled..]).unwrap();
        assert!(read > 0);
        filled += read;
    }
    assert!(rest == data[10..300_010]);
}

#[test]
fn thousands_of_tiny_frames_have_few_seek_points() {
    let data = sample(600_000, 4);
    let one = frames(&data[..200], 200).concat();
    let stream = one.repeat(3000);
    let pass = decode(&Zstd, &stream);
    assert_eq!(pass.points.len(), 5);
    let whole = data[..200].repeat(3000);
    assert_points_lead_to(&Zstd, &stream, &pass.points, &whole);
    assert!(pass.whole() == whole);
}

#[test]
fn a_great_many_skippable_frames_are_passed_once() {
    let data = sample(1000, 17);
    let skipped = skippable(0, b"").repeat(300_000);
    let frame = frames(&data, 1000).concat();
    let stream = [&skipped, &frame, &skipped, &frame, &skipped[..]].concat();
    assert!(decode(&Zstd, &stream).whole() == data.repeat(2));
}

#[test]
fn the_seekable_format_is_read_whatever_its_table_says() {
    let data = sample(500_000, 5);
    let frames = frames(&data, 200_000);
    let mut table = Vec::new();
    for (frame, part) in frames.iter().zip(data.chunks(200_000)) {
        table.extend((frame.len() as u32).to_le_bytes());
        table.extend((part.len() as u32).to_le_bytes());
    }
    table.extend((frames.len() as u32).to_le_bytes());
    table.push(0);
    table.extend(0x8F92_EAB1_u32.to_le_bytes());
    let lie = vec![0xFF; table.len()];
    for table in [table, lie] {
        let stream = [frames.concat(), skippable(0xE, &table)].concat();
        let pass = decode(&Zstd, &stream);
        assert_eq!(pass.points.len(), 3);
        assert_points_lead_to(&Zstd, &stream, &pass.points, &data);
        assert!(pass.whole() == data);
    }
}

#[test]
fn damage_stays_in_its_frame() {
    let data = sample(600_000, 6);
    let mut frames = frames(&data, 200_000);
    let check_point = |stream: &[u8]| {
        let last =
            SeekPoint { compressed_bit: (stream.len() - frames[2].len()) as u64 * 8, decoded: 400_000, state: vec![] };
        assert!(resume(&Zstd, stream, &last, 1000).unwrap() == data[400_000..]);
    };
    // In the checksum: the bytes are there, but not to be served.
    let mut stream = frames.concat();
    let end = frames[0].len() + frames[1].len();
    stream[end - 1] ^= 1;
    let pass = decode(&Zstd, &stream);
    assert!(pass.data == data && pass.error.is_none());
    assert_eq!(pass.damage.len(), 1);
    assert_eq!(pass.damage[0].decoded, 200_000..400_000);
    assert_eq!(pass.damage[0].compressed, end as u64 - 4);
    assert!(pass.damage[0].what.contains("XXH64"), "{}", pass.damage[0].what);
    check_point(&stream);
    // In the second block: a gap takes the place of what cannot be decoded, also for who resumes.
    let mut stream = frames.concat();
    let start = frames[0].len();
    let first_block = u32::from_le_bytes(stream[start + 9..start + 13].try_into().unwrap()) >> 3 & 0x1F_FFFF;
    let second = start + 9 + 3 + first_block as usize;
    stream[second + 3..second + 40].fill(0xFF);
    let pass = decode(&Zstd, &stream);
    assert!(pass.error.is_none(), "{:?}", pass.error);
    assert_eq!(pass.damage.len(), 1);
    assert_eq!(pass.damage[0].decoded, 200_000..400_000);
    assert!(pass.data[..200_000] == data[..200_000] && pass.data[400_000..] == data[400_000..]);
    assert!(pass.data[200_000 + PIECE..400_000].iter().all(|&byte| byte == FILLER));
    assert_points_lead_to(&Zstd, &stream, &pass.points, &pass.data);
    check_point(&stream);
    // Of a frame that does not say its length a gap stands for the rest; what was decoded of it is not to be served.
    frames[1] = tool("zstd -q -c", &data[200_000..400_000]);
    let mut stream = frames.concat();
    let end = frames[0].len() + frames[1].len();
    stream[end - 100..end - 50].fill(0xFF);
    let pass = decode(&Zstd, &stream);
    assert!(pass.error.is_none(), "{:?}", pass.error);
    assert!(pass.data[..200_000] == data[..200_000] && pass.data.ends_with(&data[400_000..]));
    let end = (pass.data.len() - 200_000) as u64;
    assert_eq!((pass.damage[0].decoded.clone(), &pass.shifts[..]), (200_000..end, &[end][..]));
    assert_points_lead_to(&Zstd, &stream, &pass.points, &pass.data);
    // The last one ends the stream.
    let pass = decode(&Zstd, &stream[..frames[0].len() + frames[1].len()]);
    assert_eq!(pass.error_kind(), ErrorKind::InvalidData);
    assert!(pass.data[..200_000] == data[..200_000]);
    assert_eq!(pass.damage[0].decoded, 200_000..pass.data.len() as u64);
}

#[test]
fn a_frame_that_claims_exabytes_delivers_none() {
    // Single segment would need the window; with a window of 1 MiB the claim costs nothing to make.
    let header =
        [&[0x28, 0xB5, 0x2F, 0xFD, 0xC0, 0x50], &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F][..]].concat();
    let broken_block = [0x2D, 0, 0, 1, 2, 3, 4, 5];
    let pass = decode(&Zstd, &[&header[..], &broken_block].concat());
    assert_eq!(pass.error_kind(), ErrorKind::InvalidData);
    assert_eq!(pass.data, b"");
    let raw_block = [0x29, 0, 0, 1, 2, 3, 4, 5];
    let pass = decode(&Zstd, &[&header[..], &raw_block].concat());
    assert_eq!(pass.error_kind(), ErrorKind::InvalidData);
}

#[test]
fn frames_that_do_not_say_their_length_have_the_same_points_for_any_number_of_threads() {
    let data = sample(20_000_000, 18);
    // With the small window of this level there would be several points in each, if the frame were large.
    let small: Vec<_> = data.chunks(7_000_000).map(|part| tool("zstd -q -c --fast=1", part)).collect();
    let pass = decode(&Zstd, &small.concat());
    assert_eq!(pass.points.iter().map(|point| point.decoded).collect::<Vec<_>>(), [0, 7_000_000, 14_000_000]);
    assert!(pass.whole() == data);
    let pass = decode(&Zstd, &tool("zstd -q -c --fast=1", &data));
    assert!(pass.points.len() > 1 && pass.points[1].decoded > 16 << 20);
    assert!(pass.whole() == data);
}

#[test]
fn a_pass_ends_when_it_is_cancelled_or_dropped() {
    let data = sample(2_000_000, 19);
    let stream = frames(&data, 100_000).concat();
    for threads in [1, 2, 4] {
        for reads in 0..6 {
            let options = Options { threads, ..Options::default() };
            let mut pass = Zstd.first_pass(source(&stream), &options).unwrap();
            let mut buffer = vec![0; 70_000];
            for part in data.chunks(70_000).take(reads) {
                assert_eq!(pass.read(&mut buffer).unwrap(), part.len());
                assert!(buffer == part);
            }
            if reads % 2 == 1 {
                options.cancel.cancel();
                let result = (0..4).try_for_each(|_| pass.read(&mut buffer).map(drop));
                assert_eq!(result.unwrap_err().kind(), ErrorKind::Interrupted, "{threads} threads");
            }
        }
    }
}

#[test]
fn what_cannot_be_read_says_why() {
    let data = sample(9_000_000, 8);
    let folder = tempfile::tempdir().unwrap();
    let dictionary = folder.path().join("dictionary");
    for at in 0..200 {
        std::fs::write(folder.path().join(at.to_string()), &data[at * 2000..][..3000]).unwrap();
    }
    let command = format!(
        "zstd -q --train -r {} --maxdict=20000 --dictID=4711 -o {}",
        folder.path().display(),
        dictionary.display()
    );
    tool(&command, b"");
    let stream = tool(&format!("zstd -q -c -D {}", dictionary.display()), &data[..5000]);
    let pass = decode(&Zstd, &stream);
    assert_eq!(pass.error_kind(), ErrorKind::Unsupported);
    assert!(pass.error.unwrap().to_string().contains("needs dictionary 4711"));
    let stream = tool("zstd -q -c --long=24", &data);
    let limits = Limits { decoder_window: 8 << 20, ..Limits::default() };
    let pass = decode_in_steps(&Zstd, &stream, PIECE, limits);
    assert_eq!(pass.error_kind(), ErrorKind::Unsupported);
    assert!(pass.error.unwrap().to_string().contains("window of 16777216 bytes, the limit is 8388608"));
    let exact = Limits { decoder_window: 16 << 20, ..limits };
    assert!(decode_in_steps(&Zstd, &stream, PIECE, exact).whole() == data);
}

#[test]
fn what_follows_the_last_frame() {
    let data = sample(1000, 9);
    let stream = frames(&data, 1000).concat();
    let behind = |tail: &[u8]| decode(&Zstd, &[&stream[..], tail].concat());
    assert!(behind(&vec![0; 100_000]).whole() == data);
    let pass = behind(&[0, 0, 0, 0, 0, 7]);
    assert!(pass.data == data && pass.error_kind() == ErrorKind::InvalidData);
    assert!(pass.error.unwrap().to_string().contains(&format!("at byte {} of", stream.len() + 5)));
    assert_eq!(behind(&[0x28, 0xB5]).error_kind(), ErrorKind::UnexpectedEof);
    assert_eq!(behind(&skippable(3, b"abc")[..10]).error_kind(), ErrorKind::UnexpectedEof);
    assert!(behind(&skippable(3, b"")).whole() == data);
    for nothing in [&b""[..], b"(", b"no zstd at all"] {
        assert!(decode(&Zstd, nothing).error.is_some(), "{nothing:?}");
    }
}

/// The header of a block is lost that comes before frames of another archive, in a frame whose end nothing else tells.
#[test]
fn frames_of_a_file_that_is_stored_are_not_taken_for_those_behind() {
    let inner: Vec<u8> = (0..3).flat_map(|seed| tool("zstd -q -c", &sample(24_576, seed))).collect();
    let before = noise(140_000);
    let data = [&before[..], &inner, &noise(300_000)].concat();
    let outer = tool("zstd -q -c", &data);
    // They lie in one block, as they are.
    let Start::Frame(header) = Start::parse(&outer) else { panic!("no frame") };
    let first = header.length;
    assert!(header.content.is_none() && outer.windows(inner.len()).any(|bytes| bytes == inner));
    let last = tool("zstd -q -c", &sample(5000, 9));
    // The type of a block becomes the one that is reserved.
    let mut damaged = outer.clone();
    damaged[first] |= 6;
    let pass = decode(&Zstd, &damaged);
    assert!(pass.data.is_empty() && pass.error_kind() == ErrorKind::InvalidData, "{} bytes", pass.data.len());
    let stream = [&frames(b"before", 100).concat()[..], &damaged, &last].concat();
    for padding in [0, 100_000] {
        let stream = [&stream[..], &vec![0; padding]].concat();
        let pass = decode(&Zstd, &stream);
        assert!(pass.error.is_none(), "{:?}", pass.error);
        let expected = [&b"before"[..], &[FILLER; 512], &sample(5000, 9)].concat();
        assert!(pass.data == expected, "{} bytes", pass.data.len());
        assert_points_lead_to(&Zstd, &stream, &pass.points, &pass.data);
    }
}

/// One frame is lost wherever its length is wrong, also that of one that holds nothing.
#[test]
fn lengths_that_are_damaged_hide_no_frame_behind() {
    let parts = [sample(3000, 1), sample(4000, 2), sample(5000, 3)];
    let packed = parts.each_ref().map(|part| tool("zstd -q -c", part));
    let around = |pass: &Pass, what: &str| {
        assert!(pass.error.is_none(), "{what}: {:?}", pass.error);
        assert!(pass.data.starts_with(&parts[0]) && pass.data.ends_with(&parts[2]) && !pass.is_clean(), "{what}");
    };
    let Start::Frame(header) = Start::parse(&packed[1]) else { panic!("no frame") };
    let mut stream = packed.clone();
    // A block that goes behind the end of the file.
    stream[1][header.length + 2] ^= 4;
    around(&decode(&Zstd, &stream.concat()), "a block");
    for (byte, bit) in [(4, 0x40), (5, 1), (6, 0x80), (7, 0x80)] {
        let mut skipped = skippable(3, b"four");
        skipped[byte] ^= bit;
        let stream = [&packed[0][..], &skipped, &packed[1], &packed[2]].concat();
        let pass = decode(&Zstd, &stream);
        around(&pass, &format!("byte {byte}"));
        assert_eq!(pass.data.len(), 12_512, "byte {byte}");
    }
}

#[test]
fn a_frame_in_the_middle_that_needs_more_than_there_is_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let data = sample(400_000, 8);
    for at in 0..100 {
        std::fs::write(folder.path().join(at.to_string()), &data[at * 2000..][..3000]).unwrap();
    }
    let dictionary = folder.path().join("dictionary");
    let path = (folder.path().display(), dictionary.display());
    tool(&format!("zstd -q --train -r {} --maxdict=20000 --dictID=4711 -o {}", path.0, path.1), b"");
    let stream = tool(&format!("zstd -q -c -D {}", path.1), &data[..5000]);
    let pass = decode(&Zstd, &[&frames(&data, 400_000).concat()[..], &stream, &frames(b"more", 9).concat()].concat());
    assert!(pass.data == data && pass.error_kind() == ErrorKind::Unsupported);
    assert!(pass.error.unwrap().to_string().contains("needs dictionary 4711"));
}

#[test]
fn cut_anywhere_all_whole_blocks_are_served() {
    let data = sample(3000, 10);
    let (first, second) = (in_one_frame("zstd -q -c", &data[..2000]), tool("zstd -q -c --no-check", &data[2000..]));
    let stream = [&first[..], &skippable(0, b"between"), &second].concat();
    for cut in 1..stream.len() {
        let pass = decode(&Zstd, &stream[..cut]);
        let whole = [first.len(), first.len() + 15].contains(&cut);
        assert!(pass.damage.is_empty(), "cut at {cut}");
        assert_eq!(pass.error.map(|error| error.kind()), (!whole).then_some(ErrorKind::UnexpectedEof), "cut at {cut}");
        assert!(data.starts_with(&pass.data), "cut at {cut}");
        assert_eq!(pass.data.len(), if cut >= first.len() - 4 { 2000 } else { 0 }, "cut at {cut}");
    }
    // The first of two blocks is there, the second is not.
    let data = sample(200_000, 11);
    let stream = tool("zstd -q -c", &data);
    let pass = decode(&Zstd, &stream[..stream.len() - 20]);
    assert!(pass.error_kind() == ErrorKind::UnexpectedEof && pass.data == data[..PIECE]);
}

#[test]
fn a_flipped_bit_is_noticed() {
    let data = sample(1500, 12);
    let stream = frames(&data, 600).concat();
    for bit in 0..stream.len() * 8 {
        let mut flipped = stream.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let pass = decode(&Zstd, &flipped);
        pass.assert_honest(&data, &format!("bit {bit}"));
        let _ = resume(&Zstd, &flipped, &SeekPoint::default(), 333);
    }
}

#[test]
fn mutations_are_survived() {
    let data = sample(6000, 15);
    let stream =
        [frames(&data[..5000], 2000).concat(), skippable(4, b"4"), tool("zstd -q -c -9", &data[5000..])].concat();
    assert_survives_mutations(&Zstd, &stream, &data);
    let data = sample(400_000, 16);
    let stream = frames(&data, 140_000).concat();
    assert_survives_mutations(&Zstd, &stream, &data);
}

#[test]
fn points_that_lie_are_refused() {
    let data = sample(300_000, 13);
    let stream = frames(&data, 100_000).concat();
    let at = |compressed_bit, state: &[u8]| {
        resume(&Zstd, &stream, &SeekPoint { compressed_bit, decoded: u64::MAX, state: state.to_vec() }, 1000)
    };
    for bad in [at(8, b""), at(1, b""), at(u64::MAX, b""), at(u64::MAX - 7, b""), at(0, b"x")] {
        assert_eq!(bad.unwrap_err().kind(), ErrorKind::InvalidData);
    }
    // Tables of other programs have a point at the end.
    assert_eq!(at(stream.len() as u64 * 8, b"").unwrap(), b"");
    assert!(at(0, b"").unwrap() == data);
}

#[test]
fn bids_for_its_own() {
    let stream = frames(b"something", 100).concat();
    assert_eq!(Zstd.bid(&stream), 33);
    assert_eq!(Zstd.bid(&[skippable(0, &[0; 4]), skippable(15, b""), stream.clone()].concat()), 33);
    assert_eq!(Zstd.bid(&stream[..5]), 32);
    for other in
        [&b""[..], b"(", &skippable(0, b"abc"), &skippable(0, b"abc")[..9], b"\x04\x22\x4D\x18rest", &[0; 2000]]
    {
        assert_eq!(Zstd.bid(other), 0, "{other:?}");
    }
}

#[test]
fn a_context_that_lies_idle_holds_nothing_over() {
    let data = sample(700_000, 14);
    let stream = tool("zstd -q -c", &data);
    for length in [1, 100_000, 500_000] {
        let mut decoder = Zstd.resume(source(&stream), &SeekPoint::default(), &DecodeContext::default()).unwrap();
        let mut buffer = vec![0; length];
        assert_eq!(decoder.read(&mut buffer).unwrap(), length);
        assert!(buffer == data[..length]);
        assert!((1 << 20..8 << 20).contains(&decoder.memory()), "{}", decoder.memory());
        drop(decoder);
        assert!(decode(&Zstd, &frames(&data[..1000], 300).concat()).whole() == data[..1000]);
    }
}

#[test]
fn the_corpus_is_read_as_it_should_be() {
    for folder in ["zstd/golden-decompression", "zstd/golden-decompression-errors", "libarchive"] {
        let Some(path) = corpus(folder) else { return };
        for file in std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()) {
            if file.extension().is_none_or(|suffix| suffix != "zst") {
                continue;
            }
            let stream = std::fs::read(&file).unwrap();
            let pass = decode(&Zstd, &stream);
            let good = !folder.ends_with("errors");
            assert_eq!(pass.is_clean(), good, "{}: {:?} {:?}", file.display(), pass.error, pass.damage);
            // Some of the good ones are too much for older versions of the tool.
            let (data, tool_is_content) = tool_status("zstd -q -dc", &stream);
            assert!(!good || !tool_is_content || pass.data == data, "{}", file.display());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_was_written_is_read(
        parts in proptest::collection::vec(proptest::collection::vec(0u8..4, 0..2000), 1..6),
        level in 1..12,
    ) {
        let stream = parts.iter().flat_map(|part| tool(&format!("zstd -q -c -{level}"), part)).collect::<Vec<_>>();
        prop_assert!(decode(&Zstd, &stream).whole() == parts.concat());
    }

    #[test]
    fn any_bytes_are_survived(
        bytes in proptest::collection::vec(any::<u8>(), 0..300), header in 0u8..=255, decoded in any::<u64>(),
    ) {
        let stream = [&[0x28, 0xB5, 0x2F, 0xFD, header], &bytes[..]].concat();
        decode(&Zstd, &stream);
        decode(&Zstd, &bytes);
        let _ = resume(&Zstd, &stream, &SeekPoint { compressed_bit: 0, decoded, state: vec![] }, 100);
    }
}

#[test]
fn what_comes_of_a_frame_that_was_decoded_ahead_is_verified_at_once() {
    let data = sample(4_000_000, 33);
    let stream = frames(&data, 1_000_000).concat();
    let options = Options { threads: 2, ..Options::default() };
    let pass = || {
        let mut indexing = Indexing::new(&Zstd, source(&stream), &options).unwrap();
        let (mut buffer, mut at_once) = (vec![0; 10_000], 0);
        while indexing.read(&mut buffer).unwrap() > 0 {
            assert!(indexing.settled() <= indexing.decoded_position());
            at_once += u64::from(indexing.settled() == indexing.decoded_position());
        }
        // Of a frame that the walk decodes itself only the last bytes are. One of the four is enough: a thread that has
        // not begun with a frame, as on a busy machine, leaves it to the walk.
        at_once >= 95
    };
    assert!((0..200).any(|_| pass()));
}
