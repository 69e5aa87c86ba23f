//! LZNT1 ([MS-XCA], section 2.5): what NTFS compresses files with, a compression unit at a time.

use std::io;

use super::block::{BlockCoder, damaged};
use crate::Pace;

/// Bytes that come of a chunk.
const CHUNK: usize = 4096;

/// The lowest bits of the header of a chunk: its bytes, less 3; and whether it is compressed.
const LENGTH: u16 = 0x0fff;
const IS_COMPRESSED: u16 = 0x8000;

const CUT: &str = "its LZNT1 data are cut";
const TOO_LONG: &str = "a chunk of its LZNT1 data is longer than it may be";

/// A compression unit. What it does not fill is zeros, and so is the rest of a chunk of which fewer bytes come.
#[derive(Debug)]
pub(super) struct Lznt1Block;

impl BlockCoder for Lznt1Block {
    fn name(&self) -> &'static str {
        "lznt1-block"
    }

    fn decode(&self, stored: &[u8], decoded: &mut [u8]) -> io::Result<usize> {
        decode(stored, decoded).map_err(damaged)?;
        Ok(decoded.len())
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 500_000, in_whole_chunks: true }
    }

    fn memory(&self, _: usize) -> usize {
        0
    }
}

fn decode(stored: &[u8], decoded: &mut [u8]) -> Result<(), &'static str> {
    let mut rest = stored;
    let mut chunks = decoded.chunks_mut(CHUNK);
    loop {
        let header =
            rest.split_first_chunk().map_or((0, &[][..]), |(header, rest)| (u16::from_le_bytes(*header), rest));
        let (header @ 1.., behind) = header else { break };
        let Some(chunk) = chunks.next() else { break };
        let (packed, behind) = behind.split_at_checked(usize::from(header & LENGTH) + 1).ok_or(CUT)?;
        let length = if header & IS_COMPRESSED == 0 {
            let room = chunk.get_mut(..packed.len()).ok_or(TOO_LONG)?;
            room.copy_from_slice(packed);
            packed.len()
        } else {
            decode_chunk(packed, chunk)?
        };
        chunk[length..].fill(0);
        rest = behind;
    }
    chunks.for_each(|chunk| chunk.fill(0));
    Ok(())
}

