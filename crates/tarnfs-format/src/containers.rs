//! Container images: which files of an archive are their layers, and in which order they lie over each other.
//!
//! Two layouts are known, and a file may be both. In that of the Open Container Initiative
//! (<https://github.com/opencontainers/image-spec/blob/main/image-layout.md>), `index.json` leads to manifests, these
//! lead to layers, and each file is named by its digest. In that of `docker save`
//! (<https://github.com/moby/docker-image-spec/blob/main/spec.md#combined-image-json--filesystem-changeset-format>),
//! `manifest.json` is a list of images with their layers.
//!
//! Nothing is taken for an image that merely has such a name: the documents must lead to a configuration that counts as
//! many layers as there are. Documents that are named by a digest are compared with it.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;

use serde::Deserialize;
use sha2::{Digest as _, Sha256, Sha512};
use tarnfs_source::{Cancel, MemorySource};

use crate::name::{components, excerpt};
use crate::time::internet_date;
use crate::{Event, Options, Probe, SourceStream, Time, detect};

/// Bytes of one document, as registries take them.
pub const MOST_BYTES: u64 = 4 << 20;

/// Bytes of all documents of an archive.
const MOST_OF_ALL: u64 = 64 << 20;

/// Documents that are read of one archive: what a few bytes say may name the same one over and over.
const MOST_DOCUMENTS: usize = 4096;

/// Bytes of a layer that are hashed together.
const HASHED_AT_ONCE: usize = 256 << 10;

/// Layers of one image. Docker builds no more than 127.
const MOST_LAYERS: usize = 1024;

/// Layers of all images of an archive: each is looked for, and a few bytes can name one over and over.
const MOST_LAYERS_OF_ALL: usize = 65_536;

/// Names of one image, and bytes of each: with a tag, Docker allows 384. Any number of images may have the same ones.
const MOST_NAMES: usize = 1024;
const LONGEST_NAME: usize = 512;

/// Names of all images of an archive: each becomes a folder, and a few bytes can give the same ones to many.
const MOST_NAMES_OF_ALL: usize = 16_384;

/// Indexes inside each other.
const MOST_DEPTH: u32 = 4;

/// The documents of an OCI layout, and the one of `docker save`.
const OCI_LAYOUT: &str = "oci-layout";
const OCI_INDEX: &str = "index.json";
const DOCKER_MANIFEST: &str = "manifest.json";

/// The files of a folder with images that lead to all else: others images, and these are others.
pub const DOCUMENTS: [&str; 3] = [OCI_LAYOUT, OCI_INDEX, DOCKER_MANIFEST];

/// Files that an archive with images holds.
pub trait Members {
    /// The content of the file at `path`, where links are followed; `None` if there is no file, or it is longer than
    /// `most` bytes.
    fn read(&self, path: &str, most: u64) -> io::Result<Option<Vec<u8>>>;

    /// True if there is something at `path`. An error if so much was looked for that it is not looked for any more.
    fn has(&self, path: &str) -> io::Result<bool>;
}

/// What an image is made for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Platform {
    /// "linux", as Go names it.
    pub os: String,
    /// "amd64", as Go names it.
    pub architecture: String,
    /// "v7", where the architecture alone does not say enough.
    pub variant: Option<String>,
}

impl Platform {
    /// What this program runs on.
    pub fn of_this_machine() -> Self {
        Self::new("linux", std::env::consts::ARCH, None)
    }

    fn new(os: &str, architecture: &str, variant: Option<&str>) -> Self {
        let architecture = architecture.to_ascii_lowercase();
        let architecture = match architecture.as_str() {
            "x86_64" | "x86-64" => "amd64",
            "aarch64" => "arm64",
            "x86" | "i386" | "i686" => "386",
            "powerpc64le" => "ppc64le",
            "loongarch64" => "loong64",
            other => other,
        };
        let variant = variant.filter(|variant| !variant.is_empty()).map(str::to_ascii_lowercase);
        Self { os: os.to_ascii_lowercase(), architecture: architecture.to_owned(), variant }
    }

