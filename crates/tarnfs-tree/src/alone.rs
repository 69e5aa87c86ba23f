//! A single compressed file under another name than its stream gives it.
//!
//! gzip keeps the name that a file had when it was compressed, and that is the name that shows. Where logs were
//! renamed since (`app.log.1` became `app.log.3.gz`), several sources of a union may give their files the same name,
//! and all but the last would be hidden. Each of these shows under its own archive's name instead.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tarnfs_source::SharedSource;

use crate::build::name_of_single_file;
use crate::open::OpenArchive;
use crate::{Attributes, Child, Error, HeldUp, Kind, LastKnown, Lifetime, Node, Totals, Tree, Waiting, Work, Xattrs};

/// The names of a source that is a single file: the one that it shows, and that of its archive without the suffix.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    shown: Vec<u8>,
    own: Vec<u8>,
}

impl Names {
    /// Those of `archive` at `path`; `None` if it is no single file.
    pub(crate) fn of(archive: &OpenArchive, path: &Path) -> Option<Self> {
        let summary = archive.index.summary();
        if tarnfs_format::by_name(&summary.format).is_some() {
            return None;
        }
        let mut found = Vec::new();
        let listed = archive.tree.read_dir(Node::ROOT, 0, &mut |child| {
            found.push((child.name.to_vec(), child.attributes));
            found.len() < 2
        });
        match (listed, found.pop(), found.pop()) {
            (Ok(()), Some((shown, attributes)), None) if attributes.kind == Kind::File => {
                // Of an archive that was compressed, it may be the only file.
                let stored = archive.tree.stored(attributes.node).ok()?;
                let is_all = stored.is_plain && (stored.stream, stored.place) == (0, 0);
                is_all.then(|| Self { shown, own: name_of_single_file(path) })
            }
            _ => None,
        }
    }
}

/// `sources` of a union, and of each the names if it is a single file: those that would show under one name do so under
/// their archives' names. Where these are the same, too, one is still a later version of the other.
pub(crate) fn told_apart(sources: Vec<(Arc<dyn Tree>, Option<Names>)>) -> Vec<Arc<dyn Tree>> {
    let mut shown: Vec<_> = sources.iter().map(|(_, names)| names.as_ref().map(|names| names.shown.clone())).collect();
    // One that has got its own name may be called as another one now.
    loop {
        let mut count = HashMap::<Vec<u8>, usize>::new();
        for name in shown.iter().flatten() {
            *count.entry(name.clone()).or_default() += 1;
        }
        let mut has_changed = false;
        for (name, (_, names)) in shown.iter_mut().zip(&sources) {
            if let (Some(name), Some(names)) = (name, names)
                && count[name] > 1
                && *name != names.own
            {
                names.own.clone_into(name);
                has_changed = true;
            }
        }
        if !has_changed {
            break;
        }
    }
    let named = |tree: Arc<dyn Tree>, names: Option<Names>, name: Option<Vec<u8>>| match (names, name) {
        (Some(Names { shown, .. }), Some(name)) if name != shown => {
            log::info!(
                "{} shows as {}, as another archive has a file of that name",
                tarnfs_format::name::escape(&shown),
                tarnfs_format::name::escape(&name)
            );
            Arc::new(Alone { tree, inner: shown, name }) as Arc<dyn Tree>
        }
        _ => tree,
    };
    sources.into_iter().zip(shown).map(|((tree, names), name)| named(tree, names, name)).collect()
}

/// See the module.
struct Alone {
    tree: Arc<dyn Tree>,
    /// What it is called there.
    inner: Vec<u8>,
    /// What it is called here.
    name: Vec<u8>,
}

impl fmt::Debug for Alone {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Alone").field("name", &tarnfs_format::name::escape(&self.name)).finish_non_exhaustive()
    }
}

impl Alone {
    /// What `name` in `folder` is called there; `None` of the one that has another name here.
    fn inner<'n>(&'n self, folder: Node, name: &'n [u8]) -> Option<&'n [u8]> {
        match folder {
            Node::ROOT if name == self.name => Some(&self.inner),
            Node::ROOT if name == self.inner => None,
            _ => Some(name),
        }
    }
}

