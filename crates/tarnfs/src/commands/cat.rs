use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use tarnfs_source::Source;

use crate::args::Cat;
use crate::exit::{Code, Failure};
use crate::inside;
use crate::terminal::output_failure;

/// Bytes read at once.
const BATCH: usize = 1 << 20;

/// Writes the files, one behind the other; without any, the archive with its compression undone.
pub(crate) fn run(arguments: &Cat) -> Result<Code, Failure> {
    let (opened, code) = inside::open(&arguments.archive, &arguments.open)?;
    let archive = &arguments.archive;
    if arguments.paths.is_empty() {
        copy(opened.stream.as_ref()).map_err(|error| error.or(|error| inside::failure(archive, b"", &error.into())))?;
        return Ok(code);
    }
    for path in &arguments.paths {
        let path = path.as_bytes();
        let node = inside::find(&opened, archive, path, true)?.node;
        let file = tarnfs_tree::Tree::open(opened.tree.as_ref(), node)
            .map_err(|error| inside::failure(archive, path, &error))?;
        copy(file.as_ref()).map_err(|error| error.or(|error| inside::failure(archive, path, &error.into())))?;
    }
    Ok(code)
}

/// Which side of a copy failed.
enum CopyError {
    Read(io::Error),
    Write(io::Error),
}

impl CopyError {
    fn or(self, read: impl FnOnce(io::Error) -> Failure) -> Failure {
        match self {
            Self::Read(error) => read(error),
            Self::Write(error) => output_failure(&error),
        }
    }
}

fn copy(source: &dyn Source) -> Result<(), CopyError> {
    let mut out = io::stdout().lock();
    let mut buffer = vec![0; BATCH];
    let mut offset = 0;
    loop {
        let read = source.read_at(&mut buffer, offset).map_err(CopyError::Read)?;
        if read == 0 {
            return out.flush().map_err(CopyError::Write);
        }
        out.write_all(&buffer[..read]).map_err(CopyError::Write)?;
        offset += read as u64;
    }
}
