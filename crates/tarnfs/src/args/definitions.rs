use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

use super::advise::Advise;
use super::bench::Bench;
use super::commit::Commit;
use super::compare::Compare;
use super::extract::Extract;
use super::images::Images;
use super::info::Info;
use super::overlay::{Overlay, Written};
use super::serving::Serve;
use super::size::{parse_count, parse_level, parse_number, parse_range, parse_size};
use super::writing::{Convert, Create};
use crate::exit;
use crate::remote::Network;
use crate::terminal::Colour;

/// What is logged unless `-d` says something else.
pub(crate) const DEBUG: u8 = 1;

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "tarnfs",
    about = "Mounts archives as a file system: any file opens at once, without unpacking.",
    version,
    disable_version_flag = true,
    args_conflicts_with_subcommands = true,
    args_override_self = true,
    subcommand_precedence_over_arg = true,
    infer_long_args = true,
    max_term_width = 110,
    override_usage = "tarnfs [OPTIONS] ARCHIVE... [MOUNTPOINT]\n       tarnfs COMMAND ...",
    after_help = "tarnfs --help shows all options, tarnfs COMMAND --help those of a command.",
    after_long_help = exit::TABLE
)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) mount: Mount,

    /// Print the version
    ///
    /// Also those of libraries, the formats, and what the kernel can do. With -d 0 only the version.
    #[arg(short = 'v', long, visible_short_alias = 'V')]
    pub(crate) version: bool,

    /// List the formats of archives and of compression, and what of each is read
    #[arg(long, hide_short_help = true)]
    pub(crate) formats: bool,

    /// No effect: all of it is printed anyway
    #[arg(long, hide = true, requires = "version")]
    verbose: bool,

    /// Also what belongs to the version is printed.
    #[arg(skip)]
    pub(crate) version_in_full: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Mount archives and folders (what `tarnfs ARCHIVE` does)
    Mount(Mount),
    /// Unmount
    #[command(alias = "umount")]
    Unmount {
        /// Mount points, or archives that are mounted
        #[arg(required = true, value_name = "MOUNTPOINT")]
        mountpoints: Vec<PathBuf>,

        /// Detach also what is in use: it ends when nobody uses it any more
        #[arg(short = 'l', long)]
        lazy: bool,
    },
    /// List what is mounted, where, and since when if that is known
    Mounts {
        /// Print one JSON object for each mount, one on a line
        #[arg(long)]
        json: bool,
    },
    /// Index archives without mounting them
    Index(Index),
    /// Read archives from start to end and report what is damaged
    Check(Check),
    /// List what is in an archive
    #[command(alias = "list")]
    Ls(List),
    /// Find files and folders by name, size, time, ..., as find(1) does
    Find(Find),
    /// Write files of an archive, or all of it decompressed, to stdout
    Cat(Cat),
    /// Extract an archive, or some of its files, to a folder
    Extract(Extract),
    /// Compare an archive with a folder (as `tar -d`) or another archive
    #[command(alias = "diff")]
    Compare(Compare),
    /// Show everything the index knows about a file in an archive
    Stat(Stat),
    /// Show how an archive is built, and what is slow to read in it
    Info(Info),
    /// Write files into an archive that can be read at any offset
    Create(Create),
    /// Convert an archive to another format, or to a seekable one
    Convert(Convert),
    /// Serve archives and folders over HTTP and WebDAV
    Serve(Serve),
    /// Put what was written into an overlay into its archive
    Commit(Commit),
    /// Show what a write overlay changes
    #[command(subcommand)]
    Overlay(Overlay),

    /// Say from a sample how to compress a folder or an archive best
    Advise(Advise),
    /// Compare programs on this machine, with tables and plots
    Bench(Bench),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the man page, or that of a command
    Man {
        /// The command; that of a command is on the same page
        #[arg(num_args = 0..=2)]
        command: Vec<String>,
    },
    /// Say what may come next in a command line: see `commands::complete`
    #[command(name = "__complete", hide = true)]
    Complete {
        /// The words before the cursor
        #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
        words: Vec<OsString>,
    },
}

