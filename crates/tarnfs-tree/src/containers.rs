//! Container images as the file systems that a container would see.
//!
//! Layers are archives in an archive. They are read as with `-r`, all in one pass, and their index is one with that of
//! the archive ([`shape`]). The folder that each becomes is a tree ([`Subdirectory`]); an image is the union of these
//! ([`UnionTree::of_layers`]). A layout that is a folder is read as the archive that it would be: so it has one index,
//! too, and what was read once is not read again.
//!
//! Whether an archive holds images is known when its documents were read. Who only looks like one ([`may_be_one`]: its
//! first file has such a name) is looked through for them; all others are opened as ever.

mod members;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::fstat;
use tarnfs_codec::OnlyBytes;
use tarnfs_format::containers::{self, Image, Images, Layer};
use tarnfs_format::name;
use tarnfs_index::{Recursion, Shape};
use tarnfs_source::{FileSource, Fingerprint, Joined, Limits, MemorySource, Setting, SharedSource, Source as _};

pub use tarnfs_format::containers::Platform;

use crate::assemble::{Location, opened};
use crate::build::{is_damage, may_lack_notes};
use crate::extensions::MEMBERS;
use crate::open::{self, FileFacts, IndexPlace, OpenArchive, Options, Problem, Recreate};
use crate::readers::joined_owner;
use crate::union::{Beside, Stacking};
use crate::{Attributes, Error, Kind, Node, Subdirectory, Subvolumes, Tree, UnionTree, path};

use members::{InFolder, InTree};

/// What is asked of images.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted {
    /// The platform that they are made for; `None` for that of this machine, if there is one for it.
    pub platform: Option<Platform>,
    /// The layers themselves are not shown: whoever asks is no owner of the mount.
    pub without_layers: bool,
}

/// The folder in the root of an image that has each of its layers. It is not listed: who copies the root, or compares
/// it, means what the container sees.
const LAYERS: &[u8] = b".layers";

/// Files of a layout that are held open.
const MOST_FILES: usize = 512;

/// Bytes of a tar without members at most, as a layer that changes nothing is one.
const LONGEST_EMPTY: u64 = 64 << 10;

/// Components of paths that are walked to look for all documents and layers of an archive, those of the targets of
/// links among them: a few hundred bytes of links can lead round for hours. So many layers as there may be are found in
/// these.
const MOST_STEPS: u64 = 1 << 18;

/// An archive with images.
pub(crate) struct Opened {
    pub(crate) archive: OpenArchive,
    pub(crate) tree: Arc<dyn Tree>,
}

/// Opens `location` if it is an archive with images. `None` if it is none: to be opened as ever.
pub(crate) fn open(location: &Location, options: &Options, wanted: &Wanted) -> Result<Option<Opened>, Problem> {
    // Paths must be those of the archive.
    if options.shape.transform.is_some() || !may_be_one(location, options) {
        return Ok(None);
    }
    let layered = Options { shape: shape(&options.shape), ..options.clone() };
    let layered = Options { index: open::IndexOptions { use_sidecars: false, ..layered.index.clone() }, ..layered };
    if options.index.recreate != Recreate::Always {
        let index = open::IndexOptions { recreate: Recreate::Never, ..layered.index.clone() };
        if let Ok(archive) = opened(location, &Options { index, ..layered.clone() })
            && let Some(tree) = shown(&archive, location, options, wanted)?
        {
            return Ok(Some(Opened { archive, tree }));
        }
    }
    if options.index.recreate == Recreate::Never {
        return Ok(None);
    }
    // Of what has an index with other options than these, that one may say that there are none.
    if options.index.recreate != Recreate::Always && options.shape.recursion.is_some() {
        let index = open::IndexOptions { recreate: Recreate::Never, ..options.index.clone() };
        if let Ok(archive) = opened(location, &Options { index, ..options.clone() })
            && found(&archive, location, options)?.is_none()
        {
            return Ok(None);
        }
    }
    // Without the layers: what is in them takes longer to read.
    let mut first = Options { sink: None, contents: None, ..options.clone() };
    first.shape.recursion = None;
    first.shape.hashes.clear();
    first.index = open::IndexOptions { is_written: false, is_required: false, use_sidecars: false, ..first.index };
    if options.index.recreate == Recreate::Always {
        first.index.recreate = Recreate::IfNeeded;
        first.index.place = IndexPlace::Memory;
    }
    let found = match opened(location, &first) {
        Ok(archive) => found(&archive, location, options)?,
        Err(Problem::Cancelled) => return Err(Problem::Cancelled),
        // That is said by who opens it as ever.
        Err(_) => None,
    };
    let Some(found) = found else { return Ok(None) };
    if found.images.is_empty() {
        let shown = location.path().display();
        found.notes.iter().for_each(|note| log::warn!("{shown}: {note}"));
        return Ok(None);
    }
    let archive = match opened(location, &layered) {
        Ok(archive) => archive,
        Err(Problem::Cancelled) => return Err(Problem::Cancelled),
        // The archive itself may well be read: a part of a disk that cannot be may lie in layers that nobody wants.
        Err(problem) => {
            log::warn!("{}: shown as it is stored: its layers cannot be read: {problem}", location.path().display());
            return Ok(None);
        }
    };
    Ok(shown(&archive, location, options, wanted)?.map(|tree| Opened { archive, tree }))
}

