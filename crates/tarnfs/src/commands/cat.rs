use std::io::{self, IsTerminal};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tarnfs_source::Source;
use tarnfs_tree::open::{OpenArchive, Sink};
use tarnfs_tree::{Error, Tree, path};

use crate::args::Cat;
use crate::exit::{Code, Failure};
use crate::globs;
use crate::inside;
use crate::terminal::output_failure;

/// The extended attribute of what is served with --force although it is damaged.
const DAMAGED: &[u8] = b"user.tarnfs.damaged";

/// Bytes read at once.
const BATCH: usize = 1 << 20;

/// Writes the files, one behind the other, or a part of each; without any, the archive with its compression undone.
pub(crate) fn run(arguments: &Cat) -> Result<Code, Failure> {
    let archive = &arguments.archive;
    let range = arguments.range.clone().unwrap_or(0..u64::MAX);
    // Of a part, only what lies behind the seek point before it is decoded, where there is an index.
    if arguments.paths.is_empty() && arguments.range.is_none() && !arguments.open.force {
        return undo_compression(arguments);
    }
    let (opened, code) = inside::open_to_read(archive, &arguments.open, &|opened| reads_encrypted(arguments, opened))?;
    let guard = Guard::new(arguments);
    if arguments.paths.is_empty() {
        copy(opened.stream.as_ref(), range.clone(), guard)
            .map_err(|error| error.or(|error| inside::failure(archive, b"", &error.into())))?;
    }
    if arguments.paths.is_empty() {
        return Ok(code);
    }
    let tree = inside::tree(&opened);
    let mut paths = inside::Paths::new(archive, arguments.open.colour(), code);
    for path in paths.expand(&tree, &arguments.paths) {
        let Some(node) = paths.find(&tree, &path, true).map(|found| found.node) else { continue };
        let copied = tree.open(node).map_err(|error| inside::failure(archive, &path, &error)).and_then(|file| {
            copy(file.as_ref(), range.clone(), guard)
                .map_err(|error| error.or(|error| inside::failure(archive, &path, &error.into())))?;
            // Of a part of a file nobody knows whether it is right before all of the file was read.
            if arguments.range.is_some() {
                let is_verified = if file.is_unproven() && !opened.stream.is_unproven() {
                    file.verify(&|| false)
                } else {
                    // Perhaps because it was found to be wrong meanwhile, which the next read tells.
                    Ok(())
                };
                let verified = is_verified.and_then(|()| file.read_at(&mut [0], range.start).map(drop));
                verified.map_err(|error| inside::failure(archive, &path, &error.into()))?;
            }
            // What is wrong with such a file is known when it was read.
            if arguments.open.force
                && tree.xattr(node, DAMAGED).map_err(|error| inside::failure(archive, &path, &error))?.is_some()
            {
                paths.damaged();
            }
            Ok(())
        });
        if let Err(failure) = copied {
            paths.failed(failure)?;
        }
    }
    Ok(paths.code())
}

/// True if one of the files that are written is encrypted, as far as that is known: of those that a pattern finds it is
/// not looked at.
fn reads_encrypted(arguments: &Cat, opened: &OpenArchive) -> bool {
    let tree = inside::tree(opened);
    arguments.paths.iter().any(|typed| match path::find(&tree, typed.as_bytes(), true) {
        Ok(found) => {
            let read = tree.open(found.node).and_then(|file| Ok(file.read_at(&mut [0], 0)?));
            matches!(read, Err(Error::Io(error)) if error.kind() == io::ErrorKind::PermissionDenied)
        }
        Err(_) => globs::is_glob(typed.as_bytes()),
    })
}

/// What is decoded to make an index is written as soon as it is verified; the rest, or all where there is an index, is
/// read from the archive.
fn undo_compression(arguments: &Cat) -> Result<Code, Failure> {
    let archive = &arguments.archive;
    let guard = Guard::new(arguments);
    let output = Arc::new(Output { guard, ..Output::default() });
    let opened = inside::open_into(Some(Arc::clone(&output) as _), archive, &arguments.open);
    if let Some(error) = output.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(cannot_write(&error));
    }
    let (opened, code) = opened?;
    copy(opened.stream.as_ref(), output.written.load(Ordering::Relaxed)..u64::MAX, guard)
        .map_err(|error| error.or(|error| inside::failure(archive, b"", &error.into())))?;
    Ok(code)
}

/// Keeps a terminal from what is no text: it may take it for commands. Whoever has typed no path gets a whole tar.
#[derive(Debug, Default, Clone, Copy)]
struct Guard {
    is_on: bool,
}

impl Guard {
    fn new(arguments: &Cat) -> Self {
        Self { is_on: !arguments.binary && io::stdout().is_terminal() }
    }

    /// Fails for what no text has in it. (curl looks for the same byte.)
    fn check(self, bytes: &[u8]) -> io::Result<()> {
        if self.is_on && bytes.contains(&0) { Err(io::ErrorKind::InvalidData.into()) } else { Ok(()) }
    }
}

/// What is said where `error` came up, which may be that of [`Guard::check`].
fn cannot_write(error: &io::Error) -> Failure {
    if error.kind() != io::ErrorKind::InvalidData {
        return output_failure(error);
    }
    let what = "standard output is a terminal, and this is not text: send it to a file or a pipe, or give --binary";
    Failure { is_of_output: true, ..Failure::new(Code::Failure, what) }
}

/// Standard output, during a first pass.
#[derive(Debug, Default)]
struct Output {
    guard: Guard,
    written: AtomicU64,
    failure: Mutex<Option<io::Error>>,
}

impl Sink for Output {
    fn write(&self, decoded: &[u8]) -> io::Result<()> {
        let written = self.guard.check(decoded).and_then(|()| write(decoded));
        self.written.fetch_add(decoded.len() as u64, Ordering::Relaxed);
        written.map_err(|error| {
            let kind = error.kind();
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            kind.into()
        })
    }
}

/// Writes to standard output at once. That of `std` would look for the last line in it, and write the rest apart.
fn write(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(rustix::stdio::stdout(), bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
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
            Self::Write(error) => cannot_write(&error),
        }
    }
}

/// Writes what `source` holds in `range`.
fn copy(source: &dyn Source, range: Range<u64>, guard: Guard) -> Result<(), CopyError> {
    let mut buffer = vec![0; BATCH];
    let (mut offset, mut most) = (range.start, BATCH as u64);
    loop {
        let length = (range.end - offset).min(most) as usize;
        let read = match source.read_at(&mut buffer[..length], offset) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            // What comes before the byte that cannot be read is written.
            Err(error) if is_damage(&error) && length > 1 => {
                most = length as u64 / 2;
                continue;
            }
            Err(error) => return Err(CopyError::Read(error)),
        };
        guard.check(&buffer[..read]).and_then(|()| write(&buffer[..read])).map_err(CopyError::Write)?;
        offset += read as u64;
    }
}

fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}