/// Shells that there are completions for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// How to open an archive. These options are the same for every command.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Open {
    /// Replace the index by a new one
    #[arg(short = 'c', long, help_heading = "Index")]
    pub(crate) recreate_index: bool,

    /// Do not create an index: fail if none belongs to the archive
    #[arg(hide_short_help = true, long, overrides_with = "recreate_index", help_heading = "Index")]
    pub(crate) no_recreate_index: bool,

    /// Use an index only if the archive still has the same modification time
    #[arg(hide_short_help = true, long, help_heading = "Index")]
    pub(crate) verify_mtime: bool,

    /// Path of the index file, in a folder that exists, or a URL, which is only read. The index of another archive is
    /// replaced only with -c. With `:memory:` no index is kept: a small one is held in memory, a large one in a
    /// temporary file. Where the file cannot be written, it is an error, and nothing is mounted
    #[arg(
        hide_short_help = true,
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        help_heading = "Index"
    )]
    index_file: Option<OsString>,

    /// Folders for the index, with commas between
    ///
    /// They may be a list as JSON. The first that works is used, and made if what it lies in is there. An empty item
    /// is the archive's own folder [default: the archive's folder, then the user's cache]. Where none of them can be
    /// written, that is a warning, and there is no index.
    #[arg(long, value_name = "FOLDERS", value_hint = ValueHint::DirPath, help_heading = "Index")]
    pub(crate) index_folders: Option<String>,

    /// Write no index for an archive that is smaller than 16 MiB and has fewer entries than this [default: 1000; 0
    /// with --index-folders]
    #[arg(
        hide_short_help = true,
        long,
        value_name = "N",
        value_parser = parse_count,
        allow_negative_numbers = true,
        help_heading = "Index"
    )]
    pub(crate) index_minimum_file_count: Option<u64>,

    /// Use an index even if another user could have written it
    #[arg(hide_short_help = true, long, help_heading = "Index")]
    pub(crate) trust_index: bool,

    /// Decoding threads; 0 means one per core
    ///
    /// The number can differ by codec: with `gzip:4,xz:1,:2` all codecs that are not named use 2. The names that
    /// ratarmount has for codecs work, too.
    #[arg(short = 'P', long, value_name = "N", default_value = "0", help_heading = "Decoding")]
    pub(crate) parallelization: String,

    /// Memory for decoded data, decoders and seek points together, in bytes or with K, M or G [default: 128M, and 16M
    /// for each thread after the second, at most a quarter of the machine's memory]
    #[arg(hide_short_help = true, long, value_name = "SIZE", value_parser = parse_size, help_heading = "Decoding")]
    pub(crate) cache_memory: Option<u64>,

    /// Disk space for decoded data of archives that are slow to decode, and as much for what was read of archives
    /// behind a URL. It is kept in the user's cache folder. 0 keeps none [default: 2G, at most a tenth of the free
    /// space]
    #[arg(hide_short_help = true, long, value_name = "SIZE", value_parser = parse_size, help_heading = "Decoding")]
    pub(crate) cache_size: Option<u64>,

    /// Ask nothing over the network: of archives behind a URL, only what is in the cache can be read
    #[arg(hide_short_help = true, long, help_heading = "Decoding")]
    pub(crate) offline: bool,

    /// The process that reads what is behind URLs, if there is one.
    #[arg(skip)]
    pub(crate) network: Option<Network>,

    /// Serve damaged data, too, if they can be decoded but fail their checksum. Files with such bytes have the
    /// extended attribute `user.tarnfs.damaged`
    #[arg(hide_short_help = true, long, help_heading = "Decoding")]
    pub(crate) force: bool,

    /// Password of encrypted files. Other users may see it for a moment, until it is overwritten in the list of
    /// processes: --password-file hides it. Without one, a terminal is asked if one is needed; '' is none, and asks
    /// nobody
    #[arg(hide_short_help = true, long, value_name = "PASSWORD", help_heading = "Decoding")]
    pub(crate) password: Vec<OsString>,

    /// File with passwords, one in each line, which are tried in order; `-` is standard input
    #[arg(
        hide_short_help = true,
        long,
        value_name = "FILE",
        value_parser = path_or_nothing(),
        value_hint = ValueHint::FilePath,
        help_heading = "Decoding"
    )]
    password_file: Vec<PathBuf>,

    /// A zstd dictionary, as for `zstd -D`. Repeat the option for several. A frame names its dictionary by ID. A frame
    /// without an ID gets the dictionary that has none, or else the first
    #[arg(hide_short_help = true, long, value_name = "FILE", help_heading = "Decoding")]
    pub(crate) zstd_dictionary: Vec<PathBuf>,

    /// Distance between seek points (where decoding can start), in MiB of decoded data [alias: -gs] [default: as close
    /// as a hundredth of the archive's size allows, between 0.5 and 4]
    #[arg(
        hide_short_help = true,
        long,
        value_name = "MIB",
        value_parser = parse_number::<f64>,
        allow_negative_numbers = true,
        help_heading = "Decoding"
    )]
    pub(crate) gzip_seek_point_spacing: Option<f64>,

    /// Encoding of names that are not UTF-8: latin1, cp437, shift_jis, ... With utf-8 those in a zip are converted
    /// from what they look like, and others are not converted; with ascii none are
    #[arg(hide_short_help = true, short = 'e', long, default_value = "utf-8", help_heading = "Reading tar")]
    pub(crate) encoding: String,

    /// Do not stop at zero blocks: read several tar archives that were joined
    #[arg(hide_short_help = true, short = 'i', long, help_heading = "Reading tar")]
    pub(crate) ignore_zeros: bool,

    /// Read the archive as a GNU incremental dump: remove the time stamps in front of its paths
    #[arg(hide_short_help = true, long, overrides_with = "detect_gnu_incremental", help_heading = "Reading tar")]
    pub(crate) gnu_incremental: bool,

    /// Detect whether the archive is a GNU incremental dump
    #[arg(hide_short_help = true, long, help_heading = "Reading tar")]
    pub(crate) detect_gnu_incremental: bool,

    /// Show archives and compressed files in it as folders
    #[arg(short = 'r', long, overrides_with = "no_recursive", help_heading = "Archives in archives")]
    pub(crate) recursive: bool,

    /// Show them as files (default)
    #[arg(hide_short_help = true, long, overrides_with = "recursive", help_heading = "Archives in archives")]
    pub(crate) no_recursive: bool,

    /// Like --recursive, but only this many levels deep. A compressed tar is two levels: the tar, and what is in it;
    /// also if it is the archive itself. A negative number means no limit. It is also the limit for layers of
    /// compression around one file, if it is more than 100
    #[arg(
        hide_short_help = true,
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = parse_number::<i64>,
        help_heading = "Archives in archives"
    )]
    pub(crate) recursion_depth: Option<i64>,

    /// Which files may be archives: globs for the end of the name, separated by commas. There are sets: /archive,
    /// /binary, /compressed, /disk, /document, /mailbox, /multimedia, /split, /all. Put `/-` behind a glob or set to
    /// exclude it. `*` means all files, and `,,` means a comma
    #[arg(
        hide_short_help = true,
        long,
        value_name = "GLOBS",
        default_values = tarnfs_tree::DEFAULT_EXTENSIONS,
        hide_default_value = true,
        help_heading = "Archives in archives"
    )]
    pub(crate) recursive_extensions: Vec<String>,

    /// Name these folders without the extension: `x` for `x.tar.gz`. The archive shows beside its folder
    #[arg(
        hide_short_help = true,
        short = 's',
        long,
        overrides_with = "no_strip_recursive_tar_extension",
        help_heading = "Archives in archives"
    )]
    pub(crate) strip_recursive_tar_extension: bool,

    /// Keep the extension (default)
    #[arg(
        hide_short_help = true,
        long,
        overrides_with = "strip_recursive_tar_extension",
        help_heading = "Archives in archives"
    )]
    pub(crate) no_strip_recursive_tar_extension: bool,

    /// Change the paths of these folders by a regular expression and a replacement, as Python's re.sub does
    #[arg(hide_short_help = true, long, value_names = ["RE", "REPLACEMENT"], num_args = 2, help_heading = "Archives in archives")]
    pub(crate) transform_recursive_mount_point: Option<Vec<String>>,

    /// Where a file could be of several formats, try these first: names of formats (`--formats`) or of ratarmount's
    /// backends, separated by commas. What is given last counts most
    #[arg(hide_short_help = true, long, value_name = "NAMES", help_heading = "Decoding")]
    pub(crate) use_backend: Vec<String>,

    /// Compute these hashes of every file and show them as extended attributes `user.hash.NAME`. Separated by commas:
    /// crc32, md5, sha1, sha256, sha512, sha3-256, blake2b, blake3, ... Of an option that is repeated, all are
    /// computed
    #[arg(hide_short_help = true, long, value_name = "NAMES", help_heading = "Reading tar")]
    pub(crate) hashes: Vec<String>,

    /// Change all paths in the archive by a regular expression and a replacement, as Python's re.sub does. It gets
    /// each path whole, with a slash before it: `/home/me/notes.txt`
    #[arg(hide_short_help = true, long, value_names = ["RE", "REPLACEMENT"], num_args = 2, help_heading = "Reading tar")]
    pub(crate) transform: Option<Vec<String>>,

    /// 0 logs errors, 1 warnings, 2 more, 3 everything
    #[arg(
        hide_short_help = true,
        short = 'd',
        long,
        value_name = "LEVEL",
        default_value_t = DEBUG,
        value_parser = parse_level,
        allow_negative_numbers = true,
        help_heading = "Messages"
    )]
    pub(crate) debug: u8,

    /// Write messages to this file
    #[arg(
        hide_short_help = true,
        long,
        value_name = "FILE",
        value_parser = path_or_nothing(),
        value_hint = ValueHint::FilePath,
        help_heading = "Messages"
    )]
    log_file: Option<PathBuf>,

    /// Use colours even if standard error is not a terminal
    #[arg(hide_short_help = true, long, overrides_with = "no_color", help_heading = "Messages")]
    pub(crate) color: bool,

    /// Use no colours
    #[arg(hide_short_help = true, long, help_heading = "Messages")]
    pub(crate) no_color: bool,
}

