//! Options of `tarnfs info`.

use std::path::PathBuf;

use clap::Args;

use super::definitions::Open;

#[derive(Debug, Args)]
pub(crate) struct Info {
    /// The archives
    #[arg(required = true, value_name = "ARCHIVE")]
    pub(crate) archives: Vec<PathBuf>,

    /// Print one JSON object for each archive, one on a line
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) open: Open,
}
