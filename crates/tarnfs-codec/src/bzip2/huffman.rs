/// Longest code that the format allows, in bits.
pub(super) const LONGEST: usize = 20;

/// Most symbols of a code: two for runs, 255 positions of the move-to-front list, the end of the block.
pub(super) const SYMBOLS: usize = 258;

/// What [`Code::decode`] returns for bits that begin no code.
pub(super) const INVALID: u16 = 0x1ff;

/// Codes up to this length are found with one look into a table: 2 KiB for each of six codes, so that all stay in
/// the first-level cache.
const SHORT: usize = 10;

/// A canonical Huffman code, in a form that decodes fast.
#[derive(Debug, Clone)]
pub(super) struct Code {
    /// For every `SHORT` bits: `symbol << 5 | length`, or 0 where the code is longer or there is none.
    table: [u16; 1 << SHORT],
    /// For each length: the first `LONGEST` bits behind the codes of that length.
    limits: [u32; LONGEST + 1],
    /// For each length: index into `symbols` of its first code, less that code.
    offsets: [u32; LONGEST + 1],
    /// The symbols in the order of their codes.
    symbols: [u16; SYMBOLS],
}

impl Code {
    /// A code with no symbols.
    pub(super) const EMPTY: Self =
        Self { table: [0; 1 << SHORT], limits: [0; LONGEST + 1], offsets: [0; LONGEST + 1], symbols: [0; SYMBOLS] };

    /// Sets the code from the length (1 to [`LONGEST`]) of each symbol's code. False, with the code unusable, if
    /// there are more codes than bits to tell them apart; a code that leaves bits unused is allowed, as in bzip2.
    pub(super) fn set(&mut self, lengths: &[u8]) -> bool {
        let mut next_code = 0_u32;
        let mut placed = 0_usize;
        let mut filled = 0_usize;
        for length in 1..=LONGEST {
            let unit = 1_u32 << (LONGEST - length);
            self.offsets[length] = (placed as u32).wrapping_sub(next_code >> (LONGEST - length));
            for (symbol, _) in lengths.iter().enumerate().filter(|&(_, &other)| usize::from(other) == length) {
                if next_code >= 1 << LONGEST || placed >= SYMBOLS {
                    return false;
                }
                self.symbols[placed] = symbol as u16;
                placed += 1;
                next_code += unit;
                if length <= SHORT {
                    let end = (next_code >> (LONGEST - SHORT)) as usize;
                    self.table[filled..end].fill((symbol as u16) << 5 | length as u16);
                    filled = end;
                }
            }
            self.limits[length] = next_code;
        }
        self.table[filled..].fill(0);
        true
    }

    /// The symbol that the highest bits of `bits` stand for, and the length of its code.
    #[allow(clippy::inline_always, reason = "part of the loop over the symbols")]
    #[inline(always)]
    pub(super) fn decode(&self, bits: u64) -> (u16, u32) {
        let entry = self.table[(bits >> (64 - SHORT)) as usize];
        if entry != 0 { (entry >> 5, u32::from(entry & 31)) } else { self.decode_long(bits) }
    }

    #[cold]
    fn decode_long(&self, bits: u64) -> (u16, u32) {
        let code = (bits >> (64 - LONGEST)) as u32;
        for length in SHORT + 1..=LONGEST {
            if code < self.limits[length] {
                let index = (code >> (LONGEST - length)).wrapping_add(self.offsets[length]);
                return (self.symbols.get(index as usize).copied().unwrap_or(INVALID), length as u32);
            }
        }
        (INVALID, LONGEST as u32)
    }
}
