//! The sequences of a block: how many literals to take, and what to copy after them (RFC 8878 §3.1.1.3.2).

use super::bits::Reverse;
use super::block::Invalid;
use super::frame::LARGEST_BLOCK;
use super::fse::{Counts, FseState, MOST_STATES};

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
        match self {
            Self::LiteralLengths => LITERAL_LENGTHS.len(),
            // RFC 8878 leaves their number to the decoder; a window of more than 2 GiB has none.
            Self::Offsets => 32,
            Self::MatchLengths => MATCH_LENGTHS.len(),
        }
    }

    /// What a code means: the least value, and how many bits are added to it.
    fn meaning(self, symbol: u8) -> Option<(u32, u8)> {
        match self {
            Self::LiteralLengths => LITERAL_LENGTHS.get(usize::from(symbol)).copied(),
            Self::Offsets => (usize::from(symbol) < self.symbols()).then(|| (1 << symbol, symbol)),
            Self::MatchLengths => MATCH_LENGTHS.get(usize::from(symbol)).copied(),
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

/// A state of a table with what its symbol means.
#[derive(Clone, Copy, Default)]
struct Entry {
    value: u32,
    /// From the lowest bit: how many bits the code takes in all (8 bits), how many of them lead to the next state (8),
    /// and the least next state. What takes a number of bits from here looks at no more than 8.
    rest: u32,
}

impl Entry {
    fn new((value, extra): (u32, u8), next: u16, bits: u8) -> Self {
        Self { value, rest: u32::from(next) << 16 | u32::from(bits) << 8 | u32::from(extra + bits) }
    }

    /// Bits that are added to the value. Only the 8 lowest count.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it is compiled for several processors")]
    fn extra(self) -> u32 {
        self.rest.wrapping_sub(self.rest >> 8)
    }

    /// Bits that lead to the next state. Only the 8 lowest count.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it is compiled for several processors")]
    fn of_state(self) -> u32 {
        self.rest >> 8
    }
}

type Entries = [Entry; MOST_STATES];

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
                let meaning = kind.meaning(*symbol).ok_or("a table of a symbol that there is not")?;
                entries[0] = Entry::new(meaning, 0, 0);
                self.log = 0;
            }
            Description::Counts(counts) => self.make_from(entries, kind, counts),
        }
        self.description = *description;
        Ok(())
    }

    fn make_from(&mut self, entries: &mut Entries, kind: Kind, counts: &Counts) {
        let mut states = [FseState::default(); MOST_STATES];
        for (entry, state) in entries.iter_mut().zip(counts.states(&mut states)) {
            // Counts are only read for symbols that there are.
            *entry = Entry::new(kind.meaning(state.symbol).unwrap_or_default(), state.next, state.bits);
        }
        self.log = counts.log;
    }
}

impl Tables {
    pub(super) fn new() -> Self {
        let mut entries = Box::new([[Entry::default(); MOST_STATES]; 3]);
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
        self.entries.copy_from_slice(&*other.entries);
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
        let (count, section) = read_count(section)?;
        if count == 0 {
            return if section.is_empty() { Ok(&[]) } else { Err("a block has bytes behind its sequences") };
        }
        if count > MOST_SEQUENCES {
            return Err("more sequences than a block may have");
        }
        let section = self.read_tables(section)?;
        if room.len() < count {
            room.resize(count, Sequence::default());
        }
        let sequences = &mut room[..count];
        self.decode_all(section, sequences)?;
        Ok(sequences)
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

    fn decode_all(&self, bytes: &[u8], sequences: &mut [Sequence]) -> Result<(), Invalid> {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("bmi2") {
            // SAFETY: the processor has what the function is compiled for.
            return unsafe { self.decode_bmi2(bytes, sequences) };
        }
        let lowest = |word: u64, count: u32| word & (1_u64.wrapping_shl(count)).wrapping_sub(1);
        self.decode_inline(bytes, sequences, lowest)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "bmi2")]
    fn decode_bmi2(&self, bytes: &[u8], sequences: &mut [Sequence]) -> Result<(), Invalid> {
        self.decode_inline(bytes, sequences, |word, count| std::arch::x86_64::_bzhi_u64(word, count))
    }

