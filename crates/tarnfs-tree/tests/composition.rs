//! Trees made of trees, beside a model: folders as maps, put together by rules that fit on a page.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tarnfs_source::{MemorySource, SharedSource};
use tarnfs_tree::{
    Attributes, Child, Composition, Error, Kind, Lifetime, Memory, Node, Subdirectory, Subvolumes, Time, Totals, Tree,
    UnionTree, Versions, Xattrs, compose,
};

/// What has a name. A file and a link have their earlier versions, too: `None` for one that was a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    File { older: Vec<Option<Vec<u8>>>, content: Vec<u8> },
    Link(Vec<u8>),
    Folder(Folder),
}

type Folder = BTreeMap<Vec<u8>, Item>;

/// Any sequence of numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }

    fn name(&mut self) -> Vec<u8> {
        match self.below(12) {
            0 => vec![0xff, b'a' + self.below(3) as u8],
            1 => b"a.versions".to_vec(),
            2 => vec![b'x'; 200 + self.below(3) as usize],
            _ => vec![b'a' + self.below(5) as u8],
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        (0..self.below(6)).map(|_| self.below(256) as u8).collect()
    }

    fn folder(&mut self, depth: u64) -> Folder {
        let mut folder = Folder::new();
        for _ in 0..self.below(7) {
            let item = match self.below(8) {
                0 => Item::Link(self.bytes()),
                1..4 => {
                    let older = (0..self.below(4)).map(|_| (self.below(4) > 0).then(|| self.bytes())).collect();
                    Item::File { older, content: self.bytes() }
                }
                _ if depth == 0 => Item::File { older: Vec::new(), content: self.bytes() },
                _ => Item::Folder(self.folder(depth - 1)),
            };
            folder.insert(self.name(), item);
        }
        folder
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end as u64 + 1) as usize);
        }
    }
}

/// What shows of folders of one path, the rightmost first.
fn union(folders: &[&Folder]) -> Folder {
    let mut shown = Folder::new();
    for name in folders.iter().flat_map(|folder| folder.keys()) {
        let items: Vec<&Item> = folders.iter().filter_map(|folder| folder.get(name)).collect();
        let inner: Vec<&Folder> =
            items.iter().map_while(|item| if let Item::Folder(folder) = item { Some(folder) } else { None }).collect();
        let item = if inner.is_empty() { items[0].clone() } else { Item::Folder(union(&inner)) };
        shown.insert(name.clone(), item);
    }
    shown
}

/// One version: content, or the folders that are one over the other in it, the rightmost first.
#[derive(Debug, Clone)]
enum Version {
    File(Vec<u8>),
    Folder(Vec<Folder>),
}

/// The versions of `name` in folders of one path, the rightmost first: oldest first.
fn versions(folders: &[&Folder], name: &[u8]) -> Vec<Version> {
    let mut all = Vec::new();
    for item in folders.iter().rev().filter_map(|folder| folder.get(name)) {
        match item {
            Item::File { older, content } => {
                let empty = || Version::Folder(vec![Folder::new()]);
                all.extend(older.iter().map(|older| older.clone().map_or_else(empty, Version::File)));
                all.push(Version::File(content.clone()));
            }
            Item::Link(target) => all.push(Version::File(target.clone())),
            Item::Folder(folder) => all.push(Version::Folder(vec![folder.clone()])),
        }
    }
    // What shows is the last one.
    if let Some(Version::Folder(last)) = all.last_mut() {
        let items = folders.iter().filter_map(|folder| folder.get(name));
        let inner = items.map_while(|item| if let Item::Folder(folder) = item { Some(folder.clone()) } else { None });
        *last = inner.collect();
    }
    all
}

/// A tree of which everything is known.
struct Known {
    nodes: Mutex<Vec<Entry>>,
    /// How often each was given out, less how often it was forgotten.
    held: Mutex<BTreeMap<Node, i64>>,
    is_immutable: bool,
}

