use std::io::ErrorKind;

use tarnfs_source::Limits;
use zlib_rs::adler32::adler32;

use super::header::{Flags, MAGIC, Start};
use super::{Lzop, USUAL_BLOCK, checksums_of, lzo1x};
use crate::testing::{
    assert_points_lead_to, assert_read_anywhere, assert_survives_mutations, corpus, decode, decode_in_steps,
    decode_spaced, length_in_little_memory, noise, resume, sample, source, tool, tool_status,
};
use crate::{Codec, FILLER, FileCodec as _, Options, PIECE, SeekPoint};

const BLOCK: usize = USUAL_BLOCK as usize;

fn lzop(options: &str, data: &[u8]) -> Vec<u8> {
    tool(&format!("lzop -c {options}"), data)
}

#[test]
fn reads_what_lzop_writes_at_every_level() {
    for data in [&b""[..], b"a", b"abcabcabcabcabcabcabc", &vec![0; 1 << 20], &noise(700_000), &sample(1_500_000, 2)] {
        for level in 1..=9 {
            for checks in ["", "-F", "--crc32"] {
                let packed = lzop(&format!("-{level} {checks}"), data);
                let pass = decode_spaced(&Lzop, &packed, BLOCK as u64);
                assert_eq!(pass.points.len(), data.len().div_ceil(BLOCK).max(1), "level {level}");
                if level % 4 == 1 {
                    assert_points_lead_to(&Lzop, &packed, &pass.points, data);
                }
                assert!(pass.whole() == data, "level {level}{checks}, {} bytes", data.len());
            }
        }
    }
}

#[test]
fn every_short_length_and_distance_is_read() {
    // Matches of each length from near and far, with literals of each number between them.
    let noise = sample(60_000, 3);
    let mut data = noise[..50_000].to_vec();
    for (round, distance) in
        [1, 2, 3, 7, 8, 9, 16, 1000, 1024, 2047, 2049, 3071, 16_384, 16_385, 32_767, 49_150].iter().enumerate()
    {
        for length in (2..40).chain([263, 264, 300, 530]) {
            let start = data.len() - distance;
            for offset in 0..length {
                data.push(data[start + offset]);
            }
            data.extend_from_slice(&noise[50_000 + round * 100 + length..][..length % 6]);
        }
    }
    for level in 1..=9 {
        assert!(decode(&Lzop, &lzop(&format!("-{level}"), &data)).whole() == data, "level {level}");
    }
}

#[test]
fn files_follow_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let data = sample(900_000, 4);
    let (first, second) = data.split_at(300_000);
    for (name, bytes) in [("first", first), ("empty", b""), ("second", second)] {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    // One archive of several files, then another one with other flags.
    let path = |name| folder.path().join(name).display().to_string();
    let packed = tool(&format!("lzop -c {} {} {}", path("first"), path("empty"), path("second")), b"");
    let packed = [packed, lzop("-9 --crc32", first), lzop("-F", second)].concat();
    let data = data.repeat(2);
    // It warns of parts.
    assert!(tool_status("lzop -dc", &packed).0 == data);
    let pass = decode_spaced(&Lzop, &packed, PIECE as u64);
    assert!(pass.points.len() > 6);
    assert_points_lead_to(&Lzop, &packed, &pass.points, &data);
    assert_read_anywhere(&Lzop, &packed, &pass.points, &data, 4);
    assert!(pass.whole() == data);
    for step in [1009, 65_536, 1 << 20] {
        assert!(decode_in_steps(&Lzop, &packed, step, Limits::default()).whole() == data);
    }
}

#[test]
fn what_follows_the_last_file_is_ignored_and_reported() {
    let data = sample(5000, 5);
    for garbage in [&b"garbage behind it"[..], &[0; 1024]] {
        let packed = [&lzop("", &data), garbage].concat();
        let pass = decode(&Lzop, &packed);
        assert!(pass.error.is_none() && pass.data == data);
        assert_eq!(pass.damage.len(), 1);
        assert_eq!(pass.damage[0].decoded, 5000..5000);
        assert_eq!(pass.damage[0].compressed, (packed.len() - garbage.len()) as u64);
    }
}

