use super::encoder::Recipe;
use super::*;

/// Two streams of a block each, and what they hold.
fn small() -> (Vec<u8>, [Vec<u8>; 2]) {
    let blocks = [noise(100, 1), b"pond".repeat(3)];
    (blocks.iter().flat_map(|block| compress("bzip2", &["-1"], block)).collect(), blocks)
}

/// Outside the damaged ranges there must be whole blocks or starts of them, in order. (Where a damaged block has
/// another length than it had, those behind it have moved.)
fn assert_never_silently_wrong(what: &str, outcome: &Outcome, blocks: &[Vec<u8>]) {
    let is_told = |at: usize| outcome.damage.iter().any(|damage| damage.decoded.contains(&(at as u64)));
    let told: Vec<u8> =
        outcome.bytes.iter().enumerate().filter(|&(at, _)| !is_told(at)).map(|(_, byte)| *byte).collect();
    let mut rest = told.as_slice();
    for block in blocks {
        rest = rest.strip_prefix(block.as_slice()).unwrap_or(rest);
    }
    assert!(rest.is_empty(), "{what}: wrong bytes and nothing says so");
    let complete = told.len() == blocks.iter().map(Vec::len).sum::<usize>();
    assert!(complete || outcome.error.is_some() || !outcome.damage.is_empty(), "{what}: silently short");
}

#[test]
fn cut_at_every_byte() {
    let (compressed, blocks) = small();
    let second = compress("bzip2", &["-1"], &blocks[0]).len();
    for length in 0..compressed.len() {
        let outcome = first_pass(&compressed[..length]);
        // The end of a stream takes 10 bytes and begins at any bit: with 11 of them missing the block may be whole.
        let whole = |missing: usize| -> Vec<u8> {
            let ends = [second, compressed.len()];
            blocks
                .iter()
                .zip(ends)
                .filter(|(_, end)| length + missing >= *end)
                .flat_map(|(block, _)| block)
                .copied()
                .collect()
        };
        assert!(outcome.bytes == whole(10) || outcome.bytes == whole(11), "cut at {length}");
        let error = if length == second { None } else { Some(io::ErrorKind::UnexpectedEof) };
        assert_eq!((outcome.error, outcome.damage), (error, Vec::new()), "cut at {length}");
    }
}

#[test]
fn cut_in_a_large_block() {
    let plain = prose(1_200_000);
    let compressed = compress("bzip2", &["-9"], &plain);
    let points = first_pass(&compressed).points;
    assert_eq!(points.len(), 2);
    for length in [100_000, points[1].compressed_bit as usize / 8, compressed.len() - 30, compressed.len() - 1] {
        let outcome = first_pass(&compressed[..length]);
        assert_eq!(outcome.error, Some(io::ErrorKind::UnexpectedEof), "cut at {length}");
        assert!(plain.starts_with(&outcome.bytes));
        let blocks = points.iter().filter(|point| point.compressed_bit as usize / 8 + 60_000 < length).count();
        let resumed = resume(&compressed[..length], &points[1], usize::MAX);
        assert!(plain[points[1].decoded as usize..].starts_with(&resumed.bytes));
        assert_eq!(resumed.error, Some(io::ErrorKind::UnexpectedEof), "{blocks} blocks");
    }
}

#[test]
fn every_bit_flipped() {
    let (compressed, blocks) = small();
    let plain = blocks.concat();
    let points = first_pass(&compressed).points;
    for bit in 0..compressed.len() * 8 {
        let mut flipped = compressed.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_never_silently_wrong(&format!("bit {bit}"), &first_pass(&flipped), &blocks);
        for point in &points {
            let resumed = resume(&flipped, point, usize::MAX);
            assert!(plain[point.decoded as usize..].starts_with(&resumed.bytes), "bit {bit}, resumed at {point:?}");
        }
    }
}

#[test]
fn a_block_with_a_wrong_crc_is_damage_and_the_rest_is_served() {
    let plain = prose(290_000);
    let mut compressed = compress("bzip2", &["-1"], &plain);
    let points = first_pass(&compressed).points;
    // The CRC is in the 32 bits behind the magic; any of them will do.
    let bit = points[1].compressed_bit as usize + 48 + 10;
    compressed[bit / 8] ^= 0x80 >> (bit % 8);
    let outcome = first_pass(&compressed);
    let places =
        |points: &[SeekPoint]| points.iter().map(|point| (point.compressed_bit, point.decoded)).collect::<Vec<_>>();
    assert!(outcome.bytes == plain && places(&outcome.points) == places(&points) && outcome.error.is_none());
    assert_eq!(outcome.points[1].state, [1, 1], "nobody reads a part of it");
    let [of_block, of_stream] = outcome.damage.as_slice() else { panic!("{:?}", outcome.damage) };
    assert_eq!(of_block.decoded, points[1].decoded..points[2].decoded);
    assert_eq!(of_block.compressed_from, points[1].compressed_bit / 8);
    assert!(of_stream.decoded.is_empty());
    for (number, point) in points.iter().enumerate() {
        let outcome = resume(&compressed, point, 50_000);
        assert_eq!(outcome.error, (number == 1).then_some(io::ErrorKind::InvalidData));
        assert_eq!(outcome.bytes.is_empty(), number == 1);
    }
}

