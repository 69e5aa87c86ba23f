//! The range coder of RAR: carries are put off until the range is small.

use std::io;

use super::super::bits::Bits;

const TOP: u32 = 1 << 24;
const BOTTOM: u32 = 1 << 15;

#[derive(Default)]
pub(super) struct Range {
    low: u32,
    code: u32,
    width: u32,
}

impl Range {
    /// Begins the data of a block.
    pub(super) fn begin(&mut self, bits: &mut Bits) -> io::Result<()> {
        (self.low, self.width, self.code) = (0, u32::MAX, 0);
        for _ in 0..4 {
            self.code = self.code << 8 | u32::from(bits.byte()?);
        }
        Ok(())
    }

    /// Which of `total` values comes next.
    #[inline]
    pub(super) fn threshold(&mut self, total: u32, bits: &Bits) -> io::Result<u32> {
        self.width /= total.max(1);
        let count = self.code.wrapping_sub(self.low).checked_div(self.width);
        count.ok_or_else(|| super::invalid(bits))
    }

    /// True if what comes is below `count` of all 2 to the power of `bits_of_all` values.
    #[inline]
    pub(super) fn is_below(&mut self, count: u32, bits_of_all: u32, bits: &Bits) -> io::Result<bool> {
        self.width >>= bits_of_all;
        if self.width == 0 {
            return Err(super::invalid(bits));
        }
        Ok(self.code.wrapping_sub(self.low) < count.wrapping_mul(self.width))
    }

    /// Goes on with what is `size` of all values, from `start` on.
    #[inline]
    pub(super) fn narrow(&mut self, start: u32, size: u32, bits: &mut Bits) -> io::Result<()> {
        self.low = self.low.wrapping_add(start.wrapping_mul(self.width));
        self.width = self.width.wrapping_mul(size);
        loop {
            if self.low ^ self.low.wrapping_add(self.width) >= TOP {
                if self.width >= BOTTOM {
                    return Ok(());
                }
                self.width = self.low.wrapping_neg() & (BOTTOM - 1);
            }
            self.code = self.code << 8 | u32::from(bits.byte()?);
            self.width <<= 8;
            self.low <<= 8;
        }
    }
}
