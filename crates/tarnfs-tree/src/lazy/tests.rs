use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

use tarnfs_index::{Recursion, Shape};
use tarnfs_source::MemorySource;
use tarnfs_source::testing::{Fault, FaultySource, When};

use super::archives::{MOST_LONG_AT_ALL, MOST_OPENING};
use super::*;
use crate::FolderTree;
use crate::Lifetime;
use crate::Waiting as _;
use crate::build::HEAD;
use crate::open::{DecodingOptions, IndexOptions};
use crate::toy::Toy;

mod failed;
mod names;
mod parts;
mod unnoticed;
mod unverified;

/// A tar of one file.
fn tar(name: &str, content: &[u8]) -> Vec<u8> {
    let mut header = [0_u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..107].copy_from_slice(b"0000644");
    header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    header[136..147].copy_from_slice(b"00000000001");
    header[148..156].copy_from_slice(b"        ");
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let mut tar = header.to_vec();
    tar.extend_from_slice(content);
    tar.resize(tar.len().next_multiple_of(512) + 1024, 0);
    tar
}

/// A gzip file, with its bytes as they are.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = b"\x1f\x8b\x08\0\0\0\0\0\0\xff".to_vec();
    let mut blocks = bytes.chunks(60_000).peekable();
    while let Some(block) = blocks.next() {
        out.push(u8::from(blocks.peek().is_none()));
        out.extend_from_slice(&(block.len() as u16).to_le_bytes());
        out.extend_from_slice(&(!(block.len() as u16)).to_le_bytes());
        out.extend_from_slice(block);
    }
    out.extend_from_slice(&crc32fast::hash(bytes).to_le_bytes());
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out
}

fn how(depth: Option<u32>) -> Lazily {
    let extensions = crate::DEFAULT_EXTENSIONS.map(str::to_owned).into();
    let recursion = Recursion { depth, extensions, ..Recursion::default() };
    let options = Options {
        shape: Shape { recursion: Some(recursion), ..Options::default().shape },
        index: IndexOptions { place: IndexPlace::Memory, ..IndexOptions::default() },
        decoding: DecodingOptions { threads: 1, ..DecodingOptions::default() },
        ..Options::default()
    };
    Lazily { options, all: true, most_open: 2, mountpoint: None }
}

/// An archive that lies in a file of the root.
fn archive_of(node: u64, version: Version) -> File {
    let (folder, name) = (Node::ROOT, b"a.tar".to_vec());
    File { node: Node(node), folder, version, set: None, readers: None, name, depth: 0, within: 0 }
}

