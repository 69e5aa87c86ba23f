//! Older versions of files, in folders that no listing shows.
//!
//! Beside each file there is a folder `<file>.versions`. Files in it are named by numbers: 1 is what was stored first, the last is what shows, as
//! `tar --occurrence` counts them. Something that really has that name is shown in its place. Folders among the versions have
//! a number, but are not there: a folder must not be in two places.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustix::io::Errno;
use tarnfs_source::SharedSource;

use crate::spaces::OWN;
use crate::{Attributes, Child, Error, Kind, Node, Totals, Tree, Work, Xattrs};

/// What the folder of versions has behind the file's name.
const SUFFIX: &[u8] = b".versions";

/// Folders of versions that have numbers at a time. The kernel looks again for one that has lost its own.
const MOST: usize = 1 << 16;

/// A tree with older versions in it.
pub struct Versions {
    tree: Arc<dyn Tree>,
    /// Where the numbers of folders of versions begin: behind those of the tree.
    first: u64,
    folders: RwLock<Folders>,
}

/// Folders of versions that somebody has looked for, by folder and name of the file.
#[derive(Debug, Default)]
struct Folders {
    files: HashMap<u32, File>,
    numbers: HashMap<File, u32>,
    /// The numbers, oldest first.
    order: VecDeque<u32>,
    next: u32,
}

impl Folders {
    /// A number for the folder of versions of `file`.
    fn add(&mut self, file: File, most: usize) -> u32 {
        if let Some(number) = self.numbers.get(&file) {
            return *number;
        }
        if self.order.len() >= most
            && let Some(oldest) = self.order.pop_front()
            && let Some(file) = self.files.remove(&oldest)
        {
            self.numbers.remove(&file);
        }
        while self.files.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.files.insert(number, file.clone());
        self.numbers.insert(file, number);
        self.order.push_back(number);
        number
    }
}

/// A file: its folder and its name.
type File = (Node, Arc<[u8]>);

impl fmt::Debug for Versions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Versions").field("first", &self.first).finish_non_exhaustive()
    }
}

impl Versions {
    /// `tree`, with a folder of versions for each file in it.
    pub fn new(tree: Arc<dyn Tree>) -> Self {
        Self { first: tree.node_limit(), tree, folders: RwLock::default() }
    }

    /// The file whose versions are in `node`. `None` for what is in the tree.
    fn file(&self, node: Node) -> Result<Option<File>, Error> {
        let Some(number) = node.0.checked_sub(self.first) else { return Ok(None) };
        let folders = self.folders.read().unwrap_or_else(PoisonError::into_inner);
        let file = u32::try_from(number).ok().and_then(|number| folders.files.get(&number));
        // It has lost its number: whoever asks looks for it again.
        Ok(Some(file.cloned().ok_or(Errno::STALE)?))
    }

    /// The folder of versions of the file `name`.
    fn folder_of(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        let versions = self.tree.versions(folder, name)?;
        self.forget_all(&versions);
        // Only of what is, or was, something else than a folder.
        let newest = versions.iter().rev().find(|version| version.kind != Kind::Folder).ok_or(Error::NotFound)?;
        let node = self.number(folder, name);
        self.describe(node, folder, newest)
    }

    /// Forgets what was only looked at.
    fn forget_all(&self, versions: &[Attributes]) {
        for version in versions {
            self.tree.forget(version.node, 1);
        }
    }

    fn number(&self, folder: Node, name: &[u8]) -> Node {
        let key: File = (folder, Arc::from(name));
        let known = self.folders.read().unwrap_or_else(PoisonError::into_inner).numbers.get(&key).copied();
        if let Some(number) = known {
            return Node(self.first + u64::from(number));
        }
        let number = self.folders.write().unwrap_or_else(PoisonError::into_inner).add(key, MOST);
        Node(self.first + u64::from(number))
    }

    /// A folder of versions: for those who may enter the folder that the file is in, and as old as what is the newest in it.
    fn describe(&self, node: Node, folder: Node, newest: &Attributes) -> Result<Attributes, Error> {
        let above = self.tree.attributes(folder)?;
        Ok(Attributes {
            node,
            kind: Kind::Folder,
            mode: above.mode & 0o555,
            uid: above.uid,
            gid: above.gid,
            links: 2,
            size: 0,
            blocks: 0,
            mtime: newest.mtime,
            atime: newest.atime,
            ctime: newest.ctime,
        })
    }
}

/// The number that `name` is, written as numbers are: no sign, no zeros in front.
fn number_of(name: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(name).ok().filter(|text| !text.starts_with(['0', '+']))?;
    text.parse().ok()
}

