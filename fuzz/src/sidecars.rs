//! Indexes that lie: of a small archive in several compressions, with any bytes in their place or with rows that were
//! changed.

use std::collections::{HashSet, VecDeque};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rusqlite::Connection;
use rusqlite::types::Value;
use tarnfs_codec::engine::{DecodedSource, PieceCache, Workers};
use tarnfs_format::Kind;
use tarnfs_index::{Index, Node, Row, Shape, own, ratarmount as foreign};
use tarnfs_source::{Budget, Cancel, MemorySource, SharedSource};
use tarnfs_tree::open::{DecodingOptions, IndexOptions, IndexPlace, Options};

use super::{check_name, limits};

/// Nodes and rows that are looked at in one index.
const MOST_SEEN: usize = 500;

/// One archive with the indexes that belong to it.
#[derive(Debug)]
pub struct Template {
    /// The suffix of its compression: "gz".
    pub name: &'static str,
    archive: SharedSource,
    /// tarnfs's index of it.
    pub own: Sidecar,
    /// ratarmount's, where that program reads the compression.
    pub foreign: Option<Sidecar>,
}

/// One index file.
#[derive(Debug)]
pub struct Sidecar {
    /// Its bytes.
    pub bytes: Vec<u8>,
    tables: Vec<Table>,
}

/// A table whose rows are changed.
#[derive(Debug)]
struct Table {
    name: String,
    columns: Vec<String>,
    /// What tells its rows apart.
    key: String,
}

/// The archives and their indexes, made once.
pub fn templates() -> &'static [Template] {
    static TEMPLATES: OnceLock<Vec<Template>> = OnceLock::new();
    TEMPLATES.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let compressed: [(_, &[u8]); 5] = [
            ("gz", include_bytes!("../archives/tree.tar.gz")),
            ("bz2", include_bytes!("../archives/tree.tar.bz2")),
            ("xz", include_bytes!("../archives/tree.tar.xz")),
            ("zst", include_bytes!("../archives/tree.tar.zst")),
            ("lz4", include_bytes!("../archives/tree.tar.lz4")),
        ];
        let mut templates: Vec<_> = compressed.map(|(name, bytes)| template(folder.path(), name, bytes)).into();
        let plain = fs::read(folder.path().join("plain")).expect("the first one was decoded");
        templates.push(template(folder.path(), "tar", &plain));
        templates
    })
}

fn template(folder: &Path, name: &'static str, bytes: &[u8]) -> Template {
    let archive = folder.join(format!("tree.{name}"));
    fs::write(&archive, bytes).unwrap();
    let index = folder.join("index");
    let options = Options {
        index: IndexOptions {
            place: IndexPlace::File(index.clone()),
            minimum_file_count: 0,
            is_trusted: true,
            ..IndexOptions::default()
        },
        decoding: DecodingOptions {
            seek_point_spacing: Some(4096),
            threads: 1,
            cache: PieceCache::new(Budget::new(64 << 20)),
            ..DecodingOptions::default()
        },
        ..Options::default()
    };
    let opened = tarnfs_tree::open::open(&archive, &options).unwrap();
    let mut plain = vec![0; opened.stream.len() as usize];
    opened.stream.read_exact_at(&mut plain, 0).unwrap();
    fs::write(folder.join("plain"), plain).unwrap();
    let own = sidecar(&index);
    let foreign = foreign::write(&opened.index, &archive, &index).is_ok().then(|| sidecar(&index));
    assert_eq!(foreign.is_some(), name != "lz4", "{name}");
    let template = Template { name, archive: Arc::new(MemorySource::new(bytes, name)), own, foreign };
    // What is not changed is believed, or nothing behind that point is ever reached.
    own::open_file(file(&template.own.bytes)).unwrap();
    if let Some(foreign) = &template.foreign {
        foreign::open(file(&foreign.bytes), &expected(&template)).unwrap();
    }
    template
}

