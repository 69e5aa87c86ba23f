//! The command line: [`definitions`] says what there is; parser, help, completions and man page all come from it.

mod advise;
mod bench;
mod commit;
mod compare;
mod definitions;
mod extract;
mod images;
mod info;
mod later;
mod overlay;
mod serving;
mod settings;
mod size;
mod usage;
mod writing;

pub(crate) use advise::{Advise, Purpose};
pub(crate) use bench::{Bench, BenchCommand, BenchCompress, BenchMount, BenchScale, BenchTar, Measuring};
pub(crate) use commit::Commit;
pub(crate) use compare::{Compare, Ignored};
pub(crate) use definitions::{
    Cat, Check, Cli, Command, DEBUG, Find, Index, IndexFormat, List, Mount, Open, Shell, Stat,
};
pub(crate) use extract::Extract;
pub(crate) use info::Info;
pub(crate) use overlay::{Overlay, OverlayDiff};
pub(crate) use serving::Serve;
pub(crate) use settings::{Keys, composition, mount_options, open_options, secret, secrets, writes};
pub(crate) use writing::{Compress, Convert, Create, SortFiles};

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::{ArgMatches, CommandFactory, FromArgMatches};

use crate::commands::find::begins_expression;
use crate::exit::{Code, Failure};

/// All that there is, for completions.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}

/// Headings of the options that are the same for every command.
const SHARED: [&str; 5] = ["Archives in archives", "Decoding", "Index", "Messages", "Reading tar"];

/// How a command is called, in one line: `tarnfs ls [OPTIONS] ARCHIVE [PATH]...`.
pub(crate) fn usage_of(command: &clap::Command) -> String {
    // Where something is to be measured, these options stand for it: clap does not say so.
    let instead: String = [("make", "|--make SIZE"), ("grid", "|--grid")]
        .into_iter()
        .filter(|(id, _)| command.get_arguments().any(|arg| arg.get_id() == id))
        .map(|(_, option)| option)
        .collect();
    let arguments = command.get_positionals().filter(|arg| !arg.is_hide_set()).map(|arg| {
        let name = arg.get_value_names().unwrap_or_default().join(" ");
        let dots = if arg.get_num_args().is_some_and(|number| number.max_values() > 1) { "..." } else { "" };
        match arg.is_required_set() {
            _ if !instead.is_empty() => format!("{name}{dots}{instead}"),
            // It says that itself.
            _ if name.contains("...") => name,
            true => format!("{name}{dots}"),
            false => format!("[{name}{dots}]"),
        }
    });
    if command.has_subcommands() {
        return format!("tarnfs {} COMMAND ...", command.get_name());
    }
    let has_options = command.get_arguments().any(|arg| !arg.is_positional() && !arg.is_hide_set());
    let options = has_options.then(|| "[OPTIONS]".to_owned());
    let words: Vec<_> = options.into_iter().chain(arguments).collect();
    format!("tarnfs {} {}", command.get_name(), words.join(" ")).trim_end().to_owned()
}

/// The same for help and man pages: commands show their own options, and name those that they share with all.
pub(crate) fn command_in_short() -> clap::Command {
    let is_shared = |arg: &clap::Arg| arg.get_help_heading().is_some_and(|heading| SHARED.contains(&heading));
    Cli::command().mut_subcommands(|command| {
        let usage = usage_of(&command);
        let name = command.get_name().to_owned();
        let command = command.override_usage(usage).mut_subcommands(|inner| {
            let usage = usage_of(&inner).replacen("tarnfs ", &format!("tarnfs {name} "), 1);
            inner.override_usage(usage)
        });
        if !command.get_arguments().any(is_shared) {
            return command;
        }
        let (last, others) = SHARED.split_last().unwrap_or((&"", &[]));
        let headings = format!("{} and {last}", others.join(", "));
        let line = format!("The options of `tarnfs --help` below {headings} work here, too.");
        command.mut_args(|arg| if is_shared(&arg) { arg.hide(true) } else { arg }).after_help(line)
    })
}

/// Reads a command line. Help and version are printed here and come back as `Err(Ok)`.
pub(crate) fn parse(arguments: Vec<OsString>) -> Result<Cli, Result<Code, Failure>> {
    read(arguments).map_err(|early| match early {
        Early::Nothing => Ok(Code::Success),
        Early::Refused(failure) => Err(failure),
        Early::Said(error) => {
            error.print().map_err(|error| crate::terminal::output_failure(&error)).map(|()| Code::Success)
        }
    })
}

