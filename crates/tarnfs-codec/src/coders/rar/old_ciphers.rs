//! Ciphers of RAR before 3.0: both have keys of 64 and 128 bits straight from the password, and are long broken.
//! Sources: public descriptions. Nothing but the CRC-32 of the content tells a wrong password.

use crate::coders::zipcrypto::CRC;

/// Bytes of a block of the cipher of 2.0.
pub(super) const BLOCK: usize = 16;

fn crc(byte: u8) -> u32 {
    CRC[usize::from(byte)]
}

/// The cipher of RAR 1.5: bytes that depend on the password alone are added to those of the data.
pub(super) struct Stream([u16; 4]);

impl Stream {
    pub(super) fn new(password: &[u8]) -> Self {
        let all = !crc32fast::hash(password);
        let mut key = [all as u16, (all >> 16) as u16, 0, 0];
        for &byte in password {
            key[2] ^= u16::from(byte) ^ crc(byte) as u16;
            key[3] = key[3].wrapping_add(u16::from(byte)).wrapping_add((crc(byte) >> 16) as u16);
        }
        Self(key)
    }

    pub(super) fn undo(&mut self, bytes: &mut [u8]) {
        let [a, b, c, d] = &mut self.0;
        for byte in bytes {
            *a = a.wrapping_add(0x1234);
            let mixed = crc((*a >> 1) as u8);
            *b ^= mixed as u16;
            *c = c.wrapping_sub((mixed >> 16) as u16);
            *a ^= *c;
            *d = (d.rotate_right(1) ^ *b).rotate_right(1);
            *a ^= *d;
            *byte ^= (*a >> 8) as u8;
        }
    }
}

/// The cipher of RAR 2.0: 32 rounds over four words. The key goes on with what each block is stored as.
pub(super) struct Blocks {
    key: [u32; 4],
    /// What each byte stands for.
    places: [u8; 256],
}

const FIRST_KEY: [u32; 4] = [0xD3A3_B879, 0x3F6D_12F7, 0x7515_A235, 0xA4E7_F123];

#[rustfmt::skip]
const FIRST_PLACES: [u8; 256] = [
    215, 19, 149, 35, 73, 197, 192, 205, 249, 28, 16, 119, 48, 221, 2, 42, 232, 1, 177, 233, 14, 88, 219, 25, 223, 195,
    244, 90, 87, 239, 153, 137, 255, 199, 147, 70, 92, 66, 246, 13, 216, 40, 62, 29, 217, 230, 86, 6, 71, 24, 171, 196,
    101, 113, 218, 123, 93, 91, 163, 178, 202, 67, 44, 235, 107, 250, 75, 234, 49, 167, 125, 211, 83, 114, 157, 144, 32,
    193, 143, 36, 158, 124, 247, 187, 89, 214, 141, 47, 121, 228, 61, 130, 213, 194, 174, 251, 97, 110, 54, 229, 115,
    57, 152, 94, 105, 243, 212, 55, 209, 245, 63, 11, 164, 200, 31, 156, 81, 176, 227, 21, 76, 99, 139, 188, 127, 17,
    248, 51, 207, 120, 189, 210, 8, 226, 41, 72, 183, 203, 135, 165, 166, 60, 98, 7, 122, 38, 155, 170, 69, 172, 252,
    238, 39, 134, 59, 128, 236, 27, 240, 80, 131, 3, 85, 206, 145, 79, 154, 142, 159, 220, 201, 133, 74, 64, 20, 129,
    224, 185, 138, 103, 173, 182, 43, 34, 254, 82, 198, 151, 231, 180, 58, 10, 118, 26, 102, 12, 50, 132, 22, 191, 136,
    111, 162, 179, 45, 4, 148, 108, 161, 56, 78, 126, 242, 222, 15, 175, 146, 23, 33, 241, 181, 190, 77, 225, 0, 46,
    169, 186, 68, 95, 237, 65, 53, 208, 253, 168, 9, 18, 100, 52, 116, 184, 160, 96, 109, 37, 30, 106, 140, 104, 150, 5,
    204, 117, 112, 84,
];