fn sidecar(path: &Path) -> Sidecar {
    let bytes = fs::read(path).unwrap();
    let connection = Connection::open(path).unwrap();
    let strings = |sql: &str| -> Vec<String> {
        let mut query = connection.prepare(sql).unwrap();
        let rows = query.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let names = strings("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name");
    let table = |name: String| {
        let has_rowid = connection.prepare(&format!("SELECT rowid FROM \"{name}\"")).is_ok();
        let columns = strings(&format!("SELECT '\"' || name || '\"' FROM pragma_table_info('{name}')"));
        let key = strings(&format!("SELECT '\"' || name || '\"' FROM pragma_table_info('{name}') WHERE pk > 0"));
        let key = if has_rowid { "rowid".to_owned() } else { key.join(", ") };
        let is_empty = strings(&format!("SELECT '' FROM \"{name}\" LIMIT 1")).is_empty();
        (!is_empty).then_some(Table { name, columns, key })
    };
    let tables = names.into_iter().filter_map(table).collect();
    fs::remove_file(path).unwrap();
    Sidecar { bytes, tables }
}

fn file(bytes: &[u8]) -> File {
    let mut file: File = rustix::fs::memfd_create("index", rustix::fs::MemfdFlags::CLOEXEC).expect("a file").into();
    file.write_all(bytes).expect("it is in memory");
    file
}

fn expected(template: &Template) -> foreign::Expected {
    foreign::Expected {
        source: Arc::clone(&template.archive),
        modified: 0,
        verify_mtime: false,
        shape: Shape { gnu_incremental: Some(false), ..Shape::default() },
        limits: limits(),
        dictionaries: tarnfs_codec::Dictionaries::default(),
        cancel: Cancel::default(),
    }
}

/// Any bytes as an index of tarnfs; those that are no SQLite file say which bytes of a real one to replace.
pub fn index(data: &[u8]) {
    let patched = patched(data, |template| Some(&template.own));
    let Ok(index) = own::open_file(file(patched.as_deref().unwrap_or(data))) else { return };
    let archive = templates().iter().find(|template| template.archive.len() == index.summary().archive.length);
    walk(&index, archive.map(|template| &template.archive));
}

/// The same as ratarmount's sidecar of each archive.
pub fn ratarmount(data: &[u8]) {
    let patched = patched(data, |template| template.foreign.as_ref());
    for template in templates().iter().filter(|template| template.foreign.is_some()) {
        if let Ok(index) = foreign::open(file(patched.as_deref().unwrap_or(data)), &expected(template)) {
            walk(&index, Some(&template.archive));
        }
    }
}

/// A real index, chosen by the first byte, in which each four bytes that follow replace one: where (24 bits), by what.
fn patched(data: &[u8], choose: impl Fn(&Template) -> Option<&Sidecar>) -> Option<Vec<u8>> {
    let (first, data) = data.split_first().filter(|_| !data.starts_with(b"SQLite"))?;
    let sidecars: Vec<_> = templates().iter().filter_map(choose).collect();
    let mut bytes = sidecars[usize::from(*first) % sidecars.len()].bytes.clone();
    for patch in data.as_chunks::<4>().0 {
        let [high, middle, low, with] = patch.map(usize::from);
        let place = (high << 16 | middle << 8 | low) % bytes.len();
        bytes[place] = with as u8;
    }
    Some(bytes)
}

/// An index of either kind in which values were replaced: `data` says which.
pub fn rows(data: &[u8]) {
    let mut data = Reader(data);
    let first = data.byte();
    let templates = templates();
    let template = &templates[usize::from(first >> 1) % templates.len()];
    let foreign = template.foreign.as_ref().filter(|_| first & 1 == 1);
    let sidecar = foreign.unwrap_or(&template.own);
    let folder = if Path::new("/dev/shm").is_dir() { Path::new("/dev/shm") } else { Path::new("/tmp") };
    let mut changed = tempfile::NamedTempFile::new_in(folder).expect("a scratch file");
    changed.write_all(&sidecar.bytes).expect("there is room");
    {
        let connection = Connection::open(changed.path()).expect("it is an index");
        connection.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN").expect("it is an index");
        while !data.0.is_empty() {
            // Two rows of one key, a blob in a column that takes none: then this change is none.
            let _ = change(&connection, sidecar, &mut data);
        }
        connection.execute_batch("COMMIT").expect("there is room");
    }
    let file = changed.reopen().expect("it is there");
    if foreign.is_some() {
        if let Ok(index) = foreign::open(file, &expected(template)) {
            walk(&index, Some(&template.archive));
        }
    } else if let Ok(index) = own::open_file(file) {
        walk(&index, Some(&template.archive));
    }
}

struct Reader<'data>(&'data [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let (now, later) = self.0.split_at(most.min(self.0.len()));
        self.0 = later;
        now.to_vec()
    }

    fn number(&mut self) -> i64 {
        self.bytes(8).iter().fold(0, |number, byte| number << 8 | i64::from(*byte))
    }
}

/// Replaces one value, or removes one row.
fn change(connection: &Connection, sidecar: &Sidecar, data: &mut Reader<'_>) -> rusqlite::Result<()> {
    let table = &sidecar.tables[usize::from(data.byte()) % sidecar.tables.len()];
    let column = &table.columns[usize::from(data.byte()) % table.columns.len()];
    let (name, key) = (&table.name, &table.key);
    let row = data.byte();
    let which = format!("FROM \"{name}\" LIMIT 1 OFFSET {row} % (SELECT count(*) FROM \"{name}\")");
    let kind = data.byte();
    let old: Value = connection.query_row(&format!("SELECT {column} {which}"), [], |row| row.get(0))?;
    let new = match kind % 10 {
        0 => Value::Integer(data.number()),
        1 => Value::Integer(i64::from(data.byte())),
        2 => Value::Null,
        3 => {
            let length = data.byte();
            Value::Blob(data.bytes(length.into()))
        }
        4 => {
            let length = data.byte();
            Value::Text(String::from_utf8_lossy(&data.bytes(length.into())).into_owned())
        }
        5 => Value::Integer(i64::MAX - i64::from(data.byte())),
        6 => Value::Real(f64::from_bits(data.number() as u64)),
        7 => {
            return connection
                .execute(&format!("DELETE FROM \"{name}\" WHERE ({key}) IN (SELECT {key} {which})"), [])
                .map(drop);
        }
        _ => {
            let (place, with) = (data.number() as usize, data.byte());
            let at = |length: usize| place % length.max(1);
            match old {
                Value::Integer(number) => Value::Integer(number.wrapping_add(i64::from(with as i8))),
                Value::Blob(mut bytes) => {
                    let at = at(bytes.len());
                    bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= with);
                    Value::Blob(bytes)
                }
                Value::Text(text) => {
                    let mut bytes = text.into_bytes();
                    let at = at(bytes.len());
                    bytes.get_mut(at).into_iter().for_each(|byte| *byte = with);
                    Value::Text(String::from_utf8_lossy(&bytes).into_owned())
                }
                other => other,
            }
        }
    };
    let sql = format!("UPDATE \"{name}\" SET {column} = ? WHERE ({key}) IN (SELECT {key} {which})");
    connection.execute(&sql, [new]).map(drop)
}

