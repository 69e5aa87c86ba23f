use std::collections::BTreeSet;

use super::*;
use crate::toy::{File, Toy};

fn toy(names: impl Iterator<Item = String>) -> Arc<Toy> {
    Arc::new(Toy::with_contents(names.map(|name| (name, Vec::new()))))
}

fn list(tree: &UnionTree, at_once: usize) -> Vec<Vec<u8>> {
    let (mut found, mut from) = (Vec::new(), 0);
    loop {
        let (mut wanted, before) = (at_once, found.len());
        tree.read_dir(Node::ROOT, from, &mut |child| {
            if wanted == 0 {
                return false;
            }
            wanted -= 1;
            found.push(child.name.to_vec());
            tree.forget(child.attributes.node, 1);
            from = child.next;
            true
        })
        .unwrap();
        if found.len() == before {
            return found;
        }
    }
}

/// A folder that changes, of more names than there is memory for.
#[test]
fn large_folders_that_change_are_listed_part_by_part() {
    let left = toy((0..3000).map(|number| format!("{number}")));
    let right = toy((2000..5000).map(|number| format!("{number}")));
    let memory = Memory { kept: 1 << 20, snapshot: 64 << 10, filter: 1 << 10 };
    let tree = UnionTree::with_memory(vec![Arc::clone(&left) as _, Arc::clone(&right) as _], memory).unwrap();
    for at_once in [1000, 37] {
        let found = list(&tree, at_once);
        assert!(tree.listings.bytes() <= 2 * memory.snapshot, "{}", tree.listings.bytes());
        let all: BTreeSet<_> = found.iter().collect();
        assert_eq!((found.len(), all.len()), (5000, 5000), "{at_once}");
    }
    assert_eq!((left.held(), right.held()), (0, 0));
    // Who takes all of it at once gets all of it.
    let mut count = 0;
    tree.read_dir(Node::ROOT, 0, &mut |child| {
        tree.forget(child.attributes.node, 1);
        count += 1;
        true
    })
    .unwrap();
    assert_eq!(count, 5000);
    // Also where somebody else gathers a large one at this moment, for whom nobody waits.
    tree.listings.begin_large();
    assert_eq!(list(&tree, usize::MAX).len(), 5000);
}

#[test]
fn whiteouts_hide_what_is_further_left() {
    let whiteout = Kind::CharacterDevice(Device { major: 0, minor: 0 });
    let device = Kind::CharacterDevice(Device { major: 1, minor: 3 });
    let right = toy(["gone", "null", "file"].map(str::to_owned).into_iter());
    right.change(|files: &mut Vec<File>| {
        for file in files {
            match file.name.as_slice() {
                b"gone" => file.kind = whiteout,
                b"null" => file.kind = device,
                _ => {}
            }
        }
    });
    let left = toy(["gone", "null", "other"].map(str::to_owned).into_iter());
    let tree = UnionTree::new(vec![Arc::clone(&left) as _, Arc::clone(&right) as _]).unwrap();
    let mut names = list(&tree, 2);
    names.sort();
    assert_eq!(names, [&b"file"[..], b"null", b"other"]);
    assert!(matches!(tree.lookup(Node::ROOT, b"gone"), Err(Error::NotFound)));
    let found = tree.lookup(Node::ROOT, b"null").unwrap();
    assert_eq!(found.kind, device);
    tree.forget(found.node, 1);
    assert_eq!((left.held(), right.held()), (0, 0));
}
