//! `--write`: what was written goes into the archive when it is unmounted.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{
    Compare, DEFAULT_SIGNALS, Mounted, Ran, Scratch, behind, can_mount, daemon, is_mounted, run, survey, wait_until,
};
use crate::{assert_same, shown};

fn archive(scratch: &Scratch, name: &str) {
    scratch.shell(&format!("mkdir -p tree/d; seq 1000 > tree/d/a; echo b > tree/b; tar -C tree -caf {name} ."));
}

fn unmount(scratch: &Scratch, at: &Path) -> Ran {
    run(scratch, ["-u".as_ref(), at.as_os_str()])
}

/// > With `--write`, or `-o rw`, what was written is in the archive when `tarnfs -u` returns.
#[test]
fn what_was_written_goes_into_the_archive() {
    if !can_mount() {
        return;
    }
    for (name, options) in [("a.tar.zst", &["--write"][..]), ("a.tar", &["-o", "rw"]), ("a.tar.gz", &["-o", "write"])] {
        let scratch = Scratch::new();
        archive(&scratch, name);
        // One that is there, and one that is made.
        for at in ["there", "made"] {
            scratch.folder("there");
            let at = scratch.path(at);
            let archive = scratch.path(name);
            let words = options.iter().map(std::convert::AsRef::as_ref).chain([archive.as_os_str(), at.as_os_str()]);
            run(&scratch, words).ok();
            scratch.shell(&format!(
                "cd {}; rm -f b; date >> d/new; mkdir -p e/f; seq 5000 > e/f/g; mv d/a d/c || true",
                at.display()
            ));
            let expected = survey(&at, Compare::default());
            assert!(scratch.path(format!("{name}.changes")).is_dir());
            unmount(&scratch, &at).ok();
            assert!(!scratch.path(format!("{name}.changes")).exists(), "{name}");
            assert_same(&expected, &shown(&scratch, name), name);
            assert_eq!(scratch.shell(&format!("tar -tf {name} | sort -u | grep -c e/f/g")), "1\n");
        }
        // Nothing was written.
        let before = fs::read(scratch.path(name)).unwrap();
        let mounted = Mounted::new(&scratch, scratch.path(name), options);
        mounted.unmount();
        assert!(fs::read(scratch.path(name)).unwrap() == before && !scratch.path(format!("{name}.changes")).exists());
    }
}

/// > Where that fails, or the program is killed, what was written is kept beside the archive, its place is said, and
/// > the next mount with `--write` goes on with it.
#[test]
fn what_does_not_get_there_is_kept() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch, "a.tar");
    scratch.shell("cd tree; zip -qr ../a.zip .");
    let before = fs::read(scratch.path("a.zip")).unwrap();
    let at = scratch.folder("at");
    let mount = |name: &str| {
        let archive = scratch.path(name);
        run(&scratch, ["--write".as_ref(), archive.as_os_str(), at.as_os_str()])
    };
    mount("a.zip").ok();
    scratch.shell("cd at; mkfifo pipe; echo new > new");
    let ran = unmount(&scratch, &at);
    assert!(
        ran.code == 1 && ran.err.contains("is kept in") && ran.err.contains("a.zip.changes: `tarnfs commit"),
        "{}",
        ran.err
    );
    assert!(fs::read(scratch.path("a.zip")).unwrap() == before);
    // Another mount has nothing to do with that.
    let reader = Mounted::new(&scratch, scratch.path("a.zip"), &[]);
    reader.unmount();
    mount("a.zip").ok();
    assert_eq!(fs::read_to_string(at.join("new")).unwrap(), "new\n");
    fs::remove_file(at.join("pipe")).unwrap();
    unmount(&scratch, &at).ok();
    assert_eq!(scratch.shell("unzip -p a.zip new; ls -d a.zip*"), "new\na.zip\n");
    // Killed.
    let mut command: Command = behind(&scratch, DEFAULT_SIGNALS);
    command.args(["-f", "--write"]).arg(scratch.path("a.tar")).arg(&at);
    let mut process = daemon(command, &at);
    wait_until("it is served", || at.join("d/a").exists());
    scratch.shell("cd at; echo killed > d/new; rm b");
    kill_process(Pid::from_child(&process), Signal::KILL).unwrap();
    process.wait().unwrap();
    wait_until("the mount is gone", || !is_mounted(&at));
    assert_eq!(scratch.shell("tar -tf a.tar | grep -c new || true; cat a.tar.changes/d/new"), "0\nkilled\n");
    mount("a.tar").ok();
    assert!(!at.join("b").exists());
    unmount(&scratch, &at).ok();
    assert_eq!(
        scratch.shell("tar -xOf a.tar ./d/new; tar -tf a.tar | grep -c '/b$' || true; ls -d a.tar*"),
        "killed\n0\na.tar\n"
    );
}

