use std::io::ErrorKind;

use tarnfs_source::Limits;

use super::{HEAD, IDENTIFIER, LARGEST_CHUNK, Snappy, masked};
use crate::testing::{
    assert_outlives_mutations, assert_points_lead_to, assert_read_anywhere, decode, decode_in_steps, decode_spaced,
    length_in_little_memory, noise, resume, sample, source, tool_status,
};
use crate::{Codec, FileCodec as _, Options, PIECE, SeekPoint};

/// What python-snappy makes of `data`, with libsnappy; `None`, with a line that says so, where it is not installed.
fn python(data: &[u8]) -> Option<Vec<u8>> {
    // Debian's, which has the package, whatever else is called so.
    let script = concat!("/usr/bin/python3 ", env!("CARGO_MANIFEST_DIR"), "/../../tests/support/compress_snappy.py");
    let (packed, good) = tool_status(script, data);
    if !good {
        println!("left out: python3-snappy is not installed");
    }
    good.then_some(packed)
}

fn chunk(kind: u8, data: &[u8]) -> Vec<u8> {
    [&[kind], &(data.len() as u32).to_le_bytes()[..3], data].concat()
}

/// A stream of chunks of so many bytes, each of another kind than the one before.
fn pack(data: &[u8], length: usize) -> Vec<u8> {
    let mut packed = IDENTIFIER.to_vec();
    for (number, part) in data.chunks(length).enumerate() {
        let sum = masked(part).to_le_bytes();
        let block = snap::raw::Encoder::new().compress_vec(part).unwrap();
        packed.extend(match number % 7 {
            0 | 3 | 5 => chunk(0x00, &[&sum, &block[..]].concat()),
            1 => chunk(0x01, &[&sum, part].concat()),
            2 => [chunk(0xFE, &[0; 100]), chunk(0x00, &[&sum, &block[..]].concat())].concat(),
            4 => [chunk(0x80, b"of another version"), chunk(0x01, &[&sum, part].concat())].concat(),
            _ => [&IDENTIFIER, &chunk(0x00, &[&sum, &block[..]].concat())[..]].concat(),
        });
    }
    packed
}

#[test]
fn a_chunk_that_holds_nothing_has_a_checksum_too() {
    let sum = masked(b"").to_le_bytes();
    let empty = [&sum[..], &snap::raw::Encoder::new().compress_vec(b"").unwrap()].concat();
    for empty in [chunk(0x00, &empty), chunk(0x01, &sum)] {
        let mut packed = [&IDENTIFIER, &empty[..], &pack(&noise(1000), 1000)[IDENTIFIER.len()..]].concat();
        assert!(decode(&Snappy, &packed).whole() == noise(1000));
        packed[IDENTIFIER.len() + HEAD] ^= 1;
        let pass = decode(&Snappy, &packed);
        assert!(pass.error.is_none() && pass.data == noise(1000));
        assert_eq!(pass.damage.len(), 1);
        assert_eq!(pass.damage[0].decoded, 0..0);
    }
}

#[test]
fn reads_what_python_writes() {
    for data in [&b""[..], b"a", &vec![7; 65_536], &vec![0; 300_000], &noise(150_000), &sample(400_000, 2)] {
        let Some(packed) = python(data) else { return };
        // Of nothing it makes nothing, not even a head.
        if data.is_empty() {
            continue;
        }
        assert_eq!(Snappy.bid(&packed), 80);
        assert!(decode(&Snappy, &packed).whole() == data, "{} bytes", data.len());
        let both = [&packed[..], &packed].concat();
        assert!(decode(&Snappy, &both).whole() == data.repeat(2));
    }
}

#[test]
fn reads_chunks_of_all_kinds_from_anywhere() {
    let data = sample(1_500_000, 3);
    for length in [LARGEST_CHUNK, 10_000] {
        let packed = pack(&data, length);
        let pass = decode_spaced(&Snappy, &packed, PIECE as u64);
        assert!(pass.points.len() >= 10);
        assert_points_lead_to(&Snappy, &packed, &pass.points, &data);
        assert_read_anywhere(&Snappy, &packed, &pass.points, &data, 3);
        assert!(pass.whole() == data);
        for step in [1009, 65_536, 1 << 20] {
            assert!(decode_in_steps(&Snappy, &packed, step, Limits::default()).whole() == data);
        }
    }
    assert_eq!(decode(&Snappy, &IDENTIFIER).whole(), b"");
}

#[test]
fn a_file_cut_at_any_byte_gives_what_is_whole() {
    let data = sample(900, 4);
    let packed = pack(&data, 100);
    let mut unnoticed = 0;
    for length in 0..packed.len() {
        let pass = decode(&Snappy, &packed[..length]);
        assert!(data.starts_with(&pass.data) && pass.data.len().is_multiple_of(100) && pass.damage.is_empty());
        if pass.error.is_some() {
            assert_eq!(pass.error_kind(), ErrorKind::UnexpectedEof);
        } else {
            // Between two chunks a cut cannot be told from an end.
            unnoticed += 1;
        }
    }
    assert_eq!(unnoticed, 9 + 3, "one for each chunk");
}