#[test]
fn a_file_cut_at_any_byte_gives_what_is_whole_and_an_error() {
    let data = sample(1000, 6);
    let packed = [lzop("-1", &data), lzop("-9 -F", &data)].concat();
    let both = data.repeat(2);
    for length in 0..packed.len() {
        let pass = decode(&Lzop, &packed[..length]);
        assert!(both.starts_with(&pass.data) && pass.data.len().is_multiple_of(data.len()));
        assert!(pass.damage.is_empty(), "{length}");
        // Between two files a cut cannot be told from an end.
        if pass.error.is_some() || pass.data != data {
            assert_eq!(pass.error_kind(), ErrorKind::UnexpectedEof, "cut at {length}");
        }
    }
}

#[test]
fn a_flipped_bit_is_noticed_wherever_there_is_a_checksum() {
    let data = sample(1200, 7);
    for packed in [lzop("-1", &data), lzop("-9 --crc32", &data), lzop("", &data[..7]), lzop("-F", &data)] {
        let original = decode(&Lzop, &packed).whole();
        let checked = packed.len() < 60 || packed[MAGIC.len() + 11] & 3 != 0 || packed[MAGIC.len() + 10] & 3 != 0;
        for bit in 0..packed.len() * 8 {
            let mut wrong = packed.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            let pass = decode(&Lzop, &wrong);
            if checked {
                pass.assert_honest(&original, &format!("bit {bit} of {}", packed.len()));
            }
        }
    }
}

#[test]
fn mutations_are_survived() {
    let data = sample(700_000, 8);
    assert_survives_mutations(&Lzop, &lzop("-1", &data), &data);
    let (first, second) = data.split_at(2000);
    assert_survives_mutations(&Lzop, &[lzop("-9", first), lzop("-3 --crc32", &second[..3000])].concat(), &data[..5000]);
}

#[test]
fn a_damaged_block_is_missing_and_no_other() {
    let data = sample(1_200_000, 9);
    let packed = with_checksums(0x303, &data);
    let points = decode_spaced(&Lzop, &packed, BLOCK as u64).points;
    let third = points[2].compressed_bit as usize / 8;
    let mut undecoded = 0;
    // In the data, the checksums of the decoded bytes, and those of the compressed ones, which then do not count.
    for (at, change) in [(30, 1), (40, 0xFF), (5000, 0x10), (9, 1), (13, 1), (17, 1), (21, 1)] {
        let mut wrong = packed.clone();
        wrong[third + at] ^= change;
        let pass = decode_spaced(&Lzop, &wrong, BLOCK as u64);
        assert!(pass.error.is_none(), "{at}: {:?}", pass.error);
        let right = (16..24).contains(&at);
        assert_eq!(pass.damage.len(), usize::from(!right), "{at}: {:?}", pass.damage);
        for damage in &pass.damage {
            assert_eq!(damage.decoded, 2 * BLOCK as u64..3 * BLOCK as u64);
            assert_eq!(damage.compressed_from, third as u64);
            if damage.what.contains("cannot be decoded") {
                assert!(pass.data[2 * BLOCK..3 * BLOCK].iter().all(|&byte| byte == FILLER));
                undecoded += 1;
            }
        }
        assert!(pass.data.len() == data.len() && pass.data[..2 * BLOCK] == data[..2 * BLOCK]);
        assert!(pass.data[3 * BLOCK..] == data[3 * BLOCK..]);
        assert_points_lead_to(&Lzop, &wrong, &pass.points[3..], &data);
        // What lies behind it is read from any point before it, too.
        assert_points_lead_to(&Lzop, &wrong, &pass.points, &pass.data);
    }
    assert!(undecoded > 0);
}

#[test]
fn where_a_length_is_damaged_what_is_behind_is_out_of_step() {
    let data = sample(300_000, 10);
    let packed = lzop("-1", &data);
    let second = decode_spaced(&Lzop, &packed, BLOCK as u64).points[1].compressed_bit as usize / 8;
    let mut wrong = packed.clone();
    wrong[second + 3] ^= 1;
    let mut pass = Lzop.first_pass(source(&wrong), &Options::default()).unwrap();
    let (mut length, mut buffer, mut shifts) = (0, vec![0; PIECE], Vec::new());
    loop {
        match pass.read(&mut buffer).unwrap() {
            0 => break,
            read => length += read as u64,
        }
    }
    pass.take_shifts(&mut shifts);
    assert_eq!(shifts, [length]);
}

