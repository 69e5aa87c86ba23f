//! ar archives: what the tools make and extract, and libraries.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::support::{Compare, Mounted, Scratch, assert_twins, can_mount, have, run};

/// Keeps an index of every archive, however small.
const KEEP: &str = "--index-minimum-file-count=0";

const COMPARE: Compare = Compare { skip_folder_times: true, holes: false, whole_seconds: true };

const TREE: &str = r"
    mkdir tree; cd tree
    printf hello > file; : > nothing; printf odd > odd; head -c 300001 /dev/urandom > random; seq 1 60000 > numbers
    printf y > 'sp ace'; printf z > fifteen-letters; printf z > sixteen-letters.
    printf long > a-name-that-is-longer-than-sixteen; printf longer > another-name-that-is-longer-than-sixteen
    chmod 600 odd; touch -d '2001-02-03 04:05:06 UTC' file random; chown 123:456 random
";

#[track_caller]
fn assert_both_mounts(scratch: &Scratch, archive: &str, options: &[&str], twin: &Path) {
    let path = scratch.path(archive);
    for more in [KEEP, "--no-recreate-index"] {
        let mounted = Mounted::new(scratch, &path, &[options, &[KEEP, more]].concat());
        assert_twins(&mounted.at, twin, COMPARE);
        mounted.unmount();
    }
}

/// > What is mounted of a cpio or an ar is what `cpio -i` and `ar x` make of it.
#[test]
fn mounted_is_what_ar_extracts() {
    if !can_mount() || !have("ar") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(TREE);
    for (kind, tool, make, extract) in [
        ("gnu", "ar", "ar rcU", "ar xoU"),
        // GNU ar cuts the names of BSD's that have 16 letters.
        ("bsd", "bsdtar", "bsdtar --format=arbsd -cf", "bsdtar -xpf"),
    ] {
        if !have(tool) {
            continue;
        }
        scratch.shell(&format!(
            "cd tree; {make} ../{kind}.a *; mkdir ../twin-{kind}; cd ../twin-{kind}; {extract} ../{kind}.a
             chown 123:456 random"
        ));
        let twin = scratch.path(format!("twin-{kind}"));
        assert_both_mounts(&scratch, &format!("{kind}.a"), &[], &twin);
        for (suffix, tool) in [("gz", "gzip"), ("xz", "xz --block-size=64KiB"), ("zst", "zstd -q")] {
            scratch.shell(&format!("{tool} < {kind}.a > {kind}.a.{suffix}"));
            assert_both_mounts(&scratch, &format!("{kind}.a.{suffix}"), &[], &twin);
        }
    }
}

/// Members of a thin archive lie in other files: these are never opened, wherever the archive lies.
#[test]
fn thin_archives_show_names_and_say_what_is_missing() {
    let scratch = Scratch::new();
    if !have("ar") {
        return;
    }
    scratch
        .shell("echo secret > a; mkdir d; tar cf d/b.tar a; : > empty; ar rcT thin.a a d/b.tar empty; gzip -k thin.a");
    for archive in ["thin.a", "thin.a.gz"] {
        let path = scratch.path(archive);
        for options in [&[][..], &["-r"]] {
            let words: Vec<&str> = ["ls", "-R"].into_iter().chain(options.iter().copied()).collect();
            let ran = run(&scratch, words.iter().map(std::convert::AsRef::as_ref).chain([path.as_os_str()]));
            assert_eq!(String::from_utf8_lossy(&ran.out), "a\nd\nd/b.tar\nempty\n", "{}", ran.text());
            assert!(ran.err.contains("thin archive") && ran.err.contains("3 members"), "{}", ran.err);
        }
        let ran = run(&scratch, ["cat".as_ref(), path.as_os_str(), "a".as_ref()]);
        assert!(ran.code != 0 && ran.out.is_empty() && ran.err.contains("only names"), "{}", ran.text());
        let ran = run(&scratch, ["cat".as_ref(), path.as_os_str(), "empty".as_ref()]);
        // The archive counts as damaged, and this file is whole.
        assert!(ran.code == 5 && ran.out.is_empty() && !ran.err.contains("only names"), "{}", ran.err);
    }
}

/// > A file of a cpio or an ar whose header was changed since its index was made is not served.
#[test]
fn what_was_changed_is_an_error() {
    let scratch = Scratch::new();
    if !have("ar") {
        return;
    }
    scratch.shell(
        "mkdir tree; cd tree; for i in $(seq 1 300); do head -c 30000 /dev/urandom > file$i; echo $i > a-longer-name-than-sixteen-$i; done
         ar rcU ../a.a *",
    );
    let path = scratch.path("a.a");
    run(&scratch, ["index".as_ref(), path.as_os_str()]).ok();
    let cat = |name: &str| run(&scratch, ["cat", path.to_str().unwrap(), "--no-recreate-index", name]);
    let whole = fs::read(&path).unwrap();
    let there = cat("file5").ok().out;
    assert!(there == fs::read(scratch.path("tree/file5")).unwrap());
    let at = whole.windows(7).position(|window| window == b"file5/ ").unwrap() as u64;
    for (at, bytes) in [(at, &b"F"[..]), (at + 18, b"9"), (at + 50, b"1"), (at + 58, b"##")] {
        let file = fs::File::options().write(true).open(&path).unwrap();
        let modified = file.metadata().unwrap().modified().unwrap();
        file.write_all_at(bytes, at).unwrap();
        file.set_modified(modified).unwrap();
        let is_changed = fs::read(&path).unwrap() != whole;
        let ran = cat("file5");
        assert!(ran.code != 0 && ran.out.is_empty() || !is_changed, "{at}: {}", ran.err);
        file.write_all_at(&whole, 0).unwrap();
        file.set_modified(modified).unwrap();
    }
    assert!(cat("file5").ok().out == there);
    // What grew is read anew; its table of names may be another one.
    scratch.shell("cd tree; echo late > late-with-a-name-longer-than-sixteen; ar qcU ../a.a late*");
    let ran = run(&scratch, ["cat", "-d", "2", path.to_str().unwrap(), "late-with-a-name-longer-than-sixteen"]).ok();
    assert!(ran.text() == "late\n" && !ran.err.contains("grew"), "{}", ran.err);
    let cat = |name: &str| run(&scratch, ["cat", path.to_str().unwrap(), name]).ok().out;
    assert!(cat("file5") == there);
    assert_eq!(cat("a-longer-name-than-sixteen-77"), b"77\n");
}
