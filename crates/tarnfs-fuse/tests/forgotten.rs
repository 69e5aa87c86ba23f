//! What a tree gives out for an answer that nobody takes is forgotten.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Gate, MemoryTree, can_mount};
use rustix::io::Errno;
use tarnfs_fuse::{MountOptions, mount};
use tarnfs_source::SharedSource;
use tarnfs_tree::{Attributes, Child, Error, Lifetime, Node, Totals, Tree, Waiting, Xattrs};

/// Counts who holds what. It answers about folders named `late` when the gate is open.
struct Counting {
    tree: MemoryTree,
    late: Node,
    gate: Gate,
    held: Mutex<HashMap<Node, i64>>,
}

impl Counting {
    fn hold(&self, node: Node, times: i64) {
        *self.held.lock().unwrap().entry(node).or_default() += times;
    }

    fn held(&self) -> Vec<(Node, i64)> {
        self.held
            .lock()
            .unwrap()
            .iter()
            .filter(|(_, times)| **times != 0)
            .map(|(&node, &times)| (node, times))
            .collect()
    }
}

impl Tree for Counting {
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        if folder == self.late {
            self.gate.pass();
        }
        let found = self.tree.lookup(folder, name)?;
        self.hold(found.node, 1);
        Ok(found)
    }

    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        self.tree.read_dir(folder, from, &mut |child| {
            let node = child.attributes.node;
            let is_taken = receive(child);
            self.hold(node, i64::from(is_taken));
            is_taken
        })?;
        if folder == self.late {
            self.gate.pass();
        }
        Ok(())
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        self.tree.attributes(node)
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        self.tree.parent(folder)
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>, Error> {
        self.tree.read_link(node)
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        self.tree.xattrs(node)
    }

    fn node_limit(&self) -> u64 {
        1 << 32
    }

    fn forget(&self, node: Node, times: u64) {
        self.hold(node, -(times as i64));
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        self.tree.open(node)
    }

    fn owner_names(&self, node: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        self.tree.owner_names(node)
    }

    fn lifetime(&self, node: Node) -> Lifetime {
        self.tree.lifetime(node)
    }

    fn totals(&self) -> Totals {
        self.tree.totals()
    }

    fn waiting(&self) -> Option<&dyn Waiting> {
        Some(self)
    }
}

impl Waiting for Counting {
    fn is_ready(&self, node: Node) -> bool {
        node != self.late
    }
}

#[track_caller]
fn wait_until(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_nobody_takes_is_forgotten() {
    if !can_mount() {
        return;
    }
    // Also where nothing can change, a tree may have made up folders that it knows only as long as somebody else does.
    for is_immutable in [false, true] {
        nothing_is_held_that_nobody_takes(is_immutable);
    }
}

fn nothing_is_held_that_nobody_takes(is_immutable: bool) {
    let mut tree = MemoryTree::default();
    tree.totals.is_immutable = is_immutable;
    let late = tree.folder(Node::ROOT, "late");
    for number in 0..50 {
        tree.file(late, format!("{number}"), *b"content");
    }
    let tree = Arc::new(Counting { tree, late, gate: Gate::default(), held: Mutex::default() });
    let folder = tempfile::tempdir().unwrap();
    let options = MountOptions { deadline: Duration::from_secs(2), ..MountOptions::default() };
    let mount = mount(Arc::clone(&tree) as Arc<dyn Tree>, folder.path(), &options).unwrap();
    let errno = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
    let path = folder.path().join("late");
    let io = Some(Errno::IO.raw_os_error());
    assert_eq!(errno(fs::metadata(path.join("7")).map(drop)), io);
    assert_eq!(errno(fs::read_dir(&path).and_then(|mut names| names.next().unwrap()).map(drop)), io);
    tree.gate.open();
    wait_until(|| mount.statistics().in_flight == 0);
    // The kernel holds the folder. Of what is in it, it knows nothing.
    wait_until(|| tree.held().iter().all(|(node, _)| *node == late));
    // And what it has taken it forgets itself.
    assert_eq!(fs::read_dir(&path).unwrap().count(), 50);
    assert_eq!(fs::read(path.join("7")).unwrap(), b"content");
    assert!(tree.held().len() > 50);
    fs::write("/proc/sys/vm/drop_caches", "2").ok();
    drop(mount);
    assert!(tree.held().iter().all(|(_, times)| *times >= 0));
}
