//! Where objects are, in few bytes for each: a short document may have millions of them.

use std::collections::HashMap;

/// Where an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Nowhere, by the table with that number.
    Free(u32),
    At(u64),
    /// In a stream of objects, and which of these it is.
    In(u32, u32),
}

/// Objects whose places are kept together. Their numbers follow each other in nearly all documents.
const TOGETHER: usize = 64;

/// Bytes of memory that these take, with where they are kept.
const OF_THESE: usize = TOGETHER * size_of::<u64>() + 48;

/// So many of these are kept at most: as many as there are where each number is used. Numbers with gaps between them
/// must not make more of them.
const MOST: usize = 8_388_608 / TOGETHER;

const _: () = assert!(MOST * OF_THESE <= 72 << 20, "what tables say takes this much memory");

/// What the two lowest bits of a place say. None has only zeros.
const KIND: u32 = 2;
const FREE: u64 = 1;
const AT: u64 = 2;
const IN: u64 = 3;

/// Where the number in a stream begins, and the highest one that there is: no stream has as many objects.
const INDEX: u32 = 34;
const LAST: u64 = u64::MAX >> INDEX;

/// Places by the numbers of objects.
#[derive(Debug, Default)]
pub(super) struct Places {
    parts: HashMap<u32, Box<[u64; TOGETHER]>>,
    count: usize,
}

impl Places {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn get(&self, number: u32) -> Option<Place> {
        let (part, inside) = split(number);
        unpacked(*self.parts.get(&part)?.get(inside)?)
    }

    /// Bytes of memory that the place of `number` takes more than there are; `None` if there is no room for it.
    pub(super) fn needed(&self, number: u32) -> Option<usize> {
        if self.parts.contains_key(&split(number).0) {
            return Some(0);
        }
        (self.parts.len() < MOST).then_some(OF_THESE)
    }

    /// Keeps where an object is, whatever was kept of it before.
    pub(super) fn set(&mut self, number: u32, place: Place) {
        let (part, inside) = split(number);
        let part = self.parts.entry(part).or_insert_with(|| Box::new([0; TOGETHER]));
        if let Some(kept) = part.get_mut(inside) {
            self.count = self.count.saturating_add(usize::from(*kept == 0));
            *kept = packed(place);
        }
    }

    /// Bytes of memory that they take.
    #[cfg(test)]
    pub(super) fn weight(&self) -> usize {
        self.parts.len().saturating_mul(OF_THESE)
    }
}

/// The number of what is kept together, and which of these it is.
fn split(number: u32) -> (u32, usize) {
    const PARTS: u32 = TOGETHER as u32;
    (number / PARTS, (number % PARTS) as usize)
}

fn packed(place: Place) -> u64 {
    match place {
        Place::Free(table) => u64::from(table) << KIND | FREE,
        // No document is as long as the highest one says.
        Place::At(at) => at.min(u64::MAX >> KIND) << KIND | AT,
        Place::In(stream, index) => u64::from(index).min(LAST) << INDEX | u64::from(stream) << KIND | IN,
    }
}

fn unpacked(packed: u64) -> Option<Place> {
    let value = packed >> KIND;
    match packed & 3 {
        FREE => Some(Place::Free(value as u32)),
        AT => Some(Place::At(value)),
        IN => Some(Place::In(value as u32, (packed >> INDEX) as u32)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_kept_in_eight_bytes() {
        let last = LAST as u32;
        let all = [
            Place::Free(0),
            Place::Free(4096),
            Place::At(0),
            Place::At(u64::MAX >> 2),
            Place::In(0, 0),
            Place::In(7, 1 << 20),
            Place::In(u32::MAX, last),
        ];
        let mut places = Places::default();
        for (place, number) in all.into_iter().zip((u32::MAX - 600..).step_by(30)) {
            assert_eq!(places.get(number), None);
            places.set(number, place);
            assert_eq!(places.get(number), Some(place));
        }
        assert_eq!(places.len(), all.len());
        places.set(u32::MAX, Place::In(1, u32::MAX));
        assert_eq!(places.get(u32::MAX), Some(Place::In(1, last)));
        places.set(u32::MAX, Place::At(u64::MAX));
        assert_eq!(places.get(u32::MAX), Some(Place::At(u64::MAX >> 2)));
        assert_eq!(places.len(), all.len() + 1);
        places.clear();
        assert_eq!((places.len(), places.get(u32::MAX)), (0, None));
    }

    /// As many objects as a document may have take about 9 bytes each, and no more if there are gaps between them.
    #[test]
    fn millions_of_places_take_little_memory() {
        let mut places = Places::default();
        for number in 0..1 << 20 {
            assert!(places.needed(number).is_some());
            places.set(number, Place::At(number.into()));
        }
        assert_eq!(places.len(), 1 << 20);
        assert!(places.weight() <= 9 << 20, "{}", places.weight());
        let mut places = Places::default();
        for number in (0..).step_by(TOGETHER).take(MOST) {
            assert!(places.needed(number) > Some(0));
            places.set(number, Place::At(1));
        }
        assert_eq!((places.needed(1), places.needed(u32::MAX)), (Some(0), None));
        assert!(places.weight() <= 72 << 20, "{}", places.weight());
    }
}
