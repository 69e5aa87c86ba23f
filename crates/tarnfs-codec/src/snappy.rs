//! `.sz`: the framing format of snappy. Chunks of at most 64 KiB that need nothing of each other, with masked CRC-32Cs.
//!
//! Their contents are decoded by `snap`; walking the chunks is done here. A seek point is at a chunk.

#[cfg(test)]
mod tests;

use std::io;

use tarnfs_source::{Cancel, Limits, SharedSource, crc32c};

use crate::blocks::{BlockDecoder, Blocks, Fault, Mended, Part, Stop};
use crate::input::Input;
use crate::starts::{self, Behind, Effort, Proof, Walk};
use crate::{Checks, Codec, DecodeContext, Decoder, FileCodec, FirstPass, Options, Pace, SeekPoint, StreamChecks};

/// The codec.
#[derive(Debug)]
pub(crate) struct Snappy;

impl Codec for Snappy {
    fn name(&self) -> &'static str {
        "snappy"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 2_000_000, in_whole_chunks: false }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(BlockDecoder::<Chunks>::first_pass(source, options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(BlockDecoder::<Chunks>::resume(source, point, context.limits)?))
    }

    fn file_codec(&self) -> Option<&dyn FileCodec> {
        Some(self)
    }

    fn stream_checks(&self) -> Option<&dyn StreamChecks> {
        Some(self)
    }
}

impl FileCodec for Snappy {
    fn about(&self) -> &'static str {
        "seeks to each chunk of the framing format"
    }

    fn suffixes(&self) -> &'static [(&'static str, &'static str)] {
        &[(".sz", ""), (".snappy", "")]
    }

    fn bid(&self, head: &[u8]) -> u32 {
        if head.starts_with(&IDENTIFIER) { 8 * IDENTIFIER.len() as u32 } else { 0 }
    }
}

impl StreamChecks for Snappy {
    fn settles(&self, _point: &SeekPoint) -> Checks {
        Checks::Itself
    }
}

/// A state is this byte.
const VERSION: u8 = 1;

/// "Stream identifier": the first chunk of a file, and of each that follows.
const IDENTIFIER: [u8; 10] = *b"\xff\x06\0\0sNaPpY";

/// Decoded bytes of a chunk at most.
const LARGEST_CHUNK: usize = 64 << 10;

/// Bytes of the head of a chunk: its kind, and its length in three bytes.
const HEAD: usize = 4;

/// Bytes of the checksum behind it.
const SUM: usize = 4;

/// Bytes that a chunk takes at most behind its head: `snap::raw::max_compress_len` of the most that it may hold.
const LONGEST: usize = SUM + 32 + LARGEST_CHUNK + LARGEST_CHUNK / 6;

/// Kinds of chunks: packed, stored, and padding. Of those that may be skipped, no program writes another one.
const PACKED: u8 = 0x00;
const STORED: u8 = 0x01;
const PADDING: u8 = 0xFE;

/// Chunks that lead further lie in no chunk that stores them, as such a one holds no more.
const FAR: u64 = (2 * LARGEST_CHUNK) as u64;

/// Decoded bytes of a packed one, at most: an instruction of two bytes or more makes up to 64.
const LARGEST_RATIO: usize = 32;

/// Bytes behind damage that are looked at together.
const WINDOW: usize = 64 << 10;

/// The chunks of a file.
struct Chunks {
    /// The identifier must come next.
    at_start: bool,
}

impl Blocks for Chunks {
    fn new(_limits: Limits) -> Self {
        Self { at_start: true }
    }

