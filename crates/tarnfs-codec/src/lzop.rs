//! `.lzo`, as `lzop` writes it: a header, and blocks of LZO1X that need nothing of each other. Files may follow one
//! another.
//!
//! A seek point is at a block; its state has the flags of the file that the block is in, which say what checksums it
//! has.

mod header;
pub(crate) mod lzo1x;

#[cfg(test)]
mod tests;

use std::io;

use tarnfs_source::{Cancel, Limits, SharedSource};
use zlib_rs::adler32::adler32;

use crate::blocks::{BlockDecoder, Blocks, Fault, Part, Stop};
use crate::input::Input;
use crate::starts::{self, Behind, Effort, Proof, Walk};
use crate::{Checks, Codec, DecodeContext, Decoder, FileCodec, FirstPass, Options, Pace, SeekPoint, StreamChecks};

use header::{Flags, Header, LONGEST, MAGIC, Start};

/// The codec.
#[derive(Debug)]
pub(crate) struct Lzop;

impl Codec for Lzop {
    fn name(&self) -> &'static str {
        "lzop"
    }

    fn tells_memory(&self) -> bool {
        // A block may have 64 MiB.
        false
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 1_000_000, in_whole_chunks: false }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(BlockDecoder::<Files>::first_pass(source, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(BlockDecoder::<Files>::resume(source, point, context.limits)?))
    }

    fn file_codec(&self) -> Option<&dyn FileCodec> {
        Some(self)
    }

    fn stream_checks(&self) -> Option<&dyn StreamChecks> {
        Some(self)
    }
}

impl FileCodec for Lzop {
    fn about(&self) -> &'static str {
        "seeks to each block"
    }

    fn suffixes(&self) -> &'static [(&'static str, &'static str)] {
        &[(".tzo", ".tar"), (".lzo", "")]
    }

    fn bid(&self, head: &[u8]) -> u32 {
        match Start::parse(head) {
            // The magic and the header's checksum.
            Ok(Start::Header(_)) => 8 * 9 + 32,
            // A damaged header is still one of ours: the error says more than that no format was found.
            Ok(Start::Cut) | Err(_) if head.starts_with(&MAGIC) => 8 * 9,
            _ => 0,
        }
    }
}

impl StreamChecks for Lzop {
    fn settles(&self, _point: &SeekPoint) -> Checks {
        Checks::Itself
    }
}

/// First byte of a state; the flags follow (4 bytes, little-endian).
const VERSION: u8 = 1;

/// Decoded bytes of a block at most, as `lzop` has it.
const LARGEST_BLOCK: u32 = 64 << 20;

/// Decoded bytes of each block but the last, as `lzop` writes them.
const USUAL_BLOCK: u32 = 256 << 10;

/// LZO1X makes at most 255 bytes of one, and what an instruction has beside that.
const LARGEST_RATIO: u32 = 256;

/// Blocks that lead further lie in no file that stores them: its own blocks, of 256 KiB, have headers, which move what
/// is behind them. One of 8000 places looks like the header of a block.
const FAR: u64 = 1 << 20;

/// The most of a file that is stored together.
const STORED: u64 = 256 << 10;

/// Files, one after another.
struct Files {
    limits: Limits,
    place: FileState,
    /// Decoded bytes of a block that is not the last.
    usual: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileState {
    Start,
    /// Behind a file.
    Between,
    Blocks(Flags),
}

impl Blocks for Files {
    fn new(limits: Limits) -> Self {
        Self { limits, place: FileState::Start, usual: USUAL_BLOCK }
    }

