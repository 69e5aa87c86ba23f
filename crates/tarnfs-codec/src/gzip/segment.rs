//! Blocks that are decoded before their turn, when what is before them may not be known yet.

use std::borrow::Cow;
use std::io;

use tarnfs_source::{Cancel, SharedSource};

use super::inflate::{Inflate, LEAST_INPUT, Place, Stop, WINDOW};
use super::input::Input;
use super::{unknown, window};

/// Decoded bytes between two looks at whether they are still wanted.
const STRIDE: usize = 128 << 10;

/// More boundaries are not kept: there may be millions of empty blocks.
const MOST_BOUNDARIES: usize = 64 << 10;

/// Blocks one behind the other, decoded.
pub(super) struct Segment {
    /// Bit of the compressed stream at which its first block begins.
    pub(super) start: u64,
    /// Bit behind its last block.
    pub(super) end: u64,
    /// The last block is the final one of its member.
    pub(super) is_final: bool,
    /// Where one block ends and another begins, in order, but for its start: the decoded bytes before it, and its bit. Of several with as many
    /// bytes before them the first.
    boundaries: Vec<(usize, u64)>,
    first: Output,
    /// What the first of these bytes are over the second made-up history.
    second: Output,
}

/// Decoded bytes, in memory that is used again and again: fresh memory costs as much as decoding to it.
#[derive(Default)]
pub(super) struct Output {
    /// As many as were ever needed.
    bytes: Vec<u8>,
    length: usize,
}

/// What is known of the history before a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum History {
    Unknown,
    /// There is none: a member begins.
    None,
}

/// Where a segment ends, at the first block boundary behind any of these.
pub(super) struct Bounds<'a> {
    /// Bit of the compressed stream.
    pub(super) until: u64,
    /// Decoded bytes. With as many again in one block, the segment ends before that block.
    pub(super) most: usize,
    /// Somebody wants to go on from here.
    pub(super) enough: &'a Cancel,
    /// Nobody wants it any more: there will be no segment.
    pub(super) abandon: &'a Cancel,
}

impl Segment {
    /// Decodes from bit `start` on; `None` if there are no whole blocks there.
    pub(super) fn decode(
        source: &SharedSource,
        start: u64,
        history: History,
        bounds: &Bounds<'_>,
        [mut first, mut second]: [Output; 2],
    ) -> io::Result<Option<Self>> {
        let mut inflate = Inflate::new();
        let byte = window::start_at(&mut inflate, &**source, start)?;
        let mut input = Input::new(SharedSource::clone(source), byte, bounds.abandon.clone());
        let mut other = None;
        if history == History::Unknown {
            let [first, second] = unknown::histories(WINDOW);
            inflate.set_window(&first);
            let mut inflate = Inflate::new();
            window::start_at(&mut inflate, &**source, start)?;
            inflate.set_window(&second);
            other = Some(inflate);
        }
        (first.length, second.length) = (0, 0);
        let mut segment = Self { start, end: start, is_final: false, boundaries: Vec::new(), first, second };
        loop {
            let data = input.fill_to(LEAST_INPUT)?;
            let step = segment.first.step(&mut inflate, data);
            if let Some(inflate) = &mut other
                && segment.second.step(inflate, data) != step
            {
                return Ok(None);
            }
            input.consume(step.0);
            match step {
                (.., Place::Invalid(_)) | (0, 0, Place::Inside) => return Ok(None),
                (.., Place::Inside) if segment.first.length < bounds.most.saturating_mul(2) => {}
                (.., Place::Inside) => return Ok(segment.cut()),
                (.., Place::End) => {
                    segment.end = input.position() * 8;
                    segment.is_final = true;
                    return Ok(Some(segment));
                }
                (.., Place::Boundary { spare_bits }) => {
                    segment.end = input.position() * 8 - u64::from(spare_bits);
                    let before = segment.first.length;
                    if segment.boundaries.last().map_or(0, |last| last.0) < before || segment.boundaries.is_empty() {
                        segment.boundaries.push((before, segment.end));
                    }
                    if segment.end >= bounds.until
                        || before >= bounds.most
                        || segment.boundaries.len() >= MOST_BOUNDARIES
                        || bounds.enough.is_cancelled()
                    {
                        return Ok(Some(segment));
                    }
                }
            }
            if other.is_some() && segment.first.tail().is_some_and(|bytes| Some(bytes) == segment.second.tail()) {
                other = None;
            }
        }
    }

