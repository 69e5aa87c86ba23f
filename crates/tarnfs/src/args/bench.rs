//! What `tarnfs bench` is told.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};

use super::size::{parse_number, parse_size};

/// Comparisons of programs on this machine.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) what: BenchCommand,
}

/// What is compared.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Compare programs that mount archives: mounting, find, random files, reading, memory
    Mount(BenchMount),
    /// Compare programs that write and read tars: create, list, extract, compare
    Tar(BenchTar),
    /// Measure how much faster more threads are
    Scale(BenchScale),
    /// Compare compressors on the files of a folder, as records of 128 KiB and as archives
    Compress(BenchCompress),
    /// Compare indexes of very many entries: those of tarnfs and ratarmount, a table of paths, MessagePack, JSON
    Index(BenchIndex),
    /// One step of `index`, in a process of its own
    #[command(name = "__index", hide = true)]
    IndexStep {
        /// What is done
        what: String,
        /// The kind of index
        kind: String,
        /// Where its files are
        folder: PathBuf,
    },
}

/// The same for all of them.
#[derive(Debug, Args)]
pub(crate) struct Measuring {
    /// Write the report into this new folder: a page (index.html), tables (TSV, Markdown, JSON), plots (SVG, PNG)
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Report")]
    pub(crate) out: Option<PathBuf>,

    /// Print the report as JSON
    #[arg(long, help_heading = "Report")]
    pub(crate) json: bool,

    /// Take each figure this many times; the programs take turns
    #[arg(long, value_name = "N", default_value = "3", value_parser = parse_runs, help_heading = "Measuring")]
    pub(crate) runs: usize,

    /// A program that takes longer than this for one thing is ended: seconds, or with m or h
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_time, help_heading = "Measuring")]
    pub(crate) limit: Duration,

    /// Folder for scratch files [default: a temporary one on a disk]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Measuring")]
    pub(crate) folder: Option<PathBuf>,

    /// The tarnfs that is measured [default: this one]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, help_heading = "Measuring")]
    pub(crate) program: Option<PathBuf>,

    /// Look for programs in this folder before those of PATH
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Measuring")]
    pub(crate) peers: Vec<PathBuf>,
}

/// With --grid, archives are made: 1, 4, 16, ... folders of 1000 files of 0 B, 64 B and 64 KiB, plain and in each
/// compression. They grow until every program takes longer than --limit.
#[derive(Debug, Args)]
pub(crate) struct BenchMount {
    /// The archives
    #[arg(value_name = "ARCHIVE", value_hint = ValueHint::FilePath, required_unless_present_any = ["make", "grid"])]
    pub(crate) archives: Vec<PathBuf>,

    /// Make the archives, of so many bytes of seeded files, with K, M or G
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_size,
        conflicts_with = "archives",
        help_heading = "Measuring"
    )]
    pub(crate) make: Option<u64>,

    /// Measure archives that grow
    #[arg(long, conflicts_with_all = ["archives", "make", "recompress"], help_heading = "Measuring")]
    pub(crate) grid: bool,

    /// The most folders that they have
    #[arg(
        long,
        value_name = "N",
        requires = "grid",
        default_value = "4096",
        value_parser = parse_folders,
        help_heading = "Measuring"
    )]
    pub(crate) most_folders: u64,

    /// Leave the caches of the machine as they are. Without it, as root, all of them are dropped before each cold run,
    /// and other programs have to read from the disk again
    #[arg(long, help_heading = "Measuring")]
    pub(crate) keep_caches: bool,

    /// Compress each archive with gzip, pixz, xz, bzip2 and zstd first, and measure these
    #[arg(long, help_heading = "Measuring")]
    pub(crate) recompress: bool,

    #[command(flatten)]
    pub(crate) measuring: Measuring,
}

#[derive(Debug, Args)]
pub(crate) struct BenchTar {
    /// Files and folders that are archived
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath, required_unless_present = "make")]
    pub(crate) paths: Vec<PathBuf>,

    /// Make the files: so many bytes, with K, M or G
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "paths", help_heading = "Measuring")]
    pub(crate) make: Option<u64>,

    /// Leave the caches of the machine as they are. Without it, as root, all of them are dropped before each cold run,
    /// and other programs have to read from the disk again
    #[arg(long, help_heading = "Measuring")]
    pub(crate) keep_caches: bool,

    #[command(flatten)]
    pub(crate) measuring: Measuring,
}