/// A path, also an empty one: that is ratarmount's default, and scripts have it in a variable (`--log-file "$LOG"`).
fn path_or_nothing() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

impl Open {
    /// An empty one is none, as in ratarmount.
    pub(crate) fn index_file(&self) -> Option<&OsString> {
        self.index_file.as_ref().filter(|file| !file.is_empty())
    }

    /// The same, to be changed.
    pub(crate) fn index_file_mut(&mut self) -> Option<&mut OsString> {
        self.index_file.as_mut()
    }

    /// See [`Self::index_file`].
    pub(crate) fn log_file(&self) -> Option<&PathBuf> {
        self.log_file.as_ref().filter(|file| !file.as_os_str().is_empty())
    }

    /// See [`Self::index_file`].
    pub(crate) fn password_files(&self) -> impl Iterator<Item = &PathBuf> {
        self.password_file.iter().filter(|file| !file.as_os_str().is_empty())
    }

    /// Files that are read before an archive is opened: of passwords and dictionaries.
    pub(crate) fn files_of_keys(&self) -> impl Iterator<Item = &PathBuf> {
        self.password_files().chain(&self.zstd_dictionary)
    }

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
#[allow(clippy::struct_field_names, clippy::struct_excessive_bools, reason = "fields are called as their options")]
pub(crate) struct Mount {
    /// The archive and its mount point [default: a folder beside it]
    ///
    /// Without a mount point, a folder named after the first archive is created beside it: `x` for `x.tar.gz`, and
    /// `x.mounted` for an `x` whose name has no such end, or a folder. Several archives or folders are merged: where
    /// they have the same path, the last one shows.
    #[arg(hide_short_help = true, value_name = "ARCHIVE... [MOUNTPOINT]", num_args = 0..)]
    pub(crate) paths: Vec<PathBuf>,

