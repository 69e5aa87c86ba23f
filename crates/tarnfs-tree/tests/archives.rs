//! What an archive shows, and what is taken of an older index of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::path::Path;
use std::sync::Arc;

use tarnfs_index::{Recursion, Shape};
use tarnfs_source::Cancel;
use tarnfs_tree::open::{DecodingOptions, IndexOptions, IndexPlace, OpenArchive, Options, Passwords, is_url};
use tarnfs_tree::{Census, Error, Fit, Kind, LockedFiles, Node, Tree, path};

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

/// A symbolic link whose target is too long for the header.
fn linked(name: &str, target: &str) -> Vec<u8> {
    let long = member(b'K', "././@LongLink", "", &[target.as_bytes(), b"\0"].concat(), |header| {
        header[257..265].copy_from_slice(b"ustar  \0");
    });
    [long, member(b'2', name, "", b"", |header| header[257..265].copy_from_slice(b"ustar  \0"))].concat()
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
            assert_eq!((work.decoding.decoded_bytes, work.decoding.misses), (0, 0));
            continue;
        }
        assert!(work.decoding.decoded_bytes > 0 && work.decoding.misses > 0, "{name}: {work:?}");
        let of = |owner: &str| work.memory.iter().find(|(name, _)| *name == owner).unwrap().1;
        assert!(of("pieces") > 0, "{name}: {work:?}");
        // Those at work hold a part of it for a moment.
        let sum = ["pieces", "free_pieces", "paused_decoders", "seek_points"].map(of).iter().sum::<u64>();
        // What else there is are rows of the index, which is in memory.
        assert_eq!(sum + of("other"), options.decoding.cache.budget().used() as u64, "{name}: {work:?}");
        assert!(of("other") < 64 << 10, "{name}: {work:?}");
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

/// Whoever counts sees each file once, however many names and versions it has.
#[test]
fn what_is_in_an_archive_is_counted() {
    let members = [
        member(b'5', "d", "", b"", |_| ()),
        file("d/text", b"content"),
        file("d/x.tar.gz", b"any"),
        // A first part of what is an archive, one of what is none, and an end that is no part's.
        file("x.zip.aa", b"1"),
        file("text.aa", b"22"),
        file("LGPL-2.1", b"333"),
        member(b'1', "again", "d/text", b"", |_| ()),
        member(b'2', "link", "d/text", b"", |_| ()),
        member(b'3', "character", "", b"", |_| ()),
        member(b'4', "block", "", b"", |_| ()),
        member(b'6', "fifo", "", b"", |_| ()),
        file("twice", b"first"),
        file("twice", b"second one"),
    ];
    let opened = open(memory("a.tar", &tar(&members)), &options()).unwrap();
    let census = opened.tree.census(&Cancel::default()).unwrap();
    let Census { files, folders, symlinks, hard_links, character_devices, block_devices, fifos, sockets, .. } = census;
    assert_eq!((files, folders, symlinks, hard_links), (6, 1, 1, 1));
    assert_eq!((character_devices, block_devices, fifos, sockets), (1, 1, 1, 0));
    assert_eq!((census.bytes, census.longest, census.sparse), (7 + 3 + 1 + 2 + 3 + 10, 10, 0));
    assert_eq!((census.archives, census.versions, census.opened), (2, 1, 0));
    assert!(census.methods.is_empty());
    let cancel = Cancel::default();
    cancel.cancel();
    assert!(opened.tree.census(&cancel).is_err());
    // One that shows as a folder has replaced its file.
    let inner = tar(&[file("f", b"inner")]);
    let recursion = Recursion { extensions: vec!["tar".to_owned()], ..Recursion::default() };
    let shape = Shape { recursion: Some(recursion), ..options().shape };
    let members = [file("in.tar", &inner), file("in.tar", &inner), file("twice", b"1"), file("twice", b"2")];
    let opened = open(memory("a.tar", &tar(&members)), &Options { shape, ..options() }).unwrap();
    let census = opened.tree.census(&Cancel::default()).unwrap();
    assert_eq!((census.files, census.folders, census.versions, census.opened), (2, 1, 2, 1));
    // Of files that each have their own way.
    let opened = open(memory("a.zip", &common::zip(&[("a", b"one"), ("b", b"other")])), &options()).unwrap();
    let census = opened.tree.census(&Cancel::default()).unwrap();
    let [method] = &census.methods[..] else { panic!("{census:?}") };
    assert_eq!((method.steps.len(), method.has_blocks, method.files, method.bytes), (0, false, 2, 8));
    assert_eq!((method.stored, method.runs, method.shared, method.longest), (Some(8), 2, 0, 5));
    // Before a byte lies half of its file on average.
    assert!((method.mean_way() - (3.0 * 1.5 + 5.0 * 2.5) / 8.0).abs() < 1e-9, "{}", method.mean_way());
}

