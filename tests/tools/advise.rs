//! `tarnfs advise`: what it says is what `tarnfs create` and `tarnfs convert` then give.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Stdio;

use crate::support::{Scratch, have, is_root, signal, tarnfs, wait_until};
use rustix::process::Signal;
use serde_json::Value;

/// Text that compresses, in many files.
const TREE: &str = r"
    mkdir -p tree/folder/deep; cd tree
    seq 1 200000 > numbers; for n in $(seq 1 300); do seq $n 7 3000 > folder/$n; done
    cp /bin/ls folder/deep/program; ln -s numbers link; ln numbers hard; : > nothing
";

/// What is said, run in the scratch folder.
fn said(scratch: &Scratch, words: &[&str]) -> (i32, String, String) {
    let ran =
        tarnfs(scratch).args(["advise", "--seconds=1"]).args(words).current_dir(scratch.path("")).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (ran.status.code().unwrap(), text(ran.stdout), text(ran.stderr))
}

fn json(scratch: &Scratch, words: &[&str]) -> Value {
    let (code, out, errors) = said(scratch, &[&["--json"], words].concat());
    assert_eq!((code, errors.as_str()), (0, ""), "{words:?}: {out}");
    serde_json::from_str(&out).unwrap()
}

/// Runs a line that was printed, as whoever pastes it into a shell in that folder.
fn paste(scratch: &Scratch, folder: &str, line: &str) {
    assert!(line.starts_with("tarnfs "), "{line}");
    let program = tarnfs(scratch).get_program().to_owned();
    let script = format!("tarnfs() {{ '{}' \"$@\"; }}\ncd {folder}\n{line}\n", program.to_str().unwrap());
    fs::write(scratch.path("line"), script).unwrap();
    scratch.shell("bash -e line; rm line; find . -name '*.sqlite' -delete");
}

fn files(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string());
    let mut names: Vec<_> = names.map(|name| name.unwrap_or_else(|name| name.to_string_lossy().into_owned())).collect();
    names.sort();
    names
}

/// > `advise` says in three lines what to use, and the last one is the command that makes it.
#[test]
fn three_lines_and_the_command_that_makes_what_they_say() {
    let scratch = Scratch::new();
    scratch.shell(TREE);
    for purpose in ["size", "speed", "access", "all"] {
        let (code, out, errors) = said(&scratch, &["--for", purpose, "tree"]);
        let lines: Vec<_> = out.lines().collect();
        assert_eq!((code, errors.as_str(), lines.len()), (0, "", 3), "{out}");
        assert!(
            lines[0].starts_with("Size: ") && lines[0].contains(" Speed: ") && lines[0].contains(" Access: "),
            "{out}"
        );
        assert!(lines[1].starts_with("Over all: ") && lines[1].contains(" all of it"), "{out}");
        let before = files(&scratch.path(""));
        paste(&scratch, ".", lines[2]);
        let new: Vec<_> = files(&scratch.path("")).into_iter().filter(|name| !before.contains(name)).collect();
        let archive = new.iter().find(|name| name.starts_with("tree") && name.contains(".tar")).unwrap();
        // GNU tar does not know lz4 by itself.
        let how = if Path::new(archive).extension().is_some_and(|suffix| suffix == "lz4") { "-I lz4" } else { "" };
        let listed = scratch.shell(&format!("tar {how} -tf {archive} | sort"));
        assert!(listed.contains("tree/folder/deep/program\n") && listed.lines().count() == 308, "{archive}: {listed}");
    }
}

/// > The sizes that `advise` estimates are near to those that are written, and stand on the same sample each time.
#[test]
fn sizes_are_those_that_are_written() {
    let scratch = Scratch::new();
    scratch.shell(TREE);
    let (one, two) = (json(&scratch, &["--seconds=20", "tree"]), json(&scratch, &["tree"]));
    assert_eq!(one["sample"], two["sample"]);
    assert_eq!((&one["bytes"], &one["files"]), (&two["bytes"], &two["files"]));
    assert_eq!(one["sample"]["all"], true);
    let measured = one["measured"].as_array().unwrap();
    // Each compression is there, with more than one level where it has some.
    for (name, levels) in [("none", 1), ("bzip2", 3), ("gzip", 3), ("lz4", 1), ("xz", 2), ("zstd", 4)] {
        let count = measured.iter().filter(|row| row["compression"] == name).count();
        assert!(count >= levels, "{name}: {one:#}");
    }
    for row in measured {
        let (name, level) = (row["compression"].as_str().unwrap(), row["level"].as_i64().unwrap());
        scratch.shell("rm -f x.tar");
        let level = format!("--level={level}");
        let made = tarnfs(&scratch)
            .args(["create", "--no-index", "--compress", name, &level, "x.tar", "tree"])
            .current_dir(scratch.path(""))
            .status();
        assert!(made.unwrap().success(), "{name} {level}");
        let (told, real) = (row["size"].as_f64().unwrap(), fs::metadata(scratch.path("x.tar")).unwrap().len() as f64);
        // A machine that is busy has no time to try all of them; those are guessed from others.
        let is_near = row["estimated"] == true || (told / real - 1.0).abs() < 0.25;
        assert!(is_near, "{name} {level}: {told}, and it has {real}");
        for key in ["ratio", "compress_rate", "seconds", "file_seconds", "threads", "sample"] {
            assert!(row[key].as_f64().unwrap() > 0.0, "{key}: {row}");
        }
    }
}

