//! Blocks of remote objects on disk, shared by all processes of a user.
//!
//! A folder for each object, named after a hash of its URL, and in it one for each version. Some blocks that follow
//! each other share a file, since making files takes longer than writing them. Each has a checksum: a half one, or one
//! whose bits have rotted, is none. So nothing need be synced. The files that were used least recently go first when
//! there is too much.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FlockOperation, OFlags, flock, fstatvfs};
use rustix::process::geteuid;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::known::Known;

/// Bytes of a block. Small enough that samples of an archive do not fetch much of it, and large enough that a request
/// is worth its while.
pub(crate) const BLOCK: u64 = 128 << 10;

/// Blocks of one file: 2 MiB.
const TOGETHER: u64 = 16;

/// What each block of a file has at the file's beginning: this, and its checksum. Zeros are none. Then come the blocks,
/// each at its place, whichever are there.
const MAGIC: &[u8; 8] = b"tarnfsB2";
const HEAD: u64 = 16;
const HEADS: u64 = 4096;

/// What of an object's folder is remembered of it.
const KNOWN: &str = "known";
/// The file in a version's folder that is locked.
const LOCK: &str = "lock";

/// Says to programs that make backups, too, that this can be made again (<https://bford.info/cachedir/>).
const TAG: &str = "CACHEDIR.TAG";
const TAG_TEXT: &str = "Signature: 8a477f597d28d172789f06886806bc55\n# Blocks of archives behind URLs, which tarnfs removes as it needs room.\n";

/// Whose files seem to be that belong to nobody in a container.
const NOBODY: u32 = 65534;

/// Files under a temporary name are of somebody who has ended when nothing was written to them for so long: who waits
/// for a server has an error earlier.
const OLD: Duration = Duration::from_secs(300);

/// A block that was used in this time need not be marked again.
const RECENT: Duration = Duration::from_secs(60);

/// A folder of blocks, bounded in bytes.
#[derive(Debug)]
pub struct BlockCache {
    folder: File,
    limit: Option<u64>,
    /// Bytes that this process has written since it last looked at how many there are.
    written: AtomicU64,
}

impl BlockCache {
    /// Bytes of all blocks, unless another limit is given or a tenth of what is free is less.
    pub const MOST: u64 = 2 << 30;

