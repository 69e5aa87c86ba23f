//! Archives in a tree, shown as folders and opened when somebody looks inside: a folder full of archives, or (`--lazy`) an archive of
//! archives.
//!
//! Which files are archives is told by their names and first bytes. Each that was met has a number, and from it a range of node numbers, for good; open at
//! a time are a few, those that were used last. One that cannot be opened is a file from then on.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tarnfs_index::{Shape, trust};
use tarnfs_source::{SharedSource, Source};

use crate::build::{HEAD, Names, content_of};
use crate::open::{FileFacts, Options, Place, Problem, open_source};
use crate::{Attributes, Child, Error, FolderTree, Kind, Node, Time, Totals, Tree, Work, Xattrs};

/// Numbers of one archive: [`crate::ArchiveTree`] has no more.
const WIDTH: u64 = 1 << 31;

/// Archives that can be met.
const MOST: u64 = 1 << 20;

/// Children that are looked at together.
const BATCH: usize = 128;

/// Answers that are remembered for files that are no archives.
const MOST_REMEMBERED: usize = 1 << 20;

/// The tree in which archives are found.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "not every tree can show itself")]
pub enum Base {
    /// A folder: archives lie in files of their own, and so do their indexes.
    Folder(Arc<FolderTree>),
    /// Anything else: their indexes are in memory.
    Other(Arc<dyn Tree>),
}

impl Base {
    fn tree(&self) -> &dyn Tree {
        match self {
            Self::Folder(folder) => &**folder,
            Self::Other(tree) => &**tree,
        }
    }
}

/// How archives are opened.
#[derive(Debug, Clone)]
pub struct Lazily {
    /// As those that are opened at once. [`Shape::recursion`] says which files are archives.
    pub options: Options,
    /// Archives in archives are opened lazily as well, not when the one that they lie in is.
    pub all: bool,
    /// Archives that are open at a time.
    pub most_open: usize,
    /// A folder whose files must not be opened by their paths: the mount itself lies on the way.
    pub mountpoint: Option<PathBuf>,
}

/// A tree, and the archives in it.
#[allow(missing_debug_implementations, reason = "not every tree can show itself")]
pub struct LazyTree {
    base: Base,
    limit: u64,
    how: Lazily,
    names: Names,
    archives: Mutex<Archives>,
}

#[derive(Default)]
struct Archives {
    all: Vec<Archive>,
    /// Of files that may be archives, what they were found to be, as long as they stay as they are.
    files: HashMap<Node, (Version, Option<u32>)>,
    clock: u64,
}

/// What tells that a file has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    size: u64,
    mtime: Time,
}

impl Version {
    fn of(attributes: &Attributes) -> Self {
        Self { size: attributes.size, mtime: attributes.mtime }
    }
}

/// One file that is an archive.
struct Archive {
    /// The file, in this tree's numbers, and the folder that it is in.
    file: Node,
    folder: Node,
    version: Version,
    name: Vec<u8>,
    /// Archives that it lies in.
    depth: u32,
    state: State,
    used: u64,
}

enum State {
    Closed,
    Open(Arc<dyn Tree>),
    Failed,
}

/// Where a number leads.
enum Where {
    Base(Node),
    Archive(u32, Node),
}

impl LazyTree {
    /// Shows archives in `base` as folders. [`Problem::Option`] if the options make no sense.
    pub fn new(base: Base, how: Lazily) -> Result<Self, Problem> {
        let names = Names::new(&how.options.shape, &how.options.limits)?;
        let limit = base.tree().node_limit();
        Ok(Self { base, limit, how, names, archives: Mutex::default() })
    }

