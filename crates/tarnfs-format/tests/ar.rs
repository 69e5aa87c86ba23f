//! ar archives: those that people's programs write, compared with what they extract, and those that are cut, altered,
//! or made by hand.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::fs;
use std::path::Path;

use common::twin::compare_all;
use common::{Told, content, has, sh, try_read_as};
use tarnfs_format::{Entry, Probe, detect};

const FILES: &str = r#"
    mkdir -p tree twin; cd tree; umask 022
    printf hello > file; : > nothing; printf x > odd; head -c 100001 /dev/urandom > random
    printf y > 'sp ace'; printf z > fifteen-letters; printf z > sixteen-letters.
    printf long > a-name-that-is-longer-than-sixteen; printf longer > another-name-that-is-longer-than-sixteen
    chmod 4751 file; chmod 600 odd; touch -d '2001-02-03 04:05:06 UTC' *
    [ "$(id -u)" = 0 ] && chown 1234:4321 random
    true
"#;

fn told(archive: &[u8]) -> Told {
    try_read_as("ar", archive).unwrap()
}

fn compare(folder: &Path) -> Told {
    let archive = fs::read(folder.join("a.ar")).unwrap();
    assert_eq!(
        detect(&Probe::of_head(&archive[..archive.len().min(4096)])).map(tarnfs_format::Format::name),
        Some("ar")
    );
    let told = told(&archive);
    assert_eq!(told.damage, []);
    compare_all(archive, &told, &folder.join("twin"));
    told
}

