//! Folders of the destination that are open, a few at a time.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tarnfs_tree::Node;

use super::Extraction;
use super::attributes::hands_lists_down;
use super::destination::make_folder;

/// Folders that one thread has open.
const MOST: usize = 8;

/// Finds the folder at the destination of a folder in the archive.
pub(super) struct Folders<'a> {
    extraction: &'a Extraction<'a>,
    open: HashMap<Node, (Arc<OwnedFd>, u64)>,
    uses: u64,
}

impl<'a> Folders<'a> {
    pub(super) fn new(extraction: &'a Extraction<'a>) -> Self {
        Self { extraction, open: HashMap::new(), uses: 0 }
    }

    /// That of `folder`.
    pub(super) fn get(&mut self, folder: Node) -> io::Result<Arc<OwnedFd>> {
        self.find(folder, false)
    }

    /// The same; it is made where it is not there, as it is where no entry names it.
    pub(super) fn get_or_make(&mut self, folder: Node) -> io::Result<Arc<OwnedFd>> {
        self.find(folder, true)
    }

    fn find(&mut self, folder: Node, makes: bool) -> io::Result<Arc<OwnedFd>> {
        self.uses += 1;
        let uses = self.uses;
        if let Some((found, used)) = self.open.get_mut(&folder) {
            *used = uses;
            return Ok(Arc::clone(found));
        }
        let names = self.extraction.names_of(folder)?;
        let destination = self.extraction.destination;
        let found = match destination.folder(&names) {
            Err(error) if makes && error.kind() == io::ErrorKind::NotFound => {
                let mut at = destination.folder::<&[u8]>(&[])?;
                for name in &names {
                    make_folder(at.as_fd(), name, 0o777)?;
                    at = destination.inner(at.as_fd(), name)?;
                }
                at
            }
            found => {
                let found = found?;
                // It may have been there before, whoever has named it.
                if !destination.is_fresh() && hands_lists_down(found.as_fd()) {
                    self.extraction.inherits.store(true, Ordering::Relaxed);
                }
                found
            }
        };
        if self.open.len() >= MOST
            && let Some(oldest) = self.open.iter().min_by_key(|(_, (_, used))| *used).map(|(node, _)| *node)
        {
            self.open.remove(&oldest);
        }
        let found = Arc::new(found);
        self.open.insert(folder, (Arc::clone(&found), uses));
        Ok(found)
    }
}