/// Reads a command line without printing anything. `None` where there is nothing to do but to print what [`parse`]
/// would.
pub(crate) fn parse_quietly(arguments: Vec<OsString>) -> Option<Cli> {
    read(arguments).ok().filter(|cli| !cli.version && !cli.formats)
}

/// What ends the reading of a command line.
enum Early {
    Nothing,
    /// Help.
    Said(clap::Error),
    Refused(Failure),
}

fn read(arguments: Vec<OsString>) -> Result<Cli, Early> {
    let Some(arguments) = as_mount_helper(unmount_last(two_letter_options(arguments))) else {
        return Err(Early::Nothing);
    };
    let arguments = with_expression_behind(as_help_of_ls(arguments));
    let mut command = later::with_ratarmounts_options(Cli::command());
    let first = matches(&mut command, &arguments)?;
    let inner = later::among_options_of_the_mount(&command, &first).map_err(Early::Refused)?;
    let matches = if inner.as_options.is_empty() {
        first
    } else {
        // Before everything else, so that nothing that was typed can take them for paths.
        let behind = 1 + usize::from(first.subcommand().is_some());
        matches(&mut command, &[&arguments[..behind], &inner.as_options, &arguments[behind..]].concat())?
    };
    later::refuse(&matches).map_err(Early::Refused)?;
    let mut cli = Cli::from_arg_matches(&matches)
        .map_err(|error| Early::Refused(Failure::new(Code::Usage, error.to_string())))?;
    cli.version_in_full = cli.mount.open.debug > 0;
    match &mut cli.command {
        Some(Command::Mount(mount)) => mount.fuse = inner.for_the_mount,
        _ => cli.mount.fuse = inner.for_the_mount,
    }
    Ok(cli)
}

/// What `command`, which is all that there is, makes of `arguments`.
fn matches(command: &mut clap::Command, arguments: &[OsString]) -> Result<ArgMatches, Early> {
    if let Ok(matches) = command.try_get_matches_from_mut(arguments) {
        return Ok(matches);
    }
    // Only where something is to be shown: what makes it short takes as long as all of the above.
    let command = later::with_ratarmounts_options(command_in_short());
    command.clone().try_get_matches_from(arguments).map_err(|error| {
        if !error.use_stderr() {
            return Early::Said(error);
        }
        // Options go behind the name of a command.
        let named = arguments.get(1).and_then(|word| command.find_subcommand(word)).unwrap_or(&command);
        let named = arguments.get(2).and_then(|word| named.find_subcommand(word)).unwrap_or(named);
        Early::Refused(Failure::new(Code::Usage, usage::sentence(&error, named, arguments)))
    })
}

/// `-h` of `ls` is for sizes, as everywhere, and that of `create` for links; where there is nothing else, somebody
/// wants help.
fn as_help_of_ls(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if let [_, command, option] = arguments.as_mut_slice()
        && (command == "ls" || command == "list" || command == "create")
        && option == "-h"
    {
        *option = "--help".into();
    }
    arguments
}

/// The tests of `find` begin with one dash, as its options do: nothing behind the first of them is an option.
fn with_expression_behind(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_none_or(|command| command != "find") {
        return arguments;
    }
    let command = Cli::command();
    let Some(find) = command.find_subcommand("find") else { return arguments };
    // The archive, which stands behind the options: their values are none of the words of an expression.
    let takes_value = |word: &[u8]| {
        let is_taken = |arg: &clap::Arg| match word {
            [b'-', b'-', long @ ..] => arg.get_long().is_some_and(|name| name.as_bytes() == long),
            [b'-', .., short] => arg.get_short() == Some(char::from(*short)),
            _ => false,
        };
        find.get_arguments().find(|arg| is_taken(arg)).map_or(0, |arg| {
            let most = arg.get_num_args().map_or(1, |number| number.max_values());
            if arg.get_action().takes_values() { most } else { 0 }
        })
    };
    let mut at = 2;
    while let Some(word) =
        arguments.get(at).map(|word| word.as_bytes()).filter(|word| word.len() > 1 && word[0] == b'-')
    {
        if word == b"--" {
            return arguments;
        }
        at += 1 + takes_value(word);
    }
    let first = arguments.iter().skip(at + 1).position(|word| begins_expression(word.as_bytes()));
    let behind = at + 1 + first.unwrap_or_default();
    if first.is_some() && !arguments[at..behind].iter().any(|word| word == "--") {
        arguments.insert(behind, "--".into());
    }
    arguments
}

