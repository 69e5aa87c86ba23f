//! How long the kernel keeps what it is told.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::fs;
use std::time::Duration;

use common::{MemoryTree, Mounted, can_mount, wait_until};
use tarnfs_fuse::Operation;
use tarnfs_tree::{Lifetime, Node};

/// What never changes is kept, also in a mount in which something else may change.
#[test]
fn the_kernel_keeps_each_node_as_long_as_it_may() {
    if !can_mount() {
        return;
    }
    for lifetime in [Lifetime::Forever, Lifetime::Short, Lifetime::None] {
        let mut tree = MemoryTree::default();
        (tree.totals.is_immutable, tree.lifetime) = (false, Some(lifetime));
        let folder = tree.folder(Node::ROOT, "folder");
        tree.file(folder, "file", [7; 5000]);
        let mounted = Mounted::new(tree);
        let asked_once_more = || {
            let asked = || {
                let statistics = mounted.statistics();
                let kinds = [Operation::Lookup, Operation::Attributes, Operation::ReadDir, Operation::Read];
                kinds.map(|kind| statistics.of(kind)).iter().sum::<u64>()
            };
            let before = asked();
            assert_eq!(fs::metadata(mounted.path("folder/file")).unwrap().len(), 5000);
            assert!(!mounted.path("folder/none").exists());
            assert_eq!(fs::read_dir(mounted.path("folder")).unwrap().count(), 1);
            assert_eq!(fs::read(mounted.path("folder/file")).unwrap(), [7; 5000]);
            asked() - before
        };
        assert!(asked_once_more() > 3);
        if lifetime == Lifetime::Forever {
            // (It gives up what it has where it has no memory for it.)
            wait_until("it is kept", || asked_once_more() == 0);
        }
        std::thread::sleep(Duration::from_millis(1100));
        match lifetime {
            Lifetime::Forever => wait_until("it is still kept", || asked_once_more() == 0),
            Lifetime::Short => assert!(asked_once_more() > 0),
            Lifetime::None => assert!((0..3).all(|_| asked_once_more() >= 3)),
        }
    }
}
