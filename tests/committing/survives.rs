//! A commit that is ended anywhere, or whose disk is full: the old archive or the new one is there, whole, and what was
//! written is in the overlay as long as it is not in the archive.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use crate::support::{Compare, Mounted, Ran, Scratch, Seen, can_mount, is_root, rounds, survey};
use crate::{assert_same, changed, commit, left, shown, strace};

/// Calls that change something that lasts.
const LASTING: [&str; 16] = [
    "write",
    "pwrite64",
    "pwritev",
    "fsync",
    "fdatasync",
    "linkat",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "ftruncate",
    "fallocate",
    "fchown",
    "fchmod",
    "fsetxattr",
];

type Tree = BTreeMap<PathBuf, Seen>;

/// Archive and overlay in the folder `base`, from which each round begins.
struct Base {
    name: &'static str,
    before: Tree,
    after: Tree,
}

impl Base {
    fn new(scratch: &Scratch, name: &'static str) -> Self {
        scratch.shell(&format!(
            "mkdir -p tree/d; for i in $(seq 20); do echo old $i > tree/d/$i; done; seq 30000 > tree/large; ln tree/d/1 tree/hard
            tar -C tree -caf {name} ."
        ));
        let before = shown(scratch, name);
        // Without the removals, a plain tar is appended to.
        let removals = if name == "b.tar" { "" } else { "rm d/2 d/3; mv d/4 moved;" };
        let script = &format!("echo more >> d/1; {removals} mkdir new; seq 40000 > new/file; chmod 600 large");
        let after = changed(scratch, name, script);
        scratch.shell(&format!("mkdir base; cp -a {name} overlay base"));
        Self { name, before, after }
    }

    fn again(&self, scratch: &Scratch) {
        let name = self.name;
        scratch.shell(&format!("rm -rf {name}* overlay .{name}*; cp -a base/{name} base/overlay ."));
    }

    /// Looks at what an ended commit has left, and goes on from there.
    fn check(&self, scratch: &Scratch, what: &str) {
        let found = shown(scratch, self.name);
        if found != self.before {
            assert_same(&self.after, &found, what);
        }
        // What was written is still there, whatever happens next.
        if what.len().is_multiple_of(2) {
            let overlay = scratch.path("overlay").display().to_string();
            let mounted = Mounted::new(scratch, scratch.path(self.name), &["-w", &overlay]);
            assert_same(&self.after, &survey(&mounted.at, Compare::default()), what);
            mounted.unmount();
        }
        let ran = commit(scratch, self.name, &["--yes"]);
        assert_eq!(ran.code, 0, "{what}: {}", ran.err);
        assert_same(&self.after, &shown(scratch, self.name), what);
        let files = scratch
            .shell("find overlay -type f -not -path 'overlay/.tarnfs-overlay*'; ls overlay/.tarnfs-overlay.files");
        assert_eq!((left(scratch), files), (String::new(), String::new()), "{what}");
        // Nor is the hidden name left that the new archive had.
        assert_eq!(scratch.shell(&format!("find . -maxdepth 1 -name '.{}*'", self.name)), "", "{what}");
    }
}

fn words(name: &str) -> [String; 5] {
    ["commit", name, "--overlay", "overlay", "--yes"].map(str::to_owned)
}

fn traced(scratch: &Scratch, name: &str, inject: &str) -> Ran {
    let words = words(name);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    strace::run(scratch, &["-e", &format!("inject={inject}")], &words)
}

/// The calls of a whole commit that change something, by name and number.
fn lasting(scratch: &Scratch, base: &Base) -> BTreeSet<(String, u32)> {
    base.again(scratch);
    let words = words(base.name);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (ran, calls) = strace::calls(scratch, &[], &words);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let is_lasting = |call: &&strace::Call| LASTING.contains(&call.name.as_str()) && !call.rest.contains("eventfd");
    calls.iter().filter(is_lasting).map(|call| (call.name.clone(), call.number)).collect()
}

/// > Wherever a commit is killed, the old archive or the new one is there, whole, and nothing that was written is lost;
/// > the next one goes on from there.
#[test]
fn a_commit_may_be_killed_anywhere() {
    if !can_mount() || !strace::have_strace() {
        return;
    }
    let mut rng = 7_u64;
    for name in ["a.tar", "a.tar.zst", "b.tar"] {
        let scratch = Scratch::new();
        let base = Base::new(&scratch, name);
        let calls = lasting(&scratch, &base);
        assert!(calls.len() > 20, "{calls:?}");
        // All of them at night.
        let few = rounds(25, u64::MAX) as usize;
        for (call, number) in &calls {
            rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let is_rare = !["write", "pwrite64"].contains(&call.as_str());
            if calls.len() > few && !is_rare && (rng >> 33) as usize % calls.len() >= few {
                continue;
            }
            base.again(&scratch);
            let what = format!("{name}: killed at {call} {number}");
            let ran = traced(&scratch, name, &format!("{call}:signal=KILL:when={number}"));
            assert_ne!(ran.code, 0, "{what}");
            base.check(&scratch, &what);
        }
    }
}