/// Where content lies is told to whoever copies it, and where a folder is to whoever names it.
#[test]
fn files_are_told_with_their_places() {
    let members = [member(b'5', "a", "", b"", |_| ()), file("a/b/c", b"content"), file("z", b"last")];
    let opened = open(memory("a.tar", &tar(&members)), &options()).unwrap();
    let tree = &*opened.tree;
    let find = |path: &str| path::find(tree, path.as_bytes(), false).unwrap().node;
    let names = |path: &str| tree.names_to(find(path)).unwrap();
    assert_eq!(
        (names(""), names("a"), names("a/b")),
        (vec![], vec![b"a".to_vec()], vec![b"a".to_vec(), b"b".to_vec()])
    );
    // Once more, from what is remembered.
    assert_eq!(names("a/b"), [b"a", b"b"]);
    let mut found = Vec::new();
    let mut receive = |child: tarnfs_tree::Child<'_>, stored: tarnfs_tree::Stored| {
        found.push((child.name.to_vec(), child.attributes.node, child.attributes.size, stored));
        true
    };
    tree.read_stored(Node::ROOT, 0, &mut receive).unwrap();
    tree.read_stored(find("a"), 0, &mut receive).unwrap();
    tree.read_stored(find("a/b"), 0, &mut receive).unwrap();
    let places: Vec<_> = found
        .iter()
        .map(|(name, _, _, stored)| (name.as_slice(), stored.stream, stored.place, stored.header, stored.is_plain))
        .collect();
    let expected = [
        (&b"a"[..], 0, 512, Some(0), false),
        (b"z", 0, 2048, Some(1536), true),
        // A folder that no entry names.
        (b"b", 0, 0, None, false),
        (b"c", 0, 1024, Some(512), true),
    ];
    assert_eq!(places, expected);
    for (name, node, size, stored) in &found {
        assert_eq!(&tree.stored(*node).unwrap(), stored);
        if stored.is_plain {
            let source = tree.open_stored(*node, stored, *size).unwrap();
            let mut bytes = vec![0; source.len() as usize];
            source.read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(bytes, content(tree, *node).unwrap(), "{name:?}");
        }
    }
    assert!(matches!(tree.read_stored(find("z"), 0, &mut |_, _| true), Err(Error::NotAFolder)));
    assert!(tree.is_read_as_stored() && !tree.may_be_damaged());
    assert!(tree.locked(&Cancel::default()).unwrap().is_none());
    // One child, and what comes behind it.
    let mut count = 0;
    tree.read_stored(Node::ROOT, 0, &mut |_, _| {
        count += 1;
        false
    })
    .unwrap();
    assert_eq!(count, 1);
}

/// As the kernel follows them, but never out of the tree.
#[test]
fn paths_lead_through_links_as_far_as_the_kernel_goes() {
    let mut members = vec![member(b'5', "d", "", b"", |_| ()), file("d/file", b"content")];
    for number in 1..=41 {
        let target = if number == 1 { "d/file".to_owned() } else { format!("l{}", number - 1) };
        members.push(member(b'2', &format!("l{number}"), &target, b"", |_| ()));
    }
    for (name, target) in [("up", "../../d"), ("root", "/"), ("self", "self"), ("d/back", "../l1"), ("lost", "gone")] {
        members.push(member(b'2', name, target, b"", |_| ()));
    }
    let opened = open(memory("a.tar", &tar(&members)), &options()).unwrap();
    let tree = &*opened.tree;
    let file = path::find(tree, b"d/file", true).unwrap();
    let find = |path: &str| path::find(tree, path.as_bytes(), true);
    for path in ["l1", "l40", "/d/file", "d//./file", "../d/../d/file", "up/file", "root/root/d/file", "d/back"] {
        assert_eq!(find(path).unwrap(), file, "{path}");
    }
    for path in ["l41", "self"] {
        assert!(matches!(find(path), Err(Error::TooManyLinks)), "{path}");
    }
    for path in ["d/file/", "l1/x", "d/file/..", "d/file/."] {
        assert!(matches!(find(path), Err(Error::NotAFolder)), "{path}");
    }
    for path in ["gone", "d/gone/x", "lost"] {
        assert!(matches!(find(path), Err(Error::NotFound)), "{path}");
    }
    // The last one is followed if that is wanted, those before it in any case.
    let kind = |path: &str| path::find(tree, path.as_bytes(), false).unwrap().kind;
    assert_eq!(
        [kind("l1"), kind("up/file"), kind("up"), kind("up/")],
        [Kind::Symlink, Kind::File, Kind::Symlink, Kind::Folder]
    );
    assert_eq!(find("").unwrap().node, Node::ROOT);
    let mut through = Vec::new();
    path::find_through(tree, b"up/file", true, &mut |folder| through.push(folder.node)).unwrap();
    let d = find("d").unwrap().node;
    assert_eq!(through, [Node::ROOT, Node::ROOT, d]);
}

