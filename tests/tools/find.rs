//! `tarnfs find` beside find(1) on what tar extracts from the same archive.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::path::Path;
use std::process::Command;

use crate::support::{Ran, Scratch, have, tarnfs};

/// An archive `a.tar` of a folder `tree` with all that find(1) can ask for.
fn archive() -> Scratch {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/sub/deep/er tree/empty 'tree/a b' tree/.dot
         for size in 0 1 511 512 513 1023 1024 1025 5000 1048576 1048577; do head -c $size /dev/zero > tree/sub/$size.bin; done
         echo x > tree/sub/deep/er/x.c; echo y > tree/sub/deep/Y.C; echo z > 'tree/a b/z (1).txt'; echo h > tree/.dot/.hidden
         printf 'l' > $'tree/a b/caf\\xe9'; printf 'l' > 'tree/a b/caf\u{e9}'; printf n > $'tree/a b/new\\nline'
         ln -s sub/deep tree/link; ln -s nowhere tree/broken; ln tree/sub/1.bin tree/sub/hard.bin; mkfifo tree/fifo
         chmod 4755 tree/sub/512.bin; chmod 600 tree/sub/513.bin; chmod 2775 tree/sub; chmod 1777 tree/empty; chmod 000 tree/sub/0.bin
         touch -d '2020-01-01T00:00:00Z' tree/sub/511.bin; touch -d '1969-12-31T23:59:58.5Z' tree/sub/1.bin
         touch -d '50 hours ago' tree/sub/1023.bin; touch -d '3 hours ago' tree/sub/1024.bin; touch -d '30 minutes ago' tree/sub/1025.bin
         touch -d '40 days ago' tree/sub/5000.bin; touch -r tree/sub/511.bin reference
         tar --format=posix -C tree -cf a.tar .; mkdir out; tar -C out --same-owner -xpf a.tar",
    );
    scratch
}

