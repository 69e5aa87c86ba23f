//! What the options of recursion make of archives in archives, and that no index is believed that was made with other
//! ones.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Mounted, Scratch, can_mount, rounds, run};

const KEEP: &str = "--index-minimum-file-count=0";

/// `a.tar` in `b.tar.gz` in `c.tar` in `outer.tar`, each with a text beside it, and a compressed text.
fn three_levels(scratch: &Scratch) -> PathBuf {
    scratch.shell(
        "printf text > text; tar -cf a.tar text; gzip < text > text.gz; tar -czf b.tar.gz a.tar text text.gz
         tar -cf c.tar b.tar.gz text; tar -cf outer.tar c.tar text",
    );
    scratch.path("outer.tar")
}

/// Paths that `ls -R` shows with these options, from the top and without the order; folders end in a slash.
#[track_caller]
fn tree(scratch: &Scratch, archive: &Path, options: &[&str]) -> BTreeSet<String> {
    let mut words = vec!["ls", "-R", "--json", KEEP];
    words.extend(options);
    words.push(archive.to_str().unwrap());
    let listed = run(scratch, words).ok().text();
    let lines = listed.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines
        .map(|line| {
            // One that is not UTF-8 is a list of bytes.
            let path = line["path"].as_str().map_or_else(|| line["path"].to_string(), str::to_owned);
            if line["type"] == "folder" { path + "/" } else { path }
        })
        .collect()
}

#[track_caller]
fn assert_tree(scratch: &Scratch, archive: &Path, options: &[&str], expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(|&path| path.to_owned()).collect();
    assert_eq!(tree(scratch, archive, options), expected, "{options:?}");
}

/// > --recursion-depth says how many archives inside each other are opened. A compressed tar counts as two.
#[test]
fn depth_is_counted_in_archives() {
    let scratch = Scratch::new();
    let archive = three_levels(&scratch);
    let none = ["c.tar", "text"];
    let one = ["c.tar/", "c.tar/b.tar.gz", "c.tar/text", "text"];
    let two = ["c.tar/", "c.tar/b.tar.gz/", "c.tar/b.tar.gz/b.tar", "c.tar/text", "text"];
    let three = [
        "c.tar/",
        "c.tar/b.tar.gz/",
        "c.tar/b.tar.gz/a.tar",
        "c.tar/b.tar.gz/text",
        "c.tar/b.tar.gz/text.gz",
        "c.tar/text",
        "text",
    ];
    let all = [
        "c.tar/",
        "c.tar/b.tar.gz/",
        "c.tar/b.tar.gz/a.tar/",
        "c.tar/b.tar.gz/a.tar/text",
        "c.tar/b.tar.gz/text",
        "c.tar/b.tar.gz/text.gz/",
        "c.tar/b.tar.gz/text.gz/text",
        "c.tar/text",
        "text",
    ];
    for (options, expected) in [
        (&[][..], &none[..]),
        (&["--recursion-depth", "0"], &none),
        (&["--recursion-depth", "0", "-r"], &none),
        (&["--no-recursive"], &none),
        (&["-r", "--no-recursive"], &none),
        (&["--recursion-depth", "1"], &one),
        (&["--recursion-depth", "1", "-r"], &one),
        (&["--recursion-depth", "2"], &two),
        (&["--recursion-depth", "3"], &three),
        (&["--recursion-depth", "4"], &all),
        (&["--recursion-depth", "100000"], &all),
        (&["--recursion-depth", "99999999999"], &all),
        (&["--recursion-depth", "-1"], &all),
        (&["--recursion-depth=-7"], &all),
        (&["-r"], &all),
        (&["--recursive"], &all),
        (&["--no-recursive", "-r"], &all),
    ] {
        assert_tree(&scratch, &archive, options, expected);
    }
    // As ratarmount counts: the archive's own compression, and each layer around a file.
    scratch.shell(
        "gzip -k outer.tar; printf text | gzip | bzip2 | gzip > text.gz.bz2.gz; tar -cf texts.tar text.gz.bz2.gz",
    );
    let compressed = scratch.path("outer.tar.gz");
    for (depth, expected) in [("1", &none[..]), ("2", &one), ("3", &two), ("4", &three), ("5", &all), ("-1", &all)] {
        assert_tree(&scratch, &compressed, &["--recursion-depth", depth], expected);
    }
    for (depth, name) in [("1", "text.gz.bz2"), ("2", "text.gz"), ("3", "text"), ("4", "text")] {
        let path = format!("text.gz.bz2.gz/{name}");
        let expected = ["text.gz.bz2.gz/", path.as_str()];
        assert_tree(&scratch, &scratch.path("texts.tar"), &["--recursion-depth", depth], &expected);
    }
    for (depth, name) in [("0", "text.gz.bz2"), ("1", "text.gz"), ("2", "text"), ("3", "text")] {
        assert_tree(&scratch, &scratch.path("text.gz.bz2.gz"), &["--recursion-depth", depth], &[name]);
    }
    let refused = run(&scratch, ["ls", "--recursion-depth", "many", archive.to_str().unwrap()]);
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("--recursion-depth"), "{}", refused.err);
}