fn read(tree: &LazyTree, node: Node) -> Vec<u8> {
    let source = tree.open(node).unwrap();
    let mut bytes = vec![0; source.len() as usize];
    source.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// An index in a file is found again by the path of its archive, and what lies in another archive has none.
#[test]
fn only_files_have_indexes_in_files() {
    let archive = tar("file", b"content");
    for is_file in [true, false] {
        let [place, folder] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let mut how = how(None);
        how.options.index.place = IndexPlace::Folders(vec![place.path().to_owned()]);
        (how.options.index.is_written, how.options.index.minimum_file_count) = (true, 0);
        let base = if is_file {
            std::fs::write(folder.path().join("a.tar"), &archive).unwrap();
            Base::Folder(Arc::new(FolderTree::open(folder.path()).unwrap()))
        } else {
            Base::Other(Arc::new(Toy::with_contents([("a.tar", archive.clone())])) as _)
        };
        let tree = LazyTree::new(base, how).unwrap();
        let root = tree.lookup(Node::ROOT, b"a.tar").unwrap().node;
        assert_eq!(read(&tree, tree.lookup(root, b"file").unwrap().node), b"content");
        assert_eq!(place.path().read_dir().unwrap().count(), usize::from(is_file));
    }
}

#[test]
fn an_archive_that_changes_again_and_again_takes_no_numbers() {
    let contents: Arc<Mutex<Vec<u8>>> = Arc::new(Mutex::new(tar("file", b"0")));
    let shared = Arc::clone(&contents);
    let file = crate::toy::File { name: b"a.tar".to_vec(), position: 1, size: 2048, ..crate::toy::File::default() };
    let open = move |_: &[u8]| {
        let bytes = shared.lock().unwrap().clone();
        Ok(Arc::new(MemorySource::new(bytes, "a.tar")) as SharedSource)
    };
    let toy = Arc::new(Toy::new(vec![file], Box::new(open)));
    let tree = LazyTree::new(Base::Other(Arc::clone(&toy) as _), how(None)).unwrap();
    for round in 0..50 {
        let content = format!("{}", round % 10);
        *contents.lock().unwrap() = tar("file", content.as_bytes());
        toy.change(|files| files[0].changed = round);
        let archive = tree.lookup(Node::ROOT, b"a.tar").unwrap();
        assert_eq!(archive.kind, Kind::Folder);
        let again = tree.lookup(Node::ROOT, b"a.tar").unwrap();
        assert_eq!(archive.node, again.node, "the same as long as it does not change");
        let file = tree.lookup(archive.node, b"file").unwrap();
        assert_eq!(read(&tree, file.node), content.as_bytes());
        tree.forget(file.node, 1);
        tree.forget(archive.node, 2);
        assert_eq!(tree.archives().count(), 1, "only the one that is open");
    }
    assert_eq!(toy.held(), 1);
    tree.with(|archives, released| archives.close_others(0, released));
    assert_eq!((toy.held(), tree.archives().count()), (0, 0));
}

/// A look-up of a file looks whether its archive is beside it. Numbers that nobody gets to know need not rest.
#[test]
fn a_number_that_was_given_to_nobody_is_used_again_at_once() {
    let names = ["a.tar", "b.tar"].map(|name| (name, tar("file", b"content")));
    let toy = Arc::new(Toy::with_contents(names));
    let mut how = how(None);
    how.options.shape.recursion.as_mut().unwrap().strip_extension = true;
    let tree = LazyTree::new(Base::Other(Arc::clone(&toy) as _), how).unwrap();
    let look_up = |name: &[u8]| {
        let found = tree.lookup(Node::ROOT, name).unwrap();
        tree.forget(found.node, 1);
        found.kind
    };
    for _ in 0..20 {
        assert_eq!((look_up(b"a.tar"), look_up(b"b.tar")), (Kind::File, Kind::File));
    }
    assert!(tree.archives().numbers() <= 2, "{}", tree.archives().numbers());
    for _ in 0..20 {
        assert_eq!((look_up(b"a"), look_up(b"b.tar")), (Kind::Folder, Kind::File));
    }
    assert!(tree.archives().numbers() >= 20, "those that were given rest");
    assert_eq!((toy.held(), tree.archives().count()), (0, 0));
}

/// `lseek(2)` refuses what is negative.
#[test]
fn a_listing_goes_on_at_each_position_and_none_is_negative() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..300 {
        std::fs::write(folder.path().join(format!("{number}.tar")), tar("file", b"content")).unwrap();
        std::fs::write(folder.path().join(format!("{number}.txt")), "text").unwrap();
    }
    let mut how = how(None);
    how.options.shape.recursion.as_mut().unwrap().strip_extension = true;
    let base = Arc::new(FolderTree::open(folder.path()).unwrap());
    let tree = LazyTree::new(Base::Folder(base), how).unwrap();
    let list = |from: u64, most: usize| {
        let mut listed = Vec::new();
        let read = tree.read_dir(Node::ROOT, from, &mut |child| {
            if listed.len() < most {
                listed.push((child.name.to_vec(), child.next));
                return true;
            }
            false
        });
        read.unwrap();
        listed
    };
    let names = |listed: &[(Vec<u8>, u64)]| listed.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let all = list(0, usize::MAX);
    assert_eq!(all.len(), 900);
    for (place, (name, next)) in all.iter().enumerate() {
        assert!(*next < 1 << 63, "{name:?}");
        let rest = names(&all[place + 1..]);
        assert_eq!(names(&list(*next, 5)), rest[..rest.len().min(5)]);
    }
}

#[test]
fn what_is_held_stays_what_it_was_and_then_is_stale() {
    let toy = Arc::new(Toy::with_contents([("a.tar", tar("file", b"content"))]));
    let tree = LazyTree::new(Base::Other(Arc::clone(&toy) as _), how(None)).unwrap();
    let before = tree.lookup(Node::ROOT, b"a.tar").unwrap();
    let file = tree.lookup(before.node, b"file").unwrap();
    toy.change(|files| files[0].changed = 7);
    let after = tree.lookup(Node::ROOT, b"a.tar").unwrap();
    assert_ne!(after.node, before.node);
    assert_eq!(read(&tree, file.node), b"content");
    tree.forget(file.node, 1);
    tree.forget(before.node, 1);
    let stale = tree.lookup(before.node, b"file").unwrap_err();
    assert_eq!(stale.errno(), rustix::io::Errno::STALE);
    assert_eq!(tree.attributes(before.node).unwrap_err().errno(), rustix::io::Errno::STALE);
    assert_eq!(tree.parent(after.node).unwrap(), Node::ROOT);
}

