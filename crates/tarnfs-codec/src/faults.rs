//! What codecs say of a compressed file that is damaged, cut, or more than they can read: the same words in all of
//! them. Bytes are those of the compressed file. Which file that is, those say who report the error.

use std::fmt::Display;
use std::io;

/// `what` is wrong at `byte`.
pub(crate) fn invalid(byte: u64, what: impl Display) -> io::Error {
    at(io::ErrorKind::InvalidData, byte, what)
}

/// `what` stands at `byte`, and cannot be read here.
pub(crate) fn unsupported(byte: u64, what: impl Display) -> io::Error {
    at(io::ErrorKind::Unsupported, byte, what)
}

/// The file ends at byte `end`, inside of something: "a block".
pub(crate) fn cut(end: u64, inside: &str) -> io::Error {
    let what = format!("the compressed file is cut short inside {inside}");
    at(io::ErrorKind::UnexpectedEof, end, what)
}

/// The same error once more: with the number of the system, where it has one.
pub(crate) fn again(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

fn at(kind: io::ErrorKind, byte: u64, what: impl Display) -> io::Error {
    io::Error::new(kind, format!("{what}, at byte {byte} of the compressed file"))
}
