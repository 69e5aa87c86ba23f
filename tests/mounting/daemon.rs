//! The mount as a process: background and foreground, signals, unmounting, other users.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::gated::Gated;
use crate::support::{
    self, DEFAULT_SIGNALS, Mounted, Scratch, behind, can_mount, daemon_saying, foreground, have, in_own_namespace,
    is_gone, is_mounted, kill_watcher, run, signal, tarnfs, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

fn small(scratch: &Scratch) -> std::path::PathBuf {
    scratch.shell("mkdir tree; echo hello > tree/file; seq 1 2000000 > tree/numbers; tar -C tree -czf a.tar.gz .");
    scratch.path("a.tar.gz")
}

/// > A signal to the daemon unmounts, and a mount point that tarnfs made is removed.
#[test]
fn a_signal_unmounts_and_cleans_up() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = small(&scratch);
    for which in [Signal::INT, Signal::TERM, Signal::HUP] {
        let at = scratch.path("mnt");
        let mut child = foreground(&scratch, &archive, &at);
        signal(&child, which);
        assert_eq!(child.wait().unwrap().code(), Some(0), "{which:?}");
        assert!(is_gone(&at), "{which:?}: the mount point that it made is gone");
    }
}

/// Each of its files is an error of its own to read: 3000 warnings, more than a pipe holds and more than are kept.
#[test]
fn a_log_that_nobody_reads_stops_nobody() {
    const FILES: usize = 3000;
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(&format!("mkdir tree; for n in $(seq {FILES}); do echo $n > tree/$n; done; tar -C tree -cf a.tar ."));
    let (at, archive) = (scratch.path("mnt"), scratch.path("a.tar"));
    for (log, is_read) in [(None, false), (None, true), (Some("fifo"), true)] {
        let mut command = behind(&scratch, DEFAULT_SIGNALS);
        // At this level each failed read has its line.
        command.args(["-f", "-d", "3", "--index-file", ":memory:"]);
        let mut fifo = None;
        if let Some(name) = log {
            scratch.shell(&format!("mkfifo {name}"));
            // Read and written, so that nobody waits for the other end.
            fifo = Some(fs::File::options().read(true).write(true).open(scratch.path(name)).unwrap());
            command.arg("--log-file").arg(scratch.path(name));
        }
        command.args([&archive, &at]);
        let mut daemon = daemon_saying(command, &at, Stdio::piped());
        let read = |name: usize| fs::read(at.join(name.to_string()));
        wait_until("it is served", || read(1).is_ok());
        fs::File::options().append(true).open(&archive).unwrap().write_all(b"x").unwrap();
        let readers: Vec<_> = (0..4)
            .map(|first| {
                let at = at.clone();
                std::thread::spawn(move || {
                    let names = (2 + first..=FILES).step_by(4);
                    names.filter(|name| fs::read(at.join(name.to_string())).is_err()).count()
                })
            })
            .collect();
        wait_until("all have their answer", || readers.iter().all(std::thread::JoinHandle::is_finished));
        assert_eq!(readers.into_iter().map(|reader| reader.join().unwrap()).sum::<usize>(), FILES - 1);
        assert!(fs::metadata(at.join("none")).is_err() && at.join("7").exists());
        let mut told: Box<dyn Read + Send> = Box::new(daemon.stderr.take().unwrap());
        if let Some(fifo) = fifo {
            told = Box::new(fifo);
        }
        if is_read {
            let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
            while !text.ends_with(b" missing here: more was said than was read or could be written\n") {
                let length = told.read(&mut buffer).unwrap();
                assert!(length > 0, "{:.2000}", String::from_utf8_lossy(&text));
                text.extend_from_slice(&buffer[..length]);
            }
            let text = String::from_utf8(text).unwrap();
            let missing = text.lines().last().unwrap().split("warning: ").nth(1).unwrap();
            let missing: usize = missing.split(' ').next().unwrap().parse().unwrap();
            let warnings = text.lines().filter(|line| line.contains("read of ")).count();
            assert!(missing > 0 && warnings + missing >= FILES - 1, "{warnings} {missing}");
        }
        signal(&daemon, Signal::TERM);
        wait_until("it has ended", || daemon.try_wait().unwrap().is_some());
        assert!(is_gone(&at));
        scratch.shell("truncate -s -1 a.tar");
    }
}