/// The root of each archive in the next, from the outermost on.
fn descend(tree: &LazyTree, name: &[u8]) -> (u32, Attributes) {
    let (mut at, mut depth) = (Node::ROOT, 0);
    loop {
        let found = tree.lookup(at, name).unwrap();
        if found.kind != Kind::Folder {
            return (depth, found);
        }
        (at, depth) = (found.node, depth + 1);
    }
}

#[test]
fn archives_in_archives_are_opened_down_to_a_limit() {
    let mut bytes = b"no archive".to_vec();
    for _ in 0..120 {
        bytes = tar("x.tar", &bytes);
    }
    let expected = bytes.clone();
    let toy = Arc::new(Toy::with_contents([("x.tar", bytes)]));
    for (limit, depth) in [(None, DEEPEST), (Some(3), 3), (Some(1000), DEEPEST)] {
        let tree = LazyTree::new(Base::Other(Arc::clone(&toy) as _), how(limit)).unwrap();
        // A stack as those of threads that answer have.
        let found = std::thread::scope(|scope| {
            let work = || {
                let (found, file) = descend(&tree, b"x.tar");
                assert!(expected.windows(512).step_by(512).any(|block| block == &read(&tree, file.node)[..512]));
                assert_eq!(file.kind, Kind::File);
                found
            };
            std::thread::Builder::new().stack_size(2 << 20).spawn_scoped(scope, work).unwrap().join().unwrap()
        });
        assert_eq!(found, depth, "{limit:?}");
        // Again, from the outermost on, now that nearly all have been closed.
        assert_eq!(descend(&tree, b"x.tar").0, depth);
    }
}

#[test]
fn layers_of_compression_around_archives_are_counted() {
    let mut bytes = b"no archive".to_vec();
    for _ in 0..40 {
        bytes = gzip(&tar("x.tgz", &bytes));
    }
    let toy = Arc::new(Toy::with_contents([("x.tgz", bytes)]));
    let tree = LazyTree::new(Base::Other(toy as _), how(None)).unwrap();
    std::thread::scope(|scope| {
        let work = || {
            let (depth, file) = descend(&tree, b"x.tgz");
            assert_eq!((depth, read(&tree, file.node)), (40, b"no archive".to_vec()));
        };
        std::thread::Builder::new().stack_size(2 << 20).spawn_scoped(scope, work).unwrap().join().unwrap();
    });
    assert!(tree.in_memory.load(Ordering::Relaxed) > 0, "some were read into memory");
    tree.with(|archives, released| archives.close_others(0, released));
    assert_eq!(tree.in_memory.load(Ordering::Relaxed), 0);
}

/// Too few descriptors for a moment do not make a file of an archive.
#[test]
fn want_of_descriptors_is_not_remembered() {
    let fails = Arc::new(AtomicBool::new(true));
    let shared = Arc::clone(&fails);
    let bytes = tar("file", b"content");
    let file = crate::toy::File {
        name: b"a.tar".to_vec(),
        position: 1,
        size: bytes.len() as u64,
        ..crate::toy::File::default()
    };
    let open = move |_: &[u8]| {
        if shared.load(Ordering::SeqCst) {
            return Err(rustix::io::Errno::MFILE.into());
        }
        Ok(Arc::new(MemorySource::new(bytes.clone(), "a.tar")) as SharedSource)
    };
    let toy = Arc::new(Toy::new(vec![file], Box::new(open)));
    let tree = LazyTree::new(Base::Other(Arc::clone(&toy) as _), how(None)).unwrap();
    assert_eq!(tree.lookup(Node::ROOT, b"a.tar").unwrap_err().errno(), rustix::io::Errno::MFILE);
    assert!(tree.read_dir(Node::ROOT, 0, &mut |_| true).is_err());
    assert_eq!(toy.held(), 0);
    fails.store(false, Ordering::SeqCst);
    let archive = tree.lookup(Node::ROOT, b"a.tar").unwrap();
    assert_eq!(archive.kind, Kind::Folder);
    fails.store(true, Ordering::SeqCst);
    assert_eq!(tree.lookup(archive.node, b"file").unwrap_err().errno(), rustix::io::Errno::MFILE);
    fails.store(false, Ordering::SeqCst);
    let file = tree.lookup(archive.node, b"file").unwrap();
    assert_eq!(read(&tree, file.node), b"content");
}

