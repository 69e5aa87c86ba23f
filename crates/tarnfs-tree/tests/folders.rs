//! Folders of a computer that change while they are shown, with archives in them that are opened when somebody looks.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tarnfs_index::{Recursion, Shape};
use tarnfs_source::Source;
use tarnfs_tree::open::{DecodingOptions, IndexOptions, IndexPlace, Options};
use tarnfs_tree::{Attributes, Base, Error, FolderTree, Kind, Lazily, LazyTree, Node, Tree, UnionTree, Waiting as _};

use common::content;

fn header(name: &str, length: usize) -> Vec<u8> {
    let mut header = [0_u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..107].copy_from_slice(b"0000644");
    header[124..135].copy_from_slice(format!("{length:011o}").as_bytes());
    header[136..147].copy_from_slice(b"00000000001");
    header[148..156].copy_from_slice(b"        ");
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    header.to_vec()
}

fn tar(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut tar = [&header(name, bytes.len())[..], bytes].concat();
    tar.resize(tar.len().next_multiple_of(512) + 1024, 0);
    tar
}

fn lazily(folder: &Path) -> LazyTree {
    let recursion = Recursion { extensions: vec!["tar".to_owned()], ..Recursion::default() };
    let shape = Shape { recursion: Some(recursion), ..Options::default().shape };
    let options = Options {
        shape,
        index: IndexOptions { place: IndexPlace::Memory, ..IndexOptions::default() },
        decoding: DecodingOptions { threads: 1, ..DecodingOptions::default() },
        ..Options::default()
    };
    let how = Lazily { options, all: true, most_open: 2, mountpoint: None };
    LazyTree::new(Base::Folder(Arc::new(FolderTree::open(folder).unwrap())), how).unwrap()
}

/// What the file holds, or which kind of error it is.
fn read(source: &dyn Source) -> Result<Vec<u8>, io::ErrorKind> {
    let mut bytes = vec![0; source.len() as usize];
    source.read_exact_at(&mut bytes, 0).map(|()| bytes).map_err(|error| error.kind())
}

#[test]
fn an_archive_is_a_folder_that_its_file_describes() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("a.tar");
    fs::write(&path, tar("file", b"content")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let tree = lazily(place.path());
    let archive = tree.lookup(Node::ROOT, b"a.tar").unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((archive.kind, archive.size, archive.blocks, archive.links), (Kind::Folder, 0, 0, 1));
    // Who may read it may look into it.
    assert_eq!((archive.mode, archive.uid, archive.gid), (0o750, metadata.uid(), metadata.gid()));
    assert_eq!((archive.mtime.seconds, archive.ctime.seconds), (metadata.mtime(), metadata.ctime()));
    // To look into it is to read it.
    let now = tree.attributes(archive.node).unwrap();
    assert_eq!(Attributes { atime: archive.atime, ..now }, archive);
    assert_eq!(tree.parent(archive.node).unwrap(), Node::ROOT);
    let file = tree.lookup(archive.node, b"file").unwrap();
    assert_eq!((file.size, content(&tree, file.node).unwrap()), (7, b"content".to_vec()));
    assert_eq!(tree.parent(archive.node).unwrap(), Node::ROOT);
    assert_eq!(tree.owner_names(file.node).unwrap(), (Vec::new(), Vec::new()));
    assert!(tree.owner_names(archive.node).is_ok());
    // What is in it has a lane of its own, and another archive another one.
    fs::write(place.path().join("b.tar"), tar("file", b"other")).unwrap();
    let other = tree.lookup(Node::ROOT, b"b.tar").unwrap();
    assert_eq!(tree.lane(file.node), tree.lane(archive.node));
    assert_ne!(tree.lane(archive.node), tree.lane(other.node));
    assert_ne!(tree.lane(archive.node), tree.lane(Node::ROOT));
    // Whose name says so and whose bytes do not, is a file.
    fs::write(place.path().join("c.tar"), b"no archive").unwrap();
    assert_eq!(tree.lookup(Node::ROOT, b"c.tar").unwrap().kind, Kind::File);
    fs::write(place.path().join("empty.tar"), b"").unwrap();
    assert_eq!(tree.lookup(Node::ROOT, b"empty.tar").unwrap().kind, Kind::File);
    fs::write(place.path().join("d.zip"), tar("file", b"by another name")).unwrap();
    assert_eq!(tree.lookup(Node::ROOT, b"d.zip").unwrap().kind, Kind::File);
    let totals = tree.totals();
    assert!(totals.has_xattrs && totals.has_acls && !totals.is_immutable);
}

