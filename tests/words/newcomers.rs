//! What somebody tries who has never used tarnfs: the message says what to do instead, and nothing looks worse than it
//! is.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fmt::Write as _;

use crate::support::{Mounted, Ran, Scratch, can_mount, have, is_root, tarnfs};

/// Exit code and what was said, of a command line that is typed in the scratch folder.
fn says(scratch: &Scratch, words: &str) -> (i32, String) {
    let ran = Ran::from(tarnfs(scratch).args(words.split_whitespace()).current_dir(scratch.path("")).output().unwrap());
    (ran.code, String::from_utf8_lossy(&ran.out).into_owned() + &ran.err)
}

#[track_caller]
fn hints(scratch: &Scratch, words: &str, code: i32, part: &str) {
    let (found, said) = says(scratch, words);
    assert!(found == code && said.contains(part), "{words}: {found} {said}");
}

#[test]
fn what_was_typed_in_another_order_or_place_gets_a_hint() {
    let scratch = Scratch::new();
    scratch
        .shell("mkdir -p src/docs empty; echo one > src/docs/a; tar -czf a.tar.gz src; tar -cf outer.tar a.tar.gz src");
    // Paths in an archive, as if it were mounted; and in an archive in it.
    hints(&scratch, "ls a.tar.gz/src/docs", 3, ": a.tar.gz is a file; name what is in it behind it: a.tar.gz src/docs");
    hints(&scratch, "a.tar.gz/src", 3, "a.tar.gz/src: a.tar.gz is a file; `tarnfs --prefix src a.tar.gz` shows");
    hints(&scratch, "cat outer.tar a.tar.gz/src/docs/a", 1, "not a folder: with -r, archives in it show as folders");
    let (_, said) = says(&scratch, "cat outer.tar src/docs/a/b");
    assert!(said.contains("not a folder") && !said.contains("-r"), "{said}");
    // Options of find, and formats of stat(1).
    hints(&scratch, "find a.tar.gz -name a --json", 2, "--json: options stand before the archive, and tests behind it");
    hints(&scratch, "stat -c %s a.tar.gz src", 3, "-c makes the index again, and there are no formats here");
    hints(&scratch, "check -v a.tar.gz", 2, "-d 2 says more, and names all damaged files");
    // Archives that are not written, and the wrong order.
    hints(&scratch, "create new.7z src", 2, "new.7z: archives of this kind can be read, but not written");
    hints(&scratch, "create new.odd src", 2, "new.odd: its name does not say what it is to be");
    hints(&scratch, "create src new.tar", 2, "; the archive comes first, and then what goes in");
    // A file whose name begins as options do.
    scratch.shell("cp a.tar.gz ./-x.tar.gz");
    for (typed, called) in [("ls -x.tar.gz", "tarnfs ls"), ("-x.tar.gz", "tarnfs")] {
        let said =
            format!("tarnfs: -x.tar.gz is taken for options of {called}; the file of that name is ./-x.tar.gz\n");
        assert_eq!(says(&scratch, typed), (2, said));
    }
    // A link that leads to a folder.
    scratch.shell("ln -s docs src/link; tar -cf linked.tar src");
    hints(&scratch, "extract -C out linked.tar src/link/a", 1, "over a symbolic link, which is not followed");
    assert!(!scratch.path("out").exists(), "a folder for nothing stays");
    if have("zip") {
        scratch.shell("zip -qrP sesame a.zip src");
        hints(&scratch, "find a.zip -name a -password sesame", 2, "is no test");
        scratch.shell("7z a -bd -bso0 -psesame -mhe=on a.7z src || true");
        if have("7z") {
            hints(&scratch, "find a.7z -name a --password sesame", 3, "--password stands behind the archive");
        }
    }
}

#[test]
fn an_empty_folder_before_the_archive_may_be_meant_for_the_mount_point() {
    if !can_mount() {
        return println!("left out: nothing can be mounted here");
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir mnt full; echo one > full/one; tar -cf a.tar full");
    for (folder, is_told) in [("mnt", true), ("full", false)] {
        let (code, said) = says(&scratch, &format!("{folder} a.tar"));
        let mounted = format!("{folder}.mounted");
        assert_eq!(code, 0, "{said}");
        assert_eq!(says(&scratch, &format!("-u {mounted}")).0, 0);
        assert_eq!(said.contains(&format!("is an empty folder: mounting at {mounted};")), is_told, "{said}");
    }
}

/// As for a mount, the last path of `--no-mount` may be a mount point, but not one that is called as an archive is.
#[test]
fn an_archive_that_is_not_there_is_not_taken_for_a_mount_point_that_is_not_used() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -cf a.tar one");
    hints(&scratch, "--no-mount a.tar typo.tar", 3, "typo.tar");
    assert_eq!(says(&scratch, "--no-mount a.tar mnt").0, 0);
}

