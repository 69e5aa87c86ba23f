//! Seek points inside a frame: what decoding needs to go on between two blocks.
//!
//! That is the codes and tables that a block may use again, the three offsets that count as repeated, and the window.
//! Of the window only the bytes are kept that something behind the point refers to: to find them, the sequences behind
//! it are decoded as far as the window reaches, but not their literals, and nothing is executed. What was made by a
//! match behind the point itself needs nothing, as what that match refers to is kept.
//!
//! A state is, in numbers of 8 bytes, little-endian, unless said otherwise:
//!
//! - its version, 1 byte, and [flags](CHECKSUM_FOLLOWS), 1 byte;
//! - where the frame begins in the compressed stream, its window, its content's length (0 if it does not say), and the
//!   bytes of it before the point;
//! - the repeated offsets, 4 bytes each;
//! - of the dictionary, if it is still in reach: its ID, 4 bytes, and the XXH64 of all of it;
//! - the weights of the Huffman code, if there is one: their number, 1 byte, and the weights, 1 byte each;
//! - the three tables, if there are some: 0 for the predefined one, 1 and a symbol, or 2, the accuracy, the number of
//!   counts and the counts, 2 bytes each; all others 1 byte;
//! - a zstd frame of: the number of runs, the runs (lengths of unused and used bytes in turns, 4 bytes each), and the
//!   used bytes. The runs make the history that the point has.

#[cfg(test)]
mod tests;

use std::io;

use tarnfs_source::{Cancel, Limits, SharedSource};

use super::block::{Blocks, Invalid};
use super::dictionary::Dictionaries;
use super::frame::{BLOCK_HEADER, BlockHeader, BlockKind, FrameHeader, LONGEST_HEADER, Start};
use super::fse::Counts;
use super::idle::Loan;
use super::literals;
use super::sequences::{Description, Kind, Sequence, Tables};
use super::window::{NO_OFFSET, repeated};
use crate::input::Input;

/// First byte of a state, in its first version.
const VERSION: u8 = 1;
/// Flag: a checksum follows the frame's last block.
const CHECKSUM_FOLLOWS: u8 = 1;
/// Flag: the frame says how long its content is.
const CONTENT_IS_KNOWN: u8 = 2;
/// Flag: there is a Huffman code.
const HAS_CODE: u8 = 4;
/// Flag: there are tables.
const HAS_TABLES: u8 = 8;

/// Flag: a dictionary is in reach.
const HAS_DICTIONARY: u8 = 16;

/// Fewer unused bytes between used ones are kept: saying that they are not there takes as much.
const SHORTEST_GAP: usize = 16;
/// Used bytes, and bytes of runs, that a state keeps at most: more are too much memory while it is made, and an index
/// takes no longer values than 96 MiB.
const MOST_USED: usize = 64 << 20;
/// The level of libzstd that states are compressed with. Those above take longer than they gain.
const LEVEL: i32 = 1;

/// Where a point is.
pub(super) struct PointPlace<'a> {
    pub(super) header: &'a FrameHeader,
    /// Where the frame begins in the compressed stream.
    pub(super) frame: u64,
    /// Where the next block begins.
    pub(super) block: u64,
    /// Bytes of the content before the point.
    pub(super) before: u64,
}

/// The state of a point at `place`, before which `blocks` has decoded all; `None` if it would be too large.
pub(super) fn pack(
    blocks: &Blocks,
    place: &PointPlace,
    source: &SharedSource,
    cancel: &Cancel,
) -> io::Result<Option<Vec<u8>>> {
    let history = blocks.window.history();
    let length = history[0].len() + history[1].len();
    let used = used(blocks, place, length, source, cancel)?;
    let (runs, total) = runs(&used, length);
    if total + 4 * runs.len() > MOST_USED {
        return Ok(None);
    }
    let mut kept = Vec::with_capacity(total + 4 * runs.len() + 8);
    kept.extend((runs.len() as u64).to_le_bytes());
    kept.extend(runs.iter().flat_map(|run| run.to_le_bytes()));
    let mut rest = history;
    for (index, &run) in runs.iter().enumerate() {
        let mut run = run as usize;
        for half in &mut rest {
            let (now, later) = half.split_at(run.min(half.len()));
            run -= now.len();
            *half = later;
            if index % 2 == 1 {
                kept.extend_from_slice(now);
            }
        }
    }
    let mut state = head(blocks, place);
    let start = state.len();
    state.resize(start + zstd_safe::compress_bound(kept.len()), 0);
    let packed = zstd_safe::compress(&mut state[start..], &kept, LEVEL).map_err(|code| {
        io::Error::other(format!("compressing a window failed: {}", zstd_safe::get_error_name(code)))
    })?;
    state.truncate(start + packed);
    state.shrink_to_fit();
    Ok(Some(state))
}

