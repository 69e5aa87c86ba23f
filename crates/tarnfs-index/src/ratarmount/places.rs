//! Where ratarmount puts its sidecars.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What follows the archive's name.
const SUFFIX: &[u8] = b".index.sqlite";

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
    let absolute = std::path::absolute(archive).unwrap_or_else(|_| archive.to_owned());
    let mut flat: Vec<u8> =
        absolute.as_os_str().as_bytes().iter().map(|&byte| if byte == b'/' { b'_' } else { byte }).collect();
    flat.extend_from_slice(SUFFIX);
    let flat = OsString::from_vec(flat);
    let place = |folder: PathBuf| if folder.as_os_str().is_empty() { beside(archive) } else { folder.join(&flat) };
    folders.iter().cloned().chain(own).map(place).collect()
}
