//! Archives whose folder is moved, and a link put in its place, by whoever may write the folder above.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tarnfs_index::{Recursion, Shape};
use tarnfs_tree::open::{IndexOptions, IndexPlace, Options, Sink, open};
use tarnfs_tree::{Base, FolderTree, Lazily, LazyTree, Node, Tree};

/// `root/d` with an archive in it, and `root/other`.
fn folders() -> (tempfile::TempDir, PathBuf) {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().canonicalize().unwrap();
    let made = "mkdir d other && seq 100000 > file && tar -czf d/a.tar.gz file";
    assert!(Command::new("sh").args(["-c", made]).current_dir(&root).status().unwrap().success());
    (scratch, root)
}

fn move_away(root: &Path) {
    fs::rename(root.join("d"), root.join("moved")).unwrap();
    symlink("other", root.join("d")).unwrap();
}

fn options() -> Options {
    Options {
        index: IndexOptions {
            place: IndexPlace::Folders(vec![PathBuf::new()]),
            minimum_file_count: 0,
            ..IndexOptions::default()
        },
        ..Options::default()
    }
}

#[track_caller]
fn index_is_beside(root: &Path) {
    assert!(root.join("moved/a.tar.gz.tarnfs.sqlite").exists());
    assert_eq!(fs::read_dir(root.join("other")).unwrap().count(), 0);
}

/// Moves the folder as soon as something is decoded.
#[derive(Debug)]
struct Mover(PathBuf);

impl Sink for Mover {
    fn write(&self, _: &[u8]) -> io::Result<()> {
        if !self.0.join("moved").exists() {
            move_away(&self.0);
        }
        Ok(())
    }
}

#[test]
fn an_index_lies_where_the_archive_was_opened() {
    let (_scratch, root) = folders();
    let path = root.join("d/a.tar.gz");
    let opened = open(&path, &Options { sink: Some(Arc::new(Mover(root.clone()))), ..options() }).unwrap();
    index_is_beside(&root);
    assert_eq!(opened.index_path, Some(root.join("d/a.tar.gz.tarnfs.sqlite")));
    // It is found there.
    assert!(!open(&root.join("moved/a.tar.gz"), &options()).unwrap().is_new);
}

#[test]
fn so_does_that_of_an_archive_that_is_opened_later() {
    let (_scratch, root) = folders();
    let folder = Arc::new(FolderTree::open(&root.join("d")).unwrap());
    let extensions = ["tar.gz", "gz", "tar"].map(str::to_owned).to_vec();
    let recursion = Recursion { extensions, ..Recursion::default() };
    let shape = Shape { recursion: Some(recursion), ..Shape::default() };
    let how = Lazily { options: Options { shape, ..options() }, all: false, most_open: 4, mountpoint: None };
    let tree = LazyTree::new(Base::Folder(folder), how).unwrap();
    move_away(&root);
    let archive = tree.lookup(Node::ROOT, b"a.tar.gz").unwrap();
    tree.lookup(archive.node, b"file").unwrap();
    index_is_beside(&root);
}
