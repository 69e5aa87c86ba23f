//! What is known to be damaged of the streams of an archive.

use std::collections::BTreeMap;
use std::ops::Range;

use super::MOST_NOTES;

/// Ranges of bytes of streams. No two of one stream overlap, but for the one that may go up to the end of it: where
/// that is, is not known.
#[derive(Debug, Default)]
pub(super) struct DamagedRanges {
    /// Of each the stream and where it ends, and from where on it goes.
    ranges: BTreeMap<(u32, u64), u64>,
}

impl DamagedRanges {
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Adds `range` of `stream`, which becomes one with those that it overlaps. Where there are as many as notes, the
    /// last one of a stream goes up to its end.
    pub(super) fn add(&mut self, stream: u32, range: Range<u64>) {
        let Range { start: mut from, end: mut to } = range;
        if from >= to {
            return;
        }
        if to == u64::MAX || self.ranges.len() >= MOST_NOTES {
            return self.add_rest(stream, from);
        }
        let overlapping = |ranges: &BTreeMap<(u32, u64), u64>, from: u64, to: u64| {
            let (&key, &start) = ranges.range((stream, from.saturating_add(1))..(stream, u64::MAX)).next()?;
            (start < to).then_some((key, start))
        };
        while let Some((key, start)) = overlapping(&self.ranges, from, to) {
            self.ranges.remove(&key);
            (from, to) = (from.min(start), to.max(key.1));
        }
        self.ranges.insert((stream, to), from);
    }

    /// All of `stream` from byte `from` on is damaged.
    pub(super) fn add_rest(&mut self, stream: u32, from: u64) {
        let known = self.ranges.entry((stream, u64::MAX)).or_insert(from);
        *known = from.min(*known);
    }

    /// Those of `stream` that overlap `range`, from where to where.
    pub(super) fn inside(&self, stream: u32, range: Range<u64>) -> impl Iterator<Item = (u64, u64)> + use<'_> {
        let finite = self.ranges.range((stream, range.start.saturating_add(1))..(stream, u64::MAX));
        let finite = finite.map(|(&(_, to), &from)| (from, to)).take_while(move |(from, _)| *from < range.end);
        let rest = self.ranges.get(&(stream, u64::MAX)).map(|&from| (from, u64::MAX));
        finite.chain(rest.filter(|(from, _)| *from < range.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_becomes_one() {
        let mut ranges = DamagedRanges::default();
        for (from, to) in [(10, 20), (30, 40), (50, 60), (20, 25), (100, 200), (110, 120), (90, 150), (35, 55)] {
            ranges.add(1, from..to);
        }
        ranges.add(1, 25..25);
        let inside = |ranges: &DamagedRanges, range| ranges.inside(1, range).collect::<Vec<_>>();
        assert_eq!(inside(&ranges, 0..1000), [(10, 20), (20, 25), (30, 60), (90, 200)]);
        assert_eq!(inside(&ranges, 24..31), [(20, 25), (30, 60)]);
        assert_eq!(inside(&ranges, 60..90), []);
        assert!(ranges.inside(0, 0..1000).chain(ranges.inside(2, 0..1000)).next().is_none());
        ranges.add(1, 500..u64::MAX);
        ranges.add_rest(1, 400);
        assert_eq!(inside(&ranges, 150..401), [(90, 200), (400, u64::MAX)]);
        assert_eq!(inside(&ranges, 200..400), []);
    }

    /// However many small ones lie in a large one, that is found.
    #[test]
    fn a_large_one_is_found_behind_many_small_ones() {
        let mut ranges = DamagedRanges::default();
        for at in 0..1000 {
            ranges.add(0, 100 * at..100 * at + 1);
        }
        ranges.add(0, 50..1 << 20);
        assert_eq!(ranges.inside(0, 60..70).collect::<Vec<_>>(), [(50, 1 << 20)]);
        assert_eq!(ranges.len(), 2);
    }
}