#[test]
fn a_block_that_cannot_be_read_costs_only_itself() {
    let plain = prose(290_000);
    let mut compressed = compress("bzip2", &["-1"], &plain);
    let points = first_pass(&compressed).points;
    // The table of used bytes, all zeros.
    let bytes: Range<usize> =
        (points[1].compressed_bit as usize + 105) / 8 + 1..(points[1].compressed_bit as usize + 300) / 8;
    compressed[bytes].fill(0xff);
    let outcome = first_pass(&compressed);
    assert_eq!(outcome.error, None);
    let (before, after) = (&plain[..points[1].decoded as usize], &plain[points[2].decoded as usize..]);
    assert!(outcome.bytes.starts_with(before) && outcome.bytes.ends_with(after));
    let lost = before.len() as u64..(outcome.bytes.len() - after.len()) as u64;
    assert!(!lost.is_empty());
    assert_eq!(outcome.damage[0].decoded, lost);
    assert_eq!(outcome.points[0], points[0]);
    assert_eq!((outcome.points[1].decoded, outcome.points[2].decoded), (lost.start, lost.end));
    assert_eq!(outcome.points[2].compressed_bit, points[2].compressed_bit);
    // The block behind it is served to who resumes there, and to nobody before.
    for (point, expected) in [(&outcome.points[2], after), (&outcome.points[1], b"")] {
        let resumed = resume(&compressed, point, usize::MAX);
        assert_eq!((resumed.bytes == expected, resumed.error.is_none()), (true, !expected.is_empty()));
    }
    // The last one, with its end: there is nothing to go on with.
    let start = points[2].compressed_bit as usize / 8 + 14;
    compressed[start..].fill(0xff);
    assert_eq!(first_pass(&compressed).error, Some(io::ErrorKind::InvalidData));
}

/// Magics without blocks, each of which leads nowhere: looked through in time that goes with the length.
#[test]
fn a_great_many_starts_of_blocks_end() {
    let start = [b"1AY&SY", &[0x5a; 5][..], &[0xff; 7]].concat();
    let compressed = [&b"BZh9"[..], &start.repeat(100_000)].concat();
    let outcome = first_pass(&compressed);
    assert!(outcome.bytes.len() <= 100_000 * 512);
    assert!(outcome.error.is_some());
}

#[test]
fn the_crc_of_the_stream_tells_of_a_missing_block() {
    let mut compressed = compress("bzip2", &["-1"], b"whole");
    let last = compressed.len() - 3;
    compressed[last] ^= 4;
    let outcome = first_pass(&compressed);
    assert_eq!((outcome.bytes.as_slice(), outcome.error), (b"whole".as_slice(), None));
    assert_eq!((outcome.damage.len(), outcome.damage[0].decoded.clone()), (1, 5..5));
}

#[test]
fn what_follows_the_last_stream_is_told_unless_it_is_zeros() {
    let stream = compress("bzip2", &[], b"text");
    for padding in [1, 2, 511, 300_000] {
        let padded: Vec<u8> = stream.iter().copied().chain(std::iter::repeat_n(0, padding)).collect();
        check_whole("zeros behind", &padded, b"text");
    }
    for garbage in [b"garbage".as_slice(), b"x", b"BZ?", b"\0\0\0\0\0\0\0\0\x01", b"BZh0 and so on"] {
        let followed = [&stream, garbage].concat();
        let outcome = first_pass(&followed);
        assert_eq!((outcome.bytes.as_slice(), outcome.error), (b"text".as_slice(), None));
        assert_eq!((outcome.damage.len(), outcome.damage[0].decoded.clone()), (1, 4..4));
        let resumed = resume(&followed, &outcome.points[0], usize::MAX);
        assert_eq!((resumed.bytes.as_slice(), resumed.error), (b"text".as_slice(), None));
    }
    // The start of a stream is taken at its word.
    let outcome = first_pass(&[stream.as_slice(), b"BZh9 nothing of the kind"].concat());
    assert_eq!((outcome.bytes.as_slice(), outcome.error), (b"text".as_slice(), Some(io::ErrorKind::InvalidData)));
    let outcome = first_pass(b"no bzip2 at all");
    assert_eq!(outcome.error, Some(io::ErrorKind::InvalidData));
}

