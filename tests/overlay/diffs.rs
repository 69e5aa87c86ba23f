//! `tarnfs overlay diff`: what git makes of it is what is in the mount.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::support::{Mounted, Numbers, Scratch, can_mount, run};

/// Applies the difference to what is in the archive, and compares what git keeps: no empty folders, no permissions but
/// that to run a file.
#[track_caller]
fn applies(scratch: &Scratch, archive: &str, mounted: &Mounted, log: &[String]) -> String {
    let [overlay, old] = ["overlay", archive].map(|name| scratch.path(name).display().to_string());
    let patch = run(scratch, ["overlay", "diff", &overlay, &old]).ok().text();
    fs::write(scratch.path("patch"), &patch).unwrap();
    let said = scratch.shell(&format!(
        "rm -rf out; mkdir out; tar -C out -xpf {archive}; cd out
        export GIT_CEILING_DIRECTORIES=\"$(dirname \"$PWD\")\"
        test ! -s ../patch || git apply --whitespace=nowarn ../patch 2>&1 || echo refused"
    ));
    assert!(!said.contains("refused"), "{said}\n{log:#?}\n{patch}");
    let of = |at: &Path| {
        scratch.shell(&format!(
            "cd {}; find . -type f -exec md5sum {{}} + | sort; find . -type f -perm -100 | sort
            find . -type l -printf '%p %l\\n' | sort",
            at.display()
        ))
    };
    assert_eq!(of(&scratch.path("out")), of(&mounted.at), "{log:#?}\n{patch}");
    patch
}

/// > Of a folder that was renamed, `tarnfs overlay diff` shows each file in it as renamed.
#[test]
fn what_has_another_name_is_renamed_file_by_file() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "umask 022; mkdir tree; cd tree; for i in a b c h s t u; do seq 20 > $i; echo $i >> $i; done
        mkdir -p d/in e p/q; for i in d/f d/g d/in/y e/x e/y p/q/r; do seq 5 > $i; echo $i >> $i; done
        head -c 3000 /dev/zero > d/binary; ln -s f d/link; ln -s a link; : > d/empty; tar -cf ../a.tar .",
    );
    let overlay = scratch.path("overlay").display().to_string();
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-w", &overlay]);
    let change = |script: &str| {
        let script = format!("cd {}; umask 022; {script}", mounted.at.display());
        scratch.shell(&script);
    };
    // Over something else, to where that was, and a folder in which something was changed, removed and made.
    change(
        "mv a b; mv c a; mv d moved; echo more >> moved/f; rm moved/g; chmod 755 moved/in/y; mkdir d; echo other > d/g
        echo one > d/link; rm -r e; mv moved e; mv e/in e/inner; rm e/inner/y; mv u e/inner/y",
    );
    // A folder where a link was, a further name, two that change places, and what git does not keep.
    change(
        "mv link l2; mkdir link; mv p/q/r link/r; ln h further; echo more >> h; mv s swap; mv t s; mv swap t
        echo more >> t; mv p z; chmod 700 z; mkfifo z/fifo; echo z > z/z",
    );
    let patch = applies(&scratch, "a.tar", &mounted, &[]);
    for expected in [
        "diff --git a/d/binary b/e/binary\nrename from d/binary\nrename to e/binary\n",
        "rename from d/f\nrename to e/f\n--- a/d/f\n+++ b/e/f\n@@ ",
        "deleted file mode 100644\n--- a/d/g\n",
        "copy from h\ncopy to further\n",
        "rename from p/q/r\nrename to link/r\n",
    ] {
        assert!(patch.contains(expected), "{expected}:\n{patch}");
    }
    assert!(!patch.contains("fifo") && !patch.contains("40700"), "{patch}");
    let only = |path: &str| {
        let archive = scratch.path("a.tar").display().to_string();
        let patch = run(&scratch, ["overlay", "diff", &overlay, &archive, path]).ok().text();
        let mut lines: Vec<_> = patch.lines().filter(|line| line.starts_with("diff")).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    // By either path.
    assert_eq!(only("e/binary"), ["diff --git a/d/binary b/e/binary"]);
    assert_eq!(only("/d/in/"), ["diff --git a/d/in/y b/d/in/y"]);
    assert_eq!(only("l2"), ["diff --git a/link b/l2"]);
    mounted.unmount();
}

/// The same of one that has several names in the archive, and takes the place of another file. It comes in the listing
/// before that, or behind it.
#[test]
fn a_written_file_with_several_names_that_replaces_another_one_is_renamed() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "umask 022; mkdir tree; cd tree; for i in a b m z; do seq 9 > $i; echo $i >> $i; done; ln a c; ln z y
        tar -cf ../a.tar a c b m z y",
    );
    let overlay = scratch.path("overlay").display().to_string();
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-w", &overlay]);
    // The further names go, as git knows nothing of them.
    let at = mounted.at.display();
    scratch.shell(&format!("cd {at}; echo x >> z; mv z b; rm y; echo x >> a; mv a m; rm c"));
    let patch = applies(&scratch, "a.tar", &mounted, &[]);
    for expected in ["rename from z\nrename to b\n", "rename from a\nrename to m\n"] {
        assert!(patch.contains(expected), "{expected}:\n{patch}");
    }
    assert!(!patch.contains("diff --git a/z b/z") && !patch.contains("diff --git a/a b/a"), "{patch}");
    mounted.unmount();
}

