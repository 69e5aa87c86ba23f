//! Index files that are broken, planted or cut: clean errors, and nothing else.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    reason = "a test that overflows or finds an error fails"
)]

mod common;

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use tarnfs_codec::{Chunk, Damage, SeekPoint};
use tarnfs_format::{Device, Kind, Time};
use tarnfs_index::{Destination, Error, Index, Node, own, ratarmount, trust};
use tarnfs_source::Extent;

use common::{entry, layered, walk, writer};

/// An index with a row in every table.
fn write_sample(path: &Path) {
    let mut writer = writer(64 << 20);
    for number in 0..200 {
        let mut entry = entry(number, Kind::File, format!("d{}/f{number}", number % 7).as_bytes(), b"");
        match number % 9 {
            0 => entry.kind = Kind::HardLink,
            1 => entry.kind = Kind::Symlink,
            2 => entry.kind = Kind::BlockDevice(Device { major: 1, minor: 2 }),
            3 => entry.xattrs = vec![(b"user.a".to_vec(), vec![7; 50]), (b"user.b".to_vec(), Vec::new())],
            4 => entry.atime = Some(Time { seconds: 1, nanoseconds: 2 }),
            5 => entry.body.extents = Some(vec![Extent { offset: 1, length: 1, skip: 0 }]),
            6 => entry.path = b"d1/same".to_vec(),
            7 => entry.kind = Kind::Folder,
            _ => {}
        }
        entry.link = format!("d{}/f{}", (number + 3) % 7, number + 3).into_bytes();
        writer.add(&entry).unwrap();
    }
    for layer in 0..2 {
        for number in 0..20 {
            let point =
                SeekPoint { compressed_bit: number * 999, decoded: number << 30, state: vec![number as u8; 500] };
            writer.add_chunk(layer, Chunk { point, length: 1 << 30, checksums: Vec::new() }).unwrap();
        }
    }
    writer
        .add_damage(
            1,
            &Damage { decoded: 5..6, lost_from: 5, compressed: 7, compressed_from: 7, what: "damage".to_owned() },
        )
        .unwrap();
    let mut summary = layered();
    summary.notes.push((5, "a note".to_owned()));
    writer.finish(summary, &Destination::File(path.to_path_buf())).unwrap();
}

/// Asks an index everything that can be asked.
fn exhaust(index: &Arc<dyn Index>) -> Result<(), Error> {
    let mut first = Ok(());
    let mut note = |result: Result<(), Error>| {
        if first.is_ok() {
            first = result;
        }
    };
    match walk(&**index) {
        Ok(tree) => {
            assert!(tree.len() < 10_000);
            for row in tree.values() {
                let node = row.node;
                note(index.row(node).map(drop));
                note(index.owner_names(node).map(drop));
                note(index.xattrs(node).map(drop));
                note(index.lookup(node, b"f3").map(drop));
                if row.kind == Kind::Symlink {
                    note(index.link(node).map(drop));
                }
                if row.kind == Kind::Folder {
                    note(index.parent(node).map(drop));
                }
                if row.is_sparse {
                    note(index.extents(node).map(drop));
                }
            }
        }
        Err(error) => note(Err(error)),
    }
    for node in (0..500).chain([u64::MAX, i64::MAX as u64]).map(Node) {
        note(index.row(node).map(drop));
    }
    note(index.replaced(&mut |_, _, _| {}));
    note(index.hard_links(&mut |_, _, _, _| {}));
    note(index.damage_in(0..u64::MAX).map(drop));
    for layer in 0..index.summary().layers.len().min(3) {
        match Arc::clone(index).chunks(layer) {
            Ok(table) => {
                let mut at = 0;
                // Chunks are never empty, so this ends.
                while let Ok(Some(chunk)) = table.chunk_at(at) {
                    assert!(chunk.point.decoded <= at && chunk.length > 0);
                    at = chunk.point.decoded + chunk.length;
                }
            }
            Err(error) => note(Err(error)),
        }
    }
    first
}

fn is_clean(error: &Error) -> bool {
    match error {
        Error::Broken(_) | Error::Unknown(_) => true,
        Error::Io(error) => !matches!(error.kind(), io::ErrorKind::OutOfMemory),
        _ => false,
    }
}

