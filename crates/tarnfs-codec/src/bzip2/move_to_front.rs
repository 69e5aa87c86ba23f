//! Bytes in the order of their last use, the latest first.
//!
//! In rows of 16 bytes: two thirds of the positions of real data are in the first row, which stays in a register, and
//! for a far position each row before it is shifted by one byte at once.

#![allow(clippy::inline_always, reason = "one instruction of the loop over the symbols")]

/// A list of up to 256 bytes, of which one at a time moves to the front.
pub(super) trait MoveToFront {
    /// A list that begins with the first 256 of `bytes`, in their order.
    fn new(bytes: &[u8]) -> Self;

    /// The first byte.
    fn front(&self) -> u8;

    /// Moves the byte at `position` (below 256) to the front and returns it.
    fn take(&mut self, position: usize) -> u8;
}

/// For any processor.
#[derive(Debug)]
pub(super) struct Portable([u128; 16]);

impl MoveToFront for Portable {
    fn new(bytes: &[u8]) -> Self {
        Self(rows(bytes).map(u128::from_le_bytes))
    }

    #[inline(always)]
    fn front(&self) -> u8 {
        self.0[0] as u8
    }

    #[inline(always)]
    fn take(&mut self, position: usize) -> u8 {
        let (row, column) = (position / 16 % 16, position % 16 * 8);
        let byte = (self.0[row] >> column) as u8;
        let mut carried = byte;
        for passed in &mut self.0[..row] {
            let last = (*passed >> 120) as u8;
            *passed = *passed << 8 | u128::from(carried);
            carried = last;
        }
        // The bytes behind the column stay. Two shifts, because one by 128 bits would be none.
        let behind = !0_u128 << column << 8;
        self.0[row] = (self.0[row] & behind) | ((self.0[row] << 8) & !behind) | u128::from(carried);
        byte
    }
}

/// For x86-64 processors with [`Shuffled::is_available`]: one instruction moves a byte of the first row to the front.
#[cfg(target_arch = "x86_64")]
#[derive(Debug)]
pub(super) struct Shuffled {
    first: std::arch::x86_64::__m128i,
    others: [std::arch::x86_64::__m128i; 15],
}

#[cfg(target_arch = "x86_64")]
mod shuffled {
    use std::arch::x86_64::_mm_or_si128;
    use std::arch::x86_64::{
        __m128i, _mm_alignr_epi8, _mm_cvtsi128_si32, _mm_shuffle_epi8, _mm_slli_si128, _mm_srli_si128,
    };

    use super::{MoveToFront, Shuffled, rows};

    /// For each column: the order that brings it to the front.
    static ORDERS: [[u8; 16]; 16] = {
        let mut orders = [[0; 16]; 16];
        let mut column = 0;
        while column < 16 {
            let mut to = 0;
            while to < 16 {
                orders[column][to] = match to {
                    0 => column as u8,
                    _ if to <= column => to as u8 - 1,
                    _ => to as u8,
                };
                to += 1;
            }
            column += 1;
        }
        orders
    };

    fn load(row: &[u8; 16]) -> __m128i {
        // SAFETY: both are 16 bytes of which every pattern is valid.
        unsafe { std::mem::transmute::<[u8; 16], __m128i>(*row) }
    }

    impl Shuffled {
        /// True if the processor has the instructions that `take` is made of.
        pub(in super::super) fn is_available() -> bool {
            is_x86_feature_detected!("ssse3")
        }
    }

    impl MoveToFront for Shuffled {
        fn new(bytes: &[u8]) -> Self {
            let [first, others @ ..] = rows(bytes).map(|row| load(&row));
            Self { first, others }
        }

        #[inline(always)]
        fn front(&self) -> u8 {
            // SAFETY: SSE2 is part of every x86-64 processor.
            (unsafe { _mm_cvtsi128_si32(self.first) }) as u8
        }

        #[inline(always)]
        fn take(&mut self, position: usize) -> u8 {
            let order = load(&ORDERS[position % 16]);
            if position < 16 {
                // SAFETY: `is_available` says that the processor has SSSE3; nobody makes a list without asking it.
                self.first = unsafe { _mm_shuffle_epi8(self.first, order) };
                return self.front();
            }
            let row = position / 16 % 16 - 1;
            // SAFETY: as above.
            unsafe {
                let taken = _mm_shuffle_epi8(self.others[row], order);
                let byte = _mm_cvtsi128_si32(taken);
                // In place of the taken byte, now the first, comes the last one of the row before.
                let mut row_before = if row == 0 { self.first } else { self.others[row - 1] };
                self.others[row] =
                    _mm_or_si128(_mm_slli_si128::<1>(_mm_srli_si128::<1>(taken)), _mm_srli_si128::<15>(row_before));
                for at in (0..row).rev() {
                    let before = if at == 0 { self.first } else { self.others[at - 1] };
                    self.others[at] = _mm_alignr_epi8::<15>(row_before, before);
                    row_before = before;
                }
                self.first = _mm_alignr_epi8::<15>(self.first, _mm_slli_si128::<15>(taken));
                byte as u8
            }
        }
    }
}

/// `bytes` in rows, zeros behind them.
fn rows(bytes: &[u8]) -> [[u8; 16]; 16] {
    let mut rows = [[0; 16]; 16];
    for (row, chunk) in rows.iter_mut().zip(bytes.chunks(16)) {
        row[..chunk.len()].copy_from_slice(chunk);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<L: MoveToFront>() {
        let mut expected: Vec<u8> = (0..=255).rev().collect();
        let mut list = L::new(&expected);
        // Each position after many others, near and far.
        for step in 0..5000_usize {
            let position = (step * step / 3 + step) % 256;
            let byte = expected.remove(position);
            expected.insert(0, byte);
            assert_eq!((list.take(position), list.front()), (byte, byte), "step {step}, position {position}");
        }
    }

    #[test]
    fn moves_one_byte_and_shifts_those_before_it() {
        check::<Portable>();
        #[cfg(target_arch = "x86_64")]
        if Shuffled::is_available() {
            check::<Shuffled>();
        }
    }
}
