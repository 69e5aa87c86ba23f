//! Headers of frames and blocks (RFC 8878 §3.1), which tell where a frame ends without decoding it.

use crate::starts;

/// First four bytes of a frame, little-endian (RFC 8878 §3.1.1).
pub(super) const MAGIC: u32 = 0xFD2F_B528;
/// The lowest four bits of a skippable frame's magic are free (RFC 8878 §3.1.2).
const SKIPPABLE_MAGIC: u32 = 0x184D_2A50;
/// No block holds more, whatever the window (RFC 8878 §3.1.1.2.4).
pub(super) const LARGEST_BLOCK: u64 = 128 << 10;
/// Bytes of the longest frame header, with its magic.
pub(super) const LONGEST_HEADER: usize = 18;
/// Bytes of a block's header.
pub(super) const BLOCK_HEADER: usize = 3;

/// Bytes of the XXH64 behind a frame's last block.
pub(super) const CHECKSUM: usize = 4;

/// What the first bytes of a frame say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    /// Bytes of the header, with the magic.
    pub(super) length: usize,
    /// Bytes of history that decoding needs.
    pub(super) window: u64,
    /// Decoded bytes of the frame, where it says so.
    pub(super) content: Option<u64>,
    /// The dictionary that it was made with; 0 for none.
    pub(super) dictionary: u32,
    /// An XXH64 follows the last block.
    pub(super) checksum: bool,
}

/// What may stand where a frame begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// A frame of compressed data.
    Frame(FrameHeader),
    /// A frame to be skipped, of this length with its header.
    Skippable(u64),
    /// One of the two, but the bytes end within its header.
    Cut,
    /// A frame whose reserved bit is set.
    Reserved,
    /// Neither.
    Other,
}

impl Start {
    /// The frame whose magic is `head` but for one byte that is damaged.
    pub(super) fn of_damaged_magic(head: &[u8]) -> Option<FrameHeader> {
        match starts::mended(head, &MAGIC.to_le_bytes()).map(|mended| Self::parse(&mended)) {
            Some(Self::Frame(header)) => Some(header),
            _ => None,
        }
    }

    /// Reads the start of a frame.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let Some((magic, rest)) = bytes.split_first_chunk::<4>() else {
            let could_be = |magic: u32, mask_first: u8| {
                let magic = magic.to_le_bytes();
                bytes.iter().zip(magic).enumerate().all(|(at, (byte, wanted))| {
                    let mask = if at == 0 { mask_first } else { 0xFF };
                    byte & mask == wanted & mask
                })
            };
            return if could_be(MAGIC, 0xFF) || could_be(SKIPPABLE_MAGIC, 0xF0) { Self::Cut } else { Self::Other };
        };
        match u32::from_le_bytes(*magic) {
            MAGIC => Self::frame(rest),
            magic if magic & !0xF == SKIPPABLE_MAGIC => match rest.first_chunk::<4>() {
                Some(size) => Self::Skippable(u64::from(u32::from_le_bytes(*size)) + 8),
                None => Self::Cut,
            },
            _ => Self::Other,
        }
    }

    fn frame(rest: &[u8]) -> Self {
        let Some(&descriptor) = rest.first() else { return Self::Cut };
        if descriptor & 0x08 != 0 {
            return Self::Reserved;
        }
        let single_segment = descriptor & 0x20 != 0;
        let window_size = usize::from(!single_segment);
        let dictionary_size = [0, 1, 2, 4][usize::from(descriptor & 3)];
        let content_size = match descriptor >> 6 {
            0 => usize::from(single_segment),
            code => 1 << code,
        };
        let length = 1 + window_size + dictionary_size + content_size;
        let Some(fields) = rest.get(1..length) else { return Self::Cut };
        let (window, fields) = fields.split_at(window_size);
        let (dictionary, content) = fields.split_at(dictionary_size);
        let content = (content_size > 0).then(|| {
            // RFC 8878 §3.1.1.1.4: the two-byte form starts at 256, which one byte cannot say.
            little_endian(content) + if content_size == 2 { 256 } else { 0 }
        });
        let window = match window.first() {
            Some(&byte) => {
                let base = 1u64 << (10 + (byte >> 3));
                base + base / 8 * u64::from(byte & 7)
            }
            None => content.unwrap_or(0),
        };
        Self::Frame(FrameHeader {
            length: 4 + length,
            window,
            content,
            dictionary: little_endian(dictionary) as u32,
            checksum: descriptor & 0x04 != 0,
        })
    }
}