#[test]
fn a_signal_unmounts_while_files_are_open() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = small(&scratch);
    let at = scratch.folder("mnt");
    let mut child = foreground(&scratch, &archive, &at);
    let open = fs::File::open(at.join("numbers")).unwrap();
    signal(&child, Signal::TERM);
    wait_until("it is unmounted", || !is_mounted(&at));
    // It does not wait for ever for who has one open.
    wait_until("it has ended", || child.try_wait().unwrap().is_some());
    drop(open);
}

/// > Ctrl-C leaves nothing behind.
#[test]
fn ctrl_c_while_indexing_leaves_nothing_behind() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    // A gigabyte of text takes longer to decode than the signal takes to come.
    scratch.shell("(yes 'a line of text that repeats' || true) | head -c 1G | gzip -1 > big.gz");
    let before = scratch.shell("ls -A");
    let mut interrupted = 0;
    // From before the program has begun; the first ones end it as they end any program.
    for milliseconds in [0, 1, 2, 3, 4, 5, 6, 8, 10, 30, 100, 200, 300] {
        let at = scratch.path("mnt");
        let mut command = behind(&scratch, DEFAULT_SIGNALS);
        let mut child = command.arg(scratch.path("big.gz")).arg(&at).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        // Both processes get it, as from a terminal.
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap_or_default();
        for process in children.split_whitespace() {
            kill_process(Pid::from_raw(process.parse().unwrap()).unwrap(), Signal::INT).ok();
        }
        signal(&child, Signal::INT);
        let status = child.wait().unwrap();
        let code = status.code();
        assert!(matches!(code, Some(0 | 130)) || status.signal() == Some(libc::SIGINT), "{status:?}");
        if code == Some(0) {
            // A fast machine was ready before the signal came.
            run(&scratch, ["-u".as_ref(), at.as_os_str()]).ok();
            wait_until("the mount point is removed", || is_gone(&at));
        } else {
            interrupted += 1;
        }
        // A mount may have begun to keep decoded data, also where the signal came before it was told.
        assert_eq!(scratch.shell("mkdir -p cache; find cache -name '*.sqlite*'; rm -r cache"), "");
        assert_eq!(scratch.shell("ls -A"), before, "after {milliseconds} ms");
    }
    assert!(interrupted > 0, "no signal came in time");
}

/// > A mount whose daemon was killed can be unmounted and mounted over.
#[test]
fn a_dead_daemon_can_be_unmounted_and_mounted_over() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = small(&scratch);
    let at = scratch.folder("mnt");
    let mut child = foreground(&scratch, &archive, &at);
    kill_watcher(&child);
    child.kill().unwrap();
    child.wait().unwrap();
    // A name that the kernel has not asked for yet; what it knows it goes on telling.
    assert_eq!(fs::metadata(at.join("other")).unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
    run(&scratch, ["-u".as_ref(), at.as_os_str()]).ok();
    let mut child = foreground(&scratch, &archive, &at);
    assert_eq!(fs::read(at.join("file")).unwrap(), b"hello\n");
    run(&scratch, ["-u".as_ref(), at.as_os_str()]).ok();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// > Unmounting does not wait for a server that hangs.
#[test]
fn a_mount_whose_server_hangs_is_left_with_advice() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; echo hello > tree/file");
    let at = scratch.folder("mnt");
    // What is in a folder may change, so the kernel asks again.
    let mut child = foreground(&scratch, &scratch.path("tree"), &at);
    let busy = fs::File::open(at.join("file")).unwrap();
    let server = Pid::from_child(&child);
    kill_process(server, Signal::STOP).unwrap();
    let path = at.to_str().unwrap();
    let mut command = behind(&scratch, &["timeout", "-s", "KILL", "200"]);
    let ran = support::Ran::from(command.args(["-u", path]).output().unwrap());
    assert_eq!(ran.code, 6, "{}", ran.err);
    assert!(ran.err.contains("does not answer") && ran.err.contains("tarnfs -l -u"), "{}", ran.err);
    run(&scratch, ["-l", "-u", path]).ok();
    kill_process(server, Signal::CONT).unwrap();
    drop(busy);
    child.wait().unwrap();
}

