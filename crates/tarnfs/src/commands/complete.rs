//! What may come next in a command line, for the completions of a shell: `tarnfs __complete -- WORDS...`, of which the
//! last is the one that is being typed.
//!
//! The first line says what else the shell is to offer: `files`, `folders` or `nothing`. Each further line is a word,
//! and for those that have one a tab and an explanation.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::{Arg, ValueHint};
use tarnfs_source::Cancel;
use tarnfs_tree::open::{IndexPlace, Recreate, open};
use tarnfs_tree::{Kind, Node, Tree, path};
use tarnfs_write::Target;

use super::find;
use super::mounts::shown_source;
use crate::args::{self, Cli, Command, Open};
use crate::exit::{Code, Failure};
use crate::inside;
use crate::terminal::output_failure;

/// Names out of an archive that are offered; nobody reads through more.
const MOST_NAMES: usize = 2000;

/// An archive of at most this size is read when it has no index; nobody waits for a larger one.
const READ_AT_ONCE: u64 = 16 << 20;

/// Nor for one of which few bytes make much data, as in a bomb.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the shell offers beside the words that it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Else {
    Files,
    Folders,
    Nothing,
}

/// Words, each with an explanation that may be empty.
type Words = Vec<(Vec<u8>, String)>;

pub(crate) fn run(words: &[OsString]) -> Result<Code, Failure> {
    let (what_else, words) = offers(&joined(words));
    let mut text = match what_else {
        Else::Files => b"files\n".to_vec(),
        Else::Folders => b"folders\n".to_vec(),
        Else::Nothing => b"nothing\n".to_vec(),
    };
    for (word, explanation) in words {
        // A name with a line end or a tab cannot be told from two.
        if word.iter().any(|byte| matches!(byte, b'\n' | b'\t')) {
            continue;
        }
        text.extend(word);
        if !explanation.is_empty() {
            text.extend(format!("\t{explanation}").bytes());
        }
        text.push(b'\n');
    }
    io::stdout().write_all(&text).map_err(|error| output_failure(&error))?;
    Ok(Code::Success)
}

/// bash splits a word at `=`.
fn joined(words: &[OsString]) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::new();
    let mut goes_on = false;
    for word in words {
        let is_sign = word == "=" && joined.last().is_some_and(|last| last.as_bytes().starts_with(b"--"));
        match joined.last_mut().filter(|_| is_sign || goes_on) {
            Some(last) => last.push(word),
            None => joined.push(word.clone()),
        }
        goes_on = is_sign;
    }
    joined
}

/// Where in the command line the last word stands.
struct Position<'a> {
    command: &'a clap::Command,
    /// The option whose value it is.
    value_of: Option<&'a Arg>,
    /// Paths and other words before it that belong to no option.
    before: Vec<&'a OsStr>,
    /// Behind `--` nothing is an option.
    only_paths: bool,
}

fn offers(words: &[OsString]) -> (Else, Words) {
    let root = args::command();
    let Some((current, before)) = words.split_last() else { return (Else::Nothing, Vec::new()) };
    let before = before.get(1..).unwrap_or_default();
    let named = before.first().and_then(|word| root.get_subcommands().find(|it| it.get_name() == word.as_os_str()));
    // A command of a command.
    let inner = named.and_then(|named| before.get(1).and_then(|word| named.find_subcommand(word)));
    let typed = usize::from(named.is_some()) + usize::from(inner.is_some());
    let position = position(inner.or(named).unwrap_or(&root), &before[typed..]);
    if let Some(option) = position.value_of {
        return values(option, current.as_bytes());
    }
    let count = position.before.len();
    if !position.only_paths && current.as_bytes().starts_with(b"-") {
        let (what_else, mut words) = options(position.command, current.as_bytes());
        // Tests have one dash, and go behind the archive.
        if count > 0 && position.command.get_name() == "find" {
            let tests = find::words().map(|word| format!("-{word}").into_bytes());
            words.extend(tests.filter(|word| word.starts_with(current.as_bytes())).map(|word| (word, String::new())));
        }
        return (what_else, words);
    }
    if named.is_none() && before.first().is_some_and(|word| word == "help") {
        // clap adds it only where a command line is read.
        let outer = before.get(1).map(|word| root.find_subcommand(word));
        let words = match (outer, before.len()) {
            (None, _) => commands(&root, current),
            (Some(Some(outer)), 2) => commands(outer, current),
            _ => Vec::new(),
        };
        return (Else::Nothing, words);
    }
    if let Some(inner) = inner {
        return inner.get_positionals().next().map_or((Else::Nothing, Vec::new()), |arg| values(arg, b""));
    }
    match named.map_or("mount", clap::Command::get_name) {
        "bench" if count == 0 => (Else::Nothing, commands(named.unwrap_or(&root), current)),
        "mount" if count == 0 => {
            let mut words = Vec::new();
            if named.is_none() && before.is_empty() {
                words = commands(&root, current);
                if b"help".starts_with(current.as_bytes()) {
                    words.push((b"help".to_vec(), "Print help, or that of a command".to_owned()));
                }
            }
            (Else::Files, words)
        }
        // The mount point, or another archive: the shell offers files where there is no such folder.
        "mount" => (Else::Folders, Vec::new()),
        "unmount" => mounted(current.as_bytes()),
        "compare" if count < 2 => (Else::Files, Vec::new()),
        "ls" | "find" | "cat" | "extract" | "compare" | "stat" if count > 0 => {
            let names = names(words, Path::new(position.before[0]), current.as_bytes()).unwrap_or_default();
            (Else::Nothing, names)
        }
        "completions" if count == 0 => match position.command.get_positionals().next() {
            Some(shell) => values(shell, current.as_bytes()),
            None => (Else::Nothing, Vec::new()),
        },
        "man" if count == 0 => (Else::Nothing, commands(&root, current)),
        "man" if count == 1 => {
            let outer = position.before.first().and_then(|word| root.find_subcommand(word));
            (Else::Nothing, outer.map(|outer| commands(outer, current)).unwrap_or_default())
        }
        "ls" | "find" | "cat" | "extract" | "stat" | "index" | "check" | "create" | "convert" | "commit" => {
            (Else::Files, Vec::new())
        }
        _ => (Else::Nothing, Vec::new()),
    }
}

