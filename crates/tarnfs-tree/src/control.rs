//! A tree that can be told what to do while it is mounted: a folder with two files, `command` and `output`, and further
//! trees that are put into it.
//!
//! What is written to `command` becomes lines, and each line goes to whoever runs them ([`ControlTree::new`]); nothing
//! is run here, on the thread that writes. What they say is in `output`. The folder is in no listing, and only its
//! owner can enter it.
//!
//! Trees that are added get ranges of node numbers behind all others. Where there are no more, the range of one that
//! was taken out is used again, if the kernel has forgotten all of it.

mod command;
mod editing;
mod output;

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use tarnfs_source::{MemorySource, SharedSource, Source as _};

use crate::edit::Edit;
pub use crate::edit::Token;
use crate::spaces::{OWN, Spaces};
use crate::{
    Attributes, Child, Error, HeldUp, Kind, LastKnown, Lifetime, Node, Time, Totals, Tree, UNKNOWN, Waiting, Work,
    Xattrs, path,
};
pub use command::{LONGEST_LINE, Line, Submitted};
use output::Output;

/// The folder, in the root. ratarmount calls it so, and scripts look for it there.
pub const FOLDER: &[u8] = b".ratarmount-control";

/// Numbers of the folder and of its files, behind those of the tree.
const NUMBER_OF_FOLDER: u64 = 0;
const COMMAND: u64 = 1;
const OUTPUT: u64 = 2;
const FILES: [(&[u8], u64); 2] = [(b"command", COMMAND), (b"output", OUTPUT)];

/// Positions in a listing before this are those of added trees, which come first; behind it are those of the tree that
/// the folder is in, moved by as much. They cannot be told apart by their size: ext4 has hashes of 63 bits for
/// positions.
const ADDED: u64 = 1 << 20;

/// Why a tree cannot be added, or taken out again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Something has that name.
    #[error("there is something of this name in the mount already")]
    Exists,
    /// The path ends in no name.
    #[error("names no folder inside the mount")]
    NoName,
    /// Nothing was added there.
    #[error("nothing was mounted here")]
    NotMounted,
    /// Another tree was added inside this one.
    #[error("something else is mounted inside of it: unmount that first")]
    InUse,
    /// What came of looking for the folder that it is to be in, or there are too many.
    #[error(transparent)]
    Tree(#[from] Error),
}

/// A tree, the folder to control it, and what was added to it.
pub struct ControlTree {
    tree: Arc<dyn Tree>,
    /// Where the numbers of the folder begin.
    first: u64,
    /// Replaced as a whole, so that nobody who asks a tree holds up who adds one.
    added: RwLock<Arc<Added>>,
    /// What the root of the tree was when somebody asked last, and when that was: who wants to control a mount must
    /// not wait for a server that is in it.
    root: Arc<LastRoot>,
    output: Arc<Output>,
    lines: SyncSender<Submitted>,
    begun: Time,
}

/// What the root was when somebody asked last.
struct LastRoot {
    tree: Arc<dyn Tree>,
    known: Mutex<Option<(Attributes, Instant)>>,
    /// Somebody is to ask who may wait: behind a server that is gone, one is enough.
    is_asked: AtomicBool,
}

/// The right to ask what the root is.
struct Asking(Arc<LastRoot>);

/// How long a range of numbers is not used again: a file of it may have been read a moment ago, or a request be stuck.
const REST: Duration = Duration::from_secs(if cfg!(test) { 0 } else { 120 });

/// Trees that were added, in the order of their ranges. Those that were taken out keep theirs.
#[derive(Clone)]
struct Added {
    spaces: Spaces,
    places: Vec<Option<AddedPlace>>,
    /// Of each range, how often its nodes were given out and not forgotten.
    held: Vec<Arc<AtomicU64>>,
    /// When each was taken out last.
    gone: Vec<Option<Instant>>,
    /// Which stand in a folder: most have none, and every look-up asks.
    by_folder: HashMap<Node, Vec<usize>>,
}

