//! What people are used to from other programs: the message says how tarnfs does it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::process::{Command, Stdio};

use crate::support::{self, Ran, Scratch, can_mount, have, tarnfs};

/// What a command line says that is typed in the scratch folder.
fn ran(scratch: &Scratch, words: &[&str]) -> Ran {
    Ran::from(tarnfs(scratch).args(words).current_dir(scratch.path("")).output().unwrap())
}

#[test]
fn who_types_as_for_another_program_is_told_what_it_is_called() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -czf a.tar.gz one; tar -cf b.tar one; mkdir d");
    let word = |word: &str, command: &str| {
        format!("{word} is no command, and there is no file of that name; did you mean `tarnfs {command}`?")
    };
    let option = |option: &str, command: &str| {
        format!("{option} is not an option of tarnfs; did you mean `tarnfs {command}`? Or see tarnfs --help")
    };
    let size = "give a number: 0, 1, 2, or 3 for everything";
    for (words, code, said) in [
        (&["xf", "a.tar.gz"][..], 2, word("xf", "extract")),
        (&["x", "a.tar.gz"], 2, word("x", "extract")),
        (&["unzip", "a.tar.gz"], 2, word("unzip", "extract")),
        (&["tvf", "a.tar.gz"], 2, word("tvf", "ls")),
        (&["czf", "a.tar.gz", "one"], 2, word("czf", "create")),
        (&["-xf", "a.tar.gz"], 2, option("-x", "extract")),
        (&["-xvzf", "a.tar.gz"], 2, option("-x", "extract")),
        (&["-tf", "a.tar.gz"], 2, option("-t", "ls")),
        (&["-czf", "a.tar.gz", "one"], 2, option("-z", "create")),
        (&["-gx", "a.tar.gz"], 2, "-g is not an option of tarnfs; see tarnfs --help".to_owned()),
        (
            &["extract", "-xf", "a.tar.gz"],
            2,
            "-x is not an option of tarnfs extract: the archive is named without it, and its compression is found out; \
             see tarnfs extract --help"
                .to_owned(),
        ),
        (
            &["extract", "-d", "out", "a.tar.gz"],
            2,
            format!("--debug out: {size}; the folder to extract to is named with -C"),
        ),
        (
            &["extract", "a.tar.gz", "nosuch", "out"],
            1,
            "a.tar.gz: nosuch: no such file or folder\ntarnfs: a.tar.gz: out: no such file or folder; -C names the \
             folder to extract to"
                .to_owned(),
        ),
        (&["extract", "-C", "to", "a.tar.gz", "out"], 1, "a.tar.gz: out: no such file or folder".to_owned()),
        (
            &["find", "-name", "one", "a.tar.gz"],
            2,
            "-n is not an option of tarnfs find, and tests go behind the archive; see tarnfs find --help".to_owned(),
        ),
        (
            &["extract", "-O", "a.tar.gz"],
            2,
            "-O is not an option of tarnfs extract: `tarnfs cat` writes files to standard output; see tarnfs extract --help"
                .to_owned(),
        ),
        (
            &["create", "-9", "b.tar.gz", "one"],
            2,
            "-9 is not an option of tarnfs create: --level says how hard to compress; see tarnfs create --help".to_owned(),
        ),
        (
            &["cat", "-psecret", "a.tar.gz", "one"],
            2,
            "-p is not an option of tarnfs cat: a password is given with --password, or with --password-file; see tarnfs \
             cat --help"
                .to_owned(),
        ),
        (
            &["extract", "-o", "out", "a.tar.gz"],
            3,
            "out: cannot be opened: No such file or directory; the folder to extract to is named with -C".to_owned(),
        ),
        (&["verify", "a.tar.gz"], 2, word("verify", "check")),
        (&["version"], 2, word("version", "--version")),
        (
            &["ls", "a.tar.gz", "b.tar"],
            1,
            "a.tar.gz: b.tar: no such file or folder, but there is an archive of that name here: one is read at a time"
                .to_owned(),
        ),
        (
            &["find", "d", "-name", "x"],
            3,
            "d: cannot be opened: it is a folder, not a file; the archive comes first: tarnfs find ARCHIVE [PATH...] \
             [EXPRESSION]"
                .to_owned(),
        ),
        (
            &["ls", "d"],
            3,
            "d: cannot be opened: it is a folder, not a file; what is in an archive is listed: tarnfs ls ARCHIVE [PATH...]"
                .to_owned(),
        ),
        (
            &["compare", "d", "a.tar.gz"],
            3,
            "d: cannot be opened: it is a folder, not a file; the archive comes first: tarnfs compare ARCHIVE DIR".to_owned(),
        ),
        (
            &["convert", "d", "b.tar.gz"],
            3,
            "d: cannot be opened: it is a folder, not a file; `tarnfs create` makes an archive of it".to_owned(),
        ),
        (&["--verbose", "a.tar.gz"], 2, "--verbose goes with --version; -d 2 and -d 3 log what is done".to_owned()),
        (
            &["ls", "smb://localhost/a.tar.gz"],
            3,
            "smb://localhost/a.tar.gz: is a URL of a kind that cannot be opened yet (http://, https://, s3://, webdav://, \
             sftp:// and others can): download it first"
                .to_owned(),
        ),
        (&["ls", "file:///a.tar.gz"], 3, "file:///a.tar.gz: is a URL; give the path of the file".to_owned()),
        (&["File:///a.tar.gz", "m"], 3, "File:///a.tar.gz: is a URL; give the path of the file".to_owned()),
    ] {
        let ran = ran(&scratch, words);
        assert_eq!((ran.code, ran.err), (code, format!("tarnfs: {said}\n")), "{words:?}");
    }
    assert_eq!(scratch.shell("ls -A"), "a.tar.gz\nb.tar\nd\none\n");
    // A file of such a name is an archive as any other.
    scratch.shell("cp a.tar.gz xf");
    ran(&scratch, &["--no-mount", "xf"]).ok();
}

