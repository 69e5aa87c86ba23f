//! Sidecars that somebody made so that reading them would have no end, or takes what it should not.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::Connection;
use tarnfs_format::Kind;
use tarnfs_index::{Error, Index, Node, Shape, ratarmount};

use crate::support::{open, own_index, shell};

/// An archive and its sidecar.
struct Planted {
    folder: tempfile::TempDir,
    archive: PathBuf,
    sidecar: PathBuf,
}

impl Planted {
    fn new(name: &str, script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        shell(folder.path(), script);
        let (archive, sidecar) = (folder.path().join(name), folder.path().join("sidecar"));
        ratarmount::write(&own_index(&archive, &Shape::default()).0, &archive, &sidecar).unwrap();
        let planted = Self { folder, archive, sidecar };
        planted.open().unwrap();
        planted
    }

    fn change(&self, sql: &str) {
        let connection = Connection::open(&self.sidecar).unwrap();
        connection.execute_batch("PRAGMA writable_schema = ON").unwrap();
        connection.execute_batch(sql).unwrap();
    }

    fn open(&self) -> Result<Arc<dyn Index>, Error> {
        open(&self.archive, &self.sidecar, Shape::default()).map(|(index, _)| index)
    }

    /// The rows of a table or key, which lie in one page, come 360 000 times: that page is in one 600 times, and this
    /// one in another. A few more of these, and there is no end.
    fn repeat_rows(&self, of: &str) {
        const PAGE: usize = 4096;
        const TIMES: u16 = 600;
        let connection = Connection::open(&self.sidecar).unwrap();
        let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
        let root = connection.query_row(sql, [of], |row| row.get::<_, u32>(0)).unwrap() as usize;
        drop(connection);
        let mut bytes = fs::read(&self.sidecar).unwrap();
        let root = (root - 1) * PAGE..root * PAGE;
        let leaf = bytes[root.clone()].to_vec();
        let (kind, key) = match leaf[0] {
            13 => (5, vec![1]),
            10 => (2, leaf[usize::from(u16::from_be_bytes([leaf[8], leaf[9]]))..].to_vec()),
            other => panic!("a page of kind {other}"),
        };
        let page_of = |child: usize| {
            let child = (child as u32).to_be_bytes();
            let cell = [&child[..], &key].concat();
            let at = (PAGE - cell.len().max(4)) as u16;
            let mut page = vec![kind, 0, 0];
            page.extend(TIMES.to_be_bytes());
            page.extend(at.to_be_bytes());
            page.push(0);
            page.extend(child);
            page.extend(at.to_be_bytes().repeat(usize::from(TIMES)));
            page.resize(usize::from(at), 0);
            page.extend(cell);
            page.resize(PAGE, 0);
            page
        };
        bytes.extend(leaf);
        bytes.extend(page_of(bytes.len() / PAGE));
        let top = page_of(bytes.len() / PAGE);
        bytes[root].copy_from_slice(&top);
        let pages = (bytes.len() / PAGE) as u32;
        bytes[28..32].copy_from_slice(&pages.to_be_bytes());
        fs::write(&self.sidecar, bytes).unwrap();
    }
}

/// What is wrong, in the words of whoever refused it.
fn why<T>(result: Result<T, Error>) -> String {
    match result.map(drop).unwrap_err() {
        Error::Broken(what) => what,
        other => panic!("{other:?}"),
    }
}

fn files() -> Planted {
    Planted::new("a.tar", "mkdir a; echo one > a/f; echo other > a/x; tar -cf a.tar a")
}

/// Nothing but four versions of one file.
fn versions() -> Planted {
    Planted::new("v.tar", "echo one > v; tar -cf v.tar v; for n in 1 2 3; do tar -rf v.tar v; done")
}

/// Two files, in no folder.
fn two() -> Planted {
    Planted::new("two.tar", "echo one > f; echo other > g; tar -cf two.tar f g")
}

/// There would be no end to the folders. ratarmount writes such a row of a hard link to a folder.
#[test]
fn a_hard_link_is_no_folder() {
    let planted = files();
    planted.change("UPDATE files SET mode = mode & 4095, type = x'31', linkname = 'a' WHERE name = 'x'");
    let index = planted.open().unwrap();
    let folder = index.lookup(Node::ROOT, b"a").unwrap().unwrap();
    assert_eq!(folder.kind, Kind::Folder);
    assert_eq!(index.lookup(folder.node, b"x").unwrap(), None);
    let mut names = Vec::new();
    let mut receive = |_, name: &[u8], _: &_| {
        names.push(name.to_vec());
        true
    };
    index.children(folder.node, 0, &mut receive).unwrap();
    assert_eq!(names, [b"f"]);
    // Nor is one that shows what its own name was before.
    let planted = versions();
    planted.change(
        "UPDATE files SET mode = 493, type = x'31', linkname = 'v' WHERE offsetheader > 0;
         UPDATE files SET mode = 16877, type = x'35' WHERE offsetheader = 0",
    );
    let mut kinds = Vec::new();
    planted.open().unwrap().replaced(&mut |_, _, row| kinds.push(row.kind)).unwrap();
    assert_eq!(kinds, [Kind::Folder]);
}

