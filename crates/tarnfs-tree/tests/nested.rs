//! Random trees of archives in archives: what is shown is what was put in, and threads change nothing of the index.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use proptest::prelude::*;
use tarnfs_codec::engine::Indexing;
use tarnfs_format::{Body, Entry};
use tarnfs_index::{Archive, Destination, Layer, Recursion, Shape, Summary, Writer, WriterOptions};
use tarnfs_source::Fingerprint;
use tarnfs_tree::open::{DecodingOptions, IndexOptions, IndexPlace, Options, Recreate};
use tarnfs_tree::{Node, Tree};

use common::{content, memory, open, options, survey};

#[derive(Debug, Clone, Copy)]
enum Compression {
    None,
    Gzip,
    Bzip2,
    Xz,
    Zstd,
    Lz4,
}

use Compression::{Bzip2, Gzip, Lz4, None as Plain, Xz, Zstd};

impl Compression {
    fn suffix(self) -> &'static str {
        match self {
            Plain => "",
            Gzip => ".gz",
            Bzip2 => ".bz2",
            Xz => ".xz",
            Zstd => ".zst",
            Lz4 => ".lz4",
        }
    }

    fn pack(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Plain => bytes.to_vec(),
            Gzip => {
                // A window of 2^15, and 16 for the wrapper of gzip.
                let config = zlib_rs::DeflateConfig { window_bits: 15 + 16, ..zlib_rs::DeflateConfig::default() };
                let mut packed = vec![0; zlib_rs::compress_bound(bytes.len()) + 64];
                let (packed, code) = zlib_rs::compress_slice(&mut packed, bytes, config);
                assert_eq!(code, zlib_rs::ReturnCode::Ok);
                packed.to_vec()
            }
            Bzip2 => {
                let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Xz => {
                let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 0);
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Zstd => {
                let mut packed = vec![0; zstd_safe::compress_bound(bytes.len())];
                let length = zstd_safe::compress(&mut packed[..], bytes, 3).unwrap();
                packed.truncate(length);
                packed
            }
            // Frames of blocks that are stored: https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md
            Lz4 => {
                let descriptor = [0x60, 0x40];
                let check = (xxhash_rust::xxh32::xxh32(&descriptor, 0) >> 8) as u8;
                let mut packed = [&0x184D_2204_u32.to_le_bytes()[..], &descriptor, &[check]].concat();
                for block in bytes.chunks(64 << 10) {
                    packed.extend((block.len() as u32 | 1 << 31).to_le_bytes());
                    packed.extend(block);
                }
                packed.extend([0; 4]);
                packed
            }
        }
    }
}

/// What lies in an archive under one name.
#[derive(Debug, Clone)]
enum Item {
    File {
        end: &'static str,
        bytes: Vec<u8>,
    },
    /// A compressed file, shown as a folder with the file in it.
    Packed {
        how: Compression,
        bytes: Vec<u8>,
    },
    Folder(Items),
    Archive {
        how: Compression,
        items: Items,
    },
}

type Items = Vec<(String, Item)>;

/// The items with their full names, each name once.
fn named(items: &Items) -> BTreeMap<String, &Item> {
    let mut named = BTreeMap::new();
    for (stem, item) in items {
        let name = match item {
            Item::File { end, .. } => format!("{stem}{end}"),
            Item::Packed { how, .. } => format!("{stem}{}", how.suffix()),
            Item::Folder(_) => format!("{stem}.d"),
            Item::Archive { how, .. } => format!("{stem}.tar{}", how.suffix()),
        };
        named.entry(name).or_insert(item);
    }
    named
}

/// A member of a tar as POSIX has it (ustar), with a whole number of blocks.
fn member(name: &str, kind: u8, bytes: &[u8]) -> Vec<u8> {
    let mut header = [0_u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..107].copy_from_slice(b"0000644");
    header[108..115].copy_from_slice(b"0000000");
    header[116..123].copy_from_slice(b"0000000");
    header[124..135].copy_from_slice(format!("{:011o}", bytes.len()).as_bytes());
    header[136..147].copy_from_slice(b"14000000000");
    header[148..156].fill(b' ');
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..154].copy_from_slice(format!("{sum:06o}").as_bytes());
    header[154] = 0;
    let mut member = [&header[..], bytes].concat();
    member.resize(member.len().next_multiple_of(512), 0);
    member
}

fn add(tar: &mut Vec<u8>, folder: &str, items: &Items) {
    for (name, item) in named(items) {
        let path = format!("{folder}{name}");
        match item {
            Item::File { bytes, .. } => tar.extend(member(&path, b'0', bytes)),
            Item::Packed { how, bytes } => tar.extend(member(&path, b'0', &how.pack(bytes))),
            Item::Archive { how, items } => tar.extend(member(&path, b'0', &how.pack(&tar_of(items)))),
            Item::Folder(items) => {
                tar.extend(member(&format!("{path}/"), b'5', &[]));
                add(tar, &format!("{path}/"), items);
            }
        }
    }
}

fn tar_of(items: &Items) -> Vec<u8> {
    let mut tar = Vec::new();
    add(&mut tar, "", items);
    tar.resize(tar.len() + 1024, 0);
    tar
}

/// Paths, and the bytes of what is a file.
type Model = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

