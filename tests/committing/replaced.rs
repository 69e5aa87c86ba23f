//! An archive that somebody has changed or replaced while it was mounted.

use std::ffi::OsStr;
use std::fs;

use crate::support::{Ran, Scratch, can_mount, run};
use crate::{changed, commit, left};

const ARCHIVE: &str = "mkdir -p tree/cache; echo line1 > tree/log; echo c > tree/cache/old; tar -C tree -cf a.tar .";

/// Another program makes a newer one.
const REPLACE: &str = "echo line2 >> tree/log; echo new > tree/cache/new; tar -C tree -cf new.tar .; mv new.tar a.tar";

/// > An archive that was changed or replaced since it was mounted with the overlay is only committed into if somebody
/// > says so.
#[test]
fn what_is_new_in_a_replaced_archive_is_not_lost() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(ARCHIVE);
    let (archive, at) = (scratch.path("a.tar"), scratch.folder("at"));
    let mount = || run(&scratch, ["--write".as_ref(), archive.as_os_str(), at.as_os_str()]);
    let unmount = || run(&scratch, ["-u".as_ref(), at.as_os_str()]);
    mount().ok();
    scratch.shell(&format!("echo mine >> at/log; rm -r at/cache; {REPLACE}"));
    let before = fs::read(&archive).unwrap();
    let ran = unmount();
    assert!(ran.code == 1 && ran.err.contains("is kept in"), "{}", ran.err);
    assert!(fs::read(&archive).unwrap() == before);
    let changes = scratch.path("a.tar.changes");
    let words: [&OsStr; 5] =
        ["commit".as_ref(), archive.as_os_str(), "--overlay".as_ref(), changes.as_os_str(), "--yes".as_ref()];
    let refused: Ran = run(&scratch, words);
    assert!(refused.code == 1 && refused.err.contains("changed or replaced since"), "{}", refused.err);
    assert!(fs::read(&archive).unwrap() == before);
    // Mounted again, both are seen together, and that goes into it.
    let ran = mount().ok();
    assert!(ran.err.contains("when that was another one"), "{}", ran.err);
    scratch.shell("echo line2 >> at/log");
    let ran = unmount().ok();
    assert_eq!((ran.err.as_str(), scratch.shell("ls -d a.tar*").as_str()), ("", "a.tar\n"));
    assert_eq!(scratch.shell("tar -xOf a.tar ./log"), "line1\nmine\nline2\n");
}

/// The same of one that is committed into later. What has the same bytes is the same, wherever it is.
#[test]
fn it_is_said_that_an_archive_is_another_one() {
    if !can_mount() {
        return;
    }
    for (script, archive, says) in [
        (REPLACE, "a.tar", Some("changed or replaced since")),
        ("echo t > tree/theirs; tar -C tree -rf a.tar ./theirs", "a.tar", Some("changed or replaced since")),
        ("touch a.tar; cp a.tar copy.tar; mv copy.tar a.tar", "a.tar", None),
        ("mv a.tar b.tar", "b.tar", None),
        ("gzip a.tar", "a.tar.gz", None),
    ] {
        let scratch = Scratch::new();
        scratch.shell(ARCHIVE);
        changed(&scratch, "a.tar", "echo mine >> log");
        scratch.shell(script);
        let dry = commit(&scratch, archive, &["--dry-run"]).ok().text();
        assert_eq!(says.is_some_and(|says| dry.contains(says)), says.is_some(), "{script}: {dry}");
        assert_eq!(dry.contains("it is another one than that"), archive == "a.tar.gz", "{script}: {dry}");
        if says.is_some() {
            let ran = commit(&scratch, archive, &["--yes"]);
            assert!(ran.code == 1 && ran.err.contains("--lossy goes on"), "{script}: {}", ran.err);
            assert_ne!(left(&scratch), "", "{script}");
            commit(&scratch, archive, &["--yes", "--lossy"]).ok();
        } else {
            commit(&scratch, archive, &["--yes"]).ok();
        }
        assert_eq!(left(&scratch), "", "{script}");
    }
}

/// What is in no listing would get into no archive, and be removed with the overlay: whatever has led to that.
#[test]
fn what_no_listing_shows_is_not_lost() {
    if !can_mount() {
        return;
    }
    // A name that is none, and a folder that is not there; beside something else, and alone.
    let changes = ["name = CAST('a/b' AS BLOB)", "folder = 4242"];
    for (change, others) in changes.into_iter().flat_map(|change| [(change, "; echo other > other"), (change, "")]) {
        let scratch = Scratch::new();
        scratch.shell(ARCHIVE);
        changed(&scratch, "a.tar", &format!("echo precious > new{others}"));
        let database = rusqlite::Connection::open(scratch.path("overlay/.tarnfs-overlay.sqlite")).unwrap();
        let sql = format!("UPDATE names SET {change} WHERE name = CAST('new' AS BLOB)");
        assert_eq!(database.execute(&sql, []).unwrap(), 1);
        drop(database);
        let before = fs::read(scratch.path("a.tar")).unwrap();
        for how in [&["--yes"][..], &["--yes", "--rewrite"], &["--yes", "--lossy"]] {
            let ran = commit(&scratch, "a.tar", how);
            assert!(ran.code == 1 && ran.err.contains("no listing of the mount shows it"), "{change}: {}", ran.err);
            assert!(fs::read(scratch.path("a.tar")).unwrap() == before);
        }
        assert_eq!(scratch.shell("cat overlay/new"), "precious\n");
    }
}
