use std::path::{Path, PathBuf};

use crate::args::shown;
use crate::exit::{Code, Failure};
use crate::terminal::{self, Colour};

/// Unmounts all of them, `lazily` also those that are in use; the last failure decides the exit code.
pub(crate) fn run(mountpoints: &[PathBuf], lazily: bool) -> Code {
    let mut code = Code::Success;
    for named in mountpoints {
        let places = mounted_from(named);
        if places.len() > 1 {
            code = Code::CannotMount;
            let all: Vec<_> = places.iter().map(|place| shown(place.as_os_str())).collect();
            let message =
                format!("{} is mounted at {}: name one of these", shown(named.as_os_str()), all.join(" and "));
            terminal::report(&Failure::new(code, message), Colour::default());
            continue;
        }
        let mountpoint = &places.into_iter().next().unwrap_or_else(|| named.clone());
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

/// Where the archive `path` is mounted, if it is an archive.
fn mounted_from(path: &Path) -> Vec<PathBuf> {
    if !path.is_file() {
        return Vec::new();
    }
    let Ok(path) = std::path::absolute(path) else { return Vec::new() };
    let mounts = tarnfs_fuse::mounts().unwrap_or_default();
    mounts.into_iter().filter(|mount| Path::new(&mount.source) == path).map(|mount| mount.mount_point).collect()
}