/// > Of what is large, `advise` tries pieces from all over it.
#[test]
fn a_large_folder_is_tried_in_pieces() {
    let scratch = Scratch::new();
    // Text in the first half, and in the other one what cannot be compressed.
    scratch.shell(
        "mkdir tree; seq 1 9000000 > tree/a; truncate -s 60000000 tree/a; head -c 60000000 /dev/urandom > tree/b",
    );
    let told = json(&scratch, &["--seconds=10", "tree"]);
    let sample = &told["sample"];
    assert_eq!((&sample["all"], &sample["cut"]), (&false.into(), &false.into()));
    // Fewer on a machine that is busy; those that come first are from all over it.
    assert!((2..=12).contains(&sample["pieces"].as_u64().unwrap()), "{sample}");
    assert!(sample["bytes"].as_u64().unwrap() < 60_000_000 && told["bytes"].as_u64().unwrap() > 120_000_000);
    let zstd = told["measured"].as_array().unwrap().iter().find(|row| row["compression"] == "zstd").unwrap();
    let ratio = zstd["ratio"].as_f64().unwrap();
    assert!((0.5..0.75).contains(&ratio), "{ratio}");
    let table = said(&scratch, &["-v", "--seconds=5", "tree"]).1;
    for word in ["compression", "bzip2", "xz", "zstd", "estimated from ", " MB of it", "tarnfs create"] {
        assert!(table.contains(word), "{word}: {table}");
    }
    let rows = table.lines().filter(|line| line.contains(" MB/s "));
    assert!(rows.count() > 3, "{table}");
}

/// > `advise` says of what cannot be made smaller that it is so.
#[test]
fn noise_is_better_left_as_it_is() {
    let scratch = Scratch::new();
    scratch.shell("mkdir noise; head -c 3000000 /dev/urandom > noise/x; tar -cf noise.tar noise");
    let (code, out, _) = said(&scratch, &["noise"]);
    assert_eq!(code, 0);
    assert!(out.contains("It can hardly be made smaller"), "{out}");
    let line = out.lines().last().unwrap();
    assert_eq!(line, "tarnfs create noise-2.tar noise");
    paste(&scratch, ".", line);
    scratch.shell("tar -df noise-2.tar");
    let out = said(&scratch, &["noise.tar"]).1;
    assert_eq!(out.lines().last(), Some("# noise.tar is best left as it is"));
}

/// > The commands of `advise` can be pasted into a shell, whatever names there are.
#[test]
fn names_are_quoted() {
    let scratch = Scratch::new();
    scratch.shell(TREE);
    scratch.shell(
        r#"mkdir -p odd; cd odd
        for name in 'two words' \'quote\' -dash '$HOME' $'new\nline' $'\xff' '.hidden' '=equal'; do
            cp -r ../tree/folder/deep "./$name"; tar -czf "./$name.tgz" -C ../tree folder/deep
        done"#,
    );
    for entry in fs::read_dir(scratch.path("odd")).unwrap() {
        let name = entry.unwrap().file_name();
        let ran = tarnfs(&scratch)
            .args(["advise", "--seconds=1", "--"])
            .arg(&name)
            .current_dir(scratch.path("odd"))
            .output()
            .unwrap();
        let out = String::from_utf8(ran.stdout).unwrap();
        assert_eq!(out.lines().count(), 3, "{name:?}: {out}");
        let before = files(&scratch.path("odd"));
        paste(&scratch, "odd", out.lines().last().unwrap());
        let new: Vec<_> = files(&scratch.path("odd")).into_iter().filter(|name| !before.contains(name)).collect();
        let is_there = new.iter().any(|name| name.contains(".tar"));
        assert!(is_there, "{name:?}: {out}: {new:?}");
    }
    // Where a folder is not called by its name, or by a symbolic link.
    scratch.shell("ln -s tree/folder alias; mkdir elsewhere");
    for path in ["tree/folder/.", "alias", "tree/folder/deep/.."] {
        let out = said(&scratch, &["--for", "size", path]).1;
        paste(&scratch, ".", out.lines().last().unwrap());
        let listed = scratch.shell("for made in folder*.tar*; do tar -tf $made; rm $made; done");
        assert!(listed.contains("folder/deep/program"), "{path}: {listed}");
    }
}

