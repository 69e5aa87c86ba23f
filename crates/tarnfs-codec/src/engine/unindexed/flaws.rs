//! Parts of a block that fail a check of their own, while the block goes on: members of a solid archive, each with a
//! checksum that only its decoder compares.

use std::ops::Range;

use tarnfs_source::Grant;

use crate::Damage;
use crate::sync::Mutex;

use super::{PieceCache, lock};

/// So many are kept. Of more, the first one ends the block.
const MOST: usize = 1 << 14;

/// So many come at once, for which memory is charged: an archive may have hundreds of blocks. The first ones are free.
const STEP: usize = 1 << 10;

/// Different texts that are kept, and what stands for any other one: each may name its checksums.
const MOST_TEXTS: usize = 64;
const OTHER: &str = "a part of it fails its check";

#[derive(Default)]
pub(super) struct Flaws(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// In ascending order. None overlaps another one.
    flaws: Vec<Flaw>,
    texts: Vec<Box<str>>,
    grants: Vec<Grant>,
}

struct Flaw {
    start: u64,
    end: u64,
    /// What is wrong: the number of a text.
    what: usize,
}

impl Kept {
    /// More memory is to be charged before another one is kept.
    fn needs_room(&self) -> bool {
        self.flaws.len() == self.flaws.capacity() && (STEP..MOST).contains(&self.flaws.len())
    }

    fn text(&mut self, what: &str) -> usize {
        let known = |texts: &[Box<str>], what: &str| texts.iter().position(|text| **text == *what);
        let what = if self.texts.len() < MOST_TEXTS || known(&self.texts, what).is_some() { what } else { OTHER };
        known(&self.texts, what).unwrap_or_else(|| {
            self.texts.push(what.into());
            self.texts.len() - 1
        })
    }

    /// How many begin before byte `end`, and the last of them.
    fn last_before(&self, end: u64) -> Option<(usize, &Flaw)> {
        let count = self.flaws.partition_point(|flaw| flaw.start < end);
        Some((count, self.flaws.get(count.checked_sub(1)?)?))
    }
}

impl Flaws {
    /// Keeps `damage`, if it is such a part, and there is memory for it. It comes again if the block is decoded again.
    pub(super) fn take(&self, damage: &Damage, cache: &PieceCache) -> bool {
        let Range { start, end } = damage.decoded;
        if start >= end || damage.lost_from < end {
            return false;
        }
        // Nobody else adds to them. Not while they are locked: others may have to give theirs up.
        let needs_room = lock(&self.0).needs_room();
        let grant = if needs_room { cache.take(STEP * size_of::<Flaw>()) } else { None };
        let mut kept = lock(&self.0);
        let (mut place, mut goes_on) = (0, None);
        if let Some((count, before)) = kept.last_before(end) {
            if before.end > start {
                return before.start <= start && end <= before.end;
            }
            (place, goes_on) = (count, (before.end == start).then_some(before.what));
        }
        let what = kept.text(&damage.what);
        // What goes on is one: it may be all that follows.
        if goes_on == Some(what)
            && let Some(before) = place.checked_sub(1).and_then(|before| kept.flaws.get_mut(before))
        {
            before.end = end;
            return true;
        }
        if kept.flaws.len() >= MOST || kept.needs_room() && grant.is_none() {
            return false;
        }
        kept.grants.extend(grant);
        if kept.flaws.len() == kept.flaws.capacity() {
            kept.flaws.reserve_exact(STEP);
        }
        kept.flaws.insert(place, Flaw { start, end, what });
        true
    }

    /// What is wrong with some of the bytes in `range`.
    pub(super) fn find(&self, range: &Range<u64>) -> Option<String> {
        let kept = lock(&self.0);
        let (_, flaw) = kept.last_before(range.end)?;
        let what = kept.texts.get(flaw.what).filter(|_| flaw.end > range.start)?;
        Some(what.to_string())
    }

    /// Bytes of memory that they take.
    pub(super) fn memory(&self) -> usize {
        let kept = lock(&self.0);
        let texts: usize = kept.texts.iter().map(|text| text.len()).sum();
        kept.flaws.capacity() * size_of::<Flaw>() + texts
    }
}

#[cfg(test)]
mod tests {
    use tarnfs_source::Budget;

    use super::*;

    fn damage(decoded: Range<u64>, lost_from: u64) -> Damage {
        let what = format!("bytes from {}", decoded.start);
        Damage { decoded, lost_from, compressed: 0, compressed_from: 0, what }
    }

    #[test]
    fn only_reads_that_touch_a_flaw_find_it() {
        let cache = PieceCache::new(Budget::new(1 << 20));
        let flaws = Flaws::default();
        assert!(flaws.take(&damage(10..20, 20), &cache) && flaws.take(&damage(30..40, 40), &cache));
        // Decoded once more.
        assert!(flaws.take(&damage(10..20, 20), &cache));
        // What is lost, what concerns no byte, and what overlaps another one.
        for other in [damage(50..60, 55), damage(50..50, 50), damage(15..25, 25), damage(5..50, 50)] {
            assert!(!flaws.take(&other, &cache), "{other:?}");
        }
        let found = |range: Range<u64>| flaws.find(&range);
        // One that goes on, and another one that begins where that ends.
        let goes_on = Flaws::default();
        for at in 0..100_u64 {
            let one = Damage { what: "the same".to_owned(), ..damage(at..at + 1, at + 1) };
            assert!(goes_on.take(&one, &cache));
        }
        assert!(goes_on.take(&damage(100..101, 101), &cache) && goes_on.take(&damage(7..9, 9), &cache));
        assert_eq!(lock(&goes_on.0).flaws.len(), 2);
        assert_eq!((found(0..10), found(20..30), found(40..100)), (None, None, None));
        for (range, start) in [(0..11, 10), (19..20, 10), (10..20, 10), (0..100, 30), (39..90, 30)] {
            assert_eq!(found(range), Some(format!("bytes from {start}")));
        }
    }

    /// An archive has hundreds of blocks, each of which may have as many flaws as are kept.
    #[test]
    fn what_is_kept_of_flaws_is_short_and_charged() {
        // From the last one to the first, each with a text of its own.
        let take_all = |flaws: &Flaws, cache: &PieceCache| {
            let at = |number: usize| 2 * (MOST - number) as u64;
            (0..=MOST).take_while(|&number| flaws.take(&damage(at(number)..at(number) + 1, u64::MAX), cache)).count()
        };
        let budget = Budget::new(64 << 20);
        let (flaws, cache) = (Flaws::default(), PieceCache::new(budget.clone()));
        assert_eq!(take_all(&flaws, &cache), MOST);
        assert!(flaws.memory() <= MOST * 24 + MOST_TEXTS * 40, "{}", flaws.memory());
        assert!(budget.used() >= (MOST - STEP) * 24, "{}", budget.used());
        assert_eq!(flaws.find(&(4..5)).as_deref(), Some(OTHER));
        drop(flaws);
        assert_eq!(budget.used(), 0);
        // Others have all there is.
        let (flaws, _taken) = (Flaws::default(), budget.take(budget.limit()).unwrap());
        assert_eq!(take_all(&flaws, &cache), STEP);
    }
}
