//! Writes a sidecar in ratarmount's schema 0.7.0.

use std::cell::Cell;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use rusqlite::{Connection, params};
use rustix::fs::{Mode, OFlags, open};
use serde_json::json;
use tarnfs_format::{Kind, Time};
use tarnfs_source::{Cancel, FileSource, Fingerprint, Setting, Source};

use super::compressed;
use super::header::last_header;
use super::rows::FOLDER;
use super::unsigned;
use crate::sqlite::failed;
use crate::trust::Owner;
use crate::vfs::Opened;
use crate::writer::temporary::Temporary;
use crate::writer::{most_bytes, too_many_bytes};
use crate::{Error, Index, Node, Row};

/// Of ratarmount's schema.
const SCHEMA: &str = include_str!("schema.sql");

/// Writes what `index` says of the file `archive` to `destination`, as ratarmount 1.3 would have written it: it
/// opens it without making its own. Under that name there never is half a file.
///
/// [`Error::Unknown`] for codecs whose seek points ratarmount does not keep, and for archives in archives;
/// [`Error::Foreign`] for other formats than tar,
/// [`Error::Stale`] if the archive is not the indexed one.
pub fn write(index: &Arc<dyn Index>, archive: &Path, destination: &Path) -> Result<(), Error> {
    write_until(index, archive, destination, &Cancel::default())
}

/// The same, until that is cancelled: nothing is left of it then.
pub fn write_until(index: &Arc<dyn Index>, archive: &Path, destination: &Path, cancel: &Cancel) -> Result<(), Error> {
    // NONBLOCK, as a fifo would wait; it means nothing for files.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(open(archive, flags, Mode::empty()).map_err(io::Error::from)?);
    let stats = file.metadata()?;
    let source = FileSource::from_file(file, archive)?;
    let summary = index.summary();
    if source.len() != summary.archive.length {
        return Err(Error::Stale(format!(
            "{} is {} bytes long, the index was made when it had {}",
            archive.display(),
            source.len(),
            summary.archive.length
        )));
    }
    if Fingerprint::of(&source)? != summary.archive.fingerprint {
        return Err(Error::Stale(format!("{} has other bytes than when the index was made", archive.display())));
    }
    if summary.shape.recursion.is_some() {
        let nothing = "ratarmount keeps nothing of compressed archives in archives";
        return Err(Error::Unknown(format!("{nothing}; make an index without {} for it", Setting::Recursive)));
    }
    // Its backend for these has offsets of tar headers alone.
    if summary.format != "tar" && !summary.may_be_single_file() {
        let what = format!("ratarmount has no index of {} archives that tarnfs writes", summary.format);
        return Err(Error::Foreign(what));
    }
    let owner = Owner::of(&source)?;
    let temporary = Temporary::create(destination, Some(&owner))?;
    let file = Opened::file(temporary.file()?, true);
    let filled = fill(index, &source, &stats, &file, most_bytes(source.len()), cancel);
    // What SQLite says of it is only that it was ended.
    cancel.check()?;
    filled?;
    Ok(temporary.rename()?)
}

/// Writes it into an empty file, which SQLite takes for a new database. By its descriptor: under its name, which others
/// may know in a folder that they can write, there may be a link to something else by now. Its texts may have
/// `most_bytes`.
fn fill(
    index: &Arc<dyn Index>,
    source: &FileSource,
    stats: &std::fs::Metadata,
    file: &Opened,
    most_bytes: u64,
    cancel: &Cancel,
) -> Result<(), Error> {
    /// Steps of SQLite between two looks at whether it is still wanted.
    const TICK: i32 = 10_000;
    let summary = index.summary();
    let mut connection = file.connect().map_err(failed)?;
    let asked = cancel.clone();
    connection.progress_handler(TICK, Some(move || asked.is_cancelled())).map_err(failed)?;
    connection
        .execute_batch(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; PRAGMA temp_store = FILE;",
        )
        .map_err(failed)?;
    connection.execute_batch("BEGIN").map_err(failed)?;
    connection.execute_batch(SCHEMA).map_err(failed)?;
    let is_plain = summary.layers.is_empty();
    let mut writing = Writing {
        index,
        connection: &connection,
        plain: is_plain.then_some(source),
        has_links: false,
        is_incremental: summary.shape.gnu_incremental == Some(true),
        most_bytes,
        bytes: Cell::new(0),
    };
    writing.collect_links()?;
    writing.tree()?;
    writing.replaced()?;
    writing.finish_links()?;
    finish_folders(&connection)?;
    let is_incremental = writing.is_incremental;
    compressed::write(index, source, &connection)?;
    write_metadata(&connection, index, stats, is_incremental)?;
    connection
        .execute_batch("COMMIT; DROP TABLE temp.links; DROP TABLE temp.targets; DROP TABLE temp.waiting;")
        .map_err(failed)?;
    connection.close().map_err(|(_, error)| failed(error))
}

