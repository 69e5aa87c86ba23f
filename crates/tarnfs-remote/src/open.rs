//! From a URL to a source: which version is there, and what of it is in the cache.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tarnfs_source::{Setting, Source as _};

use crate::backend::{self, Begun, Body, Entry, Fault, Object, Version};
use crate::cache::{BLOCK, BlockCache, Blocks};
use crate::credentials::Credentials;
use crate::fetch::{self, error, read_by, tried};
use crate::ftp::Ftp;
use crate::known::Known;
use crate::s3::Aws;
use crate::services::Services;
use crate::sftp::Ssh;
use crate::shelf::Shelf;
use crate::source::{MOST_ON_SHELF, Missing, RemoteSource};
use crate::url::Url;

/// How objects are opened and read.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Where blocks are kept; nowhere if `None`.
    pub cache: Option<Arc<BlockCache>>,
    /// Who logs in where no URL says so.
    pub credentials: Credentials,
    /// What is known of buckets, and of who may read them.
    pub aws: Aws,
    /// Where GitHub, IPFS and Dropbox are.
    pub services: Services,
    /// Connections to servers of FTP.
    pub ftp: Ftp,
    /// Hosts that are reached by ssh.
    pub ssh: Ssh,
    /// Nothing is asked over the network: what is in the cache has to do.
    pub offline: bool,
}

/// How long it may take until the first answer of a server is there.
const FIRST_ANSWER: Duration = Duration::from_secs(40);

/// How long one block of an object may take that is read as a whole: what is slower brings no more in days.
const BLOCK_COMES: Duration = Duration::from_secs(120);

/// How often an object is read from its start that a server without ranges does not send to its end.
const READS: u32 = 5;

/// How long another process may take to read such an object.
const LONGEST_READ: Duration = Duration::from_secs(24 * 3600);

/// Bytes of an object at most. What is behind no file of Linux can have, and sums of offsets stay numbers before.
pub(crate) const LONGEST: u64 = i64::MAX as u64 - (1 << 30);

/// All blocks there may be.
const ALL: std::ops::Range<u64> = 0..1 << 40;

/// Bytes of an index that nobody has asked for, unless the archive is longer: about a million files.
const LONGEST_INDEX: u64 = 256 << 20;

/// A database of so many bytes is copied at once: in one answer, or two.
const MOST_COPIED: u64 = 2 << 20;

/// What a database begins with.
const SQLITE: &[u8; 16] = b"SQLite format 3\0";

/// What compressed files begin with: gzip, bzip2, xz, zstd, lz4, lzip.
const PACKED: [&[u8]; 6] = [b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"LZIP"];

/// An index behind a URL.
#[derive(Debug)]
pub(crate) enum Index {
    /// A copy of all of it.
    Copy(PathBuf),
    /// It is read where it lies.
    Far(RemoteSource),
}

/// Bytes that are copied at a time.
const COPIED: usize = 2 << 20;

/// Opens what lies behind URLs.
#[derive(Debug)]
pub struct Opener {
    settings: Settings,
    /// For the files in folders.
    shelf: Arc<Shelf>,
}

impl Opener {
    /// With these settings.
    pub fn new(settings: Settings) -> Self {
        Self { settings, shelf: Arc::new(Shelf::new(MOST_ON_SHELF)) }
    }

    /// Opens all files now that opening an object would open. (Those that say whom to trust.)
    pub fn prepare(&self) {
        if !self.settings.offline {
            crate::http::prepare();
            crate::ftp::prepare();
        }
    }

    /// Files and folders that are read later, when objects at these `urls` are: those that say who logs in.
    pub fn reads(&self, urls: &[Url]) -> Vec<PathBuf> {
        let backends = backend::BACKENDS.iter();
        let is_used =
            |backend: &&&dyn backend::Backend| urls.iter().any(|url| backend.schemes().contains(&url.scheme()));
        backends.filter(is_used).flat_map(|backend| backend.reads(&self.settings)).collect()
    }

    /// Names the object at `url` in the cache.
    pub(crate) fn key(&self, url: &Url) -> String {
        let place = backend::of_scheme(url.scheme()).map(|backend| backend.place(url, &self.settings));
        url.key(&place.unwrap_or_else(|| url.request()))
    }