    /// Ends it at its last boundary.
    fn cut(mut self) -> Option<Self> {
        let &(before, end) = self.boundaries.last()?;
        self.first.length = before;
        self.second.length = self.second.length.min(before);
        self.end = end;
        Some(self)
    }

    /// Puts bytes from the `history` before it in their place. False if they came from before its start: then this is not the data that goes on
    /// there.
    pub(super) fn settle(&mut self, history: &[u8]) -> bool {
        let second = &self.second.bytes[..std::mem::take(&mut self.second.length)];
        let mut whole = vec![0; WINDOW - history.len().min(WINDOW)];
        whole.extend_from_slice(&history[history.len().saturating_sub(WINDOW)..]);
        unknown::resolve(&mut self.first.bytes[..second.len()], second, &whole, history.len())
    }

    /// The decoded bytes, once settled.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.first.bytes[..self.first.length]
    }

    /// The boundary of this number.
    pub(super) fn boundary(&self, number: usize) -> Option<(usize, u64)> {
        self.boundaries.get(number).copied()
    }

    /// The history behind so many of its bytes, where `history` is that before it.
    pub(super) fn window<'a>(&'a self, behind: usize, history: &[u8]) -> Cow<'a, [u8]> {
        if let Some(start) = behind.checked_sub(WINDOW) {
            return Cow::Borrowed(&self.bytes()[start..behind]);
        }
        let from = (history.len() + behind).saturating_sub(WINDOW);
        Cow::Owned([&history[from.min(history.len())..], &self.bytes()[..behind]].concat())
    }

    /// Its memory, for another one.
    pub(super) fn into_outputs(self) -> [Output; 2] {
        [self.first, self.second]
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.first.bytes.capacity()
            + self.second.bytes.capacity()
            + self.boundaries.capacity() * size_of::<(usize, u64)>()
    }
}

impl Output {
    /// Goes on by one step, to the next boundary at most: bytes read, bytes written, and where it stands.
    fn step(&mut self, inflate: &mut Inflate, input: &[u8]) -> (usize, usize, Place) {
        if self.bytes.len() < self.length + STRIDE {
            self.bytes.resize(self.length + STRIDE, 0);
        }
        let step = inflate.step(input, &mut self.bytes[self.length..][..STRIDE], Stop::AtBlock);
        self.length += step.written;
        (step.read, step.written, step.place)
    }

    /// The last bytes, as many as data behind them can refer to.
    fn tail(&self) -> Option<&[u8; WINDOW]> {
        self.bytes[..self.length].last_chunk()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tarnfs_source::MemorySource;

    use super::*;
    use crate::gzip::codes::Codes;
    use crate::gzip::search::{self, Candidate};
    use crate::gzip::tests::{filter, mixture};

    #[test]
    fn blocks_in_the_middle_are_found_and_decoded_as_if_from_the_start() {
        let expected = mixture(3 << 20);
        for level in ["-1", "-6", "-9"] {
            let compressed = filter("gzip", &["-nc", level], &expected).unwrap();
            let source: SharedSource = Arc::new(MemorySource::new(&compressed[..], "test"));
            let never = Cancel::default();
            let (mut found, mut tried, mut codes) = (0, 0, Codes::new());
            for byte in (1000..compressed.len()).step_by(compressed.len() / 10) {
                let Some(Candidate::Block(start)) = search::next(&compressed, byte * 8, compressed.len(), &mut codes)
                else {
                    continue;
                };
                tried += 1;
                let bounds = Bounds { until: u64::MAX, most: usize::MAX, enough: &never, abandon: &never };
                let outputs = <[Output; 2]>::default();
                let segment = Segment::decode(&source, start as u64, History::Unknown, &bounds, outputs).unwrap();
                let Some(mut segment) = segment else { continue };
                assert!(segment.is_final);
                let before = expected.len() - segment.bytes().len();
                assert!(segment.settle(&expected[before - WINDOW.min(before)..before]));
                assert!(segment.bytes() == &expected[before..]);
                let (behind, bit) = segment.boundary(segment.boundaries.len() / 2).unwrap();
                let until = Bounds { until: bit, ..bounds };
                let outputs = segment.into_outputs();
                let part = Segment::decode(&source, start as u64, History::Unknown, &until, outputs).unwrap().unwrap();
                assert_eq!((part.end, part.bytes().len(), part.is_final), (bit, behind, false));
                found += 1;
            }
            assert!(found > tried / 2, "level {level}: {found} found of {tried} tried");
        }
    }
}
