//! The prefix codes of a deflate block (RFC 1951 §3.2), as tables that are looked up with the next bits of the input.
//!
//! An entry holds, from its lowest bit: how many bits it takes, those of its extra value included (6 bits); how many
//! literals it stands for (2 bits); how many bits are codes, without the extra value (4 bits); flags; and from bit 16
//! the base of a distance, the start of a subtable for codes that are longer than the table's index, or two bytes:
//! first the literals, and last the length less 3.
//!
//! Where the codes of a literal and of what follows it are in one index together, one entry stands for both: fewer
//! look-ups, and fewer branches that cannot be foretold.

use super::bits::BitReader;

/// Index bits of the table of literals and lengths: longer codes are rare, and two literals of six bits fit.
pub(super) const LITERAL_BITS: u32 = 12;
/// Index bits of the table of distances.
pub(super) const DISTANCE_BITS: u32 = 9;

/// The longest code (RFC 1951 §3.2.7).
const LONGEST: usize = 15;
/// Literals, the end of a block, and lengths; two more have codes in fixed blocks (RFC 1951 §3.2.6).
const LITERAL_SYMBOLS: usize = 286;
const FIXED_LITERAL_SYMBOLS: usize = 288;
/// Distances; two more have codes in fixed blocks.
const DISTANCE_SYMBOLS: usize = 30;
const FIXED_DISTANCE_SYMBOLS: usize = 32;

/// The longest code of a code length (RFC 1951 §3.2.7): no subtables are needed.
const LENGTH_BITS: u32 = 7;

/// With each subtable come two codes at least, as codes are complete.
const LITERAL_ENTRIES: usize = (1 << LITERAL_BITS) + LITERAL_SYMBOLS / 2 * (1 << (LONGEST - LITERAL_BITS as usize));
const DISTANCE_ENTRIES: usize = (1 << DISTANCE_BITS) + DISTANCE_SYMBOLS / 2 * (1 << (LONGEST - DISTANCE_BITS as usize));

/// The bits that an entry takes.
const TAKES: u32 = 0x3f;
/// One in the number of literals.
const ONE_LITERAL: u32 = 1 << 6;
/// The shortest match (RFC 1951 §3.2.5).
const SHORTEST_MATCH: u16 = 3;

/// Literals and nothing else.
pub(super) const LITERALS: u32 = 1 << 12;
/// Neither a literal nor a length or distance.
pub(super) const SPECIAL: u32 = 1 << 15;
/// Codes that continue in a subtable: from bit 16 its start, from bit 8 its index bits.
pub(super) const SUBTABLE: u32 = 1 << 14;
/// The end of the block.
pub(super) const END: u32 = 1 << 13;

/// First length and number of extra bits of the symbols from 257 on (RFC 1951 §3.2.5).
const LENGTHS: [(u16, u8); 29] = [
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 1),
    (13, 1),
    (15, 1),
    (17, 1),
    (19, 2),
    (23, 2),
    (27, 2),
    (31, 2),
    (35, 3),
    (43, 3),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 4),
    (115, 4),
    (131, 5),
    (163, 5),
    (195, 5),
    (227, 5),
    (258, 0),
];

/// First distance and number of extra bits (RFC 1951 §3.2.5).
const DISTANCES: [(u16, u8); DISTANCE_SYMBOLS] = [
    (1, 0),
    (2, 0),
    (3, 0),
    (4, 0),
    (5, 1),
    (7, 1),
    (9, 2),
    (13, 2),
    (17, 3),
    (25, 3),
    (33, 4),
    (49, 4),
    (65, 5),
    (97, 5),
    (129, 6),
    (193, 6),
    (257, 7),
    (385, 7),
    (513, 8),
    (769, 8),
    (1025, 9),
    (1537, 9),
    (2049, 10),
    (3073, 10),
    (4097, 11),
    (6145, 11),
    (8193, 12),
    (12289, 12),
    (16385, 13),
    (24577, 13),
];

/// The order in which the lengths of the code length code stand (RFC 1951 §3.2.7).
const CODE_LENGTH_ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// The tables of one block.
pub(super) struct Codes {
    /// Of literals and lengths, and of distances behind it: the decoding loop has no register to spare.
    tables: Box<[u32]>,
    /// Bits of the code of each literal.
    literal_lengths: [u8; 256],
    /// They hold the fixed codes: blocks with these often come in rows.
    fixed: bool,
    joined: Joined,
}

/// A table of so many entries, looked up with so many bits. The numbers are in its type so that an index of as many
/// bits needs no check.
#[derive(Clone, Copy)]
pub(super) struct Table<'a, const ENTRIES: usize, const INDEX_BITS: u32>(&'a [u32; ENTRIES]);

