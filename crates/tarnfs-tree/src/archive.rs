//! An archive as a tree: rows from its index, bytes from its innermost stream.

mod above;
mod headers;
mod locked;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use rustix::io::Errno;
use tarnfs_index::{Holder, Index, Row};
use tarnfs_source::{Cancel, Extent, SharedSource, Slice, Source as _, Stencil};

pub use self::locked::{Fit, LockedFiles};
pub(crate) use self::locked::{has_encrypted, is_encrypted};
use crate::hashes;
use crate::lanes::new_lane;
use crate::patience::A_MOMENT;
use crate::pieces::{ListWeight, PieceSource, SHORT_IN_INDEX, VERIFIED_WHEN_STORED};
use crate::recheck::Recheck;
use crate::streams::Streams;
use crate::{Attributes, Child, Error, Kind, Lifetime, Node, Time, Totals, Tree, Waiting, Work, Xattrs};
use above::{path_in, path_of};

/// The extended attribute that a damaged file has where bytes are served that fail a check: what is wrong with it.
const DAMAGED: &[u8] = b"user.tarnfs.damaged";

/// Names of which a path that is told is made at most.
const MOST_NAMES: usize = 4096;

/// Bytes of the target of a symbolic link (PATH_MAX, without the zero behind it).
pub(crate) const LONGEST_TARGET: u64 = 4095;

/// Bytes of targets that are kept once they were read. A listing asks for all of them, again and again.
const MOST_OF_TARGETS: usize = 1 << 20;

/// Targets of symbolic links that were read.
#[derive(Debug, Default)]
struct Targets {
    targets: HashMap<Node, Box<[u8]>>,
    /// Bytes that they take, about.
    bytes: usize,
}

impl Targets {
    fn insert(&mut self, node: Node, target: &[u8]) {
        /// What one takes beside itself.
        const BESIDE: usize = 64;
        if self.bytes >= MOST_OF_TARGETS {
            *self = Self::default();
        }
        if self.targets.insert(node, target.into()).is_none() {
            self.bytes = self.bytes.saturating_add(target.len()).saturating_add(BESIDE);
        }
    }
}

/// What [`ArchiveTree::damaged`] has counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DamagedFiles {
    /// Regular files, by their names: one with two names is two.
    pub files: u64,
    /// Those of which something is lost or damaged.
    pub damaged: u64,
    /// Symbolic links whose target is damaged.
    pub links: u64,
    /// Those that no password has opened, so that nobody knows.
    pub locked: u64,
    /// Those that could be read, but of which some was compared with no checksum: nothing tells whether it is whole.
    pub unchecked: u64,
    /// Some of those that are damaged, by path, with what is wrong.
    pub first: Vec<(Vec<u8>, String)>,
}

/// What is to be said of a file that is stored in pieces.
#[derive(Clone)]
enum Finding {
    /// It is encrypted, and no password fits.
    Locked,
    /// What is wrong with it.
    Damaged(String),
    /// There was nothing to compare some of it with.
    Unchecked,
}

/// Where the content of a file is stored, and what only whoever copies it has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(clippy::struct_excessive_bools, reason = "each says something else")]
pub struct Stored {
    /// The stream that it lies in; 0 is the archive's own.
    pub stream: u32,
    /// Where in it: files that are read in this order are read in that of the archive.
    pub place: u64,
    /// Byte of the stream at which its first header begins; `None` for a folder that no entry names.
    pub header: Option<u64>,
    /// It is one run of bytes, from `place` on.
    pub is_plain: bool,
    /// It has extended attributes.
    pub has_xattrs: bool,
}

impl Stored {
    fn of(row: &Row) -> Self {
        Self {
            stream: row.stream,
            // Those that share a block lie in this order in it.
            place: if row.has_pieces { row.header.unwrap_or(0) } else { row.body },
            header: row.header,
            is_plain: row.kind == Kind::File && !row.is_sparse && !row.has_pieces,
            has_xattrs: row.has_xattrs,
        }
    }
}

