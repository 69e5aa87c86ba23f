//! Archives of SQLite, as `sqlite3 -A` writes them, beside what it extracts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::os::unix::fs::FileExt;

use crate::support::{Mounted, Scratch, can_mount, have, is_root};
use crate::trees::{attributes, small, sums, told};

/// Files of all sizes, so that some rows go on in other pages, with their names, too.
fn make_tree(scratch: &Scratch) {
    scratch.shell(
        r#"mkdir -p tree/sub/deep; cd tree; seq 400000 > numbers; head -c 3000000 /dev/urandom > random; : > empty; echo x > sub/small
        for size in 90 400 480 500 1000 4000 4050 8000 20000; do head -c $size /dev/urandom > sub/random$size; seq $size > sub/numbers$size; done
        name=$(printf 'n%.0s' $(seq 200)); mkdir -p $name/$name/$name; echo long > $name/$name/$name/$name; ln -s $name/$name/$name/$name sub/deep/far
        ln -s ../numbers sub/link; chmod 4711 random; chmod 2750 sub/deep; touch -d '2021-02-03 04:05:06 UTC' numbers random; touch -d @-5 sub/small; touch "a'b ä""#,
    );
}

/// > Of an SQLite archive, a mount shows what `sqlite3 -Ax` extracts.
#[test]
fn what_sqlite_has_packed_is_read() {
    if !can_mount() || !have("sqlite3") || !is_root() {
        return println!("left out: no mounts or no sqlite3 here");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    for (page, more) in [
        (512, ""),
        (1024, "pragma encoding='UTF-16le';"),
        (4096, "pragma auto_vacuum=full;"),
        (65536, "pragma encoding='UTF-16be'; create table other(x); create table another(y);"),
    ] {
        // That of SQLite before 3.41 stops at a link; none sets more than the bits of permission.
        scratch.shell(&format!(
            "rm -rf x.sqlar y.sqlar theirs; mkdir theirs; sqlite3 x.sqlar \"pragma page_size={page}; {more} create table first(a, b)\" > said
             cd tree; sqlite3 ../x.sqlar -A -c numbers random empty sub \"a'b ä\" n*; cp ../x.sqlar ../y.sqlar; sqlite3 ../y.sqlar 'delete from sqlar where sz = -1'
             cd ../theirs; sqlite3 ../y.sqlar -A -x; cd ..; chmod 755 theirs"
        ));
        for archive in ["x.sqlar", "y.sqlar"] {
            let checked = told(&scratch, "check", archive, &[]);
            assert_eq!(checked.code, 0, "{page}: {}", checked.err);
        }
        let mounted = Mounted::new(&scratch, scratch.path("y.sqlar"), &[]);
        assert_eq!(sums(&scratch, &mounted.at), sums(&scratch, &scratch.path("theirs")), "{page}");
        mounted.unmount();
        let mounted = Mounted::new(&scratch, scratch.path("x.sqlar"), &[]);
        assert_eq!(sums(&scratch, &mounted.at), sums(&scratch, &scratch.path("tree")), "{page}");
        assert_eq!(attributes(&scratch, &mounted.at), attributes(&scratch, &scratch.path("tree")), "{page}");
        // At places of both long files, without those before.
        for (file, at) in [("random", 2_900_000_u64), ("numbers", 2_000_000)] {
            let read = |path: std::path::PathBuf| {
                let mut bytes = vec![0; 5000];
                fs::File::open(path).unwrap().read_exact_at(&mut bytes, at).unwrap();
                bytes
            };
            assert!(read(mounted.path(file)) == read(scratch.path("tree").join(file)), "{page}: {file}");
        }
        mounted.unmount();
    }
}

/// The statement that makes the table goes on in another page of the list of tables.
#[test]
fn small_pages_of_long_text_are_no_obstacle() {
    let scratch = Scratch::new();
    fs::copy(small("utf16.sqlar"), scratch.path("a.sqlar")).unwrap();
    let checked = told(&scratch, "check", "a.sqlar", &[]);
    assert_eq!(checked.code, 0, "{}", checked.err);
}

#[test]
fn rows_that_were_removed_and_pages_out_of_order_change_nothing() {
    if !have("sqlite3") {
        return println!("left out: no sqlite3 here");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    // Pages that became free are given to others in any order.
    scratch.shell(
        "cd tree; rm sub/link sub/deep/far; chmod 711 random; touch -d @5 sub/small; sqlite3 ../x.sqlar -A -c numbers sub; for round in 1 2 3; do sqlite3 ../x.sqlar -A -u numbers random empty sub; sqlite3 ../x.sqlar \"delete from sqlar where name like '%0'\"; done
         sqlite3 ../x.sqlar -A -u random numbers sub; cd ..; mkdir theirs; cd theirs; sqlite3 ../x.sqlar -A -x",
    );
    let checked = told(&scratch, "check", "x.sqlar", &[]);
    assert_eq!(checked.code, 0, "{}", checked.err);
    told(&scratch, "extract", "x.sqlar", &["-C", scratch.folder("ours").to_str().unwrap()]).ok();
    assert_eq!(sums(&scratch, &scratch.path("ours")), sums(&scratch, &scratch.path("theirs")));
    assert_eq!(attributes(&scratch, &scratch.path("ours")), attributes(&scratch, &scratch.path("theirs")));
}

#[test]
fn archives_in_archives_are_opened() {
    if !can_mount() || !have("sqlite3") || !have("zip") {
        return println!("left out: no mounts, no sqlite3 or no zip here");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir t; seq 30000 > t/numbers; seq 9 > t/few; cd t; sqlite3 ../x.sqlar -A -c numbers few; cd ..; tar -cf t.tar -C t numbers; gzip -k t.tar
         sqlite3 outer.sqlar -A -c x.sqlar t.tar t.tar.gz; tar -cf outer.tar x.sqlar; gzip -k outer.tar; zip -q outer.zip x.sqlar",
    );
    for outer in ["outer.sqlar", "outer.tar", "outer.tar.gz", "outer.zip"] {
        let mounted = Mounted::new(&scratch, scratch.path(outer), &["-r"]);
        assert_eq!(sums(&scratch, &mounted.path("x.sqlar")), sums(&scratch, &scratch.path("t")), "{outer}");
        if outer == "outer.sqlar" {
            for inner in ["t.tar", "t.tar.gz"] {
                let numbers = fs::read(mounted.path(inner).join("numbers")).unwrap();
                assert!(numbers == fs::read(scratch.path("t/numbers")).unwrap(), "{inner}");
            }
        }
        mounted.unmount();
    }
}

#[test]
fn other_databases_are_none_and_damage_is_told() {
    let scratch = Scratch::new();
    let bytes = fs::read(small("files.sqlar")).unwrap();
    // The table has another name, in its row and in its statement.
    let mut other = bytes.clone();
    for at in 0..other.len() - 5 {
        if other[at..].starts_with(b"sqlar") {
            other[at + 4] = b'x';
        }
    }
    fs::write(scratch.path("other.db"), &other).unwrap();
    let none = told(&scratch, "ls", "other.db", &[]);
    assert!(none.code != 0 && none.err.contains("an SQLite database"), "{}", none.err);
    fs::write(scratch.path("cut.sqlar"), &bytes[..bytes.len() - 600]).unwrap();
    let cut = told(&scratch, "check", "cut.sqlar", &[]);
    assert!(cut.code != 0, "{}", cut.text());
    // What is encrypted has no mark: the name alone says what it should be.
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    })
    .take(8192)
    .collect();
    fs::write(scratch.path("secret.sqlar"), &noise).unwrap();
    let secret = told(&scratch, "ls", "secret.sqlar", &[]);
    assert!(secret.code != 0 && secret.err.contains("sqlcipher_export"), "{}", secret.err);
}