#[derive(Debug, Args)]
pub(crate) struct BenchScale {
    /// The archives: of several sizes, and in several compressions
    #[arg(value_name = "ARCHIVE", value_hint = ValueHint::FilePath, required_unless_present = "make")]
    pub(crate) archives: Vec<PathBuf>,

    /// Make the archives: of a quarter of SIZE, and of SIZE, in each compression
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_size,
        conflicts_with = "archives",
        help_heading = "Measuring"
    )]
    pub(crate) make: Option<u64>,

    #[command(flatten)]
    pub(crate) measuring: Measuring,
}

#[derive(Debug, Args)]
pub(crate) struct BenchCompress {
    /// The folder
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath, required_unless_present = "make")]
    pub(crate) directory: Option<PathBuf>,

    /// Make the files: so many bytes, with K, M or G
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "directory", help_heading = "Measuring")]
    pub(crate) make: Option<u64>,

    /// Take so many bytes of its files, with K, M or G: they are held in memory
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = parse_size, help_heading = "Measuring")]
    pub(crate) size: u64,

    /// Only these compressors, with commas between: lzjb, lz4, snappy, gzip, zstd, brotli, bzip2, xz
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Measuring")]
    pub(crate) only: Vec<String>,

    #[command(flatten)]
    pub(crate) measuring: Measuring,
}

#[derive(Debug, Args)]
pub(crate) struct BenchIndex {
    /// Take the entries of these archives
    #[arg(value_name = "ARCHIVE", value_hint = ValueHint::FilePath)]
    pub(crate) archives: Vec<PathBuf>,

    /// Make so many entries, with commas between several numbers
    #[arg(
        long,
        value_name = "N,...",
        default_value = "100000,1000000",
        value_delimiter = ',',
        value_parser = parse_entries,
        conflicts_with = "archives",
        help_heading = "Measuring"
    )]
    pub(crate) entries: Vec<u64>,

    #[command(flatten)]
    pub(crate) measuring: Measuring,
}

fn parse_entries(text: &str) -> Result<u64, String> {
    match parse_number::<u64>(text)? {
        entries @ 1..=100_000_000 => Ok(entries),
        _ => Err("give a number from 1 to 100000000".to_owned()),
    }
}

fn parse_folders(text: &str) -> Result<u64, String> {
    match parse_number::<u64>(text)? {
        folders @ 1..=999_999 => Ok(folders),
        _ => Err("give a number from 1 to 999999".to_owned()),
    }
}

/// How often something is measured.
fn parse_runs(text: &str) -> Result<usize, String> {
    match parse_number::<usize>(text)? {
        runs @ 1..=1000 => Ok(runs),
        _ => Err("give a number from 1 to 1000".to_owned()),
    }
}

/// Seconds, or minutes with `m`, or hours with `h`.
fn parse_time(text: &str) -> Result<Duration, String> {
    const LONGEST: f64 = 7.0 * 24.0 * 3600.0;
    let text = text.trim();
    let (number, factor) = match text.chars().next_back() {
        Some('s') => (&text[..text.len() - 1], 1.0),
        Some('m') => (&text[..text.len() - 1], 60.0),
        Some('h') => (&text[..text.len() - 1], 3600.0),
        _ => (text, 1.0),
    };
    let seconds = number.trim().parse::<f64>().map(|number| number * factor);
    match seconds {
        Ok(seconds) if seconds > 0.0 && seconds <= LONGEST => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("give seconds, or a number with s, m or h behind it, such as 90s or 5m".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for (text, seconds) in [("90", 90.0), ("0.5s", 0.5), ("5m", 300.0), ("1.5 h", 5400.0)] {
            assert_eq!(parse_time(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["", "0", "-1", "m", "5d", "1e9h", "nan", "inf"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
        assert!(parse_runs("0").is_err() && parse_runs("3") == Ok(3));
    }
}
