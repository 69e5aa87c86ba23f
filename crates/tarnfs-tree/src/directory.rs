//! Directories that are coded as the files of their archive are: decoded in memory, while the archive is read.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    let fitted = AtomicUsize::new(0);
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
    .with_each(move |step, stored, cancel, take| {
        let options = tarnfs_codec::Options { cancel: cancel.clone(), ..options_of_each.clone() };
        let open = |password: Option<&_>| pass_of(step, &stored, password, &options);
        let (mut pass, mut buffer) = (fitting(passwords_of_each.as_slice(), &fitted, open)?, vec![0; AT_ONCE]);
        loop {
            match pass.read(&mut buffer)? {
                0 => return Ok(()),
                read => take(buffer.get(..read).unwrap_or_default())?,
            }
        }
    })
}

/// What `open` makes without a password, or with the first that fits. `fitted` says which one did so last: there may be
/// many streams with one password, and each wrong one may take milliseconds.
fn fitting<T>(
    passwords: &[Arc<[u8]>],
    fitted: &AtomicUsize,
    mut open: impl FnMut(Option<&Arc<[u8]>>) -> io::Result<T>,
) -> io::Result<T> {
    let is_wrong =
        |result: &io::Result<T>| result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
    // No password, and then those that there are.
    let first = fitted.load(Ordering::Relaxed);
    let mut result = open(first.checked_sub(1).and_then(|number| passwords.get(number)));
    for number in 0..=passwords.len() {
        if !is_wrong(&result) {
            break;
        }
        if number == first {
            continue;
        }
        result = open(number.checked_sub(1).and_then(|number| passwords.get(number)));
        if !is_wrong(&result) {
            fitted.store(number, Ordering::Relaxed);
        }
    }
    result
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
    let (decoded_length, cancel) = (step.decoded_length, options.cancel.clone());
    let coder = CoderContext { properties, password, decoded_length, cancel, ..CoderContext::default() };
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
        if let Some(decoded) = link.codec.random_access(&source, &coder)? {
            done.push(decoded);
            continue;
        }
        let options = tarnfs_codec::Options { coder, ..options.clone() };
        let told = link.decoded_length();
        if number.saturating_add(1) < links.len() {
            done.push(Arc::new(MemorySource::new(all(link.codec, source, (told, told), &options)?, "the directory")));
            continue;
        }
        // Of what holds many files, only the start may be wanted; a copy of it would take its memory twice.
        let mut bytes = all(link.codec, source, (told, length), &options)?;
        bytes.truncate(usize::try_from(length).unwrap_or(usize::MAX));
        return Ok(bytes);
    }
    let source = done.pop().unwrap_or_else(|| SharedSource::clone(stored));
    let mut bytes = vec![0; length.min(source.len()) as usize];
    source.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// All that `codec` gives, which is up to `length` bytes. If fewer are wanted, little more than these.
/// No more memory is touched than that takes: a hundred thousand values of few bytes may be decoded one by one.
fn all(
    codec: &'static dyn Codec,
    source: SharedSource,
    (length, wanted): (u64, u64),
    options: &tarnfs_codec::Options,
) -> io::Result<Vec<u8>> {
    const STEP: u64 = 128 << 10;
    let mut indexing = Indexing::new(codec, source, options)?;
    let (mut bytes, mut chunks, mut damage) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let filled = bytes.len();
        // One byte more shows that there is more.
        let step = length.saturating_sub(filled as u64).saturating_add(1).min(STEP);
        bytes.resize(filled + step as usize, 0);
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
        // What is read whole is read to the end of its checksum.
        let is_enough = wanted < length && bytes.len() as u64 >= wanted;
        if read == 0 || is_enough {
            return Ok(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarnfs_source::testing::CountedSource;

    #[test]
    fn the_password_that_fitted_last_is_tried_first() {
        let passwords: Vec<Arc<[u8]>> = (0..40_u8).map(|number| Arc::from([number].as_slice())).collect();
        let fitted = AtomicUsize::new(0);
        let asked = |right: Option<u8>| {
            let mut asked = 0;
            let found = fitting(&passwords, &fitted, |password| {
                asked += 1;
                let is_right = password.map(|password| password[0]) == right;
                if is_right { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
            });
            (asked, found.is_ok())
        };
        assert_eq!(asked(Some(39)), (41, true));
        assert_eq!(asked(Some(39)), (1, true));
        assert_eq!(asked(None), (2, true));
        assert_eq!((asked(None), asked(Some(0))), ((1, true), (2, true)));
        assert_eq!((asked(Some(99)), asked(Some(0))), ((41, false), (1, true)));
    }

    #[test]
    fn who_reads_a_directory_ends_what_decodes_it() {
        let cancel = tarnfs_source::Cancel::default();
        cancel.cancel();
        let step = Step { codec: "pdf-stream".to_owned(), properties: vec![4], ..Step::default() };
        let blanks = Arc::new(MemorySource::new(vec![b' '; 1 << 20], "blanks"));
        let read = decode(&Options::default()).each(&step, blanks, &cancel, &mut |_| Ok(()));
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::Interrupted);
    }

    /// What holds all files of an archive has gigabytes: for the target of a link, only its start is decoded.
    #[test]
    fn of_what_holds_many_files_only_the_start_is_decoded() {
        const LENGTH: u64 = 8 << 20;
        const CHUNK: u32 = 64 << 10;
        let header = [&LENGTH.to_le_bytes()[..], &CHUNK.to_le_bytes(), &0_u32.to_le_bytes()].concat();
        let table = CHUNK.to_le_bytes().repeat((LENGTH / u64::from(CHUNK)) as usize);
        let content: Vec<u8> = (0..LENGTH / 4).flat_map(|number| (number as u32).to_le_bytes()).collect();
        let stored = [header, table, content.clone()].concat();
        let step = Step { codec: "chunked-solid".to_owned(), decoded_length: Some(LENGTH), ..Step::default() };
        let coder = Coder { steps: vec![step], is_behind_header: None };
        for wanted in [100_000, LENGTH] {
            let counted = Arc::new(CountedSource::new(Arc::new(MemorySource::new(stored.clone(), "solid"))));
            let source: SharedSource = Arc::<CountedSource>::clone(&counted);
            let found = decode(&Options::default()).decode(&coder, source, wanted, &|_| true).unwrap();
            assert!(found == content[..wanted as usize]);
            let read = counted.bytes();
            assert!((wanted..wanted + (1 << 20)).contains(&read), "{read} bytes read for {wanted}");
        }
    }
}
