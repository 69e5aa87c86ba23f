//! Checksums: CRC-32C as this file system has it, which is not inverted at its end; and the CRC-16 that groups had
//! before (Linux: fs/ext4/super.c, lib/crc16.c).

use tarnfs_source::crc32c;

/// A checksum that more may come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seed(pub(super) u32);

impl Seed {
    pub(super) const START: Self = Self(u32::MAX);

    #[must_use]
    pub(super) fn add(self, bytes: &[u8]) -> Self {
        Self(!crc32c(!self.0, bytes))
    }

    #[must_use]
    pub(super) fn add_number(self, number: u32) -> Self {
        self.add(&number.to_le_bytes())
    }
}

/// The CRC-16 of `bytes` behind others, of which it is `sum`.
pub(crate) fn crc16(sum: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(sum, |sum, byte| {
        (0..8).fold(sum ^ u16::from(*byte), |sum, _| sum >> 1 ^ if sum & 1 == 1 { 0xA001 } else { 0 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_their_examples() {
        assert_eq!(crc16(0, b"123456789"), 0xBB3D);
        assert_eq!(Seed::START.add(b"1234").add(b"56789").0, !0xE306_9283);
    }
}
