//! A tree in memory and its mount.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::print_stderr,
    missing_docs,
    reason = "shared by tests, which use parts of it"
)]

pub(crate) mod editable;
#[path = "../../../../tests/support/namespace.rs"]
pub(crate) mod namespace;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tarnfs_fuse::{Mount, MountOptions, Statistics, mount};
use tarnfs_source::{MemorySource, SharedSource, Source};
use tarnfs_tree::edit::Change;
use tarnfs_tree::{Attributes, Child, Edit, Error, Kind, Lifetime, Node, Time, Totals, Tree, Waiting, WritableFile};

/// One file or folder.
pub(crate) struct Item {
    pub(crate) attributes: Attributes,
    pub(crate) parent: Node,
    pub(crate) children: Vec<(Vec<u8>, Node)>,
    pub(crate) by_name: BTreeMap<Vec<u8>, usize>,
    pub(crate) target: Vec<u8>,
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) source: Option<SharedSource>,
}

/// A tree in memory. A lookup of the name `panic` panics, as does listing a folder of that name; one of a name that
/// begins with `deep` takes half a MiB of stack.
pub(crate) struct MemoryTree {
    pub(crate) items: Vec<Item>,
    pub(crate) totals: Totals,
    /// That of everything in it; `None`: as the totals say.
    pub(crate) lifetime: Option<Lifetime>,
    /// The call of the tree that takes it from 1 to 0 panics.
    pub(crate) until_panic: Arc<AtomicI64>,
    /// Lookups of the name `meet` wait here for each other.
    pub(crate) meeting: Option<Arc<Barrier>>,
    /// Lookups of names that begin with `gate` wait here.
    pub(crate) gate: Option<Arc<Gate>>,
    /// The next question whether there is anything to wait for panics.
    pub(crate) ready_panics: Arc<AtomicBool>,
    /// A file that takes writes.
    pub(crate) written: Option<Arc<Written>>,
}

/// What was written to a file, by each that had it open; the last is empty once that one is done.
pub(crate) struct Written {
    pub(crate) node: Node,
    pub(crate) by: Arc<Mutex<BTreeMap<u64, Vec<Vec<u8>>>>>,
}

/// One that has it open.
#[derive(Debug)]
struct Writer {
    number: u64,
    by: Arc<Mutex<BTreeMap<u64, Vec<Vec<u8>>>>>,
}

/// Only if there is a file that takes writes.
impl Edit for MemoryTree {
    fn may_change(&self, node: Node) -> bool {
        self.written.as_ref().is_some_and(|written| written.node == node)
    }

    fn is_own(&self, node: Node) -> bool {
        self.may_change(node)
    }

    fn change(&self, node: Node, change: &Change) -> Result<Attributes, Error> {
        let emptied = Change { size: Some(0), ..Change::default() };
        if self.may_change(node) && *change == emptied { self.attributes(node) } else { Err(Error::ReadOnly) }
    }

    fn open_to_write(&self, node: Node, _: bool) -> Result<Arc<dyn WritableFile>, Error> {
        let written = self.written.as_ref().filter(|written| written.node == node).ok_or(Error::ReadOnly)?;
        let mut by = written.by.lock().unwrap();
        let number = by.len() as u64;
        by.insert(number, Vec::new());
        Ok(Arc::new(Writer { number, by: Arc::clone(&written.by) }))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.write_at(b"", 0).unwrap();
    }
}

impl Source for Writer {
    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        Ok(0)
    }

    fn len(&self) -> u64 {
        0
    }

    fn describe(&self) -> String {
        "writer".to_owned()
    }
}

impl WritableFile for Writer {
    fn write_at(&self, bytes: &[u8], _: u64) -> io::Result<usize> {
        self.by.lock().unwrap().get_mut(&self.number).unwrap().push(bytes.to_vec());
        Ok(bytes.len())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        if length == 0 { Ok(()) } else { Err(Errno::ROFS.into()) }
    }

    fn sync(&self, _: bool) -> io::Result<()> {
        Ok(())
    }
}

/// Takes so many pages of stack, and more.
fn go_deep(pages: usize) -> u8 {
    let mut page = std::hint::black_box([0_u8; 4096]);
    page[pages] = 1;
    let below = if pages == 0 { 0 } else { go_deep(pages - 1) };
    std::hint::black_box(&page)[pages].wrapping_add(below)
}