#[derive(Clone)]
struct Entry {
    kind: Kind,
    content: Vec<u8>,
    parent: Node,
    /// In the order in which they are listed.
    children: Vec<(Vec<u8>, Node)>,
    older: BTreeMap<Vec<u8>, Vec<Node>>,
}

impl Known {
    fn new(folder: &Folder, random: &mut Random, is_immutable: bool) -> Arc<Self> {
        let nodes = Mutex::new(vec![Self::entry(Kind::Folder, b"", Node::ROOT)]);
        let this = Self { nodes, held: Mutex::default(), is_immutable };
        this.fill(Node::ROOT, folder, random);
        Arc::new(this)
    }

    fn entry(kind: Kind, content: &[u8], parent: Node) -> Entry {
        Entry { kind, content: content.to_vec(), parent, children: Vec::new(), older: BTreeMap::new() }
    }

    fn add(&self, entry: Entry) -> Node {
        let mut nodes = self.nodes.lock().unwrap();
        nodes.push(entry);
        Node(nodes.len() as u64)
    }

    fn fill(&self, folder: Node, items: &Folder, random: &mut Random) {
        for (name, item) in items {
            let node = match item {
                Item::File { older, content } => {
                    let node = self.add(Self::entry(Kind::File, content, folder));
                    let older = older.iter().map(|older| match older {
                        Some(content) => self.add(Self::entry(Kind::File, content, folder)),
                        None => self.add(Self::entry(Kind::Folder, b"", folder)),
                    });
                    let older = older.collect();
                    self.nodes.lock().unwrap()[folder.0 as usize - 1].older.insert(name.clone(), older);
                    node
                }
                Item::Link(target) => self.add(Self::entry(Kind::Symlink, target, folder)),
                Item::Folder(inner) => {
                    let node = self.add(Self::entry(Kind::Folder, b"", folder));
                    self.fill(node, inner, random);
                    node
                }
            };
            self.nodes.lock().unwrap()[folder.0 as usize - 1].children.push((name.clone(), node));
        }
        random.shuffle(&mut self.nodes.lock().unwrap()[folder.0 as usize - 1].children);
    }

    fn hold(&self, node: Node, times: i64) {
        *self.held.lock().unwrap().entry(node).or_default() += times;
    }

    fn get(&self, node: Node) -> Result<Entry, Error> {
        let nodes = self.nodes.lock().unwrap();
        nodes.get((node.0 as usize).wrapping_sub(1)).cloned().ok_or(Error::NotFound)
    }

    fn folder(&self, node: Node) -> Result<Entry, Error> {
        Some(self.get(node)?).filter(|entry| entry.kind == Kind::Folder).ok_or(Error::NotAFolder)
    }
}

/// Positions are not places: nobody may count with them.
const STEP: u64 = 5;

