use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use rustix::fs::{FileType, SeekFrom, fstat, seek};

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

    fn seek(&self, to: SeekFrom) -> Option<u64> {
        // The descriptor's position, which this moves, means nothing to `pread`.
        seek(&self.file, to).ok()
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
        self.seek(SeekFrom::Data(offset))
    }

    fn next_hole(&self, offset: u64) -> u64 {
        self.seek(SeekFrom::Hole(offset)).unwrap_or_else(|| self.len().max(offset))
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
    fn only_a_file_can_be_followed() {
        assert!(FollowedFile::new(File::open("/").unwrap(), "/").is_err());
        assert!(FollowedFile::new(File::open("/dev/null").unwrap(), "/dev/null").is_err());
    }
}
