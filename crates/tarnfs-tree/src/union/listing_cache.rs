//! Listings of unions that are kept, in bounded memory.

use std::collections::hash_map;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::listing::Listing;
use crate::Node;

/// Where listings are kept. Any number of unions that are made of the same trees share one, and its memory: an archive
/// may have thousands of images.
#[derive(Debug, Clone, Default)]
pub(super) struct ListingCache(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    kept: Mutex<Kept>,
    /// Somebody gathers a large snapshot.
    large: AtomicBool,
    /// Unions that were ever among those that share it.
    unions: AtomicU32,
}

/// A folder, and the union that it is in.
type Place = (u32, Node);

impl ListingCache {
    /// The number of one more union among those that share it.
    pub(super) fn union(&self) -> u32 {
        self.0.unions.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn large(&self) -> &AtomicBool {
        &self.0.large
    }
}

/// The listings used last.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Each with the time of its last use.
    listings: HashMap<Place, (u64, Arc<Listing>)>,
    by_use: BTreeMap<u64, Place>,
    clock: u64,
    bytes: usize,
    /// The same of each union that has some.
    bytes_of: HashMap<u32, usize>,
}

impl Kept {
    pub(super) fn get(&mut self, folder: Place) -> Option<Arc<Listing>> {
        let (used, listing) = self.listings.get_mut(&folder)?;
        self.clock += 1;
        self.by_use.remove(used);
        *used = self.clock;
        self.by_use.insert(self.clock, folder);
        Some(Arc::clone(listing))
    }

    fn remove(&mut self, folder: Place) -> Option<Arc<Listing>> {
        let (used, listing) = self.listings.remove(&folder)?;
        self.by_use.remove(&used);
        let bytes = listing.bytes();
        self.bytes -= bytes;
        if let hash_map::Entry::Occupied(mut of_union) = self.bytes_of.entry(folder.0) {
            *of_union.get_mut() -= bytes;
            if *of_union.get() == 0 {
                of_union.remove();
            }
        }
        Some(listing)
    }

    /// Removes all that `union` has, and returns it.
    pub(super) fn remove_all(&mut self, union: u32) -> Vec<Arc<Listing>> {
        let of_union = |(place, _): (&Place, _)| Some(*place).filter(|(of, _)| *of == union);
        let places: Vec<Place> = self.listings.iter().filter_map(of_union).collect();
        places.into_iter().filter_map(|place| self.remove(place)).collect()
    }

    /// Returns those that are not kept any more: to drop one takes a while, and a lock.
    pub(super) fn insert(&mut self, folder: Place, listing: Arc<Listing>, most: usize) -> Vec<Arc<Listing>> {
        let mut removed: Vec<_> = self.remove(folder).into_iter().collect();
        self.clock += 1;
        let bytes = listing.bytes();
        self.bytes += bytes;
        *self.bytes_of.entry(folder.0).or_default() += bytes;
        self.listings.insert(folder, (self.clock, listing));
        self.by_use.insert(self.clock, folder);
        while self.bytes > most && self.listings.len() > 1 {
            let Some(oldest) = self.by_use.first_key_value().map(|(_, &folder)| folder) else { break };
            removed.extend(self.remove(oldest));
        }
        removed
    }

    /// Bytes that are kept of `union`.
    pub(super) fn bytes_of(&self, union: u32) -> usize {
        self.bytes_of.get(&union).copied().unwrap_or(0)
    }
}
