//! Archives in several files of a folder.

use std::path::Path;
use std::time::Instant;

use super::*;
use crate::lazy::in_turn::MOST_OPEN;

/// A tar of files called `f00`, `f01`, ...
fn files(count: usize) -> Vec<u8> {
    let mut all = Vec::new();
    for number in 0..count {
        let one = tar(&format!("f{number:02}"), format!("content {number}").as_bytes());
        all.extend_from_slice(&one[..one.len() - 1024]);
    }
    all.resize(all.len() + 1024, 0);
    all
}

fn in_folder(folder: &Path) -> LazyTree {
    LazyTree::new(Base::Folder(Arc::new(FolderTree::open(folder).unwrap())), how(None)).unwrap()
}

/// The name of a file, and what it holds or why it cannot be read.
type Content = (Vec<u8>, Result<Vec<u8>, String>);

/// Names in the archive `name`, and what each of them holds. `None` where it is a file.
fn contents(tree: &LazyTree, name: &[u8]) -> Option<Vec<Content>> {
    let found = tree.lookup(Node::ROOT, name).unwrap();
    let mut names = Vec::new();
    if found.kind == Kind::Folder {
        // What has changed in the meantime is told to whoever looks; who looks again sees what it is now.
        let _ = tree.read_dir(found.node, 0, &mut |child| {
            names.push(child.name.to_vec());
            true
        });
    }
    let content = |name: &Vec<u8>| {
        let file = tree.lookup(found.node, name).map_err(|error| error.to_string())?;
        let source = tree.open(file.node).map_err(|error| error.to_string());
        tree.forget(file.node, 1);
        let source = source?;
        let mut bytes = vec![0; source.len() as usize];
        source.read_exact_at(&mut bytes, 0).map_err(|error| error.to_string())?;
        Ok(bytes)
    };
    let contents = names.iter().map(|name| (name.clone(), content(name))).collect();
    tree.forget(found.node, 1);
    (found.kind == Kind::Folder).then_some(contents)
}

/// Waits until the archive has so many files, all of which can be read.
fn wait_for(tree: &LazyTree, count: usize) {
    wait_for_all_of(tree, b"x.tar.001", count);
}

