//! BCJ filters (The .xz File Format 1.2, §5.3.2; methods 04 to 0A and 03 03 of 7z): in programs, the targets of
//! branches are stored as absolute addresses, because those repeat. Properties: none, or the address of the first byte
//! (4 bytes, little-endian).
//!
//! For most processors an instruction has one place where it can begin, and stands for itself: such streams are read
//! anywhere. For x86 and RISC-V it depends on the bytes before it.

use std::io;

use tarnfs_source::{SharedSource, Source};

use super::filtered::{Filter, Filtered};
use super::invalid_properties;
use crate::{Codec, CoderContext, ContainerCodec, DecodeContext, Decoder, FirstPass, Options, Pace, SeekPoint};

/// A codec for the programs of one processor.
#[derive(Debug)]
pub(super) struct Bcj(&'static str, Processor);

pub(super) static X86: Bcj = Bcj("bcj-x86", Processor::X86);
pub(super) static ARM: Bcj = Bcj("bcj-arm", Processor::Arm);
pub(super) static ARM_THUMB: Bcj = Bcj("bcj-armt", Processor::ArmThumb);
pub(super) static ARM64: Bcj = Bcj("bcj-arm64", Processor::Arm64);
pub(super) static POWER_PC: Bcj = Bcj("bcj-ppc", Processor::PowerPc);
pub(super) static IA64: Bcj = Bcj("bcj-ia64", Processor::Ia64);
pub(super) static SPARC: Bcj = Bcj("bcj-sparc", Processor::Sparc);
pub(super) static RISCV: Bcj = Bcj("bcj-riscv", Processor::RiscV);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Processor {
    X86,
    Arm,
    ArmThumb,
    Arm64,
    PowerPc,
    Ia64,
    Sparc,
    RiscV,
}

/// No instruction, and no pair of them, is longer, and places where they can begin are multiples of a divisor of it.
const UNIT: usize = 16;

/// The state of a filter.
#[derive(Debug, Clone)]
struct Branches {
    processor: Processor,
    /// Address of the first byte.
    origin: u32,
    x86: CallHistory,
}

impl Branches {
    fn new(codec: &Bcj, coder: &CoderContext) -> io::Result<Self> {
        let origin = match coder.properties[..] {
            [] => 0,
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
            _ => return Err(invalid_properties(codec.0)),
        };
        Ok(Self { processor: codec.1, origin, x86: CallHistory::default() })
    }

    /// True if what lies before the place where an instruction can begin says nothing about it.
    fn is_local(&self) -> bool {
        !matches!(self.processor, Processor::X86 | Processor::RiscV)
    }
}

impl Filter for Branches {
    fn undo(&mut self, data: &mut [u8], position: u64) -> usize {
        let address = self.origin.wrapping_add(position as u32);
        match self.processor {
            Processor::X86 => self.x86.undo(data, address),
            Processor::Arm => words(data, address, arm),
            Processor::ArmThumb => arm_thumb(data, address),
            Processor::Arm64 => words(data, address, arm64),
            Processor::PowerPc => words(data, address, power_pc),
            Processor::Ia64 => ia64(data, address),
            Processor::Sparc => words(data, address, sparc),
            Processor::RiscV => riscv(data, address),
        }
    }

    fn save(&self, _position: u64) -> Vec<u8> {
        match self.processor {
            Processor::X86 => vec![self.x86.open, self.x86.far],
            _ => Vec::new(),
        }
    }

    fn load(&mut self, state: &[u8], _position: u64) -> bool {
        match (self.processor, state) {
            (Processor::X86, &[open, far]) => {
                self.x86 = CallHistory { open, far };
                (open | far) & !CallHistory::BITS == 0
            }
            (processor, state) => processor != Processor::X86 && state.is_empty(),
        }
    }
}

/// What of the last bytes decides whether the next instruction of x86 was changed. Bit `n` stands for the byte `n`
/// bytes before it.
#[derive(Debug, Clone, Copy, Default)]
struct CallHistory {
    /// There is the opcode of a call or jump that was not changed.
    open: u8,
    /// And the highest byte of its operand is that of a near target.
    far: u8,
}

impl CallHistory {
    const BITS: u8 = 0b1110;

    /// Goes on by so many bytes that are no opcodes.
    fn pass(&mut self, bytes: usize) {
        let shifted = |bits: u8| if bytes < 4 { bits << bytes & Self::BITS } else { 0 };
        *self = Self { open: shifted(self.open), far: shifted(self.far) };
    }

    fn undo(&mut self, data: &mut [u8], address: u32) -> usize {
        const INSTRUCTION: usize = 5;
        let is_near = |byte: u8| byte == 0 || byte == 0xFF;
        let mut at = 0;
        while let Some(rest) = data.get_mut(at..).filter(|rest| rest.len() >= INSTRUCTION) {
            let last = rest.len() - INSTRUCTION;
            // E8 calls, E9 jumps.
            let Some(found) = rest[..=last].iter().position(|byte| byte & 0xFE == 0xE8) else {
                self.pass(last + 1);
                return at + last + 1;
            };
            self.pass(found);
            at += found;
            let Some(operand) = rest[found + 1..].first_chunk_mut::<4>() else { break };
            let has_near_target = is_near(operand[3]);
            // One opcode among the three bytes before is not enough to take this one for its operand.
            if !has_near_target || self.far != 0 || self.open.count_ones() > 1 {
                self.open |= 1;
                self.far |= u8::from(has_near_target);
                self.pass(1);
                at += 1;
                continue;
            }
            let next = address.wrapping_add((at + INSTRUCTION) as u32);
            let mut target = u32::from_le_bytes(*operand).wrapping_sub(next);
            if self.open != 0 {
                // The encoder saw the operand of that one there, and changed this one so that it is not mistaken.
                let below = 32 - 8 * self.open.trailing_zeros();
                if is_near((target >> (below - 8)) as u8) {
                    target = (target ^ ((1 << below) - 1)).wrapping_sub(next);
                }
            }
            // The highest byte is the sign of what is below.
            let sign = if target & 1 << 24 == 0 { 0 } else { 0xFF00_0000 };
            *operand = (target & 0x00FF_FFFF | sign).to_le_bytes();
            *self = Self::default();
            at += INSTRUCTION;
        }
        at
    }
}

/// Undoes what has instructions of four bytes. Each is little-endian here.
fn words(data: &mut [u8], address: u32, undo: impl Fn(u32, u32) -> Option<u32>) -> usize {
    let (words, _) = data.as_chunks_mut::<4>();
    for (number, word) in words.iter_mut().enumerate() {
        let at = address.wrapping_add(4 * number as u32);
        if let Some(undone) = undo(u32::from_le_bytes(*word), at) {
            *word = undone.to_le_bytes();
        }
    }
    4 * words.len()
}

/// BL of all conditions "always": 24 bits, in words from two words behind it.
fn arm(word: u32, at: u32) -> Option<u32> {
    (word >> 24 == 0xEB).then(|| 0xEB00_0000 | ((word << 2).wrapping_sub(at.wrapping_add(8)) >> 2 & 0x00FF_FFFF))
}

/// BL, and ADRP within 512 MiB.
fn arm64(word: u32, at: u32) -> Option<u32> {
    if word >> 26 == 0x25 {
        return Some(0x9400_0000 | word.wrapping_sub(at >> 2) & 0x03FF_FFFF);
    }
    if word & 0x9F00_0000 != 0x9000_0000 {
        return None;
    }
    let page = word >> 29 & 3 | word >> 3 & 0x001F_FFFC;
    // Bits 18 to 20 are the sign in what the filter changes.
    if page.wrapping_add(0x0002_0000) & 0x001C_0000 != 0 {
        return None;
    }
    let page = page.wrapping_sub(at >> 12);
    let sign = 0_u32.wrapping_sub(page & 0x0002_0000) & 0x00E0_0000;
    Some(word & 0x9000_001F | (page & 3) << 29 | (page & 0x0003_FFFC) << 3 | sign)
}

/// bl, relative.
fn power_pc(word: u32, at: u32) -> Option<u32> {
    let word = word.swap_bytes();
    (word & 0xFC00_0003 == 0x4800_0001)
        .then(|| (0x4800_0001 | (word & 0x03FF_FFFC).wrapping_sub(at) & 0x03FF_FFFC).swap_bytes())
}

/// call, within 8 MiB (bits 22 to 29 are the sign).
fn sparc(word: u32, at: u32) -> Option<u32> {
    let word = word.swap_bytes();
    if !matches!(word >> 22, 0x100 | 0x1FF) {
        return None;
    }
    let target = (word << 2).wrapping_sub(at) >> 2;
    let sign = 0_u32.wrapping_sub(target >> 22 & 1) << 22 & 0x3FFF_FFFF;
    Some((0x4000_0000 | sign | target & 0x003F_FFFF).swap_bytes())
}

/// BL in two halves of two bytes each: 22 bits, in halves.
fn arm_thumb(data: &mut [u8], address: u32) -> usize {
    let mut at = 0;
    while let Some(pair) = data.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
        let [upper, lower] = [[pair[0], pair[1]], [pair[2], pair[3]]].map(|half| u32::from(u16::from_le_bytes(half)));
        if upper & 0xF800 != 0xF000 || lower & 0xF800 != 0xF800 {
            at += 2;
            continue;
        }
        let target = (upper & 0x7FF) << 11 | lower & 0x7FF;
        let target = (target << 1).wrapping_sub(address.wrapping_add(at as u32).wrapping_add(4)) >> 1;
        let undone = [0xF000 | target >> 11 & 0x7FF, 0xF800 | target & 0x7FF];
        pair.copy_from_slice(undone.map(|half| (half as u16).to_le_bytes()).as_flattened());
        at += 4;
    }
    at
}

