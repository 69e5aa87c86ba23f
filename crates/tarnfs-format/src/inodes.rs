//! Which inodes of an image were told: each folder once, and a file that has several names by its first path.

use std::collections::{HashMap, HashSet};

use crate::image::Quota;

/// Bytes of memory for all of them, and for what else an image's reader holds. An image stores more bytes of each
/// folder than are held of it. But its records may be the same bytes, and lists may lead to the same places again and
/// again: of one of 3 MB, whose folders lay in a million parts each, 220 MB were held.
const MEMORY: Quota = Quota { most: 256 << 20, least: 1 << 20, of_small: 4 };

/// Of it, for a folder, and for a file beside its path.
const PER_FOLDER: usize = 24;
const PER_FILE: usize = 64;

/// Bytes of a path that a further name of a file may lead to, and of the target of a link (PATH_MAX).
pub(crate) const LONGEST_TARGET: usize = 4096;

/// What an image's reader may hold.
#[derive(Debug)]
pub(crate) struct Memory {
    left: usize,
}

impl Memory {
    /// That of an image with `data` bytes that are no holes. Images on one disk are read one after the other.
    pub(crate) fn of_image(data: u64) -> Self {
        Self { left: usize::try_from(MEMORY.of(data, 1)).unwrap_or(usize::MAX) }
    }

    /// Takes so many bytes of it; false if there are not so many.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// Gives back what was taken.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        self.left = self.left.saturating_add(bytes);
    }
}

/// Those of one image.
#[derive(Debug)]
pub(crate) struct Inodes {
    folders: HashSet<u64>,
    /// Of files that have several names, the first path of each.
    paths: HashMap<u64, Box<[u8]>>,
    memory: Memory,
}

impl Inodes {
    /// Those of an image with `data` bytes that are no holes.
    pub(crate) fn of_image(data: u64) -> Self {
        Self { folders: HashSet::new(), paths: HashMap::new(), memory: Memory::of_image(data) }
    }

    /// Takes `bytes` of the memory; false if there are not so many.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        self.memory.take(bytes)
    }

    /// Gives back what was taken.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        self.memory.give_back(bytes);
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
        let mut inodes = Inodes::of_image(1 << 30);
        assert_eq!((inodes.enter(2), inodes.enter(2)), (Ok(()), Err("it is another folder, too")));
        inodes.name(3, b"first");
        inodes.name(4, &[b'x'; LONGEST_TARGET + 1]);
        assert_eq!((inodes.path(3), inodes.path(4)), (Some(&b"first"[..]), None));
        let rest = (256 << 20) - PER_FOLDER - PER_FILE - 5;
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
