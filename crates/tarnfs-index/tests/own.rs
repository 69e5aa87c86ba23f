//! What goes into an index comes out of it again.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    reason = "a test that overflows or finds an error fails"
)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use tarnfs_codec::{Chunk, Damage, PIECE, SeekPoint};
use tarnfs_format::{Device, Entry, Kind, Piece, Time};
use tarnfs_index::{Destination, Error, Holder, Index, Node, Row, Shape, Summary, own};
use tarnfs_source::{Extent, Fingerprint};

use common::{build, build_with, entry, layered, summary, walk, writer};

fn find(index: &dyn Index, path: &str) -> Option<tarnfs_index::Row> {
    let mut row = index.row(Node::ROOT).unwrap().unwrap();
    for name in path.split('/') {
        row = index.lookup(row.node, name.as_bytes()).unwrap()?;
    }
    Some(row)
}

#[test]
fn an_empty_archive_has_a_root() {
    let index = build(&[]);
    let root = index.row(Node::ROOT).unwrap().unwrap();
    assert_eq!((root.kind, root.header, root.links, root.mode), (Kind::Folder, None, 2, 0o755));
    assert_eq!(index.parent(Node::ROOT).unwrap(), Node::ROOT);
    assert_eq!(walk(&*index).unwrap().len(), 1);
    assert!(index.lookup(Node::ROOT, b"a").unwrap().is_none());
    assert!(index.row(Node(0)).unwrap().is_none());
    assert!(index.row(Node(u64::MAX)).unwrap().is_none());
    assert_eq!(index.summary(), &Summary { folders: 1, ..summary() });
}

#[test]
#[allow(clippy::many_single_char_names, reason = "the files have these names")]
fn every_attribute_comes_back() {
    let mut file = entry(1, Kind::File, b"./d//f", b"");
    file.mode = 0o4755;
    file.uid = 1000;
    file.gid = u64::MAX;
    file.user = b"someone".to_vec();
    file.group = b"gr\xffup".to_vec();
    file.mtime = Time { seconds: i64::MIN, nanoseconds: 999_999_999 };
    file.atime = Some(Time { seconds: -1, nanoseconds: 1 });
    file.xattrs = vec![(b"system.posix_acl_access".to_vec(), vec![0; 60_000]), (b"user.a".to_vec(), b"1".to_vec())];
    let mut sparse = entry(2, Kind::File, b"d/s", b"");
    sparse.body.size = 1 << 50;
    sparse.body.stored = 30;
    let extents =
        vec![Extent { offset: 5, length: 10, skip: 0 }, Extent { offset: (1 << 50) - 20, length: 20, skip: 3000 }];
    sparse.body.extents = Some(extents.clone());
    sparse.ctime = Some(Time { seconds: i64::MAX, nanoseconds: 0 });
    let mut hole = entry(3, Kind::File, b"d/h", b"");
    (hole.body.stored, hole.body.extents) = (0, Some(Vec::new()));
    let entries = [
        file,
        sparse,
        hole,
        entry(4, Kind::Symlink, b"l", b"../x"),
        entry(5, Kind::CharacterDevice(Device { major: 4, minor: u32::MAX }), b"c", b""),
        entry(6, Kind::BlockDevice(Device { major: 8, minor: 1 }), b"b", b""),
        entry(7, Kind::Fifo, b"p", b""),
        entry(8, Kind::Socket, b"k", b""),
        entry(9, Kind::HardLink, b"x/y/z", b"/d/f"),
        entry(10, Kind::Folder, b"x/y/", b""),
    ];
    let index = build(&entries);
    let f = find(&*index, "d/f").unwrap();
    assert_eq!((f.mode, f.uid, f.gid, f.links, f.size), (0o4755, 1000, 65_534, 2, 2));
    assert_eq!((f.header, f.body, f.is_sparse, f.has_xattrs), (Some(1 << 20), (1 << 20) + 512, false, true));
    assert_eq!((f.mtime, f.atime, f.ctime), (entries[0].mtime, Time { seconds: -1, nanoseconds: 1 }, entries[0].mtime));
    assert_eq!(index.xattrs(f.node).unwrap(), entries[0].xattrs);
    assert_eq!(index.owner_names(f.node).unwrap(), (b"someone".to_vec(), b"gr\xffup".to_vec()));
    assert_eq!(find(&*index, "x/y/z").unwrap(), f);
    let s = find(&*index, "d/s").unwrap();
    assert_eq!((s.is_sparse, s.size, s.ctime.seconds, s.atime), (true, 1 << 50, i64::MAX, s.mtime));
    assert_eq!(index.extents(s.node).unwrap(), extents);
    let h = find(&*index, "d/h").unwrap();
    assert_eq!((h.is_sparse, index.extents(h.node).unwrap()), (true, Vec::new()));
    let l = find(&*index, "l").unwrap();
    assert_eq!((l.kind, l.size, index.link(l.node).unwrap()), (Kind::Symlink, 4, b"../x".to_vec()));
    for (name, number) in [("c", 4), ("b", 5), ("p", 6), ("k", 7)] {
        assert_eq!(find(&*index, name).unwrap().kind, entries[number].kind);
    }
    let (x, y) = (find(&*index, "x").unwrap(), find(&*index, "x/y").unwrap());
    assert_eq!((x.header, x.links, y.header, y.links), (None, 3, Some(10 << 20), 2));
    assert_eq!(index.parent(y.node).unwrap(), x.node);
    let total = index.summary();
    assert_eq!((total.files, total.folders, total.has_xattrs, total.has_acls), (8, 4, true, true));
    assert_eq!(total.bytes, 2 + (1 << 50) + 4);
    let mut links = Vec::new();
    index.hard_links(&mut |folder, name, header, node| links.push((folder, name.to_vec(), header, node))).unwrap();
    assert_eq!(links, [(y.node, b"z".to_vec(), 9 << 20, f.node)]);
}

/// A symbolic link whose target is stored as the content of a file is.
#[test]
fn links_whose_target_is_content_come_back() {
    let mut link = entry(5, Kind::Symlink, b"l", b"");
    let pieces = vec![Piece { length: 300, offset: 7, stored: 300, decoded: 300, crc: Some(9), ..Piece::default() }];
    (link.body.size, link.body.pieces) = (300, Some(pieces.clone()));
    let index = build(&[entry(1, Kind::File, b"f", b""), link, entry(6, Kind::Symlink, b"m", b"target")]);
    let row = find(&*index, "l").unwrap();
    assert_eq!((row.kind, row.size, row.has_pieces, row.is_sparse), (Kind::Symlink, 300, true, false));
    assert_eq!((index.pieces(Holder::File(row.node)).unwrap(), index.link(row.node).unwrap()), (pieces, Vec::new()));
    let other = find(&*index, "m").unwrap();
    assert_eq!((other.size, other.has_pieces, index.link(other.node).unwrap()), (6, false, b"target".to_vec()));
    assert!(index.has_links_in_pieces().unwrap());
    // They are no bytes of files.
    assert_eq!(index.summary().bytes, find(&*index, "f").unwrap().size);
    assert!(!build(&[entry(6, Kind::Symlink, b"m", b"target")]).has_links_in_pieces().unwrap());
}