impl Tree for Known {
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        let entry = self.folder(folder)?;
        let child = entry.children.iter().find(|(own, _)| own == name).ok_or(Error::NotFound)?;
        self.hold(child.1, 1);
        self.attributes(child.1)
    }

    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        let entry = self.folder(folder)?;
        for (place, (name, node)) in entry.children.iter().enumerate().skip((from / STEP) as usize) {
            let next = (place as u64 + 1) * STEP;
            self.hold(*node, 1);
            if !receive(Child { name, attributes: self.attributes(*node)?, next }) {
                self.hold(*node, -1);
                break;
            }
        }
        Ok(())
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        let entry = self.get(node)?;
        let time = Time { seconds: node.0 as i64, nanoseconds: 0 };
        Ok(Attributes {
            node,
            kind: entry.kind,
            mode: 0o750,
            uid: 1,
            gid: 2,
            links: 3,
            size: entry.content.len() as u64,
            blocks: 1,
            mtime: time,
            atime: time,
            ctime: time,
        })
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        Ok(self.folder(folder)?.parent)
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>, Error> {
        let entry = self.get(node)?;
        if entry.kind == Kind::Symlink { Ok(entry.content) } else { Err(Error::WrongKind) }
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        Ok(vec![(b"user.content".to_vec(), self.get(node)?.content)])
    }

    fn each_version(
        &self,
        folder: Node,
        name: &[u8],
        from: u64,
        receive: &mut dyn FnMut(Attributes) -> bool,
    ) -> Result<(), Error> {
        let entry = self.folder(folder)?;
        let older = entry.older.get(name).into_iter().flatten().copied();
        let shown = entry.children.iter().find(|(own, _)| own == name).map(|(_, node)| *node);
        let given = |node| {
            self.hold(node, 1);
            self.attributes(node)
        };
        for node in older.chain(shown).skip(from as usize) {
            if !receive(given(node)?) {
                break;
            }
        }
        Ok(())
    }

    fn node_limit(&self) -> u64 {
        1 << 20
    }

    fn forget(&self, node: Node, times: u64) {
        self.hold(node, -(times as i64));
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        let entry = self.get(node)?;
        match entry.kind {
            Kind::File => Ok(Arc::new(MemorySource::new(entry.content, "known"))),
            Kind::Folder => Err(Error::IsAFolder),
            _ => Err(Error::WrongKind),
        }
    }

    fn owner_names(&self, _: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        Ok((b"user".to_vec(), b"group".to_vec()))
    }

    fn lifetime(&self, _: Node) -> Lifetime {
        Lifetime::unless(!self.is_immutable)
    }

    fn totals(&self) -> Totals {
        let is_immutable = self.is_immutable;
        Totals { nodes: 1, bytes: 2, has_xattrs: true, is_immutable, ..Totals::default() }
    }
}

fn content(tree: &dyn Tree, attributes: &Attributes) -> Vec<u8> {
    if attributes.kind == Kind::Symlink {
        return tree.read_link(attributes.node).unwrap();
    }
    let source = tree.open(attributes.node).unwrap();
    let mut bytes = vec![0; source.len() as usize];
    source.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn list(tree: &dyn Tree, folder: Node, from: u64) -> Vec<(Vec<u8>, Attributes, u64)> {
    let mut listed = Vec::new();
    let receive = &mut |child: Child<'_>| {
        listed.push((child.name.to_vec(), child.attributes, child.next));
        true
    };
    tree.read_dir(folder, from, receive).unwrap();
    listed
}

/// That `tree` shows below `folder` what the model has, whichever way it is asked. Of the model, links and files have
/// no versions.
#[track_caller]
fn assert_shows(tree: &dyn Tree, folder: Node, model: &Folder, what: &str) {
    let listed = list(tree, folder, 0);
    let mut names: Vec<&Vec<u8>> = listed.iter().map(|(name, ..)| name).collect();
    names.sort();
    assert_eq!(names, model.keys().collect::<Vec<_>>(), "{what}: names");
    // From every position on, what follows is the same.
    for (place, (_, _, next)) in listed.iter().enumerate() {
        assert_eq!(list(tree, folder, *next), listed[place + 1..], "{what}: from {next}");
    }
    for (name, attributes, _) in &listed {
        assert_eq!(tree.lookup(folder, name).unwrap(), *attributes, "{what}: {name:?}");
        assert_eq!(tree.attributes(attributes.node).unwrap(), *attributes, "{what}: {name:?}");
        assert!(attributes.node.0 < tree.node_limit(), "{what}: {name:?}");
        match &model[name] {
            Item::Folder(inner) => {
                assert_eq!(attributes.kind, Kind::Folder, "{what}: {name:?}");
                assert_eq!(tree.parent(attributes.node).unwrap(), folder, "{what}: {name:?}");
                assert_shows(tree, attributes.node, inner, what);
            }
            Item::File { content: bytes, .. } | Item::Link(bytes) => {
                assert_eq!(content(tree, attributes), *bytes, "{what}: {name:?}");
                let xattrs = tree.xattrs(attributes.node).unwrap();
                assert_eq!(xattrs, [(b"user.content".to_vec(), bytes.clone())], "{what}: {name:?}");
            }
        }
    }
    for name in [&b"not there"[..], b"", b"a.version"] {
        assert!(matches!(tree.lookup(folder, name), Err(Error::NotFound)), "{what}: {name:?}");
    }
}