    fn next(&mut self, input: &mut Input, block: &mut Vec<u8>, verify: bool) -> Result<Part, Stop> {
        match self.place {
            FileState::Blocks(flags) => self.block(flags, input, block, verify),
            FileState::Between if input.remaining() == 0 => Ok(Part::End),
            place => match Start::parse(input.peek(LONGEST)?).map_err(Stop::Invalid)? {
                Start::Header(header) => {
                    self.enter(header, input)?;
                    Ok(Part::Other)
                }
                Start::Cut => Err(Stop::Cut("a header")),
                // Of the first file nothing but its magic says that it is one.
                Start::Other if input.position() > 0 && self.has_damaged_magic(input)? => {
                    let what = "the magic number of a file of lzop is damaged";
                    // No byte is lost.
                    Ok(Part::Block { length: 0, fault: Some(Fault { what, is_decoded: true, is_exact: true }) })
                }
                Start::Other if place == FileState::Between => Ok(Part::End),
                Start::Other => Err(Stop::Invalid("no file of lzop begins there".to_owned())),
            },
        }
    }

    fn state(&self) -> Vec<u8> {
        match self.place {
            FileState::Blocks(Flags(flags)) => [&[VERSION], &flags.to_le_bytes()[..]].concat(),
            FileState::Start | FileState::Between => vec![VERSION],
        }
    }

    fn restore(&mut self, state: &[u8]) -> bool {
        match *state {
            [VERSION] => true,
            [VERSION, ref flags @ ..] => {
                flags.try_into().map(|flags| self.place = FileState::Blocks(Flags(u32::from_le_bytes(flags)))).is_ok()
            }
            _ => false,
        }
    }

    fn find_next(
        &mut self,
        source: &SharedSource,
        at: u64,
        cancel: &Cancel,
        effort: &mut Effort,
    ) -> io::Result<Option<u64>> {
        let [first, second, third, fourth, ..] = MAGIC;
        let magic = [first, second, third, fourth];
        let next = starts::next(source, at.saturating_add(1), &[magic], cancel, effort, |at, effort| {
            let mut walk = Walk::new(source, at, cancel, effort);
            let proof = Proof { far: FAR, stored: STORED, is_expected: false, is_padded: false };
            starts::leads_on(&mut walk, proof, parts())
        })?;
        if next.is_some() {
            self.place = FileState::Between;
        }
        Ok(next)
    }
}

/// Passes the parts of files from the header of one on. One byte of its magic may be damaged.
fn parts() -> impl FnMut(&mut Walk) -> io::Result<Behind> {
    let mut file = None;
    move |walk| {
        let Some(flags) = file else {
            let head = walk.peek(LONGEST)?;
            let mended = starts::mended(head, &MAGIC);
            let Ok(Start::Header(header)) = Start::parse(mended.as_deref().unwrap_or(head)) else {
                return Ok(Behind::Lost);
            };
            let mut is_passed = walk.skip(header.length as u64);
            if header.extra {
                let [length, _] = numbers(walk.peek(4)?);
                is_passed &= length.is_some_and(|length| walk.skip(4 + u64::from(length) + 4));
            }
            file = Some(header.flags);
            return Ok(if is_passed { Behind::More } else { Behind::Lost });
        };
        let [Some(decoded), packed] = numbers(walk.peek(8)?) else { return Ok(Behind::Lost) };
        if decoded == 0 {
            file = None;
            return Ok(if walk.skip(4) { Behind::Start } else { Behind::Lost });
        }
        let Some(packed) = packed.filter(|&packed| packed <= decoded && decoded <= LARGEST_BLOCK) else {
            return Ok(Behind::Lost);
        };
        let checksums = checksums_before(flags, packed == decoded);
        Ok(if walk.skip(8 + 4 * checksums + u64::from(packed)) { Behind::More } else { Behind::Lost })
    }
}

/// How many checksums stand before the data of a block.
fn checksums_before(flags: Flags, is_stored: bool) -> u64 {
    flags.checksums(is_stored).into_iter().filter(|&is_there| is_there).count() as u64
}

impl Files {
    /// Goes on with the blocks behind `header`.
    fn enter(&mut self, header: Header, input: &mut Input) -> Result<(), Stop> {
        input.consume(header.length);
        if header.extra && !skip_extra(input)? {
            return Err(Stop::Cut("the extra field of a header"));
        }
        self.place = FileState::Blocks(header.flags);
        Ok(())
    }