/// A file that somebody has a lease on is a file for as long, and its folder is listed.
#[test]
fn a_lease_on_an_archive_is_waited_for_by_nobody() {
    what_cannot_be_looked_at_is_a_file_for_now(Errno::AGAIN);
}

/// So is one that takes more memory than there is, as a sparse file with a large map may.
#[test]
fn want_of_memory_for_one_archive_does_no_harm_to_its_folder() {
    what_cannot_be_looked_at_is_a_file_for_now(Errno::NOMEM);
}

/// And one that could not be read once, whatever the reason: the disk, or a server.
#[test]
fn an_error_while_an_archive_is_looked_at_is_not_remembered() {
    what_cannot_be_looked_at_is_a_file_for_now(Errno::IO);
    what_cannot_be_looked_at_is_a_file_for_now(Errno::TIMEDOUT);
}

fn what_cannot_be_looked_at_is_a_file_for_now(errno: Errno) {
    for is_opened in [false, true] {
        what_fails_is_a_file_for_now(errno, is_opened);
    }
}

fn what_fails_is_a_file_for_now(errno: Errno, is_opened: bool) {
    let is_leased = Arc::new(AtomicBool::new(true));
    let (shared, bytes) = (Arc::clone(&is_leased), tar("file", b"content"));
    let file = |name: &[u8], position| crate::toy::File {
        name: name.to_vec(),
        position,
        size: bytes.len() as u64,
        ..crate::toy::File::default()
    };
    let files = vec![file(b"a.tar", 1), file(b"b.tar", 2)];
    let open = move |name: &[u8]| {
        let whole = Arc::new(MemorySource::new(bytes.clone(), "a.tar"));
        match name == b"a.tar" && shared.load(Ordering::SeqCst) {
            true if is_opened => {
                Ok(Arc::new(FaultySource::new(whole, Fault::Error(errno.raw_os_error()), When::From(1)))
                    as SharedSource)
            }
            true => Err(errno.into()),
            false => Ok(whole as SharedSource),
        }
    };
    let toy = Arc::new(Toy::new(files, Box::new(open)));
    let tree = LazyTree::new(Base::Other(Arc::clone(&toy) as _), how(None)).unwrap();
    let other = tree.lookup(Node::ROOT, b"b.tar").unwrap();
    tree.lookup(other.node, b"file").unwrap();
    for expected in [Kind::File, Kind::Folder] {
        let mut kinds = Vec::new();
        let listed = tree.read_dir(Node::ROOT, 0, &mut |child| {
            kinds.push(child.attributes.kind);
            true
        });
        listed.unwrap();
        assert_eq!(kinds, [expected, Kind::Folder]);
        assert_eq!(tree.lookup(Node::ROOT, b"a.tar").unwrap().kind, expected);
        if errno != Errno::NOMEM {
            assert_eq!(tree.archives().trees().len(), 1, "what is open stays open");
        }
        is_leased.store(false, Ordering::SeqCst);
    }
}

/// Where those before have taken all memory for archives that lie deep, one is opened as soon as they are closed.
#[test]
fn want_of_memory_is_not_remembered() {
    let mut bytes = b"no archive".to_vec();
    for _ in 0..20 {
        bytes = gzip(&tar("x.tgz", &bytes));
    }
    let toy = Arc::new(Toy::with_contents([("x.tgz", bytes)]));
    let tree = LazyTree::new(Base::Other(toy as _), how(None)).unwrap();
    tree.in_memory.store(MOST_IN_MEMORY as usize, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let work = || {
            let mut at = Node::ROOT;
            let refused = loop {
                match tree.lookup(at, b"x.tgz") {
                    Ok(found) => at = found.node,
                    Err(error) => break error,
                }
            };
            assert_eq!(refused.errno(), rustix::io::Errno::NOMEM);
            tree.in_memory.store(0, Ordering::Relaxed);
            let (depth, file) = descend(&tree, b"x.tgz");
            assert_eq!((depth, read(&tree, file.node)), (20, b"no archive".to_vec()));
        };
        std::thread::Builder::new().stack_size(2 << 20).spawn_scoped(scope, work).unwrap().join().unwrap();
    });
}

