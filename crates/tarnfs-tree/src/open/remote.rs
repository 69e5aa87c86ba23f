//! Archives behind a URL: who opens them is given ([`Remotes`]), so that no front end is made to have a network.

use std::borrow::Cow;
use std::fmt::Debug;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};

use rustix::process::{getegid, geteuid};
use tarnfs_index::{location, own, ratarmount, trust};
use tarnfs_source::{Fingerprint, SharedSource, Strict};

use super::places::Opened;
use super::{FileFacts, IndexAt, IndexPlace, OpenArchive, Opening, Options, Origin, Problem, Recreate, fingerprint};

/// Opens what lies behind URLs.
pub trait Remotes: Debug + Send + Sync {
    /// Opens the object whose URL, without secrets, is `url`; `IsADirectory` if that is a folder.
    fn open(&self, url: &Path) -> io::Result<Remote>;

    /// The folder whose URL, without secrets, is `url`.
    fn folder(&self, url: &Path) -> io::Result<Arc<dyn RemoteFolder>>;
}

/// A folder behind a URL. Names that lead to what is in it have slashes between them; none at all are itself.
pub trait RemoteFolder: Debug + Send + Sync {
    /// What lies in the folder at `path`, each name once.
    fn list(&self, path: &[u8]) -> io::Result<Vec<RemoteEntry>>;

    /// Opens the file at `path`.
    fn open(&self, path: &[u8]) -> io::Result<Remote>;
}

/// What a listing of a remote folder tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteEntry {
    /// One component, never empty, `.` or `..`.
    pub name: Vec<u8>,
    /// False of a file.
    pub is_folder: bool,
    /// Bytes of a file.
    pub size: u64,
    /// Last change, ns since 1970; 0 if that is not known.
    pub modified: i64,
}

/// An object behind a URL. All that is read of it is of one version.
#[derive(Debug, Clone)]
pub struct Remote {
    /// Its bytes.
    pub source: SharedSource,
    /// Last change, ns since 1970; 0 if that is not known.
    pub modified: i64,
    /// Names the version that it is, for who compares.
    pub version: String,
    /// No other version will ever have that name: what is kept under it belongs to these bytes alone.
    pub is_lasting: bool,
    /// What lies beside it.
    pub beside: Arc<dyn Beside>,
}

/// Files beside an object.
pub trait Beside: Debug + Send + Sync {
    /// The one whose name has `suffix` behind that of the object; `None` if there is none.
    fn open(&self, suffix: &str) -> io::Result<Option<Neighbour>>;
}

/// A file behind a URL, in one version.
#[derive(Debug, Clone)]
pub enum Neighbour {
    /// There is a local copy at this path.
    Copy(PathBuf),
    /// It is read where it lies.
    Far(SharedSource),
}

/// Opens the archive behind `url`.
pub(super) fn open(url: &Path, remotes: &dyn Remotes, options: &Options) -> Result<OpenArchive, Problem> {
    open_found(remotes.open(url).map_err(problem)?, url, options)
}

/// What it means that something behind a URL cannot be opened.
pub(crate) fn problem(error: io::Error) -> Problem {
    match error.kind() {
        io::ErrorKind::Interrupted => Problem::Cancelled,
        _ => Problem::CannotOpen(error),
    }
}

/// Opens the archive that was found behind `url`.
pub(crate) fn open_found(remote: Remote, url: &Path, options: &Options) -> Result<OpenArchive, Problem> {
    let Remote { source, modified, version, is_lasting, beside } = remote;
    // Whoever may write it is somebody else. What this user has made of it is believed.
    let owner = trust::Owner { user: geteuid().as_raw(), group: getegid().as_raw(), mode: 0o600 };
    let source: SharedSource = Arc::new(Strict::new(source));
    // A server may call its objects as others do: the hash must not be one that can be met.
    let hash =
        blake3::Hasher::new().update(url.as_os_str().as_bytes()).update(b"\0").update(version.as_bytes()).finalize();
    let identity = hash.as_bytes().first_chunk().filter(|_| is_lasting).map(|eight| u64::from_le_bytes(*eight));
    let facts = FileFacts { owner, modified, identity };
    let (home, unread) = (None, AtomicBool::new(false));
    let beside = Some(Far { beside, version: is_lasting.then_some(version), own: Mutex::default() });
    let sampled = Fingerprint(0);
    let mut opening =
        Opening { path: url, source, facts, options, fingerprint: sampled, home, is_at_path: false, unread, beside };
    // Both take some round trips, so the index is looked for while the archive is sampled.
    opening.fingerprint = thread::scope(|scope| {
        let look = || opening.find_own();
        let looking = opening.has_none_here().then(|| {
            // Without a thread for it, it is looked for later.
            thread::Builder::new().name("tarnfs-beside".into()).spawn_scoped(scope, look).ok()
        });
        let sampled = fingerprint(&*opening.source);
        if let Some(Err(panic)) = looking.flatten().map(ScopedJoinHandle::join) {
            resume_unwind(panic);
        }
        sampled
    })?;
    opening.open()
}

/// What is known of an object, and around it.
pub(super) struct Far {
    beside: Arc<dyn Beside>,
    /// See [`Remote::version`]; `None` of one that is not lasting.
    version: Option<String>,
    /// What came of looking for an index of ours beside it, until somebody asks.
    own: Mutex<Option<io::Result<Option<Neighbour>>>>,
}