#[test]
fn gnu_llvm_and_bsd() {
    for (tool, make) in [
        ("ar", "cd tree; ar rcU ../a.ar *; cd ../twin; ar xoU ../a.ar"),
        ("llvm-ar", "cd tree; llvm-ar --format=gnu rcU ../a.ar *; cd ../twin; llvm-ar xo ../a.ar"),
        ("llvm-ar", "cd tree; llvm-ar --format=bsd rcU ../a.ar *; cd ../twin; llvm-ar xo ../a.ar"),
        ("llvm-ar", "cd tree; llvm-ar --format=darwin rcU ../a.ar *; cd ../twin; llvm-ar xo ../a.ar"),
        ("bsdtar", "cd tree; bsdtar --format=arbsd -cf ../a.ar *; cd ../twin; bsdtar -xpf ../a.ar"),
        (
            "bsdtar",
            "cd tree; rm *-* sp*; bsdtar --format=argnu -cf ../a.ar f* n* o* r*; cd ../twin; bsdtar -xpf ../a.ar",
        ),
    ] {
        if !has(tool) {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        sh(folder.path(), &format!("{FILES}\ncd ..; {make}"));
        // What ar extracts belongs to who extracts it, and has no bits beyond those of permissions.
        sh(
            folder.path(),
            "cd tree; for file in *; do chown --reference=\"$file\" \"../twin/$file\"; chmod --reference=\"$file\" \"../twin/$file\"; done",
        );
        compare(folder.path());
    }
}

/// Symbol tables of each kind are not shown.
#[test]
fn libraries() {
    for (tool, options) in
        [("ar", ""), ("llvm-ar", "--format=gnu"), ("llvm-ar", "--format=bsd"), ("llvm-ar", "--format=darwin")]
    {
        if !has(tool) || !has("gcc") {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        sh(
            folder.path(),
            &format!(
                "mkdir tree twin; cd tree
                 for name in a b a-name-that-is-longer-than-sixteen; do
                     echo 'int f_'$(echo $name | tr - _)' = 1;' | gcc -x c -c -o $name.o -; done
                 {tool} {options} rcs ../a.ar *.o; cd ../twin; {tool} x ../a.ar"
            ),
        );
        let archive = fs::read(folder.path().join("a.ar")).unwrap();
        let told = told(&archive);
        let mut paths = told.paths();
        paths.sort();
        assert_eq!(paths, ["a-name-that-is-longer-than-sixteen.o", "a.o", "b.o"], "{tool} {options}");
        assert_eq!(told.damage, []);
        for path in paths {
            assert_eq!(content(&archive, told.entry(&path)), fs::read(folder.path().join("twin").join(path)).unwrap());
        }
    }
}

#[test]
fn thin_archives_say_that_they_are() {
    let folder = tempfile::tempdir().unwrap();
    sh(
        folder.path(),
        "mkdir d; echo secret > d/a; echo secret > a-name-that-is-longer-than-sixteen; ar rcT a.ar d/a a-name*",
    );
    let archive = fs::read(folder.path().join("a.ar")).unwrap();
    assert!(archive.starts_with(b"!<thin>\n"));
    let told = told(&archive);
    assert_eq!(told.paths(), ["d/a", "a-name-that-is-longer-than-sixteen"]);
    for entry in &told.entries {
        // It is as long as the file, and nothing of the archive is taken for it.
        let pieces = entry.body.pieces.as_deref().unwrap();
        assert_eq!((entry.body.size, entry.body.stored, pieces.len(), pieces[0].stored), (7, 0, 1, 0));
        assert!(pieces[0].coder.as_ref().unwrap().steps[0].codec.contains("only names"));
    }
    assert_eq!(told.damage.len(), 1);
    assert!(told.damage[0].1.contains("2 members"), "{:?}", told.damage);
}

#[test]
fn debian_packages() {
    if !has("dpkg-deb") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    sh(
        folder.path(),
        "mkdir -p p/DEBIAN p/usr/bin; echo x > p/usr/bin/x
         printf 'Package: p\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n' > p/DEBIAN/control
         dpkg-deb --build --root-owner-group p a.ar",
    );
    let told = told(&fs::read(folder.path().join("a.ar")).unwrap());
    assert_eq!((told.entries.len(), told.damage.len()), (3, 0));
    assert!(told.paths()[0] == "debian-binary" && told.paths()[1].starts_with("control.tar"));
}

fn header(name: &str, size: u64) -> Vec<u8> {
    format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 1, 2, 3, 644).into_bytes()
}

#[test]
fn made_by_hand() {
    let magic = b"!<arch>\n".to_vec();
    let file = |name: &str, content: &str| [header(name, content.len() as u64), content.into()].concat();
    // Without what makes it even, and with it.
    let archive = [magic.clone(), file("a/", "odd"), file("b/", "odd"), b"\n".to_vec(), file("c/", "")].concat();
    let whole = told(&archive);
    assert_eq!((whole.paths(), whole.damage.len()), (vec!["a".into(), "b".into(), "c".into()], 0));
    assert_eq!(content(&archive, whole.entry("b")), b"odd");
    // A name that is in no table; a name longer than the member; a table larger than is read.
    let inside = [file("//", "one/\ntwo/\n"), file("/1", "x\n")].concat();
    for wrong in [file("/7", "x\n"), inside, file("#1/99", "xx"), header("//", 1 << 33)] {
        let told = told(&[magic.clone(), file("a/", "even"), wrong].concat());
        assert!(told.paths()[0] == "a" && told.damage.len() <= 2 && !told.damage.is_empty(), "{told:?}");
    }
    // Names of COFF end with a NUL; a path has folders; nothing leaves the root.
    let table = "long.obj\0../up\0";
    let archive = [magic.clone(), file("//", table), b"\n".to_vec(), file("/0", ""), file("/9", ""), file("d/e/", "")];
    assert_eq!(told(&archive.concat()).paths(), ["long.obj", "../up", "d/e"]);
    // Behind damage it goes on.
    let archive = [magic.clone(), file("a/", "even"), b"junk".to_vec(), file("b/", "x")].concat();
    let told = told(&archive);
    assert_eq!((told.paths(), told.damage.len()), (vec!["a".into(), "b".into()], 1));
    assert!(try_read_as("ar", b"no archive").is_err() && try_read_as("ar", &magic).unwrap().entries.is_empty());
}

#[test]
fn cut_at_every_byte_and_altered() {
    let folder = tempfile::tempdir().unwrap();
    sh(folder.path(), &format!("{FILES}\nrm random; ar rcU ../a.ar *"));
    let archive = fs::read(folder.path().join("a.ar")).unwrap();
    let whole = told(&archive).entries;
    for length in 0..archive.len() {
        let cut = try_read_as("ar", &archive[..length]).unwrap_or_default().entries;
        let there: Vec<&Entry> = whole.iter().take_while(|entry| entry.body.offset <= length as u64).collect();
        assert!(cut.iter().eq(there), "cut at {length}");
    }
    let table_end = whole[0].header as usize;
    for at in table_end..archive.len() {
        for bit in 0..8 {
            let mut altered = archive.clone();
            altered[at] ^= 1 << bit;
            let entries = try_read_as("ar", &altered).unwrap().entries;
            let safe = whole.iter().take_while(|entry| entry.body.offset + entry.body.size <= at as u64);
            let safe: Vec<Entry> = safe.cloned().collect();
            assert!(entries.starts_with(&safe), "bit {bit} of byte {at}");
        }
    }
}

/// Of a table that is the first member, whoever asks the format learns without reading all of it.
#[test]
fn tables_of_symbols_behind_other_members_are_told_once() {
    let symbols = [&header("/", 4)[..], b"\0\0\0\0"].concat();
    let member = [&header("a/", 2)[..], b"aa"].concat();
    for (parts, count) in
        [(vec![&symbols, &symbols, &member], 0), (vec![&member, &symbols, &symbols], 1), (vec![&member], 0)]
    {
        let archive = parts.iter().fold(b"!<arch>\n".to_vec(), |before, part| [&before[..], &part[..]].concat());
        let told = told(&archive);
        assert_eq!((told.paths(), told.unlisted.len()), (vec!["a".to_owned()], count), "{told:?}");
    }
}