#[test]
fn a_listing_that_fails_holds_nothing() {
    let toy = Arc::new(Toy::with_contents((0..300).map(|number| (format!("{number:03}"), b"content".to_vec()))));
    let tree = LazyTree::new(Base::Other(Arc::clone(&toy) as _), how(None)).unwrap();
    for breaks_behind in [1, 100, 200] {
        toy.breaks_behind.store(breaks_behind, Ordering::SeqCst);
        let mut given = Vec::new();
        let listed = tree.read_dir(Node::ROOT, 0, &mut |child| {
            given.push(child.attributes.node);
            true
        });
        assert!(listed.is_err());
        assert_eq!(toy.held(), given.len());
        for node in given {
            tree.forget(node, 1);
        }
        assert_eq!(toy.held(), 0, "{breaks_behind}");
    }
}

/// Archives on a server that is gone do not keep others from being opened.
#[test]
fn what_does_not_get_on_does_not_hold_up_others() {
    let bytes = tar("file", b"content");
    let file = |number: u64| crate::toy::File {
        name: format!("{number}.tar").into_bytes(),
        position: number,
        size: bytes.len() as u64,
        ..crate::toy::File::default()
    };
    let is_gone = Arc::new(AtomicBool::new(false));
    let (answer, answered) = std::sync::mpsc::channel::<()>();
    let (answered, content, shared) = (Mutex::new(answered), bytes.clone(), Arc::clone(&is_gone));
    let open = move |name: &[u8]| {
        if name < b"5" && shared.load(Ordering::SeqCst) {
            let _ = answered.lock().unwrap().recv();
        }
        Ok(Arc::new(MemorySource::new(content.clone(), "x")) as SharedSource)
    };
    let toy = Arc::new(Toy::new((1..=9).map(file).collect(), Box::new(open)));
    let tree = LazyTree::new(Base::Other(toy as _), how(None)).unwrap();
    let tree = LazyTree { patience: Duration::from_millis(20), ..tree };
    let root = |number| tree.lookup(Node::ROOT, format!("{number}.tar").as_bytes()).unwrap().node;
    let roots: Vec<Node> = (1..=9).map(root).collect();
    is_gone.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let (tree, roots) = (&tree, &roots);
        for &root in &roots[..4] {
            scope.spawn(move || tree.lookup(root, b"file").unwrap());
        }
        let (done, others) = std::sync::mpsc::channel();
        scope.spawn(move || {
            for &root in &roots[4..] {
                tree.lookup(root, b"file").unwrap();
            }
            done.send(()).unwrap();
        });
        let opened = others.recv_timeout(Duration::from_secs(120));
        drop(answer);
        assert_eq!(opened, Ok(()));
    });
}

/// Some that are huge, and get on all the time, do not keep others from being opened.
#[test]
fn what_takes_long_does_not_hold_up_others() {
    let mut archives = Archives::new(Ranges { limit: 100 });
    let mut released = Released::default();
    let mut begin = |archives: &mut Archives, position: u64| {
        let version = Version::of(&Toy::with_positions([1]).attributes(Node(2)).unwrap());
        let number = archives.met(archive_of(position, version), false, &mut released).unwrap();
        archives.begin(number)
    };
    let mut all = vec![begin(&mut archives, 2), begin(&mut archives, 3)];
    assert!(!archives.may_begin(Duration::MAX));
    let since = std::time::Instant::now();
    // All that may be opened, each as soon as it may.
    while all.len() < 64 {
        assert!(since.elapsed() < Duration::from_secs(120), "{}", all.len());
        for steps in &all {
            steps.reads.fetch_add(1, Ordering::Relaxed);
        }
        if archives.may_begin(Duration::from_millis(5)) {
            all.push(begin(&mut archives, all.len() as u64 + 2));
        }
        std::thread::yield_now();
    }
    assert!(!archives.may_begin(Duration::ZERO));
}

