//! What is below is seen in several places, or is changed by others.

use super::*;
use crate::{UNKNOWN, Versions};

/// With folders of older versions.
fn over_versions(below: &Path, written: &Path) -> OverlayTree {
    let lower = Versions::new(Arc::new(FolderTree::open(below).unwrap()));
    OverlayTree::open(Arc::new(lower), written, "test").unwrap()
}

fn node(tree: &OverlayTree, path: &str) -> Node {
    path.split('/').fold(Node::ROOT, |folder, name| tree.lookup(folder, name.as_bytes()).unwrap().node)
}

/// What the status tells: letters and paths.
fn told(written: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let told = OverlayStatus::open(written).unwrap().each(&mut |changed| {
        all.push(format!("{} {}", changed.change.letter(), String::from_utf8_lossy(&changed.path)));
        true
    });
    told.unwrap();
    all
}

/// > Who has looked into the older versions of a file, and writes to it, finds that in the file.
#[test]
fn what_was_seen_among_older_versions_is_changed_at_its_place() {
    let [below, written] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    fs::create_dir(below.path().join("d")).unwrap();
    for name in ["f", "d/x", "late"] {
        fs::write(below.path().join(name), "below").unwrap();
    }
    let tree = over_versions(below.path(), written.path());
    let (file, inner) = (node(&tree, "f"), node(&tree, "d/x"));
    assert_eq!(names(&tree, node(&tree, "f.versions")), [b"1"]);
    assert_eq!((node(&tree, "f.versions/1"), node(&tree, "d.versions/1/x")), (file, inner));
    // Among its versions first.
    let late = node(&tree, "late.versions/1");
    assert_eq!(node(&tree, "late"), late);
    for node in [file, inner, late] {
        assert_eq!(tree.edit().unwrap().open_to_write(node, false).unwrap().write_at(b"mine!", 0).unwrap(), 5);
    }
    assert_eq!(told(written.path()), ["M f", "M late", "M d/x"]);
    tree.finish();
    drop(tree);
    let tree = over_versions(below.path(), written.path());
    for (folder, name) in [("", "f"), ("", "late"), ("d", "x")] {
        let folder = if folder.is_empty() { Node::ROOT } else { node(&tree, folder) };
        assert_eq!(read(&tree, folder, name.as_bytes()).unwrap(), b"mine!", "{name}");
    }
}

/// > Older versions cannot be changed, and nothing can be put among them, also with `--write-overlay` (EROFS).
#[test]
fn nothing_is_put_among_older_versions() {
    let [below, written] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    fs::create_dir(below.path().join("d")).unwrap();
    for name in ["f", "d/x", "other"] {
        fs::write(below.path().join(name), "below").unwrap();
    }
    let tree = over_versions(below.path(), written.path());
    let edit = tree.edit().unwrap();
    let [versions, one, view, other] =
        ["f.versions", "f.versions/1", "d.versions/1", "other"].map(|path| node(&tree, path));
    let new = |kind| New { kind, mode: 0o755, umask: 0, uid: 0, gid: 0, target: Vec::new() };
    let mode = Change { mode: Some(0o600), ..Change::default() };
    let rename = |from: (Node, &[u8]), to: (Node, &[u8]), how| edit.rename(from, to, how);
    let root = Node::ROOT;
    let work: Vec<(&str, Work<'_>)> = vec![
        ("open", Box::new(|| edit.open_to_write(one, false).map(drop))),
        ("chmod", Box::new(|| edit.change(one, &mode).map(drop))),
        ("chmod of a folder", Box::new(|| edit.change(view, &mode).map(drop))),
        ("setxattr", Box::new(|| edit.set_xattr(versions, b"user.a", b"b", Setting::Any))),
        ("create", Box::new(|| edit.make(versions, b"note", &new(Kind::File)).map(drop))),
        ("mkdir", Box::new(|| edit.make(view, b"new", &new(Kind::Folder)).map(drop))),
        ("unnamed", Box::new(|| edit.make_unnamed(view, &new(Kind::File)).map(drop))),
        ("link from there", Box::new(|| edit.link(one, root, b"new").map(drop))),
        ("link", Box::new(|| edit.link(other, versions, b"new").map(drop))),
        ("unlink", Box::new(|| edit.remove(versions, b"1", false))),
        ("rmdir", Box::new(|| edit.remove(root, b"f.versions", true))),
        ("rename to it", Box::new(|| rename((root, b"other"), (versions, b"other"), Renaming::Replaces))),
        ("rename from it", Box::new(|| rename((versions, b"1"), (root, b"new"), Renaming::Replaces))),
        ("rename of it", Box::new(|| rename((root, b"f.versions"), (root, b"new"), Renaming::Spares))),
        ("exchange", Box::new(|| rename((root, b"d"), (root, b"f.versions"), Renaming::Exchanges))),
    ];
    for (what, work) in &work {
        assert_eq!(work().map_err(|error| error.errno()), Err(Errno::ROFS), "{what}");
    }
    assert_eq!(told(written.path()), [""; 0]);
    // The file itself can.
    write(&tree, root, b"f", b"mine!");
    assert_eq!(told(written.path()), ["M f"]);
}

