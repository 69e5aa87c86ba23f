//! Why what looks like an archive stays a file.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use tarnfs_format::{Event, ReadRandom, name, read_in_time};
use tarnfs_source::SharedSource;

use super::Candidate;
use crate::build::walk_directory::is_unreadable;

/// True if all that is wrong is that a password is missing.
pub(super) fn is_locked(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none()
}

/// Says why the archive in `candidate` stays a file, of the first few such archives: `more` says it of the others.
pub(super) fn tell_of_few(count: &AtomicU64, candidate: &Candidate, error: &io::Error, more: &str) {
    /// Lines, however many such archives there are.
    const MOST_TOLD: u64 = 10;
    let (outer, shown) = (candidate.bytes.describe(), name::excerpt(&candidate.file.path));
    match count.fetch_add(1, Ordering::Relaxed) {
        number if number < MOST_TOLD => log::warn!("{outer}: {shown}: {error}; it stays a file"),
        MOST_TOLD => log::warn!("{outer}: more archives in it {more}"),
        _ => {}
    }
}

/// True of what may well be whole, but cannot be read.
pub(super) fn is_unsupported(error: &io::Error) -> bool {
    let of_format = error.get_ref().and_then(|error| error.downcast_ref::<tarnfs_format::Error>());
    matches!(of_format, Some(tarnfs_format::Error::Unsupported { .. }))
}

/// What is wrong if there is no archive in `source` that can be opened, though it may be empty: what has only the first
/// bytes of one stays a file. The error, and at which byte it was, if that could not be read now: it may be right the
/// next time.
pub(super) fn why_not_an_archive(
    format: &dyn ReadRandom,
    source: &SharedSource,
    options: &tarnfs_format::Options,
) -> Result<Option<String>, (u64, io::Error)> {
    let mut damage = None;
    let result = read_in_time(format, source, options, &mut |event| match event {
        Event::Entry(_) => Err(io::ErrorKind::Interrupted.into()),
        Event::Damage(found) => {
            damage.get_or_insert(found.what);
            Ok(())
        }
        _ => Ok(()),
    });
    match result {
        Ok(()) => Ok(damage),
        Err(tarnfs_format::Error::Receiver(_)) => Ok(None),
        Err(tarnfs_format::Error::Read { offset, error }) if is_locked(&error) || !is_unreadable(&error) => {
            Err((offset, error))
        }
        // Where in it that is, counts in no stream that a message could name.
        Err(tarnfs_format::Error::Read { error, .. }) => Ok(Some(error.to_string())),
        Err(error @ tarnfs_format::Error::Unsupported { .. }) => Err((0, io::Error::other(error))),
        Err(error) => Ok(Some(error.to_string())),
    }
}
