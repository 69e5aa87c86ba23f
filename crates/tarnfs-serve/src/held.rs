//! What was looked up in a tree, until it is forgotten there.

use std::sync::Arc;

use tarnfs_tree::{Attributes, Error, Node, Tree, path};

/// A file or folder. Where nodes are numbered as they are met, its number is its own as long as this lives.
pub(crate) struct Held {
    tree: Arc<dyn Tree>,
    pub(crate) attributes: Attributes,
}

impl Held {
    /// What `path` leads to. Symbolic links are followed inside of the tree, as many as the kernel would.
    pub(crate) fn find(tree: &Arc<dyn Tree>, path: &[u8]) -> Result<Self, Error> {
        let attributes = path::find(&**tree, path, true)?;
        Ok(Self { tree: Arc::clone(tree), attributes })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Nobody looks up the root.
        if self.attributes.node != Node::ROOT {
            self.tree.forget(self.attributes.node, 1);
        }
    }
}

/// Some entries of a folder.
pub(crate) struct Listed<'a> {
    tree: &'a dyn Tree,
    pub(crate) entries: Vec<(Vec<u8>, Attributes)>,
    /// Where to go on; `None` at the end of the folder.
    pub(crate) next: Option<u64>,
}

impl<'a> Listed<'a> {
    /// Up to `most` entries of `folder` from position `from` on.
    pub(crate) fn new(tree: &'a dyn Tree, folder: Node, from: u64, most: usize) -> Result<Self, Error> {
        let mut listed = Self { tree, entries: Vec::new(), next: None };
        let (mut behind, mut has_more) = (from, false);
        tree.read_dir(folder, from, &mut |child| {
            has_more = listed.entries.len() == most;
            if !has_more {
                behind = child.next;
                listed.entries.push((child.name.to_vec(), child.attributes));
            }
            !has_more
        })?;
        listed.next = has_more.then_some(behind);
        Ok(listed)
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        for (_, attributes) in &self.entries {
            self.tree.forget(attributes.node, 1);
        }
    }
}
