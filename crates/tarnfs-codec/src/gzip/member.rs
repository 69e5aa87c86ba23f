//! The wrappers around deflate data: gzip members (RFC 1952) and zlib streams (RFC 1950).

use std::io;

use crc32fast::Hasher;
use tarnfs_source::Limits;
use zlib_rs::adler32::adler32;

use super::input::Input;
use crate::faults;

/// First bytes of a gzip member (RFC 1952 §2.3.1: ID1, ID2).
pub(super) const MAGIC: [u8; 2] = [0x1f, 0x8b];
/// The only compression method there is: deflate.
pub(super) const DEFLATE: u8 = 8;
/// Flags that must be zero (RFC 1952 §2.3.1.2).
pub(super) const RESERVED_FLAGS: u8 = 0xe0;

const HEADER_CRC: u8 = 1 << 1;
const EXTRA: u8 = 1 << 2;
const NAME: u8 = 1 << 3;
const COMMENT: u8 = 1 << 4;

/// An error about compressed data that says where. Where the file is cut, `what` is what it is cut in.
pub(super) fn error(kind: io::ErrorKind, input: &Input, what: &str) -> io::Error {
    match kind {
        io::ErrorKind::UnexpectedEof => faults::cut(input.position(), what),
        _ => faults::invalid(input.position(), what),
    }
}

/// True for an error that says what is wrong with the compressed data.
pub(super) fn is_of_data(error: &io::Error) -> bool {
    let of_data = matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof);
    of_data && error.raw_os_error().is_none()
}

fn cut(input: &Input) -> io::Error {
    error(io::ErrorKind::UnexpectedEof, input, "the header of a gzip member")
}

/// Reads the header of a gzip member, behind its magic. Returns whether the header's own CRC matches, where it has
/// one.
pub(super) fn read_gzip_header(input: &mut Input, limits: &Limits) -> io::Result<bool> {
    let mut crc = Hasher::new();
    crc.update(&MAGIC);
    let fixed: [u8; 8] = input.bytes()?.ok_or_else(|| cut(input))?;
    crc.update(&fixed);
    let [method, flags, ..] = fixed;
    if method != DEFLATE {
        let what = format!("a gzip member with the unknown compression method {method}");
        return Err(error(io::ErrorKind::InvalidData, input, &what));
    }
    if flags & RESERVED_FLAGS != 0 {
        let what = format!("a gzip member with reserved flags ({flags:#04x})");
        return Err(error(io::ErrorKind::InvalidData, input, &what));
    }
    if flags & EXTRA != 0 {
        let length: [u8; 2] = input.bytes()?.ok_or_else(|| cut(input))?;
        crc.update(&length);
        let mut rest = usize::from(u16::from_le_bytes(length));
        while rest > 0 {
            let block = input.fill()?;
            let part = &block[..rest.min(block.len())];
            if part.is_empty() {
                return Err(cut(input));
            }
            crc.update(part);
            let length = part.len();
            rest -= length;
            input.consume(length);
        }
    }
    for text in [NAME, COMMENT] {
        if flags & text != 0 {
            skip_text(input, &mut crc, limits)?;
        }
    }
    if flags & HEADER_CRC == 0 {
        return Ok(true);
    }
    let stored: [u8; 2] = input.bytes()?.ok_or_else(|| cut(input))?;
    Ok(u16::from_le_bytes(stored) == crc.finalize() as u16)
}

/// What is behind the header of a gzip member with which `head` begins; `None` if the header is not wholly in it.
pub(super) fn behind_header(head: &[u8]) -> Option<&[u8]> {
    let (fixed, mut rest) = head.split_first_chunk::<10>()?;
    let flags = fixed[3];
    if flags & EXTRA != 0 {
        let (length, behind) = rest.split_first_chunk::<2>()?;
        rest = behind.get(usize::from(u16::from_le_bytes(*length))..)?;
    }
    for text in [NAME, COMMENT] {
        if flags & text != 0 {
            let end = rest.iter().position(|&byte| byte == 0)?;
            rest = &rest[end + 1..];
        }
    }
    if flags & HEADER_CRC != 0 { rest.get(2..) } else { Some(rest) }
}

/// Skips a text and the zero byte that ends it.
fn skip_text(input: &mut Input, crc: &mut Hasher, limits: &Limits) -> io::Result<()> {
    let mut length = 0;
    loop {
        let block = input.fill()?;
        if block.is_empty() {
            return Err(cut(input));
        }
        let end = block.iter().position(|&byte| byte == 0);
        let part = &block[..end.map_or(block.len(), |end| end + 1)];
        crc.update(part);
        let part = part.len();
        length += part as u64;
        input.consume(part);
        if end.is_some() {
            return Ok(());
        }
        if length > limits.extended_header {
            return Err(error(io::ErrorKind::InvalidData, input, "the name in a gzip header does not end"));
        }
    }
}

/// True if `header` is one of a zlib stream without a preset dictionary (RFC 1950 §2.2).
pub(super) fn is_zlib_header([method, flags]: [u8; 2]) -> bool {
    const PRESET_DICTIONARY: u8 = 1 << 5;
    const LARGEST_WINDOW: u8 = 7;
    method & 0x0f == DEFLATE
        && method >> 4 <= LARGEST_WINDOW
        && u16::from_be_bytes([method, flags]) % 31 == 0
        && flags & PRESET_DICTIONARY == 0
}

/// The checksum over the decoded bytes of one member.
pub(super) enum Checksum {
    /// gzip: CRC-32.
    Crc32(Hasher),
    /// zlib: Adler-32.
    Adler32(u32),
    /// Raw deflate has none.
    None,
}

impl Checksum {
    pub(super) fn crc32() -> Self {
        Self::Crc32(Hasher::new())
    }

    pub(super) fn adler32() -> Self {
        /// The sum of no bytes (RFC 1950 §8.2).
        const START: u32 = 1;
        Self::Adler32(START)
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc32(hasher) => hasher.update(bytes),
            Self::Adler32(sum) => *sum = adler32(*sum, bytes),
            Self::None => {}
        }
    }
}