/// What was written and is gone again keeps nothing from being in the archive: neither a file that was moved out of a
/// folder that is removed, nor what is removed just before the end.
#[test]
fn what_was_removed_leaves_nothing() {
    if !can_mount() {
        return;
    }
    for (script, listed) in [
        ("mkdir n; echo new > n/f; mv n/f f; rmdir n", "./f\n"),
        ("mkdir -p n/f/g; echo new > n/f/g/h; cp -r n d/n; rm -r n d/n", ""),
    ] {
        let scratch = Scratch::new();
        archive(&scratch, "a.tar");
        let at = scratch.folder("at");
        for round in 0..2 {
            run(&scratch, ["--write".as_ref(), scratch.path("a.tar").as_os_str(), at.as_os_str()]).ok();
            // Nothing is written in the second one.
            if round == 0 {
                scratch.shell(&format!("cd at; {script}"));
            }
            unmount(&scratch, &at).ok();
            assert_eq!(scratch.shell("ls -d a.tar*"), "a.tar\n", "{script}");
            assert_eq!(scratch.shell("tar -tf a.tar | grep '/[fghn]' || true"), listed, "{script}");
        }
    }
}

/// > What somebody else has put beside what was written stays there, but for empty folders, and keeps nothing from
/// > being in the archive.
#[test]
fn what_others_have_put_there_stays() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch, "a.tar");
    let at = scratch.folder("at");
    for name in ["new", "newer"] {
        run(&scratch, ["--write".as_ref(), scratch.path("a.tar").as_os_str(), at.as_os_str()]).ok();
        scratch
            .shell(&format!("echo {name} > at/{name}; mkdir -p a.tar.changes/o; echo theirs > a.tar.changes/o/theirs"));
        unmount(&scratch, &at).ok();
        assert_eq!(
            scratch.shell(&format!("tar -xOf a.tar ./{name}; cat a.tar.changes/o/theirs")),
            format!("{name}\ntheirs\n")
        );
    }
    // What fails is told all the same.
    run(&scratch, ["--write".as_ref(), scratch.path("a.tar").as_os_str(), at.as_os_str()]).ok();
    scratch.shell("echo last > at/last; tar -C tree -rf a.tar ./b");
    let ran = unmount(&scratch, &at);
    assert!(ran.code == 1 && ran.err.contains("is kept in"), "{}", ran.err);
    assert_eq!(scratch.shell("cat a.tar.changes/last"), "last\n");
}

/// Whatever the mount is called in the table of mounts, and by whatever way it is named: who unmounts it is told that
/// what was written could not be put into the archive.
#[test]
fn a_failure_is_told_whatever_the_mount_is_called() {
    if !can_mount() {
        return;
    }
    for (options, named) in [(&["-o", "fsname=foo"][..], "at"), (&[], "link"), (&[], "at/../at")] {
        let scratch = Scratch::new();
        scratch.shell("mkdir -p tree at; echo b > tree/b; cd tree; zip -qr ../a.zip .; cd ..; ln -s at link");
        let mut words = vec!["--write"];
        words.extend_from_slice(options);
        let run = |words: &[&str]| {
            let mut command = crate::support::tarnfs(&scratch);
            Ran::from(command.args(words).current_dir(scratch.path("")).output().unwrap())
        };
        words.extend(["a.zip", "at"]);
        run(&words).ok();
        scratch.shell("mkfifo at/pipe");
        let ran = run(&["-u", named]);
        assert!(ran.code == 1 && ran.err.contains("is kept in"), "{options:?} {named}: {} {}", ran.code, ran.err);
        assert!(!is_mounted(&scratch.path("at")));
    }
}

/// Who unmounts a mount of the same archive does not wait for the one that is written in: that may stay for long, or be
/// unmounted next.
#[test]
fn another_mount_is_not_waited_for() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch, "a.tar");
    let reader = Mounted::new(&scratch, scratch.path("a.tar"), &[]);
    let writer = Mounted::new(&scratch, scratch.path("a.tar"), &["--write"]);
    fs::write(writer.path("new"), "new\n").unwrap();
    let mut command = crate::support::tarnfs(&scratch);
    let mut child = command.arg("-u").args([&reader.at, &writer.at]).spawn().unwrap();
    wait_until("both are unmounted", || child.try_wait().unwrap().is_some());
    assert!(child.wait().unwrap().success());
    assert_eq!(scratch.shell("tar -xOf a.tar ./new"), "new\n");
    assert!(!scratch.path("a.tar.changes").exists());
}