impl FrameHeader {
    /// Decoded bytes of a block at most.
    pub(super) fn largest_block(&self) -> u64 {
        self.window.min(LARGEST_BLOCK)
    }
}

/// What stands behind a frame whose content has this XXH64: its lower half.
pub(super) fn checksum(hash: u64) -> [u8; CHECKSUM] {
    (hash as u32).to_le_bytes()
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// What a block's header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockHeader {
    /// The frame ends with it.
    pub(super) last: bool,
    /// What its content is.
    pub(super) kind: BlockKind,
    /// Bytes of its content in the stream.
    pub(super) length: usize,
}

/// How a block's content is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockKind {
    /// As it is.
    Raw,
    /// As one byte that is there `count` times.
    Repeated {
        /// Times.
        count: usize,
    },
    /// As literals and sequences.
    Compressed,
}

impl BlockHeader {
    /// The block that begins where `bytes` do, if all of it is there and nothing is wrong with its header.
    pub(super) fn next<'a>(bytes: &'a [u8], frame: &FrameHeader) -> Option<(Self, &'a [u8])> {
        let (header, rest) = bytes.split_first_chunk()?;
        let header = Self::parse(*header, frame).ok()?;
        Some((header, rest.get(..header.length)?))
    }

    /// Reads a block's header; what is wrong with it where no block of `frame` can have it.
    pub(super) fn parse(bytes: [u8; BLOCK_HEADER], frame: &FrameHeader) -> Result<Self, String> {
        let [low, middle, high] = bytes;
        let header = u32::from_le_bytes([low, middle, high, 0]);
        let size = header >> 3;
        if u64::from(size) > frame.largest_block() {
            return Err(format!("a block says {size} bytes, {} is the most here", frame.largest_block()));
        }
        let (kind, length) = match header >> 1 & 3 {
            0 => (BlockKind::Raw, size as usize),
            1 => (BlockKind::Repeated { count: size as usize }, 1),
            2 => (BlockKind::Compressed, size as usize),
            _ => return Err("a block is of the reserved type 3".into()),
        };
        Ok(Self { last: header & 1 != 0, kind, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_every_shape() {
        let parse = |rest: &[u8]| Start::parse(&[&MAGIC.to_le_bytes(), rest].concat());
        let header = |length, window, content, dictionary, checksum| {
            Start::Frame(FrameHeader { length, window, content, dictionary, checksum })
        };
        assert_eq!(parse(&[0x00, 0x58, 9]), header(6, 2 << 20, None, 0, false));
        assert_eq!(parse(&[0x24, 7]), header(6, 7, Some(7), 0, true));
        assert_eq!(parse(&[0x60, 1, 2]), header(7, 256 + 0x201, Some(256 + 0x201), 0, false));
        assert_eq!(
            parse(&[0x83, 0x01, 1, 0, 0, 2, 1, 2, 3, 4]),
            header(14, 1152, Some(0x0403_0201), 0x0200_0001, false)
        );
        assert_eq!(parse(&[0xE0, 1, 2, 3, 4, 5, 6, 7, 0x88]), {
            header(13, 0x8807_0605_0403_0201, Some(0x8807_0605_0403_0201), 0, false)
        });
        assert_eq!(parse(&[0x00, 0xFF]), header(6, (1 << 41) / 8 * 15, None, 0, false));
        assert_eq!(parse(&[0x08, 0xFF]), Start::Reserved);
        assert_eq!(parse(&[0xE0, 1, 2, 3]), Start::Cut);
        assert_eq!(parse(&[]), Start::Cut);
        assert_eq!(Start::parse(b"\x5F\x2A\x4D\x18\xFF\xFF\xFF\xFF"), Start::Skippable((1 << 32) + 7));
        assert_eq!(Start::parse(b"\x5F\x2A\x4D\x18\xFF\xFF\xFF"), Start::Cut);
        assert_eq!(Start::parse(b"\x5F\x2A"), Start::Cut);
        assert_eq!(Start::parse(b"\x28\xB5\x2F"), Start::Cut);
        assert_eq!(Start::parse(b"\x28\xB5\x2E"), Start::Other);
        // Format of zstd 0.7, which nothing writes any more.
        assert_eq!(Start::parse(b"\x27\xB5\x2F\xFD\0\0\0\0"), Start::Other);
    }
}
