//! A mount that its own program could look into: nothing waits for itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{Scratch, behind, can_mount, is_mounted, run, wait_until};

/// Runs a shell script that must not hang. A mount that asks itself does for ever, or until the deadline of 60 seconds
/// makes an error of the question, which is seen in what the script says.
#[track_caller]
fn in_time(scratch: &Scratch, script: &str) -> String {
    let child = behind(scratch, &["timeout", "-s", "KILL", "600", "bash", "-c", script])
        .current_dir(scratch.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert!(child.status.code().is_some_and(|code| code != 137), "hangs: {script}");
    let said = format!("{}{}", String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(!said.contains("Input/output error"), "the deadline has ended it: {script}: {said}");
    said
}

/// Unmounts what a test that failed has left, so that nobody else waits for it.
struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        while is_mounted(&self.0) {
            if !Command::new("umount").arg("-l").arg(&self.0).status().is_ok_and(|status| status.success()) {
                break;
            }
        }
    }
}

struct Arrangement<'a> {
    name: &'a str,
    /// What is there before.
    before: &'a str,
    arguments: &'a [&'a str],
    mounted_at: &'a str,
    /// What can be read through the mount, and what it says.
    shows: (&'a str, &'a str),
}

const FOLDER: &str = "mkdir -p f/sub/deep; echo text > f/sub/file; ln -s . f/self; ln -s ../f f/back; ln -s sub f/near";

/// > A folder can be mounted over itself or a part of it, and an archive over the folder that it lies in, without a
/// > deadlock.
#[test]
fn no_arrangement_hangs() {
    if !can_mount() {
        return;
    }
    let archive = "mkdir -p f/sub a/sub; echo text > a/sub/file; echo own > f/sub/own";
    for Arrangement { name, before, arguments, mounted_at, shows } in [
        Arrangement {
            name: "a folder over itself",
            before: FOLDER,
            arguments: &["f", "f"],
            mounted_at: "f",
            shows: ("f/sub/file", "text"),
        },
        Arrangement {
            name: "a folder over a folder in it",
            before: &format!("{FOLDER}; mkdir f/mnt"),
            arguments: &["f", "f/mnt"],
            mounted_at: "f/mnt",
            shows: ("f/mnt/sub/file", "text"),
        },
        Arrangement {
            name: "a folder deep in it, with links back",
            before: FOLDER,
            arguments: &["f", "f/sub/deep"],
            mounted_at: "f/sub/deep",
            shows: ("f/sub/deep/sub/file", "text"),
        },
        Arrangement {
            name: "a folder over the one that it is in",
            before: FOLDER,
            arguments: &["f/sub", "f"],
            mounted_at: "f",
            shows: ("f/file", "text"),
        },
        Arrangement {
            name: "an archive over the folder that it is in",
            before: &format!("{archive}; tar -C a -cf f/x.tar ."),
            arguments: &["--index-minimum-file-count", "0", "f/x.tar", "f"],
            mounted_at: "f",
            shows: ("f/sub/file", "text"),
        },
        Arrangement {
            name: "a compressed archive over the folder that it is in, with its index below",
            before: &format!("{archive}; mkdir f/index; tar -C a -czf f/x.tar.gz ."),
            arguments: &["--index-minimum-file-count", "0", "--index-folders", "f/index", "f/x.tar.gz", "f"],
            mounted_at: "f",
            shows: ("f/sub/file", "text"),
        },
        Arrangement {
            name: "through a symbolic link to itself",
            before: &format!("{FOLDER}; ln -s f alias"),
            arguments: &["alias", "f"],
            mounted_at: "f",
            shows: ("alias/sub/file", "text"),
        },
        Arrangement {
            name: "a union with the folder that it is mounted over",
            before: &format!("{archive}; tar -C a -cf x.tar ."),
            arguments: &["f", "x.tar", "f"],
            mounted_at: "f",
            shows: ("f/sub/file", "text"),
        },
        Arrangement {
            name: "a folder of archives over itself, with their indexes beside them",
            before: &format!("{archive}; tar -C a -cf f/x.tar .; tar -C f -czf f/y.tgz x.tar"),
            arguments: &["-r", "--index-minimum-file-count", "0", "f", "f"],
            mounted_at: "f",
            shows: ("f/y.tgz/x.tar/sub/file", "text"),
        },
        Arrangement {
            name: "the same by another name",
            before: &format!("{archive}; ln -s f alias; tar -C a -cf f/x.tar ."),
            arguments: &["-r", "--lazy", "--index-minimum-file-count", "0", "alias", "f"],
            mounted_at: "f",
            shows: ("f/x.tar/sub/file", "text"),
        },
        Arrangement {
            name: "with its log below",
            before: FOLDER,
            arguments: &["--log-file", "f/sub/log", "-d", "3", "f", "f"],
            mounted_at: "f",
            shows: ("f/sub/file", "text"),
        },
    ] {
        let scratch = Scratch::new();
        scratch.shell(before);
        let mut command = OsString::from("\"$0\"");
        for argument in arguments {
            command.push(" ");
            command.push(argument);
        }
        let said = in_time(&scratch, &format!("{} && echo ready", command.to_string_lossy()));
        assert!(said.ends_with("ready\n"), "{name}: {said}");
        let _unmount = Unmount(scratch.path(mounted_at));
        assert!(is_mounted(&scratch.path(mounted_at)), "{name}");
        let (path, text) = shows;
        assert_eq!(in_time(&scratch, &format!("cat {path}")).trim(), text, "{name}");
        // Everything there is, also through links, as far as it goes.
        let walked = in_time(
            &scratch,
            &format!(
                "ls -laR {mounted_at} > walked 2>&1; find -L {mounted_at} -type f -exec cat {{}} + >> walked 2>&1; getfattr -Rd {mounted_at} >> walked 2>&1; grep 'Input/output error' walked || wc -l < walked"
            ),
        );
        assert!(walked.trim().parse::<u64>().unwrap() > 3, "{name}: {walked}");
        run(&scratch, [OsString::from("-u"), scratch.path(mounted_at).into()]).ok();
        assert!(!is_mounted(&scratch.path(mounted_at)), "{name}");
    }
}

