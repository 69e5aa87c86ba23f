//! The entries that all indexes are made of, in a file: written once, read by each process that makes one.
//!
//! They lie as in a tar that is not compressed: a header of 512 bytes each, then the content. There is no such tar;
//! where everything would be in it is computed.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use tarnfs_format::{Body, Entry, Kind, Time};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes before path and link of a record: what is shared with the path before (1), lengths of the rest (2) and of the
/// link (2), kind (1), mode (4), user (4), group (4), size (8), seconds (8), nanoseconds (4).
const HEAD: usize = 38;

/// A block of a tar.
const BLOCK: u64 = 512;

/// The most bytes that all contents have together: what lies behind that has no content.
const LONGEST: u64 = 1 << 60;

/// Writes a record. `shared` bytes of the path are those of the path before.
fn write(out: &mut impl Write, entry: &Entry, shared: u8) -> io::Result<usize> {
    let rest = &entry.path[usize::from(shared)..];
    let length = |bytes: &[u8]| u16::try_from(bytes.len()).map_err(|_| io::Error::from(ErrorKind::InvalidInput));
    let kind = match entry.kind {
        Kind::Folder => 1,
        Kind::Symlink => 2,
        _ => 0_u8,
    };
    let mut head = Vec::with_capacity(HEAD);
    head.push(shared);
    head.extend(length(rest)?.to_le_bytes());
    head.extend(length(&entry.link)?.to_le_bytes());
    head.push(kind);
    head.extend(entry.mode.to_le_bytes());
    head.extend((entry.uid as u32).to_le_bytes());
    head.extend((entry.gid as u32).to_le_bytes());
    head.extend(entry.body.size.to_le_bytes());
    head.extend(entry.mtime.seconds.to_le_bytes());
    head.extend(entry.mtime.nanoseconds.to_le_bytes());
    out.write_all(&head)?;
    out.write_all(rest)?;
    out.write_all(&entry.link)?;
    Ok(HEAD + rest.len() + entry.link.len())
}

/// Reads a record behind which the path before was `path`, which becomes this one's.
fn read(head: [u8; HEAD], path: &mut Vec<u8>, mut more: impl FnMut(&mut [u8]) -> io::Result<()>) -> io::Result<Entry> {
    fn take<const N: usize>(head: &mut &[u8]) -> [u8; N] {
        head.split_first_chunk().map_or([0; N], |(first, rest)| {
            *head = rest;
            *first
        })
    }
    let mut head = head.as_slice();
    let [shared] = take(&mut head);
    let (rest, link) = (u16::from_le_bytes(take(&mut head)), u16::from_le_bytes(take(&mut head)));
    let kind = match take(&mut head) {
        [1] => Kind::Folder,
        [2] => Kind::Symlink,
        [_] => Kind::File,
    };
    let number = |head: &mut &[u8]| u32::from_le_bytes(take(head));
    let (mode, uid, gid) = (number(&mut head), number(&mut head), number(&mut head));
    let size = u64::from_le_bytes(take(&mut head));
    let mtime = Time { seconds: i64::from_le_bytes(take(&mut head)), nanoseconds: number(&mut head) };
    let shared = usize::from(shared).min(path.len());
    path.resize(shared + usize::from(rest), 0);
    more(&mut path[shared..])?;
    let mut link = vec![0; usize::from(link)];
    more(&mut link)?;
    Ok(Entry {
        path: path.clone(),
        kind,
        mode,
        uid: uid.into(),
        gid: gid.into(),
        mtime,
        body: Body { size, stored: size, ..Body::default() },
        link,
        ..Entry::default()
    })
}

/// The longest path and link that a record has.
pub(super) const LONGEST_PATH: usize = u16::MAX as usize;

/// Writes them.
pub(super) struct Writer {
    out: BufWriter<File>,
    path: Vec<u8>,
    pub(super) count: u64,
}

impl Writer {
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        Ok(Self { out: BufWriter::with_capacity(1 << 20, File::create_new(path)?), path: Vec::new(), count: 0 })
    }

    pub(super) fn add(&mut self, entry: &Entry) -> io::Result<()> {
        let same = self.path.iter().zip(&entry.path).take(usize::from(u8::MAX)).take_while(|(one, other)| one == other);
        let shared = same.count() as u8;
        write(&mut self.out, entry, shared)?;
        self.path.clone_from(&entry.path);
        self.count += 1;
        Ok(())
    }

    pub(super) fn finish(mut self) -> io::Result<u64> {
        self.out.flush()?;
        Ok(self.count)
    }
}

/// Reads them, in their order.
pub(super) struct Reader {
    file: BufReader<File>,
    path: Vec<u8>,
    /// Where the next one begins.
    end: u64,
}

impl Reader {
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        Ok(Self { file: BufReader::with_capacity(256 << 10, File::open(path)?), path: Vec::new(), end: 0 })
    }

    /// How long the tar would be that those are in which were read.
    pub(super) fn length(&self) -> u64 {
        self.end + 2 * BLOCK
    }

    fn read(&mut self) -> io::Result<Option<Entry>> {
        let mut head = [0; HEAD];
        match self.file.read_exact(&mut head[..1]) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        self.file.read_exact(&mut head[1..])?;
        let mut entry = read(head, &mut self.path, |rest| self.file.read_exact(rest))?;
        let body = &mut entry.body;
        if entry.kind != Kind::File || body.size > LONGEST - self.end.min(LONGEST) {
            (body.size, body.stored) = (0, 0);
        }
        entry.header = self.end;
        body.offset = self.end + BLOCK;
        self.end = body.offset + body.stored.next_multiple_of(BLOCK);
        Ok(Some(entry))
    }
}