/// The same of the archive `name`.
fn wait_for_all_of(tree: &LazyTree, name: &[u8], count: usize) {
    let begun = Instant::now();
    loop {
        let found = contents(tree, name);
        let expected = (0..count).map(|number| (format!("f{number:02}").into_bytes(), format!("content {number}")));
        let expected: Vec<_> = expected.map(|(name, content)| (name, Ok(content.into_bytes()))).collect();
        if found.as_ref() == Some(&expected) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{count}: {found:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A copy or a download that is under way: parts become longer, and others come.
///
/// > An archive that was split over files of a folder is what these are by now, whichever of them changes, and with
/// > those that come.
#[test]
fn parts_that_change_and_come_show() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    let whole = files(30);
    let parts: Vec<&[u8]> = whole.chunks(10 * 1024).collect();
    write("x.tar.001", parts[0]);
    write("x.tar.002", &parts[1][..3072]);
    let tree = in_folder(folder.path());
    wait_for(&tree, 13);
    // It is the same one as long as nothing changes.
    let known = tree.lookup(Node::ROOT, b"x.tar.001").unwrap().node;
    write("x.tar.002", parts[1]);
    wait_for(&tree, 20);
    assert_ne!(tree.lookup(Node::ROOT, b"x.tar.001").unwrap().node, known);
    for (number, part) in parts.iter().enumerate().skip(2) {
        write(&format!("x.tar.{:03}", number + 1), part);
    }
    wait_for(&tree, 30);
    // A part that changes while all others stay.
    let other = String::from_utf8(whole.clone()).unwrap().replace("content 25", "Content 25").into_bytes();
    write("x.tar.003", &other[20 * 1024..30 * 1024]);
    let begun = Instant::now();
    while contents(&tree, b"x.tar.001")
        .is_none_or(|found| found.get(25).is_none_or(|(_, content)| *content != Ok(b"Content 25".to_vec())))
    {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
    // Of one that cannot be opened, others may come as well.
    std::fs::remove_file(folder.path().join("x.tar.002")).unwrap();
    let begun = Instant::now();
    while contents(&tree, b"x.tar.001").is_some() {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whoever splits does not know how many there will be: numbers become wider in time, as those of `split` do. What lies
/// under such a name and is no part changes nothing.
#[test]
fn parts_may_go_on_with_wider_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    let whole = files(92);
    let parts: Vec<&[u8]> = whole.chunks(1024).collect();
    for (number, part) in parts.iter().take(90).enumerate() {
        write(&format!("x.tar.{number:02}"), part);
    }
    // The next one is a folder.
    std::fs::create_dir(folder.path().join("x.tar.90")).unwrap();
    let tree = in_folder(folder.path());
    wait_for_all_of(&tree, b"x.tar.00", 90);
    let known = tree.lookup(Node::ROOT, b"x.tar.00").unwrap().node;
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(tree.lookup(Node::ROOT, b"x.tar.00").unwrap().node, known);
    for (number, part) in parts.iter().enumerate().skip(90) {
        write(&format!("x.tar.{}", 9000 + number - 90), part);
    }
    wait_for_all_of(&tree, b"x.tar.00", 92);
    for name in ["x.tar.01", "x.tar.89", "x.tar.9000"] {
        assert_eq!(tree.lookup(Node::ROOT, name.as_bytes()).unwrap().kind, Kind::File, "{name}");
    }
}

/// How many files of that folder this process has open.
fn open_files(folder: &Path) -> usize {
    let links =
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
    links.filter(|path| path.starts_with(folder) && path != folder).count()
}

/// An archive may be in more parts than a process may have files open, and each name of a listing leads to all of them.
#[test]
fn few_parts_are_open_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    let whole = files(60);
    for (number, part) in whole.chunks(600).enumerate() {
        std::fs::write(path.join(format!("x.tar.{:03}", number + 1)), part).unwrap();
    }
    let count = whole.len().div_ceil(600);
    assert!(count > 5 * MOST_OPEN);
    let tree = in_folder(&path);
    let most = std::cell::Cell::new(0);
    let look = || most.set(most.get().max(open_files(&path)));
    let (mut folders, mut listed) = (0, 0);
    let read = tree.read_dir(Node::ROOT, 0, &mut |child| {
        look();
        listed += 1;
        folders += usize::from(child.attributes.kind == Kind::Folder);
        true
    });
    read.unwrap();
    assert_eq!((listed, folders), (count, 1));
    let archive = tree.lookup(Node::ROOT, b"x.tar.001").unwrap();
    for number in (0..60).rev() {
        let file = tree.lookup(archive.node, format!("f{number:02}").as_bytes()).unwrap();
        assert_eq!(super::read(&tree, file.node), format!("content {number}").into_bytes());
        look();
    }
    // The one that is asked for is open beside them.
    assert!((1..=MOST_OPEN + 1).contains(&most.get()), "{}", most.get());
}

/// Gives `name` in `folder` this mode.
fn set_mode(folder: &Path, name: &str, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
}

/// > An archive that was split is for those who may read all of its parts.
#[test]
fn who_may_not_read_a_part_may_not_look_into_the_archive() {
    let folder = tempfile::tempdir().unwrap();
    let whole = files(10);
    for (number, part) in whole.chunks(4096).enumerate() {
        let name = format!("x.tar.{:03}", number + 1);
        std::fs::write(folder.path().join(&name), part).unwrap();
        set_mode(folder.path(), &name, 0o644);
    }
    let mode_of = || {
        let tree = in_folder(folder.path());
        let found = tree.lookup(Node::ROOT, b"x.tar.001").unwrap();
        assert_eq!(contents(&tree, b"x.tar.001").map(|contents| contents.len()), Some(10));
        let again = tree.attributes(found.node).unwrap();
        assert_eq!((found.kind, again.mode), (Kind::Folder, found.mode));
        found.mode & 0o777
    };
    assert_eq!(mode_of(), 0o755);
    set_mode(folder.path(), "x.tar.002", 0o600);
    assert_eq!(mode_of(), 0o700);
    set_mode(folder.path(), "x.tar.003", 0o640);
    set_mode(folder.path(), "x.tar.002", 0o640);
    assert_eq!(mode_of(), 0o750);
    set_mode(folder.path(), "x.tar.001", 0o600);
    assert_eq!(mode_of(), 0o700);
}

/// The same while it is mounted.
#[test]
fn a_part_that_is_private_from_now_on_makes_the_archive_private() {
    let folder = tempfile::tempdir().unwrap();
    let whole = files(10);
    for (number, part) in whole.chunks(4096).enumerate() {
        std::fs::write(folder.path().join(format!("x.tar.{:03}", number + 1)), part).unwrap();
        set_mode(folder.path(), &format!("x.tar.{:03}", number + 1), 0o644);
    }
    let tree = in_folder(folder.path());
    let mode = || {
        let found = tree.lookup(Node::ROOT, b"x.tar.001").unwrap();
        tree.forget(found.node, 1);
        found.mode & 0o777
    };
    assert_eq!(mode(), 0o755);
    set_mode(folder.path(), "x.tar.002", 0o600);
    let begun = Instant::now();
    while mode() != 0o700 {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Who may write to a folder can put a file in front of what others keep there for themselves, or give that the name of
/// a part of his.
///
/// > A private file of another user is never a part, whatever it is called.
#[test]
fn what_another_user_keeps_for_himself_is_no_part() {
    use std::os::unix::fs::chown;
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str, bytes: &[u8], mode: u32, owner: u32| {
        std::fs::write(folder.path().join(name), bytes).unwrap();
        set_mode(folder.path(), name, mode);
        chown(folder.path().join(name), Some(owner), Some(owner)).is_ok()
    };
    let (own, private) = (files(10), files(20));
    // Only root may give files away. Of an archive, everybody can say whose they are: see `tests/access_lists.rs`.
    let are_given = place("secret.tar.001", &[7; 2048], 0o600, 1000);
    if !(are_given && place("secret.tar.000", &own[..2048], 0o644, 1001)) {
        return;
    }
    for (number, part) in private.chunks(8192).enumerate() {
        place(&format!("x.tar.{:03}", number + 1), part, 0o600, 1000);
    }
    place("x.tar.000", &own[..8192], 0o644, 1001);
    let tree = in_folder(folder.path());
    for _ in 0..2 {
        let shown = |name: &str| tree.lookup(Node::ROOT, name.as_bytes()).unwrap();
        assert_eq!(shown("secret.tar.001").kind, Kind::File);
        let found = contents(&tree, b"secret.tar.000").unwrap_or_default();
        assert!(found.iter().all(|(_, content)| content.as_ref().is_ok_and(|bytes| bytes.starts_with(b"content"))));
        assert!(found.len() < 10);
        // What is his still shows, and to him alone.
        let found = shown("x.tar.001");
        assert_eq!((found.kind, found.mode & 0o777, found.uid), (Kind::Folder, 0o700, 1000));
        assert_eq!(contents(&tree, b"x.tar.001").map(|contents| contents.len()), Some(20));
        assert!(contents(&tree, b"x.tar.000").is_none_or(|contents| contents.len() < 10));
    }
    // What all may read may be of several users.
    for (number, owner) in [1000, 1001, 0].into_iter().enumerate() {
        place(&format!("y.tar.{:03}", number + 1), &own[number * 2048..(number + 1) * 2048], 0o644, owner);
    }
    let found = tree.lookup(Node::ROOT, b"y.tar.001").unwrap();
    assert_eq!((found.kind, found.mode & 0o777), (Kind::Folder, 0o755));
    assert_eq!(tree.lookup(Node::ROOT, b"y.tar.002").unwrap().kind, Kind::File);
}
