//! Layers of a container image, one over the other.
//!
//! What a layer removes of those below it stands in it by name
//! (<https://github.com/opencontainers/image-spec/blob/main/layer.md#whiteouts>): a file `.wh.NAME` says that there is
//! nothing of `NAME` below this layer, and a file `.wh..wh..opq` in a folder that there is nothing of all that lower
//! layers have in it. Both say nothing of what the same layer holds. Names that begin so are not shown. Devices of
//! number 0:0 and attributes of overlayfs are what any file may be.
//!
//! A folder has the attributes of the highest layer that has an entry for it: one that is only there for what lies in
//! it changes nothing. What hides all that lower layers have in a folder hides nothing of what they say of the folder.

use std::sync::Arc;

use crate::spaces::Spaces;
use crate::{Attributes, Error, Kind, Node, Time, Tree};

use super::listing_cache::ListingCache;
use super::merged::MOST_UNHELD;
use super::{Memory, UnionTree};

/// A tree that is reached by a name in the root, and not listed.
pub(crate) struct Beside {
    /// The name.
    pub(crate) name: &'static [u8],
    /// What is there.
    pub(crate) tree: Arc<dyn Tree>,
}

/// What is known of an image.
#[derive(Debug)]
pub(super) struct Image {
    /// The first source is what is reached by this name.
    /// `None` if nobody is shown what is there.
    beside: Option<&'static [u8]>,
    /// When it was made.
    created: Time,
    /// Archives in its layers show as folders.
    has_archives: bool,
    /// There may be hard links that lead nowhere in its layers.
    has_dead_links: bool,
}

/// How images of one archive are made.
#[derive(Debug)]
pub(crate) struct Stacking {
    /// What all of them share.
    cache: ListingCache,
    most_unheld: usize,
    has_archives: bool,
    has_dead_links: bool,
    shows_layers: bool,
}

impl Stacking {
    /// For so many `images`. With `has_archives`, archives in their layers show as folders; with `has_dead_links` there
    /// may be hard links that lead nowhere.
    pub(crate) fn new(images: usize, has_archives: bool, has_dead_links: bool) -> Self {
        /// Of each image, so many folders are known that nobody holds.
        const LEAST: usize = 64;
        let most_unheld = MOST_UNHELD.checked_div(images).unwrap_or(MOST_UNHELD).max(LEAST);
        Self { cache: ListingCache::default(), most_unheld, has_archives, has_dead_links, shows_layers: true }
    }

    /// The same without the folder of layers.
    pub(crate) fn without_layers(self) -> Self {
        Self { shows_layers: false, ..self }
    }
}

impl Image {
    /// Its root, which layers seldom have an entry for: as container engines make it.
    pub(super) fn root(&self) -> Attributes {
        let time = self.created;
        Attributes {
            node: Node::ROOT,
            kind: Kind::Folder,
            mode: 0o755,
            uid: 0,
            gid: 0,
            links: 1,
            size: 0,
            blocks: 0,
            mtime: time,
            atime: time,
            ctime: time,
        }
    }
}

/// What every name begins with that says something of layers below.
const PREFIX: &[u8] = b".wh.";

/// The name of the file that says that there is nothing of its folder below.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// What a name in a layer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark<'n> {
    /// There is nothing of this name below.
    Hides(&'n [u8]),
    /// Something of the folder that it is in, or of nobody any more (aufs).
    Other,
}

impl<'n> Mark<'n> {
    /// What `name` says; `None` if it is the name of a file.
    pub(super) fn of(name: &'n [u8]) -> Option<Self> {
        let hidden = name.strip_prefix(PREFIX)?;
        Some(if hidden.is_empty() || hidden.starts_with(PREFIX) { Self::Other } else { Self::Hides(hidden) })
    }
}

/// True if `folder` in a layer says that there is nothing of it below.
pub(super) fn is_opaque(layer: &dyn Tree, folder: Node) -> Result<bool, Error> {
    match layer.lookup(folder, OPAQUE) {
        Ok(_) => Ok(true),
        Err(Error::NotFound) => Ok(false),
        Err(error) => Err(error),
    }
}

/// True if there is nothing in `folder` but what says that something of lower layers is gone.
fn only_removes(layer: &dyn Tree, folder: Node) -> Result<bool, Error> {
    /// Names that are looked at: who removes more than that has a file in its place that nobody sees.
    const MOST: usize = 1 << 16;
    let (mut waiting, mut left) = (vec![folder], MOST);
    while let Some(folder) = waiting.pop() {
        let mut only_removes = true;
        layer.read_dir(folder, 0, &mut |child| {
            left = left.saturating_sub(1);
            if Mark::of(child.name).is_none() {
                only_removes = child.attributes.kind == Kind::Folder;
                waiting.push(child.attributes.node);
            }
            only_removes && left > 0
        })?;
        if !only_removes || left == 0 || !layer.is_implied(folder) {
            return Ok(false);
        }
    }
    Ok(true)
}

