//! The 32 bytes at the start: where the header is, which lies behind all else.

/// The first bytes of each archive.
pub(super) const SIGNATURE: &[u8; 6] = b"7z\xbc\xaf\x27\x1c";

/// Bytes of the start; offsets in an archive count from behind it.
pub(super) const LENGTH: usize = 32;

/// Where the header is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    /// The format's version; there is only 0.
    pub(super) major: u8,
    /// From the end of the start.
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) crc: u32,
}

/// Why bytes with the signature are no start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Damaged;

impl Start {
    /// The start that `bytes` begin with; `None` if they do not even have the signature.
    pub(super) fn read(bytes: &[u8]) -> Option<Result<Self, Damaged>> {
        let rest = bytes.strip_prefix(SIGNATURE)?;
        Some(Self::behind_signature(rest).ok_or(Damaged))
    }

    fn behind_signature(rest: &[u8]) -> Option<Self> {
        let (version, rest) = rest.split_first_chunk::<2>()?;
        let (crc, rest) = rest.split_first_chunk::<4>()?;
        let fields = rest.get(..20)?;
        if crc32fast::hash(fields) != u32::from_le_bytes(*crc) {
            return None;
        }
        let (offset, fields) = fields.split_first_chunk()?;
        let (length, fields) = fields.split_first_chunk()?;
        Some(Self {
            major: version[0],
            offset: u64::from_le_bytes(*offset),
            length: u64::from_le_bytes(*length),
            crc: u32::from_le_bytes(*fields.first_chunk()?),
        })
    }
}

/// Where in `bytes` a start begins whose checksum is right.
pub(super) fn find(bytes: &[u8]) -> Option<(usize, Start)> {
    let mut from = 0_usize;
    loop {
        let rest = bytes.get(from..)?;
        let at = rest.iter().position(|&byte| byte == SIGNATURE[0])?;
        from = from.saturating_add(at);
        if let Some(Ok(start)) = Start::read(bytes.get(from..)?) {
            return Some((from, start));
        }
        from = from.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([0, 4]);
        let fields: Vec<u8> = (1..=20).collect();
        bytes.extend(crc32fast::hash(&fields).to_le_bytes());
        bytes.extend(fields);
        bytes
    }

    #[test]
    fn starts_are_believed_by_their_checksum() {
        let bytes = start();
        let read = Start { major: 0, offset: 0x0807_0605_0403_0201, length: 0x100f_0e0d_0c0b_0a09, crc: 0x1413_1211 };
        assert_eq!((bytes.len(), Start::read(&bytes)), (LENGTH, Some(Ok(read))));
        for at in 0..LENGTH {
            assert!(!matches!(Start::read(&bytes[..at]), Some(Ok(_))));
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            match at {
                0..6 => assert_eq!(Start::read(&changed), None),
                6 => assert_eq!(Start::read(&changed), Some(Ok(Start { major: 1, ..read }))),
                7 => assert_eq!(Start::read(&changed), Some(Ok(read))),
                _ => assert_eq!(Start::read(&changed), Some(Err(Damaged))),
            }
        }
        let prefixed = [b"7z..7z\xbc\xaf\x27\x1c....", &bytes[..]].concat();
        assert_eq!(find(&prefixed), Some((14, read)));
        assert_eq!(find(&prefixed[..45]), None);
    }
}