    /// True if who asks for this may get `image`. A variant that is not said is any.
    pub fn takes(&self, image: &Self) -> bool {
        // What a variant is where none is said (containerd's platforms package).
        let usual = |platform: &Self| match (&platform.variant, platform.architecture.as_str()) {
            (Some(variant), _) => Some(variant.clone()),
            (None, "arm64") => Some("v8".to_owned()),
            (None, "arm") => Some("v7".to_owned()),
            (None, "amd64") => Some("v1".to_owned()),
            _ => None,
        };
        self.os == image.os
            && self.architecture == image.architecture
            && (self.variant.is_none() || usual(self) == usual(image))
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |text: &str| excerpt(text.as_bytes()).to_string();
        write!(formatter, "{}/{}", shown(&self.os), shown(&self.architecture))?;
        self.variant.as_ref().map_or(Ok(()), |variant| write!(formatter, "/{}", shown(variant)))
    }
}

/// `OS/ARCHITECTURE` or `OS/ARCHITECTURE/VARIANT`.
impl FromStr for Platform {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        match *parts.as_slice() {
            _ if parts.iter().any(|part| part.is_empty()) => {}
            [os, architecture] => return Ok(Self::new(os, architecture, None)),
            [os, architecture, variant] => return Ok(Self::new(os, architecture, Some(variant))),
            _ => {}
        }
        Err(format!("{text}: a platform is OS/ARCHITECTURE or OS/ARCHITECTURE/VARIANT, as linux/arm64 or linux/arm/v7"))
    }
}

/// One layer of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// "sha256:...": of the layer as it is stored, or, where nothing says that, of what it is unpacked.
    pub digest: String,
    /// Which file holds it. Any number of layers may have the same one.
    pub path: Arc<str>,
    /// How long that is, if something says so.
    pub size: Option<u64>,
}

/// What people call an image. Those of one index have it together.
pub type Names = Arc<[String]>;

/// One image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// What people call it: "debian:12". Perhaps nothing.
    pub names: Names,
    /// The digest of its configuration, or the path of that: what it is called if it has no name.
    pub id: String,
    /// What it is made for.
    pub platform: Platform,
    /// When it was made.
    pub created: Option<Time>,
    /// Its layers, the lowest first.
    pub layers: Vec<Layer>,
    /// Images of the same group are one for several platforms.
    group: usize,
}

/// What the documents of an archive say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Images {
    /// The images.
    pub images: Vec<Image>,
    /// What cannot be shown, and why.
    pub notes: Vec<String>,
}

/// True if what begins with `head` (of what is compressed, what it becomes) may be an archive with images: its first
/// file has a name as only these have. To look for their documents may take a pass over all of it.
pub fn may_begin(head: &[u8]) -> bool {
    let Some(format) = detect(&Probe::of_head(head)) else { return false };
    let Some(format) = format.forwards() else { return false };
    let mut stream = SourceStream::new(Arc::new(MemorySource::new(head, "the head")), Cancel::default());
    let options = Options::default();
    let first = RefCell::new(None);
    // It ends at the first name, or where the head does.
    let _ = format.read(&mut stream, &options, &mut |event, _| {
        let Event::Entry(entry) = event else { return Ok(()) };
        let path = components(&entry.path, &options.limits);
        let mut path = path.iter();
        let Some(component) = path.next() else { return Ok(()) };
        *first.borrow_mut() = Some(component.to_vec());
        Err(io::ErrorKind::Interrupted.into())
    });
    let first = first.into_inner();
    first.is_some_and(|name| {
        let documents = [OCI_LAYOUT, OCI_INDEX, DOCKER_MANIFEST, "blobs", "repositories", "config.json"];
        documents.iter().any(|document| document.as_bytes() == name) || is_named_by_digest(&name)
    })
}

