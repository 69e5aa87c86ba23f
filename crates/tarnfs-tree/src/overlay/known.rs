//! What the kernel knows: nodes that it was given, and how they are found again.
//!
//! A node of what is below is changed by its path, so it is kept in which folder it was seen, and under which name, for
//! as long as the kernel knows it. About 100 bytes for each; the kernel's own share is many times that.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use crate::Node;

/// Names of one file that are kept, at most: those that were seen last.
const MOST_NAMES: usize = 64;

/// Where a node was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenAt {
    pub(super) folder: Node,
    pub(super) name: Box<[u8]>,
}

/// What else is known of where a node was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sight {
    /// Among older versions it is not at its place: that counts only where no other is known.
    pub(super) is_version: bool,
    /// It has other names, which may become names of another file.
    pub(super) is_linked: bool,
}

#[derive(Debug, Default)]
struct Entry {
    /// How often it was given out and not forgotten.
    holders: u64,
    /// Nodes that were seen in it last: they are found again by it.
    children: u64,
    /// Nobody holds it but those: what is below holds it for them, once.
    is_kept: bool,
    /// Of what is below and is not changed, or has several names there: where it was seen last.
    seen: Option<SeenAt>,
    /// Of what has several names: where else it was seen.
    others: Vec<SeenAt>,
    is_linked: bool,
    /// It has no name any more.
    is_gone: bool,
}

/// A node that is held less often than before.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Forgotten {
    pub(super) node: Node,
    /// How often what is below is to forget it, if it is of that.
    pub(super) times: u64,
    /// Nobody knows it any more.
    pub(super) is_unknown: bool,
}

/// Nodes that somebody knows.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<HashMap<Node, Entry>>);

impl Known {
    fn entries(&self) -> MutexGuard<'_, HashMap<Node, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node of the overlay is given to somebody.
    pub(super) fn hold(&self, node: Node) {
        self.entries().entry(node).or_default().holders += 1;
    }

    /// A node of what is below is, which was seen as `name` in `folder`: that is known as long as it is. Returns what
    /// is to be forgotten of where it was seen before.
    #[must_use]
    pub(super) fn hold_seen(&self, node: Node, folder: Node, name: &[u8], sight: Sight) -> Vec<Forgotten> {
        let mut entries = self.entries();
        let entry = entries.entry(node).or_default();
        entry.holders += 1;
        if sight.is_version && entry.seen.is_some() && !entry.is_gone {
            return Vec::new();
        }
        entry.is_gone = false;
        entry.is_linked = sight.is_linked;
        match &mut entry.seen {
            Some(seen) if seen.folder == folder && *seen.name == *name => return Vec::new(),
            Some(seen) if seen.folder == folder && !sight.is_linked => {
                seen.name = name.into();
                return Vec::new();
            }
            _ => {}
        }
        let seen = SeenAt { folder, name: name.into() };
        let place = entry.others.iter().position(|other| *other == seen);
        let before = entry.seen.replace(seen);
        if let Some(place) = place {
            // Both are known as before.
            match before {
                Some(before) => entry.others[place] = before,
                None => drop(entry.others.swap_remove(place)),
            }
            return Vec::new();
        }
        let mut dropped = before;
        if sight.is_linked
            && let Some(before) = dropped.take()
        {
            entry.others.push(before);
            if entry.others.len() > MOST_NAMES {
                dropped = Some(entry.others.remove(0));
            }
        }
        entries.entry(folder).or_default().children += 1;
        let mut forgotten = Vec::new();
        if let Some(dropped) = dropped {
            disown(&mut entries, dropped.folder, &mut forgotten);
        }
        forgotten
    }

    /// Somebody forgets it. Returns what that means for it, and for where it was seen.
    pub(super) fn forget(&self, node: Node, times: u64) -> Vec<Forgotten> {
        let mut entries = self.entries();
        let mut forgotten = Vec::new();
        let Some(entry) = entries.get_mut(&node) else {
            return vec![Forgotten { node, times, is_unknown: true }];
        };
        entry.holders = entry.holders.saturating_sub(times);
        if entry.holders == 0 && entry.children > 0 && !entry.is_kept {
            entry.is_kept = true;
            return vec![Forgotten { node, times: times.saturating_sub(1), is_unknown: false }];
        }
        let is_unknown = entry.holders == 0 && entry.children == 0;
        forgotten.push(Forgotten { node, times, is_unknown });
        if is_unknown {
            remove(&mut entries, node, &mut forgotten);
        }
        forgotten
    }

