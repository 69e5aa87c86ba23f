//! Is this compressed with deflate? A gzip member says so; for the others their first bytes are decoded on trial.

use super::inflate::{Inflate, InflateState, Stop};
use super::member::{self, Checksum, DEFLATE, MAGIC, RESERVED_FLAGS};

/// Bytes of a head that are decoded: a dynamic block header is shorter than 400.
const LOOKED_AT: usize = 4 << 10;

/// Bytes that the first ones of a member are decoded to at most: 4 KiB may become 4 MiB, and who looks for a member
/// looks at very many heads.
const MOST: usize = 64 << 10;

/// Bytes of a member that are looked at: its header may have a name.
pub(super) const MEMBER: usize = 8 << 10;

/// Below this a head says too little: a few letters are valid deflate data often.
const SHORTEST: usize = 64;

/// The magic, the method and the three reserved flags.
const GZIP_BID: u32 = 8 * 3 + 3;
/// FCHECK, the method, and one bit each of the window's size and the flag of a dictionary.
const ZLIB_BID: u32 = 5 + 4 + 1 + 1;
/// Less than anything with a magic: the code lengths of one dynamic block happen to be complete codes, or a length
/// stands before its complement.
pub(crate) const DEFLATE_BID: u32 = 4;

/// The bid of gzip.
pub(super) fn gzip(head: &[u8]) -> u32 {
    match head {
        [first, second, DEFLATE, flags, ..] if [*first, *second] == MAGIC && flags & RESERVED_FLAGS == 0 => GZIP_BID,
        _ => 0,
    }
}

/// The bid of zlib.
pub(super) fn zlib(head: &[u8]) -> u32 {
    let is_one = has_zlib_header(head) && is_checked(&head[2..], Checksum::adler32(), usize::MAX);
    if is_one { ZLIB_BID } else { 0 }
}

pub(super) fn has_zlib_header(head: &[u8]) -> bool {
    head.first_chunk().is_some_and(|header| member::is_zlib_header(*header))
}

/// True if a gzip member begins with `head`: of some kilobytes, as four bytes alone are found in any large file.
/// [`MEMBER`] of them are looked at, at most.
pub(super) fn is_gzip_member(head: &[u8]) -> bool {
    let head = &head[..head.len().min(MEMBER)];
    gzip(head) > 0 && member::behind_header(head).is_some_and(|data| is_checked(data, Checksum::crc32(), MOST))
}

/// True if deflate data begin with `data` and something in them is checked: a whole stream has its checksum behind it,
/// a stored block its length. Of a block with fixed codes nothing is checked but its distances. About `most` bytes are
/// decoded.
fn is_checked(data: &[u8], checksum: Checksum, most: usize) -> bool {
    match try_out(data, checksum, most) {
        Some(Trial { end: Some(rest), checksum: Checksum::Adler32(sum), .. }) => rest.starts_with(&sum.to_be_bytes()),
        Some(Trial { end: Some(rest), checksum: Checksum::Crc32(sum), .. }) => {
            rest.starts_with(&sum.finalize().to_le_bytes())
        }
        Some(Trial { end: None, dynamic_blocks, stored_blocks, .. }) => dynamic_blocks + stored_blocks > 0,
        _ => false,
    }
}

/// The bid of raw deflate. A stored block alone, of which nobody has seen the end, tells too little: one in seven files
/// that quick compressors for brotli write begins like it.
pub(super) fn deflate(head: &[u8]) -> u32 {
    let plausible = head.len() >= SHORTEST
        && try_out(head, Checksum::None, usize::MAX).is_some_and(|trial| match trial.end {
            None => trial.dynamic_blocks > 0 || trial.stored_blocks > 1,
            Some(behind) => trial.dynamic_blocks + trial.stored_blocks > 0 && behind.is_empty(),
        });
    if plausible { DEFLATE_BID } else { 0 }
}

