//! Files that an archive does not simply store in one run: each piece is read where it lies, or through its coder.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tarnfs_codec::engine::{UnindexedSource, Workers};
use tarnfs_codec::{Codec, CoderContext, DecodeContext};
use tarnfs_format::{Body, Coder, Piece, Reader, Step};
use tarnfs_source::{Cancel, SharedSource, Slice, Source};

use crate::build::is_damage;
use crate::member_tables::LONG;
use crate::open::Options;
use crate::streams::StreamContext;

/// Stored pieces of up to so many bytes are compared with their checksum before they are served. Of longer ones only
/// what is asked for is read.
const VERIFIED_WHEN_STORED: u64 = 1 << 20;

/// What coders give, of the pieces that were read last.
#[derive(Debug, Default)]
pub(crate) struct CodedStreams(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    streams: HashMap<Key, Coded>,
    /// Goes up with each use.
    clock: u64,
}

/// The stream, where in it, how many bytes become how many, how.
type Key = (u32, u64, u64, u64, Arc<Coder>);

#[derive(Debug)]
struct Coded {
    source: SharedSource,
    /// Whoever reads all of a piece knows that it has the right checksum.
    verifies: bool,
    used: u64,
}

impl CodedStreams {
    /// How many are kept, and bytes of memory that they take together. The last one may take more.
    const MOST: usize = 256;
    const MOST_BYTES: usize = 32 << 20;

    fn lock(&self) -> std::sync::MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the coder of `piece` gives, and whether that is verified when it is decoded.
    fn get(
        &self,
        number: u32,
        stream: &SharedSource,
        piece: &Piece,
        context: &StreamContext,
    ) -> io::Result<(SharedSource, bool)> {
        let Some(coder) = &piece.coder else { return Err(io::ErrorKind::InvalidInput.into()) };
        let key = (number, piece.offset, piece.stored, piece.decoded, Arc::clone(coder));
        {
            let mut open = self.lock();
            open.clock += 1;
            let clock = open.clock;
            if let Some(coded) = open.streams.get_mut(&key) {
                coded.used = clock;
                return Ok((SharedSource::clone(&coded.source), coded.verifies));
            }
        }
        let (source, verifies) = decoded(number, stream, piece, coder, context)?;
        let (shown, closed) = self.lock().add(key, source, verifies);
        // Not while it is locked: these drop decoders.
        drop(closed);
        Ok((shown, verifies))
    }
}

impl Open {
    /// The same, or what another thread has opened meanwhile; and what is open no more.
    fn add(&mut self, key: Key, source: SharedSource, verifies: bool) -> (SharedSource, Vec<Coded>) {
        self.clock += 1;
        let used = self.clock;
        let coded = self.streams.entry(key).or_insert(Coded { source, verifies, used });
        coded.used = used;
        let shown = SharedSource::clone(&coded.source);
        let mut closed = Vec::new();
        let held = |open: &Self| open.streams.values().map(|coded| coded.source.memory()).sum::<usize>();
        if self.streams.len() > CodedStreams::MOST || held(self) > CodedStreams::MOST_BYTES {
            // Half of them at once, so that looking for the oldest costs nothing on average.
            let mut uses: Vec<u64> = self.streams.values().map(|coded| coded.used).collect();
            uses.sort_unstable();
            let least = uses[uses.len() / 2];
            closed.extend(self.streams.extract_if(|_, coded| coded.used < least).map(|(_, coded)| coded));
        }
        (shown, closed)
    }
}