/// What was put there before that was refused, or is said to be there, is not forgotten by a commit.
#[test]
fn what_is_among_older_versions_is_told() {
    let [below, written] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    fs::write(below.path().join("f"), "below").unwrap();
    let tree = over_versions(below.path(), written.path());
    write(&tree, Node::ROOT, b"f", b"mine!");
    assert_eq!(tree.among_versions().unwrap(), None);
    let versions = tree.0.lower.lookup(Node::ROOT, b"f.versions").unwrap();
    let put = |editing: &editing::Editing<'_>| {
        let row = NodeRow { lower: Some(b"f.versions".to_vec()), ..editing::of(&versions) };
        let folder = rows::put_node(editing.connection, &row)?;
        editing.put_name(ROOT, b"f.versions", Some(folder), true)?;
        let note =
            rows::put_node(editing.connection, &NodeRow { kind: Kind::Symlink, links: 1, ..editing::of(&versions) })?;
        editing.put_name(folder, b"note", Some(note), false)
    };
    tree.0.edit(put).unwrap();
    assert_eq!(tree.among_versions().unwrap().unwrap(), b"f.versions");
    // It can be found, and copied.
    assert_eq!(names(&tree, Node::ROOT), [b"f".as_slice(), b"f.versions"]);
    assert_eq!(names(&tree, node(&tree, "f.versions")), [b"1".as_slice(), b"note"]);
}

/// All names of a folder, asked for one by one.
fn one_by_one(tree: &OverlayTree, folder: Node) -> Vec<Vec<u8>> {
    let (mut names, mut from) = (Vec::new(), 0);
    loop {
        let mut next = None;
        let listed = tree.read_dir(folder, from, &mut |child| {
            if next.is_some() {
                return false;
            }
            names.push(child.name.to_vec());
            next = Some(child.next);
            true
        });
        listed.unwrap();
        let Some(next) = next else { break };
        from = next;
    }
    names.sort();
    names
}

/// Who copies a mount must find all that was written: what is found by its name is listed, too.
#[test]
fn what_was_changed_in_a_folder_that_is_gone_below_is_listed() {
    let (tree, below, written) = over_folder();
    fs::create_dir(below.path().join("folder")).unwrap();
    for name in ["changed", "too", "untouched", "removed"] {
        fs::write(below.path().join("folder").join(name), "below").unwrap();
    }
    let old = node(&tree, "folder");
    for name in ["a mine", "changed", "mine", "too"] {
        write(&tree, old, name.as_bytes(), b"mine!");
    }
    tree.edit().unwrap().remove(old, b"removed", false).unwrap();
    assert_eq!(one_by_one(&tree, old), [b"a mine".as_slice(), b"changed", b"mine", b"too", b"untouched"]);
    fs::remove_dir_all(below.path().join("folder")).unwrap();
    let check = |tree: &OverlayTree, folder: Node| {
        let expected = [b"a mine".as_slice(), b"changed", b"mine", b"too"];
        assert_eq!(names(tree, folder), expected);
        assert_eq!(one_by_one(tree, folder), expected);
    };
    check(&tree, node(&tree, "folder"));
    // Whoever has it open.
    check(&tree, old);
    tree.finish();
    drop(tree);
    let open = || OverlayTree::open(Arc::new(FolderTree::open(below.path()).unwrap()), written.path(), "test").unwrap();
    let tree = open();
    check(&tree, node(&tree, "folder"));
    // It is there again, and then it is not, without anybody who looks it up.
    fs::create_dir(below.path().join("folder")).unwrap();
    fs::write(below.path().join("folder/too"), "below").unwrap();
    drop(tree);
    let tree = open();
    let folder = node(&tree, "folder");
    check(&tree, folder);
    fs::remove_dir_all(below.path().join("folder")).unwrap();
    check(&tree, folder);
    let edit = tree.edit().unwrap();
    for name in names(&tree, folder) {
        edit.remove(folder, &name, false).unwrap();
    }
    edit.remove(Node::ROOT, b"folder", true).unwrap();
    assert_eq!(names(&tree, Node::ROOT), [b""; 0]);
}