/// What a first pass decodes with may take a lot of memory, however small the archive is.
#[test]
fn what_takes_long_and_memory_is_not_at_work_in_any_number() {
    let mut archives = Archives::new(Ranges { limit: 100 });
    let mut released = Released::default();
    let mut begin = |archives: &mut Archives, position: u64| {
        let version = Version::of(&Toy::with_positions([1]).attributes(Node(2)).unwrap());
        let number = archives.met(archive_of(position, version), false, &mut released).unwrap();
        (number, archives.begin(number))
    };
    // Nothing gets on, at any time.
    let patience = Duration::ZERO;
    let mut all = Vec::new();
    // A few that take long do not keep all others closed.
    for decoding in 0..MOST_LONG_AT_ALL {
        assert!(archives.may_begin(patience), "{decoding}");
        assert!(decoding <= MOST_OPENING || !archives.may_begin(Duration::MAX), "only where all take long");
        all.push(begin(&mut archives, decoding as u64 + 2));
        all.last().unwrap().1.progress.bytes.fetch_add(1, Ordering::Relaxed);
    }
    assert!(!archives.may_begin(patience));
    const { assert!(MOST_LONG_AT_ALL > MOST_OPENING + 2) };
    // One that waits for its file takes nothing. When the file answers at last, it waits for its turn.
    archives.end(all[0].0, Outcome::NotNow, &mut Released::default());
    let (late, _) = begin(&mut archives, 90);
    let (next, _) = begin(&mut archives, 91);
    assert!(archives.may_go_on(late, patience));
    all.push(begin(&mut archives, 92));
    all.last().unwrap().1.progress.entries.fetch_add(1, Ordering::Relaxed);
    assert!(!archives.may_go_on(next, patience) && !archives.may_begin(patience));
    archives.end(all[1].0, Outcome::NotNow, &mut Released::default());
    assert!(archives.may_go_on(next, patience));
    // Those that wait for their turn keep nobody from getting it.
    let patience = Duration::MAX;
    for (number, _) in &all {
        archives.end(*number, Outcome::NotNow, &mut Released::default());
    }
    assert!(!archives.may_begin(patience), "two get on");
    let (third, _) = begin(&mut archives, 93);
    assert!(!archives.may_go_on(third, patience) && !archives.may_go_on(third, patience));
    archives.end(late, Outcome::NotNow, &mut Released::default());
    assert!(archives.may_begin(patience) && archives.may_go_on(third, patience) && !archives.may_begin(patience));
}

/// However many archives are waited for, they are in few lanes; and one that is open is in none of these.
#[test]
fn archives_that_are_not_open_share_lanes() {
    let bytes = tar("file", b"content");
    let names = (0..200).map(|number| (format!("{number}.tar"), bytes.clone()));
    let tree = LazyTree::new(Base::Other(Arc::new(Toy::with_contents(names))), how(None)).unwrap();
    let root = |number: u32| tree.lookup(Node::ROOT, format!("{number}.tar").as_bytes()).unwrap().node;
    let roots: Vec<Node> = (0..200).map(root).collect();
    let lanes = || roots.iter().map(|&root| tree.lane(root)).collect::<Vec<u64>>();
    let closed = lanes();
    let few: std::collections::HashSet<u64> = closed.iter().copied().collect();
    assert_eq!(few.len() as u64, LANES);
    for &root in &roots[..2] {
        tree.lookup(root, b"file").unwrap();
    }
    let now = lanes();
    assert!(now[0] != now[1] && !few.contains(&now[0]) && !few.contains(&now[1]));
    assert_eq!(now[2..], closed[2..]);
}

/// Counts who reads it.
#[derive(Debug)]
struct Counted(MemorySource, Arc<(AtomicUsize, AtomicUsize)>);

impl Source for Counted {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let now = self.1.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.1.1.fetch_max(now, Ordering::SeqCst);
        std::thread::yield_now();
        let read = self.0.read_at(buffer, offset);
        self.1.0.fetch_sub(1, Ordering::SeqCst);
        read
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn describe(&self) -> String {
        "counted".to_owned()
    }
}

/// However many look into archives at once, few are opened at a time, and each once.
#[test]
fn few_archives_are_opened_at_a_time() {
    let opened: Arc<Mutex<HashMap<Vec<u8>, usize>>> = Arc::default();
    let at_once = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));

    let bytes = tar("file", b"content");
    let file = |number: u64| crate::toy::File {
        name: format!("{number}.tar").into_bytes(),
        position: number,
        size: bytes.len() as u64,
        ..crate::toy::File::default()
    };
    let (counts, times, content) = (Arc::clone(&at_once), Arc::clone(&opened), bytes.clone());
    let open = move |name: &[u8]| {
        *times.lock().unwrap().entry(name.to_vec()).or_default() += 1;
        Ok(Arc::new(Counted(MemorySource::new(content.clone(), "x"), Arc::clone(&counts))) as SharedSource)
    };
    let toy = Arc::new(Toy::new((1..=8).map(file).collect(), Box::new(open)));
    let tree = LazyTree::new(Base::Other(toy as _), Lazily { most_open: 100, ..how(None) }).unwrap();
    let roots: Vec<Node> =
        (1..=8).map(|number| tree.lookup(Node::ROOT, format!("{number}.tar").as_bytes()).unwrap().node).collect();
    opened.lock().unwrap().clear();
    at_once.1.store(0, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            for &root in &roots {
                let tree = &tree;
                scope.spawn(move || tree.lookup(root, b"file").unwrap());
            }
        }
    });
    assert!(at_once.1.load(Ordering::SeqCst) <= MOST_OPENING);
    assert!(opened.lock().unwrap().values().all(|times| *times == 1), "{:?}", opened.lock().unwrap());
    // Whoever answers the kernel is never sent into one that could be closed.
    assert!(roots.iter().all(|&root| !tree.is_ready(root)));
    assert_ne!(tree.lane(roots[0]), tree.lane(roots[1]));
}

