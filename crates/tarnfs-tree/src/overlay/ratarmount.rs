//! Overlays that ratarmount has made: a folder with what was written, each file at its path, and beside it an SQLite
//! file of what was removed and of attributes.
//!
//! It is taken over once, when there is nothing of ours in the folder. The files stay where they are. The same holds
//! for a folder that somebody has filled by hand, as ratarmount takes it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, openat, readlinkat, statat};
use rustix::io::Errno;

use super::Overlay;
use super::database::{self, failed};
use super::editing::{Editing, of};
use super::files::{has, is_ours, join, times};
use super::rows::{self, NodeRow, ROOT, changed};
use crate::{Attributes, Device, Error, Kind, Node, Time, folder};

/// Its file.
const NAME: &str = ".ratarmount.overlay.sqlite";

/// Folders in one another, at most.
const DEEPEST: usize = 2000;

/// Bytes that a row takes in it, at least, besides its names.
const SMALLEST_ROW: u64 = 4;

/// How long reading it may take, and after how many steps of SQLite that is looked at.
const PATIENCE: Duration = Duration::from_secs(60);
const STEPS: i32 = 100_000;

/// What it says of a path.
#[derive(Debug, Default, Clone)]
struct Said {
    mtime: Option<Time>,
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    is_deleted: bool,
}

type All = HashMap<(Vec<u8>, Vec<u8>), Said>;

