//! Files of decoded pieces, of archives in which random reads are slow: in one folder, bounded in bytes.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use rustix::fs::{
    AtFlags, FileType, FlockOperation, OFlags, RawDir, SeekFrom, flock, fstatvfs, seek, statat, unlinkat,
};
use rustix::process::geteuid;
use tarnfs_codec::engine::{DecodedFile, DecodedFileWriter, Extended, OpenSpill, PieceSpace};
use tarnfs_index::{Archive, trust};
use tarnfs_source::Budget;

use crate::member_tables::MemberTables;

/// A folder of such files. The one that was used least recently goes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedCache {
    folder: PathBuf,
    /// Bytes of all files in it; `None` for [`DecodedCache::MOST`], or a tenth of what is free if that is less.
    limit: Option<u64>,
    /// See [`DecodedCache::filled_when_idle`].
    pub(crate) is_filled: bool,
}

/// The archive that kept pieces belong to: its bytes, as far as samples tell, and its file. Two archives may have the
/// same samples, and one of them may have been made to have those of the other. So what was decoded of one file is
/// never shown for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptAs {
    hash: u64,
    length: u64,
}

impl KeptAs {
    /// That of `archive` in the file that [`FileFacts::identity`](crate::open::FileFacts) tells; `None` without it.
    pub(crate) fn new(archive: &Archive, identity: Option<u64>) -> Option<Self> {
        // Whoever makes archives behind URLs knows all that goes in.
        let parts = [identity?, archive.fingerprint.0, archive.length].map(u64::to_le_bytes);
        let hash = blake3::hash(parts.as_flattened());
        let hash = hash.as_bytes().first_chunk().map_or(0, |eight| u64::from_le_bytes(*eight));
        Some(Self { hash, length: archive.length })
    }
}

/// A file of decoded pieces, or of seek points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Where it lies.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Decoded bytes that need not be decoded again.
    pub decoded: u64,
}

/// Bytes of memory for what is known of such a file where it is only looked at: that of some million pieces.
const MOST_KNOWN: usize = 256 << 20;

/// What stands for a codec in the name of a file of seek points.
const MEMBERS: &str = "members";

/// What ends the names of the files.
const SUFFIX: &str = ".decoded";

/// Files that may make room for one that is written: half of them those that were used least recently, the other half
/// the largest, as many small ones would make too little room.
const MOST_OTHERS: usize = 64;

/// Before a file is written, the others leave as much room as the limit divided by this.
const ROOM: u64 = 8;

/// Empty files are removed when they are so old: whoever has made a new one may be about to write it.
const OLD: Duration = Duration::from_secs(3600);
const VERY_OLD: Duration = Duration::from_secs(30 * 24 * 3600);

impl DecodedCache {
    /// Bytes that the files may have together, unless another limit is given.
    pub const MOST: u64 = 2 << 30;

    /// The files in `folder`, which is made when it is needed: at most `limit` bytes.
    pub fn new(folder: PathBuf, limit: Option<u64>) -> Self {
        Self { folder, limit, is_filled: false }
    }

    /// What the first pass did not keep is added while the machine is idle: see [`crate::filling`].
    #[must_use]
    pub fn filled_when_idle(self) -> Self {
        Self { is_filled: true, ..self }
    }

    /// The file of what `codec` makes of that archive, if there is one that nobody else could have written. What is
    /// known of its pieces takes memory of `budget`.
    pub(crate) fn open(&self, of: KeptAs, codec: &str, budget: &Budget) -> Option<Arc<DecodedFile>> {
        let path = self.path(of, codec);
        let file = match trust::open(&path, None, false) {
            Ok(file) => file,
            Err(tarnfs_index::Error::Missing) => return None,
            Err(error) => {
                // Of a folder that may not be looked into whoever writes an index says it.
                let is_said =
                    path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
                let level = if is_said { log::Level::Info } else { log::Level::Warn };
                log::log!(level, "decoded pieces are not used: {error}");
                return None;
            }
        };
        is_used(&file, &path);
        Some(DecodedFile::new(file, budget.clone()))
    }