#[test]
fn what_reverses_the_order_in_ls_is_told_to_be_something_else() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; echo two > two; touch -d 2000-01-01 one; tar -cf a.tar one two");
    let said = "tarnfs: warning: -r looks into archives in the archive; --reverse reverses the order\n";
    for (words, out, err) in [
        (&["ls", "-tr", "a.tar"][..], "two\none\n", said),
        (&["ls", "a.tar", "-Sr"], "one\ntwo\n", said),
        (&["ls", "-t", "-r", "a.tar"], "two\none\n", ""),
        (
            &["ls", "-tc", "a.tar"],
            "two\none\n",
            "tarnfs: warning: -c makes a new index; `tarnfs stat` shows when a file was changed\n",
        ),
        (
            &["ls", "-ti", "a.tar"],
            "two\none\n",
            "tarnfs: warning: -i reads on behind zero blocks; `tarnfs stat` shows numbers of nodes\n",
        ),
        (&["ls", "-c", "a.tar"], "one\ntwo\n", ""),
        (&["ls", "-t", "--reverse", "a.tar"], "one\ntwo\n", ""),
        (&["ls", "-r", "a.tar", "--", "-tr"], "", "tarnfs: a.tar: -tr: no such file or folder\n"),
    ] {
        let ran = ran(&scratch, words);
        assert_eq!((String::from_utf8(ran.out).unwrap().as_str(), ran.err.as_str()), (out, err), "{words:?}");
    }
}

