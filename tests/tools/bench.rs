//! `tarnfs bench` at a small scale, with the programs that are installed: figures are there, right bytes are told from
//! wrong ones, and nothing is left behind. How long something takes is no matter here.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::reports::{bench, bench_with, figure, is_whole, rows};
use crate::support::{self, Ran, Scratch, can_mount, have, tarnfs, wait_until};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn mounting_is_compared() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/a/b; seq 1 200000 > tree/large; for i in $(seq 40); do seq $i 400 > \"tree/a/b/file $i\"; done
         tar -cf a.tar -C tree .; gzip -k a.tar; chmod 444 a.tar a.tar.gz",
    );
    let mut archives = vec!["a.tar", "a.tar.gz"];
    if have("zip") && have("fuse-zip") {
        scratch.shell("cd tree; zip -q -r ../a.zip .");
        archives.push("a.zip");
    }
    if have("mksquashfs") && have("squashfuse") {
        scratch.shell("mksquashfs tree a.squashfs -quiet -no-progress");
        archives.push("a.squashfs");
    }
    let before = scratch.shell("ls -la --time-style=full-iso; md5sum a.*");
    let options = ["mount", "--runs", "2", "--limit", "60s", "--out", "mounted"];
    let ran = bench(&scratch, options.iter().chain(&archives)).ok();
    let after = scratch.shell("ls -la --time-style=full-iso; md5sum a.*");
    // Nothing is made beside the archives.
    let names = |text: &str| text.lines().filter(|line| line.contains("a.")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(names(&before), names(&after));
    is_whole(&scratch.path("mounted"));
    let rows = rows(&scratch.path("mounted/mount.tsv"));
    let files: f64 = scratch.shell("find tree -type f | wc -l").trim().parse().unwrap();
    for archive in &archives {
        let of = |program: &str, name: &str| figure(&rows, &[("archive", archive), ("program", program)], name);
        assert_eq!(of("tarnfs", "files"), Ok(files), "{archive}");
        for name in ["first mount", "next mount", "find", "cat", "1000 files", "largest file", "peak memory"] {
            assert!(of("tarnfs", name).unwrap() > 0.0, "{archive} {name}");
        }
        assert!(of("tarnfs", "cat, fastest").unwrap() <= of("tarnfs", "cat, slowest").unwrap());
        let others: Vec<_> =
            rows.iter().filter(|row| row["archive"] == *archive && row["program"] != "tarnfs").collect();
        let programs: std::collections::BTreeSet<_> = others.iter().map(|row| row["program"].clone()).collect();
        for program in programs {
            match of(&program, "first mount") {
                Ok(_) => assert_eq!(of(&program, "files"), Ok(files), "{archive} {program}"),
                Err(reason) => println!("left out: {program} does not mount {archive}: {reason}"),
            }
        }
    }
    assert!(
        ran.text().contains("Mounting, finding and reading\n") && ran.text().contains("a.tar.gz"),
        "{}",
        ran.text()
    );
    if have("archivemount") {
        let of = [("archive", "a.tar"), ("program", "archivemount")];
        assert!(figure(&rows, &of, "1000 files").unwrap() > 0.0);
    }
}