/// A question over all rows takes longer than any one query may.
#[test]
fn long_files_in_pieces_are_found_among_very_many() {
    let mut writer = writer(64 << 20);
    for number in 0..600_000_u64 {
        let mut entry = entry(number, Kind::File, format!("d{}/{number}", number / 1000).as_bytes(), b"");
        let length = if number == 599_999 { 5000 } else { 7 };
        let piece = Piece { length, offset: number, stored: length, decoded: length, crc: Some(9), ..Piece::default() };
        (entry.body.size, entry.body.pieces) = (length, Some(vec![piece]));
        writer.add(&entry).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    drop(writer.finish(summary(), &Destination::File(path.clone())).unwrap());
    // Who has written it knows without a question.
    let index = own::open(&path, None, false).unwrap();
    let answers = [0, 4999, 5000].map(|bytes| index.has_pieces_above(bytes).unwrap());
    assert_eq!(answers, [true, true, false]);
}

#[test]
fn layers_come_back() {
    let chunk = |decoded: u64, length: u64, state: &[u8]| Chunk {
        point: SeekPoint { compressed_bit: decoded * 3 + 1, decoded, state: state.to_vec() },
        length,
        checksums: (0..length.div_ceil(PIECE as u64)).map(|piece| piece as u32 + 9).collect(),
    };
    let half = common::LENGTH / 2;
    let mut writer = writer(64 << 20);
    let first: Vec<_> = (0..300).map(|n| chunk(n * 1_000_000, 1_000_000, &vec![n as u8; 30_000])).collect();
    for chunk in &first {
        writer.add_chunk(0, chunk.clone()).unwrap();
    }
    let mut last = chunk(half, half, b"");
    last.checksums.clear();
    writer.add_chunk(1, last.clone()).unwrap();
    for decoded in [500..600, 100..200, 150..300, 300..300] {
        writer
            .add_damage(
                1,
                &Damage {
                    lost_from: decoded.start,
                    decoded,
                    compressed: 77,
                    compressed_from: 77,
                    what: "bad".to_owned(),
                },
            )
            .unwrap();
    }
    assert!(writer.add_chunk(100, Chunk::default()).is_err());
    let index = writer.finish(layered(), &Destination::Memory).unwrap();
    assert_eq!(index.summary().layers, layered().layers);
    let table = Arc::clone(&index).chunks(0).unwrap();
    assert_eq!(table.decoded_length(), common::LENGTH);
    for (number, chunk) in first.iter().enumerate() {
        for inside in [0, 1, 999_999] {
            assert_eq!(table.chunk_at(number as u64 * 1_000_000 + inside).unwrap().as_ref(), Some(chunk));
        }
    }
    assert_eq!(table.chunk_at(300_000_000).unwrap_err().kind(), std::io::ErrorKind::InvalidData, "a gap");
    assert_eq!(table.chunk_at(common::LENGTH).unwrap(), None);
    let table = Arc::clone(&index).chunks(1).unwrap();
    assert_eq!(table.chunk_at(common::LENGTH - 1).unwrap(), Some(last));
    assert!(table.chunk_at(0).is_err());
    let damage = |range| index.damage_in(range).unwrap().map(|damage| damage.decoded);
    assert_eq!(damage(0..100), None);
    assert_eq!(damage(0..101), Some(100..200));
    assert_eq!(damage(200..201), Some(200..300));
    assert_eq!(damage(300..500), None);
    assert_eq!(damage(599..u64::MAX), Some(500..600));
    assert_eq!(damage(600..u64::MAX), None);
    assert!(Arc::clone(&index).chunks(2).is_err());
}

#[test]
fn belongs_only_to_the_same_archive_and_options() {
    let known = summary();
    let facts = |length, modified, fingerprint: &'static dyn Fn() -> std::io::Result<Fingerprint>| own::Facts {
        length,
        modified,
        fingerprint,
    };
    let check = |facts: own::Facts<'_>, shape: &Shape, verify| match own::belongs(&known, &facts, shape, verify) {
        Ok(()) => true,
        Err(Error::Stale(_) | Error::OtherOptions(_)) => false,
        Err(other) => panic!("{other}"),
    };
    assert!(check(facts(common::LENGTH, -5, &same_fingerprint), &known.shape, true));
    assert!(check(facts(common::LENGTH, 6, &same_fingerprint), &known.shape, false));
    assert!(!check(facts(common::LENGTH, 6, &same_fingerprint), &known.shape, true));
    assert!(!check(facts(common::LENGTH + 1, -5, &same_fingerprint), &known.shape, false));
    assert!(!check(facts(common::LENGTH, -5, &|| Ok(Fingerprint(1))), &known.shape, false));
    let others = [
        Shape { encoding: None, ..known.shape.clone() },
        Shape { encoding: Some("utf-8".to_owned()), ..known.shape.clone() },
        Shape { ignore_zeros: false, ..known.shape.clone() },
        Shape { gnu_incremental: Some(false), ..known.shape.clone() },
        Shape { gnu_incremental: Some(true), ..known.shape.clone() },
    ];
    for shape in others {
        assert!(!check(facts(common::LENGTH, -5, &same_fingerprint), &shape, false));
    }
}

#[allow(clippy::unnecessary_wraps, reason = "the type that a closure of `Facts` has")]
fn same_fingerprint() -> std::io::Result<Fingerprint> {
    Ok(Fingerprint(0xfedc_ba98_7654_3210))
}

/// What `tar -x` leaves of `files`, a list of (is it a folder, path): true for folders.
fn extracted_by_tar(steps: &[(&str, Option<&[u8]>)]) -> BTreeMap<String, Option<Vec<u8>>> {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("a.tar");
    for (number, (path, content)) in steps.iter().enumerate() {
        let tree = folder.path().join(number.to_string());
        let target = tree.join(path);
        std::fs::create_dir_all(if content.is_some() { target.parent().unwrap() } else { &target }).unwrap();
        if let Some(content) = content {
            std::fs::write(&target, content).unwrap();
        }
        let done = std::process::Command::new("tar")
            .args(["--no-recursion", "-rf"])
            .arg(&archive)
            .arg("-C")
            .arg(&tree)
            .arg(path)
            .status()
            .unwrap();
        assert!(done.success());
    }
    let out = folder.path().join("out");
    std::fs::create_dir(&out).unwrap();
    // It fails where something is in the way; what it leaves counts.
    let _ = std::process::Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&out).output().unwrap();
    let mut found = BTreeMap::new();
    let mut waiting = vec![out.clone()];
    while let Some(at) = waiting.pop() {
        for child in std::fs::read_dir(at).unwrap() {
            let path = child.unwrap().path();
            let name = path.strip_prefix(&out).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                found.insert(name, None);
                waiting.push(path);
            } else {
                found.insert(name, Some(std::fs::read(&path).unwrap()));
            }
        }
    }
    found
}

