//! Index files that another program made so that one value lies: each is refused where it is read, and by the check
//! that is there for it. Nothing else in these files speaks against them: the archive is not known to be damaged.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    reason = "a test that overflows or finds an error fails"
)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarnfs_codec::{Chunk, Damage, SeekPoint};
use tarnfs_format::{Kind, Piece};
use tarnfs_index::{Destination, Error, Index, Nested, Node, Recursion, Shape, Summary, own};
use tarnfs_source::Extent;

use common::{LENGTH, entry, layered, summary, walk, writer};

/// The file of an index, to be changed.
struct Planted {
    folder: tempfile::TempDir,
    path: PathBuf,
    /// By path, those of folders with a slash behind them.
    nodes: BTreeMap<String, u64>,
}

impl Planted {
    /// `x` and `y` are folders with files, `z` one with hard links. `x/twice` was a folder with a file in it and is a
    /// file. `x/old` and `y/old` are there four times.
    fn new() -> Self {
        Self::with(|_| (), summary())
    }

    fn with(more: impl FnOnce(&mut tarnfs_index::Writer), summary: tarnfs_index::Summary) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let mut writer = writer(64 << 20);
        let mut number = 0;
        let mut add = |kind, path: &str, link: &str| {
            number += 1;
            let mut entry = entry(number, kind, path.as_bytes(), link.as_bytes());
            if path == "x/sparse" {
                entry.body.size = 1000;
                entry.body.stored = 30;
                entry.body.extents = Some(vec![Extent { offset: 10, length: 30, skip: 0 }]);
            }
            writer.add(&entry).unwrap();
        };
        for path in ["x/", "y/", "z/", "x/twice/", "y/zone/"] {
            add(Kind::Folder, path, "");
        }
        for path in ["x/a", "x/b", "x/c", "x/sparse", "x/twice/in", "y/a", "y/zone/in"] {
            add(Kind::File, path, "");
        }
        add(Kind::File, "x/twice", "");
        for _ in 0..4 {
            add(Kind::File, "x/old", "");
            add(Kind::File, "y/old", "");
        }
        for name in 0..8 {
            add(Kind::HardLink, &format!("z/link{name}"), "x/a");
        }
        more(&mut writer);
        writer.finish(summary, &Destination::File(path.clone())).unwrap();
        let nodes = nodes_of(&path);
        Self { folder, path, nodes }
    }

    /// Runs a statement in which `{PATH}` stands for the node of that path.
    fn change(&self, statement: &str) {
        let mut statement = statement.to_owned();
        for (path, node) in &self.nodes {
            statement = statement.replace(&format!("{{{path}}}"), &node.to_string());
        }
        rusqlite::Connection::open(&self.path).unwrap().execute_batch(&statement).unwrap();
    }

    fn node(&self, path: &str) -> Node {
        Node(*self.nodes.get(path).unwrap())
    }

    fn open(&self) -> Result<Arc<dyn Index>, Error> {
        own::open(&self.path, None, false)
    }

    fn write(&self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(&self.path).unwrap();
        change(&mut bytes);
        fs::write(&self.path, bytes).unwrap();
    }
}

/// The row of each path; those of folders end with a slash, and that of the root is only that.
fn nodes_of(path: &Path) -> BTreeMap<String, u64> {
    let connection = rusqlite::Connection::open(path).unwrap();
    let mut query = connection
        .prepare(
            "SELECT folder.node, entry.rowid, entry.name, EXISTS (SELECT 1 FROM folders WHERE node = entry.rowid) \
             FROM folders folder JOIN entries entry \
             ON entry.rowid >= folder.first AND entry.rowid < folder.first + folder.count ORDER BY entry.rowid",
        )
        .unwrap();
    let mut folders = BTreeMap::from([(1, "/".to_owned())]);
    let mut nodes = BTreeMap::from([("/".to_owned(), 1)]);
    let mut rows = query.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let [folder, node] = [0, 1].map(|column| row.get::<_, i64>(column).unwrap() as u64);
        let name = String::from_utf8(row.get(2).unwrap()).unwrap();
        let mut path = format!("{}{name}", folders[&folder].trim_start_matches('/'));
        if row.get(3).unwrap() {
            path.push('/');
            folders.insert(node, path.clone());
        }
        nodes.insert(path, node);
    }
    nodes
}

/// What is wrong, in the words of whoever refused it.
fn why<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result.unwrap_err() {
        Error::Broken(what) => what,
        other => panic!("{other:?}"),
    }
}

/// Two rows of a table, by their places in it, change places. SQLite reads what it finds, in the order in which it
/// finds it: so no table can be trusted to be in the order of its key.
fn swap(bytes: &mut [u8], page: usize, one: usize, other: usize) {
    assert_eq!(bytes[page], 13, "a page of the rows of a table");
    let pointer = |place: usize| page + 8 + 2 * place;
    for byte in 0..2 {
        bytes.swap(pointer(one) + byte, pointer(other) + byte);
    }
}

impl Planted {
    fn swap(&self, table: &str, one: usize, other: usize) {
        let connection = rusqlite::Connection::open(&self.path).unwrap();
        let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?";
        let page: i64 = connection.query_row(sql, [table], |row| row.get(0)).unwrap();
        drop(connection);
        self.write(|bytes| swap(bytes, (page as usize - 1) * 4096, one, other));
    }
}

