//! Packages, cabinets and the like: any bytes, prefixes and changes of small archives end with entries that lie inside
//! of them, or with an error.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use tarnfs_format::{
    Decode, Entry, Error, Event, Format, Kind, Options, Probe, Reader, Shown, SourceStream, Time, by_name,
};
use tarnfs_source::{Cancel, Extent, Joined, MemorySource, SharedSource, Stencil};

use common::{END, file};

const NAMES: [&str; 15] =
    ["arj", "asar", "cab", "deb", "html", "lha", "mail", "mtree", "ogg", "pdf", "rpm", "sqlar", "warc", "wim", "xar"];

/// Reads all that `format` finds; what it tells has to lie in the bytes.
fn read(format: &dyn Format, bytes: &[u8]) -> usize {
    let source: SharedSource = Arc::new(MemorySource::new(bytes, "bytes"));
    let head = &bytes[..bytes.len().min(4096)];
    format.bid(&Probe::of_head(head));
    format.bid(&Probe::new(head, &*source));
    let options = Options::default();
    let mut entries = 0;
    let mut take = |event: Event| {
        if let Event::Entry(entry) = event {
            entries += 1;
            assert!(entries <= bytes.len() * 64, "{}: entries without an end", format.name());
            assert!(entry.header <= source.len() || entry.kind == Kind::HardLink);
            assert!(entry.path.len() <= options.limits.path && entry.mode <= 0o7777);
            for piece in entry.body.pieces.iter().flatten() {
                let end = piece.offset.checked_add(piece.stored).unwrap();
                assert!(end <= source.len(), "{}: {piece:?}", format.name());
                assert!(piece.length > 0 && piece.skip.checked_add(piece.length).unwrap() <= piece.decoded);
            }
        }
        Ok(())
    };
    let _ = match format.reader() {
        Reader::Forwards(forwards) => {
            let mut stream = SourceStream::new(SharedSource::clone(&source), Cancel::default());
            forwards.read(&mut stream, &options, &mut |event, _| take(event))
        }
        Reader::Random(random) => random.read(&source, &options, &mut take),
        _ => unreachable!(),
    };
    let _ = format.volumes_by_first().map(|volumes| volumes.volume(&*source));
    entries
}

/// All entries that are told of `source`, and what is damaged.
fn told(name: &str, source: SharedSource, options: &Options) -> (Vec<Entry>, Vec<String>) {
    let (mut entries, mut damage) = (Vec::new(), Vec::new());
    let mut take = |event: Event| {
        match event {
            Event::Entry(entry) => entries.push(*entry),
            Event::Damage(told) => damage.push(told.what),
            _ => {}
        }
        Ok(())
    };
    match by_name(name).unwrap().reader() {
        Reader::Forwards(forwards) => {
            let mut stream = SourceStream::new(source, Cancel::default());
            forwards.read(&mut stream, options, &mut |event, _| take(event)).unwrap();
        }
        Reader::Random(random) => random.read(&source, options, &mut take).unwrap(),
        _ => unreachable!(),
    }
    (entries, damage)
}

fn told_of(name: &str, bytes: &[u8]) -> (Vec<Entry>, Vec<String>) {
    told_with(name, bytes, &Options::default())
}

fn told_with(name: &str, bytes: &[u8], options: &Options) -> (Vec<Entry>, Vec<String>) {
    told(name, Arc::new(MemorySource::new(bytes, "bytes")), options)
}

fn paths(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned()).collect()
}

/// True if no byte of it can be read.
fn is_unreadable(entry: &Entry) -> bool {
    let pieces = entry.body.pieces.as_deref().unwrap_or_default();
    !pieces.is_empty() && pieces.iter().all(|piece| piece.stored == 0 && piece.coder.is_some())
}

/// In the volume in which a file ends there is a part of it, with the checksum of that part.
#[test]
fn a_part_of_a_file_in_another_volume_of_arj_is_not_the_file() {
    let header = |kind: u8, flags: u8, size: u32, name: &str| {
        let mut header = vec![30, 11, 1, 2, flags, 0, kind, 0];
        header.extend([1_600_000_000, size, size, crc32fast::hash(b"end")].map(u32::to_le_bytes).concat());
        header.extend([&[0, 0, 0xa4, 0x81, 0, 0], name.as_bytes(), b"\0\0"].concat());
        let length = (header.len() as u16).to_le_bytes();
        [&[0x60, 0xea], &length[..], &header, &crc32fast::hash(&header).to_le_bytes(), &[0; 2]].concat()
    };
    for (flags, size, is_whole) in
        [(0, 3, true), (4, 3, false), (8, 3, false), (12, 3, false), (4, 0, false), (8, 0, false)]
    {
        let data = &b"end"[..size as usize];
        let archive = [&header(2, 0, 0, "x.arj"), &header(0, flags, size, "big"), data, &header(0, 0, 3, "b"), b"end"];
        let (entries, damage) = told_of("arj", &[&archive.concat()[..], &[0x60, 0xea, 0, 0]].concat());
        assert_eq!(paths(&entries), ["big", "b"]);
        assert_eq!((is_unreadable(&entries[0]), is_unreadable(&entries[1])), (!is_whole, false), "{flags}");
        assert_eq!(damage.len(), usize::from(!is_whole), "{damage:?}");
        assert!(damage.iter().all(|what| what.contains("another file")), "{damage:?}");
        assert!(entries[0].body.size > 0);
    }
}

