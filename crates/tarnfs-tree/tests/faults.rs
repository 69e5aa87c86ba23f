//! Each read of an archive goes wrong once, in each way: while it is indexed, opened with an index, listed and read.
//! What is shown is right, or an error; what is wrong once is right the next time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use tarnfs_source::testing::{Fault, FaultySource, When};
use tarnfs_tree::open::{DecodingOptions, IndexOptions, IndexPlace, OpenArchive, Options, Problem};

use common::{Found, archives, member, memory, open, options, survey, zip};

type Tree = BTreeMap<Vec<u8>, Found>;

const EIO: i32 = 5;
const ENOMEM: i32 = 12;

/// Ends the process if a test takes longer than anything that has an end, also on a machine with other work: what hangs
/// cannot be ended from inside. Dropped, it lets the process be.
fn watchdog() -> Sender<()> {
    let (over, is_over) = channel();
    std::thread::spawn(move || {
        if is_over.recv_timeout(Duration::from_secs(1800)) == Err(RecvTimeoutError::Timeout) {
            std::process::abort();
        }
    });
    over
}

/// What is seen through an archive that was opened: nothing else than in `expected`. True if all of it was.
fn agrees(opened: &OpenArchive, expected: &Tree, what: &str) -> bool {
    let mut failures = 0;
    let seen = survey(&*opened.tree, &mut |_, _| failures += 1);
    for (path, found) in &seen {
        let right = expected.get(path).unwrap_or_else(|| panic!("{what}: {} is new", String::from_utf8_lossy(path)));
        let is_right = found.0 == right.0 && (found.1.is_none() || found.1 == right.1);
        assert!(is_right, "{what}: {} is wrong", String::from_utf8_lossy(path));
    }
    failures == 0 && seen == *expected
}

/// Only a fault keeps anything from being seen; where that was one read, the next one is right.
fn check_twice(opened: &OpenArchive, source: &FaultySource, when: When, expected: &Tree, what: &str) {
    let is_whole = agrees(opened, expected, what);
    let has_struck = source.has_struck();
    assert!(is_whole || has_struck, "{what}: something is missing");
    if has_struck && matches!(when, When::At(_)) {
        assert!(agrees(opened, expected, what), "{what}: it remains wrong");
    }
}

/// One run with a fault at read `number`; false if it ended before that.
fn run(name: &str, bytes: &[u8], options: &Options, fault: Fault, when: When, expected: &Tree) -> bool {
    let what = format!("{name}, {fault:?} {when:?}");
    let source = Arc::new(FaultySource::new(memory(name, bytes), fault, when));
    match open(Arc::<FaultySource>::clone(&source), options) {
        Ok(opened) => {
            let notes = &opened.index.summary().notes;
            assert!(notes.is_empty(), "{what}: taken for damage: {notes:?}");
            check_twice(&opened, &source, when, expected, &what);
        }
        Err(problem) => {
            assert!(source.has_struck(), "{what}: {problem}");
            assert!(!problem.to_string().is_empty());
            if let (Fault::Error(number), Problem::Read { error, .. }) = (fault, &problem) {
                assert!(
                    error.to_string().contains("os error") || error.raw_os_error() == Some(number),
                    "{what}: {error}"
                );
            }
        }
    }
    source.has_struck()
}

fn expected_tree(name: &str, bytes: &[u8]) -> Tree {
    let opened = open(memory(name, bytes), &options()).unwrap();
    let tree = survey(&*opened.tree, &mut |path, error| panic!("{}: {error}", String::from_utf8_lossy(path)));
    assert!(tree.len() > 10);
    tree
}

const FAULTS: [Fault; 4] = [Fault::Error(EIO), Fault::Nothing, Fault::Half, Fault::Stall(Duration::from_millis(2))];

#[test]
fn each_read_fails_once_and_from_then_on() {
    let _watchdog = watchdog();
    for (name, bytes) in archives() {
        let expected = expected_tree(name, &bytes);
        for fault in FAULTS {
            for for_ever in [false, true] {
                let mut reads = 0;
                loop {
                    reads += 1;
                    let when = if for_ever { When::From(reads) } else { When::At(reads) };
                    if !run(name, &bytes, &options(), fault, when, &expected) {
                        break;
                    }
                }
                println!("{name}: {fault:?}, for ever {for_ever}: {} reads", reads - 1);
                assert!(reads > 3, "{name}");
            }
        }
    }
}

