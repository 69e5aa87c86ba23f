//! What an archive shows, and what is taken of an older index of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::path::Path;

use tarnfs_index::{Recursion, Shape};
use tarnfs_tree::open::{IndexOptions, IndexPlace, OpenArchive, Options, is_url};
use tarnfs_tree::{Kind, Node, Tree};

use common::{content, memory, open, options};

/// A member: its header and content, up to a full block.
fn member(kind: u8, name: &str, link: &str, bytes: &[u8], more: impl FnOnce(&mut [u8; 512])) -> Vec<u8> {
    let mut header = [0_u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..107].copy_from_slice(b"0000644");
    header[108..115].copy_from_slice(b"0001750");
    header[124..135].copy_from_slice(format!("{:011o}", bytes.len()).as_bytes());
    header[136..147].copy_from_slice(b"00000000001");
    header[156] = kind;
    header[157..157 + link.len()].copy_from_slice(link.as_bytes());
    header[257..265].copy_from_slice(b"ustar\x0000");
    more(&mut header);
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let mut member = [&header[..], bytes].concat();
    member.resize(member.len().next_multiple_of(512), 0);
    member
}

fn file(name: &str, bytes: &[u8]) -> Vec<u8> {
    member(b'0', name, "", bytes, |_| ())
}

fn tar(members: &[Vec<u8>]) -> Vec<u8> {
    let mut tar = members.concat();
    tar.resize(tar.len() + 1024, 0);
    tar
}

#[test]
fn an_address_is_not_a_path() {
    for (path, expected) in [
        ("https://host/x.tar", true),
        ("s3+x-y.z1://bucket", true),
        ("1http://host", false),
        ("ht tp://host", false),
        ("/a/b://c", false),
        ("http:/host", false),
        ("://host", false),
        ("", false),
    ] {
        assert_eq!(is_url(Path::new(path)), expected, "{path}");
    }
}

#[test]
fn zeros_are_an_empty_archive_if_there_are_few() {
    for (length, is_empty) in [(512, true), (10240, true), (1 << 20, true), ((1 << 20) + 512, false)] {
        let opened = open(memory("zeros", &vec![0; length]), &options());
        assert_eq!(opened.is_ok(), is_empty, "{length}");
        if let Ok(opened) = opened {
            assert!(common::survey(&*opened.tree, &mut |path, error| panic!("{path:?}: {error}")).is_empty());
        }
    }
}

/// It belongs to whom the archive belongs to, and is as old as that.
#[test]
fn a_folder_that_no_entry_names_is_the_archives() {
    let named = member(b'5', "named/", "", b"", |_| ());
    let opened = open(memory("a.tar", &tar(&[file("made/file", b"x"), named])), &options()).unwrap();
    let at = |name: &[u8]| opened.tree.lookup(Node::ROOT, name).unwrap();
    let facts = |attributes: tarnfs_tree::Attributes| {
        let times = [attributes.mtime, attributes.atime, attributes.ctime].map(|time| time.seconds);
        (attributes.uid, times)
    };
    assert_eq!(facts(at(b"made")), (0, [1_700_000_000; 3]));
    assert_eq!(facts(at(b"named")), (0o1750, [1; 3]));
    assert_eq!(opened.tree.attributes(at(b"made").node).unwrap(), at(b"made"));
    let inside = opened.tree.lookup(at(b"made").node, b"file").unwrap();
    assert_eq!(facts(inside), (0o1750, [1; 3]));
}

/// A reader gets zeros from holes, so a hash counts them.
#[test]
fn the_hash_of_a_sparse_file_is_that_of_what_is_read() {
    let sparse = |from: usize, whole: usize| {
        member(b'S', "sparse", "", b"abc", |header| {
            header[257..265].copy_from_slice(b"ustar  \0");
            for (at, number) in [(386, from), (398, 3), (410, whole), (483, whole)] {
                header[at..at + 11].copy_from_slice(format!("{number:011o}").as_bytes());
            }
        })
    };
    for (from, whole) in [(0, 3), (512, 1000), (65_536, 131_075), (150_000, 400_000)] {
        let hashes = vec!["crc32".to_owned()];
        let options = Options { shape: Shape { hashes, ..options().shape }, ..options() };
        let opened = open(memory("a.tar", &tar(&[sparse(from, whole)])), &options).unwrap();
        let node = opened.tree.lookup(Node::ROOT, b"sparse").unwrap().node;
        let mut expected = vec![0; whole];
        expected[from..from + 3].copy_from_slice(b"abc");
        assert!(content(&*opened.tree, node).unwrap() == expected, "{from} of {whole}");
        let crc = format!("{:08x}", crc32fast::hash(&expected)).into_bytes();
        assert_eq!(opened.tree.xattrs(node).unwrap(), [(b"user.hash.crc32".to_vec(), crc)], "{from} of {whole}");
    }
}

/// The folder in which an archive's content shows is whose the archive's file is.
#[test]
fn the_folder_of_an_archive_is_its_files() {
    let inner = tar(&[file("x", b"x")]);
    let owned = |name: &str| {
        member(b'0', name, "", &inner, |header| {
            header[265..270].copy_from_slice(b"alice");
            header[297..302].copy_from_slice(b"staff");
        })
    };
    let recursion = Recursion { extensions: vec!["tar".to_owned()], ..Recursion::default() };
    let options = Options { shape: Shape { recursion: Some(recursion), ..options().shape }, ..options() };
    let opened = open(memory("a.tar", &tar(&[owned("in.tar")])), &options).unwrap();
    let folder = opened.tree.lookup(Node::ROOT, b"in.tar").unwrap();
    assert_eq!((folder.kind, folder.mode, folder.uid, folder.mtime.seconds), (Kind::Folder, 0o755, 0o1750, 1));
    assert_eq!(opened.tree.owner_names(folder.node).unwrap(), (b"alice".to_vec(), b"staff".to_vec()));
    let inside = opened.tree.lookup(folder.node, b"x").unwrap();
    assert_eq!(opened.tree.owner_names(inside.node).unwrap(), (Vec::new(), Vec::new()));
}

