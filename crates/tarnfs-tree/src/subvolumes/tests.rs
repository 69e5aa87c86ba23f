use std::sync::atomic::Ordering;

use super::*;
use crate::toy::Toy;

fn toy() -> Arc<Toy> {
    Arc::new(Toy::with_contents([("file", Vec::new())]))
}

fn names(tree: &Subvolumes) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    tree.read_dir(Node::ROOT, 0, &mut |child| {
        names.push(child.name.to_vec());
        true
    })
    .unwrap();
    names
}

/// A source that cannot be asked any more hides neither the folder that shows all of them nor the others.
#[test]
fn one_that_is_broken_hides_no_other() {
    let (broken, whole, never) = (toy(), toy(), toy());
    never.is_broken.store(true, Ordering::SeqCst);
    let trees = [("broken", &broken), ("whole", &whole), ("never", &never)];
    let trees = trees.map(|(name, tree)| (name.as_bytes().to_vec(), Arc::clone(tree) as Arc<dyn Tree>));
    let tree = Subvolumes::new(trees).unwrap();
    broken.is_broken.store(true, Ordering::SeqCst);
    assert_eq!(tree.attributes(Node::ROOT).unwrap().kind, Kind::Folder);
    assert_eq!(names(&tree), [&b"broken"[..], b"whole"], "what was seen once is still in the listing");
    let whole = tree.lookup(Node::ROOT, b"whole").unwrap();
    assert_eq!(tree.lookup(whole.node, b"file").unwrap().kind, Kind::File);
    for name in [&b"broken"[..], b"never"] {
        assert!(matches!(tree.lookup(Node::ROOT, name), Err(Error::Io(_))));
    }
    // As soon as it can be asked, it is as it is.
    never.is_broken.store(false, Ordering::SeqCst);
    assert_eq!(names(&tree).len(), 3);
}

/// A mount to which sub mounts are added later.
#[test]
fn where_there_is_no_tree_the_root_is_as_old_as_the_mount() {
    let before = now();
    let tree = Subvolumes::new([]).unwrap();
    let root = tree.attributes(Node::ROOT).unwrap();
    assert!(root.mtime.seconds >= before.seconds && root.mtime.seconds <= now().seconds, "{:?}", root.mtime);
}
