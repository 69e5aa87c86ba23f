//! What is asked of write overlays, and of mounts that can be written to.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::definitions::Open;

/// What `tarnfs overlay` does.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one of it")]
pub(crate) enum Overlay {
    /// List what was added (A), modified (M), deleted (D) and renamed (R), one path on a line
    ///
    /// It is read from the folder of the overlay alone, also while it is mounted. Names that are not plain text are
    /// shown as in `tarnfs ls`.
    Status {
        /// The folder that was given to --write-overlay
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        folder: PathBuf,

        /// Print one JSON object for each change, one on a line
        #[arg(long)]
        json: bool,
    },

    /// Show what is different from the archive, as `git diff` does
    Diff(OverlayDiff),
}

/// Lines of text files are compared; of others, and of files of more than 8 MiB, it is only said that they differ.
/// Of folders only other modes are shown; owners, times and extended attributes are not. The overlay may be in use.
#[derive(Debug, Args)]
pub(crate) struct OverlayDiff {
    /// The folder that was given to --write-overlay
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,

    /// The archive that it was written over
    #[arg(value_name = "ARCHIVE", value_hint = ValueHint::FilePath)]
    pub(crate) archive: PathBuf,

    /// Only these files and folders
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,

    #[command(flatten)]
    pub(crate) open: Open,
}

/// How a mount is written to.
#[derive(Debug, Args)]
pub(crate) struct Written {
    /// Let all be changed; DIR gets the changes
    ///
    /// The archive stays as it is. DIR is made if it is not there, and used again by the next mount with it, also one
    /// that ratarmount has made. `:temp:` is a folder that is removed when the mount ends, and `:memory:` one in
    /// memory. `tarnfs overlay status DIR` lists what was changed.
    #[arg(short = 'w', long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Mounting")]
    write_overlay: Option<OsString>,

    /// Let all be changed, and put the changes into the archive when it is unmounted, as archivemount does. Until then
    /// they are in ARCHIVE.changes, and stay there if that fails. `tarnfs -u` waits for it. `-o rw` does the same
    #[arg(hide_short_help = true, long, conflicts_with = "write_overlay", help_heading = "Mounting")]
    pub(crate) write: bool,

    /// Mount nothing: put what is in the folder of --write-overlay into the archive, as `tarnfs commit` does
    #[arg(hide_short_help = true, long, help_heading = "Mounting")]
    pub(crate) commit_overlay: bool,
}

impl Written {
    /// The folder that takes it. An empty one is none, as in ratarmount.
    pub(crate) fn overlay(&self) -> Option<&OsString> {
        self.write_overlay.as_ref().filter(|folder| !folder.is_empty())
    }
}