#[test]
fn any_damaged_index_is_an_error_or_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    write_sample(&path);
    let whole = fs::read(&path).unwrap();
    exhaust(&own::open(&path, None, false).unwrap()).unwrap();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let (mut refused, mut served) = (0, 0);
    for _ in 0..if std::env::var_os("TARNFS_FULL").is_some() { 10_000 } else { 2000 } {
        let mut bytes = whole.clone();
        match next(10) {
            0 => bytes.truncate(next(whole.len())),
            // One page in the place of another.
            1 => {
                let (from, to) = (next(whole.len() / 4096) * 4096, next(whole.len() / 4096) * 4096);
                bytes.copy_within(from..from + 4096, to);
            }
            2 => {
                let at = next(whole.len() - 512);
                let value = next(256) as u8;
                bytes[at..at + 512].fill(value);
            }
            _ => {
                for _ in 0..=next(40) {
                    let at = next(whole.len());
                    bytes[at] ^= 1 << next(8);
                }
            }
        }
        fs::write(&path, &bytes).unwrap();
        match own::open(&path, None, false).and_then(|index| exhaust(&index)) {
            Ok(()) => served += 1,
            Err(error) => {
                assert!(is_clean(&error), "{error:?}");
                refused += 1;
            }
        }
    }
    println!("{refused} refused, {served} served");
    assert!(refused > 500 && served > 10, "{refused} refused, {served} served");
}

#[test]
fn every_cut_of_an_index_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    write_sample(&path);
    let whole = fs::read(&path).unwrap();
    for length in (0..200).chain((200..whole.len()).step_by(509)) {
        fs::write(&path, &whole[..length]).unwrap();
        let error = own::open(&path, None, false).and_then(|index| exhaust(&index)).unwrap_err();
        assert!(is_clean(&error), "{error:?}");
    }
}

/// Runs a statement on the file with another SQLite, so that it is what an attacker would make.
fn sqlite(path: &Path, statement: &str) {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.execute_batch(statement).unwrap();
}

