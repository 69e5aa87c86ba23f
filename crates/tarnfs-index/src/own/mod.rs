//! The index in the schema of tarnfs.

mod chunks;
mod damage;
mod in_pieces;
mod listing;
pub(crate) mod made;
mod maps;
mod owners;
mod replaced;
pub(crate) mod schema;
mod session;
mod stream_tables;
mod sweep;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tarnfs_format::{Kind, Xattrs};
use tarnfs_source::{Extent, Fingerprint, Limits, SharedSource};

use crate::pool::Pool;
use crate::sqlite::broken;
use crate::store::Store;
use crate::vfs::Opened;
use crate::writer::record::read_number;
use crate::{Error, Index, Node, Owner, Row, Shape, Summary, Swept, trust};

use made::Made;
use owners::OwnerNames;
use session::{Bounds, Folder, Session, Stored, lies, name_of};

/// What can be said of the archive that an index is to be used for.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// Length in bytes.
    pub length: u64,
    /// Last change of its content, ns since 1970.
    pub modified: i64,
    /// Of its bytes; only asked for if nothing cheaper speaks against the index.
    pub fingerprint: &'a dyn Fn() -> io::Result<Fingerprint>,
}

impl fmt::Debug for Facts<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Facts")
            .field("length", &self.length)
            .field("modified", &self.modified)
            .finish_non_exhaustive()
    }
}

/// Opens the index at `path`, if it may be believed (see [`trust::open`]). Whether it belongs to the archive,
/// [`belongs`] says.
pub fn open(path: &Path, archive_owner: Option<&trust::Owner>, trust_any: bool) -> Result<Arc<dyn Index>, Error> {
    open_file(trust::open(path, archive_owner, trust_any)?)
}

/// [`Error::Stale`] if an index of that `summary` was made from another state of the archive, and
/// [`Error::OtherOptions`] if it was made from this one with options that it cannot serve ([`Shape::serves`]).
///
/// With `verify_mtime` (`--verify-mtime`) the time of the archive's last change must be the same, too.
pub fn belongs(summary: &Summary, archive: &Facts<'_>, shape: &Shape, verify_mtime: bool) -> Result<(), Error> {
    let indexed = &summary.archive;
    let stale = |what: String| Err(Error::Stale(what));
    if indexed.length != archive.length {
        return stale(format!("it has {} bytes, {} when it was indexed", archive.length, indexed.length));
    }
    if verify_mtime && indexed.modified != archive.modified {
        return stale("it was changed at another time than the one that was indexed".to_owned());
    }
    if indexed.fingerprint != (archive.fingerprint)()? {
        return stale("its bytes are not those that were indexed".to_owned());
    }
    if !summary.shape.serves(shape) {
        return Err(Error::OtherOptions(summary.shape.to_string()));
    }
    Ok(())
}

/// What stands before the name of an attribute that the archive does not have: a hash that was computed. Attributes of
/// both kinds may have the same name.
pub const COMPUTED: &[u8] = b"\0";

/// Bytes of a file's start that say what it is (SQLite's file format, section 1.3).
const HEAD: usize = 100;

/// Opens an index that is believed: [`trust::open`] made `file`, or whoever calls has written it.
pub fn open_file(file: File) -> Result<Arc<dyn Index>, Error> {
    open_store(Arc::new(Store::File(file)), Known::default())
}

/// The same of one behind a URL, of which no more is read than is asked for. Whether it belongs to an archive,
/// [`belongs`] says; nobody's word but that is taken for it.
pub fn open_source(source: SharedSource) -> Result<Arc<dyn Index>, Error> {
    open_store(Arc::new(Store::Source(source)), Known::default())
}

/// What is known without asking of an index that was written just now.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The rows, as long as they are kept.
    pub(crate) rows: Option<Made>,
    /// Bytes of the longest file, link or nested stream that has pieces; 0 if there is none.
    pub(crate) longest_in_pieces: Option<u64>,
}

