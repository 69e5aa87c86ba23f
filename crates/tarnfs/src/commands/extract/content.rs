//! The content of one file, from the archive to the disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use rustix::fs::copy_file_range;
use rustix::io::Errno;
use tarnfs_source::{Cancel, Source};
use tarnfs_tree::build::Progress;

/// Bytes that are read at once.
pub(super) const BATCH: usize = 512 << 10;

/// Of that length on, the kernel is asked to copy what lies in the archive's file as it is.
const WORTH_IT: u64 = 128 << 10;

/// Bytes that the kernel copies at once: nobody can interrupt it.
const MOST_AT_ONCE: usize = 16 << 20;

/// Why a file is not whole.
#[derive(Debug)]
pub(super) enum CopyError {
    /// It cannot be read.
    Read(io::Error),
    Write(io::Error),
}

/// Copies what `source` holds to `file`, which is empty. Holes stay holes.
pub(super) fn copy(
    source: &dyn Source,
    file: &File,
    buffer: &mut Vec<u8>,
    cancel: &Cancel,
    progress: &Progress,
) -> Result<(), CopyError> {
    let size = source.len();
    let mut at = 0;
    if size >= WORTH_IT && copy_in_kernel(source, file, cancel, progress)? {
        return Ok(());
    }
    buffer.resize(BATCH, 0);
    // Up to `end` there is no hole. To say that, a source may look at all of its parts: it is asked once for each run.
    let (mut written, mut end) = (0, 0);
    while at < size {
        cancel.check().map_err(CopyError::Read)?;
        if at >= end {
            let data = source.next_data(at).unwrap_or(size);
            if data > at {
                progress.bytes.fetch_add(data - at, Ordering::Relaxed);
                at = data;
                continue;
            }
            end = source.next_hole(at).min(size);
        }
        let length = (end - at).min(BATCH as u64) as usize;
        let read = match source.read_at(&mut buffer[..length], at) {
            Ok(0) => return Err(CopyError::Read(io::ErrorKind::UnexpectedEof.into())),
            Ok(read) => read,
            Err(error) => return Err(CopyError::Read(error)),
        };
        file.write_all_at(&buffer[..read], at).map_err(CopyError::Write)?;
        at += read as u64;
        written = at;
        progress.bytes.fetch_add(read as u64, Ordering::Relaxed);
    }
    // What ends with a hole.
    if written < size {
        file.set_len(size).map_err(CopyError::Write)?;
    }
    verify(source, cancel).map_err(CopyError::Read)
}

/// Fails if what was read of it is not what is stored: long members are verified when all of them was read.
pub(in crate::commands) fn verify(source: &dyn Source, cancel: &Cancel) -> io::Result<()> {
    if source.is_unproven() {
        source.verify(&|| cancel.is_cancelled())?;
        if source.len() > 0 {
            source.read_at(&mut [0], source.len() - 1)?;
        }
    }
    Ok(())
}

/// The same without the bytes coming here: some file systems do not even copy them. False if that is not possible.
fn copy_in_kernel(source: &dyn Source, file: &File, cancel: &Cancel, progress: &Progress) -> Result<bool, CopyError> {
    let Some((archive, start)) = source.file_range() else { return Ok(false) };
    let size = source.len();
    let (mut from, mut to) = (start, 0);
    while to < size {
        cancel.check().map_err(CopyError::Read)?;
        let length = (size - to).min(MOST_AT_ONCE as u64) as usize;
        match copy_file_range(archive, Some(&mut from), file, Some(&mut to), length) {
            // It was cut: a read says so.
            Ok(0) => return Ok(false),
            Ok(copied) => {
                progress.bytes.fetch_add(copied as u64, Ordering::Relaxed);
            }
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => return Err(CopyError::Write(error.into())),
            Err(_) => return Ok(false),
        }
    }
    // Says whether the archive has changed meanwhile.
    source.read_at(&mut [0], size - 1).map_err(CopyError::Read)?;
    Ok(true)
}

/// The first part of what `source` holds, as far as it can be read.
pub(super) fn copy_what_can_be_read(source: &dyn Source, file: &File, cancel: &Cancel) -> Result<u64, CopyError> {
    let mut buffer = vec![0; BATCH];
    let (mut at, mut most) = (0, BATCH);
    file.set_len(0).map_err(CopyError::Write)?;
    loop {
        cancel.check().map_err(CopyError::Read)?;
        let data = source.next_data(at).unwrap_or(source.len());
        if data > at {
            at = data;
            file.set_len(at).map_err(CopyError::Write)?;
            continue;
        }
        match source.read_at(&mut buffer[..most], at) {
            Ok(0) => return Ok(at),
            Ok(read) => {
                file.write_all_at(&buffer[..read], at).map_err(CopyError::Write)?;
                at += read as u64;
            }
            Err(error) if is_damage(&error) && most > 1 => most /= 2,
            Err(error) if is_damage(&error) => return Ok(at),
            Err(error) => return Err(CopyError::Read(error)),
        }
    }
}

pub(super) fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

/// True of what no other file would fare better with.
pub(super) fn ends_all(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::ReadOnlyFilesystem
    ) || Errno::from_io_error(error) == Some(Errno::IO)
        || error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<super::destination::Replaced>)
}

#[cfg(test)]
pub(in crate::commands) mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use tarnfs_source::{Extent, MemorySource, Stencil};

    use super::*;

    /// Counts how often it is asked where its next hole is.
    #[derive(Debug)]
    pub(in crate::commands) struct Asked(pub(in crate::commands) Stencil, pub(in crate::commands) AtomicUsize);

    impl Source for Asked {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            self.0.read_at(buffer, offset)
        }

        fn len(&self) -> u64 {
            self.0.len()
        }

        fn describe(&self) -> String {
            self.0.describe()
        }

        fn next_data(&self, offset: u64) -> Option<u64> {
            self.0.next_data(offset)
        }

        fn next_hole(&self, offset: u64) -> u64 {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.next_hole(offset)
        }
    }

    /// A file with these extents, given by where they begin and how long they are; and what is stored of it.
    pub(in crate::commands) fn sparse(extents: &[(u64, u64)], length: u64) -> (Asked, Vec<u8>) {
        let stored: u64 = extents.iter().map(|(_, length)| length).sum();
        let bytes: Vec<u8> = (0..stored).map(|at: u64| (at / 1000) as u8 | 1).collect();
        let extents = extents.iter().map(|&(offset, length)| Extent { offset, length, skip: 0 });
        let packed = Arc::new(MemorySource::new(bytes.clone(), "packed"));
        (Asked(Stencil::new(packed, extents, length).unwrap(), AtomicUsize::new(0)), bytes)
    }

    #[test]
    fn a_source_is_asked_once_for_each_run_where_its_holes_are() {
        let long = 10 * BATCH as u64 + 7;
        let (source, bytes) = sparse(&[(1 << 20, long), (16 << 20, 5)], 20 << 20);
        let file = tempfile::tempfile().unwrap();
        copy(&source, &file, &mut Vec::new(), &Cancel::default(), &Progress::default()).unwrap();
        assert_eq!((source.1.into_inner(), file.metadata().unwrap().len()), (2, 20 << 20));
        let (long, short) = bytes.split_at(bytes.len() - 5);
        for (offset, expected) in [(1 << 20, long), (16 << 20, short), (12 << 20, &[0; 100][..])] {
            let mut found = vec![0; expected.len()];
            file.read_exact_at(&mut found, offset).unwrap();
            assert!(found == expected, "{offset}");
        }
    }
}
