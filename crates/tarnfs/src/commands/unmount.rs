use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use tarnfs_fuse::MountedTree;

use super::commit::kept_in;
use super::mounts::{PATIENCE, is_called, sources};
use crate::args::shown;
use crate::exit::{Code, Failure};
use crate::made;
use crate::overlay::Committing;
use crate::terminal::{self, Colour};

/// Unmounts all of them, `lazily` also those that are in use; the last failure decides the exit code.
pub(crate) fn run(mountpoints: &[PathBuf], lazily: bool) -> Code {
    let mut code = Code::Success;
    // Before anything is unmounted: several names may be those of one mount.
    let mut places = Vec::new();
    let mounts = tarnfs_fuse::mounts().unwrap_or_default();
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
        let place = of_archive.into_iter().next().unwrap_or_else(|| up(named));
        let is_mount_point = |path: &Path| mounts.iter().any(|mount| mount.mount_point == path);
        let whole = std::path::absolute(&place).unwrap_or_else(|_| place.clone());
        let whole = if is_mount_point(&whole) { whole } else { leads_to(&whole, is_mount_point).unwrap_or(whole) };
        if !places.iter().any(|(_, known)| *known == whole) {
            places.push((place, whole));
        }
    }
    for (mountpoint, whole) in &places {
        let of_mount = (!lazily).then(|| mounts.iter().rfind(|mount| mount.mount_point == *whole)).flatten();
        let of_mount = of_mount.filter(|mount| mount.is_writable);
        // What was written goes into the archive (`--write`).
        let archive = match of_mount.map(what_is_mounted).as_deref() {
            Some([archive]) => Some(archive.canonicalize().unwrap_or_else(|_| archive.clone())),
            _ => None,
        };
        let user = of_mount.and_then(|mount| mount.user);
        let committing = archive.and_then(|archive| Some((Committing::find(&archive, whole, user)?, archive)));
        let unmounted = tarnfs_fuse::unmount(mountpoint, lazily);
        if let Some((committing, archive)) = committing.filter(|_| unmounted.is_ok())
            && let Some(folder) = committing.wait()
        {
            code = Code::Failure;
            terminal::report(&Failure::new(code, kept_in(&archive, &folder)), Colour::default());
        }
        // Detached, it may be in use for long.
        if unmounted.is_ok() && !lazily {
            made::wait_until_removed(mountpoint);
        }
        if let Err(error) = unmounted {
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

/// What a mount shows, before it is unmounted: with `-o fsname=` the table of mounts does not say it.
fn what_is_mounted(mount: &MountedTree) -> Vec<PathBuf> {
    let told = if is_called(mount) { tarnfs_fuse::told([mount], PATIENCE).pop().flatten() } else { None };
    sources(&told.and_then(|told| told.source).unwrap_or_else(|| mount.source.clone())).0
}

/// `path`, or the whole path of what lies above, where it ends with `..`: from the current folder that is found also
/// where something was mounted over it meanwhile, and the way there from the root leads elsewhere.
fn up(path: &Path) -> PathBuf {
    let mut components = path.components();
    match components.next_back() {
        Some(Component::ParentDir) => path.canonicalize().unwrap_or_else(|_| path.to_owned()),
        _ => path.to_owned(),
    }
}

/// Where what `path` names is mounted, alone or with others: an archive, also one that is gone by now, or a folder.
/// Nothing if that is a mount point itself.
fn mounted_from(path: &Path) -> Vec<PathBuf> {
    // The table of mounts is asked: a mount whose server hangs would not answer.
    let named = path;
    let Ok(path) = std::path::absolute(named) else { return Vec::new() };
    let mounts = tarnfs_fuse::mounts().unwrap_or_default();
    let is_mount_point = |path: &Path| mounts.iter().any(|mount| mount.mount_point == path);
    if is_mount_point(&path) || leads_to(&path, is_mount_point).is_some() {
        return Vec::new();
    }
    // With `-o fsname=` the table has that name in the place of paths: only such mounts are asked themselves.
    let mut told = tarnfs_fuse::told(mounts.iter().filter(|mount| is_called(mount)), PATIENCE).into_iter();
    let mounted = mounts.iter().map(|mount| {
        let told = if is_called(mount) { told.next().flatten() } else { None };
        told.and_then(|told| told.source).unwrap_or_else(|| mount.source.clone())
    });
    let mounted: Vec<OsString> = mounted.collect();
    let of = |is_it: &dyn Fn(&PathBuf) -> bool| -> Vec<_> {
        let mounts = mounts.iter().zip(&mounted).filter(|(_, mounted)| sources(mounted).0.iter().any(is_it));
        mounts.map(|(mount, _)| mount.mount_point.clone()).collect()
    };
    let found = of(&|source| *source == path);
    if !found.is_empty() {
        return found;
    }
    let called = mounts.iter().filter(|mount| mount.source == named.as_os_str());
    let called: Vec<_> = called.map(|mount| mount.mount_point.clone()).collect();
    if !called.is_empty() {
        return called;
    }
    // By another way. Only what has the same name is looked for: other sources may be on servers that hang.
    let real = real(&path);
    let may_be_it = |source: &Path| source.file_name().is_none_or(|name| Some(name) == real.file_name());
    of(&|source| may_be_it(source) && self::real(source) == real)
}

/// The path without symbolic links and `..` before its last name, as it is where that cannot be known.
fn real(path: &Path) -> PathBuf {
    let real = match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => parent.canonicalize().map(|parent| parent.join(name)),
        _ => path.canonicalize(),
    };
    real.unwrap_or_else(|_| path.to_owned())
}

/// What `path` leads to, if `is_mount_point` says that it is one. It goes from link to link, and no further than to the
/// first: no mount is asked.
fn leads_to(path: &Path, is_mount_point: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    /// As many links as the kernel follows.
    const MOST_LINKS: usize = 40;
    let mut place = real(path);
    for _ in 0..MOST_LINKS {
        if is_mount_point(&place) {
            return Some(place);
        }
        place = real(&place.parent()?.join(place.read_link().ok()?));
    }
    None
}
