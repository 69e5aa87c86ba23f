//! Where folders are named last in whose place something else shows.
//!
//! That a folder is one again behind what took its path is noted when the later entry is added. But what an archive in
//! the archive holds may be added after all of the stream around it: then it is not known in time what takes whose
//! path. So once the records have gone by in order, those folders are looked at again that do not show: of each,
//! the latest entry in it says where it is a folder again.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;

use super::clashes::Bits;
use super::folders::{Folders, Number, ROOT};
use super::record::{Record, read_number, write_number};

/// Bytes of memory for each, beside those of its place.
const EACH: usize = 80;

/// Of each of these folders where the latest entry in it begins, as numbers: where the streams begin that it lies in,
/// the outermost first, and its header.
#[derive(Debug, Default)]
pub(super) struct Latest {
    places: BTreeMap<Number, Vec<u8>>,
    /// Bytes of the places.
    bytes: usize,
}

fn numbers(mut bytes: &[u8]) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || (!bytes.is_empty()).then(|| read_number(&mut bytes)))
}

/// The innermost of `wanted` around what is in `folder`, itself among them.
pub(super) fn innermost(wanted: &Bits, folders: &Folders, mut folder: Number) -> Option<Number> {
    while folder != ROOT {
        if wanted.get(folder) {
            return Some(folder);
        }
        folder = folders.get(folder).parent;
    }
    None
}

impl Latest {
    /// `record` is of an entry in `folder`.
    pub(super) fn note(&mut self, folder: Number, record: &Record<'_>) {
        let write = |place: &mut Vec<u8>| {
            place.clear();
            record.places().for_each(|number| write_number(place, number));
        };
        self.note_if(folder, &mut |known| record.places().cmp(numbers(known)), &write);
    }

    fn note_if(&mut self, folder: Number, compare: &mut dyn FnMut(&[u8]) -> Ordering, write: &dyn Fn(&mut Vec<u8>)) {
        let place = match self.places.entry(folder) {
            Slot::Vacant(slot) => slot.insert(Vec::new()),
            Slot::Occupied(slot) if compare(slot.get()) == Ordering::Greater => slot.into_mut(),
            Slot::Occupied(_) => return,
        };
        let before = place.capacity();
        write(place);
        self.bytes = self.bytes.saturating_add(place.capacity().saturating_sub(before));
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.places.len().saturating_mul(EACH).saturating_add(self.bytes)
    }

    /// What is in a folder is in those around it, too: all of `wanted`, each with the place that is named in it last.
    pub(super) fn complete(mut self, wanted: &Bits, folders: &Folders) -> BTreeMap<Number, Vec<u8>> {
        // A folder's number is greater than its parent's.
        let mut next = self.places.last_key_value().map(|(number, _)| *number);
        while let Some(number) = next {
            let around = innermost(wanted, folders, folders.get(number).parent);
            if let (Some(around), Some(place)) = (around, self.places.get(&number).cloned()) {
                let write = |known: &mut Vec<u8>| known.clone_from(&place);
                self.note_if(around, &mut |known| numbers(&place).cmp(numbers(known)), &write);
            }
            next = self.places.range(..number).next_back().map(|(number, _)| *number);
        }
        self.places
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Builder, Tag};
    use super::super::spool::Overflow;
    use super::*;
    use tarnfs_source::Budget;

    /// The latest entry counts for all folders around it, whichever was met first.
    #[test]
    fn the_latest_is_found_and_handed_on() {
        let budget = Budget::new(1 << 20);
        let mut folders = Folders::new(&budget);
        let [a, b] = [b"a", b"b"].map(|name| folders.child(ROOT, name));
        let inner = folders.child(a, b"x");
        let innermost_of_all = folders.child(inner, b"y");
        let mut wanted = Bits::default();
        for number in [a, innermost_of_all] {
            wanted.set(number, true);
        }
        assert_eq!(innermost(&wanted, &folders, inner), Some(a));
        assert_eq!(innermost(&wanted, &folders, b), None);
        let mut latest = Latest::default();
        let mut builder = Builder::new(&Overflow::on_disk(&budget));
        for (folder, around, rank) in [(a, 0, 700), (innermost_of_all, 300, 9), (innermost_of_all, 900, 1), (a, 800, 5)]
        {
            builder.around.clear();
            if around > 0 {
                write_number(&mut builder.around, around);
            }
            let record = Record::read(builder.number(folder, b"f", Tag::Marker, rank, 1)).bytes.to_vec();
            latest.note(folder, &Record::read(&record));
        }
        assert!((2 * EACH..3 * EACH).contains(&latest.bytes()), "{}", latest.bytes());
        let places: Vec<_> = latest.complete(&wanted, &folders).into_iter().collect();
        let place = [900, 1].into_iter().fold(Vec::new(), |mut bytes, number| {
            write_number(&mut bytes, number);
            bytes
        });
        assert_eq!(places, [(a, place.clone()), (innermost_of_all, place)]);
    }
}