/// True of 64 digits, perhaps with "sha256:" before them and an extension behind.
fn is_named_by_digest(name: &[u8]) -> bool {
    let digits = name.strip_prefix(b"sha256:").unwrap_or(name);
    let (digits, rest) = digits.split_at_checked(64).unwrap_or_default();
    !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit) && matches!(rest.first(), None | Some(b'.'))
}

/// The header of a file in an archive (POSIX ustar): a layout that is a folder is read as the archive of it. `None` if
/// the path or the size does not fit.
pub fn header(path: &str, size: u64, mtime: u64) -> Option<[u8; 512]> {
    let mut header = [0; 512];
    let mut put = |at: usize, text: &[u8]| -> Option<()> {
        header.get_mut(at..at.checked_add(text.len())?)?.copy_from_slice(text);
        Some(())
    };
    if path.len() > 100 {
        return None;
    }
    put(0, path.as_bytes())?;
    for (at, number) in [(100, 0o444), (108, 0), (116, 0)] {
        put(at, format!("{number:07o}").as_bytes())?;
    }
    // In base 256 where it does not fit in octal digits (GNU tar, star).
    match format!("{size:011o}") {
        digits if digits.len() == 11 => put(124, digits.as_bytes())?,
        _ => {
            put(124, &[0x80])?;
            put(128, &size.to_be_bytes())?;
        }
    }
    put(136, format!("{:011o}", mtime.min((1 << 33) - 1)).as_bytes())?;
    put(148, b"        ")?;
    put(156, b"0")?;
    put(257, b"ustar\x0000")?;
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).fold(0, u32::saturating_add);
    header.get_mut(148..156)?.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Some(header)
}

/// The images in an archive, or in a folder. `None` if it is none of such; an error if that can not be read.
pub fn images(members: &dyn Members) -> io::Result<Option<Images>> {
    let (found, seen, are_there) = Default::default();
    let (left, bytes, layers) = (MOST_DOCUMENTS, MOST_OF_ALL, MOST_LAYERS_OF_ALL);
    let mut reading = Reading { members, left, bytes, layers, found, seen, are_there };
    let docker = reading.docker()?;
    let is_oci = reading.oci()?;
    let mut found = reading.found;
    if !is_oci || found.images.is_empty() {
        let Some(docker) = docker else {
            // What cannot be shown is told, also if there is nothing else.
            return Ok((is_oci || !found.notes.is_empty()).then_some(found));
        };
        found.images = docker;
        found.bound_names();
        return Ok(Some(found));
    }
    // People know the names that `docker save` gives; its other document has longer ones.
    let names: HashMap<String, Names> = docker
        .into_iter()
        .flatten()
        .filter(|image| !image.names.is_empty())
        .map(|image| (image.id, image.names))
        .collect();
    for image in &mut found.images {
        if let Some(names) = names.get(&image.id) {
            image.names = Arc::clone(names);
        }
    }
    found.bound_names();
    Ok(Some(found))
}

impl Images {
    /// Leaves out images that have more names than are shown of all together.
    fn bound_names(&mut self) {
        let mut left = MOST_NAMES_OF_ALL;
        let count = self.images.len();
        self.images.retain(|image| {
            let rest = left.checked_sub(image.names.len().max(1));
            left = rest.unwrap_or(left);
            rest.is_some()
        });
        if self.images.len() < count {
            self.notes.push(format!("images of more than {MOST_NAMES_OF_ALL} names together: not all are shown"));
        }
    }
}

