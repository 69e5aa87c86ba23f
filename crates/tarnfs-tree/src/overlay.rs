//! A tree that can be written to, over any other: what is below stays as it is, and what is changed is in a folder of
//! its own.
//!
//! Contents of files are plain files in that folder ([`files`]). All else, the names, attributes, extended attributes,
//! whiteouts, hard links and renames, is in one SQLite file beside them ([`database`], [`rows`]). What is below is
//! called by its path there, and only of what was changed: that has a row, and so have the folders that it lies in.
//!
//! One system call is one transaction. Its log is written at once and brought to the disk by `fsync` (of any file or
//! folder), which also brings the names of files there; so what was written is found after this process was killed, and
//! what `fsync` has promised after a loss of power.
//!
//! Node numbers are those of what is below; what was made here has numbers behind them. What is below and was changed
//! keeps its number.
//!
//! Who waits for whom: whoever changes something holds the database's writing connection, and asks nothing of what is
//! below meanwhile: that is asked before ([`Overlay::prepare`]). Who copies a file holds its [`content::Content`], and
//! no connection.

mod access;
mod below;
mod commit;
mod content;
mod database;
mod editing;
mod files;
mod known;
mod linked;
mod listing;
mod ratarmount;
mod reaper;
mod rows;
mod status;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

use rustix::io::Errno;
use rustix::process::{Gid, getgroups};
use tarnfs_source::{FollowedFile, SharedSource};

use crate::asker::{begins, taking_long};
use crate::edit::{Edit, Space};
use crate::folder::HiddenFolder;
use crate::lanes::new_lane;
use crate::{Attributes, Child, Error, HeldUp, Kind, Lifetime, Node, Totals, Tree, Waiting, Work, Xattrs};
use content::{Content, Descriptors, OpenedFile};
use database::Database;
use files::Files;
use known::{Forgotten, Known, Met, Sight};
use listing::BELOW;
use rows::{NodeRow, ROOT, Said};

pub use commit::{Appends, GoesInto, HEAD, MountedOver, Written};
pub use status::{Change, Changed, ContentPlace, Held, Named, Now, OverlayStatus};

/// Nodes that can be made.
const OWN: u64 = 1 << 40;

/// The longest name of a file (`NAME_MAX`).
const LONGEST_NAME: usize = 255;

/// Folders in one another, at most.
const DEEPEST: usize = 1 << 16;

/// Why a folder cannot be used for what is written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", tarnfs_format::name::escape(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())))]
pub struct OverlayError {
    /// The folder.
    pub path: PathBuf,
    /// What came of trying.
    pub error: Error,
}

/// See the module.
#[derive(Debug)]
pub struct OverlayTree(Arc<Overlay>);

/// What [`OverlayTree`] and the files that are open in it share.
struct Overlay {
    lower: Arc<dyn Tree>,
    /// Where the numbers of what was made here begin.
    first: u64,
    files: Files,
    database: Database,
    known: Known,
    met: Met,
    contents: Mutex<HashMap<Node, Weak<Content>>>,
    /// How many files that are below have got a content here.
    copies: AtomicU64,
    quiet: Mutex<Quiet>,
    /// Nodes without a name, which go when nobody knows them any more.
    orphans: Mutex<HashSet<u64>>,
    /// The file that was made last, if it was not opened yet.
    made: Mutex<Option<(u64, Arc<File>)>>,
    /// Nodes whose path below leads to nothing, and when that was seen.
    lost: Mutex<HashMap<u64, Instant>>,
    /// Folders whose names were compared with what is below.
    compared: Mutex<HashSet<u64>>,
    lane: u64,
    /// Starts with the first of them, as threads that are there before have rights that are given up.
    reaper: OnceLock<Option<Mutex<Sender<u64>>>>,
    descriptors: Arc<Descriptors>,
    /// Those that who mounts is in.
    groups: Vec<Gid>,
    /// What is below may show the folder, too, by another way.
    _hidden: HiddenFolder,
    me: Weak<Overlay>,
}

