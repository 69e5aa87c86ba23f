//! The way through the tree: folders are made, and all else that is selected is noted down.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Stat, fstat, unlinkat};
use rustix::io::Errno;
use tarnfs_tree::{Attributes, Kind, Node, Stored};

use super::destination::{MadeFolder, make_folder, stat};
use super::existing::{Policy, refuse_folded};
use super::finishing::{Folders as Finishing, identity};
use super::folders::Folders;
use super::plan::{Item, Items, Sorter, Unfinished, What};
use super::selection::{At, Selection};
use super::{Extraction, Stop};
use crate::exit::Code;

/// What is to be done.
pub(super) struct Plan {
    pub(super) items: Items,
    /// Folders that get their attributes in the end.
    pub(super) folders: Finishing,
    /// Bytes of all files, and how many there are.
    pub(super) bytes: u64,
    pub(super) count: u64,
    /// For each pattern, whether it names something.
    pub(super) found: Vec<bool>,
}

/// A folder that is still to be looked into.
struct Waiting {
    node: Node,
    from: u64,
    depth: usize,
    at: At,
}

struct Walk<'a> {
    extraction: &'a Extraction<'a>,
    selection: &'a Selection,
    folders: Folders<'a>,
    sorter: Sorter,
    finishing: Finishing,
    found: Vec<bool>,
    bytes: u64,
    count: u64,
}

/// Makes the folders that are selected.
pub(super) fn plan(extraction: &Extraction<'_>, selection: &Selection) -> Result<Plan, Stop> {
    let found = vec![false; selection.typed().count()];
    let folders = Folders::new(extraction);
    let (sorter, finishing) = (Sorter::new(), Finishing::new(extraction.strip > 0));
    let mut walk = Walk { extraction, selection, folders, sorter, finishing, found, bytes: 0, count: 0 };
    walk.all()?;
    let Walk { sorter, finishing, found, bytes, count, .. } = walk;
    let items = sorter.finish().map_err(|error| extraction.cannot_note(&error))?;
    Ok(Plan { items, folders: finishing, bytes, count, found })
}

