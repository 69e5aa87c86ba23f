//! A folder behind a URL as a tree: what its server listed last, and files that are opened when somebody reads.
//!
//! Everything may have to wait for the server, so all of it is left to threads that may ([`Waiting::is_ready`]). What
//! was listed counts for a while; a node keeps its number as long as its name stays.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::process::{getegid, geteuid};
use tarnfs_source::{SharedSource, Source, Strict};

use crate::lanes::new_lane;
use crate::open::{Remote, RemoteEntry, RemoteFolder};
use crate::{Attributes, Child, Error, Kind, Lifetime, Node, Time, Totals, Tree, Waiting, Xattrs};

/// A listing counts for so long, or for so many times as long as it has taken; and so long the version counts that was
/// found when a file was opened.
const FRESH: Duration = Duration::from_secs(10);
const TIMES: u32 = 20;

/// Files that are kept open after somebody has looked at them: who finds that one is an archive opens it again.
const RECENT: usize = 4;

/// Names that are known at a time. Each takes about 200 bytes.
const MOST: usize = 16 << 20;

/// The files and folders below a URL.
#[derive(Debug)]
pub struct FarTree {
    folder: Arc<dyn RemoteFolder>,
    /// For messages.
    url: PathBuf,
    known: Mutex<Known>,
    lane: u64,
    owner: (u32, u32),
}

/// What was met, by number: the first one is the root.
#[derive(Debug)]
struct Known {
    all: Vec<Place>,
    /// What is in each folder that was listed, by name, and until when that counts.
    listed: HashMap<u64, Listed>,
    open: HashMap<u64, Open>,
    /// Those that were opened last, the last one at the end.
    recent: VecDeque<(u64, Remote)>,
}

/// A file as it was opened last.
#[derive(Debug)]
struct Open {
    source: Weak<dyn Source>,
    /// Of a version that is lasting, see [`Remote::version`].
    version: Option<String>,
    /// It counts as the one that is there.
    until: Instant,
}

#[derive(Debug, Default)]
struct Listed {
    children: BTreeMap<Arc<[u8]>, u64>,
    until: Option<Instant>,
}

/// One name.
#[derive(Debug)]
struct Place {
    folder: u64,
    name: Arc<[u8]>,
    is_folder: bool,
    size: u64,
    modified: i64,
    /// It was listed when somebody looked last.
    is_there: bool,
}

fn stale() -> Error {
    rustix::io::Errno::STALE.into()
}

impl Known {
    fn place(&self, node: Node) -> Result<&Place, Error> {
        let place = node.0.checked_sub(Node::ROOT.0).and_then(|index| self.all.get(usize::try_from(index).ok()?));
        place.ok_or(Error::NotFound)
    }

    /// The names that lead to a node.
    fn path(&self, node: Node) -> Result<Vec<u8>, Error> {
        let (mut names, mut at) = (Vec::new(), node);
        while at != Node::ROOT {
            let place = self.place(at)?;
            names.push(&*place.name);
            at = Node(place.folder);
        }
        names.reverse();
        Ok(names.join(&b'/'))
    }

