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
    let mut written = 0;
    while at < size {
        cancel.check().map_err(CopyError::Read)?;
        let data = source.next_data(at).unwrap_or(size);
        if data > at {
            progress.bytes.fetch_add(data - at, Ordering::Relaxed);
            at = data;
            continue;
        }
        let end = source.next_hole(at).min(size);
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
