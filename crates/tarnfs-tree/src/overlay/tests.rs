mod below;
mod emptied;

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::FolderTree;
use crate::Time;
use crate::asker::{Asker, asked_by};
use crate::edit::{Allocation, Change, New, Renaming, Setting};
use crate::toy::{File, Toy};
use tarnfs_source::MemorySource;

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

/// A folder that notes when it is asked something that may have to be waited for.
struct Noted(FolderTree, Arc<Notes>);

impl Noted {
    fn asked(&self) -> &FolderTree {
        lock(&self.1.0).push("below");
        &self.0
    }
}

impl Tree for Noted {
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        self.asked().lookup(folder, name)
    }

    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        self.asked().read_dir(folder, from, receive)
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        self.asked().attributes(node)
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        self.asked().parent(folder)
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>, Error> {
        self.asked().read_link(node)
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        self.asked().xattrs(node)
    }

    fn node_limit(&self) -> u64 {
        self.0.node_limit()
    }

    fn forget(&self, node: Node, times: u64) {
        self.0.forget(node, times);
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        self.asked().open(node)
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

/// What has begun is ended by no signal, and what is below may be a server that is gone.
#[test]
fn what_is_below_is_asked_before_a_change_begins() {
    let [below, written] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    for folder in ["folder", "emptied", "replaced", "unnamed"] {
        fs::create_dir(below.path().join(folder)).unwrap();
        fs::write(below.path().join(folder).join("inside"), "content").unwrap();
    }
    for name in ["file", "other", "cut", "timed"] {
        fs::write(below.path().join(name), "content").unwrap();
    }
    for name in ["moved", "shared", "changed", "over", "swapped", "removed", "with"] {
        std::os::unix::fs::symlink("target", below.path().join(name)).unwrap();
    }
    let notes = Arc::new(Notes::default());
    let lower = Arc::new(Noted(FolderTree::open(below.path()).unwrap(), Arc::clone(&notes)));
    let tree = OverlayTree::open(lower, written.path(), "test").unwrap();
    let edit = tree.edit().unwrap();
    let root = Node::ROOT;
    let node = |name: &[u8]| tree.lookup(root, name).unwrap().node;
    // What was noted as below is not, by now.
    for name in [b"emptied".as_slice(), b"replaced"] {
        edit.remove(node(name), b"inside", false).unwrap();
        fs::remove_file(below.path().join(std::str::from_utf8(name).unwrap()).join("inside")).unwrap();
    }
    let new = |kind| New { kind, mode: 0o755, umask: 0, uid: 0, gid: 0, target: b"x".to_vec() };
    let rename = |from: &[u8], to: &[u8], how| edit.rename((root, from), (root, to), how);
    let time = Some(Time { seconds: 1, nanoseconds: 0 });
    let timed = Change { mtime: time, ..Change::default() };
    let cut = Change { size: Some(3), mtime: time, ..Change::default() };
    let work: Vec<(&str, Work<'_>)> = vec![
        ("link", Box::new(|| edit.link(node(b"shared"), node(b"folder"), b"new").map(drop))),
        ("utimes of a link", Box::new(|| edit.change(node(b"changed"), &timed).map(drop))),
        ("setxattr", Box::new(|| edit.set_xattr(node(b"with"), b"user.a", b"b", Setting::Any))),
        ("rename of a link", Box::new(|| rename(b"moved", b"moved to", Renaming::Replaces))),
        ("over a link", Box::new(|| rename(b"file", b"over", Renaming::Replaces))),
        ("exchange", Box::new(|| rename(b"other", b"swapped", Renaming::Exchanges))),
        ("unlink of a link", Box::new(|| edit.remove(root, b"removed", false))),
        ("create", Box::new(|| edit.make(node(b"folder"), b"made", &new(Kind::File)).map(drop))),
        ("utimes", Box::new(|| edit.change(node(b"timed"), &timed).map(drop))),
        ("size and time", Box::new(|| edit.change(node(b"cut"), &cut).map(drop))),
        ("unnamed", Box::new(|| edit.make_unnamed(node(b"unnamed"), &new(Kind::File)).map(drop))),
        ("rmdir", Box::new(|| edit.remove(root, b"emptied", true))),
        ("over a folder", Box::new(|| rename(b"folder", b"replaced", Renaming::Replaces))),
    ];
    let mut wrong = Vec::new();
    for (what, work) in &work {
        lock(&notes.0).clear();
        let done = asked_by(Arc::clone(&notes) as _, work).map_err(|error| error.errno());
        let told = std::mem::take(&mut *lock(&notes.0));
        let begins = told.iter().position(|&note| note == "begins").unwrap_or(told.len());
        if done.is_err() || !told[..begins].contains(&"below") || told[begins..].contains(&"below") {
            wrong.push(format!("{what}: {done:?}: {told:?}"));
        }
    }
    assert_eq!(wrong, [""; 0]);
    for name in [b"changed".as_slice(), b"shared", b"moved to", b"other", b"with"] {
        assert_eq!(tree.read_link(node(name)).unwrap(), b"target");
    }
}

/// The same of what is not below any more, where it is asked whether it is there again.
#[test]
fn what_is_gone_below_is_not_looked_for_when_a_change_has_begun() {
    let [below, written] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    fs::write(below.path().join("file"), "content").unwrap();
    let notes = Arc::new(Notes::default());
    let open = || {
        let lower = Arc::new(Noted(FolderTree::open(below.path()).unwrap(), Arc::clone(&notes)));
        OverlayTree::open(lower, written.path(), "test").unwrap()
    };
    let file = |tree: &OverlayTree| tree.lookup(Node::ROOT, b"file").unwrap().node;
    let size = Change { size: Some(3), ..Change::default() };
    let tree = open();
    tree.edit().unwrap().change(file(&tree), &size).unwrap();
    tree.finish();
    drop(tree);
    fs::remove_file(below.path().join("file")).unwrap();
    let tree = open();
    let (node, edit) = (file(&tree), tree.edit().unwrap());
    let both = Change { size: Some(2), mode: Some(0o600), ..Change::default() };
    let work: Vec<(&str, Work<'_>)> = vec![
        ("size", Box::new(|| edit.change(node, &size).map(drop))),
        ("size and mode", Box::new(|| edit.change(node, &both).map(drop))),
        ("link", Box::new(|| edit.link(node, Node::ROOT, b"link").map(drop))),
    ];
    for (what, work) in &work {
        lock(&tree.0.lost).clear();
        lock(&notes.0).clear();
        asked_by(Arc::clone(&notes) as _, work).unwrap();
        let told = std::mem::take(&mut *lock(&notes.0));
        let begins = told.iter().position(|&note| note == "begins").unwrap();
        assert!(!told[begins..].contains(&"below"), "{what}: {told:?}");
    }
}

/// Who removes a link, or puts something in its place, need not be told where it leads: that may be damaged.
#[test]
fn a_link_that_goes_is_not_read() {
    let [below, written] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    std::os::unix::fs::symlink("target", below.path().join("removed")).unwrap();
    let notes = Arc::new(Notes::default());
    let lower = Arc::new(Noted(FolderTree::open(below.path()).unwrap(), Arc::clone(&notes)));
    let tree = OverlayTree::open(lower, written.path(), "test").unwrap();
    // Unlike a file, of which the same is asked but for that.
    fs::write(below.path().join("file"), "content").unwrap();
    let asked = [b"removed".as_slice(), b"file"].map(|name| {
        lock(&notes.0).clear();
        tree.edit().unwrap().remove(Node::ROOT, name, false).unwrap();
        lock(&notes.0).iter().filter(|&&note| note == "below").count()
    });
    assert_eq!(asked[0], asked[1]);
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

/// A tree over a folder that somebody else changes meanwhile, and both folders.
fn over_folder() -> (OverlayTree, tempfile::TempDir, tempfile::TempDir) {
    let [below, written] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let tree = OverlayTree::open(Arc::new(FolderTree::open(below.path()).unwrap()), written.path(), "test").unwrap();
    (tree, below, written)
}

fn write(tree: &OverlayTree, folder: Node, name: &[u8], content: &[u8]) -> Node {
    let edit = tree.edit().unwrap();
    let new = New { kind: Kind::File, mode: 0o644, umask: 0, uid: 0, gid: 0, target: Vec::new() };
    let node = tree.lookup(folder, name).unwrap_or_else(|_| edit.make(folder, name, &new).unwrap()).node;
    edit.open_to_write(node, false).unwrap().write_at(content, 0).unwrap();
    node
}

fn read(tree: &OverlayTree, folder: Node, name: &[u8]) -> Result<Vec<u8>, Errno> {
    let node = tree.lookup(folder, name).map_err(|error| error.errno())?.node;
    let file = tree.open(node).map_err(|error| error.errno())?;
    let mut bytes = vec![0; file.len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    Ok(bytes)
}

fn names(tree: &OverlayTree, folder: Node) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let listed = tree.read_dir(folder, 0, &mut |child| {
        names.push(child.name.to_vec());
        true
    });
    listed.unwrap();
    names.sort();
    names
}

/// > What was changed in a mount goes by its path: if somebody renames it below, or puts another one in its place, the
/// > change stays, under the old path alone.
#[test]
fn what_is_renamed_below_is_another_one() {
    let (tree, below, written) = over_folder();
    let at = |name: &str| below.path().join(name);
    for name in ["log", "linked", "mode"] {
        fs::write(at(name), "below").unwrap();
    }
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("folder/inner"), "below").unwrap();
    let root = Node::ROOT;
    let mode = Change { mode: Some(0o600), ..Change::default() };
    tree.edit().unwrap().change(tree.lookup(root, b"mode").unwrap().node, &mode).unwrap();
    write(&tree, root, b"log", b"mine!");
    write(&tree, root, b"linked", b"mine!");
    write(&tree, tree.lookup(root, b"folder").unwrap().node, b"mine", b"mine!");
    fs::rename(at("log"), at("log.1")).unwrap();
    fs::rename(at("folder"), at("moved")).unwrap();
    fs::hard_link(at("linked"), at("copy")).unwrap();
    fs::hard_link(at("mode"), at("mode too")).unwrap();
    let expected =
        ["copy", "folder", "linked", "log", "log.1", "mode", "mode too", "moved"].map(|name| name.as_bytes().to_vec());
    assert_eq!(names(&tree, root), expected);
    let edit = tree.edit().unwrap();
    for name in [b"log.1".as_slice(), b"moved", b"copy"] {
        assert_eq!(tree.lookup(root, name).map_err(|error| error.errno()).unwrap_err(), Errno::STALE);
        assert!(edit.remove(root, name, name == b"moved").is_err());
    }
    let check = |tree: &OverlayTree| {
        for name in [b"log".as_slice(), b"linked"] {
            assert_eq!(read(tree, root, name).unwrap(), b"mine!");
        }
        let folder = tree.lookup(root, b"folder").unwrap().node;
        assert_eq!(names(tree, folder), [b"mine"]);
        assert_eq!(read(tree, folder, b"mine").unwrap(), b"mine!");
    };
    check(&tree);
    tree.finish();
    drop(tree);
    let tree = OverlayTree::open(Arc::new(FolderTree::open(below.path()).unwrap()), written.path(), "test").unwrap();
    check(&tree);
    for name in [b"log.1".as_slice(), b"copy"] {
        assert_eq!(read(&tree, root, name).unwrap(), b"below");
    }
    assert_ne!(tree.lookup(root, b"copy").unwrap().node, tree.lookup(root, b"linked").unwrap().node);
    assert_eq!(read(&tree, tree.lookup(root, b"moved").unwrap().node, b"inner").unwrap(), b"below");
    // One whose content is that below.
    assert_eq!(read(&tree, root, b"mode").unwrap(), b"below");
    write(&tree, root, b"mode", b"mine!");
    assert_eq!(read(&tree, root, b"mode").unwrap(), b"mine!");
    let other = tree.lookup(root, b"mode too").unwrap();
    assert_ne!(other.mode & 0o777, 0o600);
    assert_eq!(read(&tree, root, b"mode too").unwrap(), b"below");
}

#[test]
fn a_folder_that_is_made_anew_below_is_shown_with_what_was_written_in_it() {
    let (tree, below, _written) = over_folder();
    let at = |name: &str| below.path().join(name);
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("folder/old"), "below").unwrap();
    let root = Node::ROOT;
    write(&tree, tree.lookup(root, b"folder").unwrap().node, b"mine", b"mine!");
    fs::remove_dir_all(at("folder")).unwrap();
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("folder/new"), "below").unwrap();
    let folder = tree.lookup(root, b"folder").unwrap().node;
    assert_eq!(names(&tree, folder), [b"mine".to_vec(), b"new".to_vec()]);
    assert_eq!(read(&tree, folder, b"new").unwrap(), b"below");
    let edit = tree.edit().unwrap();
    edit.remove(folder, b"mine", false).unwrap();
    assert_eq!(edit.remove(root, b"folder", true).map_err(|error| error.errno()), Err(Errno::NOTEMPTY));
    // The same of one that is only moved away.
    fs::rename(at("folder"), at("away")).unwrap();
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("folder/newer"), "below").unwrap();
    let folder = tree.lookup(root, b"folder").unwrap().node;
    assert_eq!(names(&tree, folder), [b"newer"]);
}

