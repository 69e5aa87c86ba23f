//! A tree in memory that can be changed.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use rustix::io::Errno;
use tarnfs_source::{SharedSource, Source};
use tarnfs_tree::asker::begins;
use tarnfs_tree::edit::{Allocation, Change, New, Pending, Renaming, Setting, Token};
use tarnfs_tree::{Attributes, Child, Edit, Error, Kind, Lifetime, Node, Time, Totals, Tree, WritableFile, Xattrs};

use super::Gate;

/// Bytes that all files may have together.
pub(crate) const ROOM: usize = 64 << 20;

/// Files of this mode cannot be opened.
pub(crate) const UNOPENED: u32 = 0o101;

/// A tree in memory. In a folder named `fixed` nothing can be changed; to make `panic` panics; and to write to a file
/// that was opened while `gate` is there waits at it.
pub(crate) struct EditableTree {
    pub(crate) lifetime: Lifetime,
    /// Changes, and writes, are done by whoever answers the kernel.
    pub(crate) at_once: bool,
    pub(crate) gate: Option<Arc<Gate>>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    inodes: Mutex<Inodes>,
    /// How often somebody has asked for what would survive a loss of power, in full and without times.
    synced: [AtomicU64; 2],
    /// Who closes a file waits until this is opened.
    closing: Mutex<Option<Token>>,
    closes_late: AtomicBool,
}

#[derive(Debug, Default)]
struct Inodes {
    all: HashMap<u64, Inode>,
    last: u64,
}

#[derive(Debug)]
struct Inode {
    attributes: Attributes,
    parent: Node,
    /// By their places in a listing.
    children: BTreeMap<u64, (Vec<u8>, Node)>,
    target: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    content: Vec<u8>,
    /// How often it was given out and not forgotten, or is open.
    held: i64,
}

fn now() -> Time {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Time { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() }
}

impl Inodes {
    fn get(&mut self, node: Node) -> Result<&mut Inode, Error> {
        self.all.get_mut(&node.0).ok_or(Error::NotFound)
    }

    /// A folder whose content can be changed.
    fn folder(&mut self, node: Node) -> Result<&mut Inode, Error> {
        let (parent, folder) = (self.get(node)?.parent, self.get(node)?.attributes.kind == Kind::Folder);
        let name = self.get(parent)?.children.values().find(|(_, child)| *child == node).map(|(name, _)| name.clone());
        match name.as_deref() {
            _ if !folder => Err(Error::NotAFolder),
            Some(b"fixed") => Err(Error::ReadOnly),
            _ => self.get(node),
        }
    }

    fn find(&mut self, folder: Node, name: &[u8]) -> Result<Option<(u64, Node)>, Error> {
        let found = self.get(folder)?.children.iter().find(|(_, (own, _))| own == name);
        Ok(found.map(|(place, (_, node))| (*place, *node)))
    }

    fn add(&mut self, folder: Node, name: &[u8], node: Node) -> Result<(), Error> {
        let is_folder = self.get(node)?.attributes.kind == Kind::Folder;
        self.last += 1;
        let place = self.last;
        let folder_number = folder;
        let folder = self.folder(folder)?;
        folder.children.insert(place, (name.to_vec(), node));
        folder.attributes.mtime = now();
        folder.attributes.links += u32::from(is_folder);
        let inode = self.get(node)?;
        if is_folder {
            inode.parent = folder_number;
        }
        Ok(())
    }

    fn take(&mut self, folder: Node, place: u64) -> Result<Node, Error> {
        let (_, node) = self.folder(folder)?.children.remove(&place).ok_or(Error::NotFound)?;
        let is_folder = self.get(node)?.attributes.kind == Kind::Folder;
        let folder = self.folder(folder)?;
        folder.attributes.mtime = now();
        folder.attributes.links -= u32::from(is_folder);
        Ok(node)
    }

    /// It has a name less.
    fn unlink(&mut self, node: Node) -> Result<(), Error> {
        let inode = self.get(node)?;
        let is_folder = inode.attributes.kind == Kind::Folder;
        inode.attributes.links = if is_folder { 0 } else { inode.attributes.links - 1 };
        self.hold(node, 0);
        Ok(())
    }