/// Folders of which nothing is said by name: who looks something up there asks what is below alone.
#[derive(Debug, Default)]
struct Quiet {
    /// How often something was changed. What was learned before a change is not noted after it.
    changes: u64,
    folders: HashSet<u64>,
    /// Folders of which something was said. That it is still so is not asked again.
    others: HashSet<u64>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the numbers of what is made over `lower` begin.
fn numbers_behind(lower: &dyn Tree) -> Result<u64, Error> {
    let first = lower.node_limit();
    match first.checked_add(OWN) {
        Some(end) if end <= 1 << 63 => Ok(first),
        _ => Err(io::Error::other("there are no numbers left for what is to be written").into()),
    }
}

/// That a node is not where it was.
fn stale() -> Error {
    Errno::STALE.into()
}

impl fmt::Debug for Overlay {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Overlay").field("files", &self.files).finish_non_exhaustive()
    }
}

impl OverlayTree {
    /// What is written over `lower` goes to the `folder`, which is made if it is not there. It may have been used
    /// before, also by ratarmount. `user` says who uses it, for others who want to: an overlay is for one at a time.
    pub fn open(lower: Arc<dyn Tree>, folder: &Path, user: &str) -> Result<Self, OverlayError> {
        Self::open_at(lower, folder, user).map_err(|error| OverlayError { path: folder.to_owned(), error })
    }

    /// What a mount with the `folder` would show. Nothing in it is changed, and what is written to the tree fails.
    /// There has to be an overlay of tarnfs in it.
    pub fn look(lower: Arc<dyn Tree>, folder: &Path) -> Result<Self, OverlayError> {
        let look = || {
            let files = Files::look(folder)?;
            files.check_names(database::NAME)?;
            let database = Database::open_to_look(&files.path().join(database::NAME))?;
            let tree = Self::with(lower, files, database)?;
            tree.0.met.meet(ROOT, Node::ROOT);
            if tree.0.row(ROOT)?.is_none() {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "was never mounted to be written to").into());
            }
            tree.0.meet_shared()?;
            Ok(tree)
        };
        look().map_err(|error: Error| OverlayError { path: folder.to_owned(), error })
    }

    fn open_at(lower: Arc<dyn Tree>, folder: &Path, user: &str) -> Result<Self, Error> {
        numbers_behind(&*lower)?;
        let files = Files::open(folder, user)?;
        files.check_names(database::NAME)?;
        let path = files.prepare(database::NAME)?;
        let database = match Database::open(&path) {
            // What was written is no longer of use to anybody if it cannot be opened.
            Err(error) if database::is_full(&error) && files.give_reserve() => Database::open(&path)?,
            opened => opened?,
        };
        let tree = Self::with(lower, files, database)?;
        tree.0.begin()?;
        // For what is removed in it, and before somebody else has the room.
        tree.0.files.take_reserve();
        Ok(tree)
    }

    fn with(lower: Arc<dyn Tree>, files: Files, database: Database) -> Result<Self, Error> {
        let first = numbers_behind(&*lower)?;
        let hidden = HiddenFolder::new(files.root())?;
        let groups = getgroups()?;
        let overlay = Arc::new_cyclic(|me| Overlay {
            me: Weak::clone(me),
            lower,
            first,
            files,
            database,
            known: Known::default(),
            met: Met::default(),
            contents: Mutex::default(),
            copies: AtomicU64::new(0),
            quiet: Mutex::default(),
            orphans: Mutex::default(),
            made: Mutex::default(),
            lost: Mutex::default(),
            compared: Mutex::default(),
            lane: new_lane(),
            reaper: OnceLock::new(),
            groups,
            descriptors: Descriptors::new(),
            _hidden: hidden,
        });
        Ok(Self(overlay))
    }

    /// Everything is on the disk, and nothing is left of files that were removed.
    pub fn finish(&self) {
        // Each folder behind what lies in it.
        match self.0.database.ask(rows::without_names) {
            Ok(orphans) => self.0.reap(&orphans),
            Err(error) => log::warn!("{}: removed files stay: {error}", self.0.files.path().display()),
        }
        if let Err(error) = self.0.sync() {
            log::error!("{}: bringing what was written to the disk: {error}", self.0.files.path().display());
        }
        self.0.database.finish();
    }

    /// The folder of what is written, without symbolic links.
    pub fn folder(&self) -> &Path {
        self.0.files.path()
    }
}

impl AsFd for OverlayTree {
    /// The folder of what is written.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.files.root()
    }
}

/// Where a node is.
enum NodePlace {
    /// As it is below.
    Lower,
    /// In the overlay, under this number.
    Own(u64),
}

