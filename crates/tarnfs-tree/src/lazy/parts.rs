//! Archives that were split over files which lie beside each other in the tree: they show as one folder, under the name
//! of the part that they are found by.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tarnfs_format::name::escape;
use tarnfs_source::{Joined, SharedSource, Source};

use super::archives::{File, Steps, Version, Where};
use super::in_turn::{InTurn, Open};
use super::unchanged::Unchanged;
use super::{Base, LazyTree, nanoseconds};
use crate::open::Problem;
use crate::parts::{self, Found, Wrong};
use crate::readers::{self, Readers};
use crate::{Attributes, Error, FolderTree, Kind, Node, Time, Tree};

/// Missing parts of which is remembered that they were told.
const MOST_TOLD: usize = 1024;

/// What a tree remembers of parts.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    told: Told,
    searched: Searched,
}

/// Parts that are not there, and of which that was said.
#[derive(Debug, Default)]
struct Told(Mutex<HashSet<(Node, Vec<u8>)>>);

/// What a file is to those beside it.
#[derive(Debug)]
pub(super) enum Role {
    /// It stands for itself.
    Alone,
    /// The archive that it is a part of shows under the name of another one.
    Other,
    /// It is shown as what these are together.
    Shown(Found<PartFile>),
    /// A part is not there.
    Lacks(Vec<u8>),
}

/// A file that lies beside others.
#[derive(Debug, Clone)]
pub(super) struct PartFile {
    source: SharedSource,
    version: Version,
    readers: Readers,
}

impl PartFile {
    fn new(source: SharedSource, tree: &dyn Tree, attributes: &Attributes) -> Self {
        Self { source, version: Version::of(attributes), readers: Readers::of_file(tree, attributes) }
    }
}

impl parts::File for PartFile {
    fn source(&self) -> &dyn Source {
        &*self.source
    }
}

/// True if each of the files that were found may be a part beside the one that they are shown under.
fn may_share(found: &Found<PartFile>) -> bool {
    let shown = found.files.iter().find(|(name, _)| *name == found.shown);
    shown.is_some_and(|(_, shown)| found.files.iter().all(|(_, file)| shown.readers.may_share(&file.readers)))
}

/// Those who may read all files that were found.
fn readers_of(found: &Found<PartFile>) -> Option<Readers> {
    let (_, shown) = found.files.iter().find(|(name, _)| *name == found.shown)?;
    Some(readers::of_all(&shown.readers, found.files.iter().map(|(_, file)| &file.readers)))
}

/// The files of an archive as one, the last change of any of them, and each by itself.
pub(super) type Opened = (SharedSource, i64, Vec<Arc<Unchanged>>);

/// Those that were found, as one.
pub(super) fn joined(found: &Found<PartFile>) -> io::Result<SharedSource> {
    let files = found.files.iter().map(|(_, file)| SharedSource::clone(&file.source)).collect();
    Ok(Arc::new(Joined::new(files, format!("{} in {} files", escape(&found.whole), found.files.len()))?))
}

/// How long what an archive is made of is not looked at again.
const FRESH: Duration = Duration::from_millis(500);

/// Names of which is remembered what a search has found.
const MOST_KNOWN: usize = 1 << 16;

/// What the files of one folder are to each other, as the last searches there have found it. A search goes through all
/// parts of an archive, and a listing asks for each of them.
#[derive(Debug, Default)]
struct Searched(Mutex<Option<Search>>);

#[derive(Debug)]
struct Search {
    folder: Node,
    /// The last change of the folder.
    changed: (Time, Time),
    began: Instant,
    known: HashMap<Vec<u8>, Known>,
}

/// What was found of a file that does not stand for others.
#[derive(Debug, Clone)]
enum Known {
    Other,
    Lacks(Arc<[u8]>),
}

impl Searched {
    fn lock(&self) -> MutexGuard<'_, Option<Search>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the file `name` was found to be a moment ago, in a folder that has not changed since.
    fn role_of(&self, folder: Node, changed: (Time, Time), name: &[u8]) -> Option<Role> {
        let search = self.lock();
        match search.as_ref().filter(|search| search.is_of(folder, changed))?.known.get(name)? {
            Known::Other => Some(Role::Other),
            Known::Lacks(missing) => Some(Role::Lacks(missing.to_vec())),
        }
    }