#[test]
fn a_bomb_takes_no_memory() {
    let packed = lzop("-9", &vec![0; 60 << 20]);
    let mut pass = Lzop.first_pass(source(&packed), &Options::default()).unwrap();
    assert_eq!(length_in_little_memory(&mut *pass, 1 << 20), 60 << 20);
}

/// A file of one header with these flags, and these bytes behind it.
fn file(flags: u32, method: u8, rest: &[u8]) -> Vec<u8> {
    let mut header = vec![0x10, 0x40, 0x20, 0xa0, 0x09, 0x40, method, 5];
    header.extend(flags.to_be_bytes());
    if flags & 0x800 != 0 {
        header.extend([0, 0, 0, 1]);
    }
    header.extend([0; 12]);
    header.extend(b"\x04name");
    let sum = if flags & 0x1000 != 0 { crc32fast::hash(&header) } else { adler32(1, &header) };
    [&MAGIC[..], &header, &sum.to_be_bytes(), rest].concat()
}

/// A file whose blocks have the checksums of these flags.
fn with_checksums(flags: u32, data: &[u8]) -> Vec<u8> {
    let plain = lzop("-1 -F", data);
    let Ok(Start::Header(header)) = Start::parse(&plain) else { panic!() };
    let (mut rest, mut blocks) = (&plain[header.length..], Vec::new());
    for part in data.chunks(BLOCK) {
        let length = u32::from_be_bytes(*rest[4..].first_chunk().unwrap()) as usize;
        let (head, packed) = rest[..8 + length].split_at(8);
        rest = &rest[8 + length..];
        blocks.extend_from_slice(head);
        blocks.extend(checksums_of(part, Flags(flags).of_decoded()));
        if length < part.len() {
            blocks.extend(checksums_of(packed, Flags(flags).of_packed()));
        }
        blocks.extend_from_slice(packed);
    }
    assert_eq!(rest, [0; 4]);
    file(flags, 1, &[&blocks, rest].concat())
}

#[test]
fn checksums_of_all_kinds_are_read() {
    let data = [sample(500_000, 12), noise(300_000)].concat();
    for flags in [0x0, 0x1, 0x2, 0x3, 0x100, 0x200, 0x300, 0x202, 0x303, 0x1101] {
        let packed = with_checksums(flags, &data);
        // It wants those of the compressed bytes beside those of the decoded ones.
        let is_known = (flags & 0x202) >> 1 & !flags == 0;
        assert!(!is_known || tool("lzop -dc", &packed) == data, "the test's own writer is wrong: {flags:#x}");
        assert!(decode(&Lzop, &packed).whole() == data, "{flags:#x}");
        let mut wrong = packed.clone();
        wrong[20_000] ^= 1;
        assert_eq!(decode(&Lzop, &wrong).is_clean(), flags == 0, "{flags:#x}");
    }
}