pub(super) type LiteralTable<'a> = Table<'a, LITERAL_ENTRIES, LITERAL_BITS>;
pub(super) type DistanceTable<'a> = Table<'a, DISTANCE_ENTRIES, DISTANCE_BITS>;

impl<const ENTRIES: usize, const INDEX_BITS: u32> Table<'_, ENTRIES, INDEX_BITS> {
    /// The entry that the next bits lead to.
    #[inline]
    pub(super) fn entry(self, bits: u64) -> u32 {
        self.0[bits as usize & ((1 << INDEX_BITS) - 1)]
    }

    /// The entry in the subtable that `entry` leads to, with the same bits.
    #[inline]
    pub(super) fn in_subtable(self, entry: u32, bits: u64) -> u32 {
        let rest = bits.wrapping_shr(takes(entry));
        let index = rest & (1_u64.wrapping_shl(entry >> 8 & 15).wrapping_sub(1));
        self.0.get(((entry >> 16) as usize).wrapping_add(index as usize)).copied().unwrap_or(SPECIAL)
    }
}

/// The bits that an entry takes.
#[inline]
pub(super) fn takes(entry: u32) -> u32 {
    entry & TAKES
}

/// How many literals an entry stands for: 0, 1 or 2.
#[inline]
pub(super) fn literals(entry: u32) -> usize {
    (entry >> 6 & 3) as usize
}

/// The literals of an entry; those that it has not may be anything.
#[inline]
pub(super) fn bytes(entry: u32) -> [u8; 2] {
    ((entry >> 16) as u16).to_le_bytes()
}

/// The length of an entry whose code is the next in `bits`.
#[inline]
pub(super) fn length(entry: u32, bits: u64) -> usize {
    (entry >> 24) as usize + usize::from(SHORTEST_MATCH) + extra(entry, bits)
}

/// The distance of an entry whose code is the next in `bits`.
#[inline]
pub(super) fn distance(entry: u32, bits: u64) -> usize {
    (entry >> 16) as usize + extra(entry, bits)
}

#[inline]
fn extra(entry: u32, bits: u64) -> usize {
    (bits & (1_u64.wrapping_shl(takes(entry)).wrapping_sub(1))).wrapping_shr(entry >> 8 & 15) as usize
}

/// Why there are no codes.
pub(super) enum HeaderError {
    /// The input ends in the header.
    Short,
    /// It is not valid.
    Invalid(&'static str),
}

impl Codes {
    pub(super) fn new() -> Self {
        Self {
            tables: vec![SPECIAL; LITERAL_ENTRIES + DISTANCE_ENTRIES].into_boxed_slice(),
            literal_lengths: [0; 256],
            fixed: false,
            joined: Joined::Yes,
        }
    }

    /// With one symbol in each entry: for a few thousand symbols, joining entries takes longer than it saves.
    pub(super) fn of_single_symbols() -> Self {
        Self { joined: Joined::No, ..Self::new() }
    }

    /// Bits of the code of a literal.
    pub(super) fn bits_of(&self, literal: u8) -> u32 {
        u32::from(self.literal_lengths[usize::from(literal)])
    }

    /// The table of literals and lengths, and that of distances.
    #[inline]
    pub(super) fn tables(&self) -> Option<(LiteralTable<'_>, DistanceTable<'_>)> {
        let (literals, distances) = self.tables.split_first_chunk()?;
        Some((Table(literals), Table(distances.first_chunk()?)))
    }

    /// Takes the fixed codes (RFC 1951 §3.2.6).
    pub(super) fn set_fixed(&mut self) {
        if self.fixed {
            return;
        }
        let mut lengths = [8; FIXED_LITERAL_SYMBOLS];
        lengths[144..256].fill(9);
        lengths[256..280].fill(7);
        // These two are complete codes.
        let _ = fill(&mut self.tables[..LITERAL_ENTRIES], LITERAL_BITS, &lengths, literal_entry, self.joined);
        let _ = fill(
            &mut self.tables[LITERAL_ENTRIES..],
            DISTANCE_BITS,
            &[5; FIXED_DISTANCE_SYMBOLS],
            distance_entry,
            Joined::No,
        );
        self.literal_lengths.copy_from_slice(&lengths[..256]);
        self.fixed = true;
    }