/// Snapshots for all; none at all and a filter in which names collide; none at all and one in which they do not;
/// nothing kept.
const MEMORIES: [Memory; 4] = [
    Memory { kept: 1 << 20, snapshot: 1 << 20, filter: 8 },
    Memory { kept: 1 << 20, snapshot: 0, filter: 8 },
    Memory { kept: 1 << 20, snapshot: 0, filter: 1 << 12 },
    Memory { kept: 0, snapshot: 600, filter: 64 },
];

fn seeds() -> std::ops::Range<u64> {
    0..if std::env::var_os("TARNFS_FULL").is_some() { 20_000 } else { 400 }
}

#[test]
fn any_union_shows_what_the_model_does() {
    for seed in seeds() {
        let mut random = Random::new(seed);
        let folders: Vec<Folder> = (0..=random.below(5)).map(|_| random.folder(3)).collect();
        let model = union(&folders.iter().rev().collect::<Vec<_>>());
        for (number, memory) in MEMORIES.into_iter().enumerate() {
            let can_change = seed % 3;
            let source = |folder: &Folder| {
                let is_immutable = can_change == 0 || can_change == 1 && random.below(2) == 0;
                Known::new(folder, &mut random, is_immutable) as Arc<dyn Tree>
            };
            let sources: Vec<_> = folders.iter().map(source).collect();
            let tree = UnionTree::with_memory(sources, memory).unwrap();
            let what = format!("seed {seed}, memory {number}");
            // Asked before anything is listed, and after.
            for name in model.keys() {
                tree.lookup(Node::ROOT, name).unwrap();
            }
            assert_shows(&tree, Node::ROOT, &model, &what);
            assert_shows(&tree, Node::ROOT, &model, &what);
            assert_eq!(tree.totals().nodes, folders.len() as u64);
        }
    }
}

/// Below `folder`, versions are what the model says of `parts`, the rightmost first.
#[track_caller]
fn assert_versions(tree: &dyn Tree, folder: Node, parts: &[&Folder], what: &str) {
    let shown = union(parts);
    for name in shown.keys() {
        let expected = versions(parts, name);
        let in_folder = [name.as_slice(), b".versions"].concat();
        if shown.contains_key(&in_folder) {
            // What has that name really, shows.
        } else {
            let versions = tree.lookup(folder, &in_folder).unwrap();
            assert_eq!((versions.kind, versions.mode, versions.links), (Kind::Folder, 0o550, 2), "{what}: {name:?}");
            assert_eq!(tree.parent(versions.node).unwrap(), folder);
            assert_eq!(tree.attributes(versions.node).unwrap(), versions);
            let listed = list(tree, versions.node, 0);
            let expected_names: Vec<_> = (1..=expected.len()).map(|number| number.to_string()).collect();
            let names: Vec<_> = listed.iter().map(|(name, ..)| String::from_utf8(name.clone()).unwrap()).collect();
            assert_eq!(names, expected_names, "{what}: {name:?}");
            for (place, ((name, attributes, next), version)) in listed.iter().zip(&expected).enumerate() {
                assert_eq!(tree.lookup(versions.node, name).unwrap(), *attributes);
                assert_eq!(tree.attributes(attributes.node).unwrap(), *attributes);
                assert_eq!(list(tree, versions.node, *next), listed[place + 1..]);
                match version {
                    Version::File(bytes) => assert_eq!(content(tree, attributes), *bytes, "{what}: {name:?}"),
                    Version::Folder(parts) => {
                        let parts: Vec<&Folder> = parts.iter().collect();
                        assert_eq!(tree.parent(attributes.node).unwrap(), versions.node, "{what}: {name:?}");
                        assert_shows(tree, attributes.node, &union(&parts), what);
                        assert_versions(tree, attributes.node, &parts, what);
                    }
                }
            }
            let beyond = (expected.len() + 1).to_string();
            for none in ["0", "01", "+1", "-1", "1 ", "x", "", "18446744073709551616", &beyond] {
                assert!(matches!(tree.lookup(versions.node, none.as_bytes()), Err(Error::NotFound)), "{none}");
            }
        }
        if let Item::Folder(_) = &shown[name] {
            let items = parts.iter().filter_map(|part| part.get(name));
            let inner: Vec<_> =
                items.map_while(|item| if let Item::Folder(folder) = item { Some(folder) } else { None }).collect();
            assert_versions(tree, tree.lookup(folder, name).unwrap().node, &inner, what);
        }
    }
    assert!(matches!(tree.lookup(folder, b".versions"), Err(Error::NotFound)));
    assert!(matches!(tree.lookup(folder, b"none.versions"), Err(Error::NotFound)));
}

