//! What changes something: one system call, one transaction.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::SystemTime;

use rusqlite::Connection;
use rustix::io::Errno;
use rustix::process::{Gid, getegid, geteuid};

use super::below::following;
use super::content::{OpenedFile, stamp, to_io};
use super::database::is_full;
use super::files::{LONGEST_PATH, join};
use super::rows::{self, NodeRow, ROOT, Said, changed};
use super::{DEEPEST, LONGEST_NAME, NodePlace, Overlay, OverlayTree, access, lock, stale};
use crate::asker::{begins, taking_long, waits_for_disk};
use crate::edit::{Change, Edit, New, Renaming, Setting, Space, WritableFile};
use crate::{Attributes, Error, Kind, Node, Time, Tree as _, Xattrs};

/// The bit by which a folder hands on its group.
const SETGID: u32 = 0o2000;

/// A node of what is below that is about to be changed, or that something that is changed lies in.
#[derive(Debug)]
pub(super) struct Below {
    pub(super) node: Node,
    pub(super) folder: Node,
    pub(super) name: Vec<u8>,
    pub(super) attributes: Attributes,
    pub(super) xattrs: Xattrs,
    /// Of a symbolic link.
    target: Vec<u8>,
    is_gone: bool,
}

/// What has a name in a folder.
struct Found {
    attributes: Attributes,
    /// Of what is below and is not changed yet: itself.
    below: Option<Below>,
}

/// A transaction.
pub(super) struct Editing<'a> {
    overlay: &'a Overlay,
    pub(super) connection: &'a Connection,
    /// Nodes of what is below that have got a number in it.
    touched: RefCell<Vec<(Node, u64)>>,
    /// Nodes that have no name any more, or have one again.
    orphans: RefCell<Vec<(u64, Orphan)>>,
    /// Nodes of what is below that have no name any more, and no number.
    gone: RefCell<Vec<Node>>,
    /// Where contents were put for it. They go if it comes to nothing.
    placed: &'a RefCell<Vec<Vec<u8>>>,
    /// A file that was made, which is likely to be opened next.
    made: Cell<Option<(u64, Arc<File>)>>,
}

/// What has become of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Orphan {
    /// It has lost its last name.
    Removed,
    /// It was made without one.
    Unnamed,
    /// It has got one.
    Named,
}

fn now() -> Time {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() }
}

