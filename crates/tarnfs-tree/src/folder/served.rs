//! The mounts that this process serves. A question about what is under one of them would be asked of ourselves, while
//! somebody waits for the answer: it is never asked.

use std::sync::{PoisonError, RwLock};

/// `st_dev` of each, as major and minor number. Few; there is no way to find out from the outside, as asking is what
/// must not be.
static SERVED: RwLock<Vec<(u32, u32)>> = RwLock::new(Vec::new());

/// Says that a mount is served by this process, until it is dropped.
#[derive(Debug)]
pub struct Served((u32, u32));

impl Served {
    /// From now on, no [`FolderTree`](crate::FolderTree) goes into the file system with this `st_dev`. To be called
    /// before its first request is answered.
    pub fn begin(major: u32, minor: u32) -> Self {
        SERVED.write().unwrap_or_else(PoisonError::into_inner).push((major, minor));
        Self((major, minor))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let mut served = SERVED.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = served.iter().position(|device| *device == self.0) {
            served.swap_remove(place);
        }
    }
}

/// True if what has this `st_dev` lies in a mount of this process.
pub(super) fn is_served(major: u32, minor: u32) -> bool {
    SERVED.read().unwrap_or_else(PoisonError::into_inner).contains(&(major, minor))
}
