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

/// The CRC-32C of `bytes` behind others, of which it is `before`; 0 if there are none.
pub fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has been asked for all that the function needs. By tables, the sums would take as long
        // as all else.
        return unsafe { by_instruction(before, bytes) };
    }
    by_tables(before, bytes)
}

/// By the processor's own instruction for this sum.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn by_instruction(before: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let (steps, rest) = bytes.as_chunks::<STEP>();
    let sum = steps.iter().fold(u64::from(!before), |sum, step| _mm_crc32_u64(sum, u64::from_le_bytes(*step)));
    !rest.iter().fold(sum as u32, |sum, &byte| _mm_crc32_u8(sum, byte))
}

fn by_tables(before: u32, bytes: &[u8]) -> u32 {
    let (steps, rest) = bytes.as_chunks::<STEP>();
    let sum = steps.iter().fold(!before, |sum, step| {
        let word = u64::from_le_bytes(*step) ^ u64::from(sum);
        let bytes = word.to_le_bytes();
        bytes.iter().zip(TABLES.iter().rev()).fold(0, |sum, (&byte, table)| sum ^ table[usize::from(byte)])
    });
    !rest.iter().fold(sum, |sum, &byte| sum >> 8 ^ TABLES[0][usize::from(sum as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_rfc_3720() {
        for sum in [crc32c, by_tables] {
            assert_eq!(sum(0, &[0; 32]), 0x8A91_36AA);
            assert_eq!(sum(0, &[0xFF; 32]), 0x62A8_AB43);
            assert_eq!(sum(0, &std::array::from_fn::<u8, 32, _>(|index| index as u8)), 0x46DD_794E);
            assert_eq!(sum(0, b"123456789"), 0xE306_9283);
            assert_eq!(sum(sum(0, b"1234"), b"56789"), 0xE306_9283);
            assert_eq!(sum(0, b""), 0);
        }
        let data: Vec<u8> = (0..1000_u32).map(|n| (n * n % 251) as u8).collect();
        assert!((0..data.len()).all(|length| crc32c(7, &data[..length]) == by_tables(7, &data[..length])));
    }
}
