//! Puts what is in a tree into an archive.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::vec::IntoIter;

use tarnfs_format::{Body, Entry, Kind};
use tarnfs_source::{Cancel, Extent, SharedSource, Source};
use tarnfs_tree::{Attributes, Error, Node, Tree};

use crate::{ArchiveWriter, Content, Nothing};

/// Why it ended.
#[derive(Debug)]
pub enum RefillError {
    /// Something of the tree cannot be read.
    Tree {
        /// Where it would go in the archive.
        path: Vec<u8>,
        /// Why.
        error: Error,
    },
    /// The archive cannot be written, or nobody wants it any more.
    Output(io::Error),
}

/// What was left out, or kept only in part: how many times, and where first.
pub type LeftOut = BTreeMap<String, (u64, Vec<u8>)>;

/// See the module. What is looked up in the tree is forgotten again ([`Tree::forget`]).
pub struct Refill<'a> {
    tree: &'a dyn Tree,
    writer: &'a mut dyn ArchiveWriter,
    cancel: &'a Cancel,
    /// Extended attributes that the tree adds itself.
    is_added: &'a dyn Fn(&[u8]) -> bool,
    /// The first path of files that have several.
    first: HashMap<Node, Vec<u8>>,
    left_out: LeftOut,
    is_less: bool,
}

/// How what is said begins, where something is not in the new archive at all.
pub const LEFT_OUT: &str = "left out: ";

/// Bytes of a tree, to be put into an archive.
struct Bytes<'a>(&'a dyn Source);

impl Content for Bytes<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }
}

/// A folder, and what of it is still to be put.
struct Level<'a> {
    tree: &'a dyn Tree,
    /// Where it is in the archive.
    path: Vec<u8>,
    /// To be forgotten in the end.
    folder: Option<Node>,
    children: IntoIter<(Vec<u8>, Attributes)>,
}

impl Drop for Level<'_> {
    fn drop(&mut self) {
        for (_, attributes) in self.children.by_ref() {
            self.tree.forget(attributes.node, 1);
        }
        if let Some(folder) = self.folder {
            self.tree.forget(folder, 1);
        }
    }
}

impl Drop for Refill<'_> {
    fn drop(&mut self) {
        for node in self.first.keys() {
            self.tree.forget(*node, 1);
        }
    }
}

impl<'a> Refill<'a> {
    /// Nothing was put yet. It looks at `cancel` before each entry.
    pub fn new(
        tree: &'a dyn Tree,
        writer: &'a mut dyn ArchiveWriter,
        cancel: &'a Cancel,
        is_added: &'a dyn Fn(&[u8]) -> bool,
    ) -> Self {
        Self { tree, writer, cancel, is_added, first: HashMap::new(), left_out: LeftOut::new(), is_less: false }
    }

    /// Puts all that is below `folder`; in the archive it goes below `path`, which is empty for its root.
    pub fn below(&mut self, folder: Node, path: &[u8]) -> Result<(), RefillError> {
        // Each folder is followed by all that is in it: who unpacks a tar gives a folder its time when that is over.
        let mut levels = vec![self.level(folder, path.to_vec(), false)?];
        while let Some(level) = levels.last_mut() {
            let Some((name, attributes)) = level.children.next() else {
                levels.pop();
                continue;
            };
            let path = joined(&level.path, &name);
            let added = self.cancel.check().map_err(RefillError::Output).and_then(|()| self.entry(&attributes, &path));
            if added.is_ok() && attributes.kind == Kind::Folder {
                levels.push(self.level(attributes.node, path, true)?);
            } else if self.first.get(&attributes.node) != Some(&path) {
                // The number of a file with several names must not become another's.
                self.tree.forget(attributes.node, 1);
            }
            added?;
        }
        Ok(())
    }