/// Encrypted by a program that knows nothing of archives: what helps is that program.
#[test]
fn what_encrypted_a_file_is_named() {
    let scratch = Scratch::new();
    scratch.shell(
        "echo one > one; tar -czf a.tar.gz one
         openssl enc -aes-256-cbc -pbkdf2 -k secret -in a.tar.gz -out a.tar.gz.enc
         printf 'age-encryption.org/v1\\n-> X25519 x\\n' > a.tar.gz.age",
    );
    let mut encrypted = vec![("a.tar.gz.enc", "openssl"), ("a.tar.gz.age", "age")];
    if have("gpg") {
        scratch.shell(
            "export GNUPGHOME=$PWD/g; mkdir -m 700 g; gpg='gpg -q --batch --pinentry-mode loopback --passphrase x'
             $gpg -c -o a.tar.gz.gpg a.tar.gz; $gpg -ac -o a.tar.gz.asc a.tar.gz
             for kind in rsa2048 cv25519; do
                 case $kind in rsa*) first=$kind use=encr,sign ;; *) first=ed25519 use=sign ;; esac
                 $gpg --quick-gen-key $kind@localhost $first $use never 2> said
                 key=$(gpg -q --batch --list-keys --with-colons $kind@localhost | grep ^fpr | head -1 | cut -d: -f10)
                 [ $kind = rsa2048 ] || $gpg --quick-add-key $key $kind encr never 2> said
                 $gpg --trust-model always -r $kind@localhost -e -o $kind.gpg a.tar.gz 2> said
             done
             gpgconf --kill all",
        );
        encrypted.extend(["a.tar.gz.gpg", "a.tar.gz.asc", "rsa2048.gpg", "cv25519.gpg"].map(|name| (name, "OpenPGP")));
    } else {
        println!("left out: OpenPGP needs gpg");
    }
    for (name, program) in encrypted {
        let said = format!("tarnfs: {name}: is encrypted with {program}: decrypt it first\n");
        let ran = ran(&scratch, &["ls", name]);
        assert_eq!((ran.code, ran.err), (4, said));
    }
}

/// A byte that is wrong in a plain tar nobody notices: then `check` must not sound as if it had.
#[test]
fn check_says_where_nothing_could_be_compared() {
    let scratch = Scratch::new();
    scratch.shell(
        "seq 1000 > one; tar -cf a.tar one; gzip -k a.tar; zip -q a.zip one; touch none; tar -cf none.tar none
         echo one | cpio -o -H newc --quiet > a.cpio; ar rc a.a one; mksquashfs one a.squashfs -quiet -no-progress
         printf XXXX | dd of=a.tar bs=1 seek=2000 conv=notrunc status=none",
    );
    let of = "whole: 1 file with 3893 bytes of content";
    for (name, said) in [
        ("a.tar", format!("{of}, which has no checksums to compare")),
        ("a.cpio", format!("{of}, which has no checksums to compare")),
        ("a.a", format!("{of}, which has no checksums to compare")),
        ("a.squashfs", format!("{of}, not all of which need have checksums")),
        ("a.tar.gz", of.to_owned()),
        ("a.zip", of.to_owned()),
        ("none.tar", "whole: 1 file with 0 bytes of content".to_owned()),
    ] {
        assert_eq!(ran(&scratch, &["check", name]).ok().text(), format!("{name}: {said}\n"));
    }
}

/// Beside an archive of somebody else, or on a medium that can only be read.
#[test]
fn where_no_mount_point_can_be_made_another_place_is_proposed() {
    if !support::is_root() || !have("setpriv") {
        println!("left out: needs root, to be somebody else");
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -cf a.tar one; chmod 755 .");
    scratch.program("tarnfs");
    let at = scratch.path("a");
    let other_user = |words: &str| {
        let script = format!("cd {}; XDG_CACHE_HOME=/nonexistent ./tarnfs {words}", scratch.path("").display());
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &script]);
        let ran = Ran::from(command.output().unwrap());
        (ran.code, ran.err)
    };
    let refused = format!("tarnfs: cannot make mount point {}: Permission denied", at.display());
    let another = format!("{refused}; name another: tarnfs ARCHIVE MOUNTPOINT\n");
    assert_eq!(other_user("a.tar"), (6, another));
    // Who names one knows how.
    assert_eq!(other_user("a.tar a"), (6, format!("{refused}\n")));
}

