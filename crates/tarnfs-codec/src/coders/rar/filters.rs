//! What RAR does to some data before it compresses them, undone. Those of RAR 5 and the standard ones of RAR 3 are the
//! same but for details: RAR 3 stores them as programs for a machine of its own, and these are known by their CRC-32.

use std::iter;

/// A filter and its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filter {
    /// Bytes of so many channels, one channel behind the other, each less the one before it.
    Delta { channels: usize },
    /// Targets of calls (E8) of x86, and of jumps (E9) where `jumps` says so, from the start of the file. Offsets
    /// `wrap` at 16 MiB in RAR 5.
    X86 { jumps: bool, wraps: bool },
    /// Targets of BL of ARM.
    Arm,
    /// Targets of branches of IA-64.
    Itanium,
    /// Pixels of three bytes, in lines of so many bytes, predicted from those around them.
    Rgb { width: usize, position: usize },
    /// Samples of so many channels, predicted from those before them.
    Audio { channels: usize },
}

/// Programs of RAR 3: their length, CRC-32, and name.
const PROGRAMS: [(usize, u32, Program); 6] = [
    (53, 0xAD57_6887, Program::Calls),
    (57, 0x3CD7_E57E, Program::Jumps),
    (120, 0x3769_893F, Program::Itanium),
    (29, 0x0E06_077D, Program::Delta),
    (149, 0x1C2C_5DC8, Program::Rgb),
    (216, 0xBC85_E701, Program::Audio),
];

/// Which program of RAR 3 it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    Calls,
    Jumps,
    Itanium,
    Delta,
    Rgb,
    Audio,
    /// Another one than RAR itself writes.
    Unknown,
}

impl Program {
    /// The program with this code.
    pub(super) fn of(code: &[u8]) -> Self {
        let crc = crc32fast::hash(code);
        let known = PROGRAMS.iter().find(|(length, sum, _)| (*length, *sum) == (code.len(), crc));
        known.map_or(Self::Unknown, |(.., program)| *program)
    }

    /// The filter that it is with these registers. `None` of another program.
    pub(super) fn filter(self, registers: &[u32; 7]) -> Option<Filter> {
        let first = registers[0] as usize;
        Some(match self {
            Self::Calls => Filter::X86 { jumps: false, wraps: false },
            Self::Jumps => Filter::X86 { jumps: true, wraps: false },
            Self::Itanium => Filter::Itanium,
            Self::Delta => Filter::Delta { channels: first },
            Self::Rgb => Filter::Rgb { width: first, position: registers[1] as usize },
            Self::Audio => Filter::Audio { channels: first },
            Self::Unknown => return None,
        })
    }
}

impl Filter {
    /// Undoes it in `data`, which begin at byte `position` of their file. False if the parameters make no sense.
    pub(super) fn undo(self, data: &mut Vec<u8>, position: u64) -> bool {
        match self {
            Self::Delta { channels } => undo_delta(data, channels),
            Self::X86 { jumps, wraps } => {
                undo_x86(data, position as u32, jumps, wraps);
                true
            }
            Self::Arm => {
                undo_arm(data, position as u32);
                true
            }
            Self::Itanium => {
                undo_itanium(data, position as u32);
                true
            }
            Self::Rgb { width, position } => undo_rgb(data, width, position),
            Self::Audio { channels } => undo_audio(data, channels),
        }
    }
}

/// Channels at most: RAR 3 writes up to 32, and others refuse more than these.
const MOST_CHANNELS: usize = 1024;

fn undo_delta(data: &mut Vec<u8>, channels: usize) -> bool {
    if !(1..=MOST_CHANNELS).contains(&channels) {
        return false;
    }
    let mut undone = vec![0; data.len()];
    let mut bytes = data.iter();
    for channel in 0..channels {
        let mut last = 0_u8;
        let places = undone.iter_mut().skip(channel).step_by(channels);
        for (place, byte) in places.zip(&mut bytes) {
            last = last.wrapping_sub(*byte);
            *place = last;
        }
    }
    *data = undone;
    true
}

/// Offsets of x86 are absolute below this.
const FILE_SIZE: u32 = 1 << 24;

fn undo_x86(data: &mut [u8], position: u32, jumps: bool, wraps: bool) {
    let mut at = 0;
    while at + 4 < data.len() {
        let opcode = data[at];
        at += 1;
        if opcode != 0xE8 && !(jumps && opcode == 0xE9) {
            continue;
        }
        let offset = position.wrapping_add(at as u32);
        let offset = if wraps { offset % FILE_SIZE } else { offset };
        if let Some(bytes) = data.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
            let target = u32::from_le_bytes(*bytes);
            if target & 0x8000_0000 != 0 {
                if target.wrapping_add(offset) & 0x8000_0000 == 0 {
                    *bytes = target.wrapping_add(FILE_SIZE).to_le_bytes();
                }
            } else if target.wrapping_sub(FILE_SIZE) & 0x8000_0000 != 0 {
                *bytes = target.wrapping_sub(offset).to_le_bytes();
            }
        }
        at += 4;
    }
}

