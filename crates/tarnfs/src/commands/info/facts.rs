//! What is known of an archive, gathered from its index, from the headers of its layers, and from what is kept of it.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tarnfs_codec::{Codec, Outline, Pace};
use tarnfs_format::{Format, Reader};
use tarnfs_index::{STORED_IN_PIECES, SeekPoints};
use tarnfs_source::Cancel;
use tarnfs_tree::open::{CHEAP_TO_READ, IndexPlace, Kept, OpenArchive, Options};
use tarnfs_tree::{Census, DamagedFiles, LockedFiles, Method};

use crate::exit::Failure;
use crate::inside;

/// Nested streams whose seek points are counted.
const MOST_NESTED: usize = 1000;

/// Codecs of them that are told apart: there are fewer.
const MOST_CODECS: usize = 100;

/// All of it.
pub(super) struct Facts<'a> {
    pub(super) path: &'a Path,
    pub(super) opened: &'a OpenArchive,
    /// `None` of a single file that is compressed, and of what is compressed again.
    pub(super) format: Option<&'static dyn Format>,
    pub(super) is_single_file: bool,
    pub(super) census: Census,
    pub(super) layers: Vec<Layer>,
    /// Compressed files in it whose content is shown, by their codec.
    pub(super) nested: Vec<Nested>,
    /// What is encrypted.
    pub(super) locked: Option<LockedFiles>,
    /// Files that are known to be damaged; `None` where nobody has looked.
    pub(super) damaged: Option<DamagedFiles>,
    pub(super) index: IndexFile,
    /// Decoded pieces on disk.
    pub(super) cache: Option<Kept>,
    /// Seek points of members on disk.
    pub(super) members: Option<Kept>,
    /// Archives in it show as folders. The index may have been made so, and serve a call without that.
    pub(super) looks_into_archives: bool,
    /// It is joined from several files.
    pub(super) is_split: bool,
    /// Bytes of memory for all that is decoded.
    pub(super) memory: u64,
}

/// A layer of compression around the archive.
pub(super) struct Layer {
    pub(super) codec: &'static dyn Codec,
    pub(super) compressed: u64,
    pub(super) decoded: u64,
    pub(super) outline: Option<Outline>,
    pub(super) points: SeekPoints,
}

/// Compressed files in the archive.
pub(super) struct Nested {
    /// The name of their codec; `None` of archives that are members of a zip and the like.
    pub(super) codec: Option<String>,
    pub(super) streams: u64,
    pub(super) compressed: u64,
    pub(super) decoded: u64,
    /// Decoded bytes between two seek points at most, as far as they were counted.
    pub(super) longest: u64,
}

/// Where the index is.
pub(super) struct IndexFile {
    pub(super) state: IndexState,
    /// Its length.
    pub(super) bytes: u64,
}

/// What an index is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IndexState {
    /// It was there, and belongs to the archive.
    Used,
    /// It was made by this call.
    Made,
    /// It is one of ratarmount.
    Sidecar,
    /// The archive has a directory of its own, which takes its place.
    NotNeeded,
    /// The archive is read within a moment.
    TooSmall,
    /// There is to be none.
    InMemory,
    /// There is none for another reason: a password, a folder that cannot be written.
    NotKept,
}

/// How long it takes to get at a byte at a random place.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Way {
    /// Decoded bytes before it, on average and at most.
    pub(super) mean: f64,
    pub(super) most: u64,
    /// How long that takes, in milliseconds on an ordinary processor.
    pub(super) mean_time: f64,
    pub(super) most_time: f64,
}

impl Way {
    /// True if the engine takes that for slow.
    pub(super) fn is_slow(&self) -> bool {
        self.mean_time >= tarnfs_codec::engine::SLOW_MILLISECONDS as f64
    }
}

