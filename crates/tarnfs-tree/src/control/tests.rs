use std::sync::mpsc::sync_channel;

use super::command::Commands;
use super::*;
use crate::Subvolumes;
use crate::edit::{Change, New, Renaming, Setting};
use crate::toy::Toy;

fn whole(line: &str) -> Line {
    Line::Whole(line.as_bytes().to_vec())
}

#[test]
fn writes_become_lines_of_each_writer() {
    let [mut one, mut two, mut three] = [Commands::default(), Commands::default(), Commands::default()];
    assert_eq!(one.write(b"a b"), []);
    assert_eq!(two.write(b"x\n\n  \ny\nz"), [whole("x"), whole("y")]);
    assert_eq!(one.write(b"c\nd\n"), [whole("a bc"), whole("d")]);
    assert_eq!((one.end(), two.end(), two.end()), (vec![], vec![whole("z")], vec![]));
    let long = vec![b'x'; LONGEST_LINE];
    assert_eq!(three.write(&long), []);
    assert_eq!(three.write(b"x"), []);
    assert_eq!(three.write(&long), []);
    assert_eq!(three.write(b"\nnext\n"), [Line::TooLong, whole("next")]);
    assert_eq!(three.write(&[&long[..], b"\n"].concat()), [Line::Whole(long)]);
}

/// ratarmount takes the ends of lines for those of words.
#[test]
fn the_words_of_a_command_may_stand_on_lines() {
    let whole = |text: &str| Line::Whole(text.as_bytes().to_vec());
    let all = |text: &[u8]| {
        let mut commands = Commands::default();
        let mut lines = commands.write(text);
        lines.extend(commands.end());
        lines
    };
    for (text, commands) in [
        ("ratarmount\n/a b.tar\n/m", vec![whole("ratarmount\0/a b.tar\0/m\0")]),
        ("ratarmount\r\n-u\r\n\r\n/m\r\n", vec![whole("ratarmount\0-u\0/m\0")]),
        ("tarnfs\n", vec![whole("tarnfs\0")]),
        (
            "ratarmount a\ntarnfs\n/b\nratarmounts\ntarnfs c\nratarmount\0d\n e",
            vec![
                whole("ratarmount a"),
                whole("tarnfs\0/b\0ratarmounts\0"),
                whole("tarnfs c"),
                whole("ratarmount\0d"),
                whole(" e"),
            ],
        ),
        ("x\nratarmounts\n", vec![whole("x"), whole("ratarmounts")]),
    ] {
        assert_eq!(all(text.as_bytes()), commands, "{text:?}");
    }
    let mut commands = Commands::default();
    assert_eq!(commands.write(b"tarn"), []);
    assert_eq!(commands.write(b"fs\n/a"), []);
    assert_eq!((commands.write(b"/b\n"), commands.end()), (vec![], vec![whole("tarnfs\0/a/b\0")]));
    let long = "x".repeat(LONGEST_LINE / 2);
    assert_eq!(all(format!("tarnfs\n{long}\n{long}\nx\n").as_bytes()), [Line::TooLong]);
    assert_eq!(all(format!("tarnfs\n{long}{long}x\ny\n").as_bytes()), [Line::TooLong]);
}

#[test]
fn output_keeps_the_newest() {
    let output = Output::default();
    for number in 0..300_000 {
        output.say(format!("{number:07}\n").as_bytes());
    }
    let mut text = vec![0; output.len() as usize];
    output.read_exact_at(&mut text, 0).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!((512 << 10..=1 << 20).contains(&text.len()) && text.ends_with("0299999\n"));
    assert_eq!(text.lines().next().unwrap().len(), 7);
}

/// An empty folder.
fn empty() -> Arc<dyn Tree> {
    Arc::new(Subvolumes::new([]).unwrap())
}

fn folder_of(name: &str) -> Arc<dyn Tree> {
    Arc::new(Subvolumes::new([(name.as_bytes().to_vec(), empty())]).unwrap())
}

fn names(tree: &ControlTree, folder: Node) -> Vec<String> {
    let mut names = Vec::new();
    let mut next = 0;
    // One at a time, so that each position is gone on from.
    loop {
        let before = names.len();
        tree.read_dir(folder, next, &mut |child| {
            names.push(String::from_utf8_lossy(child.name).into_owned());
            next = child.next;
            false
        })
        .unwrap();
        if names.len() == before {
            names.sort();
            return names;
        }
    }
}

