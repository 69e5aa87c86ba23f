//! An index whose archive is not there.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::peers::ratarmount;
use crate::support::{Mounted, Scratch, can_mount, have, make_tree, run, wait_until};

/// All that `stat` says, and where links lead.
fn shown(scratch: &Scratch, at: &Path) -> String {
    scratch.shell(&format!("cd '{}'; find . -printf '%p %y %m %n %s %T@ %U %G %l\\n' | sort", at.display()))
}

/// > An index alone shows what was in its archive, and a read says which archive is missing.
#[test]
fn an_index_alone_shows_names_and_a_read_says_what_is_missing() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    for (archive, make, options) in [
        ("x.tar", "tar --xattrs -cf x.tar -C tree .", &[][..]),
        ("x.tar.gz", "tar --xattrs -czf x.tar.gz -C tree .", &[]),
        ("x.tar.xz", "tar cf tree/inner.tar -C tree many; tar -cJf x.tar.xz -C tree .", &["-r"]),
        ("x.zip", "cd tree; find . -type l -delete; zip -q -y -r ../x.zip .", &["-r"]),
    ] {
        if archive.ends_with("zip") && !have("zip") {
            println!("left out: no zip");
            continue;
        }
        let scratch = Scratch::new();
        make_tree(&scratch);
        scratch.shell("cd tree; rm -f fifo loop; mkdir many; for i in $(seq 200); do echo $i > many/$i; done");
        scratch.shell(make);
        let path = scratch.path(archive);
        let index = scratch.path(format!("{archive}.tarnfs.sqlite"));
        let words = [&["index", path.to_str().unwrap()], options].concat();
        run(&scratch, words).ok();
        let mounted = Mounted::new(&scratch, &path, options);
        let right = shown(&scratch, &mounted.at);
        mounted.unmount();
        let listed =
            |path: &Path| run(&scratch, ["ls", "-R", path.to_str().unwrap()].iter().chain(options)).ok().text();
        let all = listed(&path);
        let length = fs::metadata(&path).unwrap().len();
        fs::rename(&path, scratch.path("elsewhere")).unwrap();
        assert_eq!(listed(&index), all, "{archive}");
        let missing = format!("{} ({length} bytes) is not open, only its index", path.display());
        let log = scratch.path("log");
        let mounted = Mounted::new(&scratch, &index, &["--log-file", log.to_str().unwrap()]);
        assert_eq!(shown(&scratch, &mounted.at), right, "{archive}");
        let refused = fs::read(mounted.path("many/7")).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EIO), "{archive}");
        mounted.unmount();
        // What is said is written by a thread of its own.
        wait_until("it is told", || fs::read_to_string(&log).unwrap().contains(&missing));
        let refused = run(&scratch, ["cat", index.to_str().unwrap(), "many/7"]);
        assert!(refused.code != 0 && refused.out.is_empty() && refused.err.contains(&missing), "{}", refused.err);
        let found = run(&scratch, ["find", index.to_str().unwrap(), "-name", "17*", "-type", "f"]).ok().text();
        assert_eq!(
            found.lines().filter(|line| line.contains("many/")).count(),
            if options.is_empty() { 11 } else { found.lines().count() }
        );
        run(&scratch, ["stat", index.to_str().unwrap(), "many/7"]).ok();
        let refused = run(&scratch, ["check", index.to_str().unwrap()]);
        assert!(refused.code != 0 && refused.err.contains("without its archive"), "{}", refused.err);
        // It is what it was.
        fs::rename(scratch.path("elsewhere"), &path).unwrap();
        assert_eq!(run(&scratch, ["cat", path.to_str().unwrap(), "many/7"]).ok().text(), "7\n");
    }
}