/// The same of an index that may be in memory, and of which something may be known.
pub(crate) fn open_store(store: Arc<Store>, known: Known) -> Result<Arc<dyn Index>, Error> {
    // Before SQLite sees anything of it: what is no index needs no look at its tables.
    let mut head = [0; HEAD];
    store.read_exact_at(&mut head, 0).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::Unknown("too short for an index".to_owned()),
        _ => Error::Io(error),
    })?;
    let number =
        |at: usize| head.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |four| u32::from_be_bytes(*four));
    if !head.starts_with(b"SQLite format 3\0") || number(68) != schema::APPLICATION {
        return Err(Error::Unknown("it is no index of tarnfs".to_owned()));
    }
    let version = number(60);
    if version != schema::VERSION {
        return Err(Error::Unknown(format!("schema {version}; this version reads {}", schema::VERSION)));
    }
    // Written without a log, and with whole pages for SQLite's own use. Of a file that says otherwise a part may lie
    // elsewhere.
    if head.get(18..21) != Some(&[1, 1, 0]) {
        return Err(Error::Broken("its pages are not those of an index".to_owned()));
    }
    // Page size (1 stands for 65 536) times number of pages: a file that was cut may look whole until its last page is
    // asked for.
    let page = match head.get(16..).and_then(|rest| rest.first_chunk()).map_or(0, |two| u16::from_be_bytes(*two)) {
        1 => 65_536,
        size => u64::from(size),
    };
    let length = store.len()?;
    if page.checked_mul(u64::from(number(28))) != Some(length) {
        return Err(Error::Broken(format!("it is {length} bytes long and says otherwise")));
    }
    let waits = store.waits();
    let pool = Pool::<Session>::new(Opened::new(store, false));
    let (summary, unit, is_cut, last, has_damage, has_unverified, has_nested) = pool.with(|session| {
        let summary = schema::read_summary(&session.connection)?;
        let unit = schema::read_header_unit(&session.connection)?;
        let is_cut = schema::read_is_cut(&session.connection)?;
        let one = |sql: &str| session.connection.query_row(sql, [], |row| row.get::<_, Option<i64>>(0)).map_err(broken);
        let last = one("SELECT max(rowid) FROM entries")?.unwrap_or(0).max(0);
        // Each end by itself: of a query for both, SQLite reads the whole.
        let first_replaced = one("SELECT min(node) FROM replaced")?.unwrap_or(i64::MAX);
        let last_replaced = one("SELECT max(node) FROM replaced")?.unwrap_or(0);
        if first_replaced <= last || last.max(last_replaced) >= schema::MOST_NODES {
            return Err(Error::Broken("its nodes have numbers that no index gives".to_owned()));
        }
        let last = last as u64;
        let has_damage = one("SELECT EXISTS (SELECT 1 FROM damage)")? != Some(0);
        let has_unverified = one("SELECT EXISTS (SELECT 1 FROM damage WHERE compressed < 0)")? != Some(0);
        let has_nested = one("SELECT EXISTS (SELECT 1 FROM layers WHERE layer >= 1024)")? != Some(0);
        Ok((summary, unit, is_cut, last, has_damage, has_unverified, has_nested))
    })?;
    let stream = summary.layers.last().map_or(summary.archive.length, |layer| layer.decoded_length);
    // Of one that does not say it: where anything was found broken.
    let is_cut = is_cut.unwrap_or(has_damage || !summary.notes.is_empty());
    let bounds = Bounds { last, stream, unit, has_nested, is_cut };
    let (hidden, xattr_names, owner_names) = Default::default();
    let this =
        Own { pool, waits, summary, bounds, known, has_damage, has_unverified, hidden, xattr_names, owner_names };
    match this.row(Node::ROOT)? {
        Some(root) if root.kind == Kind::Folder => Ok(Arc::new(this)),
        _ => Err(Error::Broken("it has no root".to_owned())),
    }
}

/// An index in the schema of tarnfs.
#[derive(Debug)]
struct Own {
    pool: Pool<Session>,
    waits: bool,
    summary: Summary,
    bounds: Bounds,
    known: Known,
    has_damage: bool,
    has_unverified: bool,
    /// See [`Index::hide_xattrs`].
    hidden: OnceLock<Vec<Vec<u8>>>,
    xattr_names: Mutex<XattrNames>,
    owner_names: OwnerNames,
}