impl Far {
    /// The file beside it whose name ends in `suffix`.
    fn open(&self, suffix: &str) -> io::Result<Option<Neighbour>> {
        let known = || self.own.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (suffix == location::SUFFIX).then(known).flatten() {
            Some(found) => found,
            None => self.beside.open(suffix),
        }
    }
}

impl Opening<'_> {
    /// What an index of this archive is named after. Samples of two versions of an object may be the same, so each
    /// version has its own. `None` where that cannot be.
    pub(super) fn named_after(&self) -> Option<Cow<'_, Path>> {
        let Some(far) = &self.beside else { return Some(Cow::Borrowed(self.path)) };
        let mut name = self.path.as_os_str().to_owned();
        name.push(".");
        name.push(far.version.as_ref()?);
        Some(Cow::Owned(name.into()))
    }

    /// True if nothing is known here of an archive behind a URL, so that an index beside it is looked for.
    fn has_none_here(&self) -> bool {
        let is_asked_for = self.options.index.recreate != Recreate::Always;
        is_asked_for && self.looks_beside(Origin::Found) && !self.candidates().iter().any(|path| path.exists())
    }

    /// Looks for an index of ours beside the object now, for who asks later.
    fn find_own(&self) {
        let Some(far) = &self.beside else { return };
        let found = far.beside.open(location::SUFFIX);
        *far.own.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    }

    /// True if indexes of this kind that lie beside the object are used.
    fn looks_beside(&self, origin: Origin) -> bool {
        let is_wanted = origin != Origin::Sidecar || self.takes_sidecars();
        // Who says where the index lies means no other one.
        is_wanted && matches!(self.options.index.place, IndexPlace::Folders(_))
    }

    /// Indexes of ours that lie beside the object. They are looked for when this is asked, not before.
    pub(super) fn own_beside(&self) -> impl Iterator<Item = Opened> + '_ {
        self.files_beside(&[location::SUFFIX], Origin::Found).map(|(file, path)| self.own_in(file, path))
    }

    /// The same of ratarmount's, those that are compressed last.
    pub(super) fn sidecars_beside(&self) -> impl Iterator<Item = Opened> + '_ {
        static SUFFIXES: LazyLock<Vec<String>> = LazyLock::new(|| {
            let plain = str::from_utf8(ratarmount::SUFFIX).unwrap_or_default();
            std::iter::once("").chain(ratarmount::PACKED).map(|packed| format!("{plain}{packed}")).collect()
        });
        // Each is a request. Of a small archive an index is small, too, and nobody compresses it.
        let count = if self.source.len() < LEAST_WITH_PACKED { 1 } else { SUFFIXES.len() };
        let all = &SUFFIXES[..count];
        self.files_beside(all, Origin::Sidecar).map(|(file, path)| self.sidecar_in(file, path))
    }

    /// The index behind a URL that is named, of either kind.
    pub(super) fn at_url(&self) -> Vec<Opened> {
        let IndexPlace::Url(IndexAt { url, file }) = &self.options.index.place else { return Vec::new() };
        let own = self.own_in(file.clone(), url.clone());
        // One that is of tarnfs has its reasons.
        let is_foreign = matches!(&own.0, Err(tarnfs_index::Error::Unknown(_))) && self.takes_sidecars();
        let foreign = is_foreign.then(|| self.sidecar_in(file.clone(), url.clone()));
        vec![foreign.unwrap_or(own)]
    }

    fn own_in(&self, file: Neighbour, path: PathBuf) -> Opened {
        let owner = &self.facts.owner;
        match file {
            Neighbour::Copy(copy) => (self.own(&copy, owner), copy, Origin::Found),
            Neighbour::Far(source) => {
                let shape = &self.options.shape;
                (own::open_source(strict(source)).and_then(|index| self.fitting(index, shape)), path, Origin::Found)
            }
        }
    }

    fn sidecar_in(&self, file: Neighbour, path: PathBuf) -> Opened {
        match file {
            Neighbour::Copy(copy) => (self.sidecar(&copy, &self.facts.owner), copy, Origin::Sidecar),
            Neighbour::Far(source) => {
                (ratarmount::open_source(strict(source), &self.expected()), path, Origin::Sidecar)
            }
        }
    }

    fn files_beside<S: AsRef<str>>(
        &self,
        suffixes: &'static [S],
        origin: Origin,
    ) -> impl Iterator<Item = (Neighbour, PathBuf)> + '_ {
        let is_wanted = self.looks_beside(origin);
        let far = self.beside.iter().filter(move |_| is_wanted);
        far.flat_map(move |far| suffixes.iter().map(move |suffix| (far, suffix.as_ref()))).filter_map(
            |(far, suffix): (&Far, &str)| {
                let mut path = self.path.as_os_str().to_owned();
                path.push(suffix);
                // It is only quicker with one.
                let found = far.open(suffix).unwrap_or_else(|error| {
                    log::info!("{}: no index beside it: {error}", self.path.display());
                    None
                });
                found.map(|file| (file, PathBuf::from(path)))
            },
        )
    }
}

/// Bytes of an archive behind a URL from which on an index beside it may be compressed.
const LEAST_WITH_PACKED: u64 = 16 << 20;

fn strict(source: SharedSource) -> SharedSource {
    Arc::new(Strict::new(source))
}
