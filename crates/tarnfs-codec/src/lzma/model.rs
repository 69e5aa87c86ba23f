//! What is learnt while decoding: probabilities, the last distances, the state.

use super::range::{HALF, POSSIBLE};

/// States that the last symbols can have led to.
pub(super) const STATES: usize = 12;
/// Below it the last symbol was a literal.
pub(super) const LITERAL_STATES: usize = 7;
/// Values of the position's lowest bits at most.
const POSITIONS: usize = 16;
/// Probabilities for the literals of one context: 256 for plain ones, 512 for those behind a match, and as many that
/// are not used: they spare the loop over the bits a look at bounds.
const LITERAL: usize = 0x400;
const LITERALS_USED: usize = 0x300;

/// `lc`, `lp` and `pb`: how many bits of what are the context of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Properties {
    /// Highest bits of the byte before, for literals.
    pub(super) literal_context: u32,
    /// Lowest bits of the position, for literals.
    pub(super) literal_position: u32,
    /// Lowest bits of the position, for what is not a literal.
    pub(super) position: u32,
}

impl Properties {
    /// From the byte in which they are stored.
    pub(crate) fn new(byte: u8) -> Option<Self> {
        let (rest, literal_context) = (byte / 9, u32::from(byte % 9));
        let (position, literal_position) = (u32::from(rest / 5), u32::from(rest % 5));
        (position <= 4).then_some(Self { literal_context, literal_position, position })
    }

    pub(super) fn byte(self) -> u8 {
        ((self.position * 5 + self.literal_position) * 9 + self.literal_context) as u8
    }

    fn contexts(self) -> usize {
        1 << (self.literal_context + self.literal_position)
    }
}

/// The probabilities of a length.
#[derive(Debug, Clone)]
pub(super) struct Lengths {
    pub(super) beyond_low: u16,
    pub(super) beyond_middle: u16,
    pub(super) low: [[u16; 8]; POSITIONS],
    pub(super) middle: [[u16; 8]; POSITIONS],
    pub(super) high: [u16; 256],
}

impl Lengths {
    const fn new() -> Self {
        Self {
            beyond_low: HALF,
            beyond_middle: HALF,
            low: [[HALF; 8]; POSITIONS],
            middle: [[HALF; 8]; POSITIONS],
            high: [HALF; 256],
        }
    }

    fn each(&mut self, visit: &mut impl FnMut(&mut u16)) {
        visit(&mut self.beyond_low);
        visit(&mut self.beyond_middle);
        self.low.as_flattened_mut().iter_mut().for_each(&mut *visit);
        self.middle.as_flattened_mut().iter_mut().for_each(&mut *visit);
        self.high.iter_mut().for_each(visit);
    }
}

/// All that decoding a symbol depends on beside the range decoder and the history.
#[derive(Debug, Clone)]
pub(super) struct Model {
    pub(super) properties: Properties,
    pub(super) state: usize,
    /// The last distances, the last one first, each less 1.
    pub(super) distances: [u32; 4],
    pub(super) is_match: [[u16; POSITIONS]; STATES],
    pub(super) is_repeated: [u16; STATES],
    pub(super) is_not_last: [u16; STATES],
    pub(super) is_not_second: [u16; STATES],
    pub(super) is_not_third: [u16; STATES],
    pub(super) is_long: [[u16; POSITIONS]; STATES],
    pub(super) slots: [[u16; 64]; 4],
    /// 115 of them are used.
    pub(super) footers: [u16; 128],
    pub(super) align: [u16; 16],
    pub(super) match_lengths: Lengths,
    pub(super) repeated_lengths: Lengths,
    pub(super) literals: Vec<[u16; LITERAL]>,
}

impl Model {
    pub(super) fn new(properties: Properties) -> Self {
        Self {
            properties,
            state: 0,
            distances: [0; 4],
            is_match: [[HALF; POSITIONS]; STATES],
            is_repeated: [HALF; STATES],
            is_not_last: [HALF; STATES],
            is_not_second: [HALF; STATES],
            is_not_third: [HALF; STATES],
            is_long: [[HALF; POSITIONS]; STATES],
            slots: [[HALF; 64]; 4],
            footers: [HALF; 128],
            align: [HALF; 16],
            match_lengths: Lengths::new(),
            repeated_lengths: Lengths::new(),
            literals: vec![[HALF; LITERAL]; properties.contexts()],
        }
    }

    /// Back to where it started, with `properties`.
    pub(super) fn reset(&mut self, properties: Properties) {
        let mut literals = std::mem::take(&mut self.literals);
        literals.truncate(properties.contexts());
        literals.as_flattened_mut().fill(HALF);
        literals.resize(properties.contexts(), [HALF; LITERAL]);
        let empty = Properties { literal_context: 0, literal_position: 0, position: 0 };
        *self = Self { properties, literals, ..Self::new(empty) };
    }

    fn each(&mut self, visit: &mut impl FnMut(&mut u16)) {
        self.is_match.as_flattened_mut().iter_mut().for_each(&mut *visit);
        for table in [&mut self.is_repeated, &mut self.is_not_last, &mut self.is_not_second, &mut self.is_not_third] {
            table.iter_mut().for_each(&mut *visit);
        }
        self.is_long.as_flattened_mut().iter_mut().for_each(&mut *visit);
        self.slots.as_flattened_mut().iter_mut().for_each(&mut *visit);
        self.footers.iter_mut().for_each(&mut *visit);
        self.align.iter_mut().for_each(&mut *visit);
        self.match_lengths.each(visit);
        self.repeated_lengths.each(visit);
        self.literals.iter_mut().for_each(|literal| literal[..LITERALS_USED].iter_mut().for_each(&mut *visit));
    }

    /// Writes all of it behind `to`; [`Model::load`] reads it.
    pub(super) fn save(&mut self, to: &mut Vec<u8>) {
        to.extend([self.properties.byte(), self.state as u8]);
        self.distances.iter().for_each(|distance| to.extend(distance.to_le_bytes()));
        // The upper and the lower halves apart: the upper ones are alike.
        self.each(&mut |probability| to.push((*probability >> 8) as u8));
        self.each(&mut |probability| to.push(*probability as u8));
    }

    /// Reads what [`Model::save`] has written off the front of `from`; `None` if no model can be like that.
    pub(super) fn load(from: &mut &[u8]) -> Option<Self> {
        let (&[properties, state], rest) = from.split_first_chunk()?;
        let (distances, rest) = rest.split_first_chunk::<16>()?;
        let mut model = Self::new(Properties::new(properties)?);
        model.state = usize::from(state);
        for (distance, bytes) in model.distances.iter_mut().zip(distances.as_chunks().0) {
            *distance = u32::from_le_bytes(*bytes);
        }
        let mut count = 0;
        model.each(&mut |_| count += 1);
        let (upper, rest) = rest.split_at_checked(count)?;
        let (lower, rest) = rest.split_at_checked(count)?;
        let mut halves = upper.iter().zip(lower);
        let mut possible = model.state < STATES;
        model.each(&mut |probability| {
            if let Some((&upper, &lower)) = halves.next() {
                *probability = u16::from_be_bytes([upper, lower]);
            }
            possible &= POSSIBLE.contains(probability);
        });
        *from = rest;
        possible.then_some(model)
    }
}
