use std::sync::atomic::Ordering;

use super::*;
use crate::toy::Toy;
use crate::{UNKNOWN, UnionTree};

fn toy() -> Arc<Toy> {
    Arc::new(Toy::with_contents([("file", Vec::new())]))
}

fn nodes(tree: &Subvolumes, folder: Node) -> Vec<(Vec<u8>, Node)> {
    let mut nodes = Vec::new();
    tree.read_dir(folder, 0, &mut |child| {
        nodes.push((child.name.to_vec(), child.attributes.node));
        true
    })
    .unwrap();
    nodes
}

fn names(tree: &Subvolumes) -> Vec<Vec<u8>> {
    nodes(tree, Node::ROOT).into_iter().map(|(name, _)| name).collect()
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

/// A few hundred bytes may give one name to very many.
#[test]
fn those_of_one_name_have_numbers() {
    let tree = toy();
    let named = |name: &str| (name.as_bytes().to_vec(), Arc::clone(&tree) as Arc<dyn Tree>);
    let several = Subvolumes::new(["a", "a", "a.1", "a", "a.1", "b"].map(named)).unwrap();
    let found: Vec<_> = names(&several).into_iter().map(|name| String::from_utf8(name).unwrap()).collect();
    assert_eq!(found, ["a", "a.1", "a.1.1", "a.2", "a.1.2", "b"]);
    let many = Subvolumes::new((0..20_000).map(|_| named("a"))).unwrap();
    assert_eq!(names(&many).last().map(Vec::as_slice), Some(&b"a.19999"[..]));
}

/// A listing does not say what a folder on a server was when somebody asked last: it may be somebody else's by now.
#[test]
fn what_may_have_to_be_waited_for_is_asked_by_who_wants_to_know() {
    let (server, disk) = (toy(), toy());
    let trees = [("disk", &disk), ("server", &server)];
    let trees = trees.map(|(name, tree)| (name.as_bytes().to_vec(), Arc::clone(tree) as Arc<dyn Tree>));
    let tree = Subvolumes::new(trees).unwrap();
    server.is_ready.store(false, Ordering::SeqCst);
    let known = nodes(&tree, Node::ROOT);
    assert_eq!(known.iter().map(|(_, node)| *node == UNKNOWN).collect::<Vec<_>>(), [false, true]);
    assert_ne!(tree.lookup(Node::ROOT, b"server").unwrap().node, UNKNOWN);
    // What cannot be asked at all is listed in the same way.
    server.is_ready.store(true, Ordering::SeqCst);
    server.is_broken.store(true, Ordering::SeqCst);
    assert_eq!(nodes(&tree, Node::ROOT), known);
}

/// What a tree knows no more of than its name is no node of another tree.
#[test]
fn what_cannot_be_looked_up_is_listed() {
    let [left, right] = [toy(), toy()];
    let union = UnionTree::new(vec![left as _, Arc::clone(&right) as _]).unwrap();
    right.is_closed.store(true, Ordering::SeqCst);
    let tree = Subvolumes::new([(b"union".to_vec(), Arc::new(union) as Arc<dyn Tree>)]).unwrap();
    let folder = tree.lookup(Node::ROOT, b"union").unwrap().node;
    assert_eq!(nodes(&tree, folder), [(b"file".to_vec(), UNKNOWN)]);
}

/// A mount to which sub mounts are added later.
#[test]
fn where_there_is_no_tree_the_root_is_as_old_as_the_mount() {
    let before = now();
    let tree = Subvolumes::new([]).unwrap();
    let root = tree.attributes(Node::ROOT).unwrap();
    assert!(root.mtime.seconds >= before.seconds && root.mtime.seconds <= now().seconds, "{:?}", root.mtime);
}