impl Default for MemoryTree {
    fn default() -> Self {
        let totals = Totals { nodes: 1, is_immutable: true, ..Totals::default() };
        let mut tree = Self {
            items: Vec::new(),
            totals,
            lifetime: None,
            until_panic: Arc::default(),
            meeting: None,
            gate: None,
            ready_panics: Arc::default(),
            written: None,
        };
        // Number 0 is not used.
        tree.items.push(item(Kind::File, Node(0)));
        tree.items.push(item(Kind::Folder, Node::ROOT));
        tree
    }
}

fn item(kind: Kind, parent: Node) -> Item {
    let folder = kind == Kind::Folder;
    let attributes = Attributes {
        node: Node(0),
        kind,
        mode: if folder { 0o755 } else { 0o644 },
        uid: 0,
        gid: 0,
        links: if folder { 2 } else { 1 },
        size: 0,
        blocks: 0,
        mtime: Time { seconds: 1_000_000_000, nanoseconds: 0 },
        atime: Time::default(),
        ctime: Time::default(),
    };
    Item {
        attributes: Attributes {
            node: if folder && parent == Node::ROOT { Node::ROOT } else { Node(0) },
            ..attributes
        },
        parent,
        children: Vec::new(),
        by_name: BTreeMap::new(),
        target: Vec::new(),
        xattrs: Vec::new(),
        source: None,
    }
}

impl MemoryTree {
    pub(crate) fn add(&mut self, parent: Node, name: impl Into<Vec<u8>>, kind: Kind) -> &mut Item {
        let node = Node(self.items.len() as u64);
        let mut new = item(kind, parent);
        new.attributes.node = node;
        self.items.push(new);
        self.link(parent, name, node);
        self.totals.nodes += 1;
        self.items.last_mut().unwrap()
    }

    /// Another name of a node.
    pub(crate) fn link(&mut self, parent: Node, name: impl Into<Vec<u8>>, node: Node) {
        let name = name.into();
        let parent = &mut self.items[parent.0 as usize];
        parent.by_name.insert(name.clone(), parent.children.len());
        parent.children.push((name, node));
    }

    pub(crate) fn folder(&mut self, parent: Node, name: impl Into<Vec<u8>>) -> Node {
        self.add(parent, name, Kind::Folder).attributes.node
    }

    pub(crate) fn file(&mut self, parent: Node, name: impl Into<Vec<u8>>, bytes: impl Into<Vec<u8>>) -> &mut Item {
        let source = MemorySource::new(bytes, "test");
        self.totals.bytes += source.len();
        self.source(parent, name, Arc::new(source))
    }

    pub(crate) fn source(&mut self, parent: Node, name: impl Into<Vec<u8>>, source: SharedSource) -> &mut Item {
        let item = self.add(parent, name, Kind::File);
        item.attributes.size = source.len();
        item.attributes.blocks = source.len().div_ceil(512);
        item.source = Some(source);
        item
    }

    fn get(&self, node: Node) -> Result<&Item, Error> {
        assert_ne!(self.until_panic.fetch_sub(1, Ordering::Relaxed), 1, "as tested");
        self.items.get(node.0 as usize).ok_or(Error::NotFound)
    }
}

impl Tree for MemoryTree {
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        assert_ne!(name, b"panic", "as tested");
        if let Some(meeting) = self.meeting.as_ref().filter(|_| name.starts_with(b"meet")) {
            meeting.wait();
        }
        if let Some(gate) = self.gate.as_ref().filter(|_| name.starts_with(b"gate")) {
            gate.pass();
        }
        if name.starts_with(b"deep") {
            assert_eq!(go_deep(128), 129);
        }
        let folder = self.get(folder)?;
        let place = folder.by_name.get(name).ok_or(Error::NotFound)?;
        self.attributes(folder.children[*place].1)
    }

    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        let item = self.get(folder)?;
        assert_ne!(item.attributes.uid, 666, "as tested");
        for (place, (name, node)) in item.children.iter().enumerate().skip(from as usize) {
            if !receive(Child { name, attributes: self.attributes(*node)?, next: place as u64 + 1 }) {
                break;
            }
        }
        Ok(())
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        Ok(self.get(node)?.attributes.clone())
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        Ok(self.get(folder)?.parent)
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>, Error> {
        let item = self.get(node)?;
        if item.attributes.kind == Kind::Symlink { Ok(item.target.clone()) } else { Err(Error::WrongKind) }
    }

    fn xattrs(&self, node: Node) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Error> {
        Ok(self.get(node)?.xattrs.clone())
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        self.get(node)?.source.clone().ok_or(Error::WrongKind)
    }

    fn owner_names(&self, _: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        Ok((Vec::new(), Vec::new()))
    }

    fn node_limit(&self) -> u64 {
        u64::MAX
    }

    fn lifetime(&self, node: Node) -> Lifetime {
        if self.written.as_ref().is_some_and(|written| written.node == node) {
            return Lifetime::None;
        }
        self.lifetime.unwrap_or(Lifetime::unless(!self.totals.is_immutable))
    }

    fn totals(&self) -> Totals {
        self.totals
    }

    fn edit(&self) -> Option<&dyn Edit> {
        self.written.as_ref().map(|_| self as &dyn Edit)
    }

    fn waiting(&self) -> Option<&dyn Waiting> {
        Some(self)
    }
}

