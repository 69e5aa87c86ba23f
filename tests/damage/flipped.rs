//! One bit of an archive flips, before or after it was indexed: no wrong byte is served, and what lies elsewhere is.
//!
//! `TARNFS_FULL=1 cargo test --release --test flipped -- --nocapture` flips a thousand bits for each codec.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it has done")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::devour::{Random, Watchdog};
use crate::support::{Scratch, have};
use tarnfs_codec::engine::PieceCache;
use tarnfs_source::Budget;
use tarnfs_tree::open::{DecodingOptions, IndexOptions, IndexPlace, OpenArchive, Options, Recreate, open};
use tarnfs_tree::{Node, Tree};

/// Each makes many chunks of a tar of 6 MB, and says how many of its 40 files one flipped bit may cost once it was
/// indexed.
const TOOLS: [(&str, &str, usize); 10] = [
    ("gz", "gzip -n", 8),
    ("members.gz", MEMBERS, 8),
    ("zz", "python3 -c 'import sys,zlib; sys.stdout.buffer.write(zlib.compress(sys.stdin.buffer.read()))'", 8),
    ("bz2", "bzip2 -1", 8),
    ("xz", "xz -0 --block-size=128KiB", 8),
    ("zst", FRAMES, 8),
    ("lz4", "lz4 -q -B4 -BX", 8),
    ("linked.lz4", "lz4 -q -B4 -BD", 8),
    ("lzo", "lzop -c", 8),
    // One chunk: nothing behind the bit can be decoded.
    ("lrz", "lrzip -Q -g -T", 40),
];

const MEMBERS: &str = "python3 -c 'import sys,gzip; d=sys.stdin.buffer.read(); [sys.stdout.buffer.write(gzip.compress(d[i:i+100000],6)) for i in range(0,len(d),100000)]'";
const FRAMES: &str = "split -b 150000 --filter='zstd -q -c' -";

type Files = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(place: IndexPlace, recreate: Recreate) -> Options {
    Options {
        index: IndexOptions { place, recreate, ..IndexOptions::default() },
        decoding: DecodingOptions {
            seek_point_spacing: Some(64 << 10),
            threads: 2,
            cache: PieceCache::new(Budget::new(32 << 20)),
            ..DecodingOptions::default()
        },
        ..Options::default()
    }
}

/// Makes `a.tar` of files that compress to about half, and returns them.
fn make(scratch: &Scratch) -> Files {
    let folder = scratch.folder("tree");
    let mut random = Random(11);
    let mut files = Files::new();
    for number in 0..40 {
        // Some shorter, and some longer than any part that is compressed by itself.
        let length = if number % 10 == 5 { 700_000 } else { 30_000 + number * 2000 };
        let bytes: Vec<u8> = (0..length).map(|_| b'a' + (random.below(16) as u8)).collect();
        fs::write(folder.join(format!("f{number:02}")), &bytes).unwrap();
        files.insert(format!("f{number:02}").into_bytes(), bytes);
    }
    scratch.shell("tar -C tree -cf a.tar .");
    files
}

/// Reads every file of `expected`, and of one that gives an error every part; how many gave an error. A wrong byte
/// fails the test.
fn check(opened: &OpenArchive, expected: &Files, case: &str) -> usize {
    const PART: usize = 5000;
    let tree: &dyn Tree = &*opened.tree;
    let mut errors = 0;
    for (name, bytes) in expected {
        let Ok(source) = tree.lookup(Node::ROOT, name).and_then(|file| tree.open(file.node)) else {
            errors += 1;
            continue;
        };
        let is_right = |from: usize, to: usize| {
            let mut found = vec![0; to - from];
            let read = source.read_exact_at(&mut found, from as u64).is_ok();
            let name = String::from_utf8_lossy(name);
            assert!(!read || found == bytes[from..to], "{case}: wrong bytes in {name}, from {from} to {to}");
            read
        };
        if !is_right(0, bytes.len()) {
            errors += 1;
            for from in (0..bytes.len()).step_by(PART) {
                is_right(from, (from + PART).min(bytes.len()));
            }
        }
    }
    errors
}

#[test]
fn after_it_was_indexed() {
    flip(|archive, index| {
        drop(open(archive, &options(IndexPlace::File(index.to_owned()), Recreate::Always)).unwrap());
        options(IndexPlace::File(index.to_owned()), Recreate::Never)
    });
}

#[test]
fn before_it_was_indexed() {
    flip(|_, _| options(IndexPlace::Memory, Recreate::Always));
}

/// Flips bits one at a time, all over each archive. `prepare` is called once for each archive, and says how to open the
/// flipped one.
fn flip(prepare: impl Fn(&Path, &Path) -> Options) {
    let scratch = Scratch::new();
    let files = make(&scratch);
    let flips = if std::env::var_os("TARNFS_FULL").is_some() { 1000 } else { 15 };
    let watchdog = Watchdog::new();
    for (suffix, tool, most_lost) in TOOLS {
        if matches!(suffix, "lzo" | "lrz") && !have(tool.split(' ').next().unwrap()) {
            continue;
        }
        scratch.shell(&format!("{tool} < a.tar > a.{suffix}"));
        let (archive, index) = (scratch.path(format!("a.{suffix}")), scratch.path(format!("{suffix}.sqlite")));
        let options = prepare(&archive, &index);
        let length = fs::metadata(&archive).unwrap().len();
        let mut random = Random(5);
        let (mut not_opened, mut lost, mut worst, mut unharmed) = (0, 0, 0, 0);
        for number in 0..flips {
            // Evenly over the file, so that each chunk gets its share.
            let at = length * number / flips + random.below((length / flips).max(1) as usize) as u64;
            let bit = random.below(8);
            let file = fs::File::options().read(true).write(true).open(&archive).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1 << bit], at).unwrap();
            let case = format!("{suffix}: bit {bit} of byte {at} of {length}");
            let errors =
                watchdog.watch(|| case.clone(), || Some(check(&open(&archive, &options).ok()?, &files, &case)));
            match errors {
                // Its fingerprint differs, or it no longer begins as what it is.
                None => not_opened += 1,
                Some(0) => unharmed += 1,
                Some(errors) => {
                    lost += errors;
                    worst = worst.max(errors);
                }
            }
            file.write_all_at(&byte, at).unwrap();
        }
        println!(
            "{suffix}: {flips} flips, {not_opened} not opened, {unharmed} without effect, {lost} files lost, at most {worst} at once"
        );
        if options.index.recreate == Recreate::Never {
            assert!(worst <= most_lost, "{suffix}: one bit cost {worst} files");
            assert!(not_opened < flips as usize * 2 / 3, "{suffix}: {not_opened} of {flips} were not opened");
            assert!(lost > 0, "{suffix}: nothing was hit");
        }
    }
}
