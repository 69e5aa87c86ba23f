//! Names that a file system takes for the same: `README` and `Readme`.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Dir, Mode, OFlags, fstat, fstatfs, ioctl_getflags, openat};

use super::destination::stat;

/// Names of folders that were listed to tell them apart, as hashes: else a folder would be listed for each of its
/// names.
#[derive(Debug, Default)]
pub(super) struct Listed {
    folders: Mutex<Folders>,
    keys: RandomState,
}

#[derive(Debug, Default)]
struct Folders {
    names: HashMap<(u64, u64), HashSet<u64>>,
    /// How many names that are, with one more for each folder.
    count: usize,
}

impl Listed {
    /// Names that are kept of all folders together.
    const MOST: usize = 1 << 20;

    fn has(&self, folder: (u64, u64), name: &[u8]) -> bool {
        let folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        folders.names.get(&folder).is_some_and(|names| names.contains(&self.keys.hash_one(name)))
    }

    /// Notes all names of a folder.
    fn keep(&self, folder: (u64, u64), names: HashSet<u64>) {
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        if folders.count + names.len() > Self::MOST {
            *folders = Folders::default();
        }
        folders.count += names.len() + 1;
        if let Some(before) = folders.names.insert(folder, names) {
            folders.count -= before.len() + 1;
        }
    }
}

/// The name in `folder` that its file system takes for `name`, where that is another one: `README` for `Readme`. To be
/// asked where there is something of that name.
pub(super) fn folded(folder: BorrowedFd<'_>, name: &[u8], known: &Listed) -> io::Result<Option<Vec<u8>>> {
    let Some(there) = stat(folder, name)? else { return Ok(None) };
    let same = |name: &[u8]| {
        Ok::<_, io::Error>(
            stat(folder, name)?.is_some_and(|stat| (stat.st_dev, stat.st_ino) == (there.st_dev, there.st_ino)),
        )
    };
    let swapped: Vec<u8> = name
        .iter()
        .map(|byte| if byte.is_ascii_lowercase() { byte.to_ascii_uppercase() } else { byte.to_ascii_lowercase() })
        .collect();
    let folds_letters = swapped != name && same(&swapped)?;
    // Letters beyond ASCII are folded in many ways; some leave out dots and spaces at the end, or know short names.
    let is_plain = name.is_ascii() && !name.ends_with(b".") && !name.ends_with(b" ") && !name.contains(&b'~');
    if is_plain && !folds_letters {
        return Ok(None);
    }
    let of_folder = fstat(folder)?;
    let identity = (of_folder.st_dev, of_folder.st_ino);
    if known.has(identity, name) {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = openat(folder, ".", flags, Mode::empty())?;
    if !folds_letters && tells_names_apart(&listed) {
        return Ok(None);
    }
    let (mut is_itself, mut other, mut names) = (false, None, HashSet::new());
    for entry in Dir::read_from(&listed)? {
        let entry = entry?;
        let found = entry.file_name().to_bytes();
        if names.len() < Listed::MOST {
            names.insert(known.keys.hash_one(found));
        }
        is_itself |= found == name;
        if !is_itself && entry.ino() == there.st_ino && same(found)? {
            other = Some(found.to_vec());
        }
    }
    known.keep(identity, names);
    Ok(other.filter(|_| !is_itself))
}

/// True if all names are different ones in `folder`. Of a file system that is not known, that is not known either.
fn tells_names_apart(folder: &OwnedFd) -> bool {
    /// Magic numbers of `statfs` (linux/magic.h): ext4, btrfs, tmpfs, f2fs and overlayfs, which fold names in folders
    /// that say so, and xfs, which folds the letters of ASCII at most.
    const KNOWN: [u64; 6] = [0xef53, 0x9123_683e, 0x0102_1994, 0xf2f5_2010, 0x794c_7630, 0x5846_5342];
    /// `FS_CASEFOLD_FL`
    const FOLDS: u32 = 0x4000_0000;
    let is_known = fstatfs(folder).is_ok_and(|found| KNOWN.contains(&(found.f_type as u64 & 0xffff_ffff)));
    // Who has no such flags has none that is set.
    is_known && ioctl_getflags(folder).map_or(true, |flags| flags.bits() & FOLDS == 0)
}