/// Of the node whose attribute was asked for last, the names and numbers of all. Whoever copies a file asks for one
/// after the other: to read all each time takes as long as there are attributes, squared.
#[derive(Debug, Default)]
struct XattrNames {
    node: u64,
    ids: Arc<HashMap<Vec<u8>, i64>>,
}

/// The longest name of an attribute that the kernel asks for (`XATTR_NAME_MAX`). Longer ones are not kept.
const LONGEST_ASKED: usize = 255;

/// Rows that are read one after the other at the end of a search: cheaper than four more steps of it.
const SCANNED: u64 = 12;

impl Own {
    /// The numbers of the attributes of `node` by their names, as they show.
    fn xattr_ids(&self, node: Node) -> Result<Arc<HashMap<Vec<u8>, i64>>, Error> {
        {
            let names = self.xattr_names.lock().unwrap_or_else(PoisonError::into_inner);
            if names.node == node.0 {
                return Ok(Arc::clone(&names.ids));
            }
        }
        let hidden = self.hidden.get();
        let ids = self.pool.with(|session| {
            let sql = "SELECT id, name FROM xattrs JOIN xattr_names USING (id) WHERE node = ?";
            let mut query = session.connection.prepare_cached(sql).map_err(broken)?;
            let mut rows = query.query([node.0 as i64]).map_err(broken)?;
            let (mut ids, mut count, mut bytes) = (HashMap::<Vec<u8>, (bool, i64)>::new(), 0_usize, 0_usize);
            while let Some(row) = rows.next().map_err(broken)? {
                let id = row.get(0).map_err(broken)?;
                let name = row.get_ref(1).map_err(broken)?.as_blob();
                let name = name.map_err(|_| Error::Broken("a name is none".to_owned()))?;
                // The bytes as well: in a broken index, many long names may have the same pages.
                (count, bytes) = (count.saturating_add(1), bytes.saturating_add(name.len()));
                if count > LIMITS.xattrs || name.len() > LONGEST_XATTR_NAME || bytes > MOST_XATTR_BYTES {
                    return Err(lies(node.0, "its extended attributes are too large"));
                }
                let (is_computed, name) = match name.strip_prefix(COMPUTED) {
                    None => (false, name),
                    Some(name) if hidden.is_some_and(|hidden| hidden.iter().any(|one| one == name)) => continue,
                    Some(name) => (true, name),
                };
                // Of two of one name, the computed one shows; of two in a broken index, the first.
                if name.len() <= LONGEST_ASKED && ids.get(name).is_none_or(|&(other, _)| is_computed && !other) {
                    ids.insert(name.to_vec(), (is_computed, id));
                }
            }
            Ok(ids)
        })?;
        let ids: Arc<HashMap<_, _>> = Arc::new(ids.into_iter().map(|(name, (_, id))| (name, id)).collect());
        let kept = XattrNames { node: node.0, ids: Arc::clone(&ids) };
        *self.xattr_names.lock().unwrap_or_else(PoisonError::into_inner) = kept;
        Ok(ids)
    }

