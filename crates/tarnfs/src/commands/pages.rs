//! Completions and the man page.

use std::io::{self, Write};

use crate::args::{Shell, command};
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

/// The page of the command, and one section for each of its commands.
pub(crate) fn man() -> Result<Code, Failure> {
    let command = command();
    let mut text = Vec::new();
    let page = clap_mangen::Man::new(command.clone());
    let rendered = page.render_title(&mut text).and_then(|()| {
        page.render_name_section(&mut text)?;
        page.render_synopsis_section(&mut text)?;
        page.render_description_section(&mut text)?;
        page.render_options_section(&mut text)?;
        for subcommand in command.get_subcommands().filter(|command| !command.is_hide_set()) {
            writeln!(text, ".SH TARNFS {}", subcommand.get_name().to_uppercase())?;
            let page = clap_mangen::Man::new(subcommand.clone());
            page.render_description_section(&mut text)?;
            page.render_synopsis_section(&mut text)?;
            page.render_options_section(&mut text)?;
        }
        let (heading, table) = exit::TABLE.split_once(":\n").unwrap_or_default();
        write!(text, ".SH {}\n.nf\n{table}\n.fi\n", heading.to_uppercase())?;
        page.render_version_section(&mut text)
    });
    rendered.map_err(|error| output_failure(&error))?;
    write(&text)
}

fn write(text: &[u8]) -> Result<Code, Failure> {
    io::stdout().write_all(text).map_err(|error| output_failure(&error))?;
    Ok(Code::Success)
}
