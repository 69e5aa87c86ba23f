//! RAR 1.5: LZ with codes that follow what came before: literals, distances and flags are places in lists that are kept
//! in the order of their use. Source: public descriptions of the format.

use std::io;

use super::bits::Bits;
use super::window::{AT_ONCE, Window};

/// Bytes of the dictionary.
pub(super) const DICTIONARY: u64 = 1 << 16;

/// A code for numbers: from which value of the next 16 bits on codes have one more bit, and the first number of those
/// with so many bits. The shortest ones have `shortest` bits.
struct Code {
    ends: &'static [u16],
    firsts: &'static [u16],
    shortest: u32,
}

const LENGTHS_1: Code = Code {
    ends: &[0x8000, 0xA000, 0xC000, 0xD000, 0xE000, 0xEA00, 0xEE00, 0xF000, 0xF200, 0xF200, 0xFFFF],
    firsts: &[0, 0, 0, 2, 3, 5, 7, 11, 16, 20, 24, 32, 32],
    shortest: 2,
};
const LENGTHS_2: Code = Code {
    ends: &[0xA000, 0xC000, 0xD000, 0xE000, 0xEA00, 0xEE00, 0xF000, 0xF200, 0xF240, 0xFFFF],
    firsts: &[0, 0, 0, 0, 5, 7, 9, 13, 18, 22, 26, 34, 36],
    shortest: 3,
};
/// Of places, from the one for data that repeat much to the one for noise.
const PLACES: [Code; 5] = [
    Code {
        ends: &[0x8000, 0xC000, 0xE000, 0xF200, 0xF200, 0xF200, 0xF200, 0xF200, 0xFFFF],
        firsts: &[0, 0, 0, 0, 0, 8, 16, 24, 33, 33, 33, 33, 33],
        shortest: 4,
    },
    Code {
        ends: &[0x2000, 0xC000, 0xE000, 0xF000, 0xF200, 0xF200, 0xF7E0, 0xFFFF],
        firsts: &[0, 0, 0, 0, 0, 0, 4, 44, 60, 76, 80, 80, 127],
        shortest: 5,
    },
    Code {
        ends: &[0x1000, 0x2400, 0x8000, 0xC000, 0xFA00, 0xFFFF, 0xFFFF, 0xFFFF],
        firsts: &[0, 0, 0, 0, 0, 0, 2, 7, 53, 117, 233, 0, 0],
        shortest: 5,
    },
    Code {
        ends: &[0x0800, 0x2400, 0xEE00, 0xFE80, 0xFFFF, 0xFFFF, 0xFFFF],
        firsts: &[0, 0, 0, 0, 0, 0, 0, 2, 16, 218, 251, 0, 0],
        shortest: 6,
    },
    Code {
        ends: &[0xFF00, 0xFFFF, 0xFFFF, 0xFFFF, 0xFFFF, 0xFFFF],
        firsts: &[0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0, 0],
        shortest: 8,
    },
];

/// Codes of short matches: how many bits, and which. Of each set, one has a bit more at times.
const SHORT: [[(u32, u8); 15]; 2] = [
    [
        (1, 0x00),
        (3, 0xA0),
        (4, 0xD0),
        (4, 0xE0),
        (5, 0xF0),
        (6, 0xF8),
        (7, 0xFC),
        (8, 0xFE),
        (8, 0xFF),
        (4, 0xC0),
        (4, 0x80),
        (5, 0x90),
        (6, 0x98),
        (6, 0x9C),
        (4, 0xB0),
    ],
    [
        (2, 0x00),
        (3, 0x40),
        (3, 0x60),
        (3, 0xA0),
        (4, 0xD0),
        (4, 0xE0),
        (5, 0xF0),
        (6, 0xF8),
        (6, 0xFC),
        (4, 0xC0),
        (4, 0x80),
        (5, 0x90),
        (6, 0x98),
        (6, 0x9C),
        (4, 0xB0),
    ],
];
/// Those that have it.
const LONGER: [usize; 2] = [1, 3];

/// A list of numbers in the order of their use: in the upper half of each the number, in the lower one how often.
struct List {
    numbers: [u16; 256],
    /// Where the first number lies that was used so often.
    places: [u8; 256],
    /// Uses behind which all are counted anew.
    most: u16,
}

impl List {
    fn new(most: u16, number: impl Fn(u8) -> u8) -> Self {
        let numbers = std::array::from_fn(|place| u16::from(number(place as u8)) << 8);
        Self { numbers, places: [0; 256], most }
    }

    /// What stands at `place` now is used once more.
    fn promote(&mut self, place: usize) -> u16 {
        loop {
            let number = self.numbers[place];
            let count = usize::from(number & 0xFF);
            let to = usize::from(self.places[count]);
            self.places[count] = self.places[count].wrapping_add(1);
            let counted = number.wrapping_add(1);
            if counted & 0xFF <= self.most && counted & 0xFF != 0 {
                self.numbers[place] = self.numbers[to];
                self.numbers[to] = counted;
                return counted;
            }
            self.count_anew();
        }
    }

