//! Numbers of nodes, given out as files are met, and where each of them was seen last.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use hashbrown::HashTable;
use rustix::fs::Statx;

use crate::{Error, Node};

/// More folders in one another than there can be: the way up from a node would be a circle.
const DEEPEST: usize = 1 << 16;

/// What makes a file the same file, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    device: (u32, u32),
    inode: u64,
    /// Of a folder, the mount that it is seen through: one that is mounted twice is two, as the kernel wants each
    /// folder in one place.
    mount: u64,
    /// Kind, and time of its birth on a disk, where the number of an inode is used again. Those of other file systems
    /// are not asked for it: what a server has said and what the kernel remembers of that are not always the same.
    birth: (u16, u32),
}

impl Identity {
    pub(super) fn of(stat: &Statx) -> Self {
        /// The part of the mode that is the kind.
        const KIND: u16 = 0o170_000;
        const FOLDER: u16 = 0o040_000;
        let birth = if stat.stx_dev_major == 0 { 0 } else { stat.stx_btime.tv_nsec ^ (stat.stx_btime.tv_sec as u32) };
        Self {
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            mount: if stat.stx_mode & KIND == FOLDER { stat.stx_mnt_id } else { 0 },
            birth: (stat.stx_mode & KIND, birth),
        }
    }
}

/// Where a node was seen last.
#[derive(Debug)]
pub(super) struct SeenAt {
    pub(super) identity: Identity,
    pub(super) folder: u32,
    pub(super) name: Box<[u8]>,
}

#[derive(Debug)]
struct Entry {
    place: SeenAt,
    /// How often it was handed out and not forgotten.
    holders: u32,
    /// Entries whose folder it is.
    children: u32,
}

/// About 130 bytes for each file that somebody holds; the kernel's own share is many times that.
#[derive(Debug)]
pub(super) struct Numbers {
    entries: HashMap<u32, Entry>,
    by_identity: HashTable<u32>,
    hasher: RandomState,
    /// Where to look for a free number. Those that are forgotten come round again after all others.
    next: u32,
}

/// The root, which has no entry.
const ROOT: u32 = Node::ROOT.0 as u32;

impl Numbers {
    pub(super) fn new() -> Self {
        Self { entries: HashMap::new(), by_identity: HashTable::new(), hasher: RandomState::new(), next: ROOT }
    }

    /// The number of what was just seen as `name` in `folder`. Held once more, until [`Numbers::forget`].
    pub(super) fn hold(&mut self, identity: Identity, folder: u32, name: &[u8]) -> Result<u32, Error> {
        let Self { entries, by_identity, hasher, .. } = self;
        let of = |node: &u32| entries.get(node).map(|entry| entry.place.identity);
        let hash = hasher.hash_one(identity);
        if let Some(&node) = by_identity.find(hash, |node| of(node) == Some(identity)) {
            let Some(entry) = entries.get_mut(&node) else { return Err(stale()) };
            entry.holders = entry.holders.saturating_add(1);
            if *entry.place.name != *name {
                entry.place.name = name.into();
            }
            let before = std::mem::replace(&mut entry.place.folder, folder);
            if before != folder {
                self.adopt(folder);
                self.disown(before);
            }
            return Ok(node);
        }
        let node = self.free_number()?;
        let Self { entries, by_identity, hasher, .. } = self;
        let place = SeenAt { identity, folder, name: name.into() };
        entries.insert(node, Entry { place, holders: 1, children: 0 });
        by_identity
            .insert_unique(hash, node, |node| entries.get(node).map_or(0, |e| hasher.hash_one(e.place.identity)));
        self.adopt(folder);
        Ok(node)
    }

    fn free_number(&mut self) -> Result<u32, Error> {
        if self.entries.len() >= u32::MAX as usize - 2 {
            return Err(rustix::io::Errno::NFILE.into());
        }
        loop {
            self.next = self.next.wrapping_add(1);
            if self.next > ROOT && !self.entries.contains_key(&self.next) {
                return Ok(self.next);
            }
        }
    }