#[test]
fn what_is_no_index_is_refused_before_anything_in_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000000) SELECT i FROM n";
    let planted: &[&str] = &[
        "CREATE VIEW v AS SELECT 1",
        &format!("DROP TABLE summary; CREATE VIEW summary(key, value) AS {endless}"),
        &format!("DROP TABLE entries; CREATE VIEW entries AS {endless}"),
        "CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM folders; END",
        "CREATE INDEX i ON entries(name)",
        "CREATE TABLE other (a)",
        "ALTER TABLE entries ADD COLUMN extra AS (zeroblob(1000000000))",
        "DROP TABLE hard_links; CREATE TABLE hard_links (node INTEGER PRIMARY KEY, shared INTEGER NOT NULL) WITHOUT ROWID",
        "DROP TABLE links",
        "CREATE VIRTUAL TABLE f USING fts5(a)",
        "PRAGMA user_version = 2",
        "PRAGMA application_id = 1",
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = 'nonsense' WHERE name = 'entries'",
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage = 99999999 WHERE name = 'entries'",
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage = 1 WHERE name = 'entries'",
        "DELETE FROM entries WHERE rowid = 1",
        "DELETE FROM summary WHERE key = 'format'",
        "UPDATE summary SET value = -1 WHERE key = 'archive_length'",
        "UPDATE summary SET value = zeroblob(200000000) WHERE key = 'label'",
        "UPDATE entries SET class = 7777 WHERE rowid = 1",
        "UPDATE classes SET stream = 7",
        "UPDATE classes SET stream = 1024",
        "UPDATE classes SET stream = -1",
        "INSERT INTO layers VALUES (1024, 'gzip', 1 << 40, 0, 0, 0); UPDATE classes SET stream = 1025",
    ];
    for statement in planted {
        write_sample(&path);
        sqlite(&path, statement);
        let error = own::open(&path, None, false).and_then(|index| exhaust(&index)).expect_err(statement);
        assert!(is_clean(&error), "{statement}: {error:?}");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn rows_that_lie_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let lies: &[&str] = &[
        "UPDATE entries SET name = x'2e2e' WHERE rowid = 5",
        "UPDATE entries SET name = CAST('a/b' AS BLOB) WHERE rowid = 5",
        "UPDATE entries SET name = x'6100' WHERE rowid = 5",
        "UPDATE entries SET name = x'' WHERE rowid = 5",
        "UPDATE entries SET name = zeroblob(300) WHERE rowid = 5",
        "UPDATE entries SET header = 4611686018427387904 WHERE rowid > 20",
        "UPDATE entries SET header = -1 WHERE rowid > 20",
        "UPDATE classes SET body = 9223372036854775807 WHERE class = 1",
        "UPDATE classes SET body = -1 WHERE class = 1",
        "UPDATE entries SET size = -1 WHERE rowid > 20",
        "UPDATE times SET mtime_ns = 7",
        "UPDATE times SET mtime_ns = 1000000000; UPDATE classes SET more = more & ~64",
        "UPDATE times SET mtime_ns = -1; UPDATE classes SET more = more & ~64",
        "UPDATE classes SET more = more | 512 WHERE class = 1",
        "UPDATE classes SET more = -1 WHERE class = 1",
        "UPDATE classes SET more = more | 4 WHERE class = 1",
        "UPDATE entries SET header = header + 9007199254740992 WHERE rowid > 20",
        "UPDATE summary SET value = 0 WHERE key = 'header_unit'",
        "UPDATE summary SET value = 513 WHERE key = 'header_unit'",
        "UPDATE summary SET value = NULL WHERE key = 'header_unit'",
        "DELETE FROM summary WHERE key = 'header_unit'",
        "UPDATE classes SET type = 5 WHERE class = 1",
        "UPDATE classes SET mode = 65536 WHERE class = 1",
        "UPDATE folders SET parent = node WHERE node > 1",
        "UPDATE folders SET parent = 7 WHERE node = 2",
        "UPDATE folders SET first = 1 WHERE node = 1",
        "UPDATE folders SET first = 2, count = 150 WHERE node = 2",
        "UPDATE folders SET count = 1000000 WHERE node = 1",
        "UPDATE folders SET count = 9223372036854775807 WHERE node = 1",
        "UPDATE folders SET count = -1 WHERE node = 1",
        "DELETE FROM folders WHERE node = 2",
        "DELETE FROM entries WHERE rowid = 40",
        "UPDATE hard_links SET shared = node WHERE shared > 0",
        "UPDATE hard_links SET shared = 2 WHERE shared > 0",
        "UPDATE hard_links SET shared = 99999 WHERE shared > 0",
        "UPDATE hard_links SET shared = -5 WHERE shared > 0",
        "UPDATE replaced SET folder = 0",
        "UPDATE replaced SET folder = -1",
        "UPDATE replaced SET folder = 99999",
        "UPDATE replaced SET folder = (SELECT node FROM links LIMIT 1)",
        "UPDATE replaced SET name = x'2e2e'",
        "UPDATE folders SET first = 9223372036854775807 WHERE node = 3",
        "UPDATE folders SET subfolders = count + 1 WHERE node = 2",
        "DELETE FROM links",
        "DELETE FROM devices",
        "DELETE FROM times",
        "UPDATE devices SET major = -1",
        "UPDATE times SET atime_ns = 5000000000",
        "UPDATE extents SET map = x'ffffffffffffffffffffff01'",
        "UPDATE extents SET map = x'0000ffffffffffffff7f'",
        "UPDATE xattrs SET node = 1, id = id + node * 1000; UPDATE xattr_names SET id = 5000 + id",
    ];
    for statement in lies {
        write_sample(&path);
        sqlite(&path, statement);
        let result = own::open(&path, None, false).and_then(|index| exhaust(&index));
        if statement.contains("xattr") {
            result.unwrap();
        } else {
            let error = result.expect_err(statement);
            assert!(matches!(error, Error::Broken(_)), "{statement}: {error:?}");
        }
    }
}

/// What is asked of a changed index.
type Question = fn(&Arc<dyn Index>) -> Result<(), Error>;

/// Each archive in the archive has a class of its own, all of them with the same owner.
#[test]
fn owners_are_known_however_many_classes_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    write_sample(&path);
    let owners = || own::open(&path, None, false).unwrap().owners();
    let before = owners().unwrap().unwrap();
    assert!(!before.is_empty());
    sqlite(
        &path,
        "WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n WHERE i < 600000) \
         INSERT INTO classes SELECT i, type, mode, uid, gid, user, \"group\", body, more, stream \
         FROM n, (SELECT * FROM classes LIMIT 1)",
    );
    assert_eq!(owners().unwrap().unwrap().len(), before.len());
    sqlite(&path, "UPDATE classes SET user = zeroblob(300) WHERE class = 77777");
    let error = owners().unwrap_err();
    assert!(matches!(error, Error::Broken(_)), "{error:?}");
}