#[test]
fn what_is_read_of_an_archive_that_changed_is_an_error() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("a.tar");
    let new = || {
        fs::write(&path, tar("file", &[b'1'; 3000])).unwrap();
        let tree = lazily(place.path());
        let archive = tree.lookup(Node::ROOT, b"a.tar").unwrap();
        let file = tree.lookup(archive.node, b"file").unwrap();
        let source = tree.open(file.node).unwrap();
        assert_eq!(read(&*source), Ok(vec![b'1'; 3000]));
        source
    };
    // The clock of a file system goes in steps: changed again until its time says so.
    let changed = |change: &dyn Fn()| {
        let before = fs::metadata(&path).map(|found| (found.ctime(), found.ctime_nsec())).unwrap();
        loop {
            change();
            let now = fs::metadata(&path).map(|found| (found.ctime(), found.ctime_nsec())).unwrap();
            if now != before {
                return;
            }
        }
    };
    let overwrite = || {
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[b'2'; 3000], 512).unwrap();
        file
    };
    // Of its inode alone: the bytes are the same.
    let source = new();
    changed(&|| fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap());
    assert_eq!(read(&*source), Ok(vec![b'1'; 3000]));
    assert_eq!(read(&*source), Ok(vec![b'1'; 3000]));
    // Of its bytes, with the time that it had, and with another.
    let source = new();
    let times = fs::metadata(&path).unwrap().modified().unwrap();
    changed(&|| overwrite().set_modified(times).unwrap());
    assert_eq!(read(&*source), Err(io::ErrorKind::StaleNetworkFileHandle));
    let source = new();
    changed(&|| drop(overwrite()));
    assert_eq!(read(&*source), Err(io::ErrorKind::StaleNetworkFileHandle));
    // Of its length alone.
    let source = new();
    changed(&|| OpenOptions::new().write(true).open(&path).unwrap().set_len(90_000).unwrap());
    assert_eq!(read(&*source), Err(io::ErrorKind::StaleNetworkFileHandle));
    // What was deleted is still there for who reads it.
    let source = new();
    fs::remove_file(&path).unwrap();
    assert_eq!(read(&*source), Ok(vec![b'1'; 3000]));
}

#[test]
fn a_number_leads_to_its_file_and_never_through_a_link() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    fs::create_dir_all(path("shown/sub/inner")).unwrap();
    fs::create_dir(path("outside")).unwrap();
    fs::write(path("shown/sub/inner/file"), b"12345").unwrap();
    let tree = FolderTree::open(&path("shown")).unwrap();
    let sub = tree.lookup(Node::ROOT, b"sub").unwrap();
    let inner = tree.lookup(sub.node, b"inner").unwrap();
    let file = tree.lookup(inner.node, b"file").unwrap();
    assert_eq!(tree.path_below(file.node).unwrap(), Path::new("sub/inner/file"));
    assert_eq!(tree.parent(file.node).unwrap(), inner.node);
    // The folder on the way becomes a link to where it went.
    fs::rename(path("shown/sub"), path("outside/sub")).unwrap();
    symlink("../outside/sub", path("shown/sub")).unwrap();
    for node in [file.node, inner.node] {
        assert!(tree.attributes(node).is_err());
        assert!(tree.open(node).is_err());
    }
    assert!(tree.lookup(inner.node, b"file").is_err());
    assert!(tree.read_dir(inner.node, 0, &mut |_| true).is_err());
    fs::remove_file(path("shown/sub")).unwrap();
    fs::rename(path("outside/sub"), path("shown/sub")).unwrap();
    assert_eq!(tree.attributes(file.node).unwrap().size, 5);
    // Another file in its place has another number, and the old one leads nowhere.
    fs::rename(path("shown/sub/inner/file"), path("outside/file")).unwrap();
    fs::write(path("shown/sub/inner/file"), b"other").unwrap();
    assert!(tree.attributes(file.node).is_err());
    let other = tree.lookup(inner.node, b"file").unwrap();
    assert_ne!(other.node, file.node);
    // What all have forgotten has no place any more.
    tree.forget(other.node, 1);
    assert!(tree.path_below(other.node).is_none());
    assert!(tree.path_below(inner.node).is_some());
    tree.forget(inner.node, 1);
    let seen_again = tree.lookup(sub.node, b"inner").unwrap();
    assert!(tree.path_below(seen_again.node).is_some());
    assert!(matches!(tree.lookup(seen_again.node, b"none"), Err(Error::NotFound)));
    let totals = tree.totals();
    let system = rustix::fs::statvfs(place.path()).unwrap();
    assert_eq!(
        (totals.nodes == 0, totals.bytes == 0),
        (system.f_files == system.f_ffree, system.f_blocks == system.f_bfree)
    );
}

