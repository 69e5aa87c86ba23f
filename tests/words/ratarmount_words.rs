//! Command lines of ratarmount's users, typed to the real ratarmount and to tarnfs: both take them, and mount at the
//! same place.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::peers::ratarmount;
use crate::support::{Mounted, Ran, Scratch, can_mount, have, run, tarnfs, wait_until};

/// Where something is mounted below the folder.
fn mounted_below(folder: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    let places = table.lines().filter_map(|line| line.split(' ').nth(4));
    places.filter_map(|place| Path::new(place).strip_prefix(folder).ok()?.to_str().map(str::to_owned)).collect()
}

/// Runs both programs with these words, each in a folder of its own that `prepare` fills. Both must end with 0. Says
/// where both have mounted something, and what that holds; then nothing is mounted any more.
#[track_caller]
fn both(prepare: &str, words: &[&str]) -> (Vec<String>, Vec<String>) {
    let programs = [Some(PathBuf::from(env!("CARGO_BIN_EXE_tarnfs"))), ratarmount()];
    let mut seen = programs.into_iter().flatten().map(|program| {
        let scratch = Scratch::new();
        scratch.shell(prepare);
        // Not a pipe: ratarmount's process keeps it open.
        let said = scratch.path("said.log");
        let status = Command::new(&program)
            .args(words)
            .current_dir(scratch.path(""))
            .envs([("XDG_CACHE_HOME", scratch.path("cache")), ("HOME", scratch.path("home"))])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&said).unwrap())
            .status()
            .unwrap();
        let said = fs::read_to_string(said).unwrap();
        assert!(status.success(), "{} {words:?}: {said}", program.display());
        let folder = scratch.path("").canonicalize().unwrap();
        wait_until("it is mounted", || !mounted_below(&folder).is_empty());
        let places = mounted_below(&folder);
        let mut names: Vec<_> = places
            .iter()
            .flat_map(|place| fs::read_dir(folder.join(place)).unwrap())
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        for place in &places {
            assert!(Command::new("umount").arg(folder.join(place)).status().unwrap().success());
        }
        wait_until("it is unmounted", || mounted_below(&folder).is_empty());
        (places, names)
    });
    let ours = seen.next().unwrap();
    if let Some(theirs) = seen.next() {
        assert_eq!(ours, theirs, "{words:?}");
    }
    ours
}

#[test]
fn parts_are_mounted_at_their_name_without_the_number() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    let tar = "seq 99999 > one; tar -cf x one";
    for (split, part, at) in [
        ("gzip -c x > x.tar.gz; split -b 100K x.tar.gz x.tar.gz.; rm x.tar.gz x", "x.tar.gz.aa", "x.tar.gz"),
        ("split -d -b 300K x x.tar.; rm x", "x.tar.00", "x.tar"),
        ("split -d -a 3 --numeric-suffixes=1 -b 300K x x.; rm x", "x.001", "x"),
    ] {
        let found = both(&format!("{tar}; {split}"), &[part]);
        assert_eq!(found, (vec![at.to_owned()], vec!["one".to_owned()]), "{part}");
    }
    // What is a file already is no mount point: then the folder is called as for that file.
    let scratch = Scratch::new();
    scratch.shell(&format!("{tar}; mv x x.tar; split -d -b 300K x.tar x.tar."));
    run(&scratch, [scratch.path("x.tar.01")]).ok();
    assert_eq!(mounted_below(&scratch.path("").canonicalize().unwrap()), ["x"]);
    run(&scratch, ["-u".as_ref(), scratch.path("x").as_os_str()]).ok();
    if !have("zip") {
        return println!("left out: no zip");
    }
    scratch.shell("head -c 300000 /dev/urandom > noise; zip -q -s 64k y.zip noise");
    run(&scratch, [scratch.path("y.z01")]).ok();
    assert_eq!(mounted_below(&scratch.path("").canonicalize().unwrap()), ["y"]);
    run(&scratch, ["-u".as_ref(), scratch.path("y").as_os_str()]).ok();
}

