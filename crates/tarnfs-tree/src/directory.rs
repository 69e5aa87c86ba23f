//! Directories that are coded as the files of their archive are: decoded in memory, while the archive is read.

use std::io;
use std::sync::Arc;

use tarnfs_codec::engine::Indexing;
use tarnfs_codec::{Codec, CoderContext, coder_by_name};
use tarnfs_format::{Coder, Decode, Step};
use tarnfs_source::{MemorySource, SharedSource, Source};

use crate::open::Options;

/// What decodes the directory of an archive that is opened with `options`.
pub(crate) fn decode(options: &Options) -> Decode {
    let codec_options = tarnfs_codec::Options {
        limits: options.limits,
        dictionaries: options.dictionaries.clone(),
        scratch: options.scratch.clone(),
        cancel: options.cancel.clone(),
        ..tarnfs_codec::Options::default()
    };
    Decode::new(move |coder, stored, length| decoded(coder, stored, length, &codec_options))
}

fn decoded(coder: &Coder, stored: SharedSource, length: u64, options: &tarnfs_codec::Options) -> io::Result<Vec<u8>> {
    let mut source = stored;
    for (number, step) in coder.steps.iter().enumerate() {
        let codec = coder_by_name(&step.codec).ok_or_else(|| {
            let what = format!("it is stored with {}, which tarnfs cannot read yet", step.codec);
            io::Error::new(io::ErrorKind::Unsupported, what)
        })?;
        let is_last = coder.steps.get(number + 1..).unwrap_or_default().iter().all(keeps_length);
        let options = tarnfs_codec::Options {
            coder: CoderContext {
                properties: step.properties.as_slice().into(),
                decoded_length: is_last.then_some(length),
                ..options.coder.clone()
            },
            ..options.clone()
        };
        source = match codec.random_access(&source, &options.coder)? {
            Some(decoded) => decoded,
            None => Arc::new(MemorySource::new(all(codec, source, length, &options)?, "the directory")),
        };
    }
    let mut bytes = vec![0; length.min(source.len()) as usize];
    source.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// As many bytes come out of a filter as go in.
fn keeps_length(step: &Step) -> bool {
    step.codec == "delta" || step.codec.starts_with("bcj-")
}

/// All that `codec` gives, up to `length` bytes.
fn all(
    codec: &'static dyn Codec,
    source: SharedSource,
    length: u64,
    options: &tarnfs_codec::Options,
) -> io::Result<Vec<u8>> {
    const STEP: usize = 128 << 10;
    let mut indexing = Indexing::new(codec, source, options)?;
    let (mut bytes, mut chunks, mut damage) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let filled = bytes.len();
        bytes.resize(filled + STEP, 0);
        let read = indexing.read(&mut bytes[filled..])?;
        bytes.truncate(filled + read);
        // Nobody comes back to them.
        indexing.take_chunks(&mut chunks);
        chunks.clear();
        indexing.take_damage(&mut damage);
        if let Some(damage) = damage.first() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, damage.what.clone()));
        }
        if bytes.len() as u64 > length {
            let what = format!("more comes out of it than the {length} bytes that the archive says");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        if read == 0 {
            return Ok(bytes);
        }
    }
}
