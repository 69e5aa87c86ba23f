//! Passes the parts of streams without decoding them: to see whether what looks like one leads on to others.

use std::io;

use tarnfs_source::SharedSource;

use super::container::{
    CheckId, LONGEST_BLOCK_HEADER, LONGEST_INTEGER, MAGIC, STREAM_HEADER, block_header, block_header_length, integer,
    padded, stream_footer, stream_header,
};
use super::index;
use crate::input::Input;
use crate::starts::{self, Behind, Walk};

/// Where a walk is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    Stream,
    /// Behind so many blocks of a stream.
    Blocks {
        check: CheckId,
        passed: u64,
    },
    /// In the chunks of a block, whose header begins at byte `start`.
    Chunks {
        check: CheckId,
        passed: u64,
        start: u64,
    },
}

/// Passes the parts of streams from `place` on. One byte of the magic of a stream may be damaged.
pub(super) fn parts(place: Place) -> impl FnMut(&mut Walk) -> io::Result<Behind> {
    let mut place = place;
    move |walk| {
        let passed = match place {
            Place::Stream => {
                let header = walk.peek(STREAM_HEADER)?;
                let check = header.first_chunk().and_then(|header| stream_header(header).ok());
                let check = check.or_else(|| check_behind_damaged_magic(header));
                check.filter(|_| walk.skip(STREAM_HEADER as u64)).map(|check| {
                    let next = Place::Blocks { check, passed: 0 };
                    (next, Behind::More)
                })
            }
            Place::Blocks { check, passed } => {
                if walk.peek(1)?.first() == Some(&0) {
                    pass_index(walk, check, passed)?.then_some((Place::Stream, Behind::Start))
                } else {
                    pass_block_header(walk, check, passed)?
                }
            }
            Place::Chunks { check, passed, start } => match chunk(walk.peek(5)?) {
                Some((length, _, true)) => (walk.skip(length) && pass_check(walk, start, check))
                    .then_some((Place::Blocks { check, passed }, Behind::Part)),
                Some((length, _, false)) => walk.skip(length).then_some((place, Behind::More)),
                None => None,
            },
        };
        let Some((next, behind)) = passed else { return Ok(Behind::Lost) };
        place = next;
        Ok(behind)
    }
}

/// Passes the header of a block, and its data where it says how long they are.
fn pass_block_header(walk: &mut Walk, check: CheckId, passed: u64) -> io::Result<Option<(Place, Behind)>> {
    let start = walk.position();
    let bytes = walk.peek(LONGEST_BLOCK_HEADER)?;
    let header = bytes.first().and_then(|&size| bytes.get(..block_header_length(size)));
    let Some(header) = header.and_then(|header| block_header(header, check).ok()) else { return Ok(None) };
    let passed = passed + 1;
    if !walk.skip(header.length as u64) {
        return Ok(None);
    }
    Ok(match header.compressed {
        Some(length) => (walk.skip(length) && pass_check(walk, start, check))
            .then_some((Place::Blocks { check, passed }, Behind::Part)),
        None => Some((Place::Chunks { check, passed, start }, Behind::More)),
    })
}

/// Passes what follows the data of a block whose header begins at byte `start`.
fn pass_check(walk: &mut Walk, start: u64, check: CheckId) -> bool {
    let length = walk.position().saturating_sub(start);
    let padding = padded(length).map(|padded| padded - length);
    padding.is_some_and(|padding| walk.skip(padding + check.size() as u64))
}

/// Passes the index of so many blocks, and the footer behind it. An index of another number is not read: it may be as
/// long as the file.
fn pass_index(walk: &mut Walk, check: CheckId, blocks: u64) -> io::Result<bool> {
    /// What a record costs, in bytes that are read.
    const RECORD: u64 = 64;
    let head = walk.peek(1 + LONGEST_INTEGER)?;
    let count = head.get(1..).and_then(integer).map(|(count, _)| count);
    if count != Some(blocks) || !walk.step(blocks.saturating_mul(RECORD))? {
        return Ok(false);
    }
    let mut input = Input::new(SharedSource::clone(walk.source()), walk.position());
    let Ok(Ok(index)) = index::read(&mut input, walk.cancel(), |_| ()) else { return Ok(false) };
    walk.seek(input.position());
    let footer = walk.peek(STREAM_HEADER)?.first_chunk().and_then(|footer| stream_footer(footer).ok());
    Ok(index.flaw.is_none() && footer == Some((check, index.length)) && walk.skip(STREAM_HEADER as u64))
}

/// What the first bytes of an LZMA2 chunk say (§5.3.1): its length with its header, its decoded bytes, and whether it
/// is the end of them.
pub(super) fn chunk(head: &[u8]) -> Option<(u64, u64, bool)> {
    let number = |at: usize| Some(u64::from(u16::from_be_bytes([*head.get(at)?, *head.get(at + 1)?])) + 1);
    match *head.first()? {
        0 => Some((1, 0, true)),
        1 | 2 => number(1).map(|size| (3 + size, size, false)),
        control @ 0x80.. => {
            let (low, compressed) = number(1).zip(number(3))?;
            let properties = u64::from(control >= 0xC0);
            Some((5 + properties + compressed, low + (u64::from(control & 0x1F) << 16), false))
        }
        _ => None,
    }
}

/// The check of the stream whose header is `bytes` but for a byte of its magic: the rest has a CRC-32.
pub(super) fn check_behind_damaged_magic(bytes: &[u8]) -> Option<CheckId> {
    let mended = starts::mended(bytes.get(..STREAM_HEADER)?, &MAGIC)?;
    stream_header(mended.first_chunk()?).ok()
}