    /// Opens the object at `url`, in the version that is there now. `NotFound` if the server says that there is none,
    /// `IsADirectory` if that is a folder.
    pub fn open(&self, url: &Url) -> io::Result<RemoteSource> {
        let folder = || fetch::error(Fault::Folder);
        let begin = Instant::now();
        let backend = of_scheme(url)?;
        if backend.may_be_folder(url, None) && !self.settings.offline {
            self.list(url)?;
            return Err(folder());
        }
        let opened = self.open_with(url, self.settings.cache.as_ref(), None);
        match opened {
            // A server that does not answer is not asked once more.
            Err(error)
                if !self.settings.offline
                    && begin.elapsed() < FIRST_ANSWER / 2
                    && backend.may_be_folder(url, Some(&error)) =>
            {
                // Where there are no folders, nothing lies in one.
                let is_folder = self.list(url).is_ok_and(|found| !found.is_empty());
                Err(if is_folder { folder() } else { error })
            }
            opened => opened,
        }
    }

    /// Opens a file in a folder, as one of many.
    pub(crate) fn open_one(&self, url: &Url) -> io::Result<RemoteSource> {
        self.open_with(url, self.settings.cache.as_ref(), Some(&self.shelf))
    }

    /// What lies in the folder at `url`, each name once.
    pub fn list(&self, url: &Url) -> io::Result<Vec<Entry>> {
        if self.settings.offline {
            return Err(io::Error::other(format!("with {} no folder is listed", Setting::Offline)));
        }
        let listed = of_scheme(url)?.list(url, &self.settings, Instant::now() + FIRST_ANSWER);
        listed.map_err(|error| io::Error::new(error.kind(), format!("{url}: {error}")))
    }

    /// The index at `url`: a database (SQLite), or a compressed one. `None` if there is none. One that is short, or
    /// has to be decoded, is copied into the cache; it may be half of that. `archive`: the length of the object that it
    /// is an index of, if nobody has asked for it; a copy is not made then of what is longer than any index of that
    /// need be.
    pub(crate) fn index(&self, url: &Url, archive: Option<u64>) -> io::Result<Option<Index>> {
        let key = self.key(url);
        let cache = self.settings.cache.as_ref();
        if let Some(cache) = cache.filter(|_| self.settings.offline) {
            let Some(known) = cache.known(&key) else { return Ok(None) };
            let path = cache.file(&key, &format!("{}.sqlite", known.version.key()))?;
            if path.is_file() {
                return Ok(Some(Index::Copy(path)));
            }
        }
        let source = match self.open_with(url, cache, None) {
            Err(_) if self.settings.offline => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            source => source?,
        };
        let mut head = [0; SQLITE.len()];
        let read = source.read_at(&mut head, 0)?;
        let is_database = head[..read] == *SQLITE;
        if !is_database && !PACKED.iter().any(|magic| head[..read].starts_with(magic)) {
            return Err(io::Error::other(format!("{url} is no database (SQLite), nor a compressed one")));
        }
        let Some(cache) = cache.filter(|_| source.len() <= MOST_COPIED || !is_database) else {
            return Ok(Some(Index::Far(source)));
        };
        let path = cache.file(&key, &format!("{}.sqlite", source.version().key()))?;
        if !source.version().is_lasting || !path.is_file() {
            // Whoever has put it there may mean harm.
            let share = archive.map_or(u64::MAX, |archive| archive.max(LONGEST_INDEX));
            let most = cache.most_of_a_file().min(share);
            if source.len() > most {
                let sizes = format!("{} MiB, and at most {} MiB are copied", source.len() >> 20, most >> 20);
                return Err(io::Error::other(format!("{url} has {sizes}: see {}", Setting::CacheSize)));
            }
            let mut offset = 0;
            cache.import(&path, source.len(), |buffer| {
                let count = buffer.len().min(COPIED);
                let read = source.read_at(&mut buffer[..count], offset)?;
                offset += read as u64;
                Ok(read)
            })?;
        }
        Ok(Some(Index::Copy(path)))
    }