/// An archive is opened again with another index, which numbers its files otherwise. What was given out before leads to
/// no other file.
#[test]
fn an_index_that_numbers_otherwise_makes_other_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    // In another order than that of their names.
    let tars = [tar("z", b"in z"), tar("m", b"in m"), tar("a", b"in a")];
    let mut bytes: Vec<u8> = tars.iter().flat_map(|tar| tar[..1024].to_vec()).collect();
    bytes.extend_from_slice(&[0; 1024]);
    std::fs::write(path("first.tar"), bytes).unwrap();
    std::fs::write(path("other.tar"), tar("file", b"content")).unwrap();
    let alone = Options { shape: Shape { recursion: None, ..how(None).options.shape }, ..how(None).options };
    let own = crate::open::open(&path("first.tar"), &alone).unwrap();
    let sidecar = path("first.tar.index.sqlite");
    tarnfs_index::ratarmount::write(&own.index, &path("first.tar"), &sidecar).unwrap();
    let base = Base::Folder(Arc::new(FolderTree::open(folder.path()).unwrap()));
    let options = Options {
        index: IndexOptions { place: IndexPlace::Folders(vec![PathBuf::new()]), ..how(None).options.index },
        ..how(None).options
    };
    let tree = LazyTree::new(base, Lazily { most_open: 1, options, ..how(None) }).unwrap();
    let names = ["z", "m", "a"];
    let archive = || tree.lookup(Node::ROOT, b"first.tar").unwrap().node;
    let nodes = |archive: Node| names.map(|name| tree.lookup(archive, name.as_bytes()).unwrap().node);
    let close = || {
        let other = tree.lookup(Node::ROOT, b"other.tar").unwrap().node;
        tree.lookup(other, b"file").unwrap();
    };
    let before = archive();
    let held = nodes(before);
    let right = |held: [Node; 3]| {
        held.iter().zip(names).all(|(&node, name)| read(&tree, node) == format!("in {name}").as_bytes())
    };
    assert!(right(held));
    close();
    assert!(right(held), "opened again with the same");
    close();
    std::fs::remove_file(&sidecar).unwrap();
    for node in held {
        assert_eq!(tree.open(node).unwrap_err().errno(), rustix::io::Errno::STALE);
    }
    assert_eq!(tree.lookup(before, b"z").unwrap_err().errno(), rustix::io::Errno::STALE);
    let after = archive();
    assert_ne!(after, before);
    assert!(right(nodes(after)));
    close();
    assert!(right(nodes(after)), "it is numbered as before");
}

/// A file in an archive that is damaged.
#[derive(Debug)]
struct Damaged(MemorySource, std::ops::Range<u64>);

impl Source for Damaged {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if offset < self.1.end && self.1.start < offset + buffer.len() as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "damaged, as tested"));
        }
        self.0.read_at(buffer, offset)
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn describe(&self) -> String {
        "damaged".to_owned()
    }
}

/// An archive of which all but the start is damaged, and which says that it is as long as one can be.
#[derive(Debug)]
struct Endless {
    start: Vec<u8>,
    failed: Arc<AtomicUsize>,
}

impl Source for Endless {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if let Some(start) = usize::try_from(offset).ok().and_then(|from| self.start.get(from..from + buffer.len())) {
            buffer.copy_from_slice(start);
            return Ok(buffer.len());
        }
        if self.failed.fetch_add(1, Ordering::SeqCst) > 1 << 20 {
            return Err(io::Error::other("it would be searched for ever"));
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "damaged, as tested"))
    }

    fn len(&self) -> u64 {
        1 << 40
    }

    fn describe(&self) -> String {
        "endless".to_owned()
    }
}