/// In fstab: where the program is in the search path, mount(8) starts mount.fuse3, and that starts the program.
#[test]
fn through_mount_fuse_it_ends_as_mount_expects() {
    if !can_mount() || !have("mount.fuse3") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree mnt; seq 1 300000 > tree/file; tar -C tree -cf a.tar .; head -c 400000 a.tar > cut.tar
         echo x > text",
    );
    let program = env!("CARGO_BIN_EXE_tarnfs");
    let at = scratch.path("mnt");
    let ends = |command: &mut Command| {
        let command = command.env("XDG_CACHE_HOME", scratch.path("cache")).current_dir(scratch.path(""));
        command.stdin(Stdio::null()).stderr(Stdio::null()).status().unwrap().code()
    };
    let helper = |archive: &str, options: &str| {
        ends(Command::new("mount.fuse3").args([&format!("{program}#{archive}"), "mnt", "-o", options]))
    };
    for (archive, options) in [("missing.tar", "ro"), ("text", "rw"), ("a.tar", "ro,colour=blue")] {
        assert_eq!(helper(archive, options), Some(32), "{archive} {options}");
        assert!(!support::is_mounted(&at), "{archive} {options}");
    }
    assert_eq!(helper("cut.tar", "ro,nosuid,nodev"), Some(0), "a damaged archive is mounted");
    assert!(support::is_mounted(&at));
    support::run(&scratch, ["-u".as_ref(), at.as_os_str()]).ok();
    // A person learns more.
    assert_eq!(ends(Command::new(program).args(["cut.tar", "mnt", "-o", "ro"])), Some(5));
    support::run(&scratch, ["-u".as_ref(), at.as_os_str()]).ok();
    assert_eq!(ends(Command::new(program).args(["-o", "ro,nosuid,nodev", "text", "mnt"])), Some(4));
}

#[test]
fn completions_of_what_writes_offer_files() {
    let scratch = Scratch::new();
    let offered = |words: &[&str]| {
        let mut command = tarnfs(&scratch);
        command.args(["__complete", "--", "tarnfs"]).args(words).current_dir(scratch.path(""));
        Ran::from(command.output().unwrap()).ok().text()
    };
    for words in [&["create", ""][..], &["create", "a.tar", ""], &["convert", ""], &["convert", "a.tar", "b"]] {
        assert_eq!(offered(words), "files\n", "{words:?}");
    }
    // What the parser does not offer by itself.
    assert!(offered(&["create", "--compress", "z"]).contains("\nzip\nzstd\n"));
    let tests = offered(&["find", "a.tar", "-new"]);
    assert!(
        tests.starts_with("nothing\n-newer\n") && !offered(&["find", "a.tar", "-ex"]).contains("-exec\n"),
        "{tests}"
    );
    assert!(!offered(&["find", "-new"]).contains("-newer"), "no test stands before the archive");
    assert!(offered(&["find", "a.tar", "--js"]).contains("\n--json\t"));
    assert!(offered(&["he"]).contains("\nhelp\t") && offered(&["help", "ex"]).contains("\nextract\t"));
    assert!(
        offered(&["help", "bench", "mo"]).contains("\nmount\t")
            && offered(&["man", "bench", "sc"]).contains("\nscale\t")
    );
}