    /// A node of what is below was not given to anybody after all. What is below knows that already.
    pub(super) fn take_back(&self, node: Node) -> Vec<Forgotten> {
        let mut entries = self.entries();
        let mut forgotten = Vec::new();
        let Some(entry) = entries.get_mut(&node) else { return forgotten };
        entry.holders = entry.holders.saturating_sub(1);
        if entry.holders == 0 && entry.children == 0 {
            remove(&mut entries, node, &mut forgotten);
        }
        forgotten
    }

    pub(super) fn is_known(&self, node: Node) -> bool {
        self.entries().contains_key(&node)
    }

    pub(super) fn seen(&self, node: Node) -> Option<SeenAt> {
        self.entries().get(&node)?.seen.clone()
    }

    /// All the places of a node that was seen to have several.
    pub(super) fn places(&self, node: Node) -> Vec<SeenAt> {
        match self.entries().get(&node) {
            Some(entry) if entry.is_linked => entry.seen.iter().chain(&entry.others).cloned().collect(),
            _ => Vec::new(),
        }
    }

    /// The name of a node of what is below was removed.
    pub(super) fn gone(&self, node: Node) {
        if let Some(entry) = self.entries().get_mut(&node) {
            entry.is_gone = true;
        }
    }

    pub(super) fn is_gone(&self, node: Node) -> bool {
        self.entries().get(&node).is_some_and(|entry| entry.is_gone)
    }
}

/// Nobody knows a node any more.
fn remove(entries: &mut HashMap<Node, Entry>, node: Node, forgotten: &mut Vec<Forgotten>) {
    let Some(entry) = entries.remove(&node) else { return };
    for seen in entry.seen.into_iter().chain(entry.others) {
        disown(entries, seen.folder, forgotten);
    }
}

/// Something that was seen in `folder` is not known any more, or was seen elsewhere.
fn disown(entries: &mut HashMap<Node, Entry>, mut folder: Node, forgotten: &mut Vec<Forgotten>) {
    while let Some(entry) = entries.get_mut(&folder) {
        entry.children = entry.children.saturating_sub(1);
        if entry.children > 0 {
            return;
        }
        let (was_kept, is_unknown) = (std::mem::take(&mut entry.is_kept), entry.holders == 0);
        if was_kept || is_unknown {
            // One that nobody has held was known for what is in it alone.
            forgotten.push(Forgotten { node: folder, times: u64::from(was_kept), is_unknown });
        }
        if !is_unknown {
            return;
        }
        let Some(Entry { seen: Some(seen), .. }) = entries.remove(&folder) else { return };
        folder = seen.folder;
    }
}

/// Nodes of what is below that were changed, as far as they were met: each is held there for good.
#[derive(Debug, Default)]
pub(super) struct Met(RwLock<MetBoth>);

#[derive(Debug, Default)]
struct MetBoth {
    by_lower: HashMap<Node, u64>,
    by_id: HashMap<u64, Node>,
}

