//! What a commit will do, before it is done.

use std::io::{self, BufRead as _, Write as _};
use std::path::Path;

use tarnfs_tree::{Change, OverlayStatus};

use super::failed;
use crate::args::shown;
use crate::exit::{Code, Failure};
use crate::inside::noun;
use crate::terminal::{Output, output_failure};

/// Old paths of what has another name that are looked at.
const MOST_MOVED: usize = 10_000;

/// What has another name than below, or a further one.
#[derive(Debug)]
pub(super) struct Moved {
    /// The path below.
    pub(super) from: Vec<u8>,
    pub(super) path: Vec<u8>,
    pub(super) is_folder: bool,
}

/// How much an overlay changes.
#[derive(Debug, Default)]
pub(super) struct Changes {
    added: u64,
    modified: u64,
    deleted: u64,
    renamed: u64,
    /// Of files that were written.
    bytes: u64,
    /// The attributes of the root are among it.
    pub(super) root: bool,
    /// What has another name, as far as that is not too much.
    pub(super) moved: Vec<Moved>,
}

impl Changes {
    /// Of the overlay in `folder`.
    pub(super) fn of(folder: &Path) -> Result<Self, Failure> {
        let mut all = Self::default();
        let status = OverlayStatus::open(folder).map_err(failed)?;
        let counted = status.each(&mut |changed| {
            let counter = match changed.change {
                Change::Added => &mut all.added,
                Change::Modified => &mut all.modified,
                Change::Deleted => &mut all.deleted,
                Change::Renamed => &mut all.renamed,
            };
            *counter += 1;
            all.root |= changed.path == b"/";
            let (is_folder, path) = (changed.is_folder(), changed.path);
            let is_moved = changed.change == Change::Renamed && all.moved.len() < MOST_MOVED;
            if let Some(from) = changed.from.filter(|_| is_moved) {
                all.moved.push(Moved { from, path, is_folder });
            }
            // One that is renamed and modified comes twice, with its content both times.
            if changed.change != Change::Renamed
                && let Some(content) = &changed.content
            {
                all.bytes += status.length_of(content).unwrap_or(0);
            }
            true
        });
        counted.map_err(failed)?;
        Ok(all)
    }

    /// Beside the attributes of the root.
    pub(super) fn is_nothing(&self) -> bool {
        self.added + self.modified + self.deleted + self.renamed == u64::from(self.root)
    }

    /// True if something was removed, or may have been.
    pub(super) fn removes(&self) -> bool {
        self.deleted > 0 || self.renamed > self.moved.len() as u64
    }

    fn in_words(&self) -> String {
        let all =
            [(self.added, "added"), (self.modified, "changed"), (self.deleted, "removed"), (self.renamed, "renamed")];
        let words: Vec<_> =
            all.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        format!("{}; {} {} of files were written", words.join(", "), self.bytes, noun(self.bytes, "byte"))
    }
}

/// What is to be done with an archive.
pub(super) struct Plan<'a> {
    pub(super) archive: &'a Path,
    pub(super) overlay: &'a Path,
    /// "tar, compressed with gzip".
    pub(super) how: String,
    /// It is appended to.
    pub(super) appends: bool,
    /// Bytes of the archive as it is.
    pub(super) length: u64,
    pub(super) changes: &'a Changes,
    /// What else is to be known: what the new archive will not have.
    pub(super) others: &'a [&'a String],
}

impl Plan<'_> {
    /// Says it on standard output.
    pub(super) fn tell(&self) -> Result<(), Failure> {
        let (archive, overlay) = (shown(self.archive.as_os_str()), shown(self.overlay.as_os_str()));
        let mut out = Output::new();
        let mut say = || -> io::Result<()> {
            writeln!(out, "{archive}: {}", self.changes.in_words())?;
            let done = if self.appends { "is appended to" } else { "is written anew" };
            writeln!(out, "{archive}: {done}: {}, {} bytes until now", self.how, self.length)?;
            for what in self.others {
                writeln!(out, "{archive}: {what}")?;
            }
            writeln!(out, "{overlay}: is empty then; `tarnfs overlay status {overlay}` lists what is in it")?;
            out.flush()
        };
        say().map_err(|error| output_failure(&error))
    }
}

/// Says something else of it, also to scripts.
pub(super) fn say(line: &str) -> Result<(), Failure> {
    let mut out = Output::new();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| output_failure(&error))
}

/// Asks whether to go on, as ratarmount does. What is not the word is a no.
pub(super) fn is_confirmed() -> Result<bool, Failure> {
    let mut out = Output::new();
    let asked =
        write!(out, "Enter \"commit\" to do it, anything else to leave all as it is: ").and_then(|()| out.flush());
    asked.map_err(|error| output_failure(&error))?;
    drop(out);
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    read.map_err(|error| Failure::new(Code::Failure, format!("reading the answer: {error}")))?;
    if !line.ends_with('\n') {
        // The next line is no part of the question.
        crate::terminal::tell("");
    }
    Ok(line.trim() == "commit")
}