    fn hold(&mut self, node: Node, times: i64) {
        let Some(inode) = self.all.get_mut(&node.0) else { return };
        inode.held += times;
        assert!(inode.held >= 0, "{node:?} was forgotten more often than it was given out");
        if inode.held == 0 && inode.attributes.links == 0 {
            self.all.remove(&node.0);
        }
    }

    fn attributes(&mut self, node: Node) -> Result<Attributes, Error> {
        let inode = self.get(node)?;
        let size = inode.content.len().max(inode.target.len()) as u64;
        Ok(Attributes { size, blocks: size.div_ceil(512), ..inode.attributes.clone() })
    }

    fn given(&mut self, node: Node) -> Result<Attributes, Error> {
        self.hold(node, 1);
        self.attributes(node)
    }

    fn new_inode(&mut self, parent: Node, new: &New) -> Node {
        self.last += 1;
        let node = Node(self.last);
        let (kind, links) = (new.kind, if new.kind == Kind::Folder { 2 } else { 1 });
        let time = now();
        let attributes = Attributes {
            node,
            kind,
            mode: new.mode & !new.umask,
            uid: new.uid,
            gid: new.gid,
            links,
            size: 0,
            blocks: 0,
            mtime: time,
            atime: time,
            ctime: time,
        };
        let (target, content) = (new.target.clone(), Vec::new());
        let (children, xattrs) = (BTreeMap::new(), BTreeMap::new());
        self.all.insert(node.0, Inode { attributes, parent, children, target, xattrs, content, held: 0 });
        node
    }

    fn used(&self) -> usize {
        self.all.values().map(|inode| inode.content.len()).sum()
    }
}

impl EditableTree {
    pub(crate) fn new(lifetime: Lifetime, at_once: bool) -> Self {
        let this = Self { lifetime, at_once, gate: None, shared: Arc::default() };
        let root = New { kind: Kind::Folder, mode: 0o755, umask: 0, uid: 0, gid: 0, target: Vec::new() };
        assert_eq!(this.inodes().new_inode(Node::ROOT, &root), Node::ROOT);
        this
    }

    fn inodes(&self) -> MutexGuard<'_, Inodes> {
        self.shared.inodes.lock().unwrap()
    }

    /// How many files and folders there are.
    pub(crate) fn count(&self) -> usize {
        self.inodes().all.len()
    }

    pub(crate) fn synced(&self) -> [u64; 2] {
        self.shared.synced.each_ref().map(|count| count.load(Ordering::SeqCst))
    }

    /// Who closes a file waits, until this is called with false.
    pub(crate) fn let_closing_wait(&self, waits: bool) {
        self.shared.closes_late.store(waits, Ordering::SeqCst);
        *self.shared.closing.lock().unwrap() = None;
    }

    pub(crate) fn closing(&self) -> bool {
        self.shared.closing.lock().unwrap().is_some()
    }

    fn open_file(&self, node: Node) -> Result<OpenFile, Error> {
        let mut inodes = self.inodes();
        match inodes.get(node)?.attributes.kind {
            Kind::File => {}
            Kind::Folder => return Err(Error::IsAFolder),
            _ => return Err(Error::WrongKind),
        }
        if inodes.get(node)?.attributes.mode == UNOPENED {
            return Err(Errno::NFILE.into());
        }
        inodes.hold(node, 1);
        let (shared, gate) = (Arc::clone(&self.shared), self.gate.clone());
        Ok(OpenFile { shared, node, gate, at_once: self.at_once })
    }
}

impl Tree for EditableTree {
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        let mut inodes = self.inodes();
        let (_, node) = inodes.find(folder, name)?.ok_or(Error::NotFound)?;
        inodes.given(node)
    }

    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        let children = self.inodes().get(folder)?.children.clone();
        for (place, (name, node)) in children.range(from + 1..) {
            // Somebody may have removed it meanwhile.
            let Ok(attributes) = self.inodes().given(*node) else { continue };
            if !receive(Child { name, attributes, next: *place }) {
                self.inodes().hold(*node, -1);
                break;
            }
        }
        Ok(())
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        self.inodes().attributes(node)
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        Ok(self.inodes().get(folder)?.parent)
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>, Error> {
        let mut inodes = self.inodes();
        let inode = inodes.get(node)?;
        if inode.attributes.kind == Kind::Symlink { Ok(inode.target.clone()) } else { Err(Error::WrongKind) }
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        Ok(self.inodes().get(node)?.xattrs.clone().into_iter().collect())
    }

    fn node_limit(&self) -> u64 {
        u64::MAX
    }

    fn forget(&self, node: Node, times: u64) {
        if node != Node::ROOT {
            self.inodes().hold(node, -(times as i64));
        }
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        Ok(Arc::new(self.open_file(node)?))
    }

    fn owner_names(&self, _: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        Ok((Vec::new(), Vec::new()))
    }

    fn lifetime(&self, _: Node) -> Lifetime {
        self.lifetime
    }

    fn totals(&self) -> Totals {
        Totals { has_xattrs: true, ..Totals::default() }
    }

    fn edit(&self) -> Option<&dyn Edit> {
        Some(self)
    }
}

