//! Completions and the man page.

use std::io::{self, Write};

use crate::args::{Shell, command_in_short, usage_of};
use crate::exit::{self, Code, Failure};
use crate::terminal::output_failure;

/// A script for the shell, which asks `tarnfs __complete`.
pub(crate) fn completions(shell: Shell) -> Result<Code, Failure> {
    let script = match shell {
        Shell::Bash => include_str!("completions/tarnfs.bash"),
        Shell::Zsh => include_str!("completions/_tarnfs"),
        Shell::Fish => include_str!("completions/tarnfs.fish"),
    };
    write(script.as_bytes())
}

/// What the page of tarnfs begins with.
const DESCRIPTION: &str = r".SH DESCRIPTION
.B tarnfs
mounts archives and compressed files as folders that can only be read. Any file in one opens at once, at any offset,
without unpacking: an archive is read once, from its start to its end, and what was found is kept in an index beside it.
The next mount takes that. Archives that have a directory of their own, such as zip, need no index.
.PP
Several archives and folders are laid over each other, the last one on top. Without a
.I MOUNTPOINT
a folder is made that is named after the first archive, and removed when it is unmounted. The program goes to the
background unless it is told to stay
.RB ( \-f ).
.PP
Archives are data of others: nothing in them is believed before it is checked, and nothing in them is changed.
What is damaged is said, and the rest is shown.
";

/// Behind the options of the page of tarnfs: title and text in the language of man(7).
const SECTIONS: &str = r".SH EXAMPLES
.TP
.B tarnfs backup.tar.gz
mounts the archive at ./backup
.TP
.B tarnfs \-u backup
unmounts it
.TP
.B tarnfs monday.tar tuesday.tar.gz mnt
mounts two archives at mnt, the second over the first
.TP
.B tarnfs ls \-lR backup.tar.gz home/me
lists a folder in the archive, without a mount
.TP
.B tarnfs cat backup.tar.gz home/me/notes.txt
writes a file of the archive to standard output
.TP
.B tarnfs extract \-C folder backup.tar.gz home/me
extracts a folder of the archive to folder/home/me
.SH FILES
.TP
.I ARCHIVE.tarnfs.sqlite
the index of an archive
.TP
.I ARCHIVE.index.sqlite
an index that ratarmount wrote
.TP
.I ~/.cache/tarnfs
indexes of archives whose folder cannot be written
.TP
.I ~/.cache/tarnfs/decoded
decoded pieces of archives that are slow to decode
.TP
.I MOUNTPOINT/.ratarmount\-control
takes commands, with \-\-control\-interface
.SH ENVIRONMENT
.TP
.B XDG_CACHE_HOME
the folder in which the folder tarnfs is, instead of ~/.cache
.TP
.B TMPDIR
the folder of temporary files; else /var/tmp
.TP
.B FUSERMOUNT_PATH
the program that mounts for people who are not root, instead of fusermount3 in PATH
.TP
.B NO_COLOR
no colours, whatever it is set to
.TP
.B TZ
the time zone in which times are shown
";

/// The page of tarnfs, or that of one of its commands: `tarnfs-ls(1)`.
pub(crate) fn man(of: &[String]) -> Result<Code, Failure> {
    // Else those that `-h` leaves out would have no text.
    let with_all = |command: clap::Command| command.mut_args(|argument| argument.hide_short_help(false));
    let root = with_all(command_in_short());
    let mut text = Vec::new();
    let rendered = match of {
        [] => page(&mut text, &root),
        [name, inner @ ..] => {
            let none = |name: &str, see: &str| {
                Failure::new(Code::Usage, format!("{name}: there is no such command; see {see} --help"))
            };
            let found = root.get_subcommands().find(|command| command.get_name() == name && !command.is_hide_set());
            let found = found.ok_or_else(|| none(name, "tarnfs"))?;
            // What a command has of its own is on its page.
            if let Some(inner) = inner.iter().find(|inner| found.find_subcommand(inner).is_none()) {
                return Err(none(inner, &format!("tarnfs {name}")));
            }
            page_of_command(&mut text, with_all(found.clone()).mut_subcommands(with_all))
        }
    };
    rendered.map_err(|error| output_failure(&error))?;
    write(&text)
}

