//! CRC-32C (Castagnoli), as RFC 3720 has it.

/// The polynomial, its lowest bit that of the highest power.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// Bytes taken in at once.
const STEP: usize = 8;

/// What a byte adds that so many bytes follow.
static TABLES: [[u32; 256]; STEP] = tables();

const fn tables() -> [[u32; 256]; STEP] {
    let mut tables = [[0; 256]; STEP];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = sum >> 1 ^ if sum & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut behind = 1;
    while behind < STEP {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[behind - 1][byte];
            tables[behind][byte] = before >> 8 ^ tables[0][(before & 0xFF) as usize];
            byte += 1;
        }
        behind += 1;
    }
    tables
}

/// The CRC-32C of `bytes`, masked as snappy's framing format has it ("Checksum format").
pub(super) fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8)
}

fn crc32c(bytes: &[u8]) -> u32 {
    let (steps, rest) = bytes.as_chunks::<STEP>();
    let sum = steps.iter().fold(u32::MAX, |sum, step| {
        let word = u64::from_le_bytes(*step) ^ u64::from(sum);
        let bytes = word.to_le_bytes();
        bytes.iter().zip(TABLES.iter().rev()).fold(0, |sum, (&byte, table)| sum ^ table[usize::from(byte)])
    });
    !rest.iter().fold(sum, |sum, &byte| sum >> 8 ^ TABLES[0][usize::from(sum as u8 ^ byte)])
}

#[test]
fn sums_are_those_of_rfc_3720() {
    assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
    assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
    assert_eq!(crc32c(&std::array::from_fn::<u8, 32, _>(|index| index as u8)), 0x46DD_794E);
    assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    assert_eq!(crc32c(b""), 0);
}
