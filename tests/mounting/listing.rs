//! ls, cat and stat: paths, globs, order and JSON.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::support::{Ran, Scratch, run, tarnfs};

/// An archive `a.tar` with files of several sizes and times.
fn archive() -> Scratch {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/sub/deep; head -c 100 /dev/zero > tree/small.txt; head -c 5000 /dev/zero > tree/large.txt
         head -c 2000 /dev/zero > tree/sub/middle.c; echo x > tree/sub/deep/x.c; echo hidden > tree/.hidden
         ln -s sub tree/link; touch -d '2020-01-01T00:00:00Z' tree/large.txt; touch -d '2021-06-01T12:34:56Z' tree/small.txt
         touch -d '2019-01-01T00:00:00Z' tree/.hidden tree/sub; tar -C tree -cf a.tar .hidden large.txt link small.txt sub",
    );
    scratch
}

/// Runs a command on `a.tar`.
fn on(scratch: &Scratch, words: &[&str]) -> Ran {
    let mut command = tarnfs(scratch);
    command.arg(words[0]).arg("a.tar").args(&words[1..]).env("TZ", "UTC").current_dir(scratch.path(""));
    Ran::from(command.output().unwrap())
}

#[test]
fn several_paths_are_listed_each_under_its_name() {
    let scratch = archive();
    assert_eq!(on(&scratch, &["ls", "sub"]).ok().text(), "deep\nmiddle.c\n");
    assert_eq!(on(&scratch, &["ls", "sub", "sub/deep"]).ok().text(), "sub:\ndeep\nmiddle.c\n\nsub/deep:\nx.c\n");
    assert_eq!(on(&scratch, &["ls", "small.txt", "sub/deep"]).ok().text(), "small.txt\n\nsub/deep:\nx.c\n");
    assert_eq!(on(&scratch, &["ls", "--directory", "sub", "sub/deep"]).ok().text(), "sub\nsub/deep\n");
    let ran = on(&scratch, &["ls", "nosuch", "small.txt"]);
    assert_eq!((ran.code, ran.text().as_str()), (1, "small.txt\n"), "{}", ran.err);
    assert_eq!(ran.err, "tarnfs: a.tar: nosuch: no such file or folder\n");
}

#[test]
fn a_link_is_followed_but_for_its_own_line() {
    let scratch = archive();
    assert_eq!(on(&scratch, &["ls", "link"]).ok().text(), "deep\nmiddle.c\n");
    let long = on(&scratch, &["ls", "-l", "link"]).ok().text();
    assert!(long.starts_with('l') && long.ends_with(" link -> sub\n"), "{long}");
    assert_eq!(on(&scratch, &["ls", "-l", "link/"]).ok().text().lines().count(), 2);
}

#[test]
fn globs_are_expanded_in_the_archive() {
    let scratch = archive();
    assert_eq!(on(&scratch, &["ls", "*.txt"]).ok().text(), "large.txt\nsmall.txt\n");
    assert_eq!(on(&scratch, &["ls", "**/*.c"]).ok().text(), "sub/deep/x.c\nsub/middle.c\n");
    assert_eq!(on(&scratch, &["cat", "**/x.?"]).ok().text(), "x\n");
    assert_eq!(on(&scratch, &["stat", "*.txt"]).ok().text().matches("Path: ").count(), 2);
    let ran = on(&scratch, &["cat", "*.none", "sub/deep/x.c"]);
    assert_eq!((ran.code, ran.text().as_str()), (1, "x\n"), "what can be shown is shown");
    assert!(ran.err.contains("*.none"), "{}", ran.err);
}

