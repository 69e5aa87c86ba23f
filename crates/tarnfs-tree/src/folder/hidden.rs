//! Folders that no tree of this process shows: those of overlays. Who reads a file of SQLite's by another descriptor
//! takes its locks away with closing it, and whoever finds none removes the log.

use std::os::fd::BorrowedFd;
use std::sync::{PoisonError, RwLock};

use rustix::fs::{AtFlags, Statx, StatxFlags, statx};
use rustix::io::Errno;

/// Device and number of a folder.
pub(super) type Number = ((u32, u32), u64);

static HIDDEN: RwLock<Vec<Number>> = RwLock::new(Vec::new());

pub(super) fn number(stat: &Statx) -> Number {
    ((stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino)
}

/// A folder is hidden as long as this is there, through whatever mount it is looked at, and whatever its name.
#[derive(Debug)]
pub(crate) struct HiddenFolder(Number);

impl HiddenFolder {
    /// Hides an open folder.
    pub(crate) fn new(folder: BorrowedFd<'_>) -> Result<Self, Errno> {
        let number = number(&statx(folder, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?);
        HIDDEN.write().unwrap_or_else(PoisonError::into_inner).push(number);
        Ok(Self(number))
    }
}

impl Drop for HiddenFolder {
    fn drop(&mut self) {
        let mut hidden = HIDDEN.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = hidden.iter().position(|number| *number == self.0) {
            hidden.swap_remove(at);
        }
    }
}

/// True if it is not to be shown.
pub(super) fn is_hidden(stat: &Statx) -> bool {
    let hidden = HIDDEN.read().unwrap_or_else(PoisonError::into_inner);
    !hidden.is_empty() && hidden.contains(&number(stat))
}
