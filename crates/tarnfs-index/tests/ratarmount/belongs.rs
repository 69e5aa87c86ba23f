//! What a sidecar says of its archive is compared with the archive and with the options, and its rows with each other.
//! No ratarmount is needed: tarnfs writes the sidecars, and a test changes them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;
use tarnfs_codec::Dictionaries;
use tarnfs_format::{Device, Kind};
use tarnfs_index::ratarmount::{self, Expected};
use tarnfs_index::{Error, Index, Node, Recursion, SINGLE_FILE, Shape, Swept, trust};
use tarnfs_source::{Cancel, FileSource, Limits, MemorySource, SharedSource};

use crate::support::{own_index, shell};

/// An archive and its sidecar.
struct Made {
    _folder: tempfile::TempDir,
    archive: PathBuf,
    sidecar: PathBuf,
    written: Vec<u8>,
}

impl Made {
    fn new(name: &str, script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        shell(folder.path(), script);
        let (archive, sidecar) = (folder.path().join(name), folder.path().join("sidecar"));
        ratarmount::write(&own_index(&archive, &Shape::default()).0, &archive, &sidecar).unwrap();
        let written = std::fs::read(&sidecar).unwrap();
        Self { _folder: folder, archive, sidecar, written }
    }

    /// A folder with a file, and a file beside it.
    fn plain() -> Self {
        Self::new("a.tar", "mkdir d; echo in > d/f; echo other > g; tar -H ustar -cf a.tar d g")
    }

    fn open_as(&self, shape: Shape, verify_mtime: bool) -> Result<Arc<dyn Index>, Error> {
        let file = Arc::new(FileSource::open(&self.archive)?);
        let expected = Expected {
            modified: file.identity().modified as i64,
            source: file,
            verify_mtime,
            shape,
            limits: Limits::default(),
            dictionaries: Dictionaries::default(),
            cancel: Cancel::default(),
        };
        ratarmount::open(trust::open(&self.sidecar, None, false)?, &expected)
    }

    fn open(&self) -> Result<Arc<dyn Index>, Error> {
        self.open_as(Shape::default(), true)
    }

    /// The sidecar as it was written, but for this.
    fn change(&self, sql: &str) {
        std::fs::write(&self.sidecar, &self.written).unwrap();
        let connection = Connection::open(&self.sidecar).unwrap();
        connection.execute_batch(sql).unwrap();
    }

    fn changed(&self, sql: &str) -> Arc<dyn Index> {
        self.change(sql);
        self.open().unwrap()
    }
}

/// The kind of error, and what it says.
fn told<T>(result: Result<T, Error>) -> (&'static str, String) {
    match result.map(drop) {
        Ok(()) => ("used", String::new()),
        Err(Error::Stale(what)) => ("stale", what),
        Err(Error::OtherOptions(what)) => ("options", what),
        Err(Error::Unknown(what)) => ("unknown", what),
        Err(Error::Foreign(what)) => ("foreign", what),
        Err(Error::Broken(what)) => ("broken", what),
        Err(error) => panic!("{error}"),
    }
}

fn assert_told<T>(result: Result<T, Error>, expected: (&str, &str), of: &str) {
    let (kind, what) = told(result);
    assert!(kind == expected.0 && what.contains(expected.1), "{of}: {kind}: {what}");
}

