//! Comparing what an archive tells with files on a disk.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarnfs_format::{Entry, Kind};
use tarnfs_source::{FileSource, MemorySource, SharedSource, Source};

use super::{Told, open, tree};

/// Compares everything that `archive` told with everything under `twin`: names, attributes and bytes.
pub(crate) fn compare_all(archive: Vec<u8>, told: &Told, twin: &Path) {
    let tree = tree(told);
    let mut extracted = BTreeMap::new();
    walk(twin, twin, &mut extracted);
    let names = |tree: &mut dyn Iterator<Item = &PathBuf>| tree.cloned().collect::<Vec<_>>();
    assert_eq!(names(&mut tree.keys()), names(&mut extracted.keys()));
    let source: SharedSource = Arc::new(MemorySource::new(archive, "archive"));
    for (path, metadata) in &extracted {
        compare(&source, tree[path], metadata, &twin.join(path));
    }
}

fn walk(top: &Path, folder: &Path, found: &mut BTreeMap<PathBuf, Metadata>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let metadata = fs::symlink_metadata(&path).unwrap();
        let is_folder = metadata.is_dir();
        found.insert(path.strip_prefix(top).unwrap().to_owned(), metadata);
        if is_folder {
            walk(top, &path, found);
        }
    }
}

fn compare(archive: &SharedSource, entry: &Entry, metadata: &Metadata, path: &Path) {
    let shown = path.display();
    let kind = metadata.file_type();
    let device = |device: tarnfs_format::Device| (device.major, device.minor);
    let found = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    match entry.kind {
        Kind::File => assert!(kind.is_file(), "{shown}"),
        Kind::Folder => assert!(kind.is_dir(), "{shown}"),
        Kind::Fifo => assert!(kind.is_fifo(), "{shown}"),
        Kind::Symlink => {
            assert_eq!(fs::read_link(path).unwrap().as_os_str().as_bytes(), entry.link, "{shown}");
        }
        Kind::CharacterDevice(stored) => {
            assert!(kind.is_char_device(), "{shown}");
            assert_eq!(device(stored), found, "{shown}");
        }
        Kind::BlockDevice(stored) => {
            assert!(kind.is_block_device(), "{shown}");
            assert_eq!(device(stored), found, "{shown}");
        }
        other => panic!("{shown}: {other:?}"),
    }
    if entry.kind != Kind::Symlink {
        assert_eq!(entry.mode, metadata.mode() & 0o7777, "mode of {shown}");
    }
    if rustix::process::geteuid().is_root() {
        assert_eq!((entry.uid, entry.gid), (metadata.uid().into(), metadata.gid().into()), "owner of {shown}");
    }
    let stored = (entry.mtime.seconds, i64::from(entry.mtime.nanoseconds));
    assert_eq!(stored, (metadata.mtime(), metadata.mtime_nsec()), "time of {shown}");
    let mut xattrs: Vec<(Vec<u8>, Vec<u8>)> = entry.xattrs.clone();
    xattrs.sort();
    assert_eq!(xattrs, stored_xattrs(path), "attributes of {shown}");
    if entry.kind == Kind::File {
        assert_eq!(entry.body.size, metadata.size(), "size of {shown}");
        let (source, twin) = (open(archive, entry), FileSource::open(path).unwrap());
        let (mut one, mut other) = (vec![0; 1 << 20], vec![0; 1 << 20]);
        // Of very long files the ends: they are holes in between.
        for start in [0, 1 << 20, metadata.size().saturating_sub(1 << 20)] {
            let length = source.read_at(&mut one, start).unwrap();
            assert_eq!(length, twin.read_at(&mut other, start).unwrap(), "{shown}");
            assert!(one[..length] == other[..length], "content of {shown} at {start}");
        }
    }
}

fn stored_xattrs(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut names = vec![0; 65536];
    let length = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let mut found: Vec<_> = names[..length]
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let mut value = vec![0; 65536];
            let name = OsString::from(String::from_utf8(name.to_vec()).unwrap());
            let length = rustix::fs::lgetxattr(path, &name, &mut value[..]).unwrap();
            (name.as_bytes().to_vec(), value[..length].to_vec())
        })
        .collect();
    found.sort();
    found
}