    /// The row `name` of `folder`; before it, if there are two, the folder that is behind it.
    fn find(session: &mut Session, folder: Folder, name: &[u8]) -> Result<(Option<Stored>, Option<Stored>), Error> {
        let (mut low, mut high) = (folder.first, folder.first.saturating_add(folder.count));
        let mut name_at =
            session.connection.prepare_cached("SELECT name FROM entries WHERE rowid = ?").map_err(broken)?;
        while high.saturating_sub(low) > SCANNED {
            let middle = low.midpoint(high);
            let mut rows = name_at.query([middle as i64]).map_err(broken)?;
            let row = rows.next().map_err(broken)?.ok_or_else(|| lies(middle, "it is missing"))?;
            match name_of(row)?.cmp(name) {
                Ordering::Less => low = middle.saturating_add(1),
                // The other one of two may be on either side.
                Ordering::Equal => {
                    (low, high) = (low.max(middle.saturating_sub(1)), high.min(middle.saturating_add(2)));
                }
                Ordering::Greater => high = middle,
            }
        }
        drop(name_at);
        let (mut behind, mut found) = (None, None);
        {
            let mut query = session.connection.prepare_cached(RANGE).map_err(broken)?;
            let mut rows = query.query([low as i64, high as i64]).map_err(broken)?;
            while let Some(row) = rows.next().map_err(broken)? {
                match name_of(row)?.cmp(name) {
                    Ordering::Less => {}
                    Ordering::Equal if behind.is_some() => return Err(lies(low, "its name is there three times")),
                    Ordering::Equal => behind = found.replace(Stored::read(row)?.is_number(low)?),
                    Ordering::Greater => break,
                }
                low = low.saturating_add(1);
            }
        }
        if let (Some(behind), Some(found)) = (&behind, &found) {
            session.check_pair(behind, found)?;
        }
        Ok((behind, found))
    }

    fn stored(&self, session: &Session, node: Node) -> Result<Stored, Error> {
        session.stored(node.0, &self.bounds)?.ok_or_else(|| lies(node.0, "there is none"))
    }

    fn blob(&self, sql: &str, node: Node) -> Result<Vec<u8>, Error> {
        self.pool.with(|session| {
            let mut query = session.connection.prepare_cached(sql).map_err(broken)?;
            query.query_row([node.0 as i64], |row| row.get(0)).map_err(broken)
        })
    }
}

/// Rows of a range of nodes, the end excluded; the columns are those that [`Stored::read`] reads.
const RANGE: &str = "SELECT name, rowid, class, header, size, mtime FROM entries \
                     WHERE rowid >= ? AND rowid < ? ORDER BY rowid";

/// A row with the folder that it is in and its name there.
type InFolder = (Node, Vec<u8>, Row);

impl Index for Own {
    fn summary(&self) -> &Summary {
        &self.summary
    }

    fn waits(&self) -> bool {
        self.waits
    }

    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Option<Row>, Error> {
        self.pool.with(|session| {
            let Some(found) = session.folder(folder.0, &self.bounds)? else { return Ok(None) };
            let (behind, stored) = Self::find(session, found, name)?;
            // Where a link leads nowhere, the folder behind it shows.
            for stored in [stored, behind].into_iter().flatten() {
                if let Some(row) = session.complete(stored, Some(folder.0), &self.bounds)? {
                    return Ok(Some(row));
                }
            }
            Ok(None)
        })
    }

    fn children(
        &self,
        folder: Node,
        from: u64,
        receive: &mut dyn FnMut(u64, &[u8], &Row) -> bool,
    ) -> Result<(), Error> {
        // Rows are read in small batches: `receive` may take its time, and may ask this index something itself.
        let mut batch: Vec<(u64, usize, Row)> = Vec::new();
        let mut names: Vec<u8> = Vec::new();
        let mut from = from;
        loop {
            let behind = self.pool.with(|session| {
                batch.clear();
                names.clear();
                self.read_batch(session, folder, from, &mut batch, &mut names)
            })?;
            let mut start = 0;
            for (next, end, row) in &batch {
                let name = names.get(start..*end).unwrap_or_default();
                start = *end;
                if !receive(*next, name, row) {
                    return Ok(());
                }
            }
            match behind {
                Some(behind) => from = behind,
                None => return Ok(()),
            }
        }
    }

    fn count(&self, folder: Node) -> Result<u64, Error> {
        self.pool.with(|session| Ok(session.folder(folder.0, &self.bounds)?.map_or(0, |found| found.count)))
    }

    fn has_name(&self, folder: Node, name: &[u8]) -> Result<bool, Error> {
        self.pool.with(|session| {
            let Some(found) = session.folder(folder.0, &self.bounds)? else { return Ok(false) };
            Ok(Self::find(session, found, name)?.1.is_some())
        })
    }

