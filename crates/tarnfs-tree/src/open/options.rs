//! How an archive is opened.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarnfs_codec::engine::PieceCache;
use tarnfs_codec::{CoderContext, DecodeContext, Dictionaries, Scratch};
use tarnfs_format::Entry;
use tarnfs_format::encoding::Encoding;
use tarnfs_index::{Shape, location};
use tarnfs_source::{Budget, Cancel, Limits};

use crate::build::Progress;
use crate::decoded_cache::DecodedCache;
use crate::directory;
use crate::open::Neighbour;
use crate::open::Remotes;

/// How an archive is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// What shapes the tree.
    pub shape: Shape,
    /// Where its index lies, and when one is made.
    pub index: IndexOptions,
    /// How its bytes are decoded.
    pub decoding: DecodingOptions,
    /// An archive that is compressed is shown as the one file that it is when that is undone. It is no archive for any
    /// other index.
    pub only_decompress: bool,
    /// Bounds on what the archive may say.
    pub limits: Limits,
    /// Ends a first pass.
    pub cancel: Cancel,
    /// How far a first pass has come.
    pub progress: Arc<Progress>,
    /// Who opens what lies behind URLs; without, a URL is an error.
    pub remotes: Option<Arc<dyn Remotes>>,
    /// Who gets what a first pass decodes.
    pub sink: Option<Arc<dyn Sink>>,
    /// Who gets the contents of files that a first pass decodes.
    pub contents: Option<Arc<dyn Contents>>,
}

/// Where the index of an archive lies, and when one is made.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct IndexOptions {
    /// Where it is looked for and put.
    pub place: IndexPlace,
    /// When it is made anew.
    pub recreate: Recreate,
    /// An index of an archive with another time of change does not belong to it.
    pub verify_mtime: bool,
    /// Believe an index whoever may have written it.
    pub is_trusted: bool,
    /// A new index is kept in its place; else it is made in memory. One that is there is used in any case.
    pub is_written: bool,
    /// It is an error if a new index can be written nowhere. That is so anyway where its file was named.
    pub is_required: bool,
    /// Where there is no index of our own, a sidecar of ratarmount is used.
    pub use_sidecars: bool,
    /// An index that was made with `-r` does not serve a call without it.
    pub without_archives_as_files: bool,
    /// Archives with fewer entries get no index on disk if reading them again is cheap
    /// ([`CHEAP_TO_READ`](super::CHEAP_TO_READ)) and the index is small.
    pub minimum_file_count: u64,
    /// Rows of a new index stay in memory, too, if it is small: for who goes through all of them, once.
    pub keeps_rows: bool,
}

/// How the bytes of an archive are decoded.
#[derive(Debug, Clone)]
pub struct DecodingOptions {
    /// Decoded bytes between two seek points, where the codec is free to choose. `None`: 4 MiB, or less where they
    /// take little of the archive.
    pub seek_point_spacing: Option<u64>,
    /// Threads that decode; at least 1.
    pub threads: usize,
    /// Codecs, by name, for which it is another number.
    pub threads_of: Vec<(String, usize)>,
    /// What frames of zstd may need beside the archive.
    pub dictionaries: Dictionaries,
    /// Of encrypted files, as they were typed; tried in order.
    pub passwords: Passwords,
    /// It may lie in what a password opens: nothing of it comes onto a disk, unless it is encrypted there.
    pub is_secret: bool,
    /// For decoders whose state outgrows the memory that they may take. Who gives up making files fills it before.
    pub scratch: Scratch,
    /// What has been decoded, and the budget of all memory that grows with what is read. Archives that one process has
    /// open share it.
    pub cache: Arc<PieceCache>,
    /// Where decoded pieces are kept on disk, of archives in which random reads are slow; nowhere if `None`.
    pub decoded_cache: Option<DecodedCache>,
    /// Bytes that can be decoded but fail a check of their format are served. The index is the same. `--force`
    pub force: bool,
}

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
    /// Behind this URL: it is read there, and none is made. `--index-file`
    Url(IndexAt),
    /// Nowhere: it is made in memory. `--index-file :memory:`
    Memory,
}

/// An index behind a URL.
#[derive(Debug, Clone)]
pub struct IndexAt {
    /// The URL, without secrets.
    pub url: PathBuf,
    /// The file there.
    pub file: Neighbour,
}

impl PartialEq for IndexAt {
    fn eq(&self, other: &Self) -> bool {
        self.url == other.url
    }
}

impl Eq for IndexAt {}

/// Gets the decoded bytes of a compressed archive while a first pass makes them: in order, from the first one on, and
/// only those that are verified. It gets no more where damage is found, or where too many would have to wait for a
/// checksum that stands behind them.
pub trait Sink: std::fmt::Debug + Send + Sync {
    /// Takes the bytes that come next. An error ends the pass.
    fn write(&self, decoded: &[u8]) -> io::Result<()>;
}

