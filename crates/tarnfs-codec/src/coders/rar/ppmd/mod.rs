//! PPMd variant H with the range coder of RAR, by Dmitry Shkarin, who gave it to the public domain; sources are that of
//! 7-Zip, also in the public domain, and public descriptions.
//!
//! A crate decodes what 7z has of it. In RAR a block may go on with the model of the one before, and with a range coder
//! that begins anew; that it cannot.
//!
//! The model is its `memory`: contexts and their states lie in units of 12 bytes, and refer to each other by offsets,
//! 0 for none. A context of one symbol holds its state itself. What symbols are decoded, and nothing else, decides what
//! is in there, so offsets need no checks beyond those of the language.

mod memory;
mod range;

use std::io;

use super::bits::Bits;
use memory::{Memory, STATE, State};
use range::Range;

const MOST_FREQUENCY: u8 = 124;
const BINARY_BITS: u32 = 14;
const PERIOD_BITS: u8 = 7;
const MOST_ORDER: usize = 64;

const ESCAPES: [u8; 16] = [25, 14, 9, 7, 5, 5, 4, 4, 4, 3, 3, 3, 2, 2, 2, 2];
const BINARY_START: [u16; 8] = [0x3CDD, 0x1F3F, 0x59BF, 0x48F3, 0x64A1, 0x5ABC, 0x6632, 0x6051];

/// How often an escape is to be expected.
#[derive(Clone, Copy, Default)]
struct Escape {
    sum: u16,
    shift: u8,
    count: u8,
}

/// Which of the [`Escape`]s.
#[derive(Clone, Copy)]
enum EscapeOf {
    Context(usize, usize),
    /// A context with all symbols.
    All,
}

pub(super) struct Model {
    memory: Memory,
    range: Range,
    least: u32,
    longest: u32,
    found: u32,
    order: u32,
    order_fall: u32,
    run_length: i32,
    first_run_length: i32,
    first_escape: u32,
    was_success: u32,
    high_bits: u32,

    escape_index: [u8; 256],
    binary: Box<[[u16; 64]; 128]>,
    escapes: Box<[[Escape; 16]; 25]>,
}

fn high_bits_of(symbol: u8) -> u32 {
    if symbol >= 0x40 { 8 } else { 0 }
}

/// Which probabilities of contexts of one symbol, by the number of symbols of the next shorter context.
fn binary_index(symbols: u32) -> u32 {
    match symbols {
        0 | 1 => 0,
        2 => 2,
        3..=11 => 4,
        _ => 6,
    }
}

fn mean(probability: u16) -> u16 {
    (probability + (1 << (PERIOD_BITS - 2))) >> PERIOD_BITS
}

impl Model {
    pub(super) fn new(order: u32, size: u32) -> Self {
        let mut escape_index = [0_u8; 256];
        let (mut value, mut left) = (3, 1);
        for (number, index) in escape_index.iter_mut().enumerate() {
            if number < 3 {
                *index = number as u8;
                continue;
            }
            *index = value;
            left -= 1;
            if left == 0 {
                value += 1;
                left = value - 2;
            }
        }
        let mut model = Self {
            memory: Memory::new(size),
            range: Range::default(),
            least: 0,
            longest: 0,
            found: 0,
            order,
            order_fall: 0,
            run_length: 0,
            first_run_length: 0,
            first_escape: 0,
            was_success: 0,
            high_bits: 0,
            escape_index,
            binary: Box::new([[0; 64]; 128]),
            escapes: Box::new([[Escape::default(); 16]; 25]),
        };
        model.restart(order);
        model
    }

    /// Bytes that it was asked to take.
    pub(super) fn size(&self) -> u32 {
        self.memory.size
    }

    pub(super) fn memory(&self) -> usize {
        self.memory.length() + size_of::<Self>() + size_of_val(&*self.binary) + size_of_val(&*self.escapes)
    }

    /// Forgets all.
    pub(super) fn restart(&mut self, order: u32) {
        self.order = order;
        self.high_bits = 0;
        self.first_escape = 0;
        self.reset();
    }