/// On ext4 the first name that a folder is asked for may stand before `.`.
#[test]
fn a_folder_that_was_not_empty_is_listed_as_it_is_then() {
    let (tree, below, _written) = over_folder();
    let at = |name: &str| below.path().join("folder").join(name);
    fs::create_dir(at("")).unwrap();
    for number in 0..50 {
        fs::write(at(&number.to_string()), "").unwrap();
    }
    let edit = tree.edit().unwrap();
    assert!(edit.remove(Node::ROOT, b"folder", true).is_err());
    for number in 0..50 {
        fs::remove_file(at(&number.to_string())).unwrap();
    }
    fs::write(at("new"), "").unwrap();
    assert!(edit.remove(Node::ROOT, b"folder", true).is_err());
    assert_eq!(names(&tree, tree.lookup(Node::ROOT, b"folder").unwrap().node), [b"new"]);
}

#[test]
fn who_opens_a_file_slowly_does_not_undo_what_was_written_meanwhile() {
    let file = File { name: b"file".to_vec(), position: 1, size: 3, ..File::default() };
    let (asked, goes_on) = (Arc::new(AtomicUsize::new(0)), Arc::new(std::sync::Barrier::new(2)));
    let open = {
        let (asked, goes_on) = (Arc::clone(&asked), Arc::clone(&goes_on));
        move |_: &[u8]| -> io::Result<SharedSource> {
            if asked.fetch_add(1, Ordering::SeqCst) == 0 {
                // It has begun, and is let go.
                goes_on.wait();
                goes_on.wait();
            }
            Ok(Arc::new(MemorySource::new(b"old".to_vec(), "toy")))
        }
    };
    let written = tempfile::tempdir().unwrap();
    let tree = OverlayTree::open(Arc::new(Toy::new(vec![file], Box::new(open))), written.path(), "test").unwrap();
    let node = tree.lookup(Node::ROOT, b"file").unwrap().node;
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| tree.open(node).unwrap());
        goes_on.wait();
        tree.edit().unwrap().open_to_write(node, false).unwrap().write_at(b"new", 0).unwrap();
        goes_on.wait();
        let mut bytes = [0; 3];
        slow.join().unwrap().read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"new");
    });
    write(&tree, Node::ROOT, b"file", b"N");
    assert_eq!(read(&tree, Node::ROOT, b"file").unwrap(), b"New");
}