    /// Takes what was listed of a folder.
    fn take(&mut self, folder: Node, entries: Vec<RemoteEntry>, until: Instant) -> Result<(), Error> {
        let mut listed = self.listed.remove(&folder.0).unwrap_or_default();
        for node in listed.children.values() {
            if let Some(place) = self.all.get_mut((node - Node::ROOT.0) as usize) {
                place.is_there = false;
            }
        }
        // In a bucket a name may be both: an empty file then stands for the folder.
        let files: HashMap<Vec<u8>, u64> =
            entries.iter().filter(|entry| !entry.is_folder).map(|entry| (entry.name.clone(), entry.size)).collect();
        let folders: HashSet<Vec<u8>> =
            entries.iter().filter(|entry| entry.is_folder).map(|entry| entry.name.clone()).collect();
        for RemoteEntry { name, is_folder, size, modified } in entries {
            if is_folder && files.get(&name).is_some_and(|&size| size > 0) {
                let name = tarnfs_format::name::escape(&name);
                log::warn!("{name}: is a file and a folder: only the file is shown");
                continue;
            }
            if !is_folder && size == 0 && folders.contains(&name) {
                continue;
            }
            let known = listed.children.get(&name[..]).copied();
            let place = known.and_then(|node| Some((node, self.all.get_mut((node - Node::ROOT.0) as usize)?)));
            match place {
                Some((node, place)) if place.is_folder == is_folder => {
                    if (place.size, place.modified) != (size, modified) {
                        // Who opens it from now on reads the new one.
                        self.open.remove(&node);
                        self.recent.retain(|(known, _)| *known != node);
                    }
                    (place.size, place.modified, place.is_there) = (size, modified, true);
                }
                _ => {
                    if self.all.len() >= MOST {
                        self.listed.insert(folder.0, listed);
                        return Err(rustix::io::Errno::NOMEM.into());
                    }
                    let name: Arc<[u8]> = name.into();
                    let node = Node::ROOT.0 + self.all.len() as u64;
                    let (place_name, folder) = (Arc::clone(&name), folder.0);
                    self.all.push(Place { folder, name: place_name, is_folder, size, modified, is_there: true });
                    listed.children.insert(name, node);
                }
            }
        }
        listed.until = Some(until);
        self.listed.insert(folder.0, listed);
        Ok(())
    }
}

impl FarTree {
    /// The folder that is called `url` in messages. It is listed when somebody looks.
    pub fn new(folder: Arc<dyn RemoteFolder>, url: PathBuf) -> Self {
        let root = Place {
            folder: Node::ROOT.0,
            name: Arc::from(&b""[..]),
            is_folder: true,
            size: 0,
            modified: 0,
            is_there: true,
        };
        let known = Known { all: vec![root], listed: HashMap::new(), open: HashMap::new(), recent: VecDeque::new() };
        let owner = (geteuid().as_raw(), getegid().as_raw());
        Self { folder, url, known: Mutex::new(known), lane: new_lane(), owner }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that what lies in `folder` is known.
    fn list(&self, folder: Node) -> Result<(), Error> {
        let path = {
            let known = self.known();
            if !known.place(folder)?.is_folder {
                return Err(Error::NotAFolder);
            }
            let until = known.listed.get(&folder.0).and_then(|listed| listed.until);
            if until.is_some_and(|until| Instant::now() < until) {
                return Ok(());
            }
            known.path(folder)?
        };
        let begin = Instant::now();
        // No lock is held meanwhile.
        let entries = self.folder.list(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory if folder != Node::ROOT => stale(),
            _ => error.into(),
        })?;
        let until = Instant::now() + FRESH.max(begin.elapsed() * TIMES);
        self.known().take(folder, entries, until)
    }

    fn told(&self, node: Node, place: &Place) -> Attributes {
        let second = 1_000_000_000;
        let time =
            Time { seconds: place.modified.div_euclid(second), nanoseconds: place.modified.rem_euclid(second) as u32 };
        Attributes {
            node,
            kind: if place.is_folder { Kind::Folder } else { Kind::File },
            mode: if place.is_folder { 0o755 } else { 0o644 },
            uid: self.owner.0,
            gid: self.owner.1,
            links: if place.is_folder { 2 } else { 1 },
            size: place.size,
            blocks: place.size.div_ceil(512),
            mtime: time,
            atime: time,
            ctime: time,
        }
    }