impl Overlay {
    /// The root, what lies in the folder already, and what a mount that was killed has left.
    fn begin(self: &Arc<Self>) -> Result<(), Error> {
        self.met.meet(ROOT, Node::ROOT);
        let has_root = self.database.ask(|connection| Ok(rows::node(connection, ROOT)?.is_some()))?;
        if !has_root {
            let root = self.lower.attributes(Node::ROOT)?;
            let xattrs = self.lower.xattrs(Node::ROOT)?;
            // Both or nothing: what cannot be taken over now can be next time.
            self.in_reserve(|| ratarmount::import(self, &|editing| editing.begin(&root, &xattrs)))?;
        }
        let orphans = self.database.ask(rows::without_names)?;
        lock(&self.orphans).extend(&orphans);
        self.reap(&orphans);
        self.avoid_places()?;
        self.meet_shared()?;
        self.files.sweep(&|place| {
            self.database.ask(|connection| rows::has_place(connection, place)).map_err(content::to_io)
        })?;
        Ok(())
    }

    /// What has several names below is known by its number there, whichever of them somebody asks for.
    fn meet_shared(&self) -> Result<(), Error> {
        for id in self.database.ask(rows::shared)? {
            if let Some(row) = self.row(id)? {
                self.node_of(&row)?;
            }
        }
        Ok(())
    }

    fn place(&self, node: Node) -> NodePlace {
        match node.0.checked_sub(self.first) {
            Some(id) => NodePlace::Own(id),
            None => self.met.id(node).map_or(NodePlace::Lower, NodePlace::Own),
        }
    }

    fn row(&self, id: u64) -> Result<Option<NodeRow>, Error> {
        self.database.ask(|connection| rows::node(connection, id))
    }

    fn known_row(&self, id: u64) -> Result<NodeRow, Error> {
        self.row(id)?.ok_or_else(stale)
    }

    /// What is said of a node of the overlay.
    fn shown(&self, row: &NodeRow) -> Result<Attributes, Error> {
        let node = self.node_of(row)?;
        let now = self.now_below(row, node);
        // What was asked there may be another one by now, which has its own number.
        let node = self.met.lower(row.id).unwrap_or(node);
        Ok(self.shown_beside(row, now.as_ref(), node))
    }

    /// The same of one that somebody knows as `node`.
    fn shown_now(&self, row: &NodeRow, node: Node) -> Attributes {
        self.shown_beside(row, self.now_below(row, node).as_ref(), node)
    }

    fn shown_beside(&self, row: &NodeRow, now: Option<&Attributes>, node: Node) -> Attributes {
        match now {
            Some(now) => self.shown_as(&below::following(row, now), node),
            None => self.shown_as(row, node),
        }
    }

    /// The same, where nothing is asked of what is below.
    fn shown_as(&self, row: &NodeRow, node: Node) -> Attributes {
        let mut shown = Attributes {
            node,
            kind: row.kind,
            mode: row.mode,
            uid: row.uid,
            gid: row.gid,
            links: row.links,
            size: if row.kind == Kind::Symlink { row.target.len() as u64 } else { row.size },
            blocks: row.blocks,
            mtime: row.mtime,
            atime: row.atime,
            ctime: row.ctime,
        };
        if let (Kind::File, Some(place)) = (row.kind, &row.place) {
            let open = self.opened(node);
            // Nothing is held while a disk is asked.
            let made = lock(&self.made).as_ref().filter(|(id, _)| *id == row.id).map(|(_, made)| Arc::clone(made));
            let stat = match (open.as_ref().and_then(|content| content.upper()), made) {
                (Some(upper), _) => rustix::fs::fstat(upper),
                (None, Some(made)) => rustix::fs::fstat(made),
                (None, None) => self.files.stat(place),
            };
            match stat {
                Ok(stat) => {
                    let [atime, mtime, ctime] = files::times(&stat);
                    shown.size = stat.st_size as u64;
                    shown.blocks = stat.st_blocks as u64;
                    (shown.atime, shown.mtime, shown.ctime) = (atime, mtime, row.ctime.max(ctime));
                }
                Err(error) => {
                    let place = self.files.path().join(content::path_of(place));
                    log::error!("{}: what was written is not there: {error}", place.display());
                }
            }
        }
        shown
    }

    /// What a node of the overlay is, for somebody who is given it.
    fn give(&self, id: u64) -> Result<Attributes, Error> {
        self.give_row(&self.known_row(id)?)
    }

