//! What is left in the folder of an overlay.

use super::*;

/// Names in it that are not its own.
fn others(of: &tempfile::TempDir) -> Vec<std::ffi::OsString> {
    let names = fs::read_dir(of.path()).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| !files::is_ours(std::os::unix::ffi::OsStrExt::as_bytes(name.as_os_str()))).collect()
}

fn folder(tree: &OverlayTree, above: Node, name: &[u8]) -> Node {
    let new = New { kind: Kind::Folder, mode: 0o755, umask: 0, uid: 0, gid: 0, target: Vec::new() };
    tree.edit().unwrap().make(above, name, &new).unwrap().node
}

/// A file that is renamed stays at its place, so nothing names the folders of that any more when they are removed.
#[test]
fn no_folder_is_left_that_something_was_moved_out_of() {
    let (tree, _below, written) = over_folder();
    let edit = tree.edit().unwrap();
    let outer = folder(&tree, Node::ROOT, b"outer");
    let inner = folder(&tree, outer, b"inner");
    let file = write(&tree, inner, b"file", b"mine");
    edit.rename((inner, b"file"), (Node::ROOT, b"file"), Renaming::Replaces).unwrap();
    edit.remove(outer, b"inner", true).unwrap();
    edit.remove(Node::ROOT, b"outer", true).unwrap();
    for node in [file, inner, outer] {
        tree.forget(node, u64::MAX);
    }
    tree.finish();
    assert!(written.path().join("outer/inner/file").is_file());
    tree.remove_empty_folders();
    assert_eq!(read(&tree, Node::ROOT, b"file").unwrap(), b"mine");
    // Of somebody else. What is no folder is his, and so is what leads to one.
    fs::create_dir(written.path().join("theirs")).unwrap();
    fs::write(written.path().join("theirs/file"), "theirs").unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::create_dir(elsewhere.path().join("folder")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), written.path().join("theirs/link")).unwrap();
    tree.empty(true).unwrap();
    assert_eq!(others(&written), ["theirs"]);
    assert!(written.path().join("theirs/file").is_file() && elsewhere.path().join("folder").is_dir());
}

/// What is removed just before the end goes with the folders that it was in.
#[test]
fn what_is_removed_in_the_end_leaves_no_folders() {
    let (tree, _below, written) = over_folder();
    let edit = tree.edit().unwrap();
    let mut folders = vec![Node::ROOT];
    for name in [b"a", b"b", b"c", b"d", b"e", b"f"] {
        folders.push(folder(&tree, folders[folders.len() - 1], name));
    }
    let file = write(&tree, folders[6], b"g", b"mine");
    edit.remove(folders[6], b"g", false).unwrap();
    for (above, name) in folders.iter().zip([b"a", b"b", b"c", b"d", b"e", b"f"]).rev() {
        edit.remove(*above, name, true).unwrap();
    }
    // Known to somebody until now.
    for node in folders.into_iter().skip(1).chain([file]) {
        tree.forget(node, u64::MAX);
    }
    tree.finish();
    assert_eq!(others(&written), [""; 0]);
}
