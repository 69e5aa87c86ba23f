//! What the coders of pieces give: decoded as far as somebody reads, and kept while it is used.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tarnfs_codec::engine::{Blocks, Unindexed, UnindexedSource};
use tarnfs_codec::{Codec, CoderContext, DecodeContext};
use tarnfs_format::{Coder, Piece, Reader, Step};
use tarnfs_source::{Cancel, SharedSource, Slice, Source as _};

use crate::build::is_damage;
use crate::chain::chain;
use crate::member_tables::LONG;
use crate::members::compared;
use crate::open::Passwords;
use crate::streams::StreamContext;

use super::opening::Opening;

/// What coders give, of the pieces of one stream that were read last. It holds that stream, so nothing that the stream
/// is made of may hold it.
#[derive(Debug, Default)]
pub(crate) struct CodedStreams {
    open: Mutex<Open>,
    opening: Opening<Key>,
    shared: Arc<Shared>,
    /// It is in the list of those that share this.
    is_listed: AtomicBool,
}

/// What those of all streams of an archive share.
#[derive(Debug, Default)]
struct Shared {
    proven: ProvenPasswords,
    /// Goes up with each use.
    clock: AtomicU64,
    /// All in which something is open.
    all: Mutex<Vec<Weak<CodedStreams>>>,
}

/// Passwords of which a checksum has told that they are right, for some piece of the archive.
#[derive(Debug, Default)]
struct ProvenPasswords(Mutex<Vec<Password>>);

/// Without the password itself, which must not come into a log.
#[derive(Clone, PartialEq, Eq)]
struct Password(Arc<[u8]>);

impl std::fmt::Debug for Password {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Password")
    }
}

impl ProvenPasswords {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Password>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `password` is right.
    fn add(&self, password: &Arc<[u8]>) {
        let (mut proven, password) = (self.lock(), Password(Arc::clone(password)));
        if !proven.contains(&password) {
            proven.push(password);
        }
    }

    /// All of them, and whether each is known to be right: these first.
    fn first_of(&self, passwords: &Passwords) -> Vec<(Arc<[u8]>, bool)> {
        let proven = self.lock();
        let is_proven = |password: &Arc<[u8]>| proven.iter().any(|Password(proven)| proven == password);
        let mut all: Vec<_> = passwords.iter().map(|password| (Arc::clone(password), is_proven(password))).collect();
        all.sort_by_key(|(_, is_proven)| !is_proven);
        all
    }
}

#[derive(Debug, Default)]
struct Open {
    streams: HashMap<Key, Coded>,
    /// By the number of the stream that they are stored in.
    blocks: HashMap<u32, (Arc<Blocks>, u64)>,
}

/// The stream, where in it, how many bytes become how many, how, and the checksum that all of these have.
type Key = (u32, u64, u64, u64, Arc<Coder>, Option<u32>);

#[derive(Debug)]
struct Coded {
    decoded: Decoded,
    used: u64,
}

impl Coded {
    /// True of a copy in a file that nobody has read for long: others may need the file, or the space.
    fn is_idle_copy(&self) -> bool {
        self.decoded.in_order.as_ref().is_some_and(|in_order| in_order.is_idle_copy(CodedStreams::IDLE_COPY))
    }
}

/// What a coder gives.
#[derive(Debug, Clone)]
pub(super) struct Decoded {
    pub(super) source: SharedSource,
    /// The same, where it is compared with the piece's checksum when it is decoded.
    pub(super) whole: Option<Arc<UnindexedSource>>,
    /// What decodes it in order at first, byte by byte the same.
    pub(super) in_order: Option<Arc<UnindexedSource>>,
    /// The piece was compared to find the password.
    pub(super) is_compared: bool,
}

impl Decoded {
    /// What is wrong with bytes that are served all the same, once that is known.
    pub(super) fn complaint(&self) -> Option<&str> {
        self.whole.as_ref()?.complaint()
    }

    /// What is wrong with `piece` of a block, of which the rest is whole, once that is known. One that was compared
    /// with its checksum is right wherever it lies.
    pub(super) fn flaw(&self, piece: &Piece, was_compared: bool) -> Option<String> {
        let (in_order, end) = (self.in_order.as_ref()?, piece.skip.saturating_add(piece.length));
        let out_of_step = || in_order.out_of_step(end).filter(|_| !was_compared).map(str::to_owned);
        in_order.flaw_in(piece.skip..end).or_else(out_of_step)
    }
}

impl CodedStreams {
    /// How many are kept of an archive, and bytes of memory that they take together. The last one may take more.
    const MOST: usize = 256;
    const MOST_BYTES: usize = 32 << 20;
    /// How long a copy of what was decoded stays that nobody reads, when another stream is opened.
    const IDLE_COPY: Duration = Duration::from_secs(60);
    /// Streams whose blocks are kept.
    const MOST_OF_BLOCKS: usize = 16;