/// Names that were typed wrong look like entries that are not there.
#[test]
fn find_says_what_it_does_not_know() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar --owner=somebody:1234 --group=some:1234 -cf a.tar one");
    for (words, said) in [
        (
            &["-nmae", "x"][..],
            "-nmae: is no test that tarnfs find knows; did you mean -name? Or see tarnfs find --help",
        ),
        (&["-Name", "x"], "-Name: is no test that tarnfs find knows; did you mean -name? Or see tarnfs find --help"),
        (&["-readable"], "-readable: is no test that tarnfs find knows; see tarnfs find --help"),
        (&["-exec-foo"], "-exec-foo: is no test that tarnfs find knows; see tarnfs find --help"),
    ] {
        let ran = ran(&scratch, &[&["find", "a.tar"], words].concat());
        assert_eq!((ran.code, ran.err), (2, format!("tarnfs: {said}\n")), "{words:?}");
    }
    let nobody = "nobody is called so among the entries that were looked at";
    for (words, out, err) in [
        (&["-user", "nosuch"][..], "", format!("tarnfs: warning: a.tar: -user nosuch: {nobody}\n")),
        (&["-group", "nosuch"], "", format!("tarnfs: warning: a.tar: -group nosuch: {nobody}\n")),
        (&["-user", "somebody"], "./one\n", String::new()),
        (&["-group", "some", "-type", "f"], "./one\n", String::new()),
        // Who is there may well have no file, and no entry was asked.
        (&["-user", "daemon"], "", String::new()),
        (&["-name", "two", "-user", "nosuch"], "", String::new()),
    ] {
        let ran = ran(&scratch, &[&["find", "a.tar"], words].concat());
        assert_eq!((ran.code, String::from_utf8(ran.out).unwrap().as_str(), ran.err), (0, out, err), "{words:?}");
    }
}

/// `-ul` of umount(8) and ratarmount, and a mount over the folder in which somebody stands.
#[test]
fn who_unmounts_as_elsewhere_unmounts() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -cf a.tar one; mkdir -p over/sub");
    let unmounted = |at: &str, folder: &str, words: &[&str], said: &str| {
        let at = scratch.path(at);
        support::run(&scratch, [scratch.path("a.tar").as_os_str(), at.as_os_str()]).ok();
        let ran = Ran::from(tarnfs(&scratch).args(words).current_dir(scratch.path(folder)).output().unwrap());
        assert_eq!((ran.code, ran.err.as_str()), (0, said), "{words:?}");
        assert!(!support::is_mounted(&at), "{words:?}");
    };
    unmounted("k", ".", &["-ul", "k"], "");
    let nothing =
        |option: &str| format!("tarnfs: warning: {option} has no effect with -u; -l detaches what is in use\n");
    unmounted("m", ".", &["-uf", "m"], &nothing("-f (--foreground)"));
    unmounted("n", ".", &["-u", "--force", "n"], &nothing("--force"));
    // `sub` is below what is mounted over, so `..` leads up to the mount.
    let sub = fs::File::open(scratch.path("over/sub")).unwrap();
    let over = scratch.path("over");
    support::run(&scratch, [scratch.path("a.tar").as_os_str(), over.as_os_str()]).ok();
    let here = format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&sub));
    let ran = Ran::from(tarnfs(&scratch).args(["-u", ".."]).current_dir(here).output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(!support::is_mounted(&over));
}

/// Options of mount(8) that mean nothing here are told of.
#[test]
fn options_of_mount_that_mean_nothing_here_are_said() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -cf a.tar one");
    let ran_in = ran(&scratch, &["-o", "suid,dev", "a.tar", "m"]).ok();
    let said = "tarnfs: warning: -o suid has no effect: mounts of tarnfs are always nosuid\n\
                tarnfs: warning: -o dev has no effect: mounts of tarnfs are always nodev\n";
    assert_eq!(ran_in.err, said);
    ran(&scratch, &["-u", "m"]).ok();
    // Of fstab they mean what is usual.
    let ran_in = ran(&scratch, &["a.tar", "n", "-o", "ro,suid,dev"]).ok();
    assert_eq!(ran_in.err, "");
    ran(&scratch, &["-u", "n"]).ok();
    let refused =
        "tarnfs: -o remount: a mount cannot be changed, and is read-only anyway: unmount it, and mount it again\n";
    let ran_in = ran(&scratch, &["-o", "remount,ro", "a.tar", "k"]);
    assert_eq!((ran_in.code, ran_in.err.as_str()), (2, refused));
}