/// Goes through the words before the last one.
fn position<'a>(command: &'a clap::Command, words: &'a [OsString]) -> Position<'a> {
    let mut position = Position { command, value_of: None, before: Vec::new(), only_paths: false };
    let mut values = 0;
    let takes_value = |arg: &Arg| arg.get_action().takes_values();
    for word in words {
        let bytes = word.as_bytes();
        if let Some(option) = position.value_of.take() {
            // Of an option that takes several, the words that come next are values, too.
            values += 1;
            let takes_more = option.get_num_args().is_some_and(|number| values < number.max_values());
            if !(takes_more && bytes.starts_with(b"-")) {
                position.value_of = takes_more.then_some(option);
                continue;
            }
        }
        values = 0;
        if position.only_paths || bytes == b"-" || !bytes.starts_with(b"-") {
            position.before.push(word);
        } else if bytes == b"--" {
            position.only_paths = true;
        } else if let Some(long) = bytes.strip_prefix(b"--") {
            let found = command.get_arguments().find(|arg| arg.get_long().is_some_and(|it| it.as_bytes() == long));
            position.value_of = found.filter(|arg| takes_value(arg));
        } else {
            let last = word.to_str().and_then(|word| word.chars().last());
            let found = command.get_arguments().find(|arg| arg.get_short().is_some() && arg.get_short() == last);
            position.value_of = found.filter(|arg| takes_value(arg));
        }
    }
    position
}

/// What an option, or a word in its place, may be.
fn values(arg: &Arg, typed: &[u8]) -> (Else, Words) {
    if matches!(arg.get_id().as_str(), "unmount") {
        return mounted(typed);
    }
    let mut words: Words = Vec::new();
    for value in arg.get_possible_values() {
        words.push((value.get_name().into(), explanation(value.get_help())));
    }
    // Those are of another crate, which knows nothing of command lines.
    if arg.get_id() == "compress" {
        words.extend(Target::names().map(|name| (name.into(), String::new())));
    }
    words.retain(|(word, _)| word.starts_with(typed));
    let what_else = match arg.get_value_hint() {
        ValueHint::AnyPath | ValueHint::FilePath => Else::Files,
        ValueHint::DirPath => Else::Folders,
        _ => Else::Nothing,
    };
    (what_else, words)
}

/// The options of a command that begin with what was typed.
fn options(command: &clap::Command, typed: &[u8]) -> (Else, Words) {
    if let Some(equals) = typed.iter().position(|&byte| byte == b'=') {
        let found = command.get_arguments().find(|arg| {
            arg.get_long().is_some_and(|long| typed[..equals].strip_prefix(b"--") == Some(long.as_bytes()))
        });
        return found.map_or((Else::Nothing, Vec::new()), |arg| values(arg, &typed[equals + 1..]));
    }
    let mut words: Words = Vec::new();
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let explanation = explanation(arg.get_help());
        let long = arg.get_long().map(|long| format!("--{long}"));
        let short = arg.get_short().map(|short| format!("-{short}")).filter(|_| long.is_none() || typed == b"-");
        words.extend(short.into_iter().chain(long).map(|word| (word.into_bytes(), explanation.clone())));
    }
    words.retain(|(word, _)| word.starts_with(typed));
    (Else::Nothing, words)
}

