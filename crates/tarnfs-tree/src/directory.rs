//! Directories that are coded as the files of their archive are: decoded in memory, while the archive is read.

use std::io;
use std::sync::Arc;

use tarnfs_codec::engine::Indexing;
use tarnfs_codec::{Codec, CoderContext, FirstPass, coder_by_name};
use tarnfs_format::{Coder, Decode, Step};
use tarnfs_source::{MemorySource, SharedSource};

use crate::build::is_damage;
use crate::chain::chain;
use crate::open::Options;
use crate::pieces::block_coder;

/// What decodes the directory of an archive that is opened with `options`. The first password that fits is taken.
pub(crate) fn decode(options: &Options) -> Decode {
    let passwords = options.decoding.passwords.clone();
    let options = tarnfs_codec::Options {
        limits: options.limits,
        dictionaries: options.decoding.dictionaries.clone(),
        scratch: options.decoding.scratch.clone(),
        cancel: options.cancel.clone(),
        ..tarnfs_codec::Options::default()
    };
    let (passwords_of_each, options_of_each) = (passwords.clone(), options.clone());
    Decode::new(move |coder, stored, length, is_right| {
        let mut result = decoded(None, coder, &stored, length, &options);
        for password in passwords.iter() {
            match &result {
                Ok(bytes) if is_right(bytes) => break,
                Err(error) if !(is_damage(error) || error.kind() == io::ErrorKind::PermissionDenied) => break,
                _ => result = decoded(Some(password), coder, &stored, length, &options),
            }
        }
        result
    })
    .with_blocks(|coder, stored, decoded| match block_coder(coder) {
        Some(coder) => coder.decode(stored, decoded),
        None => Err(io::ErrorKind::Unsupported.into()),
    })
    .with_each(move |step, stored, take| {
        let mut pass = pass_of(step, &stored, None, &options_of_each);
        for password in passwords_of_each.iter() {
            if !pass.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
                break;
            }
            pass = pass_of(step, &stored, Some(password), &options_of_each);
        }
        let (mut pass, mut buffer) = (pass?, vec![0; AT_ONCE]);
        loop {
            match pass.read(&mut buffer)? {
                0 => return Ok(()),
                read => take(buffer.get(..read).unwrap_or_default())?,
            }
        }
    })
}

/// Bytes that are decoded together where nobody knows how many there are.
const AT_ONCE: usize = 64 << 10;

/// What decodes `stored` as `step` says.
fn pass_of(
    step: &Step,
    stored: &SharedSource,
    password: Option<&Arc<[u8]>>,
    options: &tarnfs_codec::Options,
) -> io::Result<Box<dyn FirstPass>> {
    let what = || format!("it is stored with {}, which tarnfs cannot read yet", step.codec);
    let codec = coder_by_name(&step.codec).ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, what()))?;
    let (properties, password) = (step.properties.as_slice().into(), password.cloned());
    let coder = CoderContext { properties, password, cancel: options.cancel.clone(), ..CoderContext::default() };
    codec.first_pass(SharedSource::clone(stored), &tarnfs_codec::Options { coder, ..options.clone() })
}

fn decoded(
    password: Option<&Arc<[u8]>>,
    coder: &Coder,
    stored: &SharedSource,
    length: u64,
    options: &tarnfs_codec::Options,
) -> io::Result<Vec<u8>> {
    let mut done: Vec<SharedSource> = Vec::new();
    let links = chain(coder, password, stored.len(), length)?;
    for (number, link) in links.iter().enumerate() {
        let (source, coder) = link.input(stored, &done)?;
        // There may be many steps, of which each gives megabytes.
        let later = links.get(number..).unwrap_or_default();
        for (step, of_step) in done.iter_mut().enumerate() {
            if !later.iter().any(|link| link.takes(step)) {
                *of_step = Arc::new(MemorySource::new(Vec::new(), "the directory"));
            }
        }
        done.push(if let Some(decoded) = link.codec.random_access(&source, &coder)? {
            decoded
        } else {
            let options = tarnfs_codec::Options { coder, ..options.clone() };
            Arc::new(MemorySource::new(all(link.codec, source, link.decoded_length(), &options)?, "the directory"))
        });
    }
    let source = done.pop().unwrap_or_else(|| SharedSource::clone(stored));
    let mut bytes = vec![0; length.min(source.len()) as usize];
    source.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
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