#[test]
fn options_are_those_that_it_was_made_with() {
    let made = Made::plain();
    let pair = Some(("a".to_owned(), "b".to_owned()));
    let list = |item: &str| vec![item.to_owned()];
    let plain = Shape::default;
    for (shape, expected) in [
        (plain(), ("used", "")),
        (Shape { gnu_incremental: Some(false), ..plain() }, ("used", "")),
        (Shape { encoding: Some("UTF_8".to_owned()), ..plain() }, ("used", "")),
        (Shape { gnu_incremental: Some(true), ..plain() }, ("options", "`gnu-incremental`")),
        (Shape { encoding: Some("latin1".to_owned()), ..plain() }, ("options", "from utf-8")),
        (Shape { ignore_zeros: true, ..plain() }, ("options", "`ignore-zeros`")),
        (Shape { transform: pair, ..plain() }, ("options", "without `transform`")),
        (Shape { hashes: list("md5"), ..plain() }, ("options", "hashes")),
        (Shape { backends: list("zip"), ..plain() }, ("options", "`use-backend`")),
        (Shape { recursion: Some(Recursion::default()), ..plain() }, ("options", "archives in the archive")),
    ] {
        let of = shape.to_string();
        assert_told(made.open_as(shape, true), expected, &of);
    }
    let set = |key: &str, path: &str, value: &str| {
        format!("UPDATE metadata SET value = json_set(value, '$.{path}', {value}) WHERE key = '{key}'")
    };
    let istar = "UPDATE files SET istar = 1 WHERE name = 'g'; ";
    for (sql, expected) in [
        (set("arguments", "encoding", "'latin1'"), ("options", "from latin1")),
        (set("arguments", "encoding", "'UTF8'"), ("used", "")),
        (set("arguments", "ignoreZeros", "json('true')"), ("options", "`ignore-zeros`")),
        (set("arguments", "transformPattern", "'x'"), ("options", "with `transform`")),
        (set("arguments", "transformPattern", "NULL"), ("used", "")),
        (set("tarstats", "st_size", "5"), ("stale", "length was 5")),
        (set("tarstats", "st_mtime_ns", "5"), ("stale", "changed since")),
        (istar.to_owned(), ("used", "")),
        (format!("{istar}{}", set("arguments", "mountRecursively", "json('true')")), ("options", "`recursive`")),
        (set("arguments", "mountRecursively", "json('true')"), ("used", "")),
        (format!("{istar} DELETE FROM metadata WHERE key = 'arguments'"), ("options", "`recursive`")),
        ("UPDATE metadata SET value = 'Zip' WHERE key = 'backendName'".to_owned(), ("foreign", "backend Zip")),
        ("DELETE FROM metadata WHERE key = 'backendName'".to_owned(), ("unknown", "by which backend")),
        ("DELETE FROM metadata WHERE key = 'tarstats'".to_owned(), ("stale", "of which archive")),
        ("UPDATE metadata SET value = '{' WHERE key = 'tarstats'".to_owned(), ("broken", "metadata tarstats")),
    ] {
        made.change(&sql);
        assert_told(made.open(), expected, &sql);
    }
    // Of a time nobody asks for, it is said what it was.
    made.change(&set("tarstats", "st_mtime_ns", "5"));
    assert_eq!(made.open_as(Shape::default(), false).unwrap().summary().archive.modified, 5);
    // Before ratarmount 1.3, in seconds alone.
    let tarstats = "json_set(json_remove(value, '$.st_mtime_ns'), '$.st_mtime', 5.5)";
    made.change(&format!("UPDATE metadata SET value = {tarstats} WHERE key = 'tarstats'"));
    assert_told(made.open(), ("stale", "changed since"), "another time");
    assert_eq!(made.open_as(Shape::default(), false).unwrap().summary().archive.modified, 5_500_000_000);
    for value in ["1", "True", "true"] {
        made.change(&format!("UPDATE metadata SET value = '{value}' WHERE key = 'isGnuIncremental'"));
        let wanted = |wanted| made.open_as(Shape { gnu_incremental: wanted, ..Shape::default() }, true);
        assert_told(wanted(Some(false)), ("options", "`gnu-incremental`"), value);
        assert_told(wanted(Some(true)), ("used", ""), value);
        assert_told(wanted(None), ("used", ""), value);
    }
}