    /// Remembers what the files called `names` are, which a search has found that began then.
    fn remember(
        &self,
        folder: Node,
        changed: (Time, Time),
        began: Instant,
        (names, known): (impl Iterator<Item = Vec<u8>>, &Known),
    ) {
        let mut search = self.lock();
        if !search.as_ref().is_some_and(|search| search.is_of(folder, changed)) {
            *search = None;
        }
        let search = search.get_or_insert_with(|| Search { folder, changed, began, known: HashMap::new() });
        let room = MOST_KNOWN.saturating_sub(search.known.len());
        search.known.extend(names.take(room).map(|name| (name, known.clone())));
    }
}

impl Search {
    /// True if it was made in `folder`, which has not changed since, and a moment ago.
    fn is_of(&self, folder: Node, changed: (Time, Time)) -> bool {
        (self.folder, self.changed) == (folder, changed) && self.began.elapsed() < FRESH
    }
}

/// The files of a folder that an archive is made of, as they were when it was met.
#[derive(Debug)]
pub(super) struct Set {
    files: Vec<(Vec<u8>, Version)>,
    /// Who may read all of them.
    readers: Arc<Readers>,
    /// What else there might be with which it would be made of others, and what there is of that name.
    after: Vec<(Vec<u8>, Option<Version>)>,
    /// What tells it from others.
    pub(super) hash: u64,
    looked_at: Mutex<Instant>,
}

impl Set {
    /// The files in `folder` of `tree` that were found.
    fn of(tree: &dyn Tree, folder: Node, found: &Found<PartFile>) -> Result<Self, Error> {
        // As they were when they were found: by now somebody may have put another file in the place of one.
        let files: Vec<_> = found.files.iter().map(|(name, file)| (name.clone(), file.version)).collect();
        let readers = Arc::new(readers_of(found).ok_or(Error::NotFound)?);
        let after = found.after.iter().map(|name| Ok((name.clone(), version_of(tree, folder, name)?)));
        let after = after.collect::<Result<Vec<_>, Error>>()?;
        let mut hasher = DefaultHasher::new();
        (&files, &readers, &after).hash(&mut hasher);
        Ok(Self { files, readers, after, hash: hasher.finish(), looked_at: Mutex::new(Instant::now()) })
    }

    /// False if one of its files has changed, or is gone, or there is one more by now. Whoever asks often is told what
    /// was so a moment ago.
    pub(super) fn is_current(&self, tree: &dyn Tree, folder: Node) -> bool {
        let mut looked_at = self.looked_at.lock().unwrap_or_else(PoisonError::into_inner);
        if looked_at.elapsed() < FRESH {
            return true;
        }
        *looked_at = Instant::now();
        drop(looked_at);
        // What cannot be looked at now is as it was.
        let is_same = |name: &[u8], version: Option<Version>| match version_of(tree, folder, name) {
            Ok(found) => found == version,
            Err(_) => true,
        };
        self.files.iter().all(|(name, version)| is_same(name, Some(*version)))
            && self.after.iter().all(|(name, version)| is_same(name, *version))
    }
}

