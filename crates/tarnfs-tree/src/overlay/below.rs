//! What is below of what was changed here. That goes by its path: others may rename what is below, or make another one
//! there, while it is mounted.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use tarnfs_source::SharedSource;

use super::files::join;
use super::rows::{self, NodeRow, changed};
use super::{NodePlace, Overlay, lock, stale};
use crate::{Attributes, Error, Kind, Lifetime, Node, UNKNOWN, path};

/// How long what is gone below is not looked for again.
const LOST: Duration = Duration::from_secs(1);

/// True of errors that say that nothing is at a path, and not that it cannot be said.
pub(super) fn is_gone(error: &Error) -> bool {
    matches!(error, Error::NotFound | Error::NotAFolder) || error.errno() == Errno::STALE
}

/// What is at the path of something that was changed here.
enum Looked {
    /// That, which is held there from now on.
    It(Node),
    /// Another file, that has a number of its own; looked up once.
    Another(Node),
    /// Nothing, or something of another kind.
    Gone,
}

impl Overlay {
    /// The node of what is below that a node of the overlay stands for, if that is still there. What cannot be asked
    /// now is an error: it may have what is not seen, and keeps its number.
    pub(super) fn lower_of(&self, row: &NodeRow) -> Result<Option<Node>, Error> {
        let Some(path) = row.lower.as_ref() else { return Ok(None) };
        if let Some(known) = self.met.lower(row.id) {
            return Ok(Some(known));
        }
        if lock(&self.lost).get(&row.id).is_some_and(|since| since.elapsed() < LOST) {
            return Ok(None);
        }
        match self.look_for(row, path)? {
            Looked::It(node) => Ok(Some(node)),
            Looked::Another(node) => {
                self.lower.forget(node, 1);
                Ok(None)
            }
            Looked::Gone => Ok(None),
        }
    }

    /// Walks the `path` of what a node of the overlay stands for.
    fn look_for(&self, row: &NodeRow, path: &[u8]) -> Result<Looked, Error> {
        let same = |found: &Attributes| rows::number_of(found.kind).0 == rows::number_of(row.kind).0;
        match path::find(&*self.lower, path, false) {
            Ok(found) if same(&found) && self.is_another_below(row, &found) => return Ok(Looked::Another(found.node)),
            Ok(found) if same(&found) => {
                lock(&self.lost).remove(&row.id);
                self.met.meet(row.id, found.node);
                return Ok(Looked::It(found.node));
            }
            Ok(found) => self.lower.forget(found.node, 1),
            Err(error) if is_gone(&error) => {
                log::debug!("{}: is no longer below the overlay: {error}", tarnfs_format::name::escape(path));
            }
            Err(error) => return Err(error),
        }
        lock(&self.lost).insert(row.id, Instant::now());
        Ok(Looked::Gone)
    }

    /// True if a file that was changed here has got further names below since then: these are another file, so it has
    /// a number of its own.
    pub(super) fn is_another_below(&self, row: &NodeRow, found: &Attributes) -> bool {
        let has_others = row.kind == Kind::File && !row.is_shared && found.links > 1;
        has_others && self.lower.lifetime(found.node) != Lifetime::Forever
    }

    /// The number that a node of the overlay has.
    pub(super) fn node_of(&self, row: &NodeRow) -> Result<Node, Error> {
        Ok(self.lower_of(row)?.unwrap_or(Node(self.first.saturating_add(row.id))))
    }

    /// The same by what is known of that already.
    pub(super) fn known_node_of(&self, id: u64) -> Node {
        self.met.lower(id).unwrap_or(Node(self.first.saturating_add(id)))
    }

    /// How long what is here alone can be kept: for ever, as all changes come from whoever asks, unless it has gone
    /// below. It may come back there.
    pub(super) fn lifetime_here(&self, node: Node) -> Lifetime {
        match self.place(node) {
            NodePlace::Own(id) => Lifetime::unless(lock(&self.lost).contains_key(&id)),
            NodePlace::Lower => Lifetime::Forever,
        }
    }

    /// What there is to know by now of a file whose content is that below, for who knows it as `node`. `None` where
    /// that does not change, or cannot be asked.
    pub(super) fn now_below(&self, row: &NodeRow, node: Node) -> Option<Attributes> {
        let is_below = row.kind == Kind::File && row.place.is_none() && node.0 < self.first;
        if !is_below || self.lower.lifetime(node) == Lifetime::Forever {
            return None;
        }
        let now = match self.lower.attributes(node) {
            Err(error) if is_gone(&error) => self.lower.attributes(self.look_again(row).ok()??),
            now => now,
        };
        now.ok().filter(|now| now.kind == Kind::File)
    }