fn undo_arm(data: &mut [u8], position: u32) {
    for (number, instruction) in data.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let [a, b, c, 0xEB] = *instruction else { continue };
        let place = position.wrapping_add(4 * number as u32) / 4;
        let [a, b, c, _] = u32::from_le_bytes([a, b, c, 0]).wrapping_sub(place).to_le_bytes();
        *instruction = [a, b, c, 0xEB];
    }
}

/// Which of three slots of a bundle can hold a branch, by its template less 16.
const BRANCHES: [u8; 16] = [4, 4, 6, 6, 0, 0, 7, 7, 4, 4, 0, 0, 4, 4, 0, 0];

fn undo_itanium(data: &mut [u8], position: u32) {
    let mut place = position >> 4;
    let mut at = 0;
    // The last bundles stay as they are.
    while at + 21 < data.len() {
        let bundle = &mut data[at..at + 16];
        let slots = usize::from(bundle[0] & 0x1F).checked_sub(16).map_or(0, |template| BRANCHES[template]);
        for slot in (0..3).filter(|slot| slots >> slot & 1 != 0) {
            let mut bits = [0; 16];
            bits.copy_from_slice(bundle);
            let mut bits = u128::from_le_bytes(bits);
            let start = slot * 41 + 5;
            if bits >> (start + 37) & 15 == 5 {
                let target = (bits >> (start + 13)) as u32 & 0xF_FFFF;
                let target = target.wrapping_sub(place) & 0xF_FFFF;
                bits = bits & !(0xF_FFFF << (start + 13)) | u128::from(target) << (start + 13);
                bundle.copy_from_slice(&bits.to_le_bytes());
            }
        }
        at += 16;
        place = place.wrapping_add(1);
    }
}

fn undo_rgb(data: &mut Vec<u8>, width: usize, position: usize) -> bool {
    let Some(width) = width.checked_sub(3).filter(|width| *width <= data.len()) else { return false };
    if data.len() < 3 || position > 2 {
        return false;
    }
    let mut undone = vec![0; data.len()];
    let mut bytes = data.iter();
    for channel in 0..3 {
        let mut last = 0_u8;
        for (at, byte) in (channel..undone.len()).step_by(3).zip(&mut bytes) {
            let predicted = if at >= width + 3 {
                let (upper, corner) = (undone[at - width], undone[at - width - 3]);
                nearest(last, upper, corner)
            } else {
                last
            };
            last = predicted.wrapping_sub(*byte);
            undone[at] = last;
        }
    }
    for at in (position..undone.len().saturating_sub(2)).step_by(3) {
        let green = undone[at + 1];
        undone[at] = undone[at].wrapping_add(green);
        undone[at + 2] = undone[at + 2].wrapping_add(green);
    }
    *data = undone;
    true
}

/// Of three neighbours the one that is nearest to what their plane would say, as in PNG.
fn nearest(left: u8, upper: u8, corner: u8) -> u8 {
    let [a, b, c] = [left, upper, corner].map(i32::from);
    let plane = a + b - c;
    let (to_left, to_upper, to_corner) = ((plane - a).abs(), (plane - b).abs(), (plane - c).abs());
    if to_left <= to_upper && to_left <= to_corner {
        left
    } else if to_upper <= to_corner {
        upper
    } else {
        corner
    }
}

/// Channels of samples at most, as in UnRAR.
const MOST_SAMPLED: usize = 128;

fn undo_audio(data: &mut Vec<u8>, channels: usize) -> bool {
    if !(1..=MOST_SAMPLED).contains(&channels) {
        return false;
    }
    let mut undone = vec![0; data.len()];
    let mut bytes = data.iter();
    for channel in 0..channels {
        let (mut last, mut last_delta) = (0_i32, 0_i32);
        let (mut weights, mut deltas, mut errors) = ([0_i32; 3], [0_i32; 3], [0_u32; 7]);
        let places = undone.iter_mut().skip(channel).step_by(channels);
        for (number, (place, byte)) in places.zip(&mut bytes).enumerate() {
            deltas = [last_delta, last_delta - deltas[0], deltas[1]];
            let sum: i32 = iter::zip(weights, deltas).map(|(weight, delta)| weight * delta).sum();
            let predicted = (8 * last + sum) >> 3 & 0xFF;
            let sample = predicted.wrapping_sub(i32::from(*byte)) as u8;
            *place = sample;
            last_delta = i32::from(sample.wrapping_sub(last as u8) as i8);
            last = i32::from(sample);
            let error = i32::from(*byte as i8) << 3;
            let [first, second, third] = deltas;
            let shifted = [0, -first, first, -second, second, -third, third];
            for (sum, shift) in iter::zip(&mut errors, shifted) {
                *sum = sum.wrapping_add((error + shift).unsigned_abs());
            }
            if number % 32 == 0 {
                let (best, _) = errors.iter().enumerate().min_by_key(|(_, error)| **error).unwrap_or((0, &0));
                errors = [0; 7];
                if let Some(weight) = best.checked_sub(1).and_then(|best| weights.get_mut(best / 2)) {
                    if best % 2 == 1 {
                        *weight -= i32::from(*weight >= -16);
                    } else {
                        *weight += i32::from(*weight < 16);
                    }
                }
            }
        }
    }
    *data = undone;
    true
}