    /// Opens the folder, and makes it if need be. It must be this user's own, and nobody else may write to it, or put
    /// another one in its place. As files in it are removed, it must be none that was made for something else.
    pub fn open(path: &Path, limit: Option<u64>) -> io::Result<Self> {
        let refused = |what: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        if path.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
            return refused(format!("{} is a symbolic link", path.display()));
        }
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let folder = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
        let found = folder.metadata()?;
        let me = geteuid().as_raw();
        if found.uid() != me || found.mode() & 0o022 != 0 {
            return refused(format!("{} belongs to user {}, or others may write to it", path.display(), found.uid()));
        }
        // Root may have the home folder of somebody else, who could make any folder be this one.
        let real = fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd()))?;
        for above in real.ancestors().skip(1) {
            let found = above.metadata()?;
            let is_of_another = ![me, 0, NOBODY].contains(&found.uid());
            if is_of_another || found.mode() & 0o1002 == 0o002 {
                let what = format!("{} belongs to user {}, or all may write to it", above.display(), found.uid());
                return refused(what);
            }
        }
        mark(&folder).map_err(|error| {
            let what = format!("{} is not taken for a cache: {error}", path.display());
            io::Error::new(error.kind(), what)
        })?;
        // What is there may be more than is allowed by now.
        Ok(Self { folder, limit, written: AtomicU64::new(u64::MAX / 2) })
    }

    /// What leads to the folder, whatever becomes of its path, as long as this is there.
    pub fn folder(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.folder.as_raw_fd()))
    }

    /// What leads to the file of this name, whatever becomes of the folder's path.
    fn at(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// What is remembered of the object of this key.
    pub(crate) fn known(&self, key: &str) -> Option<Known> {
        let mut text = String::new();
        let file = open(&self.at(key).join(KNOWN)).ok()?;
        file.take(1 << 16).read_to_string(&mut text).ok()?;
        Known::from_text(&text)
    }

    /// Remembers it.
    pub(crate) fn remember(&self, key: &str, known: &Known) -> io::Result<()> {
        let folder = self.at(key);
        make_folder(&folder)?;
        write(&folder.join(KNOWN), &[known.to_text().as_bytes()])
    }

    /// The blocks of a version of an object.
    pub(crate) fn version(self: &Arc<Self>, key: &str, version: &str) -> io::Result<Blocks> {
        let folder = self.at(key);
        make_folder(&folder)?;
        let folder = folder.join(version);
        make_folder(&folder)?;
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(folder.join(LOCK))?;
        let folder = OpenOptions::new().read(true).custom_flags(OFlags::DIRECTORY.bits() as i32).open(folder)?;
        let fleeting = is_fleeting(version).then(|| (key.to_owned(), version.to_owned()));
        Ok(Blocks { cache: Arc::clone(self), folder, lock, fleeting })
    }

    /// Where a whole file lies that belongs to the object of this key.
    pub(crate) fn file(&self, key: &str, name: &str) -> io::Result<PathBuf> {
        let folder = fs::read_link(self.folder())?.join(key);
        make_folder(&folder)?;
        Ok(folder.join(name))
    }

    /// Writes such a file, of `length` bytes, with what `read` puts into a buffer.
    pub(crate) fn import(
        &self,
        path: &Path,
        length: u64,
        mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<()> {
        self.makes_room(length);
        let temporary = temporary(path);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
        let written = file.and_then(|mut file| {
            let (mut buffer, mut left) = (vec![0; 2 << 20], length);
            while left > 0 {
                let most = left.min(buffer.len() as u64) as usize;
                match read(&mut buffer[..most])? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    count => {
                        file.write_all(&buffer[..count])?;
                        left -= count as u64;
                    }
                }
            }
            // What is read of it has no checksum of ours.
            file.sync_data()?;
            fs::rename(&temporary, path)
        });
        written.inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })
    }

    fn limit(&self) -> u64 {
        self.limit.unwrap_or_else(|| Self::MOST.min(self.free() / 10))
    }

    /// Bytes that are free where it lies.
    fn free(&self) -> u64 {
        fstatvfs(&self.folder).map_or(0, |of| of.f_bavail.saturating_mul(of.f_frsize))
    }

    /// Bytes that may be written at most: what is free, but for a little, and what all others here have.
    pub(crate) fn room(&self) -> u64 {
        let (mut sum, mut files) = (0, Vec::new());
        for object in folders_in(&self.at(".")).unwrap_or_default() {
            for version in folders_in(&object).unwrap_or_default() {
                let _ = gather(&version, true, &mut sum, &mut files);
            }
        }
        let free = self.free();
        (free - free / 32).saturating_add(sum)
    }

    /// Bytes that one file may have, so that not all others go for it.
    pub(crate) fn most_of_a_file(&self) -> u64 {
        self.limit().min(self.free()) / 2
    }

    /// Bytes that are about to be written: now and then, room is made before.
    pub(crate) fn makes_room(&self, bytes: u64) {
        let limit = self.limit();
        let written = self.written.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if written <= limit / 32 {
            return;
        }
        self.written.store(0, Ordering::Relaxed);
        if let Err(error) = self.trim(limit.saturating_sub(limit / 16).saturating_sub(bytes)) {
            log::debug!("the cache of remote blocks: {error}");
        }
    }

    /// Removes what was used least recently until the rest has `most` bytes. Not of a version that is held.
    fn trim(&self, most: u64) -> io::Result<()> {
        let mut files = Vec::new();
        let mut sum = 0_u64;
        for object in folders_in(&self.at("."))? {
            for version in folders_in(&object)? {
                let is_held = open(&version.join(LOCK))
                    .is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err());
                let age =
                    version.metadata().and_then(|found| found.modified()).map(|at| at.elapsed().unwrap_or_default());
                // Whoever made it was killed.
                if !is_held
                    && version.file_name().and_then(|name| name.to_str()).is_some_and(is_fleeting)
                    && age.is_ok_and(|age| age >= OLD)
                {
                    let _ = fs::remove_dir_all(&version);
                    continue;
                }
                gather(&version, is_held, &mut sum, &mut files)?;
            }
            gather(&object, false, &mut sum, &mut files)?;
        }
        files.sort_unstable();
        for (_, bytes, path) in files {
            if sum <= most {
                break;
            }
            match fs::remove_file(&path) {
                Ok(()) => sum = sum.saturating_sub(bytes),
                Err(error) if error.kind() == io::ErrorKind::NotFound => sum = sum.saturating_sub(bytes),
                Err(error) => log::debug!("{}: {error}", path.display()),
            }
        }
        Ok(())
    }
}