fn expect(model: &mut Model, folder: &str, items: &Items) {
    for (name, item) in named(items) {
        let path = format!("{folder}/{name}");
        let content = match item {
            Item::File { bytes, .. } => Some(bytes.clone()),
            Item::Packed { how, bytes } => {
                let single = format!("{path}/{}", name.strip_suffix(how.suffix()).unwrap());
                model.insert(single.into_bytes(), Some(bytes.clone()));
                None
            }
            Item::Folder(items) | Item::Archive { items, .. } => {
                expect(model, &path, items);
                None
            }
        };
        model.insert(path.into_bytes(), content);
    }
}

/// Text, which no format is taken for, from very repetitive to nearly random.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    (0_usize..30_000, any::<u64>(), 1_u64..60).prop_map(|(length, seed, spread)| {
        let mut state = seed | 1;
        let next = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            b'0' + (state % spread) as u8
        };
        (0..length).map(next).collect()
    })
}

fn compression() -> impl Strategy<Value = Compression> {
    prop::sample::select(vec![Plain, Plain, Gzip, Gzip, Bzip2, Xz, Zstd, Lz4])
}

fn items() -> impl Strategy<Value = Items> {
    let leaf = prop_oneof![
        3 => (prop::sample::select(vec!["", ".txt", ".tar", ".gz"]), bytes()).prop_map(|(end, bytes)| Item::File { end, bytes }),
        1 => (compression().prop_filter("a compressed one", |how| !matches!(how, Plain)), bytes())
            .prop_map(|(how, bytes)| Item::Packed { how, bytes }),
    ];
    let item = leaf.prop_recursive(4, 24, 5, |inner| {
        let items = || prop::collection::vec(("[a-c]{1,2}", inner.clone()), 1..5);
        prop_oneof![
            3 => (compression(), items()).prop_map(|(how, items)| Item::Archive { how, items }),
            1 => items().prop_map(Item::Folder),
        ]
    });
    prop::collection::vec(("[a-e]{1,2}", item), 1..6)
}

fn recursive(place: &Path, threads: usize, recreate: Recreate) -> Options {
    let extensions = tarnfs_tree::DEFAULT_EXTENSIONS.map(str::to_owned).into();
    let recursion = Recursion { depth: None, extensions, strip_extension: false, transform: None };
    let shape = Shape { recursion: Some(recursion), gnu_incremental: Some(false), ..Shape::default() };
    Options {
        shape,
        index: IndexOptions { recreate, place: IndexPlace::File(place.to_owned()), ..options().index },
        decoding: DecodingOptions { threads, ..options().decoding },
        ..options()
    }
}

/// Opens it with 1 thread and with 4, and with the index that is there then: all the same.
fn assert_shows(archive: &[u8], model: &Model) {
    let folder = tempfile::tempdir().unwrap();
    let mut indexes = Vec::new();
    for threads in [1, 4] {
        let path = folder.path().join(threads.to_string());
        for recreate in [Recreate::Always, Recreate::Never] {
            let opened = open(memory("archive", archive), &recursive(&path, threads, recreate)).unwrap();
            assert!(opened.index.summary().notes.is_empty(), "{:?}", opened.index.summary().notes);
            let found = survey(&*opened.tree, &mut |path, error| {
                panic!("{}: {error}", String::from_utf8_lossy(path));
            });
            for (path, content) in model {
                let (what, found) =
                    found.get(path).unwrap_or_else(|| panic!("{} is missing", String::from_utf8_lossy(path)));
                assert!(found == content, "{} has another content; {what}", String::from_utf8_lossy(path));
            }
            let more = found.keys().find(|path| !model.contains_key(*path));
            assert!(more.is_none(), "{} should not be there", String::from_utf8_lossy(more.unwrap()));
        }
        indexes.push(fs::read(path).unwrap());
    }
    assert!(indexes[0] == indexes[1], "4 threads make another index than 1");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_of_archives_is_shown(items in items(), how in compression()) {
        let mut model = Model::new();
        expect(&mut model, "", &items);
        assert_shows(&how.pack(&tar_of(&items)), &model);
    }
}

/// Large ones are decoded with all threads, small ones beside each other.
#[test]
fn large_and_small_ones_make_one_index_with_any_number_of_threads() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut noise = |length: usize| -> Vec<u8> {
        let next = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            b'0' + (state % 60) as u8
        };
        (0..length).map(next).collect()
    };
    let mut items = Items::new();
    for (number, how) in [Gzip, Plain, Bzip2, Zstd, Xz, Lz4].into_iter().enumerate() {
        for small in 0..40 {
            let inner = vec![("text".to_owned(), Item::File { end: ".txt", bytes: noise(small * 100) })];
            items.push((format!("{number}-{small}"), Item::Archive { how, items: inner }));
        }
        // More than 4 MiB also when it is packed.
        let inner = vec![
            ("large".to_owned(), Item::File { end: "", bytes: noise(4 << 20) }),
            ("other".to_owned(), Item::File { end: "", bytes: noise(3 << 20) }),
        ];
        items.push((format!("{number}-large"), Item::Archive { how, items: inner }));
    }
    let mut model = Model::new();
    expect(&mut model, "", &items);
    assert_shows(&tar_of(&items), &model);
    assert_shows(&Gzip.pack(&tar_of(&items)), &model);
}

