//! The two processes of a mount: what the one that serves has given up, and what becomes of the mount when either of
//! them dies.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::gated::Gated;
use crate::support::{
    self, DEFAULT_SIGNALS, Scratch, behind, can_mount, foreground, has_ended, have, in_own_namespace, is_gone,
    is_mounted, kill_watcher, run, signal, wait_until, watcher,
};
use rustix::process::Signal;

fn archive(scratch: &Scratch) -> PathBuf {
    scratch.shell("mkdir tree; echo hello > tree/file; seq 1 2000000 > tree/numbers; tar -C tree -czf a.tar.gz .");
    scratch.path("a.tar.gz")
}

fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_killed_daemon_leaves_neither_mount_nor_folder() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = archive(&scratch);
    // A folder that it makes is removed, one that was there stays.
    let (made, there) = (scratch.path("made\nhere"), scratch.folder("there"));
    for at in [&made, &there] {
        let mut child = foreground(&scratch, &archive, at);
        let open = fs::File::open(at.join("numbers")).unwrap();
        kill(&mut child);
        wait_until("the mount is gone", || if at == &made { is_gone(at) } else { !is_mounted(at) });
        drop(open);
    }
    assert!(there.exists());
    // One that is killed while it reads the archive for the first time has made no folder yet, and one that has leaves
    // none.
    scratch.shell("head -c 300M /dev/zero | gzip -1 > large.gz");
    for milliseconds in [1, 20, 60, 100] {
        let mut command = behind(&scratch, DEFAULT_SIGNALS);
        let mut child = command
            .args(["-f", "-c"])
            .args([scratch.path("large.gz"), made.clone()])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        kill(&mut child);
        wait_until("the folder is gone", || is_gone(&made));
    }
}

#[test]
fn a_killed_daemon_of_another_user_leaves_nothing_either() {
    if !can_mount() || !have("setpriv") || !have("fusermount3") {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch);
    let program = scratch.program("tarnfs");
    scratch.shell("chmod 755 . tarnfs a.tar.gz; mkdir home; chown 65534:65534 home");
    in_own_namespace(|_| {
        let at = scratch.path("home/mnt");
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program).arg("-f");
        command.args([scratch.path("a.tar.gz"), at.clone()]).env("XDG_CACHE_HOME", scratch.path("home"));
        let mut child = support::daemon(command, &at);
        kill(&mut child);
        wait_until("the mount point is gone", || is_gone(&at));
    });
}

/// The helper is told a path. Whoever may write a folder above can have it lead elsewhere in that moment.
#[test]
fn a_helper_that_was_led_elsewhere_has_mounted_nothing() {
    if !can_mount() || !have("setpriv") || !have("fusermount3") {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch);
    let (program, helper) = (scratch.program("tarnfs"), scratch.path("helper"));
    let script = "#!/bin/sh\n[ $1 = -u ] || [ ! -e swap ] || { mv d moved; ln -s other d; }\nexec fusermount3 \"$@\"\n";
    fs::write(&helper, script).unwrap();
    scratch.shell(
        "chmod 755 . tarnfs helper; mkdir home; cd home; mkdir -p d other/a; cp ../a.tar.gz d; touch other/a/own
         chown -R 65534:65534 .",
    );
    let home = scratch.path("home");
    let start = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
        command.args(["-f", "d/a.tar.gz"]).current_dir(&home).env("XDG_CACHE_HOME", &home);
        command.env("FUSERMOUNT_PATH", &helper);
        command
    };
    in_own_namespace(|_| {
        // That it mounts at all is seen where nobody is in its way.
        let child = support::daemon(start(), &home.join("d/a"));
        signal(&child, Signal::TERM);
        wait_until("the mount point is gone", || is_gone(&home.join("d/a")));
        drop(child);
        fs::write(home.join("swap"), "").unwrap();
        let mut child = start().stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut code = None;
        wait_until("it has ended, or is mounted elsewhere", || {
            code = child.try_wait().unwrap().map(|status| status.code());
            code.is_some() || is_mounted(&home.join("other/a")) && home.join("other/a/file").exists()
        });
        let is_covered = is_mounted(&home.join("other/a"));
        if code.is_none() {
            signal(&child, Signal::TERM);
            child.wait().unwrap();
        }
        assert!(!is_covered, "a folder of others was mounted on");
        assert_eq!(code, Some(Some(6)));
        assert!(home.join("other/a/own").exists() && home.join("moved").exists());
    });
}

