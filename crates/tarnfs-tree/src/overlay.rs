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
mod commit;
mod content;
mod database;
mod editing;
mod files;
mod known;
mod listing;
mod ratarmount;
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
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Gid, getgroups};
use tarnfs_source::{FollowedFile, SharedSource};

use crate::asker::{begins, taking_long};
use crate::edit::{Edit, Space};
use crate::folder::HiddenFolder;
use crate::lanes::new_lane;
use crate::{Attributes, Child, Error, HeldUp, Kind, Lifetime, Node, Totals, Tree, Work, Xattrs, path};
use content::{Content, Descriptors, OpenedFile};
use database::Database;
use files::{Files, join};
use known::{Forgotten, Known, Met};
use listing::BELOW;
use rows::{NodeRow, ROOT, Said};

pub use commit::{Appends, GoesInto, HEAD, Written};
pub use status::{Change, Changed, Now, OverlayStatus};

/// Nodes that can be made.
const OWN: u64 = 1 << 40;

/// How long what was removed is gathered, and how many files at most, before it is removed at once.
const GATHERED: Duration = Duration::from_millis(500);
const MOST_REAPED: usize = 1000;

/// How long what is gone below is not looked for again.
const LOST: Duration = Duration::from_secs(1);

/// Where there is less room, what was removed goes without waiting for more: bytes.
const SHORT: u64 = 64 << 20;

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

/// That a node is not where it was.
fn stale() -> Error {
    Errno::STALE.into()
}