#[derive(Clone)]
struct AddedPlace {
    folder: Node,
    name: Vec<u8>,
    tree: Arc<dyn Tree>,
    /// What its root was when somebody asked last: who lists the folder that it stands in must not wait for it.
    root: Arc<Mutex<Option<Attributes>>>,
    _kept: Arc<dyn Any + Send + Sync>,
}

/// How old what is known of the root may be before somebody who waits for the tree asks again.
const FRESH: Duration = Duration::from_secs(if cfg!(test) { 0 } else { 1 });

impl fmt::Debug for ControlTree {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ControlTree").field("first", &self.first).finish_non_exhaustive()
    }
}

/// Whose a node is.
enum Whose {
    Tree,
    /// One of the folder and its files.
    Own(u64),
    /// Of an added tree: which, and its number there.
    Added(Arc<Added>, usize, Node),
}

impl Added {
    /// The tree with this number, if it is still there.
    fn tree(&self, number: usize) -> Result<&Arc<dyn Tree>, Error> {
        let place = self.places.get(number).and_then(Option::as_ref).ok_or(Error::NotFound)?;
        Ok(&place.tree)
    }

    /// Says that a node of this tree, with these attributes there, is given to somebody.
    fn give(&self, number: usize, attributes: &Attributes) -> Result<Attributes, Error> {
        let outer = self.spaces.attributes(number, attributes)?;
        if let Some(held) = self.held.get(number) {
            held.fetch_add(1, Ordering::Relaxed);
        }
        Ok(outer)
    }

