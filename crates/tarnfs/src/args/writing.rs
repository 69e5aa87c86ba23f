//! Options of the commands that write archives.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::definitions::{DEBUG, Open};
use super::size::{parse_level, parse_number, parse_size};

/// What goes in has the words of GNU tar.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line, most as in tar(1)")]
#[command(disable_help_flag = true)]
pub(crate) struct Create {
    /// The archive. Its name tells the format: .tar, .tar.gz, .tar.bz2, .tar.xz, .tar.zst, .tar.lz4, .zip; `-` is
    /// standard output
    #[arg(value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub(crate) archive: PathBuf,

    /// Files, and folders with all that is in them
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<OsString>,

    #[command(flatten)]
    pub(crate) how: Compress,

    /// Threads that compress; 0 means one per core. The archive is the same for any number
    #[arg(short = 'P', long, value_name = "N", default_value = "0", value_parser = parse_number::<usize>, help_heading = "Writing")]
    pub(crate) threads: usize,

    /// Take the paths from this folder
    #[arg(short = 'C', long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "What goes in")]
    pub(crate) directory: Option<PathBuf>,

    /// Also what stands in this file, a path on each line; `-` is standard input
    #[arg(short = 'T', long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "What goes in")]
    pub(crate) files_from: Vec<PathBuf>,

    /// Paths of -T end with a zero byte, not with the line
    #[arg(long, help_heading = "What goes in")]
    pub(crate) null: bool,

    /// Leave out what matches this glob, and all that is in it. `*` stands for slashes, too
    #[arg(long, value_name = "GLOB", help_heading = "What goes in")]
    pub(crate) exclude: Vec<OsString>,

    /// Leave out what matches a glob in this file, one on each line
    #[arg(short = 'X', long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "What goes in")]
    pub(crate) exclude_from: Vec<PathBuf>,

    /// Leave out what is on other file systems
    #[arg(long, help_heading = "What goes in")]
    pub(crate) one_file_system: bool,

    /// Put in what symbolic links lead to
    #[arg(short = 'h', long, help_heading = "What goes in")]
    pub(crate) dereference: bool,

    /// Put in a file again for each further name
    #[arg(long, help_heading = "What goes in")]
    pub(crate) hard_dereference: bool,

    /// Keep holes
    #[arg(short = 'S', long, help_heading = "What goes in")]
    pub(crate) sparse: bool,

    /// Keep extended attributes
    #[arg(long, help_heading = "What goes in")]
    pub(crate) xattrs: bool,

    /// Keep POSIX ACLs
    #[arg(long, help_heading = "What goes in")]
    pub(crate) acls: bool,

    /// Order of the files of a folder
    #[arg(long, value_enum, default_value_t = SortFiles::None, help_heading = "How it looks there")]
    pub(crate) sort: SortFiles,

    /// Everything belongs to this user: a name, a number, or NAME:NUMBER
    #[arg(long, value_name = "NAME[:UID]", help_heading = "How it looks there")]
    pub(crate) owner: Option<String>,

    /// And to this group
    #[arg(long, value_name = "NAME[:GID]", help_heading = "How it looks there")]
    pub(crate) group: Option<String>,

    /// Keep numbers of users and groups, not their names
    #[arg(long, help_heading = "How it looks there")]
    pub(crate) numeric_owner: bool,

    /// Everything was changed then: a date, a date with a time, `@SECONDS`, or a file whose time is taken, as a path
    /// that begins with `/` or `.`
    #[arg(long, value_name = "DATE", help_heading = "How it looks there")]
    pub(crate) mtime: Option<String>,

    /// Change permissions as chmod does
    #[arg(long, value_name = "CHANGES", allow_hyphen_values = true, help_heading = "How it looks there")]
    pub(crate) mode: Option<String>,

    /// Change paths, and targets of symbolic links, as sed does
    #[arg(long, visible_alias = "xform", value_name = "s/OLD/NEW/", help_heading = "How it looks there")]
    pub(crate) transform: Vec<String>,

    /// The same bytes on any machine: sorted by name, no owners, the time of --mtime or SOURCE_DATE_EPOCH or else
    /// 1980, permissions 755 or 644
    #[arg(long, help_heading = "How it looks there")]
    pub(crate) reproducible: bool,

    /// 0 logs errors, 1 warnings, 2 more, 3 everything
    #[arg(short = 'd', long, value_name = "LEVEL", default_value_t = DEBUG, value_parser = parse_level)]
    pub(crate) debug: u8,

    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: (),
}

/// Of a tar, and of a single file that is compressed, only the compression changes where that is enough.
#[derive(Debug, Args)]
pub(crate) struct Convert {
    /// The archive
    #[arg(value_name = "IN", value_hint = ValueHint::FilePath)]
    pub(crate) archive: PathBuf,

    /// The new one. Its name tells the format, as for `tarnfs create`
    #[arg(value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,

    #[command(flatten)]
    pub(crate) how: Compress,

    /// Threads that compress; 0 means one per core. The archive is the same for any number
    #[arg(long, value_name = "N", default_value = "0", value_parser = parse_number::<usize>, help_heading = "Writing")]
    pub(crate) threads: usize,

    /// Remove IN once every byte of its files was found to be the same in OUT, which may be the same file
    #[arg(long, help_heading = "Writing")]
    pub(crate) replace: bool,

    /// What is encrypted in IN may be open to all in OUT: nobody is warned, and --replace removes IN
    #[arg(long, help_heading = "Writing")]
    pub(crate) decrypt: bool,

    #[command(flatten)]
    pub(crate) open: Open,
}

/// How an archive is written.
#[derive(Debug, Args)]
#[allow(clippy::struct_field_names, reason = "fields have the names of their options")]
pub(crate) struct Compress {
    /// gzip, bzip2, xz, zstd, lz4, none, or zip [default: what the name of OUT says]
    #[arg(long, value_name = "NAME", help_heading = "Writing")]
    pub(crate) compress: Option<String>,

    /// How hard to compress: gzip 1 to 12, bzip2 1 to 9, xz 0 to 9, zstd 1 to 22, zip 0 to 9 [default: gzip 6, bzip2
    /// 9, xz 6, zstd 3, zip 6]
    #[arg(long, value_name = "LEVEL", value_parser = parse_number::<i32>, help_heading = "Writing")]
    pub(crate) level: Option<i32>,

    /// Memory for compressing, in bytes or with K, M or G: there are fewer threads if they would take more [default: a
    /// quarter of the machine's]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Writing")]
    pub(crate) memory: Option<u64>,

    /// Replace an archive of that name once the new one is whole
    #[arg(long, help_heading = "Writing")]
    pub(crate) overwrite: bool,

    /// Write no index beside the archive
    #[arg(long, help_heading = "Writing")]
    pub(crate) no_index: bool,
}

/// The order of a folder's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortFiles {
    /// As the file system has them
    None,
    /// By name
    Name,
    /// By inode number
    Inode,
}
