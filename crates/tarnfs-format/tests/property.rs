//! Any tree that a tar can store reads back as it is on the disk.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use common::twin::compare_all;
use common::{has, read, sh};
use proptest::prelude::*;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

#[derive(Debug, Clone)]
enum Node {
    File(Vec<u8>),
    Folder,
    Symlink(Vec<u8>),
    /// Data at these places of a file of a megabyte.
    Sparse(Vec<u64>),
    /// Another name of the first file.
    Hard,
}

#[derive(Debug, Clone)]
struct Made {
    name: Vec<u8>,
    node: Node,
    mode: u32,
    time: (i64, u32),
}

fn name(longest: usize) -> impl Strategy<Value = Vec<u8>> {
    let byte = (1_u8..=255).prop_filter("no slash", |byte| *byte != b'/');
    let names = prop_oneof![
        4 => "[a-c]{1,3}".prop_map(String::into_bytes),
        1 => prop::collection::vec(byte, 1..=longest),
        1 => (1..=longest).prop_map(|length| vec![b'n'; length]),
    ];
    names.prop_filter("no dots", |name| name != b"." && name != b"..")
}

fn node(target: usize) -> impl Strategy<Value = Node> {
    prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..2000).prop_map(Node::File),
        2 => Just(Node::Folder),
        1 => prop::collection::vec(1_u8..=255, 1..=target).prop_map(Node::Symlink),
        1 => prop::collection::vec(0_u64..256, 0..40).prop_map(Node::Sparse),
        1 => Just(Node::Hard),
    ]
}

fn made(name_length: usize, target: usize, times: std::ops::Range<i64>) -> impl Strategy<Value = Made> {
    (name(name_length), node(target), 0_u32..0o10000, times, 0_u32..1_000_000_000)
        .prop_map(|(name, node, mode, seconds, nanoseconds)| Made { name, node, mode, time: (seconds, nanoseconds) })
}

/// Makes the nodes under `top`: each in the folder that was made last but one, where there is one.
fn make(top: &Path, nodes: &[Made]) {
    fs::create_dir(top).unwrap();
    let mut folders = vec![top.to_owned()];
    let mut first = None;
    let mut paths = Vec::new();
    for made in nodes {
        let folder = &folders[folders.len().saturating_sub(2)];
        let path = folder.join(OsStr::from_bytes(&made.name));
        if fs::symlink_metadata(&path).is_ok() {
            continue;
        }
        match &made.node {
            Node::File(bytes) => {
                fs::write(&path, bytes).unwrap();
                first.get_or_insert(path.clone());
            }
            Node::Folder => {
                fs::create_dir(&path).unwrap();
                folders.push(path.clone());
            }
            Node::Symlink(target) => symlink(OsStr::from_bytes(target), &path).unwrap(),
            Node::Sparse(places) => {
                let file = fs::File::create(&path).unwrap();
                file.set_len(1 << 20).unwrap();
                for place in places {
                    file.write_all_at(b"data", place * 4096).unwrap();
                }
            }
            Node::Hard => match &first {
                Some(first) => fs::hard_link(first, &path).unwrap(),
                None => continue,
            },
        }
        paths.push((path, made));
    }
    // From the inside out: what is made in a folder changes its time.
    for (path, made) in paths.iter().rev() {
        if !matches!(made.node, Node::Symlink(_)) {
            fs::set_permissions(path, fs::Permissions::from_mode(made.mode)).unwrap();
        }
        let time = Timespec { tv_sec: made.time.0, tv_nsec: made.time.1.into() };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

fn check(nodes: &[Made], commands: &[&str]) {
    for command in commands {
        let folder = tempfile::tempdir().unwrap();
        make(&folder.path().join("tree"), nodes);
        sh(folder.path(), command);
        if !command.contains("posix") {
            // Whole seconds are all that these store, and bsdtar writes the nanoseconds before 1970 wrong: as GNU tar
            // reads it, then.
            sh(folder.path(), "mkdir twin; tar -xpf a.tar -C twin --numeric-owner --delay-directory-restore");
        }
        let archive = fs::read(folder.path().join("a.tar")).unwrap();
        let told = read(&archive);
        assert_eq!(told.damage, []);
        let twin = folder.path().join("twin");
        if twin.exists() {
            compare_all(archive, &told, &twin);
        } else {
            // The tree is in the archive as "tree": its folder is all that the comparison must not see.
            fs::create_dir(&twin).unwrap();
            fs::rename(folder.path().join("tree"), twin.join("tree")).unwrap();
            compare_all(archive, &told, &twin);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn trees_in_formats_without_bounds(nodes in prop::collection::vec(made(255, 1000, -3_000_000_000..5_000_000_000), 0..25)) {
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        check(&nodes, &[
            "tar --format=posix -cf a.tar tree",
            "tar --format=posix --sparse -cf a.tar tree",
            "tar --format=posix --sparse --sparse-version=0.1 -cf a.tar tree",
            "tar --format=gnu --sparse -cf a.tar tree",
            "tar --format=oldgnu -cf a.tar tree",
        ]);
        if has("bsdtar") {
            check(&nodes, &["bsdtar --format=pax -cf a.tar tree"]);
        }
    }

    #[test]
    fn trees_in_ustar_and_v7(nodes in prop::collection::vec(made(6, 90, 0..5_000_000_000), 0..12)) {
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        check(&nodes, &["tar --format=ustar -cf a.tar tree", "tar --format=v7 -cf a.tar tree"]);
    }
}