#[test]
fn clashes_end_as_tar_extracts_them() {
    type Step<'a> = (&'a str, Option<&'a [u8]>);
    let cases: &[&[Step<'_>]] = &[
        &[("a", Some(b"1")), ("a", Some(b"2"))],
        &[("a", None), ("a", Some(b"1"))],
        &[("a", Some(b"1")), ("a", None)],
        &[("a", None), ("a/b", Some(b"1")), ("a", None), ("a/c", Some(b"2"))],
        &[("a", Some(b"1")), ("a", None), ("a/b", Some(b"2"))],
        &[("a/b", Some(b"1")), ("a/b", None), ("a/b", Some(b"3"))],
    ];
    for case in cases {
        let entries: Vec<Entry> = case
            .iter()
            .enumerate()
            .map(|(number, (path, content))| {
                let kind = if content.is_some() { Kind::File } else { Kind::Folder };
                entry(number as u64, kind, path.as_bytes(), b"")
            })
            .collect();
        let found: BTreeMap<String, Option<Vec<u8>>> = walk(&*build(&entries))
            .unwrap()
            .into_iter()
            .filter(|(path, _)| !path.is_empty())
            .map(|(path, row)| {
                let content =
                    (row.kind == Kind::File).then(|| case[(row.header.unwrap() >> 20) as usize].1.unwrap().to_vec());
                (String::from_utf8(path[1..].to_vec()).unwrap(), content)
            })
            .collect();
        assert_eq!(found, extracted_by_tar(case), "{case:?}");
    }
}

/// > If a name is stored several times, the last one shows, and the index keeps all that it replaces.
#[test]
fn nothing_that_is_replaced_vanishes() {
    let entries = [
        entry(0, Kind::File, b"a", b""),
        entry(1, Kind::Folder, b"a", b""),
        entry(2, Kind::File, b"a", b""),
        entry(3, Kind::Symlink, b"s", b"a"),
        entry(4, Kind::File, b"s/inside", b""),
        entry(5, Kind::Folder, b".", b""),
        entry(6, Kind::Folder, b"", b""),
    ];
    let index = build(&entries);
    assert_eq!(find(&*index, "a").unwrap().header, Some(2 << 20));
    assert_eq!(find(&*index, "s").unwrap().kind, Kind::Folder);
    assert_eq!(index.row(Node::ROOT).unwrap().unwrap().header, Some(6 << 20));
    let mut replaced = Vec::new();
    index
        .replaced(&mut |folder, name, row| {
            assert_eq!(index.row(row.node).unwrap().as_ref(), Some(row));
            if row.kind == Kind::Folder {
                index.children(row.node, 0, &mut |_, _, _| panic!("a replaced folder is empty")).unwrap();
            }
            replaced.push((folder, name.to_vec(), row.kind, row.header.unwrap() >> 20));
        })
        .unwrap();
    let root = Node::ROOT;
    let expected = [
        (root, b"".to_vec(), Kind::Folder, 5),
        (root, b"a".to_vec(), Kind::File, 0),
        (root, b"a".to_vec(), Kind::Folder, 1),
        (root, b"s".to_vec(), Kind::Symlink, 3),
    ];
    assert_eq!(replaced, expected);
    let replaced_of = |folder, name: &[u8]| {
        let mut found = Vec::new();
        index
            .replaced_of(folder, name, 0, &mut |header, row| {
                assert_eq!(row.header, header);
                found.push((row.kind, header.unwrap() >> 20));
                true
            })
            .unwrap();
        found
    };
    assert_eq!(replaced_of(root, b"a"), [(Kind::File, 0), (Kind::Folder, 1)]);
    assert_eq!(replaced_of(root, b"s"), [(Kind::Symlink, 3)]);
    for (folder, name) in
        [(root, &b"b"[..]), (root, b""), (root, b"\0"), (root, b"t"), (Node(2), b"a"), (Node(u64::MAX), b"a")]
    {
        if !name.is_empty() {
            assert_eq!(replaced_of(folder, name), [], "{folder:?} {name:?}");
        }
    }
}

#[test]
fn what_came_last_shows_also_in_place_of_a_folder_with_something_in_it() {
    let index = build(&[
        entry(0, Kind::Folder, b"a", b""),
        entry(1, Kind::File, b"a/in", b""),
        entry(2, Kind::File, b"a/sub/deep", b""),
        entry(3, Kind::File, b"a", b""),
        // A folder that no entry names, then a file, and a folder again.
        entry(4, Kind::File, b"b/in", b""),
        entry(5, Kind::Symlink, b"b", b"a"),
        entry(6, Kind::File, b"b/again", b""),
        // A link that leads nowhere changes nothing.
        entry(7, Kind::Folder, b"c", b""),
        entry(8, Kind::File, b"c/in", b""),
        entry(9, Kind::HardLink, b"c", b"missing"),
    ]);
    assert_eq!(find(&*index, "a").unwrap().kind, Kind::File);
    assert_eq!((find(&*index, "b").unwrap().header, find(&*index, "b").unwrap().kind), (None, Kind::Folder));
    assert_eq!(find(&*index, "c").unwrap().header, Some(7 << 20));
    let shown: Vec<_> = walk(&*index).unwrap().into_keys().collect();
    assert_eq!(shown, [&b""[..], b"/a", b"/b", b"/b/again", b"/b/in", b"/c", b"/c/in"]);
    let summary = index.summary();
    assert_eq!((summary.files, summary.folders), (6, 4), "files a and in a, b and c; the root, b, c and a/sub");
    let versions = |folder: Node, name: &[u8]| {
        let mut rows = Vec::new();
        index
            .replaced_of(folder, name, 0, &mut |header, row| {
                rows.push((header.map(|at| at >> 20), row.clone()));
                true
            })
            .unwrap();
        rows
    };
    let of_a = versions(Node::ROOT, b"a");
    assert_eq!(of_a.iter().map(|(header, row)| (*header, row.kind)).collect::<Vec<_>>(), [(Some(0), Kind::Folder)]);
    let folder = of_a[0].1.node;
    assert_eq!(of_a[0].1.links, 3);
    assert_eq!(index.lookup(folder, b"in").unwrap().unwrap().header, Some(1 << 20));
    let sub = index.lookup(folder, b"sub").unwrap().unwrap();
    assert_eq!(index.parent(sub.node).unwrap(), folder);
    assert_eq!(index.lookup(sub.node, b"deep").unwrap().unwrap().header, Some(2 << 20));
    let kinds = versions(Node::ROOT, b"b").into_iter().map(|(header, row)| (header, row.kind)).collect::<Vec<_>>();
    assert_eq!(kinds, [(None, Kind::Folder), (Some(5), Kind::Symlink)]);
    assert_eq!(versions(Node::ROOT, b"b")[0].1.node, find(&*index, "b").unwrap().node);
}

/// In a folder of many names, each position in a batch has its turn.
#[test]
fn folders_behind_what_shows_are_not_listed() {
    let mut entries = Vec::new();
    for number in 0..300_u64 {
        let path = format!("{number:03}");
        entries.push(entry(4 * number, Kind::File, format!("{path}/in").as_bytes(), b""));
        let link = if number % 3 == 0 { Kind::HardLink } else { Kind::File };
        entries.push(entry(4 * number + 1, link, path.as_bytes(), b"missing"));
    }
    let index = build(&entries);
    for from in [0, 1, 2, 127, 128, 129, 255, 256, 257] {
        let mut found = Vec::new();
        index
            .children(Node::ROOT, from, &mut |next, name, row| {
                assert!(next > from && index.lookup(Node::ROOT, name).unwrap().as_ref() == Some(row));
                assert_eq!(row.kind == Kind::Folder, found_number(name).is_multiple_of(3));
                found.push(name.to_vec());
                true
            })
            .unwrap();
        // Each name has two rows. Where the first of them shows, the second one alone has nothing.
        let first = if from % 2 == 0 || from / 2 % 3 != 0 { from / 2 } else { from / 2 + 1 };
        assert_eq!(found, (first..300).map(|number| format!("{number:03}").into_bytes()).collect::<Vec<_>>(), "{from}");
    }
}

fn found_number(name: &[u8]) -> u64 {
    std::str::from_utf8(name).unwrap().parse().unwrap()
}

/// A query with an end at both sides of the table read all of it, until its patience was over.
#[test]
fn versions_are_found_among_very_many() {
    let mut writer = writer(64 << 20);
    for number in 0..200_000_u64 {
        writer.add(&entry(number, Kind::File, format!("{:05}", number % 50_000).as_bytes(), b"")).unwrap();
    }
    let index = writer.finish(summary(), &Destination::Memory).unwrap();
    let count = |name: &str| {
        let mut count = 0;
        index
            .replaced_of(Node::ROOT, name.as_bytes(), 0, &mut |_, _| {
                count += 1;
                true
            })
            .unwrap();
        count
    };
    assert_eq!(["00000", "00001", "25000", "49999", "nothere", "!"].map(count), [3, 3, 3, 3, 0, 0]);
}

/// A listing of versions is read a part at a time.
#[test]
fn versions_go_on_from_anywhere() {
    // More than are read at once. Links that lead nowhere are no versions, unless they stand for one before them.
    let entries: Vec<_> = (0..5000)
        .map(|number| {
            let kind = if number < 1500 || number % 7 == 3 { Kind::HardLink } else { Kind::File };
            entry(number, kind, b"f", b"missing")
        })
        .collect();
    let index = build(&entries);
    // Those behind the first `from` and `passed`, which is what it has passed over by itself.
    let behind = |from: u64| {
        let mut found = Vec::new();
        let passed = index.replaced_of(Node::ROOT, b"f", from, &mut |header, _| {
            found.push(header.unwrap() >> 20);
            true
        });
        (passed.unwrap(), found)
    };
    let (passed, all) = behind(0);
    assert_eq!((passed, all.len(), all.first()), (0, 3499, Some(&1500)));
    for from in [1, 2, 3, 4, 100, 1000, 1001, 2500, 4000, all.len() - 1, all.len(), all.len() + 1, 100_000] {
        let (passed, found) = behind(from as u64);
        assert!(passed <= from as u64, "{from}");
        assert!(found == all[(passed as usize).min(all.len())..], "{from}: {passed} passed");
        assert!(passed as usize == from.min(all.len()), "{from}: {passed} passed");
    }
}

/// Whoever reads there is told at which byte of the archive it is, also if that is the first one.
#[test]
fn damage_comes_back_as_it_was() {
    let damage = |decoded: std::ops::Range<u64>, lost_from, compressed| Damage {
        lost_from,
        decoded,
        compressed,
        compressed_from: compressed,
        what: format!("bad at {compressed}"),
    };
    for compressed in [0, 1, 1 << 39] {
        let all = [damage(0..100, 0, compressed), damage(200..300, 300, compressed), damage(500..600, 500, compressed)];
        let mut writer = writer(64 << 20);
        for damage in &all {
            writer.add_damage(1, damage).unwrap();
        }
        let index = writer.finish(layered(), &Destination::Memory).unwrap();
        let table = Arc::clone(&index).chunks(1).unwrap();
        for damage in &all {
            assert_eq!(index.damage_in(damage.decoded.clone()).unwrap().as_ref(), Some(damage));
            assert_eq!(table.damage_in(damage.decoded.clone()).unwrap().as_ref(), Some(damage));
            // What can be decoded and fails a check is not lost.
            let lost = Some(damage).filter(|damage| damage.lost_from < damage.decoded.end);
            assert_eq!(table.lost_in(damage.decoded.clone()).unwrap().as_ref(), lost);
        }
        assert_eq!(index.damage_in(100..200).unwrap(), None);
        assert!(index.has_unverified() && table.has_checksums());
        // That of another layer is none of this one.
        assert_eq!(Arc::clone(&index).chunks(0).unwrap().damage_in(0..100).unwrap(), None);
        let mut writer = common::writer(64 << 20);
        writer.add_damage(1, &all[0]).unwrap();
        assert!(!writer.finish(layered(), &Destination::Memory).unwrap().has_unverified());
    }
}

/// Damage of streams is kept in the order of their numbers, and so much of one that what follows is told as a whole.
#[test]
fn damage_is_told_apart_as_far_as_there_is_room() {
    const MOST: u64 = 10_000;
    let damage = |number: u64| Damage {
        decoded: 10 * number..10 * number + 5,
        lost_from: 10 * number,
        compressed: number,
        compressed_from: number,
        what: "bad".to_owned(),
    };
    let mut writer = writer(64 << 20);
    for number in 0..MOST + 50 {
        writer.add_damage(1, &damage(number)).unwrap();
    }
    let index = writer.finish(layered(), &Destination::Memory).unwrap();
    let found = |range| index.damage_in(range).unwrap().map(|damage| damage.decoded);
    let last = 10 * (MOST - 1);
    assert_eq!(found(last - 10..last - 9), Some(last - 10..last - 5));
    assert_eq!(found(last - 5..last), None);
    for at in [last, last + 7, last + 10, 10 * (MOST + 49) + 4] {
        assert_eq!(found(at..at + 1), Some(last..10 * (MOST + 49) + 5), "{at}");
    }
    assert_eq!(found(10 * (MOST + 49) + 5..u64::MAX), None);
    let mut writer = common::writer(64 << 20);
    let nested =
        |start| tarnfs_index::Nested { codec: "gzip".to_owned(), decoded_length: 1 << 20, input: 0, start, length: 10 };
    for start in [0, 100] {
        writer.begin_nested(0, start);
        writer.add_nested(&nested(start)).unwrap();
    }
    writer.add_damage(1025, &damage(1)).unwrap();
    assert!(writer.add_damage(1024, &damage(1)).unwrap_err().to_string().contains("comes behind"));
    // What comes next may be told of before it is added, and nothing behind that.
    writer.add_damage(1026, &damage(2)).unwrap();
    assert!(writer.add_damage(1027, &damage(3)).is_err() && writer.add_chunk(1027, Chunk::default()).is_err());
    let index = writer.finish(layered(), &Destination::Memory).unwrap();
    let of = |layer: usize, range| Arc::clone(&index).chunks(layer).unwrap().damage_in(range).unwrap().is_some();
    assert!(of(1025, 10..15) && !of(1025, 15..20) && !of(1024, 10..15));
}

/// An archive in the archive is gone with all that is in it when a later entry has its name.
#[test]
fn what_came_from_an_archive_that_was_replaced_does_not_show() {
    let mut writer = writer(64 << 20);
    writer.add(&entry(0, Kind::File, b"kept/own", b"")).unwrap();
    let outer = writer.add_archive(0, 10, (0, 0)).unwrap();
    let inner = writer.add_archive(outer, 11, (0, 0)).unwrap();
    let other = writer.add_archive(0, 12, (0, 0)).unwrap();
    for (archive, number, path) in [
        (outer, 1, &b"a.tar/f"[..]),
        (inner, 2, b"a.tar/b.tar/deep/g"),
        (outer, 3, b"kept/from outer"),
        (other, 4, b"c.tar/h"),
    ] {
        writer.enter_archive(archive);
        writer.add(&entry(number, Kind::File, path, b"")).unwrap();
    }
    writer.enter_archive(0);
    writer.add(&entry(5, Kind::File, b"a.tar", b"")).unwrap();
    writer.replace_archive_at(10, (0, 0));
    assert_eq!([outer, inner, other, 0].map(|number| writer.is_replaced(number)), [true, true, false, false]);
    let index = writer.finish(summary(), &Destination::Memory).unwrap();
    let found: Vec<_> = walk(&*index).unwrap().into_iter().map(|(path, row)| (path, row.kind)).collect();
    let expected = [
        ("", Kind::Folder),
        ("/a.tar", Kind::File),
        ("/c.tar", Kind::Folder),
        ("/c.tar/h", Kind::File),
        ("/kept", Kind::Folder),
        ("/kept/own", Kind::File),
    ];
    assert_eq!(found, expected.map(|(path, kind)| (path.as_bytes().to_vec(), kind)));
    let mut replaced = 0;
    index.replaced(&mut |_, _, _| replaced += 1).unwrap();
    assert_eq!(replaced, 0);
}

#[test]
fn a_hard_link_is_a_name_of_the_version_before_it() {
    let index = build(&[
        entry(0, Kind::HardLink, b"early", b"f"),
        entry(1, Kind::File, b"f", b""),
        entry(2, Kind::HardLink, b"first", b"f"),
        entry(3, Kind::File, b"f", b""),
        entry(4, Kind::HardLink, b"second", b"./f"),
        entry(5, Kind::HardLink, b"chained", b"first"),
        entry(6, Kind::HardLink, b"folder", b"."),
        entry(7, Kind::HardLink, b"up", b"../.."),
        entry(8, Kind::HardLink, b"self", b"self"),
        entry(9, Kind::HardLink, b"f", b"missing"),
        entry(10, Kind::HardLink, b"lost", b"missing/er"),
    ]);
    let header = |path: &str| find(&*index, path).map(|row| (row.header.unwrap() >> 20, row.links));
    // The last "f" leads nowhere, so the name goes on showing what it did, and "early" is a name of the same.
    assert_eq!(header("f"), Some((3, 3)));
    assert_eq!(header("early"), Some((3, 3)));
    assert_eq!(header("second"), Some((3, 3)));
    assert_eq!(header("first"), Some((1, 2)));
    assert_eq!(header("chained"), Some((1, 2)));
    for gone in ["folder", "up", "self", "lost"] {
        assert_eq!(header(gone), None);
    }
    assert_eq!(walk(&*index).unwrap().len(), 6);
    assert_eq!(index.summary().notes.len(), 4, "{:?}", index.summary().notes);
    assert_eq!(index.summary().files, 2);
}

/// The rules of the tree, in the plainest way.
struct Model {
    entries: Vec<Entry>,
    folders: BTreeSet<Vec<u8>>,
    /// By entry: what a hard link is a name of, once known.
    resolved: BTreeMap<usize, Option<usize>>,
}

fn parent(path: &[u8]) -> Option<Vec<u8>> {
    path.iter().rposition(|&byte| byte == b'/').map(|at| path[..at].to_vec())
}

impl Model {
    fn new(entries: &[Entry]) -> Self {
        let mut this =
            Self { entries: entries.to_vec(), folders: BTreeSet::from([Vec::new()]), resolved: BTreeMap::new() };
        for entry in entries {
            let mut path = [b"/", entry.path.as_slice()].concat();
            if entry.kind == Kind::Folder {
                this.folders.insert(path.clone());
            }
            while let Some(above) = parent(&path) {
                this.folders.insert(above.clone());
                path = above;
            }
        }
        for (number, entry) in entries.iter().enumerate() {
            if entry.kind == Kind::HardLink {
                this.resolve(number, &mut BTreeSet::new());
            }
        }
        this
    }

    fn versions(&self, path: &[u8]) -> Vec<usize> {
        (0..self.entries.len()).filter(|&number| self.entries[number].path == path).collect()
    }

    fn files(&self, path: &[u8]) -> Vec<usize> {
        self.versions(path).into_iter().filter(|&number| !self.is_folder(number)).collect()
    }

    fn is_folder(&self, number: usize) -> bool {
        self.entries[number].kind == Kind::Folder
    }

    /// What showed at the path one after the other until entry `end` came: entries, `None` for a folder that none
    /// names.
    fn history(&self, path: &[u8], end: usize) -> Vec<Option<usize>> {
        let mut history = Vec::new();
        let below = [path, b"/"].concat();
        for number in 0..end {
            let at = &self.entries[number].path;
            let is_folder = matches!(history.last(), Some(&last) if self.is_folder_entry(last));
            if at == path {
                if history.last() == Some(&None) && self.is_folder(number) {
                    history.pop();
                }
                history.push(Some(number));
            } else if at.starts_with(&below) && !is_folder {
                history.push(None);
            }
        }
        history
    }

    fn is_folder_entry(&self, entry: Option<usize>) -> bool {
        entry.is_none_or(|number| self.is_folder(number))
    }

    /// The entry that shows, `None` for a folder that none names.
    fn shown(&self, path: &[u8]) -> Option<usize> {
        self.history(path, self.entries.len()).last().copied().flatten()
    }

    fn resolve(&mut self, link: usize, on_path: &mut BTreeSet<usize>) -> Option<usize> {
        if self.entries[link].kind != Kind::HardLink {
            return Some(link);
        }
        if let Some(known) = self.resolved.get(&link) {
            return *known;
        }
        if !on_path.insert(link) {
            return None;
        }
        let target = self.entries[link].link.clone();
        let files = self.files(&target);
        let is_file = |number: &usize| self.entries[*number].kind != Kind::Folder;
        let found = files.iter().copied().rfind(|&number| number < link);
        let found = found.or_else(|| self.shown(&target).filter(is_file)).or(files.last().copied());
        let own = self.entries[link].path.clone();
        let before = self.history(&own, link).last().copied().flatten().filter(is_file);
        let end = found.and_then(|next| self.resolve(next, on_path));
        let end = end.or_else(|| before.and_then(|next| self.resolve(next, on_path)));
        on_path.remove(&link);
        self.resolved.insert(link, end);
        end
    }

    /// Path to (entry shown, number of names).
    fn tree(&mut self) -> BTreeMap<Vec<u8>, (Option<usize>, u32)> {
        let mut shown = BTreeMap::new();
        let mut paths: BTreeSet<Vec<u8>> = self.folders.clone();
        paths.extend(self.entries.iter().map(|entry| [b"/", entry.path.as_slice()].concat()));
        for path in paths {
            let entry = self.shown(path.get(1..).unwrap_or_default());
            match entry.map(|number| self.resolve(number, &mut BTreeSet::new())) {
                // The folder in whose place the link is.
                Some(None) if self.folders.contains(&path) => {
                    let history = self.history(path.get(1..).unwrap_or_default(), self.entries.len());
                    shown.insert(path, history.into_iter().rfind(|&entry| self.is_folder_entry(entry)).flatten());
                }
                Some(None) => {}
                Some(Some(entry)) => drop(shown.insert(path, Some(entry))),
                None => drop(shown.insert(path, None)),
            }
        }
        let is_folder = |entry: &Option<usize>| entry.is_none_or(|number| self.entries[number].kind == Kind::Folder);
        // What lies behind something that is no folder is there, but shows only in versions.
        let is_reached = |path: &Vec<u8>| {
            let above = std::iter::successors(parent(path), |path| parent(path));
            above.into_iter().all(|folder| shown.get(&folder).is_some_and(is_folder))
        };
        shown
            .iter()
            .filter(|(path, _)| is_reached(path))
            .map(|(path, entry)| {
                let links = if is_folder(entry) {
                    let inside = |(other, entry): &(&Vec<u8>, &Option<usize>)| {
                        parent(other).as_ref() == Some(path) && is_folder(entry)
                    };
                    2 + shown.iter().filter(inside).count()
                } else {
                    shown.values().filter(|other| *other == entry).count()
                };
                (path.clone(), (*entry, links as u32))
            })
            .collect()
    }
}

fn some_entries() -> impl Strategy<Value = Vec<Entry>> {
    let path =
        || prop::collection::vec(prop::sample::select(vec!["a", "b", "b0", "c"]), 1..4).prop_map(|c| c.join("/"));
    let kinds =
        prop::sample::select(vec![Kind::File, Kind::File, Kind::Folder, Kind::Symlink, Kind::HardLink, Kind::HardLink]);
    prop::collection::vec((kinds, path(), path()), 0..24).prop_map(|list| {
        list.into_iter()
            .enumerate()
            .map(|(number, (kind, path, link))| entry(number as u64, kind, path.as_bytes(), link.as_bytes()))
            .collect()
    })
}

/// By path, what was stored there, hard links left aside: of each entry its number, `None` for a folder that none
/// names.
fn versions_below(index: &dyn Index, folder: Node, path: &[u8], found: &mut BTreeMap<Vec<u8>, Vec<Option<usize>>>) {
    let mut names = BTreeSet::new();
    index.names(folder, &mut |name| names.extend([name.to_vec()])).unwrap();
    for name in names {
        let mut rows = Vec::new();
        index
            .replaced_of(folder, &name, 0, &mut |header, row| {
                rows.push((header, row.clone()));
                true
            })
            .unwrap();
        // A hard link has the header of what it is a name of.
        rows.retain(|(header, row): &(Option<u64>, Row)| *header == row.header);
        let mut is_link = false;
        index.hard_links(&mut |at, link, _, _| is_link |= at == folder && *link == *name).unwrap();
        if let Some(row) = index.lookup(folder, &name).unwrap().filter(|_| !is_link) {
            let is_last = |(_, last): &(Option<u64>, Row)| {
                last.kind == Kind::Folder && (last.node, last.header) == (row.node, row.header)
            };
            if !rows.last().is_some_and(is_last) {
                rows.push((row.header, row));
            }
        }
        let below = if path.is_empty() { name } else { [path, b"/", &name].concat() };
        let folders: BTreeSet<Node> =
            rows.iter().filter(|(_, row)| row.kind == Kind::Folder).map(|(_, row)| row.node).collect();
        for folder in folders {
            versions_below(index, folder, &below, found);
        }
        found.insert(below, rows.iter().map(|(header, _)| header.map(|header| (header >> 20) as usize)).collect());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]
    #[test]
    fn any_entries_make_the_tree_of_the_rules(entries in some_entries()) {
        let index = build(&entries);
        let found: BTreeMap<_, _> = walk(&*index)
            .unwrap()
            .into_iter()
            .map(|(path, row)| (path, (row.header.map(|header| (header >> 20) as usize), row.links)))
            .collect();
        let mut model = Model::new(&entries);
        let tree = model.tree();
        prop_assert_eq!(&found, &tree);
        // Rows that were kept are those that were written.
        let kept = build_with(writer(64 << 20).keeping_rows(true), &entries);
        prop_assert_eq!(walk(&*kept).unwrap(), walk(&*index).unwrap());
        let summary = index.summary();
        let folders = found.values().filter(|(entry, _)| entry.is_none_or(|n| entries[n].kind == Kind::Folder)).count();
        let files: BTreeSet<_> = found.values().filter_map(|(entry, _)| *entry).filter(|&n| entries[n].kind != Kind::Folder).collect();
        // What lies in folders behind something else counts, too.
        let is_shown = |path: &Vec<u8>| found.get(path).is_some_and(|(entry, _)| model.is_folder_entry(*entry));
        if model.folders.iter().all(is_shown) {
            prop_assert_eq!((summary.folders, summary.files), (folders as u64, files.len() as u64));
        } else {
            prop_assert!(summary.folders >= folders as u64 && summary.files >= files.len() as u64);
        }
        // Every entry that is no link shows, or is among the replaced.
        let mut all: BTreeSet<usize> = found.values().filter_map(|(entry, _)| *entry).collect();
        let mut by_name: BTreeMap<(Node, Vec<u8>), Vec<_>> = BTreeMap::new();
        index.replaced(&mut |folder, name, row| {
            all.extend(row.header.map(|header| (header >> 20) as usize));
            by_name.entry((folder, name.to_vec())).or_default().extend(row.header);
        }).unwrap();
        // What is found by name is the same, less hard links, whose headers are their own.
        for ((folder, name), headers) in &by_name {
            let mut found = Vec::new();
            index.replaced_of(*folder, name, 0, &mut |header, row| {
                if row.header == header {
                    found.extend(header);
                }
                true
            }).unwrap();
            prop_assert_eq!(&found, headers);
        }
        let expected: BTreeSet<usize> = (0..entries.len()).filter(|&n| entries[n].kind != Kind::HardLink).collect();
        // Everything is in versions of what shows, from the root on.
        let mut below = BTreeMap::new();
        versions_below(&*index, Node::ROOT, b"", &mut below);
        all.extend(below.values().flatten().copied().flatten());
        prop_assert_eq!(all, expected);
        for path in model.folders.iter().chain(&entries.iter().map(|entry| [b"/", entry.path.as_slice()].concat()).collect::<Vec<_>>()) {
            let Some(path) = path.get(1..) else { continue };
            let is_known = |entry: &Option<usize>| entry.is_none_or(|number| entries[number].kind != Kind::HardLink);
            let mut expected: Vec<_> = model.history(path, entries.len()).into_iter().filter(is_known).collect();
            let mut found = below.get(path).cloned().unwrap_or_default();
            // Without the link that stood between them, these are one.
            expected.dedup();
            found.dedup();
            prop_assert_eq!(found, expected, "{:?}", path);
        }
        for path in found.keys().filter(|path| !path.is_empty()) {
            let path = std::str::from_utf8(&path[1..]).unwrap();
            prop_assert!(find(&*index, path).is_some());
            let missing = format!("{path}/z");
            prop_assert!(find(&*index, &missing).is_none());
        }
    }
}

#[test]
fn children_go_on_from_anywhere_in_the_order_of_their_names() {
    let entries: Vec<Entry> = (0..1000_u64)
        .map(|number| entry(number, Kind::File, format!("d/{}", number * 7919 % 1000).as_bytes(), b""))
        .collect();
    let (read, kept) = (build(&entries), build_with(writer(64 << 20).keeping_rows(true), &entries));
    let folder = find(&*read, "d").unwrap().node;
    let mut names: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    names.sort();
    let places = [0, 1, 127, 128, 129, 500, 999, 1000, 1001, u64::MAX];
    for (index, from) in [read, kept].iter().flat_map(|index| places.map(|from| (index, from))) {
        let mut found = Vec::new();
        let mut expected_next = from;
        index
            .children(folder, from, &mut |next, name, row| {
                expected_next += 1;
                assert_eq!(next, expected_next);
                // Asking from inside is allowed.
                assert_eq!(index.lookup(folder, name).unwrap().as_ref(), Some(row));
                found.push(String::from_utf8(name.to_vec()).unwrap());
                found.len() < 300
            })
            .unwrap();
        let rest = names.get(from.min(1000) as usize..).unwrap();
        assert_eq!(found, rest[..rest.len().min(300)]);
    }
}

#[test]
fn spilled_runs_make_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let make = |budget: usize, name: &str| {
        let path = folder.path().join(name);
        let mut writer = writer(budget);
        let mut random = 1_u64;
        for number in 0..120_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let path = format!("{}/{}/{}", random >> 62, random >> 40 & 15, random >> 45 & 1023);
            let kind = [Kind::File, Kind::File, Kind::Symlink, Kind::HardLink][(random >> 33) as usize % 4];
            let target = format!("{}/{}/{}", random >> 60 & 3, random >> 36 & 15, random >> 26 & 1023);
            let mut entry = entry(number, kind, path.as_bytes(), target.as_bytes());
            entry.uid = random >> 50 & 7;
            if (random >> 20).is_multiple_of(64) {
                entry.xattrs.push((b"user.x".to_vec(), random.to_le_bytes().to_vec()));
            }
            writer.add(&entry).unwrap();
        }
        writer.finish(summary(), &Destination::File(path.clone())).unwrap();
        std::fs::read(path).unwrap()
    };
    let (large, small) = (make(256 << 20, "large"), make(1 << 20, "small"));
    assert!(large == small, "{} and {} bytes", large.len(), small.len());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn many_distinct_owners_and_names_are_all_kept() {
    let entries: Vec<Entry> = (0..130_000_u64)
        .map(|number| {
            let mut entry = entry(number % 1000, Kind::File, format!("{number}").as_bytes(), b"");
            entry.uid = number / 2;
            entry
        })
        .collect();
    let index = build(&entries);
    for number in [0, 1, 2, 99_999, 100_001, 129_999] {
        assert_eq!(find(&*index, &number.to_string()).unwrap().uid, number / 2);
    }
}