/// Of each group the image for `wanted`; if that is not said, for this machine, or else the first. An error says which
/// platforms there are, where none is the one that is wanted.
pub fn chosen(images: Vec<Image>, wanted: Option<&Platform>) -> Result<Vec<Image>, String> {
    let host = Platform::of_this_machine();
    let mut groups: Vec<(usize, Vec<Image>)> = Vec::new();
    for image in images {
        match groups.iter_mut().find(|(group, _)| *group == image.group) {
            Some((_, of_group)) => of_group.push(image),
            None => groups.push((image.group, vec![image])),
        }
    }
    let mut there: Vec<String> = Vec::new();
    let mut chosen = Vec::new();
    for (_, mut group) in groups {
        for image in &group {
            let shown = image.platform.to_string();
            if there.len() < 32 && !there.contains(&shown) {
                there.push(shown);
            }
        }
        let place = match wanted {
            Some(wanted) => group.iter().position(|image| wanted.takes(&image.platform)),
            None => Some(group.iter().position(|image| host.takes(&image.platform)).unwrap_or(0)),
        };
        chosen.extend(place.map(|place| group.swap_remove(place)));
    }
    match wanted {
        Some(wanted) if chosen.is_empty() => {
            Err(format!("there is no image for {wanted}, but for {}", there.join(", ")))
        }
        _ => Ok(chosen),
    }
}

/// What was found so far, and what may still be read.
struct Reading<'m> {
    members: &'m dyn Members,
    left: usize,
    bytes: u64,
    layers: usize,
    found: Images,
    /// Manifests by digest and names: an archive may name one twice.
    seen: HashSet<(String, Names)>,
    /// Paths of layers, and whether something is there: images share layers, and to look for one takes a while.
    are_there: HashMap<Arc<str>, bool>,
}

/// A thing that is named by its digest.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    digest: String,
    #[serde(default)]
    size: Option<i64>,
    #[serde(default)]
    annotations: Option<HashMap<String, String>>,
    #[serde(default)]
    platform: Option<Target>,
}

#[derive(Debug, Clone, Deserialize)]
struct Target {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    variant: Option<String>,
}

impl Target {
    fn platform(&self) -> Platform {
        Platform::new(&self.os, &self.architecture, self.variant.as_deref())
    }
}

/// An index, which has manifests, or a manifest, which has layers.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    #[serde(default)]
    schema_version: u32,
    #[serde(default)]
    manifests: Option<Vec<Descriptor>>,
    #[serde(default)]
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Option<Vec<Descriptor>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Layout {
    image_layout_version: String,
}

#[derive(Debug, Deserialize)]
struct Config {
    #[serde(flatten)]
    target: Target,
    #[serde(default)]
    created: Option<String>,
    rootfs: RootFs,
}

#[derive(Debug, Deserialize)]
struct RootFs {
    r#type: String,
    #[serde(default)]
    diff_ids: Option<Vec<String>>,
}

impl Config {
    /// The digests of what its layers are unpacked; `None` of what is no configuration of an image.
    fn of(bytes: &[u8]) -> Option<(Self, Vec<String>)> {
        let mut config: Self = serde_json::from_slice(bytes).ok()?;
        let ids = config.rootfs.diff_ids.take().unwrap_or_default();
        let is_one = config.rootfs.r#type == "layers" && ids.len() <= MOST_LAYERS;
        (is_one && ids.iter().all(|id| blob(id).is_some())).then_some((config, ids))
    }

