//! What is in a merged folder.
//!
//! When somebody lists one, the sources are scanned once and what shows is kept as a [`Snapshot`] in the order of
//! names, attributes included, so that a `find` costs no look-up per file. Positions are places in this order, which is
//! the same whenever it is made again. The snapshots used last are kept, in bounded memory.
//!
//! A folder that is too large for that is listed source after source, from right to left. A [`Filter`] of a few
//! megabytes tells which names are in one source only; of the others each source to the right is asked.
//!
//! Where a source may change, a snapshot only serves those who go on with a listing, for a second; who begins one gets
//! a new one. Positions are then hashes of names: they mean the same whatever else comes and goes. Of a folder that is
//! too large for one, a snapshot has the names of a range of positions, and who lists on behind it gets the next one.
//! What comes from such a source is looked up when it is handed on: it is then as new as can be, and counts for
//! [`crate::Tree::forget`].

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::{Attributes, Child, Error, Kind, Node, Tree as _, UNKNOWN};

use super::UnionTree;
use super::layers::Mark;
use super::listing_cache::ListingCache;
use super::merged::Holds;

/// How long a snapshot serves where sources may change.
const FRESH: Duration = Duration::from_secs(1);

/// And how many times as long as it took to make, so that slow folders are not scanned over and over by one listing.
const FRESH_TIMES: u32 = 10;

/// While one snapshot of what may change grows beyond this, the others do with so much, and those of what cannot change
/// wait a while: many large ones at a time would be more than memory is meant for. Nobody waits long for another, which
/// may itself wait for a server.
const MANY: usize = 4 << 20;

/// Children that are gathered where nobody may wait.
const FEW: u64 = 1000;

/// How long who gathers what cannot change waits for another to be done.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bits of a position that are the one in a source, where a folder is listed source after source.
const IN_SOURCE: u32 = 48;

/// Bounds on the memory of listings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Bytes of snapshots that are kept (the last one is in any case).
    pub kept: usize,
    /// Bytes of one snapshot; a folder for which that is not enough is listed source after source.
    pub snapshot: usize,
    /// Bytes of a filter for such a folder: a power of two. It serves for a quarter as many names; of ten times as
    /// many, most seem to be there twice.
    pub filter: usize,
}

impl Default for Memory {
    /// 32, 64 and 8 MiB.
    fn default() -> Self {
        Self { kept: 32 << 20, snapshot: 64 << 20, filter: 8 << 20 }
    }
}

/// What a merged folder holds, or what is needed to list it.
#[derive(Debug)]
pub(super) enum Listing {
    Snapshot(Snapshot),
    Filter(Filter),
}

/// One entry of a snapshot.
#[derive(Debug)]
struct Entry {
    /// Where its name is among the names.
    start: u32,
    length: u32,
    attributes: Attributes,
    /// To be looked up: it may have changed.
    may_change: bool,
    /// It hides what is further left, and is nothing itself.
    is_whiteout: bool,
}

/// Everything that shows in a merged folder.
#[derive(Debug)]
pub(super) struct Snapshot {
    names: Vec<u8>,
    /// In the order of names, or of positions where there are some.
    entries: Vec<Entry>,
    /// Where each entry stands, if its number does not say.
    positions: Option<Vec<u64>>,
    /// The positions that it is complete for; `None` for all that are behind the first.
    from: u64,
    until: Option<u64>,
    made: Instant,
    took: Duration,
    /// The merged folders among the entries, where they are handed on without being looked up.
    holds: Holds,
}

/// How far the names of a snapshot were handed on.
enum Given {
    /// To the end.
    All,
    /// Up to one that was not wanted, which is held.
    Refused(Node),
    /// Up to one that was not wanted, and which nobody was given.
    Enough,
}

impl Snapshot {
    fn bytes(&self) -> usize {
        let positions = self.positions.as_ref().map_or(0, Vec::len);
        let entries = self.entries.capacity() * size_of::<Entry>() + positions * size_of::<u64>();
        self.names.capacity() + entries + self.holds.bytes()
    }

    fn is_fresh(&self) -> bool {
        self.made.elapsed() < FRESH.max(self.took * FRESH_TIMES)
    }