/// Programs that lie: one returns other bytes, one never mounts, one does not even end.
#[test]
fn programs_that_are_wrong_are_marked() {
    if !can_mount() || !have("archivemount") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree other bin; for i in 1 2 3; do seq $i 100 > tree/$i; done; cp -r tree/. other; echo changed > other/2
         tar -cf a.tar -C tree .; tar -cf other.tar -C other .",
    );
    let program = |name: &str, script: String| {
        let path = scratch.path("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\ncase $1 in --version) echo {name} 1.0; exit;; esac\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    // The last word is the mount point.
    let other = scratch.path("other.tar").display().to_string();
    program("archivemount", format!("for at; do :; done; exec /usr/bin/archivemount -o readonly {other} \"$at\""));
    program("fuse-archive", "echo cannot do that >&2; exit 3".to_owned());
    program("ratarmount", "sleep 1000 & wait".to_owned());
    if !Path::new("/usr/bin/archivemount").exists() {
        return;
    }
    let bin = scratch.path("bin");
    let words = ["mount", "a.tar", "--runs=1", "--limit=15", "--json", "--peers"].map(OsStr::new);
    let ran = bench(&scratch, words.into_iter().chain([bin.as_os_str()])).ok();
    let json: serde_json::Value = serde_json::from_str(&ran.text()).unwrap();
    let table = &json["tables"][0];
    let columns: Vec<_> = table["columns"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    let cell = |program: &str, name: &str| {
        let row = table["rows"].as_array().unwrap().iter().find(|row| row["labels"][1] == program).unwrap();
        row["cells"][columns.iter().position(|column| *column == name).unwrap()].clone()
    };
    assert_eq!(cell("archivemount", "1000 files")["reason"], "1 of its files differ from those of tarnfs");
    assert_eq!(cell("archivemount", "files")["median"], 3.0);
    assert_eq!(cell("fuse-archive", "first mount")["reason"], "failed: cannot do that");
    assert_eq!(cell("ratarmount", "first mount")["reason"], "took longer than 15 s");
    assert!(cell("tarnfs", "1000 files")["median"].as_f64().unwrap() > 0.0);
}

#[test]
fn archives_that_grow_are_measured() {
    if !can_mount() || !have("xz") {
        return;
    }
    let scratch = Scratch::new();
    // Others take minutes for random files of what is compressed.
    let tools = "find cat xargs md5sum gzip bzip2 xz zstd sh fusermount3";
    scratch.shell(&format!("mkdir bin; for tool in {tools}; do ln -s \"$(command -v $tool)\" bin/ || true; done"));
    let words = ["mount", "--grid", "--most-folders=1", "--runs=1", "--keep-caches", "--out=grid"];
    let bin = scratch.path("bin");
    bench_with(&scratch, words, bin.as_os_str(), &bin).ok();
    is_whole(&scratch.path("grid"));
    let rows = rows(&scratch.path("grid/grid.tsv"));
    for size in ["0 B", "64 B", "64 KiB"] {
        for compression in ["none", "gzip", "bzip2", "xz", "zstd"] {
            let of = [("files of", size), ("compression", compression), ("program", "tarnfs"), ("folders", "1")];
            assert_eq!(figure(&rows, &of, "files"), Ok(1000.0), "{size} {compression}");
        }
    }
}

#[test]
fn one_archive_is_compressed_in_several_ways() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; for i in $(seq 30); do seq $i 500 > tree/$i; done; tar -czf a.tar.gz tree");
    bench(&scratch, ["mount", "--recompress", "a.tar.gz", "--runs=1", "--limit=60", "--keep-caches", "--out=again"])
        .ok();
    is_whole(&scratch.path("again"));
    let rows = rows(&scratch.path("again/recompress.tsv"));
    for compression in ["gzip", "bzip2", "xz", "zstd", "pixz"] {
        if have(compression) {
            let of = [("archive", "a.tar.gz"), ("compression", compression), ("program", "tarnfs")];
            assert_eq!(figure(&rows, &of, "files"), Ok(30.0), "{compression}");
            assert!(figure(&rows, &of, "size").unwrap() > 0.0);
        }
    }
}

#[test]
fn tars_are_compared() {
    let scratch = Scratch::new();
    scratch.shell("mkdir -p tree/a; for i in $(seq 50); do seq $i 900 > \"tree/a/file $i\"; done; ln -s a tree/link");
    let before = scratch.shell("find tree | sort; find tree -type f -exec md5sum {} + | sort");
    let ran = bench(&scratch, ["tar", "tree", "--runs=2", "--limit=60", "--keep-caches", "--out=tars"]).ok();
    assert_eq!(before, scratch.shell("find tree | sort; find tree -type f -exec md5sum {} + | sort"));
    is_whole(&scratch.path("tars"));
    let rows = rows(&scratch.path("tars/tar.tsv"));
    let media: &[&str] = if ran.text().contains("too little memory") { &["disk"] } else { &["memory", "disk"] };
    for medium in media {
        for compression in ["none", "gzip", "bzip2", "xz", "zstd"] {
            for (program, operation) in [
                ("tarnfs", "create"),
                ("tarnfs", "list"),
                ("tarnfs, with index", "extract"),
                ("tar", "create"),
                ("tar", "compare"),
            ] {
                let of =
                    [("medium", *medium), ("compression", compression), ("operation", operation), ("program", program)];
                let (best, real) = (figure(&rows, &of, "best"), figure(&rows, &of, "real"));
                assert!(best.clone().unwrap() > 0.0 && best <= real, "{of:?}: {best:?} {real:?}");
                assert!(figure(&rows, &of, "speed").unwrap() > 0.0, "{of:?}");
            }
            let alone = [
                ("medium", *medium),
                ("compression", compression),
                ("operation", "create"),
                ("program", "compressor alone"),
            ];
            match figure(&rows, &alone, "real") {
                Ok(seconds) => assert!(seconds > 0.0 && compression != "none", "{alone:?}"),
                Err(why) => assert_eq!((compression, why.as_str()), ("none", "nothing is compressed there")),
            }
            if have("bsdtar") {
                let of = [
                    ("medium", *medium),
                    ("compression", compression),
                    ("operation", "compare"),
                    ("program", "bsdtar"),
                ];
                assert_eq!(figure(&rows, &of, "real"), Err("it has no such operation".to_owned()));
                let of = [of[0], of[1], ("operation", "extract"), of[3]];
                assert!(figure(&rows, &of, "real").unwrap() > 0.0);
            }
        }
    }
}

#[test]
fn threads_are_compared() {
    let scratch = Scratch::new();
    scratch.shell("seq 1 300000 > text; tar -cf a.tar text; gzip -k a.tar; bzip2 -k a.tar");
    bench(&scratch, ["scale", "a.tar.gz", "a.tar.bz2", "--runs=2", "--limit=60", "--out=threads"]).ok();
    is_whole(&scratch.path("threads"));
    let rows = rows(&scratch.path("threads/scale.tsv"));
    let size = fs::metadata(scratch.path("a.tar")).unwrap().len() as f64 / f64::from(1 << 20);
    for archive in ["a.tar.gz", "a.tar.bz2"] {
        for work in ["indexing", "decoding"] {
            let of = [("archive", archive), ("work", work), ("threads", "1")];
            assert_eq!(figure(&rows, &of, "speed-up"), Ok(1.0), "{of:?}");
            assert!((figure(&rows, &of, "size").unwrap() - size).abs() < 1e-9, "{of:?}");
        }
    }
    let made = bench(&scratch, ["scale", "--make=2M", "--runs=1", "--limit=60", "--json"]).ok();
    let json: serde_json::Value = serde_json::from_str(&made.text()).unwrap();
    let archives: std::collections::BTreeSet<_> =
        json["tables"][0]["rows"].as_array().unwrap().iter().map(|row| row["labels"][0].to_string()).collect();
    assert!(archives.contains("\"2MiB.tar.gz\"") && archives.contains("\"512KiB.tar\""), "{archives:?}");
}

#[test]
fn what_cannot_be_done_is_said_before_anything_is_measured() {
    let scratch = Scratch::new();
    scratch.shell("mkdir full; touch full/file; mkdir empty; echo text > text");
    for (words, code, says) in [
        (
            &[] as &[&str],
            2,
            "tarnfs bench needs a command: mount, tar, scale, compress or index; see tarnfs bench --help",
        ),
        (&["mont"], 2, "mont: there is no such command; did you mean mount? Or see tarnfs bench --help"),
        (&["mount"], 2, "no ARCHIVE is given: tarnfs bench mount [OPTIONS] ARCHIVE...|--make SIZE|--grid"),
        (&["compress"], 2, "no DIR is given: tarnfs bench compress [OPTIONS] DIR|--make SIZE"),
        (&["mount", "text", "--runs=0"], 2, "from 1 to 1000"),
        (&["mount", "text", "--limit=soon"], 2, "such as 90s or 5m"),
        (&["mount", "text", "--out=full"], 2, "is not empty"),
        (&["mount", "text", "--grid"], 2, "--grid"),
        (&["mount", "none"], 3, "none: cannot be opened: No such file"),
        (&["mount", "text", "--program=/bin/false"], 2, "does not say its version"),
        (&["tar", "empty"], 2, "no files"),
        (&["tar", "none"], 1, "none"),
        (&["tar"], 2, "no PATH is given: tarnfs bench tar [OPTIONS] PATH...|--make SIZE"),
        (&["scale", "none"], 3, "none: cannot be opened: No such file"),
        (&["index", "none"], 3, "none: cannot be opened: No such file"),
        (&["index", "text"], 4, "text: is not an archive that tarnfs knows"),
        (&["index", "--entries=1000,0"], 2, "from 1 to 100000000"),
        (&["index", "--entries=1000", "text"], 2, "--entries"),
        (&["sprint"], 2, "sprint"),
    ] {
        // The options that the tests add would be before the command.
        let ran = if words.is_empty() { support::run(&scratch, ["bench"]) } else { bench(&scratch, words) };
        assert!(ran.code == code && ran.err.contains(says), "{words:?}: {} {}", ran.code, ran.err);
        assert!(ran.err.starts_with("tarnfs: ") && ran.err.lines().count() == 1, "{words:?}: {}", ran.err);
    }
    let inner = Ran::from(tarnfs(&scratch).args(["bench", "mount", "--nosuch"]).output().unwrap());
    assert_eq!(inner.err, "tarnfs: --nosuch is not an option of tarnfs bench mount; see tarnfs bench mount --help\n");
}

/// Whoever opens a pipe waits for who writes into it, and no signal ends that.
#[test]
fn a_pipe_is_no_archive() {
    let scratch = Scratch::new();
    scratch.shell("mkfifo pipe");
    for what in ["mount", "scale", "index"] {
        let ran = bench(&scratch, [what, "pipe"]);
        assert!(ran.code == 3 && ran.err.contains("pipe: "), "{what}: {} {}", ran.code, ran.err);
    }
}

/// A part of an archive is not taken for all of it: speeds and sizes would be wrong.
#[test]
fn an_archive_that_is_decoded_in_part_has_no_size() {
    let scratch = Scratch::new();
    scratch.shell("seq 1 3000 > text; tar -czf a.tar.gz text");
    let program = scratch.path("half");
    let whole = Path::new(env!("CARGO_BIN_EXE_tarnfs"));
    let script = format!("#!/bin/sh\ncase $1 in cat) echo part; exit 1;; esac\nexec '{}' \"$@\"\n", whole.display());
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let ran = bench(&scratch, ["scale", "a.tar.gz", "--runs=1", "--program=half"]);
    assert!(ran.code == 1 && ran.err.contains("a.tar.gz: failed"), "{} {}", ran.code, ran.err);
}

/// What tarnfs cannot mount ends with its exit code and its words, and archives that are damaged are not measured.
#[test]
fn an_archive_that_cannot_be_measured_is_called_so() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("seq 100000 > n; tar -cf a.tar n; head -c 300000 a.tar > cut.tar; echo text > text.txt");
    let ran = bench(&scratch, ["mount", "--keep-caches", "text.txt"]);
    let words = (ran.code, ran.err.lines().last().unwrap());
    assert!(words.0 == 4 && words.1.starts_with("tarnfs: text.txt: is not an archive that tarnfs knows"), "{words:?}");
    let ran = bench(&scratch, ["mount", "--keep-caches", "cut.tar"]);
    let words = (ran.code, ran.err.lines().last().unwrap());
    assert!(words.0 == 5 && words.1.starts_with("tarnfs: cut.tar: is damaged, so it is not measured: "), "{words:?}");
}