#[test]
fn a_flipped_bit_is_noticed() {
    let data = sample(900, 5);
    let packed = pack(&data, 300);
    for bit in 0..packed.len() * 8 {
        let mut wrong = packed.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        decode(&Snappy, &wrong).assert_honest(&data, &format!("bit {bit}"));
    }
}

/// Where the chunks of a stream begin.
fn heads(packed: &[u8]) -> Vec<usize> {
    let (mut heads, mut at) = (Vec::new(), 0);
    while let Some(head) = packed[at..].first_chunk() {
        heads.push(at);
        at += HEAD + (u32::from_le_bytes(*head) >> 8) as usize;
    }
    heads
}

#[test]
fn a_wrong_bit_of_the_head_of_a_chunk_costs_nothing() {
    let data = sample(500_000, 8);
    let packed = pack(&data, LARGEST_CHUNK);
    // One that is stored, one that is packed, and the last one. What may be skipped follows none of them.
    let heads: Vec<_> = heads(&packed).into_iter().filter(|&at| packed[at] <= 1).collect();
    for (number, at) in [(1, heads[1]), (5, heads[5]), (7, heads[7])] {
        // The first one makes one kind of the other, which only the checksum tells.
        for bit in 0..32 {
            let mut wrong = packed.clone();
            wrong[at + bit / 8] ^= 1 << (bit % 8);
            let pass = decode(&Snappy, &wrong);
            let what = format!("chunk {number}, bit {bit}: {:?}, {:?}", pass.error, pass.damage);
            assert!(pass.error.is_none() && pass.data == data && pass.shifts.is_empty(), "{what}");
            let start = (number * LARGEST_CHUNK) as u64;
            assert!(pass.damage.len() == 1 && pass.damage[0].decoded == (start..start), "{what}");
            assert_points_lead_to(&Snappy, &wrong, &pass.points, &data);
        }
    }
    // What repeats has very many places that look like heads.
    let zeros = vec![0; 4 << 20];
    let mut wrong = pack(&zeros, LARGEST_CHUNK);
    let twentieth = self::heads(&wrong)[20];
    wrong[twentieth] ^= 1;
    let pass = decode(&Snappy, &wrong);
    assert!(pass.error.is_none() && pass.data == zeros, "{} bytes: {:?}", pass.data.len(), pass.damage);
    assert_points_lead_to(&Snappy, &wrong, &pass.points, &zeros);
    // The identifier of a stream behind another one.
    let first = packed.len();
    for bit in 0..8 * IDENTIFIER.len() {
        let mut both = packed.repeat(2);
        both[first + bit / 8] ^= 1 << (bit % 8);
        let pass = decode(&Snappy, &both);
        assert!(pass.error.is_none() && pass.data == data.repeat(2), "bit {bit}: {:?}", pass.error);
    }
}

/// > What is whole in a damaged or cut archive is served, and the rest is an error.
#[test]
fn behind_the_head_of_a_chunk_that_is_lost_the_next_one_is_found() {
    const CHUNK: usize = LARGEST_CHUNK;
    let mut data = noise(10 * CHUNK);
    // A file of the same kind in it is none of the chunks.
    let inner = pack(&sample(30_000, 9), 3000);
    data[CHUNK + 2000..][..inner.len()].copy_from_slice(&inner);
    let packed = pack(&data, CHUNK);
    let heads: Vec<_> = heads(&packed).into_iter().filter(|&at| packed[at] <= 1).collect();
    for cut in [0, 1000] {
        let mut wrong = packed[..packed.len() - cut].to_vec();
        wrong[heads[1]..][..512].fill(0xA5);
        let pass = decode(&Snappy, &wrong);
        let behind = if cut == 0 { &data[2 * CHUNK..] } else { &data[2 * CHUNK..9 * CHUNK] };
        assert_eq!(pass.error.is_some(), cut > 0, "{:?}", pass.error);
        assert_eq!(pass.data.len(), CHUNK + 512 + behind.len());
        assert!(pass.data[..CHUNK] == data[..CHUNK] && pass.data.ends_with(behind));
        assert_eq!(pass.damage.len(), 1, "{:?}", pass.damage);
        let lost = CHUNK as u64..CHUNK as u64 + 512;
        assert_eq!((&pass.damage[0].decoded, &pass.shifts), (&lost, &vec![lost.end]));
        if cut == 0 {
            assert_points_lead_to(&Snappy, &wrong, &pass.points, &pass.data);
        }
    }
    // However much is lost.
    let long = noise(8 << 20);
    let mut wrong = pack(&long, CHUNK);
    wrong[1 << 20..6 << 20].fill(0);
    let pass = decode(&Snappy, &wrong);
    assert!(pass.data.ends_with(&long[7 << 20..]) && pass.error.is_none(), "{:?}", pass.damage);
    // Where little follows, that may lie in what is damaged.
    let mut last = packed[..heads[2]].to_vec();
    last[heads[1]..][..512].fill(0xA5);
    let pass = decode(&Snappy, &last);
    assert!(pass.error.is_some() && pass.data == data[..CHUNK], "{} bytes", pass.data.len());
}

