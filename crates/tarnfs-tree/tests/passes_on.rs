//! Trees made of trees: what they do not change, they pass on. One tree answers each question so that no other answer
//! looks like it, and says what it was asked.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};

use tarnfs_index::{Recursion, Shape};
use tarnfs_source::{MemorySource, SharedSource};
use tarnfs_tree::open::{DecodingOptions, IndexOptions, IndexPlace, Options};
use tarnfs_tree::{
    Attributes, Base, Child, ControlTree, Error, FolderTree, HeldUp, Kind, Lazily, LazyTree, Lifetime, Node,
    Statistics, Subdirectory, Subvolumes, Time, Totals, Tree, UnionTree, Versions, Waiting, Work, Xattrs,
};

/// `sub`, a folder, with `file`, `link` and `old` in it; `old` was another file before.
#[derive(Default)]
struct Telling {
    is_busy: AtomicBool,
    /// Its word that it never changes.
    is_immutable: bool,
    asked: Mutex<Vec<(&'static str, u64, u64)>>,
}

const SUB: Node = Node(2);
const FILE: Node = Node(3);
const LINK: Node = Node(4);
const OLD: Node = Node(5);
const OLDER: Node = Node(6);
const NAMES: [(&[u8], Node); 3] = [(b"file", FILE), (b"link", LINK), (b"old", OLD)];

impl Telling {
    fn of(node: Node) -> Attributes {
        let time = |seconds| Time { seconds: seconds + node.0 as i64, nanoseconds: 7 };
        Attributes {
            node,
            kind: match node {
                Node::ROOT | SUB => Kind::Folder,
                LINK => Kind::Symlink,
                _ => Kind::File,
            },
            mode: 0o700 + node.0 as u32,
            uid: 1000 + node.0 as u32,
            gid: 2000 + node.0 as u32,
            links: 10 + node.0 as u32,
            size: 100 + node.0,
            blocks: 50 + node.0,
            mtime: time(3000),
            atime: time(4000),
            ctime: time(5000),
        }
    }

