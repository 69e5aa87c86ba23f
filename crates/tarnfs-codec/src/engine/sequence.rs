use std::ops::Range;

use crate::PIECE;

/// Recognises readers that go forward, and says how far to decode ahead of each.
#[derive(Debug, Default)]
pub(super) struct Sequences {
    /// The most recently active is last.
    readers: Vec<Reader>,
    /// Bytes read so far, by all.
    total: u64,
}

#[derive(Debug)]
struct Reader {
    /// Behind the last byte that it has read.
    next: u64,
    /// End of the file that it is in.
    end: u64,
    /// It has gone on from one file into another.
    crossed: bool,
    /// Bytes to decode ahead: 0 until it has gone from one piece to another.
    depth: u64,
    /// Up to here decoding ahead was asked for.
    asked: u64,
    /// Up to here it has no more use for what is in the cache.
    left: u64,
    /// What all had read when it read last.
    seen: u64,
    /// Length of its last read.
    length: u64,
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

/// The same in the file of a reader that is known to go forward: its readahead is 8 MiB and more, answered by several
/// threads. That is so many reads: of smaller ones, which come that far apart, none follows from the other.
const SLACK_IN_SEQUENCE: u64 = 16 << 20;
const READS_OUT_OF_ORDER: u64 = 32;

/// A reader this far behind another may use what that one leaves.
const FOLLOWING: u64 = 64 << 20;

/// A reader that let others read this much has most likely come to the end of its file.
const FINISHED: u64 = 16 << 20;

/// How far behind a reader pieces are kept, for reads that come late.
const KEPT_BEHIND: u64 = 4 << 20;

impl Sequences {
    /// Takes note of a read. `end` is that of the file in which it lies, `bound` the most bytes to decode ahead for
    /// all readers together.
    pub(super) fn note(&mut self, read: &Range<u64>, end: u64, bound: u64) -> Advice {
        self.total = self.total.saturating_add(read.end - read.start);
        let total = self.total;
        let length = read.end - read.start;
        let known = self.readers.iter().rposition(|reader| {
            let in_sequence = reader.depth > 0 && reader.end == end;
            let slack = if in_sequence { length.max(reader.length).saturating_mul(READS_OUT_OF_ORDER) } else { 0 };
            let slack = slack.clamp(SLACK, SLACK_IN_SEQUENCE);
            reader.next.abs_diff(read.start) <= slack
        });
        let Some(index) = known else {
            if self.readers.len() == MOST_READERS {
                self.readers.remove(0);
            }
            self.readers.push(Reader {
                next: read.end,
                end,
                crossed: false,
                depth: 0,
                asked: 0,
                left: read.start,
                seen: total,
                length,
            });
            return Advice::default();
        };
        let mut reader = self.readers.remove(index);
        let active = |other: &&Reader| other.depth > 0 && total - other.seen <= FINISHED;
        let others = self.readers.iter().filter(active).count() as u64;
        if read.end / PIECE as u64 > reader.next / PIECE as u64 {
            reader.depth = (reader.depth * 2).max(4 * (read.end - read.start)).max(PIECE as u64);
        }
        reader.next = reader.next.max(read.end);
        reader.length = length;
        reader.crossed |= reader.end != end;
        reader.end = end;
        reader.seen = total;
        let mut advice = Advice { sequential: reader.depth > 0, ..Advice::default() };
        // In steps, so that not each read makes a job of one piece.
        reader.depth = reader.depth.min((bound / (1 + others)).max(1));
        let most = if reader.crossed { u64::MAX } else { end };
        let ahead = reader.asked.max(reader.next)..(reader.next + reader.depth).min(most);
        let least = if ahead.end == most { 1 } else { (reader.depth / 4).max(1) };
        if bound > 0 && ahead.end.saturating_sub(ahead.start) >= least {
            reader.asked = ahead.end;
            advice.ahead = ahead;
        }
        let left = reader.next.saturating_sub(KEPT_BEHIND);
        if advice.sequential && left >= reader.left + PIECE as u64 {
            let follows = reader.left.saturating_sub(FOLLOWING)..left;
            if !self.readers.iter().filter(active).any(|other| follows.contains(&other.next)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const END: u64 = 20 * MIB;
    const PAGE: u64 = 4096;

    fn note(sequences: &mut Sequences, start: u64, length: u64) -> bool {
        sequences.note(&(start..start + length), END, 0).sequential
    }

    #[test]
    fn random_reads_in_a_file_that_somebody_has_begun_to_read_are_random() {
        let mut sequences = Sequences::default();
        for step in 0..16 {
            note(&mut sequences, step * 64 * 1024, 64 * 1024);
        }
        let mut random = 1_u64;
        let mut somewhere = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % (END / PAGE) * PAGE
        };
        let sequential = (0..2000).filter(|_| note(&mut sequences, somewhere(), PAGE)).count();
        // Some come to lie behind each other.
        assert!(sequential < 800, "{sequential}");
    }

    #[test]
    fn reads_of_a_readahead_come_in_any_order() {
        const READ: u64 = 256 * 1024;
        let mut sequences = Sequences::default();
        note(&mut sequences, 0, READ);
        assert!(note(&mut sequences, READ, READ));
        // Windows of 8 MiB, each from its end.
        for window in 0..2 {
            for read in (0..8 * MIB / READ).rev() {
                assert!(note(&mut sequences, 2 * READ + window * 8 * MIB + read * READ, READ));
            }
        }
    }
}