/// `shape` where the archives in it that are members of the archive itself are read, whatever their names are.
fn shape(shape: &Shape) -> Shape {
    let mut recursion = shape.recursion.clone().unwrap_or_default();
    // What is asked for counts from the image on. A layer is one archive in another, a compressed one two.
    recursion.depth = recursion.depth.map(|depth| depth.saturating_add(2));
    if !recursion.extensions.iter().any(|extension| extension == MEMBERS) {
        recursion.extensions.push(MEMBERS.to_owned());
    }
    // Marks of layers name archives as files are named: under another name a folder with what one holds would show
    // what a higher layer has removed.
    Shape { recursion: Some(Recursion { transform: None, strip_extension: false, ..recursion }), ..shape.clone() }
}

/// What of the images in `archive`, which was opened with `options`, does not have the digest that it should have: each
/// as a clause. All of it is read, once; what cannot be is left out.
///
/// # Errors
/// If it is cancelled.
pub fn wrong_digests(archive: &OpenArchive, options: &Options) -> io::Result<Vec<String>> {
    let (left, cancel) = (Cell::new(MOST_STEPS), &options.cancel);
    let members = InTree { tree: &*archive.tree, spellings: spellings_in(archive), left, cancel };
    let found = match containers::images(&members) {
        Ok(found) => found.unwrap_or_default(),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(vec![error.to_string()]),
        Err(_) => return cancel.check().map(|()| Vec::new()),
    };
    let mut by_path: BTreeMap<Arc<str>, BTreeSet<String>> = BTreeMap::new();
    for layer in found.images.into_iter().flat_map(|image| image.layers) {
        by_path.entry(layer.path).or_default().insert(layer.digest);
    }
    let (layers, mut wrong) = (Layers::of(archive), Vec::new());
    let most = archive.index.summary().archive.length.saturating_mul(HASHED_FOR_EACH_BYTE);
    let left = Cell::new(most.saturating_add(HASHED_BESIDE));
    for (path, digests) in &by_path {
        let Ok(at_path) = members.find(path.as_bytes())? else { continue };
        let Some(file) = layers.file_of(&at_path) else { continue };
        let shown = name::excerpt(path.as_bytes());
        let others = archive.tree.open(file.node).map_err(into_io).and_then(|source| {
            let digests: Vec<_> = digests.iter().map(String::as_str).collect();
            others(&source, &digests, &left, options)
        });
        cancel.check()?;
        match others {
            Ok(others) => {
                let what = |digest: &String| {
                    format!("the layer {shown} does not have the digest {}", name::excerpt(digest.as_bytes()))
                };
                wrong.extend(others.iter().map(what));
            }
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                log::warn!("the layer {shown} is not compared with its digest: that would take too long");
            }
            // Who reads it is told.
            Err(_) => {}
        }
    }
    Ok(wrong)
}