/// All of a state but the window.
fn head(blocks: &Blocks, place: &PointPlace) -> Vec<u8> {
    let code = blocks.literals.code();
    let tables = blocks.tables.descriptions();
    let dictionary = blocks.window.dictionary();
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let flags = flag(place.header.checksum, CHECKSUM_FOLLOWS)
        | flag(place.header.content.is_some(), CONTENT_IS_KNOWN)
        | flag(code.is_some(), HAS_CODE)
        | flag(tables.is_some(), HAS_TABLES)
        | flag(dictionary.is_some(), HAS_DICTIONARY);
    let mut state = vec![VERSION, flags];
    for number in [place.frame, place.header.window, place.header.content.unwrap_or(0), place.before] {
        state.extend(number.to_le_bytes());
    }
    state.extend(blocks.repeats().iter().flat_map(|offset| offset.to_le_bytes()));
    if let Some(dictionary) = dictionary {
        state.extend(dictionary.id().to_le_bytes());
        state.extend(dictionary.hash().to_le_bytes());
    }
    if let Some(code) = code {
        state.push(code.weights().len() as u8);
        state.extend_from_slice(code.weights());
    }
    for description in tables.iter().flatten() {
        match description {
            Description::Predefined => state.push(0),
            Description::Single(symbol) => state.extend([1, *symbol]),
            Description::Counts(counts) => {
                let symbols = counts.of.iter().rposition(|&count| count != 0).map_or(0, |last| last + 1);
                state.extend([2, counts.log, symbols as u8]);
                state.extend(counts.of[..symbols].iter().flat_map(|count| count.to_le_bytes()));
            }
        }
    }
    state
}

/// A bit for each of the `length` bytes before the point, set if something behind it refers to the byte.
fn used(
    blocks: &Blocks,
    place: &PointPlace,
    length: usize,
    source: &SharedSource,
    cancel: &Cancel,
) -> io::Result<Vec<u64>> {
    let mut used = Used { bits: vec![0; length.div_ceil(64)], length };
    let mut input = Input::new(SharedSource::clone(source), place.block);
    let mut ahead = Ahead { tables: blocks.tables.clone(), sequences: Vec::new(), repeats: *blocks.repeats(), at: 0 };
    while ahead.at < blocks.window.reach() {
        cancel.check()?;
        match ahead.step(&mut input, place.header, &mut used) {
            Ok(true) => {}
            Ok(false) => break,
            // What is behind is not known, so it may refer to anything.
            Err(_) => {
                used.mark(length, length);
                break;
            }
        }
    }
    Ok(used.bits)
}

/// Follows the sequences behind a point.
struct Ahead {
    tables: Tables,
    sequences: Vec<Sequence>,
    repeats: [u32; 3],
    /// Bytes behind the point.
    at: usize,
}

impl Ahead {
    /// Follows the next block; false where none follows. Whatever is wrong there ends decoding, too.
    fn step(&mut self, input: &mut Input, header: &FrameHeader, used: &mut Used) -> io::Result<bool> {
        let Some(bytes) = input.fill(BLOCK_HEADER)?.first_chunk() else { return Ok(false) };
        let Ok(block) = BlockHeader::parse(*bytes, header) else { return Ok(false) };
        let end = BLOCK_HEADER + block.length;
        let Some(content) = input.fill(end)?.get(BLOCK_HEADER..end) else { return Ok(false) };
        let goes_on = self.block(block.kind, content, used).is_ok() && !block.last;
        input.consume(end);
        Ok(goes_on)
    }

    fn block(&mut self, kind: BlockKind, content: &[u8], used: &mut Used) -> Result<(), Invalid> {
        match kind {
            BlockKind::Raw => self.at += content.len(),
            BlockKind::Repeated { count } => self.at += count,
            BlockKind::Compressed => {
                let (section, literals) = literals::lengths(content)?;
                let rest = content.get(section..).unwrap_or_default();
                let mut literals_left = literals;
                for sequence in self.tables.decode(rest, &mut self.sequences)? {
                    let (literals, matched) = (sequence.literals as usize, sequence.matched as usize);
                    literals_left = literals_left.checked_sub(literals).ok_or("too few literals")?;
                    self.at += literals;
                    let offset = repeated(sequence, &mut self.repeats) as usize;
                    if offset == 0 {
                        return Err(NO_OFFSET);
                    }
                    if offset > self.at {
                        used.mark(offset - self.at, matched);
                    }
                    self.at += matched;
                }
                self.at += literals_left;
            }
        }
        Ok(())
    }
}