/// Archives that hold others that hold others stop at a limit, and what was found before is served.
#[test]
fn archives_that_multiply_stop() {
    let mut items = vec![("leaf".to_owned(), Item::File { end: "", bytes: b"leaf".to_vec() })];
    // 8 + 64 + ... + 32768 of them.
    for _ in 0..5 {
        let archive = |number| (format!("{number}"), Item::Archive { how: Gzip, items: items.clone() });
        items = (0..8).map(archive).collect();
    }
    let archive = tar_of(&items);
    let folder = tempfile::tempdir().unwrap();
    let mut indexes = Vec::new();
    for threads in [1, 4] {
        let path = folder.path().join(threads.to_string());
        let mut options = recursive(&path, threads, Recreate::Always);
        options.limits.nested = 1000;
        let opened = open(memory("archive", &archive), &options).unwrap();
        let notes = &opened.index.summary().notes;
        assert!(notes.iter().any(|(_, note)| note.contains("is it a bomb")), "{notes:?}");
        let found = survey(&*opened.tree, &mut |path, error| panic!("{}: {error}", String::from_utf8_lossy(path)));
        let folders = found.values().filter(|(what, _)| what.starts_with("Folder")).count();
        assert!((1000..=1000 + archive.len() / 16).contains(&folders), "{folders} folders");
        // Those that are no folders are the files that they are.
        let file = found.iter().find(|(path, (what, _))| path.ends_with(b".gz") && what.starts_with("File"));
        assert!(file.is_some_and(|(_, (_, bytes))| bytes.as_ref().unwrap().starts_with(b"\x1f\x8b")));
        indexes.push(fs::read(path).unwrap());
    }
    assert!(indexes[0] == indexes[1], "4 threads make another index than 1");
}

/// The same of those that lie in it uncompressed.
#[test]
fn archives_that_are_not_compressed_are_counted() {
    let leaf = vec![("leaf".to_owned(), Item::File { end: "", bytes: b"leaf".to_vec() })];
    let inner = tar_of(&leaf);
    let many = |count| {
        let file = |number| (format!("{number}"), Item::File { end: ".tar", bytes: inner.clone() });
        tar_of(&(0..count).map(file).collect())
    };
    let folder = tempfile::tempdir().unwrap();
    let mut options = recursive(&folder.path().join("index"), 1, Recreate::Always);
    options.limits.nested = 10;
    // One after the other, and all of them in one that is compressed itself.
    for archive in [
        Xz.pack(&many(3000)),
        tar_of(&vec![("x".to_owned(), Item::File { end: ".tar.xz", bytes: Xz.pack(&many(3000)) })]),
    ] {
        let most = archive.len() as u64 / 16 + 30;
        assert!(most < 3000);
        let opened = open(memory("archive", &archive), &options).unwrap();
        let notes = &opened.index.summary().notes;
        assert!(notes.iter().any(|(_, note)| note.contains("is it a bomb")), "{notes:?}");
        let found = survey(&*opened.tree, &mut |path, error| panic!("{}: {error}", String::from_utf8_lossy(path)));
        let of = |kind: &str| {
            let found = found.iter().filter(|(path, (what, _))| path.ends_with(b".tar") && what.starts_with(kind));
            found.count() as u64
        };
        let (folders, files) = (of("Folder"), of("File"));
        assert!(folders > 0 && folders <= most && folders + files == 3000, "{folders} folders, {files} files");
    }
}

/// Pieces of the content that are right, and those that cannot be read; wrong ones are none.
fn pieces(tree: &dyn Tree, path: &str, content: &[u8]) -> (usize, usize) {
    let find = |folder, name: &str| tree.lookup(folder, name.as_bytes()).unwrap().node;
    let source = tree.open(path.split('/').fold(Node::ROOT, find)).unwrap();
    // What lost its end has one byte more, which cannot be read.
    let length = content.len() as u64;
    let is_cut = source.len() == length + 1 && source.read_exact_at(&mut [0], length).is_err();
    assert!(source.len() == length || is_cut, "{path}: {} bytes, not {length}", source.len());
    let (mut right, mut refused) = (0, 0);
    for (number, piece) in content.chunks(4096).enumerate() {
        let mut read = vec![0; piece.len()];
        match source.read_exact_at(&mut read, number as u64 * 4096) {
            Ok(()) => {
                assert!(read == piece, "{path}: piece {number} is wrong");
                right += 1;
            }
            Err(_) => refused += 1,
        }
    }
    (right, refused)
}

