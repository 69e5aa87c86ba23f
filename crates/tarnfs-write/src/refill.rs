//! Puts what is in a tree into an archive.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::sync::atomic::Ordering;
use std::vec::IntoIter;

use tarnfs_format::{Body, Entry, Kind};
use tarnfs_source::{Cancel, Extent, SharedSource, Source};
use tarnfs_tree::build::Progress;
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
    progress: &'a Progress,
    /// Extended attributes that the tree adds itself.
    is_added: &'a dyn Fn(&[u8]) -> bool,
    /// Where files are that have several names, by their first one. That is not told to a writer without hard links.
    first: HashMap<Node, Place>,
    /// Folders that such files are in, and those that these are in.
    folders: Vec<Place>,
    left_out: LeftOut,
    is_less: bool,
}

/// A path in the archive. Many that are long may lie in one folder, so each has what they share only once.
#[derive(Debug, Default)]
struct Place {
    /// The folder that it is in, as a place in the list of folders; `None` of a path that is whole.
    folder: Option<usize>,
    name: Box<[u8]>,
}

/// The entry of what has these attributes, without content: `user` and `group` are names.
pub fn entry_of(attributes: &Attributes, path: Vec<u8>, (user, group): (Vec<u8>, Vec<u8>)) -> Entry {
    Entry {
        path,
        kind: attributes.kind,
        mode: attributes.mode,
        uid: attributes.uid.into(),
        gid: attributes.gid.into(),
        user,
        group,
        mtime: attributes.mtime,
        // Where an archive does not tell them, they are as the first one.
        atime: Some(attributes.atime).filter(|time| *time != attributes.mtime),
        ctime: Some(attributes.ctime).filter(|time| *time != attributes.mtime),
        ..Entry::default()
    }
}

/// How what is said begins, where something is not in the new archive at all.
pub const LEFT_OUT: &str = "left out: ";

/// Bytes of a tree, to be put into an archive; of what is read, somebody is told.
struct Bytes<'a>(&'a dyn Source, &'a Cancel, &'a Progress);

impl Content for Bytes<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.1.check()?;
        let read = self.0.read_at(buffer, offset)?;
        self.2.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Names of a folder that are in memory at the same time.
const MOST_NAMES: usize = 256;

/// A folder, and what of it is still to be put.
struct Level<'a> {
    tree: &'a dyn Tree,
    /// Bytes of the path that are its own one.
    length: usize,
    /// Where it is in the list of folders with files of several names, if it is there.
    number: Option<usize>,
    folder: Node,
    /// What it is, if it goes without an entry as soon as there is one of something in it.
    implied: Option<Attributes>,
    /// It is to be forgotten in the end.
    is_looked_up: bool,
    children: IntoIter<(Vec<u8>, Attributes)>,
    /// Where those behind them begin, if there may be some.
    next: Option<u64>,
}

impl Level<'_> {
    /// The next one in it; `None` at the end.
    fn child(&mut self) -> Result<Option<(Vec<u8>, Attributes)>, Error> {
        if self.children.as_slice().is_empty()
            && let Some(from) = self.next.take()
        {
            let (mut found, mut next) = (Vec::new(), None);
            let listed = self.tree.read_dir(self.folder, from, &mut |child| {
                if found.len() == MOST_NAMES {
                    return false;
                }
                found.push((child.name.to_vec(), child.attributes));
                next = (found.len() == MOST_NAMES).then_some(child.next);
                true
            });
            (self.children, self.next) = (found.into_iter(), next);
            listed?;
        }
        Ok(self.children.next())
    }
}

