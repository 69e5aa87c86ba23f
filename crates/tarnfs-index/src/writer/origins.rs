//! Where entries come from: the archive itself, or one in it. What came from an archive that a later entry of its path
//! has replaced does not show.
//!
//! An archive may hold very many that take a few bytes each: what is kept of them, about 30 bytes each, is of the
//! memory budget as far as that goes, and has a limit.

use hashbrown::HashTable;
use tarnfs_source::Budget;

use super::allowance::Allowance;
use super::clashes::Bits;

/// Number of an archive in the archive; 0 is the archive itself.
pub(super) type Number = u32;

/// A stream and a byte of it, at which the header of a file begins.
pub(super) type Place = (u32, u64);

/// One of them.
#[derive(Debug, Clone, Copy)]
struct Archive {
    /// The one that it lies in.
    within: Number,
    /// Where its file begins.
    stream: u32,
    header: u64,
    /// The hash of its path.
    path: u64,
}

/// Bytes of each that others take: a bit here, and whether it is gone while records are written.
const BESIDE: usize = 2;

/// Few archives need no part of the budget.
const FEW: usize = 1 << 20;

/// All of them.
#[derive(Debug)]
pub(super) struct Origins {
    /// From number 1 on.
    all: Vec<Archive>,
    /// Of each whether it was replaced.
    replaced: Bits,
    any_replaced: bool,
    /// By the hash of its path, the one that shows there.
    shown: HashTable<Number>,
    /// Of the memory that they take, and their streams.
    allowance: Allowance,
}

fn find(all: &[Archive], number: Number) -> Option<&Archive> {
    (number as usize).checked_sub(1).and_then(|at| all.get(at))
}

impl Origins {
    /// None yet. What comes is taken from `budget`.
    pub(super) fn new(budget: &Budget) -> Self {
        let (all, replaced, shown) = (Vec::new(), Bits::default(), HashTable::new());
        Self { all, replaced, any_replaced: false, shown, allowance: Allowance::new(budget) }
    }

    /// Bytes of memory that they take.
    pub(super) fn bytes(&self) -> usize {
        let beside = self.all.len().saturating_mul(BESIDE);
        let table = self.shown.capacity().saturating_mul(size_of::<Number>().saturating_add(1));
        self.all.capacity().saturating_mul(size_of::<Archive>()).saturating_add(table).saturating_add(beside)
    }

    /// `bytes`, which they take with their streams, if that is more than they may. Takes from the budget what was
    /// added.
    pub(super) fn beyond_limit(&mut self, bytes: usize) -> Option<usize> {
        if bytes < FEW { None } else { self.allowance.beyond(bytes) }
    }

    /// The next one lies in `within`; its file begins at `place`. `path` is the hash of its path, where it does not
    /// show yet.
    pub(super) fn add(&mut self, within: Number, path: u64, (stream, header): Place) -> Number {
        self.all.push(Archive { within, stream, header, path });
        self.all.len() as Number
    }

    /// The number that the next one gets.
    pub(super) fn next(&self) -> Number {
        (self.all.len() as Number).saturating_add(1)
    }

    /// The one that it lies in; the archive itself lies in itself.
    pub(super) fn around(&self, number: Number) -> Number {
        find(&self.all, number).map_or(0, |archive| archive.within)
    }

    /// True if some of them show.
    pub(super) fn any_shown(&self) -> bool {
        !self.shown.is_empty()
    }

    /// The one that shows at the path with that hash, and where its file begins.
    pub(super) fn shown_at(&self, path: u64) -> Option<(Number, Place)> {
        let is_it = |&number: &Number| find(&self.all, number).is_some_and(|archive| archive.path == path);
        let number = *self.shown.find(path, is_it)?;
        find(&self.all, number).map(|archive| (number, (archive.stream, archive.header)))
    }

    /// It shows at its path from here on, and none that was there does.
    pub(super) fn show(&mut self, number: Number) {
        let (all, hash) = (&self.all, find(&self.all, number).map_or(0, |archive| archive.path));
        let path = |number: &Number| find(all, *number).map_or(0, |archive| archive.path);
        match self.shown.find_mut(hash, |known| path(known) == hash) {
            Some(known) => *known = number,
            None => drop(self.shown.insert_unique(hash, number, path)),
        }
    }

    /// It does not show any more.
    pub(super) fn replace(&mut self, number: Number) {
        let Some(&Archive { path, .. }) = find(&self.all, number) else { return };
        if let Ok(shown) = self.shown.find_entry(path, |&known| known == number) {
            let _ = shown.remove();
        }
        self.replaced.set(number, true);
        self.any_replaced = true;
    }