/// br.call in bundles of three slots: 21 bits, in bundles.
fn ia64(data: &mut [u8], address: u32) -> usize {
    /// By the template, the slots that may hold one, a bit each.
    const BRANCH_SLOTS: [u8; 32] =
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 6, 6, 0, 0, 7, 7, 4, 4, 0, 0, 4, 4, 0, 0];
    let (bundles, _) = data.as_chunks_mut::<16>();
    for (number, bundle) in bundles.iter_mut().enumerate() {
        let at = address.wrapping_add(16 * number as u32);
        let mut bits = u128::from_le_bytes(*bundle);
        let slots = BRANCH_SLOTS[usize::from(bundle[0] & 0x1F)];
        for slot in (0..3).filter(|slot| slots >> slot & 1 == 1) {
            let shift = 5 + 41 * slot;
            let instruction = bits >> shift & ((1 << 41) - 1);
            if instruction >> 37 != 5 || instruction >> 9 & 7 != 0 {
                continue;
            }
            let target = (instruction >> 13 & 0xF_FFFF | instruction >> 36 << 20 & 0x10_0000) as u32;
            let target = u128::from((target << 4).wrapping_sub(at) >> 4);
            let undone = (target & 0xF_FFFF) << 13 | (target >> 20 & 1) << 36;
            let cleared = instruction & !(0xF_FFFF << 13 | 1 << 36);
            bits = bits & !(((1 << 41) - 1) << shift) | (cleared | undone) << shift;
        }
        *bundle = bits.to_le_bytes();
    }
    16 * bundles.len()
}

