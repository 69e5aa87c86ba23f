use std::path::{Path, PathBuf};

use crate::args::shown;
use crate::exit::{Code, Failure};
use crate::terminal::{self, Colour};

/// Unmounts all of them, `lazily` also those that are in use; the last failure decides the exit code.
pub(crate) fn run(mountpoints: &[PathBuf], lazily: bool) -> Code {
    let mut code = Code::Success;
    for named in mountpoints {
        let mountpoint = &mounted_from(named).unwrap_or_else(|| named.clone());
        if let Err(error) = tarnfs_fuse::unmount(mountpoint, lazily) {
            code = Code::CannotMount;
            let message = match error {
                tarnfs_fuse::Error::MountPoint { .. } => error.to_string(),
                error => format!("{}: {error}", shown(mountpoint.as_os_str())),
            };
            terminal::report(&Failure::new(code, message), Colour::default());
        }
    }
    code
}

/// Where the archive `path` is mounted, if it is an archive and mounted in one place.
fn mounted_from(path: &Path) -> Option<PathBuf> {
    if !path.is_file() {
        return None;
    }
    let path = std::path::absolute(path).ok()?;
    let mounts = tarnfs_fuse::mounts().ok()?;
    let mut places = mounts.into_iter().filter(|mount| Path::new(&mount.source) == path);
    let found = places.next()?;
    places.next().is_none().then_some(found.mount_point)
}