    /// The same, to be added to; it is made if there is none. Nothing is looked at yet. Whatever is needed later is
    /// opened here: a mount gives up opening files.
    pub(crate) fn open_to_write(&self, of: KeptAs, codec: &str, budget: &Budget) -> io::Result<DecodedFileWriter> {
        let folder = self.make_folder()?;
        let name = Self::name(of, codec);
        let path = in_folder(&folder, &name);
        let file = trust::open_to_write(&path).map_err(|error| match error {
            tarnfs_index::Error::Io(error) => error,
            error => io::Error::new(io::ErrorKind::PermissionDenied, error.to_string()),
        })?;
        is_used(&file, &path);
        let space = FileSpace {
            others: self.others(&folder, &name)?,
            own: file.try_clone()?,
            name: name.into(),
            folder,
            cache: self.clone(),
        };
        DecodedFileWriter::new(DecodedFile::new(file, budget.clone()), Box::new(space))
    }

    /// The seek points of members of that archive. What is kept while a program runs is kept by who fills the cache.
    pub(crate) fn members(&self, of: KeptAs) -> Option<MemberTables> {
        let path = self.path(of, MEMBERS);
        let opened = if self.is_filled {
            let folder = self.make_folder().map_err(tarnfs_index::Error::from);
            folder.and_then(|folder| trust::open_to_write(&in_folder(&folder, &Self::name(of, MEMBERS))))
        } else {
            trust::open(&path, None, false)
        };
        match opened {
            Ok(file) => {
                is_used(&file, &path);
                Some(MemberTables::new(file, self.is_filled))
            }
            Err(tarnfs_index::Error::Missing) => None,
            Err(error) => {
                log::info!("seek points of members are not kept: {error}");
                None
            }
        }
    }

    /// What is kept of what `codec` makes of that archive, if anything is. It is not used by that.
    pub fn kept(&self, of: KeptAs, codec: &str) -> Option<Kept> {
        let (path, file, bytes) = self.look_at(of, codec)?;
        let decoded = DecodedFile::new(file, Budget::new(MOST_KNOWN)).kept_of(0);
        Some(Kept { path, bytes, decoded })
    }

    /// The same of seek points of members; nothing of it is decoded.
    pub fn kept_of_members(&self, of: KeptAs) -> Option<Kept> {
        let (path, _, bytes) = self.look_at(of, MEMBERS)?;
        Some(Kept { path, bytes, decoded: 0 })
    }

    fn look_at(&self, of: KeptAs, codec: &str) -> Option<(PathBuf, File, u64)> {
        let path = self.path(of, codec);
        let file = trust::open(&path, None, false).ok()?;
        let bytes = file.metadata().ok()?.len();
        (bytes > 0).then_some((path, file, bytes))
    }

    /// Where the first pass puts what it keeps. `anew`: instead of what is there.
    pub(crate) fn spill(&self, of: KeptAs, codec: &'static str, budget: Budget, anew: bool) -> OpenSpill {
        let cache = self.clone();
        Box::new(move || {
            let mut writer = cache.open_to_write(of, codec, &budget)?;
            if !writer.lock()? {
                return Ok(None);
            }
            if anew {
                writer.empty()?;
            }
            Ok(Some(writer))
        })
    }

    fn path(&self, of: KeptAs, codec: &str) -> PathBuf {
        self.folder.join(Self::name(of, codec))
    }

    fn name(of: KeptAs, codec: &str) -> String {
        format!("{:016x}-{:x}.{codec}{SUFFIX}", of.hash, of.length)
    }

