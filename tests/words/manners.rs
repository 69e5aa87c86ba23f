//! What somebody sees who has only read the README: encrypted files are told at once, options may stand in any order,
//! and what a message says can be done.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::io::Write as _;

use crate::support::{self, Mounted, Ran, Scratch, can_mount, have, is_mounted, tarnfs, wait_until};

/// Runs the program in the scratch folder: exit code and both outputs.
#[track_caller]
fn ran(scratch: &Scratch, words: &[&str]) -> (i32, String, String) {
    let ran = Ran::from(tarnfs(scratch).args(words).current_dir(scratch.path("")).output().unwrap());
    (ran.code, ran.text(), ran.err)
}

/// Archives whose names can be read and whose files cannot: of the old cipher of zip, of AES in zip, of 7z.
fn encrypted(scratch: &Scratch) -> &'static [&'static str] {
    scratch.shell(
        "seq 10 > few; seq 1000 > many; seq 100000 > numbers; zip -q -P secret old.zip few many numbers
         7z a -bd -bso0 -psecret -mem=AES256 aes.zip few many numbers; 7z a -bd -bso0 -psecret x.7z few many numbers",
    );
    &["old.zip", "aes.zip", "x.7z"]
}

/// A pipe is read once, also for several archives, and where another process makes an index meanwhile.
#[test]
fn passwords_may_come_through_a_pipe() {
    if !have("zip") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("echo one > one; zip -q -P secret a.zip one; cp a.zip b.zip; mkdir at");
    let program = env!("CARGO_BIN_EXE_tarnfs");
    let shell = |script: &str| scratch.shell(&format!("export XDG_CACHE_HOME=$PWD/cache; {script}"));
    let whole = "a.zip: whole: 1 file with 4 bytes of content\nb.zip: whole: 1 file with 4 bytes of content\n";
    assert_eq!(shell(&format!("{program} check --password-file <(echo secret) a.zip b.zip")), whole);
    if !can_mount() {
        return;
    }
    // What lies where a sidecar of ratarmount would is a reason to start that process.
    scratch.shell("touch a.zip.index.sqlite; mkfifo fifo; ln -s fifo link");
    for (before, file, behind) in [
        ("echo secret |", "/dev/stdin", ""),
        ("", "fifo", "& echo secret > fifo"),
        ("", "link", "& echo secret > fifo"),
    ] {
        let mount = format!("{before} timeout 300 {program} --password-file {file} a.zip at");
        let read = shell(&format!("{mount} {behind}; wait; cat at/one; {program} -u at"));
        assert_eq!(read, "one\n", "{file}");
    }
}

#[test]
fn encrypted_files_are_told_when_an_archive_is_opened() {
    if !have("zip") || !have("7z") {
        return;
    }
    let scratch = Scratch::new();
    for archive in encrypted(&scratch) {
        let names = "few\nmany\nnumbers\n".to_owned();
        let told =
            format!("tarnfs: warning: {archive}: 3 of 3 files are encrypted: give --password or --password-file\n");
        assert_eq!(ran(&scratch, &["ls", archive]), (0, names.clone(), told.clone()));
        assert_eq!(ran(&scratch, &["ls", "--password", "secret", archive]), (0, names.clone(), String::new()));
        assert_eq!(
            ran(&scratch, &["ls", "--password", "wrong", "--password", "secret", archive]),
            (0, names, String::new())
        );
        let wrong = format!("tarnfs: {archive}: wrong password: none of its 3 encrypted files can be opened\n");
        assert_eq!(ran(&scratch, &["ls", "--password", "wrong", archive]), (3, String::new(), wrong.clone()));
        assert_eq!(ran(&scratch, &["check", "--password", "wrong", archive]), (3, String::new(), wrong.clone()));
        // Nobody knows whether they are damaged.
        let unchecked =
            format!("{archive}: 3 of 3 files are encrypted and were not checked: give --password or --password-file\n");
        assert_eq!(ran(&scratch, &["check", archive]), (3, unchecked, String::new()));
        let whole = format!("{archive}: whole: 3 files with 592809 bytes of content\n");
        assert_eq!(ran(&scratch, &["check", "--password", "secret", archive]), (0, whole, String::new()));
        let missing = format!("tarnfs: {archive}: few: it is encrypted: give --password or --password-file\n");
        assert_eq!(ran(&scratch, &["cat", archive, "few"]), (3, String::new(), missing));
        if !can_mount() {
            continue;
        }
        let path = scratch.path(archive).display().to_string();
        fs::write(scratch.path("log"), "").unwrap();
        let mounted = Mounted::new(&scratch, scratch.path(archive), &[]);
        assert_eq!(mounted.ran.err, told.replace(archive, &path));
        mounted.unmount();
        fs::write(scratch.path("log"), "").unwrap();
        let refused = Mounted::any(&scratch, scratch.path(archive), &["--password", "wrong"]);
        assert_eq!((refused.ran.code, refused.ran.err.as_str()), (3, wrong.replace(archive, &path).as_str()));
        assert!(!is_mounted(&refused.at));
    }
}

