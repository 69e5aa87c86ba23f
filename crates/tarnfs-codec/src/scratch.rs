use std::fs::File;
use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tarnfs_source::temporary_file;

/// Empty files without a name, on a disk, that decoders borrow whose state outgrows the memory they may take, and
/// copies of what is slow to decode at a random place.
///
/// Files can only be made while the process may still do so, and a mount gives that up: what may be needed then is made
/// before. Clones share them.
#[derive(Debug, Clone)]
pub struct Scratch {
    shared: Arc<Shared>,
    /// There are copies.
    copies: bool,
    /// What is decoded comes onto a disk only where nobody can read it there.
    secret: bool,
}

#[derive(Debug, Default)]
struct Shared {
    files: Mutex<Vec<Arc<File>>>,
    /// Bytes of all copies together, and how many there are.
    copied: AtomicU64,
    copies: AtomicUsize,
}

/// So many files are made: those for decoders, and one for each of so many copies.
const FILES: usize = 16;

/// Of these files, so many are not lent for copies: as many decoders as there can be at once that hold the memory which
/// comes before a file, where memory is limited to what is usual. Others have to do with memory alone.
const NOT_FOR_COPIES: usize = 4;

/// Copies at most, also where files can be made at any time: each keeps a descriptor.
const MOST_COPIES: usize = FILES - NOT_FOR_COPIES;

/// Bytes that all copies take together at most: four of the longest solid blocks that 7-Zip makes by itself. Each takes
/// at most a part of the space that is free, too.
const MOST_COPIED: u64 = 16 << 30;

impl Default for Scratch {
    fn default() -> Self {
        Self { shared: Arc::default(), copies: true, secret: false }
    }
}

impl Scratch {
    /// Makes some files, if they can be made: for all that share them, and may not make any later. Others may borrow
    /// meanwhile.
    pub fn fill(&self) {
        while self.lock().len() < FILES {
            match temporary_file() {
                Ok(file) => self.add(Arc::new(file)),
                Err(error) => return log::debug!("no files to borrow: {error}"),
            }
        }
    }

    fn add(&self, file: Arc<File>) {
        let mut files = self.lock();
        if files.len() < FILES {
            files.push(file);
        }
    }

    /// The same files, but none of them is for copies of what was decoded: it must not come onto a disk, or is read
    /// only once.
    #[must_use]
    pub fn without_copies(&self) -> Self {
        Self { copies: false, ..self.clone() }
    }

    /// The same files, but what is decoded is secret: copies are encrypted, and decoders are lent nothing.
    #[must_use]
    pub fn for_secrets(&self) -> Self {
        Self { secret: true, ..self.clone() }
    }

    /// True if whoever borrows a file for a copy has to encrypt it.
    pub(crate) fn is_secret(&self) -> bool {
        self.secret
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<File>>> {
        self.shared.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Files that nobody has borrowed.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.lock().len()
    }

    /// One of the files, or one that is made now. It is given back when it is dropped.
    pub(crate) fn borrow(&self) -> io::Result<Borrowed> {
        if self.secret {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "what a password opens is not put on a disk"));
        }
        let file = self.lock().pop();
        let file = file.map_or_else(|| temporary_file().map(Arc::new), Ok)?;
        Ok(Borrowed { file, home: self.clone(), copied: 0 })
    }

    /// The same for a copy of `length` bytes, which is encrypted if it is of what is secret. `None` if there is no file
    /// for it, or there are too many copies.
    pub(crate) fn borrow_for_copy(&self, length: u64) -> Option<Borrowed> {
        if !self.copies || length == 0 {
            return None;
        }
        let more = |copied: u64| copied.checked_add(length).filter(|&copied| copied <= MOST_COPIED);
        self.shared.copied.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        let more = |copies: usize| (copies < MOST_COPIES).then_some(copies + 1);
        if self.shared.copies.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            self.shared.copied.fetch_sub(length, Ordering::Relaxed);
            return None;
        }
        let file = {
            let mut files = self.lock();
            if files.len() > NOT_FOR_COPIES { files.pop() } else { None }
        };
        let made = || temporary_file().map(Arc::new).inspect_err(|error| log::debug!("nothing is copied: {error}"));
        let Some(file) = file.or_else(|| made().ok()) else {
            self.shared.copied.fetch_sub(length, Ordering::Relaxed);
            self.shared.copies.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        Some(Borrowed { file, home: self.clone(), copied: length })
    }
}

/// A file that nobody else has.
#[derive(Debug)]
pub(crate) struct Borrowed {
    file: Arc<File>,
    home: Scratch,
    /// Bytes of the copy in it.
    copied: u64,
}

impl Deref for Borrowed {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if self.copied > 0 {
            self.home.shared.copied.fetch_sub(self.copied, Ordering::Relaxed);
            self.home.shared.copies.fetch_sub(1, Ordering::Relaxed);
        }
        // One that keeps its bytes is not lent again.
        if let Err(error) = self.file.set_len(0) {
            return log::debug!("a file that was borrowed cannot be emptied: {error}");
        }
        self.home.add(Arc::clone(&self.file));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    /// Who needs a file while they are made does not wait for all of them.
    #[test]
    fn files_are_made_beside_those_who_borrow() {
        let scratch = Scratch::default();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| scratch.fill());
                scope.spawn(|| drop(scratch.borrow().unwrap()));
            }
        });
        scratch.fill();
        assert_eq!(scratch.waiting(), FILES);
    }

    #[test]
    fn files_come_back_empty() {
        let scratch = Scratch::default();
        scratch.clone().fill();
        let waiting = || scratch.waiting();
        assert_eq!(waiting(), FILES);
        let borrowed: Vec<_> = (0..FILES + 2).map(|_| scratch.clone().borrow().unwrap()).collect();
        assert_eq!(waiting(), 0);
        for file in &borrowed {
            file.write_all_at(b"something", 100).unwrap();
        }
        drop(borrowed);
        assert_eq!(waiting(), FILES);
        assert!(scratch.lock().iter().all(|file| file.metadata().unwrap().len() == 0));
    }

    #[test]
    fn copies_are_bounded_and_leave_files_to_decoders() {
        const COPIES: u64 = MOST_COPIES as u64;
        let scratch = Scratch::default();
        scratch.fill();
        let copies: Vec<_> = (0..COPIES).map(|_| scratch.borrow_for_copy(MOST_COPIED / COPIES).unwrap()).collect();
        assert_eq!(scratch.waiting(), NOT_FOR_COPIES);
        assert!(scratch.borrow_for_copy(1).is_none(), "there are as many as may be");
        drop(copies);
        assert!(scratch.borrow_for_copy(MOST_COPIED).is_some());
        assert!(scratch.borrow_for_copy(MOST_COPIED + 1).is_none());
        assert!(scratch.without_copies().borrow_for_copy(1).is_none());
        assert!(scratch.without_copies().borrow().is_ok());
        let secret = scratch.for_secrets();
        assert!(secret.is_secret() && secret.borrow_for_copy(1).is_some() && secret.clone().borrow().is_err());
        assert!(secret.without_copies().borrow_for_copy(1).is_none());
    }
}
