//! Where ratarmount puts its sidecars.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarnfs_source::FileSource;

use super::packed::{self, PACKED};
use crate::location::is_url;
use crate::own::schema::APPLICATION;
use crate::trust;

/// What follows the archive's name.
pub const SUFFIX: &[u8] = b".index.sqlite";

/// True of a database that is none of tarnfs, also of a compressed one: most likely a sidecar. Of what cannot be read
/// nobody knows. Only with `trust_any` it is looked for through a symbolic link.
pub fn may_be_one(path: &Path, trust_any: bool) -> bool {
    /// The head of a database, up to the number of the program that it belongs to.
    const HEAD: usize = 72;
    let head = trust::open_any(path, trust_any).and_then(|file| {
        let mut head = vec![0; HEAD];
        file.read_exact_at(&mut head, 0)?;
        if head.starts_with(packed::SQLITE) {
            return Ok(head);
        }
        let source = Arc::new(FileSource::from_file(file, path)?);
        Ok(packed::start(source, HEAD)?.unwrap_or_default())
    });
    let is_one = |head: &Vec<u8>| head.starts_with(packed::SQLITE) && !head.ends_with(&APPLICATION.to_be_bytes());
    head.as_ref().is_ok_and(is_one)
}

/// The compressed forms of the sidecar beside `archive` that are there.
pub fn packed_beside(archive: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let beside = beside(archive);
    PACKED
        .iter()
        .map(move |suffix| {
            let mut path = beside.clone().into_os_string();
            path.push(suffix);
            PathBuf::from(path)
        })
        .filter(|path| path.symlink_metadata().is_ok_and(|metadata| metadata.len() > 0))
}

/// The sidecar beside `archive`.
pub fn beside(archive: &Path) -> PathBuf {
    let name = archive.file_name().unwrap_or_default().as_bytes();
    archive.with_file_name(OsString::from_vec([name, SUFFIX].concat()))
}

/// Where a sidecar of `archive` may lie: for each of `folders` (an empty one is the archive's own), then in
/// ratarmount's own folders in the user's home. In another folder it is named after the archive's absolute path, with
/// `_` for `/`.
pub fn candidates(archive: &Path, folders: &[PathBuf]) -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    let own = home.iter().flat_map(|home| [home.join(".cache/ratarmount"), home.join(".ratarmount")]);
    let is_url = is_url(archive);
    let absolute = std::path::absolute(archive).ok().filter(|_| !is_url).unwrap_or_else(|| archive.to_owned());
    let mut flat: Vec<u8> =
        absolute.as_os_str().as_bytes().iter().map(|&byte| if byte == b'/' { b'_' } else { byte }).collect();
    flat.extend_from_slice(SUFFIX);
    let flat = OsString::from_vec(flat);
    let place = |folder: PathBuf| if folder.as_os_str().is_empty() { beside(archive) } else { folder.join(&flat) };
    // Nothing of this machine lies beside a URL.
    let folders = folders.iter().filter(|folder| !is_url || !folder.as_os_str().is_empty()).cloned();
    folders.chain(own).map(place).collect()
}
