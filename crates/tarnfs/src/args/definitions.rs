use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::size::{parse_range, parse_size};
use crate::exit;
use crate::terminal::Colour;

/// Opens archives as a file system: every file can be read at once, at any offset, without unpacking.
#[derive(Debug, Parser)]
#[command(
    name = "tarnfs",
    version,
    disable_version_flag = true,
    args_conflicts_with_subcommands = true,
    subcommand_precedence_over_arg = true,
    infer_long_args = true,
    max_term_width = 110,
    override_usage = "tarnfs [OPTIONS] ARCHIVE... [MOUNTPOINT]\n       tarnfs -u MOUNTPOINT...\n       tarnfs COMMAND ...",
    after_help = exit::TABLE
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) mount: Mount,

    /// Print the version
    #[arg(short = 'v', long, visible_short_alias = 'V', action = clap::ArgAction::Version)]
    version: (),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Mount archives and folders (what `tarnfs ARCHIVE` does)
    Mount(Mount),
    /// Unmount
    Unmount {
        /// Where they are mounted
        #[arg(required = true)]
        mountpoints: Vec<PathBuf>,
    },
    /// Make the index of archives, without mounting them
    Index(Index),
    /// Read archives from start to end and say what is damaged in them, or wrong in their index
    Check(Check),
    /// List what is in an archive
    Ls(List),
    /// Write files of an archive to standard output; without a path, the archive with its compression undone
    Cat(Cat),
    /// Show all that is known of a file in an archive
    Stat(Stat),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the man page
    Man,
}

/// How an archive is opened: the same for every command.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Open {
    /// Make the index anew
    #[arg(short = 'c', long, help_heading = "Index")]
    pub(crate) recreate_index: bool,

    /// Fail if there is no index that belongs to the archive, rather than make one
    #[arg(long, conflicts_with = "recreate_index", help_heading = "Index")]
    pub(crate) no_recreate_index: bool,

    /// An index belongs only to an archive with the same time of last change
    #[arg(long, help_heading = "Index")]
    pub(crate) verify_mtime: bool,

    /// Read and write the index in this file; `:memory:` keeps it in memory
    #[arg(long, value_name = "FILE", help_heading = "Index")]
    pub(crate) index_file: Option<OsString>,

    /// Folders in which the index is looked for and put, the first that works: separated by commas or a JSON list;
    /// an empty one is the folder of the archive [default: the archive's, then the user's cache]
    #[arg(long, value_name = "FOLDERS", help_heading = "Index")]
    pub(crate) index_folders: Option<String>,

    /// Small archives (below 16 MiB) with fewer entries than this get no index on disk
    #[arg(long, value_name = "N", default_value_t = 1000, help_heading = "Index")]
    pub(crate) index_minimum_file_count: u64,

    /// Believe an index even if somebody else could have written it
    #[arg(long, help_heading = "Index")]
    pub(crate) trust_index: bool,

    /// Threads that decode; 0 for one on each core. For single codecs: `gzip:4,xz:1,:2`, where the one without a name
    /// is for all others; ratarmount's names of them are understood
    #[arg(short = 'P', long, value_name = "N", default_value = "0", help_heading = "Decoding")]
    pub(crate) parallelization: String,

    /// Memory for decoded data, decoders and seek points together: bytes, or with K, M, G behind it [default: 128M, and
    /// 16M for each thread behind the second, at most a quarter of what there is]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Decoding")]
    pub(crate) cache_memory: Option<u64>,

    /// Disk space, in the user's cache folder, for decoded data of archives that are slow to decode from their seek
    /// points; 0 keeps none [default: 2G, at most a tenth of what is free]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Decoding")]
    pub(crate) cache_size: Option<u64>,

    /// A dictionary that frames of zstd were made with, as for `zstd -D`; several may be given, each with an option of
    /// its own. Frames name theirs by its ID; those without an ID get the one that has none, or else the first
    #[arg(long, value_name = "FILE", help_heading = "Decoding")]
    pub(crate) zstd_dictionary: Vec<PathBuf>,

    /// Spacing of the points at which decoding can start, in MiB of decoded data [alias: -gs] [default: as close as a
    /// hundredth of the archive's size allows, between 0.5 and 4]
    #[arg(long, value_name = "MIB", help_heading = "Decoding")]
    pub(crate) gzip_seek_point_spacing: Option<f64>,

    /// Names that are not UTF-8 are in this encoding: utf-8 (leave them as they are), latin1, cp437, shift_jis, ...
    #[arg(short = 'e', long, default_value = "utf-8", help_heading = "Reading tar")]
    pub(crate) encoding: String,

    /// Go on behind zero blocks: several tar archives one behind the other
    #[arg(short = 'i', long, help_heading = "Reading tar")]
    pub(crate) ignore_zeros: bool,

    /// The archive is a GNU incremental dump: strip the time in front of its paths
    #[arg(long, overrides_with = "detect_gnu_incremental", help_heading = "Reading tar")]
    pub(crate) gnu_incremental: bool,

    /// Find out whether the archive is a GNU incremental dump
    #[arg(long, help_heading = "Reading tar")]
    pub(crate) detect_gnu_incremental: bool,

    /// Show archives and compressed files in the archive as folders of what they hold
    #[arg(short = 'r', long, overrides_with = "no_recursive", help_heading = "Archives in archives")]
    pub(crate) recursive: bool,

    /// Leave them files; this is the default
    #[arg(long, overrides_with = "recursive", help_heading = "Archives in archives")]
    pub(crate) no_recursive: bool,

    /// The same as --recursive, for so many archives inside each other; below 0 as many as there are. Also the most
    /// layers of compression around one file, if that is more than 100
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Archives in archives")]
    pub(crate) recursion_depth: Option<i64>,

    /// Names of files that may be archives, as globs for their ends, separated by commas. Sets: /archive, /binary,
    /// /compressed, /disk, /document, /multimedia, /split, /all. With `/-` behind it, one is taken out again; `*`
    /// stands for all files; `,,` for a comma
    #[arg(
        long,
        value_name = "GLOBS",
        default_values = tarnfs_tree::DEFAULT_EXTENSIONS,
        hide_default_value = true,
        help_heading = "Archives in archives"
    )]
    pub(crate) recursive_extensions: Vec<String>,

    /// Name the folder of an archive in the archive without its extension: `x` for `x.tar.gz`
    #[arg(
        short = 's',
        long,
        overrides_with = "no_strip_recursive_tar_extension",
        help_heading = "Archives in archives"
    )]
    pub(crate) strip_recursive_tar_extension: bool,

    /// Keep the extension; this is the default
    #[arg(long, overrides_with = "strip_recursive_tar_extension", help_heading = "Archives in archives")]
    pub(crate) no_strip_recursive_tar_extension: bool,

    /// Change the paths of such folders: a regular expression and its replacement, as in Python's re.sub
    #[arg(long, value_names = ["RE", "REPLACEMENT"], num_args = 2, help_heading = "Archives in archives")]
    pub(crate) transform_recursive_mount_point: Option<Vec<String>>,

    /// Keep hashes of all files as extended attributes `user.hash.NAME`, separated by commas: crc32, md5, sha1,
    /// sha256, sha512, sha3-256, blake2b, blake3, ...
    #[arg(long, value_name = "NAMES", help_heading = "Reading tar")]
    pub(crate) hashes: Vec<String>,

    /// Change all paths in the archive: a regular expression and its replacement, as in Python's re.sub
    #[arg(long, value_names = ["RE", "REPLACEMENT"], num_args = 2, help_heading = "Reading tar")]
    pub(crate) transform: Option<Vec<String>>,

    /// What is logged: 0 errors, 1 warnings, 2 what is done, 3 everything
    #[arg(short = 'd', long, value_name = "LEVEL", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=3), help_heading = "Messages")]
    pub(crate) debug: u8,

    /// Write messages to this file
    #[arg(long, value_name = "FILE", help_heading = "Messages")]
    pub(crate) log_file: Option<PathBuf>,

    /// Colours, also where standard error is no terminal
    #[arg(long, overrides_with = "no_color", help_heading = "Messages")]
    pub(crate) color: bool,

    /// No colours
    #[arg(long, help_heading = "Messages")]
    pub(crate) no_color: bool,
}