/// All sets use the same names, and no checksum goes over what is in several cabinets.
#[test]
fn cabinets_of_different_sets_are_not_joined() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/archives/small");
    let parts = ["part1.cab", "part2.cab", "part3.cab"].map(|name| std::fs::read(folder.join(name)).unwrap());
    let joined = |parts: &[Vec<u8>]| -> SharedSource {
        let sources = parts.iter().map(|part| Arc::new(MemorySource::new(part.as_slice(), "part")) as SharedSource);
        Arc::new(Joined::new(sources.collect(), "cabinets").unwrap())
    };
    let (entries, damage) = told("cab", joined(&parts), &Options::default());
    assert_eq!((paths(&entries), damage), (["one", "sub/two", "three", "four"].map(str::to_owned).to_vec(), vec![]));
    let cab = by_name("cab").and_then(|cab| cab.volumes_by_first()).unwrap();
    let volume = |bytes: &[u8]| cab.volume(&MemorySource::new(bytes, "part")).unwrap().unwrap();
    assert!(volume(&parts[1]).may_follow(&volume(&parts[0])) && volume(&parts[2]).may_follow(&volume(&parts[1])));
    assert!(!volume(&parts[0]).may_follow(&volume(&parts[0])) && !volume(&parts[2]).may_follow(&volume(&parts[0])));
    // The number of the set, and the place there.
    for place in [32, 34] {
        let mut others = parts.clone();
        others[1][place] ^= 8;
        assert!(!volume(&others[1]).may_follow(&volume(&others[0])));
        let (entries, damage) = told("cab", joined(&others), &Options::default());
        assert_eq!(paths(&entries), ["one", "sub/two"]);
        assert_eq!(entries.iter().map(is_unreadable).collect::<Vec<_>>(), [false, true]);
        assert!(damage.iter().any(|what| what.contains("does not belong")), "{damage:?}");
    }
}

/// > Of a Debian package, `control` is what `dpkg-deb -e` makes of it, and `data` what `dpkg-deb -x` does.
#[test]
fn no_path_leads_out_of_its_folder_of_a_package() {
    let tar = |names: &[&str]| {
        let files: Vec<u8> = names.iter().flat_map(|name| file(name, b"x")).collect();
        [&files[..], &END].concat()
    };
    let (control, data) =
        (tar(&["./postinst", "../data/x"]), tar(&["../control/postinst", "a/../../b", "./c/d", "e..f"]));
    let package = [
        &b"!<debs>\n"[..],
        &member("debian-binary", Some(4)),
        b"2.0\n",
        &member("control.tar", Some(control.len())),
        &control,
        &member("data.tar", Some(data.len())),
        &data,
    ];
    let (entries, damage) = told_of("deb", &package.concat());
    let names: Vec<_> = entries
        .iter()
        .map(|entry| {
            tarnfs_format::name::components(&entry.path, &Options::default().limits)
                .iter()
                .collect::<Vec<_>>()
                .join(&b'/')
        })
        .collect();
    let names: Vec<_> = names.iter().map(|name| std::str::from_utf8(name).unwrap()).collect();
    let expected = [
        "debian-binary",
        "control/postinst",
        "control/data/x",
        "data/control/postinst",
        "data/b",
        "data/c/d",
        "data/e..f",
    ];
    assert_eq!((names, damage), (expected.to_vec(), vec![]));
}

fn record(kind: &str, address: &str, content: &str) -> String {
    let length = content.len();
    let lines = [
        "WARC/1.0".to_owned(),
        format!("WARC-Type: {kind}"),
        format!("WARC-Target-URI: {address}"),
        format!("Content-Length: {length}\r\n\r\n{content}\r\n\r\n"),
    ];
    lines.join("\r\n")
}

/// A request at an address that others lie below is not hidden by the folder of these.
#[test]
fn records_of_every_kind_may_have_others_below_them() {
    let all: String = ["request", "resource", "revisit"]
        .iter()
        .flat_map(|kind| ["http://h/a", "http://h/a/b", "http://h/c/d", "http://h/c"].map(|at| record(kind, at, "x")))
        .collect();
    let (entries, damage) = told_of("warc", all.as_bytes());
    let expected = [".records/request/", "", ".records/revisit/"].iter().flat_map(|folder| {
        ["http/h/a", "http/h/a.d/b", "http/h/c/d", "http/h/c/index.html"].map(|path| format!("{folder}{path}"))
    });
    assert_eq!((paths(&entries), damage), (expected.collect::<Vec<_>>(), vec![]));
}

/// The checksum that is in an extension goes over all of a header of level 2: a name is not what it says otherwise.
#[test]
fn a_damaged_header_of_lha_is_told() {
    let archive = |flipped: usize, level: u8| {
        let width = if level == 3 { 4 } else { 2 };
        let length = |length: usize| length.to_le_bytes()[..width].to_vec();
        let name = b"good.txt";
        // The checksum, and the name; each is followed by the length of the next one.
        let extensions = [&[0, 0, 0][..], &length(1 + name.len() + width), &[1], name, &length(0)].concat();
        let fixed = if level == 3 { 28 } else { 24 };
        let whole = fixed + width + extensions.len();
        let start = if level == 3 { 4_u16 } else { whole as u16 }.to_le_bytes();
        let mut header = [&start[..], b"-lh0-", &4_u32.to_le_bytes(), &4_u32.to_le_bytes()].concat();
        header.extend([&1_600_000_000_u32.to_le_bytes()[..], &[0x20, level, 0, 0, b'U']].concat());
        if level == 3 {
            header.extend((whole as u32).to_le_bytes());
        }
        header.extend([length(3 + width), extensions].concat());
        assert_eq!(header.len(), whole);
        let crc = header.iter().fold(0_u16, |crc, byte| {
            (0..8).fold(crc ^ u16::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xA001 } else { 0 })
        });
        let place = fixed + width + 1;
        header[place..place + 2].copy_from_slice(&crc.to_le_bytes());
        header[flipped] ^= 2;
        [&header[..], b"data", &[0]].concat()
    };
    for level in [2, 3] {
        // A byte that says nothing, one of the time, and one of the name.
        let whole = told_of("lha", &archive(19, level)).0;
        assert_eq!(paths(&whole), ["good.txt"]);
        let end = archive(19, level).len() - 5;
        for place in [19, 15, end - 8] {
            let (entries, damage) = told_of("lha", &archive(place, level));
            assert_eq!(entries.len(), 1);
            assert!(damage.len() == 1 && damage[0].contains("checksum"), "{level} {place}: {damage:?}");
        }
        let mut right = archive(19, level);
        right[19] ^= 2;
        assert_eq!(told_of("lha", &right).1, Vec::<String>::new());
    }
}