/// ext4 has hashes of 63 bits for positions.
#[test]
fn no_position_of_a_tree_is_taken_for_an_added_one() {
    let wide = || -> Arc<dyn Tree> {
        let positions = (1..=1000_u64).map(|number| number * ((1 << 63) / 1001));
        Arc::new(Toy::with_positions(positions.chain([i64::MAX as u64 - (1 << 22)])))
    };
    let (lines, _run) = sync_channel(1);
    let tree = ControlTree::new(wide(), lines).unwrap();
    assert_eq!(names(&tree, Node::ROOT).len(), 1001);
    for number in 0..5 {
        tree.add(format!("added{number}").as_bytes(), wide()).unwrap();
    }
    // One that stands in the place of a file that came later shows once.
    tree.add(b"added0/inner", empty()).unwrap();
    for (folder, count) in [("", 1006), ("added0", 1002), ("added4", 1001)] {
        let node = path::find(&tree, folder.as_bytes(), true).unwrap().node;
        let found = names(&tree, node);
        assert_eq!((found.len(), found.windows(2).all(|pair| pair[0] != pair[1])), (count, true), "{folder}");
        let mut all = Vec::new();
        tree.read_dir(node, 0, &mut |child| {
            assert!(child.next <= i64::MAX as u64 - 16, "{}", child.next);
            all.push(String::from_utf8_lossy(child.name).into_owned());
            true
        })
        .unwrap();
        all.sort();
        assert_eq!(all, found, "{folder}");
    }
}

/// Who controls a mount, or lists what stands in it, does not wait for a server that is gone.
#[test]
fn what_is_not_ready_is_not_waited_for() {
    let (lines, _run) = sync_channel(1);
    let toy = || Arc::new(Toy::with_contents([("file", Vec::new())]));
    let (dead, gone) = (toy(), toy());
    let tree = ControlTree::new(Arc::clone(&dead) as _, lines).unwrap();
    tree.add(b"gone", Arc::clone(&gone) as _).unwrap();
    assert!(tree.lookup(Node::ROOT, b"file").is_ok());
    for toy in [&dead, &gone] {
        toy.is_ready.store(false, Ordering::SeqCst);
        assert!(tree.lookup(Node::ROOT, b"file").is_ok());
        // Asking it would not come back.
        toy.is_broken.store(true, Ordering::SeqCst);
    }
    let is_ready = |folder, name: &[u8]| tree.is_ready(tree.asked_for(folder, name));
    assert!(is_ready(Node::ROOT, FOLDER) && !is_ready(Node::ROOT, b"file") && !is_ready(Node::ROOT, b"gone"));
    let control = tree.lookup(Node::ROOT, FOLDER).unwrap().node;
    assert!(tree.is_ready(control) && is_ready(control, b"command"));
    assert_eq!(tree.attributes_at_once(Node::ROOT).unwrap().attributes.kind, Kind::Folder);
    assert!(tree.attributes_at_once(control).is_none() && tree.attributes(Node::ROOT).is_err());
    assert_eq!(names(&tree, Node::ROOT), ["file", "gone"]);
    assert!(tree.lookup(Node::ROOT, b"gone").is_err(), "whoever goes there is told");
}

/// The root of a folder on a server is told as it was, and learned anew by one who waits for all.
#[test]
fn what_is_told_at_once_does_not_stay() {
    let (lines, _run) = sync_channel(1);
    let toy = Arc::new(Toy::with_contents([("file", Vec::new())]));
    let tree = ControlTree::new(Arc::clone(&toy) as _, lines).unwrap();
    toy.is_ready.store(false, Ordering::SeqCst);
    toy.changed.store(7, Ordering::SeqCst);
    let at_once = || tree.attributes_at_once(Node::ROOT).unwrap();
    let first = at_once();
    assert_eq!((first.attributes.mtime.seconds, first.is_old), (0, true));
    assert!(at_once().refresh.is_none(), "one is at it");
    // Nobody came to it: the next one does.
    drop(first);
    at_once().refresh.unwrap()();
    let next = at_once();
    assert_eq!(next.attributes.mtime.seconds, 7);
    assert!(next.refresh.is_some());
    // A tree that was added is listed without what it was.
    tree.add(b"added", toy).unwrap();
    let mut nodes = Vec::new();
    tree.read_dir(Node::ROOT, 0, &mut |child| {
        nodes.push((child.name.to_vec(), child.attributes.node == UNKNOWN));
        true
    })
    .unwrap();
    assert_eq!(nodes, [(b"added".to_vec(), true), (b"file".to_vec(), false)]);
}