    fn give_row(&self, row: &NodeRow) -> Result<Attributes, Error> {
        let shown = self.shown(row)?;
        self.known.hold(shown.node);
        Ok(shown)
    }

    /// What the overlay says of `name` in a folder of its own.
    fn said(&self, folder: u64, name: &[u8]) -> Result<Said, Error> {
        let (changes, had_names) = {
            let quiet = lock(&self.quiet);
            if quiet.folders.contains(&folder) {
                return Ok(Said::Nothing);
            }
            (quiet.changes, quiet.others.contains(&folder))
        };
        let (said, has_names) = self.database.ask(|connection| {
            let said = rows::name(connection, folder, name)?;
            Ok((said, said != Said::Nothing || had_names || rows::has_names(connection, folder)?))
        })?;
        let mut quiet = lock(&self.quiet);
        if has_names {
            quiet.others.insert(folder);
        } else if quiet.changes == changes {
            quiet.folders.insert(folder);
        }
        Ok(said)
    }

    /// What is open of a node.
    fn opened(&self, node: Node) -> Option<Arc<Content>> {
        lock(&self.contents).get(&node)?.upgrade()
    }

    /// What a file holds.
    fn content(self: &Arc<Self>, node: Node) -> Result<Arc<Content>, Error> {
        loop {
            if let Some(open) = self.opened(node) {
                return Ok(open);
            }
            let mut copies = self.copies.load(Ordering::SeqCst);
            let (made, is_below) = self.make_content(node)?;
            let made = Arc::new(made);
            loop {
                let mut contents = lock(&self.contents);
                if let Some(open) = contents.get(&node).and_then(Weak::upgrade) {
                    // Somebody else was quicker. Ours is dropped outside the lock.
                    drop(contents);
                    return Ok(open);
                }
                let now = self.copies.load(Ordering::SeqCst);
                if !is_below || now == copies {
                    contents.insert(node, Arc::downgrade(&made));
                    return Ok(made);
                }
                // While what is below was opened, somebody may have written to it, and closed it. Threads that answer
                // the kernel wait for what is locked here, so the database is asked outside of it.
                drop(contents);
                copies = now;
                if self.has_content(node)? {
                    break;
                }
            }
        }
    }

    /// True if what a file holds is in the overlay.
    fn has_content(&self, node: Node) -> Result<bool, Error> {
        match self.place(node) {
            NodePlace::Lower => Ok(false),
            NodePlace::Own(id) => Ok(self.row(id)?.is_none_or(|row| row.place.is_some())),
        }
    }

    /// What a file holds, and whether that is what is below.
    fn make_content(self: &Arc<Self>, node: Node) -> Result<(Content, bool), Error> {
        let id = match self.place(node) {
            NodePlace::Lower => return Ok((Content::below(self, node, self.lower.open(node)?), true)),
            NodePlace::Own(id) => id,
        };
        let row = self.known_row(id)?;
        let made = lock(&self.made).take_if(|(made, _)| *made == id);
        // Unless somebody looks at it just now.
        let made = made.and_then(|(_, made)| Arc::into_inner(made));
        match (row.kind, &row.place) {
            (Kind::Folder, _) => Err(Error::IsAFolder),
            (Kind::File, Some(place)) => {
                let path = self.files.path().join(content::path_of(place));
                let file = match made {
                    Some(made) => made,
                    None => self
                        .files
                        .open_content(place)
                        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?,
                };
                Ok((Content::above(self, node, FollowedFile::new(file, path)?)?, false))
            }
            (Kind::File, None) => {
                let opened = match self.open_below(&row) {
                    Err(error) if below::is_gone(&error) && self.look_again(&row)?.is_some() => self.open_below(&row),
                    opened => opened,
                };
                let source = match opened {
                    // It can be emptied.
                    Err(error) if below::is_gone(&error) => return Ok((Content::gone(self, node), true)),
                    source => source?,
                };
                // Another one is there by now, and the kernel takes it to be as long as the one that it asks for. It
                // looks the name up again then.
                if self.known_node_of(id) != node {
                    return Err(stale());
                }
                let can_change = |lower| self.lower.lifetime(lower) != Lifetime::Forever;
                if source.len() != row.size && !self.met.lower(id).is_some_and(can_change) {
                    let what = "is another one than when its name or attributes were changed";
                    log::error!("{}: {what}", source.describe());
                    return Ok((Content::gone(self, node), true));
                }
                Ok((Content::below(self, node, source), true))
            }
            _ => Err(Error::WrongKind),
        }
    }

