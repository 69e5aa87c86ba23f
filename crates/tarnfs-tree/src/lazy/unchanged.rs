use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tarnfs_source::{Fingerprint, SharedSource, Source};

use super::archives::Version;
use crate::{FolderTree, Node, Tree as _};

/// A file in a folder that must stay as it was.
#[derive(Debug)]
pub(super) struct Unchanged {
    source: SharedSource,
    folder: Arc<FolderTree>,
    node: Node,
    length: u64,
    version: Mutex<Version>,
    /// Tells a file that was renamed from one that was written to and got its old time back.
    fingerprint: Fingerprint,
    /// How many reads got an answer.
    reads: Arc<AtomicU64>,
}

impl Unchanged {
    /// The content of `node` in `folder`, which is of this version. Reads that got an answer are counted in `reads`.
    pub(super) fn new(
        source: SharedSource,
        (folder, node): (Arc<FolderTree>, Node),
        version: Version,
        reads: Arc<AtomicU64>,
    ) -> io::Result<Self> {
        let fingerprint = Fingerprint::of(&*source)?;
        Ok(Self { source, folder, node, length: version.size(), version: Mutex::new(version), fingerprint, reads })
    }

    fn is_same(&self) -> bool {
        // One that was deleted still has its bytes.
        let Ok(now) = self.folder.attributes(self.node) else { return true };
        let now = Version::of(&now);
        let known = *self.version.lock().unwrap_or_else(PoisonError::into_inner);
        if now == known {
            return true;
        }
        let is_same =
            now.has_content_of(&known) && Fingerprint::of(&*self.source).is_ok_and(|found| found == self.fingerprint);
        if is_same {
            *self.version.lock().unwrap_or_else(PoisonError::into_inner) = now;
        }
        is_same
    }
}

impl Source for Unchanged {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let length = self.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let read = self.source.read_at(&mut buffer[..length], offset)?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        if !self.is_same() {
            return Err(io::Error::new(
                io::ErrorKind::StaleNetworkFileHandle,
                format!("{} has changed since it was opened", self.source.describe()),
            ));
        }
        Ok(read)
    }

    fn len(&self) -> u64 {
        self.length
    }

    fn describe(&self) -> String {
        self.source.describe()
    }

    fn is_unproven(&self) -> bool {
        self.source.is_unproven()
    }

    fn verify(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
        self.source.verify(is_abandoned)
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        self.source.is_ready(offset, length)
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.source.prefetch(offset, length);
    }
}
