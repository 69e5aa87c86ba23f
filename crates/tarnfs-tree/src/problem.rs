use std::fmt;
use std::io;
use std::path::PathBuf;

use tarnfs_source::Setting;

use crate::open::is_bad_block;

/// What kept an archive from being opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Problem {
    /// The file cannot be opened.
    CannotOpen(io::Error),
    /// It is no archive and no compressed file that tarnfs knows.
    NotAnArchive,
    /// It is nothing that tarnfs knows, and not what its name says either.
    Misnamed {
        /// What the suffix of its name stands for: "gzip".
        says: &'static str,
        /// Its first bytes.
        start: Vec<u8>,
    },
    /// It is of a format that is known, but nothing of it can be read.
    Unreadable {
        /// The format's name.
        format: &'static str,
        /// Why not.
        reason: String,
    },
    /// It is something else that people keep files in: "a ZIP archive".
    Foreign(&'static str),
    /// All of it is encrypted, with this: "age".
    Encrypted(&'static str),
    /// There is no such file, and what was given is a URL.
    Url {
        /// It names a file of this machine.
        is_local: bool,
    },
    /// One of the files that it was split over is not there.
    MissingPart(PathBuf),
    /// It is one of several parts, or was put together from some, and perhaps not from all.
    OfParts {
        /// What kept it from being opened.
        problem: Box<Self>,
        /// A part that is not there.
        next: PathBuf,
    },
    /// The file has no bytes.
    Empty,
    /// It begins with zeros, has no header, and nothing says that it is an empty tar archive.
    OnlyZeros {
        /// It is as small as one.
        may_be_empty: bool,
    },
    /// Reading it failed at this byte of the stream that was being read.
    Read {
        /// Byte of the stream.
        offset: u64,
        /// What the source said.
        error: io::Error,
    },
    /// No index belongs to it, and none may be made.
    NoIndex(String),
    /// An index that was asked for cannot be written; why.
    Unwritten(String),
    /// The index cannot be read or written.
    Index(tarnfs_index::Error),
    /// An option has a value that means nothing.
    Option(String),
    /// It was asked to stop.
    Cancelled,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CannotOpen(error) => write!(f, "cannot be opened: {error}"),
            Self::NotAnArchive => {
                write!(f, "is not an archive that tarnfs knows; {} lists those that it does", Setting::Formats)
            }
            Self::Misnamed { says, start } => {
                write!(f, "is not an archive that tarnfs knows: its name says {says}, but it starts with ")?;
                if start.iter().all(|byte| matches!(byte, b' '..=b'~')) {
                    write!(f, "\"{}\"", String::from_utf8_lossy(start))?;
                } else {
                    let bytes: Vec<_> = start.iter().map(|byte| format!("{byte:02x}")).collect();
                    write!(f, "the bytes {}", bytes.join(" "))?;
                }
                f.write_str("; it may be damaged or encrypted")
            }
            Self::Empty => f.write_str("is empty: a file of 0 bytes is no archive; its writing may have failed"),
            Self::MissingPart(path) if path.is_symlink() => {
                let path = path.display();
                write!(f, "is a part of an archive that was split; {path} is a symbolic link, which is not followed")
            }
            Self::MissingPart(path) => {
                write!(f, "is a part of an archive that was split, and another part is missing: {}", path.display())
            }
            Self::OfParts { problem, next } if next.is_symlink() => {
                write!(f, "{problem}. {} is a symbolic link, which is not followed", next.display())
            }
            Self::OfParts { problem, next } => {
                write!(f, "{problem}. Is a part of it missing? {} is not there", next.display())
            }
            Self::Unreadable { format, reason } => write!(f, "cannot be read as {format}: {reason}"),
            Self::Foreign(what) => write!(f, "is {what}, which tarnfs cannot read yet"),
            Self::Encrypted(program) => write!(f, "is encrypted with {program}: decrypt it first"),
            Self::Url { is_local: false } => f.write_str(
                "is a URL of a kind that cannot be opened yet (http://, https://, s3://, webdav://, sftp:// and others can): download it first",
            ),
            Self::Url { is_local: true } => f.write_str("is a URL; give the path of the file"),
            Self::OnlyZeros { may_be_empty } => {
                f.write_str("is not an archive that tarnfs knows: it begins with zero bytes")?;
                if *may_be_empty {
                    f.write_str(". An empty tar archive looks so as well; if it is one, let its name end in .tar")?;
                }
                Ok(())
            }
            // What is said of the archive itself says enough.
            Self::Read { error, .. } if is_of_format(error) => write!(f, "{error}"),
            Self::Read { offset, error } if is_bad_block(error) => write!(
                f,
                "reading at byte {offset} failed: {error}. If a block of the disk is bad, {} serves what comes \
                 before it, and ddrescue copies all that can be read",
                Setting::Force
            ),
            Self::Read { offset, error } => write!(f, "reading at byte {offset} failed: {error}"),
            Self::NoIndex(reason) => {
                let setting = Setting::NoRecreateIndex;
                write!(f, "has no index that can be used ({reason}), and {setting} forbids making one")
            }
            Self::Unwritten(why) => f.write_str(why),
            Self::Index(error) => write!(f, "index: {error}"),
            Self::Option(text) => f.write_str(text),
            Self::Cancelled => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for Problem {}

impl Problem {
    /// True if a password is missing, or none that is given opens the archive's directory.
    pub fn is_for_want_of_a_password(&self) -> bool {
        match self {
            // What the system refuses has a number.
            Self::Read { error, .. } => {
                error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none()
            }
            Self::OfParts { problem, .. } => problem.is_for_want_of_a_password(),
            _ => false,
        }
    }
}

/// True if nothing went wrong with reading, but the format or the password says that there is no more to read.
fn is_of_format(error: &io::Error) -> bool {
    error.get_ref().is_some() && matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::UnexpectedEof)
}

impl From<tarnfs_index::Error> for Problem {
    fn from(error: tarnfs_index::Error) -> Self {
        match error {
            tarnfs_index::Error::Io(error) if error.kind() == io::ErrorKind::Interrupted => Self::Cancelled,
            error => Self::Index(error),
        }
    }
}
