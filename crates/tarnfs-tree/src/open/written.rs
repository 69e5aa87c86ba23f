//! The index of an archive that is being written: what goes into the archive is read along, so that nobody need decode
//! it afterwards.

use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use rustix::fs::fstat;
use tarnfs_format::Entry;
use tarnfs_index::{Summary, Writer, WriterOptions};
use tarnfs_source::{FileSource, Fingerprint, MemorySource, SharedSource, Slice};

use super::{FileFacts, Home, Opening, Options, Problem};
use crate::build::{Along, FirstPass, Names};

/// All that an index needs but what depends on the finished file.
#[derive(Debug)]
pub struct ReadAlong {
    writer: Writer,
    summary: Summary,
    /// Headers at its end say something of what may be appended.
    holds_for_more: bool,
    start: Instant,
}

/// Reads along while the archive that will lie at `path` is written. The options are those of who will open it.
pub fn read_along(path: &Path, content: Along, options: &Options) -> Result<ReadAlong, Problem> {
    let start = Instant::now();
    let names = Names::new(&options.shape, &options.limits)?;
    let nothing: SharedSource = Arc::new(MemorySource::new(Vec::new(), "an archive that is being written"));
    let name = path.file_name().unwrap_or_default().as_bytes();
    let pass = FirstPass {
        source: &nothing,
        name,
        // It is a tar, also one without members.
        single_file: Entry { path: b"x.tar".to_vec(), ..Entry::default() },
        names: &names,
        format: &options.of_formats(),
        options,
        archive: tarnfs_index::Archive { length: 0, fingerprint: fingerprint_of(&nothing, 0)?, modified: 0 },
        kept_as: None,
        unread: &AtomicBool::new(false),
    };
    let writer = Writer::new(WriterOptions {
        limits: options.limits,
        budget: options.decoding.cache.budget().clone(),
        cancel: options.cancel.clone(),
    })?;
    // How long the file becomes is not known; what is in it was made by this program.
    let (writer, summary, holds_for_more) = pass.read_along(content, writer.of_archive(u64::MAX))?;
    Ok(ReadAlong { writer, summary, holds_for_more, start })
}

impl ReadAlong {
    /// Writes the index of the archive, which lies at `path` now, to where one is looked for. `written` is what was
    /// known of the file when it was whole. `None` if there is no place, if another file is at `path` by now, or if it
    /// is so small that none is kept.
    pub fn keep(self, path: &Path, written: &Metadata, options: &Options) -> Result<Option<PathBuf>, Problem> {
        let file = Arc::new(FileSource::open(path).map_err(Problem::CannotOpen)?);
        let facts_of = |of: &Metadata| (of.dev(), of.ino(), of.len(), of.mtime(), of.mtime_nsec());
        // The file that was opened, too: its number is that of what is at the path.
        let is_it = || {
            let (dev, ino, ..) = facts_of(written);
            fstat(&*file).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (dev, ino))
                && std::fs::metadata(path).is_ok_and(|now| facts_of(&now) == facts_of(written))
        };
        if !is_it() {
            return Ok(None);
        }
        let facts = FileFacts::of(&file).map_err(Problem::CannotOpen)?;
        let home = Home::of(&*file).ok().flatten();
        let source: SharedSource = Arc::clone(&file) as _;
        let opening = Opening {
            path,
            fingerprint: fingerprint_of(&source, source.len())?,
            source: SharedSource::clone(&source),
            facts,
            options,
            home,
            is_at_path: true,
            unread: AtomicBool::new(false),
            beside: None,
        };
        let mut summary = self.summary;
        summary.archive = opening.archive();
        if summary.layers.is_empty() && !self.holds_for_more {
            summary.grown_from = Some(fingerprint_of(&source, summary.end.min(source.len()))?);
        }
        let (_, index_path) = opening.keep(self.writer.readable_as(facts.owner), summary, self.start)?;
        if let Some(index) = index_path.as_ref().filter(|_| !is_it()) {
            // Of another one that took its place meanwhile, or that was changed.
            std::fs::remove_file(index).map_err(Problem::CannotOpen)?;
            return Ok(None);
        }
        Ok(index_path)
    }
}

/// That of the first `length` bytes.
fn fingerprint_of(source: &SharedSource, length: u64) -> Result<Fingerprint, Problem> {
    let part = Slice::new(SharedSource::clone(source), 0, length);
    Fingerprint::of(&part).map_err(|error| Problem::Read { offset: 0, error })
}