/// Decodes a chunk, and says how many bytes came of it.
fn decode_chunk(packed: &[u8], chunk: &mut [u8]) -> Result<usize, &'static str> {
    let (mut at, mut filled) = (0, 0);
    while let Some(&flags) = packed.get(at) {
        at += 1;
        for bit in 0..8 {
            let Some(&byte) = packed.get(at) else { break };
            if flags >> bit & 1 == 0 {
                *chunk.get_mut(filled).ok_or(TOO_LONG)? = byte;
                (at, filled) = (at + 1, filled + 1);
                continue;
            }
            let high = *packed.get(at + 1).ok_or(CUT)?;
            at += 2;
            let token = usize::from(u16::from_le_bytes([byte, high]));
            // The further into the chunk, the more bits the distance has, and the fewer the length.
            let of_length = 12 - filled.saturating_sub(1).checked_ilog2().unwrap_or(0).saturating_sub(3);
            let distance = (token >> of_length) + 1;
            let length = (token & ((1 << of_length) - 1)) + 3;
            let from = filled.checked_sub(distance).ok_or("a match of its LZNT1 data begins before its chunk")?;
            let end = filled + length;
            if end > chunk.len() {
                return Err(TOO_LONG);
            }
            if distance >= length {
                chunk.copy_within(from..from + length, filled);
            } else {
                for to in filled..end {
                    chunk[to] = chunk[to - distance];
                }
            }
            filled = end;
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(stored: &[u8], room: usize) -> Result<Vec<u8>, &'static str> {
        let mut decoded = vec![0xee; room];
        decode(stored, &mut decoded).map(|()| decoded)
    }

    /// The example of [MS-XCA], section 3.2.
    #[test]
    fn the_example_of_its_description() {
        let stored = [
            0x38, 0xb0, 0x88, 0x46, 0x23, 0x20, 0x00, 0x20, 0x47, 0x20, 0x41, 0x00, 0x10, 0xa2, 0x47, 0x01, 0xa0, 0x45,
            0x20, 0x44, 0x00, 0x08, 0x45, 0x01, 0x50, 0x79, 0x00, 0xc0, 0x45, 0x20, 0x05, 0x24, 0x13, 0x88, 0x05, 0xb4,
            0x02, 0x4a, 0x44, 0xef, 0x03, 0x58, 0x02, 0x8c, 0x09, 0x16, 0x01, 0x48, 0x45, 0x00, 0xbe, 0x00, 0x9e, 0x00,
            0x04, 0x01, 0x18, 0x90, 0x00,
        ];
        let text = b"F# F# G A A G F# E D D E F# F# E E F# F# G A A G F# E D D E F# E D D E E F# D E F# G F# D E F# \
            G F# E D E A F# F# G A A G F# E D D E F# E D D\0";
        let decoded = decoded(&stored, 200).unwrap();
        assert_eq!(String::from_utf8_lossy(&decoded[..text.len()]), String::from_utf8_lossy(text));
        assert!(decoded[text.len()..].iter().all(|byte| *byte == 0));
    }

    /// Each chunk begins 4096 bytes behind the last one, however many bytes come of that.
    #[test]
    fn what_is_not_filled_is_zeros() {
        // One byte as it is, three bytes of literals, and the end.
        let stored = [&[0x00, 0x30, b'x'][..], &[0x03, 0xb0, 0, b'a', b'b', b'c'], &[0, 0, 9, 9]].concat();
        let decoded = decoded(&stored, 3 * CHUNK).unwrap();
        let mut expected = vec![0; 3 * CHUNK];
        expected[0] = b'x';
        expected[CHUNK..CHUNK + 3].copy_from_slice(b"abc");
        assert!(decoded == expected);
        assert_eq!(super::Lznt1Block.decode(&[], &mut [7; 10]).unwrap(), 10);
    }

    /// A match may reach into what it makes itself, and a distance of any length that there is fits.
    #[test]
    fn distances_grow_with_the_chunk() {
        let mut stored = vec![0, 0, 0b10, b'a'];
        // Before the seventeenth byte four bits are the distance.
        stored.extend(((4095_u16 - 3 - 1) & 0x0fff).to_le_bytes());
        let header = 0xb000 | (stored.len() as u16 - 3);
        stored[..2].copy_from_slice(&header.to_le_bytes());
        let all = decoded(&stored, CHUNK).unwrap();
        assert!(all == [&[b'a'; 1 + 4094][..], &[0]].concat());
        // The first bytes of the chunk again, behind 3000 others: twelve bits are the distance.
        let bytes: Vec<u8> = (0..3000_u32).map(|at| (at * 7 % 251) as u8).collect();
        let mut packed: Vec<u8> = bytes.chunks(8).flat_map(|eight| [&[0][..], eight].concat()).collect();
        packed.push(1);
        packed.extend(((3000_u16 - 1) << 4).to_le_bytes());
        let header = 0xb000 | (packed.len() as u16 - 1);
        let all = decoded(&[&header.to_le_bytes()[..], &packed].concat(), CHUNK).unwrap();
        assert!(all[..3000] == bytes && all[3000..3003] == bytes[..3] && all[3003..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn what_cannot_be_is_an_error() {
        for stored in [
            // A match without anything before it; half a match; more than a chunk has; a chunk that is cut.
            &[0x02, 0xb0, 1, 0, 0][..],
            &[0x02, 0xb0, 2, b'a', 0],
            &[0x03, 0xb0, 2, b'a', 0xff, 0x0f],
            &[0x09, 0xb0, 0, b'a'],
        ] {
            assert!(decoded(stored, 16).is_err(), "{stored:?}");
        }
        // No bytes may hang it, or make it panic.
        let mut state = 1_u32;
        for _ in 0..2000 {
            let bytes: Vec<u8> = std::iter::repeat_with(|| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .take(300)
            .collect();
            let _ = decoded(&bytes, 2 * CHUNK);
            let _ = decoded(&[&[0x27, 0xb1][..], &bytes[..296]].concat(), 100);
        }
    }
}