    /// Unmount, also by the name of an archive
    ///
    /// What is in use is left as it is. With -l it is detached, and ends when nobody uses it any more.
    #[arg(short = 'u', long, value_name = "MOUNTPOINT", num_args = 0.., help_heading = "Mounting")]
    unmount: Option<Vec<PathBuf>>,

    /// Stay in the foreground
    #[arg(short = 'f', long, help_heading = "Mounting")]
    pub(crate) foreground: bool,

    /// Mount options, as allow_other,noexec
    ///
    /// The long options of this list work here, too, without their dashes, as fstab needs them:
    /// `index-folders=/x,recreate-index`. Write `\,` for a comma in a value.
    #[arg(short = 'o', long, value_name = "OPTIONS", help_heading = "Mounting")]
    pub(crate) fuse: Vec<String>,

    /// Once mounted, give up all rights that serving does not need, with Landlock and seccomp (default)
    #[arg(hide_short_help = true, long, overrides_with = "no_sandbox", help_heading = "Mounting")]
    pub(crate) sandbox: bool,

    /// Keep all rights
    #[arg(hide_short_help = true, long, overrides_with = "sandbox", help_heading = "Mounting")]
    pub(crate) no_sandbox: bool,

    /// Only create the index
    #[arg(hide_short_help = true, long, help_heading = "Mounting")]
    pub(crate) no_mount: bool,