impl Tree for Alone {
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        self.tree.lookup(folder, self.inner(folder, name).ok_or(Error::NotFound)?)
    }

    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        self.tree.read_dir(folder, from, &mut |child| {
            let is_it = folder == Node::ROOT && child.name == self.inner;
            receive(if is_it { Child { name: &self.name, ..child } } else { child })
        })
    }

    fn count(&self, folder: Node) -> Option<u64> {
        self.tree.count(folder)
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        self.tree.attributes(node)
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        self.tree.parent(folder)
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>, Error> {
        self.tree.read_link(node)
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        self.tree.xattrs(node)
    }

    fn xattr(&self, node: Node, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.tree.xattr(node, name)
    }

    fn each_version(
        &self,
        folder: Node,
        name: &[u8],
        from: u64,
        receive: &mut dyn FnMut(Attributes) -> bool,
    ) -> Result<(), Error> {
        let Some(inner) = self.inner(folder, name) else { return Ok(()) };
        self.tree.each_version(folder, inner, from, receive)
    }

    fn node_limit(&self) -> u64 {
        self.tree.node_limit()
    }

    fn forget(&self, node: Node, times: u64) {
        self.tree.forget(node, times);
    }

    fn close_folder(&self, folder: Node) {
        self.tree.close_folder(folder);
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        self.tree.open(node)
    }

    fn path_of(&self, node: Node) -> Option<Vec<u8>> {
        self.tree.path_of(node)
    }

    fn owner_names(&self, node: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        self.tree.owner_names(node)
    }

    fn lifetime(&self, node: Node) -> Lifetime {
        self.tree.lifetime(node)
    }

    fn lifetime_of_gaps(&self, folder: Node) -> Lifetime {
        self.tree.lifetime_of_gaps(folder)
    }

    fn totals(&self) -> Totals {
        self.tree.totals()
    }

    fn work(&self) -> Work {
        self.tree.work()
    }

    fn waiting(&self) -> Option<&dyn Waiting> {
        Some(self)
    }
}

impl Waiting for Alone {
    fn attributes_at_once(&self, node: Node) -> Option<LastKnown> {
        self.tree.attributes_at_once(node)
    }

    fn is_ready(&self, node: Node) -> bool {
        self.tree.is_ready(node)
    }

    fn lists_at_once(&self, folder: Node, from: u64) -> bool {
        self.tree.lists_at_once(folder, from)
    }

    fn lane(&self, node: Node) -> u64 {
        self.tree.lane(node)
    }

    fn asked_for(&self, folder: Node, name: &[u8]) -> Node {
        self.inner(folder, name).map_or(folder, |inner| self.tree.asked_for(folder, inner))
    }

    fn held_up(&self, node: Node) -> Option<HeldUp> {
        self.tree.held_up(node)
    }

    fn wait_out(&self, node: Node) {
        self.tree.wait_out(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::Toy;

    fn shown(tree: &dyn Tree) -> Vec<String> {
        let mut names = Vec::new();
        let mut receive = |child: Child<'_>| {
            names.push(String::from_utf8(child.name.to_vec()).unwrap());
            true
        };
        tree.read_dir(Node::ROOT, 0, &mut receive).unwrap();
        names
    }

    /// Whoever gets another name may be called as a third one then, which has to give way as well.
    #[test]
    fn single_files_of_one_name_show_under_those_of_their_archives() {
        let source = |name: &str, own: Option<&str>| {
            let tree =
                Arc::new(Toy::with_contents([(name, own.unwrap_or("none").as_bytes().to_vec())])) as Arc<dyn Tree>;
            let names = own.map(|own| Names { shown: name.as_bytes().to_vec(), own: own.as_bytes().to_vec() });
            (tree, names)
        };
        for (sources, expected) in [
            (vec![("log", Some("log.1")), ("other", Some("log.2"))], vec!["log", "other"]),
            (vec![("log", Some("log.1")), ("log", Some("log.2"))], vec!["log.1", "log.2"]),
            // No single file has no other name.
            (vec![("log", Some("log.1")), ("log", None)], vec!["log", "log"]),
            // One that has its own name stays what it is.
            (vec![("log", Some("log")), ("log", Some("log.2"))], vec!["log", "log.2"]),
            (vec![("log", Some("a")), ("log", Some("b")), ("a", Some("c"))], vec!["a", "b", "c"]),
            (vec![("log", Some("a")), ("log", Some("a"))], vec!["a", "a"]),
        ] {
            let trees = told_apart(sources.iter().map(|(name, own)| source(name, *own)).collect());
            let found: Vec<_> = trees.iter().flat_map(|tree| shown(&**tree)).collect();
            assert_eq!(found, expected, "{sources:?}");
        }
        // All else goes by the name that shows.
        let trees = told_apart(vec![source("log", Some("a")), source("log", Some("b"))]);
        let tree = &*trees[0];
        let file = tree.lookup(Node::ROOT, b"a").unwrap();
        assert!(matches!(tree.lookup(Node::ROOT, b"log"), Err(Error::NotFound)));
        assert!(matches!(tree.lookup(Node::ROOT, b"b"), Err(Error::NotFound)));
        assert_eq!(tree.attributes(file.node).unwrap(), file);
        let mut bytes = [0];
        tree.open(file.node).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, *b"a");
        let versions = |name: &[u8]| tree.versions(Node::ROOT, name).unwrap().len();
        assert_eq!((versions(b"a"), versions(b"log")), (1, 0));
    }
}
