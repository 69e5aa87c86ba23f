//! What goes over the network, one backend for each family of schemes.

use std::fmt;
use std::io::{self, Read};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::open::Settings;
use crate::time::to_http;
use crate::url::{Url, hex};
use sha2::{Digest as _, Sha256};

/// All backends. No scheme has two.
pub static BACKENDS: &[&dyn Backend] = &[
    &crate::dropbox::Dropbox,
    &crate::ftp::FtpFiles,
    &crate::github::GitHub,
    &crate::http::Http,
    &crate::ipfs::Ipfs,
    &crate::s3::S3,
    &crate::sftp::Sftp,
    &crate::webdav::WebDav,
];

/// True if a backend has this scheme, which is in lower case.
pub fn is_known_scheme(scheme: &str) -> bool {
    of_scheme(scheme).is_some()
}

pub(crate) fn of_scheme(scheme: &str) -> Option<&'static dyn Backend> {
    BACKENDS.iter().copied().find(|backend| backend.schemes().contains(&scheme))
}

/// Knows how objects of some schemes are asked for.
pub trait Backend: Sync {
    /// In lower case.
    fn schemes(&self) -> &'static [&'static str];

    /// The object at `url`. Nothing is asked yet.
    fn object(&self, url: &Url, settings: &Settings) -> io::Result<Box<dyn Object>>;

    /// Files and folders that are read while objects are: those that say who logs in.
    fn reads(&self, settings: &Settings) -> Vec<PathBuf>;

    /// True if there may be a folder at `url`: by its name, or where it has `failed` so to open it as an object. Then
    /// it is listed.
    fn may_be_folder(&self, url: &Url, failed: Option<&io::Error>) -> bool;

    /// What lies in the folder at `url`, each name once. It is tried until the deadline.
    fn list(&self, url: &Url, settings: &Settings, deadline: Instant) -> io::Result<Vec<Entry>>;

    /// What tells the object at `url` from all others, whatever it is called here. The cache has it under a hash of
    /// that.
    fn place(&self, url: &Url, settings: &Settings) -> String {
        let _ = settings;
        url.request()
    }
}

/// What lies in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// As it is, not escaped.
    pub name: Vec<u8>,
    /// False of a file.
    pub is_folder: bool,
    /// Bytes of a file.
    pub size: u64,
    /// Last change, ns since 1970; 0 where the server does not tell it.
    pub modified: i64,
}

/// Names in one folder at most.
pub(crate) const MOST_ENTRIES: usize = 1 << 20;

impl Entry {
    /// False of a name that nothing can have here.
    pub(crate) fn is_possible(&self) -> bool {
        is_name(&self.name) && self.size <= crate::open::LONGEST
    }
}

/// True of what can be the name of a file.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && name.len() <= 255 && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// One object. Each call is one attempt, which has an answer or an error soon after `deadline`: who calls tries again,
/// and knows how long.
pub trait Object: Send + Sync + fmt::Debug {
    /// Asks for the first `most` bytes of whatever version is there now. Where that is `known`, the server need not
    /// send them.
    /// The deadline is not for the bytes of the answer, which may be all there are.
    fn begin(&self, most: u64, known: Option<&Version>, deadline: Instant) -> Result<Begun, Fault>;

    /// Threads that read ahead at a time, one at least. It may change.
    fn readers(&self) -> usize {
        6
    }

    /// Asks for a range of this version, and takes none of another one. Its last byte is there before the deadline.
    fn range(&self, range: Range<u64>, version: &Version, deadline: Instant) -> Result<Body, Fault>;
}

/// Bytes as they come.
pub type Body = Box<dyn Read + Send>;

/// What the first question to an object has brought.
pub enum Begun {
    /// It is the version that is known.
    Same,
    /// So many bytes from the first one on. Others can be had by ranges.
    Part(Version, Body, u64),
    /// All of it: the server knows no ranges.
    Whole(Version, Body),
}

/// Says which version of an object it is. Two that are equal and lasting have the same bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Bytes.
    pub length: u64,
    /// What the server calls it (an ETag).
    pub tag: Option<String>,
    /// When it was changed last, as the server writes it.
    pub modified: Option<String>,
    /// By what the server can be asked for it when there is a newer one.
    pub id: Option<String>,
    /// No other bytes will ever have these: so what is kept may be found by them later.
    pub is_lasting: bool,
}

impl Version {
    /// Of a server that tells how long it is and when it was changed last, and no more. It is lasting if that was long
    /// enough ago that a change in the same second is over, as far as its clock is ours.
    pub(crate) fn of_second(length: Option<u64>, modified: Option<SystemTime>) -> Result<Self, Fault> {
        const RECENT: Duration = Duration::from_secs(60);
        let unknown = || Fault::Final("the server does not say how long it is".to_owned());
        let is_lasting = modified.is_some_and(|time| time.elapsed().is_ok_and(|age| age >= RECENT));
        let modified = modified.map(to_http);
        Ok(Self { length: length.ok_or_else(unknown)?, tag: None, modified, id: None, is_lasting })
    }

    /// `Changed` if it is not this one that is there `now`. For those of [`Version::of_second`].
    pub(crate) fn is_still(&self, now: &Self) -> Result<(), Fault> {
        if now.length != self.length {
            return Err(Fault::Changed("it has another length now".to_owned()));
        }
        if now.modified != self.modified {
            return Err(Fault::Changed("it has another time now".to_owned()));
        }
        Ok(())
    }

    /// Nothing but the length tells it from another one.
    pub fn is_vague(&self) -> bool {
        self.tag.is_none() && self.modified.is_none()
    }

    /// Names it in the cache.
    pub(crate) fn key(&self) -> String {
        let mut hash = Sha256::new();
        for part in [Some(&self.length.to_string()), self.tag.as_ref(), self.modified.as_ref()] {
            // Nothing is another thing than an empty word.
            hash.update(part.map_or(u64::MAX, |part| part.len() as u64).to_le_bytes());
            hash.update(part.map_or("", String::as_str));
        }
        hex(&hash.finalize()[..16])
    }

    /// The same; one that cannot be told from others has a name of its own each time.
    pub(crate) fn name(&self) -> String {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        if self.is_lasting {
            return self.key();
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        format!("{now:x}-{:x}-{:x}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
    }
}

impl fmt::Debug for Begun {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same => formatter.write_str("Same"),
            Self::Part(version, ..) => formatter.debug_tuple("Part").field(version).finish_non_exhaustive(),
            Self::Whole(version, _) => formatter.debug_tuple("Whole").field(version).finish_non_exhaustive(),
        }
    }
}

/// Why an attempt has brought nothing. Texts have no secrets, and one line.
#[derive(Debug)]
pub enum Fault {
    /// It may work later, perhaps after this time.
    Again(String, Option<Duration>),
    /// Another version is there.
    Changed(String),
    /// There is nothing.
    Missing(String),
    /// It will not work.
    Final(String),
    /// It is a folder.
    Folder,
}
