use std::fmt::Debug;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use rusqlite::params;
use tarnfs_codec::engine::{DecodedSource, PieceCache, Workers};
use tarnfs_codec::{ChunkTable, Codec, Damage, DecodeContext, Dictionaries};
use tarnfs_format::{Device, Kind, Probe, Time, Xattrs};
use tarnfs_source::{Budget, Cancel, Extent, FileSource, Fingerprint, Limits, SharedSource};

use super::chunks::Tables;
use super::connections::Connections;
use super::header::entry_at;
use super::links::Following;
use super::packed::unpacked;
use super::rows::{
    ALL_OF_NAME, By, HAS_XATTRS, LAST_OF_NAME, OF_FOLDER, OF_NUMBER, Place, Shown, Stored, XATTRS, columns,
    split_target,
};
use super::validity;
use crate::own::MOST_XATTR_BYTES;
use crate::sqlite::broken;
use crate::store::Store;
use crate::vfs::Opened;
use crate::{Archive, Error, History, InPieces, Index, Layer, Node, Row, Shape, StreamTables, Summary};

/// Memory for decoded headers where nobody has given a stream that they can be read from.
const HEADER_CACHE: usize = 4 << 20;

/// The archive to which a sidecar should belong, and what shapes the tree that is wanted.
#[derive(Debug, Clone)]
pub struct Expected {
    /// The archive, as it lies on the disk.
    pub source: SharedSource,
    /// Last change of its content, ns since 1970.
    pub modified: i64,
    /// `--verify-mtime`: another time of change makes the sidecar stale.
    pub verify_mtime: bool,
    /// What shapes the tree.
    pub shape: Shape,
    /// Bounds on what the sidecar and the archive's headers may say.
    pub limits: Limits,
    /// What frames of zstd may need beside the archive.
    pub dictionaries: Dictionaries,
    /// Ends what takes long.
    pub cancel: Cancel,
}

/// Opens a sidecar of ratarmount that belongs to the archive `expected`.
///
/// `file` is the sidecar, opened by [`crate::trust::open`]. Nothing is loaded: rows are read when asked for. One that
/// is compressed is decoded into a temporary file first.
///
/// Differences from an index of tarnfs: every file has one link, folders too; `summary` counts rows as
/// files, and as bytes those of the stream; the archive's time is the one that the sidecar says; chunks have no
/// checksums.
///
/// [`Error::Stale`] if the archive has another size, if headers are not where the sidecar says, or if there is one
/// behind the last;
/// [`Error::OtherOptions`] if other options shaped the tree; [`Error::Unknown`] for other schemas and backends;
/// [`Error::Broken`] for one that was not finished.
pub fn open(file: std::fs::File, expected: &Expected) -> Result<Arc<dyn Index>, Error> {
    Ok(open_index(file, expected)?)
}

pub(super) fn open_index(file: std::fs::File, expected: &Expected) -> Result<Arc<RatarmountIndex>, Error> {
    let numbering = numbering_of(&file)?;
    let packed: SharedSource = Arc::new(FileSource::from_file(file.try_clone()?, "the index")?);
    let unpacked = unpacked(packed, expected.source.most_data(), &expected.cancel)?;
    open_store(Store::File(unpacked.unwrap_or(file)), numbering, expected)
}

/// The same of one behind a URL, of which no more is read than is asked for, unless it is compressed.
pub fn open_source(source: SharedSource, expected: &Expected) -> Result<Arc<dyn Index>, Error> {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    (source.describe(), source.len(), source.pinned()).hash(&mut hasher);
    // How long the archive is says the server, so that is no bound.
    let unpacked = unpacked(Arc::clone(&source), 0, &expected.cancel)?;
    Ok(open_store(unpacked.map_or(Store::Source(source), Store::File), hasher.finish() | 1, expected)?)
}

