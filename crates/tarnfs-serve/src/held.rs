//! What was looked up in a tree, until it is forgotten there.

use std::sync::Arc;

use tarnfs_tree::build::without_archive_suffix;
use tarnfs_tree::{Attributes, Error, Kind, Node, Tree, path};

/// Bytes of the way to a file at most. Links may lead through the same archive again and again.
const MOST_WAY: usize = 4 << 10;

/// A file or folder. Where nodes are numbered as they are met, its number is its own as long as this lives.
pub(crate) struct Held {
    tree: Arc<dyn Tree>,
    pub(crate) attributes: Attributes,
    /// What the archives were on the way to it ([`state`]), or a hash of that.
    way: Vec<u8>,
    /// It is a folder that the way to it goes through: a link has led back.
    pub(crate) is_loop: bool,
}

/// The times of a file that shows as the folder of an archive; nothing for other folders. Such a file may be replaced
/// by another archive, with entries of the same names, sizes and times.
fn state(folder: &Attributes) -> Vec<u8> {
    let times = [folder.mtime, folder.ctime].into_iter().filter(|_| may_be_archive(folder));
    times.flat_map(|time| [time.seconds.to_le_bytes(), i64::from(time.nanoseconds).to_le_bytes()].concat()).collect()
}

/// A tree does not say which folders are archives. These have one link and no size; folders that have the same are
/// empty, but for some file systems.
fn may_be_archive(folder: &Attributes) -> bool {
    folder.kind == Kind::Folder && folder.links == 1 && folder.size == 0 && folder.blocks == 0
}

/// What the folder at `path` is called in an archive of it. One that shows an archive has the name of that: unpacked
/// beside it, the folder would take its place.
pub(crate) fn name_of_copy(tree: &Arc<dyn Tree>, folder: &Attributes, path: &[Vec<u8>]) -> Option<Vec<u8>> {
    let (name, above) = path.split_last()?;
    let is_source = above.is_empty() && may_be_archive(folder);
    if !is_source && !is_beside_a_file(tree, &above.join(&b'/'), name) {
        return Some(name.clone());
    }
    let of_parts = || {
        let dot = name.iter().rposition(|&byte| byte == b'.').filter(|&dot| dot > 0)?;
        without_archive_suffix(name.get(..dot)?)
    };
    let other = || if is_source { name.clone() } else { [name, &b".contents"[..]].concat() };
    Some(without_archive_suffix(name).or_else(of_parts).unwrap_or_else(other))
}

/// True if a file of that name is in the folder `above`, too: what it holds shows in its place.
fn is_beside_a_file(tree: &Arc<dyn Tree>, above: &[u8], name: &[u8]) -> bool {
    let Ok(above) = Held::find(tree, above) else { return false };
    let (mut is_file, mut nodes) = (false, Vec::new());
    let looked = tree.each_version(above.attributes.node, name, 0, &mut |version| {
        is_file |= version.kind == Kind::File;
        nodes.push(version.node);
        !is_file
    });
    for node in nodes {
        tree.forget(node, 1);
    }
    looked.is_ok() && is_file
}

impl Held {
    /// What `path` leads to. Symbolic links are followed inside of the tree, as many as the kernel would.
    pub(crate) fn find(tree: &Arc<dyn Tree>, path: &[u8]) -> Result<Self, Error> {
        let (mut way, mut passed) = (Vec::new(), Vec::new());
        let attributes = path::find_through(&**tree, path, true, &mut |folder| {
            way.extend(state(folder));
            if way.len() > MOST_WAY {
                way = blake3::hash(&way).as_bytes().to_vec();
            }
            passed.push(folder.node);
        })?;
        let is_loop = passed.contains(&attributes.node);
        Ok(Self { tree: Arc::clone(tree), attributes, way, is_loop })
    }

    /// Tells the archives that it lies in from what they were before they were replaced.
    pub(crate) fn way(&self) -> &[u8] {
        &self.way
    }

    /// The same for what is in this folder.
    pub(crate) fn way_inside(&self) -> Vec<u8> {
        [self.way.as_slice(), &state(&self.attributes)].concat()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Nobody looks up the root.
        if self.attributes.node != Node::ROOT {
            self.tree.forget(self.attributes.node, 1);
        }
    }
}

/// One of them.
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) attributes: Attributes,
    /// Where to go on behind it.
    pub(crate) next: u64,
}

/// Some entries of a folder.
pub(crate) struct Listed<'a> {
    tree: &'a dyn Tree,
    pub(crate) entries: Vec<Entry>,
    /// Where to go on; `None` at the end of the folder.
    pub(crate) next: Option<u64>,
}

impl<'a> Listed<'a> {
    /// Up to `most` entries of `folder` from position `from` on.
    pub(crate) fn new(tree: &'a dyn Tree, folder: Node, from: u64, most: usize) -> Result<Self, Error> {
        let mut listed = Self { tree, entries: Vec::new(), next: None };
        let (mut behind, mut has_more) = (from, false);
        tree.read_dir(folder, from, &mut |child| {
            has_more = listed.entries.len() == most;
            if !has_more {
                behind = child.next;
                let (name, attributes) = (child.name.to_vec(), child.attributes);
                listed.entries.push(Entry { name, attributes, next: child.next });
            }
            !has_more
        })?;
        listed.next = has_more.then_some(behind);
        Ok(listed)
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        for entry in &self.entries {
            self.tree.forget(entry.attributes.node, 1);
        }
    }
}