/// > Whatever of a commit fails, it says so, and the next one goes on from there.
#[test]
fn whatever_fails_is_told_and_does_no_harm() {
    if !can_mount() || !strace::have_strace() {
        return;
    }
    let (mut failed, mut went_on) = (0, 0);
    for name in ["a.tar", "b.tar"] {
        let scratch = Scratch::new();
        let base = Base::new(&scratch, name);
        let calls = lasting(&scratch, &base);
        for (call, number) in
            calls.iter().filter(|(call, _)| !["write", "pwrite64", "fallocate"].contains(&call.as_str()))
        {
            for error in ["EIO", "ENOSPC"] {
                base.again(&scratch);
                let what = format!("{name}: {error} at {call} {number}");
                let ran = traced(&scratch, name, &format!("{call}:error={error}:when={number}"));
                assert!(ran.code == 0 || !ran.err.is_empty(), "{what}");
                assert!(!ran.err.contains("panicked"), "{what}: {}", ran.err);
                if ran.code == 0 {
                    went_on += 1;
                    assert_same(&base.after, &shown(&scratch, name), &what);
                } else {
                    failed += 1;
                }
                base.check(&scratch, &what);
            }
        }
    }
    assert!(failed > 5, "{failed} failed, {went_on} went on");
}

/// > Ctrl-C leaves the old archive and the overlay as they are, until the new archive is whole.
#[test]
fn ctrl_c_leaves_all_as_it_is() {
    if !can_mount() || !strace::have_strace() {
        return;
    }
    let scratch = Scratch::new();
    let base = Base::new(&scratch, "a.tar.zst");
    let calls = lasting(&scratch, &base);
    let mut interrupted = 0;
    for (call, number) in
        calls.iter().filter(|(call, _)| ["write", "fsync", "linkat", "renameat"].contains(&call.as_str()))
    {
        if call == "write" && !number.is_multiple_of(3) {
            continue;
        }
        base.again(&scratch);
        let what = format!("interrupted at {call} {number}");
        let ran = traced(&scratch, "a.tar.zst", &format!("{call}:signal=INT:when={number}"));
        // Before anything is done, the signal ends it as any program (-1).
        assert!([0, 130, -1].contains(&ran.code), "{what}: {} {}", ran.code, ran.err);
        if ran.code != 0 {
            interrupted += 1;
            assert_same(&base.before, &shown(&scratch, "a.tar.zst"), &what);
            assert_ne!(left(&scratch), "", "{what}");
        }
        base.check(&scratch, &what);
    }
    assert!(interrupted > 0);
}

/// > On a full disk a commit says so, and the old archive and the overlay stay as they are.
#[test]
fn a_full_disk_does_no_harm() {
    if !can_mount() || !is_root() {
        return;
    }
    let (mut failed, mut done) = (0, 0);
    for (name, free) in
        ["a.tar", "b.tar"].into_iter().flat_map(|name| (0..=1_200).step_by(100).map(move |free| (name, free)))
    {
        let scratch = Scratch::new();
        let base = Base::new(&scratch, name);
        base.again(&scratch);
        scratch.shell("mkdir -p disk; mount -t tmpfs -o size=5m tmpfs disk; cp -a *.tar overlay disk");
        let fill = format!(
            "avail=$(df --output=avail -k disk | tail -1); n=$((avail - {free})); [ $n -le 0 ] || head -c ${{n}}k /dev/zero > disk/ballast"
        );
        scratch.shell(&fill);
        let before = fs::read(scratch.path("disk").join(name)).unwrap();
        let (archive, overlay) = (scratch.path("disk").join(name), scratch.path("disk/overlay"));
        let words =
            ["commit".as_ref(), archive.as_os_str(), "--overlay".as_ref(), overlay.as_os_str(), "--yes".as_ref()];
        let ran = crate::support::run(&scratch, words);
        if ran.code == 0 {
            done += 1;
        } else {
            failed += 1;
            assert!(ran.err.contains("space") || ran.err.contains("room"), "{free}: {}", ran.err);
            assert!(fs::read(&archive).unwrap() == before, "{free}");
        }
        scratch.shell("rm -rf *.tar overlay; cp -a disk/*.tar disk/overlay .");
        scratch.unmount("disk");
        base.check(&scratch, &format!("{name}: {free} KiB free"));
    }
    assert!(failed > 2 && done > 2, "{failed} failed, {done} done");
}