    /// Opens the folder, and makes it if need be. It may be a link to elsewhere, but it must be this user's own: with
    /// another user's home, root would write and remove files where they say.
    fn make_folder(&self) -> io::Result<File> {
        // As the XDG base directory specification asks for folders of its kind.
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let folder = OpenOptions::new().read(true).custom_flags(OFlags::DIRECTORY.bits() as i32).open(&self.folder)?;
        let (owner, me) = (folder.metadata()?.uid(), geteuid().as_raw());
        if owner != me {
            let what = format!("{} belongs to user {owner}, not to {me}", self.folder.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        Ok(folder)
    }

    /// Bytes that the files in `folder` may have together.
    fn limit(&self, folder: &File) -> u64 {
        self.limit.unwrap_or_else(|| {
            let free = fstatvfs(folder).map_or(0, |of| of.f_bavail.saturating_mul(of.f_frsize));
            Self::MOST.min(free / 10)
        })
    }

    /// Opens the files that may make room. Removes what others have left behind, and what was used least recently if
    /// there is little room.
    fn others(&self, folder: &File, own: &str) -> io::Result<Arc<Others>> {
        let others = Others::of(&self.folder);
        let mut found = Vec::new();
        for entry in in_folder(folder, "").read_dir()? {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name());
            // It may be gone by now.
            let Ok(metadata) = entry.metadata() else { continue };
            if !metadata.is_file() {
                continue;
            }
            let age = || metadata.modified().ok().and_then(|at| at.elapsed().ok()).unwrap_or_default();
            let (is_old, is_very_old) = (|| age() >= OLD, || age() >= VERY_OLD);
            if !is_own_name(&name) {
                continue;
            }
            // A mount has the one for seek points open as long as it lasts.
            let is_old = || is_old() && (!is_of_members(&name) || is_very_old());
            if metadata.len() == 0 && is_old() {
                remove_unlocked(&path);
            } else {
                found.push((metadata.modified()?, metadata.len(), path, name));
            }
        }
        found.sort();
        let limit = self.limit(folder);
        let others_have = found.iter().filter(|(.., name)| *name != *own).map(|(_, length, ..)| *length);
        let others_have = others_have.fold(0, u64::saturating_add);
        // Not all at once, where somebody has set a low limit for once.
        let mut wanted = others_have.saturating_sub(limit - limit / ROOM).min(limit / ROOM);
        found.retain(|(_, length, path, name)| {
            let stays = wanted == 0 || is_of_members(name) || *name == *own || !remove_unlocked(path);
            wanted = wanted.saturating_sub(if stays { 0 } else { *length });
            stays
        });
        if found.len() > MOST_OTHERS {
            found[MOST_OTHERS / 2..].sort_by_key(|(_, length, ..)| Reverse(*length));
        }
        let mut files = others.files();
        let is_there = |file: &File| file.metadata().is_ok_and(|metadata| metadata.nlink() > 0);
        let mut open: HashMap<OsString, File> =
            files.drain(..).filter(|(file, _)| is_there(file)).map(|(file, name)| (name, file)).collect();
        let opened = |(_, _, path, name): (_, _, PathBuf, OsString)| {
            const NOFOLLOW: i32 = OFlags::NOFOLLOW.bits() as i32;
            let anew = || OpenOptions::new().read(true).write(true).custom_flags(NOFOLLOW).open(path).ok();
            Some((open.remove(&name).or_else(anew)?, name))
        };
        files.extend(found.into_iter().take(MOST_OTHERS).filter_map(opened));
        drop(files);
        Ok(others)
    }
}

/// The files of one folder that may make room. All archives of this process share them: with a list for each, 80
/// archives would hold 5000 descriptors.
#[derive(Debug, Default)]
struct Others(Mutex<Vec<(File, OsString)>>);

impl Others {
    /// Those of this folder, as long as anybody has them.
    fn of(folder: &Path) -> Arc<Self> {
        static ALL: Mutex<Vec<(PathBuf, Weak<Others>)>> = Mutex::new(Vec::new());
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, others)| others.strong_count() > 0);
        let known = all.iter().find(|(path, _)| path == folder).and_then(|(_, others)| others.upgrade());
        known.unwrap_or_else(|| {
            let others = Arc::default();
            all.push((folder.to_path_buf(), Arc::downgrade(&others)));
            others
        })
    }

    fn files(&self) -> MutexGuard<'_, Vec<(File, OsString)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What leads to the file `name` in `folder`, whatever becomes of the path of that.
fn in_folder(folder: &File, name: &str) -> PathBuf {
    Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name)
}

/// Others make room before it.
fn is_used(file: &File, path: &Path) {
    if let Err(error) = file.set_modified(SystemTime::now()) {
        log::debug!("{}: {error}", path.display());
    }
}

/// True of a name that [`DecodedCache::name`] gives: other files in the folder are somebody else's.
fn is_own_name(name: &OsStr) -> bool {
    let Some(stem) = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)) else { return false };
    let Some((numbers, codec)) = stem.split_once('.') else { return false };
    let Some((fingerprint, length)) = numbers.split_once('-') else { return false };
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    fingerprint.len() == 16 && is_hex(fingerprint) && is_hex(length) && !codec.contains('.')
}

/// True of the name of a file of seek points.
fn is_of_members(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.ends_with(&format!(".{MEMBERS}{SUFFIX}")))
}

/// Whoever writes one holds a lock on it. True if it is gone.
fn remove_unlocked(path: &Path) -> bool {
    match OpenOptions::new().read(true).open(path).and_then(|file| remove_if_unlocked(path, &file)) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => {
            log::debug!("{}: {error}", path.display());
            false
        }
    }
}