/// > In a mounted folder, what lies under our own mount is ELOOP, and all else is there.
/// > What cannot be looked at is listed with its name. Asking for it is the error, and nothing about it is made up.
#[test]
fn the_own_mount_is_not_entered() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(&format!("{FOLDER}; mkdir f/mnt f/later"));
    let _unmount = ["f/mnt", "f/later"].map(|at| Unmount(scratch.path(at)));
    run(&scratch, [scratch.path("f"), scratch.path("f/mnt")]).ok();
    // Also one that was mounted, and so walked to, before.
    assert_eq!(in_time(&scratch, "ls f/mnt/later").trim(), "");
    scratch.shell("mount --bind f/mnt/sub f/later");
    std::thread::sleep(Duration::from_millis(1200));
    for loop_ in ["f/mnt/mnt", "f/mnt/later"] {
        let said = in_time(&scratch, &format!("stat {loop_}; ls -a {loop_}; cat {loop_}/file"));
        assert_eq!(said.matches("Too many levels of symbolic links").count(), 3, "{said}");
    }
    // Nor does a listing make up what it is.
    let said = in_time(&scratch, "ls f/mnt/; stat f/mnt/mnt");
    assert!(said.contains("mnt\n") && said.contains("Too many levels of symbolic links"), "{said}");
    let names = in_time(&scratch, "ls f/mnt");
    assert!(names.contains("mnt\n") && names.contains("later\n") && names.contains("sub\n"), "{names}");
    assert_eq!(in_time(&scratch, "cat f/mnt/sub/file").trim(), "text");
    scratch.unmount("f/later");
    // What others have mounted is shown.
    scratch.shell("mount -t tmpfs none f/later; echo other > f/later/file");
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(in_time(&scratch, "cat f/mnt/later/file").trim(), "other");
    scratch.unmount("f/later");
    run(&scratch, [Path::new("-u"), &scratch.path("f/mnt")]).ok();
    assert_eq!(fs::read_dir(scratch.path("f/mnt")).unwrap().count(), 0);
}

/// A folder can be what another program of ours has mounted, also where each shows the other.
#[test]
fn mounts_of_mounts_are_read() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(&format!("{FOLDER}; mkdir first; tar -cf x.tar -C f ."));
    let _unmount = ["first", "second", "f"].map(|at| Unmount(scratch.path(at)));
    run(&scratch, [scratch.path("x.tar"), scratch.path("first")]).ok();
    run(&scratch, [scratch.path("first"), scratch.path("second")]).ok();
    // Over the folder that the archive came from.
    run(&scratch, [scratch.path("second"), scratch.path("f")]).ok();
    let listed = |at: &str| {
        in_time(&scratch, &format!("cd {at}; find . -printf '%P %y %m %s %T@ %l\\n' | sort; cat sub/file near/file"))
    };
    let (first, second) = (listed("first"), listed("second"));
    assert!(first.contains("sub/file f") && first.ends_with("text\ntext\n"), "{first}");
    assert_eq!(first, second);
    assert_eq!(first, listed("f"));
    for at in ["f", "second", "first"] {
        run(&scratch, [Path::new("-u"), &scratch.path(at)]).ok();
        wait_until("it is unmounted", || !is_mounted(&scratch.path(at)));
    }
}
