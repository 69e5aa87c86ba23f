//! PPMd variant H with the range coder of RAR, by Dmitry Shkarin, who gave it to the public domain; sources are that of
//! 7-Zip, also in the public domain, and public descriptions.
//!
//! A crate decodes what 7z has of it. In RAR a block may go on with the model of the one before, and with a range coder
//! that begins anew; that it cannot.
//!
//! The model is its memory: contexts and their states lie in units of 12 bytes, and refer to each other by offsets,
//! 0 for none. A context of one symbol holds its state itself. What symbols are decoded, and nothing else, decides what
//! is in there, so offsets need no checks beyond those of the language.

use std::io;

use super::bits::Bits;

/// Bytes of a unit.
const UNIT: u32 = 12;
/// Bytes of a state: symbol, frequency, successor.
const STATE: u32 = 6;
const INDEXES: usize = 38;
const MOST_FREQUENCY: u8 = 124;
const BINARY_BITS: u32 = 14;
const PERIOD_BITS: u8 = 7;
/// Offset of the first byte of text: 0 is none.
const FIRST: u32 = 4;
const MOST_ORDER: usize = 64;

const TOP: u32 = 1 << 24;
const BOTTOM: u32 = 1 << 15;

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

/// A state, outside of the memory.
#[derive(Clone, Copy)]
struct State {
    symbol: u8,
    frequency: u8,
    successor: u32,
}

pub(super) struct Model {
    memory: Vec<u8>,
    size: u32,
    low: u32,
    code: u32,
    range: u32,

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

    text: u32,
    units_start: u32,
    low_unit: u32,
    high_unit: u32,
    glue_count: u32,
    free: [u32; INDEXES],