/// The same of one that was opened at `path`. Another one may have come there, and whoever writes that needs it.
fn remove_if_unlocked(path: &Path, file: &File) -> io::Result<()> {
    flock(file, FlockOperation::NonBlockingLockExclusive)?;
    if file.metadata()?.nlink() == 0 { Ok(()) } else { std::fs::remove_file(path) }
}

/// The folder as the space of one file in it. It works with what is open: the sandbox of a mount lets it open nothing,
/// and remove nothing.
struct FileSpace {
    folder: File,
    cache: DecodedCache,
    own: File,
    name: OsString,
    /// Files that may make room, and our own.
    others: Arc<Others>,
}

impl FileSpace {
    /// Bytes of all files but our own.
    fn bytes_of_others(&self) -> io::Result<u64> {
        seek(&self.folder, SeekFrom::Start(0))?;
        let mut buffer = [MaybeUninit::uninit(); 8 << 10];
        let mut entries = RawDir::new(&self.folder, &mut buffer);
        let mut sum = 0_u64;
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == self.name || !is_own_name(name) {
                continue;
            }
            // It may be gone by now.
            let Ok(stat) = statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
                sum = sum.saturating_add(u64::try_from(stat.st_size).unwrap_or(0));
            }
        }
        Ok(sum)
    }

    /// Empties files that nobody writes until they have `bytes` less; none if that does not suffice.
    fn make_room(&self, bytes: u64) -> io::Result<bool> {
        let others = self.others.files();
        let made = self.empty_others(&others, bytes);
        // Whatever came of it: a file that stays locked makes room for nobody.
        for (file, _) in &*others {
            let _ = flock(file, FlockOperation::Unlock);
        }
        made
    }

    /// The same; those that were looked at stay locked.
    fn empty_others(&self, others: &[(File, OsString)], bytes: u64) -> io::Result<bool> {
        let is_free = |file: &File| flock(file, FlockOperation::NonBlockingLockExclusive).is_ok();
        let mut free = Vec::new();
        for (file, name) in others.iter().filter(|(file, name)| *name != self.name && is_free(file)) {
            let metadata = file.metadata()?;
            if metadata.nlink() > 0 && metadata.len() > 0 {
                free.push((metadata.modified()?, metadata.len(), name, file));
            }
        }
        let suffices = free.iter().fold(0_u64, |sum, (_, length, ..)| sum.saturating_add(*length)) >= bytes;
        free.sort_by_key(|(modified, ..)| *modified);
        let mut made = 0;
        for (_, length, name, file) in free {
            if suffices && made < bytes {
                log::debug!("{} makes room", name.display());
                file.set_len(0)?;
                // Where that is not allowed, somebody else removes it later.
                let _ = unlinkat(&self.folder, name, AtFlags::empty());
                made += length;
            }
        }
        Ok(suffices)
    }

    fn extend_locked(&self, length: u64, write: &mut dyn FnMut() -> io::Result<()>) -> io::Result<Extended> {
        let limit = self.cache.limit(&self.folder);
        if length > limit || self.own.metadata()?.nlink() == 0 {
            return Ok(Extended::Full);
        }
        let all = self.bytes_of_others()?.saturating_add(length);
        if all > limit && !self.make_room(all - limit)? {
            return Ok(Extended::Full);
        }
        write().map(|()| Extended::Written)
    }
}

impl PieceSpace for FileSpace {
    fn extend(&mut self, length: u64, write: &mut dyn FnMut() -> io::Result<()>) -> io::Result<Extended> {
        // Nobody else grows meanwhile.
        match flock(&self.folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(Extended::Busy),
            Err(error) => return Err(error.into()),
        }
        let extended = self.extend_locked(length, write);
        flock(&self.folder, FlockOperation::Unlock)?;
        extended
    }