/// A mount that follows at once, while what was written still goes into the archive, never shows the archive as it was
/// before that.
#[test]
fn the_next_mount_shows_what_was_written() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    // Large enough that the next one begins before it is done.
    scratch.shell("mkdir tree; seq 20 > tree/a; seq 3000000 > tree/large; tar -C tree -czf a.tar.gz .");
    let at = scratch.folder("at");
    let archive = scratch.path("a.tar.gz");
    let mount = || run(&scratch, ["--write".as_ref(), archive.as_os_str(), at.as_os_str()]);
    let mut expected = String::from_utf8(fs::read(scratch.path("tree/a")).unwrap()).unwrap();
    for round in 0..3 {
        let mut ran = mount();
        for _ in 0..600 {
            if ran.code == 0 {
                break;
            }
            assert!(ran.err.contains("mount it again") || ran.err.contains("in use"), "{}", ran.err);
            std::thread::sleep(std::time::Duration::from_millis(200));
            ran = mount();
        }
        ran.ok();
        assert_eq!(fs::read_to_string(at.join("a")).unwrap(), expected, "{round}");
        scratch.shell(&format!("echo {round} >> at/a; umount at"));
        expected.push_str(&round.to_string());
        expected.push('\n');
    }
    wait_until("it is in the archive", || !scratch.path("a.tar.gz.changes").exists());
    assert_eq!(scratch.shell("tar -xOf a.tar.gz ./a"), expected);
    assert_eq!(scratch.shell("ls -A | grep removed || true"), "");
}

/// > What cannot be committed into is not mounted with `--write`.
#[test]
fn what_cannot_be_written_is_not_mounted_so() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch, "a.tar");
    scratch.shell("mkdir folder; cp a.tar b.tar; (cd tree; find . | cpio -o --quiet -H newc > ../a.cpio); gzip -c a.tar | head -c 300 > cut.tar.gz
        tar -V label -C tree -cf labelled.tar .; cd tree; zip -q ../commented.zip b; echo 'of b' | zip -qc ../commented.zip b");
    for (words, says) in [
        (&["a.tar", "b.tar", "at"][..], "name one archive"),
        (&["folder", "at"], "is a folder"),
        (&["a.cpio", "at"], "cpio can be read, but not written"),
        (&["cut.tar.gz", "at"], "damaged"),
        (&["--prefix", "d", "a.tar", "at"], "--prefix"),
        (&["-r", "a.tar", "at"], "-r"),
        (&["-o", "ro", "a.tar", "at"], "-o ro and --write"),
        (&["-w", "x", "a.tar", "at"], "does not go with"),
        (&["labelled.tar", "at"], "its label: that is not kept"),
        (&["commented.zip", "at"], "comment"),
    ] {
        let mut command = crate::support::tarnfs(&scratch);
        let ran = Ran::from(command.arg("--write").args(words).current_dir(scratch.path("")).output().unwrap());
        assert!(ran.code != 0 && ran.err.contains(says), "{words:?}: {}", ran.err);
        assert!(!is_mounted(&scratch.path("at")) && scratch.shell("ls -d *.changes 2> /dev/null || true").is_empty());
    }
}

/// What a commit can take only as long as it appends is told by the mount, before anything is written.
#[test]
fn what_cannot_be_written_anew_is_told_first() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; cd tree; echo 1 > a; ln a b; ln a c; echo d > d; tar -cf ../a.tar a b c d; cp ../a.tar ../b.tar
        rm a; echo 2 > a; tar -rf ../a.tar a; echo more >> d; tar -rf ../b.tar d",
    );
    let at = scratch.folder("at");
    for (name, is_told) in [("a.tar", true), ("b.tar", false)] {
        let mounted = run(&scratch, ["--write".as_ref(), scratch.path(name).as_os_str(), at.as_os_str()]).ok();
        assert_eq!(mounted.err.contains("1 older entry of the same names"), is_told, "{name}: {}", mounted.err);
        scratch.shell("echo new > at/new");
        unmount(&scratch, &at).ok();
        assert_eq!(scratch.shell(&format!("tar -xOf {name} new")), "new\n");
    }
}