/// `-gs` is one option in the command line that tarnfs takes over, not `-g -s`; its value may be a word of its own, or
/// stand right behind it.
fn two_letter_options(arguments: Vec<OsString>) -> Vec<OsString> {
    let mut only_paths = false;
    arguments
        .into_iter()
        .map(|argument| {
            only_paths |= argument == "--";
            let long =
                |rest: &[&[u8]]| OsString::from_vec([&[&b"--gzip-seek-point-spacing"[..]], rest].concat().concat());
            match argument.as_bytes().strip_prefix(b"-gs") {
                Some(rest @ ([] | [b'=', ..])) if !only_paths => long(&[rest]),
                Some(rest @ [b'0'..=b'9' | b'.', ..]) if !only_paths => long(&[b"=", rest]),
                _ => argument,
            }
        })
        .collect()
}

/// `-ul` is `-u -l`, as for umount(8) and ratarmount, not a mount point that is called `l`: names go behind `-u`, so
/// that it comes last.
fn unmount_last(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let with_u_last = |word: &OsString| {
        let letters = word.as_bytes().strip_prefix(b"-")?;
        let at = letters.iter().position(|&letter| letter == b'u')?;
        let is_meant = letters.iter().all(|letter| b"ulf".contains(letter))
            && !letters[at + 1..].contains(&b'u')
            && !letters.ends_with(b"u");
        let others = || letters.iter().copied().filter(|&letter| letter != b'u').collect::<Vec<u8>>();
        is_meant.then(|| OsString::from_vec([b"-", &others()[..], b"u"].concat()))
    };
    let is_before_paths = |word: &&mut OsString| **word != "--";
    // What there is is asked for only where it matters: that takes longer than all else here.
    let mut command = None;
    let first = arguments.get(1).cloned();
    for word in arguments.iter_mut().skip(1).take_while(is_before_paths) {
        let Some(instead) = with_u_last(word) else { continue };
        let is_of_mount = *command.get_or_insert_with(|| {
            let known = Cli::command();
            let command = first.as_ref().and_then(|word| known.find_subcommand(word));
            command.is_none_or(|command| command.get_name() == "mount")
        });
        if is_of_mount {
            *word = instead;
        }
    }
    arguments
}

/// `mount` calls its helpers as `mount.fuse.tarnfs ARCHIVE MOUNTPOINT [-sfnv] [-N namespace] [-t type] [-o options]`:
/// of these only `-o` means anything here, and `-f` must not be taken for "foreground": it means to pretend, for which
/// `None` stands.
fn as_mount_helper(arguments: Vec<OsString>) -> Option<Vec<OsString>> {
    if !is_mount_helper(&arguments) {
        return Some(arguments);
    }
    let mut kept = Vec::new();
    let mut rest = arguments.into_iter();
    while let Some(argument) = rest.next() {
        match argument.as_bytes() {
            b"-t" | b"-N" => drop(rest.next()),
            [b'-', flags @ ..] if !flags.is_empty() && flags.iter().all(|flag| b"sfnv".contains(flag)) => {
                if flags.contains(&b'f') {
                    return None;
                }
            }
            _ => kept.push(argument),
        }
    }
    Some(kept)
}

/// Whether mount(8) calls: then the program is named `mount.` and a type, or mount.fuse3 stands between them. That one
/// adds nothing but `-o`, and says in it whether devices and set-user-id count.
pub(crate) fn is_mount_helper(arguments: &[OsString]) -> bool {
    let called = arguments.first().and_then(|path| std::path::Path::new(path).file_name());
    if called.is_some_and(|name| name.as_bytes().starts_with(b"mount.")) {
        return true;
    }
    let [_, source, mountpoint, option, options] = arguments else { return false };
    let has = |words: [&[u8]; 2]| options.as_bytes().split(|byte| *byte == b',').any(|word| words.contains(&word));
    let are_paths = [source, mountpoint].into_iter().all(|path| !path.as_bytes().starts_with(b"-"));
    are_paths && option == "-o" && has([b"ro", b"rw"]) && has([b"suid", b"nosuid"]) && has([b"dev", b"nodev"])
}

/// [`is_mount_helper`], of this process.
fn is_called_by_mount() -> bool {
    is_mount_helper(&std::env::args_os().collect::<Vec<_>>())
}

/// How a path is shown in messages.
pub(crate) fn shown(path: &OsStr) -> String {
    crate::terminal::escaped(path.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarnfs_source::Setting;

    /// What a message of a library advises can be typed.
    #[test]
    fn each_setting_of_the_libraries_is_an_option() {
        fn has(command: &clap::Command, name: &str) -> bool {
            command.get_arguments().any(|arg| arg.get_long() == Some(name))
                || command.get_subcommands().any(|command| has(command, name))
        }
        let command = later::with_ratarmounts_options(Cli::command());
        for setting in Setting::ALL {
            assert!(has(&command, setting.name()), "{setting}");
        }
    }
}
