//! Archives and folders that are opened and put together by a library call, as the command does it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarnfs_index::{Recursion, Shape, trust};
use tarnfs_tree::build::Progress;
use tarnfs_tree::open::{FileFacts, IndexPlace, OpenArchive, Options, Problem};
use tarnfs_tree::{AssembleError, ComposeError, Composition, Location, Observer, assemble};

use common::{archives, memory, options, paths};

/// The small archive of all tests, as bytes that are given.
fn given(path: &str) -> Location {
    let (_, tar) = archives().into_iter().find(|(name, _)| *name == "tar").unwrap();
    let owner = trust::Owner { user: 0, group: 0, mode: 0o644 };
    let facts = FileFacts { owner, modified: 1_700_000_000_000_000_000 };
    Location::Source { source: memory(path, &tar), facts, path: PathBuf::from(path) }
}

/// Writes down what it is told.
#[derive(Default)]
struct Log(RefCell<Vec<String>>);

impl Observer for Log {
    fn opens(&self, path: &Path, _: &Arc<Progress>) {
        self.0.borrow_mut().push(format!("opens {}", path.display()));
    }

    fn opened(&self, number: usize, path: &Path, archive: Result<&OpenArchive, &Problem>) {
        let what = if archive.is_ok() { "opened" } else { "cannot open" };
        self.0.borrow_mut().push(format!("{what} {number} {}", path.display()));
    }
}

#[test]
fn a_folder_and_an_archive_become_one_tree() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("new"), "n").unwrap();
    let locations = [given("a.tar"), Location::Path(folder.path().to_owned())];
    let log = Log::default();
    let union = assemble(&locations, &Composition::default(), &options(), &log).unwrap();
    let alone = assemble(&locations[..1], &Composition::default(), &options(), &()).unwrap();
    let mut expected = paths(&*alone.tree);
    expected.push(b"/new".to_vec());
    expected.sort();
    assert_eq!(paths(&*union.tree), expected);
    assert_eq!((union.folders.len(), union.is_lazy, union.first), (1, false, None));
    assert_eq!(log.0.into_inner(), ["opens a.tar", "opened 0 a.tar"]);

    let beside = Composition { union: false, ..Composition::default() };
    let beside = assemble(&locations, &beside, &options(), &()).unwrap();
    let name = folder.path().file_name().unwrap().as_encoded_bytes().to_vec();
    assert!(paths(&*beside.tree).contains(&[b"/", name.as_slice(), b"/new"].concat()));
    assert!(paths(&*beside.tree).contains(&b"/a.tar".to_vec()));
}

#[test]
fn archives_in_a_folder_are_opened_as_somebody_looks_into_them() {
    let folder = tempfile::tempdir().unwrap();
    let (_, tar) = archives().into_iter().find(|(name, _)| *name == "tar").unwrap();
    std::fs::write(folder.path().join("inner.tar"), tar).unwrap();
    let recursion = Recursion { extensions: vec!["tar".to_owned()], ..Recursion::default() };
    let shape = Shape { recursion: Some(recursion), ..options().shape };
    let options = Options { shape, ..options() };
    let log = Log::default();
    let locations = [Location::Path(folder.path().to_owned())];
    let assembly = assemble(&locations, &Composition::default(), &options, &log).unwrap();
    assert!(assembly.is_lazy);
    let alone = assemble(&[given("a.tar")], &Composition::default(), &options, &()).unwrap();
    assert_eq!(paths(&*assembly.tree).len(), paths(&*alone.tree).len() + 1);
    // Nothing was opened before.
    assert!(log.0.into_inner().is_empty());
}

#[test]
fn what_cannot_be_opened_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "no archive").unwrap();
    let log = Log::default();
    let locations = [given("a.tar"), Location::Path(text.clone()), given("b.tar")];
    let error = assemble(&locations, &Composition::default(), &options(), &log).unwrap_err();
    assert!(matches!(&error, AssembleError::Archive { path, .. } if *path == text), "{error}");
    assert!(error.to_string().starts_with(&format!("{}: ", text.display())), "{error}");
    let cannot = format!("cannot open 1 {}", text.display());
    assert_eq!(log.0.into_inner(), ["opens a.tar", "opened 0 a.tar", &format!("opens {}", text.display()), &cannot]);

    let prefix = Composition { prefix: Some(b"not/there".to_vec()), ..Composition::default() };
    let error = assemble(&locations[..1], &prefix, &options(), &()).unwrap_err();
    assert!(matches!(error, AssembleError::Compose(ComposeError::Prefix { .. })), "{error}");

    let mut one_file = options();
    one_file.index.place = IndexPlace::File(folder.path().join("index"));
    let both = [given("a.tar"), given("b.tar")];
    let error = assemble(&both, &Composition::default(), &one_file, &()).unwrap_err();
    assert!(matches!(error, AssembleError::OneIndexFile), "{error}");
    assert!(!folder.path().join("index").exists());
}

#[test]
fn nothing_is_an_empty_folder() {
    let assembly = assemble(&[], &Composition::default(), &options(), &()).unwrap();
    assert!(paths(&*assembly.tree).is_empty());
}
