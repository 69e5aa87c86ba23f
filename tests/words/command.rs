//! The command without a mount: ls, cat, stat, index, what it refuses, and how it exits.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::ffi::OsStr;
use std::fs;
use std::process::{Command, Stdio};

use crate::support::{self, Mounted, Ran, Scratch, can_mount, have, make_tree, run, tarnfs};

/// > Exit codes tell what went wrong.
#[test]
fn exit_codes_tell_what_went_wrong() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; seq 1 300000 > tree/file; tar -C tree -cf good.tar .; echo 'only some text, no archive' > text
         head -c 400000 good.tar > cut.tar; gzip < good.tar > good.tar.gz; head -c 100000 good.tar.gz > cut.tar.gz; mkfifo fifo",
    );
    let code = |arguments: &[&str]| {
        let ran = Command::new(env!("CARGO_BIN_EXE_tarnfs"))
            .args(arguments)
            .env("XDG_CACHE_HOME", scratch.path("cache"))
            .current_dir(scratch.path(""))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&ran.stderr).into_owned();
        (ran.status.code().unwrap(), message)
    };
    assert_eq!(code(&["ls", "good.tar"]).0, 0);
    for usage in
        [&["--no-such-option"][..], &[], &["ls"], &["-P", "many", "good.tar"], &["-o", "colour=blue", "good.tar"]]
    {
        assert_eq!(code(usage).0, 2, "{usage:?}");
    }
    for (archive, expected, says) in [
        ("missing.tar", 3, "No such file"),
        ("tree", 3, "folder"),
        ("fifo", 3, "fifo"),
        ("text", 4, "not an archive"),
        ("/dev/null", 3, "device"),
        ("cut.tar", 5, "byte 1024 of the file: the archive ends after "),
        ("cut.tar.gz", 5, "gzip"),
    ] {
        let (got, message) = code(&["ls", archive]);
        assert_eq!(got, expected, "{archive}: {message}");
        assert!(message.contains(archive) && message.contains(says), "{archive}: {message}");
    }
    let (got, message) = code(&["cat", "good.tar", "not/there"]);
    assert_eq!(got, 1);
    assert!(message.contains("good.tar") && message.contains("not/there"), "{message}");
    let (got, message) = code(&["-p", "none", "good.tar"]);
    assert_eq!(got, 1, "{message}");
    let (got, message) = code(&["good.tar", "/no/such/folder/mnt"]);
    assert_eq!(got, 6, "{message}");
    let (got, message) = code(&["--index-folders", "[", "good.tar"]);
    assert_eq!(got, 2, "{message}");
    assert_eq!(code(&["ls", "--no-recreate-index", "--index-folders", "nowhere", "good.tar"]).0, 7);
    assert_eq!(code(&["--help"]).0, 0);
    assert_eq!(code(&["--version"]).0, 0);
}

#[test]
fn numbers_and_files_beyond_their_limits_are_errors_of_usage() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -cf a.tar one; truncate -s 128M largest; truncate -s 134217729 larger");
    let ran = |words: &[&str]| {
        Ran::from(tarnfs(&scratch).arg("ls").args(words).arg("a.tar").current_dir(scratch.path("")).output().unwrap())
    };
    for spacing in ["0.1", "1e9", "nan"] {
        let ran = ran(&[&format!("--gzip-seek-point-spacing={spacing}")]);
        assert_eq!(ran.code, 2, "{spacing}: {}", ran.err);
        assert!(ran.err.contains("--gzip-seek-point-spacing"), "{spacing}: {}", ran.err);
    }
    let least = ran(&["-gs", "0.1"]);
    assert!(least.code == 2 && least.err.contains("--gzip-seek-point-spacing 0.1: give MiB between"), "{}", least.err);
    // As ratarmount has it.
    for typed in ["0", "-1"] {
        let ran = ran(&["-gs", typed, "-d2"]).ok();
        let said = format!("--gzip-seek-point-spacing {typed} is taken for the least: 0.125 MiB");
        assert!(ran.err.contains(&said), "{}", ran.err);
    }
    assert_eq!(ran(&["-gs", "0.5"]).code, 0);
    let larger = ran(&["--zstd-dictionary", "larger"]);
    assert_eq!(larger.code, 2, "{}", larger.err);
    assert!(larger.err.contains("larger") && larger.err.contains("more than 128 MiB"), "{}", larger.err);
    let largest = ran(&["--zstd-dictionary", "largest"]);
    assert_eq!(largest.code, 0, "{}", largest.err);
}

#[test]
fn options_before_a_command_are_told() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; tar -C tree -cf a.tar .");
    let says = |words: &[&str]| {
        let ran = Ran::from(tarnfs(&scratch).args(words).current_dir(scratch.path("")).output().unwrap());
        (ran.code, ran.err)
    };
    for name in ["check", "ls", "index"] {
        let (code, message) = says(&["-d", "2", name, "a.tar"]);
        assert!(code == 2 && message.contains("options go behind"), "{code}: {message}");
    }
    assert!(!scratch.path("a").exists());
    // A file of that name is an archive as any other.
    scratch.shell("cp a.tar check");
    let (code, message) = says(&["-d", "2", "--no-mount", "check"]);
    assert_eq!(code, 0, "{message}");
}

/// > An option that tarnfs does not have yet is refused by name.
#[test]
fn options_that_are_not_there_yet_are_refused_by_name() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; tar -C tree -cf a.tar .");
    for option in ["--force-folder-index", "--oss-attributions"] {
        let ran = run(&scratch, [option.as_ref(), scratch.path("a.tar").as_os_str()]);
        assert_eq!(ran.code, 2, "{option}: {}", ran.err);
        assert!(ran.err.contains(option) && ran.err.contains("not have yet"), "{option}: {}", ran.err);
    }
}

#[test]
fn ls_lists_what_tar_lists() {
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell("tar --format=posix -cf a.tar tree");
    let listed = run(&scratch, ["ls".as_ref(), "-R".as_ref(), scratch.path("a.tar").as_os_str()]).ok();
    let expected = scratch.shell("cd tree/.. && find tree -print0 | sort -z | tr '\\n\\0' '?\\n'");
    let mut ours: Vec<String> = listed.text().replace("new\nline", "new?line").lines().map(str::to_owned).collect();
    ours.sort();
    let mut theirs: Vec<String> = expected.lines().map(str::to_owned).collect();
    theirs.sort();
    assert_eq!(ours, theirs);

    let long =
        run(&scratch, ["ls".as_ref(), "-l".as_ref(), scratch.path("a.tar").as_os_str(), "tree".as_ref()]).ok().text();
    let line = |name: &str| {
        long.lines().find(|line| line.ends_with(name)).unwrap_or_else(|| panic!("{name}: {long}")).to_owned()
    };
    assert!(line(" short").starts_with("-rwsr-xr-x"));
    assert!(line("link -> file").starts_with("lrwxrwxrwx"));
    assert!(line(" block").contains("2038-01-"));
    assert!(line(" empty").starts_with("drwxrwxrwt"));

    let json = run(&scratch, ["ls".as_ref(), "--json".as_ref(), scratch.path("a.tar").as_os_str(), "tree".as_ref()])
        .ok()
        .text();
    let values: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let find = |name: &str| values.iter().find(|value| value["path"] == format!("tree/{name}")).unwrap();
    assert_eq!(find("block")["mtime"]["nanoseconds"], 123_456_789);
    assert_eq!(find("link")["target"], "file");
    assert_eq!(find("short")["size"], 511);
    assert!(
        values.iter().any(|value| value["path_bytes"].is_string()),
        "a name that is not UTF-8 has its bytes beside it"
    );
}

