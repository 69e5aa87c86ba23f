//! The page cache, so that each run begins alike.

use std::fs::{self, File};
use std::path::Path;

use rustix::fs::{Advice, fadvise, sync};
use rustix::process::geteuid;

use crate::Settings;

/// What can be done about the caches of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caches {
    /// All of them can be dropped.
    AllDrop,
    /// Only pages of files that are named, and only some kernels do so.
    OnlyFiles,
    /// The same, as whoever measures spares the others on this machine.
    Spared,
}

const DROP: &str = "/proc/sys/vm/drop_caches";

impl Caches {
    /// What this process may do, and is to do if it may. Tries it, so caches are dropped then; that is said before.
    pub fn new(settings: &Settings) -> Self {
        if settings.keep_caches {
            return Self::Spared;
        }
        if geteuid().is_root() {
            settings.say("all caches of this machine are dropped before each cold run; --keep-caches leaves them");
        }
        sync();
        if fs::write(DROP, "3").is_ok() { Self::AllDrop } else { Self::OnlyFiles }
    }

    /// Drops them: all if allowed, else those of these files.
    pub fn drop<P: AsRef<Path>>(self, files: impl IntoIterator<Item = P>) {
        sync();
        if self == Self::AllDrop && fs::write(DROP, "3").is_ok() {
            return;
        }
        for file in files {
            forget(file.as_ref());
        }
    }

    /// For the report.
    pub fn line(self) -> &'static str {
        match self {
            Self::AllDrop => {
                "All caches of the system were dropped before what is called cold, also those that other programs use \
                 (--keep-caches leaves them)."
            }
            Self::Spared => {
                "The caches of the system were left as they are (--keep-caches); before what is called cold, the kernel \
                 was asked to forget the pages of the files that are read."
            }
            Self::OnlyFiles => {
                "Only root may drop all caches; before what is called cold, the kernel was asked to forget the pages \
                 of the files that are read."
            }
        }
    }
}

/// Asks the kernel to forget the pages of a file.
pub fn forget(file: &Path) {
    if let Ok(file) = File::open(file) {
        // Whoever keeps them makes the figures better for all programs alike.
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
    }
}
