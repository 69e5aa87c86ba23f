//! An archive with an overlay over it, as it goes into the new archive.

use std::sync::Arc;

use tarnfs_source::SharedSource;
use tarnfs_tree::{Attributes, Child, Error, Lifetime, Node, OverlayTree, Totals, Tree, Xattrs};
use tarnfs_write::files::{group_name, user_name};

/// See the module. What was written gets what `tarnfs create` gives to files: the names of its owner as they are here,
/// and no other time than that of its content. Nobody has asked for those, and reading a file changes one of them.
pub(super) struct Merged {
    pub(super) overlay: Arc<OverlayTree>,
    /// The new archive has names of owners.
    pub(super) has_names: bool,
}

impl Merged {
    fn settled(&self, attributes: Attributes) -> Attributes {
        if self.overlay.is_as_below(attributes.node) {
            return attributes;
        }
        Attributes { atime: attributes.mtime, ctime: attributes.mtime, ..attributes }
    }
}

impl Tree for Merged {
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        self.overlay.lookup(folder, name).map(|found| self.settled(found))
    }

    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        self.overlay.read_dir(folder, from, &mut |child| {
            let attributes = self.settled(child.attributes);
            receive(Child { attributes, ..child })
        })
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        self.overlay.attributes(node).map(|found| self.settled(found))
    }

    fn is_implied(&self, folder: Node) -> bool {
        self.overlay.is_implied(folder)
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        self.overlay.parent(folder)
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>, Error> {
        self.overlay.read_link(node)
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        self.overlay.xattrs(node)
    }

    fn node_limit(&self) -> u64 {
        self.overlay.node_limit()
    }

    fn forget(&self, node: Node, times: u64) {
        self.overlay.forget(node, times);
    }

    fn close_folder(&self, folder: Node) {
        self.overlay.close_folder(folder);
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        self.overlay.open(node)
    }

    fn owner_names(&self, node: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let (mut user, mut group) = self.overlay.owner_names(node)?;
        let (has_own_user, has_own_group) = self.overlay.has_own_owner(node).map_err(|error| error.error)?;
        if self.has_names && (has_own_user || has_own_group) {
            let attributes = self.overlay.attributes(node)?;
            if has_own_user {
                user = user_name(attributes.uid).unwrap_or_default();
            }
            if has_own_group {
                group = group_name(attributes.gid).unwrap_or_default();
            }
        }
        Ok((user, group))
    }

    fn lifetime(&self, node: Node) -> Lifetime {
        self.overlay.lifetime(node)
    }

    fn totals(&self) -> Totals {
        self.overlay.totals()
    }
}
