//! Folders with several parts, and their numbers.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::spaces::OWN;
use crate::{Error, Node};

/// The parts of a folder, the rightmost first, as numbers of the union.
pub(super) type Parts = Arc<[Node]>;

/// Of what cannot change, so many folders are known although nobody holds them. An NFS server may ask for numbers that
/// the kernel has forgotten. Each takes about 250 bytes.
pub(super) const MOST_UNHELD: usize = 1 << 16;

/// The merged folders that somebody holds, and of what cannot change those that were forgotten last.
#[derive(Debug)]
pub(super) struct Merged {
    folders: HashMap<u32, Folder>,
    /// Where to look for a free number. Those that are gone come round again after all others.
    next: u32,
    /// Those that nobody holds any more; some may have been looked up again since.
    unheld: VecDeque<u32>,
    most_unheld: usize,
    /// The merged folder that a part is in: where a source changes, the one that was met last.
    whole: HashMap<Node, u32>,
    numbers: HashMap<(Node, Parts), u32>,
}

#[derive(Debug)]
struct Folder {
    parent: Node,
    parts: Parts,
    /// What says what it is where no part does. Nothing of what is in that shows.
    below: Option<Node>,
    /// How often it was given out and not forgotten.
    held: AtomicU64,
    /// It is among the unheld ones.
    is_listed: bool,
}

/// The number of the root.
const ROOT: u32 = Node::ROOT.0 as u32;

impl Merged {
    /// Knows the root, whose parts are `roots`. Of what cannot change, so many are known that nobody holds.
    pub(super) fn new(roots: &[Node], most_unheld: usize) -> Self {
        let root = Folder {
            parent: Node::ROOT,
            parts: Arc::from(roots),
            below: None,
            held: AtomicU64::new(1),
            is_listed: false,
        };
        Self {
            folders: HashMap::from([(ROOT, root)]),
            next: ROOT,
            unheld: VecDeque::new(),
            most_unheld,
            whole: roots.iter().map(|&root| (root, ROOT)).collect(),
            numbers: HashMap::new(),
        }
    }

    fn folder(&self, node: Node) -> Option<&Folder> {
        self.folders.get(&u32::try_from(node.0).ok()?)
    }

    /// The parts of a merged folder.
    pub(super) fn parts(&self, node: Node) -> Option<&Parts> {
        self.folder(node).map(|folder| &folder.parts)
    }

    /// The folder that says what a merged folder is where none of its parts does.
    pub(super) fn below(&self, node: Node) -> Option<Node> {
        self.folder(node)?.below
    }

    /// The folder in which a merged folder is.
    pub(super) fn parent(&self, node: Node) -> Option<Node> {
        self.folder(node).map(|folder| folder.parent)
    }

    /// The merged folder of which `part` is a part.
    pub(super) fn whole(&self, part: Node) -> Option<Node> {
        self.whole.get(&part).map(|&number| Node(number.into()))
    }

    /// The number of the folder in `parent` that has these parts, if there is one, held once more.
    pub(super) fn find(&self, parent: Node, parts: &[Node]) -> Option<Node> {
        let node = self.numbers.get(&(parent, Arc::from(parts))).map(|&number| Node(number.into()))?;
        self.hold_again(node).then_some(node)
    }

    /// Holds a folder once more. False if it is not known any more.
    pub(super) fn hold_again(&self, node: Node) -> bool {
        self.folder(node).map(|folder| folder.held.fetch_add(1, Ordering::Relaxed)).is_some()
    }

    /// As [`Merged::find`]; it gets a number if it has none.
    pub(super) fn hold(&mut self, parent: Node, parts: &[Node], below: Option<Node>) -> Result<Node, Error> {
        if let Some(node) = self.find(parent, parts) {
            return Ok(node);
        }
        if self.folders.len() as u64 >= OWN - 1 {
            return Err(io::Error::other("there are more folders than numbers for them").into());
        }
        while self.next < ROOT || self.folders.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        let parts: Parts = Arc::from(parts);
        let folder = Folder { parent, parts: Arc::clone(&parts), below, held: AtomicU64::new(1), is_listed: false };
        self.folders.insert(number, folder);
        self.next = number.wrapping_add(1);
        self.whole.extend(parts.iter().map(|&part| (part, number)));
        self.numbers.insert((parent, parts), number);
        Ok(Node(number.into()))
    }

