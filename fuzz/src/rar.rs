//! Archives of RAR whose headers have the right checksums, whatever else is wrong with them, and packed data.

use tarnfs_codec::{CoderContext, coder_by_name};
use tarnfs_format::rar::Rar;
use tarnfs_format::{Decode, Event, Format, Options, Probe, ReadRandom};

use super::{check_entry, limits, source};

/// Bytes of data that are decoded at most.
const MOST: u64 = 4 << 20;

/// Reads `data` as an archive, as it is and with its checksums set right, and what is said of it as a volume.
pub fn rar(data: &[u8]) {
    read(data);
    read(&repaired(data));
}

/// Headers follow each other: each gets the checksum that it should have.
fn repaired(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    let (is_five, mut at) = match data {
        [b'R', b'a', b'r', b'!', 0x1A, 7, 1, 0, ..] => (true, 8),
        [b'R', b'a', b'r', b'!', 0x1A, 7, 0, ..] => (false, 7),
        _ => return bytes,
    };
    let number = |bytes: &[u8], at: &mut usize| {
        let mut number = 0_u64;
        for shift in (0..63).step_by(7) {
            let byte = *bytes.get(*at)?;
            *at += 1;
            number |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        usize::try_from(number).ok()
    };
    while let Some(next) = (|| {
        if is_five {
            let mut from = at + 4;
            let length = number(&bytes, &mut from)?;
            let end = from.checked_add(length)?;
            let crc = crc32fast::hash(bytes.get(at + 4..end)?);
            bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
            let (_kind, flags) = (number(&bytes, &mut from)?, number(&bytes, &mut from)?);
            let _extra = if flags & 1 != 0 { number(&bytes, &mut from)? } else { 0 };
            let data = if flags & 2 != 0 { number(&bytes, &mut from)? } else { 0 };
            end.checked_add(data)
        } else {
            let head: [u8; 11] = bytes.get(at..at + 11)?.try_into().ok()?;
            let end = at + usize::from(u16::from_le_bytes([head[5], head[6]]));
            let crc = crc32fast::hash(bytes.get(at + 2..end)?);
            bytes[at..at + 2].copy_from_slice(&crc.to_le_bytes()[..2]);
            let has_data = matches!(head[2], 0x74 | 0x7A) || head[4] & 0x80 != 0;
            let data = if has_data { u32::from_le_bytes([head[7], head[8], head[9], head[10]]) } else { 0 };
            end.checked_add(data as usize)
        }
    })() {
        if next <= at {
            break;
        }
        at = next;
    }
    bytes
}

fn read(data: &[u8]) {
    // Encrypted headers are taken as if they were only stored.
    let decode = Decode::new(|_, stored, length, _| {
        let mut bytes = vec![0; length.min(stored.len().saturating_sub(16)) as usize];
        stored.read_exact_at(&mut bytes, 16).map(|()| bytes)
    });
    let options = Options { decode, ..Options::default() };
    let length = data.len() as u64;
    let source = source(data);
    Rar.bid(&Probe::new(&data[..data.len().min(4096)], &*source));
    let (mut last, mut entries) = (0, 0_usize);
    // Whether it is read to its end is the archive's matter.
    let _ = Rar.read(&source, &options, &mut |event| {
        let Event::Entry(entry) = event else { return Ok(()) };
        assert!(entry.header >= last && entry.header <= length, "headers go forward");
        (last, entries) = (entry.header, entries + 1);
        check_entry(&entry, &options.limits);
        for piece in entry.body.pieces.iter().flatten() {
            assert!(piece.offset + piece.stored <= length, "a piece is in the archive");
            assert!(piece.skip + piece.length <= piece.decoded, "a piece is in what its coder gives");
            assert!(piece.coder.is_some() || (piece.stored, piece.skip) == (piece.length, 0));
        }
        Ok(())
    });
    assert!(entries <= data.len() / 7 + 1, "an entry takes a header");
    let _ = Rar.volumes_by_first().map(|volumes| volumes.volume(&*source));
    let _ = Rar.unlisted(&*source, &tarnfs_source::Cancel::default());
}

/// Decodes what is packed in an archive whose headers have the right checksums: its first file, or all as a solid run.
/// The same comes of them each time.
pub fn rar_decoder(data: &[u8]) {
    let archive = repaired(data);
    let version = if archive.starts_with(b"Rar!\x1a\x07\x01") { 5 } else { 4 };
    for run in [0, 1] {
        let once = decoded(&archive, run, version);
        assert!(once.len() as u64 <= MOST, "more than there can be");
        assert!(once == decoded(&archive, run, version), "other bytes");
    }
}

fn decoded(archive: &[u8], run: u8, version: u8) -> Vec<u8> {
    let properties = [run, version].as_slice().into();
    let coder = CoderContext { properties, decoded_length: Some(MOST), ..CoderContext::default() };
    let options = tarnfs_codec::Options { limits: limits(), coder, ..tarnfs_codec::Options::default() };
    let codec = coder_by_name("rar").expect("it is in the table");
    let Ok(mut pass) = codec.first_pass(source(archive), &options) else { return Vec::new() };
    let (mut all, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    while let Ok(read @ 1..) = pass.read(&mut buffer) {
        all.extend_from_slice(&buffer[..read]);
        assert!(pass.memory() <= 64 << 20, "{} bytes of memory", pass.memory());
    }
    all
}
