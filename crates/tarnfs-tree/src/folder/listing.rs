//! Folders that are being listed, kept open between one question and the next.
//!
//! Positions are those of the file system below (`telldir(3)`), so a listing can also go on in a folder that is opened
//! anew. Going on in the same open one is cheaper, and on some file systems (overlayfs, older tmpfs) the only way that
//! takes no quadratic time.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Dir, DirEntry};
use rustix::io::Errno;

/// Folders kept open.
const MOST: usize = 8;

/// Behind the last name. Some file systems have the largest number that there is for it, to which nobody could add
/// anything; trees around this one do ([`crate::ControlTree`]). ext4 has no name in the last 2³² positions.
const END: u64 = i64::MAX as u64 - (1 << 22);

/// An open folder at a position.
#[derive(Debug)]
pub(super) struct Listing {
    node: u32,
    dir: Dir,
    /// Where the next name is.
    position: u64,
    /// It, if it has been read and was not wanted.
    pending: Option<DirEntry>,
}

impl Listing {
    pub(super) fn new(node: u32, folder: OwnedFd, position: u64) -> Result<Self, Errno> {
        let mut dir = Dir::new(folder)?;
        if position != 0 {
            dir.seek(position as i64)?;
        }
        Ok(Self { node, dir, position, pending: None })
    }

    pub(super) fn folder(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.dir.fd()
    }

    /// The next name, and where the one behind it is.
    pub(super) fn next(&mut self) -> Result<Option<(DirEntry, u64)>, Errno> {
        loop {
            let entry = match self.pending.take() {
                Some(entry) => entry,
                None => match self.dir.read() {
                    Some(entry) => entry?,
                    None => return Ok(None),
                },
            };
            let next = entry.offset() as u64;
            let next = if (END..=i64::MAX as u64).contains(&next) { END } else { next };
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                return Ok(Some((entry, next)));
            }
            self.position = next;
        }
    }

    /// Goes on behind what [`Listing::next`] returned.
    pub(super) fn taken(&mut self, next: u64) {
        self.position = next;
    }

    /// Returns to what [`Listing::next`] returned.
    pub(super) fn put_back(&mut self, entry: DirEntry) {
        self.pending = Some(entry);
    }
}

/// True if nothing is behind this position.
pub(super) fn is_end(position: u64) -> bool {
    position == END
}

/// The folders listed last.
#[derive(Debug, Default)]
pub(super) struct Listings(Mutex<Vec<Listing>>);

impl Listings {
    /// An open folder that goes on just there. Who begins gets it as it is now: names are read some at a time.
    pub(super) fn take(&self, node: u32, position: u64) -> Option<Listing> {
        if position == 0 {
            return None;
        }
        let mut listings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = listings.iter().position(|listing| listing.node == node && listing.position == position)?;
        Some(listings.remove(place))
    }

    pub(super) fn keep(&self, listing: Listing) {
        if listing.position == 0 {
            return;
        }
        let mut listings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Closed outside the lock.
        let _oldest = (listings.len() >= MOST).then(|| listings.remove(0));
        listings.push(listing);
        drop(listings);
    }

    /// Closes what is open of `node`: somebody may want to unmount what lies there.
    pub(super) fn close(&self, node: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|listing| listing.node != node);
    }
}