    /// Nobody has the content of `node` open any more.
    fn closed(&self, node: Node) {
        let mut contents = lock(&self.contents);
        if contents.get(&node).is_some_and(|content| content.strong_count() == 0) {
            contents.remove(&node);
        }
        drop(contents);
        self.unused(node);
    }

    /// What has no name goes when nobody knows it any more.
    fn unused(&self, node: Node) {
        if let NodePlace::Own(id) = self.place(node)
            && lock(&self.orphans).contains(&id)
        {
            self.reap_later(id);
        }
    }

    /// Waits until all that was done so far would survive a loss of power.
    fn sync(&self) -> io::Result<()> {
        self.files.sync_names()?;
        self.database.sync()
    }

    /// The same after `first`, for who has asked for it: it takes as long as the disk does.
    fn synced(&self, first: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        begins()?;
        taking_long(|| {
            first()?;
            self.sync()
        })
    }

    fn forget(&self, node: Node, times: u64) {
        if node == Node::ROOT {
            return;
        }
        self.pass_on(self.known.forget(node, times));
    }

    /// A node of what is below is given to somebody, who has seen it as `name` in `folder`.
    fn hold_seen(&self, found: &Attributes, folder: Node, name: &[u8]) {
        let is_linked = found.kind != Kind::Folder && found.links > 1;
        let sight = Sight {
            is_version: self.is_of_versions(folder),
            is_linked: is_linked && self.lower.lifetime(found.node) != Lifetime::Forever,
        };
        self.pass_on(self.known.hold_seen(found.node, folder, name, sight));
    }

    /// Nodes are held less often: for who holds them below, or removes them.
    fn pass_on(&self, all: Vec<Forgotten>) {
        for Forgotten { node, times, is_unknown } in all {
            match self.place(node) {
                _ if node == Node::ROOT => {}
                NodePlace::Lower if times > 0 => self.lower.forget(node, times),
                NodePlace::Own(_) if is_unknown => self.unused(node),
                NodePlace::Lower | NodePlace::Own(_) => {}
            }
        }
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        match self.place(node) {
            NodePlace::Lower => {
                let mut attributes = self.lower.attributes(node)?;
                if self.known.is_gone(node) {
                    attributes.links = 0;
                }
                Ok(attributes)
            }
            NodePlace::Own(id) => Ok(self.shown_now(&self.known_row(id)?, node)),
        }
    }

    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        if name.len() > LONGEST_NAME {
            return Err(Errno::NAMETOOLONG.into());
        }
        if let NodePlace::Own(id) = self.place(folder) {
            match self.said(id, name)? {
                Said::Node(node) => {
                    self.look_below(node, folder, name)?;
                    return self.give(node);
                }
                Said::Gone => return Err(Error::NotFound),
                Said::Nothing => {}
            }
        }
        let lower = self.below(folder).ok_or(Error::NotFound)?;
        match self.lower.lookup(lower, name) {
            Err(error) if self.is_gone_below(folder, &error) => Err(Error::NotFound),
            found => self.give_lower(folder, name, found?),
        }
    }
}

impl Tree for OverlayTree {
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
        match self.0.place(folder) {
            _ if folder == Node::ROOT => Ok(folder),
            NodePlace::Lower => match self.0.known.seen(folder) {
                Some(seen) => Ok(seen.folder),
                None => self.0.lower.parent(folder),
            },
            NodePlace::Own(id) => {
                let parent = self.0.database.ask(|connection| rows::name_of(connection, id))?;
                let (parent, _) = parent.ok_or(Error::NotFound)?;
                self.0.node_of(&self.0.known_row(parent)?)
            }
        }
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>, Error> {
        match self.0.place(node) {
            NodePlace::Lower => self.0.lower.read_link(node),
            NodePlace::Own(id) => {
                let row = self.0.known_row(id)?;
                if row.kind == Kind::Symlink { Ok(row.target) } else { Err(Error::WrongKind) }
            }
        }
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        match self.0.place(node) {
            NodePlace::Lower => self.0.lower.xattrs(node),
            NodePlace::Own(id) => self.0.database.ask(|connection| rows::xattrs(connection, id)),
        }
    }

    fn xattr(&self, node: Node, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        match self.0.place(node) {
            NodePlace::Lower => self.0.lower.xattr(node, name),
            NodePlace::Own(id) => self.0.database.ask(|connection| rows::xattr(connection, id, name)),
        }
    }

