//! Options of ratarmount that tarnfs does not have yet. They are refused by name: an option that is silently ignored
//! would mount something else than was asked for.

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Command};
use tarnfs_fuse::{plain_option, split_options};

use crate::exit::{Code, Failure};

/// Long name, short name, whether it takes values.
const OPTIONS: &[(&str, Option<char>, bool)] =
    &[("force-folder-index", None, false), ("oss-attributions", None, false), ("oss-attributions-short", None, false)];

/// Options of ratarmount that ask for what tarnfs does anyway, and the options of tarnfs that each takes back.
const HOLD_ANYWAY: &[(&str, &[&str])] = &[
    ("mount", &["no_mount"]),
    ("no-force-folder-index", &[]),
    ("no-foreground", &["foreground"]),
    ("no-gnu-incremental", &["gnu_incremental"]),
    ("no-ignore-zeros", &["ignore_zeros"]),
    ("no-verify-mtime", &["verify_mtime"]),
    ("recreate-index-on-errors", &["no_recreate_index", "recreate_index"]),
];

/// Adds them to the mount command, hidden, so that they are recognised wherever they stand. What takes an option back
/// goes to each command that has it.
pub(crate) fn with_ratarmounts_options(command: Command) -> Command {
    let hidden = |long: &'static str| Arg::new(long).long(long).hide(true).action(ArgAction::SetTrue);
    let taking_back = |command: Command| {
        HOLD_ANYWAY.iter().fold(command, |command, &(long, takes_back)| {
            if takes_back.iter().any(|other| command.get_arguments().any(|arg| arg.get_id() == other)) {
                return command.arg(hidden(long).overrides_with_all(takes_back.iter().copied()));
            }
            command
        })
    };
    let command = taking_back(command.mut_subcommands(taking_back));
    let command = HOLD_ANYWAY
        .iter()
        .filter(|(_, takes_back)| takes_back.is_empty())
        .fold(command, |command, (long, _)| command.arg(hidden(long)));
    OPTIONS.iter().fold(command, |command, &(long, short, takes_values)| {
        let mut arg = Arg::new(long).long(long).hide(true);
        arg = match short {
            Some(short) => arg.short(short),
            None => arg,
        };
        command.arg(if takes_values { arg.action(ArgAction::Append) } else { arg.action(ArgAction::Count) })
    })
}

/// What stands after `-o`.
#[derive(Debug, Default)]
pub(crate) struct OptionsOfTheMount {
    /// Options of tarnfs, as they would be typed without `-o`.
    pub(crate) as_options: Vec<OsString>,
    /// All others.
    pub(crate) for_the_mount: Vec<String>,
}

/// Sorts what stands after `-o`: fstab has no other place for an option of tarnfs. Underscores may stand for its
/// dashes. `modules=subdir,subdir=PATH` is how libfuse is told what is `--prefix=PATH` here. Fails for an option
/// without the value that it takes: the next word would be taken for it.
pub(crate) fn among_options_of_the_mount(
    command: &Command,
    matches: &ArgMatches,
) -> Result<OptionsOfTheMount, Failure> {
    /// What asks for something else than a mount.
    const NEVER: [&str; 6] = ["commit-overlay", "fuse", "help", "unmount", "verbose", "version"];
    let matches = match matches.subcommand() {
        Some((_, matches)) => matches,
        None => matches,
    };
    let mut sorted = OptionsOfTheMount::default();
    let given = matches.try_get_many::<String>("fuse").ok().flatten();
    let has_subdir = given
        .clone()
        .into_iter()
        .flatten()
        .flat_map(|joined| split_options(joined))
        .any(|option| option.starts_with("subdir="));
    for option in given.into_iter().flatten().flat_map(|joined| split_options(joined)) {
        let plain = plain_option(option);
        let (name, value) = plain.split_once('=').map_or((plain.as_str(), None), |(name, value)| (name, Some(value)));
        let name = name.replace('_', "-");
        let ours = command.get_arguments().find(|arg| arg.get_long() == Some(name.as_str()));
        let ours = ours.filter(|_| !NEVER.contains(&name.as_str()));
        if (name.as_str(), value) == ("modules", Some("subdir")) && has_subdir {
            // Said by the other one.
        } else if let ("subdir", Some(path)) = (name.as_str(), value) {
            sorted.as_options.push(format!("--prefix={path}").into());
        } else if let Some(ours) = ours {
            if value.is_none() && ours.get_action().takes_values() {
                let of = ours.get_value_names().unwrap_or_default().join(" ");
                let what = format!("-o {plain} needs a value: -o {plain}={of}");
                return Err(Failure::new(Code::Usage, what));
            }
            let value = value.map(|value| format!("={value}")).unwrap_or_default();
            sorted.as_options.push(format!("--{name}{value}").into());
        } else {
            sorted.for_the_mount.push(option.to_owned());
        }
    }
    Ok(sorted)
}

/// True for `--password` and others that would be refused.
pub(super) fn is_later(name: &str) -> bool {
    let Some(name) = name.strip_prefix("--") else { return false };
    OPTIONS.iter().any(|(long, _, _)| *long == name)
}

/// Fails if one of them was given.
pub(crate) fn refuse(matches: &ArgMatches) -> Result<(), Failure> {
    let is_given = |matches: &ArgMatches, long: &str| {
        matches.try_contains_id(long).unwrap_or(false)
            && matches.value_source(long) == Some(clap::parser::ValueSource::CommandLine)
    };
    // An empty value is none, as in ratarmount: scripts have it in a variable.
    let has_value = |long: &str| {
        let values = matches.try_get_raw(long).ok().flatten();
        values.into_iter().flatten().any(|value| !value.is_empty())
    };
    let is_refused = |long: &str, takes_values: bool| is_given(matches, long) && (!takes_values || has_value(long));
    match OPTIONS.iter().find(|(long, _, takes_values)| is_refused(long, *takes_values)) {
        Some((long, _, _)) => Err(Failure::new(
            Code::Usage,
            format!("--{long} is an option of ratarmount that tarnfs does not have yet; nothing was mounted"),
        )),
        None => Ok(()),
    }
}
