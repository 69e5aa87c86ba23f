use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;

use rustix::fs::RenameFlags;

use super::*;

fn tree() -> (tempfile::TempDir, FolderTree) {
    let folder = tempfile::tempdir().unwrap();
    let tree = FolderTree::open(folder.path()).unwrap();
    (folder, tree)
}

fn list(tree: &FolderTree, folder: Node, at_once: usize) -> Vec<(Vec<u8>, Node)> {
    let (mut found, mut from) = (Vec::new(), 0);
    loop {
        let mut wanted = at_once;
        let before = found.len();
        tree.read_dir(folder, from, &mut |child| {
            if wanted == 0 {
                return false;
            }
            wanted -= 1;
            found.push((child.name.to_vec(), child.attributes.node));
            from = child.next;
            true
        })
        .unwrap();
        if found.len() == before {
            return found;
        }
    }
}

#[test]
fn a_listing_goes_on_where_it_was_whatever_is_kept_open() {
    let (folder, tree) = tree();
    for number in 0..100 {
        fs::write(folder.path().join(format!("{number}")), "").unwrap();
    }
    let all: BTreeSet<_> = list(&tree, Node::ROOT, usize::MAX).into_iter().collect();
    assert_eq!(all.len(), 100);
    for at_once in [1, 7, 99, 100, 101] {
        assert_eq!(list(&tree, Node::ROOT, at_once).into_iter().collect::<BTreeSet<_>>(), all, "{at_once}");
    }
    // From each position once more, in a folder that is opened for it.
    let mut nexts = Vec::new();
    tree.read_dir(Node::ROOT, 0, &mut |child| {
        nexts.push((child.next, child.name.to_vec()));
        true
    })
    .unwrap();
    for pair in nexts.windows(2) {
        let mut name = None;
        tree.read_dir(Node::ROOT, pair[0].0, &mut |child| {
            name = Some(child.name.to_vec());
            false
        })
        .unwrap();
        assert_eq!(name.as_ref(), Some(&pair[1].1));
        tree.close_folder(Node::ROOT);
    }
}

#[test]
fn what_has_been_replaced_is_stale_until_it_is_looked_at_again() {
    let (folder, tree) = tree();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("a")).unwrap();
    fs::write(path("a/file"), "first").unwrap();
    let a = tree.lookup(Node::ROOT, b"a").unwrap().node;
    let file = tree.lookup(a, b"file").unwrap().node;
    fs::rename(path("a"), path("b")).unwrap();
    fs::create_dir(path("a")).unwrap();
    fs::write(path("a/file"), "second").unwrap();
    for error in
        [tree.attributes(file).unwrap_err(), tree.open(file).unwrap_err(), tree.lookup(a, b"file").unwrap_err()]
    {
        assert_eq!(error.errno(), Errno::STALE);
    }
    assert_eq!(tree.lookup(Node::ROOT, b"b").unwrap().node, a, "a folder keeps its number under its new name");
    assert_eq!(tree.attributes(file).unwrap().size, 5);
    let new = tree.lookup(Node::ROOT, b"a").unwrap().node;
    assert!(new != a && tree.lookup(new, b"file").unwrap().node != file);
}

/// Attributes are those of what was found, not of what has its name a moment later: an access list among them would let
/// in whom the right one denies.
#[test]
fn what_was_found_is_asked_whatever_is_renamed_meanwhile() {
    let (folder, tree) = tree();
    let path = |name: &str| folder.path().join(name);
    for name in ["file", "other"] {
        fs::write(path(name), name).unwrap();
    }
    symlink("target", path("link")).unwrap();
    for name in [&b"file"[..], b"link"] {
        let node = tree.lookup(Node::ROOT, name).unwrap().node;
        let found = tree.find(node).unwrap();
        assert!(held(&found).is_ok());
        let exchange = || {
            let name = std::str::from_utf8(name).unwrap();
            rustix::fs::renameat_with(CWD, path(name), CWD, path("other"), RenameFlags::EXCHANGE).unwrap();
        };
        exchange();
        assert_eq!(held(&found).unwrap_err().errno(), Errno::STALE);
        exchange();
        tree.xattrs(node).unwrap();
    }
    tree.xattrs(Node::ROOT).unwrap();
}