#[test]
fn cat_writes_the_bytes_and_never_leaves_the_archive() {
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell("tar -C tree -czf a.tar.gz .; ln -s folder tree/alias; tar -C tree -cf a.tar .");
    let cat = |archive: &str, paths: &[&str]| {
        let archive = scratch.path(archive);
        run(&scratch, ["cat", archive.to_str().unwrap()].iter().chain(paths))
    };
    for archive in ["a.tar", "a.tar.gz"] {
        let both = cat(archive, &["folder/inner/numbers", "/./short"]).ok().out;
        let expected = [
            fs::read(scratch.path("tree/folder/inner/numbers")).unwrap(),
            fs::read(scratch.path("tree/short")).unwrap(),
        ]
        .concat();
        assert!(both == expected);
    }
    assert_eq!(cat("a.tar", &["link"]).ok().out, b"hello");
    assert!(cat("a.tar", &["alias/../alias/random"]).ok().out == fs::read(scratch.path("tree/folder/random")).unwrap());
    // `/etc/passwd` of the archive, which has none; not of this machine.
    for path in ["absolute", "../../../etc/passwd", "dangling", "short/.."] {
        assert_eq!(cat("a.tar", &[path]).code, 1, "{path}");
    }
    assert_eq!(cat("a.tar", &["folder"]).code, 1);
    assert!(
        cat("a.tar.gz", &[]).ok().out
            == Command::new("gzip").arg("-dc").arg(scratch.path("a.tar.gz")).output().unwrap().stdout
    );
}

/// What the first pass decodes is written when it is verified, up to damage; with an index it is read. Both give the
/// same.
#[test]
fn cat_undoes_the_compression_once() {
    let scratch = Scratch::new();
    scratch.shell(
        "seq 1 600000 > numbers; gzip -k numbers; bzip2 -k numbers; xz -k numbers; zstd -qk numbers; lz4 -q numbers numbers.lz4
         cp numbers.gz checksum.gz; printf '\\0\\0\\0' | dd of=checksum.gz bs=1 seek=$(($(stat -c %s numbers.gz) - 8)) conv=notrunc status=none
         cp numbers.bz2 block.bz2; printf wrong | dd of=block.bz2 bs=1 seek=$(($(stat -c %s numbers.bz2) / 2)) conv=notrunc status=none",
    );
    let right = fs::read(scratch.path("numbers")).unwrap();
    let cat = |archive: &str| run(&scratch, ["cat".as_ref(), scratch.path(archive).as_os_str()]);
    for archive in ["numbers.gz", "numbers.bz2", "numbers.xz", "numbers.zst", "numbers.lz4"] {
        for round in ["first", "next"] {
            assert!(cat(archive).ok().out == right, "{archive}, {round}");
            run(
                &scratch,
                ["index".as_ref(), "--index-minimum-file-count=0".as_ref(), scratch.path(archive).as_os_str()],
            )
            .ok();
        }
    }
    // One checksum stands at the end of a member of gzip, a frame of zstd or lz4, and a block of xz or bzip2: nothing
    // of it goes out before.
    scratch.shell(
        "flip() { cp $1 $2; printf 'xyz' | dd of=$2 bs=1 seek=$(($(stat -c %s $1) - $3)) conv=notrunc status=none; }
         flip numbers.xz checksum.xz 31; flip numbers.zst checksum.zst 3; flip numbers.lz4 checksum.lz4 3
         cat numbers.gz checksum.gz > second.gz; cat numbers.zst checksum.zst > second.zst
         head -c 40M /dev/zero | gzip -1 > zeros.gz; flip zeros.gz large.gz 8; cat numbers.gz large.gz > behind.gz
         head -c 900000 numbers.gz > cut.gz",
    );
    let whole = right.len();
    for (archive, least, most) in [
        ("checksum.gz", 0, 0),
        ("checksum.xz", 0, 0),
        ("checksum.zst", 0, 0),
        ("checksum.lz4", 0, 0),
        ("large.gz", 0, 0),
        ("second.gz", whole, whole),
        ("second.zst", whole, whole),
        ("behind.gz", whole, whole),
        ("block.bz2", 1, whole - 1),
        ("cut.gz", 1, whole - 1),
    ] {
        let path = scratch.path(archive);
        let first = run(&scratch, ["cat".as_ref(), "--index-file=:memory:".as_ref(), path.as_os_str()]);
        run(&scratch, ["index".as_ref(), path.as_os_str()]);
        let next = cat(archive);
        assert_eq!((first.code, next.code), (5, 5), "{archive}: {}", first.err);
        assert!((least..=most).contains(&first.out.len()) && right.starts_with(&first.out), "{archive}");
        assert!(first.out == next.out && first.err == next.err, "{archive}: {}, {}", first.err, next.err);
        assert!(!first.err.contains(": :"), "{}", first.err);
    }
}

/// Codecs whose tools need not be installed: each is known, as an archive and as a single file.
#[test]
fn ls_and_cat_know_rare_codecs() {
    let scratch = Scratch::new();
    scratch.shell("seq 1 600000 > numbers; tar -cf numbers.tar numbers");
    let right = fs::read(scratch.path("numbers")).unwrap();
    let python = concat!("/usr/bin/python3 ", env!("CARGO_MANIFEST_DIR"), "/../../tests/support/compress_snappy.py");
    for (suffix, tool) in
        [(".Z", "compress -c"), (".lzo", "lzop -c"), (".lrz", "lrzip -Q"), (".sz", python), (".br", "brotli -c -q 1")]
    {
        let probe = Command::new("sh").args(["-c", &format!("seq 1000 | {tool} > /dev/null")]).status();
        if !probe.unwrap().success() {
            println!("left out: {suffix}, what writes it is not installed");
            continue;
        }
        for plain in ["numbers", "numbers.tar"] {
            scratch.shell(&format!("{tool} < {plain} > {plain}{suffix}"));
            let archive = scratch.path(format!("{plain}{suffix}"));
            assert_eq!(run(&scratch, ["ls".as_ref(), archive.as_os_str()]).ok().text(), "numbers\n", "{plain}{suffix}");
            let file = run(&scratch, ["cat".as_ref(), archive.as_os_str(), "numbers".as_ref()]).ok();
            assert!(file.out == right, "{plain}{suffix}");
            if can_mount() {
                let mount = Mounted::new(&scratch, &archive, &["-c"]);
                assert!(fs::read(mount.path("numbers")).unwrap() == right, "{plain}{suffix}");
                mount.unmount();
            }
        }
    }
}

