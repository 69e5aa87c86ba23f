//! Where decoding can start inside of data, found while they are decoded.
//!
//! A point needs the model, which is small, and of the history what later data refer to. Of these data, a dictionary's
//! length can do so. While they are decoded, the parts of the history that they refer to are marked; what is about to
//! leave the dictionary is collected if it is marked. Bytes behind the point are held back meanwhile, because a point
//! has to be known before them. A point that would take too much is given up.

use super::checkpoint::{Checkpoint, MOST};
use super::history::History;
use super::symbols::Watch;

/// Decoded bytes between two points at least, whatever is asked for. Shorter blocks need none.
const LEAST: u64 = if cfg!(test) { crate::PIECE as u64 } else { 1 << 20 };

/// States may take one part in this many of the compressed data.
const SHARE: u64 = if cfg!(test) { 1 } else { 20 };

/// Bytes that are marked together: the coarser, the faster, and the more is kept that nobody refers to.
const GRAIN: usize = 4;

/// How much less than what is collected a state may take: where even that were too much, it is not packed.
const BEST_RATIO: u64 = 16;

/// A place at which decoding can start.
pub(crate) struct LzmaPoint {
    /// Bytes of the compressed and of the decoded data before it.
    pub(crate) compressed: u64,
    pub(crate) decoded: u64,
    pub(crate) state: Vec<u8>,
}

/// Looks for points in one block or stream.
pub(super) struct Survey {
    /// Decoded bytes between two points.
    spacing: u64,
    marks: Marks,
    candidate: Option<Candidate>,
    /// Decoded bytes before the last point, or 0.
    last: u64,
    /// Bytes of all states so far, and what the next one may take.
    spent: u64,
    expected: u64,
    found: Vec<LzmaPoint>,
}

/// A point, of whose history it is not yet known what is needed.
struct Candidate {
    compressed: u64,
    decoded: u64,
    checkpoint: Checkpoint,
    /// The decoded byte up to which the history is collected.
    collected: u64,
}

/// Which parts of the ring are referred to.
pub(super) struct Marks {
    /// One bit a grain.
    bits: Vec<u64>,
    /// The ring index at which the point lies, as if the ring had no ends.
    start: usize,
}

impl Marks {
    fn mark(&mut self, start: usize, end: usize) {
        for grain in start / GRAIN..end.div_ceil(GRAIN) {
            if let Some(word) = self.bits.get_mut(grain / 64) {
                *word |= 1 << (grain % 64);
            }
        }
    }
}

impl Watch for Marks {
    #[inline]
    fn refer(&mut self, at: usize, distance: usize, length: usize, ring: usize) {
        let behind = at.wrapping_sub(self.start);
        if distance > behind {
            let length = length.min(distance - behind);
            let source = if at >= distance { at - distance } else { at.wrapping_add(ring).wrapping_sub(distance) };
            let end = source + length;
            self.mark(source, end.min(ring));
            if end > ring {
                self.mark(0, end - ring);
            }
        }
    }
}

impl Survey {
    pub(super) fn new(history: &History, spacing: u64) -> Self {
        let marks = Marks { bits: vec![0; history.ring.len().div_ceil(GRAIN * 64)], start: 0 };
        // The tests have little data.
        let spacing = if cfg!(test) { LEAST } else { spacing.max(LEAST) };
        Self { spacing, marks, candidate: None, last: 0, spent: 0, expected: 0, found: Vec::new() }
    }

    /// Should there be a point here, `compressed` bytes behind the start?
    pub(super) fn is_due(&self, history: &History, compressed: u64) -> bool {
        self.is_far(history)
            && self.candidate.is_none()
            && (compressed / SHARE).saturating_sub(self.spent) > self.expected
    }

    fn is_far(&self, history: &History) -> bool {
        history.produced - self.last >= self.spacing
    }

    /// Makes a point here, of which `checkpoint` has all but the history.
    pub(super) fn begin(&mut self, history: &History, compressed: u64, checkpoint: Checkpoint) {
        if history.reach > 0 {
            // The context of the first literal.
            let last = history.index(1);
            self.marks.mark(last, last + 1);
        }
        let decoded = history.produced;
        let collected = decoded - history.reach as u64;
        self.candidate = Some(Candidate { compressed, decoded, checkpoint, collected });
    }

