//! Archives in a tree, shown as folders and opened when somebody looks inside: a folder full of archives, or (`--lazy`)
//! an archive of archives.
//!
//! Which files are archives is told by their names and first bytes. Each that was met has a number, and from it a range
//! of node numbers, for good; open at a time are a few, those that were used last. One that cannot be opened is a file
//! from then on.

mod archives;
mod base;
mod halves;
mod in_turn;
mod levels;
mod parts;
mod stripped;
#[cfg(test)]
mod tests;
mod tree;
mod unchanged;

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use tarnfs_format::name;
use tarnfs_index::trust;
use tarnfs_source::{SharedSource, Source};

use crate::access_list;
use crate::build::{Names, content_of, head_length, is_unreadable};
use crate::hashes;
use crate::in_memory::InMemory;
use crate::lanes::new_lane;
use crate::legible::Legible;
use crate::open::{FileFacts, IndexPlace, Options, Problem, open_found, open_within};
use crate::parts::may_be_part;
use crate::readers::Readers;
use crate::streams::{MOST_CALLS, MOST_IN_MEMORY};
use crate::{Attributes, Error, Kind, Node, Time, Tree};
use archives::{Archives, File, FoundArchive, Outcome, Ranges, Released, Steps, Version, Where};
pub use base::Base;
use halves::Halves;
use parts::Shown;
use unchanged::Unchanged;

/// Children that are looked at together.
const BATCH: usize = 128;

/// Archives in each other that are opened, whatever `--recursion-depth` says: as many as layers of compression
/// ([`tarnfs_source::Limits`]).
const DEEPEST: u32 = 100;

/// How long opening an archive may get no further before others are opened in its place.
const PATIENCE: Duration = Duration::from_secs(5);

/// Lanes of archives that are not open.
const LANES: u64 = 8;

/// How often who waits for the opening of others looks whether they get on.
const LOOK: Duration = Duration::from_secs(1);

/// How archives are opened.
#[derive(Debug, Clone)]
pub struct Lazily {
    /// As those that are opened at once. [`Shape::recursion`] says which files are archives.
    pub options: Options,
    /// Archives in archives are opened lazily as well, not when the one that they lie in is.
    pub all: bool,
    /// Archives that are open at a time.
    pub most_open: usize,
    /// Where the tree will be mounted, without symbolic links: files that lie below must not be opened by their paths.
    pub mountpoint: Option<PathBuf>,
}

/// A tree, and the archives in it.
#[allow(missing_debug_implementations, reason = "not every tree can show itself")]
pub struct LazyTree {
    base: Base,
    ranges: Ranges,
    how: Lazily,
    names: Names,
    archives: Mutex<Archives>,
    /// An archive has been opened, or could not be.
    opened: Condvar,
    /// The folder's path without symbolic links.
    root: Option<PathBuf>,
    lane: u64,
    halves: Halves,
    /// Bytes of archives that lie so deep that they were read into memory.
    in_memory: Arc<AtomicUsize>,
    patience: Duration,
    /// It has been said that there is more than is opened.
    has_told: AtomicBool,
    /// What has been said of parts that are missing, and found of others.
    parts: parts::Remembered,
}

/// The right to open an archive.
struct Opening<'t> {
    tree: &'t LazyTree,
    number: u32,
    outcome: Outcome,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, Outcome::NotNow);
        self.tree.with(|archives, released| archives.end(self.number, outcome, released));
        self.tree.opened.notify_all();
    }
}

