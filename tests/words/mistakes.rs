//! What people type by mistake, and what they expect from habit: nothing is made or replaced that nobody meant, and the
//! message says what to do.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::process::{Command, Stdio};

use crate::support::{self, Ran, Scratch, can_mount, run, tarnfs};

/// Exit code and what was said, of a command line that is typed in the scratch folder.
fn says(scratch: &Scratch, words: &[&str]) -> (i32, String) {
    let ran = Ran::from(tarnfs(scratch).args(words).current_dir(scratch.path("")).output().unwrap());
    (ran.code, ran.err)
}

/// What is in the scratch folder.
fn names(scratch: &Scratch) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(scratch.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_mistyped_option_or_command_is_called_by_its_name() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -czf a.tar.gz one; rm one");
    let standard_input = "tarnfs: -: an archive on standard input can only be read by `tarnfs ls -`, `tarnfs find -`, \
                          `tarnfs cat -`, `tarnfs stat -`, `tarnfs compare -` and `tarnfs extract -`; a file of that name is ./-\n";
    for (words, said) in [
        (&["-gx", "a.tar.gz"][..], "tarnfs: -g is not an option of tarnfs; see tarnfs --help\n"),
        (&["--nosuch", "a.tar.gz"], "tarnfs: --nosuch is not an option of tarnfs; see tarnfs --help\n"),
        (
            &["mont", "a.tar.gz"],
            "tarnfs: mont is no command, and there is no file of that name; did you mean `tarnfs mount`?\n",
        ),
        (
            &["chek", "m"],
            "tarnfs: chek is no command, and there is no file of that name; did you mean `tarnfs check`?\n",
        ),
        (&["monts"], "tarnfs: monts is no command, and there is no file of that name; did you mean `tarnfs mounts`?\n"),
        (
            &["-d", "1", "lst", "a.tar.gz"],
            "tarnfs: lst is no command, and there is no file of that name; did you mean `tarnfs ls`?\n",
        ),
        (&["-", "m"], standard_input),
        (&["a.tar.gz", "-", "m"], standard_input),
        (&["--no-mount", "-"], standard_input),
        (&["index", "-"], standard_input),
        (&["check", "-"], standard_input),
    ] {
        assert_eq!(says(&scratch, words), (2, said.to_owned()), "{words:?}");
    }
    assert_eq!(names(&scratch), ["a.tar.gz"]);
    // A value may stand right behind `-gs`.
    for spacing in ["-gs4", "-gs.5", "-gs=4", "-gs0"] {
        assert_eq!(says(&scratch, &["ls", spacing, "a.tar.gz"]), (0, String::new()), "{spacing}");
    }
    let (code, said) = says(&scratch, &["ls", "-gs.1", "a.tar.gz"]);
    let refused = "tarnfs: --gzip-seek-point-spacing 0.1: give MiB between 0.125 and 1048576\n";
    assert_eq!((code, said.as_str()), (2, refused));
    // Files of such names are archives as any others.
    scratch.shell("mkdir odd; cp a.tar.gz odd/mont; cp a.tar.gz odd/-");
    let odd = |words: &[&str]| {
        Ran::from(tarnfs(&scratch).args(words).current_dir(scratch.path("odd")).output().unwrap()).ok()
    };
    odd(&["--no-mount", "mont"]);
    odd(&["--no-mount", "./-"]);
}

#[test]
fn a_mistyped_archive_is_not_made_a_folder() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -cf a.tar one; rm one; cp a.tar b.tar");
    let how = |name: &str| format!("To mount there, write {name}/, or make that folder first\n");
    for name in ["new.tarr", "new.tar", "new.tar.gzz", "new.TGZ", "./new.zg", "new.zip"] {
        let said = format!("tarnfs: {name} does not exist. {}", how(name));
        assert_eq!(says(&scratch, &["a.tar", name]), (3, said), "{name}");
    }
    for name in ["b.tarr", "b.tr", "b.rar", "./bb.tar"] {
        let meant = name.replace(name.trim_start_matches("./"), "b.tar");
        let said = format!("tarnfs: {name} does not exist; did you mean {meant}? {}", how(name));
        assert_eq!(says(&scratch, &["a.tar", name]), (3, said), "{name}");
    }
    assert_eq!(names(&scratch), ["a.tar", "b.tar"]);
    if !can_mount() {
        return;
    }
    // What is meant is mounted on, whatever it is called.
    scratch.shell("mkdir there.tar");
    for at in ["c.tarr/", "there.tar", "b.d", "b.tarred", "2024.01"] {
        assert_eq!(says(&scratch, &["a.tar", at]), (0, String::new()), "{at}");
        assert_eq!(fs::read(scratch.path(at).join("one")).unwrap(), b"one\n");
        assert_eq!(says(&scratch, &["-u", at]), (0, String::new()), "{at}");
    }
}

