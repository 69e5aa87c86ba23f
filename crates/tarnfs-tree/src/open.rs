//! Opening an archive: its index where one belongs to it, else a first pass that makes one.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tarnfs_codec::engine::{DecodedSource, PieceCache, Workers};
use tarnfs_codec::{CoderContext, DecodeContext, Dictionaries, Scratch};
use tarnfs_format::{Reader, name};
use tarnfs_index::{
    Archive, Destination, Index, Shape, Summary, Writer, WriterOptions, location, own, ratarmount, trust,
};
use tarnfs_source::{Budget, Cancel, FileSource, Fingerprint, Limits, SharedSource, Slice, Source, Strict};

use crate::Time;
use crate::archive::{ArchiveTree, Implied};
use crate::build::{FirstPass, Names, Progress, single_file};
pub use crate::decoded_cache::DecodedCache;
use crate::directory;
use crate::filling;
use crate::grow::replay;
use crate::hashes;
use crate::home::Home;
use crate::recheck::Recheck;
use crate::streams::{StreamContext, Streams, deep_layers};

pub use crate::problem::Problem;

/// When an index is made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Recreate {
    /// When none is found that belongs to the archive.
    #[default]
    IfNeeded,
    /// In any case.
    Always,
    /// Never: without one that belongs, opening fails.
    Never,
}

/// Where the index is looked for and put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexPlace {
    /// In these folders, in order; an empty one is the archive's own. `--index-folders`
    Folders(Vec<PathBuf>),
    /// In this file. `--index-file`
    File(PathBuf),
    /// Nowhere: it is made in memory. `--index-file :memory:`
    Memory,
}

/// How an archive is opened.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct Options {
    /// What shapes the tree.
    pub shape: Shape,
    /// Where the index is looked for and put.
    pub place: IndexPlace,
    /// When it is made anew.
    pub recreate: Recreate,
    /// An index of an archive with another time of change does not belong to it.
    pub verify_mtime: bool,
    /// Believe an index whoever may have written it.
    pub trust_index: bool,
    /// A new index is kept in its place; else it is made in memory. One that is there is used in any case.
    pub write_index: bool,
    /// It is an error if a new index can be written nowhere. That is so anyway where its file was named.
    pub index_is_required: bool,
    /// Where there is no index of our own, a sidecar of ratarmount is used.
    pub use_sidecars: bool,
    /// Archives with fewer entries get no index on disk if reading them again is cheap ([`CHEAP_TO_READ`]) and the
    /// index is small.
    pub minimum_file_count: u64,
    /// Decoded bytes between two seek points, where the codec is free to choose. `None`: 4 MiB, or less where they
    /// take little of the archive.
    pub seek_point_spacing: Option<u64>,
    /// Threads that decode; at least 1.
    pub threads: usize,
    /// Codecs, by name, for which it is another number.
    pub threads_of: Vec<(String, usize)>,
    /// Bounds on what the archive may say.
    pub limits: Limits,
    /// What frames of zstd may need beside the archive.
    pub dictionaries: Dictionaries,
    /// Of encrypted files, as they were typed; tried in order.
    pub passwords: Passwords,
    /// For decoders whose state outgrows the memory that they may take. Who gives up making files fills it before.
    pub scratch: Scratch,
    /// What has been decoded, and the budget of all memory that grows with what is read. Archives that one process has
    /// open share it.
    pub cache: Arc<PieceCache>,
    /// Where decoded pieces are kept on disk, of archives in which random reads are slow; nowhere if `None`.
    pub decoded_cache: Option<DecodedCache>,
    /// Ends a first pass.
    pub cancel: Cancel,
    /// How far a first pass has come.
    pub progress: Arc<Progress>,
    /// Bytes that can be decoded but fail a check of their format are served. The index is the same. `--force`
    pub force: bool,
    /// Who gets what a first pass decodes.
    pub sink: Option<Arc<dyn Sink>>,
}

/// Gets the decoded bytes of a compressed archive while a first pass makes them: in order, from the first one on, and
/// only those that are verified. It gets no more where damage is found, or where too many would have to wait for a
/// checksum that stands behind them.
pub trait Sink: std::fmt::Debug + Send + Sync {
    /// Takes the bytes that come next. An error ends the pass.
    fn write(&self, decoded: &[u8]) -> io::Result<()>;
}

/// Passwords that are tried in order. They are not shown where options are.
#[derive(Clone, Default)]
pub struct Passwords(Arc<[Arc<[u8]>]>);