    fn archives(&self) -> MutexGuard<'_, Archives> {
        self.archives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, node: Node) -> Where {
        match node.0.checked_sub(self.limit) {
            None => Where::Base(node),
            Some(behind) => Where::Archive((behind / WIDTH) as u32, Node(behind % WIDTH)),
        }
    }

    fn outer(&self, archive: u32, inner: Node) -> Node {
        Node(self.limit + u64::from(archive) * WIDTH + inner.0 % WIDTH)
    }

    /// Calls `work` with the tree that `node` is in, its number there, and what makes a number of ours of one of that tree's.
    fn within<T>(
        &self,
        node: Node,
        work: impl FnOnce(&dyn Tree, Node, &dyn Fn(Node) -> Node) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match self.place(node) {
            Where::Base(inner) => work(self.base.tree(), inner, &|node| node),
            Where::Archive(number, inner) => {
                let tree = self.open_archive(number)?;
                work(&*tree, inner, &|node| self.outer(number, node))
            }
        }
    }

    /// The archive of that number, opened if need be.
    fn open_archive(&self, number: u32) -> Result<Arc<dyn Tree>, Error> {
        let (file, version, name, depth) = {
            let mut archives = self.archives();
            archives.clock += 1;
            let clock = archives.clock;
            let archive = archives.all.get_mut(number as usize).ok_or(Error::NotFound)?;
            archive.used = clock;
            match &archive.state {
                State::Open(tree) => return Ok(Arc::clone(tree)),
                State::Failed => return Err(io::Error::from(io::ErrorKind::InvalidData).into()),
                State::Closed => (archive.file, archive.version, archive.name.clone(), archive.depth),
            }
        };
        let opened = self.with_room(|| self.opened(file, version, &name, depth));
        let mut archives = self.archives();
        let archive = archives.all.get_mut(number as usize).ok_or(Error::NotFound)?;
        match opened {
            Ok(tree) => {
                archive.state = State::Open(Arc::clone(&tree));
                archives.close_others(self.how.most_open);
                Ok(tree)
            }
            Err(error) => {
                // A file that has changed is another archive, or none; what the system could not do now it may do later.
                let is_its_fault = matches!(&error, Error::Io(error) if error.kind() == io::ErrorKind::InvalidData);
                if is_its_fault {
                    archive.state = State::Failed;
                    archives.files.insert(file, (version, None));
                }
                Err(error)
            }
        }
    }

    /// Does `work`; where it fails for want of descriptors, once more after all archives that nobody reads were closed.
    fn with_room<T>(&self, mut work: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
        match work() {
            Err(error) if is_for_now(&error) => {
                self.archives().close_others(0);
                work()
            }
            result => result,
        }
    }

    fn opened(&self, file: Node, version: Version, name: &[u8], depth: u32) -> Result<Arc<dyn Tree>, Error> {
        use std::os::unix::ffi::OsStrExt as _;
        let shown = tarnfs_format::name::escape(name);
        let attributes = self.within(file, |tree, inner, _| tree.attributes(inner))?;
        if Version::of(&attributes) != version {
            return Err(changed(&shown.to_string()));
        }
        let source = self.open(file)?;
        let source: SharedSource = match (&self.base, self.place(file)) {
            (Base::Folder(folder), Where::Base(node)) => {
                Arc::new(Unchanged { source, folder: Arc::clone(folder), node, version })
            }
            _ => source,
        };
        let path = self.path_of(file);
        let place = if path.is_some() { self.how.options.place.clone() } else { Place::Memory };
        let path = path.unwrap_or_else(|| PathBuf::from(std::ffi::OsStr::from_bytes(name)));
        let recursion = self.how.options.shape.recursion.clone().filter(|_| !self.how.all);
        let recursion = recursion.and_then(|mut recursion| {
            recursion.depth = recursion.depth.map(|most| most.saturating_sub(depth));
            (recursion.depth != Some(0)).then_some(recursion)
        });
        let options = Options {
            shape: Shape { recursion, ..self.how.options.shape.clone() },
            place,
            progress: Arc::default(),
            sink: None,
            ..self.how.options.clone()
        };
        let facts = FileFacts {
            owner: trust::Owner { user: attributes.uid, group: attributes.gid, mode: attributes.mode },
            modified: nanoseconds(attributes.mtime),
        };
        match open_source(source, facts, &path, &options) {
            Ok(opened) => {
                for (offset, what) in opened.index.summary().notes.iter().take(3) {
                    log::warn!("{shown}: damaged at byte {offset}: {what}");
                }
                Ok(opened.tree)
            }
            Err(problem) => {
                log::warn!("{shown}: cannot be shown as a folder: {problem}");
                Err(match problem {
                    Problem::Read { error, .. } | Problem::CannotOpen(error) => Error::Io(error),
                    Problem::Index(error) => error.into(),
                    problem => io::Error::new(io::ErrorKind::InvalidData, problem.to_string()).into(),
                })
            }
        }
    }

    /// Where the file lies, for its index; `None` if it lies in no folder, or the way to it leads through our own mount.
    fn path_of(&self, file: Node) -> Option<PathBuf> {
        let (Base::Folder(folder), Where::Base(node)) = (&self.base, self.place(file)) else { return None };
        let path = folder.path_of(node)?;
        let is_below = self.how.mountpoint.as_ref().is_some_and(|mountpoint| path.starts_with(mountpoint));
        (!is_below).then_some(path)
    }

    /// The number of the archive that the file `attributes` (in our numbers) is; `None` if it is none.
    fn archive_at(&self, folder: Node, name: &[u8], attributes: &Attributes) -> Result<Option<u32>, Error> {
        if attributes.kind != Kind::File || attributes.size == 0 || self.names.stem(name).is_none() {
            return Ok(None);
        }
        let depth = match self.place(folder) {
            Where::Base(_) => 0,
            // What is in it was decided when it was opened.
            Where::Archive(..) if !self.how.all => return Ok(None),
            Where::Archive(number, _) => self.archives().all.get(number as usize).map_or(0, |outer| outer.depth + 1),
        };
        let most = self.how.options.shape.recursion.as_ref().map_or(Some(0), |recursion| recursion.depth);
        if most.is_some_and(|most| depth >= most) {
            return Ok(None);
        }
        let version = Version::of(attributes);
        if let Some((known, archive)) = self.archives().files.get(&attributes.node)
            && *known == version
        {
            return Ok(*archive);
        }
        let mut head = vec![0; HEAD.min(usize::try_from(attributes.size).unwrap_or(HEAD))];
        let read = self.with_room(|| Ok(self.open(attributes.node)?.read_at(&mut head, 0)?));
        let is_archive = match read {
            Ok(read) => content_of(&head[..read], name).is_some(),
            Err(error) if is_for_now(&error) => return Err(error),
            // What cannot be read is no archive; whoever reads the file is told why.
            Err(_) => false,
        };
        let mut archives = self.archives();
        if archives.files.len() >= MOST_REMEMBERED {
            archives.files.retain(|_, (_, archive)| archive.is_some());
        }
        let number = archives.all.len() as u64;
        let number = (is_archive && number < MOST).then_some(number as u32);
        if number.is_some() {
            archives.all.push(Archive {
                file: attributes.node,
                folder,
                version,
                name: name.to_vec(),
                depth,
                state: State::Closed,
                used: 0,
            });
        }
        archives.files.insert(attributes.node, (version, number));
        Ok(number)
    }

    /// What shows under a name for a file or folder of ours.
    fn shown(&self, folder: Node, name: &[u8], attributes: Attributes) -> Result<Attributes, Error> {
        match self.archive_at(folder, name, &attributes)? {
            Some(number) => Ok(self.as_folder(number, &attributes)),
            None => Ok(attributes),
        }
    }

    /// The folder that an archive is: as its file, but for what makes it a folder.
    fn as_folder(&self, number: u32, file: &Attributes) -> Attributes {
        Attributes {
            node: self.outer(number, Node::ROOT),
            kind: Kind::Folder,
            mode: file.mode & 0o777 | (file.mode & 0o444) >> 2,
            // How many folders are in it nobody knows yet, which is what 1 says.
            links: 1,
            size: 0,
            blocks: 0,
            ..file.clone()
        }
    }

    /// With `-s`: the archive whose name without its extension is `name`.
    fn stripped(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        for extension in self.names.extensions() {
            let full = [name, extension].concat();
            let found = self.within(folder, |tree, inner, outer| {
                let attributes = tree.lookup(inner, &full)?;
                Ok(Attributes { node: outer(attributes.node), ..attributes })
            });
            match found {
                Ok(attributes) => {
                    if let Some(number) = self.archive_at(folder, &full, &attributes)? {
                        return Ok(self.as_folder(number, &attributes));
                    }
                }
                Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::NotFound)
    }

    fn strips(&self) -> bool {
        self.how.options.shape.recursion.as_ref().is_some_and(|recursion| recursion.strip_extension)
    }

    /// The name under which a child shows, which is its own unless it is an archive whose extension is to be stripped, and nothing else has
    /// that name.
    fn shown_name(&self, folder: Node, name: &[u8], attributes: &Attributes) -> Vec<u8> {
        let is_archive = attributes.kind == Kind::Folder && self.strips();
        let Some(stem) = self.names.stem(name).filter(|stem| is_archive && *stem != name) else {
            return name.to_vec();
        };
        match self.within(folder, |tree, inner, _| tree.lookup(inner, stem)) {
            Err(Error::NotFound) => match self.stripped(folder, stem) {
                Ok(other) if other.node == attributes.node => stem.to_vec(),
                _ => name.to_vec(),
            },
            _ => name.to_vec(),
        }
    }
}

