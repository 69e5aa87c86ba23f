//! The memory of a model: text at its start, then contexts and their states in units of 12 bytes, and lists of those
//! that are free.

/// Bytes of a unit.
pub(super) const UNIT: u32 = 12;
/// Bytes of a state: symbol, frequency, successor.
pub(super) const STATE: u32 = 6;
const INDEXES: usize = 38;
/// Offset of the first byte of text: 0 is none.
const FIRST: u32 = 4;

/// A state, outside of the memory.
#[derive(Clone, Copy)]
pub(super) struct State {
    pub(super) symbol: u8,
    pub(super) frequency: u8,
    pub(super) successor: u32,
}

pub(super) struct Memory {
    bytes: Vec<u8>,
    pub(super) size: u32,
    /// Where the text ends, and where units begin.
    pub(super) text: u32,
    pub(super) units_start: u32,
    /// Between these, nothing was ever used.
    low_unit: u32,
    high_unit: u32,
    glue_count: u32,
    free: [u32; INDEXES],
    units_of: [u8; INDEXES],
    index_of: [u8; 128],
}

impl Memory {
    pub(super) fn new(size: u32) -> Self {
        let (mut units_of, mut index_of, mut units) = ([0; INDEXES], [0; 128], 0_usize);
        for (index, most) in units_of.iter_mut().enumerate() {
            let step = if index >= 12 { 4 } else { index / 4 + 1 };
            index_of[units..units + step].fill(index as u8);
            units += step;
            *most = units as u8;
        }
        Self {
            // The system gives it page by page.
            bytes: vec![0; (FIRST + size + UNIT) as usize],
            size,
            text: 0,
            units_start: 0,
            low_unit: 0,
            high_unit: 0,
            glue_count: 0,
            free: [0; INDEXES],
            units_of,
            index_of,
        }
    }

    /// Frees all but a context and 256 states, and says where these are.
    pub(super) fn clear(&mut self) -> (u32, u32) {
        self.free = [0; INDEXES];
        self.text = FIRST;
        self.high_unit = FIRST + self.size - UNIT;
        self.units_start = FIRST + self.size - self.size / 8 / UNIT * 7 * UNIT;
        let states = self.units_start;
        self.low_unit = states + 128 * UNIT;
        self.glue_count = 0;
        (self.high_unit, states)
    }

    pub(super) fn length(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn byte(&self, at: u32) -> u8 {
        self.bytes[at as usize]
    }

    pub(super) fn u16(&self, at: u32) -> u16 {
        let at = at as usize;
        let bytes = &self.bytes[at..at + 2];
        u16::from_le_bytes([bytes[0], bytes[1]])
    }

    pub(super) fn u32(&self, at: u32) -> u32 {
        let at = at as usize;
        let bytes = &self.bytes[at..at + 4];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    pub(super) fn set_byte(&mut self, at: u32, value: u8) {
        self.bytes[at as usize] = value;
    }

    pub(super) fn set_u16(&mut self, at: u32, value: u16) {
        self.bytes[at as usize..at as usize + 2].copy_from_slice(&value.to_le_bytes());
    }

    pub(super) fn set_u32(&mut self, at: u32, value: u32) {
        self.bytes[at as usize..at as usize + 4].copy_from_slice(&value.to_le_bytes());
    }

    // A context: its number of symbols (2 bytes), the sum of their frequencies (2), its states (4), the next shorter
    // context (4). Of one symbol, the state stands at byte 2.

    pub(super) fn symbols(&self, context: u32) -> u32 {
        self.u16(context).into()
    }

    pub(super) fn sum(&self, context: u32) -> u32 {
        self.u16(context + 2).into()
    }

    pub(super) fn set_sum(&mut self, context: u32, sum: u32) {
        self.set_u16(context + 2, sum as u16);
    }

    pub(super) fn states(&self, context: u32) -> u32 {
        self.u32(context + 4)
    }

    pub(super) fn set_states(&mut self, context: u32, states: u32) {
        self.set_u32(context + 4, states);
    }

    pub(super) fn suffix(&self, context: u32) -> u32 {
        self.u32(context + 8)
    }

    pub(super) fn set_suffix(&mut self, context: u32, suffix: u32) {
        self.set_u32(context + 8, suffix);
    }

    /// The bytes of `symbols` states that begin at `states`.
    #[inline]
    pub(super) fn rows(&self, states: u32, symbols: u32) -> &[[u8; STATE as usize]] {
        let states = states as usize;
        self.bytes[states..states + (symbols * STATE) as usize].as_chunks().0
    }

    pub(super) fn only_state(context: u32) -> u32 {
        context + 2
    }

    pub(super) fn symbol(&self, state: u32) -> u8 {
        self.byte(state)
    }

    pub(super) fn frequency(&self, state: u32) -> u8 {
        self.byte(state + 1)
    }

    pub(super) fn set_frequency(&mut self, state: u32, frequency: u8) {
        self.set_byte(state + 1, frequency);
    }

    pub(super) fn successor(&self, state: u32) -> u32 {
        self.u32(state + 2)
    }

    pub(super) fn set_successor(&mut self, state: u32, successor: u32) {
        self.set_u32(state + 2, successor);
    }

    pub(super) fn state(&self, at: u32) -> State {
        State { symbol: self.symbol(at), frequency: self.frequency(at), successor: self.successor(at) }
    }

    pub(super) fn set_state(&mut self, at: u32, state: State) {
        self.set_byte(at, state.symbol);
        self.set_frequency(at, state.frequency);
        self.set_successor(at, state.successor);
    }

    pub(super) fn swap_with_last(&mut self, state: u32) {
        let (one, other) = (self.state(state), self.state(state - STATE));
        self.set_state(state, other);
        self.set_state(state - STATE, one);
    }

    /// The state of `symbol` among those that begin at `state`: it is there.
    pub(super) fn find(&self, mut state: u32, symbol: u8) -> u32 {
        while self.symbol(state) != symbol {
            state += STATE;
        }
        state
    }

    // The allocator of units.

    fn units(&self, index: usize) -> u32 {
        self.units_of[index].into()
    }

    pub(super) fn index(&self, units: u32) -> usize {
        self.index_of[units as usize - 1].into()
    }

    pub(super) fn insert_node(&mut self, node: u32, index: usize) {
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
    pub(super) fn allocate(&mut self, index: usize) -> u32 {
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

    pub(super) fn allocate_context(&mut self) -> u32 {
        if self.high_unit != self.low_unit {
            self.high_unit -= UNIT;
            self.high_unit
        } else if self.free[0] != 0 {
            self.remove_node(0)
        } else {
            self.allocate_rare(0)
        }
    }

    pub(super) fn copy_units(&mut self, to: u32, from: u32, units: u32) {
        let from = from as usize;
        self.bytes.copy_within(from..from + (units * UNIT) as usize, to as usize);
    }

    pub(super) fn shrink(&mut self, old: u32, old_units: u32, new_units: u32) -> u32 {
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
}