/// The node of a name in a listing of the root.
fn listed(tree: &OverlayTree, name: &str) -> Node {
    let mut found = Vec::new();
    let listed = tree.read_dir(Node::ROOT, 0, &mut |child| {
        if child.name == name.as_bytes() {
            found.push(child.attributes.node);
        }
        true
    });
    listed.unwrap();
    assert_eq!(found.len(), 1);
    found[0]
}

/// The kernel takes what a listing gives it, and looks up nothing for as long as it is listed again and again.
#[test]
fn a_folder_that_is_made_anew_below_is_not_listed_as_the_old_one() {
    let (tree, below, written) = over_folder();
    let make = |file: &str| {
        fs::create_dir_all(below.path().join("folder")).unwrap();
        fs::write(below.path().join("folder").join(file), "below").unwrap();
    };
    make("old");
    write(&tree, node(&tree, "folder"), b"mine", b"mine!");
    assert_eq!(listed(&tree, "folder"), node(&tree, "folder"));
    fs::rename(below.path().join("folder"), below.path().join("away")).unwrap();
    make("new");
    assert_eq!(listed(&tree, "folder"), UNKNOWN);
    assert_eq!(names(&tree, node(&tree, "folder")), [b"mine".as_slice(), b"new"]);
    assert_eq!(listed(&tree, "folder"), node(&tree, "folder"));
    tree.finish();
    drop(tree);
    // Nobody has looked it up yet.
    let tree = OverlayTree::open(Arc::new(FolderTree::open(below.path()).unwrap()), written.path(), "test").unwrap();
    let folder = listed(&tree, "folder");
    assert_eq!(names(&tree, folder), [b"mine".as_slice(), b"new"]);
}

