//! Everything that people read: messages, and names out of archives, which may hold anything.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tarnfs_format::name::steers_a_terminal;

use crate::exit::{Code, Failure};
use crate::inside::GIVE_A_PASSWORD;
use crate::{hide, logging};

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
    if failure.code == Code::Interrupted {
        INTERRUPTED.store(true, Ordering::Relaxed);
    }
    let (start, end) = if colour.is_on() { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
    let message = with_how_to_ask(harmless(failure));
    logging::print(format!("{start}tarnfs: {message}{end}\n"));
}

/// What is said where a password helps, and at a terminal how it is asked for.
pub(crate) fn with_how_to_ask(message: String) -> String {
    if message.ends_with(GIVE_A_PASSWORD) && io::stdin().is_terminal() {
        return message + "; `--password-file -` asks for it";
    }
    message
}

/// True once it was said that a signal has ended the command.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Says that a signal ends the command, and `more`, unless it has said so itself. Whoever is to read that is not waited
/// for long.
pub(crate) fn say_interrupted(more: Option<&str>) {
    const PATIENCE: Duration = Duration::from_millis(200);
    if INTERRUPTED.swap(true, Ordering::Relaxed) {
        return;
    }
    // On a terminal there may be a progress bar.
    let start = if is_told() { "\r\x1b[2K" } else { "" };
    let more = more.map_or_else(String::new, |more| format!("; {}", harmless(more)));
    let (done, is_done) = mpsc::sync_channel(1);
    let say = move || {
        logging::print(format!("{start}tarnfs: interrupted{more}\n"));
        let _ = done.send(());
    };
    if thread::Builder::new().name("interrupted".into()).spawn(say).is_ok() {
        let _ = is_done.recv_timeout(PATIENCE);
    }
}

/// True if there is a person whom [`tell`] tells something.
pub(crate) fn is_told() -> bool {
    io::stderr().is_terminal()
}

/// Tells a person at a terminal what was done. Scripts are told nothing.
pub(crate) fn tell(message: &str) {
    if is_told() {
        say(message);
    }
}

/// The same, where it is known that there is somebody.
pub(crate) fn say(message: &str) {
    logging::print(format!("tarnfs: {}\n", harmless(message)));
}

/// A whole message, after whatever its parts were made of: only its line ends and tabs are left of what steers a
/// terminal. Names in it should have been [`escaped`] before, so that they cannot end a line either.
pub(crate) fn harmless(message: impl Display) -> String {
    let mut shown = String::new();
    for character in without_numbers(&hide::without_secrets(message.to_string())).chars() {
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

/// Columns of the terminal that standard output goes to, if it is one.
pub(crate) fn width() -> Option<usize> {
    let columns = rustix::termios::tcgetwinsize(io::stdout()).ok()?.ws_col;
    // One that does not know is as wide as most were made.
    Some(if columns == 0 { 80 } else { columns.into() })
}

/// A name as it can be shown on a terminal, and typed into a shell again (bash, zsh, ksh) where it has something that
/// cannot be shown: `$'b\344r'`. (Of `\x` some shells take more than two digits; of octal ones, all take three.)
fn typed(name: &[u8]) -> String {
    let shown = escaped(name);
    if shown.as_bytes() == name {
        return shown;
    }
    let mut typed = "$'".to_owned();
    let bytes = |typed: &mut String, bytes: &[u8]| typed.extend(bytes.iter().map(|byte| format!("\\{byte:03o}")));
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' | '\'' | '\n' | '\t' | '\r' => typed.extend(character.escape_default()),
                _ if steers_a_terminal(character) => bytes(&mut typed, character.encode_utf8(&mut [0; 4]).as_bytes()),
                _ => typed.push(character),
            }
        }
        bytes(&mut typed, chunk.invalid());
    }
    typed + "'"
}

/// A name as it can be shown safely: control characters and what is not UTF-8 are escaped.
pub(crate) fn escaped(name: &[u8]) -> String {
    tarnfs_format::name::escape(name).to_string()
}

/// Standard output for names: escaped on a terminal, raw bytes in a pipe.
pub(crate) struct Output {
    out: Target,
    is_terminal: bool,
}

