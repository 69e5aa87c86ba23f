//! Connections to one index, and the rows that come through them. Every row is checked when it is read.

use std::collections::HashSet;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};
use tarnfs_format::{Coder, Device, Kind, Time};

use crate::pieces;
use crate::pool::Pooled;
use crate::sqlite::{Patience, broken, open_untrusted};
use crate::vfs::Opened;
use crate::writer::record::more;
use crate::{Error, FIRST_NESTED, Node, OVERFLOWN_OWNER, Owner, Row};

use super::{LIMITS, schema};

/// What every check needs to know of the whole.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// The last node of `entries`; those behind it are replaced ones.
    pub(super) last: u64,
    /// Length of the innermost stream in bytes.
    pub(super) stream: u64,
    /// Bytes that the column `header` counts in.
    pub(super) unit: u64,
    /// True if there are nested streams, in which headers may lie further than the end of this one.
    pub(super) has_nested: bool,
    /// True if content may go past the stream's end: the archive is known to be cut.
    pub(super) is_cut: bool,
}

impl Bounds {
    /// Byte of the stream that a column `header` says; `None` if there can be none. Of what no entry names, 0.
    pub(super) fn byte(&self, header: i64) -> Option<u64> {
        (header.max(0) as u64).checked_mul(self.unit)
    }
}

/// Places in each small cache of a connection; in that of folders all that are read together find one.
const SLOTS: usize = 64;
const FOLDER_SLOTS: usize = 256;

/// One connection.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) patience: Patience,
    classes: Vec<Option<(i64, Class)>>,
    folders: Vec<Option<(u64, Folder)>>,
    /// Lengths of nested streams, in bytes.
    lengths: Vec<Option<(u32, u64)>>,
    coders: Vec<Option<(u32, Arc<Coder>)>>,
}

impl Pooled for Session {
    fn open(file: &Opened, cache: u32) -> Result<Self, Error> {
        let (connection, patience) = open_untrusted(file, cache)?;
        // Each of them: it reads the schema anew, and the file's owner may have changed it in place meanwhile.
        schema::check(&connection)?;
        Ok(Self {
            connection,
            patience,
            classes: vec![None; SLOTS],
            folders: vec![None; FOLDER_SLOTS],
            lengths: vec![None; SLOTS],
            coders: vec![None; SLOTS],
        })
    }

    fn patience(&self) -> &Patience {
        &self.patience
    }
}

/// A row of `classes`, without the names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Class {
    pub(super) kind: Kind,
    mode: u32,
    uid: u32,
    gid: u32,
    /// Bytes from header to content.
    body: u64,
    more: u16,
    pub(super) stream: u32,
}

impl Class {
    pub(super) fn has(&self, bit: u16) -> bool {
        self.more & bit != 0
    }
}

/// A row of `times`.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    atime: Option<Time>,
    ctime: Option<Time>,
    mtime_ns: Option<u32>,
}

/// A row of `folders`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Folder {
    pub(super) parent: u64,
    pub(super) first: u64,
    pub(super) count: u64,
    subfolders: u32,
}

impl Folder {
    /// Names that it has: its own, `.`, and `..` of each folder in it.
    pub(super) fn links(&self) -> u32 {
        self.subfolders.saturating_add(2)
    }

    /// From the columns parent, first, count, subfolders of folder `node`.
    pub(super) fn checked(node: u64, row: [i64; 4], bounds: &Bounds) -> Result<Self, Error> {
        let [parent, first, count, subfolders] = row.map(|number| u64::try_from(number).unwrap_or(u64::MAX));
        // Numbers grow on the way down, so no way through the tree is endless.
        let parent_is_above = parent >= 1 && if node == 1 { parent == 1 } else { parent < node };
        let children_are_below = count == 0 || first > node;
        let end = first.checked_add(count).filter(|&end| count == 0 || end.saturating_sub(1) <= bounds.last);
        if !parent_is_above || !children_are_below || end.is_none() || subfolders > count {
            return Err(lies(node, "its place in the tree is impossible"));
        }
        Ok(Self { parent, first, count, subfolders: u32::try_from(subfolders).unwrap_or(u32::MAX.saturating_sub(2)) })
    }
}

