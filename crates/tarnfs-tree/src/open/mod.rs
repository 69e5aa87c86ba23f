//! Opening an archive: its index where one belongs to it, else a first pass that makes one.

pub(crate) mod alone;
mod archives_as_files;
mod bad_block;
mod first_pass;
pub(crate) mod indexes;
mod options;
mod places;
mod remote;
mod single_file;
mod split;
mod written;

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use rustix::fs::{FileType, fstat};
use tarnfs_codec::engine::{DecodedSource, Workers};
use tarnfs_format::{Reader, name};
use tarnfs_index::{Archive, Index, Summary, trust};
use tarnfs_source::{Cancel, FileIdentity, FileSource, Fingerprint, Setting, SharedSource, Source, Strict};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::Time;
use crate::archive::{ArchiveTree, Implied};
use crate::build::is_damage;
pub use crate::decoded_cache::{DecodedCache, Kept, KeptAs};
use crate::extensions::MEMBERS;
use crate::filling;
use crate::home::Home;
use crate::member_tables::MemberTables;
use crate::readers::joined_owner;
use crate::recheck::Recheck;
use crate::streams::{StreamContext, Streams, deep_layers};

use bad_block::Readable;
pub(crate) use bad_block::is_bad_block;
use split::Parts;

pub use crate::problem::Problem;
pub use alone::is_index_alone;
pub use indexes::{IndexFile, indexes_of};
pub use options::{Contents, DecodingOptions, IndexAt, IndexOptions, IndexPlace, Options, Passwords, Recreate, Sink};
pub use remote::{Beside, Neighbour, Remote, RemoteEntry, RemoteFolder, Remotes};
pub(crate) use remote::{open_found, problem as remote_problem};
pub use single_file::is_single_file;
pub use split::{parts_of, whole_of_parts};
pub use tarnfs_index::location::is_url;
pub use written::{ReadAlong, read_along};

/// An archive of fewer bytes is read again at each mount within a moment, if it has few entries.
pub const CHEAP_TO_READ: u64 = 16 << 20;

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
    /// What goes into each layer of compression, outermost first. None of them where there are very many.
    pub inputs: Vec<SharedSource>,
    /// Device and number of its file, where it is one that was opened by its path.
    pub file: Option<(u64, u64)>,
    /// Whose the decoded pieces are that are kept of it. `None` if none are.
    pub kept_as: Option<KeptAs>,
}

/// What is known of an archive's file beside its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileFacts {
    /// Who may write it.
    pub owner: trust::Owner,
    /// Last change of its content, ns since 1970.
    pub modified: i64,
    /// Which file it is: that of another file differs, and that of the same one after any change. What is kept decoded
    /// belongs to it. `None` if that cannot be told.
    pub identity: Option<u64>,
}

impl FileFacts {
    /// Those of an open file.
    pub fn of(file: &FileSource) -> io::Result<Self> {
        let modified = i64::try_from(file.identity().modified).unwrap_or(i64::MAX);
        Ok(Self { owner: trust::Owner::of(file)?, modified, identity: identity_of(file.as_fd())? })
    }

    pub(crate) fn mtime(&self) -> Time {
        let second = 1_000_000_000;
        Time { seconds: self.modified.div_euclid(second), nanoseconds: self.modified.rem_euclid(second) as u32 }
    }
}

/// Which file this is. Writing to a device changes no time of it, so it has none.
pub(crate) fn identity_of(file: BorrowedFd<'_>) -> io::Result<Option<u64>> {
    let is_file = FileType::from_raw_mode(fstat(file)?.st_mode) == FileType::RegularFile;
    Ok(if is_file { Some(FileIdentity::of(&file)?.hash()) } else { None })
}

/// The same of an archive that is put together from several files.
pub(crate) fn joined_identity(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    let (one, other) = one.zip(other)?;
    Some(xxh3_64_with_seed(&other.to_le_bytes(), one))
}