#[test]
fn classes_are_right_also_where_there_are_too_many_to_remember() {
    let mut writer = writer(64 << 20);
    for number in 0..120_000_u64 {
        let mut entry = entry(number % 1000, Kind::File, format!("{number}").as_bytes(), b"");
        entry.body.offset = entry.header + number;
        writer.add(&entry).unwrap();
    }
    for number in [5, 99_999, 100_000, 119_999] {
        let link = entry(1000, Kind::HardLink, format!("l{number}").as_bytes(), format!("{number}").as_bytes());
        writer.add(&link).unwrap();
    }
    let index = writer.finish(summary(), &Destination::Memory).unwrap();
    for number in [0, 5, 6, 99_998, 99_999, 100_000, 100_001, 119_999] {
        let row = find(&*index, &number.to_string()).unwrap();
        assert_eq!(row.body - row.header.unwrap(), number);
        let links = if [5, 99_999, 100_000, 119_999].contains(&number) { 2 } else { 1 };
        assert_eq!(row.links, links, "{number}");
    }
}

#[test]
fn times_come_back_to_the_nanosecond() {
    let limit = i64::MAX / 1_000_000_000;
    let times = [
        (0, 0),
        (0, 1),
        (-1, 0),
        (-1, 999_999_999),
        (-2, 5),
        (1_700_000_000, 123_456_789),
        // The last and the first time that 64 bits of nanoseconds hold, and those beside them.
        (limit, 854_775_807),
        (limit, 854_775_808),
        (-limit - 1, 145_224_192),
        (-limit - 1, 145_224_191),
        (i64::MAX, 0),
        (i64::MAX, 999_999_999),
        (i64::MIN, 0),
        (i64::MIN, 1),
    ]
    .map(|(seconds, nanoseconds)| Time { seconds, nanoseconds });
    let mut entries = Vec::new();
    for (number, time) in (0_u64..).zip(times) {
        for (kind, atime) in [("plain", None), ("with", Some(Time { seconds: 7, nanoseconds: 8 }))] {
            let path = format!("{kind}{number}");
            entries.push(Entry { mtime: time, atime, ..entry(number, Kind::File, path.as_bytes(), b"") });
        }
    }
    let index = build(&entries);
    for entry in &entries {
        let row = find(&*index, std::str::from_utf8(&entry.path).unwrap()).unwrap();
        assert_eq!((row.mtime, row.atime), (entry.mtime, entry.atime.unwrap_or(entry.mtime)), "{:?}", entry.mtime);
    }
}