impl UnionTree {
    /// An image with these `layers`, the lowest first, made at that time. None of them can change.
    pub(crate) fn of_layers(
        layers: Vec<Arc<dyn Tree>>,
        beside: Beside,
        created: Option<Time>,
        how: &Stacking,
    ) -> Result<Self, Error> {
        let mut roots = Vec::new();
        for (number, layer) in layers.iter().enumerate().rev() {
            roots.push(number + 1);
            if is_opaque(&**layer, Node::ROOT)? {
                break;
            }
        }
        let (has_archives, has_dead_links) = (how.has_archives, how.has_dead_links);
        let beside_name = how.shows_layers.then_some(beside.name);
        let image = Image { beside: beside_name, created: created.unwrap_or_default(), has_archives, has_dead_links };
        let mut sources = layers;
        sources.insert(0, beside.tree);
        let outer = |spaces: &Spaces| roots.iter().map(|&source| spaces.outer(source, Node::ROOT)).collect();
        let bounds = (Memory::default(), how.cache.clone(), how.most_unheld);
        let mut this = Self::with_roots(sources, bounds, &outer)?;
        this.image = Some(image);
        Ok(this)
    }

    /// True if its layer has an entry for the folder `part`.
    pub(super) fn is_told(&self, part: Node) -> bool {
        self.part(part).is_ok_and(|(tree, _, inner)| !tree.is_implied(inner))
    }

    /// The part that says what a folder with these `parts` is; `below` says it where none of them does.
    pub(super) fn face(&self, parts: &[Node], below: Option<Node>) -> Option<Node> {
        let told = if self.image.is_some() { parts.iter().copied().find(|&part| self.is_told(part)) } else { None };
        told.or(below).or(parts.first().copied())
    }

    /// The folder `name` in one of the `lower` parts that says what a folder is which is made of those `found`: of the
    /// last of these, its layer hides all that lower ones have in it.
    pub(super) fn told_below(
        &self,
        mut found: impl Iterator<Item = Node>,
        lower: &[Node],
        name: &[u8],
    ) -> Result<Option<Node>, Error> {
        if self.image.is_none() || found.any(|part| self.is_told(part)) {
            return Ok(None);
        }
        for &part in lower {
            let (_, source, _) = self.part(part)?;
            let found = match self.look(part, name) {
                Ok(found) => self.spaces.attributes(source, &found)?,
                Err(Error::NotFound) if self.has_gap(part, name)? => break,
                Err(Error::NotFound) => continue,
                Err(error) => return Err(error),
            };
            // A file was in its place, so what lies further below is another folder.
            if found.kind != Kind::Folder || self.is_archive(part, name, found.node)? {
                break;
            }
            if self.is_told(found.node) {
                return Ok(Some(found.node));
            }
            if self.has_mark(part, name)? {
                break;
            }
        }
        Ok(None)
    }

    /// What a folder with these `parts` is, of which `top` is the highest.
    pub(super) fn with_face(&self, top: Attributes, parts: &[Node], below: Option<Node>) -> Result<Attributes, Error> {
        match self.face(parts, below).filter(|face| *face != top.node && self.image.is_some()) {
            Some(face) => {
                let (tree, source, inner) = self.part(face)?;
                self.spaces.attributes(source, &tree.attributes(inner)?)
            }
            None => Ok(top),
        }
    }

    /// What `name` is in the folder `part` of one layer.
    ///
    /// Where a file takes the place of a folder, some programs (umoci) also tell what is gone of that folder, behind
    /// the file: then there is a folder in the layer that only says so, and the file is what was meant.
    pub(super) fn look(&self, part: Node, name: &[u8]) -> Result<Attributes, Error> {
        let (tree, _, inner) = self.part(part)?;
        let found = tree.lookup(inner, name)?;
        if self.image.is_none() || found.kind != Kind::Folder || !tree.is_implied(found.node) {
            return Ok(found);
        }
        let mut file = None;
        tree.each_version(inner, name, 0, &mut |version| {
            file = Some(version).filter(|version| version.kind != Kind::Folder).or(file.take());
            true
        })?;
        match file {
            Some(file) if only_removes(tree, found.node)? => Ok(file),
            _ => Ok(found),
        }
    }