/// > `advise` takes every archive that can be mounted.
#[test]
fn every_archive_is_converted_by_the_command_that_is_said() {
    let scratch = Scratch::new();
    scratch.shell(TREE);
    scratch.shell(
        "mkdir all; tar -cf all/a.tar tree; for pack in gzip bzip2 xz zstd lz4; do $pack -qk all/a.tar || :; done; \
         (cd tree; find . | cpio -oH newc --quiet > ../all/b.cpio); ar rc all/c.ar tree/numbers tree/folder/1; \
         gzip -kc tree/numbers > all/numbers.gz",
    );
    for (program, script) in [
        ("zip", "zip -qr all/d.zip tree"),
        ("7z", "7z a -bd all/e.7z tree > /dev/null"),
        ("mksquashfs", "mksquashfs tree all/f.squashfs -quiet -no-progress"),
    ] {
        if have(program) {
            scratch.shell(script);
        } else {
            println!("left out: {program} is not there");
        }
    }
    let names = files(&scratch.path("all"));
    assert!(names.len() >= 8, "{names:?}");
    for name in names {
        let archive = format!("all/{name}");
        let (code, out, errors) = said(&scratch, &[&archive]);
        assert_eq!(code, 0, "{name}: {out}{errors}");
        assert!(out.lines().nth(1).unwrap().contains(" which are "), "{name}: {out}");
        let line = out.lines().last().unwrap();
        paste(&scratch, ".", line);
        let new = line.rsplit(' ').next().unwrap();
        let list = |archive: &str| {
            let ran = tarnfs(&scratch).args(["ls", "-R", archive]).current_dir(scratch.path("")).output().unwrap();
            assert!(ran.status.success(), "{archive}: {ran:?}");
            String::from_utf8(ran.stdout).unwrap()
        };
        assert!(list(&archive) == list(new) || name == "numbers.gz", "{name}: {line}");
        fs::remove_file(scratch.path(new)).unwrap();
    }
    // What archives in it hold is put in, too, and the command says so.
    scratch.shell("tar -cf outer.tar all/a.tar.gz");
    let line = said(&scratch, &["-r", "outer.tar"]).1.lines().last().unwrap().to_owned();
    assert!(line.starts_with("tarnfs convert -r "), "{line}");
    paste(&scratch, ".", &line);
    assert!(scratch.shell("tar -tf outer.tar.*").contains("a.tar.gz/tree/numbers"));
}

/// What cannot be read is not taken for zeros, which are compressed very well.
#[test]
fn there_is_no_advice_for_what_cannot_be_read() {
    if !have("zip") {
        return println!("left out: zip is not there");
    }
    let scratch = Scratch::new();
    scratch.shell("seq 100000 > a; seq 300 > b; : > c; zip -qP secret e.zip a c; cp e.zip f.zip; zip -q g.zip a; zip -qP secret g.zip b");
    let (code, out, errors) = said(&scratch, &["e.zip"]);
    assert!(code == 3 && out.is_empty() && errors.contains("so there is no advice"), "{code}: {out}{errors}");
    let (code, _, errors) = said(&scratch, &["--password", "secret", "f.zip"]);
    assert!(code == 0 && errors.contains("f.zip: encryption cannot be kept there: one file"), "{errors}");
    // What is left is most of it.
    let (code, out, errors) = said(&scratch, &["g.zip"]);
    assert!(
        code == 0 && out.lines().count() == 3 && errors.contains("one file, folder or part"),
        "{code}: {out}{errors}"
    );
}