#[test]
fn what_others_have_mounted_over_it_stays() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = archive(&scratch);
    let at = scratch.folder("mnt");
    let mut below = foreground(&scratch, &archive, &at);
    run(&scratch, ["-o".as_ref(), "nonempty".as_ref(), archive.as_os_str(), at.as_os_str()]).ok();
    let its_watcher = watcher(&below);
    kill(&mut below);
    wait_until("its watcher has done what it does", || has_ended(its_watcher));
    assert_eq!(fs::read(at.join("file")).unwrap(), b"hello\n");
    for _ in 0..2 {
        run(&scratch, ["-u".as_ref(), at.as_os_str()]).ok();
    }
    assert!(!is_mounted(&at));
    // The same place again, after an unmount by somebody else.
    let mut first = foreground(&scratch, &archive, &at);
    scratch.shell("umount mnt");
    assert_eq!(first.wait().unwrap().code(), Some(0));
    let mut second = foreground(&scratch, &archive, &at);
    assert_eq!(fs::read(at.join("file")).unwrap(), b"hello\n");
    signal(&second, Signal::TERM);
    assert_eq!(second.wait().unwrap().code(), Some(0));
}

#[test]
fn a_dead_mount_is_mounted_over() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = archive(&scratch);
    let at = scratch.folder("mnt");
    let mut killed = foreground(&scratch, &archive, &at);
    kill_watcher(&killed);
    kill(&mut killed);
    assert!(is_mounted(&at), "nobody was left to take it away");
    let mut second = foreground(&scratch, &archive, &at);
    // Until then the dead one is there, of which the kernel still knows names.
    let is_served = || fs::read(at.join("file")).is_ok_and(|read| read == b"hello\n");
    wait_until("the second one is there", || is_served() || second.try_wait().unwrap().is_some());
    assert!(is_served(), "it was refused");
    signal(&second, Signal::TERM);
    assert_eq!(second.wait().unwrap().code(), Some(0));
    assert!(!is_mounted(&at), "the dead one is gone, too");
}

/// The kernel gives the number of a file system that is gone to the next one.
#[test]
fn what_has_got_the_number_of_a_mount_that_is_gone_stays() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = archive(&scratch);
    let (first_at, second_at) = (scratch.folder("first"), scratch.folder("second"));
    let number = |at: &Path| fs::metadata(at).unwrap().dev();
    // Others that mount at the same time may get it.
    for _ in 0..20 {
        let mut first = foreground(&scratch, &archive, &first_at);
        let its_number = number(&first_at);
        let its_watcher = watcher(&first);
        // It does not see that its mount is taken away.
        signal(&first, Signal::STOP);
        scratch.shell("umount -l first");
        let mut second = foreground(&scratch, &archive, &second_at);
        let is_same = number(&second_at) == its_number;
        kill(&mut first);
        wait_until("the first watcher has done what it does", || has_ended(its_watcher));
        assert!(is_mounted(&second_at));
        assert_eq!(fs::read(second_at.join("file")).unwrap(), b"hello\n");
        signal(&second, Signal::TERM);
        assert_eq!(second.wait().unwrap().code(), Some(0));
        assert!(!is_mounted(&second_at));
        if is_same {
            return;
        }
    }
    println!("left out: others got the number each time");
}

