//! Committing (`tarnfs commit`): what was written in a mount goes into the archive, whole or not at all.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../support/served.rs"]
mod served;
#[path = "../support/strace.rs"]
mod strace;
#[path = "../support/mod.rs"]
mod support;

mod appended;
mod ended;
mod formats;
mod implied;
mod random;
mod refused;
mod replaced;
mod survives;
mod unmounted;
mod words;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;

use support::{Compare, Mounted, Ran, Scratch, Seen, run, survey, tarnfs};

/// Mounts `archive` with the overlay, does what the script says there, and returns what is there then.
fn changed(scratch: &Scratch, archive: &str, script: &str) -> BTreeMap<PathBuf, Seen> {
    let overlay = scratch.path("overlay").display().to_string();
    let mounted = Mounted::new(scratch, scratch.path(archive), &["-w", &overlay]);
    scratch.shell(&format!("cd {}; {script}", mounted.at.display()));
    let seen = survey(&mounted.at, Compare::default());
    mounted.unmount();
    // The program still brings it to the disk.
    scratch.shell("flock -w 300 overlay/.tarnfs-overlay.lock true");
    seen
}

/// What a mount of the archive alone shows.
fn shown(scratch: &Scratch, archive: &str) -> BTreeMap<PathBuf, Seen> {
    let mounted = Mounted::new(scratch, scratch.path(archive), &[]);
    let seen = survey(&mounted.at, Compare::default());
    mounted.unmount();
    seen
}

/// `tarnfs commit ARCHIVE --overlay overlay`, and more words.
fn commit(scratch: &Scratch, archive: &str, more: &[&str]) -> Ran {
    let (archive, overlay) = (scratch.path(archive), scratch.path("overlay"));
    let words = ["commit".as_ref(), archive.as_os_str(), "--overlay".as_ref(), overlay.as_os_str()];
    run(scratch, words.into_iter().chain(more.iter().map(std::convert::AsRef::as_ref)))
}

/// Runs it with something to read.
fn told(scratch: &Scratch, words: &[&str], answer: &str) -> Ran {
    let mut command = tarnfs(scratch);
    command.args(words).current_dir(scratch.path(""));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It may end before it reads anything.
    let _ = child.stdin.take().unwrap().write_all(answer.as_bytes());
    Ran::from(child.wait_with_output().unwrap())
}

/// Fails with the first differences.
#[track_caller]
fn assert_same(left: &BTreeMap<PathBuf, Seen>, right: &BTreeMap<PathBuf, Seen>, what: &str) {
    let paths: std::collections::BTreeSet<_> = left.keys().chain(right.keys()).collect();
    let different: Vec<_> = paths.into_iter().filter(|path| left.get(*path) != right.get(*path)).take(5).collect();
    let lines =
        different.iter().map(|path| format!("{}\n  {:?}\n  {:?}", path.display(), left.get(*path), right.get(*path)));
    assert!(different.is_empty(), "{what}: {}", lines.collect::<Vec<_>>().join("\n"));
}

/// What the overlay still changes.
fn left(scratch: &Scratch) -> String {
    run(scratch, ["overlay".as_ref(), "status".as_ref(), scratch.path("overlay").as_os_str()]).ok().text()
}

/// Files in the overlay's folder that are not its own.
fn contents(scratch: &Scratch) -> String {
    scratch.shell("find overlay -mindepth 1 -not -path 'overlay/.tarnfs-overlay*'; ls overlay/.tarnfs-overlay.files")
}