#[test]
fn values_longer_than_any_that_is_written_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let many = "WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)";
    let of_xattrs = "(SELECT node FROM xattrs LIMIT 1)";
    let ask_all: Question = exhaust;
    let ask_nested: Question = |index| index.nested(1024).map(drop);
    let ask_names: Question = |index| {
        let mut nodes = (1..500).map(Node).filter(|&node| index.count(node).is_ok_and(|count| count > 0));
        nodes.try_for_each(|node| index.names(node, &mut |_| {}))
    };
    let ask_named: Question = |index| {
        let mut nodes = Vec::new();
        index.replaced(&mut |_, _, row| nodes.push(row.node)).ok();
        (200..800)
            .chain(nodes.into_iter().map(|node| node.0))
            .try_for_each(|node| index.named_row(Node(node)).map(drop))
    };
    let cases: &[(&str, Question)] = &[
        ("UPDATE links SET target = zeroblob(65537)", ask_all),
        ("UPDATE links SET target = zeroblob(2000000)", ask_all),
        ("UPDATE xattrs SET value = zeroblob(65537)", ask_all),
        ("UPDATE xattr_names SET name = zeroblob(65537)", ask_all),
        (
            &format!(
                "INSERT INTO xattrs {many} SELECT {of_xattrs}, i, x'' FROM n LIMIT 16383; \
                   INSERT INTO xattr_names {many} SELECT i, CAST(i AS BLOB) FROM n"
            ),
            ask_all,
        ),
        (
            &format!(
                "INSERT INTO xattrs {many} SELECT {of_xattrs}, i, zeroblob(65536) FROM n LIMIT 512; \
                   INSERT INTO xattr_names {many} SELECT i, CAST(i AS BLOB) FROM n"
            ),
            ask_all,
        ),
        ("UPDATE notes SET what = CAST(zeroblob(2000000) AS TEXT)", ask_all),
        (&format!("INSERT INTO notes {many} SELECT i, i, CAST(zeroblob(4000) AS TEXT) FROM n LIMIT 2100"), ask_all),
        ("UPDATE summary SET value = zeroblob(4097) WHERE key = 'label'", ask_all),
        ("UPDATE layers SET codec = printf('%.*c', 65, 'x') WHERE layer = 0", ask_all),
        ("INSERT INTO layers VALUES (1024, printf('%.*c', 65, 'x'), 1, 0, 0, 1)", ask_nested),
        ("DELETE FROM entries WHERE rowid = 40", ask_names),
        ("UPDATE entries SET name = zeroblob(2000000) WHERE rowid = 40", ask_names),
        ("UPDATE replaced SET name = CAST(printf('%.*c', 256, 'x') AS BLOB)", ask_named),
        ("UPDATE replaced SET name = CAST('a/b' AS BLOB)", ask_named),
        // Names that are there twice, or three times.
        ("UPDATE entries SET name = (SELECT name FROM entries WHERE rowid = 40) WHERE rowid = 41", ask_all),
        ("UPDATE entries SET name = (SELECT name FROM entries WHERE rowid = 2) WHERE rowid IN (3, 4)", ask_all),
    ];
    for (statement, ask) in cases {
        write_sample(&path);
        ask(&own::open(&path, None, false).unwrap())
            .or_else(|error| if *ask as usize == ask_nested as usize { Ok(()) } else { Err(error) })
            .unwrap();
        sqlite(&path, statement);
        let error = own::open(&path, None, false).and_then(|index| ask(&index)).expect_err(statement);
        assert!(matches!(error, Error::Broken(_)), "{statement}: {error:?}");
    }
    // As long as may be.
    write_sample(&path);
    sqlite(
        &path,
        &format!(
            "UPDATE links SET target = zeroblob(65536); UPDATE xattrs SET value = zeroblob(65536); \
             INSERT INTO xattrs {many} SELECT {of_xattrs}, i, x'' FROM n LIMIT 16382; \
             INSERT INTO xattr_names {many} SELECT i, CAST(i AS BLOB) FROM n; \
             UPDATE layers SET codec = printf('%.*c', 64, 'x') WHERE layer = 0"
        ),
    );
    exhaust(&own::open(&path, None, false).unwrap()).unwrap();
}