#[test]
fn commands_are_written_to_one_file_alone() {
    let (lines, _run) = sync_channel(1);
    let toy = Arc::new(Toy::with_contents([("file", Vec::new())]));
    let tree = ControlTree::new(Arc::clone(&toy) as _, lines).unwrap();
    tree.add(b"added", toy).unwrap();
    let folder = tree.lookup(Node::ROOT, FOLDER).unwrap().node;
    assert_eq!(names(&tree, folder), ["command", "output"]);
    let added = tree.lookup(Node::ROOT, b"added").unwrap().node;
    for (folder, name, takes, is_own) in [
        (folder, &b"command"[..], true, true),
        (folder, b"output", false, true),
        (Node::ROOT, FOLDER, false, true),
        (Node::ROOT, b"file", false, false),
        (Node::ROOT, b"added", false, false),
        (added, b"file", false, false),
    ] {
        let node = tree.lookup(folder, name).unwrap().node;
        let shown = String::from_utf8_lossy(name);
        assert_eq!((tree.may_change(node), tree.is_own(node)), (takes, is_own), "{shown}");
        assert_eq!(tree.open_to_write(node, false).is_ok(), takes, "{shown}");
        let emptied = Change { size: Some(0), mtime: Some(Time { seconds: 7, nanoseconds: 7 }), ..Change::default() };
        assert_eq!(tree.change(node, &emptied).is_ok(), takes, "{shown}");
        for other in [Change { size: Some(7), ..emptied }, Change { mode: Some(0o777), ..emptied }, Change::default()] {
            assert!(matches!(tree.change(node, &other), Err(Error::ReadOnly)), "{shown}");
        }
    }
    assert!(!tree.may_change(Node::ROOT) && !tree.is_own(Node::ROOT));
    let edit = tree.edit().unwrap();
    let new = New { kind: Kind::Folder, mode: 0o755, umask: 0, uid: 0, gid: 0, target: Vec::new() };
    let names = ((Node::ROOT, &b"file"[..]), (Node::ROOT, &b"new"[..]));
    for refused in [
        edit.make(Node::ROOT, b"new", &new).map(drop),
        edit.make_unnamed(Node::ROOT, &new).map(drop),
        edit.link(added, Node::ROOT, b"new").map(drop),
        edit.remove(Node::ROOT, b"file", false),
        edit.rename(names.0, names.1, Renaming::Replaces),
        edit.set_xattr(added, b"user.x", b"y", Setting::Any),
        edit.remove_xattr(added, b"user.x"),
    ] {
        assert!(matches!(refused, Err(Error::ReadOnly)));
    }
}

#[test]
fn what_is_kept_with_a_tree_goes_with_it() {
    let tree = ControlTree::new(empty(), sync_channel(1).0).unwrap();
    let kept: Arc<dyn std::any::Any + Send + Sync> = Arc::new(());
    tree.add_with(b"added", empty(), Arc::clone(&kept)).unwrap();
    tree.add_with(b"added", empty(), Arc::clone(&kept)).unwrap_err();
    assert_eq!(Arc::strong_count(&kept), 2);
    tree.remove(b"added").unwrap();
    assert_eq!(Arc::strong_count(&kept), 1);
}

/// > A folder in which something was mounted is not empty.
#[test]
fn a_folder_with_a_tree_in_it_is_not_removed() {
    let written = tempfile::tempdir().unwrap();
    let lower = Arc::new(Toy::with_contents([("file", Vec::new())]));
    let overlay = crate::OverlayTree::open(lower, written.path(), "a test").unwrap();
    let tree = ControlTree::new(Arc::new(overlay), sync_channel(1).0).unwrap();
    let edit = tree.edit().unwrap();
    let new = New { kind: Kind::Folder, mode: 0o755, umask: 0, uid: 0, gid: 0, target: Vec::new() };
    for name in [b"folder", b"second"] {
        edit.make(Node::ROOT, name, &new).unwrap();
    }
    tree.add(b"folder/added", empty()).unwrap();
    let onto = |name: &[u8], how| edit.rename((Node::ROOT, b"second"), (Node::ROOT, name), how);
    for refused in [edit.remove(Node::ROOT, b"folder", true), onto(b"folder", Renaming::Replaces)] {
        assert_eq!(refused.unwrap_err().errno(), rustix::io::Errno::NOTEMPTY);
    }
    // Its name is no matter.
    onto(b"folder", Renaming::Exchanges).unwrap();
    tree.lookup(tree.lookup(Node::ROOT, b"second").unwrap().node, b"added").unwrap();
    edit.remove(Node::ROOT, b"folder", true).unwrap();
    tree.remove(b"second/added").unwrap();
    edit.remove(Node::ROOT, b"second", true).unwrap();
}

