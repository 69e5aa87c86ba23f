//! Where zip archives are searched for their end: what that costs, and what may stand there and be none.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::zip::{Made, Member, locals, read, try_read, try_read_source, zip};
use common::{has, sh};
use tarnfs_format::zip::Zip;
use tarnfs_format::{Error, Options, ReadRandom};
use tarnfs_source::{Cancel, MemorySource, SharedSource, Source};

/// Counts what is read of it, and cancels at read `at`.
#[derive(Debug)]
struct Counted {
    inner: MemorySource,
    reads: AtomicU64,
    cancel: Cancel,
    at: u64,
}

impl Counted {
    fn new(archive: Vec<u8>, at: u64) -> Arc<Self> {
        let (reads, cancel) = (AtomicU64::new(0), Cancel::default());
        Arc::new(Self { inner: MemorySource::new(archive, "archive"), reads, cancel, at })
    }

    fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }
}

impl Source for Counted {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.reads.fetch_add(1, Ordering::SeqCst) + 1 == self.at {
            self.cancel.cancel();
        }
        self.inner.read_at(buffer, offset)
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

/// A record of an archive of one volume, whose directory is not where it says.
fn useless() -> Vec<u8> {
    [&b"PK\x05\x06\0\0\0\0\x01\0\x01\0"[..], &50_u32.to_le_bytes(), &7_u32.to_le_bytes(), &[9, 0]].concat()
}

/// Two megabytes of records behind an archive: more than can be looked at.
#[test]
fn a_flood_of_records_is_not_all_looked_at() {
    for record in [b"PK\x05\x06".to_vec(), useless()] {
        let archive = [zip(&[Made::new("a", b"hello")]), record.repeat((2 << 20) / record.len())].concat();
        let source = Counted::new(archive.clone(), u64::MAX);
        let told = try_read_source(&(Arc::clone(&source) as SharedSource)).unwrap();
        assert_eq!(told.paths(), ["a"], "by its local header");
        assert!(source.reads() < 100_000, "{} reads", source.reads());

        let source = Counted::new(archive, 100);
        let options = Options { cancel: source.cancel.clone(), ..Options::default() };
        let result = Zip.read(&(Arc::clone(&source) as SharedSource), &options, &mut |_| Ok(()));
        let is_interrupted = |error: &Error| match error {
            Error::Read { error, .. } => error.kind() == io::ErrorKind::Interrupted,
            _ => false,
        };
        assert!(result.as_ref().is_err_and(is_interrupted), "{result:?}");
        assert!(source.reads() < 110, "{} reads", source.reads());
    }
}

/// Records of volumes, as the last one of an archive in four files has them.
fn of_volumes() -> Vec<u8> {
    let numbers = |numbers: &[u64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
    [
        &b"PK\x06\x06"[..],
        &numbers(&[44]),
        &[45, 0, 45, 0, 3, 0, 0, 0, 3, 0, 0, 0],
        &numbers(&[1, 1, 60, 1000]),
        b"PK\x06\x07\x03\0\0\0",
        &numbers(&[0]),
        b"\x04\0\0\0PK\x05\x06",
        &[0xff; 16],
        &[0, 0],
    ]
    .concat()
}

#[test]
fn only_what_stands_at_the_end_says_that_it_is_a_volume() {
    let last = [locals(&[Made::new("a", b"hello")]), of_volumes()].concat();
    let error = try_read(&last).unwrap_err();
    assert!(error.to_string().contains("it is the last part of an archive in 4 files"), "{error}");
    // A stored member holds such an archive, and what comes behind that one was cut.
    let members = [Made::new("first", b"hello"), Made::new("volume.zip", &last), Made::new("last", &[7; 3000])];
    let whole = locals(&members);
    let told = read(&whole[..whole.len() - 100]);
    assert_eq!(told.paths(), ["first", "volume.zip", "last"], "{:?}", told.damage);
}

/// What was written without seeking has sizes and checksums behind its files, empty ones among them.
#[test]
fn streamed_archives_lose_nothing_with_their_directory() {
    let with_python = |mode: &str| {
        let lines = [
            "import sys, zipfile".to_owned(),
            format!("with zipfile.ZipFile(sys.stdout.buffer, 'w', zipfile.ZIP_{mode}) as archive:"),
            "    for name in 'abcd': archive.write(name)".to_owned(),
        ];
        format!("python3 -c \"{}\"", lines.join("\n"))
    };
    let writers = [
        ("zip", "zip -q - a b c d".to_owned()),
        ("zip", "zip -q -0 - a b c d".to_owned()),
        ("zip", "zip -q -fz - a b c d".to_owned()),
        ("bsdtar", "bsdtar --format zip -cf - a b c d".to_owned()),
        ("bsdtar", "bsdtar --format zip --options zip:compression=store -cf - a b c d".to_owned()),
        ("7z", "7z a -tzip -so archive.zip a b c d 2>/dev/null".to_owned()),
        ("python3", with_python("STORED")),
        ("python3", with_python("DEFLATED")),
    ];
    let folder = tempfile::tempdir().unwrap();
    sh(folder.path(), ": > a; printf hello > b; : > c; seq 3000 > d");
    for (_, command) in writers.iter().filter(|(tool, _)| has(tool)) {
        sh(folder.path(), &format!("{command} | cat > streamed.zip"));
        let archive = fs::read(folder.path().join("streamed.zip")).unwrap();
        let whole = read(&archive);
        let cut = read(&archive[..whole.directory(&archive)]);
        let of = |members: &[Member]| -> Vec<_> {
            members.iter().map(|member| (member.entry.path.clone(), member.piece.clone())).collect()
        };
        assert_eq!(whole.paths(), ["a", "b", "c", "d"], "{command}");
        assert_eq!(of(&cut.members), of(&whole.members), "{command}: {:?}", cut.damage);
        assert_eq!(cut.damage.len(), 1, "{command}: {:?}", cut.damage);
    }
}