impl Passwords {
    /// These.
    pub fn new(passwords: Vec<Arc<[u8]>>) -> Self {
        Self(passwords.into())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<[u8]>> {
        self.0.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Debug for Passwords {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} passwords", self.0.len())
    }
}

/// An archive of fewer bytes is read again at each mount within a moment, if it has few entries.
pub const CHEAP_TO_READ: u64 = 16 << 20;

/// A larger index goes to a disk, however few entries it has: attributes, sparse maps and seek points may be large.
const SMALL_INDEX: u64 = 16 << 20;

/// Bytes of zeros behind an archive among which something else may have been put since.
const MOST_PADDING: usize = 1 << 20;

impl Default for Options {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            shape: Shape { gnu_incremental: Some(false), ..Shape::default() },
            place: IndexPlace::Folders(location::default_folders()),
            recreate: Recreate::IfNeeded,
            verify_mtime: false,
            trust_index: false,
            write_index: true,
            index_is_required: false,
            use_sidecars: true,
            minimum_file_count: 1000,
            seek_point_spacing: None,
            threads,
            threads_of: Vec::new(),
            limits: Limits::default(),
            dictionaries: Dictionaries::default(),
            passwords: Passwords::default(),
            scratch: Scratch::default(),
            cache: PieceCache::new(Budget::for_this_machine(threads)),
            decoded_cache: None,
            cancel: Cancel::default(),
            progress: Arc::default(),
            force: false,
            sink: None,
        }
    }
}

impl Options {
    /// What shapes a first pass, but for its threads.
    pub(crate) fn first_pass(&self) -> tarnfs_codec::Options {
        let usual = tarnfs_codec::Options::default();
        tarnfs_codec::Options {
            seek_point_spacing: self.seek_point_spacing.unwrap_or(usual.seek_point_spacing),
            closer_seek_points: self.seek_point_spacing.is_none(),
            limits: self.limits,
            dictionaries: self.dictionaries.clone(),
            scratch: self.scratch.clone(),
            cancel: self.cancel.clone(),
            ..usual
        }
    }

    /// What decoders may need beside their streams.
    pub(crate) fn decoding(&self) -> DecodeContext {
        DecodeContext {
            limits: self.limits,
            dictionaries: self.dictionaries.clone(),
            scratch: self.scratch.clone(),
            unverified: self.force,
            coder: CoderContext::default(),
        }
    }

    /// Threads that may decode a stream of this codec.
    pub(crate) fn threads_for(&self, codec: &str) -> usize {
        self.threads_of.iter().rev().find(|(name, _)| name == codec).map_or(self.threads, |(_, threads)| *threads)
    }
}

/// An open archive.
#[derive(Debug)]
pub struct OpenArchive {
    /// Its tree.
    pub tree: Arc<ArchiveTree>,
    /// Its index.
    pub index: Arc<dyn Index>,
    /// The file of the index; `None` if it is in memory.
    pub index_path: Option<PathBuf>,
    /// True if a first pass was made.
    pub is_new: bool,
    /// True if the index is a sidecar of ratarmount, which says less than one of ours.
    pub is_sidecar: bool,
    /// The innermost stream: the file with its compression undone.
    pub stream: SharedSource,
    /// Device and number of its file, where it is one that was opened by its path.
    pub file: Option<(u64, u64)>,
}

/// What is known of an archive's file beside its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileFacts {
    /// Who may write it.
    pub owner: trust::Owner,
    /// Last change of its content, ns since 1970.
    pub modified: i64,
}

impl FileFacts {
    /// Those of an open file.
    pub fn of(file: &FileSource) -> io::Result<Self> {
        let modified = i64::try_from(file.identity().modified).unwrap_or(i64::MAX);
        Ok(Self { owner: trust::Owner::of(file)?, modified })
    }

    pub(crate) fn mtime(&self) -> Time {
        let second = 1_000_000_000;
        Time { seconds: self.modified.div_euclid(second), nanoseconds: self.modified.rem_euclid(second) as u32 }
    }
}

/// Opens the archive at `path`.
pub fn open(path: &Path, options: &Options) -> Result<OpenArchive, Problem> {
    let start = Instant::now();
    let file = Arc::new(FileSource::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound if is_url(path) => Problem::Url,
        _ => Problem::CannotOpen(error),
    })?);
    let facts = FileFacts::of(&file).map_err(Problem::CannotOpen)?;
    // Before anything is read, which takes a while.
    let home = Home::of(&*file).inspect_err(|error| log::info!("{}: its folder is not known: {error}", path.display()));
    let home = home.ok().flatten();
    if home.is_none() {
        log::info!("{}: no index beside it: its folder is not known", path.display());
    }
    let fingerprint = fingerprint(&*file)?;
    // From now on a rename is told from a rewrite.
    file.watch(fingerprint);
    log::debug!("{}: opened and sampled in {:.3} s", path.display(), start.elapsed().as_secs_f64());
    let identity = file.identity();
    let source = Arc::clone(&file) as SharedSource;
    let opened = Opening { path, source, facts, options, fingerprint, home, is_at_path: true }.open()?;
    if opened.has_checksums() {
        file.is_verified_by_reader();
    }
    Ok(OpenArchive { file: Some((identity.device, identity.inode)), ..opened })
}

