//! Files of a folder that are open in turn: an archive may be split over more of them than a process may have open.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tarnfs_source::{SharedSource, Source};

use crate::{Attributes, Error, FolderTree, Node, Tree as _};

/// Files that are open at a time of those that take turns.
pub(super) const MOST_OPEN: usize = 16;

/// Those that are open, the one used last at the end.
#[derive(Debug, Default)]
pub(super) struct Open(Mutex<Vec<(Node, SharedSource)>>);

impl Open {
    fn lock(&self) -> MutexGuard<'_, Vec<(Node, SharedSource)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file `node`, if it is open.
    fn get(&self, node: Node) -> Option<SharedSource> {
        let mut open = self.lock();
        let place = open.iter().rposition(|(other, _)| *other == node)?;
        let found = open.remove(place);
        let source = SharedSource::clone(&found.1);
        open.push(found);
        Some(source)
    }

    /// Keeps it open in place of the one that nobody has used for longest.
    fn add(&self, node: Node, source: SharedSource) {
        let mut open = self.lock();
        let closed = if open.len() < MOST_OPEN { None } else { Some(open.remove(0)) };
        open.push((node, source));
        drop(open);
        drop(closed);
    }
}

/// A file of a folder that is opened when it is read. It is held as long as this is there.
#[derive(Debug)]
pub(super) struct InTurn {
    folder: Arc<FolderTree>,
    node: Node,
    length: u64,
    open: Arc<Open>,
}

impl InTurn {
    /// What is `attributes` in `folder`, which was looked up once, and takes turns with others of `open`.
    pub(super) fn new(folder: &Arc<FolderTree>, attributes: &Attributes, open: &Arc<Open>) -> Self {
        let (folder, open) = (Arc::clone(folder), Arc::clone(open));
        Self { folder, node: attributes.node, length: attributes.size, open }
    }

    fn source(&self) -> io::Result<SharedSource> {
        if let Some(source) = self.open.get(self.node) {
            return Ok(source);
        }
        // Without the lock: a server may have to be waited for.
        let source = self.folder.open(self.node).map_err(|error| match error {
            Error::Io(error) => error,
            error => error.errno().into(),
        })?;
        self.open.add(self.node, SharedSource::clone(&source));
        Ok(source)
    }
}

impl Drop for InTurn {
    fn drop(&mut self) {
        self.folder.forget(self.node, 1);
    }
}

impl Source for InTurn {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.source()?.read_at(buffer, offset)
    }

    fn len(&self) -> u64 {
        self.length
    }

    fn describe(&self) -> String {
        let below = self.folder.path_below(self.node).unwrap_or_default();
        self.folder.path().join(below).display().to_string()
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        match self.source() {
            Ok(source) => source.next_data(offset),
            // Whoever reads it is told why.
            Err(_) => (offset < self.length).then_some(offset),
        }
    }

    fn next_hole(&self, offset: u64) -> u64 {
        self.source().map_or(self.length.max(offset), |source| source.next_hole(offset))
    }

    fn most_data(&self) -> u64 {
        self.source().map_or(self.length, |source| source.most_data())
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        self.open.get(self.node).is_some_and(|source| source.is_ready(offset, length))
    }

    fn pinned(&self) -> Option<u64> {
        self.open.get(self.node)?.pinned()
    }

    fn prefetch(&self, offset: u64, length: u64) {
        if let Some(source) = self.open.get(self.node) {
            source.prefetch(offset, length);
        }
    }
}
