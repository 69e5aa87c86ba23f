//! Apple Data Compression (ADC), of old disk images of macOS: literals, and matches of up to 67 bytes in the last 64
//! KiB.

use std::io;

use super::block::{BlockCoder, damaged};
use super::lzfse::Output;
use crate::Pace;

/// The coder.
#[derive(Debug)]
pub(super) struct AdcBlock;

impl BlockCoder for AdcBlock {
    fn name(&self) -> &'static str {
        "adc-block"
    }

    fn decode(&self, stored: &[u8], decoded: &mut [u8]) -> io::Result<usize> {
        let mut output = Output::new(decoded);
        decode(stored, &mut output).map_err(|what| damaged(&format!("its ADC data: {what}")))?;
        Ok(output.end)
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 500_000, in_whole_chunks: true }
    }

    fn memory(&self, _: usize) -> usize {
        0
    }
}

fn decode(stored: &[u8], output: &mut Output<'_>) -> Result<(), &'static str> {
    let mut rest = stored;
    while let Some((&code, behind)) = rest.split_first() {
        let (code, cut) = (usize::from(code), "they are cut");
        match (code, behind) {
            (0x80.., _) => {
                let (literals, behind) = behind.split_at_checked((code & 0x7f) + 1).ok_or(cut)?;
                output.literals(literals)?;
                rest = behind;
            }
            (0x40.., [high, low, behind @ ..]) => {
                output.copy((usize::from(*high) << 8 | usize::from(*low)) + 1, (code & 0x3f) + 4)?;
                rest = behind;
            }
            (..0x40, [low, behind @ ..]) => {
                output.copy(((code & 3) << 8 | usize::from(*low)) + 1, (code >> 2) + 3)?;
                rest = behind;
            }
            _ => return Err(cut),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_both_kinds_of_matches() {
        let stored = [&[0x84][..], b"abcde", &[0x08, 4], &[0x41, 0, 0], &[0x80, b'!']].concat();
        let mut decoded = [0; 30];
        let length = AdcBlock.decode(&stored, &mut decoded).unwrap();
        assert_eq!(&decoded[..length], b"abcdeabcdeeeeee!");
        for cut in [1, 4, 7, 9, 10, 12] {
            assert!(AdcBlock.decode(&stored[..cut], &mut decoded).is_err(), "{cut}");
        }
        assert!(AdcBlock.decode(&stored, &mut [0; 15]).is_err(), "no room");
        assert!(AdcBlock.decode(&[0x80, b'a', 0x00, 1], &mut decoded).is_err(), "before the start");
    }
}