/// Takes over what is in the folder, after `begin`.
pub(super) fn import(overlay: &Overlay, begin: &dyn Fn(&Editing<'_>) -> Result<(), Error>) -> Result<(), Error> {
    let said = if has(overlay.files.root(), NAME)? { read(&overlay.files.path().join(NAME))? } else { All::new() };
    let root = openat(overlay.files.root(), ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let unusable = RefCell::<Vec<Unusable>>::default();
    let imported = overlay.edit(|editing| {
        begin(editing)?;
        let mut import = Import { overlay, editing, said, links: HashMap::new(), unusable: &unusable, count: 0 };
        import.folder(&root, ROOT, b"", Some(Node::ROOT), 0)?;
        import.others()?;
        Ok(import.count)
    });
    let unusable = unusable.into_inner();
    let count = match imported {
        Ok(count) => count,
        Err(error) => {
            for one in &unusable {
                one.put_back(overlay);
            }
            return Err(error);
        }
    };
    // Only now: the mode that a file has is the one that is shown, and that is in a row from here on.
    for one in &unusable {
        one.make_usable(overlay);
    }
    if count > 0 {
        let folder = tarnfs_format::name::escape(overlay.files.path().as_os_str().as_encoded_bytes()).to_string();
        log::info!("{folder}: what was written there before is taken over: {count} files and folders");
    }
    Ok(())
}

/// What we may not read and write, as ratarmount has given it the mode that is shown.
struct Unusable {
    place: Vec<u8>,
    mode: Mode,
    /// A folder that had to be read, and was made usable for that.
    was_needed: bool,
}

impl Unusable {
    fn make_usable(&self, overlay: &Overlay) {
        if let Err(error) = overlay.files.make_usable(&self.place) {
            let name = tarnfs_format::name::escape(&self.place).to_string();
            log::warn!("{name}, which was written before, may not be readable: changing its mode: {error}");
        }
    }

    /// It was not taken over: the next one who does must find the mode that it had.
    fn put_back(&self, overlay: &Overlay) {
        if self.was_needed
            && let Err(error) = overlay.files.set_mode(&self.place, self.mode)
        {
            let name = tarnfs_format::name::escape(&self.place).to_string();
            log::warn!("{name}, which was written before: giving it its mode {:o} back: {error}", self.mode);
        }
    }
}

/// All that ratarmount's file says. Anybody may have made it: there cannot be more in it than its length allows.
fn read(path: &Path) -> Result<All, Error> {
    let connection = match open(path, OpenFlags::SQLITE_OPEN_READ_ONLY) {
        // It was killed, and its last change is taken back first.
        Err(Error::ReadOnly) => open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?,
        opened => opened?,
    };
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let most = path.metadata()?.len() + Path::new(&log).metadata().map_or(0, |log| log.len());
    let mut taken = 0;
    let mut query =
        connection.prepare("SELECT path, name, mtime, mode, uid, gid, deleted FROM files").map_err(failed)?;
    let rows = query
        .query_map([], |row| {
            let bytes = |column| match row.get_ref(column)? {
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Ok::<_, rusqlite::Error>(bytes.to_vec()),
                _ => Ok(Vec::new()),
            };
            let number = |column| match row.get_ref(column)? {
                ValueRef::Integer(number) => Ok::<_, rusqlite::Error>(Some(number as f64)),
                ValueRef::Real(number) => Ok(Some(number)),
                _ => Ok(None),
            };
            let time = |seconds: f64| Time {
                seconds: seconds.floor() as i64,
                nanoseconds: ((seconds - seconds.floor()) * 1e9) as u32,
            };
            let small = |column| Ok::<_, rusqlite::Error>(number(column)?.map(|number| number as u32));
            let said = Said {
                mtime: number(2)?.map(time),
                mode: small(3)?.map(|mode| mode & 0o7777),
                uid: small(4)?,
                gid: small(5)?,
                is_deleted: number(6)?.is_some_and(|is_deleted| is_deleted != 0.0),
            };
            let path = bytes(0)?;
            let path = path.strip_prefix(b"/").unwrap_or(&path).to_vec();
            Ok(((path, bytes(1)?), said))
        })
        .map_err(failed)?;
    let mut all = All::new();
    for row in rows {
        let ((path, name), said) = row.map_err(failed)?;
        taken += (path.len() + name.len()) as u64 + SMALLEST_ROW;
        if taken > most {
            return Err(not_theirs("says more than there is room for in it"));
        }
        all.insert((path, name), said);
    }
    Ok(all)
}

/// Opens it, if it has their table, which is made of rows alone.
fn open(path: &Path, how: OpenFlags) -> Result<Connection, Error> {
    let mut connection = database::connect(path, how)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed)?;
    let begun = Instant::now();
    connection.progress_handler(STEPS, Some(move || begun.elapsed() > PATIENCE)).map_err(failed)?;
    let sql = "SELECT sql FROM sqlite_schema WHERE name = 'files' AND type = 'table' AND rootpage > 0";
    let made: Option<String> = connection.query_row(sql, [], |row| row.get(0)).optional().map_err(failed)?;
    let Some(made) = made else { return Err(not_theirs("has no table \"files\"")) };
    // Columns that are computed could take any time.
    let made = made.to_ascii_uppercase();
    if made.split(|letter: char| !letter.is_ascii_alphanumeric()).any(|word| matches!(word, "GENERATED" | "AS")) {
        return Err(not_theirs("has a table \"files\" that is computed"));
    }
    Ok(connection)
}

fn not_theirs(what: &str) -> Error {
    let what = format!("{NAME} {what}: it is not of ratarmount. Without it, the files beside it are taken over");
    io::Error::new(io::ErrorKind::InvalidData, what).into()
}

/// Something that lies in a folder of theirs.
struct Met<'m> {
    /// The folder, and its number and path in the overlay.
    open: &'m OwnedFd,
    folder: u64,
    path: &'m [u8],
    name: &'m [u8],
    stat: Stat,
    /// What is below of that name.
    below: Option<Attributes>,
    said: Said,
}

struct Import<'a, 'b> {
    overlay: &'a Overlay,
    editing: &'a Editing<'b>,
    said: All,
    /// Numbers of files that have several names.
    links: HashMap<(u64, u64), u64>,
    unusable: &'a RefCell<Vec<Unusable>>,
    count: u64,
}

