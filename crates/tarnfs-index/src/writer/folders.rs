//! The folders of the tree that is being made, in memory: about 75 bytes each, of the memory budget as far as that
//! goes. There is a limit: a path of 2 KiB may name a thousand folders that no other path names, and compresses to
//! nothing.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use tarnfs_source::Budget;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::allowance::Allowance;

/// Number of a folder, in the order in which they were first met; a folder's number is greater than its parent's.
pub(super) type Number = u32;

/// The root's number.
pub(super) const ROOT: Number = 0;

/// One folder.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Folder {
    pub(super) parent: Number,
    name_length: u8,
    /// False for one that only a hard link's target names: then there need not be one.
    pub(super) is_real: bool,
    pub(super) has_children: bool,
    name_start: usize,
    /// Its node; 0 while unknown, and for ever if a file has taken its place.
    pub(super) node: u32,
    /// Node of its first child.
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) subfolders: u32,
}

/// Bytes of each that others take: for the order in which they are written (8), or while records are sorted (4);
/// whether it shows at all (1); and bits of [`super::clashes::Clashes`].
const BESIDE: usize = 10;

/// All folders.
#[derive(Debug)]
pub(super) struct Folders {
    all: Vec<Folder>,
    names: Vec<u8>,
    by_name: HashTable<Number>,
    /// Unknown to whoever makes archives, so nobody can make names that collide.
    seed: u64,
    /// Of the memory that they take: enough for some 14 million, unless all that is there is too little.
    allowance: Allowance,
}

impl Folders {
    /// The root alone. What comes is taken from `budget`, so that others make do with less.
    pub(super) fn new(budget: &Budget) -> Self {
        let root = Folder { is_real: true, ..Folder::default() };
        let seed = RandomState::new().hash_one(0);
        Self { all: vec![root], names: Vec::new(), by_name: HashTable::new(), seed, allowance: Allowance::new(budget) }
    }

    /// Bytes of memory that they take.
    pub(super) fn bytes(&self) -> usize {
        let beside = self.all.len().saturating_mul(BESIDE);
        let fixed = self.all.capacity().saturating_mul(size_of::<Folder>());
        let table = self.by_name.capacity().saturating_mul(size_of::<Number>().saturating_add(1));
        fixed.saturating_add(self.names.capacity()).saturating_add(table).saturating_add(beside)
    }

    /// Bytes that they take, if that is more than they may. Takes from the budget what was added.
    pub(super) fn beyond_limit(&mut self) -> Option<usize> {
        self.allowance.beyond(self.bytes())
    }

    /// Forgets what writing has found out.
    pub(super) fn reset(&mut self) {
        for folder in &mut self.all {
            *folder = Folder { node: 0, first: 0, count: 0, subfolders: 0, ..*folder };
        }
        if let Some(root) = self.all.first_mut() {
            root.node = 1;
        }
    }

    /// All, by number.
    pub(super) fn all(&self) -> &[Folder] {
        &self.all
    }

    pub(super) fn get(&self, number: Number) -> Folder {
        self.all.get(number as usize).copied().unwrap_or_default()
    }

    /// For changing it.
    pub(super) fn get_mut(&mut self, number: Number) -> Option<&mut Folder> {
        self.all.get_mut(number as usize)
    }

    pub(super) fn name(&self, folder: &Folder) -> &[u8] {
        name_of(&self.names, folder)
    }

    /// The folder `name` in `parent`, if it is known.
    pub(super) fn find(&self, parent: Number, name: &[u8]) -> Option<Number> {
        let is_it = |number: &Number| {
            let folder = self.all.get(*number as usize);
            folder.is_some_and(|folder| folder.parent == parent && self.name(folder) == name)
        };
        self.by_name.find(hash_of(self.seed, parent, name), is_it).copied()
    }

    /// The folder `name` in `parent`, which becomes known if it was not.
    pub(super) fn child(&mut self, parent: Number, name: &[u8]) -> Number {
        let (folders, names, seed) = (&mut self.all, &mut self.names, self.seed);
        let is_it = |number: &Number| {
            folders
                .get(*number as usize)
                .is_some_and(|folder| folder.parent == parent && name_of(names, folder) == name)
        };
        let hash = hash_of(seed, parent, name);
        if let Some(number) = self.by_name.find(hash, is_it) {
            return *number;
        }
        let number = folders.len() as Number;
        let folder = Folder { parent, name_start: names.len(), name_length: name.len() as u8, ..Folder::default() };
        folders.push(folder);
        names.extend_from_slice(name);
        let rehash = |number: &Number| {
            folders.get(*number as usize).map_or(0, |folder| hash_of(seed, folder.parent, name_of(names, folder)))
        };
        self.by_name.insert_unique(hash, number, rehash);
        number
    }
}

fn hash_of(seed: u64, parent: Number, name: &[u8]) -> u64 {
    xxh3_64_with_seed(name, seed ^ u64::from(parent).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn name_of<'a>(names: &'a [u8], folder: &Folder) -> &'a [u8] {
    let end = folder.name_start.saturating_add(usize::from(folder.name_length));
    names.get(folder.name_start..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_take_from_the_budget_and_have_a_limit() {
        let budget = Budget::new(64 << 20);
        let mut folders = Folders::new(&budget);
        folders.allowance.most = 32 << 20;
        let mut number = ROOT;
        let mut most = 0;
        while folders.beyond_limit().is_none() {
            // What the budget has given covers what is taken.
            assert!(budget.used() >= folders.bytes());
            number = if number.is_multiple_of(1000) { ROOT } else { number };
            number = folders.child(number, format!("{:020}", folders.all().len()).as_bytes());
            most += 1;
        }
        assert!((200_000..700_000).contains(&most), "{most} folders of {} bytes", folders.bytes());
        assert!(folders.bytes() > 32 << 20);
        drop(folders);
        assert_eq!(budget.used(), 0);
        // Where others have it all, they go on without.
        let all = budget.take(64 << 20);
        let mut folders = Folders::new(&budget);
        for name in 0..300_000_u32 {
            folders.child(ROOT, &name.to_le_bytes());
            assert_eq!(folders.beyond_limit(), None);
        }
        assert_eq!((folders.allowance.grants.len(), all.is_some()), (0, true));
    }
}