    /// Somebody forgets nodes of this tree.
    fn forget(&self, number: usize, times: u64) {
        if let Some(held) = self.held.get(number) {
            let less = |held: u64| Some(held.saturating_sub(times));
            let _ = held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// A range for one more tree: a new one, or one that nobody knows any more.
    fn range(&mut self, tree: &dyn Tree) -> Result<usize, Error> {
        let has_number = self.places.len() as u64 + 2 < ADDED;
        let error = match if has_number { Some(self.spaces.add(tree)) } else { None } {
            Some(Ok(())) => {
                self.places.push(None);
                self.held.push(Arc::default());
                self.gone.push(None);
                return Ok(self.places.len() - 1);
            }
            Some(Err(error)) => error,
            None => std::io::Error::other("there were too many mounts in this one").into(),
        };
        let is_free = |&number: &usize| {
            self.gone[number].is_some_and(|since| since.elapsed() >= REST)
                && self.held[number].load(Ordering::Relaxed) == 0
                && self.spaces.width(number) >= tree.node_limit()
        };
        let oldest = (0..self.places.len()).filter(is_free).min_by_key(|&number| self.gone[number]);
        oldest.ok_or(error)
    }

    /// What stands in `folder`: numbers and names.
    fn inside(&self, folder: Node) -> impl Iterator<Item = (usize, &AddedPlace)> {
        let numbers = self.by_folder.get(&folder).into_iter().flatten();
        numbers.filter_map(|&number| Some((number, self.places.get(number)?.as_ref()?)))
    }

    fn root(&self, number: usize) -> Result<Attributes, Error> {
        let place = self.places.get(number).and_then(Option::as_ref).ok_or(Error::NotFound)?;
        let root = place.tree.attributes(Node::ROOT)?;
        *place.root.lock().unwrap_or_else(PoisonError::into_inner) = Some(root.clone());
        self.give(number, &root)
    }

    /// The same for a listing, which must not wait for it: then only name and kind are right, and no node is given. Who
    /// wants to know more asks it, and waits alone.
    fn root_in_listing(&self, number: usize) -> Result<Attributes, Error> {
        let place = self.places.get(number).and_then(Option::as_ref).ok_or(Error::NotFound)?;
        let last = || place.root.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match if place.tree.is_ready(Node::ROOT) { None } else { last() } {
            Some(root) => Ok(Attributes { node: UNKNOWN, ..root }),
            None => self.root(number),
        }
    }
}

impl LastRoot {
    fn known(&self) -> Option<(Attributes, Instant)> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks what it is.
    fn ask(&self) -> Result<Attributes, Error> {
        let root = self.tree.attributes(Node::ROOT)?;
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some((root.clone(), Instant::now()));
        Ok(root)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.is_asked.store(false, Ordering::SeqCst);
    }
}

impl ControlTree {
    /// `tree` with the folder in it. Lines that are written go to `lines`; while it is full, they are refused.
    pub fn new(tree: Arc<dyn Tree>, lines: SyncSender<Submitted>) -> Result<Self, Error> {
        let first = tree.node_limit();
        let own = first.checked_add(OWN).ok_or_else(|| std::io::Error::other("there are no numbers left for nodes"))?;
        let begun = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let known = Mutex::new(tree.attributes(Node::ROOT).ok().map(|root| (root, Instant::now())));
        let root = LastRoot { tree: Arc::clone(&tree), known, is_asked: AtomicBool::new(false) };
        Ok(Self {
            tree,
            first,
            added: RwLock::new(Arc::new(Added {
                spaces: Spaces::new(own, &[])?,
                places: Vec::new(),
                held: Vec::new(),
                gone: Vec::new(),
                by_folder: HashMap::new(),
            })),
            root: Arc::new(root),
            output: Arc::default(),
            lines,
            begun: Time { seconds: begun.as_secs() as i64, nanoseconds: begun.subsec_nanos() },
        })
    }

    /// Adds a text to `output`, as it is.
    pub fn say(&self, text: &[u8]) {
        self.output.say(text);
    }

    /// Whether a tree could be added at `path` now, for those who have to open it first.
    pub fn check(&self, path: &[u8]) -> Result<(), Refusal> {
        let (folder, name) = split(path)?;
        let found = path::find(self, folder, true)?;
        let result = self.check_in(&found, name);
        self.release(found.node);
        result
    }

    /// Puts `tree` at `path` in the mount. The folder that it is to be in must be there, and nothing of its name.
    pub fn add(&self, path: &[u8], tree: Arc<dyn Tree>) -> Result<(), Refusal> {
        self.add_with(path, tree, Arc::new(()))
    }

    /// The same. What is `kept` is dropped when the tree is taken out, or with this one.
    pub fn add_with(&self, path: &[u8], tree: Arc<dyn Tree>, kept: Arc<dyn Any + Send + Sync>) -> Result<(), Refusal> {
        let (folder, name) = split(path)?;
        let found = path::find(self, folder, true)?;
        let result = self.check_in(&found, name).and_then(|()| self.add_in(found.node, name, (tree, kept)));
        if result.is_err() {
            self.release(found.node);
        }
        // Else it is held: its number must not become another's as long as something stands in it.
        result
    }

    fn check_in(&self, folder: &Attributes, name: &[u8]) -> Result<(), Refusal> {
        if folder.kind != Kind::Folder || self.is_own(folder.node) {
            return Err(Error::NotAFolder.into());
        }
        match self.lookup(folder.node, name) {
            Err(Error::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(found) => {
                self.forget(found.node, 1);
                Err(Refusal::Exists)
            }
        }
    }

    fn add_in(
        &self,
        folder: Node,
        name: &[u8],
        (tree, kept): (Arc<dyn Tree>, Arc<dyn Any + Send + Sync>),
    ) -> Result<(), Refusal> {
        let root = Arc::new(Mutex::new(tree.attributes(Node::ROOT).ok()));
        let mut added = self.added.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = Added::clone(&added);
        if next.inside(folder).any(|(_, place)| place.name == name) {
            return Err(Refusal::Exists);
        }
        let number = next.range(&*tree)?;
        next.gone[number] = None;
        // In this order they are listed.
        let numbers = next.by_folder.entry(folder).or_default();
        numbers.insert(numbers.partition_point(|&other| other < number), number);
        next.places[number] = Some(AddedPlace { folder, name: name.to_vec(), tree, root, _kept: kept });
        *added = Arc::new(next);
        Ok(())
    }

    /// Takes out what was added at `path`. Files that are open can be read to their end.
    pub fn remove(&self, path: &[u8]) -> Result<(), Refusal> {
        let (folder, name) = split(path)?;
        let found = path::find(self, folder, true)?;
        self.release(found.node);
        let mut added = self.added.write().unwrap_or_else(PoisonError::into_inner);
        let number = added.inside(found.node).find(|(_, place)| place.name == name).map(|(number, _)| number);
        let number = number.ok_or(Refusal::NotMounted)?;
        let is_inside = |place: &AddedPlace| added.spaces.inner(place.folder).is_some_and(|(other, _)| other == number);
        if added.places.iter().flatten().any(is_inside) {
            return Err(Refusal::InUse);
        }
        let mut next = Added::clone(&added);
        next.places[number] = None;
        next.gone[number] = Some(Instant::now());
        if let Some(numbers) = next.by_folder.get_mut(&found.node) {
            numbers.retain(|&other| other != number);
            if numbers.is_empty() {
                next.by_folder.remove(&found.node);
            }
        }
        // Dropped outside the lock, as it may hold much.
        let before = std::mem::replace(&mut *added, Arc::new(next));
        drop(added);
        drop(before);
        self.release(found.node);
        Ok(())
    }

    /// Forgets a folder that was found by its path. The root is there without having been looked up.
    fn release(&self, folder: Node) {
        if folder != Node::ROOT {
            self.forget(folder, 1);
        }
    }

    fn added(&self) -> Arc<Added> {
        Arc::clone(&self.added.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn whose(&self, node: Node) -> Result<Whose, Error> {
        let Some(own) = node.0.checked_sub(self.first) else { return Ok(Whose::Tree) };
        if own <= OUTPUT {
            return Ok(Whose::Own(own));
        }
        let added = self.added();
        let (number, inner) = added.spaces.inner(node).ok_or(Error::NotFound)?;
        Ok(Whose::Added(added, number, inner))
    }

    /// Asks the tree that a node is in, which is not one of our own.
    fn ask<T>(
        &self,
        node: Node,
        own: impl FnOnce(u64) -> Result<T, Error>,
        ask: impl FnOnce(&dyn Tree, Node) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match self.whose(node)? {
            Whose::Tree => ask(&*self.tree, node),
            Whose::Own(number) => own(number),
            Whose::Added(added, number, inner) => ask(&**added.tree(number)?, inner),
        }
    }

    /// What the folder, or one of its files, is: of whoever serves the mount, and for nobody else.
    fn own(&self, number: u64) -> Attributes {
        let (kind, mode, size, time) = match number {
            NUMBER_OF_FOLDER => (Kind::Folder, 0o500, 0, self.begun),
            COMMAND => (Kind::File, 0o200, 0, self.begun),
            _ => (Kind::File, 0o400, self.output.len(), self.output.changed().unwrap_or(self.begun)),
        };
        Attributes {
            node: Node(self.first + number),
            kind,
            mode,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            links: if number == NUMBER_OF_FOLDER { 2 } else { 1 },
            size,
            blocks: size.div_ceil(512),
            mtime: time,
            atime: time,
            ctime: time,
        }
    }

    /// What stands in `folder` beside what is in it anyway.
    fn placed(&self, folder: Node, name: &[u8]) -> Option<Result<Attributes, Error>> {
        if folder == Node::ROOT && name == FOLDER {
            return Some(Ok(self.own(NUMBER_OF_FOLDER)));
        }
        let added = self.added();
        let (number, _) = added.inside(folder).find(|(_, place)| place.name == name)?;
        Some(added.root(number))
    }

    /// Somebody has got an answer from the tree for which he had to wait: time to learn what its root is.
    fn refresh_root(&self, folder: Node) {
        if folder == Node::ROOT
            && !self.tree.is_ready(folder)
            && self.root.known().is_none_or(|(_, at)| at.elapsed() >= FRESH)
        {
            // Where it fails, it stays as it was.
            let _ = self.root.ask();
        }
    }
}

/// The folder that `path` leads to, and the name in it.
fn split(path: &[u8]) -> Result<(&[u8], &[u8]), Refusal> {
    let end = path.iter().rposition(|&byte| byte != b'/').ok_or(Refusal::NoName)? + 1;
    let path = &path[..end];
    let start = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let (folder, name) = path.split_at(start);
    if matches!(name, b"." | b"..") || (folder.iter().all(|&byte| byte == b'/') && name == FOLDER) {
        return Err(Refusal::NoName);
    }
    Ok((folder, name))
}

impl Tree for ControlTree {
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        if let Some(placed) = self.placed(folder, name) {
            return placed;
        }
        match self.whose(folder)? {
            Whose::Tree => {
                let found = self.tree.lookup(folder, name);
                self.refresh_root(folder);
                found
            }
            Whose::Own(NUMBER_OF_FOLDER) => {
                let file = FILES.into_iter().find(|(file, _)| *file == name);
                file.map(|(_, number)| self.own(number)).ok_or(Error::NotFound)
            }
            Whose::Own(_) => Err(Error::NotAFolder),
            Whose::Added(added, number, inner) => added.give(number, &added.tree(number)?.lookup(inner, name)?),
        }
    }

    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        let all = self.added();
        for (number, place) in all.inside(folder) {
            // One that cannot be asked is found by its name, with its error.
            if number as u64 >= from
                && let Ok(attributes) = all.root_in_listing(number)
            {
                let is_given = attributes.node != UNKNOWN;
                if !receive(Child { name: &place.name, attributes, next: number as u64 + 1 }) {
                    if is_given {
                        all.forget(number, 1);
                    }
                    return Ok(());
                }
            }
        }
        let from = from.saturating_sub(ADDED);
        // What stands in the place of something else is not shown twice.
        let placed: HashSet<&[u8]> = all.inside(folder).map(|(_, place)| place.name.as_slice()).collect();
        let is_hidden = |name: &[u8]| (folder == Node::ROOT && name == FOLDER) || placed.contains(name);
        match self.whose(folder)? {
            Whose::Tree => self.tree.read_dir(folder, from, &mut |child| {
                if is_hidden(child.name) {
                    self.tree.forget(child.attributes.node, 1);
                    return true;
                }
                receive(Child { next: child.next.saturating_add(ADDED), ..child })
            }),
            Whose::Own(NUMBER_OF_FOLDER) => {
                for (place, (name, number)) in (1_u64..).zip(FILES).skip(usize::try_from(from).unwrap_or(usize::MAX)) {
                    if !receive(Child { name, attributes: self.own(number), next: place + ADDED }) {
                        break;
                    }
                }
                Ok(())
            }
            Whose::Own(_) => Err(Error::NotAFolder),
            Whose::Added(added, number, inner) => {
                let mut failure = None;
                let tree = added.tree(number)?;
                tree.read_dir(inner, from, &mut |child| {
                    if is_hidden(child.name) {
                        tree.forget(child.attributes.node, 1);
                        return true;
                    }
                    if child.attributes.node == UNKNOWN {
                        return receive(Child { next: child.next.saturating_add(ADDED), ..child });
                    }
                    match added.give(number, &child.attributes) {
                        Ok(attributes) => {
                            let next = child.next.saturating_add(ADDED);
                            let is_taken = receive(Child { attributes, next, ..child });
                            if !is_taken {
                                added.forget(number, 1);
                            }
                            is_taken
                        }
                        Err(error) => {
                            failure = Some(error);
                            false
                        }
                    }
                })?;
                failure.map_or(Ok(()), Err)
            }
        }
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        match self.whose(node)? {
            Whose::Tree if node == Node::ROOT => self.root.ask(),
            Whose::Tree => self.tree.attributes(node),
            Whose::Own(number) => Ok(self.own(number)),
            Whose::Added(added, number, inner) => {
                added.spaces.attributes(number, &added.tree(number)?.attributes(inner)?)
            }
        }
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        match self.whose(folder)? {
            Whose::Tree => self.tree.parent(folder),
            Whose::Own(NUMBER_OF_FOLDER) => Ok(Node::ROOT),
            Whose::Own(_) => Ok(Node(self.first)),
            Whose::Added(added, number, Node::ROOT) => {
                added.places.get(number).and_then(Option::as_ref).map(|place| place.folder).ok_or(Error::NotFound)
            }
            Whose::Added(added, number, inner) => added.spaces.outer(number, added.tree(number)?.parent(inner)?),
        }
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>, Error> {
        self.ask(node, |_| Err(Error::WrongKind), |tree, inner| tree.read_link(inner))
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        self.ask(node, |_| Ok(Vec::new()), |tree, inner| tree.xattrs(inner))
    }

    fn xattr(&self, node: Node, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.ask(node, |_| Ok(None), |tree, inner| tree.xattr(inner, name))
    }

    fn each_version(
        &self,
        folder: Node,
        name: &[u8],
        from: u64,
        receive: &mut dyn FnMut(Attributes) -> bool,
    ) -> Result<(), Error> {
        if let Some(placed) = self.placed(folder, name) {
            if from == 0 {
                receive(placed?);
            }
            return Ok(());
        }
        match self.whose(folder)? {
            Whose::Tree => self.tree.each_version(folder, name, from, receive),
            Whose::Own(_) => {
                if from == 0
                    && let Ok(attributes) = self.lookup(folder, name)
                {
                    receive(attributes);
                }
                Ok(())
            }
            Whose::Added(added, number, inner) => {
                let mut result = Ok(true);
                added.tree(number)?.each_version(inner, name, from, &mut |attributes| {
                    result = added.give(number, &attributes).map(&mut *receive);
                    matches!(result, Ok(true))
                })?;
                result.map(drop)
            }
        }
    }

    fn node_limit(&self) -> u64 {
        // There is always room for one more.
        1 << 63
    }

    fn forget(&self, node: Node, times: u64) {
        match self.whose(node) {
            Ok(Whose::Tree) => self.tree.forget(node, times),
            Ok(Whose::Added(added, number, inner)) => {
                // What is gone has forgotten everything. The root is there without having been looked up.
                if let Ok(tree) = added.tree(number)
                    && inner != Node::ROOT
                {
                    tree.forget(inner, times);
                }
                added.forget(number, times);
            }
            Ok(Whose::Own(_)) | Err(_) => {}
        }
    }

    fn close_folder(&self, folder: Node) {
        let _ = self.ask(
            folder,
            |_| Ok(()),
            |tree, inner| {
                tree.close_folder(inner);
                Ok(())
            },
        );
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        let own = |number| match number {
            NUMBER_OF_FOLDER => Err(Error::IsAFolder),
            COMMAND => Ok(Arc::new(MemorySource::new(Vec::new(), "command")) as SharedSource),
            _ => Ok(Arc::clone(&self.output) as SharedSource),
        };
        self.ask(node, own, |tree, inner| tree.open(inner))
    }

    fn path_of(&self, node: Node) -> Option<Vec<u8>> {
        self.ask(node, |_| Ok(None), |tree, inner| Ok(tree.path_of(inner))).ok().flatten()
    }

    fn owner_names(&self, node: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        self.ask(node, |_| Ok((Vec::new(), Vec::new())), |tree, inner| tree.owner_names(inner))
    }

    /// The roots of trees that were added can be taken out.
    fn lifetime(&self, node: Node) -> Lifetime {
        match self.whose(node) {
            Ok(Whose::Tree) => self.tree.lifetime(node),
            Ok(Whose::Added(added, number, inner)) if inner != Node::ROOT => {
                added.tree(number).map_or(Lifetime::None, |tree| tree.lifetime(inner))
            }
            Ok(Whose::Added(..) | Whose::Own(_)) | Err(_) => Lifetime::None,
        }
    }

    /// A tree can be added anywhere.
    fn lifetime_of_gaps(&self, _: Node) -> Lifetime {
        Lifetime::None
    }

    fn totals(&self) -> Totals {
        let mut trees = vec![Arc::clone(&self.tree)];
        trees.extend(self.added().places.iter().flatten().map(|place| Arc::clone(&place.tree)));
        // What is added later may have them.
        Totals { has_xattrs: true, has_acls: true, is_immutable: false, ..Totals::of_all(&trees) }
    }

    fn work(&self) -> Work {
        let mut trees = vec![Arc::clone(&self.tree)];
        trees.extend(self.added().places.iter().flatten().map(|place| Arc::clone(&place.tree)));
        Work::of_all(&trees)
    }

    fn edit(&self) -> Option<&dyn Edit> {
        Some(self)
    }

    fn waiting(&self) -> Option<&dyn Waiting> {
        Some(self)
    }
}

impl Waiting for ControlTree {
    fn attributes_at_once(&self, node: Node) -> Option<LastKnown> {
        let (attributes, at) = self.root.known().filter(|_| node == Node::ROOT)?;
        let is_old = at.elapsed() >= FRESH;
        let refresh = (is_old && !self.root.is_asked.swap(true, Ordering::SeqCst)).then(|| {
            let asking = Asking(Arc::clone(&self.root));
            Box::new(move || drop(asking.0.ask())) as Box<dyn FnOnce() + Send>
        });
        Some(LastKnown { attributes, is_old, refresh })
    }

    fn is_ready(&self, node: Node) -> bool {
        self.ask(node, |_| Ok(true), |tree, inner| Ok(tree.is_ready(inner))).unwrap_or(true)
    }

    fn lists_at_once(&self, folder: Node, from: u64) -> bool {
        self.ask(folder, |_| Ok(true), |tree, inner| Ok(tree.lists_at_once(inner, from))).unwrap_or(true)
            && self.is_ready(folder)
    }

    fn lane(&self, node: Node) -> u64 {
        self.ask(node, |_| Ok(0), |tree, inner| Ok(tree.lane(inner))).unwrap_or(0)
    }

    fn held_up(&self, node: Node) -> Option<HeldUp> {
        self.ask(node, |_| Ok(None), |tree, inner| Ok(tree.held_up(inner))).unwrap_or(None)
    }

    fn wait_out(&self, node: Node) {
        let waited = self.ask(
            node,
            |_| Ok(()),
            |tree, inner| {
                tree.wait_out(inner);
                Ok(())
            },
        );
        // What is not there any more holds nobody up.
        drop(waited);
    }

    fn asked_for(&self, folder: Node, name: &[u8]) -> Node {
        if folder == Node::ROOT && name == FOLDER {
            // Who controls a mount must not wait for what is in it.
            return Node(self.first);
        }
        let added = self.added();
        if let Some((number, _)) = added.inside(folder).find(|(_, place)| place.name == name) {
            return added.spaces.outer(number, Node::ROOT).unwrap_or(folder);
        }
        match self.whose(folder) {
            Ok(Whose::Tree) => self.tree.asked_for(folder, name),
            Ok(Whose::Added(added, number, inner)) => {
                let asked = added.tree(number).map(|tree| tree.asked_for(inner, name));
                asked.and_then(|asked| added.spaces.outer(number, asked)).unwrap_or(folder)
            }
            Ok(Whose::Own(_)) | Err(_) => folder,
        }
    }
}

#[cfg(test)]
mod tests;
