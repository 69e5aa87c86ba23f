//! Counts the frames of a stream: headers of frames and blocks lead from one to the next.

use std::io;

use tarnfs_source::{Cancel, SharedSource};

use super::frame::{BLOCK_HEADER, CHECKSUM, FrameHeader, LONGEST_HEADER, Start};
use crate::outline::{Longest, MOST_PARTS, Outline, check_at, read};

/// Kinds of blocks (RFC 8878 §3.1.1.2.2): one byte that is repeated.
const REPEATED: u32 = 1;

/// Bytes that are read at once where blocks are small.
const WINDOW: usize = 4096;

/// Bytes of the stream that were read last: headers of small blocks lie near each other.
struct Ahead<'s> {
    source: &'s SharedSource,
    bytes: Vec<u8>,
    start: u64,
}

impl Ahead<'_> {
    /// Up to `length` bytes at `offset`; fewer at the end of the stream.
    fn at(&mut self, offset: u64, length: usize) -> io::Result<&[u8]> {
        let known = |this: &Self| -> Option<usize> {
            let from = usize::try_from(offset.checked_sub(this.start)?).ok()?;
            (from.checked_add(length)? <= this.bytes.len()).then_some(from)
        };
        let from = if let Some(from) = known(self) {
            from
        } else {
            let wanted = self.source.len().saturating_sub(offset).min(WINDOW as u64) as usize;
            self.bytes.resize(wanted, 0);
            self.start = offset;
            if !read(self.source, &mut self.bytes, offset)? {
                self.bytes.clear();
            }
            0
        };
        Ok(self.bytes.get(from..).map_or(&[][..], |rest| rest.get(..length).unwrap_or(rest)))
    }
}

/// What the frames of `source` say. `None` where the way through them is not clear.
pub(super) fn outline(source: &SharedSource, cancel: &Cancel) -> io::Result<Option<Outline>> {
    let mut ahead = Ahead { source, bytes: Vec::new(), start: 0 };
    let (mut at, mut frames, mut steps) = (0_u64, 0_u64, 0_u64);
    let (mut longest, mut history) = (Longest::new(), 0);
    let (mut checked, mut unchecked) = (0_u64, 0_u64);
    while at < source.len() {
        check_at(steps, cancel)?;
        steps += 1;
        if steps > MOST_PARTS {
            return Ok(None);
        }
        let header = match Start::parse(ahead.at(at, LONGEST_HEADER)?) {
            Start::Frame(header) => header,
            Start::Skippable(length) => {
                at = at.saturating_add(length);
                continue;
            }
            // What is no frame behind the last one is told when it is decoded.
            Start::Cut | Start::Reserved | Start::Other => break,
        };
        frames += 1;
        longest.add(header.content);
        history = history.max(header.window.min(header.content.unwrap_or(u64::MAX)));
        *(if header.checksum { &mut checked } else { &mut unchecked }) += 1;
        match end_of(&mut ahead, at, &header, &mut steps, cancel)? {
            Some(end) => at = end,
            None => return Ok(None),
        }
    }
    let check = match (checked, unchecked) {
        (1.., 0) => Some("XXH64"),
        (0, 1..) => Some("none"),
        _ => None,
    };
    let (longest, history) = (longest.get(), Some(history));
    let outline = Outline { part: "frame", parts: Some(frames), longest, history, dictionary: None, check };
    Ok((frames > 0).then_some(outline))
}

/// Where the frame at byte `at` ends.
fn end_of(
    ahead: &mut Ahead<'_>,
    at: u64,
    header: &FrameHeader,
    steps: &mut u64,
    cancel: &Cancel,
) -> io::Result<Option<u64>> {
    let mut at = at.saturating_add(header.length as u64);
    loop {
        check_at(*steps, cancel)?;
        *steps += 1;
        let block = ahead.at(at, BLOCK_HEADER)?;
        let Some([one, two, three]) = block.first_chunk().copied().filter(|_| *steps <= MOST_PARTS) else {
            return Ok(None);
        };
        let block = u32::from_le_bytes([one, two, three, 0]);
        let (is_last, kind, size) = (block & 1 != 0, block >> 1 & 3, block >> 3);
        let stored = if kind == REPEATED { 1 } else { u64::from(size) };
        at = at.saturating_add(BLOCK_HEADER as u64).saturating_add(stored);
        if is_last {
            return Ok(Some(at.saturating_add(if header.checksum { CHECKSUM as u64 } else { 0 })));
        }
    }
}