impl Waiting for MemoryTree {
    fn is_ready(&self, _: Node) -> bool {
        assert!(!self.ready_panics.swap(false, Ordering::SeqCst), "as tested");
        true
    }
}

/// A source that a closure answers, always on a worker.
pub(crate) struct Slow<F> {
    pub(crate) length: u64,
    pub(crate) read: F,
}

impl<F> Debug for Slow<F> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("slow")
    }
}

impl<F: Fn(&mut [u8], u64) -> io::Result<usize> + Send + Sync> Source for Slow<F> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        (self.read)(buffer, offset)
    }

    fn len(&self) -> u64 {
        self.length
    }

    fn describe(&self) -> String {
        "slow".to_owned()
    }

    fn is_ready(&self, _: u64, _: usize) -> bool {
        false
    }
}

/// A gate at which threads wait until it is opened.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Whether it is open, and how many wait.
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    pub(crate) fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        let mut state = self.changed.wait_while(state, |(open, _)| !*open).unwrap();
        state.1 -= 1;
    }

    pub(crate) fn open(&self) {
        self.state.lock().unwrap().0 = true;
        self.changed.notify_all();
    }

    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().unwrap().1
    }
}

/// Opens a gate at the end of a test, also of one that has failed: nobody is to wait for ever.
pub(crate) struct Opens(pub(crate) Arc<Gate>);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Waits for something that must come true. The limit only ends what hangs: it is far above what a machine with other
/// work needs.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(300), "never came true: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// `few`, or `many` where the environment asks for the long form of the tests (`TARNFS_FULL=1`).
pub(crate) fn rounds(few: usize, many: usize) -> usize {
    if std::env::var_os("TARNFS_FULL").is_some() { many } else { few }
}

/// True if this machine lets us mount; else says what is missing, and the test passes.
pub(crate) fn can_mount() -> bool {
    let may =
        rustix::process::geteuid().is_root() && OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !may {
        eprintln!("skipped: needs root and /dev/fuse");
    }
    may
}

/// A mount in a folder of its own, taken away at the end, at which no panic may be counted.
pub(crate) struct Mounted {
    pub(crate) mount: Option<Mount>,
    pub(crate) folder: tempfile::TempDir,
    /// Panics that the test provokes.
    pub(crate) panics: u64,
}

impl Mounted {
    pub(crate) fn new(tree: MemoryTree) -> Self {
        Self::with(tree, &MountOptions::default())
    }

    pub(crate) fn with(tree: MemoryTree, options: &MountOptions) -> Self {
        Self::of(Arc::new(tree), options)
    }

    pub(crate) fn of(tree: Arc<dyn Tree>, options: &MountOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mount = mount(tree, folder.path(), options).unwrap();
        Self { mount: Some(mount), folder, panics: 0 }
    }

    pub(crate) fn path(&self, inside: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(inside)
    }

    pub(crate) fn statistics(&self) -> Statistics {
        self.mount.as_ref().unwrap().statistics()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(mount) = self.mount.take() {
            let panics = mount.statistics().panics;
            drop(mount);
            if !std::thread::panicking() {
                assert_eq!(panics, self.panics);
            }
        }
    }
}

/// The line of the table of mounts for `path`: its options, type, source and own options.
pub(crate) fn mount_line(path: &Path) -> Option<Vec<String>> {
    let table = std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    let fields = table.lines().map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>());
    let line = fields.into_iter().rfind(|fields| fields[4] == path.to_str().unwrap())?;
    let dash = line.iter().position(|field| field == "-").unwrap();
    Some(vec![line[5].clone(), line[dash + 1].clone(), line[dash + 2].clone(), line[dash + 3].clone()])
}
