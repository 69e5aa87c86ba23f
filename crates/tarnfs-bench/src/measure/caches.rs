//! The page cache, so that each run begins alike.

use std::fs::{self, File};
use std::path::Path;

use rustix::fs::{Advice, fadvise, sync};

/// What can be done about the caches of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caches {
    /// All of them can be dropped.
    AllDrop,
    /// Only pages of files that are named, and only some kernels do so.
    OnlyFiles,
}

const DROP: &str = "/proc/sys/vm/drop_caches";

impl Caches {
    /// What this process may do. Tries it, so caches are dropped then.
    pub fn new() -> Self {
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
            Self::AllDrop => "All caches of the system were dropped before what is called cold.",
            Self::OnlyFiles => {
                "Only root may drop all caches; before what is called cold, the kernel was asked to forget the pages \
                 of the files that are read."
            }
        }
    }
}

impl Default for Caches {
    fn default() -> Self {
        Self::new()
    }
}

/// Asks the kernel to forget the pages of a file.
pub fn forget(file: &Path) {
    if let Ok(file) = File::open(file) {
        // Whoever keeps them makes the figures better for all programs alike.
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
    }
}
