//! Files that are being read, kept open: the kernel does not say when it opens or closes one.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tarnfs_source::SharedSource;
use tarnfs_tree::{Error, Node, Tree};

use crate::deadline::lock;
use crate::handles::share_of_descriptors;

/// How many are kept. Found by looking at each, so not more than a few dozen; a `make -j` or a data loader has fewer at
/// once.
const MOST: usize = 64;

/// Bytes of memory that those take together which are kept ([`tarnfs_source::Source::memory`]); the last one may take
/// more.
const MOST_BYTES: usize = 64 << 20;

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
        let mut is_kept = true;
        let source = self.try_for_memory(|| {
            if let Some(kept) = self.kept(node) {
                return Ok(kept);
            }
            is_kept = false;
            tree.open(node)
        })?;
        if is_kept {
            return Ok(source);
        }
        let memory = source.memory();
        // Closed outside the lock.
        drop(self.make_room(memory));
        if memory < usize::MAX {
            let now = Instant::now();
            let _replaced = self.insert(File { node, source: SharedSource::clone(&source), opened: now, used: now });
        }
        Ok(source)
    }

    /// Opens `node`, for somebody who keeps it.
    pub(crate) fn open(&self, tree: &dyn Tree, node: Node) -> Result<SharedSource, Error> {
        self.try_for_memory(|| tree.open(node))
    }

    /// Does `open`. If there is no memory for it, it is tried once more, when the files that are kept are closed. This
    /// may be a thread that answers the kernel: who may wait for files that are being read tries again.
    fn try_for_memory<T>(&self, mut open: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
        match open() {
            Err(error) if error.errno() == Errno::NOMEM => {
                drop(self.make_room(usize::MAX));
                open()
            }
            done => done,
        }
    }

    /// `node`, if it is open.
    fn kept(&self, node: Node) -> Option<SharedSource> {
        let now = Instant::now();
        let mut files = lock(&self.files);
        let file = files.iter_mut().find(|file| file.node == node)?;
        if self.keep.is_some_and(|keep| now.saturating_duration_since(file.opened) >= keep) {
            return None;
        }
        file.used = now;
        Some(SharedSource::clone(&file.source))
    }

    /// Takes out those that were used first, until there is room for `bytes` more or nothing left that takes any.
    fn make_room(&self, bytes: usize) -> Vec<File> {
        let mut files = lock(&self.files);
        let mut closed = Vec::new();
        loop {
            let held = files.iter().map(|file| file.source.memory()).fold(bytes, usize::saturating_add);
            let large = files.iter().enumerate().filter(|(_, file)| file.source.memory() > 0);
            match large.min_by_key(|(_, file)| file.used) {
                Some((place, _)) if held > MOST_BYTES => closed.push(files.swap_remove(place)),
                _ => return closed,
            }
        }
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
    use tarnfs_source::{MemorySource, Source};
    use tarnfs_tree::{Attributes, Child, Lifetime, Totals, Xattrs};

    /// From this node on files take memory, in MiB what they are further; this one takes more than there is.
    const HEAVY: u64 = 500;
    const MIB: usize = 1 << 20;

    #[derive(Debug)]
    struct Heavy(usize);

    impl Source for Heavy {
        fn read_at(&self, _: &mut [u8], _: u64) -> std::io::Result<usize> {
            Ok(0)
        }

        fn len(&self) -> u64 {
            0
        }

        fn describe(&self) -> String {
            "heavy".to_owned()
        }

        fn memory(&self) -> usize {
            self.0
        }
    }

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
            match node.0 {
                1000.. => Err(Error::NotFound),
                HEAVY => Ok(Arc::new(Heavy(usize::MAX))),
                heavy if heavy > HEAVY => Ok(Arc::new(Heavy((node.0 - HEAVY) as usize * MIB))),
                _ => Ok(Arc::new(MemorySource::new([], "nothing"))),
            }
        }

        fn owner_names(&self, _: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
            Err(Error::NotFound)
        }

        fn lifetime(&self, _: Node) -> Lifetime {
            Lifetime::Short
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
    fn what_takes_memory_is_kept_within_a_bound() {
        let opened = Opened::new(None);
        let get = |number: u64| opened.get(&Files, Node(number)).unwrap();
        let kept = || lock(&opened.files).iter().map(|file| file.node.0).collect::<Vec<_>>();
        get(7);
        for mib in [20, 24, 16] {
            get(HEAVY + mib);
        }
        assert_eq!(kept(), [7, HEAVY + 20, HEAVY + 24, HEAVY + 16]);
        get(HEAVY + 20);
        // The one used longest ago goes.
        get(HEAVY + 28);
        assert_eq!(kept(), [7, HEAVY + 20, HEAVY + 16, HEAVY + 28]);
        // The last one may take more than all.
        get(HEAVY + 96);
        assert_eq!(kept(), [7, HEAVY + 96]);
        assert!(Arc::ptr_eq(&get(HEAVY + 96), &get(HEAVY + 96)));
        // What there is no memory for is not kept, and gets what others have.
        get(HEAVY);
        assert_eq!(kept(), [7]);
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
