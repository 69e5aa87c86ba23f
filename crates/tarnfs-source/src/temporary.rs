use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, open, openat, unlinkat};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// A file without a name, for this process only: in `$TMPDIR`, else in `/var/tmp`, which lies on a disk, else in
/// `/tmp`.
///
/// The error is that of the last folder tried.
pub fn temporary_file() -> io::Result<File> {
    temporary_file_in().map(|(file, _)| file)
}

/// [`temporary_file`], and the folder in which it is.
pub fn temporary_file_in() -> io::Result<(File, PathBuf)> {
    let folders = std::env::var_os("TMPDIR").map(PathBuf::from).into_iter();
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for folder in folders.chain(["/var/tmp", "/tmp"].map(PathBuf::from)) {
        match without_name(&folder) {
            Ok(file) => return Ok((file, folder)),
            Err(error) => {
                let error = io::Error::from(error);
                last = io::Error::new(error.kind(), format!("a temporary file in {}: {error}", folder.display()));
            }
        }
    }
    Err(last)
}

/// A file without a name in `folder`.
fn without_name(folder: &Path) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match open(folder, flags | OFlags::TMPFILE, Mode::RUSR | Mode::WUSR) {
        // FAT has no such files, nor has overlayfs before Linux 6.6, in which containers lie.
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => without_name_any_more(folder, flags),
        opened => Ok(opened?.into()),
    }
}

/// The same, of which the name is removed at once.
fn without_name_any_more(folder: &Path, flags: OFlags) -> Result<File, Errno> {
    // Nobody can put another folder there between the two calls.
    let folder = open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut number = [0; 16];
    if getrandom(&mut number[..], GetRandomFlags::empty())? < number.len() {
        return Err(Errno::IO);
    }
    let name = format!(".tarnfs-{:032x}", u128::from_ne_bytes(number));
    let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let file = openat(&folder, &name, flags, Mode::RUSR | Mode::WUSR)?;
    unlinkat(&folder, &name, AtFlags::empty())?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};

    #[test]
    fn a_file_that_had_a_name_has_none_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let made = || without_name_any_more(folder.path(), OFlags::RDWR | OFlags::CLOEXEC).unwrap();
        let (one, other) = (made(), made());
        one.write_all_at(b"one", 0).unwrap();
        let mut read = [0; 3];
        one.read_exact_at(&mut read, 0).unwrap();
        assert_eq!((&read, other.metadata().unwrap().len()), (b"one", 0));
        let metadata = one.metadata().unwrap();
        assert_eq!((metadata.nlink(), metadata.mode() & 0o777), (0, 0o600));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    /// Where there are no files without a name from the start, one with a name is tried.
    #[test]
    fn what_a_file_system_does_not_have_is_no_end() {
        // Nothing can be made there, either.
        assert_ne!(without_name(Path::new("/proc")).unwrap_err(), Errno::OPNOTSUPP);
        assert_eq!(without_name(Path::new("/nowhere")).unwrap_err(), Errno::NOENT);
    }
}
