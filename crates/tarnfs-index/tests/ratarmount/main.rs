//! Sidecars of the real ratarmount, read by tarnfs, and those that tarnfs writes, read by the real ratarmount.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "what tests share fails as tests do")]

mod belongs;
mod damaged;
mod planted;
mod seek_points;
mod support;
mod versions;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use support::{LARGE, TREE, Tree, dump, open, own_index, shell, walk};
use tarnfs_index::{Shape, ratarmount};

/// An archive, how it is made of the folder `tree`, and options of `dump.py`.
type Case = (&'static str, &'static str, &'static [&'static str]);

const PLAIN: &[Case] = &[
    ("gnu.tar", "tar --sparse -H gnu -cf gnu.tar -C tree .", &[]),
    ("pax.tar", "tar --sparse --xattrs -H pax -cf pax.tar tree", &[]),
    ("sparse01.tar", "tar --sparse --sparse-version=0.1 -H pax -cf sparse01.tar tree", &[]),
    ("sparse00.tar", "tar --sparse --sparse-version=0.0 -H pax -cf sparse00.tar tree", &[]),
    ("implied.tar", "tar -H ustar -cf implied.tar tree/a/b/c/third tree/empty/file7 tree/a/hello", &[]),
    (
        "again.tar",
        "cp -a tree new; tar -cf again.tar -C new a zero; echo other > new/a/hello; tar -rf again.tar -C new a/hello a/hardlink
         rm new/zero; mkdir new/zero; echo in > new/zero/in; tar -rf again.tar -C new zero; rm -r new",
        &[],
    ),
];

const COMPRESSED: &[Case] = &[
    // Small enough for ratarmount to use indexed_gzip: no seek points at all.
    ("small.tar.gz", "tar --sparse -czf small.tar.gz --exclude large --exclude noise tree", &[]),
    ("gztool.tar.gz", "tar --sparse -czf gztool.tar.gz tree", &["small-spacing"]),
    ("gzidx.tar.gz", "tar --sparse -czf gzidx.tar.gz tree", &["small-spacing", "indexed_gzip"]),
    ("members.tar.gz", "tar -cf - tree | split -b 1500000 --filter 'gzip -c' > members.tar.gz", &["small-spacing"]),
    ("members-gzidx.tar.gz", "cp members.tar.gz members-gzidx.tar.gz", &["small-spacing", "indexed_gzip"]),
    (
        "bgzf.tar.gz",
        "tar -cf - tree | if command -v bgzip > /dev/null; then bgzip -c; else gzip -c; fi > bgzf.tar.gz",
        &["small-spacing"],
    ),
    ("one.tar.bz2", "tar --sparse -cjf one.tar.bz2 tree", &[]),
    ("streams.tar.bz2", "tar -cf - tree | split -b 1500000 --filter 'bzip2 -3 -c' > streams.tar.bz2", &[]),
    ("frames.tar.zst", "tar --sparse -cf - tree | split -b 300000 --filter 'zstd -qc' > frames.tar.zst", &[]),
    ("one.tar.zst", "tar -cf - tree | zstd -qc > one.tar.zst", &[]),
    ("blocks.tar.xz", "tar --sparse -cf - tree | xz -1 --block-size=700000 -c > blocks.tar.xz", &[]),
    (
        "streams.tar.xz",
        "tar -cf - tree | split -b 3000000 --filter 'xz -1 --block-size=700000 -c' > streams.tar.xz",
        &[],
    ),
    // From 64 MiB on ratarmount uses rapidgzip without being asked to, and tarnfs writes gztool's index.
    (
        "large.tar.gz",
        "(cat tree/a/large; head -c 67200000 /dev/urandom; cat tree/a/large) > large; tar -c large tree | gzip -1 > large.tar.gz; rm large",
        &[],
    ),
    (
        "single.zz",
        "python3 -c 'import sys, zlib; sys.stdout.buffer.write(zlib.compress(open(\"tree/a/large\", \"rb\").read()))' > single.zz",
        &[],
    ),
    ("single.gz", "gzip -nc tree/a/large > single.gz", &[]),
    ("single.bz2", "bzip2 -c tree/a/large > single.bz2", &[]),
    ("single.zst", "split -b 300000 --filter 'zstd -qc' tree/a/large > single.zst", &[]),
    ("single.xz", "xz -1 --block-size=700000 -c tree/a/large > single.xz", &[]),
];