/// A table of SQLite whose rows have their data before all else: each leaf of `leaves` has rows that lie in the same
/// place and go on in the same list of so many pages. The file, bytes of a row, and its last ones.
fn rows_with_one_list(pages: usize, leaves: usize) -> (Vec<u8>, u64, Vec<u8>) {
    const PAGE: usize = 512;
    let varint = |number: usize| -> Vec<u8> {
        let parts = (0..5).rev().map(|place| number >> (7 * place)).skip_while(|rest| *rest == 0);
        let mut bytes: Vec<u8> = parts.map(|rest| rest as u8 | 0x80).collect();
        *bytes.last_mut().unwrap() &= 0x7f;
        bytes
    };
    let local = (PAGE - 12) * 32 / 255 - 23;
    let length = local + (PAGE - 4) * pages;
    let tail = [&b"abcdefghij"[..], &0o644_u16.to_be_bytes(), &[5, 7]].concat();
    // Three bytes tell the length of the data.
    let data = length - 8 - tail.len();
    let types = [varint(2 * data + 12), vec![2 * 10 + 13, 2, 1, 1]].concat();
    assert_eq!(types.len(), 7);
    let row = [&[8][..], &types, &vec![b'x'; data], &tail].concat();
    assert_eq!(row.len(), length);
    let first_of_list = 3 + leaves;
    let mut file = vec![0; PAGE * (2 + leaves + pages)];
    let mut put = |page: usize, at: usize, bytes: &[u8]| {
        let at = (page - 1) * PAGE + at;
        file[at..at + bytes.len()].copy_from_slice(bytes);
    };
    let start = |kind: u8, cells: usize, at: usize| -> Vec<u8> {
        [&[kind, 0, 0][..], &(cells as u16).to_be_bytes(), &(at as u16).to_be_bytes(), &[0]].concat()
    };
    let sql = b"CREATE TABLE sqlar(data BLOB, name TEXT, mode INT, mtime INT, sz INT)";
    let words = [&b"tablesqlarsqlar\x02"[..], sql].concat();
    let header = [vec![7, 23, 23, 23, 1], varint(2 * sql.len() + 13)].concat();
    let table = [varint(header.len() + words.len()), vec![1], header, words].concat();
    put(1, 0, b"SQLite format 3\0");
    put(1, 16, &[2, 0, 1, 1, 0, 64, 32, 32]);
    put(1, 56, &1_u32.to_be_bytes());
    put(1, 100, &start(13, 1, PAGE - table.len()));
    put(1, 108, &((PAGE - table.len()) as u16).to_be_bytes());
    put(1, PAGE - table.len(), &table);
    // Inner nodes have the number of a page, and one of a row.
    put(2, 0, &start(5, leaves - 1, PAGE - 5 * (leaves - 1)));
    put(2, 8, &(2 + leaves as u32).to_be_bytes());
    for number in 0..leaves - 1 {
        let at = PAGE - 5 * (number + 1);
        put(2, 12 + 2 * number, &(at as u16).to_be_bytes());
        put(2, at, &[&(3 + number as u32).to_be_bytes()[..], &[1]].concat());
    }
    let cell = [&varint(length)[..], &[1], &row[..local], &(first_of_list as u32).to_be_bytes()].concat();
    for page in 3..3 + leaves {
        // Many rows that are one.
        let at = PAGE - cell.len();
        put(page, 0, &start(13, 30, at));
        put(page, 8, &(at as u16).to_be_bytes().repeat(30));
        put(page, at, &cell);
    }
    for (number, part) in row[local..].chunks(PAGE - 4).enumerate() {
        let next = if number + 1 < pages { (first_of_list + number + 1) as u32 } else { 0 };
        put(first_of_list + number, 0, &[&next.to_be_bytes()[..], part].concat());
    }
    (file, length as u64, tail)
}

/// Rows of SQLite may all lead to one list of pages, which is walked for what lies at its end. What is walked has a
/// bound that grows with the file, and a row costs one walk.
#[test]
fn rows_that_go_on_in_the_same_pages_are_walked_as_often_as_the_file_is_long() {
    use std::sync::atomic::{AtomicU64, Ordering};
    for (leaves, shares, all) in [(2, 1, Some(20)), (40, 1 << 14, None)] {
        let (file, length, tail) = rows_with_one_list(200, leaves);
        let (walks, far) = (Arc::new(AtomicU64::new(0)), length - tail.len() as u64);
        let counted = Arc::clone(&walks);
        let decode = Decode::new(move |coder, _, wanted, _| {
            let properties = &coder.steps[0].properties;
            assert_eq!(coder.steps[0].codec, "overflow");
            let skip = u64::from_le_bytes(properties[24..32].try_into().unwrap());
            assert_eq!((skip, wanted), (far, tail.len() as u64), "one walk for all that is wanted");
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(tail.clone())
        });
        let options = Options { decode, shares, ..Options::default() };
        let (entries, damage) = told_with("sqlar", &file, &options);
        let walks = walks.load(Ordering::Relaxed);
        assert_eq!(walks, entries.len() as u64);
        assert!(entries.iter().all(|entry| entry.path == b"abcdefghij" && entry.mtime.seconds == 5));
        if let Some(all) = all {
            // No more rows of a leaf than fit into it.
            assert_eq!(entries.len(), all, "{damage:?}");
            assert!(damage.iter().all(|what| what.contains("overlap")) && damage.len() == leaves, "{damage:?}");
        } else {
            assert!(walks > 0 && walks * length < 4 * file.len() as u64, "{walks} walks");
            assert!(damage.last().unwrap().contains("too often") && damage.len() < leaves, "{damage:?}");
        }
    }
}

