use std::fs::File;
use std::io;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use tarnfs_source::temporary_file;

/// Empty files without a name, on a disk, that decoders borrow whose state outgrows the memory they may take.
///
/// Files can only be made while the process may still do so, and a mount gives that up: what may be needed then is made
/// before. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Scratch(Arc<Mutex<Vec<Arc<File>>>>);

/// As many decoders as there can be at once that hold the memory which comes before a file, where memory is limited to
/// what is usual. Others have to do with memory alone.
const FILES: usize = 4;

impl Scratch {
    /// Makes some files, if they can be made: for all that share them, and may not make any later.
    pub fn fill(&self) {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while files.len() < FILES {
            match temporary_file() {
                Ok(file) => files.push(Arc::new(file)),
                Err(error) => return log::debug!("no files to borrow: {error}"),
            }
        }
    }

    /// Files that nobody has borrowed.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// One of the files, or one that is made now. It is given back when it is dropped.
    pub(crate) fn borrow(&self) -> io::Result<Borrowed> {
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let file = file.map_or_else(|| temporary_file().map(Arc::new), Ok)?;
        Ok(Borrowed { file, home: self.clone() })
    }
}

/// A file that nobody else has.
#[derive(Debug)]
pub(crate) struct Borrowed {
    file: Arc<File>,
    home: Scratch,
}

impl Deref for Borrowed {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // One that keeps its bytes is not lent again.
        if let Err(error) = self.file.set_len(0) {
            return log::debug!("a file that was borrowed cannot be emptied: {error}");
        }
        let mut files = self.home.0.lock().unwrap_or_else(PoisonError::into_inner);
        if files.len() < FILES {
            files.push(Arc::clone(&self.file));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn files_come_back_empty() {
        let scratch = Scratch::default();
        scratch.clone().fill();
        let waiting = || scratch.waiting();
        assert_eq!(waiting(), FILES);
        let borrowed: Vec<_> = (0..6).map(|_| scratch.clone().borrow().unwrap()).collect();
        assert_eq!(waiting(), 0);
        for file in &borrowed {
            file.write_all_at(b"something", 100).unwrap();
        }
        drop(borrowed);
        assert_eq!(waiting(), FILES);
        assert!(scratch.0.lock().unwrap().iter().all(|file| file.metadata().unwrap().len() == 0));
    }
}
