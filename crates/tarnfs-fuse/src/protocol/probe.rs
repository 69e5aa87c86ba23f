//! Asks the kernel what it can do, without mounting anything anywhere.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::{FsOpenFlags, fsconfig_create, fsconfig_set_string, fsopen};
use rustix::process::{getgid, getuid};

use super::abi::{MAJOR, MINOR, capability};
use super::session::{REQUEST, Received, init, receive};
use crate::Error;
use crate::device::DEVICE;

/// What the kernel's side of FUSE can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Its version of the protocol, major and minor.
    pub version: (u32, u32),
    /// The version that this crate is written for. The lower of the two is used.
    pub ours: (u32, u32),
    /// The kernel can read files itself that lie on disk as they are.
    pub passthrough: bool,
}

/// What the kernel offers at the beginning of a mount. Needs the right to mount: others are told [`Errno::PERM`].
///
/// A file system that is made, but mounted on no folder, gets the same first request as any other. It is gone when this
/// returns.
pub fn offer() -> Result<Offer, Error> {
    let wrong = |what: &'static str| move |error: Errno| Error::io(what, error);
    let device = File::options().read(true).write(true).open(DEVICE).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::NoDevice,
        io::ErrorKind::PermissionDenied => Error::NoPermission,
        _ => Error::io(format!("open {DEVICE}"), error),
    })?;
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC).map_err(wrong("ask the kernel about FUSE"))?;
    let values = [
        ("fd", device.as_raw_fd().to_string()),
        ("rootmode", "40000".to_owned()),
        ("user_id", getuid().as_raw().to_string()),
        ("group_id", getgid().as_raw().to_string()),
    ];
    values
        .iter()
        .try_for_each(|(key, value)| fsconfig_set_string(&context, *key, value.as_str()))
        .and_then(|()| fsconfig_create(&context))
        .map_err(wrong("ask the kernel about FUSE"))?;
    // The request is there by now.
    let a_second = Timespec { tv_sec: 1, tv_nsec: 0 };
    poll(&mut [PollFd::new(&device, PollFlags::IN)], Some(&a_second)).map_err(wrong("wait for the kernel"))?;
    rustix::io::ioctl_fionbio(&device, true).map_err(wrong("ask the kernel about FUSE"))?;
    let mut buffer = vec![0; REQUEST];
    match receive(&device, &mut buffer).map_err(|error| Error::io("read from the kernel", error))? {
        Received::Request(length) => init(&buffer[..length]).map(|init| Offer {
            version: (init.major, init.minor),
            ours: (MAJOR, MINOR),
            passthrough: init.offered & capability::PASSTHROUGH != 0,
        }),
        _ => None,
    }
    .ok_or_else(|| Error::io("ask the kernel about FUSE", io::Error::from(io::ErrorKind::TimedOut)))
}