/// Where it goes.
enum Target {
    Stdout(io::BufWriter<io::StdoutLock<'static>>),
    /// To be written to standard output later.
    Memory(Vec<u8>),
}

impl Output {
    pub(crate) fn new() -> Self {
        let stdout = io::stdout();
        let is_terminal = stdout.is_terminal();
        Self { out: Target::Stdout(io::BufWriter::with_capacity(64 << 10, stdout.lock())), is_terminal }
    }

    /// Bytes for standard output, which is a terminal or not.
    pub(crate) fn in_memory(is_terminal: bool) -> Self {
        Self { out: Target::Memory(Vec::new()), is_terminal }
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// What is in memory.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        match &mut self.out {
            Target::Memory(bytes) => std::mem::take(bytes),
            Target::Stdout(_) => Vec::new(),
        }
    }

    /// Bytes that are in memory.
    pub(crate) fn len(&self) -> usize {
        match &self.out {
            Target::Memory(bytes) => bytes.len(),
            Target::Stdout(_) => 0,
        }
    }

    /// Writes a name from an archive.
    pub(crate) fn name(&mut self, name: &[u8]) -> io::Result<()> {
        if self.is_terminal { self.write_all(typed(name).as_bytes()) } else { self.write_all(name) }
    }

    /// Writes a name into a line that has more in it: line ends are escaped in a pipe, too.
    pub(crate) fn name_in_line(&mut self, name: &[u8]) -> io::Result<()> {
        let is_raw = !self.is_terminal && name.contains(&b'\n');
        if is_raw { self.write_all(escaped(name).as_bytes()) } else { self.name(name) }
    }

    /// Writes a line of JSON. On a terminal what would steer it is written as JSON's own `\u009b`.
    pub(crate) fn json(&mut self, value: &serde_json::Value) -> io::Result<()> {
        let line = value.to_string();
        let line = if self.is_terminal { harmless_json(&line) } else { line };
        writeln!(self, "{line}")
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.out {
            Target::Stdout(out) => out.write(bytes),
            Target::Memory(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.out {
            Target::Stdout(out) => out.flush(),
            Target::Memory(_) => Ok(()),
        }
    }
}

/// The same JSON without characters that steer a terminal: there are some only in strings.
fn harmless_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for character in json.chars() {
        if steers_a_terminal(character) {
            let units = &mut [0; 2];
            shown.extend(character.encode_utf16(units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            shown.push(character);
        }
    }
    shown
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
    fn json_cannot_steer_a_terminal_and_says_the_same() {
        let value = serde_json::json!({ "path": "a\u{9b}31m\u{202e}\u{7f}\u{1b}\nä\u{1f4be}\u{e0001}" });
        let shown = harmless_json(&value.to_string());
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        assert!(!shown.chars().any(steers_a_terminal) && shown.contains("\\u009b31m\\u202e"), "{shown}");
    }

    #[test]
    fn a_name_can_be_typed_again() {
        for (name, shown) in [
            (&b"plain name"[..], "plain name"),
            ("tsch\u{fc}\u{df}".as_bytes(), "tsch\u{fc}\u{df}"),
            (b"it's", "it's"),
            (b"b\xe4a0", "$'b\\344a0'"),
            (b"it's\n\\\x1b31m", "$'it\\'s\\n\\\\\\03331m'"),
            ("a\u{202e}b".as_bytes(), "$'a\\342\\200\\256b'"),
        ] {
            assert_eq!(typed(name), shown);
        }
    }

    #[test]
    fn a_message_cannot_steer_a_terminal() {
        assert_eq!(harmless("a\x1b[31m\u{9b}b\u{202e}\r\n\tä\\"), "a\\u{1b}[31m\\u{9b}b\\u{202e}\\u{d}\n\tä\\");
        assert_eq!(harmless("plain"), "plain");
        assert_eq!(harmless(io::Error::from_raw_os_error(2)), "No such file or directory");
        assert_eq!(harmless("a (os error 17), b (os error 1): c (os error x)"), "a, b: c (os error x)");
    }
}
