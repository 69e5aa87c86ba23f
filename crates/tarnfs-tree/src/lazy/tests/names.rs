//! Archives of which one file has several names.

use tarnfs_index::trust;

use super::*;
use crate::open::open_source;

/// A tar of an archive that has two names in two folders, and one more in the first.
fn linked(archive: &[u8]) -> Vec<u8> {
    let file = tar("a/x.tar", archive);
    let mut all = file[..file.len() - 1024].to_vec();
    for name in ["b/y.tar", "a/z.tar"] {
        let mut link = tar(name, b"")[..512].to_vec();
        link[156] = b'1';
        link[157..164].copy_from_slice(b"a/x.tar");
        link[148..156].fill(b' ');
        let sum: u32 = link.iter().map(|&byte| u32::from(byte)).sum();
        link[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        all.extend(link);
    }
    all.resize(all.len() + 1024, 0);
    all
}

/// > An archive of several names that is opened lazily is a folder of its own under each of them: what is written to
/// > one, or removed, does not touch the others.
#[test]
fn each_name_of_an_archive_is_another_folder() {
    let archive = tar("file", b"content");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("a")).unwrap();
    std::fs::create_dir(path("b")).unwrap();
    std::fs::write(path("a/x.tar"), &archive).unwrap();
    std::fs::hard_link(path("a/x.tar"), path("b/y.tar")).unwrap();
    std::fs::hard_link(path("a/x.tar"), path("a/z.tar")).unwrap();
    let source: SharedSource = Arc::new(MemorySource::new(linked(&archive), "all.tar"));
    let owner = trust::Owner { user: 0, group: 0, mode: 0o644 };
    let options = Options {
        index: IndexOptions { place: IndexPlace::Memory, ..IndexOptions::default() },
        decoding: DecodingOptions { threads: 1, ..DecodingOptions::default() },
        ..Options::default()
    };
    let facts = FileFacts { owner, modified: 0, identity: None };
    let opened = open_source(source, facts, std::path::Path::new("all.tar"), &options).unwrap();
    let of_folder = Base::Folder(Arc::new(FolderTree::open(folder.path()).unwrap()));
    for (base, what) in [(of_folder, "a folder"), (Base::Other(opened.tree as _), "a tar")] {
        let tree = LazyTree::new(base, how(None)).unwrap();
        let [a, b] = [b"a", b"b"].map(|name| tree.lookup(Node::ROOT, name).unwrap().node);
        let look = |folder: Node, name: &[u8]| {
            let found = tree.lookup(folder, name).unwrap();
            assert_eq!(found.kind, Kind::Folder, "{what}");
            found.node
        };
        let names: [(Node, &[u8]); 3] = [(a, b"x.tar"), (b, b"y.tar"), (a, b"z.tar")];
        let nodes = names.map(|(folder, name)| look(folder, name));
        assert!(nodes[0] != nodes[1] && nodes[1] != nodes[2] && nodes[0] != nodes[2], "{what}: {nodes:?}");
        for (node, (folder, name)) in nodes.into_iter().zip(names) {
            assert_eq!(tree.parent(node).unwrap(), folder, "{what}");
            let file = tree.lookup(node, b"file").unwrap();
            assert_eq!(read(&tree, file.node), b"content", "{what}");
            tree.forget(file.node, 1);
            // It stays the same one.
            assert_eq!(look(folder, name), node, "{what}");
            tree.forget(node, 1);
        }
        // One that is forgotten takes no other one with it.
        tree.forget(nodes[1], 1);
        assert!(tree.lookup(nodes[0], b"file").is_ok(), "{what}");
        assert_eq!(look(a, b"x.tar"), nodes[0], "{what}");
    }
}