    fn created(&self) -> Option<Time> {
        internet_date(self.created.as_deref()?)
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Option<Vec<String>>,
}

impl Reading<'_> {
    fn document(&mut self, path: &str) -> io::Result<Option<Vec<u8>>> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let read = self.members.read(path, MOST_BYTES.min(self.bytes))?;
        self.bytes = self.bytes.saturating_sub(read.as_ref().map_or(0, |bytes| bytes.len() as u64));
        Ok(read)
    }

    fn note(&mut self, what: String) {
        if self.found.notes.len() < 16 {
            self.found.notes.push(what);
        }
    }

    /// The images of `docker save`; `None` if this is none.
    fn docker(&mut self) -> io::Result<Option<Vec<Image>>> {
        let Some(bytes) = self.document(DOCKER_MANIFEST)? else { return Ok(None) };
        let Ok(saved) = serde_json::from_slice::<Vec<Saved>>(&bytes) else { return Ok(None) };
        let mut images = Vec::new();
        for (group, saved) in saved.into_iter().enumerate() {
            let layers = saved.layers.unwrap_or_default();
            let are_inside = layers.iter().chain([&saved.config]).all(|path| is_inside(path));
            if !are_inside || layers.len() > MOST_LAYERS {
                return Ok(None);
            }
            let config = self.document(&saved.config)?;
            let Some((config, ids)) = config.as_deref().and_then(Config::of) else { return Ok(None) };
            if ids.len() != layers.len() {
                return Ok(None);
            }
            if !self.has_room_for(layers.len()) {
                break;
            }
            let layer = |(digest, path): (String, String)| Layer { digest, path: self.path(path), size: None };
            let layers: Vec<Layer> = ids.into_iter().zip(layers).map(layer).collect();
            let id = config_id(&saved.config);
            let names = bounded(saved.repo_tags.unwrap_or_default());
            let (platform, created) = (config.target.platform(), config.created());
            self.add(Image { names, id, platform, created, layers, group }, &mut images)?;
        }
        Ok((!images.is_empty()).then_some(images))
    }

    /// True if so many layers more may be looked for. Else that is told.
    fn has_room_for(&mut self, layers: usize) -> bool {
        let left = self.layers.checked_sub(layers);
        match left {
            Some(left) => self.layers = left,
            None => self.note(format!("images of more than {MOST_LAYERS_OF_ALL} layers together: not all are shown")),
        }
        left.is_some()
    }

    /// `path`, as others have it that were met before.
    fn path(&self, path: String) -> Arc<str> {
        self.are_there.get_key_value(path.as_str()).map_or_else(|| path.into(), |(known, _)| Arc::clone(known))
    }

    fn has(&mut self, path: &Arc<str>) -> io::Result<bool> {
        if let Some(is_there) = self.are_there.get(path) {
            return Ok(*is_there);
        }
        let is_there = self.members.has(path)?;
        self.are_there.insert(Arc::clone(path), is_there);
        Ok(is_there)
    }

    /// Adds `image`, if all of its layers are there.
    fn add(&mut self, image: Image, images: &mut Vec<Image>) -> io::Result<()> {
        let mut missing = None;
        for layer in &image.layers {
            if !self.has(&layer.path)? {
                missing = Some(layer);
                break;
            }
        }
        match missing {
            Some(layer) => {
                let (name, digest) = (image.names.first().unwrap_or(&image.id), excerpt(layer.digest.as_bytes()));
                let name = excerpt(name.as_bytes());
                self.note(format!("the image {name} cannot be shown: its layer {digest} is not in the archive"));
            }
            None => images.push(image),
        }
        Ok(())
    }

    /// Finds the images of an OCI layout. False if this is none.
    fn oci(&mut self) -> io::Result<bool> {
        let Some(layout) = self.document(OCI_LAYOUT)? else { return Ok(false) };
        let is_layout =
            serde_json::from_slice::<Layout>(&layout).is_ok_and(|layout| layout.image_layout_version.starts_with("1."));
        let Some(bytes) = self.document(OCI_INDEX)?.filter(|_| is_layout) else { return Ok(false) };
        let Ok(index) = serde_json::from_slice::<Manifest>(&bytes) else { return Ok(false) };
        let Some(manifests) = index.manifests.filter(|_| index.schema_version == 2) else { return Ok(false) };
        let mut images = Vec::new();
        // The last one of the first index comes last, so that it is taken last.
        let mut waiting: Vec<(Descriptor, Names, usize, u32)> = Vec::new();
        for (group, descriptor) in manifests.into_iter().enumerate().rev() {
            let names = names_of(&descriptor);
            waiting.push((descriptor, names, group, 0));
        }
        while let Some((descriptor, names, group, depth)) = waiting.pop() {
            let is_new = self.seen.insert((descriptor.digest.clone(), Arc::clone(&names)));
            if !is_new || self.left == 0 {
                continue;
            }
            let Some(manifest) = self.manifest(&descriptor)? else { continue };
            if let Some(mut manifests) = manifest.manifests {
                manifests.truncate(if depth < MOST_DEPTH { MOST_DOCUMENTS.saturating_sub(waiting.len()) } else { 0 });
                let depth = depth.saturating_add(1);
                waiting.extend(manifests.into_iter().rev().map(|below| (below, Arc::clone(&names), group, depth)));
                continue;
            }
            self.image(&descriptor, manifest, names, group, &mut images)?;
        }
        regroup(&mut images);
        self.found.images = images;
        Ok(true)
    }

    /// What `descriptor` leads to. `None` for what is not in the archive, and for what is said about images.
    fn manifest(&mut self, descriptor: &Descriptor) -> io::Result<Option<Manifest>> {
        let annotations = descriptor.annotations.as_ref();
        let is_about_one = annotations.is_some_and(|annotations| annotations.contains_key("vnd.docker.reference.type"));
        if is_about_one {
            return Ok(None);
        }
        let Some(bytes) = self.blob(&descriptor.digest)? else { return Ok(None) };
        let manifest = serde_json::from_slice(&bytes).ok();
        if manifest.is_none() {
            self.note(format!("{}: no manifest can be read in it", excerpt(descriptor.digest.as_bytes())));
        }
        Ok(manifest)
    }

    /// Adds the image that `manifest` describes to `images`.
    fn image(
        &mut self,
        descriptor: &Descriptor,
        manifest: Manifest,
        names: Names,
        group: usize,
        images: &mut Vec<Image>,
    ) -> io::Result<()> {
        let (Some(config), Some(layers)) = (manifest.config, manifest.layers) else { return Ok(()) };
        let Some(bytes) = self.blob(&config.digest)? else { return Ok(()) };
        // Charts and the like are stored the same way, and have no root file system.
        let Some((document, ids)) = Config::of(&bytes) else { return Ok(()) };
        let layers: Option<Vec<Layer>> = layers
            .into_iter()
            .map(|layer| {
                let (path, size) = (self.path(blob(&layer.digest)?), layer.size.and_then(|size| size.try_into().ok()));
                Some(Layer { digest: layer.digest, path, size })
            })
            .collect();
        let Some(layers) = layers.filter(|layers| layers.len() == ids.len()) else {
            let what = "its manifest and its configuration do not count the same layers";
            self.note(format!("the image {} cannot be shown: {what}", excerpt(descriptor.digest.as_bytes())));
            return Ok(());
        };
        if !self.has_room_for(layers.len()) {
            return Ok(());
        }
        let of_descriptor = descriptor.platform.as_ref().map(Target::platform).filter(|found| !found.os.is_empty());
        let platform = of_descriptor.unwrap_or_else(|| document.target.platform());
        let created = document.created();
        self.add(Image { names, id: config.digest, platform, created, layers, group }, images)
    }

    /// The document that is named by `digest`, if it is there. An error if it is another one.
    fn blob(&mut self, digest: &str) -> io::Result<Option<Vec<u8>>> {
        let Some(path) = blob(digest) else { return Ok(None) };
        let Some(bytes) = self.document(&path)? else { return Ok(None) };
        if is_digest_of(digest, &bytes) == Some(false) {
            let what = format!("{path}: it does not have the digest that is its name");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(Some(bytes))
    }
}

