//! What stands before a file, its chunks and their blocks (lrzip's `doc/magic.header.txt`). All numbers are
//! little-endian.

use std::io;

use tarnfs_source::Source;

use crate::blocks::Stop;
use crate::input::Input;

/// What a file begins with.
pub(super) const MAGIC: [u8; 4] = *b"LRZI";

/// Bytes of the header of a file.
pub(super) const LENGTH: usize = 24;

/// Bytes of the MD5 behind the last chunk.
pub(super) const DIGEST: usize = 16;

/// What the header of a file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) version: Version,
    /// Decoded bytes of all chunks; 0 also where that was not known, as in a pipe.
    pub(super) length: u64,
    /// Properties and dictionary of all blocks of LZMA, as in the header of `.lzma`.
    pub(super) lzma: [u8; 5],
    /// An MD5 of all decoded bytes stands at the end.
    pub(super) has_digest: bool,
}

/// The formats that differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// 0.4: all numbers have 8 bytes.
    Four,
    /// 0.5: each chunk says how many bytes a distance has.
    Five,
    /// 0.6: those in the headers of blocks have as many, and each chunk says whether it is the last, and how long it
    /// is.
    Six,
}

impl Header {
    /// Reads it at the input's position. `Unsupported` for what is known and cannot be decoded.
    pub(super) fn read(input: &mut Input) -> Result<Self, Stop> {
        let bytes = input.peek(LENGTH)?;
        if !bytes.iter().zip(&MAGIC).all(|(byte, expected)| byte == expected) {
            return Err(Stop::Invalid("no file of lrzip begins there".to_owned()));
        }
        let &bytes = bytes.first_chunk::<LENGTH>().ok_or(Stop::Cut("the header"))?;
        let version = match bytes[4..6] {
            [0, 4] => Version::Four,
            [0, 5] => Version::Five,
            [0, 6] => Version::Six,
            [major, minor] => {
                return Err(unsupported(format!(
                    "version {major}.{minor} of the lrzip format is not supported, only 0.4 to 0.6 are: decompress it with lrzip"
                )));
            }
            _ => return Err(Stop::Cut("the header")),
        };
        if bytes[22] != 0 {
            let what = "the file is encrypted, which is not supported: decrypt it with lrzip -d";
            return Err(unsupported(what.to_owned()));
        }
        input.consume(LENGTH);
        Ok(Self {
            version,
            length: number(&bytes[6..14]),
            lzma: [bytes[16], bytes[17], bytes[18], bytes[19], bytes[20]],
            has_digest: bytes[21] == 1,
        })
    }

    /// The number of bits that had to match for these to be the first bytes of a file; 0 if they are not.
    pub(super) fn bid(head: &[u8]) -> u32 {
        let is_ours = head.starts_with(&MAGIC) && head.get(4) == Some(&0);
        if is_ours { 32 + 8 } else { 0 }
    }
}

/// What stands before the two streams of a chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChunkHeader {
    pub(super) widths: Widths,
    /// No chunk follows, if the header of the file does not know it better; `None` where only that tells.
    pub(super) is_last: Option<bool>,
    /// Decoded bytes.
    pub(super) length: Option<u64>,
}

/// How many bytes numbers have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Widths {
    /// Distances of matches.
    pub(super) distance: usize,
    /// Lengths of matches and literals.
    pub(super) length: usize,
    /// Those in the headers of blocks.
    pub(super) block: usize,
}

impl ChunkHeader {
    /// Reads it at the input's position.
    pub(super) fn read(input: &mut Input, version: Version) -> Result<Self, Stop> {
        const CUT: Stop = Stop::Cut("the header of a chunk");
        if version == Version::Four {
            let widths = Widths { distance: 8, length: 8, block: 8 };
            return Ok(Self { widths, is_last: None, length: None });
        }
        let &[distance] = input.peek(1)? else { return Err(CUT) };
        let distance = usize::from(distance);
        if !(1..=8).contains(&distance) {
            return Err(Stop::Invalid(format!("a chunk whose distances have {distance} bytes")));
        }
        if version == Version::Five {
            input.consume(1);
            return Ok(Self { widths: Widths { distance, length: 2, block: 8 }, is_last: None, length: None });
        }
        let (is_last, length) = match input.peek(2 + distance)? {
            [_, is_last, length @ ..] if length.len() == distance => (*is_last, number(length)),
            _ => return Err(CUT),
        };
        if is_last > 1 {
            return Err(Stop::Invalid("a chunk that is neither the last nor another".to_owned()));
        }
        input.consume(2 + distance);
        let widths = Widths { distance, length: 2, block: distance };
        Ok(Self { widths, is_last: Some(is_last == 1), length: Some(length) })
    }
}

/// What stands before a block, and at the start of a chunk before there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockHeader {
    pub(super) method: u8,
    pub(super) packed: u64,
    pub(super) decoded: u64,
    /// Where the header of the stream's next block is, from that of the chunk's first stream on; 0 behind the last
    /// one.
    pub(super) next: u64,
}

impl BlockHeader {
    /// Bytes of it, with numbers of `width` bytes.
    pub(super) fn size(width: usize) -> u64 {
        1 + 3 * width as u64
    }

    /// Reads it at byte `at`; `None` where the source ends in it.
    pub(super) fn read(source: &dyn Source, at: u64, width: usize) -> io::Result<Option<Self>> {
        let mut bytes = [0; 1 + 3 * 8];
        let size = 1 + 3 * width;
        if source.read_at(&mut bytes[..size], at)? < size {
            return Ok(None);
        }
        let [packed, decoded, next] = [0, 1, 2].map(|index| number(&bytes[1 + index * width..][..width]));
        Ok(Some(Self { method: bytes[0], packed, decoded, next }))
    }

    /// It stands before no block: only where the next one is counts.
    pub(super) fn is_empty(self) -> bool {
        self.method == super::stream::STORED && self.packed == 0 && self.decoded == 0
    }
}

/// A number of up to 8 bytes.
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// What is known, and not decoded here.
pub(super) fn unsupported(what: String) -> Stop {
    Stop::Io(io::Error::new(io::ErrorKind::Unsupported, what))
}