/// A block of bzip2 that is gone leaves less than it held. Behind it, the file of an archive is not known; its
/// members further on are.
#[test]
fn archives_shifted_by_damage_give_no_wrong_bytes() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut noise = |length: usize| -> Vec<u8> {
        let next = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        (0..length).map(next).collect()
    };
    let files: Items =
        (0..21).map(|number| (format!("{number}"), Item::File { end: "", bytes: noise(60_000) })).collect();
    let inner = tar_of(&files);
    let middle = vec![
        ("inner".to_owned(), Item::Archive { how: Plain, items: files.clone() }),
        ("late".to_owned(), Item::File { end: "", bytes: noise(100_000) }),
    ];
    let middle_tar = tar_of(&middle);
    let outer = vec![
        ("middle".to_owned(), Item::Archive { how: Plain, items: middle }),
        // The bytes that are missing are taken from here.
        ("next".to_owned(), Item::File { end: "", bytes: noise(200_000) }),
        ("past".to_owned(), Item::File { end: "", bytes: b"fine".to_vec() }),
    ];
    let mut archive = Bzip2.pack(&tar_of(&outer));
    let half = archive.len() / 2;
    archive[half..half + 60].fill(0);
    let folder = tempfile::tempdir().unwrap();
    for threads in [1, 4] {
        let path = folder.path().join(threads.to_string());
        for recreate in [Recreate::Always, Recreate::Never] {
            let mut options = recursive(&path, threads, recreate);
            options.shape.recursion.as_mut().unwrap().strip_extension = true;
            let opened = open(memory("archive", &archive), &options).unwrap();
            let tree = &*opened.tree;
            assert_eq!(pieces(tree, "past", b"fine"), (1, 0));
            for (path, content) in [("middle.tar", &middle_tar), ("middle/inner.tar", &inner)] {
                let (right, refused) = pieces(tree, path, content);
                assert!(right > 50 && refused > 50, "{path}: {right} right, {refused} refused");
            }
            let found = survey(tree, &mut |_, _| ());
            let right = named(&files).into_iter().filter(|(name, item)| {
                let found = found.get(format!("/middle/inner/{name}").as_bytes()).and_then(|(_, found)| found.as_ref());
                matches!(item, Item::File { bytes, .. } if found.is_some_and(|found| found == bytes))
            });
            // On both sides of the block.
            let right: Vec<_> = right.map(|(name, _)| name).collect();
            assert!(right.iter().any(|name| name == "0") && right.iter().any(|name| name == "9"), "{right:?}");
        }
    }
}

/// A stream that cannot be decoded to its end holds what can be decoded of it, in an archive and by itself.
#[test]
fn what_lies_behind_decoded_bytes_and_is_not_supported_ends_its_stream() {
    let good = b"good bytes ".repeat(1000);
    // https://github.com/facebook/zstd/blob/dev/doc/zstd_compression_format.md: a frame that names dictionary 0x1234
    // and holds nothing.
    let of_dictionary = [0x28, 0xb5, 0x2f, 0xfd, 0x22, 0x34, 0x12, 0x00, 0x01, 0x00, 0x00];
    let zstd = [&Zstd.pack(&good)[..], &of_dictionary].concat();
    // https://tukaani.org/xz/xz-file-format.txt: flags of a stream that are reserved, with their right checksum.
    let flags = [0x00, 0x2f];
    let check = crc32(&flags);
    let xz = [&Xz.pack(&good)[..], b"\xfd7zXZ\0", &flags, &check.to_le_bytes()].concat();
    let tar = [member("a.zst", b'0', &zstd), member("b.xz", b'0', &xz), member("c", b'0', b"last"), vec![0; 1024]];
    let folder = tempfile::tempdir().unwrap();
    for archive in [tar.concat(), Gzip.pack(&tar.concat())] {
        for threads in [1, 4] {
            let options = recursive(&folder.path().join("index"), threads, Recreate::Always);
            let opened = open(memory("archive", &archive), &options).unwrap();
            for (path, content) in [("a.zst/a", &good[..]), ("b.xz/b", &good), ("c", b"last")] {
                assert_eq!(pieces(&*opened.tree, path, content).1, 0, "{path}");
            }
            let notes = &opened.index.summary().notes;
            for name in ["a.zst: ", "b.xz: "] {
                assert_eq!(notes.iter().filter(|(_, note)| note.starts_with(name)).count(), 1, "{notes:?}");
            }
        }
    }
    for bytes in [&zstd, &xz] {
        let opened = open(memory("archive", bytes), &options()).unwrap();
        assert_eq!(pieces(&*opened.tree, "archive", &good).1, 0);
        assert_eq!(opened.index.summary().notes.len(), 1, "{:?}", opened.index.summary().notes);
    }
    // With nothing before it, it is an error, in an archive a file.
    assert!(open(memory("archive", &of_dictionary), &options()).is_err());
    let tar = [member("a.zst", b'0', &of_dictionary), vec![0; 1024]].concat();
    let opened = open(memory("archive", &tar), &recursive(&folder.path().join("index"), 1, Recreate::Always)).unwrap();
    assert_eq!(pieces(&*opened.tree, "a.zst", &of_dictionary), (1, 0));
}

