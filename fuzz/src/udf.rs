//! Images of UDF, whole or not.

use tarnfs_format::udf::Udf;
use tarnfs_format::{Event, Format, Options, Probe, ReadRandom};

/// Entries after which a pass ends: any number of names may lead to one entry.
const MOST: usize = 1 << 16;

/// Blocks of an image that is packed.
const MOST_BLOCKS: usize = 4096;

/// Bytes of a block there, and before it.
const BLOCK: usize = 512;
const NUMBER: usize = 2;

/// Reads `data` as an image: as it is, and with all checksums right. An image that begins with `packed` has only its
/// blocks that are not zeros, each behind its number.
pub fn udf(data: &[u8]) {
    if let Some(packed) = data.strip_prefix(b"packed") {
        let mut image = unpack(packed);
        read(&image);
        seal(&mut image);
        read(&image);
    } else {
        read(data);
    }
}

fn unpack(packed: &[u8]) -> Vec<u8> {
    let mut image = Vec::new();
    for one in packed.chunks_exact(NUMBER + BLOCK) {
        let at = usize::from(u16::from_le_bytes([one[0], one[1]])) % MOST_BLOCKS * BLOCK;
        image.resize(image.len().max(at + BLOCK), 0);
        image[at..at + BLOCK].copy_from_slice(&one[NUMBER..]);
    }
    image
}

/// Makes the checksums of all that may be a descriptor right.
fn seal(image: &mut [u8]) {
    let blocks = (0..image.len().saturating_sub(BLOCK)).step_by(BLOCK).rev();
    // Most of an image is empty.
    let blocks: Vec<_> = blocks.filter(|&at| image[at..at + BLOCK] != [0; BLOCK]).collect();
    for at in blocks.into_iter().flat_map(|at| (at..at + BLOCK).step_by(4).rev()) {
        let kind = u16::from_le_bytes([image[at], image[at + 1]]);
        let is_one = if at.is_multiple_of(BLOCK) { matches!(kind, 1..=9 | 256..=266) } else { kind == 257 };
        if !is_one {
            continue;
        }
        let length = usize::from(u16::from_le_bytes([image[at + 10], image[at + 11]]));
        let Some(content) = image.get(at + 16..at + 16 + length) else { continue };
        let sum = content.iter().fold(0_u16, |sum, byte| {
            (0..8).fold(sum ^ u16::from(*byte) << 8, |sum, _| if sum >> 15 == 0 { sum << 1 } else { sum << 1 ^ 0x1021 })
        });
        image[at + 8..at + 10].copy_from_slice(&sum.to_le_bytes());
        image[at + 4] = 0;
        image[at + 4] = image[at..at + 16].iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
    }
}

fn read(data: &[u8]) {
    let source = super::source(data);
    Udf.bid(&Probe::of_head(&data[..data.len().min(64 << 10)]));
    Udf.bid(&Probe::new(&data[..data.len().min(4 << 10)], &*source));
    let options = Options::default();
    let length = data.len() as u64;
    let mut count = 0;
    // Whether it is read to its end is the image's matter.
    let _ = Udf.read(&source, &options, &mut |event| {
        let Event::Entry(entry) = event else { return Ok(()) };
        count += 1;
        if count > MOST {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        super::check_entry(&entry, &options.limits);
        super::check_pieces(&entry, length);
        Ok(())
    });
    let _ = Udf.unlisted(&*source, &tarnfs_source::Cancel::default());
}