/// Where the stored bytes of `piece` lie in `stream`.
pub(crate) fn stored(stream: &SharedSource, piece: &Piece) -> io::Result<Slice> {
    let header = piece.coder.as_ref().and_then(|coder| coder.is_behind_header.as_deref());
    let start = match header.map(|format| (format, tarnfs_format::by_name(format))) {
        None => piece.offset,
        Some((_, Some(format))) if let Reader::Random(format) = format.reader() => {
            format.find_content(&**stream, piece.offset, piece)?
        }
        Some((format, _)) => {
            let what = format!("it stands behind a header of {format}, which is not known");
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
    };
    Ok(Slice::new(SharedSource::clone(stream), start, piece.stored))
}

/// What the coder of `piece` gives of its stored bytes, and whether that is compared with the piece's checksum when it
/// is decoded. The first password that fits is taken.
fn decoded(
    number: u32,
    stream: &SharedSource,
    piece: &Piece,
    coder: &Coder,
    context: &StreamContext,
) -> io::Result<(SharedSource, bool)> {
    let mut result = decoded_with(number, None, stream, piece, coder, context);
    for password in context.passwords.iter() {
        match &result {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            _ => return result,
        }
        result = decoded_with(number, Some(password), stream, piece, coder, context).and_then(|(source, verifies)| {
            // Some ciphers do not tell a wrong password: what comes of it is wrong.
            let read = match piece.crc {
                Some(crc) if !verifies => crc_of(&source, piece.skip, piece.length, &context.cancel)
                    .and_then(|found| compare(&source, crc, found)),
                _ => source.read_at(&mut [0], piece.skip).map(drop),
            };
            match read {
                Err(error) if is_damage(&error) => {
                    // What noise does to decoders helps nobody.
                    log::debug!("a password does not fit: {error}");
                    Err(io::Error::new(io::ErrorKind::PermissionDenied, "wrong password, or damaged"))
                }
                read => read.map(|()| (source, verifies)),
            }
        });
    }
    result
}

fn decoded_with(
    number: u32,
    password: Option<&Arc<[u8]>>,
    stream: &SharedSource,
    piece: &Piece,
    coder: &Coder,
    context: &StreamContext,
) -> io::Result<(SharedSource, bool)> {
    let mut source: SharedSource = Arc::new(stored(stream, piece)?);
    let mut verifies = false;
    let chain = chain(coder, password, source.len(), piece.decoded)?;
    for (step, (codec, of_step)) in chain.iter().enumerate() {
        if let Some(random) = codec.random_access(&source, of_step)? {
            source = random;
            continue;
        }
        verifies = step + 1 == chain.len() && (piece.skip, piece.length) == (0, piece.decoded);
        let crc = piece.crc.filter(|_| verifies);
        let kept = context.members.as_ref().filter(|_| of_step.decoded_length >= Some(LONG));
        let kept = kept.and_then(|members| members.of(number, piece, step));
        source = Arc::new(undone(*codec, source, of_step.clone(), crc, context).keeping(kept));
    }
    if source.len() != piece.decoded {
        let what = format!("it has {} bytes, not the {} that the archive says", source.len(), piece.decoded);
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok((source, verifies))
}

/// The codecs of `coder`, and what each of them has to know, where it undoes `stored` bytes to `decoded` ones.
pub(crate) fn chain(
    coder: &Coder,
    password: Option<&Arc<[u8]>>,
    stored: u64,
    decoded: u64,
) -> io::Result<Vec<(&'static dyn Codec, CoderContext)>> {
    let unsupported = |what: String| io::Error::new(io::ErrorKind::Unsupported, what);
    let of_step = |step: &Step| {
        let codec = tarnfs_codec::coder_by_name(&step.codec)
            .ok_or_else(|| unsupported(format!("it is stored with {}, which tarnfs cannot read yet", step.codec)))?;
        let properties = step.properties.as_slice().into();
        Ok((codec, CoderContext { properties, password: password.cloned(), decoded_length: None }))
    };
    let mut chain = coder.steps.iter().map(of_step).collect::<io::Result<Vec<_>>>()?;
    let steps: Vec<_> = chain.iter().map(|(codec, context)| (*codec, context)).collect();
    let lengths = tarnfs_codec::lengths_of_steps(&steps, stored, decoded);
    for ((_, context), length) in chain.iter_mut().zip(lengths) {
        let length = length.ok_or_else(|| unsupported("it was compressed more than once".to_owned()))?;
        context.decoded_length = Some(length);
    }
    Ok(chain)
}

fn undone(
    codec: &'static dyn Codec,
    source: SharedSource,
    of_step: CoderContext,
    crc: Option<u32>,
    context: &StreamContext,
) -> UnindexedSource {
    let length = of_step.decoded_length.unwrap_or_default();
    let options = tarnfs_codec::Options {
        threads: if length > LONG { context.workers.threads().max(1) } else { 1 },
        limits: context.limits,
        dictionaries: context.decoding.dictionaries.clone(),
        scratch: context.decoding.scratch.clone(),
        coder: of_step.clone(),
        cancel: context.cancel.clone(),
        ..tarnfs_codec::Options::default()
    };
    let decoding = DecodeContext { coder: of_step, ..context.decoding.clone() };
    let (cache, workers) = (Arc::clone(&context.cache), Arc::clone(&context.workers));
    UnindexedSource::new(codec, source, length, crc, options, decoding, cache, workers)
}

/// CRC-32 of `length` bytes from byte `from` on.
fn crc_of(source: &SharedSource, from: u64, length: u64, cancel: &Cancel) -> io::Result<u32> {
    const STEP: usize = 128 << 10;
    let mut buffer = vec![0; length.min(STEP as u64) as usize];
    let (mut crc, mut done) = (crc32fast::Hasher::new(), 0);
    while done < length {
        cancel.check()?;
        let step = (length - done).min(STEP as u64) as usize;
        source.read_exact_at(&mut buffer[..step], from.saturating_add(done))?;
        crc.update(&buffer[..step]);
        done += step as u64;
    }
    Ok(crc.finalize())
}

fn compare(source: &SharedSource, expected: u32, crc: u32) -> io::Result<()> {
    if crc == expected {
        return Ok(());
    }
    let place = source.describe();
    let what = format!("{place}: its CRC-32 is {crc:08x}, not {expected:08x} as the archive says: it is damaged");
    Err(io::Error::new(io::ErrorKind::InvalidData, what))
}

/// The content of one file.
#[derive(Debug)]
pub(crate) struct PieceSource {
    number: u32,
    stream: SharedSource,
    size: u64,
    /// With the byte of the file at which each begins.
    pieces: Vec<(u64, Piece)>,
    /// Which of them were compared with their checksums.
    verified: Vec<AtomicBool>,
    /// The one that was opened last.
    last: Mutex<Option<(usize, SharedSource, bool)>>,
    coded: Arc<CodedStreams>,
    context: StreamContext,
}

impl PieceSource {
    /// Of a file of `size` bytes whose `pieces` lie in `stream`, which has that `number`.
    pub(crate) fn new(
        (number, stream): (u32, SharedSource),
        pieces: Vec<Piece>,
        size: u64,
        coded: Arc<CodedStreams>,
        context: StreamContext,
    ) -> Self {
        let mut end = 0_u64;
        let placed = |piece: Piece| {
            let start = end.saturating_add(piece.hole);
            end = start.saturating_add(piece.length);
            (start, piece)
        };
        let pieces: Vec<_> = pieces.into_iter().map(placed).collect();
        let verified = pieces.iter().map(|_| AtomicBool::new(false)).collect();
        Self { number, stream, size, pieces, verified, last: Mutex::default(), coded, context }
    }

    /// Of a file that is found while the archive in `source` is read.
    pub(crate) fn of_body(source: &SharedSource, body: &Body, coded: &Arc<CodedStreams>, options: &Options) -> Self {
        let context = StreamContext {
            cache: Arc::clone(&options.decoding.cache),
            workers: Workers::new(0),
            limits: options.limits,
            passwords: options.decoding.passwords.clone(),
            members: None,
            cancel: options.cancel.clone(),
            decoding: DecodeContext { unverified: false, ..options.decode_context() },
        };
        let pieces = body.pieces.clone().unwrap_or_default();
        Self::new((0, SharedSource::clone(source)), pieces, body.size, Arc::clone(coded), context)
    }

    /// What piece `at` is read from, and where it begins there.
    fn opened(&self, at: usize, piece: &Piece) -> io::Result<(SharedSource, u64)> {
        let last = || self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last()
            .as_ref()
            .filter(|(known, ..)| *known == at)
            .map(|(_, source, verifies)| (SharedSource::clone(source), *verifies));
        let has_steps = piece.coder.as_ref().is_some_and(|coder| !coder.steps.is_empty());
        let (source, verifies) = match known {
            Some(known) => known,
            None if has_steps => self.coded.get(self.number, &self.stream, piece, &self.context)?,
            None => (Arc::new(stored(&self.stream, piece)?) as SharedSource, false),
        };
        let skip = if has_steps { piece.skip } else { 0 };
        if !verifies {
            self.verify(at, piece, &source, skip, has_steps)?;
        }
        let replaced = last().replace((at, SharedSource::clone(&source), verifies));
        drop(replaced);
        Ok((source, skip))
    }

    /// The first bytes, which are verified only if that takes no more than they do.
    pub(crate) fn head(&self, length: usize) -> io::Result<Vec<u8>> {
        let mut head = vec![0; length];
        let coded = match self.pieces.as_slice() {
            [(0, piece)] if piece.skip == 0 => {
                piece.coder.as_ref().filter(|coder| coder.steps.len() == 1).zip(Some(piece))
            }
            _ => None,
        };
        let Some((coder, piece)) = coded else {
            self.read_exact_at(&mut head, 0)?;
            return Ok(head);
        };
        let source: SharedSource = Arc::new(stored(&self.stream, piece)?);
        for (codec, coder) in chain(coder, None, source.len(), piece.decoded)? {
            let limits = self.context.limits;
            let options = tarnfs_codec::Options { limits, coder, ..tarnfs_codec::Options::default() };
            let mut pass = codec.first_pass(SharedSource::clone(&source), &options)?;
            let mut filled = 0;
            while filled < length {
                match pass.read(&mut head[filled..])? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    read => filled += read,
                }
            }
        }
        Ok(head)
    }

    /// Reads all of it, and compares each piece with its checksum, however long it is.
    pub(crate) fn check(&self, cancel: &Cancel) -> io::Result<()> {
        for (at, (_, piece)) in self.pieces.iter().enumerate() {
            let (source, skip) = self.opened(at, piece)?;
            let crc = crc_of(&source, skip, piece.length, cancel)?;
            compare(&source, piece.crc.unwrap_or(crc), crc)?;
        }
        Ok(())
    }

    /// Compares the piece with its checksum, unless that was done, or it is long.
    fn verify(&self, at: usize, piece: &Piece, source: &SharedSource, skip: u64, has_steps: bool) -> io::Result<()> {
        let most = if has_steps { u64::MAX } else { VERIFIED_WHEN_STORED };
        let is_verified = self.verified.get(at).is_none_or(|verified| verified.load(Ordering::Relaxed));
        let Some(expected) = piece.crc.filter(|_| !is_verified && piece.length <= most) else {
            return Ok(());
        };
        compare(source, expected, crc_of(source, skip, piece.length, &self.context.cancel)?)?;
        if let Some(verified) = self.verified.get(at) {
            verified.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The piece that holds byte `offset`, or the next one behind it.
    fn at(&self, offset: u64) -> Option<(usize, u64, &Piece)> {
        let at = self.pieces.partition_point(|(start, piece)| start.saturating_add(piece.length) <= offset);
        self.pieces.get(at).map(|(start, piece)| (at, *start, piece))
    }
}

impl Source for PieceSource {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let wanted = self.size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..wanted];
        let mut filled = 0;
        while filled < wanted {
            let (rest, from) = (&mut buffer[filled..], offset + filled as u64);
            filled += match self.at(from) {
                Some((at, start, piece)) if start <= from => {
                    let (source, skip) = self.opened(at, piece)?;
                    let inside = from - start;
                    let length = (piece.length - inside).min(rest.len() as u64) as usize;
                    let part = &mut rest[..length];
                    source.read_exact_at(part, skip.saturating_add(inside))?;
                    length
                }
                next => {
                    let hole = next.map_or(u64::MAX, |(_, start, _)| start - from);
                    let length = hole.min(rest.len() as u64) as usize;
                    rest[..length].fill(0);
                    length
                }
            };
        }
        Ok(wanted)
    }

    fn len(&self) -> u64 {
        self.size
    }

    fn describe(&self) -> String {
        let start = self.pieces.first().map_or(0, |(_, piece)| piece.offset);
        format!("{} at byte {start}", self.stream.describe())
    }

    fn depth(&self) -> usize {
        let steps = |(_, piece): &(u64, Piece)| piece.coder.as_ref().map_or(0, |coder| coder.steps.len());
        self.stream.depth() + self.pieces.iter().map(steps).max().unwrap_or_default()
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        self.at(offset).map(|(_, start, _)| start.max(offset)).filter(|&data| data < self.size)
    }

    fn next_hole(&self, offset: u64) -> u64 {
        let mut end = offset;
        while let Some((_, start, piece)) = self.at(end).filter(|(_, start, _)| *start <= end) {
            end = start.saturating_add(piece.length);
        }
        end.min(self.size).max(offset)
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some((known, source, _)), Some((at, start, piece))) = (last.as_ref(), self.at(offset)) else {
            return self.size == 0;
        };
        let is_inside = start <= offset && start.saturating_add(piece.length) >= offset.saturating_add(length as u64);
        *known == at && is_inside && source.is_ready(piece.skip.saturating_add(offset - start), length)
    }

    fn is_unproven(&self) -> bool {
        self.stream.is_unproven()
    }

    fn verify(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
        self.stream.verify(is_abandoned)
    }

    fn memory(&self) -> usize {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().map_or(0, |(_, source, _)| source.memory())
    }
}
