//! Opening an archive for a command: with a progress bar, Ctrl-C, and one warning for what is damaged.

use std::path::Path;

use tarnfs_source::Cancel;
use tarnfs_tree::open::{OpenArchive, Options, Problem};
use tarnfs_tree::{Attributes, Error, path};

use crate::args::{Open, open_options};
use crate::exit::{Code, Failure};
use crate::progress::Bar;
use crate::signals::Ending;
use crate::terminal::escaped;

/// Damaged places that are named one by one; of more, only the number is told.
const MOST_NAMED: usize = 10;

/// Opens `archive` for a command without a mount.
pub(crate) fn open(archive: &Path, arguments: &Open) -> Result<(OpenArchive, Code), Failure> {
    let ending = Ending::default();
    ending.listen().map_err(|error| Failure::new(Code::Failure, format!("waiting for signals: {error}")))?;
    open_with(archive, &options(arguments, &ending.cancel())?)
}

/// What was typed, as options; see [`open_options`].
pub(crate) fn options(arguments: &Open, cancel: &Cancel) -> Result<Options, Failure> {
    open_options(arguments, cancel)
}

/// Opens `archive`; the code is [`Code::Damaged`] if something in it is broken.
pub(crate) fn open_with(archive: &Path, options: &Options) -> Result<(OpenArchive, Code), Failure> {
    let name = crate::args::shown(archive.as_os_str());
    let bar = Bar::show(&crate::args::shown(archive.file_name().unwrap_or_default()), &options.progress);
    let opened = tarnfs_tree::open::open(archive, options);
    drop(bar);
    let opened = opened.map_err(|problem| {
        let code = match &problem {
            Problem::NotAnArchive => Code::NotAnArchive,
            Problem::NoIndex(_) | Problem::Index(_) => Code::Index,
            Problem::Option(_) => Code::Usage,
            Problem::Cancelled => return Failure::new(Code::Interrupted, format!("{name}: interrupted")),
            _ => Code::CannotOpen,
        };
        Failure::new(code, format!("{name}: {problem}"))
    })?;
    let damage = &opened.index.summary().damage;
    for (offset, what) in damage.iter().take(MOST_NAMED) {
        log::warn!("{name}: damaged at byte {offset}: {}", escaped(what.as_bytes()));
    }
    if damage.len() > MOST_NAMED {
        log::warn!("{name}: damaged in {} more places", damage.len() - MOST_NAMED);
    }
    let code = if damage.is_empty() { Code::Success } else { Code::Damaged };
    Ok((opened, code))
}

/// The file or folder at `path` in an archive.
pub(crate) fn find(opened: &OpenArchive, archive: &Path, path: &[u8], follow: bool) -> Result<Attributes, Failure> {
    path::find(opened.tree.as_ref(), path, follow).map_err(|error| failure(archive, path, &error))
}

/// That something went wrong with `path` in `archive`.
pub(crate) fn failure(archive: &Path, path: &[u8], error: &Error) -> Failure {
    let code = match error {
        Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => Code::Damaged,
        Error::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Code::Damaged,
        Error::Io(_) => Code::CannotOpen,
        Error::Index(_) => Code::Index,
        _ => Code::Failure,
    };
    Failure::new(code, format!("{}: {}: {error}", crate::args::shown(archive.as_os_str()), escaped(path)))
}