/// 39 links to each other, each of which walks to and fro before, are 50 000 look-ups for one path.
#[test]
fn a_path_has_a_bounded_number_of_components() {
    let mut members = vec![member(b'5', "d", "", b"", |_| ()), file("f", b"content")];
    // Components of its target, and of those behind it.
    let link = |name: &str, next: &str, pairs: usize| linked(name, &format!("{}{next}", "d/../".repeat(pairs)));
    members.push(linked("l1", "f"));
    members.extend((2..=39).map(|number| link(&format!("l{number}"), &format!("l{}", number - 1), 800)));
    members.push(link("few", "f", 800));
    let opened = open(memory("a.tar", &tar(&members)), &options()).unwrap();
    let tree = &*opened.tree;
    let mut steps = 0;
    let mut find = |path: &str| {
        steps = 0;
        let found = path::find_through(tree, path.as_bytes(), true, &mut |_| steps += 1);
        (found.map(|found| found.kind), steps)
    };
    let (found, steps) = find("l39");
    assert!(matches!(found, Err(Error::TooManyLinks)) && steps < 10_000, "{steps}");
    assert!(matches!(find("few"), (Ok(Kind::File), 802)));
    assert!(matches!(find("l9"), (Ok(Kind::File), 6410)));
    // What somebody types may be long.
    assert!(matches!(find(&"d/../".repeat(4000)), (Ok(Kind::Folder), 4000)));
}

/// Their targets would make an index that is far larger than the archive.
///
/// > A symbolic link whose target has more than 4095 bytes, which Linux cannot have, is left out, and that is told.
#[test]
fn links_that_linux_cannot_have_are_left_out_and_noted() {
    let [most, more] = [4095, 4096].map(|length| "t".repeat(length));
    let links = [linked("most", &most), linked("more", &more), file("file", b"x")];
    let inner = file("in.tar", &tar(&links));
    let listed = format!("#mtree\nmost type=link link={most}\nmore type=link link={more}\nfile type=file\n");
    let extensions = vec!["tar".to_owned()];
    let shape = Shape { recursion: Some(Recursion { extensions, ..Recursion::default() }), ..options().shape };
    for (name, bytes, folders) in [
        ("a.tar", tar(&[&links[..], &[inner]].concat()), &["", "in.tar/"][..]),
        ("a.mtree", listed.into_bytes(), &[""]),
    ] {
        let opened = open(memory(name, &bytes), &Options { shape: shape.clone(), ..options() }).unwrap();
        let find = |path: &str| path::find(&*opened.tree, path.as_bytes(), false);
        for folder in folders {
            let link = find(&format!("{folder}most")).unwrap();
            assert_eq!(opened.tree.read_link(link.node).unwrap(), most.as_bytes(), "{name} {folder}");
            assert!(matches!(find(&format!("{folder}more")), Err(Error::NotFound)), "{name} {folder}");
            assert_eq!(find(&format!("{folder}file")).unwrap().kind, Kind::File, "{name} {folder}");
        }
        let notes = &opened.index.summary().notes;
        let is_told = |(_, what): &(u64, String)| what.contains("more: the target of the link has 4096 bytes");
        let told = notes.iter().filter(|&note| is_told(note)).count();
        assert_eq!(told, folders.len(), "{name}: {notes:?}");
    }
}

/// What the traditional cipher of zip makes of `bytes` (APPNOTE 6.1), behind its header of twelve bytes.
fn zip_crypto(password: &[u8], crc: u32, bytes: &[u8]) -> Vec<u8> {
    fn update(crc: u32, byte: u8) -> u32 {
        let bit = |crc: u32| if crc & 1 != 0 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        (0..8).fold(crc ^ u32::from(byte), |crc, _| bit(crc))
    }
    let mut keys = [0x1234_5678_u32, 0x2345_6789, 0x3456_7890];
    let mut turn = |byte: u8| {
        keys[0] = update(keys[0], byte);
        keys[1] = keys[1].wrapping_add(keys[0] & 0xff).wrapping_mul(134_775_813).wrapping_add(1);
        keys[2] = update(keys[2], (keys[1] >> 24) as u8);
        let word = keys[2] | 2;
        (word.wrapping_mul(word ^ 1) >> 8) as u8
    };
    let mut mask = password.iter().fold(0, |_, &byte| turn(byte));
    let header = [&[7; 11][..], &[(crc >> 24) as u8]].concat();
    let mut encrypt = |&byte: &u8| {
        let encrypted = byte ^ mask;
        mask = turn(byte);
        encrypted
    };
    header.iter().chain(bytes).map(&mut encrypt).collect()
}