    /// Opens the file of this number, as it is now or was a few seconds ago. Whoever has the same version open shares
    /// its source.
    pub(crate) fn remote(&self, node: Node) -> Result<(Remote, PathBuf), Error> {
        let (path, seen) = {
            let known = self.known();
            let place = known.place(node)?;
            if place.is_folder {
                return Err(Error::IsAFolder);
            }
            if !place.is_there {
                return Err(stale());
            }
            let path = known.path(node)?;
            let is_fresh = known.open.get(&node.0).is_some_and(|open| Instant::now() < open.until);
            if let Some((_, remote)) = known.recent.iter().find(|(known, _)| is_fresh && *known == node.0) {
                return Ok((remote.clone(), self.url.join(OsStr::from_bytes(&path))));
            }
            (path, (place.size, place.modified))
        };
        let asked = Instant::now();
        let mut remote = self.folder.open(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::IsADirectory => stale(),
            _ => error.into(),
        })?;
        let index = (node.0 - Node::ROOT.0) as usize;
        if remote.source.len() != seen.0 {
            // It has changed since it was listed: who looks again learns that.
            let mut known = self.known();
            if let Some(place) = known.all.get_mut(index) {
                (place.size, place.modified) = (remote.source.len(), remote.modified);
            }
            return Err(stale());
        }
        let version = remote.is_lasting.then(|| remote.version.clone());
        remote.source = Arc::new(Strict::new(remote.source).of_version(version));
        // Closing one is told to the other process: that is done when nothing is held.
        let (mut _same, mut _older) = (None, None);
        let mut known = self.known();
        // What was listed meanwhile may be a newer one.
        let is_listed_so =
            known.all.get(index).is_some_and(|place| place.is_there && (place.size, place.modified) == seen);
        if is_listed_so {
            let version = Some(&remote.version).filter(|_| remote.is_lasting).cloned();
            let same = known.open.get(&node.0).filter(|open| version.is_some() && open.version == version);
            if let Some(source) = same.and_then(|open| open.source.upgrade()) {
                _same = Some(std::mem::replace(&mut remote.source, source));
            }
            if known.open.len() == known.open.capacity() {
                known.open.retain(|_, open| open.source.strong_count() > 0);
            }
            let source = Arc::downgrade(&remote.source);
            known.open.insert(node.0, Open { source, version, until: asked + FRESH });
            let older = known.recent.iter().position(|(known, _)| *known == node.0);
            let older = older.or((known.recent.len() >= RECENT).then_some(0));
            _older = older.and_then(|older| known.recent.remove(older));
            known.recent.push_back((node.0, remote.clone()));
        }
        drop(known);
        Ok((remote, self.url.join(OsStr::from_bytes(&path))))
    }
}

impl Tree for FarTree {
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        self.list(folder)?;
        let known = self.known();
        let node = known.listed.get(&folder.0).and_then(|listed| listed.children.get(name)).copied();
        let node = Node(node.ok_or(Error::NotFound)?);
        let place = known.place(node)?;
        if place.is_there { Ok(self.told(node, place)) } else { Err(Error::NotFound) }
    }

    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        /// As many as are asked for at once. Nothing is held while they are handed on.
        const AT_ONCE: usize = 4096;
        self.list(folder)?;
        let mut from = from;
        loop {
            let known = self.known();
            let Some(listed) = known.listed.get(&folder.0) else { return Ok(()) };
            // It goes on behind a name, which may be gone, and others may have come.
            let after = if from == 0 { None } else { Some(&known.place(Node(from))?.name) };
            let bound = after.map_or(Bound::Unbounded, |name| Bound::Excluded(&**name));
            let mut children = Vec::new();
            for (name, &node) in listed.children.range::<[u8], _>((bound, Bound::Unbounded)) {
                let place = known.place(Node(node))?;
                if place.is_there {
                    children.push((Arc::clone(name), self.told(Node(node), place)));
                }
                if children.len() == AT_ONCE {
                    break;
                }
            }
            drop(known);
            let is_all = children.len() < AT_ONCE;
            for (name, attributes) in children {
                from = attributes.node.0;
                if !receive(Child { name: &name, attributes, next: from }) {
                    return Ok(());
                }
            }
            if is_all {
                return Ok(());
            }
        }
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        let known = self.known();
        let place = known.place(node)?;
        if place.is_there { Ok(self.told(node, place)) } else { Err(stale()) }
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        Ok(Node(self.known().place(folder)?.folder))
    }

    fn read_link(&self, _: Node) -> Result<Vec<u8>, Error> {
        Err(Error::WrongKind)
    }

    fn xattrs(&self, _: Node) -> Result<Xattrs, Error> {
        Ok(Vec::new())
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        let opened = {
            let known = self.known();
            let fresh = known.open.get(&node.0).filter(|open| Instant::now() < open.until);
            fresh.and_then(|open| open.source.upgrade())
        };
        match opened {
            Some(opened) => Ok(opened),
            None => Ok(self.remote(node)?.0.source),
        }
    }

    fn owner_names(&self, _: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        Ok((Vec::new(), Vec::new()))
    }

    fn node_limit(&self) -> u64 {
        1 << 32
    }

    fn lifetime(&self, _: Node) -> Lifetime {
        Lifetime::Short
    }

    fn totals(&self) -> Totals {
        Totals::default()
    }

    fn waiting(&self) -> Option<&dyn Waiting> {
        Some(self)
    }
}

