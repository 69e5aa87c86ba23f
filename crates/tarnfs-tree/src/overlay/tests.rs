use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::FolderTree;
use crate::asker::{Asker, asked_by};
use crate::edit::{Allocation, Change, New, Renaming, Setting};

/// Who was told, before it began, that nothing came of it.
#[derive(Default)]
struct Gone {
    asked: AtomicUsize,
}

impl Asker for Gone {
    fn waits_for_disk(&self) {}

    fn begins(&self) -> bool {
        self.asked.fetch_add(1, Ordering::SeqCst);
        false
    }

    fn takes_long(&self, _: bool) {}
}

/// All names, with what the files hold.
fn all(tree: &OverlayTree, folder: Node) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut found, mut inner) = (BTreeMap::new(), Vec::new());
    let listed = tree.read_dir(folder, 0, &mut |child| {
        inner.push((child.name.to_vec(), child.attributes));
        true
    });
    listed.unwrap();
    for (name, attributes) in inner {
        let shown = format!("{:o} {:?} ", attributes.mode, tree.xattrs(attributes.node).unwrap());
        let mut content = shown.into_bytes();
        if attributes.kind == Kind::File {
            let file = tree.open(attributes.node).unwrap();
            let mut bytes = vec![0; file.len() as usize];
            assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
            content.extend(bytes);
        }
        found.insert(name, content);
    }
    found
}

type Work<'a> = Box<dyn Fn() -> Result<(), Error> + 'a>;

/// > A change that was answered with an error is not done later.
#[test]
fn nothing_is_done_for_who_was_told_that_it_failed() {
    let [below, written] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    fs::create_dir(below.path().join("folder")).unwrap();
    for name in ["file", "other", "cut"] {
        fs::write(below.path().join(name), "content").unwrap();
    }
    let lower: Arc<dyn Tree> = Arc::new(FolderTree::open(below.path()).unwrap());
    let tree = OverlayTree::open(lower, written.path(), "test").unwrap();
    let edit = tree.edit().unwrap();
    let node = |name: &[u8]| tree.lookup(Node::ROOT, name).unwrap().node;
    let (file, cut, folder) = (node(b"file"), node(b"cut"), node(b"folder"));
    let before = all(&tree, Node::ROOT);
    let new = |kind| New { kind, mode: 0o755, umask: 0, uid: 0, gid: 0, target: b"x".to_vec() };
    let own = edit.make(Node::ROOT, b"own", &new(Kind::File)).unwrap().node;
    edit.open_to_write(own, false).unwrap().write_at(b"mine", 0).unwrap();
    let after = all(&tree, Node::ROOT);
    assert_eq!(after.len(), before.len() + 1);
    let [open, open_cut, open_own] = [file, cut, own].map(|node| edit.open_to_write(node, false).unwrap());
    let mode = Change { mode: Some(0o600), ..Change::default() };
    let size = |size| Change { size: Some(size), ..Change::default() };
    let root = Node::ROOT;
    let work: Vec<(&str, Work<'_>)> = vec![
        ("mkdir", Box::new(|| edit.make(root, b"new", &new(Kind::Folder)).map(drop))),
        ("create", Box::new(|| edit.make(folder, b"new", &new(Kind::File)).map(drop))),
        ("symlink", Box::new(|| edit.make(root, b"new", &new(Kind::Symlink)).map(drop))),
        ("tmpfile", Box::new(|| edit.make_unnamed(root, &new(Kind::File)).map(drop))),
        ("link", Box::new(|| edit.link(file, root, b"new").map(drop))),
        ("unlink", Box::new(|| edit.remove(root, b"file", false))),
        ("rmdir", Box::new(|| edit.remove(root, b"folder", true))),
        ("rename", Box::new(|| edit.rename((root, b"file"), (root, b"new"), Renaming::Replaces))),
        ("replace", Box::new(|| edit.rename((root, b"file"), (root, b"other"), Renaming::Replaces))),
        ("exchange", Box::new(|| edit.rename((root, b"file"), (root, b"folder"), Renaming::Exchanges))),
        ("chmod", Box::new(|| edit.change(file, &mode).map(drop))),
        ("setxattr", Box::new(|| edit.set_xattr(file, b"user.a", b"b", Setting::Any))),
        // What is not there yet in the overlay is cut by not copying the rest.
        ("empty", Box::new(|| edit.change(cut, &size(0)).map(drop))),
        ("cut", Box::new(|| Ok(open_cut.set_len(3)?))),
        ("lengthen", Box::new(|| edit.change(file, &size(100)).map(drop))),
        ("write", Box::new(|| Ok(open.write_at(b"CON", 0).map(drop)?))),
        ("allocate", Box::new(|| Ok(open.allocate(Allocation::Reserves, 0..100, false)?))),
        ("write to a new file", Box::new(|| Ok(open_own.write_at(b"MINE", 0).map(drop)?))),
        ("cut a new file", Box::new(|| Ok(open_own.set_len(0)?))),
        ("fsync", Box::new(|| Ok(open_own.sync(false)?))),
        ("fsync of a folder", Box::new(|| edit.sync(root, false))),
    ];
    for (what, work) in &work {
        let gone = Arc::new(Gone::default());
        let result = asked_by(Arc::clone(&gone) as _, work);
        assert_eq!(result.map_err(|error| error.errno()), Err(Errno::INTR), "{what}");
        assert!(gone.asked.load(Ordering::SeqCst) > 0, "{what}");
        assert_eq!(all(&tree, root), after, "{what}");
    }
    // It can be asked for again.
    edit.remove(root, b"other", false).unwrap();
    open_cut.set_len(3).unwrap();
    open.write_at(b"CON", 0).unwrap();
    let after = all(&tree, root);
    let ends = |name: &[u8], end: &[u8]| after.get(name).unwrap().ends_with(end);
    assert!(ends(b"cut", b" con") && ends(b"file", b" CONtent") && !after.contains_key(&b"other"[..]));
}