/// An archive of WIM with one image, whose tree has so many bytes and is stored as so many.
fn image_of_windows(stored: usize, length: u64) -> Vec<u8> {
    let mut archive = vec![0; 208 + stored + 50];
    let mut put = |at: usize, bytes: &[u8]| archive[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"MSWIM\0\0\0");
    put(8, &[208, 0x1_0d00, 0x4_0002, 1 << 15].map(u32::to_le_bytes).concat());
    put(40, &[1, 0, 1, 0, 1, 0, 0, 0]);
    put(48, &[50, 208 + stored as u64, 50].map(u64::to_le_bytes).concat());
    put(208 + stored, &[stored as u64 | 6 << 56, 208, length].map(u64::to_le_bytes).concat());
    put(208 + stored + 24, &[1, 0, 1, 0, 0, 0]);
    archive
}

/// A tree is held in memory: of a few bytes no large one comes, so that many small archives take little together.
#[test]
fn trees_of_wim_are_as_long_as_what_is_stored_of_them_allows() {
    let refused = |stored: usize, length: u64| {
        let decode = Decode::new(|_, _, length, _| Ok(vec![0; length as usize]));
        let options = Options { decode, ..Options::default() };
        let source: SharedSource = Arc::new(MemorySource::new(image_of_windows(stored, length), "bytes"));
        let Reader::Random(reader) = by_name("wim").unwrap().reader() else { unreachable!() };
        let read = reader.read(&source, &options, &mut |_| Ok(()));
        read.is_err_and(|error| error.to_string().contains("more than"))
    };
    assert!(!refused(1000, 32 << 20) && !refused(1 << 20, 90 << 20));
    assert!(refused(1000, 33 << 20) && refused(1 << 20, 97 << 20) && refused(16 << 20, 257 << 20));
}

fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

fn units(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// What tells a file in the tree of an image of Windows, and a stream of it.
fn dentry(attributes: u32, below: u64, name: &str, streams: u16) -> Vec<u8> {
    let name = units(name);
    let mut own = vec![0; 102];
    own[..8].copy_from_slice(&(102 + name.len() as u64 + 2).to_le_bytes());
    own[8..12].copy_from_slice(&attributes.to_le_bytes());
    own[12..16].fill(0xff);
    own[16..24].copy_from_slice(&below.to_le_bytes());
    own[96..98].copy_from_slice(&streams.to_le_bytes());
    own[100..102].copy_from_slice(&(name.len() as u16).to_le_bytes());
    padded([own, name, vec![0; 2]].concat())
}

fn stream(name: &str) -> Vec<u8> {
    let name = units(name);
    let mut own = vec![0; 38];
    own[..8].copy_from_slice(&(38 + name.len() as u64 + 2).to_le_bytes());
    own[36..38].copy_from_slice(&(name.len() as u16).to_le_bytes());
    padded([own, name, vec![0; 2]].concat())
}

/// The tree of an image whose root has these files, one behind the other.
fn tree(files: &[u8]) -> Vec<u8> {
    [&[8, 0, 0, 0, 0, 0, 0, 0], &dentry(0x10, 8 + 104, "", 0)[..], files, &[0; 8]].concat()
}

/// An entry of the table of resources: where it is stored, with which flags, how long it is, and its hash.
fn listed(stored: u64, flags: u64, offset: u64, length: u64, hash: [u8; 20]) -> Vec<u8> {
    let place = [stored | flags << 56, offset, length].map(u64::to_le_bytes).concat();
    [&place[..], &[1, 0, 1, 0, 0, 0], &hash].concat()
}

/// The same archive with these entries in its table, behind what is there.
fn with_resources(mut archive: Vec<u8>, resources: &[Vec<u8>]) -> Vec<u8> {
    archive.extend(resources.concat());
    let table = 50 * (1 + resources.len() as u64);
    archive[48..56].copy_from_slice(&table.to_le_bytes());
    archive[64..72].copy_from_slice(&table.to_le_bytes());
    archive
}

/// Options with which each resource of `tree.len()` bytes is that tree, and others what `other` makes; and how often
/// something was decoded.
fn decoding(tree: &[u8], other: fn(usize) -> Vec<u8>) -> (Options, Arc<AtomicUsize>) {
    let (count, tree) = (Arc::new(AtomicUsize::new(0)), tree.to_vec());
    let counted = Arc::clone(&count);
    let decode = Decode::new(move |_, _, length, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(if length == tree.len() as u64 { tree.clone() } else { other(length as usize) })
    });
    (Options { decode, ..Options::default() }, count)
}

/// Any number of folders may lead to one file with 4096 streams, also where the last of these is cut.
#[test]
fn streams_of_wim_are_read_no_more_often_than_fit_into_its_tree() {
    const FOLDERS: u64 = 1000;
    const STREAMS: u16 = 4096;
    for is_cut in [false, true] {
        let below = 8 + 104 + FOLDERS * 112 + 8;
        let folders = dentry(0x10, below, "f", 0).repeat(FOLDERS as usize);
        let mut streams = stream("").repeat(usize::from(STREAMS));
        if is_cut {
            let last = streams.len() - 40;
            streams[last..last + 8].fill(0xff);
        }
        let tree = tree(&[&folders[..], &[0; 8], &dentry(0x80, 0, "x", STREAMS), &streams].concat());
        let (options, _) = decoding(&tree, |_| Vec::new());
        let (entries, damage) = told_with("wim", &image_of_windows(tree.len(), tree.len() as u64), &options);
        assert!(entries.len() < 20, "{}", entries.len());
        assert!(damage.iter().any(|what| what.contains("more files than fit")), "{damage:?}");
    }
}