/// A row of `entries` or `replaced`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stored {
    pub(super) node: u64,
    pub(super) class: i64,
    /// In the index's unit.
    header: i64,
    size: i64,
    /// In seconds or nanoseconds, as the class says.
    mtime: i64,
}

fn missing(coder: u32) -> Error {
    Error::Broken(format!("coder {coder} is missing"))
}

pub(super) fn lies(node: u64, what: &str) -> Error {
    Error::Broken(format!("node {node}: {what}"))
}

/// `node`, if it is behind the `last` one. Rows that do not go on in order come from a broken tree of pages, and may
/// have no end.
pub(super) fn goes_on(last: &mut u64, node: i64) -> Result<u64, Error> {
    let node = u64::try_from(node).unwrap_or_default();
    if node > std::mem::replace(last, node) { Ok(node) } else { Err(lies(node, "it is out of order")) }
}

impl Stored {
    pub(super) fn new(node: u64, class: i64, header: i64, size: i64, mtime: i64) -> Self {
        Self { node, class, header, size, mtime }
    }

    /// From the columns name, node (rowid), class, header, size, mtime.
    pub(super) fn read(row: &rusqlite::Row<'_>) -> Result<Self, Error> {
        let number = |column: usize| {
            row.get_ref(column).map_err(broken)?.as_i64().map_err(|_| Error::Broken("a number is none".to_owned()))
        };
        Ok(Self { node: number(1)? as u64, class: number(2)?, header: number(3)?, size: number(4)?, mtime: number(5)? })
    }

    /// Byte of the stream at which its header begins; `None` if it has none or that lies behind the end.
    pub(super) fn header(&self, bounds: &Bounds) -> Option<u64> {
        bounds.byte(self.header).filter(|&header| self.header >= 0 && (bounds.has_nested || header <= bounds.stream))
    }

    /// Itself, if it is the row of `node`.
    pub(super) fn is_number(self, node: u64) -> Result<Self, Error> {
        if self.node == node { Ok(self) } else { Err(lies(node, "another row is in its place")) }
    }
}

/// The name in a row that [`Stored::read`] can read: its first column.
pub(super) fn name_of<'r>(row: &'r rusqlite::Row<'_>) -> Result<&'r [u8], Error> {
    let name = row.get_ref(0).map_err(broken)?.as_blob().map_err(|_| Error::Broken("a name is none".to_owned()))?;
    let is_component = matches!(name.len(), 1..=255)
        && name != b"."
        && name != b".."
        && name.iter().all(|&byte| byte != b'/' && byte != 0);
    if is_component { Ok(name) } else { Err(Error::Broken("a name is not one component of a path".to_owned())) }
}

impl Session {
    /// The entry of that number, shown or replaced; `None` if there is none.
    pub(super) fn stored(&self, node: u64, bounds: &Bounds) -> Result<Option<Stored>, Error> {
        self.named(node, bounds, &mut |_| ())
    }

    /// The same, with a look at its name.
    pub(super) fn named(
        &self,
        node: u64,
        bounds: &Bounds,
        look: &mut dyn FnMut(&[u8]),
    ) -> Result<Option<Stored>, Error> {
        let Ok(number) = i64::try_from(node) else { return Ok(None) };
        let sql = if node <= bounds.last {
            "SELECT name, rowid, class, header, size, mtime FROM entries WHERE rowid = ?"
        } else {
            "SELECT name, node, class, header, size, mtime FROM replaced WHERE node = ?"
        };
        let mut query = self.connection.prepare_cached(sql).map_err(broken)?;
        let mut rows = query.query([number]).map_err(broken)?;
        let Some(row) = rows.next().map_err(broken)? else { return Ok(None) };
        match row.get_ref(0).map_err(broken)?.as_blob() {
            // The name of the root.
            Ok([]) => {}
            _ => look(name_of(row)?),
        }
        // Of a broken tree of pages, SQLite may give another row than the one that was asked for.
        Stored::read(row)?.is_number(node).map(Some)
    }

