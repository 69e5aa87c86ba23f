//! Numbers of an archive. They are little-endian.

/// The number of two bytes at `at`; 0 where there are fewer, which callers have ruled out.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |chunk| u16::from_le_bytes(*chunk))
}

/// The number of four bytes at `at`; see [`u16_at`].
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

/// The number of eight bytes at `at`; see [`u16_at`].
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |chunk| u64::from_le_bytes(*chunk))
}
