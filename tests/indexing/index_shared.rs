//! Many processes and one index: builders at once, readers while it is replaced, media that nobody can write.
//!
//! `TARNFS_FULL=1` builds 50 times, and replaces an index for ten minutes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::{self, Mounted, Scratch, can_mount, is_root, rounds, run, tarnfs};

const INDEX: &str = "a.tar.tarnfs.sqlite";
const BUILDERS: u64 = 16;

fn archive(scratch: &Scratch, count: u32) -> PathBuf {
    scratch.shell(&format!(
        "mkdir -p tree; for i in $(seq {count}); do echo content $i > tree/file$i; done; tar -cf a.tar tree; rm -r tree"
    ));
    scratch.path("a.tar")
}

fn names(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn start(scratch: &Scratch, archive: &Path) -> Child {
    tarnfs(scratch).args(["ls", "-lR"]).arg(archive).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// > Any number of mounts of one archive may start together.
#[test]
fn builders_that_start_together_all_see_the_tree() {
    let scratch = Scratch::new();
    let archive = archive(&scratch, 2000);
    let arguments = ["ls", "-lR", "--index-file=:memory:", archive.to_str().unwrap()];
    let expected = run(&scratch, arguments).ok().out;
    run(&scratch, ["index".as_ref(), archive.as_os_str()]).ok();
    let index = fs::read(scratch.path(INDEX)).unwrap();
    let (rounds, mut killed) = (rounds(4, 50), 0);
    for round in 0..rounds {
        fs::remove_file(scratch.path(INDEX)).unwrap();
        let mut children: Vec<Child> = (0..BUILDERS).map(|_| start(&scratch, &archive)).collect();
        // In every other round one of them is killed on its way.
        if round % 2 == 1 {
            std::thread::sleep(Duration::from_millis(round * 7919 % 60));
            let mut victim = children.swap_remove((round * 31 % BUILDERS) as usize);
            victim.kill().unwrap();
            killed += u32::from(!victim.wait().unwrap().success());
        }
        for child in children {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert!(output.stdout == expected, "round {round}: another tree");
        }
        assert!(fs::read(scratch.path(INDEX)).unwrap() == index, "round {round}: another index");
        // What the dead one has left is removed by the next one that writes; the living have left nothing.
        let left = names(&scratch.path("")).len() - 2;
        assert!(left <= (round % 2) as usize, "round {round}: {:?}", names(&scratch.path("")));
        run(&scratch, ["index".as_ref(), "-c".as_ref(), archive.as_os_str()]).ok();
        assert_eq!(names(&scratch.path("")).len(), 2, "round {round}");
    }
    println!("{rounds} rounds of {BUILDERS}, {killed} killed");
}

#[test]
fn readers_go_on_while_the_index_is_replaced() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = archive(&scratch, 3000);
    run(&scratch, ["index".as_ref(), archive.as_os_str()]).ok();
    let readers = 8;
    let (is_over, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut replaced = 0;
    std::thread::scope(|scope| {
        for reader in 0..readers {
            let (scratch, archive, is_over, reads) = (&scratch, &archive, &is_over, &reads);
            scope.spawn(move || {
                let mut round = 0;
                while !is_over.load(Ordering::Relaxed) || round == 0 {
                    // Some keep an old index, some open each new one.
                    let mount = Mounted::new(scratch, archive, &[]);
                    for step in 0..20_u64 {
                        assert_eq!(fs::read_dir(mount.path("tree")).unwrap().count(), 3000);
                        let i = (reader * 7919 + step * 104_729 + round * 31) % 3000 + 1;
                        let bytes = fs::read(mount.path(format!("tree/file{i}"))).unwrap();
                        assert_eq!(bytes, format!("content {i}\n").as_bytes());
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                    mount.unmount();
                    round += 1;
                }
            });
        }
        let until = Instant::now() + Duration::from_secs(rounds(0, 600));
        while replaced < 8 || Instant::now() < until {
            run(&scratch, ["index".as_ref(), "-c".as_ref(), archive.as_os_str()]).ok();
            replaced += 1;
        }
        is_over.store(true, Ordering::Relaxed);
    });
    println!("{} reads while it was replaced {} times", reads.into_inner(), replaced);
}

/// A folder that cannot be written, with an archive and its index in it, is used as it is; nothing is made there or in
/// the home folder.
#[test]
fn an_index_on_read_only_media_is_used_as_it_is() {
    if !is_root() {
        println!("left out: needs root");
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch, 1500);
    scratch.shell("mkdir media home; mv a.tar media/; chmod 555 home");
    let archive = scratch.path("media/a.tar");
    run(&scratch, ["index".as_ref(), archive.as_os_str()]).ok();
    let index = fs::read(scratch.path("media").join(INDEX)).unwrap();
    let listing = || scratch.shell("find media home -printf '%p %i %s %T@ %C@ %A@\\n' | sort");
    scratch.shell("mount --bind media media; mount -o remount,bind,ro,noatime media; mount --bind home home; mount -o remount,bind,ro home");
    let before = listing();
    let run = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tarnfs"));
        command.env_remove("XDG_CACHE_HOME").env("HOME", scratch.path("home")).stdin(Stdio::null());
        support::Ran::from(command.args(["ls", "-lR"]).args(options).arg(&archive).output().unwrap())
    };
    let result = std::panic::catch_unwind(|| {
        let used = run(&["--no-recreate-index"]).ok();
        let expected = run(&["--index-file=:memory:"]).ok();
        assert!(used.out == expected.out);
        assert_eq!(listing(), before, "an index was used");
        // One that does not belong: in memory, with one warning.
        let other = run(&["-i"]).ok();
        assert!(other.out == expected.out);
        assert_eq!(other.err.lines().filter(|line| line.contains("could not be written")).count(), 1, "{}", other.err);
        assert_eq!(listing(), before, "none could be written");
        if can_mount() {
            let mount = Mounted::new(&scratch, &archive, &["--no-recreate-index"]);
            assert_eq!(fs::read_dir(mount.path("tree")).unwrap().count(), 1500);
            mount.unmount();
            assert_eq!(listing(), before, "it was mounted");
        }
    });
    // The daemon may end a little after its mount, and has the folder open.
    scratch.shell("umount home");
    support::wait_until("nobody has the medium open", || {
        Command::new("umount").arg(scratch.path("media")).stderr(Stdio::null()).status().unwrap().success()
    });
    result.unwrap();
    assert!(fs::read(scratch.path("media").join(INDEX)).unwrap() == index);
}

/// Two users in a folder of both: each would replace what the other has made, at each call.
/// > An index of another user is not replaced unless that is asked for.
#[test]
fn users_who_share_a_folder_leave_each_others_index() {
    if !is_root() {
        println!("left out: needs root, to be somebody else");
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch, 1200);
    scratch.program("tarnfs");
    scratch.shell(
        "mkdir shared home1 home2; mv a.tar shared; chown 3000 shared/a.tar; chown 1001 home1; chown 1002 home2
         chmod 755 . tarnfs; chmod 644 shared/a.tar; chmod 777 shared",
    );
    let list = |user: u32, more: &str| {
        let who = format!("setpriv --reuid {user} --regid {user} --clear-groups");
        let output = Command::new("bash")
            .args(["-c", &format!("{who} ./tarnfs ls -R {more} shared/a.tar 2>&1 >/dev/null")])
            .current_dir(scratch.path(""))
            .env_remove("XDG_CACHE_HOME")
            .env("HOME", scratch.path(format!("home{}", user - 1000)))
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}");
        said
    };
    let place = scratch.path("shared/a.tar.tarnfs.sqlite");
    let identity = |path: &Path| fs::metadata(path).map(|facts| (facts.ino(), facts.uid())).unwrap();
    list(1001, "");
    let first = identity(&place);
    assert_eq!(first.1, 1001);
    let said = list(1002, "-d 2");
    assert!(said.contains("made by another user") && said.contains("home2/.cache/tarnfs"), "{said}");
    assert_eq!(identity(&place), first);
    let cache = scratch.path("home2/.cache/tarnfs");
    let cached: Vec<_> = names(&cache).into_iter().filter(|name| name.ends_with(".sqlite")).collect();
    assert_eq!(cached.len(), 1, "{cached:?}");
    let cached = cache.join(&cached[0]);
    let second = identity(&cached);
    // From now on each has one.
    list(1001, "");
    list(1002, "");
    assert_eq!((identity(&place), identity(&cached)), (first, second));
    // One that is named is somebody else's all the same, unless a new one is asked for.
    assert!(list(1002, "--index-file shared/a.tar.tarnfs.sqlite").contains("made by another user"));
    assert_eq!(identity(&place), first);
    list(1002, "-c --index-file shared/a.tar.tarnfs.sqlite");
    assert_eq!(identity(&place).1, 1002);
}