#[test]
fn a_map_of_more_extents_than_are_read_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    for (extents, is_read) in [(4 << 20, true), ((4 << 20) + 1, false)] {
        write_sample(&path);
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.execute("UPDATE extents SET map = ?1", [[1_u8, 1].repeat(extents)]).unwrap();
        let sparse = "UPDATE entries SET size = 1 << 30 WHERE rowid IN (SELECT node FROM extents)";
        connection.execute_batch(sparse).unwrap();
        let node: i64 = connection.query_row("SELECT min(node) FROM extents", [], |row| row.get(0)).unwrap();
        drop(connection);
        let index = own::open(&path, None, false).unwrap();
        match index.extents(Node(node as u64)) {
            Ok(read) => assert!(is_read && read.len() == extents),
            Err(Error::Broken(what)) => assert!(!is_read && what.contains("too many extents"), "{what}"),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn an_index_that_somebody_else_could_have_written_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, path) = (folder.path().join("a.tar"), folder.path().join("a.tar.tarnfs.sqlite"));
    fs::write(&archive, b"archive").unwrap();
    fs::set_permissions(&archive, Permissions::from_mode(0o644)).unwrap();
    write_sample(&path);
    let owner = || trust::Owner::of(&File::open(&archive).unwrap()).unwrap();
    let is_believed = |path: &Path| match own::open(path, Some(&owner()), false) {
        Ok(_) => true,
        Err(Error::NotTrusted(why)) => {
            assert!(why.contains(path.to_str().unwrap()), "{why}");
            // What is an index at all can be used nevertheless, and the message says how.
            assert_eq!(own::open(path, None, true).is_ok(), why.contains("`trust-index`"), "{why}");
            false
        }
        Err(other) => panic!("{other}"),
    };
    assert!(is_believed(&path));
    // What others may write.
    for (mode, archive_mode, believed) in [
        (0o664, 0o644, false),
        (0o646, 0o644, false),
        (0o666, 0o664, false),
        (0o664, 0o664, true),
        (0o666, 0o666, true),
        (0o444, 0o400, true),
    ] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        fs::set_permissions(&archive, Permissions::from_mode(archive_mode)).unwrap();
        assert_eq!(is_believed(&path), believed, "{mode:o} beside {archive_mode:o}");
    }
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    // Other names, other kinds of file.
    let other = folder.path().join("other");
    symlink(&path, &other).unwrap();
    assert!(!is_believed(&other));
    fs::remove_file(&other).unwrap();
    fs::hard_link(&path, &other).unwrap();
    assert!(!is_believed(&other) && !is_believed(&path));
    fs::remove_file(&other).unwrap();
    assert!(is_believed(&path));
    assert!(std::process::Command::new("mkfifo").arg(&other).status().unwrap().success());
    assert!(!is_believed(&other));
    assert!(!is_believed(folder.path()));
    assert!(matches!(own::open(&folder.path().join("none"), None, false), Err(Error::Missing)));
    if !rustix::process::geteuid().is_root() {
        println!("not root: files of other users were not tried");
        return;
    }
    let nobody = Some(65_534);
    // Each may be written by a group, but not by the same one.
    for (group, believed) in [(65_534, false), (0, true), (1, false)] {
        fs::set_permissions(&path, Permissions::from_mode(0o664)).unwrap();
        fs::set_permissions(&archive, Permissions::from_mode(0o664)).unwrap();
        std::os::unix::fs::chown(&path, Some(0), Some(group)).unwrap();
        std::os::unix::fs::chown(&archive, Some(0), Some(0)).unwrap();
        assert_eq!(is_believed(&path), believed, "group {group}");
    }
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    std::os::unix::fs::chown(&path, nobody, nobody).unwrap();
    assert!(!is_believed(&path));
    std::os::unix::fs::chown(&archive, nobody, nobody).unwrap();
    assert!(is_believed(&path), "whoever owns the archive may say what is in it");
}

