//! LZX of cabinets and of WIM: matches and literals in prefix codes, with the last three distances; calls of x86 may be
//! undone behind it.
//!
//! Bits come in words of 16, little-endian, the highest bit first. A block of a cabinet is a frame: behind it the bits
//! begin at a word again, and no match goes over its end. Blocks of LZX, which have codes of their own, do. A chunk of
//! WIM is a frame that stands for itself.

use super::prefix::{LONGEST, Prefix};

/// Literals, and the lengths of matches in the main code (the last one says that the code of lengths tells it).
const LITERALS: usize = 256;
const SHORT_LENGTHS: usize = 8;
const LONG_LENGTHS: usize = 249;
const SHORTEST: usize = 2;

/// Slots of distances for windows of 2^15 to 2^21 bytes.
const SLOTS: [usize; 7] = [30, 32, 34, 36, 38, 42, 50];

/// Symbols of the code for lengths of codes, and of the lowest bits of distances.
const PRE: usize = 20;
const ALIGNED: usize = 8;

/// Bytes of a frame of a cabinet, and of an ordinary block of WIM.
const BLOCK: usize = 32 << 10;

/// What calls of WIM are translated with, which does not say it.
const CALLS_OF_WIM: u32 = 12_000_000;

/// Frames in which calls are translated.
const TRANSLATED: u64 = 32768;

/// Bytes at the end of a frame in which no call begins.
const TAIL: usize = 10;

/// What has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Cabinet,
    Wim,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Verbatim,
    Aligned,
    Uncompressed,
}

pub(super) struct Lzx {
    dialect: Dialect,
    window: Vec<u8>,
    mask: usize,
    /// Bytes decoded so far.
    total: u64,
    slots: usize,
    main: Prefix,
    lengths: Prefix,
    aligned: Prefix,
    pre: Prefix,
    main_lengths: Vec<u8>,
    long_lengths: [u8; LONG_LENGTHS],
    distances: [u32; 3],
    kind: Kind,
    /// Bytes of the block of LZX that are still to come.
    left: usize,
    /// A byte fills up the block that ends here.
    is_odd: bool,
    /// What calls are translated with, once it is read: 0 if they are not.
    calls: Option<u32>,
}

type Outcome<T> = Result<T, &'static str>;

const CUT: &str = "the LZX data of a block end too early";
const NO_CODE: &str = "LZX data with a code that cannot be";

/// Reads the bits of one frame.
struct Bits<'b> {
    bytes: &'b [u8],
    /// Of the next word that is not in `word`.
    at: usize,
    word: u64,
    count: u32,
    /// Bits behind the end that were taken for zeros.
    missing: u32,
}

impl Bits<'_> {
    fn fill(&mut self) {
        while self.count <= 48 {
            let next = if let Some(word) = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk) {
                u16::from_le_bytes(*word)
            } else {
                self.missing += 16;
                0
            };
            self.at += 2;
            self.word |= u64::from(next) << (48 - self.count);
            self.count += 16;
        }
    }

    /// The next bits, of at most 32.
    fn take(&mut self, count: u32) -> Outcome<u32> {
        if count == 0 {
            return Ok(0);
        }
        self.fill();
        let bits = (self.word >> (64 - count)) as u32;
        self.consume(count)?;
        Ok(bits)
    }

    fn consume(&mut self, count: u32) -> Outcome<()> {
        self.word <<= count;
        self.count -= count;
        if self.count < self.missing { Err(CUT) } else { Ok(()) }
    }

    fn symbol(&mut self, code: &Prefix) -> Outcome<usize> {
        self.fill();
        let (symbol, length) = code.find((self.word >> 48) as u16).ok_or(NO_CODE)?;
        self.consume(length)?;
        Ok(usize::from(symbol))
    }

    /// Where the bytes begin that follow the bits as they are: behind 1 to 16 bits that fill up a word.
    fn bytes_behind(&self) -> usize {
        let read = self.at * 8 - self.count as usize;
        (read / 16 + 1) * 2
    }

    fn seek(&mut self, at: usize) {
        (self.at, self.word, self.count, self.missing) = (at, 0, 0, 0);
    }
}

/// Bits of a distance that stand behind its slot, and the first distance of that.
fn slot(number: usize) -> (u32, u32) {
    let extra = if number < 4 { 0 } else { (number as u32 / 2 - 1).min(17) };
    let base = if number < 4 {
        number as u32
    } else if number < 36 {
        (2 + (number as u32 & 1)) << extra
    } else {
        (number as u32 - 34) << 17
    };
    (extra, base)
}