#[test]
fn its_tables_are_those_of_a_version_that_is_known() {
    let made = Made::plain();
    let files = "DROP VIEW xattrs; ALTER TABLE files RENAME TO old;";
    let columns = "path, name, offsetheader, offset, size, mtime, mode, type, linkname, uid, gid, istar, issparse, \
                   isgenerated, recursiondepth";
    for (sql, expected) in [
        ("UPDATE versions SET minor = 5 WHERE name = 'index'".to_owned(), ("used", "")),
        ("UPDATE versions SET minor = 4 WHERE name = 'index'".to_owned(), ("unknown", "schema 0.4")),
        ("UPDATE versions SET minor = 8 WHERE name = 'index'".to_owned(), ("unknown", "schema 0.8")),
        ("UPDATE versions SET major = 1 WHERE name = 'index'".to_owned(), ("unknown", "schema 1.7")),
        ("UPDATE versions SET major = NULL WHERE name = 'index'".to_owned(), ("unknown", "schema -1.7")),
        ("DELETE FROM versions WHERE name = 'index'".to_owned(), ("unknown", "which schema")),
        ("DROP TABLE metadata".to_owned(), ("unknown", "no table metadata")),
        ("DROP TABLE versions".to_owned(), ("unknown", "no table versions")),
        ("CREATE TABLE parentfolders (path)".to_owned(), ("broken", "not finished")),
        ("CREATE TABLE filestmp (path)".to_owned(), ("broken", "not finished")),
        (format!("{files} CREATE VIEW files AS SELECT * FROM old"), ("broken", "files is a view")),
        (format!("{files} CREATE TABLE files AS SELECT * FROM old; DROP TABLE old"), ("broken", "no key")),
        (
            format!(
                "{files} CREATE TABLE files ({columns}, PRIMARY KEY (name, path, offsetheader)); \
                 INSERT INTO files SELECT {columns} FROM old; DROP TABLE old"
            ),
            ("broken", "no key"),
        ),
        ("ALTER TABLE files DROP COLUMN uid".to_owned(), ("broken", "no column uid")),
        // Older ones have no such column.
        ("ALTER TABLE files DROP COLUMN isgenerated".to_owned(), ("used", "")),
    ] {
        made.change(&sql);
        assert_told(made.open(), expected, &sql);
    }
}

/// Writes the archive anew, as old as it was.
fn write_as_old(archive: &Path, bytes: &[u8]) {
    let time = std::fs::metadata(archive).unwrap().modified().unwrap();
    std::fs::write(archive, bytes).unwrap();
    std::fs::File::options().write(true).open(archive).unwrap().set_modified(time).unwrap();
}

#[test]
fn headers_are_where_it_says() {
    let made = Made::plain();
    let whole = std::fs::read(&made.archive).unwrap();
    // The folder, the file in it, the other file, and nothing from byte 2560 on.
    assert_eq!((&whole[..3], &whole[512..516], &whole[1536..1538]), (&b"d/\0"[..], &b"d/f\0"[..], &b"g\0"[..]));
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        assert_eq!(bytes.len(), whole.len());
        write_as_old(&made.archive, &bytes);
        made.open()
    };
    assert_told(changed(&|_| ()), ("used", ""), "as it was");
    for (of, at) in [("the folder", 0), ("the file in it", 512), ("the last file", 1536)] {
        assert_told(changed(&|bytes| bytes[at..at + 512].fill(0)), ("stale", ""), of);
        // A header that is right, with another name.
        let other = |bytes: &mut Vec<u8>| {
            bytes[at] += 1;
            let sum = u32::from_str_radix(std::str::from_utf8(&bytes[at + 148..at + 154]).unwrap(), 8).unwrap();
            bytes[at + 148..at + 154].copy_from_slice(format!("{:06o}", sum + 1).as_bytes());
        };
        assert_told(changed(&other), ("stale", "no longer the header"), of);
    }
    // What was appended may fit into the zeros behind the last entry.
    assert_told(changed(&|bytes| bytes.copy_within(1536..2048, 2560)), ("stale", "more than it says"), "appended");
    assert_told(changed(&|bytes| bytes[3071] = 1), ("stale", "more than it says"), "the last byte of a block");
    assert_told(changed(&|bytes| bytes[3072] = 1), ("used", ""), "behind that block");
}

