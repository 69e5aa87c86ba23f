//! How the command ends: documented in the man page and README, so scripts may rely on it.

use std::fmt;
use std::process::ExitCode;

/// Exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Code {
    /// All went well.
    Success = 0,
    /// Something else failed: a path that is not in the archive, output that cannot be written.
    Failure = 1,
    /// The command line means nothing.
    Usage = 2,
    /// The archive cannot be opened or read, or encrypted files in it cannot be checked.
    CannotOpen = 3,
    /// The file is no archive.
    NotAnArchive = 4,
    /// The archive is damaged; what is whole was served.
    Damaged = 5,
    /// The archive is fine, but it cannot be mounted there.
    CannotMount = 6,
    /// There is no index that can be used, or none can be written.
    Index = 7,
    /// Ctrl-C.
    Interrupted = 130,
}

/// The table for the help and the man page.
pub(crate) const TABLE: &str = "\
Exit status:
  0    all went well
  1    something else failed, for example a path is not in the archive;
       or `compare` has found a difference
  2    the command line is wrong
  3    the archive cannot be opened or read: also for want of a password
  4    the file is not an archive
  5    the archive is damaged; what is whole is served (and mounted)
  6    the archive cannot be mounted there
  7    no index can be used or written
  130  interrupted";

impl Code {
    /// The code of that number; [`Code::Failure`] if there is none.
    pub(crate) fn from_number(number: u8) -> Self {
        const ALL: [Code; 9] = [
            Code::Success,
            Code::Failure,
            Code::Usage,
            Code::CannotOpen,
            Code::NotAnArchive,
            Code::Damaged,
            Code::CannotMount,
            Code::Index,
            Code::Interrupted,
        ];
        ALL.into_iter().find(|&code| code as u8 == number).unwrap_or(Self::Failure)
    }
}

impl Code {
    /// What mount(8) expects of its helpers: 0, also where a damaged archive is mounted, or 32.
    pub(crate) fn of_mount_helper(self) -> ExitCode {
        const MOUNT_FAILED: u8 = 32;
        match self {
            Self::Success | Self::Damaged => ExitCode::SUCCESS,
            _ => MOUNT_FAILED.into(),
        }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

/// Why the command failed: one sentence for people, and the code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
    /// Standard output takes no more: whatever else there is to do, nobody will see it.
    pub(crate) is_of_output: bool,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), is_of_output: false }
    }

    /// Nobody reads what is written any more, as behind `| head`.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        self.is_of_output && self.message.is_empty()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