/// JAL to ra or t0, and AUIPC with the instruction behind it that uses its register.
fn riscv(data: &mut [u8], address: u32) -> usize {
    let mut at = 0;
    while let Some(pair) = data.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<8>()) {
        let here = address.wrapping_add(at as u32);
        let [word, behind] = *pair.as_chunks::<4>().0 else { break };
        let second = u32::from_le_bytes(behind);
        let first = u32::from_le_bytes(word);
        if first & 0xFF == 0xEF {
            if first & 0x0D00 != 0 {
                at += 2;
                continue;
            }
            // Stored as bits 17 to 20 and then 16 to 1, the highest first.
            let [_, low, middle, high] = word.map(u32::from);
            let target = ((low & 0xF0) << 13 | middle << 9 | high << 1).wrapping_sub(here);
            pair[1] = (low & 0x0F | target >> 8 & 0xF0) as u8;
            pair[2] = (target >> 16 & 0x0F | target >> 7 & 0x10 | target << 4 & 0xE0) as u8;
            pair[3] = (target >> 4 & 0x7F | target >> 13 & 0x80) as u8;
            at += 4;
            continue;
        }
        if first & 0x7F != 0x17 {
            at += 2;
            continue;
        }
        let undone = if first & 0xE80 != 0 {
            // A pair that the encoder had to escape, because it looks like what it makes.
            if (first << 8 ^ second.wrapping_sub(3)) & 0x000F_8003 != 0 {
                at += 6;
                continue;
            }
            [0x17 | 2 << 7 | second << 12, (first & 0xFFFF_F000).wrapping_add(second >> 20)]
        } else {
            let register = first >> 27;
            if first.wrapping_sub(0x3117) << 18 >= register & 0x1D {
                at += 4;
                continue;
            }
            let target = second.swap_bytes().wrapping_sub(here);
            [0x17 | register << 7 | target.wrapping_add(0x800) & 0xFFFF_F000, first >> 12 | target << 20]
        };
        pair.copy_from_slice(undone.map(u32::to_le_bytes).as_flattened());
        at += 8;
    }
    at
}