/// Paths that are the same place are, however they are spelt: what comes last counts.
#[test]
fn an_archive_is_replaced_by_whatever_comes_to_its_place() {
    let archive = |name: &str| tar_of(&vec![(name.to_owned(), Item::File { end: "", bytes: b"content".to_vec() })]);
    let (old, new) = (archive("old"), archive("new"));
    let folder = tempfile::tempdir().unwrap();
    for spelling in ["a.tar", "./a.tar", "x/../a.tar", "../a.tar", "x/./../y/../a.tar"] {
        for how in [Plain, Gzip] {
            for threads in [1, 4] {
                let options = recursive(&folder.path().join("index"), threads, Recreate::Always);
                let with = |content: &[u8]| {
                    let (first, second) = (how.pack(&old), how.pack(content));
                    let tar = [member("a.tar", b'0', &first), member(spelling, b'0', &second), vec![0; 1024]];
                    let opened = open(memory("archive", &tar.concat()), &options).unwrap();
                    survey(&*opened.tree, &mut |path, error| panic!("{}: {error}", String::from_utf8_lossy(path)))
                };
                let paths = |found: &BTreeMap<Vec<u8>, common::Found>| {
                    found.keys().map(|path| String::from_utf8_lossy(path).into_owned()).collect::<Vec<_>>()
                };
                assert_eq!(paths(&with(&new)), ["/a.tar", "/a.tar/new"], "{spelling}, {how:?}");
            }
        }
        let options = recursive(&folder.path().join("index"), 1, Recreate::Always);
        let tar = [member("a.tar", b'0', &old), member(spelling, b'0', b"plain"), vec![0; 1024]].concat();
        let opened = open(memory("archive", &tar), &options).unwrap();
        assert_eq!(pieces(&*opened.tree, "a.tar", b"plain"), (1, 0), "{spelling}");
    }
}

/// A hash says what a file holds that can be read.
#[test]
fn bytes_that_fail_their_check_have_no_hashes() {
    let tar = [member("a", b'0', &b"a".repeat(30_000)), member("b", b'0', b"b"), vec![0; 1024]].concat();
    let around =
        |name: &str, inner: &[u8]| [member(name, b'0', inner), member("c", b'0', b"c"), vec![0; 1024]].concat();
    let (whole, mut broken) = (Gzip.pack(&tar), Gzip.pack(&tar));
    let check = broken.len() - 8;
    broken[check] ^= 1;
    let (single, mut broken_single) = (Gzip.pack(b"single"), Gzip.pack(b"single"));
    let check = broken_single.len() - 8;
    broken_single[check] ^= 1;
    // What is read, and which of the files have hashes.
    let cases = [
        (whole.clone(), vec!["a", "b"], vec![]),
        (broken.clone(), vec![], vec!["a", "b"]),
        (around("x.tar.gz", &whole), vec!["x.tar.gz/a", "x.tar.gz/b", "c"], vec![]),
        (around("x.tar.gz", &broken), vec!["c"], vec!["x.tar.gz/a", "x.tar.gz/b"]),
        (Gzip.pack(&around("x.tar.gz", &broken)), vec!["c"], vec!["x.tar.gz/a", "x.tar.gz/b"]),
        (single, vec!["archive"], vec![]),
        (broken_single.clone(), vec![], vec!["archive"]),
        (around("x.gz", &broken_single), vec!["c"], vec!["x.gz/x"]),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (number, (archive, with, without)) in cases.iter().enumerate() {
        for recreate in [Recreate::Always, Recreate::Never] {
            let mut options = recursive(&folder.path().join(number.to_string()), 2, recreate);
            options.shape.hashes = vec!["md5".to_owned()];
            let opened = open(memory("archive", archive), &options).unwrap();
            let find = |folder, name: &str| opened.tree.lookup(folder, name.as_bytes()).unwrap().node;
            for (path, is_kept) in with.iter().map(|path| (path, true)).chain(without.iter().map(|path| (path, false)))
            {
                let node = path.split('/').fold(Node::ROOT, find);
                let hashes = opened.tree.xattrs(node).unwrap();
                assert_eq!(hashes.iter().any(|(name, _)| name == b"user.hash.md5"), is_kept, "{number}: {path}");
                assert_eq!(content(&*opened.tree, node).is_ok(), is_kept, "{number}: {path}");
            }
        }
    }
}

/// In very many layers every so many are decoded into memory. What that takes comes out of the budget, and streams make
/// room for each other.
#[test]
fn what_lies_in_very_many_layers_is_in_memory_once_and_within_the_budget() {
    let deep = |first: u8| {
        let mut tar: Vec<u8> =
            (0..40).flat_map(|number| member(&format!("f{number}"), b'0', &[first + number])).collect();
        tar.extend(member("zeros", b'0', &vec![0; 3 << 20]));
        tar.resize(tar.len() + 1024, 0);
        // As large as before in the last of them, which is read from memory.
        (0..12).fold(Lz4.pack(&tar), |bytes, _| Gzip.pack(&bytes))
    };
    let name = |archive: usize| format!("{archive}.tar.lz4{}", ".gz".repeat(12));
    let members = [member(&name(0), b'0', &deep(0)), member(&name(1), b'0', &deep(100)), vec![0; 1024]].concat();
    let folder = tempfile::tempdir().unwrap();
    let with = |budget: usize, when: Recreate| {
        let cache = tarnfs_codec::engine::PieceCache::new(tarnfs_source::Budget::new(budget));
        let options = Options {
            decoding: DecodingOptions { cache, ..recursive(&folder.path().join("index"), 1, when).decoding },
            ..recursive(&folder.path().join("index"), 1, when)
        };
        (open(memory("archive", &members), &options).unwrap().tree, options.decoding.cache)
    };
    let (tree, cache) = with(4 << 20, Recreate::Always);
    let find = |folder, name: &str| tree.lookup(folder, name.as_bytes()).unwrap().node;
    let mut held = Vec::new();
    for number in 0..40 {
        for archive in 0..2 {
            let node = find(find(Node::ROOT, &name(archive)), &format!("f{number}"));
            let source = tree.open(node).unwrap();
            let mut byte = [0];
            source.read_exact_at(&mut byte, 0).unwrap();
            assert_eq!(usize::from(byte[0]), archive * 100 + number);
            held.push(source);
            // One of the two, and what else is decoded.
            let (used, most) = (cache.budget().used(), cache.budget().limit());
            assert!((3 << 20..=most).contains(&used), "{used} bytes of {most}");
        }
    }
    drop(held);
    let left = cache.budget().used();
    assert!(left < 3 << 20, "{left} bytes are left of what nobody reads");
    // Without room it is an error, which says what to do, and is tried again.
    let (tree, cache) = with(4 << 20, Recreate::Never);
    let source = tree.open(find(find(Node::ROOT, &name(1)), "f7")).unwrap();
    let other = cache.budget().take(2 << 20).unwrap();
    let error = source.read_at(&mut [0], 0).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("`cache-memory`"), "{error}");
    assert_eq!(tarnfs_tree::Error::from(error).errno(), rustix::io::Errno::NOMEM);
    drop(other);
    let mut byte = [0];
    source.read_exact_at(&mut byte, 0).unwrap();
    assert_eq!(byte, [107]);
}