impl Layer {
    pub(super) fn way(&self) -> Way {
        let pace = self.codec.pace();
        let mean = self.points.mean_way() * if pace.in_whole_chunks { 2.0 } else { 1.0 };
        let most = self.points.longest;
        Way { mean, most, mean_time: pace.milliseconds(mean as u64), most_time: pace.milliseconds(most) }
    }

    /// Decoded bytes from one seek point to the next, on average.
    pub(super) fn apart(&self) -> u64 {
        self.points.decoded.checked_div(self.points.count).unwrap_or_default()
    }
}

/// Decodes what one step undoes: how fast, and from where.
pub(super) fn pace_of_step(step: &str) -> Pace {
    let of_block = tarnfs_codec::block_coder_by_name(step).map(tarnfs_codec::BlockCoder::pace);
    of_block.or_else(|| tarnfs_codec::coder_by_name(step).map(Codec::pace)).unwrap_or_default()
}

/// How a file is got at that is stored by such a method, when it is read for the first time.
pub(super) fn way_of(method: &Method) -> Way {
    if method.steps.is_empty() {
        return Way::default();
    }
    let time = |bytes: f64| method.steps.iter().map(|step| pace_of_step(step).milliseconds(bytes as u64)).sum();
    let (mean, most) = (method.mean_way(), method.longest);
    Way { mean, most, mean_time: time(mean), most_time: time(most as f64) }
}

impl<'a> Facts<'a> {
    pub(super) fn of(path: &'a Path, opened: &'a OpenArchive, options: &Options) -> Result<Self, Failure> {
        let cancel = &options.cancel;
        let failed = |error: tarnfs_tree::Error| inside::failure(path, b"", &error);
        let summary = opened.index.summary();
        let census = opened.tree.census(cancel).map_err(failed)?;
        let layers = layers(opened, cancel).map_err(failed)?;
        let nested = nested(opened).map_err(failed)?;
        let locked = opened.tree.locked(cancel).map_err(failed)?;
        // Where files have their own way to be stored, all of them would be read.
        let is_told_by_index = opened.tree.may_be_damaged() && census.methods.is_empty();
        let damaged = is_told_by_index.then(|| opened.tree.damaged(0, cancel)).transpose().map_err(failed)?;
        let decoded = options.decoding.decoded_cache.as_ref();
        let codec = layers.first().map(|layer| layer.codec.name());
        let cache = decoded.zip(codec).and_then(|(cache, codec)| cache.kept(opened.kept_as?, codec));
        let members = decoded.filter(|_| !census.methods.is_empty());
        let members = members.and_then(|cache| cache.kept_of_members(opened.kept_as?));
        let is_index = opened.index_path.as_deref() == Some(path);
        Ok(Self {
            path,
            opened,
            format: tarnfs_format::by_name(&summary.format),
            is_single_file: opened.is_single_file().map_err(|error| failed(error.into()))?,
            census,
            layers,
            nested,
            locked,
            damaged,
            index: index_file(opened, options),
            cache,
            members,
            looks_into_archives: options.shape.recursion.is_some(),
            is_split: !is_index
                && fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() != summary.archive.length),
            memory: options.decoding.cache.budget().limit() as u64,
        })
    }

    /// Bytes of its file, or files.
    pub(super) fn size(&self) -> u64 {
        self.opened.index.summary().archive.length
    }

    /// True if it has a directory of its own.
    pub(super) fn has_directory(&self) -> bool {
        self.format.is_some_and(|format| matches!(format.reader(), Reader::Random(_)))
    }

    /// The part of the outermost layer that lies decoded on disk.
    pub(super) fn share_kept(&self) -> f64 {
        match (&self.cache, self.layers.first()) {
            (Some(kept), Some(layer)) if layer.decoded > 0 => kept.decoded as f64 / layer.decoded as f64,
            _ => 0.0,
        }
    }

    /// What reads at random places have to wait for, all layers and methods together: on average, in milliseconds.
    pub(super) fn mean_time(&self) -> f64 {
        let layers: f64 = self.layers.iter().map(|layer| layer.way().mean_time).sum();
        let bytes = self.census.methods.iter().map(|method| method.bytes as f64).sum::<f64>().max(1.0);
        let of_methods = |method: &Method| way_of(method).mean_time * method.bytes as f64 / bytes;
        layers + self.census.methods.iter().map(of_methods).sum::<f64>()
    }
}

