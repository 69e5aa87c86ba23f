//! LZMS, of which nothing was published: what is known was found out by wimlib's author.
//!
//! Bits that say what comes are coded in ranges, in words of 16 bits from the start; all else is in prefix codes, in
//! words from the end. The codes follow from how often each symbol has come. Matches copy bytes, or add the differences
//! that bytes elsewhere have to those some places before them. Behind that, addresses in code of x86 are relative
//! again.

use super::super::prefix::Prefix;

const CUT: &str = "LZMS data that end too early";
const NOT_THERE: &str = "LZMS data with a match that leads to what is not there";

/// Bits of the longest code.
const LONGEST: usize = 15;

/// Distances are counted from the first of a slot; the steps from one slot to the next are powers of two, so many times
/// each.
const STEPS_OF_OFFSETS: [u8; 21] = [9, 0, 9, 7, 10, 15, 15, 20, 20, 30, 33, 40, 42, 45, 60, 73, 80, 85, 95, 105, 6];
const STEPS_OF_LENGTHS: [u8; 17] = [27, 4, 6, 4, 5, 2, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1];
const END_OF_OFFSETS: u32 = 0x7fff_ffff;
const END_OF_LENGTHS: u32 = 0x4001_08ab;

/// How near to each other two addresses that are one have to be, and how far behind them code reaches.
const SAME_ADDRESS: i64 = 65_535;
const CODE: i64 = 1023;
/// Bytes at the end in which no instruction begins.
const TAIL: usize = 16;

/// The first value of a slot, and the bits that are added.
struct Slots(Vec<(u32, u32)>);

impl Slots {
    fn new(steps: &[u8], end: u32) -> Self {
        let (mut base, mut slots) = (0_u32, Vec::new());
        for (power, &count) in steps.iter().enumerate() {
            for _ in 0..count {
                base += 1 << power;
                slots.push((base, 0));
            }
        }
        let nexts: Vec<u32> = slots.iter().skip(1).map(|(base, _)| *base).chain([end]).collect();
        for ((base, bits), next) in slots.iter_mut().zip(nexts) {
            *bits = (next - *base).ilog2();
        }
        Self(slots)
    }

    /// How many it takes for values below `end`.
    fn below(&self, end: usize) -> usize {
        self.0.partition_point(|(base, _)| (*base as usize) < end).max(1)
    }
}

/// A code that follows from how often its symbols came.
struct Learning {
    prefix: Prefix,
    counts: Vec<u32>,
    lengths: Vec<u8>,
    /// Symbols after which it changes, and how many are left of these.
    every: u32,
    left: u32,
    /// For making it.
    sorted: Vec<u64>,
    nodes: Vec<(u64, u32)>,
}

