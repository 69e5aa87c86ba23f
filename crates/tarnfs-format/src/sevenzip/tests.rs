//! Headers that lie: an error or a note, in little time and memory.

use std::io;
use std::sync::Arc;

use proptest::prelude::*;
use tarnfs_source::{MemorySource, SharedSource};

use super::{SevenZip, start};
use crate::{Decode, Error, Event, Format, Options, Piece, Probe, ReadRandom};

/// An archive of these packed bytes and this header, its checksums right.
fn archive(packed: &[u8], header: &[u8]) -> Vec<u8> {
    let fields = [
        &(packed.len() as u64).to_le_bytes()[..],
        &(header.len() as u64).to_le_bytes(),
        &crc32fast::hash(header).to_le_bytes(),
    ]
    .concat();
    [start::SIGNATURE, &[0, 4][..], &crc32fast::hash(&fields).to_le_bytes(), &fields, packed, header].concat()
}

/// What is found, up to as many as a header of that length can tell of.
fn read(bytes: &[u8]) -> Result<Vec<Event>, Error> {
    let source: SharedSource = Arc::new(MemorySource::new(bytes, "archive"));
    let most = bytes.len() as u64;
    let decode = Decode::new(move |_, stored, length, _| {
        assert!(stored.len() <= most && length <= super::MOST_HEADER);
        Err(io::ErrorKind::InvalidData.into())
    });
    let mut found = Vec::new();
    SevenZip.read(&source, &Options { decode, ..Options::default() }, &mut |event| {
        if let Event::Entry(entry) = &event {
            assert!(entry.mode <= 0o7777 && entry.mtime.nanoseconds < 1_000_000_000 && entry.header <= most);
            for piece in entry.body.pieces.iter().flatten() {
                assert_eq!((piece.hole, piece.length), (0, entry.body.size));
                assert!(piece.offset + piece.stored <= most);
                assert!(piece.skip + piece.length <= piece.decoded);
                assert!(piece.coder.is_some() || (piece.stored, piece.skip) == (piece.length, 0));
            }
        }
        found.push(event);
        assert!(found.len() <= 2 * bytes.len() + 2);
        Ok(())
    })?;
    Ok(found)
}

/// What is whole, and needs what is not known here, is not damaged.
#[test]
fn a_version_or_a_coder_that_is_not_known_is_no_damage() {
    let mut newer = archive(PACKED, &header());
    newer[6] = 1;
    let packed = [0x17, 6, 0, 1, 9, 10, 0, 7, 11, 1, 0, 1, 4, 0xff, 0xfe, 0xfd, 0xfc, 12, 5, 0, 0];
    for (bytes, expected) in [(newer, "version 1 "), (archive(PACKED, &packed), "fffefdfc")] {
        let error = read(&bytes).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        assert!(error.to_string().to_lowercase().contains(expected), "{error}");
    }
}

/// The only piece of an entry.
fn piece(event: &Event) -> &Piece {
    let Event::Entry(entry) = event else { panic!("{event:?}") };
    &entry.body.pieces.as_ref().unwrap()[0]
}

