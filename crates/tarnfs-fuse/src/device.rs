//! From a folder to an open connection: `mount(2)` where we may, fusermount3 where not.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getgid, getpid, getuid, pidfd_getfd, pidfd_open};

use crate::options::Parsed;
use crate::{Error, fusermount};

/// The device that connections to the kernel are made of.
pub(crate) const DEVICE: &str = "/dev/fuse";

/// How the kernel lists our mounts.
pub(crate) const MOUNT_TYPE: &str = "fuse.tarnfs";

/// What the kernel may read ahead of a sequential reader. The 128 KiB it begins with are eight requests where one
/// does; more than 1 MiB do not fit in a request.
const READ_AHEAD_KIB: &str = "1024";

/// Where a program that mounts before it starts us has the device open, as libfuse's mount.fuse3 does with
/// `drop_privileges`.
const OPEN_DEVICES: &str = "/dev/fd";

/// A mount that waits for its first answer.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) device: OwnedFd,
    /// Absolute, without symbolic links. `None` if somebody else has mounted, and alone knows where.
    pub(crate) mount_point: Option<PathBuf>,
    /// True if this process may open the device itself, which further threads' own descriptors need.
    pub(crate) can_open_device: bool,
    /// The helper has mounted: it was given a path, not the folder that is open.
    pub(crate) is_by_path: bool,
}

/// Mounts on `mount_point`, or on `folder` where that is open.
pub(crate) fn connect(
    mount_point: &Path,
    folder: Option<BorrowedFd<'_>>,
    options: &Parsed,
) -> Result<Connection, Error> {
    if let Some(number) = open_device(mount_point) {
        let device = take_device(number).map_err(|error| Error::io(format!("use {}", mount_point.display()), error))?;
        return Ok(Connection { device, mount_point: None, can_open_device: false, is_by_path: false });
    }
    // What the descriptor leads to stays the same, whatever becomes of the path. (The helper is given the path: it
    // looks with the rights of who calls it.)
    let (mount_point, target) = match folder.map(|folder| format!("/proc/self/fd/{}", folder.as_raw_fd())) {
        None => {
            let absolute = check_mount_point(mount_point)?;
            (absolute.clone(), absolute)
        }
        Some(link) => {
            let absolute = std::fs::read_link(&link)
                .map_err(|error| Error::io(format!("use {} as mount point", mount_point.display()), error))?;
            (absolute, PathBuf::from(link))
        }
    };
    let device = match OpenOptions::new().read(true).write(true).open(DEVICE) {
        Ok(device) => Some(device),
        Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => return Err(Error::NoDevice),
            // A helper that runs as root may still open it.
            Some(Errno::ACCESS | Errno::PERM) => None,
            _ => return Err(Error::io(format!("open {DEVICE}"), error)),
        },
    };
    let can_open_device = device.is_some();
    if let Some(device) = device
        && mount_directly(&device, &target, options)?
    {
        let device = device.into();
        return Ok(Connection { device, mount_point: Some(mount_point), can_open_device, is_by_path: false });
    }
    let device = fusermount::mount(&mount_point, options, can_open_device)?;
    Ok(Connection { device, mount_point: Some(mount_point), can_open_device, is_by_path: true })
}

/// True for `/dev/fd/N` where N is an open connection to the kernel: what is to be served there is mounted already.
pub fn is_mounted_device(path: &Path) -> bool {
    open_device(path).is_some()
}

fn open_device(path: &Path) -> Option<i32> {
    let number = path.strip_prefix(OPEN_DEVICES).ok()?.to_str()?.parse().ok()?;
    let (ours, device) = (path.metadata().ok()?, Path::new(DEVICE).metadata().ok()?);
    (ours.file_type().is_char_device() && ours.rdev() == device.rdev()).then_some(number)
}

/// A descriptor of our own for the open file behind `number`, which belongs to whoever has opened it.
fn take_device(number: i32) -> io::Result<OwnedFd> {
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(this, number, PidfdGetfdFlags::empty())?)
}

/// The folder's absolute path, or why it cannot be mounted on.
fn check_mount_point(path: &Path) -> Result<PathBuf, Error> {
    let refuse = |error: io::Error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => Error::mount_point(path, "does not exist: make it (mkdir) or name another folder"),
        Some(Errno::NOTCONN | Errno::CONNABORTED) => {
            let first = format!("run `tarnfs -u {}` first", path.display());
            Error::mount_point(path, format!("has a mount whose program has died; {first}"))
        }
        _ => Error::io(format!("use {} as mount point", path.display()), error),
    };
    let absolute = path.canonicalize().map_err(refuse)?;
    if absolute.metadata().map_err(refuse)?.is_dir() {
        return Ok(absolute);
    }
    Err(Error::mount_point(path, "is not a folder: name one to mount on"))
}

/// False if the kernel does not let this process mount.
fn mount_directly(device: &File, mount_point: &Path, options: &Parsed) -> Result<bool, Error> {
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        device.as_raw_fd(),
        getuid().as_raw(),
        getgid().as_raw()
    );
    let further = options.fuse_data();
    if !further.is_empty() {
        data = format!("{data},{further}");
    }
    let no_zero = |_| Error::Option("has a zero byte in it".to_owned());
    let (data, source) =
        (CString::new(data).map_err(no_zero)?, CString::new(options.source.as_bytes()).map_err(no_zero)?);
    match rustix::mount::mount(source.as_c_str(), mount_point, MOUNT_TYPE, options.flags, data.as_c_str()) {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::ACCESS) => Ok(false),
        Err(Errno::NODEV) => Err(Error::NoDevice),
        Err(error) => Err(Error::io(format!("mount on {}", mount_point.display()), error)),
    }
}

/// Lets the kernel read further ahead of who reads the file system `device` ("major:minor"); only root can ask for it,
/// and all works without.
pub(crate) fn raise_read_ahead(device: &str) {
    let setting = format!("/sys/class/bdi/{device}/read_ahead_kb");
    if let Err(error) = std::fs::write(&setting, READ_AHEAD_KIB) {
        log::debug!("{setting} stays as it is: {error}");
    }
}