    fn is_empty(&mut self) {
        if let Err(error) = unlinkat(&self.folder, &*self.name, AtFlags::empty()) {
            log::debug!("{} stays, with nothing in it: {error}", self.name.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::thread;

    fn archive(number: u64) -> KeptAs {
        KeptAs { hash: number, length: number }
    }

    fn folder_of(cache: &DecodedCache, number: u64) -> FileSpace {
        let path = cache.path(archive(number), "toy");
        DirBuilder::new().recursive(true).create(&cache.folder).unwrap();
        let file = trust::open_to_write(&path).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        let name = path.file_name().unwrap().to_owned();
        let others = cache.others(&cache.make_folder().unwrap(), name.to_str().unwrap()).unwrap();
        FileSpace { others, own: file, name, folder: File::open(&cache.folder).unwrap(), cache: cache.clone() }
    }

    /// Makes the file `length` bytes long.
    fn grow(folder: &mut FileSpace, length: u64) -> Extended {
        let own = folder.own.try_clone().unwrap();
        let extended = folder.extend(length, &mut || own.set_len(length)).unwrap();
        assert_eq!(own.metadata().unwrap().len() == length, extended == Extended::Written);
        extended
    }

    fn set_age(cache: &DecodedCache, number: u64, seconds: u64) {
        let file = File::open(cache.path(archive(number), "toy")).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    }

    fn names(cache: &DecodedCache) -> Vec<String> {
        let files = cache.folder.read_dir().unwrap();
        let mut names: Vec<_> = files.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn pieces_belong_to_bytes_and_to_a_file() {
        let archive = |number| Archive { length: 9, fingerprint: tarnfs_source::Fingerprint(number), modified: 0 };
        let name = |number, file| DecodedCache::name(KeptAs::new(&archive(number), Some(file)).unwrap(), "toy");
        assert_eq!(name(1, 1), name(1, 1));
        assert_ne!(name(1, 1), name(1, 2), "another file with the same samples");
        assert_ne!(name(1, 1), name(2, 1));
        assert_eq!(KeptAs::new(&archive(1), None), None);
    }

    #[test]
    fn what_was_used_least_recently_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DecodedCache::new(folder.path().join("a/b"), Some(1100));
        for number in 1..=3 {
            assert_eq!(grow(&mut folder_of(&cache, number), 300), Extended::Written);
            set_age(&cache, number, 1000 - number);
        }
        // Asking for it is a use.
        assert!(cache.open(archive(1), "toy", &Budget::new(0)).is_some());
        assert_eq!(grow(&mut folder_of(&cache, 4), 300), Extended::Written);
        assert_eq!(names(&cache), [1, 3, 4].map(|number| format!("{number:016x}-{number}.toy.decoded")));
        assert_eq!(grow(&mut folder_of(&cache, 5), 1101), Extended::Full, "more than there may ever be");
        assert_eq!(names(&cache).len(), 4, "nothing makes room for what is not kept");
    }

    #[test]
    fn a_file_with_nothing_in_it_does_not_stay() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DecodedCache::new(folder.path().to_owned(), Some(1000));
        let mut spaces = [1, 2].map(|number| folder_of(&cache, number));
        assert_eq!(names(&cache).len(), 2);
        PieceSpace::is_empty(&mut spaces[0]);
        assert_eq!(names(&cache), ["0000000000000002-2.toy.decoded"]);
        // It may be gone already.
        PieceSpace::is_empty(&mut spaces[0]);
    }

    #[test]
    fn what_the_dead_have_left_is_removed_and_what_the_living_write_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DecodedCache::new(folder.path().to_path_buf(), Some(1000));
        std::fs::write(folder.path().join("0123.part"), "none of ours").unwrap();
        std::fs::write(folder.path().join("other"), "none of ours").unwrap();
        drop(folder_of(&cache, 1));
        set_age(&cache, 1, 10_000);
        drop(folder_of(&cache, 2));
        let _living = folder_of(&cache, 3);
        set_age(&cache, 3, 10_000);
        assert_eq!(grow(&mut folder_of(&cache, 4), 10), Extended::Written);
        let left = names(&cache);
        let of = |number: u64| format!("{number:016x}-{number}.toy.decoded");
        assert_eq!(left, [of(2), of(3), of(4), "0123.part".to_owned(), "other".to_owned()]);
    }

    #[test]
    fn what_has_come_to_the_name_of_a_file_that_is_gone_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let old = File::create(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "new").unwrap();
        remove_if_unlocked(&path, &old).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        let locked = File::open(&path).unwrap();
        flock(&locked, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(!remove_unlocked(&path) && path.exists());
        drop(locked);
        assert!(remove_unlocked(&path) && !path.exists() && remove_unlocked(&path));
    }

    #[test]
    fn a_file_that_somebody_writes_makes_no_room() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DecodedCache::new(folder.path().to_path_buf(), Some(1000));
        assert_eq!(grow(&mut folder_of(&cache, 1), 200), Extended::Written);
        let mut living = folder_of(&cache, 2);
        assert_eq!(grow(&mut living, 600), Extended::Written);
        let mut third = folder_of(&cache, 3);
        assert_eq!(grow(&mut third, 500), Extended::Full);
        assert_eq!(cache.path(archive(1), "toy").metadata().unwrap().len(), 200, "it does not suffice");
        assert_eq!(grow(&mut third, 300), Extended::Written);
        assert!(!cache.path(archive(1), "toy").exists());
        assert_eq!(grow(&mut living, 700), Extended::Written);
        assert_eq!(grow(&mut living, 701), Extended::Full);
    }

