//! Archives, and parts of them, that lie in an archive with holes or deflated: they show what they would show if they
//! were stored as they are.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::collections::BTreeMap;
use std::ops::Range;

use tarnfs_index::{Recursion, Shape};
use tarnfs_tree::open::{OpenArchive, Options};

use common::{Found, ImageFile, deflated, image, member, memory, open, options, survey, zip, zip_with};

fn recursive(depth: Option<u32>) -> Options {
    let extensions = tarnfs_tree::DEFAULT_EXTENSIONS.map(str::to_owned).into();
    let recursion = Recursion { depth, extensions, ..Recursion::default() };
    Options { shape: Shape { recursion: Some(recursion), ..Shape::default() }, ..options() }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let config = zlib_rs::DeflateConfig { window_bits: 15 + 16, ..zlib_rs::DeflateConfig::default() };
    let mut packed = vec![0; zlib_rs::compress_bound(bytes.len()) + 64];
    let (packed, code) = zlib_rs::compress_slice(&mut packed, bytes, config);
    assert_eq!(code, zlib_rs::ReturnCode::Ok);
    packed.to_vec()
}

/// Where `bytes` are not zeros for long, with up to four such places.
fn data_of(bytes: &[u8]) -> Vec<Range<usize>> {
    const HOLE: usize = 4096;
    let mut data: Vec<Range<usize>> = Vec::new();
    for at in (0..bytes.len()).filter(|&at| bytes[at] != 0) {
        match data.last_mut() {
            Some(last) if at - last.end < HOLE => last.end = at + 1,
            _ => data.push(at..at + 1),
        }
    }
    assert!(data.len() <= 4, "{data:?}");
    data
}