    /// `lowest` are the lowest bits of a word, as many as the lowest 8 bits of its second argument say, which are less
    /// than 64.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it is compiled for several processors")]
    fn decode_inline(
        &self,
        bytes: &[u8],
        sequences: &mut [Sequence],
        lowest: impl Fn(u64, u32) -> u64,
    ) -> Result<(), Invalid> {
        let mut reader = Reverse::new(bytes)?;
        let mut start = |table: &Table| reader.take(table.log).ok_or(ENDS);
        let [literal_lengths, offsets, match_lengths] = &self.made;
        let mut states = [start(literal_lengths)? as usize, start(offsets)? as usize, start(match_lengths)? as usize];
        let Some((last, sequences)) = sequences.split_last_mut() else { return Ok(()) };
        for sequence in sequences {
            let [of_literals, of_offset, of_match] = self.entries(states);
            // Each state waits for those before it, so what leads to them is made in few steps.
            let mut sums = of_literals.rest.wrapping_add(of_offset.rest).wrapping_add(of_match.rest);
            let mut total = (sums & 0xff) as usize;
            let mut word = reader.word();
            // The bits before the `end`, of which only the 6 lowest bits count.
            let field = |word: u64, end: u32, count: u32| lowest(word.rotate_left(end), count);
            if total <= Reverse::READY {
                let (end_of_offset, extra) = (of_offset.extra(), of_match.extra());
                let offset = of_offset.value.wrapping_add(field(word, end_of_offset, end_of_offset) as u32);
                let end = end_of_offset.wrapping_add(extra);
                let matched = of_match.value.wrapping_add(field(word, end, extra) as u32);
                let extra = of_literals.extra();
                let end = end.wrapping_add(extra);
                let literals = of_literals.value.wrapping_add(field(word, end, extra) as u32);
                *sequence = Sequence { literals, matched, offset };
            } else {
                (*sequence, reader) = self.long_values(reader, states[0], states[1], states[2])?;
                word = reader.word();
                sums = sums >> 8 & 0xff;
                total = sums as usize;
            }
            let state = |entry: Entry, end: u32| {
                ((entry.rest >> 16) as usize).wrapping_add(field(word, end, entry.of_state()) as usize)
            };
            let behind_literals = of_match.rest.wrapping_add(of_offset.rest) >> 8;
            states = [
                state(of_literals, sums.wrapping_sub(behind_literals)),
                state(of_offset, sums),
                state(of_match, sums.wrapping_sub(of_offset.of_state())),
            ];
            if !reader.skip(total) {
                return Err(ENDS);
            }
        }
        (*last, reader) = self.long_values(reader, states[0], states[1], states[2])?;
        if reader.left() == 0 { Ok(()) } else { Err("the sequences have bits left over") }
    }

    /// Decodes what three codes mean where one word may have too few bits. Nothing comes in memory: the loop would keep
    /// it there.
    #[cold]
    #[inline(never)]
    fn long_values<'a>(
        &self,
        mut reader: Reverse<'a>,
        of_literals: usize,
        of_offset: usize,
        of_match: usize,
    ) -> Result<(Sequence, Reverse<'a>), Invalid> {
        let [of_literals, of_offset, of_match] = self.entries([of_literals, of_offset, of_match]);
        let mut value = |entry: Entry| reader.take(entry.extra() as u8).map(|extra| entry.value.wrapping_add(extra));
        let (offset, matched) = (value(of_offset).ok_or(ENDS)?, value(of_match).ok_or(ENDS)?);
        Ok((Sequence { literals: value(of_literals).ok_or(ENDS)?, matched, offset }, reader))
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it is compiled for several processors")]
    fn entries(&self, states: [usize; 3]) -> [Entry; 3] {
        let [literal_lengths, offsets, match_lengths] = &*self.entries;
        [
            literal_lengths[states[0] % MOST_STATES],
            offsets[states[1] % MOST_STATES],
            match_lengths[states[2] % MOST_STATES],
        ]
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
