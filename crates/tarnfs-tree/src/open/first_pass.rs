//! Making an index: all is read, or only what was appended.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tarnfs_format::Probe;
use tarnfs_index::{Destination, Index, Summary, Writer, WriterOptions, location};
use tarnfs_source::{Fingerprint, Setting, Slice, Source};

use super::{
    Built, CHEAP_TO_READ, IndexPlace, Opening, Origin, Problem, Recreate, has_own_directory, has_random_format,
};
use crate::build::{FirstPass, HEAD, Names, single_file};
use crate::grow::replay;

/// A larger index goes to a disk, however few entries it has: attributes, sparse maps and seek points may be large.
const SMALL_INDEX: u64 = 16 << 20;

/// True of an archive whose own directory says all that its index would, and as fast.
fn has_directory(summary: &Summary, writer: &Writer) -> bool {
    has_own_directory(summary) && !writer.has_nested() && summary.shape.hashes.is_empty()
}

impl Opening<'_> {
    /// The index of this archive as it was before something was appended to it, if there is one.
    pub(super) fn grown_from(&self) -> Option<Arc<dyn Index>> {
        if self.options.index.recreate == Recreate::Always {
            return None;
        }
        self.candidates().into_iter().find_map(|path| {
            let index = self.own_at(&path, &self.facts.owner).ok()?;
            let old = index.summary();
            let can_grow = old.layers.is_empty()
                && old.notes.is_empty()
                && old.shape == self.options.shape
                && old.shape.gnu_incremental == Some(false)
                && old.shape.recursion.is_none()
                && old.shape.hashes.is_empty()
                && old.shape.transform.is_none()
                // What is appended may fit into the padding of the last record.
                && old.archive.length <= self.source.len()
                && self.shortest_entry(old).is_some();
            let part = Slice::new(self.source(), 0, old.end);
            (can_grow && old.grown_from == Some(Fingerprint::of(&part).ok()?)).then_some(index)
        })
    }

    /// See [`tarnfs_format::ReadForwards::continues`].
    pub(super) fn shortest_entry(&self, old: &Summary) -> Option<u64> {
        let format = tarnfs_format::by_name(&old.format)?.forwards()?;
        let mut head = vec![0; HEAD];
        let read = self.source.read_at(&mut head, 0).ok()?;
        format.continues(&head[..read])
    }

    pub(super) fn build(&self) -> Result<Built, Problem> {
        let options = self.options;
        let start = Instant::now();
        let names = Names::new(&options.shape, &options.limits)?;
        let source = self.source();
        let pass = FirstPass {
            source: &source,
            name: self.path.file_name().unwrap_or_default().as_bytes(),
            single_file: single_file(self.path, &self.facts),
            names: &names,
            format: &options.of_formats(),
            options,
            archive: self.archive(),
            kept_as: self.kept_as(),
            unread: &self.unread,
        };
        let no_folder = self.no_folder();
        if let Some(why) = &no_folder {
            // Now, not when all has been read, which may take long.
            if options.index.is_required {
                return Err(Problem::Unwritten(why.clone()));
            }
            log::warn!("{}: no index is kept: {why}", self.path.display());
        }
        let (origin, (writer, summary)) = match self.continued(&pass)? {
            Some(continued) => (Origin::Continued, continued),
            None => (Origin::Read, pass.run(self.writer()?)?),
        };
        options.progress.bytes.store(source.len(), Ordering::Relaxed);
        let (index, index_path) = self.keep(writer, summary, start)?;
        Ok((index, index_path, origin))
    }

    /// Makes the index of all that `writer` has taken since `start`, at the place for it if it is worth that.
    pub(super) fn keep(
        &self,
        writer: Writer,
        summary: Summary,
        start: Instant,
    ) -> Result<(Arc<dyn Index>, Option<PathBuf>), Problem> {
        let options = self.options;
        let source = self.source();
        let no_folder = self.no_folder();
        let (read, entries) = (start.elapsed(), writer.entries());
        let few =
            entries < options.index.minimum_file_count && source.len() < CHEAP_TO_READ && writer.bytes() < SMALL_INDEX;
        let is_named = matches!(options.index.place, IndexPlace::File(_));
        let is_worth_it = options.index.is_required || !few && !has_directory(&summary, &writer);
        // What a password opens (names, targets of links, hashes) would lie beside the archive for all who may read it.
        // A single file that was compressed may be an archive that a password opens.
        let is_read_forwards = match tarnfs_format::by_name(&summary.format) {
            Some(format) => format.forwards().is_some(),
            None => !writer.has_nested() && !summary.has_directories,
        };
        let is_open = options.decoding.passwords.is_empty() || is_read_forwards && summary.shape.recursion.is_none();
        if !is_open && (is_named || options.index.is_required) {
            let what = "no index is written of what a password opens: it would not be encrypted";
            return Err(Problem::Unwritten(what.to_owned()));
        }
        if !is_open && is_worth_it && options.index.is_written && !has_random_format(&summary) {
            let what = "with -r and a password no index is kept: it might say what the password opens, and to all";
            log::warn!("{}: {what}; without one of them it is", self.path.display());
        }
        let is_read = !self.unread.load(Ordering::Relaxed);
        if !is_read {
            let what = "no index is kept, as some of the archive cannot be read";
            if options.index.is_required {
                return Err(Problem::Unwritten(what.to_owned()));
            }
            log::warn!("{}: {what}", self.path.display());
        }
        let keep = options.index.is_written && no_folder.is_none() && is_open && is_read && (is_named || is_worth_it);
        let (free, kept) = if keep { self.destinations() } else { Default::default() };
        let mut destinations: Vec<_> = free.iter().map(|path| Destination::File(self.at(path))).collect();
        destinations.push(Destination::Memory);
        let (mut tried, mut mistyped) = (Vec::new(), Vec::new());
        let mut index_path = None;
        let mut choose = |path: &Path| {
            index_path = self.place_now(&self.shown(path));
            index_path.as_deref().map(|path| self.at(path))
        };
        let index = writer.finish_at_first(summary, &destinations, &mut choose, &mut |destination, error| {
            if let Destination::File(path) = destination {
                match path.parent().and_then(location::why_no_folder) {
                    Some(why) => mistyped.push(why),
                    None => tried.push(self.named(&format!("{}: {error}", path.display()))),
                }
            }
        })?;
        let failed = tried.len() + mistyped.len();
        if matches!(destinations.get(failed), Some(Destination::Memory)) {
            index_path = None;
        }
        if let Some((path, why)) = kept.first() {
            let instead = index_path.as_ref().map_or_else(
                || format!("{} replaces it", Setting::RecreateIndex),
                |path| format!("the one for these options is {}", path.display()),
            );
            // Where both are kept, nothing is lost.
            let level = if index_path.is_none() { log::Level::Warn } else { log::Level::Info };
            log::log!(level, "{}: index {} was {why}, and is kept; {instead}", self.path.display(), path.display());
        }
        let is_mistyped = !mistyped.is_empty();
        if !tried.is_empty() {
            mistyped.push(format!("the index could not be written to {}", tried.join(", nor to ")));
        }
        let why = mistyped.join("; ");
        if index_path.is_none() && failed > 0 && (is_named || options.index.is_required) {
            return Err(Problem::Unwritten(why));
        }
        if failed > 0 {
            // A place that cannot be written is ordinary as long as another one can.
            let level = if is_mistyped || index_path.is_none() { log::Level::Warn } else { log::Level::Info };
            log::log!(level, "{}: {why}", self.path.display());
        }
        log::debug!(
            "{}: read in {:.3} s, index of {entries} entries written to {} in {:.3} s",
            self.path.display(),
            read.as_secs_f64(),
            index_path.as_deref().unwrap_or(Path::new("memory")).display(),
            start.elapsed().saturating_sub(read).as_secs_f64()
        );
        Ok((index, index_path))
    }

    /// A writer of an index that those may read who may read the archive.
    pub(super) fn writer(&self) -> Result<Writer, Problem> {
        let options = self.options;
        let of_writer = WriterOptions {
            limits: options.limits,
            budget: options.decoding.cache.budget().clone(),
            cancel: options.cancel.clone(),
        };
        // Names, seek points and hashes of what a password opens are not encrypted in an index.
        let decoding = &options.decoding;
        let is_secret = decoding.is_secret || !decoding.passwords.is_empty() && self.may_be_opened_by_a_password();
        let writer = if is_secret { Writer::of_secrets(of_writer)? } else { Writer::new(of_writer)? };
        let writer = writer.keeping_rows(options.index.keeps_rows);
        Ok(writer.readable_as(self.facts.owner).of_archive(self.source.len()))
    }

    /// False of archives that are read forwards, as far as their names and their first bytes say so: none of these
    /// formats encrypts.
    fn may_be_opened_by_a_password(&self) -> bool {
        let name = single_file(self.path, &self.facts).path;
        let says_forwards = tarnfs_format::by_suffix(&name).is_some_and(|(format, _)| format.forwards().is_some());
        let mut head = vec![0; HEAD];
        let read = self.source.read_at(&mut head, 0).unwrap_or(0);
        let source: &dyn Source = &*self.source;
        let shown = tarnfs_format::detect(&Probe::new(head.get(..read).unwrap_or_default(), source));
        let is_random = shown.is_some_and(|format| format.forwards().is_none());
        self.options.shape.recursion.is_some() || !says_forwards || is_random
    }

    /// Reads only what was appended, where there is a good index of what was there before.
    pub(super) fn continued(&self, pass: &FirstPass<'_>) -> Result<Option<(Writer, Summary)>, Problem> {
        let Some(old) = self.grown_from() else { return Ok(None) };
        let mut writer = self.writer()?;
        let Some(shortest) = self.shortest_entry(old.summary()) else { return Ok(None) };
        match replay(&old, shortest, &mut writer) {
            Ok(()) => {}
            Err(tarnfs_index::Error::Stale(why)) => {
                log::info!("{} grew, and is read from its start: {why}", self.path.display());
                return Ok(None);
            }
            // Nothing has been read yet, and the archive itself says all that the index should have said.
            Err(tarnfs_index::Error::Broken(what)) => {
                log::warn!(
                    "{}: its old index is broken: {what}; the archive is read from its start",
                    self.path.display()
                );
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        }
        let end = old.summary().end;
        log::info!("{} grew: reading from byte {end}", self.path.display());
        match pass.grow(old.summary(), writer) {
            // The old index says wrongly where the last entry ends, or this is no longer what it described.
            Ok((_, summary)) if summary.notes.iter().any(|(at, _)| *at == end) => {}
            Err(Problem::NotAnArchive) => {}
            grown => return grown.map(Some),
        }
        log::info!("{}: no header at byte {end}; the archive is read from its start", self.path.display());
        Ok(None)
    }
}
