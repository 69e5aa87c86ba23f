//! Blocks that are decoded before their turn, when what is before them may not be known yet.

use std::borrow::Cow;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use tarnfs_source::{Cancel, SharedSource};

use super::inflate::{Inflate, InflateState, LEAST_INPUT, Stop, WINDOW};
use super::input::Input;
use super::{unknown, window};

/// Decoded bytes between two looks at whether they are still wanted.
const STRIDE: usize = 128 << 10;

/// More boundaries are not kept: there may be millions of empty blocks.
const MOST_BOUNDARIES: usize = 64 << 10;

/// What lies before invalid data is kept if it is so much, in so many blocks: else it is as quickly decoded again.
const LEAST_BEFORE_FAULT: usize = STRIDE;
const LEAST_BOUNDARIES: usize = 4;

/// Blocks one behind the other, decoded.
pub(super) struct Segment {
    /// Bit of the compressed stream at which its first block begins.
    pub(super) start: u64,
    /// Bit behind its last block.
    pub(super) end: u64,
    /// The last block is the final one of its member.
    pub(super) is_final: bool,
    /// Where one block ends and another begins, in order, but for its start: the decoded bytes before it, and its bit.
    /// Of several with as many bytes before them the first.
    boundaries: Vec<(usize, u64)>,
    /// The decoded bytes, and what the first of them are over the second made-up history.
    outputs: [Output; 2],
}

/// How a part of a segment ended.
enum Part {
    /// With the segment.
    Whole,
    /// There are no blocks like that.
    Invalid,
    /// What follows is the same over both histories.
    Alike,
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
    /// Decoded bytes.
    pub(super) most: usize,
    /// Bytes of both outputs together, with which it ends also in the middle of a block: before that block.
    pub(super) room: usize,
    /// Is told the memory of both outputs as they grow.
    pub(super) held: &'a AtomicUsize,
    /// Somebody wants to go on from here.
    pub(super) enough: &'a Cancel,
    /// Nobody wants it any more: there will be no segment.
    pub(super) abandon: &'a Cancel,
}

impl Segment {
    /// Decodes from bit `start` on. If there are no whole blocks there, the outputs come back, with what was decoded.
    pub(super) fn decode(
        source: &SharedSource,
        start: u64,
        history: History,
        bounds: &Bounds<'_>,
        mut outputs: [Output; 2],
    ) -> io::Result<Result<Self, [Output; 2]>> {
        for output in &mut outputs {
            output.length = 0;
        }
        let mut segment = Self { start, end: start, is_final: false, boundaries: Vec::new(), outputs };
        let input = |byte| Input::new(SharedSource::clone(source), byte, bounds.abandon.clone());
        let part = if history == History::Unknown {
            let mut inflate = Inflate::<2>::new();
            let mut input = input(window::start_at(&mut inflate, &**source, start)?);
            inflate.set_windows(unknown::histories(WINDOW).each_ref().map(|history| &history[..]));
            match segment.part(&mut inflate, &mut input, bounds)? {
                Part::Alike => segment.part(&mut inflate.into_first(), &mut input, bounds)?,
                part => part,
            }
        } else {
            let mut inflate = Inflate::<1>::new();
            let mut input = input(window::start_at(&mut inflate, &**source, start)?);
            segment.part(&mut inflate, &mut input, bounds)?
        };
        Ok(if matches!(part, Part::Invalid) { Err(segment.outputs) } else { Ok(segment) })
    }

    /// Goes on to the end of the segment, or to where both outputs are alike if it decodes to two.
    fn part<const N: usize>(
        &mut self,
        inflate: &mut Inflate<N>,
        input: &mut Input,
        bounds: &Bounds<'_>,
    ) -> io::Result<Part> {
        loop {
            // What is in the input already may become a thousand times as much.
            bounds.abandon.check()?;
            let data = input.fill_to(LEAST_INPUT)?;
            self.make_room(N, bounds.room);
            let Some(outputs) = self.outputs.first_chunk_mut() else { return Ok(Part::Invalid) };
            let decoded = outputs[0].length;
            let step = inflate.step(data, outputs.each_mut().map(Output::with_room), decoded, Stop::AtBlock);
            for output in outputs {
                output.length += step.written;
            }
            let decoded = self.outputs[0].length;
            input.consume(step.read);
            bounds.held.store(touched(&self.outputs), Ordering::Relaxed);
            match step.place {
                InflateState::Invalid(_) => return Ok(self.cut_before_fault()),
                InflateState::Inside if step.read + step.written == 0 => return Ok(self.cut_before_fault()),
                InflateState::Inside if self.outputs.iter().map(Output::length).sum::<usize>() < bounds.room => {}
                InflateState::Inside => return Ok(self.cut()),
                InflateState::End => {
                    self.end = input.position() * 8;
                    self.is_final = true;
                    return Ok(Part::Whole);
                }
                InflateState::Boundary { spare_bits } => {
                    self.end = input.position() * 8 - u64::from(spare_bits);
                    if self.boundaries.last().map_or(0, |last| last.0) < decoded || self.boundaries.is_empty() {
                        self.boundaries.push((decoded, self.end));
                    }
                    if self.end >= bounds.until
                        || decoded >= bounds.most
                        || self.boundaries.len() >= MOST_BOUNDARIES
                        || bounds.enough.is_cancelled()
                    {
                        return Ok(Part::Whole);
                    }
                }
            }
            let [first, second] = self.outputs.each_ref().map(Output::tail);
            if N == 2 && first.is_some() && first == second {
                return Ok(Part::Alike);
            }
        }
    }