/// Writes the index of `tar`, packed so many times, with the members whose headers begin there, and returns the
/// archive.
fn index_of_layers(path: &Path, tar: &[u8], layers: usize, members: &[(&str, usize, usize)]) -> Vec<u8> {
    let budget = tarnfs_source::Budget::new(1 << 20);
    let (limits, cancel) = Default::default();
    let mut writer = Writer::new(WriterOptions { limits, budget, cancel }).unwrap();
    for &(name, header, size) in members {
        let (offset, size) = (header as u64 + 512, size as u64);
        let body = Body { offset, stored: size, size, ..Body::default() };
        writer.add(&Entry { path: name.into(), header: header as u64, body, ..Entry::default() }).unwrap();
    }
    let codec = tarnfs_codec::by_name("gzip").unwrap();
    let (mut bytes, mut told) = (tar.to_vec(), Vec::new());
    for layer in (0..layers).rev() {
        told.insert(0, Layer { codec: "gzip".to_owned(), decoded_length: bytes.len() as u64 });
        bytes = Gzip.pack(&bytes);
        let mut indexing = Indexing::new(codec, memory("layer", &bytes), &tarnfs_codec::Options::default()).unwrap();
        while indexing.read(&mut [0; 4096]).unwrap() > 0 {}
        let mut chunks = Vec::new();
        indexing.take_chunks(&mut chunks);
        for chunk in chunks {
            writer.add_chunk(layer, chunk).unwrap();
        }
    }
    let fingerprint = Fingerprint::of(&*memory("archive", &bytes)).unwrap();
    let archive = Archive { length: bytes.len() as u64, fingerprint, modified: 1_700_000_000_000_000_000 };
    let summary = Summary { layers: told, ..Summary::new(archive, "tar") };
    writer.finish(summary, &Destination::File(path.to_owned())).unwrap();
    bytes
}

/// A first pass makes one layer around an archive. Of an index that says that there are very many, what is read is
/// read from the outermost inwards, and not by calls inside each other: by a thread of a mount, with its small stack.
#[test]
fn an_archive_in_very_many_layers_is_read_with_little_stack() {
    let text: Vec<u8> = (0..50_000_u32).map(|at| b'a' + (at * at / 7 % 26) as u8).collect();
    let first = member("text", b'0', &text);
    let members = [("text", 0, text.len()), ("other", first.len(), 5)];
    let tar = [first, member("other", b'0', b"other"), vec![0; 1024]].concat();
    let folder = tempfile::tempdir().unwrap();
    for layers in [1, 12, 13, 40] {
        let index = folder.path().join(layers.to_string());
        let packed = index_of_layers(&index, &tar, layers, &members);
        let options = Options { shape: Shape::default(), ..recursive(&index, 1, Recreate::Never) };
        let opened = open(memory("archive", &packed), &options).unwrap();
        // Of very many nobody reads one alone.
        assert_eq!(opened.inputs.len(), if layers > 12 { 0 } else { layers });
        assert!(opened.stream.depth() >= layers && opened.stream.len() == tar.len() as u64, "{layers}");
        let read = || {
            for (name, expected) in [("text", &text[..]), ("other", b"other")] {
                let node = opened.tree.lookup(Node::ROOT, name.as_bytes()).unwrap().node;
                assert!(content(&*opened.tree, node).unwrap() == expected, "{name} in {layers} layers");
            }
        };
        std::thread::scope(|scope| {
            std::thread::Builder::new().stack_size(1 << 20).spawn_scoped(scope, read).unwrap().join().unwrap();
        });
    }
}

