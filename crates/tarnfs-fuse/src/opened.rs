//! Files that are being read, kept open: the kernel does not say when it opens or closes one.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use tarnfs_source::SharedSource;
use tarnfs_tree::{Error, Node, Tree};

use crate::deadline::lock;
use crate::handles::share_of_descriptors;

/// How many are kept. Found by looking at each, so not more than a few dozen; a `make -j` or a data loader has fewer at
/// once.
const MOST: usize = 64;

/// The files read last.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    /// How long one may be kept if its tree can change; `None` if for ever.
    keep: Option<Duration>,
    /// How many are kept: [`MOST`], or fewer where each has a descriptor of its own.
    most: usize,
    files: Mutex<Vec<File>>,
}

#[derive(Debug)]
struct File {
    node: Node,
    source: SharedSource,
    opened: Instant,
    used: Instant,
}

impl Opened {
    pub(crate) fn new(keep: Option<Duration>) -> Self {
        let most = if keep.is_some() { share_of_descriptors(8).clamp(1, MOST) } else { MOST };
        Self { keep, most, files: Mutex::default() }
    }

    /// The content of `node`.
    pub(crate) fn get(&self, tree: &dyn Tree, node: Node) -> Result<SharedSource, Error> {
        let now = Instant::now();
        if let Some(file) = lock(&self.files).iter_mut().find(|file| file.node == node)
            && self.keep.is_none_or(|keep| now.saturating_duration_since(file.opened) < keep)
        {
            file.used = now;
            return Ok(SharedSource::clone(&file.source));
        }
        let source = tree.open(node)?;
        let file = File { node, source: SharedSource::clone(&source), opened: now, used: now };
        // Closed outside the lock.
        let _replaced = self.insert(file);
        Ok(source)
    }

    fn insert(&self, file: File) -> Option<File> {
        let mut files = lock(&self.files);
        let same = files.iter().position(|other| other.node == file.node);
        let place = same.or_else(|| {
            let oldest = files.iter().enumerate().min_by_key(|(_, file)| file.used).map(|(place, _)| place);
            oldest.filter(|_| files.len() >= self.most)
        });
        if let Some(place) = place {
            return Some(std::mem::replace(&mut files[place], file));
        }
        files.push(file);
        None
    }
}
