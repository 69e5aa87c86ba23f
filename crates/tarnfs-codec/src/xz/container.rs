//! The fixed parts of an xz file, from bytes. Section numbers are those of The .xz File Format 1.2.

/// Bytes of a stream's header, and of its footer (§2.1.1, §2.1.2).
pub(super) const STREAM_HEADER: usize = 12;
/// First bytes of a stream.
pub(super) const MAGIC: [u8; 6] = *b"\xFD7zXZ\0";
/// Last bytes of a stream.
const FOOTER_MAGIC: [u8; 2] = *b"YZ";
/// Bytes of the longest number (§1.2).
pub(super) const LONGEST_INTEGER: usize = 9;
/// The largest number.
pub(super) const LARGEST_INTEGER: u64 = u64::MAX >> 1;
/// Bytes of the longest block header (§3.1.1).
pub(super) const LONGEST_BLOCK_HEADER: usize = 1024;
/// LZMA2's number among the filters (§5.3.1).
pub(super) const LZMA2: u64 = 0x21;

/// What is wrong with a part of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is not what was written.
    Damaged(String),
    /// It may be right, but a newer or fuller program is needed.
    Unsupported(String),
}

impl Fault {
    fn damaged<T>(what: impl Into<String>) -> Result<T, Self> {
        Err(Self::Damaged(what.into()))
    }
}

/// Number of a check (§2.1.1.2): 0 none, 1 CRC-32, 4 CRC-64, 10 SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CheckId(u8);

impl CheckId {
    pub(super) const NONE: Self = Self(0);
    pub(super) const CRC32: Self = Self(1);
    pub(super) const CRC64: Self = Self(4);
    pub(super) const SHA256: Self = Self(10);

    /// The check of that number, if there can be one.
    pub(super) fn new(id: u8) -> Option<Self> {
        (id < 16).then_some(Self(id))
    }

    pub(super) fn number(self) -> u8 {
        self.0
    }

    /// Bytes of the check; known for the numbers without a meaning, too.
    pub(super) fn size(self) -> usize {
        match self.0 {
            0 => 0,
            id => 4 << ((id - 1) / 3),
        }
    }
}

fn stream_flags([zero, check]: [u8; 2]) -> Result<CheckId, Fault> {
    match (zero, CheckId::new(check)) {
        (0, Some(check)) => Ok(check),
        _ => Err(Fault::Unsupported(format!("stream flags {zero:02x} {check:02x} have a meaning not known here"))),
    }
}

/// The check of the stream that starts with `header`.
pub(super) fn stream_header(header: &[u8; STREAM_HEADER]) -> Result<CheckId, Fault> {
    let [m0, m1, m2, m3, m4, m5, zero, check, crc @ ..] = *header;
    if [m0, m1, m2, m3, m4, m5] != MAGIC {
        return Fault::damaged("not the start of an xz stream");
    }
    if crc32fast::hash(&[zero, check]) != u32::from_le_bytes(crc) {
        return Fault::damaged("the CRC-32 of the stream header does not match");
    }
    stream_flags([zero, check])
}

/// The check of the stream that ends with `footer`, and the bytes of its index.
pub(super) fn stream_footer(footer: &[u8; STREAM_HEADER]) -> Result<(CheckId, u64), Fault> {
    let [c0, c1, c2, c3, fields @ .., y, z] = *footer;
    if [y, z] != FOOTER_MAGIC {
        return Fault::damaged("no stream footer where the stream should end");
    }
    if crc32fast::hash(&fields) != u32::from_le_bytes([c0, c1, c2, c3]) {
        return Fault::damaged("the CRC-32 of the stream footer does not match");
    }
    let [b0, b1, b2, b3, zero, check] = fields;
    let backward_size = (u64::from(u32::from_le_bytes([b0, b1, b2, b3])) + 1) * 4;
    Ok((stream_flags([zero, check])?, backward_size))
}

/// The number at the start of `bytes`, and its length (§1.2). `None` if it does not end there or is written in more
/// bytes than it needs.
pub(super) fn integer(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (at, &byte) in bytes.iter().take(LONGEST_INTEGER).enumerate() {
        value |= u64::from(byte & 0x7F) << (7 * at);
        if byte & 0x80 == 0 {
            return (byte != 0 || at == 0).then_some((value, at + 1));
        }
    }
    None
}

/// A filter of a block, with its properties as they are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Filter {
    pub(super) id: u64,
    pub(super) properties: Vec<u8>,
}

/// What a block's header says (§3.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BlockHeader {
    /// Bytes of the header.
    pub(super) length: usize,
    /// Bytes of the compressed data, without padding and check.
    pub(super) compressed: Option<u64>,
    pub(super) uncompressed: Option<u64>,
    /// In the order in which they were applied: 1 to 4, LZMA2 last.
    pub(super) filters: Vec<Filter>,
}

/// Bytes of the block header whose first byte is `size`, which is not 0 (that is an index).
pub(super) fn block_header_length(size: u8) -> usize {
    (usize::from(size) + 1) * 4
}

/// Takes fields off the front of a block header.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: u64) -> Result<&'a [u8], Fault> {
        let split = usize::try_from(length).ok().and_then(|length| self.0.split_at_checked(length));
        let Some((field, rest)) = split else { return Fault::damaged("a field of a block header goes past its end") };
        self.0 = rest;
        Ok(field)
    }

    fn integer(&mut self) -> Result<u64, Fault> {
        let Some((value, length)) = integer(self.0) else {
            return Fault::damaged("a number in a block header is not valid");
        };
        self.take(length as u64)?;
        Ok(value)
    }
}