/// Who lists mounts is not held by one that does not answer, and neither is who waits for the list.
#[test]
fn mounts_are_listed_beside_one_whose_server_hangs() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = small(&scratch);
    let (good, bad) = (scratch.folder("good"), scratch.folder("bad"));
    let mut children = [foreground(&scratch, &archive, &good), foreground(&scratch, &archive, &bad)];
    let server = Pid::from_child(&children[1]);
    kill_process(server, Signal::STOP).unwrap();
    let mut command = behind(&scratch, &["timeout", "-s", "KILL", "200"]);
    let ran = support::Ran::from(command.args(["mounts", "--json"]).output().unwrap());
    kill_process(server, Signal::CONT).unwrap();
    let listed = ran.ok().text();
    let of = |at: &std::path::Path| {
        let mut objects = listed.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        objects.find(|object| object["mountpoint"] == at.to_str().unwrap()).unwrap_or_else(|| panic!("{listed}"))
    };
    assert_eq!(of(&good)["archives"], of(&bad)["archives"], "{listed}");
    for (at, child) in [&good, &bad].into_iter().zip(&mut children) {
        run(&scratch, ["-u".as_ref(), at.as_os_str()]).ok();
        child.wait().unwrap();
    }
}

#[test]
fn what_is_not_mounted_is_not_unmounted() {
    let scratch = Scratch::new();
    let folder = scratch.folder("plain");
    let ran = run(&scratch, ["-u".as_ref(), folder.as_os_str()]);
    assert_eq!(ran.code, 6);
    assert!(ran.err.contains("plain"), "{}", ran.err);
}

#[test]
fn the_daemon_holds_neither_the_terminal_nor_the_folder() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    small(&scratch);
    let folder = scratch.folder("work");
    // Output through a pipe ends only when the daemon has let go of it.
    let mut command = tarnfs(&scratch);
    command.args(["../a.tar.gz", "../mnt"]).current_dir(&folder);
    let output = command.output().unwrap();
    assert!(output.status.success());
    fs::remove_dir(&folder).unwrap();
    assert_eq!(fs::read(scratch.path("mnt/file")).unwrap(), b"hello\n");
    run(&scratch, ["-u".as_ref(), scratch.path("mnt").as_os_str()]).ok();
}