/// Of an index in a folder that may not be entered, nobody says that another file is there.
#[test]
fn an_index_that_may_not_be_looked_at_is_not_called_another_file() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("chmod 755 .; mkdir -m 700 closed; mkdir -m 777 open; echo one > one; tar -czf open/a.tar.gz one");
    let said = scratch.shell(&format!(
        "cd open; su nobody -s /bin/sh -c '{} index --index-file ../closed/x.sqlite a.tar.gz' 2>&1 || echo code $?",
        env!("CARGO_BIN_EXE_tarnfs")
    ));
    assert!(said.contains("Permission denied") && !said.contains("is there"), "{said}");
}

/// What a password is typed for does not show on the terminal, and Enter ends it.
#[test]
fn a_password_that_is_typed_does_not_show() {
    if !have("zip") || !have("python3") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("echo content > f; zip -qP sesame a.zip f");
    let script = format!(
        r"import os, pty, signal, sys, termios
def typed(keys):
    pid, terminal = pty.fork()
    if pid == 0:
        # Whoever runs the tests may ignore it.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.execv('{program}', ['tarnfs', 'cat', '--password-file', '-', 'a.zip', 'f'])
    signal.alarm(60)
    said = b''
    while b'Password: ' not in said:
        said += os.read(terminal, 1000)
    os.write(terminal, keys)
    try:
        while True:
            more = os.read(terminal, 1000)
            if not more:
                break
            said += more
    except OSError:
        pass
    status = os.waitpid(pid, 0)[1]
    print(said, os.WIFSIGNALED(status) and os.WTERMSIG(status) or os.WEXITSTATUS(status))
typed(b'wrong\x15sesamx\x7fe\n')
typed(b'sesame\x03')
",
        program = env!("CARGO_BIN_EXE_tarnfs")
    );
    std::fs::write(scratch.path("type.py"), script).unwrap();
    let said = scratch.shell("python3 type.py");
    assert_eq!(said, "b'Password: \\r\\ncontent\\r\\n' 0\nb'Password: \\r\\n' 2\n");
}

/// What a person sees and types at a terminal. A line of the script is `typed(WORDS, KEYS, ...)`: each of the keys is
/// typed, or signal sent, when one more question is there. It prints what was said and the exit code, or the signal as
/// a negative number. The terminal shows nothing of what is typed, and in the end it does.
const TYPING: &str = r"import os, pty, signal, sys, termios
os.environ['NO_COLOR'] = '1'
def typed(words, *keys):
    pid, terminal = pty.fork()
    if pid == 0:
        # Whoever runs the tests may ignore it.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.execv(PROGRAM, ['tarnfs'] + words)
    signal.alarm(100)
    keys, said, questions = list(keys), b'', 0
    shows = lambda: bool(termios.tcgetattr(terminal)[3] & termios.ECHO)
    while True:
        try:
            more = os.read(terminal, 1000)
        except OSError:
            break
        if not more:
            break
        said += more
        if said.count(b'Password') > questions and said.endswith(b': '):
            questions += 1
            assert not shows()
            key = keys.pop(0)
            if isinstance(key, bytes):
                os.write(terminal, key)
            else:
                os.kill(pid, key)
    status = os.waitpid(pid, 0)[1]
    assert not keys and shows(), (keys, said)
    print(said.decode().replace('\r\n', '|'), os.waitstatus_to_exitcode(status))
";