    /// True if what stands at this position, and behind it, is in here.
    fn covers(&self, from: u64) -> bool {
        self.from <= from && self.until.is_none_or(|until| from < until)
    }

    fn name(&self, entry: &Entry) -> &[u8] {
        name_in(&self.names, entry.start, entry.length)
    }

    fn find(&self, name: &[u8]) -> Option<&Attributes> {
        let place = self.entries.binary_search_by(|entry| self.name(entry).cmp(name)).ok()?;
        self.entries.get(place).map(|entry| &entry.attributes)
    }

    /// Hands on what stands at `from` and behind it. `look_up` says what a name is now; `None` if it is gone. `hold` is
    /// told of what is handed on as it is.
    fn give(
        &self,
        from: u64,
        mut look_up: impl FnMut(&[u8]) -> Result<Option<Attributes>, Error>,
        hold: impl Fn(Node),
        receive: &mut dyn FnMut(Child<'_>) -> bool,
    ) -> Given {
        let start = match &self.positions {
            Some(positions) => positions.partition_point(|&position| position < from),
            None => usize::try_from(from).unwrap_or(usize::MAX),
        };
        for (place, entry) in self.entries.iter().enumerate().skip(start) {
            let position = self.positions.as_ref().and_then(|positions| positions.get(place).copied());
            let next = position.unwrap_or(place as u64) + 1;
            let name = self.name(entry);
            let attributes = if entry.may_change {
                match look_up(name) {
                    Ok(Some(attributes)) => attributes,
                    Ok(None) => continue,
                    // What its folder said must do. Its node was only looked at and may be another's by now.
                    Err(_) => Attributes { node: UNKNOWN, ..entry.attributes.clone() },
                }
            } else {
                hold(entry.attributes.node);
                entry.attributes.clone()
            };
            let node = attributes.node;
            if !receive(Child { name, attributes, next }) {
                return if node == UNKNOWN { Given::Enough } else { Given::Refused(node) };
            }
        }
        Given::All
    }
}

fn name_in(names: &[u8], start: u32, length: u32) -> &[u8] {
    names.get(start as usize..).and_then(|rest| rest.get(..length as usize)).unwrap_or_default()
}

/// Two bits for each of many places: met once, met more than once. Each name has three of them, so that few names seem
/// to be there twice that are not.
#[derive(Debug)]
pub(super) struct Filter {
    words: Vec<u64>,
}

impl Filter {
    fn new(bytes: usize) -> Self {
        Self { words: vec![0; (bytes / size_of::<u64>()).next_power_of_two()] }
    }

    /// The places of a name with this hash: which word, and which bits of it.
    fn slots(&self, hash: u64) -> [(usize, u32); 3] {
        let slot = |hash: u64| (hash as usize >> 5 & (self.words.len() - 1), (hash as u32 & 31) * 2);
        [slot(hash), slot(hash.rotate_right(21)), slot(hash.rotate_right(42))]
    }

    fn add(&mut self, hash: u64) {
        for (word, shift) in self.slots(hash) {
            let met = self.words[word] >> shift & 1;
            self.words[word] |= (1 | met << 1) << shift;
        }
    }

    /// False if the name with this hash was added once at most.
    fn may_be_twice(&self, hash: u64) -> bool {
        self.slots(hash).into_iter().all(|(word, shift)| self.words[word] >> shift & 2 != 0)
    }
}

/// The listings used last, of one union.
#[derive(Debug)]
pub(super) struct Listings {
    memory: Memory,
    is_immutable: bool,
    hasher: RandomState,
    cache: ListingCache,
    /// The number of the union among those that share the cache.
    union: u32,
}

impl Listing {
    pub(super) fn bytes(&self) -> usize {
        /// What the tables of those that are kept take for each.
        const OWN: usize = 200;
        OWN + match self {
            Self::Snapshot(snapshot) => snapshot.bytes(),
            Self::Filter(filter) => filter.words.len() * size_of::<u64>(),
        }
    }
}

impl Listings {
    pub(super) fn new(memory: Memory, cache: ListingCache, is_immutable: bool) -> Self {
        let union = cache.union();
        Self { memory, is_immutable, hasher: RandomState::new(), cache, union }
    }