/// Each who has it open writes lines of his own, and waits for those that he has written.
#[test]
fn who_writes_commands_waits_for_his_own() {
    let (lines, run) = sync_channel(3);
    let tree = ControlTree::new(empty(), lines).unwrap();
    let node = path::find(&tree, b".ratarmount-control/command", true).unwrap().node;
    let [one, two] = [(); 2].map(|()| tree.open_to_write(node, false).unwrap());
    assert_eq!(one.write_at(b"a\nb\nc", 7).unwrap(), 5);
    assert!(one.writes_at_once() && two.flush().unwrap().is_empty());
    let pending = one.flush().unwrap();
    assert_eq!((pending.len(), one.flush().unwrap().len()), (2, 0), "each is waited for once");
    assert!(!pending[0].is_done(Duration::ZERO));
    assert_eq!(run.recv().unwrap().line, whole("a"));
    assert!(pending[0].is_done(Duration::ZERO) && !pending[1].is_done(Duration::ZERO));
    // What has no end ends with the file. There is no room for the last line.
    drop(one);
    two.write_at(b"d\ne\n", 0).unwrap();
    assert_eq!(two.flush().unwrap().len(), 1);
    drop(two);
    assert_eq!(run.try_iter().map(|submitted| submitted.line).collect::<Vec<_>>(), ["b", "c", "d"].map(whole));
    assert_eq!(tree.output.len() as usize, "tarnfs: too many commands wait already: one was not run\n".len());
}

/// What is there to control a mount, and what was mounted in it, was never anything else.
#[test]
fn what_is_no_archives_has_one_version() {
    let (lines, _run) = sync_channel(1);
    let tree = ControlTree::new(Arc::new(Toy::with_contents([("file", Vec::new())])), lines).unwrap();
    tree.add(b"added", folder_of("inner")).unwrap();
    let folder = tree.lookup(Node::ROOT, FOLDER).unwrap().node;
    for (folder, name) in [(folder, &b"command"[..]), (folder, b"output"), (Node::ROOT, FOLDER), (Node::ROOT, b"added")]
    {
        let node = tree.lookup(folder, name).unwrap().node;
        let shown = String::from_utf8_lossy(name);
        let nodes = |from| {
            let mut nodes = Vec::new();
            tree.each_version(folder, name, from, &mut |version| {
                nodes.push(version.node);
                true
            })
            .unwrap();
            nodes
        };
        assert_eq!((nodes(0), nodes(1)), (vec![node], vec![]), "{shown}");
    }
    assert_eq!(tree.versions(folder, b"nothing").unwrap(), []);
}

#[test]
fn trees_are_added_and_taken_out() {
    let (lines, run) = sync_channel(1);
    let tree = ControlTree::new(folder_of("a"), lines).unwrap();
    tree.add(b"/b/", folder_of("inner")).unwrap();
    tree.add(b"a/c", folder_of("other")).unwrap();
    tree.add(b"b/inner/deep", empty()).unwrap();
    assert_eq!(names(&tree, Node::ROOT), ["a", "b"]);
    let find = |path: &str| path::find(&tree, path.as_bytes(), true).map(|found| found.node);
    assert_eq!(names(&tree, find("a").unwrap()), ["c"]);
    assert_eq!(names(&tree, find("b").unwrap()), ["inner"]);
    assert_eq!(names(&tree, find("b/inner").unwrap()), ["deep"]);
    assert_eq!(find("b/inner/deep/../../../a/c/other/..").unwrap(), find("a/c").unwrap());
    assert_eq!(names(&tree, find(".ratarmount-control").unwrap()), ["command", "output"]);
    for (path, error) in [
        ("a", "there is something"),
        ("b", "there is something"),
        ("nowhere/x", "no such file"),
        ("", "names no folder"),
        ("//", "names no folder"),
        ("a/..", "names no folder"),
        ("/.ratarmount-control/", "names no folder"),
        (".ratarmount-control/new", "not a folder"),
        (".ratarmount-control/command/x", "not a folder"),
    ] {
        let refusal = tree.add(path.as_bytes(), empty()).unwrap_err().to_string();
        assert!(refusal.contains(error), "{path}: {refusal}");
    }
    assert!(matches!(tree.remove(b"b"), Err(Refusal::InUse)));
    assert!(matches!(tree.remove(b"a"), Err(Refusal::NotMounted)));
    let gone = find("b/inner").unwrap();
    tree.remove(b"b/inner/deep").unwrap();
    tree.remove(b"b").unwrap();
    assert!(matches!(tree.attributes(gone), Err(Error::NotFound)) && find("b").is_err());
    tree.add(b"b", folder_of("new")).unwrap();
    assert!(find("b/new").unwrap().0 > gone.0, "numbers are not used again");
    drop(run);
    // Nobody runs them any more.
    let command = find(".ratarmount-control/command").unwrap();
    tree.open_to_write(command, false).unwrap().write_at(b"x\ny\n", 0).unwrap();
    assert_eq!(tree.output.len() as usize, 2 * "tarnfs: too many commands wait already: one was not run\n".len());
}

