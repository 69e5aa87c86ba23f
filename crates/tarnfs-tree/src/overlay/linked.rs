//! Files with several names below, in folders that somebody else changes: a name may go, or become one of another file.
//! What was written to such a file is found by each name by which it was seen here. Which of them was used, the kernel
//! does not say.

use super::editing::{Below, Editing};
use super::known::SeenAt;
use super::rows::{self, Said};
use super::{NodePlace, Overlay, stale};
use crate::asker::unasked;
use crate::{Error, Node};

impl Editing<'_> {
    /// Says that a file has further names, which `below` leads to: what is written to it is found by them all, whatever
    /// becomes of those below.
    pub(super) fn touch_names(&self, below: &[Below], id: u64) -> Result<(), Error> {
        for one in below {
            match self.id(one.node) {
                None => drop(self.touch_one(one)?),
                Some(known) if known == id => {
                    let folder = self.id(one.folder).ok_or_else(stale)?;
                    let is_free = rows::name(self.connection, folder, &one.name)? == Said::Nothing;
                    if is_free && self.node(id)?.links > 0 {
                        self.put_name(folder, &one.name, Some(id), true)?;
                    }
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

impl Overlay {
    /// What it takes to say that `node` has the further names by which it was seen, and of which nothing is said yet.
    /// Where one cannot be asked for, the file is written all the same.
    pub(super) fn prepare_names(&self, node: Node) -> Result<Vec<Below>, Error> {
        let mut all = Vec::new();
        for SeenAt { folder, name } in self.known.places(node) {
            let is_said = match self.place(folder) {
                NodePlace::Own(id) => self.said(id, &name)? != Said::Nothing,
                NodePlace::Lower => false,
            };
            if is_said || self.is_of_versions(folder) {
                continue;
            }
            match self.prepare_name(node, folder, &name) {
                Ok(below) => all.extend(below),
                Err(error) => {
                    log::debug!("{}: a name of it cannot be kept: {error}", tarnfs_format::name::escape(&name));
                }
            }
        }
        Ok(all)
    }

    /// The same of one of them; nothing if others have removed it, or have put another file there.
    fn prepare_name(&self, node: Node, folder: Node, name: &[u8]) -> Result<Vec<Below>, Error> {
        let found = self.lower.lookup(self.below(folder).ok_or_else(stale)?, name)?.node;
        self.lower.forget(found, 1);
        if found != node {
            return Ok(Vec::new());
        }
        let mut below = self.prepare(folder)?;
        below.push(self.prepare_one(node, folder, name, true)?);
        Ok(below)
    }

    /// Names of a file that was written, which is written once more: who found it by another one finds it by that.
    pub(super) fn say_names(&self, node: Node) -> Result<(), Error> {
        let NodePlace::Own(id) = self.place(node) else { return Ok(()) };
        if self.known.places(node).is_empty() || !self.has_content(node)? {
            return Ok(());
        }
        let below = self.prepare_names(node)?;
        if below.is_empty() {
            return Ok(());
        }
        // Nobody has asked for that.
        unasked(|| self.edit(|editing| editing.touch_names(&below, id)))
    }
}