/// Threads that answer the kernel ask what is open, and wait for nobody who asks the database.
#[test]
fn a_file_that_was_opened_is_noted_without_the_database() {
    let file = File { name: b"file".to_vec(), position: 1, size: 3, ..File::default() };
    let (goes_on, is_slow) = (Arc::new(std::sync::Barrier::new(2)), Arc::new(AtomicUsize::new(0)));
    let open = {
        let (goes_on, is_slow) = (Arc::clone(&goes_on), Arc::clone(&is_slow));
        move |_: &[u8]| -> io::Result<SharedSource> {
            if is_slow.load(Ordering::SeqCst) > 0 {
                // It has begun, and is let go.
                goes_on.wait();
                goes_on.wait();
            }
            Ok(Arc::new(MemorySource::new(b"old".to_vec(), "toy")))
        }
    };
    let written = tempfile::tempdir().unwrap();
    let tree = OverlayTree::open(Arc::new(Toy::new(vec![file], Box::new(open))), written.path(), "test").unwrap();
    let node = tree.lookup(Node::ROOT, b"file").unwrap().node;
    // It has a row, and its content is that below.
    tree.edit().unwrap().change(node, &Change { mode: Some(0o600), ..Change::default() }).unwrap();
    is_slow.store(1, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let (opened, is_opened) = std::sync::mpsc::channel();
        let tree = &tree;
        scope.spawn(move || opened.send(tree.open(node).map(|file| file.len())).unwrap());
        goes_on.wait();
        let busy = |_: &rusqlite::Connection| {
            goes_on.wait();
            // Where it waits for the database, that is for ever.
            Ok(is_opened.recv_timeout(std::time::Duration::from_secs(60)))
        };
        assert_eq!(tree.0.database.ask(busy).unwrap().unwrap().unwrap(), 3);
    });
}