/// What is there of an archive that was cut is shown, however many archives lie in each other.
#[test]
fn an_archive_that_was_cut_shows_what_is_there_at_any_depth() {
    let good = member("good", b'0', b"good");
    let mut inner = [&member("deepest", b'0', b"deep")[..], &member("cut", b'0', &[b'c'; 5000]), &[0; 1024]].concat();
    for _ in 0..30 {
        inner = [&good[..], &member("in.tar", b'0', &inner), &member("behind", b'0', b"behind"), &[0; 1024]].concat();
    }
    let start = inner.iter().position(|&byte| byte == b'c').unwrap();
    assert!(inner[start..].starts_with(b"cut"));
    let folder = tempfile::tempdir().unwrap();
    for there in [512 + 2000, 512, 100, 0] {
        let archive = &inner[..start + there];
        for threads in [1, 4] {
            for recreate in [Recreate::Always, Recreate::Never] {
                let mut options = recursive(&folder.path().join("index"), threads, recreate);
                options.shape.hashes = vec!["md5".to_owned()];
                options.shape.recursion.as_mut().unwrap().strip_extension = there == 100;
                let opened = open(memory("archive", archive), &options).unwrap();
                assert_eq!(pieces(&*opened.tree, "good", b"good"), (1, 0));
                let good = opened.tree.lookup(Node::ROOT, b"good").unwrap().node;
                assert_eq!(opened.tree.xattrs(good).unwrap().len(), 1);
                let around = if there == 100 { "in/" } else { "in.tar/" };
                let path = |name: &str| format!("{}{name}", around.repeat(30));
                assert_eq!(pieces(&*opened.tree, &path("deepest"), b"deep"), (1, 0), "{there}");
                if there > 512 {
                    assert_eq!(pieces(&*opened.tree, &path("cut"), &[b'c'; 5000]), (0, 2));
                }
                assert!(!opened.index.summary().notes.is_empty());
            }
        }
    }
}

/// A path that is too long only behind the path of its archive is found again at the next opening.
#[test]
fn a_path_with_too_many_components_behind_that_of_its_archive_is_no_change() {
    let paths = [format!("{}file", "d/".repeat(1023)), format!("{}{}", "d/".repeat(1023), "l".repeat(300))];
    let members: Vec<u8> = paths
        .iter()
        .flat_map(|path| {
            let record = |length: usize| format!("{length} path={path}\n");
            let length = (0..9).fold(0, |length, _| record(length).len());
            [member("pax", b'x', record(length).as_bytes()), member("short", b'0', path.as_bytes())].concat()
        })
        .collect();
    let archive = [member("in.tar", b'0', &[members, vec![0; 1024]].concat()), vec![0; 1024]].concat();
    let folder = tempfile::tempdir().unwrap();
    for recreate in [Recreate::Always, Recreate::Never] {
        let opened = open(memory("archive", &archive), &recursive(&folder.path().join("index"), 1, recreate)).unwrap();
        let found = survey(&*opened.tree, &mut |path, error| panic!("{}: {error}", String::from_utf8_lossy(path)));
        for path in &paths {
            assert!(found.values().any(|(_, bytes)| bytes.as_ref().is_some_and(|bytes| bytes == path.as_bytes())));
        }
    }
    // Another name is a change.
    let mut changed = archive;
    let at = changed.windows(5).position(|bytes| bytes == b"/file").unwrap();
    changed[at + 1] = b'F';
    let opened = open(memory("archive", &changed), &recursive(&folder.path().join("index"), 1, Recreate::Never));
    let failed = opened.map(|opened| {
        let mut failed = 0;
        survey(&*opened.tree, &mut |_, error| {
            assert_eq!(error.errno(), rustix::io::Errno::STALE, "{error}");
            failed += 1;
        });
        failed
    });
    // The fingerprint of so short an archive may tell as well.
    assert!(failed.is_err() || failed.is_ok_and(|failed| failed == 1));
}

/// An archive that shows as a file beside its folder has hashes as any file has; in place of one it needs none.
#[test]
fn archives_beside_their_folders_have_hashes() {
    let tar = [member("a", b'0', &b"a".repeat(3000)), member("b", b'0', b"b"), vec![0; 1024]].concat();
    let padded = [tar.clone(), vec![0; 20_000]].concat();
    let outer = tar_of(&vec![("in".to_owned(), Item::File { end: "", bytes: b"in".to_vec() })]);
    let nested = [member("x.tar", b'0', &tar), outer].concat();
    let files = [
        ("p.tar", padded.clone()),
        ("q.tar.gz", Gzip.pack(&tar)),
        ("r.gz", Gzip.pack(b"single")),
        ("s.tar", nested.clone()),
        ("s/x.tar", tar.clone()),
        ("empty.tar", vec![0; 10_240]),
    ];
    let members: Vec<u8> = files
        .iter()
        .filter(|(name, _)| !name.contains('/'))
        .flat_map(|(name, bytes)| member(name, b'0', bytes))
        .collect();
    let archive = [members, vec![0; 1024]].concat();
    let expected = |bytes: &[u8]| format!("{:08x}", crc32(bytes));
    let folder = tempfile::tempdir().unwrap();
    for (archive, how) in [(archive.clone(), Plain), (Gzip.pack(&archive), Gzip)] {
        for (ignore_zeros, threads) in [(false, 1), (false, 4), (true, 1), (true, 4)] {
            let mut options = recursive(&folder.path().join("index"), threads, Recreate::Always);
            options.shape.recursion.as_mut().unwrap().strip_extension = true;
            options.shape.ignore_zeros = ignore_zeros;
            options.shape.hashes = vec!["crc32".to_owned()];
            let tree = open(memory("archive", &archive), &options).unwrap().tree;
            let find = |folder, name: &str| tree.lookup(folder, name.as_bytes()).unwrap().node;
            for (path, bytes) in &files {
                let node = path.split('/').fold(Node::ROOT, find);
                assert_eq!(&content(&*tree, node).unwrap(), bytes, "{path}");
                let hashes = [(b"user.hash.crc32".to_vec(), expected(bytes).into_bytes())];
                assert_eq!(tree.xattrs(node).unwrap(), hashes, "{path}, {how:?}, {ignore_zeros}, {threads} threads");
            }
        }
    }
}