/// `**` may reach a path in many ways.
#[test]
fn a_glob_gives_each_path_once_and_in_order() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p b/a/a/.a a/a; for file in b/a/a/.a/x b/a/a/x b/a/x b/x a/a/x a/y; do echo $file > $file; done; tar -cf a.tar b a",
    );
    for (glob, found) in [
        ("**/x", &["a/a/x", "b/a/a/x", "b/a/x", "b/x"][..]),
        ("**/a/**/x", &["a/a/x", "b/a/a/x", "b/a/x"]),
        ("**/**/**/x", &["a/a/x", "b/a/a/x", "b/a/x", "b/x"]),
        ("b/**/a/x", &["b/a/a/x", "b/a/x"]),
        ("{b,a}/**/[xy]", &["a/a/x", "a/y", "b/a/a/x", "b/a/x", "b/x"]),
        ("*/a/a/.a/*", &["b/a/a/.a/x"]),
    ] {
        let lines = on(&scratch, &["cat", glob]).ok().text();
        assert_eq!(lines.lines().collect::<Vec<_>>(), found, "{glob}");
    }
    let all = on(&scratch, &["ls", "--directory", "b/**"]).ok().text();
    assert_eq!(all, "b/a\nb/a/a\nb/a/a/x\nb/a/x\nb/x\n");
}

/// Of many folders some are searched at a time, and none is left out.
#[test]
fn a_glob_is_looked_for_in_each_of_many_folders() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir a b; for n in $(seq 700); do mkdir -p a/$n b/b/$n; touch a/$n/x b/b/$n/x; done; tar -cf a.tar a b",
    );
    for (glob, count) in [("a/*/x", 700), ("*/*/*/x", 700), ("**/x", 1400), ("a/*", 700), ("a/7*/x", 12)] {
        let lines = on(&scratch, &["ls", "--directory", glob]).ok().text();
        assert_eq!(lines.lines().collect::<std::collections::BTreeSet<_>>().len(), count, "{glob}");
        assert_eq!(lines.lines().count(), count, "{glob}");
    }
}

#[test]
fn a_name_that_looks_like_a_glob_is_itself() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; echo 1 > 'tree/a[1]'; echo 2 > tree/a1; tar -C tree -cf a.tar .");
    assert_eq!(on(&scratch, &["cat", "a[1]"]).ok().text(), "1\n");
    assert_eq!(on(&scratch, &["cat", "a[12]"]).ok().text(), "2\n");
}

#[test]
fn a_listing_is_ordered_by_time_or_size() {
    let scratch = archive();
    let names = |options: &[&str]| {
        let words: Vec<&str> = ["ls"].into_iter().chain(options.iter().copied()).collect();
        on(&scratch, &words).ok().text().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names(&[]), [".hidden", "large.txt", "link", "small.txt", "sub"]);
    assert_eq!(names(&["-a", "-1"]), names(&[]));
    assert_eq!(names(&["--reverse"]), ["sub", "small.txt", "link", "large.txt", ".hidden"]);
    assert_eq!(names(&["-S"])[0], "large.txt");
    let by_time = names(&["-t"]);
    let place = |name: &str| by_time.iter().position(|listed| listed == name).unwrap();
    assert!(place("small.txt") < place("large.txt") && place("large.txt") < place(".hidden"), "{by_time:?}");
    assert_eq!(names(&["-R", "--reverse"])[..2], ["sub", "sub/middle.c"]);
    assert_eq!(names(&["-t", "-S"])[0], "large.txt", "the last one counts");
    // What is named, too: files first, then folders.
    assert_eq!(names(&["small.txt", "large.txt"]), ["small.txt", "large.txt"]);
    assert_eq!(names(&["-S", "*.txt", ".hidden"]), ["large.txt", "small.txt", ".hidden"]);
    assert_eq!(names(&["-S", "--reverse", "*.txt", ".hidden"]), [".hidden", "small.txt", "large.txt"]);
    assert_eq!(names(&["-t", ".hidden", "large.txt", "small.txt"]), ["small.txt", "large.txt", ".hidden"]);
    assert_eq!(names(&["--directory", "--reverse", "sub", "sub/deep", "link"]), ["sub/deep", "sub", "link"]);
}