/// > Where only the name or the attributes of a file in a folder were changed, its content is that of what is at its
/// > path below by now.
#[test]
fn a_file_of_which_the_mode_was_changed_has_the_content_below() {
    let (tree, below, written) = over_folder();
    let at = |name: &str| below.path().join(name);
    let root = Node::ROOT;
    let mode = Change { mode: Some(0o600), ..Change::default() };
    for name in ["grows", "saved", "moved", "moved too", "timed", "gone"] {
        fs::write(at(name), "one").unwrap();
        tree.edit().unwrap().change(node(&tree, name), &mode).unwrap();
    }
    let edit = tree.edit().unwrap();
    let time = Time { seconds: 1, nanoseconds: 0 };
    edit.change(node(&tree, "timed"), &Change { mtime: Some(time), ..Change::default() }).unwrap();
    edit.rename((root, b"moved"), (root, b"elsewhere"), Renaming::Replaces).unwrap();
    edit.rename((root, b"moved too"), (root, b"saved too"), Renaming::Replaces).unwrap();
    let (grows, saved) = (node(&tree, "grows"), node(&tree, "saved"));
    for name in ["grows", "timed", "moved"] {
        fs::write(at(name), "one two").unwrap();
    }
    // Another file gets its name, with a number that none of them has had.
    for new in ["new", "newer"] {
        fs::write(at(new), "one more").unwrap();
    }
    fs::rename(at("new"), at("saved")).unwrap();
    fs::rename(at("newer"), at("moved too")).unwrap();
    fs::remove_file(at("gone")).unwrap();
    assert_eq!(tree.attributes(grows).unwrap().size, 7);
    assert_eq!(listed(&tree, "grows"), grows);
    assert_eq!(listed(&tree, "saved"), UNKNOWN);
    // Who knows it as the old one takes it to be as long as that: the kernel looks it up once more.
    let as_opened = |node| tree.open(node).map(|file| file.len()).map_err(|error| error.errno());
    assert_eq!((as_opened(grows), as_opened(saved)), (Ok(7), Err(Errno::STALE)));
    let check = |tree: &OverlayTree| {
        let all = [("grows", "one two"), ("timed", "one two"), ("elsewhere", "one two"), ("saved", "one more")];
        for (name, content) in all.into_iter().chain([("saved too", "one more")]) {
            let found = tree.lookup(root, name.as_bytes()).unwrap();
            assert_eq!((found.mode & 0o777, found.size), (0o600, content.len() as u64), "{name}");
            assert_eq!(read(tree, root, name.as_bytes()).unwrap(), content.as_bytes(), "{name}");
        }
        assert_eq!(tree.lookup(root, b"timed").unwrap().mtime, time);
        assert_eq!(read(tree, root, b"gone"), Err(Errno::STALE));
    };
    check(&tree);
    assert_ne!(node(&tree, "saved"), saved);
    assert_eq!(listed(&tree, "saved"), node(&tree, "saved"));
    assert_eq!(edit.change(grows, &mode).unwrap().size, 7);
    tree.finish();
    drop(tree);
    let tree = OverlayTree::open(Arc::new(FolderTree::open(below.path()).unwrap()), written.path(), "test").unwrap();
    check(&tree);
    // What is written goes to what shows, and what is not there any more can be emptied.
    write(&tree, root, b"grows", b"ONE");
    write(&tree, root, b"saved", b"ONE");
    let empty = Change { size: Some(0), ..Change::default() };
    let gone = node(&tree, "gone");
    assert!(tree.edit().unwrap().open_to_write(gone, false).unwrap().write_at(b"x", 0).is_err());
    tree.edit().unwrap().change(gone, &empty).unwrap();
    write(&tree, root, b"gone", b"new");
    for (name, content) in [("grows", "ONE two"), ("saved", "ONE more"), ("gone", "new")] {
        assert_eq!(read(&tree, root, name.as_bytes()).unwrap(), content.as_bytes(), "{name}");
    }
}

/// > Such a file has the time of what is below, too, unless somebody has set it in the mount.
///
/// Whatever is done here behind that, and whatever clock is used there: programs that copy what is newer rely on it.
#[test]
fn a_file_of_which_the_mode_was_changed_has_the_times_of_what_is_written_below() {
    use std::time::{Duration, UNIX_EPOCH};

    let (tree, below, _written) = over_folder();
    let (path, root) = (below.path().join("file"), Node::ROOT);
    fs::write(&path, "one").unwrap();
    let (file, edit) = (node(&tree, "file"), tree.edit().unwrap());
    let mode = Change { mode: Some(0o600), ..Change::default() };
    let work: Vec<(&str, Work<'_>)> = vec![
        ("chmod", Box::new(|| edit.change(file, &mode).map(drop))),
        ("nothing", Box::new(|| Ok(()))),
        ("rename", Box::new(|| edit.rename((root, b"file"), (root, b"moved"), Renaming::Replaces))),
        ("setxattr", Box::new(|| edit.set_xattr(file, b"user.a", b"b", Setting::Any))),
        ("removexattr", Box::new(|| edit.remove_xattr(file, b"user.a"))),
        ("link", Box::new(|| edit.link(file, root, b"linked").map(drop))),
    ];
    // Back in time, each of them.
    for (step, (what, work)) in (0..).zip(&work) {
        let seconds = 1_000_000 - step;
        fs::write(&path, "two").unwrap();
        let times = fs::FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(seconds));
        fs::File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
        let before = tree.attributes(file).unwrap();
        work().unwrap();
        let after = tree.attributes(file).unwrap();
        assert_eq!(after.mtime, Time { seconds: i64::try_from(seconds).unwrap(), nanoseconds: 0 }, "{what}");
        assert!(after.ctime >= before.ctime, "{what}");
    }
    // Set here, they stay.
    let time = Time { seconds: 1, nanoseconds: 0 };
    edit.change(file, &Change { mtime: Some(time), ..Change::default() }).unwrap();
    fs::write(&path, "two").unwrap();
    edit.rename((root, b"moved"), (root, b"file"), Renaming::Replaces).unwrap();
    assert_eq!(tree.attributes(file).unwrap().mtime, time);
}

