use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tarnfs_source::Cancel;

use crate::measure::Program;
use crate::report::{Report, escaped};
use crate::{Error, Scratch};

/// What all comparisons are told. Made with [`Settings::new`]; the fields may be changed.
#[derive(Debug)]
pub struct Settings {
    /// The tarnfs that is measured.
    pub tarnfs: Program,
    /// Folders in which programs are looked for before `PATH`.
    pub peers: Vec<PathBuf>,
    /// How often each figure is taken.
    pub runs: usize,
    /// How long one program may take for one thing.
    pub limit: Duration,
    /// The folder for scratch files; none is a temporary one on a disk.
    pub folder: Option<PathBuf>,
    /// Leave the caches of the system as they are, also where they may be dropped.
    pub keep_caches: bool,
    /// The command line, for the report.
    pub command: Vec<OsString>,
    /// Ends everything.
    pub cancel: Cancel,
    /// Gets a line before each thing that may take long.
    pub progress: Option<fn(&str)>,
}

impl Settings {
    /// Settings for the tarnfs at this path. Fails if it does not say its version.
    pub fn new(tarnfs: &Path, cancel: Cancel) -> Result<Self, Error> {
        let tarnfs = Program::at("tarnfs", tarnfs).map_err(Error::Usage)?;
        Ok(Self {
            tarnfs,
            peers: Vec::new(),
            runs: 3,
            limit: Duration::from_secs(300),
            folder: None,
            keep_caches: false,
            command: std::env::args_os().collect(),
            cancel,
            progress: None,
        })
    }

    /// Says what is done now.
    pub fn say(&self, what: &str) {
        if let Some(progress) = self.progress {
            progress(&escaped(what));
        }
    }

    /// A program that is compared; `None` if it is not installed, which the report says then.
    pub fn program(&self, report: &mut Report, name: &str) -> Option<Program> {
        let found = Program::find(name, &self.peers);
        match &found {
            Some(program) => report.uses(program),
            None => report.lacks(name),
        }
        found
    }

    /// A report with that title, on this machine, with the tarnfs that is measured.
    pub fn report(&self, title: &str, scratch: &Scratch) -> Report {
        let mut report = Report::new(title, &self.command, scratch.path());
        report.uses(&self.tarnfs);
        report
    }

    /// A folder for scratch files, with room for so many bytes.
    pub fn scratch(&self, bytes: u64) -> Result<Scratch, Error> {
        Scratch::new(self.folder.as_deref(), bytes)
    }

    /// `Err` once somebody wants it to end.
    pub fn check(&self) -> Result<(), Error> {
        if self.cancel.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }
}