#[test]
fn stat_tells_all_that_is_known() {
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell("tar --format=posix -C tree -cf a.tar .");
    let stat =
        |path: &str| run(&scratch, ["stat".as_ref(), scratch.path("a.tar").as_os_str(), path.as_ref()]).ok().text();
    let block = stat("block");
    for part in ["Type: file", "Size: 512 bytes", "Mode: 2640", "2038-01-20 00:00:00.123456789 UTC"] {
        assert!(block.contains(part), "{block}");
    }
    assert!(stat("link").contains("Target: file"));
    let root = run(&scratch, ["stat".as_ref(), scratch.path("a.tar").as_os_str()]).ok().text();
    assert!(root.starts_with("  Path: /\n  Type: folder\n"), "{root}");
    // In both zones where they differ.
    let in_zone = |zone: &str| {
        let mut command = tarnfs(&scratch);
        command.args(["stat".as_ref(), scratch.path("a.tar").as_os_str(), "block".as_ref()]).env("TZ", zone);
        let text = Ran::from(command.output().unwrap()).ok().text();
        text.lines().find_map(|line| line.strip_prefix("Modify: ").map(str::to_owned)).unwrap()
    };
    let utc = "2038-01-20 00:00:00.123456789 UTC";
    assert_eq!(in_zone("UTC0"), utc);
    assert_eq!(in_zone("XXX-1"), format!("2038-01-20 01:00:00.123456789 +0100 ({utc})"));
    assert!(stat("file").contains("Links: 3"));
}

/// > Names reach a terminal with control characters escaped, and a pipe as they are.
#[test]
fn names_reach_a_terminal_escaped_and_a_pipe_raw() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; touch \"$(printf 'tree/a\\033[31mred')\"; tar -C tree -cf a.tar .");
    let raw = run(&scratch, ["ls".as_ref(), scratch.path("a.tar").as_os_str()]).ok();
    assert!(raw.out.windows(4).any(|bytes| bytes == b"\x1b[31"));
    // script(1) runs a command on a terminal of its own.
    let command = format!("{} ls {}", env!("CARGO_BIN_EXE_tarnfs"), scratch.path("a.tar").display());
    let output = Command::new("script").args(["-qec", &command, "/dev/null"]).stdin(Stdio::null()).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(!shown.contains("\x1b[31") && shown.contains("red"), "{shown:?}");
}

#[test]
fn a_closed_pipe_ends_it_quietly() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; seq 1 1000000 > tree/file; tar -C tree -cf a.tar .");
    let command = format!("{} cat {} file | head -c 10", env!("CARGO_BIN_EXE_tarnfs"), scratch.path("a.tar").display());
    let output = Command::new("bash").args(["-c", &command]).output().unwrap();
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"1\n2\n3\n4\n5\n"[..], &b""[..]));
    // As `zcat` ends, by the signal.
    let codes = Command::new("bash").args(["-c", &format!("{command} > /dev/null; echo ${{PIPESTATUS[0]}}")]).output();
    assert_eq!(codes.unwrap().stdout, b"141\n");
}

/// What `ls` prints for programs are whole paths, whatever was listed.
#[test]
fn json_has_whole_paths() {
    let scratch = Scratch::new();
    scratch.shell("mkdir -p tree/home/me tree/etc; touch tree/home/me/notes tree/etc/passwd; tar -C tree -cf a.tar .");
    let archive = scratch.path("a.tar");
    let ran = run(&scratch, ["ls", "--json", "-R", archive.to_str().unwrap(), "./home/", "etc"]).ok().text();
    let path = |line: &str| line.split("\"path\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    assert_eq!(ran.lines().map(path).collect::<Vec<_>>(), ["home/me", "home/me/notes", "etc/passwd"]);
}

/// `-h` of `ls` is for sizes; alone it asks for help.
#[test]
fn ls_has_help() {
    let scratch = Scratch::new();
    let [short, long] = ["-h", "--help"].map(|option| run(&scratch, ["ls", option]).ok().text());
    assert!(short == long && short.contains("tarnfs ls [OPTIONS] ARCHIVE [PATH...]"), "{short}");
}

#[test]
fn formats_are_listed_with_what_is_read_of_each() {
    let scratch = Scratch::new();
    let listed = run(&scratch, ["--formats"]).ok().text();
    for heading in ["Archives:", "Compression:"] {
        assert!(listed.lines().any(|line| line == heading), "{heading}\n{listed}");
    }
    for (name, suffix) in [("tar", ".tar"), ("zip", ".zip"), ("gzip", ".tgz")] {
        let is_it = |line: &str| line.split_whitespace().take(2).eq([name, suffix]);
        assert!(listed.lines().any(is_it), "{name}\n{listed}");
    }
}

/// With what a report of an error should say.
#[test]
fn the_version_tells_of_libraries_formats_and_the_kernel() {
    let scratch = Scratch::new();
    let plain = run(&scratch, ["-v", "-d0"]).ok().text();
    assert_eq!(plain, concat!("tarnfs ", env!("CARGO_PKG_VERSION"), "\n"));
    // As ratarmount does; and `-d 1` is the default.
    let full = run(&scratch, ["--version"]).ok().text();
    assert!(full.starts_with(&plain), "{full}");
    assert_eq!(run(&scratch, ["-v", "-d1"]).ok().text(), full);
    assert_eq!(run(&scratch, ["-V", "--verbose"]).ok().text(), full);
    let values: Vec<_> = full.lines().skip(1).filter_map(|line| line.split_once(": ")).collect();
    let names: Vec<_> = values.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["libraries", "formats", "codecs", "indexes", "kernel", "FUSE", "fusermount3", "sandbox"]);
    let value = |of: &str| values.iter().find(|(name, _)| *name == of).unwrap().1;
    for library in ["SQLite 3.", "liblzma 5.", "zstd 1."] {
        assert!(value("libraries").contains(library), "{full}");
    }
    assert_eq!(
        value("formats"),
        "7z, ar, arj, asar, cab, cpio, deb, disk-image, erofs, exfat, ext, fat, hfsplus, html, iso9660, lha, mail, mtree, ntfs, ogg, partitions, pdf, rar, rpm, sqlar, squashfs, tar, udf, warc, wim, xar, zip"
    );
    assert!(value("codecs").starts_with("base64, brotli, bzip2, compress, gzip, "), "{full}");
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(value("kernel"), format!("Linux {}", release.trim()));
    // Nothing stays mounted that this asked with.
    let before = fs::read_to_string("/proc/self/mountinfo").unwrap();
    run(&scratch, ["--version", "-d1"]).ok();
    assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), before);
    if can_mount() {
        assert!(value("FUSE").starts_with("protocol 7."), "{full}");
    }
}