#[test]
fn another_user_mounts_with_fusermount3_and_is_told_what_is_missing() {
    if !can_mount() || !have("su") {
        return;
    }
    let scratch = Scratch::new();
    small(&scratch);
    scratch.program("tarnfs");
    scratch.shell("chmod 755 . tarnfs a.tar.gz; mkdir home; chown nobody home");
    let nobody = |script: &str| {
        let script = format!("cd {}; export XDG_CACHE_HOME=$PWD; {script}", scratch.path("home").display());
        let output =
            Command::new("su").args(["nobody", "-s", "/bin/sh", "-c", &script]).stdin(Stdio::null()).output().unwrap();
        support::Ran::from(output)
    };
    in_own_namespace(|device| {
        if have("fusermount3") {
            let script = "../tarnfs ../a.tar.gz m && cat m/file && grep \"$PWD/m\" /proc/mounts && ../tarnfs -u m";
            let ran = nobody(script).ok();
            let text = ran.text();
            assert!(text.starts_with("hello\n") && text.contains("fuse.tarnfs ro,nosuid,nodev"), "{text}{}", ran.err);
            wait_until("the mount point is gone", || is_gone(&scratch.path("home/m")));
        }
        let ran = nobody("PATH=/nowhere ../tarnfs ../a.tar.gz m");
        assert_eq!(ran.code, 6, "{}", ran.err);
        assert!(ran.err.contains("fusermount3") && ran.err.contains("fuse3"), "{}", ran.err);
        device.set_mode(0o600);
        let ran = nobody("../tarnfs ../a.tar.gz m");
        assert_eq!(ran.code, 6);
        assert!(ran.err.contains("/dev/fuse"), "{}", ran.err);
    });
    // The tools need no rights at all.
    assert_eq!(nobody("../tarnfs cat ../a.tar.gz file").ok().out, b"hello\n");
}

#[test]
fn one_slow_reader_does_not_hold_up_the_others() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; echo first > tree/a; head -c 16M /dev/urandom > tree/b; echo last > tree/c
         tar -C tree -c a b c | gzip -1 > a.tar.gz; rm tree/b",
    );
    let gated = Gated::new(&scratch, "a.tar.gz", "gated");
    run(&scratch, ["index".as_ref(), scratch.path("gated/a.tar.gz").as_os_str()]).ok();
    let mount = Mounted::new(&scratch, scratch.path("gated/a.tar.gz"), &["--no-recreate-index"]);
    // The last file has to be decoded, and what it is decoded from does not come yet.
    gated.close();
    let path = mount.path("c");
    let slow = std::thread::spawn(move || fs::read(path).unwrap());
    gated.until_waited_for();
    for number in 0..20 {
        let first = fs::File::open(mount.path("a")).unwrap();
        rustix::fs::fadvise(&first, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        assert_eq!(std::io::read_to_string(first).unwrap(), "first\n");
        assert_eq!(fs::metadata(mount.path(format!("none{number}"))).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    }
    assert!(!slow.is_finished());
    gated.open();
    assert_eq!(slow.join().unwrap(), b"last\n");
    mount.unmount();
}

#[test]
fn a_hangup_that_was_ignored_stays_ignored() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let archive = small(&scratch);
    let at = scratch.path("mnt");
    let mut command = behind(&scratch, &["env", "--default-signal=INT", "--ignore-signal=HUP"]);
    command.arg("-f").arg(archive).arg(&at);
    let mut child = support::daemon(command, &at);
    signal(&child, Signal::HUP);
    // The kernel forgets a signal that is ignored, so there is nothing to wait for.
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & 1, 1, "SIGHUP is the first of {ignored}");
    assert_eq!(fs::read(at.join("file")).unwrap(), b"hello\n");
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// What mount(8) starts for a file system of type `fuse.tarnfs`.
fn mount_helper(scratch: &Scratch) -> Command {
    let link = scratch.path("mount.fuse.tarnfs");
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tarnfs"), &link).unwrap();
    }
    let mut command = Command::new(link);
    command.env("XDG_CACHE_HOME", scratch.path("cache")).stdin(Stdio::null());
    command
}

