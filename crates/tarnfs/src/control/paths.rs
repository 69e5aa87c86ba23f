//! Relative paths in a command: from where it was written is not known, and what is run begins at the root folder.

use std::path::{Path, PathBuf};

use tarnfs_index::location;

use crate::args::{BenchCommand, Cli, Command, Compare, Convert, Create, Extract, Measuring, Open, Serve, shown};
use crate::remote::is_far;
use crate::run::{archives_of, options_of};

/// The folder that a command runs in, where it names no other.
const HERE: &str = ".";

/// The first relative path among the values of the options that all commands have.
pub(super) fn among_options(cli: &Cli) -> Option<PathBuf> {
    options_of(cli).and_then(relative_among)
}

/// The first one of what a command reads or writes, its archives among that. Not for mounts.
pub(super) fn of_command(cli: &Cli) -> Option<PathBuf> {
    // A `-` is standard input or output.
    let is_relative = |path: &&Path| path.is_relative() && *path != Path::new("-");
    let compared = match &cli.command {
        Some(Command::Compare(Compare { other, .. })) => Some(other.as_deref().unwrap_or(Path::new(HERE))),
        _ => None,
    };
    // The other process opens these as from the command line, also where they are URLs.
    let read = archives_of(cli).iter().map(PathBuf::as_path).chain(compared).filter(|path| !is_far(path));
    read.chain(others_of(cli)).find(is_relative).map(Path::to_owned)
}

/// Where a command reads or writes, beside its archives, what they are compared with, and the options that all commands
/// have.
fn others_of(cli: &Cli) -> Vec<&Path> {
    match &cli.command {
        Some(Command::Extract(Extract { directory, .. })) => vec![directory],
        Some(Command::Convert(Convert { output, .. })) => vec![output],
        Some(Command::Create(create)) => of_create(create),
        Some(Command::Serve(Serve { token_file, login_file, tls_cert, tls_key, .. })) => {
            token_file.iter().chain(login_file).chain(tls_cert).chain(tls_key).map(PathBuf::as_path).collect()
        }
        Some(Command::Bench(bench)) => {
            let (mut paths, measuring) = match &bench.what {
                BenchCommand::Mount(bench) => (all(&bench.archives), &bench.measuring),
                BenchCommand::Tar(bench) => (all(&bench.paths), &bench.measuring),
                BenchCommand::Scale(bench) => (all(&bench.archives), &bench.measuring),
                BenchCommand::Compress(bench) => {
                    (bench.directory.iter().map(PathBuf::as_path).collect(), &bench.measuring)
                }
                BenchCommand::Index(bench) => (all(&bench.archives), &bench.measuring),
                BenchCommand::IndexStep { folder, .. } => return vec![folder],
            };
            let Measuring { out, folder, program, peers, .. } = measuring;
            paths.extend([out, folder, program].into_iter().flatten().map(PathBuf::as_path));
            paths.extend(all(peers));
            paths
        }
        _ => Vec::new(),
    }
}

fn of_create(create: &Create) -> Vec<&Path> {
    let mut paths = [vec![create.archive.as_path()], all(&create.files_from), all(&create.exclude_from)].concat();
    // It may be the date of a file.
    let time_of = create.mtime.as_deref().filter(|time| time.starts_with('.'));
    paths.extend(time_of.map(Path::new));
    if let Some(directory) = &create.directory {
        paths.push(directory);
    } else {
        paths.extend(create.paths.iter().map(Path::new));
        // What stands in these files may be relative, too.
        paths.extend((!create.files_from.is_empty()).then_some(Path::new(HERE)));
    }
    paths
}

fn all(paths: &[PathBuf]) -> Vec<&Path> {
    paths.iter().map(PathBuf::as_path).collect()
}

fn relative_among(open: &Open) -> Option<PathBuf> {
    let index = open.index_file().filter(|file| *file != ":memory:" && !is_far(Path::new(file))).map(PathBuf::from);
    // A list that is wrong is told by whoever opens an archive.
    let folders = open.index_folders.as_ref().and_then(|folders| location::parse_folders(folders).ok());
    let mut all = index.map(location::expand_home).into_iter().chain(folders.into_iter().flatten());
    let files = open.files_of_keys().chain(open.log_file());
    // An empty one stands for the folder of an archive.
    let is_relative = |path: &PathBuf| path.is_relative() && !path.as_os_str().is_empty();
    all.find(is_relative).or_else(|| files.into_iter().find(|path| path.is_relative()).cloned())
}

/// Why nothing can be named so.
pub(super) fn refusal(path: &Path) -> String {
    if path == Path::new(HERE) {
        return "name the folder, too, with its whole path: it is not known from where this was written".to_owned();
    }
    format!("{}: write the whole path: it is not known from where this was written", shown(path.as_os_str()))
}
