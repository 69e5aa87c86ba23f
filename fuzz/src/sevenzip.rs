//! Archives and headers of 7z whose checksums are right, whatever else is wrong with them.

use tarnfs_format::sevenzip::SevenZip;
use tarnfs_format::{Decode, Event, Options, ReadRandom};

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
    // Compressed headers are taken as if they were only stored.
    let decode = Decode::new(|_, stored, length, _| {
        let mut bytes = vec![0; length.min(stored.len()) as usize];
        stored.read_exact_at(&mut bytes, 0).map(|()| bytes)
    });
    let options = Options { decode, ..Options::default() };
    let length = data.len() as u64;
    let mut last = 0;
    // Whether it is read to its end is the archive's matter.
    let _ = SevenZip.read(&super::source(data), &options, &mut |event| {
        let Event::Entry(entry) = event else { return Ok(()) };
        assert!(entry.header >= last && entry.header <= length, "headers go forward");
        last = entry.header;
        super::check_entry(&entry, &options.limits);
        for piece in entry.body.pieces.iter().flatten() {
            assert!(piece.offset + piece.stored <= length, "a piece is in the archive");
            assert!(piece.skip + piece.length <= piece.decoded, "a piece is in what its coder gives");
            assert!(piece.coder.is_some() || (piece.stored, piece.skip) == (piece.length, 0));
        }
        Ok(())
    });
}
