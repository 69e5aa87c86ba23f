//! Is the header of an entry still where an older index says? Samples of an archive's bytes cannot show every change of
//! it, so the headers of an entry are read again when it is opened, and compared with what the index says.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tarnfs_format::encoding::Encoding;
use tarnfs_format::{
    Decode, Entry, Event, Kind, Options, ReadForwards, SourceStream, Stream, name, stream::MOST_PEEKED,
};
use tarnfs_index::{Row, Summary};
use tarnfs_source::{Cancel, Limits, Setting, SharedSource, Slice};

/// What headers are read with.
#[derive(Debug)]
pub(crate) struct Recheck {
    /// First that of the archive; the others of archives that lie in it as they are.
    formats: Vec<Reader>,
    encoding: Option<Encoding>,
    options: Options,
    is_transformed: bool,
    /// What is compared is said by a sidecar of ratarmount: names, types and lengths.
    is_sidecar: bool,
    /// One bit for each of the first nodes: whether its headers were found to be right. What changes from then on the
    /// source notices.
    right: Box<[AtomicU64]>,
}

/// A format, for `Debug`.
struct Reader(&'static dyn ReadForwards);

impl std::fmt::Debug for Reader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Reader")
    }
}

/// Nodes of which it is remembered that they were checked: one megabyte of bits. Others are checked at each opening.
const MOST_REMEMBERED: u64 = 8 << 20;

/// Headers of more bytes than this are read piece by piece.
const AT_ONCE: u64 = 64 << 10;

impl Recheck {
    /// True if a sidecar of ratarmount describes the archive.
    pub(crate) fn is_of_sidecar(&self) -> bool {
        self.is_sidecar
    }

    /// For an archive that is described so, by a sidecar of ratarmount if `is_sidecar`; `None` if headers cannot be
    /// read again as they were read first.
    pub(crate) fn new(summary: &Summary, limits: &Limits, is_sidecar: bool) -> Option<Self> {
        let shape = &summary.shape;
        let encoding = match &shape.encoding {
            Some(name) => Some(Encoding::for_name(name)?),
            None => None,
        };
        let options = Options {
            // Only what is there at once is wanted: nothing is searched for.
            limits: Limits { resynchronise: 0, ..*limits },
            ignore_zeros: shape.ignore_zeros,
            gnu_incremental: shape.gnu_incremental,
            guess_encoding: shape.encoding.is_none(),
            encoding,
            cancel: Cancel::default(),
            shares: 1,
            decode: Decode::default(),
        };
        let own = tarnfs_format::by_name(&summary.format)?;
        let others = tarnfs_format::FORMATS.iter().copied().filter(|format| format.name() != own.name());
        let others = others.filter_map(|format| format.forwards());
        let formats = std::iter::once(own.forwards()?).chain(others).map(Reader).collect();
        let nodes = summary.files.saturating_add(summary.folders).min(MOST_REMEMBERED);
        let right = (0..=nodes / 64).map(|_| AtomicU64::new(0)).collect();
        Some(Self { formats, encoding, options, is_transformed: shape.transform.is_some(), is_sidecar, right })
    }