    fn reset(&mut self) {
        self.order_fall = self.order;
        self.first_run_length = -(self.order.min(12) as i32) - 1;
        self.run_length = self.first_run_length;
        self.was_success = 0;
        let (context, states) = self.memory.clear();
        (self.least, self.longest, self.found) = (context, context, states);
        self.memory.set_u16(context, 256);
        self.memory.set_sum(context, 257);
        self.memory.set_states(context, states);
        self.memory.set_suffix(context, 0);
        for symbol in 0..=255_u8 {
            self.memory.set_state(states + u32::from(symbol) * STATE, State { symbol, frequency: 1, successor: 0 });
        }
        for (frequency, row) in self.binary.iter_mut().enumerate() {
            for (number, probability) in row.iter_mut().enumerate() {
                *probability = (1 << BINARY_BITS) - BINARY_START[number % 8] / (frequency as u16 + 2);
            }
        }
        for (number, row) in self.escapes.iter_mut().enumerate() {
            let shift = PERIOD_BITS - 4;
            row.fill(Escape { sum: (5 * number as u16 + 10) << shift, shift, count: 4 });
        }
    }

    /// New contexts behind the symbol that was found; 0 if there is no room.
    fn create_successors(&mut self, skips_found: bool) -> u32 {
        let mut context = self.least;
        let branch = self.memory.successor(self.found);
        let symbol = self.memory.symbol(self.found);
        let (mut waiting, mut count) = ([0; MOST_ORDER + 1], 0);
        if !skips_found {
            waiting[count] = self.found;
            count += 1;
        }
        while self.memory.suffix(context) != 0 {
            context = self.memory.suffix(context);
            let state = if self.memory.symbols(context) == 1 {
                Memory::only_state(context)
            } else {
                self.memory.find(self.memory.states(context), symbol)
            };
            let successor = self.memory.successor(state);
            if successor != branch {
                context = successor;
                if count == 0 {
                    return context;
                }
                break;
            }
            if count == waiting.len() {
                return 0;
            }
            waiting[count] = state;
            count += 1;
        }
        let symbol = self.memory.byte(branch);
        let frequency = if self.memory.symbols(context) == 1 {
            self.memory.frequency(Memory::only_state(context))
        } else {
            let state = self.memory.find(self.memory.states(context), symbol);
            let own = u32::from(self.memory.frequency(state)) - 1;
            let others = self.memory.sum(context).wrapping_sub(self.memory.symbols(context)).wrapping_sub(own);
            let more = if 2 * own <= others {
                u32::from(5 * own > others)
            } else {
                (2 * own + 3 * others - 1) / (2 * others).max(1)
            };
            1 + more as u8
        };
        let state = State { symbol, frequency, successor: branch + 1 };
        for &before in waiting[..count].iter().rev() {
            let new = self.memory.allocate_context();
            if new == 0 {
                return 0;
            }
            self.memory.set_u16(new, 1);
            self.memory.set_state(Memory::only_state(new), state);
            self.memory.set_suffix(new, context);
            self.memory.set_successor(before, new);
            context = new;
        }
        context
    }

    fn update(&mut self) {
        if !self.try_update() {
            self.reset();
        }
    }

    /// False if there is no room.
    fn try_update(&mut self) -> bool {
        let found = self.memory.state(self.found);
        let suffix = self.memory.suffix(self.least);
        if found.frequency < MOST_FREQUENCY / 4 && suffix != 0 {
            self.count_in_suffix(suffix, found.symbol);
        }
        let mut behind = self.memory.successor(self.found);
        if self.order_fall == 0 {
            let context = self.create_successors(true);
            (self.least, self.longest) = (context, context);
            if context == 0 {
                return false;
            }
            self.memory.set_successor(self.found, context);
            return true;
        }
        self.memory.set_byte(self.memory.text, found.symbol);
        self.memory.text += 1;
        let mut successor = self.memory.text;
        if self.memory.text >= self.memory.units_start {
            return false;
        }
        if behind == 0 {
            self.memory.set_successor(self.found, successor);
            behind = self.least;
        } else {
            // It is text, and no context yet.
            if behind < self.memory.units_start {
                behind = self.create_successors(false);
                if behind == 0 {
                    return false;
                }
            }
            self.order_fall -= 1;
            if self.order_fall == 0 {
                successor = behind;
                self.memory.text -= u32::from(self.longest != self.least);
            }
        }
        self.add_to_longer(successor) && {
            (self.least, self.longest) = (behind, behind);
            true
        }
    }

