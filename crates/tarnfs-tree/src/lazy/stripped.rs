//! With `-s`: archives show without the extensions of their names, each beside its file.

use std::io;

use super::archives::Where;
use super::halves::Halves;
use super::{Base, LazyTree};
use crate::{Attributes, Error, Kind, Node, Tree as _};

impl LazyTree {
    /// With `-s`: the archive whose name without its extension is `name`.
    pub(super) fn stripped(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        for extension in self.names.extensions() {
            let full = [name, extension].concat();
            if full.len() > self.how.options.limits.name {
                // A file system says of such a name not that it is not there, but that it is too long.
                continue;
            }
            let found = self.within(folder, |tree, inner, outer| {
                let attributes = tree.lookup(inner, &full)?;
                Ok(Attributes { node: outer(attributes.node), ..attributes })
            });
            match found {
                Ok(attributes) => {
                    let file = attributes.node;
                    self.hold(file);
                    let shown = self.shown(folder, &full, attributes)?;
                    if shown.node != file {
                        return Ok(shown);
                    }
                    self.forget(file, 1);
                }
                Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::NotFound)
    }

    /// With `-s`: the file that the archive `name` is, which shows beside its folder.
    pub(super) fn beside(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        let file = self.within(folder, |tree, inner, outer| {
            let attributes = tree.lookup(inner, name)?;
            Ok(Attributes { node: outer(attributes.node), ..attributes })
        })?;
        self.hold(file.node);
        Ok(file)
    }

    /// Where in a listing of `folder` the tree below goes on, and whether the folder of the archive that comes next
    /// there was given already, but not its file. Both are in one number; in a folder of the file system the tree below
    /// uses all bits that there are ([`Halves`]), and few elsewhere.
    pub(super) fn position(&self, folder: Node, from: u64) -> Result<(u64, bool), Error> {
        Ok(match () {
            () if !self.strips() => (from, false),
            () if self.has_large_positions(folder) => match self.halves.find(folder, from) {
                Some(before) => (before, true),
                // For the file system it would be behind the last name.
                None if Halves::is_one(from) => {
                    return Err(io::Error::other("too much was listed meanwhile to go on here: list it again").into());
                }
                None => (from, false),
            },
            () => (from / 2, !from.is_multiple_of(2)),
        })
    }

    /// The inverse of [`LazyTree::position`].
    pub(super) fn position_of(&self, folder: Node, inner: u64, is_half: bool) -> u64 {
        match () {
            () if !self.strips() => inner,
            () if self.has_large_positions(folder) && is_half => self.halves.add(folder, inner),
            () if self.has_large_positions(folder) => inner,
            () => inner.saturating_mul(2).saturating_add(u64::from(is_half)),
        }
    }

    pub(super) fn has_large_positions(&self, folder: Node) -> bool {
        matches!((self.place(folder), &self.base), (Where::Base(_), Base::Folder(_)))
    }

    pub(super) fn strips(&self) -> bool {
        self.how.options.shape.recursion.as_ref().is_some_and(|recursion| recursion.strip_extension)
    }

    /// The name under which a child shows, which is its own unless it is an archive whose extension is to be stripped,
    /// and nothing else has that name.
    pub(super) fn shown_name(&self, folder: Node, name: &[u8], attributes: &Attributes) -> Vec<u8> {
        let is_archive = attributes.kind == Kind::Folder && self.strips();
        let Some(stem) = self.names.stem(name).filter(|stem| is_archive && *stem != name) else {
            return name.to_vec();
        };
        let taken = self.within(folder, |tree, inner, _| {
            let other = tree.lookup(inner, stem)?;
            // Only looked at.
            tree.forget(other.node, 1);
            Ok(())
        });
        if !matches!(taken, Err(Error::NotFound)) {
            return name.to_vec();
        }
        let Ok(other) = self.stripped(folder, stem) else { return name.to_vec() };
        self.forget(other.node, 1);
        if other.node == attributes.node { stem.to_vec() } else { name.to_vec() }
    }
}