/// Bytes that are hashed of the layers of an archive, for each of its bytes and beside: of a hole, nothing is stored.
const HASHED_FOR_EACH_BYTE: u64 = 1000;
const HASHED_BESIDE: u64 = 4 << 30;

/// Those of `digests` that the layer in `source` does not have. `left` may still be hashed.
fn others(source: &SharedSource, digests: &[&str], left: &Cell<u64>, options: &Options) -> io::Result<Vec<String>> {
    let pay = |length: u64| {
        left.set(left.get().checked_sub(length).ok_or(io::ErrorKind::FileTooLarge)?);
        options.cancel.check()
    };
    // Before any of it is read.
    if source.len() > left.get() {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut at = 0_u64;
    let of_stored = containers::other_digests(digests, &mut |into| {
        let length = source.read_at(into, at)?;
        at = at.saturating_add(length as u64);
        pay(length as u64).map(|()| length)
    })?;
    // `docker save` has the digest of what a layer is unpacked.
    let wrong = match tarnfs_codec::detect(&first_bytes(source)?).filter(|_| !of_stored.is_empty()) {
        None => of_stored,
        Some(codec) => {
            let how = tarnfs_codec::Options { threads: 1, ..options.first_pass() };
            let unpacked = codec.first_pass(SharedSource::clone(source), &how).and_then(|pass| {
                // Whether its bytes are right, the digest tells.
                let mut bytes = OnlyBytes::new(pass);
                let read = &mut |into: &mut [u8]| {
                    let length = bytes.read(into)?;
                    pay(length as u64).map(|()| length)
                };
                containers::other_digests(&of_stored, read)
            });
            match unpacked {
                Err(error) if is_damage(&error) && error.kind() != io::ErrorKind::Unsupported => of_stored,
                unpacked => unpacked?,
            }
        }
    };
    Ok(wrong.into_iter().map(str::to_owned).collect())
}

/// True if the first file of the archive has a name as archives with images have them.
fn may_be_one(location: &Location, options: &Options) -> bool {
    let source: SharedSource = match location {
        Location::Source { source, .. } => SharedSource::clone(source),
        Location::Path(path) if let Some(remotes) = options.remotes_for(path) => match remotes.open(path) {
            Ok(remote) => remote.source,
            Err(_) => return false,
        },
        Location::Path(path) => match FileSource::open(path) {
            Ok(file) => Arc::new(file),
            Err(_) => return false,
        },
    };
    let head = first_bytes(&source).ok();
    head.and_then(|head| decoded(&source, head, options).ok()).is_some_and(|head| containers::may_begin(&head))
}

/// Bytes that are looked at: headers of the first file, and those of folders before it.
const HEAD: usize = 16 << 10;

fn first_bytes(source: &SharedSource) -> io::Result<Vec<u8>> {
    let mut head = vec![0; HEAD.min(usize::try_from(source.len()).unwrap_or(HEAD))];
    source.read_exact_at(&mut head, 0)?;
    Ok(head)
}

/// `head`, or what it is decoded if it is compressed.
fn decoded(source: &SharedSource, head: Vec<u8>, options: &Options) -> io::Result<Vec<u8>> {
    let Some(codec) = tarnfs_codec::detect(&head) else { return Ok(head) };
    let how = tarnfs_codec::Options { threads: 1, ..options.first_pass() };
    let mut decoder = codec.first_pass(SharedSource::clone(source), &how)?;
    let (mut decoded, mut done) = (vec![0; HEAD], 0);
    while let Some(rest) = decoded.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match decoder.read(rest)? {
            0 => break,
            read => done += read,
        }
    }
    decoded.truncate(done);
    Ok(decoded)
}

