//! What the index says of entries in nested streams, of links that lead nowhere, of pieces, and of content that was
//! cut; and what it counts.

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

use common::{LENGTH, build, entry, layered, summary, writer};
use tarnfs_codec::{Chunk, SeekPoint};
use tarnfs_format::{Body, Coder, Device, Entry, Kind, Piece, Step};
use tarnfs_index::{
    Destination, Error, FIRST_NESTED, Holder, Index, Nested, Node, STORED_IN_PIECES, SeekPoints, Swept, Writer, own,
};
use tarnfs_source::Extent;

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

    // What is no file has no content, whatever its header says.
    let mut folder = entry(1, Kind::Folder, b"d/", b"");
    (folder.body.size, folder.body.stored) = (LENGTH, LENGTH);
    let index = build(&[folder]);
    assert!(index.summary().notes.is_empty(), "{:?}", index.summary().notes);
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
        let archives = [10, 11].map(|path| all.add_archive(0, path, (0, 0)).unwrap());
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
        all.replace_archive_at(11, (0, 0));
        let folder = tempfile::tempdir().unwrap();
        let is_on_disk = round % 50 == 0;
        let file = Destination::File(folder.path().join("index"));
        let index = all.finish(summary(), if is_on_disk { &file } else { &Destination::Memory }).unwrap();
        assert_eq!(kinds(&*index), by_the_rules(&left), "{round}: {told:?}");
        // One, also where the first was begun too early.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), usize::from(is_on_disk), "{round}");
    }
}

fn stored(offset: u64, length: u64) -> Piece {
    Piece { length, offset, stored: length, decoded: length, ..Piece::default() }
}

/// One of 40 bytes that `codec` makes `length` of.
fn coded(offset: u64, length: u64, codec: &str) -> Piece {
    let steps = vec![Step { codec: codec.to_owned(), ..Step::default() }];
    let coder = Some(Arc::new(Coder { steps, ..Coder::default() }));
    Piece { length, offset, stored: 40, decoded: length, crc: Some(7), coder, ..Piece::default() }
}

/// An entry of these pieces.
fn in_pieces(number: u64, kind: Kind, path: &str, pieces: &[Piece]) -> Entry {
    let mut entry = entry(number, kind, path.as_bytes(), b"");
    entry.body.size = pieces.iter().map(|piece| piece.hole + piece.length).sum();
    entry.body.pieces = Some(pieces.to_vec());
    entry
}

/// Behind all entries of [`mixed`].
const BEHIND: u64 = 16 << 20;

fn two_pieces() -> [Piece; 2] {
    [stored(BEHIND + 2000, 10), coded(BEHIND, 100, "one")]
}

/// One of everything, and a nested stream that is stored in pieces.
fn mixed(path: &Path) -> Arc<dyn Index> {
    let mut sparse = entry(1, Kind::File, b"d/a-sparse", b"");
    sparse.body.size = 1000;
    (sparse.body.stored, sparse.body.extents) = (30, Some(vec![Extent { offset: 10, length: 30, skip: 0 }]));
    let mut writer = writer(64 << 20);
    for entry in [
        entry(0, Kind::Folder, b"d/", b""),
        sparse,
        entry(2, Kind::File, b"d/plain", b""),
        entry(3, Kind::HardLink, b"d/hard", b"d/plain"),
        entry(4, Kind::HardLink, b"d/lost", b"gone"),
        entry(5, Kind::Symlink, b"d/link", b"plain"),
        in_pieces(6, Kind::Symlink, "d/linked", &[coded(9000, 5, "other")]),
        in_pieces(7, Kind::File, "d/pieces", &two_pieces()),
        entry(8, Kind::CharacterDevice(Device { major: 1, minor: 2 }), b"dev", b""),
    ] {
        writer.add(&entry).unwrap();
    }
    add_nested(&mut writer, 9 << 20, &[at(512, Kind::File, "d/inner", "")]);
    writer.begin_nested(0, BEHIND);
    assert_eq!(writer.add_nested_pieces(0, &two_pieces(), 110).unwrap(), FIRST_NESTED + 1);
    writer.finish(summary(), &Destination::File(path.to_owned())).unwrap()
}

fn child(index: &dyn Index, folder: &str, name: &str) -> Node {
    let folder = match folder {
        "" => Node::ROOT,
        folder => index.lookup(Node::ROOT, folder.as_bytes()).unwrap().unwrap().node,
    };
    index.lookup(folder, name.as_bytes()).unwrap().unwrap().node
}