#[test]
fn an_expression_that_changes_nothing_is_told() {
    let scratch = Scratch::new();
    scratch.shell("mkdir -p home/me; echo one > home/me/one; tar -cf a.tar home; gzip -k a.tar");
    for archive in ["a.tar", "a.tar.gz"] {
        let idle = format!(
            "tarnfs: warning: {archive}: --transform has changed no path; it gets them with a slash before them: /home/me\n"
        );
        assert_eq!(says(&scratch, &["ls", "--transform", "^home", "x", archive]), (0, idle));
        assert_eq!(says(&scratch, &["ls", "--transform", "^/home", "x", archive]), (0, String::new()));
        // Of an option that is repeated, the last one counts.
        let repeated = ["ls", "--transform", "^/home", "x", "--transform", "^/home", "y", archive];
        let listed = support::tarnfs(&scratch).args(repeated).current_dir(scratch.path("")).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&listed.stdout), "y\n");
    }
}

/// What a person at a terminal is told of a mount, and of its end.
#[test]
fn a_terminal_is_told_what_is_hidden_and_in_use() {
    if !can_mount() || !support::have("script") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree at; echo hello > tree/file; tar -C tree -cf a.tar .; touch at/1 at/2");
    let tarnfs = env!("CARGO_BIN_EXE_tarnfs");
    let on_terminal = |command: &str| {
        let mut script = Command::new("script");
        script.args(["-qec", command, "/dev/null"]).env("NO_COLOR", "1").env("XDG_CACHE_HOME", scratch.path("cache"));
        let output = script.current_dir(scratch.path("")).stdin(Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).replace('\r', "")
    };
    let until = "hidden until it is unmounted";
    let said = on_terminal(&format!("{tarnfs} a.tar at"));
    assert_eq!(said, format!("tarnfs: mounted at at; the 2 entries that are there are {until}\n"));
    support::run(&scratch, ["-u".as_ref(), scratch.path("at").as_os_str()]).ok();
    scratch.shell("rm at/*");
    assert_eq!(on_terminal(&format!("{tarnfs} a.tar at")), "tarnfs: mounted at at\n");
    support::run(&scratch, ["-u".as_ref(), scratch.path("at").as_os_str()]).ok();
    // A file is open when it is to end.
    let said = on_terminal(&format!(
        "{tarnfs} -f a.tar at & until test -e at/file; do sleep 0.1; done; exec 3< at/file; kill -TERM $!; wait $!"
    ));
    let last = "tarnfs: files are in use: it ends in 5 s, or at once with Ctrl-C once more\n";
    assert!(said.ends_with(last), "{said}");
}

#[test]
fn a_mount_of_several_archives_is_known_by_each() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -cf a.tar one; cp a.tar 'b c.tar'; cp a.tar d:e.tar");
    let path = |name: &str| scratch.path(name).display().to_string();
    for unmounted in [&["b c.tar"][..], &["d:e.tar"], &["a.tar", "m", "b c.tar"]] {
        assert_eq!(says(&scratch, &["a.tar", "b c.tar", "d:e.tar", "m"]), (0, String::new()));
        let line = format!("{}, {}, {} on {}", path("a.tar"), path("b c.tar"), path("d:e.tar"), path("m"));
        let listed = support::run(&scratch, ["mounts"]).ok().text();
        assert!(listed.lines().any(|listed| listed.split(" since ").next() == Some(&line)), "{listed}");
        let again = format!(
            "tarnfs: {}, {}, {} is already mounted at {m}; run `tarnfs -u {m}` first, or mount over it with -o nonempty\n",
            path("a.tar"),
            path("b c.tar"),
            path("d:e.tar"),
            m = path("m")
        );
        assert_eq!(says(&scratch, &["a.tar", "m"]), (6, again));
        let words: Vec<_> = ["-u"].iter().chain(unmounted).copied().collect();
        assert_eq!(says(&scratch, &words), (0, String::new()), "{unmounted:?}");
        assert!(!support::is_mounted(&scratch.path("m")), "{unmounted:?}");
    }
}