/// Where some users have no number, all of these have that of nobody. Whoever is nobody has files nevertheless.
#[test]
fn nobody_in_a_container_has_files_of_his_own() {
    const FOLDER: &str = "TARNFS_TEST_CONTAINER";
    if let Some(folder) = std::env::var_os(FOLDER) {
        let folder = Path::new(&folder);
        let owner = |name: &str| std::os::unix::fs::MetadataExt::uid(&fs::metadata(folder.join(name)).unwrap());
        assert_eq!((owner("own"), owner("other")), (65534, 65534));
        assert!(trust::open(&folder.join("own"), None, false).is_ok());
        assert!(matches!(trust::open(&folder.join("other"), None, false), Err(Error::NotTrusted(_))));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [own, other] = ["own", "other"].map(|name| folder.path().join(name));
    for path in [&own, &other] {
        fs::write(path, "index").unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
    }
    if std::os::unix::fs::chown(&other, Some(4321), Some(4321)).is_err() {
        println!("left out: files of other users need root");
        return;
    }
    let within = |program: &Path| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--user", "--map-user=65534", "--map-group=65534"]).arg(program).env(FOLDER, folder.path());
        command
    };
    if !within(Path::new("true")).status().is_ok_and(|status| status.success()) {
        println!("left out: needs unshare and user namespaces");
        return;
    }
    let this = std::env::current_exe().unwrap();
    let status = within(&this).args(["--exact", "nobody_in_a_container_has_files_of_his_own"]).status().unwrap();
    assert!(status.success());
}

#[test]
fn what_is_written_to_is_a_file_of_this_user_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pieces");
    let mut made = trust::open_to_write(&path).unwrap();
    made.write_all(b"written").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    // What is there is kept, and can be read as well.
    let mut again = trust::open_to_write(&path).unwrap();
    assert_eq!(io::read_to_string(&again).unwrap(), "written");
    again.write_all(b" more").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"written more");
    let is_refused = |path: &Path| matches!(trust::open_to_write(path), Err(Error::NotTrusted(_)));
    let other = folder.path().join("other");
    symlink(&path, &other).unwrap();
    assert!(is_refused(&other));
    fs::remove_file(&other).unwrap();
    fs::hard_link(&path, &other).unwrap();
    assert!(is_refused(&other));
    fs::remove_file(&other).unwrap();
    for mode in [0o620, 0o602] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        assert!(is_refused(&path), "{mode:o}");
    }
    assert!(is_refused(folder.path()));
    // A link to nowhere makes no file there.
    symlink(folder.path().join("nowhere"), &other).unwrap();
    assert!(is_refused(&other) && !folder.path().join("nowhere").exists());
}

#[test]
fn a_sidecar_is_a_database_of_another_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some");
    let may_be_one = || ratarmount::may_be_one(&path, false);
    assert!(!may_be_one());
    write_sample(&path);
    assert!(!may_be_one(), "it is an index of tarnfs");
    fs::remove_file(&path).unwrap();
    sqlite(&path, "CREATE TABLE files (path)");
    assert!(may_be_one());
    let whole = fs::read(&path).unwrap();
    for (bytes, is_one) in [(&whole[..72], true), (&whole[..71], false), (&b"no database".repeat(10), false)] {
        fs::write(&path, bytes).unwrap();
        assert_eq!(may_be_one(), is_one);
    }
    fs::remove_file(&path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert!(!may_be_one());
    // Where one may lie: beside the archive, and named after its path in other folders.
    let found = ratarmount::candidates(Path::new("/data/x_y.tar"), &["".into(), "/kept".into()]);
    let expected = ["/data/x_y.tar.index.sqlite", "/kept/_data_x_y.tar.index.sqlite"];
    assert_eq!(found[..2], expected.map(std::path::PathBuf::from));
    assert!(found[2..].iter().all(|path| path.ends_with("_data_x_y.tar.index.sqlite")));
}

#[test]
fn journals_beside_an_index_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    write_sample(&path);
    let expected = walk(&*own::open(&path, None, false).unwrap()).unwrap();
    // A log that SQLite itself would play back.
    let victim = folder.path().join("victim");
    fs::copy(&path, &victim).unwrap();
    let connection = rusqlite::Connection::open(&victim).unwrap();
    connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; DELETE FROM entries").unwrap();
    for suffix in ["-wal", "-shm"] {
        fs::copy(folder.path().join(format!("victim{suffix}")), folder.path().join(format!("index{suffix}"))).unwrap();
    }
    fs::write(folder.path().join("index-journal"), [0xd9, 0xd5, 5, 0xf9, 0x20, 0xa1, 0x63, 0xd7]).unwrap();
    let before: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(walk(&*own::open(&path, None, false).unwrap()).unwrap(), expected);
    let after: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(before, after);
    // One that says of itself that it has a log.
    drop(connection);
    fs::copy(&victim, &path).unwrap();
    let error = own::open(&path, None, false).unwrap_err();
    assert!(is_clean(&error), "{error:?}");
}
