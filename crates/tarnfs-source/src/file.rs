use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use rustix::fs::{Advice, FileType, Mode, OFlags, SeekFrom, fadvise, fstat, open, seek, tell};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::{FileIdentity, Fingerprint, Source};

/// What the system refuses (a ticket of a server that has run out: EACCES) says nothing about the bytes. So it has none
/// of the kinds that say that these are damaged, encrypted or of a kind that is not known.
pub fn of_system(error: io::Error, path: &Path, offset: u64) -> io::Error {
    use io::ErrorKind::{InvalidData, PermissionDenied, UnexpectedEof, Unsupported};
    match error.kind() {
        InvalidData | PermissionDenied | UnexpectedEof | Unsupported => {
            io::Error::other(format!("{}: byte {offset} cannot be read: {error}", path.display()))
        }
        _ => error,
    }
}

/// A regular file, read with `pread`. Never mapped: a file cut short under a mapping kills the process.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    path: PathBuf,
    length: u64,
    /// The state of the file in which its bytes are believed.
    seen: Mutex<Seen>,
    /// Where data were found last. The system looks at each extent up to the next hole, which may be very far: it need
    /// not do so for each member of an archive.
    data: Mutex<Range<u64>>,
}

#[derive(Debug)]
struct Seen {
    identity: FileIdentity,
    /// Of the bytes when the file was opened; made when first needed is too late, so made at [`FileSource::watch`].
    fingerprint: Option<Fingerprint>,
    /// What a change of the inode alone leaves a trace in.
    inode: Inode,
    /// What is read is verified by whoever reads it.
    is_verified: bool,
    stale: bool,
}

/// What of a file changes without its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Inode {
    mode: u32,
    owner: (u32, u32),
    links: u64,
    /// Where the system says that the file lies now, if it says so.
    name: Option<PathBuf>,
}

impl Inode {
    fn of(file: &File) -> io::Result<Self> {
        let stat = fstat(file)?;
        let name = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok();
        Ok(Self { mode: stat.st_mode, owner: (stat.st_uid, stat.st_gid), links: stat.st_nlink as u64, name })
    }
}

impl FileSource {
    /// Opens the regular file at `path`. A folder, device or fifo is `InvalidInput`, and opening never waits for one.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        // NONBLOCK: a fifo would wait for its writer. It means nothing for regular files.
        let file = File::from(open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?);
        Self::from_file(file, path)
    }

    /// Takes an open file; `path` is only for messages.
    pub fn from_file(file: File, path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let kind = FileType::from_raw_mode(fstat(&file)?.st_mode);
        if kind != FileType::RegularFile {
            let kind = match kind {
                FileType::Directory => "a folder",
                FileType::Fifo => "a fifo",
                FileType::Socket => "a socket",
                _ => "a device",
            };
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{} is {kind}, not a file", path.display()),
            ));
        }
        let identity = FileIdentity::of(&file)?;
        let inode = Inode::of(&file)?;
        let seen = Mutex::new(Seen { identity, fingerprint: None, inode, is_verified: false, stale: false });
        Ok(Self { file, path, length: identity.length, seen, data: Mutex::default() })
    }

    /// The path given at opening.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The identity of the file when it was opened, or when it was last found to hold the same bytes.
    pub fn identity(&self) -> FileIdentity {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).identity
    }

    /// From here on, a change of the inode alone (a rename, a chmod, a new hard link) is told from a change of the
    /// bytes by comparing with `fingerprint`. Without it every change makes the source stale. Samples miss much: where
    /// name, mode, owner and number of links are what they were, the bytes are taken for changed, unless what is read
    /// is verified ([`FileSource::is_verified_by_reader`]).
    pub fn watch(&self, fingerprint: Fingerprint) {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).fingerprint = Some(fingerprint);
    }

    /// Whoever reads from now on has checksums of it.
    pub fn is_verified_by_reader(&self) {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).is_verified = true;
    }

    /// ESTALE if the file no longer is what was opened. Called after each read: what was read before a change that
    /// this call does not see yet, was read before the change.
    fn check_unchanged(&self) -> io::Result<()> {
        let now = FileIdentity::of(&self.file)?;
        let mut seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !seen.stale && (now == seen.identity || self.has_same_bytes(&mut seen)?) {
            return Ok(());
        }
        seen.stale = true;
        Err(io::Error::new(
            io::ErrorKind::StaleNetworkFileHandle,
            format!("{} has changed since it was opened: unmount it and mount it again", self.path.display()),
        ))
    }
}