    /// Takes back `times` that [`Numbers::hold`] has given out `node`.
    pub(super) fn forget(&mut self, node: u32, times: u64) {
        if let Some(entry) = self.entries.get_mut(&node) {
            entry.holders = u64::from(entry.holders).saturating_sub(times) as u32;
        }
        self.remove_unused(node);
    }

    fn adopt(&mut self, folder: u32) {
        if let Some(entry) = self.entries.get_mut(&folder) {
            entry.children += 1;
        }
    }

    fn disown(&mut self, folder: u32) {
        if let Some(entry) = self.entries.get_mut(&folder) {
            entry.children -= 1;
        }
        self.remove_unused(folder);
    }

    /// Removes `node` if nobody needs it, and then the folders that only it needed.
    fn remove_unused(&mut self, mut node: u32) {
        while self.entries.get(&node).is_some_and(|entry| entry.holders == 0 && entry.children == 0) {
            let Some(Entry { place, .. }) = self.entries.remove(&node) else { return };
            if let Ok(found) = self.by_identity.find_entry(self.hasher.hash_one(place.identity), |other| *other == node)
            {
                found.remove();
            }
            node = place.folder;
            if let Some(entry) = self.entries.get_mut(&node) {
                entry.children -= 1;
            }
        }
    }

    pub(super) fn place(&self, node: u32) -> Result<&SeenAt, Error> {
        self.entries.get(&node).map(|entry| &entry.place).ok_or_else(stale)
    }

    /// The path of a folder from the root, without a slash at either end.
    pub(super) fn path(&self, folder: u32) -> Result<Vec<u8>, Error> {
        let (mut names, mut at) = (Vec::new(), folder);
        while at != ROOT {
            let place = self.place(at)?;
            names.push(&*place.name);
            at = place.folder;
            if names.len() > DEEPEST {
                return Err(stale());
            }
        }
        names.reverse();
        Ok(names.join(&b'/'))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// What the kernel gets of a node that is no longer where it was seen, and takes for a reason to look for it again.
pub(super) fn stale() -> Error {
    rustix::io::Errno::STALE.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(inode: u64) -> Identity {
        Identity { device: (8, 1), inode, mount: 0, birth: (0, 0) }
    }

    #[test]
    fn what_is_forgotten_is_freed_with_the_folders_that_only_it_needed() {
        let mut numbers = Numbers::new();
        let folder = numbers.hold(identity(1), ROOT, b"folder").unwrap();
        let file = numbers.hold(identity(2), folder, b"file").unwrap();
        assert_eq!(numbers.hold(identity(2), ROOT, b"other name").unwrap(), file);
        assert_eq!(numbers.hold(identity(2), folder, b"file").unwrap(), file);
        assert_eq!(numbers.path(file).unwrap(), b"folder/file");
        numbers.forget(folder, 1);
        assert_eq!((numbers.len(), numbers.path(file).unwrap()), (2, b"folder/file".to_vec()));
        numbers.forget(file, 2);
        assert_eq!(numbers.len(), 2);
        numbers.forget(file, 1);
        assert_eq!((numbers.len(), numbers.by_identity.len()), (0, 0));
        numbers.forget(file, 1);
        assert_ne!(numbers.hold(identity(2), ROOT, b"file").unwrap(), file, "not at once the same number again");
    }

    #[test]
    fn numbers_come_round_and_are_never_two_files() {
        let mut numbers = Numbers::new();
        let first = numbers.hold(identity(1), ROOT, b"a").unwrap();
        numbers.next = u32::MAX - 1;
        assert_eq!(numbers.hold(identity(2), ROOT, b"b").unwrap(), u32::MAX);
        let third = numbers.hold(identity(3), ROOT, b"c").unwrap();
        assert!(third > ROOT && third != first);
    }

    #[test]
    fn a_circle_has_an_end() {
        let mut numbers = Numbers::new();
        let outer = numbers.hold(identity(1), ROOT, b"a").unwrap();
        let inner = numbers.hold(identity(2), outer, b"b").unwrap();
        numbers.hold(identity(1), inner, b"a").unwrap();
        assert!(numbers.path(inner).is_err());
    }
}