/// > A file is opened as an archive only if its name says that it may be one.
#[test]
fn extensions_choose_what_is_opened() {
    let scratch = Scratch::new();
    scratch.shell(
        "printf text > text; for name in a.tar a.TAR a.dat a.deb tar noname .tar; do tar -cf $name text; done
         gzip < text > b.gz; tar -czf b.tgz text; tar -czf b.tar.gz text
         tar -cf outer.tar a.tar a.TAR a.dat a.deb tar noname .tar b.gz b.tgz b.tar.gz text",
    );
    let archive = scratch.path("outer.tar");
    let opened = |values: &[&str]| -> Vec<String> {
        let options: Vec<_> =
            values.iter().flat_map(|&value| ["--recursive-extensions", value]).chain(["-r"]).collect();
        let found = tree(&scratch, &archive, &options);
        found.iter().filter_map(|path| path.strip_suffix('/')).map(str::to_owned).collect()
    };
    assert_eq!(opened(&[]), [".tar", "a.TAR", "a.tar", "b.gz", "b.tar.gz", "b.tgz"]);
    assert_eq!(opened(&["/archive"]), [".tar", "a.TAR", "a.tar", "b.tar.gz", "b.tgz"]);
    assert_eq!(opened(&["/compressed"]), ["b.gz", "b.tar.gz"]);
    assert_eq!(opened(&[".tar"]), [".tar", "a.TAR", "a.tar"]);
    assert_eq!(opened(&["tar"]), [".tar", "a.TAR", "a.tar"]);
    assert_eq!(opened(&["tar,dat"]), [".tar", "a.TAR", "a.dat", "a.tar"]);
    assert_eq!(opened(&["tar", "dat"]), [".tar", "a.TAR", "a.dat", "a.tar"]);
    assert_eq!(opened(&["/archive,tar/-"]), ["b.tar.gz", "b.tgz"]);
    assert_eq!(opened(&[".t?z"]), ["b.tgz"]);
    assert_eq!(opened(&["/binary"]), ["a.deb"]);
    assert_eq!(
        opened(&["*"]),
        [".tar", "a.TAR", "a.dat", "a.deb", "a.tar", "b.gz", "b.tar.gz", "b.tgz", "noname", "tar"]
    );
    assert_eq!(opened(&["nothing"]), [""; 0]);
    let refused = run(&scratch, ["ls", "-r", "--recursive-extensions", "/pictures", archive.to_str().unwrap()]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("--recursive-extensions") && refused.err.contains("/pictures"), "{}", refused.err);
}

/// > The last of several archives at one path counts, with all that it holds and nothing else.
#[test]
fn the_later_archive_shows_whatever_is_read_first() {
    let scratch = Scratch::new();
    for suffix in ["tar", "tgz"] {
        let flag = if suffix == "tgz" { "z" } else { "" };
        scratch.shell(&format!(
            "rm -rf b* a.* f g; mkdir b; echo inner > f; echo > g; tar -c{flag}f a.{suffix} f g; tar -c{flag}f b.{suffix} a.{suffix}
             echo outer > f; tar -c{flag}f b/a.{suffix} f; tar -cf behind.tar b.{suffix} b/a.{suffix}; tar -cf before.tar b/a.{suffix} b.{suffix}"
        ));
        for (archive, content, others) in [("behind.tar", "outer\n", false), ("before.tar", "inner\n", true)] {
            let archive = scratch.path(archive);
            let shown = run(&scratch, ["cat", "-r", "-s", archive.to_str().unwrap(), "b/a/f"]).ok().text();
            assert_eq!(shown, content, "{suffix} {}", archive.display());
            let seen = tree(&scratch, &archive, &["-r", "-s"]);
            assert_eq!(seen.contains("b/a/g"), others, "{suffix} {}: {seen:?}", archive.display());
        }
    }
}

