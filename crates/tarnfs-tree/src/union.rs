//! Several trees, one over the other: of what has the same path, that of the tree furthest to the right shows.
//!
//! The rules are those of overlayfs: folders of one path are merged, from the right to the left, until there is
//! something that is no folder: that hides all further left, and is hidden itself by folders further right. A merged
//! folder has the attributes of its rightmost part. Whiteouts (character devices of number 0:0) and opaque folders
//! (`trusted.overlay.opaque`, `user.overlay.opaque`) hide what is further left; a whiteout in a folder of several
//! sources does not show.
//!
//! Layers of container images follow other rules ([`layers`]): names say what is hidden.
//!
//! Nothing is walked when a union is made. Files, and folders that only one source has, are passed through: their
//! numbers are a source's, moved to its range ([`crate::spaces`]). Only folders with several parts get numbers of their
//! own, when they are met. What is listed of one is in [`listing`].

mod layers;
mod listing;
mod listing_cache;
mod merged;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use rustix::io::Errno;
use tarnfs_source::SharedSource;

use crate::spaces::{OWN, Spaces};
use crate::{Attributes, Child, Device, Error, HeldUp, Kind, Lifetime, Node, Totals, Tree, Waiting, Work, Xattrs};

pub(crate) use layers::{Beside, Stacking};
use layers::{Image, Mark};
use listing::Listings;
pub use listing::Memory;
use listing_cache::ListingCache;
use merged::{MOST_UNHELD, Merged, Parts};

/// Any number of trees as one.
pub struct UnionTree {
    sources: Vec<Arc<dyn Tree>>,
    spaces: Spaces,
    /// Which sources can change, and whether none can.
    can_change: Vec<bool>,
    has_xattrs: Vec<bool>,
    is_immutable: bool,
    merged: Arc<RwLock<Merged>>,
    listings: Listings,
    /// What is known of an image, if the sources are its layers.
    image: Option<Image>,
}

impl fmt::Debug for UnionTree {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("UnionTree").field("sources", &self.sources.len()).finish_non_exhaustive()
    }
}

/// Where a node is.
enum NodePlace {
    /// In one source.
    Source(usize, Node),
    /// A folder with several parts.
    Merged(Parts),
}

impl UnionTree {
    /// The union of `sources`, from left to right. Fails only if there are more than numbers for their nodes.
    pub fn new(sources: Vec<Arc<dyn Tree>>) -> Result<Self, Error> {
        Self::with_memory(sources, Memory::default())
    }

    /// The same with other bounds on the memory of listings.
    pub fn with_memory(sources: Vec<Arc<dyn Tree>>, memory: Memory) -> Result<Self, Error> {
        let count = sources.len();
        Self::with_roots(sources, (memory, ListingCache::default(), MOST_UNHELD), &|spaces| {
            (0..count).rev().map(|source| spaces.outer(source, Node::ROOT)).collect()
        })
    }

    /// The same; `roots` says which of their roots the root is made of. Listings are kept in the cache, and of what
    /// cannot change so many folders are known that nobody holds.
    fn with_roots(
        sources: Vec<Arc<dyn Tree>>,
        (memory, cache, most_unheld): (Memory, ListingCache, usize),
        roots: &dyn Fn(&Spaces) -> Result<Vec<Node>, Error>,
    ) -> Result<Self, Error> {
        let spaces = Spaces::new(OWN, &sources)?;
        let can_change: Vec<bool> = sources.iter().map(|source| !source.totals().is_immutable).collect();
        let has_xattrs = sources.iter().map(|source| source.totals().has_xattrs).collect();
        let is_immutable = !can_change.contains(&true);
        let most_unheld = if is_immutable { most_unheld } else { 0 };
        let merged = Arc::new(RwLock::new(Merged::new(&roots(&spaces)?, most_unheld)));
        let listings = Listings::new(memory, cache, is_immutable);
        Ok(Self { sources, spaces, can_change, has_xattrs, is_immutable, merged, listings, image: None })
    }

    fn place(&self, node: Node) -> Result<NodePlace, Error> {
        if let Some((source, inner)) = self.spaces.inner(node) {
            return Ok(NodePlace::Source(source, inner));
        }
        let merged = self.merged.read().unwrap_or_else(PoisonError::into_inner);
        merged.parts(node).map(|parts| NodePlace::Merged(Arc::clone(parts))).ok_or(Error::NotFound)
    }

    /// The source of a part, and the node that it is there.
    fn part(&self, part: Node) -> Result<(&dyn Tree, usize, Node), Error> {
        let (source, inner) = self.spaces.inner(part).ok_or(Error::NotFound)?;
        Ok((&*self.sources[source], source, inner))
    }

