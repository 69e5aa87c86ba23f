//! What becomes of what is there already. Nothing is lost that nobody has agreed to lose.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, Stat, Timestamps, UTIME_OMIT, fstat, futimens, readlinkat, unlinkat};
use rustix::io::Errno;
use rustix::time::{ClockId, Timespec, clock_gettime};
use tarnfs_tree::Time;

use super::destination::{Destination, stat};
use super::folding::{Listed, folded};
use super::plan::{Item, What};
use crate::args::Extract;
use crate::terminal::escaped;

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Existing {
    pub(super) policy: Policy,
    /// What is as it is stored is what an earlier call has made.
    pub(super) resumes: bool,
    /// When this call began, if several files of the archive may have one name: what was made since is of another one.
    since: Option<Timespec>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    Refuse,
    Overwrite,
    Skip,
    KeepNewer,
}

/// What to do about one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// Nothing is there.
    Make,
    /// What is there is replaced.
    Replace,
    /// What is there stays, as was asked for.
    Leave,
    /// It is a symbolic link that an earlier call has made, and perhaps not given its time.
    GiveTime,
    /// It is there, and nobody has said what to do. In words.
    Refuse(String),
}

impl Existing {
    pub(super) fn of(arguments: &Extract) -> Self {
        let policy = match arguments {
            Extract { overwrite: true, .. } => Policy::Overwrite,
            Extract { skip_old: true, .. } => Policy::Skip,
            Extract { keep_newer: true, .. } => Policy::KeepNewer,
            _ => Policy::Refuse,
        };
        let since = (arguments.strip_components > 0).then(|| clock_gettime(ClockId::RealtimeCoarse));
        Self { policy, resumes: arguments.resume, since }
    }

    /// True if what is there may stay: then it is looked at before anything is read for it.
    pub(super) fn may_leave(self) -> bool {
        self.resumes || matches!(self.policy, Policy::Skip | Policy::KeepNewer)
    }

    /// What to do about `item`, which is to be in `folder`. `target`: that of a symbolic link.
    pub(super) fn decide(
        self,
        folder: BorrowedFd<'_>,
        item: &Item,
        target: &[u8],
        destination: &Destination,
    ) -> io::Result<Decision> {
        let Some(there) = stat(folder, &item.name)? else { return Ok(Decision::Make) };
        if let Some(refused) = refuse_folded(folder, &item.name, &destination.listed)? {
            return Ok(Decision::Refuse(refused));
        }
        // Nothing is lost where a link would be replaced by the same.
        let is_of_earlier =
            self.since.is_none_or(|since| (there.st_ctime, there.st_ctime_nsec as i64) < (since.tv_sec, since.tv_nsec));
        let resumes = self.resumes && is_of_earlier;
        if (resumes || item.kind == What::Symlink) && is_as_stored(destination, folder, item, &there, target) {
            let is_complete = !resumes || item.kind != What::Symlink || time_of(&there) == item.mtime;
            return Ok(if is_complete { Decision::Leave } else { Decision::GiveTime });
        }
        let is_folder = FileType::from_raw_mode(there.st_mode).is_dir();
        match self.policy {
            Policy::Skip => Ok(Decision::Leave),
            Policy::KeepNewer if !is_folder && time_of(&there) > item.mtime => Ok(Decision::Leave),
            Policy::Overwrite | Policy::KeepNewer if is_folder => {
                match unlinkat(folder, item.name.as_slice(), AtFlags::REMOVEDIR) {
                    Ok(()) => Ok(Decision::Make),
                    Err(Errno::NOTEMPTY | Errno::EXIST) => {
                        Ok(Decision::Refuse("a folder is there that is not empty; it stays".to_owned()))
                    }
                    Err(error) => Ok(Decision::Refuse(format!("a folder is there: {}", io::Error::from(error)))),
                }
            }
            Policy::Overwrite | Policy::KeepNewer => Ok(Decision::Replace),
            Policy::Refuse if self.resumes => {
                let what = "is there, and is not what the archive has; --overwrite replaces it, --skip-old leaves it";
                Ok(Decision::Refuse(what.to_owned()))
            }
            Policy::Refuse => Ok(Decision::Refuse(
                "is there already; --overwrite replaces it, --skip-old leaves it, --resume leaves what is as in the archive"
                    .to_owned(),
            )),
        }
    }
}

/// Words for what cannot be there beside another name, since the file system takes both for the same.
pub(super) fn refuse_folded(folder: BorrowedFd<'_>, name: &[u8], listed: &Listed) -> io::Result<Option<String>> {
    let other = folded(folder, name, listed)?;
    Ok(other.map(|other| format!("for this file system it has the same name as {}, which is there", escaped(&other))))
}

fn time_of(stat: &Stat) -> Time {
    Time { seconds: stat.st_mtime, nanoseconds: u32::try_from(stat.st_mtime_nsec).unwrap_or(0) }
}

/// True if what is there is what would be made, as far as that shows without reading it.
fn is_as_stored(destination: &Destination, folder: BorrowedFd<'_>, item: &Item, there: &Stat, target: &[u8]) -> bool {
    let is = |wanted| FileType::from_raw_mode(there.st_mode) == wanted;
    let device = |major, minor| there.st_rdev == rustix::fs::makedev(major, minor);
    match item.kind {
        What::File => {
            let (size, there, wanted) = (there.st_size, time_of(there), item.mtime);
            is(FileType::RegularFile)
                && u64::try_from(size).ok() == Some(item.size)
                && (there == wanted || as_kept(destination, folder, wanted).is_ok_and(|kept| kept == there))
        }
        What::Symlink => {
            is(FileType::Symlink)
                && readlinkat(folder, item.name.as_slice(), Vec::new()).is_ok_and(|found| found.to_bytes() == target)
        }
        What::Character(major, minor) => is(FileType::CharacterDevice) && device(major, minor),
        What::Block(major, minor) => is(FileType::BlockDevice) && device(major, minor),
        What::Fifo => is(FileType::Fifo),
        What::Socket => is(FileType::Socket),
    }
}

/// The time that a file in `folder` has which was given this one: many file systems keep less of it than archives do
/// (FAT two seconds, ext3 and HFS+ one, exFAT 10 ms, NTFS and SMB 100 ns), or not all years.
fn as_kept(destination: &Destination, folder: BorrowedFd<'_>, time: Time) -> io::Result<Time> {
    let trial = destination.new_file(folder, 0o600, 0o600, false)?;
    let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let last_modification = Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    futimens(&trial.file, &Timestamps { last_access, last_modification })?;
    Ok(time_of(&fstat(&trial.file)?))
}