fn open_store(store: Store, numbering: u64, expected: &Expected) -> Result<Arc<RatarmountIndex>, Error> {
    let waits = store.waits();
    let connections = Connections::new(Opened::new(Arc::new(store), false));
    let connection = connections.get()?;
    let has_generated = connection.has_generated;
    let modified = validity::check_metadata(&connection, expected)?;

    let mut head = vec![0; 4096];
    let read = expected.source.read_at(&mut head, 0)?;
    head.truncate(read);
    let probe = Probe::new(&head, &*expected.source);
    let format_bid = tarnfs_format::detect(&probe).map_or(0, |format| format.bid(&probe));
    if let Some((_, error)) = probe.take_error() {
        return Err(error.into());
    }
    let codec = tarnfs_codec::detect(&head).filter(|codec| codec.bid(&head) > format_bid);
    let find = |codec| Tables::find(&connection, codec, &expected.source, &expected.cancel);
    let tables = codec.map(find).transpose()?;
    let length = tables.as_ref().map_or(expected.source.len(), Tables::decoded_length);
    let Counted { has_xattrs, has_acls, is_single, rows } = Counted::of(&connection)?;
    let summary = Summary {
        archive: Archive { length: expected.source.len(), fingerprint: Fingerprint::of(&*expected.source)?, modified },
        name: None,
        shape: expected.shape.clone(),
        layers: codec.iter().map(|codec| Layer { codec: codec.name().into(), decoded_length: length }).collect(),
        format: if is_single { crate::SINGLE_FILE } else { "tar" }.into(),
        end: length,
        grown_from: None,
        files: rows,
        folders: 1,
        bytes: length,
        has_xattrs,
        has_acls,
        label: None,
        unlisted: Vec::new(),
        has_locked: false,
        renamed: crate::Renamed::default(),
        has_directories: false,
        notes: Vec::new(),
    };
    drop(connection);
    let index = Arc::new(RatarmountIndex {
        columns: columns(has_generated),
        has_generated,
        connections: Arc::new(connections),
        summary,
        numbering,
        source: Arc::clone(&expected.source),
        codec,
        tables,
        decoded: OnceLock::new(),
        limits: expected.limits,
        dictionaries: expected.dictionaries.clone(),
        cancel: expected.cancel.clone(),
        is_alone: false,
        waits,
    });
    if codec.is_none() {
        validity::check_samples(&index)?;
        validity::check_end(&index, modified == expected.modified)?;
    } else if let Some(tables) = &index.tables {
        tables.check_samples(&index.connections, &expected.source)?;
    }
    Ok(index)
}

/// Opens a sidecar whose archive is not there, of whichever backend of ratarmount. `file` is as for [`open`]. What
/// would be read from the archive is read from what `absent` makes for an archive of its length.
pub fn open_alone(
    file: std::fs::File,
    limits: Limits,
    absent: &dyn Fn(u64) -> SharedSource,
) -> Result<Arc<dyn Index>, Error> {
    let numbering = numbering_of(&file)?;
    let connections = Connections::new(Opened::file(file, false));
    let connection = connections.get()?;
    let has_generated = connection.has_generated;
    let (length, modified, shape) = validity::stated(&connection)?;
    let Counted { has_xattrs, has_acls, is_single, rows } = Counted::of(&connection)?;
    drop(connection);
    // How long the stream is, only the archive would tell.
    let end = i64::MAX as u64;
    let summary = Summary {
        archive: Archive { length, fingerprint: Fingerprint(0), modified },
        name: None,
        shape,
        layers: Vec::new(),
        format: if is_single { crate::SINGLE_FILE } else { "tar" }.into(),
        end,
        grown_from: None,
        files: rows,
        folders: 1,
        bytes: length,
        has_xattrs,
        has_acls,
        label: None,
        unlisted: Vec::new(),
        has_locked: false,
        renamed: crate::Renamed::default(),
        has_directories: false,
        notes: Vec::new(),
    };
    Ok(Arc::new(RatarmountIndex {
        columns: columns(has_generated),
        has_generated,
        connections: Arc::new(connections),
        summary,
        numbering,
        source: absent(length),
        codec: None,
        tables: None,
        decoded: OnceLock::new(),
        limits,
        dictionaries: Dictionaries::default(),
        cancel: Cancel::default(),
        is_alone: true,
        waits: false,
    }))
}