/// One line for one trouble, the file named once, in words.
#[test]
fn messages_are_one_line_and_name_the_file_once() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; seq 100000 > tree/f; tar -cf a.tar tree; gzip -k a.tar; bzip2 -k a.tar
         head -c 20000 a.tar.gz > cut.tar.gz; head -c 20000 a.tar.bz2 > cut.tar.bz2; touch empty",
    );
    let size = "give bytes, or a number with K, M or G behind it, such as 512M";
    let cases: &[(&[&str], i32, String)] = &[
        (&["ls", "missing.tar"], 3, "missing.tar: cannot be opened: No such file or directory".into()),
        (&["cat", "tree"], 3, "tree: cannot be opened: it is a folder, not a file".into()),
        (&["ls", "empty"], 4, "empty: is empty: a file of 0 bytes is no archive; its writing may have failed".into()),
        (&["cat", "a.tar", "nope"], 1, "a.tar: nope: no such file or folder".into()),
        (&["cat", "a.tar", "tree"], 1, "a.tar: tree: is a folder".into()),
        (
            &["ls", "-d", "x", "a.tar"],
            2,
            "--debug x: give a number: 0, 1, 2, or 3 for everything; a folder itself is listed with --directory".into(),
        ),
        (&["-o", "debug=x", "a.tar"], 2, "--debug x: give a number: 0, 1, 2, or 3 for everything".into()),
        (&["ls", "--recursion-depth=x", "a.tar"], 2, "--recursion-depth x: give a number".into()),
        (&["ls", "--cache-size=x", "a.tar"], 2, format!("--cache-size x: {size}")),
        (
            &["cat", "--range=x", "a.tar"],
            2,
            "--range x: give OFFSET:LENGTH in bytes or with K, M or G behind them, such as 10:1K, or 512M: for all from \
             there on"
                .into(),
        ),
        (&["a.tar", ""], 2, "argument 2 is empty".into()),
        (&["ls", "", "a.tar"], 2, "argument 2 is empty".into()),
        (
            &["ls", "--passwrd", "x", "a.tar"],
            2,
            "--passwrd is not an option of tarnfs ls; did you mean --password? Or see tarnfs ls --help".into(),
        ),
        (&["."], 2, ".: name a mount point: tarnfs . MOUNTPOINT".into()),
        (
            &["ls", "-ld", "tree", "a.tar"],
            2,
            "--debug tree: give a number: 0, 1, 2, or 3 for everything; a folder itself is listed with --directory"
                .into(),
        ),
        (
            &["-P", "many", "a.tar"],
            2,
            "--parallelization many: give a number of threads, or CODEC:NUMBER,...,:NUMBER".into(),
        ),
        (&["ls"], 2, "no ARCHIVE is given: tarnfs ls [OPTIONS] ARCHIVE [PATH...]".into()),
        (&["index"], 2, "no ARCHIVE is given: tarnfs index [OPTIONS] ARCHIVE...".into()),
        (&[], 2, "which archive? See tarnfs --help".into()),
        (&["mounts", "x"], 2, "x: one argument too many: tarnfs mounts [OPTIONS]".into()),
        (
            &["ls", "--jsn", "a.tar"],
            2,
            "--jsn is not an option of tarnfs ls; did you mean --json? Or see tarnfs ls --help".into(),
        ),
        (&["-x", "a.tar"], 2, "-x is not an option of tarnfs; did you mean `tarnfs extract`? Or see tarnfs --help".into()),
        (&["ls", "--index-file"], 2, "--index-file needs a value: --index-file FILE".into()),
        (&["--transform", "a"], 2, "--transform needs 2 values: --transform RE REPLACEMENT".into()),
        (&["ls", "--recursive=yes", "a.tar"], 2, "--recursive takes no value: leave out yes".into()),
        (&["ls", "--json", "-l", "a.tar"], 2, "--json does not go with --long: leave one of them out".into()),
        (&["completions", "nosuch"], 2, "SHELL nosuch: give one of bash, zsh, fish".into()),
        (&["help", "nosuch"], 2, "nosuch: there is no such command; see tarnfs --help".into()),
        (&["-o", "nosuch", "a.tar"], 2, "-o nosuch: this option is not known; leave it out".into()),
        (&["a.tar", "/a/b/c"], 6, "cannot make mount point /a/b/c: /a does not exist".into()),
        (&["-u", "nothere"], 6, "nothere: nothing is mounted here".into()),
        (
            &["ls", "cut.tar.bz2"],
            5,
            "warning: cut.tar.bz2: damaged at byte 0 of the decoded data: bzip2: the compressed file is cut short \
             inside a bzip2 stream, at byte 20000 of the compressed file; what comes before it is served"
                .into(),
        ),
    ];
    for (words, code, says) in cases {
        let ran = Ran::from(tarnfs(&scratch).args(*words).current_dir(scratch.path("")).output().unwrap());
        assert_eq!((ran.code, ran.err), (*code, format!("tarnfs: {says}\n")), "{words:?}");
    }
    let cut = Ran::from(
        tarnfs(&scratch).args(["cat", "cut.tar.gz", "tree/f"]).current_dir(scratch.path("")).output().unwrap(),
    );
    for line in cut.err.lines() {
        assert_eq!(line.matches("cut.tar.gz").count(), 1, "{line}");
    }
    let checked = Ran::from(tarnfs(&scratch).args(["check", "a.tar"]).current_dir(scratch.path("")).output().unwrap());
    assert_eq!(
        checked.text(),
        "a.tar: whole: 1 file with 588895 bytes of content, which has no checksums to compare\n"
    );
    // A log has times.
    let log = scratch.path("log");
    run(
        &scratch,
        ["ls".as_ref(), "-d3".as_ref(), "--log-file".as_ref(), log.as_os_str(), scratch.path("a.tar").as_os_str()],
    )
    .ok();
    let log = fs::read_to_string(log).unwrap();
    for line in log.lines() {
        let parts: Vec<_> = line.splitn(5, ' ').collect();
        assert!(parts[0].len() == 10 && parts[1].len() == 12 && parts[2].len() == 5 && parts[3] == "debug:", "{line}");
    }
}

/// Where it was asked for, an index that cannot be written is an error, said in one line.
#[test]
fn an_index_that_cannot_be_written_is_an_error_where_it_was_asked_for() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -cf a.tar one");
    let ran = |words: &[&str]| {
        let ran = Ran::from(tarnfs(&scratch).args(words).current_dir(scratch.path("")).output().unwrap());
        (ran.code, ran.err)
    };
    for words in [
        &["--no-mount", "--index-file", "/proc/x", "a.tar"][..],
        &["index", "--index-file", "/proc/x", "a.tar"],
        &["ls", "--index-file", "/proc/x", "a.tar"],
    ] {
        let says = "tarnfs: a.tar: the index could not be written to /proc/x: a new file in /proc: No such file or directory\n";
        assert_eq!(ran(words), (7, says.to_owned()), "{words:?}");
    }
    for command in ["--no-mount", "index"] {
        let (code, message) = ran(&[command, "--index-folders", "/proc/x", "a.tar"]);
        assert!(code == 7 && message.lines().count() == 1 && message.contains("/proc/x/"), "{code}: {message}");
    }
    // Where the archive is only looked at it is a warning.
    let (code, message) = ran(&["ls", "--index-folders", "/proc/x", "a.tar"]);
    let starts = "tarnfs: warning: a.tar: the index could not be written to /proc/x/";
    assert!(code == 0 && message.lines().count() == 1 && message.starts_with(starts), "{code}: {message}");
    if can_mount() {
        assert_eq!(ran(&["--index-file", "/proc/x", "a.tar", "at"]).0, 7);
        assert!(!scratch.path("at").exists());
    }
    assert_eq!(ran(&["--no-mount", "a.tar"]), (0, String::new()));
    assert!(scratch.path("a.tar.tarnfs.sqlite").exists(), "also of a small archive");
}

/// What follows `words` in a shell, as the program says it.
fn offered(scratch: &Scratch, words: &[&str]) -> String {
    let mut command = tarnfs(scratch);
    command.args(["__complete", "--", "tarnfs"]).args(words).current_dir(scratch.path(""));
    let ran = command.output().map(Ran::from);
    ran.expect("the program is built").ok().text()
}

