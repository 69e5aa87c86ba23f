//! What LHA and ARJ compress files with, each by itself: LZ77 with prefix codes of several kinds.
//!
//! `blocks` decodes codes that come before each block of data (LHA's lh4 to lh7, ARJ's 1 to 3), `learning` those that
//! change with each symbol (lh1), `fixed` those that are the same for all files (ARJ's 4, LArc's lz5 and lzs).
//!
//! Properties: the method, as in [`Method::of`], and for LHA the CRC-16 of the file (2 bytes, little-endian), which is
//! compared at its end. What has one is named by another codec, which tells that all of it is compared.

mod bits;
mod blocks;
mod fixed;
mod learning;

use std::io;

use tarnfs_source::{Cancel, SharedSource};

use super::invalid_properties;
use super::streamed::{Streamed, Unpack};
use crate::faults;
use crate::{
    Codec, CoderContext, ContainerCodec, DecodeContext, Decoder, FirstPass, Options, OwnChecks, Pace, SeekPoint,
};
use bits::Bits;
use blocks::Blocks;
use fixed::{Fastest, Lz5, Lzs};
use learning::Learning;

/// The codec: of files that bring their checksum with them, or of all.
#[derive(Debug)]
pub(super) struct Lzh {
    name: &'static str,
    own_checks: OwnChecks,
}

/// Files that may have no checksum, or one that the container compares.
pub(super) static PLAIN: Lzh = Lzh { name: "lzh", own_checks: OwnChecks::None };
/// Files with a CRC-16.
pub(super) static CHECKED: Lzh = Lzh { name: "lzh-checked", own_checks: OwnChecks::Whole };

/// What comes next: a byte, or a run of bytes that came before. The distance of the byte before is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Symbol {
    Literal(u8),
    Match { length: usize, distance: usize },
}

type Outcome<T> = Result<T, &'static str>;

enum Method {
    Stored,
    Blocks(Box<Blocks>),
    Learning(Box<Learning>),
    Fastest,
    Lz5(Lz5),
    Lzs,
}

impl Method {
    /// Its number in properties: 0 stored, 1 lh1, 4 to 8 lh4 to lh7 and lhx, 16 lz5, 17 lzs, 32 ARJ's 1 to 3, 33 ARJ's
    /// 4. With it the window, as a power of two, and whether that is filled with blanks at first, or as LArc does it.
    fn of(number: u8) -> Option<(Self, u32, Fill)> {
        let blocks = |slots: usize, width: u32| Self::Blocks(Box::new(Blocks::new(slots, width)));
        Some(match number {
            0 => (Self::Stored, 0, Fill::Blanks),
            1 => (Self::Learning(Box::new(Learning::new())), 12, Fill::Blanks),
            4 => (blocks(14, 4), 12, Fill::Blanks),
            5 => (blocks(14, 4), 13, Fill::Blanks),
            6 => (blocks(16, 5), 15, Fill::Blanks),
            7 => (blocks(17, 5), 16, Fill::Blanks),
            8 => (blocks(21, 5), 20, Fill::Blanks),
            16 => (Self::Lz5(Lz5::default()), 12, Fill::Larc),
            17 => (Self::Lzs, 11, Fill::Blanks),
            32 => (blocks(17, 5), 15, Fill::Blanks),
            33 => (Self::Fastest, 15, Fill::Blanks),
            _ => return None,
        })
    }

    fn next(&mut self, bits: &mut Bits, at: usize) -> io::Result<Symbol> {
        let found = match self {
            Self::Stored => return bits.byte().map(Symbol::Literal),
            Self::Blocks(blocks) => blocks.next(bits),
            Self::Learning(learning) => learning.next(bits),
            Self::Fastest => Fastest::next(bits),
            Self::Lz5(lz5) => lz5.next(bits, at),
            Self::Lzs => Lzs::next(bits, at),
        };
        found?.map_err(|what| bits.invalid(what))
    }

    fn memory(&self) -> usize {
        match self {
            Self::Blocks(blocks) => blocks.memory(),
            Self::Learning(learning) => learning.memory(),
            _ => 0,
        }
    }
}

/// What the window holds before anything was decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fill {
    Blanks,
    Larc,
}

struct Unpacker {
    bits: Bits,
    method: Method,
    window: Vec<u8>,
    mask: usize,
    /// Bytes decoded so far, and how many there are in all.
    total: u64,
    length: u64,
    /// Of a match: the bytes that are still to come, and their distance.
    left: usize,
    distance: usize,
    crc: Option<(u16, u16)>,
    /// The file differs from it, and how.
    flaw: Option<String>,
}

impl Unpacker {
    fn new(source: SharedSource, coder: &CoderContext) -> io::Result<Self> {
        let invalid = || invalid_properties("LZH");
        let (&[number, ref rest @ ..], Some(length)) = (&coder.properties[..], coder.decoded_length) else {
            return Err(invalid());
        };
        let (method, window, fill) = Method::of(number).ok_or_else(invalid)?;
        let crc = rest.first_chunk().map(|crc| (0, u16::from_le_bytes(*crc)));
        let size = 1_usize << window;
        // No more than the file can fill, where nothing before it matters.
        let (mut window, mut mask) = (Vec::new(), 0);
        if !matches!(method, Method::Stored) {
            window = filled(size, fill);
            mask = size - 1;
        }
        let bits = Bits::new(source);
        Ok(Self { bits, method, window, mask, total: 0, length, left: 0, distance: 0, crc, flaw: None })
    }