/// It is not searched from end to end, block by block; what lies before the damage shows.
#[test]
fn damage_without_an_end_is_not_searched_without_an_end() {
    // More than is looked at to say what it is.
    let content = [b'c'; HEAD];
    let start = tar("file", &content)[..512 + HEAD].to_vec();
    let failed = Arc::new(AtomicUsize::new(0));
    let shared = Arc::clone(&failed);
    let open =
        move |_: &[u8]| Ok(Arc::new(Endless { start: start.clone(), failed: Arc::clone(&shared) }) as SharedSource);
    let file = crate::toy::File { name: b"a.tar".to_vec(), position: 1, size: 1 << 40, ..Default::default() };
    let tree = LazyTree::new(Base::Other(Arc::new(Toy::new(vec![file], Box::new(open)))), how(None)).unwrap();
    let archive = tree.lookup(Node::ROOT, b"a.tar").unwrap();
    assert_eq!(archive.kind, Kind::Folder);
    assert_eq!(read(&tree, tree.lookup(archive.node, b"file").unwrap().node), content);
    assert!(failed.load(Ordering::SeqCst) > 1000, "it was searched for a while");
}

/// What can be read of an archive in a damaged or cut one is shown, and the rest is an error: never other bytes.
#[test]
fn what_is_legible_of_an_archive_is_shown() {
    let content = |number: usize| vec![b'0' + number as u8; 3000];
    let names = ["0", "1", "2", "3"];
    let member = |number: usize| tar(names[number], &content(number))[..512 + 3072].to_vec();
    let mut bytes: Vec<u8> = (0..4).flat_map(member).collect();
    bytes.resize(bytes.len() + 1024, 0);
    let start = |number: u64| number * 3584;
    let cases: [(Range, &[&str], &[&str]); 6] = [
        // In a body, in a header, in both, in all but the last.
        (start(1) + 700..start(1) + 701, &names, &["0", "2", "3"]),
        (start(2) + 3..start(2) + 4, &["0", "1", "3"], &["0", "1", "3"]),
        (start(1) + 600..start(2) + 4, &["0", "1", "3"], &["0", "3"]),
        (start(1) + 600..start(3), &["0", "1", "3"], &["0", "3"]),
        // Cut.
        (start(2) + 1000..u64::MAX, &["0", "1", "2"], &["0", "1"]),
        (0..u64::MAX, &[], &[]),
    ];
    for (damaged, shown, whole) in cases {
        let (length, content_of_it) = (bytes.len() as u64, bytes.clone());
        let range = damaged.clone();
        let open = move |_: &[u8]| -> io::Result<SharedSource> {
            let cut = content_of_it[..content_of_it.len().min(range.start as usize)].to_vec();
            Ok(match range.end {
                u64::MAX => {
                    let cut = Arc::new(MemorySource::new(cut, "cut"));
                    Arc::new(tarnfs_source::Slice::new(cut, 0, length))
                }
                _ => Arc::new(Damaged(MemorySource::new(content_of_it.clone(), "whole"), range.clone())),
            })
        };
        let file = crate::toy::File { name: b"a.tar".to_vec(), position: 1, size: length, ..Default::default() };
        let tree = LazyTree::new(Base::Other(Arc::new(Toy::new(vec![file], Box::new(open)))), how(None)).unwrap();
        let archive = tree.lookup(Node::ROOT, b"a.tar").unwrap();
        if shown.is_empty() {
            assert_eq!(archive.kind, Kind::File);
            continue;
        }
        let mut found = Vec::new();
        tree.read_dir(archive.node, 0, &mut |child| {
            found.push(String::from_utf8(child.name.to_vec()).unwrap());
            true
        })
        .unwrap();
        assert_eq!(found, shown, "{damaged:?}");
        for (number, name) in names.iter().enumerate().filter(|(_, name)| shown.contains(name)) {
            let node = tree.lookup(archive.node, name.as_bytes()).unwrap().node;
            let mut bytes = vec![0; 3000];
            let read = tree.open(node).and_then(|source| Ok(source.read_exact_at(&mut bytes, 0)?));
            assert_eq!(read.is_ok(), whole.contains(name), "{damaged:?}: {name}");
            assert!(read.is_err() || bytes == content(number));
        }
    }
}

type Range = std::ops::Range<u64>;