impl OpenArchive {
    /// True if all bytes that are read of the archive's file are verified. Those of a plain tar are not.
    pub(crate) fn has_checksums(&self) -> bool {
        !self.index.summary().layers.is_empty() && !self.is_sidecar
    }
}

/// True of "https://host/x.tar": a scheme as RFC 3986 has it, and two slashes.
pub fn is_url(path: &Path) -> bool {
    let path = path.as_os_str().as_bytes();
    let is_of_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let Some(end) = path.windows(3).position(|bytes| bytes == b"://") else { return false };
    path.first().is_some_and(u8::is_ascii_alphabetic) && path[..end].iter().all(is_of_scheme)
}

/// Opens the archive whose bytes are `source`. Its indexes lie where those of a file at `path` would.
pub fn open_source(
    source: SharedSource,
    facts: FileFacts,
    path: &Path,
    options: &Options,
) -> Result<OpenArchive, Problem> {
    open_within(source, facts, path, None, options)
}

/// The same; `folder` is the one that the file at `path` lies in, a path without symbolic links.
pub(crate) fn open_within(
    source: SharedSource,
    facts: FileFacts,
    path: &Path,
    folder: Option<OwnedFd>,
    options: &Options,
) -> Result<OpenArchive, Problem> {
    let home =
        folder.zip(path.parent()).map(|(folder, parent)| (Home::new(folder, parent.to_owned()), path.to_owned()));
    let source: SharedSource = Arc::new(Strict::new(source));
    let fingerprint = fingerprint(&*source)?;
    Opening { path, source, facts, options, fingerprint, home, is_at_path: false }.open()
}

/// Samples the file.
fn fingerprint(source: &dyn Source) -> Result<Fingerprint, Problem> {
    Fingerprint::of(source).map_err(|error| Problem::Read { offset: 0, error })
}

/// Where what an index says of the archive's headers comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// All were read just now.
    Read,
    /// Those of what was appended were; the rest comes from an older index.
    Continued,
    /// From an older index.
    Found,
    /// From a sidecar of ratarmount.
    Sidecar,
}

fn has_random_format(summary: &Summary) -> bool {
    let format = tarnfs_format::by_name(&summary.format);
    format.is_some_and(|format| matches!(format.reader(), Reader::Random(_)))
}

/// True of an archive whose own directory says all that its index would, and as fast.
fn has_directory(summary: &Summary, writer: &Writer) -> bool {
    has_random_format(summary) && summary.layers.is_empty() && !writer.has_nested() && summary.shape.hashes.is_empty()
}

/// True if nobody knows whether there is a file at `path`: its folder may not be looked into.
fn is_unreachable(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// An index that was made, and its file if it has one.
type Built = (Arc<dyn Index>, Option<PathBuf>, Origin);

struct Opening<'a> {
    path: &'a Path,
    source: SharedSource,
    facts: FileFacts,
    options: &'a Options,
    fingerprint: Fingerprint,
    /// The folder that the file lies in, and its path there.
    home: Option<(Home, PathBuf)>,
    /// The source is the file that lay at `path`.
    is_at_path: bool,
}

