/// The CRC-32 of bzip2: the usual polynomial and start value, but with the highest bit of each byte first.
///
/// That is the CRC-32 of everything else with the bits of every byte, and of the result, in reverse. So the fast one
/// serves.
#[derive(Debug, Clone, Default)]
pub(super) struct Crc(crc32fast::Hasher);

impl Crc {
    /// Adds `bytes`, which are reversed on the way.
    pub(super) fn update(&mut self, bytes: &mut [u8]) {
        for byte in &mut *bytes {
            *byte = byte.reverse_bits();
        }
        self.0.update(bytes);
    }

    /// The CRC of all bytes added.
    pub(super) fn finish(self) -> u32 {
        self.0.finalize().reverse_bits()
    }
}

/// The CRC of a stream: of those of its blocks, in order.
pub(super) fn combine(stream: u32, block: u32) -> u32 {
    stream.rotate_left(1) ^ block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_the_check_value_of_its_name() {
        // CRC-32/BZIP2 in the catalogue of parametrised CRC algorithms.
        let mut crc = Crc::default();
        crc.update(&mut b"123456789".to_owned());
        assert_eq!(crc.finish(), 0xfc89_1918);
    }
}