/// What came of decoding a head.
struct Trial<'a> {
    /// Blocks with their own codes whose headers are wholly in the head.
    dynamic_blocks: u32,
    /// Stored blocks likewise.
    stored_blocks: u32,
    /// What is behind the final block, if that is in the head.
    end: Option<&'a [u8]>,
    /// Decoded bytes, and the checksum over them.
    decoded: usize,
    checksum: Checksum,
}

/// Decodes the first [`LOOKED_AT`] bytes of `head`, to about `most`; `None` if they are not deflate data.
fn try_out(head: &[u8], checksum: Checksum, most: usize) -> Option<Trial<'_>> {
    let mut inflate = Inflate::new();
    let looked_at = &head[..head.len().min(LOOKED_AT)];
    let mut trial = Trial { dynamic_blocks: 0, stored_blocks: 0, end: None, decoded: 0, checksum };
    let mut output = [0; 4 << 10];
    let mut next = 0;
    let mut block_type = block_type_at(looked_at, 0);
    loop {
        let step = inflate.step(&looked_at[next..], [&mut output], 0, Stop::AtBlock);
        next += step.read;
        trial.decoded += step.written;
        trial.checksum.update(&output[..step.written]);
        let block_ended = matches!(step.place, InflateState::Boundary { .. } | InflateState::End);
        if step.written > 0 || block_ended {
            match block_type.take() {
                Some(STORED) => trial.stored_blocks += 1,
                Some(DYNAMIC) => trial.dynamic_blocks += 1,
                _ => {}
            }
        }
        match step.place {
            InflateState::Invalid(_) => return None,
            InflateState::End => {
                trial.end = Some(&head[next..]);
                return Some(trial);
            }
            InflateState::Boundary { spare_bits } if step.read > 0 && trial.decoded < most => {
                block_type = block_type_at(looked_at, next * 8 - usize::from(spare_bits));
            }
            _ if step.read + step.written == 0 || trial.decoded >= most => return Some(trial),
            _ => {}
        }
    }
}

/// BTYPE (RFC 1951 §3.2.3).
const STORED: u8 = 0b00;
const DYNAMIC: u8 = 0b10;

/// BTYPE of the block that begins at `bit`.
fn block_type_at(bytes: &[u8], bit: usize) -> Option<u8> {
    let byte_of = |bit: usize| bytes.get(bit / 8).map(|byte| byte >> (bit % 8) & 1);
    Some(byte_of(bit + 1)? | byte_of(bit + 2)? << 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gzip::tests::{filter, text};

    #[test]
    fn a_member_is_told_by_few_of_its_bytes() {
        let header = [0x1f, 0x8b, DEFLATE, 0, 0, 0, 0, 0, 0, 3];
        for data in [vec![0; 8 << 20], text(200_000), b"short".to_vec()] {
            let member = filter("gzip", &["-nc"], &data).unwrap();
            assert!(is_gzip_member(&member), "{} bytes", data.len());
            let trial = try_out(&member[header.len()..], Checksum::None, MOST).unwrap();
            assert!(trial.decoded < 2 * MOST, "{}", trial.decoded);
        }
        // Symbols in the fixed codes, 258 bytes each, without an end: nothing in them is checked.
        let bits =
            [vec![1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0].repeat(2000)].concat();
        let bytes: Vec<u8> =
            bits.chunks(8).map(|bits| bits.iter().rev().fold(0, |byte, bit| byte << 1 | bit)).collect();
        let trial = try_out(&bytes, Checksum::None, usize::MAX).unwrap();
        assert!(trial.decoded > 500_000, "{}", trial.decoded);
        assert!(try_out(&bytes, Checksum::None, MOST).unwrap().decoded < 2 * MOST);
        assert!(!is_gzip_member(&[&header[..], &bytes].concat()));
        // A name that has no end in the bytes that are looked at.
        let member = filter("gzip", &["-nc"], b"named").unwrap();
        let named =
            |length| [&[0x1f, 0x8b, DEFLATE, 8][..], &member[4..10], &vec![b'a'; length], &[0], &member[10..]].concat();
        assert!(is_gzip_member(&named(4000)));
        assert!(!is_gzip_member(&named(MEMBER)));
    }
}