#[test]
fn an_index_says_how_it_is_stored_and_how_long_it_is() {
    // Write-ahead logs (18 and 19), and bytes that are kept free in each page.
    for (at, value) in [(18, 2), (19, 2), (20, 8)] {
        let planted = Planted::new();
        planted.write(|bytes| bytes[at] = value);
        assert!(why(planted.open()).contains("its pages are not those"), "byte {at}");
    }
    for change in
        [|bytes: &mut Vec<u8>| bytes.extend([0; 4096]), |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() - 4096)]
    {
        let planted = Planted::new();
        planted.write(change);
        assert!(why(planted.open()).contains("says otherwise"));
    }
    // Of other pages than ours: the largest of SQLite are 65 536 bytes, which it says with a 1.
    for size in [512, 1024, 65_536] {
        let planted = Planted::new();
        let expected = walk(&*planted.open().unwrap()).unwrap();
        planted.change(&format!("PRAGMA page_size = {size}; VACUUM"));
        planted.write(|bytes| assert_eq!(bytes.len() % size, 0));
        assert_eq!(walk(&*planted.open().unwrap()).unwrap(), expected, "pages of {size}");
    }
}

/// Then another one is made; what cannot be read is another matter.
#[test]
fn a_file_that_is_too_short_is_no_index() {
    let planted = Planted::new();
    for length in [0, 1, 16, 50, 72] {
        planted.write(|bytes| bytes.truncate(length));
        let opened = planted.open();
        assert!(matches!(&opened, Err(Error::Unknown(why)) if why.contains("too short")), "{length}: {opened:?}");
        let whole = Planted::new();
        fs::copy(&whole.path, &planted.path).unwrap();
    }
    planted.open().unwrap();
}

#[test]
fn the_root_is_a_folder() {
    let planted = Planted::new();
    planted.change(
        "UPDATE entries SET class = (SELECT class FROM entries WHERE rowid = {x/a}), header = 0 WHERE rowid = 1",
    );
    assert!(why(planted.open()).contains("no root"));
}

#[test]
fn a_name_is_there_once_or_as_a_folder_behind_something_else() {
    let planted = Planted::new();
    let x = planted.node("x/");
    // A file, then a folder and what shows in its place: all of one name.
    assert_eq!(planted.node("x/twice/").0 + 1, planted.node("x/twice").0);
    planted.change("UPDATE entries SET name = CAST('twice' AS BLOB) WHERE rowid = {x/twice/} - 1");
    let index = planted.open().unwrap();
    assert!(why(index.lookup(x, b"twice")).contains("three times"));
    assert!(why(index.children(x, 0, &mut |_, _, _| true)).contains("twice"));
    // Of two, the first must be a folder, and the second must not.
    for (first, second) in [("x/a", "x/b"), ("x/b", "x/c")] {
        let planted = Planted::new();
        planted.change(&format!(
            "UPDATE entries SET name = (SELECT name FROM entries WHERE rowid = {{{first}}}) WHERE rowid = {{{second}}}"
        ));
        let index = planted.open().unwrap();
        let name = first.strip_prefix("x/").unwrap();
        assert!(why(index.lookup(x, name.as_bytes())).contains("twice"));
        assert!(why(index.children(x, 0, &mut |_, _, _| true)).contains("twice"));
    }
    let planted = Planted::new();
    planted.change("UPDATE entries SET name = CAST('x' AS BLOB) WHERE rowid = {y/}");
    let index = planted.open().unwrap();
    assert!(why(index.lookup(Node::ROOT, b"x")).contains("twice"), "two folders");
}

#[test]
fn a_folder_has_all_of_its_children() {
    let planted = Planted::new();
    let (x, y) = (planted.node("x/"), planted.node("y/"));
    // The last one of a folder that is not the last folder.
    let of_x = |path: &str| path.strip_prefix("x/").is_some_and(|name| !name.trim_end_matches('/').contains('/'));
    let last = *planted.nodes.iter().filter(|(path, _)| of_x(path)).map(|(_, node)| node).max().unwrap();
    assert!(planted.nodes.values().any(|&node| node > last));
    planted.change(&format!("DELETE FROM entries WHERE rowid = {last}"));
    let index = planted.open().unwrap();
    let mut seen = 0;
    let result = index.children(x, 0, &mut |_, _, _| {
        seen += 1;
        true
    });
    assert!(why(result).contains("missing"));
    assert_eq!(seen, 0);
    assert!(why(index.names(x, &mut |_| {})).contains("missing"));
    assert!(index.children(y, 0, &mut |_, _, _| true).is_ok());
}

