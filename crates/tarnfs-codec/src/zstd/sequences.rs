//! The sequences of a block: how many literals to take, and what to copy after them (RFC 8878 §3.1.1.3.2).

use super::bits::Reverse;
use super::block::Invalid;
use super::frame::LARGEST_BLOCK;
use super::fse::{Counts, MOST_STATES};

/// The shortest match.
const SHORTEST_MATCH: usize = 3;
/// No block has more sequences: each makes a match.
const MOST_SEQUENCES: usize = LARGEST_BLOCK as usize / SHORTEST_MATCH;

/// So may end what was made with a dictionary that is not there.
pub(super) const NO_TABLE: Invalid = "sequences with a table of the block before, which had none";

const CUT: Invalid = "the sequences of a block are cut";
const ENDS: Invalid = "the bits of the sequences end too early";

/// Literals, and a match.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sequence {
    pub(super) literals: u32,
    pub(super) matched: u32,
    /// As coded: up to 3 it is one of the repeated offsets, above that it is 3 more than the offset.
    pub(super) offset: u32,
}

/// One of the three kinds of codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    LiteralLengths,
    Offsets,
    MatchLengths,
}

impl Kind {
    /// In the order in which tables are described.
    pub(super) const ALL: [Self; 3] = [Self::LiteralLengths, Self::Offsets, Self::MatchLengths];

    /// The most states of a table, as a power of two (RFC 8878 §3.1.1.3.2.1).
    pub(super) fn most_log(self) -> u8 {
        if self == Self::Offsets { 8 } else { 9 }
    }

    /// How many codes there are.
    pub(super) fn symbols(self) -> usize {
        self.meanings().len()
    }

    /// What the codes mean: the least value, and how many bits are added to it.
    fn meanings(self) -> &'static [(u32, u8)] {
        match self {
            Self::LiteralLengths => &LITERAL_LENGTHS,
            Self::Offsets => &OFFSETS,
            Self::MatchLengths => &MATCH_LENGTHS,
        }
    }

    /// The table that needs no description.
    fn predefined(self) -> Counts {
        match self {
            Self::LiteralLengths => Counts::new(6, &PREDEFINED_LITERAL_LENGTHS),
            Self::Offsets => Counts::new(5, &PREDEFINED_OFFSETS),
            Self::MatchLengths => Counts::new(6, &PREDEFINED_MATCH_LENGTHS),
        }
    }
}

/// What a table is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Description {
    Predefined,
    /// One symbol, always.
    Single(u8),
    Counts(Counts),
}

/// The states of a table with what their symbols mean.
#[derive(Clone)]
struct Entries {
    /// From the lowest bit: how many bits lead to the next state (8 bits), and how many are added to the value.
    bits: [u16; MOST_STATES],
    /// The least next state.
    next: [u16; MOST_STATES],
    values: [u32; MOST_STATES],
}

impl Entries {
    const NONE: Self = Self { bits: [0; MOST_STATES], next: [0; MOST_STATES], values: [0; MOST_STATES] };

    fn set(&mut self, at: usize, (value, extra): (u32, u8), next: u16, bits: u8) {
        // What [`Chain::step`] counts on: whatever the bits are, there is such a state.
        assert!(usize::from(next) + (1 << bits) <= MOST_STATES);
        self.bits[at] = u16::from(extra) << 8 | u16::from(bits);
        self.next[at] = next;
        self.values[at] = value;
    }
}

/// What there is beside a table's entries.
#[derive(Clone)]
struct Table {
    log: u8,
    description: Description,
}

/// The three tables, each of which a block may use again.
#[derive(Clone)]
pub(super) struct Tables {
    /// Of all three, side by side.
    entries: Box<[Entries; 3]>,
    made: [Table; 3],
    /// Set by a block of this frame.
    known: bool,
}

impl Table {
    /// Becomes the table of this description; what was described is right but for the symbol of
    /// [`Description::Single`].
    fn make(&mut self, entries: &mut Entries, kind: Kind, description: &Description) -> Result<(), Invalid> {
        match description {
            Description::Predefined if self.description == Description::Predefined => return Ok(()),
            Description::Predefined => self.make_from(entries, kind, &kind.predefined()),
            Description::Single(symbol) => {
                let meaning =
                    *kind.meanings().get(usize::from(*symbol)).ok_or("a table of a symbol that there is not")?;
                entries.set(0, meaning, 0, 0);
                self.log = 0;
            }
            Description::Counts(counts) => self.make_from(entries, kind, counts),
        }
        self.description = *description;
        Ok(())
    }