    /// True if it was replaced, or one that it lies in.
    pub(super) fn is_gone(&self, number: Number) -> bool {
        let mut at = number;
        while self.any_replaced && at != 0 {
            if self.replaced.get(at) {
                return true;
            }
            // Numbers shrink on the way out.
            at = self.around(at).min(at.saturating_sub(1));
        }
        false
    }

    /// Of each whether it is gone, or `None` if none is.
    pub(super) fn gone(&self) -> Option<Vec<bool>> {
        if !self.any_replaced {
            return None;
        }
        let mut gone = Vec::with_capacity(self.all.len().saturating_add(1));
        gone.push(false);
        for (&Archive { within, .. }, number) in self.all.iter().zip(1..) {
            gone.push(self.replaced.get(number) || gone.get(within as usize).copied().unwrap_or_default());
        }
        Some(gone)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tarnfs_format::Entry;
    use tarnfs_source::{Cancel, Limits};

    use super::super::{Writer, WriterOptions};
    use super::*;
    use crate::{Error, Nested};

    /// What the budget has given covers what is taken.
    #[test]
    fn archives_take_from_the_budget_and_have_a_limit() {
        let budget = Budget::new(64 << 20);
        let mut origins = Origins::new(&budget);
        origins.allowance.most = 8 << 20;
        let mut most = 0_u64;
        while origins.beyond_limit(origins.bytes()).is_none() {
            assert!(origins.bytes() < FEW || budget.used() >= origins.bytes());
            // As hashes are.
            let number = origins.add(0, most.wrapping_mul(0x9e37_79b9_7f4a_7c15), (0, most << 9));
            origins.show(number);
            most += 1;
        }
        assert!((150_000..350_000).contains(&most), "{most} archives of {} bytes", origins.bytes());
        drop(origins);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn one_shows_at_each_path() {
        let mut origins = Origins::new(&Budget::new(0));
        assert!(!origins.any_shown() && origins.shown_at(7).is_none() && origins.around(0) == 0);
        let outer = origins.add(0, 7, (0, 512));
        origins.show(outer);
        let inner = origins.add(outer, 8, (0, 1024));
        origins.show(inner);
        assert_eq!([outer, inner, origins.next()], [1, 2, 3]);
        assert_eq!((origins.around(inner), origins.around(outer)), (outer, 0));
        // Of the same path, it takes its place.
        let other = origins.add(0, 7, (1, 2048));
        origins.show(other);
        assert_eq!(origins.shown_at(7), Some((other, (1, 2048))));
        // That it does not show is no reason for the other not to.
        assert_eq!(origins.gone(), None);
        origins.replace(outer);
        assert_eq!((origins.shown_at(7), origins.shown_at(8)), (Some((other, (1, 2048))), Some((inner, (0, 1024)))));
        assert_eq!(origins.gone(), Some(vec![false, true, true, false]));
        assert_eq!([0, outer, inner, other].map(|number| origins.is_gone(number)), [false, true, true, false]);
        origins.replace(other);
        assert_eq!((origins.shown_at(7), origins.any_shown()), (None, true));
    }

    /// A few bytes may be an archive, and an archive of 300 MB may hold 19 million of them.
    #[test]
    fn archives_count_with_folders_and_links() {
        let most = |folders: u32, with_streams: bool| {
            let (limits, cancel) = (Limits::default(), Cancel::default());
            let mut writer = Writer::new(WriterOptions { limits, budget: Budget::new(0), cancel }).unwrap();
            writer.most_memory = 1 << 20;
            for number in 0..folders {
                writer.expect_folder(format!("{number}/").as_bytes());
            }
            let add = |writer: &mut Writer, number: u64| {
                if with_streams {
                    let codec = "gzip".to_owned();
                    writer.begin_nested(0, number << 10);
                    writer.add_nested(&Nested {
                        codec,
                        decoded_length: 1,
                        input: 0,
                        start: number << 10,
                        length: 35,
                    })?;
                }
                writer.add_archive(0, number.wrapping_mul(0x9e37_79b9_7f4a_7c15), (0, number << 10))
            };
            let failed = (0..).find_map(|number| add(&mut writer, number).err().map(|error| (number, error)));
            let (number, error) = failed.unwrap();
            assert!(matches!(&error, Error::Io(error) if error.kind() == io::ErrorKind::OutOfMemory), "{error}");
            assert!(error.to_string().contains("the archives in the archive take"), "{error}");
            assert!(writer.folders.bytes() + writer.bytes_of_archives() > 1 << 20);
            // No entry comes any more, either.
            assert!(writer.add(&Entry { path: b"a".to_vec(), ..Entry::default() }).is_err());
            number
        };
        let (alone, with_streams, with_folders) = (most(0, false), most(0, true), most(3000, false));
        assert!((20_000..40_000).contains(&alone), "{alone}");
        assert!(with_streams < alone && with_folders < alone, "{with_streams}, {with_folders}");
    }
}
