//! Programs that mount archives, and how each is called.

use std::ffi::OsString;
use std::path::Path;

use tarnfs_source::{FileSource, Source};

use crate::measure::{Job, Program};
use crate::{Error, Report, Settings};

/// What an archive is to those who mount only some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Zip,
    Squashfs,
    Other,
}

impl Kind {
    pub(super) fn of(archive: &Path) -> Result<Self, Error> {
        let mut start = [0; 4];
        // Not std's: whoever opens a pipe so waits, and hears no signal.
        let read = FileSource::open(archive).and_then(|file| file.read_at(&mut start, 0));
        let read = read.map_err(Error::opening(archive))?;
        Ok(match &start[..read] {
            b"PK\x03\x04" | b"PK\x05\x06" => Self::Zip,
            b"hsqs" => Self::Squashfs,
            _ => Self::Other,
        })
    }
}

/// How one is called.
struct Known {
    name: &'static str,
    fits: fn(Kind) -> bool,
    /// Options before the archive and the mount point.
    options: &'static [&'static str],
    /// The option that takes the folder of its indexes.
    indexes: Option<&'static str>,
}

/// All that are known. None of them is asked to write: what they mount belongs to people.
static KNOWN: [Known; 7] = [
    Known { name: "ratarmount", fits: |_| true, options: &["-P", "0"], indexes: Some("--index-folders") },
    Known { name: "fuse-archive", fits: |kind| kind != Kind::Squashfs, options: &["-o", "ro"], indexes: None },
    Known { name: "archivemount", fits: |kind| kind != Kind::Squashfs, options: &["-o", "readonly"], indexes: None },
    Known { name: "mount-zip", fits: |kind| kind == Kind::Zip, options: &["-o", "ro"], indexes: None },
    Known { name: "fuse-zip", fits: |kind| kind == Kind::Zip, options: &["-r"], indexes: None },
    Known { name: "squashfuse", fits: |kind| kind == Kind::Squashfs, options: &[], indexes: None },
    Known { name: "squashfuse_ll", fits: |kind| kind == Kind::Squashfs, options: &[], indexes: None },
];

static OWN: Known = Known { name: "tarnfs", fits: |_| true, options: &[], indexes: Some("--index-folders") };

/// One that is installed.
pub(super) struct Mounter {
    pub(super) program: Program,
    known: &'static Known,
}

impl Mounter {
    /// tarnfs, and all others that are installed and mount one of `kinds`.
    pub(super) fn all(settings: &Settings, report: &mut Report, kinds: &[Kind]) -> Vec<Self> {
        let mut all = vec![Self { program: settings.tarnfs.clone(), known: &OWN }];
        for known in &KNOWN {
            if kinds.iter().any(|&kind| (known.fits)(kind))
                && let Some(program) = settings.program(report, known.name)
            {
                all.push(Self { program, known });
            }
        }
        all
    }

    pub(super) fn fits(&self, kind: Kind) -> bool {
        (self.known.fits)(kind)
    }

    /// True for the program that the others are compared with.
    pub(super) fn is_own(&self) -> bool {
        self.known.name == OWN.name
    }

    /// The call that mounts `archive` at `at` and goes to the background. Indexes and other files that it keeps go to
    /// `keeps`, never beside the archive.
    pub(super) fn call(&self, archive: &Path, at: &Path, keeps: &Path, settings: &Settings) -> Job {
        let mut words: Vec<OsString> = self.known.options.iter().map(Into::into).collect();
        if let Some(option) = self.known.indexes {
            words.extend([OsString::from(option), keeps.into()]);
        }
        words.extend([OsString::from(archive), at.into()]);
        let mut job = self.program.job(words, settings.limit);
        job.variable("XDG_CACHE_HOME", keeps).variable("HOME", keeps).variable("TMPDIR", keeps);
        job
    }
}