    /// The folder that the node is in. Nothing leads there but a look at all folders.
    pub(super) fn folder_of(&mut self, node: u64, bounds: &Bounds) -> Result<Option<Node>, Error> {
        let Ok(number) = i64::try_from(node) else { return Ok(None) };
        if node > bounds.last {
            let sql = "SELECT folder FROM replaced WHERE node = ?";
            let found = self.connection.query_row(sql, [number], |row| row.get::<_, i64>(0)).optional();
            return Ok(found.map_err(broken)?.and_then(|folder| u64::try_from(folder).ok()).map(Node));
        }
        let mut query = self
            .connection
            // One row of a thousand comes, too, so that a long table is not taken for one that has no end.
            .prepare_cached(
                "SELECT node, first <= ?1 AND ?1 - first < count AS is_it FROM folders \
                 WHERE is_it OR node % 1000 = 0 ORDER BY node",
            )
            .map_err(broken)?;
        let (mut rows, mut last) = (query.query([number]).map_err(broken)?, 0);
        while let Some(row) = rows.next().map_err(broken)? {
            self.patience.renew();
            let folder = goes_on(&mut last, row.get(0).map_err(broken)?)?;
            if row.get::<_, bool>(1).map_err(broken)? {
                return Ok(Some(Node(folder)));
            }
        }
        Ok(None)
    }

    /// The folder of that number; `None` if it is none. What has been replaced is an empty one.
    pub(super) fn folder(&mut self, node: u64, bounds: &Bounds) -> Result<Option<Folder>, Error> {
        let slot = node as usize % FOLDER_SLOTS;
        if let Some(Some((cached, folder))) = self.folders.get(slot)
            && *cached == node
        {
            return Ok(Some(*folder));
        }
        let Ok(number) = i64::try_from(node) else { return Ok(None) };
        let mut query = self
            .connection
            .prepare_cached("SELECT parent, first, count, subfolders FROM folders WHERE node = ?")
            .map_err(broken)?;
        let row = query
            .query_row([number], |row| Ok([row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?, row.get(3)?]))
            .optional()
            .map_err(broken)?;
        drop(query);
        let Some(row) = row else { return Ok(None) };
        let folder = Folder::checked(node, row, bounds)?;
        if let Some(place) = self.folders.get_mut(slot) {
            *place = Some((node, folder));
        }
        Ok(Some(folder))
    }

    /// What `node` is, is known.
    pub(super) fn know(&mut self, node: u64, folder: Folder) {
        if let Some(place) = self.folders.get_mut(node as usize % FOLDER_SLOTS) {
            *place = Some((node, folder));
        }
    }