/// What is named by a path with links in it is what the kernel finds there.
#[test]
fn a_mount_is_named_by_any_way_that_leads_to_it() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir -p real/project sub x; echo one > one; tar -cf a.tar one; cp a.tar b.tar; ln -s real link");
    scratch.shell("ln -s real/project straight; ln -s link/project chain; cp a.tar $'c\\xff.tar'");
    let nothing = (0, String::new());
    let [x, project] = ["x", "real/project"].map(|name| scratch.path(name));
    for place in ["link/project", "straight", "chain"] {
        assert_eq!(says(&scratch, &[place, "x"]), nothing);
        assert_eq!(says(&scratch, &["a.tar", place]), nothing);
        assert_eq!(says(&scratch, &["-u", place]), nothing, "{place}");
        assert!(support::is_mounted(&x) && !support::is_mounted(&project), "{place}");
        assert_eq!(says(&scratch, &["-u", place]), nothing, "{place}: now it is the folder");
        assert!(!support::is_mounted(&x), "{place}");
    }
    for (mounted, named) in
        [("sub/../a.tar", "a.tar"), ("a.tar", "sub/../a.tar"), ("link/../b.tar", "b.tar"), ("a.tar", "link/../a.tar")]
    {
        assert_eq!(says(&scratch, &[mounted, "x"]), nothing);
        assert_eq!(says(&scratch, &["-u", named]), nothing, "{mounted} {named}");
        assert!(!support::is_mounted(&x), "{mounted} {named}");
    }
    let program = env!("CARGO_BIN_EXE_tarnfs");
    let listed = scratch.shell(&format!(
        "export XDG_CACHE_HOME=$PWD/cache; {program} $'c\\xff.tar' x; {program} mounts --json; {program} -u $'c\\xff.tar'"
    ));
    assert!(listed.contains("\"path_bytes\""), "{listed}");
    assert!(!support::is_mounted(&x));
    // As umount(8) does, where the mount has been given a name of its own.
    let name = format!("name-of-{}", std::process::id());
    assert_eq!(says(&scratch, &["-o", &format!("fsname={name}"), "a.tar", "x"]), nothing);
    assert_eq!(says(&scratch, &["-u", &name]), nothing);
    assert!(!support::is_mounted(&x));
}

#[test]
fn a_mistyped_folder_for_indexes_is_not_made() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -cf a.tar one; rm one; mkdir there");
    let path = |name: &str| scratch.path(name).display().to_string();
    let why = |folder: &str, missing: &str| {
        format!("cannot make index folder {}: {} does not exist", path(folder), path(missing))
    };
    let no_index = |folder| format!("tarnfs: warning: a.tar: no index is kept: {}\n", why(folder, "b"));
    let no_file = format!("tarnfs: --index-file b/c/i: {} does not exist; make that folder first\n", "b");
    for (words, code, said) in [
        // What is asked for works without an index.
        (&["ls", "--index-folders", "b/c", "a.tar"][..], 0, no_index("b/c")),
        (&["ls", "--index-folders", "b/c/d", "a.tar"], 0, no_index("b/c/d")),
        (&["index", "--index-folders", "b/c", "a.tar"], 7, format!("tarnfs: a.tar: {}\n", why("b/c", "b"))),
        (&["ls", "--index-folders", "b/c,there", "a.tar"], 0, format!("tarnfs: warning: a.tar: {}\n", why("b/c", "b"))),
        (&["ls", "--index-file", "b/c/i", "a.tar"], 7, no_file.clone()),
        (&["index", "--index-file", "b/c/i", "a.tar"], 7, no_file.clone()),
        (&["--no-mount", "--index-file", "b/c/i", "a.tar"], 7, no_file.clone()),
        (
            &["index", "--format", "ratarmount", "--index-folders", "b/c", "a.tar"],
            7,
            format!(
                "tarnfs: a.tar: writing {}: {}\n",
                path(&format!("b/c/{}.index.sqlite", path("a.tar").replace('/', "_"))),
                why("b/c", "b")
            ),
        ),
    ] {
        assert_eq!(says(&scratch, words), (code, said), "{words:?}");
    }
    assert_eq!(names(&scratch), ["a.tar", "there"]);
    // One folder is made, and so is all that the user's own folder for caches lies in.
    assert_eq!(says(&scratch, &["ls", "--index-folders", "b", "a.tar"]), (0, String::new()));
    assert_eq!(fs::read_dir(scratch.path("b")).unwrap().count(), 1);
    let in_caches = |folder: &str, caches: &str| {
        let mut command = tarnfs(&scratch);
        command.args(["index", "--index-folders", folder, "a.tar"]).env("XDG_CACHE_HOME", scratch.path(caches));
        Ran::from(command.current_dir(scratch.path("")).output().unwrap()).ok();
        assert_eq!(fs::read_dir(scratch.path(folder)).unwrap().count(), 1, "{folder}");
    };
    in_caches("home/.cache/tarnfs", "home/.cache");
    in_caches("other/.cache/mine", "other/.cache");
}