#[test]
fn some_files_may_be_encrypted_and_others_not() {
    if !have("zip") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "seq 10 > few; seq 1000 > many; zip -q -P secret a.zip few; zip -q a.zip many; cp a.zip plain.zip
         zip -q -d plain.zip few; zip -q -P secret one.zip few; tar cf outer.tar many one.zip",
    );
    let told = "tarnfs: warning: a.zip: 1 of 2 files is encrypted: give --password or --password-file\n";
    assert_eq!(ran(&scratch, &["ls", "a.zip"]), (0, "few\nmany\n".into(), told.into()));
    let unchecked = "a.zip: 1 of 2 files is encrypted and was not checked: give --password or --password-file\n";
    assert_eq!(ran(&scratch, &["check", "a.zip"]), (3, unchecked.into(), String::new()));
    // A password that is not needed is no error.
    assert_eq!(ran(&scratch, &["ls", "--password", "x", "plain.zip"]), (0, "many\n".into(), String::new()));
    let told = "tarnfs: warning: one.zip: its only file is encrypted: give --password or --password-file\n";
    assert_eq!(ran(&scratch, &["ls", "one.zip"]), (0, "few\n".into(), told.into()));
    let wrong = "tarnfs: one.zip: wrong password: its encrypted file cannot be opened\n";
    assert_eq!(ran(&scratch, &["ls", "--password", "wrong", "one.zip"]), (3, String::new(), wrong.into()));
    // One that lies in an archive without any is no reason not to show the rest.
    let told = "tarnfs: warning: outer.tar: 1 of 2 files is encrypted: give --password or --password-file\n";
    assert_eq!(ran(&scratch, &["ls", "-r", "outer.tar"]), (0, "many\none.zip\n".into(), told.into()));
    let told = "tarnfs: warning: outer.tar: 1 of 2 files is encrypted, and no password that is given opens any\n";
    assert_eq!(
        ran(&scratch, &["ls", "-r", "--password", "wrong", "outer.tar"]),
        (0, "many\none.zip\n".into(), told.into())
    );
}

#[test]
fn unmounting_takes_its_options_in_any_order() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("echo x > x; tar cf a.tar x");
    let none = (2, String::new(), "tarnfs: --unmount needs a value: --unmount MOUNTPOINT\n".to_owned());
    assert_eq!(ran(&scratch, &["-u"]), none);
    assert_eq!(ran(&scratch, &["-u", "-l"]), none);
    for words in [
        &["-u", "-l", "m"][..],
        &["-u", "m", "-l"],
        &["-l", "-u", "m"],
        &["-lu", "m"],
        &["-u", "m"],
        &["--unmount=m"],
        &["-u", "--", "-dash"],
        &["-u", "-l", "--", "-dash"],
        &["-u", "m", "-l", "-dash", "m"],
    ] {
        if words.contains(&"-dash") && !words.contains(&"--") {
            // Without `--` that is an option, which there is not.
            assert_eq!(ran(&scratch, words).0, 2, "{words:?}");
            continue;
        }
        let at = if words.contains(&"-dash") { "-dash" } else { "m" };
        assert_eq!(ran(&scratch, &["a.tar", &format!("./{at}")]), (0, String::new(), String::new()), "{words:?}");
        let mounted = scratch.path(at);
        wait_until("it is mounted", || is_mounted(&mounted));
        assert_eq!(ran(&scratch, words), (0, String::new(), String::new()), "{words:?}");
        assert!(!is_mounted(&mounted), "{words:?}");
        wait_until("its folder is removed", || support::is_gone(&mounted));
    }
}

/// Archives that were joined as files are.
#[test]
fn another_archive_behind_the_first_is_told_by_each_command() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; echo two > two; tar -cf a.tar one; tar -cf b.tar two; cat a.tar b.tar > both.tar");
    let told = "tarnfs: warning: both.tar: behind the end of the archive, at byte 10240, are 10240 more bytes; they \
                look like another tar: -i reads them, too\n";
    assert_eq!(ran(&scratch, &["ls", "both.tar"]), (0, "one\n".into(), told.into()));
    assert_eq!(ran(&scratch, &["cat", "both.tar", "one"]), (0, "one\n".into(), told.into()));
    let (code, out, err) = ran(&scratch, &["stat", "both.tar", "one"]);
    assert_eq!((code, err.as_str()), (0, told));
    assert!(out.contains("\n  Size: 4 bytes in 1 block of 512\n"), "{out}");
    assert_eq!(ran(&scratch, &["ls", "-i", "both.tar"]), (0, "one\ntwo\n".into(), String::new()));
    assert_eq!(ran(&scratch, &["ls", "a.tar"]), (0, "one\n".into(), String::new()));
}