#[test]
fn versions_are_those_of_all_sources_from_left_to_right() {
    for seed in seeds() {
        let mut random = Random::new(seed);
        let folders: Vec<Folder> = (0..=random.below(4)).map(|_| random.folder(3)).collect();
        let sources = folders.iter().map(|folder| (b"name".to_vec(), Known::new(folder, &mut random, true) as _));
        let tree = compose(sources.collect(), &Composition::default()).unwrap();
        let parts: Vec<&Folder> = folders.iter().rev().collect();
        let what = format!("seed {seed}");
        assert_shows(&*tree, Node::ROOT, &union(&parts), &what);
        assert_versions(&*tree, Node::ROOT, &parts, &what);
    }
}

#[test]
fn without_a_union_each_source_has_a_folder() {
    let mut random = Random::new(7);
    let folders: Vec<Folder> = (0..5).map(|_| random.folder(2)).collect();
    let names = ["a", "b", "a", "a.1", "a"];
    let trees = names.iter().zip(&folders).map(|(name, folder)| {
        (name.as_bytes().to_vec(), Known::new(folder, &mut Random::new(1), true) as Arc<dyn Tree>)
    });
    let tree = Subvolumes::new(trees).unwrap();
    let shown = ["a", "b", "a.1", "a.1.1", "a.2"].iter().zip(&folders);
    let model = shown.map(|(name, folder)| (name.as_bytes().to_vec(), Item::Folder(folder.clone()))).collect();
    assert_shows(&tree, Node::ROOT, &model, "subvolumes");
    assert_eq!(tree.attributes(Node::ROOT).unwrap().links, 7);
    assert_eq!(tree.versions(Node::ROOT, b"a").unwrap().len(), 1);
    assert_eq!(tree.versions(Node::ROOT, b"c").unwrap().len(), 0);
}

#[test]
fn a_folder_of_a_tree_is_a_tree() {
    let mut tried = 0;
    for seed in 0..50 {
        let mut random = Random::new(seed);
        let folders: Vec<Folder> = (0..3).map(|_| random.folder(3)).collect();
        let model = union(&folders.iter().rev().collect::<Vec<_>>());
        for is_immutable in [true, false] {
            let known = folders.iter().map(|folder| Known::new(folder, &mut random, is_immutable) as _);
            let whole: Arc<dyn Tree> = Arc::new(UnionTree::new(known.collect()).unwrap());
            for (name, item) in &model {
                let inner = match item {
                    Item::Folder(inner) => inner,
                    Item::File { .. } => {
                        let refused = Subdirectory::new(Arc::clone(&whole), name);
                        assert!(matches!(refused, Err(Error::NotAFolder)), "{name:?}");
                        continue;
                    }
                    Item::Link(_) => continue,
                };
                let below = Subdirectory::new(Arc::clone(&whole), &[b"/", name.as_slice(), b"/"].concat()).unwrap();
                assert_shows(&below, Node::ROOT, inner, &format!("seed {seed}"));
                assert_eq!(below.parent(Node::ROOT).unwrap(), Node::ROOT);
                tried += 1;
            }
        }
    }
    assert!(tried > 50, "{tried}");
}