impl Learning {
    fn new(every: u32) -> Self {
        let (counts, lengths, sorted, nodes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { prefix: Prefix::new(), counts, lengths, every, left: 0, sorted, nodes }
    }

    fn reset(&mut self, symbols: usize) {
        self.counts.clear();
        self.counts.resize(symbols, 1);
        self.lengths.clear();
        // A code of one symbol has another one that never comes.
        self.lengths.resize(symbols.max(2), 0);
        self.make();
    }

    /// Makes the code: two of the rarest nodes become one, leaves first. Codes that would be too long are shortened.
    fn make(&mut self) {
        self.left = self.every;
        let symbols = self.counts.len();
        if symbols < 2 {
            self.lengths.fill(1);
            self.prefix.set(&self.lengths);
            return;
        }
        self.sorted.clear();
        self.sorted
            .extend(self.counts.iter().enumerate().map(|(symbol, count)| u64::from(*count) << 32 | symbol as u64));
        self.sorted.sort_unstable();
        // The weight of an inner node, and then which one it lies below.
        self.nodes.clear();
        let (mut leaf, mut inner) = (0, 0);
        for made in 0..symbols - 1 {
            let mut weight = 0;
            for _ in 0..2 {
                let of_leaf = self.sorted.get(leaf).map(|key| key >> 32);
                let of_inner = self.nodes.get(inner).map(|(weight, _)| *weight);
                match (of_leaf, of_inner) {
                    (Some(light), heavy) if heavy.is_none_or(|heavy| light <= heavy) => {
                        weight += light;
                        leaf += 1;
                    }
                    (_, of_inner) => {
                        weight += of_inner.unwrap_or_default();
                        if let Some((_, parent)) = self.nodes.get_mut(inner) {
                            *parent = made as u32;
                        }
                        inner += 1;
                    }
                }
            }
            self.nodes.push((weight, 0));
        }
        let mut of_length = [0_u32; LONGEST + 2];
        of_length[1] = 2;
        let root = self.nodes.len() - 1;
        // From now on their depth.
        self.nodes[root].0 = 0;
        for node in (0..root).rev() {
            let depth = self.nodes[self.nodes[node].1 as usize].0 + 1;
            self.nodes[node].0 = depth;
            let mut length = (depth as usize).min(LONGEST);
            if length == LONGEST {
                length -= 1;
                while of_length[length] == 0 {
                    length -= 1;
                }
            }
            of_length[length] -= 1;
            of_length[length + 1] += 2;
        }
        let mut next = self.sorted.iter();
        for length in (1..=LONGEST).rev() {
            for key in next.by_ref().take(of_length[length] as usize) {
                self.lengths[*key as u32 as usize] = length as u8;
            }
        }
        self.prefix.set(&self.lengths);
    }

    fn symbol(&mut self, bits: &mut Backwards<'_>) -> Result<usize, &'static str> {
        bits.ensure(LONGEST as u32);
        let (symbol, length) = self.prefix.find((bits.word >> 48) as u16).ok_or("LZMS data with a code for nothing")?;
        bits.consume(length)?;
        let symbol = usize::from(symbol);
        if let Some(count) = self.counts.get_mut(symbol) {
            *count += 1;
        }
        self.left -= 1;
        if self.left == 0 {
            self.make();
            for count in &mut self.counts {
                *count = (*count >> 1) + 1;
            }
        }
        Ok(symbol)
    }

    fn value(&mut self, slots: &Slots, bits: &mut Backwards<'_>) -> Result<u32, &'static str> {
        let symbol = self.symbol(bits)?;
        let (base, extra) = *slots.0.get(symbol).ok_or(NOT_THERE)?;
        base.checked_add(bits.take(extra)?).ok_or(NOT_THERE)
    }

    fn memory(&self) -> usize {
        self.prefix.memory() + self.counts.capacity() * 5 + self.sorted.capacity() * 8 + self.nodes.capacity() * 16
    }
}

/// Bits in words that are read from the last one on.
struct Backwards<'b> {
    bytes: &'b [u8],
    word: u64,
    count: u32,
    missing: u32,
}

impl Backwards<'_> {
    fn ensure(&mut self, count: u32) {
        while self.count < count {
            let next = if let Some((before, word)) = self.bytes.split_last_chunk() {
                self.bytes = before;
                u16::from_le_bytes(*word)
            } else {
                self.missing += 16;
                0
            };
            self.word |= u64::from(next) << (48 - self.count);
            self.count += 16;
        }
    }

    fn consume(&mut self, count: u32) -> Result<(), &'static str> {
        self.word <<= count;
        self.count -= count;
        if self.count < self.missing { Err(CUT) } else { Ok(()) }
    }

    /// At most 32 bits.
    fn take(&mut self, count: u32) -> Result<u32, &'static str> {
        if count == 0 {
            return Ok(0);
        }
        self.ensure(count);
        let bits = (self.word >> (64 - count)) as u32;
        self.consume(count)?;
        Ok(bits)
    }
}

/// A bit of a kind: how likely it is depends on the last ones of that kind, and on the last 64 that came behind these.
struct Likely<const STATES: usize> {
    state: usize,
    /// The last bits, and how many of them were 0.
    last: [(u64, u32); STATES],
}

impl<const STATES: usize> Likely<STATES> {
    fn new() -> Self {
        Self { state: 0, last: [(0x5555_5555, 48); STATES] }
    }

