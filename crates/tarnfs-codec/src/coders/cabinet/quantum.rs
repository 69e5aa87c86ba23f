//! Quantum: an arithmetic coder over models that learn, for literals, lengths and distances.
//!
//! Nothing was ever published of it by who made it. What is known comes from those who have taken it apart (Matthew
//! Russotto, "Quantum compression"). Each block of a cabinet begins anew with the coder, and goes on with the models
//! and the window.

use super::BLOCK;

/// What a symbol that was seen counts more, and the sum at which all are made smaller.
const STEP: u16 = 8;
const MOST: u16 = 3800;

/// Times that a model is made smaller before it is sorted: at first, and then.
const FIRST_SORT: u8 = 4;
const NEXT_SORT: u8 = 50;

/// Symbols of the models of lengths and distances.
const LENGTHS: usize = 27;
const SHORT: usize = 24;
const MIDDLE: usize = 36;

/// Symbols of the model that says what comes next: four kinds of literals, three of matches.
const SELECTORS: usize = 7;
const LITERALS: usize = 4;
const PER_KIND: usize = 64;

type Outcome<T> = Result<T, &'static str>;

/// Symbols with what all from each on count together. The most frequent ones come first.
struct Model {
    symbols: Vec<(u16, u16)>,
    until_sorted: u8,
}

impl Model {
    /// Symbols from `first` on, which count the same.
    fn new(first: usize, count: usize) -> Self {
        let symbols = (0..=count).map(|place| ((first + place) as u16, (count - place) as u16)).collect();
        Self { symbols, until_sorted: FIRST_SORT }
    }

    fn total(&self) -> u16 {
        self.symbols.first().map_or(0, |first| first.1)
    }

    /// Counts the symbol at `place` once more.
    fn count(&mut self, place: usize) {
        for symbol in &mut self.symbols[..=place] {
            symbol.1 += STEP;
        }
        if self.total() > MOST {
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        let last = self.symbols.len() - 1;
        self.until_sorted -= 1;
        if self.until_sorted > 0 {
            for place in (0..last).rev() {
                let behind = self.symbols[place + 1].1;
                let count = &mut self.symbols[place].1;
                *count = (*count >> 1).max(behind + 1);
            }
            return;
        }
        self.until_sorted = NEXT_SORT;
        // Each by itself, halved and rounded up.
        for place in 0..last {
            let own = self.symbols[place].1 - self.symbols[place + 1].1;
            self.symbols[place].1 = (own + 1) >> 1;
        }
        // As it is done by the compressor: where several count the same, their order is what this makes of it.
        for place in 0..last {
            for other in place + 1..last {
                if self.symbols[place].1 < self.symbols[other].1 {
                    self.symbols.swap(place, other);
                }
            }
        }
        for place in (0..last).rev() {
            self.symbols[place].1 += self.symbols[place + 1].1;
        }
    }

    fn memory(&self) -> usize {
        self.symbols.capacity() * size_of::<(u16, u16)>()
    }
}

pub(super) struct Quantum {
    window: Vec<u8>,
    mask: usize,
    total: u64,
    selectors: Model,
    literals: [Model; LITERALS],
    /// Of distances of matches of 3, of 4, and of more bytes.
    distances: [Model; 3],
    lengths: Model,
}

/// The coder in one block.
struct Coder<'b> {
    bytes: &'b [u8],
    /// The next bit.
    bit: usize,
    low: u16,
    high: u16,
    code: u16,
}

impl<'b> Coder<'b> {
    /// Bits behind the end that may be asked for: the coder reads ahead.
    const AHEAD: usize = 32;

    fn new(bytes: &'b [u8]) -> Outcome<Self> {
        let mut coder = Self { bytes, bit: 0, low: 0, high: u16::MAX, code: 0 };
        coder.code = coder.take(16)? as u16;
        Ok(coder)
    }

    fn take(&mut self, count: u32) -> Outcome<u32> {
        let mut bits = 0;
        for _ in 0..count {
            let byte = self.bytes.get(self.bit / 8).copied().unwrap_or_default();
            bits = bits << 1 | u32::from(byte >> (7 - self.bit % 8) & 1);
            self.bit += 1;
        }
        if self.bit > self.bytes.len() * 8 + Self::AHEAD {
            return Err("the Quantum data of a block end too early");
        }
        Ok(bits)
    }

