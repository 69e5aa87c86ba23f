//! Where a file goes on in the next volume of an archive: the headers that stand there, GNU's own and those in pax.

use std::io;
use std::ops::Range;

use super::header::{BLOCK, Block, Check, Header, check};
use super::numbers::decimal;
use crate::Stream;

/// Bytes that all headers before the continuation of a file have together, at the most: a label, records, and the
/// file's own.
pub(super) const LONGEST: usize = 16 << 10;

/// True if such headers may begin with `block`.
pub(super) fn may_continue(block: &Block) -> bool {
    matches!(Header(block).typeflag(), b'M' | b'V' | b'g') && check(block) == Check::Header
}

/// A header at the start of a volume, and how many bytes of `head` it and those before it have.
struct Found<'h> {
    header: Header<'h>,
    /// Bytes that it says are behind it.
    stored: u64,
    /// Those of them that are there, up to `stored`.
    records: &'h [u8],
    passed: u64,
}

/// The headers that `head` begins with. What is behind a header is passed over, as it is where a header is about
/// another one; whoever comes to another header has to end there.
fn headers(head: &[u8]) -> impl Iterator<Item = Found<'_>> {
    let mut rest = Some(head);
    std::iter::from_fn(move || {
        let (block, behind) = rest.take()?.split_first_chunk::<BLOCK>()?;
        if check(block) != Check::Header {
            return None;
        }
        let header = Header(block);
        let stored = header.size()?;
        let length = usize::try_from(stored).unwrap_or(usize::MAX);
        rest = length.checked_next_multiple_of(BLOCK).and_then(|length| behind.get(length..));
        let records = behind.get(..length).unwrap_or(behind);
        Some(Found { header, stored, records, passed: head.len().saturating_sub(behind.len()) as u64 })
    })
}

/// The length of the headers at the start of `head`, if behind them goes on the file at `path`, which has `size` bytes
/// of which `at` came before. All that they say must fit: the bytes of a file may look like a header, too.
pub(super) fn continuation(head: &[u8], path: &[u8], at: u64, size: u64) -> Option<u64> {
    let mut announced = false;
    for Found { header, stored, records, passed } in headers(head) {
        match header.typeflag() {
            b'M' => {
                let name = header.path(header.dialect());
                let fits = header.continued_at(header.dialect())? == at && stored.checked_add(at)? == size;
                // A name that does not fit is cut.
                return (fits && !name.is_empty() && path.starts_with(&name)).then_some(passed);
            }
            b'V' | b'x' => {}
            b'g' => announced |= is_announced(records, path, at, size),
            b'0' if announced => return (stored.checked_add(at)? == size).then_some(passed),
            _ => return None,
        }
    }
    None
}

/// The length of the headers at the start of `head`, if they say that a file goes on at its byte 0. Where no content of
/// a file was stored yet, the volume before ended among its headers, and these go on here. Of what has no content
/// nothing is said, and only a label stands here: it counts if `waits`, that is, if headers came of which the rest is
/// missing.
pub(super) fn beginning(head: &[u8], waits: bool) -> Option<u64> {
    let (mut announced, mut label) = (None, None);
    for Found { header, stored, records, passed } in headers(head) {
        let behind = || passed.checked_add(stored.checked_next_multiple_of(BLOCK as u64)?);
        match header.typeflag() {
            b'M' => return (header.continued_at(header.dialect())? == 0).then_some(passed),
            b'g' if value(records, b"GNU.volume.offset").and_then(decimal) == Some(0) => {
                announced = value(records, b"GNU.volume.size").and_then(decimal);
            }
            // The label is the first of all. Another one is of what comes behind it.
            b'V' if label.is_none() => label = behind(),
            b'g' if label.is_none() && is_label(records) => label = behind(),
            b'V' | b'g' => {}
            b'x' if announced.is_some() => {}
            b'0' if announced == Some(stored) => return Some(passed),
            _ => break,
        }
    }
    label.filter(|_| waits && announced.is_none())
}

/// True if `head` begins with headers that say that a file goes on, or with a label: of what has no content only that
/// is said.
pub(super) fn is_later(head: &[u8]) -> bool {
    // Before them may stand what holds for all.
    let mut headers = headers(head).skip_while(|found| {
        let is_of_volume = || value(found.records, b"GNU.volume.filename").is_some() || is_label(found.records);
        found.header.typeflag() == b'g' && !is_of_volume()
    });
    headers.next().is_some_and(|found| matches!(found.header.typeflag(), b'M' | b'V' | b'g'))
}