/// What is counted in a sidecar when it is opened.
struct Counted {
    has_xattrs: bool,
    has_acls: bool,
    /// It is of one compressed file.
    is_single: bool,
    rows: u64,
}

impl Counted {
    fn of(connection: &rusqlite::Connection) -> Result<Self, Error> {
        let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, bool>(0)).map_err(broken);
        let has_table = |name: &str| {
            connection
                .query_row("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1", [name], |row| {
                    row.get(0)
                })
                .map_err(broken)
        };
        let has_xattrs =
            has_table("xattrsdata")? && has_table("xattrkeys")? && count("SELECT EXISTS (SELECT 1 FROM xattrsdata)")?;
        let has_acls = has_xattrs
            && count(
                "SELECT EXISTS (SELECT 1 FROM xattrkeys WHERE name >= 'system.posix_acl_' AND name < 'system.posix_acl`')",
            )?;
        let is_single = count(
            "SELECT count(*) = 1 AND sum(offsetheader IS NULL) = 1 FROM (SELECT offsetheader FROM files LIMIT 2)",
        )?;
        let rows: u64 = connection
            .query_row("SELECT max(rowid) FROM files", [], |row| row.get::<_, Option<i64>>(0))
            .map_err(broken)?
            .and_then(|rows| u64::try_from(rows).ok())
            .unwrap_or(0);
        Ok(Self { has_xattrs, has_acls, is_single, rows })
    }
}

/// Nodes have the numbers of rows, which another sidecar of the same archive may have in another order.
fn numbering_of(file: &std::fs::File) -> std::io::Result<u64> {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    use std::os::unix::fs::MetadataExt as _;
    let facts = file.metadata()?;
    let mut hasher = DefaultHasher::new();
    [facts.dev(), facts.ino(), facts.len()].hash(&mut hasher);
    [facts.mtime(), facts.mtime_nsec(), facts.ctime(), facts.ctime_nsec()].hash(&mut hasher);
    Ok(hasher.finish() | 1)
}

/// An index that answers from a sidecar of ratarmount.
pub(super) struct RatarmountIndex {
    pub(super) connections: Arc<Connections>,
    columns: String,
    /// False for sidecars that cannot hold archives in the archive.
    pub(super) has_generated: bool,
    summary: Summary,
    numbering: u64,
    pub(super) source: SharedSource,
    codec: Option<&'static dyn Codec>,
    tables: Option<Tables>,
    /// The innermost stream, for headers; made when first needed, unless it was given.
    decoded: OnceLock<SharedSource>,
    limits: Limits,
    dictionaries: Dictionaries,
    pub(super) cancel: Cancel,
    /// The archive is not there: what stands in its headers alone is not known.
    is_alone: bool,
    /// See [`Index::waits`].
    waits: bool,
}

impl Debug for RatarmountIndex {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RatarmountIndex").field("source", &self.source).finish_non_exhaustive()
    }
}

impl RatarmountIndex {
    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    /// Rows of `files` in the order and with the conditions of `rest`, until `receive` returns false.
    pub(super) fn select(
        &self,
        rest: &str,
        by: By,
        parameters: &[&dyn rusqlite::ToSql],
        receive: &mut dyn FnMut(Stored) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let connection = self.connections.get()?;
        let sql = format!("SELECT {} FROM files {rest}", self.columns);
        let mut statement = connection.prepare_cached(&sql).map_err(broken)?;
        let mut rows = statement.query(parameters).map_err(broken)?;
        let mut place = Place::default();
        while let Some(row) = rows.next().map_err(broken)? {
            place.go_on(row, by)?;
            if !receive(Stored::read(row, &self.limits)?)? {
                break;
            }
            connection.renew();
        }
        Ok(())
    }