impl Tree for Versions {
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        if let Some((folder, file)) = self.file(folder)? {
            let version = number_of(name).and_then(|number| number.checked_sub(1)).ok_or(Error::NotFound)?;
            let mut versions = self.tree.versions(folder, &file)?;
            let is_shown = versions.get(version).is_some_and(|found| found.kind != Kind::Folder);
            let found = is_shown.then(|| versions.swap_remove(version));
            self.forget_all(&versions);
            return found.ok_or(Error::NotFound);
        }
        match (self.tree.lookup(folder, name), name.strip_suffix(SUFFIX)) {
            (Err(Error::NotFound), Some(file)) if !file.is_empty() => self.folder_of(folder, file),
            (found, _) => found,
        }
    }

    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        let Some((folder, file)) = self.file(folder)? else { return self.tree.read_dir(folder, from, receive) };
        let versions = self.tree.versions(folder, &file)?;
        let mut goes_on = true;
        for (number, attributes) in (1_u64..).zip(versions) {
            let (name, node) = (number.to_string(), attributes.node);
            let is_wanted = goes_on && number > from && attributes.kind != Kind::Folder;
            let is_taken = is_wanted && receive(Child { name: name.as_bytes(), attributes, next: number });
            if !is_taken {
                self.tree.forget(node, 1);
                goes_on &= !is_wanted;
            }
        }
        Ok(())
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        match self.file(node)? {
            Some((folder, file)) => self.folder_of(folder, &file),
            None => self.tree.attributes(node),
        }
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        match self.file(folder)? {
            Some((folder, _)) => Ok(folder),
            None => self.tree.parent(folder),
        }
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>, Error> {
        if self.file(node)?.is_some() { Err(Error::WrongKind) } else { self.tree.read_link(node) }
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        if self.file(node)?.is_some() { Ok(Vec::new()) } else { self.tree.xattrs(node) }
    }

    fn versions(&self, folder: Node, name: &[u8]) -> Result<Vec<Attributes>, Error> {
        if self.file(folder)?.is_none() {
            return self.tree.versions(folder, name);
        }
        match self.lookup(folder, name) {
            Ok(attributes) => Ok(vec![attributes]),
            Err(Error::NotFound) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn node_limit(&self) -> u64 {
        self.first.saturating_add(OWN)
    }

    fn is_ready(&self, node: Node) -> bool {
        match self.file(node) {
            Ok(Some((folder, _))) => self.tree.is_ready(folder),
            Ok(None) => self.tree.is_ready(node),
            Err(_) => true,
        }
    }

    fn lane(&self, node: Node) -> u64 {
        match self.file(node) {
            Ok(Some((folder, _))) => self.tree.lane(folder),
            Ok(None) => self.tree.lane(node),
            Err(_) => 0,
        }
    }

    fn asked_for(&self, folder: Node, name: &[u8]) -> Node {
        if folder.0 < self.first { self.tree.asked_for(folder, name) } else { folder }
    }

    fn forget(&self, node: Node, times: u64) {
        // Folders of versions keep their numbers.
        if node.0 < self.first {
            self.tree.forget(node, times);
        }
    }

    fn close_folder(&self, folder: Node) {
        if folder.0 < self.first {
            self.tree.close_folder(folder);
        }
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        if self.file(node)?.is_some() { Err(Error::IsAFolder) } else { self.tree.open(node) }
    }

    fn owner_names(&self, node: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        match self.file(node)? {
            Some((folder, _)) => self.tree.owner_names(folder),
            None => self.tree.owner_names(node),
        }
    }

    fn totals(&self) -> Totals {
        self.tree.totals()
    }

    fn work(&self) -> Work {
        self.tree.work()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_versions_have_a_bounded_table() {
        let file = |number: u64| -> File { (Node::ROOT, Arc::from(number.to_string().as_bytes())) };
        let mut folders = Folders { next: u32::MAX - 5, ..Folders::default() };
        let mut last = None;
        for number in 0..100 {
            let given = folders.add(file(number), 10);
            assert_eq!(folders.add(file(number), 10), given, "the same as long as it has one");
            assert_ne!(last.replace(given), Some(given));
            assert!(folders.files.len() <= 10 && folders.numbers.len() == folders.files.len());
            assert_eq!(folders.files.get(&given), Some(&file(number)));
        }
        assert!(!folders.numbers.contains_key(&file(89)) && folders.numbers.contains_key(&file(90)));
    }
}