impl Editing<'_> {
    /// The root of a new overlay.
    pub(super) fn begin(&self, root: &Attributes, xattrs: &Xattrs) -> Result<(), Error> {
        let row = NodeRow { id: ROOT, place: Some(Vec::new()), lower: Some(Vec::new()), ..of(root) };
        rows::put_node(self.connection, &row)?;
        xattrs.iter().try_for_each(|(name, value)| rows::put_xattr(self.connection, ROOT, name, Some(value)))
    }

    pub(super) fn node(&self, id: u64) -> Result<NodeRow, Error> {
        rows::node(self.connection, id)?.ok_or_else(stale)
    }

    pub(super) fn id(&self, node: Node) -> Option<u64> {
        match self.overlay.place(node) {
            NodePlace::Own(id) => Some(id),
            NodePlace::Lower => self.touched.borrow().iter().find(|(touched, _)| *touched == node).map(|(_, id)| *id),
        }
    }

    /// The number of `node`, which gets one with all that it lies in, if it has none; `below` is what that takes.
    pub(super) fn touch(&self, below: &[Below], node: Node) -> Result<u64, Error> {
        for one in below {
            if self.id(one.node).is_none() {
                self.touch_one(one)?;
            }
        }
        self.id(node).ok_or_else(stale)
    }

    pub(super) fn touch_one(&self, below: &Below) -> Result<u64, Error> {
        let folder = self.node(self.id(below.folder).ok_or_else(stale)?)?;
        let is_folder = below.attributes.kind == Kind::Folder;
        let mut row = NodeRow {
            target: below.target.clone(),
            place: if is_folder { place_in(&folder, &below.name) } else { None },
            lower: folder.lower.as_ref().map(|lower| join(lower, &below.name)),
            is_shared: !is_folder && below.attributes.links > 1,
            ..of(&below.attributes)
        };
        // Somebody may have taken the name between the question and this transaction: written pages come at any time.
        let is_gone = below.is_gone
            || self.overlay.known.is_gone(below.node)
            || rows::name(self.connection, folder.id, &below.name)? != Said::Nothing;
        if is_gone {
            row.links = if is_folder { 0 } else { row.links.saturating_sub(1) };
        }
        let id = rows::put_node(self.connection, &row)?;
        for (name, value) in &below.xattrs {
            rows::put_xattr(self.connection, id, name, Some(value))?;
        }
        self.touched.borrow_mut().push((below.node, id));
        if is_gone {
            if row.links == 0 {
                self.orphans.borrow_mut().push((id, Orphan::Removed));
            }
        } else {
            self.put_name(folder.id, &below.name, Some(id), true)?;
        }
        Ok(id)
    }

    /// `node` has the number `id` from now on.
    pub(super) fn meet(&self, node: Node, id: u64) {
        self.touched.borrow_mut().push((node, id));
    }

    pub(super) fn put_name(&self, folder: u64, name: &[u8], node: Option<u64>, is_over: bool) -> Result<(), Error> {
        rows::put_name(self.connection, folder, name, node, is_over)
    }

    /// Takes a name out of a folder; where there is something of that name below, it stays hidden.
    fn take_name(&self, folder: u64, name: &[u8], is_over: bool) -> Result<(), Error> {
        if is_over {
            return self.put_name(folder, name, None, true);
        }
        rows::remove_name(self.connection, folder, name)
    }

    /// A folder has got a name, or lost one; and so many folders in it.
    fn changed(&self, folder: u64, folders: i64) -> Result<(), Error> {
        rows::touch_folder(self.connection, folder, now(), folders)
    }

    /// A node has lost a name.
    fn unlink(&self, id: u64) -> Result<(), Error> {
        let mut row = self.node(id)?;
        row.links = if row.kind == Kind::Folder { 0 } else { row.links.saturating_sub(1) };
        row.ctime = now();
        rows::put_node(self.connection, &row)?;
        if row.links == 0 {
            self.orphans.borrow_mut().push((id, Orphan::Removed));
        }
        Ok(())
    }

    /// What was found loses its name, which something else may get.
    fn drop_found(&self, found: &Found) -> Result<(), Error> {
        match (&found.below, self.id(found.attributes.node)) {
            // It has other names.
            (Some(below), None) if below.attributes.kind != Kind::Folder && below.attributes.links > 1 => {
                let id = self.touch_one(below)?;
                self.unlink(id)
            }
            (Some(below), None) => {
                self.gone.borrow_mut().push(below.node);
                Ok(())
            }
            (_, Some(id)) => self.unlink(id),
            (None, None) => Err(stale()),
        }
    }

    /// Its number in the overlay.
    fn touch_found(&self, found: &Found) -> Result<u64, Error> {
        match (self.id(found.attributes.node), &found.below) {
            (Some(id), _) => Ok(id),
            (None, Some(below)) => self.touch_one(below),
            (None, None) => Err(stale()),
        }
    }

    /// A content was put there.
    pub(super) fn has_placed(&self, place: &[u8]) {
        self.placed.borrow_mut().push(place.to_vec());
    }

    /// Makes something new, without a name yet. `folder` is what it will be in, near `place`.
    fn make(&self, folder: &NodeRow, name: &[u8], new: &New) -> Result<NodeRow, Error> {
        let is_folder = new.kind == Kind::Folder;
        let hands_on = folder.mode & SETGID != 0;
        let now = now();
        let mut row = NodeRow {
            id: 0,
            kind: new.kind,
            mode: new.mode & !new.umask & 0o7777,
            uid: new.uid,
            gid: if hands_on { folder.gid } else { new.gid },
            links: match new.kind {
                _ if name.is_empty() => 0,
                Kind::Folder => 2,
                _ => 1,
            },
            size: 0,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            target: new.target.clone(),
            place: if is_folder { place_in(folder, name) } else { None },
            lower: None,
            is_shared: false,
            changed: 0,
        };
        let mut lists = Vec::new();
        let default = if new.kind == Kind::Symlink {
            row.mode = 0o777;
            None
        } else {
            rows::xattr(self.connection, folder.id, access::DEFAULT)?
        };
        if let Some(value) = default
            && let Some(list) = access::List::parse(&value)
        {
            let (own, mode) = list.for_new(new.mode & 0o777);
            row.mode = (new.mode & 0o7000) | mode;
            if !own.is_a_mode() {
                lists.push((access::ACCESS, own.to_bytes()));
            }
            if is_folder {
                lists.push((access::DEFAULT, value));
            }
        }
        if is_folder && hands_on {
            row.mode |= SETGID;
        }
        if new.kind == Kind::File {
            row.place = folder.place.as_ref().filter(|_| !name.is_empty()).map(|place| join(place, name));
        }
        row.id = rows::put_node(self.connection, &row)?;
        for (name, value) in lists {
            rows::put_xattr(self.connection, row.id, name, Some(&value))?;
        }
        if new.kind == Kind::File {
            let wished = row.place.as_deref().unwrap_or_default();
            let (place, file) = self.overlay.files.make(wished, row.id)?;
            self.has_placed(&place);
            let is_elsewhere = *wished != *place;
            row.place = Some(place);
            if is_elsewhere {
                rows::put_node(self.connection, &row)?;
            }
            self.made.replace(Some((row.id, Arc::new(file))));
        }
        if name.is_empty() {
            self.orphans.borrow_mut().push((row.id, Orphan::Unnamed));
        }
        Ok(row)
    }
}

