//! What the command does, in one match.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::args::{
    Advise, Cat, Check, Cli, Command, Commit, Compare, Convert, Extract, Find, Index, Info, List, Mount, Open, Overlay,
    OverlayDiff, Serve, Stat, parse, parse_quietly, shown,
};
use crate::commands::{
    advise, bench, cat, check, commit, compare, complete, convert, create, extract, find, formats, index, info, ls,
    mount, mounts, overlay, pages, serve, stat, unmount, version,
};
use crate::exit::{Code, Failure};
use crate::terminal::Colour;
use crate::{hide, logging, remote};

/// Runs a command line. The colour is for the message of a failure.
pub(crate) fn run(arguments: Vec<OsString>) -> (Result<Code, Failure>, Colour) {
    hide::urls();
    let may_be_a_source = may_be_a_source(&arguments);
    let mut cli = match parse(arguments) {
        Ok(cli) => cli,
        Err(early) => return (early, Colour::default()),
    };
    if let Some(open) = options_of(&cli) {
        hide::passwords(&open.password);
    }
    let colour = options_of(&cli).map_or(Colour::default(), Open::colour);
    if let Err(failure) = remote::start(&mut cli) {
        return (Err(failure), colour);
    }
    (dispatch(cli, colour, may_be_a_source), colour)
}

/// The options of whatever is done with archives.
macro_rules! options_in {
    ($cli:ident, $command:expr $(, $mutable:tt)?) => {
        match $command {
            None => Some(&$($mutable)? $cli.mount.open),
            Some(Command::Mount(mount)) => Some(&$($mutable)? mount.open),
            Some(Command::Index(index)) => Some(&$($mutable)? index.open),
            Some(Command::Check(check)) => Some(&$($mutable)? check.open),
            Some(Command::Ls(list)) => Some(&$($mutable)? list.open),
            Some(Command::Find(find)) => Some(&$($mutable)? find.open),
            Some(Command::Cat(cat)) => Some(&$($mutable)? cat.open),
            Some(Command::Extract(extract)) => Some(&$($mutable)? extract.open),
            Some(Command::Commit(commit)) => Some(&$($mutable)? commit.open),
            Some(Command::Compare(compare)) => Some(&$($mutable)? compare.open),
            Some(Command::Stat(stat)) => Some(&$($mutable)? stat.open),
            Some(Command::Info(info)) => Some(&$($mutable)? info.open),
            Some(Command::Convert(convert)) => Some(&$($mutable)? convert.open),
            Some(Command::Serve(serve)) => Some(&$($mutable)? serve.open),
            Some(Command::Advise(advise)) => Some(&$($mutable)? advise.open),
            Some(Command::Overlay(Overlay::Diff(diff))) => Some(&$($mutable)? diff.open),
            Some(
                Command::Unmount { .. }
                | Command::Mounts { .. }
                | Command::Overlay(Overlay::Status { .. })
                | Command::Bench(_)
                | Command::Create(_)
                | Command::Completions { .. }
                | Command::Man { .. }
                | Command::Complete { .. },
            ) => None,
        }
    };
}

pub(crate) fn options_of(cli: &Cli) -> Option<&Open> {
    options_in!(cli, &cli.command)
}

/// The same, to be changed.
pub(crate) fn options_of_mut(cli: &mut Cli) -> Option<&mut Open> {
    options_in!(cli, &mut cli.command, mut)
}

/// The paths of whatever is done with archives.
macro_rules! archives_in {
    ($cli:ident, $command:expr, $one:path $(, $mutable:tt)?) => {
        match $command {
            None => &$($mutable)? $cli.mount.paths,
            Some(Command::Mount(mount)) => &$($mutable)? mount.paths,
            Some(
                Command::Index(Index { archives, .. })
                | Command::Check(Check { archives, .. })
                | Command::Info(Info { archives, .. })
                | Command::Serve(Serve { archives, .. }),
            ) => archives,
            Some(
                Command::Ls(List { archive, .. })
                | Command::Find(Find { archive, .. })
                | Command::Cat(Cat { archive, .. })
                | Command::Extract(Extract { archive, .. })
                | Command::Commit(Commit { archive, .. })
                | Command::Compare(Compare { archive, .. })
                | Command::Stat(Stat { archive, .. })
                | Command::Convert(Convert { archive, .. })
                | Command::Advise(Advise { path: archive, .. })
                | Command::Overlay(Overlay::Diff(OverlayDiff { archive, .. })),
            ) => $one(archive),
            Some(
                Command::Unmount { .. }
                | Command::Mounts { .. }
                | Command::Overlay(Overlay::Status { .. })
                | Command::Bench(_)
                | Command::Create(_)
                | Command::Completions { .. }
                | Command::Man { .. }
                | Command::Complete { .. },
            ) => &$($mutable)? [],
        }
    };
}

/// The paths among which the archives are.
pub(crate) fn archives_of(cli: &Cli) -> &[PathBuf] {
    archives_in!(cli, &cli.command, std::slice::from_ref)
}

