//! Why a comparison could not be made.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::report::escaped;

/// Why a comparison could not be made. A program that fails is no such error: it is told in the report.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Somebody wants it to end.
    Cancelled,
    /// What was asked for makes no sense, in one sentence.
    Usage(String),
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
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled => f.write_str("interrupted"),
            Self::Usage(what) | Self::Other(what) => f.write_str(what),
            Self::Io(path, error) => write!(f, "{}: {error}", escaped(&path.to_string_lossy())),
        }
    }
}

impl std::error::Error for Error {}