/// A member of a tar that has its holes, with the map of the old GNU format.
fn sparse(name: &str, bytes: &[u8]) -> Vec<u8> {
    let data = data_of(bytes);
    let stored: Vec<u8> = data.iter().flat_map(|range| bytes[range.clone()].to_vec()).collect();
    let mut member = member(b'S', name, &stored);
    member[257..265].copy_from_slice(b"ustar  \0");
    let end = bytes.len()..bytes.len();
    for (number, range) in data.iter().chain((data.len() < 4).then_some(&end)).enumerate() {
        let pair = format!("{:011o}\0{:011o}\0", range.start, range.len());
        member[386 + 24 * number..][..24].copy_from_slice(pair.as_bytes());
    }
    member[483..495].copy_from_slice(format!("{:011o}\0", bytes.len()).as_bytes());
    member[148..156].copy_from_slice(b"        ");
    let sum: u32 = member[..512].iter().map(|&byte| u32::from(byte)).sum();
    member[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    member
}

/// A tar whose middle is zeros.
fn tar_with_zeros(zeros: usize) -> Vec<u8> {
    [member(b'0', "first", b"the first"), member(b'0', "zeros", &vec![0; zeros]), member(b'0', "last", b"the last")]
        .concat()
        .into_iter()
        .chain(vec![0; 1024])
        .collect()
}

fn squashfs() -> Vec<u8> {
    let content = deflated(&[7; 4096]);
    let file = ImageFile { name: "seven".to_owned(), size: 4096, start: 0, blocks: vec![content.len() as u32] };
    image(4096, &[content], &[file])
}

fn shown(opened: &OpenArchive) -> BTreeMap<Vec<u8>, Found> {
    survey(&*opened.tree, &mut |path, error| panic!("{}: {error}", path.escape_ascii()))
}

fn paths(found: &BTreeMap<Vec<u8>, Found>) -> Vec<String> {
    found.keys().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
}

/// > Parts of an archive that was split are one folder of what it holds, in any archive and folder; one that is missing
/// > is named.
#[test]
fn archives_and_parts_with_holes_are_opened() {
    let tar = tar_with_zeros(100_000);
    let disk = [squashfs(), vec![0; 1 << 20]].concat();
    let files: Vec<(String, Vec<u8>)> = [
        ("x.tar".to_owned(), tar.clone()),
        ("y.zip".to_owned(), zip(&[("zeros", &vec![0; 50_000]), ("a", b"content of a")])),
        ("d.sqfs".to_owned(), disk),
        ("x.tar.gz".to_owned(), gzip(&tar)),
        // Nothing but a hole, and what only has such a name.
        ("h.tar".to_owned(), vec![0; 70_000]),
        ("n.iso".to_owned(), [&vec![0; 40_000][..], b"no image"].concat()),
    ]
    .into_iter()
    // Parts with holes at their start, at their end, and of nothing else.
    .chain(tar.chunks(20_000).enumerate().map(|(number, part)| (format!("s.tar.{:03}", number + 1), part.to_vec())))
    .collect();
    let archive = |member_of: &dyn Fn(&str, &[u8]) -> Vec<u8>| {
        let members: Vec<u8> = files.iter().flat_map(|(name, bytes)| member_of(name, bytes)).collect();
        [members, vec![0; 1024]].concat()
    };
    let (plain, holed) = (archive(&|name, bytes| member(b'0', name, bytes)), archive(&sparse));
    for (name, pack) in [("plain", (|bytes| bytes.to_vec()) as fn(&[u8]) -> Vec<u8>), ("gzip", gzip)] {
        let outer = |bytes: &[u8]| [member(b'0', "outer.tar", bytes), vec![0; 1024]].concat();
        for (around, [plain, holed]) in
            [("alone", [pack(&plain), pack(&holed)]), ("in a tar", [pack(&outer(&plain)), pack(&outer(&holed))])]
        {
            let expected = open(memory("plain", &plain), &recursive(None)).unwrap();
            let found = open(memory("holes", &holed), &recursive(None)).unwrap();
            let notes = &found.index.summary().notes;
            assert_eq!(notes, &expected.index.summary().notes, "{name} {around}");
            let (expected, found) = (shown(&expected), shown(&found));
            assert_eq!(paths(&found), paths(&expected), "{name} {around}");
            assert!(found == expected, "{name} {around}");
            let folder = if around == "alone" { "" } else { "/outer.tar" };
            for path in ["x.tar/last", "y.zip/a", "d.sqfs/seven", "x.tar.gz/last", "s.tar.001/last"] {
                assert!(found.contains_key(format!("{folder}/{path}").as_bytes()), "{path}: {:?}", paths(&found));
            }
        }
    }
}

/// What is missing at the end is missing in the archive with holes that lies there, too.
#[test]
fn what_is_whole_of_a_cut_archive_with_holes_is_served() {
    let tar = tar_with_zeros(100_000);
    let whole = sparse("x.tar", &tar);
    // Within the last member, behind the hole.
    let cut = &whole[..whole.len() - 1024];
    assert!(cut.len() > 1024);
    for bytes in [cut.to_vec(), gzip(cut)] {
        let opened = open(memory("cut", &bytes), &recursive(None)).unwrap();
        assert!(!opened.index.summary().notes.is_empty());
        let mut failed = Vec::new();
        let found = survey(&*opened.tree, &mut |path, _| failed.push(path.to_vec()));
        assert_eq!(found[&b"/x.tar/first"[..]].1.as_deref(), Some(&b"the first"[..]), "{:?}", paths(&found));
        assert!(found.get(&b"/x.tar/last"[..]).is_none_or(|(_, content)| content.is_none()), "{:?}", paths(&found));
    }
}

/// Whoever looks for a part that was never there would look for long.
#[test]
fn parts_in_a_cut_archive_are_said_to_be_cut() {
    let noise: Vec<u8> = (0..60_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let packed = gzip(&[member(b'0', "noise", &noise), vec![0; 1024]].concat());
    let size = packed.len().div_ceil(3);
    let parts = packed.chunks(size).enumerate();
    let parts: Vec<u8> = parts.flat_map(|(at, part)| member(b'0', &format!("s.tar.gz.00{}", at + 1), part)).collect();
    let cut = &parts[..parts.len() - size / 2];
    let opened = open(memory("cut", cut), &recursive(None)).unwrap();
    let notes: Vec<&str> = opened.index.summary().notes.iter().map(|(_, what)| what.as_str()).collect();
    assert!(notes.iter().any(|note| note.ends_with(": the archive that its parts lie in is cut")), "{notes:?}");
    assert!(!notes.iter().any(|note| note.contains("missing")), "{notes:?}");
}

/// What is damaged of the stream around it is not served out of an archive with holes either.
#[test]
fn what_is_damaged_of_an_archive_with_holes_is_not_served() {
    let noise: Vec<u8> = (0..60_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8 | 1).collect();
    let image = zip(&[("zeros", &vec![0; 50_000]), ("noise", &noise)]);
    let tar = [sparse("y.zip", &image), vec![0; 1024]].concat();
    let mut packed = gzip(&tar);
    let middle = packed.len() / 2;
    packed[middle] ^= 0x10;
    let opened = open(memory("damaged", &packed), &recursive(None)).unwrap();
    assert!(!opened.index.summary().notes.is_empty());
    let found = survey(&*opened.tree, &mut |_, _| ());
    for (path, (_, content)) in &found {
        if path.ends_with(b"/noise") {
            assert!(content.as_ref().is_none_or(|content| *content == noise), "{}", path.escape_ascii());
        }
    }
}

/// > A file that only looks like an archive stays a file and does no harm.
///
/// However it is stored: the codec of a zip is none of the file's own.
#[test]
fn a_deflated_archive_shows_what_a_stored_one_shows() {
    let tar = tar_with_zeros(3000);
    let broken = squashfs();
    let files: Vec<(&str, Vec<u8>)> = vec![
        ("x.tar", tar.clone()),
        ("x.tar.gz", gzip(&tar)),
        ("one.gz", gzip(b"one file")),
        ("d.sqfs", squashfs()),
        ("y.zip", zip(&[("a", b"content of a"), ("in.tar", &tar)])),
        // These are none.
        ("junk.iso", [&vec![0; 32 << 10][..], b"\x01CD001\x01", &[0; 2041]].concat()),
        ("cut.sqfs", broken[..broken.len() - 40].to_vec()),
        ("cut.gz", gzip(&tar)[..12].to_vec()),
    ];
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect();
    for depth in [None, Some(1), Some(2)] {
        let [stored, deflated] = [false, true].map(|is_deflated| {
            let opened = open(memory("x.zip", &zip_with(&files, is_deflated)), &recursive(depth)).unwrap();
            shown(&opened)
        });
        assert_eq!(paths(&deflated), paths(&stored), "{depth:?}");
        assert!(deflated == stored, "{depth:?}");
        for name in ["junk.iso", "cut.sqfs"] {
            assert!(deflated[format!("/{name}").as_bytes()].0.starts_with("File"), "{name}");
        }
        assert!(deflated.contains_key(&b"/x.tar/last"[..]) && deflated.contains_key(&b"/d.sqfs/seven"[..]));
    }
}