    /// Reads the folders among `rows`, which follow each other, at once: each is asked for when its row is completed,
    /// and once more when it is listed.
    pub(super) fn know_folders<'r>(
        &mut self,
        rows: impl Iterator<Item = &'r Stored>,
        bounds: &Bounds,
    ) -> Result<(), Error> {
        let (mut first, mut last, mut unknown) = (0, 0, 0_usize);
        for stored in rows {
            let slot = stored.node as usize % FOLDER_SLOTS;
            let is_known = matches!(self.folders.get(slot), Some(Some((known, _))) if *known == stored.node);
            if !is_known && self.class(stored.class)?.kind == Kind::Folder {
                if unknown == 0 {
                    first = stored.node;
                }
                (last, unknown) = (stored.node, unknown.saturating_add(1));
            }
        }
        // One is as soon found by itself.
        if unknown < 2 {
            return Ok(());
        }
        let mut query = self
            .connection
            .prepare_cached(
                "SELECT node, parent, first, count, subfolders FROM folders WHERE node >= ? AND node <= ? ORDER BY node",
            )
            .map_err(broken)?;
        let mut found = query.query([first as i64, last as i64]).map_err(broken)?;
        let mut before = first.saturating_sub(1);
        while let Some(row) = found.next().map_err(broken)? {
            let get = |column: usize| row.get::<_, i64>(column).map_err(broken);
            let node = goes_on(&mut before, get(0)?)?;
            if node > last {
                return Err(lies(node, "it is out of order"));
            }
            let folder = Folder::checked(node, [get(1)?, get(2)?, get(3)?, get(4)?], bounds)?;
            if let Some(place) = self.folders.get_mut(node as usize % FOLDER_SLOTS) {
                *place = Some((node, folder));
            }
        }
        Ok(())
    }

    fn class(&mut self, class: i64) -> Result<Class, Error> {
        let slot = class as usize % SLOTS;
        if let Some(Some((cached, found))) = self.classes.get(slot)
            && *cached == class
        {
            return Ok(*found);
        }
        let found = self.read_class(class)?;
        if let Some(place) = self.classes.get_mut(slot) {
            *place = Some((class, found));
        }
        Ok(found)
    }

    /// The class of that number, from its row.
    pub(super) fn read_class(&self, class: i64) -> Result<Class, Error> {
        let mut query = self
            .connection
            .prepare_cached("SELECT type, mode, uid, gid, body, more, stream FROM classes WHERE class = ?")
            .map_err(broken)?;
        let row = query
            .query_row([class], |row| {
                let last = row.get(6)?;
                Ok([row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?, last])
            })
            .optional()
            .map_err(broken)?;
        drop(query);
        let [kind, mode, uid, gid, body, more, stream] =
            row.ok_or_else(|| Error::Broken(format!("class {class} is missing")))?;
        let kind = schema::kind_of(kind).ok_or_else(|| Error::Broken(format!("class {class} is of type {kind:o}")))?;
        let (Ok(mode), Ok(uid), Ok(gid)) = (u32::try_from(mode), u32::try_from(uid), u32::try_from(gid)) else {
            return Err(Error::Broken(format!("class {class} makes no sense")));
        };
        if mode > 0o7777 {
            return Err(Error::Broken(format!("class {class} has mode {mode:o}")));
        }
        let body = u64::try_from(body).map_err(|_| Error::Broken(format!("class {class}: a length is negative")))?;
        let more = u16::try_from(more).ok().filter(|more| more & !more::ALL == 0);
        let more = more.ok_or_else(|| Error::Broken(format!("class {class} has unknown bits")))?;
        let stream = u32::try_from(stream).ok().filter(|&stream| stream == 0 || stream >= FIRST_NESTED);
        let stream = stream.ok_or_else(|| Error::Broken(format!("class {class} lies in no stream")))?;
        Ok(Class { kind, mode, uid, gid, body, more, stream })
    }

    /// Length in bytes of the stream of that number.
    pub(super) fn stream_length(&mut self, stream: u32, bounds: &Bounds) -> Result<u64, Error> {
        if stream == 0 {
            return Ok(bounds.stream);
        }
        let slot = stream as usize % SLOTS;
        if let Some(Some((cached, length))) = self.lengths.get(slot)
            && *cached == stream
        {
            return Ok(*length);
        }
        let length = self.number("SELECT decoded_length FROM layers WHERE layer = ?", u64::from(stream))?;
        let length = length.and_then(|length| u64::try_from(length).ok());
        let length = length.ok_or_else(|| Error::Broken(format!("there is no stream {stream}")))?;
        if let Some(place) = self.lengths.get_mut(slot) {
            *place = Some((stream, length));
        }
        Ok(length)
    }

    /// The coder of that number.
    pub(super) fn coder(&mut self, number: u32) -> Result<Arc<Coder>, Error> {
        self.coder_if_any(number)?.ok_or_else(|| missing(number))
    }

    /// The coder of that number, if there is one.
    pub(super) fn coder_if_any(&mut self, number: u32) -> Result<Option<Arc<Coder>>, Error> {
        let slot = number as usize % SLOTS;
        if let Some(Some((cached, coder))) = self.coders.get(slot)
            && *cached == number
        {
            return Ok(Some(Arc::clone(coder)));
        }
        let Some(coder) = self.read_coder_if_any(number)? else { return Ok(None) };
        if let Some(place) = self.coders.get_mut(slot) {
            *place = Some((number, Arc::clone(&coder)));
        }
        Ok(Some(coder))
    }

    /// The coder of that number, from its row.
    pub(super) fn read_coder(&self, number: u32) -> Result<Arc<Coder>, Error> {
        self.read_coder_if_any(number)?.ok_or_else(|| missing(number))
    }

    fn read_coder_if_any(&self, number: u32) -> Result<Option<Arc<Coder>>, Error> {
        let mut query = self.connection.prepare_cached("SELECT steps FROM coders WHERE id = ?").map_err(broken)?;
        let found = query.query_row([number], |row| Ok(pieces::read_coder(row.get_ref(0)?.as_blob()?)));
        let Some(coder) = found.optional().map_err(broken)? else { return Ok(None) };
        Ok(Some(Arc::new(coder?)))
    }

    /// Names of owner and group.
    pub(super) fn owner_names(&self, class: i64) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let mut query =
            self.connection.prepare_cached("SELECT user, \"group\" FROM classes WHERE class = ?").map_err(broken)?;
        query.query_row([class], |row| Ok((row.get(0)?, row.get(1)?))).map_err(broken)
    }

    /// All owners and groups; `None` if there are very many.
    pub(super) fn owners(&self) -> Result<Option<Vec<(Owner, Owner)>>, Error> {
        const MOST: usize = 4096;
        // Not DISTINCT: there may be many classes of one owner, and no row would come for a long time. Nobody writes
        // longer names, and of those that an index claims to have nothing is read.
        let sql = "SELECT class, uid, gid, CASE WHEN length(user) <= ?1 THEN user END, \
                   CASE WHEN length(\"group\") <= ?1 THEN \"group\" END FROM classes ORDER BY class";
        let mut query = self.connection.prepare_cached(sql).map_err(broken)?;
        let mut rows = query.query([LIMITS.owner_name as i64]).map_err(broken)?;
        let (mut before, mut owners) = (None, HashSet::new());
        let id = |id: i64| u32::try_from(id).unwrap_or(OVERFLOWN_OWNER);
        while let Some(row) = rows.next().map_err(broken)? {
            self.patience.renew();
            let class: i64 = row.get(0).map_err(broken)?;
            if before.replace(class).is_some_and(|before| before >= class) {
                return Err(Error::Broken(format!("class {class} is out of order")));
            }
            let user = Owner { id: id(row.get(1).map_err(broken)?), name: row.get(3).map_err(broken)? };
            let group = Owner { id: id(row.get(2).map_err(broken)?), name: row.get(4).map_err(broken)? };
            owners.insert((user, group));
            if owners.len() >= MOST {
                return Ok(None);
            }
        }
        Ok(Some(owners.into_iter().collect()))
    }

    /// The first and the last node of what was replaced. They are numbered one after the other.
    pub(super) fn replaced(&self) -> Result<Option<(u64, u64)>, Error> {
        self.ends("SELECT min(node) FROM replaced", "SELECT max(node) FROM replaced")
    }

    /// The first and the last layer that is stored in pieces.
    pub(super) fn layers_in_pieces(&self) -> Result<Option<(u64, u64)>, Error> {
        self.ends("SELECT min(layer) FROM nested_pieces", "SELECT max(layer) FROM nested_pieces")
    }

    /// Each end by itself: of a query for both, SQLite reads the whole.
    fn ends(&self, first: &str, last: &str) -> Result<Option<(u64, u64)>, Error> {
        let end = |sql: &str| {
            let end: Option<i64> = self.connection.query_row(sql, [], |row| row.get(0)).map_err(broken)?;
            let number = |end| u32::try_from(end).map(u64::from);
            end.map(number).transpose().map_err(|_| Error::Broken("a number is too large".to_owned()))
        };
        Ok(end(first)?.zip(end(last)?))
    }

    /// The node that a hard link is a name of; `None` if it leads nowhere.
    pub(super) fn shared(&self, link: u64) -> Result<Option<u64>, Error> {
        let mut query =
            self.connection.prepare_cached("SELECT shared FROM hard_links WHERE node = ?").map_err(broken)?;
        let shared: i64 = query.query_row([link as i64], |row| row.get(0)).map_err(broken)?;
        match u64::try_from(shared) {
            Ok(0) => Ok(None),
            Ok(shared) => Ok(Some(shared)),
            Err(_) => Err(lies(link, "it is a link to a negative node")),
        }
    }

    /// How many hard links there are up to node `last`.
    pub(super) fn count_links(&self, last: u64) -> Result<u64, Error> {
        let sql = "SELECT node FROM hard_links WHERE node <= ? ORDER BY node";
        let mut query = self.connection.prepare_cached(sql).map_err(broken)?;
        let mut rows = query.query([last as i64]).map_err(broken)?;
        let (mut before, mut count) = (0, 0_u64);
        while let Some(row) = rows.next().map_err(broken)? {
            self.patience.renew();
            goes_on(&mut before, row.get(0).map_err(broken)?)?;
            count = count.saturating_add(1);
        }
        self.patience.renew();
        Ok(count)
    }

    fn number(&self, sql: &str, node: u64) -> Result<Option<i64>, Error> {
        let mut query = self.connection.prepare_cached(sql).map_err(broken)?;
        query.query_row([node as i64], |row| row.get(0)).optional().map_err(broken)
    }

    /// True for a hard link.
    pub(super) fn is_hard_link(&mut self, stored: &Stored) -> Result<bool, Error> {
        Ok(self.class(stored.class)?.kind == Kind::HardLink)
    }

    /// Two rows of one name: a folder, and behind it something else that shows.
    pub(super) fn check_pair(&mut self, behind: &Stored, shown: &Stored) -> Result<(), Error> {
        let mut is_folder = |stored: &Stored| Ok::<_, Error>(self.class(stored.class)?.kind == Kind::Folder);
        if is_folder(behind)? && !is_folder(shown)? {
            return Ok(());
        }
        Err(lies(shown.node, "its name is there twice"))
    }

    /// All that is said of an entry. A hard link becomes what it is a name of; `None` if that is nothing. `folder` is
    /// where it was found, if a folder must be in just that one.
    pub(super) fn complete(
        &mut self,
        stored: Stored,
        folder: Option<u64>,
        bounds: &Bounds,
    ) -> Result<Option<Row>, Error> {
        let mut stored = stored;
        let mut class = self.class(stored.class)?;
        if class.kind == Kind::HardLink {
            let link = stored.node;
            let Some(shared) = self.shared(link)? else { return Ok(None) };
            stored = self.stored(shared, bounds)?.ok_or_else(|| lies(link, "what it links to is missing"))?;
            class = self.class(stored.class)?;
            if matches!(class.kind, Kind::HardLink | Kind::Folder) {
                return Err(lies(link, "what it links to is no file"));
            }
        }
        self.row(stored, class, folder, bounds).map(Some)
    }

    fn row(&mut self, stored: Stored, class: Class, folder: Option<u64>, bounds: &Bounds) -> Result<Row, Error> {
        let node = stored.node;
        let kind = match class.kind {
            Kind::CharacterDevice(_) => Kind::CharacterDevice(self.device(node)?),
            Kind::BlockDevice(_) => Kind::BlockDevice(self.device(node)?),
            kind => kind,
        };
        let has_header = stored.header >= 0;
        if !has_header && (kind != Kind::Folder || stored.header != -1) {
            return Err(lies(node, "it has no header"));
        }
        let size = u64::try_from(stored.size).map_err(|_| lies(node, "a length is negative"))?;
        let length = self.stream_length(class.stream, bounds)?;
        let header = bounds.byte(stored.header);
        let start = header.and_then(|header| header.checked_add(class.body)).filter(|&start| start <= length);
        let start = start.ok_or_else(|| lies(node, "it lies behind the end of the archive"))?;
        let has_map = class.has(more::EXTENTS);
        let has_pieces = has_map && class.has(more::PIECES) && matches!(kind, Kind::File | Kind::Symlink);
        let is_sparse = has_map && !has_pieces && kind == Kind::File;
        let end = if kind == Kind::File && !has_pieces && !is_sparse { start.checked_add(size) } else { Some(start) };
        if !bounds.is_cut && end.is_none_or(|end| end > length) {
            return Err(lies(node, "its content goes past the end of the archive"));
        }
        let links = match kind {
            Kind::Folder => {
                let own = self.folder(node, bounds)?;
                match own {
                    // Each folder is found in one place only, so there are no more ways through the tree than folders.
                    Some(own) if folder.is_none_or(|folder| folder == own.parent) => own.links(),
                    None if node > bounds.last => 2,
                    _ => return Err(lies(node, "it is in another folder")),
                }
            }
            _ if class.has(more::LINK_COUNT) => {
                let count = self.number("SELECT count FROM link_counts WHERE node = ?", node)?.unwrap_or(1);
                u32::try_from(count).map_err(|_| lies(node, "its names cannot be counted"))?.max(1)
            }
            _ => 1,
        };
        let times = if class.has(more::TIMES) { self.times(node)? } else { Times::default() };
        let mtime = if class.has(more::NANOSECONDS) {
            if times.mtime_ns.is_some() {
                return Err(lies(node, "its time has nanoseconds twice"));
            }
            Time {
                seconds: stored.mtime.div_euclid(1_000_000_000),
                nanoseconds: stored.mtime.rem_euclid(1_000_000_000) as u32,
            }
        } else {
            Time { seconds: stored.mtime, nanoseconds: times.mtime_ns.unwrap_or(0) }
        };
        Ok(Row {
            node: Node(node),
            kind,
            mode: class.mode,
            uid: class.uid,
            gid: class.gid,
            links,
            size,
            mtime,
            atime: times.atime.unwrap_or(mtime),
            ctime: times.ctime.unwrap_or(mtime),
            stream: class.stream,
            header: header.filter(|_| has_header),
            body: start,
            is_sparse,
            has_pieces,
            has_xattrs: class.has(more::XATTRS),
            inherits: class.has(more::INHERITS),
        })
    }

    fn device(&self, node: u64) -> Result<Device, Error> {
        let mut query =
            self.connection.prepare_cached("SELECT major, minor FROM devices WHERE node = ?").map_err(broken)?;
        let row = query.query_row([node as i64], |row| Ok(Device { major: row.get(0)?, minor: row.get(1)? }));
        row.map_err(broken)
    }

    fn times(&self, node: u64) -> Result<Times, Error> {
        let mut query = self
            .connection
            .prepare_cached("SELECT atime, atime_ns, ctime, ctime_ns, mtime_ns FROM times WHERE node = ?")
            .map_err(broken)?;
        let row: [Option<i64>; 5] = query
            .query_row([node as i64], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?]))
            .map_err(broken)?;
        let time = |seconds: Option<i64>, part: Option<i64>| match (seconds, part) {
            (Some(seconds), Some(part @ 0..1_000_000_000)) => Ok(Some(Time { seconds, nanoseconds: part as u32 })),
            (None, None) => Ok(None),
            _ => Err(lies(node, "a time makes no sense")),
        };
        let [atime, atime_ns, ctime, ctime_ns, mtime_ns] = row;
        let mtime = time(mtime_ns.map(|_| 0), mtime_ns)?;
        Ok(Times {
            atime: time(atime, atime_ns)?,
            ctime: time(ctime, ctime_ns)?,
            mtime_ns: mtime.map(|time| time.nanoseconds),
        })
    }
}
