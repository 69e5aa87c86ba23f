//! Another archive.

use std::io;

use tarnfs_format::{Format, Part, Shown, Told};
use tarnfs_index::FIRST_NESTED;
use tarnfs_source::{Cancel, SharedSource};
use tarnfs_tree::open::OpenArchive;
use tarnfs_tree::{ArchiveTree, Attributes, Error, Node, Stored, Tree, Xattrs};

use super::side::{Readable, Seen, Side};
use crate::commands::extract::owners::Owners;

/// The archive.
pub(super) struct Second {
    opened: OpenArchive,
    owners: Owners,
    cancel: Cancel,
    keeps: Keeps,
}

/// What an archive keeps of each file.
pub(super) struct Keeps {
    format: Option<&'static dyn Format>,
    /// Modes, owners and hard links of the files that lie in it itself. Archives in it may have more.
    of_unix: bool,
    /// The archives that those files lie in, if it only holds others: each keeps what it does.
    parts: Option<Vec<Part>>,
}

/// The format of an archive, if it is one that has attributes of files.
pub(super) fn format_of(opened: &OpenArchive) -> Option<&'static dyn Format> {
    tarnfs_format::by_name(&opened.index.summary().format)
}

impl Keeps {
    pub(super) fn of(opened: &OpenArchive) -> Self {
        let format = format_of(opened);
        let keeps = format.map(Format::fidelity);
        Self {
            format,
            of_unix: keeps.is_none_or(|keeps| keeps.tells_of_unix(&*opened.stream).unwrap_or(true)),
            parts: keeps.and_then(|keeps| keeps.parts(&*opened.stream).unwrap_or_default()),
        }
    }

    /// The format that keeps what is told of a file, and true unless it is known that it keeps nothing of Unix.
    fn of_file(&self, stored: &Stored) -> Option<(&'static dyn Format, bool)> {
        let is_nested = stored.stream >= FIRST_NESTED;
        match self.parts.as_ref().filter(|_| !is_nested) {
            Some(parts) => {
                let header = stored.header?;
                let part = parts.iter().find(|part| part.range.contains(&header))?;
                Some((part.format, part.tells_of_unix))
            }
            None => Some((self.format?, self.of_unix || is_nested)),
        }
    }

    /// True of the name of an attribute that stands for what another system keeps of this file.
    pub(super) fn is_foreign(&self, stored: &Stored, name: &[u8]) -> bool {
        let prefix = self.of_file(stored).and_then(|(format, _)| format.fidelity().foreign_xattrs());
        prefix.is_some_and(|prefix| name.starts_with(prefix))
    }

    /// Which attributes the entry of this file has told, which has that `node` in `tree`.
    pub(super) fn told(&self, tree: &ArchiveTree, node: Node, shown: &Shown, stored: &Stored) -> Told {
        let known = self.of_file(stored).filter(|_| stored.header.is_some());
        let Some((format, is_of_unix)) = known else { return Told::NOTHING };
        let without = format.fidelity().xattr_without_unix().filter(|_| stored.has_xattrs);
        let is_without = without.is_some_and(|name| tree.xattr(node, name).is_ok_and(|value| value.is_some()));
        let is_of_unix = is_of_unix && !is_without;
        let told = format.fidelity().told(shown);
        // Where nothing keeps them, all files are root's, for everybody to read. Others lie in an archive in it.
        let is_usual = shown.uid == 0 && shown.gid == 0 && matches!(shown.mode, 0o444 | 0o555 | 0o644 | 0o755);
        if is_of_unix || !is_usual { told } else { Told { mode: false, owner: false, ..told } }
    }

    /// True if hard links to this file would be told.
    pub(super) fn has_links(&self, stored: &Stored) -> bool {
        self.of_file(stored).is_some_and(|(format, is_of_unix)| is_of_unix && format.fidelity().has_hard_links())
    }
}

/// True if there are extended attributes in an archive. One without them was mostly made without looking at them.
pub(super) fn has_xattrs(opened: &OpenArchive) -> bool {
    let summary = opened.index.summary();
    summary.has_xattrs || summary.has_acls
}

impl Second {
    pub(super) fn new(opened: OpenArchive, is_numeric: bool, cancel: Cancel) -> Result<Self, Error> {
        let owners = Owners::new(&*opened.index, is_numeric)?;
        let keeps = Keeps::of(&opened);
        Ok(Self { opened, owners, cancel, keeps })
    }

    fn seen(&self, found: &Attributes) -> Result<Seen, Error> {
        let &Attributes { node, kind, mode, size, mtime, links, blocks, .. } = found;
        let (uid, gid) = self.owners.here(&*self.opened.index, node, found.uid, found.gid)?;
        let stored = self.opened.tree.stored(node)?;
        let shown = Shown { kind, mode, uid: found.uid, gid: found.gid, mtime };
        Ok(Seen {
            kind,
            mode,
            uid,
            gid,
            size,
            mtime,
            links,
            is_sparse: blocks.saturating_mul(512) < size,
            file: (0, node.0),
            ctime: (0, 0),
            told: self.keeps.told(&self.opened.tree, node, &shown, &stored),
            has_links: self.keeps.has_links(&stored),
        })
    }
}

impl Side for Second {
    type Folder = Node;
    type File = SecondFile;

    fn folder(&self, names: &[Vec<u8>]) -> Result<Node, Error> {
        names.iter().try_fold(Node::ROOT, |folder, name| self.inner(&folder, name))
    }

    fn inner(&self, folder: &Node, name: &[u8]) -> Result<Node, Error> {
        Ok(self.opened.tree.lookup(*folder, name)?.node)
    }

    fn copied(&self, folder: &Node) -> Option<Node> {
        Some(*folder)
    }

    fn look(&self, folder: &Node, name: &[u8]) -> Result<Option<Seen>, Error> {
        let found = match name {
            b"" => self.opened.tree.attributes(*folder),
            name => self.opened.tree.lookup(*folder, name),
        };
        match found {
            Ok(found) => Ok(Some(self.seen(&found)?)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn names(&self, folder: &Node, receive: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        self.opened.tree.read_dir(*folder, 0, &mut |child| {
            receive(child.name);
            true
        })
    }

    fn target(&self, _: &Node, _: &[u8], seen: &Seen) -> Result<Vec<u8>, Error> {
        self.opened.tree.read_link(Node(seen.file.1))
    }

    fn xattrs(&self, _: &Node, _: &[u8], seen: &Seen) -> Result<Xattrs, Error> {
        self.opened.tree.xattrs(Node(seen.file.1))
    }

    fn open(&self, _: &Node, _: &[u8], seen: &Seen) -> Result<SecondFile, Error> {
        Ok(SecondFile(self.opened.tree.open(Node(seen.file.1))?, self.cancel.clone()))
    }

    fn is_on_disk(&self) -> bool {
        false
    }

    fn has_hard_links(&self) -> bool {
        format_of(&self.opened).is_some_and(|format| format.fidelity().has_hard_links())
    }

    fn has_xattrs(&self) -> bool {
        has_xattrs(&self.opened)
    }
}

/// A file in it.
pub(super) struct SecondFile(SharedSource, Cancel);

impl Readable for SecondFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.0.read_at(buffer, at)
    }

    fn next_data(&self, at: u64) -> Option<u64> {
        self.0.next_data(at)
    }

    fn is_still(&self, _: &Seen) -> io::Result<bool> {
        Ok(true)
    }

    fn verify(&self) -> io::Result<()> {
        crate::commands::extract::content::verify(&*self.0, &self.1)
    }
}