#[test]
fn without_its_watcher_a_mount_goes_on() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = archive(&scratch);
    let at = scratch.folder("mnt");
    let log = scratch.path("log");
    let mut command = behind(&scratch, DEFAULT_SIGNALS);
    command.arg("-f").arg("--log-file").args([&log, &archive, &at]);
    let mut child = support::daemon(command, &at);
    kill_watcher(&child);
    wait_until("it is said", || fs::read_to_string(&log).unwrap().contains("would leave a dead mount"));
    assert_eq!(fs::read(at.join("file")).unwrap(), b"hello\n");
    run(&scratch, ["-u".as_ref(), at.as_os_str()]).ok();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // It may not unmount itself any more; it ends all the same, and what is left can be taken away.
    let mut child = foreground(&scratch, &archive, &at);
    kill_watcher(&child);
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    if is_mounted(&at) {
        run(&scratch, ["-u".as_ref(), at.as_os_str()]).ok();
    }
}

/// To read an archive may take long, and whoever has no watcher any more when it is mounted unmounts it itself.
#[test]
fn whose_watcher_is_killed_before_the_mount_keeps_the_right_to_unmount() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch);
    let at = scratch.folder("mnt");
    let gated = Gated::new(&scratch, "a.tar.gz", "gated");
    gated.close();
    let mut command = behind(&scratch, DEFAULT_SIGNALS);
    let command = command.arg("-f").args([&scratch.path("gated/a.tar.gz"), &at]).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    gated.until_waited_for();
    kill_watcher(&child);
    assert!(!is_mounted(&at));
    gated.open();
    wait_until("it is mounted", || is_mounted(&at));
    assert_eq!(fs::read(at.join("file")).unwrap(), b"hello\n");
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let is_left = is_mounted(&at);
    if is_left {
        scratch.shell("umount -l mnt");
    }
    assert!(!is_left, "a dead mount is left");
}

/// The lines of `/proc/PID/task/*/status` that begin so.
fn of_all_threads(process: u32, name: &str) -> Vec<String> {
    fs::read_dir(format!("/proc/{process}/task"))
        .unwrap()
        .map(|task| fs::read_to_string(task.unwrap().path().join("status")).unwrap())
        .map(|status| status.lines().find(|line| line.starts_with(name)).unwrap()[name.len()..].trim().to_owned())
        .collect()
}

/// What a program may do and this one need not, as system calls of x86_64.
const CALLS: [(&str, &str); 3] = [
    ("to open a file", "257, -100, \"/etc/passwd\", 0"),
    ("to make a file", "257, -100, \"MADE\", 0101, 0600"),
    ("to make a socket", "41, 2, 1, 0"),
];