#[test]
fn completions_offer_what_may_come_next() {
    let scratch = Scratch::new();
    scratch
        .shell("mkdir -p tree/sub at; seq 9 > tree/sub/nine; touch 'tree/with space' tree/nothing; tar cf a.tar tree");
    let offered = |words: &[&str]| offered(&scratch, words);
    assert!(offered(&[""]).starts_with("files\nmount\t"), "{}", offered(&[""]));
    assert!(!offered(&[""]).contains("\n-"));
    for words in [&["ls", ""][..], &["check", "a.tar", ""], &["--index-file", ""], &["cat", "--log-file="]] {
        assert_eq!(offered(words), "files\n", "{words:?}");
    }
    // Of two values, and the archive.
    assert_eq!(offered(&["--transform", "a", ""]), "nothing\n");
    assert_eq!(offered(&["ls", "--transform", "a", "b", "a.t"]), "files\n");
    assert_eq!(offered(&["ls", "--transform", "tree", "b", "a.tar", ""]), "nothing\nb/\n");
    for words in [&["a.tar", ""][..], &["mount", "-f", "a.tar", "a"], &["--index-folders", ""]] {
        assert_eq!(offered(words), "folders\n", "{words:?}");
    }
    assert_eq!(offered(&["ls", "a.tar", ""]), "nothing\ntree/\n");
    assert_eq!(
        offered(&["cat", "-P", "1", "a.tar", "x", "tree/"]),
        "nothing\ntree/nothing\ntree/sub/\ntree/with space\n"
    );
    assert_eq!(offered(&["stat", "--json", "a.tar", "/tree/sub/n"]), "nothing\n/tree/sub/nine\n");
    assert_eq!(offered(&["extract", "-C", "x", "a.tar", "tree/s"]), "nothing\ntree/sub/\n");
    assert_eq!(offered(&["extract", "-C", ""]), "folders\n");
    assert_eq!(offered(&["ls", "missing.tar", ""]), "nothing\n");
    assert_eq!(offered(&["completions", ""]), "nothing\nbash\nzsh\nfish\n");
    // bash splits at the sign.
    assert!(offered(&["index", "--format", "=", "ra"]).starts_with("nothing\nratarmount\t"));
    assert_eq!(offered(&["ls", "--js"]), "nothing\n--json\tPrint one JSON object for each entry, one on a line\n");
    for option in ["index-folders", "gzip-seek-point-spacing", "foreground", "unmount"] {
        let typed = format!("--{}", &option[..4]);
        assert!(offered(&[&typed]).contains(&format!("\n--{option}\t")), "{option}");
    }
    assert_eq!(scratch.shell("ls"), "a.tar\nat\ntree\n", "an index is made by nobody who looks");
    if can_mount() {
        let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &[]);
        let (at, name) = (mounted.at.to_str().unwrap(), mounted.at.file_name().unwrap().to_str().unwrap());
        // As it is typed: from here, or from the root.
        for (typed, word) in [(&at[..at.len() - 1], at), (&name[..1], name)] {
            let archive = scratch.path("a.tar");
            let line = format!("\n{word}\t{}\n", archive.display());
            assert!(offered(&["-u", typed]).contains(&line), "{typed}: {}", offered(&["-u", typed]));
        }
    }
}

/// Whoever types waits for it.
#[test]
fn completions_do_not_wait_for_a_bomb() {
    let scratch = Scratch::new();
    scratch.shell("head -c 45M /dev/zero | bzip2 > one.bz2");
    let one = fs::read(scratch.path("one.bz2")).unwrap();
    // Terabytes, which take hours.
    let bomb = one.repeat((12 << 20) / one.len());
    fs::write(scratch.path("bomb.bz2"), bomb).unwrap();
    let mut command = support::behind(&scratch, &["timeout", "300"]);
    command.args(["__complete", "--", "tarnfs", "ls", "bomb.bz2", ""]).current_dir(scratch.path(""));
    let ran = Ran::from(command.output().unwrap()).ok();
    assert_eq!(ran.text(), "nothing\n");
}

/// Passwords are not asked for meanwhile, and no pipe is waited for.
#[test]
fn completions_do_not_wait_for_passwords() {
    let scratch = Scratch::new();
    scratch.shell("touch file; tar cf a.tar file; mkfifo pipe; echo secret > secret; cp secret ./-");
    for (option, offered) in [
        ("--password-file=pipe", "nothing\n"),
        ("--password-file=-", "nothing\n"),
        ("--zstd-dictionary=pipe", "nothing\n"),
        ("--password-file=secret", "nothing\nfile\n"),
    ] {
        let mut command = support::behind(&scratch, &["timeout", "300"]);
        command.args(["__complete", "--", "tarnfs", "ls", option, "a.tar", ""]).current_dir(scratch.path(""));
        // Of standard input nothing is taken.
        command.stdin(fs::File::open(scratch.path("secret")).unwrap());
        assert_eq!(Ran::from(command.output().unwrap()).ok().text(), offered, "{option}");
    }
}