    fn symbol(&mut self, model: &mut Model) -> Outcome<usize> {
        let total = u32::from(model.total());
        let range = u32::from(self.high.wrapping_sub(self.low)) + 1;
        let ahead = u32::from(self.code.wrapping_sub(self.low)) + 1;
        let wanted = (((ahead * total).wrapping_sub(1) / range) & 0xffff) as u16;
        let last = model.symbols.len() - 1;
        let behind = (1..last).find(|&place| model.symbols[place].1 <= wanted).unwrap_or(last);
        let (symbol, upper) = model.symbols[behind - 1];
        let lower = model.symbols[behind].1;
        let low = u32::from(self.low);
        self.high = (low + u32::from(upper) * range / total).wrapping_sub(1) as u16;
        self.low = (low + u32::from(lower) * range / total) as u16;
        model.count(behind - 1);
        loop {
            if (self.low ^ self.high) & 0x8000 != 0 {
                if self.low & 0x4000 == 0 || self.high & 0x4000 != 0 {
                    return Ok(usize::from(symbol));
                }
                // They come near each other without having a bit in common.
                self.code ^= 0x4000;
                self.low &= 0x3fff;
                self.high |= 0x4000;
            }
            self.low <<= 1;
            self.high = self.high << 1 | 1;
            self.code = self.code << 1 | self.take(1)? as u16;
        }
    }

    /// A number that is told as a slot with some more bits: of distances, which begin at 0.
    fn distance(&mut self, model: &mut Model) -> Outcome<u64> {
        let slot = self.symbol(model)?;
        let extra = if slot < 4 { 0 } else { slot as u32 / 2 - 1 };
        let base = if slot < 4 { slot as u32 } else { (2 + (slot as u32 & 1)) << extra };
        Ok(u64::from(base) + u64::from(self.take(extra)?) + 1)
    }

    /// The length of a match of five bytes or more.
    fn length(&mut self, model: &mut Model) -> Outcome<usize> {
        let slot = self.symbol(model)?;
        if slot == LENGTHS - 1 {
            return Ok(254 + 5);
        }
        let extra = if slot < 6 { 0 } else { (slot as u32 - 2) / 4 };
        let base = if slot < 6 { slot as u32 } else { ((4 + (slot as u32 - 6) % 4) << extra) - 2 };
        Ok((base + self.take(extra)?) as usize + 5)
    }
}

impl Quantum {
    /// With a window of that power of two; `None` if there is none such.
    pub(super) fn new(window: u8) -> Option<Self> {
        if !(10..=21).contains(&window) {
            return None;
        }
        let slots = usize::from(window) * 2;
        Some(Self {
            window: Vec::new(),
            mask: (1 << window) - 1,
            total: 0,
            selectors: Model::new(0, SELECTORS),
            literals: std::array::from_fn(|kind| Model::new(kind * PER_KIND, PER_KIND)),
            distances: [slots.min(SHORT), slots.min(MIDDLE), slots].map(|count| Model::new(0, count)),
            lengths: Model::new(0, LENGTHS),
        })
    }

    pub(super) fn decode(&mut self, stored: &[u8], decoded: &mut [u8]) -> Outcome<()> {
        if self.window.is_empty() {
            self.window.resize(self.mask + 1, 0);
        }
        debug_assert!(decoded.len() <= BLOCK);
        let mut coder = Coder::new(stored)?;
        let mut at = 0;
        while at < decoded.len() {
            let kind = coder.symbol(&mut self.selectors)?;
            if let Some(model) = self.literals.get_mut(kind) {
                let byte = coder.symbol(model)? as u8;
                decoded[at] = byte;
                at += 1;
                self.push(byte);
                continue;
            }
            let [short, middle, long] = &mut self.distances;
            let (length, distance) = match kind - LITERALS {
                0 => (3, coder.distance(short)?),
                1 => (4, coder.distance(middle)?),
                _ => (coder.length(&mut self.lengths)?, coder.distance(long)?),
            };
            if distance > self.total || distance as usize > self.mask + 1 {
                return Err("Quantum data that refer to what is not there");
            }
            let part = decoded.get_mut(at..at + length).ok_or("Quantum data that go over the end of their block")?;
            for byte in part {
                *byte = self.window[(self.total as usize).wrapping_sub(distance as usize) & self.mask];
                self.window[self.total as usize & self.mask] = *byte;
                self.total += 1;
            }
            at += length;
        }
        Ok(())
    }

    fn push(&mut self, byte: u8) {
        self.window[self.total as usize & self.mask] = byte;
        self.total += 1;
    }

    pub(super) fn memory(&self) -> usize {
        let models = self.literals.iter().chain(&self.distances).chain([&self.selectors, &self.lengths]);
        size_of::<Self>() + self.window.capacity() + models.map(Model::memory).sum::<usize>()
    }
}