    /// `StaleNetworkFileHandle` (ESTALE) if the headers before the content of the file `row`, whose entry has the name
    /// `name`, are not those that were indexed.
    pub(crate) fn check(&self, stream: &SharedSource, row: &Row, name: &[u8]) -> io::Result<()> {
        // What lies in pieces behind headers of its own is looked for there.
        let Some(header) = row.header.filter(|_| row.stream == 0 && !row.has_pieces) else { return Ok(()) };
        // What has no header of its own: it lies behind the end of an archive.
        if header == row.body {
            return Ok(());
        }
        let bit = 1 << (row.node.0 % 64);
        let remembered = usize::try_from(row.node.0 / 64).ok().and_then(|word| self.right.get(word));
        if remembered.is_some_and(|word| word.load(Ordering::Relaxed) & bit != 0) {
            return Ok(());
        }
        for format in &self.formats {
            let entry = self.entry_at(format, stream, header, row.body.saturating_sub(header))?;
            if !entry.is_some_and(|entry| self.is_same(&entry, header, row, name)) {
                continue;
            }
            if let Some(word) = remembered {
                word.fetch_or(bit, Ordering::Relaxed);
            }
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::StaleNetworkFileHandle,
            format!(
                "{} has changed since its index was made: at byte {header} is no longer the header of {}; \
                 unmount it and mount it again with {}",
                stream.describe(),
                name::escape(name),
                Setting::RecreateIndex
            ),
        ))
    }

    /// The entry whose headers are the `length` bytes from `header`.
    fn entry_at(&self, format: &Reader, stream: &SharedSource, header: u64, length: u64) -> io::Result<Option<Entry>> {
        let mut first = None;
        let mut receive = |event, _: &mut dyn Stream| match event {
            Event::Entry(entry) => {
                first = Some(*entry);
                // Nothing behind it is wanted.
                Err(io::ErrorKind::Interrupted.into())
            }
            _ => Ok(()),
        };
        let read = if length <= AT_ONCE {
            let mut bytes = vec![0; length as usize];
            stream.read_exact_at(&mut bytes, header)?;
            format.0.read(&mut Bytes { bytes: &bytes, at: 0 }, &self.options, &mut receive)
        } else {
            let part = Slice::new(Arc::clone(stream), header, length);
            let mut part = SourceStream::new(Arc::new(part), Cancel::default());
            format.0.read(&mut part, &self.options, &mut receive)
        };
        match read {
            Err(tarnfs_format::Error::Read { error, .. }) => Err(error),
            // Ended behind the entry, or there was none.
            _ => Ok(first),
        }
    }

    fn is_same(&self, entry: &Entry, header: u64, row: &Row, name: &[u8]) -> bool {
        if entry.kind != Kind::File || Some(entry.body.offset) != row.body.checked_sub(header) {
            return false;
        }
        // Owners and times may come from a header for all entries, and a sidecar does not say whether there is one.
        if self.is_sidecar {
            return entry.body.size == row.size && self.has_name(entry, name);
        }
        // What a header for all entries says of this one cannot be seen here.
        if row.inherits {
            return true;
        }
        let owner = |number: u64| u32::try_from(number).unwrap_or(tarnfs_index::OVERFLOWN_OWNER);
        // Permission bits that may come from an ACL depend on whom this machine knows, and whether this process may ask
        // for that.
        let bits = if entry.has_acl_text { 0o7000 } else { 0o7777 };
        let same_attributes = entry.body.size == row.size
            && entry.mode & bits == row.mode & bits
            && owner(entry.uid) == row.uid
            && owner(entry.gid) == row.gid
            && entry.mtime == row.mtime;
        // What a name became that was changed by an expression cannot be told from the header alone.
        same_attributes && (self.is_transformed || self.has_name(entry, name))
    }

    fn has_name(&self, entry: &Entry, name: &[u8]) -> bool {
        let path = crate::build::converted(self.encoding.as_ref(), &entry.path);
        let components = name::components(&path, &self.options.limits);
        let last = components.iter().last().unwrap_or_default();
        // Behind the path of an archive in the archive, a path may have too many components. Then a hash of both is
        // in the name.
        let start = name::before_hash(name);
        // It has its own way to write what is not UTF-8.
        if self.is_sidecar && std::str::from_utf8(last).is_err() {
            return true;
        }
        last == name || start.is_some_and(|start| last == start || name::before_hash(last) == Some(start))
    }
}

/// Bytes in memory as a stream.
struct Bytes<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Stream for Bytes<'_> {
    fn position(&self) -> u64 {
        self.at as u64
    }

    fn peek(&mut self, length: usize) -> io::Result<&[u8]> {
        if length > MOST_PEEKED {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let rest = &self.bytes[self.at..];
        Ok(&rest[..rest.len().min(length)])
    }

    fn skip(&mut self, length: u64) -> io::Result<u64> {
        let step = length.min((self.bytes.len() - self.at) as u64);
        self.at += step as usize;
        Ok(step)
    }
}

#[cfg(test)]
mod tests {
    use tarnfs_index::{Archive, Node};
    use tarnfs_source::{Fingerprint, MemorySource};

    use super::*;

    /// The header of a file, with these bytes in place of what stands there.
    fn header(changes: &[(usize, &[u8])]) -> Vec<u8> {
        let mut header = vec![0_u8; 512];
        let fields: [(usize, &[u8]); 8] = [
            (0, b"d/name"),
            (100, b"0000644"),
            (108, b"0000005"),
            (116, b"0000006"),
            (124, b"00000000100"),
            (136, b"00000000007"),
            (156, b"0"),
            (257, b"ustar\x0000"),
        ];
        for (at, bytes) in fields.iter().chain(changes) {
            header[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        header.resize(1024, 7);
        header
    }

    fn row() -> Row {
        let mtime = tarnfs_format::Time { seconds: 7, nanoseconds: 0 };
        Row {
            node: Node(70),
            kind: Kind::File,
            mode: 0o644,
            uid: 5,
            gid: 6,
            links: 1,
            size: 64,
            mtime,
            atime: mtime,
            ctime: mtime,
            stream: 0,
            header: Some(0),
            body: 512,
            is_sparse: false,
            has_pieces: false,
            has_xattrs: false,
            inherits: false,
        }
    }

    fn recheck(is_sidecar: bool, transform: Option<(String, String)>) -> Recheck {
        let archive = Archive { length: 1024, fingerprint: Fingerprint(0), modified: 0 };
        let mut summary = Summary { files: 100, ..Summary::new(archive, "tar") };
        summary.shape.transform = transform;
        Recheck::new(&summary, &Limits::default(), is_sidecar).unwrap()
    }

    /// True if the header is the one that was indexed. Any other answer than that it has changed fails the test.
    fn is_right(recheck: &Recheck, header: Vec<u8>, row: &Row, name: &[u8]) -> bool {
        let stream: SharedSource = Arc::new(MemorySource::new(header, "archive"));
        match recheck.check(&stream, row, name) {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::StaleNetworkFileHandle, "{error}");
                false
            }
        }
    }