fn page(text: &mut Vec<u8>, root: &clap::Command) -> io::Result<()> {
    let page = clap_mangen::Man::new(root.clone().about("mounts archives as a file system"));
    page.render_title(text)?;
    page.render_name_section(text)?;
    writeln!(text, ".SH SYNOPSIS")?;
    for line in ["[OPTIONS] ARCHIVE... [MOUNTPOINT]", "\\-u MOUNTPOINT...", "COMMAND ..."] {
        writeln!(text, ".B tarnfs\n{line}\n.br")?;
    }
    text.extend(DESCRIPTION.bytes());
    writeln!(text, ".SH COMMANDS\nEach has a page of its own, such as tarnfs\\-ls(1).")?;
    let commands = || root.get_subcommands().filter(|command| !command.is_hide_set());
    for command in commands() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        writeln!(text, ".TP\n.B {}\n{}", command.get_name(), about.replace('-', "\\-"))?;
    }
    page.render_options_section(text)?;
    text.extend(SECTIONS.bytes());
    exit_status(text)?;
    let others = commands().map(|command| format!("tarnfs\\-{}(1)", command.get_name()));
    let others: Vec<_> = others.chain(["fusermount3(1)", "mount(8)", "tar(1)"].map(str::to_owned)).collect();
    writeln!(text, ".SH SEE ALSO\n{}", others.join(", "))
}

fn page_of_command(text: &mut Vec<u8>, command: clap::Command) -> io::Result<()> {
    let name = format!("tarnfs-{}", command.get_name());
    let (called, usage) = (format!("tarnfs {}", command.get_name()), usage_of(&command));
    let shown = command.get_subcommands().filter(|inner| inner.get_name() != "help" && !inner.is_hide_set());
    let inner: Vec<_> = shown.cloned().collect();
    // What is said behind the options has a place of its own.
    let shared = command.get_after_help().map(ToString::to_string);
    let page = clap_mangen::Man::new(command.after_help("").bin_name(&called).display_name(name));
    page.render_title(text)?;
    page.render_name_section(text)?;
    let arguments = usage.strip_prefix(&called).unwrap_or_default().trim_start();
    writeln!(text, ".SH SYNOPSIS\n.B {called}\n{arguments}")?;
    page.render_description_section(text)?;
    page.render_options_section(text)?;
    for inner in inner {
        writeln!(text, ".SH {}", inner.get_name().to_uppercase())?;
        let about = inner.get_long_about().or(inner.get_about()).map(ToString::to_string).unwrap_or_default();
        writeln!(text, ".B {called} {}\n[OPTIONS]\n.PP\n{}", inner.get_name(), about.replace('-', "\\-"))?;
        let mut options = Vec::new();
        clap_mangen::Man::new(inner).render_options_section(&mut options)?;
        // These are sections of this one.
        text.extend(String::from_utf8_lossy(&options).replace(".SH OPTIONS\n", "").replace(".SH ", ".SS ").bytes());
    }
    if let Some(shared) = shared {
        writeln!(text, ".PP\n{}", shared.replace("`tarnfs --help`", "tarnfs(1)").replace('-', "\\-"))?;
    }
    exit_status(text)?;
    writeln!(text, ".SH SEE ALSO\ntarnfs(1)")
}

fn exit_status(text: &mut Vec<u8>) -> io::Result<()> {
    let (heading, table) = exit::TABLE.split_once(":\n").unwrap_or_default();
    write!(text, ".SH {}\n.nf\n{table}\n.fi\n", heading.to_uppercase())
}

fn write(text: &[u8]) -> Result<Code, Failure> {
    io::stdout().write_all(text).map_err(|error| output_failure(&error))?;
    Ok(Code::Success)
}