    /// Calls `ask` with what stands for `node` in the sources: itself, or the rightmost part of a merged folder.
    fn ask<T>(&self, node: Node, ask: impl Fn(&dyn Tree, Node) -> Result<T, Error>) -> Result<T, Error> {
        let top = match self.place(node)? {
            NodePlace::Source(source, inner) => return ask(&*self.sources[source], inner),
            NodePlace::Merged(parts) => {
                let below = self.merged.read().unwrap_or_else(PoisonError::into_inner).below(node);
                self.face(&parts, below).ok_or(Error::NotFound)?
            }
        };
        let (tree, _, inner) = self.part(top)?;
        ask(tree, inner)
    }

    /// What a folder is whose parts are `parts`; `top` is what is known of the rightmost, in the terms of this tree. Of
    /// the folder `below`, if there is one, it has nothing but attributes ([`UnionTree::face`]).
    fn folder(&self, parent: Node, top: Attributes, parts: &[Node], below: Option<Node>) -> Result<Attributes, Error> {
        if parts.len() < 2 && below.is_none() {
            return Ok(top);
        }
        let top = self.with_face(top, parts, below)?;
        let known = self.merged.read().unwrap_or_else(PoisonError::into_inner).find(parent, parts);
        let node = match known {
            Some(node) => node,
            None => self.merged.write().unwrap_or_else(PoisonError::into_inner).hold(parent, parts, below)?,
        };
        Ok(as_merged(node, &top))
    }

    /// Says that a node, which a listing has, is given to somebody. False for a merged folder that is not known any
    /// more: the listing was dropped meanwhile. Sources that cannot change do not count.
    fn hold_again(&self, node: Node) -> bool {
        node.0 >= OWN || self.merged.read().unwrap_or_else(PoisonError::into_inner).hold_again(node)
    }

    /// What `name` is in a folder of several parts.
    fn merge(&self, folder: Node, parts: &[Node], name: &[u8]) -> Result<Option<Attributes>, Error> {
        let mut found = Vec::new();
        let merged = self.merge_found(folder, parts, name, &mut found);
        if merged.is_err() {
            // Nobody is given what was looked up on the way.
            for folder in found {
                self.forget(folder.node, 1);
            }
        }
        merged
    }

    /// The same; the folders that were looked up for it are put into `found`.
    fn merge_found(
        &self,
        folder: Node,
        parts: &[Node],
        name: &[u8],
        found: &mut Vec<Attributes>,
    ) -> Result<Option<Attributes>, Error> {
        if self.image.is_some() && Mark::of(name).is_some() {
            return Ok(None);
        }
        let mut below = None;
        for (place, &part) in parts.iter().enumerate() {
            let (_, source, _) = self.part(part)?;
            let attributes = match self.look(part, name) {
                Ok(attributes) => self.spaces.attributes(source, &attributes)?,
                Err(Error::NotFound) if self.has_gap(part, name)? => break,
                Err(Error::NotFound) => continue,
                // What the folder hid must not show because it was moved. Of the last one nothing is hidden.
                Err(error) if self.is_absence(source, &error) => {
                    if Some(&part) == parts.last() {
                        continue;
                    }
                    return Err(Errno::STALE.into());
                }
                Err(error) => return Err(error),
            };
            if attributes.kind != Kind::Folder {
                if found.is_empty() && !self.is_whiteout(&attributes) {
                    return Ok(Some(attributes));
                }
                // Hidden.
                self.forget(attributes.node, 1);
                break;
            }
            let node = attributes.node;
            let is_last = Some(&part) == parts.last();
            if found.is_empty() {
                let lower = parts.get(place + 1..).unwrap_or_default();
                let kept = self.kept_below((part, node), lower, name);
                if !matches!(kept, Ok(None)) {
                    self.forget(node, 1);
                    return kept;
                }
            }
            // That takes the place of all further left, as its file does, and is not seen through other folders.
            let is_archive = !(is_last && found.is_empty()) && self.is_archive(part, name, node)?;
            if is_archive && !found.is_empty() {
                self.forget(node, 1);
                break;
            }
            found.push(attributes);
            if is_archive || !is_last && self.has_mark(part, name)? {
                break;
            }
            if !is_last && self.is_opaque(node)? {
                let lower = parts.get(place + 1..).unwrap_or_default();
                below = self.told_below(found.iter().map(|folder| folder.node), lower, name)?;
                break;
            }
        }
        let nodes: Vec<Node> = found.iter().map(|folder| folder.node).collect();
        found.first().cloned().map(|top| self.folder(folder, top, &nodes, below)).transpose()
    }