    /// Goes on with the file at the input's position, if there is one whose magic is damaged: its header has a
    /// checksum.
    fn has_damaged_magic(&mut self, input: &mut Input) -> Result<bool, Stop> {
        let mended = starts::mended(input.peek(LONGEST)?, &MAGIC);
        let Some(Ok(Start::Header(header))) = mended.map(|mended| Start::parse(&mended)) else { return Ok(false) };
        self.enter(header, input)?;
        Ok(true)
    }

    /// Reads a block, or what stands for the end of them.
    fn block(&mut self, flags: Flags, input: &mut Input, block: &mut Vec<u8>, verify: bool) -> Result<Part, Stop> {
        let [Some(decoded), packed] = numbers(input.peek(8)?) else { return Err(Stop::Cut("the end of a file")) };
        if decoded == 0 {
            input.consume(4);
            self.place = FileState::Between;
            return Ok(Part::Other);
        }
        let Some(packed) = packed else { return Err(Stop::Cut("a block")) };
        let is_stored = packed == decoded;
        let [of_decoded @ .., third, fourth] = flags.checksums(is_stored);
        let of_packed = [third, fourth];
        let checksums = of_decoded.iter().chain(&of_packed).filter(|&&is_there| is_there).count();
        let whole = (8 + 4 * checksums).saturating_add(packed as usize);
        if decoded > LARGEST_BLOCK || packed > decoded || decoded / LARGEST_RATIO > packed {
            return Err(Stop::Invalid(format!("a block of {decoded} bytes that takes {packed}, which cannot be")));
        }
        if u64::from(decoded) > self.limits.decoder_window {
            let most = self.limits.decoder_window;
            return Err(Stop::Invalid(format!("a block of {decoded} bytes, the limit is {most}")));
        }
        if whole as u64 > input.remaining() {
            return Err(Stop::Cut("a block"));
        }
        let (head, data) = input.peek(whole)?.split_at(whole - packed as usize);
        let length = decoded as usize;
        block.resize(block.len().max(length), 0);
        let output = &mut block[..length];
        let is_decoded = if is_stored {
            output.copy_from_slice(data);
            true
        } else {
            lzo1x::decompress(data, output).is_ok()
        };
        let is_right = !verify || {
            let (stated_decoded, stated_packed) = head[8..].split_at(4 * of_decoded.iter().filter(|&&is| is).count());
            // What the decoded bytes say counts, where they say something.
            if stated_decoded.is_empty() {
                stated_packed == checksums_of(data, of_packed)
            } else {
                stated_decoded == checksums_of(output, of_decoded)
            }
        };
        input.consume(whole);
        let fault = if !is_decoded {
            let is_exact = decoded == self.usual;
            Some(Fault { what: "a block that cannot be decoded", is_decoded, is_exact })
        } else if !is_right {
            // It has as many bytes as its head says.
            Some(Fault { what: "the checksum of a block does not match", is_decoded, is_exact: true })
        } else {
            self.usual = decoded;
            None
        };
        Ok(Part::Block { length, fault })
    }
}

/// The first two numbers, as far as they are there.
fn numbers(bytes: &[u8]) -> [Option<u32>; 2] {
    [0, 4].map(|at| bytes.get(at..).and_then(<[u8]>::first_chunk).map(|&number| u32::from_be_bytes(number)))
}

/// The checksums of `bytes` as they stand in a file, of those kinds: Adler-32, CRC-32.
fn checksums_of(bytes: &[u8], [adler, crc]: [bool; 2]) -> Vec<u8> {
    let adler = adler.then(|| adler32(1, bytes).to_be_bytes());
    let crc = crc.then(|| crc32fast::hash(bytes).to_be_bytes());
    adler.into_iter().chain(crc).flatten().collect()
}

/// Passes over a length, as many bytes, and a checksum of them. False if the file ends before.
fn skip_extra(input: &mut Input) -> Result<bool, Stop> {
    let [Some(length), _] = numbers(input.peek(4)?) else { return Ok(false) };
    Ok(input.skip(4 + u64::from(length) + 4))
}
