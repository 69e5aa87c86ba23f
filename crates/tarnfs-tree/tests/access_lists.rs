//! Access control lists of archives in archives.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use tarnfs_index::Recursion;
use tarnfs_tree::{DEFAULT_EXTENSIONS, Kind, Node, Tree as _};

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
