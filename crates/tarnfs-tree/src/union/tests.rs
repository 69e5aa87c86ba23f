use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use super::*;
use crate::toy::{File, Toy};
use crate::{Subvolumes, path};

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

/// Many unions of the same trees, as images of one archive are, keep no more together than one may.
#[test]
fn unions_that_share_a_cache_keep_as_much_as_one() {
    let memory = Memory { kept: 200 << 10, ..Memory::default() };
    let cache = ListingCache::default();
    let sources = || -> Vec<Arc<dyn Tree>> {
        let left = toy((0..1000).map(|number| format!("{number}")));
        let right = toy((500..1000).map(|number| format!("{number}")));
        vec![left, right]
    };
    let roots = |spaces: &Spaces| (0..2).rev().map(|source| spaces.outer(source, Node::ROOT)).collect();
    let union = || UnionTree::with_roots(sources(), (memory, cache.clone(), 64), &roots).unwrap();
    let unions: Vec<_> = (0..20).map(|_| union()).collect();
    let one = {
        assert_eq!(list(&unions[0], usize::MAX).len(), 1000);
        unions[0].listings.bytes()
    };
    assert!(one > 10_000, "{one}");
    for _ in 0..2 {
        for union in &unions {
            assert_eq!(list(union, usize::MAX).len(), 1000);
            assert!(union.listings.bytes() > 10_000, "what was listed last is kept");
        }
    }
    let kept = || unions.iter().map(|union| union.listings.bytes()).sum::<usize>();
    assert!(kept() <= memory.kept.max(one), "{}", kept());
    // What is gone takes nothing of the others.
    let (others, rest) = (kept(), union());
    list(&rest, usize::MAX);
    drop(rest);
    assert!(kept() <= others);
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
    // Nor is a whiteout a version of what it hides.
    for (name, count) in [("gone", 1), ("null", 2), ("other", 1), ("neither", 0)] {
        let versions = tree.versions(Node::ROOT, name.as_bytes()).unwrap();
        assert_eq!((versions.len(), versions.iter().any(|found| found.kind == whiteout)), (count, false), "{name}");
        for found in versions {
            tree.forget(found.node, 1);
        }
    }
    assert_eq!((left.held(), right.held()), (0, 0));
}

/// What a folder lists and nobody may look at is listed, and nobody is given a node for it.
#[test]
fn what_cannot_be_looked_up_is_listed() {
    let left = toy(["a", "both"].map(str::to_owned).into_iter());
    let right = toy(["b", "both"].map(str::to_owned).into_iter());
    let tree = UnionTree::new(vec![Arc::clone(&left) as _, Arc::clone(&right) as _]).unwrap();
    right.is_closed.store(true, Ordering::SeqCst);
    let mut found = Vec::new();
    for wanted in 0..4 {
        found.clear();
        tree.read_dir(Node::ROOT, 0, &mut |child| {
            let is_taken = found.len() < wanted;
            found.push((child.name.to_vec(), child.attributes.node));
            is_taken
        })
        .unwrap();
    }
    found.sort();
    // Of what is in the left one, nobody can say whether the right one hides it.
    assert_eq!(found, [&b"a"[..], b"b", b"both"].map(|name| (name.to_vec(), crate::UNKNOWN)));
    assert_eq!((left.held(), right.held()), (0, 0));
}

/// Merged folders are known as long as somebody holds them, a listing for instance. No others stay.
#[test]
fn merged_folders_that_nobody_holds_are_forgotten() {
    let toy = || {
        let toy = toy((0..100).map(|number| format!("{number:02}"))).clone();
        toy.change(|files| files.iter_mut().for_each(|file| file.kind = Kind::Folder));
        Arc::new(Arc::into_inner(toy).unwrap().immutable())
    };
    let tree = UnionTree::new(vec![toy() as _, toy() as _]).unwrap();
    tree.merged.write().unwrap().keep_at_most(10);
    let known = || tree.merged.read().unwrap().len();
    for at_once in [1000, 7] {
        assert_eq!(list(&tree, at_once).len(), 100);
    }
    assert_eq!(known(), 101, "the listing has them");
    let found = tree.lookup(Node::ROOT, b"42").unwrap();
    let mut listed = Vec::new();
    tree.read_dir(Node::ROOT, 77, &mut |child| {
        listed.push(child.attributes.node);
        listed.len() < 2
    })
    .unwrap();
    tree.listings.clear();
    assert_eq!(known(), 13, "the root, what was looked up, what was taken from the listing, and the last ten");
    assert!(tree.attributes(found.node).is_ok() && tree.attributes(listed[0]).is_ok());
    tree.forget(listed[0], 1);
    assert_eq!(tree.lookup(Node::ROOT, b"42").unwrap().node, found.node);
    tree.forget(found.node, 2);
    for number in 0..100 {
        let node = tree.lookup(Node::ROOT, format!("{number:02}").as_bytes()).unwrap().node;
        tree.forget(node, 1);
    }
    assert_eq!(known(), 11);
}

