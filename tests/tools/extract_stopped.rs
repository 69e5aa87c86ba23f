//! `tarnfs extract` that is stopped: by kill -9, by Ctrl-C, by a full disk. What has its name is whole, and the next
//! call goes on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{
    Compare, DEFAULT_SIGNALS, Ran, Scratch, Seen, assert_twins, behind, is_root, rounds, run, signal, survey,
    wait_until,
};
use rustix::process::Signal;

const ARCHIVES: [&str; 4] = ["a.tar", "a.tar.gz", "a.tar.zst", "indexed.tar.gz"];

/// Archives of a tree of small and large files, links and folders, and the tree.
fn prepare(scratch: &Scratch) -> BTreeMap<PathBuf, Seen> {
    scratch.shell(&format!(
        "for d in $(seq 20); do mkdir -p tree/$d/inner; for f in $(seq 30); do head -c $((f * 700)) /dev/urandom > tree/$d/inner/$f; done
         ln tree/$d/inner/1 tree/$d/hard; ln -s inner tree/$d/link; chmod 550 tree/$d/inner; done
         for n in 1 2 3; do head -c 2000000 /dev/urandom > tree/large-$n; done
         tar --format=pax --sort=name -cf a.tar -C tree .; gzip -1 -k a.tar; zstd -q -k a.tar; cp a.tar.gz indexed.tar.gz; {} index indexed.tar.gz",
        env!("CARGO_BIN_EXE_tarnfs")
    ));
    survey(&scratch.path("tree"), Compare::default())
}

/// Fails if something has its name and is not what it is in the archive.
fn all_is_whole(to: &Path, tree: &BTreeMap<PathBuf, Seen>, what: &str) {
    if !to.exists() {
        return;
    }
    for (path, seen) in survey(to, Compare { skip_folder_times: true, ..Compare::default() }) {
        // What is in the hidden folder has no name yet.
        if path.to_string_lossy().starts_with(".tarnfs-extract-") {
            continue;
        }
        let stored = &tree[&path];
        let of = |seen: &Seen| (seen.kind, seen.size, seen.content, seen.target.clone());
        assert_eq!(of(&seen), of(stored), "{what}: {}", path.display());
        if seen.kind == "file" {
            assert_eq!((seen.mode, seen.mtime), (stored.mode.clone(), stored.mtime), "{what}: {}", path.display());
        }
    }
}

/// Hidden folders in `to`.
fn hidden(to: &Path) -> Vec<String> {
    let names = fs::read_dir(to).into_iter().flatten().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(".tarnfs-extract-")).collect()
}

fn resume(scratch: &Scratch, archive: &str, to: &Path) -> Ran {
    let path = scratch.path(archive);
    run(scratch, ["extract".as_ref(), "--resume".as_ref(), "-C".as_ref(), to.as_os_str(), path.as_os_str()])
}

/// How long a call takes here and now.
fn duration(scratch: &Scratch, archive: &str) -> Duration {
    let (path, to) = (scratch.path(archive), scratch.path("measured"));
    let start = Instant::now();
    run(scratch, ["extract".as_ref(), "-C".as_ref(), to.as_os_str(), path.as_os_str()]).ok();
    let taken = start.elapsed();
    fs::remove_dir_all(to).unwrap();
    taken
}