impl Blocks {
    pub(super) fn new(password: &[u8]) -> Self {
        let mut blocks = Self { key: FIRST_KEY, places: FIRST_PLACES };
        for round in 0..=255_u8 {
            for (number, pair) in password.chunks(2).enumerate() {
                let second = pair.get(1).copied().unwrap_or(0);
                let (mut from, to) = (crc(pair[0].wrapping_sub(round)) as u8, crc(second.wrapping_add(round)) as u8);
                // A password may have more than 256 bytes.
                let mut step = (2 * number) as u8;
                // All of the bytes at most: `from` goes up until it is there.
                while from != to {
                    step = step.wrapping_add(1);
                    blocks.places.swap(from.into(), from.wrapping_add(step).into());
                    from = from.wrapping_add(1);
                }
            }
        }
        for part in password.chunks(BLOCK) {
            let mut block = [0; BLOCK];
            block[..part.len()].copy_from_slice(part);
            let made = blocks.mix(&block, 0..32);
            blocks.go_on(&made);
        }
        blocks
    }

    /// Decrypts whole blocks.
    pub(super) fn undo(&mut self, bytes: &mut [u8]) {
        for block in bytes.as_chunks_mut::<BLOCK>().0 {
            let stored = std::mem::replace(block, self.mix(block, (0..32).rev()));
            self.go_on(&stored);
        }
    }

    fn mix(&self, block: &[u8; BLOCK], rounds: impl Iterator<Item = usize>) -> [u8; BLOCK] {
        let mut words = [0; 4];
        for ((word, bytes), key) in words.iter_mut().zip(block.as_chunks::<4>().0).zip(self.key) {
            *word = u32::from_le_bytes(*bytes) ^ key;
        }
        let [mut a, mut b, mut c, mut d] = words;
        let replaced = |word: u32| u32::from_le_bytes(word.to_le_bytes().map(|byte| self.places[usize::from(byte)]));
        for round in rounds {
            let key = self.key[round & 3];
            let first = a ^ replaced(c.wrapping_add(d.rotate_left(11)) ^ key);
            let second = b ^ replaced((d ^ c.rotate_left(17)).wrapping_add(key));
            (a, b, c, d) = (c, d, first, second);
        }
        let mut mixed = [0; BLOCK];
        for ((bytes, word), key) in mixed.as_chunks_mut::<4>().0.iter_mut().zip([c, d, a, b]).zip(self.key) {
            *bytes = (word ^ key).to_le_bytes();
        }
        mixed
    }

    fn go_on(&mut self, stored: &[u8; BLOCK]) {
        for bytes in stored.as_chunks::<4>().0 {
            self.key.iter_mut().zip(bytes).for_each(|(key, byte)| *key ^= crc(*byte));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_of_1_5() {
        // Vectors of the crate rars, which real archives of RAR 1.54 bear out.
        let mut bytes = [0x2B, 0xB9, 0xF3, 0x9C, 0x41, 0xA6, 0xAA, 0xE7, 0x1A, 0x7A, 0x7B];
        let mut stream = Stream::new(b"password");
        let (first, rest) = bytes.split_at_mut(3);
        stream.undo(first);
        stream.undo(rest);
        assert_eq!(&bytes, b"hello world");
    }

    #[test]
    fn the_blocks_of_2_0() {
        let mut bytes = [
            0xB7, 0x14, 0x54, 0x5A, 0x55, 0x8B, 0xCA, 0xF7, 0xBC, 0x18, 0x38, 0x17, 0x1D, 0x9E, 0x31, 0xAB, 0x81, 0x40,
            0x72, 0xFE, 0x02, 0x76, 0x76, 0x65, 0x4A, 0xA5, 0x3F, 0x4B, 0xB3, 0x0C, 0xAD, 0x07,
        ];
        let mut blocks = Blocks::new(b"password");
        let (first, rest) = bytes.split_at_mut(BLOCK);
        blocks.undo(first);
        blocks.undo(rest);
        assert_eq!(&bytes, b"0123456789abcdefRAR2.0 block pad");
        // An odd number of bytes, more than a block of them, and none.
        for password in [&b"odd"[..], &[200; 33], b""] {
            Blocks::new(password).undo(&mut bytes);
        }
    }

    /// Of a password 127 characters count, of up to four bytes each. UnRAR lets the number of a pair of them wrap.
    #[test]
    fn passwords_of_more_than_256_bytes() {
        let password = "\u{1f511}".repeat(127);
        let mut bytes = [7; 2 * BLOCK];
        Blocks::new(password.as_bytes()).undo(&mut bytes);
        let mut others = [7; 2 * BLOCK];
        Blocks::new(&password.as_bytes()[..256]).undo(&mut others);
        assert_ne!(bytes, others);
        Stream::new(password.as_bytes()).undo(&mut bytes);
    }
}