    fn make_from(&mut self, entries: &mut Entries, kind: Kind, counts: &Counts) {
        let meanings = kind.meanings();
        counts.each_state(|at, state| {
            // Counts are only read for symbols that there are.
            let meaning = meanings.get(usize::from(state.symbol)).copied().unwrap_or_default();
            entries.set(at, meaning, state.next, state.bits);
        });
        self.log = counts.log;
    }
}

impl Tables {
    pub(super) fn new() -> Self {
        let mut entries = Box::new([const { Entries::NONE }; 3]);
        let mut made = [const { Table { log: 0, description: Description::Predefined } }; 3];
        for ((table, entries), kind) in made.iter_mut().zip(&mut *entries).zip(Kind::ALL) {
            table.make_from(entries, kind, &kind.predefined());
        }
        Self { entries, made, known: false }
    }

    /// Forgets the tables: a frame begins.
    pub(super) fn reset(&mut self) {
        self.known = false;
    }

    /// Knows the same tables as `other` from now on.
    pub(super) fn know(&mut self, other: &Self) {
        self.entries.clone_from(&other.entries);
        self.made.clone_from(&other.made);
        self.known = other.known;
    }

    /// What the tables were made from, where a block of this frame had some.
    pub(super) fn descriptions(&self) -> Option<[Description; 3]> {
        self.known.then(|| self.made.each_ref().map(|table| table.description))
    }

    /// Has the tables of these descriptions from now on.
    pub(super) fn set(&mut self, descriptions: &[Description; 3]) -> Result<(), Invalid> {
        self.known = false;
        for (kind, description) in Kind::ALL.into_iter().zip(descriptions) {
            self.make(kind, description)?;
        }
        self.known = true;
        Ok(())
    }

    /// Decodes the sequences in `section`, which is the rest of a block. `room` only ever grows.
    pub(super) fn decode<'a>(
        &mut self,
        section: &[u8],
        room: &'a mut Vec<Sequence>,
    ) -> Result<&'a [Sequence], Invalid> {
        let section = self.read(section)?;
        self.decode_section(section, room)
    }

    /// The same of what [`Tables::read`] has returned.
    pub(super) fn decode_section<'a>(
        &self,
        section: Section,
        room: &'a mut Vec<Sequence>,
    ) -> Result<&'a [Sequence], Invalid> {
        let sequences = section.room(room);
        self.decode_all(section.bits, sequences)?;
        Ok(sequences)
    }

    /// Reads what stands before the bits of the sequences in `section`, which is the rest of a block.
    pub(super) fn read<'a>(&mut self, section: &'a [u8]) -> Result<Section<'a>, Invalid> {
        let (count, section) = read_count(section)?;
        if count == 0 {
            let none = Section { bits: section, count };
            return if section.is_empty() { Ok(none) } else { Err("a block has bytes behind its sequences") };
        }
        if count > MOST_SEQUENCES {
            return Err("more sequences than a block may have");
        }
        Ok(Section { bits: self.read_tables(section)?, count })
    }

    fn make(&mut self, kind: Kind, description: &Description) -> Result<(), Invalid> {
        let at = kind as usize;
        self.made[at].make(&mut self.entries[at], kind, description)
    }

    fn read_tables<'a>(&mut self, section: &'a [u8]) -> Result<&'a [u8], Invalid> {
        let (&modes, mut rest) = section.split_first().ok_or(CUT)?;
        if modes & 3 != 0 {
            return Err("reserved bits of the sequences are set");
        }
        let known = std::mem::take(&mut self.known);
        for (kind, shift) in Kind::ALL.into_iter().zip([6, 4, 2]) {
            match modes >> shift & 3 {
                0 => self.make(kind, &Description::Predefined)?,
                1 => {
                    let (&symbol, behind) = rest.split_first().ok_or(CUT)?;
                    self.make(kind, &Description::Single(symbol))?;
                    rest = behind;
                }
                2 => {
                    let (counts, length) = Counts::read(rest, kind.symbols(), kind.most_log())?;
                    self.make(kind, &Description::Counts(counts))?;
                    rest = rest.get(length..).ok_or(CUT)?;
                }
                _ if known => {}
                _ => return Err(NO_TABLE),
            }
        }
        self.known = true;
        Ok(rest)
    }

    fn decode_all(&self, bits: &[u8], sequences: &mut [Sequence]) -> Result<(), Invalid> {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("bmi2") {
            // SAFETY: the processor has what the function is compiled for.
            return unsafe { self.decode_bmi2(bits, sequences) };
        }
        self.decode_inline(bits, sequences, lowest)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "bmi2")]
    fn decode_bmi2(&self, bits: &[u8], sequences: &mut [Sequence]) -> Result<(), Invalid> {
        self.decode_inline(bits, sequences, |word, count| std::arch::x86_64::_bzhi_u64(word, count))
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it is compiled for several processors")]
    fn decode_inline(&self, bits: &[u8], sequences: &mut [Sequence], lowest: impl Lowest) -> Result<(), Invalid> {
        if sequences.is_empty() {
            return Ok(());
        }
        Chain::start(self, bits)?.finish(sequences, lowest)
    }
}