/// As it does itself: names, and no contents.
#[test]
fn a_sidecar_of_ratarmount_alone_shows_names() {
    let Some(program) = ratarmount() else { return };
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    for (archive, make) in [("x.tar", "tar -Scf x.tar -C tree ."), ("x.tar.gz", "tar -Sczf x.tar.gz -C tree .")] {
        let scratch = Scratch::new();
        scratch.shell("mkdir -p tree/many; cd tree; for i in $(seq 1200); do echo $i > many/$i; done; ln -s many/1 link; ln many/2 hard
             truncate -s 5M holes; echo end >> holes");
        scratch.shell(make);
        let at = scratch.folder("theirs");
        let index = scratch.path(format!("{archive}.index.sqlite"));
        let made = Command::new(&program)
            .args(["-f", "--index-file", index.to_str().unwrap()] as [&str; 3])
            .args([&scratch.path(archive), &at])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut made = made.unwrap();
        wait_until("ratarmount mounts", || at.join("many/1200").exists());
        let sizes =
            |at: &Path| scratch.shell(&format!("cd '{}'; find . -type f -printf '%p %s %m\\n' | sort", at.display()));
        let right = sizes(&at);
        scratch.shell(&format!("umount '{}'", at.display()));
        made.wait().unwrap();
        fs::remove_file(scratch.path(archive)).unwrap();
        let mounted = Mounted::new(&scratch, &index, &[]);
        assert_eq!(sizes(&mounted.at), right, "{archive}");
        assert_eq!(fs::read_link(mounted.path("link")).unwrap(), Path::new("many/1"));
        assert_eq!(fs::read(mounted.path("many/7")).unwrap_err().raw_os_error(), Some(libc::EIO));
        mounted.unmount();
        for file in ["many/7", "holes"] {
            let told = run(&scratch, ["cat", index.to_str().unwrap(), file]);
            let missing = format!("{} (", scratch.path(archive).display());
            assert!(told.code != 0 && told.err.contains(&missing), "{}", told.err);
        }
    }
}

/// Beside an archive, what is only called as its index is not said to be one.
#[test]
fn what_is_only_called_as_an_index_is_told() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -cf a.tar one; cp a.tar b.tar");
    run(&scratch, ["index", "--format", "ratarmount", scratch.path("b.tar").to_str().unwrap()]).ok();
    let connection = rusqlite::Connection::open(scratch.path("a.tar.index.sqlite")).unwrap();
    connection.execute_batch("CREATE TABLE notes (text); INSERT INTO notes VALUES ('mine')").unwrap();
    drop(connection);
    for (archive, what) in [("a.tar", "is called as an index of"), ("b.tar", "is the index of")] {
        // Each has a folder of its own: the first one is removed some time after the mount.
        let at_name = format!("at-{}", archive.trim_end_matches(".tar"));
        let [archive, index, at] =
            [archive, &format!("{archive}.index.sqlite"), &at_name].map(|name| scratch.path(name));
        let ran = run(&scratch, [&archive, &index, &at]).ok();
        let none = if what.contains("called") { ", and is none" } else { "" };
        let said = format!("{}: left out: it {what} {}{none}\n", index.display(), archive.display());
        assert!(ran.err.contains(&format!("tarnfs: warning: {said}")), "{said}{}", ran.err);
        assert_eq!(fs::read(at.join("one")).unwrap(), b"one\n");
        scratch.unmount(&at_name);
    }
}

/// A database of another program is none, and one that is damaged is an error.
#[test]
fn what_is_no_index_is_not_shown_as_one() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; seq 10 > tree/file; tar cf x.tar tree");
    let path = scratch.path("x.tar");
    run(&scratch, ["index", path.to_str().unwrap()]).ok();
    let database = scratch.path("other.sqlite");
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection.execute_batch("CREATE TABLE files (a); CREATE TABLE metadata (b)").unwrap();
    drop(connection);
    let refused = run(&scratch, ["ls", database.to_str().unwrap()]);
    assert!(refused.code == 4 && refused.err.contains("SQLite"), "{} {}", refused.code, refused.err);
    let index = fs::read(scratch.path("x.tar.tarnfs.sqlite")).unwrap();
    for (name, bytes) in [("cut.sqlite", &index[..index.len() / 2]), ("short.sqlite", &index[..60])] {
        fs::write(scratch.path(name), bytes).unwrap();
        let refused = run(&scratch, ["ls", scratch.path(name).to_str().unwrap()]);
        assert!(refused.code != 0 && refused.out.is_empty(), "{name}: {}", refused.err);
    }
}
