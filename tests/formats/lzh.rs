//! LHA and ARJ, beside what was packed and what their programs extract.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;

use crate::support::{Mounted, Scratch, can_mount, corpus, have};
use crate::trees::{attributes, small, sums, told};

const TREE: &str = "mkdir -p tree/sub; cd tree; seq 40000 > numbers; head -c 100000 /dev/urandom > random; echo x > sub/small
    for n in 1 2 3 4 5 6 7 8; do seq 2000 | tr '\n' ' '; done > again; : > empty; cp random sub/random; head -c 70000 random >> sub/random";

/// Mounts `name`: what is in it, once its checksums were compared.
fn mounted_sums(scratch: &Scratch, name: &str) -> String {
    let checked = told(scratch, "check", name, &[]);
    assert_eq!(checked.code, 0, "{name}: {}", checked.err);
    assert!(!checked.text().contains("compared with nothing"), "{name}: {}", checked.text());
    let mounted = Mounted::new(scratch, scratch.path(name), &[]);
    let found = sums(scratch, &mounted.path(""));
    mounted.unmount();
    found
}

#[test]
fn what_lha_has_packed_is_read() {
    if !can_mount() || !have("jlha") {
        return println!("left out: no mounts or no jlha here");
    }
    let scratch = Scratch::new();
    scratch.shell(TREE);
    let expected = sums(&scratch, &scratch.path("tree"));
    for options in ["o5", "o6", "o7", "0", "1", "2", "z"] {
        scratch.shell(&format!("cd tree; rm -f ../x.lzh; jlha -c{options} ../x.lzh * > ../log 2>&1"));
        assert_eq!(mounted_sums(&scratch, "x.lzh"), expected, "{options}");
    }
    scratch.shell("tar -cf outer.tar x.lzh; gzip -k outer.tar");
    for outer in ["outer.tar", "outer.tar.gz"] {
        let mounted = Mounted::new(&scratch, scratch.path(outer), &["-r", "--recursive-extensions=lzh"]);
        assert_eq!(sums(&scratch, &mounted.path("x.lzh")), expected, "{outer}");
        mounted.unmount();
    }
}

/// Headers of all levels, links and owners of Unix, names in UTF-16, and lh1, which no free program writes.
#[test]
fn what_lhasa_extracts_is_what_is_shown() {
    if !can_mount() || !have("lhasa") {
        return println!("left out: no mounts or no lhasa here");
    }
    let mut archives: Vec<_> =
        ["lh1.lzh", "lh5.lzh", "lh6.lzh", "lh7.lzh", "level0.lzh", "level1.lzh"].map(small).to_vec();
    let others = corpus().map(|corpus| corpus.join("libarchive"));
    let others = others.iter().flat_map(|folder| {
        ["header1", "header3", "lh6", "bugfix_0", "withjunk"]
            .map(|name| folder.join(format!("libarchive__test_read_format_lha_{name}.lzh")))
    });
    archives.extend(others.filter(|path| path.exists()));
    for archive in archives {
        let scratch = Scratch::new();
        fs::copy(&archive, scratch.path("x.lzh")).unwrap();
        scratch.shell("mkdir theirs; cd theirs; lhasa -xqf ../x.lzh > ../log 2>&1 || cat ../log >&2");
        let mounted = Mounted::any(&scratch, scratch.path("x.lzh"), &[]);
        let tell = |folder: &std::path::Path| (sums(&scratch, folder), attributes(&scratch, folder));
        let (ours, theirs) = (tell(&mounted.path("")), tell(&scratch.path("theirs")));
        mounted.unmount();
        assert_eq!(ours.0, theirs.0, "{}", archive.display());
        assert!(!ours.0.is_empty(), "{}", archive.display());
    }
}

#[test]
fn what_arj_has_packed_is_read() {
    if !can_mount() || !have("arj") {
        return println!("left out: no mounts or no arj here");
    }
    let scratch = Scratch::new();
    scratch.shell(TREE);
    let expected = sums(&scratch, &scratch.path("tree"));
    for method in 0..=4 {
        scratch.shell(&format!("cd tree; rm -f ../x.arj; arj a -r -m{method} ../x.arj . > ../log 2>&1"));
        assert_eq!(mounted_sums(&scratch, "x.arj"), expected, "-m{method}");
    }
    scratch.shell("cd tree; arj a -gsecret ../locked.arj numbers > ../log 2>&1");
    let locked = told(&scratch, "cat", "locked.arj", &["numbers"]);
    assert!(locked.code != 0 && locked.err.contains("password of ARJ"), "{}", locked.err);
}

#[test]
fn what_is_changed_is_noticed() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    let scratch = Scratch::new();
    for name in ["lh1.lzh", "lh5.lzh", "method1.arj", "method4.arj"] {
        let bytes = fs::read(small(name)).unwrap();
        // Each file is compared with its checksum.
        fs::write(scratch.path("whole"), &bytes).unwrap();
        let whole = told(&scratch, "check", "whole", &[]).ok();
        assert!(!whole.text().contains("compared with nothing"), "{name}: {}", whole.text());
        let mut changed = bytes.clone();
        let at = bytes.len() / 2;
        changed[at] ^= 0x10;
        fs::write(scratch.path("changed"), &changed).unwrap();
        let ran = told(&scratch, "check", "changed", &[]);
        assert!(ran.code != 0, "{name}: {}", ran.text());
        fs::write(scratch.path("cut"), &bytes[..at]).unwrap();
        let ran = told(&scratch, "check", "cut", &[]);
        assert!(ran.code != 0 && ran.text().contains("are there"), "{name}: {}", ran.text());
    }
}