fn layers(opened: &OpenArchive, cancel: &Cancel) -> Result<Vec<Layer>, tarnfs_tree::Error> {
    let summary = opened.index.summary();
    let mut compressed = summary.archive.length;
    let mut layers = Vec::new();
    for (number, layer) in summary.layers.iter().enumerate() {
        // One that is not known could not have been opened.
        let Some(codec) = tarnfs_codec::by_name(&layer.codec) else { continue };
        let points = Arc::clone(&opened.index).seek_points(number)?;
        let outline = match opened.inputs.get(number).map(|input| codec.outline(input, cancel)) {
            Some(Ok(outline)) => outline,
            Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => return Err(error.into()),
            // What cannot be read is told where it is decoded.
            Some(Err(error)) => {
                log::info!("layer {number}: {error}");
                None
            }
            None => None,
        };
        layers.push(Layer { codec, compressed, decoded: layer.decoded_length, outline, points });
        compressed = layer.decoded_length;
    }
    Ok(layers)
}

fn nested(opened: &OpenArchive) -> Result<Vec<Nested>, tarnfs_tree::Error> {
    let (mut kinds, mut numbers): (Vec<Nested>, Vec<(u32, usize)>) = Default::default();
    opened.index.each_nested(&mut |number, stream| {
        let codec = Some(stream.codec.as_str()).filter(|&codec| codec != STORED_IN_PIECES);
        let at = kinds.iter().position(|kind| kind.codec.as_deref() == codec).unwrap_or_else(|| {
            if kinds.len() < MOST_CODECS {
                let codec = codec.map(str::to_owned);
                kinds.push(Nested { codec, streams: 0, compressed: 0, decoded: 0, longest: 0 });
            }
            kinds.len() - 1
        });
        let Some(kind) = kinds.get_mut(at) else { return };
        kind.streams += 1;
        kind.compressed = kind.compressed.saturating_add(stream.length);
        kind.decoded = kind.decoded.saturating_add(stream.decoded_length);
        if kind.codec.is_some() && numbers.len() < MOST_NESTED {
            numbers.push((number, at));
        }
    })?;
    for (number, at) in numbers {
        let points = Arc::clone(&opened.index).seek_points(number as usize)?;
        if let Some(kind) = kinds.get_mut(at) {
            kind.longest = kind.longest.max(points.longest);
        }
    }
    kinds.sort_by(|one, other| other.decoded.cmp(&one.decoded).then_with(|| one.codec.cmp(&other.codec)));
    Ok(kinds)
}

fn index_file(opened: &OpenArchive, options: &Options) -> IndexFile {
    let bytes = opened.index_path.as_ref().and_then(|path| fs::metadata(path).ok()).map_or(0, |found| found.len());
    let summary = opened.index.summary();
    let entries = summary.files.saturating_add(summary.folders);
    let is_small = summary.archive.length < CHEAP_TO_READ && entries < options.index.minimum_file_count;
    let state = match &opened.index_path {
        Some(_) if opened.is_sidecar => IndexState::Sidecar,
        Some(_) if opened.is_new => IndexState::Made,
        Some(_) => IndexState::Used,
        None if options.index.place == IndexPlace::Memory => IndexState::InMemory,
        None if opened.encrypts_files() && summary.layers.is_empty() && summary.shape.recursion.is_none() => {
            IndexState::NotNeeded
        }
        None if is_small => IndexState::TooSmall,
        None => IndexState::NotKept,
    };
    IndexFile { state, bytes }
}
