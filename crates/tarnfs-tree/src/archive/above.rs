//! The way from the root to a folder. Whoever goes through an archive asks for much the same ways again and again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tarnfs_index::Index;

use super::{ArchiveTree, MOST_NAMES};
use crate::{Error, Node};

/// Folders of which is remembered where they are: a megabyte at most.
const MOST_REMEMBERED: usize = 1 << 12;

/// The folder that one is in, and its name there.
type Place = (Node, Box<[u8]>);

/// Folders, and where they are.
#[derive(Debug, Default)]
pub(super) struct Above {
    known: Mutex<HashMap<Node, Place>>,
}

impl Above {
    fn get(&self, folder: Node) -> Option<(Node, Vec<u8>)> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&folder).map(|(parent, name)| (*parent, name.to_vec()))
    }

    fn remember(&self, folder: Node, parent: Node, name: &[u8]) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_REMEMBERED {
            known.clear();
        }
        known.insert(folder, (parent, name.into()));
    }
}

impl ArchiveTree {
    /// The names of `folder` and of those that it is in, from the root down.
    pub fn names_to(&self, mut folder: Node) -> Result<Vec<Vec<u8>>, Error> {
        let mut names = Vec::new();
        // An index may lie; its paths are no longer than those of archives.
        while folder != Node::ROOT && names.len() <= MOST_NAMES {
            let (parent, name) = if let Some(known) = self.above.get(folder) {
                known
            } else {
                let (_, name) = self.index.named_row(folder)?.ok_or(Error::NotFound)?;
                let parent = self.index.parent(folder)?;
                self.above.remember(folder, parent, &name);
                (parent, name)
            };
            names.push(name);
            folder = parent;
        }
        names.reverse();
        Ok(names)
    }
}

/// The path of what is called `name` in `folder`.
pub(super) fn path_in(index: &dyn Index, mut folder: Node, name: Vec<u8>) -> Result<Vec<u8>, Error> {
    let mut names = vec![name];
    // An index may lie; its paths are no longer than those of archives.
    while folder != Node::ROOT && names.len() <= MOST_NAMES {
        let (_, name) = index.named_row(folder)?.ok_or(Error::NotFound)?;
        names.push(name);
        folder = index.parent(folder)?;
    }
    names.reverse();
    Ok(names.join(&b'/'))
}

/// The path of `node`, if it is known.
pub(super) fn path_of(index: &dyn Index, node: Node) -> Option<Vec<u8>> {
    let (_, name) = index.named_row(node).ok()??;
    path_in(index, index.folder_of(node).ok()??, name).ok()
}