impl Import<'_, '_> {
    /// What lies in a folder: its number, its path, what is below.
    fn folder(&mut self, open: &OwnedFd, id: u64, path: &[u8], lower: Option<Node>, depth: usize) -> Result<(), Error> {
        for entry in Dir::read_from(open)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || (path.is_empty() && is_ours(name)) {
                continue;
            }
            let stat = statat(open, name, AtFlags::SYMLINK_NOFOLLOW)?;
            self.note_unusable(&join(path, name), &stat);
            let below = lower.map_or(Ok(None), |lower| self.below(lower, name))?;
            let said = self.said.remove(&(path.to_vec(), name.to_vec())).unwrap_or_default();
            let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            let (child, stands_for) = self.entry(&Met { open, folder: id, path, name, stat, below, said })?;
            self.count += 1;
            if let Some(node) = stands_for {
                self.editing.meet(node, child);
            }
            if is_folder {
                let place = join(path, name);
                if depth == DEEPEST {
                    let name = tarnfs_format::name::escape(&place).to_string();
                    log::warn!("{name}: what lies in it is not taken over, as it is {DEEPEST} folders deep");
                    continue;
                }
                let inner = self.open_folder(open, name)?;
                self.folder(&inner, child, &place, stands_for, depth + 1)?;
            }
        }
        Ok(())
    }

    /// What is below of a name. Older versions cannot be changed: what was written there is shown as what it is.
    fn below(&self, lower: Node, name: &[u8]) -> Result<Option<Attributes>, Error> {
        match self.overlay.lower.lookup(lower, name) {
            Ok(found) if self.overlay.lower.is_of_versions(found.node) => {
                self.overlay.lower.forget(found.node, 1);
                Ok(None)
            }
            Ok(found) => Ok(Some(found)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn note_unusable(&self, place: &[u8], stat: &Stat) {
        let mode = Mode::from_raw_mode(stat.st_mode);
        let needed = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Mode::RUSR | Mode::WUSR,
            FileType::Directory => Mode::RWXU,
            _ => return,
        };
        if !mode.contains(needed) {
            self.unusable.borrow_mut().push(Unusable { place: place.to_vec(), mode, was_needed: false });
        }
    }

    /// Opens the folder of which something was noted last.
    fn open_folder(&self, folder: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut unusable = self.unusable.borrow_mut();
        match (openat(folder, name, flags, Mode::empty()), unusable.last_mut()) {
            (Err(Errno::ACCESS), Some(last)) if last.place.ends_with(name) => {
                self.overlay.files.make_usable(&last.place)?;
                last.was_needed = true;
                Ok(openat(folder, name, flags, Mode::empty())?)
            }
            (opened, _) => Ok(opened?),
        }
    }

    /// One of them. Returns its number, and the node of what is below that it stands for.
    fn entry(&mut self, met: &Met<'_>) -> Result<(u64, Option<Node>), Error> {
        let &Met { open, folder, path, name, ref stat, ref below, ref said } = met;
        let kind = kind(stat);
        let number = (stat.st_dev, stat.st_ino);
        if kind != Kind::Folder
            && let Some(&id) = self.links.get(&number)
        {
            let mut row = self.editing.node(id)?;
            row.links = row.links.saturating_add(1);
            rows::put_node(self.editing.connection, &row)?;
            self.editing.put_name(folder, name, Some(id), below.is_some())?;
            return Ok((id, None));
        }
        // What was written over a file that has other names below is one of its own.
        let same = below.as_ref().filter(|below| below.kind == kind && (kind == Kind::Folder || below.links <= 1));
        let written = attributes(stat, kind);
        // ratarmount does not keep what the archive says of mode and owner, but for what was changed.
        let base = match same {
            Some(below) if kind == Kind::Folder => below.clone(),
            Some(below) => Attributes { mode: below.mode, uid: below.uid, gid: below.gid, ..written },
            None => written,
        };
        let place = join(path, name);
        let mut row = NodeRow {
            target: if kind == Kind::Symlink { readlinkat(open, name, Vec::new())?.into_bytes() } else { Vec::new() },
            lower: same.map(|_| place.clone()),
            place: matches!(kind, Kind::File | Kind::Folder).then_some(place),
            changed: if same.is_some() && kind != Kind::Folder { changed::CONTENT } else { 0 },
            ..of(&base)
        };
        if kind != Kind::Folder || same.is_none() {
            row.links = 1;
        }
        Self::say(&mut row, said);
        row.id = rows::put_node(self.editing.connection, &row)?;
        if let Some(below) = same {
            for (name, value) in self.overlay.lower.xattrs(below.node)? {
                if !name.starts_with(crate::hashes::PREFIX.as_bytes()) || kind == Kind::Folder {
                    rows::put_xattr(self.editing.connection, row.id, &name, Some(&value))?;
                }
            }
        }
        if stat.st_nlink > 1 && kind != Kind::Folder {
            self.links.insert(number, row.id);
        }
        self.editing.put_name(folder, name, Some(row.id), below.is_some())?;
        Ok((row.id, same.map(|below| below.node)))
    }

    fn say(row: &mut NodeRow, said: &Said) {
        let is_said = said.mode.or(said.uid).or(said.gid).is_some() || said.mtime.is_some();
        row.mode = said.mode.unwrap_or(row.mode);
        row.uid = said.uid.unwrap_or(row.uid);
        row.gid = said.gid.unwrap_or(row.gid);
        if row.place.is_none() || row.kind == Kind::Folder {
            row.mtime = said.mtime.unwrap_or(row.mtime);
        }
        if is_said && row.lower.is_some() {
            row.changed |= changed::ATTRIBUTES;
            if said.mtime.is_some() {
                row.changed |= changed::TIMES;
            }
        }
    }

    /// What is said of what was not written: that it is removed, or has other attributes.
    fn others(&mut self) -> Result<(), Error> {
        // A folder before what is in it: of one that was removed nothing is left.
        let mut all: Vec<_> = std::mem::take(&mut self.said).into_iter().collect();
        all.sort_by(|(left, _), (right, _)| left.cmp(right));
        for ((path, name), said) in all {
            let found = if name.is_empty() { Ok(None) } else { self.touch_path(&path) };
            match found {
                Ok(Some((folder, lower))) => {
                    let Some(lower) = lower else { continue };
                    if rows::name(self.editing.connection, folder, &name)? != rows::Said::Nothing {
                        continue;
                    }
                    let Some(below) = self.below(lower, &name)? else { continue };
                    self.count += 1;
                    if said.is_deleted {
                        self.editing.put_name(folder, &name, None, true)?;
                        continue;
                    }
                    let prepared = self.overlay.prepare_one(below.node, lower, &name, true)?;
                    let id = match self.editing.id(below.node) {
                        Some(id) => id,
                        None => self.editing.touch_one(&prepared)?,
                    };
                    let mut row = self.editing.node(id)?;
                    Self::say(&mut row, &said);
                    rows::put_node(self.editing.connection, &row)?;
                }
                Ok(None) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The number of the folder at a path, and what is below of it.
    fn touch_path(&self, path: &[u8]) -> Result<Option<(u64, Option<Node>)>, Error> {
        let (mut id, mut lower) = (ROOT, Some(Node::ROOT));
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            let below = match lower.map_or(Ok(None), |lower| self.below(lower, name)) {
                Err(Error::NotAFolder) => None,
                found => found?,
            };
            id = match (rows::name(self.editing.connection, id, name)?, &below, lower) {
                (rows::Said::Node(child), _, _) => child,
                (rows::Said::Nothing, Some(below), Some(lower)) => {
                    self.editing.touch_one(&self.overlay.prepare_one(below.node, lower, name, true)?)?
                }
                _ => return Ok(None),
            };
            let row = self.editing.node(id)?;
            if row.kind != Kind::Folder {
                return Ok(None);
            }
            lower = below.filter(|_| row.lower.is_some()).map(|below| below.node);
        }
        Ok(Some((id, lower)))
    }
}

fn kind(stat: &Stat) -> Kind {
    let device = Device { major: rustix::fs::major(stat.st_rdev), minor: rustix::fs::minor(stat.st_rdev) };
    folder::kind(FileType::from_raw_mode(stat.st_mode), device)
}

fn attributes(stat: &Stat, kind: Kind) -> Attributes {
    let [atime, mtime, ctime] = times(stat);
    Attributes {
        node: Node(0),
        kind,
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        links: 1,
        size: 0,
        blocks: 0,
        mtime,
        atime,
        ctime,
    }
}
