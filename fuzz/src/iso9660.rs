//! Images of ISO 9660, whole or not.

use tarnfs_format::iso9660::Iso9660;
use tarnfs_format::{Event, Format, Kind, Options, Probe, ReadRandom};

/// Entries after which a pass ends: further extents of a file are cheap, and so are names of one.
const MOST: usize = 1 << 16;

/// Reads `data` as an image.
pub fn iso9660(data: &[u8]) {
    let source = super::source(data);
    Iso9660.bid(&Probe::new(&data[..data.len().min(64 << 10)], &*source));
    let options = Options::default();
    let length = data.len() as u64;
    let mut count = 0;
    // Whether it is read to its end is the image's matter.
    let _ = Iso9660.read(&source, &options, &mut |event| {
        let Event::Entry(entry) = event else { return Ok(()) };
        count += 1;
        if count > MOST {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        assert!(entry.header <= length || entry.kind == Kind::HardLink, "a record is in the image");
        super::check_entry(&entry, &options.limits);
        let mut end = 0_u64;
        for piece in entry.body.pieces.iter().flatten() {
            assert!(piece.offset + piece.stored <= length || piece.coder.is_some(), "a piece is in the image");
            assert!(piece.length > 0 && piece.skip + piece.length <= piece.decoded, "a piece is in its block");
            assert!(piece.coder.is_some() || (piece.stored, piece.skip) == (piece.length, 0));
            end = end.checked_add(piece.hole + piece.length).expect("a piece ends");
        }
        assert!(end <= entry.body.size, "pieces end in the file");
        Ok(())
    });
}
