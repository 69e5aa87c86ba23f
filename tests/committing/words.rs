//! What is said, and what is asked.

use std::fs;

use crate::support::{Mounted, Scratch, can_mount, run};
use crate::{changed, commit, left, told};

fn archive(scratch: &Scratch) {
    scratch.shell("mkdir tree; for i in 1 2 3 4 5; do echo $i > tree/$i; done; tar -C tree -cf a.tar .");
    changed(scratch, "a.tar", "echo new > new; rm 1; mv 2 two; echo more >> 3");
}

/// > `commit` says first what it will do, and asks; with `--dry-run` it does nothing, with `--yes` it does not ask.
#[test]
fn it_says_what_it_will_do_and_asks() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch);
    let before = fs::read(scratch.path("a.tar")).unwrap();
    let status = left(&scratch);
    let words = ["commit", "a.tar", "--overlay", "overlay"];
    let dry = told(&scratch, &[&words[..], &["--dry-run"]].concat(), "commit\n").ok().text();
    assert!(dry.contains("1 added, 1 changed, 1 removed, 1 renamed; 11 bytes"), "{dry}");
    assert!(dry.contains("overlay status overlay") && !dry.contains("Enter"), "{dry}");
    for answer in ["", "no\n", "\n", "yes, commit\n", "commi"] {
        let ran = told(&scratch, &words, answer);
        assert_eq!((ran.code, ran.err.as_str()), (1, "tarnfs: nothing was committed\n"), "{answer}");
        assert!(ran.text().starts_with(&dry) && ran.text().contains("Enter \"commit\""), "{}", ran.text());
        assert!(fs::read(scratch.path("a.tar")).unwrap() == before && left(&scratch) == status, "{answer}");
    }
    told(&scratch, &words, "commit\n").ok();
    assert_eq!(scratch.shell("tar -tf a.tar | sed 's|^./||' | sort | tr '\\n' ' '").trim(), "3 4 5 new two");
    assert_eq!(scratch.shell("tar -xOf a.tar $(tar -tf a.tar | grep '3$')"), "3\nmore\n");
    assert_eq!(left(&scratch), "");
    let ran = commit(&scratch, "a.tar", &["--yes"]).ok();
    assert_eq!((ran.text().as_str(), ran.err.as_str()), ("", ""));
}

/// > `--commit-overlay` does the same, as ratarmount has it.
#[test]
fn it_is_called_as_in_ratarmount() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch);
    for (words, says) in [
        (&["--commit-overlay", "a.tar"][..], "name the folder of the overlay"),
        (&["--commit-overlay", "-w", "overlay", "a.tar", "a.tar"], "name one archive"),
        (&["--commit-overlay", "-w", "overlay"], "name one archive"),
    ] {
        let ran = told(&scratch, words, "commit\n");
        assert!(ran.code == 2 && ran.err.contains(says), "{words:?}: {}", ran.err);
    }
    let ran = told(&scratch, &["--commit-overlay", "--write-overlay", "overlay", "a.tar"], "no\n");
    assert_eq!(ran.code, 1, "{}", ran.err);
    told(&scratch, &["--commit-overlay", "--write-overlay", "overlay", "a.tar"], "commit\n").ok();
    assert_eq!(left(&scratch), "");
    assert_eq!(scratch.shell("tar -xOf a.tar $(tar -tf a.tar | grep new)"), "new\n");
}

/// > While a mount uses an overlay, it is not committed.
#[test]
fn an_overlay_in_use_is_not_committed() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch);
    let before = fs::read(scratch.path("a.tar")).unwrap();
    let overlay = scratch.path("overlay").display().to_string();
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-w", &overlay]);
    let ran = commit(&scratch, "a.tar", &["--yes"]);
    assert!(ran.code == 3 && ran.err.contains("is in use by process") && ran.err.contains("mounted at"), "{}", ran.err);
    mounted.unmount();
    assert!(fs::read(scratch.path("a.tar")).unwrap() == before);
    commit(&scratch, "a.tar", &["--yes"]).ok();
}

/// > An overlay that ratarmount has made can be committed.
#[test]
fn an_overlay_of_ratarmount_is_committed() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir -p tree/d; echo 1 > tree/d/a; echo 2 > tree/d/b; tar -C tree -cf a.tar .; mkdir -p overlay/d; echo 3 > overlay/d/a; echo 4 > overlay/c");
    let database = rusqlite::Connection::open(scratch.path("overlay/.ratarmount.overlay.sqlite")).unwrap();
    database
        .execute_batch(
            "CREATE TABLE files (path VARCHAR(65535), name VARCHAR(65535), mtime REAL, mode INTEGER, uid INTEGER, gid INTEGER,
             deleted BOOL, PRIMARY KEY (path, name));
             INSERT INTO files VALUES ('/d', 'b', NULL, NULL, NULL, NULL, 1);",
        )
        .unwrap();
    drop(database);
    commit(&scratch, "a.tar", &["--yes"]).ok();
    let listed = scratch.shell("mkdir out; tar -C out -xf a.tar; cd out; find . -type f | sort | xargs tail -n +1");
    assert_eq!(listed, "==> ./c <==\n4\n\n==> ./d/a <==\n3\n");
    // It is not taken over once more.
    let expected = changed(&scratch, "a.tar", "true");
    assert_eq!((left(&scratch), expected.len()), (String::new(), 3));
    assert_eq!(run(&scratch, ["cat".as_ref(), scratch.path("a.tar").as_os_str(), "d/a".as_ref()]).ok().text(), "3\n");
}