#[test]
fn who_names_a_folder_for_indexes_finds_them_there() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -czf a.tar.gz one; rm one; mkdir there");
    let there = || fs::read_dir(scratch.path("there")).unwrap().count();
    for (words, indexes) in [
        (&["ls", "a.tar.gz"][..], 0),
        (&["ls", "--index-folders", "there", "--index-minimum-file-count", "5", "a.tar.gz"], 0),
        (&["ls", "--index-folders", "there", "a.tar.gz"], 1),
    ] {
        assert_eq!(says(&scratch, words), (0, String::new()), "{words:?}");
        assert_eq!(there(), indexes, "{words:?}");
    }
    assert_eq!(says(&scratch, &["ls", "--index-folders", ",there", "a.tar.gz"]), (0, String::new()));
    assert_eq!(names(&scratch), ["a.tar.gz", "there"], "the one that is there is used");
}

#[test]
fn the_index_of_another_archive_is_not_replaced() {
    let scratch = Scratch::new();
    scratch.shell("seq 1000 > one; tar -cf a.tar one; tar -czf b.tar.gz one; rm one");
    let index = scratch.path("i");
    let make = || says(&scratch, &["index", "--index-file", "i", "a.tar"]);
    assert_eq!(make(), (0, String::new()));
    let of_a = fs::read(&index).unwrap();
    let refused = |archive: &str| {
        let (index, length) = (index.display(), 10_240);
        format!(
            "tarnfs: {archive}: {index} is the index of a.tar ({length} bytes): name another file, or replace it with -c\n"
        )
    };
    for words in [&["ls"][..], &["index"], &["--no-mount"], &["ls", "-r"], &["ls", "--hashes", "md5"]] {
        let words: Vec<_> = words.iter().chain(&["--index-file", "i", "b.tar.gz"]).copied().collect();
        assert_eq!(says(&scratch, &words), (7, refused("b.tar.gz")), "{words:?}");
        assert!(fs::read(&index).unwrap() == of_a, "{words:?}");
    }
    // The archive has another name now, and another content.
    scratch.shell("mv a.tar c.tar");
    assert_eq!(says(&scratch, &["ls", "--index-file", "i", "c.tar"]), (0, String::new()));
    scratch.shell("echo two > two; tar -cf a.tar two; rm two");
    let changed = format!(
        "tarnfs: warning: a.tar: index {}: does not belong to this archive: its bytes are not those that were indexed; it \
         is not used, and the archive is read again if it has to be; `tarnfs index -c` replaces it\n",
        index.display()
    );
    assert_eq!(says(&scratch, &["ls", "--index-file", "i", "a.tar"]), (0, changed));
    assert!(fs::read(&index).unwrap() != of_a, "the index of an archive that has changed is made again");
    assert_eq!(says(&scratch, &["ls", "-c", "--index-file", "i", "b.tar.gz"]), (0, String::new()));
    assert_eq!(says(&scratch, &["ls", "--no-recreate-index", "--index-file", "i", "b.tar.gz"]), (0, String::new()));
}