/// > An archive in an archive that could not be read once is no file for that: indexing it is an error, and one that is
/// > opened lazily is looked at again. Where memory is missing, a message says so.
#[test]
fn each_read_of_archives_in_archives_fails_once() {
    let _watchdog = watchdog();
    let recursion = tarnfs_index::Recursion {
        extensions: tarnfs_tree::DEFAULT_EXTENSIONS.map(str::to_owned).into(),
        ..tarnfs_index::Recursion::default()
    };
    let mut options = options();
    options.shape.recursion = Some(recursion);
    // Which read is the n-th must not depend on which thread is first.
    options.decoding.threads = 1;
    let found = |wanted: &str| archives().into_iter().find(|(name, _)| *name == wanted).unwrap().1;
    let (tar, gz) = (found("tar"), found("gz"));
    let one = zip(&[("file", b"content")]);
    // Known by its end only.
    let program = [&[b'x'; 6000][..], &one].concat();
    let files: [(&str, &[u8]); 4] = [("in.tar", &tar), ("b.tar.gz", &gz), ("one.zip", &one), ("program.zip", &program)];
    let of_all = zip(&files);
    let in_tar: Vec<u8> = files.iter().flat_map(|(name, bytes)| member(b'0', name, bytes)).chain([0; 1024]).collect();
    for (name, bytes) in [("a.zip", of_all.clone()), ("deep.zip", zip(&[("all.zip", &of_all)])), ("a.tar", in_tar)] {
        let opened = open(memory(name, &bytes), &options).unwrap();
        let expected = survey(&*opened.tree, &mut |path, error| panic!("{}: {error}", String::from_utf8_lossy(path)));
        let has = |end: &[u8]| expected.keys().any(|path| path.ends_with(end));
        assert!(
            has(b"program.zip/file") && has(b"one.zip/file") && expected.len() > 30,
            "{name}: {:?}",
            expected.keys()
        );
        let mut reads = 1;
        while run(name, &bytes, &options, Fault::Error(EIO), When::At(reads), &expected) {
            reads += 1;
        }
        println!("{name}: {reads} reads");
        // More memory there may never be: that is noted, and all else is shown.
        let mut noted = 0;
        for read in 1..reads {
            let source = FaultySource::new(memory(name, &bytes), Fault::Error(ENOMEM), When::At(read));
            let Ok(opened) = open(Arc::new(source), &options) else { continue };
            let notes = &opened.index.summary().notes;
            noted += notes.len();
            let says = |(_, what): &(u64, String)| what.contains("could not be looked into: Cannot allocate memory");
            assert!(notes.iter().all(says) && notes.len() <= 1, "{name}, read {read}: {notes:?}");
            // The read may be one of those behind the first pass: then the next one is right.
            let is_right = || agrees(&opened, &expected, name) || agrees(&opened, &expected, name);
            assert!(notes.len() == 1 || is_right(), "{name}, read {read}");
        }
        assert!(name == "a.tar" || noted > 2, "{name}: {noted}");
    }
}

/// The same with an index that is there already, as in every mount but the first.
#[test]
fn each_read_fails_with_an_index_that_is_there() {
    let _watchdog = watchdog();
    for (name, bytes) in archives() {
        let expected = expected_tree(name, &bytes);
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            index: IndexOptions { place: IndexPlace::File(folder.path().join("index")), ..options().index },
            ..options()
        };
        open(memory(name, &bytes), &options).unwrap();
        let options = Options {
            index: IndexOptions { recreate: tarnfs_tree::open::Recreate::Never, ..options.index },
            ..options
        };
        assert!(!open(memory(name, &bytes), &options).unwrap().is_new);
        for fault in FAULTS {
            for for_ever in [false, true] {
                let mut reads = 0;
                loop {
                    reads += 1;
                    let when = if for_ever { When::From(reads) } else { When::At(reads) };
                    if !run_existing(name, &bytes, &options, fault, when, &expected) {
                        break;
                    }
                }
                assert!(reads > 3, "{name}");
            }
        }
    }
}

fn run_existing(name: &str, bytes: &[u8], options: &Options, fault: Fault, when: When, expected: &Tree) -> bool {
    let what = format!("{name} with its index, {fault:?} {when:?}");
    let source = Arc::new(FaultySource::new(memory(name, bytes), fault, when));
    match open(Arc::<FaultySource>::clone(&source), options) {
        Ok(opened) => {
            check_twice(&opened, &source, when, expected, &what);
        }
        Err(problem) => assert!(source.has_struck(), "{what}: {problem}"),
    }
    source.has_struck()
}

/// Bytes that are wrong, not missing: of a compressed archive with an index, its checksums find each of them.
#[test]
fn other_bytes_are_found_by_checksums() {
    for (name, bytes) in archives().into_iter().filter(|(name, _)| *name != "tar") {
        let expected = expected_tree(name, &bytes);
        let opened = |when| {
            let source = Arc::new(FaultySource::new(memory(name, &bytes), Fault::Garbage, when));
            // One thread: several read as often as their turns have it.
            let options = Options { decoding: DecodingOptions { threads: 1, ..options().decoding }, ..options() };
            (open(Arc::<FaultySource>::clone(&source), &options), source)
        };
        // Reads up to here make the index.
        let (_, source) = opened(When::From(u64::MAX));
        let indexing = source.reads();
        for behind in 1.. {
            let (found, source) = opened(When::At(indexing + behind));
            let found = found.unwrap();
            let is_whole = agrees(&found, &expected, name);
            if !source.has_struck() {
                assert!(is_whole && behind > 1, "{name}");
                break;
            }
            assert!(agrees(&found, &expected, name), "{name}: it remains wrong");
        }
    }
}

/// A source that says another length than it has.
#[test]
fn a_length_may_be_a_lie() {
    let _watchdog = watchdog();
    for (name, bytes) in archives() {
        let expected = expected_tree(name, &bytes);
        let length = bytes.len() as u64;
        for claimed in [
            0,
            1,
            511,
            512,
            length / 2,
            length - 1,
            length + 1,
            length + 512,
            length * 2,
            1 << 40,
            i64::MAX as u64,
            u64::MAX,
        ] {
            let source = FaultySource::new(memory(name, &bytes), Fault::Nothing, When::From(u64::MAX));
            match open(Arc::new(source.that_claims(claimed)), &options()) {
                // What is cut is said to be cut, and less of it is shown.
                Ok(opened) if opened.index.summary().notes.is_empty() => {
                    assert!(agrees(&opened, &expected, name), "{name} {claimed}: something is missing");
                }
                Ok(_) => assert!(claimed < length, "{name} {claimed}"),
                Err(problem) => assert!(!problem.to_string().is_empty(), "{name} {claimed}"),
            }
        }
    }
}