/// What is longer would not be read again.
#[test]
fn what_people_read_is_cut() {
    let mut long = summary();
    long.label = Some(vec![b'l'; 5000]);
    // A character of three bytes is not cut in the middle.
    long.notes = vec![(1, "\u{20ac}".repeat(3000)), (2, "short".to_owned())];
    long.notes.extend((3..5000).map(|number| (number, "x".repeat(5000))));
    let index = writer(64 << 20).finish(long, &Destination::Memory).unwrap();
    let summary = index.summary();
    assert_eq!(summary.label.as_ref().map(Vec::len), Some(4096));
    assert_eq!(
        (summary.notes[0].1.len(), summary.notes[1].1.as_str(), summary.notes[2].1.len()),
        (4095, "short", 4096)
    );
    let bytes: usize = summary.notes.iter().map(|(_, what)| what.len()).sum();
    assert!((8 << 20) - bytes < 4096 && bytes <= 8 << 20, "{bytes}");
}

#[test]
fn rows_are_small() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    // Headers at any byte, and headers in blocks.
    for (step, unit) in [(512, 512), (520, 1)] {
        let mut writer = writer(64 << 20);
        let mut link = entry(0, Kind::HardLink, b"link", b"gone");
        link.header = 0;
        for number in 1..2000_u64 {
            let mut entry = entry(0, Kind::File, format!("{number}").as_bytes(), b"");
            entry.header = number * step;
            entry.body.offset = entry.header + 512;
            entry.mode = if number < 50 { 0o600 } else { 0o644 };
            writer.add(&entry).unwrap();
        }
        link.header = 2000 * step;
        link.link = b"7".to_vec();
        writer.add(&link).unwrap();
        link.path = b"lost".to_vec();
        link.link = b"gone".to_vec();
        writer.add(&link).unwrap();
        let index = writer.finish(summary(), &Destination::File(path.clone())).unwrap();
        for number in 1..2000 {
            let row = find(&*index, &number.to_string()).unwrap();
            assert_eq!((row.header, row.body), (Some(number * step), number * step + 512));
            assert_eq!((row.mode, row.links), (if number < 50 { 0o600 } else { 0o644 }, 1 + u32::from(number == 7)));
        }
        let mut links = Vec::new();
        index.hard_links(&mut |_, name, header, _| links.push((name.to_vec(), header))).unwrap();
        assert_eq!(links, [(b"link".to_vec(), 2000 * step)]);
        assert_eq!(index.summary().notes[0].0, 2000 * step, "where the lost link is");
        let connection = rusqlite::Connection::open(&path).unwrap();
        let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap().cast_unsigned();
        assert_eq!(number("SELECT value FROM summary WHERE key = 'header_unit'"), unit);
        assert_eq!(number("SELECT count(*) FROM entries WHERE class = 1"), 1950, "the most frequent class is 1");
        assert_eq!(number("SELECT count(*) FROM entries WHERE class = 2"), 48);
        assert_eq!(number("SELECT header FROM entries WHERE name = CAST('9' AS BLOB)"), 9 * step / unit);
    }
}