/// What the file `name` in `folder` of `tree` is like, if there is one. Nobody holds it.
fn version_of(tree: &dyn Tree, folder: Node, name: &[u8]) -> Result<Option<Version>, Error> {
    match tree.lookup(folder, name) {
        Ok(attributes) => {
            tree.forget(attributes.node, 1);
            Ok(Some(Version::of(&attributes)))
        }
        Err(Error::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a file shows as a folder.
#[derive(Debug)]
pub(super) enum Shown {
    /// It is a file.
    No,
    /// It is an archive.
    Yes,
    /// Together with others it is one, for these. Of files in a folder it is known which.
    Together(Option<Arc<Set>>, Arc<Readers>),
}

impl Shown {
    /// The files that make one together.
    pub(super) fn set(&self) -> Option<Arc<Set>> {
        match self {
            Self::Together(set, _) => set.clone(),
            Self::No | Self::Yes => None,
        }
    }

    /// Who may read all of them.
    pub(super) fn readers(&self) -> Option<Arc<Readers>> {
        match self {
            Self::Together(_, readers) => Some(Arc::clone(readers)),
            Self::No | Self::Yes => None,
        }
    }
}

/// The file `name` in `folder` of `tree`, if there is one, and what is known of it. Nobody holds it.
fn file_in(tree: &dyn Tree, folder: Node, name: &[u8]) -> Result<Option<PartFile>, Error> {
    let attributes = match tree.lookup(folder, name) {
        Err(Error::NotFound) => return Ok(None),
        attributes => attributes?,
    };
    // Another kind of file, such as a link, nobody has named.
    let opened = if attributes.kind == Kind::File {
        tree.open(attributes.node).map(|source| Some(PartFile::new(source, tree, &attributes)))
    } else {
        Ok(None)
    };
    tree.forget(attributes.node, 1);
    opened
}

/// The same of a folder of the file system, which is open when it is read.
fn file_of(tree: &Arc<FolderTree>, folder: Node, name: &[u8], open: &Arc<Open>) -> Result<Option<PartFile>, Error> {
    let attributes = match tree.lookup(folder, name) {
        Err(Error::NotFound) => return Ok(None),
        attributes => attributes?,
    };
    if attributes.kind != Kind::File {
        tree.forget(attributes.node, 1);
        return Ok(None);
    }
    let source = Arc::new(InTurn::new(tree, &attributes, open));
    Ok(Some(PartFile::new(source, &**tree, &attributes)))
}

impl LazyTree {
    /// The folder in which archives are found, if that is what `tree` is.
    fn own_folder(&self, tree: &dyn Tree) -> Option<&Arc<FolderTree>> {
        match &self.base {
            Base::Folder(folder) if std::ptr::addr_eq(Arc::as_ptr(folder), std::ptr::from_ref(tree)) => Some(folder),
            _ => None,
        }
    }

    /// What the file `name` in `folder` of `tree` is to those beside it.
    pub(super) fn role_of(&self, tree: &dyn Tree, folder: Node, name: &[u8]) -> Result<Role, Error> {
        if !parts::may_be_part(name) {
            return Ok(Role::Alone);
        }
        let own = self.own_folder(tree);
        // What comes to the folder, or goes, is seen at once.
        let changed = own.and_then(|own| own.attributes(folder).ok()).map(|found| (found.mtime, found.ctime));
        let began = Instant::now();
        if let Some(role) = changed.and_then(|changed| self.parts.searched.role_of(folder, changed, name)) {
            return Ok(role);
        }
        // Mostly there is no other file, so nobody asks for them.
        let readers: OnceCell<Readers> = OnceCell::new();
        let (in_turn, walked) = (Arc::default(), RefCell::new(Vec::new()));
        let find = |other: &[u8]| -> Result<Option<PartFile>, Error> {
            let file = match own {
                Some(own) => file_of(own, folder, other, &in_turn),
                None => file_in(tree, folder, other),
            };
            let Some(file) = file? else { return Ok(None) };
            let readers = match readers.get() {
                Some(readers) => readers,
                None if other == name => readers.get_or_init(|| file.readers.clone()),
                None => {
                    let own = readers::of_name(tree, folder, name)?;
                    readers.get_or_init(|| own)
                }
            };
            // What its owner keeps from others must not come to them with a file that was put beside it.
            if !readers.may_share(&file.readers) {
                return Ok(None);
            }
            if changed.is_some() && readers.is_alike(&file.readers) {
                walked.borrow_mut().push(other.to_vec());
            }
            Ok(Some(file))
        };
        let open = |name: &[u8]| {
            find(name).map_err(|error| {
                Problem::CannotOpen(match error {
                    Error::Io(error) => error,
                    error => error.errno().into(),
                })
            })
        };
        let found = parts::find(name, &open);
        match (&found, changed) {
            (Ok(Some(found)), Some(changed)) => {
                let others = found.files.iter().map(|(other, _)| other).filter(|other| **other != found.shown);
                self.parts.searched.remember(folder, changed, began, (others.cloned(), &Known::Other));
            }
            (Err(Wrong::Missing(missing)), Some(changed)) => {
                let lacks = Known::Lacks(missing.as_slice().into());
                self.parts.searched.remember(folder, changed, began, (walked.take().into_iter(), &lacks));
            }
            _ => {}
        }
        match found {
            Ok(None) => Ok(Role::Alone),
            // It may have been another file when its owner was looked at.
            Ok(Some(found)) if found.shown == name && !may_share(&found) => {
                Err(super::changed(&escape(name).to_string()))
            }
            Ok(Some(found)) if found.shown == name => Ok(Role::Shown(found)),
            Ok(Some(_)) => Ok(Role::Other),
            Err(Wrong::Missing(missing)) => Ok(Role::Lacks(missing)),
            Err(Wrong::Problem(Problem::Read { error, .. } | Problem::CannotOpen(error))) => Err(Error::Io(error)),
            Err(Wrong::Problem(problem)) => Err(io::Error::other(problem).into()),
        }
    }

    /// Whether the file `name` in `folder` of `tree`, which is `source`, is shown as a folder: it is an archive, or the
    /// part of one that stands for all of them.
    pub(super) fn shows(
        &self,
        tree: &dyn Tree,
        folder: Node,
        name: &[u8],
        source: &SharedSource,
    ) -> Result<Shown, Error> {
        let shown = |is_archive: bool| if is_archive { Shown::Yes } else { Shown::No };
        match self.with_room(|| self.role_of(tree, folder, name))? {
            Role::Alone => self.is_archive(&**source, name).map(shown),
            Role::Other => Ok(Shown::No),
            Role::Shown(found) => {
                let is_archive = self.is_archive(&*joined(&found)?, &found.whole)?;
                // What lies in an archive stays as it is.
                let readers = readers_of(&found).filter(|_| is_archive).map(Arc::new);
                let set = if readers.is_some() && self.own_folder(tree).is_some() {
                    Some(Arc::new(Set::of(tree, folder, &found)?))
                } else {
                    None
                };
                let readers = set.as_ref().map(|set| Arc::clone(&set.readers)).or(readers);
                Ok(readers.map_or(Shown::No, |readers| Shown::Together(set, readers)))
            }
            Role::Lacks(missing) => {
                let stands_alone = parts::stands_alone(name, source);
                let begins = parts::stem_of_number(name).is_some_and(|_| parts::is_first(name));
                if (begins && self.is_archive(&**source, name)? || parts::is_split(name, source))
                    && self.parts.told.is_new(folder, &missing)
                {
                    let is_there = version_of(tree, folder, &missing).is_ok_and(|found| found.is_some());
                    let (name, missing) = (escape(name), escape(&missing));
                    let then = if stands_alone { "" } else { "; it stays a file" };
                    let why = if is_there { parts::OF_ANOTHER } else { "" };
                    log::warn!("{name}: a part of it is missing: {missing}{why}{then}");
                }
                if stands_alone { self.is_archive(&**source, name).map(shown) } else { Ok(Shown::No) }
            }
        }
    }

    /// Looks whether the archive that `file`, called `name` in `folder`, stands for is still made of the same files. If
    /// it is not, that archive is none any more: what the file is is to be found anew.
    pub(super) fn look_at_parts(
        &self,
        (folder, name): (Node, &[u8]),
        file: Node,
        version: Version,
    ) -> Result<(), Error> {
        let mut archives = self.archives();
        let place = archives.place(folder, name);
        let Some((number, set)) = archives.set_of(file, place, version) else { return Ok(()) };
        drop(archives);
        if !self.within(folder, |tree, folder, _| Ok(set.is_current(tree, folder)))? {
            self.with(|archives, released| archives.outdate(number, released));
        }
        Ok(())
    }

    /// The parts of the archive that `file` stands for, which lies in `tree`; `None` if that is one file.
    pub(super) fn open_parts(
        &self,
        (number, file): (u32, &File),
        tree: &dyn Tree,
        source: &SharedSource,
    ) -> Result<Option<Found<PartFile>>, Error> {
        let (Where::Base(folder) | Where::Archive(_, folder)) = self.place(file.folder);
        match self.role_of(tree, folder, &file.name)? {
            Role::Shown(found) => {
                // Nodes that were given out are those of what it was.
                if let Some(set) = &file.set
                    && Set::of(tree, folder, &found)?.hash != set.hash
                {
                    return Err(super::changed(&escape(&file.name).to_string()));
                }
                // It was alone when it was met, and fewer may read it together with those that have come.
                let alone = found.files.iter().find(|(name, _)| *name == file.name).map(|(_, file)| &file.readers);
                if file.readers.is_none() && readers_of(&found).as_ref() != alone {
                    self.with(|archives, released| archives.outdate(number, released));
                    return Err(super::changed(&escape(&file.name).to_string()));
                }
                if !self.how.options.shape.ignore_zeros
                    && let Some(format) = parts::are_volumes(&found.files)?
                {
                    let what =
                        format!("its parts are volumes of {format}, each with headers of its own: -i joins them");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what).into());
                }
                Ok(Some(found))
            }
            Role::Alone => Ok(None),
            Role::Lacks(_) if parts::stands_alone(&file.name, source) => Ok(None),
            Role::Other | Role::Lacks(_) => Err(super::changed(&escape(&file.name).to_string())),
        }
    }

    /// The same, opened: files in `folder`, which must stay as they are.
    pub(super) fn open_in_folder(
        &self,
        found: &Found<PartFile>,
        file: &File,
        folder: &Arc<FolderTree>,
        steps: &Steps,
    ) -> Result<Opened, Error> {
        let (Where::Base(inner) | Where::Archive(_, inner)) = self.place(file.folder);
        let (mut unchanged, mut modified) = (Vec::new(), i64::MIN);
        for (name, PartFile { source, .. }) in &found.files {
            let attributes = folder.lookup(inner, name)?;
            let (node, reads) = (attributes.node, Arc::clone(&steps.reads));
            let of_folder = (Arc::clone(folder), node);
            let part = Unchanged::new(SharedSource::clone(source), of_folder, &attributes, reads);
            // It is held until it is closed.
            let part = part.inspect_err(|_| folder.forget(node, 1))?.holding();
            unchanged.push(Arc::new(part));
            modified = modified.max(nanoseconds(attributes.mtime));
        }
        let files = unchanged.iter().map(|part| Arc::clone(part) as SharedSource).collect();
        let name = format!("{} in {} files", escape(&found.whole), unchanged.len());
        let source = Arc::new(Joined::new(files, name)?);
        Ok((source, modified, unchanged))
    }
}

impl Told {
    fn is_new(&self, folder: Node, missing: &[u8]) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.len() < MOST_TOLD && told.insert((folder, missing.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of many parts would be looked for among all of them.
    #[test]
    fn what_a_search_has_found_is_known_for_a_moment() {
        let time = |seconds| Time { seconds, nanoseconds: 0 };
        let (searched, changed) = (Searched::default(), (time(1), time(2)));
        let names = || [b"x.002".to_vec(), b"x.003".to_vec()].into_iter();
        searched.remember(Node(7), changed, Instant::now(), (names(), &Known::Other));
        let lacks = Known::Lacks(b"y.002"[..].into());
        searched.remember(Node(7), changed, Instant::now(), ([b"y.001".to_vec()].into_iter(), &lacks));
        let role = |folder, changed, name: &[u8]| searched.role_of(folder, changed, name);
        // A slow machine may take longer.
        if let Some(role) = role(Node(7), changed, b"x.003") {
            assert!(matches!(role, Role::Other));
        }
        if let Some(role) = role(Node(7), changed, b"y.001") {
            assert!(matches!(role, Role::Lacks(missing) if missing == b"y.002"));
        }
        // Another folder, one that has changed, and another name.
        assert!(role(Node(8), changed, b"x.003").is_none());
        assert!(role(Node(7), (time(1), time(3)), b"x.003").is_none());
        assert!(role(Node(7), changed, b"x.001").is_none());
        let Some(long_ago) = Instant::now().checked_sub(FRESH) else { return };
        searched.remember(Node(9), changed, long_ago, (names(), &Known::Other));
        assert!(role(Node(9), changed, b"x.003").is_none());
    }

    #[test]
    fn what_searches_have_found_takes_bounded_memory() {
        let changed = (Time::default(), Time::default());
        let searched = Searched::default();
        for first in 0..4 {
            let names = (0..MOST_KNOWN / 2).map(|number| format!("{first}.{number}").into_bytes());
            searched.remember(Node(1), changed, Instant::now(), (names, &Known::Other));
        }
        assert!(searched.lock().as_ref().is_some_and(|search| search.known.len() <= MOST_KNOWN));
    }
}