/// Marks a folder as one in which files may be removed, unless others have put something else there.
fn mark(folder: &File) -> io::Result<()> {
    let at = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    let is_marked = || {
        let mut text = String::new();
        let read = open(&at.join(TAG)).and_then(|file| file.take(1 << 10).read_to_string(&mut text));
        read.is_ok() && text == TAG_TEXT
    };
    if is_marked() {
        return Ok(());
    }
    // Another process may be at it, or was killed then.
    let is_of_mark = |name: &std::ffi::OsStr| {
        let of = name.to_str().and_then(|name| name.strip_prefix('.')?.strip_prefix(TAG)?.strip_prefix('.'));
        name == TAG || of.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
    };
    let mut is_empty = true;
    for entry in fs::read_dir(&at)? {
        is_empty &= is_of_mark(&entry?.file_name());
    }
    if is_empty && !at.join(TAG).exists() {
        write(&at.join(TAG), &[TAG_TEXT.as_bytes()])?;
    }
    // Another process may just have done it.
    if is_marked() { Ok(()) } else { Err(io::Error::other("there are files of something else in it")) }
}

/// True of the name of a version that nobody can find again ([`crate::backend::Version::name`]).
fn is_fleeting(version: &str) -> bool {
    version.contains('-')
}

/// True of what folders of objects and of versions are called, and files of blocks and copies.
fn is_name(name: &std::ffi::OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let name = name.strip_suffix(b".sqlite").unwrap_or(name);
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte) || *byte == b'-')
}

/// The folders in a folder, but for links.
fn folders_in(path: &Path) -> io::Result<Vec<PathBuf>> {
    let folders = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        folders => folders?,
    };
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    Ok(folders
        .flatten()
        .filter(|entry| is_folder(entry) && is_name(&entry.file_name()))
        .map(|entry| entry.path())
        .collect())
}

/// Files in a folder: their bytes go to `sum`, and those that may be removed to `files`, the oldest first.
fn gather(folder: &Path, is_held: bool, sum: &mut u64, files: &mut Vec<(SystemTime, u64, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)?.flatten() {
        let Ok(found) = entry.metadata().and_then(|found| Ok((found.modified()?, found))) else { continue };
        let (modified, found) = found;
        if !found.is_file() {
            continue;
        }
        let name = entry.file_name();
        let is_temporary = is_temporary(&name);
        if !is_temporary && !is_name(&name) && name != LOCK && name != KNOWN {
            continue;
        }
        if is_temporary && modified.elapsed().unwrap_or_default() >= OLD {
            let _ = fs::remove_file(entry.path());
            continue;
        }
        // Of what the file system takes for it.
        let bytes = found.blocks().saturating_mul(512);
        *sum = sum.saturating_add(bytes);
        if !is_temporary && !is_held && name != LOCK && name != KNOWN {
            files.push((modified, bytes, entry.path()));
        }
    }
    Ok(())
}

fn make_folder(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)
}

/// A name that nobody else has, beside `path`.
fn temporary(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    path.with_file_name(format!(".{name}.{}.{number}", std::process::id()))
}

