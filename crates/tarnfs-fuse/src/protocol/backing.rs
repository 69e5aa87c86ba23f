//! Files that the kernel reads and writes without us (`FUSE_PASSTHROUGH`, Linux 6.9).

use std::ffi::c_void;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::Arc;

use rustix::io::{Errno, Result};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl, opcode};

use super::abi::{OUT_HEADER, Out};

/// Where files are handed to the kernel.
#[derive(Debug, Clone)]
pub(crate) struct Backings(Arc<File>);

/// A file that the kernel has. Dropped, it is taken back; those who read from it meanwhile go on.
#[derive(Debug)]
pub(crate) struct Backing {
    number: i32,
    device: Arc<File>,
}

impl Backings {
    pub(super) fn new(device: Arc<File>) -> Self {
        Self(device)
    }

    /// Hands `file` to the kernel. It refuses those who are not root, and files of file systems that stand on others.
    pub(crate) fn open(&self, file: BorrowedFd<'_>) -> Result<Backing> {
        let request = Open { map: Map { file: file.as_raw_fd(), flags: 0, padding: 0 } };
        #[expect(unsafe_code, reason = "a request to the device that no crate offers")]
        // SAFETY: FUSE_DEV_IOC_BACKING_OPEN reads one `struct fuse_backing_map` behind the pointer and keeps nothing of
        // it.
        let number = unsafe { ioctl(&self.0, request) }?;
        // A kernel that returned this would mean none.
        if number <= 0 {
            return Err(Errno::OPNOTSUPP);
        }
        Ok(Backing { number, device: Arc::clone(&self.0) })
    }

    /// Has the kernel forget what it knows of `node`. What it has read of it stays, so nobody is waited for.
    pub(crate) fn forget_attributes(&self, node: u64) {
        let mut out = Out::default();
        // No offset, and no bytes.
        out.u32(OUT_HEADER as u32 + 24).u32(INVALIDATE).u64(0).u64(node).u64(u64::MAX).u64(0);
        // ENOENT: it knows nothing of it.
        if let Err(error) = (&*self.0).write_all(&out.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            log::debug!("having the kernel forget what it knows of node {node}: {error}");
        }
    }
}

/// `FUSE_NOTIFY_INVAL_INODE`.
const INVALIDATE: u32 = 2;

impl Backing {
    /// The kernel's number for it.
    pub(crate) fn number(&self) -> i32 {
        self.number
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        let request = Setter::<CLOSE, u32>::new;
        #[expect(unsafe_code, reason = "a request to the device that no crate offers")]
        // SAFETY: FUSE_DEV_IOC_BACKING_CLOSE reads one u32 behind the pointer.
        let result = unsafe { ioctl(&self.device, request(self.number as u32)) };
        // Once it is unmounted there is nothing to take back.
        if let Err(error) = result {
            log::debug!("taking back a file that the kernel reads itself: {error}");
        }
    }
}

/// `struct fuse_backing_map`.
#[repr(C)]
#[derive(Debug)]
struct Map {
    file: i32,
    flags: u32,
    padding: u64,
}

/// `FUSE_DEV_IOC_BACKING_OPEN`: `_IOW(229, 1, struct fuse_backing_map)`, which returns a number.
#[derive(Debug)]
struct Open {
    map: Map,
}

#[expect(unsafe_code, reason = "a request to the device that no crate offers")]
// SAFETY: the number is that of a request that reads a `Map`, to which `as_ptr` points, and writes nothing.
unsafe impl Ioctl for Open {
    type Output = i32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        OPEN
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.map).cast()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> Result<i32> {
        Ok(output)
    }
}

/// `FUSE_DEV_IOC_BACKING_OPEN`.
const OPEN: Opcode = opcode::write::<Map>(229, 1);

/// `FUSE_DEV_IOC_BACKING_CLOSE`: `_IOW(229, 2, uint32_t)`.
const CLOSE: Opcode = opcode::write::<u32>(229, 2);

/// The only requests with `ioctl` that a process makes of the device while it serves a mount: for one that gives up all
/// others.
pub const REQUESTS_FOR_BACKING_FILES: [u32; 2] = [OPEN, CLOSE];
