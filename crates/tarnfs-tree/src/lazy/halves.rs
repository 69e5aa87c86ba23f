//! Positions in a listing between the folder that an archive is and its file, which shows beside it.

use std::sync::{Mutex, PoisonError};

use crate::Node;

/// The first of the numbers that stand for them. Between those of the file system below and its end
/// (`folder/listing.rs`), since these are 63 bits, and `telldir(3)` has no more: ext4 has no name in the last 2³².
const FIRST: u64 = i64::MAX as u64 - (1 << 32) + 1;

/// How many of these there are.
const NUMBERS: u64 = 1 << 31;

/// So many are known, in 24 MB at the most: what is listed goes on at once, where it does.
const MOST: u64 = 1 << 20;

/// The positions that were given out last.
#[derive(Debug, Default)]
pub(super) struct Halves(Mutex<Given>);

#[derive(Debug, Default)]
struct Given {
    /// How many there were.
    count: u64,
    /// Each at the place of its number: that, the folder, and where the archive is in it.
    last: Vec<(u64, Node, u64)>,
}

impl Halves {
    /// The position behind the folder of the archive that is at `before` in `folder`.
    pub(super) fn add(&self, folder: Node, before: u64) -> u64 {
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let position = FIRST + given.count % NUMBERS;
        let place = (given.count % MOST) as usize;
        given.count += 1;
        match given.last.get_mut(place) {
            Some(last) => *last = (position, folder, before),
            None => given.last.push((position, folder, before)),
        }
        position
    }

    /// Where the archive is whose folder was given with this position; `None` of any other one.
    pub(super) fn find(&self, folder: Node, position: u64) -> Option<u64> {
        let number = Self::number(position)?;
        let given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let &(of, known, before) = given.last.get((number % MOST) as usize)?;
        ((of, known) == (position, folder)).then_some(before)
    }

    /// True of each position that was ever given.
    pub(super) fn is_one(position: u64) -> bool {
        Self::number(position).is_some()
    }

    fn number(position: u64) -> Option<u64> {
        position.checked_sub(FIRST).filter(|&number| number < NUMBERS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_known() {
        let halves = Halves::default();
        let positions: Vec<_> = (0..MOST + 100).map(|number| halves.add(Node(7 + number % 2), number)).collect();
        assert!(positions.iter().all(|&position| position < i64::MAX as u64 - (1 << 22)));
        assert_eq!(halves.find(Node(7), positions[0]), None, "too long ago");
        assert_eq!(halves.find(Node(7), positions[200]), Some(200));
        assert_eq!(halves.find(Node(8), positions[200]), None, "in another folder");
        assert_eq!(halves.find(Node(7), 200), None);
        assert!(Halves::is_one(positions[0]) && Halves::is_one(positions[200]) && !Halves::is_one(200));
    }
}