/// Also if those between them are so many that some are read before the later one is met.
#[test]
fn the_later_archive_shows_behind_a_thousand_others() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir k; echo 1 > f; tar -cf d.tar f; tar -czf k/z.tgz f; tar -cf x.tar d.tar
         for n in $(seq 1100); do cp k/z.tgz k/$n.tgz; done; rm k/z.tgz; tar -rf x.tar k
         echo 2 > f; tar -cf d.tar f; tar -rf x.tar d.tar; gzip x.tar",
    );
    let archive = scratch.path("x.tar.gz");
    for (options, path) in [(&["-r"][..], "d.tar/f"), (&["-r", "-s"], "d/f")] {
        let words = ["cat"].iter().chain(options).copied().chain([archive.to_str().unwrap(), path]);
        assert_eq!(run(&scratch, words).ok().text(), "2\n", "{path}");
    }
}

/// > -s names folders without the extension. If this gives two of them one name, they are merged. One that is opened
/// > lazily keeps its whole name then, and only its folder shows.
#[test]
fn stripped_names_that_meet_are_merged() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir one two a; printf 1 > one/first; printf 1 > one/both; printf 2 > two/second; printf 2 > two/both; printf 3 > a/third
         tar -C one -cf a.tar first both; tar -C two -czf a.tar.gz second both; gzip < one/first > plain.txt.gz
         cp a.tar .tar; cp a.tar ..tar; cp a.tar ...tar; cp plain.txt.gz ...gz
         tar --format=gnu -cf outer.tar a.tar a.tar.gz a .tar ..tar ...tar ...gz plain.txt.gz",
    );
    let archive = scratch.path("outer.tar");
    let seen = tree(&scratch, &archive, &["-r", "-s"]);
    for path in [
        "a/",
        "a/first",
        "a/second",
        "a/both",
        "a/third",
        "plain.txt/",
        "plain.txt/plain.txt",
        ".tar/",
        ".tar/first",
        "..tar/first",
        "...tar/first",
        "...gz/...gz",
    ] {
        assert!(seen.contains(path), "{path} is missing in {seen:?}");
    }
    // As ratarmount has it, the archives themselves stay beside their folders.
    println!("{seen:?}");
    let cat = |path: &str| run(&scratch, ["cat", "-r", "-s", KEEP, archive.to_str().unwrap(), path]).ok().text();
    assert_eq!((cat("a/first"), cat("a/second"), cat("a/third")), ("1".into(), "2".into(), "3".into()));
    assert!(["1", "2"].contains(&&*cat("a/both")));
    assert_eq!(cat("plain.txt/plain.txt"), "1");
    // What is opened lazily is not merged: nobody knows yet what is in it.
    if can_mount() {
        let mounted = Mounted::new(&scratch, &archive, &["-r", "-s", "-l"]);
        let text = |path: &str| std::fs::read_to_string(mounted.path(path)).unwrap();
        assert_eq!(
            (text("a.tar/first"), text("a.tar.gz/second"), text("a/third")),
            ("1".into(), "2".into(), "3".into())
        );
        assert!(!mounted.path("a/first").exists());
        assert!(mounted.path("plain.txt").is_dir() && mounted.path("plain.txt.gz").is_file(), "no other has that name");
        mounted.unmount();
    }
    // A file where the folder goes.
    scratch.shell(
        "rm -r a; printf file > a; tar --format=gnu -cf file.tar a.tar a; tar --format=gnu -cf file2.tar a a.tar",
    );
    for archive in ["file.tar", "file2.tar"] {
        let seen = tree(&scratch, &scratch.path(archive), &["-r", "-s"]);
        let (is_file, is_folder) = (seen.contains("a"), seen.contains("a/"));
        assert!(is_file != is_folder, "{archive}: {seen:?}");
        assert!(is_file || seen.contains("a/first"), "{archive}: {seen:?}");
        println!("{archive}: {seen:?}");
    }
}