/// What is opened is what was compared: who looks twice may find two files.
#[test]
fn the_way_to_what_is_below_is_walked_once() {
    let [below, written] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let at = |name: &str| below.path().join(name);
    fs::write(at("file"), "content").unwrap();
    let notes = Arc::new(Notes::default());
    let open = || {
        let lower = Arc::new(Noted(FolderTree::open(below.path()).unwrap(), Arc::clone(&notes)));
        OverlayTree::open(lower, written.path(), "test").unwrap()
    };
    let tree = open();
    let node = tree.lookup(Node::ROOT, b"file").unwrap().node;
    tree.edit().unwrap().change(node, &Change { mode: Some(0o600), ..Change::default() }).unwrap();
    tree.finish();
    drop(tree);
    // So it has a number of its own.
    fs::hard_link(at("file"), at("other")).unwrap();
    let tree = open();
    let node = tree.lookup(Node::ROOT, b"file").unwrap().node;
    lock(&notes.0).clear();
    assert_eq!(tree.open(node).unwrap().len(), 7);
    // The root, the name in it, and the file.
    assert_eq!(*lock(&notes.0), ["below"; 3]);
}

/// A commit removes contents, and then what is said of them. Where that fails, it is tried again later: whatever gets
/// their place meanwhile is not removed for it.
#[test]
fn what_is_still_to_be_removed_keeps_its_place() {
    let (tree, below, written) = over_folder();
    let place = written.path().join("file");
    let node = write(&tree, Node::ROOT, b"file", b"old");
    tree.forget(node, u64::MAX);
    let NodePlace::Own(id) = tree.0.place(node) else { unreachable!() };
    let sql = "DELETE FROM names; UPDATE nodes SET links = 0 WHERE id <> 1";
    tree.0.edit(|editing| editing.connection.execute_batch(sql).map_err(database::failed)).unwrap();
    fs::remove_file(&place).unwrap();
    // As a mount does that finds it so.
    lock(&tree.0.orphans).insert(id);
    tree.0.avoid_places().unwrap();
    write(&tree, Node::ROOT, b"file", b"new");
    assert!(!place.exists());
    tree.0.reap(&[id]);
    assert!(tree.0.row(id).unwrap().is_none());
    assert_eq!(read(&tree, Node::ROOT, b"file").unwrap(), b"new");
    tree.finish();
    drop(tree);
    let tree = OverlayTree::open(Arc::new(FolderTree::open(below.path()).unwrap()), written.path(), "test").unwrap();
    assert_eq!(read(&tree, Node::ROOT, b"file").unwrap(), b"new");
}

