//! The bits of deflate data, the first bit of each byte lowest (RFC 1951 §3.1.1).

/// Reads bits from a slice. Up to 7 bits of a byte that an earlier slice ended with may come first.
pub(super) struct BitReader<'a> {
    pub(super) input: &'a [u8],
    /// Next byte of `input` that is not in `buffer`.
    pub(super) next: usize,
    /// The next bit lowest. Above `count` may be bits of the input, which will come again, or zeros.
    pub(super) buffer: u64,
    /// How many bits of `buffer` count.
    pub(super) count: u32,
}

impl<'a> BitReader<'a> {
    /// Reads the `count` bits of `buffer` (at most 7), then `input`.
    pub(super) fn new(buffer: u8, count: u8, input: &'a [u8]) -> Self {
        Self { input, next: 0, buffer: u64::from(buffer), count: u32::from(count) }
    }

    /// Makes at least 56 bits ready, or all there are.
    pub(super) fn refill(&mut self) {
        if let Some(&word) = self.input.get(self.next..).and_then(|rest| rest.first_chunk()) {
            self.buffer |= u64::from_le_bytes(word) << self.count;
            self.next += ((63 - self.count) >> 3) as usize;
            // Adds 8 for each byte taken: at least 56 are ready now.
            self.count |= 0b11_1000;
            return;
        }
        self.buffer &= (1 << self.count) - 1;
        while self.count < 56 {
            let Some(&byte) = self.input.get(self.next) else { return };
            self.buffer |= u64::from(byte) << self.count;
            self.next += 1;
            self.count += 8;
        }
    }

    /// Takes `count` bits that are ready.
    pub(super) fn consume(&mut self, count: u32) {
        self.buffer >>= count;
        self.count -= count;
    }

    /// Takes the next `count` bits (at most 32); `None` if the input ends before.
    pub(super) fn bits(&mut self, count: u32) -> Option<u32> {
        if self.count < count {
            self.refill();
            if self.count < count {
                return None;
            }
        }
        let bits = self.buffer & ((1 << count) - 1);
        self.consume(count);
        Some(bits as u32)
    }

    /// Puts whole bytes back, so that less than 8 bits are ready. Returns these and their number.
    pub(super) fn put_back(&mut self) -> (u8, u8) {
        self.next -= (self.count / 8) as usize;
        self.count %= 8;
        self.buffer &= (1 << self.count) - 1;
        (self.buffer as u8, self.count as u8)
    }

    /// Skips to the start of a byte.
    pub(super) fn align(&mut self) {
        self.put_back();
        (self.buffer, self.count) = (0, 0);
    }
}