    /// Where in the window the next byte goes. Distances do not depend on it, but places of LArc do.
    fn at(&self) -> usize {
        self.total as usize & self.mask
    }

    /// Decodes into `buffer` until it is full.
    fn decode(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        for byte in buffer {
            if self.left == 0 {
                match self.method.next(&mut self.bits, self.total as usize & self.mask)? {
                    Symbol::Literal(literal) => {
                        *byte = literal;
                        if let Some(place) = self.window.get_mut(self.total as usize & self.mask) {
                            *place = literal;
                        }
                        self.total += 1;
                        continue;
                    }
                    Symbol::Match { length, distance } => (self.left, self.distance) = (length, distance),
                }
                if self.left == 0 || self.distance == 0 || self.distance > self.window.len() {
                    return Err(self.bits.invalid("the data refer to what is not there"));
                }
            }
            let from = self.at().wrapping_sub(self.distance) & self.mask;
            *byte = self.window[from];
            let at = self.at();
            self.window[at] = *byte;
            self.total += 1;
            self.left -= 1;
        }
        Ok(())
    }
}

impl Unpack for Unpacker {
    fn unpack(&mut self, buffer: &mut [u8], cancel: &Cancel) -> io::Result<usize> {
        cancel.check()?;
        let left = usize::try_from(self.length - self.total).unwrap_or(usize::MAX);
        let count = left.min(buffer.len());
        if matches!(self.method, Method::Stored) {
            let read = self.bits.copy(&mut buffer[..count])?;
            if read == 0 && count > 0 {
                return Err(faults::cut(self.bits.position(), "the data of a file"));
            }
            self.total += read as u64;
            self.check(&buffer[..read]);
            return Ok(read);
        }
        self.decode(&mut buffer[..count])?;
        self.check(&buffer[..count]);
        Ok(count)
    }

    fn take_flaw(&mut self) -> Option<(u64, String)> {
        self.flaw.take().map(|what| (self.length, what))
    }

    fn position(&self) -> u64 {
        self.bits.position()
    }

    fn memory(&self, _decoded: u64) -> usize {
        size_of::<Self>() + self.bits.memory() + self.window.capacity() + self.method.memory()
    }
}

impl Unpacker {
    /// Goes on with the checksum; where the file ends, it is compared. That it differs is no error: who wants the file
    /// all the same gets all of it.
    fn check(&mut self, bytes: &[u8]) {
        if let Some((crc, expected)) = &mut self.crc {
            *crc = crc16(*crc, bytes);
            if self.total == self.length && crc != expected && !bytes.is_empty() {
                let what = self.bits.invalid("the CRC-16 of a file does not match its data");
                self.flaw = Some(what.to_string());
            }
        }
    }
}

/// The window before anything was decoded.
fn filled(size: usize, fill: Fill) -> Vec<u8> {
    match fill {
        Fill::Blanks => vec![b' '; size],
        // What files are likely to hold: runs of each byte, all bytes up and down, zeros and blanks (LArc 3.33).
        Fill::Larc => {
            let mut window: Vec<u8> = (0..=u8::MAX).flat_map(|byte| [byte; 13]).collect();
            window.extend(0..=u8::MAX);
            window.extend((0..=u8::MAX).rev());
            window.resize(window.len() + 128, 0);
            window.resize(size, b' ');
            // Its first byte goes to that place.
            window.rotate_left(fixed::LZ5_FIRST);
            window
        }
    }
}

/// CRC-16 (ARC) of more bytes.
fn crc16(crc: u16, bytes: &[u8]) -> u16 {
    const TABLE: [u16; 256] = {
        let mut table = [0_u16; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut crc = byte as u16;
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ 0xa001 };
                bit += 1;
            }
            table[byte] = crc;
            byte += 1;
        }
        table
    };
    bytes.iter().fold(crc, |crc, byte| crc >> 8 ^ TABLE[usize::from((crc as u8) ^ byte)])
}

impl Lzh {
    fn unpacker(&self, source: SharedSource, coder: &CoderContext) -> io::Result<Unpacker> {
        let unpacker = Unpacker::new(source, coder)?;
        if self.own_checks == OwnChecks::Whole && unpacker.crc.is_none() {
            return Err(invalid_properties("LZH"));
        }
        Ok(unpacker)
    }
}

impl Codec for Lzh {
    fn name(&self) -> &'static str {
        self.name
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 100_000, in_whole_chunks: false }
    }

    fn has_seek_points(&self) -> bool {
        false
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(Streamed::first_pass(self.unpacker(source, &options.coder)?, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        let unpacker = self.unpacker(source, &context.coder)?;
        Ok(Box::new(Streamed::resume(unpacker, point, context.coder.decoded_length)?))
    }

    fn container_codec(&self) -> Option<&dyn ContainerCodec> {
        Some(self)
    }
}

impl ContainerCodec for Lzh {
    fn own_checks(&self) -> OwnChecks {
        self.own_checks
    }
}