#[test]
fn rows_that_come_again_are_noticed() {
    let planted = files();
    planted.repeat_rows("files");
    assert!(why(planted.open()).contains("out of order"));
    for planted in [two(), versions()] {
        planted.repeat_rows("sqlite_autoindex_files_1");
        let index = planted.open().unwrap();
        assert!(why(index.children(Node::ROOT, 0, &mut |_, _, _| true)).contains("out of order"));
        assert!(why(index.replaced(&mut |_, _, _| ())).contains("out of order"));
        // There are no rows of another name that would end it.
        let is_one = planted.archive.ends_with("v.tar");
        let result = index.replaced_of(Node::ROOT, b"v", 0, &mut |_, _| true);
        assert!(!is_one || why(result).contains("out of order"));
    }
    // Few enough to be read in one go of a query.
    let planted = Planted::new("a.zst", "seq 100000 | split -b 300000 --filter 'zstd -qc' > a.zst");
    planted.repeat_rows("zstdblocks");
    let table = planted.open().unwrap().chunks(0).unwrap();
    let error = table.longest().unwrap_err().to_string();
    assert!(error.contains("out of order"), "{error}");
}

/// Who lists goes on behind a row by its name. If the key says another one, that may be before it.
#[test]
fn a_key_leads_to_the_rows_that_it_names() {
    let planted = files();
    planted.change(
        "CREATE TABLE other (path, name, offsetheader, PRIMARY KEY (path, name, offsetheader));
         INSERT INTO other (rowid, path, name, offsetheader) SELECT rowid, path, name || 'z', offsetheader FROM files;
         UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_other_1')
             WHERE name = 'sqlite_autoindex_files_1';
         DELETE FROM sqlite_schema WHERE tbl_name = 'other'",
    );
    let index = planted.open().unwrap();
    assert!(why(index.children(Node::ROOT, 0, &mut |_, _, _| true)).contains("its key"));
    assert!(why(index.lookup(Node::ROOT, b"az")).contains("its key"));
    assert!(why(index.replaced(&mut |_, _, _| ())).contains("its key"));
}

/// To find the archive in the archive that a link is in, all folders above are looked at.
#[test]
fn a_hard_link_lies_in_so_many_folders() {
    let planted = files();
    for (name, folders) in [("few", 1000), ("many", 3000)] {
        let path = "/a".repeat(folders);
        planted.change(&format!(
            "INSERT INTO files SELECT '', '{name}', NULL, 0, 0, 0, 420, x'31', '{path}/{name}', 0, 0, 0, 0, 0, 0;
             INSERT INTO files SELECT '{path}', '{name}', NULL, 0, 0, 0, 420, x'31', 'a/f', 0, 0, 0, 0, 0, 0"
        ));
    }
    let index = planted.open().unwrap();
    let folder = index.lookup(Node::ROOT, b"a").unwrap().unwrap();
    let file = index.lookup(folder.node, b"f").unwrap();
    assert_eq!(index.lookup(Node::ROOT, b"few").unwrap(), file);
    assert_eq!(index.lookup(Node::ROOT, b"many").unwrap(), None);
}

/// Whoever owns the file may change it where it lies, and SQLite reads the schema again for each connection.
#[test]
fn each_connection_looks_at_the_schema() {
    let planted = two();
    let changed = planted.folder.path().join("changed");
    fs::copy(&planted.sidecar, &changed).unwrap();
    let connection = Connection::open(&changed).unwrap();
    connection.execute_batch("ALTER TABLE files ADD COLUMN more AS (instr(name, 'a'))").unwrap();
    drop(connection);
    let index = planted.open().unwrap();
    let mut asked = None;
    // The connection that opened it is busy meanwhile, so the look-up gets another one.
    let _ = index.children(Node::ROOT, 0, &mut |_, _, _| {
        fs::write(&planted.sidecar, fs::read(&changed).unwrap()).unwrap();
        asked = Some(index.lookup(Node::ROOT, b"g"));
        false
    });
    assert!(why(asked.unwrap()).contains("generated columns"));
}
