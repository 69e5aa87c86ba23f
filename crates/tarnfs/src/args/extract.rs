use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::definitions::Open;
use super::size::parse_number;

#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line, most as in tar(1)")]
pub(crate) struct Extract {
    /// The archive
    pub(crate) archive: PathBuf,

    /// Files and folders in it, with all that is in them, also as globs (`*.txt`, `**/*.c`) [default: all]
    #[arg(value_name = "PATTERN")]
    pub(crate) patterns: Vec<OsString>,

    /// Folder to extract to. It is made if it is not there
    #[arg(short = 'C', long, value_name = "DIR", default_value = ".", hide_default_value = true, value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,

    /// Print the path of each file and folder that is extracted
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,

    /// Go on where a call was stopped: files that are there with the size and time of the archive's are left as they
    /// are
    #[arg(long, help_heading = "Files that are there")]
    pub(crate) resume: bool,

    /// Replace files that are there [default: it is an error, and they stay]
    #[arg(long, conflicts_with_all = ["skip_old", "keep_newer"], help_heading = "Files that are there")]
    pub(crate) overwrite: bool,

    /// Leave files that are there as they are
    #[arg(long, alias = "skip-old-files", conflicts_with = "keep_newer", help_heading = "Files that are there")]
    pub(crate) skip_old: bool,

    /// Replace files that are there unless they are newer than the archive's
    #[arg(long, alias = "keep-newer-files", help_heading = "Files that are there")]
    pub(crate) keep_newer: bool,

    /// Leave out so many folders at the start of each path
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = parse_number::<usize>)]
    pub(crate) strip_components: usize,

    /// Keep modes as they are stored, whatever the umask (default for root)
    #[arg(
        short = 'p',
        long,
        alias = "preserve-permissions",
        overrides_with = "no_same_permissions",
        help_heading = "What is kept"
    )]
    pub(crate) same_permissions: bool,

    /// Lessen modes by the umask, and keep neither setuid bits nor access control lists (default for others)
    #[arg(long, overrides_with = "same_permissions", help_heading = "What is kept")]
    pub(crate) no_same_permissions: bool,

    /// Keep owners (default for root)
    #[arg(long, overrides_with = "no_same_owner", help_heading = "What is kept")]
    pub(crate) same_owner: bool,

    /// Files belong to you (default for others)
    #[arg(short = 'o', long, overrides_with = "same_owner", help_heading = "What is kept")]
    pub(crate) no_same_owner: bool,

    /// Take owners by their numbers, not by their names
    #[arg(long, help_heading = "What is kept")]
    pub(crate) numeric_owner: bool,

    /// Keep extended attributes of this glob, and no others: `--xattrs-include='*'` keeps all, capabilities among them
    /// [default: `user.*`]
    #[arg(long, value_name = "GLOB", help_heading = "What is kept")]
    pub(crate) xattrs_include: Vec<String>,

    /// Keep no extended attributes of this glob
    #[arg(long, value_name = "GLOB", help_heading = "What is kept")]
    pub(crate) xattrs_exclude: Vec<String>,

    /// Keep no extended attributes
    #[arg(long, help_heading = "What is kept")]
    pub(crate) no_xattrs: bool,

    /// Keep no access control lists
    #[arg(long, help_heading = "What is kept")]
    pub(crate) no_acls: bool,

    #[command(flatten)]
    pub(crate) open: Open,
}