impl Open {
    /// What `--color` and `--no-color` say.
    pub(crate) fn colour(&self) -> Colour {
        match (self.color, self.no_color) {
            (true, _) => Colour::Always,
            (_, true) => Colour::Never,
            _ => Colour::IfTerminal,
        }
    }
}

#[derive(Debug, Args)]
#[allow(
    clippy::struct_field_names,
    clippy::struct_excessive_bools,
    reason = "fields have the names of their options, each a flag of the command line"
)]
pub(crate) struct Mount {
    /// The archive, and where to mount it; without a mount point, a folder named after the archive is made. Several
    /// archives or folders are mounted one over the other: of what has the same path, that of the last one shows
    #[arg(value_name = "ARCHIVE... [MOUNTPOINT]", num_args = 0..)]
    pub(crate) paths: Vec<PathBuf>,

    /// Unmount
    #[arg(short = 'u', long, value_name = "MOUNTPOINT", num_args = 1.., conflicts_with = "paths", help_heading = "Mounting")]
    pub(crate) unmount: Vec<PathBuf>,

    /// Stay in the foreground
    #[arg(short = 'f', long, help_heading = "Mounting")]
    pub(crate) foreground: bool,

    /// Options of the mount, separated by commas: allow_other, noexec, noatime, ...; also the long ones listed here,
    /// without their dashes, as fstab needs it: `index-folders=/x,recreate-index`. A comma in a value is written
    /// `\,`
    #[arg(short = 'o', long, value_name = "OPTIONS", help_heading = "Mounting")]
    pub(crate) fuse: Vec<String>,

