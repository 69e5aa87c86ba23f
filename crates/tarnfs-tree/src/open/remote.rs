//! Archives behind a URL: who opens them is given ([`Remotes`]), so that no front end is made to have a network.

use std::borrow::Cow;
use std::fmt::Debug;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::process::{getegid, geteuid};
use tarnfs_index::{location, ratarmount, trust};
use tarnfs_source::{SharedSource, Strict};

use super::places::Opened;
use super::{FileFacts, IndexPlace, OpenArchive, Opening, Options, Origin, Problem, fingerprint};

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
    /// A local copy of the one whose name has `suffix` behind that of the object; `None` if there is none.
    fn copy(&self, suffix: &str) -> io::Result<Option<PathBuf>>;
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
    let fingerprint = fingerprint(&*source)?;
    // A server may call its objects as others do: the hash must not be one that can be met.
    let hash =
        blake3::Hasher::new().update(url.as_os_str().as_bytes()).update(b"\0").update(version.as_bytes()).finalize();
    let identity = hash.as_bytes().first_chunk().filter(|_| is_lasting).map(|eight| u64::from_le_bytes(*eight));
    let facts = FileFacts { owner, modified, identity };
    let (home, unread) = (None, AtomicBool::new(false));
    let beside = Some(Far { beside, version: is_lasting.then_some(version) });
    Opening { path: url, source, facts, options, fingerprint, home, is_at_path: false, unread, beside }.open()
}

/// What is known of an object, and around it.
pub(super) struct Far {
    beside: Arc<dyn Beside>,
    /// See [`Remote::version`]; `None` of one that is not lasting.
    version: Option<String>,
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

    /// Indexes of ours that lie beside the object. They are looked for when this is asked, not before.
    pub(super) fn own_beside(&self) -> impl Iterator<Item = Opened> + '_ {
        let open = |path: &Path| self.own(path, &self.facts.owner);
        self.copies_beside(location::SUFFIX, Origin::Found).map(move |path| (open(&path), path, Origin::Found))
    }

    /// The same of ratarmount's.
    pub(super) fn sidecars_beside(&self) -> impl Iterator<Item = Opened> + '_ {
        let open = |path: &Path| self.sidecar(path, &self.facts.owner);
        let suffix = str::from_utf8(ratarmount::SUFFIX).unwrap_or_default();
        self.copies_beside(suffix, Origin::Sidecar).map(move |path| (open(&path), path, Origin::Sidecar))
    }

    fn copies_beside(&self, suffix: &'static str, origin: Origin) -> impl Iterator<Item = PathBuf> + '_ {
        let index = &self.options.index;
        let is_wanted = match origin {
            Origin::Sidecar => index.use_sidecars && !self.options.decoding.force,
            _ => true,
        };
        // Who says where the index lies means no other one.
        let is_wanted = is_wanted && matches!(index.place, IndexPlace::Folders(_));
        let far = self.beside.iter().filter(move |_| is_wanted);
        far.filter_map(move |far| {
            // It is only quicker with one.
            far.beside.copy(suffix).unwrap_or_else(|error| {
                log::info!("{}: no index beside it: {error}", self.path.display());
                None
            })
        })
    }
}