/// One line for one trouble.
#[test]
fn a_folder_for_indexes_that_cannot_be_read_is_told_once() {
    if !support::is_root() {
        println!("left out: needs root, to be somebody else");
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree cache; for i in $(seq 1200); do echo $i > tree/$i; done; tar -cjf a.tar.bz2 tree
         chmod 755 .; chmod 000 cache",
    );
    scratch.program("tarnfs");
    let at = scratch.path("cache").parent().unwrap().to_owned();
    let script = format!("XDG_CACHE_HOME={0}/cache {0}/tarnfs ls {0}/a.tar.bz2", at.display());
    let ran = Ran::from(
        std::process::Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &script])
            .output()
            .unwrap(),
    );
    let archive = at.join("a.tar.bz2").display().to_string();
    let flat = archive.trim_start_matches('/').replace('/', "_");
    let said = format!(
        "tarnfs: warning: {archive}: the index could not be written to {archive}.tarnfs.sqlite: a new file in {}: Permission \
         denied, nor to {}/tarnfs/{flat}.tarnfs.sqlite: Permission denied\n",
        at.display(),
        at.join("cache").display()
    );
    assert_eq!((ran.code, ran.err), (0, said));
    assert_eq!(ran.out, b"tree\n");
}

/// Overwrites `bytes` in the middle of a file, which keeps its length, and its time if `keeps_time`.
fn overwrite(path: &std::path::Path, at: u64, bytes: &[u8], keeps_time: bool) {
    use std::os::unix::fs::FileExt;
    let file = fs::File::options().write(true).open(path).unwrap();
    let before = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(bytes, at).unwrap();
    let after = if keeps_time { before } else { before + std::time::Duration::from_secs(100) };
    file.set_modified(after).unwrap();
}

/// What no sample of the archive's bytes has seen shows when it is read.
#[test]
fn an_archive_that_was_changed_in_place_differs_from_its_index() {
    let scratch = Scratch::new();
    // Two archives of the same length: frames, and members, end where they end in the other.
    scratch.shell(
        "mkdir tree; for i in a b c; do head -c 5000000 /dev/urandom > tree/$i; done; tar -cf base tree/a tree/b tree/c
         for frame in 1 2 3 4 5; do head -c $((frame * 3000000)) base | tail -c 3000000 | zstd -q --no-check; done > a.tar.zst
         for frame in 1 2 3 4 5; do head -c $((frame * 3000000)) base | tail -c 3000000 | gzip -1; done > a.tar.gz
         tail -c +15000001 base | zstd -q --no-check >> a.tar.zst; tail -c +15000001 base | gzip -1 >> a.tar.gz",
    );
    for (name, what) in [("a.tar.zst", "zstd"), ("a.tar.gz", "gzip")] {
        for keeps_time in [false, true] {
            let archive = scratch.path(name);
            let whole = fs::read(&archive).unwrap();
            assert_eq!(says(&scratch, &["index", "-c", name]), (0, String::new()));
            overwrite(&archive, 7_000_000, &[0x55; 3000], keeps_time);
            let read = Ran::from(
                tarnfs(&scratch).args(["cat", name, "tree/b"]).current_dir(scratch.path("")).output().unwrap(),
            );
            let differs = "the archive differs from its index there: it was changed after it was indexed, or is damaged; \
                           checking the archive reads all of it, and --recreate-index makes a new index\n";
            let start = format!("tarnfs: {name}: tree/b: ");
            assert!(
                read.code == 5 && read.err.starts_with(&start) && read.err.ends_with(differs),
                "{what}: {}",
                read.err
            );
            assert_eq!(read.err.lines().count(), 1, "{}", read.err);
            let checked =
                Ran::from(tarnfs(&scratch).args(["check", name]).current_dir(scratch.path("")).output().unwrap());
            let changed = if keeps_time { "" } else { " (the archive was changed after it was indexed)" };
            let line =
                format!("{name}: the archive and its index {}.tarnfs.sqlite differ{changed}: ", archive.display());
            let last = checked.text().lines().last().unwrap().to_owned();
            assert!(last.starts_with(&line) && last.ends_with("; make the index again with -c"), "{what}: {last}");
            assert_ne!(checked.code, 0, "{what}");
            // What lies elsewhere is served.
            assert_eq!(says(&scratch, &["cat", name, "tree/c"]).0, 0, "{what}");
            fs::write(&archive, whole).unwrap();
        }
    }
}

