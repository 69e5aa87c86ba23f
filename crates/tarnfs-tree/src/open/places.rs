//! Where the index of an archive is looked for, and where a new one is put.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use tarnfs_format::{Format, name};
use tarnfs_index::{Index, Shape, Summary, location, own, ratarmount, trust};
use tarnfs_source::{FileSource, Setting, Source as _};

use super::{FileFacts, IndexPlace, Opening, Origin, Recreate, archives_as_files, has_own_directory};
use crate::archive::has_encrypted;
use crate::hashes;

/// Bytes of zeros behind an archive among which something else may have been put since.
const MOST_PADDING: u64 = 1 << 20;

/// True if nobody knows whether there is a file at `path`: its folder may not be looked into.
fn is_unreachable(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// What came of opening an index, where, and of whom it is.
pub(super) type Opened = (Result<Arc<dyn Index>, tarnfs_index::Error>, PathBuf, Origin);

impl Opening<'_> {
    /// Whose index the named file is, if it is that of another archive. One of this archive as it was once is replaced.
    pub(super) fn of_another_archive(&self) -> Option<String> {
        let IndexPlace::File(path) = &self.options.index.place else { return None };
        if self.options.index.recreate == Recreate::Always {
            return None;
        }
        let index = own::open(path, Some(&self.facts.owner), self.options.index.is_trusted).ok()?;
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

    /// The named file, if it is an index of ratarmount that a new one of ours would replace.
    pub(super) fn of_ratarmount(&self) -> Option<&Path> {
        let IndexPlace::File(path) = &self.options.index.place else { return None };
        let would_replace = self.options.index.recreate == Recreate::Always && self.options.index.is_written;
        (would_replace && ratarmount::may_be_one(path, true)).then_some(path)
    }

    /// The first index that belongs, or why the last one that was found does not.
    pub(super) fn existing(&self) -> Result<(Arc<dyn Index>, PathBuf, Origin), String> {
        let owner = self.facts.owner;
        let mut reason = "there is none".to_owned();
        let own = self.candidates().into_iter().map(|path| (self.own(&path, &owner), path, Origin::Found));
        let with_more =
            self.candidates().into_iter().filter(|_| !self.options.index.without_archives_as_files).filter_map(
                |path| {
                    let index = self.with_archives_as_files(&path);
                    // Of the others the message was given.
                    index.ok().map(|index| (Ok(index), path, Origin::Found))
                },
            );
        let sidecars = self.sidecar_candidates();
        let may_be_sidecar = |path: &PathBuf| sidecars.contains(path);
        let foreign = sidecars.iter().map(|path| (self.sidecar(path, &owner), path.clone(), Origin::Sidecar));
        // Chained lazily: nobody looks for a sidecar of ratarmount if there is an index of our own.
        let mut start = Instant::now();
        for (opened, path, origin) in own
            .chain(with_more)
            .chain(self.at_url())
            .chain(self.own_beside())
            .chain(foreign)
            .chain(self.sidecars_beside())
            .chain(self.packed_sidecars())
        {
            let taken = std::mem::replace(&mut start, Instant::now()).elapsed().as_secs_f64();
            match opened {
                Ok(index) => {
                    let (archive, index_file) = (self.path.display(), path.display());
                    log::debug!("{archive}: index {index_file} is used, checked in {taken:.3} s");
                    if origin == Origin::Sidecar && index.summary().archive.modified != self.facts.modified {
                        let what = "the archive was changed, or copied, after ratarmount made that";
                        log::warn!(
                            "{archive}: index {index_file}: {what}; if files are missing or cannot be read, use {}",
                            Setting::RecreateIndex
                        );
                    }
                    return Ok((index, path, origin));
                }
                Err(tarnfs_index::Error::Missing) => {
                    log::debug!("{}: no index at {}", self.path.display(), path.display());
                }
                // One of another backend was never meant for us.
                Err(error @ tarnfs_index::Error::Foreign(_)) => {
                    log::debug!("{}: index {}: {error}", self.path.display(), path.display());
                    reason = error.to_string();
                }
                // It is looked at as a sidecar next.
                Err(error @ tarnfs_index::Error::Unknown(_)) if origin == Origin::Found && may_be_sidecar(&path) => {
                    log::debug!("{}: index {}: {error}", self.path.display(), path.display());
                    reason = error.to_string();
                }
                // Who has a sidecar does not expect that the archive is read.
                Err(tarnfs_index::Error::OtherOptions(why)) if origin == Origin::Sidecar => {
                    let (archive, index_file) = (self.path.display(), path.display());
                    log::warn!("{archive}: ratarmount's index {index_file} is not used: {why}");
                    reason = why;
                }
                // Nothing is wrong with it. If another one is made, that is said then.
                Err(error @ tarnfs_index::Error::OtherOptions(_)) => {
                    log::info!("{}: index {}: {error}", self.path.display(), path.display());
                    reason = error.to_string();
                }
                Err(error) => {
                    // Said once, where it matters: when an index is not written, or is not replaced.
                    let is_said_later = is_unreachable(&path)
                        || (self.options.index.recreate == Recreate::IfNeeded && self.of_another_archive().is_some())
                        // Of an archive that only grew it is used, and a longer one takes its place.
                        || (self.options.index.recreate == Recreate::IfNeeded && self.grown_from().is_some());
                    let level = if is_said_later { log::Level::Info } else { log::Level::Warn };
                    // The error may name it, too.
                    let (archive, index_file) = (self.path.display(), path.display());
                    let why = error.to_string().replacen(&format!("{index_file}: "), "", 1);
                    let then = match self.options.index.recreate {
                        Recreate::Never => "",
                        // It is another program's, and stays.
                        _ if origin == Origin::Sidecar => {
                            "; it is not used, and the archive is read again if it has to be"
                        }
                        _ => {
                            "; it is not used, and the archive is read again if it has to be; `tarnfs index -c` replaces it"
                        }
                    };
                    log::log!(level, "{archive}: index {index_file}: {why}{then}");
                    reason = error.to_string();
                }
            }
        }
        Err(reason)
    }

    /// Where a new index may be put, one place for each folder, and the indexes that have the first place there. An
    /// index that belongs to the archive and shows another tree is kept. Where a new one was asked for, the place of
    /// the one that this call would use comes first.
    pub(super) fn destinations(&self) -> (Vec<PathBuf>, Vec<(PathBuf, String)>) {
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
    pub(super) fn replaced(&self) -> Option<PathBuf> {
        if self.options.index.recreate != Recreate::Always {
            return None;
        }
        let (places, wanted) = (self.candidates(), &self.options.shape);
        let with = |fits: &dyn Fn(&Path) -> bool| places.iter().find(|path| fits(path)).cloned();
        with(&|path| self.own(path, &self.facts.owner).is_ok())
            .or_else(|| with(&|path| self.has_shape(path, &|old| old.serves(wanted))))
            .or_else(|| with(&|path| self.has_shape(path, &|old| wanted.serves(old))))
    }

    /// Which of `places`, those of one folder, a new index gets; what lies at others goes to `kept`.
    pub(super) fn free(&self, places: &[PathBuf], kept: &mut Vec<(PathBuf, String)>) -> Option<PathBuf> {
        if let ([place], Recreate::Always) = (places, self.options.index.recreate) {
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
    pub(super) fn place_now(&self, path: &Path) -> Option<PathBuf> {
        if self.is_at_path && path.exists() && self.is_outdated() {
            // What is there may be the index of what is there now.
            return None;
        }
        let places = self.places().into_iter().find(|places| places.iter().any(|place| place == path))?;
        let replaced = self.replaced().filter(|replaced| places.contains(replaced));
        replaced.or_else(|| self.free(&places, &mut Vec::new()))
    }

    /// True if another file lies at the archive's path than the one that was read, or it was changed since.
    pub(super) fn is_outdated(&self) -> bool {
        let Ok(now) = FileSource::open(self.path) else { return false };
        let modified = FileFacts::of(&now).map(|facts| facts.modified);
        now.len() != self.source.len() || modified.is_ok_and(|modified| modified != self.facts.modified)
    }

    /// True if there is an index at `path` whose shape `fits`.
    pub(super) fn has_shape(&self, path: &Path, fits: &dyn Fn(&Shape) -> bool) -> bool {
        let index = self.own_at(path, &self.facts.owner);
        index.is_ok_and(|index| fits(&index.summary().shape))
    }

    /// Why no new index replaces the file at `path`, if that is so.
    pub(super) fn why_kept(&self, path: &Path) -> Option<String> {
        match self.own(path, &self.facts.owner) {
            Err(error @ tarnfs_index::Error::OtherOptions(_)) => Some(error.to_string()),
            Err(tarnfs_index::Error::Unknown(_)) if ratarmount::may_be_one(&self.at(path), false) => {
                Some("made by ratarmount".to_owned())
            }
            // Then this archive would not have been read: somebody has made it meanwhile.
            Ok(index) if index.summary().shape != self.options.shape => Some("made with more hashes".to_owned()),
            _ => None,
        }
    }

    /// What leads to `path` whatever becomes of the archive's folder, if it lies there.
    pub(super) fn at(&self, path: &Path) -> PathBuf {
        self.home.as_ref().map_or_else(|| path.to_owned(), |(home, _)| home.at(path))
    }

    /// The inverse of [`Opening::at`].
    pub(super) fn shown(&self, path: &Path) -> PathBuf {
        self.home.as_ref().map_or_else(|| path.to_owned(), |(home, _)| home.shown(path))
    }

    /// What was said of a file that was reached so.
    pub(super) fn named(&self, message: &str) -> String {
        self.home.as_ref().map_or_else(|| message.to_owned(), |(home, _)| home.named(message))
    }

    /// The index at `path`, whatever it belongs to.
    pub(super) fn own_at(&self, path: &Path, owner: &trust::Owner) -> Result<Arc<dyn Index>, tarnfs_index::Error> {
        own::open(&self.at(path), Some(owner), self.options.index.is_trusted).map_err(|error| match error {
            tarnfs_index::Error::NotTrusted(why) => tarnfs_index::Error::NotTrusted(self.named(&why)),
            error => error,
        })
    }

    pub(super) fn own(&self, path: &Path, owner: &trust::Owner) -> Result<Arc<dyn Index>, tarnfs_index::Error> {
        self.own_of(&self.options.shape, path, owner)
    }

    /// The index at `path`, if it was made with `-r`, for this call that was not: archives in it show as files.
    fn with_archives_as_files(&self, path: &Path) -> Result<Arc<dyn Index>, tarnfs_index::Error> {
        let owner = &self.facts.owner;
        let shape = self.own_at(path, owner)?.summary().shape.clone();
        let made = shape.to_string();
        let index = self.own_of(&shape, path, owner)?;
        let is_of_use =
            archives_as_files::may_serve(&shape, &self.options.shape) && !has_own_directory(index.summary());
        let shown = if is_of_use { archives_as_files::shown(index)? } else { None };
        shown.ok_or(tarnfs_index::Error::OtherOptions(made))
    }

    /// The index at `path`, if it belongs to the archive and can serve `shape`.
    fn own_of(&self, shape: &Shape, path: &Path, owner: &trust::Owner) -> Result<Arc<dyn Index>, tarnfs_index::Error> {
        self.fitting(self.own_at(path, owner)?, shape)
    }

    /// `index`, if it belongs to the archive and can serve `shape`.
    pub(super) fn fitting(&self, index: Arc<dyn Index>, shape: &Shape) -> Result<Arc<dyn Index>, tarnfs_index::Error> {
        let archive = self.archive();
        let facts =
            own::Facts { length: archive.length, modified: archive.modified, fingerprint: &|| Ok(archive.fingerprint) };
        // Nothing that is read compares a file in a plain archive with the hash that is shown of it.
        let shows_hashes = index.summary().layers.is_empty() && !self.options.shape.hashes.is_empty();
        let verify_mtime = self.options.index.verify_mtime || shows_hashes || has_unproven(&*index);
        own::belongs(index.summary(), &facts, shape, verify_mtime)?;
        if index.summary().notes.iter().any(|(_, what)| self.options.decoding.dictionaries.may_mend(what)) {
            let what = "it may have been made without a dictionary that is given now";
            return Err(tarnfs_index::Error::Stale(what.to_owned()));
        }
        let looks_into_archives = index.summary().shape.recursion.is_some();
        let may_be_opened = || Ok::<_, tarnfs_index::Error>(index.summary().has_locked || has_encrypted(&*index)?);
        if looks_into_archives && !self.options.decoding.passwords.is_empty() && may_be_opened()? {
            let what = "it was made without a password, which may open archives in this one";
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
    pub(super) fn was_appended_to(&self, old: &Summary) -> io::Result<bool> {
        if !old.layers.is_empty() || old.archive.modified == self.archive().modified {
            return Ok(false);
        }
        // Where what is appended does not go on with the archive, it may lie behind zeros.
        let shortest = old.grown_from.and_then(|_| self.shortest_entry(old)).unwrap_or(MOST_PADDING);
        let most = usize::try_from(shortest).unwrap_or(usize::MAX);
        let mut bytes = vec![0; most];
        let read = self.source.read_at(&mut bytes, old.end)?;
        Ok(bytes[..read].iter().any(|&byte| byte != 0))
    }

    pub(super) fn sidecar(&self, path: &Path, owner: &trust::Owner) -> Result<Arc<dyn Index>, tarnfs_index::Error> {
        let file = trust::open(path, Some(owner), self.options.index.is_trusted)?;
        ratarmount::open(file, &self.expected())
    }

    /// To what a sidecar should belong.
    pub(super) fn expected(&self) -> ratarmount::Expected {
        ratarmount::Expected {
            source: self.source(),
            modified: self.archive().modified,
            verify_mtime: self.options.index.verify_mtime,
            shape: self.options.shape.clone(),
            limits: self.options.limits,
            dictionaries: self.options.decoding.dictionaries.clone(),
            cancel: self.options.cancel.clone(),
        }
    }

    /// Sidecars of ratarmount are used. They do not say what is damaged, so with `--force` nothing of it could be told
    /// from the rest.
    pub(super) fn takes_sidecars(&self) -> bool {
        self.options.index.use_sidecars && !self.options.decoding.force
    }

    /// Compressed sidecars beside the archive. They are looked for when this is asked, not before.
    fn packed_sidecars(&self) -> impl Iterator<Item = Opened> + '_ {
        let is_beside = match &self.options.index.place {
            IndexPlace::Folders(folders) => folders.iter().any(|folder| folder.as_os_str().is_empty()),
            _ => false,
        };
        let is_wanted = is_beside && self.takes_sidecars() && self.beside.is_none();
        let paths = std::iter::once(self.path).filter(move |_| is_wanted).flat_map(ratarmount::packed_beside);
        paths.map(|path| (self.sidecar(&path, &self.facts.owner), path, Origin::Sidecar))
    }

    /// Where an index may lie, for each folder.
    pub(super) fn places(&self) -> Vec<Vec<PathBuf>> {
        match &self.options.index.place {
            IndexPlace::Memory | IndexPlace::Url(_) => Vec::new(),
            IndexPlace::File(path) => vec![vec![path.clone()]],
            IndexPlace::Folders(folders) => {
                let mains = if let Some((_, path)) = &self.home {
                    location::candidates_of(path, folders)
                } else {
                    let Some(path) = self.named_after() else { return Vec::new() };
                    let elsewhere = folders.iter().filter(|folder| !folder.as_os_str().is_empty()).cloned();
                    location::candidates(&path, None, &elsewhere.collect::<Vec<_>>())
                };
                let with_variants = |main: PathBuf| {
                    let variants = self.options.shape.variants(&main);
                    std::iter::once(main).chain(variants).collect()
                };
                mains.into_iter().map(with_variants).collect()
            }
        }
    }

    pub(super) fn candidates(&self) -> Vec<PathBuf> {
        self.places().into_iter().flatten().collect()
    }

    /// Where ratarmount puts its sidecars; a file that is named may be of either kind.
    pub(super) fn sidecar_candidates(&self) -> Vec<PathBuf> {
        match &self.options.index.place {
            _ if !self.takes_sidecars() => Vec::new(),
            IndexPlace::Memory | IndexPlace::Url(_) => Vec::new(),
            IndexPlace::File(path) => Some(path.clone())
                .filter(|path| ratarmount::may_be_one(path, self.options.index.is_trusted))
                .into_iter()
                .collect(),
            IndexPlace::Folders(folders) => ratarmount::candidates(self.path, folders),
        }
    }

    /// Why no index can be put anywhere, where none of the folders for it is there or can be made.
    pub(super) fn no_folder(&self) -> Option<String> {
        let IndexPlace::Folders(folders) = &self.options.index.place else { return None };
        if self.named_after().is_none() {
            let what = "what the server tells of its version may hold for another one, too";
            return Some(what.to_owned()).filter(|_| self.options.index.is_written);
        }
        let why = |folder: &PathBuf| {
            if folder.as_os_str().is_empty() || folder.exists() { None } else { location::why_no_folder(folder) }
        };
        let all: Option<Vec<_>> = folders.iter().map(why).collect();
        all.filter(|all| !all.is_empty() && self.options.index.is_written).map(|all| all.join("; "))
    }
}

/// True of a plain archive with contents for which neither a checksum nor a header of their own stands: samples of it
/// may not show that they were moved, and what is read there would be something else.
fn has_unproven(index: &dyn Index) -> bool {
    let summary = index.summary();
    let has_checksums = tarnfs_format::by_name(&summary.format).is_some_and(Format::compares_content);
    // Archives in it may be of any format.
    let may_lack_them = !has_checksums || summary.shape.recursion.is_some();
    // What cannot be read now counts as one.
    summary.layers.is_empty() && may_lack_them && index.has_pieces_above(0).unwrap_or(true)
}