    fn bit(&mut self, ranges: &mut Ranges<'_>) -> bool {
        let (last, zeros) = &mut self.last[self.state];
        let bit = ranges.bit((*zeros).clamp(1, 63));
        *zeros = *zeros + (*last >> 63) as u32 - u32::from(bit);
        *last = *last << 1 | u64::from(bit);
        self.state = (self.state << 1 | usize::from(bit)) & (STATES - 1);
        bit
    }
}

/// What decodes these bits.
struct Ranges<'b> {
    bytes: &'b [u8],
    range: u32,
    code: u32,
}

impl Ranges<'_> {
    fn word(&mut self) -> u32 {
        let Some((word, rest)) = self.bytes.split_first_chunk() else { return 0 };
        self.bytes = rest;
        u32::from(u16::from_le_bytes(*word))
    }

    fn bit(&mut self, zeros_of_64: u32) -> bool {
        if self.range <= 0xffff {
            self.range <<= 16;
            self.code = self.code << 16 | self.word();
        }
        let bound = (self.range >> 6) * zeros_of_64;
        if self.code < bound {
            self.range = bound;
            return false;
        }
        self.range -= bound;
        self.code -= bound;
        true
    }
}

/// Distances that came last. One comes to the front only once another item was read; the number of the first that may
/// be meant is `skip`.
struct Recent<T>([T; 4]);

impl<T: Copy> Recent<T> {
    fn take(&mut self, number: usize, skip: usize) -> T {
        let place = number + skip;
        let taken = self.0[place];
        self.0.copy_within(number..=number, place);
        self.0.copy_within(0..number, 1);
        self.0[0] = taken;
        taken
    }

    fn push(&mut self, value: T) {
        self.0.copy_within(0..3, 1);
        self.0[0] = value;
    }
}

/// The decoder, which is used for one chunk after the other.
pub(super) struct Lzms {
    offsets: Slots,
    lengths: Slots,
    literal: Learning,
    offset: Learning,
    length: Learning,
    delta_offset: Learning,
    delta_power: Learning,
    /// Where each address, by its lowest 16 bits, was met last.
    addresses: Vec<i32>,
}

impl Lzms {
    pub(super) fn new() -> Self {
        Self {
            offsets: Slots::new(&STEPS_OF_OFFSETS, END_OF_OFFSETS),
            lengths: Slots::new(&STEPS_OF_LENGTHS, END_OF_LENGTHS),
            literal: Learning::new(1024),
            offset: Learning::new(1024),
            length: Learning::new(512),
            delta_offset: Learning::new(1024),
            delta_power: Learning::new(512),
            addresses: Vec::new(),
        }
    }

