//! A folder of a tree as the root of one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tarnfs_source::SharedSource;

use crate::{Attributes, Child, Error, HeldUp, Kind, Lifetime, Node, Totals, Tree, Waiting, Work, Xattrs, path};

/// What lies below one folder of a tree.
///
/// Its root has the folder's place; all else keeps its number. What is outside is not reached by any name.
pub struct Subdirectory {
    tree: Arc<dyn Tree>,
    path: Vec<u8>,
    is_immutable: bool,
    /// The folder: where it can become another one, the one that it was last. It is held, as numbers of what is in it
    /// refer to it.
    root: AtomicU64,
    /// Whether all that was asked on the way there is ready: who must not wait must not look for it otherwise.
    way_is_ready: AtomicBool,
}

impl fmt::Debug for Subdirectory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Subdirectory").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Subdirectory {
    /// What lies below `path` in `tree`. Fails where there is no folder.
    pub fn new(tree: Arc<dyn Tree>, path: &[u8]) -> Result<Self, Error> {
        let (found, way_is_ready) = walk(&*tree, path)?;
        if found.kind != Kind::Folder {
            return Err(Error::NotAFolder);
        }
        let is_immutable = tree.totals().is_immutable;
        let (root, way_is_ready) = (AtomicU64::new(found.node.0), AtomicBool::new(way_is_ready));
        Ok(Self { tree, path: path.to_vec(), is_immutable, root, way_is_ready })
    }

    /// Where the folder lies in its tree, if that is known: symbolic links lead there from the path that was given.
    pub(crate) fn place(&self) -> Option<Vec<u8>> {
        self.tree.path_of(self.last_root())
    }

    /// The folder. In a tree that changes it is looked for each time, as if its path stood before each one that is
    /// asked for.
    fn root(&self) -> Result<Node, Error> {
        if self.is_immutable {
            return Ok(self.last_root());
        }
        let (found, way_is_ready) = walk(&*self.tree, &self.path)?;
        self.way_is_ready.store(way_is_ready, Ordering::Relaxed);
        if found.kind != Kind::Folder {
            self.tree.forget(found.node, 1);
            return Err(Error::NotAFolder);
        }
        let before = self.root.swap(found.node.0, Ordering::Relaxed);
        self.tree.forget(Node(before), 1);
        Ok(found.node)
    }

    /// What the folder was when somebody looked last.
    fn last_root(&self) -> Node {
        Node(self.root.load(Ordering::Relaxed))
    }

    /// `node` in the tree, for those who must not wait.
    fn at_once(&self, node: Node) -> Node {
        if node == Node::ROOT { self.last_root() } else { node }
    }

    /// What `lifetime` is of `node`: another folder may become the root.
    fn limited(&self, node: Node, lifetime: Lifetime) -> Lifetime {
        if node == Node::ROOT { lifetime.min(Lifetime::unless(!self.is_immutable)) } else { lifetime }
    }

    /// Does `work` with what `node` is in the tree.
    fn with<T>(&self, node: Node, work: impl FnOnce(&dyn Tree, Node) -> Result<T, Error>) -> Result<T, Error> {
        work(&*self.tree, if node == Node::ROOT { self.root()? } else { node })
    }
}

/// The folder at `path`, and whether all that was asked on the way is ready.
fn walk(tree: &dyn Tree, path: &[u8]) -> Result<(Attributes, bool), Error> {
    let mut is_ready = true;
    let found = path::find_by(tree, path, true, &mut |node| is_ready = is_ready && tree.is_ready(node), &mut |_| ())?;
    Ok((found, is_ready))
}

impl Tree for Subdirectory {
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        self.with(folder, |tree, inner| tree.lookup(inner, name))
    }

    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        self.with(folder, |tree, inner| tree.read_dir(inner, from, receive))
    }

    fn has_name(&self, folder: Node, name: &[u8]) -> Result<bool, Error> {
        self.with(folder, |tree, inner| tree.has_name(inner, name))
    }

    fn names(&self, folder: Node, receive: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        self.with(folder, |tree, inner| tree.names(inner, receive))
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        Ok(Attributes { node, ..self.with(node, |tree, inner| tree.attributes(inner))? })
    }

    fn is_implied(&self, folder: Node) -> bool {
        self.tree.is_implied(self.at_once(folder))
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        if folder == Node::ROOT {
            return Ok(folder);
        }
        let parent = self.tree.parent(folder)?;
        Ok(if parent == self.last_root() { Node::ROOT } else { parent })
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>, Error> {
        self.with(node, |tree, inner| tree.read_link(inner))
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        self.with(node, |tree, inner| tree.xattrs(inner))
    }

    fn xattr(&self, node: Node, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.with(node, |tree, inner| tree.xattr(inner, name))
    }

    fn each_version(
        &self,
        folder: Node,
        name: &[u8],
        from: u64,
        receive: &mut dyn FnMut(Attributes) -> bool,
    ) -> Result<(), Error> {
        self.with(folder, |tree, inner| tree.each_version(inner, name, from, receive))
    }

    fn node_limit(&self) -> u64 {
        self.tree.node_limit()
    }

    fn forget(&self, node: Node, times: u64) {
        if node != Node::ROOT {
            self.tree.forget(node, times);
        }
    }

    fn close_folder(&self, folder: Node) {
        // Where the root is now, nobody has to know for that: what is gone is closed.
        self.tree.close_folder(self.at_once(folder));
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        self.with(node, |tree, inner| tree.open(inner))
    }

    fn path_of(&self, node: Node) -> Option<Vec<u8>> {
        self.with(node, |tree, inner| Ok(tree.path_of(inner))).ok().flatten()
    }

    fn owner_names(&self, node: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        self.with(node, |tree, inner| tree.owner_names(inner))
    }

    fn lifetime(&self, node: Node) -> Lifetime {
        self.limited(node, self.tree.lifetime(self.at_once(node)))
    }

    fn lifetime_of_gaps(&self, folder: Node) -> Lifetime {
        self.limited(folder, self.tree.lifetime_of_gaps(self.at_once(folder)))
    }

    fn totals(&self) -> Totals {
        self.tree.totals()
    }

    fn work(&self) -> Work {
        self.tree.work()
    }

    fn waiting(&self) -> Option<&dyn Waiting> {
        Some(self)
    }
}

impl Waiting for Subdirectory {
    fn is_ready(&self, node: Node) -> bool {
        let is_found = node != Node::ROOT || self.is_immutable || self.way_is_ready.load(Ordering::Relaxed);
        is_found && self.tree.is_ready(self.at_once(node))
    }

    fn lists_at_once(&self, folder: Node, from: u64) -> bool {
        self.is_ready(folder) && self.tree.lists_at_once(self.at_once(folder), from)
    }

    fn lane(&self, node: Node) -> u64 {
        self.tree.lane(self.at_once(node))
    }

    fn held_up(&self, node: Node) -> Option<HeldUp> {
        self.tree.held_up(self.at_once(node))
    }

    fn wait_out(&self, node: Node) {
        self.tree.wait_out(self.at_once(node));
    }

    fn asked_for(&self, folder: Node, name: &[u8]) -> Node {
        // To find the folder itself, all that is on the way has to be asked.
        if folder == Node::ROOT && !self.is_immutable {
            folder
        } else {
            self.tree.asked_for(self.at_once(folder), name)
        }
    }
}
