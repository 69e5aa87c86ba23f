use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use rustix::fs::{FileType, SeekFrom, fstat, seek};
use rustix::io::Errno;

use crate::Source;
use crate::file::{is_cached, read_fully};

/// A regular file that is shown as it is now: its length is the one that it has when somebody asks, and a change is no
/// error. For files that stand for themselves; what is decoded or has an index is read through a
/// [`FileSource`](crate::FileSource).
#[derive(Debug)]
pub struct FollowedFile {
    file: File,
    path: PathBuf,
}

impl FollowedFile {
    /// Takes an open file, `InvalidInput` if it is not a regular one; `path` is only for messages.
    pub fn new(file: File, path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a file", path.display())));
        }
        Ok(Self { file, path })
    }

    /// `None` where the system says that there is nothing more. On any other error `otherwise`: whoever is told that
    /// there is nothing takes it for zeros, and a read says what is wrong.
    fn seek(&self, to: SeekFrom, otherwise: u64) -> Option<u64> {
        // The descriptor's position, which this moves, means nothing to `pread`.
        match seek(&self.file, to) {
            Err(Errno::NXIO) => None,
            found => Some(found.unwrap_or(otherwise)),
        }
    }
}

impl AsFd for FollowedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Source for FollowedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        // Beyond what the system can count there is nothing.
        if i64::try_from(offset).is_err() {
            return Ok(0);
        }
        read_fully(&self.file, buffer, offset)
    }

    fn len(&self) -> u64 {
        fstat(&self.file).map_or(0, |stat| stat.st_size as u64)
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        // Beyond what the system can count there is nothing.
        i64::try_from(offset).ok().and_then(|_| self.seek(SeekFrom::Data(offset), offset))
    }

    fn next_hole(&self, offset: u64) -> u64 {
        let more = offset.saturating_add(1);
        self.seek(SeekFrom::Hole(offset), more).unwrap_or_else(|| self.len().max(offset))
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        is_cached(&self.file, offset, offset.saturating_add(length as u64).min(self.len()))
    }

    fn backing_file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_is_followed_as_it_grows_and_shrinks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, b"one").unwrap();
        let source = FollowedFile::new(File::open(&path).unwrap(), &path).unwrap();
        let mut buffer = [0; 10];
        assert_eq!((source.len(), source.read_at(&mut buffer, 1).unwrap()), (3, 2));
        let mut writer = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        writer.write_all(b" and two").unwrap();
        assert_eq!((source.len(), source.read_at(&mut buffer, 1).unwrap()), (11, 10));
        assert_eq!(&buffer, b"ne and two");
        writer.set_len(0).unwrap();
        assert_eq!((source.len(), source.read_at(&mut buffer, 1).unwrap()), (0, 0));
        writer.set_len(1 << 20).unwrap();
        assert_eq!((source.next_data(0), source.next_hole(5)), (None, 5));
        assert_eq!(source.read_at(&mut buffer, u64::MAX).unwrap(), 0);
    }

    #[test]
    fn what_cannot_be_sought_is_an_error_of_the_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, b"0123456789").unwrap();
        // Such a descriptor says what the file is, and neither seeks nor reads.
        let file = rustix::fs::open(&path, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        let source = FollowedFile::new(File::from(file), &path).unwrap();
        assert_eq!((source.len(), source.next_data(3), source.next_hole(3)), (10, Some(3), 4));
        assert!(source.read_at(&mut [0; 5], 3).is_err());
        let source = FollowedFile::new(File::open(&path).unwrap(), &path).unwrap();
        assert_eq!((source.next_data(3), source.next_hole(3)), (Some(3), 10));
        assert_eq!((source.next_data(10), source.next_hole(10)), (None, 10));
        assert_eq!((source.next_data(u64::MAX), source.next_data(1 << 63)), (None, None));
    }

    #[test]
    fn only_a_file_can_be_followed() {
        assert!(FollowedFile::new(File::open("/").unwrap(), "/").is_err());
        assert!(FollowedFile::new(File::open("/dev/null").unwrap(), "/dev/null").is_err());
    }
}