/// Gets the contents of files in a compressed archive while a first pass decodes them, one file after the other. They
/// are not verified yet: what is wrong with them is known when the pass is over ([`ArchiveTree::damage`]). Which of the
/// files will show is known only then, too.
///
/// [`ArchiveTree::damage`]: crate::ArchiveTree::damage
pub trait Contents: std::fmt::Debug + Send + Sync {
    /// The content of `entry` comes next, if that is wanted. An error ends the pass, here and below.
    fn begin(&self, entry: &Entry) -> io::Result<bool>;

    /// Takes the bytes that come next of what is stored of it: of a sparse file, those without its holes.
    fn write(&self, stored: &[u8]) -> io::Result<()>;

    /// That was all of it, or, if it is not `complete`, the stream has ended before.
    fn end(&self, complete: bool) -> io::Result<()>;
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

    pub(crate) fn as_slice(&self) -> &[Arc<[u8]>] {
        &self.0
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Debug for Passwords {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} passwords", self.0.len())
    }
}

impl Options {
    /// Who opens what lies at `path`, where that is a URL and no file.
    pub fn remotes_for(&self, path: &Path) -> Option<&dyn Remotes> {
        let remotes = self.remotes.as_deref()?;
        (location::is_url(path) && path.symlink_metadata().is_err()).then_some(remotes)
    }

    /// What of it is for the readers of formats.
    pub(crate) fn of_formats(&self) -> tarnfs_format::Options {
        tarnfs_format::Options {
            limits: self.limits,
            ignore_zeros: self.shape.ignore_zeros,
            guess_encoding: self.shape.encoding.is_none(),
            encoding: self.shape.encoding.as_deref().and_then(Encoding::for_name),
            gnu_incremental: self.shape.gnu_incremental,
            cancel: self.cancel.clone(),
            decode: directory::decode(self),
            shares: 1,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shape: Shape { gnu_incremental: Some(false), ..Shape::default() },
            index: IndexOptions::default(),
            decoding: DecodingOptions::default(),
            only_decompress: false,
            limits: Limits::default(),
            cancel: Cancel::default(),
            progress: Arc::default(),
            remotes: None,
            sink: None,
            contents: None,
        }
    }
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self {
            place: IndexPlace::Folders(location::default_folders()),
            recreate: Recreate::IfNeeded,
            verify_mtime: false,
            is_trusted: false,
            is_written: true,
            is_required: false,
            use_sidecars: true,
            without_archives_as_files: false,
            minimum_file_count: 1000,
            keeps_rows: false,
        }
    }
}

impl IndexOptions {
    /// The usual ones, with the index at `place`.
    pub fn at(place: IndexPlace) -> Self {
        Self { place, ..Self::default() }
    }
}

impl Default for DecodingOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            seek_point_spacing: None,
            threads,
            threads_of: Vec::new(),
            dictionaries: Dictionaries::default(),
            passwords: Passwords::default(),
            is_secret: false,
            scratch: Scratch::default(),
            cache: PieceCache::new(Budget::for_this_machine(threads)),
            decoded_cache: None,
            force: false,
        }
    }
}

impl DecodingOptions {
    /// Files for what is decoded. With a password, what lies in archives in the archive may be secret.
    fn scratch(&self, is_recursive: bool) -> Scratch {
        let is_secret = self.is_secret || is_recursive && !self.passwords.is_empty();
        if is_secret { self.scratch.for_secrets() } else { self.scratch.clone() }
    }

    /// Threads that may decode a stream of this codec.
    pub(crate) fn threads_for(&self, codec: &str) -> usize {
        self.threads_of.iter().rev().find(|(name, _)| name == codec).map_or(self.threads, |(_, threads)| *threads)
    }
}

/// What files begin with in the format that tells it. Nobody knows yet what comes of a stream.
fn file_starts() -> Option<tarnfs_codec::FileStarts> {
    let found = tarnfs_format::FORMATS.iter().find_map(|format| format.forwards()?.file_starts());
    let tarnfs_format::FileStarts { block, at, magic } = found?;
    Some(tarnfs_codec::FileStarts { block, at, magic })
}

impl Options {
    /// What shapes a first pass, but for its threads.
    pub(crate) fn first_pass(&self) -> tarnfs_codec::Options {
        let usual = tarnfs_codec::Options::default();
        let how = &self.decoding;
        tarnfs_codec::Options {
            seek_point_spacing: how.seek_point_spacing.unwrap_or(usual.seek_point_spacing),
            closer_seek_points: how.seek_point_spacing.is_none(),
            file_starts: file_starts(),
            limits: self.limits,
            dictionaries: how.dictionaries.clone(),
            scratch: how.scratch(self.shape.recursion.is_some()),
            cancel: self.cancel.clone(),
            ..usual
        }
    }

    /// What decoders may need beside their streams.
    pub(crate) fn decode_context(&self) -> DecodeContext {
        DecodeContext {
            limits: self.limits,
            dictionaries: self.decoding.dictionaries.clone(),
            scratch: self.decoding.scratch(self.shape.recursion.is_some()),
            unverified: self.decoding.force,
            coder: CoderContext::default(),
        }
    }
}
