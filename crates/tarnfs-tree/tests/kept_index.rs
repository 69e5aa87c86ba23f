//! Of which archives an index is kept in a file.

#![allow(clippy::print_stdout, reason = "what was left out")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use tarnfs_index::{Recursion, Shape, trust};
use tarnfs_source::Limits;
use tarnfs_tree::open::{
    DecodingOptions, FileFacts, IndexOptions, IndexPlace, OpenArchive, Options, Passwords, Problem, Recreate,
    open_source,
};
use tarnfs_tree::{Kind, Node, Tree as _};

use common::{archives, content, memory, open, options};

/// A zip archive of one file that is stored as it is.
fn zip(name: &str, bytes: &[u8]) -> Vec<u8> {
    common::zip(&[(name, bytes)])
}

fn tar() -> Vec<u8> {
    archives().into_iter().find(|(name, _)| *name == "tar").unwrap().1
}

/// Whether an index was put into a file. It is in the folder that is given, and nothing else is.
fn keeps(archive: &[u8], options: &Options) -> Result<bool, Problem> {
    let folder = tempfile::tempdir().unwrap();
    let place = IndexPlace::Folders(vec![folder.path().to_owned()]);
    let opened = open(
        memory("archive", archive),
        &Options { index: IndexOptions { place, is_written: true, ..options.index.clone() }, ..options.clone() },
    )?;
    let found: Vec<_> = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(found, opened.index_path.iter().cloned().collect::<Vec<_>>());
    Ok(!found.is_empty())
}

fn shaped(change: impl FnOnce(&mut Shape)) -> Options {
    let mut options = options();
    change(&mut options.shape);
    options
}

#[test]
fn what_has_a_directory_of_its_own_needs_no_index() {
    let zip = zip("file", b"content of the file");
    let opened = open(memory("a.zip", &zip), &options()).unwrap();
    let file = opened.tree.lookup(Node::ROOT, b"file").unwrap();
    assert_eq!(content(&*opened.tree, file.node).unwrap(), b"content of the file");
    let compressed = zstd_of(&zip);
    for (what, archive, options, is_kept) in [
        ("a tar", &tar(), options(), true),
        ("a zip", &zip, options(), false),
        (
            "a zip whose index is wanted",
            &zip,
            Options { index: IndexOptions { is_required: true, ..options().index }, ..options() },
            true,
        ),
        ("a zip of which more is said", &zip, shaped(|shape| shape.hashes = vec!["crc32".to_owned()]), true),
        ("a zip that is compressed", &compressed, options(), true),
    ] {
        assert_eq!(keeps(archive, &options).unwrap(), is_kept, "{what}");
    }
}

/// What may lie in what a password opens is not put into temporary files either, but where they are encrypted: what
/// does not fit into memory stays a file.
#[test]
fn what_may_be_secret_is_put_into_no_temporary_file() {
    let body = zstd_of(&zip("file", &vec![0; 65 << 20]));
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), (0..1 << 20).map(|number| (number >> 7) as u8).collect::<Vec<_>>()).unwrap();
    let packed = Command::new("lrzip").args(["-Q", "-n", "-O", ".", "file"]).current_dir(folder.path()).status();
    let packed = packed.is_ok_and(|done| done.success()).then(|| fs::read(folder.path().join("file.lrz")).unwrap());
    for is_secret in [false, true] {
        let secret = |options: Options| Options {
            decoding: DecodingOptions { is_secret, ..options.decoding },
            // A chunk of lrzip that is longer than 512 KiB needs a file.
            limits: Limits { decoder_window: 1 << 19, lzma_dictionary: 0, ..options.limits },
            ..options
        };
        let opened =
            open(memory("a.zip.zst", &body), &Options { limits: Limits::default(), ..secret(options()) }).unwrap();
        assert_eq!(opened.tree.lookup(Node::ROOT, b"file").is_ok(), !is_secret);
        let notes = &opened.index.summary().notes;
        assert_eq!(notes.iter().any(|(_, what)| what.contains("stays a file")), is_secret, "{notes:?}");
        let Some(packed) = &packed else {
            println!("left out: lrzip");
            continue;
        };
        let opened = open(memory("archive.lrz", packed), &secret(options()));
        let whole = opened.as_ref().is_ok_and(|opened| opened.index.summary().notes.is_empty());
        assert_eq!(whole, !is_secret, "{opened:?}");
    }
}