/// Asks for all below `folder`, in every way, and forgets it as the kernel does.
fn visit(tree: &dyn Tree, folder: Node, random: &mut Random) {
    let mut all = list(tree, folder, 0);
    if let Some(next) = all.get(random.below(8) as usize).map(|(_, _, next)| *next) {
        all.extend(list(tree, folder, next));
        // What is refused does not count.
        tree.read_dir(folder, next, &mut |_| false).unwrap();
        tree.read_dir(folder, 0, &mut |_| false).unwrap();
    }
    let _ = tree.attributes(folder).unwrap();
    for (name, attributes, _) in &all {
        assert_eq!(tree.lookup(folder, name).unwrap().node, attributes.node);
        if attributes.kind == Kind::Folder {
            visit(tree, attributes.node, random);
        }
        let versions = [name.as_slice(), b".versions"].concat();
        if let Ok(found) = tree.lookup(folder, &versions) {
            if found.kind == Kind::Folder {
                visit(tree, found.node, random);
            }
            tree.forget(found.node, 1);
        }
        tree.forget(attributes.node, 2);
    }
}

/// What was looked up and listed in trees made of trees is forgotten in each of them just as often.
#[test]
fn what_is_forgotten_is_forgotten_everywhere() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let folders: Vec<Folder> = (0..=random.below(4)).map(|_| random.folder(3)).collect();
        let known: Vec<_> = folders.iter().map(|folder| Known::new(folder, &mut random, false)).collect();
        let named = known.iter().map(|known| (b"name".to_vec(), Arc::clone(known) as Arc<dyn Tree>)).collect();
        let how = Composition { union: seed % 4 != 0, ..Composition::default() };
        let tree = compose(named, &how).unwrap();
        visit(&*tree, Node::ROOT, &mut random);
        visit(&*tree, Node::ROOT, &mut random);
        for (number, known) in known.iter().enumerate() {
            let held = known.held.lock().unwrap();
            let left: Vec<_> = held.iter().filter(|(node, count)| **node != Node::ROOT && **count != 0).collect();
            assert!(left.is_empty(), "seed {seed}, source {number}: {left:?}");
        }
    }
}

#[test]
fn a_prefix_that_is_not_there_is_an_error_that_says_so() {
    let source = || vec![(Vec::new(), Known::new(&Folder::new(), &mut Random::new(1), true) as Arc<dyn Tree>)];
    let how = Composition { prefix: Some(b"not/there".to_vec()), ..Composition::default() };
    let Err(error) = compose(source(), &how) else { panic!("it is not there") };
    assert_eq!(error.to_string(), "the prefix not/there: no such file or folder");
}

/// What comes and goes under a union shows at once where somebody begins to list, and moves nothing under those who go
/// on.
#[test]
fn a_union_of_what_changes_shows_what_is_there() {
    let file = |name: &str| (name.as_bytes().to_vec(), Item::File { older: Vec::new(), content: name.into() });
    let left: Folder = (0..100).map(|number| file(&format!("left {number}"))).collect();
    let right: Folder = (0..100).map(|number| file(&format!("right {number}"))).collect();
    let left = Known::new(&left, &mut Random::new(1), true);
    let right = Known::new(&right, &mut Random::new(2), false);
    let tree = UnionTree::new(vec![left, Arc::clone(&right) as _]).unwrap();
    let before = list(&tree, Node::ROOT, 0);
    assert_eq!(before.len(), 200);
    let removed = right.nodes.lock().unwrap()[0].children.split_off(50);
    for number in 0..50 {
        let node = right.add(Known::entry(Kind::File, b"new", Node::ROOT));
        right.nodes.lock().unwrap()[0].children.push((format!("new {number}").into_bytes(), node));
    }
    let after = list(&tree, Node::ROOT, 0);
    assert_eq!(after.len(), 200);
    for (name, _) in &removed {
        assert!(matches!(tree.lookup(Node::ROOT, name), Err(Error::NotFound)));
    }
    // Positions mean the same as before: behind each that was there then is what is there now, less nothing that
    // stayed.
    let stayed = |(name, ..): &&(Vec<u8>, Attributes, u64)| before.iter().any(|(other, ..)| other == name);
    for (place, (name, _, next)) in before.iter().enumerate() {
        let rest: Vec<_> =
            list(&tree, Node::ROOT, *next).iter().filter(stayed).map(|(name, ..)| name.clone()).collect();
        let gone = |name: &Vec<u8>| removed.iter().any(|(other, _)| other == name);
        let expected: Vec<_> =
            before[place + 1..].iter().map(|(name, ..)| name.clone()).filter(|name| !gone(name)).collect();
        assert_eq!(rest, expected, "behind {name:?}");
    }
}

