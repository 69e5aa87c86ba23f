//! What the index says of entries in nested streams, of links that lead nowhere, and of content that was cut.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    reason = "a test that overflows or finds an error fails"
)]

mod common;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use common::{LENGTH, entry, summary, writer};
use tarnfs_format::{Entry, Kind};
use tarnfs_index::{Destination, Error, FIRST_NESTED, Index, Nested, Node, Writer, own};

/// An entry at byte `header` of its stream.
fn at(header: u64, kind: Kind, path: &str, link: &str) -> Entry {
    let mut entry = entry(0, kind, path.as_bytes(), link.as_bytes());
    (entry.header, entry.body.offset) = (header, header + 512);
    entry
}

fn add_nested(writer: &mut Writer, start: u64, entries: &[Entry]) {
    writer.begin_nested(0, start);
    let stream = writer.next_nested();
    for entry in entries {
        writer.add_from(stream, entry).unwrap();
    }
    let nested = Nested { codec: "gzip".to_owned(), decoded_length: 1 << 20, input: 0, start, length: 4096 };
    assert_eq!(writer.add_nested(&nested).unwrap(), stream);
    assert!(stream >= FIRST_NESTED);
}

/// What a symbolic link took the place of, and is a folder again behind it.
#[test]
fn a_folder_in_a_nested_stream_comes_back_behind_what_took_its_place() {
    let mut writer = writer(64 << 20);
    writer.add(&entry(0, Kind::File, b"big", b"")).unwrap();
    let entries = [
        at(0, Kind::File, "n/d/f", ""),
        at(1024, Kind::Symlink, "n/d", "other"),
        at(1536, Kind::File, "n/d/g", ""),
        at(2560, Kind::File, "n/other/x", ""),
        at(4096, Kind::File, "n/e/f", ""),
        at(5120, Kind::Symlink, "n/e", "other"),
    ];
    add_nested(&mut writer, (1 << 20) + 512, &entries);
    let index = writer.finish(summary(), &Destination::Memory).unwrap();
    let n = index.lookup(Node::ROOT, b"n").unwrap().unwrap();
    let d = index.lookup(n.node, b"d").unwrap().unwrap();
    assert_eq!(d.kind, Kind::Folder);
    let mut names = Vec::new();
    index.names(d.node, &mut |name| names.push(name.to_vec())).unwrap();
    assert_eq!(names, [b"f", b"g"]);
    assert_eq!(index.lookup(n.node, b"e").unwrap().unwrap().kind, Kind::Symlink);
}

#[test]
fn a_link_in_a_nested_stream_that_leads_nowhere_is_noted_where_the_stream_begins() {
    let mut writer = writer(64 << 20);
    add_nested(&mut writer, 3 << 20, &[at(512, Kind::HardLink, "n/lost", "n/gone")]);
    writer.add(&entry(7, Kind::HardLink, b"lost", b"gone")).unwrap();
    let index = writer.finish(summary(), &Destination::Memory).unwrap();
    let mut notes = index.summary().notes.clone();
    notes.sort();
    let [(inside, told_inside), (own, told)] = notes.as_slice() else { panic!("{notes:?}") };
    assert_eq!((*inside, *own), (3 << 20, 7 << 20));
    assert!(told_inside.contains("compressed file that begins there") && !told.contains("compressed"), "{notes:?}");
}

/// Opens the index at `path` after `sql` has changed it.
fn changed(path: &Path, sql: &str) -> Arc<dyn Index> {
    rusqlite::Connection::open(path).unwrap().execute_batch(sql).unwrap();
    own::open_file(File::open(path).unwrap()).unwrap()
}

fn size_of(index: &dyn Index, name: &str) -> Result<u64, Error> {
    index.lookup(Node::ROOT, name.as_bytes()).map(|row| row.unwrap().size)
}

/// A link that leads nowhere is noted, and says nothing of where the archive ends.
#[test]
fn only_content_that_is_cut_may_go_past_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let longer = format!("UPDATE entries SET size = {LENGTH} WHERE name = CAST('f' AS BLOB)");
    let mut whole = writer(64 << 20);
    whole.add(&entry(1, Kind::File, b"f", b"")).unwrap();
    whole.add(&entry(2, Kind::HardLink, b"l", b"gone")).unwrap();
    whole.finish(summary(), &Destination::File(path.clone())).unwrap();
    let index = changed(&path, &longer);
    assert_eq!(index.summary().notes.len(), 1);
    assert!(matches!(size_of(&*index, "f"), Err(Error::Broken(_))));
    // An index of another version, which does not say whether anything is cut.
    let index = changed(&path, "DELETE FROM summary WHERE key = 'is_cut'");
    assert_eq!(size_of(&*index, "f").unwrap(), LENGTH);

    let mut cut = entry(1, Kind::File, b"f", b"");
    cut.body.offset = LENGTH - 10;
    (cut.body.size, cut.body.stored) = (100, 100);
    let mut writer = common::writer(64 << 20);
    writer.add(&cut).unwrap();
    writer.add(&entry(2, Kind::HardLink, b"l", b"gone")).unwrap();
    let index = writer.finish(summary(), &Destination::Memory).unwrap();
    assert_eq!(size_of(&*index, "f").unwrap(), 100);
    assert!(index.summary().notes.iter().any(|(at, what)| *at == LENGTH && what.contains("ends inside")));

    let mut inside = at((1 << 20) - 600, Kind::File, "f", "");
    (inside.body.size, inside.body.stored) = (100, 100);
    let mut writer = common::writer(64 << 20);
    add_nested(&mut writer, 3 << 20, &[inside]);
    let index = writer.finish(summary(), &Destination::Memory).unwrap();
    assert_eq!(size_of(&*index, "f").unwrap(), 100);

    // The same of what is told as a file when its stream is over.
    let mut late = at(0, Kind::File, "f", "");
    (late.body.size, late.body.stored) = ((1 << 20) + 1, (1 << 20) + 1);
    let mut writer = common::writer(64 << 20);
    add_nested(&mut writer, 3 << 20, &[]);
    writer.add_from(FIRST_NESTED, &late).unwrap();
    let index = writer.finish(summary(), &Destination::Memory).unwrap();
    assert_eq!(size_of(&*index, "f").unwrap(), (1 << 20) + 1);
}

/// An archive with many replaced entries, of which few are links.
#[test]
fn replaced_links_are_found_among_very_many_replaced_entries() {
    let mut writer = writer(64 << 20);
    for number in 0..200_000 {
        writer.add(&entry(number, Kind::File, b"a", b"")).unwrap();
    }
    writer.add(&entry(200_000, Kind::HardLink, b"l", b"a")).unwrap();
    writer.add(&entry(200_001, Kind::File, b"l", b"")).unwrap();
    let index = writer.finish(summary(), &Destination::Memory).unwrap();
    let mut found = Vec::new();
    index
        .replaced_links(&mut |folder, name, header, shared| found.push((folder, name.to_vec(), header, shared)))
        .unwrap();
    let a = index.lookup(Node::ROOT, b"a").unwrap().unwrap().node;
    assert_eq!(found, [(Node::ROOT, b"l".to_vec(), 200_000 << 20, Some(a))]);
}