fn zstd_of(bytes: &[u8]) -> Vec<u8> {
    let mut packed = vec![0; zstd_safe::compress_bound(bytes.len())];
    let length = zstd_safe::compress(&mut packed[..], bytes, 3).unwrap();
    packed.truncate(length);
    packed
}

/// Names, targets of links and hashes would lie beside the archive for all who may read it.
#[test]
fn of_what_a_password_opens_no_index_is_kept() {
    let zip = zip("file", b"content");
    let with_password = |options: Options| Options {
        decoding: DecodingOptions { passwords: Passwords::new(vec![b"secret"[..].into()]), ..options.decoding },
        ..options
    };
    let hashed = || shaped(|shape| shape.hashes = vec!["crc32".to_owned()]);
    assert!(!keeps(&zip, &with_password(hashed())).unwrap());
    let wanted = keeps(
        &zip,
        &with_password(Options { index: IndexOptions { is_required: true, ..options().index }, ..options() }),
    );
    assert!(matches!(&wanted, Err(Problem::Unwritten(why)) if why.contains("password")), "{wanted:?}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("index");
    let named = with_password(Options {
        index: IndexOptions { place: IndexPlace::File(file.clone()), ..options().index },
        ..options()
    });
    let opened = open(memory("a.zip", &zip), &named);
    assert!(matches!(&opened, Err(Problem::Unwritten(_))) && !file.exists());
    // A tar is open to everybody, unless what is in it is looked into.
    assert!(keeps(&tar(), &with_password(options())).unwrap());
    let recursion = Recursion { extensions: vec!["zip".to_owned()], ..Recursion::default() };
    assert!(!keeps(&tar(), &with_password(shaped(|shape| shape.recursion = Some(recursion)))).unwrap());
    assert!(open(memory("a.tar", &tar()), &named).unwrap().index_path.as_deref() == Some(Path::new(&file)));
}

/// Opens an archive of that name and time with an index in that place.
fn with_index(
    name: &str,
    archive: &[u8],
    modified: i64,
    index: IndexOptions,
    shape: Shape,
) -> Result<OpenArchive, Problem> {
    let owner = trust::Owner { user: 0, group: 0, mode: 0o644 };
    let options = Options { index, shape, ..options() };
    open_source(memory(name, archive), FileFacts { owner, modified, identity: Some(1) }, Path::new(name), &options)
}

/// One that is named belongs to one archive, and is replaced where that is asked for or it is of an older state.
#[test]
fn the_index_of_another_archive_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("index");
    let other = [common::member(b'0', "other", b"content"), vec![0; 1024]].concat();
    let opened = |name: &str, archive: &[u8], recreate| {
        let place = IndexPlace::File(file.clone());
        let index = IndexOptions { place, recreate, is_written: true, ..options().index };
        with_index(name, archive, 7, index, Shape::default()).map(|opened| (opened.is_new, opened.index_path))
    };
    let path = Some(file.clone());
    assert!(matches!(opened("one", &tar(), Recreate::Never), Err(Problem::NoIndex(_))) && !file.exists());
    assert_eq!(opened("one", &tar(), Recreate::IfNeeded).unwrap(), (true, path.clone()));
    for recreate in [Recreate::IfNeeded, Recreate::Never] {
        assert_eq!(opened("one", &tar(), recreate).unwrap(), (false, path.clone()));
        // Whatever the same archive is called.
        assert_eq!(opened("another name", &tar(), recreate).unwrap(), (false, path.clone()));
    }
    let before = fs::read(&file).unwrap();
    let refused = opened("other", &other, Recreate::IfNeeded);
    assert!(matches!(&refused, Err(Problem::Unwritten(why)) if why.contains("is the index of one")), "{refused:?}");
    assert!(matches!(opened("other", &other, Recreate::Never), Err(Problem::NoIndex(_))));
    assert!(fs::read(&file).unwrap() == before);
    // By its name, it is of an older state.
    assert_eq!(opened("one", &other, Recreate::IfNeeded).unwrap(), (true, path.clone()));
    assert_eq!(opened("other", &tar(), Recreate::Always).unwrap(), (true, path.clone()));
    assert_eq!(opened("other", &tar(), Recreate::Never).unwrap(), (false, path));
    assert_eq!(folder.path().read_dir().unwrap().count(), 1);
}