    fn names(&self, folder: Node, receive: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        let found = self.pool.with(|session| session.folder(folder.0, &self.bounds))?;
        let Some(Folder { first, count, .. }) = found else { return Ok(()) };
        let end = first.saturating_add(count);
        let mut at = first;
        while at < end {
            let next = at.saturating_add(ROWS).min(end);
            self.pool.with(|session| {
                let sql = "SELECT name FROM entries WHERE rowid >= ? AND rowid < ? ORDER BY rowid";
                let mut query = session.connection.prepare_cached(sql).map_err(broken)?;
                let mut rows = query.query([at as i64, next as i64]).map_err(broken)?;
                while let Some(row) = rows.next().map_err(broken)? {
                    receive(name_of(row)?);
                    at = at.saturating_add(1);
                }
                if at == next { Ok(()) } else { Err(lies(folder.0, "some of its children are missing")) }
            })?;
        }
        Ok(())
    }

    fn row(&self, node: Node) -> Result<Option<Row>, Error> {
        self.pool.with(|session| {
            let Some(stored) = session.stored(node.0, &self.bounds)? else { return Ok(None) };
            if session.is_hard_link(&stored)? {
                return Ok(None);
            }
            session.complete(stored, None, &self.bounds)
        })
    }

    fn named_row(&self, node: Node) -> Result<Option<(Row, Vec<u8>)>, Error> {
        self.pool.with(|session| {
            let mut name = Vec::new();
            let stored = session.named(node.0, &self.bounds, &mut |stored| name.extend_from_slice(stored))?;
            let Some(stored) = stored else { return Ok(None) };
            if session.is_hard_link(&stored)? {
                return Ok(None);
            }
            Ok(session.complete(stored, None, &self.bounds)?.map(|row| (row, name)))
        })
    }

    fn folder_of(&self, node: Node) -> Result<Option<Node>, Error> {
        self.pool.with(|session| session.folder_of(node.0, &self.bounds))
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        self.pool.with(|session| {
            let found = session.folder(folder.0, &self.bounds)?;
            let found = found.ok_or_else(|| lies(folder.0, "it is no folder"))?;
            session.folder(found.parent, &self.bounds)?.ok_or_else(|| lies(folder.0, "its parent is no folder"))?;
            Ok(Node(found.parent))
        })
    }

    fn link(&self, node: Node) -> Result<Vec<u8>, Error> {
        if self.row(node)?.is_some_and(|row| row.has_pieces) {
            return Ok(Vec::new());
        }
        let target = self.blob("SELECT target FROM links WHERE node = ?", node)?;
        if target.len() > LIMITS.path { Err(lies(node.0, "its target is too long")) } else { Ok(target) }
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        let too_large = || lies(node.0, "its extended attributes are too large");
        let hidden = self.hidden.get();
        self.pool.with(|session| {
            let mut query = session
                .connection
                .prepare_cached("SELECT name, value FROM xattrs JOIN xattr_names USING (id) WHERE node = ? ORDER BY id")
                .map_err(broken)?;
            let mut rows = query.query([node.0 as i64]).map_err(broken)?;
            let (mut computed, mut stored, mut bytes) = (Vec::new(), Vec::new(), 0_usize);
            while let Some(row) = rows.next().map_err(broken)? {
                let (name, value): (Vec<u8>, Vec<u8>) = (row.get(0).map_err(broken)?, row.get(1).map_err(broken)?);
                bytes = bytes.saturating_add(name.len()).saturating_add(value.len());
                let is_one = name.len() <= LONGEST_XATTR_NAME && value.len() <= LIMITS.xattr_value;
                if !is_one || computed.len().saturating_add(stored.len()) >= LIMITS.xattrs || bytes > MOST_XATTR_BYTES {
                    return Err(too_large());
                }
                match name.strip_prefix(COMPUTED) {
                    None => stored.push((name, value)),
                    Some(name) if hidden.is_some_and(|hidden| hidden.iter().any(|one| one == name)) => {}
                    Some(name) => computed.push((name.to_vec(), value)),
                }
            }
            if computed.is_empty() {
                return Ok(stored);
            }
            // Of two of one name, the computed one shows.
            computed.append(&mut stored);
            computed.sort_by(|(one, _), (other, _)| one.cmp(other));
            computed.dedup_by(|(one, _), (other, _)| one == other);
            Ok(computed)
        })
    }