/// The same where a folder is too large for a listing in memory, and the sources are asked one after the other.
#[test]
fn merged_folders_that_nobody_took_are_forgotten() {
    let toy = || {
        let toy = toy((0..100).map(|number| format!("{number:02}")));
        toy.change(|files| files.iter_mut().for_each(|file| file.kind = Kind::Folder));
        Arc::new(Arc::into_inner(toy).unwrap().immutable())
    };
    let memory = Memory { kept: 1 << 20, snapshot: 1 << 10, filter: 1 << 10 };
    let tree = UnionTree::with_memory(vec![toy() as _, toy() as _], memory).unwrap();
    tree.merged.write().unwrap().keep_at_most(10);
    for at_once in [1, 7, 1000] {
        assert_eq!(list(&tree, at_once).len(), 100);
        let known = tree.merged.read().unwrap().len();
        assert!(known <= 11, "the root, and ten that nobody holds: {known}");
    }
}

/// A look-up that fails in one source holds nothing in the others.
#[test]
fn what_was_looked_up_before_an_error_is_forgotten() {
    let folder = || {
        let toy = toy(["a", "b"].map(str::to_owned).into_iter());
        toy.change(|files| files.iter_mut().for_each(|file| file.kind = Kind::Folder));
        toy
    };
    let (left, right) = (folder(), folder());
    let tree = UnionTree::new(vec![Arc::clone(&left) as _, Arc::clone(&right) as _]).unwrap();
    left.is_closed.store(true, Ordering::SeqCst);
    assert!(tree.lookup(Node::ROOT, b"a").is_err() && tree.versions(Node::ROOT, b"a").is_err());
    assert_eq!((left.held(), right.held()), (0, 0));
    left.is_closed.store(false, Ordering::SeqCst);
    let found = tree.lookup(Node::ROOT, b"a").unwrap();
    assert_eq!((left.held(), right.held()), (1, 1));
    tree.forget(found.node, 1);
    assert_eq!((left.held(), right.held()), (0, 0));
}

/// Whoever must not wait does not scan the parts of a folder.
#[test]
fn what_has_to_be_gathered_first_is_not_listed_at_once() {
    for is_immutable in [true, false] {
        let names = |from| (from..from + 3000).map(|number| (format!("{number}"), Vec::new()));
        let toy = |from| Toy::with_contents(names(from));
        let toys = [toy(0), toy(2000)].map(|toy| if is_immutable { toy.immutable() } else { toy });
        let tree = UnionTree::new(toys.map(|toy| Arc::new(toy) as _).into()).unwrap();
        assert!(tree.is_ready(Node::ROOT) && !tree.lists_at_once(Node::ROOT, 0));
        assert_eq!(list(&tree, usize::MAX).len(), 5000);
        // What may change is looked at again.
        assert_eq!(tree.lists_at_once(Node::ROOT, 0), is_immutable);
    }
}

/// What comes from a source that never changes is for ever, also beside one that does: where something of the same path
/// may come to it, that has another number.
#[test]
fn what_a_source_has_alone_lives_as_long_as_there() {
    let forever = || Arc::new(Toy::with_contents([("file", Vec::new())]).immutable()) as Arc<dyn Tree>;
    let changing = || Arc::new(Toy::with_contents([("new", Vec::new())])) as Arc<dyn Tree>;
    let beside = |folders: Vec<(&str, Arc<dyn Tree>)>| {
        let folders = folders.into_iter().map(|(name, tree)| (name.as_bytes().to_vec(), tree));
        Arc::new(Subvolumes::new(folders).unwrap()) as Arc<dyn Tree>
    };
    let left = beside(vec![("both", forever()), ("never", forever()), ("alone", forever())]);
    let right = beside(vec![("both", changing()), ("never", forever())]);
    let tree = UnionTree::new(vec![left, right]).unwrap();
    for (path, expected) in [
        ("", Lifetime::Short),
        ("both", Lifetime::Short),
        ("both/file", Lifetime::Forever),
        ("both/new", Lifetime::Short),
        ("never", Lifetime::Forever),
        ("never/file", Lifetime::Forever),
        ("alone", Lifetime::Forever),
    ] {
        let node = path::find(&tree, path.as_bytes(), true).unwrap().node;
        assert_eq!((tree.lifetime(node), tree.lifetime_of_gaps(node)), (expected, expected), "{path}");
    }
    let never = tree.lookup(Node::ROOT, b"never").unwrap().node;
    tree.forget(never, 2);
    assert_eq!(tree.lifetime(never), Lifetime::None, "nobody knows it");
    assert_eq!(UnionTree::new(vec![forever(), forever()]).unwrap().lifetime(Node::ROOT), Lifetime::Forever);
}