/// Names of what `folder` lists from there on, and their numbers.
fn names(index: &dyn Index, folder: Node, from: u64) -> Result<Vec<(u64, String)>, Error> {
    let mut names = Vec::new();
    index.children(folder, from, &mut |next, name, _| {
        names.push((next, String::from_utf8(name.to_vec()).unwrap()));
        true
    })?;
    Ok(names)
}

#[test]
fn nodes_are_rows_and_folders_are_theirs() {
    let made = Made::plain();
    let index = made.open().unwrap();
    let found = |name: &[u8]| index.lookup(Node::ROOT, name).unwrap();
    let (d, g) = (found(b"d").unwrap(), found(b"g").unwrap());
    assert_eq!((d.kind, g.kind, g.size, g.links), (Kind::Folder, Kind::File, 6, 1));
    assert!(found(b"").is_none() && found(b"\xff").is_none() && found(b"none").is_none());
    let all = names(&*index, Node::ROOT, 0).unwrap();
    assert_eq!(all.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>(), ["d", "g"]);
    assert_eq!(names(&*index, Node::ROOT, all[0].0).unwrap(), all[1..]);
    // Behind the last one, a row of another folder, numbers that are none.
    let in_d = names(&*index, d.node, 0).unwrap();
    for from in [all[1].0, in_d[0].0, 1 << 40, i64::MAX as u64, u64::MAX] {
        assert_eq!(names(&*index, Node::ROOT, from).unwrap(), [], "{from}");
    }
    assert_eq!((index.parent(Node::ROOT).unwrap(), index.parent(d.node).unwrap()), (Node::ROOT, Node::ROOT));
    assert_eq!(index.named_row(d.node).unwrap().map(|(row, name)| (row.node, name)), Some((d.node, b"d".to_vec())));
    assert!(index.row(Node(1 << 40)).unwrap().is_none() && index.named_row(Node(1 << 40)).unwrap().is_none());
    assert!(index.link(Node(1 << 40)).is_err() && index.parent(Node(1 << 40)).is_err());
    assert_told(names(&*index, g.node, 0), ("broken", "not a folder"), "a file");
    assert_told(names(&*index, Node(1 << 40), 0), ("broken", "no node"), "nothing");
    assert_told(Arc::clone(&index).chunks(0), ("broken", "no layer"), "not compressed");
    // A number that goes with the file, and with no other.
    let numbering = index.numbering();
    assert!(numbering % 2 == 1 && made.open().unwrap().numbering() == numbering);
    assert_ne!(Made::plain().open().unwrap().numbering(), numbering);
    // A folder that lies in none.
    let index = made.changed("UPDATE files SET path = '/gone' WHERE name = 'd'");
    assert_told(index.parent(d.node), ("broken", "in no folder"), "gone");
    // Names that are no component.
    for name in ["..", ".", "a/b", "", &"n".repeat(256)] {
        let sql = format!("UPDATE files SET name = '{name}', offsetheader = NULL WHERE name = 'd'");
        let index = made.changed(&sql);
        assert_eq!(names(&*index, Node::ROOT, 0).unwrap().len(), 1, "{name}");
        assert!(index.lookup(Node::ROOT, name.as_bytes()).unwrap().is_none(), "{name}");
    }
    // Content begins in the stream.
    let length = std::fs::metadata(&made.archive).unwrap().len();
    for (offset, expected) in [(length, ("used", "")), (length + 1, ("broken", "begins at byte"))] {
        let index = made.changed(&format!("UPDATE files SET offset = {offset} WHERE name = 'g'"));
        assert_told(index.lookup(Node::ROOT, b"g"), expected, &offset.to_string());
        assert_told(index.row(g.node), expected, &offset.to_string());
    }
}

