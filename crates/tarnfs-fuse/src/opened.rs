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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tarnfs_source::MemorySource;
    use tarnfs_tree::{Attributes, Child, Totals, Xattrs};

    /// Files with numbers, each opened anew whenever that is asked for. Nothing else is.
    struct Files;

    impl Tree for Files {
        fn lookup(&self, _: Node, _: &[u8]) -> Result<Attributes, Error> {
            Err(Error::NotFound)
        }

        fn read_dir(&self, _: Node, _: u64, _: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
            Err(Error::NotFound)
        }

        fn attributes(&self, _: Node) -> Result<Attributes, Error> {
            Err(Error::NotFound)
        }

        fn parent(&self, _: Node) -> Result<Node, Error> {
            Err(Error::NotFound)
        }

        fn read_link(&self, _: Node) -> Result<Vec<u8>, Error> {
            Err(Error::NotFound)
        }

        fn xattrs(&self, _: Node) -> Result<Xattrs, Error> {
            Err(Error::NotFound)
        }

        fn node_limit(&self) -> u64 {
            1000
        }

        fn open(&self, node: Node) -> Result<SharedSource, Error> {
            if node.0 < 1000 { Ok(Arc::new(MemorySource::new([1], "one"))) } else { Err(Error::NotFound) }
        }

        fn owner_names(&self, _: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
            Err(Error::NotFound)
        }

        fn totals(&self) -> Totals {
            Totals::default()
        }
    }

    #[test]
    fn a_file_is_kept_open_as_long_as_it_may_be() {
        for (keep, is_kept) in [(None, true), (Some(Duration::from_secs(3600)), true), (Some(Duration::ZERO), false)] {
            let opened = Opened::new(keep);
            let first = opened.get(&Files, Node(7)).unwrap();
            let second = opened.get(&Files, Node(7)).unwrap();
            assert_eq!(Arc::ptr_eq(&first, &second), is_kept, "{keep:?}");
            assert_eq!(lock(&opened.files).len(), 1, "one of each");
            assert!(matches!(opened.get(&Files, Node(1000)), Err(Error::NotFound)));
        }
    }

    #[test]
    fn the_files_used_last_are_kept() {
        let opened = Opened::new(None);
        let get = |number: usize| opened.get(&Files, Node(number as u64)).unwrap();
        let first: Vec<SharedSource> = (0..MOST).map(get).collect();
        // Used once more, so the second one is the oldest now.
        assert!(Arc::ptr_eq(&first[0], &get(0)));
        get(MOST);
        assert_eq!(lock(&opened.files).len(), MOST);
        for number in (0..MOST).filter(|&number| number != 1) {
            assert!(Arc::ptr_eq(&first[number], &get(number)), "{number}");
        }
        assert!(!Arc::ptr_eq(&first[1], &get(1)));
    }
}