#[test]
fn a_folder_is_found_in_its_own_one_only() {
    let planted = Planted::new();
    let y = planted.node("y/");
    planted.change("UPDATE folders SET parent = {x/} WHERE node = {y/zone/}");
    let index = planted.open().unwrap();
    assert!(why(index.lookup(y, b"zone")).contains("another folder"));
    assert!(why(index.children(y, 0, &mut |_, _, _| true)).contains("another folder"));
    // A row that says that it is a folder, and no folder of that number.
    let planted = Planted::new();
    planted.change("DELETE FROM folders WHERE node = {y/zone/}");
    let index = planted.open().unwrap();
    assert!(why(index.lookup(y, b"zone")).contains("another folder"));
    assert!(why(index.row(planted.node("y/zone/"))).contains("another folder"));
    // What a replaced folder has in it lies in one of that name.
    let planted = Planted::new();
    planted.change(
        "INSERT INTO replaced SELECT (SELECT max(node) FROM replaced) + 1, {y/}, name, class, header, size, mtime \
         FROM entries WHERE rowid = {y/zone/}",
    );
    let index = planted.open().unwrap();
    let mut found = Vec::new();
    index
        .replaced_of(y, b"zone", 0, &mut |_, row| {
            found.push(row.node);
            true
        })
        .unwrap();
    assert_eq!(found, [planted.node("y/zone/")]);
    planted.change("UPDATE folders SET parent = {x/} WHERE node = {y/zone/}");
    let index = planted.open().unwrap();
    assert!(why(index.replaced_of(y, b"zone", 0, &mut |_, _| true)).contains("another folder"));
}

#[test]
fn a_folder_lies_between_its_parent_and_its_children() {
    for (what, is_right) in [
        ("parent = parent", true),
        ("parent = 1", true),
        ("parent = 0", false),
        ("parent = -1", false),
        ("parent = node", false),
        ("parent = node + 1", false),
        ("first = node, count = 1, subfolders = 1", false),
        ("first = node, count = 0, subfolders = 0", true),
        ("first = node + 1, count = 1", true),
        ("first = node - 1, count = 1", false),
        ("first = (SELECT max(rowid) FROM entries), count = 1", true),
        ("first = (SELECT max(rowid) FROM entries), count = 2", false),
        ("first = (SELECT max(rowid) FROM entries) + 1, count = 0, subfolders = 0", true),
        ("first = -1, count = 1", false),
        ("first = 9223372036854775807, count = 9223372036854775807", false),
        ("count = -1", false),
        ("subfolders = count", true),
        ("subfolders = count + 1", false),
        ("subfolders = -1", false),
    ] {
        let planted = Planted::new();
        planted.change(&format!("UPDATE folders SET {what} WHERE node = {{y/}}"));
        let index = planted.open().unwrap();
        match index.count(planted.node("y/")) {
            Ok(_) => assert!(is_right, "{what}"),
            Err(Error::Broken(why)) => assert!(!is_right && why.contains("impossible"), "{what}: {why}"),
            Err(error) => panic!("{what}: {error}"),
        }
    }
    // The root is in itself.
    let planted = Planted::new();
    planted.change("UPDATE folders SET parent = {x/} WHERE node = 1");
    assert!(planted.open().is_err());
    let planted = Planted::new();
    planted.change("UPDATE folders SET parent = 0 WHERE node = 1");
    assert!(planted.open().is_err());
}

#[test]
fn content_lies_in_the_archive() {
    let room = LENGTH - (6 << 20) - 512;
    for (size, is_right) in [(room, true), (room + 1, false), (i64::MAX as u64, false)] {
        let planted = Planted::new();
        // The sixth entry of the archive.
        planted.change(&format!("UPDATE entries SET size = {size} WHERE rowid = {{x/a}}"));
        let index = planted.open().unwrap();
        assert_eq!(index.row(planted.node("x/a")).is_ok(), is_right, "{size}");
        if !is_right {
            assert!(why(index.row(planted.node("x/a"))).contains("past the end"));
            // That of an archive that is known to be cut is shown as far as there is any.
            planted.change("UPDATE summary SET value = 1 WHERE key = 'is_cut'");
            assert!(planted.open().unwrap().row(planted.node("x/a")).is_ok());
        }
    }
    // Where it begins is certain nevertheless.
    let planted = Planted::new();
    planted.change(&format!(
        "UPDATE summary SET value = 1 WHERE key = 'is_cut'; UPDATE entries SET header = {} WHERE rowid = {{x/a}}",
        LENGTH / 512
    ));
    assert!(why(planted.open().unwrap().row(planted.node("x/a"))).contains("behind the end"));
    // Only a folder may have no header, and says so in one way.
    for (path, header, is_right) in [("x/a", -1, false), ("x/", -1, true), ("x/", -2, false)] {
        let planted = Planted::new();
        planted.change(&format!("UPDATE entries SET header = {header} WHERE rowid = {{{path}}}"));
        assert_eq!(planted.open().unwrap().row(planted.node(path)).is_ok(), is_right, "{path} {header}");
    }
}