/// Decodes the sequences of two blocks side by side: no step of one waits for one of the other, which is what a step
/// mostly does. The first of `tables`, `sections` and `rooms` are those of one block.
pub(super) fn decode_two(
    tables: [&Tables; 2],
    sections: [Section; 2],
    rooms: [&mut Vec<Sequence>; 2],
) -> [Result<(), Invalid>; 2] {
    let [first, second] = sections;
    let [to_first, to_second] = rooms;
    let (bits, sequences) = ([first.bits, second.bits], [first.room(to_first), second.room(to_second)]);
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("bmi2") {
        // SAFETY: the processor has what the function is compiled for.
        return unsafe { decode_two_bmi2(tables, bits, sequences) };
    }
    decode_two_inline(tables, bits, sequences, lowest)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "bmi2")]
fn decode_two_bmi2(
    tables: [&Tables; 2],
    bits: [&[u8]; 2],
    sequences: [&mut [Sequence]; 2],
) -> [Result<(), Invalid>; 2] {
    decode_two_inline(tables, bits, sequences, |word, count| std::arch::x86_64::_bzhi_u64(word, count))
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "it is compiled for several processors")]
fn decode_two_inline(
    tables: [&Tables; 2],
    bits: [&[u8]; 2],
    sequences: [&mut [Sequence]; 2],
    lowest: impl Lowest,
) -> [Result<(), Invalid>; 2] {
    let [a, b] = sequences;
    let (Ok(mut first), Ok(mut second)) = (Chain::start(tables[0], bits[0]), Chain::start(tables[1], bits[1])) else {
        return [tables[0].decode_inline(bits[0], a, lowest), tables[1].decode_inline(bits[1], b, lowest)];
    };
    // The last one has no bits that lead to a state.
    let both = (a.len().min(b.len())).saturating_sub(1);
    let (to_first, to_second) = (&mut a[..both], &mut b[..both]);
    let (mut done, mut is_whole) = (0, true);
    while done < both && is_whole {
        if !first.step(&mut to_first[done], lowest) {
            return [Err(ENDS); 2];
        }
        is_whole = second.step(&mut to_second[done], lowest);
        done += 1;
    }
    let of_first = first.finish(&mut a[done..], lowest);
    [of_first, if is_whole { second.finish(&mut b[done..], lowest) } else { Err(ENDS) }]
}

/// The bits of a block's sequences, and how many these are.
#[derive(Clone, Copy)]
pub(super) struct Section<'a> {
    bits: &'a [u8],
    pub(super) count: usize,
}

impl Section<'_> {
    /// A place for the sequences in `room`, which only ever grows.
    fn room<'a>(&self, room: &'a mut Vec<Sequence>) -> &'a mut [Sequence] {
        if room.len() < self.count {
            room.resize(self.count, Sequence::default());
        }
        &mut room[..self.count]
    }
}

/// The lowest bits of a word, as many as the lowest 8 bits of the second argument say, which are less than 64.
trait Lowest: Fn(u64, u32) -> u64 + Copy {}

impl<F: Fn(u64, u32) -> u64 + Copy> Lowest for F {}

fn lowest(word: u64, count: u32) -> u64 {
    word & (1_u64.wrapping_shl(count)).wrapping_sub(1)
}

/// Where decoding the sequences of a block has come to.
#[derive(Clone, Copy)]
struct Chain<'a> {
    entries: &'a [Entries; 3],
    reader: Reverse<'a>,
    /// Of literal lengths, offsets and match lengths.
    states: [usize; 3],
}

impl<'a> Chain<'a> {
    fn start(tables: &'a Tables, bits: &'a [u8]) -> Result<Self, Invalid> {
        let mut reader = Reverse::new(bits)?;
        let mut start = |table: &Table| reader.take(table.log).ok_or(ENDS);
        let [literal_lengths, offsets, match_lengths] = &tables.made;
        let states = [start(literal_lengths)? as usize, start(offsets)? as usize, start(match_lengths)? as usize];
        Ok(Self { entries: &tables.entries, reader, states })
    }