    fn next(&mut self, input: &mut Input, block: &mut Vec<u8>, verify: bool) -> Result<Part, Stop> {
        let at_start = std::mem::take(&mut self.at_start);
        if input.remaining() == 0 && !at_start {
            return Ok(Part::End);
        }
        let head = input.peek(IDENTIFIER.len())?;
        if at_start && !head.starts_with(&IDENTIFIER) {
            let is_cut = IDENTIFIER.starts_with(head);
            return Err(if is_cut {
                Stop::Cut("its head")
            } else {
                Stop::Invalid("no snappy stream begins there".to_owned())
            });
        }
        let Some((kind, length)) = parse(head) else { return Err(Stop::Cut("the head of a chunk")) };
        let is_packed = match kind {
            PACKED => true,
            STORED => false,
            0x80.. => {
                let is_identifier = || kind == IDENTIFIER[0] || starts::mended(head, &IDENTIFIER).is_some();
                if head.len() == IDENTIFIER.len() && head != IDENTIFIER && is_identifier() {
                    return Err(Stop::Invalid("the identifier of a stream that is not snappy's".to_owned()));
                }
                let most = LONGEST.min(length);
                let content = input.peek(HEAD + most)?.get(HEAD..).unwrap_or_default();
                // One wrong bit makes such a chunk of one that holds something.
                if !matches!(kind, 0xFF | PADDING) && content.len() == length && read_any(content).is_some() {
                    return Err(Stop::Invalid(format!("a chunk of data whose kind is {kind:#04x}")));
                }
                return if input.skip((HEAD + length) as u64) { Ok(Part::Other) } else { Err(Stop::Cut("a chunk")) };
            }
            _ => {
                return Err(Stop::Invalid(format!(
                    "a chunk of kind {kind:#04x}, which is reserved: nobody can read it"
                )));
            }
        };
        let head = HEAD + SUM;
        let whole = HEAD + length;
        if whole as u64 > input.remaining() {
            return Err(Stop::Cut("a chunk"));
        }
        if whole < head || length > LONGEST || !is_packed && whole - head > LARGEST_CHUNK {
            return Err(Stop::Invalid(format!("a chunk of {length} bytes, which cannot be")));
        }
        block.resize(LARGEST_CHUNK, 0);
        let bytes = input.peek(whole + IDENTIFIER.len())?;
        // Where something else follows, its length may be damaged, and leads astray: whoever decodes has to see that.
        let is_followed = may_follow(bytes.get(whole..).unwrap_or_default());
        // One that is stored may be a packed one whose kind is damaged, which nothing but its checksum tells.
        let verify = verify || !is_followed || !is_packed;
        let (stated, data) = bytes[HEAD..whole].split_at(head - HEAD);
        let length = if is_packed {
            unpack(data, block)
        } else {
            block[..data.len()].copy_from_slice(data);
            Some(data.len())
        };
        let is_right = |length| !verify || stated == masked(&block[..length]).to_le_bytes();
        if !length.is_some_and(is_right) {
            if !is_followed {
                return Err(Stop::Invalid("a damaged chunk that leads to no other one".to_owned()));
            }
            if read_any(&bytes[HEAD..whole]).is_some() {
                return Err(Stop::Invalid(
                    "a chunk that is packed and says that it is stored, or the reverse".to_owned(),
                ));
            }
        }
        let part = match length {
            Some(0) if is_right(0) => Part::Other,
            Some(length) if is_right(length) => Part::Block { length, fault: None },
            Some(length) => {
                // A packed one has as many bytes as it says at its start. One that is stored may be a packed one whose
                // kind is damaged, but not if it is as long as it may be.
                let is_exact = is_packed || length == LARGEST_CHUNK || length == 0;
                let what = "the CRC-32C of a chunk does not match its data";
                Part::Block { length, fault: Some(Fault { what, is_decoded: true, is_exact }) }
            }
            None => {
                // What it says at its start may be what is damaged; all but the last are as long as they may be.
                let stated = snap::raw::decompress_len(data).ok().filter(|length| (1..=LARGEST_CHUNK).contains(length));
                let is_exact = stated == Some(LARGEST_CHUNK);
                let fault = Some(Fault { what: "a chunk that cannot be decoded", is_decoded: false, is_exact });
                Part::Block { length: stated.unwrap_or(LARGEST_CHUNK), fault }
            }
        };
        input.consume(whole);
        Ok(part)
    }

    fn find_next(
        &mut self,
        source: &SharedSource,
        at: u64,
        cancel: &Cancel,
        effort: &mut Effort,
    ) -> io::Result<Option<u64>> {
        effort.allow(source, at);
        let (mut from, mut left) = (at.saturating_add(1), starts::LOOKED_AT.saturating_add(at));
        let mut window = vec![0; WINDOW + HEAD + SUM];
        while let Some(data) = source.next_data(from).filter(|_| left > 0 && effort.spend(WINDOW as u64)) {
            cancel.check()?;
            // The first bytes of a head may be the last ones of a hole.
            from = data.saturating_sub((HEAD + SUM) as u64).max(from);
            let read = source.read_at(&mut window, from)?;
            let places = window[..read].windows(HEAD + SUM).take(WINDOW).enumerate();
            for (place, _) in places.filter(|(_, head)| is_head(head)) {
                let mut walk = Walk::new(source, from.saturating_add(place as u64), cancel, effort);
                let proof = Proof { far: FAR, stored: u64::MAX, is_expected: false, is_padded: false };
                if starts::leads_on(&mut walk, proof, |walk| pass_chunk(walk, at))? {
                    return Ok(Some(from.saturating_add(place as u64)));
                }
                if effort.is_spent() {
                    return Ok(None);
                }
            }
            if read < window.len() {
                break;
            }
            from = from.saturating_add(WINDOW as u64);
            left = left.saturating_sub(WINDOW as u64);
        }
        Ok(None)
    }