impl Archives {
    /// Closes those that were not used for longest.
    fn close_others(&mut self, most: usize) {
        let is_open = |archive: &&mut Archive| matches!(archive.state, State::Open(_));
        let mut open: Vec<&mut Archive> = self.all.iter_mut().filter(is_open).collect();
        if open.len() <= most {
            return;
        }
        open.sort_by_key(|archive| archive.used);
        let surplus = open.len() - most;
        for archive in open.into_iter().take(surplus) {
            archive.state = State::Closed;
        }
    }
}

/// True for what may go well a moment later: too few descriptors, or too little memory.
fn is_for_now(error: &Error) -> bool {
    use rustix::io::Errno;
    let Error::Io(error) = error else { return false };
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::INTR))
}

fn nanoseconds(time: Time) -> i64 {
    time.seconds.saturating_mul(1_000_000_000).saturating_add(i64::from(time.nanoseconds))
}

fn changed(name: &str) -> Error {
    let what = format!("{name} has changed since it was seen");
    io::Error::new(io::ErrorKind::StaleNetworkFileHandle, what).into()
}

/// A file in a folder that must stay as it was.
#[derive(Debug)]
struct Unchanged {
    source: SharedSource,
    folder: Arc<FolderTree>,
    node: Node,
    version: Version,
}