/// Opens `bytes` with the index of an earlier state, and makes one.
fn with_index(place: &Path, bytes: &[u8]) -> OpenArchive {
    open(
        memory("a.tar", bytes),
        &Options { index: IndexOptions { place: IndexPlace::File(place.to_owned()), ..options().index }, ..options() },
    )
    .unwrap()
}

#[test]
fn what_was_appended_shows_with_all_that_was_there() {
    let place = tempfile::tempdir().unwrap();
    let index = place.path().join("index");
    let before = [
        file("folder/file", b"content"),
        member(b'1', "folder/link", "folder/file", b"", |_| ()),
        file("again", b"first"),
        member(b'1', "other", "again", b"", |_| ()),
        file("again", b"second"),
        member(b'2', "symbolic", "again", b"", |_| ()),
    ];
    with_index(&index, &tar(&before));
    let after = [&before[..], &[file("folder/new", b"appended"), file("folder/file", b"newer")]].concat();
    let grown = with_index(&index, &tar(&after));
    let anew = open(memory("a.tar", &tar(&after)), &options()).unwrap();
    let survey = |opened: &OpenArchive| common::survey(&*opened.tree, &mut |path, error| panic!("{path:?}: {error}"));
    let (grown_shows, anew_shows) = (survey(&grown), survey(&anew));
    assert_eq!(grown_shows, anew_shows);
    assert_eq!(grown_shows[&b"/folder/link"[..]].1, Some(b"content".to_vec()));
    assert_eq!(grown_shows[&b"/folder/file"[..]].1, Some(b"newer".to_vec()));
    for path in [&b"folder/link"[..], b"other", b"again", b"folder/file"] {
        let at = |opened: &OpenArchive| {
            let found = tarnfs_tree::path::find(&*opened.tree, path, false).unwrap();
            (found.kind, found.links, found.mtime)
        };
        assert_eq!(at(&grown), at(&anew), "{}", String::from_utf8_lossy(path));
        assert_eq!(at(&anew).0, Kind::File);
    }
}

/// It says something of each entry behind it, so an index of an earlier state is not gone on with.
#[test]
fn a_global_header_holds_for_what_is_appended() {
    let place = tempfile::tempdir().unwrap();
    let index = place.path().join("index");
    let global = member(b'g', "global", "", b"12 uid=4321\n", |_| ());
    let before = [global, file("old", b"old")];
    with_index(&index, &tar(&before));
    let grown = with_index(&index, &tar(&[&before[..], &[file("new", b"new")]].concat()));
    for name in [&b"old"[..], b"new"] {
        assert_eq!(grown.tree.lookup(Node::ROOT, name).unwrap().uid, 4321);
    }
}

/// What a mount says of its memory adds up.
#[test]
fn the_memory_of_a_mount_is_that_of_its_budget() {
    for (name, bytes) in common::archives() {
        let options = options();
        let opened = open(memory(name, &bytes), &options).unwrap();
        common::survey(&*opened.tree, &mut |path, error| panic!("{path:?}: {error}"));
        let work = opened.tree.work();
        if name == "tar" {
            assert_eq!((work.decoded_bytes, work.misses), (0, 0));
            continue;
        }
        assert!(work.decoded_bytes > 0 && work.misses > 0, "{name}: {work:?}");
        let of = |owner: &str| work.memory.iter().find(|(name, _)| *name == owner).unwrap().1;
        assert!(of("pieces") > 0, "{name}: {work:?}");
        // Those at work hold a part of it for a moment.
        let sum = ["pieces", "free_pieces", "paused_decoders", "seek_points"].map(of).iter().sum::<u64>();
        assert_eq!(sum, options.decoding.cache.budget().used() as u64, "{name}: {work:?}");
        assert_eq!(work.memory_limit, options.decoding.cache.budget().limit() as u64);
    }
}

/// What is compressed twice is one file without `-r`; with it, what is in it shows.
#[test]
fn a_single_file_is_told_from_what_is_compressed_again() {
    let gzip = |bytes: &[u8]| {
        let config = zlib_rs::DeflateConfig { window_bits: 15 + 16, ..zlib_rs::DeflateConfig::default() };
        let mut packed = vec![0; zlib_rs::compress_bound(bytes.len()) + 64];
        zlib_rs::compress_slice(&mut packed, bytes, config).0.to_vec()
    };
    let tar = [common::member(b'0', "file", b"content"), vec![0; 1024]].concat();
    let mut recursive = options();
    let extensions = tarnfs_tree::DEFAULT_EXTENSIONS.map(str::to_owned).into();
    recursive.shape.recursion = Some(tarnfs_index::Recursion { extensions, ..tarnfs_index::Recursion::default() });
    for (archive, options, expected) in [
        (gzip(b"text"), options(), true),
        (gzip(b"text"), recursive.clone(), true),
        (gzip(&tar), options(), false),
        (gzip(&gzip(&tar)), options(), true),
        (gzip(&gzip(&tar)), recursive, false),
        (tar, options(), false),
    ] {
        let opened = open(memory("archive", &archive), &options).unwrap();
        assert_eq!(opened.is_single_file().unwrap(), expected, "{:?}", opened.index.summary());
    }
}