/// > What is written to a file with several names in a folder is found by each that was seen, whatever becomes of the
/// > others.
#[test]
fn a_file_with_several_names_is_changed_under_all_that_were_seen() {
    let (tree, below, written) = over_folder();
    let at = |name: &str| below.path().join(name);
    fs::create_dir(at("d")).unwrap();
    for (name, further) in [("a", "b"), ("e", "d/f"), ("g", "h"), ("i", "j")] {
        fs::write(at(name), "below").unwrap();
        fs::hard_link(at(name), at(further)).unwrap();
    }
    let root = Node::ROOT;
    let edit = tree.edit().unwrap();
    // One of its names is removed.
    edit.remove(root, b"a", false).unwrap();
    write(&tree, root, b"b", b"mine!");
    // Both were seen, and the kernel does not say by which one it is written.
    let file = node(&tree, "e");
    assert_eq!(node(&tree, "d/f"), file);
    edit.open_to_write(file, false).unwrap().write_at(b"mine!", 0).unwrap();
    // The other name is seen when one is written already.
    write(&tree, root, b"g", b"mine!");
    write(&tree, root, b"h", b"MINE!");
    // It is not there any more when it is written.
    let gone = node(&tree, "j");
    assert_eq!(node(&tree, "i"), gone);
    fs::remove_file(at("j")).unwrap();
    edit.open_to_write(gone, false).unwrap().write_at(b"mine!", 0).unwrap();
    assert!(tree.lookup(root, b"j").is_err());
    tree.finish();
    drop(tree);
    for name in ["a", "g", "i"] {
        fs::remove_file(at(name)).unwrap();
    }
    for name in ["e", "d/f"] {
        // Another one takes its place.
        fs::write(at("new"), "other").unwrap();
        fs::rename(at("new"), at(name)).unwrap();
    }
    let tree = OverlayTree::open(Arc::new(FolderTree::open(below.path()).unwrap()), written.path(), "test").unwrap();
    let expected = [b"b".as_slice(), b"d", b"e", b"g", b"h", b"i"];
    assert_eq!(names(&tree, root), expected);
    for (folder, name, content) in [
        ("", "b", "mine!"),
        ("", "e", "mine!"),
        ("d", "f", "mine!"),
        ("", "g", "MINE!"),
        ("", "h", "MINE!"),
        ("", "i", "mine!"),
    ] {
        let folder = if folder.is_empty() { root } else { node(&tree, folder) };
        assert_eq!(read(&tree, folder, name.as_bytes()).unwrap(), content.as_bytes(), "{name}");
    }
}

/// What is gone for a moment has another number meanwhile, of which the kernel asks again.
#[test]
fn what_is_gone_below_is_not_known_for_ever() {
    let (tree, below, _written) = over_folder();
    let at = |name: &str| below.path().join(name);
    let mode = Change { mode: Some(0o600), ..Change::default() };
    fs::create_dir(at("folder")).unwrap();
    for name in ["file", "new"] {
        fs::write(at(name), name).unwrap();
    }
    for name in ["file", "folder"] {
        tree.edit().unwrap().change(node(&tree, name), &mode).unwrap();
    }
    let folder = node(&tree, "folder");
    fs::remove_file(at("file")).unwrap();
    fs::rename(at("folder"), at("away")).unwrap();
    let gone = node(&tree, "file");
    assert_eq!(tree.lifetime(gone), Lifetime::Short);
    // By who has it open.
    assert_eq!(names(&tree, folder), [b""; 0]);
    assert_eq!(tree.lifetime_of_gaps(folder), Lifetime::Short);
    fs::rename(at("new"), at("file")).unwrap();
    assert_eq!(tree.open(gone).map_err(|error| error.errno()).map(drop), Err(Errno::STALE));
    assert_ne!(node(&tree, "file"), gone);
    assert_eq!(read(&tree, Node::ROOT, b"file").unwrap(), b"new");
    // What was made here stays as it is.
    let own = write(&tree, Node::ROOT, b"own", b"own");
    assert_eq!(tree.lifetime(own), Lifetime::Forever);
}