#[test]
fn shells_take_what_is_offered() {
    let scratch = Scratch::new();
    scratch.shell("mkdir -p tree 'at here'; touch 'tree/with space' a.txt; tar cf a.tar tree");
    fs::create_dir(scratch.path("bin")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tarnfs"), scratch.path("bin/tarnfs")).unwrap();
    // Outside of a completion `compopt` says that there is none.
    let bash = |words: &str| {
        scratch.shell(&format!(
            "set +e; PATH=$PWD/bin:$PATH; export XDG_CACHE_HOME=$PWD/cache; source <(tarnfs completions bash)
             COMP_WORDS=(tarnfs {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
             _tarnfs tarnfs \"${{COMP_WORDS[COMP_CWORD]}}\" '' 2> /dev/null; printf '%s\n' \"${{COMPREPLY[@]}}\""
        ))
    };
    assert_eq!(bash("ls a."), "a.tar\na.txt\n");
    assert_eq!(bash("ls a.tar tree/"), "tree/with space\n");
    let folders = bash("a.tar ''");
    let mut folders: Vec<_> = folders.lines().collect();
    folders.sort_unstable();
    assert_eq!(folders, ["at here", "bin", "tree"]);
    assert_eq!(bash("a.tar a."), "a.tar\na.txt\n");
    // A name that is a pattern, too, stands for nothing else.
    scratch.shell("touch 'g*' g1");
    let files = bash("ls g");
    let mut files: Vec<_> = files.lines().collect();
    files.sort_unstable();
    assert_eq!(files, ["g*", "g1"]);
    // An alias that is there before the completions.
    let alias = scratch.shell(
        "set +e; PATH=$PWD/bin:$PATH; export XDG_CACHE_HOME=$PWD/cache; alias ratarmount='tarnfs -d 2'
         source <(tarnfs completions bash); complete -p ratarmount
         COMP_WORDS=(ratarmount ls a.tar tree/); COMP_CWORD=3; _tarnfs ratarmount tree/ '' 2> /dev/null
         printf '%s\n' \"${COMPREPLY[@]}\"",
    );
    assert_eq!(alias, "complete -o nosort -F _tarnfs ratarmount\ntree/with space\n");
    if have("zsh") {
        scratch.shell("PATH=$PWD/bin:$PATH; tarnfs completions zsh > _tarnfs; zsh -n _tarnfs");
        // Also in a shell that has no completions yet.
        let known = scratch.shell(
            "PATH=$PWD/bin:$PATH; export HOME=$PWD XDG_CACHE_HOME=$PWD/cache
             zsh -fc 'source <(tarnfs completions zsh); print $_comps[tarnfs]' 2>&1",
        );
        assert_eq!(known, "_tarnfs\n");
    }
    if have("fish") {
        let fish = |line: &str| {
            scratch.shell(&format!(
                "PATH=$PWD/bin:$PATH; export HOME=$PWD XDG_CACHE_HOME=$PWD/cache
                 fish --no-config -c \"tarnfs completions fish | source; complete -C '{line}'\""
            ))
        };
        assert_eq!(fish("tarnfs ls a.tar tree/"), "tree/with space\n");
        assert!(fish("tarnfs index --format=ra").starts_with("--format=ratarmount\t"));
        assert_eq!(fish("tarnfs a.tar at"), "at here/\n");
    }
}

#[test]
fn the_man_page_has_each_option_once_and_each_command_a_page() {
    let scratch = Scratch::new();
    let man = run(&scratch, ["man"]).ok().text();
    let headings: Vec<_> = man.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
    for heading in
        ["SYNOPSIS", "DESCRIPTION", "COMMANDS", "EXAMPLES", "FILES", "ENVIRONMENT", "\"EXIT STATUS\"", "\"SEE ALSO\""]
    {
        let plain = heading.trim_matches('"');
        assert_eq!(
            headings.iter().filter(|found| found.trim_matches('"') == plain).count(),
            1,
            "{plain}: {headings:?}"
        );
    }
    for option in ["index\\-folders", "ignore\\-zeros", "cache\\-size", "recursion\\-depth"] {
        let starts =
            man.lines().filter(|line| line.contains(&format!("\\-\\-{option}\\fR")) && line.starts_with("\\fB"));
        assert_eq!(starts.count(), 1, "{option}");
        let text = man.lines().skip_while(|line| !line.contains(&format!("\\-\\-{option}\\fR"))).nth(1);
        assert!(text.is_some_and(|text| !text.is_empty() && !text.starts_with('.')), "{option} has a text: {text:?}");
    }
    assert!(man.contains("the archive is damaged"), "{man}");
    // The one line of NAME is not all that there is to describe.
    assert!(man.contains("\ntarnfs \\- mounts archives as a file system\n"), "{man}");
    let described: Vec<_> = man.lines().skip_while(|line| *line != ".SH DESCRIPTION").skip(1).collect();
    assert!(described.iter().take_while(|line| !line.starts_with(".SH")).count() > 10, "{described:?}");
    let help = run(&scratch, ["-h"]).ok().text();
    assert!(help.lines().next().is_some_and(|first| first.ends_with("without unpacking.")), "{help}");
    // One screen.
    let options = help.lines().filter(|line| line.trim_start().starts_with('-') && !line.contains("--help"));
    assert!(help.lines().count() == 50 && options.count() <= 12, "{help}");
    let wide: Vec<_> = help.lines().filter(|line| line.len() > 80).collect();
    assert_eq!(wide, [""; 0], "what is wider takes a second line of a terminal");
    let shared = "below Archives in archives, Decoding, Index, Messages and Reading tar work here, too.";
    for command in [
        "mount",
        "unmount",
        "mounts",
        "index",
        "check",
        "ls",
        "cat",
        "extract",
        "compare",
        "stat",
        "serve",
        "completions",
        "man",
    ] {
        let page = run(&scratch, ["man", command]).ok().text();
        assert!(page.contains(&format!("tarnfs\\-{command}")) && page.contains("EXIT STATUS"), "{page}");
        assert!(!page.contains("ignore\\-zeros"), "{page}");
        let is_reader =
            ["mount", "index", "check", "ls", "cat", "extract", "compare", "stat", "serve"].contains(&command);
        let help = run(&scratch, [command, "--help"]).ok().text().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!((page.contains(shared), help.ends_with(shared)), (is_reader, is_reader), "{command}: {help}");
    }
    for (command, synopsis) in [("index", "[OPTIONS] ARCHIVE..."), ("ls", "[OPTIONS] ARCHIVE [PATH...]")] {
        let page = run(&scratch, ["man", command]).ok().text();
        assert!(page.contains(&format!(".SH SYNOPSIS\n.B tarnfs {command}\n{synopsis}\n")), "{page}");
        let help = run(&scratch, [command, "--help"]).ok().text();
        assert!(help.contains(&format!("\nUsage: tarnfs {command} {synopsis}\n")), "{help}");
    }
    let refused = run(&scratch, ["man", "nosuch"]);
    assert_eq!(
        (refused.code, refused.err.as_str()),
        (2, "tarnfs: nosuch: there is no such command; see tarnfs --help\n")
    );
}

#[test]
fn encoding_converts_names_that_are_not_utf8() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; touch \"$(printf 'tree/b\\344r')\" tree/bär2; ln -s \"$(printf 'b\\344r')\" tree/link; tar -C tree -cf a.tar .");
    let ls = |options: &[&str]| {
        let archive = scratch.path("a.tar");
        let arguments = ["ls", archive.to_str().unwrap(), "-l"].into_iter().chain(options.iter().copied());
        run(&scratch, arguments).ok().out
    };
    assert!(ls(&[]).windows(3).any(|bytes| bytes == b"b\xe4r"));
    let converted = String::from_utf8(ls(&["-e", "latin1"])).unwrap();
    assert!(
        converted.contains(" bär\n") && converted.contains(" bär2\n") && converted.contains("link -> bär\n"),
        "{converted}"
    );
    let bad = tarnfs(&scratch).args(["ls", "-e", "no-such"]).arg(scratch.path("a.tar")).output().unwrap();
    assert_eq!(bad.status.code(), Some(2));
}

#[test]
fn files_of_nothing_are_told_apart() {
    let scratch = Scratch::new();
    scratch.shell(
        ": > empty.tar; head -c 512 /dev/zero > lone.tar; tar -cf nothing -T /dev/null; tar -czf nothing.tar.gz -T /dev/null
         head -c 2M /dev/zero > disk.img; head -c 100K /dev/zero > disk; (cat disk; echo end) > later; gzip -k disk",
    );
    for (archive, code, says) in [
        ("empty.tar", 4, "0 bytes"),
        ("lone.tar", 0, ""),
        ("nothing", 0, ""),
        ("nothing.tar.gz", 0, ""),
        ("disk", 0, ""),
        ("disk.img", 4, "zero bytes"),
        ("later", 4, "zero bytes"),
    ] {
        let ran = run(&scratch, ["ls".as_ref(), scratch.path(archive).as_os_str()]);
        assert_eq!((ran.code, ran.out.as_slice()), (code, &b""[..]), "{archive}: {}", ran.err);
        assert!(ran.err.contains(says), "{archive}: {}", ran.err);
        // Advice for an empty tar is for what may be one.
        assert_eq!(ran.err.contains("empty tar"), archive == "later", "{archive}: {}", ran.err);
    }
    // A compressed file of zeros is that file.
    let ran = run(&scratch, ["ls".as_ref(), scratch.path("disk.gz").as_os_str()]).ok();
    assert_eq!(ran.text(), "disk\n");
    let ran = run(&scratch, ["cat".as_ref(), scratch.path("disk.gz").as_os_str(), "disk".as_ref()]).ok();
    assert_eq!(ran.out, vec![0; 100 << 10]);
}

/// What tarnfs cannot read it calls by its name.
#[test]
fn other_formats_are_named() {
    let scratch = Scratch::new();
    scratch.shell(
        "python3 -c \"
import sqlite3
sqlite3.connect('x.db').execute('create table t (x)')\"
         printf text > t; tar -cf t.tar t
         (printf DWARFS; head -c 506 /dev/zero; cat t.tar) > x.dwarfs; gzip -k x.db",
    );
    for (archive, what) in [("x.db", "an SQLite database"), ("x.dwarfs", "a DwarFS image")] {
        let path = scratch.path(archive);
        for command in [&["ls"][..], &["-f"]] {
            let ran = run(&scratch, command.iter().map(|word| OsStr::new(*word)).chain([path.as_os_str()]));
            let says = format!("{}: is {what}, which tarnfs cannot read yet", path.display());
            assert!(ran.code == 4 && ran.err.contains(&says), "{archive}: {} {}", ran.code, ran.err);
        }
    }
    // In a compressed file it is the file that it is.
    let ran = run(&scratch, ["ls".as_ref(), scratch.path("x.db.gz").as_os_str()]).ok();
    assert_eq!(ran.text(), "x.db\n");
}

/// A header that is gone, or a file that is something else: what the name promises is a hint.
#[test]
fn what_a_name_says_is_told_where_the_content_says_nothing() {
    let scratch = Scratch::new();
    scratch.shell(
        "echo one > one; tar -cf a.tar one; gzip -n a.tar; printf '\\336\\255\\276\\357' | dd of=a.tar.gz conv=notrunc status=none
         echo '<!DOCTYPE html><html></html>' > page.tar.xz; head -c 2000 /dev/zero > zeros.TGZ; printf 'no tar' > text.tar",
    );
    let start = fs::read(scratch.path("a.tar.gz")).unwrap()[4..16]
        .iter()
        .fold(String::new(), |text, byte| format!("{text} {byte:02x}"));
    for (name, says) in [
        ("a.tar.gz", format!("gzip, but it starts with the bytes de ad be ef{start}")),
        ("page.tar.xz", "xz, but it starts with \"<!DOCTYPE html><\"".to_owned()),
        ("zeros.TGZ", format!("gzip, but it starts with the bytes{}", " 00".repeat(16))),
        ("text.tar", "tar, but it starts with \"no tar\"".to_owned()),
    ] {
        let ran = Ran::from(tarnfs(&scratch).args(["ls", name]).current_dir(scratch.path("")).output().unwrap());
        let hint = "is not an archive that tarnfs knows: its name says";
        let expected = format!("tarnfs: {name}: {hint} {says}; it may be damaged or encrypted\n");
        assert_eq!((ran.code, ran.err), (4, expected), "{name}");
    }
}

#[test]
fn an_option_without_effect_is_named() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -cf a.tar one");
    for (words, says) in [
        (&["-s"][..], "-s (--strip-recursive-tar-extension)"),
        (&["--transform-recursive-mount-point", "a", "b"], "--transform-recursive-mount-point"),
    ] {
        let mut command = tarnfs(&scratch);
        let ran = Ran::from(command.arg("ls").args(words).arg("a.tar").current_dir(scratch.path("")).output().unwrap());
        let warning = format!("tarnfs: warning: {says} has no effect without -r (--recursive)\n");
        assert_eq!((ran.code, ran.err), (0, warning), "{words:?}");
    }
}