    /// Counts the symbol in the next shorter context, too.
    fn count_in_suffix(&mut self, suffix: u32, symbol: u8) {
        if self.memory.symbols(suffix) == 1 {
            let state = Memory::only_state(suffix);
            let frequency = self.memory.frequency(state);
            if frequency < 32 {
                self.memory.set_frequency(state, frequency + 1);
            }
            return;
        }
        let first = self.memory.states(suffix);
        let mut state = self.memory.find(first, symbol);
        if state != first && self.memory.frequency(state) >= self.memory.frequency(state - STATE) {
            self.memory.swap_with_last(state);
            state -= STATE;
        }
        let frequency = self.memory.frequency(state);
        if frequency < MOST_FREQUENCY - 9 {
            self.memory.set_frequency(state, frequency + 2);
            self.memory.set_sum(suffix, self.memory.sum(suffix) + 2);
        }
    }

    /// Adds the symbol to all contexts that are longer than the one in which it was found. False if there is no room.
    fn add_to_longer(&mut self, successor: u32) -> bool {
        let State { symbol, frequency, .. } = self.memory.state(self.found);
        let symbols = self.memory.symbols(self.least);
        let others = self.memory.sum(self.least).wrapping_sub(symbols).wrapping_sub(u32::from(frequency) - 1);
        let mut context = self.longest;
        while context != self.least {
            let count = self.memory.symbols(context);
            if count == 1 {
                let states = self.memory.allocate(0);
                if states == 0 {
                    return false;
                }
                let mut only = self.memory.state(Memory::only_state(context));
                let is_rare = only.frequency < MOST_FREQUENCY / 4 - 1;
                only.frequency = if is_rare { only.frequency << 1 } else { MOST_FREQUENCY - 4 };
                self.memory.set_state(states, only);
                self.memory.set_states(context, states);
                let sum = u32::from(only.frequency) + self.first_escape + u32::from(symbols > 3);
                self.memory.set_sum(context, sum);
            } else {
                if count.is_multiple_of(2) && !self.make_room(context, count / 2) {
                    return false;
                }
                let sum = self.memory.sum(context);
                let is_small = 4 * count <= symbols && sum <= 8 * count;
                self.memory.set_sum(context, sum + u32::from(2 * count < symbols) + 2 * u32::from(is_small));
            }
            let sum = self.memory.sum(context);
            let own = 2 * u32::from(frequency) * (sum + 6);
            let all = others.wrapping_add(sum);
            let times = |factor: u32| own >= all.wrapping_mul(factor);
            let (own, more) = if own < all.wrapping_mul(6) {
                (1 + u32::from(own > all) + u32::from(times(4)), 3)
            } else {
                let own = 4 + u32::from(times(9)) + u32::from(times(12)) + u32::from(times(15));
                (own, own)
            };
            self.memory.set_sum(context, sum + more);
            let state = State { symbol, frequency: own as u8, successor };
            self.memory.set_state(self.memory.states(context) + count * STATE, state);
            self.memory.set_u16(context, count as u16 + 1);
            context = self.memory.suffix(context);
        }
        true
    }

    /// Makes room for one more unit of states behind `units` ones. False if there is none.
    fn make_room(&mut self, context: u32, units: u32) -> bool {
        let index = self.memory.index(units);
        if index == self.memory.index(units + 1) {
            return true;
        }
        let new = self.memory.allocate(index + 1);
        if new == 0 {
            return false;
        }
        let old = self.memory.states(context);
        self.memory.copy_units(new, old, units);
        self.memory.insert_node(old, index);
        self.memory.set_states(context, new);
        true
    }

