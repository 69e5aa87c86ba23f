//! XPRESS with Huffman codes ([MS-XCA], 2.2): one code for literals and matches, whose lengths of bits stand before the
//! data. Bits come in words of 16, little-endian, the highest bit first; bytes of long matches lie between the words.

use super::super::prefix::Prefix;

/// Symbols: literals, and matches of 16 lengths and 16 powers of distances.
const SYMBOLS: usize = 512;
const LITERALS: u16 = 256;
const SHORTEST: usize = 3;

const CUT: &str = "XPRESS data that end too early";

struct Bits<'b> {
    bytes: &'b [u8],
    at: usize,
    word: u64,
    count: u32,
    /// Bits behind the end that were taken for zeros.
    missing: u32,
}

impl Bits<'_> {
    fn ensure(&mut self, count: u32) {
        while self.count < count {
            let next = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk).map(|word| u16::from_le_bytes(*word));
            if next.is_none() {
                self.missing += 16;
            }
            self.at += 2;
            self.word |= u64::from(next.unwrap_or(0)) << (48 - self.count);
            self.count += 16;
        }
    }

    fn consume(&mut self, count: u32) -> Result<(), &'static str> {
        self.word <<= count;
        self.count -= count;
        if self.count < self.missing { Err(CUT) } else { Ok(()) }
    }

    /// The next byte behind the words that were taken.
    fn byte(&mut self) -> Result<u8, &'static str> {
        let byte = *self.bytes.get(self.at).ok_or(CUT)?;
        self.at += 1;
        Ok(byte)
    }
}

/// Decodes all of `stored` to all of `decoded`.
pub(super) fn decode(code: &mut Prefix, stored: &[u8], decoded: &mut [u8]) -> Result<(), &'static str> {
    let table = stored.get(..SYMBOLS / 2).ok_or(CUT)?;
    let mut lengths = [0; SYMBOLS];
    for (pair, byte) in lengths.as_chunks_mut::<2>().0.iter_mut().zip(table) {
        *pair = [byte & 15, byte >> 4];
    }
    if !code.set(&lengths) {
        return Err("XPRESS data with a code that cannot be");
    }
    let mut bits = Bits { bytes: stored, at: SYMBOLS / 2, word: 0, count: 0, missing: 0 };
    let mut done = 0;
    while done < decoded.len() {
        bits.ensure(16);
        let (symbol, taken) =
            code.find((bits.word >> 48) as u16).ok_or("XPRESS data with a code that stands for nothing")?;
        bits.consume(taken)?;
        let Some(found) = symbol.checked_sub(LITERALS) else {
            decoded[done] = symbol as u8;
            done += 1;
            continue;
        };
        let (mut length, power) = (usize::from(found & 15), u32::from(found >> 4));
        bits.ensure(16);
        let low = if power == 0 { 0 } else { (bits.word >> (64 - power)) as usize };
        bits.consume(power)?;
        let distance = 1_usize << power | low;
        if length == 15 {
            length += usize::from(bits.byte()?);
            if length == 15 + 255 {
                length = usize::from(u16::from_le_bytes([bits.byte()?, bits.byte()?]));
            }
        }
        let end = done + length + SHORTEST;
        if distance > done || end > decoded.len() {
            return Err("XPRESS data with a match that leads to what is not there");
        }
        for at in done..end {
            decoded[at] = decoded[at - distance];
        }
        done = end;
    }
    Ok(())
}
