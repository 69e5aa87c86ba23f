use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tarnfs_source::{Fingerprint, SharedSource, Source, of_system};

use super::archives::Version;
use crate::open::{identity_of, joined_identity};
use crate::{Attributes, FolderTree, Node, Tree as _};

/// A file in a folder that must stay as it was.
#[derive(Debug)]
pub(super) struct Unchanged {
    source: SharedSource,
    folder: Arc<FolderTree>,
    node: Node,
    length: u64,
    seen: Mutex<Seen>,
    /// Which file it is ([`crate::open::FileFacts::identity`]).
    identity: Option<u64>,
    /// Tells a file that was renamed from one that was written to and got its old time back.
    fingerprint: Fingerprint,
    /// What is read is verified by whoever reads it.
    is_verified: AtomicBool,
    /// How many reads got an answer.
    reads: Arc<AtomicU64>,
    /// The node is forgotten once with this.
    is_holding: bool,
}

/// A state in which the bytes are those that were opened.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    version: Version,
    /// What a change of the inode alone leaves a trace in: mode, owner, links, and where the file lies.
    inode: ([u32; 3], u64, Option<PathBuf>),
}

impl Seen {
    fn new(folder: &FolderTree, node: Node, now: &Attributes) -> Self {
        let inode = ([now.mode, now.uid, now.gid], u64::from(now.links), folder.path_below(node));
        Self { version: Version::of(now), inode }
    }
}

/// Which file an archive is that is made of these; `None` if that cannot be told of all of them. What is kept decoded
/// of an archive belongs to that.
pub(super) fn identity_of_all(files: &[Arc<Unchanged>]) -> Option<u64> {
    files.iter().map(|file| file.identity).reduce(joined_identity).flatten()
}

impl Unchanged {
    /// The content of `node` in `folder`, which is `attributes`. Reads that got an answer are counted in `reads`.
    pub(super) fn new(
        source: SharedSource,
        (folder, node): (Arc<FolderTree>, Node),
        attributes: &Attributes,
        reads: Arc<AtomicU64>,
    ) -> io::Result<Self> {
        // What is open in turn with others has no file of its own, and is opened by its node as here.
        let opened = if source.backing_file().is_some() { Ok(Arc::clone(&source)) } else { folder.open(node) };
        let identity = match opened {
            Ok(file) => file.backing_file().map(identity_of).transpose()?.flatten(),
            Err(_) => None,
        };
        let fingerprint = Fingerprint::of(&*source)?;
        let (length, is_verified) = (attributes.size, AtomicBool::new(false));
        let seen = Mutex::new(Seen::new(&folder, node, attributes));
        Ok(Self { source, folder, node, length, seen, identity, fingerprint, is_verified, reads, is_holding: false })
    }

    /// The same, which has the node held as long as it is there.
    pub(super) fn holding(mut self) -> Self {
        self.is_holding = true;
        self
    }

    /// Whoever reads from now on has checksums of it: what samples miss does no harm.
    pub(super) fn is_verified_by_reader(&self) {
        self.is_verified.store(true, Ordering::Relaxed);
    }

    fn is_same(&self) -> bool {
        // One that was deleted still has its bytes.
        let Ok(now) = self.folder.attributes(self.node) else { return true };
        let version = Version::of(&now);
        let known = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if version == known.version {
            return true;
        }
        let now = Seen::new(&self.folder, self.node, &now);
        let is_same = version.has_content_of(&known.version)
            && (self.is_verified.load(Ordering::Relaxed) || now.inode != known.inode)
            && Fingerprint::of(&*self.source).is_ok_and(|found| found == self.fingerprint);
        if is_same {
            *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = now;
        }
        is_same
    }
}

impl Drop for Unchanged {
    fn drop(&mut self) {
        if self.is_holding {
            self.folder.forget(self.node, 1);
        }
    }
}

impl Source for Unchanged {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let length = self.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let refused = |error| of_system(error, Path::new(&self.source.describe()), offset);
        let read = self.source.read_at(&mut buffer[..length], offset).map_err(refused)?;
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

    fn next_data(&self, offset: u64) -> Option<u64> {
        self.source.next_data(offset).filter(|&data| data < self.length)
    }

    fn next_hole(&self, offset: u64) -> u64 {
        self.source.next_hole(offset).min(self.length).max(offset)
    }

    fn most_data(&self) -> u64 {
        self.source.most_data().min(self.length)
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        self.source.is_ready(offset, length)
    }

    fn pinned(&self) -> Option<u64> {
        self.source.pinned()
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.source.prefetch(offset, length);
    }
}

#[cfg(test)]
mod tests {
    use super::super::in_turn::InTurn;
    use super::*;

    fn unchanged(folder: &Path, name: &str) -> Arc<Unchanged> {
        let folder = Arc::new(FolderTree::open(folder).unwrap());
        let attributes = folder.lookup(Node::ROOT, name.as_bytes()).unwrap();
        let source = folder.open(attributes.node).unwrap();
        let of_folder = (Arc::clone(&folder), attributes.node);
        Arc::new(Unchanged::new(source, of_folder, &attributes, Arc::default()).unwrap().holding())
    }

    /// Nothing that was decoded of an archive in a folder would be kept otherwise.
    #[test]
    fn it_is_known_which_file_it_is() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "content").unwrap();
        std::fs::write(folder.path().join("b"), "content").unwrap();
        let [a, b] = ["a", "b"].map(|name| unchanged(folder.path(), name));
        let of =
            |files: &[&Arc<Unchanged>]| identity_of_all(&files.iter().map(|file| Arc::clone(file)).collect::<Vec<_>>());
        assert!(of(&[&a]).is_some() && of(&[&a]) == of(&[&unchanged(folder.path(), "a")]));
        assert_ne!(of(&[&a]), of(&[&b]), "another file with the same content");
        assert!(of(&[&a, &b]).is_some() && of(&[&a, &b]) != of(&[&b, &a]));
        assert_eq!(of(&[]), None);
        // Parts of an archive are open in turn.
        let tree = Arc::new(FolderTree::open(folder.path()).unwrap());
        let attributes = tree.lookup(Node::ROOT, b"a").unwrap();
        tree.lookup(Node::ROOT, b"a").unwrap();
        let in_turn = Arc::new(InTurn::new(&tree, &attributes, &Arc::default()));
        let part = Unchanged::new(in_turn, (Arc::clone(&tree), attributes.node), &attributes, Arc::default());
        assert_eq!(of(&[&Arc::new(part.unwrap().holding())]), of(&[&a]));
    }
}
