//! Folders with several parts, and their numbers.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;

use crate::spaces::OWN;
use crate::{Error, Node};

/// All merged folders that were met: nothing is forgotten, since the kernel may ask for any of them at any time.
#[derive(Debug)]
pub(super) struct Merged {
    /// That of number n at n - 1; the first is the root.
    folders: Vec<Folder>,
    /// Parts of all of them, one list behind the other.
    parts: Vec<Node>,
    /// The merged folder that a part is in: where a source changes, the one that was met last.
    whole: HashMap<Node, u32>,
    /// The number by the hash of parent and parts; where two have the same, the second is found at the next free one.
    numbers: HashMap<u64, u32>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Folder {
    first: usize,
    count: u32,
    parent: u32,
}

impl Merged {
    /// Knows the root, whose parts are `roots`.
    pub(super) fn new(roots: &[Node]) -> Self {
        let mut this = Self {
            folders: Vec::new(),
            parts: Vec::new(),
            whole: HashMap::new(),
            numbers: HashMap::new(),
            hasher: RandomState::new(),
        };
        this.add(1, roots);
        this
    }

    fn folder(&self, node: Node) -> Option<&Folder> {
        let place = usize::try_from(node.0.checked_sub(1)?).ok()?;
        self.folders.get(place)
    }

    fn parts_of(&self, folder: &Folder) -> &[Node] {
        self.parts.get(folder.first..folder.first + folder.count as usize).unwrap_or_default()
    }

    /// The parts of a merged folder, the rightmost first.
    pub(super) fn parts(&self, node: Node) -> Option<&[Node]> {
        self.folder(node).map(|folder| self.parts_of(folder))
    }

    /// The folder in which a merged folder is.
    pub(super) fn parent(&self, node: Node) -> Option<Node> {
        self.folder(node).map(|folder| Node(folder.parent.into()))
    }

    /// The merged folder of which `part` is a part.
    pub(super) fn whole(&self, part: Node) -> Option<Node> {
        self.whole.get(&part).map(|&number| Node(number.into()))
    }

    /// The number of these parts, or the place in `numbers` at which it belongs.
    fn search(&self, parent: Node, parts: &[Node]) -> Result<Node, u64> {
        let mut hash = self.hasher.hash_one((parent, parts));
        while let Some(&number) = self.numbers.get(&hash) {
            let node = Node(number.into());
            if self.parent(node) == Some(parent) && self.parts(node) == Some(parts) {
                return Ok(node);
            }
            hash = hash.wrapping_add(1);
        }
        Err(hash)
    }

    /// The number of the folder in `parent` that has these parts, if it has been met.
    pub(super) fn find(&self, parent: Node, parts: &[Node]) -> Option<Node> {
        self.search(parent, parts).ok()
    }

    /// The same; it gets one if it has none.
    pub(super) fn number(&mut self, parent: Node, parts: &[Node]) -> Result<Node, Error> {
        let hash = match self.search(parent, parts) {
            Ok(node) => return Ok(node),
            Err(hash) => hash,
        };
        let full = || io::Error::other("there are more folders than numbers for them");
        let parent = u32::try_from(parent.0).map_err(|_| full())?;
        if self.folders.len() as u64 + 2 >= OWN {
            return Err(full().into());
        }
        let number = self.add(parent, parts);
        self.numbers.insert(hash, number);
        Ok(Node(number.into()))
    }

    fn add(&mut self, parent: u32, parts: &[Node]) -> u32 {
        self.folders.push(Folder { first: self.parts.len(), count: parts.len() as u32, parent });
        let number = self.folders.len() as u32;
        self.parts.extend_from_slice(parts);
        self.whole.extend(parts.iter().map(|&part| (part, number)));
        number
    }
}