#[test]
fn a_map_of_holes_is_one_of_that_file() {
    let planted = Planted::new();
    planted.change("INSERT INTO extents VALUES ({x/a}, x'0101')");
    assert!(why(planted.open().unwrap().extents(planted.node("x/a"))).contains("no map"));
    assert!(why(planted.open().unwrap().extents(Node(1 << 40))).contains("none"));
    let sparse = planted.node("x/sparse");
    // Hole and length: to the end of the file (1000 bytes), and one byte further.
    for (map, is_right) in
        [("e0071a8001", false), ("ce071a", true), ("cf071a", false), ("ce071b", false), ("0a1e", true)]
    {
        planted.change(&format!("UPDATE extents SET map = x'{map}' WHERE node = {{x/sparse}}"));
        let found = planted.open().unwrap().extents(sparse);
        assert_eq!(found.is_ok(), is_right, "{map}");
        if !is_right {
            assert!(why(found).contains("past its end"), "{map}");
        }
    }
    // A skip of stored bytes (a pair without a length) that is followed by nothing, or that skips nothing.
    for map in ["0a1e0500", "0000", "050005000a01"] {
        planted.change(&format!("UPDATE extents SET map = x'{map}' WHERE node = {{x/sparse}}"));
        assert!(why(planted.open().unwrap().extents(sparse)).contains("means nothing"), "{map}");
    }
    // All that is stored, with what is skipped, lies in the archive.
    let room = LENGTH - planted.open().unwrap().row(sparse).unwrap().unwrap().body;
    for (skip, is_right) in [(room - 30, true), (room - 29, false), (u64::MAX - 10, false)] {
        let mut map = Vec::new();
        for mut number in [skip, 0, 10, 30] {
            while number >= 128 {
                map.push(number as u8 | 128);
                number >>= 7;
            }
            map.push(number as u8);
        }
        let connection = rusqlite::Connection::open(&planted.path).unwrap();
        connection.execute("UPDATE extents SET map = ?1", [map]).unwrap();
        drop(connection);
        let found = planted.open().unwrap().extents(sparse);
        match found {
            Ok(found) => assert!(is_right && found == [Extent { offset: 10, length: 30, skip }]),
            Err(error) => assert!(!is_right && error.to_string().contains("past the end"), "{error}"),
        }
    }
    planted.change("UPDATE summary SET value = 1 WHERE key = 'is_cut'");
    assert!(planted.open().unwrap().extents(sparse).is_ok());
}

#[test]
fn rows_out_of_order_are_noticed() {
    let planted = Planted::new();
    planted.swap("replaced", 2, 3);
    let index = planted.open().unwrap();
    assert!(why(index.replaced(&mut |_, _, _| ())).contains("out of order"));
    let planted = Planted::new();
    planted.swap("hard_links", 6, 7);
    let index = planted.open().unwrap();
    assert!(why(index.hard_links(&mut |_, _, _, _| ())).contains("out of order"));
    let planted = Planted::new();
    let folders = planted.nodes.keys().filter(|path| path.ends_with('/')).count();
    planted.swap("folders", folders - 2, folders - 1);
    let index = planted.open().unwrap();
    assert!(why(index.hard_links(&mut |_, _, _, _| ())).contains("out of order"));
}

#[test]
fn a_hard_link_lies_in_one_folder_and_in_the_archive() {
    let planted = Planted::new();
    let index = planted.open().unwrap();
    let mut links = 0;
    index.hard_links(&mut |_, _, _, _| links += 1).unwrap();
    assert_eq!(links, 8);
    // It is a name of a node, and none itself.
    let link = planted.node("z/link3");
    assert!(index.row(link).unwrap().is_none() && index.named_row(link).unwrap().is_none());
    // All folders say that everything behind them is in them.
    planted.change("UPDATE folders SET first = node + 1, count = (SELECT max(rowid) FROM entries) - node");
    let index = planted.open().unwrap();
    assert!(why(index.hard_links(&mut |_, _, _, _| ())).contains("several folders"));
    for (header, is_right) in [(LENGTH / 512, true), (LENGTH / 512 + 1, false), (1 << 62, false)] {
        let planted = Planted::new();
        planted.change(&format!("UPDATE entries SET header = {header} WHERE rowid = {{z/link3}}"));
        let result = planted.open().unwrap().hard_links(&mut |_, _, _, _| ());
        assert_eq!(result.is_ok(), is_right, "{header}");
        if !is_right {
            assert!(why(result).contains("behind the end"));
        }
    }
}

/// Who steps from one number to the next would find no end.
#[test]
fn numbers_are_those_that_a_writer_gives() {
    for change in [
        "UPDATE replaced SET node = 1 << 62 WHERE node = (SELECT max(node) FROM replaced)",
        "UPDATE replaced SET node = -(1 << 62) WHERE node = (SELECT min(node) FROM replaced)",
        "UPDATE replaced SET node = {z/link3} WHERE node = (SELECT min(node) FROM replaced)",
        "UPDATE entries SET rowid = 1 << 62 WHERE rowid = {z/link7}",
        "UPDATE entries SET rowid = 1 << 31 WHERE rowid = {z/link7}",
    ] {
        let planted = Planted::new();
        planted.open().unwrap();
        planted.change(change);
        assert!(why(planted.open()).contains("numbers"), "{change}");
    }
}

/// A number far behind the others makes room for folders that all have the same rows.
#[test]
fn no_more_hard_links_come_than_there_are() {
    let planted = Planted::new();
    planted.change(
        "INSERT INTO entries (rowid, name, class, header, size, mtime) SELECT 1 << 24, name, class, header, size, mtime
             FROM entries WHERE rowid = {x/a};
         UPDATE replaced SET node = node + (1 << 24);
         UPDATE folders SET first = node + 1, count = 100",
    );
    let mut links = 0;
    let result = planted.open().unwrap().hard_links(&mut |_, _, _, _| links += 1);
    assert!(why(result).contains("several folders"));
    assert_eq!(links, 8);
}