impl Edit for EditableTree {
    fn may_change(&self, _: Node) -> bool {
        true
    }

    fn changes_at_once(&self, _: Node) -> bool {
        self.at_once
    }

    fn make(&self, folder: Node, name: &[u8], new: &New) -> Result<Attributes, Error> {
        assert_ne!(name, b"panic", "as tested");
        let mut inodes = self.inodes();
        inodes.folder(folder)?;
        if inodes.find(folder, name)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        let node = inodes.new_inode(folder, new);
        inodes.add(folder, name, node)?;
        inodes.given(node)
    }

    fn make_unnamed(&self, folder: Node, new: &New) -> Result<Attributes, Error> {
        let mut inodes = self.inodes();
        inodes.folder(folder)?;
        let node = inodes.new_inode(folder, new);
        inodes.get(node)?.attributes.links = 0;
        inodes.given(node)
    }

    fn link(&self, node: Node, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        let mut inodes = self.inodes();
        if inodes.find(folder, name)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        inodes.add(folder, name, node)?;
        inodes.get(node)?.attributes.links += 1;
        inodes.given(node)
    }

    fn remove(&self, folder: Node, name: &[u8], is_folder: bool) -> Result<(), Error> {
        let mut inodes = self.inodes();
        let (place, node) = inodes.find(folder, name)?.ok_or(Error::NotFound)?;
        let inode = inodes.get(node)?;
        match (inode.attributes.kind == Kind::Folder, is_folder) {
            (true, false) => return Err(Error::IsAFolder),
            (false, true) => return Err(Error::NotAFolder),
            _ if !inode.children.is_empty() => return Err(Errno::NOTEMPTY.into()),
            _ => {}
        }
        inodes.take(folder, place)?;
        inodes.unlink(node)
    }

    fn rename(&self, from: (Node, &[u8]), to: (Node, &[u8]), how: Renaming) -> Result<(), Error> {
        let mut inodes = self.inodes();
        inodes.folder(from.0)?;
        inodes.folder(to.0)?;
        let (place, node) = inodes.find(from.0, from.1)?.ok_or(Error::NotFound)?;
        let there = inodes.find(to.0, to.1)?;
        match (how, there) {
            (Renaming::Spares, Some(_)) => return Err(Errno::EXIST.into()),
            (Renaming::Exchanges, None) => return Err(Error::NotFound),
            (Renaming::Exchanges, Some((other_place, other))) => {
                inodes.take(from.0, place)?;
                inodes.take(to.0, other_place)?;
                inodes.add(from.0, from.1, other)?;
                return inodes.add(to.0, to.1, node);
            }
            (Renaming::Replaces, Some((_, other))) if other == node => return Ok(()),
            (Renaming::Replaces, Some((other_place, other))) => {
                if !inodes.get(other)?.children.is_empty() {
                    return Err(Errno::NOTEMPTY.into());
                }
                inodes.take(to.0, other_place)?;
                inodes.unlink(other)?;
            }
            (_, None) => {}
        }
        inodes.take(from.0, place)?;
        inodes.add(to.0, to.1, node)
    }