/// Opens the archive at `path`, or behind the URL that it is ([`Options::remotes`]).
pub fn open(path: &Path, options: &Options) -> Result<OpenArchive, Problem> {
    let start = Instant::now();
    if let Some(remotes) = options.remotes_for(path) {
        return remote::open(path, remotes, options);
    }
    let file = Arc::new(FileSource::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound if is_url(path) => url(path),
        _ => Problem::CannotOpen(error),
    })?);
    if let Some(index) = alone::open(path, &file, options)? {
        return Ok(index);
    }
    let facts = FileFacts::of(&file).map_err(Problem::CannotOpen)?;
    if let Some(parts) = Parts::find(path)? {
        return open_parts(&file, &parts, options);
    }
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
    let unread = AtomicBool::new(false);
    let opening = Opening { path, source, facts, options, fingerprint, home, is_at_path: true, unread, beside: None };
    let opened = opening.open().map_err(|problem| lacking(problem, || split::first_of(path)))?;
    if opened.has_checksums() {
        file.is_verified_by_reader();
    }
    Ok(OpenArchive { file: Some((identity.device, identity.inode)), ..opened })
}

/// Opens the archive that is in `parts`, of which `file` is the one that was named.
fn open_parts(file: &FileSource, parts: &Parts, options: &Options) -> Result<OpenArchive, Problem> {
    if !options.shape.ignore_zeros
        && let Some(format) = parts.are_volumes().map_err(|error| Problem::Read { offset: 0, error })?
    {
        let what = "its parts are volumes, each with headers of its own";
        return Err(Problem::Unreadable { format, reason: format!("{what}, which {} joins", Setting::IgnoreZeros) });
    }
    let mut files = parts.files();
    let Some(first) = files.next() else { return Err(Problem::Empty) };
    let mut facts = FileFacts::of(first).map_err(Problem::CannotOpen)?;
    for part in files {
        let part = FileFacts::of(part).map_err(Problem::CannotOpen)?;
        facts.modified = facts.modified.max(part.modified);
        facts.identity = joined_identity(facts.identity, part.identity);
        facts.owner = joined_owner(facts.owner, part.owner);
    }
    let path = &parts.path;
    let home =
        Home::of(&**first).inspect_err(|error| log::info!("{}: its folder is not known: {error}", path.display()));
    let name = path.file_name().unwrap_or_default();
    let home = home.ok().flatten().map(|(home, path)| (home, path.with_file_name(name)));
    let source: SharedSource = Arc::new(parts.joined().map_err(Problem::CannotOpen)?);
    let fingerprint = fingerprint(&*source)?;
    parts.watch().map_err(|error| Problem::Read { offset: 0, error })?;
    log::info!("{}: joined from {} files", path.display(), parts.files().len());
    let unread = AtomicBool::new(false);
    let opening = Opening { path, source, facts, options, fingerprint, home, is_at_path: false, unread, beside: None };
    let opened = opening.open().map_err(|problem| lacking(problem, || parts.next.clone()))?;
    if let Some(next) = parts.next.as_ref().filter(|_| !opened.index.summary().notes.is_empty()) {
        log::warn!("{}: is a part of it missing? {} is not there", path.display(), next.display());
    }
    if opened.has_checksums() {
        parts.files().for_each(|part| part.is_verified_by_reader());
    }
    let identity = file.identity();
    Ok(OpenArchive { file: Some((identity.device, identity.inode)), ..opened })
}

/// The problem, and that `part` is not there, if that may be why.
fn lacking(problem: Problem, part: impl FnOnce() -> Option<PathBuf>) -> Problem {
    let may_be_why = matches!(
        problem,
        Problem::Read { .. } | Problem::NotAnArchive | Problem::Misnamed { .. } | Problem::OnlyZeros { .. }
    );
    match may_be_why.then(part).flatten() {
        Some(next) => Problem::OfParts { problem: Box::new(problem), next },
        None => problem,
    }
}

impl OpenArchive {
    /// True of an archive of a format that may encrypt its files itself.
    pub fn encrypts_files(&self) -> bool {
        has_random_format(self.index.summary())
    }

