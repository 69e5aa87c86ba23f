use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::definitions::Open;

/// Each difference is one line, such as `path: Size differs: 5 -> 7`: what the archive has, then what the other side
/// has. The exit code is 1 if there is any.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Compare {
    /// The archive
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) archive: PathBuf,

    /// The folder that it is compared with, or another archive [default: the current folder]
    #[arg(value_name = "DIR", value_hint = ValueHint::AnyPath)]
    pub(crate) other: Option<PathBuf>,

    /// Compare only these files and folders, with all that is in them, also as globs (`*.txt`, `**/*.c`)
    #[arg(value_name = "PATTERN")]
    pub(crate) patterns: Vec<OsString>,

    /// Print one JSON object for each difference, one on a line
    #[arg(long)]
    pub(crate) json: bool,

    /// Do not compare these: words with commas between
    #[arg(long, value_name = "WHAT", value_delimiter = ',', help_heading = "What is compared")]
    pub(crate) ignore: Vec<Ignored>,

    /// Compare types, contents and targets of symbolic links, and no other attributes
    #[arg(long, help_heading = "What is compared")]
    pub(crate) content_only: bool,

    /// Say nothing of what is only in DIR, as `tar -d` does
    #[arg(long, help_heading = "What is compared")]
    pub(crate) no_extra: bool,

    /// Compare owners by their numbers, not by their names
    #[arg(long, help_heading = "What is compared")]
    pub(crate) numeric_owner: bool,

    #[command(flatten)]
    pub(crate) open: Open,
}

/// What need not be the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ignored {
    /// Permissions
    Mode,
    /// User and group
    Owner,
    /// Time of the last change
    Mtime,
    /// Extended attributes and access control lists
    Xattrs,
    /// Which names are one file
    Links,
    /// Bytes of files: only their lengths are compared
    Content,
}
