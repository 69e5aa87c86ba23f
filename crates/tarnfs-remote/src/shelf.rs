//! Blocks in memory of many objects within one bound: those that came first go first.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError, Weak};

/// Has blocks in memory, by number.
pub(crate) trait Holder: Send + Sync {
    /// Gives a block up, if it has it.
    fn give_up(&self, number: u64);
}

/// Counts the blocks of all who share it.
pub(crate) struct Shelf {
    most: usize,
    places: Mutex<VecDeque<(Weak<dyn Holder>, u64)>>,
}

impl Shelf {
    /// For so many blocks.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, places: Mutex::default() }
    }

    /// `holder` has these blocks now. Has others given up where there are too many. To be called while nothing of any
    /// holder is locked.
    pub(crate) fn has(&self, holder: &Weak<dyn Holder>, numbers: impl Iterator<Item = u64>) {
        let too_many: Vec<_> = {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            places.extend(numbers.map(|number| (Weak::clone(holder), number)));
            let count = places.len().saturating_sub(self.most);
            places.drain(..count).collect()
        };
        for (holder, number) in too_many {
            if let Some(holder) = holder.upgrade() {
                holder.give_up(number);
            }
        }
    }
}

impl fmt::Debug for Shelf {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Shelf").field("most", &self.most).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use super::*;

    struct Blocks(Mutex<HashSet<u64>>);

    impl Holder for Blocks {
        fn give_up(&self, number: u64) {
            self.0.lock().unwrap().remove(&number);
        }
    }

    #[test]
    fn all_who_share_it_have_no_more_than_it_has_room_for() {
        let shelf = Shelf::new(5);
        let holders: Vec<_> = (0..100).map(|_| Arc::new(Blocks(Mutex::default()))).collect();
        let count = |holders: &[Arc<Blocks>]| -> usize { holders.iter().map(|one| one.0.lock().unwrap().len()).sum() };
        for (number, holder) in (0..).zip(&holders) {
            let numbers = [number, number + 1];
            holder.0.lock().unwrap().extend(numbers);
            let weak: Weak<dyn Holder> = Arc::downgrade(&(Arc::clone(holder) as Arc<dyn Holder>));
            shelf.has(&weak, numbers.into_iter());
            assert!(count(&holders) <= 5);
        }
        // Those that came last are there.
        assert_eq!((count(&holders[98..]), count(&holders)), (4, 5));
        let weak: Weak<dyn Holder> = Weak::<Blocks>::new();
        shelf.has(&weak, 0..10);
        assert_eq!(count(&holders), 0, "those of one that is closed are gone with it");
    }
}
