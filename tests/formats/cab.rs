//! Cabinets: those of gcab beside what was packed, and small ones of every compression beside what other programs
//! extract.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::support::{Mounted, Scratch, can_mount, corpus, have};
use crate::trees::{small, sums, told};

#[test]
fn what_gcab_has_packed_is_read() {
    if !can_mount() || !have("gcab") {
        return println!("left out: no mounts or no gcab here");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/sub; cd tree; seq 40000 > numbers; head -c 100000 /dev/urandom > random; : > empty; echo x > sub/small
         touch -d '2021-02-03 04:05:06 UTC' numbers
         gcab -c -z ../packed.cab numbers random empty sub/small; gcab -c ../stored.cab numbers random empty sub/small",
    );
    let expected = sums(&scratch, &scratch.path("tree"));
    for name in ["packed.cab", "stored.cab"] {
        let checked = told(&scratch, "check", name, &[]);
        assert_eq!(checked.code, 0, "{name}: {}", checked.err);
        let mounted = Mounted::new(&scratch, scratch.path(name), &[]);
        assert_eq!(sums(&scratch, &mounted.path("")), expected, "{name}");
        assert_eq!(fs::metadata(mounted.path("numbers")).unwrap().mtime(), 1_612_325_106);
        mounted.unmount();
    }
    scratch.shell("tar -cf outer.tar packed.cab");
    let mounted = Mounted::new(&scratch, scratch.path("outer.tar"), &["-r"]);
    assert_eq!(sums(&scratch, &mounted.path("packed.cab")), expected);
    mounted.unmount();
}

/// Compressions that no free program writes: made for these tests, and read by cabextract.
#[test]
fn every_compression_gives_what_cabextract_extracts() {
    if !can_mount() || !have("cabextract") {
        return println!("left out: no mounts or no cabextract here");
    }
    let mut cabinets: Vec<_> =
        ["quantum.cab", "lzx-verbatim.cab", "lzx-calls.cab", "mszip.cab", "stored.cab"].map(small).to_vec();
    let others = corpus().map(|corpus| corpus.join("libarchive"));
    let others = others.iter().flat_map(|folder| {
        ["cab_1", "cab_3", "cab_lzx_16bit"].map(|name| folder.join(format!("libarchive__test_read_format_{name}.cab")))
    });
    cabinets.extend(others.filter(|path| path.exists()));
    for cabinet in cabinets {
        let scratch = Scratch::new();
        fs::copy(&cabinet, scratch.path("x.cab")).unwrap();
        scratch.shell("mkdir theirs; cabextract -q -d theirs x.cab");
        let mounted = Mounted::new(&scratch, scratch.path("x.cab"), &[]);
        let (ours, theirs) = (sums(&scratch, &mounted.path("")), sums(&scratch, &scratch.path("theirs")));
        mounted.unmount();
        assert!(ours == theirs && !ours.is_empty(), "{}\n{ours}\n{theirs}", cabinet.display());
    }
}

/// Files and blocks that go on in the next cabinet, opened by any of them.
#[test]
fn cabinets_that_belong_together_are_read_as_one() {
    if !can_mount() || !have("7z") {
        return println!("left out: no mounts or no 7z here");
    }
    let scratch = Scratch::new();
    let parts = ["part1.cab", "part2.cab", "part3.cab"];
    for part in parts {
        fs::copy(small(part), scratch.path(part)).unwrap();
    }
    scratch.shell("7z x -bso0 -bsp0 -otheirs part1.cab");
    let theirs = sums(&scratch, &scratch.path("theirs"));
    for part in parts {
        let mounted = Mounted::new(&scratch, scratch.path(part), &[]);
        assert_eq!(sums(&scratch, &mounted.path("")), theirs, "{part}");
        let modes = ["one", "sub/two", "four"].map(|name| fs::metadata(mounted.path(name)).unwrap().mode() & 0o777);
        assert_eq!(modes, [0o444, 0o644, 0o755]);
        mounted.unmount();
    }
    for (missing, opened) in [("part3.cab", "part1.cab"), ("part2.cab", "part1.cab")] {
        scratch.shell(&format!("mv {missing} away"));
        let ran = told(&scratch, "ls", opened, &[]);
        assert!(ran.code != 0 && ran.err.contains(missing), "{missing}: {}", ran.err);
        scratch.shell(&format!("mv away {missing}"));
    }
    // Without the one that it begins in, what begins in this one is there.
    scratch.shell(
        "mkdir alone; cp part3.cab alone/last.cab; cat part1.cab > alone/first.cab; tar -cf alone.tar -C alone .",
    );
    let last = told(&scratch, "ls", "alone/last.cab", &[]);
    assert!(last.err.contains("part2.cab"), "{}", last.err);
    let mounted = Mounted::any(&scratch, scratch.path("alone.tar"), &["-r"]);
    assert!(fs::read(mounted.path("first.cab/one")).is_ok() || mounted.path("first.cab/sub/two").exists());
    assert!(fs::read(mounted.path("first.cab/sub/two")).is_err());
    mounted.unmount();
}