    /// However many archives are open, the files that may make room are open once.
    #[test]
    fn many_archives_take_few_descriptors() {
        const ARCHIVES: usize = 40;
        let folder = tempfile::tempdir().unwrap();
        let cache = DecodedCache::new(folder.path().to_path_buf(), Some(1000));
        for number in 1..=100 {
            std::fs::write(cache.path(archive(number), "toy"), "kept").unwrap();
        }
        let _writers: Vec<_> = (1..=ARCHIVES as u64)
            .map(|number| cache.open_to_write(archive(number), "toy", &Budget::new(0)).unwrap())
            .collect();
        // Tests beside this one open files, too.
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let open = open.filter(|entry| {
            let link = entry.as_ref().ok().and_then(|entry| entry.path().read_link().ok());
            link.is_some_and(|path| path.starts_with(folder.path()))
        });
        let open = open.count();
        assert!((ARCHIVES..=4 * ARCHIVES + MOST_OTHERS).contains(&open), "{open}");
    }

    /// However many small files there are, a large one finds room.
    #[test]
    fn many_small_files_make_room_for_a_large_one() {
        const FILES: u64 = 400;
        let folder = tempfile::tempdir().unwrap();
        let cache = DecodedCache::new(folder.path().to_path_buf(), Some(100 * FILES));
        for number in 1..=FILES {
            std::fs::write(cache.path(archive(number), "toy"), [0; 100]).unwrap();
            set_age(&cache, number, 10_000 - number);
        }
        let large = &mut folder_of(&cache, FILES + 1);
        assert_eq!(names(&cache).len() as u64, FILES - FILES / ROOM + 1, "the oldest are gone");
        assert!(!cache.path(archive(1), "toy").exists());
        let room = 100 * (FILES / ROOM + MOST_OTHERS as u64);
        assert_eq!(grow(large, room), Extended::Written);
        assert_eq!(grow(large, room + 1), Extended::Full);
        let again = &mut folder_of(&cache, FILES + 2);
        assert_eq!(grow(again, 100 * FILES / ROOM), Extended::Written, "there is always room for some");
    }

    /// One that cannot be emptied keeps no other from being used.
    #[test]
    fn nothing_stays_locked_where_making_room_fails() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DecodedCache::new(folder.path().to_path_buf(), Some(1000));
        for number in 1..=2 {
            assert_eq!(grow(&mut folder_of(&cache, number), 400), Extended::Written);
            set_age(&cache, number, 1000 - number);
        }
        let third = &mut folder_of(&cache, 3);
        // Read only: it cannot be cut.
        third.others.files()[0].0 = File::open(cache.path(archive(1), "toy")).unwrap();
        assert!(third.extend(600, &mut || Ok(())).is_err());
        for number in 1..=2 {
            let file = File::open(cache.path(archive(number), "toy")).unwrap();
            flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        }
    }

    /// Many at once never have more than the limit together.
    #[test]
    fn those_that_grow_at_once_stay_below_the_limit() {
        const LIMIT: u64 = 10_000;
        let folder = tempfile::tempdir().unwrap();
        let cache = DecodedCache::new(folder.path().to_path_buf(), Some(LIMIT));
        let all: Vec<FileSpace> = (1..=4).map(|number| folder_of(&cache, number)).collect();
        // Each keeps its lock to the end: else it would make room.
        let grown: Vec<(u64, FileSpace)> = thread::scope(|scope| {
            let threads: Vec<_> = all
                .into_iter()
                .map(|mut folder| {
                    scope.spawn(move || {
                        let mut length = 0;
                        loop {
                            match grow(&mut folder, length + 7) {
                                Extended::Written => length += 7,
                                Extended::Busy => thread::yield_now(),
                                Extended::Full => return (length, folder),
                            }
                        }
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let sum: u64 = grown.iter().map(|(length, _)| length).sum();
        assert!(sum <= LIMIT && sum + 7 > LIMIT, "{sum}");
    }
}