/// A link whose target lies in the resource with that hash.
fn link_of_windows(name: &str, hash: [u8; 20]) -> Vec<u8> {
    let mut link = dentry(0x400, 0, name, 0);
    link[64..84].copy_from_slice(&hash);
    link[88..92].copy_from_slice(&0xa000_001d_u32.to_le_bytes());
    link
}

/// A decoder is made for each target, however short it is.
#[test]
fn what_many_names_of_wim_lead_to_is_decoded_once() {
    let hash = |number: usize| -> [u8; 20] { [number as u8 + 1, 7].repeat(10).try_into().unwrap() };
    let target = |length: usize| [&[2, 0, 0, 0][..], &vec![b'x'; length - 4]].concat();
    for (hashes, decoded) in [(1, 2), (100, 101)] {
        let links: Vec<u8> = (0..1000).flat_map(|number| link_of_windows("l", hash(number % hashes))).collect();
        let tree = tree(&links);
        let blobs: Vec<_> = (0..hashes).map(|number| listed(10, 0, 208, 10, hash(number))).collect();
        let archive = with_resources(image_of_windows(tree.len(), tree.len() as u64), &blobs);
        let (options, count) = decoding(&tree, target);
        let (entries, damage) = told_with("wim", &archive, &options);
        assert_eq!((entries.len(), damage.len()), (1001, 0), "{damage:?}");
        assert!(entries[1..].iter().all(|entry| entry.kind == Kind::Symlink && entry.link == b"xxxxxx"));
        assert_eq!(count.load(Ordering::Relaxed), decoded);
    }
}

/// A table may name the tree of one image any number of times.
#[test]
fn the_trees_of_wim_are_decoded_as_often_as_its_length_allows() {
    const IMAGES: usize = 20_000;
    let tree = tree(&[]);
    let image = listed(tree.len() as u64, 6, 208, tree.len() as u64, [0; 20]);
    let archive = with_resources(image_of_windows(tree.len(), tree.len() as u64), &vec![image; IMAGES]);
    let (options, count) = decoding(&tree, |_| Vec::new());
    let (entries, damage) = told_with("wim", &archive, &options);
    let count = count.load(Ordering::Relaxed);
    assert!((10_000..17_000).contains(&count) && entries.len() == count, "{count} trees, {} entries", entries.len());
    assert!(damage.iter().any(|what| what.contains("read too often")), "{}", damage.len());
    // Holes behind it are nothing that it could have more of.
    let map = [Extent { offset: 0, length: archive.len() as u64, skip: 0 }];
    let packed: SharedSource = Arc::new(MemorySource::new(archive, "bytes"));
    let holed: SharedSource = Arc::new(Stencil::new(packed, map, 1 << 40).unwrap());
    let Reader::Random(reader) = by_name("wim").unwrap().reader() else { unreachable!() };
    let mut entries = 0;
    let receive = &mut |event| {
        entries += usize::from(matches!(event, Event::Entry(_)));
        Ok(())
    };
    reader.read(&holed, &options, receive).unwrap();
    assert!((10_000..17_000).contains(&entries), "{entries}");
    // And so it may have any number of resources in which others lie.
    let solid = listed(17, 16, 208, 1 << 32, [0; 20]);
    let archive = with_resources(image_of_windows(tree.len(), tree.len() as u64), &vec![solid; 70_000]);
    let source: SharedSource = Arc::new(MemorySource::new(archive, "bytes"));
    let error = reader.read(&source, &options, &mut |_| Ok(())).unwrap_err();
    assert!(error.to_string().contains("more than 65536 of its resources hold others"), "{error}");
}

/// With `--unix-data`, wimlib keeps modes and owners. Of other files nothing is told but what all have.
#[test]
fn an_image_of_windows_tells_modes_and_owners_where_it_has_them() {
    let wim = by_name("wim").unwrap().fidelity();
    let shown = |kind, uid| Shown { kind, mode: 0o600, uid, gid: uid, mtime: Time::default() };
    let told = wim.told(&shown(Kind::File, 0));
    assert_eq!((told.mode, told.owner, told.mtime), (true, true, Some(1_000_000_000)));
    assert!(wim.told(&shown(Kind::Symlink, 1000)).owner && !wim.told(&shown(Kind::Symlink, 0)).owner);
    assert!(wim.tells_of_unix(&MemorySource::new(Vec::new(), "bytes")).unwrap());
    let mut file = dentry(0x80, 0, "x", 0);
    file[40] = 1;
    let tree = tree(&file);
    let (options, _) = decoding(&tree, |_| Vec::new());
    let (entries, _) = told_with("wim", &image_of_windows(tree.len(), tree.len() as u64), &options);
    let names: Vec<_> = entries[1].xattrs.iter().map(|(name, _)| name.as_slice()).collect();
    assert_eq!(names, [wim.xattr_without_unix().unwrap()]);
    assert!(names[0].starts_with(wim.foreign_xattrs().unwrap()));
}

