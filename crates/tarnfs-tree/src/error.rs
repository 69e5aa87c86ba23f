use std::io;

/// Why a tree cannot answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such name or node.
    #[error("no such file or folder")]
    NotFound,
    /// Something inside was asked for of what is not a folder.
    #[error("not a folder")]
    NotAFolder,
    /// The content of a folder was asked for.
    #[error("is a folder")]
    IsAFolder,
    /// Asked of what has no such thing: the target of what is no symbolic link, the content of a device.
    #[error("not possible for this kind of file")]
    WrongKind,
    /// Something was to be changed that is for reading only.
    #[error("can only be read")]
    ReadOnly,
    /// A path goes through more symbolic links than the kernel itself would follow.
    #[error("too many levels of symbolic links")]
    TooManyLinks,
    /// The index cannot be believed any more.
    #[error("index: {0}")]
    Index(#[from] tarnfs_index::Error),
    /// Reading failed; its kind says how ([`tarnfs_source::Source`]).
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What a system call said of a file or folder.
impl From<rustix::io::Errno> for Error {
    fn from(error: rustix::io::Errno) -> Self {
        match error {
            rustix::io::Errno::NOENT => Self::NotFound,
            rustix::io::Errno::NOTDIR => Self::NotAFolder,
            rustix::io::Errno::ROFS => Self::ReadOnly,
            error => Self::Io(error.into()),
        }
    }
}

impl Error {
    /// The error number that a program gets to see, as the system calls define them.
    pub fn errno(&self) -> rustix::io::Errno {
        use rustix::io::Errno;
        match self {
            Self::NotFound => Errno::NOENT,
            Self::NotAFolder => Errno::NOTDIR,
            Self::IsAFolder => Errno::ISDIR,
            Self::WrongKind => Errno::INVAL,
            Self::ReadOnly => Errno::ROFS,
            Self::TooManyLinks => Errno::LOOP,
            Self::Index(tarnfs_index::Error::Stale(_)) => Errno::STALE,
            Self::Index(tarnfs_index::Error::Io(error)) | Self::Io(error) => match error.kind() {
                io::ErrorKind::StaleNetworkFileHandle => Errno::STALE,
                io::ErrorKind::Interrupted => Errno::INTR,
                io::ErrorKind::TimedOut => Errno::TIMEDOUT,
                io::ErrorKind::OutOfMemory => Errno::NOMEM,
                // Damaged or cut data is an I/O error to whoever reads it.
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Errno::IO,
                _ => Errno::from_io_error(error).unwrap_or(Errno::IO),
            },
            Self::Index(_) => Errno::IO,
        }
    }
}