/// Asks an index everything that it can be asked. What it answers must keep to its contract.
fn walk(index: &Arc<dyn Index>, archive: Option<&SharedSource>) {
    let summary = index.summary().clone();
    let mut open = VecDeque::from([Node::ROOT]);
    let mut seen = HashSet::from([Node::ROOT]);
    let mut rows = 0;
    while let Some(folder) = open.pop_front() {
        let _ = index.parent(folder);
        let mut found = Vec::new();
        let _ = index.children(folder, 0, &mut |_, name, row| {
            rows += 1;
            check_row(name, row);
            found.push((name.to_vec(), row.clone()));
            rows < MOST_SEEN
        });
        for (name, row) in found {
            if let Ok(Some(again)) = index.lookup(folder, &name) {
                check_row(&name, &again);
            }
            ask(&**index, &row);
            if row.kind == Kind::Folder && seen.insert(row.node) && seen.len() < MOST_SEEN {
                open.push_back(row.node);
            }
        }
    }
    for node in [0, 1, 2, 3, 7, 1000, u64::MAX >> 1, u64::MAX].map(Node) {
        if let Ok(Some(row)) = index.row(node) {
            check_row(b"any", &row);
        }
        let _ =
            (index.parent(node), index.link(node), index.xattrs(node), index.extents(node), index.owner_names(node));
    }
    let mut given = 0_usize;
    let _ = index.replaced(&mut |_, name, row| {
        given += 1;
        assert!(given < 1 << 20, "it has an end");
        // The root's is empty.
        check_row(if name.is_empty() { b"root" } else { name }, row);
    });
    let _ = index.hard_links(&mut |_, name, _, _| {
        given += 1;
        assert!(given < 1 << 20, "it has an end");
        check_name(name, &limits());
    });
    let _ = index.damage_in(0..u64::MAX);
    if let Some(archive) = archive {
        read(index, archive, summary.layers.len());
    }
}

fn check_row(name: &[u8], row: &Row) {
    check_name(name, &limits());
    assert!(row.kind != Kind::HardLink && row.mode <= 0o7777, "{row:?}");
    for time in [row.mtime, row.atime, row.ctime] {
        assert!(time.nanoseconds < 1_000_000_000, "{row:?}");
    }
}

fn ask(index: &dyn Index, row: &Row) {
    let _ = (index.row(row.node), index.xattrs(row.node), index.owner_names(row.node), index.link(row.node));
    if let Ok(extents) = index.extents(row.node) {
        let mut end = 0_u64;
        for extent in extents {
            assert!(extent.offset >= end, "extents go forward");
            end = extent.offset.checked_add(extent.length).expect("an extent ends");
        }
        assert!(end <= row.size, "the map ends in the file");
    }
}

/// Reads through the seek points of an index, as a mount does.
fn read(index: &Arc<dyn Index>, archive: &SharedSource, layers: usize) {
    let mut stream = Arc::clone(archive);
    let cache = PieceCache::new(Budget::new(8 << 20));
    for number in 0..layers.min(3) {
        let Some(codec) = tarnfs_codec::by_name(&index.summary().layers[number].codec) else { return };
        let Ok(chunks) = Arc::clone(index).chunks(number) else { return };
        let length = chunks.decoded_length();
        for at in places(length) {
            if let Ok(Some(chunk)) = chunks.chunk_at(at) {
                let in_chunk = at.checked_sub(chunk.point.decoded);
                assert!(in_chunk.is_some_and(|at| at < chunk.length), "byte {at} is in the chunk: {chunk:?}");
            }
            let _ = chunks.damage_in(at..at.saturating_add(10));
        }
        stream = DecodedSource::new(codec, stream, chunks, Arc::clone(&cache), Workers::new(0), limits());
    }
    let mut buffer = vec![0; 3000];
    for at in places(stream.len()) {
        let _ = stream.read_at(&mut buffer, at);
    }
}

fn places(length: u64) -> [u64; 7] {
    [0, 5000, 10_000, 20_000, 40_000, length / 2, length.saturating_sub(1)]
}