    /// What one of the `lower` parts has as `name` that is no folder, if all that higher ones have there only says what
    /// is gone in a folder of that name: `folder`, which is that in `part`, the highest, and what is between. There is
    /// no such folder, so that says nothing, and the file is what was meant.
    pub(super) fn kept_below(
        &self,
        (part, folder): (Node, Node),
        lower: &[Node],
        name: &[u8],
    ) -> Result<Option<Attributes>, Error> {
        if self.image.is_none() || lower.is_empty() || self.is_told(folder) || self.has_mark(part, name)? {
            return Ok(None);
        }
        let mut above = vec![folder];
        for &part in lower {
            let (_, source, _) = self.part(part)?;
            let found = match self.look(part, name) {
                Ok(found) => self.spaces.attributes(source, &found)?,
                Err(Error::NotFound) if self.has_gap(part, name)? => return Ok(None),
                Err(Error::NotFound) => continue,
                Err(error) => return Err(error),
            };
            if found.kind == Kind::Folder && !self.is_archive(part, name, found.node)? {
                if self.is_told(found.node) || self.has_mark(part, name)? {
                    return Ok(None);
                }
                above.push(found.node);
                continue;
            }
            for folder in above {
                let (tree, _, inner) = self.part(folder)?;
                if !only_removes(tree, inner)? {
                    return Ok(None);
                }
            }
            return Ok(Some(found));
        }
        Ok(None)
    }

    /// True if `version`, which `layer` has under a name where no folder shows, only says what is gone in one.
    pub(super) fn is_no_version(&self, layer: &dyn Tree, version: &Attributes) -> Result<bool, Error> {
        let may_be = self.image.is_some() && version.kind == Kind::Folder && layer.is_implied(version.node);
        Ok(may_be && only_removes(layer, version.node)?)
    }

    /// True if `folder`, which is called `name` in the folder `part` of one layer, shows what an archive holds. That is
    /// a file, and takes the place of all that lower layers have there.
    pub(super) fn is_archive(&self, part: Node, name: &[u8], folder: Node) -> Result<bool, Error> {
        if !self.image.as_ref().is_some_and(|image| image.has_archives) {
            return Ok(false);
        }
        let (tree, _, inner) = self.part(folder)?;
        if tree.is_implied(inner) {
            return Ok(false);
        }
        let (tree, _, inner) = self.part(part)?;
        let mut is_archive = false;
        tree.each_version(inner, name, 0, &mut |version| {
            is_archive |= version.kind != Kind::Folder;
            !is_archive
        })?;
        Ok(is_archive)
    }

    /// True if the layer that has `part` says that there is nothing of `name` in that folder below it.
    pub(super) fn has_mark(&self, part: Node, name: &[u8]) -> Result<bool, Error> {
        if self.image.is_none() {
            return Ok(false);
        }
        let (tree, _, inner) = self.part(part)?;
        match tree.lookup(inner, &[PREFIX, name].concat()) {
            Ok(_) => Ok(true),
            Err(Error::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// True if the layer that has `part`, where nothing shows as `name` in that folder, says that there is nothing of
    /// that name below it, or has something of it that does not show: a hard link to a file of a lower layer.
    pub(super) fn has_gap(&self, part: Node, name: &[u8]) -> Result<bool, Error> {
        if self.has_mark(part, name)? {
            return Ok(true);
        }
        if !self.may_have_dead_links() {
            return Ok(false);
        }
        let (tree, _, inner) = self.part(part)?;
        tree.has_name(inner, name)
    }

    /// True if names in layers may be those of hard links that lead nowhere. Mostly there are none.
    pub(super) fn may_have_dead_links(&self) -> bool {
        self.image.as_ref().is_some_and(|image| image.has_dead_links)
    }

    /// True of a name in a source that says something of layers below.
    pub(super) fn hides(&self, source: usize, name: &[u8]) -> bool {
        self.image.is_some() && !self.is_beside(source) && Mark::of(name).is_some()
    }

    /// True of the source that is no layer.
    pub(super) fn is_beside(&self, source: usize) -> bool {
        self.image.is_some() && source == 0
    }

    /// What is beside the layers, if `name` in `folder` is what leads there.
    pub(super) fn beside_at(&self, folder: Node, name: &[u8]) -> Result<Option<Attributes>, Error> {
        if folder != Node::ROOT || self.image.as_ref().is_none_or(|image| image.beside != Some(name)) {
            return Ok(None);
        }
        let attributes = self.sources[0].attributes(Node::ROOT)?;
        self.spaces.attributes(0, &attributes).map(Some)
    }

    /// The sources that count: layers all stand on one archive, and each says what that is. (One that changes nothing
    /// may stand on nothing.)
    pub(super) fn counted(&self) -> &[Arc<dyn Tree>] {
        if self.image.is_none() {
            return &self.sources;
        }
        let most = self.sources.iter().skip(1).enumerate().max_by_key(|(_, layer)| layer.totals().nodes);
        let most = most.map_or(0, |(number, _)| number + 1);
        self.sources.get(most..=most).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_whiteouts_hide_others() {
        assert_eq!(Mark::of(b".wh.a"), Some(Mark::Hides(b"a")));
        assert_eq!(Mark::of(b".wh..a"), Some(Mark::Hides(b".a")));
        for name in [&b".wh..wh..opq"[..], b".wh..wh.plnk", b".wh..wh.aufs", b".wh."] {
            assert_eq!(Mark::of(name), Some(Mark::Other));
        }
        for name in [&b"a"[..], b".wh", b"a.wh.b", b""] {
            assert_eq!(Mark::of(name), None);
        }
    }
}