/// As `gunzip -N` and ratarmount name it.
#[test]
fn a_single_file_has_the_name_that_gzip_keeps_of_it() {
    let scratch = Scratch::new();
    let gzip = |name: &[u8]| {
        use std::io::Write;
        let script = "import sys, zlib; name = sys.stdin.buffer.read(); \
                      packed = zlib.compressobj(wbits=-15); body = packed.compress(b'text\\n') + packed.flush(); \
                      head = b'\\x1f\\x8b\\x08' + (b'\\x0c' if name else b'\\0') + b'\\0' * 4 + b'\\0\\x03'; \
                      head += (b'\\x03\\0abc' + name + b'\\0') if name else b''; \
                      sys.stdout.buffer.write(head + body + zlib.crc32(b'text\\n').to_bytes(4, 'little') + b'\\x05\\0\\0\\0')";
        let mut child = std::process::Command::new("python3")
            .args(["-c", script])
            .stdin(std::process::Stdio::piped())
            .stdout(fs::File::create(scratch.path("x.gz")).unwrap())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(name).unwrap();
        assert!(child.wait().unwrap().success());
    };
    let shown = |words: &[&str]| {
        let ran = Ran::from(tarnfs(&scratch).args(words).current_dir(scratch.path("")).output().unwrap()).ok();
        ran.out
    };
    let listed = |name: &[u8]| [name, b"\n"].concat();
    let longest = [b'n'; 255];
    for name in [&b"notes.txt"[..], b"with space", b"b\xe4r", "bär".as_bytes(), b"...", b"-rf", &longest] {
        gzip(name);
        assert_eq!(shown(&["ls", "x.gz"]), listed(name));
    }
    let too_long = [b'n'; 256];
    for name in [
        &b""[..],
        b".",
        b"..",
        b"/etc/passwd",
        b"../up",
        b"a/b",
        b"a\nb",
        b"a\x1b[31m",
        b"a\x7f",
        b"\xe4\x07",
        b".ratarmount-control",
        "a\u{202e}b".as_bytes(),
        &too_long,
    ] {
        gzip(name);
        assert_eq!(shown(&["ls", "x.gz"]), b"x\n", "{}", String::from_utf8_lossy(name));
    }
    // The name is in the index, whichever of the two that is; what an index says counts.
    gzip(b"notes.txt");
    shown(&["index", "x.gz"]);
    scratch.shell("mv x.gz y.gz; mv x.gz.tarnfs.sqlite y.gz.tarnfs.sqlite");
    assert_eq!(shown(&["ls", "--no-recreate-index", "y.gz"]), b"notes.txt\n");
    assert_eq!(shown(&["check", "y.gz"]), b"y.gz: whole: 1 file with 5 bytes of content\n");
    scratch.shell("rm y.gz.tarnfs.sqlite");
    shown(&["index", "--format", "ratarmount", "y.gz"]);
    let sidecar = rusqlite::Connection::open(scratch.path("y.gz.index.sqlite")).unwrap();
    let name: String = sidecar.query_row("SELECT name FROM files WHERE path = ''", [], |row| row.get(0)).unwrap();
    assert_eq!(name, "notes.txt");
    sidecar.execute("UPDATE files SET name = 'as-it-says'", []).unwrap();
    drop(sidecar);
    assert_eq!(shown(&["ls", "--no-recreate-index", "y.gz"]), b"as-it-says\n");
    // In archives, too.
    scratch.shell("tar -cf a.tar y.gz");
    assert_eq!(shown(&["ls", "-rR", "a.tar"]), b"y.gz\ny.gz/notes.txt\n");
}