#[test]
fn index_says_where_it_wrote() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -cf a.tar one; gzip -k a.tar");
    let ran = |words: &[&str]| {
        let ran = Ran::from(tarnfs(&scratch).args(words).current_dir(scratch.path("")).output().unwrap()).ok();
        (ran.text(), ran.err)
    };
    let path = |name: &str| scratch.path(name).display().to_string();
    let (one, two) = (path("a.tar.tarnfs.sqlite"), path("a.tar.gz.tarnfs.sqlite"));
    let written = format!("a.tar: index written to {one}\na.tar.gz: index written to {two}\n");
    assert_eq!(ran(&["index", "a.tar", "a.tar.gz"]), (written, String::new()));
    assert_eq!(ran(&["index", "a.tar"]), (format!("a.tar: its index {one} is up to date\n"), String::new()));
    let sidecar = "a.tar: index written to a.tar.index.sqlite\n".to_owned();
    assert_eq!(ran(&["index", "--format=ratarmount", "a.tar"]), (sidecar, String::new()));
    // An option of ratarmount, and of its users' scripts.
    assert_eq!(ran(&["--no-mount", "-c", "a.tar"]), (String::new(), String::new()));
}

#[test]
fn a_terminal_gets_no_bytes_that_are_not_text() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -cf a.tar one; gzip -k a.tar");
    let cat = |words: &str| {
        let command = format!("{} cat {words}", env!("CARGO_BIN_EXE_tarnfs"));
        let mut script = Command::new("script");
        script.args(["-qec", &command, "/dev/null"]).env("NO_COLOR", "1").env("XDG_CACHE_HOME", scratch.path("cache"));
        let output = script.current_dir(scratch.path("")).stdin(Stdio::null()).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stdout).replace('\r', ""))
    };
    let refused =
        "tarnfs: standard output is a terminal, and this is not text: send it to a file or a pipe, or give --binary\n";
    for words in ["a.tar", "a.tar.gz", "--range 0:1000 a.tar.gz"] {
        assert_eq!(cat(words), (1, refused.to_owned()), "{words}");
    }
    assert_eq!(cat("a.tar.gz one"), (0, "one\n".to_owned()));
    let (code, shown) = cat("--binary a.tar.gz");
    assert!(code == 0 && shown.starts_with("one\0"), "{code}: {shown}");
}

#[test]
fn a_url_is_called_one() {
    let scratch = Scratch::new();
    let mnt = scratch.path("mnt");
    for url in ["smb://example.org/x.tar", "gopher://host/x.tar.gz", "git+ssh://host/x"] {
        for words in [&["ls", url][..], &[url], &[url, mnt.to_str().unwrap()]] {
            let ran = run(&scratch, words);
            assert!(ran.code == 3 && ran.err.contains(&format!("{url}: is a URL of a kind")), "{words:?}: {}", ran.err);
        }
    }
    for path in ["://x", "1a://x", "a b://x", "x:/y"] {
        let ran = run(&scratch, ["ls", path]);
        assert!(ran.code == 3 && ran.err.contains("No such file"), "{path}: {}", ran.err);
    }
}

#[test]
fn paths_mean_what_they_mean_to_the_kernel() {
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell("ln -s folder tree/to-folder; tar -C tree -cf a.tar .");
    let of =
        |command: &str, path: &str| run(&scratch, [command.as_ref(), scratch.path("a.tar").as_os_str(), path.as_ref()]);
    for path in ["file/", "folder/random/", "file/.", "link/", "file/inner"] {
        for command in ["ls", "cat", "stat"] {
            let ran = of(command, path);
            assert_eq!(ran.code, 1, "{command} {path}");
            assert!(ran.err.contains("not a folder"), "{command} {path}: {}", ran.err);
        }
    }
    for path in ["folder/", "to-folder/", "folder/.", "/", "", "folder//inner/"] {
        of("ls", path).ok();
    }
    assert!(of("stat", "to-folder").ok().text().contains("symlink"));
    assert!(of("stat", "to-folder/").ok().text().contains("Type: folder"));
    let ran = of("cat", "dangling");
    assert!(ran.err.contains("dangling: is a symbolic link to ../../up/and/away, which is not"), "{}", ran.err);
}

#[test]
fn output_that_cannot_be_written_is_no_fault_of_the_archive() {
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell("tar -C tree -cf a.tar .");
    for arguments in [&["ls"][..], &["ls", "--json"], &["stat", "file"], &["cat", "file"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = tarnfs(&scratch);
        command.arg(arguments[0]).arg(scratch.path("a.tar")).args(&arguments[1..]).stdout(full);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("standard output"), "{arguments:?}: {said}");
    }
}

