//! Folders that get their attributes when all is made in them.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;

use rustix::fs::{Stat, fstat, fstatfs};
use tarnfs_tree::{Node, Stored, Time};

use super::plan::{Backwards, Item, Items, Sorter, Unfinished, What};

/// Takes them as they are found: each before what is in it.
pub(super) enum Folders {
    /// They are finished in the reverse order.
    Each(Backwards),
    /// Without the first names of their paths several may be one: they are sorted by what they are called then.
    Merged(Sorter, RandomState),
}

impl Folders {
    pub(super) fn new(may_merge: bool) -> Self {
        if may_merge { Self::Merged(Sorter::new(), RandomState::new()) } else { Self::Each(Backwards::default()) }
    }

    /// Adds a folder. `names`: its path, asked for where that matters.
    pub(super) fn push(
        &mut self,
        folder: Unfinished,
        header: u64,
        names: impl FnOnce() -> io::Result<Vec<Vec<u8>>>,
    ) -> io::Result<()> {
        match self {
            Self::Each(folders) => folders.push(folder),
            Self::Merged(sorter, keys) => {
                let names = names()?;
                // What is in a folder comes before it, all of one path one behind the other, and of these the last one
                // of the archive first.
                let stored = Stored {
                    stream: u32::MAX - u32::try_from(names.len()).unwrap_or(u32::MAX),
                    place: keys.hash_one(names),
                    header: Some(u64::MAX - header),
                    is_plain: false,
                    has_xattrs: false,
                };
                let Unfinished { node, is_made, identity } = folder;
                let none = Time { seconds: 0, nanoseconds: 0 };
                sorter.push(Item {
                    stored,
                    node,
                    folder: node,
                    name: [identity.0.to_le_bytes(), identity.1.to_le_bytes()].concat(),
                    kind: What::File,
                    mode: 0,
                    uid: 0,
                    gid: 0,
                    links: 0,
                    size: is_made.into(),
                    mtime: none,
                    atime: none,
                })
            }
        }
    }

    /// Begins to hand them out.
    pub(super) fn finish(self) -> io::Result<Finishing> {
        Ok(match self {
            Self::Each(folders) => Finishing::Each(folders),
            Self::Merged(sorter, _) => Finishing::Merged(Box::new(sorter.finish()?), None),
        })
    }
}

/// The folder of an item that was made of it.
fn unfinished(item: &Item) -> Unfinished {
    let number = |at: usize| item.name.as_chunks::<8>().0.get(at).map_or(0, |number| u64::from_le_bytes(*number));
    Unfinished { node: item.node, is_made: item.size != 0, identity: (number(0), number(1)) }
}

/// Hands them out, each behind what is in it.
pub(super) enum Finishing {
    Each(Backwards),
    /// With the one that comes next, and its path.
    Merged(Box<Items>, Option<(Unfinished, Vec<Vec<u8>>)>),
}

impl Finishing {
    /// The next one. Of several that are one, the last one of the archive, and whether this call has made any of them.
    pub(super) fn next(
        &mut self,
        names_of: impl Fn(Node) -> io::Result<Vec<Vec<u8>>>,
    ) -> io::Result<Option<Unfinished>> {
        let (items, following) = match self {
            Self::Each(folders) => return folders.pop(),
            Self::Merged(items, following) => (items, following),
        };
        let mut found = following.take();
        while let Some(item) = items.next()? {
            let (names, folder) = (names_of(item.node)?, unfinished(&item));
            match &mut found {
                None => found = Some((folder, names)),
                Some((known, of_found)) if *of_found == names => known.is_made |= folder.is_made,
                Some(_) => {
                    *following = Some((folder, names));
                    break;
                }
            }
        }
        Ok(found.map(|(folder, _)| folder))
    }
}

/// Which folder this is: the numbers of its file system and its inode.
pub(super) fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// False if `folder` is not the one of `known`: whoever may write where that lay has renamed it, and another one to its
/// name, which may be none of his.
pub(super) fn is_still(folder: &File, known: (u64, u64)) -> io::Result<bool> {
    /// Magic numbers of `statfs` (linux/magic.h) of file systems where a folder has one number as long as it is there:
    /// ext4, btrfs, tmpfs, f2fs, overlayfs, xfs, NFS, ZFS and bcachefs. In FAT, or where a program serves files, it may
    /// get another one when the kernel has forgotten it.
    const KEEPS_NUMBERS: [u64; 9] =
        [0xef53, 0x9123_683e, 0x0102_1994, 0xf2f5_2010, 0x794c_7630, 0x5846_5342, 0x6969, 0x2fc1_2fc1, 0xca45_1a4e];
    let now = identity(&fstat(folder)?);
    let keeps = || fstatfs(folder).is_ok_and(|found| KEEPS_NUMBERS.contains(&(found.f_type as u64 & 0xffff_ffff)));
    Ok(now == known || now.0 == known.0 && !keeps())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_folder_that_has_the_name_of_another_is_another_one() {
        let scratch = tempfile::tempdir().unwrap();
        let [one, other, away] = ["one", "other", "away"].map(|name| scratch.path().join(name));
        for path in [&one, &other] {
            fs::create_dir(path).unwrap();
        }
        let known = identity(&rustix::fs::stat(&one).unwrap());
        assert!(is_still(&File::open(&one).unwrap(), known).unwrap());
        fs::rename(&one, &away).unwrap();
        fs::rename(&other, &one).unwrap();
        assert!(is_still(&File::open(&away).unwrap(), known).unwrap());
        assert!(!is_still(&File::open(&one).unwrap(), (known.0.wrapping_add(1), known.1)).unwrap());
        let magic = rustix::fs::statfs(scratch.path()).unwrap().f_type as u64 & 0xffff_ffff;
        if [0xef53, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x5846_5342].contains(&magic) {
            assert!(!is_still(&File::open(&one).unwrap(), known).unwrap());
        }
    }

    /// Of several folders that are one, the last one of the archive is known, as the folder that it is.
    #[test]
    fn folders_that_are_one_are_finished_once() {
        for may_merge in [false, true] {
            let mut folders = Folders::new(may_merge);
            let all = [(1, &b"a"[..], false), (2, b"b", true), (3, b"a", true)];
            for (node, name, is_made) in all {
                let folder = Unfinished { node: Node(node), is_made, identity: (7, u64::from(name[0])) };
                folders.push(folder, node, || Ok(vec![name.to_vec()])).unwrap();
            }
            let mut folders = folders.finish().unwrap();
            let names_of = |node: Node| Ok(vec![if node.0 == 2 { b"b".to_vec() } else { b"a".to_vec() }]);
            let mut found = Vec::new();
            while let Some(folder) = folders.next(names_of).unwrap() {
                found.push((folder.node.0, folder.is_made, folder.identity));
            }
            found.sort_unstable();
            let (a, b) = ((7, u64::from(b'a')), (7, u64::from(b'b')));
            let expected = if may_merge {
                vec![(2, true, b), (3, true, a)]
            } else {
                vec![(1, false, a), (2, true, b), (3, true, a)]
            };
            assert_eq!(found, expected);
        }
    }
}