    /// True if a folder of one source hides what is in those of its path further left.
    fn is_opaque(&self, part: Node) -> Result<bool, Error> {
        let (tree, source, inner) = self.part(part)?;
        if self.image.is_some() {
            return layers::is_opaque(tree, inner);
        }
        if !self.has_xattrs[source] {
            return Ok(false);
        }
        let is_mark = |(name, value): &(Vec<u8>, Vec<u8>)| {
            matches!(name.as_slice(), b"trusted.overlay.opaque" | b"user.overlay.opaque") && value == b"y"
        };
        match tree.xattrs(inner) {
            Ok(xattrs) => Ok(xattrs.iter().any(is_mark)),
            Err(error) if self.is_absence(source, &error) => Err(Errno::STALE.into()),
            Err(error) => Err(error),
        }
    }

    /// True for what says, in a folder of several sources, that there is nothing of its name in those further left. In
    /// layers that is a device like any other.
    fn is_whiteout(&self, attributes: &Attributes) -> bool {
        self.image.is_none() && attributes.kind == Kind::CharacterDevice(Device { major: 0, minor: 0 })
    }

    /// True if a source answers so where it has nothing. A folder that may change may also be gone, or something else
    /// by now.
    fn is_absence(&self, source: usize, error: &Error) -> bool {
        match error {
            Error::NotFound => true,
            Error::NotAFolder => self.can_change[source],
            Error::Io(error) => self.can_change[source] && error.kind() == io::ErrorKind::StaleNetworkFileHandle,
            _ => false,
        }
    }
}

/// A merged folder's number of links is 1, as overlayfs has it: nobody has counted the folders in it, and programs know
/// that 1 means that.
fn as_merged(node: Node, top: &Attributes) -> Attributes {
    Attributes { node, links: 1, ..top.clone() }
}