/// Who is told that there is no access list lets everybody in whom it denies.
#[test]
fn an_access_list_that_cannot_be_read_is_an_error() {
    let list = &b"system.posix_acl_access"[..];
    for (name, read, expected) in [
        (list, Ok(b"x".to_vec()), Ok(Some(b"x".to_vec()))),
        (list, Err(Errno::NODATA), Ok(None)),
        (list, Err(Errno::NOTSUP), Ok(None)),
        (list, Err(Errno::IO), Err(Errno::IO)),
        (list, Err(Errno::ACCESS), Err(Errno::ACCESS)),
        (list, Err(Errno::PERM), Err(Errno::PERM)),
        (b"user.x", Err(Errno::ACCESS), Ok(None)),
        (b"user.x", Err(Errno::TIMEDOUT), Err(Errno::TIMEDOUT)),
    ] {
        assert_eq!(value_of(name, read).map_err(|error| error.errno()), expected, "{}", name.escape_ascii());
    }
}

#[test]
fn no_name_leads_out() {
    let (folder, tree) = tree();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "").unwrap();
    fs::create_dir(folder.path().join("inside")).unwrap();
    let inside = tree.lookup(Node::ROOT, b"inside").unwrap().node;
    fs::remove_dir(folder.path().join("inside")).unwrap();
    symlink(outside.path(), folder.path().join("inside")).unwrap();
    assert_eq!(tree.lookup(inside, b"secret").unwrap_err().errno(), Errno::STALE);
    let link = tree.lookup(Node::ROOT, b"inside").unwrap();
    assert_eq!(
        (link.kind, tree.read_link(link.node).unwrap()),
        (Kind::Symlink, outside.path().as_os_str().as_bytes().to_vec())
    );
    assert!(tree.lookup(link.node, b"secret").is_err());
    for name in [&b"."[..], b"..", b"", b"inside/secret", b"/etc", b"a\0b"] {
        assert!(matches!(tree.lookup(Node::ROOT, name), Err(Error::NotFound)), "{name:?}");
    }
    assert!(matches!(tree.open(link.node), Err(Error::WrongKind)));
    assert!(matches!(tree.open(Node::ROOT), Err(Error::IsAFolder)));
}

#[test]
fn paths_longer_than_the_kernel_takes_are_walked() {
    let (_folder, tree) = tree();
    let name = [b'n'; 200];
    let mut at = openat(&tree.root, ".", OFlags::PATH, Mode::empty()).unwrap();
    let mut node = Node::ROOT;
    for _ in 0..40 {
        rustix::fs::mkdirat(&at, &name[..], Mode::RWXU).unwrap();
        at = openat(&at, &name[..], OFlags::PATH, Mode::empty()).unwrap();
        node = tree.lookup(node, &name).unwrap().node;
    }
    rustix::fs::symlinkat("target", &at, "leaf").unwrap();
    let leaf = tree.lookup(node, b"leaf").unwrap().node;
    assert_eq!(tree.read_link(leaf).unwrap(), b"target");
    assert_eq!(list(&tree, node, 1), [(b"leaf".to_vec(), leaf)]);
}

#[test]
fn a_mount_is_served_as_long_as_somebody_says_so() {
    // No number that a file system has: other tests look at theirs meanwhile.
    let (first, second) = (Served::begin(4095, 7), Served::begin(4095, 7));
    drop(first);
    assert!(served::is_served(4095, 7) && !served::is_served(4095, 8));
    drop(second);
    assert!(!served::is_served(4095, 7));
}