/// > On a terminal, a person is asked for the password of an encrypted archive if none is given.
#[test]
fn a_person_is_asked_for_a_password() {
    if !have("zip") || !have("python3") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("echo content > f; echo open > o; zip -qP sesame a.zip f; cp a.zip mixed.zip; zip -q mixed.zip o");
    let program = format!("'{}'", env!("CARGO_BIN_EXE_tarnfs"));
    let (mut script, mut expected) = (TYPING.replace("PROGRAM", &program), String::new());
    let mut case = |call: &str, said: &str| {
        writeln!(script, "typed({call})").unwrap();
        writeln!(expected, "{said}").unwrap();
    };
    let (asks, again) = ("Password for a.zip: |", "Wrong password. Password for a.zip: |");
    let none = "a.zip: its only file is encrypted: give --password or --password-file; `--password-file -` asks for it";
    case(r"['cat', 'a.zip', 'f'], b'sesame\n'", &format!("{asks}content| 0"));
    case(r"['cat', 'a.zip', '*'], b'wrong\n', b'sesame\n'", &format!("{asks}{again}content| 0"));
    let wrong = "tarnfs: a.zip: wrong password: its encrypted file cannot be opened|";
    case(r"['extract', '-C', 'no', 'a.zip'], b'1\n', b'2\n', b'3\n'", &format!("{asks}{again}{again}{wrong} 3"));
    case(r"['extract', '-C', 'out', 'a.zip'], b'sesame\n'", &format!("{asks} 0"));
    case(r"['compare', 'a.zip', 'out'], b'sesame\n'", &format!("{asks} 0"));
    // Nobody needs one for what is not encrypted, nor for names; and an empty one is none.
    case("['cat', 'mixed.zip', 'o']", "open| 0");
    case("['ls', 'a.zip']", &format!("tarnfs: warning: {none}|f| 0"));
    case("['extract', '--password', '', '-C', 'no', 'a.zip']", &format!("tarnfs: {none}| 3"));
    // Enter alone goes on without.
    case(r"['extract', '-C', 'no', 'a.zip'], b'\n'", &format!("{asks}tarnfs: {none}| 3"));
    for end in [r"b'ses\x03'", "signal.SIGTERM"] {
        case(&format!("['cat', 'a.zip', 'f'], {end}"), &format!("{asks}tarnfs: a.zip: interrupted| 130"));
    }
    case("['cat', '--password-file', '-', 'a.zip', 'f'], signal.SIGTERM", "Password: | -15");
    if have("7z") {
        scratch.shell("7z a -bd -bso0 -psesame -mhe=on a.7z f");
        case(r"['ls', 'a.7z'], b'no\n', b'sesame\n'", &format!("{asks}{again}f| 0").replace("zip", "7z"));
        case(r"['find', 'a.7z', '-type', 'f'], b'sesame\n'", &format!("{asks}./f| 0").replace("zip", "7z"));
    }
    if can_mount() {
        case(r"['a.zip', 'at'], b'wrong\n', b'sesame\n'", &format!("{asks}{again}tarnfs: mounted at at| 0"));
        case("['cat', '--password-file', 'word', 'a.zip', 'f']", "content| 0");
        scratch.shell("echo sesame > word");
    }
    std::fs::write(scratch.path("type.py"), script).unwrap();
    assert_eq!(scratch.shell("python3 type.py"), expected);
    assert_eq!(scratch.shell("cat out/f; ls -d no || true"), "content\n");
    if can_mount() {
        assert_eq!(scratch.shell("cat at/f"), "content\n");
        scratch.unmount("at");
    }
}

/// Nobody is asked where another program gives the answers, or reads what is said.
#[test]
fn a_script_is_asked_for_no_password() {
    if !have("zip") || !have("python3") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("echo content > f; zip -qP sesame a.zip f");
    let call = format!("{} extract -C out a.zip", env!("CARGO_BIN_EXE_tarnfs"));
    let mut script = TYPING.replace("PROGRAM", "'/bin/sh'");
    for redirection in ["< /dev/null", "2> said"] {
        writeln!(script, "typed(['-c', '{call} {redirection}'])").unwrap();
    }
    std::fs::write(scratch.path("type.py"), script).unwrap();
    let said = "tarnfs: a.zip: its only file is encrypted: give --password or --password-file";
    assert_eq!(scratch.shell("python3 type.py"), format!("{said}| 3\n 3\n"));
    assert_eq!(scratch.shell("cat said"), format!("{said}; `--password-file -` asks for it\n"));
}

#[test]
fn an_encrypted_archive_is_extracted_with_the_password_or_not_at_all() {
    if !have("zip") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir -p t/empty; for n in 1 2 3; do echo $n > t/f$n; done; : > t/zero; zip -qrP sesame a.zip t; cp a.zip mixed.zip; echo open > open; zip -q mixed.zip open");
    for (words, part) in [
        ("extract -C out a.zip", "a.zip: 3 of 4 files are encrypted: give --password or --password-file\n"),
        (
            "extract -C out --password wrong a.zip",
            "a.zip: wrong password: none of its 3 encrypted files can be opened\n",
        ),
    ] {
        let (code, said) = says(&scratch, words);
        assert!(code == 3 && said.lines().count() == 1 && said.ends_with(part), "{words}: {code} {said}");
        assert!(!scratch.path("out").exists());
    }
    assert_eq!(says(&scratch, "extract -C out --password sesame a.zip"), (0, String::new()));
    // What can be read without one is.
    assert_eq!(says(&scratch, "extract -C some mixed.zip").0, 3);
    assert_eq!(scratch.shell("cat some/open"), "open\n");
}