/// > --transform-recursive-mount-point puts what an archive holds elsewhere.
#[test]
fn mount_points_are_moved() {
    let scratch = Scratch::new();
    let archive = three_levels(&scratch);
    let moved = |expression, replacement| {
        tree(&scratch, &archive, &["-r", "--transform-recursive-mount-point", expression, replacement])
    };
    let seen = moved(r"(.*)/([^/]*)\.tar$", r"\1/unpacked/\2");
    for path in ["unpacked/c/text", "unpacked/c/b.tar.gz/text", "unpacked/c/b.tar.gz/unpacked/a/text", "text"] {
        assert!(seen.contains(path), "{path} is missing in {seen:?}");
    }
    // All at the top: what has one name is one file.
    let seen = moved(".*", "/");
    for path in ["text", "c.tar", "b.tar.gz", "a.tar"] {
        assert!(seen.contains(path), "{path} is missing in {seen:?}");
    }
    // Not above the top, and not out of names.
    let seen = moved(".*", "/../../x/../y");
    assert!(seen.iter().all(|path| !path.contains("..")), "{seen:?}");
    assert!(seen.contains("text"));
    // Together with -s the expression gets the name without its extension.
    let options = ["-r", "-s", "--transform-recursive-mount-point", "^/c$", "/moved"];
    let seen = tree(&scratch, &archive, &options);
    assert!(seen.contains("moved/b/a/text"), "{seen:?}");
}

/// > --transform changes every path, before and in archives.
#[test]
fn paths_are_transformed() {
    let scratch = Scratch::new();
    let archive = three_levels(&scratch);
    assert_tree(&scratch, &archive, &["--transform", "^/text$", "/top/words"], &["c.tar", "top/", "top/words"]);
    assert_tree(&scratch, &archive, &["--transform", r"/([^/]*)\.tar$", r"/\1-tar"], &["c-tar", "text"]);
    let seen = tree(&scratch, &archive, &["-r", "--transform", "text$", "words"]);
    for path in ["words", "c.tar/words", "c.tar/b.tar.gz/words", "c.tar/b.tar.gz/a.tar/words"] {
        assert!(seen.contains(path), "{path} is missing in {seen:?}");
    }
    assert!(!seen.contains("text"));
    // Whether a file is opened its own name says, not the one that it gets.
    let renamed = tree(&scratch, &archive, &["-r", "--transform", r"\.tar", ".files"]);
    assert!(renamed.contains("c.files/"), "{renamed:?}");
    let cat = run(&scratch, ["cat", "--transform", "text", "words", archive.to_str().unwrap(), "words"]).ok().text();
    assert_eq!(cat, "text");
}

/// > A wrong regular expression is a usage error that names the option.
#[test]
fn bad_expressions_are_errors_of_usage() {
    let scratch = Scratch::new();
    let archive = three_levels(&scratch);
    let archive = archive.to_str().unwrap();
    for option in ["--transform", "--transform-recursive-mount-point"] {
        for (expression, replacement) in
            [("(", "x"), ("a", r"\1"), ("a", r"\g<name>"), ("[", ""), ("*", ""), ("a", "\\")]
        {
            for command in ["ls", "index"] {
                let refused = run(&scratch, [command, "-r", option, expression, replacement, archive]);
                assert_eq!(refused.code, 2, "{command} {option} {expression} {replacement}: {}", refused.err);
                assert!(refused.err.contains(option), "{command} {expression} {replacement}: {}", refused.err);
                assert!(refused.err.lines().count() <= 10, "{}", refused.err);
            }
        }
        let refused = run(&scratch, ["ls", "-r", archive, option, "one"]);
        assert_eq!(refused.code, 2, "{}", refused.err);
        assert!(refused.err.contains(option), "{}", refused.err);
        assert!(!scratch.path("outer.tar.tarnfs.sqlite").exists(), "{option}: an index was written");
    }
}

/// Options that change the tree of [`shaped`], each in another way.
const SHAPES: &[&[&str]] = &[
    &[],
    &["-r"],
    // Of a compressed archive, one level is what is in it.
    &["--recursion-depth=2"],
    &["--recursion-depth=3"],
    &["-r", "--recursive-extensions=tar"],
    &["-r", "--recursive-extensions=/compressed"],
    &["-r", "-s"],
    &["-r", "--transform-recursive-mount-point", "^/c", "/moved-c"],
    &["-r", "-s", "--transform-recursive-mount-point", "^/c", "/moved-c"],
    &["-r", "--transform", "text", "words"],
    &["--transform", "text", "words"],
    &["--transform", "text", "other"],
    &["-e", "latin1"],
    &["-r", "-e", "latin1"],
    &["-i"],
    &["-r", "-i"],
    &["--gnu-incremental"],
    &["-r", "--gnu-incremental"],
];

/// Those that change only what shows of archives.
const RECURSION: &[&[&str]] = &[
    &["--recursion-depth=2"],
    &["--recursion-depth=3"],
    &["-r", "--recursive-extensions=tar"],
    &["-r", "--recursive-extensions=/compressed"],
];

