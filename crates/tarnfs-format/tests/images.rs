//! RAR, ISO 9660 and UDF of any bytes: what is read of them ends, panics nowhere, and stays within the file.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{has, sh};
use proptest::prelude::*;
use tarnfs_format::iso9660::Iso9660;
use tarnfs_format::rar::Rar;
use tarnfs_format::udf::Udf;
use tarnfs_format::{Event, Format, Kind, Options, Probe, ReadRandom};
use tarnfs_source::{Cancel, MemorySource, SharedSource};

/// Reads `bytes` and returns how many entries there are.
fn read(format: &(impl Format + ReadRandom), bytes: &[u8]) -> usize {
    let source: SharedSource = Arc::new(MemorySource::new(bytes, "any"));
    format.bid(&Probe::new(&bytes[..bytes.len().min(4 << 10)], &*source));
    let options = Options::default();
    let (mut entries, mut damage) = (0_usize, 0_usize);
    let most = bytes.len() / 16 + 16;
    let _ = ReadRandom::read(format, &source, &options, &mut |event| {
        let entry = match event {
            Event::Entry(entry) => entry,
            Event::Damage(_) => {
                damage += 1;
                assert!(damage <= 4 * most, "{damage} times damage in {} bytes", bytes.len());
                return Ok(());
            }
            _ => return Ok(()),
        };
        entries += 1;
        assert!(entries <= most, "{entries} entries in {} bytes", bytes.len());
        assert!(!entry.path.is_empty() && entry.path.len() <= options.limits.path);
        assert!(entry.link.len() <= options.limits.path && entry.xattrs.len() <= options.limits.xattrs);
        assert!(entry.header <= bytes.len() as u64);
        let Some(pieces) = &entry.body.pieces else {
            assert!(entry.body.size == 0 || entry.kind != Kind::File, "content that lies nowhere");
            return Ok(());
        };
        let lengths = pieces.iter().map(|piece| piece.hole + piece.length).sum::<u64>();
        assert_eq!(lengths, entry.body.size);
        for piece in pieces {
            assert!(piece.offset.checked_add(piece.stored).is_some_and(|end| end <= bytes.len() as u64));
            assert!(piece.coder.is_some() || piece.stored == piece.length);
        }
        if entries > 100_000 { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    });
    let _ = format.unlisted(&*source, &Cancel::default());
    let _ = format.volumes_by_first().map(|volumes| volumes.volume(&*source));
    entries
}

fn archives() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/archives/rar")
}

/// Where a byte is changed, as a part of all, and what it becomes.
fn changes() -> impl Strategy<Value = Vec<(f64, u8)>> {
    prop::collection::vec((0.0..1.0, any::<u8>()), 0..6)
}

fn changed(seed: &[u8], changes: &[(f64, u8)], left: f64) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for (place, byte) in changes {
        let at = (bytes.len() as f64 * place) as usize;
        bytes[at] = *byte;
    }
    bytes.truncate((bytes.len() as f64 * left).ceil() as usize);
    bytes
}

/// Half of all are whole.
fn left() -> impl Strategy<Value = f64> {
    prop_oneof![Just(1.0), 0.0..1.0]
}

/// A header of RAR 5 with the right checksum.
fn sealed(fields: &[u8]) -> Vec<u8> {
    let header = [&[fields.len() as u8], fields].concat();
    [&crc32fast::hash(&header).to_le_bytes()[..], &header].concat()
}

/// A header of RAR 4 with the right checksum.
fn sealed_4(kind: u8, flags: u16, fields: &[u8]) -> Vec<u8> {
    let length = (fields.len() + 7) as u16;
    let header = [&[kind][..], &flags.to_le_bytes(), &length.to_le_bytes(), fields].concat();
    [&crc32fast::hash(&header).to_le_bytes()[..2], &header].concat()
}

type Block = (u8, u16, Vec<u8>, Vec<u8>);

fn blocks() -> impl Strategy<Value = Vec<Block>> {
    let fields = prop::collection::vec(prop_oneof![0_u8..8, any::<u8>()], 0..90);
    let data = prop::collection::vec(any::<u8>(), 0..40);
    prop::collection::vec((0_u8..8, any::<u16>(), fields, data), 0..12)
}

/// Images that a tool has made, if it is there.
fn image(command: &str) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let make = "mkdir -p t/a/b/c/d/e/f/g/h; seq 200 > t/numbers; ln -s numbers t/link; ln t/numbers t/hard; echo deep > t/a/b/c/d/e/f/g/h/deep";
    has("genisoimage").then(|| {
        sh(folder.path(), &format!("{make}; {command}"));
        fs::read(folder.path().join("i.iso")).unwrap()
    })
}