    pub(super) fn one(&self, rest: &str, parameters: &[&dyn rusqlite::ToSql]) -> Result<Option<Stored>, Error> {
        let mut found = None;
        self.select(rest, By::Number, parameters, &mut |stored| {
            found = Some(stored);
            Ok(false)
        })?;
        Ok(found)
    }

    fn stored(&self, node: Node) -> Result<Option<Stored>, Error> {
        match Stored::rowid_of(node) {
            Some(rowid) => self.one(OF_NUMBER, params![rowid]),
            None => Ok(None),
        }
    }

    /// The row of a root that the archive names.
    fn stored_root(&self) -> Result<Option<Stored>, Error> {
        self.last_of("", "")
    }

    /// The path that stands in the rows of what is in `folder`.
    fn path(&self, folder: Node) -> Result<String, Error> {
        if folder == Node::ROOT {
            return Ok(String::new());
        }
        match self.stored(folder)? {
            Some(stored) if stored.is_folder() => Ok(stored.full_path()),
            Some(_) => Err(Error::Broken(format!("node {} is not a folder", folder.0))),
            None => Err(Error::Broken(format!("there is no node {}", folder.0))),
        }
    }

    fn entry(&self, header: u64) -> Result<tarnfs_format::Entry, Error> {
        let stream = match (&self.tables, self.codec) {
            (Some(tables), Some(codec)) => {
                if self.decoded.get().is_none() {
                    let table = tables.open(&self.connections, codec, &self.source)?;
                    let cache = PieceCache::new(Budget::new(HEADER_CACHE));
                    let source = Arc::clone(&self.source);
                    let stream = DecodedSource::new(codec, source, table, cache, Workers::new(0), self.limits);
                    stream.give(DecodeContext { dictionaries: self.dictionaries.clone(), ..DecodeContext::default() });
                    // Another thread may have been quicker: its stream serves as well.
                    let _ = self.decoded.set(stream);
                }
                self.decoded.get().unwrap_or(&self.source)
            }
            _ => &self.source,
        };
        entry_at(stream, header, &self.summary.shape, &self.limits)?
            .ok_or_else(|| Error::Stale(format!("there is no header at byte {header} of the archive")))
    }

    /// Device numbers from the header. Where that costs decoding they are 0: `stat` may not wait for it.
    fn device(&self, stored: &Stored) -> Result<Device, Error> {
        let Some(header) = stored.header().filter(|_| self.codec.is_none() && !self.is_alone) else {
            return Ok(Device::default());
        };
        Ok(match self.entry(header)?.kind {
            Kind::CharacterDevice(device) | Kind::BlockDevice(device) => device,
            _ => Device::default(),
        })
    }

    pub(super) fn shown(&self, stored: &Stored) -> Result<Shown, Error> {
        stored.shown(|| self.device(stored))
    }

    pub(super) fn make_row(&self, stored: &Stored, kind: Kind) -> Result<Row, Error> {
        let length = self.summary.end;
        let is_file = kind == Kind::File;
        if is_file && (stored.offset > length || stored.offset_header.is_some_and(|header| header > length)) {
            return Err(Error::Broken(format!(
                "row {} of files begins at byte {} of a stream of {length}",
                stored.rowid, stored.offset
            )));
        }
        Ok(Row {
            stream: 0,
            node: if stored.name.is_empty() { Node::ROOT } else { stored.node() },
            kind,
            mode: stored.mode & 0o7777,
            uid: stored.uid,
            gid: stored.gid,
            links: 1,
            size: match kind {
                Kind::File => stored.size,
                Kind::Symlink => stored.link.len() as u64,
                _ => 0,
            },
            mtime: stored.mtime,
            atime: stored.mtime,
            ctime: stored.mtime,
            header: stored.header(),
            body: stored.offset,
            has_pieces: false,
            is_sparse: is_file && stored.is_sparse,
            has_xattrs: self.summary.has_xattrs && self.has_xattrs(stored)?,
            // It does not say.
            inherits: true,
        })
    }