#[test]
fn long_names_of_attributes_are_not_read() {
    let mut number = 100;
    let planted = Planted::with(
        |writer| {
            for path in ["x/one", "x/other"] {
                number += 1;
                let mut entry = entry(number, Kind::File, path.as_bytes(), b"");
                entry.xattrs = vec![(b"user.a".to_vec(), b"a".to_vec()), (b"user.b".to_vec(), b"b".to_vec())];
                writer.add(&entry).unwrap();
            }
        },
        summary(),
    );
    let value = |index: &Arc<dyn Index>| index.xattr(planted.node("x/one"), b"user.a");
    assert_eq!(value(&planted.open().unwrap()).unwrap(), Some(b"a".to_vec()));
    planted.change("UPDATE xattr_names SET name = zeroblob(100000) WHERE name = CAST('user.b' AS BLOB)");
    assert!(why(value(&planted.open().unwrap())).contains("too large"));
}

/// Whoever owns the file may change it where it lies, and SQLite reads the schema again for each connection.
#[test]
fn each_connection_looks_at_the_schema() {
    let planted = Planted::new();
    let changed = planted.folder.path().join("changed");
    fs::copy(&planted.path, &changed).unwrap();
    let connection = rusqlite::Connection::open(&changed).unwrap();
    connection.execute_batch("ALTER TABLE links ADD COLUMN more AS (instr(target, 'a'))").unwrap();
    drop(connection);
    let index = planted.open().unwrap();
    let mut asked = None;
    // The connection that opened it is busy meanwhile, so the look-up gets another one.
    let _ = index.hard_links(&mut |_, _, _, _| {
        asked.get_or_insert_with(|| {
            fs::write(&planted.path, fs::read(&changed).unwrap()).unwrap();
            index.lookup(Node::ROOT, b"x").map(drop)
        });
    });
    assert!(why(asked.unwrap()).contains("tables"));
}

fn nested(input: u32, start: u64, length: u64) -> Nested {
    Nested { codec: "gzip".to_owned(), decoded_length: 1000, input, start, length }
}

#[test]
fn a_nested_stream_lies_in_one_that_is_before_it() {
    let planted = || {
        Planted::with(
            |writer| {
                writer.begin_nested(0, 100);
                writer.add_nested(&nested(0, 100, 50)).unwrap();
                writer.begin_nested(1024, 10);
                writer.add_nested(&nested(1024, 10, 990)).unwrap();
            },
            layered(),
        )
    };
    let index = planted().open().unwrap();
    assert_eq!(index.nested(1024).unwrap(), nested(0, 100, 50));
    assert_eq!(index.nested(1025).unwrap(), nested(1024, 10, 990));
    assert!(why(index.nested(1026)).contains("missing"));
    for (change, number, expected) in [
        ("input = 1025 WHERE layer = 1024", 1024, "not there"),
        ("input = 1024 WHERE layer = 1024", 1024, "not there"),
        ("input = 1 WHERE layer = 1025", 1025, "not there"),
        ("input = 1023 WHERE layer = 1025", 1025, "not there"),
        ("input = -1 WHERE layer = 1025", 1025, "negative"),
        ("length = 991 WHERE layer = 1025", 1025, "past the end"),
        ("start = 11 WHERE layer = 1025", 1025, "past the end"),
        ("start = 9223372036854775807, length = 9223372036854775807 WHERE layer = 1025", 1025, "past the end"),
        ("input = 0, start = 0, length = 1 WHERE layer = 0", 0, "none that is nested"),
        ("input = 0, start = 0, length = 1 WHERE layer = 1", 1, "none that is nested"),
    ] {
        let planted = planted();
        planted.change(&format!("UPDATE layers SET {change}"));
        assert!(why(planted.open().unwrap().nested(number)).contains(expected), "{change}");
    }
    // Rows count in a stream that is the innermost one (0) or a nested one; others are those around the archive.
    for (stream, is_right) in [(1024, true), (1, false), (1023, false), (1026, false)] {
        let planted = planted();
        planted.change(&format!(
            "UPDATE entries SET header = 0, size = 0 WHERE rowid = {{x/a}}; UPDATE classes SET stream = {stream} \
             WHERE class = (SELECT class FROM entries WHERE rowid = {{x/a}})"
        ));
        let index = planted.open().unwrap();
        let found = index.row(planted.node("x/a"));
        assert_eq!(found.is_ok(), is_right, "{stream}");
        if !is_right {
            assert!(why(found).contains("stream"), "{stream}");
        }
    }
}