#[test]
fn each_row_is_swept_once() {
    let folder = tempfile::tempdir().unwrap();
    let index = mixed(&folder.path().join("index"));
    let mut found = Vec::new();
    let mut receive = |swept: &Swept<'_>| {
        let name = String::from_utf8(swept.name.to_vec()).unwrap();
        found.push((name, swept.kind, swept.size, swept.stream, swept.is_sparse, swept.pieces.map(<[_]>::to_vec)));
        Ok(())
    };
    index.sweep(&mut receive).unwrap();
    let plain = |name: &str, kind, size| (name.to_owned(), kind, size, 0, false, None);
    let expected = [
        plain("d", Kind::Folder, 0),
        plain("dev", Kind::CharacterDevice(Device::default()), 0),
        ("a-sparse".to_owned(), Kind::File, 1000, 0, true, None),
        plain("hard", Kind::HardLink, 0),
        ("inner".to_owned(), Kind::File, 1, FIRST_NESTED, false, None),
        // Bytes of links are no bytes of files.
        plain("link", Kind::Symlink, 0),
        ("linked".to_owned(), Kind::Symlink, 0, 0, false, Some(vec![coded(9000, 5, "other")])),
        plain("lost", Kind::HardLink, 0),
        ("pieces".to_owned(), Kind::File, 110, 0, false, Some(two_pieces().to_vec())),
        plain("plain", Kind::File, 3),
    ];
    assert_eq!(found, expected);
    // Whoever has enough ends it.
    let mut count = 0;
    let ended = index.sweep(&mut |_| {
        count += 1;
        if count == 3 { Err(Error::Missing) } else { Ok(()) }
    });
    assert!(matches!(ended, Err(Error::Missing)) && count == 3, "{count}");
}

#[test]
fn pieces_come_back_as_far_as_they_are_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let index = mixed(&path);
    let (pieces, plain) = (child(&*index, "d", "pieces"), child(&*index, "d", "plain"));
    let number = FIRST_NESTED + 1;
    assert_eq!(index.pieces(Holder::File(pieces)).unwrap(), two_pieces());
    assert_eq!(index.pieces(Holder::Stream(number)).unwrap(), two_pieces());
    let nested = index.nested(number).unwrap();
    assert_eq!((nested.codec.as_str(), nested.decoded_length, nested.input), (STORED_IN_PIECES, 110, 0));
    assert_eq!((nested.start, nested.length), (BEHIND, 2010));
    for most in 1..=3 {
        let (mut of_file, mut of_stream) = (Vec::new(), Vec::new());
        index
            .each_piece(Holder::File(pieces), &mut |piece| {
                of_file.push(piece.clone());
                of_file.len() < most
            })
            .unwrap();
        index
            .each_piece(Holder::Stream(number), &mut |piece| {
                of_stream.push(piece.clone());
                of_stream.len() < most
            })
            .unwrap();
        let expected = &two_pieces()[..most.min(2)];
        assert_eq!((&of_file[..], &of_stream[..]), (expected, expected), "{most}");
    }
    let connection = rusqlite::Connection::open(&path).unwrap();
    let length = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap().cast_unsigned();
    let of_file = length(&format!("SELECT length(map) FROM extents WHERE node = {}", pieces.0));
    assert!(of_file >= 8);
    assert_eq!(index.pieces_take(Holder::File(pieces)).unwrap(), of_file);
    assert_eq!(index.pieces_take(Holder::Stream(number)).unwrap(), length("SELECT length(map) FROM nested_pieces"));
    // What has none.
    assert!(matches!(index.pieces(Holder::File(plain)), Err(Error::Broken(what)) if what.contains("no pieces")));
    assert!(
        matches!(index.each_piece(Holder::File(plain), &mut |_| true), Err(Error::Broken(what)) if what.contains("no pieces"))
    );
    assert!(index.pieces(Holder::Stream(FIRST_NESTED)).is_err() && index.pieces(Holder::Stream(number + 1)).is_err());
    // Coders, each once, as far as they are wanted.
    for (most, expected) in [(9, &["other", "one"][..]), (1, &["other"])] {
        let mut names = Vec::new();
        index
            .coders(&mut |coder| {
                names.push(coder.steps[0].codec.clone());
                names.len() < most
            })
            .unwrap();
        assert_eq!(names, expected);
    }
}