/// What the documents in `archive` say; `None` if they do not say anything of images, or cannot be read.
fn found(archive: &OpenArchive, location: &Location, options: &Options) -> Result<Option<Images>, Problem> {
    let (left, cancel) = (Cell::new(MOST_STEPS), &options.cancel);
    match containers::images(&InTree { tree: &*archive.tree, spellings: spellings_in(archive), left, cancel }) {
        Ok(found) => Ok(found),
        Err(_) if cancel.is_cancelled() => Err(Problem::Cancelled),
        Err(error) => {
            let shown = location.path().display();
            log::warn!("{shown}: shown as it is stored: its images cannot be read: {error}");
            Ok(None)
        }
    }
}

/// The images in `archive` as one tree.
fn shown(
    archive: &OpenArchive,
    location: &Location,
    options: &Options,
    wanted: &Wanted,
) -> Result<Option<Arc<dyn Tree>>, Problem> {
    let Some(found) = found(archive, location, options)? else { return Ok(None) };
    let shown = location.path().display();
    for note in &found.notes {
        log::warn!("{shown}: {note}");
    }
    if found.images.is_empty() {
        return Ok(None);
    }
    let images = containers::chosen(found.images, wanted.platform.as_ref())
        .map_err(|what| Problem::Option(format!("{}: {what}", Setting::Platform)))?;
    let mut layers = Layers::of(archive);
    // A link that leads nowhere is told.
    let has_dead_links = !archive.index.summary().notes.is_empty();
    let how = Stacking::new(images.len(), options.shape.recursion.is_some(), has_dead_links);
    let how = if wanted.without_layers { how.without_layers() } else { how };
    let host = Platform::of_this_machine();
    let mut trees: Vec<(Vec<u8>, Arc<dyn Tree>)> = Vec::new();
    for image in &images {
        if options.cancel.is_cancelled() {
            return Err(Problem::Cancelled);
        }
        if wanted.platform.is_none() && !host.takes(&image.platform) && !image.platform.os.is_empty() {
            log::info!("{shown}: {} is for {}", name_of(image), image.platform);
        }
        let tree = match one(&mut layers, image, &how, options.decoding.force) {
            Ok((tree, damage)) => {
                if let Some(damage) = damage {
                    log::warn!("{shown}: the image {} may show files of lower layers: {damage}", name_of(image));
                }
                tree
            }
            Err(what) => {
                log::warn!("{shown}: the image {} cannot be shown: {what}", name_of(image));
                continue;
            }
        };
        let names = if image.names.is_empty() { [short(&image.id)].into() } else { Arc::clone(&image.names) };
        trees.extend(names.iter().map(|name| (folder_name(name), Arc::clone(&tree))));
    }
    // One image is shown as it is, whatever its names are.
    let is_one = trees.windows(2).all(|two| matches!(two, [(_, one), (_, other)] if Arc::ptr_eq(one, other)));
    match trees.first() {
        None => Ok(None),
        Some((_, tree)) if is_one => Ok(Some(Arc::clone(tree))),
        Some(_) => {
            let several = Subvolumes::new(trees).map_err(|error| Problem::Read { offset: 0, error: into_io(error) })?;
            Ok(Some(Arc::new(several)))
        }
    }
}

fn into_io(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        error => io::Error::other(error.to_string()),
    }
}

fn name_of(image: &Image) -> String {
    let name = image.names.first().unwrap_or(&image.id);
    tarnfs_format::name::excerpt(name.as_bytes()).to_string()
}

/// As people shorten a digest.
fn short(id: &str) -> String {
    id.split_once(':').and_then(|(_, digits)| digits.get(..12)).unwrap_or(id).to_owned()
}

/// The folder for what is called `name`: slashes cannot be in it.
fn folder_name(name: &str) -> Vec<u8> {
    let name: Vec<u8> = name.bytes().map(|byte| if matches!(byte, b'/' | 0) { b'_' } else { byte }).take(255).collect();
    if matches!(name.as_slice(), b"" | b"." | b"..") { b"_".to_vec() } else { name }
}