impl Tree for UnionTree {
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        if let Some(beside) = self.beside_at(folder, name)? {
            return Ok(beside);
        }
        match self.place(folder)? {
            NodePlace::Source(source, _) if self.hides(source, name) => Err(Error::NotFound),
            NodePlace::Source(source, inner) => {
                self.spaces.attributes(source, &self.sources[source].lookup(inner, name)?)
            }
            NodePlace::Merged(parts) => match self.listings.find(folder, name) {
                Some(Ok(known)) if self.hold_again(known.node) => Ok(known),
                Some(Err(error)) => Err(error),
                _ => self.merge(folder, &parts, name)?.ok_or(Error::NotFound),
            },
        }
    }

    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        let (source, inner) = match self.place(folder)? {
            NodePlace::Source(source, inner) => (source, inner),
            NodePlace::Merged(parts) => return self.list(folder, &parts, from, receive),
        };
        let mut failure = None;
        self.sources[source].read_dir(
            inner,
            from,
            &mut |child| match self.spaces.attributes(source, &child.attributes) {
                Ok(_) if self.hides(source, child.name) => true,
                Ok(attributes) => receive(Child { attributes, ..child }),
                Err(error) => {
                    failure = Some(error);
                    false
                }
            },
        )?;
        failure.map_or(Ok(()), Err)
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        match self.place(node)? {
            NodePlace::Source(source, inner) => {
                self.spaces.attributes(source, &self.sources[source].attributes(inner)?)
            }
            NodePlace::Merged(_) => match &self.image {
                Some(image) if node == Node::ROOT => Ok(image.root()),
                _ => Ok(as_merged(node, &self.ask(node, |tree, inner| tree.attributes(inner))?)),
            },
        }
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        let merged = || self.merged.read().unwrap_or_else(PoisonError::into_inner);
        match self.place(folder)? {
            NodePlace::Source(source, inner) => {
                if inner == Node::ROOT && self.is_beside(source) {
                    return Ok(Node::ROOT);
                }
                let parent = self.spaces.outer(source, self.sources[source].parent(inner)?)?;
                let whole = merged().whole(parent);
                Ok(whole.unwrap_or(parent))
            }
            NodePlace::Merged(_) => merged().parent(folder).ok_or(Error::NotFound),
        }
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>, Error> {
        self.ask(node, |tree, inner| tree.read_link(inner))
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        self.ask(node, |tree, inner| tree.xattrs(inner))
    }

    fn xattr(&self, node: Node, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.ask(node, |tree, inner| tree.xattr(inner, name))
    }

    fn each_version(
        &self,
        folder: Node,
        name: &[u8],
        from: u64,
        receive: &mut dyn FnMut(Attributes) -> bool,
    ) -> Result<(), Error> {
        let parts = match self.place(folder)? {
            NodePlace::Source(source, _) if self.hides(source, name) => return Ok(()),
            NodePlace::Source(source, inner) => {
                let mut result = Ok(true);
                let listed = self.sources[source].each_version(inner, name, from, &mut |attributes| {
                    result = self.spaces.attributes(source, &attributes).map(&mut *receive);
                    matches!(result, Ok(true))
                });
                return match listed {
                    Err(error) if !self.is_absence(source, &error) => Err(error),
                    _ => result.map(drop),
                };
            }
            NodePlace::Merged(_) if self.image.is_some() && Mark::of(name).is_some() => return Ok(()),
            NodePlace::Merged(parts) => parts,
        };
        // What is no version is only known when it is seen, so all are counted.
        let mut passed = 0;
        let receive = &mut |version: Attributes| {
            if passed == from {
                return receive(version);
            }
            passed += 1;
            self.forget(version.node, 1);
            true
        };
        // Where no folder shows, those that only say what is gone in one are no versions.
        let is_no_folder = |shown: Attributes| {
            self.forget(shown.node, 1);
            shown.kind != Kind::Folder
        };
        let shows_file = self.image.is_some() && self.lookup(folder, name).is_ok_and(is_no_folder);
        // Given to nobody yet: the last one shows with what others further left have in it.
        let mut waiting: Option<Attributes> = None;
        let mut goes_on = true;
        for &part in parts.iter().rev() {
            let (tree, source, inner) = self.part(part)?;
            let mut failure = None;
            let listed = tree.each_version(inner, name, 0, &mut |attributes| {
                let is_none = if shows_file { self.is_no_version(tree, &attributes) } else { Ok(false) };
                match is_none.and_then(|is_none| Ok((is_none, self.spaces.attributes(source, &attributes)?))) {
                    // What only says that there is nothing is no version of anything.
                    Ok((is_none, version)) if is_none || self.is_whiteout(&version) => {
                        tree.forget(attributes.node, 1);
                    }
                    Ok((_, version)) => goes_on = waiting.replace(version).is_none_or(&mut *receive),
                    Err(error) => failure = Some(error),
                }
                goes_on && failure.is_none()
            });
            match listed {
                Err(error) if !self.is_absence(source, &error) => failure = Some(error),
                _ => {}
            }
            if let (Some(_), Some(waiting)) = (&failure, &waiting) {
                self.forget(waiting.node, 1);
            }
            if let Some(error) = failure {
                return Err(error);
            }
            if !goes_on {
                break;
            }
        }
        let Some(mut last) = waiting else { return Ok(()) };
        if !goes_on {
            self.forget(last.node, 1);
            return Ok(());
        }
        // A folder shows with what others further left have in it.
        if last.kind == Kind::Folder
            && let Ok(shown) = self.lookup(folder, name)
        {
            self.forget(std::mem::replace(&mut last, shown).node, 1);
        }
        receive(last);
        Ok(())
    }

    fn node_limit(&self) -> u64 {
        self.spaces.end()
    }

    fn is_implied(&self, folder: Node) -> bool {
        let is_merged = || matches!(self.place(folder), Ok(NodePlace::Merged(_)));
        let is_root_of_image = folder == Node::ROOT && self.image.is_some();
        let is_implied = |folder| self.ask(folder, |tree, inner| Ok(tree.is_implied(inner))).unwrap_or(false);
        !is_root_of_image && (self.image.is_some() || !is_merged()) && is_implied(folder)
    }

    /// A merged folder stands for all of its parts, which were looked up whenever it was.
    fn forget(&self, node: Node, times: u64) {
        match self.place(node) {
            Ok(NodePlace::Source(source, inner)) => self.sources[source].forget(inner, times),
            Ok(NodePlace::Merged(parts)) if node != Node::ROOT => {
                self.merged.write().unwrap_or_else(PoisonError::into_inner).release(node, times);
                for (tree, _, inner) in parts.iter().filter_map(|&part| self.part(part).ok()) {
                    tree.forget(inner, times);
                }
            }
            _ => {}
        }
    }

    fn close_folder(&self, folder: Node) {
        match self.place(folder) {
            Ok(NodePlace::Source(source, inner)) => self.sources[source].close_folder(inner),
            Ok(NodePlace::Merged(parts)) => {
                for (tree, _, inner) in parts.iter().filter_map(|&part| self.part(part).ok()) {
                    tree.close_folder(inner);
                }
            }
            Err(_) => {}
        }
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        self.ask(node, |tree, inner| tree.open(inner))
    }

    fn path_of(&self, node: Node) -> Option<Vec<u8>> {
        self.ask(node, |tree, inner| Ok(tree.path_of(inner))).ok().flatten()
    }

    fn owner_names(&self, node: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        self.ask(node, |tree, inner| tree.owner_names(inner))
    }

    /// A node is of certain sources for good: where another one gets something of its path, that has another number, as
    /// a merged folder with other parts has. Whoever goes there again comes by a folder in which that source is, the
    /// root at the latest.
    fn lifetime(&self, node: Node) -> Lifetime {
        let of_part = |part: Node| self.part(part).map_or(Lifetime::None, |(tree, _, inner)| tree.lifetime(inner));
        match self.place(node) {
            Ok(NodePlace::Source(source, inner)) => self.sources[source].lifetime(inner),
            Ok(NodePlace::Merged(parts)) => parts.iter().map(|&part| of_part(part)).min().unwrap_or(Lifetime::Forever),
            Err(_) => Lifetime::None,
        }
    }

    fn lifetime_of_gaps(&self, folder: Node) -> Lifetime {
        let of_part =
            |part: Node| self.part(part).map_or(Lifetime::None, |(tree, _, inner)| tree.lifetime_of_gaps(inner));
        match self.place(folder) {
            Ok(NodePlace::Source(source, inner)) => self.sources[source].lifetime_of_gaps(inner),
            Ok(NodePlace::Merged(parts)) => parts.iter().map(|&part| of_part(part)).min().unwrap_or(Lifetime::Forever),
            Err(_) => Lifetime::None,
        }
    }

    fn totals(&self) -> Totals {
        Totals::of_all(self.counted())
    }

    fn work(&self) -> Work {
        let mut work = Work::of_all(self.counted());
        work.memory.push(("listings", self.listings.bytes() as u64));
        work
    }

    fn waiting(&self) -> Option<&dyn Waiting> {
        Some(self)
    }
}