    fn xattr(&self, node: Node, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        if name.len() > LONGEST_ASKED {
            return Ok(self.xattrs(node)?.into_iter().find(|(key, _)| key == name).map(|(_, value)| value));
        }
        let Some(&id) = self.xattr_ids(node)?.get(name) else { return Ok(None) };
        let value = self.pool.with(|session| {
            let sql = "SELECT value FROM xattrs WHERE node = ? AND id = ?";
            let mut query = session.connection.prepare_cached(sql).map_err(broken)?;
            query.query_row((node.0 as i64, id), |row| row.get::<_, Vec<u8>>(0)).map_err(broken)
        })?;
        let is_one = value.len() <= LIMITS.xattr_value;
        is_one.then_some(Some(value)).ok_or_else(|| lies(node.0, "its extended attributes are too large"))
    }

    fn hide_xattrs(&self, names: Vec<Vec<u8>>) {
        // Once for each index that is opened.
        let _ = self.hidden.set(names);
    }

    fn extents(&self, node: Node) -> Result<Vec<Extent>, Error> {
        let row = self.row(node)?.ok_or_else(|| lies(node.0, "there is none"))?;
        if !row.is_sparse {
            return Err(lies(node.0, "it has no map"));
        }
        let map = self.map_of(row.node)?;
        let mut map = map.as_slice();
        let mut extents = Vec::new();
        let (mut end, mut stored_bytes, mut skip) = (0_u64, 0_u64, 0);
        while !map.is_empty() {
            let (hole, length) = (read_number(&mut map), read_number(&mut map));
            if length == 0 {
                if hole == 0 || skip > 0 || map.is_empty() {
                    return Err(lies(node.0, "its map has a pair that means nothing"));
                }
                skip = hole;
                stored_bytes = stored_bytes.saturating_add(skip);
                continue;
            }
            let extent = end.checked_add(hole).and_then(|offset| Some((offset, offset.checked_add(length)?)));
            let Some((offset, next)) = extent.filter(|(_, next)| *next <= row.size) else {
                return Err(lies(node.0, "its map goes past its end"));
            };
            if extents.len() >= LIMITS.sparse_extents {
                return Err(lies(node.0, "its map has too many extents"));
            }
            end = next;
            stored_bytes = stored_bytes.saturating_add(length);
            extents.push(Extent { offset, length, skip: std::mem::take(&mut skip) });
        }
        let length = self.pool.with(|session| session.stream_length(row.stream, &self.bounds))?;
        if !self.bounds.is_cut && row.body.saturating_add(stored_bytes) > length {
            return Err(lies(node.0, "its content goes past the end of the archive"));
        }
        Ok(extents)
    }

    fn owner_names(&self, node: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        self.names_of_owner(node)
    }

    fn owners(&self) -> Result<Option<Vec<(Owner, Owner)>>, Error> {
        self.pool.with(|session| session.owners())
    }

    fn sweep(&self, receive: &mut dyn FnMut(&Swept<'_>) -> Result<(), Error>) -> Result<(), Error> {
        self.sweep_all(receive)
    }
}

/// Bounds on what is read of one entry, as on what is written of it.
pub(crate) const LIMITS: Limits = Limits::DEFAULT;
/// Of one extended attribute: XATTR_NAME_MAX of Linux, and more than that is never shown.
pub(crate) const LONGEST_XATTR_NAME: usize = 64 << 10;
/// Names and values of all extended attributes of one entry. They come from headers that are shorter
/// ([`Limits::extended_header`]).
pub(crate) const MOST_XATTR_BYTES: usize = 32 << 20;

/// Rows that are read at once: longer calls would run into the limit on the time of one.
const ROWS: u64 = 65_536;

/// Rows of one name in `replaced` that are read at once: a name may be stored millions of times.
const REPLACED: usize = 1024;