/// Who looks at an overlay finds what a mount would show, and changes nothing in it: not even what a mount would
/// remove.
#[test]
fn who_looks_changes_nothing() {
    let (tree, below, written) = over_folder();
    fs::write(below.path().join("below"), "below").unwrap();
    let gone = write(&tree, Node::ROOT, b"gone", b"gone");
    write(&tree, Node::ROOT, b"file", b"mine!");
    write(&tree, Node::ROOT, b"below", b"mine!");
    // It is open until the mount is killed.
    let open = tree.open(gone).unwrap();
    tree.edit().unwrap().remove(Node::ROOT, b"gone", false).unwrap();
    tree.0.sync().unwrap();
    let copied = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(written.path()).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_file() && !entry.path().ends_with(".tarnfs-overlay.sqlite-shm") {
            fs::copy(entry.path(), copied.path().join(entry.file_name())).unwrap();
        }
    }
    drop(open);
    let files = || -> BTreeMap<_, _> {
        let entries = fs::read_dir(copied.path()).unwrap().map(|entry| entry.unwrap().path());
        let kept = entries.filter(|path| !path.ends_with(".tarnfs-overlay.sqlite-shm"));
        kept.map(|path| (fs::read(&path).unwrap(), path)).map(|(bytes, path)| (path, bytes)).collect()
    };
    let before = files();
    let lower: Arc<dyn Tree> = Arc::new(FolderTree::open(below.path()).unwrap());
    let look = OverlayTree::look(Arc::clone(&lower), copied.path()).unwrap();
    assert_eq!(names(&look, Node::ROOT), [b"below".to_vec(), b"file".to_vec()]);
    for name in [b"file".as_slice(), b"below"] {
        assert_eq!(read(&look, Node::ROOT, name).unwrap(), b"mine!");
    }
    let folder = New { kind: Kind::Folder, mode: 0o755, umask: 0, uid: 0, gid: 0, target: Vec::new() };
    let refused = look.edit().unwrap().make(Node::ROOT, b"new", &folder);
    assert_eq!(refused.map_err(|error| error.errno()), Err(Errno::ROFS));
    // Nobody else uses it meanwhile, but who looks, too.
    let other = OverlayTree::open(Arc::clone(&lower), copied.path(), "test").map(drop).unwrap_err().to_string();
    assert!(other.contains("is in use by"), "{other}");
    drop(OverlayTree::look(Arc::clone(&lower), copied.path()).unwrap());
    drop(look);
    assert_eq!(files(), before);
    drop(OverlayTree::open(lower, copied.path(), "test").unwrap());
    assert!(!copied.path().join("gone").exists());
}