/// What find(1) prints in the extracted tree, sorted by lines.
fn expected(scratch: &Scratch, words: &[&str]) -> Vec<String> {
    let output = Command::new("find")
        .args(words)
        .env("TZ", "Asia/Kolkata")
        .env("LC_ALL", "C.UTF-8")
        .current_dir(scratch.path("out"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    sorted(&output.stdout)
}

fn sorted(text: &[u8]) -> Vec<String> {
    let mut lines: Vec<_> =
        text.split(|byte| b"\n\0".contains(byte)).map(|line| line.escape_ascii().to_string()).collect();
    lines.sort();
    lines
}

fn found(scratch: &Scratch, words: &[&str]) -> Ran {
    let mut command = tarnfs(scratch);
    command.arg("find").args(words).env("TZ", "Asia/Kolkata").current_dir(scratch.path(""));
    Ran::from(command.output().unwrap())
}

#[test]
fn tests_and_actions_are_those_of_find() {
    let scratch = archive();
    let lines = [
        "",
        "-name *.bin",
        "-name sub",
        "-iname *.c",
        "-name ?.c",
        "-name [xy].[cC]",
        "-name caf?",
        "-name .*",
        "-name *",
        "-path ./sub/*",
        "-path *deep*c",
        "-ipath *DEEP*",
        "-wholename ./sub",
        "-regex .*/[0-9]+\\.bin",
        "-regex ./sub/\\(511\\|512\\)\\.bin",
        "-regextype posix-extended -regex ./sub/(511|512)[.]bin",
        "-regextype posix-basic -iregex .*/y\\.c",
        "-type f",
        "-type d",
        "-type l,p",
        "-xtype d",
        "-xtype l",
        "-lname *deep",
        "-ilname NO*",
        "-not -type d -size 0",
        "-not -type d -size 1",
        "-not -type d -size 2",
        "-not -type d -size +2",
        "-not -type d -size -2",
        "-type f -size 1k",
        "-type f -size -2k",
        "-size 1025c",
        "-type f -size +1M",
        "-type f -size 1M",
        "-type f -size +511w",
        "-type f -size -1G",
        "-empty",
        "-type d -empty",
        "-newer sub/511.bin",
        "! -newer sub/511.bin",
        "-newer link",
        "-newer broken",
        "-newermt 2020-01-01",
        "-newermt 2020-01-01T00:00:00Z",
        "-newermt @0",
        "-mtime 0",
        "-mtime 2",
        "-mtime -2",
        "-mtime +2",
        "-mtime +39",
        "-daystart -mtime -1",
        "-mmin -100",
        "-mmin +100",
        "-mmin -200 -mmin +100",
        "-user root",
        "-user 0",
        "-group 12345",
        "-uid 0",
        "-uid +0",
        "-gid -1",
        "-perm 600",
        "-perm -4000",
        "-perm /022",
        "-perm -u+rwx,g+rx",
        "-perm /u=s,g=s",
        "-perm u=rwx,go=rx",
        "-links 2",
        "-links +2",
        "-samefile sub/1.bin",
        "-maxdepth 0",
        "-maxdepth 1",
        "-mindepth 3",
        "-mindepth 1 -maxdepth 2 -type f",
        "-depth",
        "-depth -maxdepth 1",
        "-depth -mindepth 2",
        "-name deep -prune -o -print",
        "( -name deep -o -name empty ) -prune -o -type d -print",
        "-name deep -prune",
        "-type d , -name sub -print",
        "-true",
        "-false",
        "-not -type f -a -not -type d",
        "-name sub -o -name empty -and -false",
        "-name x.c -print -o -name sub -print",
        "-type f -print0",
        "-print -print",
        "sub -name *.bin",
        "sub/ -maxdepth 1",
        "./sub//deep -type f",
        "link",
        "link/ -type f",
        "sub empty -maxdepth 0",
        "-executable -type f -perm -4000",
    ];
    for line in lines {
        let words: Vec<_> = line.split_whitespace().collect();
        let ran = found(&scratch, &[&["a.tar"], &words[..]].concat()).ok();
        assert_eq!(sorted(&ran.out), expected(&scratch, &words), "{line}");
    }
}

#[test]
fn formats_are_those_of_find() {
    let scratch = archive();
    for format in [
        "%p|%f|%h|%P|%H|%d\\n",
        "%s %10s|%-10s|%010s|%+s|%.8s\\n",
        "%m %#m %M %n %y %Y\\n",
        "%u %g %U %G %-8u|\\n",
        "%l %20p|%-20f|%.3f\\n",
        "%t|%TY-%Tm-%Td %TH:%TM:%TS|%T@|%T+|%TT|%TX\\n",
        "%Ta %Tb %Tj %TI %Tp %Th %Td %Te %TB %TA %Ty\\n",
        "100%% \\101\\t\\\\ %p\\n",
        "%p\\n\\cignored",
    ] {
        let words = ["-printf", format];
        // find(1) does not know `%Te`, and the folder's own times are those of the extraction.
        let words = [&["-mindepth", "1", "-type", "f,p"], &words[..]].concat();
        let format = format.replace(" %Te", "");
        let words: Vec<_> = words.iter().map(|word| if word.contains('%') { format.as_str() } else { word }).collect();
        let ran = found(&scratch, &[&["a.tar"], &words[..]].concat()).ok();
        assert_eq!(sorted(&ran.out), expected(&scratch, &words), "{format}");
    }
    let links = ["-type", "l", "-printf", "%p -> %l %y %Y %f %h\\n"];
    assert_eq!(sorted(&found(&scratch, &[&["a.tar"], &links[..]].concat()).ok().out), expected(&scratch, &links));
    let folders = ["-mindepth", "1", "-type", "d", "-printf", "%p %m %M %n %d %f %h\\n"];
    assert_eq!(sorted(&found(&scratch, &[&["a.tar"], &folders[..]].concat()).ok().out), expected(&scratch, &folders));
    scratch.shell("mkdir l; ln -s loop l/loop; tar -C l -cf l.tar loop");
    let ran = found(&scratch, &["l.tar", "-type", "l", "-printf", "%f %Y\\n", "-xtype", "l"]).ok();
    assert_eq!(ran.text(), "loop L\n");
}

#[test]
fn the_order_and_the_end_are_as_asked_for() {
    let scratch = archive();
    let ran = found(&scratch, &["a.tar", "sub/deep", "-depth"]).ok();
    assert_eq!(ran.text(), "sub/deep/Y.C\nsub/deep/er/x.c\nsub/deep/er\nsub/deep\n");
    let ran = found(&scratch, &["a.tar", "sub/deep"]).ok();
    assert_eq!(ran.text(), "sub/deep\nsub/deep/Y.C\nsub/deep/er\nsub/deep/er/x.c\n");
    assert_eq!(found(&scratch, &["a.tar", "-name", "*.bin", "-print", "-quit"]).ok().text(), "./sub/0.bin\n");
    let ran = found(&scratch, &["a.tar", "sub/deep/er", "-ls"]).ok().text();
    assert!(ran.lines().count() == 2 && ran.ends_with(" sub/deep/er/x.c\n") && ran.contains(" drwx"), "{ran}");
    // What is named twice is found twice, as a glob is expanded in the archive.
    assert_eq!(found(&scratch, &["a.tar", "sub/51?.bin", "sub/0.bin"]).ok().text().lines().count(), 4);
}

#[test]
fn json_is_that_of_ls() {
    let scratch = archive();
    let ran = found(&scratch, &["--json", "a.tar", "-name", "x.c"]).ok();
    let value: serde_json::Value = serde_json::from_slice(&ran.out).unwrap();
    assert_eq!((value["path"].as_str(), value["size"].as_u64()), (Some("sub/deep/er/x.c"), Some(2)));
    let mut listed = tarnfs(&scratch);
    listed.args(["ls", "--json", "a.tar", "sub/deep/er/x.c"]).current_dir(scratch.path(""));
    assert_eq!(Ran::from(listed.output().unwrap()).ok().text(), ran.text());
}

#[test]
fn mistakes_are_told() {
    let scratch = archive();
    for (words, message) in [
        (&["a.tar", "-nme", "x"][..], "-nme: is no test that tarnfs find knows"),
        (&["a.tar", "-name"], "-name needs an argument"),
        (&["a.tar", "-size", "1q"], "-size 1q: a size is needed: 10k, +1M, -512c"),
        (&["a.tar", "-type", "q"], "-type q: letters are needed, with commas between: f, d, l, b, c, p, s"),
        (&["a.tar", "(", "-name", "x"], "a ( has no )"),
        (&["a.tar", "-name", "x", ")"], "there is a ) without a ( before it"),
        (&["a.tar", "-name", "x", "-o"], "something is missing at the end of the expression"),
        (&["a.tar", "-o", "-name", "x"], "there is nothing between -o and what stands before it"),
        (&["a.tar", "-name", "x", "y"], "y: paths stand before the expression"),
        (&["a.tar", "-delete"], "-delete: tarnfs find changes no archive"),
        (&["a.tar", "-exec", "rm", "{}", ";"], "-exec: tarnfs find runs no programs"),
        (&["a.tar", "-printf", "%q"], "-printf %q: %q is not known"),
        (&["a.tar", "-regex", "["], "-regex [: a [ in it has no ]"),
        (&["a.tar", "-newer", "nosuch"], "-newer nosuch: it is not in the archive, and on this machine: No such file"),
        (&["a.tar", "-newermt", "soon"], "-newermt soon: a date is needed"),
        (&["a.tar", "-perm", "u"], "-perm u: a mode is needed"),
    ] {
        let ran = found(&scratch, words);
        assert!(
            ran.code == 2 && ran.err.contains(message) && ran.out.is_empty(),
            "{words:?}: {} {}",
            ran.code,
            ran.err
        );
    }
    let deep: Vec<_> = std::iter::once("a.tar").chain(std::iter::repeat_n("!", 100_000)).chain(["-true"]).collect();
    let ran = found(&scratch, &deep);
    assert!(ran.code == 2 && ran.err.contains("more than 200"), "{}", ran.err);
    let ran = found(&scratch, &["a.tar", "nosuch", "sub/deep/er"]);
    assert_eq!((ran.code, ran.text().as_str()), (1, "sub/deep/er\nsub/deep/er/x.c\n"));
    assert_eq!(ran.err, "tarnfs: a.tar: nosuch: no such file or folder\n");
}

/// A reference that is not in the archive is one of this machine.
#[test]
fn a_file_of_this_machine_is_a_reference_too() {
    let scratch = archive();
    let ran = found(&scratch, &["a.tar", "sub", "-type", "f", "-not", "-newer", "reference"]).ok();
    assert_eq!(sorted(&ran.out), ["", "sub/1.bin", "sub/511.bin", "sub/hard.bin"]);
}

#[test]
fn every_format_and_archives_in_archives_are_searched() {
    let scratch = archive();
    scratch.shell("tar -C tree/sub -czf inner.tar.gz deep; tar -cJf outer.tar.xz inner.tar.gz");
    let ran = found(&scratch, &["-r", "outer.tar.xz", "-name", "*.[cC]"]).ok();
    assert_eq!(ran.text(), "./inner.tar.gz/deep/Y.C\n./inner.tar.gz/deep/er/x.c\n");
    for (tool, make) in [
        ("zip", "cd tree/sub; zip -qr ../../b.zip deep"),
        ("7z", "cd tree/sub; 7z a -bd -bso0 ../../b.7z deep"),
        ("mksquashfs", "mksquashfs tree/sub/deep b.squashfs -quiet -no-progress -keep-as-directory"),
    ] {
        if !have(tool) {
            continue;
        }
        scratch.shell(make);
        let name = ["b.zip", "b.7z", "b.squashfs"].into_iter().find(|name| Path::new(&scratch.path(name)).exists());
        let ran = found(&scratch, &[name.unwrap(), "-type", "f", "-printf", "%P %s\\n"]).ok();
        assert_eq!(ran.text(), "deep/Y.C 2\ndeep/er/x.c 2\n", "{tool}");
        scratch.shell("rm -f b.*");
    }
}

/// What a script has in its log is read by others, too.
#[test]
fn a_password_behind_the_expression_is_not_shown() {
    let scratch = archive();
    let mut archives = vec!["a.tar"];
    if have("7z") {
        scratch.shell("7z a -bd -bso0 -pcanary -mhe=on he.7z tree/sub");
        archives.push("he.7z");
    }
    for archive in archives {
        for words in [&["-name", "f", "--password=canary"][..], &["-name", "f", "-pcanary"]] {
            let ran = found(&scratch, &[&[archive], words].concat());
            assert!(matches!(ran.code, 2 | 3) && !ran.err.contains("canary"), "{archive} {words:?}: {}", ran.err);
            assert!(ran.err.contains("--password"), "{archive} {words:?}: {}", ran.err);
        }
    }
}
