//! What a compressed stream says of how it is built, without being decoded.

use std::io;

use tarnfs_source::{Cancel, SharedSource};

/// How a stream is built, as far as its headers say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outline {
    /// What its parts are called that can be decoded without each other: "block", "frame", "member".
    pub part: &'static str,
    /// How many of them there are; `None` where only decoding tells.
    pub parts: Option<u64>,
    /// Decoded bytes of the longest one; `None` where only decoding tells.
    pub longest: Option<u64>,
    /// Bytes of decoded data that a decoder has to keep in memory, at most.
    pub history: Option<u64>,
    /// The largest dictionary that a header states, in bytes. Decoders of LZMA may ask for all of it, also where
    /// `history` is less.
    pub dictionary: Option<u64>,
    /// What tells damage of its content: "CRC-64", "none".
    pub check: Option<&'static str>,
}

/// Parts that are looked at: some millions take a second, and a stream that lies ends.
pub(crate) const MOST_PARTS: u64 = 1 << 21;

/// Reads `buffer` at `offset`; false where the stream ends before.
pub(crate) fn read(source: &SharedSource, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
    if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > source.len()) {
        return Ok(false);
    }
    source.read_exact_at(buffer, offset).map(|()| true)
}

/// Looks now and then whether somebody has lost patience.
pub(crate) fn check_at(number: u64, cancel: &Cancel) -> io::Result<()> {
    if number.is_multiple_of(4096) { cancel.check() } else { Ok(()) }
}

/// The longest of several parts, as long as each says how long it is.
#[derive(Debug)]
pub(crate) struct Longest(Option<u64>);

impl Longest {
    pub(crate) fn new() -> Self {
        Self(Some(0))
    }

    pub(crate) fn add(&mut self, length: Option<u64>) {
        self.0 = self.0.zip(length).map(|(longest, length)| longest.max(length));
    }

    pub(crate) fn get(self) -> Option<u64> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tarnfs_source::MemorySource;

    use super::*;
    use crate::CODECS;

    /// Headers come from a file, and may say anything.
    #[test]
    fn an_outline_of_anything_ends() {
        let heads: [&[u8]; 6] = [
            &[0xFD, b'7', b'z', b'X', b'Z', 0, 0, 4, 0xE6, 0xD6, 0xB4, 0x46],
            &[0x28, 0xB5, 0x2F, 0xFD, 0xE4],
            b"LZIP\x01\x17",
            &[0x04, 0x22, 0x4D, 0x18, 0x64, 0x40, 0xA7],
            b"\x1f\x8b\x08\x04\0\0\0\0\0\0\x06\0BC\x02\0",
            &[0x5D, 0, 0, 0x80, 0],
        ];
        let mut random = 7_u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as u8
        };
        let mut told = 0;
        for head in heads {
            for round in 0..300 {
                let mut bytes = head.to_vec();
                bytes.extend((0..round).map(|_| next() & if round % 2 == 0 { 0xFF } else { 3 }));
                // As the stream of an xz or a lzip ends.
                bytes.extend_from_slice(&head[..head.len().min(round % 13)]);
                let source: SharedSource = Arc::new(MemorySource::new(bytes, "anything"));
                for codec in CODECS {
                    told += u32::from(matches!(codec.outline(&source, &Cancel::default()), Ok(Some(_))));
                }
            }
        }
        assert!(told > 1000, "some of it looks right: {told}");
        let cancel = Cancel::default();
        cancel.cancel();
        let empty = [0x50, 0x2A, 0x4D, 0x18, 0, 0, 0, 0].repeat(5000);
        let source: SharedSource = Arc::new(MemorySource::new(empty, "frames of nothing"));
        let codec = crate::by_name("zstd").unwrap();
        assert_eq!(codec.outline(&source, &cancel).unwrap_err().kind(), io::ErrorKind::Interrupted);
    }
}