/// What is compressed twice has no byte of the archive itself: the one is told at which its member lies.
#[test]
fn damage_in_an_archive_inside_names_the_byte_of_its_member() {
    if !have("zip") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "seq 100000 > x; tar cf bad.tar x; bzip2 bad.tar; truncate -s 20000 bad.tar.bz2
         seq 1000 | shuf --random-source=x > first; zip -q a.zip first; zip -q -9 a.zip bad.tar.bz2",
    );
    // The local header of the second member: behind its signature and fields come its name and its data.
    let bytes = fs::read(scratch.path("a.zip")).unwrap();
    let header =
        bytes.windows(4).enumerate().filter(|(_, part)| part == b"PK\x03\x04").map(|(at, _)| at).nth(1).unwrap();
    let (_, _, said) = ran(&scratch, &["ls", "-r", "a.zip"]);
    let place = said.strip_prefix("tarnfs: warning: a.zip: damaged at byte ").unwrap_or_else(|| panic!("{said}"));
    let (byte, rest) = place.split_once(' ').unwrap();
    let byte: usize = byte.parse().unwrap();
    assert!((header..header + 200).contains(&byte), "{header}: {said}");
    assert!(rest.starts_with("of the file: bad.tar.bz2: bzip2: the compressed file is cut short"), "{said}");
}

#[test]
fn what_is_no_archive_is_said_in_one_short_line() {
    let scratch = Scratch::new();
    scratch.shell("seq 100 > text");
    let said = "tarnfs: text: is not an archive that tarnfs knows; --formats lists those that it does\n";
    assert_eq!(ran(&scratch, &["ls", "text"]), (4, String::new(), said.into()));
    let (code, out, _) = ran(&scratch, &["--formats"]);
    assert!(code == 0 && out.contains("cpio") && out.contains("zstd"), "{out}");
}

/// Both indexes are kept: nothing is lost that somebody would have to know of.
#[test]
fn an_index_for_other_options_is_made_without_a_word() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; (cd tree; seq 1200 | xargs touch); tar cf a.tar tree");
    assert_eq!(ran(&scratch, &["index", "a.tar"]).0, 0);
    let listed = (0, "tree\n".to_owned(), String::new());
    assert_eq!(ran(&scratch, &["ls", "--hashes", "md5", "a.tar"]), listed);
    let (code, _, said) = ran(&scratch, &["ls", "-d", "2", "-e", "latin1", "a.tar"]);
    let kept =
        format!("index {} was made without options, and is kept; ", scratch.path("a.tar.tarnfs.sqlite").display());
    assert!(code == 0 && said.contains(&kept), "{said}");
}

#[test]
fn mounts_are_listed_as_json_and_each_on_one_line() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("echo x > x; tar cf 'a\nb.tar' x; mkdir 'm\nn'");
    let (archive, at) = (scratch.path("a\nb.tar"), scratch.path("m\nn"));
    assert_eq!(ran(&scratch, &["a\nb.tar", "m\nn"]), (0, String::new(), String::new()));
    let (code, out, err) = ran(&scratch, &["mounts"]);
    let (json_code, json, json_err) = ran(&scratch, &["mounts", "--json"]);
    assert_eq!(ran(&scratch, &["-u", "m\nn"]).0, 0);
    assert_eq!((code, err.as_str(), json_code, json_err.as_str()), (0, "", 0, ""));
    let line = format!("{}/a\\nb.tar on {}/m\\nn", scratch.path("").display(), scratch.path("").display());
    let line = line.replace("//", "/");
    // Since when is known where the kernel tells.
    let is_it =
        |other: &str| other.strip_prefix(&line).is_some_and(|rest| rest.is_empty() || rest.starts_with(" since "));
    assert!(out.lines().any(is_it), "{line}: {out}");
    let mut objects: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for object in &mut objects {
        object.as_object_mut().unwrap().retain(|key, _| !["since", "statistics"].contains(&key.as_str()));
    }
    let expected = serde_json::json!({
        "mountpoint": at.to_str().unwrap(),
        "archives": [{ "path": archive.to_str().unwrap() }],
        "more": 0,
    });
    assert!(objects.contains(&expected), "{json}");
}