    /// Holds it less often. What nobody holds any more is gone, at once or after others.
    pub(super) fn release(&mut self, node: Node, times: u64) {
        let Ok(number) = u32::try_from(node.0) else { return };
        let Some(folder) = self.folders.get_mut(&number).filter(|_| number != ROOT) else { return };
        let held = folder.held.get_mut();
        *held = held.saturating_sub(times);
        if *held > 0 || std::mem::replace(&mut folder.is_listed, true) {
            return;
        }
        self.unheld.push_back(number);
        while self.unheld.len() > self.most_unheld
            && let Some(oldest) = self.unheld.pop_front()
        {
            if let Some(folder) = self.folders.get_mut(&oldest) {
                folder.is_listed = false;
                if *folder.held.get_mut() == 0 {
                    self.remove(oldest);
                }
            }
        }
    }

    fn remove(&mut self, number: u32) {
        let Some(Folder { parent, parts, .. }) = self.folders.remove(&number) else { return };
        for part in &*parts {
            if self.whole.get(part) == Some(&number) {
                self.whole.remove(part);
            }
        }
        self.numbers.remove(&(parent, parts));
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.folders.len().max(self.numbers.len() + 1)
    }

    #[cfg(test)]
    pub(super) fn keep_at_most(&mut self, most_unheld: usize) {
        self.most_unheld = most_unheld;
    }
}

/// Merged folders that a listing holds as long as it is there.
#[derive(Debug)]
pub(super) struct Holds {
    merged: Arc<RwLock<Merged>>,
    nodes: Vec<Node>,
}

impl Holds {
    pub(super) fn new(merged: &Arc<RwLock<Merged>>) -> Self {
        Self { merged: Arc::clone(merged), nodes: Vec::new() }
    }

    /// Takes over a folder that was held once.
    pub(super) fn add(&mut self, node: Node) {
        self.nodes.push(node);
    }

    pub(super) fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        if !self.nodes.is_empty() {
            let mut merged = self.merged.write().unwrap_or_else(PoisonError::into_inner);
            self.nodes.drain(..).for_each(|node| merged.release(node, 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What nobody holds is known for a while, and no more of it than there is memory for.
    #[test]
    fn what_was_forgotten_last_is_still_known() {
        let mut merged = Merged::new(&[Node(100), Node(200)], MOST_UNHELD);
        merged.keep_at_most(10);
        let parts = |number: u64| [Node(1000 + number), Node(2000 + number)];
        let nodes: Vec<Node> = (0..100).map(|number| merged.hold(Node::ROOT, &parts(number), None).unwrap()).collect();
        assert_eq!(merged.len(), 101);
        // Twice held, and once more found while it was forgotten.
        assert!(merged.hold_again(nodes[7]));
        merged.release(nodes[3], 1);
        assert_eq!(merged.find(Node::ROOT, &parts(3)), Some(nodes[3]));
        for &node in &nodes {
            merged.release(node, 1);
        }
        merged.release(nodes[99], 1);
        assert_eq!(merged.len(), 1 + 1 + 10, "the root, one that is held, and the last ten");
        assert_eq!(merged.parts(nodes[7]).map(|parts| parts.to_vec()), Some(parts(7).to_vec()));
        assert!(merged.parts(nodes[3]).is_none() && !merged.hold_again(nodes[3]) && merged.whole(Node(1003)).is_none());
        assert_eq!(merged.whole(Node(2099)), Some(nodes[99]));
        let again = merged.hold(Node::ROOT, &parts(3), None).unwrap();
        assert!(!nodes.contains(&again), "not at once the same number again");
        merged.release(Node::ROOT, 5);
        assert_eq!(merged.whole(Node(200)), Some(Node::ROOT));
    }

    #[test]
    fn numbers_come_round_and_are_never_two_folders() {
        let mut merged = Merged::new(&[Node(100), Node(200)], 0);
        let first = merged.hold(Node::ROOT, &[Node(3), Node(4)], None).unwrap();
        merged.next = u32::MAX;
        assert_eq!(merged.hold(Node::ROOT, &[Node(5), Node(6)], None).unwrap(), Node(u32::MAX.into()));
        let third = merged.hold(Node::ROOT, &[Node(7), Node(8)], None).unwrap();
        assert!(third > Node::ROOT && third != first);
    }
}
