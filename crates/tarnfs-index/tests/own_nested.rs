//! What the index says of entries in nested streams, of links that lead nowhere, and of content that was cut.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    reason = "a test that overflows or finds an error fails"
)]

mod common;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use common::{LENGTH, entry, summary, writer};
use tarnfs_format::{Body, Entry, Kind};
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

/// What is in a made archive.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "there are few of them, in a test")]
enum Made {
    Entry(Entry),
    /// As an image in a tar: its entries lie where it does, and are told later.
    Late(Vec<Entry>),
    /// A compressed archive.
    Nested(Vec<Made>),
}

/// Numbers that look random, the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn entry(&mut self) -> Entry {
        let path: Vec<_> = (0..=self.below(3)).map(|_| ["a", "b"][self.below(2) as usize]).collect();
        let kind = [Kind::File, Kind::File, Kind::Symlink, Kind::Folder, Kind::HardLink][self.below(5) as usize];
        let link = if matches!(kind, Kind::File | Kind::Folder) { "" } else { "never" };
        at(0, kind, &path.join("/"), link)
    }

    fn entries(&mut self) -> Vec<Entry> {
        (0..=self.below(3)).map(|_| self.entry()).collect()
    }

    fn made(&mut self, depth: u64) -> Vec<Made> {
        (0..=self.below(6))
            .map(|_| match self.below(6) {
                0 | 1 if depth < 2 => Made::Nested(self.made(depth + 1)),
                2 => Made::Late(self.entries()),
                _ => Made::Entry(self.entry()),
            })
            .collect()
    }
}

/// `entry` with its header at that byte.
fn placed(entry: &Entry, header: u64) -> Entry {
    Entry { header, body: Body { offset: header + 512, ..Body::default() }, ..entry.clone() }
}

/// All entries in the order of the archive.
fn in_order(made: &[Made], to: &mut Vec<Entry>) {
    for one in made {
        match one {
            Made::Entry(entry) => to.push(entry.clone()),
            Made::Late(entries) => to.extend_from_slice(entries),
            Made::Nested(made) => in_order(made, to),
        }
    }
}

/// Tells it as a pass does: a stream, then what lies in it, one after the other.
fn tell(made: &[Made], stream: u32, writer: &mut Writer) {
    let place = |number: usize, inside: usize| ((number as u64) << 20) + ((inside as u64) << 10);
    let add = |writer: &mut Writer, entry: &Entry, header: u64| {
        writer.add_from(stream, &placed(entry, header)).unwrap();
    };
    for (number, one) in made.iter().enumerate() {
        if let Made::Entry(entry) = one {
            add(writer, entry, place(number, 0));
        }
    }
    for (number, one) in made.iter().enumerate() {
        match one {
            Made::Entry(_) => {}
            Made::Late(entries) => {
                // What its directory names first need not lie in it first.
                for (inside, entry) in entries.iter().enumerate().rev() {
                    add(writer, entry, place(number, inside));
                }
            }
            Made::Nested(made) => {
                writer.begin_nested(stream, place(number, 1));
                let inner = writer.next_nested();
                let (codec, decoded_length) = ("gzip".to_owned(), LENGTH);
                let nested = Nested { codec, decoded_length, input: stream, start: place(number, 1), length: 512 };
                tell_nested(made, inner, &nested, writer);
            }
        }
    }
}

fn tell_nested(made: &[Made], stream: u32, nested: &Nested, writer: &mut Writer) {
    let (outer, inner): (Vec<_>, Vec<_>) =
        made.iter().cloned().enumerate().partition(|(_, one)| matches!(one, Made::Entry(_)));
    for (number, one) in outer {
        let Made::Entry(entry) = one else { continue };
        let header = (number as u64) << 20;
        writer.add_from(stream, &placed(&entry, header)).unwrap();
    }
    assert_eq!(writer.add_nested(nested).unwrap(), stream);
    // As they lie in it, without what was told.
    let empty = || Made::Late(Vec::new());
    let mut rest: Vec<_> = (0..made.len()).map(|_| empty()).collect();
    for (number, one) in inner {
        rest[number] = one;
    }
    tell(&rest, stream, writer);
}