impl Met {
    /// The number in the overlay of a node of what is below.
    pub(super) fn id(&self, lower: Node) -> Option<u64> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).by_lower.get(&lower).copied()
    }

    /// The node of what is below that a node of the overlay stands for.
    pub(super) fn lower(&self, id: u64) -> Option<Node> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).by_id.get(&id).copied()
    }

    /// Says that they are the same.
    pub(super) fn meet(&self, id: u64, lower: Node) {
        let mut both = self.0.write().unwrap_or_else(PoisonError::into_inner);
        both.by_lower.insert(lower, id);
        both.by_id.insert(id, lower);
    }

    /// What is below of it is not at its path any more. The kernel may know it by that number yet.
    pub(super) fn lose(&self, id: u64) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).by_id.remove(&id);
    }

    /// A node of the overlay is gone. What is below keeps its number: the kernel may know it yet.
    pub(super) fn part(&self, id: u64) {
        let mut both = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(lower) = both.by_id.remove(&id) {
            both.by_lower.remove(&lower);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Sight = Sight { is_version: false, is_linked: false };
    const VERSION: Sight = Sight { is_version: true, ..ONE };
    const LINKED: Sight = Sight { is_linked: true, ..ONE };

    fn forgotten(node: u64, times: u64, is_unknown: bool) -> Forgotten {
        Forgotten { node: Node(node), times, is_unknown }
    }

    #[test]
    fn a_folder_is_held_for_what_was_seen_in_it() {
        let known = Known::default();
        let (root, outer, inner, other, file) = (Node::ROOT, Node(10), Node(11), Node(12), Node(13));
        for (node, folder) in [(outer, root), (inner, outer), (other, root), (file, other), (file, inner)] {
            assert_eq!(known.hold_seen(node, folder, b"name", ONE), []);
        }
        // The file was seen elsewhere by now.
        assert_eq!(known.forget(other, 1), [forgotten(12, 1, true)]);
        assert_eq!(known.forget(outer, 1), [forgotten(10, 0, false)]);
        assert_eq!(known.forget(inner, 1), [forgotten(11, 0, false)]);
        assert_eq!(known.seen(file).unwrap().folder, inner);
        assert_eq!(known.seen(inner).unwrap().folder, outer);
        // Looked up once more, and forgotten: what is held for the file stays.
        assert_eq!(known.hold_seen(inner, outer, b"name", ONE), []);
        assert_eq!(known.forget(inner, 1), [forgotten(11, 1, false)]);
        assert_eq!(known.forget(file, 1), [forgotten(13, 1, false)]);
        let all = [forgotten(13, 1, true), forgotten(11, 1, true), forgotten(10, 1, true), forgotten(1, 0, true)];
        assert_eq!(known.forget(file, 1), all);
        assert!(known.entries().is_empty());
    }

    #[test]
    fn a_folder_that_is_looked_up_again_is_held_by_who_did() {
        let known = Known::default();
        let (folder, file) = (Node(10), Node(11));
        assert_eq!(known.hold_seen(folder, Node::ROOT, b"folder", ONE), []);
        assert_eq!(known.hold_seen(file, folder, b"file", ONE), []);
        assert_eq!(known.forget(folder, 1), [forgotten(10, 0, false)]);
        assert_eq!(known.hold_seen(folder, Node::ROOT, b"folder", ONE), []);
        assert_eq!(known.hold_seen(file, Node::ROOT, b"file", ONE), [forgotten(10, 1, false)]);
        assert_eq!(known.take_back(file), []);
        assert_eq!(known.forget(folder, 1), [forgotten(10, 1, true)]);
        assert_eq!(known.forget(file, 1), [forgotten(11, 1, true), forgotten(1, 0, true)]);
        assert!(known.entries().is_empty());
    }

    /// The last version of a file has its number.
    #[test]
    fn a_place_among_older_versions_does_not_replace_the_real_one() {
        let known = Known::default();
        let (root, versions, file) = (Node::ROOT, Node(10), Node(11));
        assert_eq!(known.hold_seen(versions, root, b"file.versions", ONE), []);
        assert_eq!(known.hold_seen(file, versions, b"1", VERSION), []);
        assert_eq!(known.seen(file).unwrap().folder, versions);
        assert_eq!(known.hold_seen(file, root, b"file", ONE), []);
        assert_eq!(known.hold_seen(file, versions, b"1", VERSION), []);
        let seen = known.seen(file).unwrap();
        assert_eq!((seen.folder, &*seen.name), (root, b"file".as_slice()));
        // Its name was removed.
        known.gone(file);
        assert_eq!(known.hold_seen(file, versions, b"1", VERSION), []);
        assert_eq!((known.seen(file).unwrap().folder, known.is_gone(file)), (versions, false));
        assert_eq!(known.forget(file, 4), [forgotten(11, 4, true)]);
        let all = [forgotten(10, 1, true), forgotten(1, 0, true)];
        assert_eq!(known.forget(versions, 1), all);
        assert!(known.entries().is_empty());
    }

    #[test]
    fn all_names_of_a_file_are_known_and_their_folders_held() {
        let known = Known::default();
        let (root, folder, file) = (Node::ROOT, Node(10), Node(11));
        assert_eq!(known.hold_seen(folder, root, b"folder", ONE), []);
        for (at, name) in [(root, b"a"), (root, b"b"), (folder, b"c"), (root, b"a"), (root, b"a"), (folder, b"c")] {
            assert_eq!(known.hold_seen(file, at, name, LINKED), []);
        }
        let mut places: Vec<_> = known.places(file).into_iter().map(|seen| (seen.folder.0, seen.name[0])).collect();
        assert_eq!(places[0], (10, b'c'));
        places.sort_unstable();
        assert_eq!(places, [(1, b'a'), (1, b'b'), (10, b'c')]);
        assert_eq!(known.forget(folder, 1), [forgotten(10, 0, false)]);
        let mut all = known.forget(file, 6);
        all.sort_by_key(|forgotten| forgotten.node.0);
        assert_eq!(all, [forgotten(1, 0, true), forgotten(10, 1, true), forgotten(11, 6, true)]);
        assert!(known.entries().is_empty());
        // Not more of them than are kept.
        for number in 0..=MOST_NAMES + 10 {
            assert_eq!(known.hold_seen(file, root, number.to_string().as_bytes(), LINKED), []);
        }
        assert_eq!(known.places(file).len(), MOST_NAMES + 1);
        assert!(known.hold_seen(file, folder, b"d", LINKED).is_empty());
        assert_eq!(known.forget(file, u64::MAX).len(), 3);
        assert!(known.entries().is_empty());
    }
}
