//! What is agreed with the kernel when a mount begins.

use tarnfs_tree::Totals;

use crate::buffers::MOST_BYTES;
use crate::handles::Handles;
use crate::protocol::{Kernel, capability};

/// What is agreed with the kernel.
#[derive(Debug, Default)]
pub(super) struct Terms {
    /// It need not open files.
    pub(super) no_open: bool,
    /// Nor folders.
    pub(super) no_opendir: bool,
}

impl Terms {
    /// For a tree in which nothing ever changes.
    pub(super) fn for_ever(kernel: &mut Kernel, totals: &Totals) -> Self {
        // An NFS server asks for numbers that the kernel has forgotten, so they must mean something for ever.
        kernel.take(capability::EXPORT_SUPPORT);
        kernel.take(capability::CACHE_SYMLINKS);
        Self {
            // Of a file that it never opens it keeps what it has read.
            no_open: !totals.is_unproven && kernel.take(capability::NO_OPEN_SUPPORT),
            no_opendir: kernel.take(capability::NO_OPENDIR_SUPPORT),
        }
    }

    /// For a tree that may change, of which `handles` has the files that are open.
    pub(super) fn for_now(kernel: &mut Kernel, handles: Option<&mut Handles>) -> Self {
        // What it has of a file it gives up when the file has changed.
        kernel.take(capability::AUTO_INVAL_DATA);
        if let (Some(backings), Some(handles)) = (kernel.take_passthrough(), handles) {
            handles.pass_through(backings);
        }
        Self::default()
    }
}

/// Of any tree. `checks_lists`: the kernel looks at access control lists.
pub(super) fn agree_to_all(kernel: &mut Kernel, checks_lists: bool) {
    // Without its automatic mode, which falls back to asking for one name after the other.
    kernel.take(capability::DO_READDIRPLUS);
    kernel.take(capability::PARALLEL_DIROPS);
    // Not ASYNC_DIO: whoever reads past the page cache with it cannot be interrupted.
    kernel.take(capability::DIRECT_IO_ALLOW_MMAP);
    if checks_lists {
        kernel.take(capability::POSIX_ACL);
    }
}

/// Of a tree that can be changed as a whole.
pub(super) fn agree_to_writes(kernel: &mut Kernel) {
    kernel.take_writes_of(MOST_BYTES as u32);
    // A folder may have a list of who may access what is made in it: that stands for the umask there.
    kernel.take(capability::DONT_MASK);
}
