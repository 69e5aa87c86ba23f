//! A tree for tests: files in one folder, at positions and with contents as a test wants them.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tarnfs_source::{MemorySource, SharedSource};

use crate::{Attributes, Child, Error, Kind, Lifetime, Node, Time, Totals, Tree, Waiting, Xattrs};

/// Makes the content of a file.
type Open = Box<dyn Fn(&[u8]) -> io::Result<SharedSource> + Send + Sync>;

/// One folder with files in it, which counts who holds what.
pub(crate) struct Toy {
    files: Mutex<Vec<File>>,
    open: Open,
    /// What was given out and not forgotten.
    held: Mutex<HashMap<Node, i64>>,
    pub(crate) is_ready: AtomicBool,
    /// It cannot even be asked what it is.
    pub(crate) is_broken: AtomicBool,
    /// When the folder itself was changed, in seconds.
    pub(crate) changed: AtomicI64,
    /// Nothing in it can be looked up.
    pub(crate) is_closed: AtomicBool,
    is_immutable: bool,
    /// Listing fails behind this position, unless it is 0.
    pub(crate) breaks_behind: AtomicU64,
    node_limit: u64,
}

#[derive(Clone)]
pub(crate) struct File {
    pub(crate) name: Vec<u8>,
    /// Behind the one before.
    pub(crate) position: u64,
    pub(crate) size: u64,
    pub(crate) kind: Kind,
    /// Seconds.
    pub(crate) changed: i64,
}

impl Toy {
    pub(crate) fn new(files: Vec<File>, open: Open) -> Self {
        Self {
            files: Mutex::new(files),
            open,
            held: Mutex::default(),
            is_ready: AtomicBool::new(true),
            is_broken: AtomicBool::new(false),
            changed: AtomicI64::new(0),
            breaks_behind: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            is_immutable: false,
            node_limit: 1 << 32,
        }
    }

    /// Empty files, one behind each of these positions.
    pub(crate) fn with_positions(positions: impl IntoIterator<Item = u64>) -> Self {
        let file = |position: u64| File { name: format!("{position:x}").into_bytes(), position, ..File::default() };
        Self::new(
            positions.into_iter().map(file).collect(),
            Box::new(|_| Ok(Arc::new(MemorySource::new(Vec::new(), "toy")))),
        )
    }

    /// Files with these contents.
    pub(crate) fn with_contents<N: AsRef<[u8]>>(contents: impl IntoIterator<Item = (N, Vec<u8>)>) -> Self {
        let contents: HashMap<Vec<u8>, Vec<u8>> =
            contents.into_iter().map(|(name, content)| (name.as_ref().to_vec(), content)).collect();
        let mut names: Vec<&Vec<u8>> = contents.keys().collect();
        names.sort();
        let file = |(position, name): (u64, &&Vec<u8>)| File {
            name: (*name).clone(),
            position,
            size: contents[*name].len() as u64,
            ..File::default()
        };
        let files = (1..).zip(&names).map(file).collect();
        Self::new(files, Box::new(move |name| Ok(Arc::new(MemorySource::new(contents[name].clone(), "toy")))))
    }

    pub(crate) fn of_numbers(self, node_limit: u64) -> Self {
        Self { node_limit, ..self }
    }

    /// Nothing can change.
    pub(crate) fn immutable(self) -> Self {
        Self { is_immutable: true, ..self }
    }

    /// Changes what is there.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Vec<File>)) {
        change(&mut self.files.lock().unwrap());
    }

    /// How many nodes somebody holds.
    pub(crate) fn held(&self) -> usize {
        self.held.lock().unwrap().values().filter(|times| **times != 0).count()
    }

    fn hold(&self, node: Node, times: i64) {
        *self.held.lock().unwrap().entry(node).or_default() += times;
    }

    fn file(&self, node: Node) -> Result<File, Error> {
        let files = self.files.lock().unwrap();
        files.get((node.0 as usize).wrapping_sub(2)).cloned().ok_or(Error::NotFound)
    }
}

impl Default for File {
    fn default() -> Self {
        Self { name: Vec::new(), position: 0, size: 0, kind: Kind::File, changed: 0 }
    }
}

fn attributes(node: Node, file: &File) -> Attributes {
    let time = Time { seconds: file.changed, nanoseconds: 0 };
    Attributes {
        node,
        kind: file.kind,
        mode: 0o755,
        uid: 0,
        gid: 0,
        links: 1,
        size: file.size,
        blocks: 0,
        mtime: time,
        atime: time,
        ctime: time,
    }
}

impl Tree for Toy {
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        if folder != Node::ROOT {
            return Err(Error::NotAFolder);
        }
        if self.is_closed.load(Ordering::SeqCst) {
            return Err(io::Error::other("closed, as tested").into());
        }
        let found = {
            let files = self.files.lock().unwrap();
            let place = files.iter().position(|file| file.name == name).ok_or(Error::NotFound)?;
            attributes(Node(place as u64 + 2), &files[place])
        };
        self.hold(found.node, 1);
        Ok(found)
    }

    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        if folder != Node::ROOT {
            return Err(Error::NotAFolder);
        }
        let files = self.files.lock().unwrap().clone();
        for (file, number) in files.iter().zip(2..).filter(|(file, _)| file.position > from) {
            let node = Node(number);
            if !receive(Child { name: &file.name, attributes: attributes(node, file), next: file.position }) {
                break;
            }
            self.hold(node, 1);
            if file.position == self.breaks_behind.load(Ordering::SeqCst) {
                return Err(io::Error::other("broken, as tested").into());
            }
        }
        Ok(())
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        if self.is_broken.load(Ordering::SeqCst) {
            return Err(io::Error::other("broken, as tested").into());
        }
        if node == Node::ROOT {
            let changed = self.changed.load(Ordering::SeqCst);
            return Ok(attributes(node, &File { kind: Kind::Folder, changed, ..File::default() }));
        }
        Ok(attributes(node, &self.file(node)?))
    }

    fn parent(&self, _: Node) -> Result<Node, Error> {
        Ok(Node::ROOT)
    }

    fn read_link(&self, _: Node) -> Result<Vec<u8>, Error> {
        Err(Error::WrongKind)
    }

    fn xattrs(&self, _: Node) -> Result<Xattrs, Error> {
        Ok(Vec::new())
    }

    fn node_limit(&self) -> u64 {
        self.node_limit
    }

    fn forget(&self, node: Node, times: u64) {
        if node != Node::ROOT {
            self.hold(node, -(times as i64));
        }
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        Ok((self.open)(&self.file(node)?.name)?)
    }

    fn owner_names(&self, _: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        Ok((Vec::new(), Vec::new()))
    }

    fn lifetime(&self, _: Node) -> Lifetime {
        Lifetime::unless(!self.is_immutable)
    }

    fn totals(&self) -> Totals {
        Totals { has_xattrs: true, is_immutable: self.is_immutable, ..Totals::default() }
    }

    fn waiting(&self) -> Option<&dyn Waiting> {
        Some(self)
    }
}

impl Waiting for Toy {
    fn is_ready(&self, _: Node) -> bool {
        self.is_ready.load(Ordering::SeqCst)
    }
}