    /// Before a step of so many outputs: where they need more memory, what another segment has needed of it, and this
    /// one does not, is given back. Else one that was long and one that was double would leave both.
    fn make_room(&mut self, decoding: usize, room: usize) {
        let needed = self.outputs[0].length + STRIDE;
        let is_growing = self.outputs.iter().take(decoding).any(|output| output.bytes.len() < needed);
        if is_growing && touched(&self.outputs).saturating_add(STRIDE) > room {
            for (number, output) in self.outputs.iter_mut().enumerate() {
                output.shrink(if number < decoding { needed } else { output.length });
            }
        }
    }

    /// Ends it at its last boundary.
    fn cut(&mut self) -> Part {
        let Some(&(before, end)) = self.boundaries.last() else { return Part::Invalid };
        for output in &mut self.outputs {
            output.length = output.length.min(before);
        }
        self.end = end;
        Part::Whole
    }

    /// The same where something is wrong behind that, or the end. What is no block may still decode to one or two.
    fn cut_before_fault(&mut self) -> Part {
        let is_short = self.boundaries.last().is_none_or(|&(before, _)| before < LEAST_BEFORE_FAULT);
        if is_short || self.boundaries.len() < LEAST_BOUNDARIES { Part::Invalid } else { self.cut() }
    }

    /// Puts bytes from the `history` before it in their place. False if they came from before its start: then this is
    /// not the data that goes on there.
    pub(super) fn settle(&mut self, history: &[u8]) -> bool {
        let [first, second] = &mut self.outputs;
        let second = &second.bytes[..std::mem::take(&mut second.length)];
        if second.is_empty() {
            // A member begins with it, as all do in bgzf.
            return true;
        }
        let mut whole = vec![0; WINDOW - history.len().min(WINDOW)];
        whole.extend_from_slice(&history[history.len().saturating_sub(WINDOW)..]);
        unknown::resolve(&mut first.bytes[..second.len()], second, &whole, history.len())
    }

    /// The decoded bytes, once settled.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.outputs[0].bytes[..self.outputs[0].length]
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

    /// Keeps no more memory than its bytes take.
    pub(super) fn trim(&mut self) {
        for output in &mut self.outputs {
            output.shrink(output.length);
        }
    }

    /// Its memory, for another one.
    pub(super) fn into_outputs(self) -> [Output; 2] {
        self.outputs
    }

    /// Where it is short: keeps no more memory than its bytes take, and returns what it was decoded in.
    pub(super) fn shrink(&mut self) -> Option<[Output; 2]> {
        let is_short = self.outputs[0].length < STRIDE && self.outputs[1].length == 0;
        is_short.then(|| {
            self.boundaries.shrink_to_fit();
            let bytes = self.bytes().to_vec();
            let length = bytes.len();
            std::mem::replace(&mut self.outputs, [Output { bytes, length }, Output::default()])
        })
    }

    /// How much it counts where many are kept: its bytes and boundaries.
    pub(super) fn weight(&self) -> usize {
        self.bytes().len() + self.boundaries.capacity() * size_of::<(usize, u64)>()
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.outputs.iter().map(|output| output.bytes.capacity()).sum::<usize>()
            + self.boundaries.capacity() * size_of::<(usize, u64)>()
    }
}

/// Bytes of memory that were ever needed: what there is beside them was never touched.
pub(super) fn touched(outputs: &[Output; 2]) -> usize {
    outputs.iter().map(|output| output.bytes.len()).sum()
}

impl Output {
    /// How many bytes there are.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Gives back memory of which no byte was needed, but for the first `most` bytes.
    fn shrink(&mut self, most: usize) {
        if self.bytes.len() > most {
            self.bytes.truncate(most);
            self.bytes.shrink_to_fit();
        }
    }