/// Nothing is said of an archive that is not so.
#[test]
fn nothing_looks_worse_than_it_is() {
    let scratch = Scratch::new();
    scratch.shell("mkdir src; for n in LGPL-2.1 CC0-1.0 man.1; do echo $n > src/$n; done; tar -cf a.tar src; tar -czf b.tar.gz src; tar -cf outer.tar b.tar.gz src");
    // Ends in which versions and sections of manuals end are no archives; first parts of archives may be.
    let (code, said) = says(&scratch, "info a.tar");
    assert!(code == 0 && !said.contains("Archives"), "{said}");
    scratch.shell("cp src/man.1 src/b.tar.gz.aa; tar -cf parts.tar src");
    hints(&scratch, "info parts.tar", 0, "1 file in it has the name of an archive");
    // Checksums of archives in a tar were compared.
    hints(&scratch, "check -r outer.tar", 0, "which has no checksums to compare but those of archives in it");
    hints(&scratch, "check outer.tar", 0, "of content, which has no checksums to compare\n");
    // Of next to nothing there is no percentage.
    scratch.shell("echo one > one; tar -cf tiny.tar one");
    let (_, said) = says(&scratch, "info tiny.tar");
    assert!(said.contains("10 KiB for 4 bytes of files\n"), "{said}");
    // What `convert` refuses, --force does not mend.
    scratch
        .shell("seq 100000 > many; gzip -k many; printf x | dd of=many.gz bs=1 seek=50000 conv=notrunc 2> /dev/null");
    let (code, said) = says(&scratch, "convert many.gz many.xz");
    assert!(code == 5 && !said.contains("--force serves it"), "{said}");
}

/// The file, and the folder of what it holds.
#[test]
fn an_archive_in_any_archive_has_two_versions_and_no_older_one() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -czf a.tar.gz one; tar -cf outer.tar a.tar.gz");
    let mut archives = vec!["outer.tar"];
    for (program, make, archive) in [
        ("zip", "zip -q deflated.zip a.tar.gz", "deflated.zip"),
        ("zip", "zip -q0 stored.zip a.tar.gz", "stored.zip"),
        ("7z", "7z a -bd -bso0 outer.7z a.tar.gz", "outer.7z"),
        ("mksquashfs", "mksquashfs a.tar.gz outer.squashfs -quiet -no-progress > /dev/null", "outer.squashfs"),
    ] {
        if have(program) {
            scratch.shell(make);
            archives.push(archive);
        }
    }
    for archive in archives {
        let (code, said) = says(&scratch, &format!("info -r {archive}"));
        assert!(code == 0 && !said.contains("Versions"), "{archive}: {said}");
        let kind = |version: u32| {
            let (_, said) = says(&scratch, &format!("stat -r {archive} a.tar.gz.versions/{version}"));
            said.lines().find_map(|line| line.trim().strip_prefix("Type: ")).map(str::to_owned)
        };
        assert_eq!([kind(1), kind(2), kind(3)], [Some("file".into()), Some("folder".into()), None], "{archive}");
        assert_eq!(says(&scratch, &format!("cat -r {archive} a.tar.gz/one")), (0, "one\n".to_owned()));
    }
    if can_mount() {
        let mounted = Mounted::new(&scratch, scratch.path("outer.tar"), &["-r"]);
        assert_eq!(std::fs::read_dir(mounted.path("a.tar.gz.versions")).unwrap().count(), 2);
    }
}

/// Of a folder full of archives, each message names the one that it is about.
#[test]
fn messages_name_the_archive_of_a_folder() {
    if !can_mount() {
        return println!("left out: nothing can be mounted here");
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir -p f/in; seq 20000 > many; tar -czf f/in/cut.tar.gz many; truncate -s -500 f/in/cut.tar.gz");
    let log = scratch.path("log");
    let mounted = Mounted::new(&scratch, scratch.path("f"), &["-r", "--log-file", log.to_str().unwrap()]);
    let _ = std::fs::read_dir(mounted.path("in/cut.tar.gz")).map(Iterator::count);
    mounted.unmount();
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("cut.tar.gz: damaged at byte"), "{said}");
}
