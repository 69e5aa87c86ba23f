//! Options of `tarnfs advise`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::definitions::Open;
use super::size::parse_number;

/// What is tried is what `tarnfs create` and `tarnfs convert` write.
#[derive(Debug, Args)]
pub(crate) struct Advise {
    /// A folder, or an archive
    #[arg(value_name = "DIR|ARCHIVE", value_hint = ValueHint::AnyPath)]
    pub(crate) path: PathBuf,

    /// What the command that is printed is for
    #[arg(long = "for", value_enum, default_value_t = Purpose::All, value_name = "PURPOSE")]
    pub(crate) purpose: Purpose,

    /// Print a table of all that was measured, too
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,

    /// Print one JSON object
    #[arg(long, conflicts_with = "verbose")]
    pub(crate) json: bool,

    /// Threads that compress; 0 means one per core
    #[arg(long, value_name = "N", default_value = "0", value_parser = parse_number::<usize>)]
    pub(crate) threads: usize,

    /// Time that it may take, in seconds
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) seconds: u32,

    #[command(flatten)]
    pub(crate) open: Open,
}

/// What an archive is to be best at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Purpose {
    /// The smallest archive
    Size,
    /// The one that is compressed in the least time
    Speed,
    /// The one of which a single file is read in the least time
    Access,
    /// The one that takes the least time to be compressed once, and to be copied at 100 MB/s and decoded ten times
    All,
}
