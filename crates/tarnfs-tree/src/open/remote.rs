//! Archives behind a URL: who opens them is given ([`Remotes`]), so that no front end is made to have a network.

use std::fmt::Debug;
use std::io;
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
    /// Opens the object whose URL, without secrets, is `url`.
    fn open(&self, url: &Path) -> io::Result<Remote>;
}

/// An object behind a URL. All that is read of it is of one version.
#[derive(Debug)]
pub struct Remote {
    /// Its bytes.
    pub source: SharedSource,
    /// Last change, ns since 1970; 0 if that is not known.
    pub modified: i64,
    /// Names the version that it is, for who compares.
    pub version: String,
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
    let opened = remotes.open(url).map_err(|error| match error.kind() {
        io::ErrorKind::Interrupted => Problem::Cancelled,
        _ => Problem::CannotOpen(error),
    });
    let Remote { source, modified, beside, .. } = opened?;
    // Whoever may write it is somebody else. What this user has made of it is believed.
    let owner = trust::Owner { user: geteuid().as_raw(), group: getegid().as_raw(), mode: 0o600 };
    let source: SharedSource = Arc::new(Strict::new(source));
    let fingerprint = fingerprint(&*source)?;
    let facts = FileFacts { owner, modified };
    let (home, unread) = (None, AtomicBool::new(false));
    let beside = Some(beside);
    Opening { path: url, source, facts, options, fingerprint, home, is_at_path: false, unread, beside }.open()
}

impl Opening<'_> {
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
        let beside = self.beside.iter().filter(move |_| is_wanted);
        beside.filter_map(move |beside| {
            // It is only quicker with one.
            beside.copy(suffix).unwrap_or_else(|error| {
                log::info!("{}: no index beside it: {error}", self.path.display());
                None
            })
        })
    }
}