/// Whether `digest` is that of `bytes`; `None` if it is of another kind than are known here.
pub fn is_digest_of(digest: &str, bytes: &[u8]) -> Option<bool> {
    match digest.split_once(':')? {
        ("sha256", digits) => Some(hex(&Sha256::digest(bytes)) == digits),
        ("sha512", digits) => Some(hex(&Sha512::digest(bytes)) == digits),
        _ => None,
    }
}

/// Those of `digests` that are not those of the bytes which `read` gives, as a reader does. Kinds that are not known
/// here are none of them.
pub fn other_digests<'d>(
    digests: &[&'d str],
    read: &mut dyn FnMut(&mut [u8]) -> io::Result<usize>,
) -> io::Result<Vec<&'d str>> {
    let of_kind = |kind: &str| digests.iter().any(|digest| digest.starts_with(kind));
    let mut shorter = of_kind("sha256:").then(Sha256::new);
    let mut longer = of_kind("sha512:").then(Sha512::new);
    let mut bytes = vec![0; HASHED_AT_ONCE];
    while shorter.is_some() || longer.is_some() {
        let length = read(&mut bytes)?;
        let Some(got) = bytes.get(..length).filter(|got| !got.is_empty()) else { break };
        if let Some(hash) = &mut shorter {
            hash.update(got);
        }
        if let Some(hash) = &mut longer {
            hash.update(got);
        }
    }
    let right = [shorter.map(|hash| hex(&hash.finalize())), longer.map(|hash| hex(&hash.finalize()))];
    let is_other = |digest: &&str| match digest.split_once(':') {
        Some(("sha256", digits)) => right[0].as_deref() != Some(digits),
        Some(("sha512", digits)) => right[1].as_deref() != Some(digits),
        _ => false,
    };
    Ok(digests.iter().copied().filter(is_other).collect())
}

fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Images without a name that lie beside each other are one for several platforms, if these all differ; so are those of
/// one name. Each other one is an image of its own.
fn regroup(images: &mut [Image]) {
    let mut of_name: HashMap<Names, usize> = HashMap::new();
    let mut platforms = HashSet::new();
    let unnamed = || images.iter().filter(|image| image.names.is_empty());
    let do_differ = unnamed().all(|image| platforms.insert(image.platform.clone()));
    let first = unnamed().map(|image| image.group).min();
    for image in images.iter_mut() {
        image.group = match (image.names.is_empty(), do_differ, first) {
            (true, true, Some(first)) => first,
            (true, ..) => image.group,
            (false, ..) => *of_name.entry(image.names.clone()).or_insert(image.group),
        };
    }
}

/// What people call the image that `descriptor` leads to: by the annotations of containerd and of the specification.
fn names_of(descriptor: &Descriptor) -> Names {
    let annotations = descriptor.annotations.as_ref();
    let of = |key: &str| annotations.and_then(|annotations| annotations.get(key)).filter(|name| !name.is_empty());
    let name = of("io.containerd.image.name").or_else(|| of("org.opencontainers.image.ref.name"));
    bounded(name.cloned().into_iter().collect())
}

/// `names`, as many of them and as much of each as is kept.
fn bounded(mut names: Vec<String>) -> Names {
    names.truncate(MOST_NAMES);
    for name in &mut names {
        if name.len() > LONGEST_NAME {
            let end = (0..=LONGEST_NAME).rev().find(|&end| name.is_char_boundary(end));
            name.truncate(end.unwrap_or_default());
            name.shrink_to_fit();
        }
    }
    names.into()
}

/// Where the document or layer with this digest lies in an OCI layout; `None` if it is none, and might lead anywhere.
fn blob(digest: &str) -> Option<String> {
    let (algorithm, digits) = digest.split_once(':')?;
    let of_algorithm = |byte: u8| byte.is_ascii_alphanumeric() || b"+._-".contains(&byte);
    let of_digits = |byte: u8| byte.is_ascii_alphanumeric() || b"=_-".contains(&byte);
    let is_one = algorithm.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        && algorithm.bytes().all(of_algorithm)
        && (32..=256).contains(&digits.len())
        && digits.bytes().all(of_digits);
    is_one.then(|| format!("blobs/{algorithm}/{digits}"))
}

/// True of a path that leads to a file below.
fn is_inside(path: &str) -> bool {
    path.len() < 4096 && path.split('/').all(|component| !matches!(component, "" | "." | ".."))
}

/// The digest of a configuration, by the names that it has in archives of `docker save`.
fn config_id(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or_default();
    let name = name.strip_prefix("sha256:").unwrap_or(name);
    match name.split_at_checked(64) {
        Some((digits, _)) if is_named_by_digest(name.as_bytes()) => format!("sha256:{digits}"),
        _ => path.to_owned(),
    }
}
