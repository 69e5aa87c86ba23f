//! Passwords: from the command line, from a file, or asked for.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tarnfs_tree::open::Passwords;

use super::shown;
use crate::exit::{Code, Failure};

/// Bytes of a file of passwords at most.
const MOST: u64 = 1 << 20;

/// All of them, those that were typed first.
pub(super) fn passwords(typed: &[OsString], file: Option<&Path>) -> Result<Passwords, Failure> {
    let mut passwords = Passwords::default();
    for password in typed {
        passwords.add(password.as_bytes().to_vec());
    }
    let Some(file) = file else { return Ok(passwords) };
    let failed = |what: String| {
        let text = format!("--password-file {}: {what}", shown(file.as_os_str()));
        Failure::new(Code::Usage, text)
    };
    let read = if file == Path::new("-") { from_standard_input() } else { File::open(file).and_then(lines_of) };
    let text = read.map_err(|error| failed(format!("cannot be read: {error}")))?;
    if text.len() as u64 > MOST {
        return Err(failed(format!("has more than {} MiB, which is the limit", MOST >> 20)));
    }
    for line in text.split(|&byte| byte == b'\n') {
        passwords.add(line.strip_suffix(b"\r").unwrap_or(line).to_vec());
    }
    Ok(passwords)
}

fn lines_of(source: impl Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    source.take(MOST + 1).read_to_end(&mut text)?;
    Ok(text)
}

/// One line from a terminal that does not show it, else all that comes.
fn from_standard_input() -> io::Result<Vec<u8>> {
    let input = io::stdin();
    if !input.is_terminal() {
        return lines_of(input.lock());
    }
    write!(io::stderr(), "Password: ")?;
    let before = tcgetattr(&input)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&input, OptionalActions::Flush, &silent)?;
    let echo = Echo(before);
    let mut line = String::new();
    let read = input.read_line(&mut line);
    drop(echo);
    writeln!(io::stderr())?;
    read.map(|_| line.trim_end_matches('\n').as_bytes().to_vec())
}

/// Lets the terminal show again what is typed.
struct Echo(Termios);

impl Drop for Echo {
    fn drop(&mut self) {
        // A terminal that is gone shows nothing.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}
