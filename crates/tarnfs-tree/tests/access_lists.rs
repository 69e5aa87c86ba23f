//! Who may read archives in archives: owners, bits, and access control lists.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::sync::Arc;

use tarnfs_index::Recursion;
use tarnfs_tree::{Base, DEFAULT_EXTENSIONS, Kind, Lazily, LazyTree, Node, Tree};

use common::{archives, member, memory, open, options};

/// The entries of a list in the kernel's form: tags and bits.
fn entries(list: &[u8]) -> Vec<(u8, u8)> {
    list[4..].chunks_exact(8).map(|entry| (entry[0], entry[2])).collect()
}

/// The group bits of a mode are the mask of the list: without the list they would let the group in.
#[test]
fn an_archive_in_an_archive_keeps_its_list() {
    let found = |wanted: &str| archives().into_iter().find(|(name, _)| *name == wanted).unwrap().1;
    let (tar, gz) = (found("tar"), found("gz"));
    let list = b"78 SCHILY.acl.access=user::rw-,user:12345:r--,group::---,mask::rw-,other::---\n";
    let archive: Vec<u8> = [("in.tar", &tar), ("b.tar.gz", &gz)]
        .into_iter()
        .flat_map(|(name, bytes)| [member(b'x', "pax", list), member(b'0', name, bytes)].concat())
        .chain([0; 1024])
        .collect();
    let mut options = options();
    let extensions = DEFAULT_EXTENSIONS.map(str::to_owned).into();
    options.shape.recursion = Some(Recursion { extensions, ..Recursion::default() });
    let opened = open(memory("a.tar", &archive), &options).unwrap();
    for name in ["in.tar", "b.tar.gz"] {
        let folder = opened.tree.lookup(Node::ROOT, name.as_bytes()).unwrap();
        assert_eq!(folder.kind, Kind::Folder);
        let list = opened.tree.xattr(folder.node, b"system.posix_acl_access").unwrap().expect(name);
        // The owner, the user, the group, the mask, others: who may read may look into it.
        assert_eq!(entries(&list), [(1, 7), (2, 5), (4, 0), (16, 7), (32, 0)], "{name}");
    }
}

/// A file of a tar, with these bits and this owner.
fn owned(name: &str, content: &[u8], mode: u32, owner: u32) -> Vec<u8> {
    let mut file = member(b'0', name, content);
    file[100..108].copy_from_slice(format!("{mode:07o}\0").as_bytes());
    file[108..116].copy_from_slice(format!("{owner:07o}\0").as_bytes());
    file[148..156].fill(b' ');
    let sum: u32 = file[..512].iter().map(|&byte| u32::from(byte)).sum();
    file[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    file
}

/// The archive, with archives in it opened at once, and when somebody looks.
fn opened(archive: &[u8]) -> [Arc<dyn Tree>; 2] {
    let extensions = DEFAULT_EXTENSIONS.map(str::to_owned).into();
    let recursion = Some(Recursion { extensions, ..Recursion::default() });
    let mut recursive = options();
    recursive.shape.recursion = recursion;
    let at_once = open(memory("a.tar", archive), &recursive).unwrap().tree;
    let base = Base::Other(open(memory("a.tar", archive), &options()).unwrap().tree);
    let how = Lazily { options: recursive, all: true, most_open: 4, mountpoint: None };
    [at_once, Arc::new(LazyTree::new(base, how).unwrap())]
}

/// > An archive that was split is for those who may read all of its parts.
/// > A private file of another user is never a part, whatever it is called.
#[test]
fn a_split_archive_is_for_those_who_may_read_all_of_it() {
    let inner: Vec<u8> =
        ["f0", "f1", "f2"].iter().flat_map(|name| member(b'0', name, &[b'c'; 512])).chain([0; 1024]).collect();
    let (first, second) = inner.split_at(2048);
    for ((first_mode, first_owner), (mode, owner), shown) in [
        ((0o644, 7), (0o644, 7), Some(0o755)),
        ((0o644, 7), (0o600, 7), Some(0o700)),
        ((0o640, 7), (0o644, 7), Some(0o750)),
        ((0o644, 7), (0o640, 7), Some(0o750)),
        ((0o644, 7), (0o644, 8), Some(0o755)),
        ((0o644, 0), (0o600, 8), Some(0o700)),
        ((0o644, 7), (0o600, 8), None),
        ((0o600, 7), (0o600, 8), None),
        ((0o600, 7), (0o644, 8), None),
    ] {
        let parts = [
            owned("x.tar.001", first, first_mode, first_owner),
            owned("x.tar.002", second, mode, owner),
            vec![0; 1024],
        ];
        for tree in opened(&parts.concat()) {
            let folder = tree.lookup(Node::ROOT, b"x.tar.001").unwrap();
            let all = tarnfs_tree::path::find(&*tree, b"x.tar.001/f2", true).is_ok();
            let what = format!("{first_mode:o} of {first_owner}, {mode:o} of {owner}");
            assert_eq!(all.then_some(folder.mode & 0o777), shown, "{what}");
            let again = tree.attributes(folder.node).unwrap();
            assert_eq!((again.mode, again.uid), (folder.mode, first_owner), "{what}");
        }
    }
    // One has a list that the other one has not.
    let list = b"78 SCHILY.acl.access=user::rw-,user:12345:r--,group::---,mask::rw-,other::---\n";
    for has_list in [[true, false], [false, true], [true, true]] {
        let parts = [("x.tar.001", first), ("x.tar.002", second)].into_iter().zip(has_list);
        let parts = parts.flat_map(|((name, bytes), has_list)| {
            let list = if has_list { member(b'x', "pax", list) } else { Vec::new() };
            [list, owned(name, bytes, 0o660, 7)].concat()
        });
        for tree in opened(&parts.chain([0; 1024]).collect::<Vec<u8>>()) {
            let folder = tree.lookup(Node::ROOT, b"x.tar.001").unwrap();
            assert!(tarnfs_tree::path::find(&*tree, b"x.tar.001/f2", true).is_ok());
            let list = tree.xattr(folder.node, b"system.posix_acl_access").unwrap();
            let is_same = has_list == [true, true];
            assert_eq!(list.is_some(), is_same, "{has_list:?}");
            assert_eq!(folder.mode & 0o077 != 0, is_same, "{has_list:?}");
            let xattrs = tree.xattrs(folder.node).unwrap();
            assert_eq!(xattrs.iter().any(|(name, _)| name == b"system.posix_acl_access"), is_same, "{has_list:?}");
        }
    }
}