    /// Once it is mounted, give up all rights that serving it does not need, through Landlock and seccomp; this is the
    /// default
    #[arg(long, overrides_with = "no_sandbox", help_heading = "Mounting")]
    pub(crate) sandbox: bool,

    /// Give up no rights
    #[arg(long, overrides_with = "sandbox", help_heading = "Mounting")]
    pub(crate) no_sandbox: bool,

    /// Only make the index
    #[arg(long, help_heading = "Mounting")]
    pub(crate) no_mount: bool,

    /// Open archives in an archive only when somebody looks inside, not when the one that they lie in is indexed.
    /// Archives in folders always are
    #[arg(short = 'l', long, overrides_with = "no_lazy", help_heading = "Archives in archives")]
    pub(crate) lazy: bool,

    /// Index all of them at once; this is the default
    #[arg(long, overrides_with = "lazy", help_heading = "Archives in archives")]
    pub(crate) no_lazy: bool,

    /// Add a folder `.ratarmount-control`, which no listing shows: a command line of tarnfs that is written to
    /// `command` in it is run, and `output` has what that says. A mount point below this one, or relative to it,
    /// adds to this mount. Whoever may write there, which are the user who mounts and root, runs tarnfs with the
    /// rights of this process, which gives up none (--no-sandbox)
    #[arg(long, overrides_with = "no_control_interface", help_heading = "Mounting")]
    pub(crate) control_interface: bool,

    /// Do without; this is the default
    #[arg(long, overrides_with = "control_interface", help_heading = "Mounting")]
    pub(crate) no_control_interface: bool,

    /// Put each of several archives and folders into a folder of its own, named after it
    #[arg(long, help_heading = "What is shown")]
    pub(crate) disable_union_mount: bool,

    /// Show only what is in this folder; also `-o modules=subdir,subdir=PATH`
    #[arg(short = 'p', long, value_name = "PATH", help_heading = "What is shown")]
    pub(crate) prefix: Option<OsString>,

    /// Show older versions of FILE as FILE.versions/1, FILE.versions/2, ... in a folder that is in no listing; the
    /// last is the one that shows. This is the default
    #[arg(long, overrides_with = "no_file_versions", help_heading = "What is shown")]
    pub(crate) file_versions: bool,

    /// Show no older versions of files
    #[arg(long, overrides_with = "file_versions", help_heading = "What is shown")]
    pub(crate) no_file_versions: bool,

    /// Without effect, for ratarmount's command lines: nothing is walked before it is asked for
    #[arg(long, value_name = "N", help_heading = "What is shown")]
    union_mount_cache_max_depth: Option<u64>,

    /// Without effect
    #[arg(long, value_name = "N", help_heading = "What is shown")]
    union_mount_cache_max_entries: Option<u64>,

    /// Without effect
    #[arg(long, value_name = "SECONDS", help_heading = "What is shown")]
    union_mount_cache_timeout: Option<f64>,

    #[command(flatten)]
    pub(crate) open: Open,
}

#[derive(Debug, Args)]
pub(crate) struct Index {
    /// The archives
    #[arg(required = true, value_name = "ARCHIVE")]
    pub(crate) archives: Vec<PathBuf>,

    /// Whose index: of tarnfs, or a sidecar for ratarmount
    #[arg(long, value_enum, default_value_t = IndexFormat::Tarnfs)]
    pub(crate) format: IndexFormat,

    #[command(flatten)]
    pub(crate) open: Open,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IndexFormat {
    /// `ARCHIVE.tarnfs.sqlite`
    Tarnfs,
    /// `ARCHIVE.index.sqlite`, version 0.7 of its schema; no `ARCHIVE.tarnfs.sqlite` is written beside it
    Ratarmount,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The archives
    #[arg(required = true, value_name = "ARCHIVE")]
    pub(crate) archives: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) open: Open,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// The archive
    pub(crate) archive: PathBuf,

    /// A folder or file in it [default: its root]
    pub(crate) path: Option<OsString>,

    /// One line each, with mode, owner, size and time
    #[arg(short = 'l', long)]
    pub(crate) long: bool,

    /// Folders in folders as well
    #[arg(short = 'R', long)]
    pub(crate) all_levels: bool,

    /// One JSON object each
    #[arg(long, conflicts_with = "long")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) open: Open,
}

#[derive(Debug, Args)]
pub(crate) struct Cat {
    /// The archive
    pub(crate) archive: PathBuf,

    /// Files in it
    pub(crate) paths: Vec<OsString>,

    /// Only these bytes: an offset, and a length behind a colon; to the end without one. As sizes: `1G:64K`
    #[arg(long, value_name = "OFFSET:LENGTH", value_parser = parse_range)]
    pub(crate) range: Option<Range<u64>>,

    #[command(flatten)]
    pub(crate) open: Open,
}

#[derive(Debug, Args)]
pub(crate) struct Stat {
    /// The archive
    pub(crate) archive: PathBuf,

    /// A file or folder in it
    pub(crate) path: OsString,

    #[command(flatten)]
    pub(crate) open: Open,
}