#[test]
fn headers_of_all_kinds_are_read_or_refused() {
    const EMPTY: [u8; 4] = [0; 4];
    for flags in [0, 0x1000] {
        assert!(decode(&Lzop, &file(flags, 1, &EMPTY)).whole().is_empty());
        assert_eq!(Lzop.bid(&file(flags, 1, &EMPTY)), 104);
        let extra = [&[0, 0, 0, 3][..], b"abc", b"sum!", &EMPTY].concat();
        assert!(decode(&Lzop, &file(flags | 0x40, 1, &extra)).whole().is_empty());
    }
    // Before version 0.94 there was no version needed to extract, no level, and half of the time.
    let old = [&[0x09, 0x30, 0x10, 0, 1][..], &[0; 4 + 8], &[0]].concat();
    let old = [&MAGIC[..], &old, &adler32(1, &old).to_be_bytes(), &EMPTY].concat();
    assert!(decode(&Lzop, &old).whole().is_empty() && tool("lzop -dc", &old).is_empty());
    let limit = Limits { decoder_window: 1000, ..Limits::default() };
    let block = |decoded: u32, packed: u32| {
        file(0, 1, &[&decoded.to_be_bytes()[..], &packed.to_be_bytes(), &vec![0; 90_000]].concat())
    };
    for (bytes, text) in [
        (file(0, 128, &EMPTY), "method 128"),
        (file(0x800, 1, &EMPTY), "filter 1"),
        (b"PK\x03\x04 something else, no archive of this kind".to_vec(), "no file of lzop"),
        (block(1 << 20, 100), "1048576 bytes that takes 100"),
        (block(100, 101), "100 bytes that takes 101"),
        (block(65 << 20, 80_000), "which cannot be"),
        (block(1001, 1000), "the limit is 1000"),
    ] {
        let pass =
            decode_in_steps(&Lzop, &bytes, PIECE, if text.contains("limit") { limit } else { Limits::default() });
        assert_eq!(pass.error_kind(), ErrorKind::InvalidData);
        let error = pass.error.unwrap().to_string();
        assert!(error.contains(text) && error.ends_with("of the compressed file"), "{error}");
    }
    let mut wrong = file(0, 1, &EMPTY);
    wrong[12] ^= 1;
    assert!(decode(&Lzop, &wrong).error.unwrap().to_string().contains("checksum"));
    assert_eq!(Lzop.bid(&wrong), 72);
    assert_eq!(Lzop.bid(&wrong[..12]), 72);
    assert_eq!(Lzop.bid(b"\x89PNG\r\n\x1a\n"), 0);
    assert_eq!(Lzop.bid(b""), 0);
}

#[test]
fn blocks_that_are_not_valid_are_refused() {
    // Two literals, a match of three bytes two back, the end.
    let right = [17 + 2, b'a', b'b', 0b0100_0100, 0, 17, 0, 0];
    let mut output = [0; 5];
    assert!(lzo1x::decompress(&right, &mut output).is_ok());
    assert_eq!(&output, b"ababa");
    assert!(lzo1x::decompress(&right, &mut [0; 4]).is_err(), "more than there is room for");
    assert!(lzo1x::decompress(&right, &mut [0; 6]).is_err(), "less than there should be");
    assert!(lzo1x::decompress(&[&right[..], &[0]].concat(), &mut output).is_err(), "something behind the end");
    for cut in 0..right.len() {
        assert!(lzo1x::decompress(&right[..cut], &mut output).is_err(), "cut at {cut}");
    }
    let far = [19, b'a', b'b', 0b0100_1000, 0, 17, 0, 0];
    assert!(lzo1x::decompress(&far, &mut output).is_err(), "before the start");
}

#[test]
fn a_state_that_lies_is_an_error_or_decodes() {
    let data = sample(1_200_000, 11);
    let packed = lzop("-1", &data);
    let points = decode_spaced(&Lzop, &packed, BLOCK as u64).points;
    let point = &points[2];
    for index in 0..point.state.len() {
        for value in 0..=u8::MAX {
            let mut wrong = point.clone();
            wrong.state[index] = value;
            let _ = resume(&Lzop, &packed, &wrong, PIECE);
        }
        let mut wrong = point.clone();
        wrong.state.truncate(index);
        assert!(resume(&Lzop, &packed, &wrong, PIECE).is_err());
    }
    for compressed_bit in [1, 80, u64::MAX, u64::MAX - 7, packed.len() as u64 * 8 + 8] {
        assert!(resume(&Lzop, &packed, &SeekPoint { compressed_bit, ..point.clone() }, PIECE).is_err());
    }
}

#[test]
fn other_projects_archives_decode_as_lzop_does() {
    let Some(folder) = corpus("libarchive") else { return };
    let mut compared = 0;
    for path in std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
        if path.extension().is_some_and(|extension| extension == "lzo") {
            let bytes = std::fs::read(&path).unwrap();
            assert!(Lzop.bid(&bytes) > 0, "{}", path.display());
            let (expected, content) = tool_status("lzop -dc", &bytes);
            let pass = decode(&Lzop, &bytes);
            assert!(pass.data == expected, "{}", path.display());
            // It warns of files that follow one another.
            assert!(pass.error.is_none() || !content, "{}: {:?}", path.display(), pass.error);
            compared += 1;
        }
    }
    assert!(compared >= 4, "{compared}");
}