/// One image. What is wrong with its layers is no error if it `is_forced`, but told.
fn one(
    layers: &mut Layers,
    image: &Image,
    how: &Stacking,
    is_forced: bool,
) -> Result<(Arc<dyn Tree>, Option<String>), String> {
    let (mut trees, mut damage) = (Vec::with_capacity(image.layers.len()), None);
    for layer in &image.layers {
        let digest = || name::excerpt(layer.digest.as_bytes()).to_string();
        let found = layers.get(layer).map_err(|what| format!("its layer {} {what}", digest()))?;
        let other_length = match (layer.size, found.length) {
            (Some(told), Some(length)) if told != length => Some(format!("it has {length} bytes in place of {told}")),
            _ => None,
        };
        if let Some(what) = found.damage.or(other_length) {
            let what = format!("its layer {} is damaged: {what}", digest());
            if !is_forced {
                return Err(format!("{what} ({} shows it)", Setting::Force));
            }
            damage.get_or_insert(what);
        }
        trees.push(Arc::clone(&found.tree));
    }
    let mut named: Vec<(Vec<u8>, Arc<dyn Tree>)> = Vec::new();
    for (layer, tree) in image.layers.iter().zip(&trees) {
        let name = folder_name(&layer.digest);
        // The same one may be there several times: what changes nothing is.
        if !named.iter().any(|(other, _)| *other == name) {
            named.push((name, Arc::clone(tree)));
        }
    }
    let failed = |error: Error| error.to_string();
    // Higher layers may have closed folders of lower ones, or have removed what nobody was to see.
    let beside = Beside { name: LAYERS, tree: Arc::new(Subvolumes::new(named).map_err(failed)?.for_owner()) };
    Ok((Arc::new(UnionTree::of_layers(trees, beside, image.created, how).map_err(failed)?), damage))
}

/// The layers in an archive.
struct Layers<'a> {
    archive: &'a OpenArchive,
    tree: Arc<dyn Tree>,
    /// By their paths: many images may have the same ones.
    found: HashMap<Arc<str>, Result<Found, String>>,
    damages: Damages<'a>,
}

/// One layer.
#[derive(Clone)]
struct Found {
    tree: Arc<dyn Tree>,
    /// What is wrong with it, so that nobody knows all the names that it has. Each of them is perhaps one that lower
    /// layers have, too, or that it removes.
    damage: Option<String>,
    /// Bytes of its file, if that is known.
    length: Option<u64>,
}

impl<'a> Layers<'a> {
    fn of(archive: &'a OpenArchive) -> Self {
        let tree = Arc::clone(&archive.tree) as Arc<dyn Tree>;
        Self { archive, tree, found: HashMap::new(), damages: Damages::of(archive) }
    }

    /// One of them, or what is wrong with it.
    fn get(&mut self, layer: &Layer) -> Result<Found, String> {
        if let Some(found) = self.found.get(&layer.path) {
            return found.clone();
        }
        let found = self.look_for(layer);
        self.found.insert(Arc::clone(&layer.path), found.clone());
        found
    }

    fn look_for(&self, layer: &Layer) -> Result<Found, String> {
        let path = layer.path.as_bytes();
        let at_path = match path::find(&*self.tree, path, true) {
            Ok(found) => Some(found),
            Err(Error::NotFound | Error::NotAFolder) => None,
            Err(error) => return Err(format!("cannot be read: {error}")),
        };
        let file = at_path.as_ref().and_then(|found| self.file_of(found));
        let length = file.as_ref().map(|file| file.size);
        if let Some(is_told) = file.as_ref().and_then(|file| is_empty_archive(&*self.tree, file, &layer.digest)) {
            return empty(is_told, length);
        }
        // A link leads to the file, and then the folder has a name like that of the file.
        let target = at_path.as_ref().and_then(|found| self.tree.path_of(found.node));
        let names = spellings_in(self.archive);
        for path in spellings(path, names).chain(target.iter().flat_map(|target| spellings(target, names))) {
            let folder = match path::find(&*self.tree, path, true) {
                Ok(folder) if folder.kind == Kind::Folder => folder,
                Ok(_) | Err(Error::NotFound | Error::NotAFolder) => continue,
                Err(error) => return Err(format!("cannot be read: {error}")),
            };
            // Another folder of such a name is none of its.
            if at_path.as_ref().is_some_and(|found| found.kind == Kind::File && !self.is_archive_in(found, &folder)) {
                continue;
            }
            let tree = Subdirectory::new(Arc::clone(&self.tree), path);
            let tree = tree.map_err(|error| format!("cannot be read: {error}"))?;
            if let Some(is_told) = is_empty_file_in(&tree, path, &*self.tree, file.as_ref(), &layer.digest) {
                return empty(is_told, length);
            }
            let of_file = file.as_ref().map(|file| self.damages.of_file(file.node)).transpose()?.flatten();
            let damage = of_file.or_else(|| self.damages.of_layer(&tree, layer.path.as_bytes()));
            return Ok(Found { tree: Arc::new(tree), damage, length });
        }
        let is_there = at_path.is_some();
        Err(if is_there { "is no archive that can be read" } else { "is not in the archive" }.to_owned())
    }

