//! Folders with several parts, and their numbers.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use crate::spaces::OWN;
use crate::{Error, Node};

/// The parts of a folder, the rightmost first, as numbers of the union.
pub(super) type Parts = Arc<[Node]>;

/// The merged folders that were met. Where nothing can change they are kept for good, since the kernel may ask for any
/// of them at any time; else until it has forgotten them.
#[derive(Debug, Default)]
pub(super) struct Merged {
    /// That of number n at n - 1; the first is the root.
    folders: Vec<Folder>,
    /// Numbers that were forgotten.
    free: Vec<u32>,
    /// The merged folder that a part is in: where a source changes, the one that was met last.
    whole: HashMap<Node, u32>,
    numbers: HashMap<(Node, Parts), u32>,
}

#[derive(Debug)]
struct Folder {
    parent: Node,
    /// Empty for a number that is free.
    parts: Parts,
    /// How often it was looked up and not forgotten.
    held: u64,
}

impl Merged {
    /// Knows the root, whose parts are `roots`.
    pub(super) fn new(roots: &[Node]) -> Self {
        let mut this = Self::default();
        this.folders.push(Folder { parent: Node::ROOT, parts: Arc::from(roots), held: 1 });
        this.whole.extend(roots.iter().map(|&root| (root, 1)));
        this
    }

    fn folder(&self, node: Node) -> Option<&Folder> {
        let place = usize::try_from(node.0.checked_sub(1)?).ok()?;
        self.folders.get(place).filter(|folder| !folder.parts.is_empty() || node == Node::ROOT)
    }

    /// The parts of a merged folder.
    pub(super) fn parts(&self, node: Node) -> Option<&Parts> {
        self.folder(node).map(|folder| &folder.parts)
    }

    /// The folder in which a merged folder is.
    pub(super) fn parent(&self, node: Node) -> Option<Node> {
        self.folder(node).map(|folder| folder.parent)
    }

    /// The merged folder of which `part` is a part.
    pub(super) fn whole(&self, part: Node) -> Option<Node> {
        self.whole.get(&part).map(|&number| Node(number.into()))
    }

    /// The number of the folder in `parent` that has these parts, if it has been met.
    pub(super) fn find(&self, parent: Node, parts: &[Node]) -> Option<Node> {
        self.numbers.get(&(parent, Arc::from(parts))).map(|&number| Node(number.into()))
    }

    /// The same; it gets one if it has none, and is held once more.
    pub(super) fn hold(&mut self, parent: Node, parts: &[Node]) -> Result<Node, Error> {
        if let Some(node) = self.find(parent, parts) {
            if let Some(folder) = self.folders.get_mut(node.0 as usize - 1) {
                folder.held += 1;
            }
            return Ok(node);
        }
        let parts: Parts = Arc::from(parts);
        let folder = Folder { parent, parts: Arc::clone(&parts), held: 1 };
        let number = if let Some(number) = self.free.pop() {
            self.folders[number as usize - 1] = folder;
            number
        } else {
            let number = u32::try_from(self.folders.len() + 1).ok().filter(|&number| u64::from(number) < OWN);
            let full = || io::Error::other("there are more folders than numbers for them");
            let number = number.ok_or_else(full)?;
            self.folders.push(folder);
            number
        };
        self.whole.extend(parts.iter().map(|&part| (part, number)));
        self.numbers.insert((parent, parts), number);
        Ok(Node(number.into()))
    }

    /// Holds it less often; what nobody holds any more is gone.
    pub(super) fn release(&mut self, node: Node, times: u64) {
        if node == Node::ROOT || self.folder(node).is_none() {
            return;
        }
        let Some(folder) = self.folders.get_mut(node.0 as usize - 1) else { return };
        folder.held = folder.held.saturating_sub(times);
        if folder.held > 0 {
            return;
        }
        let parts = std::mem::replace(&mut folder.parts, Arc::from([]));
        let (parent, number) = (folder.parent, node.0 as u32);
        for part in &*parts {
            if self.whole.get(part) == Some(&number) {
                self.whole.remove(part);
            }
        }
        self.numbers.remove(&(parent, parts));
        self.free.push(number);
    }
}