#[test]
fn seek_points_that_lie_are_refused() {
    let plain = prose(150_000);
    let compressed = compress("bzip2", &["-1"], &plain);
    let good = first_pass(&compressed).points.swap_remove(1);
    let invalid = Some(io::ErrorKind::InvalidData);
    for compressed_bit in [1, 8, good.compressed_bit - 1, good.compressed_bit + 1, good.compressed_bit + 8] {
        let outcome = resume(&compressed, &SeekPoint { compressed_bit, ..good.clone() }, usize::MAX);
        assert_eq!((outcome.bytes.len(), outcome.error), (0, invalid), "bit {compressed_bit}");
    }
    for compressed_bit in [compressed.len() as u64 * 8 + 1, u64::MAX - 7, u64::MAX] {
        let outcome = resume(&compressed, &SeekPoint { compressed_bit, ..good.clone() }, usize::MAX);
        assert_eq!(
            (outcome.bytes.len(), outcome.error),
            (0, Some(io::ErrorKind::UnexpectedEof)),
            "bit {compressed_bit}"
        );
    }
    for state in [vec![1], vec![1, 0], vec![1, 10], vec![2, 9], vec![1, 9, 0], vec![0; 100]] {
        assert_eq!(resume(&compressed, &SeekPoint { state, ..good.clone() }, usize::MAX).error, invalid);
    }
    // Marks: bytes of text, decoded bytes, a row.
    let mark = [0x80, 0x40, 0x80, 0x40, 5, 0, 0];
    for (marks, error) in [
        (mark.to_vec(), None),
        ([0, 1, 0, 0, 0].to_vec(), invalid),
        ([&mark[..], &[0, 1, 0, 0, 0]].concat(), invalid),
        ([0x80, 0x80, 0x40, 0x80, 0x40, 5, 0, 0].to_vec(), invalid),
        ([0x80, 0x40, 0x80, 0x40, 0, 0, 0x10].to_vec(), invalid),
        ([0x80, 0x40, 0x80, 0x80, 0x80, 0x80, 1, 5, 0, 0].to_vec(), invalid),
    ] {
        let point = SeekPoint { state: [&[2, 9], &marks[..]].concat(), ..good.clone() };
        assert_eq!(Bzip2.resume(memory(&compressed), &point, &DecodeContext::default()).err().map(|e| e.kind()), error);
    }
}

/// An archive may have been replaced by one whose block has the same length, and is of another kind.
#[test]
fn marks_of_another_block_are_refused() {
    let plain = prose(40_000);
    let point = first_pass(&Recipe::new(&plain).stream()).points.swap_remove(0);
    assert_eq!(point.state[0], 2);
    let randomised = Recipe { is_randomised: true, ..Recipe::new(&plain) }.stream();
    assert!(part_of(&randomised, &point, 20_000, 10).is_err());
}

/// A decoder skips only before it has read anything.
#[test]
fn nothing_is_skipped_later() {
    let plain = prose(150_000);
    let compressed = compress("bzip2", &["-9"], &plain);
    let points = first_pass(&compressed).points;
    let mut decoder = Bzip2.resume(memory(&compressed), &points[0], &DecodeContext::default()).unwrap();
    let mut bytes = vec![0; 1000];
    let read = decoder.read(&mut bytes).unwrap();
    assert!(!decoder.skip(50_000).unwrap());
    decoder.by_ref_reader().read_exact(&mut bytes[read..]).unwrap();
    assert!(plain.starts_with(&bytes));
    let cut = memory(&compressed[..2]);
    let point = SeekPoint { compressed_bit: 100, ..points[0].clone() };
    let mut decoder = Bzip2.resume(cut, &point, &DecodeContext::default()).unwrap();
    assert!(decoder.read(&mut bytes).is_err());
    assert!(!decoder.skip(50_000).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Neither a crash nor wrong bytes, whatever is overwritten.
    #[test]
    fn any_change_is_noticed(at in 0..1000_usize, bytes in prop::collection::vec(any::<u8>(), 1..20)) {
        let plain = prose(20_000);
        let mut compressed = Vec::new();
        bzip2::read::BzEncoder::new(plain.as_slice(), bzip2::Compression::new(1)).read_to_end(&mut compressed).unwrap();
        let at = at % (compressed.len() - bytes.len());
        compressed[at..at + bytes.len()].copy_from_slice(&bytes);
        assert_never_silently_wrong("overwritten", &first_pass(&compressed), &[plain]);
    }

    #[test]
    fn no_input_crashes(mut bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let head = b"BZh91AY&SY";
        let length = bytes.len().min(head.len());
        bytes[..length].copy_from_slice(&head[..length]);
        first_pass(&bytes);
    }
}