/// What cannot be removed is forgotten all the same: whatever gets its place is not removed for it.
#[test]
fn what_takes_the_place_of_a_removed_file_stays() {
    let (tree, below, written) = over_folder();
    let place = written.path().join("file");
    let node = write(&tree, Node::ROOT, b"file", b"old");
    fs::remove_file(&place).unwrap();
    fs::create_dir(&place).unwrap();
    tree.edit().unwrap().remove(Node::ROOT, b"file", false).unwrap();
    tree.forget(node, u64::MAX);
    tree.finish();
    fs::remove_dir(&place).unwrap();
    write(&tree, Node::ROOT, b"file", b"new");
    assert!(place.is_file());
    tree.finish();
    drop(tree);
    let tree = OverlayTree::open(Arc::new(FolderTree::open(below.path()).unwrap()), written.path(), "test").unwrap();
    assert_eq!(read(&tree, Node::ROOT, b"file").unwrap(), b"new");
}

#[test]
fn status_tells_of_a_file_whose_changed_name_was_removed() {
    let (tree, below, written) = over_folder();
    fs::write(below.path().join("a"), "one").unwrap();
    fs::hard_link(below.path().join("a"), below.path().join("b")).unwrap();
    let edit = tree.edit().unwrap();
    let node = tree.lookup(Node::ROOT, b"a").unwrap().node;
    edit.change(node, &Change { mode: Some(0o600), ..Change::default() }).unwrap();
    edit.remove(Node::ROOT, b"a", false).unwrap();
    let told = || {
        let mut all = Vec::new();
        let status = OverlayStatus::open(written.path()).unwrap();
        status
            .each(&mut |changed| {
                all.push((changed.change.letter(), changed.path, changed.content.is_some()));
                true
            })
            .unwrap();
        all
    };
    assert_eq!(told(), [('D', b"a".to_vec(), false), ('M', b"a".to_vec(), false)]);
    write(&tree, Node::ROOT, b"b", b"two");
    assert_eq!(told(), [('D', b"a".to_vec(), false), ('M', b"b".to_vec(), true)]);
}