#[test]
fn options_of_the_mount_carry_those_of_the_program() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree mnt a,b; for i in $(seq 1200); do echo $i > tree/$i; done; tar -C tree -cf a.tar .");
    let mount = |options: &str| {
        let mut command = mount_helper(&scratch);
        command.args([scratch.path("a.tar"), scratch.path("mnt")]).args(["-o", options]);
        support::Ran::from(command.stdout(Stdio::null()).stderr(Stdio::piped()).output().unwrap())
    };
    let folder = scratch.path("a,b").display().to_string().replace(',', "\\,");
    let list = format!("[\"{folder}\"]");
    mount(&format!("rw,noexec,index_folders={list},recreate-index,nofail")).ok();
    assert_eq!(fs::read_dir(scratch.path("a,b")).unwrap().count(), 1, "the index is there");
    assert!(!scratch.path("a.tar.tarnfs.sqlite").exists());
    let line = scratch.shell(&format!("grep ' {} ' /proc/mounts", scratch.path("mnt").display()));
    assert!(line.contains("noexec"), "{line}");
    run(&scratch, ["-u".as_ref(), scratch.path("mnt").as_os_str()]).ok();
    for (options, says) in [
        ("index_folders", "index_folders needs a value: -o index_folders=FOLDERS"),
        ("colour=blue", "colour=blue"),
        ("commit-overlay", "commit-overlay"),
        ("ignore-zeros=7", "ignore-zeros"),
    ] {
        let ran = mount(options);
        assert!(ran.code == 32 && ran.err.contains(says), "{options}: {}", ran.err);
    }
}

#[test]
fn a_connection_that_somebody_else_has_mounted_is_served() {
    if !can_mount() || !have("mount.fuse3") {
        return;
    }
    let scratch = Scratch::new();
    let archive = small(&scratch);
    let at = scratch.folder("mnt");
    let source = format!("{}#{}", env!("CARGO_BIN_EXE_tarnfs"), archive.display());
    let mut command = Command::new("mount.fuse3");
    command
        .arg(source)
        .arg(&at)
        .args(["-o", "drop_privileges,allow_other,noexec"])
        .env("XDG_CACHE_HOME", scratch.path("cache"));
    let ran = support::Ran::from(command.stdin(Stdio::null()).stdout(Stdio::null()).output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(fs::read(at.join("file")).unwrap(), b"hello\n");
    assert!(support::hash_of(&at.join("numbers")) == support::hash_of(&scratch.path("tree/numbers")));
    let serves = || scratch.shell("pgrep -f \"$(printf '%s' \"$PWD\")/a.tar.gz /dev/fd\" || true");
    assert!(!serves().is_empty());
    scratch.shell("umount mnt");
    wait_until("the program has ended", || serves().is_empty());
}

#[test]
fn another_user_is_told_whose_mount_it_is() {
    if !can_mount() || !have("su") || !have("fusermount3") {
        return;
    }
    let scratch = Scratch::new();
    small(&scratch);
    let program = scratch.program("tarnfs");
    scratch.shell("chmod 755 . tarnfs a.tar.gz");
    let mount = Mounted::new(&scratch, scratch.path("a.tar.gz"), &["-o", "allow_other"]);
    let script = format!("{} -u {}", program.display(), mount.at.display());
    let output =
        Command::new("su").args(["nobody", "-s", "/bin/sh", "-c", &script]).stdin(Stdio::null()).output().unwrap();
    let ran = support::Ran::from(output);
    assert_eq!(ran.code, 6, "{}", ran.err);
    assert!(ran.err.contains("was mounted by root: only root can unmount it"), "{}", ran.err);
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"hello\n");
    mount.unmount();
}

/// A lock of whoever starts the mount is not held by it.
#[test]
fn the_daemon_keeps_nothing_open_that_it_was_started_with() {
    if !can_mount() || !have("flock") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree at; echo hello > tree/file; tar -C tree -cf a.tar .");
    let program = env!("CARGO_BIN_EXE_tarnfs");
    let at = scratch.path("at");
    // An archive that is open comes in that way, too.
    for archive in ["a.tar", "/dev/fd/8"] {
        fs::remove_file(scratch.path("log")).ok();
        let ran = scratch.shell(&format!(
            "export XDG_CACHE_HOME=$PWD/cache
             (exec 9>lock 8<a.tar; flock 9; {program} -d 2 --log-file log {archive} at)
             content=$(cat at/file || true); held=no; flock -n lock true || held=yes
             {program} -u at || umount -l at; echo $content $held"
        ));
        assert_eq!(ran, "hello no\n", "{archive}");
        wait_until("it is unmounted", || !is_mounted(&at));
        // What it has opened itself stays open.
        wait_until("the log is written", || {
            fs::read_to_string(scratch.path("log")).is_ok_and(|log| log.contains(archive))
        });
    }
}

