//! Files of decoded pieces, of archives in which random reads are dear: in one folder, bounded in bytes.

use std::fs::{DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock, fstat, statvfs};
use tarnfs_codec::engine::{DecodedFile, SpillFile};
use tarnfs_index::{Archive, trust};

/// A folder of such files. The one that was used least recently goes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedCache {
    folder: PathBuf,
    /// Bytes of all files in it; `None` for [`DecodedCache::MOST`], or a tenth of what is free if that is less.
    limit: Option<u64>,
}

/// What ends the names of files that are whole, and of those that are being written.
const SUFFIX: &str = ".decoded";
const PART: &str = ".part";

impl DecodedCache {
    /// Bytes that the files may have together, unless another limit is given.
    pub const MOST: u64 = 2 << 30;

    /// The files in `folder`, which is made when it is needed: at most `limit` bytes.
    pub fn new(folder: PathBuf, limit: Option<u64>) -> Self {
        Self { folder, limit }
    }

    /// The file of what `codec` makes of `archive`, if there is one that nobody else could have written.
    pub(crate) fn open(&self, archive: &Archive, codec: &str) -> Option<DecodedFile> {
        let path = self.path(archive, codec);
        let file = match trust::open(&path, None, false) {
            Ok(file) => file,
            Err(tarnfs_index::Error::Missing) => return None,
            Err(error) => {
                log::warn!("decoded pieces are not used: {error}");
                return None;
            }
        };
        // Used now: others go before it.
        if let Err(error) = file.set_modified(SystemTime::now()) {
            log::debug!("{}: {error}", path.display());
        }
        DecodedFile::open(file).inspect_err(|error| log::info!("{}: {error}", path.display())).ok()
    }

    /// Where the first pass puts what it keeps.
    pub(crate) fn spill_file(&self, archive: &Archive, codec: &str) -> Box<dyn SpillFile> {
        Box::new(Part { cache: self.clone(), destination: self.path(archive, codec), path: None, granted: 0 })
    }

    fn path(&self, archive: &Archive, codec: &str) -> PathBuf {
        self.folder.join(format!("{:016x}-{:x}.{codec}{SUFFIX}", archive.fingerprint.0, archive.length))
    }

    fn limit(&self) -> u64 {
        self.limit.unwrap_or_else(|| {
            let free = statvfs(&self.folder).map_or(0, |of| of.f_bavail.saturating_mul(of.f_frsize));
            Self::MOST.min(free / 10)
        })
    }

    /// Removes files until the rest, without the part `own`, has at most `bytes`, and what killed processes have left.
    /// False (and no whole file is removed) if what others are writing has more.
    fn shrink_to(&self, bytes: u64, own: Option<&Path>) -> io::Result<bool> {
        let mut files = Vec::new();
        let mut of_parts = 0_u64;
        for entry in self.folder.read_dir()? {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name());
            let has_suffix = |suffix| name.to_str().is_some_and(|name| name.ends_with(suffix));
            // It may be gone by now.
            let Ok(metadata) = entry.metadata() else { continue };
            if !metadata.is_file() {
                continue;
            }
            if has_suffix(PART) {
                if own != Some(&*path) && !is_removed_as_left_over(&path) {
                    of_parts = of_parts.saturating_add(metadata.len());
                }
            } else if has_suffix(SUFFIX) {
                files.push((metadata.modified()?, metadata.len(), path));
            }
        }
        if of_parts > bytes {
            return Ok(false);
        }
        files.sort();
        let mut sum = files.iter().fold(of_parts, |sum, (_, length, _)| sum.saturating_add(*length));
        for (_, length, path) in files {
            if sum <= bytes {
                break;
            }
            log::debug!("{} makes room", path.display());
            match std::fs::remove_file(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            sum = sum.saturating_sub(length);
        }
        Ok(true)
    }
}

/// Whoever writes one holds a lock on it.
fn is_removed_as_left_over(path: &Path) -> bool {
    let removed = OpenOptions::new().read(true).open(path).and_then(|file| {
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        std::fs::remove_file(path)
    });
    match removed {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => {
            log::debug!("{}: {error}", path.display());
            false
        }
    }
}

/// Locks a part that was just made; false if somebody took it for left over before it was locked: then it is gone, or
/// about to be.
fn is_ours(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
        // Where there are no locks, nobody takes it for left over, either.
        Err(error) => log::debug!("a lock on a file of decoded pieces: {error}"),
    }
    Ok(fstat(file)?.st_nlink == 1)
}

/// A file that gets its name when it is whole; removed when dropped before.
#[derive(Debug)]
struct Part {
    cache: DecodedCache,
    destination: PathBuf,
    path: Option<PathBuf>,
    /// Bytes for which room has been made.
    granted: u64,
}

impl SpillFile for Part {
    fn file(&mut self) -> io::Result<File> {
        let folder = &self.cache.folder;
        // As the XDG base directory specification asks for folders of its kind.
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        for _ in 0..16 {
            let random = RandomState::new().hash_one(std::process::id());
            let path = folder.join(format!("{random:016x}{PART}"));
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            if is_ours(&file)? {
                self.path = Some(path);
                return Ok(file);
            }
        }
        Err(io::Error::other(format!("{}: each new file there is removed by somebody else", folder.display())))
    }

