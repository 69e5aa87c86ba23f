//! Canonical prefix codes of up to 16 bits, the highest bit first: of cabinets, LHA and ARJ.

/// Codes of up to so many bits are found in a table.
const QUICK: usize = 10;

/// Bits of the longest code.
pub(super) const LONGEST: usize = 16;

/// A code.
pub(super) struct Prefix {
    /// For the next [`QUICK`] bits, the symbol and in the lowest 5 bits the length of its code; 0 of a longer one.
    quick: Box<[u16; 1 << QUICK]>,
    /// The first code that is longer than so many bits, with its highest bit as the 16th.
    ends: [u32; LONGEST + 1],
    /// Where in `symbols` those with codes of so many bits begin.
    starts: [u16; LONGEST + 1],
    symbols: Vec<u16>,
    /// The only symbol, which has a code without bits.
    only: Option<u16>,
}

impl Prefix {
    /// A code without symbols.
    pub(super) fn new() -> Self {
        Self {
            quick: Box::new([0; 1 << QUICK]),
            ends: [0; LONGEST + 1],
            starts: [0; LONGEST + 1],
            symbols: Vec::new(),
            only: None,
        }
    }

    /// The code that has one symbol, and needs no bits for it.
    pub(super) fn set_only(&mut self, symbol: u16) {
        self.only = Some(symbol);
    }

    /// The code whose symbols, of at most 2047, have codes of these lengths, 0 of those that have none. False if there
    /// is none such.
    pub(super) fn set(&mut self, lengths: &[u8]) -> bool {
        self.only = None;
        let mut counts = [0_u32; LONGEST + 1];
        for &length in lengths {
            let Some(count) = counts.get_mut(usize::from(length)) else { return false };
            *count += 1;
        }
        counts[0] = 0;
        let (mut end, mut start) = (0_u32, 0_u16);
        for (length, &count) in counts.iter().enumerate().skip(1) {
            self.starts[length] = start;
            start += count as u16;
            end += count << (LONGEST - length);
            self.ends[length] = end;
        }
        if end > 1 << LONGEST || lengths.len() > 2047 {
            return false;
        }
        self.symbols.clear();
        self.symbols.resize(usize::from(start), 0);
        let mut next = self.starts;
        for (symbol, &length) in lengths.iter().enumerate().filter(|(_, length)| **length > 0) {
            let at = &mut next[usize::from(length)];
            self.symbols[usize::from(*at)] = symbol as u16;
            *at += 1;
        }
        self.quick.fill(0);
        let mut first = 0;
        for (length, &count) in counts.iter().enumerate().take(QUICK + 1).skip(1) {
            let width = 1 << (QUICK - length);
            for number in 0..usize::from(count as u16) {
                let symbol = self.symbols[usize::from(self.starts[length]) + number];
                self.quick[first..first + width].fill(symbol << 5 | length as u16);
                first += width;
            }
        }
        true
    }

    /// The symbol that the next 16 bits begin with, and the bits that its code has; `None` if that stands for nothing.
    #[inline]
    pub(super) fn find(&self, code: u16) -> Option<(u16, u32)> {
        if let Some(only) = self.only {
            return Some((only, 0));
        }
        let quick = self.quick[usize::from(code >> (LONGEST - QUICK))];
        if quick != 0 {
            return Some((quick >> 5, u32::from(quick & 31)));
        }
        let code = u32::from(code);
        for length in QUICK + 1..=LONGEST {
            if code < self.ends[length] {
                let number = (code - self.ends[length - 1]) >> (LONGEST - length);
                let symbol = self.symbols.get(usize::from(self.starts[length]) + number as usize)?;
                return Some((*symbol, length as u32));
            }
        }
        None
    }

    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.quick) + self.symbols.capacity() * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_found_by_their_codes() {
        let mut code = Prefix::new();
        // 0, 10, 110, 1110, 111100000000 and what follows it.
        assert!(code.set(&[1, 2, 3, 4, 12, 16]));
        for (bits, expected) in [
            (0x0000, Some((0, 1))),
            (0x7fff, Some((0, 1))),
            (0x8000, Some((1, 2))),
            (0xc000, Some((2, 3))),
            (0xe000, Some((3, 4))),
            (0xf000, Some((4, 12))),
            (0xf00f, Some((4, 12))),
            (0xf010, Some((5, 16))),
            (0xf011, None),
            (0xffff, None),
        ] {
            assert_eq!(code.find(bits), expected, "{bits:x}");
        }
        assert!(!code.set(&[1, 1, 1]) && !code.set(&[17]));
        assert!(code.set(&[0, 0]) && code.find(0).is_none());
        code.set_only(7);
        assert_eq!(code.find(0xffff), Some((7, 0)));
        assert!(code.memory() > 0);
    }
}