impl Drop for Level<'_> {
    fn drop(&mut self) {
        for (_, attributes) in self.children.by_ref() {
            self.tree.forget(attributes.node, 1);
        }
        self.tree.close_folder(self.folder);
        if self.is_looked_up {
            self.tree.forget(self.folder, 1);
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
    /// Nothing was put yet. It looks at `cancel` before each entry and each read, and says in `progress` what was read.
    pub fn new(
        tree: &'a dyn Tree,
        writer: &'a mut dyn ArchiveWriter,
        cancel: &'a Cancel,
        progress: &'a Progress,
        is_added: &'a dyn Fn(&[u8]) -> bool,
    ) -> Self {
        // Whom they are here may be others than in the tree.
        writer.name_nobody();
        Self {
            tree,
            writer,
            cancel,
            progress,
            is_added,
            first: HashMap::new(),
            folders: Vec::new(),
            left_out: LeftOut::new(),
            is_less: false,
        }
    }

    /// Puts all that is below `folder`; in the archive it goes below `path`, which is empty for its root. What nothing
    /// tells of but what lies in it gets no entry: whoever unpacks the archive would give such a folder, which may be
    /// there already, attributes that nobody has chosen.
    pub fn below(&mut self, folder: Node, path: &[u8]) -> Result<(), RefillError> {
        // Each folder is followed by all that is in it: who unpacks a tar gives a folder its time when that is over.
        let mut path = path.to_vec();
        let mut levels = vec![self.level(folder, path.len(), None, false)];
        while let Some(level) = levels.last_mut() {
            path.truncate(level.length);
            let child = level.child().map_err(|error| RefillError::Tree { path: path.clone(), error })?;
            let Some((name, attributes)) = child else {
                // Nothing in it tells of it any more.
                let is_told = match level.implied.take() {
                    Some(attributes) => self.add(&attributes, &path, Place::default())?,
                    None => false,
                };
                levels.pop();
                if is_told {
                    tell_of(&mut levels);
                }
                continue;
            };
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            let is_first = has_names(&attributes) && !self.first.contains_key(&attributes.node);
            let place = if is_first && self.writer.has_hard_links() {
                Place { folder: self.number(&mut levels, &path), name: name.into() }
            } else {
                Place::default()
            };
            let known = self.first.len();
            let is_folder = attributes.kind == Kind::Folder;
            let implied = (is_folder && self.tree.is_implied(attributes.node)).then(|| attributes.clone());
            let added = self.cancel.check().map_err(RefillError::Output).and_then(|()| match &implied {
                Some(_) => Ok(false),
                None => self.add(&attributes, &path, place),
            });
            if matches!(added, Ok(true)) {
                tell_of(&mut levels);
            }
            if added.is_ok() && is_folder {
                levels.push(self.level(attributes.node, path.len(), implied, true));
            } else if self.first.len() == known {
                // The number of a file with several names must not become another's.
                self.tree.forget(attributes.node, 1);
            }
            added?;
        }
        Ok(())
    }

    /// What is in a folder, which is forgotten with it if somebody has looked it up for that.
    fn level(&self, folder: Node, length: usize, implied: Option<Attributes>, is_looked_up: bool) -> Level<'a> {
        Level {
            tree: self.tree,
            length,
            number: None,
            folder,
            implied,
            is_looked_up,
            children: Vec::new().into_iter(),
            next: Some(0),
        }
    }

    /// Where the last of these folders is in the list; `path` begins with its path.
    fn number(&mut self, levels: &mut [Level<'_>], path: &[u8]) -> Option<usize> {
        let mut above: Option<(usize, usize)> = None;
        for level in levels {
            let number = *level.number.get_or_insert_with(|| {
                // Behind the slash, but for what is in the root of the archive.
                let start = above.map_or(0, |(_, length)| if length == 0 { 0 } else { length + 1 });
                let name = path.get(start..level.length).unwrap_or_default().into();
                self.folders.push(Place { folder: above.map(|(number, _)| number), name });
                self.folders.len() - 1
            });
            above = Some((number, level.length));
        }
        above.map(|(number, _)| number)
    }

    fn path_of<'b>(&'b self, mut place: &'b Place) -> Vec<u8> {
        let mut names = vec![&*place.name];
        while let Some(folder) = place.folder.and_then(|folder| self.folders.get(folder)) {
            place = folder;
            names.push(&*place.name);
        }
        // The root of the archive has no name.
        names.retain(|name| !name.is_empty());
        names.reverse();
        names.join(&b'/')
    }

    /// Puts one entry. Of a folder, not what is in it.
    pub fn entry(&mut self, attributes: &Attributes, path: &[u8]) -> Result<(), RefillError> {
        self.add(attributes, path, Place { folder: None, name: path.into() }).map(drop)
    }

    /// The same of what has this `place`. False if it was left out.
    fn add(&mut self, attributes: &Attributes, path: &[u8], place: Place) -> Result<bool, RefillError> {
        let written =
            self.one(attributes, path, place).map_err(|error| RefillError::Tree { path: path.to_vec(), error })?;
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
    fn one(&mut self, attributes: &Attributes, path: &[u8], place: Place) -> Result<io::Result<bool>, Error> {
        self.progress.entries.fetch_add(1, Ordering::Relaxed);
        let node = attributes.node;
        let (user, group) = self.tree.owner_names(node)?;
        let mut entry = entry_of(attributes, path.to_vec(), (user, group));
        if let Some(why_not) = self.writer.why_not(&entry) {
            self.leave_out(&format!("{LEFT_OUT}{why_not}"), path);
            self.is_less = true;
            return Ok(Ok(false));
        }
        if has_names(attributes) {
            match self.first.get(&node) {
                Some(first) if self.writer.has_hard_links() => {
                    (entry.kind, entry.link) = (Kind::HardLink, self.path_of(first));
                    return Ok(self.writer.add(&entry, &Nothing).map(|_| true));
                }
                Some(_) => {
                    self.leave_out("further names of one file are files of their own there", path);
                    self.is_less = true;
                }
                None => {
                    self.first.insert(node, place);
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
        for what in self.writer.leaves_out(&entry).into_iter().chain(self.writer.loses(&entry)) {
            self.leave_out(&format!("{what} cannot be kept there"), path);
            // Holes are read as zeros: no content is lost.
            self.is_less |= what != "holes";
        }
        let added = match &content {
            Some(content) => self.writer.add(&entry, &Bytes(&**content, self.cancel, self.progress)),
            None => self.writer.add(&entry, &Nothing),
        };
        match added {
            Ok(missing) => match missing.error {
                Some(error) => Err(error.into()),
                None if missing.bytes > 0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                None => Ok(Ok(true)),
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

/// The last of these folders has something in it now: it needs no entry, and neither do those that it is in. Above one
/// that has been told of, all have.
fn tell_of(levels: &mut [Level<'_>]) {
    for level in levels.iter_mut().rev() {
        if level.implied.take().is_none() {
            break;
        }
    }
}

/// True of what has several names.
fn has_names(attributes: &Attributes) -> bool {
    attributes.kind != Kind::Folder && attributes.links > 1
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

    use tarnfs_tree::{Child, Lifetime, Time, Totals, Xattrs};

    use crate::{Finished, Missing};

    /// So many empty files in one folder, which counts how many names somebody holds.
    struct Many {
        count: u64,
        held: AtomicI64,
        most: AtomicI64,
        closed: AtomicU64,
    }

    fn attributes(node: u64) -> Attributes {
        let none = Time { seconds: 0, nanoseconds: 0 };
        let (node, kind) = (Node(node), Kind::Fifo);
        Attributes {
            node,
            kind,
            mode: 0o644,
            uid: 0,
            gid: 0,
            links: 1,
            size: 0,
            blocks: 0,
            mtime: none,
            atime: none,
            ctime: none,
        }
    }

    impl Tree for Many {
        fn lookup(&self, _: Node, _: &[u8]) -> Result<Attributes, Error> {
            Err(Error::NotFound)
        }

        fn read_dir(&self, _: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
            for number in from..self.count {
                let name = number.to_string();
                let child = Child { name: name.as_bytes(), attributes: attributes(number + 2), next: number + 1 };
                if !receive(child) {
                    break;
                }
                let held = self.held.fetch_add(1, Ordering::Relaxed) + 1;
                self.most.fetch_max(held, Ordering::Relaxed);
            }
            Ok(())
        }

        fn forget(&self, _: Node, times: u64) {
            self.held.fetch_sub(times.cast_signed(), Ordering::Relaxed);
        }

        fn close_folder(&self, _: Node) {
            self.closed.fetch_add(1, Ordering::Relaxed);
        }

        fn attributes(&self, node: Node) -> Result<Attributes, Error> {
            Ok(attributes(node.0))
        }

        fn parent(&self, _: Node) -> Result<Node, Error> {
            Ok(Node::ROOT)
        }

        fn read_link(&self, _: Node) -> Result<Vec<u8>, Error> {
            Err(Error::NotFound)
        }

        fn xattrs(&self, _: Node) -> Result<Xattrs, Error> {
            Ok(Xattrs::new())
        }

        fn node_limit(&self) -> u64 {
            self.count + 2
        }

        fn open(&self, _: Node) -> Result<SharedSource, Error> {
            Err(Error::NotFound)
        }

        fn owner_names(&self, _: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
            Ok((Vec::new(), Vec::new()))
        }

        fn lifetime(&self, _: Node) -> Lifetime {
            Lifetime::None
        }

        fn totals(&self) -> Totals {
            Totals::default()
        }
    }

    /// Keeps the paths.
    struct Paths(Vec<Vec<u8>>, u64);

    impl ArchiveWriter for Paths {
        fn why_not(&self, _: &Entry) -> Option<&'static str> {
            None
        }

        fn leaves_out(&self, _: &Entry) -> Vec<&'static str> {
            Vec::new()
        }

        fn add(&mut self, entry: &Entry, _: &dyn Content) -> io::Result<Missing> {
            if self.0.len() as u64 == self.1 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0.push(entry.path.clone());
            Ok(Missing::default())
        }

        fn has_hard_links(&self) -> bool {
            true
        }

        fn finish(self: Box<Self>) -> io::Result<Finished> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    #[test]
    fn few_names_of_a_folder_are_held_at_once() {
        let most = MOST_NAMES as u64;
        for (count, writes) in
            [(0, 0), (1, 1), (most, most), (most + 1, most + 1), (2500, 2500), (2500, 0), (2500, 300)]
        {
            let held = (AtomicI64::new(0), AtomicI64::new(0));
            let tree = Many { count, held: held.0, most: held.1, closed: AtomicU64::new(0) };
            let mut writer = Paths(Vec::new(), writes);
            let (cancel, is_added) = (Cancel::default(), |_: &[u8]| false);
            let progress = Progress::default();
            let mut refill = Refill::new(&tree, &mut writer, &cancel, &progress, &is_added);
            assert_eq!(refill.below(Node::ROOT, b"").is_ok(), writes == count, "{count} {writes}");
            drop(refill);
            let expected: Vec<_> = (0..writes).map(|number| number.to_string().into_bytes()).collect();
            assert!(writer.0 == expected, "{count} {writes}");
            assert_eq!(tree.held.into_inner(), 0, "{count} {writes}");
            assert!(tree.most.into_inner() <= most as i64, "{count} {writes}");
            assert_eq!(tree.closed.into_inner(), 1, "{count} {writes}");
        }
    }
}