#[test]
fn a_union_shows_what_is_new_after_a_while() {
    let places = [(); 2].map(|()| tempfile::tempdir().unwrap());
    for (place, name) in places.iter().zip(["a", "b"]) {
        fs::write(place.path().join(name), name).unwrap();
    }
    let trees = places.each_ref().map(|place| Arc::new(FolderTree::open(place.path()).unwrap()) as Arc<dyn Tree>);
    let tree = UnionTree::new(trees.to_vec()).unwrap();
    let names = || {
        let mut names = Vec::new();
        tree.read_dir(Node::ROOT, 0, &mut |child| {
            names.push(String::from_utf8_lossy(child.name).into_owned());
            true
        })
        .unwrap();
        names.sort();
        names
    };
    assert_eq!(names(), ["a", "b"]);
    fs::write(places[0].path().join("c"), "c").unwrap();
    fs::remove_file(places[1].path().join("b")).unwrap();
    let start = Instant::now();
    while names() != ["a", "c"] {
        assert!(start.elapsed() < Duration::from_secs(120), "{:?}", names());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn hashes_are_the_same_however_the_bytes_come() {
    use std::io::Write;
    let large: Vec<u8> = (0..1_000_003_u32).map(|n| (n % 251) as u8).collect();
    let mut archive = [header("large", large.len()), large.clone()].concat();
    archive.resize(archive.len().next_multiple_of(512), 0);
    archive.extend(tar("small", b"abc"));
    let mut packed = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    packed.write_all(&archive).unwrap();
    let packed = packed.finish().unwrap();
    let mut expected = None;
    for (bytes, threads) in [(&archive, 1), (&archive, 4), (&packed, 1), (&packed, 4)] {
        let hashes = vec!["sha256".to_owned(), "crc32".to_owned()];
        let shape = Shape { hashes, ..common::options().shape };
        let options =
            Options { shape, decoding: DecodingOptions { threads, ..common::options().decoding }, ..common::options() };
        let opened = common::open(common::memory("archive", bytes), &options).unwrap();
        let tree = &*opened.tree;
        let of = |name: &[u8]| tree.xattrs(tree.lookup(Node::ROOT, name).unwrap().node).unwrap();
        assert_eq!(
            of(b"small"),
            [
                (b"user.hash.crc32".to_vec(), b"352441c2".to_vec()),
                (
                    b"user.hash.sha256".to_vec(),
                    b"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".to_vec()
                )
            ]
        );
        let found = of(b"large");
        let crc = format!("{:08x}", crc32fast::hash(&large)).into_bytes();
        assert_eq!(found[0], (b"user.hash.crc32".to_vec(), crc));
        assert_eq!(expected.get_or_insert_with(|| found.clone()), &found, "{threads}");
    }
}