    /// Decodes the next sequence, and goes on to what comes then; false if the bits end before that.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it is compiled for several processors")]
    fn step(&mut self, to: &mut Sequence, lowest: impl Lowest) -> bool {
        let [of_literals, of_offset, of_match] = self.states;
        let [literal_lengths, offsets, match_lengths] = self.entries;
        // SAFETY: all states are less than MOST_STATES: those at the start are of at most 9 bits, and all others come
        // of what `Entries::set` has looked at.
        let (bits, next, values) = unsafe {
            (
                [
                    u64::from(*literal_lengths.bits.get_unchecked(of_literals)),
                    u64::from(*offsets.bits.get_unchecked(of_offset)),
                    u64::from(*match_lengths.bits.get_unchecked(of_match)),
                ],
                [
                    usize::from(*literal_lengths.next.get_unchecked(of_literals)),
                    usize::from(*offsets.next.get_unchecked(of_offset)),
                    usize::from(*match_lengths.next.get_unchecked(of_match)),
                ],
                [
                    *literal_lengths.values.get_unchecked(of_literals),
                    *offsets.values.get_unchecked(of_offset),
                    *match_lengths.values.get_unchecked(of_match),
                ],
            )
        };
        let [bits_of_literals, bits_of_offset, bits_of_match] = bits;
        // Each state waits for those before it, so what leads to them is made in few steps.
        let sums = bits_of_literals.wrapping_add(bits_of_offset).wrapping_add(bits_of_match);
        let total = (sums & 0xff).wrapping_add(sums >> 8) as usize;
        let Some(word) = self.reader.lowest(total) else {
            let Some((sequence, then)) = self.slow_step() else { return false };
            (*to, *self) = (sequence, then);
            return true;
        };
        // Of the bits that count, the lowest ones come last.
        let take = |word: u64, count: u64| (lowest(word, count as u32), word.wrapping_shr(count as u32));
        let (to_offset, word) = take(word, bits_of_offset);
        let (to_match, word) = take(word, bits_of_match);
        let (to_literals, word) = take(word, bits_of_literals);
        self.states = [
            next[0].wrapping_add(to_literals as usize),
            next[1].wrapping_add(to_offset as usize),
            next[2].wrapping_add(to_match as usize),
        ];
        let (literals, word) = take(word, bits_of_literals >> 8);
        let (matched, word) = take(word, bits_of_match >> 8);
        let (offset, _) = take(word, bits_of_offset >> 8);
        to.literals = values[0].wrapping_add(literals as u32);
        to.matched = values[2].wrapping_add(matched as u32);
        to.offset = values[1].wrapping_add(offset as u32);
        true
    }

    /// The same wherever enough bits are left. Nothing comes in memory: the loop would keep it there.
    #[cold]
    #[inline(never)]
    fn slow_step(mut self) -> Option<(Sequence, Self)> {
        let sequence = self.values()?;
        let [of_literals, of_offset, of_match] = self.states.map(|state| state % MOST_STATES);
        let [literal_lengths, offsets, match_lengths] = self.entries;
        let mut state = |entries: &Entries, at: usize| {
            Some(usize::from(entries.next[at]) + self.reader.take(entries.bits[at] as u8)? as usize)
        };
        let (literals, matched) = (state(literal_lengths, of_literals)?, state(match_lengths, of_match)?);
        self.states = [literals, state(offsets, of_offset)?, matched];
        Some((sequence, self))
    }

    /// The sequence of the states, without going on to the next ones.
    fn values(&mut self) -> Option<Sequence> {
        let [of_literals, of_offset, of_match] = self.states.map(|state| state % MOST_STATES);
        let [literal_lengths, offsets, match_lengths] = self.entries;
        let mut value = |entries: &Entries, at: usize| {
            Some(entries.values[at].wrapping_add(self.reader.take((entries.bits[at] >> 8) as u8)?))
        };
        let (offset, matched) = (value(offsets, of_offset)?, value(match_lengths, of_match)?);
        Some(Sequence { literals: value(literal_lengths, of_literals)?, matched, offset })
    }

    /// Decodes the last sequences: all that are left.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it is compiled for several processors")]
    fn finish(self, sequences: &mut [Sequence], lowest: impl Lowest) -> Result<(), Invalid> {
        let mut this = self;
        let Some((last, sequences)) = sequences.split_last_mut() else { return Ok(()) };
        for sequence in sequences {
            if !this.step(sequence, lowest) {
                return Err(ENDS);
            }
        }
        this.finish_last(last)
    }