impl Iterator for Reader {
    type Item = io::Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

/// Entries that are found in another order than they are to have.
pub(super) struct Unsorted {
    out: BufWriter<File>,
    /// What each is sorted by, and where it begins.
    keys: Vec<((u32, u64), u64)>,
    end: u64,
}

impl Unsorted {
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        Ok(Self { out: BufWriter::with_capacity(1 << 20, file), keys: Vec::new(), end: 0 })
    }

    pub(super) fn add(&mut self, entry: &Entry, key: (u32, u64)) -> io::Result<()> {
        self.keys.push((key, self.end));
        self.end += write(&mut self.out, entry, 0)? as u64;
        Ok(())
    }

    /// Hands them on in their order.
    pub(super) fn sorted(mut self, receive: &mut dyn FnMut(&Entry) -> io::Result<()>) -> io::Result<()> {
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        self.keys.sort_unstable();
        let mut path = Vec::new();
        for (_, start) in self.keys {
            let mut head = [0; HEAD];
            file.read_exact_at(&mut head, start)?;
            let mut at = start + HEAD as u64;
            let entry = read(head, &mut path, |rest| {
                file.read_exact_at(rest, at)?;
                at += rest.len() as u64;
                Ok(())
            })?;
            receive(&entry)?;
        }
        Ok(())
    }
}

/// A path or name as text, for what can hold no other bytes: those that are not UTF-8 as `\xe4`.
pub(super) fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a text does not fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Folder and name of a path.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// A sum over entries that is the same in any order: whether two indexes show the same.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) count: u64,
    pub(super) hash: u64,
}

impl Sum {
    pub(super) fn add(&mut self, path: &[u8], kind: Kind, size: u64) {
        let mut bytes = text(path).into_bytes();
        let (kind, size) = match kind {
            Kind::Folder => (1, 0),
            Kind::Symlink => (2, 0),
            _ => (0, size),
        };
        bytes.push(kind);
        bytes.extend(size.to_le_bytes());
        self.hash = self.hash.wrapping_add(xxh3_64(&bytes));
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, kind: Kind, size: u64) -> Entry {
        let link = if kind == Kind::Symlink { b"target".to_vec() } else { Vec::new() };
        let mtime = Time { seconds: -5, nanoseconds: 7 };
        let body = Body { size, stored: size, ..Body::default() };
        Entry { path: path.into(), kind, mode: 0o640, uid: 7, gid: 8, mtime, body, link, ..Entry::default() }
    }

    #[test]
    fn entries_come_back_and_lie_as_in_a_tar() {
        let folder = tempfile::tempdir().unwrap();
        let long = "x".repeat(300);
        let all = [
            entry("a", Kind::Folder, 0),
            entry("a/file", Kind::File, 513),
            entry("a/file2", Kind::Symlink, 0),
            entry(&format!("{long}/1"), Kind::File, 0),
            entry(&format!("{long}/2"), Kind::File, u64::MAX),
            entry("z", Kind::File, 1),
        ];
        let path = folder.path().join("entries");
        let mut writer = Writer::new(&path).unwrap();
        for entry in &all {
            writer.add(entry).unwrap();
        }
        assert_eq!(writer.finish().unwrap(), 6);
        let mut reader = Reader::new(&path).unwrap();
        let read: Vec<Entry> = reader.by_ref().map(Result::unwrap).collect();
        let headers: Vec<u64> = read.iter().map(|entry| entry.header).collect();
        // One with an absurd size has none, as nothing would fit behind it.
        assert_eq!(headers, [0, 512, 2048, 2560, 3072, 3584]);
        assert_eq!(reader.length(), 3584 + 1024 + 1024);
        for (entry, read) in all.iter().zip(&read) {
            let (size, body) = (if entry.body.size == u64::MAX { 0 } else { entry.body.size }, &read.body);
            assert_eq!(
                (&read.path, read.kind, read.mtime, &read.link),
                (&entry.path, entry.kind, entry.mtime, &entry.link)
            );
            assert_eq!((read.mode, read.uid, read.gid, body.size, body.offset), (0o640, 7, 8, size, read.header + 512));
        }
        std::fs::write(&path, b"cut").unwrap();
        assert!(Reader::new(&path).unwrap().next().unwrap().is_err());
    }

    #[test]
    fn entries_are_sorted() {
        let folder = tempfile::tempdir().unwrap();
        let mut unsorted = Unsorted::new(&folder.path().join("unsorted")).unwrap();
        for (path, key) in [("c", (1, 0)), ("b", (0, 9)), ("a", (0, 3))] {
            unsorted.add(&entry(path, Kind::File, 4), key).unwrap();
        }
        let mut paths = Vec::new();
        unsorted
            .sorted(&mut |entry| {
                paths.push(entry.path.clone());
                Ok(())
            })
            .unwrap();
        assert_eq!(paths, [b"a", b"b", b"c"]);
    }

    #[test]
    fn sums_have_no_order() {
        let sum = |all: &[(&str, Kind, u64)]| {
            let mut sum = Sum::default();
            for (path, kind, size) in all {
                sum.add(path.as_bytes(), *kind, *size);
            }
            sum
        };
        let (one, other) = (("a", Kind::File, 3), ("b", Kind::Folder, 0));
        assert_eq!(sum(&[one, other]), sum(&[other, one]));
        assert_ne!(sum(&[one]), sum(&[("a", Kind::File, 4)]));
        assert_eq!(
            (text(b"a\xe4b"), split(b"a/b/c"), split(b"c")),
            ("a\\xe4b".into(), (&b"a/b"[..], &b"c"[..]), (&b""[..], &b"c"[..]))
        );
    }
}