impl Walk<'_> {
    fn all(&mut self) -> Result<(), Stop> {
        let root = self.selection.root();
        let tree = self.extraction.tree;
        if matches!(root, At::All) {
            self.found.iter_mut().for_each(|found| *found = true);
            let stored = tree.stored(Node::ROOT).map_err(|error| self.extraction.broken(&error))?;
            let is_made = self.extraction.destination.is_made();
            let is_left = !is_made && self.extraction.existing.policy == Policy::Skip;
            if stored.header.is_some() && self.extraction.strip == 0 && !is_left {
                let there = fstat(self.extraction.destination.root())
                    .map_err(|error| self.extraction.cannot_write(&error.into()))?;
                self.finish_later(Node::ROOT, stored, is_made, &there)?;
            }
        }
        let mut waiting = vec![Waiting { node: Node::ROOT, from: 0, depth: 0, at: root }];
        while let Some(next) = waiting.pop() {
            self.extraction.check()?;
            self.folder(next, &mut waiting)?;
        }
        Ok(())
    }

    fn folder(&mut self, Waiting { node, from, depth, at }: Waiting, waiting: &mut Vec<Waiting>) -> Result<(), Stop> {
        let children = self.selection.children(self.extraction.tree, node, from, &at);
        let (children, next) = children.map_err(|error| self.extraction.broken(&error))?;
        if let Some(from) = next {
            waiting.push(Waiting { node, from, depth, at: at.clone() });
        }
        let mut inner = Vec::new();
        for (name, attributes, stored) in children {
            let found = &mut self.found;
            let Some(at) = self.selection.below(&at, &name, |number| found[number] = true) else { continue };
            let is_selected = matches!(at, At::All);
            let is_shown = depth >= self.extraction.strip;
            let child = attributes.node;
            match What::of(attributes.kind) {
                None => {
                    let is_folder = attributes.kind == Kind::Folder;
                    let is_made = is_selected && is_shown;
                    if is_folder && (!is_made || self.make_folder(node, &name, &attributes, stored)?) {
                        inner.push(Waiting { node: child, from: 0, depth: depth + 1, at });
                    }
                }
                Some(kind) if is_selected && is_shown => self.note(node, name, kind, &attributes, stored)?,
                _ => {}
            }
        }
        waiting.extend(inner.into_iter().rev());
        Ok(())
    }

    /// False if nothing can be made in it; that was told.
    fn make_folder(
        &mut self,
        parent: Node,
        name: &[u8],
        attributes: &Attributes,
        stored: Stored,
    ) -> Result<bool, Stop> {
        let extraction = self.extraction;
        let is_known = stored.header.is_some();
        let mode = if is_known { extraction.keeping.first_mode_of_folder(attributes.mode) } else { 0o777 };
        match self.try_folder(parent, name, mode) {
            Ok((MadeFolder::Made, there)) => {
                if is_known {
                    self.finish_later(attributes.node, stored, true, &there)?;
                }
                extraction.done(parent, name)?;
                Ok(true)
            }
            Ok((MadeFolder::Existed, there)) => {
                if is_known && extraction.existing.policy != Policy::Skip {
                    self.finish_later(attributes.node, stored, false, &there)?;
                }
                Ok(true)
            }
            Err(error) if extraction.ends_all(&error) => Err(extraction.cannot_write(&error)),
            Err(error) => {
                let what = match Errno::from_io_error(&error) {
                    Some(Errno::NOTDIR) => {
                        "is there and is no folder; --overwrite replaces it. What is in it was left out".to_owned()
                    }
                    _ => format!("{error}. What is in it was left out"),
                };
                extraction.failed(parent, name, Code::Failure, &what);
                Ok(false)
            }
        }
    }

    /// Also what is there then.
    fn try_folder(&mut self, parent: Node, name: &[u8], mode: u32) -> io::Result<(MadeFolder, Stat)> {
        let extraction = self.extraction;
        let folder = self.folders.get_or_make(parent)?;
        let mut made = make_folder(folder.as_fd(), name, mode);
        if extraction.existing.policy == Policy::Overwrite
            && made.as_ref().is_err_and(|error| Errno::from_io_error(error) == Some(Errno::NOTDIR))
        {
            if let Some(refused) = refuse_folded(folder.as_fd(), name, &extraction.destination.listed)? {
                return Err(io::Error::other(refused));
            }
            unlinkat(&folder, name, AtFlags::empty())?;
            made = make_folder(folder.as_fd(), name, mode);
        }
        let made = made?;
        if made == MadeFolder::Existed
            && let Some(refused) = refuse_folded(folder.as_fd(), name, &extraction.destination.listed)?
        {
            return Err(io::Error::other(refused));
        }
        let there = match made {
            MadeFolder::Made => stat(folder.as_fd(), name)?.ok_or(Errno::NOENT)?,
            // Where something is mounted only when it is opened, that is what is there.
            MadeFolder::Existed => fstat(extraction.destination.inner(folder.as_fd(), name)?)?,
        };
        Ok((made, there))
    }

    fn finish_later(&mut self, node: Node, stored: Stored, is_made: bool, there: &Stat) -> Result<(), Stop> {
        let extraction = self.extraction;
        let folder = Unfinished { node, is_made, identity: identity(there) };
        let pushed = self.finishing.push(folder, stored.header.unwrap_or(0), || extraction.names_of(node));
        pushed.map_err(|error| extraction.cannot_note(&error))
    }

    fn note(
        &mut self,
        folder: Node,
        name: Vec<u8>,
        kind: What,
        attributes: &Attributes,
        stored: Stored,
    ) -> Result<(), Stop> {
        if self.selection.is_limited()
            && let Err(error) = self.folders.get_or_make(folder)
        {
            self.extraction.failed(folder, &name, Code::Failure, &error.to_string());
            return Ok(());
        }
        self.count += 1;
        if kind == What::File {
            self.bytes = self.bytes.saturating_add(attributes.size);
        }
        let item = Item::new(folder, name, kind, attributes, stored);
        self.sorter.push(item).map_err(|error| self.extraction.cannot_note(&error))
    }
}