#[test]
fn a_mount_in_use_is_left_unless_it_may_be_detached() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("echo hello > file; tar -cf a.tar file; mkdir mnt");
    let at = scratch.path("mnt");
    run(&scratch, [scratch.path("a.tar").as_os_str(), at.as_os_str()]).ok();
    let open = fs::File::open(at.join("file")).unwrap();
    for words in [&["-u"][..], &["unmount"]] {
        let ran = run(&scratch, words.iter().map(OsStr::new).chain([at.as_os_str()]));
        let expected = format!(
            "tarnfs: {}: is in use: close what uses it, or detach it with `tarnfs unmount -l`, so that it ends when nobody \
             uses it\n",
            at.display()
        );
        assert_eq!((ran.code, ran.err), (6, expected));
        assert!(at.join("file").exists());
    }
    run(&scratch, ["-l".as_ref(), "-u".as_ref(), at.as_os_str()]).ok();
    assert!(!at.join("file").exists());
    assert_eq!(std::io::read_to_string(open).unwrap(), "hello\n");
}

/// > Unmounting with tarnfs returns when the folder that was made for the mount is gone.
#[test]
fn what_was_made_is_gone_when_it_is_unmounted() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -cf a.tar one");
    let at = scratch.path("mnt");
    for round in 0..25 {
        let words = [scratch.path("a.tar"), at.clone()];
        assert_eq!(run(&scratch, &words).code, 0);
        assert_eq!(run(&scratch, [OsStr::new("-u"), at.as_os_str()]).code, 0);
        assert!(!at.exists(), "{round}");
    }
}

#[test]
fn nothing_is_mounted_over_the_root() {
    // Where it would be mounted after all, nobody else sees it.
    in_own_namespace(|_| {
        let scratch = Scratch::new();
        scratch.shell("echo one > one; tar -cf a.tar one; ln -s / root");
        for root in [Path::new("/"), Path::new("/tmp/.."), &scratch.path("root")] {
            let ran = run(&scratch, [scratch.path("a.tar").as_os_str(), root.as_os_str()]);
            assert!(ran.code == 6 && ran.err.contains("name another: tarnfs ARCHIVE MOUNTPOINT"), "{}", ran.err);
        }
    });
}

/// Words of a command line are there for everybody as long as the process is.
#[test]
fn passwords_are_in_no_list_of_processes() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -cf a.tar one");
    let marker = format!("sesame-{}", std::process::id());
    for words in [
        vec!["--password".to_owned(), marker.clone()],
        vec![format!("--password={marker}")],
        vec!["-o".to_owned(), format!("fsname=x,password={marker},noatime")],
    ] {
        let at = scratch.path("mnt");
        let ran = tarnfs(&scratch).args(&words).arg(scratch.path("a.tar")).arg(&at).status().unwrap();
        assert!(ran.success(), "{words:?}");
        let (mut ours, mut shown) = (0, Vec::new());
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let Ok(line) = fs::read(process.path().join("cmdline")) else { continue };
            let has = |what: &[u8]| line.windows(what.len()).any(|part| part == what);
            ours += usize::from(has(at.as_os_str().as_bytes()));
            if has(marker.as_bytes()) {
                shown.push(String::from_utf8_lossy(&line).into_owned());
            }
        }
        assert_eq!(run(&scratch, [OsStr::new("-u"), at.as_os_str()]).code, 0);
        // The one that serves and the one that unmounts.
        assert!(ours >= 2 && shown.is_empty(), "{ours}: {shown:?}");
    }
}
