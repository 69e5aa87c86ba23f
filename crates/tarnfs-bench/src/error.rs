//! Why a comparison could not be made.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::measure::Reason;
use crate::report::escaped;

/// Why a comparison could not be made. A program that fails is no such error: it is told in the report.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Somebody wants it to end.
    Cancelled,
    /// What was asked for makes no sense, in one sentence.
    Usage(String),
    /// An archive cannot be measured, in one sentence, with the exit code that `tarnfs` has for it.
    Archive {
        /// The code.
        code: u8,
        /// The sentence.
        what: String,
    },
    /// Something with a file or folder.
    Io(PathBuf, io::Error),
    /// Something else, in one sentence.
    Other(String),
}

impl Error {
    /// For `map_err`: what happened to `path`.
    pub fn at(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        move |error| match error.kind() {
            io::ErrorKind::Interrupted => Self::Cancelled,
            _ => Self::Io(path.as_ref().to_owned(), error),
        }
    }

    /// For `map_err`: the archive at `path` cannot be opened.
    pub(crate) fn opening(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        const CANNOT_OPEN: u8 = 3;
        move |error| {
            if error.kind() == io::ErrorKind::Interrupted {
                return Self::Cancelled;
            }
            let path = escaped(&path.as_ref().to_string_lossy());
            Self::Archive { code: CANNOT_OPEN, what: format!("{path}: cannot be opened: {error}") }
        }
    }

    /// What the tarnfs that is measured says of the archive called `name`, which it cannot mount, index or list, or
    /// which is damaged.
    pub(crate) fn of_archive(name: &str, reason: Reason) -> Self {
        const DAMAGED: i32 = 5;
        match reason {
            Reason::Cancelled => Self::Cancelled,
            Reason::Exit { code: code @ 3..=DAMAGED, words } => {
                let words = words.strip_prefix("tarnfs: ").unwrap_or(&words);
                let words = words.strip_prefix("warning: ").unwrap_or(words);
                let damaged = if code == DAMAGED { "is damaged, so it is not measured: " } else { "" };
                Self::Archive { code: code as u8, what: format!("{name}: {damaged}{}", without_path(words, name)) }
            }
            _ => Self::Other(format!("{name}: cannot be measured: {reason}")),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled => f.write_str("interrupted"),
            Self::Usage(what) | Self::Other(what) | Self::Archive { what, .. } => f.write_str(what),
            Self::Io(path, error) => write!(f, "{}: {error}", escaped(&path.to_string_lossy())),
        }
    }
}

impl std::error::Error for Error {}

/// What is said in `words` of a file called `name`, without its path in front.
fn without_path<'a>(words: &'a str, name: &str) -> &'a str {
    let is_it = |path: &str| path == name || path.ends_with(&format!("/{name}"));
    words.split_once(": ").filter(|(path, _)| is_it(path)).map_or(words, |(_, rest)| rest)
}