    fn has_room(&mut self, length: u64) -> bool {
        /// Room is made for so many bytes at once, or for a small part of all.
        const STEP: u64 = 64 << 20;
        if length <= self.granted {
            return true;
        }
        let limit = self.cache.limit();
        let wanted = length.saturating_add(STEP.min(limit / 16)).min(limit);
        if length > limit {
            return false;
        }
        match self.cache.shrink_to(limit - wanted, self.path.as_deref()) {
            Ok(true) => self.granted = wanted,
            Ok(false) => log::info!("{}: others write as much as there may be", self.cache.folder.display()),
            Err(error) => log::info!("{}: cannot make room: {error}", self.cache.folder.display()),
        }
        length <= self.granted
    }

    fn finished(mut self: Box<Self>) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        std::fs::rename(path, &self.destination)?;
        log::debug!("decoded pieces are kept in {}", self.destination.display());
        self.path = None;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(path) = &self.path
            && let Err(error) = std::fs::remove_file(path)
        {
            log::info!("{} is left over: {error}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::time::Duration;

    use tarnfs_source::Fingerprint;

    fn archive(number: u64) -> Archive {
        Archive { length: number, fingerprint: Fingerprint(number), modified: 0 }
    }

    /// Puts `length` bytes of no meaning into the cache.
    fn put(cache: &DecodedCache, number: u64, length: u64) -> bool {
        let mut spill_file = cache.spill_file(&archive(number), "toy");
        let mut file = spill_file.file().unwrap();
        if !spill_file.has_room(length) {
            return false;
        }
        file.write_all(&vec![0; length as usize]).unwrap();
        spill_file.finished().unwrap();
        true
    }

    fn names(cache: &DecodedCache) -> Vec<String> {
        let files = cache.folder.read_dir().unwrap();
        let mut names: Vec<_> = files.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_was_used_least_recently_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DecodedCache::new(folder.path().join("a/b"), Some(1000));
        for number in 1..=3 {
            assert!(put(&cache, number, 300));
            let age = Duration::from_secs(1000 - number);
            let file = File::open(cache.path(&archive(number), "toy")).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        }
        // These bytes are none of ours, but asking for them is a use.
        assert!(cache.open(&archive(1), "toy").is_none());
        assert!(put(&cache, 4, 300));
        assert_eq!(names(&cache), [1, 3, 4].map(|number| format!("{number:016x}-{number}.toy.decoded")));
        assert!(!put(&cache, 5, 1001), "more than there may ever be");
        assert_eq!(names(&cache).len(), 3, "nothing makes room for what is not kept, and no part is left");
    }

    #[test]
    fn parts_of_the_dead_are_removed_and_those_of_the_living_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DecodedCache::new(folder.path().to_path_buf(), Some(1000));
        std::fs::write(folder.path().join("0123.part"), "left over").unwrap();
        std::fs::write(folder.path().join("other"), "none of ours").unwrap();
        let mut living = cache.spill_file(&archive(1), "toy");
        let _written = living.file().unwrap();
        assert!(put(&cache, 2, 10));
        let left = names(&cache);
        assert_eq!(left.len(), 3, "{left:?}");
        assert!(!left.contains(&"0123.part".to_owned()));
        drop(living);
        assert_eq!(names(&cache).len(), 2);
    }

    /// Between making a part and locking it, another process may take it for left over.
    #[test]
    fn a_part_that_was_taken_for_left_over_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0123.part");
        let file = File::create(&path).unwrap();
        let other = File::open(&path).unwrap();
        flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(!is_ours(&file).unwrap(), "locked by the one who removes it");
        drop(other);
        assert!(is_ours(&file).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(!is_ours(&file).unwrap(), "without a name");
    }

    #[test]
    fn whoever_makes_room_takes_no_part_that_is_being_made() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DecodedCache::new(folder.path().to_path_buf(), Some(1000));
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = cache.shrink_to(1000, None);
                }
            });
            for number in 0..1000 {
                let mut spill_file = cache.spill_file(&archive(number), "toy");
                let finished = spill_file.file().and_then(|_| spill_file.finished());
                if finished.is_err() {
                    done.store(true, std::sync::atomic::Ordering::Relaxed);
                }
                finished.unwrap();
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }

    /// What others are writing counts, and nothing that is whole makes room in vain.
    #[test]
    fn parts_of_others_take_room() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DecodedCache::new(folder.path().to_path_buf(), Some(1000));
        assert!(put(&cache, 1, 200));
        let mut living = cache.spill_file(&archive(2), "toy");
        let mut file = living.file().unwrap();
        assert!(living.has_room(600));
        file.write_all(&[0; 600]).unwrap();
        assert!(!put(&cache, 3, 500));
        assert_eq!(names(&cache).len(), 2);
        assert!(put(&cache, 3, 300), "the one that is whole makes room");
        assert!(!cache.path(&archive(1), "toy").exists());
        living.finished().unwrap();
    }
}
