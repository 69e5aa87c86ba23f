//! Which inodes of an image were told: each folder once, and a file that has several names by its first path.

use std::collections::{HashMap, HashSet};

use crate::image::Quota;

/// Bytes of memory for all of them, and for what else an image's reader holds.
const MOST_MEMORY: usize = 256 << 20;

/// The same of an image that stores more bytes of each folder than are held of it. Several small ones may be read
/// beside each other, and records may be the same bytes: one of 4 MB had 90 MB of folders.
const OF_IMAGE: Quota = Quota { most: MOST_MEMORY as u64, least: 1 << 20, of_small: 4 };

/// Of it, for a folder, and for a file beside its path.
const PER_FOLDER: usize = 24;
const PER_FILE: usize = 64;

/// Bytes of a path that a further name of a file may lead to, and of the target of a link (PATH_MAX).
pub(crate) const LONGEST_TARGET: usize = 4096;

/// Those of one image.
#[derive(Debug)]
pub(crate) struct Inodes {
    folders: HashSet<u64>,
    /// Of files that have several names, the first path of each.
    paths: HashMap<u64, Box<[u8]>>,
    memory: usize,
    most: usize,
}

impl Default for Inodes {
    fn default() -> Self {
        Self { folders: HashSet::new(), paths: HashMap::new(), memory: 0, most: MOST_MEMORY }
    }
}

impl Inodes {
    /// Those of an image with `data` bytes that are no holes, which stores more of each folder than is held here.
    pub(crate) fn of_image(data: u64) -> Self {
        let most = usize::try_from(OF_IMAGE.of(data, 1)).unwrap_or(MOST_MEMORY);
        Self { most, ..Self::default() }
    }

    /// Takes `bytes` of the memory; false if there are not so many.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let memory = self.memory.saturating_add(bytes);
        let fits = memory <= self.most;
        if fits {
            self.memory = memory;
        }
        fits
    }

    /// Gives back what was taken.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        self.memory = self.memory.saturating_sub(bytes);
    }

    /// Takes note of a folder. The error says why it must not be entered.
    pub(crate) fn enter(&mut self, number: u64) -> Result<(), &'static str> {
        if self.folders.contains(&number) {
            return Err("it is another folder, too");
        }
        if !self.take(PER_FOLDER) {
            return Err("there are too many folders");
        }
        self.folders.insert(number);
        Ok(())
    }

    /// Takes note of the first path of a file that has further names, if a link can lead there.
    pub(crate) fn name(&mut self, number: u64, path: &[u8]) {
        if path.len() <= LONGEST_TARGET && self.take(path.len().saturating_add(PER_FILE)) {
            self.paths.insert(number, path.into());
        }
    }

    /// The first path of a file.
    pub(crate) fn path(&self, number: u64) -> Option<&[u8]> {
        self.paths.get(&number).map(|path| &**path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_folder_is_entered_once_and_memory_has_an_end() {
        let mut inodes = Inodes::default();
        assert_eq!((inodes.enter(2), inodes.enter(2)), (Ok(()), Err("it is another folder, too")));
        inodes.name(3, b"first");
        inodes.name(4, &[b'x'; LONGEST_TARGET + 1]);
        assert_eq!((inodes.path(3), inodes.path(4)), (Some(&b"first"[..]), None));
        let rest = MOST_MEMORY - PER_FOLDER - PER_FILE - 5;
        assert!(!inodes.take(rest + 1) && inodes.take(rest));
        assert_eq!(inodes.enter(5), Err("there are too many folders"));
        inodes.name(6, b"more");
        assert_eq!(inodes.path(6), None);
        inodes.give_back(PER_FOLDER);
        assert_eq!(inodes.enter(5), Ok(()));
    }

    #[test]
    fn of_few_bytes_few_are_held() {
        let most = |data: u64| {
            let mut inodes = Inodes::of_image(data);
            (0..1 << 20).find(|_| !inodes.take(1 << 20)).unwrap()
        };
        assert_eq!([0, 1 << 20, 4 << 20, 1 << 30].map(most), [1, 5, 17, 256]);
    }
}