    /// The same for another stream of the archive.
    pub(crate) fn beside(&self) -> Arc<Self> {
        Arc::new(Self { shared: Arc::clone(&self.shared), ..Self::default() })
    }

    /// The blocks in `stream`, which has that `number`.
    pub(super) fn blocks(&self, number: u32, stream: &SharedSource, context: &StreamContext) -> Arc<Blocks> {
        let clock = self.now();
        let mut open = self.lock();
        if let Some((blocks, used)) = open.blocks.get_mut(&number) {
            *used = clock;
            return Arc::clone(blocks);
        }
        let mut closed = None;
        if open.blocks.len() >= Self::MOST_OF_BLOCKS {
            let oldest = open.blocks.iter().min_by_key(|(_, (_, used))| *used).map(|(number, _)| *number);
            closed = oldest.and_then(|oldest| open.blocks.remove(&oldest));
        }
        let (cache, workers) = (Arc::clone(&context.cache), Arc::clone(&context.workers));
        let blocks = Arc::new(Blocks::new(SharedSource::clone(stream), cache, workers));
        open.blocks.insert(number, (Arc::clone(&blocks), clock));
        drop(open);
        // Not while it is locked.
        drop(closed);
        blocks
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        self.shared.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// What the coder of `piece` gives.
    pub(super) fn get(
        self: &Arc<Self>,
        number: u32,
        stream: &SharedSource,
        piece: &Piece,
        context: &StreamContext,
    ) -> io::Result<Decoded> {
        let Some(coder) = &piece.coder else { return Err(io::ErrorKind::InvalidInput.into()) };
        let is_all = (piece.skip, piece.length) == (0, piece.decoded);
        let crc = piece.crc.filter(|_| is_all);
        let key = (number, piece.offset, piece.stored, piece.decoded, Arc::clone(coder), crc);
        let found = || {
            let mut open = self.lock();
            let coded = open.streams.get_mut(&key)?;
            coded.used = self.now();
            Some(coded.decoded.clone())
        };
        if let Some(found) = found() {
            return Ok(found);
        }
        let open = || {
            // Before what it lies in, which takes more memory, and is to stay longer.
            let used = self.now();
            let decoded = match split(piece, coder) {
                Some((block, last)) => of_block(&self.get(number, stream, &block, context)?, piece, last, context)?,
                None => decoded(number, stream, piece, coder, context, &self.shared.proven)?,
            };
            Ok(self.keep(key.clone(), decoded, used))
        };
        // To find the password, much may have to be decoded, and of what several do only one's is kept.
        if context.passwords.is_empty() { open() } else { self.opening.found_or_opened(&key, found, open) }
    }

    /// Keeps what was opened, and says what is to be read.
    fn keep(self: &Arc<Self>, key: Key, decoded: Decoded, used: u64) -> Decoded {
        let is_compared = decoded.is_compared;
        // Other pieces of what it gives were not.
        let shown = {
            let mut open = self.lock();
            let decoded = Decoded { is_compared: false, ..decoded };
            // Another thread may have opened it meanwhile.
            let coded = open.streams.entry(key).or_insert(Coded { decoded, used });
            coded.used = used.max(coded.used);
            coded.decoded.clone()
        };
        if !self.is_listed.swap(true, Ordering::Relaxed) {
            let mut all = self.shared.lock();
            // Each time their number has doubled those that are gone are taken out.
            if all.len() == all.capacity() {
                all.retain(|one| one.strong_count() > 0);
            }
            all.push(Arc::downgrade(self));
        }
        self.shared.make_room();
        Decoded { is_compared, ..shown }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Weak<CodedStreams>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes what was used longest ago, if there is too much of it.
    fn make_room(&self) {
        let all: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        let (mut uses, mut bytes) = (Vec::new(), 0_usize);
        for one in &all {
            let idle: Vec<_> = one.lock().streams.extract_if(|_, coded| coded.is_idle_copy()).collect();
            // Not while it is locked.
            drop(idle);
            for coded in one.lock().streams.values() {
                uses.push(coded.used);
                bytes = bytes.saturating_add(coded.decoded.source.memory());
            }
        }
        if uses.len() <= CodedStreams::MOST && bytes <= CodedStreams::MOST_BYTES {
            return;
        }
        // Half of them at once, so that looking for the oldest costs nothing on average.
        uses.sort_unstable();
        let least = uses[uses.len() / 2];
        for one in &all {
            let closed: Vec<_> = one.lock().streams.extract_if(|_, coded| coded.used < least).collect();
            // Not while it is locked: these drop decoders.
            drop(closed);
        }
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

/// The same piece without the last step of its coder, and that step, if it takes nothing but the bytes of this piece.
/// What gives these is opened once for all pieces in it.
fn split<'c>(piece: &Piece, coder: &'c Coder) -> Option<(Piece, &'c Step)> {
    let (last, steps) = coder.steps.split_last()?;
    if steps.is_empty() || !super::is_of_part(piece) {
        return None;
    }
    let block = Coder { steps: steps.to_vec(), is_behind_header: coder.is_behind_header.clone() };
    Some((Piece { coder: Some(Arc::new(block)), crc: None, ..piece.clone() }, last))
}

/// What `step` makes of the bytes of `piece`, which lie in `block`.
fn of_block(block: &Decoded, piece: &Piece, step: &Step, context: &StreamContext) -> io::Result<Decoded> {
    let codec = tarnfs_codec::coder_by_name(&step.codec).ok_or(io::ErrorKind::Unsupported)?;
    if piece.skip.checked_add(piece.length).is_none_or(|end| end > block.source.len()) {
        let what = format!("it ends behind byte {} of what it lies in", block.source.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    // Files of one archive are read one after the other.
    if let Some(in_order) = &block.in_order {
        in_order.read_ahead_into_copy();
    }
    let source: SharedSource = Arc::new(Slice::new(SharedSource::clone(&block.source), piece.skip, piece.length));
    let coder = CoderContext {
        properties: step.properties.as_slice().into(),
        decoded_length: Some(piece.length),
        cancel: context.cancel.clone(),
        unverified: context.decoding.unverified,
        ..CoderContext::default()
    };
    let undone = Arc::new(undone(codec, source, coder, None, context));
    let (source, whole) = (Arc::<UnindexedSource>::clone(&undone) as SharedSource, Some(Arc::clone(&undone)));
    Ok(Decoded { source, whole, in_order: Some(undone), is_compared: false })
}

/// What the coder of `piece` gives of its stored bytes. The first password that fits is taken; those that were `proven`
/// with other pieces come first.
fn decoded(
    number: u32,
    stream: &SharedSource,
    piece: &Piece,
    coder: &Coder,
    context: &StreamContext,
    proven: &ProvenPasswords,
) -> io::Result<Decoded> {
    let mut result = decoded_with(number, None, stream, piece, coder, context);
    let mut of_right_password = None;
    for (password, is_proven) in proven.first_of(&context.passwords) {
        match &result {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            _ => return result,
        }
        result = decoded_with(number, Some(&password), stream, piece, coder, context).and_then(|decoded| {
            let tried = try_password(&decoded, piece, coder, is_proven, context);
            let Err(error) = tried else {
                let is_compared = tried.is_ok_and(|is_compared| is_compared);
                let is_whole = decoded.whole.as_ref().is_some_and(|whole| whole.is_verified());
                if piece.crc.is_some() && piece.length > 0 && (is_compared || is_whole) {
                    proven.add(&password);
                }
                return Ok(Decoded { is_compared, ..decoded });
            };
            if !is_damage(&error) {
                return Err(error);
            }
            // What noise does to decoders helps nobody.
            log::debug!("a password does not fit: {error}");
            // One that opens other pieces may not be that of this one. Of 65 536 wrong ones, one passes the check of
            // AES in zip.
            let is_strong = || coder.steps.iter().any(|step| step.codec == "aes-zip");
            if context.decoding.unverified && (is_proven || is_strong()) {
                of_right_password.get_or_insert(Ok(decoded));
            } else if is_proven || is_strong() {
                of_right_password.get_or_insert(Err(error));
            }
            Err(io::Error::new(io::ErrorKind::PermissionDenied, "wrong password, or damaged"))
        });
    }
    match result {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => of_right_password.unwrap_or(Err(error)),
        result => result,
    }
}

/// Fails as damaged if what comes of a password is wrong: some ciphers do not tell, and the old one of zip has one byte
/// that does. True if the piece was compared with its checksum.
fn try_password(
    decoded: &Decoded,
    piece: &Piece,
    coder: &Coder,
    is_proven: bool,
    context: &StreamContext,
) -> io::Result<bool> {
    /// Decoders that fail at once if they are given noise.
    const NOTICE_NOISE: &[&str] =
        &["deflate", "deflate64", "bzip2", "lzma", "lzma-raw", "lzma-zip", "lzma2", "xz", "zstd"];
    let source = &decoded.source;
    // Of 65 536 wrong passwords, one passes. One that opens other pieces is no wrong one by chance.
    let is_known = is_proven && coder.steps.iter().any(|step| step.codec == "aes-zip");
    let Some(whole) = &decoded.whole else {
        // A cipher that tells nothing leaves it to the checksum, since an archive may have several passwords. A short
        // piece is compared before it is served, whatever is known.
        return match piece.crc {
            Some(crc) if !(is_known && super::is_long(piece)) => {
                compare(source, crc, crc_of(source, piece.skip, piece.length, &context.cancel)?)?;
                Ok(true)
            }
            _ => {
                source.read_at(&mut [0], piece.skip)?;
                unless_wrong(decoded.in_order.as_deref())
            }
        };
    };
    source.read_at(&mut [0], piece.skip)?;
    if !is_known && !coder.steps.iter().any(|step| NOTICE_NOISE.contains(&step.codec.as_str())) {
        // Nothing but the checksum tells.
        while whole.advance()? {
            context.cancel.check()?;
        }
    }
    unless_wrong(Some(whole))
}

/// Fails if it is known by now that `decoded` is damaged.
fn unless_wrong(decoded: Option<&UnindexedSource>) -> io::Result<bool> {
    match decoded.and_then(UnindexedSource::complaint) {
        Some(what) => Err(io::Error::new(io::ErrorKind::InvalidData, what.to_owned())),
        None => Ok(false),
    }
}

fn decoded_with(
    number: u32,
    password: Option<&Arc<[u8]>>,
    stream: &SharedSource,
    piece: &Piece,
    coder: &Coder,
    context: &StreamContext,
) -> io::Result<Decoded> {
    let stored: SharedSource = Arc::new(stored(stream, piece)?);
    let (mut done, mut whole, mut in_order, mut inputs) = (Vec::new(), None, None, Vec::new());
    let mut seal = None;
    let chain = chain(coder, password, stored.len(), piece.decoded)?;
    for (step, link) in chain.iter().enumerate() {
        let (source, of_step) = link.input(&stored, &done)?;
        let unverified = context.decoding.unverified;
        let of_step = CoderContext { cancel: context.cancel.clone(), unverified, ..of_step };
        if let Some(random) = link.codec.random_access(&source, &of_step)? {
            if link.codec.name() == "aes-zip" {
                seal = Some(SharedSource::clone(&random));
            }
            done.push(random);
            continue;
        }
        let verifies = step + 1 == chain.len() && (piece.skip, piece.length) == (0, piece.decoded);
        let crc = piece.crc.filter(|_| verifies);
        // Without a checksum the seek points may be those of damaged bytes, and a good copy would seem damaged.
        let is_long = of_step.decoded_length >= Some(LONG);
        let kept = context.members.as_ref().filter(|_| is_long && crc.is_some());
        let kept = kept.and_then(|members| members.of(number, piece, step));
        let is_block = (piece.skip, piece.length) != (0, piece.decoded);
        let undone = undone(link.codec, source, of_step, crc, context).keeping(kept).of_block(is_block);
        let undone = Arc::new(undone.sealed_by(seal.clone()).decoded_from(&inputs));
        inputs.push(Arc::clone(&undone));
        whole = verifies.then(|| Arc::clone(&undone));
        in_order = Some(Arc::clone(&undone));
        done.push(undone);
    }
    let source = done.pop().unwrap_or(stored);
    if source.len() != piece.decoded {
        let what = format!(
            "what is stored decodes to {} bytes, not to the {} that the archive says",
            source.len(),
            piece.decoded
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    in_order = in_order.filter(|in_order| in_order.len() == source.len());
    Ok(Decoded { source, whole, in_order, is_compared: false })
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
        // Threads that decode ahead would wait for the memory of what the source is decoded from, while this has some.
        threads: if length > LONG && source.depth() == 0 && codec.decodes_ahead() {
            context.workers.threads().max(1)
        } else {
            1
        },
        limits: context.limits,
        dictionaries: context.decoding.dictionaries.clone(),
        // What a password opens is on a disk only where nobody can read it, in however many archives it lies.
        scratch: if context.passwords.is_empty() {
            context.decoding.scratch.clone()
        } else {
            context.decoding.scratch.for_secrets()
        },
        coder: of_step.clone(),
        cancel: context.cancel.clone(),
        ..tarnfs_codec::Options::default()
    };
    let decoding = DecodeContext { coder: of_step, ..context.decoding.clone() };
    let (cache, workers) = (Arc::clone(&context.cache), Arc::clone(&context.workers));
    UnindexedSource::new(Unindexed { codec, source, length, crc }, options, decoding, cache, workers)
}

/// CRC-32 of `length` bytes from byte `from` on.
pub(super) fn crc_of(source: &SharedSource, from: u64, length: u64, cancel: &Cancel) -> io::Result<u32> {
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

pub(super) fn compare(source: &SharedSource, expected: u32, crc: u32) -> io::Result<()> {
    compared(crc, expected)
        .map_err(|what| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", source.describe())))
}
