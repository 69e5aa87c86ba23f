//! Images of UDF, whole or not.

use tarnfs_format::udf::Udf;

use super::images::{read, unpack};

/// Bytes of a block.
const BLOCK: usize = 512;

/// Reads `data` as an image: as it is, and with all checksums right. An image that begins with `packed` has only its
/// blocks that are not zeros, each behind its number.
pub fn udf(data: &[u8]) {
    if let Some(packed) = data.strip_prefix(b"packed") {
        let mut image = unpack(packed);
        read(&Udf, &image);
        seal(&mut image);
        read(&Udf, &image);
    } else {
        read(&Udf, data);
    }
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