/// True of errors that say that nothing is at a path, and not that it cannot be said.
fn is_gone(error: &Error) -> bool {
    matches!(error, Error::NotFound | Error::NotAFolder) || error.errno() == Errno::STALE
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

    fn open_at(lower: Arc<dyn Tree>, folder: &Path, user: &str) -> Result<Self, Error> {
        let first = lower.node_limit();
        if first.checked_add(OWN).is_none_or(|end| end > 1 << 63) {
            return Err(io::Error::other("there are no numbers left for what is to be written").into());
        }
        let files = Files::open(folder, user)?;
        let hidden = HiddenFolder::new(files.root())?;
        files.check_names(database::NAME)?;
        let database = Database::open(&files.prepare(database::NAME)?)?;
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
        overlay.begin()?;
        Ok(Self(overlay))
    }

    /// Everything is on the disk, and nothing is left of files that were removed.
    pub fn finish(&self) {
        let orphans: Vec<u64> = lock(&self.0.orphans).iter().copied().collect();
        self.0.reap(&orphans);
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

/// Removes what has no name, when nobody knows it any more: many at once, as that takes bringing the log to the disk.
fn reap(overlay: &Weak<Overlay>, ids: &Receiver<u64>) {
    while let Ok(first) = ids.recv() {
        let Some(is_needed) = overlay.upgrade().map(|overlay| overlay.is_short_of_room()) else { return };
        let until = Instant::now() + if is_needed { Duration::ZERO } else { GATHERED };
        let mut all = vec![first];
        while all.len() < MOST_REAPED
            && let Ok(next) = ids.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            all.push(next);
        }
        let Some(overlay) = overlay.upgrade() else { return };
        overlay.reap(&all);
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
            ratarmount::import(self, &|editing| editing.begin(&root, &xattrs))?;
        }
        let (orphans, shared) =
            self.database.ask(|connection| Ok((rows::without_names(connection)?, rows::shared(connection)?)))?;
        lock(&self.orphans).extend(&orphans);
        self.reap(&orphans);
        for id in shared {
            if let Some(row) = self.row(id)? {
                self.node_of(&row)?;
            }
        }
        self.files.sweep(&|place| {
            self.database.ask(|connection| rows::has_place(connection, place)).map_err(content::to_io)
        })?;
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

    /// The node of what is below that a node of the overlay stands for, if that is still there. What cannot be asked
    /// now is an error: it may have what is not seen, and keeps its number.
    fn lower_of(&self, row: &NodeRow) -> Result<Option<Node>, Error> {
        let Some(path) = row.lower.as_ref() else { return Ok(None) };
        if let Some(known) = self.met.lower(row.id) {
            return Ok(Some(known));
        }
        if lock(&self.lost).get(&row.id).is_some_and(|since| since.elapsed() < LOST) {
            return Ok(None);
        }
        let same = |found: &Attributes| rows::number_of(found.kind).0 == rows::number_of(row.kind).0;
        match path::find(&*self.lower, path, false) {
            Ok(found) if same(&found) && self.is_another_below(row, &found) => {
                self.lower.forget(found.node, 1);
                return Ok(None);
            }
            Ok(found) if same(&found) => {
                lock(&self.lost).remove(&row.id);
                self.met.meet(row.id, found.node);
                return Ok(Some(found.node));
            }
            Ok(found) => self.lower.forget(found.node, 1),
            Err(error) if is_gone(&error) => {
                log::debug!("{}: is no longer below the overlay: {error}", tarnfs_format::name::escape(path));
            }
            Err(error) => return Err(error),
        }
        lock(&self.lost).insert(row.id, Instant::now());
        Ok(None)
    }

    /// True if a file that was changed here has got further names below since then: these are another file, so it has
    /// a number of its own.
    fn is_another_below(&self, row: &NodeRow, found: &Attributes) -> bool {
        let has_others = row.kind == Kind::File && !row.is_shared && found.links > 1;
        has_others && self.lower.lifetime(found.node) != Lifetime::Forever
    }

    /// The number that a node of the overlay has.
    fn node_of(&self, row: &NodeRow) -> Result<Node, Error> {
        Ok(self.lower_of(row)?.unwrap_or(Node(self.first.saturating_add(row.id))))
    }

    /// What is said of a node of the overlay.
    fn shown(&self, row: &NodeRow) -> Result<Attributes, Error> {
        Ok(self.shown_as(row, self.node_of(row)?))
    }

    /// The same of one that somebody knows as `node`: nothing is asked of what is below.
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

    /// What was looked up below, for somebody who is given it.
    fn give_lower(&self, folder: Node, name: &[u8], found: Attributes) -> Result<Attributes, Error> {
        if let Some(id) = self.met.id(found.node) {
            self.lower.forget(found.node, 1);
            return if self.is_name_of(id, found.node, folder, name)? { self.give(id) } else { Err(stale()) };
        }
        self.hold_seen(found.node, folder, name);
        Ok(found)
    }

    /// True if `name` in a folder, which leads to `lower` below, is a name of node `id` of the overlay, that stands for
    /// it. What was changed here goes by its path: who renames it below has another file there, which is not shown until
    /// the next mount, as the kernel knows it by the number of the changed one. Of a file with several names, all are.
    fn is_name_of(&self, id: u64, lower: Node, folder: Node, name: &[u8]) -> Result<bool, Error> {
        // In an archive nothing moves.
        if self.lower.lifetime(lower) == Lifetime::Forever {
            return Ok(true);
        }
        let row = self.known_row(id)?;
        if row.is_shared && row.kind != Kind::Folder {
            return Ok(true);
        }
        // The folders that something changed lies in have numbers of their own.
        let NodePlace::Own(parent) = self.place(folder) else { return Ok(false) };
        let is_it = self.known_row(parent)?.lower.map(|path| join(&path, name)) == row.lower;
        if !is_it {
            let path = tarnfs_format::name::escape(row.lower.as_deref().unwrap_or_default()).to_string();
            log::debug!("{path}: was renamed below after it was changed here");
        }
        Ok(is_it)
    }

    /// Looks again what is below the folder `id`, which has this `name` in `folder`: somebody may have removed it, and
    /// made another one.
    fn look_below(&self, id: u64, folder: Node, name: &[u8]) -> Result<(), Error> {
        let Some(lower) = self.below(folder).filter(|&lower| self.lower.lifetime(lower) != Lifetime::Forever) else {
            return Ok(());
        };
        let (row, NodePlace::Own(parent)) = (self.known_row(id)?, self.place(folder)) else { return Ok(()) };
        let path = self.known_row(parent)?.lower.map(|path| join(&path, name));
        if row.kind != Kind::Folder || path.is_none() || row.lower != path {
            return Ok(());
        }
        match self.lower.lookup(lower, name) {
            Ok(found) => {
                let is_another = self.met.lower(id) != Some(found.node);
                if is_another && found.kind == Kind::Folder && self.met.id(found.node).is_none_or(|known| known == id) {
                    // It is held there for good.
                    self.met.meet(id, found.node);
                    lock(&self.lost).remove(&id);
                    lock(&self.compared).remove(&id);
                } else {
                    self.lower.forget(found.node, 1);
                }
                Ok(())
            }
            Err(error) if is_gone(&error) => {
                self.met.lose(id);
                Ok(())
            }
            Err(error) => Err(error),
        }
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
            let (made, is_below) = self.make_content(node)?;
            let made = Arc::new(made);
            let mut contents = lock(&self.contents);
            if let Some(open) = contents.get(&node).and_then(Weak::upgrade) {
                // Somebody else was quicker. Ours is dropped outside the lock.
                drop(contents);
                return Ok(open);
            }
            // While what is below was opened, somebody may have written to it, and closed it.
            if is_below && self.has_content(node)? {
                drop(contents);
                continue;
            }
            contents.insert(node, Arc::downgrade(&made));
            return Ok(made);
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
                let source = self.open_below(&row)?;
                if source.len() != row.size {
                    let what = "is another one than when its name or attributes were changed";
                    let what = format!("{}: {what}", source.describe());
                    return Err(io::Error::new(io::ErrorKind::StaleNetworkFileHandle, what).into());
                }
                Ok((Content::below(self, node, source), true))
            }
            _ => Err(Error::WrongKind),
        }
    }

    /// The file below that has what a node of the overlay holds.
    fn open_below(&self, row: &NodeRow) -> Result<SharedSource, Error> {
        if let Some(lower) = self.lower_of(row)? {
            return self.lower.open(lower);
        }
        let found = path::find(&*self.lower, row.lower.as_ref().ok_or_else(stale)?, false);
        let found = found.map_err(|error| if is_gone(&error) { stale() } else { error })?;
        let opened = if self.is_another_below(row, &found) { self.lower.open(found.node) } else { Err(stale()) };
        self.lower.forget(found.node, 1);
        opened
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

    /// Has a thread that may wait remove a node that has no name. Where there is none, that is done at the end.
    fn reap_later(&self, id: u64) {
        let start = || {
            let (me, (to, from)) = (Weak::clone(&self.me), channel());
            let builder = thread::Builder::new().name("tarnfs-overlay".to_owned()).stack_size(256 << 10);
            builder.spawn(move || reap(&me, &from)).ok().map(|_| Mutex::new(to))
        };
        if let Some(reaper) = self.reaper.get_or_init(start) {
            let _ = lock(reaper).send(id);
        }
    }

    /// True where what was removed is to make room for others.
    fn is_short_of_room(&self) -> bool {
        self.files.space().is_ok_and(|space| space.f_bavail.saturating_mul(space.f_frsize) < SHORT)
    }

    /// True if a node has no name, and nobody knows it any more.
    fn is_left(&self, id: u64) -> bool {
        let node = self.met.lower(id).unwrap_or(Node(self.first.saturating_add(id)));
        !self.known.is_known(node) && self.opened(node).is_none() && lock(&self.orphans).contains(&id)
    }

    /// Removes nodes that have no name, those that nobody knows any more.
    ///
    /// First, what has taken their names is brought to the disk: after a loss of power they have them again, and what
    /// has replaced them is not there.
    fn reap(&self, ids: &[u64]) {
        let left: Vec<u64> = ids.iter().copied().filter(|&id| self.is_left(id)).collect();
        if left.is_empty() {
            return;
        }
        if let Err(error) = self.sync() {
            let folder = self.files.path().display();
            log::warn!("{folder}: removed files stay, as what was done cannot be brought to the disk: {error}");
            return;
        }
        for id in left {
            self.reap_one(id);
        }
    }

    fn reap_one(&self, id: u64) {
        if !self.is_left(id) {
            return;
        }
        let removed = self.row(id).and_then(|row| {
            let Some(row) = row.filter(|row| row.links == 0) else { return Ok(()) };
            // Its place is free only when nothing says any more that it is its own: the next file there would be taken
            // for it, and removed.
            let remove = || self.edit_for_room(|editing| rows::remove_node(editing.connection, id));
            match (row.kind, &row.place) {
                (Kind::File, Some(place)) => {
                    remove().or_else(|error| match error.errno() {
                        Errno::NOSPC | Errno::DQUOT => {
                            self.files.open_content(place)?.set_len(0)?;
                            remove()
                        }
                        _ => Err(error),
                    })?;
                    self.files.remove_unused(place);
                }
                (Kind::Folder, Some(place)) => {
                    remove()?;
                    self.files.remove_folder(place);
                }
                _ => remove()?,
            }
            Ok(())
        });
        match removed {
            Ok(()) => {
                self.files.take_reserve();
                lock(&self.orphans).remove(&id);
                self.met.part(id);
            }
            // It is tried again when the overlay is used again.
            Err(error) => log::warn!("{}: a removed file stays: {error}", self.files.path().display()),
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
    fn hold_seen(&self, node: Node, folder: Node, name: &[u8]) {
        self.pass_on(self.known.hold_seen(node, folder, name));
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
            NodePlace::Own(id) => Ok(self.shown_as(&self.known_row(id)?, node)),
        }
    }

    /// What is below of a node, if something is.
    fn below(&self, node: Node) -> Option<Node> {
        match self.place(node) {
            NodePlace::Lower => Some(node),
            NodePlace::Own(id) => self.met.lower(id),
        }
    }

    /// True if an error of what is below says that it is not there any more, and the folder itself is here: then what
    /// was written in it is all that it has.
    fn is_gone_below(&self, folder: Node, error: &Error) -> bool {
        error.errno() == Errno::STALE && matches!(self.place(folder), NodePlace::Own(_))
    }

    /// True if there is something of that name below a folder.
    fn is_over(&self, folder: Node, name: &[u8]) -> Result<bool, Error> {
        let Some(lower) = self.below(folder) else { return Ok(false) };
        match self.lower.has_name(lower, name) {
            Err(error) if self.is_gone_below(folder, &error) => Ok(false),
            found => found,
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
        matches!(self.0.place(folder), NodePlace::Lower) && self.0.lower.is_implied(folder)
    }

    fn is_ready(&self, node: Node) -> bool {
        self.0.below(node).is_none_or(|lower| self.0.lower.is_ready(lower))
    }

    /// Names that are here and below are compared first.
    fn lists_at_once(&self, folder: Node, from: u64) -> bool {
        match (self.0.place(folder), self.0.below(folder)) {
            (NodePlace::Own(id), Some(lower)) => {
                self.0.is_compared(id, lower) && self.0.lower.lists_at_once(lower, from.saturating_sub(BELOW))
            }
            (_, Some(lower)) => self.0.lower.lists_at_once(lower, from.saturating_sub(BELOW)),
            (_, None) => true,
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

    fn forget(&self, node: Node, times: u64) {
        self.0.forget(node, times);
    }

    fn close_folder(&self, folder: Node) {
        if let Some(lower) = self.0.below(folder) {
            self.0.lower.close_folder(lower);
        }
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        Ok(Arc::new(OpenedFile::new(&self.0, self.0.content(node)?)))
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

    /// All changes come from whoever asks: what was made here can be kept for ever.
    fn lifetime(&self, node: Node) -> Lifetime {
        self.0.below(node).map_or(Lifetime::Forever, |lower| self.0.lower.lifetime(lower))
    }

    fn lifetime_of_gaps(&self, folder: Node) -> Lifetime {
        self.0.below(folder).map_or(Lifetime::Forever, |lower| self.0.lower.lifetime_of_gaps(lower))
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
