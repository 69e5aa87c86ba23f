//! Words of a command line, as a shell reads them back.

use std::ffi::{OsStr, OsString};
use std::fmt::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use tarnfs_format::name::steers_a_terminal;

/// Shows a word so that bash, zsh and others take it as it is, and that it can be shown on a terminal.
pub(super) struct Quoted<'a>(pub(super) &'a OsStr);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.as_bytes();
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-./,:+@%=".contains(byte);
        // `=word` is a command's path in zsh.
        if !bytes.is_empty() && bytes.iter().all(is_plain) && bytes[0] != b'=' {
            return formatter.write_str(&self.0.to_string_lossy());
        }
        match self.0.to_str().filter(|text| !text.chars().any(steers_a_terminal)) {
            Some(text) => write!(formatter, "'{}'", text.replace('\'', r"'\''")),
            None => in_dollars(bytes, formatter),
        }
    }
}

/// `$'...'`, where bytes can be written as numbers.
fn in_dollars(bytes: &[u8], formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    formatter.write_str("$'")?;
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\'' | '\\' => write!(formatter, "\\{character}")?,
                _ if steers_a_terminal(character) => {
                    // Three digits are never taken with those behind them.
                    let of_character = &mut [0; 4];
                    character
                        .encode_utf8(of_character)
                        .bytes()
                        .try_for_each(|byte| write!(formatter, "\\{byte:03o}"))?;
                }
                _ => formatter.write_char(character)?,
            }
        }
        chunk.invalid().iter().try_for_each(|byte| write!(formatter, "\\{byte:03o}"))?;
    }
    formatter.write_char('\'')
}

/// A path that is not taken for an option, or for standard input.
pub(super) fn as_path(path: &OsStr) -> OsString {
    if path.as_bytes().starts_with(b"-") {
        return OsString::from_vec([b"./", path.as_bytes()].concat());
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        let words: [&[u8]; 10] = [
            b"",
            b"plain/x.tar",
            b"two words",
            b"it's",
            b"$HOME `x` \\ \"q\" * ~",
            b"new\nline\ttab",
            b"\xff\xfe1",
            "ünï\u{202e}\u{9b}2".as_bytes(),
            b"both'\\\x1b7",
            b"=ls",
        ];
        for word in words {
            let quoted = Quoted(OsStr::from_bytes(word)).to_string();
            assert!(!quoted.chars().any(steers_a_terminal), "{quoted:?}");
            let script = format!("printf '%s' {quoted}");
            let said = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
            assert_eq!(said.stdout, word, "{quoted}");
        }
        assert_eq!(Quoted(OsStr::new("a/b-c.tar.gz")).to_string(), "a/b-c.tar.gz");
        assert_eq!((as_path(OsStr::new("-")), as_path(OsStr::new("a-b"))), ("./-".into(), "a-b".into()));
    }
}
