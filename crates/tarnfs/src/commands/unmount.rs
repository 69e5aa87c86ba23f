use std::path::{Path, PathBuf};

use super::mounts::sources;
use crate::args::shown;
use crate::exit::{Code, Failure};
use crate::terminal::{self, Colour};

/// Unmounts all of them, `lazily` also those that are in use; the last failure decides the exit code.
pub(crate) fn run(mountpoints: &[PathBuf], lazily: bool) -> Code {
    let mut code = Code::Success;
    // Before anything is unmounted: several names may be those of one mount.
    let mut places = Vec::new();
    for named in mountpoints {
        let of_archive = mounted_from(named);
        if of_archive.len() > 1 {
            code = Code::CannotMount;
            let all: Vec<_> = of_archive.iter().map(|place| shown(place.as_os_str())).collect();
            let message =
                format!("{} is mounted at {}: name one of these", shown(named.as_os_str()), all.join(" and "));
            terminal::report(&Failure::new(code, message), Colour::default());
            continue;
        }
        let place = of_archive.into_iter().next().unwrap_or_else(|| named.clone());
        let whole = std::path::absolute(&place).unwrap_or_else(|_| place.clone());
        if !places.iter().any(|(_, known)| *known == whole) {
            places.push((place, whole));
        }
    }
    for (mountpoint, _) in &places {
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

/// Where what `path` names is mounted, alone or with others: an archive, also one that is gone by now, or a folder.
/// Nothing if that is a mount point itself.
fn mounted_from(path: &Path) -> Vec<PathBuf> {
    // The table of mounts alone is asked: a mount whose server hangs would not answer.
    let Ok(path) = std::path::absolute(path) else { return Vec::new() };
    let mounts = tarnfs_fuse::mounts().unwrap_or_default();
    if mounts.iter().any(|mount| mount.mount_point == path) {
        return Vec::new();
    }
    let mounts = mounts.into_iter().filter(|mount| sources(&mount.source).0.contains(&path));
    mounts.map(|mount| mount.mount_point).collect()
}