    /// What is at the path of what [`follows`] that, when what was there is gone.
    pub(super) fn look_again(&self, row: &NodeRow) -> Result<Option<Node>, Error> {
        if !follows(row) {
            return Ok(None);
        }
        self.met.lose(row.id);
        self.lower_of(row)
    }

    /// The file below that has what a node of the overlay holds.
    pub(super) fn open_below(&self, row: &NodeRow) -> Result<SharedSource, Error> {
        let path = row.lower.as_ref().ok_or_else(stale)?;
        if let Some(known) = self.met.lower(row.id) {
            return self.lower.open(known);
        }
        // What is opened is what was compared: another walk could lead elsewhere.
        match self.look_for(row, path)? {
            Looked::It(node) => self.lower.open(node),
            Looked::Another(node) => {
                let opened = self.lower.open(node);
                self.lower.forget(node, 1);
                opened
            }
            Looked::Gone => Err(stale()),
        }
    }

    /// What is below of a node, if something is.
    pub(super) fn below(&self, node: Node) -> Option<Node> {
        match self.place(node) {
            NodePlace::Lower => Some(node),
            NodePlace::Own(id) => self.met.lower(id),
        }
    }

    /// True of folders in which older versions of what is below are.
    pub(super) fn is_of_versions(&self, folder: Node) -> bool {
        self.below(folder).is_some_and(|lower| self.lower.is_of_versions(lower))
    }