#[test]
fn an_attribute_that_is_asked_for_alone_is_the_one_of_all() {
    let mut one = entry(0, Kind::File, b"one", b"");
    let computed = |name: &str| [own::COMPUTED, name.as_bytes()].concat();
    one.xattrs = vec![
        (b"user.a".to_vec(), b"stored".to_vec()),
        (b"user.b".to_vec(), b"only".to_vec()),
        (vec![b'u'; 300], b"long".to_vec()),
        (computed("user.a"), b"computed".to_vec()),
        (computed("user.c"), b"hidden".to_vec()),
    ];
    let mut other = entry(1, Kind::File, b"other", b"");
    other.xattrs = vec![(b"user.a".to_vec(), b"of another".to_vec())];
    let index = build(&[one, other]);
    index.hide_xattrs(vec![b"user.c".to_vec()]);
    for _ in 0..2 {
        for (file, count) in [("one", 3), ("other", 1)] {
            let node = find(&*index, file).unwrap().node;
            let all = index.xattrs(node).unwrap();
            assert_eq!(all.len(), count);
            for (name, value) in all {
                assert_eq!(index.xattr(node, &name).unwrap(), Some(value), "{}", name.escape_ascii());
            }
            for none in ["user.c", "user", "user.aa", ""] {
                assert_eq!(index.xattr(node, none.as_bytes()).unwrap(), None, "{none}");
            }
        }
    }
    let one = find(&*index, "one").unwrap().node;
    assert_eq!(index.xattr(one, b"user.a").unwrap().unwrap(), b"computed");
}