struct Used {
    bits: Vec<u64>,
    length: usize,
}

impl Used {
    /// Marks `count` bytes from the one on that is `back` bytes before the point, as far as they are before it.
    fn mark(&mut self, back: usize, count: usize) {
        // What is in a dictionary is not in the window.
        let count = count.saturating_sub(back.saturating_sub(self.length));
        let back = back.min(self.length);
        let start = self.length - back;
        let end = start + count.min(back);
        let (mut word, last) = (start / 64, end / 64);
        let mut mask = u64::MAX << (start % 64);
        while word <= last {
            if word == last {
                mask &= (1 << (end % 64)) - 1;
            }
            if let Some(bits) = self.bits.get_mut(word) {
                *bits |= mask;
            }
            mask = u64::MAX;
            word += 1;
        }
    }
}

/// Lengths of what is unused and used in turns, and the sum of what is used.
fn runs(used: &[u64], length: usize) -> (Vec<u32>, usize) {
    let mut runs = Vec::new();
    let (mut at, mut total) = (0, 0);
    let mut last_end = 0;
    while let Some(start) = next(used, at, length, false) {
        let end = next(used, start, length, true).unwrap_or(length);
        match runs.last_mut() {
            Some(run) if start - last_end < SHORTEST_GAP => {
                *run += (end - last_end) as u32;
                total += end - last_end;
            }
            _ => {
                runs.extend([(start - last_end) as u32, (end - start) as u32]);
                total += end - start;
            }
        }
        (last_end, at) = (end, end);
    }
    if last_end < length {
        runs.push((length - last_end) as u32);
    }
    (runs, total)
}

/// The first bit from `at` on that is set, or with `invert` is not; `None` if there is none before `length`.
fn next(bits: &[u64], at: usize, length: usize, invert: bool) -> Option<usize> {
    let flip = if invert { u64::MAX } else { 0 };
    let mut mask = u64::MAX << (at % 64);
    for (index, &word) in bits.iter().enumerate().skip(at / 64) {
        let word = (word ^ flip) & mask;
        if word != 0 {
            let found = index * 64 + word.trailing_zeros() as usize;
            return (found < length).then_some(found);
        }
        mask = u64::MAX;
    }
    None
}

/// What a state says about its frame.
#[derive(Debug)]
pub(super) struct Restored {
    pub(super) header: FrameHeader,
    /// Where the frame begins in the compressed stream. Only said, never used.
    pub(super) frame: u64,
    /// Bytes of the content before the point.
    pub(super) before: u64,
}

/// Why nothing goes on at a state.
#[derive(Debug)]
pub(super) enum Refused {
    /// What is wrong with it, as a clause.
    Wrong(Invalid),
    /// It needs a dictionary, of this ID, that is not there.
    Needs {
        /// Where its frame begins in the compressed stream, as it says.
        frame: u64,
        dictionary: u32,
    },
}

impl From<Invalid> for Refused {
    fn from(what: Invalid) -> Self {
        Self::Wrong(what)
    }
}