    fn open_with(
        &self,
        url: &Url,
        cache: Option<&Arc<BlockCache>>,
        shelf: Option<&Arc<Shelf>>,
    ) -> io::Result<RemoteSource> {
        let named = |error: io::Error| io::Error::new(error.kind(), error.to_string());
        let object = of_scheme(url)?.object(url, &self.settings)?;
        let key = self.key(url);
        let known = cache.and_then(|cache| cache.known(&key));
        let opening = Opening { name: url.to_string(), key, cache, shelf };
        if self.settings.offline {
            return opening.offline(object, known);
        }
        opening.open(object, known).map_err(named)
    }
}

/// One object while it is opened.
struct Opening<'a> {
    name: String,
    key: String,
    cache: Option<&'a Arc<BlockCache>>,
    /// Of one of many.
    shelf: Option<&'a Arc<Shelf>>,
}

/// The backend for this scheme.
fn of_scheme(url: &Url) -> io::Result<&'static dyn backend::Backend> {
    let none = || io::Error::new(io::ErrorKind::Unsupported, "there is no backend for its scheme");
    backend::of_scheme(url.scheme()).ok_or_else(none)
}

impl Opening<'_> {
    fn source(
        &self,
        object: Box<dyn Object>,
        version: Version,
        blocks: Option<Blocks>,
        missing: Missing,
    ) -> RemoteSource {
        RemoteSource::new(self.name.clone(), object, version, blocks, missing, self.shelf.cloned())
    }

    fn offline(&self, object: Box<dyn Object>, known: Option<Known>) -> io::Result<RemoteSource> {
        let nothing = || {
            let offline = Setting::Offline;
            io::Error::other(format!("nothing of it is in the cache, and with {offline} nothing is fetched"))
        };
        let known = known.ok_or_else(nothing)?;
        let blocks = self.blocks(&known.version)?;
        if let Some(blocks) = blocks.as_ref().filter(|_| !known.has_ranges) {
            blocks.hold()?;
        }
        Ok(self.source(object, known.version, blocks, Missing::Offline))
    }

    /// Where blocks of this version lie. Nowhere of one that cannot be told from others.
    fn blocks(&self, version: &Version) -> io::Result<Option<Blocks>> {
        let Some(cache) = self.cache.filter(|_| version.is_lasting) else { return Ok(None) };
        cache.version(&self.key, &version.key()).map(Some)
    }

    fn remember(&self, version: &Version, has_ranges: bool) {
        let Some(cache) = self.cache.filter(|_| version.is_lasting) else { return };
        if let Err(error) = cache.remember(&self.key, &Known { version: version.clone(), has_ranges }) {
            log::debug!("{}: which version it is will not be known: {error}", self.name);
        }
    }

    fn open(&self, object: Box<dyn Object>, known: Option<Known>) -> io::Result<RemoteSource> {
        // What the server need not send again has to be here.
        let usable = known.and_then(|known| {
            let blocks = self.blocks(&known.version).ok().flatten()?;
            let is_here = if known.has_ranges {
                blocks.has(0, known.version.length.min(BLOCK) as usize)
            } else {
                blocks.hold().is_ok() && has_all(&blocks, known.version.length)
            };
            is_here.then_some((known, blocks))
        });
        let deadline = Instant::now() + FIRST_ANSWER;
        let version = usable.as_ref().map(|(known, _)| &known.version);
        let first = tried(deadline, true, || match object.begin(BLOCK, version, deadline)? {
            // It has to be whole before anything is made of it.
            Begun::Part(version, mut body, length) => {
                is_possible(&version)?;
                let mut bytes = Vec::new();
                read_by(deadline, &mut body, BLOCK + 1, &mut bytes)?;
                if bytes.len() as u64 != length {
                    return Err(Fault::Again("the answer is too short".to_owned(), None));
                }
                Ok(First::Part(version, bytes))
            }
            Begun::Same => Ok(First::Same),
            Begun::Whole(version, body) => {
                is_possible(&version)?;
                Ok(First::Whole(version, body))
            }
        })?;
        match (first, usable) {
            (First::Same, Some((known, blocks))) => {
                let missing = if known.has_ranges { Missing::Fetched } else { Missing::Lost };
                Ok(self.source(object, known.version, Some(blocks), missing))
            }
            (First::Same, None) => Err(io::Error::other("the server says that nothing has changed, and was not asked")),
            (First::Part(version, bytes), _) => {
                if version.is_vague() {
                    let what = "the server says neither which version it has nor when it was changed";
                    log::warn!(
                        "{}: {what}: a change shows by the length alone, and nothing is kept on disk",
                        self.name
                    );
                } else if !version.is_lasting {
                    let what = "it was changed so shortly before that another change may look the same";
                    log::info!("{}: {what}: nothing is kept on disk", self.name);
                }
                let blocks = self.blocks(&version).unwrap_or_else(|error| {
                    log::info!("{}: nothing of it is kept on disk: {error}", self.name);
                    None
                });
                if let Some(blocks) = blocks.as_ref().filter(|_| !bytes.is_empty()) {
                    let _ = blocks.put(0, &bytes);
                }
                self.remember(&version, true);
                let source = self.source(object, version, blocks, Missing::Fetched);
                source.has(&bytes.chunks(BLOCK as usize).map(Into::into).collect::<Vec<_>>());
                Ok(source)
            }
            (First::Whole(version, body), _) => self.whole(object, version, body),
        }
    }

    /// Reads all of an object, from a server that knows no ranges.
    fn whole(&self, object: Box<dyn Object>, version: Version, body: Body) -> io::Result<RemoteSource> {
        if version.length <= BLOCK {
            let mut bytes = Vec::new();
            let mut body = Some(body);
            let deadline = Instant::now() + FIRST_ANSWER;
            let version = tried(deadline, true, || {
                bytes.clear();
                let (version, mut body) = match body.take() {
                    Some(body) => (version.clone(), body),
                    None => whole_again(&*object, deadline)?,
                };
                if version.length > BLOCK {
                    return Err(Fault::Again("it has another length at each answer".to_owned(), None));
                }
                read_by(deadline, &mut body, BLOCK + 1, &mut bytes)?;
                if bytes.len() as u64 != version.length {
                    return Err(Fault::Again("the answer has another length than it says".to_owned(), None));
                }
                Ok(version)
            })?;
            let blocks = self.blocks(&version).ok().flatten();
            if blocks.as_ref().is_some_and(|blocks| bytes.is_empty() || blocks.put(0, &bytes).is_ok()) {
                self.remember(&version, false);
            }
            let source = self.source(object, version, blocks, Missing::Lost);
            source.has(&bytes.chunks(BLOCK as usize).map(Into::into).collect::<Vec<_>>());
            return Ok(source);
        }
        let Some(cache) = self.cache else {
            let what = "the server knows no ranges, so all of it has to be kept on disk";
            return Err(io::Error::other(format!("{what}: leave {} 0 out", Setting::CacheSize)));
        };
        if let Some(blocks) = self.blocks(&version)?
            && blocks.hold().is_ok()
            && has_all(&blocks, version.length)
        {
            self.remember(&version, false);
            return Ok(self.source(object, version, Some(blocks), Missing::Lost));
        }
        let size = version.length.div_ceil(1 << 20);
        // What a server says of itself may be anything, and the disk is not for this alone.
        let room = cache.room();
        if version.length > room {
            let what = format!("the server knows no ranges, so all of it ({size} MiB) has to be kept on disk");
            return Err(io::Error::other(format!("{what}, and there is room for {} MiB", room >> 20)));
        }
        log::warn!(
            "{}: the server knows no ranges: all of it ({size} MiB) is read once and kept in the cache",
            self.name
        );
        let (mut version, mut body) = (version, Some(body));
        for attempt in 1.. {
            let blocks = cache.version(&self.key, &version.name())?;
            blocks.hold()?;
            let mut turn = blocks.turn(&ALL, Instant::now());
            if turn.is_none() {
                // Another process is at it.
                body = None;
                turn = blocks.turn(&ALL, Instant::now() + LONGEST_READ);
            }
            if has_all(&blocks, version.length) {
                body = None;
            } else {
                let read = match body.take() {
                    Some(body) => store(&blocks, &version, body),
                    None => Err(Fault::Again("it is asked for again".to_owned(), None)),
                };
                if let Err(fault) = read {
                    let is_over = attempt >= READS || !matches!(fault, Fault::Again(..));
                    if is_over {
                        return Err(error(fault));
                    }
                    if let Fault::Again(what, _) = fault {
                        log::info!("{}: {what}: it is read again from its start", self.name);
                    }
                    drop(turn);
                    let deadline = Instant::now() + FIRST_ANSWER;
                    let begun = tried(deadline, false, || whole_again(&*object, deadline))?;
                    (version, body) = (begun.0, Some(begun.1));
                    continue;
                }
            }
            drop(turn);
            drop(body);
            self.remember(&version, false);
            return Ok(self.source(object, version, Some(blocks), Missing::Lost));
        }
        Err(io::Error::other("it could not be read"))
    }
}