impl FileSource {
    /// What is known to be no hole.
    fn known_data(&self) -> Range<u64> {
        self.data.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Where the system finds that, `None` where it says that there is nothing more, and `otherwise` on any other
    /// error: a read says what is wrong.
    fn sought(&self, to: SeekFrom, otherwise: u64) -> Option<u64> {
        // The position may be that of the standard input of whoever has started this program: it is put back.
        let Ok(position) = tell(&self.file) else { return Some(otherwise) };
        let found = match seek(&self.file, to) {
            Err(Errno::NXIO) => None,
            found => Some(found.unwrap_or(otherwise)),
        };
        let _ = seek(&self.file, SeekFrom::Start(position));
        found
    }

    /// Whether the file has the bytes still that it had, though its inode has changed. What it is now is noted then.
    fn has_same_bytes(&self, seen: &mut Seen) -> io::Result<bool> {
        /// Looks between which something changes each time: somebody writes all the time.
        const MOST_LOOKS: u32 = 1000;
        /// A rename gives the new time first, and the new name soon after it. Each wait is twice as long as the one
        /// before; together they are 63 ms, and only what is stale waits for all of them.
        const MOST_WAITS: u32 = 6;
        let (mut looks, mut waits) = (0, 0);
        while looks < MOST_LOOKS && waits <= MOST_WAITS {
            looks += 1;
            // Again, now that no other thread notes anything: it may have noted what came later.
            let now = FileIdentity::of(&self.file)?;
            if now == seen.identity {
                return Ok(true);
            }
            let same_content = now.length == seen.identity.length && now.modified == seen.identity.modified;
            if !same_content || seen.fingerprint.is_none() {
                return Ok(false);
            }
            let inode = Inode::of(&self.file)?;
            if FileIdentity::of(&self.file)? != now {
                // The inode is not that of this time.
                continue;
            }
            if seen.is_verified || inode != seen.inode {
                let is_same = seen.fingerprint == Some(Fingerprint::of(&Unchecked(self))?);
                if is_same {
                    (seen.identity, seen.inode) = (now, inode);
                }
                return Ok(is_same);
            }
            if waits < MOST_WAITS {
                std::thread::sleep(Duration::from_millis(1 << waits));
            }
            waits += 1;
        }
        Ok(false)
    }
}

impl AsFd for FileSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Fills `buffer` from `offset` on, or what of it lies before the end of the file.
pub(crate) fn read_fully(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Whether both ends of `offset..end` are in the page cache: what is not may take long, on a disk that sleeps or a
/// server that does not answer.
pub(crate) fn is_cached(file: &File, offset: u64, end: u64) -> bool {
    /// Read from the disk as one piece, so one page stands for it.
    const SHORT: u64 = 64 << 10;
    if end <= offset {
        return true;
    }
    let is_cached = |at| {
        let mut byte = [0];
        // A file system that cannot say is one that may be slow.
        matches!(preadv2(file, &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT), Ok(1))
    };
    is_cached(offset) && (end - offset <= SHORT || is_cached(end - 1))
}

/// The file without the check for changes, for the check itself.
#[derive(Debug)]
struct Unchecked<'a>(&'a FileSource);

impl Source for Unchecked<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let path = &self.0.path;
        let wanted = self.0.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        match read_fully(&self.0.file, &mut buffer[..wanted], offset).map_err(|error| of_system(error, path, offset))? {
            read if read == wanted => Ok(read),
            // A server in trouble may answer so. Not `UnexpectedEof`, which says of a stream that it is cut: the next
            // answer may be another one.
            read => {
                let path = path.display();
                Err(io::Error::other(format!("{path}: only {read} of {wanted} bytes could be read at byte {offset}")))
            }
        }
    }

    fn len(&self) -> u64 {
        self.0.length
    }

    fn describe(&self) -> String {
        self.0.path.display().to_string()
    }
}