    fn get(&self, folder: Node) -> Option<Arc<Listing>> {
        self.cache.kept().get((self.union, folder))
    }

    /// Keeps one, and drops those that there is no more room for.
    fn keep(&self, folder: Node, listing: Arc<Listing>) {
        let removed = self.cache.kept().insert((self.union, folder), listing, self.memory.kept);
        drop(removed);
    }

    /// Where a name stands in a folder that may change.
    fn position(&self, name: &[u8]) -> u64 {
        // One bit for the sign of a position that the kernel keeps, one for what is added to it.
        self.hasher.hash_one(name) >> 2
    }

    /// As if somebody gathered a large one from now on.
    #[cfg(test)]
    pub(super) fn begin_large(&self) {
        self.cache.large().store(true, Ordering::Release);
    }

    /// Keeps nothing of what it has.
    #[cfg(test)]
    pub(super) fn clear(&self) {
        let removed = self.cache.kept().remove_all(self.union);
        drop(removed);
    }

    /// Bytes that are kept of this union.
    pub(super) fn bytes(&self) -> usize {
        self.cache.kept().bytes_of(self.union)
    }

    /// What `name` is in `folder`, if there is a snapshot that says: of what cannot change.
    pub(super) fn find(&self, folder: Node, name: &[u8]) -> Option<Result<Attributes, Error>> {
        let listing = self.is_immutable.then(|| self.get(folder))??;
        match &*listing {
            Listing::Snapshot(snapshot) => Some(snapshot.find(name).cloned().ok_or(Error::NotFound)),
            Listing::Filter(_) => None,
        }
    }
}

impl Drop for Listings {
    /// Others may share the cache.
    fn drop(&mut self) {
        let removed = self.cache.kept().remove_all(self.union);
        drop(removed);
    }
}

/// The right to gather a large snapshot.
struct Alone<'u>(&'u AtomicBool);

impl<'u> Alone<'u> {
    fn new(large: &'u AtomicBool) -> Option<Self> {
        (!large.swap(true, Ordering::Acquire)).then_some(Self(large))
    }