    #[test]
    fn a_header_is_that_of_the_row() {
        let inherits = Row { inherits: true, ..row() };
        // Of a row, of one that another header says something of, of a sidecar.
        for (what, at, bytes, expected) in [
            ("nothing", 0, &b""[..], [true, true, true]),
            ("name", 5, b"f", [false, true, false]),
            // Only the last component is compared: folders may have been renamed by options.
            ("folder", 0, b"e", [true, true, true]),
            ("mode", 106, b"5", [false, true, true]),
            ("setuid", 103, b"4", [false, true, true]),
            ("uid", 114, b"4", [false, true, true]),
            ("gid", 122, b"4", [false, true, true]),
            ("size", 134, b"1", [false, true, false]),
            ("mtime", 146, b"6", [false, true, true]),
            ("kind", 156, b"5", [false, false, false]),
            ("link", 156, b"2", [false, false, false]),
        ] {
            let changed = || header(&[(at, bytes)]);
            let found = [
                is_right(&recheck(false, None), changed(), &row(), b"name"),
                is_right(&recheck(false, None), changed(), &inherits, b"name"),
                is_right(&recheck(true, None), changed(), &row(), b"name"),
            ];
            assert_eq!(found, expected, "{what}");
        }
        for is_sidecar in [false, true] {
            let recheck = || recheck(is_sidecar, None);
            assert!(!is_right(&recheck(), vec![0; 1024], &row(), b"name"), "no header");
            assert!(!is_right(&recheck(), vec![7; 1024], &row(), b"name"), "other bytes");
            assert!(!is_right(&recheck(), header(&[]), &Row { body: 513, ..row() }, b"name"), "elsewhere");
            assert!(!is_right(&recheck(), header(&[]), &row(), b"other"), "another name");
        }
        // What an expression has made of a name cannot be told from the header.
        let renamed = || recheck(false, Some(("a".to_owned(), "b".to_owned())));
        assert!(is_right(&renamed(), header(&[]), &row(), b"other"));
        assert!(!is_right(&renamed(), header(&[(106, b"5")]), &row(), b"other"));
        // An owner that no system has.
        let large = || header(&[(108, &[0x80, 0, 0, 1, 0, 0, 0, 0])]);
        let overflown = Row { uid: tarnfs_index::OVERFLOWN_OWNER, ..row() };
        assert!(is_right(&recheck(false, None), large(), &overflown, b"name"));
        assert!(!is_right(&recheck(false, None), large(), &row(), b"name"));
    }

    /// What lies elsewhere, or behind headers of its own, is none of this.
    #[test]
    fn what_has_no_header_there_is_not_compared() {
        let zeros = || vec![0; 1024];
        for row in [
            Row { header: None, ..row() },
            Row { stream: 1024, ..row() },
            Row { has_pieces: true, ..row() },
            Row { body: 0, ..row() },
        ] {
            assert!(is_right(&recheck(false, None), zeros(), &row, b"name"));
        }
    }

    /// A file is looked at once, and each for itself.
    #[test]
    fn what_was_right_is_remembered() {
        let recheck = recheck(false, None);
        let changed = || header(&[(5, b"f")]);
        assert!(!is_right(&recheck, changed(), &row(), b"name"));
        assert!(is_right(&recheck, header(&[]), &row(), b"name"));
        assert!(is_right(&recheck, changed(), &row(), b"name"));
        for node in [0, 6, 69, 71, 134, 70 + (1 << 40)] {
            let other = Row { node: Node(node), ..row() };
            assert!(!is_right(&recheck, changed(), &other, b"name"), "{node}");
            // Behind those that are remembered, each is looked at each time.
            assert!(is_right(&recheck, header(&[]), &other, b"name"));
            assert_eq!(is_right(&recheck, changed(), &other, b"name"), node < 128, "{node}");
        }
    }

    /// An extended header may be longer than what is read at once.
    #[test]
    fn long_headers_are_read_as_well() {
        let record = |length: usize| {
            let value = "x".repeat(length);
            let mut record = format!(" comment={value}\n");
            // Its own length, in digits that count.
            let digits = (record.len() + 5).to_string().len();
            record = format!("{}{record}", record.len() + digits);
            record.into_bytes()
        };
        for length in [100, 70_000, 200_000] {
            let record = record(length);
            let size = format!("{:011o}", record.len());
            let mut archive = header(&[(156, b"x"), (124, size.as_bytes())]);
            archive.truncate(512);
            archive.extend(&record);
            archive.resize(archive.len().next_multiple_of(512), 0);
            let body = archive.len() as u64 + 512;
            for (is_same, changes) in [(true, &[][..]), (false, &[(5, &b"f"[..])])] {
                let archive = [archive.clone(), header(changes)].concat();
                let found = is_right(&recheck(false, None), archive, &Row { body, ..row() }, b"name");
                assert_eq!(found, is_same, "{length}");
            }
        }
    }
}