    /// Reads the codes at the start of a dynamic block (RFC 1951 §3.2.7).
    pub(super) fn read_dynamic(&mut self, reader: &mut BitReader) -> Result<(), HeaderError> {
        let bits = |reader: &mut BitReader, count| reader.bits(count).ok_or(HeaderError::Short);
        self.fixed = false;
        let literals = bits(reader, 5)? as usize + 257;
        let distances = bits(reader, 5)? as usize + 1;
        let code_lengths = bits(reader, 4)? as usize + 4;
        if literals > LITERAL_SYMBOLS || distances > DISTANCE_SYMBOLS {
            return Err(HeaderError::Invalid("too many length or distance symbols"));
        }
        let mut lengths_of_lengths = [0; 19];
        for &symbol in &CODE_LENGTH_ORDER[..code_lengths] {
            lengths_of_lengths[symbol] = bits(reader, 3)? as u8;
        }
        let mut table = [SPECIAL; 1 << LENGTH_BITS];
        let complete = fill(&mut table, LENGTH_BITS, &lengths_of_lengths, |symbol| (symbol << 16, 0), Joined::No);
        if complete != Ok(Completeness::Complete) {
            return Err(HeaderError::Invalid("invalid code lengths set"));
        }
        let mut lengths = [0; LITERAL_SYMBOLS + DISTANCE_SYMBOLS];
        let wanted = literals + distances;
        let mut known = 0;
        while known < wanted {
            reader.refill();
            let entry = table[(reader.buffer & ((1 << LENGTH_BITS) - 1)) as usize];
            // The code and the 7 bits that may follow it.
            let code = takes(entry);
            let symbol = entry >> 16;
            let (extra, base) = match symbol {
                0..=15 => (0, 1),
                16 => (2, 3),
                17 => (3, 3),
                _ => (7, 11),
            };
            if code + extra > reader.count {
                return Err(HeaderError::Short);
            }
            reader.consume(code);
            let repeat = base + bits(reader, extra)? as usize;
            let length = match symbol {
                0..=15 => symbol as u8,
                16 if known == 0 => return Err(HeaderError::Invalid("invalid bit length repeat")),
                16 => lengths[known - 1],
                _ => 0,
            };
            if known + repeat > wanted {
                return Err(HeaderError::Invalid("invalid bit length repeat"));
            }
            // Most stand alone.
            lengths[known] = length;
            lengths[known + 1..known + repeat].fill(length);
            known += repeat;
        }
        if lengths[256] == 0 {
            return Err(HeaderError::Invalid("invalid code: no end of block"));
        }
        let (literal_lengths, distance_lengths) = lengths[..wanted].split_at(literals);
        // One code of one bit may stand alone; no distance codes at all are those of a block of literals.
        match fill(&mut self.tables[..LITERAL_ENTRIES], LITERAL_BITS, literal_lengths, literal_entry, self.joined) {
            Ok(Completeness::Complete | Completeness::OneBit) => {}
            _ => return Err(HeaderError::Invalid("invalid literal/lengths set")),
        }
        match fill(&mut self.tables[LITERAL_ENTRIES..], DISTANCE_BITS, distance_lengths, distance_entry, Joined::No) {
            Ok(_) => {}
            Err(Incomplete) => return Err(HeaderError::Invalid("invalid distances set")),
        }
        self.literal_lengths.copy_from_slice(&literal_lengths[..256]);
        Ok(())
    }
}

fn literal_entry(symbol: u32) -> (u32, u8) {
    match symbol {
        0..=255 => (LITERALS | ONE_LITERAL | symbol << 16, 0),
        256 => (SPECIAL | END, 0),
        _ => LENGTHS
            .get(symbol as usize - 257)
            .map_or((SPECIAL, 0), |&(base, extra)| (u32::from(base - SHORTEST_MATCH) << 24, extra)),
    }
}

/// One entry for a literal and what follows it: a literal or a length.
#[inline]
fn join(first: u32, second: u32) -> u32 {
    let bits = takes(first);
    let byte = if second & LITERALS == 0 { second & 0xff00_0000 } else { (second & 0xff_0000) << 8 };
    (second & 0xffff).wrapping_add(bits << 8 | bits | ONE_LITERAL) | first & 0xff_0000 | byte
}

/// Are there entries for more than one symbol?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Joined {
    Yes,
    No,
}

fn distance_entry(symbol: u32) -> (u32, u8) {
    DISTANCES.get(symbol as usize).map_or((SPECIAL, 0), |&(base, extra)| (u32::from(base) << 16, extra))
}

/// How much of the space of codes is used.
#[derive(Debug, PartialEq, Eq)]
enum Completeness {
    Complete,
    /// One or two codes of one bit, no others.
    OneBit,
    Empty,
}