/// What is refused when it is read is not written: the rest of the entry can be read.
#[test]
fn attributes_that_nobody_could_read_are_left_out_with_a_note() {
    let mut writer = writer(1 << 20);
    let mut large = entry(0, Kind::File, b"large", b"");
    large.xattrs = vec![(b"user.a".to_vec(), vec![1; 65_537]), (b"user.b".to_vec(), vec![2; 65_536])];
    writer.add(&large).unwrap();
    let mut many = entry(1, Kind::File, b"many", b"");
    many.xattrs = (0..16_385).map(|number| (format!("user.{number:05}").into_bytes(), b"1".to_vec())).collect();
    writer.add(&many).unwrap();
    let index = writer.finish(summary(), &Destination::Memory).unwrap();
    let xattrs = |name: &[u8]| {
        let row = index.lookup(Node::ROOT, name).unwrap().unwrap();
        index.xattrs(row.node).unwrap()
    };
    assert_eq!(xattrs(b"large"), large.xattrs[1..]);
    assert_eq!(xattrs(b"many"), many.xattrs[..16_384]);
    let notes = &index.summary().notes;
    assert_eq!((notes.len(), notes[1].0), (2, many.header));
    assert!(notes[0].1.contains("large") && notes[0].1.contains("left out"), "{notes:?}");
}

/// A query that looks at so many folders is none without an end.
#[test]
fn the_folder_of_a_file_is_found_among_very_many() {
    let mut writer = writer(64 << 20);
    let count = 160_000;
    for number in 0..count {
        writer.add(&entry(number, Kind::File, format!("{number:06}/f").as_bytes(), b"")).unwrap();
    }
    let index = writer.finish(summary(), &Destination::Memory).unwrap();
    for number in [0, 1, count / 2, count - 1] {
        let folder = index.lookup(Node::ROOT, format!("{number:06}").as_bytes()).unwrap().unwrap().node;
        let file = index.lookup(folder, b"f").unwrap().unwrap().node;
        assert_eq!(index.folder_of(file).unwrap(), Some(folder), "{number}");
        assert_eq!(index.folder_of(folder).unwrap(), Some(Node::ROOT));
    }
    assert_eq!(index.folder_of(Node::ROOT).unwrap(), None);
    assert_eq!(index.folder_of(Node(1 << 40)).unwrap(), None);
}