impl Opening<'_> {
    fn open(&self) -> Result<OpenArchive, Problem> {
        let mut reason = "there is none".to_owned();
        if self.options.recreate != Recreate::Always {
            match self.existing() {
                Ok((index, index_path, origin)) => return self.finish(index, Some(index_path), origin),
                Err(why) => reason = why,
            }
        }
        if self.options.recreate == Recreate::Never {
            return Err(Problem::NoIndex(reason));
        }
        if let Some(whose) = self.of_another_archive() {
            return Err(Problem::Unwritten(format!("{whose}: name another file, or replace it with -c")));
        }
        let (index, index_path, origin) = self.build()?;
        self.finish(index, index_path, origin)
    }

    fn source(&self) -> SharedSource {
        Arc::clone(&self.source)
    }

    /// Whose index the named file is, if it is that of another archive. One of this archive as it was once is replaced.
    fn of_another_archive(&self) -> Option<String> {
        let IndexPlace::File(path) = &self.options.place else { return None };
        if self.options.recreate == Recreate::Always {
            return None;
        }
        let index = own::open(path, Some(&self.facts.owner), self.options.trust_index).ok()?;
        let summary = index.summary();
        let archive = self.archive();
        let is_it = (summary.archive.length, summary.archive.fingerprint) == (archive.length, archive.fingerprint);
        let resolved = self.path.canonicalize().ok();
        let names = [Some(self.path), resolved.as_deref()].into_iter().flatten().filter_map(Path::file_name);
        let is_named_so = |name: &[u8]| names.map(std::ffi::OsStr::as_bytes).any(|own| own == name);
        if is_it || summary.name.as_deref().is_some_and(is_named_so) || self.grown_from().is_some() {
            return None;
        }
        let (file, length) = (path.display(), summary.archive.length);
        Some(match &summary.name {
            Some(name) => format!("{file} is the index of {} ({length} bytes)", name::escape(name)),
            None => format!("{file} is the index of another archive ({length} bytes)"),
        })
    }

    fn archive(&self) -> Archive {
        Archive { length: self.source.len(), fingerprint: self.fingerprint, modified: self.facts.modified }
    }

    /// The first index that belongs, or why the last one that was found does not.
    fn existing(&self) -> Result<(Arc<dyn Index>, PathBuf, Origin), String> {
        let owner = self.facts.owner;
        let mut reason = "there is none".to_owned();
        let own = self.candidates().into_iter().map(|path| (self.own(&path, &owner), path, Origin::Found));
        let sidecars = self.sidecar_candidates().into_iter();
        let sidecars = sidecars.map(|path| (self.sidecar(&path, &owner), path, Origin::Sidecar));
        // Chained lazily: nobody looks for a sidecar of ratarmount if there is an index of our own.
        let mut start = Instant::now();
        for (opened, path, origin) in own.chain(sidecars) {
            let taken = std::mem::replace(&mut start, Instant::now()).elapsed().as_secs_f64();
            match opened {
                Ok(index) => {
                    let (archive, index_file) = (self.path.display(), path.display());
                    log::debug!("{archive}: index {index_file} is used, checked in {taken:.3} s");
                    return Ok((index, path, origin));
                }
                Err(tarnfs_index::Error::Missing) => {
                    log::debug!("{}: no index at {}", self.path.display(), path.display());
                }
                // Nothing is wrong with it. If another one is made, that is said then.
                Err(error @ tarnfs_index::Error::OtherOptions(_)) => {
                    log::info!("{}: index {}: {error}", self.path.display(), path.display());
                    reason = error.to_string();
                }
                Err(error) => {
                    // Said once, where it matters: when an index is not written, or is not replaced.
                    let is_said_later = is_unreachable(&path)
                        || (self.options.recreate == Recreate::IfNeeded && self.of_another_archive().is_some());
                    let level = if is_said_later { log::Level::Info } else { log::Level::Warn };
                    log::log!(level, "{}: index {}: {error}", self.path.display(), path.display());
                    reason = error.to_string();
                }
            }
        }
        Err(reason)
    }

    /// Where a new index may be put, one place for each folder, and the indexes that have the first place there. An
    /// index that belongs to the archive and shows another tree is kept. Where a new one was asked for, the place of
    /// the one that this call would use comes first.
    fn destinations(&self) -> (Vec<PathBuf>, Vec<(PathBuf, String)>) {
        let mut kept = Vec::new();
        let replaced = self.replaced();
        let mut free: Vec<PathBuf> = replaced.clone().into_iter().collect();
        for places in self.places() {
            if !replaced.as_ref().is_some_and(|replaced| places.contains(replaced)) {
                free.extend(self.free(&places, &mut kept));
            }
        }
        if replaced.is_some() {
            // As was asked for; nobody need be told of others.
            kept.clear();
        }
        (free, kept)
    }

    /// The index that is replaced since a new one was asked for: the one that this call would use, else one that has
    /// less.
    fn replaced(&self) -> Option<PathBuf> {
        if self.options.recreate != Recreate::Always {
            return None;
        }
        let (places, wanted) = (self.candidates(), &self.options.shape);
        let with = |fits: &dyn Fn(&Path) -> bool| places.iter().find(|path| fits(path)).cloned();
        with(&|path| self.own(path, &self.facts.owner).is_ok())
            .or_else(|| with(&|path| self.has_shape(path, &|old| old.serves(wanted))))
            .or_else(|| with(&|path| self.has_shape(path, &|old| wanted.serves(old))))
    }

    /// Which of `places`, those of one folder, a new index gets; what lies at others goes to `kept`.
    fn free(&self, places: &[PathBuf], kept: &mut Vec<(PathBuf, String)>) -> Option<PathBuf> {
        if let ([place], Recreate::Always) = (places, self.options.recreate) {
            // It is named.
            return Some(place.clone());
        }
        // Each of two who do not trust one another would replace the other's at each call.
        let is_of_another = |path: &&PathBuf| {
            let refused = matches!(self.own(path, &self.facts.owner), Err(tarnfs_index::Error::NotTrusted(_)));
            refused && trust::is_of_another(path)
        };
        if let Some(place) = places.iter().find(is_of_another) {
            kept.push((place.clone(), "made by another user".to_owned()));
            return None;
        }
        let mut free = places.iter().filter(|path| match self.why_kept(path) {
            Some(why) => {
                kept.push(((*path).clone(), why));
                false
            }
            None => true,
        });
        free.next().cloned()
    }

    /// Which file a new index replaces that was meant for `path`, now that it is complete: somebody else may have made
    /// another one there since.
    fn place_now(&self, path: &Path) -> Option<PathBuf> {
        if self.is_at_path && path.exists() && self.is_outdated() {
            // What is there may be the index of what is there now.
            return None;
        }
        let places = self.places().into_iter().find(|places| places.iter().any(|place| place == path))?;
        let replaced = self.replaced().filter(|replaced| places.contains(replaced));
        replaced.or_else(|| self.free(&places, &mut Vec::new()))
    }

    /// True if another file lies at the archive's path than the one that was read, or it was changed since.
    fn is_outdated(&self) -> bool {
        let Ok(now) = FileSource::open(self.path) else { return false };
        let modified = FileFacts::of(&now).map(|facts| facts.modified);
        now.len() != self.source.len() || modified.is_ok_and(|modified| modified != self.facts.modified)
    }

    /// True if there is an index at `path` whose shape `fits`.
    fn has_shape(&self, path: &Path, fits: &dyn Fn(&Shape) -> bool) -> bool {
        let index = self.own_at(path, &self.facts.owner);
        index.is_ok_and(|index| fits(&index.summary().shape))
    }

    /// Why no new index replaces the file at `path`, if that is so.
    fn why_kept(&self, path: &Path) -> Option<String> {
        match self.own(path, &self.facts.owner) {
            Err(error @ tarnfs_index::Error::OtherOptions(_)) => Some(error.to_string()),
            Err(tarnfs_index::Error::Unknown(_)) if ratarmount::may_be_one(&self.at(path)) => {
                Some("made by ratarmount".to_owned())
            }
            // Then this archive would not have been read: somebody has made it meanwhile.
            Ok(index) if index.summary().shape != self.options.shape => Some("made with more hashes".to_owned()),
            _ => None,
        }
    }

    /// The index of this archive as it was before something was appended to it, if there is one.
    fn grown_from(&self) -> Option<Arc<dyn Index>> {
        if self.options.recreate == Recreate::Always {
            return None;
        }
        self.candidates().into_iter().find_map(|path| {
            let index = self.own_at(&path, &self.facts.owner).ok()?;
            let old = index.summary();
            let can_grow = old.layers.is_empty()
                && old.notes.is_empty()
                && old.shape == self.options.shape
                && old.shape.gnu_incremental == Some(false)
                && old.shape.recursion.is_none()
                && old.shape.hashes.is_empty()
                && old.shape.transform.is_none()
                // What is appended may fit into the padding of the last record.
                && old.archive.length <= self.source.len()
                && !self.starts_with_a_global_header();
            let part = Slice::new(self.source(), 0, old.end);
            (can_grow && old.grown_from == Some(Fingerprint::of(&part).ok()?)).then_some(index)
        })
    }

    /// A global header of pax says something of every entry behind it, also of those that are appended.
    fn starts_with_a_global_header(&self) -> bool {
        const TYPE_FLAG: u64 = 156;
        let mut flag = [0];
        self.source.read_at(&mut flag, TYPE_FLAG).is_ok() && flag == *b"g"
    }

    /// What leads to `path` whatever becomes of the archive's folder, if it lies there.
    fn at(&self, path: &Path) -> PathBuf {
        self.home.as_ref().map_or_else(|| path.to_owned(), |(home, _)| home.at(path))
    }

    /// The inverse of [`Opening::at`].
    fn shown(&self, path: &Path) -> PathBuf {
        self.home.as_ref().map_or_else(|| path.to_owned(), |(home, _)| home.shown(path))
    }

    /// What was said of a file that was reached so.
    fn named(&self, message: &str) -> String {
        self.home.as_ref().map_or_else(|| message.to_owned(), |(home, _)| home.named(message))
    }

    /// The index at `path`, whatever it belongs to.
    fn own_at(&self, path: &Path, owner: &trust::Owner) -> Result<Arc<dyn Index>, tarnfs_index::Error> {
        own::open(&self.at(path), Some(owner), self.options.trust_index).map_err(|error| match error {
            tarnfs_index::Error::NotTrusted(why) => tarnfs_index::Error::NotTrusted(self.named(&why)),
            error => error,
        })
    }

    fn own(&self, path: &Path, owner: &trust::Owner) -> Result<Arc<dyn Index>, tarnfs_index::Error> {
        let index = self.own_at(path, owner)?;
        let archive = self.archive();
        let facts =
            own::Facts { length: archive.length, modified: archive.modified, fingerprint: &|| Ok(archive.fingerprint) };
        own::belongs(index.summary(), &facts, &self.options.shape, self.options.verify_mtime)?;
        if index.summary().notes.iter().any(|(_, what)| self.options.dictionaries.may_mend(what)) {
            let what = "it may have been made without a dictionary that is given now";
            return Err(tarnfs_index::Error::Stale(what.to_owned()));
        }
        let (layers, most) = (index.summary().layers.len(), self.options.limits.compression_layers);
        if layers > most {
            return Err(tarnfs_index::Error::Broken(format!("{layers} layers of compression, more than {most}")));
        }
        if self.was_appended_to(index.summary())? {
            return Err(tarnfs_index::Error::Stale("something was appended to it".to_owned()));
        }
        let wanted = &self.options.shape.hashes;
        let hidden = index.summary().shape.hashes.iter().filter(|hash| !wanted.contains(hash));
        index.hide_xattrs(hidden.map(|hash| hashes::attribute(hash)).collect());
        Ok(index)
    }

    /// What is appended may fit into the zeros behind the old end: then the length is the same, and where it lies no
    /// sample may be taken.
    fn was_appended_to(&self, old: &Summary) -> io::Result<bool> {
        if !old.layers.is_empty() || old.archive.modified == self.archive().modified {
            return Ok(false);
        }
        // Where what is appended does not go on with the archive, it may lie behind zeros.
        let most = if old.grown_from.is_some() { 512 } else { MOST_PADDING };
        let mut bytes = vec![0; most];
        let read = self.source.read_at(&mut bytes, old.end)?;
        Ok(bytes[..read].iter().any(|&byte| byte != 0))
    }

    fn sidecar(&self, path: &Path, owner: &trust::Owner) -> Result<Arc<dyn Index>, tarnfs_index::Error> {
        let file = trust::open(path, Some(owner), self.options.trust_index)?;
        let expected = ratarmount::Expected {
            source: self.source(),
            modified: self.archive().modified,
            verify_mtime: self.options.verify_mtime,
            shape: self.options.shape.clone(),
            limits: self.options.limits,
            dictionaries: self.options.dictionaries.clone(),
            cancel: self.options.cancel.clone(),
        };
        ratarmount::open(file, &expected)
    }

    /// Where an index may lie, for each folder.
    fn places(&self) -> Vec<Vec<PathBuf>> {
        match &self.options.place {
            IndexPlace::Memory => Vec::new(),
            IndexPlace::File(path) => vec![vec![path.clone()]],
            IndexPlace::Folders(folders) => {
                let mains = if let Some((_, path)) = &self.home {
                    location::candidates_of(path, folders)
                } else {
                    let elsewhere = folders.iter().filter(|folder| !folder.as_os_str().is_empty()).cloned();
                    location::candidates(self.path, None, &elsewhere.collect::<Vec<_>>())
                };
                let with_variants = |main: PathBuf| {
                    let variants = self.options.shape.variants(&main);
                    std::iter::once(main).chain(variants).collect()
                };
                mains.into_iter().map(with_variants).collect()
            }
        }
    }

    fn candidates(&self) -> Vec<PathBuf> {
        self.places().into_iter().flatten().collect()
    }

    /// Where ratarmount puts its sidecars; a file that is named may be of either kind.
    fn sidecar_candidates(&self) -> Vec<PathBuf> {
        match &self.options.place {
            _ if !self.options.use_sidecars => Vec::new(),
            // They do not say what is damaged, so nothing of it could be told from the rest.
            _ if self.options.force => Vec::new(),
            IndexPlace::Memory => Vec::new(),
            IndexPlace::File(path) => {
                Some(path.clone()).filter(|path| ratarmount::may_be_one(path)).into_iter().collect()
            }
            IndexPlace::Folders(folders) => ratarmount::candidates(self.path, folders),
        }
    }

    fn build(&self) -> Result<Built, Problem> {
        let options = self.options;
        let start = Instant::now();
        let names = Names::new(&options.shape, &options.limits)?;
        let source = self.source();
        let pass = FirstPass {
            source: &source,
            name: self.path.file_name().unwrap_or_default().as_bytes(),
            single_file: single_file(self.path, &self.facts),
            names: &names,
            format: &tarnfs_format::Options {
                limits: options.limits,
                ignore_zeros: options.shape.ignore_zeros,
                gnu_incremental: options.shape.gnu_incremental,
                cancel: options.cancel.clone(),
                decode: directory::decode(options),
            },
            options,
            archive: self.archive(),
        };
        let no_folder = self.no_folder();
        if let Some(why) = &no_folder {
            // Now, not when all has been read, which may take long.
            if options.index_is_required {
                return Err(Problem::Unwritten(why.clone()));
            }
            log::warn!("{}: no index is kept: {why}", self.path.display());
        }
        let (origin, (writer, summary)) = match self.continued(&pass)? {
            Some(continued) => (Origin::Continued, continued),
            None => (Origin::Read, pass.run(self.writer()?)?),
        };
        options.progress.bytes.store(source.len(), Ordering::Relaxed);
        let (read, entries) = (start.elapsed(), writer.entries());
        let few = entries < options.minimum_file_count && source.len() < CHEAP_TO_READ && writer.bytes() < SMALL_INDEX;
        let is_named = matches!(options.place, IndexPlace::File(_));
        let is_worth_it = options.index_is_required || !few && !has_directory(&summary, &writer);
        // What a password opens (names, targets of links, hashes) would lie beside the archive for all who may read it.
        let is_open = options.passwords.is_empty() || !has_random_format(&summary) && summary.shape.recursion.is_none();
        if !is_open && (is_named || options.index_is_required) {
            let what = "no index is written of what a password opens: it would not be encrypted";
            return Err(Problem::Unwritten(what.to_owned()));
        }
        let keep = options.write_index && no_folder.is_none() && is_open && (is_named || is_worth_it);
        let (free, kept) = if keep { self.destinations() } else { Default::default() };
        let mut destinations: Vec<_> = free.iter().map(|path| Destination::File(self.at(path))).collect();
        destinations.push(Destination::Memory);
        let (mut tried, mut mistyped) = (Vec::new(), Vec::new());
        let mut index_path = None;
        let mut choose = |path: &Path| {
            index_path = self.place_now(&self.shown(path));
            index_path.as_deref().map(|path| self.at(path))
        };
        let index = writer.finish_at_first(summary, &destinations, &mut choose, &mut |destination, error| {
            if let Destination::File(path) = destination {
                match path.parent().and_then(location::why_no_folder) {
                    Some(why) => mistyped.push(why),
                    None => tried.push(self.named(&format!("{}: {error}", path.display()))),
                }
            }
        })?;
        let failed = tried.len() + mistyped.len();
        if matches!(destinations.get(failed), Some(Destination::Memory)) {
            index_path = None;
        }
        if let Some((path, why)) = kept.first() {
            let instead = index_path.as_ref().map_or_else(
                || "--recreate-index replaces it".to_owned(),
                |path| format!("the one for these options is {}", path.display()),
            );
            log::warn!("{}: index {} was {why}, and is kept; {instead}", self.path.display(), path.display());
        }
        let is_mistyped = !mistyped.is_empty();
        if !tried.is_empty() {
            mistyped.push(format!("the index could not be written to {}", tried.join(", nor to ")));
        }
        let why = mistyped.join("; ");
        if index_path.is_none() && failed > 0 && (is_named || options.index_is_required) {
            return Err(Problem::Unwritten(why));
        }
        if failed > 0 {
            // A place that cannot be written is ordinary as long as another one can.
            let level = if is_mistyped || index_path.is_none() { log::Level::Warn } else { log::Level::Info };
            log::log!(level, "{}: {why}", self.path.display());
        }
        log::debug!(
            "{}: read in {:.3} s, index of {entries} entries written to {} in {:.3} s",
            self.path.display(),
            read.as_secs_f64(),
            index_path.as_deref().unwrap_or(Path::new("memory")).display(),
            start.elapsed().saturating_sub(read).as_secs_f64()
        );
        Ok((index, index_path, origin))
    }

    /// Why no index can be put anywhere, where none of the folders for it is there or can be made.
    fn no_folder(&self) -> Option<String> {
        let IndexPlace::Folders(folders) = &self.options.place else { return None };
        let why = |folder: &PathBuf| {
            if folder.as_os_str().is_empty() || folder.exists() { None } else { location::why_no_folder(folder) }
        };
        let all: Option<Vec<_>> = folders.iter().map(why).collect();
        all.filter(|all| !all.is_empty() && self.options.write_index).map(|all| all.join("; "))
    }

    /// A writer of an index that those may read who may read the archive.
    fn writer(&self) -> Result<Writer, Problem> {
        let options = self.options;
        let writer = Writer::new(WriterOptions {
            limits: options.limits,
            budget: options.cache.budget().clone(),
            cancel: options.cancel.clone(),
        })?;
        Ok(writer.readable_as(self.facts.owner).of_archive(self.source.len()))
    }

    /// Reads only what was appended, where there is a good index of what was there before.
    fn continued(&self, pass: &FirstPass<'_>) -> Result<Option<(Writer, Summary)>, Problem> {
        let Some(old) = self.grown_from() else { return Ok(None) };
        let mut writer = self.writer()?;
        match replay(&old, &mut writer) {
            Ok(()) => {}
            Err(tarnfs_index::Error::Stale(why)) => {
                log::info!("{} grew, and is read from its start: {why}", self.path.display());
                return Ok(None);
            }
            // Nothing has been read yet, and the archive itself says all that the index should have said.
            Err(tarnfs_index::Error::Broken(what)) => {
                log::warn!(
                    "{}: its old index is broken: {what}; the archive is read from its start",
                    self.path.display()
                );
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        }
        let end = old.summary().end;
        log::info!("{} grew: reading from byte {end}", self.path.display());
        match pass.grow(old.summary(), writer) {
            // The old index says wrongly where the last entry ends, or this is no longer what it described.
            Ok((_, summary)) if summary.notes.iter().any(|(at, _)| *at == end) => {}
            Err(Problem::NotAnArchive) => {}
            grown => return grown.map(Some),
        }
        log::info!("{}: no header at byte {end}; the archive is read from its start", self.path.display());
        Ok(None)
    }

    /// What a folder that no entry names looks like: it belongs to the archive's owner and is as old as the archive.
    fn implied(&self) -> Implied {
        let trust::Owner { user, group, .. } = self.facts.owner;
        Implied { uid: user, gid: group, mtime: self.facts.mtime() }
    }

    /// Headers are read again if not all of them were read just now. Decoded bytes have checksums instead.
    fn recheck(&self, summary: &Summary, origin: Origin) -> Option<Recheck> {
        let is_plain = origin != Origin::Read && summary.layers.is_empty();
        is_plain.then(|| Recheck::new(summary, &self.options.limits)).flatten()
    }

    /// Puts the codec's source between the file and the tree.
    fn finish(
        &self,
        index: Arc<dyn Index>,
        index_path: Option<PathBuf>,
        origin: Origin,
    ) -> Result<OpenArchive, Problem> {
        let options = self.options;
        let mut stream = self.source();
        let cache = &options.cache;
        let mut layers = Vec::new();
        let codec = index.summary().layers.last().map_or("", |layer| &layer.codec);
        let workers = Workers::new(options.threads_for(codec));
        let context = StreamContext {
            cache: Arc::clone(cache),
            workers: Arc::clone(&workers),
            limits: options.limits,
            decoding: options.decoding(),
            passwords: options.passwords.clone(),
            cancel: Cancel::default(),
        };
        let deep = deep_layers(&index, &stream, &context)?;
        let shallow = if deep.is_some() { &[][..] } else { &index.summary().layers };
        for (number, layer) in shallow.iter().enumerate() {
            let codec = tarnfs_codec::by_name(&layer.codec).ok_or_else(|| {
                let codec = name::excerpt(layer.codec.as_bytes());
                tarnfs_index::Error::Unknown(format!("compressed with {codec}, which is not known"))
            })?;
            let chunks = Arc::clone(&index).chunks(number)?;
            let decoded =
                DecodedSource::new(codec, stream, chunks, Arc::clone(cache), Arc::clone(&workers), options.limits);
            decoded.give(context.decoding.clone());
            if number == 0
                && let Some(kept) = &options.decoded_cache
            {
                self.use_kept(kept, &decoded, codec.name());
            }
            layers.push(Arc::clone(&decoded));
            stream = decoded;
        }
        let stream = deep.unwrap_or(stream);
        index.read_headers_from(&stream);
        let streams = Streams::new(Arc::clone(&index), SharedSource::clone(&stream), layers, context);
        let recheck = self.recheck(index.summary(), origin);
        let tree = ArchiveTree::new(Arc::clone(&index), streams, self.implied(), recheck);
        let tree = Arc::new(tree);
        let is_sidecar = origin == Origin::Sidecar;
        let is_new = !is_sidecar && origin != Origin::Found;
        Ok(OpenArchive { tree, index, index_path, is_new, is_sidecar, stream, file: None })
    }

    /// What is kept decoded need not be decoded, and is added to while nobody reads.
    fn use_kept(&self, kept: &DecodedCache, decoded: &DecodedSource, codec: &str) {
        let (archive, budget) = (self.archive(), self.options.cache.budget());
        if kept.is_filled && decoded.is_slow() {
            match kept.open_to_write(&archive, codec, budget) {
                Ok(writer) => {
                    decoded.read_from(Arc::clone(writer.file()));
                    return filling::add(decoded.fill(writer));
                }
                Err(error) => log::info!("{}: nothing more is kept decoded: {error}", self.path.display()),
            }
        }
        if let Some(file) = kept.open(&archive, codec, budget) {
            decoded.read_from(file);
        }
    }
}