#[test]
fn images_that_are_cut_at_any_sector_or_changed_end() {
    let images = ["", "-R", "-R -J", "-J", "-iso-level 4", "-R -z", "-udf -R"];
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig { cases: 60, ..ProptestConfig::default() });
    for options in images {
        let Some(image) = image(&format!("genisoimage -quiet -no-pad {options} -o i.iso t 2> log")) else { return };
        assert!(read(&Iso9660, &image) > 4, "{options}");
        assert_eq!(read(&Udf, &image) > 4, options.contains("udf"), "{options}");
        for sectors in 0..image.len() / 2048 {
            read(&Iso9660, &image[..sectors * 2048]);
            read(&Udf, &image[..=sectors * 2048]);
        }
        let run = |(changes, left): (Vec<(f64, u8)>, f64)| {
            let bytes = changed(&image, &changes, left);
            read(&Iso9660, &bytes);
            read(&Udf, &bytes);
            Ok(())
        };
        runner.run(&(changes(), left()), run).unwrap();
    }
}

#[test]
fn archives_of_rar_that_are_cut_anywhere_or_changed_end() {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig { cases: 60, ..ProptestConfig::default() });
    for name in ["multifile.rar", "links_rar701.rar", "owners_rar623.rar", "SOLID.RAR", "with_all_services.rar"] {
        let archive = fs::read(archives().join(name)).unwrap();
        assert!(read(&Rar, &archive) > 0, "{name}");
        for length in 0..archive.len() {
            read(&Rar, &archive[..length]);
        }
        let run = |(changes, left): (Vec<(f64, u8)>, f64)| {
            read(&Rar, &changed(&archive, &changes, left));
            Ok(())
        };
        runner.run(&(changes(), left()), run).unwrap();
    }
}

#[test]
fn a_file_of_rar_without_a_name_is_told() {
    let file = |name: &[u8]| {
        // No data: size, mode, how it is packed, the system, and the name.
        sealed(&[&[2, 0, 0, 0, 0xA4, 3, 0, 1, name.len() as u8], name].concat())
    };
    let archive = [b"Rar!\x1a\x07\x01\0".to_vec(), sealed(&[1, 0, 0]), file(b"a"), file(b""), file(b"b")].concat();
    let source: SharedSource = Arc::new(MemorySource::new(archive, "nameless"));
    let (mut paths, mut damage) = (Vec::new(), Vec::new());
    let mut receive = |event| {
        match event {
            Event::Entry(entry) => paths.push(entry.path),
            Event::Damage(found) => damage.push(found.what),
            _ => {}
        }
        Ok(())
    };
    ReadRandom::read(&Rar, &source, &Options::default(), &mut receive).unwrap();
    assert_eq!(paths, [b"a", b"b"]);
    assert_eq!(damage, ["a file without a name is left out"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_end(mut bytes in prop::collection::vec(any::<u8>(), 0..70_000), kind in 0_u8..4) {
        let put = |bytes: &mut Vec<u8>, at: usize, mark: &[u8]| {
            if let Some(place) = bytes.get_mut(at..at + mark.len()) {
                place.copy_from_slice(mark);
            }
        };
        put(&mut bytes, 0, [&b"Rar!\x1a\x07\x01\0"[..], b"Rar!\x1a\x07\0"][usize::from(kind % 2)]);
        put(&mut bytes, 32_768, [&b"\x01CD001\x01"[..], b"\0BEA01\x01"][usize::from(kind / 2)]);
        put(&mut bytes, 34_816, [&b"\xffCD001\x01"[..], b"\0NSR03\x01"][usize::from(kind / 2)]);
        read(&Rar, &bytes);
        read(&Iso9660, &bytes);
        read(&Udf, &bytes);
    }

    #[test]
    fn any_headers_with_right_checksums_end(blocks in blocks()) {
        let (mut five, mut four) = (b"Rar!\x1a\x07\x01\0".to_vec(), b"Rar!\x1a\x07\0".to_vec());
        for (kind, flags, fields, data) in &blocks {
            // What is read is what follows: the flags say whether there is more of it, and data.
            five.extend(sealed(&[&[*kind, (*flags & 0x1F) as u8], &fields[..]].concat()));
            five.extend(data);
            four.extend(sealed_4(0x72 + kind, *flags, fields));
            four.extend(data);
        }
        read(&Rar, &five);
        read(&Rar, &four);
    }
}
