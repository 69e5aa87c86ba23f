//! The files that are compressed, in memory: disks are measured by others.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use tarnfs_source::Cancel;

use crate::Error;

/// Files that are looked at.
const MOST: usize = 1_000_000;

/// A file.
#[derive(Debug)]
pub(super) struct Loaded {
    /// From the folder.
    pub(super) path: Vec<u8>,
    pub(super) bytes: Vec<u8>,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) all: Vec<Loaded>,
    /// How many files with bytes there are, and those that could not be read.
    pub(super) found: usize,
    pub(super) unreadable: usize,
    /// Bytes of those that are there.
    pub(super) bytes: u64,
}

impl Files {
    pub(super) fn loaded(&self) -> u64 {
        self.all.iter().map(|file| file.bytes.len() as u64).sum()
    }
}

/// Reads files below `folder` in the order of their paths, at most `most` bytes: then some of them, from all over it.
pub(super) fn load(folder: &Path, most: u64, cancel: &Cancel) -> Result<Files, Error> {
    let mut files = Files::default();
    let mut waiting = vec![folder.to_owned()];
    let mut paths: Vec<(PathBuf, u64)> = Vec::new();
    while let Some(path) = waiting.pop() {
        let entries = match path.read_dir() {
            Ok(entries) => entries,
            Err(error) if path == folder => return Err(Error::at(folder)(error)),
            Err(_) => {
                files.unreadable += 1;
                continue;
            }
        };
        for entry in entries.flatten() {
            if cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            // Not what links lead to, and nothing that is no file.
            let Ok(found) = entry.metadata() else { continue };
            if found.is_dir() {
                waiting.push(entry.path());
            } else if found.is_file() && found.len() > 0 && paths.len() < MOST {
                paths.push((entry.path(), found.len()));
            }
        }
    }
    paths.sort();
    (files.found, files.bytes) = (paths.len(), paths.iter().map(|(_, length)| length).sum());
    if paths.is_empty() {
        return Err(Error::Usage(format!("{}: there is no file in it that is not empty", folder.display())));
    }
    let chosen = if files.bytes <= most { paths } else { some(paths, most) };
    let mut left = most;
    for (path, _) in chosen {
        if cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let mut bytes = Vec::new();
        // A file may grow meanwhile.
        let read = File::open(&path).and_then(|file| file.take(left).read_to_end(&mut bytes));
        if read.is_err() {
            files.unreadable += 1;
            continue;
        }
        left -= bytes.len() as u64;
        if !bytes.is_empty() {
            let below = path.strip_prefix(folder).unwrap_or(&path);
            files.all.push(Loaded { path: below.as_os_str().as_bytes().to_vec(), bytes });
        }
    }
    if files.all.is_empty() {
        return Err(Error::Other(format!("{}: none of its files can be read", folder.display())));
    }
    Ok(files)
}

/// Files of about so many bytes together, as far from each other as possible.
fn some(paths: Vec<(PathBuf, u64)>, most: u64) -> Vec<(PathBuf, u64)> {
    let count = paths.len();
    let mut chosen = vec![false; count];
    let mut left = most;
    // Halves, quarters, eighths, ...
    let mut parts = 1_usize;
    'all: while parts / 2 <= count {
        for part in (0..parts).filter(|part| parts == 1 || part % 2 == 1) {
            let number = part * count / parts;
            if !std::mem::replace(&mut chosen[number], true) {
                left = left.saturating_sub(paths[number].1);
                if left == 0 {
                    break 'all;
                }
            }
        }
        parts *= 2;
    }
    paths.into_iter().zip(chosen).filter_map(|(path, is_chosen)| is_chosen.then_some(path)).collect()
}

/// A folder, or an error that says what it is.
pub(super) fn check(folder: &Path) -> Result<(), Error> {
    let found = fs::metadata(folder).map_err(Error::at(folder))?;
    if found.is_dir() { Ok(()) } else { Err(Error::Usage(format!("{}: is no folder", folder.display()))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_files_come_from_all_over_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        for number in 100..200 {
            fs::write(folder.path().join(format!("sub/{number}")), vec![1; 1000]).unwrap();
        }
        fs::write(folder.path().join("empty"), "").unwrap();
        std::os::unix::fs::symlink("sub", folder.path().join("link")).unwrap();
        let all = load(folder.path(), 1 << 20, &Cancel::default()).unwrap();
        assert_eq!((all.found, all.all.len(), all.bytes, all.loaded()), (100, 100, 100_000, 100_000));
        assert_eq!(all.all[0].path, b"sub/100");
        let some = load(folder.path(), 8000, &Cancel::default()).unwrap();
        let names: Vec<_> = some.all.iter().map(|file| String::from_utf8(file.path.clone()).unwrap()).collect();
        assert_eq!(names, ["sub/100", "sub/112", "sub/125", "sub/137", "sub/150", "sub/162", "sub/175", "sub/187"]);
        assert!(load(&folder.path().join("absent"), 1, &Cancel::default()).is_err());
        assert!(load(&folder.path().join("link/../empty"), 1, &Cancel::default()).is_err());
    }
}
