//! Images of squashfs, whole or not, and their blocks.

use tarnfs_codec::{BLOCK_CODERS, block_coder_by_name};
use tarnfs_format::squashfs::Squashfs;
use tarnfs_format::{Coder, Decode, Event, Kind, Options, ReadRandom};

/// Entries after which a pass ends: an image may be a bomb.
const MOST: usize = 1 << 16;

/// Reads `data` as an image, and as a block of each compression.
pub fn squashfs(data: &[u8]) {
    let block = |coder: &Coder, stored: &[u8], decoded: &mut [u8]| {
        let coder = block_coder_by_name(&coder.steps[0].codec).expect("a reader names coders that there are");
        coder.decode(stored, decoded)
    };
    let decode = Decode::default().with_blocks(block);
    let options = Options { decode, ..Options::default() };
    let length = data.len() as u64;
    let mut count = 0;
    // Whether it is read to its end is the image's matter.
    let _ = Squashfs.read(&super::source(data), &options, &mut |event| {
        let Event::Entry(entry) = event else { return Ok(()) };
        count += 1;
        if count > MOST {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        assert!(entry.header <= length || entry.kind == Kind::HardLink, "a header is in the image");
        super::check_entry(&entry, &options.limits);
        let mut end = 0_u64;
        for piece in entry.body.pieces.iter().flatten() {
            assert!(piece.offset + piece.stored <= length, "a piece is in the image");
            assert!(piece.length > 0 && piece.skip + piece.length <= piece.decoded, "a piece is in its block");
            assert!(piece.coder.is_some() || (piece.stored, piece.skip) == (piece.length, 0));
            end = end.checked_add(piece.hole + piece.length).expect("a piece ends");
        }
        assert!(end <= entry.body.size, "pieces end in the file");
        Ok(())
    });
    let mut decoded = vec![0; 64 << 10];
    for coder in BLOCK_CODERS {
        if let Ok(length) = coder.decode(data, &mut decoded) {
            assert!(length <= decoded.len());
        }
    }
}