    /// With -r, open archives when looked into
    ///
    /// They are not indexed during the first mount. Archives in folders are always opened this way.
    #[arg(hide_short_help = true, short = 'l', long, overrides_with = "no_lazy", help_heading = "Mounting")]
    pub(crate) lazy: bool,

    /// With -r, index archives in archives during the first mount (default)
    #[arg(hide_short_help = true, long, overrides_with = "lazy", help_heading = "Mounting")]
    pub(crate) no_lazy: bool,

    /// Add a hidden folder `.ratarmount-control`. Write a tarnfs command line to the file `command` in it to run it;
    /// read what it printed from `output`. If its mount point is relative or below this one, it adds to this mount.
    /// Only the user who mounts and root can write there. The process keeps all its rights (--no-sandbox)
    #[arg(hide_short_help = true, long, overrides_with = "no_control_interface", help_heading = "Mounting")]
    pub(crate) control_interface: bool,

    /// Do not add the control interface (default)
    #[arg(hide_short_help = true, long, overrides_with = "control_interface", help_heading = "Mounting")]
    pub(crate) no_control_interface: bool,

    #[command(flatten)]
    pub(crate) written: Written,

    /// Do not merge several archives: show each in a folder of its own, named after it
    #[arg(hide_short_help = true, long, help_heading = "What is shown")]
    pub(crate) disable_union_mount: bool,

    #[command(flatten)]
    pub(crate) images: Images,

    /// Show only this folder of the archive
    ///
    /// `-o modules=subdir,subdir=PATH` does the same.
    #[arg(hide_short_help = true, short = 'p', long, value_name = "PATH", help_heading = "Mounting")]
    pub(crate) prefix: Option<OsString>,

    /// Show older versions of FILE as FILE.versions/1, FILE.versions/2, ... The highest number is the current one. The
    /// folder FILE.versions is hidden from listings (default)
    #[arg(hide_short_help = true, long, overrides_with = "no_file_versions", help_heading = "What is shown")]
    pub(crate) file_versions: bool,

    /// Do not show older versions
    #[arg(hide_short_help = true, long, overrides_with = "file_versions", help_heading = "What is shown")]
    pub(crate) no_file_versions: bool,

    /// No effect. Accepted for ratarmount's command lines
    #[arg(
        hide_short_help = true,
        long,
        value_name = "N",
        value_parser = parse_number::<i64>,
        allow_negative_numbers = true,
        help_heading = "What is shown"
    )]
    union_mount_cache_max_depth: Option<i64>,

    /// No effect
    #[arg(
        hide_short_help = true,
        long,
        value_name = "N",
        value_parser = parse_number::<i64>,
        allow_negative_numbers = true,
        help_heading = "What is shown"
    )]
    union_mount_cache_max_entries: Option<i64>,

    /// No effect
    #[arg(
        hide_short_help = true,
        long,
        value_name = "SECONDS",
        value_parser = parse_number::<f64>,
        allow_negative_numbers = true,
        help_heading = "What is shown"
    )]
    union_mount_cache_timeout: Option<f64>,

    #[command(flatten)]
    pub(crate) open: Open,
}

impl Mount {
    /// What is to be unmounted, where that is what was asked for. Other options may stand between `-u` and the names.
    pub(crate) fn to_unmount(&self) -> Option<Vec<PathBuf>> {
        self.unmount.as_ref().map(|behind| behind.iter().chain(&self.paths).cloned().collect())
    }
}

