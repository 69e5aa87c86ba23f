//! Opens an archive in this process and reads all of it, as a mount would.

#![allow(dead_code, reason = "each test file uses some of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tarnfs_codec::engine::PieceCache;
use tarnfs_source::Budget;
use tarnfs_tree::open::{DecodingOptions, IndexOptions, IndexPlace, Options, open};
use tarnfs_tree::{Kind, Node, Tree};

/// Bytes read of one file, from its start; of a longer one its end is read as well.
const MOST_READ: usize = 1 << 20;

/// Names and folders that are followed: more are in no sample.
const MOST_NODES: usize = 20_000;

/// What one archive holds: each file's content by its path, if it could be read whole.
pub(crate) type Contents = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Opens and reads it all; `None` if it cannot be opened.
pub(crate) fn devour(path: &Path) -> Option<Contents> {
    let options = Options {
        index: IndexOptions { place: IndexPlace::Memory, ..IndexOptions::default() },
        decoding: DecodingOptions {
            threads: 2,
            cache: PieceCache::new(Budget::new(64 << 20)),
            ..DecodingOptions::default()
        },
        ..Options::default()
    };
    let opened = match open(path, &options) {
        Ok(opened) => opened,
        Err(problem) => {
            assert!(!problem.to_string().is_empty());
            return None;
        }
    };
    let mut contents = Contents::new();
    let tree: &dyn Tree = &*opened.tree;
    let mut folders = vec![(Node::ROOT, Vec::new())];
    while let Some((folder, path)) = folders.pop() {
        let mut children = Vec::new();
        let mut last = None;
        // A folder that cannot be listed is an error for whoever lists it, and no more.
        let _ = tree.read_dir(folder, 0, &mut |child| {
            assert!(!child.name.is_empty() && !child.name.contains(&b'/') && child.name.len() <= 255);
            assert!(last.is_none_or(|last| last < child.next), "a listing goes on");
            last = Some(child.next);
            children.push((child.name.to_vec(), child.attributes));
            children.len() < MOST_NODES
        });
        for (name, attributes) in children {
            let path = [&path[..], b"/", &name].concat();
            // Errors are answers, too.
            let _ = (tree.lookup(folder, &name), tree.xattrs(attributes.node), tree.attributes(attributes.node));
            match attributes.kind {
                Kind::Folder if contents.len() + folders.len() < MOST_NODES => folders.push((attributes.node, path)),
                Kind::Symlink => drop(tree.read_link(attributes.node)),
                Kind::File => {
                    contents.insert(path, content(tree, attributes.node, attributes.size));
                }
                _ => {}
            }
        }
    }
    Some(contents)
}

fn content(tree: &dyn Tree, node: Node, size: u64) -> Option<Vec<u8>> {
    let source = tree.open(node).ok()?;
    assert_eq!(source.len(), size);
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX).min(MOST_READ)];
    // What a mount makes an error of: the archive is cut there.
    source.read_exact_at(&mut bytes, 0).ok()?;
    if size > MOST_READ as u64 {
        let mut end = vec![0; 4096];
        let last = size - end.len() as u64;
        source.read_at(&mut end, last).ok()?;
        return None;
    }
    Some(bytes)
}

/// Ends the process, with a word on the case, if one takes far too long: a test that hangs says nothing.
pub(crate) struct Watchdog(Arc<Watched>);

#[derive(Default)]
struct Watched {
    /// When each case began, in seconds of the watchdog, and what it is.
    cases: Mutex<BTreeMap<usize, (usize, String)>>,
    /// Seconds in which this process ran: while it is stopped, as for a measurement beside it, none pass.
    seconds: AtomicUsize,
}

static NEXT: AtomicUsize = AtomicUsize::new(0);
static PANICS: AtomicUsize = AtomicUsize::new(0);

impl Watchdog {
    /// Only what hangs takes this long, also on a machine with other work.
    const LIMIT: usize = 600;

    #[allow(clippy::print_stderr, reason = "a hang can be told of in no other way")]
    pub(crate) fn new() -> Self {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            hook(info);
        }));
        let here = Arc::new(Watched::default());
        let watched = Arc::downgrade(&here);
        std::thread::spawn(move || {
            while let Some(watched) = watched.upgrade() {
                let now = watched.seconds.fetch_add(1, Ordering::Relaxed);
                let hangs = |(start, _): &&(usize, String)| now.saturating_sub(*start) > Self::LIMIT;
                if let Some((_, case)) = watched.cases.lock().unwrap().values().find(hangs) {
                    eprintln!("hangs: {case}");
                    std::process::abort();
                }
                drop(watched);
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        Self(here)
    }

    /// Runs one case, which must neither hang nor panic in any thread.
    pub(crate) fn watch<T>(&self, case: impl Fn() -> String, run: impl FnOnce() -> T) -> T {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.0.cases.lock().unwrap().insert(number, (self.0.seconds.load(Ordering::Relaxed), case()));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        self.0.cases.lock().unwrap().remove(&number);
        assert_eq!(PANICS.load(Ordering::Relaxed), 0, "panicked at or beside: {}", case());
        result.unwrap_or_else(|_| panic!("{}", case()))
    }
}

/// Hands `count` numbers out to as many threads as there are cores.
pub(crate) fn in_parallel(count: usize, run: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    run(number);
                }
            });
        }
    });
}

/// Numbers that are the same in each run: a failure can be seen again.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }
}