/// What an asker is told, in turn.
#[derive(Default)]
struct Notes(Mutex<Vec<&'static str>>);

impl Asker for Notes {
    fn waits_for_disk(&self) {
        lock(&self.0).push("disk");
    }

    fn begins(&self) -> bool {
        lock(&self.0).push("begins");
        true
    }

    fn takes_long(&self, does: bool) {
        lock(&self.0).push(if does { "long" } else { "over" });
    }
}

/// To copy a file is not yet what was asked for; to cut it by copying less is.
#[test]
fn a_change_begins_when_it_is_its_turn() {
    let [below, written] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    for name in ["file", "cut", "old"] {
        fs::write(below.path().join(name), "content").unwrap();
    }
    let lower: Arc<dyn Tree> = Arc::new(FolderTree::open(below.path()).unwrap());
    let tree = OverlayTree::open(lower, written.path(), "test").unwrap();
    let edit = tree.edit().unwrap();
    let open = |name: &[u8]| edit.open_to_write(tree.lookup(Node::ROOT, name).unwrap().node, false).unwrap();
    let (file, cut) = (open(b"file"), open(b"cut"));
    let told = |work: &dyn Fn()| {
        let notes = Arc::new(Notes::default());
        asked_by(Arc::clone(&notes) as _, work);
        std::mem::take(&mut *lock(&notes.0)).join(" ")
    };
    let write = || assert_eq!(file.write_at(b"CON", 0).unwrap(), 3);
    assert_eq!(told(&write), "long over begins");
    assert_eq!(told(&write), "begins", "it is copied");
    assert_eq!(told(&|| cut.set_len(3).unwrap()), "long disk begins disk begins over begins");
    assert_eq!(told(&|| file.sync(false).unwrap()), "begins long over");
    let new = New { kind: Kind::Folder, mode: 0o755, umask: 0, uid: 0, gid: 0, target: Vec::new() };
    assert_eq!(told(&|| assert!(edit.make(Node::ROOT, b"new", &new).is_ok())), "disk begins");
    let rename = || edit.rename((Node::ROOT, b"file"), (Node::ROOT, b"old"), Renaming::Replaces).unwrap();
    assert_eq!(told(&rename), "begins long over disk begins", "what replaces another file is on the disk first");
}
