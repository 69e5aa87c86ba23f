//! The command line: [`definitions`] says what there is; parser, help, completions and man page all come from it.

mod definitions;
mod later;
mod settings;

pub(crate) use definitions::{Cat, Cli, Command, Index, IndexFormat, List, Mount, Open, Stat};
pub(crate) use settings::{mount_options, open_options};

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::{CommandFactory, FromArgMatches};

use crate::exit::{Code, Failure};

/// All that clap knows, with the options that are refused by name.
pub(crate) fn command() -> clap::Command {
    later::with_refused_options(Cli::command())
}

/// Reads a command line. Help and version are printed here and come back as `Err(Ok)`.
pub(crate) fn parse(arguments: Vec<OsString>) -> Result<Cli, Result<Code, Failure>> {
    let arguments = as_mount_helper(two_letter_options(arguments)).map_err(Err)?;
    let matches = command().try_get_matches_from(arguments).map_err(|error| {
        // Help and version go to standard output, errors of usage to standard error.
        let code = if error.use_stderr() { Code::Usage } else { Code::Success };
        error.print().map_err(|error| Failure::new(Code::Failure, format!("cannot write: {error}"))).map(|()| code)
    })?;
    later::refuse(&matches).map_err(Err)?;
    Cli::from_arg_matches(&matches).map_err(|error| Err(Failure::new(Code::Usage, error.to_string())))
}

/// `-gs` is one option in the command line that tarnfs takes over, not `-g -s`.
fn two_letter_options(arguments: Vec<OsString>) -> Vec<OsString> {
    let mut only_paths = false;
    arguments
        .into_iter()
        .map(|argument| {
            only_paths |= argument == "--";
            match argument.as_bytes().strip_prefix(b"-gs") {
                Some(rest) if !only_paths && (rest.is_empty() || rest.starts_with(b"=")) => {
                    OsString::from_vec([b"--gzip-seek-point-spacing", rest].concat())
                }
                _ => argument,
            }
        })
        .collect()
}

/// `mount` calls its helpers as `mount.fuse.tarnfs ARCHIVE MOUNTPOINT [-sfnv] [-N namespace] [-t type] [-o options]`:
/// of these only `-o` means anything here, and `-f` (pretend) must not be taken for "foreground".
fn as_mount_helper(arguments: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    let called = arguments.first().map(|path| std::path::Path::new(path).file_name().unwrap_or_default().to_owned());
    if !called.is_some_and(|name| name.as_bytes().starts_with(b"mount.")) {
        return Ok(arguments);
    }
    let mut kept = Vec::new();
    let mut rest = arguments.into_iter();
    while let Some(argument) = rest.next() {
        match argument.as_bytes() {
            b"-t" | b"-N" => drop(rest.next()),
            b"-f" => return Err(Failure::new(Code::Usage, "mount -f (pretend) is not possible with tarnfs")),
            [b'-', flags @ ..] if !flags.is_empty() && flags.iter().all(|flag| b"snv".contains(flag)) => {}
            _ => kept.push(argument),
        }
    }
    Ok(kept)
}

/// How a path is shown in messages.
pub(crate) fn shown(path: &OsStr) -> String {
    crate::terminal::escaped(path.as_bytes())
}