/// Takes numbers from a state.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Invalid> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or("ends too early")?;
        self.0 = rest;
        Ok(bytes)
    }

    fn number<const BYTES: usize>(&mut self) -> Result<u64, Invalid> {
        Ok(self.bytes(BYTES)?.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn byte(&mut self) -> Result<u8, Invalid> {
        Ok(self.number::<1>()? as u8)
    }
}

/// Makes `blocks` go on where `state` was made. The state may be anything: what is wrong with it, as a clause.
pub(super) fn restore(
    state: &[u8],
    limits: &Limits,
    dictionaries: &Dictionaries,
    blocks: &mut Blocks,
) -> Result<Restored, Refused> {
    let mut fields = Fields(state);
    if fields.byte()? != VERSION {
        return Err("is of an unknown version".into());
    }
    let flags = fields.byte()?;
    let is_set = |flag: u8| flags & flag != 0;
    let (frame, window, content, before) =
        (fields.number::<8>()?, fields.number::<8>()?, fields.number::<8>()?, fields.number::<8>()?);
    let content = is_set(CONTENT_IS_KNOWN).then_some(content);
    if content.is_some_and(|content| content < before) {
        return Err("is behind the end of its frame".into());
    }
    if window > limits.decoder_window {
        return Err("has a larger window than the limit".into());
    }
    let header = FrameHeader { length: 0, window, content, dictionary: 0, checksum: is_set(CHECKSUM_FOLLOWS) };
    if !blocks.start(&header, None) {
        return Err("has a window for which there is no memory".into());
    }
    let repeats = [fields.number::<4>()? as u32, fields.number::<4>()? as u32, fields.number::<4>()? as u32];
    blocks.set_repeats(repeats)?;
    if is_set(HAS_DICTIONARY) {
        let (id, hash) = (fields.number::<4>()? as u32, fields.number::<8>()?);
        let Some(dictionary) = dictionaries.same(id, hash) else {
            return Err(Refused::Needs { frame, dictionary: id });
        };
        if before > blocks.window.reach() as u64 {
            return Err("has a dictionary that is out of reach".into());
        }
        blocks.window.put_before(Some(dictionary));
    }
    if is_set(HAS_CODE) {
        let count = usize::from(fields.byte()?);
        blocks.literals.set_code(fields.bytes(count)?)?;
    }
    if is_set(HAS_TABLES) {
        let mut descriptions = [Description::Predefined; 3];
        for (description, kind) in descriptions.iter_mut().zip(Kind::ALL) {
            *description = read_description(&mut fields, kind)?;
        }
        blocks.tables.set(&descriptions)?;
    }
    let history = before.min(blocks.window.reach() as u64) as usize;
    unpack(fields.0, blocks.window.continue_behind(history))?;
    Ok(Restored { header, frame, before })
}

fn read_description(fields: &mut Fields, kind: Kind) -> Result<Description, Invalid> {
    Ok(match fields.byte()? {
        0 => Description::Predefined,
        1 => Description::Single(fields.byte()?),
        2 => {
            let (log, count) = (fields.byte()?, usize::from(fields.byte()?));
            let counts: Vec<i16> =
                fields.bytes(count * 2)?.as_chunks::<2>().0.iter().map(|bytes| i16::from_le_bytes(*bytes)).collect();
            let counts = Counts::checked(log, &counts, kind.symbols(), kind.most_log());
            Description::Counts(counts.ok_or("has a table that adds up to something else")?)
        }
        _ => return Err("has a table of an unknown form"),
    })
}

/// Writes the history that `packed` holds, of which as much must be there as `history` takes. What is unused stays as
/// it is.
fn unpack(packed: &[u8], mut history: &mut [u8]) -> Result<(), Invalid> {
    const WRONG: Invalid = "has a window that is not as it should be";
    let Start::Frame(header) = Start::parse(packed.get(..packed.len().min(LONGEST_HEADER)).unwrap_or_default()) else {
        return Err(WRONG);
    };
    // A run that is used, and what is not before it, take at least one byte and the shortest gap.
    let most = history.len() + (history.len() / SHORTEST_GAP + 2) * 8 + 8;
    let is_possible = |content: u64| content <= most as u64 && header.window <= content.max(1 << 20) * 2;
    if !header.content.is_some_and(is_possible) {
        return Err(WRONG);
    }
    let (mut blocks, length) = (Loan::take(), header.content.unwrap_or_default() as usize);
    let kept =
        blocks.start_whole_frames(None, length).then(|| blocks.decode_frame(&header, None, packed, length)).flatten();
    let kept = kept.and_then(|place| blocks.whole_frames().get(place)).ok_or(WRONG)?;
    let (count, rest) = kept.split_first_chunk::<8>().ok_or(WRONG)?;
    let runs = usize::try_from(u64::from_le_bytes(*count)).ok().and_then(|count| count.checked_mul(4)).ok_or(WRONG)?;
    let (runs, mut bytes) = rest.split_at_checked(runs).ok_or(WRONG)?;
    for (index, run) in runs.as_chunks::<4>().0.iter().enumerate() {
        let run = u32::from_le_bytes(*run) as usize;
        let (to, later) = history.split_at_mut_checked(run).ok_or(WRONG)?;
        if index % 2 == 1 {
            let (now, behind) = bytes.split_at_checked(run).ok_or(WRONG)?;
            to.copy_from_slice(now);
            bytes = behind;
        }
        history = later;
    }
    if history.is_empty() && bytes.is_empty() { Ok(()) } else { Err(WRONG) }
}