/// One archive.
#[derive(Debug)]
pub struct ArchiveTree {
    pub(crate) index: Arc<dyn Index>,
    /// What the offsets in the index count in.
    streams: Streams,
    implied: Implied,
    /// `None` if the bytes are known to be those that were indexed.
    recheck: Option<Recheck>,
    lane: u64,
    maps: Maps,
    /// Whether there may be files that are verified late.
    has_members: OnceLock<bool>,
    /// Whether there may be files that are stored in very many pieces, once somebody has asked.
    has_long_lists: OnceLock<bool>,
    /// Whether there are symbolic links whose target is stored in pieces, once somebody has asked.
    has_links: OnceLock<bool>,
    /// Targets of such links that were read.
    targets: Mutex<Targets>,
    above: above::Above,
}

/// What is asked of maps of sparse files whenever somebody asks what the file is. A map may take megabytes.
#[derive(Debug, Default)]
struct Maps {
    sums: Mutex<HashMap<Node, MapSums>>,
    /// There is, or was, a large one among them.
    has_large: AtomicBool,
}

/// Sums over the extents of a map, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct MapSums {
    /// Of the data in them.
    data: u64,
    /// Of what is stored of the file.
    stored: u64,
    /// How many extents there are.
    count: usize,
}

impl Maps {
    /// So many are known at a time: a few hundred kilobytes.
    const MOST: usize = 1 << 13;

    /// A map of so many extents is read at once, and takes no memory worth mentioning.
    const FEW: usize = 1 << 12;

    /// True if the map of `node` is large, or may be: it is known once somebody has asked what the file is, but not for
    /// ever. Then `is_sparse` says whether there is one.
    fn may_be_large(&self, node: Node, is_sparse: impl FnOnce() -> bool) -> bool {
        if !self.has_large.load(Ordering::Relaxed) {
            return false;
        }
        match self.known(node) {
            Some(sums) => sums.count > Self::FEW,
            None => is_sparse(),
        }
    }

    /// The sums of the map of `node`, if they are known.
    fn known(&self, node: Node) -> Option<MapSums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner).get(&node).copied()
    }

    /// The sums of the map of `node`, which `read` reads if they are not known.
    fn sums(&self, node: Node, read: impl FnOnce() -> Result<Vec<Extent>, Error>) -> Result<MapSums, Error> {
        if let Some(sums) = self.known(node) {
            return Ok(sums);
        }
        let add = |sums: MapSums, extent: &Extent| MapSums {
            data: sums.data.saturating_add(extent.length),
            stored: sums.stored.saturating_add(extent.skip.saturating_add(extent.length)),
            count: sums.count + 1,
        };
        let sums = read()?.iter().fold(MapSums::default(), add);
        if sums.count > Self::FEW {
            self.has_large.store(true, Ordering::Relaxed);
        }
        let mut known = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= Self::MOST {
            known.clear();
        }
        known.insert(node, sums);
        Ok(sums)
    }
}

/// Whose the folders are that no entry names, and how old.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Implied {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mtime: Time,
}

impl ArchiveTree {
    /// The tree that `index` describes.
    pub(crate) fn new(index: Arc<dyn Index>, streams: Streams, implied: Implied, recheck: Option<Recheck>) -> Self {
        let (lane, maps) = (new_lane(), Maps::default());
        let (has_members, has_long_lists, has_links) = Default::default();
        let (targets, above) = Default::default();
        Self { index, streams, implied, recheck, lane, maps, has_members, has_long_lists, has_links, targets, above }
    }

    /// True of a file that may be stored in very many pieces: who opens it may have to wait for memory. Only of a long
    /// file is it asked how many it has: nobody stores shorter ones than these, but for the last one of a file.
    fn may_have_a_long_list(&self, node: Node) -> bool {
        const LEAST_PIECE: u64 = 2048;
        // Of those that have a coder, each takes five bytes of an index, or more.
        const SHORT: u64 = SHORT_IN_INDEX / 5 * LEAST_PIECE;
        let is_long = || self.index.pieces_take(Holder::File(node)).map_or(true, |bytes| !PieceSource::has_few(bytes));
        // What cannot be read now counts as one.
        *self.has_long_lists.get_or_init(|| self.index.has_pieces_above(0).unwrap_or(true))
            && self.row(node).is_ok_and(|row| row.has_pieces && row.size > SHORT)
            && is_long()
    }

    /// True if some file may be served before it was compared with its checksum.
    fn has_members(&self) -> bool {
        // What cannot be read now counts as one.
        *self.has_members.get_or_init(|| self.index.has_pieces_above(VERIFIED_WHEN_STORED).unwrap_or(true))
    }

