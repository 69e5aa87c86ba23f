//! From names to one tree: archives and folders are opened, and put together. What a front end shows, be it a mount, a
//! listing or a server.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::fstat;
use tarnfs_index::{Archive, location};
use tarnfs_source::{Setting, SharedSource};

use crate::alone::{Names, told_apart};
use crate::build::Progress;
use crate::containers::{self, Layout};
use crate::open::alone::{is_database, is_index};
use crate::open::indexes::{self, in_real_folder};
use crate::open::{self, FileFacts, IndexPlace, OpenArchive, Options, Problem};
use crate::{Base, ComposeError, Composition, Error, FarTree, FolderTree, Lazily, LazyTree, Tree, compose};

/// An archive or a folder that is to be opened.
#[derive(Debug, Clone)]
pub enum Location {
    /// A file or a folder of this machine, or a URL ([`Options::remotes`]).
    Path(PathBuf),
    /// An archive whose bytes are given.
    Source {
        /// The bytes.
        source: SharedSource,
        /// Who may write them, and when they were changed last.
        facts: FileFacts,
        /// Its indexes lie where those of a file of this path would.
        path: PathBuf,
    },
}

impl Location {
    /// How it is called.
    pub fn path(&self) -> &Path {
        match self {
            Self::Path(path) | Self::Source { path, .. } => path,
        }
    }
}

/// Who is told of each archive as it is opened, to show it to a person.
pub trait Observer {
    /// The archive at `path` is about to be opened. `progress` says how far its first pass has come.
    fn opens(&self, path: &Path, progress: &Arc<Progress>) {
        let _ = (path, progress);
    }

    /// What came of it. `number` counts all locations from 0.
    fn opened(&self, number: usize, path: &Path, archive: Result<&OpenArchive, &Problem>) {
        let _ = (number, path, archive);
    }
}

/// Nobody wants to know.
impl Observer for () {}

/// What was opened, as one tree.
pub struct Assembly {
    /// The tree.
    pub tree: Arc<dyn Tree>,
    /// The folders in it: they show what is there at each moment.
    pub folders: Vec<Arc<FolderTree>>,
    /// Archives are opened, and their indexes written, as somebody looks into them.
    pub is_lazy: bool,
    /// Some of it is a container image, not what is stored.
    pub has_images: bool,
    /// Device and number of the first location's file or folder.
    pub first: Option<(u64, u64)>,
}

impl fmt::Debug for Assembly {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Assembly").field("is_lazy", &self.is_lazy).finish_non_exhaustive()
    }
}

/// Why locations cannot be shown as one tree.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// An archive cannot be opened.
    #[error("{}: {problem}", path.display())]
    Archive {
        /// Which one.
        path: PathBuf,
        /// Why.
        problem: Problem,
    },
    /// A folder cannot be opened.
    #[error("{}: {error}", path.display())]
    Folder {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: Error,
    },
    /// Archives inside of it cannot be opened as folders with these options.
    #[error("{}: {problem}", path.display())]
    Lazily {
        /// What they lie in.
        path: PathBuf,
        /// Why.
        problem: Problem,
    },
    /// [`IndexPlace::File`] names the index of one archive.
    #[error("one file cannot be the index of several archives")]
    OneIndexFile,
    /// They cannot be put together.
    #[error(transparent)]
    Compose(#[from] ComposeError),
}