/// Trees as wide as those of lazily opened archives: there is room for some thousands.
#[test]
fn numbers_of_what_was_taken_out_are_used_again_when_nobody_knows_them() {
    let wide = || -> Arc<dyn Tree> { Arc::new(Toy::with_positions([1, 2]).of_numbers(1 << 60)) };
    let (lines, _run) = sync_channel(1);
    let tree = ControlTree::new(wide(), lines).unwrap();
    tree.add(b"stays", wide()).unwrap();
    // Somebody holds a file of one that is gone.
    tree.add(b"held", wide()).unwrap();
    let root = tree.lookup(Node::ROOT, b"held").unwrap().node;
    let held = tree.lookup(root, b"2").unwrap().node;
    tree.forget(root, 1);
    tree.remove(b"held").unwrap();
    let stays = tree.lookup(Node::ROOT, b"stays").unwrap().node;
    for round in 0..50 {
        tree.add(b"sub", wide()).unwrap();
        let sub = tree.lookup(Node::ROOT, b"sub").unwrap().node;
        assert!(sub != stays && sub != root, "{round}");
        assert_eq!(names(&tree, sub), ["1", "2"]);
        // What was listed is forgotten, too.
        for name in [b"1", b"2"] {
            let found = tree.lookup(sub, name).unwrap().node;
            tree.forget(found, 1);
        }
        tree.forget(sub, 1);
        tree.remove(b"sub").unwrap();
        assert!(tree.attributes(held).is_err() && tree.attributes(stays).is_ok());
    }
    // All are taken, and none is free.
    let added = (0..10).take_while(|number| tree.add(format!("all{number}").as_bytes(), wide()).is_ok()).count();
    assert!((1..=7).contains(&added), "{added}");
    tree.forget(held, 1);
    tree.add(b"now there is room", wide()).unwrap();
    // Whatever their numbers are, each is listed once.
    let listed = names(&tree, Node::ROOT);
    for number in 0..added {
        assert_eq!(listed.iter().filter(|name| **name == format!("all{number}")).count(), 1, "{listed:?}");
    }
    assert_eq!(listed.iter().filter(|name| *name == "now there is room" || *name == "stays").count(), 2, "{listed:?}");
}

/// Of an archive the kernel may keep what it is told for as long as it likes. Who mounts something in it must see that
/// at once.
#[test]
fn what_is_there_stays_and_what_is_not_may_come() {
    let (lines, _run) = sync_channel(1);
    let forever = || Arc::new(Toy::with_contents([("file", Vec::new())]).immutable()) as Arc<dyn Tree>;
    let tree = ControlTree::new(forever(), lines).unwrap();
    tree.add(b"added", forever()).unwrap();
    let find = |path: &str| path::find(&tree, path.as_bytes(), true).unwrap().node;
    for (path, lifetime) in [
        ("", Lifetime::Forever),
        ("file", Lifetime::Forever),
        ("added", Lifetime::None),
        ("added/file", Lifetime::Forever),
        (".ratarmount-control", Lifetime::None),
        (".ratarmount-control/command", Lifetime::None),
        (".ratarmount-control/output", Lifetime::None),
    ] {
        let node = find(path);
        assert_eq!((tree.lifetime(node), tree.lifetime_of_gaps(node)), (lifetime, Lifetime::None), "{path}");
    }
    let gone = find("added/file");
    tree.remove(b"added").unwrap();
    assert_eq!(tree.lifetime(gone), Lifetime::None);
    let (lines, _run) = sync_channel(1);
    let changing = ControlTree::new(Arc::new(Toy::with_contents([("file", Vec::new())])), lines).unwrap();
    let file = changing.lookup(Node::ROOT, b"file").unwrap().node;
    assert_eq!((changing.lifetime(Node::ROOT), changing.lifetime(file)), (Lifetime::Short, Lifetime::Short));
}