/// > `bench` drops the caches of the machine only where it says so before, and not with `--keep-caches`.
#[test]
fn caches_of_the_machine_are_kept_where_that_is_asked_for() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir bin; seq 1000 > n; tar -cf a.tar n; echo text > text.txt");
    let empty = scratch.folder("none");
    // No other programs: they have nothing to do with it.
    scratch.shell("for name in find cat xargs md5sum fusermount3; do ln -s \"$(command -v $name)\" bin/ || :; done");
    let path = scratch.path("bin");
    let ran = bench_with(&scratch, ["mount", "--runs=1", "--keep-caches", "a.tar"], path.as_os_str(), &empty).ok();
    let text = ran.text().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("The caches of the system were left as they are (--keep-caches)"), "{text}");
    assert!(!text.contains("were dropped") && !ran.err.contains("dropped"), "{text}{}", ran.err);
}

/// > Mounts are taken away and scratch files removed, also after Ctrl-C.
#[test]
fn an_interrupt_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree bin; seq 1 100 > tree/file; tar -cf a.tar tree");
    // It mounts, and the first program that reads takes for ever.
    let cat = scratch.path("bin/cat");
    fs::write(&cat, "#!/bin/sh\ncase $1 in --version) echo cat 1; exit;; esac\ntouch ../reached; exec sleep 1000\n")
        .unwrap();
    fs::set_permissions(&cat, fs::Permissions::from_mode(0o755)).unwrap();
    let folder = scratch.folder("scratch-files");
    let path = format!("{}:{}", scratch.path("bin").display(), std::env::var("PATH").unwrap());
    let mut command = tarnfs(&scratch);
    command.args(["bench", "mount", "../a.tar", "--out=../out", "--folder"]).arg(&folder).env("PATH", path);
    let child = command.current_dir(&folder).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("cat runs", || scratch.path("reached").exists());
    std::thread::sleep(Duration::from_millis(50));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 130, "{}", ran.err);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    assert!(!scratch.path("out").exists());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(folder.to_str().unwrap()), "{mounts}");
    let left: Vec<_> = fs::read_dir(scratch.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with('.') && name != ".cache"), "{left:?}");
}

