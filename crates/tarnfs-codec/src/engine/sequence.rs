use std::ops::Range;

use crate::PIECE;

/// Recognises readers that go forward, and says how far to decode ahead of each.
#[derive(Debug, Default)]
pub(super) struct Sequences {
    /// The most recently active is last.
    readers: Vec<Reader>,
}

#[derive(Debug)]
struct Reader {
    /// Behind the last byte that it has read.
    next: u64,
    /// Bytes to decode ahead: 0 until it has gone from one piece to another.
    depth: u64,
    /// Up to here decoding ahead was asked for.
    asked: u64,
    /// Up to here it has no more use for what is in the cache.
    left: u64,
}

/// What follows from a read.
#[derive(Debug, Default)]
pub(super) struct Advice {
    /// It belongs to a reader that goes forward.
    pub(super) sequential: bool,
    /// What to decode ahead, most often nothing.
    pub(super) ahead: Range<u64>,
    /// What such a reader has left behind: it will hardly be read again soon, and if it is, the kernel has it.
    pub(super) behind: Range<u64>,
}

/// Readers told apart; more are taken for random ones.
const MOST_READERS: usize = 16;

/// How far from the expected offset a read still counts as the next one: the kernel's readahead sends several at
/// once, which arrive out of order, and whoever reads an archive's files in order leaps over headers and padding.
const SLACK: u64 = 2 * PIECE as u64;

/// A reader this far behind another may use what that one leaves.
const FOLLOWING: u64 = 64 << 20;

/// How far behind a reader pieces are kept, for reads that come late.
const KEPT_BEHIND: u64 = 4 << 20;

impl Sequences {
    /// Takes note of a read. `bound` is the most bytes to decode ahead for all readers together.
    pub(super) fn note(&mut self, read: &Range<u64>, bound: u64) -> Advice {
        let known = self.readers.iter().rposition(|reader| reader.next.abs_diff(read.start) <= SLACK);
        let Some(index) = known else {
            if self.readers.len() == MOST_READERS {
                self.readers.remove(0);
            }
            self.readers.push(Reader { next: read.end, depth: 0, asked: 0, left: read.start });
            return Advice::default();
        };
        let mut reader = self.readers.remove(index);
        let others = self.readers.iter().filter(|other| other.depth > 0).count() as u64;
        if read.end / PIECE as u64 > reader.next / PIECE as u64 {
            reader.depth = (reader.depth * 2).max(PIECE as u64);
        }
        reader.next = reader.next.max(read.end);
        let mut advice = Advice { sequential: reader.depth > 0, ..Advice::default() };
        // In steps, so that not each read makes a job of one piece.
        reader.depth = reader.depth.min((bound / (1 + others)).max(1));
        let ahead = reader.asked.max(reader.next)..reader.next + reader.depth;
        if bound > 0 && ahead.start < ahead.end && ahead.end - ahead.start >= reader.depth / 4 {
            reader.asked = ahead.end;
            advice.ahead = ahead;
        }
        let left = reader.next.saturating_sub(KEPT_BEHIND);
        if advice.sequential && left >= reader.left + PIECE as u64 {
            let follows = reader.left.saturating_sub(FOLLOWING)..left;
            if !self.readers.iter().any(|other| other.depth > 0 && follows.contains(&other.next)) {
                advice.behind = reader.left..left;
            }
            reader.left = left;
        }
        self.readers.push(reader);
        advice
    }

    /// What of a range asked for ahead is still ahead of its reader.
    pub(super) fn still_ahead(&self, range: Range<u64>) -> Range<u64> {
        let readers = self.readers.iter().filter(|reader| reader.next < range.end && range.start < reader.asked);
        let next = readers.map(|reader| reader.next).min().unwrap_or(range.end);
        range.start.max(next)..range.end
    }
}