#[test]
fn hard_links_lead_on_for_a_while() {
    let made = Made::plain();
    let insert = |name: &str, link: &str| {
        format!("INSERT INTO files SELECT '', '{name}', NULL, 0, 0, 0, 420, x'31', '{link}', 0, 0, 0, 0, 0, 0;")
    };
    // The chain ends with the file itself.
    for (links, is_found) in [(1, true), (127, true), (128, false)] {
        let chain: String = (1..=links)
            .map(|number| {
                insert(&format!("l{number}"), &if number == 1 { "d/f".to_owned() } else { format!("l{}", number - 1) })
            })
            .collect();
        let index = made.changed(&chain);
        let found = index.lookup(Node::ROOT, format!("l{links}").as_bytes()).unwrap();
        assert_eq!(found.map(|row| row.size), is_found.then_some(3), "{links}");
    }
    // To itself, to each other, to a folder, to nothing, to the root, through more of a path than there is.
    for (name, link) in [("one", "one"), ("one", "other"), ("one", "d"), ("one", "none"), ("one", ".."), ("one", "d/g")]
    {
        let index = made.changed(&[insert(name, link), insert("other", "one")].concat());
        assert!(index.lookup(Node::ROOT, name.as_bytes()).unwrap().is_none(), "{link}");
    }
    let index = made.changed(&insert("one", "./d/../d//f"));
    let file = index.lookup(index.lookup(Node::ROOT, b"d").unwrap().unwrap().node, b"f").unwrap();
    assert_eq!(index.lookup(Node::ROOT, b"one").unwrap(), file);
}

#[test]
fn attributes_and_maps_are_bounded_and_compared() {
    let made = Made::new("a.tar", "echo content > f; truncate -s 1M s; echo end >> s; tar --sparse -cf a.tar f s");
    let index = made.open().unwrap();
    let node = |index: &dyn Index, name: &[u8]| index.lookup(Node::ROOT, name).unwrap().unwrap().node;
    let (f, s) = (node(&*index, b"f"), node(&*index, b"s"));
    assert!(!index.summary().has_xattrs && index.xattrs(f).unwrap().is_empty());
    assert_eq!((index.extents(f).unwrap().len(), index.extents(s).unwrap().is_empty()), (0, false));
    assert!(index.knows_extents());
    for (name, value, is_right) in [
        ("user.a", 65_536, true),
        ("user.a", 65_537, false),
        ("", 1, false),
        (&*"n".repeat(255), 1, true),
        (&*"n".repeat(256), 1, false),
        ("system.posix_acl_access", 1, true),
    ] {
        let index = made.changed(&format!(
            "INSERT INTO xattrkeys (name) VALUES ('{name}'); \
             INSERT INTO xattrsdata SELECT offsetheader, (SELECT max(id) FROM xattrkeys), zeroblob({value}) FROM files \
             WHERE name = 'f'"
        ));
        assert_eq!(index.summary().has_acls, name.starts_with("system"), "{name}");
        let rows = [f, s].map(|node| index.row(node).unwrap().unwrap().has_xattrs);
        assert_eq!((index.summary().has_xattrs, rows), (true, [true, false]), "{name}");
        match index.xattrs(f) {
            Ok(found) => {
                assert!(is_right, "{name} {value}");
                assert_eq!(found, [(name.as_bytes().to_vec(), vec![0; value])]);
            }
            Err(error) => assert!(!is_right && error.to_string().contains("too large"), "{name} {value}: {error}"),
        }
        assert!(index.xattrs(s).unwrap().is_empty());
    }
    for (sql, of, expected) in [
        ("UPDATE files SET size = size - 1 WHERE name = 's'", s, "another one"),
        ("UPDATE files SET offset = offset + 1 WHERE name = 's'", s, "another one"),
        ("UPDATE files SET issparse = 1 WHERE name = 'f'", f, "not sparse"),
    ] {
        assert_told(made.changed(sql).extents(of), ("stale", expected), sql);
    }
    // Only a file has a map.
    let index = made.changed("UPDATE files SET mode = 16877 WHERE name = 's'");
    assert!(index.extents(s).unwrap().is_empty());
    let index = made.changed("UPDATE files SET linkname = printf('%.*c', 100000, 'x') WHERE name = 'f'");
    assert_told(index.link(f), ("broken", "too long"), "a long target");
}

