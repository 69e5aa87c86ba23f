//! What is said of single files: the first that fail are named, of more the number is told.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::exit::{Code, Failure};
use crate::terminal::{self, Colour, escaped, output_failure};

/// Files that are named without `-d 2`.
const MOST_NAMED: u64 = 20;

/// Tells what came of the files; shared by all threads.
pub(in crate::commands) struct Report {
    archive: String,
    colour: Colour,
    most: u64,
    state: Mutex<State>,
    /// Names of what was extracted go here.
    names: Option<Mutex<BufWriter<Stdout>>>,
}

struct State {
    code: Code,
    failed: u64,
}

impl Report {
    pub(in crate::commands) fn new(
        archive: &Path,
        colour: Colour,
        code: Code,
        names_all: bool,
        says_names: bool,
    ) -> Self {
        Self {
            archive: crate::args::shown(archive.as_os_str()),
            colour,
            most: if names_all { u64::MAX } else { MOST_NAMED },
            state: Mutex::new(State { code, failed: 0 }),
            names: says_names.then(|| Mutex::new(BufWriter::new(io::stdout()))),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the archive is called in messages.
    pub(in crate::commands) fn archive(&self) -> &str {
        &self.archive
    }

    /// A failure of the file at `path`.
    pub(in crate::commands) fn of_file(&self, path: &[u8], code: Code, what: &str) {
        self.failed(&Failure::new(code, format!("{}: {}: {what}", self.archive, escaped(path))));
    }

    /// Something that was asked for was not done.
    pub(in crate::commands) fn failed(&self, failure: &Failure) {
        let mut state = self.state();
        state.code = state.code.max(failure.code);
        state.failed += 1;
        if state.failed <= self.most {
            terminal::report(failure, self.colour);
        }
    }

    /// True if what was extracted is to be named.
    pub(in crate::commands) fn says_names(&self) -> bool {
        self.names.is_some()
    }

    /// Names what was extracted, where that is wanted.
    pub(in crate::commands) fn done(&self, path: &[u8]) -> Result<(), Failure> {
        let Some(names) = &self.names else { return Ok(()) };
        let is_terminal = io::stdout().is_terminal();
        let shown = if is_terminal { escaped(path).into_bytes() } else { path.to_vec() };
        let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
        let written = names.write_all(&[&shown, &b"\n"[..]].concat());
        // A person looks on.
        let written = if is_terminal { written.and_then(|()| names.flush()) } else { written };
        written.map_err(|error| output_failure(&error))
    }

    /// Says how many were not named, and how all has ended.
    pub(in crate::commands) fn finish(self) -> Result<Code, Failure> {
        if let Some(names) = self.names {
            let mut names = names.into_inner().unwrap_or_else(PoisonError::into_inner);
            names.flush().map_err(|error| output_failure(&error))?;
        }
        let State { code, failed } = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        if failed > self.most {
            let more = failed - self.most;
            let what = format!("{}: and {more} more; -d 2 names all", self.archive);
            terminal::report(&Failure::new(code, what), self.colour);
        }
        Ok(code)
    }
}