    fn has_xattrs(&self, stored: &Stored) -> Result<bool, Error> {
        let Some(header) = stored.header() else { return Ok(false) };
        self.connections
            .get()?
            .prepare_cached(HAS_XATTRS)
            .and_then(|mut statement| statement.exists([header as i64]))
            .map_err(broken)
    }

    fn root(&self) -> Result<Row, Error> {
        if let Some(stored) = self.stored_root()?
            && stored.is_folder()
        {
            return self.make_row(&stored, Kind::Folder);
        }
        Ok(Row {
            stream: 0,
            node: Node::ROOT,
            kind: Kind::Folder,
            mode: 0o755,
            uid: 0,
            gid: 0,
            links: 1,
            size: 0,
            mtime: Time::default(),
            atime: Time::default(),
            ctime: Time::default(),
            header: None,
            body: 0,
            has_pieces: false,
            is_sparse: false,
            has_xattrs: false,
            inherits: true,
        })
    }

    /// The node of the folder that rows with this `path` are in.
    fn folder_of(&self, path: &str) -> Result<Option<Node>, Error> {
        let Some((path, name)) = split_target(path.as_bytes()) else { return Ok(Some(Node::ROOT)) };
        Ok(self.last_of(&path, &name)?.filter(Stored::is_folder).map(|row| row.node()))
    }

    /// The row that shows: of those of one name, the one that is last in the archive.
    pub(super) fn last_of(&self, path: &str, name: &str) -> Result<Option<Stored>, Error> {
        self.one(LAST_OF_NAME, params![path, name])
    }
}

impl Index for RatarmountIndex {
    fn summary(&self) -> &Summary {
        &self.summary
    }

    fn numbering(&self) -> u64 {
        self.numbering
    }

    fn waits(&self) -> bool {
        self.waits
    }

    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Option<Row>, Error> {
        let path = self.path(folder)?;
        let Some(name) = std::str::from_utf8(name).ok().filter(|name| !name.is_empty()) else { return Ok(None) };
        match self.last_of(&path, name)? {
            Some(stored) if stored.has_valid_name(&self.limits) => self.resolve(stored, &mut Following::default()),
            _ => Ok(None),
        }
    }

    /// Numbers of children are those of their rows: each says where it is without counting those before.
    fn children(
        &self,
        folder: Node,
        from: u64,
        receive: &mut dyn FnMut(u64, &[u8], &Row) -> bool,
    ) -> Result<(), Error> {
        let path = self.path(folder)?;
        let behind = match i64::try_from(from) {
            Ok(0) => String::new(),
            Ok(rowid) => match self.one(OF_NUMBER, params![rowid])? {
                Some(stored) if stored.path == path => stored.name,
                _ => return Ok(()),
            },
            Err(_) => return Ok(()),
        };
        let mut following = Following::default();
        let mut show = |stored: Stored| -> Result<bool, Error> {
            if !stored.has_valid_name(&self.limits) {
                return Ok(true);
            }
            let (rowid, name) = (stored.rowid as u64, stored.name.clone());
            Ok(self.resolve(stored, &mut following)?.is_none_or(|row| receive(rowid, name.as_bytes(), &row)))
        };
        // Of the rows of one name, the last one shows.
        let mut waiting: Option<Stored> = None;
        let mut goes_on = true;
        self.select(OF_FOLDER, By::Key, params![path, behind], &mut |stored| {
            if let Some(before) = waiting.replace(stored)
                && waiting.as_ref().is_some_and(|now| now.name != before.name)
            {
                goes_on = show(before)?;
            }
            Ok(goes_on)
        })?;
        if let Some(last) = waiting.filter(|_| goes_on) {
            show(last)?;
        }
        Ok(())
    }

