//! What is changed through a mount that can be controlled: the tree that the folder is in, where it can be written to,
//! and the file for commands. What was added stays as it is, and so do the folders that it stands in.

use std::sync::Arc;

use rustix::io::Errno;

use super::command::CommandFile;
use super::{COMMAND, ControlTree, OUTPUT};
use crate::edit::{Change, Edit, New, Renaming, Setting, Space, WritableFile};
use crate::{Attributes, Error, Node};

impl ControlTree {
    /// What changes the tree that the folder is in, if `node` is of it.
    fn inner(&self, node: Node) -> Result<&dyn Edit, Error> {
        if node.0 < self.first { self.tree.edit().ok_or(Error::ReadOnly) } else { Err(Error::ReadOnly) }
    }

    /// The same, for a name in `folder`, where nothing stands of ours.
    fn inner_for(&self, folder: Node, name: &[u8]) -> Result<&dyn Edit, Error> {
        let inner = self.inner(folder)?;
        match self.placed(folder, name) {
            None => Ok(inner),
            Some(placed) => {
                // Only looked at.
                self.release(placed?.node);
                Err(Error::ReadOnly)
            }
        }
    }

    /// Fails if `name` in `folder`, which is to go, is a folder in which something was added: it is not empty.
    fn must_be_empty(&self, folder: Node, name: &[u8]) -> Result<(), Error> {
        let added = self.added();
        if added.by_folder.is_empty() {
            return Ok(());
        }
        let Ok(found) = self.tree.lookup(folder, name) else { return Ok(()) };
        let is_empty = added.inside(found.node).next().is_none();
        self.tree.forget(found.node, 1);
        if is_empty { Ok(()) } else { Err(Errno::NOTEMPTY.into()) }
    }
}

impl Edit for ControlTree {
    fn may_change(&self, node: Node) -> bool {
        node.0.checked_sub(self.first) == Some(COMMAND) || self.inner(node).is_ok_and(|inner| inner.may_change(node))
    }

    fn is_own(&self, node: Node) -> bool {
        node.0.checked_sub(self.first).is_some_and(|own| own <= OUTPUT)
    }

    /// What cannot be changed is refused at once.
    fn changes_at_once(&self, node: Node) -> bool {
        self.inner(node).map_or(true, |inner| inner.changes_at_once(node))
    }

    fn space(&self) -> Option<Result<Space, Error>> {
        self.tree.edit()?.space()
    }

    fn make(&self, folder: Node, name: &[u8], new: &New) -> Result<Attributes, Error> {
        self.inner_for(folder, name)?.make(folder, name, new)
    }

    fn make_unnamed(&self, folder: Node, new: &New) -> Result<Attributes, Error> {
        self.inner(folder)?.make_unnamed(folder, new)
    }

    fn link(&self, node: Node, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        self.inner(node)?;
        self.inner_for(folder, name)?.link(node, folder, name)
    }

    fn remove(&self, folder: Node, name: &[u8], is_folder: bool) -> Result<(), Error> {
        let inner = self.inner_for(folder, name)?;
        if is_folder {
            self.must_be_empty(folder, name)?;
        }
        inner.remove(folder, name, is_folder)
    }

    fn rename(&self, from: (Node, &[u8]), to: (Node, &[u8]), how: Renaming) -> Result<(), Error> {
        self.inner_for(to.0, to.1)?;
        if how == Renaming::Replaces {
            self.must_be_empty(to.0, to.1)?;
        }
        self.inner_for(from.0, from.1)?.rename(from, to, how)
    }

    fn set_xattr(&self, node: Node, name: &[u8], value: &[u8], how: Setting) -> Result<(), Error> {
        self.inner(node)?.set_xattr(node, name, value, how)
    }

    fn remove_xattr(&self, node: Node, name: &[u8]) -> Result<(), Error> {
        self.inner(node)?.remove_xattr(node, name)
    }

    fn sync(&self, node: Node, data_only: bool) -> Result<(), Error> {
        self.inner(node).map_or(Ok(()), |inner| inner.sync(node, data_only))
    }

    /// The file for commands can be emptied, as whoever opens it with `>` asks.
    fn change(&self, node: Node, change: &Change) -> Result<Attributes, Error> {
        if let Ok(inner) = self.inner(node) {
            return inner.change(node, change);
        }
        let Change { mode, uid, gid, size, .. } = *change;
        if self.may_change(node) && size == Some(0) && (mode, uid, gid) == (None, None, None) {
            return Ok(self.own(COMMAND));
        }
        Err(Error::ReadOnly)
    }

    fn open_to_write(&self, node: Node, appends: bool) -> Result<Arc<dyn WritableFile>, Error> {
        if let Ok(inner) = self.inner(node) {
            return inner.open_to_write(node, appends);
        }
        if !self.may_change(node) {
            return Err(Error::ReadOnly);
        }
        Ok(Arc::new(CommandFile::new(self.lines.clone(), Arc::clone(&self.output))))
    }
}