/// > An archive that was changed or replaced since it was mounted with the overlay is only committed into if somebody
/// > says so.
#[test]
fn a_link_that_leads_to_another_archive_by_now_is_noticed() {
    let (tree, _below, _written) = over_folder();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["v1", "v2"] {
        fs::create_dir(at(name)).unwrap();
        fs::write(at(name).join("a.tar"), name).unwrap();
    }
    let link = |to: &str, name: &str| {
        let _ = fs::remove_file(at(name));
        std::os::unix::fs::symlink(to, at(name)).unwrap();
    };
    let of = |name: &str| MountedOver::of(&at(name)).unwrap();
    // Of the archive itself, and of the folder that it is in.
    for (name, path) in [("latest.tar", "latest.tar"), ("current", "current/a.tar")] {
        let to = |version: &str| if name == path { format!("{version}/a.tar") } else { version.to_owned() };
        link(&to("v1"), name);
        tree.note_mounted_over(Some(&of(path))).unwrap();
        let mounted = tree.mounted_over().unwrap().unwrap();
        assert_eq!(mounted, of(path));
        for same in [path, "v1/a.tar", "v1/../v1/a.tar"] {
            assert!(mounted.is_at_place_of(&of(same)) && mounted.is_as(&of(same)), "{same}");
        }
        link(&to("v2"), name);
        assert!(mounted.is_at_place_of(&of(path)) && !mounted.is_as(&of(path)), "{path}");
        assert!(!mounted.is_at_place_of(&of("v2/a.tar")), "{path}");
    }
    // Noted with one path.
    let value = |path: &str| format!("{:016x} 2 {:016x}", xxhash_rust::xxh3::xxh3_64(path.as_bytes()), 1);
    let real = at("v1/a.tar").canonicalize().unwrap();
    tree.0
        .edit_for_room(|editing| {
            let sql = "UPDATE overlay SET value = ? WHERE key = 'mounted'";
            assert_eq!(editing.connection.execute(sql, [value(real.to_str().unwrap())]).unwrap(), 1);
            Ok(())
        })
        .unwrap();
    assert!(tree.mounted_over().unwrap().unwrap().is_at_place_of(&of("v1/a.tar")));
}

/// Or the difference would have it as removed, and as renamed, too.
#[test]
fn a_written_file_that_has_replaced_another_one_has_a_name() {
    let (tree, below, written) = over_folder();
    for (name, further, target) in [("a", "c", "m"), ("z", "y", "b")] {
        fs::write(below.path().join(name), "below").unwrap();
        fs::hard_link(below.path().join(name), below.path().join(further)).unwrap();
        fs::write(below.path().join(target), "target").unwrap();
        write(&tree, Node::ROOT, name.as_bytes(), b"mine!");
        let (from, to) = ((Node::ROOT, name.as_bytes()), (Node::ROOT, target.as_bytes()));
        tree.edit().unwrap().rename(from, to, Renaming::Replaces).unwrap();
        let status = OverlayStatus::open(written.path()).unwrap();
        let has_name = |path: &str| status.has_name(path.as_bytes()).unwrap();
        assert_eq!([name, further, target].map(has_name), [true, false, false]);
    }
}