/// Scripts keep them in variables that may be empty.
#[test]
fn an_empty_file_name_is_none() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    let prepare = "echo one > one; tar -czf a.tar.gz one";
    let words = ["--log-file", "", "--password-file=", "--index-file", "", "a.tar.gz", "m"];
    assert_eq!(both(prepare, &words), (vec!["m".to_owned()], vec!["one".to_owned()]));
    for words in
        [["--password", "", "a.tar.gz", "m"], ["-w", "", "a.tar.gz", "m"], ["--use-backend", "", "a.tar.gz", "m"]]
    {
        assert_eq!(both(prepare, &words), (vec!["m".to_owned()], vec!["one".to_owned()]));
    }
    // The index goes where it goes without the option.
    let scratch = Scratch::new();
    scratch.shell(prepare);
    let words = ["index", "--index-file=", "--password-file", ""].map(PathBuf::from);
    run(&scratch, words.into_iter().chain([scratch.path("a.tar.gz")])).ok();
    assert!(scratch.path("a.tar.gz.tarnfs.sqlite").exists());
}

/// Folders have no index.
#[test]
fn an_index_file_is_that_of_the_one_archive() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    let prepare = "mkdir f; echo one > one; tar -czf a.tar.gz one";
    let words = ["--index-file", "ix.sqlite", "f", "a.tar.gz", "m"];
    assert_eq!(both(prepare, &words), (vec!["m".to_owned()], vec!["one".to_owned()]));
    let scratch = Scratch::new();
    scratch.shell(&format!("{prepare}; cp a.tar.gz b.tar.gz"));
    let ran = in_it(&scratch, &["--index-file=ix", "f", "a.tar.gz", "b.tar.gz", "m"]);
    assert!(ran.code == 2 && ran.err.contains("there are several"), "{}", ran.err);
}

/// What `words` say in the scratch folder.
fn in_it(scratch: &Scratch, words: &[&str]) -> Ran {
    Ran::from(tarnfs(scratch).args(words).current_dir(scratch.path("")).output().unwrap())
}

/// A sidecar holds the paths that it was made with.
#[test]
fn paths_are_changed_whether_there_is_a_sidecar_or_not() {
    let scratch = Scratch::new();
    scratch.shell("echo one > a.txt; tar -cf a.tar a.txt");
    in_it(&scratch, &["index", "--format", "ratarmount", "a.tar"]).ok();
    assert!(scratch.path("a.tar.index.sqlite").exists());
    let ran = in_it(&scratch, &["ls", "--transform", "a.txt", "b.txt", "a.tar"]);
    assert_eq!(ran.text(), "b.txt\n");
    assert!(ran.err.contains("was made without --transform"), "{}", ran.err);
    assert_eq!(in_it(&scratch, &["ls", "a.tar"]).text(), "a.txt\n");
}

/// With an alias, the first source may be called like a command.
#[test]
fn a_source_that_is_called_like_a_command_is_told_of() {
    let scratch = Scratch::new();
    scratch.shell("mkdir find; echo one > one; tar -cf a.tar one");
    let hint = "find is taken for the command; to mount the folder of that name, write ./find";
    let ran = in_it(&scratch, &["find", "a.tar"]);
    assert!(ran.err.contains(hint) && ran.text().contains("./one"), "{}", ran.err);
    // These can be meant for no mount, or there is nothing of that name.
    for words in [&["find", "a.tar", "-name", "x"][..], &["ls", "a.tar"]] {
        assert_eq!(in_it(&scratch, words).ok().err, "", "{words:?}");
    }
}

#[test]
fn what_has_no_effect_is_told_with_the_option() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; gzip -k one; tar -czf a.tar.gz one.gz");
    let ran = in_it(&scratch, &["a.tar.gz", "smb://x.invalid/b.tar"]);
    assert!(ran.err.contains("is a URL"), "{}", ran.err);
    let words = ["ls", "-r", "--password=x", "--index-folders=ix", "a.tar.gz"];
    let ran = in_it(&scratch, &words).ok();
    assert!(ran.err.contains("no index is kept") && !scratch.path("ix/a.tar.gz.tarnfs.sqlite").exists(), "{}", ran.err);
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    let words = ["-r", "-l", "--transform-recursive-mount-point", "gz", "x", "a.tar.gz", "m"];
    let ran = in_it(&scratch, &words).ok();
    in_it(&scratch, &["-u", "m"]).ok();
    assert!(ran.err.contains("a.tar.gz: --transform-recursive-mount-point has no effect"), "{}", ran.err);
}