/// The code is neither, or has more codes than there is space for.
#[derive(Debug, PartialEq, Eq)]
struct Incomplete;

/// Fills a table with the code whose codes have these `lengths` (RFC 1951 §3.2.2). `entry` gives the upper part of a
/// symbol's entry and the number of its extra bits.
///
/// The table for so many bits is that for one less, twice, and the codes of this length: each is written once.
fn fill(
    table: &mut [u32],
    index_bits: u32,
    lengths: &[u8],
    entry: impl Fn(u32) -> (u32, u8),
    joined: Joined,
) -> Result<Completeness, Incomplete> {
    // Several at a time, as neighbours often are of one length.
    let mut several = [[0_u16; LONGEST + 1]; 4];
    for lengths in lengths.chunks(several.len()) {
        for (counts, &length) in several.iter_mut().zip(lengths) {
            let count = &mut counts[usize::from(length & 15)];
            *count = count.wrapping_add(1);
        }
    }
    let mut counts: [u16; LONGEST + 1] =
        std::array::from_fn(|length| several.iter().map(|counts| counts[length]).sum());
    counts[0] = 0;
    let longest = counts.iter().rposition(|&count| count > 0).unwrap_or(0);
    // Codes that are free at each length.
    let mut free = 1_i32;
    // Where the symbols of each length begin in the order of codes, and the first code of each length.
    let mut starts = [0_u16; LONGEST + 2];
    let mut code = 0_u32;
    let mut codes = [0_u32; LONGEST + 1];
    for length in 1..=LONGEST {
        free = free * 2 - i32::from(counts[length]);
        if free < 0 {
            return Err(Incomplete);
        }
        starts[length + 1] = starts[length] + counts[length];
        code = (code + u32::from(counts[length - 1])) << 1;
        codes[length] = code;
    }
    let completeness = match longest {
        0 => Completeness::Empty,
        _ if free == 0 => Completeness::Complete,
        1 => Completeness::OneBit,
        _ => return Err(Incomplete),
    };
    // In the order of codes: each code, its first bit lowest, and its entry.
    let mut sorted = [(0_u16, 0_u32); FIXED_LITERAL_SYMBOLS];
    let mut next = starts;
    for (symbol, &length) in lengths.iter().enumerate().filter(|(_, length)| **length > 0) {
        let length = u32::from(length);
        let place = &mut next[length as usize];
        let code = codes[length as usize] + u32::from(*place - starts[length as usize]);
        let (upper, extra) = entry(symbol as u32);
        // What is longer stands in a subtable, which has the bits of the index behind it.
        let bits = if length > index_bits { length - index_bits } else { length };
        sorted[usize::from(*place)] =
            ((code.reverse_bits() >> (32 - length)) as u16, upper | bits << 8 | (bits + u32::from(extra)));
        *place += 1;
    }
    let of_length = |length: usize| &sorted[usize::from(starts[length])..usize::from(starts[length + 1])];
    table[0] = SPECIAL | 1 << 8 | 1;
    for length in 1..=index_bits as usize {
        let half = 1 << (length - 1);
        table.copy_within(..half, half);
        for &(code, entry) in of_length(length) {
            table[usize::from(code)] = entry;
        }
        for first_length in 1..if joined == Joined::Yes { length } else { 1 } {
            let seconds = of_length(length - first_length);
            // In each length literals come first.
            let firsts = of_length(first_length).iter().take_while(|(_, entry)| entry & LITERALS != 0);
            for &(first_code, first) in firsts.filter(|_| !seconds.is_empty()) {
                for &(code, second) in seconds.iter().filter(|(_, entry)| entry & SPECIAL == 0) {
                    table[usize::from(first_code | code << first_length)] = join(first, second);
                }
            }
        }
    }
    let subtable_bits = (longest as u32).saturating_sub(index_bits);
    let mut subtables_end = 1_usize << index_bits;
    let mut prefix = None;
    for length in index_bits as usize + 1..=longest {
        let rest = length - index_bits as usize;
        for &(code, entry) in of_length(length) {
            let this_prefix = usize::from(code) & ((1 << index_bits) - 1);
            if prefix != Some(this_prefix) {
                prefix = Some(this_prefix);
                table[this_prefix] =
                    SPECIAL | SUBTABLE | (subtables_end as u32) << 16 | subtable_bits << 8 | index_bits;
                subtables_end += 1 << subtable_bits;
            }
            let start = subtables_end - (1 << subtable_bits);
            for place in table[start..subtables_end][usize::from(code) >> index_bits..].iter_mut().step_by(1 << rest) {
                *place = entry;
            }
        }
    }
    Ok(completeness)
}