#[test]
fn a_seek_point_lies_in_both_streams_and_before_what_is_asked_for() {
    let half = LENGTH / 2;
    let planted = || {
        Planted::with(
            |writer| {
                let chunk = |decoded: u64, compressed_bit, state: &[u8]| Chunk {
                    point: SeekPoint { compressed_bit, decoded, state: state.to_vec() },
                    length: half,
                    checksums: Vec::new(),
                };
                writer.add_chunk(0, chunk(0, 0, b"")).unwrap();
                writer.add_chunk(0, chunk(half, 8 * 99, b"state")).unwrap();
                writer
                    .add_damage(
                        0,
                        &Damage {
                            decoded: 10..20,
                            lost_from: 10,
                            compressed: 5,
                            compressed_from: 5,
                            what: "bad".to_owned(),
                        },
                    )
                    .unwrap();
            },
            layered(),
        )
    };
    let read = |planted: &Planted, at| {
        planted.open().unwrap().chunks(0).unwrap().chunk_at(at).map_err(|error| error.to_string())
    };
    let sound = planted();
    assert_eq!(read(&sound, half).unwrap().unwrap().point.state, b"state");
    assert_eq!(read(&sound, half - 1).unwrap().unwrap().point.decoded, 0);
    assert_eq!(read(&sound, LENGTH).unwrap(), None);
    assert!(why(sound.open().unwrap().chunks(2)).contains("no layer"));
    let compressed = LENGTH * 8;
    for (change, expected) in [
        (format!("compressed_bit = {}", compressed + 7), None),
        (format!("compressed_bit = {}", compressed + 8), Some("behind the end of the compressed data")),
        ("compressed_bit = -1".to_owned(), Some("negative")),
        (format!("length = {}", half + 1), Some("behind the end of the layer")),
        ("length = 1".to_owned(), None),
        ("length = 0".to_owned(), Some("it ends before")),
        ("length = 9223372036854775807".to_owned(), Some("behind the end of the layer")),
        ("state = 77".to_owned(), Some("state is missing")),
        ("checksums = x'01020304'".to_owned(), Some("another length")),
        ("checksums = x'0102030405', length = 262144".to_owned(), Some("another length")),
        ("checksums = x'0102030405060708', length = 262144".to_owned(), None),
        ("checksums = x'0102030405060708', length = 262145".to_owned(), Some("another length")),
        ("checksums = 'text'".to_owned(), Some("no checksums")),
    ] {
        let planted = planted();
        planted.change(&format!("UPDATE chunks SET {change} WHERE decoded > 0"));
        match (read(&planted, half), expected) {
            (Ok(_), None) => {}
            (Err(error), Some(expected)) => assert!(error.contains(expected), "{change}: {error}"),
            (result, _) => panic!("{change}: {result:?}"),
        }
    }
    // What is behind a chunk that ends too early is in none.
    let planted = planted();
    planted.change("UPDATE chunks SET length = 5 WHERE decoded = 0");
    assert!(read(&planted, 4).unwrap().is_some());
    assert!(read(&planted, 5).unwrap_err().contains("it ends before"));
}

/// Two more files, which are stored in pieces.
fn with_pieces() -> Planted {
    let more = |writer: &mut tarnfs_index::Writer| {
        for (number, path) in [(100, "x/one"), (101, "x/two")] {
            let mut entry = entry(number, Kind::File, path.as_bytes(), b"");
            let piece = Piece { length: 5, offset: 5000, stored: 5, decoded: 5, ..Piece::default() };
            (entry.body.size, entry.body.pieces) = (5, Some(vec![piece]));
            writer.add(&entry).unwrap();
        }
    };
    Planted::with(more, summary())
}

fn sweep(planted: &Planted) -> Result<u64, Error> {
    let mut count = 0;
    planted.open()?.sweep(&mut |_| {
        count += 1;
        Ok(())
    })?;
    Ok(count)
}

/// Whoever counts goes through the tables as they lie, and not by folders.
#[test]
fn rows_are_checked_where_they_are_counted() {
    let planted = with_pieces();
    // All but the root.
    assert_eq!(sweep(&planted).unwrap(), planted.nodes.values().max().unwrap() - 1);
    for (change, expected) in [
        ("UPDATE entries SET size = -1 WHERE rowid = {x/a}", "negative"),
        ("UPDATE entries SET name = CAST('a/b' AS BLOB) WHERE rowid = {x/a}", "one component"),
        ("UPDATE entries SET class = 7777 WHERE rowid = {x/a}", "class 7777 is missing"),
        ("UPDATE entries SET header = 1 << 62 WHERE rowid = {x/one}", "no header"),
        ("DELETE FROM extents WHERE node = {x/one}", "its map is missing"),
        ("DELETE FROM extents WHERE node = {x/two}", "its map is missing"),
        ("DELETE FROM extents WHERE node >= {x/one}", "its map is missing"),
        ("UPDATE entries SET size = 4 WHERE rowid = {x/two}", "past its end"),
    ] {
        let planted = with_pieces();
        planted.change(change);
        assert!(why(sweep(&planted)).contains(expected), "{change}");
    }
    // Maps of sparse files are passed over, and need not be there.
    let planted = with_pieces();
    planted.change("DELETE FROM extents WHERE node = {x/sparse}");
    sweep(&planted).unwrap();
    for (table, one, other) in [("entries", 5, 6), ("extents", 1, 2)] {
        let planted = with_pieces();
        planted.swap(table, one, other);
        assert!(why(sweep(&planted)).contains("out of order"), "{table}");
    }
}