/// Options that change nothing that is shown.
const SAME: &[&[&str]] = &[&["-gs", "0.125"], &["-P1"], &["--recursive-extensions=tar"], &["--detect-gnu-incremental"]];

/// An archive on which each option shows.
fn shaped(scratch: &Scratch) -> PathBuf {
    scratch.shell(
        "printf text > text; printf x > \"$(printf 'b\\344r')\"; mkdir -p 14016413061; printf timed > 14016413061/timed
         tar -cf a.tar text 14016413061/timed b*r; gzip < text > text.gz; tar -czf b.tar.gz a.tar text text.gz
         printf late > late; tar -cf late.tar late; tar -cf c.tar b.tar.gz text; cat late.tar >> c.tar
         tar -cf outer.tar c.tar b.tar.gz text.gz text 14016413061/timed b*r; cat late.tar >> outer.tar",
    );
    scratch.path("outer.tar")
}

/// > An index that was made with other options is not used (promise I12).
/// > Only -c replaces an index that was made with other options. Another one is made beside it.
#[test]
fn an_index_for_other_options_is_not_believed() {
    let scratch = Scratch::new();
    let plain = shaped(&scratch);
    scratch.shell("gzip < outer.tar > outer.tar.gz");
    for archive in [plain, scratch.path("outer.tar.gz")] {
        let with = |options: &[&'static str], more: &[&'static str]| [options, more].concat();
        let fresh: Vec<_> =
            SHAPES.iter().map(|options| tree(&scratch, &archive, &with(options, &["--index-file=:memory:"]))).collect();
        for (number, one) in fresh.iter().enumerate() {
            if let Some(other) = fresh[..number].iter().position(|other| other == one) {
                panic!("{:?} and {:?} show the same, and so test nothing: {one:?}", SHAPES[other], SHAPES[number]);
            }
        }
        for (number, (made, tree_made)) in SHAPES.iter().zip(&fresh).enumerate() {
            scratch.shell("rm -f *.sqlite");
            let seen = tree(&scratch, &archive, &with(made, &["-c"]));
            assert_eq!(&seen, tree_made, "{made:?}");
            let again = tree(&scratch, &archive, &with(made, &["--no-recreate-index"]));
            assert_eq!(&again, tree_made, "{made:?} again");
            for wanted in SHAPES {
                // Where it differs only in what archives hold, that is hidden.
                let with_r = |plain: &[&str]| made.first() == Some(&"-r") && made[1..] == *plain;
                let is_hidden =
                    with_r(wanted) && !wanted.contains(&"--transform") || wanted.is_empty() && RECURSION.contains(made);
                if made != wanted && !is_hidden {
                    let words = [&["ls", "-R", "--no-recreate-index"], *wanted, &[archive.to_str().unwrap()]].concat();
                    let refused = run(&scratch, words);
                    assert_ne!(refused.code, 0, "the index made with {made:?} is taken for {wanted:?}");
                }
            }
            // All pairs take minutes: each comes behind three others here.
            let every = rounds(SHAPES.len() as u64 / 3, 1) as usize;
            for (wanted, tree_wanted) in
                SHAPES.iter().zip(&fresh).cycle().skip(number + 1).step_by(every).take(SHAPES.len() / every)
            {
                scratch.shell("rm -f *.sqlite");
                assert_eq!(&tree(&scratch, &archive, &with(made, &["-c"])), tree_made, "{made:?}");
                assert_eq!(&tree(&scratch, &archive, wanted), tree_wanted, "{made:?}, then {wanted:?}");
                // Both are there now.
                assert_eq!(&tree(&scratch, &archive, &with(wanted, &["--no-recreate-index"])), tree_wanted);
                assert_eq!(&tree(&scratch, &archive, &with(made, &["--no-recreate-index"])), tree_made);
            }
            for same in SAME {
                assert_eq!(
                    &tree(&scratch, &archive, &with(made, same)),
                    &{
                        let options = with(made, same);
                        tree(&scratch, &archive, &with(&options, &["--index-file=:memory:"]))
                    },
                    "{made:?}, then {same:?}"
                );
            }
        }
    }
}