    /// Halves the frequencies of a context.
    fn rescale(&mut self) {
        let (context, states) = (self.least, self.memory.states(self.least));
        let symbols = self.memory.symbols(context);
        let mut state = self.found;
        let first = self.memory.state(state);
        while state != states {
            let before = self.memory.state(state - STATE);
            self.memory.set_state(state, before);
            state -= STATE;
        }
        self.memory.set_state(state, first);
        let mut escape = self.memory.sum(context).wrapping_sub(first.frequency.into());
        let adder = u32::from(self.order_fall != 0);
        let half = |frequency: u32| (frequency + adder) >> 1;
        let mut sum = half(u32::from(first.frequency) + 4);
        self.memory.set_frequency(state, sum as u8);
        for number in 1..symbols {
            let at = states + number * STATE;
            let mut moved = self.memory.state(at);
            escape = escape.wrapping_sub(moved.frequency.into());
            moved.frequency = half(moved.frequency.into()) as u8;
            sum += u32::from(moved.frequency);
            let mut to = at;
            while to != states && moved.frequency > self.memory.frequency(to - STATE) {
                let before = self.memory.state(to - STATE);
                self.memory.set_state(to, before);
                to -= STATE;
            }
            self.memory.set_state(to, moved);
        }
        let last = |symbols: u32| states + (symbols - 1) * STATE;
        let mut left = symbols;
        while left > 1 && self.memory.frequency(last(left)) == 0 {
            left -= 1;
        }
        if left < symbols {
            escape = escape.wrapping_add(symbols - left);
            self.memory.set_u16(context, left as u16);
            let (old_units, new_units) = (symbols.div_ceil(2), left.div_ceil(2));
            if left == 1 {
                let mut only = self.memory.state(states);
                loop {
                    only.frequency -= only.frequency >> 1;
                    escape >>= 1;
                    if escape <= 1 {
                        break;
                    }
                }
                self.memory.insert_node(states, self.memory.index(old_units));
                self.found = Memory::only_state(context);
                self.memory.set_state(self.found, only);
                return;
            }
            if old_units != new_units {
                let states = self.memory.shrink(states, old_units, new_units);
                self.memory.set_states(context, states);
            }
        }
        self.memory.set_sum(context, sum.wrapping_add(escape).wrapping_sub(escape >> 1));
        self.found = self.memory.states(context);
    }

    fn next_context(&mut self) {
        let successor = self.memory.successor(self.found);
        if self.order_fall == 0 && successor > self.memory.text {
            (self.least, self.longest) = (successor, successor);
        } else {
            self.update();
        }
    }

    /// Counts the symbol that was found once more, in its context of several.
    fn count_found(&mut self) {
        self.memory.set_frequency(self.found, self.memory.frequency(self.found).wrapping_add(4));
        self.memory.set_sum(self.least, self.memory.sum(self.least) + 4);
    }

    /// Begins the data of a block.
    pub(super) fn begin(&mut self, bits: &mut Bits) -> io::Result<()> {
        self.range.begin(bits)
    }

    /// The next symbol.
    #[inline]
    pub(super) fn decode(&mut self, bits: &mut Bits) -> io::Result<u8> {
        let symbols = self.memory.symbols(self.least);
        let found = if symbols == 1 { self.decode_binary(bits)? } else { self.decode_first(symbols, bits)? };
        match found {
            Some(symbol) => Ok(symbol),
            None => self.decode_escaped(symbols, bits),
        }
    }