/// As in ratarmount, whichever way it is opened.
#[test]
fn with_the_extension_stripped_an_archive_shows_beside_its_folder() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir in tree; echo one > in/one; tar -C in -cf tree/a.tar one; tar -C in -czf tree/b.tar.gz one; gzip -c in/one > tree/c.gz
         echo file > tree/d; tar -C in -cf tree/d.tar one; tar -C tree -cf all.tar .; for i in $(seq 300); do cp tree/a.tar in/$i.tar; done",
    );
    let expected = ["a", "a.tar", "a/one", "b", "b.tar.gz", "b/one", "c", "c.gz", "c/one"];
    for (archive, options) in
        [("all.tar", &["-r", "-s"][..]), ("all.tar", &["-r", "-s", "-l"]), ("tree", &["-r", "-s"])]
    {
        let mount = support::Mounted::new(&scratch, scratch.path(archive), options);
        let found = std::process::Command::new("find")
            .args([".", "-mindepth", "1", "!", "-path", "./d*"])
            .current_dir(&mount.at)
            .output()
            .unwrap();
        let mut found: Vec<_> =
            String::from_utf8(found.stdout).unwrap().lines().map(|line| line[2..].to_owned()).collect();
        found.sort();
        assert_eq!(found, expected, "{archive} {options:?}");
        let both = |name: &str, folder: &str| {
            assert_eq!(fs::read(mount.path(name)).unwrap(), fs::read(scratch.path("tree").join(name)).unwrap());
            assert_eq!(fs::read(mount.path(folder)).unwrap(), b"one\n");
        };
        both("a.tar", "a/one");
        both("b.tar.gz", "b/one");
        both("c.gz", "c/one");
        mount.unmount();
    }
    // More than one answer to the kernel holds.
    let mount = support::Mounted::new(&scratch, scratch.path("in"), &["-r", "-s"]);
    let mut names: Vec<_> =
        fs::read_dir(&mount.at).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let mut expected: Vec<_> = (1..=300).flat_map(|i| [format!("{i}"), format!("{i}.tar")]).collect();
    expected.push("one".to_owned());
    expected.sort();
    assert_eq!(names, expected);
    mount.unmount();
}

/// A mount point that tarnfs names itself nobody has mistyped.
#[test]
fn a_mount_point_that_nobody_has_named_is_no_mistake() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "echo one > one; tar -czf x.tgz one; gzip -c x.tgz > y.tgz.gz; rm x.tgz
         python3 -c \"import zipfile; zipfile.ZipFile('z.zip', 'w').write('one')\"
         tar -cf - one | gzip | gzip > dbl.gz.gz; mkdir p; echo one > p/z.zip; gzip p/z.zip
         (cd p; ar rc lib.a ../one)",
    );
    let in_folder = |folder: &str| -> Vec<String> {
        let entries = fs::read_dir(scratch.path(folder)).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    for (archive, at, file) in [
        ("y.tgz.gz", "y.tgz", "x.tgz"),
        ("dbl.gz.gz", "dbl.gz", "dbl.gz"),
        ("z.zip", "z", "one"),
        ("p/z.zip.gz", "p/z.zip", "z.zip"),
        ("p/lib.a", "p/lib", "one"),
    ] {
        let ran = Ran::from(tarnfs(&scratch).arg(archive).current_dir(scratch.path("")).output().unwrap());
        let names = in_folder(at);
        let ended = run(&scratch, ["-u".as_ref(), scratch.path(at).as_os_str()]);
        assert_eq!((ran.code, names), (0, vec![file.to_owned()]), "{archive}: {}", ran.err);
        ended.ok();
    }
}

/// What was to be done is said, and with which option.
#[test]
fn what_cannot_be_made_or_opened_is_said_with_what_was_to_be_done() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -cf a.tar one; echo x > file; seq 300 > numbers; mkfifo pipe; mkdir ro d");
    for (words, code, said) in [
        (
            &["extract", "-C", "x/y", "a.tar"][..],
            1,
            "-C x/y: cannot be made: the folder that it is to be in is not there",
        ),
        (&["extract", "-C", "file", "a.tar"], 1, "-C file: cannot be extracted to: it is no folder"),
        (&["create", "x/y.tar", "one"], 1, "x/y.tar: cannot be written: No such file or directory"),
        (&["convert", "a.tar", "x/y.tar.gz"], 1, "x/y.tar.gz: cannot be written: No such file or directory"),
        (&["convert", "b.tar", "y.tar.gz"], 3, "b.tar: cannot be opened: No such file or directory"),
        (&["compare", "a.tar", "nope"], 3, "nope: cannot be opened: No such file or directory"),
        (
            &["ls", "--password-file", "-", "-"],
            2,
            "--password-file -: the archive is already there; name a file with the passwords",
        ),
    ] {
        assert_eq!(says(&scratch, words), (code, format!("tarnfs: {said}\n")), "{words:?}");
    }
    let (code, said) = says(&scratch, &["create", "--compress", "zstd", "n.tar.gz", "numbers"]);
    assert!(
        code == 0 && said.starts_with("tarnfs: warning: n.tar.gz: the name says gzip, and this is zstd\n"),
        "{said}"
    );
    for words in
        [&["create", "--compress", "gzip", "m.tgz", "numbers"], &["create", "--compress", "zstd", "m.tar", "numbers"]]
    {
        let (code, said) = says(&scratch, words);
        assert!(code == 0 && !said.contains("the name says"), "{words:?}: {said}");
    }
    // The same of both: what is not in the new archive is no success.
    scratch.shell("tar -cf p.tar pipe numbers; mkdir p; cd p; tar -xf ../p.tar");
    for words in [&["create", "p1.zip", "p"][..], &["convert", "p.tar", "p2.zip"]] {
        let (code, said) = says(&scratch, words);
        assert!(code == 1 && said.contains("pipe") && said.contains("as was said above"), "{words:?}: {said}");
    }
    assert!(scratch.path("p2.zip").exists());
}