/// Pieces lie in the archive, or in the part of the stream in which theirs lies.
#[test]
fn pieces_end_where_their_stream_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let whole = |of_file: bool| {
        let index = own::open_file(File::open(&path).unwrap()).unwrap();
        let (node, number) = (child(&*index, "d", "pieces"), FIRST_NESTED + 1);
        let (all, each) = if of_file {
            (index.pieces(Holder::File(node)).map(drop), index.each_piece(Holder::File(node), &mut |_| true))
        } else {
            (index.pieces(Holder::Stream(number)).map(drop), index.each_piece(Holder::Stream(number), &mut |_| true))
        };
        assert_eq!(all.as_ref().map_err(ToString::to_string), each.as_ref().map_err(ToString::to_string));
        all.map_err(|error| error.to_string())
    };
    let archive_of = |length: u64| format!("UPDATE summary SET value = {length} WHERE key = 'archive_length'");
    let (fits, cut) = (archive_of(BEHIND + 2010), archive_of(BEHIND + 2009));
    for (sql, of_file, wrong) in [
        (fits.as_str(), true, None),
        (&cut, true, Some("past the end of the archive")),
        ("UPDATE entries SET size = 109 WHERE name = CAST('pieces' AS BLOB)", true, Some("past its end")),
        ("UPDATE layers SET length = 2010 WHERE codec = 'pieces'", false, None),
        ("UPDATE layers SET length = 2009 WHERE codec = 'pieces'", false, Some("past the end of the archive")),
        ("UPDATE layers SET decoded_length = 109 WHERE codec = 'pieces'", false, Some("past its end")),
        ("DELETE FROM coders", true, Some("is missing")),
        ("DELETE FROM coders", false, Some("is missing")),
    ] {
        let _ = std::fs::remove_file(&path);
        mixed(&path);
        rusqlite::Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        match (whole(of_file), wrong) {
            (Ok(()), None) => {}
            (Err(error), Some(wrong)) => assert!(error.contains(wrong), "{sql}: {error}"),
            (found, _) => panic!("{sql}: {found:?}"),
        }
        // What is there of an archive that was cut is shown.
        if sql == cut {
            let cut = "UPDATE summary SET value = 1 WHERE key = 'is_cut'";
            rusqlite::Connection::open(&path).unwrap().execute_batch(cut).unwrap();
            assert_eq!(whole(of_file), Ok(()));
        }
    }
}

/// An index that was written just now, and the same one once it is opened by somebody else.
#[test]
fn long_pieces_are_found_wherever_they_are() {
    let long = [stored(0, 5000)];
    let folder = tempfile::tempdir().unwrap();
    let answers = |what: &str, entries: &[Entry], tell: &dyn Fn(&mut Writer)| {
        let path = folder.path().join(what);
        let mut writer = writer(1 << 20);
        for entry in entries {
            writer.add(entry).unwrap();
        }
        tell(&mut writer);
        let written = writer.finish(summary(), &Destination::File(path.clone())).unwrap();
        let opened = own::open(&path, None, false).unwrap();
        let answers = |index: &dyn Index| [0, 4999, 5000].map(|bytes| index.has_pieces_above(bytes).unwrap());
        assert_eq!(answers(&*written), answers(&*opened), "{what}");
        answers(&*written)
    };
    let file = || in_pieces(1, Kind::File, "f", &long);
    let nothing = |_: &mut Writer| {};
    let stream = |writer: &mut Writer| {
        writer.begin_nested(0, 0);
        writer.add_nested_pieces(0, &long, 5000).unwrap();
    };
    // What came from an archive that was replaced is not in the index.
    let hidden = |writer: &mut Writer| {
        let number = writer.add_archive(0, 7, (0, 1)).unwrap();
        writer.enter_archive(number);
        writer.add(&file()).unwrap();
        writer.enter_archive(0);
        writer.replace_archive_at(7, (0, 9));
    };
    assert_eq!(answers("an entry", &[file()], &nothing), [true, true, false]);
    assert_eq!(answers("a replaced one", &[file(), entry(2, Kind::File, b"f", b"")], &nothing), [true, true, false]);
    assert_eq!(answers("a stream", &[], &stream), [true, true, false]);
    assert_eq!(answers("a hidden one", &[], &hidden), [false; 3]);
    assert_eq!(answers("none", &[entry(1, Kind::File, b"f", b"")], &nothing), [false; 3]);
}