#[test]
fn sizes_and_times_are_shown_as_ls_shows_them() {
    let scratch = archive();
    let run = |zone: &str, words: &[&str]| {
        let mut command = tarnfs(&scratch);
        command.args(words).env("TZ", zone).current_dir(scratch.path(""));
        Ran::from(command.output().unwrap()).ok().text()
    };
    let line = |zone| run(zone, &["ls", "-lh", "a.tar", "small.txt", "large.txt"]);
    assert!(line("UTC").contains(" 4.9K 2020-01-01 00:00 large.txt"), "{}", line("UTC"));
    assert!(line("UTC").contains("  100 2021-06-01 12:34 small.txt"), "{}", line("UTC"));
    // A zone that needs no files of the system.
    assert!(line("XYZ-3").contains(" 2021-06-01 15:34 small.txt"), "{}", line("XYZ-3"));
    let stat = |zone| run(zone, &["stat", "a.tar", "small.txt"]);
    let both = "Modify: 2021-06-01 15:34:56.000000000 +0300 (2021-06-01 12:34:56.000000000 UTC)\n";
    assert!(stat("XYZ-3").contains(both), "{}", stat("XYZ-3"));
    assert!(stat("UTC").contains("Modify: 2021-06-01 12:34:56.000000000 UTC\n"), "{}", stat("UTC"));
}

#[test]
fn json_has_all_that_is_known() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; echo content > tree/file; printf x > \"$(printf 'tree/b\\344r')\"
         tar --format=posix -C tree -cf a.tar .
         python3 - <<'END'
import tarfile, io
with tarfile.open('a.tar', 'a', format=tarfile.PAX_FORMAT) as tar:
    info = tarfile.TarInfo('noted')
    info.pax_headers = {'SCHILY.xattr.user.comment': 'a note'}
    tar.addfile(info, io.BytesIO(b''))
END",
    );
    let entries = |words: &[&str]| -> Vec<Value> {
        on(&scratch, words).ok().text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let listed = entries(&["ls", "--json", "--hashes", "sha256"]);
    let find = |path: &str| listed.iter().find(|entry| entry["path"] == path).unwrap();
    assert_eq!(find("file")["hashes"]["sha256"].as_str().unwrap().len(), 64);
    assert_eq!(find("noted")["xattrs"], serde_json::json!([{ "name": "user.comment", "value": "a note" }]));
    assert_eq!(find("b\u{fffd}r")["path_bytes"], STANDARD.encode(b"b\xe4r"));
    assert!(find("file").get("path_bytes").is_none());
    let shown = entries(&["stat", "--json", "file", "noted"]);
    assert_eq!((shown[0]["type"].as_str(), shown[1]["path"].as_str()), (Some("file"), Some("noted")));
    assert_eq!(shown[0]["size"], 8);
}

/// Entries of a folder are read some at a time, and the rest behind what is in those.
#[test]
fn a_listing_of_all_levels_is_in_the_order_of_the_tree() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir t; cd t; for n in $(seq 1000 1300); do mkdir -p $n/x; : > $n.f; : > $n/a; : > $n/x/b; done
         d=1000/x; for n in $(seq 200); do d=$d/d; mkdir -p $d; : > $d/c; : > $d/e; done
         for n in $(seq 100 140); do mkdir $d/$n; : > $d/$n/f; done; tar -cf ../t.tar *",
    );
    let listed = run(&scratch, ["ls".as_ref(), "-R".as_ref(), scratch.path("t.tar").as_os_str()]).ok().text();
    let mut find = tarnfs(&scratch);
    find.arg("find").arg(scratch.path("t.tar")).args(["-mindepth", "1", "-printf", "%P\\n"]);
    let found = Ran::from(find.output().unwrap()).ok().text();
    assert!(listed == found && listed.lines().count() == 301 * 5 + 600 + 82, "{} lines", listed.lines().count());
}