/// What was compressed together has no check of its own, but the archive has a SHA-1 of each of them.
#[test]
fn files_of_solid_resources_of_wim_have_their_hash() {
    let hash = [7; 20];
    let mut file = dentry(0x80, 0, "x", 0);
    file[64..84].copy_from_slice(&hash);
    let tree = tree(&file);
    let at = 208 + tree.len() as u64 + 150;
    let resources = [listed(30, 16, at, 1 << 32, [0; 20]), listed(500, 16, 100, 500, hash)];
    let mut archive = with_resources(image_of_windows(tree.len(), tree.len() as u64), &resources);
    archive.extend([&1000_u64.to_le_bytes()[..], &[0; 22]].concat());
    let (options, _) = decoding(&tree, |_| Vec::new());
    let (entries, damage) = told_with("wim", &archive, &options);
    assert!(damage.is_empty(), "{damage:?}");
    let [piece] = &entries[1].body.pieces.as_deref().unwrap() else { panic!("{:?}", entries[1]) };
    let steps = &piece.coder.as_ref().unwrap().steps;
    assert_eq!((piece.skip, piece.length, piece.decoded, piece.offset), (100, 500, 1000, at));
    assert_eq!(steps.iter().map(|step| step.codec.as_str()).collect::<Vec<_>>(), ["chunked-solid", "hashed"]);
    assert_eq!((&steps[1].properties[..], steps[1].decoded_length), (&hash[..], Some(500)));
}

/// The streams of a file have bounds in all, as the attributes of any other file have.
#[test]
fn streams_of_wim_are_bounded() {
    // A name that is no name of NTFS, one that is none of Linux, and more than may be.
    let streams = [stream(&"x".repeat(256)), stream(&"\u{4e2d}".repeat(84)), stream("a"), stream("b"), stream("c")];
    let root = dentry(0x10, 8 + 104, "", 0);
    let tree = [vec![8, 0, 0, 0, 0, 0, 0, 0], root, dentry(0x80, 0, "x", 5), streams.concat(), vec![0; 16]].concat();
    let archive = image_of_windows(tree.len(), tree.len() as u64);
    let decode = Decode::new(move |_, _, _, _| Ok(tree.clone()));
    let mut options = Options { decode, ..Options::default() };
    options.limits.xattrs = 2;
    let (entries, damage) = told_with("wim", &archive, &options);
    assert_eq!(paths(&entries), [".", "x"], "{damage:?}");
    let names: Vec<_> = entries[1].xattrs.iter().map(|(name, _)| name.as_slice()).collect();
    assert_eq!(names, [b"user.a", b"user.b"]);
    assert!(damage.len() == 1 && damage[0].contains("3 of its streams are left out"), "{damage:?}");
}