/// True of a name as [`temporary`] makes it.
fn is_temporary(name: &std::ffi::OsStr) -> bool {
    let is_number = |part: Option<&str>| {
        part.is_some_and(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let mut parts = name.to_str().and_then(|name| name.strip_prefix('.')).unwrap_or_default().rsplitn(3, '.');
    let are_numbers = is_number(parts.next()) && is_number(parts.next());
    are_numbers && parts.next().is_some_and(|name| name == KNOWN || is_name(name.as_ref()))
}

/// Writes a file under a name of its own, and renames it: nobody ever sees half of it.
fn write(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let temporary = temporary(path);
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary).and_then(|mut file| {
        parts.iter().try_for_each(|part| file.write_all(part))?;
        fs::rename(&temporary, path)
    });
    written.inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

/// Blocks of one version of an object.
#[derive(Debug)]
pub(crate) struct Blocks {
    cache: Arc<BlockCache>,
    folder: File,
    lock: File,
    /// Object and version, if nobody will find it again.
    fleeting: Option<(String, String)>,
}

impl Drop for Blocks {
    fn drop(&mut self) {
        self.end();
    }
}

impl Blocks {
    /// Nobody reads them any more: those that nobody will find again are removed.
    pub(crate) fn end(&self) {
        if let Some((key, version)) = &self.fleeting {
            let _ = fs::remove_dir_all(self.cache.at(key).join(version));
        }
    }

    /// The file that a block is in.
    fn path(&self, number: u64) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{:x}", self.folder.as_raw_fd(), number / TOGETHER))
    }

    /// The block of this number and length, if it is there and whole.
    pub(crate) fn get(&self, number: u64, length: usize) -> Option<Vec<u8>> {
        let file = open(&self.path(number)).ok()?;
        let found = file.metadata().ok().filter(fs::Metadata::is_file)?;
        let head = head(&file, number)?;
        let mut bytes = vec![0; length];
        let read = file.read_exact_at(&mut bytes, place(number));
        if read.is_err() || head[..] != of_block(number, &bytes) {
            log::info!("a block of the cache is damaged, and is fetched again");
            let flags = OFlags::NOFOLLOW.bits() as i32;
            let file = OpenOptions::new().write(true).custom_flags(flags).open(self.path(number));
            let _ = file.and_then(|file| file.write_all_at(&[0; HEAD as usize], at(number)));
            return None;
        }
        if found.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > RECENT)) {
            let _ = file.set_modified(SystemTime::now());
        }
        Some(bytes)
    }

    /// True if there is such a block. Whether it is whole is not known.
    pub(crate) fn has(&self, number: u64, length: usize) -> bool {
        open(&self.path(number)).is_ok_and(|file| {
            let end = place(number) + length as u64;
            file.metadata().is_ok_and(|found| found.is_file() && found.len() >= end) && head(&file, number).is_some()
        })
    }

    /// Keeps a block. Where that fails, as on a full disk, it is not kept.
    pub(crate) fn put(&self, number: u64, bytes: &[u8]) -> io::Result<()> {
        self.cache.makes_room(HEAD + bytes.len() as u64);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(self.path(number))?;
        // Who reads meanwhile sees that there is none, or what was there.
        file.write_all_at(bytes, place(number))?;
        file.write_all_at(&of_block(number, bytes), at(number))
    }

    /// No block goes to make room as long as this is there.
    pub(crate) fn hold(&self) -> io::Result<()> {
        Ok(flock(&self.lock, FlockOperation::LockShared)?)
    }

    /// The right to fetch these blocks: other processes wait, and find them here. Without it once the `deadline` has
    /// come, or where the file system has no locks: then they may be fetched twice.
    pub(crate) fn turn(&self, blocks: &Range<u64>, deadline: Instant) -> Option<Turn<'_>> {
        const SHORT: Duration = Duration::from_millis(2);
        const LONG: Duration = Duration::from_millis(50);
        let mut pause = SHORT;
        loop {
            match self.set_lock(blocks, libc_lock::WRITE) {
                Ok(()) => return Some(Turn { blocks: self, range: blocks.clone() }),
                Err(error) if is_taken(&error) && Instant::now() < deadline => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(LONG);
                }
                Err(_) => return None,
            }
        }
    }

    fn set_lock(&self, blocks: &Range<u64>, kind: libc_lock::Kind) -> io::Result<()> {
        libc_lock::set(&self.lock, blocks, kind)
    }
}

/// Where in its file a block's checksum is.
fn at(number: u64) -> u64 {
    number % TOGETHER * HEAD
}

/// Where the block itself is.
fn place(number: u64) -> u64 {
    HEADS + number % TOGETHER * BLOCK
}