/// What the system answers to the process when it makes these calls, of which one makes the file `made`: less than 0 if
/// one is refused. `None` where this gdb cannot make calls: not of every processor it can write all registers.
fn ask(process: u32, made: &Path) -> Option<Vec<i64>> {
    let mut command = Command::new("gdb");
    command.args(["-nx", "-batch", "-p", &process.to_string(), "-ex", "set language c"]);
    for (_, call) in CALLS {
        let call = call.replace("MADE", made.to_str().unwrap());
        command.args(["-ex", &format!("print (long)syscall({call})")]);
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if said.contains("Couldn't write extended state status") {
        return None;
    }
    let answers = said.lines().filter_map(|line| line.strip_prefix('$')?.split_once(" = ")?.1.trim().parse().ok());
    let answers: Vec<i64> = answers.collect();
    assert_eq!(answers.len(), CALLS.len(), "{said}");
    Some(answers)
}

#[test]
fn the_daemon_has_given_up_what_it_does_not_need() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = archive(&scratch);
    let at = scratch.folder("mnt");
    let made = scratch.path("made");
    let mut free = behind(&scratch, DEFAULT_SIGNALS);
    free.args(["-f", "--no-sandbox"]).args([&archive, &at]);
    let mut free = support::daemon(free, &at);
    wait_until("it is served", || at.join("file").exists());
    let seccomp = of_all_threads(free.id(), "Seccomp:");
    // That these calls say what they are taken to say is seen where nothing is given up.
    let can_call = cfg!(target_arch = "x86_64") && have("gdb");
    let answers = can_call.then(|| ask(free.id(), &made)).flatten();
    let can_call = answers.is_some();
    if let Some(answers) = answers {
        assert!(answers.iter().all(|&answer| answer >= 0), "{CALLS:?}: {answers:?}");
        fs::remove_file(&made).unwrap();
    }
    signal(&free, Signal::TERM);
    free.wait().unwrap();

    let mut child = foreground(&scratch, &archive, &at);
    assert!(support::hash_of(&at.join("numbers")) == support::hash_of(&scratch.path("tree/numbers")));
    if seccomp.iter().all(|mode| mode == "0") {
        wait_until("it has given up", || of_all_threads(child.id(), "Seccomp:").iter().all(|mode| mode == "2"));
        assert!(of_all_threads(child.id(), "NoNewPrivs:").iter().all(|mode| mode == "1"));
    }
    if can_call {
        let answers = ask(child.id(), &made).unwrap();
        assert!(answers.iter().all(|&answer| answer < 0), "{CALLS:?}: {answers:?}");
    }
    assert_eq!(fs::read(at.join("file")).unwrap(), b"hello\n");
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!is_mounted(&at) && !made.exists());
}

/// A folder above the mount point may get another name, and its old name may lead elsewhere.
#[test]
fn a_mount_whose_path_has_changed_is_taken_away_where_it_is() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = archive(&scratch);
    for (round, ends) in [Signal::TERM, Signal::KILL].into_iter().enumerate() {
        for is_made in [true, false] {
            let name = format!("{round}-{is_made}");
            let (parent, moved, other) = (
                scratch.folder(format!("parent-{name}")),
                scratch.path(format!("moved-{name}")),
                scratch.folder(format!("other-{name}")),
            );
            let at = if is_made { parent.join("at") } else { scratch.folder(parent.join("at")) };
            fs::create_dir(other.join("at")).unwrap();
            let mut child = foreground(&scratch, &archive, &at);
            let its_watcher = watcher(&child);
            fs::rename(&parent, &moved).unwrap();
            std::os::unix::fs::symlink(&other, &parent).unwrap();
            signal(&child, ends);
            child.wait().unwrap();
            wait_until("its watcher has done what it does", || has_ended(its_watcher));
            let there = moved.join("at");
            let is_left = is_mounted(&there);
            if is_left {
                scratch.shell(&format!("umount -l {}", there.display()));
            }
            assert!(!is_left, "{name}: a mount is left");
            assert_eq!(there.exists(), !is_made, "{name}: the folder that was made");
            assert!(other.join("at").exists(), "{name}: a folder of others is gone");
        }
    }
}

#[test]
fn that_a_mount_is_covered_is_told_in_its_log() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = archive(&scratch);
    let (at, log) = (scratch.folder("mnt"), scratch.path("log"));
    let mut command = behind(&scratch, DEFAULT_SIGNALS);
    command.arg("-f").arg("--log-file").args([&log, &archive, &at]);
    let mut below = support::daemon(command, &at);
    wait_until("it is served", || at.join("file").exists());
    run(&scratch, ["-o".as_ref(), "nonempty".as_ref(), archive.as_os_str(), at.as_os_str()]).ok();
    signal(&below, Signal::TERM);
    assert_eq!(below.wait().unwrap().code(), Some(0));
    let told = fs::read_to_string(&log).unwrap();
    while is_mounted(&at) {
        run(&scratch, ["-u".as_ref(), at.as_os_str()]).ok();
    }
    assert!(told.contains("is covered by another mount"), "{told}");
}
