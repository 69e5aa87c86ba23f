//! Fields of a header, one behind the other.

/// What is left of a header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'h>(pub(super) &'h [u8]);

impl<'h> Fields<'h> {
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'h [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A number of RAR 5: seven bits in each byte, the lowest first, and the highest bit where another one follows.
    pub(super) fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            number |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// A string with its length before it.
    pub(super) fn string(&mut self) -> Option<&'h [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        self.bytes(length)
    }
}
