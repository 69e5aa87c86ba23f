//! Standard input as an archive: the file itself from where it stands, or a copy of what comes from a pipe.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use tarnfs_source::{FileSource, SharedSource, Slice, Source, temporary_file_in};
use tarnfs_tree::open::FileFacts;

use crate::args::shown;
use crate::exit::{Code, Failure};

/// What a copy leaves free for others, in bytes: this, or a tenth of a small file system.
const MARGIN: u64 = 256 << 20;

/// Bytes that are copied before the free space is looked at again.
const STEP: u64 = 8 << 20;

/// What comes from standard input, and whose it is.
pub(crate) struct Input {
    pub(crate) source: SharedSource,
    pub(crate) facts: FileFacts,
}

/// Standard input as a file: itself, from the byte at which whoever started this program has left it, if it is one;
/// else what comes from it, in a file without a name, which is gone however this program ends.
pub(crate) fn standard_input() -> Result<Input, Failure> {
    let failed = |error: io::Error| Failure::new(Code::CannotOpen, format!("standard input: {error}"));
    let stdin = io::stdin();
    if stdin.is_terminal() {
        let what = "-: standard input is a terminal; give an archive's path, or redirect an archive to it";
        return Err(Failure::new(Code::Usage, what.to_owned()));
    }
    let mut file = File::from(stdin.as_fd().try_clone_to_owned().map_err(failed)?);
    let mut start = 0;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(failed(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder: give its path")));
    }
    if metadata.is_file() {
        start = rustix::fs::tell(&file).map_err(|error| failed(error.into()))?;
    } else {
        file = copy(&mut file).map_err(failed)?;
    }
    let file = FileSource::from_file(file, "stdin").map_err(failed)?;
    let facts = FileFacts::of(&file).map_err(failed)?;
    let length = file.len().saturating_sub(start);
    let source: SharedSource = Arc::new(file);
    let source = if start == 0 { source } else { Arc::new(Slice::new(source, start, length)) };
    Ok(Input { source, facts })
}

/// All that comes from a pipe.
fn copy(pipe: &mut File) -> io::Result<File> {
    let (mut kept, folder) = temporary_file_in()?;
    let shown = shown(folder.as_os_str());
    log::info!("standard input is copied to a temporary file without a name in {shown}");
    let mut copied = 0_u64;
    let instead = "set TMPDIR to a folder that has more, or save the archive and name the file";
    loop {
        check_space(&kept).map_err(|left| {
            let what = format!("after {copied} bytes, a copy of it in {shown} would leave less than {left} bytes free");
            io::Error::new(io::ErrorKind::StorageFull, format!("{what}: {instead}"))
        })?;
        let step = io::copy(&mut Read::by_ref(pipe).take(STEP), &mut kept)
            .and_then(|step| kept.flush().map(|()| step))
            .map_err(|error| {
                let what = format!("copying it to {shown} behind byte {copied}: {error}");
                // All else may as well be an error of what is read.
                let what = if is_no_room(&error) { format!("{what}: {instead}") } else { what };
                io::Error::new(error.kind(), what)
            })?;
        copied += step;
        if step < STEP {
            return Ok(kept);
        }
    }
}

/// True of an error that is one of the place where the copy is written.
fn is_no_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

/// The margin, where the file system of `file` has less than that and another step.
fn check_space(file: &File) -> Result<(), u64> {
    let Ok(space) = rustix::fs::fstatvfs(file) else { return Ok(()) };
    let (all, free) = (space.f_blocks.saturating_mul(space.f_frsize), space.f_bavail.saturating_mul(space.f_frsize));
    let margin = MARGIN.min(all / 10);
    // Some do not say how large they are.
    if all == 0 || free >= margin.saturating_add(STEP.min(all / 10)) { Ok(()) } else { Err(margin) }
}

/// What an archive on standard input is called.
pub(crate) fn name() -> &'static Path {
    Path::new("stdin")
}