    fn row(&self, node: Node) -> Result<Option<Row>, Error> {
        if node == Node::ROOT {
            return self.root().map(Some);
        }
        match self.stored(node)? {
            Some(stored) => match self.shown(&stored)? {
                Shown::As(kind) => self.make_row(&stored, kind).map(Some),
                _ => Ok(None),
            },
            None => Ok(None),
        }
    }

    fn named_row(&self, node: Node) -> Result<Option<(Row, Vec<u8>)>, Error> {
        let name = self.stored(node)?.map(|stored| stored.name.into_bytes());
        Ok(self.row(node)?.map(|row| (row, name.unwrap_or_default())))
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        if folder == Node::ROOT {
            return Ok(folder);
        }
        let stored = self.stored(folder)?.ok_or_else(|| Error::Broken(format!("there is no node {}", folder.0)))?;
        self.folder_of(&stored.path)?
            .ok_or_else(|| Error::Broken(format!("row {} of files is in no folder", stored.rowid)))
    }

    fn link(&self, node: Node) -> Result<Vec<u8>, Error> {
        let stored = self.stored(node)?.ok_or_else(|| Error::Broken(format!("there is no node {}", node.0)))?;
        if stored.link.len() > self.limits.path {
            return Err(Error::Broken(format!("row {} of files: its target is too long", stored.rowid)));
        }
        Ok(stored.link)
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        let stored = if node == Node::ROOT { self.stored_root()? } else { self.stored(node)? };
        let Some(header) = stored.filter(|_| self.summary.has_xattrs).and_then(|stored| stored.header()) else {
            return Ok(Vec::new());
        };
        let connection = self.connections.get()?;
        let mut statement = connection.prepare_cached(XATTRS).map_err(broken)?;
        let mut rows = statement.query([header as i64]).map_err(broken)?;
        // Sorted here, behind the checks: SQLite would hold them all first.
        let (mut found, mut total) = (Vec::new(), 0_usize);
        while let Some(row) = rows.next().map_err(broken)? {
            let bytes = |index: usize| {
                row.get_ref(index)
                    .ok()
                    .and_then(|value| value.as_bytes_or_null().ok())
                    .map(|bytes| bytes.unwrap_or_default().to_vec())
                    .ok_or_else(|| Error::Broken(format!("an extended attribute of the entry at byte {header}")))
            };
            let (name, value) = (bytes(0)?, bytes(1)?);
            total = total.saturating_add(name.len()).saturating_add(value.len());
            if found.len() >= self.limits.xattrs
                || total > MOST_XATTR_BYTES
                || value.len() > self.limits.xattr_value
                || !(1..=255).contains(&name.len())
            {
                return Err(Error::Broken(format!(
                    "the extended attributes of the entry at byte {header} are too large"
                )));
            }
            found.push((name, value));
        }
        found.sort();
        Ok(found)
    }

    fn extents(&self, node: Node) -> Result<Vec<Extent>, Error> {
        let stored = self.stored(node)?.ok_or_else(|| Error::Broken(format!("there is no node {}", node.0)))?;
        // Only a file has a map, whatever the row says.
        let is_sparse = self.row(node)?.is_some_and(|row| row.is_sparse);
        let Some(header) = stored.header().filter(|_| is_sparse) else { return Ok(Vec::new()) };
        if self.is_alone {
            // Only the archive has the map. Who reads that is told what is missing.
            self.source.read_at(&mut [0], 0)?;
        }
        let body = self.entry(header)?.body;
        if (body.offset, body.size) != (stored.offset, stored.size) {
            return Err(Error::Stale(format!("the sparse file at byte {header} of the archive is another one")));
        }
        body.extents.ok_or_else(|| Error::Stale(format!("the file at byte {header} of the archive is not sparse")))
    }

    fn knows_extents(&self) -> bool {
        self.codec.is_none() && !self.is_alone
    }

