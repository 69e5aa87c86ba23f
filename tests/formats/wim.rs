//! Images of Windows, as `wimlib-imagex` writes them, beside what it applies.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::path::Path;

use crate::support::{Mounted, Scratch, can_mount, have, is_root, run};
use crate::trees::{sums, told};

fn make_tree(scratch: &Scratch) {
    scratch.shell(
        r#"mkdir -p tree/sub/deep; cd tree; seq 100000 > numbers; head -c 300000 /dev/urandom > random; : > empty; echo x > sub/small; ln sub/small sub/other
        head -c 32768 /dev/zero > zeros; head -c 65537 /dev/zero > more; ln -s ../numbers sub/link; ln -s /usr/bin sub/far; cp /bin/bash program; chmod 4711 random
        for size in 1 2 3 17 33 4095 32767 32768 32769; do head -c $size program > sub/part$size; done; chown 12:34 numbers; mkfifo fifo; touch "sub/Grün 🌲"
        python3 -c 'import struct; print("".join(str(n * 7 % 1000) for n in range(60000)), end="")' > sub/deep/digits 2> /dev/null || seq 9 > sub/deep/digits
        od -An -v -td4 -w4 -N 80000 numbers | tr -d ' \n' > sub/deep/more; touch -d '2021-02-03 04:05:06.1234567 UTC' numbers sub/small; chmod 700 sub/deep"#,
    );
}

/// Of all but folders, kind and time, and where links lead; also modes and owners, where they are kept.
fn attributes(scratch: &Scratch, folder: &Path, of_unix: bool) -> String {
    let (folder, more) = (folder.display(), if of_unix { "%m %U %G " } else { "" });
    scratch.shell(&format!(
        "cd '{folder}'; find . -mindepth 1 '(' -type l -printf '%y %l %p\\n' -o -type d -printf '%y %p\\n' -o -printf '%y %s %n {more}%T@ %p\\n' ')' | sed 's/\\([0-9]\\{{7\\}}\\)00*  *\\./\\1 ./; s/\\(\\.[0-9]\\{{7\\}}\\)[0-9]*/\\1/' | sort"
    ))
}