    /// Fails for folders in which older versions are. What was put there would be in no listing, and in no archive.
    pub(super) fn takes_names(&self, folder: Node) -> Result<(), Error> {
        if self.is_of_versions(folder) { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Fails for what is below and was seen among older versions alone: it cannot be changed there.
    pub(super) fn has_a_place(&self, node: Node) -> Result<(), Error> {
        match self.place(node) {
            NodePlace::Lower if self.lower.is_of_versions(node) => Err(Error::ReadOnly),
            NodePlace::Lower => self.known.seen(node).map_or(Ok(()), |seen| self.takes_names(seen.folder)),
            NodePlace::Own(_) => Ok(()),
        }
    }

    /// True if an error of what is below says that it is not there any more, and the folder itself is here: then what
    /// was written in it is all that it has.
    pub(super) fn is_gone_below(&self, folder: Node, error: &Error) -> bool {
        error.errno() == Errno::STALE && matches!(self.place(folder), NodePlace::Own(_))
    }

    /// True if there is something of that name below a folder.
    pub(super) fn is_over(&self, folder: Node, name: &[u8]) -> Result<bool, Error> {
        let Some(lower) = self.below(folder) else { return Ok(false) };
        match self.lower.has_name(lower, name) {
            Err(error) if self.is_gone_below(folder, &error) => Ok(false),
            found => found,
        }
    }

    /// What was looked up below, for somebody who is given it.
    pub(super) fn give_lower(&self, folder: Node, name: &[u8], found: Attributes) -> Result<Attributes, Error> {
        if let Some(id) = self.met.id(found.node) {
            self.lower.forget(found.node, 1);
            let is_it = self.is_name_of(id, found.node, folder, name)?;
            return if is_it { self.give_named(id, folder, name) } else { Err(stale()) };
        }
        self.hold_seen(&found, folder, name);
        Ok(found)
    }

    /// A node of the overlay that was found by a name of which nothing is said.
    pub(super) fn give_named(&self, id: u64, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        let row = self.known_row(id)?;
        let shown = self.shown(&row)?;
        if row.is_shared && shown.node.0 < self.first {
            // It has two names at least, also if one of them was removed.
            let found = Attributes { links: shown.links.max(2), ..shown.clone() };
            self.hold_seen(&found, folder, name);
        } else {
            self.known.hold(shown.node);
        }
        Ok(shown)
    }

    /// True if `name` in a folder, which leads to `lower` below, is a name of node `id` of the overlay, that stands for
    /// it. What was changed here goes by its path: who renames it below has another file there, which is not shown
    /// until the next mount, as the kernel knows it by the number of the changed one. Of a file with several names, all
    /// are.
    pub(super) fn is_name_of(&self, id: u64, lower: Node, folder: Node, name: &[u8]) -> Result<bool, Error> {
        // In an archive nothing moves.
        if self.lower.lifetime(lower) == Lifetime::Forever {
            return Ok(true);
        }
        let row = self.known_row(id)?;
        if row.is_shared && row.kind != Kind::Folder {
            return Ok(true);
        }
        let is_it = self.is_in_place(&row, folder, name)?;
        if !is_it {
            let path = tarnfs_format::name::escape(row.lower.as_deref().unwrap_or_default()).to_string();
            log::debug!("{path}: was renamed below after it was changed here");
        }
        Ok(is_it)
    }

    /// True if what a node of the overlay stands for has this `name` in this folder below.
    fn is_in_place(&self, row: &NodeRow, folder: Node, name: &[u8]) -> Result<bool, Error> {
        // The folders that something changed lies in have numbers of their own.
        let NodePlace::Own(parent) = self.place(folder) else { return Ok(false) };
        let path = self.known_row(parent)?.lower.map(|path| join(&path, name));
        Ok(path.is_some() && path == row.lower)
    }

    /// True if there is another one below where `id` of the overlay was: a listing has `found` it as `name` in
    /// `folder`. It is looked up, and not given as the one that it was.
    pub(super) fn is_made_anew(&self, id: u64, folder: Node, name: &[u8], found: &Attributes) -> Result<bool, Error> {
        let is_known = match self.met.id(found.node) {
            Some(known) => known != id || self.met.lower(id) == Some(found.node),
            None => found.node == UNKNOWN,
        };
        let is_any = matches!(found.kind, Kind::Folder | Kind::File);
        if is_known || !is_any || self.lower.lifetime(found.node) == Lifetime::Forever {
            return Ok(false);
        }
        let row = self.known_row(id)?;
        if !follows(&row) || row.kind != found.kind || !self.is_in_place(&row, folder, name)? {
            return Ok(false);
        }
        let lower = self.lower_of(&row)?;
        Ok(lower != Some(found.node) && (lower.is_some() || !self.is_another_below(&row, found)))
    }

    /// What is below of a node of the overlay is gone.
    pub(super) fn lose(&self, id: u64) {
        self.met.lose(id);
        lock(&self.lost).insert(id, Instant::now());
    }

    /// Looks again what is below of `id`, which has this `name` in `folder`, if it [`follows`] that: somebody may have
    /// removed it, and made another one.
    pub(super) fn look_below(&self, id: u64, folder: Node, name: &[u8]) -> Result<(), Error> {
        let Some(lower) = self.below(folder).filter(|&lower| self.lower.lifetime(lower) != Lifetime::Forever) else {
            return Ok(());
        };
        let row = self.known_row(id)?;
        if !follows(&row) || !self.is_in_place(&row, folder, name)? {
            return Ok(());
        }
        match self.lower.lookup(lower, name) {
            Ok(found) => {
                let is_another = self.met.lower(id) != Some(found.node);
                let has_own_number = self.is_another_below(&row, &found);
                if is_another && has_own_number {
                    self.met.lose(id);
                }
                let is_one = found.kind == row.kind && !has_own_number;
                if is_another && is_one && self.met.id(found.node).is_none_or(|known| known == id) {
                    // It is held there for good.
                    self.met.meet(id, found.node);
                    lock(&self.lost).remove(&id);
                    lock(&self.compared).remove(&id);
                } else {
                    self.lower.forget(found.node, 1);
                }
                Ok(())
            }
            Err(error) if is_gone(&error) => {
                self.lose(id);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// True of what stands for all that is at its path below, one after the other: a folder, and a file of which only the
/// name or the attributes were changed. A file that has several names below is known by its number.
fn follows(row: &NodeRow) -> bool {
    row.kind == Kind::Folder || row.kind == Kind::File && row.place.is_none() && !row.is_shared
}

/// A file whose content is that below, which somebody has changed there. Its times are those below unless somebody has
/// set them here: which of both was changed later says nothing, as another name is a change, too, and clocks differ.
pub(super) fn following(row: &NodeRow, now: &Attributes) -> NodeRow {
    let ctime = row.ctime.max(now.ctime);
    let mut row = NodeRow { size: now.size, blocks: now.blocks, ctime, ..row.clone() };
    if row.changed & changed::TIMES == 0 {
        (row.atime, row.mtime) = (now.atime, now.mtime);
    }
    row
}