/// An answer that is whole, or goes on.
enum First {
    Same,
    Part(Version, Vec<u8>),
    Whole(Version, Body),
}

fn whole_again(object: &dyn Object, deadline: Instant) -> Result<(Version, Body), Fault> {
    match object.begin(BLOCK, None, deadline)? {
        Begun::Whole(version, body) => {
            is_possible(&version)?;
            Ok((version, body))
        }
        // Servers behind one name may not be alike.
        _ => Err(Fault::Again("the server knows ranges by now".to_owned(), None)),
    }
}

/// What a server says of itself may be anything.
fn is_possible(version: &Version) -> Result<(), Fault> {
    if version.length <= LONGEST {
        return Ok(());
    }
    let what = format!("the server says that it has {} bytes, which is more than any file can have", version.length);
    Err(Fault::Final(what))
}

fn has_all(blocks: &Blocks, length: u64) -> bool {
    (0..length.div_ceil(BLOCK)).all(|number| blocks.has(number, (length - number * BLOCK).min(BLOCK) as usize))
}

/// Keeps all of a body.
fn store(blocks: &Blocks, version: &Version, mut body: Body) -> Result<(), Fault> {
    let mut bytes = Vec::with_capacity(BLOCK as usize);
    let (mut number, mut left) = (0, version.length);
    while left > 0 {
        bytes.clear();
        let length = left.min(BLOCK);
        read_by(Instant::now() + BLOCK_COMES, &mut body, length, &mut bytes)?;
        if bytes.len() as u64 != length {
            return Err(Fault::Again("the connection was cut".to_owned(), None));
        }
        blocks.put(number, &bytes).map_err(|error| Fault::Final(format!("it cannot be kept in the cache: {error}")))?;
        number += 1;
        left -= length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    /// A server without ranges that says that it has so many bytes, and sends zeros.
    #[derive(Debug)]
    struct Endless(u64);

    impl Object for Endless {
        fn begin(&self, _: u64, _: Option<&Version>, _: Instant) -> Result<Begun, Fault> {
            let version = Version { length: self.0, tag: None, modified: None, id: None, is_lasting: false };
            Ok(Begun::Whole(version, Box::new(io::repeat(0))))
        }

        fn range(&self, _: Range<u64>, _: &Version, _: Instant) -> Result<Body, Fault> {
            Err(Fault::Final("there are no ranges".to_owned()))
        }
    }

    #[test]
    fn what_a_server_sends_does_not_fill_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Arc::new(BlockCache::open(&folder.path().join("remote"), None).unwrap());
        let open = |length| {
            let opening = Opening { name: "x".to_owned(), key: "ab".to_owned(), cache: Some(&cache), shelf: None };
            opening.open(Box::new(Endless(length)), None)
        };
        let error = open(1 << 60).unwrap_err().to_string();
        assert!(error.contains("there is room for"), "{error}");
        let source = open(3 * BLOCK).unwrap();
        let room = cache.room();
        assert!(room > 3 * BLOCK, "{room}");
        assert_eq!(source.read_at(&mut [1; 7], 2 * BLOCK).unwrap(), 7);
    }
}