#[test]
fn commands_of_a_command_have_help_and_completions() {
    let scratch = Scratch::new();
    let says = |words: &[&str]| Ran::from(tarnfs(&scratch).args(words).output().unwrap()).ok().text();
    let page = says(&["man", "bench"]);
    assert_eq!(says(&["man", "bench", "mount"]), page);
    let wrong = Ran::from(tarnfs(&scratch).args(["man", "bench", "mont"]).output().unwrap());
    assert_eq!(
        (wrong.code, wrong.err.as_str()),
        (2, "tarnfs: mont: there is no such command; see tarnfs bench --help\n")
    );
    let help = says(&["bench", "mount", "--help"]).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("as root, all of them are dropped before each cold run"), "{help}");
    for part in ["\n.SH MOUNT\n", "\n.SH TAR\n", "\n.SH SCALE\n", "\\-\\-grid", "\\-\\-out", "tarnfs bench scale"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert_eq!(page.matches("\n.SH NAME\n").count(), 1);
    // What a comparison starts itself is for nobody else.
    assert!(!page.contains("__") && !says(&["bench", "--help"]).contains("__"), "{page}");
    assert!(
        says(&["bench", "mount", "-h"]).contains("Usage: tarnfs bench mount [OPTIONS] ARCHIVE...|--make SIZE|--grid")
    );
    assert!(says(&["bench", "-h"]).contains("Usage: tarnfs bench COMMAND ..."));
    let offers = |words: &[&str]| says(&[&["__complete", "--", "tarnfs"], words].concat());
    assert!(offers(&["bench", "sc"]).contains("\nscale\t"));
    assert!(offers(&["bench", "mount", "--gr"]).contains("\n--grid\t"));
    assert_eq!(offers(&["bench", "mount", ""]), "files\n");
    assert_eq!(offers(&["bench", "tar", "--out", ""]), "folders\n");
}