impl Waiting for UnionTree {
    fn is_ready(&self, node: Node) -> bool {
        match self.place(node) {
            Ok(NodePlace::Source(source, inner)) => self.sources[source].is_ready(inner),
            Ok(NodePlace::Merged(parts)) => {
                parts.iter().all(|&part| self.part(part).is_ok_and(|(tree, _, inner)| tree.is_ready(inner)))
            }
            // The answer, that it is not there, takes no time.
            Err(_) => true,
        }
    }

    /// A folder of several parts is gathered as a whole.
    fn lists_at_once(&self, folder: Node, from: u64) -> bool {
        match self.place(folder) {
            Ok(NodePlace::Source(source, inner)) => self.sources[source].lists_at_once(inner, from),
            Ok(NodePlace::Merged(parts)) => {
                self.is_ready(folder) && (self.is_gathered(folder, from) || self.is_small(&parts))
            }
            Err(_) => true,
        }
    }

    fn lane(&self, node: Node) -> u64 {
        match self.place(node) {
            Ok(NodePlace::Source(source, inner)) => self.sources[source].lane(inner),
            // It is the part that is not ready that is waited for.
            Ok(NodePlace::Merged(parts)) => {
                let mut parts = parts.iter().filter_map(|&part| self.part(part).ok());
                parts.find(|(tree, _, inner)| !tree.is_ready(*inner)).map_or(0, |(tree, _, inner)| tree.lane(inner))
            }
            Err(_) => 0,
        }
    }

    fn held_up(&self, node: Node) -> Option<HeldUp> {
        match self.place(node) {
            Ok(NodePlace::Source(source, inner)) => self.sources[source].held_up(inner),
            Ok(NodePlace::Merged(parts)) => parts.iter().find_map(|&part| {
                let (tree, _, inner) = self.part(part).ok()?;
                tree.held_up(inner)
            }),
            Err(_) => None,
        }
    }

    fn wait_out(&self, node: Node) {
        match self.place(node) {
            Ok(NodePlace::Source(source, inner)) => self.sources[source].wait_out(inner),
            Ok(NodePlace::Merged(parts)) => {
                for (tree, _, inner) in parts.iter().filter_map(|&part| self.part(part).ok()) {
                    tree.wait_out(inner);
                }
            }
            Err(_) => {}
        }
    }

    fn asked_for(&self, folder: Node, name: &[u8]) -> Node {
        let Some((source, inner)) = self.spaces.inner(folder) else { return folder };
        self.spaces.outer(source, self.sources[source].asked_for(inner, name)).unwrap_or(folder)
    }
}
