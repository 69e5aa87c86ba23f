//! RAR 2.9 to 4: LZ with codes for lengths and distances, or PPMd variant H, in blocks; and filters as programs for a
//! machine of RAR's own, of which only those that RAR writes itself are known. Source: public descriptions of the
//! format.

use std::io;
use std::iter;

use super::bits::Bits;
use super::filters::Program;
use super::huffman::{Table, length, read_lengths};
use super::ppmd::Model;
use super::window::{AT_ONCE, Window};
use crate::faults;
use tarnfs_source::Limits;

/// Bytes of the largest dictionary. What a header says of it is only what the archive was made with.
pub(super) const DICTIONARY: u64 = 4 << 20;

/// Symbols of each code: literals, matches and what else there is; distances; the lowest bits of far ones; lengths of
/// matches at a distance that was used before.
const MAIN: usize = 299;
const DISTANCES: usize = 60;
const LOW: usize = 17;
const LENGTHS: usize = 28;
const ALL: usize = MAIN + DISTANCES + LOW + LENGTHS;

/// Symbols of the main code that are no literals.
const END: usize = 256;
const FILTER: usize = 257;
const AGAIN: usize = 258;
const FIRST_OLD: usize = 259;
const FIRST_SHORT: usize = 263;
const FIRST_MATCH: usize = 271;

/// Matches of two bytes: the first distance, and how many bits more, for each symbol.
const SHORT: [(u64, u32); FIRST_MATCH - FIRST_SHORT] =
    [(0, 2), (4, 2), (8, 3), (16, 4), (32, 5), (64, 6), (128, 6), (192, 6)];

/// Distances for which so many symbols have so many bits more.
const DISTANCE_BITS: [(u32, usize); 17] = [
    (0, 4),
    (1, 2),
    (2, 2),
    (3, 2),
    (4, 2),
    (5, 2),
    (6, 2),
    (7, 2),
    (8, 2),
    (9, 2),
    (10, 2),
    (11, 2),
    (12, 2),
    (13, 2),
    (14, 2),
    (15, 2),
    (16, 14),
];
/// All behind these have this many.
const MOST_BITS: u32 = 18;

/// The symbol for the lowest bits that stands for those of the match before, for 16 matches.
const LOW_AGAIN: usize = 16;
const TIMES_AGAIN: u32 = 15;

/// In a block of PPMd, the byte behind which something else than a byte stands, unless it says another one.
const ESCAPE: u8 = 2;

/// Programs at most, and bytes of one and of what it is given, as in UnRAR.
const MOST_PROGRAMS: usize = 8192;
const LONGEST_PROGRAM: u32 = 1 << 16;

/// What a program was called with last.
struct Known {
    program: Program,
    length: u32,
}

pub(super) struct Three {
    main: Table,
    distances: Table,
    low: Table,
    lengths: Table,
    /// The lengths of their codes, from which the next ones may be told.
    levels: Box<[u8; ALL]>,
    has_tables: bool,
    /// The first distance of each symbol, and how many bits more.
    slots: [(u64, u32); DISTANCES],
    old: [u64; 4],
    last_length: usize,
    last_low: u64,
    low_times: u32,
    model: Option<Box<Model>>,
    /// It is in a block of PPMd.
    is_modelled: bool,
    escape: u8,
    programs: Vec<Known>,
    last_program: usize,
    /// The member's end was told.
    has_ended: bool,
    /// Bytes of memory that a model may take.
    most: u64,
}

fn slots() -> [(u64, u32); DISTANCES] {
    let mut slots = [(0, 0); DISTANCES];
    let bits =
        DISTANCE_BITS.iter().flat_map(|(bits, count)| iter::repeat_n(*bits, *count)).chain(iter::repeat(MOST_BITS));
    let mut distance = 0;
    for (slot, bits) in slots.iter_mut().zip(bits) {
        *slot = (distance, bits);
        distance += 1 << bits;
    }
    slots
}