/// Something below a folder, and the folder itself.
fn all(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut next = 0;
    while next < found.len() {
        if found[next].symlink_metadata().is_ok_and(|found| found.is_dir()) {
            let mut inner: Vec<_> = found[next].read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
            inner.sort();
            found.extend(inner);
        }
        next += 1;
    }
    found
}

/// Some change of something below `root`, and what it was. That it cannot be is as good.
fn change(root: &Path, numbers: &mut Numbers) -> String {
    let every = all(root);
    let is_folder = |path: &&PathBuf| path.symlink_metadata().unwrap().is_dir();
    let is_file = |path: &&PathBuf| path.symlink_metadata().unwrap().is_file();
    let folders: Vec<_> = every.iter().filter(is_folder).collect();
    let files: Vec<_> = every.iter().filter(is_file).collect();
    let name = ["a", "b", "c", "d", "e"][numbers.below(5) as usize];
    let to = folders[numbers.below(folders.len() as u64) as usize].join(name);
    let any = &every[numbers.below(every.len() as u64) as usize];
    let what = numbers.below(11);
    let file = if files.is_empty() { &to } else { files[numbers.below(files.len() as u64) as usize] };
    let append = |path: &Path| {
        OpenOptions::new().append(true).open(path).and_then(|mut file| writeln!(file, "more {}", path.display()))
    };
    let is_inner = any != root;
    let done = match what {
        0 => append(file),
        1 => fs::write(&to, format!("new\n{what}\n")),
        2 => fs::remove_file(file),
        3..=5 if is_inner => fs::rename(any, &to),
        6 => append(file).and_then(|()| fs::rename(file, &to)),
        7 => fs::set_permissions(file, Permissions::from_mode(0o755)),
        8 => symlink("target", &to),
        9 => fs::create_dir(&to),
        10 if is_inner && any.is_dir() && !any.is_symlink() => fs::remove_dir_all(any),
        _ => Ok(()),
    };
    format!("{what}: {}, {} -> {}: {:?}", file.display(), any.display(), to.display(), done.is_ok())
}

/// > `tarnfs overlay diff DIR ARCHIVE` shows what was changed in text files as `git diff` does: applied to what is in
/// > the archive, it makes of them what is in the mount.
#[test]
fn git_makes_of_the_archive_what_is_in_the_mount() {
    if !can_mount() {
        return;
    }
    for seed in 1..=4 {
        let scratch = Scratch::new();
        scratch.shell(
            "umask 022; mkdir tree; cd tree; mkdir -p a/b/c a/d c/a d; for i in b e a/a a/b/a a/b/c/d a/b/c/e a/d/a \
             c/b c/a/a d/e; do seq 9 > $i; echo $i >> $i; done; ln -s b c/c; ln -s e a/b/d; tar -cf ../a.tar .",
        );
        let overlay = scratch.path("overlay").display().to_string();
        let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-w", &overlay]);
        let mut numbers = Numbers::new(seed);
        let mut log = vec![format!("seed {seed}")];
        for _ in 0..3 {
            log.extend((0..5).map(|_| change(&mounted.at, &mut numbers)));
            applies(&scratch, "a.tar", &mounted, &log);
        }
        mounted.unmount();
    }
}

/// > The database of an overlay is not trusted: a place in it leads to contents alone.
#[test]
fn what_is_no_content_of_the_overlay_is_not_shown() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; echo a > tree/a; echo b > tree/b; tar -C tree -cf a.tar .; echo SECRET > secret");
    let [overlay, archive] = ["overlay", "a.tar"].map(|name| scratch.path(name).display().to_string());
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-w", &overlay]);
    scratch.shell(&format!("cd {}; echo more >> a; echo more >> b", mounted.at.display()));
    mounted.unmount();
    let refused = |why: &str| {
        let diff = run(&scratch, ["overlay", "diff", &overlay, &archive, "a"]);
        assert!(diff.code != 0 && !diff.text().contains("SECRET"), "{}{}", diff.text(), diff.err);
        assert!(diff.err.contains(why), "{}", diff.err);
        let json = run(&scratch, ["overlay", "status", "--json", &overlay]).ok().text();
        let lines: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let contents: Vec<_> = lines.iter().map(|line| (line["path"].as_str(), line["content"].is_string())).collect();
        assert_eq!(contents, [(Some("a"), false), (Some("b"), true)]);
        run(&scratch, ["overlay", "diff", &overlay, &archive, "b"]).ok();
    };
    // A link, and a pipe, for which nobody waits.
    scratch.shell("cd overlay; rm a; ln -s ../secret a");
    refused("should be at a in");
    scratch.shell("cd overlay; rm a; mkfifo a");
    refused("is no file");
    scratch.shell("cd overlay; rm a");
    let place = |place: &str| {
        let database = rusqlite::Connection::open(scratch.path("overlay/.tarnfs-overlay.sqlite")).unwrap();
        let changed =
            database.execute("UPDATE nodes SET place = ? WHERE lower = CAST('a' AS BLOB)", [place.as_bytes()]);
        assert_eq!(changed.unwrap(), 1);
    };
    for at in [&*scratch.path("secret").display().to_string(), "../secret", "./b", ".tarnfs-overlay.sqlite"] {
        place(at);
        refused("no content can lie there");
    }
}