/// As gzip and xz have it.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xEDB8_8320 } else { sum >> 1 })
    })
}

/// Where an expression keeps the paths short, archives in each other end as well.
#[test]
fn archives_in_each_other_end_where_their_paths_do_not_grow() {
    let mut inner = [member("leaf", b'0', b"leaf"), vec![0; 1024]].concat();
    for level in 0..60 {
        inner = [member(&format!("{level}.tar"), b'0', &inner), vec![0; 1024]].concat();
    }
    let folder = tempfile::tempdir().unwrap();
    let with = |most: usize| {
        let mut options = recursive(&folder.path().join("index"), 2, Recreate::Always);
        options.shape.recursion.as_mut().unwrap().transform = Some(("^.*$".to_owned(), "x".to_owned()));
        options.limits.path_components = most;
        let opened = open(memory("archive", &inner), &options).unwrap();
        let found = survey(&*opened.tree, &mut |path, error| panic!("{}: {error}", String::from_utf8_lossy(path)));
        (found.contains_key(&b"/x/leaf"[..]), opened.index.summary().notes.clone())
    };
    assert_eq!(with(30), (true, vec![]));
    let (is_there, notes) = with(29);
    assert!(!is_there && notes.len() == 1 && notes[0].1.contains("too many archives"), "{notes:?}");
}

/// As ratarmount counts: a compressed tar is two levels, also where it is the archive itself.
#[test]
fn depth_is_counted_in_levels() {
    let folder = tempfile::tempdir().unwrap();
    let shown = |archive: &[u8], depth: u32| {
        let mut options = recursive(&folder.path().join("index"), 2, Recreate::Always);
        options.shape.recursion.as_mut().unwrap().depth = Some(depth);
        let opened = open(memory("archive", archive), &options).unwrap();
        assert!(opened.index.summary().notes.is_empty(), "{:?}", opened.index.summary().notes);
        let found = survey(&*opened.tree, &mut |path, error| panic!("{}: {error}", String::from_utf8_lossy(path)));
        let files = found.iter().filter(|(_, (_, bytes))| bytes.is_some());
        files.map(|(path, _)| String::from_utf8_lossy(path).into_owned()).collect::<Vec<_>>()
    };
    let leaf = [member("leaf", b'0', b"leaf"), vec![0; 1024]].concat();
    let middle = [member("c.tar", b'0', &leaf), vec![0; 1024]].concat();
    let twice = Bzip2.pack(&Gzip.pack(b"text"));
    let members = [member("b.tar.gz", b'0', &Gzip.pack(&middle)), member("c.tar", b'0', &leaf)];
    let archive = [&members.concat()[..], &member("s.gz.bz2", b'0', &twice), &[0; 1024]].concat();
    // What ratarmount 1.3 shows, but that a file in several layers of compression lies in one folder.
    let levels = [
        ["/b.tar.gz", "/c.tar", "/s.gz.bz2"],
        ["/b.tar.gz/b.tar", "/c.tar/leaf", "/s.gz.bz2/s.gz"],
        ["/b.tar.gz/c.tar", "/c.tar/leaf", "/s.gz.bz2/s"],
        ["/b.tar.gz/c.tar/leaf", "/c.tar/leaf", "/s.gz.bz2/s"],
        ["/b.tar.gz/c.tar/leaf", "/c.tar/leaf", "/s.gz.bz2/s"],
    ];
    for (depth, expected) in (0..).zip(levels) {
        assert_eq!(shown(&archive, depth), expected, "{depth}");
        assert_eq!(shown(&Gzip.pack(&archive), depth + 1), expected, "compressed, {}", depth + 1);
    }
    let layers = (0..5).fold(b"text".to_vec(), |bytes, _| Gzip.pack(&bytes));
    for (depth, expected) in [(0, 4), (1, 3), (3, 1), (4, 0), (5, 0)] {
        let archive = [member("x", b'0', b""), member("y.gz", b'0', &layers), vec![0; 1024]].concat();
        let length = (0..expected).fold(b"text".to_vec(), |bytes, _| Gzip.pack(&bytes)).len();
        let opened = {
            let mut options = recursive(&folder.path().join("index"), 2, Recreate::Always);
            options.shape.recursion.as_mut().unwrap().depth = Some(depth + 1);
            open(memory("archive", &archive), &options).unwrap()
        };
        let found = survey(&*opened.tree, &mut |path, error| panic!("{}: {error}", String::from_utf8_lossy(path)));
        assert_eq!(found[&b"/y.gz/y"[..]].1.as_ref().unwrap().len(), length, "{depth}");
    }
}