/// What stands there of a block with these bytes.
fn of_block(number: u64, bytes: &[u8]) -> [u8; HEAD as usize] {
    let mut head = [0; HEAD as usize];
    head[..8].copy_from_slice(MAGIC);
    head[8..].copy_from_slice(&xxh3_64_with_seed(bytes, number).to_le_bytes());
    head
}

/// What stands there, if it is of a block.
fn head(file: &File, number: u64) -> Option<[u8; HEAD as usize]> {
    let mut head = [0; HEAD as usize];
    file.read_exact_at(&mut head, at(number)).ok()?;
    head.starts_with(MAGIC).then_some(head)
}

fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::PermissionDenied)
}

/// See [`Blocks::turn`].
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    blocks: &'a Blocks,
    range: Range<u64>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let _ = self.blocks.set_lock(&self.range, libc_lock::NONE);
    }
}

/// Locks of parts of a file that belong to who has it open. rustix has only those that belong to a process.
#[allow(unsafe_code, reason = "fcntl(2) with a structure")]
mod libc_lock {
    use std::fs::File;
    use std::io;
    use std::ops::Range;
    use std::os::fd::AsRawFd as _;

    pub(super) type Kind = libc::c_int;
    pub(super) const WRITE: Kind = libc::F_WRLCK;
    pub(super) const NONE: Kind = libc::F_UNLCK;