/// Through folders, since rows lie in no order; in parts, since a folder may have very many.
#[test]
fn each_row_is_counted_once() {
    let script =
        "mkdir d many; echo in > d/f; ln -s f d/l; for n in $(seq 1500); do : > many/$n; done; tar -cf a.tar d many";
    let made = Made::new("a.tar", script);
    let index = made.open().unwrap();
    let (mut count, mut kinds, mut bytes) = (0, Vec::new(), 0);
    let mut receive = |swept: &Swept<'_>| {
        count += 1;
        bytes += swept.size;
        if matches!(swept.name, b"f" | b"l" | b"d") {
            kinds.push((swept.name.to_vec(), swept.kind));
        }
        assert!(swept.stream == 0 && !swept.is_sparse && swept.pieces.is_none());
        Ok(())
    };
    index.sweep(&mut receive).unwrap();
    kinds.sort_by(|(one, _), (other, _)| one.cmp(other));
    let expected = [(b"d".to_vec(), Kind::Folder), (b"f".to_vec(), Kind::File), (b"l".to_vec(), Kind::Symlink)];
    assert_eq!((count, bytes, kinds.as_slice()), (1504, 3, &expected[..]));
    let mut count = 0;
    let ended = index.sweep(&mut |_| {
        count += 1;
        Err(Error::Missing)
    });
    assert!(matches!(ended, Err(Error::Missing)) && count == 1);
    let mut names = 0;
    index.names(index.lookup(Node::ROOT, b"many").unwrap().unwrap().node, &mut |_| names += 1).unwrap();
    assert_eq!(names, 1500);
}

/// What stands in a sidecar, where there is nothing else.
#[test]
fn without_its_archive_it_says_what_it_has() {
    let alone = |made: &Made| {
        let absent = |length: u64| -> SharedSource { Arc::new(MemorySource::new(vec![0; length as usize], "absent")) };
        ratarmount::open_alone(trust::open(&made.sidecar, None, false).unwrap(), Limits::default(), &absent).unwrap()
    };
    let script = "mkdir d; echo in > d/f; mknod d/null c 1 3 || mkfifo d/null; tar -cf a.tar d";
    let made = Made::new("a.tar", script);
    let length = std::fs::metadata(&made.archive).unwrap().len();
    let with = made.open().unwrap();
    std::fs::remove_file(&made.archive).unwrap();
    let index = alone(&made);
    let summary = index.summary();
    assert_eq!((summary.archive.length, summary.bytes, summary.files), (length, length, with.summary().files));
    assert_eq!(summary.archive.modified, with.summary().archive.modified);
    assert_eq!((summary.format.as_str(), summary.layers.len()), ("tar", 0));
    assert_eq!(summary.shape.gnu_incremental, Some(false));
    let d = index.lookup(Node::ROOT, b"d").unwrap().unwrap().node;
    assert_eq!(index.lookup(d, b"f").unwrap(), with.lookup(d, b"f").unwrap());
    // Its numbers stand in the header alone.
    let kind = index.lookup(d, b"null").unwrap().unwrap().kind;
    assert!(matches!(kind, Kind::Fifo) || kind == Kind::CharacterDevice(Device::default()), "{kind:?}");
    made.change(
        "UPDATE metadata SET value = '1' WHERE key = 'isGnuIncremental'; DELETE FROM metadata WHERE key = 'tarstats'",
    );
    let index = alone(&made);
    assert_eq!((index.summary().archive.length, index.summary().archive.modified), (0, 0));
    assert_eq!(index.summary().shape.gnu_incremental, Some(true));
    let made = Made::new("text.gz", "seq 1000 | gzip > text.gz");
    assert_eq!(alone(&made).summary().format, SINGLE_FILE);
    assert_eq!(made.open().unwrap().summary().format, SINGLE_FILE);
}