impl Lzx {
    /// With a window of that power of two; `None` if there is none such.
    pub(super) fn new(window: u8, dialect: Dialect) -> Option<Self> {
        let slots = *SLOTS.get(usize::from(window).checked_sub(15)?)?;
        Some(Self {
            dialect,
            window: Vec::new(),
            mask: (1 << window) - 1,
            total: 0,
            slots,
            main: Prefix::new(),
            lengths: Prefix::new(),
            aligned: Prefix::new(),
            pre: Prefix::new(),
            main_lengths: vec![0; LITERALS + slots * SHORT_LENGTHS],
            long_lengths: [0; LONG_LENGTHS],
            distances: [1; 3],
            kind: Kind::Verbatim,
            left: 0,
            is_odd: false,
            calls: (dialect == Dialect::Wim).then_some(CALLS_OF_WIM),
        })
    }

    /// Forgets what was decoded: what comes now stands for itself.
    pub(super) fn reset(&mut self) {
        (self.total, self.left, self.is_odd, self.distances) = (0, 0, false, [1; 3]);
        self.main_lengths.fill(0);
        self.long_lengths.fill(0);
    }

    pub(super) fn decode(&mut self, stored: &[u8], decoded: &mut [u8]) -> Outcome<()> {
        // What comes of a chunk of WIM may be a few bytes, and each chunk has a new window.
        let used = match self.dialect {
            Dialect::Cabinet => self.mask + 1,
            Dialect::Wim => (self.total as usize).saturating_add(decoded.len()).min(self.mask + 1),
        };
        if self.window.len() < used {
            self.window.resize(used, 0);
        }
        let mut bits = Bits { bytes: stored, at: 0, word: 0, count: 0, missing: 0 };
        if self.calls.is_none() {
            let is_set = bits.take(1)? == 1;
            self.calls = Some(if is_set { bits.take(16)? << 16 | bits.take(16)? } else { 0 });
        }
        let mut done = 0;
        while done < decoded.len() {
            if self.left == 0 {
                self.begin(&mut bits)?;
            }
            let wanted = self.left.min(decoded.len() - done);
            let part = &mut decoded[done..done + wanted];
            if self.kind == Kind::Uncompressed {
                let bytes = stored.get(bits.at..bits.at + wanted).ok_or(CUT)?;
                part.copy_from_slice(bytes);
                self.keep(bytes);
                bits.seek(bits.at + wanted);
            } else {
                self.matches(&mut bits, wanted)?;
                let start = self.total - wanted as u64;
                for (place, byte) in part.iter_mut().enumerate() {
                    *byte = self.window[(start as usize + place) & self.mask];
                }
            }
            done += wanted;
            self.left -= wanted;
            if self.left == 0 && self.kind == Kind::Uncompressed && self.is_odd && bits.at < stored.len() {
                self.is_odd = false;
                bits.seek(bits.at + 1);
            }
        }
        self.translate(decoded);
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.window[self.total as usize & self.mask] = byte;
            self.total += 1;
        }
    }

    /// Begins a block of LZX.
    fn begin(&mut self, bits: &mut Bits<'_>) -> Outcome<()> {
        if std::mem::take(&mut self.is_odd) && bits.at == 0 {
            // What fills up the last one stands at the start of this frame.
            bits.seek(1);
        }
        let kind = bits.take(3)?;
        self.left = match self.dialect {
            Dialect::Wim if bits.take(1)? == 1 => BLOCK,
            Dialect::Wim if self.mask < (1 << 16) - 1 => bits.take(16)? as usize,
            _ => (bits.take(16)? << 8 | bits.take(8)?) as usize,
        };
        if self.left == 0 {
            return Err("LZX data with a block of nothing");
        }
        self.kind = match kind {
            1 => Kind::Verbatim,
            2 => Kind::Aligned,
            3 => Kind::Uncompressed,
            _ => return Err("LZX data with a block of no known kind"),
        };
        if self.kind == Kind::Uncompressed {
            let at = bits.bytes_behind();
            let (words, _) = bits.bytes.get(at..at + 12).ok_or(CUT)?.as_chunks::<4>();
            for (distance, word) in self.distances.iter_mut().zip(words) {
                *distance = u32::from_le_bytes(*word);
            }
            self.is_odd = self.left % 2 == 1;
            bits.seek(at + 12);
            return Ok(());
        }
        if self.kind == Kind::Aligned {
            let mut lengths = [0; ALIGNED];
            for length in &mut lengths {
                *length = bits.take(3)? as u8;
            }
            check(self.aligned.set(&lengths))?;
        }
        let (literals, matches) = self.main_lengths.split_at_mut(LITERALS);
        read_lengths(bits, &mut self.pre, literals)?;
        read_lengths(bits, &mut self.pre, matches)?;
        check(self.main.set(&self.main_lengths))?;
        read_lengths(bits, &mut self.pre, &mut self.long_lengths)?;
        check(self.lengths.set(&self.long_lengths))
    }

    /// Decodes `wanted` bytes into the window.
    fn matches(&mut self, bits: &mut Bits<'_>, wanted: usize) -> Outcome<()> {
        let end = self.total + wanted as u64;
        while self.total < end {
            let symbol = bits.symbol(&self.main)?;
            let Some(found) = symbol.checked_sub(LITERALS) else {
                self.window[self.total as usize & self.mask] = symbol as u8;
                self.total += 1;
                continue;
            };
            let mut length = found % SHORT_LENGTHS;
            if length == SHORT_LENGTHS - 1 {
                length += bits.symbol(&self.lengths)?;
            }
            length += SHORTEST;
            let distance = self.distance(bits, found / SHORT_LENGTHS)?;
            if distance as usize > self.mask || u64::from(distance) > self.total || distance == 0 {
                return Err("LZX data that refer to what is not there");
            }
            if self.total + length as u64 > end {
                return Err("LZX data with a match that goes over the end of its block");
            }
            for _ in 0..length {
                let from = (self.total as usize).wrapping_sub(distance as usize) & self.mask;
                self.window[self.total as usize & self.mask] = self.window[from];
                self.total += 1;
            }
        }
        Ok(())
    }

    fn distance(&mut self, bits: &mut Bits<'_>, number: usize) -> Outcome<u32> {
        if number < 3 {
            self.distances.swap(0, number);
            return Ok(self.distances[0]);
        }
        if number >= self.slots {
            return Err(NO_CODE);
        }
        let (extra, base) = slot(number);
        let low = if self.kind == Kind::Aligned && extra >= 3 {
            bits.take(extra - 3)? << 3 | bits.symbol(&self.aligned)? as u32
        } else {
            bits.take(extra)?
        };
        // The first two are those of the last distances.
        let distance = (base + low).saturating_sub(2);
        self.distances = [distance, self.distances[0], self.distances[1]];
        Ok(distance)
    }

    /// Calls of x86 have the place that they lead to: it becomes the distance to that again.
    fn translate(&self, frame: &mut [u8]) {
        let start = self.total - frame.len() as u64;
        let Some(size) = self.calls.filter(|size| *size != 0) else { return };
        if start / BLOCK as u64 >= TRANSLATED || frame.len() <= TAIL {
            return;
        }
        let (size, end) = (size.cast_signed(), frame.len() - TAIL);
        let mut at = 0;
        while at < end {
            if frame[at] != 0xe8 {
                at += 1;
                continue;
            }
            let place = (start as i64 + at as i64) as i32;
            if let Some(bytes) = frame[at + 1..].first_chunk_mut::<4>() {
                let absolute = i32::from_le_bytes(*bytes);
                if absolute >= -place && absolute < size {
                    let relative =
                        if absolute >= 0 { absolute.wrapping_sub(place) } else { absolute.wrapping_add(size) };
                    *bytes = relative.to_le_bytes();
                }
            }
            at += 5;
        }
    }

    pub(super) fn memory(&self) -> usize {
        let codes = [&self.main, &self.lengths, &self.aligned, &self.pre].map(Prefix::memory).iter().sum::<usize>();
        size_of::<Self>() + self.window.capacity() + self.main_lengths.capacity() + codes
    }
}

fn check(is_valid: bool) -> Outcome<()> {
    if is_valid { Ok(()) } else { Err(NO_CODE) }
}

/// The lengths of codes, which are told as differences to those of the block before.
fn read_lengths(bits: &mut Bits<'_>, pre: &mut Prefix, lengths: &mut [u8]) -> Outcome<()> {
    let mut of_pre = [0; PRE];
    for length in &mut of_pre {
        *length = bits.take(4)? as u8;
    }
    check(pre.set(&of_pre))?;
    let changed = |old: u8, by: usize| ((usize::from(old) + LONGEST + 1 - by) % (LONGEST + 1)) as u8;
    let mut at = 0;
    while at < lengths.len() {
        let symbol = bits.symbol(pre)?;
        let (count, length) = match symbol {
            17 => (bits.take(4)? as usize + 4, 0),
            18 => (bits.take(5)? as usize + 20, 0),
            19 => {
                let count = bits.take(1)? as usize + 4;
                let by = bits.symbol(pre)?;
                (count, changed(lengths[at], check(by <= LONGEST).map(|()| by)?))
            }
            by => (1, changed(lengths[at], by)),
        };
        let end = (at + count).min(lengths.len());
        lengths[at..end].fill(length);
        at = end;
    }
    Ok(())
}