impl Source for FileSource {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let wanted = self.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        if wanted == 0 {
            return Ok(0);
        }
        let read = Unchecked(self).read_at(&mut buffer[..wanted], offset);
        self.check_unchanged()?;
        read
    }

    fn len(&self) -> u64 {
        self.length
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }

    fn file_range(&self) -> Option<(BorrowedFd<'_>, u64)> {
        Some((self.file.as_fd(), 0))
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        if offset >= self.length {
            return None;
        }
        // Nothing is a hole that was cut off, or of which nobody knows: a read says what is wrong.
        if self.check_unchanged().is_err() || self.known_data().contains(&offset) {
            return Some(offset);
        }
        let data = self.sought(SeekFrom::Data(offset), offset).filter(|&data| data < self.length)?;
        // Whoever goes from one member of an archive to the next asks again and again.
        self.next_hole(data);
        Some(data)
    }

    fn next_hole(&self, offset: u64) -> u64 {
        if offset >= self.length || self.check_unchanged().is_err() {
            return self.length.max(offset);
        }
        let known = self.known_data();
        if known.contains(&offset) {
            return known.end;
        }
        let hole = self.sought(SeekFrom::Hole(offset), self.length).unwrap_or(self.length).min(self.length).max(offset);
        let start = if known.end == hole { known.start.min(offset) } else { offset };
        *self.data.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = start..hole;
        hole
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        is_cached(&self.file, offset, offset.saturating_add(length as u64).min(self.length))
    }

    fn prefetch(&self, offset: u64, length: u64) {
        // To the kernel no length is all that follows. An advice that it does not take changes nothing.
        if let Some(length) = std::num::NonZeroU64::new(length) {
            let _ = fadvise(&self.file, offset, Some(length), Advice::WillNeed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};

    #[test]
    fn holes_are_known_and_the_position_stays() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 4096]).unwrap();
        // Ten gigabytes, and a byte at their end.
        file.set_len(10 << 30).unwrap();
        file.write_all_at(&[1], (10 << 30) - 1).unwrap();
        let source = FileSource::from_file(file.try_clone().unwrap(), "a").unwrap();
        let data = source.next_data(1 << 20).unwrap();
        assert!((9 << 30..10 << 30).contains(&data), "{data}");
        assert_eq!([0, 10 << 30, u64::MAX].map(|offset| source.next_data(offset)), [Some(0), None, None]);
        assert_eq!(file.stream_position().unwrap(), 4096);
    }

    #[test]
    fn a_changed_file_is_stale_and_a_renamed_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, vec![7; 100_000]).unwrap();
        let source = FileSource::open(&path).unwrap();
        source.watch(Fingerprint::of(&source).unwrap());
        let mut buffer = [0; 10];
        std::fs::rename(&path, folder.path().join("b")).unwrap();
        assert_eq!(source.read_at(&mut buffer, 99_995).unwrap(), 5);
        let mut writer = std::fs::OpenOptions::new().write(true).open(folder.path().join("b")).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        writer.seek(io::SeekFrom::Start(50_000)).unwrap();
        writer.write_all(b"other").unwrap();
        assert_eq!(source.read_at(&mut buffer, 0).unwrap_err().kind(), io::ErrorKind::StaleNetworkFileHandle);
    }

    /// Writes other bytes of the same length over the file, and gives it the time back that it had.
    fn overwrite(path: &Path) {
        let before = FileIdentity::of(&File::open(path).unwrap()).unwrap();
        let times = std::fs::metadata(path).unwrap().modified().unwrap();
        let writer = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        // The clock of a file system goes in steps: again, until it says that the inode has changed.
        loop {
            writer.write_all_at(&vec![8; before.length as usize], 0).unwrap();
            writer.set_modified(times).unwrap();
            let now = FileIdentity::of(&writer).unwrap();
            assert_eq!((now.length, now.modified), (before.length, before.modified));
            if now.changed != before.changed {
                return;
            }
        }
    }

    #[test]
    fn a_file_that_was_overwritten_and_got_its_time_back_is_stale() {
        for watched in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a");
            std::fs::write(&path, vec![7; 50_000]).unwrap();
            let source = FileSource::open(&path).unwrap();
            if watched {
                source.watch(Fingerprint::of(&source).unwrap());
            }
            let mut buffer = [0; 10];
            assert_eq!(source.read_at(&mut buffer, 100).unwrap(), 10);
            overwrite(&path);
            for _ in 0..2 {
                let error = source.read_at(&mut buffer, 100).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::StaleNetworkFileHandle, "watched: {watched}");
            }
        }
    }

    /// Samples do not see every change, so they only tell of a file whose inode has changed in a way that can be seen.
    #[test]
    fn a_change_that_samples_miss_makes_a_file_stale_unless_who_reads_verifies_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let opened = |is_verified: bool| {
            std::fs::write(&path, vec![8; 500_000]).unwrap();
            let source = FileSource::open(&path).unwrap();
            source.watch(Fingerprint::of(&source).unwrap());
            if is_verified {
                source.is_verified_by_reader();
            }
            source
        };
        let read = |source: &FileSource| source.read_at(&mut [0; 10], 100);
        for is_verified in [false, true] {
            let source = opened(is_verified);
            // The same bytes are what no sample can tell.
            overwrite(&path);
            let found = read(&source).map_err(|error| error.kind());
            assert_eq!(found, if is_verified { Ok(10) } else { Err(io::ErrorKind::StaleNetworkFileHandle) });
        }
        // Each of these is a change of the inode alone, and what follows it is none.
        let source = opened(false);
        let moved = folder.path().join("b");
        let steps: [&dyn Fn() -> io::Result<()>; 4] = [
            &|| std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o640)),
            &|| std::fs::hard_link(&path, folder.path().join("c")),
            &|| std::fs::rename(&path, &moved),
            &|| std::fs::remove_file(&moved),
        ];
        for step in steps {
            step().unwrap();
            assert_eq!(read(&source).unwrap(), 10);
        }
        overwrite(&folder.path().join("c"));
        assert_eq!(read(&source).unwrap_err().kind(), io::ErrorKind::StaleNetworkFileHandle);
    }

    /// Renamed by another thread all the time, while several read.
    #[test]
    fn a_file_that_is_renamed_again_and_again_is_never_stale() {
        const READERS: usize = 4;
        const RENAMES: u32 = 3000;
        let folder = tempfile::tempdir().unwrap();
        let mut path = folder.path().join("a");
        std::fs::write(&path, vec![7; 100_000]).unwrap();
        let source = FileSource::open(&path).unwrap();
        source.watch(Fingerprint::of(&source).unwrap());
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let read = || {
            let mut reads = 0_u64;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                source.read_exact_at(&mut [0; 10], 100)?;
                reads += 1;
            }
            io::Result::Ok(reads)
        };
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(read)).collect();
            for number in 0..RENAMES {
                // Each name once: what has the name back that it had may have other bytes.
                let next = folder.path().join(number.to_string());
                std::fs::rename(&path, &next).unwrap();
                path = next;
                std::thread::yield_now();
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            for reader in readers {
                reader.join().unwrap().unwrap();
            }
        });
        assert_eq!(source.read_at(&mut [0; 10], 100).unwrap(), 10);
    }

    #[test]
    fn a_file_that_was_cut_is_an_error_and_no_short_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, vec![7; 50_000]).unwrap();
        let mut buffer = [0; 10];
        let source = FileSource::open(&path).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(20_000).unwrap();
        for offset in [10, 19_995, 20_000, 49_990] {
            let error = source.read_at(&mut buffer, offset).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StaleNetworkFileHandle, "{offset}");
        }
        // Where the file does not look changed, as between the read and the look at it.
        let source = FileSource { length: 50_000, ..FileSource::open(&path).unwrap() };
        assert_eq!(source.read_at(&mut buffer, 10).unwrap(), 10);
        for offset in [19_995, 20_000, 49_990] {
            let error = source.read_at(&mut buffer, offset).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Other, "it says nothing of the bytes: {offset}");
        }
    }

    #[test]
    fn what_is_not_in_the_page_cache_is_not_ready() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, vec![7; 100_000]).unwrap();
        let source = FileSource::open(&path).unwrap();
        let mut buffer = vec![0; 100_000];
        source.read_exact_at(&mut buffer, 0).unwrap();
        if !source.is_ready(0, 100_000) {
            // This file system cannot say.
            return;
        }
        assert!(source.is_ready(99_999, 10) && source.is_ready(100_000, 10) && source.is_ready(7, 0));
        rustix::fs::fsync(&source.file).unwrap();
        fadvise(&source.file, 0, None, Advice::DontNeed).unwrap();
        // A file system in memory keeps it.
        if !source.is_ready(0, 1) {
            assert!(!source.is_ready(50_000, 1));
            source.read_exact_at(&mut buffer, 0).unwrap();
            assert!(source.is_ready(0, 100_000));
        }
    }

    #[test]
    fn only_files_are_opened_and_a_fifo_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        for path in [folder.path(), &fifo, Path::new("/dev/null")] {
            assert_eq!(FileSource::open(path).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