    fn change(&self, node: Node, change: &Change) -> Result<Attributes, Error> {
        let mut inodes = self.inodes();
        let inode = inodes.get(node)?;
        let attributes = &mut inode.attributes;
        attributes.mode = change.mode.unwrap_or(attributes.mode);
        attributes.uid = change.uid.unwrap_or(attributes.uid);
        attributes.gid = change.gid.unwrap_or(attributes.gid);
        attributes.atime = change.atime.unwrap_or(attributes.atime);
        attributes.ctime = now();
        if let Some(size) = change.size {
            inode.content.resize(size as usize, 0);
            attributes.mtime = now();
        }
        attributes.mtime = change.mtime.unwrap_or(attributes.mtime);
        inodes.attributes(node)
    }

    fn set_xattr(&self, node: Node, name: &[u8], value: &[u8], how: Setting) -> Result<(), Error> {
        let mut inodes = self.inodes();
        let xattrs = &mut inodes.get(node)?.xattrs;
        match how {
            Setting::Adds if xattrs.contains_key(name) => Err(Errno::EXIST.into()),
            Setting::Replaces if !xattrs.contains_key(name) => Err(Errno::NODATA.into()),
            _ => {
                xattrs.insert(name.to_vec(), value.to_vec());
                Ok(())
            }
        }
    }

    fn remove_xattr(&self, node: Node, name: &[u8]) -> Result<(), Error> {
        self.inodes().get(node)?.xattrs.remove(name).map(drop).ok_or(Errno::NODATA.into())
    }

    fn open_to_write(&self, node: Node, _: bool) -> Result<Arc<dyn WritableFile>, Error> {
        Ok(Arc::new(self.open_file(node)?))
    }

    fn sync(&self, _: Node, data_only: bool) -> Result<(), Error> {
        self.shared.synced[usize::from(data_only)].fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// A file that somebody has open.
#[derive(Debug)]
struct OpenFile {
    shared: Arc<Shared>,
    node: Node,
    gate: Option<Arc<Gate>>,
    at_once: bool,
}

impl OpenFile {
    fn inodes(&self) -> MutexGuard<'_, Inodes> {
        self.shared.inodes.lock().unwrap()
    }

    /// Changes the content, which then has as many bytes more as it returns.
    fn change<T>(&self, grows: usize, change: impl FnOnce(&mut Vec<u8>) -> T) -> io::Result<T> {
        let mut inodes = self.inodes();
        if inodes.used() + grows > ROOM {
            return Err(Errno::NOSPC.into());
        }
        let inode = inodes.get(self.node).map_err(|_| io::Error::from(Errno::STALE))?;
        inode.attributes.mtime = now();
        Ok(change(&mut inode.content))
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.inodes().hold(self.node, -1);
    }
}

impl Source for OpenFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut inodes = self.inodes();
        let content = &inodes.get(self.node).map_err(|_| io::Error::from(Errno::STALE))?.content;
        let rest = content.get(offset as usize..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn len(&self) -> u64 {
        self.inodes().get(self.node).map_or(0, |inode| inode.content.len() as u64)
    }

    fn describe(&self) -> String {
        format!("node {}", self.node.0)
    }
}

impl WritableFile for OpenFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if let Some(gate) = &self.gate {
            gate.pass();
        }
        begins()?;
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        self.change(end.saturating_sub(self.len() as usize), |content| {
            content.resize(content.len().max(end), 0);
            content[start..end].copy_from_slice(bytes);
            bytes.len()
        })
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.change(length.saturating_sub(self.len()) as usize, |content| content.resize(length as usize, 0))
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.shared.synced[usize::from(data_only)].fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn allocate(&self, what: Allocation, range: Range<u64>, keeps_length: bool) -> io::Result<()> {
        let (start, end) = (range.start as usize, range.end as usize);
        let grows = if keeps_length { 0 } else { end.saturating_sub(self.len() as usize) };
        self.change(grows, |content| {
            content.resize(content.len() + grows, 0);
            let length = content.len();
            if what != Allocation::Reserves {
                content[start.min(length)..end.min(length)].fill(0);
            }
        })
    }

    fn is_waited_for(&self) -> bool {
        true
    }

    fn flush(&self) -> io::Result<Vec<Pending>> {
        if !self.shared.closes_late.load(Ordering::SeqCst) {
            return Ok(Vec::new());
        }
        let (token, pending) = Pending::new();
        assert!(!pending.is_done(Duration::ZERO));
        *self.shared.closing.lock().unwrap() = Some(token);
        Ok(vec![pending])
    }

    fn writes_at_once(&self) -> bool {
        self.at_once
    }
}