    /// A point here that needs no history, with this `state`. The one before it gets none of what comes.
    pub(super) fn fresh(&mut self, history: &History, compressed: u64, state: &[u8]) {
        self.finish(history, compressed);
        if self.is_far(history) {
            self.last = history.produced;
            self.spent += state.len() as u64;
            self.found.push(LzmaPoint { compressed, decoded: history.produced, state: state.to_vec() });
        }
    }

    /// The first decoded byte that must not be delivered yet.
    pub(super) fn hold(&self) -> u64 {
        self.candidate.as_ref().map_or(u64::MAX, |candidate| candidate.decoded)
    }

    /// What watches the next step, where something is to be watched.
    pub(super) fn watch(&mut self, history: &History) -> Option<&mut Marks> {
        let candidate = self.candidate.as_ref()?;
        self.marks.start = history.position.wrapping_sub((history.produced - candidate.decoded) as usize);
        Some(&mut self.marks)
    }

    /// Collects what has left the dictionary. `compressed` bytes were read so far.
    pub(super) fn advance(&mut self, history: &History, compressed: u64) {
        let Some(candidate) = &mut self.candidate else { return };
        candidate.collect(&mut self.marks, history, history.produced.saturating_sub(history.dictionary as u64));
        if candidate.collected == candidate.decoded || candidate.checkpoint.bytes() > MOST {
            self.finish(history, compressed);
        }
    }

    /// Nothing more can refer to what lies before the candidate.
    pub(super) fn finish(&mut self, history: &History, compressed: u64) {
        let Some(mut candidate) = self.candidate.take() else { return };
        candidate.collect(&mut self.marks, history, candidate.decoded);
        let left = (compressed / SHARE).saturating_sub(self.spent);
        let bytes = candidate.checkpoint.bytes();
        self.expected = bytes as u64 / BEST_RATIO;
        if candidate.collected < candidate.decoded {
            self.marks.bits.fill(0);
            return;
        }
        if self.expected > left {
            return;
        }
        // A state that cannot be packed is none.
        let Some(state) = candidate.checkpoint.pack() else { return };
        self.expected = state.len() as u64;
        if self.expected <= left {
            self.spent += self.expected;
            self.last = candidate.decoded;
            let Candidate { compressed, decoded, .. } = candidate;
            self.found.push(LzmaPoint { compressed, decoded, state });
        }
    }

    /// Takes the points found.
    pub(super) fn take(&mut self) -> impl Iterator<Item = LzmaPoint> {
        self.found.drain(..)
    }

    pub(super) fn memory(&self) -> usize {
        self.marks.bits.len() * 8 + self.candidate.as_ref().map_or(0, |candidate| candidate.checkpoint.memory())
    }
}

impl Candidate {
    /// Collects the marked bytes of the history up to the decoded byte `until`.
    fn collect(&mut self, marks: &mut Marks, history: &History, until: u64) {
        let until = until.min(self.decoded);
        while self.collected < until && self.checkpoint.bytes() <= MOST {
            let left = (until - self.collected) as usize;
            let index = history.index((history.produced - self.collected) as usize);
            let (grain, word) = (index / GRAIN, &mut marks.bits[index / GRAIN / 64]);
            let count = if *word == 0 { 64 * GRAIN - index % (64 * GRAIN) } else { GRAIN - index % GRAIN };
            let count = count.min(left).min(history.ring.len() - index);
            if *word & 1 << (grain % 64) != 0 {
                // What lies behind `until` has the same mark.
                if index % GRAIN + count == GRAIN {
                    *word &= !(1 << (grain % 64));
                }
                self.checkpoint.keep(&history.ring[index..index + count]);
            } else {
                self.checkpoint.skip(count);
            }
            self.collected += count as u64;
        }
        if self.collected == self.decoded {
            // A grain may hold bytes of both sides.
            marks.bits[history.index((history.produced - self.decoded) as usize) / GRAIN / 64] = 0;
        }
    }
}
