//! Archives and headers of 7z whose checksums are right, whatever else is wrong with them.

use std::io;

use tarnfs_format::Options;
use tarnfs_format::sevenzip::{Found, SevenZip};
use tarnfs_source::{SharedSource, Source};

/// Bytes of the start: signature, version, checksum, and where the header is.
const START: usize = 32;

/// Reads `data` as an archive, as it is and with its checksums set right, and as a header.
pub fn sevenzip(data: &[u8]) {
    read(data);
    read(&repaired(data));
    let mut wrapped = vec![0; START];
    wrapped[..6].copy_from_slice(b"7z\xbc\xaf\x27\x1c");
    wrapped[20..28].copy_from_slice(&(data.len() as u64).to_le_bytes());
    wrapped.extend_from_slice(data);
    read(&repaired(&wrapped));
}

fn repaired(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    let Some(start) = bytes.first_chunk::<START>() else { return bytes };
    let number = |at: usize| u64::from_le_bytes(start[at..at + 8].try_into().unwrap());
    let from = usize::try_from(number(12)).ok().and_then(|offset| offset.checked_add(START));
    let header = from.and_then(|from| bytes.get(from..from.checked_add(usize::try_from(number(20)).ok()?)?));
    if let Some(crc) = header.map(crc32fast::hash) {
        bytes[28..START].copy_from_slice(&crc.to_le_bytes());
    }
    let crc = crc32fast::hash(&bytes[12..START]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn read(data: &[u8]) {
    let options = Options::default();
    let source = super::source(data);
    let mut entries = 0_usize;
    // Compressed headers are taken as if they were only stored.
    let mut decode = |_: &_, stored: SharedSource, length: u64| {
        let mut bytes = vec![0; length.min(stored.len()) as usize];
        stored.read_exact_at(&mut bytes, 0).map(|()| bytes)
    };
    // Whether it is read to its end is the archive's matter.
    let _ = SevenZip.read(&source, &options, &mut decode, &mut |found| {
        let Found::Entry(entry, piece) = found else { return io::Result::Ok(()) };
        entries += 1;
        super::check_entry(&entry, &options.limits);
        if let Some(piece) = piece {
            assert!(piece.offset + piece.stored <= data.len() as u64, "a piece is in the archive");
            assert!(piece.skip + piece.length <= piece.decoded, "a piece is in what its coder gives");
            assert!(piece.coder.is_some() || (piece.stored, piece.skip) == (piece.length, 0));
        }
        Ok(())
    });
    assert!(entries <= data.len(), "an entry takes a byte");
}