/// Name, content, and the password that it is stored with.
type Secret<'a> = (&'a str, &'a [u8], Option<&'a [u8]>);

/// A zip archive of files that are stored, some of them with a password.
fn zip_with_passwords(files: &[Secret<'_>]) -> Vec<u8> {
    let (mut locals, mut central) = (Vec::new(), Vec::new());
    for (name, bytes, password) in files {
        let crc = crc32fast::hash(bytes);
        let stored = password.map_or_else(|| bytes.to_vec(), |password| zip_crypto(password, crc, bytes));
        let shared = [
            &[20, 0, u8::from(password.is_some()), 0, 0, 0, 0, 0, 0x21, 0x58][..],
            &crc.to_le_bytes(),
            &(stored.len() as u32).to_le_bytes(),
            &(bytes.len() as u32).to_le_bytes(),
            &(name.len() as u16).to_le_bytes(),
            &[0; 2],
        ]
        .concat();
        let at = (locals.len() as u32).to_le_bytes();
        central.extend([&b"PK\x01\x02\x14\0"[..], &shared, &[0; 10], &at, name.as_bytes()].concat());
        locals.extend([&b"PK\x03\x04"[..], &shared, name.as_bytes(), &stored].concat());
    }
    let [at, size] = [&locals, &central].map(|part| (part.len() as u32).to_le_bytes());
    let count = (files.len() as u16).to_le_bytes();
    let end = [&b"PK\x05\x06\0\0\0\0"[..], &count, &count, &size, &at, &[0; 2]].concat();
    [locals, central, end].concat()
}

/// Whether a password opens anything is known before anybody reads.
#[test]
fn passwords_are_tried_when_an_archive_is_opened() {
    let files: [Secret<'_>; 5] = [
        ("plain", b"content", None),
        ("empty", b"", None),
        ("one", b"first secret", Some(b"right")),
        ("two", b"second secret", Some(b"right")),
        ("d/other", b"third", Some(b"another")),
    ];
    let zip = zip_with_passwords(&files);
    let opened = |passwords: &[&str]| {
        let passwords = Passwords::new(passwords.iter().map(|password| Arc::from(password.as_bytes())).collect());
        let decoding = DecodingOptions { passwords, ..options().decoding };
        open(memory("a.zip", &zip), &Options { decoding, ..options() }).unwrap()
    };
    let found = LockedFiles { files: 5, encrypted: 3, readable: 1, tried: 0, passwords: Fit::NotGiven };
    let cancel = Cancel::default();
    assert_eq!(opened(&[]).tree.locked(&cancel).unwrap(), Some(found));
    let wrong = opened(&["wrong", "worse"]);
    assert_eq!(wrong.tree.locked(&cancel).unwrap(), Some(LockedFiles { tried: 3, passwords: Fit::None, ..found }));
    for passwords in [&["right"][..], &["wrong", "another"], &["another", "right"]] {
        let locked = opened(passwords).tree.locked(&cancel).unwrap().unwrap();
        assert_eq!((locked.encrypted, locked.passwords), (3, Fit::SomeOrUnknown), "{passwords:?}");
        assert!((1..=3).contains(&locked.tried), "{locked:?}");
    }
    cancel.cancel();
    assert!(wrong.tree.locked(&cancel).is_err());
    // What is read is what was stored, and nothing where no password fits.
    let both = opened(&["another", "right"]);
    for (name, bytes, _) in files {
        let node = |opened: &OpenArchive| path::find(&*opened.tree, name.as_bytes(), false).unwrap().node;
        assert_eq!(content(&*both.tree, node(&both)).unwrap(), bytes, "{name}");
        let refused = content(&*wrong.tree, node(&wrong));
        assert_eq!(refused.is_ok(), matches!(name, "plain" | "empty"), "{name}");
    }
    // Nobody knows what is damaged of what nothing opens.
    let counted = |opened: &OpenArchive| {
        let damaged = opened.tree.damaged(9, &Cancel::default()).unwrap();
        (damaged.files, damaged.damaged, damaged.locked)
    };
    assert_eq!((counted(&both), counted(&wrong), counted(&opened(&[]))), ((5, 0, 0), (5, 0, 3), (5, 0, 3)));
}