    /// The file that the archive is whose folder is `found`, or `found` if that is one.
    fn file_of(&self, found: &Attributes) -> Option<Attributes> {
        if found.kind != Kind::Folder {
            return Some(found.clone()).filter(|found| found.kind == Kind::File);
        }
        let path = self.tree.path_of(found.node)?;
        let name = path.rsplit(|&byte| byte == b'/').next()?;
        let mut file = None;
        let receive = &mut |version: Attributes| {
            file = Some(version).filter(|version| version.kind == Kind::File).or(file.take());
            true
        };
        self.tree.each_version(self.tree.parent(found.node).ok()?, name, 0, receive).ok()?;
        file
    }

    /// True if `folder` shows what is in the archive `file`: it begins where the content of that does.
    fn is_archive_in(&self, file: &Attributes, folder: &Attributes) -> bool {
        let stored = |node| self.archive.tree.stored(node).ok();
        let (Some(file), Some(folder)) = (stored(file.node), stored(folder.node)) else { return false };
        !file.is_plain || (file.stream, Some(file.place)) == (folder.stream, folder.header)
    }
}

/// A layer that changes nothing, if it is what its digest `is_told` to be.
fn empty(is_told: bool, length: Option<u64>) -> Result<Found, String> {
    let what = "there is nothing in it, and its digest is another one";
    let damage = (!is_told).then(|| what.to_owned());
    let empty = Subvolumes::new([]).map_err(|error| error.to_string())?;
    Ok(Found { tree: Arc::new(empty), damage, length })
}

/// What is known to be broken of an archive.
struct Damages<'a> {
    archive: &'a OpenArchive,
    /// What is wrong with the archives in it, by the paths of these.
    by_path: HashMap<Vec<u8>, &'a str>,
    /// Something that may concern any of them.
    of_any: Option<&'a str>,
}

impl<'a> Damages<'a> {
    fn of(archive: &'a OpenArchive) -> Self {
        let notes = &archive.index.summary().notes;
        let mut by_path = HashMap::new();
        for (_, what) in notes {
            // What is wrong with a file in one says nothing of other names.
            if let Some((path, _)) = what.split_once(": ") {
                by_path.entry(normal(path.as_bytes())).or_insert(what.as_str());
            }
        }
        let of_any = may_lack_notes(notes).then_some("more is damaged than is known");
        Self { archive, by_path, of_any }
    }

    /// What is wrong with the file that a layer is stored in: the archive may end before it does, between two entries
    /// of the layer.
    fn of_file(&self, file: Node) -> Result<Option<String>, String> {
        if self.archive.index.summary().notes.is_empty() {
            return Ok(None);
        }
        self.archive.tree.damage(file).map_err(|error| error.to_string())
    }

