//! Mounts that nobody else sees, and a /dev/fuse that other users may open.

#![allow(dead_code, reason = "each test file uses some of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::ffi::CStr;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount};
use rustix::thread::UnshareFlags;

const DEVICE: &str = "/dev/fuse";

/// A device of its own: that of the machine stays as it is, whoever else runs tests beside this one.
pub(crate) struct OwnDevice(&'static str);

impl OwnDevice {
    /// Says who may open it; at first all may, as udev's rule has it.
    pub(crate) fn set_mode(&self, mode: u32) {
        fs::set_permissions(self.0, Permissions::from_mode(mode)).unwrap();
    }

    fn make() -> Result<Self, String> {
        let failed = |what: &'static str| move |error: rustix::io::Errno| format!("{what}: {error}");
        #[expect(unsafe_code, reason = "no other way leads to a mount namespace")]
        // SAFETY: what this thread no longer shares with the others are mounts and the working folder; no file is
        // closed by it.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.map_err(failed("a mount namespace"))?;
        let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
        mount_change("/", private).map_err(failed("mounts of its own"))?;
        // Where the other temporary files are, devices may not count.
        let folder = tempfile::tempdir().unwrap();
        mount("none", folder.path(), "tmpfs", MountFlags::empty(), None::<&CStr>).map_err(failed("a tmpfs"))?;
        let number = Path::new(DEVICE).metadata().unwrap().rdev();
        let node = folder.path().join("fuse");
        let made = mknodat(CWD, &node, FileType::CharacterDevice, Mode::from_raw_mode(0o600), number)
            .and_then(|()| mount_bind(&node, DEVICE));
        // The node stays, as it is mounted.
        unmount(folder.path(), UnmountFlags::DETACH).unwrap();
        made.map_err(failed("a device node"))?;
        let device = Self(DEVICE);
        device.set_mode(0o666);
        File::options().read(true).write(true).open(DEVICE).map_err(|error| format!("opening {DEVICE}: {error}"))?;
        Ok(device)
    }
}

/// Does `work` in a mount namespace of its own, which the processes that it starts share; what is mounted there goes
/// away with it. Where that is not allowed, a line says so.
pub(crate) fn in_own_namespace(work: impl FnOnce(&OwnDevice) + Send) {
    let run = || OwnDevice::make().map(|device| work(&device));
    // A thread that ends with it: the test's own may be that of other tests, too.
    match std::thread::scope(|scope| scope.spawn(run).join()) {
        Ok(Ok(())) => {}
        Ok(Err(why)) => println!("left out: {why}"),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