impl Waiting for FarTree {
    fn is_ready(&self, _: Node) -> bool {
        false
    }

    fn lists_at_once(&self, _: Node, _: u64) -> bool {
        false
    }

    fn lane(&self, _: Node) -> u64 {
        self.lane
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// What a server lists, one listing after the other.
    #[derive(Debug)]
    struct Listings(Vec<Vec<RemoteEntry>>, AtomicUsize);

    impl RemoteFolder for Listings {
        fn list(&self, _: &[u8]) -> io::Result<Vec<RemoteEntry>> {
            let at = self.1.fetch_add(1, Ordering::Relaxed).min(self.0.len() - 1);
            Ok(self.0[at].clone())
        }

        fn open(&self, _: &[u8]) -> io::Result<Remote> {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    fn entry(name: &str, is_folder: bool, size: u64) -> RemoteEntry {
        RemoteEntry { name: name.into(), is_folder, size, modified: 7 }
    }

    fn names(tree: &FarTree, step: usize) -> Vec<String> {
        let (mut names, mut from) = (Vec::new(), 0);
        loop {
            let mut left = step;
            tree.read_dir(Node::ROOT, from, &mut |child| {
                if left == 0 {
                    return false;
                }
                left -= 1;
                names.push(String::from_utf8_lossy(child.name).into_owned());
                from = child.next;
                true
            })
            .unwrap();
            if left > 0 {
                return names;
            }
        }
    }

    #[test]
    fn each_name_is_listed_once_however_it_is_asked_for() {
        let all: Vec<_> = (0..10_000).map(|number| entry(&format!("{number:05}"), number % 3 == 0, number)).collect();
        let expected: Vec<_> = (0..10_000).map(|number| format!("{number:05}")).collect();
        let tree = FarTree::new(Arc::new(Listings(vec![all], AtomicUsize::new(0))), "x".into());
        for step in [1, 7, 4096, 20_000] {
            assert!(names(&tree, step) == expected, "{step}");
        }
    }

    #[test]
    fn what_stays_keeps_its_number_and_what_goes_is_gone() {
        let first = vec![
            entry("a", false, 1),
            entry("b", false, 2),
            entry("c", true, 0),
            entry("both", true, 0),
            entry("d", true, 0),
        ];
        let mut first = first;
        first.push(entry("both", false, 3));
        first.push(entry("d", false, 0));
        let second = vec![entry("b", false, 5), entry("c", false, 6), entry("d", false, 7)];
        let tree = FarTree::new(Arc::new(Listings(vec![first, second], AtomicUsize::new(0))), "x".into());
        assert_eq!(names(&tree, 100), ["a", "b", "both", "c", "d"]);
        assert_eq!(tree.lookup(Node::ROOT, b"d").unwrap().kind, Kind::Folder);
        let before: Vec<_> =
            ["a", "b", "c"].iter().map(|name| tree.lookup(Node::ROOT, name.as_bytes()).unwrap()).collect();
        assert_eq!(tree.lookup(Node::ROOT, b"both").unwrap().size, 3);
        tree.known().listed.get_mut(&Node::ROOT.0).unwrap().until = None;
        assert_eq!(names(&tree, 100), ["b", "c", "d"]);
        let after = tree.lookup(Node::ROOT, b"b").unwrap();
        assert_eq!((after.node, after.size), (before[1].node, 5));
        assert!(matches!(tree.lookup(Node::ROOT, b"a"), Err(Error::NotFound)));
        assert_eq!(tree.attributes(before[0].node).unwrap_err().errno(), rustix::io::Errno::STALE);
        // A folder that has become a file is another one.
        let file = tree.lookup(Node::ROOT, b"c").unwrap();
        assert!(file.node != before[2].node && file.kind == Kind::File);
    }
}