/// A disk that was full leaves zeros; `tar` makes an archive of nothing no longer than 10 KiB.
#[test]
fn an_archive_of_zeros_is_said_to_be_one() {
    let scratch = Scratch::new();
    scratch.shell("head -c 300000 /dev/zero > a.tar; head -c 10240 /dev/zero > b.tar; : > none; tar -cf c.tar none");
    let what = "a.tar: there is nothing in it but 300000 zero bytes: its writing may have failed\n";
    assert_eq!(says(&scratch, &["ls", "a.tar"]), (0, format!("tarnfs: warning: {what}")));
    assert_eq!(says(&scratch, &["ls", "b.tar"]), (0, String::new()));
    // `./` alone is something.
    scratch.shell("mkdir e; tar -cf d.tar -b 100 -C e .");
    assert_eq!(says(&scratch, &["ls", "d.tar"]), (0, String::new()));
    let checked = run(&scratch, ["check".as_ref(), scratch.path("a.tar").as_os_str()]).ok();
    assert!(checked.text().contains(&what[2..]), "{}", checked.text());
    let checked = run(&scratch, ["check".as_ref(), scratch.path("b.tar").as_os_str()]).ok();
    assert!(!checked.text().contains("zero bytes"), "{}", checked.text());
}

/// Messages say the place, and whose it is, once.
#[test]
fn messages_name_the_right_place() {
    let scratch = Scratch::new();
    scratch.shell(
        "seq 200000 > numbers; tar -cf a.tar numbers; head -c 700000 a.tar > cut.tar; gzip -k cut.tar; mv cut.tar.gz c.tar.gz
         echo junk > b.tar.tarnfs.sqlite; cp a.tar b.tar; chmod 666 b.tar.tarnfs.sqlite",
    );
    for archive in ["cut.tar", "c.tar.gz"] {
        let (_, said) = says(&scratch, &["compare", archive, "."]);
        assert!(said.contains("ends at byte 700000, but what begins at byte 512 goes on"), "{archive}: {said}");
        assert!(!said.contains("were asked for"), "{archive}: {said}");
    }
    let (code, said) = says(&scratch, &["ls", "b.tar"]);
    assert!(
        code == 0
            && said.contains(
                "everybody may write it (--trust-index uses it nevertheless); it is not used, and the archive"
            ),
        "{said}"
    );
    assert_eq!(said.matches("b.tar.tarnfs.sqlite").count(), 1, "{said}");
    if support::have("7z") {
        scratch.shell(
            "7z a -bd -bso0 -psecret -mhe=on e.7z numbers; 7z a -bd -bso0 f.7z numbers; head -c 1000 f.7z > cut.7z",
        );
        let (code, said) = says(&scratch, &["ls", "e.7z"]);
        assert!(code == 3 && said.contains("encrypted") && !said.contains("failed"), "{said}");
        let (code, said) = says(&scratch, &["ls", "cut.7z"]);
        assert!(code == 3 && said.starts_with("tarnfs: cut.7z: its header begins at byte"), "{said}");
        // A password on standard input.
        let mut command = tarnfs(&scratch);
        command.args(["cat", "--password-file", "-", "e.7z", "numbers"]).current_dir(scratch.path(""));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"secret\n").unwrap();
        let ran = Ran::from(child.wait_with_output().unwrap()).ok();
        assert!(ran.out == fs::read(scratch.path("numbers")).unwrap());
    }
}