impl Three {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            main: Table::new(),
            distances: Table::new(),
            low: Table::new(),
            lengths: Table::new(),
            levels: Box::new([0; ALL]),
            has_tables: false,
            slots: slots(),
            old: [0; 4],
            last_length: 0,
            last_low: 0,
            low_times: 0,
            model: None,
            is_modelled: false,
            escape: ESCAPE,
            programs: Vec::new(),
            last_program: 0,
            has_ended: false,
            most: limits.lzma_dictionary,
        }
    }

    /// Begins a member, the `next` one of a run or not.
    pub(super) fn begin(&mut self, bits: &mut Bits, is_next: bool) -> io::Result<()> {
        self.has_ended = false;
        if is_next && self.has_tables { Ok(()) } else { self.read_tables(bits) }
    }

    /// Decodes as much as is wanted at once. False at the member's end.
    pub(super) fn decode(&mut self, bits: &mut Bits, window: &mut Window) -> io::Result<bool> {
        for _ in 0..AT_ONCE {
            if window.is_due() || !window.has_room() {
                break;
            }
            if self.has_ended {
                return Ok(false);
            }
            if self.is_modelled {
                self.decode_modelled(bits, window)?;
                continue;
            }
            bits.fill()?;
            match self.main.decode(bits)? {
                literal @ 0..END => window.push(literal as u8),
                END => self.end_block(bits)?,
                FILTER => self.read_filter(bits, window)?,
                AGAIN => {
                    // None before the first match.
                    window.copy(self.old[0], self.last_length);
                }
                old @ FIRST_OLD..FIRST_SHORT => {
                    self.old[..=old - FIRST_OLD].rotate_right(1);
                    let slot = self.lengths.decode(bits)?;
                    self.last_length = length(slot, bits)? + 2;
                    window.copy(self.old[0], self.last_length);
                }
                short @ FIRST_SHORT..FIRST_MATCH => {
                    let (first, count) = SHORT[short - FIRST_SHORT];
                    let distance = first + bits.take(count)? + 1;
                    self.copy(distance, 2, window);
                }
                slot => {
                    let length = length(slot - FIRST_MATCH, bits)? + 3;
                    let distance = self.distance(bits)?;
                    let more = usize::from(distance >= 0x2000) + usize::from(distance >= 0x4_0000);
                    self.copy(distance, length + more, window);
                }
            }
        }
        Ok(true)
    }

    fn copy(&mut self, distance: u64, length: usize, window: &mut Window) {
        self.old.rotate_right(1);
        (self.old[0], self.last_length) = (distance, length);
        window.copy(distance, length);
    }

    #[inline]
    fn distance(&mut self, bits: &mut Bits) -> io::Result<u64> {
        let slot = self.distances.decode(bits)?;
        let (first, count) = self.slots[slot];
        let base = first + 1;
        // Below that, the lowest bits have no code of their own.
        if slot <= 9 {
            return Ok(base + bits.take(count)?);
        }
        let high = bits.take(count - 4)? << 4;
        if self.low_times > 0 {
            self.low_times -= 1;
        } else {
            bits.fill()?;
            match self.low.decode(bits)? {
                LOW_AGAIN => self.low_times = TIMES_AGAIN,
                low => self.last_low = low as u64,
            }
        }
        Ok(base + high + self.last_low)
    }

    /// Behind the symbol for the end of a block.
    fn end_block(&mut self, bits: &mut Bits) -> io::Result<()> {
        // 1: new codes. 01: the file ends, and the next one has new codes. 00: the file ends.
        if bits.take(1)? != 0 {
            return self.read_tables(bits);
        }
        self.has_tables = bits.take(1)? == 0;
        self.has_ended = true;
        Ok(())
    }

    /// Reads on to the end of a member that is decoded: codes may come that the next one begins with.
    pub(super) fn finish(&mut self, bits: &mut Bits) -> io::Result<()> {
        /// A file ends with one symbol, or two of PPMd. There may be empty blocks.
        const MOST: usize = 64;
        for _ in 0..MOST {
            // There are programs that leave the end out. A range coder has read ahead.
            if self.has_ended || !self.is_modelled && bits.position() >= bits.length() {
                return Ok(());
            }
            if self.is_modelled {
                let escape = self.escape;
                match (self.symbol(bits)?, self.symbol(bits)?) {
                    // Behind it there may be no other block.
                    (byte, 0) if byte == escape && bits.position() < bits.length() => self.read_tables(bits)?,
                    (byte, 0 | 2) if byte == escape => self.end_modelled(),
                    _ => return Err(bits.invalid("a file that goes on behind its end")),
                }
                continue;
            }
            bits.fill()?;
            match self.main.decode(bits)? {
                END => self.end_block(bits)?,
                _ => return Err(bits.invalid("a file that goes on behind its end")),
            }
        }
        Err(bits.invalid("a file without an end"))
    }

    fn read_tables(&mut self, bits: &mut Bits) -> io::Result<()> {
        bits.align();
        bits.fill()?;
        self.has_tables = false;
        self.is_modelled = bits.peek(1) != 0;
        if self.is_modelled {
            return self.begin_modelled(bits);
        }
        let keeps = bits.take(2)? & 1 != 0;
        (self.last_low, self.low_times) = (0, 0);
        if !keeps {
            self.levels.fill(0);
        }
        read_lengths(bits, &mut self.levels[..])?;
        let (main, rest) = self.levels.split_at(MAIN);
        let (distances, rest) = rest.split_at(DISTANCES);
        let (low, lengths) = rest.split_at(LOW);
        let are_valid =
            self.main.set(main) && self.distances.set(distances) && self.low.set(low) && self.lengths.set(lengths);
        self.has_tables = are_valid;
        if are_valid { Ok(()) } else { Err(bits.invalid("codes that are not valid")) }
    }

    /// Begins a block of PPMd, with the model of the last one or with a new one.
    fn begin_modelled(&mut self, bits: &mut Bits) -> io::Result<()> {
        let flags = bits.byte()?;
        let megabytes = if flags & 0x20 != 0 { Some(u32::from(bits.byte()?) + 1) } else { None };
        if flags & 0x40 != 0 {
            self.escape = bits.byte()?;
        }
        if let Some(megabytes) = megabytes {
            let order = u32::from(flags & 0x1F) + 1;
            let order = if order > 16 { 16 + (order - 16) * 3 } else { order };
            if order == 1 {
                self.model = None;
                return Err(bits.invalid("a model of order 1"));
            }
            let bytes = u64::from(megabytes) << 20;
            if bytes > self.most {
                let what = format!("the PPMd data need {bytes} bytes of memory, the limit is {}", self.most);
                return Err(faults::unsupported(bits.place(), what));
            }
            if let Some(model) = self.model.as_mut().filter(|model| model.size() == megabytes << 20) {
                model.restart(order);
            } else {
                // Not both at once.
                self.model = None;
                self.model = Some(Box::new(Model::new(order, megabytes << 20)));
            }
        }
        let Some(model) = &mut self.model else {
            return Err(bits.invalid("data that need a model that was never made"));
        };
        model.begin(bits)
    }

    /// The next symbol of the model.
    #[inline]
    fn symbol(&mut self, bits: &mut Bits) -> io::Result<u8> {
        let Some(model) = &mut self.model else { return Err(bits.invalid("data without their model")) };
        model.decode(bits)
    }

    fn end_modelled(&mut self) {
        (self.has_ended, self.has_tables) = (true, false);
    }

    fn decode_modelled(&mut self, bits: &mut Bits, window: &mut Window) -> io::Result<()> {
        let byte = self.symbol(bits)?;
        if byte != self.escape {
            window.push(byte);
            return Ok(());
        }
        match self.symbol(bits)? {
            0 => self.read_tables(bits),
            2 => {
                self.end_modelled();
                Ok(())
            }
            3 => {
                let first = self.symbol(bits)?;
                let count = match first & 7 {
                    6 => usize::from(self.symbol(bits)?) + 7,
                    7 => usize::from(u16::from_be_bytes([self.symbol(bits)?, self.symbol(bits)?])),
                    few => usize::from(few) + 1,
                };
                let code = (0..count).map(|_| self.symbol(bits)).collect::<io::Result<Vec<u8>>>()?;
                self.add_filter(first, &code, bits, window)
            }
            4 => {
                let [a, b, c] = [self.symbol(bits)?, self.symbol(bits)?, self.symbol(bits)?];
                let length = usize::from(self.symbol(bits)?) + 32;
                let distance = u64::from(u32::from_be_bytes([0, a, b, c])) + 2;
                window.copy(distance, length);
                Ok(())
            }
            5 => {
                let length = usize::from(self.symbol(bits)?) + 4;
                window.copy(1, length);
                Ok(())
            }
            // The byte itself.
            _ => {
                window.push(self.escape);
                Ok(())
            }
        }
    }

    fn read_filter(&mut self, bits: &mut Bits, window: &mut Window) -> io::Result<()> {
        let first = bits.byte()?;
        let count = match first & 7 {
            6 => usize::from(bits.byte()?) + 7,
            7 => bits.take(16)? as usize,
            few => usize::from(few) + 1,
        };
        let code = (0..count).map(|_| bits.byte()).collect::<io::Result<Vec<u8>>>()?;
        self.add_filter(first, &code, bits, window)
    }

    /// A call of a program, and perhaps the program.
    fn add_filter(&mut self, first: u8, code: &[u8], bits: &Bits, window: &mut Window) -> io::Result<()> {
        let wrong = || bits.invalid("the call of a filter that is not valid");
        let mut call = Call { bytes: code, at: 0 };
        if first & 0x80 != 0 {
            let number = call.number().ok_or_else(wrong)? as usize;
            if number == 0 {
                self.programs.clear();
                window.forget_filters();
            }
            self.last_program = number.saturating_sub(1);
        }
        let number = self.last_program;
        let is_new = number == self.programs.len();
        if number > self.programs.len() || is_new && number >= MOST_PROGRAMS {
            return Err(wrong());
        }
        let mut ahead = call.number().ok_or_else(wrong)?;
        if first & 0x40 != 0 {
            ahead = ahead.wrapping_add(258);
        }
        let known = self.programs.get(number).map_or(0, |known| known.length);
        let length = if first & 0x20 != 0 { call.number().ok_or_else(wrong)? } else { known };
        let mut registers = [0; 7];
        registers[4] = length;
        if first & 0x10 != 0 {
            let given = call.take(7).ok_or_else(wrong)?;
            for (_, register) in registers.iter_mut().enumerate().filter(|(number, _)| given >> number & 1 != 0) {
                *register = call.number().ok_or_else(wrong)?;
            }
        }
        if is_new {
            let count = call.number().filter(|count| (1..LONGEST_PROGRAM).contains(count)).ok_or_else(wrong)?;
            let code: Option<Vec<u8>> = (0..count).map(|_| Some(call.take(8)? as u8)).collect();
            let program = Program::of(&code.ok_or_else(wrong)?);
            self.programs.push(Known { program, length });
        }
        let Some(known) = self.programs.get_mut(number) else { return Err(wrong()) };
        known.length = length;
        match known.program.filter(&registers) {
            Some(filter) => window.add_filter(u64::from(ahead), u64::from(length), filter, bits),
            None => Err(faults::unsupported(bits.place(), "a filter that RAR itself never writes")),
        }
    }

    pub(super) fn memory(&self) -> usize {
        let tables: usize =
            [&self.main, &self.distances, &self.low, &self.lengths].iter().map(|table| table.memory()).sum();
        let model = self.model.as_ref().map_or(0, |model| model.memory());
        tables + ALL + model + self.programs.capacity() * size_of::<Known>()
    }
}

/// Bits of the call of a program.
struct Call<'c> {
    bytes: &'c [u8],
    /// In bits.
    at: usize,
}

impl Call<'_> {
    /// The next `count` bits, of at most 32.
    fn take(&mut self, count: usize) -> Option<u32> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len() * 8)?;
        let mut bits = 0_u32;
        for at in self.at..end {
            bits = bits << 1 | u32::from(self.bytes[at / 8] >> (7 - at % 8) & 1);
        }
        self.at = end;
        Some(bits)
    }

    /// A number of four lengths.
    fn number(&mut self) -> Option<u32> {
        match self.take(2)? {
            0 => self.take(4),
            1 => match self.take(8)? {
                // The upper half of these is 0: a negative one.
                small @ 0..16 => Some(0xFFFF_FF00 | small << 4 | self.take(4)?),
                number => Some(number),
            },
            2 => self.take(16),
            _ => self.take(32),
        }
    }
}