/// The first sentence of a help, on one line.
fn explanation(help: Option<&clap::builder::StyledStr>) -> String {
    let help = help.map(ToString::to_string).unwrap_or_default();
    let line: String = help.chars().map(|it| if matches!(it, '\n' | '\t') { ' ' } else { it }).collect();
    line.split_once(". ").map_or(line.as_str(), |(first, _)| first).to_owned()
}

fn commands(root: &clap::Command, typed: &OsStr) -> Words {
    let shown = root.get_subcommands().filter(|command| !command.is_hide_set());
    let fit = shown.filter(|command| command.get_name().as_bytes().starts_with(typed.as_bytes()));
    fit.map(|command| (command.get_name().into(), explanation(command.get_about()))).collect()
}

/// What is mounted, as it is typed: from here, or from the root.
fn mounted(typed: &[u8]) -> (Else, Words) {
    let here = std::env::current_dir().unwrap_or_default();
    let mounts = tarnfs_fuse::mounts().unwrap_or_default();
    let words: Words = mounts
        .into_iter()
        .map(|mount| {
            let is_whole = typed.starts_with(b"/");
            let from_here = mount.mount_point.strip_prefix(&here).ok().filter(|_| !is_whole);
            let shown = from_here.unwrap_or(&mount.mount_point);
            (shown.as_os_str().as_bytes().to_vec(), shown_source(&mount.source))
        })
        .filter(|(word, _)| word.starts_with(typed))
        .collect();
    (if words.is_empty() { Else::Folders } else { Else::Nothing }, words)
}

/// Paths in `archive` that begin with what was typed. `None` if it cannot be opened at once.
fn names(words: &[OsString], archive: &Path, typed: &[u8]) -> Option<Words> {
    let archive = &from_home(archive);
    // With what was typed of `-r`, `-e` and so on. Without the last word, which may be cut anywhere.
    let cli = args::parse_quietly(words[..words.len() - 1].to_vec())
        .or_else(|| args::parse_quietly(vec!["tarnfs".into(), "ls".into(), archive.into()]))?;
    let cancel = Cancel::default();
    let of_clock = cancel.clone();
    // It ends with the process.
    thread::Builder::new()
        .spawn(move || {
            thread::sleep(PATIENCE);
            of_clock.cancel();
        })
        .ok()?;
    let typed_options = open_of(&cli)?;
    // Who types a word is asked for nothing else, and waits for no pipe.
    let is_read = |file: &PathBuf| file != Path::new("-") && file.metadata().is_ok_and(|found| found.is_file());
    if !typed_options.files_of_keys().all(is_read) {
        return None;
    }
    let keys = args::Keys::read(typed_options).ok()?;
    let mut options = inside::options(typed_options, &keys, &cancel).ok()?;
    options.decoding.decoded_cache = None;
    let mut with_index = options.clone();
    with_index.index.recreate = Recreate::Never;
    let opened = open(archive, &with_index).ok().or_else(|| {
        let is_small = archive.metadata().is_ok_and(|found| found.is_file() && found.len() <= READ_AT_ONCE);
        let mut in_memory = options;
        in_memory.index.place = IndexPlace::Memory;
        is_small.then(|| open(archive, &in_memory).ok()).flatten()
    })?;
    let tree = inside::tree(&opened);
    let behind = typed.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    let (folder, start) = typed.split_at(behind);
    let node = if folder.is_empty() { Node::ROOT } else { path::find(&tree, folder, true).ok()?.node };
    let mut words = Vec::new();
    tree.read_dir(node, 0, &mut |child| {
        if child.name.starts_with(start) {
            let end: &[u8] = if child.attributes.kind == Kind::Folder { b"/" } else { b"" };
            words.push(([folder, child.name, end].concat(), String::new()));
        }
        words.len() < MOST_NAMES
    })
    .ok()?;
    Some(words)
}

fn open_of(cli: &Cli) -> Option<&Open> {
    match cli.command.as_ref()? {
        Command::Ls(list) => Some(&list.open),
        Command::Cat(cat) => Some(&cat.open),
        Command::Find(find) => Some(&find.open),
        Command::Extract(extract) => Some(&extract.open),
        Command::Compare(compare) => Some(&compare.open),
        Command::Stat(stat) => Some(&stat.open),
        _ => None,
    }
}

/// A shell expands `~` only after the completion.
fn from_home(path: &Path) -> PathBuf {
    tarnfs_index::location::expand_home(path.to_owned())
}