impl Source for Unchanged {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let length = self.version.size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let read = self.source.read_at(&mut buffer[..length], offset)?;
        let now = self.folder.attributes(self.node);
        // One that was deleted still has its bytes.
        if now.is_ok_and(|now| Version::of(&now) != self.version) {
            return Err(io::Error::new(
                io::ErrorKind::StaleNetworkFileHandle,
                format!("{} has changed since it was opened", self.source.describe()),
            ));
        }
        Ok(read)
    }

    fn len(&self) -> u64 {
        self.version.size
    }

    fn describe(&self) -> String {
        self.source.describe()
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        self.source.is_ready(offset, length)
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.source.prefetch(offset, length);
    }
}

impl Tree for LazyTree {
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        let found = self.within(folder, |tree, inner, outer| {
            let attributes = tree.lookup(inner, name)?;
            Ok(Attributes { node: outer(attributes.node), ..attributes })
        });
        match found {
            Ok(attributes) => self.shown(folder, name, attributes),
            Err(Error::NotFound) if self.strips() => self.stripped(folder, name),
            Err(error) => Err(error),
        }
    }

    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        let mut from = from;
        loop {
            // Gathered before they are looked at: a tree that is being listed may not take questions.
            let mut children = Vec::new();
            self.within(folder, |tree, inner, outer| {
                tree.read_dir(inner, from, &mut |child| {
                    // One that is refused counts as not given.
                    if children.len() == BATCH {
                        return false;
                    }
                    let attributes = Attributes { node: outer(child.attributes.node), ..child.attributes };
                    children.push((child.name.to_vec(), attributes, child.next));
                    true
                })
            })?;
            let is_last = children.len() < BATCH;
            let mut children = children.into_iter();
            while let Some((name, attributes, next)) = children.next() {
                let own = attributes.node;
                let attributes = self.shown(folder, &name, attributes)?;
                let is_archive = attributes.node != own;
                let name = self.shown_name(folder, &name, &attributes);
                from = next;
                if !receive(Child { name: &name, attributes, next }) {
                    // Neither it nor those behind it were given to anybody. The numbers of archives' files stay taken.
                    let refused = (!is_archive).then_some(own);
                    for node in refused.into_iter().chain(children.map(|(_, attributes, _)| attributes.node)) {
                        self.forget(node, 1);
                    }
                    return Ok(());
                }
            }
            if is_last {
                return Ok(());
            }
        }
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        if let Where::Archive(number, Node::ROOT) = self.place(node) {
            let file = self.archives().all.get(number as usize).map(|archive| archive.file).ok_or(Error::NotFound)?;
            return Ok(self.as_folder(number, &self.attributes(file)?));
        }
        self.within(node, |tree, inner, outer| {
            let attributes = tree.attributes(inner)?;
            Ok(Attributes { node: outer(attributes.node), ..attributes })
        })
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        if let Where::Archive(number, Node::ROOT) = self.place(folder) {
            let archives = self.archives();
            return archives.all.get(number as usize).map(|archive| archive.folder).ok_or(Error::NotFound);
        }
        self.within(folder, |tree, inner, outer| Ok(outer(tree.parent(inner)?)))
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>, Error> {
        self.within(node, |tree, inner, _| tree.read_link(inner))
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        if let Where::Archive(number, Node::ROOT) = self.place(node) {
            let file = self.archives().all.get(number as usize).map(|archive| archive.file).ok_or(Error::NotFound)?;
            return self.xattrs(file);
        }
        self.within(node, |tree, inner, _| tree.xattrs(inner))
    }

    fn versions(&self, folder: Node, name: &[u8]) -> Result<Vec<Attributes>, Error> {
        self.within(folder, |tree, inner, outer| {
            let versions = tree.versions(inner, name)?;
            let ours = |attributes: Attributes| Attributes { node: outer(attributes.node), ..attributes };
            Ok(versions.into_iter().map(ours).collect())
        })
    }

    fn node_limit(&self) -> u64 {
        self.limit.saturating_add(MOST * WIDTH)
    }

    /// In a folder, archives are told by a few bytes of files; all else has to decode.
    fn is_ready(&self, node: Node) -> bool {
        match (self.place(node), &self.base) {
            (Where::Base(inner), Base::Folder(folder)) => folder.is_ready(inner),
            (Where::Base(_), Base::Other(_)) => false,
            (Where::Archive(number, _), _) => {
                let is_open = |archive: &Archive| matches!(archive.state, State::Open(_));
                !self.how.all && self.archives().all.get(number as usize).is_some_and(is_open)
            }
        }
    }

    fn forget(&self, node: Node, times: u64) {
        if let Where::Base(inner) = self.place(node) {
            let mut archives = self.archives();
            if let Some((_, archive)) = archives.files.get(&node) {
                // The number of an archive's file must not become another file's.
                if archive.is_some() {
                    return;
                }
                archives.files.remove(&node);
            }
            drop(archives);
            self.base.tree().forget(inner, times);
        }
    }

    fn close_folder(&self, folder: Node) {
        if let Where::Base(inner) = self.place(folder) {
            self.base.tree().close_folder(inner);
        }
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        self.within(node, |tree, inner, _| tree.open(inner))
    }

    fn owner_names(&self, node: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        self.within(node, |tree, inner, _| tree.owner_names(inner))
    }

    fn totals(&self) -> Totals {
        // What an archive has that nobody has looked into is not known.
        Totals { has_xattrs: true, has_acls: true, is_immutable: false, ..self.base.tree().totals() }
    }

    fn work(&self) -> Work {
        let open = |archive: &Archive| match &archive.state {
            State::Open(tree) => Some(Arc::clone(tree)),
            _ => None,
        };
        let mut trees: Vec<Arc<dyn Tree>> = self.archives().all.iter().filter_map(open).collect();
        if let Base::Other(tree) = &self.base {
            trees.push(Arc::clone(tree));
        }
        Work::of_all(&trees)
    }
}