#[test]
fn more_tables_are_in_order() {
    let owners = |planted: &Planted| planted.open().unwrap().owners();
    let planted = Planted::new();
    assert!(owners(&planted).unwrap().is_some());
    planted.swap("classes", 1, 2);
    assert!(why(owners(&planted)).contains("out of order"));
    // More than a mount could do anything about are not told.
    let many = |count: u64| {
        let planted = Planted::new();
        planted.change(&format!(
            "DELETE FROM classes WHERE class > 1; \
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) \
             INSERT INTO classes SELECT 1 + i, type, mode, i, gid, user, \"group\", body, more, stream \
             FROM n, (SELECT * FROM classes WHERE class = 1)"
        ));
        owners(&planted).unwrap().map(|owners| owners.len())
    };
    assert!(many(3000).is_some_and(|count| count >= 3000));
    assert_eq!(many(5000), None);
    let nested = || {
        let more = |writer: &mut tarnfs_index::Writer| {
            for start in [0, 100] {
                writer.begin_nested(0, start);
                writer.add_nested(&nested(0, start, 50)).unwrap();
            }
        };
        Planted::with(more, layered())
    };
    let each = |planted: &Planted| planted.open().unwrap().each_nested(&mut |_, _| ());
    each(&nested()).unwrap();
    let planted = nested();
    planted.swap("layers", 2, 3);
    assert!(why(each(&planted)).contains("out of order"));
}

/// What is looked for by halves lies where it is looked for.
#[test]
fn children_that_are_missing_are_not_passed_over() {
    let many = || {
        let more = |writer: &mut tarnfs_index::Writer| {
            for number in 100..300 {
                writer.add(&entry(number, Kind::File, format!("y/n{number}").as_bytes(), b"")).unwrap();
            }
        };
        Planted::with(more, summary())
    };
    let lookup = |planted: &Planted, folder: &str, name: &[u8]| {
        planted.open().unwrap().lookup(planted.node(folder), name).map(|row| row.is_some())
    };
    assert!(lookup(&many(), "y/", b"n150").unwrap() && !lookup(&many(), "y/", b"n150x").unwrap());
    let planted = many();
    planted.change("DELETE FROM entries WHERE rowid > {y/n120} AND rowid < {y/n280}");
    assert!(why(lookup(&planted, "y/", b"n150")).contains("missing"));
    let planted = Planted::new();
    planted.change("DELETE FROM entries WHERE rowid = {x/b}");
    assert!(why(lookup(&planted, "x/", b"c")).contains("another row"));
}

#[test]
fn replaced_rows_are_checked() {
    let made = || {
        let more = |writer: &mut tarnfs_index::Writer| {
            for number in 0..4 {
                let name = if number < 2 { "y/kept" } else { "y/other" };
                let kind = if number % 2 == 0 { Kind::HardLink } else { Kind::File };
                writer.add(&entry(100 + number, kind, name.as_bytes(), b"x/a")).unwrap();
            }
        };
        Planted::with(more, summary())
    };
    let links = |planted: &Planted| {
        let mut found = Vec::new();
        let index = planted.open().unwrap();
        index.replaced_links(&mut |folder, name, header, shared| {
            found.push((folder, name.to_vec(), header, shared));
        })?;
        Ok::<_, Error>(found)
    };
    let planted = made();
    let (y, shared) = (planted.node("y/"), Some(planted.node("x/a")));
    let expected = [(y, b"kept".to_vec(), 100 << 20, shared), (y, b"other".to_vec(), 102 << 20, shared)];
    assert_eq!(links(&planted).unwrap(), expected);
    for (change, expected) in [
        ("UPDATE replaced SET header = -1 WHERE name = CAST('kept' AS BLOB)", "no header"),
        ("UPDATE replaced SET folder = -1 WHERE name = CAST('kept' AS BLOB)", "negative"),
        ("UPDATE hard_links SET shared = -1 WHERE node > {z/link7}", "negative"),
        ("UPDATE replaced SET name = CAST('a/b' AS BLOB) WHERE name = CAST('kept' AS BLOB)", "one component"),
    ] {
        let planted = made();
        planted.change(change);
        assert!(why(links(&planted)).contains(expected), "{change}");
    }
    let planted = made();
    planted.swap("hard_links", 8, 9);
    assert!(why(links(&planted)).contains("out of order"));
    // Versions are searched for by folder and name.
    let versions = |planted: &Planted, name: &[u8]| {
        let mut count = 0;
        planted.open().unwrap().replaced_of(planted.node("y/"), name, 0, &mut |_, _| {
            count += 1;
            true
        })?;
        Ok::<_, Error>(count)
    };
    assert_eq!((versions(&made(), b"old").unwrap(), versions(&made(), b"kept").unwrap()), (3, 1));
    for folder in ["99999", "-1", "{x/a}"] {
        let planted = made();
        planted.change(&format!("UPDATE replaced SET folder = {folder}"));
        assert!(why(versions(&planted, b"old")).contains("is none"), "{folder}");
    }
}