    #[inline(never)]
    fn finish_last(mut self, last: &mut Sequence) -> Result<(), Invalid> {
        *last = self.values().ok_or(ENDS)?;
        if self.reader.left() == 0 { Ok(()) } else { Err("the sequences have bits left over") }
    }
}

/// How many sequences there are, and what is behind that number.
fn read_count(section: &[u8]) -> Result<(usize, &[u8]), Invalid> {
    Ok(match *section {
        [first @ 0..=127, ref rest @ ..] => (usize::from(first), rest),
        [first @ 128..=254, second, ref rest @ ..] => (usize::from(first - 128) << 8 | usize::from(second), rest),
        [255, first, second, ref rest @ ..] => (usize::from(u16::from_le_bytes([first, second])) + 0x7F00, rest),
        _ => return Err(CUT),
    })
}

/// RFC 8878 §3.1.1.3.2.1.1, table 15.
#[rustfmt::skip]
const LITERAL_LENGTHS: [(u32, u8); 36] = [
    (0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0), (7, 0), (8, 0), (9, 0), (10, 0), (11, 0), (12, 0), (13, 0), (14, 0), (15, 0),
    (16, 1), (18, 1), (20, 1), (22, 1), (24, 2), (28, 2), (32, 3), (40, 3), (48, 4), (64, 6), (128, 7), (256, 8), (512, 9), (1024, 10),
    (2048, 11), (4096, 12), (8192, 13), (16384, 14), (32768, 15), (65536, 16),
];

/// RFC 8878 §3.1.1.3.2.1.1, table 16.
#[rustfmt::skip]
const MATCH_LENGTHS: [(u32, u8); 53] = [
    (3, 0), (4, 0), (5, 0), (6, 0), (7, 0), (8, 0), (9, 0), (10, 0), (11, 0), (12, 0), (13, 0), (14, 0), (15, 0), (16, 0), (17, 0), (18, 0),
    (19, 0), (20, 0), (21, 0), (22, 0), (23, 0), (24, 0), (25, 0), (26, 0), (27, 0), (28, 0), (29, 0), (30, 0), (31, 0), (32, 0), (33, 0),
    (34, 0), (35, 1), (37, 1), (39, 1), (41, 1), (43, 2), (47, 2), (51, 3), (59, 3), (67, 4), (83, 4), (99, 5), (131, 7), (259, 8), (515, 9),
    (1027, 10), (2051, 11), (4099, 12), (8195, 13), (16387, 14), (32771, 15), (65539, 16),
];

/// RFC 8878 §3.1.1.3.2.1.1. It leaves to the decoder how many there are; a window of more than 2 GiB has none.
const OFFSETS: [(u32, u8); 32] = {
    let mut offsets = [(0, 0); 32];
    let mut code = 0;
    while code < 32 {
        offsets[code as usize] = (1 << code, code);
        code += 1;
    }
    offsets
};

/// RFC 8878 §3.1.1.3.2.2.
#[rustfmt::skip]
const PREDEFINED_LITERAL_LENGTHS: [i16; 36] = [
    4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1,
];
#[rustfmt::skip]
const PREDEFINED_MATCH_LENGTHS: [i16; 53] = [
    1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    -1, -1, -1, -1, -1, -1, -1,
];
#[rustfmt::skip]
const PREDEFINED_OFFSETS: [i16; 29] = [
    1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1,
];

#[cfg(test)]
mod tests {
    use super::read_count;

    /// RFC 8878 §3.1.1.3.2.1. No program writes as many as the longest form says: a block of 128 KiB has fewer.
    #[test]
    fn the_number_of_sequences_has_three_forms() {
        for (section, expected) in [
            (&[0][..], Some(0)),
            (&[127, 9], Some(127)),
            (&[128, 128, 9], Some(128)),
            (&[129, 2, 9], Some(258)),
            (&[254, 255, 9], Some(0x7eff)),
            (&[255, 0, 0, 9], Some(0x7f00)),
            (&[255, 3, 2, 9], Some(0x7f00 + 0x203)),
            (&[], None),
            (&[128], None),
            (&[255, 1], None),
        ] {
            let read = read_count(section).ok();
            assert_eq!(read.map(|(count, _)| count), expected, "{section:?}");
            assert!(read.is_none_or(|(_, rest)| rest.is_empty() || rest == [9]));
        }
    }
}
