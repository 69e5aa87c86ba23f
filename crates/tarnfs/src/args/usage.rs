//! What is wrong with a command line, in one sentence that says what to do: clap says it in several paragraphs.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::builder::ValueRange;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The sentence for `arguments`, which begin with the name of the program. `command` is what was asked for: `tarnfs`,
/// or one of its commands with all its arguments.
pub(super) fn sentence(error: &clap::Error, command: &clap::Command, arguments: &[OsString]) -> String {
    let typed = Typed { error, command, arguments };
    let known = match error.kind() {
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => typed.wrong_value(),
        ErrorKind::MissingRequiredArgument => typed.missing(),
        ErrorKind::UnknownArgument => typed.unknown(),
        ErrorKind::InvalidSubcommand => typed.no_command(),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => typed.missing_command(),
        ErrorKind::ArgumentConflict => typed.conflict(),
        ErrorKind::TooFewValues | ErrorKind::WrongNumberOfValues => typed.too_few_values(),
        ErrorKind::TooManyValues | ErrorKind::NoEquals => typed.too_many_values(),
        ErrorKind::InvalidUtf8 => Some("a value is not UTF-8; only paths may be something else".to_owned()),
        _ => None,
    };
    known.unwrap_or_else(|| typed.as_clap_says_it())
}

/// An error, and where it happened.
struct Typed<'a> {
    error: &'a clap::Error,
    command: &'a clap::Command,
    arguments: &'a [OsString],
}