    fn row(&self, node: Node) -> Result<Row, Error> {
        self.index.row(node)?.ok_or(Error::NotFound)
    }

    fn folder(&self, node: Node) -> Result<(), Error> {
        if self.row(node)?.kind == Kind::Folder { Ok(()) } else { Err(Error::NotAFolder) }
    }

    /// What is wrong with bytes of the file, if anything is known. Damage may be found behind them, when they have been
    /// hashed already.
    fn damage_of(&self, row: &Row) -> Result<Option<String>, Error> {
        if row.has_pieces {
            let (mut number, mut found) = (0, Ok(None));
            let damages = self.streams.damages(row.stream)?;
            self.index.each_piece(Holder::File(row.node), &mut |piece| {
                let of_member = self.streams.members().damage(row.node, number);
                number += 1;
                let stored = piece.offset..piece.offset.saturating_add(piece.stored);
                found = match of_member {
                    Some(damage) => Ok(Some(damage.to_string())),
                    None => damages.of(stored),
                };
                matches!(found, Ok(None))
            })?;
            return found;
        }
        let stored = if row.is_sparse { self.sums(row.node)?.stored } else { row.size };
        self.streams.damage_of(row.stream, row.body..row.body.saturating_add(stored))
    }

    /// [`Tree::read_dir`], and of each child where it is stored.
    pub fn read_stored(
        &self,
        folder: Node,
        from: u64,
        receive: &mut dyn FnMut(Child<'_>, Stored) -> bool,
    ) -> Result<(), Error> {
        let (mut any, mut failure) = (false, None);
        self.index.children(folder, from, &mut |next, name, row| {
            any = true;
            match self.attributes_of(row) {
                Ok(attributes) => receive(Child { name, attributes, next }, Stored::of(row)),
                Err(error) => {
                    failure = Some(error);
                    false
                }
            }
        })?;
        match failure {
            Some(error) => Err(error),
            None if any => Ok(()),
            None => self.folder(folder),
        }
    }

    /// Where one of them is stored.
    pub fn stored(&self, node: Node) -> Result<Stored, Error> {
        Ok(Stored::of(&self.row(node)?))
    }

    /// [`Tree::open`] of a file of which that is known; it takes no look at the index where it can do without.
    pub fn open_stored(&self, node: Node, stored: &Stored, size: u64) -> Result<SharedSource, Error> {
        if !stored.is_plain || self.recheck.is_some() {
            return self.open(node);
        }
        Ok(Arc::new(Slice::new(self.streams.get(stored.stream)?, stored.place, size)))
    }

    /// True if what is stored in one run of the archive's own stream can be read there as it is.
    pub fn is_read_as_stored(&self) -> bool {
        self.recheck.is_none()
    }

    /// False if nothing in it is known to be damaged, so that [`ArchiveTree::damage`] need not be asked.
    pub fn may_be_damaged(&self) -> bool {
        !self.index.summary().notes.is_empty()
    }

    /// How many files show, and which of them are damaged; of these, the first `most` by their paths.
    pub fn damaged(&self, most: usize, cancel: &Cancel) -> Result<DamagedFiles, Error> {
        /// Rows that are looked at under one lock of the index.
        const BATCH: usize = 256;
        let mut found = DamagedFiles::default();
        let may_be_any = !self.index.summary().notes.is_empty();
        let mut waiting = vec![(Node::ROOT, 0)];
        while let Some((folder, from)) = waiting.pop() {
            cancel.check()?;
            let (mut rows, mut next) = (Vec::new(), from);
            self.index.children(folder, from, &mut |behind, name, row| {
                next = behind;
                rows.push((name.to_vec(), row.clone()));
                rows.len() < BATCH
            })?;
            let mut later = Vec::new();
            if rows.len() == BATCH {
                later.push((folder, next));
            }
            let read = self.read_pieces(rows.iter().map(|(_, row)| row).collect(), cancel)?;
            let mut damaged = Vec::new();
            for (name, row) in rows {
                match row.kind {
                    Kind::Folder => later.push((row.node, 0)),
                    Kind::File => {
                        found.files += 1;
                        let known = if may_be_any { self.wrong_with(&row)? } else { None };
                        let what = match (known, read.get(&row.node).cloned()) {
                            (None, None) => continue,
                            (None, Some(Finding::Locked)) => {
                                found.locked += 1;
                                continue;
                            }
                            (None, Some(Finding::Unchecked)) => {
                                found.unchecked += 1;
                                continue;
                            }
                            (Some(what), _) | (None, Some(Finding::Damaged(what))) => what,
                        };
                        found.damaged += 1;
                        damaged.push((name, what));
                    }
                    Kind::Symlink => {
                        if let Some(Finding::Damaged(what)) = read.get(&row.node) {
                            found.links += 1;
                            damaged.push((name, format!("the target of the link: {what}")));
                        }
                    }
                    _ => {}
                }
            }
            for (name, what) in damaged {
                if found.first.len() < most {
                    found.first.push((path_in(&*self.index, folder, name)?, what));
                }
            }
            waiting.append(&mut later);
        }
        found.first.sort();
        Ok(found)
    }

    /// Reads the files among `rows` that are stored in pieces, on all threads: nobody has done so before. What is to be
    /// said of some of them.
    fn read_pieces(&self, rows: Vec<&Row>, cancel: &Cancel) -> Result<HashMap<Node, Finding>, Error> {
        let is_read = |row: &&Row| row.has_pieces && (row.kind == Kind::File || row.size <= LONGEST_TARGET);
        let mut rows: Vec<&Row> = rows.into_iter().filter(is_read).collect();
        // Those that share a block lie in this order in it.
        rows.sort_by_key(|row| (row.header, row.node));
        // A file with several names is read once.
        rows.dedup_by_key(|row| row.node);
        let (following, found) = (AtomicUsize::new(0), Mutex::new(HashMap::new()));
        // Others had the memory that these need.
        let again = Mutex::new(Vec::new());
        let read = |row: &Row| {
            let pieces = self.pieces(row)?;
            pieces.check(cancel)?;
            Ok(pieces.has_unchecked())
        };
        let keep = |row: &Row, what: Finding| {
            found.lock().unwrap_or_else(PoisonError::into_inner).insert(row.node, what);
        };
        let why_not = |row: &Row, error: Error| match error {
            Error::Io(error)
                if error.kind() == io::ErrorKind::PermissionDenied && self.is_locked(row).unwrap_or(false) =>
            {
                Finding::Locked
            }
            error => Finding::Damaged(error.to_string()),
        };
        let work = || {
            while let Some(&row) = rows.get(following.fetch_add(1, Ordering::Relaxed))
                && !cancel.is_cancelled()
            {
                match read(row) {
                    Ok(false) => {}
                    Ok(true) => keep(row, Finding::Unchecked),
                    Err(Error::Io(error)) if error.kind() == io::ErrorKind::OutOfMemory => {
                        again.lock().unwrap_or_else(PoisonError::into_inner).push(row);
                    }
                    Err(error) => keep(row, why_not(row, error)),
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.streams.context().workers.threads().min(rows.len()) {
                // Where there can be no more threads, fewer do it all.
                if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
        cancel.check()?;
        for row in again.into_inner().unwrap_or_else(PoisonError::into_inner) {
            match read(row) {
                Ok(false) => {}
                Ok(true) => keep(row, Finding::Unchecked),
                // That says nothing of the file.
                Err(Error::Io(error)) if error.kind() == io::ErrorKind::OutOfMemory => return Err(error.into()),
                Err(error) => keep(row, why_not(row, error)),
            }
        }
        cancel.check()?;
        Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// The content of a file that is stored in pieces.
    fn pieces(&self, row: &Row) -> Result<PieceSource, Error> {
        let (stream, coded) = self.streams.with_coded(row.stream)?;
        let context = self.streams.context().clone();
        let weigh = || -> Result<ListWeight, Error> {
            let mut weight = ListWeight::default();
            self.index.each_piece(Holder::File(row.node), &mut |piece| {
                weight.add(piece);
                true
            })?;
            Ok(weight)
        };
        let room = PieceSource::room_for(self.index.pieces_take(Holder::File(row.node))?, weigh, &context)?;
        let pieces = self.index.pieces(Holder::File(row.node))?;
        Ok(PieceSource::new((row.stream, stream), pieces, row.size, coded, context).within(room))
    }

    /// The target of a symbolic link that is stored as a file is.
    fn target_in_pieces(&self, row: &Row) -> Result<Vec<u8>, Error> {
        if row.size > LONGEST_TARGET {
            let what = format!("node {}: the target of the link has {} bytes", row.node.0, row.size);
            return Err(tarnfs_index::Error::Broken(what).into());
        }
        let known = || self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(target) = known().targets.get(&row.node) {
            return Ok(target.to_vec());
        }
        let mut target = vec![0; row.size as usize];
        // A part of a target leads elsewhere: with --force, too, only what is right is served.
        self.pieces(row)?.strictly().read_exact_at(&mut target, 0)?;
        known().insert(row.node, &target);
        Ok(target)
    }

    /// What is wrong with a file, if anything is: the words of its damage, or that its end is missing.
    fn wrong_with(&self, row: &Row) -> Result<Option<String>, Error> {
        if let Some(what) = self.damage_of(row)? {
            return Ok(Some(what));
        }
        let what = if row.stream == 0 { "the archive" } else { "what it lies in" };
        Ok(self.is_cut(row)?.then(|| format!("{what} ends before its end")))
    }

    /// What is wrong with the file `node`, if anything is known to be.
    pub fn damage(&self, node: Node) -> Result<Option<String>, Error> {
        let row = self.row(node)?;
        if row.kind == Kind::File { self.wrong_with(&row) } else { Ok(None) }
    }

    /// True for a file whose stream ends before it does.
    fn is_cut(&self, row: &Row) -> Result<bool, Error> {
        let length = match row.stream {
            0 => self.streams.innermost().len(),
            number => self.index.nested(number)?.decoded_length,
        };
        if row.has_pieces {
            let mut ends_behind = false;
            self.index.each_piece(Holder::File(row.node), &mut |piece| {
                ends_behind = piece.offset.saturating_add(piece.stored) > length;
                !ends_behind
            })?;
            return Ok(ends_behind);
        }
        let stored = if row.is_sparse { self.sums(row.node)?.stored } else { row.size };
        Ok(row.body.saturating_add(stored) > length)
    }

    fn sums(&self, node: Node) -> Result<MapSums, Error> {
        self.maps.sums(node, || Ok(self.index.extents(node)?))
    }

    fn attributes_of(&self, row: &Row) -> Result<Attributes, Error> {
        let stored = if row.is_sparse && self.index.knows_extents() {
            self.sums(row.node)?.data
        } else if row.kind == Kind::File {
            row.size
        } else {
            0
        };
        let attributes = Attributes {
            node: row.node,
            kind: row.kind,
            mode: row.mode,
            uid: row.uid,
            gid: row.gid,
            links: row.links,
            size: row.size,
            blocks: stored.div_ceil(512),
            mtime: row.mtime,
            atime: row.atime,
            ctime: row.ctime,
        };
        if row.header.is_some() || row.kind != Kind::Folder {
            return Ok(attributes);
        }
        let Implied { uid, gid, mtime } = self.implied;
        Ok(Attributes { uid, gid, mtime, atime: mtime, ctime: mtime, ..attributes })
    }
}

impl Tree for ArchiveTree {
    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Attributes, Error> {
        if let Some(row) = self.index.lookup(folder, name)? {
            return self.attributes_of(&row);
        }
        self.folder(folder)?;
        Err(Error::NotFound)
    }

    fn read_dir(&self, folder: Node, from: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> Result<(), Error> {
        self.read_stored(folder, from, &mut |child, _| receive(child))
    }

    fn count(&self, folder: Node) -> Option<u64> {
        self.index.count(folder).ok()
    }

    fn has_name(&self, folder: Node, name: &[u8]) -> Result<bool, Error> {
        Ok(self.index.has_name(folder, name)?)
    }

    fn names(&self, folder: Node, receive: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        Ok(self.index.names(folder, receive)?)
    }

    fn attributes(&self, node: Node) -> Result<Attributes, Error> {
        self.attributes_of(&self.row(node)?)
    }

    fn is_implied(&self, folder: Node) -> bool {
        self.row(folder).is_ok_and(|row| row.kind == Kind::Folder && row.header.is_none())
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        Ok(self.index.parent(folder)?)
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>, Error> {
        let row = self.row(node)?;
        match row.kind {
            Kind::Symlink if row.has_pieces => self.target_in_pieces(&row),
            Kind::Symlink => Ok(self.index.link(node)?),
            _ => Err(Error::WrongKind),
        }
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        let row = self.row(node)?;
        let mut xattrs = if row.has_xattrs { self.index.xattrs(node)? } else { Vec::new() };
        // Those that the archive has stay: they say what the file should be.
        let computed: Vec<_> = self.index.summary().shape.hashes.iter().map(|hash| hashes::attribute(hash)).collect();
        let is_hash = |(name, _): &(Vec<u8>, Vec<u8>)| computed.contains(name);
        let marks = self.streams.serves_unverified();
        if row.kind == Kind::File
            && (marks || xattrs.iter().any(is_hash))
            && let Some(what) = self.wrong_with(&row)?
        {
            xattrs.retain(|xattr| !is_hash(xattr));
            if marks {
                xattrs.retain(|(name, _)| name != DAMAGED);
                xattrs.push((DAMAGED.to_vec(), what.into_bytes()));
            }
        }
        Ok(xattrs)
    }

    fn xattr(&self, node: Node, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let row = self.row(node)?;
        let is_hash = || self.index.summary().shape.hashes.iter().any(|hash| hashes::attribute(hash) == name);
        if name == DAMAGED || is_hash() {
            // Which of these show depends on the others.
            let all = self.xattrs(node)?;
            return Ok(all.into_iter().find(|(key, _)| key == name).map(|(_, value)| value));
        }
        Ok(if row.has_xattrs { self.index.xattr(node, name)? } else { None })
    }

    fn each_version(
        &self,
        folder: Node,
        name: &[u8],
        from: u64,
        receive: &mut dyn FnMut(Attributes) -> bool,
    ) -> Result<(), Error> {
        let (mut last, mut result) = (None, Ok(true));
        // The one before is looked at: it may be what shows.
        let before = from.saturating_sub(1);
        let mut count = 0;
        count += self.index.replaced_of(folder, name, before, &mut |_, row| {
            last = (row.kind == Kind::Folder).then_some((row.node, row.header));
            count += 1;
            if count > from - before {
                result = self.attributes_of(row).map(&mut *receive);
            }
            matches!(result, Ok(true))
        })?;
        if !result? || count < from {
            return Ok(());
        }
        // A folder that shows since the link behind it leads nowhere is the last of them already.
        let shown = self.index.lookup(folder, name)?.filter(|shown| last != Some((shown.node, shown.header)));
        if let Some(row) = shown {
            receive(self.attributes_of(&row)?);
        }
        Ok(())
    }

    fn open(&self, node: Node) -> Result<SharedSource, Error> {
        let (row, name) = self.index.named_row(node)?.ok_or(Error::NotFound)?;
        match row.kind {
            Kind::File => {}
            Kind::Folder => return Err(Error::IsAFolder),
            _ => return Err(Error::WrongKind),
        }
        // What is stored in pieces is not described by a header of the archive's own format.
        if let Some(recheck) = self.recheck.as_ref().filter(|_| !row.has_pieces) {
            recheck.check(self.streams.innermost(), &row, &name)?;
        }
        let stream = self.streams.get(row.stream)?;
        if row.has_pieces {
            let index = Arc::clone(&self.index);
            return Ok(self
                .pieces(&row)?
                .watched(row.node, self.streams.members(), move || path_of(&*index, row.node)));
        }
        if !row.is_sparse {
            return Ok(Arc::new(Slice::new(stream, row.body, row.size)));
        }
        let cache = self.streams.cache();
        // While it is read it takes several times what it takes then.
        let alone_for_now = || cache.budget().alone_for_now(A_MOMENT).ok_or(Errno::NOMEM);
        let mut reading = self.maps.may_be_large(node, || true).then(alone_for_now).transpose()?;
        let sums = self.sums(node)?;
        let is_large = sums.count > Maps::FEW;
        if is_large && reading.is_none() {
            reading = Some(alone_for_now()?);
        }
        let granted = cache.take(sums.count.saturating_mul(Stencil::PER_EXTENT));
        let exceeds = is_large && granted.is_none();
        let alone = exceeds.then(|| cache.budget().alone().ok_or(Errno::NOMEM)).transpose()?;
        let packed = Arc::new(Slice::new(stream, row.body, sums.stored));
        let stencil = Stencil::new(packed, self.index.extents(node)?, row.size)?;
        drop(reading);
        Ok(Arc::new(stencil.within(granted, alone)))
    }

    fn path_of(&self, node: Node) -> Option<Vec<u8>> {
        path_of(&*self.index, node)
    }

    fn owner_names(&self, node: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        Ok(self.index.owner_names(node)?)
    }

    /// Records of an index have numbers below 2³¹, those of what was replaced included.
    fn node_limit(&self) -> u64 {
        1 << 31
    }

    fn lifetime(&self, _: Node) -> Lifetime {
        Lifetime::Forever
    }

    fn totals(&self) -> Totals {
        let summary = self.index.summary();
        // What is wrong with files in pieces is known when they were read.
        let has_pieces = || self.index.has_pieces_above(0).unwrap_or(true);
        let may_be_damaged = || !summary.notes.is_empty() || has_pieces();
        Totals {
            nodes: summary.files.saturating_add(summary.folders),
            bytes: summary.bytes,
            has_xattrs: summary.has_xattrs || self.streams.serves_unverified() && may_be_damaged(),
            has_acls: summary.has_acls,
            is_immutable: true,
            is_unproven: self.streams.innermost().is_unproven() || self.has_members(),
        }
    }

    fn work(&self) -> Work {
        self.streams.work()
    }

    fn waiting(&self) -> Option<&dyn Waiting> {
        Some(self)
    }
}

impl Waiting for ArchiveTree {
    /// Who opens a sparse file with a large map, or one in very many pieces, may have to wait for memory. The target of
    /// a link may have to be decoded, and so may the header of a file. A folder is listed from the index alone, also
    /// where an archive is shown as one; but that may lie behind a URL.
    fn is_ready(&self, node: Node) -> bool {
        if self.index.waits() || self.may_wait_for_header(node) {
            return false;
        }
        if self.row(node).is_ok_and(|row| row.kind == Kind::Folder) {
            return true;
        }
        // What cannot be read now counts as one.
        let is_link = || self.row(node).is_ok_and(|row| row.kind == Kind::Symlink && row.has_pieces);
        if *self.has_links.get_or_init(|| self.index.has_links_in_pieces().unwrap_or(true)) && is_link() {
            return false;
        }
        if self.may_have_a_long_list(node) {
            return false;
        }
        let is_sparse = || self.row(node).is_ok_and(|row| row.is_sparse);
        (self.index.knows_extents() || !is_sparse()) && !self.maps.may_be_large(node, is_sparse)
    }

    fn lane(&self, _: Node) -> u64 {
        self.lane
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who has not asked what the file is, or asked long ago, may have to wait for memory all the same.
    #[test]
    fn a_map_of_which_nothing_is_known_any_more_may_be_large() {
        let maps = Maps::default();
        assert!(!maps.may_be_large(Node(7), || panic!("there is no large one")));
        let large = || Ok(vec![Extent { offset: 0, length: 1, skip: 0 }; Maps::FEW + 1]);
        maps.sums(Node(7), large).unwrap();
        for number in 1000..1000 + Maps::MOST as u64 {
            maps.sums(Node(number), || Ok(Vec::new())).unwrap();
        }
        assert!(maps.known(Node(7)).is_none(), "the table was emptied");
        assert!(maps.may_be_large(Node(7), || true) && !maps.may_be_large(Node(8), || false));
        maps.sums(Node(7), large).unwrap();
        maps.sums(Node(8), || Ok(Vec::new())).unwrap();
        let known = || panic!("it is known");
        assert!(maps.may_be_large(Node(7), known) && !maps.may_be_large(Node(8), known));
    }

    #[test]
    fn a_map_is_read_once_as_long_as_its_sums_are_known() {
        let maps = Maps::default();
        let extents = || Ok(vec![Extent { offset: 5, length: 10, skip: 1 }, Extent { offset: 20, length: 7, skip: 0 }]);
        let sums = MapSums { data: 17, stored: 18, count: 2 };
        for number in 0..3 * Maps::MOST as u64 {
            assert_eq!(maps.sums(Node(number), extents).unwrap(), sums);
            assert_eq!(maps.sums(Node(number), || panic!("it is known")).unwrap(), sums);
            assert!(maps.sums.lock().unwrap().len() <= Maps::MOST);
        }
        assert!(maps.sums(Node(0), || Err(Error::NotFound)).is_err(), "what cannot be read is not known");
    }
}