    /// What is wrong with the layer that is `tree`, and was looked for at `path`.
    fn of_layer(&self, tree: &Subdirectory, path: &[u8]) -> Option<String> {
        /// Bytes of a path that a note has for certain.
        const LONGEST: usize = 190;
        // Mostly there is none.
        if self.archive.index.summary().notes.is_empty() {
            return None;
        }
        if let Some(what) = self.of_any {
            return Some(what.to_owned());
        }
        let place = tree.place().unwrap_or_else(|| path.to_vec());
        for path in [path, &place] {
            let shown = name::excerpt(path).to_string();
            // Which note is about it cannot be told.
            if shown.len() > LONGEST || shown.contains(": ") {
                return self.by_path.values().next().map(|what| (*what).to_owned());
            }
            if let Some(what) = self.by_path.get(&normal(shown.as_bytes())) {
                return Some((*what).to_owned());
            }
            // Where its folder has a shorter name, that of the file is meant.
            let names = spellings_in(self.archive);
            let is_of = |file: &[u8]| spellings(file, names).skip(1).any(|short| short == place);
            if let Some((_, what)) = self.by_path.iter().find(|(file, _)| is_of(file)) {
                return Some((*what).to_owned());
            }
        }
        // It lies in what is damaged, or may do so.
        let summary = self.archive.index.summary();
        let length = summary.layers.last().map_or(summary.archive.length, |layer| layer.decoded_length);
        let stored =
            path::find(&*self.archive.tree, &place, true).and_then(|found| self.archive.tree.stored(found.node));
        let start = stored.ok().filter(|stored| stored.stream == 0).map_or(0, |stored| stored.place);
        match self.archive.index.damage_in(start..length) {
            Ok(damage) => damage.map(|damage| damage.what),
            Err(error) => Some(error.to_string()),
        }
    }
}

/// `path` without what has no meaning in it.
fn normal(path: &[u8]) -> Vec<u8> {
    let mut normal = Vec::with_capacity(path.len());
    for component in &name::components(path, &Limits::DEFAULT) {
        if !normal.is_empty() {
            normal.push(b'/');
        }
        normal.extend_from_slice(component);
    }
    normal
}

/// Names that a path has where folders of archives have theirs without extensions.
const SHORTER: usize = 3;

/// As how many names a path is looked for in `archive`.
fn spellings_in(archive: &OpenArchive) -> usize {
    let recursion = archive.index.summary().shape.recursion.as_ref();
    if recursion.is_some_and(|recursion| recursion.strip_extension) { SHORTER } else { 1 }
}

/// `path`, and what becomes of it where folders of archives have their names without extensions (`-s`): so many.
fn spellings(path: &[u8], most: usize) -> impl Iterator<Item = &[u8]> {
    fn shorter(path: &[u8]) -> Option<&[u8]> {
        let name = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let dot = path.iter().rposition(|&byte| byte == b'.').filter(|&dot| dot > name)?;
        path.get(..dot)
    }
    std::iter::successors(Some(path), |path| shorter(path)).take(most)
}

/// Whether `file`, an archive without members, has this `digest`: nothing but zeros, which is no archive of any format,
/// may also be what a crash has left of one. `None` if there is something in it.
fn is_empty_archive(tree: &dyn Tree, file: &Attributes, digest: &str) -> Option<bool> {
    let bytes = short_file(tree, file)?;
    let is_empty = bytes.len().is_multiple_of(512) && bytes.iter().all(|&byte| byte == 0);
    is_empty.then(|| containers::is_digest_of(digest, &bytes).unwrap_or(!bytes.is_empty()))
}

/// The same of a folder that shows what was compressed: one file of that name, of zeros. What is compressed is `file`.
fn is_empty_file_in(
    folder: &dyn Tree,
    path: &[u8],
    tree: &dyn Tree,
    file: Option<&Attributes>,
    digest: &str,
) -> Option<bool> {
    let mut children = Vec::new();
    let listed = folder.read_dir(Node::ROOT, 0, &mut |child| {
        children.push((child.name.to_vec(), child.attributes));
        children.len() < 2
    });
    listed.ok()?;
    let own = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let [(name, attributes)] = children.as_slice() else { return None };
    if !spellings(own, SHORTER).any(|own| own == name) {
        return None;
    }
    let is_told = is_empty_archive(folder, attributes, digest)?;
    // The digest is that of what it is unpacked, or of what is stored.
    let stored = || file.and_then(|file| short_file(tree, file));
    Some(is_told || stored().is_some_and(|bytes| containers::is_digest_of(digest, &bytes) == Some(true)))
}