/// As ls(1) does; programs get links as they are.
#[test]
fn links_are_listed_where_they_are_named() {
    let scratch = Scratch::new();
    scratch.shell("mkdir d; echo x > d/x; ln -s nowhere d/lost; ln -s x d/y; ln -s d link; tar cf t.tar d link; gzip < t.tar > u.tar.gz");
    let listed = |words: &[&str]| ran(&scratch, &[&["ls"], words].concat());
    assert_eq!(listed(&["t.tar", "d/*"]), (0, "d/lost\nd/x\nd/y\n".to_owned(), String::new()));
    assert_eq!(listed(&["t.tar", "d/lost"]).1, "d/lost\n");
    assert_eq!(listed(&["t.tar", "link"]).1, "lost\nx\ny\n");
    assert_eq!(listed(&["t.tar", "d/none"]).0, 1);
    let (code, json, _) = listed(&["--json", "t.tar", "link"]);
    let link: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (code, &link["path"], &link["type"], &link["target"]),
        (0, &"link".into(), &"symlink".into(), &"d".into())
    );
    // An option that takes back another one is there where that is.
    assert_eq!(listed(&["--verify-mtime", "--no-verify-mtime", "t.tar", "link"]).0, 0);
    let (_, help, _) = ran(&scratch, &["--help"]);
    let shared = help.split("\nArchives in archives:").nth(1).unwrap();
    assert!(help.contains("--lazy") && !shared.contains("--lazy"), "which ls does not take");
    assert_eq!(listed(&["--lazy", "t.tar"]).0, 2);
}

#[test]
fn damaged_files_are_marked_in_a_listing() {
    let scratch = Scratch::new();
    scratch.shell(
        "for name in a b c; do head -c 300000 /dev/urandom > $name; done; ln -s a link; tar -cf a.tar a b c link
         xz -0 --block-size=65536 a.tar; printf oops | dd of=a.tar.xz bs=1 seek=450000 conv=notrunc status=none",
    );
    let ends = |long: &str| -> Vec<String> {
        long.lines().map(|line| line.split_once(':').unwrap().1.split_once(' ').unwrap().1.to_owned()).collect()
    };
    // What a program reads are names.
    let (code, long, _) = ran(&scratch, &["ls", "-l", "a.tar.xz"]);
    assert_eq!((code, ends(&long)), (5, ["a", "b", "c", "link -> a"].map(str::to_owned).to_vec()), "{long}");
    if have("python3") {
        let script = format!(
            "import pty; pty.spawn(['{}', 'ls', '-l', '--log-file', 'log', 'a.tar.xz'])",
            env!("CARGO_BIN_EXE_tarnfs")
        );
        fs::write(scratch.path("at_terminal.py"), script).unwrap();
        let long = scratch.shell("python3 at_terminal.py < /dev/null").replace("\r\n", "\n");
        assert_eq!(ends(&long), ["a", "b (damaged)", "c", "link -> a"], "{long}");
    }
    let (code, json, _) = ran(&scratch, &["ls", "--json", "a.tar.xz"]);
    let objects = json.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let damaged: Vec<_> = objects.map(|object| object["damage"].is_string()).collect();
    assert_eq!((code, damaged), (5, vec![false, true, false, false]), "{json}");
    // Who reads only the names gets nothing else.
    assert_eq!(ran(&scratch, &["ls", "a.tar.xz"]).1, "a\nb\nc\nlink\n");
}

#[test]
fn stat_leaves_a_line_free_between_two_that_it_shows() {
    let scratch = Scratch::new();
    scratch.shell("mkdir d; echo x > d/a; tar cf t.tar d");
    let (code, out, err) = ran(&scratch, &["stat", "t.tar", "missing", "d/a", "d"]);
    assert!(out.starts_with("  Path: d/a\n") && out.contains("\n\n  Path: d\n"), "{out}");
    assert!(code == 1 && err.contains("missing"), "{err}");
}

#[test]
fn an_index_file_for_standard_input_is_said_not_to_be_used() {
    let scratch = Scratch::new();
    scratch.shell("echo x > x; tar cf t.tar x");
    let mut command = support::tarnfs(&scratch);
    command.args(["ls", "--index-file", "named", "-"]).stdin(fs::File::open(scratch.path("t.tar")).unwrap());
    let output = command.current_dir(scratch.path("")).output().unwrap();
    let told = "tarnfs: warning: --index-file named: not used: an archive on standard input has no index on disk\n";
    assert_eq!((output.stdout.as_slice(), String::from_utf8(output.stderr).unwrap().as_str()), (&b"x\n"[..], told));
    assert!(!scratch.path("named").exists());
}

