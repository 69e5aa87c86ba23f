//! Archives whose frames of zstd were made with dictionaries: `--zstd-dictionary`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::fs::FileExt;

use crate::support::{Compare, Mounted, Ran, Scratch, assert_twins, can_mount, run, tarnfs};

/// Two dictionaries with IDs, `a` and `b`, one without, `raw`, a tree and what `tar` makes of it.
fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree parts
         for n in $(seq 1 300); do seq $n $((n * 7)) | awk '{ print $1, \"is a line of\", $1 % 17, \"and\", $1 * $1 }' > tree/$n; done
         seq 1 300000 > tree/numbers; head -c 500000 /dev/urandom > tree/noise
         tar --format=posix --sort=name -C tree -cf a.tar .
         cp tree/1?? parts/
         zstd -q --train -r parts --maxdict=20000 --dictID=4711 -o a
         seq 1 100000 | split -l 200 - parts/numbers-
         zstd -q --train parts/numbers-* --maxdict=20000 --dictID=12 -o b
         cat tree/20? > raw",
    );
    scratch
}

/// The options that give these dictionaries.
fn given(scratch: &Scratch, names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("--zstd-dictionary={}", scratch.path(name).display())).collect()
}

/// Runs `command`, with these dictionaries, on an archive.
fn with(scratch: &Scratch, names: &[&str], command: &str, archive: &str, rest: &[&str]) -> Ran {
    let archive = scratch.path(archive).display().to_string();
    let words = [command.to_owned()].into_iter().chain(given(scratch, names)).chain([archive]);
    run(scratch, words.chain(rest.iter().map(|word| (*word).to_owned())))
}

/// What each archive is made with, and which dictionaries it needs.
const ARCHIVES: &[(&str, &str, &[&str])] = &[
    ("one-frame.tar.zst", "zstd -q -c -3 -D a a.tar", &["a"]),
    ("frames.tar.zst", "split -b 300000 --filter='zstd -q -c -D a' a.tar", &["a"]),
    ("small-frames.tar.zst", "split -b 9000 --filter='zstd -q -c -D a' a.tar", &["a"]),
    ("raw.tar.zst", "split -b 700000 --filter='zstd -q -c -19 -D raw' a.tar", &["raw"]),
    ("no-id.tar.zst", "zstd -q -c --no-dictID -D b a.tar", &["b"]),
    (
        "mixed.tar.zst",
        "(head -c 400000 | zstd -q -D a; head -c 400000 | zstd -q; head -c 700000 | zstd -q -D b; zstd -q -D raw) < a.tar",
        &["b", "a", "raw"],
    ),
    ("patch.tar.zst", "zstd -q -c --patch-from=raw a.tar", &["raw"]),
];

/// > Frames of zstd are read with the dictionary that they were made with. If it is not given, the error names its
/// > ID.
#[test]
fn what_needs_dictionaries_is_read_with_them_by_every_command() {
    let scratch = scratch();
    let right = fs::read(scratch.path("a.tar")).unwrap();
    let numbers = fs::read(scratch.path("tree/numbers")).unwrap();
    for (archive, command, names) in ARCHIVES {
        scratch.shell(&format!("{command} > {archive}"));
        let with = |command: &str, rest: &[&str]| with(&scratch, names, command, archive, rest);
        assert!(with("cat", &[]).ok().out == right, "{archive}");
        assert!(with("check", &[]).ok().text().contains("whole: 302 files"), "{archive}");
        with("index", &[]).ok();
        for option in ["-c", "--no-recreate-index"] {
            assert_eq!(with("ls", &[option]).ok().text().lines().count(), 302, "{archive}");
            assert!(with("cat", &["numbers", option]).ok().out == numbers, "{archive}");
            assert!(with("stat", &["numbers", option]).ok().text().contains("1988895 bytes"), "{archive}");
            let part = with("cat", &["--range=1500000:70000", option]).ok().out;
            assert!(part == right[1_500_000..1_570_000], "{archive}");
        }
        with("check", &[]).ok();
        // Through a sidecar of ratarmount, too, which knows no dictionaries itself.
        let sidecar = format!("--index-file={}", scratch.path(format!("{archive}.sidecar")).display());
        with("index", &["--format=ratarmount", &sidecar]).ok();
        assert!(with("cat", &["numbers", &sidecar, "--no-recreate-index"]).ok().out == numbers, "{archive}");
    }
}

#[test]
fn a_mount_is_what_tar_would_have_made_on_the_first_and_the_next_time() {
    if !can_mount() {
        return;
    }
    let scratch = scratch();
    scratch.shell("mkdir twin; tar -xpf a.tar -C twin");
    for (archive, command, names) in ARCHIVES {
        scratch.shell(&format!("{command} > {archive}"));
        let options = [given(&scratch, names), vec!["--index-minimum-file-count=0".into()]].concat();
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        for _ in ["first mount", "next mount"] {
            let mount = Mounted::new(&scratch, scratch.path(archive), &options);
            assert_twins(&mount.at, &scratch.path("twin"), Compare::default());
            // In the middle, without what comes before.
            let file = fs::File::open(mount.path("numbers")).unwrap();
            let (mut part, right) = ([0; 1000], fs::read(scratch.path("tree/numbers")).unwrap());
            for at in [1_900_000, 7, 1_000_000, 123_456] {
                file.read_exact_at(&mut part, at as u64).unwrap();
                assert_eq!(part[..], right[at..at + 1000]);
            }
            drop(file);
            mount.unmount();
        }
        // As in fstab.
        let option = given(&scratch, names).join(",").replace("--", "");
        let mount = Mounted::new(&scratch, scratch.path(archive), &["-o", &option]);
        assert_eq!(fs::read(mount.path("123")).unwrap(), fs::read(scratch.path("tree/123")).unwrap());
        mount.unmount();
    }
}

