//! What the command does, in one match.

use std::ffi::OsString;

use crate::args::{Cli, Command, Open, parse};
use crate::commands::{cat, index, ls, mount, pages, stat, unmount};
use crate::exit::{Code, Failure};
use crate::logging;
use crate::terminal::Colour;

/// Runs a command line. The colour is for the message of a failure.
pub(crate) fn run(arguments: Vec<OsString>) -> (Result<Code, Failure>, Colour) {
    let cli = match parse(arguments) {
        Ok(cli) => cli,
        Err(early) => return (early, Colour::default()),
    };
    let colour = options_of(&cli).map_or(Colour::default(), Open::colour);
    (dispatch(cli, colour), colour)
}

fn options_of(cli: &Cli) -> Option<&Open> {
    match &cli.command {
        None => Some(&cli.mount.open),
        Some(Command::Mount(mount)) => Some(&mount.open),
        Some(Command::Index(index)) => Some(&index.open),
        Some(Command::Ls(list)) => Some(&list.open),
        Some(Command::Cat(cat)) => Some(&cat.open),
        Some(Command::Stat(stat)) => Some(&stat.open),
        Some(Command::Unmount { .. } | Command::Completions { .. } | Command::Man) => None,
    }
}

fn dispatch(cli: Cli, colour: Colour) -> Result<Code, Failure> {
    if let Some(open) = options_of(&cli) {
        logging::start(open.debug, open.log_file.as_deref(), colour)?;
    }
    match cli.command {
        None if !cli.mount.unmount.is_empty() => Ok(unmount::run(&cli.mount.unmount)),
        None => mount::run(&cli.mount),
        Some(Command::Mount(mount)) if !mount.unmount.is_empty() => Ok(unmount::run(&mount.unmount)),
        Some(Command::Mount(mount)) => mount::run(&mount),
        Some(Command::Unmount { mountpoints }) => Ok(unmount::run(&mountpoints)),
        Some(Command::Index(arguments)) => index::run(&arguments),
        Some(Command::Ls(arguments)) => ls::run(&arguments),
        Some(Command::Cat(arguments)) => cat::run(&arguments),
        Some(Command::Stat(arguments)) => stat::run(&arguments),
        Some(Command::Completions { shell }) => pages::completions(shell),
        Some(Command::Man) => pages::man(),
    }
}