/// How many levels are tried is a matter of time: who gets the advice learns that there are others.
#[test]
fn what_was_not_tried_is_told() {
    let scratch = Scratch::new();
    scratch.shell(TREE);
    let (code, out, errors) = said(&scratch, &["-v", "tree"]);
    assert_eq!(code, 0, "{errors}");
    let left_out = out.lines().filter(|line| line.contains(": left out: ")).count();
    let line = out.lines().rfind(|line| line.starts_with("Over all: ")).unwrap();
    match left_out {
        0 => assert!(!line.contains("not tried"), "{line}"),
        1 => assert!(line.contains("; 1 level was not tried"), "{line}"),
        more => assert!(line.contains(&format!("; {more} levels were not tried")), "{line}"),
    }
}

/// > `advise` opens nothing but files, and tells what it cannot read.
#[test]
fn odd_folders_are_looked_at() {
    let scratch = Scratch::new();
    scratch.shell("mkdir empty odd; printf x > odd/tiny; mkfifo odd/pipe; ln -s nowhere odd/broken");
    let (code, out, errors) = said(&scratch, &["empty"]);
    assert_eq!((code, errors.as_str(), out.lines().count()), (0, "", 3), "{out}");
    paste(&scratch, ".", out.lines().last().unwrap());
    if is_root() {
        scratch.shell("mknod odd/tape c 9 200; mknod odd/disk b 7 300000");
    }
    let (code, out, errors) = said(&scratch, &["odd"]);
    assert_eq!((code, errors.as_str(), out.lines().count()), (0, "", 3), "{out}");
    if is_root() {
        scratch.shell("seq 1 9999 > odd/secret; chmod 600 odd/secret; mkdir -m 700 odd/closed; chmod 777 .");
        let ran = tarnfs(&scratch)
            .args(["advise", "--seconds=1", "odd"])
            .current_dir(scratch.path(""))
            .uid(65_534)
            .gid(65_534)
            .output();
        let Ok(ran) = ran else { return println!("left out: the program lies where nobody else may run it") };
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(said.contains("2 files, folders or parts cannot be read"), "{said}");
        // Most of it.
        assert!(ran.status.code() == Some(3) && said.contains("there is no advice"), "{said}");
    }
    for (path, code) in [("absent", 3), ("odd/tiny", 4), ("-", 2)] {
        assert_eq!(said(&scratch, &[path]).0, code, "{path}");
    }
}

/// > Ctrl-C ends `advise` at once.
#[test]
fn it_can_be_interrupted() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; head -c 60000000 /dev/urandom > tree/x");
    let mut command = tarnfs(&scratch);
    command
        .args(["advise", "--seconds=600", "tree"])
        .current_dir(scratch.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    // Once it waits for signals. Without one it would go on for ten minutes.
    let status = format!("/proc/{}/status", child.id());
    wait_until("it waits for SIGINT", || {
        let status = fs::read_to_string(&status).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        caught.is_some_and(|mask| mask & 1 << (Signal::INT.as_raw() - 1) != 0)
    });
    signal(&child, Signal::INT);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    assert!(ended.stdout.is_empty());
}

/// > The command reads the archive as `advise` has read it.
#[test]
fn the_command_has_the_options_of_reading() {
    let scratch = Scratch::new();
    scratch.shell("mkdir d; seq 100000 > d/f; seq 100000 | gzip > d/g.gz; tar -cf a.tar d");
    let words = [
        "-r",
        "-i",
        "-s",
        "-e",
        "latin1",
        "--detect-gnu-incremental",
        "--recursive-extensions=.gz,.tar",
        "--use-backend=tarfile",
        "--transform",
        "^/",
        "/zz y/",
        "--transform-recursive-mount-point",
        "g$",
        "",
        "--password=none",
        "a.tar",
    ];
    let (code, out, errors) = said(&scratch, &words);
    let line = out.lines().last().unwrap().to_owned();
    assert!(code == 0 && errors.contains("without the password") && !line.contains("none"), "{line} {errors}");
    // Of an image that is of two formats it says which.
    assert!(line.contains("--use-backend=tarfile"), "{line}");
    let before = files(&scratch.path(""));
    paste(&scratch, ".", &line);
    let new: Vec<_> = files(&scratch.path("")).into_iter().filter(|name| !before.contains(name)).collect();
    let find = |words: &[&str]| {
        let ran = tarnfs(&scratch).arg("find").args(words).current_dir(scratch.path("")).output().unwrap();
        String::from_utf8(ran.stdout).unwrap()
    };
    let read = find(&[&words[..words.len() - 2], &["a.tar"]].concat());
    assert!(read.contains("zz y/d/f\n"), "{read}");
    assert_eq!(find(&[new[0].as_str()]), read, "{line}");
}
