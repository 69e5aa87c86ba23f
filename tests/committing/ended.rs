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
    let seen = changed(&scratch, "a.tar", "true");
    assert_same(&expected, &seen, "as it is mounted");
    commit(&scratch, "a.tar", &["--yes"]).ok();
    assert_same(&expected, &shown(&scratch, "a.tar"), "a.tar");
    assert_eq!(left(&scratch), "");
    assert_eq!(scratch.shell("tar -tf a.tar | grep -c new").trim(), "1");
}