    /// The bytes, and room for one step.
    fn with_room(&mut self) -> &mut [u8] {
        let length = self.length + STRIDE;
        if self.bytes.len() < length {
            self.bytes.resize(length, 0);
        }
        &mut self.bytes[..length]
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
    use crate::testing::{CancelledBehind, noise};

    fn unbounded<'a>(never: &'a Cancel, held: &'a AtomicUsize) -> Bounds<'a> {
        Bounds { until: u64::MAX, most: usize::MAX, room: usize::MAX, held, enough: never, abandon: never }
    }

    #[test]
    fn a_segment_has_no_more_than_its_room_however_long_its_blocks_are() {
        const MOST: usize = 1 << 20;
        const ROOM: usize = 2 * MOST;
        // Matches at a distance of 32 000 only: what is not known of the history never gets known, and a block is of
        // some 16 000 matches of 258 bytes, or twice as many.
        let data = noise(32_000).repeat(500);
        let compressed = filter("gzip", &["-nc"], &data).unwrap();
        let source: SharedSource = Arc::new(MemorySource::new(&compressed[..], "test"));
        let (never, held) = (Cancel::default(), AtomicUsize::default());
        let decode = |start, history, outputs| {
            let bounds = Bounds { most: MOST, room: ROOM, ..unbounded(&never, &held) };
            Segment::decode(&source, start, history, &bounds, outputs).unwrap()
        };
        let whole = Segment::decode(&source, 80, History::None, &unbounded(&never, &held), Default::default());
        let Ok(whole) = whole.unwrap() else { panic!("it is valid") };
        assert!(whole.bytes() == data);
        let long = whole.boundaries.windows(2).find(|pair| pair[1].0 - pair[0].0 > 2 * ROOM).expect("a long block")[0];
        // From the start on one output has all the room: it ends before the long block.
        let Ok(first) = decode(80, History::None, Default::default()) else { panic!("it has blocks") };
        assert!(first.bytes() == &data[..first.bytes().len()] && first.bytes().len() < ROOM);
        let outputs = first.into_outputs();
        assert!((ROOM..=ROOM + 2 * STRIDE).contains(&touched(&outputs)), "{}", touched(&outputs));
        // Two that are not alike share it, also in memory that was used like that.
        for outputs in [outputs, Default::default()] {
            let Err(outputs) = decode(long.1, History::Unknown, outputs) else { panic!("one block is no segment") };
            assert!(outputs.iter().all(|output| output.length() <= MOST + STRIDE));
            assert!(touched(&outputs) <= ROOM + 4 * STRIDE, "{}", touched(&outputs));
            assert_eq!(held.load(Ordering::Relaxed), touched(&outputs));
            // And then one again.
            let Ok(again) = decode(80, History::None, outputs) else { panic!("it has blocks") };
            assert!(touched(&again.outputs) <= ROOM + 4 * STRIDE, "{}", touched(&again.outputs));
        }
    }

    #[test]
    fn what_nobody_wants_any_more_ends_before_the_input_does() {
        let compressed = filter("gzip", &["-nc"], &vec![0; 8 << 20]).unwrap();
        for (behind, is_wanted) in [(u64::MAX, true), (0, false)] {
            let (never, abandon, held) = (Cancel::default(), Cancel::default(), AtomicUsize::default());
            // Nobody wants it from the first read on, which is of all that there is.
            let memory = Arc::new(MemorySource::new(&compressed[..], "test"));
            let source: SharedSource = Arc::new(CancelledBehind(memory, behind, abandon.clone()));
            let bounds = Bounds { abandon: &abandon, ..unbounded(&never, &held) };
            // A header without a name has ten bytes.
            let decoded = Segment::decode(&source, 80, History::None, &bounds, Default::default());
            let length = decoded.ok().map(|segment| segment.ok().map_or(0, |segment| segment.bytes().len()));
            assert_eq!(length, is_wanted.then_some(8 << 20));
        }
    }

    #[test]
    fn blocks_in_the_middle_are_found_and_decoded_as_if_from_the_start() {
        let expected = mixture(3 << 20);
        for level in ["-1", "-6", "-9"] {
            let compressed = filter("gzip", &["-nc", level], &expected).unwrap();
            let source: SharedSource = Arc::new(MemorySource::new(&compressed[..], "test"));
            let (never, held) = (Cancel::default(), AtomicUsize::default());
            let (mut found, mut tried, mut codes) = (0, 0, Codes::new());
            for byte in (1000..compressed.len()).step_by(compressed.len() / 10) {
                let Some(Candidate::Block(start)) =
                    search::next(&compressed, byte * 8, compressed.len(), &mut codes, &never)
                else {
                    continue;
                };
                tried += 1;
                let bounds = unbounded(&never, &held);
                let outputs = <[Output; 2]>::default();
                let segment = Segment::decode(&source, start as u64, History::Unknown, &bounds, outputs).unwrap();
                let Ok(mut segment) = segment else { continue };
                assert!(segment.is_final);
                let before = expected.len() - segment.bytes().len();
                assert!(segment.settle(&expected[before - WINDOW.min(before)..before]));
                assert!(segment.bytes() == &expected[before..]);
                let (behind, bit) = segment.boundary(segment.boundaries.len() / 2).unwrap();
                let until = Bounds { until: bit, ..bounds };
                let outputs = segment.into_outputs();
                let part = Segment::decode(&source, start as u64, History::Unknown, &until, outputs).unwrap();
                let Ok(part) = part else { panic!("it was decoded before") };
                assert_eq!((part.end, part.bytes().len(), part.is_final), (bit, behind, false));
                found += 1;
            }
            assert!(found > tried / 2, "level {level}: {found} found of {tried} tried");
        }
    }
}