#[test]
fn mounts_say_since_when_and_what_they_have_done() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("echo x > x; tar cf a.tar x");
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let before = now();
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-d", "2"]);
    fs::read(mounted.path("x")).unwrap();
    let (_, out, _) = ran(&scratch, &["mounts"]);
    let (_, json, _) = ran(&scratch, &["mounts", "--json"]);
    let at = mounted.at.display().to_string();
    let line = out.lines().find(|line| line.contains(&at)).unwrap();
    let (_, since) = line.split_once(" since ").unwrap();
    let date = |seconds: u64| scratch.shell(&format!("date -d @{seconds} '+%Y-%m-%d %H:%M'")).trim().to_owned();
    assert!((before..=now()).any(|seconds| date(seconds) == since), "{line}");
    let mut objects = json.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let object = objects.find(|object| object["mountpoint"] == at.as_str()).unwrap();
    assert!((before..=now()).contains(&object["since"].as_u64().unwrap()), "{object}");
    assert!(object["statistics"]["requests"]["lookup"].as_u64() > Some(0), "{object}");
    mounted.unmount();
    // One of which the kernel asks for no attributes: it tells the same, and the kernel still does not ask.
    let before = now();
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &[]);
    for _ in 0..2 {
        let (_, json, _) = ran(&scratch, &["mounts", "--json"]);
        let at = mounted.at.display().to_string();
        let mut objects = json.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let object = objects.find(|object| object["mountpoint"] == at.as_str()).unwrap();
        assert!((before..=now()).contains(&object["since"].as_u64().unwrap()), "{object}");
        assert!(object["statistics"]["requests"]["other"].as_u64() > Some(0), "{object}");
        assert_eq!(object.get("name"), None, "{object}");
        let mut value = [0; 100];
        let asked = rustix::fs::getxattr(&mounted.at, "user.tarnfs.statistics", &mut value[..]);
        assert_eq!(asked, Err(rustix::io::Errno::OPNOTSUPP));
    }
    mounted.unmount();
}

#[test]
fn a_mount_with_a_name_of_its_own_tells_its_archives() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir link; echo x > x; tar cf a.tar x; cp a.tar b.tar; ln -s . link/to");
    let name = format!("name-of-{}", std::process::id());
    let [a, b, at] = ["a.tar", "b.tar", "at"].map(|name| scratch.path(name).display().to_string());
    for named in ["a.tar", "b.tar", "link/to/../a.tar", &name] {
        let nothing = (0, String::new(), String::new());
        assert_eq!(ran(&scratch, &["-o", &format!("fsname={name}"), "a.tar", "b.tar", "at"]), nothing);
        let (_, out, _) = ran(&scratch, &["mounts"]);
        let line = out.lines().find(|line| line.contains(&at)).unwrap();
        assert!(line.starts_with(&format!("{name} ({a}, {b}) on {at} since ")), "{line}");
        let (_, json, _) = ran(&scratch, &["mounts", "--json"]);
        let mut objects = json.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let object = objects.find(|object| object["mountpoint"] == at.as_str()).unwrap();
        let archives = serde_json::json!([{ "path": a }, { "path": b }]);
        assert_eq!((&object["name"], &object["archives"]), (&name.as_str().into(), &archives), "{object}");
        assert_eq!(ran(&scratch, &["-u", named]), nothing, "{named}");
        assert!(!support::is_mounted(&scratch.path("at")), "{named}");
    }
}

#[test]
fn a_command_that_is_written_to_a_mount_needs_whole_paths() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("echo x > x; tar cf a.tar x");
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["--control-interface"]);
    let folder = mounted.path(".ratarmount-control");
    for (number, words) in
        ["ls -l a.tar", "cat a.tar", "stat a.tar x", "index a.tar", "check a.tar"].into_iter().enumerate()
    {
        let before = fs::read_to_string(folder.join("output")).unwrap().len();
        let mut command = fs::File::options().write(true).truncate(true).open(folder.join("command")).unwrap();
        command.write_all(format!("tarnfs {words}\n").as_bytes()).unwrap();
        drop(command);
        let number = number + 1;
        let expected = format!(
            "tarnfs: a.tar: write the whole path: it is not known from where this was written\ncommand {number}: failed\n"
        );
        let output = || fs::read_to_string(folder.join("output")).unwrap()[before..].to_owned();
        wait_until("it is done", || output().contains(&format!("command {number}: ")));
        assert!(output().ends_with(&expected), "{words}: {}", output());
    }
    mounted.unmount();
}