/// An alias may have an option that is then taken back.
#[test]
fn the_last_of_options_that_exclude_each_other_counts() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    let prepare = "echo one > one; tar -czf a.tar.gz one";
    for words in [
        &["-c", "--no-recreate-index", "--recreate-index-on-errors", "a.tar.gz", "m"][..],
        &["--recreate-index-on-errors", "--no-recreate-index", "-c", "a.tar.gz", "m"],
    ] {
        assert_eq!(both(prepare, words), (vec!["m".to_owned()], vec!["one".to_owned()]));
    }
    let scratch = Scratch::new();
    scratch.shell(prepare);
    let code = |words: &[&str]| {
        let archive = scratch.path("a.tar.gz");
        run(&scratch, words.iter().map(PathBuf::from).chain([archive])).code
    };
    assert_eq!(code(&["ls", "-c", "--no-recreate-index"]), 7);
    assert_eq!(code(&["ls", "-c", "--no-recreate-index", "--recreate-index-on-errors"]), 0);
    assert_eq!(code(&["ls", "--no-recreate-index", "-c"]), 0);
    // Less than nothing is nothing, as there.
    assert_eq!(code(&["ls", "-d", "3", "-d", "-1"]), 0);
    assert_eq!(code(&["ls", "--debug=-1"]), 0);
    assert_eq!(code(&["ls", "--index-minimum-file-count", "-5"]), 0);
    assert_eq!(code(&["--no-mount", "--union-mount-cache-max-depth", "-1", "--union-mount-cache-timeout", "-1"]), 0);
    for spacing in [&["-gs", "-1"][..], &["-gs=-1"], &["--gzip-seek-point-spacing", "-0.5"]] {
        let ran = in_it(&scratch, &[&["ls"], spacing, &["a.tar.gz"]].concat());
        assert_eq!((ran.code, ran.text().as_str(), ran.err.as_str()), (0, "one\n", ""), "{spacing:?}");
    }
}

/// ratarmount hands them to libfuse 2, and so does nothing with them either.
#[test]
fn what_libfuse_knows_and_changes_nothing_is_taken() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -cf a.tar one");
    let options = "nopath,noauto_cache,intr_signal=10,atomic_o_trunc";
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-o", options]);
    assert_eq!((mounted.ran.err.as_str(), fs::read(mounted.path("one")).unwrap()), ("", b"one\n".to_vec()));
    mounted.unmount();
}

#[test]
fn what_cannot_be_taken_is_called_by_its_name() {
    let scratch = Scratch::new();
    scratch.shell(
        "echo one > one; tar -czf a.tar.gz one; cp a.tar.gz b.tar.gz
         printf 'SQLite format 3\\0' | gzip > x.index.sqlite.gz; cp x.index.sqlite.gz before",
    );
    for (words, said) in [
        (
            &["--index-file", "x.index.sqlite.gz", "-c", "a.tar.gz", "m"][..],
            "--index-file x.index.sqlite.gz: there is a file of this name that is not an index; name another",
        ),
        (
            &["--index-file", "b.tar.gz", "-c", "a.tar.gz", "m"],
            "--index-file b.tar.gz: there is a file of this name that is not an index; name another",
        ),
        (&["--union-mount-cache-timeout", "soon", "a.tar.gz", "m"], "--union-mount-cache-timeout soon: give a number"),
        (&["--union-mount-cache-max-depth", "x", "a.tar.gz", "m"], "--union-mount-cache-max-depth x: give a number"),
    ] {
        let ran = Ran::from(tarnfs(&scratch).args(words).current_dir(scratch.path("")).output().unwrap());
        assert_eq!((ran.code, ran.err), (2, format!("tarnfs: {said}\n")), "{words:?}");
    }
    assert!(!scratch.path("m").exists());
    assert_eq!(fs::read(scratch.path("x.index.sqlite.gz")).unwrap(), fs::read(scratch.path("before")).unwrap());
}