fn detecting() -> Shape {
    Shape { gnu_incremental: None, ..Shape::default() }
}

fn assert_same(archive: &Path, ours_are: &str, ours: &Tree, theirs_are: &str, theirs: &Tree) {
    let mut text = String::new();
    for path in ours.keys().chain(theirs.keys().filter(|path| !ours.contains_key(*path))) {
        let (one, other) = (ours.get(path), theirs.get(path));
        if !one.zip(other).is_some_and(|(one, other)| one.agrees(other)) {
            writeln!(text, "{path}\n  {ours_are} {one:?}\n  {theirs_are} {other:?}").unwrap();
        }
    }
    assert!(text.is_empty() && !ours.is_empty(), "{}\n{text}", archive.display());
}

fn sidecar_of(archive: &Path, suffix: &str) -> PathBuf {
    let mut name = archive.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// A tree without what an archive cannot tell of it: times and modes of folders that no entry names, and of a single
/// file.
fn without_guesses(archive: &Path, mut tree: Tree) -> Tree {
    let is_single = !archive.to_str().unwrap().contains(".tar");
    for facts in tree.values_mut() {
        if is_single || facts.kind == "folder" && archive.ends_with("implied.tar") {
            (facts.mode, facts.mtime, facts.uid, facts.gid) = Default::default();
        }
    }
    tree
}

fn both_ways(python: &Path, archive: &Path, options: &[&str]) {
    let sidecar = sidecar_of(archive, ".index.sqlite");
    let theirs = dump(python, "write", archive, &sidecar, options).unwrap();
    let (index, source) = open(archive, &sidecar, detecting()).unwrap();
    let ours = walk(&index, source).unwrap();
    assert_same(archive, "tarnfs, ratarmount's sidecar", &ours, "ratarmount, its sidecar", &theirs);

    let (index, source) = own_index(archive, &Shape::default());
    let own = walk(&index, source).unwrap();
    let (plain_own, plain_ours) = (without_guesses(archive, own.clone()), without_guesses(archive, ours));
    assert_same(archive, "tarnfs, its index", &plain_own, "tarnfs, ratarmount's sidecar", &plain_ours);

    let written = sidecar_of(archive, ".written.sqlite");
    ratarmount::write(&index, archive, &written).unwrap();
    let before = std::fs::read(&written).unwrap();
    for doing in ["use", "write"] {
        let theirs = dump(python, doing, archive, &written, options).unwrap();
        let theirs = without_guesses(archive, theirs);
        assert_same(archive, "tarnfs, its index", &plain_own, "ratarmount, sidecar from tarnfs", &theirs);
        assert!(std::fs::read(&written).unwrap() == before, "{}: ratarmount made its own", archive.display());
    }
    let (index, source) = open(archive, &written, detecting()).unwrap();
    let again = without_guesses(archive, walk(&index, source).unwrap());
    assert_same(archive, "tarnfs, its index", &plain_own, "tarnfs, sidecar from tarnfs", &again);
}

#[test]
fn plain_archives() {
    let python = python_or_return!();
    let folder = tempfile::tempdir().unwrap();
    shell(folder.path(), TREE);
    for (name, script, options) in PLAIN {
        shell(folder.path(), script);
        both_ways(&python, &folder.path().join(name), options);
    }
}

#[test]
fn compressed_archives_and_files() {
    let python = python_or_return!();
    let folder = tempfile::tempdir().unwrap();
    shell(folder.path(), TREE);
    shell(folder.path(), LARGE);
    for (name, script, options) in COMPRESSED {
        shell(folder.path(), script);
        both_ways(&python, &folder.path().join(name), options);
    }
}

#[test]
fn what_was_made_with_recursive_is_not_used() {
    let python = python_or_return!();
    let folder = tempfile::tempdir().unwrap();
    shell(folder.path(), TREE);
    shell(folder.path(), "tar --sparse -cf tree/inner.tar -C tree a; tar --sparse -cf outer.tar tree");
    let archive = folder.path().join("outer.tar");
    let sidecar = sidecar_of(&archive, ".index.sqlite");
    let theirs = dump(&python, "write", &archive, &sidecar, &["recursive"]).unwrap();
    assert!(theirs.contains_key("/tree/inner.tar/a/hello"));
    // As files it does not show archives, and of compressed ones in the archive it would know nothing.
    let recursive = Shape { recursion: Some(tarnfs_index::Recursion::default()), ..detecting() };
    for shape in [detecting(), recursive] {
        let error = open(&archive, &sidecar, shape).err().unwrap();
        assert!(matches!(error, tarnfs_index::Error::OtherOptions(_)), "{error}");
    }
}

#[test]
fn incremental_dumps() {
    let python = python_or_return!();
    let folder = tempfile::tempdir().unwrap();
    shell(folder.path(), TREE);
    shell(folder.path(), "tar --listed-incremental=state -cf dump.tar tree");
    let archive = folder.path().join("dump.tar");
    let sidecar = sidecar_of(&archive, ".index.sqlite");
    let theirs = dump(&python, "write", &archive, &sidecar, &["isGnuIncremental"]).unwrap();
    let (index, source) = open(&archive, &sidecar, Shape { gnu_incremental: Some(true), ..Shape::default() }).unwrap();
    assert_same(&archive, "tarnfs", &walk(&index, source).unwrap(), "ratarmount", &theirs);

    let (index, _) = own_index(&archive, &Shape { gnu_incremental: Some(true), ..Shape::default() });
    let written = sidecar_of(&archive, ".written.sqlite");
    ratarmount::write(&index, &archive, &written).unwrap();
    let through_ours = dump(&python, "use", &archive, &written, &["isGnuIncremental"]).unwrap();
    assert_same(&archive, "sidecar from tarnfs", &through_ours, "ratarmount's", &theirs);
}

/// Rows are ratarmount's own, but for the times: these are doubles of nanoseconds rounded in different ways.
#[test]
fn writes_the_rows_that_ratarmount_writes() {
    let python = python_or_return!();
    let folder = tempfile::tempdir().unwrap();
    shell(folder.path(), TREE);
    for (name, script, options) in &PLAIN[..5] {
        shell(folder.path(), script);
        let archive = folder.path().join(name);
        let (theirs, ours) = (sidecar_of(&archive, ".index.sqlite"), sidecar_of(&archive, ".written.sqlite"));
        dump(&python, "write", &archive, &theirs, options).unwrap();
        ratarmount::write(&own_index(&archive, &Shape::default()).0, &archive, &ours).unwrap();
        // GNU tar names hard links as it names files, with "./" and all; that is not kept.
        let rows = |path: &Path| {
            let connection = rusqlite::Connection::open(path).unwrap();
            let sql = "SELECT path, name, offsetheader, offset, size, mode, hex(type), replace(linkname, './', ''), uid, gid, istar, issparse,
                       isgenerated, recursiondepth FROM files ORDER BY path, name, offsetheader";
            let mut statement = connection.prepare(sql).unwrap();
            let rows = statement
                .query_map([], |row| {
                    Ok((0..14).map(|index| format!("{:?}", row.get_ref(index).unwrap())).collect::<Vec<_>>())
                })
                .unwrap();
            rows.map(Result::unwrap).map(|row| row.join(" ")).collect::<Vec<_>>()
        };
        for (ours, theirs) in rows(&ours).iter().zip(rows(&theirs)) {
            // An old GNU sparse file has a type of its own, which no index but ratarmount's keeps.
            assert_eq!(*ours, theirs.replace("Text([53, 51])", "Text([51, 48])"), "{name}");
        }
        assert_eq!(rows(&ours).len(), rows(&theirs).len(), "{name}");
    }
}
