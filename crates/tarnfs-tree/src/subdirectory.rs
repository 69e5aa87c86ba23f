//! A folder of a tree as the root of one.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tarnfs_source::SharedSource;

use crate::{Attributes, Child, Error, Kind, Node, Totals, Tree, Work, Xattrs, path};

/// What lies below one folder of a tree.
///
/// Its root has the folder's place; all else keeps its number. What is outside is not reached by any name.
pub struct Subdirectory {
    tree: Arc<dyn Tree>,
    path: Vec<u8>,
    is_immutable: bool,
    /// The folder: where it can become another one, the one that it was last. It is held, as numbers of what is in it refer to it.
    root: Mutex<Node>,
}

impl fmt::Debug for Subdirectory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Subdirectory").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Subdirectory {
    /// What lies below `path` in `tree`. Fails where there is no folder.
    pub fn new(tree: Arc<dyn Tree>, path: &[u8]) -> Result<Self, Error> {
        let found = path::find(&*tree, path, true)?;
        if found.kind != Kind::Folder {
            return Err(Error::NotAFolder);
        }
        let is_immutable = tree.totals().is_immutable;
        Ok(Self { tree, path: path.to_vec(), is_immutable, root: Mutex::new(found.node) })
    }

    /// The folder. In a tree that changes it is looked for each time, as if its path stood before each one that is asked for.
    fn root(&self) -> Result<Node, Error> {
        let mut root = self.root.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_immutable {
            let found = path::find(&*self.tree, &self.path, true)?;
            self.tree.forget(std::mem::replace(&mut *root, found.node), 1);
            if found.kind != Kind::Folder {
                return Err(Error::NotAFolder);
            }
        }
        Ok(*root)
    }

    /// Does `work` with what `node` is in the tree.
    fn with<T>(&self, node: Node, work: impl FnOnce(&dyn Tree, Node) -> Result<T, Error>) -> Result<T, Error> {
        work(&*self.tree, if node == Node::ROOT { self.root()? } else { node })
    }
}

impl Tree for Subdirectory {
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        self.with(folder, |tree, inner| tree.lookup(inner, name))
    }

    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        self.with(folder, |tree, inner| tree.read_dir(inner, from, receive))
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        Ok(Attributes { node, ..self.with(node, |tree, inner| tree.attributes(inner))? })
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        if folder == Node::ROOT {
            return Ok(folder);
        }
        let parent = self.tree.parent(folder)?;
        Ok(if parent == self.root()? { Node::ROOT } else { parent })
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>, Error> {
        self.with(node, |tree, inner| tree.read_link(inner))
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        self.with(node, |tree, inner| tree.xattrs(inner))
    }

    fn versions(&self, folder: Node, name: &[u8]) -> Result<Vec<Attributes>, Error> {
        self.with(folder, |tree, inner| tree.versions(inner, name))
    }

    fn node_limit(&self) -> u64 {
        self.tree.node_limit()
    }

    fn is_ready(&self, node: Node) -> bool {
        self.with(node, |tree, inner| Ok(tree.is_ready(inner))).unwrap_or(true)
    }

    fn forget(&self, node: Node, times: u64) {
        if node != Node::ROOT {
            self.tree.forget(node, times);
        }
    }

    fn close_folder(&self, folder: Node) {
        // Where the root is now, nobody has to know for that: what is gone is closed.
        let _ = self.with(folder, |tree, inner| {
            tree.close_folder(inner);
            Ok(())
        });
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        self.with(node, |tree, inner| tree.open(inner))
    }

    fn owner_names(&self, node: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        self.with(node, |tree, inner| tree.owner_names(inner))
    }

    fn totals(&self) -> Totals {
        self.tree.totals()
    }

    fn work(&self) -> Work {
        self.tree.work()
    }
}
