use std::fs::File;
use std::io;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, open};

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
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match open(&folder, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => return Ok((file.into(), folder)),
            Err(error) => {
                let error = io::Error::from(error);
                last = io::Error::new(error.kind(), format!("a temporary file in {}: {error}", folder.display()));
            }
        }
    }
    Err(last)
}
