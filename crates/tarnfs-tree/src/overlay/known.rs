//! What the kernel knows: nodes that it was given, and how they are found again.
//!
//! A node of what is below is changed by its path, so it is kept in which folder it was seen, and under which name, for
//! as long as the kernel knows it. About 100 bytes for each; the kernel's own share is many times that.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use crate::Node;

/// Where a node was seen last.
#[derive(Debug, Clone)]
pub(super) struct SeenAt {
    pub(super) folder: Node,
    pub(super) name: Box<[u8]>,
}

#[derive(Debug, Default)]
struct Entry {
    /// How often it was given out and not forgotten.
    holders: u64,
    /// Of what is below and is not changed.
    seen: Option<SeenAt>,
    /// It has no name any more.
    is_gone: bool,
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

    /// A node of what is below is.
    pub(super) fn hold_seen(&self, node: Node, folder: Node, name: &[u8]) {
        let mut entries = self.entries();
        let entry = entries.entry(node).or_default();
        entry.holders += 1;
        match &mut entry.seen {
            Some(seen) if seen.folder == folder && *seen.name == *name => {}
            seen => *seen = Some(SeenAt { folder, name: name.into() }),
        }
        entry.is_gone = false;
    }

    /// Somebody forgets it; true if nobody knows it any more.
    pub(super) fn forget(&self, node: Node, times: u64) -> bool {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(&node) else { return true };
        entry.holders = entry.holders.saturating_sub(times);
        let is_unknown = entry.holders == 0;
        if is_unknown {
            entries.remove(&node);
        }
        is_unknown
    }

    pub(super) fn is_known(&self, node: Node) -> bool {
        self.entries().contains_key(&node)
    }

    pub(super) fn seen(&self, node: Node) -> Option<SeenAt> {
        self.entries().get(&node)?.seen.clone()
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

    /// A node of the overlay is gone. What is below keeps its number: the kernel may know it yet.
    pub(super) fn part(&self, id: u64) {
        let mut both = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(lower) = both.by_id.remove(&id) {
            both.by_lower.remove(&lower);
        }
    }
}