    pub(super) fn set(file: &File, range: &Range<u64>, kind: Kind) -> io::Result<()> {
        // SAFETY: all of its fields are numbers, for which zero is one.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        lock.l_start = range.start as libc::off_t;
        lock.l_len = (range.end - range.start) as libc::off_t;
        // SAFETY: the structure outlives the call, which only reads it.
        match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(limit: u64) -> (tempfile::TempDir, Arc<BlockCache>) {
        let scratch = tempfile::tempdir().unwrap();
        let cache = BlockCache::open(&scratch.path().join("remote"), Some(limit)).unwrap();
        (scratch, Arc::new(cache))
    }

    #[test]
    fn a_block_that_is_not_whole_is_none() {
        let (_scratch, cache) = cache(1 << 30);
        let blocks = cache.version("0b", "7e").unwrap();
        assert_eq!(blocks.get(7, 3), None);
        blocks.put(7, b"abc").unwrap();
        assert_eq!(blocks.get(7, 3).unwrap(), b"abc");
        assert!(blocks.has(7, 3));
        let stored = fs::read(blocks.path(7)).unwrap();
        let (head, data) = (at(7) as usize, place(7) as usize);
        for byte in (head..head + HEAD as usize).chain(data..data + 3) {
            let mut wrong = stored.clone();
            wrong[byte] ^= 1;
            fs::write(blocks.path(7), &wrong).unwrap();
            assert_eq!(blocks.get(7, 3), None, "byte {byte}");
            // It is not looked at again.
            assert!(!blocks.has(7, 3));
        }
        for end in [0, 1, head, head + 9, HEADS as usize, data, data + 2] {
            fs::write(blocks.path(7), &stored[..end]).unwrap();
            assert_eq!(blocks.get(7, 3), None, "cut at {end}");
        }
        // Of another length, and one that lies at another number, in this file and in another one.
        fs::write(blocks.path(7), &stored).unwrap();
        assert_eq!((blocks.get(6, 3), blocks.get(7, 2)), (None, None));
        blocks.put(7, b"abc").unwrap();
        assert_eq!(blocks.get(7, 3).unwrap(), b"abc");
        fs::copy(blocks.path(7), blocks.path(7 + TOGETHER)).unwrap();
        assert_eq!(blocks.get(7 + TOGETHER, 3), None);
        // Neighbours stay.
        blocks.put(8, b"de").unwrap();
        assert_eq!((blocks.get(7, 3).unwrap(), blocks.get(8, 2).unwrap()), (b"abc".to_vec(), b"de".to_vec()));
    }

    #[test]
    fn what_was_used_least_recently_makes_room_and_what_is_held_stays() {
        let (_scratch, cache) = cache(64 * 100_000);
        let (held, other) = (cache.version("a", "1").unwrap(), cache.version("b", "1").unwrap());
        held.hold().unwrap();
        for number in 0..10 {
            held.put(number * TOGETHER, &vec![1; 100_000]).unwrap();
        }
        // Each in a file of its own.
        for number in 0..200 {
            other.put(number * TOGETHER, &vec![2; 100_000]).unwrap();
            let age = Duration::from_secs(10_000 - number);
            open(&other.path(number * TOGETHER)).unwrap().set_modified(SystemTime::now() - age).unwrap();
            // Used again.
            if number > 0 {
                assert!(other.get(0, 100_000).is_some());
            }
        }
        let left: Vec<_> = (0..200).filter(|&number| other.has(number * TOGETHER, 100_000)).collect();
        assert!((40..=56).contains(&left.len()), "{left:?}");
        assert_eq!(left[0], 0);
        assert!(left[1] > 140 && left.ends_with(&[199]), "{left:?}");
        assert!((0..10).all(|number| held.has(number * TOGETHER, 100_000)));
    }

    #[test]
    fn who_waits_for_blocks_gets_them_when_they_are_there() {
        let (_scratch, cache) = cache(1 << 30);
        let (one, two) = (cache.version("a", "1").unwrap(), cache.version("a", "1").unwrap());
        let late = Instant::now() + Duration::from_secs(60);
        let turn = one.turn(&(3..6), late).unwrap();
        assert!(two.turn(&(5..9), Instant::now()).is_none());
        assert!(two.turn(&(6..9), Instant::now()).is_some());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| two.turn(&(5..9), late).is_some());
            one.put(5, b"x").unwrap();
            drop(turn);
            assert!(waits.join().unwrap());
        });
        assert_eq!(two.get(5, 1).unwrap(), b"x");
    }

    #[test]
    fn a_folder_of_somebody_else_is_not_used() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("remote");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!(BlockCache::open(&path, None).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        // Nor one that anybody may put there.
        let above = scratch.path().join("above");
        fs::create_dir(&above).unwrap();
        fs::set_permissions(&above, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!(BlockCache::open(&above.join("remote"), None).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn files_of_something_else_are_never_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let (data, link) = (scratch.path().join("data"), scratch.path().join("remote"));
        fs::create_dir_all(data.join("docs/2026")).unwrap();
        fs::write(data.join("docs/thesis"), vec![1; 3_000_000]).unwrap();
        std::os::unix::fs::symlink(&data, &link).unwrap();
        for path in [&link, &data] {
            let error = BlockCache::open(path, Some(1 << 20)).unwrap_err();
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        }
        // Nor if they come there later.
        let path = scratch.path().join("new");
        let cache = Arc::new(BlockCache::open(&path, Some(1 << 20)).unwrap());
        let blocks = cache.version("ab", "cd").unwrap();
        let names = ["docs/thesis", "ab/thesis", "ab/docs/thesis", "ab/cd/thesis", "ab/cd/.thesis", "ab/.x.1.2"];
        let long_ago = SystemTime::now() - Duration::from_secs(100_000);
        for name in names {
            fs::create_dir_all(path.join(name).parent().unwrap()).unwrap();
            fs::write(path.join(name), vec![1; 1_000_000]).unwrap();
            File::options().write(true).open(path.join(name)).unwrap().set_modified(long_ago).unwrap();
        }
        fs::write(path.join("ab/cd/.1f.7.8"), "half").unwrap();
        File::options().write(true).open(path.join("ab/cd/.1f.7.8")).unwrap().set_modified(long_ago).unwrap();
        for number in 0..40 {
            blocks.put(number * TOGETHER, &vec![2; 100_000]).unwrap();
        }
        assert!(names.iter().all(|name| path.join(name).exists()));
        assert!(!path.join("ab/cd/.1f.7.8").exists());
        assert!((0..40).filter(|&number| blocks.has(number * TOGETHER, 100_000)).count() < 12);
        // Another process takes it for what it is.
        assert!(BlockCache::open(&path, None).is_ok());
        // One was killed before it had marked a folder.
        let half = scratch.path().join("half");
        fs::create_dir(&half).unwrap();
        fs::write(half.join(format!(".{TAG}.123.0")), "").unwrap();
        assert!(BlockCache::open(&half, None).is_ok());
        let other = scratch.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join(TAG), "mine").unwrap();
        assert!(BlockCache::open(&other, None).is_err());
    }
}