    fn asked(&self) -> Vec<(&'static str, u64, u64)> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    fn note(&self, what: &'static str, node: Node, number: u64) {
        self.asked.lock().unwrap().push((what, node.0, number));
    }
}

impl Tree for Telling {
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        match folder {
            Node::ROOT if name == b"sub" => Ok(Self::of(SUB)),
            SUB => NAMES.iter().find(|(own, _)| *own == name).map(|(_, node)| Self::of(*node)).ok_or(Error::NotFound),
            Node::ROOT => Err(Error::NotFound),
            _ => Err(Error::NotAFolder),
        }
    }

    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        let names: &[(&[u8], Node)] = match folder {
            Node::ROOT => &[(b"sub", SUB)],
            SUB => &NAMES,
            _ => return Err(Error::NotAFolder),
        };
        for ((name, node), next) in names.iter().zip(1..).skip(from as usize) {
            if !receive(Child { name, attributes: Self::of(*node), next }) {
                break;
            }
        }
        Ok(())
    }

    fn count(&self, folder: Node) -> Option<u64> {
        Some(match folder {
            Node::ROOT => 1,
            SUB => 3,
            _ => 0,
        })
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        Ok(Self::of(node))
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        if folder == SUB || folder == Node::ROOT { Ok(Node::ROOT) } else { Err(Error::NotAFolder) }
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>, Error> {
        if node == LINK { Ok(b"target".to_vec()) } else { Err(Error::WrongKind) }
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        Ok(vec![(b"user.number".to_vec(), vec![node.0 as u8])])
    }

    fn each_version(
        &self,
        folder: Node,
        name: &[u8],
        from: u64,
        receive: &mut dyn FnMut(Attributes) -> bool,
    ) -> Result<(), Error> {
        let older = if folder == SUB && name == b"old" { Some(Self::of(OLDER)) } else { None };
        match self.lookup(folder, name) {
            Ok(shown) => {
                older.into_iter().chain([shown]).skip(from as usize).all(receive);
                Ok(())
            }
            Err(Error::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn node_limit(&self) -> u64 {
        77
    }

    fn forget(&self, node: Node, times: u64) {
        self.note("forget", node, times);
    }

    fn close_folder(&self, folder: Node) {
        self.note("close", folder, 0);
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        Ok(Arc::new(MemorySource::new(vec![node.0 as u8; 100 + node.0 as usize], "content")))
    }

    fn path_of(&self, node: Node) -> Option<Vec<u8>> {
        Some(format!("path-{}", node.0).into_bytes())
    }

    fn owner_names(&self, node: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        Ok((format!("user-{}", node.0).into_bytes(), format!("group-{}", node.0).into_bytes()))
    }

    fn lifetime(&self, _: Node) -> Lifetime {
        Lifetime::unless(!self.is_immutable)
    }

    fn totals(&self) -> Totals {
        let is_immutable = self.is_immutable;
        Totals { nodes: 6, bytes: 999, has_xattrs: true, has_acls: false, is_immutable, is_unproven: true }
    }

    fn work(&self) -> Work {
        Work {
            decoding: Statistics { hits: 11, misses: 12, decoded_bytes: 15, prefetched: 13, resumes: 14, kept: 16 },
            memory: vec![("pieces", 17), ("decoders", 18)],
            memory_limit: 19,
        }
    }

    fn waiting(&self) -> Option<&dyn Waiting> {
        Some(self)
    }
}

impl Waiting for Telling {
    fn is_ready(&self, node: Node) -> bool {
        self.note("ready", node, 0);
        !self.is_busy.load(Ordering::SeqCst)
    }

    fn lane(&self, node: Node) -> u64 {
        1234 + node.0
    }

    fn held_up(&self, node: Node) -> Option<HeldUp> {
        Some(HeldUp { by: 4321 + node.0, steps: 5 })
    }

    fn wait_out(&self, node: Node) {
        self.note("wait", node, 0);
    }

    fn asked_for(&self, _: Node, name: &[u8]) -> Node {
        NAMES.iter().find(|(own, _)| *own == name).map_or(SUB, |(_, node)| *node)
    }
}

fn lazily() -> Lazily {
    let recursion = Recursion { extensions: vec!["tar".to_owned()], ..Recursion::default() };
    let shape = Shape { recursion: Some(recursion), ..Options::default().shape };
    let options = Options {
        shape,
        index: IndexOptions { place: IndexPlace::Memory, ..IndexOptions::default() },
        decoding: DecodingOptions { threads: 1, ..DecodingOptions::default() },
        ..Options::default()
    };
    Lazily { options, all: true, most_open: 2, mountpoint: None }
}

/// The name of a kind of tree, the folder in it that has the inner tree's root if that is not its own, and one of them.
type Made = (&'static str, Option<&'static [u8]>, Arc<dyn Tree>);

/// Each tree that is made of one other.
fn all(inner: &Arc<Telling>) -> Vec<Made> {
    let tree = || Arc::clone(inner) as Arc<dyn Tree>;
    let lines = sync_channel(1).0;
    vec![
        ("subdirectory", None, Arc::new(Subdirectory::new(tree(), b"").unwrap())),
        ("subvolumes", Some(b"volume"), Arc::new(Subvolumes::new([(b"volume".to_vec(), tree())]).unwrap())),
        ("union", None, Arc::new(UnionTree::new(vec![tree()]).unwrap())),
        ("versions", None, Arc::new(Versions::new(tree()))),
        ("control", None, Arc::new(ControlTree::new(tree(), lines).unwrap())),
        ("lazy", None, Arc::new(LazyTree::new(Base::Other(tree()), lazily()).unwrap())),
    ]
}

fn find(tree: &dyn Tree, start: Option<&[u8]>, path: &str) -> Attributes {
    let names = path.split('/').filter(|name| !name.is_empty()).map(str::as_bytes);
    let mut at = tree.attributes(Node::ROOT).unwrap();
    for name in start.into_iter().chain(names) {
        at = tree.lookup(at.node, name).unwrap();
    }
    at
}

#[test]
fn what_is_not_changed_is_what_the_tree_says() {
    let inner = Arc::new(Telling::default());
    for (what, start, tree) in all(&inner) {
        let tree = &*tree;
        // What a number stands for outside is another one; all else is the same.
        let same = |outer: &Attributes, node: Node| {
            assert_eq!(Attributes { node, ..outer.clone() }, Telling::of(node), "{what}");
            assert_eq!(&tree.attributes(outer.node).unwrap(), outer, "{what}");
            let (user, group) = tree.owner_names(outer.node).unwrap();
            assert_eq!((user, group), inner.owner_names(node).unwrap(), "{what}");
            assert_eq!(tree.path_of(outer.node), inner.path_of(node), "{what}");
            assert_eq!(tree.xattrs(outer.node).unwrap(), inner.xattrs(node).unwrap(), "{what}");
            assert!(outer.node.0 < tree.node_limit(), "{what}");
        };
        let sub = find(tree, start, "sub");
        same(&sub, SUB);
        let [file, link, old] = ["file", "link", "old"].map(|name| tree.lookup(sub.node, name.as_bytes()).unwrap());
        same(&file, FILE);
        same(&link, LINK);
        let root = start.map_or(Node::ROOT, |start| tree.lookup(Node::ROOT, start).unwrap().node);
        assert_eq!(tree.parent(sub.node).unwrap(), root, "{what}");
        assert_eq!(tree.parent(Node::ROOT).unwrap(), Node::ROOT, "{what}");
        assert!(matches!(tree.lookup(sub.node, b"none"), Err(Error::NotFound)), "{what}");
        assert!(matches!(tree.lookup(file.node, b"none"), Err(Error::NotAFolder)), "{what}");
        // Listed as it is, and from anywhere on.
        let list = |from: u64| {
            let mut listed = Vec::new();
            tree.read_dir(sub.node, from, &mut |child| {
                listed.push((child.name.to_vec(), child.attributes, child.next));
                true
            })
            .unwrap();
            listed
        };
        let listed = list(0);
        let found = listed.iter().map(|(name, attributes, _)| (name.as_slice(), attributes));
        assert!(found.eq([(&b"file"[..], &file), (b"link", &link), (b"old", &old)]), "{what}: {listed:?}");
        for (place, (_, _, next)) in listed.iter().enumerate() {
            assert_eq!(list(*next), listed[place + 1..], "{what}");
        }
        let mut names = Vec::new();
        tree.names(sub.node, &mut |name| names.push(name.to_vec())).unwrap();
        assert_eq!(names, NAMES.map(|(name, _)| name.to_vec()), "{what}");
        assert!(tree.has_name(sub.node, b"file").unwrap() && !tree.has_name(sub.node, b"none").unwrap(), "{what}");
        assert!(matches!(tree.count(sub.node), None | Some(3)), "{what}");
        // What is in files and links.
        let content = tree.open(file.node).unwrap();
        let mut bytes = vec![0; content.len() as usize];
        content.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [3; 103], "{what}");
        assert_eq!(tree.read_link(link.node).unwrap(), b"target", "{what}");
        assert!(matches!(tree.read_link(file.node), Err(Error::WrongKind)), "{what}");
        let versions = tree.versions(sub.node, b"old").unwrap();
        assert_eq!(versions.len(), 2, "{what}");
        same(&versions[0], OLDER);
        assert_eq!(versions[1], old, "{what}");
        for from in 0..4 {
            let mut behind = Vec::new();
            let mut receive = |version| {
                behind.push(version);
                true
            };
            tree.each_version(sub.node, b"old", from, &mut receive).unwrap();
            assert!(behind.iter().eq(versions.iter().skip(from as usize)), "{what}, behind {from}: {behind:?}");
        }
        assert!(tree.versions(sub.node, b"none").unwrap().is_empty(), "{what}");
        // In a union, a file that was a folder a moment ago has nothing to add.
        assert!(tree.versions(file.node, b"none").map_or(true, |none| what == "union" && none.is_empty()), "{what}");
    }
}

#[test]
fn what_is_forgotten_or_closed_is_so_within() {
    let inner = Arc::new(Telling::default());
    for (what, start, tree) in all(&inner) {
        let sub = find(&*tree, start, "sub");
        let file = find(&*tree, start, "sub/file");
        inner.asked();
        tree.forget(file.node, 3);
        assert_eq!(inner.asked(), [("forget", FILE.0, 3)], "{what}");
        tree.close_folder(sub.node);
        assert_eq!(inner.asked(), [("close", SUB.0, 0)], "{what}");
    }
}

#[test]
fn who_has_to_wait_is_told_by_the_tree_that_is_asked() {
    let inner = Arc::new(Telling::default());
    for (what, start, tree) in all(&inner) {
        let file = find(&*tree, start, "sub/file").node;
        let sub = find(&*tree, start, "sub").node;
        inner.asked();
        if what == "lazy" {
            // Whether it is an archive is not known without decoding.
            assert!(!tree.is_ready(file));
        } else {
            assert!(tree.is_ready(file), "{what}");
            assert_eq!(inner.asked(), [("ready", FILE.0, 0)], "{what}");
            inner.is_busy.store(true, Ordering::SeqCst);
            assert!(!tree.is_ready(file), "{what}");
            inner.is_busy.store(false, Ordering::SeqCst);
        }
        assert_eq!(tree.lane(file), 1234 + FILE.0, "{what}");
        inner.asked();
        assert_eq!(tree.held_up(file), Some(HeldUp { by: 4321 + FILE.0, steps: 5 }), "{what}");
        // The watchdog asks. It must not wait, and whether others have to may have to be read.
        assert_eq!(inner.asked(), [], "{what}");
        if what == "versions" {
            let view = find(&*tree, start, "sub/old.versions").node;
            inner.asked();
            assert!(tree.held_up(view).is_some());
            assert_eq!(inner.asked(), []);
        }
        tree.wait_out(file);
        assert!(inner.asked().contains(&("wait", FILE.0, 0)), "{what}");
        let expected = if what == "lazy" { sub } else { file };
        assert_eq!(tree.asked_for(sub, b"file"), expected, "{what}");
    }
}

#[test]
fn totals_and_work_are_those_of_all() {
    let inner = Arc::new(Telling::default());
    for (what, _, tree) in all(&inner) {
        let may_have_more = matches!(what, "control" | "lazy");
        let expected = Totals {
            nodes: 6 + u64::from(what == "subvolumes"),
            bytes: 999,
            has_xattrs: true,
            // What is opened or added later may have them.
            has_acls: may_have_more,
            is_immutable: false,
            is_unproven: true,
        };
        assert_eq!(tree.totals(), expected, "{what}");
        let mut work = tree.work();
        work.memory.retain(|(name, _)| *name != "listings");
        assert_eq!(work, inner.work(), "{what}");
        assert_eq!(tree.edit().is_some(), what == "control");
    }
    for (what, start, tree) in all(&inner) {
        let file = find(&*tree, start, "sub/file").node;
        assert_eq!((tree.lifetime(Node::ROOT), tree.lifetime(file)), (Lifetime::Short, Lifetime::Short), "{what}");
    }
    let forever = Arc::new(Telling { is_immutable: true, ..Telling::default() });
    for (what, _, tree) in all(&forever) {
        assert_eq!(tree.totals().is_immutable, !matches!(what, "control" | "lazy"), "{what}");
    }
    for (what, start, tree) in all(&forever) {
        let root = find(&*tree, start, "").node;
        let file = find(&*tree, start, "sub/file").node;
        // An archive that is opened later may turn out to be none.
        let expected = if what == "lazy" { Lifetime::Short } else { Lifetime::Forever };
        assert_eq!((tree.lifetime(root), tree.lifetime(file)), (expected, expected), "{what}");
        // A tree can be added to what does not change itself.
        let expected = if what == "control" { Lifetime::None } else { expected };
        assert_eq!(tree.lifetime_of_gaps(root), expected, "{what}");
    }
    // Of two together: what was done is added up, and memory that they share is not.
    let two: [Arc<dyn Tree>; 2] = [inner, forever];
    for tree in [
        Arc::new(UnionTree::new(two.to_vec()).unwrap()) as Arc<dyn Tree>,
        Arc::new(Subvolumes::new([b"a", b"b"].map(|name| name.to_vec()).into_iter().zip(two.clone())).unwrap()),
    ] {
        let (totals, mut work) = (tree.totals(), tree.work());
        assert!(matches!(totals.nodes, 12 | 13));
        assert_eq!((totals.bytes, totals.has_xattrs, totals.has_acls, totals.is_immutable), (1998, true, false, false));
        work.memory.retain(|(name, _)| *name != "listings");
        let expected = Work {
            decoding: Statistics { hits: 22, misses: 24, decoded_bytes: 30, prefetched: 26, resumes: 28, kept: 32 },
            memory: vec![("pieces", 17), ("decoders", 18)],
            memory_limit: 19,
        };
        assert_eq!(work, expected);
    }
}

#[test]
fn a_folder_of_a_computer_shows_it_as_it_is() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    std::fs::create_dir(path("sub")).unwrap();
    std::fs::write(path("sub/file"), vec![5; 70_000]).unwrap();
    std::fs::set_permissions(path("sub/file"), std::fs::Permissions::from_mode(0o640)).unwrap();
    symlink("file", path("sub/link")).unwrap();
    let has_xattrs =
        rustix::fs::setxattr(path("sub/file"), "user.a", b"value", rustix::fs::XattrFlags::empty()).is_ok();
    let tree = FolderTree::open(place.path()).unwrap();
    let sub = tree.lookup(Node::ROOT, b"sub").unwrap();
    let [file, link] = [b"file", b"link"].map(|name| tree.lookup(sub.node, name).unwrap());
    for (found, name) in [(&sub, "sub"), (&file, "sub/file"), (&link, "sub/link")] {
        let expected = std::fs::symlink_metadata(path(name)).unwrap();
        assert_eq!((found.mode, found.uid, found.gid), (expected.mode() & 0o7777, expected.uid(), expected.gid()));
        assert_eq!(
            (u64::from(found.links), found.size, found.blocks),
            (expected.nlink(), expected.size(), expected.blocks())
        );
        let seconds = [found.mtime, found.atime, found.ctime].map(|time| (time.seconds, i64::from(time.nanoseconds)));
        let of = |seconds, part| (seconds, part);
        assert_eq!(seconds[0], of(expected.mtime(), expected.mtime_nsec()), "{name}");
        assert_eq!(seconds[2], of(expected.ctime(), expected.ctime_nsec()), "{name}");
        assert_eq!(tree.attributes(found.node).unwrap().kind, found.kind);
    }
    assert_eq!((sub.kind, file.kind, link.kind), (Kind::Folder, Kind::File, Kind::Symlink));
    assert_eq!(tree.parent(sub.node).unwrap(), Node::ROOT);
    assert_eq!(tree.read_link(link.node).unwrap(), b"file");
    assert_eq!(tree.open(file.node).unwrap().len(), 70_000);
    if has_xattrs {
        assert_eq!(tree.xattrs(file.node).unwrap(), [(b"user.a".to_vec(), b"value".to_vec())]);
    }
    assert_eq!(tree.xattrs(link.node).unwrap(), []);
    let totals = tree.totals();
    assert!(totals.has_xattrs && !totals.is_immutable);
    // A name is never looked for through a symbolic link.
    symlink("sub", path("way")).unwrap();
    let way = tree.lookup(Node::ROOT, b"way").unwrap();
    assert!(tree.lookup(way.node, b"file").is_err());
    // What somebody still holds keeps its number; what all have forgotten need not.
    tree.forget(file.node, 1);
    let again = tree.lookup(sub.node, b"file").unwrap();
    assert_eq!(tree.attributes(again.node).unwrap().size, 70_000);
}