/// Stops calls at many points; what they leave is whole, and another call makes it complete.
fn stopped_by(with: Signal, calls: u64) {
    let scratch = Scratch::new();
    let tree = prepare(&scratch);
    for archive in ARCHIVES {
        let (taken, to) = (duration(&scratch, archive), scratch.path("to"));
        let (mut stopped, mut partial) = (0, 0);
        for call in 0..calls {
            let mut command = behind(&scratch, DEFAULT_SIGNALS);
            command.args(["extract", "-C"]).arg(&to).arg(scratch.path(archive)).stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            std::thread::sleep(taken.mul_f64((call as f64 + 0.5) / calls as f64));
            signal(&child, with);
            let start = Instant::now();
            let status = child.wait().unwrap();
            assert!(start.elapsed() < Duration::from_secs(60), "{archive}: it goes on");
            stopped += u32::from(!status.success());
            all_is_whole(&to, &tree, archive);
            // Nobody can remove what a process has that is killed.
            assert!(with == Signal::KILL || hidden(&to).is_empty(), "{archive}: {:?}", hidden(&to));
            let count = if to.exists() { survey(&to, Compare::default()).len() } else { 0 };
            partial += u32::from(count > 0 && count < tree.len());
            let ran = resume(&scratch, archive, &to);
            assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{archive} {call}");
            assert_twins(&to, &scratch.path("tree"), Compare::default());
            fs::remove_dir_all(&to).unwrap();
        }
        println!("{archive}: {stopped} of {calls} were stopped, {partial} in the middle");
        assert!(stopped > 0, "{archive}: none was stopped");
    }
}

/// > What is extracted has its name only when it is whole, also if the program is killed or the disk is full.
#[test]
fn after_kill_all_is_whole_and_the_next_call_goes_on() {
    stopped_by(Signal::KILL, rounds(4, 100));
}

#[test]
fn after_an_interrupt_all_is_whole_and_the_next_call_goes_on() {
    stopped_by(Signal::INT, rounds(3, 50));
}

/// A symbolic link gets its time a moment after it was made.
#[test]
fn a_link_that_was_made_last_gets_its_time() {
    let scratch = Scratch::new();
    let to = scratch.folder("to");
    scratch.shell(
        "mkdir tree; ln -s target tree/link; touch -h -d 2001-01-01T12:00 tree/link; tar -C tree -cf a.tar .
         ln -s target to/link",
    );
    resume(&scratch, "a.tar", &to).ok();
    let time = |link: &Path| fs::symlink_metadata(link).unwrap().modified().unwrap();
    assert_eq!(time(&to.join("link")), time(&scratch.path("tree/link")));
}

/// > Ctrl-C leaves nothing behind.
///
/// Also where it takes longer to remove what there is than anything else is waited for.
#[test]
fn an_interrupt_waits_until_very_many_files_are_removed() {
    const FILES: usize = 1500;
    let scratch = Scratch::new();
    if scratch.shell("strace -qq -o /dev/null true 2> /dev/null && echo works || true") != "works\n" {
        println!("left out: strace is not installed, or processes may not be traced here");
        return;
    }
    // Behind the files comes what takes long to decode.
    scratch.shell(&format!(
        "mkdir tree; for n in $(seq {FILES}); do echo $n > tree/$n; done; truncate -s 400M tree/zeros
         tar --sort=name -cf a.tar tree; gzip -1 a.tar"
    ));
    let to = scratch.path("to");
    // The process that is traced is the one that was started.
    let strace = ["strace", "-D", "-f", "-qq", "-o", "trace", "-e", "trace=unlinkat"];
    let slow = ["-e", "inject=unlinkat:delay_enter=3000"];
    let words: Vec<_> = DEFAULT_SIGNALS.iter().copied().chain(strace).chain(slow).collect();
    let mut command = behind(&scratch, &words);
    command.current_dir(scratch.path("")).args(["extract", "-C", "to", "a.tar.gz"]).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let staged = || hidden(&to).first().map_or(0, |name| fs::read_dir(to.join(name)).map_or(0, Iterator::count));
    wait_until("much was written", || staged() >= FILES / 2);
    signal(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!to.exists(), "{:?}", hidden(&to));
}