/// A stream in which each instruction stands for itself.
#[derive(Debug)]
struct Local {
    source: SharedSource,
    branches: Branches,
}

impl Source for Local {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        // With a unit before it, of which an instruction may reach into it.
        let start = offset.saturating_sub(UNIT as u64) / UNIT as u64 * UNIT as u64;
        let before = (offset - start) as usize;
        let mut bytes = vec![0; (before + buffer.len()).next_multiple_of(UNIT) + UNIT];
        let read = self.source.read_at(&mut bytes, start)?;
        self.branches.clone().undo(&mut bytes[..read], start);
        let wanted = bytes[..read].get(before..).unwrap_or_default();
        let count = wanted.len().min(buffer.len());
        buffer[..count].copy_from_slice(&wanted[..count]);
        Ok(count)
    }

    fn len(&self) -> u64 {
        self.source.len()
    }

    fn describe(&self) -> String {
        self.source.describe()
    }

    fn depth(&self) -> usize {
        self.source.depth()
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.source.prefetch(offset, length);
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        self.source.is_ready(offset.saturating_sub(2 * UNIT as u64), length.saturating_add(4 * UNIT))
    }

    fn is_unproven(&self) -> bool {
        self.source.is_unproven()
    }

    fn verify(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
        self.source.verify(is_abandoned)
    }
}

impl Codec for Bcj {
    fn name(&self) -> &'static str {
        self.0
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 500_000, in_whole_chunks: false }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(Filtered::first_pass(source, 0, Branches::new(self, &options.coder)?, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(Filtered::resume(source, 0, Branches::new(self, &context.coder)?, point, context)?))
    }

    fn container_codec(&self) -> Option<&dyn ContainerCodec> {
        Some(self)
    }
}

impl ContainerCodec for Bcj {
    fn decoded_length(&self, stored: u64, _coder: &CoderContext) -> Option<u64> {
        Some(stored)
    }

    fn random_access(&self, source: &SharedSource, coder: &CoderContext) -> io::Result<Option<SharedSource>> {
        let branches = Branches::new(self, coder)?;
        let local = |branches: Branches| -> SharedSource {
            std::sync::Arc::new(Local { source: SharedSource::clone(source), branches })
        };
        Ok(branches.is_local().then(|| local(branches)))
    }
}
