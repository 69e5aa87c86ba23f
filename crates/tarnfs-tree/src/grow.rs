//! An archive that only grew: what its index says of the old part is kept, and reading begins where it ended.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tarnfs_format::{Body, Entry, Kind, Time};
use tarnfs_index::{Error, Index, Node, Row, Writer};

/// Gives everything that `index` knows to `writer`, as entries with the headers that they had.
pub(crate) fn replay(index: &Arc<dyn Index>, writer: &mut Writer) -> Result<(), Error> {
    let mut replay = Replay { index, writer, hard_links: HashMap::new(), shared: HashMap::new(), waiting: Vec::new() };
    // Grows with the hard links, not with the files.
    let (hard_links, shared) = (&mut replay.hard_links, &mut replay.shared);
    index.hard_links(&mut |folder, name, header, node| {
        hard_links.insert((folder, name.to_vec()), (header, node));
        shared.insert(node, None);
    })?;
    replay.folders()?;
    replay.replaced()?;
    replay.links()
}

struct Replay<'a> {
    index: &'a Arc<dyn Index>,
    writer: &'a mut Writer,
    /// Folder and name of each hard link: its header, and the node that it shares.
    hard_links: HashMap<(Node, Vec<u8>), (u64, Node)>,
    /// A path of each node that has hard links.
    shared: HashMap<Node, Option<Vec<u8>>>,
    /// Hard links whose target's path was not known yet: path, header, node.
    waiting: Vec<(Vec<u8>, u64, Node)>,
}

impl Replay<'_> {
    fn folders(&mut self) -> Result<(), Error> {
        let root = self.index.row(Node::ROOT)?;
        if let Some(root) = root.filter(|root| root.header.is_some()) {
            self.entry(b"./".to_vec(), &root)?;
        }
        let mut open = vec![(Node::ROOT, Vec::new())];
        while let Some((folder, prefix)) = open.pop() {
            let mut children = Vec::new();
            let index = Arc::clone(self.index);
            // In batches: a folder of ten million names does not fit into memory at once.
            let mut from = 0;
            loop {
                children.clear();
                index.children(folder, from, &mut |next, name, row| {
                    from = next;
                    children.push((name.to_vec(), row.clone()));
                    children.len() < 4096
                })?;
                if children.is_empty() {
                    break;
                }
                for (name, row) in children.drain(..) {
                    let path = [prefix.as_slice(), &name].concat();
                    if let Some((header, node)) = self.hard_links.get(&(folder, name)).copied() {
                        self.waiting.push((path, header, node));
                        continue;
                    }
                    if row.kind == Kind::Folder {
                        open.push((row.node, [path.as_slice(), b"/"].concat()));
                    }
                    if row.header.is_some() {
                        self.entry(path, &row)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn replaced(&mut self) -> Result<(), Error> {
        let mut rows = Vec::new();
        self.index.replaced(&mut |folder, name, row| rows.push((folder, name.to_vec(), row.clone())))?;
        for (folder, name, row) in rows {
            let path = self.path(folder, &name)?;
            self.entry(path, &row)?;
        }
        Ok(())
    }

    fn links(&mut self) -> Result<(), Error> {
        for (path, header, node) in std::mem::take(&mut self.waiting) {
            let target = self.shared.get(&node).cloned().flatten();
            let target = target.ok_or_else(|| Error::Broken(format!("node {} has hard links and no name", node.0)))?;
            let row = self.row(node)?;
            let mut entry = self.as_entry(path, &row)?;
            entry.kind = Kind::HardLink;
            entry.header = header;
            entry.link = target;
            entry.body = Body::default();
            entry.xattrs.clear();
            self.writer.add(&entry)?;
        }
        Ok(())
    }

    fn row(&self, node: Node) -> Result<Row, Error> {
        self.index.row(node)?.ok_or_else(|| Error::Broken(format!("node {} is missing", node.0)))
    }

    /// The path of `name` in `folder`, by the names of the folders above it.
    fn path(&self, folder: Node, name: &[u8]) -> Result<Vec<u8>, Error> {
        let mut components = vec![name.to_vec()];
        let mut at = folder;
        let mut seen = HashSet::new();
        while at != Node::ROOT {
            if !seen.insert(at) {
                return Err(Error::Broken(format!("the folder {} is inside itself", at.0)));
            }
            let parent = self.index.parent(at)?;
            let mut found = None;
            self.index.children(parent, 0, &mut |_, name, row| {
                if row.node == at {
                    found = Some(name.to_vec());
                }
                found.is_none()
            })?;
            components.push(found.ok_or_else(|| Error::Broken(format!("the folder {} has no name", at.0)))?);
            at = parent;
        }
        components.reverse();
        Ok(components.join(&b'/'))
    }

    fn entry(&mut self, path: Vec<u8>, row: &Row) -> Result<(), Error> {
        if let Some(known) = self.shared.get_mut(&row.node) {
            known.get_or_insert_with(|| path.clone());
        }
        let entry = self.as_entry(path, row)?;
        self.writer.add(&entry)
    }

    fn as_entry(&self, path: Vec<u8>, row: &Row) -> Result<Entry, Error> {
        let (user, group) = self.index.owner_names(row.node)?;
        let extents = if row.is_sparse { Some(self.index.extents(row.node)?) } else { None };
        let stored = match &extents {
            Some(extents) => {
                extents.iter().fold(0, |sum: u64, extent| sum.saturating_add(extent.skip).saturating_add(extent.length))
            }
            None if row.kind == Kind::File => row.size,
            None => 0,
        };
        let unless_same = |time: Time| (time != row.mtime).then_some(time);
        Ok(Entry {
            path,
            kind: row.kind,
            mode: row.mode,
            uid: u64::from(row.uid),
            gid: u64::from(row.gid),
            user,
            group,
            mtime: row.mtime,
            atime: unless_same(row.atime),
            ctime: unless_same(row.ctime),
            header: row.header.unwrap_or_default(),
            body: Body { offset: row.body, stored, size: if row.kind == Kind::File { row.size } else { 0 }, extents },
            link: if row.kind == Kind::Symlink { self.index.link(row.node)? } else { Vec::new() },
            xattrs: if row.has_xattrs { self.index.xattrs(row.node)? } else { Vec::new() },
        })
    }
}