    /// True if all bytes that are read of the archive's file are verified. Those of a plain tar are not.
    pub(crate) fn has_checksums(&self) -> bool {
        !self.index.summary().layers.is_empty() && !self.is_sidecar
    }
}

/// That `path`, which is a URL, is no path.
pub fn url(path: &Path) -> Problem {
    const LOCAL: &[u8] = b"file://";
    let scheme = path.as_os_str().as_bytes().get(..LOCAL.len());
    Problem::Url { is_local: scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(LOCAL)) }
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
    let unread = AtomicBool::new(false);
    Opening { path, source, facts, options, fingerprint, home, is_at_path: false, unread, beside: None }.open()
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

/// True of an archive whose own directory is read as fast as an index of it. One that was compressed has to be decoded
/// for that.
fn has_own_directory(summary: &Summary) -> bool {
    summary.layers.is_empty() && has_random_format(summary)
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
    /// Some of it cannot be read. It may be readable the next time, so its index is not kept.
    unread: AtomicBool,
    /// Where it may have indexes beside it that are no files of this machine.
    beside: Option<remote::Far>,
}

impl Opening<'_> {
    fn open(&self) -> Result<OpenArchive, Problem> {
        let mut reason = "there is none".to_owned();
        if self.options.index.recreate != Recreate::Always {
            match self.existing() {
                Ok((index, index_path, origin)) => return self.finish(index, Some(index_path), origin),
                Err(why) => reason = why,
            }
        }
        if self.options.index.recreate == Recreate::Never {
            return Err(Problem::NoIndex(reason));
        }
        if let Some(whose) = self.of_another_archive() {
            return Err(Problem::Unwritten(format!("{whose}: name another file, or replace it with -c")));
        }
        if let Some(path) = self.of_ratarmount() {
            let file = path.display();
            return Err(Problem::Unwritten(format!(
                "{file} is an index of ratarmount, which could not read what would replace it: name another file, or \
                 delete it; `tarnfs index --format ratarmount` makes such an index again"
            )));
        }
        match self.build() {
            Ok((index, index_path, origin)) => self.finish(index, index_path, origin),
            Err(problem) => self.open_readable(problem),
        }
    }

    /// Opens what comes before a block that the disk cannot read, where that was the `problem` and it is asked for.
    fn open_readable(&self, problem: Problem) -> Result<OpenArchive, Problem> {
        let Problem::Read { error, .. } = &problem else { return Err(problem) };
        // Not all that reads passes on what the system has said.
        if !self.options.decoding.force || is_damage(error) || error.kind() == io::ErrorKind::OutOfMemory {
            return Err(problem);
        }
        let Ok(Some(readable)) = Readable::of(&self.source, &self.options.cancel) else { return Err(problem) };
        let mut options = self.options.clone();
        // Who gets contents on the way has got those that came before, and the start of one.
        options.sink = None;
        if let Some(contents) = options.contents.take() {
            contents.end(false).map_err(|error| Problem::Read { offset: 0, error })?;
        }
        options.decoding.decoded_cache = None;
        let why = readable.why();
        let opening = Opening {
            path: self.path,
            source: Arc::new(readable),
            facts: self.facts,
            options: &options,
            fingerprint: self.fingerprint,
            home: None,
            is_at_path: self.is_at_path,
            unread: AtomicBool::new(true),
            beside: None,
        };
        match opening.build() {
            Ok((index, index_path, origin)) => {
                let force = Setting::Force;
                log::warn!("{}: {why}: what comes before it is served ({force})", self.path.display());
                opening.finish(index, index_path, origin)
            }
            Err(Problem::Cancelled) => Err(Problem::Cancelled),
            Err(unwritten @ Problem::Unwritten(_)) => Err(unwritten),
            Err(_) => Err(problem),
        }
    }

    fn source(&self) -> SharedSource {
        Arc::clone(&self.source)
    }

    fn archive(&self) -> Archive {
        Archive { length: self.source.len(), fingerprint: self.fingerprint, modified: self.facts.modified }
    }

    fn kept_as(&self) -> Option<KeptAs> {
        KeptAs::new(&self.archive(), self.facts.identity)
    }

    /// What a folder that no entry names looks like: it belongs to the archive's owner and is as old as the archive.
    fn implied(&self) -> Implied {
        let trust::Owner { mut user, mut group, .. } = self.facts.owner;
        // Those of a layer are made by whoever unpacks it, and that is root.
        let recursion = self.options.shape.recursion.as_ref();
        if recursion.is_some_and(|recursion| recursion.extensions.iter().any(|extension| extension == MEMBERS)) {
            (user, group) = (0, 0);
        }
        Implied { uid: user, gid: group, mtime: self.facts.mtime() }
    }

    /// Headers are read again if not all of them were read just now. Decoded bytes have checksums instead, but not
    /// those of a sidecar.
    fn recheck(&self, summary: &Summary, origin: Origin) -> Option<Recheck> {
        let is_sidecar = origin == Origin::Sidecar;
        let is_wanted = origin != Origin::Read && (summary.layers.is_empty() || is_sidecar);
        is_wanted.then(|| Recheck::new(summary, &self.options.limits, is_sidecar)).flatten()
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
        let cache = &options.decoding.cache;
        let (mut layers, mut inputs) = (Vec::new(), Vec::new());
        let codec = index.summary().layers.last().map_or("", |layer| &layer.codec);
        let workers = Workers::new(options.decoding.threads_for(codec));
        let context = StreamContext {
            cache: Arc::clone(cache),
            workers: Arc::clone(&workers),
            limits: options.limits,
            decoding: options.decode_context(),
            passwords: options.decoding.passwords.clone(),
            members: self.members(index.summary()),
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
            let decoded = DecodedSource::new(
                codec,
                Arc::clone(&stream),
                chunks,
                Arc::clone(cache),
                Arc::clone(&workers),
                options.limits,
            );
            decoded.give(context.decoding.clone());
            if number == 0
                && let Some(kept) = &options.decoding.decoded_cache
            {
                self.use_kept(kept, &decoded, codec.name());
            }
            layers.push(Arc::clone(&decoded));
            inputs.push(std::mem::replace(&mut stream, decoded));
        }
        let stream = deep.unwrap_or(stream);
        index.read_headers_from(&stream);
        let streams = Streams::new(Arc::clone(&index), SharedSource::clone(&stream), layers, context);
        let recheck = self.recheck(index.summary(), origin);
        let tree = ArchiveTree::new(Arc::clone(&index), streams, self.implied(), recheck);
        let tree = Arc::new(tree);
        let is_sidecar = origin == Origin::Sidecar;
        let is_new = !is_sidecar && origin != Origin::Found;
        let kept_as = self.kept_as();
        Ok(OpenArchive { tree, index, index_path, is_new, is_sidecar, stream, inputs, file: None, kept_as })
    }

    /// Where the seek points of members are kept. Nowhere for what a password opens: they have parts of it.
    fn members(&self, summary: &Summary) -> Option<Arc<MemberTables>> {
        let options = &self.options.decoding;
        let kept = options.decoded_cache.as_ref().filter(|_| options.passwords.is_empty())?;
        if !has_own_directory(summary) || self.source.len() < MemberTables::WORTH_IT {
            return None;
        }
        kept.members(self.kept_as()?).map(Arc::new)
    }

    /// What is kept decoded need not be decoded, and is added to while nobody reads.
    fn use_kept(&self, kept: &DecodedCache, decoded: &DecodedSource, codec: &str) {
        let (Some(kept_as), budget) = (self.kept_as(), self.options.decoding.cache.budget()) else { return };
        if kept.is_filled && decoded.is_slow() {
            match kept.open_to_write(kept_as, codec, budget) {
                Ok(writer) => {
                    decoded.read_from(Arc::clone(writer.file()));
                    return filling::add(decoded.fill(writer));
                }
                Err(error) => log::info!("{}: nothing more is kept decoded: {error}", self.path.display()),
            }
        }
        if let Some(file) = kept.open(kept_as, codec, budget) {
            decoded.read_from(file);
        }
    }
}