    fn count_anew(&mut self) {
        for (place, number) in self.numbers.iter_mut().enumerate() {
            *number = *number & 0xFF00 | (7 - place as u16 / 32);
        }
        self.places = [0; 256];
        for (count, place) in self.places.iter_mut().take(7).enumerate() {
            *place = (7 - count as u8) * 32;
        }
    }
}

pub(super) struct One {
    literals: List,
    flags: List,
    distances: List,
    near: [u8; 256],
    /// Flags that are left, from the highest bit on, and how many.
    flag_bits: u8,
    flag_count: u32,
    /// Averages that choose codes: of places of literals and distances, and of lengths.
    literal_place: u32,
    distance_place: u32,
    short_length: u32,
    long_length: u32,
    far_length: u32,
    /// How much literals and long matches came of late: the more frequent one has the shorter flag.
    literal_weight: u32,
    match_weight: u32,
    /// Literals in a row.
    row: u32,
    /// Nothing but literals comes.
    is_plain: bool,
    has_longer: u32,
    far: u32,
    times_again: u32,
    old: [u64; 4],
    last_distance: u64,
    last_length: usize,
    is_fresh: bool,
}

impl One {
    pub(super) fn new() -> Self {
        let mut distances = List::new(0xFF, |place| place);
        distances.count_anew();
        Self {
            literals: List::new(0xA1, |place| place),
            flags: List::new(0xFF, u8::wrapping_neg),
            distances,
            near: std::array::from_fn(|place| place as u8),
            flag_bits: 0,
            flag_count: 0,
            literal_place: 0x3500,
            distance_place: 0,
            short_length: 0,
            long_length: 0,
            far_length: 0,
            literal_weight: 0x80,
            match_weight: 0x80,
            row: 0,
            is_plain: false,
            has_longer: 0,
            far: 0x2001,
            times_again: 0,
            old: [0; 4],
            last_distance: 0,
            last_length: 0,
            is_fresh: true,
        }
    }

    /// Begins a member.
    pub(super) fn begin(&mut self) {
        (self.flag_bits, self.flag_count, self.is_plain, self.times_again, self.is_fresh) = (0, 0, false, 0, true);
    }

    /// Decodes as much as is wanted at once.
    pub(super) fn decode(&mut self, bits: &mut Bits, window: &mut Window) -> io::Result<bool> {
        for _ in 0..AT_ONCE {
            if window.is_due() || !window.has_room() {
                break;
            }
            if std::mem::take(&mut self.is_fresh) {
                self.read_flags(bits)?;
            }
            if self.is_plain {
                self.literal(bits, window)?;
                continue;
            }
            let is_first = self.flag(bits)?;
            if is_first {
                if self.match_weight > self.literal_weight {
                    self.long_match(bits, window)?;
                } else {
                    self.literal(bits, window)?;
                }
                continue;
            }
            let is_second = self.flag(bits)?;
            if is_second {
                if self.match_weight > self.literal_weight {
                    self.literal(bits, window)?;
                } else {
                    self.long_match(bits, window)?;
                }
            } else {
                self.short_match(bits, window)?;
            }
        }
        Ok(true)
    }

    fn flag(&mut self, bits: &mut Bits) -> io::Result<bool> {
        if self.flag_count == 0 {
            self.read_flags(bits)?;
        }
        self.flag_count -= 1;
        let flag = self.flag_bits & 0x80 != 0;
        self.flag_bits <<= 1;
        Ok(flag)
    }

    fn read_flags(&mut self, bits: &mut Bits) -> io::Result<()> {
        let place = number(&PLACES[2], bits)? as usize;
        self.flag_count = 8;
        // There are codes for more.
        if place < 256 {
            self.flag_bits = (self.flags.promote(place) >> 8) as u8;
        }
        Ok(())
    }

    fn literal(&mut self, bits: &mut Bits, window: &mut Window) -> io::Result<()> {
        let next = peek(bits)?;
        let code = match self.literal_place {
            0x7600.. => 4,
            0x5E00.. => 3,
            0x3600.. => 2,
            0x0E00.. => 1,
            _ => 0,
        };
        let mut place = number(&PLACES[code], bits)? & 0xFF;
        if self.is_plain {
            if place == 0 && next > 0xFFF {
                place = 0x100;
            }
            if place == 0 {
                if bits.take(1)? != 0 {
                    (self.row, self.is_plain) = (0, false);
                    return Ok(());
                }
                let length = 3 + bits.take(1)? as usize;
                let distance = u64::from(number(&PLACES[2], bits)?) << 5 | bits.take(5)?;
                window.copy(distance, length);
                return Ok(());
            }
            place -= 1;
        } else {
            if self.row >= 16 && self.flag_count == 0 {
                self.is_plain = true;
            }
            self.row += 1;
        }
        self.literal_place += place;
        self.literal_place -= self.literal_place >> 8;
        self.literal_weight += 16;
        if self.literal_weight > 0xFF {
            self.literal_weight = 0x90;
            self.match_weight >>= 1;
        }
        window.push((self.literals.numbers[place as usize] >> 8) as u8);
        self.literals.promote(place as usize);
        Ok(())
    }