/// Changes each path that may be a URL, until that fails.
pub(crate) fn each_path<E>(cli: &mut Cli, mut change: impl FnMut(&mut PathBuf) -> Result<(), E>) -> Result<(), E> {
    let archives: &mut [PathBuf] = archives_in!(cli, &mut cli.command, std::slice::from_mut, mut);
    archives.iter_mut().try_for_each(&mut change)?;
    match &mut cli.command {
        Some(Command::Compare(Compare { other: Some(other), .. })) => change(other),
        _ => Ok(()),
    }
}

/// Fails if the log would be appended to one of the archives, which may be a text (a compressed file need not be one).
fn not_an_archive(log_file: Option<&Path>, archives: &[PathBuf]) -> Result<(), Failure> {
    let Some(path) = log_file else { return Ok(()) };
    let identity = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    if let Some(log) = identity(path)
        && archives.iter().any(|archive| identity(archive) == Some(log))
    {
        let message = format!("--log-file {}: is the archive; name another file", shown(path.as_os_str()));
        return Err(Failure::new(Code::Usage, message));
    }
    Ok(())
}

fn mount_or_unmount(mount: &Mount) -> Result<Code, Failure> {
    match mount.to_unmount() {
        None if mount.written.commit_overlay => commit::of_mount(mount),
        None => mount::run(mount),
        Some(mountpoints) if mountpoints.is_empty() => {
            Err(Failure::new(Code::Usage, "--unmount needs a value: --unmount MOUNTPOINT"))
        }
        Some(mountpoints) => {
            for (option, is_given) in [("-f (--foreground)", mount.foreground), ("--force", mount.open.force)] {
                if is_given {
                    log::warn!("{option} has no effect with -u; -l detaches what is in use");
                }
            }
            Ok(unmount::run(&mountpoints, mount.lazy))
        }
    }
}

/// What is said where the name of a command is that of a file or folder here, too, and the words behind it could be
/// archives and a mount point: with `alias ratarmount=tarnfs`, a mount may have been meant.
fn may_be_a_source(arguments: &[OsString]) -> Option<String> {
    let [program, name, rest @ ..] = arguments else { return None };
    let found = Path::new(name).symlink_metadata().ok()?;
    // `mount` is what is done anyway.
    crate::args::command().find_subcommand(name).filter(|command| command.get_name() != "mount")?;
    let meant = Path::new(".").join(name);
    let words: Vec<_> = [program.clone(), meant.clone().into()].into_iter().chain(rest.iter().cloned()).collect();
    let mount = parse_quietly(words).filter(|cli| cli.command.is_none())?.mount;
    // The last one may be the mount point. A mount is asked for of an archive, not of folders alone.
    let [sources @ .., last] = &mount.paths[..] else { return None };
    let is_right = !sources.is_empty() && mount.to_unmount().is_none() && sources.iter().all(|path| path.exists());
    if !is_right || !mount.paths.iter().any(|path| path.is_file()) || last.as_os_str().is_empty() {
        return None;
    }
    let what = if found.is_dir() { "folder" } else { "file" };
    let (name, meant) = (shown(name), shown(meant.as_os_str()));
    Some(format!("{name} is taken for the command; to mount the {what} of that name, write {meant}"))
}

/// `warning`: what is to be said before anything else.
fn dispatch(cli: Cli, colour: Colour, warning: Option<String>) -> Result<Code, Failure> {
    if let Some(open) = options_of(&cli) {
        not_an_archive(open.log_file().map(PathBuf::as_path), archives_of(&cli))?;
        logging::start(open.debug, open.log_file().map(PathBuf::as_path), colour)?;
        if let Some(warning) = warning {
            log::warn!("{warning}");
        }
    } else if let Some(warning) = warning {
        crate::terminal::say(&warning);
    }
    match cli.command {
        None if cli.version => version::run(cli.version_in_full),
        None if cli.formats => formats::run(),
        None => mount_or_unmount(&cli.mount),
        Some(Command::Mount(mount)) => mount_or_unmount(&mount),
        Some(Command::Unmount { mountpoints, lazy }) => Ok(unmount::run(&mountpoints, lazy)),
        Some(Command::Mounts { json }) => mounts::run(json),
        Some(Command::Index(arguments)) => index::run(&arguments),
        Some(Command::Check(arguments)) => check::run(&arguments),
        Some(Command::Ls(arguments)) => ls::run(&arguments),
        Some(Command::Find(arguments)) => find::run(&arguments),
        Some(Command::Cat(arguments)) => cat::run(&arguments),
        Some(Command::Extract(arguments)) => extract::run(&arguments),
        Some(Command::Commit(arguments)) => commit::run(&arguments),
        Some(Command::Compare(arguments)) => compare::run(&arguments),
        Some(Command::Stat(arguments)) => stat::run(&arguments),
        Some(Command::Info(arguments)) => info::run(&arguments),
        Some(Command::Bench(arguments)) => bench::run(&arguments),
        Some(Command::Create(arguments)) => create::run(&arguments),
        Some(Command::Convert(arguments)) => convert::run(&arguments),
        Some(Command::Serve(arguments)) => serve::run(&arguments),
        Some(Command::Advise(arguments)) => advise::run(&arguments),
        Some(Command::Overlay(arguments)) => overlay::run(&arguments),
        Some(Command::Completions { shell }) => pages::completions(shell),
        Some(Command::Man { command }) => pages::man(&command),
        Some(Command::Complete { words }) => complete::run(&words),
    }
}