impl Typed<'_> {
    fn text(&self, kind: ContextKind) -> Option<&str> {
        match self.error.get(kind)? {
            ContextValue::String(text) => Some(text),
            ContextValue::Strings(texts) => texts.first().map(String::as_str),
            _ => None,
        }
    }

    fn texts(&self, kind: ContextKind) -> &[String] {
        match self.error.get(kind) {
            Some(ContextValue::String(text)) => std::slice::from_ref(text),
            Some(ContextValue::Strings(texts)) => texts,
            _ => &[],
        }
    }

    /// `tarnfs ls`
    fn called(&self) -> String {
        match self.command.get_name() {
            "tarnfs" => "tarnfs".to_owned(),
            // A command of a command is known by how it is called.
            name => match self.arguments.get(1) {
                Some(outer) if outer != name && self.arguments.get(2).is_some_and(|inner| inner == name) => {
                    format!("tarnfs {} {name}", outer.to_string_lossy())
                }
                _ => format!("tarnfs {name}"),
            },
        }
    }

    /// `tarnfs bench mount [OPTIONS] ...`
    fn usage(&self) -> String {
        super::usage_of(self.command).replacen(&format!("tarnfs {}", self.command.get_name()), &self.called(), 1)
    }

    fn see(&self) -> String {
        format!("see {} --help", self.called())
    }

    /// The argument that clap calls `--debug <LEVEL>`.
    fn argument(&self) -> Option<(&str, Option<&clap::Arg>)> {
        let name = plain(self.text(ContextKind::InvalidArg)?);
        let is_it = |arg: &&clap::Arg| match name.strip_prefix("--") {
            Some(long) => arg.get_long() == Some(long),
            None => arg.is_positional() && value_names(arg).contains(&name.trim_end_matches('.')),
        };
        Some((name, self.command.get_arguments().find(is_it)))
    }

    fn wrong_value(&self) -> Option<String> {
        let (name, arg) = self.argument()?;
        let value = crate::terminal::escaped(self.text(ContextKind::InvalidValue)?.as_bytes());
        let possible = self.texts(ContextKind::ValidValue).join(", ");
        let what_to_do = match std::error::Error::source(self.error) {
            Some(why) => why.to_string(),
            None if !possible.is_empty() => format!("give one of {possible}"),
            None => "give a value".to_owned(),
        };
        if !value.is_empty() {
            // In other programs, -d is another option.
            let instead = match (self.command.get_name(), name) {
                ("ls", "--debug") => "; a folder itself is listed with --directory",
                ("extract", "--debug") => "; the folder to extract to is named with -C",
                _ => "",
            };
            return Some(format!("{name} {value}: {what_to_do}{instead}"));
        }
        if !name.starts_with('-')
            && let Some(number) = self.arguments.iter().position(|argument| argument.is_empty())
        {
            return Some(format!("argument {number} is empty"));
        }
        let values =
            arg.map(value_names).filter(|names| !names.is_empty()).map_or("VALUE".to_owned(), |it| it.join(" "));
        let of = if possible.is_empty() { String::new() } else { format!(", one of {possible}") };
        Some(format!("{name} needs a value: {name} {values}{of}"))
    }

    fn missing(&self) -> Option<String> {
        let names: Vec<_> = self.texts(ContextKind::InvalidArg).iter().map(|name| plain(name).to_owned()).collect();
        let first = names.first()?;
        if first == "--version" {
            return Some("--verbose goes with --version; -d 2 and -d 3 log what is done".to_owned());
        }
        if first.starts_with("--") {
            return Some(format!("{first} is missing; {}", self.see()));
        }
        Some(format!("no {first} is given: {}", self.usage()))
    }

    fn unknown(&self) -> Option<String> {
        let typed = self.text(ContextKind::InvalidArg)?;
        let (typed, see) = (crate::terminal::escaped(typed.as_bytes()), self.see());
        if !typed.starts_with('-') {
            return Some(format!("{typed}: one argument too many: {}", self.usage()));
        }
        let similar: Vec<_> = self.texts(ContextKind::SuggestedArg).iter().map(|name| plain(name)).collect();
        let called = self.called();
        let (later, similar): (Vec<_>, Vec<_>) = similar.into_iter().partition(|name| super::later::is_later(name));
        Some(if let Some(file) = self.file_like_options() {
            format!("{file} is taken for options of {called}; the file of that name is ./{file}")
        } else if let (Some(name), true) = (later.first(), similar.is_empty()) {
            format!("{typed} is not an option of {called}, and {name} is not there yet; {see}")
        } else if let (Some(command), true) = (self.habit(&typed), similar.is_empty()) {
            format!("{typed} is not an option of {called}; did you mean `tarnfs {command}`? Or {see}")
        } else if let Some(hint) = self.hint(&typed) {
            format!("{typed} is not an option of {called}: {hint}; {see}")
        } else if similar.is_empty() && self.command.get_name() == "find" {
            format!("{typed} is not an option of {called}, and tests go behind the archive; {see}")
        } else if similar.is_empty() {
            format!("{typed} is not an option of {called}; {see}")
        } else {
            format!("{typed} is not an option of {called}; did you mean {}? Or {see}", similar.join(" or "))
        })
    }

    /// A word that begins as options do and is the name of a file.
    fn file_like_options(&self) -> Option<String> {
        let words = self.arguments.iter().skip(1).take_while(|word| *word != "--");
        let mut named = words.filter(|word| word.as_bytes().starts_with(b"-") && word.len() > 1);
        let word = named.find(|word| std::path::Path::new(word).symlink_metadata().is_ok())?;
        Some(crate::terminal::escaped(word.as_bytes()))
    }

    /// The command that somebody means who types options of tar, one of which is `typed`.
    fn habit(&self, typed: &str) -> Option<&'static str> {
        let letter = typed.strip_prefix('-').filter(|_| self.command.get_name() == "tarnfs")?;
        let words = self.arguments.iter().skip(1).map(|word| word.as_bytes());
        let mut clusters = words.filter(|word| matches!(word, [b'-', letters @ ..] if !letters.starts_with(b"-")));
        let is_it = |word: &&[u8]| word.windows(letter.len().max(1)).any(|part| part == letter.as_bytes());
        clusters.find(is_it).and_then(crate::typos::command_of_habit)
    }

    /// What does here what options of this name do in other programs.
    fn hint(&self, typed: &str) -> Option<&'static str> {
        let hints: &[(&[&str], &str)] = match self.command.get_name() {
            "extract" => &[
                (&["-O", "--to-stdout"], "`tarnfs cat` writes files to standard output"),
                (
                    &["-k", "--keep-old-files", "-n"],
                    "files that are there stay anyway, and --skip-old is silent about them",
                ),
                (
                    &["--exclude", "--exclude-from"],
                    "what is to be extracted is named behind the archive, also as globs",
                ),
                (&["-x", "-f", "-z", "-j", "-J"], "the archive is named without it, and its compression is found out"),
            ],
            "create" => &[
                (
                    &["-z", "-j", "-J", "-a", "--gzip", "--bzip2", "--xz", "--zstd"],
                    "OUT's name, or --compress, says the compression",
                ),
                (
                    &["-1", "-2", "-3", "-4", "-5", "-6", "-7", "-8", "-9", "--best", "--fast"],
                    "--level says how hard to compress",
                ),
                (&["-f", "-c"], "the archive is named without it, before what goes in"),
                (&["-p", "--preserve-permissions"], "permissions are kept anyway"),
                (&["-v", "--verbose"], "on a terminal, one line says in the end how much went in"),
            ],
            "check" => &[
                (&["-v", "--verbose"], "-d 2 says more, and names all damaged files"),
                (&["-f", "-z", "-j", "-J"], "the archive is named without it"),
            ],
            "stat" | "info" => &[
                (&["-v", "--verbose"], "all that is known is said anyway; --json has it for programs"),
                (&["-f", "-z", "-j", "-J"], "the archive is named without it"),
            ],
            "ls" | "cat" | "index" | "mount" | "compare" => {
                &[(&["-f", "-v", "-z", "-j", "-J"], "the archive is named without it")]
            }
            _ => &[],
        };
        let found = hints.iter().find(|(options, _)| options.contains(&typed)).map(|(_, hint)| *hint);
        // 7z has it right before the password. Nobody else sees it in a message.
        let reads = |arg: &clap::Arg| arg.get_long() == Some("password");
        found.or_else(|| {
            let is_password = typed == "-p" && self.command.get_arguments().any(reads);
            is_password.then_some("a password is given with --password, or with --password-file")
        })
    }

    fn no_command(&self) -> Option<String> {
        let typed = crate::terminal::escaped(self.text(ContextKind::InvalidSubcommand)?.as_bytes());
        Some(match self.texts(ContextKind::SuggestedSubcommand) {
            [] => format!("{typed}: there is no such command; {}", self.see()),
            similar => {
                format!("{typed}: there is no such command; did you mean {}? Or {}", similar.join(" or "), self.see())
            }
        })
    }

    /// Of a command that has commands.
    fn missing_command(&self) -> Option<String> {
        let names: Vec<_> = (self.command.get_subcommands())
            .filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
            .map(clap::Command::get_name)
            .collect();
        let (last, others) = names.split_last()?;
        let one_of = if others.is_empty() { (*last).to_owned() } else { format!("{} or {last}", others.join(", ")) };
        Some(format!("{} needs a command: {one_of}; {}", self.called(), self.see()))
    }

    fn conflict(&self) -> Option<String> {
        let name = plain(self.text(ContextKind::InvalidArg)?);
        let others: Vec<_> = self.texts(ContextKind::PriorArg).iter().map(|name| plain(name)).collect();
        if others.is_empty() {
            return None;
        }
        Some(format!("{name} does not go with {}: leave one of them out", others.join(" and ")))
    }

    fn too_few_values(&self) -> Option<String> {
        let (name, arg) = self.argument()?;
        let arg = arg?;
        let number = arg.get_num_args().unwrap_or(ValueRange::SINGLE).min_values();
        let values = if number == 1 { "a value".to_owned() } else { format!("{number} values") };
        Some(format!("{name} needs {values}: {name} {}", value_names(arg).join(" ")))
    }

    fn too_many_values(&self) -> Option<String> {
        let (name, _) = self.argument()?;
        let value = crate::terminal::escaped(self.text(ContextKind::InvalidValue)?.as_bytes());
        Some(format!("{name} takes no value: leave out {value}"))
    }

    /// Of all else: its paragraphs in one line.
    fn as_clap_says_it(&self) -> String {
        let text = self.error.render().to_string();
        let usage = text.find("\nUsage:").or_else(|| text.find("\nFor more information")).unwrap_or(text.len());
        let paragraphs = text[..usage].trim_start_matches("error: ").split("\n\n").map(|paragraph| {
            let words: Vec<_> = paragraph.split_whitespace().collect();
            words.join(" ").trim_start_matches("tip: ").to_owned()
        });
        let said: Vec<_> = paragraphs.filter(|paragraph| !paragraph.is_empty()).collect();
        format!("{}; {}", said.join("; "), self.see())
    }
}

fn value_names(arg: &clap::Arg) -> Vec<&str> {
    arg.get_value_names().unwrap_or_default().iter().map(clap::builder::Str::as_str).collect()
}

/// The name of an argument as it is typed: `--debug` for `--debug <LEVEL>`, `ARCHIVE` for `<ARCHIVE>...`.
fn plain(name: &str) -> &str {
    if name.starts_with('-') {
        return name.split([' ', '=']).next().unwrap_or(name);
    }
    name.trim_end_matches("...").trim_matches(['<', '>', '[', ']'])
}