    /// In a context of several symbols: one of these, or nothing where it is another one.
    fn decode_first(&mut self, symbols: u32, bits: &mut Bits) -> io::Result<Option<u8>> {
        let (states, sum) = (self.memory.states(self.least), self.memory.sum(self.least));
        let count = self.range.threshold(sum, bits)?;
        let mut high = u32::from(self.memory.frequency(states));
        if count < high {
            self.range.narrow(0, high, bits)?;
            self.found = states;
            let symbol = self.memory.symbol(states);
            self.was_success = u32::from(2 * high > sum);
            self.run_length = self.run_length.wrapping_add(self.was_success as i32);
            self.count_found();
            if self.memory.frequency(self.found) > MOST_FREQUENCY {
                self.rescale();
            }
            self.next_context();
            return Ok(Some(symbol));
        }
        self.was_success = 0;
        let mut state = states;
        let mut frequency = 0;
        for [_, next, ..] in self.memory.rows(states + STATE, symbols - 1) {
            state += STATE;
            frequency = u32::from(*next);
            high += frequency;
            if count < high {
                break;
            }
        }
        if count < high {
            self.range.narrow(high - frequency, frequency, bits)?;
            self.found = state;
            let symbol = self.memory.symbol(state);
            self.count_found();
            if self.memory.frequency(state) > self.memory.frequency(state - STATE) {
                self.memory.swap_with_last(state);
                self.found = state - STATE;
                if self.memory.frequency(self.found) > MOST_FREQUENCY {
                    self.rescale();
                }
            }
            self.next_context();
            return Ok(Some(symbol));
        }
        if count >= sum {
            return Err(invalid(bits));
        }
        self.high_bits = high_bits_of(self.memory.symbol(self.found));
        self.range.narrow(high, sum.wrapping_sub(high), bits)?;
        Ok(None)
    }

    /// Behind an escape from a context of that many symbols: none of these.
    fn decode_escaped(&mut self, mut symbols: u32, bits: &mut Bits) -> io::Result<u8> {
        let mut is_masked = [false; 256];
        loop {
            let masked = symbols;
            self.mask(masked, &mut is_masked);
            while self.memory.symbols(self.least) == masked {
                self.order_fall += 1;
                self.least = self.memory.suffix(self.least);
                if self.least == 0 {
                    return Err(invalid(bits));
                }
            }
            symbols = self.memory.symbols(self.least);
            let states = self.memory.states(self.least);
            let rows = self.memory.rows(states, symbols);
            let other = |[symbol, frequency, ..]: &[u8; STATE as usize]| {
                u32::from(!is_masked[usize::from(*symbol)]) * u32::from(*frequency)
            };
            let all = rows.iter().map(other).sum::<u32>();
            let (of, escape) = self.escape_frequency(masked, symbols);
            let total = escape + all;
            let count = self.range.threshold(total, bits)?;
            if count < all {
                let mut high = 0;
                let rows = self.memory.rows(states, symbols);
                let is_behind = |row: &[u8; STATE as usize]| {
                    high += other(row);
                    count < high
                };
                let number = rows.iter().position(is_behind).ok_or_else(|| invalid(bits))?;
                let state = states + number as u32 * STATE;
                let frequency = u32::from(self.memory.frequency(state));
                self.range.narrow(high - frequency, frequency, bits)?;
                self.escape_succeeded(of);
                self.found = state;
                let symbol = self.memory.symbol(state);
                self.count_found();
                if self.memory.frequency(state) > MOST_FREQUENCY {
                    self.rescale();
                }
                self.run_length = self.first_run_length;
                self.update();
                return Ok(symbol);
            }
            if count >= total {
                return Err(invalid(bits));
            }
            self.range.narrow(all, escape, bits)?;
            if let EscapeOf::Context(row, column) = of {
                let escape = &mut self.escapes[row][column];
                escape.sum = escape.sum.wrapping_add(total as u16);
            }
        }
    }

    /// Masks all symbols of the context, of which there are so many.
    fn mask(&self, symbols: u32, is_masked: &mut [bool; 256]) {
        if symbols == 1 {
            is_masked[usize::from(self.memory.symbol(Memory::only_state(self.least)))] = true;
            return;
        }
        for [symbol, ..] in self.memory.rows(self.memory.states(self.least), symbols) {
            is_masked[usize::from(*symbol)] = true;
        }
    }