    units_of: [u8; INDEXES],
    index_of: [u8; 128],
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
        let (mut units_of, mut index_of, mut units) = ([0; INDEXES], [0; 128], 0_usize);
        for (index, most) in units_of.iter_mut().enumerate() {
            let step = if index >= 12 { 4 } else { index / 4 + 1 };
            index_of[units..units + step].fill(index as u8);
            units += step;
            *most = units as u8;
        }
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
            // The system gives it page by page.
            memory: vec![0; (FIRST + size + UNIT) as usize],
            size,
            low: 0,
            code: 0,
            range: 0,
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
            text: 0,
            units_start: 0,
            low_unit: 0,
            high_unit: 0,
            glue_count: 0,
            free: [0; INDEXES],
            units_of,
            index_of,
            escape_index,
            binary: Box::new([[0; 64]; 128]),
            escapes: Box::new([[Escape::default(); 16]; 25]),
        };
        model.restart(order);
        model
    }

    /// Bytes that it was asked to take.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    pub(super) fn memory(&self) -> usize {
        self.memory.len() + size_of::<Self>() + size_of_val(&*self.binary) + size_of_val(&*self.escapes)
    }

    /// Forgets all.
    pub(super) fn restart(&mut self, order: u32) {
        self.order = order;
        self.high_bits = 0;
        self.first_escape = 0;
        self.reset();
    }

    fn byte(&self, at: u32) -> u8 {
        self.memory[at as usize]
    }

    fn u16(&self, at: u32) -> u16 {
        let at = at as usize;
        u16::from_le_bytes([self.memory[at], self.memory[at + 1]])
    }

    fn u32(&self, at: u32) -> u32 {
        let at = at as usize;
        let bytes = &self.memory[at..at + 4];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    fn set_byte(&mut self, at: u32, value: u8) {
        self.memory[at as usize] = value;
    }

    fn set_u16(&mut self, at: u32, value: u16) {
        self.memory[at as usize..at as usize + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn set_u32(&mut self, at: u32, value: u32) {
        self.memory[at as usize..at as usize + 4].copy_from_slice(&value.to_le_bytes());
    }

    // A context: its number of symbols (2 bytes), the sum of their frequencies (2), its states (4), the next shorter
    // context (4). Of one symbol, the state stands at byte 2.

    fn symbols(&self, context: u32) -> u32 {
        self.u16(context).into()
    }

    fn sum(&self, context: u32) -> u32 {
        self.u16(context + 2).into()
    }

    fn set_sum(&mut self, context: u32, sum: u32) {
        self.set_u16(context + 2, sum as u16);
    }

    fn states(&self, context: u32) -> u32 {
        self.u32(context + 4)
    }

    fn suffix(&self, context: u32) -> u32 {
        self.u32(context + 8)
    }

    fn only_state(context: u32) -> u32 {
        context + 2
    }

    fn symbol(&self, state: u32) -> u8 {
        self.byte(state)
    }

    fn frequency(&self, state: u32) -> u8 {
        self.byte(state + 1)
    }

    fn set_frequency(&mut self, state: u32, frequency: u8) {
        self.set_byte(state + 1, frequency);
    }

    fn successor(&self, state: u32) -> u32 {
        self.u32(state + 2)
    }

    fn set_successor(&mut self, state: u32, successor: u32) {
        self.set_u32(state + 2, successor);
    }

    fn state(&self, at: u32) -> State {
        State { symbol: self.symbol(at), frequency: self.frequency(at), successor: self.successor(at) }
    }

    fn set_state(&mut self, at: u32, state: State) {
        self.set_byte(at, state.symbol);
        self.set_frequency(at, state.frequency);
        self.set_successor(at, state.successor);
    }

    fn swap_with_last(&mut self, state: u32) {
        let (one, other) = (self.state(state), self.state(state - STATE));
        self.set_state(state, other);
        self.set_state(state - STATE, one);
    }

    /// The state of `symbol` among those that begin at `state`: it is there.
    fn find(&self, mut state: u32, symbol: u8) -> u32 {
        while self.symbol(state) != symbol {
            state += STATE;
        }
        state
    }

    fn reset(&mut self) {
        self.free = [0; INDEXES];
        self.text = FIRST;
        self.high_unit = FIRST + self.size;
        self.units_start = self.high_unit - self.size / 8 / UNIT * 7 * UNIT;
        self.low_unit = self.units_start;
        self.glue_count = 0;
        self.order_fall = self.order;
        self.first_run_length = -(self.order.min(12) as i32) - 1;
        self.run_length = self.first_run_length;
        self.was_success = 0;
        self.high_unit -= UNIT;
        self.least = self.high_unit;
        self.longest = self.least;
        self.found = self.low_unit;
        self.low_unit += 128 * UNIT;
        let (context, states) = (self.least, self.found);
        self.set_u16(context, 256);
        self.set_sum(context, 257);
        self.set_u32(context + 4, states);
        self.set_u32(context + 8, 0);
        for symbol in 0..=255_u8 {
            self.set_state(states + u32::from(symbol) * STATE, State { symbol, frequency: 1, successor: 0 });
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

    // The allocator of units.

    fn units(&self, index: usize) -> u32 {
        self.units_of[index].into()
    }

    fn index(&self, units: u32) -> usize {
        self.index_of[units as usize - 1].into()
    }

    fn insert_node(&mut self, node: u32, index: usize) {
        self.set_u32(node, self.free[index]);
        self.free[index] = node;
    }

    fn remove_node(&mut self, index: usize) -> u32 {
        let node = self.free[index];
        self.free[index] = self.u32(node);
        node
    }

    /// Puts `units` units at `node` into the lists.
    fn free_units(&mut self, node: u32, units: u32) {
        let mut index = self.index(units);
        if self.units(index) != units {
            index -= 1;
            let first = self.units(index);
            self.insert_node(node + first * UNIT, (units - first - 1) as usize);
        }
        self.insert_node(node, index);
    }

    fn split(&mut self, node: u32, old: usize, new: usize) {
        let (old, new) = (self.units(old), self.units(new));
        self.free_units(node + new * UNIT, old - new);
    }

    // A free unit, while they are joined: a stamp (2 bytes), 0 of free ones; how many units (2), the next one (4), the
    // one before (4).

    fn glue(&mut self) {
        let head = FIRST + self.size;
        let mut last = head;
        self.glue_count = 255;
        for index in 0..INDEXES {
            let units = self.units(index) as u16;
            let mut next = std::mem::take(&mut self.free[index]);
            while next != 0 {
                let node = next;
                self.set_u32(node + 4, last);
                self.set_u32(last + 8, node);
                last = node;
                next = self.u32(node);
                self.set_u16(node, 0);
                self.set_u16(node + 2, units);
            }
        }
        self.set_u16(head, 1);
        self.set_u32(head + 4, last);
        self.set_u32(last + 8, head);
        if self.low_unit != self.high_unit {
            self.set_u16(self.low_unit, 1);
        }
        let mut node = last;
        while node != head {
            let mut units = u32::from(self.u16(node + 2));
            loop {
                let other = node + units * UNIT;
                units += u32::from(self.u16(other + 2));
                if self.u16(other) != 0 || units >= 0x1_0000 {
                    break;
                }
                let (next, before) = (self.u32(other + 4), self.u32(other + 8));
                self.set_u32(before + 4, next);
                self.set_u32(next + 8, before);
                self.set_u16(node + 2, units as u16);
            }
            node = self.u32(node + 4);
        }
        let mut node = self.u32(head + 4);
        while node != head {
            let (next, mut units, mut at) = (self.u32(node + 4), u32::from(self.u16(node + 2)), node);
            while units > 128 {
                self.insert_node(at, INDEXES - 1);
                at += 128 * UNIT;
                units -= 128;
            }
            self.free_units(at, units);
            node = next;
        }
    }

    /// As many units as `index` stands for; 0 if there are none.
    fn allocate(&mut self, index: usize) -> u32 {
        if self.free[index] != 0 {
            return self.remove_node(index);
        }
        let bytes = self.units(index) * UNIT;
        if bytes <= self.high_unit - self.low_unit {
            self.low_unit += bytes;
            return self.low_unit - bytes;
        }
        self.allocate_rare(index)
    }

    fn allocate_rare(&mut self, index: usize) -> u32 {
        if self.glue_count == 0 {
            self.glue();
            if self.free[index] != 0 {
                return self.remove_node(index);
            }
        }
        let Some(larger) = (index + 1..INDEXES).find(|&larger| self.free[larger] != 0) else {
            let bytes = self.units(index) * UNIT;
            self.glue_count = self.glue_count.wrapping_sub(1);
            if self.units_start - self.text <= bytes {
                return 0;
            }
            self.units_start -= bytes;
            return self.units_start;
        };
        let node = self.remove_node(larger);
        self.split(node, larger, index);
        node
    }

    fn allocate_context(&mut self) -> u32 {
        if self.high_unit != self.low_unit {
            self.high_unit -= UNIT;
            self.high_unit
        } else if self.free[0] != 0 {
            self.remove_node(0)
        } else {
            self.allocate_rare(0)
        }
    }

    fn copy_units(&mut self, to: u32, from: u32, units: u32) {
        let from = from as usize;
        self.memory.copy_within(from..from + (units * UNIT) as usize, to as usize);
    }

    fn shrink(&mut self, old: u32, old_units: u32, new_units: u32) -> u32 {
        let (old_index, new_index) = (self.index(old_units), self.index(new_units));
        if old_index == new_index {
            return old;
        }
        if self.free[new_index] == 0 {
            self.split(old, old_index, new_index);
            return old;
        }
        let new = self.remove_node(new_index);
        self.copy_units(new, old, new_units);
        self.insert_node(old, old_index);
        new
    }

    // The model.

    /// New contexts behind the symbol that was found; 0 if there is no room.
    fn create_successors(&mut self, skips_found: bool) -> u32 {
        let mut context = self.least;
        let branch = self.successor(self.found);
        let symbol = self.symbol(self.found);
        let (mut waiting, mut count) = ([0; MOST_ORDER + 1], 0);
        if !skips_found {
            waiting[count] = self.found;
            count += 1;
        }
        while self.suffix(context) != 0 {
            context = self.suffix(context);
            let state = if self.symbols(context) == 1 {
                Self::only_state(context)
            } else {
                self.find(self.states(context), symbol)
            };
            let successor = self.successor(state);
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
        let symbol = self.byte(branch);
        let frequency = if self.symbols(context) == 1 {
            self.frequency(Self::only_state(context))
        } else {
            let state = self.find(self.states(context), symbol);
            let own = u32::from(self.frequency(state)) - 1;
            let others = self.sum(context).wrapping_sub(self.symbols(context)).wrapping_sub(own);
            let more = if 2 * own <= others {
                u32::from(5 * own > others)
            } else {
                (2 * own + 3 * others - 1) / (2 * others).max(1)
            };
            1 + more as u8
        };
        let state = State { symbol, frequency, successor: branch + 1 };
        for &before in waiting[..count].iter().rev() {
            let new = self.allocate_context();
            if new == 0 {
                return 0;
            }
            self.set_u16(new, 1);
            self.set_state(Self::only_state(new), state);
            self.set_u32(new + 8, context);
            self.set_successor(before, new);
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
        let found = self.state(self.found);
        let suffix = self.suffix(self.least);
        if found.frequency < MOST_FREQUENCY / 4 && suffix != 0 {
            self.count_in_suffix(suffix, found.symbol);
        }
        let mut behind = self.successor(self.found);
        if self.order_fall == 0 {
            let context = self.create_successors(true);
            (self.least, self.longest) = (context, context);
            if context == 0 {
                return false;
            }
            self.set_successor(self.found, context);
            return true;
        }
        self.set_byte(self.text, found.symbol);
        self.text += 1;
        let mut successor = self.text;
        if self.text >= self.units_start {
            return false;
        }
        if behind == 0 {
            self.set_successor(self.found, successor);
            behind = self.least;
        } else {
            // It is text, and no context yet.
            if behind < self.units_start {
                behind = self.create_successors(false);
                if behind == 0 {
                    return false;
                }
            }
            self.order_fall -= 1;
            if self.order_fall == 0 {
                successor = behind;
                self.text -= u32::from(self.longest != self.least);
            }
        }
        self.add_to_longer(successor) && {
            (self.least, self.longest) = (behind, behind);
            true
        }
    }

    /// Counts the symbol in the next shorter context, too.
    fn count_in_suffix(&mut self, suffix: u32, symbol: u8) {
        if self.symbols(suffix) == 1 {
            let state = Self::only_state(suffix);
            let frequency = self.frequency(state);
            if frequency < 32 {
                self.set_frequency(state, frequency + 1);
            }
            return;
        }
        let first = self.states(suffix);
        let mut state = self.find(first, symbol);
        if state != first && self.frequency(state) >= self.frequency(state - STATE) {
            self.swap_with_last(state);
            state -= STATE;
        }
        let frequency = self.frequency(state);
        if frequency < MOST_FREQUENCY - 9 {
            self.set_frequency(state, frequency + 2);
            self.set_sum(suffix, self.sum(suffix) + 2);
        }
    }

    /// Adds the symbol to all contexts that are longer than the one in which it was found. False if there is no room.
    fn add_to_longer(&mut self, successor: u32) -> bool {
        let State { symbol, frequency, .. } = self.state(self.found);
        let symbols = self.symbols(self.least);
        let others = self.sum(self.least).wrapping_sub(symbols).wrapping_sub(u32::from(frequency) - 1);
        let mut context = self.longest;
        while context != self.least {
            let count = self.symbols(context);
            if count == 1 {
                let states = self.allocate(0);
                if states == 0 {
                    return false;
                }
                let mut only = self.state(Self::only_state(context));
                let is_rare = only.frequency < MOST_FREQUENCY / 4 - 1;
                only.frequency = if is_rare { only.frequency << 1 } else { MOST_FREQUENCY - 4 };
                self.set_state(states, only);
                self.set_u32(context + 4, states);
                let sum = u32::from(only.frequency) + self.first_escape + u32::from(symbols > 3);
                self.set_sum(context, sum);
            } else {
                if count.is_multiple_of(2) && !self.make_room(context, count / 2) {
                    return false;
                }
                let sum = self.sum(context);
                let is_small = 4 * count <= symbols && sum <= 8 * count;
                self.set_sum(context, sum + u32::from(2 * count < symbols) + 2 * u32::from(is_small));
            }
            let sum = self.sum(context);
            let own = 2 * u32::from(frequency) * (sum + 6);
            let all = others.wrapping_add(sum);
            let times = |factor: u32| own >= all.wrapping_mul(factor);
            let (own, more) = if own < all.wrapping_mul(6) {
                (1 + u32::from(own > all) + u32::from(times(4)), 3)
            } else {
                let own = 4 + u32::from(times(9)) + u32::from(times(12)) + u32::from(times(15));
                (own, own)
            };
            self.set_sum(context, sum + more);
            let state = State { symbol, frequency: own as u8, successor };
            self.set_state(self.states(context) + count * STATE, state);
            self.set_u16(context, count as u16 + 1);
            context = self.suffix(context);
        }
        true
    }

    /// Makes room for one more unit of states behind `units` ones. False if there is none.
    fn make_room(&mut self, context: u32, units: u32) -> bool {
        let index = self.index(units);
        if index == self.index(units + 1) {
            return true;
        }
        let new = self.allocate(index + 1);
        if new == 0 {
            return false;
        }
        let old = self.states(context);
        self.copy_units(new, old, units);
        self.insert_node(old, index);
        self.set_u32(context + 4, new);
        true
    }

    /// Halves the frequencies of a context.
    fn rescale(&mut self) {
        let (context, states) = (self.least, self.states(self.least));
        let symbols = self.symbols(context);
        let mut state = self.found;
        let first = self.state(state);
        while state != states {
            let before = self.state(state - STATE);
            self.set_state(state, before);
            state -= STATE;
        }
        self.set_state(state, first);
        let mut escape = self.sum(context).wrapping_sub(first.frequency.into());
        let adder = u32::from(self.order_fall != 0);
        let half = |frequency: u32| (frequency + adder) >> 1;
        let mut sum = half(u32::from(first.frequency) + 4);
        self.set_frequency(state, sum as u8);
        for number in 1..symbols {
            let at = states + number * STATE;
            let mut moved = self.state(at);
            escape = escape.wrapping_sub(moved.frequency.into());
            moved.frequency = half(moved.frequency.into()) as u8;
            sum += u32::from(moved.frequency);
            let mut to = at;
            while to != states && moved.frequency > self.frequency(to - STATE) {
                let before = self.state(to - STATE);
                self.set_state(to, before);
                to -= STATE;
            }
            self.set_state(to, moved);
        }
        let last = |symbols: u32| states + (symbols - 1) * STATE;
        let mut left = symbols;
        while left > 1 && self.frequency(last(left)) == 0 {
            left -= 1;
        }
        if left < symbols {
            escape = escape.wrapping_add(symbols - left);
            self.set_u16(context, left as u16);
            let (old_units, new_units) = (symbols.div_ceil(2), left.div_ceil(2));
            if left == 1 {
                let mut only = self.state(states);
                loop {
                    only.frequency -= only.frequency >> 1;
                    escape >>= 1;
                    if escape <= 1 {
                        break;
                    }
                }
                self.insert_node(states, self.index(old_units));
                self.found = Self::only_state(context);
                self.set_state(self.found, only);
                return;
            }
            if old_units != new_units {
                let states = self.shrink(states, old_units, new_units);
                self.set_u32(context + 4, states);
            }
        }
        self.set_sum(context, sum.wrapping_add(escape).wrapping_sub(escape >> 1));
        self.found = self.states(context);
    }

    fn next_context(&mut self) {
        let successor = self.successor(self.found);
        if self.order_fall == 0 && successor > self.text {
            (self.least, self.longest) = (successor, successor);
        } else {
            self.update();
        }
    }

    /// Counts the symbol that was found once more, in its context of several.
    fn count_found(&mut self) {
        self.set_frequency(self.found, self.frequency(self.found).wrapping_add(4));
        self.set_sum(self.least, self.sum(self.least) + 4);
    }

    // The range coder.

    /// Begins the data of a block.
    pub(super) fn begin(&mut self, bits: &mut Bits) -> io::Result<()> {
        (self.low, self.range, self.code) = (0, u32::MAX, 0);
        for _ in 0..4 {
            self.code = self.code << 8 | u32::from(bits.byte()?);
        }
        Ok(())
    }

    #[inline]
    fn threshold(&mut self, total: u32, bits: &Bits) -> io::Result<u32> {
        self.range /= total.max(1);
        let count = self.code.wrapping_sub(self.low).checked_div(self.range);
        count.ok_or_else(|| bits.invalid("PPMd data that are not valid"))
    }

    #[inline]
    fn narrow(&mut self, start: u32, size: u32, bits: &mut Bits) -> io::Result<()> {
        self.low = self.low.wrapping_add(start.wrapping_mul(self.range));
        self.range = self.range.wrapping_mul(size);
        loop {
            if self.low ^ self.low.wrapping_add(self.range) >= TOP {
                if self.range >= BOTTOM {
                    return Ok(());
                }
                self.range = self.low.wrapping_neg() & (BOTTOM - 1);
            }
            self.code = self.code << 8 | u32::from(bits.byte()?);
            self.range <<= 8;
            self.low <<= 8;
        }
    }

    /// The next symbol.
    pub(super) fn decode(&mut self, bits: &mut Bits) -> io::Result<u8> {
        let invalid = |bits: &Bits| bits.invalid("PPMd data that are not valid");
        let mut is_masked = [false; 256];
        let symbols = self.symbols(self.least);
        if symbols == 1 {
            if let Some(symbol) = self.decode_binary(bits)? {
                return Ok(symbol);
            }
            is_masked[usize::from(self.symbol(Self::only_state(self.least)))] = true;
        } else {
            let (states, sum) = (self.states(self.least), self.sum(self.least));
            let count = self.threshold(sum, bits)?;
            let mut high = u32::from(self.frequency(states));
            if count < high {
                self.narrow(0, high, bits)?;
                self.found = states;
                let symbol = self.symbol(states);
                self.was_success = u32::from(2 * high > sum);
                self.run_length += self.was_success as i32;
                self.count_found();
                if self.frequency(self.found) > MOST_FREQUENCY {
                    self.rescale();
                }
                self.next_context();
                return Ok(symbol);
            }
            self.was_success = 0;
            for number in 1..symbols {
                let state = states + number * STATE;
                let frequency = u32::from(self.frequency(state));
                high += frequency;
                if count >= high {
                    continue;
                }
                self.narrow(high - frequency, frequency, bits)?;
                self.found = state;
                let symbol = self.symbol(state);
                self.count_found();
                if self.frequency(state) > self.frequency(state - STATE) {
                    self.swap_with_last(state);
                    self.found = state - STATE;
                    if self.frequency(self.found) > MOST_FREQUENCY {
                        self.rescale();
                    }
                }
                self.next_context();
                return Ok(symbol);
            }
            if count >= sum {
                return Err(invalid(bits));
            }
            self.high_bits = high_bits_of(self.symbol(self.found));
            self.narrow(high, sum.wrapping_sub(high), bits)?;
            for number in 0..symbols {
                is_masked[usize::from(self.symbol(states + number * STATE))] = true;
            }
        }
        loop {
            let masked = self.symbols(self.least);
            while self.symbols(self.least) == masked {
                self.order_fall += 1;
                self.least = self.suffix(self.least);
                if self.least == 0 {
                    return Err(invalid(bits));
                }
            }
            let (states, symbols) = (self.states(self.least), self.symbols(self.least));
            let own = |model: &Self, number: u32| {
                let state = states + number * STATE;
                (!is_masked[usize::from(model.symbol(state))]).then(|| (state, u32::from(model.frequency(state))))
            };
            let all: u32 = (0..symbols).filter_map(|number| own(self, number)).map(|(_, frequency)| frequency).sum();
            let (of, escape) = self.escape_frequency(masked, symbols);
            let total = escape + all;
            let count = self.threshold(total, bits)?;
            if count < all {
                let mut high = 0;
                let found = (0..symbols).filter_map(|number| own(self, number)).find(|(_, frequency)| {
                    high += frequency;
                    count < high
                });
                let (state, frequency) = found.ok_or_else(|| invalid(bits))?;
                self.narrow(high - frequency, frequency, bits)?;
                self.escape_succeeded(of);
                self.found = state;
                let symbol = self.symbol(state);
                self.count_found();
                if self.frequency(state) > MOST_FREQUENCY {
                    self.rescale();
                }
                self.run_length = self.first_run_length;
                self.update();
                return Ok(symbol);
            }
            if count >= total {
                return Err(invalid(bits));
            }
            self.narrow(all, escape, bits)?;
            if let EscapeOf::Context(row, column) = of {
                let escape = &mut self.escapes[row][column];
                escape.sum = escape.sum.wrapping_add(total as u16);
            }
            for number in 0..symbols {
                is_masked[usize::from(self.symbol(states + number * STATE))] = true;
            }
        }
    }

    /// In a context of one symbol: that, or nothing where it is another one.
    fn decode_binary(&mut self, bits: &mut Bits) -> io::Result<Option<u8>> {
        let state = Self::only_state(self.least);
        let State { symbol, frequency, .. } = self.state(state);
        self.high_bits = high_bits_of(self.symbol(self.found));
        let column = self.was_success
            + binary_index(self.symbols(self.suffix(self.least)))
            + self.high_bits
            + 2 * high_bits_of(symbol)
            + (self.run_length >> 26 & 0x20) as u32;
        let (row, column) = (usize::from(frequency) - 1, column as usize);
        let probability = self.binary[row][column];
        let count = self.threshold(1 << BINARY_BITS, bits)?;
        if count < u32::from(probability) {
            self.narrow(0, probability.into(), bits)?;
            self.binary[row][column] = probability + (1 << PERIOD_BITS) - mean(probability);
            self.found = state;
            self.set_frequency(state, frequency + u8::from(frequency < 128));
            self.was_success = 1;
            self.run_length += 1;
            self.next_context();
            return Ok(Some(symbol));
        }
        self.narrow(probability.into(), (1 << BINARY_BITS) - u32::from(probability), bits)?;
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
        let longer = self.symbols(self.suffix(self.least));
        let row = usize::from(self.escape_index[others as usize - 1]);
        let column = u32::from(others < longer.wrapping_sub(symbols))
            + 2 * u32::from(self.sum(self.least) < 11 * symbols)
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
