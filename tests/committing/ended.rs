//! What a commit has left that was ended, or whose disk has failed.

use crate::strace::Call;
use crate::support::{Ran, Scratch, can_mount, run};
use crate::{assert_same, changed, commit, left, shown, strace};

const WORDS: [&str; 5] = ["commit", "a.tar", "--overlay", "overlay", "--yes"];

/// The calls of a whole commit into `a.tar`, which is `done.tar` then; nothing is changed.
fn calls(scratch: &Scratch) -> Vec<Call> {
    scratch.shell("cp -a overlay kept; cp -a a.tar kept.tar");
    let (ran, calls) = strace::calls(scratch, &[], &WORDS);
    assert_eq!(ran.code, 0, "{}", ran.err);
    scratch.shell("mv a.tar done.tar; rm -rf overlay a.tar*; mv kept overlay; mv kept.tar a.tar");
    calls
}

/// The same, with something that happens to one of its calls.
fn ended(scratch: &Scratch, inject: &str) -> Ran {
    let ran = strace::run(scratch, &["-e", &format!("inject={inject}")], &WORDS);
    assert_ne!(ran.code, 0, "{inject}");
    ran
}

/// All that lasts of archive and overlay: names, times and bytes. SQLite may make its empty files for who only reads.
fn lasting(scratch: &Scratch) -> String {
    scratch.shell(
        "find . -path ./cache -prune -o -type f -not -name '*-shm' -not \\( -name '*-wal' -empty \\) \
         -printf '%p %i %s %T@ %m ' -exec md5sum {} \\; | sort",
    )
}

/// > With `--dry-run`, nothing is put right that an ended commit has left: it is said what would be.
#[test]
fn a_dry_run_puts_nothing_right() {
    if !can_mount() || !strace::have_strace() {
        return;
    }
    let dry = |scratch: &Scratch| {
        let before = lasting(scratch);
        let said = commit(scratch, "a.tar", &["--dry-run"]).ok().text();
        assert_eq!(lasting(scratch), before, "{said}");
        said
    };
    // Something is removed, or it is appended to.
    for script in ["rm 1; seq 3000 > new", "seq 3000 > new"] {
        let is_appended = !script.contains("rm");
        let how = if is_appended { "is appended to: tar" } else { "is written anew: tar" };
        let scratch = Scratch::new();
        scratch.shell("mkdir tree; for i in 1 2 3; do echo $i > tree/$i; done; tar -C tree -cf a.tar .");
        let expected = changed(&scratch, "a.tar", script);
        let calls = calls(&scratch);
        let said = dry(&scratch);
        assert!(said.contains(how) && !said.contains("first"), "{said}");
        // What makes it a part of the archive is the last one.
        let last = |names: &[&str], on: &str| {
            let is_it = |call: &&Call| names.contains(&call.name.as_str()) && call.rest.contains(on);
            calls.iter().rposition(|call| is_it(&call)).unwrap()
        };
        let at = if is_appended {
            last(&["pwrite64"], "/a.tar>")
        } else {
            last(&["rename", "renameat", "renameat2"], "a.tar")
        };
        let kill = |call: &Call| {
            ended(&scratch, &format!("{}:signal=KILL:when={}", call.name, call.number));
        };
        scratch.shell("cp -a overlay kept; cp -a a.tar kept.tar");
        kill(&calls[at]);
        let said = dry(&scratch);
        let first = if is_appended { "are taken away first\n" } else { "it is removed first\n" };
        assert!(said.contains(first) && said.contains(how) && !said.contains("is not kept"), "{said}");
        commit(&scratch, "a.tar", &["--yes"]).ok();
        assert_same(&expected, &shown(&scratch, "a.tar"), script);
        // Only the emptying is left.
        scratch.shell("rm -rf overlay a.tar*; mv kept overlay; mv kept.tar a.tar");
        kill(calls[at..].iter().find(|call| call.name == "fsync").unwrap());
        let said = dry(&scratch);
        assert!(said.contains("only the overlay is emptied"), "{said}");
        assert_ne!(left(&scratch), "");
        commit(&scratch, "a.tar", &["--yes"]).ok();
        assert_eq!(left(&scratch), "");
        assert_same(&expected, &shown(&scratch, "a.tar"), script);
    }
}

/// What an ended commit has left behind the end does not keep the next mount from being written to.
#[test]
fn the_next_mount_with_write_goes_on() {
    if !can_mount() || !strace::have_strace() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; for i in 1 2 3; do echo $i > tree/$i; done; tar -C tree -cf a.tar .");
    changed(&scratch, "a.tar", "seq 3000 > new");
    let calls = calls(&scratch);
    let head = calls.iter().rfind(|call| call.name == "pwrite64" && call.rest.contains("/a.tar>")).unwrap();
    ended(&scratch, &format!("pwrite64:signal=KILL:when={}", head.number));
    scratch.shell("mv overlay a.tar.changes");
    let (archive, at) = (scratch.path("a.tar"), scratch.folder("at"));
    run(&scratch, ["--write".as_ref(), archive.as_os_str(), at.as_os_str()]).ok();
    scratch.shell("echo later > at/later; tail -1 at/new");
    run(&scratch, ["-u".as_ref(), at.as_os_str()]).ok();
    assert_eq!(scratch.shell("tar -xOf a.tar ./later ./new | tail -1; ls | grep -c changes || true"), "3000\n0\n");
    assert_eq!(scratch.shell("tar -tf a.tar | sort -u").trim(), "./\n./1\n./2\n./3\n./later\n./new");
}

/// What the disk has refused may be on it all the same. Nobody takes it for all of an overlay to which something was
/// written since.
#[test]
fn what_the_disk_has_refused_is_not_taken_for_done() {
    if !can_mount() || !strace::have_strace() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; for i in 1 2 3; do echo $i > tree/$i; done; tar -C tree -cf a.tar .");
    changed(&scratch, "a.tar", "seq 3000 > new");
    let calls = calls(&scratch);
    let head = calls.iter().rposition(|call| call.name == "pwrite64" && call.rest.contains("/a.tar>")).unwrap();
    let is_sync = |call: &&Call| call.name == "fsync" && call.rest.contains("/a.tar>");
    let sync = calls[head..].iter().find(is_sync).unwrap();
    scratch.shell("cp -a overlay kept; cp -a a.tar kept.tar");
    // Once, and it is known to be undone.
    ended(&scratch, &format!("fsync:error=EIO:when={}", sync.number));
    scratch.shell("cmp a.tar kept.tar; rm -rf overlay a.tar*; mv kept overlay; mv kept.tar a.tar");
    // For ever.
    let ran = ended(&scratch, &format!("fsync:error=EIO:when={}+", sync.number));
    assert!(ran.err.contains("the next commit takes it away"), "{}", ran.err);
    let expected = changed(&scratch, "a.tar", "echo later > later");
    // A loss of power: the disk has all of it.
    scratch.shell("cat done.tar > a.tar; tar -tf a.tar | grep new");
    let before = lasting(&scratch);
    let said = commit(&scratch, "a.tar", &["--dry-run"]).ok().text();
    assert!(said.contains("are taken away first; only then"), "{said}");
    assert_eq!(lasting(&scratch), before);
    let seen = changed(&scratch, "a.tar", "true");
    assert_same(&expected, &seen, "as it is mounted");
    commit(&scratch, "a.tar", &["--yes"]).ok();
    assert_same(&expected, &shown(&scratch, "a.tar"), "a.tar");
    assert_eq!(left(&scratch), "");
    assert_eq!(scratch.shell("tar -tf a.tar | grep -c new").trim(), "1");
}