/// Two files in a folder that is stored as it is, one by LZMA2, and an empty one, a folder and an anti item; each kind
/// of property.
fn header() -> Vec<u8> {
    let names: Vec<u8> = "one\0two\0three\0empty\0folder\0anti\0".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let times = [0, 0x80, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    [
        &[1, 2, 9, 1, 7, 0, 4, 6, 0, 2, 9, 6, 4, 10, 0, 0x80, 1, 2, 3, 4, 0][..],
        &[7, 11, 2, 0, 1, 1, 0, 1, 0x21, 0x21, 1, 24, 12, 6, 9, 10, 0, 0x40, 5, 6, 7, 8, 0],
        &[8, 13, 2, 1, 9, 2, 10, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0],
        &[5, 6, 25, 2, 0, 0, 14, 1, 0b0001_1100, 15, 1, 0b1010_0000, 16, 1, 0b0010_0000],
        &[17, names.len() as u8 + 1, 0],
        &names,
        &[18, 11],
        &times,
        &[19, 11],
        &times,
        &[20, 11],
        &times,
        &[21, 7, 0, 0x40, 0, 0, 0x80, 0xed, 0x81, 0, 0],
    ]
    .concat()
}

const PACKED: &[u8] = b"1122223333";

fn paths(found: &[Event]) -> Vec<(String, u64)> {
    let entry = |event: &Event| match event {
        Event::Entry(entry) => Some((String::from_utf8_lossy(&entry.path).into_owned(), entry.body.size)),
        _ => None,
    };
    found.iter().filter_map(entry).collect()
}

#[test]
fn a_header_made_by_hand() {
    let found = read(&archive(PACKED, &header())).unwrap();
    let expected = [("one", 2), ("two", 4), ("three", 9), ("empty", 0), ("folder", 0)];
    assert_eq!(paths(&found), expected.map(|(path, length)| (path.to_owned(), length)));
    // What only says what to remove is no damage.
    assert_eq!(found[expected.len()..], [Event::Unlisted("entries that say what is to be removed (1)".to_owned())]);
    for (index, offset) in [(0, 32), (1, 34), (2, 38)] {
        let piece = piece(&found[index]);
        assert_eq!((piece.offset, piece.coder.is_some()), (offset, index == 2));
    }
}

/// Programs that put something into an archive leave it there when they write a new header.
#[test]
fn bytes_of_no_file_are_told() {
    let header = [1, 4, 6, 0, 1, 9, 10, 0, 7, 11, 1, 0, 1, 1, 0, 12, 10, 0, 0, 5, 1, 17, 5, 0, b'1', 0, 0, 0, 0, 0];
    for (packed, expected) in [(PACKED.to_vec(), None), ([PACKED, b"precious"].concat(), Some("8 bytes"))] {
        let found = read(&archive(&packed, &header)).unwrap();
        assert_eq!(paths(&found), [("1".to_owned(), 10)]);
        let told = expected.map(|bytes| Event::Unlisted(format!("{bytes} that belong to none of its files")));
        assert_eq!(found.get(1), told.as_ref());
    }
}

#[test]
fn a_header_cut_anywhere_is_an_error() {
    let header = header();
    for length in 1..header.len() {
        assert!(read(&archive(PACKED, &header[..length])).is_err(), "{length}");
    }
    assert!(read(&archive(PACKED, &[])).unwrap().is_empty());
}

/// Each byte of a header may tell of a file: 7 KB told of twelve million.
#[test]
fn a_header_is_as_long_as_what_is_stored_of_it_allows() {
    let number = |value: u64| [&[0xff_u8][..], &value.to_le_bytes()].concat();
    let refused = |stored: u64, length: u64| {
        let sizes = [&[0x17, 6, 0, 1, 9][..], &number(stored), &[0, 7, 11, 1, 0, 1, 1, 0x21, 12], &number(length)];
        let bytes = archive(&vec![7; stored as usize], &[&sizes.concat()[..], &[0, 0]].concat());
        read(&bytes).unwrap_err().to_string().contains("more than")
    };
    assert!(!refused(7000, 7000 * 1024 + (1 << 20)) && !refused(10, 1 << 20) && !refused(1 << 16, 64 << 20));
    assert!(refused(7000, 9 << 20) && refused(10, 2 << 20) && refused(1 << 20, 65 << 20));
}

/// Two blocks of the same two steps, of other lengths: what comes of the first step is as long as each block says.
#[test]
fn the_lengths_of_steps_are_those_of_their_block() {
    let deflate_twice = [2, 3, 4, 1, 8, 3, 4, 1, 8, 1, 0];
    let header = [
        &[1, 4, 6, 0, 2, 9, 4, 5, 0, 7, 11, 2, 0][..],
        &deflate_twice,
        &deflate_twice,
        // What comes of each step.
        &[12, 50, 50, 60, 60, 0, 0],
        &[5, 2, 17, 9, 0, b'1', 0, 0, 0, b'2', 0, 0, 0, 0, 0],
    ]
    .concat();
    let found = read(&archive(&PACKED[..9], &header)).unwrap();
    let lengths: Vec<_> = found
        .iter()
        .map(|event| {
            let steps = &piece(event).coder.as_ref().unwrap().steps;
            (piece(event).length, steps.iter().map(|step| step.decoded_length).collect::<Vec<_>>())
        })
        .collect();
    assert_eq!(lengths, [(50, vec![Some(50), None]), (60, vec![Some(60), None])]);
}

#[test]
fn streams_behind_the_end_are_refused() {
    let header = [&[1, 4, 6, 0xff, 255, 255, 255, 255, 255, 255, 255, 127, 1, 9, 6, 0][..], &header()[21..]].concat();
    assert!(read(&archive(PACKED, &header)).is_err());
}

#[test]
fn numbers_without_an_end_cost_nothing() {
    let most = [0xff_u8; 9];
    let half = [0xff, 255, 255, 255, 255, 255, 255, 255, 127];
    let header = header();
    for number in [&most[..], &half, &[0xf0, 255, 255, 255, 255], &[0xbf, 255]] {
        for at in 0..header.len() {
            let changed = [&header[..at], number, &header[at + 1..]].concat();
            let _ = read(&archive(PACKED, &changed));
        }
    }
    // A header in a header without an end.
    let nested = [0x17, 6, 0, 1, 9, 18, 0, 7, 11, 1, 0, 1, 1, 0, 12, 18, 0, 0];
    let error = read(&archive(&nested, &nested)).unwrap_err().to_string();
    assert!(error.contains("without an end"), "{error}");
    let large = [&[0x17, 6, 0, 1, 9, 10, 0, 7, 11, 1, 0, 1, 0x21, 0x21, 1, 24, 12][..], &[0xf0, 0, 0, 0, 16, 0, 0]];
    let error = read(&archive(PACKED, &large.concat())).unwrap_err().to_string();
    assert!(error.contains("a header of 268435456 bytes, more than"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn changed_headers_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 1..6),
    ) {
        let mut header = header();
        for (at, byte, how) in changes {
            let at = at.index(header.len());
            match how {
                0 => header[at] = byte,
                1 => header.insert(at, byte),
                2 => header[at] ^= 1 << (byte % 8),
                _ => drop(header.splice(at..at, [byte; 3])),
            }
        }
        let _ = read(&archive(PACKED, &header));
    }

    #[test]
    fn any_header_never_panics(header: Vec<u8>, kind in prop::sample::select(vec![1_u8, 0x17])) {
        let _ = read(&archive(PACKED, &[&[kind], &header[..]].concat()));
        let _ = read(&header);
    }
}

#[test]
fn archives_bid_at_their_start_and_behind_a_program() {
    let bytes = archive(PACKED, &header());
    assert_eq!(SevenZip.bid(&Probe::of_head(&bytes)), 48);
    let mut program = [&b"\x7fELF\x02\x01"[..], &[0; 5000]].concat();
    program[0x28..0x30].copy_from_slice(&4900_u64.to_le_bytes());
    program[0x3a..0x3e].copy_from_slice(&[53, 0, 2, 0]);
    let with = [&program, &b"do this"[..], &bytes].concat();
    let source = MemorySource::new(with.clone(), "program");
    assert_eq!(SevenZip.bid(&Probe::new(&with[..4096], &source)), 80);
    assert_eq!(SevenZip.bid(&Probe::of_head(&with[..4096])), 0);
    assert_eq!(SevenZip.bid(&Probe::new(&program[..4096], &MemorySource::new(program.clone(), "program"))), 0);
    assert_eq!(paths(&read(&with).unwrap()).len(), 5);
}
