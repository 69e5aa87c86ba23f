//! Everything that people read: messages, and names out of archives, which may hold anything.

#![allow(clippy::print_stderr)] // The one place that writes to it.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use tarnfs_format::name::steers_a_terminal;

use crate::exit::{Code, Failure};

/// When colours are used on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Colour {
    #[default]
    IfTerminal,
    Always,
    Never,
}

impl Colour {
    pub(crate) fn is_on(self) -> bool {
        match self {
            Self::IfTerminal => io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// Says why the command failed.
pub(crate) fn report(failure: &Failure, colour: Colour) {
    if failure.message.is_empty() {
        return;
    }
    let (start, end) = if colour.is_on() { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
    // With standard error closed there is nobody to tell.
    let _ = writeln!(io::stderr(), "{start}tarnfs: {}{end}", harmless(failure));
}

/// Tells a person at a terminal what was done. Scripts are told nothing.
pub(crate) fn tell(message: &str) {
    if io::stderr().is_terminal() {
        // With standard error closed there is nobody to tell.
        let _ = writeln!(io::stderr(), "tarnfs: {}", harmless(message));
    }
}

/// A whole message, after whatever its parts were made of: only its line ends and tabs are left of what steers a
/// terminal. Names in it should have been [`escaped`] before, so that they cannot end a line either.
pub(crate) fn harmless(message: impl Display) -> String {
    let mut shown = String::new();
    for character in without_numbers(&message.to_string()).chars() {
        match character {
            '\n' | '\t' => shown.push(character),
            _ if steers_a_terminal(character) => shown.extend(character.escape_unicode()),
            _ => shown.push(character),
        }
    }
    shown
}

/// `message` without the numbers that std puts behind the system's own words: `(os error 2)`.
fn without_numbers(message: &str) -> String {
    const NUMBER: &str = " (os error ";
    let mut shown = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(at) = rest.find(NUMBER) {
        let behind = &rest[at + NUMBER.len()..];
        let end = behind.find(|character: char| !character.is_ascii_digit()).unwrap_or(behind.len());
        let is_number = end > 0 && behind[end..].starts_with(')');
        shown.push_str(&rest[..at]);
        rest = if is_number { &behind[end + 1..] } else { behind };
        if !is_number {
            shown.push_str(NUMBER);
        }
    }
    shown + rest
}

/// A name as it can be shown safely: control characters and what is not UTF-8 are escaped.
pub(crate) fn escaped(name: &[u8]) -> String {
    tarnfs_format::name::escape(name).to_string()
}

/// Standard output for names: escaped on a terminal, raw bytes in a pipe.
pub(crate) struct Output {
    out: io::BufWriter<io::StdoutLock<'static>>,
    is_terminal: bool,
}

impl Output {
    pub(crate) fn new() -> Self {
        let stdout = io::stdout();
        let is_terminal = stdout.is_terminal();
        Self { out: io::BufWriter::with_capacity(64 << 10, stdout.lock()), is_terminal }
    }

    /// Writes a name from an archive.
    pub(crate) fn name(&mut self, name: &[u8]) -> io::Result<()> {
        if self.is_terminal { self.out.write_all(escaped(name).as_bytes()) } else { self.out.write_all(name) }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A failure to write to standard output. A reader that has seen enough (`| head`) is no failure worth a message.
pub(crate) fn output_failure(error: &io::Error) -> Failure {
    let message = if error.kind() == io::ErrorKind::BrokenPipe {
        String::new()
    } else {
        format!("cannot write to standard output: {error}")
    };
    Failure { is_of_output: true, ..Failure::new(Code::Failure, message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_cannot_steer_a_terminal() {
        assert_eq!(harmless("a\x1b[31m\u{9b}b\u{202e}\r\n\tä\\"), "a\\u{1b}[31m\\u{9b}b\\u{202e}\\u{d}\n\tä\\");
        assert_eq!(harmless("plain"), "plain");
        assert_eq!(harmless(io::Error::from_raw_os_error(2)), "No such file or directory");
        assert_eq!(harmless("a (os error 17), b (os error 1): c (os error x)"), "a, b: c (os error x)");
    }
}