    /// Decodes all of `stored` to all of `decoded`.
    pub(super) fn decode(&mut self, stored: &[u8], decoded: &mut [u8]) -> Result<(), &'static str> {
        if stored.len() < 4 || stored.len() % 2 == 1 {
            return Err(CUT);
        }
        let slots = self.offsets.below(decoded.len());
        let codes = [
            (&mut self.literal, 256),
            (&mut self.offset, slots),
            (&mut self.length, self.lengths.0.len()),
            (&mut self.delta_offset, slots),
            (&mut self.delta_power, 8),
        ];
        for (code, symbols) in codes {
            code.reset(symbols);
        }
        let mut ranges = Ranges { bytes: stored, range: u32::MAX, code: 0 };
        ranges.code = ranges.word() << 16;
        ranges.code |= ranges.word();
        let mut bits = Backwards { bytes: stored, word: 0, count: 0, missing: 0 };
        let (mut is_match, mut is_delta) = (Likely::<16>::new(), Likely::<32>::new());
        let (mut is_known, mut is_other) = (Likely::<64>::new(), [Likely::<64>::new(), Likely::<64>::new()]);
        let (mut is_known_delta, mut is_other_delta) =
            (Likely::<64>::new(), [Likely::<64>::new(), Likely::<64>::new()]);
        let mut recent = Recent([1_u32, 2, 3, 4]);
        let mut recent_deltas = Recent([(0_u32, 1_u32), (0, 2), (0, 3), (0, 4)]);
        // Whether the item before was a match of either kind.
        let (mut was_match, mut was_delta) = (false, false);
        let mut done = 0;
        while done < decoded.len() {
            if !is_match.bit(&mut ranges) {
                decoded[done] = self.literal.symbol(&mut bits)? as u8;
                done += 1;
                (was_match, was_delta) = (false, false);
                continue;
            }
            if !is_delta.bit(&mut ranges) {
                let distance = if is_known.bit(&mut ranges) {
                    recent.take(which(&mut is_other, &mut ranges), usize::from(was_match))
                } else {
                    let distance = self.offset.value(&self.offsets, &mut bits)?;
                    recent.push(distance);
                    distance
                } as usize;
                (was_match, was_delta) = (true, false);
                let length = self.length.value(&self.lengths, &mut bits)? as usize;
                let end = done.checked_add(length).filter(|end| *end <= decoded.len() && distance <= done);
                let end = end.ok_or(NOT_THERE)?;
                if distance >= length {
                    decoded.copy_within(done - distance..done - distance + length, done);
                } else {
                    for at in done..end {
                        decoded[at] = decoded[at - distance];
                    }
                }
                done = end;
                continue;
            }
            let (power, raw) = if is_known_delta.bit(&mut ranges) {
                recent_deltas.take(which(&mut is_other_delta, &mut ranges), usize::from(was_delta))
            } else {
                let power = self.delta_power.symbol(&mut bits)? as u32;
                let pair = (power, self.delta_offset.value(&self.offsets, &mut bits)?);
                recent_deltas.push(pair);
                pair
            };
            (was_match, was_delta) = (false, true);
            let length = self.length.value(&self.lengths, &mut bits)? as usize;
            let (span, distance) = (1_usize << power, (raw as usize) << power);
            let end = done.checked_add(length).filter(|end| *end <= decoded.len() && distance + span <= done);
            for at in done..end.ok_or(NOT_THERE)? {
                let difference = decoded[at - span].wrapping_sub(decoded[at - distance - span]);
                decoded[at] = decoded[at - distance].wrapping_add(difference);
            }
            done += length;
        }
        self.restore_code(decoded);
        Ok(())
    }

    /// Makes addresses in code of x86 relative again, where two nearby ones that are the same show that it is code.
    fn restore_code(&mut self, data: &mut [u8]) {
        let Some(end) = data.len().checked_sub(TAIL).filter(|end| *end > 1) else { return };
        self.addresses.clear();
        self.addresses.resize(1 << 16, -(SAME_ADDRESS as i32) - 1);
        let mut code_at = -CODE - 1;
        // Nothing begins with the first byte.
        let mut at = 1;
        while at < end {
            let (length, reach) = match data[at..] {
                [0x48, 0x8b, 0x05 | 0x0d, ..] | [0xf0, 0x83, 0x05, ..] => (3, CODE),
                [0x48 | 0x4c, 0x8d, third, ..] if third & 7 == 5 => (3, CODE),
                [0xe8, ..] => (1, CODE / 2),
                [0xff, 0x15, ..] => (2, CODE),
                [0xe9, ..] => {
                    at += 5;
                    continue;
                }
                _ => {
                    at += 1;
                    continue;
                }
            };
            let Some(bytes) = data[at + length..].first_chunk_mut::<4>() else { return };
            if at as i64 - code_at <= reach {
                *bytes = u32::from_le_bytes(*bytes).wrapping_sub(at as u32).to_le_bytes();
            }
            let address = usize::from((at as u16).wrapping_add(u16::from_le_bytes([bytes[0], bytes[1]])));
            at += length + 3;
            if at as i64 - i64::from(self.addresses[address]) <= SAME_ADDRESS {
                code_at = at as i64;
            }
            self.addresses[address] = at as i32;
            at += 1;
        }
    }

    pub(super) fn memory(&self) -> usize {
        let codes = [&self.literal, &self.offset, &self.length, &self.delta_offset, &self.delta_power];
        codes.map(Learning::memory).iter().sum::<usize>()
            + self.addresses.capacity() * 4
            + self.offsets.0.capacity() * 8
    }
}

/// The number of one of the last three.
fn which(is_other: &mut [Likely<64>; 2], ranges: &mut Ranges<'_>) -> usize {
    let [first, second] = is_other;
    if !first.bit(ranges) {
        0
    } else if second.bit(ranges) {
        2
    } else {
        1
    }
}