#[test]
fn a_dictionary_that_is_missing_or_wrong_is_told() {
    let scratch = scratch();
    let (_, command, _) = ARCHIVES[1];
    scratch.shell(&format!("{command} > a.tar.zst"));
    let says = |ran: &Ran, text: &str| assert!(ran.code != 0 && ran.err.contains(text), "{text}: {ran:?}");
    let missing = "the zstd frame at byte 0 of the compressed file needs dictionary 4711, which was not given: name its file with --zstd-dictionary";
    for names in [&[][..], &["b"], &["raw"]] {
        for command in ["ls", "index", "check", "cat"] {
            let ran = with(&scratch, names, command, "a.tar.zst", &[]);
            says(&ran, missing);
            assert_eq!((ran.code, ran.out.len()), (3, 0));
        }
    }
    assert!(!scratch.path("a.tar.zst.tarnfs.sqlite").exists(), "nothing is known of what could not be read");
    // With an index: reading is what fails.
    with(&scratch, &["a"], "index", "a.tar.zst", &[]).ok();
    with(&scratch, &[], "ls", "a.tar.zst", &["--no-recreate-index"]).ok();
    let ran = with(&scratch, &[], "cat", "a.tar.zst", &["numbers"]);
    says(&ran, "needs dictionary 4711, which was not given: name its file with --zstd-dictionary");
    says(&ran, "zstd frame at byte ");
    if can_mount() {
        let mount = Mounted::new(&scratch, scratch.path("a.tar.zst"), &["--no-recreate-index"]);
        assert!(fs::read(mount.path("numbers")).is_err());
        mount.unmount();
    }
    // Another one of the same ID.
    scratch.shell("zstd -q --train parts/numbers-* --maxdict=20000 --dictID=4711 -o wrong");
    let ran = with(&scratch, &["wrong"], "check", "a.tar.zst", &[]);
    assert!(ran.code == 5 && ran.text().contains("damaged at byte"), "{ran:?}");
    let ran = with(&scratch, &["wrong"], "cat", "a.tar.zst", &["--no-recreate-index", "numbers"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    // What is no dictionary.
    scratch.shell("touch empty; mkdir folder; head -c 60 a > cut");
    for (names, text) in [
        (&["not-there"][..], "No such file"),
        (&["folder"], "directory"),
        (&["empty"], "is empty"),
        (&["cut"], "is a dictionary of zstd that is damaged"),
        (&["a", "wrong"], "wrong: is another one of ID 4711"),
        (&["raw", "a.tar"], "a.tar: is another one without an ID"),
    ] {
        let ran = with(&scratch, names, "ls", "a.tar.zst", &[]);
        says(&ran, text);
        assert!(ran.code == 2 && ran.err.contains("--zstd-dictionary"), "{ran:?}");
    }
    // Relative to where the command runs.
    let ran =
        tarnfs(&scratch).args(["ls", "--zstd-dictionary", "a", "a.tar.zst"]).current_dir(scratch.path("")).output();
    Ran::from(ran.unwrap()).ok();
}

/// > What was indexed without its dictionary is indexed again once the dictionary is given.
#[test]
fn a_frame_that_names_no_dictionary_is_read_as_soon_as_it_is_given() {
    let scratch = scratch();
    let right = fs::read(scratch.path("a.tar")).unwrap();
    scratch.shell("zstd -q -c -D raw a.tar > a.tar.zst; seq 1 1000 > other");
    let advice = ["made with a dictionary", "made with another dictionary"];
    for (names, advice) in [&[][..], &["other"]].into_iter().zip(advice) {
        let ran = with(&scratch, names, "index", "a.tar.zst", &["-c"]);
        assert!(ran.code == 5 && ran.err.contains(advice) && ran.err.contains("--zstd-dictionary"), "{ran:?}");
        assert!(scratch.path("a.tar.zst.tarnfs.sqlite").exists());
        let ran = with(&scratch, &["raw"], "cat", "a.tar.zst", &["--index-minimum-file-count=0"]);
        assert!(ran.ok().out == right);
        // Once.
        with(&scratch, &["raw"], "ls", "a.tar.zst", &["--no-recreate-index"]).ok();
    }
    // With an index that is right, and without it: what is wrong must be said there, too.
    let ran = with(&scratch, &[], "cat", "a.tar.zst", &["numbers"]);
    assert!(ran.code == 5 && ran.err.contains(advice[0]), "{ran:?}");
}