#[test]
fn nested_streams_are_told_with_their_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let index = mixed(&path);
    let mut found = Vec::new();
    index.each_nested(&mut |number, nested| found.push((number, nested.clone()))).unwrap();
    let numbers: Vec<_> = found.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [FIRST_NESTED, FIRST_NESTED + 1]);
    for (number, nested) in &found {
        assert_eq!(&index.nested(*number).unwrap(), nested);
    }
    for change in
        ["start = -1", "length = -1", "decoded_length = -1", "input = -1", "input = 1 << 32", "layer = 1 << 32"]
    {
        let _ = std::fs::remove_file(&path);
        mixed(&path);
        let index = changed(&path, &format!("UPDATE layers SET {change} WHERE codec = 'gzip'"));
        let told = index.each_nested(&mut |_, _| ());
        assert!(matches!(&told, Err(Error::Broken(what)) if what.contains("makes no sense")), "{change}: {told:?}");
    }
}

#[test]
fn seek_points_are_counted_by_layer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let mut writer = writer(1 << 20);
    for (layer, decoded, length) in [(0, 0, 100), (0, 100, 300), (1, 0, 7)] {
        let point = SeekPoint { compressed_bit: decoded, decoded, state: Vec::new() };
        writer.add_chunk(layer, Chunk { point, length, checksums: Vec::new() }).unwrap();
    }
    let index = writer.finish(layered(), &Destination::File(path.clone())).unwrap();
    let first = Arc::clone(&index).seek_points(0).unwrap();
    let expected = SeekPoints { count: 2, longest: 300, decoded: 400, squares: 100_000.0, has_checksums: true };
    assert_eq!(first, expected);
    // A quarter of all bytes have 50 before them on average, the others 150.
    assert!((first.mean_way() - 125.0).abs() < 1e-9, "{}", first.mean_way());
    assert!(SeekPoints::default().mean_way().abs() < 1e-9);
    let second = Arc::clone(&index).seek_points(1).unwrap();
    assert_eq!((second.count, second.longest, second.decoded), (1, 7, 7));
    let index = changed(&path, "UPDATE chunks SET length = -1 WHERE layer = 1");
    assert!(Arc::clone(&index).seek_points(0).is_ok());
    assert!(matches!(index.seek_points(1), Err(Error::Broken(what)) if what.contains("negative")));
}

/// A name may be there that does not show.
#[test]
fn names_and_versions_are_counted_with_what_does_not_show() {
    let folder = tempfile::tempdir().unwrap();
    let index = mixed(&folder.path().join("index"));
    let d = child(&*index, "", "d");
    let found = ["plain", "lost", "none"].map(|name| {
        let name = name.as_bytes();
        (index.has_name(d, name).unwrap(), index.lookup(d, name).unwrap().is_some())
    });
    assert_eq!(found, [(true, true), (true, false), (false, false)]);
    let plain = child(&*index, "d", "plain");
    assert!(!index.has_name(plain, b"plain").unwrap() && !index.has_name(Node(1 << 40), b"plain").unwrap());
    assert_eq!([Node::ROOT, d, plain, Node(1 << 40)].map(|node| index.count(node).unwrap()), [2, 8, 0, 0]);
    assert_eq!((index.replaced_count().unwrap(), index.numbering()), (0, 0));
    // A link that was replaced counts, and is none of those that are handed out.
    let file = |number| entry(number, Kind::File, b"f", b"");
    let index = build(&[file(1), file(2), entry(3, Kind::HardLink, b"f", b"gone"), file(4)]);
    let mut versions = Vec::new();
    index.replaced(&mut |folder, _, row| versions.push((folder, row.node))).unwrap();
    assert_eq!((index.replaced_count().unwrap(), versions.len()), (3, 2));
    for (folder, node) in versions {
        assert_eq!(index.folder_of(node).unwrap(), Some(folder));
    }
}

/// Whoever would read further than the writer looks for room has to say so.
#[test]
fn content_lies_behind_its_header_or_in_pieces() {
    let mut before = entry(7, Kind::File, b"f", b"");
    before.body.offset = before.header - 1;
    let mut writer = writer(1 << 20);
    assert!(writer.add(&before).unwrap_err().to_string().contains("in pieces"));
    (before.body.size, before.body.pieces) = (1, Some(vec![stored(0, 1)]));
    writer.add(&before).unwrap();
    before.body.pieces = None;
    before.body.offset = before.header;
    writer.add(&before).unwrap();
}

/// What an archive says of its root besides counts as replaced.
#[test]
fn the_root_stays_a_folder() {
    let entries =
        [entry(1, Kind::File, b".", b""), entry(2, Kind::Symlink, b"./", b"x"), entry(3, Kind::File, b"f", b"")];
    let index = build(&entries);
    assert_eq!(index.row(Node::ROOT).unwrap().unwrap().kind, Kind::Folder);
    assert_eq!((index.replaced_count().unwrap(), size_of(&*index, "f").unwrap()), (2, 4));
}