    fn long_match(&mut self, bits: &mut Bits, window: &mut Window) -> io::Result<()> {
        self.row = 0;
        self.match_weight += 16;
        if self.match_weight > 0xFF {
            self.match_weight = 0x90;
            self.literal_weight >>= 1;
        }
        let before = self.long_length;
        let length = if self.long_length >= 122 {
            number(&LENGTHS_2, bits)?
        } else if self.long_length >= 64 {
            number(&LENGTHS_1, bits)?
        } else {
            let next = peek(bits)?;
            if next < 0x100 {
                bits.consume(16);
                next
            } else {
                let zeros = (next << 16).leading_zeros();
                bits.consume(zeros + 1);
                zeros
            }
        };
        self.long_length += length;
        self.long_length -= self.long_length >> 5;
        let code = match self.distance_place {
            0x2900.. => 2,
            0x0700.. => 1,
            _ => 0,
        };
        let place = number(&PLACES[code], bits)?;
        self.distance_place += place;
        self.distance_place -= self.distance_place >> 8;
        let high = self.distances.promote((place & 0xFF) as usize) & 0xFF00;
        // The lowest bit of the lower half comes next.
        let distance = (u32::from(high) | bits_of_byte(bits)?) >> 1;
        bits.consume(7);
        let far_before = self.far_length;
        if length != 1 && length != 4 {
            if length == 0 && distance <= self.far {
                self.far_length += 1;
                self.far_length -= self.far_length >> 8;
            } else if self.far_length > 0 {
                self.far_length -= 1;
            }
        }
        let mut length = length + 3 + u32::from(distance >= self.far);
        if distance <= 256 {
            length += 8;
        }
        let is_far = far_before > 0xB0 || self.literal_place >= 0x2A00 && before < 0x40;
        self.far = if is_far { 0x7F00 } else { 0x2001 };
        self.copy(distance.into(), length as usize, window);
        Ok(())
    }

    fn short_match(&mut self, bits: &mut Bits, window: &mut Window) -> io::Result<()> {
        self.row = 0;
        if self.times_again == 2 {
            if bits.take(1)? != 0 {
                window.copy(self.last_distance, self.last_length);
                return Ok(());
            }
            self.times_again = 0;
        }
        let next = bits_of_byte(bits)? as u8;
        let set = usize::from(self.short_length >= 37);
        let length_of = |number: usize, length: u32| if number == LONGER[set] { self.has_longer + 3 } else { length };
        let found = SHORT[set].iter().enumerate().find(|(number, (length, code))| {
            let length = length_of(*number, *length);
            (next ^ code) >> (8 - length) == 0
        });
        let Some((number_of, &(length, _))) = found else { return Err(bits.invalid("a match that is not known")) };
        bits.consume(length_of(number_of, length));
        match number_of {
            9 => {
                self.times_again += 1;
                window.copy(self.last_distance, self.last_length);
            }
            14 => {
                self.times_again = 0;
                let length = number(&LENGTHS_2, bits)? + 5;
                let distance = bits.take(15)? | 0x8000;
                (self.last_distance, self.last_length) = (distance, length as usize);
                window.copy(distance, self.last_length);
            }
            10.. => {
                self.times_again = 0;
                let distance = self.old[number_of - 10];
                let mut length = number(&LENGTHS_1, bits)? + 2;
                if length == 0x101 && number_of == 10 {
                    self.has_longer ^= 1;
                    return Ok(());
                }
                length += u32::from(distance > 256) + u32::from(distance >= self.far.into());
                self.copy(distance, length as usize, window);
            }
            length => {
                self.times_again = 0;
                self.short_length += length as u32;
                self.short_length -= self.short_length >> 4;
                let place = (number(&PLACES[2], bits)? & 0xFF) as usize;
                let distance = self.near[place];
                if place > 0 {
                    self.near.swap(place, place - 1);
                }
                self.copy(u64::from(distance) + 1, length + 2, window);
            }
        }
        Ok(())
    }

    fn copy(&mut self, distance: u64, length: usize, window: &mut Window) {
        self.old.rotate_right(1);
        (self.old[0], self.last_distance, self.last_length) = (distance, distance, length);
        window.copy(distance, length);
    }
}

/// The next 16 bits.
fn peek(bits: &mut Bits) -> io::Result<u32> {
    bits.fill()?;
    Ok(bits.peek(16) as u32)
}

/// The next 8 bits.
fn bits_of_byte(bits: &mut Bits) -> io::Result<u32> {
    bits.fill()?;
    Ok(bits.peek(8) as u32)
}

fn number(code: &Code, bits: &mut Bits) -> io::Result<u32> {
    let next = peek(bits)? & 0xFFF0;
    let longer = code.ends.iter().take_while(|end| u32::from(**end) <= next).count();
    let count = code.shortest + longer as u32;
    bits.consume(count);
    let first = longer.checked_sub(1).map_or(0, |before| u32::from(code.ends[before]));
    let base = code.firsts.get(count as usize).copied().unwrap_or_default();
    Ok(((next - first) >> (16 - count.min(16))) + u32::from(base))
}