    fn read_headers_from(&self, stream: &SharedSource) {
        if self.codec.is_some() {
            let _ = self.decoded.set(Arc::clone(stream));
        }
    }

    fn owner_names(&self, _node: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        Ok((Vec::new(), Vec::new()))
    }
}

/// It keeps no lists of pieces.
impl InPieces for RatarmountIndex {}

impl History for RatarmountIndex {
    fn replaced(&self, receive: &mut dyn FnMut(Node, &[u8], &Row)) -> Result<(), Error> {
        let (mut waiting, mut last): (Option<Stored>, _) = (None, None);
        let mut following = Following::default();
        self.select("ORDER BY path, name, offsetheader", By::Key, params![], &mut |stored| {
            let before = waiting.replace(stored);
            let known = last.take();
            if let (Some(before), Some(now)) = (before, &waiting)
                && (&before.path, &before.name) == (&now.path, &now.name)
                // The file of an archive that shows as a folder is no earlier version of it.
                && before.header() != now.offset_header.map(|header| header & !1)
                && before.has_valid_name(&self.limits)
                && let Some(folder) = self.folder_of(&before.path)?
            {
                let name = before.name.clone();
                last = known;
                if let Some(row) = self.resolve_next(before, &mut last, &mut following)? {
                    receive(folder, name.as_bytes(), &row);
                }
            }
            Ok(true)
        })
    }

    fn replaced_of(
        &self,
        folder: Node,
        name: &[u8],
        from: u64,
        receive: &mut dyn FnMut(Option<u64>, &Row) -> bool,
    ) -> Result<u64, Error> {
        let path = self.path(folder)?;
        let Some(name) = std::str::from_utf8(name).ok().filter(|name| !name.is_empty()) else { return Ok(0) };
        let (mut waiting, mut last): (Option<Stored>, _) = (None, None);
        let (mut passed, mut following) = (0_u64, Following::default());
        self.select(ALL_OF_NAME, By::Key, params![path, name], &mut |stored| {
            let before = waiting.replace(stored);
            let known = last.take();
            if let (Some(before), Some(now)) = (before, &waiting)
                // As in `replaced`.
                && before.header() != now.offset_header.map(|header| header & !1)
                && before.has_valid_name(&self.limits)
                && let header = before.header()
                && let Some(row) = {
                    last = known;
                    self.resolve_next(before, &mut last, &mut following)?
                }
            {
                if passed == from {
                    return Ok(receive(header, &row));
                }
                passed = passed.saturating_add(1);
            }
            Ok(true)
        })?;
        Ok(passed)
    }

    fn hard_links(&self, receive: &mut dyn FnMut(Node, &[u8], u64, Node)) -> Result<(), Error> {
        let mut following = Following::default();
        self.select("ORDER BY rowid", By::Number, params![], &mut |stored| {
            if self.shown(&stored)? == Shown::HardLink
                && stored.has_valid_name(&self.limits)
                && let Some(header) = stored.header()
                && self.last_of(&stored.path, &stored.name)?.is_some_and(|last| last.rowid == stored.rowid)
                && let Some(folder) = self.folder_of(&stored.path)?
            {
                let name = stored.name.clone();
                if let Some(row) = self.resolve(stored, &mut following)? {
                    receive(folder, name.as_bytes(), header, row.node);
                }
            }
            Ok(true)
        })
    }
}

impl StreamTables for RatarmountIndex {
    fn chunks(self: Arc<Self>, layer: usize) -> Result<Arc<dyn ChunkTable>, Error> {
        match (&self.tables, self.codec) {
            (Some(tables), Some(codec)) if layer == 0 => tables.open(&self.connections, codec, &self.source),
            _ => Err(Error::Broken(format!("there is no layer {layer} of compression"))),
        }
    }

    fn damage_in(&self, _range: Range<u64>) -> Result<Option<Damage>, Error> {
        Ok(None)
    }
}