    /// In a context of one symbol: that, or nothing where it is another one.
    fn decode_binary(&mut self, bits: &mut Bits) -> io::Result<Option<u8>> {
        let state = Memory::only_state(self.least);
        let State { symbol, frequency, .. } = self.memory.state(state);
        self.high_bits = high_bits_of(self.memory.symbol(self.found));
        let column = self.was_success
            + binary_index(self.memory.symbols(self.memory.suffix(self.least)))
            + self.high_bits
            + 2 * high_bits_of(symbol)
            + (self.run_length >> 26 & 0x20) as u32;
        let (row, column) = (usize::from(frequency) - 1, column as usize);
        let probability = self.binary[row][column];
        if self.range.is_below(probability.into(), BINARY_BITS, bits)? {
            self.range.narrow(0, probability.into(), bits)?;
            self.binary[row][column] = probability + (1 << PERIOD_BITS) - mean(probability);
            self.found = state;
            self.memory.set_frequency(state, frequency + u8::from(frequency < 128));
            self.was_success = 1;
            // It goes up with each byte that was foreseen, and wraps as that of who has written them.
            self.run_length = self.run_length.wrapping_add(1);
            self.next_context();
            return Ok(Some(symbol));
        }
        self.range.narrow(probability.into(), (1 << BINARY_BITS) - u32::from(probability), bits)?;
        let probability = probability - mean(probability);
        self.binary[row][column] = probability;
        self.first_escape = ESCAPES[usize::from(probability >> 10)].into();
        self.was_success = 0;
        Ok(None)
    }

    /// How often an escape is to be expected from a context of so many symbols, so many of which are none.
    fn escape_frequency(&mut self, masked: u32, symbols: u32) -> (EscapeOf, u32) {
        if symbols == 256 {
            return (EscapeOf::All, 1);
        }
        let others = symbols - masked;
        let longer = self.memory.symbols(self.memory.suffix(self.least));
        let row = usize::from(self.escape_index[others as usize - 1]);
        let column = u32::from(others < longer.wrapping_sub(symbols))
            + 2 * u32::from(self.memory.sum(self.least) < 11 * symbols)
            + 4 * u32::from(masked > others)
            + self.high_bits;
        let escape = &mut self.escapes[row][column as usize];
        let mean = escape.sum >> escape.shift;
        escape.sum -= mean;
        (EscapeOf::Context(row, column as usize), u32::from(mean.max(1)))
    }

    fn escape_succeeded(&mut self, of: EscapeOf) {
        let EscapeOf::Context(row, column) = of else { return };
        let escape = &mut self.escapes[row][column];
        if escape.shift < PERIOD_BITS {
            escape.count -= 1;
            if escape.count == 0 {
                escape.sum <<= 1;
                escape.count = 3 << escape.shift;
                escape.shift += 1;
            }
        }
    }
}

#[cold]
fn invalid(bits: &Bits) -> io::Error {
    bits.invalid("PPMd data that are not valid")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use tarnfs_source::MemorySource;

    use super::super::data::Data;

    /// More than 2 GiB of bytes that are all foreseen are no reason to end: the count of them wraps.
    #[test]
    fn runs_may_be_of_any_length() {
        let zeros = MemorySource::new(vec![0; 1 << 16], "zeros");
        let mut bits = Bits::new(Data::new(Arc::new(zeros), vec![(0, 1 << 16)], None));
        bits.fill().unwrap();
        let mut model = Model::new(6, 1 << 20);
        model.begin(&mut bits).unwrap();
        for _ in 0..100 {
            model.decode(&mut bits).unwrap();
        }
        let before = model.run_length;
        for _ in 0..100 {
            model.decode(&mut bits).unwrap();
        }
        assert_eq!(model.run_length, before + 100);
        model.run_length = i32::MAX - 50;
        for _ in 0..100 {
            model.decode(&mut bits).unwrap();
        }
        assert_eq!(model.run_length, i32::MIN + 49);
    }
}