    /// What is in a folder, which is forgotten with it if somebody has looked it up for that.
    fn level(&self, folder: Node, path: Vec<u8>, is_looked_up: bool) -> Result<Level<'a>, RefillError> {
        let mut found = Vec::new();
        let listed = self.tree.read_dir(folder, 0, &mut |child| {
            found.push((child.name.to_vec(), child.attributes));
            true
        });
        self.tree.close_folder(folder);
        let level =
            Level { tree: self.tree, path, folder: is_looked_up.then_some(folder), children: found.into_iter() };
        match listed {
            Ok(()) => Ok(level),
            Err(error) => Err(RefillError::Tree { path: level.path.clone(), error }),
        }
    }

    /// Puts one entry. Of a folder, not what is in it.
    pub fn entry(&mut self, attributes: &Attributes, path: &[u8]) -> Result<(), RefillError> {
        let written = self.one(attributes, path).map_err(|error| RefillError::Tree { path: path.to_vec(), error })?;
        written.map_err(RefillError::Output)
    }

    /// What was left out until now; and true if that is more than holes.
    pub fn left_out(&mut self) -> (LeftOut, bool) {
        (std::mem::take(&mut self.left_out), self.is_less)
    }

    fn leave_out(&mut self, what: &str, path: &[u8]) {
        self.left_out.entry(what.to_owned()).or_insert_with(|| (0, path.to_vec())).0 += 1;
    }

    /// An error is one of the tree that is read; what is in it, one of the archive.
    fn one(&mut self, attributes: &Attributes, path: &[u8]) -> Result<io::Result<()>, Error> {
        let node = attributes.node;
        let (user, group) = self.tree.owner_names(node)?;
        let mut entry = Entry {
            path: path.to_vec(),
            kind: attributes.kind,
            mode: attributes.mode,
            uid: attributes.uid.into(),
            gid: attributes.gid.into(),
            user,
            group,
            mtime: attributes.mtime,
            ..Entry::default()
        };
        if let Some(why_not) = self.writer.why_not(&entry) {
            self.leave_out(&format!("{LEFT_OUT}{why_not}"), path);
            self.is_less = true;
            return Ok(Ok(()));
        }
        if attributes.kind != Kind::Folder && attributes.links > 1 {
            match self.first.get(&node) {
                Some(first) if self.writer.has_hard_links() => {
                    (entry.kind, entry.link) = (Kind::HardLink, first.clone());
                    return Ok(self.writer.add(&entry, &Nothing).map(drop));
                }
                Some(_) => {
                    self.leave_out("further names of one file are files of their own there", path);
                    self.is_less = true;
                }
                None => {
                    self.first.insert(node, path.to_vec());
                }
            }
        }
        entry.xattrs = self.tree.xattrs(node)?.into_iter().filter(|(name, _)| !(self.is_added)(name)).collect();
        let content: Option<SharedSource> = match attributes.kind {
            Kind::File => Some(self.tree.open(node)?),
            Kind::Symlink => {
                entry.link = self.tree.read_link(node)?;
                None
            }
            _ => None,
        };
        if let Some(content) = &content {
            entry.body = Body { size: content.len(), stored: content.len(), ..Body::default() };
            if attributes.blocks.saturating_mul(512) < content.len() {
                entry.body.extents = holes(&**content);
            }
        }
        for what in self.writer.leaves_out(&entry) {
            self.leave_out(&format!("{what} cannot be kept there"), path);
            // Holes are read as zeros: no content is lost.
            self.is_less |= what != "holes";
        }
        let added = match &content {
            Some(content) => self.writer.add(&entry, &Bytes(&**content)),
            None => self.writer.add(&entry, &Nothing),
        };
        match added {
            Ok(missing) => match missing.error {
                Some(error) => Err(error.into()),
                None if missing.bytes > 0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                None => Ok(Ok(())),
            },
            Err(error) => Ok(Err(error)),
        }
    }
}

impl fmt::Debug for Refill<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Refill").field("left_out", &self.left_out).finish_non_exhaustive()
    }
}

/// The path of what is called `name` in a folder.
fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() }
}

/// Where data lie; `None` if there are no holes.
fn holes(content: &dyn Source) -> Option<Vec<Extent>> {
    let mut extents = Vec::new();
    let (mut at, size) = (0, content.len());
    while let Some(start) = content.next_data(at).filter(|start| *start < size) {
        let end = content.next_hole(start).min(size);
        extents.push(Extent { offset: start, length: end - start, skip: 0 });
        at = end;
    }
    let is_whole = matches!(extents.as_slice(), [Extent { offset: 0, length, .. }] if *length == size);
    (!is_whole).then_some(extents)
}