/// Bytes that an archive in memory takes of those that all may take.
#[derive(Debug)]
struct Room {
    bytes: usize,
    total: Arc<AtomicUsize>,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl LazyTree {
    /// Shows archives in `base` as folders. [`Problem::Option`] if the options make no sense.
    pub fn new(base: Base, how: Lazily) -> Result<Self, Problem> {
        let names = Names::new(&how.options.shape, &how.options.limits)?;
        let ranges = Ranges { limit: base.tree().node_limit() };
        let root = match &base {
            Base::Folder(folder) => folder.path().canonicalize().ok(),
            Base::Far(_) | Base::Other(_) => None,
        };
        Ok(Self {
            base,
            ranges,
            how,
            names,
            archives: Mutex::new(Archives::new(ranges)),
            opened: Condvar::new(),
            root,
            lane: new_lane(),
            halves: Halves::default(),
            in_memory: Arc::default(),
            patience: PATIENCE,
            has_told: AtomicBool::new(false),
            parts: parts::Remembered::default(),
        })
    }

    fn archives(&self) -> MutexGuard<'_, Archives> {
        self.archives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is known of archives. What that sets free is dropped without the lock.
    fn with<T>(&self, change: impl FnOnce(&mut Archives, &mut Released) -> T) -> T {
        let mut released = Released::default();
        let result = change(&mut self.archives(), &mut released);
        for file in released.files.drain(..) {
            self.base.tree().forget(file, 1);
        }
        drop(released);
        result
    }

    fn place(&self, node: Node) -> Where {
        self.ranges.place(node)
    }

    fn outer(&self, archive: u32, inner: Node) -> Node {
        self.ranges.outer(archive, inner)
    }

    /// Calls `work` with the tree that `node` is in, its number there, and what makes a number of ours of one of that
    /// tree's.
    fn within<T>(
        &self,
        node: Node,
        work: impl FnOnce(&dyn Tree, Node, &dyn Fn(Node) -> Node) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match self.place(node) {
            Where::Base(inner) => work(self.base.tree(), inner, &|node| node),
            Where::Archive(number, inner) => {
                let tree = self.open_archive(number)?;
                work(&*tree, inner, &|node| self.outer(number, node))
            }
        }
    }

    /// Says that `node`, which the tree has just given, was given to somebody. What is in the base is counted there.
    fn hold(&self, node: Node) {
        if let Where::Archive(number, _) = self.place(node) {
            self.archives().hold(number);
        }
    }

    /// Says that somebody else gets to know `node`.
    fn give(&self, node: Node) {
        if let Where::Archive(number, _) = self.place(node) {
            self.archives().give(number);
        }
    }

    /// The archive of that number, opened if need be, as are those that it lies in: from the outermost inwards, in a
    /// loop, as there may be many.
    fn open_archive(&self, number: u32) -> Result<Arc<dyn Tree>, Error> {
        let mut missing = Vec::new();
        let mut at = number;
        let mut outer = loop {
            let found = self.archives().find(at);
            let file = match found {
                FoundArchive::Open(tree, calls) => break Some((tree, calls)),
                FoundArchive::Closed(file) | FoundArchive::Opening(file) => file,
                FoundArchive::Failed => return Err(io::Error::from(io::ErrorKind::InvalidData).into()),
                FoundArchive::Free => return Err(Errno::STALE.into()),
            };
            missing.push(at);
            match self.place(file.node) {
                Where::Base(_) => break None,
                Where::Archive(next, _) if missing.len() <= DEEPEST as usize => at = next,
                Where::Archive(..) => return Err(Error::TooManyLinks),
            }
        };
        while let Some(number) = missing.pop() {
            outer = Some(self.open_in(number, outer.as_ref())?);
        }
        outer.map(|(tree, _)| tree).ok_or(Error::NotFound)
    }

    /// Opens the archive of that number, which lies in `outer`, or waits for whoever does.
    fn open_in(&self, number: u32, outer: Option<&(Arc<dyn Tree>, usize)>) -> Result<(Arc<dyn Tree>, usize), Error> {
        let mut is_verified = false;
        let mut archives = self.archives();
        let file = loop {
            match archives.find(number) {
                FoundArchive::Open(tree, calls) => return Ok((tree, calls)),
                FoundArchive::Failed => return Err(io::Error::from(io::ErrorKind::InvalidData).into()),
                FoundArchive::Free => return Err(Errno::STALE.into()),
                FoundArchive::Closed(file) if archives.is_unproven(number) && !is_verified => {
                    // Before it counts as one that is being opened: this may take longer than any of those.
                    drop(archives);
                    self.wait_until_verified(number, &file, outer)?;
                    is_verified = true;
                    archives = self.archives();
                }
                FoundArchive::Closed(file) if archives.may_begin(self.patience) => break file,
                FoundArchive::Closed(_) | FoundArchive::Opening(_) => {
                    let look = LOOK.min(self.patience);
                    (archives, _) = self.opened.wait_timeout(archives, look).unwrap_or_else(PoisonError::into_inner);
                }
            }
        };
        let steps = archives.begin(number);
        drop(archives);
        let mut opening = Opening { tree: self, number, outcome: Outcome::NotNow };
        let opened = self.with_room(|| self.opened(number, &file, outer, &steps));
        if opened.is_err() && !is_verified && self.archives().is_unproven(number) {
            // Found just now. This time it is waited for before.
            drop(opening);
            return self.open_in(number, outer);
        }
        let opened = opened.and_then(|(tree, calls, numbering)| {
            // It may have been open with an index of another program, and have one of ours by now.
            if self.archives().is_renumbered(number, numbering) {
                opening.outcome = Outcome::Renumbered;
                return Err(stale());
            }
            opening.outcome = Outcome::Opened(Arc::clone(&tree), calls, numbering);
            Ok((tree, calls))
        });
        if let Err(Error::Io(error)) = &opened
            // A file that has changed is another archive, or none; what the system could not do now it may do later.
            && is_unreadable(error)
        {
            opening.outcome = Outcome::Never;
        }
        drop(opening);
        if opened.is_ok() {
            self.with(|archives, released| archives.close_others(self.how.most_open, released));
        }
        opened
    }

    /// Waits until the archive of that number, which is being opened and whose file has answered, is to go on.
    fn wait_for_turn(&self, number: u32) {
        let mut archives = self.archives();
        while !archives.may_go_on(number, self.patience) {
            let look = LOOK.min(self.patience);
            (archives, _) = self.opened.wait_timeout(archives, look).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Does `work`; where it fails for want of descriptors, once more after all archives that nobody reads were closed.
    fn with_room<T>(&self, mut work: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
        match work() {
            Err(error) if is_for_now(&error) => {
                self.with(|archives, released| archives.close_others(0, released));
                work()
            }
            result => result,
        }
    }

    /// Opens `file`, which lies in `outer`, or in the base. With the tree comes how many decoders call each other when
    /// it is read, and what numbers its nodes.
    fn opened(
        &self,
        number: u32,
        file: &File,
        outer: Option<&(Arc<dyn Tree>, usize)>,
        steps: &Steps,
    ) -> Result<(Arc<dyn Tree>, usize, u64), Error> {
        use std::os::unix::ffi::OsStrExt as _;
        let shown = tarnfs_format::name::escape(&file.name);
        let (tree, inner) = self.tree_of(file, outer)?;
        let attributes = tree.attributes(inner)?;
        if Version::of(&attributes) != file.version {
            return Err(changed(&shown.to_string()));
        }
        // What is opened, and what is said of it, is one version.
        let far = match (&self.base, outer) {
            (Base::Far(far), None) => Some(far.remote(inner)?),
            _ => None,
        };
        let source = match &far {
            Some((remote, _)) => Arc::clone(&remote.source),
            None => tree.open(inner)?,
        };
        if source.is_unproven() {
            self.archives().set_unproven(number, true);
            return Err(io::Error::other(format!("{shown}: what it lies in is not verified")).into());
        }
        let found = self.open_parts((number, file), tree, &source)?;
        let source = match &found {
            Some(found) => parts::joined(found)?,
            None => source,
        };
        let (mut legible, mut unchanged) = (None, Vec::new());
        let mut modified = nanoseconds(attributes.mtime);
        let (source, around): (SharedSource, usize) = match (&self.base, outer) {
            (Base::Folder(folder), None) if let Some(found) = &found => {
                let source;
                (source, modified, unchanged) = self.open_in_folder(found, file, folder, steps)?;
                (source, 0)
            }
            (Base::Folder(folder), None) => {
                let reads = Arc::clone(&steps.reads);
                let source = Arc::new(Unchanged::new(source, (Arc::clone(folder), inner), &attributes, reads)?);
                unchanged.push(Arc::clone(&source));
                (source, 0)
            }
            (Base::Far(_), None) => (source, 0),
            (_, Some((_, calls))) if *calls >= MOST_CALLS => (self.read_into_memory(&*source)?, 0),
            (_, outer) => {
                let source = Arc::clone(legible.insert(Arc::new(Legible::new(source)?)));
                (source, outer.map_or(0, |(_, calls)| *calls))
            }
        };
        self.wait_for_turn(number);
        let path = self.path_of(file.node);
        let (path, home) = path.zip(self.home_of(file.node)).unzip();
        let far = far.filter(|_| found.is_none());
        let place = match &self.how.options.index.place {
            // A named file is the index of one archive.
            IndexPlace::Folders(_) if path.is_some() || far.is_some() => self.how.options.index.place.clone(),
            _ => IndexPlace::Memory,
        };
        let path = path.unwrap_or_else(|| PathBuf::from(std::ffi::OsStr::from_bytes(&file.name)));
        let path = match &found {
            Some(found) => path.with_file_name(std::ffi::OsStr::from_bytes(&found.whole)),
            None => path,
        };
        let recursion = self.how.options.shape.recursion.clone().filter(|_| !self.how.all);
        let recursion = recursion.and_then(|mut recursion| {
            // Itself is one of them.
            recursion.depth = recursion.depth.map(|most| most.saturating_sub(file.depth + 1));
            (recursion.depth != Some(0)).then_some(recursion)
        });
        let mut options = self.how.options.clone();
        options.shape.recursion = recursion;
        options.index.place = place;
        options.progress = Arc::clone(&steps.progress);
        if self.is_only_decompressed(file, &source)? {
            options.only_decompress = true;
            options.index.place = IndexPlace::Memory;
        }
        options.sink = None;
        options.contents = None;
        let is_in_folder = matches!((&self.base, outer), (Base::Folder(_), None));
        if !is_in_folder && !options.decoding.passwords.is_empty() {
            // It may lie in what a password opens, which is not left on a disk.
            options.decoding.decoded_cache = None;
            options.decoding.is_secret = true;
        }
        // As of a file that is opened by its path: where there is a list, the bits of the group are its mask.
        let bits = if matches!(tree.xattr(inner, access_list::NAME), Ok(None)) { 0o7777 } else { 0o7700 };
        let mode = restricted(file.readers.as_deref(), &attributes);
        let facts = FileFacts {
            identity: unchanged::identity_of_all(&unchanged),
            owner: trust::Owner { user: attributes.uid, group: attributes.gid, mode: mode & bits },
            modified,
        };
        let mut opened = match far {
            Some((remote, url)) => open_found(remote, &url, &options),
            None => open_within(source, facts, &path, home, &options),
        };
        if opened.is_err()
            && let Some(cut) = legible.as_ref().and_then(|legible| legible.cut())
        {
            // What lies before all that damage is shown.
            let cut = Arc::clone(legible.insert(Arc::new(cut)));
            opened = open_within(cut, facts, &path, None, &options);
        }
        // Once more, if what is cut had told of damage before it.
        for all in [false, true] {
            if let (Ok(archive), Some(filled)) = (&opened, &legible)
                && let Some(layer) = archive.index.summary().layers.first()
                && let Some(codec) = tarnfs_codec::by_name(&layer.codec)
                && let Some(cut) = filled.before_unnoticed(codec, &*Arc::clone(&archive.index).chunks(0)?, all)?
            {
                let cut = Arc::clone(legible.insert(Arc::new(cut)));
                opened = open_within(cut, facts, &path, None, &options);
            }
        }
        let was_filled = legible.is_some_and(|legible| legible.finish());
        match opened {
            Ok(opened) => {
                if opened.has_checksums() {
                    for part in &unchanged {
                        part.is_verified_by_reader();
                    }
                }
                let summary = opened.index.summary();
                let is_archive = tarnfs_format::by_name(&summary.format).is_some();
                let levels = summary.layers.len() + usize::from(is_archive);
                self.archives().set_levels(number, u32::try_from(levels.max(1)).unwrap_or(u32::MAX));
                if was_filled {
                    // Hashes may be of what was shown in place of what cannot be read.
                    opened.index.hide_xattrs(summary.shape.hashes.iter().map(|hash| hashes::attribute(hash)).collect());
                }
                if opened.is_sidecar {
                    log::info!("{shown}: ratarmount's index is used, which does not keep everything");
                }
                let of = if summary.layers.is_empty() { "file" } else { "decoded data" };
                for (offset, what) in summary.notes.iter().take(3) {
                    log::warn!("{shown}: damaged at byte {offset} of the {of}: {}", name::escape(what.as_bytes()));
                }
                Ok((opened.tree, around + summary.layers.len(), opened.index.numbering()))
            }
            Err(problem) => {
                log::warn!("{shown}: cannot be shown as a folder: {problem}");
                Err(match problem {
                    Problem::Read { error, .. } | Problem::CannotOpen(error) => Error::Io(error),
                    Problem::Index(error) => error.into(),
                    Problem::Cancelled => Error::Io(io::ErrorKind::Interrupted.into()),
                    problem => io::Error::new(io::ErrorKind::InvalidData, problem.to_string()).into(),
                })
            }
        }
    }

    /// The tree that `file` is in, and its number there. The file lies in `outer`, or in the base.
    fn tree_of<'t>(
        &'t self,
        file: &File,
        outer: Option<&'t (Arc<dyn Tree>, usize)>,
    ) -> Result<(&'t dyn Tree, Node), Error> {
        match (self.place(file.node), outer) {
            (Where::Base(node), _) => Ok((self.base.tree(), node)),
            (Where::Archive(_, node), Some((tree, _))) => Ok((&**tree, node)),
            (Where::Archive(..), None) => Err(Error::NotFound),
        }
    }

    /// An archive in a stream that is not verified yet is not opened before: its index would be made of bytes that may
    /// be wrong, and those stay once the stream is known to be damaged. Nor is it known before whether it is one.
    fn wait_until_verified(
        &self,
        number: u32,
        file: &File,
        outer: Option<&(Arc<dyn Tree>, usize)>,
    ) -> Result<(), Error> {
        if matches!((&self.base, outer), (Base::Folder(_), None)) {
            // A file as it is.
            return Ok(());
        }
        let (tree, inner) = self.tree_of(file, outer)?;
        let source = tree.open(inner)?;
        if !source.is_unproven() {
            self.archives().set_unproven(number, false);
            return Ok(());
        }
        self.archives().set_unproven(number, true);
        let shown = tarnfs_format::name::escape(&file.name);
        log::info!("{shown}: is opened as soon as what it lies in is verified");
        let verified = source.verify(&|| self.how.options.cancel.is_cancelled());
        let verified = verified.and_then(|()| {
            if source.is_unproven() {
                Err(io::Error::other(format!("{}: could not be verified", source.describe())))
            } else {
                Ok(())
            }
        });
        verified.map_err(|error| {
            log::warn!("{shown}: not opened, as what it lies in is not verified: {error}");
            Error::Io(error)
        })?;
        self.archives().set_unproven(number, false);
        let (Where::Base(folder) | Where::Archive(_, folder)) = self.place(file.folder);
        if !matches!(self.shows(tree, folder, &file.name, &source)?, Shown::No) {
            return Ok(());
        }
        match source.read_at(&mut [0], 0) {
            // It may well be one.
            Err(error) => log::warn!("{shown}: cannot be shown as a folder: {error}"),
            Ok(_) => log::warn!("{shown}: is no archive, now that what it lies in is verified"),
        }
        self.with(|archives, released| archives.is_none(number, released));
        Err(io::Error::from(io::ErrorKind::InvalidData).into())
    }

    /// True if a file of that name begins as an archive does.
    fn is_archive(&self, source: &dyn Source, name: &[u8]) -> Result<bool, Error> {
        let length = head_length(name);
        let mut head = vec![0; length.min(usize::try_from(source.len()).unwrap_or(length))];
        let content = self.with_room(|| {
            let read = source.read_at(&mut head, 0)?;
            Ok(content_of(&head[..read], source, name, &self.names.preferred)?)
        });
        match content {
            Ok(content) => Ok(content.is_some()),
            // What is damaged is no archive; whoever reads the file is told why.
            Err(Error::Io(error)) if is_unreadable(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// An archive that lies in so many layers of compression that reading it through all of them would take the stack.
    fn read_into_memory(&self, source: &dyn Source) -> Result<SharedSource, Error> {
        let length = source.len();
        if length > MOST_IN_MEMORY {
            let what = format!("{}: {length} bytes in so many layers of compression are too much", source.describe());
            log::warn!("{what}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what).into());
        }
        let total = Arc::clone(&self.in_memory);
        let add = |total: usize| total.checked_add(length as usize).filter(|&more| more as u64 <= MOST_IN_MEMORY);
        if total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
            // Others hold the memory, and can give it back.
            return Err(Errno::NOMEM.into());
        }
        Ok(Arc::new(InMemory::read(source, Room { bytes: length as usize, total })?))
    }

    /// The folder that the file lies in, open: by the time that its index is written the path may lead elsewhere.
    fn home_of(&self, file: Node) -> Option<OwnedFd> {
        let (Base::Folder(folder), Where::Base(node)) = (&self.base, self.place(file)) else { return None };
        folder.folder_of(node).ok()
    }

    /// Where the file lies, for its index; `None` if it lies in no folder, or the way to it leads through our own
    /// mount.
    fn path_of(&self, file: Node) -> Option<PathBuf> {
        let (Base::Folder(folder), Where::Base(node)) = (&self.base, self.place(file)) else { return None };
        let path = self.root.as_ref()?.join(folder.path_below(node)?);
        let is_below = self.how.mountpoint.as_ref().is_some_and(|mountpoint| path.starts_with(mountpoint));
        (!is_below).then_some(path)
    }

    /// The number of the archive that the file `attributes` (in our numbers) is; `None` if it is none. The file was
    /// held once; if there is a number, the archive is in its place.
    fn archive_at(&self, folder: Node, name: &[u8], attributes: &Attributes) -> Result<Option<u32>, Error> {
        if attributes.kind != Kind::File || attributes.size == 0 || self.names.stem(name).is_none() {
            return Ok(None);
        }
        let (depth, within) = match self.place(folder) {
            Where::Base(_) => (0, 0),
            // What is in it was decided when it was opened.
            Where::Archive(..) if !self.how.all => return Ok(None),
            Where::Archive(number, _) => {
                let archives = self.archives();
                (archives.depth_in(number), archives.number_in(number))
            }
        };
        let most = self.how.options.shape.recursion.as_ref().map_or(Some(0), |recursion| recursion.depth);
        if most.is_some_and(|most| depth >= most) {
            return Ok(None);
        }
        if within >= DEEPEST {
            if !self.has_told.swap(true, Ordering::Relaxed) {
                let name = tarnfs_format::name::escape(name);
                log::warn!("{name}: what lies in {DEEPEST} archives stays a file when archives are opened lazily");
            }
            return Ok(None);
        }
        let (file, version) = (attributes.node, Version::of(attributes));
        let is_in_folder = matches!((&self.base, self.place(folder)), (Base::Folder(_), Where::Base(_)));
        if is_in_folder {
            self.look_at_parts((folder, name), file, version)?;
        }
        let known = self.with(|archives, released| {
            let known = archives.known(file, archives.place(folder, name), version)?;
            if let (_, Some(number)) = known {
                archives.hold(number);
                archives.let_go(file, released);
            }
            Some(known)
        });
        if let Some((_, archive)) = known {
            return Ok(archive);
        }
        // In an archive a file keeps its number, and others may have the same name and times.
        if is_in_folder && self.archives().has_failed(name, version) {
            return Ok(None);
        }
        let looked_at = self.with_room(|| self.open(file)).and_then(|source| {
            // Asked first: the stream may be verified only after this was read.
            let is_unproven = source.is_unproven();
            let shown = self.within(folder, |tree, folder, _| self.shows(tree, folder, name, &source))?;
            Ok((shown, is_unproven))
        });
        let (shown, is_unproven) = match looked_at {
            Ok(found) => found,
            Err(Error::Io(error)) if is_unreadable(&error) => (Shown::No, false),
            Err(error) if is_for_now(&error) && !is_of_memory(&error) => return Err(error),
            // A disk has failed, somebody has a lease on it, which is being taken away, or it takes more memory than
            // there is. Others in its folder must not suffer, and the next time it may be read.
            Err(_) => return Ok(None),
        };
        // Of a part, others may come to the folder.
        let may_become_one = is_in_folder && may_be_part(name);
        let (set, readers) = (shown.set(), shown.readers());
        let is_archive = !matches!(shown, Shown::No);
        Ok(self.with(|archives, released| match (is_archive, is_unproven || may_become_one) {
            // With these parts it cannot be opened; with others it may be.
            (true, _) if set.as_ref().is_some_and(|set| archives.has_failed(name, version.of_set(set.hash))) => None,
            (true, _) => {
                let file = File { node: file, folder, version, set, readers, name: name.to_vec(), depth, within };
                archives.met(file, is_unproven, released)
            }
            (false, false) => {
                archives.no_archive(file, archives.place(folder, name), version, released);
                None
            }
            // Not remembered: it is looked at again once that is known to be right, or another part may be there.
            (false, true) => None,
        }))
    }

    /// What shows under a name for a file or folder of ours, which is held once; what shows is then held in its place.
    fn shown(&self, folder: Node, name: &[u8], attributes: Attributes) -> Result<Attributes, Error> {
        match self.archive_at(folder, name, &attributes) {
            Ok(Some(number)) => Ok(self.as_folder(number, &attributes)),
            Ok(None) => Ok(attributes),
            Err(error) => {
                self.forget(attributes.node, 1);
                Err(error)
            }
        }
    }

    /// Who may read all files of the archive of that number, if these are several.
    fn readers_of(&self, number: u32) -> Option<Arc<Readers>> {
        self.archives().file(number)?.readers.clone()
    }

    /// The folder that an archive is: as its file, but for what makes it a folder.
    fn as_folder(&self, number: u32, file: &Attributes) -> Attributes {
        let mode = restricted(self.readers_of(number).as_deref(), file);
        Attributes {
            node: self.outer(number, Node::ROOT),
            kind: Kind::Folder,
            mode: mode & 0o777 | (mode & 0o444) >> 2,
            // How many folders are in it nobody knows yet, which is what 1 says.
            links: 1,
            size: 0,
            blocks: 0,
            ..file.clone()
        }
    }
}

/// True for what may go well a moment later: too few descriptors, or too little memory.
fn is_for_now(error: &Error) -> bool {
    let Error::Io(error) = error else { return false };
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::INTR))
}

/// The bits of a file, as far as those may read it who may read all that it is an archive with.
fn restricted(readers: Option<&Readers>, file: &Attributes) -> u32 {
    readers.map_or(file.mode, |readers| readers.restrict((file.uid.into(), file.gid.into()), file.mode))
}

/// True for want of memory.
fn is_of_memory(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.kind() == io::ErrorKind::OutOfMemory)
}

fn nanoseconds(time: Time) -> i64 {
    time.seconds.saturating_mul(1_000_000_000).saturating_add(i64::from(time.nanoseconds))
}

/// What is told of a number that is free again.
fn stale() -> Error {
    Errno::STALE.into()
}

fn changed(name: &str) -> Error {
    let what = format!("{name} has changed since it was seen");
    io::Error::new(io::ErrorKind::StaleNetworkFileHandle, what).into()
}
