//! A folder of a tree as the root of one.

use std::fmt;
use std::sync::Arc;

use tarnfs_source::SharedSource;

use crate::{Attributes, Child, Error, Kind, Node, Totals, Tree, Work, Xattrs, path};

/// What lies below one folder of a tree.
///
/// Its root has the folder's place; all else keeps its number. What is outside is not reached by any name.
pub struct Subdirectory {
    tree: Arc<dyn Tree>,
    path: Vec<u8>,
    /// The folder, if it cannot become another one.
    root: Option<Node>,
}

impl fmt::Debug for Subdirectory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Subdirectory").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Subdirectory {
    /// What lies below `path` in `tree`. Fails where there is no folder.
    pub fn new(tree: Arc<dyn Tree>, path: &[u8]) -> Result<Self, Error> {
        let mut this = Self { tree, path: path.to_vec(), root: None };
        let root = this.root()?;
        if this.tree.totals().is_immutable {
            this.root = Some(root);
        }
        Ok(this)
    }

    /// The folder. In a tree that changes it is looked for each time, as if its path stood before each one that is asked for.
    fn root(&self) -> Result<Node, Error> {
        if let Some(root) = self.root {
            return Ok(root);
        }
        let found = path::find(&*self.tree, &self.path, true)?;
        if found.kind == Kind::Folder { Ok(found.node) } else { Err(Error::NotAFolder) }
    }

    fn inner(&self, node: Node) -> Result<Node, Error> {
        if node == Node::ROOT { self.root() } else { Ok(node) }
    }
}

impl Tree for Subdirectory {
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        self.tree.lookup(self.inner(folder)?, name)
    }

    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        self.tree.read_dir(self.inner(folder)?, from, receive)
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        Ok(Attributes { node, ..self.tree.attributes(self.inner(node)?)? })
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        if folder == Node::ROOT {
            return Ok(folder);
        }
        let parent = self.tree.parent(folder)?;
        Ok(if parent == self.root()? { Node::ROOT } else { parent })
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>, Error> {
        self.tree.read_link(self.inner(node)?)
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        self.tree.xattrs(self.inner(node)?)
    }

    fn versions(&self, folder: Node, name: &[u8]) -> Result<Vec<Attributes>, Error> {
        self.tree.versions(self.inner(folder)?, name)
    }

    fn node_limit(&self) -> u64 {
        self.tree.node_limit()
    }

    fn is_ready(&self, node: Node) -> bool {
        self.inner(node).is_ok_and(|inner| self.tree.is_ready(inner))
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        self.tree.open(self.inner(node)?)
    }

    fn owner_names(&self, node: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        self.tree.owner_names(self.inner(node)?)
    }

    fn totals(&self) -> Totals {
        self.tree.totals()
    }

    fn work(&self) -> Work {
        self.tree.work()
    }
}