/// What is stored several times needs room only once.
#[test]
fn what_is_replaced_needs_no_room() {
    if !is_root() {
        println!("left out: needs root, to mount a small file system");
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree at; ln -s log tree/link; for n in 1 2 3 4; do head -c 8000000 /dev/urandom > tree/log; tar -rf a.tar -C tree log; done
         tar -rf a.tar -C tree link; gzip -1 -k a.tar",
    );
    for archive in ["a.tar", "a.tar.gz"] {
        scratch.shell("mount -t tmpfs -o size=20m none at");
        let ran = run(
            &scratch,
            ["extract", "-C", "at/to", archive].map(|word| match word {
                "at/to" | "a.tar" | "a.tar.gz" => scratch.path(word).into_os_string(),
                word => word.into(),
            }),
        );
        let twins = std::panic::catch_unwind(|| {
            assert_eq!(ran.code, 0, "{archive}: {}", ran.err);
            let says = ran.err.contains("all is read a second time") && ran.err.lines().count() == 1;
            assert!(if archive == "a.tar" { ran.err.is_empty() } else { says }, "{archive}: {}", ran.err);
            assert_twins(
                &scratch.path("at/to"),
                &scratch.path("tree"),
                Compare { skip_folder_times: true, whole_seconds: true, ..Compare::default() },
            );
        });
        scratch.shell("umount at");
        assert!(twins.is_ok(), "{archive}");
    }
}

#[test]
fn a_full_disk_leaves_nothing_half() {
    if !is_root() {
        println!("left out: needs root, to mount a small file system");
        return;
    }
    let scratch = Scratch::new();
    let tree = prepare(&scratch);
    let at = scratch.folder("at");
    for (number, size) in (1..).zip(["300k", "2m", "6m", "10m", "12m"]) {
        for archive in ARCHIVES {
            let mount = format!("mount -t tmpfs -o size={size} none at");
            scratch.shell(&mount);
            let (path, to) = (scratch.path(archive), at.join("to"));
            let ran = run(&scratch, ["extract".as_ref(), "-C".as_ref(), to.as_os_str(), path.as_os_str()]);
            let result = std::panic::catch_unwind(|| {
                assert_eq!(ran.code, 1, "{archive} {size}: {}", ran.err);
                // What is decoded for the first time is written at once, and read again where there is no room.
                let lines = if ["a.tar.gz", "a.tar.zst"].contains(&archive) { 2 } else { 1 };
                assert!(ran.err.contains("No space left on device") && ran.err.lines().count() == lines, "{}", ran.err);
                all_is_whole(&to, &tree, archive);
                // A folder that was made is gone again if nothing is in it.
                let names = fs::read_dir(&to).into_iter().flatten().map(|entry| entry.unwrap().file_name());
                assert!(names.into_iter().all(|name| !name.to_string_lossy().starts_with(".tarnfs")), "{archive}");
            });
            scratch.shell("mount -o remount,size=200m at");
            let ran = resume(&scratch, archive, &to);
            let twins = std::panic::catch_unwind(|| {
                assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{archive} {number}");
                assert_twins(&to, &scratch.path("tree"), Compare::default());
            });
            scratch.shell("umount at");
            assert!(result.is_ok() && twins.is_ok(), "{archive} {size}");
        }
    }
}

/// An archive that changes while it is extracted is an error, and no mixture.
#[test]
fn an_archive_that_is_cut_meanwhile_is_an_error() {
    let scratch = Scratch::new();
    let tree = prepare(&scratch);
    let to = scratch.path("to");
    let taken = duration(&scratch, "a.tar");
    for call in 0..rounds(6, 60) {
        fs::copy(scratch.path("a.tar"), scratch.path("changing.tar")).unwrap();
        let mut command = behind(&scratch, DEFAULT_SIGNALS);
        command.args(["extract", "-C"]).arg(&to).arg(scratch.path("changing.tar")).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        std::thread::sleep(taken.mul_f64(call as f64 / 6.0).min(taken));
        fs::File::options().write(true).open(scratch.path("changing.tar")).unwrap().set_len(1 << 20).unwrap();
        let ended = child.wait().unwrap();
        all_is_whole(&to, &tree, "changing");
        if ended.success() {
            // It was through before.
            assert_twins(&to, &scratch.path("tree"), Compare::default());
        }
        let _ = Command::new("rm").arg("-rf").arg(&to).status();
    }
}