/// Where contents of files in the folder `name` in `folder` go. Deep down, they have no place of their own.
fn place_in(folder: &NodeRow, name: &[u8]) -> Option<Vec<u8>> {
    let place = join(folder.place.as_ref()?, name);
    (place.len() <= LONGEST_PATH).then_some(place)
}

/// A row for what is below.
pub(super) fn of(attributes: &Attributes) -> NodeRow {
    NodeRow {
        id: 0,
        kind: attributes.kind,
        mode: attributes.mode,
        uid: attributes.uid,
        gid: attributes.gid,
        links: attributes.links,
        size: attributes.size,
        blocks: attributes.blocks,
        atime: attributes.atime,
        mtime: attributes.mtime,
        ctime: attributes.ctime,
        target: Vec::new(),
        place: None,
        lower: None,
        is_shared: false,
        changed: 0,
    }
}

/// Fails for what cannot be a name.
pub(super) fn is_name(name: &[u8]) -> Result<(), Error> {
    if name.len() > LONGEST_NAME {
        return Err(Errno::NAMETOOLONG.into());
    }
    if matches!(name, b"" | b"." | b"..") || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err(Errno::INVAL.into());
    }
    Ok(())
}

impl Overlay {
    /// Does `work` as one transaction, unless whoever has asked for it was told meanwhile that nothing came of it.
    pub(super) fn edit<T>(&self, work: impl FnOnce(&Editing<'_>) -> Result<T, Error>) -> Result<T, Error> {
        // Closed when nobody waits for this any more.
        let (placed, replaced) = (RefCell::default(), Cell::default());
        waits_for_disk();
        let edited = self.database.edit(
            |connection| {
                // Not before it is its turn: behind one that hangs, the others have their errors.
                begins()?;
                let (touched, orphans, gone) = (RefCell::default(), RefCell::default(), RefCell::default());
                let made = Cell::default();
                let editing = Editing { overlay: self, connection, touched, orphans, gone, placed: &placed, made };
                let done = work(&editing)?;
                let Editing { touched, orphans, gone, made, .. } = editing;
                Ok((done, touched.into_inner(), orphans.into_inner(), gone.into_inner(), made))
            },
            |(_, touched, orphans, gone, made)| {
                for (node, id) in touched {
                    self.met.meet(*id, *node);
                }
                for node in gone {
                    self.known.gone(*node);
                }
                let mut quiet = lock(&self.quiet);
                quiet.changes += 1;
                quiet.folders.clear();
                drop(quiet);
                let made = made.take();
                if made.is_some() || !orphans.is_empty() {
                    replaced.set(std::mem::replace(&mut *lock(&self.made), made));
                }
                let mut all = lock(&self.orphans);
                for (id, what) in orphans {
                    if *what == Orphan::Named {
                        all.remove(id)
                    } else {
                        all.insert(*id)
                    };
                }
            },
            // Whoever makes something next gets the same number, and with it the same place.
            || {
                for place in placed.take() {
                    self.files.remove_unused(&place);
                }
            },
        )?;
        // Those that nobody knows.
        for (id, what) in edited.2 {
            if what == Orphan::Removed {
                self.reap_later(id);
            }
        }
        Ok(edited.0)
    }

    /// The same for what makes room. Where the disk is full, that is noted in what is kept for it.
    pub(super) fn edit_for_room<T>(&self, work: impl Fn(&Editing<'_>) -> Result<T, Error>) -> Result<T, Error> {
        self.in_reserve(|| self.edit(&work))
    }

    /// Does `work` again in the room that is kept, where there is no other.
    pub(super) fn in_reserve<T>(&self, work: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
        match work() {
            Err(error) if is_full(&error) && self.files.give_reserve() => {
                self.database.shorten();
                work()
            }
            done => done,
        }
    }

    /// What it takes to change `node`: itself and the folders that it lies in, as far as they are below and have no
    /// number here yet, the outermost first.
    pub(super) fn prepare(&self, node: Node) -> Result<Vec<Below>, Error> {
        let (mut all, mut at) = (Vec::new(), node);
        while let NodePlace::Lower = self.place(at) {
            let seen = self.known.seen(at).ok_or_else(stale)?;
            let below = self.prepare_one(at, seen.folder, &seen.name, true)?;
            all.push(below);
            at = seen.folder;
            if all.len() > DEEPEST {
                return Err(stale());
            }
        }
        all.reverse();
        Ok(all)
    }

    /// The same of `node` alone, which is `name` in `folder`. Where a link leads may lie deep in an archive, or behind
    /// a server: of one whose only name is to go (not `stays`) that is not asked.
    pub(super) fn prepare_one(&self, node: Node, folder: Node, name: &[u8], stays: bool) -> Result<Below, Error> {
        self.takes_names(folder)?;
        self.takes_names(node)?;
        let attributes = self.lower.attributes(node)?;
        let has_target = attributes.kind == Kind::Symlink && (stays || attributes.links > 1);
        Ok(Below {
            node,
            folder,
            name: name.to_vec(),
            xattrs: self.lower.xattrs(node)?,
            target: if has_target { self.lower.read_link(node)? } else { Vec::new() },
            attributes,
            is_gone: self.known.is_gone(node),
        })
    }

    /// What has `name` in a folder, which it loses unless it `stays`. Nobody is given it.
    fn find(&self, folder: Node, name: &[u8], stays: bool) -> Result<Option<Found>, Error> {
        is_name(name)?;
        match self.lookup(folder, name) {
            Ok(attributes) => {
                let node = attributes.node;
                let below = match self.place(node) {
                    NodePlace::Lower => Some(self.prepare_one(node, folder, name, stays)),
                    NodePlace::Own(_) => None,
                };
                self.forget(node, 1);
                Ok(Some(Found { attributes, below: below.transpose()? }))
            }
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Fails if something is in a folder.
    fn must_be_empty(&self, folder: Node) -> Result<(), Error> {
        let mut is_empty = match self.place(folder) {
            NodePlace::Own(id) => !self.database.ask(|connection| rows::has_nodes(connection, id))?,
            NodePlace::Lower => true,
        };
        self.read_dir(folder, 0, &mut |_| {
            is_empty = false;
            false
        })?;
        if is_empty { Ok(()) } else { Err(Errno::NOTEMPTY.into()) }
    }

    /// Brings what was written of a file to the disk.
    fn settle(&self, node: Node) -> Result<(), Error> {
        if let Some(content) = self.opened(node) {
            return Ok(content.settle()?);
        }
        if let NodePlace::Own(id) = self.place(node)
            && let NodeRow { kind: Kind::File, place: Some(place), .. } = self.known_row(id)?
        {
            self.files.open_content(&place)?.sync_data()?;
        }
        Ok(())
    }

    fn rename(&self, from: (Node, &[u8]), to: (Node, &[u8]), how: Renaming) -> Result<(), Error> {
        let source = self.find(from.0, from.1, true)?.ok_or(Error::NotFound)?;
        let target = self.find(to.0, to.1, how == Renaming::Exchanges)?;
        match (how, &target) {
            (Renaming::Spares, Some(_)) => return Err(Errno::EXIST.into()),
            (Renaming::Exchanges, None) => return Err(Error::NotFound),
            _ => {}
        }
        if target.as_ref().is_some_and(|target| target.attributes.node == source.attributes.node) {
            return Ok(());
        }
        let is_folder = |found: &Found| found.attributes.kind == Kind::Folder;
        if let (Renaming::Replaces, Some(target)) = (how, &target) {
            match (is_folder(&source), is_folder(target)) {
                (true, false) => return Err(Error::NotAFolder),
                (false, true) => return Err(Error::IsAFolder),
                (true, true) => self.must_be_empty(target.attributes.node)?,
                (false, false) => {}
            }
        }
        self.takes_names(to.0)?;
        if how == Renaming::Exchanges {
            self.takes_names(from.0)?;
        }
        let is_over = [self.is_over(from.0, from.1)?, self.is_over(to.0, to.1)?];
        let (from_below, to_below) = (self.prepare(from.0)?, self.prepare(to.0)?);
        if how == Renaming::Replaces && target.is_some() && !is_folder(&source) {
            // Who replaces a file by a new one must not find an empty one after a loss of power. However long that
            // takes with a large one: it is a part of it.
            begins()?;
            taking_long(|| self.settle(source.attributes.node))?;
        }
        self.edit(|editing| {
            let folders = [editing.touch(&from_below, from.0)?, editing.touch(&to_below, to.0)?];
            let moved = editing.touch_found(&source)?;
            let mut counts = [0, 0];
            if is_folder(&source) {
                counts = [-1, 1];
            }
            match (&target, how) {
                (Some(target), Renaming::Exchanges) => {
                    let other = editing.touch_found(target)?;
                    editing.put_name(folders[0], from.1, Some(other), is_over[0])?;
                    if is_folder(target) {
                        counts = [counts[0] + 1, counts[1] - 1];
                    }
                    touch_time(editing, other)?;
                }
                (target, _) => {
                    if let Some(target) = target {
                        editing.drop_found(target)?;
                        if is_folder(target) {
                            counts[1] -= 1;
                        }
                    }
                    editing.take_name(folders[0], from.1, is_over[0])?;
                }
            }
            editing.put_name(folders[1], to.1, Some(moved), is_over[1])?;
            touch_time(editing, moved)?;
            if folders[0] == folders[1] {
                return editing.changed(folders[0], counts[0] + counts[1]);
            }
            editing.changed(folders[0], counts[0])?;
            editing.changed(folders[1], counts[1])
        })?;
        Ok(())
    }
}

/// A node has got another name.
fn touch_time(editing: &Editing<'_>, id: u64) -> Result<(), Error> {
    let mut row = editing.node(id)?;
    row.ctime = now();
    rows::put_node(editing.connection, &row).map(drop)
}

/// Fails where an ordinary user who has mounted something gives it to somebody else. The kernel asks only where the
/// mount is for others, too.
fn may_give(now: &Attributes, uid: Option<u32>, gid: Option<u32>, groups: &[Gid]) -> Result<(), Error> {
    if geteuid().is_root() || uid.unwrap_or(now.uid) == now.uid && gid.unwrap_or(now.gid) == now.gid {
        return Ok(());
    }
    let is_own = now.uid == geteuid().as_raw() && uid.unwrap_or(now.uid) == now.uid;
    let gid = Gid::from_raw(gid.unwrap_or(now.gid));
    if is_own && (gid == getegid() || groups.contains(&gid)) { Ok(()) } else { Err(Errno::PERM.into()) }
}

impl Edit for OverlayTree {
    fn may_change(&self, _: Node) -> bool {
        true
    }

    fn space(&self) -> Option<Result<Space, Error>> {
        Some(self.space())
    }

    fn make(&self, folder: Node, name: &[u8], new: &New) -> Result<Attributes, Error> {
        is_name(name)?;
        let overlay = &*self.0;
        overlay.takes_names(folder)?;
        let (is_over, below) = (overlay.is_over(folder, name)?, overlay.prepare(folder)?);
        let made = overlay.edit(|editing| {
            let folder = editing.touch(&below, folder)?;
            match rows::name(editing.connection, folder, name)? {
                Said::Nothing if !is_over => {}
                Said::Gone => {}
                Said::Nothing | Said::Node(_) => return Err(Errno::EXIST.into()),
            }
            let row = editing.node(folder)?;
            // It was removed meanwhile.
            if row.links == 0 {
                return Err(Error::NotFound);
            }
            if row.kind != Kind::Folder {
                return Err(Error::NotAFolder);
            }
            let made = editing.make(&row, name, new)?;
            editing.put_name(folder, name, Some(made.id), is_over)?;
            editing.changed(folder, i64::from(new.kind == Kind::Folder))?;
            Ok(made)
        })?;
        overlay.give_row(&made)
    }

    fn make_unnamed(&self, folder: Node, new: &New) -> Result<Attributes, Error> {
        let overlay = &*self.0;
        overlay.takes_names(folder)?;
        let below = overlay.prepare(folder)?;
        let id = overlay.edit(|editing| {
            let folder = editing.node(editing.touch(&below, folder)?)?;
            Ok(editing.make(&folder, b"", new)?.id)
        });
        // Held before anybody could take it for what nobody knows.
        id.and_then(|id| overlay.give(id))
    }

    fn link(&self, node: Node, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        is_name(name)?;
        let overlay = &*self.0;
        overlay.takes_names(folder)?;
        if overlay.find(folder, name, false)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        let before = overlay.attributes(node)?;
        if before.kind == Kind::Folder {
            return Err(Errno::PERM.into());
        }
        let is_over = overlay.is_over(folder, name)?;
        let (of_folder, of_node) = (overlay.prepare(folder)?, overlay.prepare(node)?);
        let row = overlay.edit(|editing| {
            let (folder, id) = (editing.touch(&of_folder, folder)?, editing.touch(&of_node, node)?);
            let mut row = editing.node(id)?;
            row.links = row.links.checked_add(1).ok_or(Errno::MLINK)?;
            row.ctime = now();
            rows::put_node(editing.connection, &row)?;
            editing.orphans.borrow_mut().push((id, Orphan::Named));
            editing.put_name(folder, name, Some(id), is_over)?;
            editing.changed(folder, 0)?;
            editing.node(id)
        })?;
        overlay.known.hold(node);
        let shown = overlay.shown_as(&row, node);
        let is_below = row.kind == Kind::File && row.place.is_none();
        // Nothing is asked of what is below by now.
        Ok(if is_below { Attributes { links: shown.links, ctime: shown.ctime, ..before } } else { shown })
    }

    fn remove(&self, folder: Node, name: &[u8], is_folder: bool) -> Result<(), Error> {
        let overlay = &*self.0;
        let found = overlay.find(folder, name, false)?.ok_or(Error::NotFound)?;
        match (is_folder, found.attributes.kind == Kind::Folder) {
            (true, false) => return Err(Error::NotAFolder),
            (false, true) => return Err(Error::IsAFolder),
            (true, true) => overlay.must_be_empty(found.attributes.node)?,
            (false, false) => {}
        }
        let (is_over, below) = (overlay.is_over(folder, name)?, overlay.prepare(folder)?);
        overlay.edit_for_room(|editing| {
            let folder = editing.touch(&below, folder)?;
            editing.drop_found(&found)?;
            editing.take_name(folder, name, is_over)?;
            editing.changed(folder, -i64::from(is_folder))
        })
    }

    fn rename(&self, from: (Node, &[u8]), to: (Node, &[u8]), how: Renaming) -> Result<(), Error> {
        is_name(from.1).and_then(|()| is_name(to.1))?;
        self.0.rename(from, to, how)
    }

    fn change(&self, node: Node, change: &Change) -> Result<Attributes, Error> {
        let overlay = &*self.0;
        let Change { mode, uid, gid, size, atime, mtime } = *change;
        if uid.is_some() || gid.is_some() {
            may_give(&overlay.attributes(node)?, uid, gid, &overlay.groups)?;
        }
        // Before anything begins.
        let below = overlay.prepare(node)?;
        let shown = match overlay.place(node) {
            NodePlace::Own(id) => overlay.now_below(&overlay.known_row(id)?, node),
            NodePlace::Lower => None,
        };
        if let Some(size) = size {
            overlay.say_names(node)?;
            let file = OpenedFile::new(&self.0, self.0.content(node)?);
            file.set_len(size).map_err(Error::Io)?;
        }
        if (mode, uid, gid, atime, mtime) == (None, None, None, None, None) {
            return overlay.attributes(node);
        }
        let opened = overlay.opened(node);
        let row = overlay.edit(|editing| {
            let id = editing.touch(&below, node)?;
            let mut row = editing.node(id)?;
            if let Some(shown) = shown.as_ref().filter(|_| row.place.is_none()) {
                row = following(&row, shown);
            }
            if let Some(mode) = mode {
                row.mode = mode & 0o7777;
                let list = rows::xattr(editing.connection, id, access::ACCESS)?;
                if let Some(list) = Overlay::list_with_mode(list, mode) {
                    rows::put_xattr(editing.connection, id, access::ACCESS, Some(&list))?;
                }
            }
            row.uid = uid.unwrap_or(row.uid);
            row.gid = gid.unwrap_or(row.gid);
            row.atime = atime.unwrap_or(row.atime);
            row.mtime = mtime.unwrap_or(row.mtime);
            row.ctime = now();
            row.changed |= changed::ATTRIBUTES;
            if atime.is_some() || mtime.is_some() {
                row.changed |= changed::TIMES;
            }
            rows::put_node(editing.connection, &row)?;
            // Times of a content are those of its file.
            if let (Kind::File, Some(place)) = (row.kind, &row.place)
                && (atime.is_some() || mtime.is_some())
            {
                if let Some(upper) = opened.as_ref().and_then(|content| content.upper()) {
                    stamp(upper, atime, mtime)?;
                } else {
                    stamp(overlay.files.open_content(place)?.as_fd(), atime, mtime)?;
                }
            }
            Ok(row)
        })?;
        Ok(overlay.shown_as(&row, node))
    }

    fn set_xattr(&self, node: Node, name: &[u8], value: &[u8], how: Setting) -> Result<(), Error> {
        let overlay = &*self.0;
        let below = overlay.prepare(node)?;
        overlay.edit(|editing| {
            let id = editing.touch(&below, node)?;
            let mut row = editing.node(id)?;
            let is_there = rows::xattr(editing.connection, id, name)?.is_some();
            match how {
                Setting::Adds if is_there => return Err(Errno::EXIST.into()),
                Setting::Replaces if !is_there => return Err(Errno::NODATA.into()),
                _ => {}
            }
            let mut value = Some(value);
            match name {
                access::ACCESS => {
                    let list = access::List::parse(value.unwrap_or_default()).ok_or(Errno::INVAL)?;
                    row.mode = (row.mode & 0o7000) | list.mode();
                    if list.is_a_mode() {
                        value = None;
                    }
                }
                access::DEFAULT if row.kind != Kind::Folder => return Err(Errno::ACCESS.into()),
                access::DEFAULT => {
                    access::List::parse(value.unwrap_or_default()).ok_or(Errno::INVAL)?;
                }
                _ => {}
            }
            rows::put_xattr(editing.connection, id, name, value)?;
            row.ctime = now();
            row.changed |= changed::ATTRIBUTES;
            rows::put_node(editing.connection, &row).map(drop)
        })
    }

    fn remove_xattr(&self, node: Node, name: &[u8]) -> Result<(), Error> {
        let overlay = &*self.0;
        // Nothing is touched for what is not there.
        if self.xattr(node, name)?.is_none() {
            return if matches!(name, access::ACCESS | access::DEFAULT) { Ok(()) } else { Err(Errno::NODATA.into()) };
        }
        let below = overlay.prepare(node)?;
        overlay.edit(|editing| {
            let id = editing.touch(&below, node)?;
            let mut row = editing.node(id)?;
            rows::put_xattr(editing.connection, id, name, None)?;
            row.ctime = now();
            row.changed |= changed::ATTRIBUTES;
            rows::put_node(editing.connection, &row).map(drop)
        })
    }

    fn open_to_write(&self, node: Node, _: bool) -> Result<Arc<dyn WritableFile>, Error> {
        // Not only when all of it was copied.
        self.0.has_a_place(node)?;
        self.0.say_names(node)?;
        Ok(Arc::new(OpenedFile::new(&self.0, self.0.content(node)?)))
    }

    fn sync(&self, node: Node, _: bool) -> Result<(), Error> {
        Ok(self.0.synced(|| self.0.settle(node).map_err(to_io))?)
    }
}