#[test]
fn mutations_are_survived() {
    for seed in 1..200 {
        let data = sample(150_000, 6);
        let mut packed = pack(&data, LARGEST_CHUNK);
        // Heads of chunks have no checksum, so they are left as they are.
        let at = IDENTIFIER.len() + HEAD + (seed * 241) % 30_000;
        packed[at] ^= 1 << (seed % 8);
        decode(&Snappy, &packed).assert_honest(&data, &format!("byte {at}"));
    }
    // Cut out and moved, all is allowed but a crash.
    assert_outlives_mutations(&Snappy, &pack(&sample(400_000, 7), 50_000), PIECE as u64);
}

#[test]
fn a_damaged_chunk_is_missing_and_no_other() {
    let data = sample(500_000, 8);
    let packed = pack(&data, LARGEST_CHUNK);
    let points = decode_spaced(&Snappy, &packed, PIECE as u64).points;
    let third = points[1].compressed_bit as usize / 8;
    assert_eq!(points[1].decoded, 2 * LARGEST_CHUNK as u64);
    // The chunk to be skipped before it is read with it.
    for at in [104 + HEAD, 104 + HEAD + 4, 104 + HEAD + 10, 104 + HEAD + 5000] {
        let mut wrong = packed.clone();
        wrong[third + at] ^= 0x55;
        let pass = decode(&Snappy, &wrong);
        assert!(pass.error.is_none() && pass.data.len() == data.len());
        assert_eq!(pass.damage.len(), 1, "{at}: {:?}", pass.damage);
        assert_eq!(pass.damage[0].decoded, 2 * LARGEST_CHUNK as u64..3 * LARGEST_CHUNK as u64);
        assert!(pass.data[..2 * LARGEST_CHUNK] == data[..2 * LARGEST_CHUNK]);
        assert!(pass.data[3 * LARGEST_CHUNK..] == data[3 * LARGEST_CHUNK..]);
        assert_points_lead_to(&Snappy, &wrong, &pass.points, &pass.data);
    }
}

#[test]
fn a_bomb_takes_no_memory_and_lies_are_refused() {
    let packed = pack(&vec![0; 20 << 20], LARGEST_CHUNK);
    let mut pass = Snappy.first_pass(source(&packed), &Options::default()).unwrap();
    assert_eq!(length_in_little_memory(&mut *pass, 1 << 20), 20 << 20);
    let with = |chunk: &[u8]| [&IDENTIFIER, chunk].concat();
    for (bytes, text) in [
        (b"PK\x03\x04 something else".to_vec(), "no snappy stream"),
        // One wrong bit of the kind of a chunk would leave out its checksum.
        (with(&chunk(0x02, &[3, 2 << 2, b'd', b'e', b'f'])), "0x02"),
        (with(&chunk(0x03, b"abc")), "0x03"),
        (with(&chunk(0x04, b"abc")), "0x04"),
        (with(&chunk(0x7F, b"abc")), "0x7f"),
        (with(&chunk(0x01, &vec![0; LARGEST_CHUNK + 5])), "65541 bytes"),
        (with(&chunk(0x00, b"abc")), "3 bytes"),
        (with(b"\xff\x06\0\0snappY"), "not snappy's"),
    ] {
        let pass = decode(&Snappy, &bytes);
        assert_eq!(pass.error_kind(), ErrorKind::InvalidData);
        let error = pass.error.unwrap().to_string();
        assert!(error.contains(text) && error.ends_with("of the compressed file"), "{error}");
    }
    // A chunk that claims to be longer than any may be is one of as many bytes as one may have.
    let claims = [&[0, 0, 0, 0][..], &[0xFF, 0xFF, 0xFF, 0x7F, 0]].concat();
    let pass = decode(&Snappy, &with(&chunk(0x00, &claims)));
    assert_eq!((pass.data.len(), pass.damage.len()), (LARGEST_CHUNK, 1));
}

#[test]
fn a_state_that_lies_is_an_error() {
    let data = sample(500_000, 9);
    let packed = pack(&data, LARGEST_CHUNK);
    let point = &decode_spaced(&Snappy, &packed, PIECE as u64).points[1];
    for state in [&b"\0"[..], b"\x02", b"\x01\x01"] {
        assert!(resume(&Snappy, &packed, &SeekPoint { state: state.to_vec(), ..point.clone() }, PIECE).is_err());
    }
    for compressed_bit in [1, point.compressed_bit + 4, u64::MAX, u64::MAX - 7, packed.len() as u64 * 8 + 8] {
        assert!(resume(&Snappy, &packed, &SeekPoint { compressed_bit, ..point.clone() }, PIECE).is_err());
    }
}

#[test]
fn bids_for_its_identifier() {
    assert_eq!(Snappy.bid(&pack(b"hello", 10)), 80);
    assert_eq!(Snappy.bid(&IDENTIFIER[..9]), 0);
    assert_eq!(Snappy.bid(b""), 0);
}