/// Opens `locations` one after the other, from left to right, and puts them together as `how` says. Of no locations
/// comes an empty folder.
///
/// All archives share the cache, the budget and the threads of `options`; each has a progress of its own.
pub fn assemble(
    locations: &[Location],
    how: &Composition,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Assembly, AssembleError> {
    let is_archive = |location: &&Location| !matches!(location, Location::Path(path) if path.is_dir());
    if locations.iter().filter(is_archive).count() > 1
        && matches!(options.index.place, IndexPlace::File(_) | IndexPlace::Url(_))
    {
        return Err(AssembleError::OneIndexFile);
    }
    let (folders, alone, known) = Default::default();
    let mut sources =
        Sources { how, options, observer, folders, alone, known, is_lazy: false, has_images: false, first: None };
    let (mut names, mut trees) = (Vec::with_capacity(locations.len()), Vec::with_capacity(locations.len()));
    let all: Vec<&Location> = locations.iter().collect();
    let left_out = if how.union { indexes_among(&all, &options.index.place) } else { HashMap::new() };
    let mut opened = Vec::with_capacity(locations.len());
    for (number, location) in locations.iter().enumerate() {
        if let Some(archive) = left_out.get(&number).and_then(|&archive| locations.get(archive)) {
            if is_index(location.path(), options.limits) {
                tell_of_index(location, archive);
            } else {
                let (index, archive) = (location.path().display(), archive.path().display());
                log::warn!("{index}: left out: it is called as an index of {archive}, and is none");
            }
            if number == 0 {
                sources.first = location.path().metadata().ok().map(|found| (found.dev(), found.ino()));
            }
            continue;
        }
        opened.push(location);
        names.push(location.path().file_name().unwrap_or(OsStr::new("root")).as_bytes().to_vec());
        trees.push(sources.open(number, location)?);
    }
    let Sources { folders, mut alone, known, is_lazy, has_images, first, .. } = sources;
    if how.union {
        let mut is_kept = are_kept(&known, &opened, &options.index.place).into_iter();
        let mut keep = || is_kept.next().unwrap_or(true);
        (names, trees, alone) = names
            .into_iter()
            .zip(trees)
            .zip(alone)
            .filter(|_| keep())
            .map(|((name, tree), alone)| (name, tree, alone))
            .collect();
        trees = told_apart(trees.into_iter().zip(alone).collect());
    }
    let named = names.into_iter().zip(trees).collect();
    Ok(Assembly { tree: compose(named, how)?, folders, is_lazy, has_images, first })
}

/// Opens one location, which is no folder.
pub(crate) fn opened(location: &Location, options: &Options) -> Result<OpenArchive, Problem> {
    match location {
        Location::Path(path) => open::open(path, options),
        Location::Source { source, facts, path } => {
            open::open_source(SharedSource::clone(source), *facts, path, options)
        }
    }
}

/// What is known of a location that is no folder.
#[derive(Debug)]
struct Known {
    archive: Archive,
    index: Option<PathBuf>,
    /// It is an index whose archive was not looked for.
    is_index: bool,
}

/// Where indexes may lie of those among `locations` that are `archives`: which of them it is.
fn places_of_indexes(
    archives: impl Iterator<Item = usize>,
    locations: &[&Location],
    place: &IndexPlace,
) -> HashMap<PathBuf, usize> {
    let archives = archives.filter_map(|number| Some((number, locations.get(number)?)));
    archives
        .flat_map(|(number, archive)| indexes::places(archive.path(), place).map(move |path| (path, number)))
        .collect()
}

/// The archive whose index lies at `path`, of those that `places` are of.
fn archive_at(places: &HashMap<PathBuf, usize>, path: &Path) -> Option<usize> {
    let path = in_real_folder(path);
    places.get(&path).or_else(|| places.get(&location::without_tag(&path)?)).copied()
}

fn tell_of_index(index: &Location, archive: &Location) {
    log::warn!("{}: left out: it is the index of {}", index.path().display(), archive.path().display());
}

/// Which of `locations` are indexes of others among them, as far as their places say so: nothing is opened for that.
fn indexes_among(locations: &[&Location], place: &IndexPlace) -> HashMap<usize, usize> {
    let may_be_index = |location: &Location| {
        let name = location.path().file_name().unwrap_or_default();
        matches!(location, Location::Path(_)) && name.as_bytes().ends_with(b".sqlite")
    };
    let (indexes, others): (Vec<usize>, Vec<usize>) =
        (0..locations.len()).partition(|&number| locations.get(number).is_some_and(|location| may_be_index(location)));
    // Mostly there is none.
    if indexes.is_empty() {
        return HashMap::new();
    }
    let is_archive = |number: &usize| {
        locations.get(*number).is_some_and(|location| !matches!(location, Location::Path(path) if path.is_dir()))
    };
    let places = places_of_indexes(others.into_iter().filter(is_archive), locations, place);
    let index_of = |number: usize| {
        let path = locations.get(number)?.path();
        Some((number, archive_at(&places, path).filter(|_| is_database(path))?))
    };
    indexes.into_iter().filter_map(index_of).collect()
}

/// For each of `locations` whether it is shown in a union. The index of an archive that is shown, too, is not: `d/*`
/// names both, and what one reads in the index alone is an error. It may be one that the archive does not use.
fn are_kept(known: &[Option<Known>], locations: &[&Location], place: &IndexPlace) -> Vec<bool> {
    // Mostly there is none.
    if !known.iter().flatten().any(|known| known.is_index) {
        return vec![true; locations.len()];
    }
    let is_archive = |known: &Option<Known>| known.as_ref().is_some_and(|known| !known.is_index);
    let archives = known.iter().enumerate().filter(|(_, known)| is_archive(known)).map(|(number, _)| number);
    let places = places_of_indexes(archives, locations, place);
    let is_same = |one: &Path, other: &Path| match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    };
    let archive_of = |index: &Known, path: &Path| {
        let is_its = |archive: &Known| {
            let is_of_it = (archive.archive.length, archive.archive.fingerprint)
                == (index.archive.length, index.archive.fingerprint);
            !archive.is_index && (is_of_it || archive.index.as_deref().is_some_and(|own| is_same(own, path)))
        };
        known.iter().position(|known| known.as_ref().is_some_and(is_its))
    };
    let is_kept = |(known, location): (&Option<Known>, &&Location)| {
        let path = location.path();
        let index = known.as_ref().filter(|known| known.is_index);
        let archive = index.and_then(|index| archive_at(&places, path).or_else(|| archive_of(index, path)));
        let archive = archive.and_then(|place| locations.get(place));
        if let Some(archive) = archive {
            tell_of_index(location, archive);
        }
        archive.is_none()
    };
    known.iter().zip(locations).map(is_kept).collect()
}