struct Writing<'a> {
    index: &'a Arc<dyn Index>,
    connection: &'a Connection,
    /// The archive, if it is not compressed: its headers cost nothing to look at.
    plain: Option<&'a FileSource>,
    has_links: bool,
    is_incremental: bool,
    /// What paths, names and links of all rows may have: each row has its whole path, so that a small archive can make
    /// a sidecar that fills the disk.
    most_bytes: u64,
    bytes: Cell<u64>,
}

/// What goes into one row of `files`.
struct FileRow<'a> {
    path: &'a str,
    name: &'a str,
    header: Option<u64>,
    offset: u64,
    size: u64,
    mtime: Time,
    mode: u32,
    flag: Option<u8>,
    link: &'a str,
    uid: u32,
    gid: u32,
    is_sparse: bool,
}

impl Writing<'_> {
    /// ratarmount counts the compression as one layer of archives.
    fn depth(&self) -> i64 {
        i64::from(self.plain.is_none() && !self.index.summary().may_be_single_file())
    }

    /// Counts the texts of a row.
    fn count(&self, texts: &[&str]) -> Result<(), Error> {
        let bytes = texts.iter().fold(self.bytes.get(), |sum, text| sum.saturating_add(text.len() as u64));
        self.bytes.set(bytes);
        if bytes <= self.most_bytes { Ok(()) } else { Err(too_many_bytes(self.most_bytes)) }
    }

    fn insert(&self, file: &FileRow<'_>) -> Result<(), Error> {
        self.count(&[file.path, file.name, file.link])?;
        self.connection
            .prepare_cached("INSERT OR REPLACE INTO files VALUES (?,?,?,?,?,?,?,?,?,?,?,0,?,0,?)")
            .and_then(|mut statement| {
                statement.execute(params![
                    file.path,
                    file.name,
                    file.header.map(|header| header as i64),
                    file.offset as i64,
                    file.size as i64,
                    seconds(file.mtime),
                    file.mode,
                    file.flag.map(|flag| vec![flag]),
                    // A single file has no type and no link.
                    file.flag.map(|_| file.link),
                    file.uid,
                    file.gid,
                    file.is_sparse,
                    self.depth(),
                ])
            })
            .map(drop)
            .map_err(failed)
    }

    fn collect_links(&mut self) -> Result<(), Error> {
        let mut statement =
            self.connection.prepare("INSERT OR REPLACE INTO temp.links VALUES (?1, ?2, ?3, ?4)").map_err(failed)?;
        let mut error = None;
        self.index.hard_links(&mut |folder, name, header, node| {
            self.has_links = true;
            if error.is_none() {
                error = statement.execute(params![folder.0 as i64, name, header as i64, node.0 as i64]).err();
            }
        })?;
        error.map_or(Ok(()), |error| Err(failed(error)))
    }

    /// All that shows.
    fn tree(&mut self) -> Result<(), Error> {
        if let Some(root) = self.index.row(Node::ROOT)?.filter(|root| root.header.is_some()) {
            self.row("", "", &root)?;
        }
        self.below(Node::ROOT, String::new())
    }

    /// All that is below `folder`, which has that path.
    fn below(&mut self, folder: Node, path: String) -> Result<(), Error> {
        // Of those that wait, their names and the path of all of them: very many may lie in one that has a long path.
        let mut folders = vec![(folder, Rc::<str>::from(path), None)];
        while let Some((folder, above, name)) = folders.pop() {
            let path: Rc<str> = name.map_or(Rc::clone(&above), |name: String| Rc::from(format!("{above}/{name}")));
            drop(above);
            let mut from = 0;
            loop {
                // A batch at a time: writing may not fail inside the other index's query.
                let mut batch: Vec<(Vec<u8>, Row)> = Vec::new();
                self.index.children(folder, from, &mut |next, name, row| {
                    from = next;
                    batch.push((name.to_vec(), row.clone()));
                    batch.len() < 1000
                })?;
                let is_last = batch.len() < 1000;
                for (name, row) in batch {
                    let text = escaped(&name);
                    if row.kind == Kind::Folder {
                        self.row(&path, &text, &row)?;
                        folders.push((row.node, Rc::clone(&path), Some(text)));
                    } else if let Some(header) = self.link_header(folder, &name)? {
                        self.wait(&path, &text, header, &row)?;
                    } else {
                        self.remember(&path, &text, &row)?;
                        self.row(&path, &text, &row)?;
                    }
                }
                if is_last {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Where the header of the hard link of that name is, if it is one.
    fn link_header(&self, folder: Node, name: &[u8]) -> Result<Option<u64>, Error> {
        if !self.has_links {
            return Ok(None);
        }
        let mut statement = self
            .connection
            .prepare_cached("SELECT header FROM temp.links WHERE folder = ?1 AND name = ?2")
            .map_err(failed)?;
        let mut rows = statement.query(params![folder.0 as i64, name]).map_err(failed)?;
        rows.next().and_then(|row| row.map(|row| unsigned(row, 0)).transpose()).map_err(failed)
    }

    /// Keeps the path of what hard links share.
    fn remember(&self, path: &str, name: &str, row: &Row) -> Result<(), Error> {
        if !self.has_links || row.links < 2 {
            return Ok(());
        }
        self.connection
            .prepare_cached("INSERT OR IGNORE INTO temp.targets VALUES (?1, ?2)")
            .and_then(|mut statement| statement.execute(params![row.node.0 as i64, format!("{path}/{name}")]))
            .map(drop)
            .map_err(failed)
    }

    /// Puts a hard link aside until it is known where what it shares shows.
    fn wait(&self, path: &str, name: &str, header: u64, row: &Row) -> Result<(), Error> {
        let own_offset = match self.plain {
            Some(source) => last_header(source, header)?.map_or(header, |last| last.body),
            None => header.saturating_add(512),
        };
        let link = self.link(row)?;
        self.count(&[path, name, &link])?;
        self.connection
            .prepare_cached("INSERT INTO temp.waiting VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)")
            .and_then(|mut statement| {
                statement.execute(params![
                    path,
                    name,
                    header as i64,
                    row.node.0 as i64,
                    row.body as i64,
                    stored_size(row) as i64,
                    seconds(row.mtime),
                    full_mode(row),
                    vec![flag(row.kind)],
                    link,
                    row.uid,
                    row.gid,
                    row.is_sparse,
                    own_offset as i64,
                ])
            })
            .map(drop)
            .map_err(failed)
    }

    /// Writes hard links as links to where their file shows. Where it shows under no other name they are files of their
    /// own.
    fn finish_links(&self) -> Result<(), Error> {
        let sql_text = format!(
            "INSERT OR REPLACE INTO files SELECT w.path, name, header, ownoffset, 0, mtime, mode & 4095, x'31',
                 substr(t.path, 2), uid, gid, 0, 0, 0, {depth}
                 FROM temp.waiting w JOIN temp.targets t USING (node) WHERE w.path || '/' || name <> t.path;
             INSERT OR REPLACE INTO files SELECT path, name, header, offset, size, mtime, mode, type, linkname, uid, gid, 0, issparse, 0, {depth}
                 FROM temp.waiting w WHERE NOT EXISTS
                 (SELECT 1 FROM temp.targets t WHERE t.node = w.node AND t.path <> w.path || '/' || name);",
            depth = self.depth()
        );
        // Each link has the whole path of its file.
        let targets: i64 = self
            .connection
            .query_row(
                "SELECT coalesce(sum(length(CAST(t.path AS BLOB))), 0)
                     FROM temp.waiting w JOIN temp.targets t USING (node) WHERE w.path || '/' || name <> t.path",
                [],
                |row| row.get(0),
            )
            .map_err(failed)?;
        let bytes = self.bytes.get().saturating_add(targets.unsigned_abs());
        if bytes > self.most_bytes {
            return Err(too_many_bytes(self.most_bytes));
        }
        self.connection.execute_batch(&sql_text).map_err(failed)
    }

    /// What later entries of the same path have replaced. Without hard links: of these only what they share is known.
    fn replaced(&mut self) -> Result<(), Error> {
        // Each entry has a header of its own: a row whose header another one has, too, is a hard link, or shared by
        // one. There may be as many as the archive has entries, so they are counted on disk.
        self.connection
            .execute_batch(
                "CREATE TABLE temp.headers (header INTEGER PRIMARY KEY, count INTEGER NOT NULL);
                 CREATE TABLE temp.behind (node INTEGER PRIMARY KEY);",
            )
            .map_err(failed)?;
        let (index, connection) = (self.index, self.connection);
        let mut count = connection
            .prepare("INSERT INTO temp.headers VALUES (?1, 1) ON CONFLICT DO UPDATE SET count = count + 1")
            .map_err(failed)?;
        each_replaced(index, &mut |_, _, row| match row.header {
            Some(header) => count.execute([header as i64]).map(drop).map_err(failed),
            None => Ok(()),
        })?;
        drop(count);
        connection
            .execute("UPDATE temp.headers SET count = count + 1 WHERE header IN (SELECT offsetheader FROM files)", [])
            .map_err(failed)?;
        let mut last = LastReplaced::default();
        each_replaced(index, &mut |folder, name, row| self.replaced_one(&mut last, folder, name, row))?;
        connection.execute_batch("DROP TABLE temp.headers; DROP TABLE temp.behind").map_err(failed)
    }

    /// Writes an entry that was replaced in `folder`. Those of one name come together.
    fn replaced_one(&mut self, last: &mut LastReplaced, folder: Node, name: &[u8], row: &Row) -> Result<(), Error> {
        let connection = self.connection;
        if let Some(header) = row.header {
            let mut count =
                connection.prepare_cached("SELECT count FROM temp.headers WHERE header = ?1").map_err(failed)?;
            if count.query_row([header as i64], |row| row.get::<_, i64>(0)).map_err(failed)? != 1 {
                return Ok(());
            }
        }
        if last.folder.as_ref().is_none_or(|(known, _)| *known != folder) {
            let path = match self.path_of(folder) {
                Ok(path) => Some(path),
                // The folder itself was replaced by something else: ratarmount would show nothing of it.
                Err(Error::Broken(what)) => {
                    log::debug!("left out of ratarmount's index: {what}");
                    None
                }
                Err(error) => return Err(error),
            };
            *last = LastReplaced { folder: Some((folder, path)), behind: None };
        }
        let LastReplaced { folder: Some((_, Some(path))), behind } = last else { return Ok(()) };
        let shows = self.index.lookup(folder, name)?.is_some_and(|shown| shown.kind == Kind::Folder);
        // Folders that do not show, but have something in them, each once.
        let mut content = None;
        if row.kind == Kind::Folder && !shows {
            if behind.as_ref().is_none_or(|(known, _)| known != name) {
                let mut found = None;
                self.index.replaced_of(folder, name, 0, &mut |_, row| {
                    found = Some(row.node).filter(|_| row.kind == Kind::Folder).or(found);
                    true
                })?;
                *behind = Some((name.to_vec(), found));
            }
            content = behind.as_ref().and_then(|(_, found)| *found);
        }
        if let Some(node) = content {
            let mut insert =
                connection.prepare_cached("INSERT OR IGNORE INTO temp.behind VALUES (?1)").map_err(failed)?;
            let added = insert.execute([node.0 as i64]).map_err(failed)?;
            content = content.filter(|_| added == 1);
        }
        // Of folders that no entry names only one is kept: a row without a header is the same row.
        if row.header.is_some() || content.is_some() {
            self.row(path, &escaped(name), row)?;
        }
        match content {
            Some(content) => self.below(content, format!("{path}/{}", escaped(name))),
            None => Ok(()),
        }
    }

    /// The path of a folder, found from below.
    fn path_of(&self, folder: Node) -> Result<String, Error> {
        let mut parts = Vec::new();
        let mut node = folder;
        while node != Node::ROOT {
            let parent = self.index.parent(node)?;
            let named = self.index.named_row(node)?;
            let (_, name) = named.ok_or_else(|| Error::Broken(format!("folder {} is not there", node.0)))?;
            parts.push(escaped(&name));
            node = parent;
        }
        Ok(parts.iter().rev().fold(String::new(), |path, part| path + "/" + part))
    }

    fn link(&self, row: &Row) -> Result<String, Error> {
        if row.kind == Kind::Symlink { Ok(escaped(&self.index.link(row.node)?)) } else { Ok(String::new()) }
    }

    fn row(&mut self, path: &str, name: &str, row: &Row) -> Result<(), Error> {
        if row.has_pieces {
            let what = format!("node {} is stored in pieces, which ratarmount has no rows for", row.node.0);
            return Err(Error::Foreign(what));
        }
        // Above it there may be folders of `--transform`.
        if self.index.summary().may_be_single_file() && row.kind == Kind::File {
            return self.single_file(path, name, row);
        }
        let Some(header) = row.header else {
            return self.implied(path, name);
        };
        let link = self.link(row)?;
        let mut file = FileRow {
            path,
            name,
            header: Some(header),
            offset: row.body,
            size: stored_size(row),
            mtime: row.mtime,
            mode: full_mode(row),
            flag: Some(flag(row.kind)),
            link: &link,
            uid: row.uid,
            gid: row.gid,
            is_sparse: row.is_sparse,
        };
        if row.kind == Kind::Folder
            && let Some(last) = self.dump_directory(header)?
        {
            // The list of a GNU dump directory is a file of its own, and the folder a row behind it.
            self.is_incremental = true;
            file.flag = Some(b'D');
            self.insert(&FileRow {
                offset: last.body,
                size: last.size,
                mode: row.mode & 0o7777 | 0o100_000,
                flag: Some(b'D'),
                ..file
            })?;
            file.header = Some(header.saturating_add(1));
        }
        self.insert(&file)?;
        self.xattrs(header, row)
    }

    /// The header at that byte, if it is one of a dump directory. Headers of compressed archives are not looked at.
    fn dump_directory(&self, header: u64) -> Result<Option<super::header::LastHeader>, Error> {
        match self.plain {
            Some(source) if self.index.summary().shape.gnu_incremental != Some(false) => {
                Ok(last_header(source, header)?.filter(|last| last.flag == b'D'))
            }
            _ => Ok(None),
        }
    }

    /// A folder that no entry names: the type is a number here, as in ratarmount's own.
    fn implied(&self, path: &str, name: &str) -> Result<(), Error> {
        self.count(&[path, name])?;
        self.connection
            .prepare_cached(
                "INSERT OR REPLACE INTO files VALUES (?1, ?2, NULL, NULL, 0, 0, ?3, 5, '', 0, 0, 0, 0, 0, 0)",
            )
            .and_then(|mut statement| statement.execute(params![path, name, FOLDER | 0o555]))
            .map(drop)
            .map_err(failed)
    }

    fn single_file(&self, path: &str, name: &str, row: &Row) -> Result<(), Error> {
        self.insert(&FileRow {
            path,
            name,
            header: None,
            offset: row.body,
            size: row.size,
            mtime: row.mtime,
            mode: full_mode(row),
            flag: None,
            link: "",
            uid: row.uid,
            gid: row.gid,
            is_sparse: false,
        })
    }

    fn xattrs(&self, header: u64, row: &Row) -> Result<(), Error> {
        if !row.has_xattrs {
            return Ok(());
        }
        for (name, value) in self.index.xattrs(row.node)? {
            let name = escaped(&name);
            let mut statement =
                self.connection.prepare_cached("INSERT OR IGNORE INTO xattrkeys (name) VALUES (?1)").map_err(failed)?;
            statement.execute([&name]).map_err(failed)?;
            self.connection
                .prepare_cached("INSERT OR REPLACE INTO xattrsdata SELECT ?1, id, ?3 FROM xattrkeys WHERE name = ?2")
                .and_then(|mut statement| statement.execute(params![header as i64, name, value]))
                .map_err(failed)?;
        }
        Ok(())
    }
}

/// Folders that no entry names get the header of the first entry in them, however far below it lies.
fn finish_folders(connection: &Connection) -> Result<(), Error> {
    // Each folder hands the least header in it to the one above, the deepest folders first: to look at all that is
    // below each of them would take as many looks as there are files and folders above them.
    connection
        .execute_batch(
            "CREATE TEMP TABLE least (depth INTEGER, path TEXT, header INTEGER, offset INTEGER, PRIMARY KEY (depth, path))
                 WITHOUT ROWID;
             INSERT INTO temp.least
                 SELECT length(path) - length(replace(path, '/', '')), path, min(offsetheader), offset FROM files
                 WHERE typeof(type) = 'blob' GROUP BY path;",
        )
        .map_err(failed)?;
    let deepest =
        connection.query_row("SELECT coalesce(max(depth), 0) FROM temp.least", [], |row| row.get(0)).map_err(failed)?;
    for depth in (1_i64..=deepest).rev() {
        let mut folders = connection
            .prepare_cached("SELECT path, header, offset FROM temp.least WHERE depth = ?1")
            .map_err(failed)?;
        let mut hand_up = connection
            .prepare_cached(
                "INSERT INTO temp.least VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE
                     SET header = excluded.header, offset = excluded.offset WHERE excluded.header < header",
            )
            .map_err(failed)?;
        let mut rows = folders.query([depth]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let path: String = row.get(0).map_err(failed)?;
            let header: Option<i64> = row.get(1).map_err(failed)?;
            let offset: Option<i64> = row.get(2).map_err(failed)?;
            let above = path.rsplit_once('/').map_or("", |(above, _)| above);
            // Rows of another depth are not among those that are read.
            hand_up.execute(params![depth.saturating_sub(1), above, header, offset]).map_err(failed)?;
        }
    }
    connection
        .execute_batch(
            "UPDATE files SET (offsetheader, offset) = (SELECT header, l.offset FROM temp.least l
                 WHERE l.depth = 1 + length(files.path) - length(replace(files.path, '/', ''))
                 AND l.path = files.path || '/' || files.name)
             WHERE typeof(type) = 'integer';
             DROP TABLE temp.least;",
        )
        .map_err(failed)
}

/// What is known of the folder that the last replaced entry was in.
#[derive(Default)]
struct LastReplaced {
    /// Which, and its path if it has one.
    folder: Option<(Node, Option<String>)>,
    /// A name in it, and the last folder that was replaced under it.
    behind: Option<(Vec<u8>, Option<Node>)>,
}

/// Hands what [`History::replaced`](crate::History::replaced) hands out to `work`, until that fails.
#[allow(clippy::type_complexity, reason = "it is that of the index, and may fail")]
fn each_replaced(
    index: &Arc<dyn Index>,
    work: &mut dyn FnMut(Node, &[u8], &Row) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut done = Ok(());
    index.replaced(&mut |folder, name, row| {
        if done.is_ok() {
            done = work(folder, name, row);
        }
    })?;
    done
}

/// What Python's tarfile calls the size: none but files have one.
fn stored_size(row: &Row) -> u64 {
    if row.kind == Kind::File { row.size } else { 0 }
}

/// `st_mode` as ratarmount stores it: block devices have no type there.
fn full_mode(row: &Row) -> u32 {
    let kind = match row.kind {
        Kind::File => 0o100_000,
        Kind::Folder => FOLDER,
        Kind::Symlink => 0o120_000,
        Kind::CharacterDevice(_) => 0o020_000,
        Kind::Fifo => 0o010_000,
        Kind::BlockDevice(_) | Kind::HardLink | Kind::Socket => 0,
    };
    kind | row.mode & 0o7777
}

/// The type flag of a tar header.
fn flag(kind: Kind) -> u8 {
    match kind {
        Kind::File | Kind::Socket => b'0',
        Kind::HardLink => b'1',
        Kind::Symlink => b'2',
        Kind::CharacterDevice(_) => b'3',
        Kind::BlockDevice(_) => b'4',
        Kind::Folder => b'5',
        Kind::Fifo => b'6',
    }
}

fn seconds(time: Time) -> f64 {
    time.seconds as f64 + f64::from(time.nanoseconds) * 1e-9
}

/// Text of bytes: what is not UTF-8 as `\xe4`.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

fn write_metadata(
    connection: &Connection,
    index: &Arc<dyn Index>,
    stats: &std::fs::Metadata,
    is_incremental: bool,
) -> Result<(), Error> {
    let summary = index.summary();
    // Python's way from two numbers to one: it compares the result.
    let double = |seconds: i64, nanoseconds: i64| seconds as f64 + 1e-9 * nanoseconds as f64;
    let whole = |seconds: i64, nanoseconds: i64| seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds);
    let tarstats = json!({
        "st_atime": double(stats.atime(), stats.atime_nsec()),
        "st_atime_ns": whole(stats.atime(), stats.atime_nsec()),
        "st_blksize": stats.blksize(),
        "st_blocks": stats.blocks(),
        "st_ctime": double(stats.ctime(), stats.ctime_nsec()),
        "st_ctime_ns": whole(stats.ctime(), stats.ctime_nsec()),
        "st_dev": stats.dev(),
        "st_gid": stats.gid(),
        "st_ino": stats.ino(),
        "st_mode": stats.mode(),
        "st_mtime": double(stats.mtime(), stats.mtime_nsec()),
        "st_mtime_ns": whole(stats.mtime(), stats.mtime_nsec()),
        "st_nlink": stats.nlink(),
        "st_rdev": stats.rdev(),
        "st_size": stats.size(),
        "st_uid": stats.uid(),
    });
    let arguments = json!({
        // Undoing a compression counts as recursion.
        "mountRecursively": !summary.layers.is_empty(),
        "encoding": summary.shape.encoding.as_deref().unwrap_or("utf-8"),
        "stripRecursiveTarExtension": false,
        "transformRecursiveMountPoint": null,
        "transformPattern": summary.shape.transform.as_ref().map(|(expression, instead)| [expression, instead]),
        "ignoreZeros": summary.shape.ignore_zeros,
        "hashes": summary.shape.hashes,
        "gzipSeekPointSpacing": 16 << 20,
    });
    let metadata = [
        ("tarstats", tarstats.to_string()),
        ("arguments", arguments.to_string()),
        ("backendName", "SQLiteIndexedTar".into()),
        ("isGnuIncremental", if is_incremental { "1" } else { "0" }.into()),
    ];
    for (key, value) in metadata {
        connection.execute("INSERT INTO metadata VALUES (?1, ?2)", [key, &value]).map_err(failed)?;
    }
    let own: [&str; 3] =
        [env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"), env!("CARGO_PKG_VERSION_PATCH")];
    for (name, version, parts) in [("index", "0.7.0", ["0", "7", "0"]), ("tarnfs", env!("CARGO_PKG_VERSION"), own)] {
        connection
            .execute(
                "INSERT INTO versions VALUES (?1, ?2, ?3, ?4, ?5)",
                params![name, version, parts[0], parts[1], parts[2]],
            )
            .map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
