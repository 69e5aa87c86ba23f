//! Parts of a block that fail a check of their own, while the block goes on: members of a solid archive, each with a
//! checksum that only its decoder compares.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::Damage;
use crate::sync::Mutex;

use super::lock;

/// So many are kept: each takes some hundred bytes, in no budget, and hundreds of blocks may be open. Of more, the
/// first one ends the block.
const MOST: usize = 1 << 10;

/// By where each begins: where it ends, and what is wrong. None overlaps another one.
#[derive(Default)]
pub(super) struct Flaws(Mutex<BTreeMap<u64, (u64, String)>>);

impl Flaws {
    /// Keeps `damage`, if it is such a part. It comes again if the block is decoded again.
    pub(super) fn take(&self, damage: &Damage) -> bool {
        let Range { start, end } = damage.decoded;
        if start >= end || damage.lost_from < end {
            return false;
        }
        let mut flaws = lock(&self.0);
        if let Some((known, (known_end, _))) = flaws.range(..end).next_back()
            && *known_end > start
        {
            return *known <= start && end <= *known_end;
        }
        // What goes on is one: it may be all that follows.
        if let Some((_, (known_end, what))) = flaws.range_mut(..end).next_back()
            && *known_end == start
            && *what == damage.what
        {
            *known_end = end;
            return true;
        }
        let is_kept = flaws.len() < MOST;
        if is_kept {
            flaws.insert(start, (end, damage.what.clone()));
        }
        is_kept
    }

    /// What is wrong with some of the bytes in `range`.
    pub(super) fn find(&self, range: &Range<u64>) -> Option<String> {
        let flaws = lock(&self.0);
        let (_, (end, what)) = flaws.range(..range.end).next_back()?;
        (*end > range.start).then(|| what.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn damage(decoded: Range<u64>, lost_from: u64) -> Damage {
        let what = format!("bytes from {}", decoded.start);
        Damage { decoded, lost_from, compressed: 0, compressed_from: 0, what }
    }

    #[test]
    fn only_reads_that_touch_a_flaw_find_it() {
        let flaws = Flaws::default();
        assert!(flaws.take(&damage(10..20, 20)) && flaws.take(&damage(30..40, 40)));
        // Decoded once more.
        assert!(flaws.take(&damage(10..20, 20)));
        // What is lost, what concerns no byte, and what overlaps another one.
        for other in [damage(50..60, 55), damage(50..50, 50), damage(15..25, 25), damage(5..50, 50)] {
            assert!(!flaws.take(&other), "{other:?}");
        }
        let found = |range: Range<u64>| flaws.find(&range);
        // One that goes on, and another one that begins where that ends.
        let goes_on = Flaws::default();
        for at in 0..100_u64 {
            assert!(goes_on.take(&Damage { what: "the same".to_owned(), ..damage(at..at + 1, at + 1) }));
        }
        assert!(goes_on.take(&damage(100..101, 101)) && goes_on.take(&damage(7..9, 9)));
        assert_eq!(lock(&goes_on.0).len(), 2);
        assert_eq!((found(0..10), found(20..30), found(40..100)), (None, None, None));
        for (range, start) in [(0..11, 10), (19..20, 10), (10..20, 10), (0..100, 30), (39..90, 30)] {
            assert_eq!(found(range), Some(format!("bytes from {start}")));
        }
    }
}