/// What is in `file`, if that is no more than a layer that changes nothing has.
fn short_file(tree: &dyn Tree, file: &Attributes) -> Option<Vec<u8>> {
    if file.kind != Kind::File || file.size > LONGEST_EMPTY {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(file.size).ok()?];
    tree.open(file.node).ok()?.read_exact_at(&mut bytes, 0).ok()?;
    Some(bytes)
}

/// A layout that is a folder.
pub(crate) struct Layout {
    /// The archive that it is read as.
    pub(crate) location: Location,
    /// Device and number of the folder.
    pub(crate) folder: (u64, u64),
}

/// The layout in `folder` as an archive of its documents and of the layers that are wanted; `None` if it is none.
pub(crate) fn layout(folder: &Path, wanted: &Wanted) -> Result<Option<Layout>, Problem> {
    // Who shows the folder says why it cannot be opened.
    let Ok(members) = InFolder::new(folder) else { return Ok(None) };
    let shown = folder.display();
    let found = match containers::images(&members) {
        Ok(Some(found)) if !found.images.is_empty() => found,
        Ok(found) => {
            found.into_iter().flat_map(|found| found.notes).for_each(|note| log::warn!("{shown}: {note}"));
            return Ok(None);
        }
        Err(error) => {
            log::warn!("{shown}: shown as the folder that it is: its images cannot be read: {error}");
            return Ok(None);
        }
    };
    let images = containers::chosen(found.images, wanted.platform.as_ref())
        .map_err(|what| Problem::Option(format!("{}: {what}", Setting::Platform)))?;
    let mut paths = members.read.take();
    paths.extend(images.into_iter().flat_map(|image| image.layers).map(|layer| layer.path.to_string()));
    if paths.len() > MOST_FILES {
        let what =
            format!("shown as the folder that it is: its images have {} files, more than {MOST_FILES}", paths.len());
        log::warn!("{shown}: {what}");
        return Ok(None);
    }
    let mut parts: Vec<SharedSource> = Vec::new();
    let (mut owner, mut modified, mut identity) = (None, i64::MIN, Some(0));
    for path in paths {
        let file = members.open(&path).and_then(|file| file.ok_or_else(|| io::ErrorKind::NotFound.into()));
        let file = file.and_then(|file| FileSource::from_file(file, members.folder.join(&path)));
        let file = file.map_err(Problem::CannotOpen)?;
        let facts = FileFacts::of(&file).map_err(Problem::CannotOpen)?;
        file.watch(Fingerprint::of(&file).map_err(|error| Problem::Read { offset: 0, error })?);
        let mtime = u64::try_from(facts.mtime().seconds).unwrap_or(0);
        let Some(header) = containers::header(&path, file.len(), mtime) else { return Ok(None) };
        let padding = file.len().next_multiple_of(512) - file.len();
        owner = Some(owner.map_or(facts.owner, |owner| joined_owner(owner, facts.owner)));
        modified = modified.max(facts.modified);
        identity = open::joined_identity(identity, facts.identity);
        let name = format!("{shown}/{path}");
        parts.push(Arc::new(MemorySource::new(header, name.clone())));
        parts.push(Arc::new(file));
        parts.push(Arc::new(MemorySource::new(vec![0; padding as usize], name)));
    }
    parts.push(Arc::new(MemorySource::new(vec![0; 1024], "the end")));
    let Some(owner) = owner else { return Ok(None) };
    let source = Joined::new(parts, shown.to_string()).map_err(Problem::CannotOpen)?;
    // Beside the folder, not in it: it belongs to those who check what is in it.
    let path = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let facts = FileFacts { owner, modified, identity };
    let identity = fstat(&members.root).map_err(|error| Problem::CannotOpen(error.into()))?;
    let location = Location::Source { source: Arc::new(source), facts, path };
    Ok(Some(Layout { location, folder: (identity.st_dev, identity.st_ino) }))
}
