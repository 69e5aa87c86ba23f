//! An index without its archive: what it says is shown, and who reads is told what is missing.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tarnfs_format::name::escape;
use tarnfs_index::{Index, location, own, ratarmount, trust};
use tarnfs_source::{FileSource, Limits, SharedSource, Source};

use super::{FileFacts, OpenArchive, Opening, Options, Origin, Problem, Recreate};

/// How a database begins.
const DATABASE: &[u8] = b"SQLite format 3\0";

/// True if the file at `path` is a database, as every index is.
pub(crate) fn is_database(path: &Path) -> bool {
    // What is a FIFO by now would be waited for.
    let is_file = path.metadata().is_ok_and(|found| found.is_file());
    let mut head = [0; DATABASE.len()];
    is_file && FileSource::open(path).is_ok_and(|file| file.read_exact_at(&mut head, 0).is_ok()) && head == DATABASE
}

/// True if the database at `path` is an index, of whatever archive, or what is left of one.
pub(crate) fn is_index(path: &Path, limits: Limits) -> bool {
    let absent = |length| -> SharedSource { Arc::new(Absent { length, archive: String::new() }) };
    match own::open(path, None, true) {
        Err(tarnfs_index::Error::Unknown(_)) => {
            let file = trust::open(path, None, true);
            file.and_then(|file| ratarmount::open_alone(file, limits, &absent)).is_ok()
        }
        _ => true,
    }
}

/// True if what [`super::open`] finds at `path` is an index, and not an archive.
pub fn is_index_alone(path: &Path, limits: Limits) -> bool {
    is_database(path) && is_index(path, limits)
}

/// In place of an archive that is not there. Reading it is an error that says so.
#[derive(Debug)]
struct Absent {
    length: u64,
    /// What it is called.
    archive: String,
}

impl Source for Absent {
    fn read_at(&self, buffer: &mut [u8], _offset: u64) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        Err(io::Error::other(format!("{} ({} bytes) is not open, only its index", self.archive, self.length)))
    }

    fn len(&self) -> u64 {
        self.length
    }

    fn describe(&self) -> String {
        self.archive.clone()
    }
}

/// The archive of the index at `path`, as somebody would look for it: where it was if that is known, else what it is
/// called.
fn archive_of(path: &Path, name: Option<&[u8]>) -> String {
    let own = path.file_name().unwrap_or_default().as_bytes();
    let is_beside = |name: &[u8]| own.strip_prefix(name).is_some_and(|rest| rest.starts_with(b"."));
    let stem = || own.strip_suffix(location::SUFFIX.as_bytes()).or_else(|| own.strip_suffix(ratarmount::SUFFIX));
    match (name, stem()) {
        (Some(name), _) if !is_beside(name) => escape(name).to_string(),
        (Some(name), _) | (None, Some(name)) => {
            let folder = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            escape(folder.with_file_name(std::ffi::OsStr::from_bytes(name)).as_os_str().as_bytes()).to_string()
        }
        (None, None) => "the archive".to_owned(),
    }
}

/// Opens the file at `path` as an index whose archive is not there; `None` if it is no index.
pub(super) fn open(path: &Path, file: &FileSource, options: &Options) -> Result<Option<OpenArchive>, Problem> {
    let mut head = [0; DATABASE.len()];
    // What cannot be read is told by who opens it as an archive.
    if file.len() < head.len() as u64 || file.read_exact_at(&mut head, 0).is_err() || head != DATABASE {
        return Ok(None);
    }
    let absent = |name: Option<&[u8]>, length: u64| -> SharedSource {
        Arc::new(Absent { length, archive: archive_of(path, name) })
    };
    // Who names it as what is to be shown has chosen it.
    let index: Arc<dyn Index> = match own::open(path, None, true) {
        Ok(index) => index,
        Err(tarnfs_index::Error::Unknown(why)) => {
            let opened = trust::open(path, None, true)
                .and_then(|file| ratarmount::open_alone(file, options.limits, &|length| absent(None, length)));
            match opened {
                Ok(index) => index,
                // Any program may keep a database.
                Err(_) if !path.as_os_str().as_bytes().ends_with(ratarmount::SUFFIX) => {
                    log::debug!("{}: {why}", path.display());
                    return Ok(None);
                }
                Err(error) => return Err(Problem::Index(error)),
            }
        }
        Err(error) => return Err(Problem::Index(error)),
    };
    if options.index.recreate == Recreate::Always {
        let what = "it is an index without its archive: there is nothing to read again";
        return Err(Problem::Unwritten(what.to_owned()));
    }
    let summary = index.summary();
    let source = absent(summary.name.as_deref(), summary.archive.length);
    let archive = source.describe();
    log::warn!("{}: an index alone: names and attributes are shown; what files hold is in {archive}", path.display());
    if options.shape.recursion.is_some() && summary.shape.recursion.is_none() {
        log::warn!("{}: it was made without -r, so archives in the archive are files", path.display());
    }
    let mut options = options.clone();
    options.decoding.decoded_cache = None;
    let facts = FileFacts {
        owner: FileFacts::of(file).map_err(Problem::CannotOpen)?.owner,
        modified: summary.archive.modified,
        identity: None,
    };
    let fingerprint = summary.archive.fingerprint;
    let unread = AtomicBool::new(false);
    let opening = Opening {
        path,
        source,
        facts,
        options: &options,
        fingerprint,
        home: None,
        is_at_path: false,
        unread,
        beside: None,
    };
    let opened = opening.finish(index, Some(path.to_owned()), Origin::Found)?;
    let identity = file.identity();
    Ok(Some(OpenArchive { file: Some((identity.device, identity.inode)), ..opened }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_is_named_where_it_was() {
        for (path, name, archive) in [
            ("/d/x.tar.gz.tarnfs.sqlite", Some("x.tar.gz"), "/d/x.tar.gz"),
            ("/d/x.tar.options-12.tarnfs.sqlite", Some("x.tar"), "/d/x.tar"),
            ("/c/d_x.tar.tarnfs.sqlite", Some("x.tar"), "x.tar"),
            ("/d/x.tar.index.sqlite", None, "/d/x.tar"),
            ("/d/other", None, "the archive"),
            ("/d/other", Some("x\n"), "x\\n"),
        ] {
            assert_eq!(archive_of(Path::new(path), name.map(str::as_bytes)), archive, "{path}");
        }
    }
}