    fn node_limit(&self) -> u64 {
        self.0.first + OWN
    }

    fn is_implied(&self, folder: Node) -> bool {
        match self.0.place(folder) {
            NodePlace::Lower => self.0.lower.is_implied(folder),
            NodePlace::Own(id) => self.0.is_implied(id, folder),
        }
    }

    fn forget(&self, node: Node, times: u64) {
        self.0.forget(node, times);
    }

    fn close_folder(&self, folder: Node) {
        if let Some(lower) = self.0.below(folder) {
            self.0.lower.close_folder(lower);
        }
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        let content = self.0.content(node)?;
        if content.is_gone() {
            return Err(stale());
        }
        Ok(Arc::new(OpenedFile::new(&self.0, content)))
    }

    fn path_of(&self, node: Node) -> Option<Vec<u8>> {
        self.0.lower.path_of(self.0.below(node)?)
    }

    fn owner_names(&self, node: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        match self.0.place(node) {
            NodePlace::Lower => self.0.lower.owner_names(node),
            NodePlace::Own(id) => self.0.owner_names(id),
        }
    }

    fn lifetime(&self, node: Node) -> Lifetime {
        self.0.below(node).map_or_else(|| self.0.lifetime_here(node), |lower| self.0.lower.lifetime(lower))
    }

    fn lifetime_of_gaps(&self, folder: Node) -> Lifetime {
        self.0.below(folder).map_or_else(|| self.0.lifetime_here(folder), |lower| self.0.lower.lifetime_of_gaps(lower))
    }

    fn totals(&self) -> Totals {
        Totals { has_xattrs: true, has_acls: true, is_immutable: false, ..self.0.lower.totals() }
    }

    fn work(&self) -> Work {
        self.0.lower.work()
    }

    fn edit(&self) -> Option<&dyn Edit> {
        Some(self)
    }

    fn waiting(&self) -> Option<&dyn Waiting> {
        Some(self)
    }
}

impl Waiting for OverlayTree {
    fn is_ready(&self, node: Node) -> bool {
        self.0.below(node).is_none_or(|lower| self.0.lower.is_ready(lower))
    }

    /// Names that are here and below are compared first. Where nothing is below any more, that is looked for again.
    fn lists_at_once(&self, folder: Node, from: u64) -> bool {
        match (self.0.place(folder), self.0.below(folder)) {
            (NodePlace::Own(id), Some(lower)) => {
                self.0.is_compared(id, lower) && self.0.lower.lists_at_once(lower, from.saturating_sub(BELOW))
            }
            (_, Some(lower)) => self.0.lower.lists_at_once(lower, from.saturating_sub(BELOW)),
            (NodePlace::Own(id), None) => !lock(&self.0.lost).contains_key(&id),
            (NodePlace::Lower, None) => true,
        }
    }

    fn lane(&self, node: Node) -> u64 {
        self.0.below(node).map_or(self.0.lane, |lower| self.0.lower.lane(lower))
    }

    fn asked_for(&self, folder: Node, name: &[u8]) -> Node {
        match self.0.place(folder) {
            NodePlace::Lower => self.0.lower.asked_for(folder, name),
            NodePlace::Own(_) => folder,
        }
    }

    /// A file that is being copied gets on, however long that takes.
    fn held_up(&self, node: Node) -> Option<HeldUp> {
        if let Some(steps) = self.0.opened(node).and_then(|content| content.copying()) {
            return Some(HeldUp { by: self.0.lane, steps });
        }
        self.0.lower.held_up(self.0.below(node)?)
    }

    fn wait_out(&self, node: Node) {
        if let Some(content) = self.0.opened(node).filter(|content| content.copying().is_some()) {
            return content.wait();
        }
        if let Some(lower) = self.0.below(node) {
            self.0.lower.wait_out(lower);
        }
    }
}

impl OverlayTree {
    /// What the disk has room for on which the overlay lies.
    fn space(&self) -> Result<Space, Error> {
        let stat = self.0.files.space()?;
        Ok(Space {
            unit: u32::try_from(stat.f_frsize).unwrap_or(u32::MAX).max(1),
            blocks: stat.f_blocks,
            free: stat.f_bfree,
            available: stat.f_bavail,
            nodes: stat.f_files,
            free_nodes: stat.f_ffree,
        })
    }
}
