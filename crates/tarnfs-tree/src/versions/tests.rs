use std::sync::atomic::Ordering;

use tarnfs_source::SharedSource;

use super::*;
use crate::toy::Toy;
use crate::{Lifetime, Subvolumes, Totals, Waiting as _, Xattrs};

fn toy() -> Arc<Toy> {
    Arc::new(Toy::with_contents([("file", Vec::new())]))
}

fn versions(trees: &[(&str, &Arc<Toy>)]) -> Versions {
    let trees = trees.iter().map(|(name, tree)| (name.as_bytes().to_vec(), Arc::clone(tree) as Arc<dyn Tree>));
    Versions::new(Arc::new(Subvolumes::new(trees).unwrap()))
}

/// What a tree beside others must be waited for, its versions must, too. What counts versions may take its time, and is
/// never done by a thread that must not wait.
#[test]
fn versions_of_what_is_not_ready_are_not_ready() {
    let (dead, alive) = (toy(), toy());
    let tree = versions(&[("dead", &dead), ("alive", &alive)]);
    let is_ready = |folder, name: &str| tree.is_ready(tree.asked_for(folder, name.as_bytes()));
    let view = |folder, name: &str| tree.lookup(folder, name.as_bytes()).unwrap().node;
    let of_dead = view(Node::ROOT, "dead.versions");
    let of_alive = view(Node::ROOT, "alive.versions");
    let [root_of_dead, root_of_alive] = [of_dead, of_alive].map(|folder| view(folder, "1"));
    let file_of_dead = view(root_of_dead, "file.versions");
    for ready in [true, false] {
        dead.is_ready.store(ready, Ordering::SeqCst);
        assert!(is_ready(Node::ROOT, "alive") && tree.is_ready(Node::ROOT));
        assert_eq!(is_ready(Node::ROOT, "dead"), ready);
        assert!(!is_ready(Node::ROOT, "alive.versions") && !is_ready(Node::ROOT, "neither.versions"));
        for folder in [of_alive, of_dead, root_of_alive, root_of_dead, file_of_dead] {
            assert!(!tree.is_ready(folder), "{folder:?}");
        }
        for (folder, name) in [
            (of_alive, "1"),
            (of_dead, "1"),
            (root_of_alive, "file"),
            (root_of_dead, "file"),
            (root_of_alive, "file.versions"),
            (file_of_dead, "1"),
        ] {
            assert!(!is_ready(folder, name), "{folder:?} {name}");
        }
        // What is waited for is the tree, if that is not ready.
        let lane = |folder, name: &str| tree.lane(tree.asked_for(folder, name.as_bytes()));
        let dead = lane(Node::ROOT, "dead");
        assert_eq!(lane(of_dead, "1"), if ready { tree.lane } else { dead });
        assert_eq!((lane(of_alive, "1"), lane(Node::ROOT, "alive.versions")), (tree.lane, tree.lane));
    }
}

/// Numbers come round, and are never those of two.
#[test]
fn what_is_forgotten_takes_nothing() {
    let toy = toy();
    let tree = versions(&[("a", &toy), ("b", &toy)]);
    let folder = || tree.lookup(Node::ROOT, b"a.versions").unwrap().node;
    let first = folder();
    assert_eq!(folder(), first);
    tree.views.write().unwrap().next = OWN - 1;
    let last = tree.lookup(Node::ROOT, b"b.versions").unwrap().node;
    assert_eq!(last.0, tree.slow().0 - 1);
    let behind = tree.lookup(first, b"1").unwrap().node;
    assert!(behind != first && behind.0 < last.0);
    tree.forget(behind, 1);
    tree.forget(first, 1);
    assert_eq!(tree.lookup(last, b"1").map(|found| tree.forget(found.node, 1)).ok(), Some(()));
    tree.forget(first, 1);
    tree.forget(last, 1);
    let views = tree.views.read().unwrap();
    assert_eq!((views.all.len(), views.numbers.len()), (0, 0));
}

/// A tree that counts how many versions it hands out.
struct Many(Arc<Toy>, usize, std::sync::atomic::AtomicUsize);

impl Tree for Many {
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        self.0.lookup(folder, name)
    }

    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        self.0.read_dir(folder, from, receive)
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        self.0.attributes(node)
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        self.0.parent(folder)
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>, Error> {
        self.0.read_link(node)
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        self.0.xattrs(node)
    }

    /// Every third is a folder.
    fn each_version(
        &self,
        folder: Node,
        name: &[u8],
        from: u64,
        receive: &mut dyn FnMut(Attributes) -> bool,
    ) -> Result<(), Error> {
        let version = |number: usize| -> Result<Attributes, Error> {
            let found = self.0.lookup(folder, name)?;
            let kind = if number.is_multiple_of(3) { Kind::Folder } else { found.kind };
            Ok(Attributes { kind, size: number as u64, ..found })
        };
        for number in from as usize..self.1 {
            self.2.fetch_add(1, Ordering::SeqCst);
            if !receive(version(number)?) {
                break;
            }
        }
        Ok(())
    }

    fn node_limit(&self) -> u64 {
        self.0.node_limit()
    }

    fn forget(&self, node: Node, times: u64) {
        self.0.forget(node, times);
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        self.0.open(node)
    }

    fn owner_names(&self, node: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        self.0.owner_names(node)
    }

    fn lifetime(&self, node: Node) -> Lifetime {
        self.0.lifetime(node)
    }

    fn totals(&self) -> Totals {
        self.0.totals()
    }
}