/// A source that fails is no source that has nothing: what it would have hidden must not show.
#[test]
fn a_source_that_fails_hides_nothing_behind_an_empty_answer() {
    struct Failing(Arc<dyn Tree>);
    fn failed<T>() -> Result<T, Error> {
        Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "damaged").into())
    }
    impl Tree for Failing {
        fn lookup(&self, _: Node, _: &[u8]) -> Result<Attributes, Error> {
            failed()
        }
        fn read_dir(&self, _: Node, _: u64, _: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
            failed()
        }
        fn attributes(&self, node: Node) -> Result<Attributes, Error> {
            self.0.attributes(node)
        }
        fn parent(&self, _: Node) -> Result<Node, Error> {
            failed()
        }
        fn read_link(&self, _: Node) -> Result<Vec<u8>, Error> {
            failed()
        }
        fn xattrs(&self, _: Node) -> Result<Xattrs, Error> {
            failed()
        }
        fn node_limit(&self) -> u64 {
            self.0.node_limit()
        }
        fn open(&self, _: Node) -> Result<SharedSource, Error> {
            failed()
        }
        fn owner_names(&self, _: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
            failed()
        }
        fn lifetime(&self, node: Node) -> Lifetime {
            self.0.lifetime(node)
        }
        fn totals(&self) -> Totals {
            self.0.totals()
        }
    }
    let content: Folder = [(b"file".to_vec(), Item::Link(b"target".to_vec()))].into();
    let known = || Known::new(&content, &mut Random::new(1), true) as Arc<dyn Tree>;
    let broken = || Arc::new(Failing(known())) as Arc<dyn Tree>;
    for memory in MEMORIES {
        let hidden = UnionTree::with_memory(vec![known(), broken()], memory).unwrap();
        assert!(matches!(hidden.lookup(Node::ROOT, b"file"), Err(Error::Io(_))));
        assert!(matches!(hidden.read_dir(Node::ROOT, 0, &mut |_| true), Err(Error::Io(_))));
        let over = UnionTree::with_memory(vec![broken(), known()], memory).unwrap();
        assert_eq!(over.lookup(Node::ROOT, b"file").unwrap().kind, Kind::Symlink);
        assert!(matches!(over.lookup(Node::ROOT, b"other"), Err(Error::Io(_))));
        assert!(matches!(Versions::new(Arc::new(over)).lookup(Node::ROOT, b"other.versions"), Err(Error::Io(_))));
    }
}

#[test]
fn there_are_not_endless_numbers() {
    struct Wide(Arc<Known>);
    impl Tree for Wide {
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
        fn node_limit(&self) -> u64 {
            1 << 62
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
    let wide = || Arc::new(Wide(Known::new(&Folder::new(), &mut Random::new(1), true))) as Arc<dyn Tree>;
    assert!(UnionTree::new(vec![wide()]).is_ok());
    assert!(UnionTree::new(vec![wide(), wide()]).is_err());
    assert!(Subvolumes::new([(Vec::new(), wide()), (Vec::new(), wide())]).is_err());
}