/// Each shape has an index of its own, and one that shows another tree is kept.
#[test]
fn indexes_of_other_options_lie_beside_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let opened = |shape: &Shape, modified, recreate, verify_mtime| {
        let place = IndexPlace::Folders(vec![folder.path().to_owned()]);
        let index = IndexOptions { place, recreate, verify_mtime, is_written: true, ..options().index };
        let opened = with_index("a.tar", &tar(), modified, index, shape.clone())?;
        Ok::<_, Problem>((opened.is_new, opened.index_path.unwrap()))
    };
    let plain = Shape::default();
    let hashed = Shape { hashes: vec!["crc32".to_owned()], ..Shape::default() };
    let zeros = Shape { ignore_zeros: true, ..Shape::default() };
    let made: Vec<_> = [&plain, &zeros, &hashed]
        .map(|shape| {
            let (is_new, path) = opened(shape, 7, Recreate::IfNeeded, false).unwrap();
            assert!(is_new);
            path
        })
        .into();
    let count = || folder.path().read_dir().unwrap().count();
    assert!(count() == 3 && made[0] != made[1] && made[0] != made[2] && made[1] != made[2], "{made:?}");
    for (shape, path) in [&plain, &zeros, &hashed].into_iter().zip(&made) {
        assert_eq!(opened(shape, 7, Recreate::Never, false).unwrap(), (false, path.clone()));
        // Of another time of change, unless that counts, as it does where hashes are shown of a plain archive.
        match opened(shape, 8, Recreate::Never, false) {
            Ok(opened) => assert_eq!((opened, shape.hashes.len()), ((false, path.clone()), 0)),
            Err(problem) => assert!(matches!(problem, Problem::NoIndex(_)) && !shape.hashes.is_empty()),
        }
        assert!(matches!(opened(shape, 8, Recreate::Never, true), Err(Problem::NoIndex(_))));
        // One that is made anew takes the place of its own.
        assert_eq!(opened(shape, 7, Recreate::Always, false).unwrap(), (true, path.clone()));
    }
    assert_eq!(count(), 3);
    // More hashes than were asked for are hidden.
    let crc = |shape: &Shape| {
        let place = IndexPlace::File(made[2].clone());
        let index = IndexOptions { place, recreate: Recreate::Never, ..options().index };
        let opened = with_index("a.tar", &tar(), 7, index, shape.clone()).unwrap();
        opened.tree.xattrs(first_file(&opened)).unwrap().iter().any(|(name, _)| name.ends_with(b"crc32"))
    };
    assert_eq!((crc(&hashed), crc(&plain)), (true, false));
}

/// Some file of an archive.
fn first_file(opened: &OpenArchive) -> Node {
    let mut waiting = vec![Node::ROOT];
    while let Some(folder) = waiting.pop() {
        let mut file = None;
        opened
            .tree
            .read_dir(folder, 0, &mut |child| {
                match child.attributes.kind {
                    Kind::Folder => waiting.push(child.attributes.node),
                    Kind::File if child.attributes.size > 0 => file = Some(child.attributes.node),
                    _ => {}
                }
                true
            })
            .unwrap();
        if let Some(file) = file {
            return file;
        }
    }
    panic!("there is no file");
}

/// What is mistyped is made nowhere.
#[test]
fn a_folder_for_indexes_is_made_where_there_is_one_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let opened = |path: &str, is_required| {
        let place = IndexPlace::Folders(vec![folder.path().join(path)]);
        let index = IndexOptions { place, is_written: true, is_required, ..options().index };
        with_index("a.tar", &tar(), 7, index, Shape::default()).map(|opened| opened.index_path.is_some())
    };
    assert!(opened("new", false).unwrap() && folder.path().join("new").exists());
    assert!(!opened("a/b/new", false).unwrap() && !folder.path().join("a").exists());
    let refused = opened("a/b/new", true);
    assert!(matches!(&refused, Err(Problem::Unwritten(why)) if why.contains("does not exist")), "{refused:?}");
}