/// Who asks for one version is given no other.
#[test]
fn a_version_is_found_without_those_before_it() {
    let many = Arc::new(Many(toy(), 1000, std::sync::atomic::AtomicUsize::new(0)));
    let tree = Versions::new(Arc::clone(&many) as _);
    let folder = tree.lookup(Node::ROOT, b"file.versions").unwrap().node;
    for number in [1, 2, 1000] {
        let found = tree.lookup(folder, number.to_string().as_bytes()).unwrap();
        assert_eq!(found.size + 1, number);
    }
    assert!(matches!(tree.lookup(folder, b"1001"), Err(Error::NotFound)));
    assert_eq!(many.2.load(Ordering::SeqCst), 3);
}

/// However few of them are asked for at a time, all versions are read once; and nothing stays held.
#[test]
fn a_listing_goes_on_where_it_was() {
    // In what cannot change, a listing can be gone on with for ever.
    for toy in [Toy::with_contents([("file", Vec::new())]).immutable(), Toy::with_contents([("file", Vec::new())])] {
        let is_immutable = toy.totals().is_immutable;
        let toy = Arc::new(toy);
        let many = Arc::new(Many(Arc::clone(&toy), 1000, std::sync::atomic::AtomicUsize::new(0)));
        let tree = Versions::new(Arc::clone(&many) as _);
        let folder = tree.lookup(Node::ROOT, b"file.versions").unwrap().node;
        let list = |from: u64, most: usize| {
            let mut found = Vec::new();
            tree.read_dir(folder, from, &mut |child| {
                if found.len() == most {
                    return false;
                }
                assert_eq!(child.name, child.next.to_string().as_bytes());
                assert_eq!(child.attributes.size + 1, child.next);
                found.push((child.next, child.attributes.node));
                true
            })
            .unwrap();
            for &(_, node) in &found {
                tree.forget(node, 1);
            }
            found.last().map(|&(next, _)| next)
        };
        let mut from = 0;
        while let Some(next) = list(from, 7) {
            from = next;
        }
        assert_eq!(from, 1000);
        if is_immutable {
            assert_eq!(many.2.load(Ordering::SeqCst), 1000);
        }
        // Several at a time, some of which never go on.
        for begin in 0..10 {
            assert_eq!(list(begin, 5), Some(begin + 5));
        }
        assert!(tree.rests.lock().unwrap().len() <= MOST_RESTS && toy.held() == 1);
        tree.close_folder(folder);
        assert!(tree.rests.lock().unwrap().is_empty());
        list(0, 3);
        tree.forget(folder, 1);
        assert!(tree.rests.lock().unwrap().is_empty() && tree.views.read().unwrap().all.is_empty());
        assert_eq!(toy.held(), 0);
    }
}

/// What has no room is read again where it is needed.
#[test]
fn versions_beyond_all_bounds_are_listed() {
    let toy = toy();
    let many = Arc::new(Many(Arc::clone(&toy), MOST_OF_RESTS + 10, std::sync::atomic::AtomicUsize::new(0)));
    let tree = Versions::new(many as _);
    let folder = tree.lookup(Node::ROOT, b"file.versions").unwrap().node;
    let (mut count, mut from) = (0, 0);
    while count < 2 || from < MOST_OF_RESTS as u64 + 10 {
        let before = from;
        tree.read_dir(folder, from, &mut |child| {
            if count == 1 && child.next > 100 {
                return false;
            }
            assert_eq!(child.next, from + 1);
            from = child.next;
            tree.forget(child.attributes.node, 1);
            true
        })
        .unwrap();
        count += 1;
        assert!(from > before || count == 2);
        if count == 1 {
            assert_eq!(from, MOST_OF_RESTS as u64 + 10);
            from = 0;
        }
    }
    tree.forget(folder, 1);
    assert_eq!(toy.held(), 0);
}

/// What is in a folder of versions depends on what shows at its path.
#[test]
fn views_live_as_long_as_all_of_the_tree() {
    for (toy, lifetime) in [
        (Toy::with_contents([("a", Vec::new())]).immutable(), Lifetime::Forever),
        (Toy::with_contents([("a", Vec::new())]), Lifetime::Short),
    ] {
        let tree = Versions::new(Arc::new(toy));
        let file = tree.lookup(Node::ROOT, b"a").unwrap().node;
        let view = tree.lookup(Node::ROOT, b"a.versions").unwrap().node;
        for node in [Node::ROOT, file, view] {
            assert_eq!((tree.lifetime(node), tree.lifetime_of_gaps(node)), (lifetime, lifetime));
        }
        tree.forget(view, 1);
        assert_eq!(tree.lifetime(view), Lifetime::None, "nobody knows it");
    }
}