#[derive(Debug, Args)]
pub(crate) struct Index {
    /// The archives
    #[arg(required = true, value_name = "ARCHIVE")]
    pub(crate) archives: Vec<PathBuf>,

    /// Which format to write
    #[arg(long, value_enum, default_value_t = IndexFormat::Tarnfs)]
    pub(crate) format: IndexFormat,

    #[command(flatten)]
    pub(crate) open: Open,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IndexFormat {
    /// `ARCHIVE.tarnfs.sqlite`
    Tarnfs,
    /// `ARCHIVE.index.sqlite`, which ratarmount can use (version 0.7 of its schema). No `ARCHIVE.tarnfs.sqlite` is
    /// written
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
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line, most as in ls(1)")]
#[command(disable_help_flag = true)]
pub(crate) struct List {
    /// The archive
    pub(crate) archive: PathBuf,

    /// Folders and files in it, also as globs (`*.txt`, `**/*.c`) [default: its root]
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,

    /// Print mode, owner, size and time as well
    #[arg(short = 'l', long)]
    pub(crate) long: bool,

    /// List folders in folders as well. (--recursive is something else: it looks into archives in the archive)
    #[arg(short = 'R', long)]
    pub(crate) all_levels: bool,

    /// Print sizes as 1.5K, 23M, 4.1G
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,

    /// Sort by time, newest first [default: by name]
    #[arg(short = 't', long = "sort-time", overrides_with = "by_size")]
    pub(crate) by_time: bool,

    /// Sort by size, largest first
    #[arg(short = 'S', long = "sort-size", overrides_with = "by_time")]
    pub(crate) by_size: bool,

    /// Reverse the order
    #[arg(long)]
    pub(crate) reverse: bool,

    /// List folders themselves, not what is in them
    #[arg(long)]
    pub(crate) directory: bool,

    /// No effect: names that begin with a dot are always listed
    #[arg(short = 'a', long)]
    all: bool,

    /// No effect: there is always one name on a line
    #[arg(short = '1')]
    one_per_line: bool,

    /// Print one JSON object for each entry, one on a line
    #[arg(long, conflicts_with = "long")]
    pub(crate) json: bool,

    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: (),

    #[command(flatten)]
    pub(crate) open: Open,
}

#[derive(Debug, Args)]
pub(crate) struct Find {
    /// The archive
    pub(crate) archive: PathBuf,

    /// Folders and files in the archive to begin at [default: its root], then the tests and actions of find(1)
    ///
    /// -name -iname -path -ipath -regex -iregex -regextype -lname -type -xtype -size -empty -newer -newerXY -mtime
    /// -mmin -atime -amin -ctime -cmin -daystart -user -group -uid -gid -perm -executable -links -inum -samefile
    /// -maxdepth -mindepth -depth -prune -print -print0 -printf -ls -quit, together with ( ) ! -a -o and a comma.
    /// Options of tarnfs stand before the archive, or before these.
    #[arg(value_name = "PATH... EXPRESSION", num_args = 0.., verbatim_doc_comment)]
    pub(crate) words: Vec<OsString>,

    /// Print one JSON object for each entry in place of its path, one on a line
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) open: Open,
}

#[derive(Debug, Args)]
pub(crate) struct Cat {
    /// The archive
    pub(crate) archive: PathBuf,

    /// Files in it, also as globs (`*.txt`, `**/*.c`)
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,

    /// Write only this part: an offset and a length, as in `1G:64K`. Without a length it goes to the end
    #[arg(long, value_name = "OFFSET:LENGTH", value_parser = parse_range)]
    pub(crate) range: Option<Range<u64>>,

    /// Write what is not text to a terminal, too
    #[arg(long)]
    pub(crate) binary: bool,

    #[command(flatten)]
    pub(crate) open: Open,
}

#[derive(Debug, Args)]
pub(crate) struct Stat {
    /// The archive
    pub(crate) archive: PathBuf,

    /// Files and folders in it, also as globs (`*.txt`, `**/*.c`) [default: its root]
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,

    /// Print one JSON object for each, one on a line
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) open: Open,
}