/// True if these records are the label of a volume, and say nothing of a file that goes on.
fn is_label(records: &[u8]) -> bool {
    value(records, b"GNU.volume.label").is_some() && value(records, b"GNU.volume.filename").is_none()
}

/// What these records say of `key`.
fn value<'r>(records: &'r [u8], key: &[u8]) -> Option<&'r [u8]> {
    // Names in them have no new lines: GNU tar writes none, and such a file is then two parts as before.
    records.split(|&byte| byte == b'\n').find_map(|record| {
        let space = record.iter().position(|&byte| byte == b' ')?;
        record.get(space..)?.get(1..)?.strip_prefix(key)?.strip_prefix(b"=")
    })
}

/// True if these records say that `path` goes on at its byte `at`.
fn is_announced(records: &[u8], path: &[u8], at: u64, size: u64) -> bool {
    let value = |key: &[u8]| value(records, key);
    value(b"GNU.volume.filename") == Some(path)
        && value(b"GNU.volume.offset").and_then(decimal) == Some(at)
        && value(b"GNU.volume.size").and_then(decimal).and_then(|left| left.checked_add(at)) == Some(size)
}

/// The content of a file, from where a stream stands up to its end, or up to the first headers behind which it goes on.
pub(super) struct FirstPart<'s> {
    stream: &'s mut dyn Stream,
    path: &'s [u8],
    /// Byte of the stream at which the content begins, and its length.
    start: u64,
    size: u64,
    /// Byte of the content up to which there are no such headers; true if it ends there.
    clear: u64,
    ends: bool,
}

/// Blocks that are looked at together.
const STEP: usize = 128;

impl<'s> FirstPart<'s> {
    /// Of the file at `path`, which has `size` bytes; `stream` stands where its content begins.
    pub(super) fn new(stream: &'s mut dyn Stream, path: &'s [u8], size: u64) -> Self {
        Self { start: stream.position(), stream, path, size, clear: 0, ends: false }
    }

    /// Where in the content the stream stands.
    fn at(&self) -> u64 {
        self.stream.position().saturating_sub(self.start)
    }

    /// Looks for headers among the next `length` bytes, and returns how many of these there are.
    fn look(&mut self, length: usize) -> io::Result<usize> {
        let at = self.at();
        let wanted = at.saturating_add(length as u64).min(self.size);
        while self.clear < wanted && !self.ends {
            let passed = usize::try_from(self.clear.saturating_sub(at)).unwrap_or(usize::MAX);
            let bytes = self.stream.peek(passed.saturating_add(STEP.saturating_mul(BLOCK)).saturating_add(LONGEST))?;
            let bytes = bytes.get(passed..).unwrap_or_default();
            let (blocks, rest) = bytes.as_chunks::<BLOCK>();
            let within = self.size.saturating_sub(self.clear).div_ceil(BLOCK as u64).min(STEP as u64) as usize;
            let blocks = blocks.get(..within).unwrap_or(blocks);
            let mut found = blocks.iter().zip((0..).step_by(BLOCK)).filter(|(block, _)| may_continue(block));
            let found = found.find_map(|(_, from)| {
                let head = bytes.get(from..)?;
                let head = head.get(..LONGEST).unwrap_or(head);
                let there = self.clear.saturating_add(from as u64);
                continuation(head, self.path, there, self.size).map(|_| from)
            });
            let looked_at = blocks.len().saturating_mul(BLOCK);
            let is_last = blocks.is_empty();
            let clear = found.unwrap_or(if is_last { rest.len() } else { looked_at });
            self.clear = self.clear.saturating_add(clear as u64).min(self.size);
            self.ends = found.is_some() || is_last;
        }
        Ok(usize::try_from(self.clear.min(wanted).saturating_sub(at)).unwrap_or(usize::MAX).min(length))
    }
}

impl Stream for FirstPart<'_> {
    fn position(&self) -> u64 {
        self.stream.position()
    }

    fn peek(&mut self, length: usize) -> io::Result<&[u8]> {
        let length = self.look(length)?;
        self.stream.peek(length)
    }

    fn skip(&mut self, length: u64) -> io::Result<u64> {
        let mut skipped = 0_u64;
        while skipped < length {
            let step = length.saturating_sub(skipped).min(STEP.saturating_mul(BLOCK) as u64) as usize;
            let step = self.look(step)? as u64;
            let moved = self.stream.skip(step)?;
            skipped = skipped.saturating_add(moved);
            if moved == 0 {
                break;
            }
        }
        Ok(skipped)
    }

    fn may_have_shifted(&self, end: u64) -> bool {
        self.stream.may_have_shifted(end)
    }

    fn is_filled(&self, range: Range<u64>) -> bool {
        self.stream.is_filled(range)
    }
}