/// Nobody asks for all of a file's attributes to get one of them.
#[test]
fn one_attribute_is_as_long_as_any() {
    let planted = Planted::with(
        |writer| {
            let mut entry = entry(100, Kind::File, b"x/one", b"");
            entry.xattrs = vec![(b"user.a".to_vec(), b"a".to_vec())];
            writer.add(&entry).unwrap();
        },
        summary(),
    );
    for (change, is_right) in [
        ("UPDATE xattrs SET value = zeroblob(65536)", true),
        ("UPDATE xattrs SET value = zeroblob(65537)", false),
        (
            "WITH RECURSIVE n(i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n) INSERT INTO xattrs \
             SELECT {x/one}, i, x'' FROM n LIMIT 16384; UPDATE xattrs SET value = x''; \
             WITH RECURSIVE n(i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n) INSERT INTO xattr_names \
             SELECT i, CAST(i AS BLOB) FROM n LIMIT 16384",
            false,
        ),
    ] {
        planted.change(change);
        let found = planted.open().unwrap().xattr(planted.node("x/one"), b"user.a");
        match found {
            Ok(value) => assert!(is_right && value.is_some_and(|value| value.len() == 65_536), "{change}"),
            Err(error) => assert!(!is_right && error.to_string().contains("too large"), "{change}: {error}"),
        }
    }
}

/// All that shapes a tree, and all that is known of one.
#[test]
fn a_summary_comes_back() {
    let pair = |one: &str, other: &str| Some((one.to_owned(), other.to_owned()));
    let list = |items: &[&str]| items.iter().map(|&item| item.to_owned()).collect::<Vec<_>>();
    let mut recursion = Recursion {
        depth: Some(3),
        extensions: list(&["/archive", "", "a b"]),
        strip_extension: true,
        transform: pair("x", ""),
    };
    for depth in [Some(3), None] {
        recursion.depth = depth;
        let shape = Shape {
            encoding: Some("cp437".to_owned()),
            ignore_zeros: false,
            gnu_incremental: Some(true),
            transform: pair("", "y"),
            recursion: Some(recursion.clone()),
            hashes: list(&["md5", "sha1"]),
            backends: list(&["zip"]),
        };
        let notes = vec![(5, "a note".to_owned()), (0, String::new())];
        let unlisted = list(&["12 bytes between its files", "'comment' in its extended headers"]);
        let expected = Summary { shape, notes, unlisted, has_locked: true, label: None, grown_from: None, ..layered() };
        let writer = writer(1 << 20);
        let index = writer.finish(expected.clone(), &Destination::Memory).unwrap();
        assert_eq!(index.summary(), &Summary { folders: 1, ..expected });
        recursion.strip_extension = false;
    }
}

#[test]
fn what_a_summary_says_makes_sense() {
    for (key, value, is_right) in [
        ("archive_length", "-1", false),
        ("archive_length", "NULL", false),
        ("archive_length", "'7'", false),
        ("archive_fingerprint", "-1", true),
        ("archive_fingerprint", "NULL", false),
        ("archive_modified", "-1", true),
        ("archive_modified", "x'07'", false),
        ("bytes", "-1", false),
        ("end", "-1", false),
        ("files", "-1", false),
        ("folders", "-1", false),
        ("has_acls", "2", false),
        ("has_acls", "NULL", false),
        ("has_xattrs", "-1", false),
        ("ignore_zeros", "NULL", false),
        ("gnu_incremental", "NULL", true),
        ("gnu_incremental", "2", false),
        ("encoding", "7", false),
        ("recursion_depth", "'x'", false),
        ("transform", "'no zero'", false),
        ("transform", "7", false),
        ("hashes", "7", false),
        ("hashes", "NULL", false),
        ("backends", "7", false),
        ("label", "'text'", false),
        ("label", "zeroblob(4096)", true),
        ("label", "zeroblob(4097)", false),
        ("format", "NULL", false),
        ("archive_name", "'text'", false),
        ("archive_name", "zeroblob(255)", true),
        ("archive_name", "zeroblob(256)", false),
        ("is_cut", "2", false),
        ("is_cut", "NULL", false),
    ] {
        let planted = Planted::new();
        planted.change(&format!("INSERT OR REPLACE INTO summary VALUES ('{key}', {value})"));
        match planted.open() {
            Ok(_) => assert!(is_right, "{key} {value}"),
            Err(Error::Broken(what)) => {
                assert!(!is_right && what.contains(&format!("{key} of its summary")), "{key} {value}: {what}");
            }
            Err(error) => panic!("{key} {value}: {error}"),
        }
    }
    for (key, value) in [("recursive_extensions", "7"), ("transform_mount_point", "'no zero'")] {
        let planted = Planted::new();
        planted.change(&format!(
            "UPDATE summary SET value = 3 WHERE key = 'recursion_depth'; \
             UPDATE summary SET value = {value} WHERE key = '{key}'"
        ));
        assert!(why(planted.open()).contains(key), "{key}");
    }
    for key in ["end", "label", "transform", "hashes"] {
        let planted = Planted::new();
        planted.change(&format!("DELETE FROM summary WHERE key = '{key}'"));
        assert!(why(planted.open()).contains(&format!("no {key}")), "{key}");
    }
    for change in ["layer = 7 WHERE layer = 1", "layer = -1 WHERE layer = 0", "decoded_length = -1 WHERE layer = 1"] {
        let planted = Planted::with(|_| (), layered());
        planted.change(&format!("UPDATE layers SET {change}"));
        assert!(why(planted.open()).contains("layers make no sense"), "{change}");
    }
}
