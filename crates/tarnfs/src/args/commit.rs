//! What `tarnfs commit` is asked for.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::definitions::Open;
use super::size::{parse_number, parse_size};

/// The archive is a tar in any compression that `tarnfs create` writes, or a zip. A tar that is not compressed is
/// appended to where nothing is removed or renamed. Else a new archive is written beside the old one, read again and
/// compared, and then takes the old one's place. The overlay is emptied last. Whatever happens meanwhile, the old
/// archive or the new one is there, and what was written is in the overlay, or in the archive.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Commit {
    /// The archive
    #[arg(value_name = "ARCHIVE", value_hint = ValueHint::FilePath)]
    pub(crate) archive: PathBuf,

    /// The folder that was given to --write-overlay
    #[arg(
        short = 'w',
        long,
        visible_alias = "write-overlay",
        value_name = "DIR",
        value_hint = ValueHint::DirPath,
        help_heading = "Writing"
    )]
    pub(crate) overlay: PathBuf,

    /// Do not ask
    #[arg(short = 'y', long, help_heading = "Writing")]
    pub(crate) yes: bool,

    /// Only say what would be done
    #[arg(short = 'n', long, help_heading = "Writing")]
    pub(crate) dry_run: bool,

    /// Go on where the new archive cannot have all of it, as is said
    #[arg(long, help_heading = "Writing")]
    pub(crate) lossy: bool,

    /// Write the archive anew, also where it is enough to append to it: a tar that is not compressed, of which nothing
    /// is removed or renamed. What the changed files were before is not in it then
    #[arg(long, help_heading = "Writing")]
    pub(crate) rewrite: bool,

    /// How hard to compress, as for `tarnfs create`
    #[arg(long, value_name = "LEVEL", value_parser = parse_number::<i32>, help_heading = "Writing")]
    pub(crate) level: Option<i32>,

    /// Threads that compress; 0 means one per core. The archive is the same for any number
    #[arg(long, value_name = "N", default_value = "0", value_parser = parse_number::<usize>, help_heading = "Writing")]
    pub(crate) threads: usize,

    /// Memory for compressing, as for `tarnfs create`
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Writing")]
    pub(crate) memory: Option<u64>,

    /// Write no index beside the archive
    #[arg(long, help_heading = "Writing")]
    pub(crate) no_index: bool,

    #[command(flatten)]
    pub(crate) open: Open,
}
