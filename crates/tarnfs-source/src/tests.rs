//! What each source passes on to the one that it stands on, and what it answers itself.

use super::*;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

/// Ten digits that are two decoders deep, with a hole behind the third; says what was asked of it.
#[derive(Debug, Default)]
struct Asked {
    calls: Mutex<Vec<(&'static str, u64, u64)>>,
    is_busy: bool,
}

impl Asked {
    fn note(&self, what: &'static str, offset: u64, length: u64) {
        self.calls.lock().unwrap().push((what, offset, length));
    }

    fn calls(&self) -> Vec<(&'static str, u64, u64)> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

impl Source for Asked {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.note("read", offset, buffer.len() as u64);
        MemorySource::new(*b"0123456789", "").read_at(buffer, offset)
    }

    fn read_before(&self, buffer: &mut [u8], offset: u64, end: u64) -> io::Result<usize> {
        self.note("end", offset, end);
        self.read_at(buffer, offset)
    }

    fn len(&self) -> u64 {
        10
    }

    fn describe(&self) -> String {
        "digits".to_owned()
    }

    fn depth(&self) -> usize {
        2
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        (offset < 3).then_some(offset.max(2))
    }

    fn next_hole(&self, offset: u64) -> u64 {
        offset.max(3)
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.note("prefetch", offset, length);
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        self.note("ready", offset, length as u64);
        !self.is_busy
    }

    fn is_unproven(&self) -> bool {
        true
    }

    fn verify(&self, _: &dyn Fn() -> bool) -> io::Result<()> {
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Digit 4 could not be read.
    fn is_filled(&self, range: Range<u64>) -> bool {
        range.contains(&4)
    }
}

/// What is shown in place of bytes that could not be read is known as that through all that stands on it.
#[test]
fn what_is_filled_is_known_through_all_sources() {
    let whole: SharedSource = Arc::new(Asked::default());
    let part = |from, length| Arc::new(Slice::new(Arc::clone(&whole), from, length)) as SharedSource;
    let joined = Joined::new(vec![part(7, 3), part(2, 5)], "parts".to_owned()).unwrap();
    let map = [(2, 3, 0), (8, 3, 1)].map(|(offset, length, skip)| Extent { offset, length, skip });
    let sparse = Stencil::new(Arc::clone(&whole), map, 12).unwrap();
    let sources: [(&dyn Source, u64); 4] =
        [(&Strict::new(Arc::clone(&whole)), 4), (&*part(3, 4), 1), (&joined, 5), (&sparse, 8)];
    for (source, filled) in sources {
        for byte in 0..source.len() {
            assert_eq!(source.is_filled(byte..byte + 1), byte == filled, "byte {byte} of {}", source.describe());
        }
        assert!(source.is_filled(0..u64::MAX) && !source.is_filled(filled + 1..u64::MAX));
    }
    // A part that ends before is asked for no more.
    assert!(!part(0, 4).is_filled(0..100));
}

#[test]
fn what_a_source_need_not_say_is_what_holds_for_most() {
    let source = MemorySource::new(*b"0123456789", "digits");
    assert_eq!((source.len(), source.depth(), source.describe().as_str()), (10, 0, "digits"));
    let mut buffer = [0; 4];
    source.read_exact_at(&mut buffer, 6).unwrap();
    assert_eq!(&buffer, b"6789");
    let error = source.read_exact_at(&mut buffer, 7).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(error.to_string(), "digits: ends at byte 10, 4 bytes were asked for at 7");
    assert_eq!(source.read_before(&mut buffer, 1, 3).unwrap(), 4);
    assert_eq!(&buffer, b"1234");
    assert_eq!([0, 9, 10, 11].map(|offset| source.next_data(offset)), [Some(0), Some(9), None, None]);
    assert_eq!([0, 9, 10, 11].map(|offset| source.next_hole(offset)), [10, 10, 10, 11]);
    assert!(source.is_ready(0, 10));
    assert!(source.backing_file().is_none() && !source.is_unproven());
    source.verify(&|| false).unwrap();
    source.prefetch(0, 10);
    assert_eq!((source.read_at(&mut buffer, u64::MAX).unwrap(), source.read_at(&mut buffer, 10).unwrap()), (0, 0));
}

#[test]
fn a_slice_asks_for_its_part_alone() {
    let whole = Arc::new(Asked::default());
    let part = Slice::new(whole.clone(), 3, 4);
    assert!(part.is_unproven() && part.verify(&|| false).is_err());
    assert_eq!((part.len(), part.depth(), part.describe().as_str()), (4, 2, "digits at byte 3"));
    assert_eq!(part.read_at(&mut [0; 8], 1).unwrap(), 3);
    // Nothing behind its end need be read ahead.
    assert_eq!(whole.calls(), [("end", 4, 7), ("read", 4, 3)]);
    part.prefetch(1, 100);
    part.prefetch(2, 1);
    part.prefetch(4, 1);
    part.prefetch(5, 1);
    assert_eq!(whole.calls(), [("prefetch", 4, 3), ("prefetch", 5, 1)]);
    assert!(part.is_ready(1, 100) && part.is_ready(0, 2));
    assert_eq!(whole.calls(), [("ready", 4, 3), ("ready", 3, 2)]);
    let busy = Arc::new(Asked { is_busy: true, ..Asked::default() });
    let part = Slice::new(busy.clone(), 3, 4);
    assert!(!part.is_ready(3, 1));
    // There is nothing to wait for.
    assert!(part.is_ready(4, 1) && part.is_ready(0, 0));
    assert_eq!(busy.calls(), [("ready", 6, 1)]);
}

#[test]
fn a_sparse_file_asks_for_what_is_stored_of_it() {
    let stencil = |packed: Arc<Asked>| {
        let map = [(2, 3, 0), (8, 3, 1)].map(|(offset, length, skip)| Extent { offset, length, skip });
        Stencil::new(packed, map, 12).unwrap()
    };
    let packed = Arc::new(Asked::default());
    let sparse = stencil(packed.clone());
    assert!(sparse.is_unproven() && sparse.verify(&|| false).is_err());
    assert_eq!((sparse.len(), sparse.depth(), sparse.describe().as_str()), (12, 2, "digits, sparse"));
    assert!(sparse.is_ready(3, 2));
    assert_eq!(packed.calls(), [("ready", 1, 2)]);
    assert!(sparse.is_ready(9, 100));
    assert_eq!(packed.calls(), [("ready", 5, 2)]);
    assert!(sparse.is_ready(4, 5));
    assert_eq!(packed.calls(), [("ready", 2, 1), ("ready", 4, 1)]);
    let busy = Arc::new(Asked { is_busy: true, ..Asked::default() });
    let sparse = stencil(busy.clone());
    // In a hole, and up to where the next extent begins, nothing is read.
    assert!(sparse.is_ready(0, 2) && sparse.is_ready(5, 3) && sparse.is_ready(11, 9));
    assert!(!sparse.is_ready(0, 3) && !sparse.is_ready(5, 4) && !sparse.is_ready(10, 1));
    // Two extents that touch have no hole between them.
    let map = [(2, 3), (5, 2)].map(|(offset, length)| Extent { offset, length, skip: 0 });
    let touching = Stencil::new(Arc::new(Asked::default()), map, 9).unwrap();
    assert_eq!((touching.next_hole(2), touching.next_hole(8), touching.next_hole(20)), (7, 8, 20));
}

#[test]
fn a_strict_source_passes_everything_on() {
    let whole = Arc::new(Asked::default());
    let strict = Strict::new(whole.clone());
    assert!(strict.is_unproven() && strict.verify(&|| false).is_err());
    assert_eq!((strict.len(), strict.depth(), strict.describe().as_str()), (10, 2, "digits"));
    assert_eq!([0, 2, 3].map(|offset| strict.next_data(offset)), [Some(2), Some(2), None]);
    assert_eq!([0, 4].map(|offset| strict.next_hole(offset)), [3, 4]);
    strict.prefetch(1, 2);
    assert!(strict.is_ready(3, 4));
    assert_eq!(whole.calls(), [("prefetch", 1, 2), ("ready", 3, 4)]);
    assert_eq!(strict.read_before(&mut [0; 4], 2, 7).unwrap(), 4);
    assert_eq!(whole.calls(), [("end", 2, 7), ("read", 2, 4)]);
    assert!(!Strict::new(Arc::new(Asked { is_busy: true, ..Asked::default() })).is_ready(0, 1));
}

/// A file with data from byte 1 MiB to 1 MiB + 64 KiB, in 4 MiB of hole.
fn sparse_file(folder: &tempfile::TempDir) -> std::path::PathBuf {
    let path = folder.path().join("sparse");
    let file = File::create(&path).unwrap();
    file.set_len(4 << 20).unwrap();
    file.write_all_at(&vec![7; 64 << 10], 1 << 20).unwrap();
    path
}

#[test]
fn a_followed_file_has_the_holes_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = sparse_file(&folder);
    let file = File::open(&path).unwrap();
    let descriptor = file.as_raw_fd();
    let source = FollowedFile::new(file, &path).unwrap();
    assert_eq!(source.describe(), path.display().to_string());
    assert_eq!(source.backing_file().unwrap().as_raw_fd(), descriptor);
    assert_eq!(std::os::fd::AsFd::as_fd(&source).as_raw_fd(), descriptor);
    // A file system without holes has data everywhere.
    if source.next_hole(0) == 0 {
        assert_eq!((source.next_data(0), source.next_hole(1 << 20)), (Some(1 << 20), (1 << 20) + (64 << 10)));
        assert_eq!(source.next_data(2 << 20), None);
    }
    assert_eq!((source.next_data(5 << 20), source.next_hole(5 << 20)), (None, 5 << 20));
    // Behind the end there is nothing to wait for.
    assert!(source.is_ready(4 << 20, 100) && source.is_ready(0, 0));
}

#[test]
fn a_file_says_which_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = sparse_file(&folder);
    let source = FileSource::open(&path).unwrap();
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!((source.path(), source.len(), source.describe()), (path.as_path(), 4 << 20, path.display().to_string()));
    let identity = source.identity();
    let since = |time: std::time::SystemTime| time.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i128;
    assert_eq!((identity.length, identity.modified), (4 << 20, since(metadata.modified().unwrap())));
    assert_eq!(identity, FileIdentity::of(&source).unwrap());
    let mut buffer = [0; 10];
    assert_eq!(source.read_at(&mut buffer, (1 << 20) - 5).unwrap(), 10);
    assert_eq!(buffer, [0, 0, 0, 0, 0, 7, 7, 7, 7, 7]);
    assert_eq!(source.read_at(&mut buffer, 4 << 20).unwrap(), 0);
    source.prefetch(0, 4 << 20);
    // A file system without holes has data everywhere.
    if source.next_hole(0) == 0 {
        assert_eq!((source.next_data(0), source.next_hole(1 << 20)), (Some(1 << 20), (1 << 20) + (64 << 10)));
        assert_eq!((source.next_data(2 << 20), source.next_hole(2 << 20)), (None, 2 << 20));
        // Also what is known from the last time.
        for offset in [5000_u64, 9000, 0, 100, (64 << 10) - 1, 1 << 12] {
            let at = (1 << 20) + offset;
            assert_eq!((source.next_data(at), source.next_hole(at)), (Some(at), (1 << 20) + (64 << 10)));
        }
        assert_eq!(
            (source.next_data((1 << 20) - 8192), source.next_hole((1 << 20) - 8192)),
            (Some(1 << 20), (1 << 20) - 8192)
        );
        assert_eq!((source.next_data((1 << 20) + (64 << 10)), source.next_hole(1 << 19)), (None, 1 << 19));
    }
    assert_eq!((source.next_hole(4 << 20), source.next_hole(9 << 20)), (4 << 20, 9 << 20));
    for (path, what) in [(folder.path(), "a folder"), (std::path::Path::new("/dev/null"), "a device")] {
        let error = FileSource::open(path).unwrap_err();
        assert!(error.to_string().ends_with(&format!("is {what}, not a file")), "{error}");
    }
    let fifo = folder.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert!(FileSource::open(&fifo).unwrap_err().to_string().contains("a fifo"));
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let error = FileSource::from_file(File::from(std::os::fd::OwnedFd::from(socket)), "a name").unwrap_err();
    assert_eq!(error.to_string(), "a name is a socket, not a file");
}

#[test]
fn a_temporary_file_has_no_name_and_is_this_users_alone() {
    use std::os::unix::fs::MetadataExt;
    let mut file = temporary_file().unwrap();
    file.write_all(b"some").unwrap();
    let mut buffer = [0; 4];
    file.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"some");
    let metadata = file.metadata().unwrap();
    assert_eq!((metadata.nlink(), metadata.mode() & 0o7777), (0, 0o600));
    assert!(rustix::io::fcntl_getfd(&file).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
}

#[test]
fn who_cancels_is_heard_by_all() {
    let cancel = Cancel::default();
    let other = cancel.clone();
    assert!(!other.is_cancelled() && other.check().is_ok());
    cancel.cancel();
    assert!(other.is_cancelled());
    assert_eq!(other.check().unwrap_err().kind(), io::ErrorKind::Interrupted);
}

#[test]
fn limits_are_those_of_linux_and_of_the_programs_that_write_archives() {
    let limits = Limits::default();
    assert_eq!(limits, Limits::DEFAULT);
    // XATTR_SIZE_MAX and NAME_MAX of Linux; the window that zstd's command takes; twenty times the dictionary of `xz
    // -9`.
    assert_eq!((limits.xattr_value, limits.name, limits.decoder_window), (65_536, 255, 134_217_728));
    assert!(limits.lzma_dictionary >= 20 * (64 << 20) && limits.lzma_dictionary < u64::from(u32::MAX));
    // Sixteen times PATH_MAX; what one entry may make somebody keep.
    assert_eq!((limits.path, limits.extended_header, limits.sparse_extents), (65_536, 16_777_216, 4_194_304));
    assert_eq!(limits.nested, 131_072);
}