    fn mend(
        &mut self,
        source: &SharedSource,
        at: u64,
        block: &mut Vec<u8>,
        effort: &mut Effort,
    ) -> io::Result<Option<Mended>> {
        effort.allow(source, at);
        // The chunk, and the head of the next one.
        let mut bytes = vec![0; HEAD + LONGEST + IDENTIFIER.len()];
        if !effort.spend(bytes.len() as u64) {
            return Ok(None);
        }
        let read = source.read_at(&mut bytes, at)?;
        bytes.truncate(read);
        if starts::mended(bytes.get(..IDENTIFIER.len()).unwrap_or_default(), &IDENTIFIER).is_some() {
            let end = at.saturating_add(IDENTIFIER.len() as u64);
            return Ok(Some(Mended { length: 0, end, what: "the identifier of a snappy stream is damaged" }));
        }
        let content = bytes.get(HEAD..).unwrap_or_default();
        let longest = content.len().min(LONGEST);
        // Its kind may be what is wrong, or one bit of its length: what repeats has very many places that look right.
        let stated = parse(&bytes).map_or(0, |(_, length)| length);
        let likely = std::iter::once(stated).chain((0..24).map(|bit| stated ^ 1 << bit));
        let likely = likely.filter(|end| (SUM..=longest).contains(end));
        for end in likely.chain(SUM..=longest).filter(|&end| may_follow(&content[end..])) {
            if !effort.spend(end.saturating_add(LARGEST_CHUNK) as u64) {
                break;
            }
            if let Some(data) = read_any(&content[..end]) {
                let length = data.len();
                block.resize(LARGEST_CHUNK, 0);
                block[..length].copy_from_slice(&data);
                let end = at.saturating_add((HEAD + end) as u64);
                return Ok(Some(Mended { length, end, what: "the head of a chunk is damaged" }));
            }
        }
        Ok(None)
    }

    fn state(&self) -> Vec<u8> {
        vec![VERSION]
    }

    fn restore(&mut self, state: &[u8]) -> bool {
        self.at_start = false;
        state == [VERSION]
    }
}

/// The kind of a chunk and the bytes that follow its head.
fn parse(head: &[u8]) -> Option<(u8, usize)> {
    let &[kind, low, middle, high] = head.first_chunk()?;
    Some((kind, u32::from_le_bytes([low, middle, high, 0]) as usize))
}

/// True if `head` may be that of a chunk that holds something.
fn is_head(head: &[u8]) -> bool {
    match parse(head) {
        Some((PACKED, length)) => (SUM + 1..=LONGEST).contains(&length),
        Some((STORED, length)) => (SUM..=SUM + LARGEST_CHUNK).contains(&length),
        _ => false,
    }
}

/// True if `behind`, as many bytes as an identifier has or all up to the end, may follow a chunk.
fn may_follow(behind: &[u8]) -> bool {
    let is_padding = || parse(behind).is_some_and(|(kind, length)| kind == PADDING && length <= LONGEST);
    behind.is_empty() || behind.starts_with(&IDENTIFIER) || is_head(behind) || is_padding()
}

/// What a chunk of either kind holds, whose checksum and data are `content`, if these fit together.
fn read_any(content: &[u8]) -> Option<Vec<u8>> {
    let (stated, data) = content.split_first_chunk::<SUM>()?;
    let is_right = |data: &[u8]| masked(data).to_le_bytes() == *stated;
    if data.len() <= LARGEST_CHUNK && is_right(data) {
        return Some(data.to_vec());
    }
    // No memory is taken for more than so few bytes can become.
    let length = snap::raw::decompress_len(data).ok()?;
    let is_possible = length <= LARGEST_CHUNK && length <= data.len().saturating_mul(LARGEST_RATIO);
    let mut block = vec![0; if is_possible { length } else { return None }];
    unpack(data, &mut block).filter(|&length| length == block.len() && is_right(&block)).map(|_| block)
}

/// Passes a chunk that holds something, which its checksum proves, and what may be skipped before it, behind the chunk
/// at byte `damaged`: what is stored in that may have the end of the file as its own.
fn pass_chunk(walk: &mut Walk, damaged: u64) -> io::Result<Behind> {
    let start = walk.position();
    let length = loop {
        let head = walk.peek(IDENTIFIER.len())?;
        match parse(head) {
            Some((0x80.., length)) if length <= LONGEST => {
                if !walk.skip((HEAD + length) as u64) || !walk.step(0)? {
                    return Ok(Behind::Lost);
                }
            }
            Some((_, length)) if is_head(head) => break length,
            _ => return Ok(Behind::Lost),
        }
    };
    if !walk.step((length + LARGEST_CHUNK) as u64)? {
        return Ok(Behind::Lost);
    }
    let is_right = walk.peek(HEAD + length)?.get(HEAD..HEAD + length).and_then(read_any).is_some();
    if !is_right || !walk.skip((HEAD + length) as u64) {
        return Ok(Behind::Lost);
    }
    let is_outside = start.saturating_sub(damaged) > (HEAD + LONGEST) as u64;
    Ok(if is_outside && walk.position() == walk.source().len() { Behind::Start } else { Behind::Part })
}

/// Decodes a chunk to the start of `block`, if it is valid and not too long.
fn unpack(data: &[u8], block: &mut [u8]) -> Option<usize> {
    snap::raw::Decoder::new().decompress(data, block).ok()
}

/// The CRC-32C of `bytes`, masked as the framing format has it ("Checksum format").
fn masked(bytes: &[u8]) -> u32 {
    crc32c(0, bytes).rotate_right(15).wrapping_add(0xA282_EAD8)
}