/// Indexes count bytes in 63 bits. A file that is longer has no byte that can be read, and others are what they are.
#[test]
fn files_longer_than_any_can_be_have_no_bytes() {
    const LONGEST: u64 = i64::MAX as u64;
    let file = |name: &str, size: u64, stored: u64, encoding: &str| {
        format!(
            "<file><name>{name}</name><type>file</type><data><offset>0</offset><length>{stored}</length>\
             <size>{size}</size><encoding style=\"application/{encoding}\"/></data></file>"
        )
    };
    let files = [
        file("a", u64::MAX, 5, "octet-stream"),
        file("b", u64::MAX, 5, "x-gzip"),
        file("c", LONGEST + 1, LONGEST + 1, "octet-stream"),
        file("d", 5, 5, "octet-stream"),
    ];
    let toc = format!("<xar><toc>{}</toc></xar>", files.concat()).into_bytes();
    let lengths = [3_u64, toc.len() as u64].map(u64::to_be_bytes).concat();
    let xar = [&b"xar!\0\x1c\0\x01"[..], &lengths, &[0; 4], b"toc", b"hello"].concat();
    let decode = Decode::new(move |_, _, _, _| Ok(toc.clone()));
    let xar = told_with("xar", &xar, &Options { decode, ..Options::default() });
    let json = format!(r#"{{"files":{{"a":{{"size":{},"offset":"0"}},"d":{{"size":5,"offset":"0"}}}}}}"#, u64::MAX);
    let (length, padded) = (json.len() as u32, json.len().next_multiple_of(4));
    let payload = padded as u32 + 4;
    let lengths = [4, payload + 4, payload, length].map(u32::to_le_bytes).concat();
    let asar = [&lengths[..], json.as_bytes(), &[0; 3][..padded - json.len()], b"hello"].concat();
    let member = |name: u8, method: &[u8; 5], size: u64| {
        let times = [1_600_000_000_u32, 0x220].map(u32::to_le_bytes).concat();
        // Behind the name, both lengths in 8 bytes.
        let lengths = [5, size].map(u64::to_le_bytes).concat();
        let extensions = [&[4, 0, 1, name, 19, 0, 0x42][..], &lengths, &[0; 2]].concat();
        [&[49, 0][..], method, &[0; 8], &times, b"U", &extensions, b"hello"].concat()
    };
    let lha = [member(b'a', b"-lh5-", u64::MAX), member(b'd', b"-lh0-", 5), vec![0]].concat();
    for (name, (entries, damage)) in [("xar", xar), ("asar", told_of("asar", &asar)), ("lha", told_of("lha", &lha))] {
        let (last, others) = entries.split_last().unwrap();
        assert_eq!((last.path.as_slice(), last.body.size, is_unreadable(last)), (&b"d"[..], 5, false), "{name}");
        assert!(!others.is_empty() && damage.len() == others.len(), "{name}: {damage:?}");
        for entry in others {
            let length = entry.body.pieces.as_ref().unwrap()[0].length;
            assert_eq!((entry.body.size, length, is_unreadable(entry)), (LONGEST, LONGEST, true), "{name}: {entry:?}");
        }
    }
}

/// Small archives of each format, as far as they can be read without a codec; and what the codec makes of packages.
fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/archives/small");
    let mut seeds: Vec<(&'static str, Vec<u8>)> = Vec::new();
    for (suffix, name) in [
        ("cab", "cab"),
        ("lzh", "lha"),
        ("arj", "arj"),
        ("warc", "warc"),
        ("asar", "asar"),
        ("xar", "xar"),
        ("sqlar", "sqlar"),
        ("wim", "wim"),
        ("mbox", "mail"),
        ("eml", "mail"),
        ("html", "html"),
        ("ogg", "ogg"),
        ("pdf", "pdf"),
    ] {
        let mut found: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        found.retain(|path| path.extension().is_some_and(|extension| extension == suffix));
        found.sort();
        seeds.extend(found.iter().map(|path| (name, std::fs::read(path).unwrap())));
    }
    let list = "#mtree\n/set type=file uid=0 mode=644\n. type=dir\n a size=9 sha1=x\n d type=dir\n  l type=link \\\n link=a\\040b\n ..\n\
        d/c type=char device=native,1,3\n";
    seeds.push(("mtree", list.as_bytes().to_vec()));
    seeds.push(("rpm", numbered_package()));
    seeds.push((
        "deb",
        [&b"!<debs>\n"[..], &member("debian-binary", Some(4)), b"2.0\n", &member("data.tar", None)].concat(),
    ));
    seeds
}

/// A header of LHA that takes nothing comes once, if at all.
#[test]
fn a_header_without_a_length_is_none() {
    let mut archive = vec![0; 64];
    (archive[0], archive[20]) = (4, 3);
    archive[2..7].copy_from_slice(b"-lh0-");
    assert_eq!(read(by_name("lha").unwrap(), &archive), 0);
    archive[24] = 31;
    assert!(read(by_name("lha").unwrap(), &archive) <= 1);
}

/// The header of a member, of that length or up to the end.
fn member(name: &str, length: Option<usize>) -> Vec<u8> {
    let length = length.map(|length| length.to_string()).unwrap_or_default();
    format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{length:<10}`\n", 0, 0, 0, 100_644).into_bytes()
}

/// What a tar says of a file that its member has no more is none of that file: it is the next member.
#[test]
fn a_file_in_a_member_that_is_cut_has_no_bytes_of_the_next_one() {
    let control = file("./postinst", &[7; 2000]);
    for there in [1200, 512 + 2000, control.len()] {
        let header = member("control.tar", Some(there));
        let data = [member("data.tar", None), file("./f", b"data"), END.to_vec()].concat();
        let package = [b"!<debs>\n".to_vec(), header, control[..there].to_vec(), data].concat();
        let (entries, _) = told_of("deb", &package);
        assert_eq!(paths(&entries), ["control/./postinst", "data/./f"], "{there}");
        let body = &entries[0].body;
        let is_whole = there >= 512 + 2000;
        assert_eq!((body.size, body.extents.is_none()), (2000, is_whole));
        let end = package.len() as u64;
        for extent in body.extents.iter().flatten().skip(1) {
            assert!(body.offset + extent.skip > end, "{extent:?}");
        }
        assert!(body.offset + body.stored <= 8 + 60 + there as u64, "{there}: {body:?}");
    }
}

/// A header of RPM with these tags: each has a type, a count, and what is stored.
fn header(tags: &[(u32, u32, u32, Vec<u8>)]) -> Vec<u8> {
    let (mut index, mut store) = (Vec::new(), Vec::new());
    for (tag, kind, count, value) in tags {
        let place = store.len() as u32;
        index.extend([*tag, *kind, place, *count].iter().flat_map(|number| number.to_be_bytes()));
        store.extend(value);
    }
    let counts =
        [tags.len() as u32, store.len() as u32].iter().flat_map(|count| count.to_be_bytes()).collect::<Vec<_>>();
    [b"\x8e\xad\xe8\x01\0\0\0\0", counts.as_slice(), &index, &store].concat()
}

/// The headers of a package and its payload, whose entries have numbers: a file with two names, a link, a folder.
fn numbered_package() -> Vec<u8> {
    let words = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<_>>();
    let halves = |numbers: &[u16]| numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<_>>();
    let longs = |numbers: &[u64]| numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<_>>();
    let tags = [
        (1030, 3, 4, halves(&[0o100_644, 0o100_644, 0o120_777, 0o040_755])),
        (1034, 4, 4, words(&[1, 2, 3, 4])),
        (1036, 8, 4, b"\0\0first\0\0".to_vec()),
        (1039, 8, 4, b"root\0root\0mail\0root\0".to_vec()),
        (1040, 8, 4, b"root\0root\0games\0root\0".to_vec()),
        (1095, 4, 4, words(&[1, 1, 1, 1])),
        (1096, 4, 4, words(&[7, 7, 8, 9])),
        (1116, 4, 4, words(&[0, 0, 0, 0])),
        (1117, 8, 4, b"first\0second\0link\0folder\0".to_vec()),
        (1118, 8, 1, b"/d/\0".to_vec()),
        (5008, 5, 4, longs(&[3, 3, 5, 0])),
    ];
    let signatures = header(&[(62, 7, 4, vec![0; 4])]);
    let padding = vec![0; signatures.len().next_multiple_of(8) - signatures.len()];
    let entry = |number: u32, content: &[u8]| {
        let content = [content, &vec![0; content.len().next_multiple_of(4) - content.len()]].concat();
        [format!("07070X{number:08x}\0\0").as_bytes(), &content].concat()
    };
    let payload = [entry(0, b""), entry(1, b"one"), entry(2, b"first"), entry(3, b"")].concat();
    [signatures, padding, header(&tags), payload, b"07070100000000".to_vec()].concat()
}

#[test]
fn files_with_numbers_have_the_names_of_the_header() {
    let bytes = numbered_package();
    let mut stream = SourceStream::new(Arc::new(MemorySource::new(bytes.as_slice(), "package")), Cancel::default());
    let mut told = Vec::new();
    let rpm = by_name("rpm").unwrap();
    assert!(rpm.bid(&Probe::of_head(&bytes)) > 0);
    rpm.forwards()
        .unwrap()
        .read(&mut stream, &Options::default(), &mut |event, _| {
            match event {
                Event::Entry(entry) => told.push(*entry),
                Event::Damage(damage) => panic!("{damage:?}"),
                _ => {}
            }
            Ok(())
        })
        .unwrap();
    let names: Vec<_> = told.iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned()).collect();
    assert_eq!(names, ["d/second", "d/first", "d/link", "d/folder"]);
    assert_eq!((told[0].kind, told[0].body.size), (Kind::File, 3));
    assert_eq!(bytes[told[0].body.offset as usize..][..3], *b"one");
    assert_eq!((told[1].kind, told[1].link.as_slice()), (Kind::HardLink, &b"d/second"[..]));
    assert_eq!((told[2].kind, told[2].link.as_slice()), (Kind::Symlink, &b"first"[..]));
    assert_eq!((told[2].user.as_slice(), told[2].group.as_slice()), (&b"mail"[..], &b"games"[..]));
    assert_eq!((told[3].kind, told[3].mode, told[3].mtime.seconds), (Kind::Folder, 0o755, 4));
}

/// Why nothing of it is read.
fn refusal(name: &str, bytes: &[u8]) -> Option<Error> {
    let source: SharedSource = Arc::new(MemorySource::new(bytes, "bytes"));
    let options = Options::default();
    match by_name(name).unwrap().reader() {
        Reader::Forwards(forwards) => {
            forwards.read(&mut SourceStream::new(source, Cancel::default()), &options, &mut |_, _| Ok(())).err()
        }
        Reader::Random(random) => random.read(&source, &options, &mut |_| Ok(())).err(),
        _ => unreachable!(),
    }
}

/// It may well be whole: nobody says that it is damaged.
#[test]
fn what_is_of_a_kind_that_is_not_known_is_not_damaged() {
    let with = |mut bytes: Vec<u8>, changes: &[(usize, &[u8])]| {
        for (at, new) in changes {
            bytes[*at..at + new.len()].copy_from_slice(new);
        }
        bytes
    };
    let sample = |name: &str, changes: &[(usize, &[u8])]| {
        let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/archives/small");
        with(std::fs::read(samples.join(name)).unwrap(), changes)
    };
    let squashfs = |changes: &[(usize, &[u8])]| {
        let numbers = [(40, 1000_u64), (48, 300), (56, u64::MAX), (64, 100), (72, 200), (80, u64::MAX)];
        let numbers = numbers.map(|(at, number)| (at, number.to_le_bytes()));
        let image = with(vec![0; 1000], &[(0, b"hsqs"), (12, &[0, 16]), (20, &[1, 0, 12, 0, 0, 0, 1, 0, 4])]);
        with(numbers.iter().fold(image, |image, (at, number)| with(image, &[(*at, number)])), changes)
    };
    let erofs = with(
        vec![0; 8192],
        &[(1024, &0xe0f5_e1e2_u32.to_le_bytes()), (1036, &[12]), (1060, &[2]), (1064, &[1]), (1107, &[0x80])],
    );
    let package = [&header(&[]), &header(&[(1124, 6, 1, b"drpm\0".to_vec())]), &b"drpm"[..]].concat();
    let document = "%PDF-1.7\n1 0 obj\n<</Type/Catalog>>\nendobj\ntrailer\n<</Root 1 0 R/Encrypt<</Filter/Other>>>>\n";
    for (name, bytes, expected) in [
        ("cab", sample("stored.cab", &[(25, &[2])]), "version 2 "),
        ("xar", sample("gzip.xar", &[(6, &[0, 2])]), "version 2 "),
        ("wim", sample("lzx.wim", &[(12, &[0, 0, 2, 0])]), "version 0x20000 "),
        ("wim", sample("lzx.wim", &[(18, &[0x80])]), "its compression is not known"),
        ("wim", sample("lzx.wim", &[(55, &[6])]), "its table of resources is compressed"),
        ("rpm", package, "kind 'drpm'"),
        ("erofs", erofs, "features that are not known: 0x80000000"),
        ("squashfs", squashfs(&[(28, &[3])]), "version 3 "),
        ("squashfs", squashfs(&[(20, &[77])]), "number 77"),
        ("pdf", document.as_bytes().to_vec(), "encrypted in a way that is not known"),
    ] {
        let error = refusal(name, &bytes).unwrap();
        assert!(matches!(error, Error::Unsupported { .. }), "{name}: {error:?}");
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::Unsupported);
    }
    // What says what cannot be is.
    let error = refusal("squashfs", &squashfs(&[(22, &[21])])).unwrap();
    assert!(matches!(error, Error::Unreadable { .. }), "{error:?}");
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::InvalidData);
}

#[test]
fn every_prefix_ends() {
    let mut found = std::collections::BTreeMap::new();
    for (name, seed) in seeds() {
        let format = by_name(name).unwrap();
        // The tables of some are coded, and the last part of a set of cabinets has nothing by itself.
        found
            .entry(name)
            .and_modify(|most: &mut usize| *most = read(format, &seed).max(*most))
            .or_insert(read(format, &seed));
        for length in (0..seed.len()).step_by(1 + seed.len() / 600) {
            read(format, &seed[..length]);
        }
    }
    assert!(found.iter().all(|(name, entries)| *entries > 0 || ["wim", "xar"].contains(name)), "{found:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        for name in NAMES {
            read(by_name(name).unwrap(), &bytes);
        }
    }

    #[test]
    fn changed_archives_end(which: prop::sample::Index, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let seeds = seeds();
        let (name, mut bytes) = which.get(&seeds).clone();
        for (place, byte) in changes {
            let at = place.index(bytes.len());
            bytes[at] = byte;
        }
        read(by_name(name).unwrap(), &bytes);
    }
}
