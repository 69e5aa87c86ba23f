//! What is asked of a tree with older versions in it.

use tarnfs_source::SharedSource;

use super::{SUFFIX, Versions, View};
use crate::{Attributes, Child, Error, HeldUp, Lifetime, Node, Totals, Tree, Waiting, Work, Xattrs};

impl Tree for Versions {
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        let found = match self.view(folder)? {
            Some(View::Versions(above, file)) => {
                let version = self.version(above, &file, name)?;
                return self.shown(folder, name, version);
            }
            Some(View::Folder(_, _, inner)) => {
                self.tree.lookup(inner, name).and_then(|attributes| self.shown(folder, name, attributes))
            }
            None => self.tree.lookup(folder, name),
        };
        match (found, name.strip_suffix(SUFFIX)) {
            (Err(Error::NotFound), Some(file)) if !file.is_empty() => self.versions_of(folder, file),
            (found, _) => found,
        }
    }

    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        match self.view(folder)? {
            None => self.tree.read_dir(folder, from, receive),
            Some(View::Folder(_, _, inner)) => self.list_view(folder, inner, from, receive),
            Some(View::Versions(above, name)) => self.list_versions(folder, (above, &name), from, receive),
        }
    }

    /// What is there to look into older versions is nobody's name.
    fn has_name(&self, folder: Node, name: &[u8]) -> Result<bool, Error> {
        match self.lookup(folder, name) {
            Ok(found) => {
                self.forget(found.node, 1);
                Ok(self.is_of_versions(folder) || !self.is_of_versions(found.node))
            }
            Err(Error::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn is_of_versions(&self, folder: Node) -> bool {
        folder.0 >= self.first
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        let attributes = match self.view(node)? {
            None => return self.tree.attributes(node),
            Some(View::Versions(folder, name)) => {
                return self.describe(node, folder, &self.newest(folder, &name)?);
            }
            Some(View::Folder(above, name, inner)) => match self.view(above) {
                Ok(Some(View::Versions(folder, file))) => {
                    let version = self.version(folder, &file, &name)?;
                    let guarded = self.guarded(above, &name, version.clone());
                    self.tree.forget(version.node, 1);
                    guarded?
                }
                _ => self.guarded(above, &name, self.tree.attributes(inner)?)?,
            },
        };
        Ok(Attributes { node, ..attributes })
    }

    fn is_implied(&self, folder: Node) -> bool {
        matches!(self.view(folder), Ok(None)) && self.tree.is_implied(folder)
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        match self.view(folder)? {
            Some(View::Versions(above, _) | View::Folder(above, ..)) => Ok(above),
            None => self.tree.parent(folder),
        }
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>, Error> {
        if self.view(node)?.is_some() { Err(Error::WrongKind) } else { self.tree.read_link(node) }
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        match self.view(node)? {
            None => self.tree.xattrs(node),
            Some(View::Versions(..)) => Ok(Vec::new()),
            // The access list is among them.
            Some(View::Folder(above, name, inner)) => {
                self.with_now(above, &name, |now| self.tree.xattrs(now.map_or(inner, |now| now.node)))
            }
        }
    }

    fn xattr(&self, node: Node, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        match self.view(node)? {
            None => self.tree.xattr(node, name),
            Some(View::Versions(..)) => Ok(None),
            Some(View::Folder(above, folder, inner)) => {
                self.with_now(above, &folder, |now| self.tree.xattr(now.map_or(inner, |now| now.node), name))
            }
        }
    }

    fn each_version(
        &self,
        folder: Node,
        name: &[u8],
        from: u64,
        receive: &mut dyn FnMut(Attributes) -> bool,
    ) -> Result<(), Error> {
        match self.inner(folder)? {
            Some((_, false)) => return self.tree.each_version(folder, name, from, receive),
            Some((inner, true)) => {
                let mut result = Ok(true);
                self.tree.each_version(inner, name, from, &mut |attributes| {
                    result = self.shown(folder, name, attributes).map(&mut *receive);
                    matches!(result, Ok(true))
                })?;
                return result.map(drop);
            }
            None if from > 0 => return Ok(()),
            None => {}
        }
        match self.lookup(folder, name) {
            Ok(attributes) => drop(receive(attributes)),
            Err(Error::NotFound) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn node_limit(&self) -> u64 {
        self.slow().0.saturating_add(1)
    }

    fn forget(&self, node: Node, times: u64) {
        if node.0 < self.first {
            self.tree.forget(node, times);
            return;
        }
        match self.take_back(node, times) {
            Some(View::Folder(_, _, inner)) => self.tree.forget(inner, times),
            // Its number may become another's.
            Some(View::Versions(..)) if self.view(node).is_err() => self.drop_rests(node),
            _ => {}
        }
    }

    fn close_folder(&self, folder: Node) {
        if folder.0 >= self.first {
            self.drop_rests(folder);
        }
        if let Ok(Some((inner, _))) = self.inner(folder) {
            self.tree.close_folder(inner);
        }
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        if self.view(node)?.is_some() { Err(Error::IsAFolder) } else { self.tree.open(node) }
    }

    fn path_of(&self, node: Node) -> Option<Vec<u8>> {
        if self.view(node).ok()?.is_some() { None } else { self.tree.path_of(node) }
    }

    fn owner_names(&self, node: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        match self.view(node)? {
            Some(View::Versions(folder, _)) => self.owner_names(folder),
            Some(View::Folder(above, name, inner)) => {
                self.with_now(above, &name, |now| self.tree.owner_names(now.map_or(inner, |now| now.node)))
            }
            None => self.tree.owner_names(node),
        }
    }

    /// Of a view, what shows at its path counts as well, and all that is on the way there.
    fn lifetime(&self, node: Node) -> Lifetime {
        match self.view(node) {
            Ok(None) => self.tree.lifetime(node),
            Ok(Some(_)) => Lifetime::unless(!self.is_immutable),
            Err(_) => Lifetime::None,
        }
    }

    fn lifetime_of_gaps(&self, folder: Node) -> Lifetime {
        if folder.0 < self.first { self.tree.lifetime_of_gaps(folder) } else { self.lifetime(folder) }
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

impl Waiting for Versions {
    fn is_ready(&self, node: Node) -> bool {
        if node.0 < self.first {
            return self.tree.is_ready(node);
        }
        // Of what nobody knows, the answer takes no time.
        node != self.slow() && self.view(node).is_err()
    }

    fn lists_at_once(&self, folder: Node, from: u64) -> bool {
        if folder.0 < self.first { self.tree.lists_at_once(folder, from) } else { self.is_ready(folder) }
    }

    fn lane(&self, node: Node) -> u64 {
        if node.0 < self.first {
            return self.tree.lane(node);
        }
        let asked = self.asked(node, None).filter(|&node| !self.tree.is_ready(node));
        asked.map_or(self.lane, |node| self.tree.lane(node))
    }

    /// Not by way of what is ready: a tree may read its index to tell that.
    fn held_up(&self, node: Node) -> Option<HeldUp> {
        self.all_asked(node, None)?.into_iter().find_map(|node| self.tree.held_up(node))
    }

    fn wait_out(&self, node: Node) {
        for node in self.all_asked(node, None).into_iter().flatten() {
            self.tree.wait_out(node);
        }
    }

    fn asked_for(&self, folder: Node, name: &[u8]) -> Node {
        if folder.0 < self.first && !name.ends_with(SUFFIX) {
            return self.tree.asked_for(folder, name);
        }
        let Some(asked) = self.asked(folder, Some(name)) else { return folder };
        if self.tree.is_ready(asked) { self.slow() } else { asked }
    }
}