/// Locations while they are opened.
struct Sources<'a> {
    how: &'a Composition,
    options: &'a Options,
    observer: &'a dyn Observer,
    folders: Vec<Arc<FolderTree>>,
    /// The names of each that is a single compressed file.
    alone: Vec<Option<Names>>,
    known: Vec<Option<Known>>,
    is_lazy: bool,
    has_images: bool,
    first: Option<(u64, u64)>,
}

impl Sources<'_> {
    fn open(&mut self, number: usize, location: &Location) -> Result<Arc<dyn Tree>, AssembleError> {
        match location {
            Location::Path(path) if path.is_dir() => match self.layout(path)? {
                Some(layout) => {
                    let tree = self.archive(number, &layout.location)?;
                    if number == 0 {
                        self.first = Some(layout.folder);
                    }
                    Ok(tree)
                }
                None => self.folder(number, path),
            },
            _ => match self.far(number, location.path())? {
                Some(folder) => Ok(folder),
                None => self.archive(number, location),
            },
        }
    }

    /// The folder behind the URL that `path` is, if it is one, and there is a folder.
    fn far(&mut self, number: usize, path: &Path) -> Result<Option<Arc<dyn Tree>>, AssembleError> {
        let Some(remotes) = self.options.remotes_for(path) else { return Ok(None) };
        let folder = match remotes.open(path) {
            // Opening it once more asks nobody.
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => remotes.folder(path),
            Err(error) => Err(error),
        };
        let folder = folder.map_err(|error| {
            let problem = open::remote_problem(error);
            self.observer.opens(path, &Arc::default());
            self.observer.opened(number, path, Err(&problem));
            AssembleError::Archive { path: path.to_owned(), problem }
        })?;
        let folder = Arc::new(FarTree::new(folder, path.to_owned()));
        self.alone.push(None);
        self.known.push(None);
        Ok(Some(if self.options.shape.recursion.is_some() { self.lazily(Base::Far(folder), path)? } else { folder }))
    }

    /// The archive that stands for the folder at `path`, if it is a layout of container images.
    fn layout(&self, path: &Path) -> Result<Option<Layout>, AssembleError> {
        let Some(wanted) = &self.how.images else { return Ok(None) };
        let found = containers::layout(path, wanted);
        found.map_err(|problem| AssembleError::Archive { path: path.to_owned(), problem })
    }

    fn folder(&mut self, number: usize, path: &Path) -> Result<Arc<dyn Tree>, AssembleError> {
        let folder = FolderTree::open(path).map(Arc::new);
        let folder = folder.map_err(|error| AssembleError::Folder { path: path.to_owned(), error })?;
        if number == 0 {
            self.first = fstat(&*folder).ok().map(|found| (found.st_dev, found.st_ino));
        }
        self.folders.push(Arc::clone(&folder));
        self.alone.push(None);
        self.known.push(None);
        if self.options.shape.recursion.is_some() { self.lazily(Base::Folder(folder), path) } else { Ok(folder) }
    }

    fn archive(&mut self, number: usize, location: &Location) -> Result<Arc<dyn Tree>, AssembleError> {
        let path = location.path();
        let mut options = Options { progress: Arc::default(), ..self.options.clone() };
        let is_lazy = self.how.lazy && options.shape.recursion.is_some();
        if is_lazy {
            options.shape.recursion = None;
        }
        self.observer.opens(path, &options.progress);
        let images = self.how.images.as_ref().map(|wanted| containers::open(location, &options, wanted));
        let (opened, image) = match images.transpose().map(Option::flatten) {
            Ok(Some(containers::Opened { archive, tree })) => (Ok(archive), Some(tree)),
            Ok(None) => (opened(location, &options), None),
            Err(problem) => (Err(problem), None),
        };
        self.observer.opened(number, path, opened.as_ref());
        let archive = opened.map_err(|problem| AssembleError::Archive { path: path.to_owned(), problem })?;
        if number == 0 {
            self.first = archive.file;
        }
        let known = archive.index.summary().archive;
        let is_index = matches!(location, Location::Path(path) if archive.index_path.as_deref() == Some(path));
        self.known.push(Some(Known { archive: known, index: archive.index_path.clone(), is_index }));
        self.has_images |= image.is_some();
        let is_alone = self.how.union && image.is_none();
        self.alone.push(if is_alone { Names::of(&archive, path) } else { None });
        let tree = image.unwrap_or(archive.tree);
        if is_lazy { self.lazily(Base::Other(tree), path) } else { Ok(tree) }
    }

    /// `base` with the archives in it as folders.
    fn lazily(&mut self, base: Base, path: &Path) -> Result<Arc<dyn Tree>, AssembleError> {
        self.is_lazy = true;
        if self.options.shape.recursion.as_ref().is_some_and(|recursion| recursion.transform.is_some()) {
            let what = "has no effect on archives that are opened when somebody asks for them";
            let setting = Setting::TransformRecursiveMountPoint;
            log::warn!("{}: {setting} {what}: they show under their names", path.display());
        }
        let how = Lazily {
            options: self.options.clone(),
            all: self.how.lazy,
            most_open: self.how.most_open,
            mountpoint: self.how.mountpoint.clone(),
        };
        match LazyTree::new(base, how) {
            Ok(tree) => Ok(Arc::new(tree)),
            Err(problem) => Err(AssembleError::Lazily { path: path.to_owned(), problem }),
        }
    }
}
