//! Long members of zip and 7z: what reading them has found is there at the next opening.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{Mounted, Scratch, can_mount, have};
use tarnfs_source::{FileSource, SharedSource, Source};
use tarnfs_tree::open::{DecodedCache, FileFacts, IndexPlace, Options, open_source};
use tarnfs_tree::{Node, Tree};

/// A file that counts what is read of it.
#[derive(Debug)]
struct Counted(FileSource, AtomicU64);

impl Source for Counted {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.0.read_at(buffer, offset)?;
        self.1.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

/// An archive that is open, with what is kept of it in `cache`.
struct Open {
    file: SharedSource,
    archive: Arc<Counted>,
}

impl Open {
    fn new(path: &Path, cache: &Path) -> Self {
        let file = FileSource::open(path).unwrap();
        let facts = FileFacts::of(&file).unwrap();
        let archive = Arc::new(Counted(file, AtomicU64::new(0)));
        let mut options = Options::default();
        options.index.place = IndexPlace::Memory;
        options.decoding.threads = 2;
        options.decoding.decoded_cache = Some(DecodedCache::new(cache.to_owned(), None).filled_when_idle());
        let opened = open_source(Arc::clone(&archive) as SharedSource, facts, path, &options).unwrap();
        let long = opened.tree.lookup(Node::ROOT, b"long").unwrap();
        Self { file: opened.tree.open(long.node).unwrap(), archive }
    }

    /// 64 KiB from byte `offset` on, and the bytes of the archive that were read for them.
    fn read(&self, offset: u64) -> (Vec<u8>, u64) {
        let before = self.archive.1.load(Ordering::Relaxed);
        let mut bytes = vec![0; 64 << 10];
        self.file.read_exact_at(&mut bytes, offset).unwrap();
        (bytes, self.archive.1.load(Ordering::Relaxed) - before)
    }
}

/// Bytes of the long member, half of which can be compressed.
const LENGTH: u64 = 40 << 20;

const TOOLS: &[(&str, &str)] = &[
    ("zip", "zip -q -r ../long.zip ."),
    ("7z", "7z a -bd -bso0 -mx=1 -m0=LZMA:d=1m ../long.7z ."),
    ("7z", "7z a -bd -bso0 -mx=1 ../two.7z ."),
];

fn make(scratch: &Scratch, command: &str) -> String {
    scratch.shell(&format!(
        "mkdir -p tree; cd tree; [ -e long ] || {{ seq 3000000; head -c {LENGTH} /dev/urandom; }} > long; truncate -s {LENGTH} long
         {command}",
    ));
    command.split_whitespace().find_map(|word| word.strip_prefix("../")).unwrap().to_owned()
}

#[test]
fn seek_points_are_there_at_the_next_opening() {
    let scratch = Scratch::new();
    for (tool, command) in TOOLS {
        if !have(tool) {
            println!("left out: {command}");
            continue;
        }
        let name = make(&scratch, command);
        let (archive, cache) = (scratch.path(&name), scratch.folder(format!("cache-{name}")));
        let plain = std::fs::File::open(scratch.path("tree/long")).unwrap();
        let expected = |offset| {
            let mut bytes = vec![0; 64 << 10];
            plain.read_exact_at(&mut bytes, offset).unwrap();
            bytes
        };
        let (at, packed) = (LENGTH - (1 << 20), archive.metadata().unwrap().len());
        let first = Open::new(&archive, &cache);
        let (bytes, read) = first.read(at);
        assert!(bytes == expected(at), "{name}");
        assert!(read > packed / 2, "{name}: {read} bytes, so the test is of no use");
        // Up to its end, so that all is verified.
        assert!(first.read(LENGTH - (64 << 10)).0 == expected(LENGTH - (64 << 10)));
        drop(first);

        let next = Open::new(&archive, &cache);
        let (bytes, read) = next.read(at);
        assert!(bytes == expected(at), "{name}");
        assert!(read < packed / 2, "{name}: {read} bytes were read for 64 KiB");
        let (bytes, _) = next.read(3 << 20);
        assert!(bytes == expected(3 << 20), "{name}");
        drop(next);

        // What is no table, or is one of something else, is not used.
        let kept = std::fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path()).next().unwrap();
        let good = std::fs::read(&kept).unwrap();
        assert!(good.len() > 1000, "{name}");
        for broken in [&good[..0], &good[..good.len() / 2], b"tarnfs members 9", &[0xff; 100]] {
            std::fs::write(&kept, broken).unwrap();
            let again = Open::new(&archive, &cache);
            assert!(again.read(at).0 == expected(at), "{name}");
            assert!(again.read(LENGTH - (64 << 10)).0 == expected(LENGTH - (64 << 10)));
            assert_eq!(std::fs::metadata(&kept).unwrap().len(), good.len() as u64, "{name}: it is kept anew");
        }
        let mut flipped = good.clone();
        flipped[good.len() / 2] ^= 1;
        std::fs::write(&kept, flipped).unwrap();
        assert!(Open::new(&archive, &cache).read(at).0 == expected(at), "{name}");
    }
}

#[test]
fn a_mount_keeps_them_without_the_right_to_open_files() {
    if !can_mount() || !have("zip") {
        return println!("left out: no mounts here, or no zip");
    }
    let scratch = Scratch::new();
    let name = make(&scratch, TOOLS[0].1);
    for is_first in [true, false] {
        let mounted = Mounted::new(&scratch, scratch.path(&name), &[]);
        scratch.shell(&format!("cmp tree/long '{}'", mounted.path("long").display()));
        mounted.unmount();
        let kept = scratch.shell("cd cache/tarnfs/decoded; find . -name '*.members.decoded' -size +1k");
        assert_eq!(kept.lines().count(), 1, "first: {is_first}");
    }
    // Nothing of what a password opens.
    scratch.shell("rm -r cache; cd tree; zip -q -P secret ../locked.zip long");
    let mounted = Mounted::new(&scratch, scratch.path("locked.zip"), &["--password", "secret"]);
    scratch.shell(&format!("cmp tree/long '{}'", mounted.path("long").display()));
    mounted.unmount();
    assert_eq!(scratch.shell("find cache -name '*.members*' -size +0 2>/dev/null || true"), "");
}