/// Reads a block header from all of its bytes. `check` follows the block.
pub(super) fn block_header(bytes: &[u8], check: CheckId) -> Result<BlockHeader, Fault> {
    let Some((body, crc)) = bytes.split_last_chunk::<4>() else { return Fault::damaged("a block header is too short") };
    if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
        return Fault::damaged("the CRC-32 of a block header does not match");
    }
    let mut fields = Fields(body);
    let flags = fields.take(2)?[1];
    if flags & 0x3C != 0 {
        return Err(Fault::Unsupported(format!("block flags {flags:02x} have a meaning not known here")));
    }
    let compressed = if flags & 0x40 != 0 { Some(fields.integer()?) } else { None };
    let uncompressed = if flags & 0x80 != 0 { Some(fields.integer()?) } else { None };
    // The whole block, padded, has a number, too (§3.1.3).
    let most = LARGEST_INTEGER - 3 - bytes.len() as u64 - check.size() as u64;
    if compressed.is_some_and(|size| size == 0 || size > most) {
        return Fault::damaged("the compressed size in a block header is not possible");
    }
    let count = usize::from(flags & 3) + 1;
    let mut filters = Vec::with_capacity(count);
    for number in 1..=count {
        let id = fields.integer()?;
        let size = fields.integer()?;
        let properties = fields.take(size)?.to_vec();
        if id > LARGEST_INTEGER >> 1 {
            return Fault::damaged("a filter has a reserved number");
        }
        if (id == LZMA2) != (number == count) {
            return Err(Fault::Unsupported("a chain of filters that does not end with its only LZMA2".into()));
        }
        filters.push(Filter { id, properties });
    }
    if fields.0.iter().any(|&byte| byte != 0) {
        return Err(Fault::Unsupported("a block header with fields not known here".into()));
    }
    Ok(BlockHeader { length: bytes.len(), compressed, uncompressed, filters })
}

/// `length` rounded up to a multiple of four, which all parts of a stream are.
pub(super) fn padded(length: u64) -> Option<u64> {
    length.checked_next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_short_as_they_can_be() {
        assert_eq!(integer(&[0]), Some((0, 1)));
        assert_eq!(integer(&[0x7F, 9]), Some((127, 1)));
        assert_eq!(integer(&[0x80, 1]), Some((128, 2)));
        assert_eq!(integer(&[0x81, 0]), None);
        assert_eq!(integer(&[0xFF; 8]), None);
        let largest = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F];
        assert_eq!(integer(&largest), Some((LARGEST_INTEGER, 9)));
        assert_eq!(integer(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1]), None);
    }

    #[test]
    fn a_block_header_is_looked_at_to_its_end() {
        let read = |body: &[u8]| {
            let mut header = vec![0];
            header.extend_from_slice(body);
            header.resize(header.len().next_multiple_of(4), 0);
            header[0] = (header.len() / 4) as u8;
            header.extend(crc32fast::hash(&header).to_le_bytes());
            block_header(&header, CheckId::CRC32).map(|header| header.filters.len()).map_err(|fault| match fault {
                Fault::Damaged(what) => ("damaged", what),
                Fault::Unsupported(what) => ("not supported", what),
            })
        };
        // Flags, sizes, then each filter: its number, and its properties behind their length.
        let lzma2: [u8; 3] = [0x21, 1, 8];
        let delta = [3, 1, 0];
        let reserved = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40, 0];
        let largest = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F];
        for (parts, expected) in [
            (&[&[0][..], &lzma2][..], Ok(1)),
            (&[&[1], &delta, &lzma2], Ok(2)),
            (&[&[0x40, 1], &lzma2], Ok(1)),
            (&[&[0xC0, 1, 1], &lzma2], Ok(1)),
            (&[&[0x04], &lzma2], Err(("not supported", "block flags 04"))),
            (&[&[0x40, 0], &lzma2], Err(("damaged", "the compressed size"))),
            (&[&[0x40], &largest, &lzma2], Err(("damaged", "the compressed size"))),
            (&[&[0x01], &reserved, &lzma2], Err(("damaged", "a reserved number"))),
            (&[&[0], &delta], Err(("not supported", "a chain of filters"))),
            (&[&[1], &lzma2, &delta], Err(("not supported", "a chain of filters"))),
            (&[&[1], &lzma2, &lzma2], Err(("not supported", "a chain of filters"))),
            (&[&[0], &lzma2, &[0, 1]], Err(("not supported", "fields not known"))),
            (&[&[0], &[0x21, 0x7F, 8]], Err(("damaged", "past its end"))),
        ] {
            let body = parts.concat();
            match (read(&body), expected) {
                (Ok(filters), Ok(wanted)) => assert_eq!(filters, wanted, "{body:x?}"),
                (Err((kind, what)), Err((wanted, part))) => {
                    assert!(kind == wanted && what.contains(part), "{body:x?}: {kind}, {what}");
                }
                (read, _) => panic!("{body:x?}: {read:?}"),
            }
        }
    }

    #[test]
    fn sizes_of_checks() {
        let sizes: Vec<_> = (0..16).filter_map(CheckId::new).map(CheckId::size).collect();
        assert_eq!(sizes, [0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64]);
        assert_eq!(CheckId::new(16), None);
    }
}