/// > An index that ratarmount has made is used only if it shows what was asked for.
#[test]
fn an_index_of_ratarmount_with_other_archives_in_it_is_not_believed() {
    let path = std::env::var_os("TARNFS_PEERS").map(|folder| Path::new(&folder).join("bin/ratarmount"));
    let Some(ratarmount) = path.filter(|path| path.exists()) else {
        println!("left out: no ratarmount (TARNFS_PEERS names the folder of its virtual environment)");
        return;
    };
    let scratch = Scratch::new();
    let plain = three_levels(&scratch);
    scratch.shell("gzip < outer.tar > outer.tar.gz");
    for archive in [plain, scratch.path("outer.tar.gz")] {
        let shown = archive.display().to_string();
        let sidecar = PathBuf::from(format!("{shown}.index.sqlite"));
        let fresh = |options: &[&str]| tree(&scratch, &archive, &[options, &["--index-file=:memory:"]].concat());
        let expected = [fresh(&[]), fresh(&["-r"]), fresh(&["--recursion-depth=1"])];
        for made in [&[][..], &["-r"], &["--recursion-depth", "1"]] {
            for (wanted, expected) in [&[][..], &["-r"], &["--recursion-depth=1"]].into_iter().zip(&expected) {
                for end in ["index", "tarnfs"] {
                    let _ = fs::remove_file(format!("{shown}.{end}.sqlite"));
                }
                let done = Command::new(&ratarmount)
                    .args(["--no-mount", "--index-minimum-file-count", "0"])
                    .args(made)
                    .arg(&archive)
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status();
                assert!(done.unwrap().success());
                assert!(sidecar.exists(), "ratarmount has written no index");
                if made.is_empty() && wanted.is_empty() {
                    // What belongs is used.
                    tree(&scratch, &archive, &["--no-recreate-index"]);
                }
                assert_eq!(
                    &tree(&scratch, &archive, wanted),
                    expected,
                    "{shown}: ratarmount {made:?}, then {wanted:?}"
                );
            }
        }
    }
}

/// --ignore-zeros and --recursive together, where the archive is compressed.
#[test]
fn ignore_zeros_and_recursive_go_together_in_a_compressed_archive() {
    let scratch = Scratch::new();
    let plain = shaped(&scratch);
    scratch.shell("gzip < outer.tar > outer.tar.gz");
    let of_plain = tree(&scratch, &plain, &["-r", "-i"]);
    assert!(of_plain.contains("c.tar/late") && of_plain.contains("late"), "{of_plain:?}");
    assert_eq!(tree(&scratch, &scratch.path("outer.tar.gz"), &["-r", "-i"]), of_plain);
}

/// > A file that goes on in another volume is a file, whatever its first part looks like.
#[test]
fn what_goes_on_in_another_volume_is_not_looked_into() {
    let scratch = Scratch::new();
    // The first part of `moved.tar` and of `moved.tgz` is in the first volume, `whole.tar` and `whole.tgz` are in the
    // second one.
    scratch.shell(
        "head -c 70000 /dev/urandom > noise; head -c 90000 /dev/urandom > other; echo small > small
         tar -cf moved.tar small noise other; tar -czf moved.tgz other noise; tar -cf whole.tar small; tar -czf whole.tgz small
         tar -M -L 100 -cf 1.tar -f 2.tar -f 3.tar -f 4.tar -f 5.tar -f 6.tar moved.tar moved.tgz whole.tar whole.tgz < /dev/null
         cat [1-6].tar > all.tar; gzip < all.tar > all.tar.gz; tar -cf around.tar all.tar.gz; sha256sum moved.tar moved.tgz > sums",
    );
    let expected = ["moved.tar", "moved.tgz", "whole.tar/", "whole.tar/small", "whole.tgz/", "whole.tgz/small"];
    for archive in ["all.tar", "all.tar.gz"] {
        let archive = scratch.path(archive);
        for options in [&["-r", "-i"][..], &["-r", "-i", "--hashes=sha256"]] {
            assert_tree(&scratch, &archive, options, &expected);
            let words = [&["ls", "-R", KEEP], options, &[archive.to_str().unwrap()]].concat();
            // Nothing is said of what was begun and then left.
            assert_eq!(run(&scratch, words).ok().err, "");
        }
        for name in ["moved.tar", "moved.tgz"] {
            let words = ["cat", "-r", "-i", KEEP, archive.to_str().unwrap(), name];
            assert!(run(&scratch, words).ok().out == fs::read(scratch.path(name)).unwrap(), "{name}");
        }
    }
    let expected: Vec<String> = expected.iter().map(|path| format!("all.tar.gz/{path}")).collect();
    let expected: Vec<&str> = ["all.tar.gz/"].into_iter().chain(expected.iter().map(String::as_str)).collect();
    for threads in ["1", "3"] {
        assert_tree(&scratch, &scratch.path("around.tar"), &["-r", "-i", "-c", "-P", threads], &expected);
    }
}