/// What shows by the rules: at each path the last entry, or a folder if something in it comes later. A hard link that
/// leads nowhere names the folders that it is in, and nothing else.
fn by_the_rules(entries: &[Entry]) -> BTreeMap<Vec<u8>, Kind> {
    let mut last = BTreeMap::from([(Vec::new(), Kind::Folder)]);
    for entry in entries {
        let path = [b"/", entry.path.as_slice()].concat();
        for (at, _) in path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/') {
            last.insert(path[..at].to_vec(), Kind::Folder);
        }
        if entry.kind != Kind::HardLink {
            last.insert(path, entry.kind);
        }
    }
    let is_folder = |path: &[u8]| last.get(path) == Some(&Kind::Folder);
    let shows = |path: &[u8]| (0..path.len()).filter(|&at| path[at] == b'/').all(|at| is_folder(&path[..at]));
    last.iter().filter(|(path, _)| shows(path)).map(|(path, kind)| (path.clone(), *kind)).collect()
}

fn kinds(index: &dyn Index) -> BTreeMap<Vec<u8>, Kind> {
    common::walk(index).unwrap().into_iter().map(|(path, row)| (path, row.kind)).collect()
}

/// > The last of several entries at one path counts, in the order of the archive, even if some lie in a compressed
/// > file in it.
///
/// Folders and others in each other's place, in streams that are told after those around them.
#[test]
fn what_is_told_late_counts_where_it_lies() {
    let mut random = Random(11);
    for round in 0..2000 {
        let made = random.made(0);
        let mut entries = Vec::new();
        in_order(&made, &mut entries);
        let expected = by_the_rules(&entries);
        let mut plain = writer(0);
        for (number, entry) in entries.iter().enumerate() {
            let header = (number as u64) << 20;
            plain.add(&placed(entry, header)).unwrap();
        }
        let plain = plain.finish(summary(), &Destination::Memory).unwrap();
        assert_eq!(kinds(&*plain), expected, "{round}: {entries:?}");
        let mut nested = writer(0);
        tell(&made, 0, &mut nested);
        let nested = nested.finish(summary(), &Destination::Memory).unwrap();
        assert_eq!(kinds(&*nested), expected, "{round}: {made:?}");
        let (of_plain, of_nested) = (plain.summary(), nested.summary());
        assert_eq!(
            (of_plain.files, of_plain.folders, of_plain.notes.len()),
            (of_nested.files, of_nested.folders, of_nested.notes.len()),
            "{round}: {made:?}"
        );
    }
}

/// > The last of several archives at one path counts, with all that it holds and nothing else.
///
/// What a replaced archive holds makes no folder of what comes before it, and hides none that comes behind.
#[test]
fn what_is_gone_changes_no_folder() {
    let mut random = Random(12);
    for round in 0..2000 {
        let (mut all, mut left) = (writer(0), Vec::new());
        let archives = [all.add_archive(0), all.add_archive(0)];
        let mut told = Vec::new();
        for number in 0..=random.below(8) {
            let entry = placed(&random.entry(), number << 20);
            let archive = random.below(3) as usize;
            all.enter_archive([0, archives[0], archives[1]][archive]);
            all.add(&entry).unwrap();
            if archive < 2 {
                left.push(entry.clone());
            }
            told.push((archive, entry));
        }
        all.replace_archive(archives[1]);
        let folder = tempfile::tempdir().unwrap();
        let is_on_disk = round % 50 == 0;
        let file = Destination::File(folder.path().join("index"));
        let index = all.finish(summary(), if is_on_disk { &file } else { &Destination::Memory }).unwrap();
        assert_eq!(kinds(&*index), by_the_rules(&left), "{round}: {told:?}");
        // One, also where the first was begun too early.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), usize::from(is_on_disk), "{round}");
    }
}