    /// The same, but after a while of waiting: whoever has it may himself wait for a disk, or a server.
    fn wait(large: &'u AtomicBool) -> Option<Self> {
        let begin = Instant::now();
        loop {
            let alone = Self::new(large);
            if alone.is_some() || begin.elapsed() >= PATIENCE {
                return alone;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// What comes from the sources before it is put in order.
struct Gathered<'u> {
    listings: &'u Listings,
    names: Vec<u8>,
    /// Entries, each with the place of its part among the parts.
    entries: Vec<(u32, Entry)>,
    /// What it became when there was too much of it.
    filter: Option<Filter>,
    alone: Option<Alone<'u>>,
    has_waited: bool,
    /// Of what changes, the positions that are wanted.
    from: u64,
    until: Option<u64>,
}

impl<'u> Gathered<'u> {
    fn new(listings: &'u Listings, from: u64) -> Self {
        let (names, entries, filter, alone) = (Vec::new(), Vec::new(), None, None);
        Self { listings, names, entries, filter, alone, has_waited: false, from, until: None }
    }

    fn bytes(&self) -> usize {
        // An order of entries and a list without hidden ones are made of it.
        self.names.len() + self.entries.len() * (size_of::<(u32, Entry)>() + size_of::<u32>())
    }

    fn add(&mut self, part: u32, name: &[u8], attributes: Attributes, may_change: bool, is_whiteout: bool) {
        if let Some(filter) = &mut self.filter {
            filter.add(self.listings.hasher.hash_one(name));
            return;
        }
        if !self.listings.is_immutable && !self.is_wanted(self.listings.position(name)) {
            return;
        }
        let most = self.listings.memory.snapshot;
        if self.alone.is_none() && !self.has_waited && self.bytes() > MANY.min(most) {
            let large = self.listings.cache.large();
            self.has_waited = self.listings.is_immutable;
            self.alone = if self.has_waited { Alone::wait(large) } else { Alone::new(large) };
        }
        // What cannot change becomes a filter by its size alone, as positions in a snapshot and in the sources are not
        // the same.
        let is_free = self.alone.is_some() || self.listings.is_immutable;
        if self.bytes() > if is_free { most } else { MANY.min(most) } {
            if self.listings.is_immutable {
                let mut filter = Filter::new(self.listings.memory.filter);
                for (_, entry) in &self.entries {
                    filter.add(self.listings.hasher.hash_one(name_in(&self.names, entry.start, entry.length)));
                }
                filter.add(self.listings.hasher.hash_one(name));
                (self.names, self.entries, self.filter) = (Vec::new(), Vec::new(), Some(filter));
                return;
            }
            // No filter would stay true of what changes.
            self.halve();
            if !self.is_wanted(self.listings.position(name)) {
                return;
            }
        }
        let (start, length) = (self.names.len() as u32, name.len() as u32);
        self.names.extend_from_slice(name);
        self.entries.push((part, Entry { start, length, attributes, may_change, is_whiteout }));
    }

    fn is_wanted(&self, position: u64) -> bool {
        self.from <= position && self.until.is_none_or(|until| position < until)
    }

    /// Keeps what has the lower half of all positions.
    fn halve(&mut self) {
        let position = |names: &[u8], entry: &Entry| self.listings.position(name_in(names, entry.start, entry.length));
        let mut positions: Vec<u64> = self.entries.iter().map(|(_, entry)| position(&self.names, entry)).collect();
        let middle = positions.len() / 2;
        let (lower, &mut until, _) = positions.select_nth_unstable(middle);
        // At least one position stays.
        let least = lower.iter().copied().min().unwrap_or(until);
        let until = until.max(least.saturating_add(1));
        let before = std::mem::take(&mut self.names);
        let mut names = Vec::with_capacity(before.len() / 2);
        self.entries.retain_mut(|(_, entry)| {
            let name = name_in(&before, entry.start, entry.length);
            let stays = self.listings.position(name) < until;
            if stays {
                entry.start = names.len() as u32;
                names.extend_from_slice(name);
            }
            stays
        });
        self.names = names;
        self.until = Some(until);
    }
}

impl UnionTree {
    /// Hands on what is in a merged folder.
    pub(super) fn list(
        &self,
        folder: Node,
        parts: &[Node],
        from: u64,
        receive: &mut dyn FnMut(Child<'_>) -> bool,
    ) -> Result<(), Error> {
        let mut at = from;
        loop {
            let listing = if let Some(listing) = self.known(folder, at) {
                listing
            } else {
                let made = Arc::new(self.gather(folder, parts, at)?);
                self.listings.keep(folder, Arc::clone(&made));
                made
            };
            let snapshot = match &*listing {
                Listing::Snapshot(snapshot) => snapshot,
                Listing::Filter(filter) => return self.list_sources(folder, parts, filter, at, receive),
            };
            // The listing holds what is in it.
            let hold = |node| {
                self.hold_again(node);
            };
            match snapshot.give(at, |name| self.merge(folder, parts, name), hold, receive) {
                Given::All => match snapshot.until {
                    Some(until) => at = until,
                    None => return Ok(()),
                },
                Given::Refused(node) => {
                    self.forget(node, 1);
                    return Ok(());
                }
                Given::Enough => return Ok(()),
            }
        }
    }

    /// What serves for listing from position `at` on.
    fn known(&self, folder: Node, at: u64) -> Option<Arc<Listing>> {
        self.listings.get(folder).filter(|listing| match &**listing {
            Listing::Snapshot(snapshot) => self.is_immutable || at > 0 && snapshot.is_fresh() && snapshot.covers(at),
            Listing::Filter(_) => true,
        })
    }

    /// True if a listing from position `from` on need not scan the parts.
    pub(super) fn is_gathered(&self, folder: Node, from: u64) -> bool {
        self.known(folder, from).is_some_and(|listing| matches!(*listing, Listing::Snapshot(_)))
    }

    /// True if the parts hold so little that scanning them takes no time.
    pub(super) fn is_small(&self, parts: &[Node]) -> bool {
        let count = |&part: &Node| {
            let (tree, _, inner) = self.part(part).ok()?;
            tree.count(inner)
        };
        let counts = parts.iter().map(count).try_fold(0_u64, |sum, count| Some(sum.saturating_add(count?)));
        counts.is_some_and(|count| count <= FEW)
    }

    /// True if it is known, without a look at what the parts hold, that a snapshot would be too large.
    fn is_too_much(&self, parts: &[Node]) -> bool {
        let count = |&part: &Node| {
            let (tree, _, inner) = self.part(part).ok()?;
            tree.count(inner)
        };
        let count = parts.iter().filter_map(count).fold(0_u64, u64::saturating_add);
        let least = size_of::<(u32, Entry)>() + size_of::<u32>() + 1;
        count.saturating_mul(least as u64) > self.listings.memory.snapshot as u64
    }

    /// Scans all parts, for what stands at position `from` and behind it where something may change.
    fn gather(&self, folder: Node, parts: &[Node], from: u64) -> Result<Listing, Error> {
        let begin = Instant::now();
        let listings = &self.listings;
        if self.is_immutable && self.is_too_much(parts) {
            let mut filter = Filter::new(listings.memory.filter);
            for &part in parts {
                let (tree, _, inner) = self.part(part)?;
                tree.names(inner, &mut |name| {
                    let name = self.subject(name).map_or(name, |(name, _)| name);
                    filter.add(listings.hasher.hash_one(name));
                })?;
            }
            return Ok(Listing::Filter(filter));
        }
        let mut gathered = Gathered::new(listings, if self.is_immutable { 0 } else { from });
        for (place, &part) in parts.iter().enumerate() {
            let (tree, source, inner) = self.part(part)?;
            let mut failure = None;
            let before = gathered.entries.len();
            let scanned =
                tree.read_dir(inner, 0, &mut |child| match self.spaces.attributes(source, &child.attributes) {
                    Ok(attributes) => {
                        if let Some((name, is_mark)) = self.subject(child.name) {
                            let is_whiteout = is_mark || self.is_whiteout(&attributes);
                            gathered.add(place as u32, name, attributes, self.can_change[source], is_whiteout);
                        }
                        // Only looked at. What is handed on is looked up then.
                        tree.forget(child.attributes.node, 1);
                        true
                    }
                    Err(error) => {
                        failure = Some(error);
                        false
                    }
                });
            match failure.map_or(scanned, Err) {
                // What one that is gone hid must not show. The last one hid nothing.
                Err(error) if place > 0 && self.is_absence(source, &error) => {
                    if place + 1 < parts.len() {
                        return Err(Errno::STALE.into());
                    }
                }
                scanned => scanned?,
            }
            if self.image.is_some() {
                self.look_again(part, gathered.entries.get_mut(before..).unwrap_or_default(), &gathered.names)?;
            }
            if self.may_have_dead_links() {
                self.add_dead_links((place as u32, part), before, &mut gathered)?;
            }
        }
        match gathered.filter.take() {
            Some(filter) => Ok(Listing::Filter(filter)),
            None => Ok(Listing::Snapshot(self.snapshot(folder, parts, &mut gathered, begin)?)),
        }
    }

    /// Looks for files that folders stand in the place of: see [`UnionTree::look`].
    fn look_again(&self, part: Node, entries: &mut [(u32, Entry)], names: &[u8]) -> Result<(), Error> {
        let (_, source, _) = self.part(part)?;
        for (_, entry) in entries {
            if entry.attributes.kind == Kind::Folder && !entry.is_whiteout {
                let found = self.look(part, name_in(names, entry.start, entry.length))?;
                entry.attributes = self.spaces.attributes(source, &found)?;
            }
        }
        Ok(())
    }

    /// Adds names of a part, whose entries were gathered from that place on, that do not show in it, as hidden ones: a
    /// hard link to a file of a lower layer takes the place of what lower layers have there.
    fn add_dead_links(
        &self,
        (place, part): (u32, Node),
        before: usize,
        gathered: &mut Gathered<'_>,
    ) -> Result<(), Error> {
        let (tree, _, inner) = self.part(part)?;
        let entries = gathered.entries.get(before..).unwrap_or_default();
        let shown: HashSet<&[u8]> =
            entries.iter().map(|(_, entry)| name_in(&gathered.names, entry.start, entry.length)).collect();
        // Of what became a filter all names are looked up, if they stand there twice.
        let mut dead: Vec<Vec<u8>> = Vec::new();
        tree.names(inner, &mut |name| {
            if Mark::of(name).is_none() && !shown.contains(name) {
                dead.push(name.to_vec());
            }
        })?;
        drop(shown);
        // Of what is hidden nobody asks more than the name.
        let attributes = self.attributes(Node::ROOT)?;
        for name in dead {
            gathered.add(place, &name, attributes.clone(), false, true);
        }
        Ok(())
    }

    /// Puts what was gathered in order, and leaves out what is hidden.
    fn snapshot(
        &self,
        folder: Node,
        parts: &[Node],
        all: &mut Gathered<'_>,
        begin: Instant,
    ) -> Result<Snapshot, Error> {
        let (from, until) = (all.from, all.until);
        let (names, gathered) = (std::mem::take(&mut all.names), std::mem::take(&mut all.entries));
        let name = |entry: &Entry| name_in(&names, entry.start, entry.length);
        let mut order: Vec<u32> = (0..gathered.len() as u32).collect();
        // Stable, so of one name the rightmost comes first; and quick with runs that are in order, as sources are.
        let entry_of = |number: u32| &gathered[number as usize].1;
        // In a layer, a name stands before what hides it further left.
        let rank = |number: u32| {
            gathered
                .get(number as usize)
                .map(|(part, entry)| (self.image.is_some()).then_some((*part, entry.is_whiteout)))
        };
        order.sort_by(|&a, &b| name(entry_of(a)).cmp(name(entry_of(b))).then_with(|| rank(a).cmp(&rank(b))));
        let mut entries: Vec<Entry> = Vec::with_capacity(gathered.len());
        let mut found: Vec<Node> = Vec::new();
        let mut holds = Holds::new(&self.merged);
        for same in order.chunk_by(|&a, &b| name(entry_of(a)) == name(entry_of(b))) {
            let Some(top) = same.first().map(|&number| entry_of(number)) else { continue };
            if top.is_whiteout {
                continue;
            }
            if let Some(file) = self.kept(same, &gathered, parts, name(top))? {
                let (start, length) = (top.start, top.length);
                entries.push(Entry { start, length, attributes: file, may_change: false, is_whiteout: false });
                continue;
            }
            found.clear();
            let mut below = None;
            let is_folder = |number: &&u32| {
                let entry = entry_of(**number);
                entry.attributes.kind == Kind::Folder && !entry.is_whiteout
            };
            for number in same.iter().take_while(is_folder) {
                let (part, entry) = &gathered[*number as usize];
                let is_archive = match parts.get(*part as usize).filter(|_| same.len() > 1) {
                    Some(part) => self.is_archive(*part, name(entry), entry.attributes.node)?,
                    None => false,
                };
                if is_archive && !found.is_empty() {
                    break;
                }
                let node = entry.attributes.node;
                found.push(node);
                // Where something may change, it is looked up again.
                if is_archive {
                    break;
                }
                if same.len() > 1 && self.is_immutable && self.is_opaque(node)? {
                    let part = *part as usize;
                    let is_removed = match parts.get(part) {
                        Some(&part) => self.has_mark(part, name(entry))?,
                        None => true,
                    };
                    if !is_removed {
                        let lower = parts.get(part + 1..).unwrap_or_default();
                        below = self.told_below(found.iter().copied(), lower, name(entry))?;
                    }
                    break;
                }
            }
            let may_change = top.may_change || found.len() > 1 && !self.is_immutable;
            let attributes = top.attributes.clone();
            let attributes = if may_change { attributes } else { self.folder(folder, attributes, &found, below)? };
            if !may_change && (found.len() > 1 || below.is_some()) {
                holds.add(attributes.node);
            }
            entries.push(Entry { start: top.start, length: top.length, attributes, may_change, is_whiteout: false });
        }
        entries.shrink_to_fit();
        let positions = (!self.is_immutable).then(|| self.put_by_hash(&names, &mut entries));
        let took = begin.elapsed();
        Ok(Snapshot { names, entries, positions, from, until, made: Instant::now(), took, holds })
    }

    /// What shows as `name` instead of the folder that comes first of those `gathered` that have it: see
    /// [`UnionTree::kept_below`].
    fn kept(
        &self,
        same: &[u32],
        gathered: &[(u32, Entry)],
        parts: &[Node],
        name: &[u8],
    ) -> Result<Option<Attributes>, Error> {
        let top = same.first().and_then(|&number| gathered.get(number as usize));
        let Some((place, top)) = top.filter(|(_, top)| top.attributes.kind == Kind::Folder && same.len() > 1) else {
            return Ok(None);
        };
        let Some((part, lower)) = parts.get(*place as usize..).and_then(<[Node]>::split_first) else { return Ok(None) };
        self.kept_below((*part, top.attributes.node), lower, name)
    }

    /// Orders entries by the hashes of their names, and returns where each then stands.
    fn put_by_hash(&self, names: &[u8], entries: &mut [Entry]) -> Vec<u64> {
        let hash = |entry: &Entry| self.listings.position(name_in(names, entry.start, entry.length));
        entries.sort_by_cached_key(hash);
        let mut least = 0;
        let place = |entry: &Entry| {
            let position = hash(entry).max(least);
            least = position + 1;
            position
        };
        entries.iter().map(place).collect()
    }

    /// Lists source after source, from the right.
    fn list_sources(
        &self,
        folder: Node,
        parts: &[Node],
        filter: &Filter,
        from: u64,
        receive: &mut dyn FnMut(Child<'_>) -> bool,
    ) -> Result<(), Error> {
        let first = (from >> IN_SOURCE) as usize;
        let mut inside = from & ((1 << IN_SOURCE) - 1);
        for (place, &part) in parts.iter().enumerate().skip(first) {
            let (tree, source, inner) = self.part(part)?;
            let mut goes_on = Ok(true);
            let mut show = |child: Child<'_>| -> Result<bool, Error> {
                let mut attributes = self.spaces.attributes(source, &child.attributes)?;
                let mut is_held = false;
                if self.is_whiteout(&attributes) || self.hides(source, child.name) {
                    return Ok(true);
                }
                if filter.may_be_twice(self.listings.hasher.hash_one(child.name)) {
                    if self.has(parts.get(..place).unwrap_or_default(), child.name)? {
                        return Ok(true);
                    }
                    let rest = parts.get(place..).unwrap_or_default();
                    if let Some(merged) = self.merge(folder, rest, child.name)? {
                        (attributes, is_held) = (merged, true);
                    }
                }
                if child.next >= 1 << IN_SOURCE {
                    let what = format!("position {} in a folder: there can be none so far behind", child.next);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what).into());
                }
                let node = attributes.node;
                let is_taken = receive(Child { attributes, next: (place as u64) << IN_SOURCE | child.next, ..child });
                if !is_taken && is_held {
                    self.forget(node, 1);
                }
                Ok(is_taken)
            };
            tree.read_dir(inner, std::mem::take(&mut inside), &mut |child| {
                goes_on = show(child);
                matches!(goes_on, Ok(true))
            })?;
            if !goes_on? {
                break;
            }
        }
        Ok(())
    }

    /// True if one of `parts` has something of that name.
    fn has(&self, parts: &[Node], name: &[u8]) -> Result<bool, Error> {
        for &part in parts {
            let (tree, _, inner) = self.part(part)?;
            match tree.lookup(inner, name) {
                Ok(_) => return Ok(true),
                Err(Error::NotFound) if self.has_gap(part, name)? => return Ok(true),
                Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Of which name something in a source says something, and whether that is that it is hidden; `None` if of none.
    fn subject<'n>(&self, name: &'n [u8]) -> Option<(&'n [u8], bool)> {
        match Mark::of(name).filter(|_| self.image.is_some()) {
            None => Some((name, false)),
            Some(Mark::Hides(hidden)) => Some((hidden, true)),
            Some(Mark::Other) => None,
        }
    }
}