/// > Of a WIM image, a mount shows what `wimlib-imagex apply` makes of it, with its streams and attributes of Windows
/// > as extended attributes, and those that wimlib captured on Unix.
#[test]
fn what_wimlib_has_captured_is_read() {
    if !can_mount() || !is_root() || !have("wimlib-imagex") {
        return println!("left out: no mounts or no wimlib-imagex here");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    for options in [
        "--compress=none",
        "--compress=XPRESS",
        "--compress=LZX",
        "--compress=LZX:100 --chunk-size=256K",
        "--compress=LZMS --chunk-size=64K",
        "--compress=LZMS",
        "--compress=XPRESS --chunk-size=4K --unix-data",
        "--solid",
        "--solid --solid-compress=LZX --solid-chunk-size=64K --unix-data",
        "--solid --solid-chunk-size=128K",
    ] {
        scratch.shell(&format!(
            "rm -rf x.wim theirs; wimlib-imagex capture tree x.wim {options} > said 2>&1; mkdir theirs
             wimlib-imagex apply x.wim theirs {} > said 2>&1",
            if options.contains("unix") { "--unix-data" } else { "" }
        ));
        let checked = told(&scratch, "check", "x.wim", &[]);
        assert_eq!(checked.code, 0, "{options}: {}{}", checked.text(), checked.err);
        let mounted = Mounted::new(&scratch, scratch.path("x.wim"), &[]);
        assert_eq!(sums(&scratch, &mounted.at), sums(&scratch, &scratch.path("theirs")), "{options}");
        let of_unix = options.contains("unix");
        let (ours, theirs) = (mounted.at.as_path(), scratch.path("theirs"));
        assert_eq!(attributes(&scratch, ours, of_unix), attributes(&scratch, &theirs, of_unix), "{options}");
        let tail = fs::read(mounted.path("program")).unwrap();
        assert!(tail == fs::read(scratch.path("tree/program")).unwrap(), "{options}");
        mounted.unmount();
    }
}

#[test]
fn several_images_are_folders_and_archives_in_archives_are_opened() {
    if !can_mount() || !have("wimlib-imagex") || !have("zip") {
        return println!("left out: no mounts, no wimlib-imagex or no zip here");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p one two/sub; seq 30000 > one/numbers; seq 9 > one/few; cp one/numbers two/sub; tar -cf two/t.tar -C one numbers few
         wimlib-imagex capture one x.wim first --compress=LZX > said; wimlib-imagex append two x.wim second > said
         wimlib-imagex capture one inner.wim --compress=XPRESS > said; mkdir box; cp inner.wim box; wimlib-imagex capture box outer.wim --solid > said
         tar -cf outer.tar inner.wim; gzip -k outer.tar; zip -q outer.zip inner.wim",
    );
    let mounted = Mounted::new(&scratch, scratch.path("x.wim"), &["-r"]);
    assert_eq!(sums(&scratch, &mounted.path("1")), sums(&scratch, &scratch.path("one")));
    assert_eq!(fs::read(mounted.path("2/sub/numbers")).unwrap(), fs::read(scratch.path("one/numbers")).unwrap());
    assert_eq!(sums(&scratch, &mounted.path("2/t.tar")), sums(&scratch, &scratch.path("one")));
    mounted.unmount();
    for outer in ["outer.wim", "outer.tar", "outer.tar.gz", "outer.zip"] {
        let mounted = Mounted::new(&scratch, scratch.path(outer), &["-r"]);
        assert_eq!(sums(&scratch, &mounted.path("inner.wim")), sums(&scratch, &scratch.path("one")), "{outer}");
        mounted.unmount();
    }
}

#[test]
fn what_is_damaged_split_or_for_pipes_says_so() {
    if !have("wimlib-imagex") {
        return println!("left out: no wimlib-imagex here");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir one; head -c 3000000 /dev/urandom > one/random; head -c 2000000 /dev/urandom > one/second; seq 9 > one/few; wimlib-imagex capture one x.wim --compress=LZX > said
         wimlib-imagex split x.wim s.swm 3 > said; wimlib-imagex capture one - --pipable > pipe.wim 2> said",
    );
    let bytes = fs::read(scratch.path("x.wim")).unwrap();
    let mut wrong = bytes.clone();
    wrong[2000] ^= 0x40;
    fs::write(scratch.path("wrong.wim"), &wrong).unwrap();
    let wrong = told(&scratch, "check", "wrong.wim", &[]);
    assert!(wrong.code != 0 && (wrong.text() + &wrong.err).contains("SHA-1"), "{}{}", wrong.text(), wrong.err);
    fs::write(scratch.path("cut.wim"), &bytes[..bytes.len() / 2]).unwrap();
    let cut = told(&scratch, "ls", "cut.wim", &[]);
    assert!(cut.code != 0 && cut.err.contains("table of"), "{}", cut.err);
    let first = told(&scratch, "check", "s.swm", &[]);
    assert!(
        first.code != 0 && (first.text() + &first.err).contains("in another part of 2"),
        "{}{}",
        first.text(),
        first.err
    );
    let second = told(&scratch, "ls", "s2.swm", &[]);
    assert!(second.code != 0 && second.err.contains("part 2 of 2"), "{}", second.err);
    let pipe = told(&scratch, "ls", "pipe.wim", &[]);
    assert!(pipe.code != 0 && pipe.err.contains("for pipes"), "{}", pipe.err);
    // What is whole is served.
    let few = run(&scratch, ["cat", scratch.path("wrong.wim").to_str().unwrap(), "few"]).ok();
    assert_eq!(few.text(), "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
}

/// > Nothing that is damaged is made to look whole by `convert`.
///
/// What was compressed together has no check of its own; each file has one.
#[test]
fn files_of_solid_images_are_compared_with_their_hashes() {
    if !have("wimlib-imagex") {
        return println!("left out: no wimlib-imagex here");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir d; seq 60000 > d/a; head -c 100000 /dev/urandom > d/b; wimlib-imagex capture d s.wim --solid > said",
    );
    let bytes = fs::read(scratch.path("s.wim")).unwrap();
    assert_eq!(told(&scratch, "check", "s.wim", &[]).code, 0);
    let to = scratch.path("x.tar");
    let (to, mut noticed) = (to.to_str().unwrap(), 0);
    for at in (400..bytes.len() - 4000).step_by(bytes.len() / 8) {
        let mut wrong = bytes.clone();
        wrong[at] ^= 0x10;
        fs::write(scratch.path("wrong.wim"), &wrong).unwrap();
        let checked = told(&scratch, "check", "wrong.wim", &[]);
        noticed += usize::from(checked.code == 5);
        assert!(!checked.text().contains("compared with nothing"), "{at}: {}", checked.text());
        assert_eq!(checked.code == 0, told(&scratch, "convert", "wrong.wim", &[to]).code == 0, "{at}");
        let _ = fs::remove_file(to);
    }
    // Of the few bytes that matter to nothing there is hardly one among these.
    assert!(noticed >= 5, "{noticed}");
}

/// > What differs is told in one line each, whatever the archive is compressed with.
#[test]
fn images_are_compared_with_what_they_keep() {
    if !have("wimlib-imagex") || !is_root() {
        return println!("left out: no wimlib-imagex here, or not root");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p d/sub; seq 9 > d/a; seq 8 > d/sub/b; ln -s a d/link; chmod 600 d/a; chown -h 1000:1000 d/sub/b
         wimlib-imagex capture d windows.wim > said; wimlib-imagex capture d unix.wim --unix-data > said",
    );
    let folder = scratch.path("d");
    let folder = folder.to_str().unwrap();
    for name in ["windows.wim", "unix.wim"] {
        let same = told(&scratch, "compare", name, &[folder]);
        assert_eq!((same.code, same.text()), (0, String::new()), "{name}: {}", same.err);
    }
    scratch.shell("chmod 4755 d/a; chown 2000:2000 d/sub/b");
    let other = told(&scratch, "compare", "unix.wim", &[folder]);
    assert!(other.code == 1 && other.text().lines().count() == 3, "{}", other.text());
    assert_eq!(told(&scratch, "compare", "windows.wim", &[folder]).code, 0);
}