#[test]
fn a_log_goes_to_no_file_that_is_something_else() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; echo hello > tree/file; tar -C tree -cf a.tar .; gzip -k a.tar; seq 1 9999 | gzip > text.gz
         printf 'warning: b\\303\\244r\\n' > log; cat a.tar > other.tar; printf '\\303' >> log; cp log before",
    );
    let logged = |archive: &str, log: &str| {
        let mut command = tarnfs(&scratch);
        command.args(["ls", "-d", "3", "--log-file"]).args([scratch.path(log), scratch.path(archive)]);
        support::Ran::from(command.output().unwrap())
    };
    for log in ["other.tar", "a.tar", "a.tar.gz", "text.gz"] {
        let before = fs::read(scratch.path(log)).unwrap();
        let ran = logged("a.tar.gz", log);
        assert_eq!(ran.code, 2, "{log}");
        assert!(ran.err.contains("--log-file") && ran.err.contains(log), "{}", ran.err);
        assert!(before == fs::read(scratch.path(log)).unwrap(), "{log} was changed");
    }
    for log in ["log", "new"] {
        logged("a.tar", log).ok();
    }
    let (before, after) = (fs::read(scratch.path("before")).unwrap(), fs::read(scratch.path("log")).unwrap());
    assert!(after.starts_with(&before) && after.len() > before.len());
    assert!(fs::read_to_string(scratch.path("new")).unwrap().contains("a.tar"));
    logged("a.tar", "/dev/null").ok();
}

#[test]
fn the_log_tells_which_index_was_used_and_why() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; for i in $(seq 1200); do echo $i > tree/$i; done; tar -C tree -czf a.tar.gz .");
    let log = || {
        let ran = run(&scratch, ["ls".as_ref(), "-d3".as_ref(), scratch.path("a.tar.gz").as_os_str()]).ok();
        ran.err
    };
    let first = log();
    assert!(first.contains("no index at") && first.contains("index of 1201 entries written to"), "{first}");
    let second = log();
    assert!(second.contains("a.tar.gz.tarnfs.sqlite is used") && !second.contains("written"), "{second}");
    scratch.shell("tar -C tree -czf a.tar.gz 1");
    let third = log();
    assert!(third.contains("warning") && third.contains("a.tar.gz.tarnfs.sqlite"), "{third}");
    assert!(third.contains("index of 1 entries written to memory"), "{third}");
}

#[test]
fn an_index_for_ratarmount_comes_alone() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; for i in $(seq 1200); do echo $i > tree/$i; done; tar -C tree -czf a.tar.gz .");
    run(&scratch, ["index".as_ref(), "--format=ratarmount".as_ref(), scratch.path("a.tar.gz").as_os_str()]).ok();
    assert_eq!(scratch.shell("ls"), "a.tar.gz\na.tar.gz.index.sqlite\ntree\n");
    assert!(!scratch.path("cache").exists());
}

/// Each archive is closed before the next is opened, with all that belongs to it.
#[test]
fn many_archives_take_no_more_descriptors_than_one() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; echo hello > tree/file; tar -C tree -czf 1.tgz .; for i in $(seq 2 150); do ln 1.tgz $i.tgz; done",
    );
    for command in ["check", "index"] {
        let script = format!("ulimit -n 64; exec {} {command} *.tgz", env!("CARGO_BIN_EXE_tarnfs"));
        let mut bash = Command::new("bash");
        bash.args(["-c", &script]).current_dir(scratch.path("")).env("XDG_CACHE_HOME", scratch.path("cache"));
        support::Ran::from(bash.stdin(Stdio::null()).output().unwrap()).ok();
    }
}

#[test]
fn standard_input_is_an_archive_of_its_own() {
    let scratch = Scratch::new();
    scratch.shell("echo hello > file; tar -czf a.tar.gz file; gzip -c file > one.gz");
    let tarnfs = env!("CARGO_BIN_EXE_tarnfs");
    let of =
        |line: &str| scratch.shell(&format!("export XDG_CACHE_HOME=$PWD/cache; {}", line.replace("tarnfs", tarnfs)));
    // A pipe, and a file.
    for from in ["cat a.tar.gz | tarnfs ARGS", "tarnfs ARGS < a.tar.gz"] {
        let run = |arguments| of(&from.replace("ARGS", arguments));
        assert_eq!(run("ls --index-minimum-file-count=0 -"), "file\n", "{from}");
        assert_eq!(run("cat - file"), "hello\n", "{from}");
        assert!(run("stat - file").contains("6 bytes"), "{from}");
    }
    assert_eq!(of("cat one.gz | tarnfs cat -"), "hello\n");
    assert_eq!(of("tarnfs ls - < one.gz"), "file\n");
    assert_eq!(of("gzip < file | tarnfs ls -"), "stdin\n");
    assert!(scratch.shell("ls").lines().all(|name| !name.ends_with(".sqlite")));
    let nothing = run(&scratch, ["ls", "-"]);
    assert_eq!((nothing.code, nothing.out.is_empty()), (4, true), "{}", nothing.err);
}

/// As `tar -t` does: whoever started the program may have read what comes before.
#[test]
fn a_file_on_standard_input_begins_where_it_stands() {
    let scratch = Scratch::new();
    scratch.shell("echo hello > file; echo other > other; tar -cf b.tar other; tar -czf a.tar.gz file");
    let tarnfs = env!("CARGO_BIN_EXE_tarnfs");
    for archive in ["a.tar.gz", "b.tar"] {
        scratch.shell(&format!("(cat b.tar; cat {archive}) > both"));
        let skipped = "export XDG_CACHE_HOME=$PWD/cache; (head -c $(stat -c %s b.tar) > skipped;";
        let read = |line: &str| scratch.shell(&format!("{skipped} {tarnfs} {line}) < both"));
        let name = if archive == "b.tar" { "other" } else { "file" };
        assert_eq!(read("ls -"), format!("{name}\n"));
        let content = if archive == "b.tar" { "other\n" } else { "hello\n" };
        assert_eq!(read(&format!("cat - {name}")), content);
    }
    // At its end there is nothing.
    let output = scratch.shell(&format!("(cat > all; {tarnfs} ls - 2>&1 || echo $?) < both"));
    assert!(output.ends_with("4\n"), "{output}");
    // What cannot be read has nothing to do with where a copy is written.
    let output = scratch.shell(&format!("{tarnfs} ls - < . 2>&1 || echo $?"));
    assert!(output.contains("standard input: it is a folder") && !output.contains("TMPDIR"), "{output}");
    assert!(output.ends_with("3\n"), "{output}");
}

/// > What comes from a pipe is copied only as long as others have space, and the error says where it was copied to.
#[test]
fn a_pipe_does_not_fill_the_disk() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir small; mount -t tmpfs -o size=64m none small");
    let script = format!(
        "head -c 1G /dev/zero | TMPDIR=$PWD/small {} ls - 2>&1; echo ${{PIPESTATUS[1]}}",
        env!("CARGO_BIN_EXE_tarnfs")
    );
    let output = Command::new("bash").args(["-c", &script]).current_dir(scratch.path("")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let left = scratch.shell("stat -f -c '%b %f' small; umount small");
    let small = scratch.path("small");
    assert!(
        said.contains(&format!("a copy of it in {} would leave less than 6710886 bytes free", small.display())),
        "{said}"
    );
    assert!(said.contains("TMPDIR") && said.ends_with("\n3\n"), "{said}");
    let blocks: Vec<&str> = left.split_whitespace().collect();
    assert_eq!(blocks[0], blocks[1], "nothing is left there");
}
