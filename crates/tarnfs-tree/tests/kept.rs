//! Indexes of every released schema, kept as files: each is opened and shows the same tree.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tarnfs_tree::open::{IndexOptions, IndexPlace, Options, Recreate, Sink};

use common::{archives, memory, open, options, survey};

fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/indexes").join(name)
}

fn with_index(place: &Path, recreate: Recreate) -> Options {
    Options {
        index: IndexOptions { place: IndexPlace::File(place.to_owned()), recreate, ..options().index },
        ..options()
    }
}

/// Hard links to a file that was replaced later: ratarmount shows its latest version there.
const LINKS: [&str; 2] = ["/folder/hard", "/zz"];

#[test]
fn every_released_schema_is_opened() {
    let (_, archive) = archives().swap_remove(0);
    let source = || memory("tree.tar.gz", &archive);
    let expected = open(source(), &options()).unwrap();
    let expected = survey(&*expected.tree, &mut |path, error| panic!("{path:?}: {error}"));
    let folder = tempfile::tempdir().unwrap();
    if std::env::var_os("TARNFS_TEST_WRITE_INDEX").is_some() {
        let path = folder.path().join("new");
        open(source(), &with_index(&path, Recreate::Always)).unwrap();
        fs::copy(path, kept("tarnfs-1")).unwrap();
    }
    for name in ["tarnfs-1", "ratarmount-0.5", "ratarmount-0.6", "ratarmount-0.7"] {
        // Of this user, whoever owns the repository.
        let path = folder.path().join(name);
        fs::write(&path, fs::read(kept(name)).unwrap()).unwrap();
        let opened =
            open(source(), &with_index(&path, Recreate::Never)).unwrap_or_else(|problem| panic!("{name}: {problem}"));
        assert!(!opened.is_new);
        let found = survey(&*opened.tree, &mut |path, error| panic!("{name} {path:?}: {error}"));
        let is_own = name.starts_with("tarnfs");
        // Sidecars of ratarmount have names that are not UTF-8 in an escaped form.
        for (path, (what, content)) in expected.iter().filter(|(path, _)| is_own || std::str::from_utf8(path).is_ok()) {
            let shown = String::from_utf8_lossy(path);
            if !is_own && LINKS.contains(&&*shown) {
                let latest = expected.get(&b"/file"[..]).unwrap();
                assert!(found.get(path) == Some(latest), "{name}: {shown} is not what /file is");
                continue;
            }
            let (found, found_content) = found.get(path).unwrap_or_else(|| panic!("{name}: {shown} is missing"));
            assert!(found_content == content, "{name}: {shown} has another content");
            // Sidecars of ratarmount do not have the numbers of devices; they come from headers that would have to be
            // decoded.
            assert!(found == what || !is_own && what.contains("Device"), "{name}: {shown} is {found}, not {what}");
        }
        assert_eq!(found.len(), expected.len(), "{name}");
    }
}

/// All tables of an index, each with its rows, and what says of which kind the file is.
fn tables(path: &Path) -> Vec<(String, Vec<String>)> {
    let connection = rusqlite::Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let rows = |sql: &str| -> Vec<String> {
        let mut query = connection.prepare(sql).unwrap();
        let columns = query.column_count();
        let row = |row: &rusqlite::Row<'_>| {
            (0..columns).map(|column| row.get_ref(column).map(|value| format!("{value:?} "))).collect()
        };
        query.query_map([], row).unwrap().collect::<Result<_, _>>().unwrap()
    };
    let names = connection.prepare("SELECT name FROM sqlite_schema").unwrap();
    let names: Vec<String> = { names }.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    let kind = ["application_id", "user_version", "page_size", "integrity_check"];
    let kind = kind.map(|what| (what.to_owned(), rows(&format!("PRAGMA {what}"))));
    let schema = ("schema".to_owned(), rows("SELECT type, name, sql FROM sqlite_schema"));
    let tables = names.iter().map(|name| (name.clone(), rows(&format!("SELECT * FROM {name}"))));
    kind.into_iter().chain([schema]).chain(tables).collect()
}

/// What is written today is the schema that it says it is: another one needs another number.
#[test]
fn the_schema_is_the_one_that_was_kept() {
    let (_, archive) = archives().swap_remove(0);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    open(memory("tree.tar.gz", &archive), &with_index(&path, Recreate::Always)).unwrap();
    assert_eq!(
        tables(&path),
        tables(&kept("tarnfs-1")),
        "the schema has changed: once it is released it needs another number (see tests/indexes/README.md)"
    );
}

/// In the middle of a first pass, somebody puts a new archive in the place of the old one, and makes its index.
#[derive(Debug)]
struct Meanwhile {
    archive: PathBuf,
    newer: Vec<u8>,
    is_done: AtomicBool,
}

fn beside() -> Options {
    Options { index: IndexOptions { place: IndexPlace::Folders(vec![PathBuf::new()]), ..options().index }, ..options() }
}

impl Sink for Meanwhile {
    fn write(&self, _decoded: &[u8]) -> io::Result<()> {
        if !self.is_done.swap(true, Ordering::Relaxed) {
            let new = self.archive.with_extension("new");
            fs::write(&new, &self.newer)?;
            fs::rename(new, &self.archive)?;
            assert!(tarnfs_tree::open::open(&self.archive, &beside()).unwrap().index_path.is_some());
        }
        Ok(())
    }
}

#[test]
fn who_has_read_an_older_archive_leaves_the_index_of_the_newer_one() {
    let mut archives = archives();
    let (newer, older) = (archives.swap_remove(1).1, archives.swap_remove(0).1);
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("a");
    fs::write(&archive, older).unwrap();
    let meanwhile = Arc::new(Meanwhile { archive: archive.clone(), newer, is_done: AtomicBool::new(false) });
    let sink: Arc<dyn Sink> = Arc::<Meanwhile>::clone(&meanwhile);
    let opened = tarnfs_tree::open::open(&archive, &Options { sink: Some(sink), ..beside() }).unwrap();
    assert!(meanwhile.is_done.load(Ordering::Relaxed));
    assert_eq!(opened.index_path, None);
    let next = tarnfs_tree::open::open(
        &archive,
        &Options { index: IndexOptions { recreate: Recreate::Never, ..beside().index }, ..beside() },
    );
    assert!(next.is_ok_and(|next| next.index_path.is_some()));
}
